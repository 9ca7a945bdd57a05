//! The waits of a run: until the services have made a network, or Calico's node startup has succeeded.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::cancel;
use super::joining::Joining;
use super::node_object::NodeObject;
use crate::agent::Role;
use crate::agent::logs as log;
use crate::agent::state::{self, AgentState};
use crate::calico::networks;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::hns::unseen_by_v2;
use crate::node::{Node, OpenFile};
use crate::plan::order::NODE_SERVICE;
use crate::plan::{Step, show};
use crate::report::event::Sink;
use crate::wait::Wait;

/// How often a wait polls. Small compared with anything Windows does, and the longest delay that it adds.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How often HNS is asked: while it makes a vSwitch, each question waits for it and keeps it from its work. And the
/// Restart Manager.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long Windows may need to restart a service that ended, after the delay that the service asks for.
const RESTARTED_WITHIN: Duration = Duration::from_secs(10);

/// Waits until the services have created an item, or until a running service works.
pub(super) fn await_item(
    node: &mut dyn Node,
    (id, wanted): (&Id, &State),
    within: Duration,
    object: &NodeObject,
    events: Sink,
) -> Result<()> {
    let mut joining = Joining::new(object);
    if let Id::Running(_) = id {
        return await_startup(node, within, &mut joining, events);
    }
    let (mut service, mut asked, mut found) = (Service::default(), None, String::new());
    let what = format!("{id} made by {NODE_SERVICE}");
    let wait = Wait { what: Some(&what), limit: within, pause: LOOK, rest: &mut cancel::pause };
    let made = wait.until(node, events, |node, elapsed, events| {
        joining.look(node, elapsed, events);
        if asked.is_none_or(|then| elapsed >= then + ASK_EVERY) {
            asked = Some(elapsed);
            match still_missing(node, id, wanted) {
                Ok(None) => return Ok(Ok(())),
                Ok(Some(how)) => found = how,
                // HNS may make the vSwitch for minutes, and answers nothing meanwhile.
                Err(error) if Fault::id_of(&error) == "HnsStuck" => found = "HNS has not answered yet".into(),
                Err(error) => return Err(error.context(format!("look at {id}"))),
            }
        }
        service.look(node, elapsed, || format!("it made {id}"))?;
        Ok(Err(found.clone()))
    })?;
    made.map_err(|found| {
        let what = format!("{NODE_SERVICE} did not make {id} within {} s: {found}", within.as_secs());
        Fault::new(Exit::VerifyFailed, "NetworkNotMade", what)
            .hint("its log says what it waits for: calicoctl-win logs --component node")
            .into()
    })
}

/// How long HNS may be busy when a change is undone: it may fail just because HNS makes a vSwitch for minutes, and answers
/// nothing meanwhile.
const HNS_ANSWERS_WITHIN: Duration = Duration::from_secs(300);

/// Waits until HNS answers. At the limit the next question to it fails.
///
/// # Errors
/// Only by Ctrl-C.
pub(super) fn await_hns(node: &mut dyn Node, events: Sink) -> Result<()> {
    let id = Id::Network(networks::PODS.into());
    let what = Some("HNS to answer");
    let wait = Wait { what, limit: HNS_ANSWERS_WITHIN, pause: ASK_EVERY, rest: &mut cancel::pause };
    let _in_time = wait.until(node, events, |node, _, _| match node.get(&id) {
        Err(error) if Fault::id_of(&error) == "HnsStuck" => Ok(Err(String::new())),
        _ => Ok(Ok(())),
    })?;
    Ok(())
}

/// How long a file of a folder that is about to be moved may be open: a virus scanner or a backup reads it and closes it.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);

