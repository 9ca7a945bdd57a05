//! HNS networks, routes, firewall rules and adapters.
//!
//! On the machine these stories change its network, so they run there only with the test DLLs in place of Windows' own
//! (`tests/windows/shims`), which keep their state in `C:\test`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calicoctl_win::fault::{Exit, Fault};
use calicoctl_win::item::{FirewallRule, Id, IpConfig, Network, NetworkKind, State};
use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::node::sandbox::model::{Endpoint, Name};
use calicoctl_win::node::{Listing, Node};
use calicoctl_win::values::WinPath;
use serde_json::Value;

use crate::nodes::on_each;
use crate::services::until;

/// Runs a story on each node, each time on a fresh Windows Server with one adapter that has
/// 10.20.0.21 from DHCP, and with another product's network `nat`.
fn on_each_network(story: impl Fn(&mut dyn Node)) {
    on_each(|node| {
        if let Some(test) = test_dir(node) {
            if !test.join("adapters").exists() {
                println!("left out: the test DLLs are not there");
                return;
            }
            for file in
                ["hns.endpoints", "hns.policylists", "hns.faults", "settings", "firewall", "hns.late", "adapters.times"]
            {
                drop(fs::remove_file(test.join(file)));
            }
            let ethernet = "7\tEthernet\t00-15-5D-0A-00-15\t1\tauto\tvmxnet3\t10.20.0.21/24\t0\n";
            fs::write(test.join("adapters"), ethernet).unwrap();
            fs::write(test.join("routes"), "0.0.0.0/0\t7\t10.20.0.1\t0\n").unwrap();
            let nat = r#"{"ID":"5E3A0C64-2D18-4C4F-9AD5-A78DD09CDD49","Name":"nat","Type":"nat","Subnets":[{"AddressPrefix":"172.20.0.0/20"}]}"#;
            fs::write(test.join("hns.networks"), format!("{nat}\n")).unwrap();
        }
        story(node);
    });
}

/// The folder with the state of the test DLLs; none on a sandbox.
fn test_dir(node: &dyn Node) -> Option<PathBuf> {
    let dir = node.disk(&WinPath::known(r"C:\test"));
    (dir == Path::new(r"C:\test")).then_some(dir)
}

