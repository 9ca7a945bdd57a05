//! The objects of a rollout over many nodes: applied, read, paused, and returned to an earlier revision.

use anyhow::{Context as _, Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Cluster;
use super::api::{Api, path, query};
use super::errors::Failure;
use crate::fleet::{DaemonSet, Fleet, FleetNode, MANAGED, MaxUnavailable, TriedAction, installs_another};

pub(super) const WINDOWS_NODES: &str = "/api/v1/nodes?labelSelector=kubernetes.io%2Fos%3Dwindows";

const APPLY_PATCH: &str = "application/apply-patch+yaml";

const APPLIED: [(&str, &str); 2] = [("force", "true"), ("fieldValidation", "Strict")];

/// The server does everything but store it.
const DRY: (&str, &str) = ("dryRun", "All");

/// Fields of the metadata that differ though nothing was changed.
const BOOKKEEPING: [&str; 3] = ["generation", "managedFields", "resourceVersion"];

/// An object of which only the metadata is read.
#[derive(Deserialize)]
pub(super) struct Object {
    pub metadata: FleetNode,
}

impl Cluster {
    /// The cluster's Windows nodes, by name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn windows_nodes(&self) -> Result<Vec<FleetNode>> {
        Ok(self.runtime.block_on(windows_nodes(&self.api))?)
    }

    /// The DaemonSets of a rollout, in the order of their waves; none if there is none, or no such namespace.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn fleet_sets(&self, namespace: &str) -> Result<Vec<DaemonSet>> {
        let mut sets: Vec<DaemonSet> = self.list(&managed(&sets_path(namespace)))?;
        sets.sort_by_key(DaemonSet::order);
        Ok(sets)
    }

    /// A rollout as it is now; `felix_vni` is not read.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn fleet(&self, namespace: &str) -> Result<Fleet> {
        Ok(Fleet {
            sets: self.list(&managed(&sets_path(namespace)))?,
            revisions: self.list(&managed(&revisions_path(namespace)))?,
            pods: self.list(&managed(&pods_path(namespace)))?,
            nodes: self.windows_nodes()?,
            felix_vni: None,
        })
    }

    /// Creates an object, or changes it to what this program says of it, by server-side apply. Returns its generation.
    ///
    /// # Errors
    /// What the server says.
    pub fn apply_object(&self, object: &Value) -> Result<i64> {
        let at = query(&object_path(object), &APPLIED);
        let ask = async || self.api.patch::<Value>(&at, APPLY_PATCH, object).await;
        let applied = self.runtime.block_on(self.api.retry_refused(ask));
        let applied = applied.map_err(Error::from).with_context(|| applying(object))?;
        Ok(applied["metadata"]["generation"].as_i64().unwrap_or_default())
    }

    /// What the server would do with an object if it were applied, and, if it would not take it, what it says.
    ///
    /// # Errors
    /// When the server does not judge it; when the object that exists cannot be read.
    pub fn try_object(&self, object: &Value) -> Result<(TriedAction, Option<Error>)> {
        let path = object_path(object);
        let at = query(&query(&path, &APPLIED), &[DRY]);
        let tried = self.runtime.block_on(self.api.patch::<Value>(&at, APPLY_PATCH, object));
        let mut after = match tried {
            Ok(after) => after,
            Err(failure) => return not_taken(failure, object),
        };
        let Some(mut before) = self.runtime.block_on(self.api.get::<Value>(&path))? else {
            return Ok((TriedAction::Create, None));
        };
        for object in [&mut before, &mut after] {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                BOOKKEEPING.iter().for_each(|field| drop(metadata.remove(*field)));
            }
        }
        Ok((if before == after { TriedAction::Unchanged } else { TriedAction::Update }, None))
    }

    /// No further node begins: the controller no longer replaces pods.
    ///
    /// # Errors
    /// What the server says.
    pub fn pause_wave(&self, namespace: &str, set: &DaemonSet) -> Result<()> {
        self.set_strategy(namespace, set, json!({ "type": "OnDelete", "rollingUpdate": null }))
    }

    /// The controller replaces pods again, within the limit from before the pause.
    ///
    /// # Errors
    /// What the server says.
    pub fn resume_wave(&self, namespace: &str, set: &DaemonSet) -> Result<()> {
        let limit: MaxUnavailable = set.max_unavailable();
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": limit.json() } });
        self.set_strategy(namespace, set, strategy)
    }

    fn set_strategy(&self, namespace: &str, set: &DaemonSet, strategy: Value) -> Result<()> {
        let at = format!("{}/{}", sets_path(namespace), set.metadata.name);
        let patch = json!({ "spec": { "updateStrategy": strategy } });
        self.merge_patch::<_, Value>(&at, &patch).map(drop)
    }

    /// Returns a wave to the last revision of its pods that installed something else, like `kubectl rollout undo`.
    /// Returns false if there is none.
    ///
    /// # Errors
    /// What the server says.
    pub fn undo_wave(&self, namespace: &str, set: &DaemonSet) -> Result<bool> {
        let mut revisions: Vec<Value> = self.list(&managed(&revisions_path(namespace)))?;
        let owners = |one: &Value| one["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        revisions.retain(|one| {
            owners(one).iter().any(|owner| owner["name"] == set.metadata.name)
                && installs_another(&one["data"]["spec"]["template"], set.revision())
        });
        // Its data is a strategic merge patch with the template of its pods.
        let Some(former) = revisions.into_iter().max_by_key(|one| one["revision"].as_i64()) else { return Ok(false) };
        let at = format!("{}/{}", sets_path(namespace), set.metadata.name);
        let patch = self.api.patch::<Value>(&at, "application/strategic-merge-patch+json", &former["data"]);
        self.runtime.block_on(patch)?;
        Ok(true)
    }

    /// Deletes the DaemonSet of a wave, with its pods. Nothing changes on the nodes.
    ///
    /// # Errors
    /// What the server says.
    pub fn delete_wave(&self, namespace: &str, name: &str) -> Result<()> {
        self.delete(&format!("{}/{name}", sets_path(namespace))).map(drop)
    }

    /// What the server would do if the DaemonSet of a wave were deleted, as of [`Self::try_object`].
    ///
    /// # Errors
    /// When the server does not judge it.
    pub fn try_delete_wave(&self, set: &Value) -> Result<(TriedAction, Option<Error>)> {
        let tried = self.runtime.block_on(self.api.delete(&query(&object_path(set), &[DRY])));
        tried.map_or_else(|failure| not_taken(failure, set), |_| Ok((TriedAction::Delete, None)))
    }
}

