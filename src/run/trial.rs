//! `reconfigure --mode try`: a change that is reverted automatically unless it is confirmed; and `confirm`, which keeps
//! it, or reverts it early. A guard, a separate process, watches it; after a boot CalicoNode starts a new guard, for
//! this, for a run that the boot interrupted, and for a Node that a run left cordoned.

use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::context::Operation;
use super::cordon::{self, After};
use super::ending::Outcome;
use super::engine;
use super::health_gate::Works;
use super::kubernetes;
use super::options::{Confirm, DrainFlags};
use super::pending_work;
use super::pipeline::{self, Done, Verb, report};
use super::sources::{Choice, access_of};
use super::verb::{CONFIRM, REVERT, REVERTS, Row};
use crate::agent::os::{self, Level};
use crate::agent::trial::{self, Trial};
use crate::apply::converge::{self, Change, unproven};
use crate::apply::cordon::Cordon;
use crate::apply::journal::Terms;
use crate::apply::receipt::Receipt;
use crate::apply::standing::{Applied, Standing};
use crate::apply::store;
use crate::cluster::{DrainOptions, Note};
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::plan::show::Plan;
use crate::report::event::Event;

/// The id for a trial whose revert is not tried any more, here and in the Event on the Node.
pub(crate) const GIVEN_UP: &str = "TrialGivenUp";

/// How long a request of the guard may take.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The most that a revert waits for pods to end.
const DRAIN_WITHIN: Duration = Duration::from_secs(120);

/// Records that the change which begins is on trial, and starts its guard: from here on the node is reverted even if
/// this process ends in the middle.
pub(crate) fn begin(op: &mut Operation<'_>, name: &str, within: Duration) -> Result<()> {
    let from = op.context.standing.receipt().map(|receipt| receipt.generation);
    let access = access_of(&op.context.run(op.node)?.connection);
    let trial = Trial {
        run: op.app.run.clone(),
        command: op.row.command.into(),
        node: name.to_owned(),
        from: from.context("find the generation to revert to")?,
        began: Timestamp::now(),
        confirm_within: within.as_secs().max(1),
        // A gateway that never answered says nothing by its silence.
        gateways: trial::gateways(op.node)?
            .into_iter()
            .filter(|gateway| !matches!(op.node.answers(*gateway), Ok(false)))
            .collect(),
        live: None,
        kubeconfig: access.kubeconfig,
        context: access.context,
        tries: 0,
        given_up: None,
    };
    trial.save(op.node)?;
    let sandbox = op.app.global.sandbox.as_deref();
    pending_work::start_guard(sandbox).inspect_err(|_| drop(Trial::forget(op.node)))
}

/// The change is made: reports until when it must be confirmed, and returns the commands for it.
pub(crate) fn is_live(op: &mut Operation<'_>) -> Result<Vec<String>> {
    let mut trial = Trial::load(op.node)?.context("find the trial that this run began")?;
    trial.live = Some(Timestamp::now());
    trial.save(op.node)?;
    let deadline = trial.deadline().unwrap_or(Timestamp::MAX);
    let command = op.app.command("confirm");
    op.app.event(&Event::ConfirmDeadline { deadline, command: command.clone() });
    Ok(vec![command, op.app.command("confirm --revert"), op.app.command("status")])
}

/// `confirm`: keeps the change, or reverts it early.
///
/// # Errors
/// `NotOnTrial`; and as [`pipeline::run`].
pub(crate) fn confirm(args: &Confirm, app: &mut App) -> Result<Ending> {
    // Not asked with the lock: the guard needs it.
    let trial = Trial::load(&*app.node()?)?.ok_or_else(not_on_trial)?;
    if app.global.is_dry_run() {
        return app.would(says(&trial, args.revert));
    }
    if args.revert {
        app.confirm("the node", &format!("Revert the change on {}?", trial.node), None)?;
        return revert(app, &REVERT);
    }
    keep(app, &CONFIRM)
}

