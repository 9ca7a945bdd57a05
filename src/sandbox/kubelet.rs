//! kubelet, containerd and Calico's CNI plugin on a sandbox node: pods get a container and an endpoint while a CNI
//! configuration is published, and lose both when they end. Like the real ones, they never check the network of a
//! running pod again, and do not notice when it is lost.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::Result;
use serde_json::Value;

use super::cluster::{EmbeddedCluster, text};
use crate::node::sandbox::model::{Endpoint, Model, Name, NodeNetwork};
use crate::values::Sha256;

/// The network that the CNI plugin attaches pods to.
const NETWORK: &str = "Calico";

/// Does what they would have done since the last call.
///
/// # Errors
/// When the cluster's state cannot be read or written.
pub fn play(
    cluster: &EmbeddedCluster,
    node: &str,
    model: &mut Model,
    running: &mut BTreeSet<String>,
    published: bool,
) -> Result<()> {
    let runs = |model: &Model| model.services.get(&Name::new("kubelet")).is_some_and(|kubelet| kubelet.pid.is_some());
    if !runs(model) {
        return Ok(());
    }
    let pods = cluster.pods_on(node)?;
    let wanted: BTreeSet<String> = pods.iter().map(|pod| sandbox_of(model, pod, "")).collect();
    // Containers end with their pod, and with Windows.
    let ours = |id: &&String| id.len() == 64;
    for ended in running.difference(&wanted).filter(ours).cloned().collect::<Vec<_>>() {
        running.remove(&ended);
        // Without a CNI configuration containerd cannot call the plugin ("failed to destroy network for sandbox: cni
        // plugin not initialized", containerd#8774), and HNS keeps the endpoint.
        if published {
            for network in model.networks.values_mut() {
                network.endpoints.retain(|_, endpoint| endpoint.container.as_ref() != Some(&ended));
            }
        }
    }
    if !published || !model.networks.contains_key(&Name::new(NETWORK)) {
        return Ok(());
    }
    for pod in pods {
        let sandbox = sandbox_of(model, &pod, "");
        if running.contains(&sandbox) || pod["metadata"].get("deletionTimestamp").is_some() {
            continue;
        }
        // The first try of a DaemonSet's pod fails, and its endpoint outlives its sandbox
        // (microsoft/Windows-Containers#631).
        let daemon = text(&pod, "/metadata/ownerReferences/0/kind") == Some("DaemonSet");
        let first = daemon.then(|| sandbox_of(model, &pod, "first try"));
        let Some(network) = model.networks.get_mut(&Name::new(NETWORK)) else { continue };
        let Some(ip) = attach(network, &sandbox) else { continue };
        if let Some(first) = first {
            attach(network, &first);
        }
        running.insert(sandbox);
        cluster.pod_runs(&pod, ip)?;
    }
    Ok(())
}

/// The id of a pod's sandbox: another one after each boot.
fn sandbox_of(model: &Model, pod: &Value, of: &str) -> String {
    let uid = text(pod, "/metadata/uid").unwrap_or_default();
    Sha256::of(format!("{} {uid} {of}", model.boot_id).as_bytes()).to_string()
}

/// CNI ADD: the next address of the node's block, and an endpoint with it, named like those of Calico's plugin.
fn attach(network: &mut NodeNetwork, sandbox: &str) -> Option<Ipv4Addr> {
    let subnet = network.subnet?;
    let taken: BTreeSet<Ipv4Addr> = network.endpoints.values().map(|endpoint| endpoint.ip).collect();
    // The addresses of the network, the gateway and `Calico_ep`, and the last one, are never a pod's.
    let ip = subnet.hosts().skip(2).find(|ip| !taken.contains(ip))?;
    let [_, b, c, d] = ip.octets();
    let mac = format!("0E-2A-64-{b:02X}-{c:02X}-{d:02X}");
    let container = Some(sandbox.to_owned());
    let endpoint = Endpoint { ip, mac, remote: false, provider_address: None, container, policies: Vec::new() };
    network.endpoints.insert(Name::new(format!("{sandbox}_{NETWORK}")), endpoint);
    Some(ip)
}
