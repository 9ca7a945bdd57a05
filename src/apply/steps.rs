//! Takes the steps of a plan one by one, each journaled before, and checks the result.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::cancel;
use super::host_routes;
use super::journal::Journal;
use super::node_object::{Leaving, NodeObject};
use super::observe::observe;
use super::waits::{LOOK, await_item, since, unseen_network};
use crate::calico::{kube_proxy, networks, registry};
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, Tree};
use crate::node::{Node, Put, limits};
use crate::plan::diff::diff;
use crate::plan::order::{NODE_SERVICE, phase};
use crate::plan::{Owned, Step, Target};
use crate::report::event::{Event, Sink};
use crate::report::time;
use crate::values::WinPath;
use crate::wait::Wait;

/// How long a file may look wrong after the last step: Calico's node startup rewrites `nodename`, and empties it first.
const REWRITTEN_WITHIN: Duration = Duration::from_secs(2);

/// How often pods are detached again that came after their network was emptied: the container runtime finishes a pod
/// that it was adding when the CNI configuration was withdrawn.
const LATE_PODS: usize = 5;

/// A run of the engine: its journal, and the steps in the order in which they are taken.
pub(super) struct Engine<'a> {
    pub node: &'a mut dyn Node,
    pub object: &'a NodeObject,
    pub journal: Journal,
    /// Everything that is ours, with its original.
    pub owned: Owned,
    pub steps: Vec<Step>,
    /// Where the steps begin that are taken after the machine has reached its target and the proof succeeded.
    proven: usize,
    /// The run undoes a change.
    pub undoes: bool,
    /// Steps that changed something.
    pub changed: usize,
    pub downtime: Downtime,
    pub events: Sink<'a>,
}

impl<'a> Engine<'a> {
    /// `after`: the steps after the proof.
    pub fn new(
        node: &'a mut dyn Node,
        object: &'a NodeObject,
        journal: Journal,
        owned: Owned,
        (mut steps, after): (Vec<Step>, Vec<Step>),
        events: Sink<'a>,
    ) -> Self {
        let proven = steps.len();
        steps.extend(after);
        let downtime = Downtime::default();
        Self { node, object, journal, owned, steps, proven, undoes: false, changed: 0, downtime, events }
    }

    /// Takes the steps up to the proof, and checks that the target is reached.
    pub fn take(&mut self, goal: &Target) -> Result<()> {
        self.take_steps(goal, 0..self.proven)?;
        host_routes::restore(self.node, &self.journal.header.routes, goal, self.events)?;
        let mut left = left(self.node, goal, &self.owned)?;
        if self.await_missing(&left)? {
            left = self::left(self.node, goal, &self.owned)?;
        }
        let is_file = |step: &Step| matches!(step.id(), Id::File(_) | Id::CniConf(_));
        if left.iter().any(is_file) {
            let rest = &mut |node: &mut dyn Node, time| {
                node.pause(time);
                Ok(())
            };
            let wait = Wait { what: Some("rewritten files"), limit: REWRITTEN_WITHIN, pause: LOOK, rest };
            let _they_may_stay_wrong = wait.until(self.node, self.events, |node, _, _| {
                left = self::left(node, goal, &self.owned)?;
                Ok(if left.iter().any(is_file) { Err(String::new()) } else { Ok(()) })
            })?;
        }
        // A service that was still creating the network when the plan was made may have created one before it was
        // stopped, or its agent have written its own values.
        let agents = registry::agents_own();
        if !left.is_empty() && left.iter().all(|step| step.id().is_derived() || agents.contains(step.id())) {
            self.replace_steps(left);
            self.take_steps(goal, 0..self.proven)?;
            left = self::left(self.node, goal, &self.owned)?;
        }
        let Some(step) = left.first() else { return Ok(()) };
        let what: Vec<String> = left.iter().map(|step| step.id().to_string()).collect();
        let adapters = on_two_adapters(self.node)?;
        let what = format!("after the last step these are still not as wanted: {}{adapters}", what.join(", "));
        Err(Fault::new(Exit::VerifyFailed, "NotConverged", what)
            .hint(format!(
                "something on this machine changes {} at the same time; find it, then run: calicoctl-win resume",
                step.id()
            ))
            .into())
    }

    /// Other steps up to the proof, instead of those that were taken.
    pub fn replace_steps(&mut self, mut steps: Vec<Step>) {
        let after = self.steps.split_off(self.proven);
        self.proven = steps.len();
        steps.extend(after);
        self.steps = steps;
    }

