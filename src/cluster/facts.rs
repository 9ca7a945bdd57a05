//! Measures the cluster, in as few round trips as possible.

mod calico;
mod context;
mod etcd;
mod flannel;
pub(super) mod identity;
mod platforms;
mod policies;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service, ServiceAccount};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use self::calico::{Information, Object, Resources};
use self::context::FactsContext;
pub(super) use self::etcd::POLICIES;
pub use self::etcd::{etcd_blocks_of, read_etcd};
use self::identity::Identity;
use self::platforms::Platforms;
use super::access::{Asked, Needs};
use super::api::{Api, path};
use super::errors::Failure;
use super::kubeconfig::Trust;
use super::reach::unreached;
use super::{Cluster, SERVICE_ACCOUNT, access, node};
use crate::facts::{ApiGroup, ClusterFacts};
use crate::report::event::Event;
use crate::values::Cidr;
use crate::yaml;

/// What the cluster cannot know by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct FactsOptions<'a> {
    /// Name of the Kubernetes Node that this machine is, or will be; none if this is not about a machine.
    pub node_name: Option<&'a str>,
    /// This machine's addresses: they identify its Node if no Node has its name.
    pub addresses: &'a [Ipv4Addr],
    /// The namespace of calico-node, if configured: it is looked for only there, if this user may.
    pub namespace_override: Option<&'a str>,
    /// What the run needs of the cluster: these rights are checked.
    pub needs: Needs<'a>,
    pub checks: Checks,
    /// Whether something of Flannel is on this machine.
    pub flannel: bool,
}

/// What is read that only checks need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checks {
    #[default]
    None,
    /// What is about one node. Each of many nodes would read the whole cluster otherwise.
    OfNode,
    All,
}

impl Cluster {
    /// Measures the cluster. A failed request that decides something is an error; what only checks need is then listed
    /// in [`ClusterFacts::unanswered`].
    ///
    /// # Errors
    /// Faults of the requests; `ClusterRights` when several needed rights are missing.
    pub fn facts(&self, options: &FactsOptions<'_>) -> Result<ClusterFacts> {
        self.runtime.block_on(async {
            let ca_unknown = matches!(self.trust, Trust::Nobody);
            // The Lease is renewed with the same client.
            let own = Arc::new(self.api.within(self.limits.timeout));
            let gathered = gather(&own, options, ca_unknown).await;
            own.settle(!gathered.as_ref().is_err_and(unreached)).await;
            match gathered {
                Ok(facts) => Ok(facts),
                Err(error) => Err(with_all_that_is_missing(&self.api, options, error).await),
            }
        })
    }
}

/// If one right is missing, others may be too: the error names all of them at once.
async fn with_all_that_is_missing(api: &Arc<Api>, options: &FactsOptions<'_>, error: anyhow::Error) -> anyhow::Error {
    let forbidden = error.downcast_ref::<crate::fault::Fault>().is_some_and(|fault| fault.id == "ClusterForbidden");
    if !forbidden {
        return error;
    }
    // Which group serves Calico may not be known yet; those who may read one may usually read the other.
    let asked = Asked {
        group: (!options.needs.etcd).then_some(ApiGroup::V1),
        whole: options.checks == Checks::All,
        namespace: options.namespace_override.unwrap_or(NAMESPACES[0]),
        looking: options.namespace_override.is_none(),
        eks: false,
        ca_unknown: false,
        kubelet: identity::ask(api).await.ok().flatten().is_some_and(|own| own.node().is_some()),
    };
    match access::missing(api, access::rights(&asked, &options.needs)).await {
        Ok(missing) => match access::fault(&missing, &asked) {
            Some(fault) => error.context(fault),
            None => error,
        },
        Err(_) => error,
    }
}

