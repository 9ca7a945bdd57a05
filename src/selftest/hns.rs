//! What HNS answers, and whether it has the form that this program reads.

use anyhow::Result;
use serde_json::Value;

use super::{Reach, Row, TestContext};
use crate::fault::Fault;
use crate::node::hns::{self, Reaction};
use crate::report::answer::Answer;
use crate::values::count;

const GROUP: &str = "hns";

pub const ROWS: &[Row] = &[
    Row {
        id: "HnsVersion",
        group: GROUP,
        asks: "HNS says its version, and it is 9.2 or later",
        needed_for: "whether VXLAN and Direct Server Return work is read from it",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: version,
    },
    Row {
        id: "HnsNetworks",
        group: GROUP,
        asks: "every network has the fields and types that this program reads: id, name, kind, subnets with VSID, \
               management IP, router MAC",
        needed_for: "a network with another VSID, kind or subnet is found, and only that is deleted",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: networks,
    },
    Row {
        id: "HnsNetworksByV2",
        group: GROUP,
        asks: "version 2 of HNS lists every network that version 1 lists",
        needed_for: "Calico, its CNI plugin and kube-proxy use a network by version 2",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: networks_by_v2,
    },
    Row {
        id: "HnsEndpoints",
        group: GROUP,
        asks: "every endpoint has the fields and types that this program reads: id, network, state, address, containers",
        needed_for: "endpoints of running pods are told from leaked ones before a network is deleted",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: endpoints,
    },
    Row {
        id: "HnsPolicyLists",
        group: GROUP,
        asks: "every policy list refers to endpoints by their paths",
        needed_for: "kube-proxy's lists that refer to a network's endpoints are deleted before it",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: policy_lists,
    },
    Row {
        id: "HnsErrorCodes",
        group: GROUP,
        asks: "HNS answers with the number for `not found` when it is asked for what does not exist",
        needed_for: "what is already deleted counts as deleted, and another error does not",
        bears_on_vni: true,
        reach: Reach::Reads,
        run: not_found,
    },
];

const NO_HNS: &str = "HNS is not installed";

/// The answer to a question; what the row says if there is none.
fn told(context: &mut TestContext<'_>, path: &str) -> Result<std::result::Result<Value, Answer>> {
    match context.ask_hns(path) {
        Ok(Ok(output)) => Ok(Ok(output)),
        Ok(Err(refusal)) => Ok(Err(Answer::Fails(format!("{:#}", refusal.fault(format!("ask HNS for {path}")))))),
        Err(error) if Fault::id_of(&error) == "HnsAvailable" => Ok(Err(Answer::Skipped(NO_HNS.into()))),
        Err(error) => Err(error),
    }
}

fn version(context: &mut TestContext<'_>) -> Result<Answer> {
    let output = match told(context, "/globals/version")? {
        Ok(output) => output,
        Err(answer) => return Ok(answer),
    };
    let Some(version) = hns::version(&output) else {
        return Answer::fails("its answer has no version");
    };
    let text = format!("{}.{}", version.major, version.minor);
    Answer::of((version.major, version.minor) >= (9, 2), text.clone(), text)
}

/// Asks for a list, and checks each object in it.
fn shapes(
    context: &mut TestContext<'_>,
    path: &str,
    noun: &str,
    wrong: fn(&Value) -> Option<String>,
) -> Result<Answer> {
    let output = match told(context, path)? {
        Ok(output) => output,
        Err(answer) => return Ok(answer),
    };
    let all = match &output {
        Value::Array(all) => all.as_slice(),
        Value::Null => &[],
        _ => return Answer::fails("its answer is no list"),
    };
    match all.iter().enumerate().find_map(|(at, object)| Some((at, wrong(object)?))) {
        Some((at, wrong)) => Answer::fails(format!("{noun} {} of {}: {wrong}", at + 1, all.len())),
        None => Answer::holds(count(all.len(), noun)),
    }
}

