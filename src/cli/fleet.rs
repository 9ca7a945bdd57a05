//! `fleet`: one change on many nodes, made by Kubernetes' DaemonSet controller.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use super::args::{Fleet, FleetChange};
use super::logs::check_endless;
use super::metrics::{check_name, give};
use super::table::{lines, table};
use crate::fault::Exit;
use crate::fleet::{FleetPlan, FleetStatus, FleetVni, PlannedNode, TriedAction, WaveState, WaveStatus, Wishes, told};
use crate::report::document::RunResult;
use crate::report::metrics;
use crate::report::reporter::Format;
use crate::report::time::{minutes, since};
use crate::run::Ending;
use crate::run::app::App;
use crate::run::context::Remote;
use crate::run::fleet::{self, Request};
use crate::run::options::DryRun;
use crate::values::count;

/// Nodes that a line of the screen names; the document has all.
const NAMED: usize = 5;

/// Services that a line of the screen names, with their nodes.
const SERVICES_NAMED: usize = 3;

pub(crate) fn run(verb: &Fleet, app: &mut App) -> Result<Ending> {
    match verb {
        Fleet::Plan(change) => {
            let plan = fleet::prepare(&request(change), app)?.plan;
            app.reporter.document(&plan, &plan_text(&plan));
            let result = RunResult::looked(plan.nodes() > 0, count(plan.nodes(), "node"));
            Ok(Ending::Shown(Box::new(result)))
        }
        Fleet::Apply { change, timeout } => {
            let prepared = fleet::prepare(&request(change), app)?;
            app.reporter.tell(plan_text(&prepared.plan).trim_end());
            let nodes = count(prepared.plan.nodes(), "node");
            if app.global.dry_run == DryRun::Server {
                return try_out(&prepared, app);
            }
            if app.global.is_dry_run() {
                return app.would(format!("change {nodes}"));
            }
            fleet::check_not_paused(&prepared)?;
            app.confirm("the nodes of the cluster", &format!("Make this change on {nodes}?"), None)?;
            let status = fleet::apply(&prepared, timeout.length(), app)?;
            app.done(true, done(&status))
        }
        Fleet::Status { place, watch: true } => watch(&place.namespace, app),
        Fleet::Status { place, watch: false } => {
            let cluster = Remote::open(app, false)?.cluster;
            let status = fleet::look(&cluster, &place.namespace, app)?;
            app.reporter.document(&status, &status_text(&status));
            Ok(Ending::Shown(Box::new(ended(&status))))
        }
        Fleet::Metrics { place, out } => {
            out.as_deref().map_or(Ok(()), check_name)?;
            let cluster = Remote::open(app, false)?.cluster;
            let status = fleet::look(&cluster, &place.namespace, app)?;
            give(&metrics::fleet(&status, Timestamp::now()), out.as_deref(), app)
        }
        Fleet::Pause(place) => pause(&place.namespace, ("pause", "paused"), app),
        Fleet::Resume(place) => pause(&place.namespace, ("resume", "resumed"), app),
        Fleet::Rollback(place) => {
            let cluster = Remote::open(app, false)?.cluster;
            let sets = fleet::sets(&cluster, &place.namespace)?;
            if app.global.is_dry_run() {
                let waves = count(fleet::begun(&sets).count(), "wave");
                return app.would(format!("return {waves} to what it installed before"));
            }
            app.confirm("the nodes of the cluster", "Return the nodes to what was installed before?", None)?;
            let undone = fleet::rollback(&cluster, &place.namespace, &sets)?;
            app.done(true, format!("returned to what was installed before: {}", undone.join(", ")))
        }
    }
}

/// What the API server would do with each object.
fn try_out(prepared: &fleet::Prepared, app: &mut App) -> Result<Ending> {
    let tried = fleet::try_out(prepared, app)?;
    let has = |action: TriedAction| tried.iter().any(|object| object.action == action);
    let msg = format!("dry run of the API server: {}", told(&tried));
    app.reporter.tell(&msg);
    let pending = tried.iter().any(|object| object.action != TriedAction::Unchanged);
    let mut result = RunResult::looked(pending, msg);
    // The server judges nothing in a namespace that does not exist.
    if has(TriedAction::Unknown) && has(TriedAction::Create) {
        let namespaces = tried.iter().filter(|object| object.kind == "Namespace");
        result.next.extend(namespaces.map(|object| format!("kubectl create namespace {}", object.name)));
        result.next.iter().for_each(|next| app.reporter.tell(&format!("next: {next}")));
    }
    Ending::result(result)
}

