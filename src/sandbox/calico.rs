//! The stand-in for `calico-node.exe` and `calico.exe` on a sandbox node. It gets the real program's command line,
//! environment and files, and changes HNS and the Node object like the real one, defects included: it reuses a network
//! `Calico` of the right subnet whatever its VSID.

mod ipam;
mod kube;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::Ipv4Net;
use regex::Regex;
use serde_json::json;

use crate::agent::cni_gate::{self, LostEndpoint};
use crate::agent::health::Readiness;
use crate::agent::state::{self, AgentState, LastExit, Phase, Waiting};
use crate::agent::stop::Stop;
use crate::agent::{self, AgentContext, Role, os};
use crate::calico::agent_config::Command;
use crate::calico::etcd::EtcdFiles;
use crate::cluster::etcd::try_endpoints;
use crate::fault::Fault;
use crate::item::{Id, Network, NetworkKind, State};
use crate::node::hns::{all_through, closes, is_acl};
use crate::node::sandbox::model::{Endpoint, Name};
use crate::node::sandbox::{SandboxNode, StartHook};
use crate::node::win32::{self, refused};
use crate::node::{Node, files};
use crate::report::event::{Event, Sink};
use crate::sandbox;
use crate::settings::Backend;
use crate::values::{Cidr, Secret, WinPath};

use kube::Kube;

/// The network that startup creates; the CNI plugin creates others only for pods of further blocks.
const NETWORK: &str = "Calico";

/// kube-proxy uses the address of this endpoint as its source.
const ENDPOINT: &str = crate::calico::networks::HOST_ENDPOINT;

/// How long node startup is retried: a sandbox service comes up while its start is awaited, so there must be a limit.
pub const STARTUP_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How Calico's programs are simulated on a sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandIn {
    /// The real address of the API server; if none, the kubeconfig's host is used.
    pub dial: Option<SocketAddr>,
}

/// What the agent calls for pods that lost their network.
pub type Recreator = Box<dyn Fn(&mut dyn Node, &[LostEndpoint], Sink<'_>) -> Result<Vec<LostEndpoint>>>;

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub code: i32,
    /// It did not end.
    pub hangs: bool,
    /// Its output, by line.
    pub log: Vec<String>,
}

/// A program that does not end.
#[derive(Debug)]
struct Hangs;

impl fmt::Display for Hangs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it hangs")
    }
}

impl std::error::Error for Hangs {}

/// What a kubelet that this program hosts does on the sandbox in a folder: see [`crate::sandbox::kubelet::join`].
pub type Joiner = Box<dyn Fn(&Path) -> Result<()>>;

