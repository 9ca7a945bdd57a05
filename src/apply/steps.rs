//! Takes the steps of a plan one by one, each journaled before, and judges what they left.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::cancel;
use super::journal::Journal;
use super::node_object::NodeObject;
use super::observe::observe;
use crate::agent::Role;
use crate::agent::logs as log;
use crate::agent::state::{self, AgentState};
use crate::calico::registry;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, Tree};
use crate::node::Node;
use crate::plan::diff::diff;
use crate::plan::order::{NODE_SERVICE, phase};
use crate::plan::{Owned, Step, Target, show};
use crate::report::event::{Event, Sink};

/// How often a wait looks. Small against anything Windows does, and the most that we add.
const LOOK: Duration = Duration::from_millis(50);

/// How long a file may look wrong after the last step. Calico's node startup writes `nodename` anew, and
/// empties it first.
const WRITTEN_ANEW: Duration = Duration::from_secs(2);

/// The steps of a run, in the order in which they are taken.
pub(super) struct Course {
    steps: Vec<Step>,
    /// Where those begin that come when the machine is as it is to be, and was seen to work.
    proven: usize,
}

impl Course {
    pub fn new(mut steps: Vec<Step>, after: Vec<Step>) -> Self {
        let proven = steps.len();
        steps.extend(after);
        Self { steps, proven }
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// Takes the steps up to the proof, and sees that all is as wanted.
pub(super) fn take(
    node: &mut dyn Node,
    journal: &mut Journal,
    target: &Target,
    owned: &Owned,
    course: &Course,
    object: &NodeObject,
    events: Sink,
) -> Result<(usize, Duration)> {
    let (mut changed, mut downtime) = take_steps(node, journal, target, course, 0..course.proven, object, events)?;
    let mut left = left(node, target, owned)?;
    if await_missing(node, &left, events)? {
        left = self::left(node, target, owned)?;
    }
    let is_file = |step: &Step| matches!(step.id(), Id::File(_) | Id::CniConf(_));
    let mut waited = Duration::ZERO;
    while left.iter().any(is_file) && waited < WRITTEN_ANEW {
        node.pause(LOOK);
        waited += LOOK;
        left = self::left(node, target, owned)?;
    }
    // A service that was still bringing up the network when the plan was made may have made one
    // before it was stopped.
    if !left.is_empty() && left.iter().all(|step| step.id().is_derived()) {
        let again = Course::new(left, Vec::new());
        let (more, longer) = take_steps(node, journal, target, &again, 0..again.proven, object, events)?;
        (changed, downtime) = (changed + more, downtime + longer);
        left = self::left(node, target, owned)?;
    }
    if let Some(step) = left.first() {
        let what: Vec<String> = left.iter().map(|step| step.id().to_string()).collect();
        return Err(Fault::new(
            Exit::VerifyFailed,
            "NotConverged",
            format!("after the last step these are still not as wanted: {}", what.join(", ")),
        )
        .hint(format!(
            "something on this machine changes {} at the same time; find it, then run: calicoctl-win resume",
            step.id()
        ))
        .into());
    }
    Ok((changed, downtime))
}

/// Waits for networks that were there when the plan was made and are not now: on its first start
/// since boot the node service takes down those of before and makes them anew. Says whether there
/// were any.
fn await_missing(node: &mut dyn Node, left: &[Step], events: Sink) -> Result<bool> {
    let mut waited = false;
    let wrong =
        |id: &Id| left.iter().any(|step| matches!(step, Step::Put { id: other, after: None, .. } if other == id));
    for step in left {
        // It may be there by now: what counts is that it was not when the rest was judged.
        if let Step::Await { id, state, within } = step
            && !wrong(id)
            && node.get(&Id::Running(NODE_SERVICE.into()))?.is_some()
        {
            await_item(node, id, state, *within, events)?;
            waited = true;
        }
    }
    Ok(waited)
}

/// What is still not as wanted. Folders of ours stay while others have something in them.
fn left(node: &dyn Node, target: &Target, owned: &Owned) -> Result<Vec<Step>> {
    let mut left = diff(target, &observe(node, target, owned)?, owned);
    left.retain(|step| !matches!(step, Step::Put { id: Id::Dir(_), after: None, .. }));
    Ok(left)
}

/// Takes the steps that come when the machine is as it is to be: what the Node says. A machine that works is not
/// given up for a note about it.
pub(super) fn tell(
    node: &mut dyn Node,
    journal: &mut Journal,
    course: &Course,
    object: &NodeObject,
    events: Sink,
) -> Result<()> {
    object.ask_again();
    let rest = course.proven..course.steps.len();
    take_steps(node, journal, &Target::default(), course, rest, object, events).map(drop)
}

fn take_steps(
    node: &mut dyn Node,
    journal: &mut Journal,
    target: &Target,
    course: &Course,
    taken: Range<usize>,
    object: &NodeObject,
    events: Sink,
) -> Result<(usize, Duration)> {
    let steps = course.steps();
    let phases = phases(steps);
    let (mut changed, mut clock) = (0, Downtime::default());
    let mut noticed = false;
    let mut done = 0;
    for (index, (name, length)) in phases.iter().enumerate() {
        if !taken.contains(&done) {
            done += length;
            continue;
        }
        let (name, begun) = (*name, node.now());
        events(Event::PhaseStarted { phase: name, place: Some((index + 1, phases.len())) });
        let part = &steps[done..done + length];
        let mut said = None;
        for (offset, step) in part.iter().enumerate() {
            if !noticed && touches_host_network(step, steps) {
                noticed = true;
                events(Event::ConnectivityNotice {
                    message: "Windows is about to rebuild the virtual switch: this machine's network pauses and remote sessions may drop; the run goes on without them".into(),
                    resume_with: "calicoctl-win status --wait".into(),
                });
            }
            if done < course.proven {
                cancel::check()?;
            }
            journal.step(node, done + offset + 1, steps.len(), step.id())?;
            clock.before(step, node.now());
            let result = match step {
                Step::Put { id, after, .. } if id.is_in_cluster() => {
                    put_in_cluster(journal, object, id, after.as_ref(), events).map(|message| said = Some(message))
                }
                Step::Drain { .. } => drain(journal, object, events).map(|message| said = Some(message)),
                Step::Put { id, before, after } => {
                    // What the agent itself writes it may write until it is stopped.
                    let own = registry::agents_own().contains(id);
                    let any = own || id.is_derived() || comes_with_release(id, steps);
                    clear_for(node, step, steps, target)
                        .and_then(|()| put(node, id, before.as_ref(), after.as_ref(), any))
                        .map(|did| changed += usize::from(did))
                }
                Step::Await { id, state, within } => await_item(node, id, state, *within, events),
                Step::Vacate { id } => still_cordoned(steps, object)
                    .and_then(|()| object.vacate(node, &id.target(), journal.header.terms.drops_pods, events)),
            };
            if let Err(error) = result {
                events(Event::PhaseFailed { phase: name, message: format!("{error:#}") });
                return Err(error);
            }
            clock.after(step, node.now());
        }
        let message = said.unwrap_or_else(|| summary(part));
        events(Event::PhaseCompleted { phase: name, message, changed: true, took: since(begun, node.now()) });
        done += length;
    }
    Ok((changed, clock.total()))
}

/// Makes an item of the Node so, and says what came of it.
fn put_in_cluster(
    journal: &Journal,
    object: &NodeObject,
    id: &Id,
    after: Option<&State>,
    events: Sink,
) -> Result<String> {
    let name = id.target();
    if let Id::Cordon(_) = id {
        if let Some(Some(State::Cordon { .. })) = journal.originals.get(id) {
            return Ok(format!("node {name} was cordoned by somebody before, and stays so"));
        }
        object.put(id, after)?;
        return Ok(format!("node {name}: no new pods come"));
    }
    Ok(put_note(object, id, after, events))
}

/// Has the Node say something, or not any more; what keeps it from that is told.
pub(super) fn put_note(object: &NodeObject, id: &Id, after: Option<&State>, events: Sink) -> String {
    let name = id.target();
    let Err(error) = object.put(id, after) else {
        let what =
            if after.is_some() { "carries the digest of its settings" } else { "says nothing of Calico any more" };
        return format!("node {name} {what}");
    };
    let (warning, message) = match after {
        // It is for a fleet to see who is done, and who may not write it does without.
        Some(_) if Fault::id_of(&error) == "ClusterForbidden" => {
            events(Event::Log { message: format!("node {name} may not be annotated with these rights: {error:#}") });
            return format!("node {name} is not told: these rights do not allow it");
        }
        Some(_) => ("NotAnnotated", format!("node {name} does not carry the digest of its settings: {error:#}")),
        None => (
            "ClusterTracesLeft",
            format!("the cluster still has what was written on Node {name} ({}): {error:#}", id.kind()),
        ),
    };
    events(Event::Warning { id: warning, message });
    format!("node {name} is not told")
}

fn drain(journal: &Journal, object: &NodeObject, events: Sink) -> Result<String> {
    let options = journal.header.terms.drain.clone().unwrap_or_default();
    let drained = object.drain(&options, events)?;
    Ok(format!("{} pods went, {} stay", drained.goes.len(), drained.stays.len()))
}

/// Where pods were moved away, none may have come since: somebody may have uncordoned the Node. What the cluster
/// does not say, HNS does.
fn still_cordoned(steps: &[Step], object: &NodeObject) -> Result<()> {
    if !steps.iter().any(|step| matches!(step, Step::Drain { .. })) || !matches!(object.cordon(object.name()), Ok(None))
    {
        return Ok(());
    }
    let what = format!("node {} was uncordoned by somebody while this run needs it empty", object.name());
    Err(Fault::new(Exit::PlanStale, "NodeUncordoned", what)
        .hint("find out who did, and run the command again when nobody else changes the node")
        .into())
}

/// Before the node service starts again: takes away a wrong network that it made between the plan and
/// its stop. Right after a boot it is at just that, with the settings of before, and would not put up
/// with what it made then.
fn clear_for(node: &mut dyn Node, step: &Step, steps: &[Step], target: &Target) -> Result<()> {
    let run = Id::Running(NODE_SERVICE.into());
    let stops = |step: &Step| matches!(step, Step::Put { id, after: None, .. } if *id == run);
    if !matches!(step, Step::Put { id, after: Some(_), .. } if *id == run) || !steps.iter().any(stops) {
        return Ok(());
    }
    for (id, wanted) in target.world.iter().filter(|(id, _)| id.is_derived()) {
        if node.get(id)?.is_some_and(|have| !have.satisfies(wanted)) {
            node.put(id, None)?;
        }
    }
    Ok(())
}

/// Compare and set; `any` takes whatever is there. Says whether anything was done.
fn put(node: &mut dyn Node, id: &Id, before: Option<&State>, after: Option<&State>, any: bool) -> Result<bool> {
    let now = node.get(id).with_context(|| format!("look at {id}"))?;
    // Whoever closes a folder, or opens it, may by that have done so with the folders in it.
    let serves = |now: &State| after.is_some_and(|after| matches!(id, Id::Dir(_)) && now.satisfies(after));
    if now.as_ref() == after || now.as_ref().is_some_and(serves) {
        return Ok(false);
    }
    if now.as_ref() != before && !any {
        return Err(changed_since_plan(id).into());
    }
    node.put(id, after)?;
    Ok(true)
}

/// Waits until the services have made an item, or until one that runs does its work.
fn await_item(node: &mut dyn Node, id: &Id, wanted: &State, within: Duration, events: Sink) -> Result<()> {
    if let Id::Running(_) = id {
        return await_startup(node, within, events);
    }
    let begun = node.now();
    let mut looked = Duration::ZERO;
    loop {
        let have = node.get(id).with_context(|| format!("look at {id}"))?;
        if have.as_ref().is_some_and(|have| have.satisfies(wanted)) {
            return Ok(());
        }
        if node.get(&Id::Running(NODE_SERVICE.into()))?.is_none() {
            return Err(node_service_stopped(&format!("it made {id}")).into());
        }
        // The wall clock may be set back while we wait; what we slept ourselves counts all the same.
        let elapsed = since(begun, node.now()).max(looked);
        if elapsed >= within {
            let found = have.map_or_else(|| "it is not there".into(), |have| format!("it is {}", show::state(&have)));
            return Err(Fault::new(
                Exit::VerifyFailed,
                "NetworkNotMade",
                format!("{NODE_SERVICE} did not make {id} within {} s: {found}", within.as_secs()),
            )
            .hint("its log says what it waits for: calico-node.log in spec.services.logDir (C:\\CalicoWindows\\logs)")
            .into());
        }
        cancel::check()?;
        events(Event::Waiting { what: format!("{id} made by {NODE_SERVICE}"), elapsed, limit: within });
        node.pause(LOOK);
        looked += LOOK;
    }
}

/// Waits until CalicoNode's agent says that Calico's node startup has succeeded. How often it failed
/// before does not count: only how it ended.
fn await_startup(node: &mut dyn Node, within: Duration, events: Sink) -> Result<()> {
    let begun = node.now();
    let mut looked = Duration::ZERO;
    loop {
        let said = state::live(node, Role::Node)?;
        if said.as_ref().is_some_and(AgentState::at_work) {
            return Ok(());
        }
        if node.get(&Id::Running(NODE_SERVICE.into()))?.is_none() {
            return Err(node_service_stopped("Calico's node startup succeeded").into());
        }
        let elapsed = since(begun, node.now()).max(looked);
        if elapsed >= within {
            let how = said.map_or_else(|| "its agent says nothing".into(), |said| said.startup_so_far(node.now()));
            let words = log::last_words(node, Role::Node);
            let words = if words.is_empty() { String::new() } else { format!("; its log ends: {}", words.join(" | ")) };
            let what = format!("Calico's node startup did not succeed within {} s: {how}{words}", within.as_secs());
            return Err(Fault::new(Exit::VerifyFailed, "NodeStartupFailed", what)
                .hint("its whole log: calicoctl-win logs; the cause is most often the datastore or a right that is missing")
                .into());
        }
        cancel::check()?;
        events(Event::Waiting { what: "Calico's node startup".into(), elapsed, limit: within });
        node.pause(LOOK);
        looked += LOOK;
    }
}

fn node_service_stopped(before: &str) -> Fault {
    Fault::new(Exit::VerifyFailed, "NodeServiceStopped", format!("{NODE_SERVICE} stopped before {before}"))
        .hint("its log says why: calico-node.log in spec.services.logDir (C:\\CalicoWindows\\logs)")
}

/// Whether an item lies in a release of ours that is swapped in on the way. One that comes from the
/// store may bring a file of an earlier generation along: that is ours as well, whatever is in it.
pub(super) fn comes_with_release(id: &Id, steps: &[Step]) -> bool {
    id.path().is_some_and(|path| {
        steps.iter().any(|step| {
            matches!(step, Step::Put { id: tree @ Id::Tree(root), after: Some(State::Tree(Tree::Release(_))), .. }
                if tree != id && path.is_below(root))
        })
    })
}

pub(super) fn changed_since_plan(id: &Id) -> Fault {
    Fault::new(Exit::PlanStale, "ChangedSincePlan", format!("{id} was changed by someone else since the plan was made"))
        .hint("look at what it is now, then plan again: calicoctl-win plan")
}

/// Consecutive steps of the same kind are one phase.
fn phases(steps: &[Step]) -> Vec<(&'static str, usize)> {
    let mut phases: Vec<(&'static str, usize)> = Vec::new();
    for step in steps {
        let name = match step {
            Step::Put { id: Id::Running(_), after, .. } => {
                if after.is_some() {
                    "services-start"
                } else {
                    "services-stop"
                }
            }
            Step::Put { id, .. } => phase(id, true),
            Step::Await { id, .. } => phase(id, false),
            Step::Vacate { .. } => "pods",
            Step::Drain { .. } => "drain",
        };
        match phases.last_mut() {
            Some((last, count)) if *last == name => *count += 1,
            _ => phases.push((name, 1)),
        }
    }
    phases
}

/// What a phase did, in one line.
fn summary(part: &[Step]) -> String {
    let name = |step: &Step| match step.id() {
        id @ (Id::Service(_) | Id::DependsOn(_) | Id::Running(_) | Id::Network(_) | Id::Firewall(_)) => id.target(),
        // The key is enough, by its last two words: the plan has each value.
        Id::RegValue { key, .. } => key.rmatch_indices('\\').nth(1).map_or(&**key, |(at, _)| &key[at + 1..]).to_owned(),
        id => id
            .path()
            .map_or_else(|| id.target(), |path| if part.len() > 2 { path.name().to_owned() } else { path.to_string() }),
    };
    let mut names: Vec<String> = part.iter().map(name).collect();
    names.dedup();
    if names.len() > 4 { format!("{} and {} more", names[..3].join(", "), names.len() - 3) } else { names.join(", ") }
}

/// Whether Windows rebuilds the virtual switch on this step: a network goes, or the node service
/// starts and makes one.
fn touches_host_network(step: &Step, steps: &[Step]) -> bool {
    match step {
        Step::Put { id: Id::Network(_), .. } => true,
        Step::Put { id: Id::Running(service), after: Some(_), .. } if service == NODE_SERVICE => {
            steps.iter().any(|step| matches!(step, Step::Await { id: Id::Network(_), .. }))
        }
        _ => false,
    }
}

/// Non-negative time between two readings of the wall clock, which may be set back.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// From the first service stopped to the last one started.
#[derive(Debug, Default)]
struct Downtime {
    stopped: Option<Timestamp>,
    total: Duration,
}

impl Downtime {
    fn before(&mut self, step: &Step, now: Timestamp) {
        if matches!(step, Step::Put { id: Id::Running(_), after: None, .. }) {
            self.stopped.get_or_insert(now);
        }
    }

    fn after(&mut self, step: &Step, now: Timestamp) {
        if let (Some(stopped), Step::Put { id: Id::Running(_), after: Some(_), .. }) = (self.stopped, step) {
            self.total = since(stopped, now);
        }
    }

    const fn total(&self) -> Duration {
        self.total
    }
}
