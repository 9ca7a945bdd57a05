//! What CalicoNode does at its start, seen on a sandbox node.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::saved::Saved;
use super::startup::{Again, Seen};
use super::*;
use crate::node::Listing;
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::model::{Arriving, Model, Name, NodeNetwork};
use crate::plan::item::{IpConfig, Network, NetworkKind};
use crate::report::event::Event;
use crate::settings::Backend;

/// Told how much time has passed.
type Meanwhile = Box<dyn FnMut(&mut dyn Node, Duration)>;

/// A node and what its services were told.
struct Story {
    _dir: TempDir,
    node: SandboxNode,
    config: AgentConfig,
    /// What node startup exits with, one a run; then 0.
    exits: Vec<i32>,
    runs: usize,
    events: Vec<Event>,
    stop: Stop,
    booted: Timestamp,
    /// How long the waits took together.
    virtual_time: Duration,
    /// What others do to the node while we wait, by the time that has passed.
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
        Self {
            _dir: dir,
            node,
            config,
            exits: Vec::new(),
            runs: 0,
            events: Vec::new(),
            stop: Stop::default(),
            booted: "2026-01-02T15:04:05Z".parse().unwrap(),
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
        self.around(|node, config, around| prepare(role, node, config, around).map(Option::<&Command>::cloned))
    }

    fn bring_up(&mut self) -> Result<Option<network::Upkeep>> {
        self.around(|node, config, around| startup::bring_up(node, config, around))
    }

    /// Does some work of an agent here.
    fn around<T>(&mut self, work: impl FnOnce(&mut dyn Node, &AgentConfig, &mut Around<'_>) -> T) -> T {
        let Self { node, config, exits, runs, events, stop, booted, virtual_time, meanwhile, .. } = self;
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
        let mut around = Around {
            stop,
            booted: *booted,
            startup_limit: Some(Duration::from_secs(600)),
            pause: &mut |node, time| {
                *virtual_time += time;
                meanwhile(node, *virtual_time);
                node.pause(time);
            },
            run: &mut run,
            events: &mut |event| events.push(event),
        };
        work(node, config, &mut around)
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
        let values = model.registry.entry(Name::new(crate::calico::registry::KEY)).or_default();
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

/// Defect B28: the route is made because the config says so, whatever a metadata service answers.
#[test]
fn b28_the_metadata_route_is_made_when_asked() {
    for asked in [false, true] {
        let mut story = Story::new(Backend::Vxlan);
        story.config.metadata_route = asked;
        story.start(Role::Node).unwrap();
        assert_eq!(story.metadata_route().as_deref(), asked.then_some("vEthernet (Ethernet)"));
    }
}

#[test]
fn every_link_local_route_that_the_vswitch_took_comes_back() {
    let mut story = Story::new(Backend::Vxlan);
    let routes = ["169.254.169.254/32", "169.254.169.253/32", "168.63.129.16/32"];
    for prefix in routes {
        story.route(prefix, "Ethernet");
    }
    let before = story.node.list(Listing::Routes).unwrap();
    story.start(Role::Node).unwrap();
    let mut after = story.node.list(Listing::Routes).unwrap();
    for (id, state) in &mut after {
        let State::Route { interface, .. } = state else { panic!("{id}") };
        if *id != Id::Route("168.63.129.16/32".parse().unwrap()) {
            assert_eq!(interface, "vEthernet (Ethernet)", "{id}");
        }
        *interface = "Ethernet".into();
    }
    assert_eq!(after, before);
    assert!(Saved::load(&story.node).unwrap().unwrap().restored);
}

/// Defect B28 again: what takes the route away while the service runs does not matter either.
#[test]
fn a_route_that_vanishes_later_is_put_back_and_nothing_is_touched_meanwhile() {
    let mut story = Story::new(Backend::Vxlan);
    story.config.metadata_route = true;
    let mut upkeep = story.bring_up().unwrap();
    let touches = story.node.touches();
    for _ in 0..3 {
        upkeep.as_mut().unwrap().look(&mut story.node, &mut |event| panic!("{event:?}"));
    }
    assert_eq!(story.node.touches(), touches);
    story.node.put(&startup::metadata_route(), None).unwrap();
    let mut said = Vec::new();
    upkeep.as_mut().unwrap().look(&mut story.node, &mut |event| said.push(event));
    assert_eq!(story.metadata_route().as_deref(), Some("vEthernet (Ethernet)"));
    insta::assert_debug_snapshot!(said, @r#"
    [
        Log {
            message: "route 169.254.169.254/32 is put back on vEthernet (Ethernet)",
        },
    ]
    "#);
}

/// microsoft/SDN issue 498: the vSwitch comes up with DHCP and the static address is lost.
#[test]
fn a_static_address_that_the_vswitch_lost_is_put_back() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| (model.adapters[0].dhcp, model.adapters[0].dns) = (false, vec![[10, 20, 0, 2].into()]));
    let before = story.node.model().unwrap().adapters[0].ip_config();
    story.loses_its_address();
    story.start(Role::Node).unwrap();
    story.has_again(&before);
    assert!(story.events.iter().any(|e| matches!(e, Event::Warning { id: "StaticAddressRestored", .. })));
}

/// The power fails after the vSwitch took the adapter, before anything was put back.
#[test]
fn after_a_crash_in_the_middle_what_was_saved_is_found_again() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.adapters[0].dhcp = false);
    story.route("169.254.169.123/32", "Ethernet");
    let before = story.node.model().unwrap().adapters[0].ip_config();
    story.loses_its_address();
    let mut lose = std::mem::replace(&mut story.meanwhile, Box::new(|_, _| ()));
    let stop = story.stop.clone();
    story.meanwhile = Box::new(move |node, time| {
        lose(node, time);
        stop.request();
    });
    assert!(story.start(Role::Node).unwrap_err().is::<stop::Stopped>());
    assert!(!Saved::load(&story.node).unwrap().unwrap().restored);
    story.stop = Stop::default();
    story.meanwhile = Box::new(|_, _| ());
    story.edit(|model| {
        model.boot_id = "boot-2".into();
        model.routes.clear();
    });
    story.start(Role::Node).unwrap();
    story.has_again(&before);
    let route = story.node.get(&Id::Route("169.254.169.123/32".parse().unwrap())).unwrap();
    assert!(matches!(route, Some(State::Route { interface, .. }) if interface == "vEthernet (Ethernet)"));
}