async fn gather(api: &Arc<Api>, options: &FactsOptions<'_>, ca_unknown: bool) -> Result<ClusterFacts> {
    let account = |namespace| path(["api", "v1", "namespaces", namespace, "serviceaccounts", SERVICE_ACCOUNT]);
    // Requests that depend on nothing are made at the same time.
    let version = ask::<Version>(api, "/version".to_owned());
    let old_group = served(api, "crd.projectcalico.org", "v1");
    let new_group = served(api, "projectcalico.org", "v3");
    let looked: &[&str] = options.namespace_override.as_ref().map_or(&NAMESPACES, std::slice::from_ref);
    let candidates = looked.iter().map(|n| (*n, ask::<ServiceAccount>(api, account(n)))).collect();
    let node = options.node_name.map(|name| ask::<Node>(api, path(["api", "v1", "nodes", name])));
    let service_cidrs = ask_all::<Object<ServiceCidr>>(api, path(["apis", "networking.k8s.io", "v1", "servicecidrs"]));
    let kubeadm =
        ask::<ConfigMap>(api, path(["api", "v1", "namespaces", "kube-system", "configmaps", "kubeadm-config"]));
    let dns = ask::<Service>(api, path(["api", "v1", "namespaces", "kube-system", "services", "kube-dns"]));
    let own = ask_identity(api);
    let flannel = options.node_name.filter(|_| options.flannel).map(|name| flannel::Flannel::ask(api, name));

    let version = version.answer().await?.context("find /version on the API server")?;
    let (old_group, new_group) = (old_group.answer().await?, new_group.answer().await?);
    let api_group = calico_group(old_group, new_group);
    let calico = match old_group || new_group {
        _ if options.needs.etcd => None,
        true => Some(Resources::ask(api, api_group, options.checks)),
        false => {
            let message = "the cluster serves no Calico resources: Calico is not installed, or keeps its data in etcd";
            api.report(Event::Warning { id: "CalicoResourcesNotServed", message: message.to_owned() });
            None
        }
    };
    let mut unanswered = Unanswered::default();
    let found = match (find_namespace(candidates).await, options.namespace_override) {
        (Err(failure), Some(named)) => unanswered.may_be("serviceaccounts", Err(failure))?.or(Some(named)),
        (found, _) => found?,
    };
    let account_missing = found.is_none();
    let calico_namespace = found.unwrap_or(looked[0]).to_owned();
    let context = FactsContext::ask(api, &calico_namespace, options.node_name.unwrap_or_default(), options.checks);
    let platforms = Platforms::ask(api, &version.git_version, options.checks != Checks::None);
    let asked = Asked {
        group: calico.is_some().then_some(api_group),
        whole: options.checks == Checks::All,
        namespace: &calico_namespace,
        looking: options.namespace_override.is_none(),
        eks: platforms::is_eks(&version.git_version),
        ca_unknown,
        kubelet: false,
    };
    let node = match node {
        Some(node) => node.answer().await?,
        None => None,
    };
    let flannel = match flannel {
        Some(flannel) => flannel.read(node.as_ref(), &mut unanswered).await?,
        None => None,
    };
    let node = node.map(node::read);
    let with_our_address = match (&node, options.node_name) {
        (None, Some(_)) if options.checks != Checks::None => context::ask_node_with(api, options.addresses),
        _ => None,
    };

    let own = unanswered.may_be("selfsubjectreviews", own.answer().await)?.flatten();
    let kubelet_of = own.as_ref().and_then(|own| own.node().map(str::to_owned));
    let asked = Asked { kubelet: kubelet_of.is_some(), ..asked };
    let rights = access::rights(&asked, &options.needs);
    let service_cidrs = unanswered.may_be("servicecidrs", service_cidrs.answer().await)?.unwrap_or_default();
    let service_cidrs = ipv4_of(service_cidrs);
    let kubeadm = tolerated(api, kubeadm.answer().await, "the service CIDR")?;
    let dns_service = tolerated(api, dns.answer().await, "the cluster's DNS address")?;
    let mut facts = ClusterFacts {
        server: api.server.url.clone(),
        kubernetes_version: version.git_version,
        api_group,
        calico_unserved: calico.is_none(),
        no_account_in: if account_missing { looked.iter().map(|one| (*one).to_owned()).collect() } else { Vec::new() },
        kubelet_of,
        node,
        flannel,
        service_cidrs: match service_cidrs.is_empty() {
            true => kubeadm.and_then(|map| kubeadm_cidrs(api, &map)).unwrap_or_default(),
            false => service_cidrs,
        },
        dns_service_ip: dns_service.as_ref().and_then(cluster_ip),
        ..ClusterFacts::default()
    };
    if let Some(calico) = calico {
        calico.fill(&mut facts, options.node_name.unwrap_or_default(), &mut unanswered).await?;
    }
    context.fill(&mut facts, &mut unanswered).await?;
    platforms.fill(&mut facts, own.as_ref(), &mut unanswered).await?;
    if account_missing && options.namespace_override.is_none() {
        // Asked in a namespace that is not Calico's.
        (facts.host_process, facts.typha) = (None, None);
        for question in ["daemonsets", "deployments"] {
            unanswered.0.insert(question.into(), "Calico's namespace is not known".into());
        }
    }
    if let Some(nodes) = with_our_address {
        let nodes = unanswered.checked("nodes", nodes.answer().await)?;
        facts.node_with_our_address = nodes.and_then(|nodes| context::with_address(nodes, options.addresses));
    }
    let reviewed = match options.checks {
        Checks::None => Err(Failure::not_asked()),
        Checks::OfNode | Checks::All => access::missing(api, rights).await,
    };
    facts.missing_rights = unanswered.checked("selfsubjectaccessreviews", reviewed)?;
    facts.clock_skew = api.clock_skew();
    facts.calico_namespace = calico_namespace;
    facts.unanswered = unanswered.0;
    Ok(facts)
}