/// What this program's services do when they start on a sandbox: the agent's own bring-up, with `stand_in` for Calico.
/// Other services just run. `limit`: how long node startup is retried.
pub fn service_hook(
    stand_in: StandIn,
    limit: Duration,
    recreate: Recreator,
    join: Joiner,
    mut events: Box<dyn FnMut(Event)>,
) -> StartHook {
    Box::new(move |node, service, definition| {
        let Some(role) = Role::of_command_line(&definition.image_path) else {
            return Ok(());
        };
        if role == Role::Kubelet {
            // Of an earlier process, which may have had the same id.
            files::gone(fs::remove_file(node.disk(&state::path(role)))).context("remove kubelet's former state")?;
            return join(node.root());
        }
        let config = agent::read_config(node)?;
        let Some(process) = node.process(service)? else { return Ok(()) };
        let mut said = AgentState::new(role, process.pid, node.now());
        state::save(node, &said)?;
        let (root, booted) = (node.root().to_owned(), node.model()?.boot_time);
        let (mut tries, mut last_exit) = (0, None);
        let mut run = |node: &mut dyn Node, command: &Command| {
            // The network is up, so kubelet has started.
            join(&root)?;
            let output = stand_in.run(&root, command)?;
            let folder = node.disk(&config.log_dir);
            fs::create_dir_all(&folder).context("create Calico's log folder")?;
            let lines: String = output.log.iter().map(|line| format!("{} {line}\n", node.now())).collect();
            files::append(&folder.join("calico-node.log"), lines.as_bytes()).context("write calico-node.log")?;
            if output.hangs {
                return Err(Hangs.into());
            }
            (tries, last_exit) = (tries + 1, Some(LastExit { code: Some(output.code), at: node.now() }));
            Ok(output.code)
        };
        let mut context = AgentContext {
            stop: &Stop::default(),
            boot_time: &|| os::general_format(booted),
            startup_limit: Some(limit),
            pause: &mut |node, time| node.pause(time),
            run: &mut run,
            recreate: &*recreate,
            // Here the agent's time passes only in its waits, and it never watches.
            drift: &|_| Ok(Vec::new()),
            drift_every: Duration::MAX,
            events: &mut *events,
        };
        let prepared = agent::prepare(role, node, &config, &mut context);
        (said.last_exit, said.phase) = (last_exit, Phase::Running);
        match prepared {
            Ok(Some(command)) => {
                node.spawn(service, &command.program)?;
                match (role, config.backend) {
                    (Role::Felix, Backend::None) => enforce(node, command)?,
                    (Role::Felix, _) => open_pods(node)?,
                    _ => {}
                }
                said.child = Some(crate::node::Process { pid: process.pid + 1, since: Some(node.now()) });
                if role == Role::Felix && command.health().is_some() {
                    // A folder has no HTTP server, so the stand-in's text says what Felix would answer.
                    let never = told(node, &command.program).contains("Felix never gets ready");
                    let why = || Readiness::NotReady("Felix says that it is not ready (HTTP 503)".into());
                    said.readiness = Some(if never { why() } else { Readiness::Ready });
                }
                crashes(node, &command.program, &mut said);
            }
            Ok(None) => {}
            // On Windows it is retried while the service runs, and the service is not stopped for that.
            Err(error) if error.is::<Hangs>() || Fault::id_of(&error) == "NodeStartupFailed" => {
                said.phase = Phase::Preparing;
                said.waiting_for = Some(Waiting { what: state::STARTUP.into(), since: node.now(), limit_s: None });
                (said.restarts, said.crash_loop) = (tries, tries >= 3);
                if error.is::<Hangs>() {
                    said.child = Some(crate::node::Process { pid: process.pid + 1, since: Some(node.now()) });
                }
            }
            Err(error) if role != Role::Node && Fault::id_of(&error) == "WaitedTooLong" => {
                said.phase = Phase::Preparing;
                let what = format!("{} in CalicoNode", state::STARTUP);
                said.waiting_for = Some(Waiting { what, since: node.now(), limit_s: None });
            }
            Err(error) => return Err(error),
        }
        state::save(node, &said)
    })
}

/// What our services do when Windows shuts down: as CalicoNode's agent.
///
/// # Errors
/// When the CNI configuration cannot be withdrawn.
pub fn shut_down(node: &SandboxNode) -> Result<()> {
    if node.process(Role::Node.service())?.is_some() {
        let _was_there = cni_gate::withdraw(node, &agent::read_config(node)?)?;
    }
    Ok(())
}

/// A new Felix has the rules of no pod in mind, and writes those of all.
fn open_pods(node: &mut SandboxNode) -> Result<()> {
    node.edit(|model| {
        let endpoints = model.networks.values_mut().flat_map(|network| network.endpoints.values_mut());
        endpoints.filter(|endpoint| endpoint.policies.iter().any(closes)).for_each(Endpoint::let_all_through);
        Ok(())
    })
}

/// Felix on another product's networks: it replaces all ACLs of each pod's endpoint on the networks that KUBE_NETWORK
/// matches. The last ACLs deny.
fn enforce(node: &mut SandboxNode, felix: &Command) -> Result<()> {
    let pattern = felix.env.get("KUBE_NETWORK").map_or("", String::as_str);
    let pattern = Regex::new(pattern).with_context(|| format!("KUBE_NETWORK {pattern} is not a regular expression"))?;
    let mut acls = all_through();
    for (acl, priority) in all_through().into_iter().zip([65_000, 65_000]) {
        let (mut acl, part) = (acl, json!("10.240.0.0/16"));
        (acl["RemoteAddresses"], acl["Priority"]) = (part, priority.into());
        acls.push(acl);
    }
    acls[..2].iter_mut().for_each(|acl| acl["Action"] = "Block".into());
    node.edit(|model| {
        let networks = model.networks.iter_mut().filter(|(name, _)| pattern.is_match(name.as_str()));
        let endpoints = networks.flat_map(|(_, network)| network.endpoints.values_mut());
        for endpoint in endpoints.filter(|endpoint| endpoint.container.is_some()) {
            endpoint.policies.retain(|policy| !is_acl(policy));
            endpoint.policies.extend(acls.iter().cloned());
        }
        Ok(())
    })
}

