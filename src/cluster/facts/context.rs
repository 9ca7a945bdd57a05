//! Calico's environment in a cluster: its operator, its pods on Windows, Typha, the Nodes, and the service addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use serde::Deserialize;

use super::calico::{Bare, Named, Object};
use super::{Checks, Question, Unanswered, ask, ask_all, ask_metadata, if_checked};
use crate::cluster::api::{Api, path, query};
use crate::cluster::errors::Failure;
use crate::facts::{ClusterFacts, HostProcess, NodeCounts, OperatorFacts, OperatorPool, TyphaFacts};

/// The DaemonSet of Calico's HostProcess pods, in the operator's clusters and in Calico's manifests.
const HOST_PROCESS: &str = "calico-node-windows";

/// The DaemonSet of Calico on Linux.
const LINUX: &str = "calico-node";

/// Where the Linux nodes keep their data, from their variables: the datastore is `kubernetes` only if they say so;
/// etcd's manifests set only endpoints.
fn of_daemon_set(set: &DaemonSet) -> Option<String> {
    let pod = set.spec.template.spec.as_ref()?;
    let env = pod.containers.iter().find(|container| container.name == LINUX)?.env.as_ref()?;
    let named = |name: &str| env.iter().find(|variable| variable.name == name);
    let said = ["DATASTORE_TYPE", "CALICO_DATASTORE_TYPE"].into_iter().find_map(named);
    match said.and_then(|variable| variable.value.clone()) {
        Some(datastore) if !datastore.is_empty() => Some(datastore),
        _ => named("ETCD_ENDPOINTS").map(|_| "etcdv3".to_owned()),
    }
}

/// The release of its image. ClusterInformation has the release of the node whose startup ran last, which may be a
/// Windows node.
fn release_of(set: &DaemonSet) -> Option<String> {
    let pod = set.spec.template.spec.as_ref()?;
    let image = pod.containers.iter().find(|container| container.name == LINUX)?.image.as_deref()?;
    let (_, tag) = image.split('@').next()?.rsplit_once(':')?;
    // A tag in a private registry may be anything.
    let version = tag.strip_prefix('v')?.starts_with(|c: char| c.is_ascii_digit());
    version.then(|| tag.to_owned())
}

/// The same from the ConfigMap of manifest installs: etcd's manifests set endpoints there, and the others name the
/// datastore only in the CNI configuration.
fn of_config(map: &ConfigMap) -> Option<String> {
    let data = map.data.as_ref()?;
    if data.get("etcd_endpoints").is_some_and(|endpoints| !endpoints.trim().is_empty()) {
        return Some("etcdv3".to_owned());
    }
    // A template with placeholders for numbers, so not JSON yet.
    let (_, rest) = data.get("cni_network_config")?.split_once("\"datastore_type\"")?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    value.split_once('"').map(|(datastore, _)| datastore.to_owned()).filter(|datastore| !datastore.is_empty())
}

/// The requests that need the Calico namespace or nothing.
pub(super) struct FactsContext {
    installation: Question<Option<Object<Installation>>>,
    daemon_set: Question<Option<Bare>>,
    pods_here: Question<Vec<PodMeta>>,
    typha: Question<Option<Deployment>>,
    calico_config: Question<Option<ConfigMap>>,
    linux: Question<Option<DaemonSet>>,
    nodes: Question<Vec<Labelled>>,
    service: Question<Option<Service>>,
}

impl FactsContext {
    pub fn ask(api: &Arc<Api>, namespace: &str, node: &str, checks: Checks) -> Self {
        let (checks, whole) = (checks != Checks::None, checks == Checks::All);
        let apps = |kind, name| path(["apis", "apps", "v1", "namespaces", namespace, kind, name]);
        let pods = path(["api", "v1", "namespaces", namespace, "pods"]);
        Self {
            installation: ask(api, path(["apis", "operator.tigera.io", "v1", "installations", "default"])),
            daemon_set: if_checked(checks, || ask(api, apps("daemonsets", HOST_PROCESS))),
            pods_here: if_checked(checks, || {
                ask_metadata(api, query(&pods, &[("fieldSelector", &format!("spec.nodeName={node}"))]))
            }),
            typha: if_checked(whole, || ask(api, apps("deployments", "calico-typha"))),
            // Manifests put it there, whatever the namespace of the service account.
            calico_config: ask(api, path(["api", "v1", "namespaces", "kube-system", "configmaps", "calico-config"])),
            linux: ask(api, apps("daemonsets", LINUX)),
            nodes: if_checked(whole, || ask_metadata(api, "/api/v1/nodes".to_owned())),
            service: if_checked(checks, || {
                ask(api, path(["api", "v1", "namespaces", "default", "services", "kubernetes"]))
            }),
        }
    }

