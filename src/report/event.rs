//! What happens during a run, before anyone decides how it looks.

use std::time::Duration;

use jiff::Timestamp;

use super::document::Check;
use crate::plan::show::{Change, Disruption};

/// Something a user may want to see while it happens. Rooms below `cli` are given a
/// `&mut dyn FnMut(Event)` and know nothing of terminals.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A verb that changes the node begins. `generation`: what stands before.
    RunStarted {
        command: &'static str,
        node: String,
        generation: Option<u32>,
    },
    /// What a check found.
    Checked(Check),
    /// One change that is about to be made, or would be.
    Planned(Box<Change>),
    /// All of them: `12 to create, 1 to update, 0 to delete`.
    PlanMade {
        counts: String,
        disruption: Disruption,
    },
    /// A failed change is taken back.
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
    /// It ended well. `message` says in one line what came of it.
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
    /// How far a transfer or extraction is, in bytes.
    Progress {
        phase: &'static str,
        current: u64,
        total: Option<u64>,
    },
    /// A wait: what for, how long so far, how long at most.
    Waiting {
        what: String,
        elapsed: Duration,
        limit: Duration,
    },
    /// The API server took the eviction of a pod (`namespace/name`): it is ending.
    PodEvicted {
        pod: String,
    },
    /// A pod may not be evicted now; asked again after `retry`, or when its budget gives way.
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
    /// How far a drain is. Without a limit it waits for ever.
    DrainProgress {
        gone: usize,
        total: usize,
        /// Each with why, as `demo/web: budget …`.
        blocked: Vec<String>,
        elapsed: Duration,
        limit: Option<Duration>,
    },
    /// Said before the vSwitch is touched: the session that runs this may drop.
    ConnectivityNotice {
        message: String,
        resume_with: String,
    },
    /// A change is live and not confirmed: it goes back at the deadline unless the command is run.
    ConfirmDeadline {
        deadline: Timestamp,
        command: String,
    },
    /// Something the user should know that stops nothing. The id has a page in `explain`.
    Warning {
        id: &'static str,
        message: String,
    },
    /// Detail for `-v` and the log file.
    Log {
        message: String,
    },
}

/// Takes events as they happen.
pub type Sink<'a> = &'a mut dyn FnMut(Event);
