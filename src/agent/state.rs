//! An agent's own report of its state, for `status`: a file that it writes at every change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Role;
use super::health::Readiness;
use super::history::History;
use super::os::{self, Level};
use crate::item::Access;
use crate::node::{Node, Process, STATE_DIR, files};
use crate::values::WinPath;

/// `C:\ProgramData\calicoctl-win\agent\<role>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    pub role: Role,
    /// The agent's own process, which is the service's.
    pub pid: u32,
    pub since: Timestamp,
    pub phase: Phase,
    pub waiting_for: Option<Waiting>,
    /// The component's process, while it runs.
    pub child: Option<Process>,
    /// How often the component was restarted.
    pub restarts: u32,
    pub last_exit: Option<LastExit>,
    /// The component crashes repeatedly.
    pub crash_loop: bool,
    /// Why the agent ended.
    pub failure: Option<String>,
    /// The process of the Host Networking Service at the last bring-up of the network.
    pub network_of_hns: Option<Process>,
    /// Why the node's token is due but not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<String>,
    /// Whether the component does its work; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// What only the log of the component says is wrong, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Before the component: the network, or waiting for it.
    Preparing,
    Running,
    /// Between an end of the component and its next start.
    Restarting,
    Stopping,
    Stopped,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub what: String,
    pub since: Timestamp,
    /// Seconds after which the agent stops waiting; none for a wait without a limit.
    pub limit_s: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastExit {
    /// None if the program could not be started.
    pub code: Option<i32>,
    pub at: Timestamp,
}

/// The folder of the agents' own files.
pub fn folder() -> WinPath {
    WinPath::known(STATE_DIR).join("agent")
}

/// The last state of a role's agent; none if there is none that can be read.
pub fn read(node: &dyn Node, role: Role) -> Option<AgentState> {
    let text = fs::read(node.disk(&path(role))).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The state of a running service's agent; none if the service does not run, or while the file is of an earlier agent.
///
/// # Errors
/// When the service's process cannot be queried.
pub fn live(node: &dyn Node, role: Role) -> Result<Option<AgentState>> {
    // The file first: this is called often, and costs less than a process query.
    let Some(said) = read(node, role) else { return Ok(None) };
    let process = node.process(role.service())?;
    Ok(process.is_some_and(|process| process.pid == said.pid).then_some(said))
}

/// The file of a role's agent.
pub fn path(role: Role) -> WinPath {
    folder().join(&format!("{}.json", role.word()))
}

/// Writes an agent's state to its file, as its agent does: for the agents of a sandbox.
///
/// # Errors
/// When the disk refuses.
pub fn save(node: &dyn Node, said: &AgentState) -> Result<()> {
    let path = node.disk(&path(said.role));
    fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).context("create the agents' folder")?;
    let text = serde_json::to_vec_pretty(said)?;
    files::replace(&path, |new| fs::write(new, text)).with_context(|| format!("write {}", path.display()))
}

/// What CalicoNode waits for while Calico's program is tried.
pub const STARTUP: &str = "Calico's node startup";

impl AgentState {
    /// The state of an agent that has just started.
    pub const fn new(role: Role, pid: u32, since: Timestamp) -> Self {
        Self {
            role,
            pid,
            since,
            phase: Phase::Preparing,
            waiting_for: None,
            child: None,
            restarts: 0,
            last_exit: None,
            crash_loop: false,
            failure: None,
            network_of_hns: None,
            renewal: None,
            readiness: None,
            log_error: None,
        }
    }

    /// Why it runs but is not ready yet; none if it is ready, and while it waits for something it reports.
    pub fn not_ready(&self) -> Option<String> {
        match (self.phase, &self.readiness) {
            (Phase::Preparing, _) if self.waiting_for.is_none() => Some("it is starting".into()),
            (Phase::Running, _) if self.role == Role::Node && !self.at_work() => {
                Some(self.startup_so_far(Timestamp::now()))
            }
            (Phase::Running, Some(Readiness::NotReady(why))) => Some(why.clone()),
            _ => None,
        }
    }

