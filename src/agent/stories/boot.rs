//! What a boot does to the network, and what it does not.

use super::*;

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
        let calico = model.networks.get_mut(&Name::new("Calico")).unwrap();
        calico.vsid = Some(7777);
        // Kept over the boot, or made by a runtime that was faster than this agent.
        let endpoint = Endpoint {
            ip: [192, 168, 20, 70].into(),
            mac: "0E-2A-C0-A8-14-46".into(),
            remote: false,
            provider_address: None,
            container: Some("3f2c".into()),
            policies: Vec::new(),
        };
        calico.endpoints.insert(Name::new("web-1"), endpoint);
    });
    story.start(Role::Node).unwrap();
    assert_eq!(story.networks(), before);
    let removed: Vec<&Event> =
        story.events.iter().filter(|e| matches!(e, Event::Log { message } if message.contains("removed"))).collect();
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
