//! What a new vSwitch takes from the machine, and how it comes back.

use super::*;

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

/// The address stays on the vSwitch, and the default route is lost.
#[test]
fn a_static_gateway_that_the_vswitch_lost_alone_is_put_back() {
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
fn a_static_address_that_the_vswitch_lost_is_put_back() {
    let mut story = Story::new(Backend::Vxlan);
    story.edit(|model| (model.adapters[0].dhcp, model.adapters[0].dns) = (false, vec![[10, 20, 0, 2].into()]));
    let before = story.node.model().unwrap().adapters[0].ip_config();
    story.loses_its_address();
    story.start(Role::Node).unwrap();
    story.has_again(&before);
    assert!(story.events.iter().any(|e| matches!(e, Event::Warning { id: "StaticAddressRestored", .. })));
}
