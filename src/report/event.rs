//! What happens during a run, independent of how it is shown.

use std::time::Duration;

use jiff::Timestamp;

use super::document::Check;
use crate::plan::show::{Change, Disruption};

/// Something a user may want to see while it happens. Modules below `cli` get a `&mut dyn FnMut(Event)` and do
/// not use terminals.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A verb that changes the node begins. `generation`: the current one before the run.
    RunStarted {
        command: &'static str,
        node: String,
        generation: Option<u32>,
    },
    /// The result of a check.
    Checked(Check),
    /// One change that will be made, or would be.
    Planned(Box<Change>),
    /// All of them: `12 to create, 1 to update, 0 to delete`.
    PlanMade {
        counts: String,
        disruption: Disruption,
    },
    /// A failed change is rolled back.
    RollbackStarted {
        reason: String,
    },
    RollbackCompleted {
        complete: bool,
    },
    /// A phase (kebab-case id) begins.
    PhaseStarted {
        phase: &'static str,
        /// 3 of 9, for the phases of the engine.
        place: Option<(usize, usize)>,
    },
    /// It succeeded. `message` is its result in one line.
    PhaseCompleted {
        phase: &'static str,
        message: String,
        changed: bool,
        took: Duration,
    },
    PhaseSkipped {
        phase: &'static str,
        reason: String,
    },
    PhaseFailed {
        phase: &'static str,
        message: String,
    },
    /// The progress of a transfer or extraction, in bytes.
    Progress {
        phase: &'static str,
        current: u64,
        total: Option<u64>,
    },
    /// A wait: what for, since when, and its limit.
    Waiting {
        what: String,
        elapsed: Duration,
        limit: Duration,
    },
    /// The API server accepted the eviction of a pod (`namespace/name`): it terminates.
    PodEvicted {
        pod: String,
    },
    /// A pod may not be evicted now; retried after `retry`, or when its budget allows it.
    PodBlocked {
        pod: String,
        why: String,
        retry: Duration,
    },
    /// A pod is gone from the node.
    PodGone {
        pod: String,
        gone: usize,
        total: usize,
    },
    /// The progress of a drain. Without a limit it may wait forever.
    DrainProgress {
        gone: usize,
        total: usize,
        /// Each with the reason, for example `demo/web: budget …`.
        blocked: Vec<String>,
        /// The evicted pods that still terminate, each with what blocks it.
        ending: Vec<String>,
        elapsed: Duration,
        limit: Option<Duration>,
    },
    /// Before the vSwitch is changed: the session that runs this may drop.
    ConnectivityNotice {
        message: String,
        resume_with: String,
    },
    /// A change is live and not confirmed: it is rolled back at the deadline unless the command is run.
    ConfirmDeadline {
        deadline: Timestamp,
        command: String,
    },
    /// Something the user should know that does not stop the run. The id has a page in `explain`.
    Warning {
        id: &'static str,
        message: String,
    },
    /// Detail for `-v` and the log file.
    Log {
        message: String,
    },
}

/// Receives events as they happen.
pub type Sink<'a> = &'a mut dyn FnMut(Event);
