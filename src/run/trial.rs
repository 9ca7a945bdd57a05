//! `reconfigure --mode try`: a change that is reverted automatically unless it is confirmed. A guard, a separate
//! process, watches it; after a boot CalicoNode starts a new guard, for this, for a run that the boot interrupted, and
//! for a Node that a run left cordoned.

use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::engine::{engine_of_interrupted, succeeded};
use super::health_gate::Works;
use super::options::{DrainFlags, Source};
use super::prepare::{Prepared, announce};
use super::verb::REVERT;
use super::{access, cordon, lease, left_over, pods};
use crate::agent::os::{self, Level};
use crate::agent::trial::{self, Trial};
use crate::apply::converge::{self, Change};
use crate::apply::cordon::Cordon;
use crate::apply::journal::Terms;
use crate::apply::node_object::{Access, NodeObject};
use crate::apply::receipt::Receipt;
use crate::apply::standing::{Applied, Standing};
use crate::cluster::{Cluster, DrainOptions};
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::Node;
use crate::plan::Target;
use crate::plan::show::Plan;
use crate::report::document::RunResult;
use crate::report::event::{Event, Sink};
use crate::settings;

/// The id for a trial whose revert is not tried any more, here and in the Event on the Node.
pub(crate) const GIVEN_UP: &str = "TrialGivenUp";

/// How long a request of the guard may take.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The most that a revert waits for pods to end.
const DRAIN_WITHIN: Duration = Duration::from_secs(120);

/// Records that the change which begins is on trial, and starts its guard: from here on the node is reverted even if
/// this process ends in the middle.
pub(crate) fn begin(
    app: &mut App,
    node: &mut dyn Node,
    prepared: &Prepared,
    command: &str,
    within: Duration,
) -> Result<()> {
    let from = prepared.standing.receipt().map(|receipt| receipt.generation);
    let access = access::of(&prepared.resolved.run.connection);
    let trial = Trial {
        run: app.run.clone(),
        command: command.into(),
        node: prepared.about.node_name.to_string(),
        from: from.context("find the generation to revert to")?,
        began: Timestamp::now(),
        confirm_within: within.as_secs().max(1),
        // A gateway that never answered says nothing by its silence.
        gateways: trial::gateways(node)?
            .into_iter()
            .filter(|gateway| !matches!(node.answers(*gateway), Ok(false)))
            .collect(),
        live: None,
        kubeconfig: access.kubeconfig,
        context: access.context,
        tries: 0,
        given_up: None,
    };
    trial.save(node)?;
    let sandbox = app.global.sandbox.clone();
    left_over::start_guard(sandbox.as_deref()).inspect_err(|_| drop(Trial::forget(node)))
}

/// The change is made: reports until when it must be confirmed, and returns the commands for it.
pub(crate) fn is_live(app: &mut App, node: &mut dyn Node) -> Result<Vec<String>> {
    let mut trial = Trial::load(node)?.context("find the trial that this run began")?;
    trial.live = Some(Timestamp::now());
    trial.save(node)?;
    let deadline = trial.deadline().unwrap_or(Timestamp::MAX);
    let command = app.command("confirm");
    app.event(&Event::ConfirmDeadline { deadline, command: command.clone() });
    Ok(vec![command, app.command("confirm --revert"), app.command("status")])
}

/// Ends a trial before it was live: the change failed, and was reverted.
pub(crate) fn ended_early(node: &dyn Node) -> Result<()> {
    if Standing::load(node)?.journal.is_none() { Trial::forget(node) } else { Ok(()) }
}

/// One try of the guard to revert; after the last one the trial is given up.
pub(crate) fn try_revert(app: &mut App, why: &str) -> Result<Ending> {
    let (mut node, _lock, _) = app.node_to_change("confirm")?;
    let Some(mut trial) = Trial::load(&*node)? else {
        return Ending::result(RunResult::new(Exit::Ok, false, "the trial is over"));
    };
    // The power failed in the last try, or while giving up.
    if trial.is_tried_out() {
        return give_up(app, &mut *node, trial, "the last try was interrupted");
    }
    trial.tries += 1;
    trial.save(&mut *node)?;
    match revert_as_run(app, &mut *node, &trial, why) {
        Err(error) if trial.is_tried_out() && Fault::id_of(&error) != "UncordonFailed" => {
            give_up(app, &mut *node, trial, &format!("{error:#}"))
        }
        ended => ended,
    }
}

