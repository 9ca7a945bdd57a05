//! The state of the node, measured now: what `status` shows.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::app::App;
use super::drift::drift;
use super::service_status::our_services;
use super::verb::RESUME;
use super::verdict::{NOT_STARTED, WITHDRAWN, allow_what_is_meant, judge, judge_image};
use super::{datastore, records, unrecorded};
use crate::agent::cni_gate;
use crate::agent::trial::Trial;
use crate::agent::{self, Role};
use crate::apply::converge::plan;
use crate::apply::cordon::Cordon;
use crate::apply::joining::lost_login;
use crate::apply::lock::{self, Holder};
use crate::apply::receipt::{About, Receipt};
use crate::apply::standing::Standing;
use crate::calico::{self, kubeconfig, x509};
use crate::cluster::{Cluster, PodOnNode};
use crate::facts::RuntimeKind;
use crate::fault::Fault;
use crate::item::{Id, State};
use crate::node::{Node, ServiceState};
use crate::plan::Step;
use crate::report::document::{
    CniStatus, CredentialStatus, KubernetesNode, MixedVni, NetworkStatus, NodeStatus, OnTrial, Overall, RunInProgress,
    ServiceStatus, VerifyLeft,
};
use crate::settings::{self, Backend, Datastore, Limits};
use crate::values::WinPath;
use crate::verify::left::Left;

/// How long the cluster may take to report the Node; status must answer without it too.
const CLUSTER_LIMIT: Duration = Duration::from_secs(5);

/// Measures the node and everything of Calico on it.
///
/// # Errors
/// When the node cannot be measured, or one of our records not read.
pub(crate) fn measure(app: &mut App, node: &dyn Node) -> Result<NodeStatus> {
    let mut standing = Standing::load(node)?;
    let holder = lock::holder(node);
    // A run without the lock may have ended since its journal was read.
    if holder.is_none() && standing.journal.is_some() {
        standing = Standing::load(node)?;
    }
    let run = run_in_progress(node, &standing, holder);
    let receipt = standing.receipt();
    let (networks, stuck) = match networks(node, receipt) {
        Ok(networks) => (networks, None),
        // Everything else is still shown. HNS is not asked again: each question takes half a minute.
        Err(error) if Fault::id_of(&error) == HNS_STUCK => (Vec::new(), Some(error)),
        Err(error) => return Err(error),
    };
    let mut status = NodeStatus {
        overall: Overall::NotInstalled,
        reasons: Vec::new(),
        problems: Vec::new(),
        generation: receipt.map(|receipt| receipt.generation),
        calico_version: None,
        backend: None,
        services: our_services(node)?,
        networks,
        cni: None,
        credentials: Vec::new(),
        node: None,
        drift: Vec::new(),
        run,
        trial: on_trial(app, node)?,
        mixed_vni: None,
        bgp_sessions: None,
        policy_networks: None,
        datastore: None,
        verify_left: interrupted_verify(node)?.map(|Left { run, since, .. }| VerifyLeft {
            run,
            since,
            command: app.command("verify --remove"),
        }),
    };
    if let Some(error) = &stuck {
        status.problem(HNS_STUCK, format!("{error:#}: the node could not be compared"), "explain HnsStuck");
    }
    let (mut steps, mut answer) = (Vec::new(), None);
    if let Some(receipt) = receipt {
        (steps, answer) = fill(app, node, &standing, receipt, &mut status)?;
    }
    let image = standing.image().filter(|_| status.run.is_none());
    if image.is_none()
        && receipt.is_none()
        && standing.journal.is_none()
        && let Some((what, command)) = unrecorded::recognised(node)?
    {
        status.problem("NotInstalledHere", what, command);
    }
    status.cni = cni(node, &standing, &status)?;
    let lost: Vec<String> = cni_gate::lost(node)?.iter().map(ToString::to_string).collect();
    if !lost.is_empty() {
        let reason = format!("pods have lost their network and must be deleted: {}", lost.join(", "));
        status.problem("PodsLostNetwork", reason, "explain PodsLostNetwork");
    }
    match image {
        Some(image) => judge_image(node, &standing, image, &mut status)?,
        None => judge(&mut status),
    }
    if let Some(receipt) = receipt {
        allow_what_is_meant(receipt, &mut status);
        if standing.journal.is_none() {
            try_datastore(app, node, (&steps, answer), &mut status);
        }
    }
    for problem in &mut status.problems {
        if !problem.command.starts_with("kubectl") {
            problem.command = app.command(&problem.command);
        }
    }
    status.reasons = status.problems.iter().map(|problem| problem.message.clone()).collect();
    Ok(status)
}

