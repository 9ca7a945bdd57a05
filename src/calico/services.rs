//! The wanted Windows services and firewall rules. Names, descriptions and dependencies are upstream's, so that
//! existing guides still apply.

use serde::{Deserialize, Serialize};

use crate::item::{FirewallRule, Service, StartType};
use crate::settings::{Backend, Settings};

/// Node startup: creates the node's Calico resources and the HNS networks.
pub const NODE: &str = "CalicoNode";
/// Felix: network policy.
pub const FELIX: &str = "CalicoFelix";
pub const KUBELET: &str = "kubelet";

/// The role of one of our services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Node,
    Felix,
    Confd,
    Kubelet,
    KubeProxy,
}

/// What is known of a service.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The last argument of its command line: `service run node`. Its logs have this name, too.
    pub word: &'static str,
    /// Its name in Windows.
    pub name: &'static str,
    pub display_name: &'static str,
    pub description: &'static str,
    pub depends_on: &'static [&'static str],
    pub backends: &'static [Backend],
    /// How its component is started, by a `calico-node.exe` and by a `calico.exe`; empty if it is not Calico's.
    pub command: [&'static str; 2],
    /// Files that only this service reads, and reads at its start. For a service that is not Calico's: all that it reads.
    pub reads: &'static [&'static str],
}

const EVERY: &[Backend] = &[Backend::Vxlan, Backend::WindowsBgp, Backend::None];

impl Role {
    /// Calico's, in the order in which they start.
    pub const CALICO: [Self; 3] = [Self::Node, Self::Felix, Self::Confd];
    pub const ALL: [Self; 5] = [Self::Node, Self::Felix, Self::Confd, Self::Kubelet, Self::KubeProxy];

    pub const fn row(self) -> Row {
        match self {
            Self::Node => Row {
                word: "node",
                name: NODE,
                display_name: "Calico Windows Startup",
                description: "Calico Windows Startup, configures Calico datamodel resources for this node.",
                depends_on: &[],
                backends: EVERY,
                command: ["-startup", "component node startup"],
                reads: &[],
            },
            Self::Felix => Row {
                word: "felix",
                name: FELIX,
                display_name: "Calico Windows Agent",
                description: "Calico Windows Per-host Agent, Felix, provides network policy enforcement for Kubernetes.",
                depends_on: &[NODE],
                backends: EVERY,
                command: ["-felix", "component felix"],
                reads: &["felix.json", "static-rules.json"],
            },
            // BGP routing.
            Self::Confd => Row {
                word: "confd",
                name: "CalicoConfd",
                display_name: "Calico BGP Agent",
                description: "Calico BGP Agent, confd, configures BGP routing.",
                depends_on: &[NODE],
                backends: &[Backend::WindowsBgp],
                command: ["-confd", "component confd"],
                reads: &[],
            },
            // Neither depends on CalicoNode for Windows, which would stop them with it: their agents wait for the network.
            Self::Kubelet => Row {
                word: "kubelet",
                name: KUBELET,
                display_name: "kubelet",
                description: "Kubernetes node agent.",
                depends_on: &[],
                backends: &[],
                command: [""; 2],
                reads: &[
                    "kubelet.exe",
                    "kubernetes.json",
                    r"kubelet\config.yaml",
                    "bootstrap-kubelet.conf",
                    r"kubernetes\pki\ca.crt",
                ],
            },
            Self::KubeProxy => Row {
                word: "kube-proxy",
                name: super::kube_proxy::NAME,
                display_name: "kube-proxy",
                description: "Kubernetes network proxy.",
                depends_on: &[],
                backends: &[],
                command: [""; 2],
                reads: &["kube-proxy.exe", "kubernetes.json", r"kube-proxy\config.yaml", "calico-kube-config"],
            },
        }
    }

    pub const fn word(self) -> &'static str {
        self.row().word
    }

    /// The name of its service.
    pub const fn service(self) -> &'static str {
        self.row().name
    }

    /// Whether its program is one of Calico's.
    pub const fn is_calicos(self) -> bool {
        matches!(self, Self::Node | Self::Felix | Self::Confd)
    }

    /// The name of its log, without the ending.
    pub fn log(self) -> String {
        if self.is_calicos() { format!("calico-{}", self.word()) } else { self.word().to_owned() }
    }

    pub fn of_service(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.service() == name)
    }

    /// The role in a service's command line, if it is one of ours.
    pub fn of_command_line(image_path: &str) -> Option<Self> {
        let words: Vec<&str> = image_path.split_whitespace().rev().take(3).collect();
        let [word, "run", "service"] = words.as_slice() else {
            return None;
        };
        Self::ALL.into_iter().find(|role| role.word() == *word)
    }
}

/// The names of Calico's services in their start order; they stop in reverse.
pub const SERVICES: [&str; Role::CALICO.len()] = {
    let mut names = [""; Role::CALICO.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Role::CALICO[at].service();
        at += 1;
    }
    names
};

/// The end of the description of every service of this program.
pub const MARK: &str = " [managed by calicoctl-win]";

