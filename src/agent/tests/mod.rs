//! What CalicoNode does at its start, on a sandbox node.

mod again;
mod boot;
mod lost;
mod unseen;
mod waits;

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use tempfile::TempDir;

use super::network_backup::NetworkBackup;
use super::startup::Again;
use super::state::{AgentState, Phase};
use super::watched_processes::WatchedProcesses;
use super::*;
use crate::calico::testing;
use crate::item::{Access, IpConfig, Network, NetworkKind, Service, StartType};
use crate::node::Listing;
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::faults::SandboxFaults;
use crate::node::sandbox::model::{Arriving, Endpoint, Model, Name, NodeNetwork, NodeService};
use crate::report::event::Event;
use crate::settings::Backend;

/// Gets how much time has passed.
type Meanwhile = Box<dyn FnMut(&mut dyn Node, Duration)>;

const CONF: &str = r"C:\Program Files\containerd\cni\conf\10-calico.conf";

/// A node and the configuration of its services.
struct Story {
    _dir: TempDir,
    node: SandboxNode,
    config: AgentConfig,
    /// The exit codes of node startup, one for each run; then 0.
    exits: Vec<i32>,
    runs: usize,
    events: Vec<Event>,
    stop: Stop,
    /// The text of Windows for its start time.
    boot_time: Rc<RefCell<String>>,
    /// Differences from what the last run left.
    drift: Rc<RefCell<Vec<String>>>,
    /// How long the waits took together.
    virtual_time: Duration,
    /// Changes of the node during the waits, by the time that has passed.
    meanwhile: Meanwhile,
}

impl Story {
    fn new(backend: Backend) -> Self {
        let dir = TempDir::new().unwrap();
        let node = SandboxNode::open(dir.path()).unwrap();
        let command = Command {
            program: WinPath::known(r"C:\CalicoWindows\calico-node.exe"),
            args: vec!["-startup".into()],
            dir: WinPath::known(r"C:\CalicoWindows"),
            env: [].into(),
        };
        let config = AgentConfig { backend, cni_conf: Some(WinPath::known(CONF)), ..testing::agent(&command) };
        Self {
            _dir: dir,
            node,
            config,
            exits: Vec::new(),
            runs: 0,
            events: Vec::new(),
            stop: Stop::default(),
            boot_time: Rc::new("1/2/2026 3:04:05 PM".to_owned().into()),
            drift: Rc::default(),
            virtual_time: Duration::ZERO,
            meanwhile: Box::new(|_, _| ()),
        }
    }

    fn edit(&mut self, change: impl FnOnce(&mut Model)) {
        self.node
            .edit(|model| {
                change(model);
                Ok(())
            })
            .unwrap();
    }

    fn start(&mut self, role: Role) -> Result<Option<Command>> {
        self.context(|node, config, context| prepare(role, node, config, context).map(Option::<&Command>::cloned))
    }

    fn bring_up(&mut self) -> Result<Option<network::Upkeep>> {
        self.context(|node, config, context| startup::bring_up(node, config, context))
    }

