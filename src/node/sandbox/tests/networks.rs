//! HNS networks and what they do to the adapter.

use super::*;

#[test]
fn the_first_network_binds_the_adapter_and_the_last_releases_it() {
    let (_dir, mut node) = node();
    let external = Id::Network("External".into());
    let metadata = Id::Route("169.254.169.254/32".parse().unwrap());
    let on_link = State::Route { interface: "Ethernet".into(), next_hop: "0.0.0.0".parse().unwrap(), metric: 5 };
    node.put(&metadata, Some(&on_link)).unwrap();
    let before = node.facts().unwrap().adapters;
    let names = |node: &SandboxNode| -> Vec<String> {
        let addresses = |a: &crate::facts::Adapter| a.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        node.facts().unwrap().adapters.iter().map(|a| format!("{} {}", a.name, addresses(a).join(","))).collect()
    };
    node.put(&external, Some(&overlay("192.168.255.0/30", 9999))).unwrap();
    assert_eq!(names(&node), ["Ethernet ", "vEthernet (Ethernet) 169.254.21.21/16"]);
    assert_eq!(node.get(&metadata).unwrap(), None);
    let ip = |node: &SandboxNode, id: &Id| match node.get(id).unwrap() {
        Some(State::Network(network)) => network.management_ip,
        other => panic!("{other:?}"),
    };
    assert_eq!(ip(&node, &external), None);
    node.pause(Duration::from_secs(4));
    assert_eq!(ip(&node, &external), None);
    node.pause(Duration::from_secs(1));
    assert_eq!(ip(&node, &external), Some("10.20.0.21".parse().unwrap()));
    assert_eq!(names(&node), ["Ethernet ", "vEthernet (Ethernet) 10.20.0.21/24"]);

    // A second network uses the vSwitch and interrupts nothing.
    let calico = Id::Network("Calico".into());
    node.put(&calico, Some(&overlay("10.244.1.0/26", 5000))).unwrap();
    assert_eq!(ip(&node, &calico), Some("10.20.0.21".parse().unwrap()));
    let State::Network(network) = node.get(&calico).unwrap().unwrap() else { unreachable!() };
    assert_eq!((network.vsid, network.adapter.as_deref()), (Some(5000), Some("Ethernet")));
    node.put(&external, None).unwrap();
    assert_eq!(names(&node)[0], "Ethernet ");
    let then = node.now();
    node.put(&calico, None).unwrap();
    assert!(node.now().duration_since(then).as_secs() >= 5);
    assert_eq!(node.facts().unwrap().adapters, before);
    assert_eq!(node.list(Listing::Networks).unwrap().len(), 1, "nat is another's");
}

#[test]
fn hns_refuses_as_on_windows() {
    let (_dir, mut node) = node();
    let calico = Id::Network("Calico".into());
    let State::Network(mut wrong) = overlay("10.244.1.0/26", 4096) else { unreachable!() };
    wrong.adapter = Some("Ethernet 2".into());
    let mut tell = vec![said(node.put(&calico, Some(&State::Network(wrong))))];
    node.put(&calico, Some(&overlay("10.244.1.0/26", 4096))).unwrap();
    node.put(&calico, Some(&overlay("10.244.1.0/26", 4096))).unwrap();
    tell.push(said(node.put(&Id::Network("CALICO".into()), Some(&overlay("10.244.1.0/26", 5000)))));
    node.edit(|model| {
        let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
        let endpoint = model::Endpoint::new("10.244.1.5".parse().unwrap(), "0E-2A-0A-F4-01-05", Some("3f2c".into()));
        network.endpoints.insert(Name::new("web-1"), endpoint);
        Ok(())
    })
    .unwrap();
    tell.push(said(node.put(&calico, None)));
    // After a reboot no pod uses it: no container runs.
    let mut told = 0;
    let mut tell_of = |_: &mut dyn Node, lost: Vec<Endpoint>| {
        told += lost.len();
        Ok(())
    };
    let gone = node.remove_stale_networks(&|name, _| name == "Calico", &mut tell_of).unwrap();
    assert_eq!((gone, told), (vec!["Calico".to_owned()], 0));
    assert_eq!(node.get(&calico).unwrap(), None);
    node.edit(|model| {
        model.hns = None;
        Ok(())
    })
    .unwrap();
    tell.push(said(node.put(&Id::Network("x".into()), Some(&overlay("10.1.0.0/26", 4096)))));
    insta::assert_snapshot!(tell.join("\n"), @r#"
    HnsAdapterNotFound: create HNS network Calico on adapter `Ethernet 2`; there are: Ethernet (Windows error 0x803B0006: HNS does not find the adapter)
    HnsNetworkExists: create HNS network CALICO (Windows error 0x803B0010: HNS has a network of that name already)
    HnsNetworkInUse: delete HNS network Calico, to which endpoints are attached: web-1 of container 3f2c (Windows error 0x803B002C: HNS still has references to the network)
    HnsAvailable: the Host Networking Service does not answer
    "#);
}
