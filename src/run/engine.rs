//! Runs the engine with the screen attached, and reverts what fails.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use super::app::App;
use super::context::Operation;
use super::ending::Outcome;
use super::lost_pods;
use super::verb::Aim;
use crate::agent::cni_gate::{self, LostEndpoint};
use crate::apply::cancel;
use crate::apply::converge;
use crate::apply::journal::Journal;
use crate::apply::node_object::NodeObject;
use crate::apply::standing::{Applied, Standing};
use crate::calico::networks;
use crate::cluster;
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::Node;
use crate::report::document::exit_of;
use crate::report::event::{Event, Sink};

/// Makes a change with the engine, with the screen attached; reverts it if it fails. The record of the run says how far
/// it came.
pub(crate) fn run(
    op: &mut Operation<'_>,
    object: &NodeObject,
    work: impl FnOnce(&mut dyn Node, Sink) -> Result<Applied>,
) -> Result<Applied> {
    // From the journal's first line on, Ctrl-C stops between two steps.
    let _under_way = cancel::UnderWay::begin();
    let resumes = op.row.aim == Aim::Interrupted;
    let lost = cni_gate::lost(op.node).unwrap_or_default();
    let missing = op.context.standing.receipt().is_some() && !has_pod_network(op.node);
    let Operation { app, node, row, .. } = op;
    let mut outage = Outage::default();
    let ended = work(*node, &mut |event| {
        outage.hear(&event);
        app.event(&event);
    });
    app.record().downtime = outage.length();
    let error = match ended {
        Ok(applied) => {
            let mut record = app.record();
            record.outcome = Outcome::Done(applied.generation);
            record.generation = applied.generation;
            drop(record);
            if missing && has_pod_network(op.node) {
                recreate_detached_pods(op, object);
            } else {
                recreate_lost_pods(op, object, &lost);
            }
            return Ok(applied);
        }
        Err(error) => error,
    };
    let standing = match Standing::load(*node) {
        Ok(standing) => standing,
        // The state is unknown.
        Err(second) => {
            app.record().outcome = Outcome::HalfWay;
            let what = format!("the change failed, and the node's current state cannot be read ({second:#})");
            return Err(error.context(Fault::new(Exit::FailedIncomplete, "RollbackFailed", what)));
        }
    };
    // No journal: nothing was changed, so there is nothing to undo.
    let Some(journal) = &standing.journal else { return Err(error) };
    // If this run did not get to another run's interrupted change, it does not undo it.
    let is_ours = |journal: &Journal| resumes || journal.header.run == app.run;
    // A run that is being resumed is not undone because of an error that may be temporary.
    let waits = resumes && (cluster::may_pass(&error) || exit_of(&error) == Exit::Cancelled);
    let drains = journal.is_draining();
    // A drain that is blocked or cancelled has not changed the machine: the error is the drain's.
    if is_ours(journal) && drains && !waits {
        return Err(match converge::undo(*node, &standing, object, &mut |event| app.event(&event)) {
            Ok(_) => error,
            Err(second) => not_reverted(app, error, &second),
        });
    }
    // The journal stays: `resume` finishes or undoes the run.
    if exit_of(&error) == Exit::Cancelled || !is_ours(journal) || drains || !row.reverts {
        app.record().outcome = Outcome::HalfWay;
        return Err(error);
    }
    // The disk may refuse the journal before the first step: that is no change to tell of.
    let touched = journal.is_touched();
    if touched {
        app.event(&Event::RollbackStarted { reason: format!("{error:#}") });
    }
    let failed_phase = app.reporter.failed_phase;
    let undone = converge::undo(*node, &standing, object, &mut |event| {
        outage.hear(&event);
        app.event(&event);
    });
    app.record().downtime = outage.length();
    recreate_lost_pods(op, object, &lost);
    let app = &mut *op.app;
    app.reporter.failed_phase = failed_phase;
    if touched {
        app.event(&Event::RollbackCompleted { complete: undone.is_ok() });
    }
    Err(match undone {
        Ok(_) if !touched && !app.record().changed.load(Ordering::SeqCst) => error,
        Ok(_) => {
            app.record().outcome = Outcome::Undone;
            let (id, hint) = Fault::of(&error).map_or(("RolledBack", None), |fault| (fault.id, fault.hint.clone()));
            let hint = hint.unwrap_or_else(|| "fix the cause that is named here and run the command again".into());
            let what = "the change failed and was rolled back";
            error.context(Fault::new(Exit::FailedRolledBack, id, what).hint(hint))
        }
        Err(second) => not_reverted(app, error, &second),
    })
}

fn has_pod_network(node: &dyn Node) -> bool {
    matches!(node.get(&Id::Network(networks::PODS.into())), Ok(Some(_)))
}

/// Re-creates the pods that still run without the network that was missing before this run.
fn recreate_detached_pods(op: &mut Operation<'_>, object: &NodeObject) {
    let Operation { app, node, context, .. } = op;
    let found = context.cluster(*node).and_then(|cluster| {
        lost_pods::recreate_detached(*node, object.name(), cluster, &mut |event| app.event(&event))
    });
    if let Err(error) = found {
        let message = format!("whether pods run without an endpoint is unknown: {error:#}");
        app.event(&Event::Warning { id: "PodsLostNetwork", message });
    }
}

/// Re-creates the pods that lost their network in this run while the cluster did not answer, if it answers now.
/// `before`: those of earlier runs, which CalicoNode re-creates.
fn recreate_lost_pods(op: &mut Operation<'_>, object: &NodeObject, before: &[LostEndpoint]) {
    if cni_gate::lost(op.node).is_ok_and(|lost| lost != before)
        && let Ok(cluster) = op.context.cluster(op.node)
    {
        lost_pods::recreate_now(op.node, object.name(), cluster, &mut |event| op.app.event(&event));
    }
}

fn not_reverted(app: &App, error: Error, second: &Error) -> Error {
    app.record().outcome = Outcome::HalfWay;
    let what = format!("the change failed, and so did rolling it back ({second:#})");
    error.context(Fault::new(Exit::FailedIncomplete, "RollbackFailed", what).hint(format!(
        "fix the cause, then finish it with: {} or undo it with: {}",
        app.command("resume"),
        app.command("resume --undo")
    )))
}

/// The time from the first service stopped to the last one started, over the change and its revert.
#[derive(Default)]
struct Outage {
    stopped: Option<Instant>,
    up_again: Option<Duration>,
}

impl Outage {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::PhaseStarted { phase: "services-stop", .. } => {
                self.stopped.get_or_insert_with(Instant::now);
                self.up_again = None;
            }
            Event::PhaseCompleted { phase: "services-start", .. } => {
                self.up_again = self.stopped.map(|stopped| stopped.elapsed());
            }
            _ => {}
        }
    }

    fn length(&self) -> Duration {
        self.up_again.or(self.stopped.map(|stopped| stopped.elapsed())).unwrap_or_default()
    }
}