/// Gives up the revert and reports it to administrators. If the change works, the Node is uncordoned. All of this may
/// be repeated, so the next guard finishes it after an interruption.
fn give_up(app: &mut App, node: &mut dyn Node, mut trial: Trial, why: &str) -> Result<Ending> {
    let (name, from) = (trial.node.clone(), trial.from);
    // The last try left the services stopped and the CNI configuration withdrawn, although the change worked.
    let standing = Standing::load(node)?;
    let object = pods::object_of(app, node, &standing);
    if standing.journal.is_some_and(|journal| journal.header.command == REVERT.command)
        && let Err(error) = converge::undo_with(node, &object, &mut |event| app.event(&event))
    {
        app.event(&Event::Log { message: format!("the try that failed cannot be undone either: {error:#}") });
    }
    let cluster = cordon::reach(app, node, &access(&trial), Some(ANSWER_WITHIN)).ok();
    let recorded = Cordon::load(node)?.is_some();
    let cordoned = recorded || Standing::load(node)?.journal.is_some_and(|journal| journal.cordons().next().is_some());
    let works = || -> Result<bool> {
        let ready = cluster.as_ref().map(|cluster| cluster.node(&name)).transpose()?.flatten();
        Ok(ready.is_some_and(|node| node.ready) && is_published(node)?)
    };
    let stays = if !cordoned {
        ""
    } else if recorded && works().unwrap_or_default() && cordon::release(app, node).is_ok() {
        "; it takes pods, since it is Ready and its CNI configuration is published"
    } else {
        "; it stays cordoned"
    };
    let message = format!(
        "Node {name} could not be reverted to generation {from} in {} tries and has what run {} changed{stays}. Fix the \
         cause, then run: {}. The cause: {why}",
        trial.tries,
        trial.run,
        app.command("resume")
    );
    if let Some(Err(error)) = cluster.as_ref().map(|cluster| cluster.warn_on_node(&name, GIVEN_UP, &message)) {
        app.event(&Event::Log { message: format!("node {name} has no Event about it: {error:#}") });
    }
    os::event_log(Level::Error, &message);
    app.warn(GIVEN_UP, message.clone());
    trial.given_up = Some(why.to_owned());
    trial.save(node)?;
    Err(Fault::new(Exit::FailedIncomplete, GIVEN_UP, message).into())
}

/// Whether kubelet may start pods: it takes the CNI configuration as a sign that the network is up.
fn is_published(node: &dyn Node) -> Result<bool> {
    let standing = Standing::load(node)?;
    let world = standing.receipt().map(|receipt| &receipt.target.world);
    let mut confs = world.into_iter().flat_map(|world| world.keys()).filter(|id| matches!(id, Id::CniConf(_)));
    confs.try_fold(false, |published, id| Ok(published || node.get(id)?.is_some()))
}

/// Reverts the change on request.
pub(crate) fn revert_now(app: &mut App, command: &'static str) -> Result<Ending> {
    let (mut node, _lock, _) = app.node_to_change(command)?;
    let Some(trial) = Trial::load(&*node)? else {
        return Ending::result(RunResult::new(Exit::Ok, false, "the trial is over"));
    };
    revert_as_run(app, &mut *node, &trial, "somebody asked for it")
}

/// Reverts the change, as a run of its own.
fn revert_as_run(app: &mut App, node: &mut dyn Node, trial: &Trial, why: &str) -> Result<Ending> {
    let message = format!("{why}: node {} reverts to generation {}", trial.node, trial.from);
    os::event_log(Level::Warning, &message);
    app.warn("TrialTakenBack", message);
    // The run that began the trial left its Lease to us. Without a cluster the node is reverted all the same.
    let keeper = lease::take_quickly(app, node, &trial.node).ok();
    let applied = revert(app, node, trial)?;
    Trial::forget(node)?;
    let uncordoned = cordon::release(app, node);
    lease::release(app, keeper);
    uncordoned?;
    let msg = format!("{} is as generation {} made it; the change was not kept.", trial.node, trial.from);
    app.reporter.tell(&msg);
    let next = vec![app.command("status")];
    Ending::result(succeeded(app, node, &applied, msg, next))
}

/// Describes what would happen to a trial, for a dry run.
pub(crate) fn says(trial: &Trial, back: bool) -> String {
    if back {
        format!("take the node back to generation {}", trial.from)
    } else {
        format!("keep what run {} changed", trial.run)
    }
}

/// Keeps a change whose revert was given up.
pub(crate) fn keep(app: &mut App, command: &'static str) -> Result<Ending> {
    let (mut node, _lock, standing) = app.node_to_change(command)?;
    match Trial::load(&*node)? {
        Some(trial) => kept(app, &mut *node, &standing?, &trial),
        None => Ending::result(RunResult::new(Exit::Ok, false, "the trial is over")),
    }
}