/// Shows the status until Ctrl-C, each time that it has changed.
fn watch(namespace: &str, app: &mut App) -> Result<Ending> {
    /// A terminal is not drawn more often.
    const PAUSE: Duration = Duration::from_millis(750);
    check_endless(app.reporter.format(), "--watch")?;
    let cluster = Remote::open(app, false)?.cluster;
    let mut shown = None;
    match fleet::watch(&cluster, namespace, app, |status, lost, app| {
        let now = Some((status.clone(), lost.is_some()));
        // Text has the time, and is in place of the previous one.
        if shown == now && app.reporter.format() != Format::Text {
            return;
        }
        let lost = lost.map_or_else(String::new, |lost| format!("{lost}\n"));
        let text = format!("{}\n{lost}\n{}", jiff::Zoned::now().strftime("%F %T %Z"), status_text(status));
        let mut result = ended(status);
        app.record().number(&mut result);
        app.reporter.redraw(status, &text, &result);
        shown = now;
        std::thread::sleep(PAUSE);
    })? {}
}

/// How a look at a rollout ends.
fn ended(status: &FleetStatus) -> RunResult {
    let exit = if status.failures.is_empty() { Exit::Ok } else { Exit::Unhealthy };
    RunResult::new(exit, false, done(status))
}

fn pause(namespace: &str, (word, done): (&str, &str), app: &mut App) -> Result<Ending> {
    let pauses = word == "pause";
    let cluster = Remote::open(app, false)?.cluster;
    let sets = fleet::sets(&cluster, namespace)?;
    if app.global.is_dry_run() {
        return app.would(format!("{word} {}", count(fleet::other(&sets, pauses).count(), "wave")));
    }
    let changed = fleet::pause(&cluster, namespace, &sets, pauses)?;
    let msg = match (changed, pauses) {
        (0, true) => "the rollout is paused already".to_owned(),
        (0, false) => "the rollout is not paused".to_owned(),
        _ => format!("{} {done}", count(changed, "wave")),
    };
    app.done(changed > 0, msg)
}

pub(super) fn request(change: &FleetChange) -> Request {
    Request {
        namespace: change.place.namespace.clone(),
        image: change.image.clone(),
        api_server: change.api_server.clone(),
        max_unavailable: change.max_unavailable,
        wishes: Wishes { canary: change.canary.clone(), zones: zones(&change.zones) },
    }
}

/// As [`Wishes`] has them.
fn zones(given: &[String]) -> Option<Vec<String>> {
    match given {
        [] => None,
        [auto] if auto == "auto" => Some(Vec::new()),
        listed => Some(listed.to_vec()),
    }
}

/// How many nodes have the last revision.
fn done(status: &FleetStatus) -> String {
    let (mut nodes, mut done, mut failed) = (0, 0, 0);
    for wave in &status.waves {
        nodes += wave.nodes;
        failed += wave.failed;
        done += if wave.revision == status.revision { wave.done } else { 0 };
    }
    format!("{done} of {} have revision {}, {failed} failed", count(nodes, "node"), status.revision)
}

