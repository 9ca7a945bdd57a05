//! The model of `node.yaml`: a Windows node except its disk.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::{Adapter, Features, HnsVersion, NodeFacts, Os, Part, Runtime, Tls};
use crate::item::{FirewallRule, IpConfig, Network, NetworkKind, RegValue, Service, State};
use crate::node::event_log::LoggedEvent;
use crate::node::firewall::is_the_rule;
use crate::node::hns;
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

/// The complete `node.yaml`.
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
    /// Version of the Host Networking Service; none if it does not answer.
    #[serde(default)]
    pub hns: Option<HnsVersion>,
    /// Seconds that HNS needs to make a vSwitch; meanwhile it answers nobody.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub switch_seconds: u32,
    /// Seconds until HNS answers again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hns_busy: u32,
    /// The metadata service of the cloud that the machine is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudMetadata>,
    /// The Calico release on the Linux nodes of the sandbox's own cluster; a new value means that they were upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux_calico: Option<String>,
    /// What requires a restart of Windows, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_reboot: Vec<String>,
    /// TLS settings in the registry; empty if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// What Windows cannot read, with the error text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<Part, String>,
    #[serde(default)]
    pub adapters: Vec<NodeAdapter>,
    /// The active store: what works now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<Cidr, Route>,
    /// The persistent store, from which Windows fills the active one when it starts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub persistent_routes: BTreeMap<Cidr, Route>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<Name, NodeNetwork>,
    /// How many of the next networks of a name version 2 of HNS will not show.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unseen_networks: BTreeMap<Name, u32>,
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
    /// Processes other than the services' own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// Files that a process has open, so that they cannot be replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_files: Vec<OpenFile>,
    /// Owner and access list of files and folders, in SDDL, if they differ from Windows's defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub acls: BTreeMap<WinPath, String>,
    /// Neighbours on the network that do not answer.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub silent: BTreeSet<Ipv4Addr>,
    /// Peers to which it has a BGP session.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub bgp_sessions: BTreeSet<Ipv4Addr>,
    /// Entries of the event logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<LoggedEvent>,
    /// Whether kube-proxy keeps load balancers for the cluster's services here.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub kube_proxy: bool,
    /// HNS takes ACLs, and does not enforce them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub acls_ignored: bool,
    /// Images that no registry gives to this node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing_images: BTreeSet<String>,
    /// Faults on demand, as in `CALICO_WIN_SANDBOX_FAULT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// The service at the link-local address of metadata services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudMetadata {
    pub flavour: Flavour,
    /// What the instance is called there; empty if it has no name.
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
    /// A web page, for every request.
    CaptivePortal,
}

/// The boot time of a node that does not set one.
fn some_morning() -> Timestamp {
    "2026-01-05T07:58:11Z".parse().expect("a literal time is right")
}

fn is_some_morning(time: &Timestamp) -> bool {
    *time == some_morning()
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

const fn yes() -> bool {
    true
}

const fn is_true(flag: &bool) -> bool {
    *flag
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
    /// Addresses that are still moving.
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

    /// Manual settings apply at once. With DHCP, addresses and gateway come from the lease.
    pub fn configure(&mut self, config: &IpConfig) {
        self.dhcp = config.dhcp;
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
        // Manual addresses do not move.
        self.arriving = None;
    }
}

impl Route {
    pub fn state(&self) -> State {
        State::Route { interface: self.interface.clone(), next_hop: self.next_hop, metric: self.metric }
    }
}

/// An HNS network, as flat as in HNS.
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
    /// The physical adapter of its vSwitch; none for networks without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_ip: Option<Ipv4Addr>,
    /// Version 1 of HNS shows it, version 2 does not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unseen_by_v2: bool,
    /// Its policies, as HNS shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<serde_json::Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<Name, Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    pub ip: Ipv4Addr,
    pub mac: String,
    /// Represents an endpoint of another machine or of the host itself.
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
    /// Seconds until Felix has replaced the ACLs of a new pod; none if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruled_in_seconds: Option<u32>,
}

impl Endpoint {
    /// A pod's, or without a container the host's, with no policies.
    pub fn new(ip: Ipv4Addr, mac: impl Into<String>, container: Option<String>) -> Self {
        let (remote, provider_address, policies, ruled_in_seconds) = (false, None, Vec::new(), None);
        Self { ip, mac: mac.into(), remote, provider_address, container, policies, ruled_in_seconds }
    }

