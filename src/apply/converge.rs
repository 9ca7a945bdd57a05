//! The engine: brings a node from its current state to a target, one journaled step at a time. Every verb that changes
//! the node is this with another target; `resume` repeats it, and undoing uses the previous generation as the target.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};

use super::acls::Networks;
use super::cordon::{ClusterVni, Cordon};
use super::journal::{Header, Journal, Removal, Terms};
use super::node_object::NodeObject;
use super::observe::{observe, others_running};
use super::receipt::{About, Receipt};
use super::standing::{Applied, Standing};
use super::steps::{Engine, changed_since_plan, comes_with_release, put_note};
use super::{host_routes, renewal, retention, source_vip, stale_files, store, user_files, waits};
use crate::calico::kubernetes;
use crate::fault::{Exit, Fault};
use crate::item::{Id, Network, State, World};
use crate::node::Node;
use crate::paths::containerd;
use crate::plan::diff::diff;
use crate::plan::order::{FELIX_SERVICE, SERVICES, is_our_kubernetes, is_own};
use crate::plan::{Owned, Step, Target, node_object};
use crate::report::event::Sink;

/// What a run is to achieve.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    pub run: &'a str,
    /// The verb, for journal and receipt.
    pub command: &'a str,
    pub target: &'a Target,
    /// What the target is made from; none for an uninstall.
    pub about: Option<&'a About>,
    pub terms: Terms,
    /// The steps that were shown and confirmed, if somebody was asked: no others are taken.
    pub shown: Option<&'a [Step]>,
}

/// Returns the steps that would bring the node to `target` now.
///
/// # Errors
/// When the node cannot be read, or an item of another product has a name that Calico needs.
pub fn plan(node: &dyn Node, standing: &Standing, target: &Target) -> Result<Vec<Step>> {
    plan_with(node, standing, target, &BTreeSet::new())
}

/// As [`plan`]; these networks are re-created, whatever their state.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(node: &dyn Node, standing: &Standing, target: &Target, resets: &BTreeSet<Id>) -> Result<Vec<Step>> {
    missing_steps(node, standing, &user_files::with_kept(node, standing, target)?, resets)
}

/// As [`plan`], for a target that already has the files of the user.
fn missing_steps(node: &dyn Node, standing: &Standing, target: &Target, resets: &BTreeSet<Id>) -> Result<Vec<Step>> {
    let owned = standing.owned();
    // Services that an interrupted run stopped, and that are not meant to be stopped, are started again.
    let goal = standing.journal.as_ref().map(|journal| journal.header.goal(target));
    let mut target = goal.unwrap_or_else(|| target.clone());
    target.recreated.clone_from(resets);
    let observed = observe(node, &target, &owned)?;
    refuse_foreign_networks(&target, &observed, &owned)?;
    Ok(diff(&target, &observed, &owned))
}

/// Refuses a network that has a name of Calico's and that another product created: it is never deleted. `External` is
/// Calico's if it has Calico's bootstrap prefix.
fn refuse_foreign_networks(target: &Target, observed: &World, owned: &Owned) -> Result<()> {
    for (id, wanted) in &target.world {
        if let (Id::Network(name), Some(State::Network(have)), State::Network(want)) = (id, observed.get(id), wanted)
            && !owned.contains_key(id)
            && !calicos(have, want)
        {
            let subnet = have.subnet.map_or_else(|| "no subnet".into(), |subnet| subnet.to_string());
            return Err(Fault::new(
                Exit::Conflict,
                "ForeignNetwork",
                format!("the HNS network {name} ({}, {subnet}) is not Calico's, and Calico needs that name", have.kind),
            )
            .hint("find out which product made it and remove or rename it there; nothing was changed")
            .into());
        }
    }
    Ok(())
}

fn calicos(have: &Network, want: &Network) -> bool {
    want.subnet.is_none() || have.subnet == want.subnet
}

/// Checks a node that has just reached its target, before the change counts as done.
pub type Proof<'a> = &'a dyn Fn(&mut dyn Node, &Target, Sink) -> Result<()>;

/// No check.
///
/// # Errors
/// Never.
pub fn unproven(_: &mut dyn Node, _: &Target, _: Sink) -> Result<()> {
    Ok(())
}

