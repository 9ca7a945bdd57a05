//! The work of CalicoNode: it brings the network up, runs Calico's node startup, and watches for what makes one of the
//! two necessary again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::calico::agent_config::{AgentConfig, Command};
use crate::calico::networks;
use crate::fault::{Exit, Fault};
use crate::item::{Id, RegValue, State};
use crate::node::Node;
use crate::node::hns::unseen_by_v2;
use crate::report::event::{Event, Sink};
use crate::settings::Backend;

use super::cni_gate;
use super::network::{self, Upkeep};
use super::state::STARTUP;
use super::wait::POLL_PAUSE;
use super::watched_processes::{Kubelet, WatchedProcesses};
use super::{AgentContext, Role};

pub use super::network::metadata_route;
pub use crate::calico::registry::{boot_id, last_boot_time};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(60);

/// How long HNS may need from its start to its first response.
const HNS_STARTS: Duration = Duration::from_secs(60);

/// How long HNS may take while it creates a vSwitch; rke2 waits as long.
const HNS_IS_BUSY: Duration = Duration::from_secs(5 * 60);

/// The pause before an HNS that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How often the routes and HNS are checked. Nothing waits for the result.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// How often pods that lost their network at the boot are retried, if the API server was down or a right is missing.
const PODS_EVERY: Duration = Duration::from_secs(60);

