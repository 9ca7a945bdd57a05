//! The pipeline of every change: gather, judge, show, refuse, ask, make, end, report. What a verb does at a stage is in its own
//! file; this one fixes the order, that none is skipped, and what all changes to a target have in common.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Error, Result};
use serde_json::json;

use super::app::App;
use super::context::Operation;
use super::cordon::{self, After};
use super::ending::Outcome;
use super::health_gate::{self, Works};
use super::options::DrainFlags;
use super::sources::Choice;
use super::verb::{Aim, Lease, Row};
use super::{Ending, drain, engine, lease, node_result, session0};
use crate::apply::converge::{self, Change};
use crate::apply::cordon::Cordon;
use crate::apply::journal::Terms;
use crate::apply::node_object::NodeObject;
use crate::apply::receipt::About;
use crate::apply::retention;
use crate::apply::standing::Applied;
use crate::cluster::lease::LeaseRenewer;
use crate::cluster::{DrainOptions, Note};
use crate::config::spec::RebootPolicy;
use crate::fault::{Exit, Fault};
use crate::plan::show::Plan;
use crate::plan::{Step, Target};
use crate::report::document::{RunResult, millis};
use crate::report::event::Event;

/// How long the cluster may take for an Event.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What a verb did, for its result.
pub(crate) struct Done {
    pub changed: bool,
    pub generation: Option<u32>,
    pub downtime: Duration,
    pub msg: String,
    /// The commands to run next.
    pub next: Vec<String>,
    pub after: After,
}

impl Done {
    /// The result of a change; the Node is uncordoned if a run of ours cordoned it.
    pub fn new(applied: &Applied, msg: String, next: Vec<String>) -> Self {
        let Applied { changed, generation, downtime } = *applied;
        Self { changed: changed > 0, generation, downtime, msg, next, after: After::Uncordon }
    }

    /// There is nothing to do.
    pub fn nothing(generation: Option<u32>, msg: String) -> Self {
        Self::new(&Applied { changed: 0, generation, downtime: Duration::ZERO }, msg, Vec::new())
    }
}

/// What a verb does at the stages of the pipeline.
pub(crate) trait Verb {
    /// The name of the Node that is changed; empty if it is unknown.
    fn node_name(&self) -> &str;

    /// The plan; none if what to do is decided already.
    fn plan(&self) -> Option<&Plan> {
        None
    }

    /// Returns the result if there is nothing to do.
    fn judge(&mut self, _: &mut Operation<'_>) -> Result<Option<Done>> {
        Ok(None)
    }

    /// Shows what is changed, and decides what happens to the pods.
    fn show(&mut self, _: &mut Operation<'_>) -> Result<()> {
        Ok(())
    }

    /// Refuses a change that may not be made, once it is shown. A dry run warns of it.
    fn refuse(&self, _: &mut Operation<'_>) -> Result<()> {
        Ok(())
    }

    /// Ends a dry run, once all is shown.
    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        op.app.would(op.row.command)
    }

    /// Asks for confirmation.
    fn ask(&self, _: &mut Operation<'_>) -> Result<()> {
        Ok(())
    }

    /// How other machines are kept from changing the Node meanwhile.
    fn lease(&self, op: &Operation<'_>) -> Lease {
        op.row.lease
    }

    /// Makes the change, while the node is locked here and in the cluster.
    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied>;

    /// What happens to the Node once the change is made.
    fn after(&self) -> After {
        After::Uncordon
    }

    /// How long the Lease is left to the next run on this machine, if it is.
    fn leaves_lease(&self, _: &Operation<'_>, _failed: bool) -> Option<Duration> {
        None
    }

    /// What the change is to the interrupted run before it.
    fn ends(&self, _: &Operation<'_>) -> &'static str {
        "replaced"
    }

    /// Reports the change.
    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending>;
}