fn not_on_trial() -> Fault {
    Fault::new(Exit::NotFound, "NotOnTrial", "no change is on trial here")
        .hint("see the node's state: calicoctl-win status")
}

/// Describes what would happen to a trial, for a dry run.
pub(crate) fn says(trial: &Trial, reverts: bool) -> String {
    match reverts {
        true => format!("revert the node to generation {}", trial.from),
        false => format!("keep what run {} changed", trial.run),
    }
}

/// Keeps a change that is on trial, or whose revert was given up.
pub(crate) fn keep(app: &mut App, row: &'static Row) -> Result<Ending> {
    pipeline::run(row, app, &Choice::default(), |op| Ok(Kept { trial: op.context.trial.clone() }))
}

/// Reverts the change on request.
pub(crate) fn revert(app: &mut App, row: &'static Row) -> Result<Ending> {
    pipeline::run(row, app, &Choice::default(), |op| {
        Ok(Reverted { trial: op.context.trial.clone(), why: "requested with confirm --revert".into(), by_guard: false })
    })
}

/// One try of the guard to revert; after the last one the trial is given up.
pub(crate) fn try_revert(app: &mut App, why: &str) -> Result<Ending> {
    pipeline::run(&REVERT, app, &Choice::default(), |op| {
        Ok(Reverted { trial: op.context.trial.clone(), why: why.to_owned(), by_guard: true })
    })
}

/// Another process was faster.
fn is_over() -> Option<Done> {
    Some(Done { after: After::Leave, ..Done::nothing(None, "the trial is over".into()) })
}

/// A change that is kept.
struct Kept {
    trial: Option<Trial>,
}

impl Verb for Kept {
    fn node_name(&self) -> &str {
        self.trial.as_ref().map_or("", |trial| &trial.node)
    }

    fn judge(&mut self, op: &mut Operation<'_>) -> Result<Option<Done>> {
        Ok(if self.trial.is_none() && op.row.command != CONFIRM.command { is_over() } else { None })
    }

    fn refuse(&self, _: &mut Operation<'_>) -> Result<()> {
        let trial = self.trial.as_ref().ok_or_else(not_on_trial)?;
        let late = |what: &str, hint: &str| Err(Fault::new(Exit::NotFound, "NotOnTrial", what).hint(hint).into());
        match trial.deadline() {
            // The guard does not revert it any more.
            _ if trial.is_tried_out() => Ok(()),
            None => late("the change is not complete yet", "wait for it with: calicoctl-win status --wait"),
            Some(deadline) if Timestamp::now() >= deadline => late(
                "the time to confirm the change is over, and it is being reverted",
                "wait for that with: calicoctl-win status --wait\nthen repeat the change",
            ),
            Some(_) => Ok(()),
        }
    }

    /// Undoes what an interrupted revert left.
    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let standing = &op.context.standing;
        let mut generation = standing.receipt().map(|receipt| receipt.generation);
        if let Some(journal) = &standing.journal {
            let object = op.context.current_object(op.node);
            let works = Works::new(op.app, true);
            let proof = works.proof(true, false);
            let undoes = journal.header.command == REVERTS;
            let ended = engine::run(op, &object, |node, events| match undoes {
                true => converge::undo(node, standing, &object, events),
                false => converge::resume(node, standing, &object, &proof, events),
            })?;
            generation = ended.generation;
        }
        Trial::forget(op.node)?;
        Ok(Applied { changed: 1, generation, downtime: Duration::ZERO })
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        let generation = applied.generation.unwrap_or_default();
        let msg = format!("The change on {} is kept (generation {generation}).", self.node_name());
        op.app.reporter.tell(&msg);
        let next = vec![op.app.command("status")];
        report(op, Done::new(&applied, msg, next))
    }
}

/// A change that is reverted.
struct Reverted {
    trial: Option<Trial>,
    why: String,
    /// The guard counts its tries.
    by_guard: bool,
}

impl Verb for Reverted {
    fn node_name(&self) -> &str {
        self.trial.as_ref().map_or("", |trial| &trial.node)
    }

