//! `resume`: finishes an interrupted run, or undoes it.

use anyhow::{Context as _, Result};

use super::Ending;
use super::app::App;
use super::bring_back;
use super::change::await_vni;
use super::context::Operation;
use super::cordon::After;
use super::engine;
use super::generations::{self, Restore};
use super::health_gate::Works;
use super::options::{DrainFlags, Resume};
use super::pipeline::{self, Done, Verb, report};
use super::sources::Choice;
use super::trial;
use super::uninstall::RemovalOutcome;
use super::verb::{REPAIR, RESET, RESUME, RESUME_CONFIRM, RESUME_REVERT, UNINSTALL};
use super::verify;
use crate::agent::trial::Trial;
use crate::apply::converge::{self, unproven};
use crate::apply::cordon::{ClusterVni, Cordon};
use crate::apply::journal::Journal;
use crate::apply::node_object::NodeObject;
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::fault::{Exit, Fault};
use crate::plan::show::Downgrade;

/// Ends what an earlier run left half done, or shows it.
///
/// # Errors
/// As [`pipeline::run`]; `UninstallMade` if an uninstall is too far to be undone.
pub(crate) fn run(args: &Resume, app: &mut App) -> Result<Ending> {
    let mut look = app.node()?;
    verify::remove_left(app, &mut *look, false)?;
    // The revert of a trial may be the run that was not finished.
    let Some(trial) = Trial::load(&*look)?.filter(Trial::is_tried_out) else {
        let brings_back = args.undo && bring_back::is_due(&*look);
        let waits = args.undo && Journal::load(&*look)?.is_none() && awaited(Cordon::load(&*look)?.as_ref()).is_some();
        drop(look);
        if brings_back {
            return bring_back::run(app);
        }
        if waits {
            return generations::run(Restore::of_waiting(&DrainFlags::default()), app);
        }
        return pipeline::run(&RESUME, app, &Choice::default(), |op| gather(args.undo, op));
    };
    drop(look);
    if app.global.is_dry_run() {
        return app.would(trial::says(&trial, !args.undo));
    }
    app.reporter.tell(&format!("Not reverted: what run {} changed on trial.", trial.run));
    app.confirm("the node", if args.undo { "Keep it?" } else { "Undo it?" }, None)?;
    if args.undo { trial::keep(app, &RESUME_CONFIRM) } else { trial::revert(app, &RESUME_REVERT) }
}

/// What the Node stays cordoned for, once a run has made its change.
fn awaited(cordon: Option<&Cordon>) -> Option<ClusterVni> {
    cordon?.awaits.clone()
}

/// What an earlier run left.
struct Resumed {
    undo: bool,
    /// A Node that an ended run left cordoned.
    cordon: Option<Cordon>,
    name: String,
    /// An uninstall was interrupted, and must be finished.
    removes: bool,
    outcome: RemovalOutcome,
}

fn gather(undo: bool, op: &mut Operation<'_>) -> Result<Resumed> {
    let standing = &op.context.standing;
    let cordon = Cordon::load(op.node)?;
    let name = match (&standing.journal, &cordon) {
        (None, Some(cordon)) => cordon.node.clone(),
        _ => standing.node_name().map(ToString::to_string).unwrap_or_default(),
    };
    let removes = !undo && standing.journal.as_ref().is_some_and(is_of_uninstall);
    Ok(Resumed { undo, cordon, name, removes, outcome: RemovalOutcome::of(op) })
}

fn is_of_uninstall(journal: &Journal) -> bool {
    journal.header.command == UNINSTALL.command
}

impl Verb for Resumed {
    fn node_name(&self) -> &str {
        &self.name
    }

    fn judge(&mut self, op: &mut Operation<'_>) -> Result<Option<Done>> {
        let standing = &op.context.standing;
        if standing.journal.is_some() {
            return Ok(None);
        }
        // The process may have ended right after it removed the journal.
        retention::tidy(op.node, standing, &mut |event| op.app.event(&event));
        if let Some(cordon) = &self.cordon {
            let msg = "nothing to do: the uninstall is over, and its Node stays cordoned".to_owned();
            let after = After::Keep(format!(": kubectl uncordon {}, once it has a network again", cordon.node));
            let keeps = keeps(cordon, standing);
            return Ok(keeps.then(|| Done { after, ..Done::nothing(None, msg) }));
        }
        self.tell_again(op);
        let msg = "nothing to do: no run was interrupted".to_owned();
        Ok(Some(Done { after: After::Leave, ..Done::nothing(None, msg) }))
    }

