//! What the cluster tells about itself, in as few round trips as it takes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service, ServiceAccount};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::api::{Api, path};
use super::errors::Failure;
use super::{Cluster, SERVICE_ACCOUNT, missing_account, node};
use crate::facts::{ApiGroup, ClusterFacts, FelixFacts, PoolFacts};
use crate::report::event::Event;
use crate::values::Cidr;

/// What the cluster cannot know by itself.
#[derive(Debug, Clone, Copy)]
pub struct FactsOptions<'a> {
    /// Name of the Kubernetes Node that this machine is, or will be.
    pub node_name: &'a str,
    /// The namespace of calico-node, where the config names it: then it is not looked for.
    pub namespace_override: Option<&'a str>,
}

impl Cluster {
    /// Measures the cluster. Each question that fails is an error of its own name; only what is
    /// nice to know (kubeadm's ConfigMap, the service kube-dns) may be forbidden or absent, and
    /// then an event says so.
    pub fn facts(&self, options: &FactsOptions<'_>) -> Result<ClusterFacts> {
        self.runtime.block_on(gather(&self.api, options))
    }
}

async fn gather(api: &Arc<Api>, options: &FactsOptions<'_>) -> Result<ClusterFacts> {
    let account = |namespace| path(["api", "v1", "namespaces", namespace, "serviceaccounts", SERVICE_ACCOUNT]);
    // Everything that depends on nothing is asked at the same time.
    let version = ask::<Version>(api, "/version".to_owned());
    let old_group = served(api, "crd.projectcalico.org", "v1");
    let new_group = served(api, "projectcalico.org", "v3");
    let candidates = match options.namespace_override {
        Some(_) => Vec::new(),
        None => NAMESPACES.map(|n| (n, ask::<ServiceAccount>(api, account(n)))).into(),
    };
    let node = ask::<Node>(api, path(["api", "v1", "nodes", options.node_name]));
    let kubeadm =
        ask::<ConfigMap>(api, path(["api", "v1", "namespaces", "kube-system", "configmaps", "kubeadm-config"]));
    let dns = ask::<Service>(api, path(["api", "v1", "namespaces", "kube-system", "services", "kube-dns"]));

    let version = version.answer().await?.context("find /version on the API server")?;
    let (old_group, new_group) = (old_group.answer().await?, new_group.answer().await?);
    // Calico's own rule: v3 only where v1 is not.
    let api_group = if new_group && !old_group { ApiGroup::V3 } else { ApiGroup::V1 };
    let calico = match old_group || new_group {
        true => Some(Resources::ask(api, api_group)),
        false => {
            let message = "the cluster serves no Calico resources: Calico is not installed, or keeps its data in etcd";
            api.tell(Event::Warning { id: "CalicoResourcesNotServed", message: message.to_owned() });
            None
        }
    };
    let calico_namespace = match options.namespace_override {
        Some(namespace) => namespace.to_owned(),
        None => find_namespace(candidates).await?,
    };
    let node = node.answer().await?.map(node::read);
    let service_cidrs =
        tolerated(api, kubeadm.answer().await, "the service CIDR")?.and_then(|m| service_cidrs(api, &m));
    let dns_service = tolerated(api, dns.answer().await, "the cluster's DNS address")?;

    let mut facts = ClusterFacts {
        server: api.server.clone(),
        kubernetes_version: version.git_version,
        calico_namespace,
        api_group,
        calico_version: None,
        felix: FelixFacts::default(),
        pools: Vec::new(),
        strict_affinity: None,
        node,
        service_cidrs: service_cidrs.unwrap_or_default(),
        dns_service_ip: dns_service.as_ref().and_then(cluster_ip),
    };
    if let Some(calico) = calico {
        calico.fill(&mut facts).await?;
    }
    Ok(facts)
}

/// Where calico-node may live: as the operator installs it, and as the manifest does.
pub(super) const NAMESPACES: [&str; 2] = ["calico-system", "kube-system"];

async fn find_namespace(candidates: Vec<(&str, Question<Option<ServiceAccount>>)>) -> Result<String> {
    for (namespace, account) in candidates {
        match account.answer().await {
            Ok(Some(_)) => return Ok(namespace.to_owned()),
            Ok(None) => {}
            // "May not look" says nothing about what is there, so the next one must not be taken.
            Err(mut failure) => {
                if failure.status == Some(403) {
                    let right = failure.fault.hint.take().unwrap_or_default();
                    failure.fault.hint = Some(format!("{right}; or name it in the config: kubernetes.calicoNamespace"));
                }
                return Err(failure.into());
            }
        }
    }
    Err(missing_account(&NAMESPACES.join(" or ")).into())
}

/// Calico's own resources, asked for.
struct Resources {
    felix: Question<Option<Object<Felix>>>,
    pools: Question<Vec<Object<Pool>>>,
    ipam: Question<Option<Object<IpamConfig>>>,
    information: Question<Option<Object<Information>>>,
}

impl Resources {
    fn ask(api: &Arc<Api>, group: ApiGroup) -> Self {
        let (name, version, ipam) = match group {
            ApiGroup::V1 => ("crd.projectcalico.org", "v1", "ipamconfigs"),
            ApiGroup::V3 => ("projectcalico.org", "v3", "ipamconfigurations"),
        };
        let default = |plural| path(["apis", name, version, plural, "default"]);
        Self {
            felix: ask(api, default("felixconfigurations")),
            pools: ask_all(api, path(["apis", name, version, "ippools"])),
            ipam: ask(api, default(ipam)),
            information: ask(api, default("clusterinformations")),
        }
    }