    fn judge(&mut self, _: &mut Operation<'_>) -> Result<Option<Done>> {
        Ok(if self.trial.is_none() { is_over() } else { None })
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let mut trial = self.trial.clone().context("find the trial")?;
        if self.by_guard {
            // The power failed in the last try, or while giving up.
            if trial.is_tried_out() {
                return Err(give_up(op, trial, &Error::msg("the last try was interrupted"))?);
            }
            trial.tries += 1;
            trial.save(op.node)?;
        }
        let message = format!("{}: node {} reverts to generation {}", self.why, trial.node, trial.from);
        os::event_log(Level::Warning, &message);
        op.app.warn("TrialReverted", message);
        match bring_back(op, &trial) {
            Ok(applied) => {
                Trial::forget(op.node)?;
                Ok(applied)
            }
            Err(error) if self.by_guard && trial.is_tried_out() => Err(give_up(op, trial, &error)?),
            Err(error) => Err(error),
        }
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        let from = self.trial.as_ref().map(|trial| trial.from).unwrap_or_default();
        let msg = format!("{} is as generation {from} made it; the change was not kept.", self.node_name());
        op.app.reporter.tell(&msg);
        let next = vec![op.app.command("status")];
        report(op, Done::new(&applied, msg, next))
    }
}

/// Gives up the revert and reports it to administrators. If the change works, the Node is uncordoned. All of this may
/// be repeated, so the next guard finishes it after an interruption. Returns the error to report.
fn give_up(op: &mut Operation<'_>, mut trial: Trial, why: &Error) -> Result<Error> {
    let (name, from) = (trial.node.clone(), trial.from);
    let mut standing = Standing::load(op.node)?;
    // The last try left the services stopped and the CNI configuration withdrawn, although the change worked.
    if standing.journal.as_ref().is_some_and(|journal| journal.header.command == REVERTS) {
        let object = op.context.current_object(op.node);
        if let Err(error) = converge::undo(op.node, &standing, &object, &mut |event| op.app.event(&event)) {
            let message = format!("the try that failed cannot be undone either: {error:#}");
            op.app.event(&Event::Log { message });
        }
        standing = Standing::load(op.node)?;
    }
    let cluster = op.context.cluster(op.node).ok().map(|cluster| cluster.within(ANSWER_WITHIN));
    let recorded = Cordon::load(op.node)?.is_some();
    let cordoned = recorded || standing.journal.as_ref().is_some_and(|journal| journal.cordons().next().is_some());
    let works = || -> Result<bool> {
        let found = cluster.as_ref().map(|cluster| cluster.node(&name)).transpose()?.flatten();
        // kubelet takes the CNI configuration as a sign that the network is up.
        let world = standing.receipt().map(|receipt| &receipt.target.world);
        let mut confs = world.into_iter().flat_map(|world| world.keys()).filter(|id| matches!(id, Id::CniConf(_)));
        let published = confs.try_fold(false, |any, id| anyhow::Ok(any || op.node.get(id)?.is_some()))?;
        Ok(published && found.is_some_and(|node| node.ready))
    };
    let works = recorded && works().unwrap_or_default();
    let stays = if !cordoned {
        ""
    } else if works && cordon::end(op, &name, After::Uncordon, None).is_ok() {
        "; it is uncordoned, since it is Ready and its CNI configuration is published"
    } else {
        "; it stays cordoned"
    };
    let message = format!(
        "Node {name} could not be reverted to generation {from} in {} tries and has what run {} changed{stays}. Fix the \
         cause, then run: {}. The cause: {why:#}",
        trial.tries,
        trial.run,
        op.app.command("resume")
    );
    if let Some(Err(error)) = cluster
        .as_ref()
        .map(|cluster| cluster.tell_on_node(&name, &Note { warns: true, reason: GIVEN_UP, message: &message }))
    {
        op.app.event(&Event::Log { message: format!("node {name} has no Event about it: {error:#}") });
    }
    os::event_log(Level::Error, &message);
    op.app.warn(GIVEN_UP, message.clone());
    trial.given_up = Some(format!("{why:#}"));
    trial.save(op.node)?;
    op.app.record().outcome = Outcome::Stopped;
    Ok(Fault::new(Exit::FailedIncomplete, GIVEN_UP, message).into())
}

