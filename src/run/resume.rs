//! `resume`: finishes an interrupted run, or undoes it.

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::cordon;
use super::engine::{engine_of_interrupted, succeeded};
use super::health_gate::{self, Works};
use super::options::Resume;
use super::verb::{RESUME, UNINSTALL};
use super::{lease, other_machine, pods, trial, uninstall};
use crate::agent::trial::Trial;
use crate::apply::converge;
use crate::apply::cordon::Cordon;
use crate::apply::journal::Journal;
use crate::apply::node_object::NodeObject;
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::Target;
use crate::plan::show::Downgrade;
use crate::report::document::RunResult;
use crate::report::event::Sink;

pub(crate) fn run(args: &Resume, app: &mut App) -> Result<Ending> {
    if app.global.dry_run {
        let node = app.node()?;
        let given_up = Trial::load(&*node)?.filter(Trial::is_tried_out);
        if let Some(trial) = given_up {
            return app.would(trial::says(&trial, !args.undo));
        }
        let standing = Standing::load(&*node)?;
        let msg = match (&standing.journal, Cordon::load(&*node)?) {
            (Some(journal), _) => {
                format!("dry run: would {} {}", if args.undo { "undo" } else { "finish" }, journal)
            }
            (None, Some(cordon)) if is_of_uninstall(&cordon, &standing) => {
                format!("dry run: would leave node {} cordoned, since Calico is gone", cordon.node)
            }
            (None, Some(cordon)) => format!("dry run: would uncordon node {}", cordon.node),
            (None, None) => {
                let msg = "no run was interrupted";
                app.reporter.tell(msg);
                return Ending::result(RunResult::looked(false, msg));
            }
        };
        app.reporter.tell(&msg);
        return Ending::result(RunResult::looked(true, msg));
    }
    // The way back from a trial is the run that was not finished.
    let look = app.node()?;
    let given_up = Trial::load(&*look)?.filter(Trial::is_tried_out);
    drop(look);
    if let Some(trial) = given_up {
        app.reporter.tell(&format!("Not reverted: what run {} changed on trial.", trial.run));
        app.confirm(if args.undo { "Keep it?" } else { "Undo it?" })?;
        return if args.undo { trial::keep(app, "resume") } else { trial::go_back(app, "resume") };
    }
    let (mut node, lock) = app.node_to_change(RESUME)?;
    let standing = Standing::load(&*node)?;
    let Some(journal) = standing.journal.clone() else {
        if let Some(cordon) = Cordon::load(&*node)? {
            if is_of_uninstall(&cordon, &standing) {
                cordon::keep(app, &*node)?;
                let msg = "nothing to do: the uninstall is over, and its Node stays cordoned";
                return Ending::result(RunResult::looked(false, msg));
            }
            let name = cordon.node.clone();
            return lease::hold(app, &mut *node, &name, |app, node| uncordon(app, node, &cordon));
        }
        retention::tidy(&*node, &mut |event| app.event(&event));
        if standing.receipt().is_some() && other_machine::owns_node_of(app, &*node, &standing).is_none() {
            let object = pods::object_of(app, &*node, &standing);
            converge::tell_again(&object, &standing, &mut |event| app.event(&event));
        }
        let msg = "nothing to do: no run was interrupted";
        app.reporter.tell(msg);
        return Ending::result(RunResult::looked(false, msg));
    };
    let from = standing.receipts.iter().find(|receipt| Some(receipt.generation) == journal.header.from);
    let is_made = journal.originals.is_empty() && from.is_some_and(|receipt| receipt.about.is_none());
    if args.undo && journal.header.command == UNINSTALL && is_made {
        let what = "the uninstall is made and cannot be undone: only what its flags remove besides Calico remains";
        return Err(Fault::new(Exit::Conflict, "UninstallMade", what)
            .hint("finish it with: calicoctl-win resume; then install Calico again: calicoctl-win install")
            .into());
    }
    app.reporter.tell(&format!("Interrupted: {}.", journal));
    if let (Some(about), false) = (&journal.header.about, args.undo) {
        let downgrade = Downgrade::between(standing.release(), &about.calico_version);
        downgrade.iter().for_each(|downgrade| app.reporter.tell(&downgrade.to_string()));
    }
    app.confirm(if args.undo { "Undo it?" } else { "Finish it?" })?;
    if journal.header.command == UNINSTALL && !args.undo {
        app.reach_as(&standing);
        let removed = match standing.node_name() {
            Some(name) => lease::hold(app, &mut *node, name.as_str(), |app, node| remove(app, node, &standing)),
            None => remove(app, &mut *node, &standing),
        };
        let (applied, left) = removed?;
        let removal = journal.header.terms.removal;
        let gone = uninstall::Gone { removal, standing: &standing, applied, ruled: Vec::new(), left };
        return uninstall::finish(gone, app, &mut *node, lock);
    }
    match standing.node_name() {
        Some(name) => lease::hold(app, &mut *node, name.as_str(), |app, node| end(args, app, node, &journal)),
        None => end(args, app, &mut *node, &journal),
    }
}

