//! The engine: brings a node from what it is to a target, one journaled step at a time. Every verb
//! that changes the node is this with another target; `resume` is this again, and undoing is this
//! with the former generation as its target.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};

use super::acls::Networks;
use super::journal::{AtBoot, Header, Journal};
use super::receipt::{self, About, Receipt};
use super::steps::{changed_since_plan, comes_with_release, take};
use super::{retention, stale_files, store};
use crate::fault::{Exit, Fault};
use crate::item::{Id, Network, State, World};
use crate::node::Node;
use crate::plan::diff::{self, diff, ids};
use crate::plan::order::{FELIX_SERVICE, SERVICES, is_own};
use crate::plan::{Owned, Step, Target};
use crate::report::event::{Event, Sink};
use crate::values::NodeName;
use crate::version::CalicoVersion;

/// What a run is asked to bring about.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    pub run: &'a str,
    /// The verb, for journal and receipt.
    pub command: &'a str,
    pub target: &'a Target,
    /// What the target is made from; none for an uninstall.
    pub about: Option<&'a About>,
    /// What is to become of it when Windows starts before it is over.
    pub at_boot: Option<AtBoot>,
    /// Whether pods that were not moved away lose a network that goes.
    pub drops_pods: bool,
    /// The steps that were shown and agreed to, if somebody was asked: no others are taken.
    pub shown: Option<&'a [Step]>,
}

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Steps that changed something.
    pub changed: usize,
    /// The generation that stands now; none when nothing is installed.
    pub generation: Option<u32>,
    /// From the first service stopped to the last one started.
    pub downtime: Duration,
}

/// The standing of a node: its receipts, and a run that is not over.
#[derive(Debug)]
pub struct Standing {
    pub receipts: Vec<Receipt>,
    pub journal: Option<Journal>,
    /// Why former receipts that nothing depends on cannot be read.
    pub unreadable: Vec<String>,
}

impl Standing {
    /// Reads it off the node's disk.
    ///
    /// # Errors
    /// When the newest receipt, the one that an interrupted run started from, or the journal cannot
    /// be read: without them we would not know what is ours.
    pub fn load(node: &dyn Node) -> Result<Self> {
        let journal = Journal::load(node)?;
        let from = journal.as_ref().and_then(|journal| journal.header.from);
        let all = receipt::all(node)?;
        let newest = all.last().map(|(generation, _)| *generation);
        let (mut receipts, mut unreadable) = (Vec::new(), Vec::new());
        for (generation, receipt) in all {
            match receipt {
                Ok(receipt) => receipts.push(receipt),
                Err(error) if Some(generation) == newest || Some(generation) == from => return Err(error),
                Err(error) => unreadable.push(format!("{error:#}")),
            }
        }
        Ok(Self { receipts, journal, unreadable })
    }

    /// Says what of the past cannot be read.
    fn tell(&self, events: Sink) {
        for why in &self.unreadable {
            let message = format!("a former generation is lost, which changes nothing now: {why}");
            events(Event::Warning { id: "ReceiptUnreadable", message });
        }
    }

    /// The newest generation that is installed.
    pub fn receipt(&self) -> Option<&Receipt> {
        receipt::standing(&self.receipts)
    }

    /// The name of the Kubernetes Node, as the run under way or the newest generation that was installed
    /// has it.
    pub fn node_name(&self) -> Option<&NodeName> {
        let run = self.journal.as_ref().and_then(|journal| journal.header.about.as_ref());
        let newest = || self.receipts.iter().rev().find_map(|receipt| receipt.about.as_ref());
        run.or_else(newest).map(|about| &about.node_name)
    }

    /// The release of the generation that stands.
    pub fn release(&self) -> Option<&CalicoVersion> {
        Some(&self.receipt()?.about.as_ref()?.calico_version)
    }

    /// The generation that a run starts from: the one that stands, or the one an interrupted run
    /// started from.
    fn base(&self) -> Option<&Receipt> {
        match &self.journal {
            Some(journal) => self.receipts.iter().find(|receipt| Some(receipt.generation) == journal.header.from),
            None => self.receipts.last(),
        }
    }