    /// The same, and what only its log says, which may tell more.
    pub fn trouble(&self) -> Option<String> {
        self.log_error.clone().or_else(|| self.not_ready())
    }

    /// Whether it is ready: for CalicoNode, node startup has succeeded; for the others, their program runs.
    pub fn at_work(&self) -> bool {
        // An older agent reports running while node startup runs.
        self.phase == Phase::Running && self.child.is_some() != (self.role == Role::Node)
    }

    /// The progress of node startup that has not succeeded, to end a sentence.
    pub fn startup_so_far(&self, now: Timestamp) -> String {
        let failed = match (self.restarts, self.last_exit.and_then(|last| last.code)) {
            (0, _) | (_, None) => None,
            (1, Some(code)) => Some(format!("its first run exited with {code}")),
            (n, Some(code)) => Some(format!("it failed {n} times, the last time with exit code {code}")),
        };
        let runs = self.child.as_ref().and_then(|child| child.since).map(|since| {
            let seconds = now.duration_since(since).as_secs().max(0);
            format!("it has been running for {seconds} s")
        });
        let parts: Vec<String> = failed.into_iter().chain(runs).collect();
        if parts.is_empty() { "it has not started".into() } else { parts.join("; ") }
    }

    /// What it waits for, to end a sentence: `X (12 s of 120 s)`.
    pub fn wait(&self, now: Timestamp) -> Option<String> {
        let Waiting { what, since, limit_s } = self.waiting_for.as_ref()?;
        let so_far = now.duration_since(*since).as_secs().max(0);
        let limit = limit_s.map_or_else(String::new, |limit| format!(" of {limit} s"));
        Some(format!("{what} ({so_far} s{limit})"))
    }
}

/// Writes an agent's state. A file that cannot be written does not stop the agent.
pub struct Board {
    path: PathBuf,
    state: Mutex<AgentState>,
}

impl Board {
    /// Starts, and replaces the state of an earlier agent. Also returns whether that could be written.
    pub fn new(node: &mut dyn Node, role: Role) -> (Self, Result<()>) {
        let state = AgentState::new(role, std::process::id(), Timestamp::now());
        let path = path(role);
        let text = serde_json::to_vec_pretty(&state).unwrap_or_default();
        let written = node.save(&path, &text, Access::Administrators).with_context(|| format!("write {path}"));
        (Self { path: node.disk(&path), state: Mutex::new(state) }, written)
    }

    fn change(&self, change: impl FnOnce(&mut AgentState)) {
        let mut state = self.locked();
        let before = state.clone();
        change(&mut state);
        if *state == before {
            return;
        }
        let text = serde_json::to_vec_pretty(&*state).unwrap_or_default();
        // It is only informative: a full disk must not end a component.
        drop(files::replace(&self.path, |new| fs::write(new, &text)));
    }

