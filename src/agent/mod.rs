//! The program of the Windows services: `calicoctl-win service run node|felix|confd|kubelet|kube-proxy`.

mod boot;
pub mod cni_gate;
pub mod health;
mod history;
pub mod host;
pub mod kube_proxy;
#[cfg(test)]
mod live;
mod log_watch;
pub mod logs;
mod network;
pub mod network_backup;
pub mod os;
mod process;
pub mod renew;
pub mod startup;
pub mod state;
pub mod stop;
pub mod supervise;
#[cfg(test)]
mod tests;
pub mod trial;
mod wait;
mod watched_processes;

pub use watched_processes::KUBELET;

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use crate::calico::agent_config::{AgentConfig, Command, FelixConfig};
use crate::calico::kubernetes::KubernetesConfig;
pub use crate::calico::services::Role;
use crate::fault::{Exit, Fault};
use crate::item::{Id, RegValue, State};
use crate::node::Node;
use crate::report::event::Sink;
use crate::values::WinPath;

use stop::Stop;
use wait::{Missing, wait};

/// Runs a command on the node to its end and returns its exit code. An error means that the command could not be run.
pub type Run<'a> = &'a mut dyn FnMut(&mut dyn Node, &Command) -> Result<i32>;

/// The items that differ from what the last run left; none while a run changes them.
pub type Drift<'a> = &'a dyn Fn(&mut dyn Node) -> Result<Vec<String>>;

/// What the steps of an agent need besides the node.
pub struct AgentContext<'a> {
    pub stop: &'a Stop,
    /// When Windows started, as `Win32_OperatingSystem.LastBootUpTime.ToString("G")` says it now in PowerShell for this
    /// account: see [`os::general_format`].
    pub boot_time: &'a dyn Fn() -> String,
    /// How long node startup is retried; none: while the service runs.
    pub startup_limit: Option<Duration>,
    /// Lets time pass, and ends early when a stop is requested.
    pub pause: &'a mut dyn FnMut(&mut dyn Node, Duration),
    pub run: Run<'a>,
    /// Re-creates pods that lost their network.
    pub recreate: cni_gate::Recreate<'a>,
    /// Differences from what the last run left, and how often CalicoNode checks.
    pub drift: Drift<'a>,
    pub drift_every: Duration,
    pub events: Sink<'a>,
}

/// How long Felix and confd wait until CalicoNode has brought the network up after a boot: longer
/// than all of CalicoNode's own waits for the network together.
const BRING_UP_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Reads the configuration that install wrote for the services.
///
/// # Errors
/// Fault `AgentConfigMissing` when install wrote none, `AgentConfigInvalid` when it cannot be parsed.
pub fn read_config(node: &dyn Node) -> Result<AgentConfig> {
    let path = WinPath::known(AgentConfig::PATH);
    let text = match fs::read(node.disk(&path)) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Fault::new(Exit::NotInstalled, "AgentConfigMissing", format!("{path} does not exist"))
                .hint("run `calicoctl-win install`: it writes the file")
                .into());
        }
        Err(e) => return Err(e).with_context(|| format!("read {path}")),
    };
    let config: AgentConfig = parse(&path, &text)?;
    let mut config = match optional::<FelixConfig>(node, FelixConfig::PATH)? {
        Some(felix) => config.with(felix),
        None => config,
    };
    if let Some(kubernetes) = optional::<KubernetesConfig>(node, KubernetesConfig::PATH)? {
        config.others.extend(kubernetes.programs.into_iter().map(|(word, command)| (word, Some(command))));
    }
    Ok(config)
}

/// A document that is there only on some nodes.
fn optional<T: DeserializeOwned>(node: &dyn Node, path: &str) -> Result<Option<T>> {
    let path = WinPath::known(path);
    match fs::read(node.disk(&path)) {
        Ok(text) => parse(&path, &text).map(Some),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("read {path}")),
    }
}

fn parse<T: DeserializeOwned>(path: &WinPath, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| {
        Fault::new(Exit::InvalidConfig, "AgentConfigInvalid", format!("{path} is not what install wrote"))
            .hint("to write it again: calicoctl-win install")
            .because(error)
    })
}

