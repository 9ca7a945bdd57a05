//! The Kubernetes Node that this machine is.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::api::path;
use super::{Cluster, FIELD_MANAGER};
use crate::facts::ClusterNode;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, World};

/// What an Event says.
#[derive(Debug, Clone, Copy)]
pub struct Note<'a> {
    /// Its type is Warning, not Normal.
    pub warns: bool,
    /// In CamelCase.
    pub reason: &'a str,
    pub message: &'a str,
}

impl Cluster {
    /// The Node of this name; none before it has joined.
    pub fn node(&self, name: &str) -> Result<Option<ClusterNode>> {
        Ok(self.raw_node(name)?.map(read))
    }

    /// The Node's items that a change of this machine manages: whether it is cordoned and by which run, and its
    /// Calico annotation and condition. None if there is no such Node.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn node_items(&self, name: &str) -> Result<Option<World>> {
        let Some(node) = self.raw_node(name)? else { return Ok(None) };
        let mut items = World::new();
        let annotation = |key: &str| node.metadata.annotations.as_ref()?.get(key).cloned();
        if let Some(digest) = annotation(ACHIEVED) {
            items.insert(Id::Achieved(name.into()), State::Achieved(digest));
        }
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if conditions.into_iter().any(|one| is_calico_up(&one.type_, one.reason.as_deref())) {
            items.insert(Id::CalicoIsUp(name.into()), State::CalicoIsUp);
        }
        let run = annotation(CORDONED_BY);
        if !read(node).schedulable {
            items.insert(Id::Cordon(name.into()), State::Cordon { run });
        }
        Ok(Some(items))
    }

    /// Sets one of [`Cluster::node_items`].
    ///
    /// # Errors
    /// `NodeAbsent`; when the cluster cannot be asked, or refuses.
    pub fn put_node_item(&self, id: &Id, state: Option<&State>) -> Result<()> {
        match (id, state) {
            (Id::Cordon(name), Some(State::Cordon { run })) => self.cordon(name, run.as_deref()).map(drop),
            (Id::Cordon(name), None) => self.uncordon(name).map(drop),
            (Id::Achieved(name), None) => {
                let ours = [ACHIEVED, RESULT].map(|annotation| (annotation.to_owned(), None));
                self.annotate_node(name, &ours.into()).map(drop)
            }
            (Id::Achieved(name), Some(State::Achieved(digest))) => {
                self.annotate_node(name, &[(ACHIEVED.to_owned(), Some(digest.clone()))].into()).map(drop)
            }
            (Id::CalicoIsUp(name), None) => self.clear_network_condition(name).map(drop),
            (id, state) => bail!("{id} cannot be set to {state:?}"),
        }
    }

    /// Sets annotations of a Node, and removes those that are none. Others are kept. False if nothing changed.
    pub fn annotate_node(&self, name: &str, annotations: &BTreeMap<String, Option<String>>) -> Result<bool> {
        if let Some(node) = self.get::<Node>(&node_path(name))? {
            let there = node.metadata.annotations.unwrap_or_default();
            if annotations.iter().all(|(key, value)| there.get(key) == value.as_ref()) {
                return Ok(false);
            }
        }
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.merge_patch::<_, Value>(&node_path(name), &patch).map(|_| true)
    }

    /// Creates an Event on a Node, for `kubectl describe node`. Like kubelet's own it is in the namespace `default`,
    /// and has the Node's name instead of its uid.
    pub fn tell_on_node(&self, name: &str, note: &Note<'_>) -> Result<()> {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": name });
        self.tell_about(&node, EVENTS, name, note)
    }

    /// Creates an Event on `object`, a reference with at least its `name`, in a namespace. `host`: the Node that reports
    /// it.
    pub(super) fn tell_about(&self, object: &Value, namespace: &str, host: &str, note: &Note<'_>) -> Result<()> {
        let now = Timestamp::now();
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let name = object["name"].as_str().unwrap_or_default();
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": format!("{name}.{:x}", now.as_nanosecond()), "namespace": namespace },
            "involvedObject": object,
            "type": if note.warns { "Warning" } else { "Normal" },
            "reason": note.reason, "message": note.message, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
            "source": { "component": FIELD_MANAGER, "host": host },
            "reportingComponent": FIELD_MANAGER, "reportingInstance": host,
        });
        self.post::<_, Value>(&path(["api", "v1", "namespaces", namespace, "events"]), &event).map(drop)
    }

    /// Cordons a Node; false if it was cordoned already. `by`: the run that must undo it, recorded on the Node; none
    /// for a cordon that a user requested, which replaces any earlier record.
    ///
    /// # Errors
    /// `NodeAbsent`, and when the cluster cannot be asked.
    pub fn cordon(&self, name: &str, by: Option<&str>) -> Result<bool> {
        self.set_schedulable(name, false, by)
    }

    /// Uncordons a Node; false if it was not cordoned.
    ///
    /// # Errors
    /// Those of [`Cluster::cordon`].
    pub fn uncordon(&self, name: &str) -> Result<bool> {
        self.set_schedulable(name, true, None)
    }

    /// The run that cordoned a Node, from the Node's annotation; none if it is not cordoned, or if somebody
    /// else cordoned it.
    ///
    /// # Errors
    /// Those of [`Cluster::cordon`].
    pub fn cordoned_by(&self, name: &str) -> Result<Option<String>> {
        let (schedulable, by) = self.cordon_of(name)?;
        Ok(by.filter(|_| !schedulable))
    }

    /// Whether a Node is schedulable, and the run that cordoned it.
    fn cordon_of(&self, name: &str) -> Result<(bool, Option<String>)> {
        let node = self.raw_node(name)?.ok_or_else(|| absent(name))?;
        let by = node.metadata.annotations.as_ref().and_then(|all| all.get(CORDONED_BY)).cloned();
        Ok((read(node).schedulable, by))
    }

    /// Both in one change: the annotation never exists without the cordon.
    fn set_schedulable(&self, name: &str, schedulable: bool, by: Option<&str>) -> Result<bool> {
        let wanted = (schedulable, by.map(str::to_owned));
        let before = self.cordon_of(name)?;
        if before == wanted {
            return Ok(false);
        }
        let unschedulable = if schedulable { Value::Null } else { Value::Bool(true) };
        let patch =
            json!({ "metadata": { "annotations": { CORDONED_BY: by } }, "spec": { "unschedulable": unschedulable } });
        let at = node_path(name);
        let mut tries = 0;
        loop {
            let patched = self
                .runtime
                .block_on(self.api.retry_refused(async || self.api.merge_patch::<Value>(&at, &patch).await));
            let Err(error) = patched.map_err(anyhow::Error::from) else { break };
            tries += 1;
            // A lost response says nothing about the change; and the change is idempotent.
            let of_cluster = [Exit::ClusterUnreachable, Exit::ClusterAccessDenied];
            let lost = Fault::of(&error).is_some_and(|fault| of_cluster.contains(&fault.exit));
            if !lost || tries == TRIES {
                return Err(error);
            }
            match self.cordon_of(name) {
                Ok(now) if now == wanted => break,
                Ok(_) => {}
                Err(_) => return Err(error),
            }
        }
        Ok(before.0 != schedulable)
    }

    /// With retries: an API server that has just started is no reason to leave a Node cordoned.
    fn raw_node(&self, name: &str) -> Result<Option<Node>> {
        let at = node_path(name);
        Ok(self.runtime.block_on(self.api.retry_refused(async || self.api.get(&at).await))?)
    }
}

