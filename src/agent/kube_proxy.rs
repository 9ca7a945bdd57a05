//! kube-proxy's configuration as it reads it: with the address of Calico's host endpoint, which exists only while the
//! network does.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};

use crate::calico::agent_config::AgentConfig;
use crate::calico::kubernetes::with_source_vip;
use crate::calico::networks;
use crate::item::Access;
use crate::node::Node;
use crate::paths::kubernetes as paths;
use crate::settings::Backend;
use crate::values::WinPath;

/// Writes it, before each start of kube-proxy.
///
/// # Errors
/// When there is no such endpoint yet, or a file cannot be read or written.
pub fn write_config(node: &mut dyn Node, config: &AgentConfig) -> Result<()> {
    let path = WinPath::known(paths::KUBE_PROXY_CONFIG);
    let text = fs::read_to_string(node.disk(&path)).with_context(|| format!("read {path}"))?;
    let vip = if config.backend == Backend::Vxlan { Some(source_vip(node)?) } else { None };
    let effective = WinPath::known(paths::KUBE_PROXY_EFFECTIVE);
    let text = with_source_vip(&text, vip)?;
    node.save(&effective, text.as_bytes(), Access::Administrators).with_context(|| format!("write {effective}"))
}

/// Without it, pods of other nodes would answer to an address that they cannot reach.
fn source_vip(node: &dyn Node) -> Result<Ipv4Addr> {
    let endpoints = node.endpoints().context("look for kube-proxy's source VIP")?;
    let name = networks::HOST_ENDPOINT;
    let found = endpoints.iter().filter(|endpoint| endpoint.is_the_hosts()).find_map(|endpoint| endpoint.ip);
    found.with_context(|| format!("find the HNS endpoint {name}, whose address is kube-proxy's source VIP"))
}