/// A stand-in may say `crashes with CODE`: then its agent reports a crash loop.
fn crashes(node: &SandboxNode, program: &WinPath, said: &mut AgentState) {
    let text = told(node, program);
    let Some((_, code)) = text.split_once("crashes with ") else { return };
    let code = code.split_whitespace().next().and_then(|code| code.parse().ok());
    (said.phase, said.child, said.restarts, said.crash_loop) = (Phase::Restarting, None, 3, true);
    said.last_exit = Some(LastExit { code, at: node.now() });
}

/// The instructions in a stand-in's text.
fn told(node: &SandboxNode, program: &WinPath) -> String {
    let text = fs::read(node.disk(program)).unwrap_or_default();
    String::from_utf8_lossy(&text[..text.len().min(4096)]).into_owned()
}

impl StandIn {
    /// Runs one of Calico's programs to its end on the sandbox in `root`: node startup.
    ///
    /// It represents a separate process, so it opens the sandbox itself.
    ///
    /// # Errors
    /// When there is no such program; everything else is in the output.
    pub fn run(&self, root: &Path, command: &Command) -> Result<Output> {
        let node = SandboxNode::open(root)?;
        if !node.disk(&command.program).is_file() {
            return Err(refused(win32::FILE_NOT_FOUND, format!("run {}", command.program)).into());
        }
        let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
        let complete = match (command.program.name(), args.as_slice()) {
            ("calico-node.exe", ["-startup"]) | ("calico.exe", ["component", "node", "startup"]) => false,
            ("calico-node.exe", ["-startup", "-complete-startup"])
            | ("calico.exe", ["component", "node", "startup", "--complete-startup"]) => true,
            _ => {
                let line = format!("unknown command or flag: {}", args.join(" "));
                return Ok(Output { code: 1, hangs: false, log: vec![line] });
            }
        };
        let mut startup = Startup { stand_in: *self, node, command, complete, log: Vec::new() };
        let (code, hangs) = match startup.run() {
            Ok(()) => (0, false),
            Err(e) if e.is::<Hangs>() => (0, true),
            Err(e) => {
                startup.log.push(format!("FATAL {e:#}"));
                (1, false)
            }
        };
        Ok(Output { code, hangs, log: startup.log })
    }
}

/// One run of node startup.
struct Startup<'a> {
    stand_in: StandIn,
    node: SandboxNode,
    command: &'a Command,
    /// Whether there is the flag complete-startup, which makes errors of the last step fatal.
    complete: bool,
    log: Vec<String>,
}