/// The group of every firewall rule of this program.
pub const FIREWALL_GROUP: &str = "calicoctl-win";

/// Two rules with upstream's display names.
const VXLAN_RULE: &str = "Overlay Traffic 4789 UDP";
const EXEC_RULE: &str = "kubectl exec 10250";

/// The path of the executable that the services run.
pub const EXECUTABLE: &str = r"C:\Program Files\calicoctl-win\calicoctl-win.exe";

/// Its folder, which contains nothing else.
pub const FOLDER: &str = r"C:\Program Files\calicoctl-win";

/// Seconds before the first, second and every later restart after a crash. Felix exits with 129 to be restarted at
/// once: the supervisor handles that, not this table.
const RESTART_AFTER: [u32; 3] = [5, 10, 60];

/// The services that a backend needs, by name, in the order in which they start.
pub fn services(backend: Backend) -> Vec<(&'static str, Service)> {
    let rows = Role::CALICO.map(Role::row).into_iter().filter(|row| row.backends.contains(&backend));
    rows.map(|row| (row.name, service(&row))).collect()
}

pub(super) fn service(row: &Row) -> Service {
    Service {
        display_name: row.display_name.into(),
        description: format!("{}{MARK}", row.description),
        // Quoted, since otherwise Windows would try `C:\Program.exe` first.
        image_path: format!("\"{EXECUTABLE}\" service run {}", row.word),
        account: "LocalSystem".into(),
        start: StartType::Auto,
        depends_on: row.depends_on.iter().map(|&name| name.into()).collect(),
        restart_after: RESTART_AFTER.into(),
        recovery: None,
        parameters: Default::default(),
    }
}

/// Whether a service is ours.
pub fn is_ours(service: &Service) -> bool {
    service.description.ends_with(MARK)
}

/// The inbound rules, each by its display name: the firewall's COM interface has no other name.
pub fn firewall_rules(settings: &Settings) -> Vec<FirewallRule> {
    let mut rules = Vec::new();
    match settings.network.backend {
        Backend::Vxlan => rules.push(rule(VXLAN_RULE, "UDP", "4789")),
        // Peers connect to each other, so without it some sessions are never made (defect B31).
        Backend::WindowsBgp => rules.push(rule("Calico BGP 179", "TCP", "179")),
        Backend::None => {}
    }
    if settings.platform.firewall_kubectl_exec && settings.network.backend != Backend::None {
        rules.push(rule(EXEC_RULE, "TCP", "10250"));
    }
    rules
}

/// Whether the scripts make a firewall rule of this display name.
pub fn is_scripts_rule(display_name: &str) -> bool {
    [VXLAN_RULE, EXEC_RULE].iter().any(|own| own.eq_ignore_ascii_case(display_name))
}

fn rule(display_name: &str, protocol: &str, local_ports: &str) -> FirewallRule {
    FirewallRule {
        display_name: display_name.into(),
        group: FIREWALL_GROUP.into(),
        protocol: protocol.into(),
        local_ports: local_ports.into(),
        enabled: true,
        profiles: String::new(),
        remote_addresses: String::new(),
        edge_traversal: false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::settings;
    use super::*;

    #[test]
    fn each_backend_has_its_services_and_rules() {
        let row = |backend: Backend| {
            let mut settings = settings("v3.30.3");
            settings.network.backend = backend;
            let services = services(backend).into_iter().map(|(name, s)| format!("{name} after {:?}", s.depends_on));
            let rules = firewall_rules(&settings)
                .into_iter()
                .map(|r| format!("{}: {} {}", r.display_name, r.protocol, r.local_ports));
            format!("{}\n  {}\n", backend.name(), services.chain(rules).collect::<Vec<_>>().join("\n  "))
        };
        let rows = [Backend::Vxlan, Backend::WindowsBgp, Backend::None].map(row).concat();
        insta::assert_snapshot!(rows, @r#"
        vxlan
          CalicoNode after []
          CalicoFelix after ["CalicoNode"]
          Overlay Traffic 4789 UDP: UDP 4789
          kubectl exec 10250: TCP 10250
        windows-bgp
          CalicoNode after []
          CalicoFelix after ["CalicoNode"]
          CalicoConfd after ["CalicoNode"]
          Calico BGP 179: TCP 179
          kubectl exec 10250: TCP 10250
        none
          CalicoNode after []
          CalicoFelix after ["CalicoNode"]
        "#);
    }

    #[test]
    fn our_services_have_our_mark_and_others_do_not() {
        let (_, mut felix) = services(Backend::Vxlan).remove(1);
        assert!(is_ours(&felix));
        insta::assert_snapshot!(format!("{}\n{}", felix.description, felix.image_path), @r#"
        Calico Windows Per-host Agent, Felix, provides network policy enforcement for Kubernetes. [managed by calicoctl-win]
        "C:\Program Files\calicoctl-win\calicoctl-win.exe" service run felix
        "#);
        felix.description = felix.description.replace(MARK, "");
        assert!(!is_ours(&felix));
    }
}