/// HNS did not answer within its limit.
pub(crate) const HNS_STUCK: &str = "HnsStuck";

/// kubelet's login is lost, which only kubelet can make.
pub(crate) const LOGIN_LOST: &str = "KubeletLoginLost";

/// Windows' own service for BGP.
const ROUTING: &str = "RemoteAccess";

/// A datastore that does not answer cannot be fixed on this node, and a repair would only stop the services that wait
/// for it. `answer`: what the API server has said already.
fn try_datastore(
    app: &mut App,
    node: &dyn Node,
    (steps, answer): (&[Step], Option<Result<()>>),
    status: &mut NodeStatus,
) {
    let amiss = matches!(status.overall, Overall::Degraded | Overall::Failed);
    let only_meant = amiss && status.problems.iter().all(|problem| problem.id == NOT_STARTED);
    // The Kubernetes API has answered about the Node, or is a problem already; etcd was not asked.
    let asked = agent::read_config(node).is_ok_and(|config| config.datastore() == Datastore::Kubernetes);
    if only_meant || !amiss && asked {
        return;
    }
    if let Some(error) = datastore::away(app, node, steps, answer) {
        let starts = |service: &ServiceStatus| service.name == Role::Node.service() && service.waiting_for.is_some();
        let waits = if status.services.iter().any(starts) {
            "CalicoNode waits for Calico's datastore, which"
        } else {
            "Calico's datastore"
        };
        let command = format!("explain {}", Fault::of(&error).map_or("DatastoreAway", |fault| fault.id));
        // A repair would only stop the services that wait for it.
        let repairs = status.problems.iter_mut().filter(|problem| problem.command == "repair");
        repairs.for_each(|problem| problem.command.clone_from(&command));
        status.problem("DatastoreAway", format!("{waits} cannot be used: {error:#}"), command);
        status.datastore = Some(format!("{error:#}"));
        if status.overall == Overall::Healthy {
            status.overall = Overall::Degraded;
        }
    }
}

/// Returns the steps of a repair, and what the API server said to the services' kubeconfig, if it was asked.
fn fill(
    app: &mut App,
    node: &dyn Node,
    standing: &Standing,
    receipt: &Receipt,
    status: &mut NodeStatus,
) -> Result<(Vec<Step>, Option<Result<()>>)> {
    let Some(about) = &receipt.about else { return Ok((Vec::new(), None)) };
    let (mut steps, mut answer) = (Vec::new(), None);
    status.calico_version = Some(about.calico_version.to_string());
    status.backend = Some(about.backend.name().into());
    status.services.retain(|service| {
        service.state != "Absent" || receipt.target.world.contains_key(&Id::Service(service.name.clone()))
    });
    let hns_answers = !status.has_problem(HNS_STUCK);
    let compare = || plan(node, standing, &receipt.target).and_then(|steps| Ok((drift(node, &steps)?, steps)));
    match if hns_answers { compare() } else { Ok(<(Vec<String>, Vec<Step>)>::default()) } {
        Ok((drift, planned)) => (status.drift, steps) = (drift, planned),
        // A run is changing it at this moment, or was interrupted.
        Err(error) if status.run.is_some() => {
            status.problem("NodeNotCompared", format!("the node could not be compared: {error:#}"), "status");
        }
        Err(error) => return Err(error),
    }
    // If it cannot be read, the services have not started with it.
    if about.backend == Backend::None
        && hns_answers
        && let Ok(config) = agent::read_config(node)
        && let Some(pattern) = config.felix.env.get("KUBE_NETWORK")
    {
        let names = || status.networks.iter().map(|network| network.name.as_str());
        let (matched, unmatched) =
            (settings::matched_networks(pattern, names()), settings::unmatched_network(pattern, names()));
        status.policy_networks = Some(matched);
        if let Some(unmatched) = unmatched {
            status.problem("KubeNetwork", unmatched, "explain KubeNetwork");
        }
    }
    if let Some(name) = stopped_runtime(node)? {
        status.problem("RuntimeRunning", format!("the service {name} is stopped: no pod starts"), "preflight --fix");
    }
    if let Some(lost) = lost_login(node, &receipt.target.world) {
        status.problem(LOGIN_LOST, lost, format!("explain {LOGIN_LOST}"));
    }
    if let Some(path) = own_kubeconfig(receipt) {
        let said = credentials(app, node, path, about, status);
        answer =
            said.filter(|_| agent::read_config(node).is_ok_and(|config| config.kubeconfig().as_ref() == Some(path)));
    }
    if let Some(mixed) = &mut status.mixed_vni {
        // The VNIs that the node had before; it may have been changed several times in a row.
        let mut known = standing.receipts.iter().filter_map(|receipt| receipt.about.as_ref());
        mixed.changed_here = known.any(|known| known.backend == Backend::Vxlan && known.vni.get() == mixed.cluster);
    }
    if about.backend == Backend::WindowsBgp {
        status.bgp_sessions = Some(node.bgp_sessions()?);
        if node.service_state(ROUTING)? != Some(ServiceState::Running) {
            let message = format!("service {ROUTING} does not run: Windows routes nothing to pods of other nodes");
            status.problem("RoutingFeature", message, "explain RoutingFeature");
        }
    }
    if let Ok(Datastore::Etcdv3 { tls: Some(tls), .. }) = agent::read_config(node).map(|config| config.datastore()) {
        let text = std::fs::read_to_string(node.disk(&tls.cert_file)).ok();
        if let Some(certificate) = text.and_then(|pem| x509::read(&pem)) {
            let (kind, path) = ("etcd-certificate".into(), tls.cert_file.to_string());
            status.credentials.push(CredentialStatus { kind, path, expires: Some(certificate.not_after) });
        }
    }
    Ok((steps, answer))
}

