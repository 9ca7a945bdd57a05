//! The state of the node, measured now: what `status` shows.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::app::App;
use super::drift::drift;
use super::verb::{PREPARE, RESUME};
use super::{datastore, records, unrecorded};
use crate::agent::cni_gate;
use crate::agent::trial::Trial;
use crate::agent::{self, Role};
use crate::apply::converge::plan;
use crate::apply::cordon::Cordon;
use crate::apply::joining::lost_login;
use crate::apply::lock::{self, Holder};
use crate::apply::receipt::{About, Prepared, Receipt};
use crate::apply::standing::Standing;
use crate::calico::kubernetes;
use crate::calico::services::is_ours;
use crate::calico::{self, kubeconfig, x509};
use crate::cluster::{Cluster, PodOnNode};
use crate::facts::RuntimeKind;
use crate::fault::Fault;
use crate::item::{Id, State};
use crate::node::{Node, ServiceState};
use crate::plan::Step;
use crate::plan::order::SERVICES;
use crate::report::document::{
    CniStatus, CredentialStatus, KubernetesNode, MixedVni, NetworkStatus, NodeStatus, OnTrial, Overall, Problem,
    RunInProgress, ServiceStatus, VerifyLeft,
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

/// A service is stopped on purpose.
pub(crate) const NOT_STARTED: &str = "ServiceNotStarted";

/// kubelet's login is lost, which only kubelet can make.
pub(crate) const LOGIN_LOST: &str = "KubeletLoginLost";

/// Windows' own service for BGP.
const ROUTING: &str = "RemoteAccess";

/// States of a service without a process.
const DOWN: [&str; 2] = ["Stopped", "Absent"];

/// A service that the config does not start, and that has not failed, is stopped on purpose.
fn allow_what_is_meant(receipt: &Receipt, status: &mut NodeStatus) {
    let left = |name: &str| receipt.target.leave.contains(&Id::Running(name.into()));
    let mut others_down = false;
    for service in status.services.iter().filter(|service| service.state != "Running") {
        let stopped = format!("service {} is stopped", service.name);
        match status.problems.iter_mut().find(|problem| problem.message == stopped).filter(|_| left(&service.name)) {
            Some(problem) => {
                let message =
                    format!("service {} is not started, as the config says (services.start is false)", service.name);
                *problem = Problem { id: NOT_STARTED, message, command: "service start".into() };
            }
            None => others_down = true,
        }
    }
    if status.overall == Overall::Failed && status.run.is_none() && !others_down {
        status.overall = Overall::Degraded;
    }
}

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

pub(crate) const WITHDRAWN: &str = "Withdrawn";

/// Returns why kubelet starts no new pods; none while the CNI configuration is published.
pub(crate) fn no_new_pods(status: &NodeStatus) -> Option<String> {
    let by = match &status.run {
        Some(run) if run.interrupted => "the interrupted run",
        Some(_) => "the run in progress",
        None => "CalicoNode until the network stands",
    };
    match status.cni.as_ref()?.state.as_str() {
        WITHDRAWN => Some(format!("withdrawn by {by}; new pods cannot start")),
        "Missing" if status.generation.is_none() => Some(format!("not published yet by {by}; new pods cannot start")),
        "Missing" => Some("missing; new pods cannot start".into()),
        _ => None,
    }
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

/// Returns Calico's services, and kubelet and kube-proxy if this program runs them.
pub(crate) fn our_services(node: &dyn Node) -> Result<Vec<ServiceStatus>> {
    let ours = |role: &Role| match node.get(&Id::Service(role.service().into())) {
        Ok(Some(State::Service(service))) => is_ours(&service),
        _ => false,
    };
    let kubernetes = kubernetes::ROLES.into_iter().filter(ours).map(Role::service);
    SERVICES.into_iter().chain(kubernetes).map(|name| service(node, name)).collect()
}

/// Returns one of our services, from the Service Control Manager.
pub(crate) fn service(node: &dyn Node, name: &str) -> Result<ServiceStatus> {
    let there = node.get(&Id::Service(name.into()))?.is_some();
    let process = node.process(name)?;
    let state = match node.service_state(name)? {
        None => "Absent",
        // It may have ended between the two questions.
        _ if process.is_none() => "Stopped",
        Some(ServiceState::Stopped) => "Stopped",
        Some(ServiceState::Starting) => "Starting",
        Some(ServiceState::Running) => "Running",
        Some(ServiceState::Stopping) => "Stopping",
        Some(ServiceState::Paused) => "Paused",
    };
    // An agent's report counts while its process is the service's. For a stopped service, its last agent's report says
    // why.
    let role = Role::ALL.into_iter().find(|role| role.service() == name);
    let said = role.and_then(|role| agent::state::read(node, role)).filter(|_| there);
    let live = said.as_ref().filter(|said| process.as_ref().is_some_and(|process| process.pid == said.pid));
    Ok(ServiceStatus {
        name: name.into(),
        state: state.into(),
        pid: process.as_ref().map(|process| process.pid),
        since: process.as_ref().and_then(|process| process.since).or_else(|| live.map(|said| said.since)),
        restarts: live.map(|said| said.restarts),
        waiting_for: live.and_then(|said| said.wait(node.now())),
        // What its log says does not revert a change: a pod that is not yet deleted has no endpoint either.
        not_ready: live.and_then(|said| said.trouble()),
        last_exit: live.and_then(|said| said.last_exit?.code),
        crash_loop: live.is_some_and(|said| said.crash_loop),
        failure: said.as_ref().filter(|_| process.is_none()).and_then(|said| said.failure.clone()),
    })
}

/// Returns details of a service besides its state: `pid 4321, 3 restarts, …`.
pub(crate) fn detail(service: &ServiceStatus) -> String {
    let mut parts: Vec<String> = service.pid.iter().map(|pid| format!("pid {pid}")).collect();
    match service.restarts {
        Some(1) => parts.push("1 restart".into()),
        Some(n) if n > 1 => parts.push(format!("{n} restarts")),
        _ => {}
    }
    if service.crash_loop {
        let code = service.last_exit.map_or_else(String::new, |code| format!(" (exit code {code})"));
        parts.push(format!("crash loop{code}"));
    }
    if let Some(what) = &service.waiting_for {
        parts.push(format!("waits for {what}"));
    } else if service.not_ready.is_some() {
        parts.push("not ready".into());
    }
    parts.join(", ")
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

fn judge(status: &mut NodeStatus) {
    let run = status.run.clone();
    // What ends the run of which this is a part, or what repairs the node.
    let repair = match &run {
        Some(run) if run.interrupted => "resume".to_owned(),
        Some(run) => format!("status --run {} --wait", run.run),
        None => "repair".into(),
    };
    for service in status.services.clone() {
        let ServiceStatus { name, state, .. } = &service;
        let role = Role::ALL.into_iter().find(|role| role.service() == name).map_or("node", Role::word);
        let logs = format!("logs --component {role}");
        // Without a record nothing says that it should run, unless it failed: the table of services shows that it does not.
        let is_recorded = status.generation.is_some() || run.is_some() || service.failure.is_some();
        if state == "Stopped" && is_recorded {
            let why = service.failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            status.problem("ServiceStopped", format!("service {name} is stopped{why}"), &repair);
        } else if ["Starting", "Stopping", "Paused"].contains(&state.as_str()) {
            let message = format!("service {name} is {}", state.to_lowercase());
            status.problem("ServiceNotReady", message, "status --wait");
        }
        if service.crash_loop {
            status.problem("ServiceCrashLoop", format!("{name} is in a crash loop"), logs);
        } else if let Some(what) = &service.waiting_for {
            status.problem("ServiceNotReady", format!("{name} waits for {what}"), logs);
        } else if let Some(why) = &service.not_ready {
            status.problem("ServiceNotReady", format!("{name} is not ready: {why}"), logs);
        }
    }
    for network in status.networks.clone().iter().filter(|network| network.unseen_by_v2) {
        let message = format!(
            "version 2 of HNS does not show the HNS network {}: Calico and kube-proxy do not find it",
            network.name
        );
        status.problem("HnsNetworkUnseen", message, "explain HnsNetworkUnseen");
    }
    if let Some(why) = no_new_pods(status) {
        status.problem("CniConfigAbsent", format!("the CNI configuration is {why}"), &repair);
    }
    if !status.drift.is_empty() {
        let drift = status.drift.join(", ");
        let message = match (&run, status.generation) {
            (Some(_), Some(generation)) => format!("not as generation {generation} has it: {drift}"),
            _ => format!("changed since the last run: {drift}"),
        };
        status.problem("NodeDrifted", message, &repair);
    }
    if let Some(KubernetesNode { name, ready: Some(false), .. }) = status.node.clone() {
        status.problem("NodeNotReady", format!("Node {name} is not Ready"), format!("kubectl describe node {name}"));
    }
    if let Some(OnTrial { from, given_up: Some(why), .. }) = status.trial.clone() {
        let message =
            format!("the change on trial could not be reverted to generation {from} and is not tried any more: {why}");
        status.problem("TrialGivenUp", message, "resume");
        if let Some(KubernetesNode { name, schedulable: Some(false), .. }) = status.node.clone() {
            status.problem("TrialGivenUp", format!("Node {name} stays cordoned"), "resume");
        }
    }
    if let Some(mixed) = status.mixed_vni {
        // A run that waits for the cluster's VNI ends it, in one way or the other.
        let ends = run.is_some().then(|| repair.clone());
        let command = ends.unwrap_or_else(|| match mixed.changed_here {
            // kubectl reads YAML, too (its patch.go: yaml.ToJSON); Windows PowerShell would drop the quotes of JSON.
            true => format!(
                "kubectl patch felixconfigurations default --type=merge -p \"spec: {{vxlanVNI: {}}}\"",
                mixed.node
            ),
            false => to_vni_of_cluster(mixed),
        });
        status.problem("MixedVni", of_mixed_vni(mixed), command);
    }
    if let Some(RunInProgress { run, command, since, interrupted, at }) = run {
        let (id, how) = if interrupted { ("InterruptedRun", "interrupted") } else { ("RunInProgress", "in progress") };
        let at = at.unwrap_or_else(|| format!("{command} (run {run}, since {since:.0})"));
        status.problem(id, format!("{how}: {at}"), repair);
    }
    let interrupted = status.run.as_ref().is_some_and(|run| run.interrupted);
    status.overall = match &status.run {
        Some(run) if !run.interrupted => Overall::Changing,
        _ if interrupted => Overall::Failed,
        _ if status.calico_version.is_none() => Overall::NotInstalled,
        _ if status.services.iter().any(|service| DOWN.contains(&service.state.as_str())) => Overall::Failed,
        _ if status.problems.is_empty() => Overall::Healthy,
        _ => Overall::Degraded,
    };
}

/// Judges a machine that is prepared as an image: its services are disabled, and everything else is as it was prepared.
fn judge_image(
    node: &dyn Node,
    standing: &Standing,
    (image, prepared): (&Receipt, &Prepared),
    status: &mut NodeStatus,
) -> Result<()> {
    status.overall = Overall::Prepared;
    status.calico_version = Some(prepared.calico_version.to_string());
    let has = |name: &str| image.target.world.contains_key(&Id::Service(name.into()));
    status.services.retain(|service| has(&service.name));
    status.drift = drift(node, &plan(node, standing, &image.target)?)?;
    if !status.drift.is_empty() {
        let message = format!("changed since it was prepared: {}", status.drift.join(", "));
        status.problem("NodeDrifted", message, PREPARE.command);
    }
    Ok(())
}

pub(crate) fn of_mixed_vni(MixedVni { node, cluster, .. }: MixedVni) -> String {
    format!("VNI {node} here, {cluster} in FelixConfiguration: pods here reach no pod on nodes with VNI {cluster}")
}

/// The command that gives this node the cluster's VNI.
pub(crate) fn to_vni_of_cluster(mixed: MixedVni) -> String {
    format!("reconfigure --set calicoNetwork.vxlan.vxlanVNI={}", mixed.cluster)
}

/// Whether waiting cannot change the result: the administrator decides about the VNI.
pub(crate) fn settled(status: &NodeStatus) -> bool {
    matches!(status.overall, Overall::Healthy | Overall::NotInstalled | Overall::Prepared) || only_mixed_vni(status)
}

/// Whether the only problem is that the cluster has another VNI.
pub(crate) fn only_mixed_vni(status: &NodeStatus) -> bool {
    status.overall == Overall::Degraded && matches!(status.problems[..], [Problem { id: "MixedVni", .. }])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::apply::lock::Lock;
    use crate::item::{Service, StartType};
    use crate::node::STATE_DIR;
    use crate::node::sandbox::SandboxNode;
    use crate::node::sandbox::model::{Name, NodeService, Pending};

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

    /// A node on which CalicoFelix runs as process 4000, and the report of an agent.
    fn felix(pid: Option<u32>, said: &str) -> (ServiceStatus, Vec<String>) {
        let (service, status) = felix_about(pid, None, said);
        (service, status.problems.into_iter().map(|problem| problem.message).collect())
    }

    /// The same, as it is about to start or stop.
    fn felix_about(pid: Option<u32>, pending: Option<Pending>, said: &str) -> (ServiceStatus, NodeStatus) {
        let dir = TempDir::new().unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        let definition = Service {
            display_name: "Calico Windows Agent".into(),
            description: String::new(),
            image_path: "calicoctl-win.exe service run felix".into(),
            account: "LocalSystem".into(),
            start: StartType::Auto,
            depends_on: Vec::new(),
            restart_after: Vec::new(),
            recovery: None,
            parameters: [].into(),
        };
        node.edit(|model| {
            model
                .services
                .insert(Name::new("CalicoFelix"), NodeService { pending, ..NodeService::new(definition, pid) });
            Ok(())
        })
        .unwrap();
        let folder = node.disk(&WinPath::known(STATE_DIR)).join("agent");
        fs::create_dir_all(&folder).unwrap();
        let since = (node.now() - jiff::SignedDuration::from_millis(12_100)).to_string();
        let mut text = serde_json::json!({
            "role": "felix", "pid": 4000, "since": "2026-01-02T15:04:05Z", "phase": "restarting", "restarts": 5,
            "lastExit": {"code": 7, "at": "2026-01-02T15:04:05Z"}, "crashLoop": false
        });
        let more: serde_json::Value = serde_json::from_str(&format!("{{{}}}", said.replace("SINCE", &since))).unwrap();
        text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(folder.join("felix.json"), text.to_string()).unwrap();
        let service = service(&node, "CalicoFelix").unwrap();
        let mut status = NodeStatus {
            overall: Overall::NotInstalled,
            reasons: Vec::new(),
            problems: Vec::new(),
            generation: None,
            calico_version: Some("v3.32.1".into()),
            backend: None,
            services: vec![service.clone()],
            networks: Vec::new(),
            cni: None,
            credentials: Vec::new(),
            node: None,
            drift: Vec::new(),
            run: None,
            trial: None,
            mixed_vni: None,
            bgp_sessions: None,
            policy_networks: None,
            datastore: None,
            verify_left: None,
        };
        judge(&mut status);
        (service, status)
    }

    const WAITS: &str =
        r#""waitingFor": {"what": "CalicoNode to bring up the network", "since": "SINCE", "limitS": 900}"#;

    #[test]
    fn what_a_service_waits_for_is_shown_with_its_duration() {
        let (service, reasons) = felix(Some(4000), WAITS);
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, waits for CalicoNode to bring up the network (12 s of 900 s)");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix waits for CalicoNode to bring up the network (12 s of 900 s)");
        assert_eq!(service.since.unwrap().to_string(), "2026-01-02T15:04:05Z");
    }

    /// Defect B2: it is not visible that Felix crashes repeatedly.
    #[test]
    fn b2_a_crash_loop_is_shown_as_one() {
        let (service, reasons) = felix(Some(4000), r#""crashLoop": true"#);
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, crash loop (exit code 7)");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is in a crash loop");
    }

    /// While Felix runs and is not in sync, new pods keep the CNI plugin's deny-all.
    #[test]
    fn felix_that_is_not_ready_is_not_healthy() {
        let child = r#""phase": "running", "child": {"pid": 4010, "since": "SINCE"}"#;
        let (service, reasons) = felix(
            Some(4000),
            &format!(r#"{child}, "readiness": {{"notReady": "Felix says that it is not ready (HTTP 503)"}}"#),
        );
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, not ready");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is not ready: Felix says that it is not ready (HTTP 503)");
        assert_eq!(felix(Some(4000), &format!(r#"{child}, "readiness": "ready""#)).1.len(), 0);
    }

    /// Felix calls itself ready while it finds none of the pods' endpoints.
    #[test]
    fn what_only_the_log_of_a_component_says_is_shown() {
        let said = r#""phase": "running", "child": {"pid": 4010, "since": "SINCE"}, "readiness": "ready",
            "logError": "its log repeats: Failed to look up HNS endpoint for workload id=web""#;
        let (_, reasons) = felix(Some(4000), said);
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is not ready: its log repeats: Failed to look up HNS endpoint for workload id=web");
    }

    #[test]
    fn an_agent_that_is_starting_is_not_healthy() {
        let (_, reasons) = felix(Some(4000), r#""phase": "preparing""#);
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is not ready: it is starting");
    }

    /// A service has a process before it has said to the Service Control Manager that it runs.
    #[test]
    fn a_service_with_a_process_runs_only_when_windows_says_so() {
        let ready = r#""phase": "running", "child": {"pid": 4010, "since": "SINCE"}"#;
        let told = |pending| {
            let (service, status) = felix_about(Some(4000), pending, ready);
            format!(
                "{}, {:?}: {}",
                service.state,
                status.overall,
                status.problems.iter().map(|problem| &*problem.message).collect::<Vec<_>>().join("; ")
            )
        };
        insta::assert_snapshot!(told(None), @"Running, Healthy: ");
        insta::assert_snapshot!(told(Some(Pending::Start)), @"Starting, Degraded: service CalicoFelix is starting");
        insta::assert_snapshot!(told(Some(Pending::Stop)), @"Stopping, Degraded: service CalicoFelix is stopping");
    }

    #[test]
    fn a_report_of_another_process_is_ignored() {
        let (service, reasons) = felix(Some(4004), WAITS);
        assert_eq!((detail(&service).as_str(), service.restarts, reasons.len()), ("pid 4004", None, 0));
    }

    #[test]
    fn a_service_that_ended_by_itself_shows_why() {
        let (service, reasons) = felix(None, r#""failure": "services.json is not what install wrote""#);
        assert_eq!(service.state, "Stopped");
        insta::assert_snapshot!(reasons.join("\n"), @"service CalicoFelix is stopped: services.json is not what install wrote");
    }
}
