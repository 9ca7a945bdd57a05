//! What the Host Networking Service does to a machine: it creates networks, and adapters lose their addresses to a
//! vSwitch and get them back.

use std::net::Ipv4Addr;

use anyhow::Result;

use crate::fault::{Exit, Fault};
use crate::item::{Network, NetworkKind};
use crate::node::NetworkDetails;
use crate::node::hns::{self, Pods, foreign, may_be_deleted};
use crate::node::win32::{self, refused};
use crate::values::Sha256;

use super::model::{Arriving, Model, Name, NodeAdapter, NodeNetwork};
use super::slow_hns;

/// The host's own adapter on the vSwitch over a physical one.
fn virtual_name(adapter: &str) -> String {
    format!("vEthernet ({adapter})")
}

/// Creates a network. The first one on an adapter moves the adapter's addresses to the vSwitch, which takes
/// `settleSeconds`; then it has its management IP.
pub fn create(model: &mut Model, name: &str, wanted: &Network) -> Result<()> {
    answers(model)?;
    let key = Name::new(name);
    if model.networks.contains_key(&key) {
        return Err(refused(win32::HNS_NETWORK_EXISTS, format!("create HNS network {name}")).into());
    }
    let adapter = if wanted.takes_adapter() { Some(bind(model, name, wanted.adapter.as_deref())?) } else { None };
    let unseen = model.unseen_networks.get_mut(&key).filter(|left| **left > 0);
    let unseen_by_v2 = unseen.map(|left| *left -= 1).is_some();
    let network = NodeNetwork {
        id: model.free_guid(),
        kind: wanted.kind,
        subnet: wanted.subnet,
        gateway: wanted.gateway,
        vsid: wanted.vsid,
        adapter,
        management_ip: None,
        unseen_by_v2,
        policies: Vec::new(),
        endpoints: Default::default(),
    };
    model.networks.insert(key, network);
    settle(model, 0);
    Ok(())
}

/// What HNS shows of a network besides its definition. HNS takes the MAC of its router from a pool; here it is derived
/// from the network, so that the same steps give the same sandbox.
pub fn details(name: &Name, network: &NodeNetwork) -> NetworkDetails {
    let of = format!("{} {:?} {:?}", name.as_str().to_lowercase(), network.subnet, network.vsid);
    let digest = Sha256::of(of.as_bytes()).to_string();
    let mac = [0, 2, 4].map(|at| format!(":{}", &digest[at..at + 2])).concat();
    NetworkDetails {
        dr_mac: (network.kind == NetworkKind::Overlay).then(|| format!("00:15:5d{mac}")),
        endpoints: network.endpoints.keys().map(|name| name.as_str().to_owned()).collect(),
        unseen_by_v2: network.unseen_by_v2,
    }
}

/// The MAC of a network's distributed router.
pub fn router_mac(name: &str, network: &NodeNetwork) -> Option<String> {
    details(&Name::new(name), network).dr_mac
}

/// Deletes a network and its endpoints. With the last one on a vSwitch the adapter's addresses return. Returns the
/// seconds until then.
pub fn delete(model: &mut Model, name: &str, pods: Pods) -> Result<u32> {
    let key = Name::new(name);
    let Some(network) = model.networks.get(&key) else {
        return Ok(0);
    };
    answers(model)?;
    if !may_be_deleted(name) {
        return Err(foreign(name).into());
    }
    let used: Vec<String> = network
        .endpoints
        .iter()
        .filter(|(_, endpoint)| !endpoint.remote)
        .filter_map(|(endpoint, e)| Some(format!("{} of container {}", endpoint.as_str(), e.container.as_ref()?)))
        .collect();
    if pods == Pods::Live && !used.is_empty() {
        let what = format!("delete HNS network {name}, to which endpoints are attached: {}", used.join(", "));
        return Err(refused(win32::HNS_HAS_REFERENCES, what).into());
    }
    let adapter = network.adapter.clone();
    model.networks.remove(&key);
    Ok(adapter.map_or(0, |adapter| release(model, &adapter)))
}

