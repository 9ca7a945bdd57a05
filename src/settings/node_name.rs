//! The name of this machine's Kubernetes Node.

use std::convert::Infallible;

use super::Provider;
use super::resolver::Resolver;
use crate::config::{Layered, Origin};
use crate::facts::{ClusterFacts, NodeFacts};
use crate::values::NodeName;

const PATH: &str = "spec.kubernetes.nodeName";

fn given(layered: &Layered) -> Option<NodeName> {
    layered.config.spec.kubernetes.node_name.0.clone()
}

/// The name, before the settings exist: the config's, else the host's. On clouds the Node often has the instance's
/// name: it counts if `has_node` finds no Node with the host's.
///
/// # Errors
/// Those of `has_node`.
pub fn node_name<E>(
    layered: &Layered,
    node: &NodeFacts,
    has_node: impl FnOnce(&str) -> Result<bool, E>,
) -> Result<String, E> {
    if let Some(name) = given(layered) {
        return Ok(name.to_string());
    }
    let host_name = node.host_name.to_lowercase();
    let instance = node.cloud.as_ref().and_then(|cloud| cloud.instance_name.as_deref());
    Ok(match instance.filter(|name| name.parse::<NodeName>().is_ok()) {
        Some(instance) if !has_node(&host_name)? => instance.to_owned(),
        _ => host_name,
    })
}

pub(super) fn decide(
    to: &mut Resolver<'_>,
    layered: &Layered,
    node: &NodeFacts,
    cluster: Option<&ClusterFacts>,
    provider: Provider,
) -> NodeName {
    let known = cluster.and_then(|cluster| cluster.node.as_ref()).map(|node| node.name.as_str());
    // If the cluster has a Node with the host name, kubelet chose that name.
    let Ok(name) = node_name::<Infallible>(layered, node, |host_name| Ok(known == Some(host_name)));
    let given = given(layered);
    let by_host = name == node.host_name.to_lowercase();
    // On some clouds the Node often has the instance's DNS name, which Windows does not know.
    if given.is_none() && by_host && provider.brings().names_nodes && known.is_none() {
        let message =
            format!("the node is taken to be `{name}`, the host name; if its Node is named otherwise, set {PATH}");
        to.warn("NodeNameFromHostName", message);
    }
    // The placeholder is never used: the finding ends the run.
    let detected = name.parse::<NodeName>().unwrap_or_else(|problem| {
        to.wrong(PATH, format!("the host name cannot be the node's name: {problem}"));
        "unknown".parse().expect("a plain word is a name")
    });
    let by = if by_host { "host name" } else { "instance metadata" };
    to.decide(PATH, given, || (detected, Origin::Detected(by.into())))
}
