//! `preflight`: every check, whether it passed or not; changes nothing, or with `--fix` what it can
//! mend and is allowed to.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::args::Preflight;
use super::status::limit;
use crate::cluster::Cluster;
use crate::config::Layered;
use crate::facts::{ClusterFacts, NodeFacts};
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::{Node, trust};
use crate::preflight::{self, Input, Mend, Scope};
use crate::report::document::{Check, CheckStatus, Failure, PreflightReport, exit_of};
use crate::report::event::Event;
use crate::report::junit;
use crate::report::reporter::Format;
use crate::report::text::advice;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::options::Source;
use crate::run::prepare::{cluster_facts, examine, tell};
use crate::settings::{self, Connection};

/// How long `--wait` lets things be before it looks again.
const PAUSE: Duration = Duration::from_secs(2);

/// One round of looking.
struct Round {
    layered: Layered,
    facts: NodeFacts,
    cluster: Option<(Cluster, ClusterFacts)>,
    report: PreflightReport,
    /// What the checks had to do without: the cluster, or settings that its answers allow.
    failure: Option<anyhow::Error>,
}

impl Round {
    fn is_good(&self) -> bool {
        self.failure.is_none() && preflight::verdict(&self.report).is_ok()
    }
}

pub(crate) fn run(args: &Preflight, app: &mut App) -> Result<Ending> {
    let limit = limit(&args.timeout)?;
    let begun = Instant::now();
    let node = app.node()?;
    let mut round = look(app, &*node)?;
    while args.wait && !round.is_good() && begun.elapsed() < limit {
        app.event(&Event::Waiting { what: "all checks to pass".into(), elapsed: begun.elapsed(), limit });
        std::thread::sleep(PAUSE.min(limit.saturating_sub(begun.elapsed())));
        round = look(app, &*node)?;
    }
    drop(node);
    if args.fix && mend(app, &round)? {
        let node = app.node()?;
        round = look(app, &*node)?;
    }
    tell(app, &round.report);
    show(app, "preflight", &round.report, args.all, round.failure)
}

fn look(app: &mut App, node: &dyn Node) -> Result<Round> {
    let layered = app.config(node, &Source::default(), &[])?;
    let facts = app.measure_for_checks(node, &layered)?;
    let connection = settings::connection(&layered, facts.cloud.as_ref())?;
    // What is wrong with the node is worth knowing also while the cluster does not answer.
    let (cluster, report, failure) = match ask(app, node, &layered, &connection, &facts) {
        Ok((cluster, found)) => {
            let (report, failure) = measured(app, &layered, &facts, &found);
            (Some((cluster, found)), report, failure)
        }
        // That is nothing of the cluster's, and what may not be believed is not to be tried by other means.
        Err(error) if Fault::id_of(&error) == trust::OTHERS_MAY_WRITE => return Err(error),
        Err(error) => {
            let failure = Failure::new(&error);
            let what = failure.why.map_or_else(|| failure.what.clone(), |why| format!("{}: {why}", failure.what));
            let remote_access = layered.config.spec.preflight.remote_access.as_deref().unwrap_or_default();
            let input = Input { node: Some(&facts), cluster_failure: Some(&what), remote_access, ..Input::default() };
            (None, examine(app, &layered, Scope::Everything, &input), Some(error))
        }
    };
    Ok(Round { layered, facts, cluster, report, failure })
}

/// Mends what can be mended, with consent. False when there is nothing to mend.
fn mend(app: &mut App, round: &Round) -> Result<bool> {
    let failed = round.report.checks.iter().filter(|check| check.status == CheckStatus::Fail && !check.ignored);
    let mut mends: Vec<Mend> = failed.filter_map(|check| preflight::mend(&check.id, Some(&round.facts))).collect();
    mends.dedup();
    let patches = match &round.cluster {
        Some((cluster, facts)) if mends.contains(&Mend::ClusterPatches) => {
            cluster.preparation(facts, super::cluster::wishes(&round.layered))?.patches
        }
        _ => Vec::new(),
    };
    mends.retain(|mend| *mend != Mend::ClusterPatches);
    if mends.is_empty() && patches.is_empty() {
        return Ok(false);
    }
    for mend in &mends {
        app.reporter.tell(&format!("  ~   {mend}"));
    }
    if !patches.is_empty() {
        app.reporter.tell(super::cluster::text(&patches).trim_end());
    }
    if app.global.dry_run {
        return Ok(false);
    }
    app.confirm_change("the node and the cluster", "Mend this?")?;
    if let (Some((cluster, _)), false) = (&round.cluster, patches.is_empty()) {
        super::cluster::make(app, cluster, &patches)?;
    }
    if !mends.is_empty() {
        let (mut node, _lock) = app.node_to_change("preflight")?;
        for mend in &mends {
            if let Mend::StartService(name) = mend {
                node.put(&Id::Running(name.clone()), Some(&State::Running)).context("mend what a check found")?;
            }
        }
    }
    Ok(true)
}

