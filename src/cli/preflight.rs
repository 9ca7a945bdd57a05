//! `preflight`: runs every check and changes nothing; with `--fix`, fixes what it can, with consent.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::args::Preflight;
use super::checks::show;
use super::selftest;
use super::status::limit;
use crate::apply::standing::Standing;
use crate::cluster::Cluster;
use crate::config::Layered;
use crate::facts::{ClusterFacts, NodeFacts};
use crate::fault::Fault;
use crate::item::{Id, State};
use crate::node::{Node, trust};
use crate::preflight::{self, Fix, Input, Scope};
use crate::report::document::{Check, CheckStatus, Failure, PreflightReport};
use crate::report::event::Event;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::checks::{self, examine, tell};
use crate::run::options::Source;
use crate::run::prepare::cluster_facts;
use crate::selftest::report::{RowReport, Verdict};
use crate::selftest::{Ground, Reach};
use crate::settings::{self, RunSettings};

/// The pause between two rounds of `--wait`.
const PAUSE: Duration = Duration::from_secs(2);

/// One round of checks.
struct Round {
    layered: Rc<Layered>,
    facts: NodeFacts,
    cluster: Option<(Cluster, ClusterFacts)>,
    report: PreflightReport,
    /// Why some checks had no input: no cluster, or no settings that its answers allow.
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
    let mut node = app.node()?;
    let mut round = look(app, args, &mut *node)?;
    while args.wait && !round.is_good() && begun.elapsed() < limit {
        app.event(&Event::Waiting { what: "all checks to pass".into(), elapsed: begun.elapsed(), limit });
        std::thread::sleep(PAUSE.min(limit.saturating_sub(begun.elapsed())));
        round = look(app, args, &mut *node)?;
    }
    drop(node);
    if args.fix && fix(app, &round)? {
        let mut node = app.node()?;
        round = look(app, args, &mut *node)?;
    }
    tell(app, &round.report);
    show(app, "preflight", &round.report, args.all, round.failure)
}

fn look(app: &mut App, args: &Preflight, node: &mut dyn Node) -> Result<Round> {
    let mut round = measured(app, &*node)?;
    if args.deep {
        let mut ground = Ground::new(node, selftest::program(app)?, None)?;
        let found = crate::selftest::run(&mut ground, Reach::Reads, &mut |_| ());
        for row in found.rows {
            round.report.add(check(row));
        }
    }
    Ok(round)
}

/// Returns a row of the selftest as a check.
fn check(row: RowReport) -> Check {
    Check {
        status: match row.verdict {
            Verdict::Ok => CheckStatus::Ok,
            Verdict::Fail => CheckStatus::Fail,
            Verdict::Skip => CheckStatus::Skip,
        },
        id: row.id,
        group: "selftest".into(),
        ignored: false,
        detail: row.answered,
        why: Some(row.rests),
        fix: Some("attach the output of: calicoctl-win selftest -o json to a report".into()),
    }
}

fn measured(app: &mut App, node: &dyn Node) -> Result<Round> {
    let layered = app.config(node, &Source::default())?;
    let installed = Standing::load(node).is_ok_and(|standing| standing.receipt().is_some());
    let facts = app.measure_for_checks(node, &layered, installed)?;
    let run = settings::run(&layered, Some(&facts));
    // The node's own checks are useful even if the cluster does not answer.
    let (cluster, report, failure) = match ask(app, node, &layered, &run, &facts) {
        Ok((cluster, found)) => {
            let (side, resolved) = settings::decide(&layered, &facts, Some(&found));
            let report = checks::measured(app, &run, (&side, resolved.as_ref().ok()), &facts, &found);
            // Why there are no settings, if the cluster's answers allow none.
            (Some((cluster, found)), report, resolved.err())
        }
        // This is not the cluster's error, and an untrusted file must not be tried in other ways.
        Err(error) if Fault::id_of(&error) == trust::OTHERS_MAY_WRITE => return Err(error),
        Err(error) => {
            let failure = Failure::new(&error);
            let what = failure.why.map_or_else(|| failure.what.clone(), |why| format!("{}: {why}", failure.what));
            let remote_access = &run.remote_access;
            let input = Input { node: Some(&facts), cluster_failure: Some(&what), remote_access, ..Input::default() };
            (None, examine(app, &run, Scope::Everything, &input), Some(error))
        }
    };
    Ok(Round { layered, facts, cluster, report, failure })
}

/// Fixes what can be fixed automatically, with consent. Returns false if there is nothing to fix.
fn fix(app: &mut App, round: &Round) -> Result<bool> {
    let failed = round.report.checks.iter().filter(|check| check.status == CheckStatus::Fail && !check.ignored);
    let mut fixes: Vec<Fix> = failed.filter_map(|check| preflight::fix(&check.id, Some(&round.facts))).collect();
    fixes.dedup();
    let patches = match &round.cluster {
        Some((cluster, facts)) if fixes.contains(&Fix::ClusterPatches) => {
            cluster.preparation(facts, super::cluster::wishes(&round.layered))?.patches
        }
        _ => Vec::new(),
    };
    fixes.retain(|fix| *fix != Fix::ClusterPatches);
    if fixes.is_empty() && patches.is_empty() {
        return Ok(false);
    }
    for fix in &fixes {
        app.reporter.tell(&format!("  ~   {fix}"));
    }
    if !patches.is_empty() {
        app.reporter.tell(super::cluster::text(&patches).trim_end());
    }
    if app.global.dry_run {
        return Ok(false);
    }
    app.confirm_change("the node and the cluster", "Fix this?")?;
    if let (Some((cluster, _)), false) = (&round.cluster, patches.is_empty()) {
        super::cluster::make(app, cluster, &patches)?;
    }
    if !fixes.is_empty() {
        let (mut node, _lock, _) = app.node_to_change("preflight")?;
        for fix in &fixes {
            if let Fix::StartService(name) = fix {
                node.put(&Id::Running(name.clone()), Some(&State::Running)).context("fix what a check found")?;
            }
        }
    }
    Ok(true)
}

fn ask(
    app: &mut App,
    node: &dyn Node,
    layered: &Layered,
    run: &RunSettings,
    facts: &NodeFacts,
) -> Result<(Cluster, ClusterFacts)> {
    let cluster = app.cluster(node, &run.connection)?;
    let answer = cluster_facts(&cluster, layered, run, facts);
    for event in cluster.take_events() {
        app.event(&event);
    }
    Ok((cluster, answer?))
}
