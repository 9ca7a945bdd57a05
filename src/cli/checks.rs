//! The report of the checks that `preflight` and `cluster check` show.

use anyhow::Result;

use crate::fault::Exit;
use crate::preflight;
use crate::report::document::{Check, CheckStatus, PreflightReport, exit_of};
use crate::report::junit;
use crate::report::reporter::Format;
use crate::report::text::advice;
use crate::run::Ending;
use crate::run::app::App;
use crate::values::count;

/// Shows a report as the verb's document. `failure`: why some checks had no input; if no check reports it, the verb
/// fails with it.
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
        app.reporter.document(report, &text);
    }
    Ending::shown(
        exit,
        format!("{} ok, {}, {} failed", report.summary.ok, count(report.summary.warn, "warning"), report.summary.fail),
    )
}

/// Returns the report as text: a line for each group, then the checks that need attention, failures last. `all`: every
/// check; `quiet`: only failures.
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
        let failed = |check: &&Check| !quiet || check.status == CheckStatus::Fail && !check.ignored;
        let same = |one: &&Check, other: &&Check| {
            one.status == CheckStatus::Unknown && other.status == CheckStatus::Unknown && one.detail == other.detail
        };
        let shown: Vec<&Check> = seen.into_iter().filter(failed).collect();
        let mut lines = String::new();
        for (at, check) in shown.iter().enumerate() {
            // A cluster that does not answer leaves most checks without an answer, for one reason.
            if shown[..at].iter().any(|before| same(before, check)) {
                continue;
            }
            lines.push_str(&line(check));
            let others = shown[at + 1..].iter().filter(|after| same(check, after)).count();
            if others > 0 {
                lines.push_str(&format!("         and {others} more for the same reason\n"));
            }
        }
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

/// Returns the position of a check if not all are shown: the worst comes last, next to the prompt.
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
    let number = |status| checks.iter().filter(|check| check.status == status).count();
    let parts = words.into_iter().map(|(status, word)| (number(status), word)).filter(|(count, _)| *count > 0);
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
