//! `rollback`, `repair` and `network reset`: restore a target, from its receipt and the store.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Ending;
use super::app::App;
use super::context::Operation;
use super::datastore;
use super::drain;
use super::health_gate::{self, Works};
use super::kubernetes;
use super::node_status::LOGIN_LOST;
use super::options::{DrainFlags, NetworkReset, Repair, Rollback};
use super::pipeline::{self, Done, Planned, Verb, report};
use super::prepare::{add_files_of, prepare};
use super::sources::{Choice, settings_diff};
use super::stage::{self, Purpose};
use super::verb::{self, Aim, Base, Row};
use crate::apply::converge;
use crate::apply::joining::lost_login;
use crate::apply::journal::Terms;
use crate::apply::receipt::{About, Receipt};
use crate::apply::standing::{Applied, Standing};
use crate::apply::store;
use crate::apply::user_files;
use crate::calico::services::Role;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, Tree};
use crate::node::Node;
use crate::paths::kubernetes as paths;
use crate::plan::Step;
use crate::plan::show::{self, Plan};
use crate::values::WinPath;

/// What the command line says about a change to an earlier target.
pub(crate) struct Restore<'a> {
    row: &'static Row,
    /// The number of the generation, if one was named.
    to: Option<u32>,
    drains: Option<bool>,
    drain: &'a DrainFlags,
}

impl<'a> From<&'a Rollback> for Restore<'a> {
    fn from(args: &'a Rollback) -> Self {
        Self { row: &verb::ROLLBACK, to: args.to, drains: args.no_drain.then_some(false), drain: &args.drain }
    }
}

impl<'a> Restore<'a> {
    /// The undo of a run that is made and waits for the cluster's VNI.
    pub fn of_waiting(drain: &'a DrainFlags) -> Self {
        Self { row: &verb::RESUME_FORMER, to: None, drains: None, drain }
    }
}

impl<'a> From<&'a Repair> for Restore<'a> {
    fn from(args: &'a Repair) -> Self {
        Self { row: &verb::REPAIR, to: None, drains: args.no_drain.then_some(false), drain: &args.drain }
    }
}

impl<'a> From<&'a NetworkReset> for Restore<'a> {
    fn from(args: &'a NetworkReset) -> Self {
        Self { row: &verb::RESET, to: None, drains: args.no_drain.then_some(false), drain: &args.drain }
    }
}

/// Restores the generation, or shows how.
///
/// # Errors
/// As [`pipeline::run`]; `NoSuchGeneration`, and `GenerationGone` when the store does not hold what it needs.
pub(crate) fn run<'a>(restore: impl Into<Restore<'a>>, app: &mut App) -> Result<Ending> {
    let restore = restore.into();
    pipeline::run(restore.row, app, &Choice::default(), |op| gather(&restore, op))
}

/// The planned change to a generation.
struct Restored {
    planned: Planned,
    /// Its number.
    number: u32,
    about: About,
    /// The HNS networks that are re-created.
    resets: BTreeSet<Id>,
}

fn gather(restore: &Restore<'_>, op: &mut Operation<'_>) -> Result<Restored> {
    let standing = &op.context.standing;
    check_standing(restore.row, standing)?;
    let now = installed(standing)?;
    let receipt = if restore.row.aim == Aim::Former { former(standing, now, restore.to)? } else { now };
    // Only kubelet makes it, so it is no step.
    if restore.row.aim == Aim::Current
        && let Some(lost) = lost_login(op.node, &receipt.target.world)
    {
        op.app.warn(LOGIN_LOST, lost);
    }
    planned(op, receipt, (restore.drains, restore.drain))
}

/// Checks that the node has what a verb starts from.
///
/// # Errors
/// `NotInstalled`; `InterruptedRun` if the verb does not end an interrupted run.
pub(crate) fn check_standing(row: &Row, standing: &Standing) -> Result<()> {
    match (row.aim, standing.interrupted()) {
        (Aim::Former | Aim::Current, Some(journal)) => Err(interrupted(format!("a run was interrupted: {journal}"))),
        (Aim::Former | Aim::Current, None) => installed(standing).map(drop),
        (Aim::Config(Base::Current), _) if standing.journal.is_none() => installed(standing).map(drop),
        _ => Ok(()),
    }
}

/// The error for a verb that does not end an interrupted run.
pub(crate) fn interrupted(what: impl Into<String>) -> anyhow::Error {
    Fault::new(Exit::Interrupted, "InterruptedRun", what)
        .hint("finish it with: calicoctl-win resume\nor undo it with: calicoctl-win resume --undo")
        .into()
}