/// The plan as text.
fn plan_text(plan: &FleetPlan) -> String {
    let mut lines = vec![format!(
        "{} in {}, about {} (5 minutes for each node): {} as revision {}",
        count(plan.nodes(), "Windows node"),
        count(plan.waves.len(), "wave"),
        minutes(plan.estimate_seconds),
        plan.image,
        plan.revision
    )];
    for (order, wave) in plan.waves.iter().enumerate() {
        lines.push(format!(
            "  {}. {}: {}, {} at once, {} evicted if the change needs a drain, about {}",
            order + 1,
            wave.name,
            count(wave.nodes.len(), "node"),
            wave.at_once,
            count(wave.evicted, "pod"),
            minutes(wave.estimate_seconds)
        ));
        if !wave.nodes.is_empty() {
            let nodes: Vec<String> = wave.loses.iter().map(with_pods).collect();
            lines.push(format!("     {}", first(&nodes, NAMED)));
        }
        lines.extend(services(&wave.loses));
        for blocked in &wave.blocked {
            lines.push(format!("     a drain would fail: {blocked}"));
        }
    }
    if !plan.left_out.is_empty() {
        lines.push(format!("  left out by label: {}", first(&plan.left_out, NAMED)));
    }
    for name in &plan.replaced {
        lines.push(format!("  DaemonSet {name} is deleted first: its nodes are in other waves now"));
    }
    lines.extend(plan.unread.iter().map(|what| format!("! {what}")));
    if let Some(vni) = plan.vni {
        let time = plan.apart_seconds.filter(|seconds| *seconds > 0);
        lines.push(format!(
            "! VNI {vni} is on {} of {}: pods on nodes with different VNIs do not reach each other{}",
            plan.with_vni(),
            count(plan.nodes(), "node"),
            time.map_or_else(String::new, |seconds| format!(", for about {}", minutes(seconds)))
        ));
        if plan.steps.iter().all(|step| step.command.is_none()) {
            lines.push("  FelixConfiguration has it".to_owned());
        }
        lines.push("  they are apart for the shortest time in this order:".to_owned());
    }
    for (order, step) in (1..).zip(&plan.steps) {
        let after = match step.after_seconds {
            0 => "at first".to_owned(),
            seconds => format!("after about {}", minutes(seconds)),
        };
        lines.push(format!("  {order}. {after}: {}", step.what));
        lines.extend(step.command.iter().map(|command| format!("     {command}")));
    }
    lines.join("\n") + "\n"
}

/// A node, and how many pods it loses.
fn with_pods(node: &PlannedNode) -> String {
    match node.evicted {
        0 => node.name.clone(),
        evicted => format!("{} ({})", node.name, count(evicted, "pod")),
    }
}

/// How many Services lose pods on these nodes, and which then have none; none if no Service does.
fn services(loses: &[PlannedNode]) -> Option<String> {
    let (mut all, mut down) = (BTreeSet::new(), Vec::new());
    for node in loses {
        for service in node.services.iter().flatten() {
            all.insert(&service.name);
            down.extend(service.alone.then(|| format!("{} (on {})", service.name, node.name)));
        }
    }
    let down = match down.len() {
        0 => String::new(),
        _ => format!("; left without any until they run elsewhere: {}", first(&down, SERVICES_NAMED)),
    };
    (!all.is_empty()).then(|| format!("     Services that lose pods: {}{down}", all.len()))
}

/// The status as one screen.
fn status_text(status: &FleetStatus) -> String {
    let mut waves = table(["wave", "state", "nodes", "done", "in progress", "failed", "at once", "left"]);
    for wave in &status.waves {
        waves.add_row(row(wave));
    }
    let mut text = format!("fleet {}: revision {}\n{}\n", status.namespace, status.revision, lines(&waves));
    if !status.failures.is_empty() {
        text.push_str("failed:\n");
    }
    for failure in &status.failures {
        let nodes = count(failure.nodes.len(), "node");
        text.push_str(&format!(
            "  {}: {nodes}: {}\n      {}\n",
            failure.id,
            first(&failure.nodes, NAMED),
            failure.what
        ));
    }
    if let Some(vni) = &status.vni {
        text.push_str(&vni_text(vni));
    }
    if !status.changed_since.is_empty() {
        let line = format!("changed since by another run: {}\n", first(&status.changed_since, NAMED));
        text.push_str(&line);
    }
    if !status.uncovered.is_empty() {
        text.push_str(&format!("in no wave: {}\n", first(&status.uncovered, NAMED)));
    }
    if !status.left_out.is_empty() {
        text.push_str(&format!("left out by label: {}\n", first(&status.left_out, NAMED)));
    }
    for next in &status.next {
        text.push_str(&format!("next: {next}\n"));
    }
    text
}

