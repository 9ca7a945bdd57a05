//! What CalicoNode does: it brings the network up, runs Calico's node startup, and watches for what
//! makes one of the two necessary again.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::calico::agent_config::{AgentConfig, Command};
use crate::calico::networks;
use crate::fault::{Exit, Fault};
use crate::item::{Id, RegValue, State};
use crate::node::{Node, Process};
use crate::report::event::Event;
use crate::settings::Backend;

use super::AgentContext;
use super::network::{self, Upkeep};
use super::published;
use super::state::STARTUP;
use super::wait::LOOK_AWAY;

pub use super::network::metadata_route;
pub use crate::calico::registry::{boot_id, last_boot_time};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(60);

/// Node startup needs the Node object that kubelet makes.
pub const KUBELET: &str = "kubelet.exe";

/// The Host Networking Service.
pub const HNS: &str = "hns";

/// How long HNS may need from its start to its first answer.
const HNS_STARTS: Duration = Duration::from_secs(60);

/// How often the routes and HNS are looked at. Nothing waits for what is found.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// How often the pods that lost their network at the boot are tried again: the API server was away, or the right
/// is missing.
const PODS_EVERY: Duration = Duration::from_secs(60);

/// Brings Calico up on this node: network, mark, node startup. Done again, it finds everything
/// done but node startup, which is meant to run each time. Gives what must be kept of the network.
///
/// # Errors
/// When a wait reaches its limit, naming what is missing; when the node refuses a change; when
/// node startup does not succeed in time.
pub fn bring_up(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<Option<Upkeep>> {
    let upkeep = match config.backend {
        Backend::None => None,
        _ => Some(once_hns_answers(node, config, context)?),
    };
    // Before node startup, as upstream: its kubelet-service.ps1 starts kubelet after this mark, and
    // node startup needs the Node object that kubelet makes.
    mark_booted(node, context.booted)?;
    start_node(node, &config.startup, context)?;
    check_network(node, config)?;
    published::publish(node, config, context.events)?;
    published::recreate(node, context.recreate, context.events);
    Ok(upkeep)
}

/// HNS has a process before it answers: at boot, and when it was restarted. Nobody is served by an end of
/// this service then.
fn once_hns_answers(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<Upkeep> {
    let mut waited = Duration::ZERO;
    loop {
        match network::bring_up(node, config, context) {
            Err(error) if Fault::id_of(&error) == "HnsStopped" && waited < HNS_STARTS => {
                context.stop.check()?;
                if waited.is_zero() {
                    (context.events)(Event::Log { message: format!("{error:#}; it is asked again") });
                }
                (context.pause)(node, LOOK_AWAY);
                waited += LOOK_AWAY;
            }
            ended => return ended,
        }
    }
}

fn mark_booted(node: &mut dyn Node, booted: Timestamp) -> Result<()> {
    // .NET's general format "G" in en-US, which is LocalSystem's unless somebody changed it.
    let time = booted.to_zoned(TimeZone::system()).strftime("%-m/%-d/%Y %-I:%M:%S %p").to_string();
    let boot = node.facts()?.boot_id;
    for (id, text) in [(last_boot_time(), time), (boot_id(), boot)] {
        let value = State::RegValue(RegValue::String(text));
        if node.get(&id)?.as_ref() != Some(&value) {
            node.put(&id, Some(&value)).with_context(|| format!("write {id}"))?;
        }
    }
    Ok(())
}

/// Runs Calico's node startup until it succeeds. Between two tries it waits longer and longer, but
/// goes on at once when kubelet starts.
///
/// # Errors
/// Fault `NodeStartupFailed` with the last exit code when there is a limit and it was reached.
fn start_node(node: &mut dyn Node, startup: &Command, context: &mut AgentContext<'_>) -> Result<()> {
    let (mut elapsed, mut backoff, mut tries) = (Duration::ZERO, FIRST_BACKOFF, 0);
    loop {
        context.stop.check()?;
        let mut kubelet = Kubelet::look(node)?;
        let code = (context.run)(node, startup).with_context(|| format!("run {}", startup.program))?;
        tries += 1;
        if code == 0 {
            return Ok(());
        }
        if let Some(limit) = context.startup_limit.filter(|limit| elapsed + backoff > *limit) {
            let what = format!(
                "Calico's node startup did not succeed in {} s: {tries} tries, the last one exited with {code}",
                limit.as_secs()
            );
            return Err(Fault::new(Exit::VerifyFailed, "NodeStartupFailed", what)
                .hint("its log says why: calico-node.log in spec.services.logDir (C:\\CalicoWindows\\logs)")
                .into());
        }
        (context.events)(Event::Log {
            message: format!("node startup exited with {code}, again in {} s", backoff.as_secs()),
        });
        let limit = context.startup_limit.unwrap_or(Duration::MAX);
        (context.events)(Event::Waiting { what: STARTUP.into(), elapsed, limit });
        let mut paused = Duration::ZERO;
        while paused < backoff {
            context.stop.check()?;
            if kubelet.started(node)? {
                backoff = FIRST_BACKOFF;
                break;
            }
            (context.pause)(node, LOOK_AWAY);
            paused += LOOK_AWAY;
        }
        elapsed += paused;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

/// Calico reuses a network `Calico` of the right subnet whatever its VSID or type (defect B11), and
/// a node with a wrong one cannot reach other nodes' pods. So that is looked at, not trusted.
fn check_network(node: &mut dyn Node, config: &AgentConfig) -> Result<()> {
    let Some(wanted) = networks::pods(config.backend, config.vni) else { return Ok(()) };
    let (kind, vsid) = (wanted.kind, wanted.vsid);
    let wrong = match node.get(&Id::Network(networks::PODS.into()))? {
        Some(there) if there.satisfies(&State::Network(wanted)) => return Ok(()),
        Some(State::Network(there)) => {
            let with = |vsid: Option<u32>| vsid.map_or_else(String::new, |vsid| format!(" with VSID {vsid}"));
            format!("is {:?}{} and should be {kind:?}{}", there.kind, with(there.vsid), with(vsid))
        }
        _ => "is not there, though node startup succeeded".into(),
    };
    Err(Fault::new(Exit::VerifyFailed, "HnsNetworkWrong", format!("the HNS network Calico {wrong}"))
        .hint(
            "drain the node, then run `calicoctl-win uninstall` and `calicoctl-win install`: the network is re-created",
        )
        .into())
}

/// Looks out for a start of kubelet. To list all processes twenty times a second is much for a node
/// that is at rest, so while the known one runs only that is looked at, and a kubelet that has been
/// gone for a while is looked for less often.
#[derive(Debug, Clone, Default)]
struct Kubelet {
    known: Vec<Process>,
    /// How long it has been gone.
    gone: Duration,
    since_look: Duration,
}

impl Kubelet {
    /// A restart takes no longer than this.
    const SOON: Duration = Duration::from_secs(60);
    const LATER: Duration = Duration::from_secs(1);

    fn look(node: &dyn Node) -> Result<Self> {
        Ok(Self { known: node.processes(KUBELET)?, ..Self::default() })
    }

    /// Whether one was started since the last look, which was one [`LOOK_AWAY`] ago.
    fn started(&mut self, node: &dyn Node) -> Result<bool> {
        if !self.known.is_empty() {
            for process in &self.known {
                if !node.runs(process)? {
                    let before = std::mem::replace(&mut self.known, node.processes(KUBELET)?);
                    (self.gone, self.since_look) = Default::default();
                    return Ok(self.known.iter().any(|process| !before.contains(process)));
                }
            }
            return Ok(false);
        }
        (self.gone, self.since_look) = (self.gone + LOOK_AWAY, self.since_look + LOOK_AWAY);
        if self.gone > Self::SOON && self.since_look < Self::LATER {
            return Ok(false);
        }
        self.since_look = Duration::ZERO;
        self.known = node.processes(KUBELET)?;
        Ok(!self.known.is_empty())
    }
}

/// Why the network, or only node startup, must be done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// kubelet was started: it may have made the Node object anew.
    NodeStartup,
    /// HNS was: it may have lost networks, and what programs policies into it must do so again.
    Everything,
}

/// What was there when node startup ran last.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    kubelet: Kubelet,
    hns: Option<Process>,
}

impl Seen {
    /// # Errors
    /// When the processes cannot be looked at.
    pub fn look(node: &dyn Node) -> Result<Self> {
        Ok(Self { kubelet: Kubelet::look(node)?, hns: node.process(HNS)? })
    }

    /// The process of HNS.
    pub const fn hns(&self) -> Option<&Process> {
        self.hns.as_ref()
    }

    /// Whether HNS runs as another process than it did. While it does not run it is waited for.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn hns_changed(&mut self, node: &dyn Node) -> Result<bool> {
        let Some(now) = node.process(HNS)? else { return Ok(false) };
        let before = self.hns.replace(now);
        Ok(before.is_some() && before != self.hns)
    }
}

/// Watches until something must be done again, and keeps the network as it is to be meanwhile.
///
/// # Errors
/// [`super::Stopped`], or when the node cannot be looked at.
pub fn watch(
    node: &mut dyn Node,
    seen: &mut Seen,
    upkeep: &mut Option<Upkeep>,
    context: &mut AgentContext<'_>,
) -> Result<Again> {
    let (mut since_upkeep, mut since_pods) = (Duration::ZERO, Duration::ZERO);
    loop {
        context.stop.check()?;
        if seen.kubelet.started(node)? {
            (context.events)(Event::Log { message: "kubelet was started: node startup runs again".into() });
            return Ok(Again::NodeStartup);
        }
        if since_upkeep >= UPKEEP_EVERY {
            since_upkeep = Duration::ZERO;
            if seen.hns_changed(node)? {
                let message = "the Host Networking Service was restarted: the network is checked, then node startup \
                               runs and Felix and confd restart";
                (context.events)(Event::Warning { id: "HnsRestarted", message: message.into() });
                return Ok(Again::Everything);
            }
            if let Some(upkeep) = upkeep {
                upkeep.look(node, context.events);
            }
        }
        if since_pods >= PODS_EVERY {
            since_pods = Duration::ZERO;
            published::recreate(node, context.recreate, context.events);
        }
        (context.pause)(node, LOOK_AWAY);
        since_upkeep += LOOK_AWAY;
        since_pods += LOOK_AWAY;
    }
}

/// Runs node startup again, as after a start of kubelet.
///
/// # Errors
/// As [`bring_up`].
pub fn start_again(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<()> {
    start_node(node, &config.startup, context)?;
    check_network(node, config)
}
