//! The Windows services and firewall rules, as the Service Control Manager and the firewall are to
//! have them. Names, descriptions and dependencies are upstream's, so that every guide still fits.

use crate::item::{FirewallRule, Service, StartType};
use crate::settings::{Backend, Settings};

/// Node startup: makes the node's Calico resources and the HNS networks.
pub const NODE: &str = "CalicoNode";
/// Felix: network policy.
pub const FELIX: &str = "CalicoFelix";
/// confd: BGP routing. Only with the backend windows-bgp.
pub const CONFD: &str = "CalicoConfd";
pub const KUBELET: &str = "kubelet";

/// Ends the description of every service that we made.
pub const MARK: &str = " [managed by calicoctl-win]";

/// The group of every firewall rule that we made.
pub const FIREWALL_GROUP: &str = "calicoctl-win";

/// Where the executable that the services run is installed.
pub const EXECUTABLE: &str = r"C:\Program Files\calicoctl-win\calicoctl-win.exe";

/// The folder that it lies in, with nothing else.
pub const FOLDER: &str = r"C:\Program Files\calicoctl-win";

/// Seconds before the first, second and every later restart after a crash. That Felix leaves with
/// 129 to be started again at once is the supervisor's business, not this table's.
const RESTART_AFTER: [u32; 3] = [5, 10, 60];

/// The services that a backend needs, by name, in the order in which they start.
pub fn services(settings: &Settings) -> Vec<(&'static str, Service)> {
    let mut services = vec![
        (
            NODE,
            service(
                "Calico Windows Startup",
                "Calico Windows Startup, configures Calico datamodel resources for this node.",
                "node",
                &[],
            ),
        ),
        (
            FELIX,
            service(
                "Calico Windows Agent",
                "Calico Windows Per-host Agent, Felix, provides network policy enforcement for Kubernetes.",
                "felix",
                &[NODE],
            ),
        ),
    ];
    if settings.network.backend == Backend::WindowsBgp {
        let description = "Calico BGP Agent, confd, configures BGP routing.";
        services.push((CONFD, service("Calico BGP Agent", description, "confd", &[NODE])));
    }
    services
}

fn service(display_name: &str, description: &str, component: &str, depends_on: &[&str]) -> Service {
    Service {
        display_name: display_name.into(),
        description: format!("{description}{MARK}"),
        // Quoted, since otherwise Windows would try `C:\Program.exe` first.
        image_path: format!("\"{EXECUTABLE}\" service run {component}"),
        account: "LocalSystem".into(),
        start: StartType::Auto,
        depends_on: depends_on.iter().map(|&name| name.into()).collect(),
        restart_after: RESTART_AFTER.into(),
        parameters: Default::default(),
    }
}

/// Whether a service was made by us.
pub fn is_ours(service: &Service) -> bool {
    service.description.ends_with(MARK)
}

/// The inbound rules, each under its display name: the firewall's COM interface knows no other.
pub fn firewall_rules(settings: &Settings) -> Vec<FirewallRule> {
    let mut rules = Vec::new();
    if settings.network.backend == Backend::Vxlan {
        rules.push(rule("Overlay Traffic 4789 UDP", "UDP", "4789"));
    }
    if settings.platform.firewall_kubectl_exec && settings.network.backend != Backend::None {
        rules.push(rule("kubectl exec 10250", "TCP", "10250"));
    }
    rules
}

fn rule(display_name: &str, protocol: &str, local_ports: &str) -> FirewallRule {
    FirewallRule {
        display_name: display_name.into(),
        group: FIREWALL_GROUP.into(),
        protocol: protocol.into(),
        local_ports: local_ports.into(),
        enabled: true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::settings;
    use super::*;

    #[test]
    fn each_backend_has_its_services_and_rules() {
        let row = |backend: Backend| {
            let mut settings = settings("v3.30.3");
            settings.network.backend = backend;
            let services = services(&settings).into_iter().map(|(name, s)| format!("{name} after {:?}", s.depends_on));
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
          kubectl exec 10250: TCP 10250
        none
          CalicoNode after []
          CalicoFelix after ["CalicoNode"]
        "#);
    }

    #[test]
    fn our_services_carry_our_mark_and_others_do_not() {
        let (_, mut felix) = services(&settings("v3.30.3")).remove(1);
        assert!(is_ours(&felix));
        insta::assert_snapshot!(format!("{}\n{}", felix.description, felix.image_path), @r#"
        Calico Windows Per-host Agent, Felix, provides network policy enforcement for Kubernetes. [managed by calicoctl-win]
        "C:\Program Files\calicoctl-win\calicoctl-win.exe" service run felix
        "#);
        felix.description = felix.description.replace(MARK, "");
        assert!(!is_ours(&felix));
    }
}
