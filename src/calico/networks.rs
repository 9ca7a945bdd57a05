//! The HNS networks that Calico needs, as they are to be. The agent makes `External` and checks
//! `Calico`, the engine awaits both: here is what they agree on.

use std::net::Ipv4Addr;

use crate::item::{Network, NetworkKind};
use crate::settings::Backend;
use crate::values::{Cidr, Vni};

/// The network that CalicoNode makes first, so that the vSwitch stands before Calico needs it.
pub const BOOTSTRAP: &str = "External";
/// The pods' network.
pub const PODS: &str = "Calico";

const BOOTSTRAP_GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 255, 1);
const BOOTSTRAP_VSID: u32 = 9999;

/// Subnet of `External`, as upstream's scripts and others' tools know it.
pub fn bootstrap_prefix() -> Cidr {
    "192.168.255.0/30".parse().expect("a literal CIDR is one")
}

/// What `External` is to be; none with the backend none. `adapter` is the one it is to take.
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

/// What `Calico` is to be; none with the backend none. Its subnet is the IPAM block that the node
/// gets, so it is left open.
pub fn pods(backend: Backend, vni: Vni) -> Option<Network> {
    let kind = kind(backend)?;
    let vsid = (kind == NetworkKind::Overlay).then(|| vni.get());
    Some(Network { kind, subnet: None, gateway: None, vsid, adapter: None, management_ip: None })
}

/// Whether Calico makes networks of this kind.
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
