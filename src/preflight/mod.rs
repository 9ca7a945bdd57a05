//! Checks that decide, before anything is touched, whether an install can work: rows of data, each
//! a pure function of what was measured. All run, all failures are shown at once.

mod cluster;
mod node;

use crate::facts::{ClusterFacts, NodeFacts};
use crate::fault::{Exit, Fault};
use crate::report::document::{Check, CheckStatus, PreflightReport, Summary};
use crate::settings::Settings;

/// What checks look at. None: it was not measured, and checks that need it are skipped.
pub struct Input<'a> {
    pub settings: Option<&'a Settings>,
    pub node: &'a NodeFacts,
    pub cluster: Option<&'a ClusterFacts>,
}

/// How bad a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Stops the run; cannot be ignored. The exit class is the check's own.
    Hard(Exit),
    /// Stops the run unless it is ignored by id.
    Error,
    Warning,
}

/// What a check found.
pub enum Finding {
    Ok(String),
    Fail(String),
    /// The check does not apply here.
    Skip(String),
}

/// One row.
pub struct Row {
    pub id: &'static str,
    pub group: &'static str,
    pub severity: Severity,
    pub why: &'static str,
    pub fix: &'static str,
    pub check: fn(&Input) -> Finding,
}

fn rows() -> impl Iterator<Item = &'static Row> {
    node::ROWS.iter().chain(cluster::ROWS)
}

/// The id of a check as text that lives as long as the program, for events.
pub fn known_id(id: &str) -> &'static str {
    rows().find(|row| row.id == id).map_or("Preflight", |row| row.id)
}

/// Runs every check.
pub fn run(input: &Input, ignored: &[String]) -> PreflightReport {
    let checks: Vec<Check> = rows().map(|row| examine(row, input, ignored)).collect();
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let summary = Summary {
        ok: count(CheckStatus::Ok),
        warn: count(CheckStatus::Warn),
        fail: count(CheckStatus::Fail),
        skip: count(CheckStatus::Skip),
        unknown: count(CheckStatus::Unknown),
    };
    PreflightReport { checks, summary }
}

fn examine(row: &Row, input: &Input, ignored: &[String]) -> Check {
    let (status, detail) = match (row.check)(input) {
        Finding::Ok(detail) => (CheckStatus::Ok, detail),
        Finding::Skip(detail) => (CheckStatus::Skip, detail),
        Finding::Fail(detail) if row.severity == Severity::Warning => (CheckStatus::Warn, detail),
        Finding::Fail(detail) => (CheckStatus::Fail, detail),
    };
    let hard = matches!(row.severity, Severity::Hard(_));
    let named = ignored.iter().any(|id| id.eq_ignore_ascii_case(row.id));
    Check {
        id: row.id.into(),
        group: row.group.into(),
        status,
        ignored: status == CheckStatus::Fail && named && !hard,
        detail,
        why: Some(row.why.into()),
        fix: Some(row.fix.into()),
    }
}

/// Whether a run may go on.
///
/// # Errors
/// One fault that names every failed check; its class is that of the first hard one.
pub fn verdict(report: &PreflightReport) -> anyhow::Result<()> {
    let failed: Vec<&Check> =
        report.checks.iter().filter(|check| check.status == CheckStatus::Fail && !check.ignored).collect();
    let Some(first) = failed.first() else { return Ok(()) };
    let row = |check: &Check| rows().find(|row| row.id == check.id);
    let exit = failed.iter().find_map(|check| match row(check)?.severity {
        Severity::Hard(exit) => Some(exit),
        _ => None,
    });
    let what = match failed.len() {
        1 => first.detail.clone(),
        n => format!(
            "{n} checks failed: {}",
            failed.iter().map(|check| format!("{}: {}", check.id, check.detail)).collect::<Vec<_>>().join("; ")
        ),
    };
    let fix: Vec<&str> = failed.iter().filter_map(|check| check.fix.as_deref()).collect();
    Err(Fault::new(exit.unwrap_or(Exit::PreflightFailed), known_id(&first.id), what).hint(fix.join("; ")).into())
}