/// Defect B12: the scripts compare a time of the boot as a text, and take another clock, time zone
/// or culture for a reboot.
#[test]
fn b12_another_clock_is_no_reboot() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    let networks = story.node.model().unwrap().networks;
    for booted in ["2026-01-02T03:04:05Z", "2031-12-30T23:59:59Z"] {
        story.booted = booted.parse().unwrap();
        story.start(Role::Node).unwrap();
        assert_eq!(story.node.model().unwrap().networks, networks);
    }
}

/// Defect B19: none of the waits is without a limit, and each says what is missing.
#[test]
fn b19_a_vswitch_without_its_address_default_route_or_network_is_named() {
    let what_is_missing = |change: fn(&mut Model)| {
        let mut story = Story::new(Backend::Vxlan);
        story.start(Role::Node).unwrap();
        story.edit(change);
        story.start(Role::Node).unwrap_err().to_string()
    };
    insta::assert_snapshot!(what_is_missing(|model| {
        model.networks.get_mut(&Name::new("External")).unwrap().management_ip = Some([169, 254, 3, 4].into());
        // A second adapter keeps the machine reachable.
        let mut other = model.adapters[1].clone();
        other.name = "Other".into();
        model.adapters.push(other);
        model.adapters[1].addresses.clear();
    }), @"waited 120 s for the management IP of the HNS network External: HNS has only 169.254.3.4, which others cannot reach");
    insta::assert_snapshot!(what_is_missing(|model| {
        let mut other = model.adapters[1].clone();
        (other.name, other.addresses) = ("Other".into(), vec!["10.9.9.9/24".parse().unwrap()]);
        model.adapters.push(other);
        model.adapters[1].gateway = None;
    }), @"waited 120 s for the management IP of the HNS network External: vEthernet (Ethernet) has no default gateway");
}