/// Returns the service of the container runtime, if it is stopped: kubelet reports it only with its next status. A
/// runtime that runs in another service, as RKE2's, has none of these names.
fn stopped_runtime(node: &dyn Node) -> Result<Option<&'static str>> {
    for name in RuntimeKind::ALL.map(RuntimeKind::service) {
        match node.service_state(name) {
            Ok(None) => {}
            Ok(Some(state)) => return Ok((state == ServiceState::Stopped).then_some(name)),
            // A security product may protect it: nothing is known then.
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// The path of the node's own kubeconfig.
fn own_kubeconfig(receipt: &Receipt) -> Option<&WinPath> {
    receipt.target.world.keys().find_map(|id| match id {
        Id::File(path) if path.name() == "calico-kube-config" => Some(path),
        _ => None,
    })
}

/// Asks the cluster, with the node's own kubeconfig, for the pods of this node.
///
/// # Errors
/// When the node has none, or the cluster does not answer soon.
pub(crate) fn pods(app: &App, node: &dyn Node, standing: &Standing) -> Result<Vec<PodOnNode>> {
    let receipt = standing.receipt().filter(|receipt| receipt.about.is_some());
    let path = receipt.and_then(own_kubeconfig).context("find the node's own kubeconfig: Calico is not installed")?;
    let name = standing.node_name().context("find the name of the Node")?;
    let text = std::fs::read_to_string(node.disk(path)).with_context(|| format!("read {path}"))?;
    app.connector.connect(&text, Path::new("."), None, Limits::within(CLUSTER_LIMIT))?.pods_on(name.as_str())
}

/// Returns the CNI configuration that exists now: that of the current generation, or the one that an interrupted first
/// install was about to publish.
fn cni(node: &dyn Node, standing: &Standing, status: &NodeStatus) -> Result<Option<CniStatus>> {
    let run = standing.journal.as_ref().map(|journal| &journal.header.target);
    let Some(target) = standing.receipt().map(|receipt| &receipt.target).or(run) else { return Ok(None) };
    let mut ids = target.world.keys();
    let Some(id @ Id::CniConf(conf)) = ids.find(|id| matches!(id, Id::CniConf(_))) else { return Ok(None) };
    let bin = target.world.keys().find_map(|id| match id {
        Id::File(path) if path.name().eq_ignore_ascii_case("calico.exe") => path.parent(),
        _ => None,
    });
    let bin = bin.map(|bin| bin.to_string()).unwrap_or_default();
    let parts = [conf.to_string(), bin.clone()];
    let drift: Vec<String> =
        status.drift.iter().filter(|id| parts.iter().any(|part| id.contains(part.as_str()))).cloned().collect();
    let was_there = standing.owned().get(id).is_some_and(Option::is_some) || standing.receipt().is_some();
    let state = match node.get(id).with_context(|| format!("look at {id}"))? {
        None if standing.journal.is_some() && was_there => WITHDRAWN,
        None => "Missing",
        // It is kept beside its place until the network is up.
        Some(_) if !node.disk(conf).exists() => WITHDRAWN,
        Some(now) if target.world.get(id) != Some(&now) || !drift.is_empty() => "Drifted",
        Some(_) => "OK",
    };
    Ok(Some(CniStatus { conf: conf.to_string(), bin, state: state.into(), drift }))
}

/// Checks the node's own kubeconfig: when it expires, and what the cluster reports about the node with it. Returns
/// whether the cluster answered, if it was asked.
fn credentials(
    app: &mut App,
    node: &dyn Node,
    path: &WinPath,
    about: &About,
    status: &mut NodeStatus,
) -> Option<Result<()>> {
    let mut answer = None;
    let name = about.node_name.as_str();
    let mut kubernetes = KubernetesNode { name: name.into(), ready: None, schedulable: None };
    if let Ok(text) = std::fs::read_to_string(node.disk(path)) {
        let expires = kubeconfig::parse(&text).ok().and_then(|credentials| credentials.expires);
        status.credentials.push(CredentialStatus { kind: "kubeconfig".into(), path: path.to_string(), expires });
        let cluster = app.connector.connect(&text, Path::new("."), None, Limits::within(CLUSTER_LIMIT));
        let not_asked = |error: &anyhow::Error| format!("the cluster could not be asked: {error:#}");
        match &cluster {
            Err(error) => status.problem("ClusterNotAsked", not_asked(error), "preflight"),
            Ok(cluster) => {
                let hung = app.connector.hung.as_ref().filter(|(server, _)| server == cluster.server());
                let found = hung.map_or_else(|| cluster.node(name), |(_, fault)| Err(fault.clone().into()));
                match &found {
                    Ok(Some(found)) => {
                        ask_calico(node, cluster, about, status);
                        kubernetes.ready = Some(found.ready);
                        kubernetes.schedulable = Some(found.schedulable);
                    }
                    Ok(None) => {
                        status.problem("NodeAbsent", format!("the cluster has no Node {name}"), "kubectl get nodes");
                    }
                    Err(error) => status.problem("ClusterNotAsked", not_asked(error), "preflight"),
                }
                answer = Some(found.map(drop));
            }
        }
        if expires.is_some_and(|expires| expires <= Timestamp::now()) {
            status.problem("TokenExpired", format!("the token in {path} has expired"), "credentials rotate");
        }
        // The agent's own report, with its reason: a running agent tries to renew it.
        if let Some(why) = agent::state::read(node, Role::Node).and_then(|state| state.renewal) {
            status.problem("TokenNotRenewed", why, "credentials rotate");
        }
    }
    status.node = Some(kubernetes);
    answer
}

/// Asks for what Calico has set for the whole cluster, and this node's network needs. What is not answered is left out:
/// `preflight` reports why.
fn ask_calico(node: &dyn Node, cluster: &Cluster, about: &About, status: &mut NodeStatus) {
    // With etcd, it is in etcd and not in the Kubernetes API.
    if about.backend == Backend::None
        || !agent::read_config(node).is_ok_and(|config| config.datastore() == Datastore::Kubernetes)
    {
        return;
    }
    // Pods here then reach no pod of another node.
    let node = about.vni.get();
    if about.backend == Backend::Vxlan
        && let Ok(cluster) = cluster.felix_vni()
        && cluster != node
    {
        status.mixed_vni = Some(MixedVni { node, cluster, changed_here: false });
    }
    if let Ok(false) = cluster.strict_affinity() {
        let message = "IPAM strict affinity is off: Windows does not reach addresses borrowed from other nodes' blocks";
        status.problem("StrictAffinity", message, "preflight --fix");
    }
}

fn on_trial(app: &App, node: &dyn Node) -> Result<Option<OnTrial>> {
    let Some(trial) = Trial::load(node)? else { return Ok(None) };
    let (deadline, interrupted) = (trial.deadline(), trial.is_tried_out() && lock::holder(node).is_none());
    let given_up = trial.given_up.or_else(|| interrupted.then(|| "the last try was interrupted".into()));
    let command = given_up.is_some().then(|| app.command("resume"));
    Ok(Some(OnTrial { deadline, run: trial.run, from: trial.from, given_up, command }))
}

/// Its record is written before the first pod, and removed after the last; a verify in progress holds the lock.
fn interrupted_verify(node: &dyn Node) -> Result<Option<Left>> {
    let left = Left::load(node)?.filter(|left| !left.demo);
    Ok(left.filter(|left| lock::holder(node).is_none_or(|holder| holder.run != left.run)))
}

fn run_in_progress(node: &dyn Node, standing: &Standing, holder: Option<Holder>) -> Option<RunInProgress> {
    let at = standing.journal.as_ref().map(ToString::to_string);
    if let (None, Some(record)) = (&holder, records::starting(node)) {
        let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
        let since = text("since").parse().unwrap_or_else(|_| Timestamp::now());
        return Some(RunInProgress { run: text("run"), command: text("command"), since, interrupted: false, at: None });
    }
    // A trial that was given up is reported separately, for an administrator.
    let given_up = Trial::load(node).ok().flatten().is_some_and(|trial| trial.is_tried_out());
    match (holder, &standing.journal) {
        (Some(holder), _) => Some(RunInProgress {
            at: at.or_else(|| {
                let left = Cordon::load(node).ok().flatten()?;
                // Any other run replaces it.
                let waits = left.awaits.is_some() && (left.run == holder.run || holder.command == RESUME.command);
                waits.then(|| left.to_string())
            }),
            run: holder.run,
            command: holder.command,
            since: holder.since,
            interrupted: false,
        }),
        (None, Some(journal)) => Some(RunInProgress {
            run: journal.header.run.clone(),
            command: journal.header.command.clone(),
            since: journal.header.started,
            interrupted: true,
            at,
        }),
        // The run ended between the cordon and its first change, or after its last.
        (None, None) => Cordon::load(node).ok().flatten().filter(|_| !given_up).map(|cordon| RunInProgress {
            at: Some(cordon.to_string()),
            run: cordon.run,
            command: cordon.command,
            since: cordon.since,
            interrupted: true,
        }),
    }
}

fn networks(node: &dyn Node, receipt: Option<&Receipt>) -> Result<Vec<NetworkStatus>> {
    let mut found = Vec::new();
    for (id, state) in node.list(crate::node::Listing::Networks)? {
        let (Id::Network(name), State::Network(network)) = (id, state) else { continue };
        let calicos =
            [calico::networks::BOOTSTRAP, calico::networks::PODS].iter().any(|own| own.eq_ignore_ascii_case(&name));
        let details = if calicos { node.network_details(&name)? } else { None };
        let wanted_vsid = match receipt.and_then(|receipt| receipt.target.world.get(&Id::Network(name.clone()))) {
            Some(State::Network(wanted)) => wanted.vsid.filter(|_| wanted.vsid != network.vsid),
            _ => None,
        };
        found.push(NetworkStatus {
            kind: network.kind,
            vsid: network.vsid,
            wanted_vsid,
            management_ip: network.management_ip.map(|ip| ip.to_string()),
            adapter: network.adapter,
            unseen_by_v2: details.is_some_and(|details| details.unseen_by_v2),
            name,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::apply::lock::Lock;
    use crate::node::sandbox::SandboxNode;

    #[test]
    fn a_verify_that_holds_the_lock_is_not_interrupted() {
        let dir = TempDir::new().unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        let left = Left { node: "win-a1".into(), run: "a".into(), since: node.now(), demo: false };
        left.save(&mut node).unwrap();
        for (run, interrupted) in [("a", false), ("b", true)] {
            let holder = Holder::of(run, "verify", node.now());
            let _lock = Lock::take(&mut node, &holder, Duration::ZERO, &mut |_| ()).unwrap();
            assert_eq!(interrupted_verify(&node).unwrap().is_some(), interrupted, "{run}");
        }
        assert_eq!(interrupted_verify(&node).unwrap(), Some(left.clone()));
        Left { demo: true, ..left }.save(&mut node).unwrap();
        assert_eq!(interrupted_verify(&node).unwrap(), None);
    }
}
