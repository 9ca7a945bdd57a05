//! Measures what else is on a node. Uses only [`Node`], so that both nodes are measured alike.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Listing, Node, acl, arguments, trust};
use crate::calico::{flannel, layout::TOP, nssm, services::SERVICES as OURS};
use crate::facts::{CniConfig, Firewall, ServiceFacts, Survey, Writers};
use crate::item::{Id, RegValue, Service, State};
use crate::values::{Cidr, WinPath};

/// Services that a check uses, besides ours; the machine's others are ignored.
const SERVICES: [&str; 19] = [
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

/// Files and folders by which the folder of an install is known, in lower case.
const OF_CALICO: [&str; 4] = ["calico-node.exe", "calico.exe", "config.ps1", "install-calico.ps1"];

/// What checks need besides [`Node::facts`].
///
/// # Errors
/// Name what could not be read. A CNI configuration that cannot be read is a finding, not an error.
pub fn survey(node: &dyn Node, folders: &Folders<'_>, installed: bool) -> Result<Survey> {
    let mut services = BTreeMap::new();
    for (id, state) in node.list(Listing::Services).context("list the services")? {
        let (Id::Service(name), State::Service(service)) = (id, state) else { continue };
        if SERVICES.iter().chain(&OURS).any(|wanted| wanted.eq_ignore_ascii_case(&name)) {
            let running = node.get(&Id::Running(name.clone()))?.is_some();
            let facts = ServiceFacts { running, command: command(&service), depends_on: service.depends_on.clone() };
            services.insert(name.to_lowercase(), facts);
        }
    }
    // A list leaves out what cannot be read.
    let mut unread_services = BTreeMap::new();
    for name in SERVICES.iter().chain(&OURS).filter(|name| !services.contains_key(&name.to_lowercase())) {
        if let Err(error) = node.get(&Id::Service((*name).into())) {
            unread_services.insert(name.to_lowercase(), format!("{error:#}"));
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
        unread_services,
        networks,
        cni_configs: cni_configs(node, folders.cni_conf),
        installed,
        calico_folder: node.disk(folders.root).is_dir(),
        other_root: has_no_calico(node, folders.root).then(|| folders.root.to_string()),
        flannel_network: flannel_network(node),
        disk_free: None,
        vxlan_port_free: None,
        link_local_routes: link_local_routes(node),
        tcp_ports: BTreeMap::new(),
        firewall: Firewall::default(),
        own_rules_ignored: Some(own_rules_ignored(node)?),
        writers: Some(writers(node, folders)?),
    })
}

/// A file that cannot be read is none: only advice depends on it.
fn flannel_network(node: &dyn Node) -> Option<Cidr> {
    let conf = std::fs::read_to_string(node.disk(&WinPath::known(flannel::NET_CONF))).ok()?;
    flannel::network(&conf)
}

/// Whether a folder has files, but neither Calico's usual name nor a file of a release or of an install by its scripts.
fn has_no_calico(node: &dyn Node, folder: &WinPath) -> bool {
    if folder.name().eq_ignore_ascii_case(TOP) {
        return false;
    }
    let Ok(entries) = std::fs::read_dir(node.disk(folder)) else { return false };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().to_lowercase()).collect();
    !names.is_empty() && !names.iter().any(|name| OF_CALICO.contains(&name.as_str()))
}

/// The profiles in which a policy says that local rules do not count (`AllowLocalPolicyMerge` 0; in gpedit "Apply local
/// firewall rules: No"). `StandardProfile` is the private one's name of old.
fn own_rules_ignored(node: &dyn Node) -> Result<Vec<String>> {
    let mut ignored = Vec::new();
    for (profile, key) in [
        ("Domain", "DomainProfile"),
        ("Private", "PrivateProfile"),
        ("Private", "StandardProfile"),
        ("Public", "PublicProfile"),
    ] {
        let key = format!(r"SOFTWARE\Policies\Microsoft\WindowsFirewall\{key}");
        let id = Id::RegValue { key, name: "AllowLocalPolicyMerge".into() };
        let merges = node.get(&id).context("read the policies of Windows Firewall")?;
        if merges == Some(State::RegValue(RegValue::Dword(0))) && !ignored.iter().any(|known| known == profile) {
            ignored.push(profile.to_owned());
        }
    }
    Ok(ignored)
}

/// Folders of Calico whose paths come from the config or the container runtime.
#[derive(Debug)]
pub struct Folders<'a> {
    pub root: &'a WinPath,
    pub cni_conf: &'a WinPath,
    pub cni_bin: &'a WinPath,
    pub logs: &'a WinPath,
}