/// Before anything is changed: waits until nobody but the services that these steps stop has a file open in a folder
/// that they move.
///
/// # Errors
/// `FileInUse` naming the file and its process.
pub(super) fn await_closed(node: &mut dyn Node, steps: &[Step], events: Sink) -> Result<()> {
    let mut stopped = Vec::new();
    for step in steps {
        if let Step::Put { id: Id::Running(service), after: None, .. } = step {
            stopped.extend(node.process(service)?);
        }
    }
    let moved = steps.iter().filter_map(|step| match step {
        Step::Put { id: Id::Tree(folder), before: Some(_), .. } => Some(folder),
        _ => None,
    });
    for folder in moved {
        let wait = Wait { what: None, limit: CLOSED_WITHIN, pause: ASK_EVERY, rest: &mut cancel::pause };
        let mut holds = String::new();
        let closed = wait.until(node, events, |node, _, _| {
            let open = node.open_files(folder, &stopped).with_context(|| format!("look who uses {folder}"))?;
            let Some(OpenFile { path, by }) = open.first() else { return Ok(Ok(())) };
            holds = format!("{by} has {path} open");
            Ok(Err(format!("{by} to close {path}")))
        })?;
        closed.map_err(|_| {
            let what = format!("{holds}, and Windows replaces no folder with an open file in it");
            Fault::new(Exit::InUse, "FileInUse", what)
                // That program may close it.
                .retryable(true)
                .hint("stop that program, run this again, and start it afterwards")
        })?;
    }
    Ok(())
}

/// What an item lacks to be as wanted, for people; none if it lacks nothing.
fn still_missing(node: &dyn Node, id: &Id, wanted: &State) -> Result<Option<String>> {
    Ok(match node.get(id)? {
        // One that Calico does not find is not there yet: CalicoNode re-creates it.
        Some(have) if have.satisfies(wanted) => {
            unseen_network(node)?.map(|_| "version 2 of HNS does not show it".into())
        }
        Some(have) => Some(format!("it is {}", show::state(&have))),
        None => Some("it is not there".into()),
    })
}

/// Waits until CalicoNode's agent reports that Calico's node startup has succeeded. Earlier failures do not count: only
/// the result.
fn await_startup(node: &mut dyn Node, within: Duration, joining: &mut Joining<'_>, events: Sink) -> Result<()> {
    let mut service = Service::default();
    let wait = Wait { what: Some("Calico's node startup"), limit: within, pause: LOOK, rest: &mut cancel::pause };
    let succeeded = wait.until(node, events, |node, elapsed, events| {
        joining.look(node, elapsed, events);
        let said = state::live(node, Role::Node)?;
        if said.as_ref().is_some_and(AgentState::at_work) {
            return Ok(Ok(()));
        }
        service.look(node, elapsed, || "Calico's node startup succeeded".into())?;
        Ok(Err(said.map_or_else(|| "its agent says nothing".into(), |said| said.startup_so_far(node.now()))))
    })?;
    succeeded.map_err(|how| {
        let words = log::last_words(node, Role::Node);
        let words = if words.is_empty() { String::new() } else { format!("; its log ends: {}", words.join(" | ")) };
        let what = format!("Calico's node startup did not succeed within {} s: {how}{words}", within.as_secs());
        Fault::new(Exit::VerifyFailed, "NodeStartupFailed", what)
            .hint("its whole log: calicoctl-win logs\nthe cause is most often the datastore or a right that is missing")
            .into()
    })
}

/// CalicoNode during a wait: it may end once, since Windows restarts it, and HNS is seldom better at once.
#[derive(Default)]
struct Service {
    ends: usize,
    /// Since when it does not run.
    down: Option<Duration>,
}

impl Service {
    fn look(&mut self, node: &dyn Node, elapsed: Duration, before: impl Fn() -> String) -> Result<()> {
        if node.get(&Id::Running(NODE_SERVICE.into()))?.is_some() {
            self.down = None;
            return Ok(());
        }
        let down = *self.down.get_or_insert_with(|| {
            self.ends += 1;
            elapsed
        });
        let restart = match node.get(&Id::Service(NODE_SERVICE.into()))? {
            Some(State::Service(service)) => service.restart_after.first().copied(),
            _ => None,
        };
        let restarted_by = restart.map(|seconds| Duration::from_secs(seconds.into()) + RESTARTED_WITHIN);
        if self.ends == 1 && restarted_by.is_some_and(|limit| elapsed - down < limit) {
            return Ok(());
        }
        if let Some(cause) = unseen_network(node)? {
            return Err(cause.into());
        }
        let what = format!("{NODE_SERVICE} stopped before {}", before());
        Err(Fault::new(Exit::VerifyFailed, "NodeServiceStopped", what)
            .hint("its log says why: calicoctl-win logs --component node")
            .into())
    }
}

