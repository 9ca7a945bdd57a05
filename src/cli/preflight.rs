//! `preflight`: every check, whether it passed or not; changes nothing.

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::args::{Preflight, Source};
use super::prepare::{cluster_facts, examine};
use crate::cluster::Cluster;
use crate::config::Layered;
use crate::facts::{ClusterFacts, NodeFacts};
use crate::fault::Exit;
use crate::node::Node;
use crate::preflight::{self, Input, Scope};
use crate::report::document::{Check, CheckStatus, Failure, PreflightReport, exit_of};
use crate::settings::{self, Connection};

pub(crate) fn run(_args: &Preflight, app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let layered = app.config(&*node, &Source::default(), &[])?;
    let facts = app.measure(&*node, &layered)?;
    let connection = settings::connection(&layered, facts.cloud.as_ref())?;
    // What is wrong with the node is worth knowing also while the cluster does not answer.
    let (report, failure) = match ask(app, &*node, &layered, &connection, &facts) {
        Ok(cluster) => measured(app, &layered, &facts, &cluster),
        Err(error) => {
            let failure = Failure::new(&error);
            let what = failure.why.map_or_else(|| failure.what.clone(), |why| format!("{}: {why}", failure.what));
            let input = Input { node: Some(&facts), cluster_failure: Some(&what), ..Input::default() };
            (examine(app, &layered, Scope::Everything, &input), Some(error))
        }
    };
    show(app, &report, failure)
}

fn ask(
    app: &mut App,
    node: &dyn Node,
    layered: &Layered,
    connection: &Connection,
    facts: &NodeFacts,
) -> Result<ClusterFacts> {
    let cluster: Cluster = app.cluster(node, connection)?;
    let answer = cluster_facts(&cluster, layered, connection, facts);
    for event in cluster.take_events() {
        app.event(&event);
    }
    answer
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
    };
    (examine(app, layered, Scope::Everything, &input), resolved.err())
}

/// Shows a report as the verb's document. `failure` is why it had to do without something; where
/// no check says so, the verb fails with it.
pub(crate) fn show(app: &mut App, report: &PreflightReport, failure: Option<anyhow::Error>) -> Result<Ending> {
    let exit = match (preflight::verdict(report), failure) {
        (Ok(()), Some(failure)) => return Err(failure),
        (Ok(()), None) => Exit::Ok,
        (Err(verdict), _) => exit_of(&verdict),
    };
    app.reporter.document("PreflightReport", report, &text(report));
    Ending::shown(
        exit,
        format!("{} ok, {} warnings, {} failed", report.summary.ok, report.summary.warn, report.summary.fail),
    )
}

fn text(report: &PreflightReport) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in &report.checks {
        if check.group != group {
            group = &check.group;
            text.push_str(&format!("{group}\n"));
        }
        text.push_str(&line(check));
    }
    let summary = report.summary;
    text.push_str(&format!(
        "\n{} checks: {} ok, {} warnings, {} failed, {} skipped",
        report.checks.len(),
        summary.ok,
        summary.warn,
        summary.fail,
        summary.skip
    ));
    if summary.unknown > 0 {
        text.push_str(&format!(", {} without an answer", summary.unknown));
    }
    text.push('\n');
    text
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
        for (word, text) in [("why", &check.why), ("fix", &check.fix)] {
            if let Some(text) = text {
                line.push_str(&format!("         {word}: {text}\n"));
            }
        }
    }
    line
}