    /// Replaces its ACLs by those that allow everything; keeps its other policies.
    pub fn let_all_through(&mut self) {
        self.policies.retain(|policy| !hns::is_acl(policy));
        self.policies.extend(hns::all_through());
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeService {
    pub definition: Service,
    /// Its process; none if it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Seconds that it needs to stop.
    #[serde(default = "one_second")]
    pub stop_seconds: u32,
    /// Seconds that it needs to start: it reports a checkpoint in each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_seconds: u32,
    /// It has a process, but is still starting or stopping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// Its last start was given up because a dependency failed (1068).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_up: bool,
    /// How often its process has ended by itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Seconds until its recovery action starts it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_in: Option<u32>,
    /// A program has it open, for example services.msc: once deleted, its name stays taken until this is false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_open: bool,
    /// It is deleted, and only its name is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Nobody may read its definition (error 5), as security products have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
}

/// What a service is about to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pending {
    Start,
    Stop,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    pub pid: u32,
    pub image: WinPath,
    /// The service that started it; it ends with the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenFile {
    pub path: WinPath,
    /// The name of the process, for messages.
    pub by: String,
}

impl Model {
    /// What a boot does to the machine itself. Of the routes it has only the persistent ones again, and none on an adapter
    /// that has a vSwitch: such an adapter has no IP.
    pub fn boots(&mut self, id: String, time: Timestamp) {
        (self.boot_id, self.boot_time) = (id, time);
        let has_ip = |route: &Route| {
            let mut adapters =
                self.adapters.iter().filter(|a| Name::new(a.name.as_str()) == Name::new(&*route.interface));
            adapters.any(|adapter| !adapter.addresses.is_empty() || adapter.arriving.is_some())
        };
        let persistent = self.persistent_routes.iter().filter(|(_, route)| has_ip(route));
        self.routes = persistent.map(|(prefix, route)| (*prefix, route.clone())).collect();
    }

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
                routing: self.registry.get(&Name::new(Features::ROUTING)).and_then(|values| {
                    match values.get(&Name::new(Features::INSTALL_STATE)) {
                        Some(RegValue::Dword(state)) => Some(Features::is_installed(*state)),
                        _ => None,
                    }
                }),
            }),
            pending_reboot: self.pending_reboot.clone(),
            tls: Some(self.tls.unwrap_or_default()),
            unread: BTreeMap::new(),
            hns_stuck: None,
        };
        for (part, why) in &self.unread {
            facts.leave_out(*part, why);
        }
        facts
    }

    /// Whether two models are the same node to a user. Windows chooses the ids of processes and HNS networks, it counts
    /// the failures of a service, and a registry key without values counts as none.
    pub fn same(&self, other: &Self) -> bool {
        fn plain(model: &Model) -> Model {
            let mut model = model.clone();
            model.networks.values_mut().for_each(|network| network.id.clear());
            for service in model.services.values_mut() {
                (service.pid, service.failures) = (service.pid.map(|_| 0), 0);
            }
            model.registry.retain(|_, values| !values.is_empty());
            model
        }
        plain(self) == plain(other)
    }

    /// A firewall rule by its name, or by another name of the same rule.
    pub fn firewall_rule(&self, name: &str) -> Option<(&Name, &FirewallRule)> {
        self.firewall.iter().find(|(have, _)| is_the_rule(name, have.as_str()))
    }

    /// The smallest unused process id. Windows uses multiples of four.
    pub fn free_pid(&self) -> u32 {
        let taken: BTreeSet<u32> =
            self.services.values().filter_map(|s| s.pid).chain(self.processes.iter().map(|p| p.pid)).collect();
        (1000..).map(|n| n * 4).find(|pid| !taken.contains(pid)).unwrap_or_default()
    }

    /// The smallest unused GUID of a network.
    pub fn free_guid(&self) -> String {
        let guid = |n: usize| format!("00000000-0000-4000-8000-{n:012x}");
        let taken: BTreeSet<String> = self.networks.values().map(|n| n.id.to_lowercase()).collect();
        (1..=taken.len() + 1).map(guid).find(|id| !taken.contains(id)).unwrap_or_default()
    }

    /// The open files, and the process that has each open.
    pub fn locks(&self) -> impl Iterator<Item = (WinPath, String)> {
        self.programs().chain(self.open_files.iter().map(|file| (file.path.clone(), file.by.clone())))
    }

    /// The running programs. Windows lets them be renamed.
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

    /// The first address that others can reach.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.addresses.iter().map(|cidr| cidr.addr()).find(|ip| !ip.is_loopback() && !ip.is_link_local())
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
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
    /// One that stops within a second, and that nobody has open.
    pub const fn new(definition: Service, pid: Option<u32>) -> Self {
        Self {
            definition,
            pid,
            stop_seconds: 1,
            start_seconds: 0,
            pending: None,
            gave_up: false,
            failures: 0,
            restart_in: None,
            held_open: false,
            deleted: false,
            unreadable: false,
        }
    }

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