    /// Waits for networks that existed when the plan was made and do not exist now: on its first start since boot,
    /// CalicoNode removes and re-creates the old ones. Returns whether there were any.
    fn await_missing(&mut self, left: &[Step]) -> Result<bool> {
        let mut waited = false;
        let wrong =
            |id: &Id| left.iter().any(|step| matches!(step, Step::Put { id: other, after: None, .. } if other == id));
        for step in left {
            // It may exist by now: what counts is that it did not when the remaining steps were planned.
            if let Step::Await { id, state, within } = step
                && !wrong(id)
                && self.node.get(&Id::Running(NODE_SERVICE.into()))?.is_some()
            {
                await_item(self.node, (id, state), *within, self.object, self.events)?;
                waited = true;
            }
        }
        Ok(waited)
    }

    /// Takes the steps after the proof, without a goal of the machine: the items of the Node, or renewed files. They
    /// are not cancelled. A machine that works is not undone because a note failed.
    pub fn take_rest(&mut self) -> Result<()> {
        self.object.ask_again();
        self.take_steps(&Target::default(), self.proven..self.steps.len())
    }

    fn take_steps(&mut self, goal: &Target, taken: Range<usize>) -> Result<()> {
        let steps = self.steps.clone();
        let phases = phases(&steps);
        let (mut noticed, mut end) = (false, 0);
        for (index, (phase, length)) in phases.iter().enumerate() {
            let part = end..end + length;
            end = part.end;
            if !taken.contains(&part.start) {
                continue;
            }
            let begun = self.node.now();
            (self.events)(Event::PhaseStarted { phase, place: Some((index + 1, phases.len())) });
            let mut said = None;
            for at in part.clone() {
                let step = &steps[at];
                if !noticed && touches_host_network(step, &steps) {
                    noticed = true;
                    (self.events)(Event::ConnectivityNotice {
                        message: "Windows is about to rebuild the virtual switch: this machine's network pauses and remote sessions may drop; the run continues without them".into(),
                        resume_with: "calicoctl-win status --wait".into(),
                    });
                }
                if at < self.proven {
                    cancel::check()?;
                }
                if let Some(doing) = doing(step) {
                    (self.events)(Event::Log { message: doing });
                }
                self.journal.step(self.node, index + 1, phases.len(), step.id())?;
                self.downtime.before(step, self.node.now());
                match self.take_step(step, &steps, goal) {
                    Ok(message) => said = message.or(said),
                    Err(error) => {
                        (self.events)(Event::PhaseFailed { phase, message: format!("{error:#}") });
                        return Err(error);
                    }
                }
                self.downtime.after(step, self.node.now());
            }
            let message = said.unwrap_or_else(|| summary(&steps[part]));
            let took = since(begun, self.node.now());
            (self.events)(Event::PhaseCompleted { phase, message, changed: true, took });
        }
        Ok(())
    }

    /// Takes one step. Returns what there is to tell of it, besides its item.
    fn take_step(&mut self, step: &Step, steps: &[Step], goal: &Target) -> Result<Option<String>> {
        let Self { node, object, journal, events, .. } = self;
        let leaving = Leaving {
            dropped: journal.header.terms.drops_pods,
            whatever: self.undoes,
            recreated: goal.world.contains_key(&Id::Service(NODE_SERVICE.into())),
        };
        match step {
            Step::Put { id, after, .. } if id.is_in_cluster() => {
                return put_in_cluster(journal, object, id, after.as_ref(), events).map(Some);
            }
            Step::Drain { .. } => {
                let options = journal.header.terms.drain.clone().unwrap_or_default();
                return Ok(Some(object.drain(&options, events)?.done()));
            }
            Step::Put { id, before, after } => {
                // The agent may write its own values until it is stopped.
                let own = registry::agents_own().contains(id);
                let any = own || id.is_derived() || comes_with_release(id, steps);
                clear_for(*node, step, steps, goal)?;
                let mut late = 0..LATE_PODS;
                let changed = loop {
                    match put(*node, id, before.as_ref(), after.as_ref(), any, events) {
                        Err(error)
                            if matches!(id, Id::Network(_)) && has_references(&error) && late.next().is_some() =>
                        {
                            object.vacate(*node, &id.target(), leaving, events)?;
                        }
                        done => break done?,
                    }
                };
                self.changed += usize::from(changed);
                if after.is_none() {
                    journal.is_deleted(*node, id)?;
                }
            }
            Step::Await { id, state, within } => {
                await_item(*node, (id, state), *within, object, events)?;
                if matches!(id, Id::Running(_)) && has_another_network(journal, steps, goal) {
                    object.restart_kube_proxy(goal.leave.contains(&Id::Running(kube_proxy::NAME.into())), events);
                }
            }
            Step::Vacate { id } => {
                still_cordoned(steps, object)?;
                object.vacate(*node, &id.target(), leaving, events)?;
            }
        }
        Ok(None)
    }
}

