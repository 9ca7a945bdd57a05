//! What CalicoNode does at its start, seen on a sandbox node.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::node::Listing;
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::model::{Arriving, Model, Name, NodeNetwork};
use crate::plan::item::{Network, NetworkKind};
use crate::report::event::Event;
use crate::settings::Backend;

/// A node and what its services were told.
struct Story {
    _dir: TempDir,
    node: SandboxNode,
    config: AgentConfig,
    /// What node startup exits with, one a run; then 0.
    exits: Vec<i32>,
    runs: usize,
    events: Vec<Event>,
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
        let config = AgentConfig {
            node_name: "win-a1".parse().unwrap(),
            backend,
            vni: 4096.try_into().unwrap(),
            adapter: None,
            log_dir: WinPath::known(r"C:\CalicoWindows\logs"),
            valid_ip_timeout_s: 90,
            metadata_route: false,
            startup: command.clone(),
            felix: command,
            confd: None,
        };
        Self { _dir: dir, node, config, exits: Vec::new(), runs: 0, events: Vec::new() }
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
        let Self { node, config, exits, runs, events, .. } = self;
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
        let booted = "2026-01-02T15:04:05Z".parse().unwrap();
        prepare(role, node, config, booted, &mut run, &mut |event| events.push(event)).map(Option::<&Command>::cloned)
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

/// A network of another product, as one finds it on the machine.
fn foreign(kind: NetworkKind, subnet: &str) -> NodeNetwork {
    NodeNetwork {
        id: "11111111-2222-3333-4444-555555555555".into(),
        kind,
        subnet: Some(subnet.parse().unwrap()),
        gateway: None,
        vsid: None,
        adapter: None,
        management_ip: None,
        endpoints: [].into(),
    }
}

#[test]
fn a_fresh_node_gets_its_bootstrap_network_and_a_mark() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    assert_eq!(story.networks(), "Calico Overlay 4096, External Overlay 9999, nat Nat");
    assert_eq!(story.waited_for(), ["the management IP of the HNS network External"]);
    assert!(story.events.iter().any(|event| matches!(event, Event::ConnectivityNotice { .. })));
    assert_eq!(story.node.get(&startup::boot_id()).unwrap(), Some(State::RegValue(RegValue::String("boot-1".into()))));
    let Some(State::RegValue(RegValue::String(time))) = story.node.get(&startup::last_boot_time()).unwrap() else {
        panic!("no LastBootTime")
    };
    assert!(time.starts_with("1/") && time.contains(":04:05 ") && time.ends_with('M'), "{time}");
}

#[test]
fn started_again_in_the_same_boot_it_only_runs_node_startup() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    let (networks, touches) = (story.node.model().unwrap().networks, story.node.touches());
    story.events.clear();
    story.start(Role::Node).unwrap();
    assert_eq!(story.runs, 2);
    assert_eq!((story.node.model().unwrap().networks, story.node.touches()), (networks, touches));
    assert_eq!(story.events, []);
}

#[test]
fn after_a_reboot_only_our_networks_are_made_anew() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| {
        model.networks.insert(Name::new("flannel.4096"), foreign(NetworkKind::Overlay, "10.42.0.0/16"));
        model.networks.insert(Name::new("azure"), foreign(NetworkKind::L2Bridge, "10.1.0.0/16"));
        model.networks.insert(Name::new("Calico VPN"), foreign(NetworkKind::Transparent, "10.2.0.0/16"));
    });
    story.start(Role::Node).unwrap();
    let before = story.networks();
    story.edit(|model| {
        model.boot_id = "boot-2".into();
        // What HNS says of our network after the boot is not to be trusted.
        model.networks.get_mut(&Name::new("External")).unwrap().management_ip = Some([10, 9, 9, 9].into());
        model.networks.get_mut(&Name::new("Calico")).unwrap().vsid = Some(7777);
    });
    story.start(Role::Node).unwrap();
    assert_eq!(story.networks(), before);
    let removed: Vec<&Event> =
        story.events.iter().filter(|e| matches!(e, Event::Log { message } if message.contains("removing"))).collect();
    assert_eq!(removed.len(), 2, "{removed:?}");
    let external = story.node.model().unwrap().networks[&Name::new("External")].management_ip;
    assert_eq!(external, Some([10, 20, 0, 21].into()));
    assert_eq!(story.node.get(&startup::boot_id()).unwrap(), Some(State::RegValue(RegValue::String("boot-2".into()))));
}

#[test]
fn a_network_external_of_somebody_else_is_used_and_kept() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| {
        let mut theirs = foreign(NetworkKind::L2Bridge, "10.77.0.0/30");
        theirs.management_ip = Some([10, 20, 0, 21].into());
        model.networks.insert(Name::new("external"), theirs);
        let value = RegValue::String("boot-0".into());
        let values = model.registry.entry(Name::new(r"SOFTWARE\Tigera\Calico")).or_default();
        values.insert(Name::new("BootId"), value);
    });
    story.start(Role::Node).unwrap();
    assert_eq!(story.networks(), "Calico Overlay 4096, external L2Bridge, nat Nat");
    assert!(story.events.iter().any(|e| matches!(e, Event::Warning { id: "ForeignExternalNetwork", .. })));
}

