//! How a run ends: the exit classes, and the fault that carries one of them up to `main`.

use std::fmt;

use serde::Serialize;

/// Every way a command can end, with the number the caller sees. `docs/exit-codes.md` is the
/// users' copy of this table; a test keeps the two the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Exit {
    Ok,
    Failed,
    ChangesPending,
    PreflightFailed,
    InvalidConfig,
    NotElevated,
    ReleaseInvalid,
    ClusterUnreachable,
    DrainBlocked,
    FailedRolledBack,
    FailedIncomplete,
    VerifyFailed,
    Unhealthy,
    Conflict,
    Busy,
    Unsupported,
    NotInstalled,
    Usage,
    Cancelled,
    RebootStarted,
    RebootRequired,
}

impl Exit {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 21] = [
        Self::Ok,
        Self::Failed,
        Self::ChangesPending,
        Self::PreflightFailed,
        Self::InvalidConfig,
        Self::NotElevated,
        Self::ReleaseInvalid,
        Self::ClusterUnreachable,
        Self::DrainBlocked,
        Self::FailedRolledBack,
        Self::FailedIncomplete,
        Self::VerifyFailed,
        Self::Unhealthy,
        Self::Conflict,
        Self::Busy,
        Self::Unsupported,
        Self::NotInstalled,
        Self::Usage,
        Self::Cancelled,
        Self::RebootStarted,
        Self::RebootRequired,
    ];

    /// The process exit code. Never 259, which Windows reads as "still running".
    pub const fn code(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::ChangesPending => 2,
            Self::PreflightFailed => 3,
            Self::InvalidConfig => 4,
            Self::NotElevated => 5,
            Self::ReleaseInvalid => 6,
            Self::ClusterUnreachable => 7,
            Self::DrainBlocked => 8,
            Self::FailedRolledBack => 9,
            Self::FailedIncomplete => 10,
            Self::VerifyFailed => 11,
            Self::Unhealthy => 12,
            Self::Conflict => 13,
            Self::Busy => 14,
            Self::Unsupported => 15,
            Self::NotInstalled => 16,
            Self::Usage => 64,
            Self::Cancelled => 130,
            Self::RebootStarted => 1641,
            Self::RebootRequired => 3010,
        }
    }

    /// The name scripts match on, as in `"exit_name": "CLUSTER_UNREACHABLE"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Failed => "FAILED",
            Self::ChangesPending => "CHANGES_PENDING",
            Self::PreflightFailed => "PREFLIGHT_FAILED",
            Self::InvalidConfig => "INVALID_CONFIG",
            Self::NotElevated => "NOT_ELEVATED",
            Self::ReleaseInvalid => "RELEASE_INVALID",
            Self::ClusterUnreachable => "CLUSTER_UNREACHABLE",
            Self::DrainBlocked => "DRAIN_BLOCKED",
            Self::FailedRolledBack => "FAILED_ROLLED_BACK",
            Self::FailedIncomplete => "FAILED_INCOMPLETE",
            Self::VerifyFailed => "VERIFY_FAILED",
            Self::Unhealthy => "UNHEALTHY",
            Self::Conflict => "CONFLICT",
            Self::Busy => "BUSY",
            Self::Unsupported => "UNSUPPORTED",
            Self::NotInstalled => "NOT_INSTALLED",
            Self::Usage => "USAGE",
            Self::Cancelled => "CANCELLED",
            Self::RebootStarted => "REBOOT_STARTED",
            Self::RebootRequired => "REBOOT_REQUIRED",
        }
    }

    /// One sentence for `explain`, `--help` and the documentation.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "done, or nothing to do",
            Self::Failed => "failed for a reason that has no class of its own",
            Self::ChangesPending => "changes are pending (only with --detailed-exitcode)",
            Self::PreflightFailed => "a check that must pass did not; nothing was changed",
            Self::InvalidConfig => "the config, or a value given for it, is not valid",
            Self::NotElevated => "needs an elevated session (Run as administrator)",
            Self::ReleaseInvalid => "the Calico release could not be fetched or is not what it should be",
            Self::ClusterUnreachable => "the cluster cannot be reached, or refuses us",
            Self::DrainBlocked => "the node could not be drained; it was uncordoned again",
            Self::FailedRolledBack => "the change failed and the former state is back",
            Self::FailedIncomplete => "the change stopped half-way; `resume` finishes or undoes it",
            Self::VerifyFailed => "applied, but the node did not come up in time",
            Self::Unhealthy => "installed, but not healthy",
            Self::Conflict => "something else owns this node's Calico, or changed it since the plan",
            Self::Busy => "another run holds the lock",
            Self::Unsupported => "this Windows build, platform or combination is not supported",
            Self::NotInstalled => "Calico is not installed here by this tool",
            Self::Usage => "the command line is not right",
            Self::Cancelled => "cancelled; the journal says how far it got",
            Self::RebootStarted => "done, and a reboot was started",
            Self::RebootRequired => "done; Windows must reboot to finish",
        }
    }
}

/// A failure whose class, cause or mend is known. Put one into an [`anyhow::Error`], or on top of
/// one as its context; [`Fault::of`] finds it again.
#[derive(Debug, Clone)]
pub struct Fault {
    /// How the process ends.
    pub exit: Exit,
    /// Stable PascalCase name; `explain ID` has a page for each.
    pub id: &'static str,
    /// What failed, lower case, no full stop.
    pub what: String,
    /// What to do about it, best as a command to paste.
    pub hint: Option<String>,
}

impl Fault {
    pub fn new(exit: Exit, id: &'static str, what: impl Into<String>) -> Self {
        Self { exit, id, what: what.into(), hint: None }
    }

    /// The outermost fault in an error, if it has one.
    pub fn of(error: &anyhow::Error) -> Option<&Self> {
        error.downcast_ref()
    }

    /// The name of the outermost fault in an error; empty for an error without one.
    pub fn id_of(error: &anyhow::Error) -> &'static str {
        Self::of(error).map_or("", |fault| fault.id)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The fault with what caused it below.
    pub fn because(self, cause: impl Into<anyhow::Error>) -> anyhow::Error {
        cause.into().context(self)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Fault {}