/// Questions that may remain unanswered, with the reason.
#[derive(Default)]
struct Unanswered(BTreeMap<String, String>);

impl Unanswered {
    /// The answer, if there is one. "Forbidden" is recorded; a group that is not served has no objects; everything else
    /// is an error.
    fn may_be<T>(&mut self, question: &str, answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if failure.status == Some(403) => {
                self.0.insert(question.to_owned(), failure.fault.what);
                Ok(None)
            }
            Err(failure) if failure.status == Some(404) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The same for what only checks need: an error of the server for one question, or none in time, is recorded too.
    fn checked<T>(&mut self, question: &str, answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match answer {
            Err(failure) if failure.is_of_one_question() => {
                self.0.insert(question.to_owned(), failure.fault.what);
                Ok(None)
            }
            answer => self.may_be(question, answer),
        }
    }
}

/// The namespaces of calico-node: the operator's, and the manifest's.
pub(super) const NAMESPACES: [&str; 2] = ["calico-system", "kube-system"];

/// The namespace that has calico-node's service account.
async fn find_namespace(candidates: Vec<(&str, Question<Option<ServiceAccount>>)>) -> Result<Option<&str>, Failure> {
    for (namespace, account) in candidates {
        match account.answer().await {
            Ok(Some(_)) => return Ok(Some(namespace)),
            Ok(None) => {}
            // "Forbidden" does not mean absent, so the next namespace must not be used.
            Err(mut failure) => {
                if failure.status == Some(403) {
                    let right = failure.fault.hint.take().unwrap_or_default();
                    failure.fault.hint = Some(format!("{right}; or name it in the config: kubernetes.calicoNamespace"));
                }
                return Err(failure);
            }
        }
    }
    Ok(None)
}

/// A pending request; none if it is not made. [`Api::settle`] ends those that nobody awaits.
struct Question<T>(Option<JoinHandle<Result<T, Failure>>>);

impl<T> Question<T> {
    async fn answer(self) -> Result<T, Failure> {
        match self.0 {
            Some(pending) => pending.await.expect("the task does not panic, and nobody aborts it"),
            None => Err(Failure::not_asked()),
        }
    }
}

/// A question of checks: without them it is not asked.
fn if_checked<T>(checks: bool, ask: impl FnOnce() -> Question<T>) -> Question<T> {
    if checks { ask() } else { Question(None) }
}

fn ask<T: DeserializeOwned + Send + 'static>(api: &Arc<Api>, path: String) -> Question<Option<T>> {
    let api = Arc::clone(api);
    Question(Some(tokio::spawn(async move { api.get(&path).await })))
}

fn ask_all<T: DeserializeOwned + Send + 'static>(api: &Arc<Api>, path: String) -> Question<Vec<T>> {
    let api = Arc::clone(api);
    Question(Some(tokio::spawn(async move { api.list(&path).await })))
}