    /// Everything that is ours, with its original.
    pub fn owned(&self) -> Owned {
        let mut owned = self.base().map(|receipt| receipt.owned.clone()).unwrap_or_default();
        for (id, original) in self.journal.iter().flat_map(|journal| &journal.originals) {
            owned.entry(id.clone()).or_insert_with(|| original.clone());
        }
        owned
    }

    fn next_generation(&self) -> u32 {
        self.base().map_or(1, |receipt| receipt.generation + 1)
    }
}

/// What the node is, for everything that a plan to `target` has to know.
///
/// # Errors
/// When an item cannot be looked at: a failed question is no answer.
pub fn observe(node: &dyn Node, target: &Target, owned: &Owned) -> Result<World> {
    let mut world = World::new();
    for id in ids(target, owned) {
        if let Some(state) = node.get(&id).with_context(|| format!("look at {id}"))? {
            world.insert(id, state);
        }
    }
    for name in dependents(node, &diff::services(target, owned))? {
        for id in [Id::DependsOn(name.clone()), Id::Running(name)] {
            if let Some(state) = node.get(&id).with_context(|| format!("look at {id}"))? {
                world.insert(id, state);
            }
        }
    }
    Ok(world)
}

/// The services of others that depend on one of these, also by way of others.
///
/// # Errors
/// When they cannot be asked for.
pub fn dependents(node: &dyn Node, services: &[String]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for service in services {
        for name in node.dependents(service).with_context(|| format!("list what depends on service {service}"))? {
            // Windows compares names without case; one that is known goes by the name it is known by.
            let known = services.iter().find(|known| known.eq_ignore_ascii_case(&name)).cloned();
            found.insert(known.unwrap_or(name));
        }
    }
    found.retain(|name| !is_own(name));
    Ok(found)
}

/// The services of others that run, of those that a run to this target may stop.
fn others_running(node: &dyn Node, target: &Target, owned: &Owned) -> Result<BTreeSet<Id>> {
    let services = diff::services(target, owned);
    let mut running = BTreeSet::new();
    for name in dependents(node, &services)?.into_iter().chain(services) {
        let id = Id::Running(name.clone());
        if !is_own(&name) && node.get(&id).with_context(|| format!("look at {id}"))?.is_some() {
            running.insert(id);
        }
    }
    Ok(running)
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
    apply_proven(node, change, &|_, _, _| Ok(()), &nobody, events)
}

/// Frees a network of pods before it goes, and returns when no endpoint of theirs is on it. Told which
/// network, and whether pods that were not moved away lose it as well.
pub type Vacate<'a> = &'a dyn Fn(&mut dyn Node, &str, bool, Sink) -> Result<()>;

