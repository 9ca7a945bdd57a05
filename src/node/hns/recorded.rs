//! What real HNS answered (`tests/fixtures/hns`, with where each was found) goes through the readers.

use super::*;

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

macro_rules! recorded {
    ($name:literal) => {
        read(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hns/", $name)))
    };
}

#[test]
fn a_whole_answer_of_server_2019_is_read() {
    let text = recorded!("v1-networks.9.2.json").to_string();
    let found = networks(&answer(0, &text).unwrap());
    let [external, nat] = &found[..] else { panic!("{found:?}") };
    insta::assert_snapshot!(serde_json::to_string(&external.network).unwrap(), @r#"{"kind":"Overlay","subnet":"192.168.255.0/30","gateway":"192.168.255.1","vsid":9999,"managementIp":"10.20.0.21"}"#);
    insta::assert_snapshot!(serde_json::to_string(&nat.network).unwrap(), @r#"{"kind":"NAT","subnet":"172.29.64.0/20","gateway":"172.29.64.1"}"#);
    assert_eq!((external.kind.as_str(), external.dr_mac.as_deref()), ("overlay", Some("00:15:5d:fc:6e:b1")));
}

#[test]
fn networks_of_other_builds_are_read() {
    let list = json!([
        recorded!("v1-network-overlay.15.0.partial.json"),
        recorded!("v1-network-Calico-overlay.9.5.partial.json"),
        recorded!("v2-query-network-transparent.16.0.json"),
    ]);
    let found: Vec<String> =
        networks(&list).iter().map(|found| serde_json::to_string(&found.network).unwrap()).collect();
    insta::assert_snapshot!(found.join("\n"), @r#"
    {"kind":"Overlay","subnet":"192.168.255.0/30","gateway":"192.168.255.1","vsid":9999,"adapter":"Ethernet 2","managementIp":"10.20.0.21"}
    {"kind":"Overlay","subnet":"10.244.7.0/26","gateway":"10.244.7.1","vsid":4096,"managementIp":"10.20.0.21"}
    {"kind":"Transparent"}
    "#);
    let made = answer(0, &recorded!("v1-post-network-nat.13.3.json").to_string()).unwrap();
    assert_eq!(networks(&json!([made]))[0].kind, "nat");
}

#[test]
fn endpoints_are_told_apart() {
    let remote = recorded!("v1-endpoint-overlay-remote.5.1.json");
    let mut pod = recorded!("v1-endpoint-pod.9.5.partial.json");
    // The record ends before them.
    pod["VirtualNetworkName"] = json!("Calico");
    pod["State"] = json!(3);
    let found = endpoints(&json!([remote, pod]));
    let [remote, pod] = &found[..] else { panic!("{found:?}") };
    assert_eq!((remote.remote, remote.is_a_pods(), remote.state), (true, false, Some(1)));
    assert_eq!((pod.remote, pod.is_a_pods(), pod.is_ruled(), pod.acls.len()), (false, true, true, 1));
    assert!(pod.is_closed() && !remote.is_closed());
    assert!(pod.is_leaked(&BTreeSet::new()) && !remote.is_leaked(&BTreeSet::new()));
}

#[test]
fn a_load_balancer_goes_before_the_endpoint_that_it_refers_to() {
    let lists = json!([recorded!("v1-policylist-elb-dsr.15.0.partial.json")]);
    let mut pod = recorded!("v1-endpoint-pod.9.5.partial.json");
    let calico = &networks(&json!([recorded!("v1-network-Calico-overlay.9.5.partial.json")]))[0];
    pod["VirtualNetwork"] = json!(calico.id.to_lowercase());
    let paths = removal(calico, &endpoints(&json!([pod])), &lists, Pods::Gone, With::Own).unwrap();
    insta::assert_snapshot!(paths.join("\n"), @"
    /policylists/4E6F8091-B2C3-4D5E-9F60-718293A4B5C6
    /endpoints/6D8E0F12-3A4B-4C5D-9E6F-708192A3B4C5
    /networks/5C0A7B1E-4D21-4F6B-8E0A-2B7C9D3E4F50
    ");
}
