//! `status`: one screen of what is there, measured now.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use serde_json::json;

use super::args::Status;
use crate::agent::published;
use crate::agent::trial::Trial;
use crate::agent::{self, Role};
use crate::apply::converge::plan;
use crate::apply::cordon::Cordon;
use crate::apply::lock;
use crate::apply::receipt::{About, Receipt};
use crate::apply::standing::Standing;
use crate::calico::kubeconfig;
use crate::cluster::Cluster;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::Node;
use crate::plan::Step;
use crate::plan::order::SERVICES;
use crate::report::document::{
    CniStatus, CredentialStatus, KubernetesNode, MixedVni, NetworkStatus, NodeStatus, OnTrial, Overall, RunInProgress,
    ServiceStatus,
};
use crate::report::event::Event;
use crate::report::text::at;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::datastore;
use crate::run::records;
use crate::settings::{Backend, Datastore};
use crate::values::WinPath;

/// How long the cluster may take to say how the node is; status must answer without it too.
const CLUSTER_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Status, app: &mut App) -> Result<Ending> {
    if let Some(run) = &args.run {
        return one_run(app, args, run);
    }
    if args.watch {
        return watch(app);
    }
    let limit = limit(&args.timeout)?;
    let node = app.node()?;
    let begun = Instant::now();
    let mut status = measure(app, &*node)?;
    while args.wait && !settled(&status) {
        if begun.elapsed() >= limit {
            app.warn(
                "StatusWaitOver",
                format!("not healthy within {} s: {}", limit.as_secs(), status.reasons.join("; ")),
            );
            break;
        }
        app.event(&Event::Waiting { what: "the node to be healthy".into(), elapsed: begun.elapsed(), limit });
        std::thread::sleep(Duration::from_millis(250));
        status = measure(app, &*node)?;
    }
    let exit = match status.overall {
        Overall::Healthy => Exit::Ok,
        // A run in progress is an answer, but not the one that was waited for.
        Overall::Changing if !args.wait => Exit::Ok,
        Overall::Changing | Overall::Degraded | Overall::Failed => Exit::Unhealthy,
        Overall::NotInstalled => Exit::NotInstalled,
    };
    let text = text(&status, app);
    app.reporter.document("Status", &status, &text);
    Ending::shown(exit, format!("{:?}", status.overall))
}

/// Shows the status again and again, until Ctrl-C.
fn watch(app: &mut App) -> Result<Ending> {
    const PAUSE: Duration = Duration::from_secs(2);
    loop {
        let node = app.node()?;
        let status = measure(app, &*node)?;
        drop(node);
        let text = format!("{}\n\n{}", jiff::Zoned::now().strftime("%F %T %Z"), text(&status, app));
        app.reporter.redraw("Status", &status, &text);
        std::thread::sleep(PAUSE);
    }
}

pub(super) fn limit(text: &str) -> Result<Duration> {
    let wait: crate::config::types::Wait =
        text.parse().map_err(|why: String| Fault::new(Exit::Usage, "Usage", format!("--timeout: {why}")))?;
    Ok(wait.length())
}

/// What waiting cannot change: of the VNI the administrator decides.
fn settled(status: &NodeStatus) -> bool {
    matches!(status.overall, Overall::Healthy | Overall::NotInstalled) || only_mixed_vni(status)
}

/// Whether nothing is wrong but that the cluster has another VNI.
fn only_mixed_vni(status: &NodeStatus) -> bool {
    status.overall == Overall::Degraded && status.mixed_vni.is_some_and(|mixed| status.reasons == [of_mixed_vni(mixed)])
}