/// Which nodes have which VNI, and for how long they have been apart.
fn vni_text(vni: &FleetVni) -> String {
    let (have, all) = vni.counts();
    let felix = vni.felix.map_or_else(|| "is not known".into(), |felix| format!("has {felix}"));
    let mut text = format!("VNI {}: {have} of {}; FelixConfiguration {felix}\n", vni.wanted, count(all, "node"));
    for of in vni.nodes.iter().filter(|of| of.vni != Some(vni.wanted)) {
        let name = of
            .vni
            .map_or_else(|| "not known: being changed, failed, or changed since".into(), |vni| format!("VNI {vni}"));
        text.push_str(&format!("  {name}: {}: {}\n", count(of.nodes.len(), "node"), first(&of.nodes, NAMED)));
    }
    match (vni.apart_since, vni.apart_seconds.map(minutes)) {
        (Some(from), _) => text.push_str(&format!("  apart since {}\n", since(from))),
        (None, Some(time)) => text.push_str(&format!("  they were apart for {time}\n")),
        (None, None) => {}
    }
    text
}

fn row(wave: &WaveStatus) -> [String; 8] {
    let state = match wave.state {
        WaveState::Waiting => "waiting",
        WaveState::Rolling => "rolling",
        WaveState::Paused => "paused",
        WaveState::Stopped => "stopped",
        WaveState::Done => "done",
    };
    let numbers = [wave.nodes, wave.done, wave.in_progress, wave.failed].map(|number| number.to_string());
    let [nodes, done, in_progress, failed] = numbers;
    let left = wave.eta_seconds.map_or_else(String::new, |seconds| format!("about {}", minutes(seconds)));
    [wave.name.clone(), state.to_owned(), nodes, done, in_progress, failed, wave.max_unavailable.clone(), left]
}

