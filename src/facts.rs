//! What was measured, once, on the node and in the cluster. Plain records that serialize: with a saved facts file you
//! can plan for another machine.

mod cluster;
mod provider;
mod survey;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use cluster::{
    ApiGroup, BgpFacts, ClusterFacts, ClusterNode, ETCD, EksFacts, FLANNEL, FelixFacts, FlannelFacts, HostProcess,
    LEFT_OUT, NodeCounts, OperatorFacts, OperatorPool, PolicyFacts, PoolFacts, Right, TyphaFacts,
};

pub use provider::{Brings, MetadataRoute, Provider};
pub use survey::{CniConfig, Firewall, ServiceFacts, Survey, Writers};

use crate::fault::Fault;
use crate::values::{Cidr, WinPath};

/// The two records together, as `plan --facts FILE` reads them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    pub node: NodeFacts,
    /// The cluster's facts; none if the plan is made without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFacts>,
}

/// The Windows machine.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeFacts {
    /// DNS host name, lower case: not the 15-character NetBIOS name.
    pub host_name: String,
    pub os: Os,
    /// Whether this process has administrator rights.
    pub elevated: bool,
    /// Distinguishes this machine from another with the same name; none if Windows does not report it. Not used in a plan for another
    /// machine.
    #[serde(skip)]
    pub machine_id: Option<String>,
    /// Identity of the current boot; changes with every reboot and never with the clock.
    pub boot_id: String,
    #[serialize_always]
    pub runtime: Option<Runtime>,
    /// Adapters that are up. Of several with a default route, the one that Windows prefers comes first.
    pub adapters: Vec<Adapter>,
    /// Version of the Host Networking Service; none if HNS does not answer.
    #[serialize_always]
    pub hns: Option<HnsVersion>,
    /// Which of the Windows features that Calico uses are installed; none if they were not queried.
    pub features: Option<Features>,
    /// What requires a restart of Windows, a sentence each; empty if nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_reboot: Vec<String>,
    /// TLS settings in the registry; none if they were not read.
    pub tls: Option<Tls>,
    /// None if nothing was found or queried.
    pub cloud: Option<Cloud>,
    /// What else is on the machine; none if that was not queried.
    pub survey: Option<Survey>,
    /// What could not be read, with Windows' reason. A part named here is empty above, but that does not mean that it
    /// is absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<Part, String>,
    /// HNS did not answer in time: every later question would take as long.
    #[serde(skip)]
    pub hns_stuck: Option<Fault>,
}

/// A part of [`NodeFacts`] that may be unreadable while the others are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    Adapters,
    Elevated,
    Features,
    Hns,
    PendingReboot,
    Runtime,
    Survey,
    Tls,
}

impl NodeFacts {
    /// The facts for a run, which asks HNS many times.
    ///
    /// # Errors
    /// `HnsStuck`.
    pub fn with_hns(self) -> Result<Self, Fault> {
        self.hns_stuck.clone().map_or(Ok(self), Err)
    }

    /// Records that a part could not be read.
    pub fn leave_out(&mut self, part: Part, why: impl Into<String>) {
        match part {
            Part::Adapters => self.adapters.clear(),
            // Without a known user, assume no administrator rights.
            Part::Elevated => self.elevated = false,
            Part::Features => self.features = None,
            Part::Hns => self.hns = None,
            Part::PendingReboot => self.pending_reboot.clear(),
            Part::Runtime => self.runtime = None,
            Part::Survey => self.survey = None,
            Part::Tls => self.tls = None,
        }
        self.unread.insert(part, why.into());
    }

    /// Why a part is missing; none if it was read.
    pub fn untold(&self, part: Part) -> Option<&str> {
        self.unread.get(&part).map(String::as_str)
    }

    /// The parts that decide how a node is installed and could not be read, with the reason.
    pub fn undecided(&self) -> Vec<&str> {
        [Part::Adapters, Part::Hns, Part::Runtime, Part::Survey]
            .into_iter()
            .filter_map(|part| self.untold(part))
            .collect()
    }
}

