//! Node startup's requests to the Kubernetes API.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::cluster::{Cluster, path};
use crate::fault::Fault;
use crate::settings::Limits;

/// The API group of crd.projectcalico.org, and the native one of v3.32 and later.
const GROUPS: [(&str, &str); 2] = [("crd.projectcalico.org", "v1"), ("projectcalico.org", "v3")];

/// A client with the group of Calico's resources.
pub struct Kube {
    cluster: Cluster,
    group: (&'static str, &'static str),
}

impl Kube {
    /// `group` is the value of `CALICO_API_GROUP`; without it the v3 group is used if it is served and the v1 one is
    /// not.
    pub fn connect(kubeconfig: &str, folder: &Path, dial: Option<SocketAddr>, group: Option<&str>) -> Result<Self> {
        // The real one exits after 2 s, and its service manager restarts it.
        let limits = Limits { timeout: Duration::from_secs(2), retries: 0, asks: false };
        let cluster = Cluster::connect(kubeconfig, folder, None, dial, limits)?;
        let served = |(group, version): (&str, &str)| -> Result<bool> {
            match cluster.get::<Value>(&path(["apis", group, version])) {
                Ok(found) => Ok(found.is_some()),
                Err(e) if Fault::id_of(&e) == "ApiNotServed" => Ok(false),
                Err(e) => Err(e),
            }
        };
        let [v1, v3] = GROUPS;
        let group = match group {
            Some(name) => GROUPS
                .into_iter()
                .find(|(group, version)| format!("{group}/{version}") == name)
                .with_context(|| format!("CALICO_API_GROUP {name} is not known"))?,
            None if !served(v1)? && served(v3)? => v3,
            None => v1,
        };
        Ok(Self { cluster, group })
    }

    fn node_path(name: &str) -> String {
        path(["api", "v1", "nodes", name])
    }

    /// The Node object, which every step needs.
    pub fn node(&self, name: &str) -> Result<Value> {
        self.cluster
            .get(&Self::node_path(name))?
            .ok_or_else(|| anyhow!("Failed to read Node {name} from datastore: resource does not exist"))
    }

    /// Writes what only this node knows to Calico's annotations.
    pub fn annotate(&self, name: &str, values: &[(&str, String)]) -> Result<()> {
        let annotations: Value =
            values.iter().map(|(key, value)| (format!("projectcalico.org/{key}"), json!(value))).collect();
        self.patch_status(name, &json!({ "metadata": { "annotations": annotations } }))
    }

    /// Clears the condition with which a cloud's controller keeps pods away.
    pub fn set_network_available(&self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ours = |condition: &Value| condition["type"] == "NetworkUnavailable";
        if conditions.iter().any(|c| is_ours(c) && c["status"] == "False" && c["reason"] == "CalicoIsUp") {
            return Ok(());
        }
        conditions.retain(|condition| !is_ours(condition));
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        conditions.push(json!({
            "type": "NetworkUnavailable",
            "status": "False",
            "reason": "CalicoIsUp",
            "message": "Calico is running on this node",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }));
        // The complete list is replaced, so it must be the one that was read.
        let version = &node["metadata"]["resourceVersion"];
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": conditions } });
        self.patch_status(name, &patch)
    }

    fn patch_status(&self, name: &str, patch: &Value) -> Result<()> {
        let status = path(["api", "v1", "nodes", name, "status"]);
        self.cluster.merge_patch::<_, Value>(&status, patch).map(drop).context("Failed to write Node")
    }

    pub fn is_v3(&self) -> bool {
        self.group.1 == "v3"
    }

    /// A kind of Calico that has another name in the other group.
    pub fn plural(&self, v1: &'static str, v3: &'static str) -> &'static str {
        if self.is_v3() { v3 } else { v1 }
    }

    pub fn calico(&self, plural: &str, name: &str) -> Result<Option<Value>> {
        let (group, version) = self.group;
        self.cluster.get(&path(["apis", group, version, plural, name]))
    }

    /// The startup of each node writes its own release, whatever the other nodes run.
    pub fn write_release(&self, release: &str) -> Result<()> {
        let (group, version) = self.group;
        let path = path(["apis", group, version, "clusterinformations", "default"]);
        let Some(mut found) = self.cluster.get::<Value>(&path)? else { return Ok(()) };
        if found["spec"]["calicoVersion"] == release {
            return Ok(());
        }
        found["spec"]["calicoVersion"] = release.into();
        self.cluster.put::<_, Value>(&path, &found).map(drop)
    }

    pub fn calico_list(&self, plural: &str) -> Result<Vec<Value>> {
        let (group, version) = self.group;
        self.cluster.list(&path(["apis", group, version, plural]))
    }

    pub fn calico_create(&self, plural: &str, kind: &str, name: &str, spec: &Value) -> Result<()> {
        let (group, version) = self.group;
        let body = json!({
            "apiVersion": format!("{group}/{version}"),
            "kind": kind,
            "metadata": { "name": name },
            "spec": spec,
        });
        self.cluster.post::<_, Value>(&path(["apis", group, version, plural]), &body).map(drop)
    }
}