/// The originals spend 11 to 15 s in fixed sleeps and polls.
#[test]
fn we_add_less_than_a_second_to_what_the_machine_needs() {
    for (late, settle) in [(0, 0), (3, 1), (7, 5)] {
        let mut story = Story::new(Backend::Vxlan);
        address_comes_late(&mut story, late);
        story.edit(|model| {
            model.adapters[0].settle_seconds = settle;
            if late == 0 {
                let here = model.adapters[0].arriving.take().unwrap();
                (model.adapters[0].addresses, model.adapters[0].gateway) = (here.addresses, here.gateway);
            }
        });
        story.start(Role::Node).unwrap();
        let needed = Duration::from_secs((late + settle).into());
        let ours = story.virtual_time - needed;
        // 250 ms to see that the vSwitch has settled, and a look for each of the two waits.
        assert!(ours <= Duration::from_millis(350), "{late} s, {settle} s: {ours:?}");
    }
}

/// On a clock that only our pauses move.
#[test]
fn no_wait_adds_more_than_50_ms_to_its_event() {
    for event_ms in [0, 1, 49, 50, 51, 999, 4321, 60_000] {
        let event = Duration::from_millis(event_ms);
        let mut story = Story::new(Backend::Vxlan);
        let clock = std::rc::Rc::new(std::cell::Cell::new(Duration::ZERO));
        let now = clock.clone();
        story.meanwhile = Box::new(move |_, time| clock.set(time));
        story
            .around(|node, _, around| {
                wait(node, "an event", Duration::from_secs(90), around, |_, _| {
                    Ok(if now.get() >= event { Ok(()) } else { Err(Missing("it".into())) })
                })
            })
            .unwrap();
        let late = story.virtual_time - event.min(story.virtual_time);
        assert!(late <= Duration::from_millis(50) && story.virtual_time >= event, "{event:?}: {late:?}");
    }
}

#[test]
fn felix_goes_on_within_50_ms_of_the_mark() {
    let mut story = Story::new(Backend::Vxlan);
    let mark = State::RegValue(RegValue::String("boot-1".into()));
    story.meanwhile = Box::new(move |node, time| {
        if time >= Duration::from_millis(7300) && node.get(&startup::boot_id()).unwrap().is_none() {
            node.put(&startup::boot_id(), Some(&mark)).unwrap();
        }
    });
    story.start(Role::Felix).unwrap();
    assert!(story.virtual_time <= Duration::from_millis(7350), "{:?}", story.virtual_time);
}

#[test]
fn every_wait_ends_when_the_service_is_to_stop() {
    for role in [Role::Node, Role::Felix] {
        let mut story = Story::new(Backend::Vxlan);
        address_comes_late(&mut story, 600);
        let stop = story.stop.clone();
        story.meanwhile = Box::new(move |_, time| {
            if time >= Duration::from_secs(3) {
                stop.request();
            }
        });
        assert!(story.start(role).unwrap_err().is::<stop::Stopped>());
        assert!(story.virtual_time <= Duration::from_millis(3050), "{role:?}: {:?}", story.virtual_time);
    }
}

#[test]
fn node_startup_does_not_wait_for_its_turn_when_kubelet_starts() {
    let mut story = Story::new(Backend::None);
    kubelet(&story.node, 0);
    story.exits = vec![1; 5];
    story.meanwhile = Box::new(|node, time| {
        if time == Duration::from_secs(16) {
            kubelet(node, 4711);
        }
    });
    story.start(Role::Node).unwrap();
    // 1 + 2 + 4 + 8 s, 1 s into the 16 s kubelet comes, then 2 s.
    assert_eq!(story.runs, 6);
    assert!(story.virtual_time <= Duration::from_millis(18_050), "{:?}", story.virtual_time);
}