    pub async fn fill(self, facts: &mut ClusterFacts, unanswered: &mut Unanswered) -> Result<(), Failure> {
        let installation = unanswered.may_be("installations", self.installation.answer().await)?.flatten();
        facts.operator = installation.map(|found| operator(found.spec));
        let daemon_set = unanswered.checked("daemonsets", self.daemon_set.answer().await)?;
        let pods = unanswered.checked("pods", self.pods_here.answer().await)?;
        if let (Some(daemon_set), Some(pods)) = (daemon_set, pods) {
            let ours = |pod: &PodMeta| pod.metadata.owner_references.iter().any(|owner| owner.name == HOST_PROCESS);
            let pod_here = pods.into_iter().find(ours).map(|pod| pod.metadata.name);
            facts.host_process = Some(HostProcess { daemon_set: daemon_set.is_some(), pod_here });
        }
        let typha = unanswered.checked("deployments", self.typha.answer().await)?.flatten();
        facts.typha = typha.map(|found| TyphaFacts {
            wanted: found.spec.replicas.unwrap_or(1),
            ready: found.status.and_then(|status| status.ready_replicas).unwrap_or_default(),
        });
        let config = unanswered.may_be("calico-config", self.calico_config.answer().await)?.flatten();
        let linux = unanswered.may_be("daemonsets", self.linux.answer().await)?.flatten();
        if let Some(release) = linux.as_ref().and_then(release_of) {
            facts.calico_version = Some(release);
        }
        facts.linux_datastore = linux.as_ref().and_then(of_daemon_set).or_else(|| of_config(config.as_ref()?));
        facts.linux_backend = config.and_then(|map| map.data?.remove("calico_backend"));
        let nodes = unanswered.checked("nodes", self.nodes.answer().await)?;
        facts.nodes = nodes.filter(|nodes| !nodes.is_empty()).map(|nodes| count(&nodes));
        let service = unanswered.checked("services", self.service.answer().await)?.flatten();
        facts.kubernetes_service_ips = service
            .and_then(|service| service.spec)
            .map(|spec| spec.cluster_ips.unwrap_or_default())
            .unwrap_or_default();
        Ok(())
    }
}

/// The Windows Node that has one of these addresses.
pub(super) fn ask_node_with(api: &Arc<Api>, addresses: &[Ipv4Addr]) -> Option<Question<Vec<Node>>> {
    let windows = query("/api/v1/nodes", &[("labelSelector", "kubernetes.io/os=windows")]);
    (!addresses.is_empty()).then(|| ask_all(api, windows))
}

pub(super) fn with_address(nodes: Vec<Node>, addresses: &[Ipv4Addr]) -> Option<String> {
    let has = |node: &Node| {
        let all = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
        all.filter_map(|a| a.address.parse::<Ipv4Addr>().ok()).any(|address| addresses.contains(&address))
    };
    nodes.into_iter().find(has).and_then(|node| node.metadata.name)
}

fn count(nodes: &[Labelled]) -> NodeCounts {
    let os =
        |node: &Labelled, wanted: &str| node.metadata.labels.get("kubernetes.io/os").is_some_and(|os| os == wanted);
    let control_plane = |node: &Labelled| {
        ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
            .iter()
            .any(|role| node.metadata.labels.contains_key(*role))
    };
    NodeCounts {
        all: nodes.len(),
        linux: nodes.iter().filter(|node| os(node, "linux")).count(),
        linux_workers: nodes.iter().filter(|node| os(node, "linux") && !control_plane(node)).count(),
        windows: nodes.iter().filter(|node| os(node, "windows")).count(),
    }
}

fn operator(spec: Installation) -> OperatorFacts {
    let network = spec.calico_network.unwrap_or_default();
    OperatorFacts {
        windows_dataplane: network.windows_dataplane,
        bgp: network.bgp,
        cni: spec.cni.map(|cni| cni.kind),
        pools: network
            .ip_pools
            .unwrap_or_default()
            .into_iter()
            .map(|pool| OperatorPool {
                cidr: pool.cidr,
                // The operator's own default.
                encapsulation: pool.encapsulation.unwrap_or_else(|| "IPIP".into()),
            })
            .collect(),
    }
}

#[derive(Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Deserialize)]
struct Labels {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct PodMeta {
    metadata: Owned,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owned {
    name: String,
    #[serde(default)]
    owner_references: Vec<Named>,
}

/// Only the fields that are read: the types of k8s-openapi know every field of a pod, which is 0.3 MB of code.
#[derive(Deserialize)]
struct DaemonSet {
    spec: DaemonSetSpec,
}

#[derive(Deserialize)]
struct DaemonSetSpec {
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    spec: Option<PodSpec>,
}

#[derive(Deserialize)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    image: Option<String>,
    env: Option<Vec<Variable>>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    value: Option<String>,
}

#[derive(Deserialize)]
struct Deployment {
    spec: Replicas,
    status: Option<Ready>,
}

#[derive(Deserialize)]
struct Replicas {
    replicas: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    ready_replicas: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Installation {
    calico_network: Option<CalicoNetwork>,
    cni: Option<Cni>,
}

#[derive(Deserialize)]
struct Cni {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CalicoNetwork {
    windows_dataplane: Option<String>,
    bgp: Option<String>,
    ip_pools: Option<Vec<InstallationPool>>,
}

#[derive(Deserialize)]
struct InstallationPool {
    cidr: String,
    encapsulation: Option<String>,
}