/// The cause of a CalicoNode that ended, if it left a network that version 2 of HNS does not show.
pub(super) fn unseen_network(node: &dyn Node) -> Result<Option<Fault>> {
    for name in [networks::BOOTSTRAP, networks::PODS] {
        if node.network_details(name)?.is_some_and(|details| details.unseen_by_v2) {
            return Ok(Some(unseen_by_v2(name)));
        }
    }
    Ok(None)
}

/// The time between two readings of the wall clock, never negative: the clock may be set back.
pub fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::item::{Network, NetworkKind, Service as Definition, StartType, Tree};
    use crate::node::sandbox::SandboxNode;
    use crate::node::sandbox::model::{Model, Name, NodeService, OpenFile};
    use crate::report::event::Event;
    use crate::values::WinPath;

    const WITHIN: Duration = Duration::from_secs(300);

    fn calico() -> State {
        State::Network(Network {
            kind: NetworkKind::Overlay,
            subnet: Some("10.244.1.0/26".parse().unwrap()),
            gateway: None,
            vsid: Some(4096),
            adapter: None,
            management_ip: None,
        })
    }

    /// A node whose CalicoNode runs.
    fn node() -> (tempfile::TempDir, SandboxNode) {
        let dir = tempfile::TempDir::new().unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        let definition = Definition {
            display_name: NODE_SERVICE.into(),
            description: String::new(),
            image_path: "calicoctl-win.exe service run node".into(),
            account: "LocalSystem".into(),
            start: StartType::Auto,
            depends_on: Vec::new(),
            restart_after: vec![5, 10, 60],
            recovery: None,
            parameters: [].into(),
        };
        node.edit(|model| {
            let service = NodeService::new(definition, Some(4100));
            model.services.insert(Name::new(NODE_SERVICE), service);
            Ok(())
        })
        .unwrap();
        (dir, node)
    }

    /// Something that others do to the node at a second of the wait.
    type Moment = (u32, fn(&mut SandboxNode));

    fn meanwhile(node: SandboxNode, at: Vec<Moment>) -> SandboxNode {
        let (begun, at) = (node.now(), RefCell::new(at));
        node.with_pause_hook(Box::new(move |node| {
            let now = since(begun, node.now()).as_secs();
            at.borrow_mut().retain(|(second, work)| {
                let due = now >= u64::from(*second);
                if due {
                    work(node);
                }
                !due
            });
            Ok(())
        }))
    }

    fn pid(node: &mut SandboxNode, pid: Option<u32>) {
        let set = |model: &mut Model| {
            model.services.get_mut(&Name::new(NODE_SERVICE)).unwrap().pid = pid;
            Ok(())
        };
        node.edit(set).unwrap();
    }

    fn wait(node: &mut SandboxNode) -> Result<()> {
        await_item(node, (&Id::Network("Calico".into()), &calico()), WITHIN, &NodeObject::unknown(), &mut |_| ())
    }

    #[test]
    fn hns_that_answers_after_a_minute_and_a_half_has_made_the_network() {
        let (_dir, mut node) = node();
        node.put(&Id::Network("Calico".into()), Some(&calico())).unwrap();
        node.edit(|model| {
            model.hns_busy = 90;
            Ok(())
        })
        .unwrap();
        let begun = node.now();
        wait(&mut node).unwrap();
        let took = since(begun, node.now()).as_secs();
        assert!((90..100).contains(&took), "{took}");
    }

    #[test]
    fn hns_that_never_answers_ends_the_wait_at_its_own_limit() {
        let (_dir, mut node) = node();
        node.edit(|model| {
            model.hns_busy = 10_000;
            Ok(())
        })
        .unwrap();
        let error = wait(&mut node).unwrap_err();
        assert_eq!(Fault::id_of(&error), "NetworkNotMade");
        assert!(error.to_string().ends_with("within 300 s: HNS has not answered yet"), "{error}");
    }

    #[test]
    fn a_restart_by_windows_is_part_of_the_wait_and_a_second_end_is_not() {
        let (_dir, node) = node();
        let mut restarted = meanwhile(
            node,
            vec![
                (1, |node| pid(node, None)),
                (6, |node| pid(node, Some(4200))),
                (9, |node| drop(node.put(&Id::Network("Calico".into()), Some(&calico())).unwrap())),
            ],
        );
        wait(&mut restarted).unwrap();

        let (_dir, node) = self::node();
        let mut again = meanwhile(
            node,
            vec![(1, |node| pid(node, None)), (6, |node| pid(node, Some(4200))), (9, |node| pid(node, None))],
        );
        let begun = again.now();
        assert_eq!(Fault::id_of(&wait(&mut again).unwrap_err()), "NodeServiceStopped");
        let took = since(begun, again.now()).as_secs();
        assert!((9..12).contains(&took), "{took}");

        let (_dir, node) = self::node();
        let mut gone = meanwhile(node, vec![(1, |node| pid(node, None))]);
        assert_eq!(Fault::id_of(&wait(&mut gone).unwrap_err()), "NodeServiceStopped", "nobody restarts it");
    }

    /// The replacement of Calico's folder, in which a log shipper has a log open.
    fn held() -> (tempfile::TempDir, SandboxNode, [Step; 1]) {
        let (dir, mut node) = node();
        let root = WinPath::known(r"C:\CalicoWindows");
        let open = OpenFile { path: root.join(r"logs\calico-felix.log"), by: "fluent-bit.exe (process 4312)".into() };
        node.edit(|model| {
            model.open_files.push(open);
            Ok(())
        })
        .unwrap();
        let (before, after) = (Some(State::Tree(Tree::Foreign)), None);
        (dir, node, [Step::Put { id: Id::Tree(root), before, after }])
    }

    #[test]
    fn a_log_that_is_closed_within_the_limit_is_waited_for() {
        let (_dir, node, steps) = held();
        let closes = |node: &mut SandboxNode| {
            node.edit(|model| {
                model.open_files.clear();
                Ok(())
            })
            .unwrap();
        };
        let mut node = meanwhile(node, vec![(20, closes)]);
        let begun = node.now();
        await_closed(&mut node, &steps, &mut |_| ()).unwrap();
        let took = since(begun, node.now()).as_secs();
        assert!((20..25).contains(&took), "{took}");
    }

    #[test]
    fn a_log_that_stays_open_is_named_with_its_process_before_anything_changes() {
        let (_dir, mut node, steps) = held();
        let mut waits = Vec::new();
        let error = await_closed(&mut node, &steps, &mut |event| match event {
            Event::Waiting { what, .. } => waits.push(what),
            other => panic!("{other:?}"),
        });
        let error = error.unwrap_err();
        assert_eq!(Fault::id_of(&error), "FileInUse");
        let told = r"fluent-bit.exe (process 4312) has C:\CalicoWindows\logs\calico-felix.log open";
        assert!(error.to_string().starts_with(told), "{error}");
        assert_eq!(waits[0], r"fluent-bit.exe (process 4312) to close C:\CalicoWindows\logs\calico-felix.log");
        let elsewhere = [Step::Put { id: Id::Tree(WinPath::known(r"C:\Other")), before: None, after: None }];
        await_closed(&mut node, &elsewhere, &mut |_| ()).unwrap();
    }

    #[test]
    fn hns_is_asked_once_a_second() {
        let (_dir, node) = node();
        let node = meanwhile(node, vec![(20, |node| drop(node.put(&Id::Network("Calico".into()), Some(&calico()))))]);
        let noted = "get network Calico=noted";
        let faults = crate::node::sandbox::faults::SandboxFaults::parse(noted).unwrap();
        let mut node = node.with_faults(faults.node);
        wait(&mut node).unwrap();
        let asked = std::fs::read_to_string(node.root().join(".sandbox").join("calls")).unwrap();
        let asked = asked.lines().filter(|line| line.contains("network Calico")).count();
        assert!((15..=25).contains(&asked), "{asked}");
    }
}
