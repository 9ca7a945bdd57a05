//! The HNS networks that Calico needs. The agent creates `External` and checks `Calico`, and the engine waits for both:
//! this is their common definition.

use std::net::Ipv4Addr;

use super::flannel;
use crate::item::{Network, NetworkKind};
use crate::settings::Backend;
use crate::values::{Cidr, Vni};

/// The network that CalicoNode creates first, so that the vSwitch exists before Calico needs it.
pub const BOOTSTRAP: &str = "External";
/// The pods' network.
pub const PODS: &str = "Calico";

/// The endpoint on it that is this host: kube-proxy uses its address as the source of what it balances.
pub const HOST_ENDPOINT: &str = "Calico_ep";

const BOOTSTRAP_GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 255, 1);
const BOOTSTRAP_VSID: u32 = 9999;

/// Subnet of `External`, as upstream's scripts and other tools expect it.
pub fn bootstrap_prefix() -> Cidr {
    "192.168.255.0/30".parse().expect("a literal CIDR is one")
}

/// The wanted `External`; none with the backend none. `adapter` is the one that it must use.
pub fn bootstrap(backend: Backend, adapter: Option<String>) -> Option<Network> {
    let kind = kind(backend)?;
    Some(Network {
        kind,
        subnet: Some(bootstrap_prefix()),
        gateway: Some(BOOTSTRAP_GATEWAY),
        vsid: (kind == NetworkKind::Overlay).then_some(BOOTSTRAP_VSID),
        adapter,
        management_ip: None,
    })
}

/// The wanted `Calico`; none with the backend none. Its subnet is the IPAM block that the node gets, so it is left
/// open.
pub fn pods(backend: Backend, vni: Vni) -> Option<Network> {
    let kind = kind(backend)?;
    let vsid = (kind == NetworkKind::Overlay).then(|| vni.get());
    Some(Network { kind, subnet: None, gateway: None, vsid, adapter: None, management_ip: None })
}

/// Whether a network is Calico's by its name. Other products' networks are never deleted (upstream's scripts delete
/// every network but NAT: defect B13).
pub fn is_calicos(name: &str) -> bool {
    let name = name.to_lowercase();
    name == "external" || name.starts_with("calico")
}

/// Whether a network of this name is ever deleted by a plan: Calico's, and Flannel's in a migration.
pub fn may_be_deleted(name: &str) -> bool {
    is_calicos(name) || flannel::is_network(name)
}

/// Whether Calico's CNI plugin makes the network for pods: `Calico`, or without the setting for a single network one for
/// each block of addresses, such as `Calico-192-168-20-64`.
pub fn is_for_pods(name: &str) -> bool {
    let name = name.to_lowercase();
    let Some(rest) = name.strip_prefix("calico") else { return false };
    let parts = || rest.strip_prefix('-').into_iter().flat_map(|rest| rest.split('-'));
    rest.is_empty() || parts().count() == 4 && parts().all(|part| part.parse::<u8>().is_ok())
}

/// Whether Calico made this network, by its name, type and prefix. Marks are not possible in HNS.
pub fn is_made_by_calico(name: &str, network: &Network) -> bool {
    let bootstrap = name == BOOTSTRAP && network.subnet == Some(bootstrap_prefix());
    is_calicos_kind(network.kind) && (is_for_pods(name) || bootstrap)
}

/// Whether Calico creates networks of this kind.
pub const fn is_calicos_kind(kind: NetworkKind) -> bool {
    matches!(kind, NetworkKind::Overlay | NetworkKind::L2Bridge)
}

const fn kind(backend: Backend) -> Option<NetworkKind> {
    match backend {
        Backend::Vxlan => Some(NetworkKind::Overlay),
        Backend::WindowsBgp => Some(NetworkKind::L2Bridge),
        Backend::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_for_pods;

    #[test]
    fn the_networks_for_pods_are_known_by_their_names() {
        for own in ["Calico", "calico", "Calico-192-168-20-64"] {
            assert!(is_for_pods(own), "{own}");
        }
        for other in ["Calico_ep", "Calico-", "Calico-lab", "Calico-1-2-3", "Calico-1-2-3-400", "External", "MyCalico"]
        {
            assert!(!is_for_pods(other), "{other}");
        }
    }
}
