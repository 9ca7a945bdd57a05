//! The processes that an agent watches: after a start of kubelet or of HNS, node startup must run again.

use std::time::Duration;

use anyhow::Result;

use super::wait::POLL_PAUSE;
use crate::node::{Node, Process};
use crate::report::event::{Event, Sink};

/// Node startup needs the Node object that kubelet creates.
pub const KUBELET: &str = "kubelet.exe";

/// The Host Networking Service.
pub const HNS: &str = "hns";

/// A process that cannot be queried counts as unchanged: Windows fails such a query now and then while it is short of
/// memory or its service manager is busy (1450, 1722), and working programs must not be restarted for that.
#[derive(Debug, Clone, Default)]
struct Queries {
    failing: bool,
}

impl Queries {
    /// The result; none after an error, which is reported once until a query succeeds again.
    fn found<T>(&mut self, what: &str, queried: Result<T>, events: Sink<'_>) -> Option<T> {
        match queried {
            Ok(found) => {
                self.failing = false;
                Some(found)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let message = format!("{what} cannot be queried, and counts as unchanged: {error:#}");
                    events(Event::Log { message });
                }
                None
            }
        }
    }
}

/// Detects a start of kubelet. Listing all processes twenty times a second is expensive on an idle node, so while the
/// known process runs only that is checked, and a kubelet that has not run for a while is looked for less often.
#[derive(Debug, Clone, Default)]
pub struct Kubelet {
    known: Vec<Process>,
    /// How long it has not run.
    gone: Duration,
    since_look: Duration,
    queries: Queries,
}

impl Kubelet {
    /// A restart takes no longer than this.
    const SOON: Duration = Duration::from_secs(60);
    const LATER: Duration = Duration::from_secs(1);

    pub fn look(node: &dyn Node, events: Sink<'_>) -> Self {
        let mut kubelet = Self::default();
        kubelet.known = kubelet.queries.found(KUBELET, node.processes(KUBELET), events).unwrap_or_default();
        kubelet
    }

    /// Whether one was started since the last call, one [`POLL_PAUSE`] ago.
    pub fn started(&mut self, node: &dyn Node, events: Sink<'_>) -> bool {
        if !self.known.is_empty() {
            let Some(now) = self.queries.found(KUBELET, self.successors(node), events).flatten() else { return false };
            let before = std::mem::replace(&mut self.known, now);
            (self.gone, self.since_look) = Default::default();
            return self.known.iter().any(|process| !before.contains(process));
        }
        (self.gone, self.since_look) = (self.gone + POLL_PAUSE, self.since_look + POLL_PAUSE);
        if self.gone > Self::SOON && self.since_look < Self::LATER {
            return false;
        }
        self.since_look = Duration::ZERO;
        self.known = self.queries.found(KUBELET, node.processes(KUBELET), events).unwrap_or_default();
        !self.known.is_empty()
    }

    /// The processes that run once one of the known ones has ended; none until then.
    fn successors(&self, node: &dyn Node) -> Result<Option<Vec<Process>>> {
        for process in &self.known {
            if !node.runs(process)? {
                return node.processes(KUBELET).map(Some);
            }
        }
        Ok(None)
    }
}

/// The processes when node startup ran last.
#[derive(Debug, Clone, Default)]
pub struct WatchedProcesses {
    kubelet: Kubelet,
    hns: Option<Process>,
    queries: Queries,
}

impl WatchedProcesses {
    pub fn look(node: &dyn Node, events: Sink<'_>) -> Self {
        let mut queries = Queries::default();
        let hns = queries.found(HNS, node.process(HNS), events).flatten();
        Self { kubelet: Kubelet::look(node, events), hns, queries }
    }

    /// The process of HNS.
    pub const fn hns(&self) -> Option<&Process> {
        self.hns.as_ref()
    }

    /// Whether kubelet was started since the last call.
    pub fn kubelet_started(&mut self, node: &dyn Node, events: Sink<'_>) -> bool {
        self.kubelet.started(node, events)
    }

    /// Whether HNS runs as another process than before. While it does not run, wait for it.
    pub fn hns_changed(&mut self, node: &dyn Node, events: Sink<'_>) -> bool {
        let Some(now) = self.queries.found(HNS, node.process(HNS), events).flatten() else { return false };
        let before = self.hns.replace(now);
        before.is_some() && before != self.hns
    }
}