/// Brings the node to a target, and writes the receipt after the proof succeeds. Does nothing, and writes no receipt, if
/// the node and the current generation match already.
///
/// # Errors
/// When a step or the proof fails. The node is then partly changed, and the journal records how to continue or undo:
/// call [`undo`] or, later, [`resume`].
pub fn apply(
    node: &mut dyn Node,
    standing: &Standing,
    object: &NodeObject,
    change: &Change,
    proof: Proof,
    events: Sink,
) -> Result<Applied> {
    standing.tell(events);
    let target = &user_files::with_kept(node, standing, change.target)?;
    let steps = missing_steps(node, standing, target, &change.terms.resets)?;
    if let Some(shown) = change.shown {
        refuse_changed_start(shown, &steps)?;
    }
    let unchanged = match standing.receipt() {
        Some(receipt) => receipt.target.is_same(target),
        None => target.world.is_empty() && standing.image().is_none(),
    };
    if steps.is_empty() && unchanged && standing.journal.is_none() {
        let generation = standing.receipt().map(|receipt| receipt.generation);
        return Ok(Applied { changed: 0, generation, downtime: Duration::ZERO });
    }
    waits::await_closed(node, &steps, events)?;
    let from = standing.base().map(|receipt| receipt.generation);
    let terms = change.terms.clone();
    let mut header = Header::new(change.run, change.command, from, target, change.about, terms, node.now());
    let mut originals = Owned::new();
    if let Some(interrupted) = &standing.journal {
        originals.clone_from(&interrupted.originals);
        header.running.clone_from(&interrupted.header.running);
        header.networks.clone_from(&interrupted.header.networks);
        header.touched = interrupted.is_touched();
        stale_files::sweep_of(node, standing, interrupted, events)?;
    } else {
        if let Some(former) = standing.base().map(|receipt| &receipt.target) {
            let removed = former.leave.difference(&target.leave).filter(|id| matches!(id, Id::File(_)));
            for id in former.world.keys().filter(|id| id.is_derived()).chain(removed) {
                let Some(state) = node.get(id)? else { continue };
                if let (Some(path), State::File { sha256, .. }) = (id.path(), &state) {
                    store::add_file(node, &node.disk(path), sha256)?;
                }
                header.networks.insert(id.clone(), state);
            }
        }
        let left = kubernetes::ROLES.into_iter().map(|role| role.service()).chain([containerd::NAME]);
        let left = left.map(|name| Id::Running(name.into()));
        let ours = |id: &Id| matches!(id, Id::Running(name) if is_our_kubernetes(name, &[&target.world]));
        let left = left.filter(|id| target.leave.contains(id) && ours(id));
        for id in SERVICES.map(|name| Id::Running(name.into())).into_iter().chain(left) {
            if node.get(&id)?.is_some() {
                header.running.insert(id);
            }
        }
    }
    header.running.extend(others_running(node, target, &standing.owned())?);
    header.routes = host_routes::before(node, standing.journal.as_ref())?;
    let course = course(&header, steps, change.terms.drain.is_some(), object);
    let journal = Journal::begin(node, header, originals)?;
    forward(Engine::new(node, object, journal, standing.owned(), course, events), standing, target, proof)
}

/// The steps on the machine, with those in the cluster before; and those in the cluster after the proof.
fn course(header: &Header, mut steps: Vec<Step>, emptied: bool, object: &NodeObject) -> (Vec<Step>, Vec<Step>) {
    let name = object.name();
    if name.is_empty() {
        return (steps, Vec::new());
    }
    let seen = object.look().ok();
    if emptied {
        steps.splice(0..0, node_object::emptied(name, &header.run));
    }
    let achieved = header.about.as_ref().map(|about| about.settings.to_string());
    (steps, node_object::told(name, achieved.as_deref(), seen.as_ref()))
}

/// Refuses steps that start from another state of the node than those that were shown. Their results may differ, since
/// a token is fetched after the plan was confirmed, and some steps may not be needed any more.
fn refuse_changed_start(shown: &[Step], now: &[Step]) -> Result<()> {
    fn ground(steps: &[Step]) -> impl Iterator<Item = (&Id, Option<&State>)> {
        steps.iter().map(|step| match step {
            Step::Put { id, before, .. } => (id, before.as_ref()),
            Step::Await { id, .. } | Step::Vacate { id } | Step::Drain { id } => (id, None),
        })
    }
    match ground(now).find(|step| !ground(shown).any(|known| known == *step)) {
        Some((id, _)) => Err(changed_since_plan(id).into()),
        None => Ok(()),
    }
}

