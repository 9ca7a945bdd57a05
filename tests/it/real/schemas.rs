//! The embedded cluster's admission of Calico's resources, held against a real server's with the same definitions: what
//! one refuses the other refuses.

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use http::Method;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::cluster::{Kind, RealCluster, V1, V3};
use crate::read;

/// A request to create an object, and what is tried with it.
struct Attempt {
    path: String,
    object: Value,
    tried: String,
}

/// The definitions of a file.
fn definitions(file: &str) -> Vec<Value> {
    let text = read(&format!("tests/fixtures/calico-crds/{file}"));
    let all = text.split("\n---\n").filter(|one| !one.trim().is_empty());
    let all = all.map(|one| serde_yaml::from_str::<Value>(one).unwrap());
    all.filter(|one| one["kind"] == "CustomResourceDefinition").collect()
}

/// A value of a type, for a schema without further conditions.
fn value_of(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("string") => "x".into(),
        Some("integer" | "number") => 1.into(),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        _ => json!({}),
    }
}

/// A value of any other type.
fn wrong_for(schema: &Value) -> Value {
    if schema["type"] == "string" { true.into() } else { "x".into() }
}

/// Each field of a kind's spec alone, with a value of its type and with one of another; one that it does not have; and
/// with each of the values that an enumeration has.
fn attempts(definition: &Value) -> Vec<Attempt> {
    let names = &definition["spec"]["names"];
    let version = &definition["spec"]["versions"][0];
    let (group, version_name) = (definition["spec"]["group"].as_str().unwrap(), version["name"].as_str().unwrap());
    let (plural, kind) = (names["plural"].as_str().unwrap(), names["kind"].as_str().unwrap());
    let namespace = if definition["spec"]["scope"] == "Namespaced" { "namespaces/default/" } else { "" };
    let path = format!("/apis/{group}/{version_name}/{namespace}{plural}");
    let schema = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    // The required ones are always there, so that the others are judged for themselves.
    let base: Map<String, Value> = required.iter().map(|name| ((*name).to_owned(), value_of(&fields[*name]))).collect();
    let mut tries = vec![("nothing else".to_owned(), Value::Object(base.clone()))];
    let mut with = |tried: String, field: &str, value: Value| {
        let mut spec = base.clone();
        spec.insert(field.into(), value);
        tries.push((tried, spec.into()));
    };
    with("a field that is not known".into(), "noSuchField", 1.into());
    for (field, schema) in &fields {
        with(format!("{field} of its type"), field, value_of(schema));
        with(format!("{field} of another type"), field, wrong_for(schema));
        for value in schema["enum"].as_array().into_iter().flatten() {
            with(format!("{field}: {value}"), field, value.clone());
        }
    }
    let object = |spec: Value| json!({ "apiVersion": format!("{group}/{version_name}"), "kind": kind, "metadata": { "name": "tried" }, "spec": spec });
    tries
        .into_iter()
        .map(|(tried, spec)| Attempt { path: path.clone(), object: object(spec), tried: format!("{kind}: {tried}") })
        .collect()
}

/// Rules of the v3 group in CEL, of kinds and fields that this program never writes: the embedded cluster has none of
/// them.
const RULES_IN_CEL: [&str; 15] = [
    "BGPPeer: localWorkloadSelector of its type",
    "BGPPeer: reachableBy of its type",
    "FelixConfiguration: deviceRouteSourceAddress of its type",
    "FelixConfiguration: deviceRouteSourceAddressIPv6 of its type",
    "FelixConfiguration: natOutgoingAddress of its type",
    "GlobalNetworkPolicy: doNotTrack of its type",
    "GlobalNetworkPolicy: preDNAT of its type",
    "HostEndpoint: nothing else",
    "HostEndpoint: expectedIPs of its type",
    "HostEndpoint: interfaceName of its type",
    "HostEndpoint: node of its type",
    "HostEndpoint: ports of its type",
    "HostEndpoint: profiles of its type",
    "StagedGlobalNetworkPolicy: doNotTrack of its type",
    "StagedGlobalNetworkPolicy: preDNAT of its type",
];

fn agree(kind: Kind, file: &str, release: &str, known: &[&str]) {
    let Some(real) = RealCluster::start(kind) else { return };
    let dir = TempDir::new().unwrap();
    let seed = Seed { layout: kind.layout, calico: release.into(), ..Seed::new("win-1") };
    let embedded = EmbeddedCluster::start(dir.path(), &seed, &[]).unwrap();
    let (mut different, mut asked) = (Vec::new(), 0);
    // The administrators' policies are served without their schemas: this program only reads them.
    let written = |definition: &&Value| definition["spec"]["group"] != "policy.networking.k8s.io";
    for attempt in definitions(file).iter().filter(written).flat_map(attempts) {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", attempt.path);
        let ours = embedded.as_admin(&Method::POST, &path, Some(&attempt.object)).map(drop);
        if ours.as_ref().is_err_and(|error| format!("{error:#}").contains("404 page not found")) {
            // A kind that this program never reads or writes.
            continue;
        }
        asked += 1;
        let theirs = real.server.client().post::<_, Value>(&path, &attempt.object).map(drop);
        let agreed = ours.is_ok() == theirs.is_ok();
        if agreed == known.contains(&attempt.tried.as_str()) {
            let said = |answer: Result<(), anyhow::Error>| {
                answer.map_or_else(|error| format!("{error:#}"), |()| "accepts it".into())
            };
            different.push(format!("{}\n  real: {}\n  embedded: {}", attempt.tried, said(theirs), said(ours)));
        }
    }
    println!("{asked} objects, {} judged differently", different.len());
    assert!(asked > 400, "{asked} objects were tried");
    assert!(different.is_empty(), "{} of {asked}:\n{}", different.len(), different.join("\n"));
}

#[test]
fn the_embedded_cluster_admits_the_v1_group_as_a_real_server_does() {
    agree(V1, "crd.projectcalico.org-v1.yaml", "v3.31.7", &[]);
}

#[test]
fn the_embedded_cluster_admits_the_v3_group_as_a_real_server_does() {
    agree(V3, "projectcalico.org-v3.yaml", "v3.33.0", &RULES_IN_CEL);
}
