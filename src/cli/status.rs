//! `status`: one screen with the current state, measured now.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::args::Status;
use super::documents::Run;
use super::logs::check_endless;
use super::table::table;
use crate::apply::journal::Journal;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::{NodeStatus, Overall, Problem, RunResult, ServiceStatus, VerifyLeft};
use crate::report::time::at;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::node_status::measure;
use crate::run::records;
use crate::run::service_status::row;
use crate::run::unrecorded;
use crate::run::verdict::{NOT_STARTED, WITHDRAWN, no_new_pods, only_mixed_vni, settled, to_vni_of_cluster};
use crate::values::joined;
use crate::wait::{self, Wait};

/// How often what is waited for is looked at.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) fn run(args: &Status, app: &mut App) -> Result<Ending> {
    if let Some(run) = &args.run {
        return one_run(app, args, run);
    }
    if args.watch {
        return watch(app);
    }
    let limit = if args.wait { args.timeout.length() } else { Duration::ZERO };
    let (mut node, mut last) = (app.node()?, None);
    let wait = Wait { what: Some("the node to be healthy"), limit, pause: LOOK, rest: &mut wait::sleep };
    let healthy = wait_for(app, &mut *node, wait, |app, node| Ok(settled(last.insert(measured(app, node)?))))?;
    let status = last.context("measure the node")?;
    if args.wait && !healthy {
        let why = status.reasons.join("; ");
        app.warn("StatusWaitOver", format!("not healthy within {} s: {why}", limit.as_secs()));
    }
    let text = text(&status, app);
    app.reporter.document(&status, &text);
    Ok(Ending::Shown(Box::new(result(&status, args.wait))))
}

/// Measures the node. If an item cannot be read, `diagnose` has the others.
fn measured(app: &mut App, node: &dyn Node) -> Result<NodeStatus> {
    measure(app, node).map_err(|error| match Fault::of(&error) {
        Some(_) => error,
        None => error.context(
            Fault::new(Exit::Failed, "Failed", "the node could not be measured")
                .hint("collect everything that can be read: calicoctl-win diagnose"),
        ),
    })
}

/// Returns how the verb ends. `waited`: it waited for the node to be healthy.
fn result(status: &NodeStatus, waited: bool) -> RunResult {
    let exit = match status.overall {
        Overall::Healthy => Exit::Ok,
        // A run in progress is a result, but not the one that `--wait` waits for.
        Overall::Changing if !waited => Exit::Ok,
        Overall::Changing | Overall::Degraded | Overall::Failed => Exit::Unhealthy,
        Overall::NotInstalled | Overall::Prepared => Exit::NotInstalled,
    };
    RunResult::new(exit, false, format!("{:?}", status.overall))
}

/// Shows the status repeatedly, until Ctrl-C.
fn watch(app: &mut App) -> Result<Ending> {
    const PAUSE: Duration = Duration::from_secs(2);
    check_endless(app.reporter.format(), "--watch")?;
    loop {
        let node = app.node()?;
        let status = measured(app, &*node)?;
        drop(node);
        let text = format!("{}\n\n{}", jiff::Zoned::now().strftime("%F %T %Z"), text(&status, app));
        let mut result = result(&status, false);
        app.record().number(&mut result);
        app.reporter.redraw(&status, &text, &result);
        std::thread::sleep(PAUSE);
    }
}

/// Waits until something is so, and shows the wait. Returns whether it is.
pub(super) fn wait_for(
    app: &mut App,
    node: &mut dyn Node,
    wait: Wait<'_>,
    mut is_so: impl FnMut(&mut App, &mut dyn Node) -> Result<bool>,
) -> Result<bool> {
    let app = RefCell::new(app);
    let waited = wait.until(node, &mut |event| app.borrow_mut().event(&event), |node, _, _| {
        Ok(if is_so(&mut app.borrow_mut(), node)? { Ok(()) } else { Err(String::new()) })
    })?;
    Ok(waited.is_ok())
}

