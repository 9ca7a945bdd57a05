//! What `node.yaml` says: a Windows node but for its disk.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::{Adapter, Features, HnsVersion, NodeFacts, Os, Part, Runtime, Tls};
use crate::item::{FirewallRule, IpConfig, Network, NetworkKind, RegValue, Service, State};
use crate::node::firewall::is_the_rule;
use crate::values::{Cidr, WinPath};

/// A name that Windows compares without case and keeps as it was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(String);

impl Name {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.to_lowercase().cmp(&other.0.to_lowercase())
    }
}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Name {}

/// Marks a `node.yaml` as ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    SandboxNode,
}

/// Format of `node.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApiVersion {
    #[serde(rename = "calicoctl-win/v1alpha1")]
    V1Alpha1,
}

/// The whole of `node.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    pub api_version: ApiVersion,
    pub kind: Kind,
    pub host_name: String,
    pub os: Os,
    #[serde(default = "yes")]
    pub elevated: bool,
    pub boot_id: String,
    /// When Windows started.
    #[serde(default = "some_morning", skip_serializing_if = "is_some_morning")]
    pub boot_time: Timestamp,
    #[serde(default)]
    pub runtime: Option<Runtime>,
    /// Version of the Host Networking Service; none where it does not answer.
    #[serde(default)]
    pub hns: Option<HnsVersion>,
    /// The metadata service of the cloud that the machine is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudMetadata>,
    /// What the Linux nodes of the sandbox's own cluster run; another release than before: they were upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux_calico: Option<String>,
    /// What waits for Windows to be restarted, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_reboot: Vec<String>,
    /// What stands in the registry on TLS; nothing, when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// What Windows does not tell, and in which words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<Part, String>,
    #[serde(default)]
    pub adapters: Vec<NodeAdapter>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<Cidr, Route>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<Name, NodeNetwork>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub firewall: BTreeMap<Name, FirewallRule>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<Name, NodeService>,
    /// Load ordering groups, and the services in each. A service depends on one by `+` and its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_groups: BTreeMap<Name, BTreeSet<Name>>,
    /// Values below HKEY_LOCAL_MACHINE, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registry: BTreeMap<Name, BTreeMap<Name, RegValue>>,
    /// What runs besides the services' own processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// Files that somebody holds open, so that they cannot be replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_files: Vec<OpenFile>,
    /// Owner and access list of files and folders, in SDDL, where they are not what Windows makes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub acls: BTreeMap<WinPath, String>,
    /// Neighbours on the network that do not answer.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub silent: BTreeSet<Ipv4Addr>,
    /// Faults on demand, as in `CALICO_WIN_SANDBOX_FAULT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// What answers at the link-local address of metadata services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudMetadata {
    pub flavour: Flavour,
    /// What the instance is called there; empty where it has no name.
    pub host_name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flavour {
    #[serde(rename = "EC2")]
    Ec2,
    #[serde(rename = "GCE")]
    Gce,
    /// EC2's paths without its tokens.
    OpenStack,
    /// A web page, whatever is asked.
    CaptivePortal,
}

/// When a node started that does not say.
fn some_morning() -> Timestamp {
    "2026-01-05T07:58:11Z".parse().expect("a literal time is right")
}

fn is_some_morning(time: &Timestamp) -> bool {
    *time == some_morning()
}

const fn yes() -> bool {
    true
}

const fn settle_seconds() -> u32 {
    5
}

const fn one_second() -> u32 {
    1
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAdapter {
    pub name: String,
    pub mac: String,
    #[serde(default)]
    pub addresses: Vec<Cidr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    #[serde(default)]
    pub dhcp: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Seconds that its addresses need to move to or from a vSwitch.
    #[serde(default = "settle_seconds")]
    pub settle_seconds: u32,
    /// Addresses on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arriving: Option<Arriving>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arriving {
    pub in_seconds: u32,
    pub addresses: Vec<Cidr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    pub interface: String,
    pub next_hop: Ipv4Addr,
    pub metric: u32,
}

impl NodeAdapter {
    pub fn ip_config(&self) -> IpConfig {
        IpConfig {
            dhcp: self.dhcp,
            addresses: self.addresses.clone(),
            gateway: self.gateway,
            dns: self.dns.clone(),
            metric: self.metric,
        }
    }

    /// What is set is there at once. With DHCP, addresses and gateway are the lease's.
    pub fn configure(&mut self, config: &IpConfig) {
        self.dns.clone_from(&config.dns);
        self.metric = config.metric;
        if config.dhcp {
            return;
        }
        for address in &config.addresses {
            if !self.addresses.contains(address) {
                self.addresses.push(*address);
            }
        }
        self.gateway = config.gateway.or(self.gateway);
        // What was set by hand is no longer on its way.
        self.arriving = None;
    }
}

impl Route {
    pub fn state(&self) -> State {
        State::Route { interface: self.interface.clone(), next_hop: self.next_hop, metric: self.metric }
    }
}

/// An HNS network, flat as HNS shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeNetwork {
    pub id: String,
    pub kind: NetworkKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<Cidr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsid: Option<u32>,
    /// The physical adapter below its vSwitch; none for networks that need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_ip: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<Name, Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    pub ip: Ipv4Addr,
    pub mac: String,
    /// Stands for an endpoint of another machine or of the host itself.
    #[serde(default)]
    pub remote: bool,
    /// Provider address: the machine behind it, on overlay networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_address: Option<Ipv4Addr>,
    /// The container that it is attached to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its policies, as HNS shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeService {
    pub definition: Service,
    /// Its process; none when it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Seconds that it needs to stop.
    #[serde(default = "one_second")]
    pub stop_seconds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    pub pid: u32,
    pub image: WinPath,
    /// The service that started it and takes it along when it stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenFile {
    pub path: WinPath,
    /// Who holds it, for the message.
    pub by: String,
}