/// The endpoints as HNS shows them. A pod's is attached and shared, State 3 (calico#11203); its id is derived from its
/// name.
pub fn endpoints(model: &Model) -> Vec<hns::Endpoint> {
    let of = |(network, on): (&Name, &NodeNetwork)| {
        let (network, network_id) = (network.as_str().to_owned(), on.id.clone());
        let endpoints = on.endpoints.clone().into_iter();
        endpoints.map(move |(name, endpoint)| hns::Endpoint {
            id: endpoint_id(&name),
            name: name.as_str().to_owned(),
            network: network.clone(),
            network_id: network_id.clone(),
            ip: Some(endpoint.ip),
            state: Some(if endpoint.container.is_some() { 3 } else { 1 }),
            remote: endpoint.remote,
            acls: endpoint.policies.iter().filter(|policy| hns::is_acl(policy)).cloned().collect(),
            // Containers in a network namespace do not have its name.
            containers: endpoint.container.into_iter().filter(|id| !name.as_str().starts_with(id.as_str())).collect(),
        })
    };
    model.networks.iter().flat_map(of).collect()
}

pub fn delete_endpoint(model: &mut Model, id: &str) {
    for network in model.networks.values_mut() {
        network.endpoints.retain(|name, _| endpoint_id(name) != id);
    }
}

/// Replaces the ACLs of an endpoint by those that allow everything.
pub fn replace_acls(model: &mut Model, id: &str) {
    let endpoints = model.networks.values_mut().flat_map(|network| network.endpoints.iter_mut());
    endpoints.filter(|(name, _)| endpoint_id(name) == id).for_each(|(_, endpoint)| endpoint.let_all_through());
}

/// The id that HNS gives an endpoint of this name.
pub fn endpoint_id(name: &Name) -> String {
    let hex = Sha256::of(name.as_str().as_bytes()).to_string();
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[12..15], &hex[15..18], &hex[18..30])
}

/// Lets time pass: moving addresses arrive, networks get theirs, and Felix opens new pods.
pub fn settle(model: &mut Model, seconds: u32) {
    slow_hns::work(model, seconds);
    for endpoint in model.networks.values_mut().flat_map(|network| network.endpoints.values_mut()) {
        endpoint.ruled_in_seconds = endpoint.ruled_in_seconds.map(|left| left.saturating_sub(seconds));
        if endpoint.ruled_in_seconds.take_if(|left| *left == 0).is_some() {
            endpoint.let_all_through();
        }
    }
    for adapter in &mut model.adapters {
        if let Some(arriving) = &mut adapter.arriving {
            arriving.in_seconds = arriving.in_seconds.saturating_sub(seconds);
        }
        if let Some(here) = adapter.arriving.take_if(|arriving| arriving.in_seconds == 0) {
            adapter.addresses = here.addresses;
            adapter.gateway = here.gateway;
        }
    }
    let on_switch = |model: &Model, adapter: &str| -> Option<Ipv4Addr> {
        find(model, &virtual_name(adapter)).and_then(NodeAdapter::address)
    };
    let known: Vec<(Name, Option<Ipv4Addr>)> = model
        .networks
        .iter()
        .filter_map(|(name, network)| Some((name.clone(), on_switch(model, network.adapter.as_deref()?))))
        .collect();
    for (name, ip) in known {
        if let Some(network) = model.networks.get_mut(&name)
            && ip.is_some()
        {
            network.management_ip = ip;
        }
    }
}

/// # Errors
/// `HnsAvailable` if HNS is not installed.
pub fn answers(model: &Model) -> Result<()> {
    if model.hns.is_some() {
        return Ok(());
    }
    Err(Fault::new(Exit::Failed, "HnsAvailable", "the Host Networking Service does not answer")
        .hint("enable the Windows feature Containers, restart, then run again")
        .into())
}

fn find<'a>(model: &'a Model, name: &str) -> Option<&'a NodeAdapter> {
    model.adapters.iter().find(|adapter| Name::new(adapter.name.as_str()) == Name::new(name))
}