/// Shows one run: its result, or its progress.
fn one_run(app: &mut App, args: &Status, run: &str) -> Result<Ending> {
    let limit = if args.wait { args.timeout.length() } else { Duration::ZERO };
    let mut node = app.node()?;
    let known = records::find(&*node, run)?;
    let (mut record, mut journal, mut state) = (None, None, "");
    let what = format!("run {run} to end");
    let wait = Wait { what: Some(&what), limit, pause: LOOK, rest: &mut wait::sleep };
    wait_for(app, &mut *node, wait, |_, node| {
        // A run that has just started has not taken the lock yet.
        let starts = records::find(node, run)?.is_some_and(|record| records::is_fresh(&record));
        let active = records::is_active(node, run);
        // After the lock: a run that has released it has written down its result.
        record = records::find(node, run)?;
        if record.as_ref().is_some_and(|record| !record["result"].is_null()) {
            return Ok(true);
        }
        journal = Journal::load(node)?.filter(|journal| journal.header.run == run);
        state = match (active || starts && journal.is_none(), &journal) {
            (true, _) => "running",
            (false, Some(_)) => "interrupted",
            (false, None) if known.is_some() => "lost",
            (false, None) => return Err(records::unknown(run).into()),
        };
        Ok(state != "running")
    })?;
    if let Some(result) = record.as_ref().map(|record| &record["result"]).filter(|result| !result.is_null()) {
        let (code, msg) = (result["exit_code"].as_i64(), result["msg"].as_str().unwrap_or_default());
        let exit = Exit::all().find(|exit| Some(i64::from(exit.code())) == code).unwrap_or(Exit::Failed);
        let body = Run { run: run.into(), state: "ended".into(), at: None, result: Some(result.clone()) };
        let text = format!("run {run} ended: {} (exit {})\n{msg}", exit.name(), exit.code());
        app.reporter.document(&body, &text);
        return Ending::shown(exit, msg);
    }
    let at = journal.as_ref().map(ToString::to_string);
    let body = Run { run: run.into(), state: state.into(), at: at.clone(), result: None };
    let text = format!("run {run}: {state}{}", at.map_or_else(String::new, |at| format!(", {at}")));
    app.reporter.document(&body, &text);
    Ending::shown(if state == "running" && !args.wait { Exit::Ok } else { Exit::Unhealthy }, state)
}

/// Whether a repair would change something: the cause of other problems is not on this machine, or is in its logs.
fn repairs(status: &NodeStatus) -> bool {
    !status.drift.is_empty() || status.services.iter().any(|service| service.state == "Stopped")
}

