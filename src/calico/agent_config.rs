//! The config of the Windows services: the document that install writes and `service run` reads.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::services::Role;
use crate::settings::{Backend, Datastore, EtcdTls};
use crate::values::{NodeName, Vni, WinPath};

/// `C:\ProgramData\calicoctl-win\services.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentConfig {
    pub node_name: NodeName,
    pub backend: Backend,
    /// VSID that the HNS network `Calico` must have.
    pub vni: Vni,
    /// Physical adapter for the network `External`; if none, HNS chooses.
    pub adapter: Option<String>,
    /// The folder of the components' logs.
    pub log_dir: WinPath,
    /// Seconds to wait for a valid IPv4 address after boot; 0 does not wait.
    pub valid_ip_timeout_s: u64,
    /// Restore 169.254.169.254/32 after the vSwitch removed it.
    pub metadata_route: bool,
    /// The CNI configuration, which kubelet sees only while the network exists; none for policy-only, and if an earlier
    /// version of this program wrote the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni_conf: Option<WinPath>,
    /// Run once at every boot and every start of kubelet, until it exits 0.
    pub startup: Command,
    pub felix: Command,
    /// The programs of the other services, by their words; none for one that the backend does not need.
    #[serde(flatten)]
    pub others: BTreeMap<String, Option<Command>>,
}

impl AgentConfig {
    pub const PATH: &str = r"C:\ProgramData\calicoctl-win\services.json";

    /// The program of a role. confd runs only for windows-bgp (defect B3 of upstream).
    pub fn command(&self, role: Role) -> Option<&Command> {
        match role {
            Role::Node => Some(&self.startup),
            Role::Felix => Some(&self.felix),
            other => self.others.get(other.word())?.as_ref(),
        }
    }

    /// Moves what only Felix reads into a document of its own: a change of it restarts no other service.
    pub fn split_felix(mut self) -> (Self, FelixConfig) {
        let (own, shared) = self.felix.env.into_iter().partition(|(name, _)| is_felix_setting(name));
        self.felix.env = shared;
        (self, FelixConfig { env: own })
    }

    /// The kubeconfig of the programs; none if they need none.
    pub fn kubeconfig(&self) -> Option<WinPath> {
        self.startup.env.get("KUBECONFIG")?.parse().ok()
    }

    /// Where Calico keeps its data, from the programs' environment.
    pub fn datastore(&self) -> Datastore {
        let told = |name: &str| self.startup.env.get(name).map(String::as_str).unwrap_or_default();
        let file = |name: &str| told(name).parse::<WinPath>().ok();
        if told("CALICO_DATASTORE_TYPE") != "etcdv3" {
            return Datastore::Kubernetes;
        }
        let tls = match (file("ETCD_KEY_FILE"), file("ETCD_CERT_FILE"), file("ETCD_CA_CERT_FILE")) {
            (Some(key_file), Some(cert_file), Some(ca_cert_file)) => {
                Some(EtcdTls { key_file, cert_file, ca_cert_file })
            }
            _ => None,
        };
        Datastore::Etcdv3 { endpoints: told("ETCD_ENDPOINTS").split(',').map(str::to_owned).collect(), tls }
    }

    /// Both documents as one.
    #[must_use]
    pub fn with(mut self, felix: FelixConfig) -> Self {
        self.felix.env.extend(felix.env);
        self
    }
}

/// Felix reads each of its settings from a variable of this form; no other component does.
fn is_felix_setting(name: &str) -> bool {
    name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("FELIX_"))
}

/// `C:\ProgramData\calicoctl-win\felix.json`: Felix's own variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FelixConfig {
    pub env: BTreeMap<String, String>,
}

impl FelixConfig {
    pub const PATH: &str = r"C:\ProgramData\calicoctl-win\felix.json";
}

/// A process to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Command {
    pub program: WinPath,
    pub args: Vec<String>,
    /// Working folder.
    pub dir: WinPath,
    /// The complete set of its own variables; the system's are added when it is started.
    pub env: BTreeMap<String, String>,
}

impl Command {
    /// The address at which Felix, started like this, reports whether it is ready; none if that is disabled.
    pub fn health(&self) -> Option<SocketAddr> {
        let var = |name: &str| {
            let mut own = self.env.iter();
            own.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        let enabled = var("FELIX_HEALTHENABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let port = var("FELIX_HEALTHPORT").map_or(Some(9099), |port| port.parse().ok());
        // A name, or the wildcard address, means this machine.
        let host = var("FELIX_HEALTHHOST").and_then(|host| host.parse().ok()).unwrap_or(Ipv4Addr::LOCALHOST);
        let host = if host.is_unspecified() { Ipv4Addr::LOCALHOST } else { host };
        port.filter(|_| enabled).map(|port| SocketAddr::from((host, port)))
    }
}

/// Where a program on this machine reports whether it is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveEndpoint {
    /// The program, for messages.
    pub name: &'static str,
    pub at: SocketAddr,
    /// What is requested, without the first slash.
    pub path: &'static str,
    /// Whether the program first waits for others, and only then opens the port.
    pub opens_late: bool,
}

impl LiveEndpoint {
    pub const fn of_felix(at: SocketAddr) -> Self {
        Self { name: "Felix", at, path: "liveness", opens_late: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn felix_is_asked_at_its_configured_health_address() {
        for (env, wanted) in [
            ("", None),
            ("FELIX_HEALTHENABLED=false", None),
            ("FELIX_HEALTHENABLED=true", Some("127.0.0.1:9099")),
            ("felix_healthenabled=True felix_healthport=9100 FELIX_HEALTHHOST=0.0.0.0", Some("127.0.0.1:9100")),
            ("FELIX_HEALTHENABLED=true FELIX_HEALTHHOST=10.20.0.21", Some("10.20.0.21:9099")),
            ("FELIX_HEALTHENABLED=true FELIX_HEALTHHOST=localhost", Some("127.0.0.1:9099")),
        ] {
            let pairs = env.split_whitespace().filter_map(|pair| pair.split_once('='));
            let command = Command {
                program: WinPath::known(r"C:\CalicoWindows\calico-node.exe"),
                args: Vec::new(),
                dir: WinPath::known(r"C:\CalicoWindows"),
                env: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            };
            assert_eq!(command.health(), wanted.map(|at| at.parse().unwrap()), "{env}");
        }
    }
}