/// Finishes an interrupted run.
///
/// # Errors
/// As [`apply`]; and when there is no interrupted run.
pub fn resume(
    node: &mut dyn Node,
    standing: &Standing,
    object: &NodeObject,
    proof: Proof,
    events: Sink,
) -> Result<Applied> {
    let journal = reopened_journal(node, standing, false, events)?;
    if journal.header.terms.is_renewal() {
        return renewal::finish(node, standing, journal, false, events).map(|(applied, _)| applied);
    }
    let goal = journal.header.goal(&journal.header.target);
    let steps = plan_with(node, standing, &goal, &journal.header.terms.resets)?;
    // Once the machine was changed, pods only matter if a network is removed; if the cluster does not answer, HNS shows
    // them.
    let goes = steps.iter().any(|step| matches!(step, Step::Vacate { .. }));
    let goes = goes && object.cordon(object.name()).is_ok();
    let emptied = standing.is_draining() || journal.header.terms.drain.is_some() && goes;
    let course = course(&journal.header, steps, emptied, object);
    forward(Engine::new(node, object, journal, standing.owned(), course, events), standing, &goal, proof)
}

/// Undoes an interrupted run: restores the previous generation, or removes everything if there was none.
///
/// # Errors
/// As [`apply`]; and when there is no interrupted run.
pub fn undo(node: &mut dyn Node, standing: &Standing, object: &NodeObject, events: Sink) -> Result<Applied> {
    if standing.is_draining() {
        return abandon(node, standing, object, events);
    }
    let mut journal = reopened_journal(node, standing, true, events)?;
    if journal.header.terms.is_renewal() {
        return renewal::finish(node, standing, journal, true, events).map(|(applied, _)| applied);
    }
    waits::await_hns(node, events)?;
    let former = standing.base();
    // If nothing was installed before, pods can only have been attached since.
    journal.header.terms.drops_pods |= former.is_none_or(|receipt| receipt.about.is_none());
    let target = former.map(|receipt| receipt.target.clone()).unwrap_or_default();
    let target = user_files::with_kept(node, standing, &journal.header.undo_goal(&target))?;
    user_files::store(node, &target)?;
    let steps = missing_steps(node, standing, &target, &BTreeSet::new())?;
    let from = journal.header.from;
    let written = |receipt: &&Receipt| Some(receipt.generation) > from;
    let written_by_it = standing.receipts.last().filter(written);
    // The Node keeps its items, unless the run came as far as its receipt. For a first generation, Calico itself writes
    // them.
    let stands = former.and_then(|receipt| receipt.about.as_ref());
    let told = if object.name().is_empty() || written_by_it.is_none() && stands.is_some() {
        Vec::new()
    } else {
        let achieved = stands.map(|about| about.settings.to_string());
        node_object::told(object.name(), achieved.as_deref(), object.look().ok().as_ref())
    };
    let mut engine = Engine::new(node, object, journal, standing.owned(), (steps, told), events);
    engine.undoes = true;
    engine.take(&target)?;
    open_endpoints(&mut engine, standing, &target)?;
    // Before the receipt goes: while it is there, an undo that begins again knows that the Node was told.
    engine.take_rest()?;
    let Engine { node, journal, changed, downtime, events, .. } = engine;
    if let Some(receipt) = written_by_it {
        receipt.remove(node)?;
    }
    let awaited = awaited_before(node)?;
    leave_cordon(node, &journal, object, awaited.as_ref())?;
    journal.end(node)?;
    let kept: Vec<&Receipt> = standing.receipts.iter().filter(|receipt| !written(receipt)).collect();
    retention::collect(node, &kept, &standing.owned(), events);
    let generation = former.filter(|receipt| receipt.about.is_some()).map(|receipt| receipt.generation);
    Ok(Applied { changed, generation, downtime: downtime.total })
}

/// Writes the items of a generation to the Node, if an earlier run could not.
pub fn tell_again(object: &NodeObject, about: &About, events: Sink) {
    let Ok(seen) = object.look() else { return };
    for step in node_object::told(object.name(), Some(about.settings.as_str()), Some(&seen)) {
        if let Step::Put { id, after, .. } = &step {
            put_note(object, id, after.as_ref(), events);
        }
    }
}

/// Ends a run that has changed nothing on the machine: only its cordon is recorded. Differences from the current
/// generation existed before.
fn abandon(node: &mut dyn Node, standing: &Standing, object: &NodeObject, events: Sink) -> Result<Applied> {
    let journal = standing.journal.clone().ok_or_else(nothing_interrupted)?;
    stale_files::sweep_of(node, standing, &journal, events)?;
    let awaited = awaited_before(node)?;
    leave_cordon(node, &journal, object, awaited.as_ref())?;
    journal.end(node)?;
    retention::collect(node, &standing.receipts.iter().collect::<Vec<_>>(), &standing.owned(), events);
    let generation = standing.receipt().map(|receipt| receipt.generation);
    Ok(Applied { changed: 0, generation, downtime: Duration::ZERO })
}

