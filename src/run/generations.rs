//! `rollback` and `repair`: back to a world that was made before, from its receipt and the store.

use anyhow::{Context, Result};

use super::Ending;
use super::app::App;
use super::cordon;
use super::datastore;
use super::drain::{self, Place};
use super::engine::{self, Agreed, installed, succeeded};
use super::health_gate;
use super::lease;
use super::options::{DrainFlags, Repair, Rollback, Source};
use super::pods;
use super::prepare::{add_files_of, announce, prepare};
use super::saved;
use super::stage::{self, Purpose};
use super::standing::{settings_diff, start_from};
use super::verb::{REPAIR, ROLLBACK};
use crate::apply::converge;
use crate::apply::node_object::NodeObject;
use crate::apply::receipt::{About, Receipt};
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::apply::store;
use crate::cluster::{Cluster, DrainOptions};
use crate::fault::{Exit, Fault};
use crate::item::{State, Tree};
use crate::node::Node;
use crate::plan::Step;
use crate::plan::show::Plan;
use crate::report::document::RunResult;
use crate::settings::{self, Connection};

/// Which world, and what may happen on the way.
struct Way<'a> {
    command: &'static str,
    /// The number of the current one, when it was chosen.
    current: u32,
    /// The generation whose world is wanted.
    receipt: &'a Receipt,
    about: &'a About,
    no_drain: bool,
    drain: &'a DrainFlags,
}

pub(crate) fn rollback(args: &Rollback, app: &mut App) -> Result<Ending> {
    let look = app.node()?;
    app.await_lock(&*look)?;
    let standing = Standing::load(&*look)?;
    let now = standing_receipt(&standing)?;
    let current = now.generation;
    let receipt = former(&standing, now, args.to)?.clone();
    let about = receipt.about.clone().context("read what the generation was made from")?;
    drop(look);
    let way = Way {
        command: ROLLBACK,
        current,
        receipt: &receipt,
        about: &about,
        no_drain: args.no_drain,
        drain: &args.drain,
    };
    go(app, &way)
}

pub(crate) fn repair(args: &Repair, app: &mut App) -> Result<Ending> {
    let look = app.node()?;
    app.await_lock(&*look)?;
    let standing = Standing::load(&*look)?;
    let receipt = standing_receipt(&standing)?.clone();
    let about = receipt.about.clone().context("read what the generation was made from")?;
    drop(look);
    let way = Way {
        command: REPAIR,
        current: receipt.generation,
        receipt: &receipt,
        about: &about,
        no_drain: args.no_drain,
        drain: &args.drain,
    };
    go(app, &way)
}

fn standing_receipt(standing: &Standing) -> Result<&Receipt> {
    // A renewal of credentials is finished first.
    if let Some(journal) = standing.journal.as_ref().filter(|journal| !journal.header.terms.is_renewal()) {
        let what = format!("a run was interrupted: {}", journal);
        return Err(Fault::new(Exit::Interrupted, "InterruptedRun", what)
            .hint("finish it with: calicoctl-win resume, or undo it with: calicoctl-win resume --undo")
            .into());
    }
    installed(standing)
}

/// The generation that was asked for, or the newest one before that made something else.
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

/// The refusal of a generation that has no receipt.
pub(crate) fn no_such(standing: &Standing, which: &str) -> Fault {
    let known: Vec<String> = standing.receipts.iter().map(|receipt| receipt.generation.to_string()).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Fault::new(Exit::Conflict, "NoSuchGeneration", format!("there is no {which} on this node"))
        .hint(format!("generations that have a receipt: {known}; see them with: calicoctl-win receipt list"))
}

fn go(app: &mut App, way: &Way<'_>) -> Result<Ending> {
    if app.global.dry_run {
        let node = app.node()?;
        let standing = Standing::load(&*node)?;
        let (_, plan) = steps(app, &*node, &standing, way)?;
        return saved::dry_run(plan, standing.receipt().map(|receipt| receipt.generation));
    }
    let (mut node, _lock) = app.node_to_change(way.command)?;
    let standing = Standing::load(&*node)?;
    if standing.receipt().map(|receipt| receipt.generation) != Some(way.current) {
        let what = "another run has changed the node since this one chose its generation";
        return Err(Fault::new(Exit::PlanStale, "PlanStale", what).hint("look at the node and run it again").into());
    }
    let (steps, plan) = steps(app, &*node, &standing, way)?;
    if steps.is_empty() {
        cordon::release(app, &mut *node)?;
        let msg = format!("nothing to do: the node is as generation {} made it", way.receipt.generation);
        app.reporter.tell(&msg);
        let mut result = RunResult::new(Exit::Ok, false, msg);
        result.generation = standing.receipt().map(|receipt| receipt.generation);
        return Ending::result(result);
    }
    if way.command == REPAIR {
        datastore::must_answer(app, &*node, &steps)?;
    }
    let name = way.about.node_name.as_str();
    if let Some(why) = health_gate::not_ready_before(app, &*node) {
        app.warn("NodeNotReady", format!("Node {name} is not Ready: {why}"));
    }
    let mut reach = None;
    let maintenance = settings::maintenance(&app.config(&*node, &Source::default(), &[])?);
    let wanted = if way.no_drain { Some(false) } else { maintenance.drain.enabled };
    let options = way.drain.over(&maintenance.drain);
    let pods = (plan.needs_drain, plan.pods.as_slice());
    let drains = drain::before(app, name, pods, wanted, options, |app| Ok(&reach.insert(connect(app, &*node)?).1))?;
    app.confirm(&format!("Apply this to {name}?"))?;
    let place = reach.as_ref().map(|(connection, cluster)| Place { cluster, connection, name });
    lease::hold(app, &mut *node, name, |app, node| change(app, node, way, &steps, drains.as_ref(), place.as_ref()))
}