/// HNS may make `Calico` on another adapter than `External`, if a machine has several (rke2 issue 3533). Returns that
/// for people; empty if both are on one.
fn on_two_adapters(node: &dyn Node) -> Result<String> {
    let adapter = |name: &str| -> Result<Option<String>> {
        Ok(match node.get(&Id::Network(name.into()))? {
            Some(State::Network(network)) => network.adapter,
            _ => None,
        })
    };
    Ok(match (adapter(networks::PODS)?, adapter(networks::BOOTSTRAP)?) {
        (Some(pods), Some(bootstrap)) if !pods.eq_ignore_ascii_case(&bootstrap) => {
            format!("; HNS made the network Calico on adapter {pods}, and External is on adapter {bootstrap}")
        }
        _ => String::new(),
    })
}

/// Returns the steps that are still needed. Folders of this program remain while they contain files of users.
fn left(node: &dyn Node, target: &Target, owned: &Owned) -> Result<Vec<Step>> {
    let mut left = diff(target, &observe(node, target, owned)?, owned);
    left.retain(|step| !matches!(step, Step::Put { id: Id::Dir(_), after: None, .. }));
    Ok(left)
}

/// Whether the run has replaced the pods' network that was there, or the run that it ends has.
fn has_another_network(journal: &Journal, steps: &[Step], target: &Target) -> bool {
    let id = Id::Network(networks::PODS.into());
    let differs = |was: &State| target.world.get(&id).is_some_and(|wanted| !was.satisfies(wanted));
    let was = journal.header.networks.get(&id);
    was.is_some_and(|was| steps.iter().any(|step| *step.id() == id) || differs(was))
}

/// Sets the state of an item of the Node, and returns what was done.
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
            // A resumed run may find another state.
            return match object.cordon(&name)? {
                Some(_) => {
                    let message = format!("node {name} was cordoned by somebody before, and stays so after this run");
                    events(Event::Warning { id: STAYS_CORDONED, message });
                    Ok(format!("node {name} was cordoned before"))
                }
                None => Err(uncordoned_meanwhile(&name).into()),
            };
        }
        object.put(id, after)?;
        return Ok(format!("node {name}: no new pods come"));
    }
    Ok(put_note(object, id, after, events))
}

