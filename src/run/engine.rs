//! Runs the engine with the screen attached, and reverts what fails.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::app::{App, Outcome};
use super::cordon;
use super::health_gate::{self, Works};
use crate::apply::cancel;
use crate::apply::converge::{self, Change};
use crate::apply::journal::{Journal, Terms};
use crate::apply::node_object::NodeObject;
use crate::apply::receipt::{About, Receipt};
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::cluster;
use crate::config::spec::RebootPolicy;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::{Step, Target};
use crate::report::document::{RunResult, exit_of, millis};
use crate::report::event::{Event, Sink};

/// A change that was shown and confirmed.
pub(crate) struct Agreed<'a> {
    pub command: &'static str,
    pub target: &'a Target,
    /// None for an uninstall.
    pub about: Option<&'a About>,
    pub steps: &'a [Step],
    pub terms: Terms,
    /// Whether the services must work before the change counts as done.
    pub proves_services: bool,
    /// Whether the Node must also become Ready before.
    pub proves_ready: bool,
}

/// Makes the change, proves it, and reverts it if either fails.
pub(crate) fn carry_out(
    app: &mut App,
    node: &mut dyn Node,
    standing: &Standing,
    object: &NodeObject<'_>,
    agreed: Agreed<'_>,
) -> Result<Applied> {
    let Agreed { command, target, about, steps, terms, proves_services, proves_ready } = agreed;
    let run = app.run.clone();
    let works = Works::new(app, health_gate::restart(steps));
    let proof = |node: &mut dyn Node, target: &Target, events: Sink| {
        if proves_services {
            works.services(node, target, events)?;
        }
        if proves_ready { works.ready(node, target, events) } else { Ok(()) }
    };
    let change = Change { run: &run, command, target, about, terms, shown: Some(steps) };
    engine(app, node, object, |node, events| converge::apply_proven(node, standing, object, &change, &proof, events))
}

/// Makes a change with the engine, with the screen attached; reverts it if it fails.
pub(crate) fn engine(
    app: &mut App,
    node: &mut dyn Node,
    object: &NodeObject<'_>,
    work: impl FnOnce(&mut dyn Node, Sink) -> Result<Applied>,
) -> Result<Applied> {
    attached(app, node, object, false, work)
}

/// Ends an interrupted run in the same way.
pub(crate) fn engine_of_interrupted(
    app: &mut App,
    node: &mut dyn Node,
    object: &NodeObject<'_>,
    work: impl FnOnce(&mut dyn Node, Sink) -> Result<Applied>,
) -> Result<Applied> {
    attached(app, node, object, true, work)
}

