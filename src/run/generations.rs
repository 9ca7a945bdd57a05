//! `rollback` and `repair`: restore an earlier target, from its receipt and the store.

use anyhow::{Context, Result};

use super::Ending;
use super::app::App;
use super::cordon;
use super::datastore;
use super::drain;
use super::engine::{self, Agreed, installed, succeeded};
use super::health_gate;
use super::lease;
use super::options::{DrainFlags, Repair, Rollback, Source};
use super::pipeline;
use super::pods;
use super::prepare::{add_files_of, announce, prepare};
use super::saved;
use super::stage::{self, Purpose};
use super::standing::{settings_diff, start_from};
use super::verb::{self, Goal, Row};
use crate::apply::converge;
use crate::apply::lock::Lock;
use crate::apply::receipt::{About, Receipt};
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::apply::store;
use crate::cluster::lease::LeaseRenewer;
use crate::fault::{Exit, Fault};
use crate::item::{State, Tree};
use crate::node::Node;
use crate::plan::Step;
use crate::plan::show::Plan;
use crate::report::document::RunResult;
use crate::settings;

/// What the command line says about a change to an earlier target.
pub(crate) struct Back<'a> {
    row: &'static Row,
    /// The number of the generation, if one was named.
    to: Option<u32>,
    no_drain: bool,
    drain: &'a DrainFlags,
}

impl<'a> From<&'a Rollback> for Back<'a> {
    fn from(args: &'a Rollback) -> Self {
        Self { row: &verb::ROLLBACK, to: args.to, no_drain: args.no_drain, drain: &args.drain }
    }
}

impl<'a> From<&'a Repair> for Back<'a> {
    fn from(args: &'a Repair) -> Self {
        Self { row: &verb::REPAIR, to: None, no_drain: args.no_drain, drain: &args.drain }
    }
}

/// Restores the generation, or shows how.
///
/// # Errors
/// As [`pipeline::run`]; `NoSuchGeneration`, and `GenerationGone` when the store does not hold what it needs.
pub(crate) fn run<'a>(back: impl Into<Back<'a>>, app: &mut App) -> Result<Ending> {
    let back = back.into();
    pipeline::run(back.row, app, |app, node, standing, _| gather(back, app, node, standing))
}

/// The planned change to a generation.
struct Way<'a> {
    back: Back<'a>,
    standing: Standing,
    /// The generation whose target is wanted.
    receipt: Receipt,
    about: About,
    steps: Vec<Step>,
    plan: Plan,
    /// How the node is to be drained, if it is.
    drain: Option<drain::Planned>,
}

fn gather<'a>(back: Back<'a>, app: &mut App, node: &mut dyn Node, standing: Standing) -> Result<Way<'a>> {
    let now = standing_receipt(&standing)?;
    let receipt = if back.row.goal == Goal::Former { former(&standing, now, back.to)? } else { now }.clone();
    let about = receipt.about.clone().context("read what the generation was made from")?;
    let steps = converge::plan(node, &standing, &receipt.target)?;
    let mut plan = Plan::new(&steps, &receipt.target, true).between(standing.release(), &about.calico_version);
    plan.pods =
        pods::attached(app, node, &steps, |app| app.configured_cluster(node)?.1.pods_on(about.node_name.as_str()))?;
    let effective = store::effective(node, &receipt).ok().flatten();
    plan.settings_diff = settings_diff(node, standing.receipt(), &about, effective.as_ref());
    announce(app, &plan);
    Ok(Way { back, standing, receipt, about, steps, plan, drain: None })
}