fn measure(app: &mut App, node: &dyn Node) -> Result<NodeStatus> {
    let standing = Standing::load(node)?;
    let run = run_in_progress(node, &standing);
    let receipt = standing.receipt();
    let mut status = NodeStatus {
        overall: Overall::NotInstalled,
        reasons: Vec::new(),
        generation: receipt.map(|receipt| receipt.generation),
        calico_version: None,
        backend: None,
        services: SERVICES.iter().map(|name| service(node, name)).collect::<Result<_>>()?,
        networks: networks(node)?,
        cni: None,
        credentials: Vec::new(),
        node: None,
        drift: Vec::new(),
        run,
        trial: on_trial(app, node)?,
        mixed_vni: None,
        datastore: None,
    };
    let mut steps = Vec::new();
    if let Some(receipt) = receipt {
        steps = fill(app, node, &standing, receipt, &mut status)?;
    }
    status.cni = cni(node, &standing, &status)?;
    let lost: Vec<String> = published::lost(node)?.iter().map(ToString::to_string).collect();
    if !lost.is_empty() {
        let reason = format!("pods have had no network since the boot and must be deleted: {}", lost.join(", "));
        status.reasons.push(reason);
    }
    judge(&mut status);
    if let Some(receipt) = receipt {
        allow_what_is_meant(receipt, &mut status);
        if standing.journal.is_none() {
            try_datastore(app, node, &steps, &mut status);
        }
    }
    Ok(status)
}

const NOT_STARTED: &str = "is not started, as the config says (services.start is false)";

/// A service that the config does not start, and that did not fail either, is stopped on purpose.
fn allow_what_is_meant(receipt: &Receipt, status: &mut NodeStatus) {
    let left = |name: &str| receipt.target.leave.contains(&Id::Running(name.into()));
    let mut others_down = false;
    for service in status.services.iter().filter(|service| service.state != "Running") {
        let stopped = format!("service {} is stopped", service.name);
        match status.reasons.iter_mut().find(|reason| **reason == stopped).filter(|_| left(&service.name)) {
            Some(reason) => *reason = format!("service {} {NOT_STARTED}", service.name),
            None => others_down = true,
        }
    }
    if status.overall == Overall::Failed && status.run.is_none() && !others_down {
        status.overall = Overall::Degraded;
    }
}

/// A datastore that is away is for nobody on this node to fix, and a repair would only stop what waits for it.
fn try_datastore(app: &mut App, node: &dyn Node, steps: &[Step], status: &mut NodeStatus) {
    let amiss = matches!(status.overall, Overall::Degraded | Overall::Failed);
    if !amiss || status.reasons.iter().all(|reason| reason.ends_with(NOT_STARTED)) {
        return;
    }
    if let Some(error) = datastore::away(app, node, steps) {
        let starts = |service: &ServiceStatus| service.name == Role::Node.service() && service.waiting_for.is_some();
        let waits = if status.services.iter().any(starts) {
            "CalicoNode waits for Calico's datastore, which"
        } else {
            "Calico's datastore"
        };
        status.reasons.push(format!("{waits} cannot be used: {error:#}"));
        status.datastore = Some(format!("{error:#}"));
    }
}

/// What is not as it was left. Some of what a repair does is only for the sake of that: it restarts
/// services, and writes our files anew beside a release that it puts back.
fn drift(node: &dyn Node, steps: &[Step]) -> Result<Vec<String>> {
    let mut last: Vec<(&Id, Option<&State>)> = Vec::new();
    for step in steps {
        let (id, after) = match step {
            Step::Put { id, after, .. } => (id, after.as_ref()),
            Step::Await { id, state, .. } => (id, Some(state)),
            Step::Vacate { .. } | Step::Drain { .. } => continue,
        };
        match last.iter_mut().find(|(known, _)| *known == id) {
            Some(known) => known.1 = after,
            None => last.push((id, after)),
        }
    }
    let mut drift = Vec::new();
    for (id, after) in last {
        let is_as_left = matches!(id, Id::Running(_) | Id::File(_) | Id::CniConf(_))
            && node.get(id).with_context(|| format!("look at {id}"))?.as_ref() == after;
        if !is_as_left {
            drift.push(id.to_string());
        }
    }
    Ok(drift)
}