fn text(status: &NodeStatus, app: &App) -> String {
    let overall = match status.overall {
        Overall::NotInstalled => "NOT INSTALLED".into(),
        overall => format!("{overall:?}").to_uppercase(),
    };
    let mut head = vec![format!("OVERALL: {overall}")];
    if let Some(node) = &status.node {
        head.push(node.name.clone());
    }
    if let (Some(version), Some(backend)) = (&status.calico_version, &status.backend) {
        head.push(format!("Calico {version} ({backend})"));
    } else if let Some(version) = &status.calico_version {
        head.push(format!("Calico {version}"));
    }
    if let Some(generation) = status.generation {
        head.push(format!("generation {generation}"));
    }
    let mut text = head.join("   ") + "\n";
    for (at, Problem { message, command, .. }) in status.problems.iter().enumerate() {
        let same = |other: &Problem| {
            other.message.split_once(": ").zip(message.split_once(": ")).is_some_and(|(a, b)| a.1 == b.1)
        };
        match message.split_once(": ").filter(|_| status.problems[..at].iter().any(same)) {
            Some((what, _)) => text.push_str(&format!("! {what}, for the same reason\n")),
            None => text.push_str(&format!("! {message}\n")),
        }
        // The same command may solve several.
        if status.problems.get(at + 1).is_none_or(|next| next.command != *command) {
            text.push_str(&format!("    {command}\n"));
        }
    }
    let mut table = table(["COMPONENT", "STATE", "DETAIL"]);
    // A service that is absent and required is shown.
    let told = |service: &&ServiceStatus| service.state != "Absent" || status.generation.is_some();
    for service in status.services.iter().filter(told) {
        table.add_row([service.name.clone(), service.state.clone(), row(service)]);
    }
    for network in &status.networks {
        let vsid = network.vsid.map(|vsid| format!("VSID {vsid}"));
        let wanted = network.wanted_vsid.map(|wanted| format!("want {wanted}"));
        let ip = network.management_ip.as_ref().map(|ip| format!("management IP {ip}"));
        let detail = joined([vsid, wanted, ip].into_iter().flatten(), ", ");
        table.add_row([format!("HNS {}", network.name), network.kind.to_string(), detail]);
    }
    for name in status.drift.iter().filter_map(|id| id.strip_prefix("hns-network ")) {
        if !status.networks.iter().any(|network| network.name == name) {
            table.add_row([format!("HNS {name}"), "Missing".into(), String::new()]);
        }
    }
    if let Some(peers) = &status.bgp_sessions {
        let state = if peers.is_empty() { "none" } else { "Established" };
        table.add_row(["BGP sessions".into(), state.to_owned(), joined(peers, ", ")]);
    }
    if let Some(networks) = &status.policy_networks {
        let state = if networks.is_empty() { "not enforced" } else { "enforced" };
        let detail = if networks.is_empty() { String::new() } else { format!("pods on {}", joined(networks, ", ")) };
        table.add_row(["Policy".into(), state.to_owned(), detail]);
    }
    if let Some(cni) = &status.cni {
        let why = no_new_pods(status).filter(|_| cni.state == WITHDRAWN);
        let detail = why.map_or_else(|| cni.conf.clone(), |why| format!("{why}: {}", cni.conf));
        table.add_row(["CNI conf".into(), cni.state.clone(), detail]);
    }
    for credential in &status.credentials {
        let what = if credential.kind == "kubeconfig" { "token" } else { "certificate" };
        let until = credential
            .expires
            .map_or_else(|| "token does not expire".into(), |expires| format!("{what} valid until {}", at(expires)));
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
            |deadline| format!("at {} unless you run: {}", at(deadline), app.command("confirm")),
        );
        text.push_str(&format!("! NOT confirmed: reverts to generation {} {when}\n", trial.from));
    }
    if let Some(VerifyLeft { run, since, command }) = &status.verify_left {
        let what = format!("verify was interrupted (run {run}), {}: its pods may still be in the cluster", at(*since));
        text.push_str(&format!("! {what}\n    {command}\n"));
    }
    let end_it = given_up.map(|command| format!("End it: {command}"));
    let next = match (&status.run, status.overall) {
        (Some(run), _) if run.interrupted => format!("Undo it instead: {}", app.command("resume --undo")),
        (Some(run), _) => format!("Wait for it: {}", app.command(&format!("status --run {} --wait", run.run))),
        (_, Overall::Degraded | Overall::Failed) if status.datastore.is_some() => {
            format!("Fix the datastore first, then look again: {}", app.command("status"))
        }
        _ if only_mixed_vni(status) => match status.mixed_vni.filter(|mixed| mixed.changed_here) {
            Some(mixed) => {
                format!("Or return this node to VNI {}: {}", mixed.cluster, app.command(&to_vni_of_cluster(mixed)))
            }
            None => "Or set spec.vxlanVNI of FelixConfiguration default to this node's.".into(),
        },
        // Its command stands with the problem.
        (_, Overall::Degraded) if status.problems.iter().all(|problem| problem.id == NOT_STARTED) => String::new(),
        (_, Overall::Degraded | Overall::Failed) if repairs(status) => {
            let repair = app.command("repair");
            let told = status.problems.iter().any(|problem| problem.command == repair);
            if told { String::new() } else { format!("Repair it: {repair}") }
        }
        (_, Overall::Degraded | Overall::Failed) => format!("Look closer: {}", app.command("logs")),
        (_, Overall::NotInstalled) if status.has_problem("NotInstalledHere") => {
            let says = |words: &str| status.problems.iter().any(|problem| problem.command == app.command(words));
            let uninstall = app.command("uninstall");
            if says(unrecorded::IMPORT) {
                let (import, install) = (app.command(unrecorded::IMPORT), app.command("install -c node.yaml"));
                format!("Adopt it:\n  {import}\n  {install}\nOr remove it: {uninstall}")
            } else if says(unrecorded::INSTALL) {
                format!("That records it again. Or remove it: {uninstall}")
            } else {
                String::new()
            }
        }
        (_, Overall::Prepared) => format!("Make it a node: {}", app.command("apply -c FILE")),
        (_, Overall::NotInstalled) => format!("Install it: {}", app.command("install")),
        (_, Overall::Healthy) => {
            let cordoned = status.node.as_ref().filter(|node| node.schedulable == Some(false));
            cordoned.map_or_else(String::new, |node| {
                let uncordon = app.command("node uncordon");
                format!("Node {} is cordoned, so no new pods start here. To uncordon it: {uncordon}", node.name)
            })
        }
        _ => String::new(),
    };
    text + &end_it.unwrap_or(next)
}
