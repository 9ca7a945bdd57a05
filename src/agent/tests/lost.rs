//! What a new vSwitch removes from the machine, and how it is restored.

use super::*;

/// Defect B28: the route is added because the config says so, whatever a metadata service answers.
#[test]
fn b28_the_metadata_route_is_added_if_configured() {
    for asked in [false, true] {
        let mut story = Story::new(Backend::Vxlan);
        story.config.metadata_route = asked;
        story.start(Role::Node).unwrap();
        assert_eq!(story.metadata_route().as_deref(), asked.then_some("vEthernet (Ethernet)"));
    }
}

#[test]
fn every_route_to_a_cloud_that_the_vswitch_removed_is_restored() {
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
        assert_eq!(interface, "vEthernet (Ethernet)", "{id}");
        *interface = "Ethernet".into();
    }
    assert_eq!(after, before);
    assert!(NetworkBackup::load(&story.node).unwrap().unwrap().restored);
}

/// Defect B28 again: nor does it matter what removes the route while the service runs.
#[test]
fn a_route_that_vanishes_later_is_restored_and_nothing_else_changes() {
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
            message: "route 169.254.169.254/32 is restored on vEthernet (Ethernet)",
        },
    ]
    "#);
}

/// The address is on the vSwitch, and the default route is lost.
#[test]
fn a_static_gateway_that_the_vswitch_lost_alone_is_restored() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.adapters[0].dhcp = false);
    let before = story.node.model().unwrap().adapters[0].ip_config();
    story.meanwhile = Box::new(|node, time| {
        if time < Duration::from_secs(4) {
            let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
            let lost = |model: &mut Model| {
                for adapter in model.adapters.iter_mut().filter(|adapter| adapter.name.starts_with("vEthernet (Eth")) {
                    adapter.gateway = None;
                    if let Some(arriving) = &mut adapter.arriving {
                        arriving.gateway = None;
                    }
                }
                Ok(())
            };
            SandboxNode::open(&root).unwrap().edit(lost).unwrap();
        }
    });
    story.start(Role::Node).unwrap();
    story.has_again(&before);
}

/// microsoft/SDN issue 498: the vSwitch comes up with DHCP and the static address is lost.
#[test]
fn a_static_address_that_the_vswitch_lost_is_restored() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| (model.adapters[0].dhcp, model.adapters[0].dns) = (false, vec![[10, 20, 0, 2].into()]));
    let before = story.node.model().unwrap().adapters[0].ip_config();
    story.loses_its_address();
    story.start(Role::Node).unwrap();
    story.has_again(&before);
    assert!(story.events.iter().any(|e| matches!(e, Event::Warning { id: "StaticAddressRestored", .. })));
}

/// calico issue 4631: the restored address was in the active store only, and the vSwitch that Windows creates at
/// the boot has DHCP.
#[test]
fn a_restored_static_address_outlives_the_boot() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.adapters[0].dhcp = false);
    let before = story.node.model().unwrap().adapters[0].ip_config();
    story.loses_its_address();
    story.start(Role::Node).unwrap();
    story.has_again(&before);
    for lease in ["169.254.21.21/16", "10.20.0.77/24"] {
        story.edit(|model| {
            model.boot_id = format!("boot-with-{lease}");
            let host = model.adapters.iter_mut().find(|adapter| adapter.name.starts_with("vEthernet (Eth")).unwrap();
            (host.dhcp, host.addresses, host.gateway) = (true, vec![lease.parse().unwrap()], None);
            model.adapters[0].dhcp = true;
        });
        story.loses_its_address();
        story.start(Role::Node).unwrap();
        story.has_again(&before);
    }
}

#[test]
fn what_an_administrator_configures_while_the_service_runs_is_kept() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| model.adapters[0].dhcp = false);
    let mut upkeep = story.bring_up().unwrap().unwrap();
    let lease: crate::values::Cidr = "10.20.0.88/24".parse().unwrap();
    story.edit(|model| {
        let host = model.adapters.iter_mut().find(|adapter| adapter.name.starts_with("vEthernet (Eth")).unwrap();
        (host.dhcp, host.addresses) = (true, vec![lease]);
    });
    let saved = |story: &Story| NetworkBackup::load(&story.node).unwrap().unwrap().adapters["Ethernet"].clone();
    for _ in 0..5 {
        upkeep.look(&mut story.node, &mut |event| panic!("{event:?}"));
    }
    assert!(!saved(&story).dhcp, "it may be only temporary");
    for _ in 0..10 {
        upkeep.look(&mut story.node, &mut |_| ());
    }
    assert_eq!((saved(&story).dhcp, saved(&story).addresses), (true, vec![lease]));
}