/// Brings the node to the generation before the trial, from any state. Continues without the API server; a step that
/// needs it is repeated at the next call.
fn bring_back(op: &mut Operation<'_>, trial: &Trial) -> Result<Applied> {
    let mut standing = op.context.standing.clone();
    if let Some(journal) = &standing.journal {
        // A run that ended in its drain starts again: the pods may have to stay this time.
        let goes_on = journal.header.command == REVERTS && !journal.is_draining();
        let object = op.context.current_object(op.node);
        engine::run(op, &object, |node, events| match goes_on {
            true => converge::resume(node, &standing, &object, &unproven, events),
            false => converge::undo(node, &standing, &object, events),
        })?;
        standing = Standing::load(op.node)?;
    }
    let former = former(&standing, trial)?;
    let about = former.about.as_ref().context("read what the generation was made from")?;
    if standing.receipt().is_some_and(|now| now.target.is_same(&former.target)) {
        let generation = standing.receipt().map(|now| now.generation);
        return Ok(Applied { changed: 0, generation, downtime: Duration::ZERO });
    }
    let (target, run) = (&former.target, op.app.run.clone());
    let steps = converge::plan(op.node, &standing, target)?;
    let kubelet = store::effective(op.node, former).ok().flatten().as_ref().and_then(kubernetes::version_in);
    let plan = Plan::new(&steps, target, true)
        .between(standing.release(), &about.calico_version)
        .with_kubelet(kubernetes::kubelet_minor(op.node, &standing, &steps, kubelet)?);
    op.app.announce(&plan);
    op.app.reporter.tell(&plan.text(op.app.global.verbose > 0));
    let object = op.context.object(op.node, &trial.node, None);
    let back = |op: &mut Operation<'_>, drain: Option<&DrainOptions>| {
        // The trial itself handles a start of Windows meanwhile.
        let terms = Terms { at_boot: None, drops_pods: drain.is_none(), ..op.context.terms(op.app, op.node, drain) };
        let change = Change { run: &run, command: REVERTS, target, about: Some(about), terms, shown: Some(&steps) };
        engine::run(op, &object, |node, events| converge::apply(node, &standing, &object, &change, &unproven, events))
    };
    if !plan.needs_drain {
        return back(op, None);
    }
    let drained = object.reach().and_then(|()| {
        let options = drain_options(op)?;
        back(op, Some(&options)).inspect_err(|_| object.ask_again())
    });
    match drained {
        Err(error) if op.app.record().outcome != Outcome::HalfWay => {
            let lose = if plan.replaces_network() { " and lose their network" } else { "" };
            op.app.warn("NotDrained", format!("pods remain on this node{lose}: {error:#}"));
            back(op, None)
        }
        ended => ended,
    }
}

fn former<'a>(standing: &'a Standing, trial: &Trial) -> Result<&'a Receipt> {
    standing.receipts.iter().find(|receipt| receipt.generation == trial.from).ok_or_else(|| {
        let what = format!("the receipt of generation {}, to which the trial must be reverted, is gone", trial.from);
        Fault::new(Exit::FailedIncomplete, "GenerationGone", what)
            .hint("keep the change with: calicoctl-win confirm\nor make the former one from its config")
            .into()
    })
}

/// Returns how the pods are moved away.
fn drain_options(op: &Operation<'_>) -> Result<DrainOptions> {
    let mut options = DrainFlags::default().over(&op.context.run(op.node)?.maintenance.drain);
    options.timeout = Some(options.timeout.map_or(DRAIN_WITHIN, |limit| limit.min(DRAIN_WITHIN)));
    Ok(options)
}