/// kubelet runs as another process, which is no service, or with pid 0 not at all.
fn kubelet(node: &dyn Node, pid: u32) {
    let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
    let mut other = SandboxNode::open(&root).unwrap();
    other
        .edit(|model| {
            model.services.get_mut(&Name::new("kubelet")).unwrap().pid = None;
            model.processes.clear();
            if pid > 0 {
                let image = WinPath::known(r"C:\k\Kubelet.exe");
                model.processes.push(crate::node::sandbox::model::Process { pid, image, service: None });
            }
            Ok(())
        })
        .unwrap();
}

/// Watches while others do things, and gives what is to be done again, or none when nothing was
/// until the stop.
fn watched(story: &mut Story, meanwhile: impl Fn(&mut dyn Node, Duration) + 'static) -> Option<Again> {
    let stop = story.stop.clone();
    let limit = Duration::from_secs(20);
    story.virtual_time = Duration::ZERO;
    story.meanwhile = Box::new(move |node, time| {
        meanwhile(node, time);
        if time >= limit {
            stop.request();
        }
    });
    let found = story.around(|node, _, around| {
        let mut seen = Seen::look(node)?;
        startup::watch(node, &mut seen, &mut None, around)
    });
    story.stop = Stop::default();
    match found {
        Ok(again) => Some(again),
        Err(error) if error.is::<stop::Stopped>() => None,
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn node_startup_runs_again_when_kubelet_was_started_and_not_when_it_ended() {
    let mut story = Story::new(Backend::None);
    let at = |second: u64, pid: u32| {
        move |node: &mut dyn Node, time: Duration| {
            if time == Duration::from_secs(second) {
                kubelet(node, pid);
            }
        }
    };
    kubelet(&story.node, 0);
    assert_eq!(watched(&mut story, |_, _| ()), None);
    assert_eq!(watched(&mut story, at(5, 4711)), Some(Again::NodeStartup), "the first one");
    assert!(story.virtual_time <= Duration::from_millis(5050));
    assert_eq!(watched(&mut story, |_, _| ()), None, "it runs on");
    assert_eq!(watched(&mut story, at(5, 4712)), Some(Again::NodeStartup), "another one");
    assert_eq!(watched(&mut story, at(5, 0)), None, "it is gone");
}

#[test]
fn a_restart_of_hns_is_seen_and_said_and_its_stop_is_none() {
    let mut story = Story::new(Backend::Vxlan);
    let hns = |pid: Option<u32>| {
        move |node: &mut dyn Node, time: Duration| {
            if time == Duration::from_secs(5) {
                set_hns(node, pid);
            }
        }
    };
    set_hns(&story.node, Some(900));
    assert_eq!(watched(&mut story, hns(None)), None, "stopped");
    set_hns(&story.node, Some(900));
    assert_eq!(watched(&mut story, hns(Some(904))), Some(Again::Everything));
    assert!(story.events.iter().any(|e| matches!(e, Event::Warning { id: "HnsRestarted", .. })));
}

fn set_hns(node: &dyn Node, pid: Option<u32>) {
    let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
    let mut other = SandboxNode::open(&root).unwrap();
    other
        .edit(|model| {
            let service = crate::node::sandbox::model::NodeService {
                definition: crate::plan::item::Service {
                    display_name: "Host Network Service".into(),
                    description: String::new(),
                    image_path: r"C:\Windows\System32\svchost.exe -k NetSvcs".into(),
                    account: "LocalSystem".into(),
                    start: crate::plan::item::StartType::Manual,
                    depends_on: Vec::new(),
                    restart_after: Vec::new(),
                    parameters: [].into(),
                },
                pid,
                stop_seconds: 1,
            };
            model.services.insert(Name::new("hns"), service);
            Ok(())
        })
        .unwrap();
}

#[test]
fn node_startup_is_tried_again_within_limits() {
    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1, 1, 1];
    story.start(Role::Node).unwrap();
    assert_eq!(story.runs, 4);

    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1; 1000];
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"Calico's node startup did not succeed in 600 s: 15 tries, the last one exited with 1");
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
