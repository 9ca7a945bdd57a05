//! The verbs that change a node, as a table: the goal of each, and what it may do.

use anyhow::Result;

use crate::agent::trial::Trial;
use crate::fault::{Exit, Fault};
use crate::node::Node;

/// What the pipeline needs to know about a verb.
pub(crate) struct Row {
    /// Its name: for journals, receipts and the lock.
    pub command: &'static str,
    pub goal: Goal,
    /// Pods may be moved away for it; otherwise a change that needs that is refused.
    pub drains: bool,
    /// The change can be on trial.
    pub tries: bool,
    /// The kinds of change that are reverted when the Node does not get Ready.
    pub ready: &'static [Kind],
    /// What it may do while another change is on trial.
    pub trial: DuringTrial,
}

/// The state that the node is to have afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// As the config says; if none is named, as this one says.
    Config(Base),
    /// As an earlier generation was.
    Former,
    /// As the current generation says.
    Current,
    /// Without Calico.
    Nothing,
    /// Where an interrupted run was going, or started from.
    Interrupted,
}

/// Which config is used if none is named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// The defaults.
    None,
    /// The one of the current generation.
    Current,
    /// The same, if there is one.
    CurrentIfAny,
}

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first generation.
    First,
    /// Another release.
    Release,
    /// The same release with other settings.
    Settings,
}

/// What a verb may do while another change is on trial.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DuringTrial {
    /// Nothing.
    Refused,
    /// End a trial that could not be reverted.
    IfGivenUp,
    /// It ends the trial.
    Ends,
}

pub(crate) const APPLY: Row = Row {
    command: "apply",
    goal: Goal::Config(Base::CurrentIfAny),
    drains: true,
    tries: true,
    ready: &[Kind::Release],
    trial: DuringTrial::Refused,
};
pub(crate) const INSTALL: Row =
    Row { command: "install", goal: Goal::Config(Base::None), drains: false, tries: false, ready: &[], ..APPLY };
pub(crate) const RECONFIGURE: Row =
    Row { command: "reconfigure", goal: Goal::Config(Base::Current), ready: &[], ..APPLY };
pub(crate) const UPGRADE: Row = Row {
    command: "upgrade",
    goal: Goal::Config(Base::Current),
    tries: false,
    ready: &[Kind::First, Kind::Release, Kind::Settings],
    ..APPLY
};
pub(crate) const ROLLBACK: Row = Row { command: "rollback", goal: Goal::Former, tries: false, ready: &[], ..APPLY };
pub(crate) const REPAIR: Row = Row { command: "repair", goal: Goal::Current, ..ROLLBACK };
pub(crate) const RESUME: Row =
    Row { command: "resume", goal: Goal::Interrupted, trial: DuringTrial::IfGivenUp, ..ROLLBACK };
pub(crate) const UNINSTALL: Row =
    Row { command: "uninstall", goal: Goal::Nothing, trial: DuringTrial::Ends, ..ROLLBACK };
/// The revert of a change on trial; no command line names it.
pub(crate) const REVERT: Row = Row { command: "revert", trial: DuringTrial::Ends, ..ROLLBACK };

const ROWS: [&Row; 8] = [&APPLY, &INSTALL, &RECONFIGURE, &UPGRADE, &ROLLBACK, &REPAIR, &RESUME, &UNINSTALL];

/// While a change is on trial, nothing else may be changed, except by verbs without a row here, for example `confirm`.
///
/// # Errors
/// `OnTrial`.
pub(crate) fn heed_trial(node: &dyn Node, command: &str) -> Result<()> {
    let row = ROWS.iter().find(|row| row.command == command && row.trial != DuringTrial::Ends);
    let Some(row) = row else { return Ok(()) };
    let Some(trial) = Trial::load(node)? else { return Ok(()) };
    if trial.is_tried_out() {
        if row.trial == DuringTrial::IfGivenUp {
            return Ok(());
        }
        let what = format!("what run {} changed could not be reverted, and is not confirmed", trial.run);
        return Err(Fault::new(Exit::Busy, "OnTrial", what)
            .hint("revert it with: calicoctl-win resume, or keep it with: calicoctl-win confirm")
            .into());
    }
    let until = trial.deadline().map_or_else(String::new, |deadline| format!(" until {deadline:.0}"));
    let what = format!("what run {} changed is on trial{until}", trial.run);
    Err(Fault::new(Exit::Busy, "OnTrial", what)
        .hint("keep it with: calicoctl-win confirm, or revert it with: calicoctl-win confirm --revert")
        .into())
}