fn networks(context: &mut TestContext<'_>) -> Result<Answer> {
    shapes(context, "/networks/", "network", network)
}

fn networks_by_v2(context: &mut TestContext<'_>) -> Result<Answer> {
    let output = match told(context, "/networks/")? {
        Ok(output) => output,
        Err(answer) => return Ok(answer),
    };
    let names = output.as_array().into_iter().flatten().filter_map(|network| network["Name"].as_str());
    let (mut all, mut unseen) = (0, Vec::new());
    for name in names {
        let details = context.node.network_details(name);
        let details = context.note_stuck(details)?;
        all += 1;
        if details.is_some_and(|details| details.unseen_by_v2) {
            unseen.push(name);
        }
    }
    Answer::of(unseen.is_empty(), count(all, "network"), format!("it does not list {}", unseen.join(", ")))
}

fn network(network: &Value) -> Option<String> {
    texts(network, &["ID", "Name", "Type"], true)
        .or_else(|| texts(network, &["ManagementIP", "DrMacAddress", "NetworkAdapterName"], false))
        .or_else(|| each(network, "Subnets", subnet))
}

fn subnet(subnet: &Value) -> Option<String> {
    texts(subnet, &["AddressPrefix"], true)
        .or_else(|| texts(subnet, &["GatewayAddress"], false))
        .or_else(|| each(subnet, "Policies", policy))
}