    fn show(&mut self, op: &mut Operation<'_>) -> Result<()> {
        // The interrupted run decided whether pods are moved away.
        match (&op.context.standing.journal, &self.cordon) {
            (Some(journal), _) => {
                op.app.reporter.tell(&format!("Interrupted: {journal}."));
                if let (Some(about), false) = (&journal.header.about, self.undo) {
                    let downgrade = Downgrade::between(op.context.standing.release(), &about.calico_version);
                    downgrade.iter().for_each(|downgrade| op.app.reporter.tell(&downgrade.to_string()));
                }
            }
            (None, Some(cordon)) => op.app.reporter.tell(&format!("Interrupted: {cordon}.")),
            (None, None) => {}
        }
        Ok(())
    }

    fn refuse(&self, op: &mut Operation<'_>) -> Result<()> {
        let standing = &op.context.standing;
        if let Some(journal) = &standing.journal {
            let from = standing.receipts.iter().find(|receipt| Some(receipt.generation) == journal.header.from);
            let is_made = journal.originals.is_empty() && from.is_some_and(|receipt| receipt.about.is_none());
            if self.undo && is_of_uninstall(journal) && is_made {
                let what = "the uninstall is complete and cannot be undone: only what its flags remove besides Calico \
                            remains";
                return Err(Fault::new(Exit::NotFound, "UninstallMade", what)
                    .hint("finish it with: calicoctl-win resume\nthen install Calico again: calicoctl-win install")
                    .into());
            }
        }
        Ok(())
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        match (&op.context.standing.journal, &self.cordon) {
            (Some(journal), _) => op.app.would(format!("{} {journal}", if self.undo { "undo" } else { "finish" })),
            (None, Some(cordon)) if keeps(cordon, &op.context.standing) => {
                op.app.would(format!("leave node {} cordoned, since Calico is gone", cordon.node))
            }
            (None, Some(Cordon { node, awaits: Some(awaited), .. })) => {
                op.app.would(format!("wait for {awaited}, then uncordon node {node}"))
            }
            (None, Some(cordon)) => op.app.would(format!("uncordon node {}", cordon.node)),
            (None, None) => op.app.done(false, "no run was interrupted".into()),
        }
    }

    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        let question = match op.context.standing.journal {
            None if awaited(self.cordon.as_ref()).is_some() => "Wait for the cluster's VNI, and uncordon it?",
            None => "Uncordon it?",
            _ if self.undo => "Undo it?",
            _ => "Finish it?",
        };
        op.app.confirm("the node", question, None)
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        if self.removes {
            return self.remove(op);
        }
        match &op.context.standing.journal {
            Some(journal) => {
                let applied = end(op, self.undo, journal)?;
                if let Some(awaited) = journal.header.terms.cluster_vni.as_ref().filter(|_| !self.undo) {
                    await_vni(op, awaited)?;
                }
                Ok(applied)
            }
            None => self.check_uncordon(op),
        }
    }

    fn after(&self) -> After {
        self.outcome.after.clone().unwrap_or(After::Uncordon)
    }

    fn ends(&self, _: &Operation<'_>) -> &'static str {
        if self.undo { "undone" } else { "finished" }
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        let journal = op.context.standing.journal.as_ref();
        if let Some(journal) = journal.filter(|_| self.removes) {
            return std::mem::take(&mut self.outcome).finish(op, journal.header.terms.removal, applied);
        }
        let command = journal.map(|journal| journal.header.command.as_str());
        let msg = match (command, &self.cordon, self.undo, applied.generation) {
            (None, cordon, ..) => {
                let command = cordon.as_ref().map_or("the run", |cordon| &cordon.command);
                format!("{command} left nothing partially changed on this machine; node {} is uncordoned.", self.name)
            }
            (Some(_), _, false, None) if op.context.standing.brings_back => bring_back::IS_BACK.into(),
            (Some(command), _, false, generation) => {
                format!("{command} is finished; generation {} is current.", generation.unwrap_or_default())
            }
            (Some(command), _, true, Some(generation)) if [REPAIR.command, RESET.command].contains(&command) => {
                format!(
                    "A {command} restores the current generation, so there is nothing to undo: the node is as generation {generation} made it."
                )
            }
            (Some(command), _, true, Some(generation)) => {
                format!("{command} is undone; generation {generation} is current.")
            }
            (Some(command), _, true, None) => format!("{command} is undone; the node is as it was before."),
        };
        op.app.reporter.tell(&msg);
        let next = vec![op.app.command("status")];
        report(op, Done::new(&applied, msg, next))
    }
}

