//! Text for people. Piped it is plain ASCII, a line for each phase; on a terminal the same words
//! with colour, and bars while something moves.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::document::{Check, Failure, RunResult};
use super::event::Event;

/// A duration as people say it: `0.3s`, `72s`, `4m 05s`.
pub fn took(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1}s")
    } else {
        format!("{}m {:02}s", duration.as_secs() / 60, duration.as_secs() % 60)
    }
}

/// A time to come as people read it: on their own clock, in UTC, and how long it is until then.
pub fn at(time: Timestamp, now: Timestamp) -> String {
    let local = time.to_zoned(TimeZone::system()).strftime("%H:%M:%S %Z");
    let left = Duration::try_from(time.duration_since(now)).unwrap_or_default();
    format!("{local} ({time:.0}, in {})", took(Duration::from_secs(left.as_secs())))
}

/// Text from elsewhere (an API server, a file, a service) may hold what moves the cursor or recolours
/// the screen, and so shows what is not so.
pub fn harmless(text: &str) -> String {
    let seen = |c: char| if c.is_control() && c != '\n' { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(seen).collect()
}

/// Bytes as people say them.
pub fn bytes(n: u64) -> String {
    indicatif::BinaryBytes(n).to_string()
}

/// A line with the colour of what it begins with.
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
        ("OVERALL: NOTINSTALLED", yellow),
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

/// How far a transfer is, as a line of its own.
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
pub fn line(event: &Event, numbers: Option<(usize, usize)>) -> Option<String> {
    let tag = numbers.map_or_else(|| "[ OK ]".into(), |(index, total)| format!("[{index:>2}/{total}]"));
    match event {
        Event::PhaseCompleted { phase, message, took: time, .. } => {
            Some(format!("{tag:<7} {phase:<15} {message:<58} {:>6}", took(*time)).trim_end().to_owned())
        }
        Event::PhaseSkipped { phase, reason } => Some(format!("{:<7} {phase:<15} {reason}", "[SKIP]")),
        Event::PhaseFailed { phase, message } => Some(format!("{:<7} {phase:<15} {message}", "[FAIL]")),
        Event::ConnectivityNotice { message, resume_with } => {
            Some(format!("{:<7} {message}. If this session drops: {resume_with}", "[NOTE]"))
        }
        Event::ConfirmDeadline { deadline, command } => Some(format!(
            "{:<7} The change is live but NOT confirmed. It reverts at {} unless you run: {command}",
            "[NOTE]",
            at(*deadline, Timestamp::now())
        )),
        Event::Warning { id, message } => Some(format!("{:<7} {id}: {message}", "[WARN]")),
        Event::PodBlocked { pod, why, .. } => Some(format!("{:<7} {:<15} {pod}: {why}", "[WAIT]", "drain")),
        Event::RollbackStarted { .. } => Some(format!("{:<7} the change failed and is being rolled back", "[NOTE]")),
        // Checks and plans are shown as a whole by their verbs.
        Event::RunStarted { .. }
        | Event::Checked(_)
        | Event::Planned(_)
        | Event::PlanMade { .. }
        | Event::RollbackCompleted { .. }
        | Event::PhaseStarted { .. }
        | Event::Progress { .. }
        | Event::Waiting { .. }
        | Event::PodEvicted { .. }
        | Event::PodGone { .. }
        | Event::DrainProgress { .. }
        | Event::Log { .. } => None,
    }
}

/// The longest list of blocked pods that a screen has room for.
const BOARD_LINES: usize = 8;

/// How far a drain is, redrawn in place on a terminal: a line, and one for each pod that is held.
pub fn drain_board(
    gone: usize,
    total: usize,
    blocked: &[String],
    elapsed: Duration,
    limit: Option<Duration>,
) -> String {
    let limit = limit.map_or_else(|| "without a limit".into(), |limit| format!("of at most {}", took(limit)));
    let mut board = format!("drain: {gone} of {total} pods are gone ({} {limit})", took(elapsed));
    for pod in blocked.iter().take(BOARD_LINES) {
        board.push_str(&format!("\n        held: {pod}"));
    }
    if blocked.len() > BOARD_LINES {
        board.push_str(&format!("\n        and {} more", blocked.len() - BOARD_LINES));
    }
    board
}

/// The block on stderr when a run failed: what, why, the state of the node, what to do.
pub fn failure(failure: &Failure) -> String {
    let mut text = format!("error: {}\n", failure.what);
    let (around, causes) = failure.around();
    for line in causes.iter().flat_map(|cause| cause.lines()) {
        text.push_str(&format!("  caused by: {line}\n"));
    }
    for on_the_way in around {
        text.push_str(&format!("  while trying to: {on_the_way}\n"));
    }
    // A single one is what the failure says already.
    for check in failure.checks.iter().filter(|_| failure.checks.len() > 1) {
        text.push_str(&format!("  {}: {}\n{}", check.id, check.detail, advice(check, "    ")));
    }
    text.push_str(&format!("  state: {}\n", failure.state));
    if let Some(hint) = &failure.hint {
        text.push_str(&format!("  hint: {}\n", hint.replace('\n', "\n        ")));
    }
    text.push_str(&format!("  more: calicoctl-win explain {}\n", failure.id));
    text
}

/// Why a check matters and what to do, each on lines of its own.
pub fn advice(check: &Check, indent: &str) -> String {
    let parts = [("why", &check.why), ("fix", &check.fix)].into_iter();
    parts.filter_map(|(word, text)| Some(labelled(indent, word, text.as_ref()?))).collect()
}

/// `word: text`; a text of several lines begins below, so that each of its lines can be copied whole.
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