fn fill(
    app: &mut App,
    node: &dyn Node,
    standing: &Standing,
    receipt: &Receipt,
    status: &mut NodeStatus,
) -> Result<Vec<Step>> {
    let Some(about) = &receipt.about else { return Ok(Vec::new()) };
    let mut steps = Vec::new();
    status.calico_version = Some(about.calico_version.to_string());
    status.backend = Some(about.backend.name().into());
    status.services.retain(|service| {
        service.state != "Absent" || receipt.target.world.contains_key(&Id::Service(service.name.clone()))
    });
    match plan(node, standing, &receipt.target).and_then(|steps| Ok((drift(node, &steps)?, steps))) {
        Ok((drift, planned)) => (status.drift, steps) = (drift, planned),
        // A run is changing it at this moment, or was ended in the middle of it.
        Err(error) if status.run.is_some() => status.reasons.push(format!("the node could not be compared: {error:#}")),
        Err(error) => return Err(error),
    }
    let own = receipt.target.world.keys().find_map(|id| match id {
        Id::File(path) if path.name() == "calico-kube-config" => Some(path.clone()),
        _ => None,
    });
    if let Some(path) = own {
        credentials(app, node, &path, about, status);
    }
    Ok(steps)
}

/// The CNI configuration that is there now: what the current generation has, or an interrupted first
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
        // It is kept beside its place until the network stands.
        Some(_) if !node.disk(conf).exists() => WITHDRAWN,
        Some(now) if target.world.get(id) != Some(&now) || !drift.is_empty() => "Drifted",
        Some(_) => "OK",
    };
    Ok(Some(CniStatus { conf: conf.to_string(), bin, state: state.into(), drift }))
}

const WITHDRAWN: &str = "Withdrawn";