/// Makes the change, with the node locked here and, where it can be asked, in the cluster.
fn change(
    app: &mut App,
    node: &mut dyn Node,
    way: &Way<'_>,
    steps: &[Step],
    drains: Option<&DrainOptions>,
    place: Option<&Place<'_>>,
) -> Result<Ending> {
    if let Err(error) = gather(app, node, way, steps) {
        retention::tidy(node, &mut |event| app.event(&event));
        return Err(error);
    }
    let target = &way.receipt.target;
    let mut terms = app.terms(node, drains, place.map(|place| place.connection));
    terms.drops_pods = drains.is_none();
    let standing = Standing::load(node)?;
    let object = match (drains, place) {
        (Some(options), Some(place)) => NodeObject::new(place.name, place.cluster, options.timeout),
        _ => pods::object_of(app, node, &standing),
    };
    let agreed = Agreed {
        command: way.command,
        target,
        about: Some(way.about),
        steps,
        terms,
        proves_services: health_gate::disturb(steps),
        proves_ready: false,
    };
    let applied = engine::carry_out(app, node, &object, agreed)?;
    health_gate::ends_ready(app, node, target, health_gate::restart(steps), &applied)?;
    cordon::release(app, node)?;
    done(app, node, way, applied)
}

fn done(app: &mut App, node: &dyn Node, way: &Way<'_>, applied: Applied) -> Result<Ending> {
    let generation = applied.generation.unwrap_or_default();
    let (name, number) = (&way.about.node_name, way.receipt.generation);
    let msg = format!("{name} is as generation {number} made it (now generation {generation}).");
    app.reporter.tell(&msg);
    let next = vec![app.command("status")];
    Ending::result(succeeded(app, node, &applied, msg, next))
}

/// The steps, shown.
fn steps(app: &mut App, node: &dyn Node, standing: &Standing, way: &Way<'_>) -> Result<(Vec<Step>, Plan)> {
    let steps = converge::plan(node, standing, &way.receipt.target)?;
    let mut plan = Plan::new(&steps, &way.receipt.target, true).between(standing.release(), &way.about.calico_version);
    plan.pods = pods::attached(app, node, &steps, |app| connect(app, node)?.1.pods_on(way.about.node_name.as_str()))?;
    let effective = store::effective(node, way.receipt).ok().flatten();
    plan.settings_diff = settings_diff(node, standing.receipt(), way.about, effective.as_ref());
    announce(app, &plan);
    app.tell_plan(&plan);
    Ok((steps, plan))
}

/// Sees to it that everything that will be written is in the store: what is damaged on the node, or not
/// kept, comes from the archive if that is still there, else a repair fetches it again.
fn gather(app: &mut App, node: &mut dyn Node, way: &Way<'_>, steps: &[Step]) -> Result<()> {
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
        && let Some((manifest, tree)) = stage::again(app, node, way.about)?
    {
        add_files_of(node, &manifest, &tree, &way.receipt.target)?;
    }
    if lacks_release(node) && way.command == REPAIR {
        start_from(app, node, &[], &Source::default())?;
        let mut prepared = prepare(app, node, &Source::default(), None, Purpose::Install)?;
        prepared.complete(app, node)?;
    }
    match missing(node).first() {
        None => Ok(()),
        Some(state) => {
            let what = format!(
                "the store does not hold what generation {} needs: {}",
                way.receipt.generation,
                crate::plan::show::state(state)
            );
            Err(Fault::new(Exit::Conflict, "GenerationGone", what)
                .hint("make it again from its config: calicoctl-win reconfigure -c FILE; nothing was changed")
                .into())
        }
    }
}

fn connect(app: &App, node: &dyn Node) -> Result<(Connection, Cluster)> {
    let layered = app.config(node, &Source::default(), &[])?;
    let connection = app.connection(node, &layered)?;
    let cluster = app.cluster(node, &connection)?;
    Ok((connection, cluster))
}
