//! The namespace of `verify --pods`: several nodes may use it at the same time. If verify created
//! it, the last node that is in it deletes it; one that an administrator created stays.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::spec::{self, CREATED, ENTERED, OF_NODE};
use crate::cluster::{Cluster, MANAGED_BY, VERIFY_NAMESPACE, query};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::event::Sink;
use crate::wait::{self, Wait};

/// How long a namespace, and what is in it, may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(90);

const LOOK: Duration = Duration::from_millis(250);

/// The policies of `--demo`.
pub(super) const DENY: &str = "deny-all";
pub(super) const ALLOW: &str = "allow-one";

fn path() -> String {
    format!("/api/v1/namespaces/{VERIFY_NAMESPACE}")
}

/// Returns the namespace; none if there is none.
///
/// # Errors
/// `VerifyNamespaceForeign` if it is another's.
pub(super) fn look(cluster: &Cluster) -> Result<Option<Value>> {
    let Some(found) = cluster.get::<Value>(&path())? else { return Ok(None) };
    if found["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1 {
        return Ok(Some(found));
    }
    let what = format!("the namespace {VERIFY_NAMESPACE} is not this program's: it lacks the label {}", MANAGED_BY.0);
    Err(Fault::new(Exit::Conflict, "VerifyNamespaceForeign", what)
        .hint(format!(
            "see what is in it with: kubectl -n {VERIFY_NAMESPACE} get all\nif it is for verify, label it with: kubectl label namespace {VERIFY_NAMESPACE} {}={}",
            MANAGED_BY.0, MANAGED_BY.1
        ))
        .into())
}

fn is_ending(namespace: &Value) -> bool {
    namespace["metadata"].get("deletionTimestamp").is_some()
}

/// What verify has in the cluster for one node.
pub(super) struct Site<'a> {
    pub cluster: &'a Cluster,
    pub id: String,
    pub run: &'a str,
}