    fn locked(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A wait continues. Returns whether it is a new one.
    pub fn waiting(&self, what: &str, elapsed: Duration, limit: Duration) -> bool {
        let limit_s = (limit < Duration::MAX).then_some(limit.as_secs());
        let mut new = false;
        self.change(|state| {
            if state.waiting_for.as_ref().is_some_and(|known| known.what == what) {
                return;
            }
            let elapsed = SignedDuration::try_from(elapsed).unwrap_or_default();
            state.waiting_for = Some(Waiting { what: what.to_owned(), since: Timestamp::now() - elapsed, limit_s });
            new = true;
        });
        new
    }

    /// No wait: it is ready.
    pub fn at_work(&self) {
        self.change(|state| (state.phase, state.waiting_for) = (Phase::Running, None));
    }

    /// The work before the component is done again.
    pub fn preparing(&self) {
        self.change(|state| state.phase = Phase::Preparing);
    }

    /// The network is up, with this process of HNS.
    pub fn network_is_up(&self, hns: Option<&Process>) {
        self.change(|state| state.network_of_hns = hns.cloned());
    }

    /// Felix's answer.
    pub fn readiness(&self, said: Readiness) {
        if self.locked().readiness.as_ref() != Some(&said) {
            self.change(|state| state.readiness = Some(said));
        }
    }

    /// What the component's log says is wrong; none if nothing.
    pub fn log_error(&self, error: Option<String>) {
        if self.locked().log_error != error {
            self.change(|state| state.log_error = error);
        }
    }

    /// Why the node's token cannot be renewed; none if it can.
    pub fn renewal(&self, trouble: Option<&str>) {
        if self.locked().renewal.as_deref() != trouble {
            self.change(|state| state.renewal = trouble.map(str::to_owned));
        }
    }

    /// Node startup was started. CalicoNode is not ready yet.
    pub fn startup_runs(&self, pid: u32) {
        self.waiting(STARTUP, Duration::ZERO, Duration::MAX);
        let child = Process { pid, since: Some(Timestamp::now()) };
        self.change(|state| (state.phase, state.child) = (Phase::Preparing, Some(child)));
    }

    /// The component was started.
    pub fn started(&self, pid: u32) {
        let child = Process { pid, since: Some(Timestamp::now()) };
        self.change(|state| (state.phase, state.waiting_for, state.child) = (Phase::Running, None, Some(child)));
    }

    /// Node startup ran to its end.
    pub fn ran(&self, code: i32) {
        self.change(|state| {
            state.child = None;
            state.last_exit = Some(LastExit { code: Some(code), at: Timestamp::now() });
            state.phase = Phase::Preparing;
            // One more try; a successful one resets the count.
            state.restarts = if code == 0 { 0 } else { state.restarts + 1 };
            state.crash_loop = state.restarts >= 3;
        });
    }

    /// It has run for a while after it crashed.
    pub fn recovered(&self) {
        self.change(|state| state.crash_loop = false);
    }

    pub fn reloaded(&self, code: Option<i32>) {
        self.change(|state| ended(state, code));
    }

    /// It was ended to be restarted.
    pub fn ended_for(&self, reason: &str) {
        os::event_log(Level::Warning, &format!("{}: {reason}", self.locked().role.service()));
        self.change(|state| {
            state.child = None;
            state.restarts += 1;
            state.phase = Phase::Preparing;
        });
    }

    /// It ended and is restarted after a pause. `what`: a sentence for the Event Log.
    pub fn crashed(&self, code: Option<i32>, history: History, pause: Duration, what: &str) {
        self.change(|state| {
            ended(state, code);
            state.crash_loop = history.is_loop();
            let how = code.map_or_else(|| "could not be started".into(), |code| format!("exited with {code}"));
            let what = format!("the next start: its program {how}");
            state.waiting_for = Some(Waiting { what, since: Timestamp::now(), limit_s: Some(pause.as_secs()) });
        });
        // Each of the first ones, then only some: do not flood the log.
        if history.crashes <= 3 || history.crashes.is_multiple_of(10) {
            let level = if history.is_loop() { Level::Error } else { Level::Warning };
            os::event_log(level, &format!("{}: {what}", self.locked().role.service()));
        }
    }

    pub fn stopping(&self) {
        self.change(|state| (state.phase, state.waiting_for) = (Phase::Stopping, None));
    }

    /// The agent ends; none is a clean end.
    pub fn closed(&self, failure: Option<String>) {
        self.change(|state| {
            state.phase = if failure.is_some() { Phase::Failed } else { Phase::Stopped };
            (state.child, state.waiting_for, state.failure) = (None, None, failure);
        });
    }
}

fn ended(state: &mut AgentState, code: Option<i32>) {
    state.child = None;
    state.restarts += 1;
    state.phase = Phase::Restarting;
    state.last_exit = Some(LastExit { code, at: Timestamp::now() });
}