/// Windows features, by what they provide: whether they are installed, not whether they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Features {
    /// The services hns and vmcompute, and a vmcompute.dll that loads.
    pub containers: bool,
    /// The service RemoteAccess with the routing protocols: BGP. Windows Server has it, disabled, also without the
    /// feature.
    pub remote_access: bool,
    /// Whether the feature Routing is installed, by Server Manager's record; none if there is no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<bool>,
}

impl Features {
    /// The registry key of Server Manager's record of the feature Routing. The records have the features' names of
    /// Get-WindowsFeature, and their `InstallState` is 0 for what is not installed, as Microsoft's article on a missing
    /// Remote Desktop license server reads it.
    pub const ROUTING: &str = r"SOFTWARE\Microsoft\ServerManager\ServicingStorage\ServerComponentCache\Routing";
    pub const INSTALL_STATE: &str = "InstallState";

    /// Whether a feature in this state is installed: 1, as in `State` of MSFT_ServerFeature.
    pub const fn is_installed(state: u32) -> bool {
        state == 1
    }
}

/// The settings that decide whether programs that use Windows's own TLS use version 1.2. This program does not: it
/// has its own. An absent setting means Windows's default, which is on since Server 2012.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tls {
    /// SCHANNEL's `Protocols\TLS 1.2\Client`: false disables it for all programs.
    pub client_enabled: Option<bool>,
    /// The same key's `DisabledByDefault`: true enables it only for programs that request it explicitly.
    pub client_disabled_by_default: Option<bool>,
    /// .NET 4's `SchUseStrongCrypto`, for 64-bit and 32-bit programs.
    pub dotnet_strong_crypto: Option<bool>,
    pub dotnet_strong_crypto_32: Option<bool>,
    /// .NET 4's `SystemDefaultTlsVersions`, likewise.
    pub dotnet_system_versions: Option<bool>,
    pub dotnet_system_versions_32: Option<bool>,
    /// WinHTTP's `DefaultSecureProtocols`, likewise: a set of bits of which 0x800 is TLS 1.2.
    pub win_http: Option<u32>,
    pub win_http_32: Option<u32>,
}

/// The platform that the machine is on, as far as the machine shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cloud {
    pub provider: Provider,
    /// The instance's name in the cloud's metadata service: on clouds the Node often has this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// What identified the platform.
    pub evidence: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Os {
    /// 17763 = Server 2019, 20348 = 2022, 26100 = 2025.
    pub build: u32,
    /// Update Build Revision, the number behind the build.
    pub ubr: u32,
    pub product: Product,
    /// From the registry: `Server`, `Server Core`, `Nano Server`, `Client`.
    pub installation_type: String,
    /// `amd64` or `arm64`: the machine's architecture, not this process's.
    pub arch: String,
    /// The name of the release, for example `21H2`; Windows has one since 20H2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Product {
    Client,
    DomainController,
    Server,
}

/// The container runtime, and where it reads CNI plugins and configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runtime {
    pub kind: RuntimeKind,
    /// From its executable; empty if that has none.
    pub version: String,
    pub cni_bin_dir: WinPath,
    pub cni_conf_dir: WinPath,
    /// The image of each pod's sandbox (pause); none if the runtime's configuration does not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_image: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    Containerd,
    Docker,
}

impl RuntimeKind {
    /// In the order in which a node's runtime is looked for.
    pub const ALL: [Self; 2] = [Self::Containerd, Self::Docker];

    /// The name of its service.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Docker => "docker",
        }
    }
}

/// A network adapter that is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Adapter {
    /// Interface alias, for example `Ethernet` or `vEthernet (Ethernet)`.
    pub name: String,
    pub mac: String,
    pub addresses: Vec<Cidr>,
    /// Next hop of its default route, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    pub dhcp: bool,
    /// A team of adapters made by Windows itself (LBFO), on which HNS cannot create a vSwitch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub team: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct HnsVersion {
    pub major: u32,
    pub minor: u32,
}

/// `Ethernet` for `Ethernet` and for `vEthernet (Ethernet)`, the host's side of its vSwitch.
pub fn physical(interface: &str) -> &str {
    interface.strip_prefix("vEthernet (").and_then(|rest| rest.strip_suffix(')')).unwrap_or(interface)
}