fn ask_metadata<T: DeserializeOwned + Send + 'static>(api: &Arc<Api>, path: String) -> Question<Vec<T>> {
    let api = Arc::clone(api);
    Question(Some(tokio::spawn(async move { api.list_metadata(&path).await })))
}

fn ask_identity(api: &Arc<Api>) -> Question<Option<Identity>> {
    let api = Arc::clone(api);
    Question(Some(tokio::spawn(async move { identity::ask(&api).await })))
}

/// Whether `crd.projectcalico.org/v1` and `projectcalico.org/v3` are served.
pub(super) async fn served_groups(api: &Arc<Api>) -> Result<(bool, bool), Failure> {
    let (old, new) = (served(api, "crd.projectcalico.org", "v1"), served(api, "projectcalico.org", "v3"));
    Ok((old.answer().await?, new.answer().await?))
}

/// The group that has Calico's resources, by its own rule: v3 only without v1.
pub(super) const fn calico_group(old: bool, new: bool) -> ApiGroup {
    if new && !old { ApiGroup::V3 } else { ApiGroup::V1 }
}

/// Whether a version of a group is served.
fn served(api: &Arc<Api>, group: &'static str, version: &'static str) -> Question<bool> {
    let api = Arc::clone(api);
    Question(Some(tokio::spawn(async move {
        let versions = served_versions(&api, group).await?;
        Ok(versions.iter().any(|one| one == version))
    })))
}

/// The versions of a group. Only the server's own "404 page not found" means none.
pub(super) async fn served_versions(api: &Api, group: &str) -> Result<Vec<String>, Failure> {
    match api.get::<Group>(&path(["apis", group])).await {
        Ok(found) => Ok(found.into_iter().flat_map(|g| g.versions).map(|v| v.version).collect()),
        Err(failure) if failure.is_not_served() => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// The release of Calico that the cluster names, by its group; none if it names none.
pub(super) async fn calico_release(api: &Api, group: ApiGroup) -> Result<Option<String>, Failure> {
    let (name, version) = group.parts();
    let found: Option<Object<Information>> =
        api.get(&path(["apis", name, version, "clusterinformations", "default"])).await?;
    Ok(found.map(|found| found.spec.calico_version).filter(|version| !version.is_empty()))
}

/// For optional facts: "not found" and "forbidden" are not errors, everything else is.
fn tolerated<T>(api: &Api, answer: Result<Option<T>, Failure>, what: &str) -> Result<Option<T>, Failure> {
    let reason = match answer {
        Ok(None) => "the cluster does not provide it".to_owned(),
        Err(failure) if matches!(failure.status, Some(403 | 404)) => failure.fault.what,
        answer => return answer,
    };
    api.report(Event::Log { message: format!("{what} is not known: {reason}") });
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
struct ServiceCidr {
    cidrs: Vec<String>,
}

/// Calico on Windows does not use IPv6.
fn ipv4_of(objects: Vec<Object<ServiceCidr>>) -> Vec<Cidr> {
    objects.into_iter().flat_map(|object| object.spec.cidrs).filter_map(|cidr| cidr.parse().ok()).collect()
}

/// kubeadm keeps its configuration as YAML in a ConfigMap. Dual-stack clusters list two subnets; the IPv6 one is
/// skipped.
fn kubeadm_cidrs(api: &Api, map: &ConfigMap) -> Option<Vec<Cidr>> {
    let text = map.data.as_ref()?.get("ClusterConfiguration")?;
    let parsed = yaml::read::<serde_json::Value>(text).map_err(|e| e.to_string()).and_then(|c| {
        let subnets = c.pointer("/networking/serviceSubnet").and_then(serde_json::Value::as_str).unwrap_or_default();
        let ipv4 = subnets.split(',').map(str::trim).filter(|s| !s.is_empty() && !s.contains(':'));
        ipv4.map(str::parse).collect::<Result<Vec<Cidr>, _>>()
    });
    parsed
        .inspect_err(|error| {
            let message = format!("the service CIDR is not known: kubeadm-config is not readable: {error}");
            api.report(Event::Log { message });
        })
        .ok()
}

/// The service's IPv4 address; none for a headless or IPv6-only one.
fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    let spec = service.spec.as_ref()?;
    let all = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    all.filter_map(|ip| ip.parse().ok()).next()
}