/// Changes a sandbox without the engine.
fn edit(node: &dyn Node, change: impl FnOnce(&mut calicoctl_win::node::sandbox::model::Model)) {
    let root = node.disk(&WinPath::known(r"C:\"));
    let mut sandbox = SandboxNode::open(root.parent().unwrap()).unwrap();
    sandbox
        .edit(|model| {
            change(model);
            Ok(())
        })
        .unwrap();
}

fn network(name: &str) -> Id {
    Id::Network(name.into())
}

fn overlay(prefix: &str, vsid: u32) -> Network {
    Network {
        kind: NetworkKind::Overlay,
        subnet: Some(prefix.parse().unwrap()),
        gateway: None,
        vsid: Some(vsid),
        adapter: Some("Ethernet".into()),
        management_ip: None,
    }
}

fn external() -> State {
    State::Network(overlay("192.168.255.0/30", 9999))
}

fn fault(result: anyhow::Result<impl std::fmt::Debug>) -> (&'static str, Exit, String) {
    let error = result.unwrap_err();
    let fault = Fault::of(&error).unwrap_or_else(|| panic!("no fault: {error:#}"));
    (fault.id, fault.exit, fault.what.clone())
}

fn adapter(node: &dyn Node, name: &str) -> Option<IpConfig> {
    match node.get(&Id::Adapter(name.into())).unwrap() {
        Some(State::Adapter(config)) => Some(config),
        None => None,
        other => panic!("{other:?}"),
    }
}

/// Whether an adapter has the machine's address and gateway.
fn is_reached_by(node: &dyn Node, name: &str) -> bool {
    adapter(node, name).is_some_and(|config| {
        config.addresses == ["10.20.0.21/24".parse().unwrap()] && config.gateway == Some("10.20.0.1".parse().unwrap())
    })
}

/// A management IP arrives with the vSwitch's address, which may take a while.
fn management_ip(node: &mut dyn Node, id: &Id) -> String {
    for _ in 0..100 {
        if let Some(State::Network(Network { management_ip: Some(ip), .. })) = node.get(id).unwrap() {
            return ip.to_string();
        }
        node.pause(Duration::from_millis(100));
    }
    panic!("no management IP of {id} in time");
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_network_is_created_once_and_found_in_any_case() {
    on_each_network(|node| {
        let id = network("External");
        assert_eq!(node.get(&id).unwrap(), None);
        node.put(&id, None).unwrap();
        node.put(&id, Some(&external())).unwrap();
        node.put(&id, Some(&external())).unwrap();
        let there = node.get(&network("EXTERNAL")).unwrap().unwrap();
        assert!(there.satisfies(&external()), "{there:?}");
        let names: Vec<Id> = node.list(Listing::Networks).unwrap().into_iter().map(|(id, _)| id).collect();
        assert!(names.contains(&id) && names.contains(&network("nat")) && names.len() == 2, "{names:?}");
        assert_eq!(management_ip(node, &id), "10.20.0.21");
        assert!(is_reached_by(node, "vEthernet (Ethernet)"));

        // A second network uses the same vSwitch, and the vSwitch is kept until the last one is deleted.
        let calico = network("Calico");
        node.put(&calico, Some(&State::Network(overlay("10.244.1.0/26", 4096)))).unwrap();
        assert_eq!(management_ip(node, &calico), "10.20.0.21");
        node.put(&id, None).unwrap();
        assert!(is_reached_by(node, "vEthernet (Ethernet)"));
        node.put(&calico, None).unwrap();
        assert_eq!(node.get(&calico).unwrap(), None);
        assert!(is_reached_by(node, "Ethernet") && adapter(node, "vEthernet (Ethernet)").is_none());
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn b11_a_network_with_another_vsid_is_different() {
    on_each_network(|node| {
        let id = network("Calico");
        let with = |vsid| State::Network(overlay("10.244.1.0/26", vsid));
        node.put(&id, Some(&with(4096))).unwrap();
        let there = node.get(&id).unwrap().unwrap();
        assert!(there.satisfies(&with(4096)) && !there.satisfies(&with(5000)));
        assert_eq!(fault(node.put(&id, Some(&with(5000)))).0, "HnsNetworkExists");
        assert!(node.get(&id).unwrap().unwrap().satisfies(&with(4096)));
        node.put(&id, None).unwrap();
        node.put(&id, Some(&with(5000))).unwrap();
        assert!(node.get(&id).unwrap().unwrap().satisfies(&with(5000)));
        node.put(&id, None).unwrap();
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn b13_networks_of_other_products_are_never_changed() {
    on_each_network(|node| {
        let nat = node.get(&network("nat")).unwrap();
        assert!(nat.is_some());
        let (id, exit, _) = fault(node.put(&network("nat"), None));
        assert_eq!((id, exit), ("ForeignNetwork", Exit::Conflict));
        node.put(&network("External"), Some(&external())).unwrap();
        node.put(&network("External"), None).unwrap();
        until(node, "the adapter to be back", |node| is_reached_by(node, "Ethernet"));
        assert_eq!(node.get(&network("nat")).unwrap(), nat);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_missing_adapter_is_refused_with_the_existing_ones() {
    on_each_network(|node| {
        let wanted = Network { adapter: Some("Ethernet 2".into()), ..overlay("192.168.255.0/30", 9999) };
        let (id, _, what) = fault(node.put(&network("External"), Some(&State::Network(wanted))));
        assert_eq!(id, "HnsAdapterNotFound");
        assert!(what.contains("create HNS network External on adapter `Ethernet 2`; there are: Ethernet"), "{what}");
        assert_eq!(node.get(&network("External")).unwrap(), None);
        assert!(is_reached_by(node, "Ethernet"));
    });
}

/// A pod on the sandbox's network Calico.
fn attach_web(node: &mut dyn Node, policies: Vec<Value>) {
    edit(node, |model| {
        let web = Endpoint {
            ip: "10.244.1.5".parse().unwrap(),
            mac: "0E-2A-0A-F4-01-05".into(),
            remote: false,
            provider_address: None,
            container: Some("3f2c".into()),
            policies,
            ruled_in_seconds: None,
        };
        model.networks.get_mut(&Name::new("Calico")).unwrap().endpoints.insert(Name::new("web"), web);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_network_with_pods_is_kept_and_the_pods_are_named() {
    on_each_network(|node| {
        let id = network("Calico");
        node.put(&id, Some(&State::Network(overlay("10.244.1.0/26", 4096)))).unwrap();
        match test_dir(node) {
            Some(test) => {
                let networks = fs::read_to_string(test.join("hns.networks")).unwrap();
                let calico = networks.lines().find(|line| line.contains("\"Calico\"")).unwrap();
                let guid = &calico.split("\"ID\":\"").nth(1).unwrap()[..36];
                let web = format!(
                    r#"{{"ID":"e1","Name":"web","VirtualNetwork":"{guid}","State":2,"SharedContainers":["3f2c"]}}"#
                );
                fs::write(test.join("hns.endpoints"), web).unwrap();
            }
            None => attach_web(node, Vec::new()),
        }
        let (fault, _, what) = fault(node.put(&id, None));
        assert_eq!(fault, "HnsNetworkInUse");
        assert!(what.contains("to which endpoints are attached: web of container 3f2c"), "{what}");
        assert!(node.get(&id).unwrap().is_some());
    });
}

/// projectcalico/calico 9120: version 1 of HNS shows a network that version 2 does not.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_network_that_version_2_of_hns_does_not_show_is_told_apart() {
    on_each_network(|node| {
        let id = network("Calico");
        let wanted = State::Network(overlay("10.244.1.0/26", 4096));
        let mut unseen = |blind: bool| {
            match test_dir(node) {
                Some(test) if blind => fs::write(test.join("hns.faults"), "0 1 POST /networks blind\n").unwrap(),
                _ => {}
            }
            node.put(&id, Some(&wanted)).unwrap();
            if blind && test_dir(node).is_none() {
                edit(node, |model| model.networks.get_mut(&Name::new("Calico")).unwrap().unseen_by_v2 = true);
            }
            assert!(node.get(&id).unwrap().is_some_and(|there| there.satisfies(&wanted)), "version 1 shows it");
            let unseen = node.network_details("Calico").unwrap().unwrap().unseen_by_v2;
            node.put(&id, None).unwrap();
            unseen
        };
        assert_eq!((unseen(true), unseen(false)), (true, false));
        assert_eq!(node.network_details("Calico").unwrap(), None);
    });
}

/// As Felix does: all at once, and other policies of the endpoint are kept.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn the_acls_of_an_endpoint_are_replaced_by_ones_that_allow_everything() {
    on_each_network(|node| {
        node.put(&network("Calico"), Some(&State::Network(overlay("10.244.1.0/26", 4096)))).unwrap();
        let policies = r#"[{"Type":"OutBoundNAT","Exceptions":["10.96.0.0/12"]},{"Type":"ACL","Protocol":256,"Action":"Block","Direction":"In","RuleType":"Switch","Priority":65500},{"Type":"ACL","Protocol":6,"Action":"Allow","Direction":"In","LocalPorts":"80","RuleType":"Switch","Priority":1000}]"#;
        match test_dir(node) {
            Some(test) => {
                let web =
                    format!(r#"{{"ID":"e1","Name":"web","State":2,"Policies":{policies},"IPAddress":"10.244.1.5"}}"#);
                fs::write(test.join("hns.endpoints"), web).unwrap();
            }
            None => attach_web(node, serde_json::from_str(policies).unwrap()),
        }
        let seen =
            |node: &dyn Node| node.endpoints().unwrap().into_iter().find(|endpoint| endpoint.name == "web").unwrap();
        let before = seen(node);
        assert_eq!((before.acls.len(), before.is_ruled()), (2, true));
        node.let_all_through(&before.id).unwrap();
        let after = seen(node);
        assert_eq!((after.acls.len(), after.is_ruled(), after.ip), (2, false, before.ip), "{after:?}");
        if let Some(test) = test_dir(node) {
            let text = fs::read_to_string(test.join("hns.endpoints")).unwrap();
            assert!(text.contains("OutBoundNAT") && !text.contains("Block"), "{text}");
        }
        // A missing one has none.
        node.let_all_through("e2").unwrap();
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_route_is_added_changed_found_and_deleted() {
    on_each_network(|node| {
        let id = Id::Route("169.254.169.254/32".parse().unwrap());
        let route =
            |metric| State::Route { interface: "Ethernet".into(), next_hop: "0.0.0.0".parse().unwrap(), metric };
        assert_eq!(node.get(&id).unwrap(), None);
        node.put(&id, None).unwrap();
        for metric in [256, 256, 5] {
            node.put(&id, Some(&route(metric))).unwrap();
            assert_eq!(node.get(&id).unwrap(), Some(route(metric)));
        }
        let listed = node.list(Listing::Routes).unwrap();
        assert_eq!(listed.iter().filter(|(have, _)| *have == id).count(), 1, "{listed:?}");
        // The route by another hop is the same item.
        let by = State::Route { interface: "Ethernet".into(), next_hop: "10.20.0.7".parse().unwrap(), metric: 5 };
        node.put(&id, Some(&by)).unwrap();
        assert_eq!(node.get(&id).unwrap(), Some(by));
        let elsewhere = State::Route { interface: "Wi-Fi".into(), next_hop: "0.0.0.0".parse().unwrap(), metric: 5 };
        assert_eq!(fault(node.put(&id, Some(&elsewhere))).0, "NotFound");

        // A new vSwitch removes the adapter's link-local routes.
        node.put(&id, Some(&route(5))).unwrap();
        node.put(&network("External"), Some(&external())).unwrap();
        assert_eq!(node.get(&id).unwrap(), None);
        node.put(&network("External"), None).unwrap();
        until(node, "the adapter to be back", |node| is_reached_by(node, "Ethernet"));
        node.put(&id, Some(&route(5))).unwrap();
        node.put(&id, None).unwrap();
        assert_eq!(node.get(&id).unwrap(), None);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn b31_a_firewall_rule_exists_once_by_either_name_and_is_removed() {
    on_each_network(|node| {
        let rule = |name: &str, group: &str| FirewallRule {
            display_name: name.into(),
            group: group.into(),
            protocol: "UDP".into(),
            local_ports: "4789".into(),
            enabled: true,
            profiles: String::new(),
            remote_addresses: String::new(),
            edge_traversal: false,
        };
        let id = Id::Firewall("Overlay Traffic 4789 UDP".into());
        let ours = State::Firewall(rule("Overlay Traffic 4789 UDP", "calicoctl-win"));
        let count = |node: &dyn Node| node.list(Listing::FirewallRules).unwrap().len();
        assert_eq!(node.get(&id).unwrap(), None);
        node.put(&id, None).unwrap();
        node.put(&id, Some(&ours)).unwrap();
        node.put(&id, Some(&ours)).unwrap();
        assert_eq!((node.get(&id).unwrap(), count(node)), (Some(ours.clone()), 1));
        node.put(&id, None).unwrap();
        assert_eq!((node.get(&id).unwrap(), count(node)), (None, 0));

        // rke2 created it with its own name: it is found, changed, and restored.
        let rke2 = Id::Firewall("OverlayTraffic4789UDP".into());
        let theirs = State::Firewall(rule("OverlayTraffic4789UDP", ""));
        node.put(&rke2, Some(&theirs)).unwrap();
        assert_eq!(node.get(&id).unwrap(), Some(theirs.clone()));
        node.put(&id, Some(&ours)).unwrap();
        assert_eq!((node.get(&rke2).unwrap(), count(node)), (Some(ours), 1));
        node.put(&id, Some(&theirs)).unwrap();
        assert_eq!((node.get(&rke2).unwrap(), count(node)), (Some(theirs), 1));

        // Another rule is independent.
        let kubectl = Id::Firewall("kubectl exec 10250".into());
        let exec = FirewallRule {
            display_name: "kubectl exec 10250".into(),
            protocol: "TCP".into(),
            local_ports: "10250".into(),
            ..rule("", "calicoctl-win")
        };
        node.put(&kubectl, Some(&State::Firewall(exec.clone()))).unwrap();
        node.put(&id, None).unwrap();
        assert_eq!((node.get(&kubectl).unwrap(), count(node)), (Some(State::Firewall(exec)), 1));
        node.put(&kubectl, None).unwrap();
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn what_a_vswitch_lost_of_an_adapter_is_restored() {
    on_each_network(|node| {
        let id = Id::Adapter("Ethernet".into());
        let all = node.list(Listing::Adapters).unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(is_reached_by(node, "ethernet"));
        assert_eq!(adapter(node, "Wi-Fi"), None);
        let lost = IpConfig { dhcp: false, addresses: Vec::new(), gateway: None, dns: Vec::new(), metric: None };
        assert_eq!(fault(node.put(&Id::Adapter("Wi-Fi".into()), Some(&State::Adapter(lost)))).0, "NotFound");

        // With DHCP only the servers and the metric are set: the rest comes from the lease.
        let before = adapter(node, "Ethernet").unwrap();
        let by_hand = IpConfig {
            dns: vec!["10.20.0.2".parse().unwrap(), "10.20.0.3".parse().unwrap()],
            metric: Some(15),
            ..before.clone()
        };
        let asked = IpConfig { addresses: vec!["10.20.0.99/24".parse().unwrap()], ..by_hand.clone() };
        node.put(&id, Some(&State::Adapter(asked))).unwrap();
        assert_eq!(adapter(node, "Ethernet"), Some(by_hand));
        node.put(&id, Some(&State::Adapter(before.clone()))).unwrap();
        assert_eq!(adapter(node, "Ethernet"), Some(before));

        // A static configuration that lost its address and its gateway.
        match test_dir(node) {
            Some(test) => {
                let ethernet = "7\tEthernet\t00-15-5D-0A-00-15\t0\t20\tvmxnet3\t\t0\n";
                fs::write(test.join("adapters"), ethernet).unwrap();
                fs::write(test.join("routes"), "").unwrap();
            }
            None => edit(node, |model| {
                let ethernet = &mut model.adapters[0];
                (ethernet.dhcp, ethernet.gateway, ethernet.metric) = (false, None, Some(20));
                ethernet.addresses.clear();
            }),
        }
        let kept = IpConfig {
            dhcp: false,
            addresses: vec!["10.20.0.21/24".parse().unwrap()],
            gateway: Some("10.20.0.1".parse().unwrap()),
            dns: vec!["10.20.0.2".parse().unwrap()],
            metric: Some(20),
        };
        for _ in 0..2 {
            node.put(&id, Some(&State::Adapter(kept.clone()))).unwrap();
            assert_eq!(adapter(node, "Ethernet"), Some(kept.clone()));
        }
    });
}

/// Other nodes send the traffic for pods here to that MAC.
#[test]
fn an_overlay_network_has_the_mac_of_its_router() {
    on_each_network(|node| {
        assert_eq!(node.network_details("External").unwrap(), None);
        node.put(&network("External"), Some(&external())).unwrap();
        let details = node.network_details("external").unwrap().unwrap();
        let mac = details.dr_mac.unwrap();
        assert!(mac.len() == 17 && mac.starts_with("00:15:5d:") && mac == mac.to_lowercase(), "{mac}");
        assert!(details.endpoints.is_empty());
        assert_eq!(node.network_details("nat").unwrap().unwrap().dr_mac, None);
    });
}