fn ask(
    app: &mut App,
    node: &dyn Node,
    layered: &Layered,
    connection: &Connection,
    facts: &NodeFacts,
) -> Result<(Cluster, ClusterFacts)> {
    let cluster = app.cluster(node, connection)?;
    let answer = cluster_facts(&cluster, layered, connection, facts);
    for event in cluster.take_events() {
        app.event(&event);
    }
    Ok((cluster, answer?))
}

/// The report, and why there are no settings where the cluster's answers allow none.
fn measured(
    app: &mut App,
    layered: &Layered,
    node: &NodeFacts,
    cluster: &ClusterFacts,
) -> (PreflightReport, Option<anyhow::Error>) {
    let resolved = settings::resolve(layered, node, Some(cluster));
    let side = settings::cluster_side(layered, node.cloud.as_ref(), cluster);
    let input = Input {
        settings: resolved.as_ref().ok().map(|resolved| &resolved.settings),
        side: Some(&side),
        node: Some(node),
        cluster: Some(cluster),
        cluster_failure: None,
        remote_access: layered.config.spec.preflight.remote_access.as_deref().unwrap_or_default(),
    };
    (examine(app, layered, Scope::Everything, &input), resolved.err())
}

/// Shows a report as the verb's document. `failure` is why it had to do without something; where
/// no check says so, the verb fails with it.
pub(crate) fn show(
    app: &mut App,
    verb: &str,
    report: &PreflightReport,
    all: bool,
    failure: Option<anyhow::Error>,
) -> Result<Ending> {
    let exit = match (preflight::verdict(report), failure) {
        (Ok(()), Some(failure)) => return Err(failure),
        (Ok(()), None) => Exit::Ok,
        (Err(verdict), _) => exit_of(&verdict),
    };
    if app.reporter.format() == Format::Junit {
        app.reporter.raw(&junit::report(&format!("calicoctl-win {verb}"), report));
    } else {
        let text = text(report, all || app.global.verbose > 0, app.global.quiet);
        app.reporter.document("PreflightReport", report, &text);
    }
    Ending::shown(
        exit,
        format!("{} ok, {} warnings, {} failed", report.summary.ok, report.summary.warn, report.summary.fail),
    )
}

/// The report as a person reads it: a line for each group, then what needs a look, failures last. `all`: every
/// check; `quiet`: only what failed.
fn text(report: &PreflightReport, all: bool, quiet: bool) -> String {
    let mut text = String::new();
    let mut groups: Vec<&str> = report.checks.iter().map(|check| check.group.as_str()).collect();
    groups.dedup();
    for group in groups.into_iter().filter(|_| !quiet) {
        let checks: Vec<&Check> = report.checks.iter().filter(|check| check.group == group).collect();
        if all {
            text.push_str(&format!("{group}\n"));
            checks.iter().for_each(|check| text.push_str(&line(check)));
        } else {
            text.push_str(&format!("{group:<12} {}\n", counts(&checks)));
        }
    }
    if !all {
        let mut seen: Vec<&Check> = report.checks.iter().filter(|check| order(check).is_some()).collect();
        seen.sort_by_key(|check| order(check));
        let failed = |check: &&&Check| !quiet || check.status == CheckStatus::Fail && !check.ignored;
        let lines: String = seen.iter().filter(failed).map(|check| line(check)).collect();
        if !text.is_empty() && !lines.is_empty() {
            text.push('\n');
        }
        text.push_str(&lines);
    }
    let everything: Vec<&Check> = report.checks.iter().collect();
    let hint = if all || quiet { "" } else { "  (--all shows each)" };
    text.push_str(&format!("\n{} checks: {}{hint}\n", report.checks.len(), counts(&everything)));
    text
}

/// Where a check is shown when not all are: the worst comes last, next to the prompt.
fn order(check: &Check) -> Option<u8> {
    match check.status {
        CheckStatus::Ok | CheckStatus::Skip => None,
        CheckStatus::Unknown => Some(0),
        CheckStatus::Warn => Some(1),
        CheckStatus::Fail => Some(if check.ignored { 2 } else { 3 }),
    }
}

/// `16 ok, 1 skipped`.
fn counts(checks: &[&Check]) -> String {
    let words = [
        (CheckStatus::Ok, "ok"),
        (CheckStatus::Warn, "warnings"),
        (CheckStatus::Fail, "failed"),
        (CheckStatus::Skip, "skipped"),
        (CheckStatus::Unknown, "without an answer"),
    ];
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let parts = words.into_iter().map(|(status, word)| (count(status), word)).filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, word)| format!("{count} {}", if count == 1 { word.trim_end_matches('s') } else { word }))
        .collect();
    parts.join(", ")
}

fn line(check: &Check) -> String {
    let tag = match check.status {
        CheckStatus::Ok => "[ OK ]",
        CheckStatus::Warn => "[WARN]",
        CheckStatus::Fail if check.ignored => "[IGN ]",
        CheckStatus::Fail => "[FAIL]",
        CheckStatus::Skip => "[SKIP]",
        CheckStatus::Unknown => "[ ?? ]",
    };
    let mut line = format!("{tag} {:<24} {}\n", check.id, check.detail);
    if matches!(check.status, CheckStatus::Warn | CheckStatus::Fail) {
        line.push_str(&advice(check, "         "));
    }
    line
}
