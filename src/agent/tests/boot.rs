//! What a boot changes in the network, and what it does not.

use super::*;

#[test]
fn a_fresh_node_gets_its_bootstrap_network_and_a_mark() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    assert_eq!(story.networks(), "Calico Overlay 4096, External Overlay 9999, nat Nat");
    assert_eq!(story.waited_for(), ["the management IP of the HNS network External"]);
    assert!(story.events.iter().any(|event| matches!(event, Event::ConnectivityNotice { .. })));
    assert_eq!(story.node.get(&startup::boot_id()).unwrap(), Some(State::RegValue(RegValue::String("boot-1".into()))));
    assert_eq!(last_boot_time(&story), "1/2/2026 3:04:05 PM");
}

#[test]
fn a_restart_in_the_same_boot_only_runs_node_startup() {
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
fn after_a_reboot_only_calicos_networks_are_re_created() {
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
        // HNS's state of Calico's network after the boot cannot be trusted.
        model.networks.get_mut(&Name::new("External")).unwrap().management_ip = Some([10, 9, 9, 9].into());
        let calico = model.networks.get_mut(&Name::new("Calico")).unwrap();
        calico.vsid = Some(7777);
        // Kept over the boot, or created by a runtime that started before this agent.
        let endpoint = Endpoint::new([192, 168, 20, 70].into(), "0E-2A-C0-A8-14-46", Some("3f2c".into()));
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
fn a_network_external_of_another_product_is_used_and_kept() {
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
fn another_backend_re_creates_external() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.node.put(&Id::Network("Calico".into()), None).unwrap();
    story.config.backend = Backend::WindowsBgp;
    let error = story.start(Role::Node).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the HNS network Calico is Overlay with VSID 4096 instead of L2Bridge",
        "the one that this story's node startup creates"
    );
    assert_eq!(story.networks(), "Calico Overlay 4096, External L2Bridge, nat Nat");
}

#[test]
fn policy_only_changes_no_network() {
    let mut story = Story::new(Backend::None);
    let adapters = story.node.facts().unwrap().adapters;
    story.start(Role::Node).unwrap();
    assert_eq!((story.networks(), story.runs), ("nat Nat".into(), 1));
    assert_eq!(story.node.facts().unwrap().adapters, adapters);
    assert!(story.node.get(&startup::boot_id()).unwrap().is_some());
}

fn last_boot_time(story: &Story) -> String {
    match story.node.get(&startup::last_boot_time()).unwrap() {
        Some(State::RegValue(RegValue::String(time))) => time,
        other => panic!("{other:?}"),
    }
}

/// Defect B12: the scripts compare a boot time as text, and mistake another clock, time zone or culture for a reboot.
#[test]
fn b12_another_clock_is_not_a_reboot() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    let networks = story.node.model().unwrap().networks;
    for booted in ["02.01.2026 03:04:05", "12/30/2031 11:59:59 PM"] {
        *story.boot_time.borrow_mut() = booted.into();
        story.start(Role::Node).unwrap();
        assert_eq!(story.node.model().unwrap().networks, networks);
    }
}

/// The power fails after the vSwitch was created, before anything was restored.
#[test]
fn after_a_crash_the_saved_settings_are_used() {
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
    assert!(!NetworkBackup::load(&story.node).unwrap().unwrap().restored);
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
