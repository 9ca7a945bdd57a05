//! `resume`: finishes an interrupted run, or undoes it.

use anyhow::{Context, Result};

use super::Ending;
use super::app::App;
use super::cordon;
use super::engine::{engine_of_interrupted, succeeded};
use super::health_gate::{self, Works};
use super::options::Resume;
use super::verb;
use super::{lease, other_machine, pipeline, pods, trial, uninstall};
use crate::agent::trial::Trial;
use crate::apply::converge;
use crate::apply::cordon::Cordon;
use crate::apply::journal::Journal;
use crate::apply::lock::Lock;
use crate::apply::node_object::NodeObject;
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::cluster::lease::LeaseRenewer;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::Target;
use crate::plan::show::Downgrade;
use crate::report::document::RunResult;
use crate::report::event::Sink;

/// Ends what an earlier run left half done, or shows it.
///
/// # Errors
/// As [`pipeline::run`]; `UninstallMade` if an uninstall is too far to be undone.
pub(crate) fn run(args: &Resume, app: &mut App) -> Result<Ending> {
    // The revert of a trial may be the run that was not finished.
    let look = app.node()?;
    let Some(trial) = Trial::load(&*look)?.filter(Trial::is_tried_out) else {
        return pipeline::run(&verb::RESUME, app, |app, node, standing, _| gather(args, app, node, standing));
    };
    drop(look);
    if app.global.dry_run {
        return app.would(trial::says(&trial, !args.undo));
    }
    app.reporter.tell(&format!("Not reverted: what run {} changed on trial.", trial.run));
    app.confirm(if args.undo { "Keep it?" } else { "Undo it?" })?;
    let command = verb::RESUME.command;
    if args.undo { trial::keep(app, command) } else { trial::revert_now(app, command) }
}

/// What an earlier run left.
struct Left<'a> {
    args: &'a Resume,
    /// With the journal of the interrupted run, if there is one.
    standing: Standing,
    /// A Node that an ended run left cordoned.
    cordon: Option<Cordon>,
}

/// The result of ending it.
enum Made {
    Ended(Ending),
    /// An uninstall, with the commands for what remains in the cluster.
    Uninstalled(Applied, Vec<String>),
}

fn gather<'a>(args: &'a Resume, app: &mut App, node: &dyn Node, standing: Standing) -> Result<Left<'a>> {
    let left = Left { args, standing, cordon: Cordon::load(node)? };
    if left.uninstalls() {
        app.reach_as(&left.standing);
    }
    Ok(left)
}

impl Left<'_> {
    /// Whether an uninstall was interrupted, and is to be finished.
    fn uninstalls(&self) -> bool {
        let command = verb::UNINSTALL.command;
        !self.args.undo && self.standing.journal.as_ref().is_some_and(|journal| journal.header.command == command)
    }
}

