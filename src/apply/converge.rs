//! The engine: brings a node from what it is to a target, one journaled step at a time. Every verb
//! that changes the node is this with another target; `resume` is this again, and undoing is this
//! with the former generation as its target.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};

use super::acls::Networks;
use super::cordon::Cordon;
use super::journal::{Header, Journal, Removal, Terms};
use super::node_object::NodeObject;
use super::observe::{observe, others_running};
use super::receipt::{About, Receipt};
use super::standing::{Applied, Standing};
use super::steps::{Course, changed_since_plan, comes_with_release, put_note, take, tell};
use super::{renewal, retention, stale_files, store};
use crate::fault::{Exit, Fault};
use crate::item::{Id, Network, State, World};
use crate::node::Node;
use crate::plan::diff::diff;
use crate::plan::order::{FELIX_SERVICE, SERVICES, is_own};
use crate::plan::{Owned, Step, Target, node_object};
use crate::report::event::Sink;

/// What a run is asked to bring about.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    pub run: &'a str,
    /// The verb, for journal and receipt.
    pub command: &'a str,
    pub target: &'a Target,
    /// What the target is made from; none for an uninstall.
    pub about: Option<&'a About>,
    pub terms: Terms,
    /// The steps that were shown and agreed to, if somebody was asked: no others are taken.
    pub shown: Option<&'a [Step]>,
}

/// The steps that would bring the node to `target` now.
///
/// # Errors
/// When the node cannot be looked at, or something that is not ours stands in the way.
pub fn plan(node: &dyn Node, standing: &Standing, target: &Target) -> Result<Vec<Step>> {
    let owned = standing.owned();
    // What an interrupted run stopped and nobody wants stopped, runs again.
    let goal = standing.journal.as_ref().map(|journal| journal.header.goal(target));
    let target = goal.as_ref().unwrap_or(target);
    let observed = observe(node, target, &owned)?;
    refuse_strangers(target, &observed, &owned)?;
    Ok(diff(target, &observed, &owned))
}