impl Site<'_> {
    /// Creates the namespace, or enters it. One that is being deleted is waited for.
    pub fn enter(&self, node: &mut dyn Node, events: Sink) -> Result<()> {
        let what = format!("namespace {VERIFY_NAMESPACE} to be there, without what a former one had");
        let account = format!("/api/v1/namespaces/{VERIFY_NAMESPACE}/serviceaccounts/default");
        let wait = Wait { what: Some(&what), limit: ENDS_WITHIN, pause: LOOK, rest: &mut wait::sleep };
        let mut created = false;
        let entered = wait.until(node, events, |_, _, _| match look(self.cluster)? {
            Some(ending) if is_ending(&ending) => Ok(Err(what.clone())),
            Some(_) => {
                let patch = json!({ "metadata": { "annotations": { ENTERED: self.id } } });
                self.cluster.merge_patch::<_, Value>(&path(), &patch)?;
                // No pod can be created before a controller has made its account.
                let ready = !created || self.cluster.get::<Value>(&account)?.is_some();
                Ok(if ready { Ok(()) } else { Err(what.clone()) })
            }
            None => match self.cluster.post::<_, Value>("/api/v1/namespaces", &spec::namespace(self.run, &self.id)) {
                // Another node was faster.
                Err(error) if Fault::id_of(&error) != "ClusterObjectExists" => Err(error),
                made => {
                    created = made.is_ok();
                    Ok(Err(what.clone()))
                }
            },
        })?;
        entered.map_err(|what| {
            let hint = format!("see what keeps it with: kubectl describe namespace {VERIFY_NAMESPACE}");
            let what = format!("waited {} s for {what}", ENDS_WITHIN.as_secs());
            Fault::new(Exit::VerifyFailed, "VerifyNamespaceEnding", what).hint(hint).into()
        })
    }

    /// Creates an object in the namespace.
    pub fn create(&self, object: &Value) -> Result<Value> {
        let kind = object["kind"].as_str().unwrap_or_default();
        self.cluster.post(&spec::collection(kind), object)
    }

    /// Deletes a pod, and waits until it is gone.
    pub fn end_pod(&self, role: &str, node: &mut dyn Node, events: Sink) -> Result<()> {
        let at = format!("{}/{role}-{}", spec::collection("Pod"), self.id);
        if !self.cluster.delete(&at)? {
            return Ok(());
        }
        let what = format!("the pod {role}-{} to end", self.id);
        let wait = Wait { what: Some(&what), limit: ENDS_WITHIN, pause: LOOK, rest: &mut wait::sleep };
        let ended = wait.until(node, events, |_, _, _| {
            Ok(if self.cluster.get::<Value>(&at)?.is_none() { Ok(()) } else { Err(what.clone()) })
        })?;
        ended.map_err(|what| {
            let what = format!("waited {} s for {what}", ENDS_WITHIN.as_secs());
            Fault::new(Exit::VerifyFailed, "VerifyNamespaceEnding", what).into()
        })
    }

    pub fn pods(&self) -> Result<Vec<Value>> {
        let of_node = format!("{OF_NODE}={}", self.id);
        self.cluster.list(&query(&spec::collection("Pod"), &[("labelSelector", &of_node)]))
    }

    /// Removes all that this node has in the namespace, and the namespace itself if nobody else uses it. Returns what is
    /// still there.
    pub fn leave(&self, node: &mut dyn Node, events: Sink) -> Result<Vec<String>> {
        let Some(found) = look(self.cluster)? else { return Ok(Vec::new()) };
        let own = |kind: &str, role: &str| format!("{}/{role}-{}", spec::collection(kind), self.id);
        for pod in self.pods()? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let at = format!("{}/{name}", spec::collection("Pod"));
            // Of a pod that no kubelet has seen, nothing runs, and nobody would end it.
            if pod["status"]["startTime"].is_null() {
                self.cluster.delete_if(&at, &json!({ "uid": pod["metadata"]["uid"] }), Some(0))?;
            } else {
                self.cluster.delete(&at)?;
            }
        }
        self.cluster.delete(&own("Service", "server"))?;
        for optional in [DENY, ALLOW].map(|role| own("NetworkPolicy", role)).into_iter().chain([own("Secret", "pull")])
        {
            match self.cluster.delete(&optional) {
                // Who may not delete them has not created them.
                Err(error) if Fault::id_of(&error) == "ClusterForbidden" => {}
                deleted => drop(deleted?),
            }
        }
        let created = found["metadata"]["annotations"][CREATED].is_string();
        let what = format!("the pods in namespace {VERIFY_NAMESPACE} to end");
        let wait = Wait { what: Some(&what), limit: ENDS_WITHIN, pause: LOOK, rest: &mut wait::sleep };
        let gone = wait.until(node, events, |_, _, _| {
            Ok(match (self.pods()?.as_slice(), created) {
                ([], false) => Ok(()),
                ([], true) => return self.delete_namespace(),
                (pods, _) => Err(pods.iter().map(name_of).collect::<Vec<_>>().join(", ")),
            })
        })?;
        Ok(gone.err().into_iter().collect())
    }

    /// Deletes the namespace unless another node is in it: the last one that entered has its name there, and each change
    /// of the namespace makes this deletion fail.
    fn delete_namespace(&self) -> Result<Result<(), String>> {
        let Some(found) = look(self.cluster)? else { return Ok(Ok(())) };
        let meta = &found["metadata"];
        if is_ending(&found) {
            return Ok(Err(format!("namespace {VERIFY_NAMESPACE}")));
        }
        if meta["annotations"][ENTERED].as_str().is_some_and(|last| last != self.id) {
            return Ok(Ok(()));
        }
        let all: Vec<Value> = self.cluster.list(&spec::collection("Pod"))?;
        if !all.is_empty() {
            let patch = json!({ "metadata": { "annotations": { ENTERED: null } } });
            return self.cluster.merge_patch::<_, Value>(&path(), &patch).map(|_| Ok(()));
        }
        let this = json!({ "uid": meta["uid"], "resourceVersion": meta["resourceVersion"] });
        self.cluster.delete_if(&path(), &this, None)?;
        Ok(Err(format!("namespace {VERIFY_NAMESPACE}")))
    }
}

fn name_of(pod: &Value) -> String {
    format!("pod {}", pod["metadata"]["name"].as_str().unwrap_or_default())
}
