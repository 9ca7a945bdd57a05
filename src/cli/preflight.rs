//! `preflight`: every check, whether it passed or not; changes nothing.

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::args::{Preflight, Source};
use super::prepare::{cluster_facts, examine};
use crate::fault::Exit;
use crate::preflight;
use crate::report::document::{Check, CheckStatus, PreflightReport, exit_of};
use crate::settings;

pub(crate) fn run(_args: &Preflight, app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let layered = app.config(&*node, &Source::default(), &[])?;
    let node_facts = app.measure(&*node, &layered)?;
    let connection = settings::connection(&layered, node_facts.cloud.as_ref())?;
    let cluster = cluster_facts(&app.cluster(&*node, &connection)?, &layered, &connection, &node_facts)?;
    let resolved = settings::resolve(&layered, &node_facts, Some(&cluster))?;
    let report = examine(app, &resolved, &node_facts, &cluster);
    let exit = preflight::verdict(&report).map_or_else(|error| exit_of(&error), |()| Exit::Ok);
    app.reporter.document("PreflightReport", &report, &text(&report));
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
        "\n{} checks: {} ok, {} warnings, {} failed, {} skipped\n",
        report.checks.len(),
        summary.ok,
        summary.warn,
        summary.fail,
        summary.skip + summary.unknown
    ));
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
    if !matches!(check.status, CheckStatus::Ok | CheckStatus::Skip) {
        for (word, text) in [("why", &check.why), ("fix", &check.fix)] {
            if let Some(text) = text {
                line.push_str(&format!("         {word}: {text}\n"));
            }
        }
    }
    line
}
