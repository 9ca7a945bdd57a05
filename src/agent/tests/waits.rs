//! Waits: each has a limit, names what is missing, and ends shortly after its event.

use super::*;

#[test]
fn it_waits_for_an_address_up_to_a_limit() {
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
    // The clock has the real time too, which a busy machine makes long.
    assert!(took >= 90, "{took}");
    assert_eq!((story.networks(), story.runs), ("nat Nat".into(), 0));
}

#[test]
fn a_vswitch_that_never_gets_its_address_is_named() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.adapters[0].settle_seconds = 3600);
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"waited 120 s for the management IP of the HNS network External: HNS does not know it yet");
    assert_eq!(story.node.get(&startup::boot_id()).unwrap(), None, "so that Felix keeps waiting");
}

/// Defect B19: every wait has a limit, and names what is missing.
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
    }), @"waited 120 s for the management IP of the HNS network External: HNS has only 169.254.3.4, which other machines cannot reach");
}

/// A new vSwitch lost the adapter's default route while another adapter has one.
#[test]
fn b19_a_default_route_is_awaited_on_its_adapter() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    let mut saved = NetworkBackup::load(&story.node).unwrap().unwrap();
    saved.restored = false;
    saved.store(&mut story.node).unwrap();
    story.edit(|model| {
        let mut other = model.adapters[1].clone();
        (other.name, other.addresses) = ("Other".into(), vec!["10.9.9.9/24".parse().unwrap()]);
        model.adapters.push(other);
        model.adapters[1].gateway = None;
    });
    let refused = story.start(Role::Node).unwrap_err();
    insta::assert_snapshot!(refused, @"waited 120 s for the management IP of the HNS network External: vEthernet (Ethernet) has no default gateway");
}

/// With the default route on one adapter and Calico on another, as with upstream's VXLAN_ADAPTER, there is none to wait
/// for.
#[test]
fn a_node_whose_default_route_is_on_another_adapter_comes_up() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| {
        let mut other = model.adapters[0].clone();
        (other.name, other.addresses) = ("Other".into(), vec!["10.9.9.9/24".parse().unwrap()]);
        model.adapters.push(other);
        model.adapters[0].gateway = None;
    });
    story.config.adapter = Some("Ethernet".into());
    story.start(Role::Node).unwrap();
    assert_eq!(story.networks(), "Calico Overlay 4096, External Overlay 9999, nat Nat");
    story.start(Role::Node).unwrap();
}

/// HNS that needs a minute and a half for the vSwitch, and does not answer meanwhile (WSL issue 40246).
#[test]
fn a_vswitch_that_takes_hns_90_s_comes_up() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.switch_seconds = 90);
    let begun = story.node.now();
    story.start(Role::Node).unwrap();
    assert_eq!(story.networks(), "Calico Overlay 4096, External Overlay 9999, nat Nat");
    let took = story.node.now().duration_since(begun).as_secs();
    assert!(took >= 95, "{took}");
}

/// HNS is busy before CalicoNode asks it anything: with another product's vSwitch, right after the boot.
#[test]
fn hns_that_does_not_answer_the_first_request_is_asked_again() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.hns_busy = 200);
    story.start(Role::Node).unwrap();

    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.hns_busy = 1_000_000);
    let error = story.start(Role::Node).unwrap_err();
    assert_eq!(Fault::id_of(&error), "HnsStuck");
}

#[test]
fn hns_is_asked_once_a_second_while_it_creates_a_vswitch() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.adapters[0].settle_seconds = 60);
    let noted = SandboxFaults::parse("get network External=noted").unwrap();
    let root = story.node.root().to_owned();
    story.node = SandboxNode::open(&root).unwrap().with_faults(noted.node);
    story.start(Role::Node).unwrap();
    let asked = fs::read_to_string(root.join(".sandbox").join("calls")).unwrap().lines().count();
    assert!((60..=75).contains(&asked), "{asked}");
}

/// With two adapters, the other one may have its address first; HNS would create the vSwitch there.
#[test]
fn the_adapter_that_had_the_address_is_awaited_before_any_other() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.edit(|model| {
        model.boot_id = "boot-2".into();
        model.networks.retain(|name, _| name.as_str() == "nat");
        model.adapters.retain(|adapter| !adapter.name.starts_with("vEthernet"));
        let mut lab = model.adapters[0].clone();
        (lab.name, lab.addresses, lab.arriving) = ("Lab".into(), vec!["10.99.0.9/24".parse().unwrap()], None);
        model.adapters.insert(0, lab);
        let ethernet = &mut model.adapters[1];
        ethernet.arriving = Some(Arriving {
            in_seconds: 20,
            addresses: vec!["10.20.0.21/24".parse().unwrap()],
            gateway: Some([10, 20, 0, 1].into()),
        });
        (ethernet.addresses, ethernet.gateway) = (Vec::new(), None);
    });
    story.start(Role::Node).unwrap();
    let Some(State::Network(external)) = story.node.get(&Id::Network("External".into())).unwrap() else { panic!() };
    assert_eq!(external.adapter.as_deref(), Some("Ethernet"));
}

/// Upstream's scripts spend 11 to 15 s in fixed sleeps and polls.
#[test]
fn only_the_time_to_detect_a_stable_vswitch_is_added_to_the_machines_own_time() {
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
        // 3 s to see that the vSwitch has settled, and a poll for each of the two waits.
        assert!(ours <= Duration::from_millis(3100), "{late} s, {settle} s: {ours:?}");
    }
}