/// `resumed`: the work ends the run whose journal exists.
fn attached(
    app: &mut App,
    node: &mut dyn Node,
    object: &NodeObject<'_>,
    resumed: bool,
    work: impl FnOnce(&mut dyn Node, Sink) -> Result<Applied>,
) -> Result<Applied> {
    // From the journal's first line on, Ctrl-C stops between two steps.
    let _under_way = cancel::UnderWay::begin();
    let mut outage = Outage::default();
    let ended = work(node, &mut |event| {
        outage.hear(&event);
        app.event(&event);
    });
    app.downtime = outage.length();
    let error = match ended {
        Ok(applied) => {
            app.outcome = Outcome::Done(applied.generation);
            app.generation = applied.generation;
            return Ok(applied);
        }
        Err(error) => error,
    };
    // If this run did not get to another run's interrupted change, it does not undo it.
    let is_ours = |journal: &Journal| resumed || journal.header.run == app.run;
    // A run that is being resumed is not undone because of an error that may be temporary.
    let waits = resumed && (cluster::may_pass(&error) || exit_of(&error) == Exit::Cancelled);
    match Standing::load(node).map(|standing| standing.journal) {
        // A drain that is blocked or cancelled has not changed the machine: the node is uncordoned, and the error is
        // the drain's.
        Ok(Some(journal)) if is_ours(&journal) && journal.is_draining() && !waits => {
            return Err(match converge::undo_with(node, object, &mut |event| app.event(&event)) {
                Ok(_) => cordon::release_after(app, node, error),
                Err(second) => {
                    app.outcome = Outcome::HalfWay;
                    not_reverted(app, error, &second)
                }
            });
        }
        // The journal stays: `resume` finishes or undoes the run.
        Ok(Some(journal)) if exit_of(&error) == Exit::Cancelled || !is_ours(&journal) || journal.is_draining() => {
            app.outcome = Outcome::HalfWay;
            return Err(error);
        }
        Ok(Some(_)) => {}
        // No journal: nothing was changed, so there is nothing to undo.
        Ok(None) => {
            retention::tidy(node, &mut |event| app.event(&event));
            return Err(cordon::release_after(app, node, error));
        }
        // The state is unknown.
        Err(second) => {
            app.outcome = Outcome::HalfWay;
            let what = format!("the change failed, and where the node stands cannot be read ({second:#})");
            return Err(error.context(Fault::new(Exit::FailedIncomplete, "RollbackFailed", what)));
        }
    }
    app.event(&Event::RollbackStarted { reason: format!("{error:#}") });
    let failed_phase = app.reporter.failed_phase;
    let undone = converge::undo_with(node, object, &mut |event| {
        outage.hear(&event);
        app.event(&event);
    });
    app.downtime = outage.length();
    app.reporter.failed_phase = failed_phase;
    app.event(&Event::RollbackCompleted { complete: undone.is_ok() });
    Err(match undone {
        Ok(_) => {
            app.outcome = Outcome::Undone;
            cordon::release_after(app, node, rolled_back(error))
        }
        Err(second) => {
            app.outcome = Outcome::HalfWay;
            not_reverted(app, error, &second)
        }
    })
}

fn not_reverted(app: &App, error: anyhow::Error, second: &anyhow::Error) -> anyhow::Error {
    let what = format!("the change failed, and so did rolling it back ({second:#})");
    error.context(Fault::new(Exit::FailedIncomplete, "RollbackFailed", what).hint(format!(
        "fix the cause, then finish it with: {} or undo it with: {}",
        app.command("resume"),
        app.command("resume --undo")
    )))
}

/// Returns the current generation.
///
/// # Errors
/// `NotInstalled` if there is none.
pub(crate) fn installed(standing: &Standing) -> Result<&Receipt> {
    standing.receipt().ok_or_else(|| {
        Fault::new(Exit::NotInstalled, "NotInstalled", "Calico is not installed here by this tool")
            .hint("install it with: calicoctl-win install")
            .into()
    })
}

/// Returns the result of a successful run, with the `next` commands. If Windows must restart before everything is
/// removed, warns, and puts the restart first.
pub(crate) fn succeeded(
    app: &mut App,
    node: &dyn Node,
    applied: &Applied,
    msg: String,
    mut next: Vec<String>,
) -> RunResult {
    let mut result = RunResult::new(exit_after(app, node, &mut next), applied.changed > 0, msg);
    result.generation = applied.generation;
    result.downtime_ms = millis(applied.downtime);
    result.next = next;
    result
}

/// Returns the exit class of a successful run. Some items may be removed only when Windows starts next.
pub(crate) fn exit_after(app: &mut App, node: &dyn Node, next: &mut Vec<String>) -> Exit {
    if !app.needs_reboot {
        return Exit::Ok;
    }
    match app.reboot(node).policy {
        RebootPolicy::Never => return Exit::Ok,
        RebootPolicy::Request => {}
        RebootPolicy::Now => match node.restart("calicoctl-win: Windows restarts, as reboot.policy says") {
            Ok(()) => return Exit::RebootStarted,
            Err(error) => app.warn("RebootNotStarted", format!("Windows does not restart by itself: {error:#}")),
        },
    }
    next.insert(0, "Restart-Computer".into());
    Exit::RebootRequired
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

fn rolled_back(error: anyhow::Error) -> anyhow::Error {
    let (id, hint) = match Fault::of(&error) {
        Some(fault) => (fault.id, fault.hint.clone()),
        None => ("RolledBack", None),
    };
    let mut fault = Fault::new(Exit::FailedRolledBack, id, "the change failed and was rolled back");
    fault.hint = hint.or_else(|| Some("fix the cause that is named here and run the command again".into()));
    error.context(fault)
}