impl Startup<'_> {
    fn run(&mut self) -> Result<()> {
        let name = self.node_name()?;
        self.say(format!("Starting node {name}"));
        let backend = self.var("CALICO_NETWORKING_BACKEND").unwrap_or_default().to_owned();
        if !["vxlan", "windows-bgp", "none"].contains(&backend.as_str()) {
            bail!("Invalid NETWORKING_BACKEND: {backend}");
        }
        let kubernetes = self.datastore() == "kubernetes";
        let kube = self.kube()?;
        if kubernetes && kube.is_none() {
            bail!("Failed to create Calico client: no KUBECONFIG");
        }
        if !kubernetes {
            self.etcd()?;
        }
        if let Some(kube) = &kube {
            kube.node(&name)?;
        }
        if let (Some(kube), true, Some(release)) = (&kube, kubernetes, self.release()) {
            // Without the right the real one continues.
            kube.write_release(&release).ok();
        }
        if backend != "none" && self.var("IP") != Some("none") {
            let ip = self.own_address()?;
            self.say(format!("Using IPv4 address {ip}"));
            if let (Some(kube), true) = (&kube, kubernetes) {
                kube.annotate(&name, &[("IPv4Address", ip.to_string())])?;
            }
        }
        if let (Some(kube), true) = (&kube, kubernetes) {
            self.default_pool(kube)?;
        }
        self.write_nodename(&name)?;
        if backend != "none" {
            self.network(&name, &backend, kube.as_ref().filter(|_| kubernetes))?;
            match &kube {
                Some(kube) => kube.set_network_available(&name)?,
                None if self.complete => bail!("Failed to set NetworkUnavailable to False: no Kubernetes client"),
                None => (),
            }
        }
        self.say("Calico node started successfully".into());
        Ok(())
    }

    /// Checks that an etcd member answers. Its contents are not simulated.
    fn etcd(&self) -> Result<()> {
        let told = self.var("ETCD_ENDPOINTS").unwrap_or_default().split(',');
        let members: Vec<String> = told.filter(|url| sandbox::reaches(url)).map(str::to_owned).collect();
        let file = |name: &str| -> Result<Option<String>> {
            let path = self.var(name).map(str::parse::<WinPath>).transpose().map_err(anyhow::Error::msg)?;
            path.map(|path| fs::read_to_string(self.node.disk(&path)).with_context(|| format!("open {path}")))
                .transpose()
        };
        let files = match (file("ETCD_KEY_FILE")?, file("ETCD_CERT_FILE")?, file("ETCD_CA_CERT_FILE")?) {
            (Some(key), Some(cert), Some(ca_cert)) => Some(EtcdFiles { key: Secret::new(key), cert, ca_cert }),
            _ => None,
        };
        try_endpoints(&members, files.as_ref(), Duration::from_secs(2))
            .map(drop)
            .context("Error accessing the Calico datastore")
    }

    /// The pool that startup creates in a cluster without one, whatever the backend: kubeadm's podSubnet, which the
    /// real one prefers, is ignored.
    fn default_pool(&mut self, kube: &Kube) -> Result<()> {
        let cidr = self.var("CALICO_IPV4POOL_CIDR");
        if self.var("NO_DEFAULT_POOLS").is_some_and(|no| no.eq_ignore_ascii_case("true")) {
            if cidr.is_some() {
                bail!("Invalid configuration with NO_DEFAULT_POOLS defined and CALICO_IPV4POOL_CIDR defined.");
            }
            self.say("Skipping IP pool configuration".into());
            return Ok(());
        }
        let cidr = cidr.unwrap_or("192.168.0.0/16").to_owned();
        if cidr == "none" || !kube.calico_list("ippools")?.is_empty() {
            return Ok(());
        }
        let spec = json!({
            "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic", "blockSize": 26, "cidr": cidr,
            "ipipMode": "Never", "natOutgoing": true, "nodeSelector": "all()", "vxlanMode": "Never",
        });
        kube.calico_create("ippools", "IPPool", "default-ipv4-ippool", &spec).context("Failed to create IP pool")?;
        self.say(format!("Created default IPv4 pool ({cidr}) with NAT outgoing true. IPIP mode: Never"));
        Ok(())
    }

    /// The release in the program's text.
    fn release(&self) -> Option<String> {
        let text = fs::read_to_string(self.node.disk(&self.command.program)).ok()?;
        let (_, rest) = text.split_once("Calico for Windows ")?;
        rest.split([',', ' ']).next().map(ToOwned::to_owned)
    }

    fn say(&mut self, line: String) {
        self.log.push(line);
    }

    /// A variable of the component; on Windows an empty one counts as unset.
    fn var(&self, name: &str) -> Option<&str> {
        let own = self.command.env.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        own.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    fn datastore(&self) -> &str {
        let endpoints = || self.var("ETCD_ENDPOINTS").map_or("kubernetes", |_| "etcdv3");
        self.var("CALICO_DATASTORE_TYPE").or_else(|| self.var("DATASTORE_TYPE")).unwrap_or_else(endpoints)
    }

    /// NODENAME, else the file, else the machine's name.
    fn node_name(&self) -> Result<String> {
        if let Some(name) = self.var("NODENAME") {
            return Ok(name.to_owned());
        }
        if let Ok(name) = fs::read_to_string(self.node.disk(&self.nodename_file()))
            && !name.trim().is_empty()
        {
            return Ok(name.trim().to_owned());
        }
        Ok(self.node.facts()?.host_name)
    }

    fn nodename_file(&self) -> WinPath {
        let file = self.var("CALICO_NODENAME_FILE").unwrap_or("nodename");
        file.parse().unwrap_or_else(|_| self.command.dir.join(file.trim_start_matches(".\\")))
    }

    /// The real one truncates and writes each time; the mode is kept.
    fn write_nodename(&self, name: &str) -> Result<()> {
        let path = self.nodename_file();
        fs::write(self.node.disk(&path), name).with_context(|| format!("Failed to write nodename file {path}"))
    }

    fn kube(&self) -> Result<Option<Kube>> {
        let Some(kubeconfig) = self.var("KUBECONFIG") else {
            return Ok(None);
        };
        let path: WinPath = kubeconfig.parse().map_err(anyhow::Error::msg)?;
        let place = self.node.disk(&path);
        let text = fs::read_to_string(&place).with_context(|| format!("Failed to read KUBECONFIG {path}"))?;
        let folder = place.parent().unwrap_or(Path::new(""));
        Kube::connect(&text, folder, self.stand_in.dial, self.var("CALICO_API_GROUP")).map(Some)
    }

    /// The address in `IP`, or the first one on an adapter that is not Calico's or Docker's.
    fn own_address(&self) -> Result<Ipv4Net> {
        match self.var("IP") {
            None | Some("autodetect") => {
                let valid = |ip: &Ipv4Net| !ip.addr().is_loopback() && !ip.addr().is_link_local();
                let adapters = self.node.facts()?.adapters;
                adapters
                    .iter()
                    .rev()
                    .filter(|adapter| !adapter.name.contains("(nat)") && !adapter.name.contains("_ep"))
                    .flat_map(|adapter| adapter.addresses.iter().map(|cidr| **cidr))
                    .find(valid)
                    .context("Unable to auto-detect an IPv4 address")
            }
            Some(fixed) => {
                let net = fixed.parse().or_else(|_| fixed.parse::<Ipv4Addr>().map(Ipv4Net::from));
                net.with_context(|| format!("Invalid IPv4 address in IP: {fixed}"))
            }
        }
    }

    /// Creates the HNS network on this node's block, its endpoint, and the annotations for other nodes.
    fn network(&mut self, name: &str, backend: &str, kube: Option<&Kube>) -> Result<()> {
        let vni = match self.var("VXLAN_VNI").map(str::parse).transpose().context("VXLAN_VNI is not a number")? {
            None | Some(0) => 4096,
            Some(vni) if vni < 4096 => bail!("Windows does not support VXLANVNI < 4096"),
            Some(vni) => vni,
        };
        let block = self.block(name, kube)?;
        let gateway = nth(&block, 1);
        let vxlan = backend == "vxlan";
        let id = Id::Network(NETWORK.into());
        let there = match self.node.get(&id)? {
            Some(State::Network(network)) => Some(network),
            _ => None,
        };
        let fits = |network: &Network| {
            let place = network.subnet.map(|subnet| *subnet) == Some(block) && network.gateway == Some(gateway);
            // Neither the VSID is checked nor, for windows-bgp, the type.
            place && (!vxlan || network.kind == NetworkKind::Overlay)
        };
        if there.as_ref().is_some_and(fits) {
            self.say(format!("Found existing HNS network {NETWORK}"));
        } else {
            if there.is_some() {
                self.say(format!("Deleting HNS network {NETWORK}, which is not on {block}"));
                self.node.put(&id, None)?;
            }
            let network = Network {
                kind: if vxlan { NetworkKind::Overlay } else { NetworkKind::L2Bridge },
                subnet: Some(Cidr::new(block)),
                gateway: Some(gateway),
                vsid: vxlan.then_some(vni),
                adapter: None,
                management_ip: None,
            };
            self.node.put(&id, Some(&State::Network(network)))?;
            self.say(format!("Created HNS network {NETWORK} on {block}"));
        }
        // The parts of Calico that ask version 2 do not find it, and stop there (projectcalico/calico#9120).
        if vxlan && self.node.network_details(NETWORK)?.is_some_and(|details| details.unseen_by_v2) {
            bail!("Could not find {NETWORK} in V2");
        }
        self.follow_instructions(vni)?;
        let management_ip = self.management_ip(if vxlan { 5 } else { 30 })?;
        self.endpoint(nth(&block, 2), management_ip, vxlan)?;
        if let (Some(kube), true) = (kube, vxlan) {
            let details = self.node.network_details(NETWORK)?;
            let mac = details.and_then(|details| details.dr_mac).context("DrMacAddress not found on the network")?;
            let tunnel = [("IPv4VXLANTunnelAddr", gateway.to_string()), ("VXLANTunnelMACAddr", mac)];
            kube.annotate(name, &tunnel)?;
        }
        Ok(())
    }

    /// A stand-in may say `startup fails` or `startup hangs`, for every VNI or only for one: that happens after it
    /// created the network, before the other steps.
    fn follow_instructions(&mut self, vni: u32) -> Result<()> {
        let text = told(&self.node, &self.command.program);
        let Some((_, order)) = text.split_once("startup ") else { return Ok(()) };
        let mut words = order.split_whitespace();
        let verb = words.next().unwrap_or_default();
        if let (Some("at"), Some("VNI"), Some(only)) = (words.next(), words.next(), words.next())
            && only.trim_end_matches(|c: char| !c.is_ascii_digit()).parse() != Ok(vni)
        {
            return Ok(());
        }
        match verb {
            "fails" => bail!(
                "failed to create remote HNSEndpoint {ENDPOINT}: hnsCall failed in Win32: Element not found. (0x490)"
            ),
            "hangs" => {
                self.say(format!("Waiting for HNS to answer on {ENDPOINT}"));
                Err(Hangs.into())
            }
            _ => Ok(()),
        }
    }

    /// This host's block. etcd's contents cannot be read here: use the existing network's subnet, or the first block of
    /// Calico's default pool.
    fn block(&mut self, name: &str, kube: Option<&Kube>) -> Result<Ipv4Net> {
        let block = match kube {
            // Calico's client cannot list the blocks that it makes of podCIDRs (v3.31.7, v3.33).
            Some(_) if self.var("USE_POD_CIDR") == Some("true") => {
                bail!("Error ensure IPv4 block: operation List is not supported")
            }
            Some(kube) => ipam::ensure_block(kube, name)?,
            None => match self.node.get(&Id::Network(NETWORK.into()))? {
                Some(State::Network(Network { subnet: Some(subnet), .. })) => *subnet,
                _ => "192.168.0.0/26".parse().context("parse the first block of the default pool")?,
            },
        };
        self.say(format!("Host's block is {block}"));
        Ok(block)
    }

    fn management_ip(&mut self, limit: u32) -> Result<Ipv4Addr> {
        for _ in 0..limit * 2 {
            if let Some(State::Network(Network { management_ip: Some(ip), .. })) =
                self.node.get(&Id::Network(NETWORK.into()))?
            {
                return Ok(ip);
            }
            self.node.pause(Duration::from_millis(500));
        }
        bail!("timed out waiting for interface matching the management IP of network {NETWORK}")
    }

    /// `Calico_ep`: this host as other nodes see it. Re-created if its provider address or network differs.
    fn endpoint(&mut self, ip: Ipv4Addr, management_ip: Ipv4Addr, vxlan: bool) -> Result<()> {
        self.node.edit(|model| {
            let mac = |ip: Ipv4Addr| {
                let adapter = model.adapters.iter().find(|a| a.addresses.iter().any(|cidr| cidr.addr() == ip));
                adapter.map(|adapter| adapter.mac.clone())
            };
            let mac = mac(management_ip).context("timed out waiting for the interface with the management IP")?;
            let provider_address = vxlan.then_some(management_ip);
            let endpoint = Endpoint { remote: vxlan, provider_address, ..Endpoint::new(ip, mac, None) };
            let network = model.networks.get_mut(&Name::new(NETWORK));
            let network =
                network.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).context("find the network")?;
            network.endpoints.insert(Name::new(ENDPOINT), endpoint);
            Ok(())
        })
    }
}

/// The n-th address of a block.
fn nth(block: &Ipv4Net, n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(block.network()) + n)
}
