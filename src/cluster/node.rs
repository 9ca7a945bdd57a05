//! The Kubernetes Node that this machine is.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::Cluster;
use super::api::path;
use crate::facts::ClusterNode;
use crate::fault::{Exit, Fault};

impl Cluster {
    /// The Node of this name; none before it has joined.
    pub fn node(&self, name: &str) -> Result<Option<ClusterNode>> {
        Ok(self.get(&node_path(name))?.map(read))
    }

    /// Sets annotations of a Node, and takes those away that are none. Others stay as they are.
    pub fn annotate_node(&self, name: &str, annotations: &BTreeMap<String, Option<String>>) -> Result<ClusterNode> {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.merge_patch(&node_path(name), &patch).map(read)
    }

    /// Keeps new pods off a Node; false when it was cordoned already.
    ///
    /// # Errors
    /// `NodeAbsent`, and when the cluster cannot be asked.
    pub fn cordon(&self, name: &str) -> Result<bool> {
        self.set_schedulable(name, false)
    }

    /// Lets new pods come to a Node again; false when they might already.
    ///
    /// # Errors
    /// As [`Cluster::cordon`].
    pub fn uncordon(&self, name: &str) -> Result<bool> {
        self.set_schedulable(name, true)
    }

    fn set_schedulable(&self, name: &str, schedulable: bool) -> Result<bool> {
        let is = || -> Result<bool> { Ok(self.node(name)?.ok_or_else(|| absent(name))?.schedulable) };
        if is()? == schedulable {
            return Ok(false);
        }
        let unschedulable = if schedulable { Value::Null } else { Value::Bool(true) };
        let patch = json!({ "spec": { "unschedulable": unschedulable } });
        let mut tries = 0;
        while let Err(error) = self.merge_patch::<_, Value>(&node_path(name), &patch) {
            tries += 1;
            // An answer that got lost says nothing of the change; and twice is the same as once.
            let lost = Fault::of(&error).is_some_and(|fault| fault.exit == Exit::ClusterUnreachable);
            if !lost || tries == TRIES {
                return Err(error);
            }
            match is() {
                Ok(now) if now == schedulable => return Ok(true),
                Ok(_) => {}
                Err(_) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// How often a Node is cordoned or uncordoned anew when the answer got lost.
const TRIES: usize = 3;

pub(super) fn node_path(name: &str) -> String {
    path(["api", "v1", "nodes", name])
}

pub(super) fn absent(name: &str) -> Fault {
    Fault::new(Exit::ClusterUnreachable, "NodeAbsent", format!("the cluster has no Node {name}"))
        .hint("its kubelet registers it when it joins; the name may be another: kubectl get nodes, then --node-name")
}

/// The version of the Windows Machine Config Operator by its annotations (reference: WMCO
/// `pkg/metadata`): the one that stands, or the one that it is about to make.
fn wmco(metadata: &ObjectMeta) -> Option<String> {
    let annotation =
        |name: &str| metadata.annotations.as_ref()?.get(&format!("windowsmachineconfig.openshift.io/{name}"));
    annotation("version").or_else(|| annotation("desired-version")).cloned()
}

/// What of a Node matters here.
pub(super) fn read(node: Node) -> ClusterNode {
    let status = node.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let addresses = status.addresses.unwrap_or_default();
    ClusterNode {
        wmco: wmco(&node.metadata),
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
