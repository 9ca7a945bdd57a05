//! After Flannel, another product's kube-proxy on Calico's network: what its service or its file must have. Its source VIP
//! is the address of Calico's host endpoint, which only Calico's node startup chooses, so that the run which creates the
//! network also sets it.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};

use crate::calico::services::is_ours;
use crate::calico::{flannel, kube_proxy, networks};
use crate::item::{Id, NetworkKind, Service, State};
use crate::node::Node;
use crate::plan::{Step, Target};
use crate::values::Sha256;

/// Whether this target removes a network of Flannel's, on which kube-proxy was.
pub fn follows_flannel(target: &Target) -> bool {
    target.absent.iter().any(|id| matches!(id, Id::Network(name) if flannel::is_network(name)))
}

/// The definition of kube-proxy that this target manages, if it is another product's and was on Flannel's network.
fn theirs(target: &Target) -> Option<&Service> {
    match target.world.get(&Id::Service(kube_proxy::NAME.into())) {
        Some(State::Service(service)) if !is_ours(service) && follows_flannel(target) => Some(service),
        _ => None,
    }
}

/// Whether kube-proxy needs a source VIP on this network: an overlay.
fn is_needed(network: Option<&State>) -> bool {
    matches!(network, Some(State::Network(network)) if network.kind == NetworkKind::Overlay)
}

/// Whether the run sets the source VIP once it has created the network.
pub fn comes_later(target: &Target, steps: &[Step]) -> bool {
    let creates = |step: &Step| matches!(step, Step::Await { id: Id::Network(name), .. } if name == networks::PODS);
    theirs(target).is_some() && is_needed(target.world.get(&pods())) && steps.iter().any(creates)
}

/// Whether the source VIP of another product's kube-proxy is not known yet, because nobody has created Calico's host
/// endpoint.
///
/// # Errors
/// When the node cannot be read.
pub fn is_unknown(node: &dyn Node, target: &Target) -> Result<bool> {
    Ok(theirs(target).is_some() && host_endpoint(node)?.is_none())
}

fn pods() -> Id {
    Id::Network(networks::PODS.into())
}

fn host_endpoint(node: &dyn Node) -> Result<Option<Ipv4Addr>> {
    let endpoints = node.endpoints().context("look for kube-proxy's source VIP")?;
    Ok(endpoints.into_iter().filter(|endpoint| endpoint.is_the_hosts()).find_map(|endpoint| endpoint.ip))
}

/// Sets network and source VIP of kube-proxy in the target, the latter if Calico's host endpoint exists. Returns the bytes
/// of kube-proxy's file, if that is where they are.
///
/// # Errors
/// When the node cannot be read.
pub fn set(node: &dyn Node, target: &mut Target) -> Result<Option<Vec<u8>>> {
    let Some(service) = theirs(target) else { return Ok(None) };
    // A run that does not start the services leaves the network as it is.
    let left = if target.leave.contains(&pods()) { node.get(&pods())? } else { None };
    let on_overlay = is_needed(target.world.get(&pods()).or(left.as_ref()));
    let vip = if on_overlay { host_endpoint(node)? } else { None };
    let Some(path) = kube_proxy::config_file(service) else {
        if let Some(vip) = vip {
            let wanted = Box::new(kube_proxy::with_source_vip(service, vip));
            target.world.insert(Id::Service(kube_proxy::NAME.into()), State::Service(wanted));
        }
        return Ok(None);
    };
    let text = fs::read_to_string(node.disk(&path)).ok();
    let id = Id::File(path);
    let wanted = text.and_then(|text| kube_proxy::config_on(&text, networks::PODS, vip));
    let (Some(State::File { access, .. }), Some(wanted)) = (node.get(&id)?, wanted) else { return Ok(None) };
    target.world.insert(id, State::File { sha256: Sha256::of(wanted.as_bytes()), access });
    Ok(Some(wanted.into_bytes()))
}
