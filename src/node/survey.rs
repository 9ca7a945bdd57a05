//! Looks at what else is on a node. Only through [`Node`], so that both nodes are looked at alike.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Listing, Node, arguments};
use crate::calico::nssm;
use crate::facts::{CniConfig, ServiceFacts, Survey};
use crate::plan::item::{Id, Service, State};
use crate::values::WinPath;

/// Services that a check looks at; the machine's others are nobody's business.
const SERVICES: [&str; 22] = [
    "containerd",
    "docker",
    "kubelet",
    "kube-proxy",
    "flanneld",
    "flannel",
    "rke2",
    "rancher-wins",
    "RemoteAccess",
    "hns",
    "CalicoNode",
    "CalicoFelix",
    "CalicoConfd",
    "CalicoUpgrade",
    "antrea-agent",
    "ovs-vswitchd",
    "windows_exporter",
    "csi-proxy",
    "windows-instance-config-daemon",
    "TermService",
    "WinRM",
    "sshd",
];

/// What checks want to know besides [`Node::facts`].
///
/// # Errors
/// Naming what could not be read. A CNI configuration that cannot be read is a finding, not an error.
pub fn survey(node: &dyn Node, cni_dir: Option<&WinPath>, root: &WinPath, installed: bool) -> Result<Survey> {
    let mut services = BTreeMap::new();
    for (id, state) in node.list(Listing::Services).context("list the services")? {
        let (Id::Service(name), State::Service(service)) = (id, state) else { continue };
        if SERVICES.iter().any(|wanted| wanted.eq_ignore_ascii_case(&name)) {
            let running = node.get(&Id::Running(name.clone()))?.is_some();
            let facts = ServiceFacts { running, command: command(&service), depends_on: service.depends_on.clone() };
            services.insert(name.to_lowercase(), facts);
        }
    }
    let mut networks = BTreeMap::new();
    for (id, state) in node.list(Listing::Networks).context("list the HNS networks")? {
        if let (Id::Network(name), State::Network(network)) = (id, state) {
            networks.insert(name, network.kind.to_string());
        }
    }
    Ok(Survey {
        services,
        networks,
        cni_configs: cni_dir.map(|dir| cni_configs(node, dir)).unwrap_or_default(),
        installed,
        calico_folder: node.disk(root).is_dir(),
        disk_free: None,
        vxlan_port_free: None,
        link_local_routes: link_local_routes(node),
        tcp_ports: BTreeMap::new(),
    })
}

/// Routes to one link-local address each. What cannot be listed is not known, and no error: only
/// advice hangs on it.
fn link_local_routes(node: &dyn Node) -> Option<BTreeMap<String, String>> {
    let routes = node.list(Listing::Routes).ok()?.into_iter().filter_map(|(id, state)| match (id, state) {
        (Id::Route(prefix), State::Route { interface, .. })
            if prefix.addr().is_link_local() && prefix.prefix_len() == 32 =>
        {
            Some((prefix.to_string(), interface))
        }
        _ => None,
    });
    Some(routes.collect())
}

/// How long a port of our own machine may take to answer.
const OWN_PORT: Duration = Duration::from_millis(500);

/// Which of these TCP ports take connections at this machine's own address. What the firewall lets
/// in from elsewhere is another matter.
pub fn ask_ports(survey: &mut Survey, address: Option<Ipv4Addr>, ports: impl Iterator<Item = u16>) {
    let Some(address) = address else { return };
    let open = |port| TcpStream::connect_timeout(&(address, port).into(), OWN_PORT).is_ok();
    survey.tcp_ports = ports.map(|port| (port, open(port))).collect();
}

/// What only the machine itself can tell: room on its disk, and whether VXLAN's port is free.
#[cfg(windows)]
pub fn of_this_machine(survey: &mut Survey) {
    survey.disk_free = super::windows::room::free_bytes();
    // HNS itself takes the packets below the sockets, so only other programs show here.
    survey.vxlan_port_free = match std::net::UdpSocket::bind(("0.0.0.0", 4789)) {
        Ok(_) => Some(true),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Some(false),
        Err(_) => None,
    };
}

#[cfg(not(windows))]
pub fn of_this_machine(_: &mut Survey) {}

/// What a service really runs.
fn command(service: &Service) -> Vec<String> {
    let Some((program, arguments)) = nssm::program(service) else { return Vec::new() };
    std::iter::once(program).chain(arguments::split(&arguments)).collect()
}

/// The configurations in a folder, sorted by name: a runtime takes the first.
fn cni_configs(node: &dyn Node, dir: &WinPath) -> Vec<CniConfig> {
    let Ok(entries) = std::fs::read_dir(node.disk(dir)) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_config = |name: &String| {
        let lower = name.to_lowercase();
        [".conf", ".conflist", ".json"].iter().any(|end| lower.ends_with(end))
    };
    let mut names: Vec<String> = names.filter(is_config).collect();
    names.sort();
    let plugin = |name: &str| {
        let bytes = std::fs::read(node.disk(&dir.join(name))).ok()?;
        let document: Value = serde_json::from_slice(&bytes).ok()?;
        let plugin = document["type"].as_str().or(document["plugins"][0]["type"].as_str())?;
        Some(plugin.to_owned())
    };
    names.into_iter().map(|file| CniConfig { plugin: plugin(&file), file }).collect()
}