/// The physical adapter for a network: the named one, or the one with a vSwitch, or the first one with a gateway. Gets
/// a vSwitch if it has none.
fn bind(model: &mut Model, name: &str, wanted: Option<&str>) -> Result<String> {
    let physical = |adapter: &&NodeAdapter| !adapter.name.starts_with("vEthernet (");
    let switched = |adapter: &&NodeAdapter| find(model, &virtual_name(&adapter.name)).is_some();
    let chosen = match wanted {
        Some(wanted) => find(model, wanted).filter(physical),
        None => {
            let all = || model.adapters.iter().filter(physical);
            let routed = |adapter: &&NodeAdapter| {
                adapter.gateway.or_else(|| adapter.arriving.as_ref().and_then(|a| a.gateway)).is_some()
            };
            all().find(switched).or_else(|| all().find(routed)).or_else(|| all().next())
        }
    };
    let Some(chosen) = chosen else {
        let asked = wanted.map_or_else(|| "any adapter".to_owned(), |wanted| format!("adapter `{wanted}`"));
        let there: Vec<&str> = model.adapters.iter().filter(physical).map(|a| a.name.as_str()).collect();
        let what = format!("create HNS network {name} on {asked}; there are: {}", there.join(", "));
        return Err(refused(win32::HNS_ADAPTER_NOT_FOUND, what).into());
    };
    let chosen = chosen.name.clone();
    if find(model, &virtual_name(&chosen)).is_none() {
        take(model, &chosen);
    }
    Ok(chosen)
}

/// Binds a vSwitch to the adapter: its addresses move to `vEthernet (<adapter>)`, after a while. Until then a DHCP
/// client has a link-local address. The adapter's link-local routes, and that to Azure's host service, are lost.
fn take(model: &mut Model, name: &str) {
    slow_hns::begin(model);
    let made_in = model.switch_seconds;
    let Some(adapter) = model.adapters.iter_mut().find(|adapter| adapter.name == name) else {
        return;
    };
    let addresses = std::mem::take(&mut adapter.addresses);
    let gateway = adapter.gateway.take();
    let arriving = adapter.arriving.take();
    let in_seconds = made_in + adapter.settle_seconds.max(arriving.as_ref().map_or(0, |a| a.in_seconds));
    let on_its_way = match arriving {
        Some(arriving) => Arriving { in_seconds, ..arriving },
        None => Arriving { in_seconds, addresses, gateway },
    };
    let apipa = "169.254.21.21/16".parse().ok().filter(|_| adapter.dhcp);
    let host = NodeAdapter {
        name: virtual_name(name),
        mac: adapter.mac.clone(),
        addresses: apipa.into_iter().collect(),
        gateway: None,
        dhcp: adapter.dhcp,
        dns: adapter.dns.clone(),
        metric: adapter.metric,
        settle_seconds: adapter.settle_seconds,
        arriving: Some(on_its_way),
    };
    model.adapters.push(host);
    let key = Name::new(name);
    let of_cloud = |ip: Ipv4Addr| ip.is_link_local() || ip == Ipv4Addr::new(168, 63, 129, 16);
    model.routes.retain(|prefix, route| !(of_cloud(prefix.addr()) && Name::new(route.interface.as_str()) == key));
}

/// After the last network on an adapter's vSwitch the addresses return, and the vSwitch's routes are removed.
fn release(model: &mut Model, name: &str) -> u32 {
    let key = Name::new(name);
    let still_used = model
        .networks
        .values()
        .any(|network| network.adapter.as_deref().is_some_and(|adapter| Name::new(adapter) == key));
    let host = Name::new(virtual_name(name));
    let at = model.adapters.iter().position(|adapter| Name::new(adapter.name.as_str()) == host);
    let (false, Some(at)) = (still_used, at) else {
        return 0;
    };
    let host = model.adapters.remove(at);
    let (addresses, gateway) = match host.arriving {
        Some(arriving) => (arriving.addresses, arriving.gateway),
        None => (host.addresses, host.gateway),
    };
    model.routes.retain(|_, route| route.interface != host.name);
    let Some(adapter) = model.adapters.iter_mut().find(|adapter| Name::new(adapter.name.as_str()) == key) else {
        return 0;
    };
    let in_seconds = adapter.settle_seconds;
    adapter.arriving = Some(Arriving { in_seconds, addresses, gateway });
    settle(model, 0);
    in_seconds
}