/// Does what comes before a service's program, and returns the program to keep running: none for CalicoNode, which is
/// then waits until kubelet or Windows starts again.
///
/// # Errors
/// When a wait reaches its limit, naming what is missing, or the node refuses a change.
pub fn prepare<'a>(
    role: Role,
    node: &mut dyn Node,
    config: &'a AgentConfig,
    context: &mut AgentContext<'_>,
) -> Result<Option<&'a Command>> {
    if role == Role::Node {
        cni_gate::withdraw_after_boot(node, config, context.events)?;
        startup::start_stranded(node, context.events);
        return startup::bring_up(node, config, context).map(|_| None);
    }
    let command = component(role, config)?;
    await_turn(role, node, context)?;
    if role == Role::KubeProxy {
        kube_proxy::write_config(node, config)?;
    }
    Ok(Some(command))
}

/// Waits until a service's program may start: after the network, and all but kubelet after Calico's node startup, which
/// itself waits for the Node that kubelet creates.
fn await_turn(role: Role, node: &mut dyn Node, context: &mut AgentContext<'_>) -> Result<()> {
    if role == Role::Kubelet { await_network(node, context) } else { await_bring_up(node, context) }
}

/// The program that a role keeps running.
fn component(role: Role, config: &AgentConfig) -> Result<&Command> {
    config.command(role).with_context(|| {
        let word = role.word();
        if !role.is_calicos() {
            return format!("find {word}'s command: {} has none", KubernetesConfig::PATH);
        }
        format!("find {word}'s command: the backend {} has no {word}", config.backend.name())
    })
}

/// Waits until CalicoNode has brought up the network in this boot, and node startup has succeeded on it: Felix and
/// confd read what it writes, and Felix restarts when that changes.
fn await_bring_up(node: &mut dyn Node, context: &mut AgentContext<'_>) -> Result<()> {
    await_network(node, context)?;
    // The mark comes before node startup, for upstream's kubelet script. Once it is there, the agent's state is of this
    // boot. Like node startup this has no limit: a datastore that is down is not a reason to end.
    let limit = context.startup_limit.unwrap_or(Duration::MAX);
    wait(node, "Calico's node startup in CalicoNode", limit, context, |node, _| {
        let so_far = match state::live(node, Role::Node) {
            Ok(Some(said)) if said.at_work() => return Ok(Ok(())),
            Ok(Some(said)) => said.startup_so_far(node.now()),
            Ok(None) => "the service CalicoNode does not run".into(),
            Err(error) => format!("{error:#}"),
        };
        Ok(Err(Missing(so_far)))
    })
}

/// Waits until CalicoNode has created the virtual switch in this boot: before that, the machine's address changes.
fn await_network(node: &mut dyn Node, context: &mut AgentContext<'_>) -> Result<()> {
    let boot = node.boot_id()?;
    wait(node, "CalicoNode to bring up the network", BRING_UP_LIMIT, context, |node, _| {
        Ok(is_brought_up(node, &boot).unwrap_or_else(|error| Err(Missing(format!("{error:#}")))))
    })
}

/// Whether CalicoNode has created the virtual switch in this boot.
///
/// # Errors
/// When the registry cannot be read.
pub fn network_is_up(node: &dyn Node) -> Result<bool> {
    Ok(is_brought_up(node, &node.boot_id()?)?.is_ok())
}

/// Whether CalicoNode has brought up the network in this boot. After an error, Windows is asked again.
fn is_brought_up(node: &dyn Node, boot: &str) -> Result<Result<(), Missing>> {
    if node.get(&startup::boot_id())? == Some(State::RegValue(RegValue::String(boot.to_owned()))) {
        return Ok(Ok(()));
    }
    let runs = node.get(&Id::Running("CalicoNode".into()))?.is_some();
    let service = if runs { "is still starting it" } else { "does not run" };
    Ok(Err(Missing(format!("the service CalicoNode {service}"))))
}
