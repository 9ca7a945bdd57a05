//! The pods of a node, as far as their network is concerned: whose address is whose, and what happens to a deleted pod.

use std::fmt;
use std::net::Ipv4Addr;

use anyhow::Result;
use serde_json::{Value, json};

use super::api::{path, query};
use super::{Cluster, Note, access};
use crate::fault::{Exit, Fault};
use crate::values::joined;

/// A pod that is bound to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOnNode {
    pub namespace: String,
    pub name: String,
    uid: String,
    pub addresses: Vec<Ipv4Addr>,
    /// The controller that re-creates it when it is deleted; none if nothing does.
    pub controller: Option<String>,
    /// Whether it is being deleted.
    pub ending: bool,
    /// Whether its containers run: one that has ended keeps its address in its status.
    pub running: bool,
    /// Whether kube-proxy runs in it, as a process of the host.
    pub kube_proxy: bool,
}

impl fmt::Display for PodOnNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl PodOnNode {
    fn read(pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let listed = pod["status"]["podIPs"].as_array().into_iter().flatten().map(|entry| &entry["ip"]);
        let mut addresses: Vec<Ipv4Addr> =
            listed.chain([&pod["status"]["podIP"]]).filter_map(|ip| ip.as_str()?.parse().ok()).collect();
        addresses.dedup();
        // A pod on the host's network has the host's address, which is not an endpoint's.
        if pod["spec"]["hostNetwork"] == true {
            addresses.clear();
        }
        let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.find(|owner| owner["controller"] == true).map(|owner| text(&owner["kind"]));
        Self {
            namespace: text(&pod["metadata"]["namespace"]),
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            addresses,
            // kubelet re-creates a static pod, and its mirror is not the pod.
            controller: controller.filter(|kind| kind != "Node"),
            ending: pod["metadata"]["deletionTimestamp"].is_string(),
            running: pod["status"]["phase"] == "Running",
            kube_proxy: is_kube_proxy(pod),
        }
    }

    /// Whether it runs on the pod network, and no endpoint has its address. `attached`: those that endpoints have.
    pub fn is_detached(&self, attached: &[Ipv4Addr]) -> bool {
        let has = |ip| attached.contains(ip);
        self.running && !self.ending && !self.addresses.is_empty() && !self.addresses.iter().any(has)
    }

    pub fn is_of_daemon_set(&self) -> bool {
        self.controller.as_deref() == Some("DaemonSet")
    }
}

/// Whether kube-proxy runs in a pod as a process of the host. The manifests of sig-windows-tools name its container so.
fn is_kube_proxy(pod: &Value) -> bool {
    let of_host = |part: &Value| part["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.any(|one| (of_host(one) || of_host(&pod["spec"])) && one["name"] == "kube-proxy")
}

impl Cluster {
    /// The pods of a node.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or refuses.
    pub fn pods_on(&self, node: &str) -> Result<Vec<PodOnNode>> {
        let pods: Vec<Value> =
            self.list(&query("/api/v1/pods", &[("fieldSelector", &format!("spec.nodeName={node}"))]))?;
        Ok(pods.iter().map(PodOnNode::read).collect())
    }

    /// Deletes exactly this pod: another of its name is kept. It ends when its kubelet is done.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or refuses.
    pub fn delete_pod(&self, pod: &PodOnNode) -> Result<()> {
        let at = path(["api", "v1", "namespaces", &pod.namespace, "pods", &pod.name]);
        let this = json!({ "preconditions": { "uid": pod.uid } });
        match self.runtime.block_on(self.api.delete_when(&at, &this)) {
            Ok(_) => Ok(()),
            Err(failure) if failure.status == Some(409) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Creates a warning on a pod, for `kubectl describe` and `kubectl get events`.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or refuses.
    pub fn warn_on_pod(&self, pod: &PodOnNode, node: &str, reason: &str, message: &str) -> Result<()> {
        let PodOnNode { namespace, name, uid, .. } = pod;
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid });
        self.tell_about(&pod, namespace, node, &Note { warns: true, reason, message })
    }

    /// Checks that this user has rights of a change, by verb and resource, before anything is changed.
    ///
    /// # Errors
    /// `ClusterRights` with those that are missing; when the cluster cannot be asked.
    pub fn check_rights(&self, needed: &[(&str, &str)]) -> Result<()> {
        let missing = self.runtime.block_on(access::missing(&self.api, access::of_change(needed)))?;
        if missing.is_empty() {
            return Ok(());
        }
        let what = format!("this change needs rights that the kubeconfig's user lacks: {}", joined(&missing, ", "));
        let hint = "ask a cluster administrator to grant it: `calicoctl-win explain ClusterRights` prints a manifest";
        Err(Fault::new(Exit::ClusterAccessDenied, "ClusterRights", what).hint(hint).into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Reply, Server};
    use super::*;

    #[test]
    fn the_rights_of_a_change_are_checked_and_missing_ones_are_named() {
        let server = Server::start();
        let says = |allowed: bool| Reply::json(201, &json!({"status": {"allowed": allowed}}));
        server.on("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", [says(true), says(false)]);
        let cluster = server.connect();
        cluster.check_rights(&[("delete", "pods")]).unwrap();
        let refused = cluster.check_rights(&[("create", "pods/eviction")]).unwrap_err();
        assert_eq!(Fault::id_of(&refused), "ClusterRights");
        assert!(refused.to_string().ends_with("lacks: create pods/eviction in the whole cluster"), "{refused:#}");
        let asked: Vec<Value> = server.seen().iter().map(|seen| serde_json::from_str(&seen.body).unwrap()).collect();
        let about = |at: usize| {
            let attributes = &asked[at]["spec"]["resourceAttributes"];
            ["verb", "resource", "subresource"].map(|field| attributes[field].as_str().unwrap().to_owned())
        };
        assert_eq!(
            (about(0), about(1)),
            (["delete", "pods", ""].map(Into::into), ["create", "pods", "eviction"].map(Into::into))
        );
    }

    #[test]
    fn exactly_this_pod_is_deleted_and_a_missing_or_new_one_is_fine() {
        let server = Server::start();
        let pod =
            json!({"metadata": {"name": "absent", "namespace": "demo", "uid": "17"}, "status": {"podIP": "10.1.0.5"}});
        let pod = PodOnNode::read(&pod);
        assert_eq!((pod.addresses.clone(), pod.controller.clone()), (vec![Ipv4Addr::new(10, 1, 0, 5)], None));
        let at = "DELETE /api/v1/namespaces/demo/pods/absent";
        server.on(at, [Reply::json(200, &json!({})), Reply::recorded("evict-404"), Reply::recorded("evict-uid-409")]);
        let cluster = server.connect();
        for _ in 0..3 {
            cluster.delete_pod(&pod).unwrap();
        }
        let sent: Value = serde_json::from_str(&server.seen()[0].body).unwrap();
        assert_eq!(sent, json!({"preconditions": {"uid": "17"}}));
    }
}