/// Why kubelet starts no new pods; none while the CNI configuration is published.
fn no_new_pods(status: &NodeStatus) -> Option<String> {
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

/// The node's own kubeconfig: when it ends, and what the cluster says of the node when asked with it.
fn credentials(app: &mut App, node: &dyn Node, path: &WinPath, about: &About, status: &mut NodeStatus) {
    let name = about.node_name.as_str();
    let mut kubernetes = KubernetesNode { name: name.into(), ready: None, schedulable: None };
    if let Ok(text) = std::fs::read_to_string(node.disk(path)) {
        let expires = kubeconfig::parse(&text).ok().and_then(|credentials| credentials.expires);
        status.credentials.push(CredentialStatus { kind: "kubeconfig".into(), path: path.to_string(), expires });
        let cluster = app.connect(&text, std::path::Path::new("."), None, CLUSTER_LIMIT);
        match cluster.as_ref().map_err(|error| anyhow!("{error:#}")).and_then(|cluster| cluster.node(name)) {
            Ok(Some(found)) => {
                status.mixed_vni = cluster.ok().and_then(|cluster| mixed_vni(node, &cluster, about));
                kubernetes.ready = Some(found.ready);
                kubernetes.schedulable = Some(found.schedulable);
            }
            Ok(None) => status.reasons.push(format!("the cluster has no Node {name}")),
            Err(error) => status.reasons.push(format!("the cluster could not be asked: {error:#}")),
        }
        if expires.is_some_and(|expires| expires <= Timestamp::now()) {
            status.reasons.push(format!("the token in {path} has expired"));
        }
        // What it says itself, with why: an agent that runs tries to renew it.
        status.reasons.extend(agent::state::read(node, Role::Node).and_then(|state| state.renewal));
    }
    status.node = Some(kubernetes);
}

/// The VNI here and elsewhere while they differ: pods here then reach no pod of another node.
fn mixed_vni(node: &dyn Node, cluster: &Cluster, about: &About) -> Option<MixedVni> {
    // With etcd the cluster's is there, and not in the Kubernetes API.
    agent::read_config(node).ok().filter(|config| config.datastore() == Datastore::Kubernetes)?;
    let node = (about.backend == Backend::Vxlan).then_some(about.vni.get())?;
    // Only a hint: a cluster that does not say has its reasons told elsewhere.
    let cluster = cluster.felix_vni().ok()?;
    (node != cluster).then_some(MixedVni { node, cluster })
}

fn on_trial(app: &App, node: &dyn Node) -> Result<Option<OnTrial>> {
    let Some(trial) = Trial::load(node)? else { return Ok(None) };
    let (deadline, interrupted) = (trial.deadline(), trial.is_tried_out() && lock::holder(node).is_none());
    let given_up = trial.given_up.or_else(|| interrupted.then(|| "the last try was interrupted".into()));
    let command = given_up.is_some().then(|| app.command("resume"));
    Ok(Some(OnTrial { deadline, run: trial.run, from: trial.from, given_up, command }))
}

/// One run: how it ended, or where it is.
fn one_run(app: &mut App, args: &Status, run: &str) -> Result<Ending> {
    let limit = limit(&args.timeout)?;
    let node = app.node()?;
    let begun = Instant::now();
    let known = records::find(&*node, run);
    loop {
        let record = records::find(&*node, run);
        if let Some(result) = record.as_ref().map(|record| &record["result"]).filter(|result| !result.is_null()) {
            let (code, msg) = (result["exit_code"].as_i64(), result["msg"].as_str().unwrap_or_default());
            let exit = Exit::all().find(|exit| Some(i64::from(exit.code())) == code).unwrap_or(Exit::Failed);
            let body = json!({ "run": run, "state": "ended", "result": result });
            let text = format!("run {run} ended: {} (exit {})\n{msg}", exit.name(), exit.code());
            app.reporter.document("Run", &body, &text);
            return Ending::shown(exit, msg);
        }
        let journal = Standing::load(&*node)?.journal.filter(|journal| journal.header.run == run);
        let at_it = lock::holder(&*node).is_some_and(|holder| holder.run == run);
        // A run that was only just started has not taken the lock yet.
        let starts = !at_it && journal.is_none() && record.as_ref().is_some_and(records::is_fresh);
        let state = match (at_it || starts, &journal) {
            (true, _) => "running",
            (false, Some(_)) => "interrupted",
            (false, None) if known.is_some() => "lost",
            (false, None) => {
                return Err(Fault::new(Exit::Conflict, "NoSuchRun", format!("nothing is known of a run {run}"))
                    .hint("the newest are in C:\\ProgramData\\calicoctl-win\\logs, a file each")
                    .into());
            }
        };
        let waited = begun.elapsed();
        if state == "running" && args.wait && waited < limit {
            app.event(&Event::Waiting { what: format!("run {run} to end"), elapsed: waited, limit });
            std::thread::sleep(Duration::from_millis(250));
            continue;
        }
        let at = journal.as_ref().map(ToString::to_string);
        let body = json!({ "run": run, "state": state, "at": at, "result": null });
        let text = format!("run {run}: {state}{}", at.map_or_else(String::new, |at| format!(", {at}")));
        app.reporter.document("Run", &body, &text);
        let exit = if state == "running" && !args.wait { Exit::Ok } else { Exit::Unhealthy };
        return Ending::shown(exit, state);
    }
}

fn run_in_progress(node: &dyn Node, standing: &Standing) -> Option<RunInProgress> {
    let at = standing.journal.as_ref().map(ToString::to_string);
    if let (None, Some(record)) = (lock::holder(node), records::starting(node)) {
        let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
        let since = text("since").parse().unwrap_or_else(|_| Timestamp::now());
        return Some(RunInProgress { run: text("run"), command: text("command"), since, interrupted: false, at: None });
    }
    // That one is of people to end, and told by itself.
    let given_up = Trial::load(node).ok().flatten().is_some_and(|trial| trial.is_tried_out());
    match (lock::holder(node), &standing.journal) {
        (Some(holder), _) => Some(RunInProgress {
            run: holder.run,
            command: holder.command,
            since: holder.since,
            interrupted: false,
            at,
        }),
        (None, Some(journal)) => Some(RunInProgress {
            run: journal.header.run.clone(),
            command: journal.header.command.clone(),
            since: journal.header.started,
            interrupted: true,
            at,
        }),
        // It ended between the cordon and its first touch, or after its last.
        (None, None) => Cordon::load(node).ok().flatten().filter(|_| !given_up).map(|cordon| RunInProgress {
            at: Some(format!(
                "{} (run {}, since {:.0}), with node {} cordoned",
                cordon.command, cordon.run, cordon.since, cordon.node
            )),
            run: cordon.run,
            command: cordon.command,
            since: cordon.since,
            interrupted: true,
        }),
    }
}

/// One of our services, as the Service Control Manager has it.
pub(crate) fn service(node: &dyn Node, name: &str) -> Result<ServiceStatus> {
    let there = node.get(&Id::Service(name.into()))?.is_some();
    let process = node.process(name)?;
    let state = match (there, &process) {
        (_, Some(_)) => "Running",
        (true, None) => "Stopped",
        (false, None) => "Absent",
    };
    // What an agent said of itself counts while its process is the service's. A service that is
    // stopped is told why by the agent that was its last.
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
        not_ready: live.and_then(|said| said.not_ready()),
        last_exit: live.and_then(|said| said.last_exit?.code),
        crash_loop: live.is_some_and(|said| said.crash_loop),
        failure: said.as_ref().filter(|_| process.is_none()).and_then(|said| said.failure.clone()),
    })
}

