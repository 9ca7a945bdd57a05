//! What the Windows services run: `calicoctl-win service run node|felix|confd`.

mod boot;
pub mod health;
mod history;
pub mod host;
#[cfg(test)]
mod live;
pub mod logs;
mod network;
pub mod os;
mod process;
pub mod published;
pub mod renew;
mod saved;
pub mod startup;
pub mod state;
pub mod stop;
#[cfg(test)]
mod stories;
pub mod supervise;
pub mod trial;
mod wait;

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::calico::agent_config::{AgentConfig, Command, FelixConfig};
use crate::fault::{Exit, Fault};
use crate::item::{Id, RegValue, State};
use crate::node::Node;
use crate::report::event::Sink;
use crate::values::WinPath;

use stop::Stop;
use wait::{Missing, wait};

/// Runs a command on the node to its end and gives its exit code. An error is a command that
/// could not be run at all.
pub type Run<'a> = &'a mut dyn FnMut(&mut dyn Node, &Command) -> Result<i32>;

/// What the steps of an agent have at hand besides the node.
pub struct AgentContext<'a> {
    pub stop: &'a Stop,
    /// When Windows started, as `Win32_OperatingSystem.LastBootUpTime` has it.
    pub booted: Timestamp,
    /// How long node startup is tried; none for as long as the service runs.
    pub startup_limit: Option<Duration>,
    /// Lets time pass, and ends early when the stop is asked for.
    pub pause: &'a mut dyn FnMut(&mut dyn Node, Duration),
    pub run: Run<'a>,
    /// Has pods made again that lost their network.
    pub recreate: published::Recreate<'a>,
    pub events: Sink<'a>,
}

/// How long Felix and confd wait until CalicoNode has brought the network up after a boot: longer
/// than all of CalicoNode's own waits for the network together.
const BRING_UP_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Which of our services one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Node,
    Felix,
    Confd,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Node, Self::Felix, Self::Confd];

    /// The last word of its command line: `service run node`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Felix => "felix",
            Self::Confd => "confd",
        }
    }

    /// The name of its service.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Node => "CalicoNode",
            Self::Felix => "CalicoFelix",
            Self::Confd => "CalicoConfd",
        }
    }

    /// The role in a service's command line, if it is one of ours.
    pub fn of_command_line(image_path: &str) -> Option<Self> {
        let words: Vec<&str> = image_path.split_whitespace().rev().take(3).collect();
        let [word, "run", "service"] = words.as_slice() else {
            return None;
        };
        Self::ALL.into_iter().find(|role| role.word() == *word)
    }
}

/// Reads what install told the services.
///
/// # Errors
/// Fault `AgentConfigMissing` when install never did, `AgentConfigInvalid` when what stands there is
/// not what it wrote.
pub fn read_config(node: &dyn Node) -> Result<AgentConfig> {
    let path = WinPath::known(AgentConfig::PATH);
    let text = match fs::read(node.disk(&path)) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Fault::new(Exit::NotInstalled, "AgentConfigMissing", format!("{path} is not there"))
                .hint("run `calicoctl-win install`: it tells the services what to run")
                .into());
        }
        Err(e) => return Err(e).with_context(|| format!("read {path}")),
    };
    let config: AgentConfig = parse(&path, &text)?;
    let path = WinPath::known(FelixConfig::PATH);
    match fs::read(node.disk(&path)) {
        Ok(text) => Ok(config.with(parse(&path, &text)?)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(config),
        Err(e) => Err(e).with_context(|| format!("read {path}")),
    }
}

fn parse<T: DeserializeOwned>(path: &WinPath, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| {
        Fault::new(Exit::InvalidConfig, "AgentConfigInvalid", format!("{path} is not what install wrote"))
            .hint("write it again with: calicoctl-win install")
            .because(error)
    })
}

/// Does what comes before a service's program, and gives the program that is to be kept running:
/// none for CalicoNode, whose work is then done until kubelet or Windows starts again.
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
        published::withdraw_after_boot(node, config, context.events)?;
        return startup::bring_up(node, config, context).map(|_| None);
    }
    let command = component(role, config)?;
    await_bring_up(node, context)?;
    Ok(Some(command))
}

/// What a role keeps running. confd runs for windows-bgp alone (defect B3 of upstream).
fn component(role: Role, config: &AgentConfig) -> Result<&Command> {
    match role {
        Role::Node => Ok(&config.startup),
        Role::Felix => Ok(&config.felix),
        Role::Confd => config
            .confd
            .as_ref()
            .with_context(|| format!("find confd's command: the backend {} has no confd", config.backend.name())),
    }
}

/// Waits until CalicoNode has brought up the network in this boot, and node startup has succeeded on it:
/// Felix and confd read what it writes, and Felix starts anew when that changes under it.
fn await_bring_up(node: &mut dyn Node, context: &mut AgentContext<'_>) -> Result<()> {
    let boot = node.facts()?.boot_id;
    wait(node, "CalicoNode to bring up the network", BRING_UP_LIMIT, context, |node, _| {
        let done = match node.get(&startup::boot_id())? {
            Some(State::RegValue(RegValue::String(done))) => done,
            _ => String::new(),
        };
        if done == boot {
            return Ok(Ok(()));
        }
        let runs = node.get(&Id::Running("CalicoNode".into()))?.is_some();
        let service = if runs { "is still at it" } else { "does not run" };
        Ok(Err(Missing(format!("the service CalicoNode {service}"))))
    })?;
    // The mark comes before node startup, for upstream's kubelet script. With it in place, what the
    // agent says is of this boot. Like node startup itself this has no limit: a datastore that is away
    // is no reason to give up.
    let limit = context.startup_limit.unwrap_or(Duration::MAX);
    wait(node, "Calico's node startup in CalicoNode", limit, context, |node, _| {
        let so_far = match state::live(node, Role::Node)? {
            Some(said) if said.at_work() => return Ok(Ok(())),
            Some(said) => said.startup_so_far(node.now()),
            None => "the service CalicoNode does not run".into(),
        };
        Ok(Err(Missing(so_far)))
    })
}