/// Ends an uninstall that removed more than Calico; does nothing if it is already over.
///
/// # Errors
/// When the file cannot be removed.
pub fn end_uninstall(node: &dyn Node) -> Result<()> {
    Journal::load(node)?.map_or(Ok(()), |journal| journal.end(node))
}

/// Once Felix is removed, its ACLs on another product's endpoints must be removed too. This is part of the run: until
/// it is done, the journal stays.
fn open_endpoints(engine: &mut Engine<'_>, standing: &Standing, goal: &Target) -> Result<()> {
    if goal.world.contains_key(&Id::Service(FELIX_SERVICE.into())) {
        return Ok(());
    }
    let Engine { node, journal: Journal { header, .. }, events, .. } = engine;
    if let Some(networks) = Networks::of_scripts(goal).filter(|_| !header.terms.theirs.is_empty()) {
        networks.open(*node, events)?;
    }
    let stood = standing.base().map(|receipt| (receipt.about.as_ref(), &receipt.target));
    let begun = (header.about.as_ref(), &header.target);
    for (about, target) in stood.into_iter().chain([begun]) {
        if let Some(networks) = Networks::of(*node, about, target) {
            networks.open(*node, events)?;
        }
    }
    Ok(())
}

/// Rewrites the interrupted run's journal: its last line may be torn, and more lines will follow.
fn reopened_journal(node: &mut dyn Node, standing: &Standing, undoes: bool, events: Sink) -> Result<Journal> {
    let journal = standing.journal.clone().ok_or_else(nothing_interrupted)?;
    stale_files::sweep_of(node, standing, &journal, events)?;
    // Services that were started since, or that depend on ours since, may be stopped from here on.
    let touched = journal.is_touched();
    let mut header = journal.header;
    (header.touched, header.undoes) = (touched, undoes);
    header.running.extend(others_running(node, &header.target, &standing.owned())?);
    Journal::begin(node, header, journal.originals)
}

fn nothing_interrupted() -> Fault {
    Fault::new(Exit::NotInstalled, "NothingInterrupted", "no interrupted run to resume")
        .hint("see the state of the node: calicoctl-win status")
}

/// Journals every original that is not yet known, takes the steps, proves the result, and commits it.
fn forward(mut engine: Engine<'_>, standing: &Standing, goal: &Target, proof: Proof) -> Result<Applied> {
    let Engine { node, object, journal, owned, steps, .. } = &mut engine;
    let target = journal.header.target.clone();
    // Items that the services themselves change are not in the steps, but must be restored all the same.
    let derived = target.world.keys().filter(|id| id.is_derived()).chain(&target.leave).cloned();
    let touched: BTreeSet<Id> = steps.iter().map(|step| step.id().clone()).chain(derived).collect();
    // Other products' services are restored to their state before this run, not to the state before the first install;
    // except one that is removed.
    let others = |name: &str| !is_own(name) && !is_our_kubernetes(name, &[&target.world]);
    let lasting = |id: &Id| !matches!(id, Id::Running(name) if others(name)) || target.absent.contains(id);
    user_files::store(*node, &target)?;
    for id in touched.into_iter().filter(|id| lasting(id) && !target.kept.contains(id)) {
        if owned.contains_key(&id) || journal.originals.contains_key(&id) {
            continue;
        }
        let original = match &id {
            Id::Cordon(_) => cordon_before(*node, object)?,
            // What the Node records about Calico is removed with Calico.
            id if id.is_in_cluster() => continue,
            id => original(*node, id, steps)?,
        };
        journal.original(*node, &id, original.as_ref())?;
    }
    owned.extend(journal.originals.clone());
    let whole = journal.header.goal(&target);
    engine.take(&whole)?;
    let goal = &with_source_vip(&mut engine, standing, goal)?;
    open_endpoints(&mut engine, standing, goal)?;
    proof(engine.node, goal, engine.events)?;
    commit(engine, standing)
}