/// Plans the change to a generation.
fn planned(
    op: &mut Operation<'_>,
    receipt: &Receipt,
    (drains, flags): (Option<bool>, &DrainFlags),
) -> Result<Restored> {
    let standing = &op.context.standing;
    let about = receipt.about.clone().context("read what the generation was made from")?;
    let resets: BTreeSet<Id> = {
        let networks = receipt.target.world.keys().filter(|id| is_reset(op.row) && matches!(id, Id::Network(_)));
        networks.cloned().collect()
    };
    let steps = converge::plan_with(op.node, standing, &receipt.target, &resets)?;
    let effective = store::effective(op.node, receipt).ok().flatten();
    let kubelet = effective.as_ref().and_then(kubernetes::version_in);
    let mut plan = Plan::new(&steps, &receipt.target, true)
        .between(standing.release(), &about.calico_version)
        .with_kubelet(kubernetes::kubelet_minor(op.node, standing, &steps, kubelet)?);
    let name = about.node_name.to_string();
    plan.pods = drain::attached(op.app, op.context, op.node, (&name, Duration::MAX), &steps)?;
    plan.settings_diff = settings_diff(op.node, standing.receipt(), &about, effective.as_ref());
    op.app.announce(&plan);
    let (target, flags) = (receipt.target.clone(), flags.clone());
    let planned = Planned { name, target, steps, plan, drains, flags, drain: None };
    Ok(Restored { planned, number: receipt.generation, about, resets })
}

impl Verb for Restored {
    fn node_name(&self) -> &str {
        &self.planned.name
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.planned.plan)
    }

    fn judge(&mut self, op: &mut Operation<'_>) -> Result<Option<Done>> {
        if self.planned.steps.is_empty() {
            let msg = if is_reset(op.row) {
                "nothing to do: there is no HNS network of Calico's, and this node needs none".to_owned()
            } else {
                format!("nothing to do: the node is as generation {} made it", self.number)
            };
            let generation = op.context.standing.receipt().map(|receipt| receipt.generation);
            return Ok(Some(Done::nothing(generation, msg)));
        }
        Ok(None)
    }

    fn refuse(&self, op: &mut Operation<'_>) -> Result<()> {
        match op.row.aim {
            Aim::Current => datastore::must_answer(op.app, op.node, &self.planned.steps),
            // An undo of a change that does not work is made in any case.
            Aim::Former if op.row.command == verb::ROLLBACK.command => {
                let (now, then) = (op.context.standing.release(), &self.about.calico_version);
                if now.is_some_and(|now| now.line() == then.line()) {
                    return Ok(());
                }
                datastore::may_run(op.app, op.node, then.line())
            }
            _ => Ok(()),
        }
    }

    fn show(&mut self, op: &mut Operation<'_>) -> Result<()> {
        self.planned.tell(op);
        if let Some(message) = without_kubelet(&op.context.standing, &self.planned.steps) {
            op.app.warn("KubeletRemoved", message);
        }
        if self.planned.steps.is_empty() {
            return Ok(());
        }
        if let Some(why) = Works::new(op.app, false).not_ready_before(op.node) {
            op.app.warn("NodeNotReady", format!("Node {} is not Ready: {why}", self.planned.name));
        }
        self.planned.decide_drain(op)
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        self.planned.would(op)
    }

    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        op.app.confirm("the node", &format!("Apply this to {}?", self.planned.name), None)
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        self.fill_store(op)?;
        let Self { planned, about, resets, .. } = self;
        let terms = Terms { resets: resets.clone(), ..planned.terms(op) };
        let (object, works) = (planned.object(op), planned.works(op));
        let proof = works.proof(health_gate::disturb(&planned.steps), false);
        let applied = planned.apply(op, &object, Some(about), &proof, terms)?;
        works.ends_ready(op, &planned.target)?;
        Ok(applied)
    }

    /// Only a run that is made, and left the Node cordoned, is rolled back.
    fn ends(&self, op: &Operation<'_>) -> &'static str {
        if op.row.aim == Aim::Former { "undone" } else { "replaced" }
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        let generation = applied.generation.unwrap_or_default();
        let (name, number) = (&self.planned.name, self.number);
        let msg = if is_reset(op.row) {
            format!("The HNS networks of {name} are re-created (now generation {generation}).")
        } else {
            format!("{name} is as generation {number} made it (now generation {generation}).")
        };
        op.app.reporter.tell(&msg);
        let next = vec![op.app.command("status")];
        report(op, Done::new(&applied, msg, next))
    }
}