impl pipeline::Change for Way<'_> {
    type Made = Applied;

    fn judge(&self, app: &mut App, node: &mut dyn Node) -> Result<Option<RunResult>> {
        if self.steps.is_empty() {
            cordon::release(app, node)?;
            let msg = format!("nothing to do: the node is as generation {} made it", self.receipt.generation);
            app.reporter.tell(&msg);
            let mut result = RunResult::new(Exit::Ok, false, msg);
            result.generation = self.standing.receipt().map(|receipt| receipt.generation);
            return Ok(Some(result));
        }
        if self.back.row.goal == Goal::Current {
            datastore::must_answer(app, node, &self.steps)?;
        }
        Ok(None)
    }

    fn show(&mut self, app: &mut App, node: &dyn Node) -> Result<()> {
        app.tell_plan(&self.plan);
        if self.steps.is_empty() {
            return Ok(());
        }
        let name = self.about.node_name.as_str();
        if let Some(why) = health_gate::not_ready_before(app, node) {
            app.warn("NodeNotReady", format!("Node {name} is not Ready: {why}"));
        }
        let maintenance = settings::run(&*app.config(node, &Source::default())?, None).maintenance;
        let wanted = if self.back.no_drain { Some(false) } else { maintenance.drain.enabled };
        let options = self.back.drain.over(&maintenance.drain);
        let pods = (self.plan.needs_drain, self.plan.pods.as_slice());
        let mut reach = None;
        let options =
            drain::before(app, name, pods, wanted, options, |app| Ok(&reach.insert(app.configured_cluster(node)?).1))?;
        let planned =
            |(options, (connection, cluster))| drain::Planned { name: name.to_owned(), connection, cluster, options };
        self.drain = options.zip(reach).map(planned);
        Ok(())
    }

    fn would(self, _: &mut App) -> Result<Ending> {
        saved::dry_run(self.plan, self.standing.receipt().map(|receipt| receipt.generation))
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.plan)
    }

    fn ask(&self, app: &mut App, _: &dyn Node) -> Result<()> {
        app.confirm(&format!("Apply this to {}?", self.about.node_name))
    }

    fn lease(&self, app: &mut App, node: &dyn Node) -> Result<Option<LeaseRenewer>> {
        lease::take_if_possible(app, node, self.about.node_name.as_str())
    }

    fn make(&mut self, app: &mut App, node: &mut dyn Node) -> Result<Applied> {
        let Self { back, standing, receipt, about, steps, drain, .. } = &*self;
        if let Err(error) = self.fill_store(app, node) {
            retention::tidy(node, &mut |event| app.event(&event));
            return Err(error);
        }
        let target = &receipt.target;
        let terms = drain::Planned::terms(drain.as_ref(), app, node);
        let object = drain.as_ref().map_or_else(|| pods::object_of(app, node, standing), drain::Planned::object);
        let agreed = Agreed {
            command: back.row.command,
            target,
            about: Some(about),
            steps,
            terms,
            proves_services: health_gate::disturb(steps),
            proves_ready: false,
        };
        let applied = engine::carry_out(app, node, standing, &object, agreed)?;
        health_gate::ends_ready(app, node, target, health_gate::restart(steps), &applied)?;
        cordon::release(app, node)?;
        Ok(applied)
    }

    fn finish(self, app: &mut App, node: &mut dyn Node, _: Lock, applied: Applied) -> Result<Ending> {
        let generation = applied.generation.unwrap_or_default();
        let (name, number) = (&self.about.node_name, self.receipt.generation);
        let msg = format!("{name} is as generation {number} made it (now generation {generation}).");
        app.reporter.tell(&msg);
        let next = vec![app.command("status")];
        Ending::result(succeeded(app, node, &applied, msg, next))
    }
}

fn standing_receipt(standing: &Standing) -> Result<&Receipt> {
    // A renewal of credentials is finished first.
    if let Some(journal) = standing.journal.as_ref().filter(|journal| !journal.header.terms.is_renewal()) {
        let what = format!("a run was interrupted: {journal}");
        return Err(Fault::new(Exit::Interrupted, "InterruptedRun", what)
            .hint("finish it with: calicoctl-win resume, or undo it with: calicoctl-win resume --undo")
            .into());
    }
    installed(standing)
}

/// Returns the named generation, or the newest earlier one with another target.
fn former<'a>(standing: &'a Standing, now: &Receipt, to: Option<u32>) -> Result<&'a Receipt> {
    let mut installed = standing.receipts.iter().rev().filter(|receipt| receipt.about.is_some());
    let found = match to {
        Some(number) => installed.find(|receipt| receipt.generation == number),
        None => installed.find(|receipt| receipt.generation < now.generation && receipt.target != now.target),
    };
    found.ok_or_else(|| {
        let which = to.map_or_else(|| "generation before this one".to_owned(), |number| format!("generation {number}"));
        no_such(standing, &which).into()
    })
}

/// The error for a generation that has no receipt.
pub(crate) fn no_such(standing: &Standing, which: &str) -> Fault {
    let known: Vec<String> = standing.receipts.iter().map(|receipt| receipt.generation.to_string()).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Fault::new(Exit::Conflict, "NoSuchGeneration", format!("there is no {which} on this node"))
        .hint(format!("generations that have a receipt: {known}; see them with: calicoctl-win receipt list"))
}

impl Way<'_> {
    /// Adds everything that will be written to the store: files that are damaged on the node, or not stored, come from
    /// the archive if it still exists, else a repair downloads it again.
    fn fill_store(&self, app: &mut App, node: &mut dyn Node) -> Result<()> {
        let Self { back, standing, receipt, about, steps, .. } = self;
        let written = |step: &Step| match step {
            Step::Put { after: Some(state), .. } => Some(state.clone()),
            _ => None,
        };
        let missing = |node: &dyn Node| -> Vec<State> {
            steps.iter().filter_map(written).filter(|state| !store::holds(node, state)).collect()
        };
        let lacks_release = |node: &dyn Node| {
            missing(node).iter().any(|state| matches!(state, State::Tree(Tree::Release(_)) | State::File { .. }))
        };
        if lacks_release(node)
            && let Some((manifest, tree)) = stage::again(app, node, about)?
        {
            add_files_of(node, &manifest, &tree, &receipt.target)?;
        }
        if lacks_release(node) && back.row.goal == Goal::Current {
            start_from(app, node, standing, &[], &Source::default())?;
            let now = Standing::load(node)?;
            let mut prepared = prepare(app, node, now, &Source::default(), None, Purpose::Install)?;
            prepared.complete(app, node)?;
        }
        match missing(node).first() {
            None => Ok(()),
            Some(state) => {
                let what = format!(
                    "the store does not hold what generation {} needs: {}",
                    receipt.generation,
                    crate::plan::show::state(state)
                );
                Err(Fault::new(Exit::Conflict, "GenerationGone", what)
                    .hint("make it again from its config: calicoctl-win reconfigure -c FILE")
                    .into())
            }
        }
    }
}