/// What there is to say of a service besides its state: `pid 4321, 3 restarts, …`.
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

fn networks(node: &dyn Node) -> Result<Vec<NetworkStatus>> {
    let networks = node.list(crate::node::Listing::Networks)?;
    Ok(networks
        .into_iter()
        .filter_map(|(id, state)| match (id, state) {
            (Id::Network(name), State::Network(network)) => Some(NetworkStatus {
                name,
                kind: network.kind,
                vsid: network.vsid,
                management_ip: network.management_ip.map(|ip| ip.to_string()),
                adapter: network.adapter,
            }),
            _ => None,
        })
        .collect())
}

fn judge(status: &mut NodeStatus) {
    for service in &status.services {
        if service.state == "Stopped" {
            let why = service.failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            status.reasons.push(format!("service {} is stopped{why}", service.name));
        }
        if service.crash_loop {
            status.reasons.push(format!("{} is in a crash loop: calicoctl-win logs says why", service.name));
        } else if let Some(what) = &service.waiting_for {
            status.reasons.push(format!("{} waits for {what}", service.name));
        } else if let Some(why) = &service.not_ready {
            status.reasons.push(format!("{} is not ready: {why}", service.name));
        }
    }
    if let Some(why) = no_new_pods(status) {
        status.reasons.push(format!("the CNI configuration is {why}"));
    }
    match (&status.run, status.generation) {
        _ if status.drift.is_empty() => {}
        (Some(_), Some(generation)) => {
            status.reasons.push(format!("not as generation {generation} has it: {}", status.drift.join(", ")));
        }
        _ => status.reasons.push(format!("changed since the last run: {}", status.drift.join(", "))),
    }
    if let Some(KubernetesNode { name, ready: Some(false), .. }) = &status.node {
        status.reasons.push(format!("Node {name} is not Ready"));
    }
    if let Some(OnTrial { from, given_up: Some(why), .. }) = &status.trial {
        status.reasons.push(format!(
            "the change on trial could not be reverted to generation {from} and is not tried any more: {why}"
        ));
    }
    if let Some(KubernetesNode { name, schedulable: Some(false), .. }) =
        status.node.as_ref().filter(|_| status.trial.as_ref().is_some_and(|trial| trial.given_up.is_some()))
    {
        status.reasons.push(format!("Node {name} stays cordoned"));
    }
    if let Some(mixed) = status.mixed_vni {
        status.reasons.push(of_mixed_vni(mixed));
    }
    let interrupted = status.run.as_ref().is_some_and(|run| run.interrupted);
    if let Some(RunInProgress { run, command, since, interrupted, at }) = &status.run {
        let how = if *interrupted { "interrupted" } else { "in progress" };
        let at = at.clone().unwrap_or_else(|| format!("{command} (run {run}, since {since:.0})"));
        status.reasons.push(format!("{how}: {at}"));
    }
    status.overall = match &status.run {
        Some(run) if !run.interrupted => Overall::Changing,
        _ if interrupted => Overall::Failed,
        _ if status.calico_version.is_none() => Overall::NotInstalled,
        _ if status.services.iter().any(|service| service.state != "Running") => Overall::Failed,
        _ if status.reasons.is_empty() => Overall::Healthy,
        _ => Overall::Degraded,
    };
}