/// Brings Calico up on this node: network, mark, node startup. Running it again changes nothing, except that node
/// startup runs each time. Returns what must be maintained of the network.
///
/// # Errors
/// When a wait reaches its limit, naming what is missing; when the node refuses a change; when
/// node startup does not succeed in time.
pub fn bring_up(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<Option<Upkeep>> {
    let upkeep = match config.backend {
        Backend::None => None,
        _ => Some(once_hns_answers(node, context, |node, context| network::bring_up(node, config, context))?),
    };
    // Before node startup, like upstream: its kubelet-service.ps1 starts kubelet after this mark, and node startup
    // needs the Node object that kubelet creates.
    mark_booted(node, (context.boot_time)())?;
    start_node(node, &config.startup, context)?;
    once_hns_answers(node, context, |node, _| check_network(node, config))?;
    cni_gate::publish(node, config, context.events)?;
    cni_gate::recreate(node, context.recreate, context.events);
    Ok(upkeep)
}

/// Starts the services that Windows did not start because an earlier start of this service failed: Windows does not
/// retry.
pub fn start_stranded(node: &mut dyn Node, events: Sink<'_>) {
    match node.start_stranded(Role::Node.service()) {
        Ok(started) if started.is_empty() => {}
        Ok(started) => {
            let names = started.join(", ");
            let message = format!("Windows did not start {names} because CalicoNode had failed: they are started now");
            events(Event::Log { message });
        }
        Err(error) => events(Event::Log { message: format!("{error:#}") }),
    }
}

/// HNS has a process before it answers, at boot and after a restart, and answers late while it makes a vSwitch. Ending
/// this service then would not help: `work`, which changes nothing if run again, is repeated.
fn once_hns_answers<T>(
    node: &mut dyn Node,
    context: &mut AgentContext<'_>,
    mut work: impl FnMut(&mut dyn Node, &mut AgentContext<'_>) -> Result<T>,
) -> Result<T> {
    // The sum of the pauses is for clocks that only they advance.
    let (mut since, mut paused) = (None, Duration::ZERO);
    loop {
        let error = match work(node, context) {
            Err(error) => error,
            done => return done,
        };
        let (limit, pause) = match Fault::id_of(&error) {
            "HnsStopped" => (HNS_STARTS, POLL_PAUSE),
            "HnsStuck" => (HNS_IS_BUSY, ASK_AGAIN),
            _ => return Err(error),
        };
        if since.get_or_insert_with(Instant::now).elapsed().max(paused) >= limit {
            return Err(error);
        }
        context.stop.check()?;
        if paused.is_zero() {
            (context.events)(Event::Log { message: format!("{error:#}; HNS is asked again") });
        }
        (context.pause)(node, pause);
        paused += pause;
    }
}

/// Writes the marks of this boot: for upstream's kubelet script, which waits until `LastBootTime` is its own text of
/// `Win32_OperatingSystem.LastBootUpTime`, and for this program.
fn mark_booted(node: &mut dyn Node, boot_time: String) -> Result<()> {
    let boot = node.boot_id()?;
    for (id, text) in [(last_boot_time(), boot_time), (boot_id(), boot)] {
        mark(node, &id, text)?;
    }
    Ok(())
}

fn mark(node: &mut dyn Node, id: &Id, text: String) -> Result<()> {
    let value = State::RegValue(RegValue::String(text));
    if node.get(id)?.as_ref() != Some(&value) {
        node.put(id, Some(&value)).with_context(|| format!("write {id}"))?;
    }
    Ok(())
}

/// Keeps the text for upstream's script as Windows would show it now: it changes with the account's region, with the
/// time zone, and when the clock is set, because Windows adjusts its start time.
struct BootText(String);

impl BootText {
    fn keep(&mut self, node: &mut dyn Node, context: &mut AgentContext<'_>) {
        let now = (context.boot_time)();
        if now == self.0 {
            return;
        }
        match mark(node, &last_boot_time(), now.clone()) {
            Ok(()) => {
                let message = format!("Windows now shows the time of its start as {now}: LastBootTime is updated");
                (context.events)(Event::Log { message });
                self.0 = now;
            }
            // The next check tries again.
            Err(error) => (context.events)(Event::Log { message: format!("{error:#}") }),
        }
    }
}

/// Runs Calico's node startup until it succeeds. The pauses between tries grow, but end at once when kubelet starts.
///
/// # Errors
/// Fault `NodeStartupFailed` with the last exit code when there is a limit and it was reached; `HnsNetworkUnseen` when
/// version 2 of HNS did not show the network twice.
fn start_node(node: &mut dyn Node, startup: &Command, context: &mut AgentContext<'_>) -> Result<()> {
    let (mut elapsed, mut backoff, mut tries) = (Duration::ZERO, FIRST_BACKOFF, 0);
    let mut remade = false;
    loop {
        context.stop.check()?;
        let mut kubelet = Kubelet::look(node, context.events);
        let code = (context.run)(node, startup).with_context(|| format!("run {}", startup.program))?;
        tries += 1;
        if code == 0 {
            return Ok(());
        }
        // Startup uses the network that version 1 shows, then always fails because version 2 does not show it. An HNS
        // that does not answer is another failure of startup.
        if matches!(network::is_seen(node, networks::PODS, context), Ok(false)) {
            if remade {
                return Err(unseen_by_v2(networks::PODS).into());
            }
            remade = true;
            network::remove_unseen(node, networks::PODS, context)?;
            continue;
        }
        if let Some(limit) = context.startup_limit.filter(|limit| elapsed + backoff > *limit) {
            let what = format!(
                "Calico's node startup did not succeed in {} s: {tries} tries, the last one exited with {code}",
                limit.as_secs()
            );
            return Err(Fault::new(Exit::VerifyFailed, "NodeStartupFailed", what)
                .hint("its log says why: calicoctl-win logs --component node")
                .into());
        }
        (context.events)(Event::Log {
            message: format!("node startup exited with {code}, next try in {} s", backoff.as_secs()),
        });
        let limit = context.startup_limit.unwrap_or(Duration::MAX);
        (context.events)(Event::Waiting { what: STARTUP.into(), elapsed, limit });
        let mut paused = Duration::ZERO;
        while paused < backoff {
            context.stop.check()?;
            if kubelet.started(node, context.events) {
                backoff = FIRST_BACKOFF;
                break;
            }
            (context.pause)(node, POLL_PAUSE);
            paused += POLL_PAUSE;
        }
        elapsed += paused;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

/// Calico reuses a network `Calico` of the right subnet whatever its VSID or type (defect B11), and a node with a wrong
/// one cannot reach other nodes' pods. So the network is checked.
fn check_network(node: &mut dyn Node, config: &AgentConfig) -> Result<()> {
    let Some(wanted) = networks::pods(config.backend, config.vni) else { return Ok(()) };
    let (kind, vsid) = (wanted.kind, wanted.vsid);
    let wrong = match node.get(&Id::Network(networks::PODS.into()))? {
        Some(there) if there.satisfies(&State::Network(wanted)) => return Ok(()),
        Some(State::Network(there)) => {
            let with = |vsid: Option<u32>| vsid.map_or_else(String::new, |vsid| format!(" with VSID {vsid}"));
            format!("is {:?}{} instead of {kind:?}{}", there.kind, with(there.vsid), with(vsid))
        }
        _ => "does not exist, although node startup succeeded".into(),
    };
    Err(Fault::new(Exit::VerifyFailed, "HnsNetworkWrong", format!("the HNS network Calico {wrong}"))
        .hint("run `calicoctl-win reconfigure`: it drains the node and re-creates the network")
        .into())
}

/// What must be done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// kubelet was started: it may have created the Node object again.
    NodeStartup,
    /// HNS was started: it may have lost networks, and policies must be programmed into it again.
    Everything,
}

/// The differences that were reported: changes by somebody else since the last run. Nothing is repaired automatically.
#[derive(Debug, Default)]
struct Drifted(Vec<String>);

impl Drifted {
    fn look(&mut self, node: &mut dyn Node, context: &mut AgentContext<'_>) {
        let now = match (context.drift)(node) {
            Ok(now) => now,
            Err(error) => {
                let message = format!("whether the node has changed since the last run is not known: {error:#}");
                return (context.events)(Event::Log { message });
            }
        };
        let before = std::mem::replace(&mut self.0, now);
        if before == self.0 {
            return;
        }
        if self.0.is_empty() {
            return (context.events)(Event::Log { message: "the node is again as the last run left it".into() });
        }
        let message = format!("changed since the last run: {}; `calicoctl-win repair` undoes that", self.0.join(", "));
        (context.events)(Event::Warning { id: "NodeDrifted", message });
    }
}

/// Watches until something must be done again, and maintains the network meanwhile.
///
/// # Errors
/// [`super::Stopped`].
pub fn watch(
    node: &mut dyn Node,
    processes: &mut WatchedProcesses,
    upkeep: &mut Option<Upkeep>,
    context: &mut AgentContext<'_>,
) -> Result<Again> {
    let (mut since_upkeep, mut since_pods) = (Duration::ZERO, Duration::ZERO);
    let (mut boot_text, mut drifted, mut since_drift) =
        (BootText((context.boot_time)()), Drifted::default(), Duration::ZERO);
    loop {
        context.stop.check()?;
        if processes.kubelet_started(node, context.events) {
            (context.events)(Event::Log { message: "kubelet was started: node startup runs again".into() });
            return Ok(Again::NodeStartup);
        }
        if since_upkeep >= UPKEEP_EVERY {
            since_upkeep = Duration::ZERO;
            if processes.hns_changed(node, context.events) {
                let message = "the Host Networking Service was restarted: the network is checked, then node startup \
                               runs and Felix and confd restart";
                (context.events)(Event::Warning { id: "HnsRestarted", message: message.into() });
                return Ok(Again::Everything);
            }
            if let Some(upkeep) = upkeep {
                upkeep.look(node, context.events);
            }
            boot_text.keep(node, context);
        }
        if since_drift >= context.drift_every {
            since_drift = Duration::ZERO;
            drifted.look(node, context);
        }
        if since_pods >= PODS_EVERY {
            since_pods = Duration::ZERO;
            cni_gate::recreate(node, context.recreate, context.events);
        }
        (context.pause)(node, POLL_PAUSE);
        since_upkeep += POLL_PAUSE;
        since_pods += POLL_PAUSE;
        since_drift += POLL_PAUSE;
    }
}

/// Runs node startup again, as after a start of kubelet.
///
/// # Errors
/// Those of [`bring_up`].
pub fn start_again(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<()> {
    start_node(node, &config.startup, context)?;
    once_hns_answers(node, context, |node, _| check_network(node, config))
}
