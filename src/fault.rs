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
    ClusterAccessDenied,
    ReleaseUnavailable,
    NeedsDrain,
    DowngradeRefused,
    PlanStale,
    Interrupted,
    UntrustedFile,
    NotFound,
    FileExists,
    InUse,
    Usage,
    Cancelled,
    RebootStarted,
    RebootRequired,
}

/// Class, process exit code, name and meaning, in the order of the numbers.
const TABLE: [(Exit, i32, &str, &str); 31] = [
    (Exit::Ok, 0, "OK", "success, or nothing to do"),
    (Exit::Failed, 1, "FAILED", "failed for a reason that has no code of its own"),
    (Exit::ChangesPending, 2, "CHANGES_PENDING", "changes are pending (only with --detailed-exitcode)"),
    (Exit::PreflightFailed, 3, "PREFLIGHT_FAILED", "a required check failed; nothing was changed"),
    (Exit::InvalidConfig, 4, "INVALID_CONFIG", "the config, or a value that overrides it, is not valid"),
    (Exit::NotElevated, 5, "NOT_ELEVATED", "needs an elevated session (Run as administrator)"),
    (Exit::ReleaseInvalid, 6, "RELEASE_INVALID", "the Calico release is invalid or does not exist"),
    (
        Exit::ClusterUnreachable,
        7,
        "CLUSTER_UNREACHABLE",
        "the cluster cannot be reached, or does not have what the node needs yet",
    ),
    (Exit::DrainBlocked, 8, "DRAIN_BLOCKED", "the node could not be drained; it was uncordoned again"),
    (Exit::FailedRolledBack, 9, "FAILED_ROLLED_BACK", "the change failed and the previous state was restored"),
    (Exit::FailedIncomplete, 10, "FAILED_INCOMPLETE", "the change is incomplete; `resume` finishes or undoes it"),
    (
        Exit::VerifyFailed,
        11,
        "VERIFY_FAILED",
        "the node did not become healthy in time after a change, or a probe of `verify` failed",
    ),
    (Exit::Unhealthy, 12, "UNHEALTHY", "installed, but not healthy"),
    (
        Exit::Conflict,
        13,
        "CONFLICT",
        "something else owns Calico on this node, or an item that the command would change",
    ),
    (Exit::Busy, 14, "BUSY", "another run holds the lock"),
    (Exit::Unsupported, 15, "UNSUPPORTED", "this Windows build, platform or combination is not supported"),
    (Exit::NotInstalled, 16, "NOT_INSTALLED", "calicoctl-win did not install Calico on this node"),
    (
        Exit::ClusterAccessDenied,
        17,
        "CLUSTER_ACCESS_DENIED",
        "the cluster rejects the credentials, context, rights, certificate or TLS version",
    ),
    (Exit::ReleaseUnavailable, 18, "RELEASE_UNAVAILABLE", "the release could not be downloaded"),
    (Exit::NeedsDrain, 19, "NEEDS_DRAIN", "the change interrupts pods: `reconfigure` drains the node"),
    (
        Exit::DowngradeRefused,
        20,
        "DOWNGRADE_REFUSED",
        "the change installs an older Calico: `--allow-downgrade` permits it",
    ),
    (Exit::PlanStale, 21, "PLAN_STALE", "the node or the config has changed since the plan was made"),
    (Exit::Interrupted, 22, "INTERRUPTED", "a run was interrupted: `resume` finishes or undoes it first"),
    (
        Exit::UntrustedFile,
        23,
        "UNTRUSTED_FILE",
        "accounts other than administrators can write to a file or folder that this command trusts",
    ),
    (Exit::NotFound, 24, "NOT_FOUND", "the run, generation, trial or network that the command is about does not exist"),
    (Exit::FileExists, 25, "FILE_EXISTS", "a file that the command would write exists already"),
    (Exit::InUse, 26, "IN_USE", "pods, a service or another program use what the change would replace"),
    (Exit::Usage, 64, "USAGE", "the command line is not valid"),
    (Exit::Cancelled, 130, "CANCELLED", "cancelled; `error.state` describes the state of the node"),
    (Exit::RebootStarted, 1641, "REBOOT_STARTED", "success; Windows is restarting"),
    (Exit::RebootRequired, 3010, "REBOOT_REQUIRED", "success; Windows must restart to finish"),
];

impl Exit {
    /// All of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    const fn row(self) -> &'static (Self, i32, &'static str, &'static str) {
        &TABLE[self as usize]
    }

    /// The process exit code. Never 259, which Windows reads as "still running".
    pub const fn code(self) -> i32 {
        self.row().1
    }

    /// The name scripts match on, as in `"exit_name": "CLUSTER_UNREACHABLE"`.
    pub const fn name(self) -> &'static str {
        self.row().2
    }

    /// One sentence for `explain`, `--help` and the documentation.
    pub const fn meaning(self) -> &'static str {
        self.row().3
    }

    /// Whether the same command usually succeeds later without any change: the server may come back, another run may
    /// end, pods that block a drain may leave.
    const fn is_retryable(self) -> bool {
        matches!(self, Self::ClusterUnreachable | Self::ReleaseUnavailable | Self::Busy | Self::DrainBlocked)
    }
}

/// A failure whose class, cause or fix is known. Use it as an [`anyhow::Error`], or add it to one as context;
/// [`Fault::of`] finds it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// How the process ends.
    pub exit: Exit,
    /// Stable PascalCase name; `explain ID` has a page for each.
    pub id: &'static str,
    /// What failed: lower case, no full stop.
    pub what: String,
    /// What to do about it, preferably a command to paste.
    pub hint: Option<String>,
    /// None as [`Exit::is_retryable`].
    pub retryable: Option<bool>,
}

impl Fault {
    pub fn new(exit: Exit, id: &'static str, what: impl Into<String>) -> Self {
        Self { exit, id, what: what.into(), hint: None, retryable: None }
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

    /// Sets whether the same command may succeed later without any change, if that differs from others of its class.
    #[must_use]
    pub const fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// Whether the same command may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or_else(|| self.exit.is_retryable())
    }

    /// The fault, with its cause below it.
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
