//! The Kubernetes Node that this machine is.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::Cluster;
use super::api::path;
use crate::facts::ClusterNode;

impl Cluster {
    /// The Node of this name; none before it has joined.
    pub fn node(&self, name: &str) -> Result<Option<ClusterNode>> {
        Ok(self.get(&path(["api", "v1", "nodes", name]))?.map(read))
    }

    /// Sets annotations of a Node, and takes those away that are none. Others stay as they are.
    pub fn annotate_node(&self, name: &str, annotations: &BTreeMap<String, Option<String>>) -> Result<ClusterNode> {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.merge_patch(&path(["api", "v1", "nodes", name]), &patch).map(read)
    }
}

/// What of a Node matters here.
pub(super) fn read(node: Node) -> ClusterNode {
    let status = node.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let addresses = status.addresses.unwrap_or_default();
    ClusterNode {
        name: node.metadata.name.unwrap_or_default(),
        ready: conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        schedulable: !node.spec.is_some_and(|s| s.unschedulable.unwrap_or_default()),
        internal_ips: addresses.into_iter().filter(|a| a.type_ == "InternalIP").map(|a| a.address).collect(),
        max_pods: status.allocatable.and_then(|all| all.get("pods")?.0.parse().ok()),
        os: status.node_info.as_ref().map(|i| i.operating_system.clone()).unwrap_or_default(),
        kubelet_version: status.node_info.map(|i| i.kubelet_version).unwrap_or_default(),
        labels: node.metadata.labels.unwrap_or_default(),
    }
}