/// Whether the Node is cordoned since Calico was taken off, and not since that failed.
fn is_of_uninstall(cordon: &Cordon, standing: &Standing) -> bool {
    cordon.command == UNINSTALL && standing.receipt().is_none()
}

/// Finishes an uninstall, with the node locked here and, where it can be asked, in the cluster.
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
    // An older program left it in its own record.
    let drained = terms.drain.is_some() || Cordon::load(node)?.is_some_and(|left| left.command == UNINSTALL);
    Ok((applied, uninstall::after(terms.removal, drained, app, node, standing)?))
}

/// Finishes or undoes the run, with the node locked here and, where it can be asked, in the cluster.
fn end(args: &Resume, app: &mut App, node: &mut dyn Node, journal: &Journal) -> Result<Ending> {
    let object = pods::object_of(app, node, &Standing::load(node)?);
    let applied = if args.undo {
        engine_of_interrupted(app, node, &object, |node, events| converge::undo_with(node, &object, events))?
    } else {
        let works = Works::new(app, true);
        // What has no generation before it stands, for somebody to look at.
        let goes_back = journal.header.from.is_some();
        let proof = |node: &mut dyn Node, target: &Target, events: Sink| {
            if goes_back { works.services(node, target, events) } else { Ok(()) }
        };
        let applied = engine_of_interrupted(app, node, &object, |node, events| {
            converge::resume_proven(node, &object, &proof, events)
        })?;
        if !goes_back {
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

/// What is left of a run that ended between the cordon and its first touch, or after its last.
fn uncordon(app: &mut App, node: &mut dyn Node, cordon: &Cordon) -> Result<Ending> {
    let Cordon { command, run, since, node: name, .. } = cordon;
    app.reporter.tell(&format!("Interrupted: {command} (run {run}, since {since:.0}), with node {name} cordoned."));
    app.confirm("Uncordon it?")?;
    let standing = Standing::load(node)?;
    // Where nobody can be asked, the uncordon itself says so.
    if let Some(receipt) = standing.receipt()
        && let Ok(Some(why)) = health_gate::keeps_pods_away(app, node, &receipt.target)
    {
        return Err(Fault::new(Exit::VerifyFailed, "NodeNotReady", format!("node {name} stays cordoned: {why}"))
            .hint("calicoctl-win status and kubectl describe node say more; then run this again")
            .into());
    }
    cordon::release(app, node)?;
    let msg = format!("{command} left nothing half-way on this machine; node {name} takes pods again.");
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, true, msg);
    result.generation = Standing::load(node)?.receipt().map(|receipt| receipt.generation);
    result.next = vec![app.command("status")];
    Ending::result(result)
}