/// Makes a change, or shows it. `gather` looks at node and cluster, checks, and plans.
///
/// # Errors
/// What prevents the change; and its failure, after which it is reverted or can be resumed.
pub(crate) fn run<V: Verb>(
    row: &'static Row,
    app: &mut App,
    choice: &Choice<'_>,
    gather: impl FnOnce(&mut Operation<'_>) -> Result<V>,
) -> Result<Ending> {
    let (mut node, context) = app.open(row, choice)?;
    let op = &mut Operation { app, context: &context, node: &mut *node, row };
    let revision = node_result::revision().filter(|_| !op.app.global.is_dry_run());
    let ended = go_through(op, gather);
    if let Some(revision) = revision {
        node_result::tell(op, &revision, &ended);
    }
    ended
}

/// Goes through the stages.
fn go_through<V: Verb>(op: &mut Operation<'_>, gather: impl FnOnce(&mut Operation<'_>) -> Result<V>) -> Result<Ending> {
    let row = op.row;
    let mut verb = gather(op)?;
    if op.app.global.is_dry_run() {
        verb.show(op)?;
        if let Err(error) = verb.refuse(op) {
            op.app.warn("WouldBeRefused", format!("this would be refused: {error:#}"));
        }
        return verb.would(op);
    }
    if let Some(done) = verb.judge(op)? {
        cordon::end(op, verb.node_name(), done.after.clone(), None)?;
        op.app.reporter.tell(&done.msg);
        return report(op, done);
    }
    verb.show(op)?;
    verb.refuse(op)?;
    verb.ask(op)?;
    if let Some(plan) = verb.plan().filter(|plan| session0::is_due(op.app, plan)) {
        return session0::stay(op, plan);
    }
    session0::take_over(op.app, verb.plan())?;
    let keeper = lease::take(op, verb.node_name(), verb.lease(op))?;
    let left = match &op.context.standing.journal {
        Some(journal) => Some(journal.header.run.clone()),
        None => Cordon::load(op.node)?.map(|cordon| cordon.run),
    };
    let made = match verb.make(op) {
        Ok(applied) => cordon::end(op, verb.node_name(), verb.after(), keeper.as_ref()).map(|()| applied),
        Err(error) if matches!(verb.after(), After::Leave) || !row.reverts => Err(error),
        Err(error) => Err(failed(op, verb.node_name(), keeper.as_ref(), error)),
    };
    if let (Ok(_), Some(run)) = (&made, left) {
        op.app.record().note["ends"] = json!({ "run": run, "how": verb.ends(op) });
    }
    if let Some(keeper) = keeper {
        tell_node(op, verb.node_name(), &made);
        lease::release(op.app, keeper, verb.leaves_lease(op, made.is_err()));
    }
    verb.finish(op, made?)
}

/// Says on the Node how a run ended that changed something, for `kubectl describe node`. Nobody who may not do that
/// needs it.
fn tell_node(op: &mut Operation<'_>, name: &str, made: &Result<Applied>) {
    /// In bytes: `NoteLengthLimit` of Kubernetes' validation of Events.
    const LONGEST: usize = 1024;
    if !op.app.record().changed.load(Relaxed) {
        return;
    }
    let (command, run) = (op.row.command, &op.app.run);
    let (reason, mut message) = match made {
        Ok(Applied { generation: Some(generation), .. }) => {
            ("CalicoChanged", format!("{command}: generation {generation} is current (run {run})"))
        }
        Ok(_) if op.row.aim == Aim::Nothing => ("CalicoChanged", format!("{command}: Calico is removed (run {run})")),
        Ok(_) => return,
        Err(error) => ("CalicoChangeFailed", format!("{command} failed (run {run}): {error:#}")),
    };
    message.truncate(message.floor_char_boundary(LONGEST));
    let note = Note { warns: made.is_err(), reason, message: &message };
    let told = op.context.cluster(op.node).and_then(|cluster| cluster.within(ANSWER_WITHIN).tell_on_node(name, &note));
    if let Err(error) = told {
        op.app.event(&Event::Log { message: format!("node {name} has no Event about this run: {error:#}") });
    }
}

/// After a change that failed: if the machine is as before, deletes what was stored for it, and uncordons the Node.
/// Returns the error to report.
fn failed(op: &mut Operation<'_>, name: &str, keeper: Option<&LeaseRenewer>, error: Error) -> Error {
    let outcome = op.app.record().outcome;
    if outcome == Outcome::Untouched {
        retention::tidy(op.node, &op.context.standing, &mut |event| op.app.event(&event));
    }
    if !matches!(outcome, Outcome::Untouched | Outcome::Undone) {
        return error;
    }
    let failed_phase = op.app.reporter.failed_phase;
    match cordon::end(op, name, After::Uncordon, keeper) {
        Ok(()) => {
            op.app.reporter.failed_phase = failed_phase;
            error
        }
        Err(second) => match second.downcast::<Fault>() {
            Ok(fault) => error.context(fault),
            Err(second) => error.context(format!("{second:#}")),
        },
    }
}

/// Returns the result of a run that succeeded. If Windows must restart before everything is removed, warns, and puts the
/// restart first.
pub(crate) fn report(op: &mut Operation<'_>, done: Done) -> Result<Ending> {
    let Done { changed, generation, downtime, msg, mut next, .. } = done;
    let needs_reboot = op.app.record().needs_reboot;
    let policy = if needs_reboot { op.context.reboot(op.node).policy } else { RebootPolicy::Never };
    let exit = match policy {
        RebootPolicy::Never => Exit::Ok,
        RebootPolicy::Request => Exit::RebootRequired,
        RebootPolicy::Now => match op.node.restart("calicoctl-win: Windows restarts, as reboot.policy says") {
            Ok(()) => Exit::RebootStarted,
            Err(error) => {
                op.app.warn("RebootNotStarted", format!("Windows does not restart by itself: {error:#}"));
                Exit::RebootRequired
            }
        },
    };
    if exit == Exit::RebootRequired {
        next.insert(0, "Restart-Computer".into());
    }
    let mut result = RunResult::new(exit, changed, msg);
    (result.generation, result.downtime_ms, result.next) = (generation, millis(downtime), next);
    Ending::result(result)
}