impl Model {
    pub fn facts(&self) -> NodeFacts {
        let mut facts = NodeFacts {
            host_name: self.host_name.clone(),
            os: self.os.clone(),
            elevated: self.elevated,
            machine_id: None,
            boot_id: self.boot_id.clone(),
            runtime: self.runtime.clone(),
            adapters: self.adapters.iter().map(NodeAdapter::fact).collect(),
            hns: self.hns,
            cloud: None,
            survey: None,
            features: Some(Features {
                containers: self.hns.is_some(),
                remote_access: self.services.contains_key(&Name::new("RemoteAccess")),
            }),
            pending_reboot: self.pending_reboot.clone(),
            tls: Some(self.tls.unwrap_or_default()),
            unread: BTreeMap::new(),
        };
        for (part, why) in &self.unread {
            facts.leave_out(*part, why);
        }
        facts
    }

    /// Whether a node is the same to its user. Ids of processes and of HNS networks are Windows's
    /// to choose, and a registry key without values is as good as none.
    pub fn same(&self, other: &Self) -> bool {
        fn plain(model: &Model) -> Model {
            let mut model = model.clone();
            model.networks.values_mut().for_each(|network| network.id.clear());
            model.services.values_mut().filter_map(|service| service.pid.as_mut()).for_each(|pid| *pid = 0);
            model.registry.retain(|_, values| !values.is_empty());
            model
        }
        plain(self) == plain(other)
    }

    /// A firewall rule by its name, or by another name of the same rule.
    pub fn firewall_rule(&self, name: &str) -> Option<(&Name, &FirewallRule)> {
        self.firewall.iter().find(|(have, _)| is_the_rule(name, have.as_str()))
    }

    /// The smallest process id that nobody has. Windows gives multiples of four.
    pub fn free_pid(&self) -> u32 {
        let taken: BTreeSet<u32> =
            self.services.values().filter_map(|s| s.pid).chain(self.processes.iter().map(|p| p.pid)).collect();
        (1000..).map(|n| n * 4).find(|pid| !taken.contains(pid)).unwrap_or_default()
    }

    /// The smallest GUID that no network has.
    pub fn free_guid(&self) -> String {
        let guid = |n: usize| format!("00000000-0000-4000-8000-{n:012x}");
        let taken: BTreeSet<String> = self.networks.values().map(|n| n.id.to_lowercase()).collect();
        (1..=taken.len() + 1).map(guid).find(|id| !taken.contains(id)).unwrap_or_default()
    }

    /// What holds files open, and how to name it.
    pub fn locks(&self) -> impl Iterator<Item = (WinPath, String)> {
        self.programs().chain(self.open_files.iter().map(|file| (file.path.clone(), file.by.clone())))
    }

    /// The programs that run. Windows lets them be renamed.
    pub fn programs(&self) -> impl Iterator<Item = (WinPath, String)> {
        let services = self.services.iter().filter_map(|(name, service)| {
            let pid = service.pid?;
            Some((service.executable()?, format!("service {} (pid {pid})", name.as_str())))
        });
        let processes =
            self.processes.iter().map(|p| (p.image.clone(), format!("process {} (pid {})", p.image.name(), p.pid)));
        services.chain(processes)
    }
}

impl NodeAdapter {
    fn fact(&self) -> Adapter {
        Adapter {
            name: self.name.clone(),
            mac: self.mac.clone(),
            addresses: self.addresses.clone(),
            gateway: self.gateway,
            dhcp: self.dhcp,
            team: false,
        }
    }

    /// The first address that others can reach it at.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.addresses.iter().map(|cidr| cidr.addr()).find(|ip| !ip.is_loopback() && !ip.is_link_local())
    }
}

impl NodeNetwork {
    pub fn state(&self) -> State {
        State::Network(Network {
            kind: self.kind,
            subnet: self.subnet,
            gateway: self.gateway,
            vsid: self.vsid,
            adapter: self.adapter.clone(),
            management_ip: self.management_ip,
        })
    }
}

impl NodeService {
    /// The program in its command line: quoted, or up to the first `.exe` or blank.
    pub fn executable(&self) -> Option<WinPath> {
        let line = self.definition.image_path.trim();
        let program = match line.strip_prefix('"') {
            Some(rest) => rest.split('"').next(),
            None => match line.to_ascii_lowercase().find(".exe") {
                Some(at) => line.get(..at + 4),
                None => line.split(' ').next(),
            },
        };
        program?.parse().ok()
    }
}