/// A network of the name we need that somebody else made is a conflict, never something to delete.
/// `External` is Calico's when it has Calico's bootstrap prefix.
fn refuse_strangers(target: &Target, observed: &World, owned: &Owned) -> Result<()> {
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

/// Brings the node to a target and writes the receipt. Does nothing, not even a receipt, when the
/// node and the standing generation are so already.
///
/// # Errors
/// When a step fails. The node is then half-way and the journal says how to go on or back: call
/// [`undo`] or, later, [`resume`].
pub fn apply(node: &mut dyn Node, change: &Change, events: Sink) -> Result<Applied> {
    apply_proven(node, &NodeObject::unknown(), change, &|_, _, _| Ok(()), events)
}

/// Looks at a node that has just become as a target says, before that counts as achieved.
pub type Proof<'a> = &'a dyn Fn(&mut dyn Node, &Target, Sink) -> Result<()>;

/// As [`apply`], but there is no receipt until the proof is given: a change that does not work can
/// be taken back as one that failed half-way.
///
/// # Errors
/// As [`apply`], and what the proof fails with.
pub fn apply_proven(
    node: &mut dyn Node,
    object: &NodeObject,
    change: &Change,
    proof: Proof,
    events: Sink,
) -> Result<Applied> {
    let standing = Standing::load(node)?;
    standing.tell(events);
    let steps = plan(node, &standing, change.target)?;
    if let Some(shown) = change.shown {
        same_ground(shown, &steps)?;
    }
    let unchanged = match standing.receipt() {
        Some(receipt) => receipt.target == *change.target,
        None => change.target.world.is_empty(),
    };
    if steps.is_empty() && unchanged && standing.journal.is_none() {
        let generation = standing.receipt().map(|receipt| receipt.generation);
        return Ok(Applied { changed: 0, generation, downtime: Duration::ZERO });
    }
    let from = standing.base().map(|receipt| receipt.generation);
    let terms = change.terms.clone();
    let mut header = Header::new(change.run, change.command, from, change.target, change.about, terms, node.now());
    let mut originals = Owned::new();
    if let Some(interrupted) = &standing.journal {
        originals.clone_from(&interrupted.originals);
        header.running.clone_from(&interrupted.header.running);
        header.networks.clone_from(&interrupted.header.networks);
        header.touched = interrupted.is_touched();
        stale_files::sweep_of(node, &standing, interrupted, events)?;
    } else {
        let former = standing.base().map(|receipt| &receipt.target.world);
        for id in former.into_iter().flatten().map(|(id, _)| id).filter(|id| id.is_derived()) {
            if let Some(state) = node.get(id)? {
                header.networks.insert(id.clone(), state);
            }
        }
        for id in SERVICES.map(|name| Id::Running(name.into())) {
            if node.get(&id)?.is_some() {
                header.running.insert(id);
            }
        }
    }
    header.running.extend(others_running(node, change.target, &standing.owned())?);
    let emptied = change.terms.drain.is_some();
    let course = course(&header, steps, emptied, object.look().ok().as_ref(), object);
    let mut journal = Journal::begin(node, header, originals)?;
    let (changed, downtime) = forward(node, &standing, &mut journal, &course, object, events)?;
    open_endpoints(node, &standing, &journal, change.target, events)?;
    proof(node, change.target, events)?;
    commit(node, &standing, journal, &course, object, (changed, downtime), events)
}

/// The steps on the machine, with those in the cluster before and after. `seen`: what the Node says now, where
/// that can be known.
fn course(header: &Header, mut steps: Vec<Step>, emptied: bool, seen: Option<&World>, object: &NodeObject) -> Course {
    let name = object.name();
    if name.is_empty() {
        return Course::new(steps, Vec::new());
    }
    if emptied {
        steps.splice(0..0, node_object::emptied(name, &header.run));
    }
    let achieved = header.about.as_ref().map(|about| about.settings.to_string());
    Course::new(steps, node_object::told(name, achieved.as_deref(), seen))
}

/// Refuses steps from another state of the node than those that were shown. What they lead to may
/// differ, since a token is fetched after the plan was agreed to, and some may not be needed any more.
fn same_ground(shown: &[Step], now: &[Step]) -> Result<()> {
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
pub fn resume(node: &mut dyn Node, events: Sink) -> Result<Applied> {
    resume_proven(node, &NodeObject::unknown(), &|_, _, _| Ok(()), events)
}

/// As [`resume`], with the proof of [`apply_proven`].
///
/// # Errors
/// As [`resume`], and what the proof fails with.
pub fn resume_proven(node: &mut dyn Node, object: &NodeObject, proof: Proof, events: Sink) -> Result<Applied> {
    let standing = Standing::load(node)?;
    let mut journal = taken_up(node, &standing, events)?;
    if journal.header.terms.is_renewal() {
        return renewal::finish(node, &standing, journal, false, events);
    }
    let goal = journal.header.goal(&journal.header.target);
    let steps = plan(node, &standing, &goal)?;
    let seen = object.look().ok();
    // Once the machine was touched pods can only be in the way of a network that goes; and where the cluster is
    // away HNS says so.
    let goes = steps.iter().any(|step| matches!(step, Step::Vacate { .. }));
    let goes = goes && object.cordon(object.name()).is_ok();
    let emptied = standing.is_draining() || journal.header.terms.drain.is_some() && goes;
    let course = course(&journal.header, steps, emptied, seen.as_ref(), object);
    let (changed, downtime) = forward(node, &standing, &mut journal, &course, object, events)?;
    open_endpoints(node, &standing, &journal, &goal, events)?;
    proof(node, &goal, events)?;
    commit(node, &standing, journal, &course, object, (changed, downtime), events)
}

/// Takes an interrupted run back: the former generation stands again, or nothing does.
///
/// # Errors
/// As [`apply`]; and when there is no interrupted run.
pub fn undo(node: &mut dyn Node, events: Sink) -> Result<Applied> {
    undo_with(node, &NodeObject::unknown(), events)
}

/// As [`undo`], with the Node, whose pods may have come to networks of ours meanwhile.
///
/// # Errors
/// As [`undo`].
pub fn undo_with(node: &mut dyn Node, object: &NodeObject, events: Sink) -> Result<Applied> {
    let standing = Standing::load(node)?;
    if standing.is_draining() {
        return abandon(node, standing, object, events);
    }
    let mut journal = taken_up(node, &standing, events)?;
    if journal.header.terms.is_renewal() {
        return renewal::finish(node, &standing, journal, true, events);
    }
    // Where nothing stood before, pods can only have come since.
    journal.header.terms.drops_pods |= journal.header.from.is_none();
    let former = standing.base().cloned();
    let target = former.as_ref().map(|receipt| receipt.target.clone()).unwrap_or_default();
    let target = journal.header.way_back(&target);
    let steps = plan(node, &standing, &target)?;
    let from = journal.header.from;
    let written = |receipt: &&Receipt| Some(receipt.generation) > from;
    let written_by_it = standing.receipts.last().filter(written);
    // The Node says what it said, unless the run came as far as its receipt. Of a first one Calico itself tells it.
    let stands = former.as_ref().and_then(|receipt| receipt.about.as_ref());
    let told = if object.name().is_empty() || written_by_it.is_none() && stands.is_some() {
        Vec::new()
    } else {
        let achieved = stands.map(|about| about.settings.to_string());
        node_object::told(object.name(), achieved.as_deref(), object.look().ok().as_ref())
    };
    let course = Course::new(steps, told);
    let (changed, downtime) = take(node, &mut journal, &target, &standing.owned(), &course, object, events)?;
    open_endpoints(node, &standing, &journal, &target, events)?;
    if let Some(receipt) = written_by_it {
        receipt.remove(node)?;
    }
    tell(node, &mut journal, &course, object, events)?;
    leave_cordon(node, &journal, object)?;
    journal.end(node)?;
    let kept: Vec<&Receipt> = standing.receipts.iter().filter(|receipt| !written(receipt)).collect();
    retention::collect(node, &kept, &standing.owned(), events);
    let generation = former.filter(|receipt| receipt.about.is_some()).map(|receipt| receipt.generation);
    Ok(Applied { changed, generation, downtime })
}

/// Has the Node say once more what stands, where an earlier run could not tell it.
pub fn tell_again(object: &NodeObject, standing: &Standing, events: Sink) {
    let about = standing.receipts.last().map(|receipt| receipt.about.as_ref());
    let (Some(about), Ok(seen)) = (about, object.look()) else { return };
    let achieved = about.map(|about| about.settings.to_string());
    for step in node_object::told(object.name(), achieved.as_deref(), Some(&seen)) {
        if let Step::Put { id, after, .. } = &step {
            put_note(object, id, after.as_ref(), events);
        }
    }
}

/// Ends a run that has touched nothing on the machine: there is only its cordon to hand on. What differs from the
/// generation that stands was so before.
fn abandon(node: &mut dyn Node, standing: Standing, object: &NodeObject, events: Sink) -> Result<Applied> {
    let settled = standing.owned();
    let Standing { receipts, journal, .. } = standing;
    let journal = journal.ok_or_else(nothing_interrupted)?;
    leave_cordon(node, &journal, object)?;
    journal.end(node)?;
    retention::collect(node, &receipts.iter().collect::<Vec<_>>(), &settled, events);
    let generation = receipts.last().filter(|receipt| receipt.about.is_some()).map(|receipt| receipt.generation);
    Ok(Applied { changed: 0, generation, downtime: Duration::ZERO })
}

/// Ends an uninstall that had more to take away than Calico; nothing is done where it is over.
///
/// # Errors
/// When the disk refuses.
pub fn end_uninstall(node: &dyn Node) -> Result<()> {
    Journal::load(node)?.map_or(Ok(()), |journal| journal.end(node))
}

/// Where no Felix is left, what one has put on another product's endpoints decides nothing any more. Within the
/// run: until it is done, the journal says so.
fn open_endpoints(
    node: &mut dyn Node,
    standing: &Standing,
    journal: &Journal,
    goal: &Target,
    events: Sink,
) -> Result<()> {
    if goal.world.contains_key(&Id::Service(FELIX_SERVICE.into())) {
        return Ok(());
    }
    let stood = standing.base().map(|receipt| (receipt.about.as_ref(), &receipt.target));
    let begun = (journal.header.about.as_ref(), &journal.header.target);
    for (about, target) in stood.into_iter().chain([begun]) {
        if let Some(networks) = Networks::of(node, about, target) {
            networks.open(node, events)?;
        }
    }
    Ok(())
}

/// The interrupted run's journal, written anew: its last line may be torn, and more will follow.
fn taken_up(node: &mut dyn Node, standing: &Standing, events: Sink) -> Result<Journal> {
    let journal = standing.journal.clone().ok_or_else(nothing_interrupted)?;
    stale_files::sweep_of(node, standing, &journal, events)?;
    // One that came to run since, or to depend on ours, may be stopped from here on.
    let touched = journal.is_touched();
    let mut header = journal.header;
    header.touched = touched;
    header.running.extend(others_running(node, &header.target, &standing.owned())?);
    Journal::begin(node, header, journal.originals)
}

fn nothing_interrupted() -> Fault {
    Fault::new(Exit::NotInstalled, "NothingInterrupted", "no interrupted run to resume")
        .hint("see where the node stands: calicoctl-win status")
}

/// Journals every original that is not yet known, then takes the steps.
fn forward(
    node: &mut dyn Node,
    standing: &Standing,
    journal: &mut Journal,
    course: &Course,
    object: &NodeObject,
    events: Sink,
) -> Result<(usize, Duration)> {
    let steps = course.steps();
    let owned = standing.owned();
    let target = journal.header.target.clone();
    // What the services themselves change is not in the steps, and is ours to give back all the same.
    let derived = target.world.keys().filter(|id| id.is_derived()).chain(&target.leave).cloned();
    let touched: BTreeSet<Id> = steps.iter().map(|step| step.id().clone()).chain(derived).collect();
    // Whether others' services run is to be as it was before this run, and not as on the first day.
    let lasting = |id: &Id| !matches!(id, Id::Running(name) if !is_own(name));
    for id in touched.into_iter().filter(lasting) {
        if owned.contains_key(&id) || journal.originals.contains_key(&id) {
            continue;
        }
        match &id {
            Id::Cordon(_) => {
                let before = cordon_before(node, object)?;
                journal.original(node, &id, before.as_ref())?;
            }
            // What the Node says of Calico goes with Calico.
            id if id.is_in_cluster() => {}
            id => {
                let original = original(node, id, steps)?;
                journal.original(node, id, original.as_ref())?;
            }
        }
    }
    let mut owned = owned;
    owned.extend(journal.originals.clone());
    let goal = journal.header.goal(&target);
    take(node, journal, &goal, &owned, course, object, events)
}

/// Whether the Node was cordoned before. What an earlier run of ours left is ours to give back.
fn cordon_before(node: &dyn Node, object: &NodeObject) -> Result<Option<State>> {
    let left = Cordon::load(node)?.is_some_and(|left| left.node == object.name());
    if left { Ok(None) } else { object.cordon(object.name()) }
}

/// Hands on that a Node is still to be uncordoned, before the journal ends that knows it. Not where it is seen to take
/// pods.
fn leave_cordon(node: &mut dyn Node, journal: &Journal, object: &NodeObject) -> Result<()> {
    let ours = journal.originals.iter().filter(|(id, before)| matches!(id, Id::Cordon(_)) && before.is_none());
    for (id, _) in ours {
        if matches!(object.cordon(&id.target()), Ok(None)) {
            continue;
        }
        let Header { run, command, started, terms, .. } = &journal.header;
        let command = if terms.drain.is_some() { command.clone() } else { "an earlier run".into() };
        let access = terms.access.clone();
        Cordon { node: id.target(), run: run.clone(), command, since: *started, access }.save(node)?;
    }
    Ok(())
}

/// What an item is before we touch it, its bytes safe in the store.
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

/// Writes the receipt, ends the journal, and drops what no generation needs.
fn commit(
    node: &mut dyn Node,
    standing: &Standing,
    mut journal: Journal,
    course: &Course,
    object: &NodeObject,
    (changed, downtime): (usize, Duration),
    events: Sink,
) -> Result<Applied> {
    let target = journal.header.target.clone();
    let mut owned = standing.owned();
    owned.extend(journal.originals.clone());
    let settled = owned.clone();
    owned.retain(|id, _| target.world.contains_key(id) || target.leave.contains(id) || target.absent.contains(id));
    // What an uninstall found by our marks alone is gone for good.
    if journal.header.about.is_none() {
        owned.clear();
    }
    let generation = standing.next_generation();
    let header = &journal.header;
    let receipt =
        Receipt::new(generation, &header.run, &header.command, node.now(), header.about.clone(), target, owned);
    receipt.save(node)?;
    tell(node, &mut journal, course, object, events)?;
    leave_cordon(node, &journal, object)?;
    if journal.header.terms.removal == Removal::default() {
        journal.end(node)?;
    } else {
        // What else goes with Calico is done by the caller, which ends the run then. Until then it is a run that
        // starts from nothing: what it started from may be gone from the store.
        journal.is_made(node, generation)?;
    }
    let former = standing.receipts.iter().filter(|former| former.generation < generation);
    retention::collect(node, &former.chain([&receipt]).collect::<Vec<_>>(), &settled, events);
    Ok(Applied { changed, generation: receipt.about.is_some().then_some(generation), downtime })
}
