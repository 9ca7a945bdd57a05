//! The name of this machine's Kubernetes Node.

use std::convert::Infallible;

use super::Provider;
use super::resolver::Resolver;
use crate::config::types::Auto;
use crate::config::{Layered, Origin};
use crate::facts::{ClusterFacts, NodeFacts};
use crate::values::NodeName;

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
    if let Some(Auto(Some(name))) = layered.value("spec.kubernetes.nodeName") {
        return Ok(name);
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
    node: &NodeFacts,
    cluster: Option<&ClusterFacts>,
    provider: Provider,
) -> NodeName {
    const PATH: &str = "kubernetes.nodeName";
    let Auto(given) = to.given::<Auto<NodeName>>(PATH).unwrap_or_default();
    let known = cluster.and_then(|cluster| cluster.node.as_ref()).map(|node| node.name.as_str());
    // If the cluster has a Node with the host name, kubelet chose that name.
    let Ok(name) = node_name::<Infallible>(to.layered, node, |host_name| Ok(known == Some(host_name)));
    let by_host = name == node.host_name.to_lowercase();
    // On some clouds the Node often has the instance's DNS name, which Windows cannot read.
    if given.is_none() && by_host && provider.brings().names_nodes && known.is_none() {
        let message = format!(
            "the node name is assumed to be `{name}`, the host name; if its Node has another name, set spec.{PATH}"
        );
        to.warn("NodeNameFromHostName", message);
    }
    // The placeholder is never used: the finding ends the run.
    let detected = name.parse::<NodeName>().unwrap_or_else(|problem| {
        to.wrong(PATH, format!("the host name cannot be the node's name: {problem}"));
        crate::values::known("unknown")
    });
    let by = if by_host { "host name" } else { "instance metadata" };
    to.decided(PATH, given, || (detected, Origin::Detected(by.into())))
}
