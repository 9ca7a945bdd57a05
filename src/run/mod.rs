//! A change of the node, from gathering to the result: gather, check, plan, show, confirm, stage, converge, prove.
//! `cli` parses and renders; this room decides what a verb does.

pub(crate) mod app;
mod bring_back;
pub(crate) mod bundle;
pub(crate) mod change;
pub(crate) mod checks;
mod cluster_cleanup;
pub(crate) mod cluster_patches;
mod connector;
pub(crate) mod context;
mod cordon;
pub(crate) mod credentials;
mod ctrl_c;
mod datastore;
pub(crate) mod detach;
pub(crate) mod drain;
pub(crate) mod drift;
mod ending;
mod engine;
mod event_log;
mod files_in_use;
pub(crate) mod fixes;
mod flannel;
pub(crate) mod fleet;
pub(crate) mod generations;
pub(crate) mod guard;
mod health_gate;
mod host_process;
pub(crate) mod image;
pub(crate) mod import;
mod kubernetes;
mod lease;
pub(crate) mod login;
mod lost_pods;
pub(crate) mod needs;
pub(crate) mod node_object;
mod node_result;
pub(crate) mod node_status;
pub(crate) mod open;
pub(crate) mod options;
mod pending_work;
mod pipeline;
pub(crate) mod prepare;
pub(crate) mod records;
pub(crate) mod resume;
pub(crate) mod rotate;
mod sandbox_env;
pub(crate) mod saved;
mod scripts;
pub(crate) mod service_run;
pub(crate) mod service_status;
pub(crate) mod services;
mod session0;
pub(crate) mod sources;
pub(crate) mod stage;
mod stdin;
pub(crate) mod trial;
mod trusted_kubeconfigs;
pub(crate) mod uninstall;
pub(crate) mod unrecorded;
pub(crate) mod verb;
pub(crate) mod verdict;
pub(crate) mod verify;

use anyhow::Result;

use crate::fault::Exit;
use crate::report::document::RunResult;
use options::ExitCodes;

/// How a verb ends.
pub(crate) enum Ending {
    /// With the document `RunResult`: verbs that change something, and every failure.
    Result(Box<RunResult>),
    /// With the document that it showed, and this line after it.
    Shown(Box<RunResult>),
    /// With only what it shows, and in text no line after it: completions, schemas, pages of `explain`.
    Quiet,
    /// With the exit code of the run that made the change in place of this process, and told how it ended.
    Told(i32),
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
    /// Returns the number of an exit class; `retryable`: the same command may succeed later.
    fn number(self, class: Exit, retryable: bool) -> i32 {
        match (self, class) {
            (Self::Simple | Self::CloudbaseInit, Exit::RebootStarted) | (Self::Simple, Exit::RebootRequired) => 0,
            // cloudbase-init: 1003 reboots and runs us again, 1002 runs us again at the next boot.
            (Self::CloudbaseInit, Exit::RebootRequired) => 1003,
            (Self::CloudbaseInit, _) if retryable => 1002,
            (_, exit) => exit.code(),
        }
    }
}

/// Returns the exit class of a result.
pub(crate) fn class(result: &RunResult) -> Exit {
    Exit::all().find(|exit| exit.code() == result.exit_code).unwrap_or(Exit::Failed)
}