/// A change to a target: everything that is known before anything is changed.
pub(crate) struct Planned {
    /// The name of the Node; empty if it is unknown.
    pub name: String,
    pub target: Target,
    pub steps: Vec<Step>,
    pub plan: Plan,
    /// Whether the user asked for a drain, or for none; the config decides otherwise.
    pub drains: Option<bool>,
    pub flags: DrainFlags,
    /// How the node is drained, if it is.
    pub drain: Option<DrainOptions>,
}

impl Planned {
    /// Shows the plan.
    pub fn tell(&self, op: &mut Operation<'_>) {
        let text = self.plan.text(op.app.global.verbose > 0);
        op.app.reporter.tell(&text);
    }

    /// Decides whether the node is drained first, and shows which pods are evicted. The cluster is asked only then.
    ///
    /// # Errors
    /// What blocks the drain, or the change after it; nothing was changed.
    pub fn decide_drain(&mut self, op: &mut Operation<'_>) -> Result<()> {
        let removes = op.row.aim == Aim::Nothing;
        let needs = if removes { drain::loses_pods(&self.plan) } else { self.plan.needs_drain };
        let wanted = match self.drains {
            Some(drains) => Some(drains),
            None => op.context.run(op.node)?.maintenance.drain.enabled,
        };
        if !wanted.unwrap_or(needs) {
            if needs {
                if let Some(kubelet) = &self.plan.kubelet_minor {
                    op.app.warn("NotDrained", format!("the pods on this node remain: {kubelet}"));
                }
                if self.plan.kubelet_minor.is_none() || self.plan.replaces_network() {
                    op.app.warn(
                        "NotDrained",
                        "the pods on this node lose their network: those with a controller are deleted, so that it \
                         re-creates them; the others must be deleted by hand",
                    );
                }
            }
            return Ok(());
        }
        let options = self.flags.over(&op.context.run(op.node)?.maintenance.drain);
        let cluster = op.context.cluster(op.node)?;
        let plan = drain::show(op.app, cluster, &self.name, &options)?;
        drain::check(&self.plan.pods, &plan.evicted, cluster)?;
        self.drain = Some(options);
        Ok(())
    }

    /// Ends a dry run: with the plan, and no change.
    pub fn would(&mut self, op: &Operation<'_>) -> Result<Ending> {
        let msg = format!("dry run: {}", self.plan.counts());
        let mut result = RunResult::looked(!self.plan.changes.is_empty(), msg);
        let generation = op.context.standing.receipt().map(|receipt| receipt.generation);
        result.generation = generation.filter(|_| op.row.aim != Aim::Nothing);
        result.plan = Some(self.plan.clone());
        Ending::result(result)
    }

    /// The Node as the engine changes it.
    pub fn object(&self, op: &Operation<'_>) -> NodeObject {
        op.context.object(op.node, &self.name, self.drain.as_ref())
    }

    /// The options of the run. Without a drain, pods lose a network that is deleted; before there is a generation of
    /// ours, such a change is refused.
    pub fn terms(&self, op: &Operation<'_>) -> Terms {
        let may_be_ours = op.row.aim == Aim::Nothing || op.context.standing.receipt().is_some();
        let drops_pods = op.row.drains && self.drain.is_none() && may_be_ours;
        Terms { drops_pods, ..op.context.terms(op.app, op.node, self.drain.as_ref()) }
    }

    /// How it is checked whether the changed node works.
    pub fn works(&self, op: &Operation<'_>) -> Works {
        Works::new(op.app, health_gate::restart(&self.steps))
    }

    /// Makes the change, proves it, and reverts it if either fails. `about`: what the target is made from; none for an
    /// uninstall.
    ///
    /// # Errors
    /// As [`engine::run`].
    pub fn apply(
        &self,
        op: &mut Operation<'_>,
        object: &NodeObject,
        about: Option<&About>,
        proof: converge::Proof,
        terms: Terms,
    ) -> Result<Applied> {
        let (run, standing, target) = (op.app.run.clone(), &op.context.standing, &self.target);
        let shown = Some(self.steps.as_slice());
        let change = Change { run: &run, command: op.row.command, target, about, terms, shown };
        engine::run(op, object, |node, events| converge::apply(node, standing, object, &change, proof, events))
    }
}
