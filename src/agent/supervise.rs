//! Keeps a component running: a pure function decides when to restart it, and the loop below does it.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::history::History;
use super::process::{Running, Streams};
use super::state::Board;
use super::stop::Stop;
use crate::calico::agent_config::Command;
use crate::node::Node;

/// The exit code of Felix and confd when their configuration has changed and they must read it again.
const RELOAD: i32 = 129;

/// How many reloads in a row, each shortly after a start, still count as reloads.
const SHORT_RELOADS: u32 = 10;
const SHORT: Duration = Duration::from_secs(1);

/// The times of supervision.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Pause after the first crash; doubled by each further one.
    pub first: Duration,
    pub most: Duration,
    /// A component that ran this long has recovered.
    pub calm: Duration,
    /// How long a component has for a clean stop, before it is killed.
    pub grace: Duration,
    /// How often Felix, kubelet and kube-proxy are asked whether they are live.
    pub live: Duration,
    /// How long kubelet and kube-proxy may take until they can be asked.
    pub opens: Duration,
    /// How often CalicoNode compares the node with what the last run left.
    pub drift: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let [first, most, calm, grace, live, drift] = [2, 60, 60, 10, 10, 600].map(Duration::from_secs);
        // kubelet waits two minutes for the container runtime, and ends by itself after five minutes without a certificate
        // (its runtimeRequestTimeout, and cmd/kubelet/app/server.go of kubernetes/kubernetes).
        let opens = Duration::from_secs(10 * 60);
        Self { first, most, calm, grace, live, opens, drift }
    }
}

/// What to do after a component ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It was stopped.
    Done,
    /// It must read its configuration again: start it at once.
    Reload,
    /// It crashed: start it after a pause.
    After(Duration),
}

/// The policy. `code` is none for a component that could not be started; `lived` is from its start
/// to its end.
pub fn next(
    timing: &Timing,
    history: History,
    code: Option<i32>,
    lived: Duration,
    stop_requested: bool,
) -> (History, Next) {
    if stop_requested {
        return (History::default(), Next::Done);
    }
    let before = if lived >= timing.calm { History::default() } else { history };
    if code == Some(RELOAD) {
        let reloads = if lived < SHORT { before.reloads + 1 } else { 0 };
        // Otherwise a component that always exits like this would keep a core busy.
        if reloads <= SHORT_RELOADS {
            return (History { reloads, ..before }, Next::Reload);
        }
    }
    let crashes = before.crashes.saturating_add(1);
    let pause = timing.first.saturating_mul(1 << (crashes - 1).min(16)).min(timing.most);
    (History { crashes, ..before }, Next::After(pause))
}

/// When a component's dependencies are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before each start: removes what it must not find.
    Starts,
    /// It runs: returns why it must be restarted, if it must.
    Runs,
    /// It was stopped for that reason: waits until it may start.
    Stopped,
}

/// Checks what a component depends on.
pub type Outside<'a> = &'a mut dyn FnMut(&mut dyn Node, Moment) -> Result<Option<Reason>>;

/// Why a component is restarted.
pub type Reason = String;