/// The namespace of Events about Nodes, which have none.
pub(super) const EVENTS: &str = "default";

/// The Node's annotation with the run that cordoned it.
pub const CORDONED_BY: &str = "calicoctl-win/cordoned-by";

/// The Node's annotation with the digest of the settings that were applied: it shows which nodes of a fleet are done.
pub const ACHIEVED: &str = "calicoctl-win/settings";

/// The Node's annotation with the result of the last run of a fleet on it.
pub const RESULT: &str = "calicoctl-win/result";

/// Whether a condition is the one by which Calico reports that a Node's network is up.
pub(super) fn is_calico_up(kind: &str, reason: Option<&str>) -> bool {
    kind == "NetworkUnavailable" && reason == Some("CalicoIsUp")
}

/// How often cordoning or uncordoning is retried when the response was lost.
const TRIES: usize = 3;

pub(super) fn node_path(name: &str) -> String {
    path(["api", "v1", "nodes", name])
}

/// There is no Node of this name.
pub fn absent(name: &str) -> Fault {
    Fault::new(Exit::ClusterUnreachable, "NodeAbsent", format!("the cluster has no Node {name}"))
        .hint("its kubelet registers it when it joins; if the Node has another name, pass it with --node-name (see kubectl get nodes)")
}

/// The version of the Windows Machine Config Operator in its annotations (reference: WMCO `pkg/metadata`): the current
/// one, or the one that it is about to install.
fn wmco(metadata: &ObjectMeta) -> Option<String> {
    let annotation =
        |name: &str| metadata.annotations.as_ref()?.get(&format!("windowsmachineconfig.openshift.io/{name}"));
    annotation("version").or_else(|| annotation("desired-version")).cloned()
}

/// An annotation of Calico on a Node with the Kubernetes datastore. With etcd there is none.
fn calicos(metadata: &ObjectMeta, name: &str) -> Option<String> {
    metadata.annotations.as_ref()?.get(&format!("projectcalico.org/{name}")).cloned()
}

/// The fields of a Node that are used.
pub(super) fn read(node: Node) -> ClusterNode {
    let status = node.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let addresses = status.addresses.unwrap_or_default();
    let ready = conditions.iter().find(|c| c.type_ == "Ready");
    let is_ready = ready.is_some_and(|c| c.status == "True");
    let why = ready.map(|c| {
        let parts = [c.reason.as_deref(), c.message.as_deref()];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    });
    ClusterNode {
        wmco: wmco(&node.metadata),
        achieved: node.metadata.annotations.as_ref().and_then(|all| all.get(ACHIEVED)).cloned(),
        not_ready: (!is_ready).then(|| why.filter(|why| !why.is_empty())).flatten(),
        calico_address: calicos(&node.metadata, "IPv4Address")
            .map(|net| net.split('/').next().unwrap_or_default().to_owned()),
        route_reflector: calicos(&node.metadata, "RouteReflectorClusterID").filter(|id| !id.is_empty()),
        tunnel_mac: calicos(&node.metadata, "VXLANTunnelMACAddr").map(|mac| mac.to_lowercase()),
        name: node.metadata.name.unwrap_or_default(),
        ready: is_ready,
        schedulable: !node.spec.is_some_and(|s| s.unschedulable.unwrap_or_default()),
        internal_ips: addresses.into_iter().filter(|a| a.type_ == "InternalIP").map(|a| a.address).collect(),
        max_pods: status.allocatable.and_then(|all| all.get("pods")?.0.parse().ok()),
        os: status.node_info.as_ref().map(|i| i.operating_system.clone()).unwrap_or_default(),
        kubelet_version: status.node_info.map(|i| i.kubelet_version).unwrap_or_default(),
        labels: node.metadata.labels.unwrap_or_default(),
    }
}
