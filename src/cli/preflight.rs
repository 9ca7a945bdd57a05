//! `preflight`: every check, whether it passed or not; changes nothing, or with `--fix` what it can
//! mend and is allowed to.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::args::Preflight;
use super::checks::show;
use super::status::limit;
use crate::cluster::Cluster;
use crate::config::Layered;
use crate::facts::{ClusterFacts, NodeFacts};
use crate::fault::Fault;
use crate::item::{Id, State};
use crate::node::{Node, trust};
use crate::preflight::{self, Input, Mend, Scope};
use crate::report::document::{CheckStatus, Failure, PreflightReport};
use crate::report::event::Event;
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
    app.confirm_change("the node and the cluster", "Fix this?")?;
    if let (Some((cluster, _)), false) = (&round.cluster, patches.is_empty()) {
        super::cluster::make(app, cluster, &patches)?;
    }
    if !mends.is_empty() {
        let (mut node, _lock) = app.node_to_change("preflight")?;
        for mend in &mends {
            if let Mend::StartService(name) = mend {
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
