//! After Flannel, another product's kube-proxy on Calico's network: what its service or its file must have. Its source VIP
//! is the address of Calico's host endpoint, which only Calico's node startup chooses, so that the run which creates the
//! network also sets it.

use std::fs;

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

/// Whether kube-proxy needs a source VIP: on an overlay.
fn is_needed(target: &Target) -> bool {
    let network = target.world.get(&Id::Network(networks::PODS.into()));
    matches!(network, Some(State::Network(network)) if network.kind == NetworkKind::Overlay)
}

/// Whether the run sets the source VIP once it has created the network.
pub fn comes_later(target: &Target, steps: &[Step]) -> bool {
    let creates = |step: &Step| matches!(step, Step::Await { id: Id::Network(name), .. } if name == networks::PODS);
    theirs(target).is_some() && is_needed(target) && steps.iter().any(creates)
}

/// Sets network and source VIP of kube-proxy in the target, the latter if Calico's host endpoint exists. Returns the bytes
/// of kube-proxy's file, if that is where they are.
///
/// # Errors
/// When the node cannot be read.
pub fn set(node: &dyn Node, target: &mut Target) -> Result<Option<Vec<u8>>> {
    let Some(service) = theirs(target) else { return Ok(None) };
    let endpoints =
        if is_needed(target) { node.endpoints().context("look for kube-proxy's source VIP")? } else { Vec::new() };
    let vip = endpoints.into_iter().filter(|endpoint| endpoint.is_the_hosts()).find_map(|endpoint| endpoint.ip);
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
