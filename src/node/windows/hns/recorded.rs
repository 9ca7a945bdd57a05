//! The test DLLs answer in the form of what real HNS answered (`tests/fixtures/hns`): every recorded key is there, with
//! its type, and no key that was never recorded.

use serde_json::json;

use super::*;
use crate::node::windows::testing::Machine;

macro_rules! recorded {
    ($name:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hns/", $name)))
            .unwrap()
    };
}

/// What the DLLs leave out: nothing of Calico, kubelet, kube-proxy or ours reads it.
const LEFT_OUT: [&str; 5] = [
    // The host's own adapter on a nat network, and a remote endpoint's entry in the tables of the vSwitch.
    "nat/Resources/Allocators/",
    "endpoint/Resources/Allocators/",
    // The number that HNS gives the nth nat network.
    "nat/Policies/VLAN",
    // For who made it so.
    "transparent/InterfaceConstraint",
    // A load balancer that is written to a vSwitch.
    "policylist/Resources/Allocators/",
];

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// What `has` has and `other` lacks, or has as another type. Items of a list are compared by their `Type`, or all with
/// the first.
fn lacks(place: &str, has: &Value, other: &Value, found: &mut Vec<String>) {
    if LEFT_OUT.iter().any(|left| place.starts_with(left)) {
        return;
    }
    if kind(has) != kind(other) {
        found.push(format!("{place} is {} and not {}", kind(other), kind(has)));
        return;
    }
    match (has, other) {
        (Value::Object(has), Value::Object(other)) => {
            for (key, value) in has {
                lacks(&format!("{place}/{key}"), value, other.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(has), Value::Array(other)) => {
            for item in has {
                let name = item["Type"].as_str().or(item["Tag"].as_str());
                let like =
                    other.iter().find(|one| name.is_none() || one["Type"].as_str().or(one["Tag"].as_str()) == name);
                let place = format!("{place}/{}", name.unwrap_or_default());
                lacks(&place, item, like.unwrap_or(&Value::Null), found);
            }
        }
        _ => {}
    }
}

fn asked(method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    call(method, path, body, CALL_LIMIT).unwrap().unwrap_or_else(|refusal| panic!("{method} {path}: {refusal:?}"))
}

/// One object by its id.
fn shown(kind: &str, id: &Value) -> Value {
    asked("GET", &format!("/{kind}/{}", id.as_str().unwrap()), &Value::Null)
}

/// What the DLLs show of each kind that was recorded, after the record.
fn pairs(machine: &Machine) -> Vec<(&'static str, Value, Value)> {
    let subnet = |prefix: &str, gateway: &str, vsid: u32| json!({ "AddressPrefix": prefix, "GatewayAddress": gateway, "Policies": [{ "Type": "VSID", "VSID": vsid }] });
    let overlay = |name: &str, subnet: Value| json!({ "Name": name, "Type": "Overlay", "Subnets": [subnet] });
    let mut bootstrap = overlay("External", subnet("192.168.255.0/30", "192.168.255.1", 9999));
    bootstrap["NetworkAdapterName"] = json!("Ethernet");
    let external = asked("POST", "/networks/", &bootstrap);
    let routes = json!([
        { "Type": "HostRoute" },
        { "Type": "RemoteSubnetRoute", "DestinationPrefix": "10.244.49.64/26", "IsolationId": 4096,
          "ProviderAddress": "10.20.0.31", "DistributedRouterMacAddress": "66-a5-cc-01-02-03" },
    ]);
    let mut calico = overlay("Calico", subnet("10.244.7.0/26", "10.244.7.1", 4096));
    calico["Policies"] = routes;
    let calico = asked("POST", "/networks/", &calico);
    let nat = json!({ "Name": "82cb", "Type": "nat",
        "Subnets": [{ "AddressPrefix": "172.29.16.0/20", "GatewayAddress": "172.29.16.1" }] });
    let nat = asked("POST", "/networks/", &nat);
    let transparent = asked("POST", "/networks/", &json!({ "Name": "switch", "Type": "Transparent" }));
    let remote = json!({ "VirtualNetwork": calico["ID"], "IPAddress": "10.244.7.9", "IsRemoteEndpoint": true,
        "MacAddress": "0E-2A-0a-f4-31-4d", "Name": "remote", "Policies": [{ "Type": "PA", "PA": "10.20.0.31" }] });
    let remote = asked("POST", "/endpoints/", &remote);
    // In the namespace of a container, as version 2 leaves it.
    let mut pod = recorded!("v1-endpoint-pod.9.5.partial.json");
    pod["VirtualNetwork"] = calico["ID"].clone();
    pod["State"] = json!(3);
    for added in ["ActivityId", "EncapOverhead", "GatewayAddress", "Health"] {
        pod.as_object_mut().unwrap().remove(added);
    }
    machine.write("hns.endpoints", &format!("{}{pod}\n", machine.read("hns.endpoints")));
    let list = json!({ "References": [format!("/endpoints/{}", pod["ID"].as_str().unwrap())], "Policies": [{
        "Type": "ELB", "ExternalPort": 80, "InternalPort": 80, "IsDSR": true, "Protocol": 6, "SourceVIP": "10.244.7.2",
        "VIPs": ["10.96.0.20"] }] });
    let list = asked("POST", "/policylists/", &list);
    vec![
        ("network", recorded!("v1-networks.9.2.json")["Output"][0].clone(), shown("networks", &external["ID"])),
        ("network", recorded!("v1-network-overlay.15.0.partial.json"), shown("networks", &external["ID"])),
        ("network", recorded!("v1-network-Calico-overlay.9.5.partial.json"), shown("networks", &calico["ID"])),
        ("nat", recorded!("v1-post-network-nat.13.3.json")["Output"].clone(), nat),
        ("transparent", recorded!("v2-query-network-transparent.16.0.json"), shown("networks", &transparent["ID"])),
        ("endpoint", recorded!("v1-endpoint-overlay-remote.5.1.json"), shown("endpoints", &remote["ID"])),
        ("endpoint", recorded!("v1-endpoint-pod.9.5.partial.json"), shown("endpoints", &pod["ID"])),
        ("policylist", recorded!("v1-policylist-elb-dsr.15.0.partial.json"), list),
    ]
}

#[test]
fn the_answers_of_the_test_dlls_have_the_recorded_keys_and_types_and_no_others() {
    let Some(machine) = Machine::new() else { return };
    let pairs = pairs(&machine);
    let mut found = Vec::new();
    for (kind, recorded, shown) in &pairs {
        lacks(kind, recorded, shown, &mut found);
        // What nobody ever saw HNS show of this kind.
        let known = |key: &str| pairs.iter().any(|(other, recorded, _)| other == kind && recorded.get(key).is_some());
        let made_up =
            shown.as_object().unwrap().keys().filter(|key| !known(key) && !SEEN_ELSEWHERE.contains(&key.as_str()));
        found.extend(made_up.map(|key| format!("{kind}/{key} is in no record")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Keys that are in a printed list of the same kind (`Get-HnsEndpoint`) and in no record here.
const SEEN_ELSEWHERE: [&str; 4] = [
    // Azure/AKS 1367 and the endpoints of Windows Server 2019 and 2022 have what networks have.
    "AdditionalParams",
    "Flags",
    "Health",
    "ManagementIP",
];