/// Keeps the change: undoes what an interrupted revert left, and uncordons the Node.
pub(crate) fn kept(app: &mut App, node: &mut dyn Node, standing: &Standing, trial: &Trial) -> Result<Ending> {
    if let Some(journal) = &standing.journal {
        let object = pods::object_of(app, node, standing);
        if journal.header.command == REVERT.command {
            engine_of_interrupted(app, node, &object, |node, events| converge::undo_with(node, &object, events))?;
        } else {
            let works = Works::new(app, true);
            let proof = |node: &mut dyn Node, target: &Target, events: Sink| works.services(node, target, events);
            engine_of_interrupted(app, node, &object, |node, events| {
                converge::resume_proven(node, &object, &proof, events)
            })?;
        }
    }
    // It expires by itself, so an API server that does not answer for a moment is no reason to fail.
    let keeper = lease::take_quickly(app, node, &trial.node).ok();
    Trial::forget(node)?;
    let uncordoned = cordon::release(app, node);
    lease::release(app, keeper);
    uncordoned?;
    let generation = Standing::load(node)?.receipt().map(|receipt| receipt.generation);
    let msg = format!("The change on {} is kept (generation {}).", trial.node, generation.unwrap_or_default());
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, true, msg);
    result.generation = generation;
    result.next = vec![app.command("status")];
    Ending::result(result)
}

/// Brings the node to the generation before the trial, from any state. Continues without the API server; a step that
/// needs it is repeated at the next call.
fn revert(app: &mut App, node: &mut dyn Node, trial: &Trial) -> Result<Applied> {
    let mut standing = Standing::load(node)?;
    if let Some(journal) = &standing.journal {
        // A run that ended in its drain starts again: the pods may have to stay this time.
        let back = journal.header.command == REVERT.command && !journal.is_draining();
        let object = pods::object_of(app, node, &standing);
        let mut events = |event: Event| app.event(&event);
        if back {
            converge::resume_proven(node, &object, &|_, _, _| Ok(()), &mut events)
        } else {
            converge::undo_with(node, &object, &mut events)
        }?;
        standing = Standing::load(node)?;
    }
    let former = former(&standing, trial)?.clone();
    let about = former.about.clone().context("read what the generation was made from")?;
    let mut applied =
        Applied { changed: 0, generation: standing.receipt().map(|now| now.generation), downtime: Duration::ZERO };
    if standing.receipt().is_none_or(|now| now.target != former.target) {
        let steps = converge::plan(node, &standing, &former.target)?;
        let plan = Plan::new(&steps, &former.target, true).between(standing.release(), &about.calico_version);
        announce(app, &plan);
        app.tell_plan(&plan);
        let cluster = cordon::reach(app, node, &access(trial), Some(ANSWER_WITHIN));
        let drains = plan.needs_drain.then(|| drains(app, node, cluster.as_ref()));
        let object = NodeObject::found(&trial.node, cluster);
        let run = app.run.clone();
        let back = |app: &mut App, node: &mut dyn Node, drain: Option<&DrainOptions>| {
            // The trial itself handles a start of Windows meanwhile.
            let mut terms = Terms { at_boot: None, ..app.terms(node, drain, None) };
            terms.access = access(trial);
            terms.drops_pods = drain.is_none();
            let target = &former.target;
            let change =
                Change { run: &run, command: REVERT.command, target, about: Some(&about), terms, shown: Some(&steps) };
            converge::apply_proven(node, &standing, &object, &change, &|_, _, _| Ok(()), &mut |event| app.event(&event))
        };
        let tried = match drains {
            Some(Ok(options)) => match back(app, node, Some(&options)) {
                Err(error) if Standing::load(node)?.is_draining() => {
                    converge::undo_with(node, &object, &mut |event| app.event(&event))?;
                    Err(error)
                }
                ended => Ok(ended?),
            },
            Some(Err(error)) => Err(error),
            None => Ok(back(app, node, None)?),
        };
        applied = match tried {
            Ok(applied) => applied,
            Err(error) => {
                app.warn("NotDrained", format!("pods stay on this node and lose their network: {error:#}"));
                object.ask_again();
                back(app, node, None)?
            }
        };
    }
    Ok(applied)
}

fn former<'a>(standing: &'a Standing, trial: &Trial) -> Result<&'a Receipt> {
    standing.receipts.iter().find(|receipt| receipt.generation == trial.from).ok_or_else(|| {
        let what = format!("the receipt of generation {}, which the trial is to be reverted to, is gone", trial.from);
        Fault::new(Exit::FailedIncomplete, "GenerationGone", what)
            .hint("keep the change with: calicoctl-win confirm\nor make the former one from its config")
            .into()
    })
}

/// Returns how the pods are moved away, if the cluster answers.
fn drains(app: &App, node: &dyn Node, cluster: Result<&Cluster, &Error>) -> Result<DrainOptions> {
    cluster.map_err(|error| anyhow!("{error:#}"))?.reach()?;
    let layered = app.config(node, &Source::default())?;
    let mut options = DrainFlags::default().over(&settings::run(&layered, None).maintenance.drain);
    options.timeout = Some(options.timeout.map_or(DRAIN_WITHIN, |limit| limit.min(DRAIN_WITHIN)));
    Ok(options)
}

/// Returns how the run that began the trial reached the cluster.
pub(crate) fn access(trial: &Trial) -> Access {
    Access { kubeconfig: trial.kubeconfig.clone(), context: trial.context.clone() }
}