impl Adapter {
    /// The adapter that carries this node's traffic: the named one (or the host's own on the vSwitch that uses it);
    /// else the one with the node's address; else the one with the default route; else any with an address that others
    /// can reach. None if the name, or the node's address, is not found: no other adapter is a substitute.
    pub fn choose<'a>(adapters: &'a [Self], name: Option<&str>, node_ip: Option<Ipv4Addr>) -> Option<&'a Self> {
        if let Some(name) = name {
            let is = |wanted: &str| adapters.iter().find(|a| a.name.to_lowercase() == wanted.to_lowercase());
            return is(&format!("vEthernet ({name})")).or_else(|| is(name));
        }
        if let Some(ip) = node_ip {
            return adapters.iter().find(|adapter| adapter.addresses.iter().any(|cidr| cidr.addr() == ip));
        }
        let mut usable = adapters.iter().filter(|adapter| adapter.reachable_address().is_some());
        usable.clone().find(|adapter| adapter.gateway.is_some()).or_else(|| usable.next())
    }

    /// Its first address that others can reach: neither loopback nor link-local, nor the host's on the containers' NAT
    /// network.
    pub fn reachable_address(&self) -> Option<Ipv4Addr> {
        if self.name.eq_ignore_ascii_case("vEthernet (nat)") {
            return None;
        }
        self.addresses.iter().map(|cidr| cidr.addr()).find(|ip| !ip.is_loopback() && !ip.is_link_local())
    }
}

impl HnsVersion {
    /// Direct Server Return: HNS 9.3 to 9.x, or 10.2 and later (hcsshim `hcnglobals.go`).
    pub fn supports_dsr(self) -> bool {
        (self.major == 9 && self.minor >= 3) || self >= Self { major: 10, minor: 2 }
    }
}

impl Os {
    /// Whether the build has Direct Server Return, for when HNS was not asked: 17763.1432 and
    /// later, or build 18317 and later (reference: the scripts' own rule).
    pub fn supports_dsr(&self) -> bool {
        (self.build == 17763 && self.ubr >= 1432) || self.build >= 18317
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str, addresses: &[&str], gateway: Option<&str>) -> Adapter {
        Adapter {
            name: name.into(),
            mac: "00-15-5D-01-02-03".into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            gateway: gateway.map(|g| g.parse().unwrap()),
            dhcp: true,
            team: false,
        }
    }

    #[test]
    fn the_adapter_is_chosen_by_name_then_node_address_then_default_route() {
        let adapters = [
            adapter("vEthernet (nat)", &["172.20.0.1/20"], Some("172.20.0.2")),
            adapter("Storage", &["10.9.0.4/24"], None),
            adapter("Spare", &["169.254.3.4/16"], Some("10.30.0.1")),
            adapter("Ethernet", &["10.20.0.21/24"], Some("10.20.0.1")),
        ];
        let ip = |text: &str| Some(text.parse().unwrap());
        for (name, node_ip, chosen) in [
            (None, None, Some("Ethernet")),
            (Some("storage"), None, Some("Storage")),
            (Some("storage"), ip("10.20.0.21"), Some("Storage")),
            (None, ip("10.9.0.4"), Some("Storage")),
            (Some("Wi-Fi"), None, None),
            (None, ip("10.9.0.5"), None),
        ] {
            let found = Adapter::choose(&adapters, name, node_ip).map(|adapter| adapter.name.as_str());
            assert_eq!(found, chosen, "{name:?} {node_ip:?}");
        }
        // Without a default route, any that others can reach; none if there is none.
        let chosen = |adapters| Adapter::choose(adapters, None, None).map(|adapter| adapter.name.as_str());
        assert_eq!(chosen(&adapters[..3]), Some("Storage"));
        assert_eq!(chosen(&adapters[..1]), None);
    }

    #[test]
    fn an_adapter_bound_to_a_vswitch_is_found_by_its_own_name() {
        let adapters =
            [adapter("Ethernet", &[], None), adapter("vEthernet (Ethernet)", &["10.20.0.21/24"], Some("10.20.0.1"))];
        let found = Adapter::choose(&adapters, Some("ETHERNET"), None).unwrap();
        assert_eq!(found.name, "vEthernet (Ethernet)");
    }
}