/// What the administrator must know if kubelet's service, which is ours, is deleted and none replaces it.
fn without_kubelet(standing: &Standing, steps: &[Step]) -> Option<String> {
    let is_deleted = |step: &Step| matches!(step, Step::Put { id: Id::Service(name), after: None, .. } if name == Role::Kubelet.service());
    steps.iter().any(is_deleted).then(|| {
        let config = Id::File(WinPath::known(paths::KUBELET_CONFIG));
        // Its service was deleted before this program made one: no record has it.
        let former = match standing.owned().get(&config) {
            Some(Some(_)) => {
                "; the service of the kubelet before it was deleted by hand, and only its configuration is restored"
            }
            _ => "",
        };
        format!(
            "the service kubelet is deleted, and no kubelet runs on this machine then: its Node becomes NotReady{former}"
        )
    })
}

/// Whether the verb re-creates the HNS networks.
fn is_reset(row: &Row) -> bool {
    row.command == verb::RESET.command
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

/// Returns the named generation, or the newest earlier one with another target.
fn former<'a>(standing: &'a Standing, now: &Receipt, to: Option<u32>) -> Result<&'a Receipt> {
    let mut installed = standing.receipts.iter().rev().filter(|receipt| receipt.about.is_some());
    let found = match to {
        Some(number) => installed.find(|receipt| receipt.generation == number),
        None => installed.find(|receipt| receipt.generation < now.generation && !receipt.target.is_same(&now.target)),
    };
    let after = found.map_or(0, |receipt| receipt.generation);
    let skipped = |(generation, _): &&(u32, String)| (after..now.generation).contains(generation);
    if let (None, Some((generation, why))) = (to, standing.unreadable.iter().rev().find(skipped)) {
        let what = format!("generation {generation}, before this one, cannot be read: {why}");
        return Err(Fault::new(Exit::Failed, "ReceiptUnreadable", what)
            .hint("see the others with `calicoctl-win receipt list`\nand choose one: calicoctl-win rollback --to N")
            .into());
    }
    found.ok_or_else(|| {
        let which = to.map_or_else(|| "generation before this one".to_owned(), |number| format!("generation {number}"));
        no_such(standing, &which).into()
    })
}

/// The error for a generation that has no receipt.
pub(crate) fn no_such(standing: &Standing, which: &str) -> Fault {
    let known: Vec<String> = standing.receipts.iter().map(|receipt| receipt.generation.to_string()).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Fault::new(Exit::NotFound, "NoSuchGeneration", format!("there is no {which} on this node"))
        .hint(format!("generations that have a receipt: {known}; see them with: calicoctl-win receipt list"))
}

impl Restored {
    /// Adds everything that will be written to the store: files that are damaged on the node, or not stored, come from
    /// the archive if it still exists, else a repair downloads it again.
    fn fill_store(&self, op: &mut Operation<'_>) -> Result<()> {
        let Planned { steps, target, .. } = &self.planned;
        // Files of the user are stored when the run begins.
        let kept = user_files::with_kept(op.node, &op.context.standing, target)?.kept;
        let written = |step: &Step| match step {
            Step::Put { id, after: Some(state), .. } if !kept.contains(id) => Some(state.clone()),
            _ => None,
        };
        let missing = |node: &dyn Node| -> Vec<State> {
            steps.iter().filter_map(written).filter(|state| !store::holds(node, state)).collect()
        };
        let lacks_release = |lacking: &[State]| {
            lacking.iter().any(|state| matches!(state, State::Tree(Tree::Release(_)) | State::File { .. }))
        };
        // Each look computes the digests of a whole release.
        let mut lacking = missing(op.node);
        if lacks_release(&lacking)
            && let Some((manifest, tree)) = stage::again(op, &self.about)?
        {
            add_files_of(op.node, &manifest, &tree, target)?;
            lacking = missing(op.node);
        }
        if lacks_release(&lacking) && op.row.aim == Aim::Current {
            // The config that the generation was made with says where its release is.
            let context = op.context.on_current();
            let op = &mut Operation { app: &mut *op.app, context: &context, node: &mut *op.node, row: op.row };
            prepare(op, None, (None, &DrainFlags::default()), Purpose::Install)?.complete(op)?;
            lacking = missing(op.node);
        }
        let Some(state) = lacking.into_iter().next() else { return Ok(()) };
        let what = format!("the store does not hold what generation {} needs: {}", self.number, show::state(&state));
        Err(Fault::new(Exit::NotFound, "GenerationGone", what)
            .hint("re-create it from its config: calicoctl-win reconfigure -c FILE")
            .into())
    }
}