/// Whether the Node is cordoned because Calico was uninstalled, and not because that failed.
fn keeps(cordon: &Cordon, standing: &Standing) -> bool {
    cordon.command == UNINSTALL.command && standing.receipt().is_none()
}

/// Finishes or undoes the run.
fn end(op: &mut Operation<'_>, undo: bool, journal: &Journal) -> Result<Applied> {
    let (object, standing) = (op.context.current_object(op.node), &op.context.standing);
    if undo {
        return engine::run(op, &object, |node, events| converge::undo(node, standing, &object, events));
    }
    if journal.header.about.is_none() {
        // What another program installed is not ours to prove.
        let proof: converge::Proof = if standing.brings_back { &bring_back::has_address } else { &unproven };
        return engine::run(op, &object, |node, events| converge::resume(node, standing, &object, proof, events));
    }
    let works = Works::new(op.app, true);
    // Without an earlier generation, a failed change stays in place for diagnosis.
    let reverts = journal.header.from.is_some();
    let proof = works.proof(reverts, false);
    let applied = engine::run(op, &object, |node, events| converge::resume(node, standing, &object, &proof, events))?;
    if !reverts {
        works.ends_working(op, &journal.header.target)?;
    }
    works.ends_ready(op, &journal.header.target)?;
    Ok(applied)
}

impl Resumed {
    /// Finishes an uninstall.
    fn remove(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let standing = &op.context.standing;
        let theirs = op.context.other_machine(op.node, &self.name);
        let object = match theirs {
            Some(_) => NodeObject::unknown(),
            None => op.context.current_object(op.node),
        };
        let applied =
            engine::run(op, &object, |node, events| converge::resume(node, standing, &object, &unproven, events))?;
        let terms = standing.journal.as_ref().map(|journal| journal.header.terms.clone()).unwrap_or_default();
        // An older program stored it in a separate record.
        let drained =
            terms.drain.is_some() || Cordon::load(op.node)?.is_some_and(|left| left.command == UNINSTALL.command);
        self.outcome.clean_cluster(op, terms.removal, drained, theirs);
        Ok(applied)
    }

    /// Writes the settings' digest to the Node, if the run could not.
    fn tell_again(&self, op: &mut Operation<'_>) {
        let about = op.context.standing.receipt().and_then(|receipt| receipt.about.as_ref());
        if let Some(about) = about.filter(|_| op.context.other_machine(op.node, &self.name).is_none()) {
            let object = op.context.current_object(op.node);
            converge::tell_again(&object, about, &mut |event| op.app.event(&event));
        }
    }

    /// Ends what remains of a run that ended between the cordon and its first change, or after its last.
    fn check_uncordon(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let receipt = op.context.standing.receipt();
        // If the cluster does not answer, the uncordon itself reports it.
        if let Some(receipt) = receipt
            && let Ok(Some(why)) = Works::new(op.app, false).keeps_pods_away(op.node, &receipt.target)
        {
            self.outcome.after = Some(After::Leave);
            let what = format!("node {} stays cordoned: {why}", self.name);
            return Err(Fault::new(Exit::VerifyFailed, "NodeNotReady", what)
                .hint("`calicoctl-win status` and `kubectl describe node` say more; then run this again")
                .into());
        }
        self.cordon.as_ref().context("find what was interrupted")?;
        if let Some(awaited) = awaited(self.cordon.as_ref()) {
            self.outcome.after = Some(After::Leave);
            await_vni(op, &awaited)?;
            self.outcome.after = None;
        }
        self.tell_again(op);
        let generation = receipt.map(|receipt| receipt.generation);
        Ok(Applied { changed: 1, generation, downtime: std::time::Duration::ZERO })
    }
}
