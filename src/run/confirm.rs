//! `confirm`: keeps a change that is on trial, or reverts it early.

use anyhow::Result;
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::options::Confirm;
use super::trial;
use crate::agent::trial::Trial;
use crate::fault::{Exit, Fault};

pub(crate) fn run(args: &Confirm, app: &mut App) -> Result<Ending> {
    let look = app.node()?;
    let trial = Trial::load(&*look)?.ok_or_else(nothing)?;
    drop(look);
    if app.global.dry_run {
        return app.would(trial::says(&trial, args.revert));
    }
    if args.revert {
        app.confirm(&format!("Take the change on {} back?", trial.node))?;
        return trial::revert_now(app, "confirm");
    }
    let (mut node, _lock, standing) = app.node_to_change("confirm")?;
    let trial = Trial::load(&*node)?.ok_or_else(nothing)?;
    let late = |what: &str, hint: &str| Err(Fault::new(Exit::Conflict, "NotOnTrial", what).hint(hint).into());
    match trial.deadline() {
        // The guard does not revert it any more.
        _ if trial.is_tried_out() => {}
        None => return late("the change is not there yet", "wait for it with: calicoctl-win status --wait"),
        Some(deadline) if Timestamp::now() >= deadline => {
            return late(
                "the time to confirm the change is over, and it is being reverted",
                "wait for that with: calicoctl-win status --wait\nthen make the change again",
            );
        }
        Some(_) => {}
    }
    trial::kept(app, &mut *node, &standing?, &trial)
}

fn nothing() -> Fault {
    Fault::new(Exit::Conflict, "NotOnTrial", "no change is on trial here")
        .hint("see where the node stands: calicoctl-win status")
}