/// Who else may write to these folders, to files in those of CNI, or to the folders above them. The release's own
/// folder is swapped as a whole, and restricted then.
fn writers(node: &dyn Node, folders: &Folders<'_>) -> Result<Writers> {
    let caller = node.caller();
    let mut writers = Writers::default();
    // Without administrator rights some places cannot be read; `Elevated` reports that.
    let other = |path: &WinPath, rights: u32| -> Result<Option<String>> {
        if !caller.elevated {
            return Ok(None);
        }
        let found = node.rights(&node.disk(path)).with_context(|| format!("read who may write to {path}"))?;
        Ok(found.and_then(|found| found.acl.other(&caller, rights)).map(|other| trust::account(&other.sid)))
    };
    for (folder, is_cni) in [(folders.cni_conf, true), (folders.cni_bin, true), (folders.logs, false)] {
        let place = node.disk(folder);
        if !place.is_dir() || folder.is_below(folders.root) {
            continue;
        }
        writers.folders.extend(other(folder, acl::CHANGE_FOLDER)?.map(|who| (folder.to_string(), who)));
        let mut above = folder.parent();
        while let Some(path) = above {
            writers.others.extend(other(&path, acl::REPLACE)?.map(|who| (path.to_string(), who)));
            above = path.parent();
        }
        for entry in if is_cni { std::fs::read_dir(&place)?.collect() } else { Vec::new() } {
            let entry = entry.with_context(|| format!("list {folder}"))?;
            if !entry.path().is_dir() {
                let file = folder.join(&entry.file_name().to_string_lossy());
                writers.others.extend(other(&file, acl::CHANGE)?.map(|who| (file.to_string(), who)));
            }
        }
    }
    Ok(writers)
}

/// Routes to one link-local address each. A failed listing means unknown, and is not an error: only advice depends on
/// it.
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

/// Checks TCP ports of this machine: which accept connections at all of its own addresses, and which the firewall
/// opens. A connection to the own machine bypasses the firewall.
pub fn ask_ports(survey: &mut Survey, addresses: &[Ipv4Addr], ports: &[u16]) {
    if ports.is_empty() {
        return;
    }
    let open = |address: &Ipv4Addr, port| TcpStream::connect_timeout(&(*address, port).into(), OWN_PORT).is_ok();
    if !addresses.is_empty() {
        survey.tcp_ports =
            ports.iter().map(|port| (*port, addresses.iter().all(|address| open(address, *port)))).collect();
    }
    survey.firewall = firewall(ports);
}

#[cfg(windows)]
fn firewall(ports: &[u16]) -> Firewall {
    match super::windows::firewall::lets_in(ports) {
        Ok(lets_in) => Firewall { lets_in, unread: None },
        Err(error) => Firewall { lets_in: BTreeMap::new(), unread: Some(format!("{error:#}")) },
    }
}

#[cfg(not(windows))]
fn firewall(_: &[u16]) -> Firewall {
    Firewall::default()
}

/// What only the machine itself knows: its disk space, and whether VXLAN's port is free.
#[cfg(windows)]
pub fn of_this_machine(survey: &mut Survey) {
    survey.disk_free = super::windows::disk_space::free_bytes();
    // HNS takes the packets below the sockets, so only other programs show up here.
    survey.vxlan_port_free = super::windows::iphelper::udp_port_is_taken(4789).ok().map(|taken| !taken);
}

#[cfg(not(windows))]
pub fn of_this_machine(_: &mut Survey) {}

/// What a service really runs.
fn command(service: &Service) -> Vec<String> {
    let Some((program, arguments)) = nssm::program(service) else { return Vec::new() };
    std::iter::once(program).chain(arguments::split(&arguments)).collect()
}

/// The configurations in a folder, sorted by name: a runtime uses the first.
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
    let is_folder = |name: &str| node.disk(&dir.join(name)).is_dir();
    names.into_iter().map(|file| CniConfig { plugin: plugin(&file), is_folder: is_folder(&file), file }).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::node::sandbox::SandboxNode;

    #[test]
    fn a_policy_that_ignores_the_machines_own_rules_is_named_by_its_profile() {
        let dir = tempfile::tempdir().unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        assert_eq!(own_rules_ignored(&node).unwrap(), [""; 0]);
        for (profile, merges) in [("DomainProfile", 1), ("StandardProfile", 0), ("PublicProfile", 0)] {
            let key = format!(r"SOFTWARE\Policies\Microsoft\WindowsFirewall\{profile}");
            let id = Id::RegValue { key, name: "AllowLocalPolicyMerge".into() };
            node.put(&id, Some(&State::RegValue(RegValue::Dword(merges)))).unwrap();
        }
        assert_eq!(own_rules_ignored(&node).unwrap(), ["Private", "Public"]);
    }

    /// The whole of 127.0.0.0/8 is this machine, so these are two of its addresses.
    #[test]
    fn a_port_that_listens_at_one_of_several_addresses_does_not_count() {
        let [first, second] = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
        let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
        let listens = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let (open, one) = (listens.local_addr().unwrap().port(), TcpListener::bind((first, 0)).unwrap());
        let only_first = one.local_addr().unwrap().port();
        let mut survey = Survey::default();
        ask_ports(&mut survey, &[first, second], &[open, only_first, everywhere]);
        assert_eq!(survey.tcp_ports, [(open, true), (only_first, false), (everywhere, false)].into());
        ask_ports(&mut survey, &[first], &[only_first]);
        assert_eq!(survey.tcp_ports, [(only_first, true)].into());
    }
}
