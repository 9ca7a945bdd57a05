//! The verbs that change a node, by their names: for journals, receipts and the lock.

use anyhow::Result;

use crate::agent::trial::Trial;
use crate::fault::{Exit, Fault};
use crate::node::Node;

/// Those that bring a node in line with a config.
pub(crate) const CONFIGURE: [&str; 4] = [APPLY, INSTALL, RECONFIGURE, UPGRADE];
pub(crate) const APPLY: &str = "apply";
pub(crate) const INSTALL: &str = "install";
pub(crate) const RECONFIGURE: &str = "reconfigure";
pub(crate) const UPGRADE: &str = "upgrade";
pub(crate) const ROLLBACK: &str = "rollback";
pub(crate) const REPAIR: &str = "repair";
pub(crate) const RESUME: &str = "resume";
pub(crate) const UNINSTALL: &str = "uninstall";
/// What the way back from a trial is called.
pub(crate) const REVERT: &str = "revert";

/// While a change is on trial nothing else is changed; an uninstall ends the trial.
///
/// # Errors
/// `OnTrial`.
pub(crate) fn heed_trial(node: &dyn Node, command: &str) -> Result<()> {
    let changes = CONFIGURE.contains(&command) || [ROLLBACK, REPAIR, RESUME].contains(&command);
    let Some(trial) = changes.then(|| Trial::load(node)).transpose()?.flatten() else {
        return Ok(());
    };
    if trial.is_tried_out() {
        if command == RESUME {
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