/// Where nobody can be asked to: HNS refuses to delete a network with pods on it.
pub fn nobody(_: &mut dyn Node, _: &str, _: bool, _: Sink) -> Result<()> {
    Ok(())
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
    change: &Change,
    proof: Proof,
    vacate: Vacate,
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
    let mut header = Header::new(change.run, change.command, from, change.target, change.about, node.now());
    header.at_boot = change.at_boot;
    header.drops_pods = change.drops_pods;
    let mut originals = Owned::new();
    if let Some(interrupted) = &standing.journal {
        originals.clone_from(&interrupted.originals);
        header.running.clone_from(&interrupted.header.running);
        header.networks.clone_from(&interrupted.header.networks);
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
    let mut journal = Journal::begin(node, header, originals)?;
    let (changed, downtime) = forward(node, &standing, &mut journal, steps, vacate, events)?;
    open_endpoints(node, &standing, &journal, change.target, events)?;
    proof(node, change.target, events)?;
    commit(node, &standing, journal, changed, downtime, events)
}

/// Refuses steps from another state of the node than those that were shown. What they lead to may
/// differ, since a token is fetched after the plan was agreed to, and some may not be needed any more.
fn same_ground(shown: &[Step], now: &[Step]) -> Result<()> {
    fn ground(steps: &[Step]) -> impl Iterator<Item = (&Id, Option<&State>)> {
        steps.iter().map(|step| match step {
            Step::Put { id, before, .. } => (id, before.as_ref()),
            Step::Await { id, .. } | Step::Vacate { id } => (id, None),
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
    resume_proven(node, &|_, _, _| Ok(()), &nobody, events)
}

/// As [`resume`], with the proof of [`apply_proven`].
///
/// # Errors
/// As [`resume`], and what the proof fails with.
pub fn resume_proven(node: &mut dyn Node, proof: Proof, vacate: Vacate, events: Sink) -> Result<Applied> {
    let standing = Standing::load(node)?;
    let mut journal = taken_up(node, &standing, events)?;
    let goal = journal.header.goal(&journal.header.target);
    let steps = plan(node, &standing, &goal)?;
    let (changed, downtime) = forward(node, &standing, &mut journal, steps, vacate, events)?;
    open_endpoints(node, &standing, &journal, &goal, events)?;
    proof(node, &goal, events)?;
    commit(node, &standing, journal, changed, downtime, events)
}

/// Takes an interrupted run back: the former generation stands again, or nothing does.
///
/// # Errors
/// As [`apply`]; and when there is no interrupted run.
pub fn undo(node: &mut dyn Node, events: Sink) -> Result<Applied> {
    undo_vacating(node, &nobody, events)
}

/// As [`undo`], with somebody who frees networks of pods that came to them meanwhile.
///
/// # Errors
/// As [`undo`].
pub fn undo_vacating(node: &mut dyn Node, vacate: Vacate, events: Sink) -> Result<Applied> {
    let standing = Standing::load(node)?;
    let mut journal = taken_up(node, &standing, events)?;
    // Where nothing stood before, pods can only have come since.
    journal.header.drops_pods |= journal.header.from.is_none();
    let former = standing.base().cloned();
    let target = former.as_ref().map(|receipt| receipt.target.clone()).unwrap_or_default();
    let target = journal.header.way_back(&target);
    let steps = plan(node, &standing, &target)?;
    let (changed, downtime) = take(node, &mut journal, &target, &standing.owned(), steps, vacate, events)?;
    open_endpoints(node, &standing, &journal, &target, events)?;
    let from = journal.header.from;
    let written = |receipt: &&Receipt| Some(receipt.generation) > from;
    if let Some(receipt) = standing.receipts.last().filter(written) {
        receipt.remove(node)?;
    }
    journal.end(node)?;
    let kept: Vec<&Receipt> = standing.receipts.iter().filter(|receipt| !written(receipt)).collect();
    retention::collect(node, &kept, &standing.owned(), events);
    let generation = former.filter(|receipt| receipt.about.is_some()).map(|receipt| receipt.generation);
    Ok(Applied { changed, generation, downtime })
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
    let mut header = journal.header;
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
    steps: Vec<Step>,
    vacate: Vacate,
    events: Sink,
) -> Result<(usize, Duration)> {
    let owned = standing.owned();
    let target = journal.header.target.clone();
    // What the services themselves change is not in the steps, and is ours to give back all the same.
    let derived = target.world.keys().filter(|id| id.is_derived()).chain(&target.leave).cloned();
    let touched: BTreeSet<Id> = steps.iter().map(|step| step.id().clone()).chain(derived).collect();
    // Whether others' services run is to be as it was before this run, and not as on the first day.
    let lasting = |id: &Id| !matches!(id, Id::Running(name) if !is_own(name));
    for id in touched.into_iter().filter(lasting) {
        if !owned.contains_key(&id) && !journal.originals.contains_key(&id) {
            let original = original(node, &id, &steps)?;
            journal.original(node, &id, original.as_ref())?;
        }
    }
    let mut owned = owned;
    owned.extend(journal.originals.clone());
    let goal = journal.header.goal(&target);
    take(node, journal, &goal, &owned, steps, vacate, events)
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
    journal: Journal,
    changed: usize,
    downtime: Duration,
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
    journal.end(node)?;
    let former = standing.receipts.iter().filter(|former| former.generation < generation);
    retention::collect(node, &former.chain([&receipt]).collect::<Vec<_>>(), &settled, events);
    Ok(Applied { changed, generation: receipt.about.is_some().then_some(generation), downtime })
}