#[test]
fn another_backend_makes_external_anew() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.node.put(&Id::Network("Calico".into()), None).unwrap();
    story.config.backend = Backend::WindowsBgp;
    let error = story.start(Role::Node).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the HNS network Calico is Overlay with VSID 4096 and should be L2Bridge",
        "the one that this story's node startup makes"
    );
    assert_eq!(story.networks(), "Calico Overlay 4096, External L2Bridge, nat Nat");
}

#[test]
fn policy_only_touches_no_network() {
    let mut story = Story::new(Backend::None);
    let adapters = story.node.facts().unwrap().adapters;
    story.start(Role::Node).unwrap();
    assert_eq!((story.networks(), story.runs), ("nat Nat".into(), 1));
    assert_eq!(story.node.facts().unwrap().adapters, adapters);
    assert!(story.node.get(&startup::boot_id()).unwrap().is_some());
}

/// Takes the adapter's address away; it comes back after some seconds.
fn address_comes_late(story: &mut Story, in_seconds: u32) {
    story.edit(|model| {
        let adapter = &mut model.adapters[0];
        let addresses = std::mem::replace(&mut adapter.addresses, vec!["169.254.7.7/16".parse().unwrap()]);
        adapter.arriving = Some(Arriving { in_seconds, addresses, gateway: adapter.gateway.take() });
    });
}

#[test]
fn it_waits_for_an_address_but_not_for_ever() {
    let mut story = Story::new(Backend::Vxlan);
    address_comes_late(&mut story, 60);
    story.start(Role::Node).unwrap();
    assert_eq!(story.waited_for()[0], "a valid IPv4 address");

    let mut story = Story::new(Backend::Vxlan);
    address_comes_late(&mut story, 600);
    let before = story.node.now();
    let error = story.start(Role::Node).unwrap_err();
    insta::assert_snapshot!(error, @"waited 90 s for a valid IPv4 address: Ethernet has 169.254.7.7/16");
    let took = story.node.now().duration_since(before).as_secs();
    assert!((90..100).contains(&took), "{took}");
    assert_eq!((story.networks(), story.runs), ("nat Nat".into(), 0));
}

#[test]
fn a_vswitch_that_never_gets_its_address_is_named() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.adapters[0].settle_seconds = 3600);
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"waited 120 s for the management IP of the HNS network External: HNS does not know it yet");
    assert_eq!(story.node.get(&startup::boot_id()).unwrap(), None, "so that Felix goes on waiting");
}

#[test]
fn the_metadata_route_comes_back_when_asked() {
    for asked in [false, true] {
        let mut story = Story::new(Backend::Vxlan);
        story.config.metadata_route = asked;
        let route =
            State::Route { interface: "Ethernet".into(), next_hop: std::net::Ipv4Addr::UNSPECIFIED, metric: 256 };
        story.node.put(&startup::metadata_route(), Some(&route)).unwrap();
        story.start(Role::Node).unwrap();
        let interface = match story.node.get(&startup::metadata_route()).unwrap() {
            Some(State::Route { interface, .. }) => Some(interface),
            _ => None,
        };
        assert_eq!(interface.as_deref(), asked.then_some("vEthernet (Ethernet)"));
    }
}

#[test]
fn node_startup_is_tried_again_within_limits() {
    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1, 1, 1];
    story.start(Role::Node).unwrap();
    assert_eq!(story.runs, 4);

    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1; 1000];
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"Calico's node startup did not succeed in 600 s: 24 tries, the last one exited with 1");
}

#[test]
fn a_calico_network_with_another_vsid_is_not_let_pass() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.config.vni = 5000.try_into().unwrap();
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"the HNS network Calico is Overlay with VSID 4096 and should be Overlay with VSID 5000");
}

#[test]
fn felix_and_confd_wait_for_this_boots_bring_up() {
    let mut story = Story::new(Backend::Vxlan);
    insta::assert_snapshot!(story.start(Role::Felix).unwrap_err(), @"waited 900 s for CalicoNode to bring up the network: the service CalicoNode does not run");
    story.start(Role::Node).unwrap();
    assert_eq!(story.start(Role::Felix).unwrap().as_ref(), Some(&story.config.felix));
    insta::assert_snapshot!(story.start(Role::Confd).unwrap_err(), @"find confd's command: the backend vxlan has no confd");
    story.edit(|model| model.boot_id = "boot-2".into());
    assert!(story.start(Role::Felix).is_err());
}

#[test]
fn services_know_their_role_and_what_install_told_them() {
    let ours = r#""C:\Program Files\calicoctl-win\calicoctl-win.exe" service run felix"#;
    assert_eq!(Role::of_command_line(ours), Some(Role::Felix));
    for other in [r"C:\k\kubelet.exe --windows-service", "x service run kubelet", "felix"] {
        assert_eq!(Role::of_command_line(other), None, "{other}");
    }
    let story = Story::new(Backend::Vxlan);
    let error = read_config(&story.node).unwrap_err();
    assert_eq!(error.downcast_ref::<Fault>().unwrap().id, "AgentConfigMissing");
    let place = story.node.disk(&WinPath::known(AgentConfig::PATH));
    fs::create_dir_all(place.parent().unwrap_or(Path::new(""))).unwrap();
    fs::write(place, serde_json::to_vec(&story.config).unwrap()).unwrap();
    assert_eq!(read_config(&story.node).unwrap(), story.config);
}