    /// Calls `work` with an agent's context.
    fn context<T>(&mut self, work: impl FnOnce(&mut dyn Node, &AgentConfig, &mut AgentContext<'_>) -> T) -> T {
        let Self { node, config, exits, runs, events, stop, boot_time, drift, virtual_time, meanwhile, .. } = self;
        let backend = config.backend;
        let mut run = |node: &mut dyn Node, _: &Command| {
            *runs += 1;
            if !exits.is_empty() {
                return Ok(exits.remove(0));
            }
            let there = node.get(&Id::Network("Calico".into()))?;
            if backend != Backend::None && there.is_none() {
                node.put(&Id::Network("Calico".into()), Some(&calico(4096)))?;
            }
            Ok(0)
        };
        let mut context = AgentContext {
            stop,
            boot_time: &|| boot_time.borrow().clone(),
            startup_limit: Some(Duration::from_secs(600)),
            pause: &mut |node, time| {
                *virtual_time += time;
                meanwhile(node, *virtual_time);
                node.pause(time);
            },
            run: &mut run,
            recreate: &|_, lost, _| Ok(lost.to_vec()),
            drift: &|_| Ok(drift.borrow().clone()),
            drift_every: Duration::from_secs(10),
            events: &mut |event| events.push(event),
        };
        work(node, config, &mut context)
    }

    fn route(&mut self, prefix: &str, interface: &str) {
        let route =
            State::Route { interface: interface.into(), next_hop: std::net::Ipv4Addr::UNSPECIFIED, metric: 256 };
        self.node.put(&Id::Route(prefix.parse().unwrap()), Some(&route)).unwrap();
    }

    fn metadata_route(&self) -> Option<String> {
        match self.node.get(&startup::metadata_route()).unwrap() {
            Some(State::Route { interface, .. }) => Some(interface),
            _ => None,
        }
    }

    /// The next vSwitch comes up with DHCP, and its address never arrives.
    /// The host's adapter on the vSwitch has what the physical one had.
    fn has_again(&self, before: &IpConfig) {
        let after = self.node.get(&Id::Adapter("vEthernet (Ethernet)".into())).unwrap();
        let Some(State::Adapter(after)) = after else { panic!("{after:?}") };
        assert!(before.addresses.iter().all(|address| after.addresses.contains(address)), "{after:?}");
        assert_eq!((after.gateway, &after.dns), (before.gateway, &before.dns));
    }

    fn loses_its_address(&mut self) {
        self.meanwhile = Box::new(|node, _| {
            let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
            let mut other = SandboxNode::open(&root).unwrap();
            let lost = |model: &mut Model| {
                if let Some(host) =
                    model.adapters.iter_mut().find_map(|adapter| adapter.arriving.take().map(|_| adapter))
                {
                    (host.dhcp, host.addresses) = (true, vec!["169.254.21.21/16".parse().unwrap()]);
                }
                Ok(())
            };
            other.edit(lost).unwrap();
        });
    }

    fn networks(&self) -> String {
        let line = |(id, state): (Id, State)| match state {
            State::Network(n) => {
                let vsid = n.vsid.map_or_else(String::new, |vsid| format!(" {vsid}"));
                format!("{} {:?}{vsid}", id.target(), n.kind)
            }
            other => format!("{other:?}"),
        };
        let all: Vec<String> = self.node.list(Listing::Networks).unwrap().into_iter().map(line).collect();
        all.join(", ")
    }

    fn waited_for(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Waiting { what, .. } => Some(what.as_str()),
                _ => None,
            })
            .collect();
        all.dedup();
        all
    }
}

/// The service of HNS, as Windows has it.
pub fn hns_service(pid: Option<u32>) -> NodeService {
    service("Host Network Service", r"C:\Windows\System32\svchost.exe -k NetSvcs", StartType::Manual, pid)
}

fn service(display_name: &str, image_path: &str, start: StartType, pid: Option<u32>) -> NodeService {
    let definition = Service {
        display_name: display_name.into(),
        description: String::new(),
        image_path: image_path.into(),
        account: "LocalSystem".into(),
        start,
        depends_on: Vec::new(),
        restart_after: Vec::new(),
        recovery: None,
        parameters: [].into(),
    };
    NodeService::new(definition, pid)
}

/// The service CalicoNode runs, and its agent says so.
pub fn calico_node_runs(node: &mut SandboxNode, phase: Phase) {
    let image = "calicoctl-win.exe service run node";
    let service = service("Calico Windows Startup", image, StartType::Auto, Some(4100));
    node.edit(|model| {
        model.services.insert(Name::new("CalicoNode"), service);
        Ok(())
    })
    .unwrap();
    let said = AgentState { phase, ..AgentState::new(Role::Node, 4100, node.now()) };
    let path = state::path(Role::Node);
    node.save(&path, &serde_json::to_vec(&said).unwrap(), Access::Administrators).unwrap();
}

fn calico(vsid: u32) -> State {
    State::Network(Network {
        kind: NetworkKind::Overlay,
        subnet: Some("192.168.20.64/26".parse().unwrap()),
        gateway: None,
        vsid: Some(vsid),
        adapter: None,
        management_ip: None,
    })
}

/// A network of another product on the machine.
fn foreign(kind: NetworkKind, subnet: &str) -> NodeNetwork {
    NodeNetwork {
        id: "11111111-2222-3333-4444-555555555555".into(),
        kind,
        subnet: Some(subnet.parse().unwrap()),
        gateway: None,
        vsid: None,
        adapter: None,
        management_ip: None,
        unseen_by_v2: false,
        policies: Vec::new(),
        endpoints: [].into(),
    }
}

/// Removes the adapter's address; it returns after some seconds.
fn address_comes_late(story: &mut Story, in_seconds: u32) {
    story.edit(|model| {
        let adapter = &mut model.adapters[0];
        let addresses = std::mem::replace(&mut adapter.addresses, vec!["169.254.7.7/16".parse().unwrap()]);
        adapter.arriving = Some(Arriving { in_seconds, addresses, gateway: adapter.gateway.take() });
    });
}