impl pipeline::Change for Left<'_> {
    type Made = Made;

    fn judge(&self, app: &mut App, node: &mut dyn Node) -> Result<Option<RunResult>> {
        let standing = &self.standing;
        if let Some(journal) = &standing.journal {
            let from = standing.receipts.iter().find(|receipt| Some(receipt.generation) == journal.header.from);
            let is_made = journal.originals.is_empty() && from.is_some_and(|receipt| receipt.about.is_none());
            if self.args.undo && journal.header.command == verb::UNINSTALL.command && is_made {
                let what =
                    "the uninstall is made and cannot be undone: only what its flags remove besides Calico remains";
                return Err(Fault::new(Exit::Conflict, "UninstallMade", what)
                    .hint("finish it with: calicoctl-win resume\nthen install Calico again: calicoctl-win install")
                    .into());
            }
            return Ok(None);
        }
        // The process may have ended right after it removed the journal.
        retention::tidy(node, &mut |event| app.event(&event));
        match &self.cordon {
            Some(cordon) if is_of_uninstall(cordon, standing) => {
                cordon::keep(app, node)?;
                let msg = "nothing to do: the uninstall is over, and its Node stays cordoned";
                Ok(Some(RunResult::looked(false, msg)))
            }
            Some(_) => Ok(None),
            None => {
                if standing.receipt().is_some() && other_machine::owns_node_of(app, node, standing).is_none() {
                    let object = pods::object_of(app, node, standing);
                    converge::tell_again(&object, standing, &mut |event| app.event(&event));
                }
                let msg = "nothing to do: no run was interrupted";
                app.reporter.tell(msg);
                Ok(Some(RunResult::looked(false, msg)))
            }
        }
    }

    fn show(&mut self, app: &mut App, _: &dyn Node) -> Result<()> {
        match (&self.standing.journal, &self.cordon) {
            (Some(journal), _) => {
                app.reporter.tell(&format!("Interrupted: {journal}."));
                if let (Some(about), false) = (&journal.header.about, self.args.undo) {
                    let downgrade = Downgrade::between(self.standing.release(), &about.calico_version);
                    downgrade.iter().for_each(|downgrade| app.reporter.tell(&downgrade.to_string()));
                }
            }
            (None, Some(Cordon { command, run, since, node: name, .. })) => {
                app.reporter
                    .tell(&format!("Interrupted: {command} (run {run}, since {since:.0}), with node {name} cordoned."));
            }
            (None, None) => {}
        }
        // The interrupted run decided whether pods are moved away.
        Ok(())
    }

    fn would(self, app: &mut App) -> Result<Ending> {
        match (&self.standing.journal, &self.cordon) {
            (Some(journal), _) => app.would(format!("{} {journal}", if self.args.undo { "undo" } else { "finish" })),
            (None, Some(cordon)) if is_of_uninstall(cordon, &self.standing) => {
                app.would(format!("leave node {} cordoned, since Calico is gone", cordon.node))
            }
            (None, Some(cordon)) => app.would(format!("uncordon node {}", cordon.node)),
            (None, None) => {
                let msg = "no run was interrupted";
                app.reporter.tell(msg);
                Ending::result(RunResult::looked(false, msg))
            }
        }
    }

    fn ask(&self, app: &mut App, _: &dyn Node) -> Result<()> {
        app.confirm(match self.standing.journal {
            None => "Uncordon it?",
            _ if self.args.undo => "Undo it?",
            _ => "Finish it?",
        })
    }

    fn lease(&self, app: &mut App, node: &dyn Node) -> Result<Option<LeaseRenewer>> {
        let name = match (&self.standing.journal, &self.cordon) {
            (None, Some(cordon)) => Some(cordon.node.clone()),
            _ => self.standing.node_name().map(ToString::to_string),
        };
        name.map_or(Ok(None), |name| lease::take_if_possible(app, node, &name))
    }

    fn make(&mut self, app: &mut App, node: &mut dyn Node) -> Result<Made> {
        let standing = &self.standing;
        if self.uninstalls() {
            return remove(app, node, standing).map(|(applied, left)| Made::Uninstalled(applied, left));
        }
        if let Some(journal) = &standing.journal {
            return end(self.args, app, node, standing, journal).map(Made::Ended);
        }
        let cordon = self.cordon.as_ref().context("find what was interrupted")?;
        uncordon(app, node, standing, cordon).map(Made::Ended)
    }

    fn finish(self, app: &mut App, node: &mut dyn Node, lock: Lock, made: Made) -> Result<Ending> {
        match made {
            Made::Ended(ending) => Ok(ending),
            Made::Uninstalled(applied, left) => {
                let standing = &self.standing;
                let removal = standing.journal.as_ref().map(|journal| journal.header.terms.removal).unwrap_or_default();
                let gone = uninstall::Gone { removal, standing, applied, ruled: Vec::new(), left };
                uninstall::finish(gone, app, node, lock)
            }
        }
    }
}

/// Whether the Node is cordoned because Calico was uninstalled, and not because that failed.
fn is_of_uninstall(cordon: &Cordon, standing: &Standing) -> bool {
    cordon.command == verb::UNINSTALL.command && standing.receipt().is_none()
}