/// On a clock that only the pauses of waits advance.
#[test]
fn no_wait_adds_more_than_50_ms_to_its_event() {
    for event_ms in [0, 1, 49, 50, 51, 999, 4321, 60_000] {
        let event = Duration::from_millis(event_ms);
        let mut story = Story::new(Backend::Vxlan);
        let clock = Rc::new(std::cell::Cell::new(Duration::ZERO));
        let now = clock.clone();
        story.meanwhile = Box::new(move |_, time| clock.set(time));
        story
            .context(|node, _, context| {
                wait(node, "an event", Duration::from_secs(90), context, |_, _| {
                    Ok(if now.get() >= event { Ok(()) } else { Err(Missing("it".into())) })
                })
            })
            .unwrap();
        let late = story.virtual_time - event.min(story.virtual_time);
        assert!(late <= Duration::from_millis(50) && story.virtual_time >= event, "{event:?}: {late:?}");
    }
}

#[test]
fn felix_starts_within_50_ms_of_node_startups_end() {
    let mut story = Story::new(Backend::Vxlan);
    let mark = State::RegValue(RegValue::String("boot-1".into()));
    story.meanwhile = Box::new(move |node, time| {
        let says = |phase| {
            let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
            calico_node_runs(&mut SandboxNode::open(&root).unwrap(), phase);
        };
        if time == Duration::from_millis(7300) {
            says(Phase::Preparing);
            node.put(&startup::boot_id(), Some(&mark)).unwrap();
        } else if time == Duration::from_millis(9500) {
            says(Phase::Running);
        }
    });
    story.start(Role::Felix).unwrap();
    let waited = ["CalicoNode to bring up the network", "Calico's node startup in CalicoNode"];
    assert_eq!(story.waited_for(), waited, "the mark is not enough: startup follows it");
    assert!(story.virtual_time <= Duration::from_millis(9550), "{:?}", story.virtual_time);
}

#[test]
fn every_wait_ends_when_the_service_stops() {
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
fn felix_and_confd_wait_for_this_boots_bring_up() {
    let mut story = Story::new(Backend::Vxlan);
    insta::assert_snapshot!(story.start(Role::Felix).unwrap_err(), @"waited 900 s for CalicoNode to bring up the network: the service CalicoNode does not run");
    story.start(Role::Node).unwrap();
    calico_node_runs(&mut story.node, Phase::Preparing);
    insta::assert_snapshot!(story.start(Role::Felix).unwrap_err(), @"waited 600 s for Calico's node startup in CalicoNode: it has not started");
    calico_node_runs(&mut story.node, Phase::Running);
    assert_eq!(story.start(Role::Felix).unwrap().as_ref(), Some(&story.config.felix));
    insta::assert_snapshot!(story.start(Role::Confd).unwrap_err(), @"find confd's command: the backend vxlan has no confd");
    story.edit(|model| model.boot_id = "boot-2".into());
    assert!(story.start(Role::Felix).is_err());
}

/// The source VIP in the file that kube-proxy reads.
fn source_vip(story: &Story) -> Option<String> {
    let path = WinPath::known(crate::paths::kubernetes::KUBE_PROXY_EFFECTIVE);
    crate::calico::kube_proxy::source_vip_in(&fs::read_to_string(story.node.disk(&path)).unwrap())
}

fn host_endpoint_has(story: &mut Story, ip: [u8; 4]) {
    let endpoint = Endpoint::new(ip.into(), "00-15-5D-00-00-02", None);
    story.edit(|model| {
        let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
        network.endpoints.insert(Name::new("Calico_ep"), endpoint);
    });
}

/// Node startup waits for the Node that kubelet creates, and creates the endpoint whose address is kube-proxy's source VIP.
#[test]
fn after_each_boot_kubelet_waits_for_the_network_and_kube_proxy_for_node_startup() {
    let mut story = Story::new(Backend::Vxlan);
    for role in [Role::Kubelet, Role::KubeProxy] {
        story.config.others.insert(role.word().into(), Some(story.config.felix.clone()));
    }
    let config = b"kind: KubeProxyConfiguration\nwinkernel: {networkName: Calico, sourceVip: ''}\n";
    let path = WinPath::known(crate::paths::kubernetes::KUBE_PROXY_CONFIG);
    story.node.save(&path, config, Access::Inherited).unwrap();
    for (boot, vip) in [("boot-1", [192, 168, 0, 2]), ("boot-2", [192, 168, 0, 66])] {
        story.edit(|model| model.boot_id = boot.into());
        for role in [Role::Kubelet, Role::KubeProxy] {
            let error = story.start(role).unwrap_err().to_string();
            assert!(error.starts_with("waited 900 s for CalicoNode to bring up the network: "), "{boot}: {error}");
        }
        story.start(Role::Node).unwrap();
        calico_node_runs(&mut story.node, Phase::Preparing);
        assert!(story.start(Role::Kubelet).unwrap().is_some(), "{boot}");
        let error = story.start(Role::KubeProxy).unwrap_err().to_string();
        assert_eq!(error, "waited 600 s for Calico's node startup in CalicoNode: it has not started", "{boot}");
        host_endpoint_has(&mut story, vip);
        calico_node_runs(&mut story.node, Phase::Running);
        assert!(story.start(Role::KubeProxy).unwrap().is_some(), "{boot}");
        assert_eq!(source_vip(&story), Some(std::net::Ipv4Addr::from(vip).to_string()), "{boot}");
    }
}