/// Keeps `command` running until a stop is requested. `outside` is called before each start, and once a second to check
/// whether something that the component depends on has changed.
///
/// # Errors
/// Errors of `outside` while the component runs or is stopped; an error before a start counts as a failed start.
pub fn supervise(
    node: &mut dyn Node,
    command: &Command,
    streams: &Streams,
    timing: &Timing,
    stop: &Stop,
    board: &Board,
    outside: Outside<'_>,
) -> Result<()> {
    const CHECK_EVERY: Duration = Duration::from_secs(1);
    let mut history = History::default();
    while !stop.requested() {
        let begun = Instant::now();
        let mut code = None;
        match outside(node, Moment::Starts).and_then(|_| Running::start(node, command, streams, stop)) {
            Err(error) => streams.say(&format!("{error:#}")),
            Ok(running) => {
                board.started(running.pid());
                let mut restart_reason = None;
                while running.code().is_none() && !stop.requested() && restart_reason.is_none() {
                    stop.wait(CHECK_EVERY, || running.code().is_some());
                    if history.crashes > 0 && begun.elapsed() >= timing.calm {
                        history = History::default();
                        board.recovered();
                    }
                    restart_reason = outside(node, Moment::Runs)?;
                }
                if let Some(reason) = restart_reason {
                    streams.say(&format!("{reason}: {} is restarted", command.program.name()));
                    running.end(timing.grace);
                    board.ended_for(&reason);
                    outside(node, Moment::Stopped)?;
                    continue;
                }
                code = Some(if stop.requested() {
                    board.stopping();
                    running.end(timing.grace)
                } else {
                    running.reaped()
                });
            }
        }
        let (after, verdict) = next(timing, history, code, begun.elapsed(), stop.requested());
        history = after;
        let how = code.map_or_else(|| "could not be started".into(), |code| format!("exited with {code}"));
        let program = command.program.name();
        match verdict {
            Next::Done => streams.say(&format!("{program} {how}, as requested")),
            Next::Reload => {
                streams.say(&format!("{program} {how}: its configuration changed, so it is restarted at once"));
                board.reloaded(code);
            }
            Next::After(pause) => {
                let crash_loop = if history.is_loop() {
                    format!(", {} times in a row: a crash loop", history.crashes)
                } else {
                    String::new()
                };
                let what = format!("{program} {how}{crash_loop}; it starts again in {} s", pause.as_secs());
                streams.say(&what);
                board.crashed(code, history, pause, &what);
                stop.wait(pause, || false);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Passes ends to the policy, as (exit code, seconds of life), and returns its decisions.
    fn story(ends: &[(Option<i32>, u32)]) -> String {
        let (mut history, mut said) = (History::default(), Vec::new());
        for (code, lived) in ends {
            let verdict;
            (history, verdict) = next(&Timing::default(), history, *code, SECOND * *lived, false);
            let looping = if history.is_loop() { " loop" } else { "" };
            said.push(match verdict {
                Next::Done => "done".into(),
                Next::Reload => "reload".into(),
                Next::After(pause) => format!("{}{looping}", pause.as_secs()),
            });
        }
        said.join(", ")
    }

    #[test]
    fn the_policy() {
        let crash = (Some(1), 1);
        // Defect B2: the scripts restart a crashing component at once, forever, and do not report it.
        assert_eq!(story(&[crash; 8]), "2, 4, 8 loop, 16 loop, 32 loop, 60 loop, 60 loop, 60 loop");
        assert_eq!(story(&[crash, crash, (Some(1), 60), crash]), "2, 4, 2, 4", "a minute of life is a recovery");
        assert_eq!(story(&[(Some(129), 3); 20]), vec!["reload"; 20].join(", "));
        assert_eq!(story(&[crash, (Some(129), 3), crash]), "2, reload, 4");
        assert_eq!(story(&[(Some(0), 1)]), "2", "Felix and confd never exit by themselves");
        assert_eq!(story(&[(None, 0), (None, 0)]), "2, 4", "a program that cannot be started");
        let mut spin = vec!["reload"; 10];
        spin.extend(["2", "4", "8 loop"]);
        assert_eq!(story(&[(Some(129), 0); 13]), spin.join(", "), "reloads without end are a crash too");
    }

    #[test]
    fn every_end_after_a_stop_is_clean() {
        for code in [Some(0), Some(1), Some(2), Some(129), Some(-1_073_741_510), None] {
            assert_eq!(next(&Timing::default(), History::default(), code, SECOND, true).1, Next::Done);
        }
    }

    #[test]
    fn any_number_of_crashes_is_handled() {
        let history = History { crashes: u32::MAX, reloads: 0 };
        assert_eq!(next(&Timing::default(), history, Some(1), SECOND, false).1, Next::After(60 * SECOND));
    }
}