/// Once the network is there: sets kube-proxy's source VIP, as a part of the target from then on. Returns the goal with
/// it.
fn with_source_vip(engine: &mut Engine<'_>, standing: &Standing, goal: &Target) -> Result<Target> {
    let Engine { node, journal, owned, .. } = engine;
    let mut target = journal.header.target.clone();
    let file = source_vip::set(*node, &mut target)?;
    if target == journal.header.target {
        return Ok(goal.clone());
    }
    if let Some(bytes) = file {
        store::add(*node, &bytes)?;
    }
    let amended: Vec<Id> =
        target.world.keys().filter(|id| target.world.get(id) != journal.header.target.world.get(id)).cloned().collect();
    let mut header = journal.header.clone();
    (header.target, header.touched) = (target, true);
    *journal = Journal::begin(*node, header, journal.originals.clone())?;
    for id in amended.into_iter().filter(|id| !owned.contains_key(id)) {
        let original = original(*node, &id, &[])?;
        journal.original(*node, &id, original.as_ref())?;
    }
    owned.extend(journal.originals.clone());
    let mut goal = goal.clone();
    source_vip::set(*node, &mut goal)?;
    let whole = journal.header.goal(&goal);
    let steps = missing_steps(*node, standing, &whole, &BTreeSet::new())?;
    engine.replace_steps(steps);
    engine.take(&whole)?;
    Ok(goal)
}

/// Whether the Node was cordoned before this run. A cordon that an earlier run of ours left is ours to undo.
fn cordon_before(node: &dyn Node, object: &NodeObject) -> Result<Option<State>> {
    let left = Cordon::load(node)?.is_some_and(|left| left.node == object.name());
    if left { Ok(None) } else { object.cordon(object.name()) }
}

/// Records that a Node must still be uncordoned before its journal is deleted. Not if the Node is known to be
/// schedulable. `awaits`: what it stays cordoned for.
fn leave_cordon(
    node: &mut dyn Node,
    journal: &Journal,
    object: &NodeObject,
    awaits: Option<&ClusterVni>,
) -> Result<()> {
    for id in journal.cordons() {
        if matches!(object.cordon(&id.target()), Ok(None)) {
            continue;
        }
        let Header { run, command, started, terms, .. } = &journal.header;
        let command = if terms.drain.is_some() { command.clone() } else { "an earlier run".into() };
        let access = terms.access.clone();
        Cordon { node: id.target(), run: run.clone(), command, since: *started, access, awaits: awaits.cloned() }
            .save(node)?;
    }
    Ok(())
}

/// What an earlier run had left the Node cordoned for: so it is again, once this run is undone.
fn awaited_before(node: &dyn Node) -> Result<Option<ClusterVni>> {
    Ok(Cordon::load(node)?.and_then(|left| left.awaits))
}

/// Returns the state of an item before our first change, and saves its bytes in the store.
fn original(node: &mut dyn Node, id: &Id, steps: &[Step]) -> Result<Option<State>> {
    if comes_with_release(id, steps) {
        return Ok(None);
    }
    let state = node.get(id).with_context(|| format!("look at {id}"))?;
    if let Some(state) = &state {
        store::keep_original(node, id, state)?;
    }
    Ok(state)
}

/// Writes the receipt, ends the journal, and deletes what no generation needs.
fn commit(mut engine: Engine<'_>, standing: &Standing) -> Result<Applied> {
    let header = &engine.journal.header;
    let Target { world, leave, absent, .. } = &header.target;
    let mut settled = engine.owned.clone();
    let mut owned = settled.clone();
    owned.retain(|id, _| world.contains_key(id) || leave.contains(id) || absent.contains(id));
    // Items that an uninstall found only by our marks are not kept for a rollback.
    let holds = header.about.is_some() || header.terms.prepares.is_some();
    if !holds {
        owned.retain(|id, _| header.terms.theirs.contains(id));
    }
    settled.retain(|id, _| !owned.contains_key(id) || holds);
    let forgotten = if header.terms.brings_back { Owned::new() } else { standing.removed() };
    settled.extend(forgotten.clone());
    let generation = standing.next_generation();
    let (now, about, target) = (engine.node.now(), header.about.clone(), header.target.clone());
    let mut receipt = Receipt::new(generation, &header.run, &header.command, now, about, target, owned);
    receipt.prepared.clone_from(&header.terms.prepares);
    receipt.save(engine.node)?;
    engine.take_rest()?;
    let Engine { node, object, journal, changed, downtime, events, .. } = engine;
    leave_cordon(node, &journal, object, journal.header.terms.cluster_vni.as_ref())?;
    // While the journal is there: a run that ends here does it again.
    retention::forget(node, &forgotten, events);
    if journal.header.terms.removal == Removal::default() {
        journal.end(node)?;
    } else {
        // The caller removes what else goes with Calico, and ends the run then. Until then it is a run that starts from
        // nothing: the store may no longer have what it started from.
        journal.is_made(node, generation)?;
    }
    let former = standing.receipts.iter().filter(|former| former.generation < generation);
    retention::collect(node, &former.chain([&receipt]).collect::<Vec<_>>(), &settled, events);
    let generation = receipt.about.is_some().then_some(generation);
    Ok(Applied { changed, generation, downtime: downtime.total })
}
