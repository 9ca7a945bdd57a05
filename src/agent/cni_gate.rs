//! The CNI configuration around a boot: kubelet treats it as "the network is ready", so it is withdrawn when Windows
//! shuts down and at the start after a boot, and published when the network is up. Pods that started earlier anyway,
//! and lost their endpoint with the old network, are recorded.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::boot::is_first_start;
use super::state;
use crate::calico::agent_config::AgentConfig;
use crate::node::hns::Endpoint;
use crate::node::{Node, files, record, withdrawn};
use crate::report::event::{Event, Sink};
use crate::values::WinPath;

/// Hides the CNI configuration from kubelet, if it is there. Returns whether it was.
///
/// # Errors
/// When it cannot be renamed.
pub fn withdraw(node: &dyn Node, config: &AgentConfig) -> Result<bool> {
    let Some(conf) = &config.cni_conf else { return Ok(false) };
    let place = node.disk(conf);
    if !place.is_file() {
        return Ok(false);
    }
    files::rename(&place, &node.disk(&withdrawn(conf))).with_context(|| format!("withdraw {conf}"))?;
    Ok(true)
}

/// The same on the first start since a boot: the networks are from before it.
///
/// # Errors
/// Those of [`withdraw`]; when the registry or the boot's identity cannot be read.
pub fn withdraw_after_boot(node: &dyn Node, config: &AgentConfig, events: Sink<'_>) -> Result<()> {
    if is_first_start(node)? && withdraw(node, config)? {
        let message = "first start since boot: the CNI configuration is withdrawn until the network is up";
        events(Event::Log { message: message.into() });
    }
    Ok(())
}

/// Restores what was withdrawn, for kubelet. A file that a run has published meanwhile is newer.
///
/// # Errors
/// When it cannot be renamed.
pub fn publish(node: &dyn Node, config: &AgentConfig, events: Sink<'_>) -> Result<()> {
    let Some(conf) = &config.cni_conf else { return Ok(()) };
    let kept = node.disk(&withdrawn(conf));
    if !kept.is_file() {
        return Ok(());
    }
    let place = node.disk(conf);
    if place.is_file() {
        return files::gone(fs::remove_file(&kept)).with_context(|| format!("remove {}", withdrawn(conf)));
    }
    files::rename(&kept, &place).with_context(|| format!("publish {conf}"))?;
    events(Event::Log { message: "the network is up: the CNI configuration is published".into() });
    Ok(())
}

/// A pod's endpoint that was deleted with its network, while its container runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostEndpoint {
    pub endpoint: String,
    pub ip: Option<Ipv4Addr>,
    /// For example `namespace/name`, once the cluster was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

impl From<&Endpoint> for LostEndpoint {
    fn from(endpoint: &Endpoint) -> Self {
        Self { endpoint: endpoint.describe(), ip: endpoint.ip, pod: None }
    }
}

/// Re-creates the pods of lost endpoints; returns those that are left, with what was done.
pub type Recreate<'a> = &'a dyn Fn(&mut dyn Node, &[LostEndpoint], Sink<'_>) -> Result<Vec<LostEndpoint>>;

fn path() -> WinPath {
    state::folder().join("lost-pods.json")
}

/// The pods that lost their network.
///
/// # Errors
/// When the record cannot be read.
pub fn lost(node: &dyn Node) -> Result<Vec<LostEndpoint>> {
    Ok(record::load(node, &path())?.unwrap_or_default())
}

/// Records which running pods lose their endpoint, before it happens if this program does it, and reports it. `why`:
/// what is reported, for example "these pods lose their network".
///
/// # Errors
/// When the write fails.
pub fn record_lost(node: &mut dyn Node, losses: Vec<LostEndpoint>, why: &str, events: Sink<'_>) -> Result<()> {
    // An unreadable record is replaced.
    let mut all = lost(node).unwrap_or_default();
    let known = all.len();
    for lost in losses {
        if !all.iter().any(|other| other.endpoint == lost.endpoint && other.ip == lost.ip) {
            all.push(lost);
        }
    }
    if all.len() == known {
        return Ok(());
    }
    let names: Vec<String> = all.iter().map(LostEndpoint::to_string).collect();
    let message = format!("{why}: {}", names.join(", "));
    events(Event::Warning { id: "PodsLostNetwork", message });
    record::save(node, &path(), &all)
}

/// Re-creates them. Errors are in the log, and `status` still shows the pods.
pub fn recreate(node: &mut dyn Node, recreate: Recreate<'_>, events: Sink<'_>) {
    if let Err(error) = try_recreate(node, recreate, events) {
        let message = format!("the pods that lost their network could not be re-created: {error:#}");
        events(Event::Log { message });
    }
}

fn try_recreate(node: &mut dyn Node, recreate: Recreate<'_>, events: Sink<'_>) -> Result<()> {
    let lost = lost(node)?;
    if lost.is_empty() {
        return Ok(());
    }
    let left = recreate(node, &lost, events)?;
    if left.is_empty() {
        return files::gone(fs::remove_file(node.disk(&path()))).with_context(|| format!("remove {}", path()));
    }
    record::save(node, &path(), &left)
}

impl std::fmt::Display for LostEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ip = self.ip.map_or_else(String::new, |ip| format!(" ({ip})"));
        write!(f, "{}{ip}", self.pod.as_deref().unwrap_or(&self.endpoint))
    }
}