fn policy(policy: &Value) -> Option<String> {
    let is_vsid = policy["Type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("VSID"));
    texts(policy, &["Type"], true).or_else(|| {
        let number = policy["VSID"].is_u64();
        (is_vsid && !number).then(|| format!("`VSID` is {}", of_type(&policy["VSID"])))
    })
}

fn endpoints(context: &mut TestContext<'_>) -> Result<Answer> {
    shapes(context, "/endpoints/", "endpoint", endpoint)
}

fn endpoint(endpoint: &Value) -> Option<String> {
    let state = &endpoint["State"];
    let containers = &endpoint["SharedContainers"];
    texts(endpoint, &["ID"], true)
        .or_else(|| texts(endpoint, &["Name", "VirtualNetwork", "VirtualNetworkName", "IPAddress"], false))
        .or_else(|| (!state.is_null() && !state.is_u64()).then(|| format!("`State` is {}", of_type(state))))
        .or_else(|| all_texts(containers, "SharedContainers"))
        .or_else(|| each(endpoint, "Policies", policy))
}

fn policy_lists(context: &mut TestContext<'_>) -> Result<Answer> {
    shapes(context, "/policylists/", "policy list", policy_list)
}

fn policy_list(list: &Value) -> Option<String> {
    texts(list, &["ID"], true).or_else(|| all_texts(&list["References"], "References"))
}

/// A network that nobody made.
const NOBODYS: &str = "/networks/00000000-ca11-4c07-8000-5e1f7e570000";

fn not_found(context: &mut TestContext<'_>) -> Result<Answer> {
    match context.ask_hns(NOBODYS) {
        Err(error) if Fault::id_of(&error) == "HnsAvailable" => Answer::skipped(NO_HNS),
        Err(error) => Err(error),
        Ok(Ok(_)) => Answer::fails("it answered without an error"),
        Ok(Err(refusal)) => {
            let number = refusal.code.map_or_else(|| "no number".into(), |code| format!("{code:#010X}"));
            Answer::of(refusal.on_delete() == Reaction::Gone, number.clone(), format!("its error is {number}"))
        }
    }
}

/// What is wrong with fields that are texts: `required`, or absent.
fn texts(object: &Value, keys: &[&str], required: bool) -> Option<String> {
    keys.iter().find_map(|key| match &object[*key] {
        Value::String(text) if required && text.is_empty() => Some(format!("`{key}` is empty")),
        Value::String(_) => None,
        Value::Null if !required => None,
        other => Some(format!("`{key}` is {}", of_type(other))),
    })
}

fn all_texts(list: &Value, key: &str) -> Option<String> {
    match list {
        Value::Null => None,
        Value::Array(all) => all.iter().find(|one| !one.is_string()).map(|one| format!("`{key}` has {}", of_type(one))),
        other => Some(format!("`{key}` is {}", of_type(other))),
    }
}

fn each(object: &Value, key: &str, wrong: fn(&Value) -> Option<String>) -> Option<String> {
    match &object[key] {
        Value::Null => None,
        Value::Array(all) => all.iter().find_map(wrong),
        other => Some(format!("`{key}` is {}", of_type(other))),
    }
}

const fn of_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// From recordings that others published, shortened: HNS 1.1 (docker/for-win#1126), 9.2 (an overlay network of
    /// Calico on Server 2019), 10.3 (moby#40345), 15.0 (Docker's Default Switch).
    #[test]
    fn what_real_versions_of_hns_say_has_the_form_that_is_read() {
        for recorded in [
            json!({"ComputedPolicies": [{}], "ID": "668370dc-a357-4859-a6a1-1f322b0a6028", "Name": "DockerNAT (1)",
                   "Policies": [], "Subnets": [{"AddressPrefix": "172.28.160.0/20"}], "Type": "Private"}),
            json!({"DrMacAddress": "00-15-5D-BB-6E-B1", "ID": "9B219D6E-6847-43FC-8258-81DB4B63C09C", "IPv6": false,
                   "ManagementIP": "10.1.36.50", "Name": "External", "Policies": [], "State": 1, "Type": "overlay",
                   "Subnets": [{"AddressPrefix": "192.168.255.0/30", "GatewayAddress": "192.168.255.1",
                                "Policies": [{"Type": "VSID", "VSID": 9999}], "State": 0}]}),
            json!({"Flags": 8, "ID": "06960E1D-0560-4233-84C4-82B9EE150DEE", "Name": "nat", "Type": "Internal",
                   "Subnets": [{"AddressPrefix": "172.26.64.0/20", "Policies": [], "State": 0}]}),
        ] {
            assert_eq!(network(&recorded), None, "{recorded}");
        }
        let remote = json!({"ID": "8f109901-9970-4fda-bb2b-e9882fb3e8fb", "IPAddress": "10.244.2.141",
            "IsRemoteEndpoint": true, "Name": "remote_10.244.2.141", "Policies": [{"PA": "10.123.74.74", "Type": "PA"}],
            "SharedContainers": [], "State": 1, "VirtualNetwork": "9d59c0df-b1e2-4eee-9fde-b7ea829fc6a1"});
        assert_eq!(endpoint(&remote), None);
        let list = json!({"ID": "A335D997-4160-44F9-9F72-1087A2CBA45E", "Policies": [{"Type": "ELB", "Protocol": 6}],
            "References": ["/endpoints/028abaed-7ff6-4fdc-992c-d3b004936be0"], "State": 2});
        assert_eq!(policy_list(&list), None);
    }

    #[test]
    fn a_field_of_another_type_is_named() {
        let named = |wrong: Option<String>| wrong.unwrap_or_default();
        assert_eq!(named(network(&json!({"ID": "1", "Name": "", "Type": "nat"}))), "`Name` is empty");
        assert_eq!(named(network(&json!({"ID": "1", "Name": "a", "Type": 4}))), "`Type` is a number");
        let subnet = json!({"AddressPrefix": "10.0.0.0/8", "Policies": [{"Type": "vsid", "VSID": "4096"}]});
        let found = json!({"ID": "1", "Name": "a", "Type": "overlay", "Subnets": [subnet]});
        assert_eq!(named(network(&found)), "`VSID` is a text");
        assert_eq!(named(endpoint(&json!({"ID": "1", "State": "Attached"}))), "`State` is a text");
        assert_eq!(named(policy_list(&json!({"ID": "1", "References": [{}]}))), "`References` has an object");
    }
}
