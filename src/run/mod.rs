//! A change of the node, from what is known to the result: gather, check, plan, show, confirm, stage, converge,
//! prove. `cli` parses and renders; what a verb does is decided here.

pub(crate) mod access;
pub(crate) mod app;
pub(crate) mod at_boot;
pub(crate) mod change;
pub(crate) mod cluster_cleanup;
pub(crate) mod confirm;
pub(crate) mod cordon;
pub(crate) mod datastore;
pub(crate) mod detach;
pub(crate) mod drain;
pub(crate) mod ending;
pub(crate) mod engine;
pub(crate) mod event_log;
pub(crate) mod files_in_use;
pub(crate) mod generations;
pub(crate) mod guard;
pub(crate) mod health_gate;
pub(crate) mod host_process;
pub(crate) mod layers;
pub(crate) mod lease;
pub(crate) mod left_over;
pub(crate) mod login;
pub(crate) mod lost_pods;
pub(crate) mod options;
pub(crate) mod other_machine;
pub(crate) mod own_logins;
pub(crate) mod pods;
pub(crate) mod prepare;
pub(crate) mod records;
pub(crate) mod resume;
pub(crate) mod sandbox_env;
pub(crate) mod saved;
pub(crate) mod stage;
pub(crate) mod standing;
pub(crate) mod trial;
pub(crate) mod uninstall;
pub(crate) mod verb;

use anyhow::Result;

use crate::fault::Exit;
use crate::report::document::RunResult;
use options::ExitCodes;

/// How a verb ends.
pub(crate) enum Ending {
    /// By the document `RunResult`: verbs that change something, and every failure.
    Result(Box<RunResult>),
    /// By the document that it showed, and this line after it.
    Shown(Box<RunResult>),
    /// By what it printed, and nothing else: completions, schemas, pages of `explain`.
    Quiet,
}

impl Ending {
    pub(crate) fn result(result: RunResult) -> Result<Self> {
        Ok(Self::Result(Box::new(result)))
    }

    pub(crate) fn shown(exit: Exit, msg: impl Into<String>) -> Result<Self> {
        Ok(Self::Shown(Box::new(RunResult::new(exit, false, msg))))
    }
}

impl ExitCodes {
    /// The number for the process, in the way the caller can use it.
    fn code(self, result: &RunResult) -> i32 {
        let retryable = result.error.as_ref().is_some_and(|failure| failure.retryable);
        match (self, class(result)) {
            (Self::Simple | Self::CloudbaseInit, Exit::RebootStarted) | (Self::Simple, Exit::RebootRequired) => 0,
            // cloudbase-init: 1003 reboots and runs us again, 1002 runs us again at the next boot.
            (Self::CloudbaseInit, Exit::RebootRequired) => 1003,
            (Self::CloudbaseInit, _) if retryable => 1002,
            (_, exit) => exit.code(),
        }
    }
}

/// The exit class that a result stands for.
pub(crate) fn class(result: &RunResult) -> Exit {
    Exit::all().find(|exit| exit.code() == result.exit_code).unwrap_or(Exit::Failed)
}
