//! `confirm`: keeps a change that is on trial, or takes it back before its time.

use anyhow::Result;
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::args::Confirm;
use super::{cordon, lease, trial};
use crate::agent::trial::Trial;
use crate::apply::converge::Standing;
use crate::fault::{Exit, Fault};
use crate::report::document::RunResult;

pub(crate) fn run(args: &Confirm, app: &mut App) -> Result<Ending> {
    let look = app.node()?;
    let trial = Trial::load(&*look)?.ok_or_else(nothing)?;
    drop(look);
    if app.global.dry_run {
        return app.would(if args.revert {
            format!("take generation {} back", trial.from)
        } else {
            format!("keep what run {} changed", trial.run)
        });
    }
    if args.revert {
        app.confirm(&format!("Take the change on {} back?", trial.node))?;
        return trial::go_back(app, "somebody asked for it");
    }
    let (node, _lock) = app.node_to_change("confirm")?;
    let trial = Trial::load(&*node)?.ok_or_else(nothing)?;
    let late = |what: &str, hint: &str| Err(Fault::new(Exit::Conflict, "NotOnTrial", what).hint(hint).into());
    match trial.deadline() {
        None => return late("the change is not there yet", "wait for it with: calicoctl-win status --wait"),
        Some(deadline) if Timestamp::now() >= deadline => {
            return late(
                "the time to confirm the change is over, and it is being taken back",
                "wait for that with: calicoctl-win status --wait; then make the change again",
            );
        }
        Some(_) => Trial::forget(&*node)?,
    }
    // It runs out by itself, so an API server that is away for a moment is no reason to fail.
    if let Ok(cluster) = cordon::reach(app, &*node, trial.kubeconfig.as_deref(), trial.context.as_deref(), None) {
        let _runs_out = cluster.give_back_lease(&trial.node, &lease::owner(app, &*node)?);
    }
    let generation = Standing::load(&*node)?.receipt().map(|receipt| receipt.generation);
    let msg = format!("The change on {} is kept (generation {}).", trial.node, generation.unwrap_or_default());
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, true, msg);
    result.generation = generation;
    result.next = vec![app.command("status")];
    Ending::result(result)
}

fn nothing() -> Fault {
    Fault::new(Exit::Conflict, "NotOnTrial", "no change is on trial here")
        .hint("see where the node stands: calicoctl-win status")
}
