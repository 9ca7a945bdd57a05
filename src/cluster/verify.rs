//! What `verify` reads of the cluster, and its namespace there.

use std::net::Ipv4Addr;

use anyhow::Result;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::api::{path, query};
use super::{Cluster, access};
use crate::facts::Right;

/// The service that pods ask for names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsService {
    /// Its ClusterIP.
    pub address: String,
    /// The number of its ready endpoints.
    pub ready: usize,
}

impl Cluster {
    /// The IPAM blocks that are confirmed for a node, as CIDRs.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or has no Calico.
    pub fn blocks_of(&self, node: &str) -> Result<Vec<String>> {
        let affinities: Vec<Value> = self.calico_list("blockaffinities")?;
        let is_ours = |spec: &Value| {
            let deleted = spec["deleted"] == true || spec["deleted"] == "true";
            spec["node"] == node && spec["state"] == "confirmed" && !deleted
        };
        let ours = affinities.iter().map(|affinity| &affinity["spec"]).filter(|spec| is_ours(spec));
        Ok(ours.filter_map(|spec| spec["cidr"].as_str()).map(str::to_owned).collect())
    }

    /// A list of Calico's resources, from the group that the cluster serves.
    fn calico_list<T: DeserializeOwned>(&self, plural: &str) -> Result<Vec<T>> {
        let (_, listed) = Self::of_calico(|group| {
            let (name, version) = group.parts();
            self.list(&path(["apis", name, version, plural]))
        })?;
        Ok(listed)
    }

    /// The service `kube-dns`; none if there is none.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn dns_service(&self) -> Result<Option<DnsService>> {
        let Some(service) = self.get::<Value>("/api/v1/namespaces/kube-system/services/kube-dns")? else {
            return Ok(None);
        };
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
        let slices: Vec<Value> =
            self.list(&query(slices, &[("labelSelector", "kubernetes.io/service-name=kube-dns")]))?;
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        // Unknown means ready.
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != false).count();
        Ok(Some(DnsService { address, ready }))
    }
}

/// The namespace of the pods that `verify` starts.
pub const VERIFY_NAMESPACE: &str = "calicoctl-win-verify";

/// The label, and its value, of what this program creates there.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "calicoctl-win");

/// `(verbs, group, resource)` of what `verify` does in its namespace.
const IN_NAMESPACE: [(&[&str], &str, &str); 4] = [
    (&["create", "delete", "get", "list"], "", "pods"),
    (&["create", "delete"], "", "services"),
    (&["create", "delete"], "networking.k8s.io", "networkpolicies"),
    (&["create", "delete"], "", "secrets"),
];

impl Cluster {
    /// The rights to start the pods of `verify` that this user lacks; `exists`: the namespace is there, and stays.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn missing_for_verify(&self, exists: bool, secret: bool, policies: bool) -> Result<Vec<String>> {
        let right = |verb: &str, group: &str, resource: &str, namespace: Option<&str>| Right {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.map(str::to_owned),
            needed: true,
            ..Right::default()
        };
        let used = |resource: &str| match resource {
            "secrets" => secret,
            "networkpolicies" => policies,
            _ => true,
        };
        let mut rights: Vec<Right> = IN_NAMESPACE
            .iter()
            .filter(|(.., resource)| used(resource))
            .flat_map(|(verbs, group, resource)| {
                verbs.iter().map(|verb| right(verb, group, resource, Some(VERIFY_NAMESPACE)))
            })
            .collect();
        let named = Some(VERIFY_NAMESPACE.to_owned());
        rights
            .extend(["get", "patch"].map(|verb| Right { name: named.clone(), ..right(verb, "", "namespaces", None) }));
        if !exists {
            rights.extend(["create", "delete"].map(|verb| right(verb, "", "namespaces", None)));
        }
        let missing = self.runtime.block_on(access::missing(&self.api, rights))?;
        Ok(missing.iter().map(ToString::to_string).collect())
    }

    /// Deletes an object if it is the one that these preconditions name; false if it did not exist, or is another.
    /// `grace`: how many seconds a pod has to end, if not its own.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or refuses.
    pub fn delete_if(&self, path: &str, preconditions: &Value, grace: Option<u32>) -> Result<bool> {
        let options = json!({ "preconditions": preconditions, "gracePeriodSeconds": grace });
        match self.runtime.block_on(self.api.delete_when(path, &options)) {
            Ok(deleted) => Ok(deleted),
            Err(failure) if failure.status == Some(409) => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// The API server as `HOST:PORT`, for pods; none if it is an address of this machine only.
    pub fn outside(&self) -> Option<String> {
        let url = Url::parse(self.server()).ok()?;
        let host = url.host_str()?;
        let own =
            host == "localhost" || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback()) || host.contains(':');
        (!own).then(|| format!("{host}:{}", url.port_or_known_default().unwrap_or(443)))
    }

    /// The names of the Nodes with Linux that are Ready, those that pods are scheduled on first.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn linux_nodes(&self) -> Result<Vec<String>> {
        let nodes: Vec<Value> = self.list(&query("/api/v1/nodes", &[("labelSelector", "kubernetes.io/os=linux")]))?;
        let is_ready = |node: &&Value| {
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let mut ready: Vec<&Value> = nodes.iter().filter(is_ready).collect();
        let is_closed = |node: &Value| {
            let taints = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
            taints || node["spec"]["unschedulable"] == true
        };
        ready.sort_by_key(|node| is_closed(node));
        Ok(ready.iter().filter_map(|node| node["metadata"]["name"].as_str()).map(str::to_owned).collect())
    }
}

/// A manifest that grants the group `calicoctl-win` to start the pods of `verify`, and nothing outside their namespace.
pub fn verify_manifest() -> String {
    let mut text = format!(
        "# Rights to run calicoctl-win verify --pods, besides those of rbac.yaml. With this namespace, which verify does\n\
         # not delete, a user needs no right to create one.\n\
         apiVersion: v1\nkind: Namespace\n\
         metadata: {{name: {VERIFY_NAMESPACE}, labels: {{{}: {}}}}}\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n\
         metadata: {{name: calicoctl-win-verify, namespace: {VERIFY_NAMESPACE}}}\n\
         rules:\n",
        MANAGED_BY.0, MANAGED_BY.1
    );
    for (verbs, group, resource) in IN_NAMESPACE {
        let why = match resource {
            "networkpolicies" => "  # for --demo",
            "secrets" => "  # for --pull-secret, which also needs `get` of the secret itself",
            _ => "",
        };
        let verbs = verbs.join(", ");
        text.push_str(&format!("- {{apiGroups: [\"{group}\"], resources: [\"{resource}\"], verbs: [{verbs}]}}{why}\n"));
    }
    let subjects = "subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: calicoctl-win}]\n";
    text + &format!(
        "---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
         metadata: {{name: calicoctl-win-verify, namespace: {VERIFY_NAMESPACE}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: calicoctl-win-verify}}\n\
         {subjects}\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
         metadata: {{name: calicoctl-win-verify}}\n\
         rules:\n\
         - {{apiGroups: [\"\"], resources: [\"namespaces\"], resourceNames: [\"{VERIFY_NAMESPACE}\"], verbs: [get, patch]}}\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n\
         metadata: {{name: calicoctl-win-verify}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: calicoctl-win-verify}}\n\
         {subjects}"
    )
}
