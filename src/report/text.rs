//! Text for people. Piped, it is plain ASCII, a line for each phase; on a terminal the same words with colour, and bars
//! for progress.

use std::time::Duration;

use super::document::{Check, Failure, RunResult};
use super::event::Event;
use super::screen::broken;
use super::time;
use crate::values::count;

/// A duration for people: `0.3s`, `72s`, `4m 05s`.
pub fn took(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1}s")
    } else {
        format!("{}m {:02}s", duration.as_secs() / 60, duration.as_secs() % 60)
    }
}

/// Text from elsewhere (an API server, a file, a service) may contain sequences that move the cursor or recolour the
/// screen, to mislead.
pub fn harmless(text: &str) -> String {
    let seen = |c: char| if c.is_control() && c != '\n' { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(seen).collect()
}

/// Bytes for people.
pub fn bytes(n: u64) -> String {
    indicatif::BinaryBytes(n).to_string()
}

/// A line with the colour of its first word.
pub fn painted(line: &str) -> String {
    let [green, yellow, red] = ["32", "33", "31"];
    let marks = [
        ("[ OK ]", green),
        ("[WARN]", yellow),
        ("[NOTE]", yellow),
        ("[ ?? ]", yellow),
        ("[FAIL]", red),
        ("OVERALL: HEALTHY", green),
        ("OVERALL: DEGRADED", yellow),
        ("OVERALL: CHANGING", yellow),
        ("OVERALL: NOT INSTALLED", yellow),
        ("OVERALL: FAILED", red),
        ("result: OK", green),
        ("result:", yellow),
        ("error:", red),
        ("! ", yellow),
        ("  + ", green),
        ("  ~ ", yellow),
        ("  - ", red),
        ("  -/+ ", yellow),
    ];
    match marks.iter().find(|(mark, _)| line.starts_with(mark)) {
        Some((mark, code)) => format!("\u{1b}[{code}m{mark}\u{1b}[0m{}", &line[mark.len()..]),
        None => line.to_owned(),
    }
}

/// The progress of a transfer, as a line of its own.
pub fn progress(phase: &str, current: u64, total: Option<u64>) -> String {
    match total.filter(|total| *total > 0) {
        Some(total) => {
            let percent = u128::from(current) * 100 / u128::from(total);
            format!("        {phase}: {percent} % of {}", bytes(total))
        }
        None => format!("        {phase}: {}", bytes(current)),
    }
}

/// The line that an event leaves on the screen, if it leaves one. `numbers`: the current phase's
/// place in its list.
pub fn line(event: &Event, numbers: Option<(usize, usize)>, columns: Option<usize>) -> Option<String> {
    let tag = numbers.map_or_else(|| "[ OK ]".into(), |(index, total)| format!("[{index:>2}/{total}]"));
    match event {
        Event::PhaseCompleted { phase, message, took: time, .. } => {
            Some(phase_line(&format!("{tag:<7} {phase:<15} "), message, &took(*time), columns))
        }
        Event::PhaseSkipped { phase, reason } => Some(format!("{:<7} {phase:<15} {reason}", "[SKIP]")),
        Event::PhaseFailed { phase, message } => Some(format!("{:<7} {phase:<15} {message}", "[FAIL]")),
        Event::ConnectivityNotice { message, resume_with } => {
            Some(format!("{:<7} {message}. If this session drops: {resume_with}", "[NOTE]"))
        }
        Event::ConfirmDeadline { deadline, command } => Some(format!(
            "{:<7} The change is live but NOT confirmed. It reverts at {} unless you run: {command}",
            "[NOTE]",
            time::at(*deadline)
        )),
        Event::Warning { id, message } => Some(format!("{:<7} {id}: {message}", "[WARN]")),
        Event::PodBlocked { pod, why, .. } => Some(format!("{:<7} {:<15} {pod}: {why}", "[WAIT]", "drain")),
        Event::RollbackStarted { .. } => Some(format!("{:<7} the change failed and is being rolled back", "[NOTE]")),
        // Verbs print checks and plans as a whole; the rest is for bars, `-v` and the log.
        _ => None,
    }
}

/// The line of a phase in progress, as it fits on the screen, without its time.
pub fn live(phase: &str, numbers: Option<(usize, usize)>, doing: &str, columns: usize) -> String {
    let tag = numbers.map(|(index, total)| format!("[{index:>2}/{total}]")).unwrap_or_default();
    let line = harmless(format!("{tag:<7} {phase:<15} {doing}").trim_end()).replace('\n', " ");
    let dots = "...";
    line.chars().take(columns.saturating_sub(dots.len() + TIME + 1)).chain(dots.chars()).collect()
}

/// What a phase did, and at the end of its first row how long it took.
fn phase_line(start: &str, message: &str, time: &str, columns: Option<usize>) -> String {
    // Where it is broken does not depend on the time, which differs from run to run.
    let rows = match columns.map(|columns| columns.saturating_sub(start.len() + TIME)) {
        Some(room) if message.chars().count() > room => broken(message, room, 0),
        _ => vec![message.to_owned()],
    };
    let (first, rest) = rows.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    // The times of all phases end in one column.
    let end = columns.map_or(TIMES_END, |columns| columns.min(TIMES_END));
    let width = end.saturating_sub(start.len() + first.chars().count() + 1);
    let indent = " ".repeat(start.len());
    rest.iter().fold(format!("{start}{first} {time:>width$}"), |line, row| format!("{line}\n{indent}{row}"))
}

/// Where the times of the phases end, on a screen that is wide enough.
const TIMES_END: usize = 89;
/// The columns of `4m 05s` and the blank before it.
const TIME: usize = 7;

/// The longest list of pods that a screen has room for.
const BOARD_LINES: usize = 8;

/// The progress of a drain, redrawn in place on a terminal: a line, and one for each pod that is blocked or
/// terminating. `(gone, total)`: pods.
pub fn drain_board(
    (gone, total): (usize, usize),
    blocked: &[String],
    ending: &[String],
    elapsed: Duration,
    limit: Option<Duration>,
) -> String {
    let limit = limit.map_or_else(|| "without a limit".into(), |limit| format!("of at most {}", took(limit)));
    let mut board = format!("drain: {gone} of {} deleted ({} {limit})", count(total, "pod"), took(elapsed));
    let held = blocked.iter().map(|pod| format!("\n        held: {pod}"));
    for line in held.chain(ending.iter().map(|pod| format!("\n        {pod}"))).take(BOARD_LINES) {
        board.push_str(&line);
    }
    let more = (blocked.len() + ending.len()).saturating_sub(BOARD_LINES);
    if more > 0 {
        board.push_str(&format!("\n        and {more} more"));
    }
    board
}

/// The block on stderr when a run failed: what, why, the state of the node, what to do.
pub fn failure(failure: &Failure) -> String {
    let mut text = format!("error: {}\n", failure.what);
    let (operations, causes) = failure.operations_and_causes();
    for line in causes.iter().flat_map(|cause| cause.lines()) {
        text.push_str(&format!("  cause: {line}\n"));
    }
    for operation in operations {
        text.push_str(&format!("  step: {operation}\n"));
    }
    // A single one is already in the failure.
    for check in failure.checks.iter().filter(|_| failure.checks.len() > 1) {
        text.push_str(&format!("  {}: {}\n{}", check.id, check.detail, advice(check, "    ")));
    }
    text.push_str(&format!("  state: {}\n", failure.state));
    if let Some(hint) = &failure.hint {
        text.push_str(&format!("  fix: {}\n", hint.replace('\n', "\n       ")));
    }
    text.push_str(&format!("  more: calicoctl-win explain {}\n", failure.id));
    text
}

/// Why a check matters and what to do, each on its own lines.
pub fn advice(check: &Check, indent: &str) -> String {
    let parts = [("why", &check.why), ("fix", &check.fix)].into_iter();
    parts.filter_map(|(word, text)| Some(labelled(indent, word, text.as_ref()?))).collect()
}

/// `word: text`; a text of several lines begins below, so that each line can be copied whole.
fn labelled(indent: &str, word: &str, text: &str) -> String {
    if !text.contains('\n') {
        return format!("{indent}{word}: {text}\n");
    }
    let lines: String = text.lines().map(|line| format!("{indent}  {line}\n")).collect();
    format!("{indent}{word}:\n{lines}")
}

/// The last line of every run.
pub fn result(result: &RunResult) -> String {
    let log = result.log.as_ref().map_or_else(String::new, |log| format!(" log={log}"));
    format!(
        "result: {} (exit {}) changed={} reboot={}{log}",
        result.exit_name, result.exit_code, result.changed, result.reboot_required
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_shows_what_is_held_then_what_still_ends() {
        let held: Vec<String> = (1..=7).map(|n| format!("demo/web-{n}: budget web allows none")).collect();
        let ending =
            ["demo/a has been terminating for 3 s".to_owned(), "demo/b has been terminating for 1 s".to_owned()];
        let limit = Some(Duration::from_secs(300));
        let board = drain_board((1, 10), &held, &ending, Duration::from_secs(5), limit);
        let lines: Vec<&str> = board.lines().collect();
        assert_eq!(lines[0], "drain: 1 of 10 pods deleted (5.0s of at most 5m 00s)");
        assert_eq!(lines[1], "        held: demo/web-1: budget web allows none");
        assert_eq!(lines[8..], ["        demo/a has been terminating for 3 s", "        and 1 more"]);
        assert_eq!(
            drain_board((0, 1), &[], &[], Duration::ZERO, None),
            "drain: 0 of 1 pod deleted (0.0s without a limit)"
        );
    }
}