    async fn fill(self, facts: &mut ClusterFacts) -> Result<()> {
        if let Some(Object { spec, .. }) = self.felix.answer().await? {
            facts.felix = FelixFacts {
                vxlan_enabled: spec.vxlan_enabled,
                vxlan_vni: spec.vxlan_vni,
                ipip_enabled: spec.ipip_enabled,
            };
        }
        facts.pools = self.pools.answer().await?.into_iter().map(pool).collect();
        facts.strict_affinity = self.ipam.answer().await?.map(|c| c.spec.strict_affinity);
        facts.calico_version =
            self.information.answer().await?.map(|i| i.spec.calico_version).filter(|v| !v.is_empty());
        Ok(())
    }
}

/// A question on its way. Nobody waits for it any more when it is dropped.
struct Question<T>(JoinHandle<Result<T, Failure>>);

impl<T> Question<T> {
    async fn answer(mut self) -> Result<T, Failure> {
        (&mut self.0).await.expect("a question does not panic, and is not dropped while it is awaited")
    }
}

impl<T> Drop for Question<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn ask<T: DeserializeOwned + Send + 'static>(api: &Arc<Api>, path: String) -> Question<Option<T>> {
    let api = Arc::clone(api);
    Question(tokio::spawn(async move { api.get(&path).await }))
}

fn ask_all<T: DeserializeOwned + Send + 'static>(api: &Arc<Api>, path: String) -> Question<Vec<T>> {
    let api = Arc::clone(api);
    Question(tokio::spawn(async move { api.list(&path).await }))
}

/// Whether a version of a group is served. Only the server's own "404 page not found" is a no.
fn served(api: &Arc<Api>, group: &'static str, version: &'static str) -> Question<bool> {
    let api = Arc::clone(api);
    Question(tokio::spawn(async move {
        match api.get::<Group>(&path(["apis", group])).await {
            Ok(found) => Ok(found.is_some_and(|g| g.versions.iter().any(|v| v.version == version))),
            Err(failure) if failure.is_not_served() => Ok(false),
            Err(failure) => Err(failure),
        }
    }))
}

/// What is nice to know: "not there" and "not for you" are no errors, all else is.
fn tolerated<T>(api: &Api, answer: Result<Option<T>, Failure>, what: &str) -> Result<Option<T>, Failure> {
    let reason = match answer {
        Ok(None) => "the cluster does not tell it".to_owned(),
        Err(failure) if matches!(failure.status, Some(403 | 404)) => failure.fault.what,
        answer => return answer,
    };
    api.tell(Event::Log { message: format!("{what} is not known: {reason}") });
    Ok(None)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct Object<S> {
    metadata: Named,
    spec: S,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Felix {
    vxlan_enabled: Option<bool>,
    #[serde(rename = "vxlanVNI")]
    vxlan_vni: Option<u32>,
    ipip_enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pool {
    cidr: String,
    #[serde(default)]
    vxlan_mode: String,
    #[serde(default)]
    ipip_mode: String,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    node_selector: String,
    #[serde(default)]
    block_size: u8,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IpamConfig {
    #[serde(default)]
    strict_affinity: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Information {
    #[serde(default)]
    calico_version: String,
}

/// A pool with Calico's defaults where it leaves something open.
fn pool(object: Object<Pool>) -> PoolFacts {
    let spec = object.spec;
    let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
    let block_size = match spec.block_size {
        0 if spec.cidr.contains(':') => 122,
        0 => 26,
        size => size,
    };
    PoolFacts {
        name: object.metadata.name,
        cidr: spec.cidr,
        vxlan_mode: or(spec.vxlan_mode, "Never"),
        ipip_mode: or(spec.ipip_mode, "Never"),
        disabled: spec.disabled,
        node_selector: or(spec.node_selector, "all()"),
        block_size,
    }
}

/// kubeadm keeps its configuration as YAML in a ConfigMap. Dual-stack clusters list two subnets;
/// Windows nodes have no use for the IPv6 one.
fn service_cidrs(api: &Api, map: &ConfigMap) -> Option<Vec<Cidr>> {
    let text = map.data.as_ref()?.get("ClusterConfiguration")?;
    let parsed = serde_yaml::from_str::<serde_json::Value>(text).map_err(|e| e.to_string()).and_then(|c| {
        let subnets = c.pointer("/networking/serviceSubnet").and_then(serde_json::Value::as_str).unwrap_or_default();
        let ipv4 = subnets.split(',').map(str::trim).filter(|s| !s.is_empty() && !s.contains(':'));
        ipv4.map(str::parse).collect::<Result<Vec<Cidr>, _>>()
    });
    parsed
        .inspect_err(|error| {
            let message = format!("the service CIDR is not known: kubeadm-config is not readable: {error}");
            api.tell(Event::Log { message });
        })
        .ok()
}

/// The service's IPv4 address; none for a headless or IPv6-only one.
fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    let spec = service.spec.as_ref()?;
    let all = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    all.filter_map(|ip| ip.parse().ok()).next()
}