/// Finishes an uninstall, while the node is locked here and, if it answers, in the cluster.
fn remove(app: &mut App, node: &mut dyn Node, standing: &Standing) -> Result<(Applied, Vec<String>)> {
    let journal = standing.journal.as_ref();
    let theirs = other_machine::owns_node_of(app, node, standing);
    let object = match theirs {
        Some(_) => NodeObject::unknown(),
        None => pods::object_of(app, node, standing),
    };
    let works = |_: &mut dyn Node, _: &Target, _: Sink| Ok(());
    let applied = engine_of_interrupted(app, node, &object, |node, events| {
        converge::resume_proven(node, &object, &works, events)
    })?;
    if let Some(theirs) = theirs {
        app.warn("ClusterTracesLeft", format!("nothing is removed in the cluster: {theirs}"));
        return Ok((applied, Vec::new()));
    }
    let terms = journal.map(|journal| journal.header.terms.clone()).unwrap_or_default();
    // An older program stored it in a separate record.
    let drained =
        terms.drain.is_some() || Cordon::load(node)?.is_some_and(|left| left.command == verb::UNINSTALL.command);
    Ok((applied, uninstall::after(terms.removal, drained, app, node, standing)?))
}

/// Finishes or undoes the run, while the node is locked here and, if it answers, in the cluster.
fn end(args: &Resume, app: &mut App, node: &mut dyn Node, standing: &Standing, journal: &Journal) -> Result<Ending> {
    let object = pods::object_of(app, node, standing);
    let applied = if args.undo {
        engine_of_interrupted(app, node, &object, |node, events| converge::undo_with(node, &object, events))?
    } else {
        let works = Works::new(app, true);
        // Without an earlier generation, a failed change stays in place for diagnosis.
        let reverts = journal.header.from.is_some();
        let proof = |node: &mut dyn Node, target: &Target, events: Sink| {
            if reverts { works.services(node, target, events) } else { Ok(()) }
        };
        let applied = engine_of_interrupted(app, node, &object, |node, events| {
            converge::resume_proven(node, &object, &proof, events)
        })?;
        if !reverts {
            health_gate::ends_working(app, node, &journal.header.target, &applied)?;
        }
        health_gate::ends_ready(app, node, &journal.header.target, true, &applied)?;
        applied
    };
    cordon::release(app, node)?;
    let msg = match (args.undo, applied.generation) {
        (false, generation) => {
            let generation = generation.unwrap_or_default();
            format!("{} is finished; generation {generation} stands.", journal.header.command)
        }
        (true, Some(generation)) => {
            format!("{} is undone; generation {generation} stands again.", journal.header.command)
        }
        (true, None) => format!("{} is undone; the node is as it was before.", journal.header.command),
    };
    app.reporter.tell(&msg);
    let next = vec![app.command("status")];
    Ending::result(succeeded(app, node, &applied, msg, next))
}

/// Ends what remains of a run that ended between the cordon and its first change, or after its last.
fn uncordon(app: &mut App, node: &mut dyn Node, standing: &Standing, cordon: &Cordon) -> Result<Ending> {
    let Cordon { command, node: name, .. } = cordon;
    // If the cluster does not answer, the uncordon itself reports it.
    if let Some(receipt) = standing.receipt()
        && let Ok(Some(why)) = health_gate::keeps_pods_away(app, node, &receipt.target)
    {
        return Err(Fault::new(Exit::VerifyFailed, "NodeNotReady", format!("node {name} stays cordoned: {why}"))
            .hint("`calicoctl-win status` and `kubectl describe node` say more; then run this again")
            .into());
    }
    cordon::release(app, node)?;
    let msg = format!("{command} left nothing half-way on this machine; node {name} takes pods again.");
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, true, msg);
    result.generation = standing.receipt().map(|receipt| receipt.generation);
    result.next = vec![app.command("status")];
    Ending::result(result)
}