/// Writes or removes a note on the Node; a failure is only reported.
pub(super) fn put_note(object: &NodeObject, id: &Id, after: Option<&State>, events: Sink) -> String {
    let name = id.target();
    let Err(error) = object.put(id, after) else {
        let what =
            if after.is_some() { "carries the digest of its settings" } else { "says nothing of Calico any more" };
        return format!("node {name} {what}");
    };
    let (warning, message) = match after {
        // The note shows a fleet which nodes are done; a user who may not write it does without.
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

/// If pods were moved away, none may have been started since: somebody may have uncordoned the Node. If the cluster
/// does not answer, HNS shows them.
fn still_cordoned(steps: &[Step], object: &NodeObject) -> Result<()> {
    if !steps.iter().any(|step| matches!(step, Step::Drain { .. })) || !matches!(object.cordon(object.name()), Ok(None))
    {
        return Ok(());
    }
    Err(uncordoned_meanwhile(object.name()).into())
}

fn uncordoned_meanwhile(name: &str) -> Fault {
    let what = format!("node {name} was uncordoned by somebody while this run needs it empty");
    Fault::new(Exit::PlanStale, "NodeUncordoned", what)
        .hint("find out who did, and run the command again when nobody else changes the node")
}

/// Before CalicoNode starts again: deletes a wrong network that it created between the plan and its stop. Right after a
/// boot it does just that, with the old settings, and would later reject the network.
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

/// Whether HNS refused to delete a network because endpoints are attached to it.
fn has_references(error: &anyhow::Error) -> bool {
    Fault::id_of(error) == "HnsNetworkInUse"
}

/// The id of the warning for something that is removed only when Windows starts next.
pub const GONE_WITH_REBOOT: &str = "GoneWithReboot";

/// The id of the warning that a run leaves the Node cordoned, as somebody else had cordoned it.
pub const STAYS_CORDONED: &str = "NodeStaysCordoned";

/// Compare and set; `any` accepts every current state. Returns whether anything was changed.
fn put(
    node: &mut dyn Node,
    id: &Id,
    before: Option<&State>,
    after: Option<&State>,
    any: bool,
    events: Sink,
) -> Result<bool> {
    let now = node.get(id).with_context(|| format!("look at {id}"))?;
    // An earlier step that changed the rights of a folder may have changed those of the folders in it.
    let serves = |now: &State| after.is_some_and(|after| matches!(id, Id::Dir(_)) && now.satisfies(after));
    if now.as_ref() == after || now.as_ref().is_some_and(serves) {
        return Ok(false);
    }
    if now.as_ref() != before && !any {
        return Err(changed_since_plan(id).into());
    }
    let done = node.put(id, after);
    if done.is_err()
        && *id == Id::Running(NODE_SERVICE.into())
        && let Ok(Some(cause)) = unseen_network(node)
    {
        return Err(cause.into());
    }
    let Put { left_until_reboot, name_held, address_away } = done?;
    if let Some(ip) = address_away {
        let message = format!("{id} is deleted, but some minutes later no adapter has its address {ip} back");
        events(Event::Warning { id: "AdapterNotBack", message });
    }
    if let Some(left) = left_until_reboot {
        let message = format!("{left} still runs, and goes when Windows starts next");
        events(Event::Warning { id: GONE_WITH_REBOOT, message });
    }
    if name_held {
        let message = format!("{id} is deleted, but a program has it open: its name is free when that closes it");
        events(Event::Warning { id: "ServiceNameHeld", message });
    }
    Ok(true)
}

/// Whether an item is in a release of ours that is swapped in by these steps. A release from the store may contain a
/// file of an earlier generation: that is ours too, whatever its contents.
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

/// What a step does to an item, in the user's words. Waits and the drain have events of their own.
fn doing(step: &Step) -> Option<String> {
    let id = step.id();
    let (target, path) = (id.target(), id.path());
    let name = match id {
        Id::Running(_) | Id::Service(_) => format!("service {target}"),
        Id::DependsOn(_) => format!("the dependencies of service {target}"),
        Id::Network(_) => format!("HNS network {target}"),
        Id::Route(_) => format!("route {target}"),
        Id::Adapter(_) => format!("the address of adapter {target}"),
        Id::Firewall(_) => format!("firewall rule {target}"),
        Id::RegValue { name, .. } => format!("registry value {name}"),
        Id::CniConf(_) => format!("the CNI configuration {}", path.map_or("", WinPath::name)),
        Id::File(_) | Id::Dir(_) | Id::Tree(_) => path.map_or(target, ToString::to_string),
        Id::Cordon(_) | Id::Achieved(_) | Id::CalicoIsUp(_) => format!("Node {target}"),
    };
    let verb = match step {
        Step::Vacate { .. } => "removing pods' endpoints from",
        Step::Put { id: Id::Running(_), after: Some(_), .. } => "starting",
        Step::Put { id: Id::Running(_), .. } => "stopping",
        Step::Put { id, .. } if id.is_in_cluster() => "updating",
        Step::Put { after: None, .. } => "removing",
        Step::Put { before: None, .. } => "creating",
        Step::Put { .. } => "changing",
        Step::Await { .. } | Step::Drain { .. } => return None,
    };
    let limit = match step {
        Step::Put { id, after, .. } => limits::of(id, after.is_none()),
        _ => None,
    };
    let limit = limit.map_or_else(String::new, |limit| format!(" (limit {})", time::minutes(limit.as_secs())));
    Some(format!("{verb} {name}{limit}"))
}

/// What a phase did, in one line.
fn summary(part: &[Step]) -> String {
    let name = |step: &Step| match step.id() {
        id @ (Id::Service(_) | Id::DependsOn(_) | Id::Running(_) | Id::Network(_) | Id::Firewall(_)) => id.target(),
        // The last two parts of the key are enough: the plan shows each value.
        Id::RegValue { key, .. } => key.rmatch_indices('\\').nth(1).map_or(&**key, |(at, _)| &key[at + 1..]).to_owned(),
        id => id
            .path()
            .map_or_else(|| id.target(), |path| if part.len() > 2 { path.name().to_owned() } else { path.to_string() }),
    };
    let mut names: Vec<String> = part.iter().map(name).collect();
    names.dedup();
    if names.len() > 4 { format!("{} and {} more", names[..3].join(", "), names.len() - 3) } else { names.join(", ") }
}

/// Whether Windows rebuilds the virtual switch in this step: a network is deleted, or CalicoNode starts and creates
/// one.
fn touches_host_network(step: &Step, steps: &[Step]) -> bool {
    match step {
        Step::Put { id: Id::Network(_), .. } => true,
        Step::Put { id: Id::Running(service), after: Some(_), .. } if service == NODE_SERVICE => {
            steps.iter().any(|step| matches!(step, Step::Await { id: Id::Network(_), .. }))
        }
        _ => false,
    }
}

/// From the first service stopped to the last one started.
#[derive(Debug, Default)]
pub(super) struct Downtime {
    stopped: Option<Timestamp>,
    pub total: Duration,
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
}
