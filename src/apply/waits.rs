//! The waits of a run: until the services have made a network, or Calico's node startup has succeeded.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use super::cancel;
use crate::agent::Role;
use crate::agent::logs as log;
use crate::agent::state::{self, AgentState};
use crate::calico::networks;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::Node;
use crate::node::hns::unseen_by_v2;
use crate::plan::order::NODE_SERVICE;
use crate::plan::show;
use crate::report::event::Sink;
use crate::wait::Wait;

/// How often a wait polls. Small compared with anything Windows does, and the longest delay that it adds.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How often HNS is asked: while it makes a vSwitch, each question waits for it and keeps it from its work.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long Windows may need to restart a service that ended, after the delay that the service asks for.
const RESTARTED_WITHIN: Duration = Duration::from_secs(10);

/// Waits until the services have created an item, or until a running service works.
pub(super) fn await_item(node: &mut dyn Node, id: &Id, wanted: &State, within: Duration, events: Sink) -> Result<()> {
    if let Id::Running(_) = id {
        return await_startup(node, within, events);
    }
    let (mut service, mut asked, mut found) = (Service::default(), None, String::new());
    let what = format!("{id} made by {NODE_SERVICE}");
    let wait = Wait { what: Some(&what), limit: within, pause: LOOK, rest: &mut cancel::pause };
    let made = wait.until(node, events, |node, elapsed, _| {
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
fn await_startup(node: &mut dyn Node, within: Duration, events: Sink) -> Result<()> {
    let mut service = Service::default();
    let wait = Wait { what: Some("Calico's node startup"), limit: within, pause: LOOK, rest: &mut cancel::pause };
    let succeeded = wait.until(node, events, |node, elapsed, _| {
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
        let patience = restart.map(|seconds| Duration::from_secs(seconds.into()) + RESTARTED_WITHIN);
        if self.ends == 1 && patience.is_some_and(|patience| elapsed - down < patience) {
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
    use crate::item::{Network, NetworkKind, Service as Definition, StartType};
    use crate::node::sandbox::SandboxNode;
    use crate::node::sandbox::model::{Model, Name, NodeService};

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
        await_item(node, &Id::Network("Calico".into()), &calico(), WITHIN, &mut |_| ())
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
