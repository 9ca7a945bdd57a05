//! Who reads what, and so what must stop before a change and start after it; and the names of the
//! phases that users see.

use super::item::Id;

/// Our services in the order in which they start; they stop backwards.
pub const SERVICES: [&str; 3] = ["CalicoNode", "CalicoFelix", "CalicoConfd"];

/// Upstream's service that waited for an upgrade by the operator. We have none: it is here to be
/// stopped before it is removed, and to run again when it was given back.
pub const UPGRADE_SERVICE: &str = "CalicoUpgrade";

/// Every service that a run may stop and start, in the order in which they start.
pub fn all_services() -> impl DoubleEndedIterator<Item = &'static str> {
    SERVICES.into_iter().chain([UPGRADE_SERVICE])
}

/// The service that the other two depend on, and that makes the HNS networks.
pub const NODE_SERVICE: &str = "CalicoNode";

/// Whether a running service must be stopped before this item changes.
///
/// All three run our executable with the release's binaries and read `services.json`, the
/// kubeconfig and the etcd files at start. `config.ps1` and the CNI files are read by others.
///
/// A service that is another product's reads nothing of ours; only its own definition concerns it.
pub fn reads(service: &str, id: &Id) -> bool {
    match id {
        Id::Service(name) if name == service => true,
        _ if !all_services().any(|own| own == service) => false,
        Id::Tree(_) | Id::Network(_) => true,
        Id::Service(name) => name == NODE_SERVICE,
        Id::File(path) => {
            let name = path.name().to_ascii_lowercase();
            matches!(
                name.as_str(),
                "calicoctl-win.exe"
                    | "services.json"
                    | "calico-kube-config"
                    | "nodename"
                    | "server.key"
                    | "server.crt"
                    | "ca.crt"
            ) || (name == "static-rules.json" && service == "CalicoFelix")
        }
        _ => false,
    }
}

/// The phase that an item's change belongs to, in kebab-case.
pub const fn phase(id: &Id, put: bool) -> &'static str {
    match id {
        Id::Dir(_) | Id::Tree(_) => "release",
        Id::File(_) => "files",
        Id::RegValue { .. } => "registry",
        Id::Firewall(_) => "firewall",
        Id::Service(_) => "services",
        Id::Network(_) | Id::Route(_) | Id::Adapter(_) if put => "hns-network",
        Id::Network(_) | Id::Route(_) | Id::Adapter(_) => "wait-network",
        Id::CniConf(_) => "cni-conf",
        Id::Running(_) => "run",
    }
}