/// `a, b and 3 more`.
fn first(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{FleetFailure, PlannedService, PlannedStep, PlannedWave, VniNodes};
    use crate::values::Vni;

    fn wave(name: &str, state: WaveState, [nodes, done, in_progress, failed]: [usize; 4]) -> WaveStatus {
        WaveStatus {
            name: name.into(),
            daemon_set: format!("calicoctl-win-{name}"),
            revision: "new".into(),
            state,
            nodes,
            done,
            in_progress,
            failed,
            out: in_progress + failed,
            at_once: 2,
            max_unavailable: "2".into(),
            eta_seconds: (state == WaveState::Rolling).then_some(480),
        }
    }

    #[test]
    fn a_screen_has_the_waves_and_the_failed_nodes_by_their_cause() {
        let status = FleetStatus {
            namespace: "fleet".into(),
            revision: "new".into(),
            waves: vec![
                wave("canary", WaveState::Rolling, [5, 1, 1, 1]),
                wave("others", WaveState::Waiting, [2, 2, 0, 0]),
            ],
            failures: vec![FleetFailure {
                id: "ReleaseDigestMismatch".into(),
                what: "the archive is another one".into(),
                nodes: vec!["b".into()],
            }],
            vni: None,
            changed_since: vec!["f".into()],
            uncovered: vec!["h".into()],
            left_out: vec!["i".into()],
            next: vec!["calicoctl-win fleet status --watch".into()],
        };
        insta::assert_snapshot!(status_text(&status), @r"
        fleet fleet: revision new
        wave    state    nodes  done  in progress  failed  at once  left
        canary  rolling  5      1     1            1       2        about 8 min
        others  waiting  2      2     0            0       2
        failed:
          ReleaseDigestMismatch: 1 node: b
              the archive is another one
        changed since by another run: f
        in no wave: h
        left out by label: i
        next: calicoctl-win fleet status --watch
        ");
    }

    #[test]
    fn a_change_of_the_vni_is_shown_by_the_nodes_that_do_not_have_it_yet() {
        let vni = |number: u32| Vni::try_from(number).unwrap();
        let nodes = |vni, names: &[&str]| VniNodes { vni, nodes: names.iter().map(|name| (*name).into()).collect() };
        let mut shown = FleetVni {
            wanted: vni(5000),
            former: Some(vni(4096)),
            felix: Some(4096),
            nodes: vec![nodes(Some(vni(5000)), &["a"]), nodes(Some(vni(4096)), &["c", "d"]), nodes(None, &["b"])],
            apart_since: None,
            apart_seconds: Some(600),
        };
        insta::assert_snapshot!(vni_text(&shown), @r"
        VNI 5000: 1 of 4 nodes; FelixConfiguration has 4096
          VNI 4096: 2 nodes: c, d
          not known: being changed, failed, or changed since: 1 node: b
          they were apart for 10 min
        ");
        shown.apart_since = Some("2026-01-02T15:00:00Z".parse().unwrap());
        assert!(vni_text(&shown).contains("  apart since 2026-01-0"));
    }

    #[test]
    fn a_plan_says_the_waves_what_they_lose_and_how_long_they_take() {
        let planned = |name: &str, nodes: Vec<String>, at_once, evicted, estimate_seconds| PlannedWave {
            name: name.into(),
            at_once,
            evicted,
            blocked: Vec::new(),
            loses: nodes
                .iter()
                .zip([evicted].into_iter().chain(std::iter::repeat(0)))
                .map(|(name, evicted)| PlannedNode {
                    name: name.clone(),
                    evicted,
                    blocked: Vec::new(),
                    services: Some(Vec::new()),
                })
                .collect(),
            nodes,
            estimate_seconds,
        };
        let step = |what: &str, after_seconds, command: Option<&str>| PlannedStep {
            what: what.into(),
            command: command.map(str::to_owned),
            after_seconds,
        };
        let others: Vec<String> = (3..=25).map(|number| format!("node-{number}")).collect();
        let blocked = vec!["node-9: demo/web is under a budget".to_owned()];
        let mut others = planned("others", others, 3, 2, 2400);
        let service = |name: &str, alone| PlannedService { name: name.into(), alone };
        let alone = ["demo/a", "demo/b", "demo/web"].map(|name| service(name, true));
        others.loses[0].services = Some(alone.into());
        others.loses[1].services = Some(vec![service("demo/c", true), service("demo/d", false)]);
        others.loses[2].services = Some(vec![service("demo/d", false)]);
        let mut canary = planned("canary", vec!["node-1".into()], 1, 3, 300);
        canary.loses[0].services = Some(vec![service("demo/d", false)]);
        let plan = FleetPlan {
            namespace: "fleet".into(),
            image: "registry.example.com/calicoctl-win:1".into(),
            revision: "REVISION".into(),
            waves: vec![canary, PlannedWave { blocked, ..others }],
            left_out: vec!["node-2".into()],
            replaced: Vec::new(),
            estimate_seconds: 2700,
            unread: vec!["budgets were not read".into()],
            vni: Some(Vni::try_from(5000).unwrap()),
            vni_nodes: vec![VniNodes { vni: Some(Vni::try_from(5000).unwrap()), nodes: vec!["node-1".into()] }],
            apart_seconds: Some(2400),
            steps: vec![
                step("wave canary begins", 0, None),
                step("VNI 5000 is on 13 of 24 nodes: change it", 1500, Some("kubectl patch")),
            ],
        };
        insta::assert_snapshot!(plan_text(&plan), @"
        24 Windows nodes in 2 waves, about 45 min (5 minutes for each node): registry.example.com/calicoctl-win:1 as revision REVISION
          1. canary: 1 node, 1 at once, 3 pods evicted if the change needs a drain, about 5 min
             node-1 (3 pods)
             Services that lose pods: 1
          2. others: 23 nodes, 3 at once, 2 pods evicted if the change needs a drain, about 40 min
             node-3 (2 pods), node-4, node-5, node-6, node-7 and 18 more
             Services that lose pods: 5; left without any until they run elsewhere: demo/a (on node-3), demo/b (on node-3), demo/web (on node-3) and 1 more
             a drain would fail: node-9: demo/web is under a budget
          left out by label: node-2
        ! budgets were not read
        ! VNI 5000 is on 1 of 24 nodes: pods on nodes with different VNIs do not reach each other, for about 40 min
          they are apart for the shortest time in this order:
          1. at first: wave canary begins
          2. after about 25 min: VNI 5000 is on 13 of 24 nodes: change it
             kubectl patch
        ");
    }
}