fn of_mixed_vni(MixedVni { node, cluster }: MixedVni) -> String {
    format!("VNI {node} here, {cluster} in FelixConfiguration: pods here reach none of nodes with VNI {cluster}")
}

/// Whether a repair would do something: for what else is amiss the cause is not on this machine, or in
/// its logs.
fn repairs(status: &NodeStatus) -> bool {
    !status.drift.is_empty() || status.services.iter().any(|service| service.state == "Stopped")
}

fn text(status: &NodeStatus, app: &App) -> String {
    let mut head = vec![format!("OVERALL: {}", format!("{:?}", status.overall).to_uppercase())];
    if let Some(node) = &status.node {
        head.push(node.name.clone());
    }
    if let (Some(version), Some(backend)) = (&status.calico_version, &status.backend) {
        head.push(format!("Calico {version} ({backend})"));
    }
    if let Some(generation) = status.generation {
        head.push(format!("generation {generation}"));
    }
    let mut text = head.join("   ") + "\n";
    for reason in &status.reasons {
        text.push_str(&format!("! {reason}\n"));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["COMPONENT", "STATE", "DETAIL"]);
    // One that is absent and is wanted is told.
    let told = |service: &&ServiceStatus| service.state != "Absent" || status.generation.is_some();
    for service in status.services.iter().filter(told) {
        table.add_row([service.name.clone(), service.state.clone(), detail(service)]);
    }
    for network in &status.networks {
        let vsid = network.vsid.map_or_else(String::new, |vsid| format!(", VSID {vsid}"));
        let ip = network.management_ip.as_ref().map_or_else(String::new, |ip| format!(", management IP {ip}"));
        table.add_row(["HNS network".into(), network.name.clone(), format!("{}{vsid}{ip}", network.kind)]);
    }
    for name in status.drift.iter().filter_map(|id| id.strip_prefix("hns-network ")) {
        if !status.networks.iter().any(|network| network.name == name) {
            table.add_row(["HNS network", name, "missing"]);
        }
    }
    if let Some(cni) = &status.cni {
        let why = no_new_pods(status).filter(|_| cni.state == WITHDRAWN);
        let detail = why.map_or_else(|| cni.conf.clone(), |why| format!("{why}: {}", cni.conf));
        table.add_row(["CNI conf".into(), cni.state.clone(), detail]);
    }
    for credential in &status.credentials {
        let until = credential
            .expires
            .map_or_else(|| "token does not expire".into(), |expires| format!("token valid until {expires:.0}"));
        table.add_row(["Credentials".into(), credential.kind.clone(), until]);
    }
    if let Some(node) = &status.node {
        let word = |value: Option<bool>, yes: &str, no: &str| {
            value.map_or_else(|| "unknown".into(), |value| if value { yes.into() } else { no.to_owned() })
        };
        let schedulable = word(node.schedulable, "schedulable", "cordoned");
        table.add_row(["K8s Node".into(), word(node.ready, "Ready", "NotReady"), schedulable]);
    }
    if table.row_count() > 0 {
        for line in table.to_string().lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    let given_up = status.trial.as_ref().and_then(|trial| trial.command.clone());
    if let Some(trial) = status.trial.as_ref().filter(|_| given_up.is_none()) {
        let when = trial.deadline.map_or_else(
            || "unless its run ends well".into(),
            |deadline| format!("at {} unless you run: {}", at(deadline, Timestamp::now()), app.command("confirm")),
        );
        text.push_str(&format!("! NOT confirmed: reverts to generation {} {when}\n", trial.from));
    }
    let end_it = given_up.map(|command| format!("End it: {command}"));
    let next = match (&status.run, status.overall) {
        (Some(run), _) if run.interrupted => {
            format!("Finish: {}      Undo: {}", app.command("resume"), app.command("resume --undo"))
        }
        (Some(run), _) => format!("Wait for it: {}", app.command(&format!("status --run {} --wait", run.run))),
        (_, Overall::Degraded) if status.reasons.iter().all(|reason| reason.ends_with(NOT_STARTED)) => {
            format!("Start it: {}", app.command("service start"))
        }
        (_, Overall::Degraded | Overall::Failed) if status.datastore.is_some() => {
            format!("Fix the datastore first, then look again: {}", app.command("status"))
        }
        _ if only_mixed_vni(status) => {
            let cluster = status.mixed_vni.map_or(0, |mixed| mixed.cluster);
            let back = app.command(&format!("reconfigure --set calicoNetwork.vxlan.vxlanVNI={cluster}"));
            format!("Set spec.vxlanVNI of FelixConfiguration default to this node's, or change this node: {back}")
        }
        (_, Overall::Degraded | Overall::Failed) if repairs(status) => {
            format!("Put it right: {}", app.command("repair"))
        }
        (_, Overall::Degraded | Overall::Failed) => format!("Look closer: {}", app.command("logs")),
        (_, Overall::NotInstalled) => format!("Install it: {}", app.command("install")),
        _ => String::new(),
    };
    text + &end_it.unwrap_or(next)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::item::{Service, StartType};
    use crate::node::STATE_DIR;
    use crate::node::sandbox::SandboxNode;
    use crate::node::sandbox::model::{Name, NodeService};

    /// A node on which CalicoFelix runs as process 4000, and what an agent said of itself.
    fn felix(pid: Option<u32>, said: &str) -> (ServiceStatus, Vec<String>) {
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
            parameters: [].into(),
        };
        node.edit(|model| {
            model.services.insert(Name::new("CalicoFelix"), NodeService { definition, pid, stop_seconds: 1 });
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
            datastore: None,
        };
        judge(&mut status);
        (service, status.reasons)
    }

    const WAITS: &str =
        r#""waitingFor": {"what": "CalicoNode to bring up the network", "since": "SINCE", "limitS": 900}"#;

    #[test]
    fn what_a_service_waits_for_is_shown_with_how_long() {
        let (service, reasons) = felix(Some(4000), WAITS);
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, waits for CalicoNode to bring up the network (12 s of 900 s)");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix waits for CalicoNode to bring up the network (12 s of 900 s)");
        assert_eq!(service.since.unwrap().to_string(), "2026-01-02T15:04:05Z");
    }

    /// Defect B2: nobody sees that Felix crashes again and again.
    #[test]
    fn b2_a_crash_loop_is_called_one() {
        let (service, reasons) = felix(Some(4000), r#""crashLoop": true"#);
        insta::assert_snapshot!(detail(&service), @"pid 4000, 5 restarts, crash loop (exit code 7)");
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is in a crash loop: calicoctl-win logs says why");
    }

    /// A Felix that lives and is not in sync leaves new pods with the CNI plugin's deny-all.
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

    #[test]
    fn an_agent_that_is_starting_is_not_healthy() {
        let (_, reasons) = felix(Some(4000), r#""phase": "preparing""#);
        insta::assert_snapshot!(reasons.join("\n"), @"CalicoFelix is not ready: it is starting");
    }

    #[test]
    fn what_another_process_said_counts_no_more() {
        let (service, reasons) = felix(Some(4004), WAITS);
        assert_eq!((detail(&service).as_str(), service.restarts, reasons.len()), ("pid 4004", None, 0));
    }

    #[test]
    fn a_service_that_ended_by_itself_says_why() {
        let (service, reasons) = felix(None, r#""failure": "services.json is not what install wrote""#);
        assert_eq!(service.state, "Stopped");
        insta::assert_snapshot!(reasons.join("\n"), @"service CalicoFelix is stopped: services.json is not what install wrote");
    }
}