/// An object that the server would not take. It is not known what it would do if something is absent that the object
/// needs: its namespace, or the role that it binds.
fn not_taken(failure: Failure, object: &Value) -> Result<(TriedAction, Option<Error>)> {
    let action = match failure.status {
        Some(404) => TriedAction::Unknown,
        // Also for a webhook that fails.
        Some(400 | 403 | 409 | 413 | 415 | 422 | 500) => TriedAction::Refused,
        _ => return Err(failure.into()),
    };
    Ok((action, Some(Error::from(failure).context(applying(object)))))
}

fn applying(object: &Value) -> String {
    format!("apply {} {}", object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"])
}

/// The Windows nodes' metadata: a tenth of the bytes of the nodes.
pub(super) async fn windows_nodes(api: &Api) -> Result<Vec<FleetNode>, Failure> {
    let nodes: Vec<Object> = api.list_metadata(WINDOWS_NODES).await?;
    Ok(nodes.into_iter().map(|node| node.metadata).collect())
}

pub(super) fn sets_path(namespace: &str) -> String {
    path(["apis", "apps", "v1", "namespaces", namespace, "daemonsets"])
}

pub(super) fn revisions_path(namespace: &str) -> String {
    path(["apis", "apps", "v1", "namespaces", namespace, "controllerrevisions"])
}

pub(super) fn pods_path(namespace: &str) -> String {
    path(["api", "v1", "namespaces", namespace, "pods"])
}

/// The objects of a rollout in a list.
pub(super) fn managed(list: &str) -> String {
    query(list, &[("labelSelector", MANAGED)])
}

/// Where an object of a rollout is in the API.
fn object_path(object: &Value) -> String {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    let plural = match object["kind"].as_str().unwrap_or_default() {
        "Namespace" => "namespaces",
        "Secret" => "secrets",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "DaemonSet" => "daemonsets",
        kind => unreachable!("a rollout has no {kind}"),
    };
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = if version == "v1" { vec!["api", "v1"] } else { [vec!["apis"], version.split('/').collect()].concat() };
    let place = if field("namespace").is_empty() { vec![] } else { vec!["namespaces", field("namespace")] };
    path(group.into_iter().chain(place).chain([plural, field("name")]))
}
