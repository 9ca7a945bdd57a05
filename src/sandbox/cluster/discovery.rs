//! Discovery: version, health, groups and kinds (plain and aggregated), and as much OpenAPI as kubectl needs to know
//! that the server validates fields itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::answer::{Answer, Outcome};
use super::request::Request;
use super::resources::{Layout, Resource, served};
use super::reviews::REVIEWS;

/// Answers a path that is not a resource.
pub fn answer(request: &Request, layout: Layout) -> Outcome {
    let parts: Vec<&str> = request.path.split('/').filter(|p| !p.is_empty()).collect();
    let aggregated = request.header("accept").is_some_and(|a| a.contains("as=APIGroupDiscoveryList"));
    match parts.as_slice() {
        ["version"] => Ok(Answer::ok(version())),
        ["readyz" | "healthz" | "livez", ..] => Ok(Answer::text(200, "ok")),
        ["api"] if aggregated => Ok(aggregate(layout, |group| group.is_empty())),
        ["apis"] if aggregated => Ok(aggregate(layout, |group| !group.is_empty())),
        ["api"] => Ok(Answer::ok(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}))),
        ["apis"] => {
            let list: Vec<Value> = groups(layout).keys().filter(|g| !g.is_empty()).map(|g| group(g, layout)).collect();
            Ok(Answer::ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})))
        }
        ["apis", name] if groups(layout).contains_key(name) => {
            let mut found = group(name, layout);
            found["kind"] = "APIGroup".into();
            found["apiVersion"] = "v1".into();
            Ok(Answer::ok(found))
        }
        ["api", "v1"] => Ok(Answer::ok(resource_list("", "v1", layout))),
        ["apis", name, version] if groups(layout).get(name).is_some_and(|all| all.contains(version)) => {
            Ok(Answer::ok(resource_list(name, version, layout)))
        }
        ["openapi", "v3"] => Ok(Answer::ok(openapi_index(layout))),
        ["openapi", "v3", "api", "v1"] => Ok(Answer::ok(openapi("", "v1", layout))),
        ["openapi", "v3", "apis", name, version] if groups(layout).contains_key(name) => {
            Ok(Answer::ok(openapi(name, version, layout)))
        }
        [] => Ok(Answer::ok(json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/readyz", "/version"]}))),
        _ => Err(Answer::no_such_path()),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.2",
        "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406", "gitTreeState": "clean",
        "buildDate": "2026-08-21T00:00:00Z", "goVersion": "go1.26.11", "compiler": "gc", "platform": "linux/amd64",
    })
}

/// Every group with its versions, the preferred one last.
fn groups(layout: Layout) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut groups: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let kinds = served(layout).map(|r| (r.group, r.version));
    for (group, version) in kinds.chain(REVIEWS.map(|(group, _, _)| (group, "v1"))) {
        groups.entry(group).or_default().insert(version);
    }
    groups
}

fn group(name: &str, layout: Layout) -> Value {
    let versions = groups(layout).remove(name).unwrap_or_default().into_iter().rev();
    let version = |version| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.map(version).collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Subresources of a kind: name, group of its kind (empty for the same), kind, verbs.
fn subresources(resource: &Resource) -> Vec<(&'static str, &'static str, &'static str, &'static [&'static str])> {
    let mut list: Vec<(_, _, _, &'static [&'static str])> = Vec::new();
    match (resource.group, resource.plural) {
        ("", "pods") => {
            list.push(("eviction", "policy", "Eviction", &["create"]));
            list.push(("log", "", "Pod", &["get"]));
        }
        ("", "serviceaccounts") => list.push(("token", "authentication.k8s.io", "TokenRequest", &["create"])),
        ("certificates.k8s.io", _) => list.push(("approval", "", resource.kind, &["get", "patch", "update"])),
        _ => {}
    }
    if resource.status {
        list.push(("status", "", resource.kind, &["get", "patch", "update"]));
    }
    list
}

fn resource_list(group: &str, version: &str, layout: Layout) -> Value {
    let mut list = Vec::new();
    for resource in served(layout).filter(|r| (r.group, r.version) == (group, version)) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular(), "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": VERBS,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        list.push(entry);
        for (name, other_group, kind, verbs) in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind, "verbs": verbs,
            });
            if !other_group.is_empty() {
                entry["group"] = other_group.into();
                entry["version"] = "v1".into();
            }
            list.push(entry);
        }
    }
    for (_, plural, kind) in REVIEWS.iter().filter(|(g, _, _)| *g == group) {
        list.push(json!({
            "name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind,
            "verbs": ["create"],
        }));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut answer = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": list});
    if !group.is_empty() {
        answer["apiVersion"] = "v1".into();
    }
    answer
}

/// All groups of a prefix and their kinds in one response, for clients since 1.26.
fn aggregate(layout: Layout, wanted: impl Fn(&str) -> bool) -> Answer {
    let mut items = Vec::new();
    for (name, versions) in groups(layout).into_iter().filter(|(g, _)| wanted(g)) {
        let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
        let scope = |namespaced| if namespaced { "Namespaced" } else { "Cluster" };
        let of_version = |version: &&str| {
            let of_kind = |r: &Resource| {
                let subresources: Vec<Value> = subresources(r)
                    .into_iter()
                    .map(|(sub, group, of, verbs)| {
                        let group = if group.is_empty() { r.group } else { group };
                        json!({"subresource": sub, "responseKind": kind(group, "v1", of), "verbs": verbs})
                    })
                    .collect();
                let mut entry = json!({
                    "resource": r.plural, "responseKind": kind(r.group, r.version, r.kind),
                    "scope": scope(r.namespaced), "singularResource": r.singular(), "verbs": VERBS,
                });
                if !r.short_names.is_empty() {
                    entry["shortNames"] = json!(r.short_names);
                }
                if !subresources.is_empty() {
                    entry["subresources"] = subresources.into();
                }
                entry
            };
            let kinds = served(layout).filter(|r| (r.group, r.version) == (name, *version));
            let mut resources: Vec<Value> = kinds.map(of_kind).collect();
            for (group, plural, of) in REVIEWS.iter().filter(|(g, _, _)| *g == name) {
                resources.push(json!({
                    "resource": plural, "responseKind": kind(group, "v1", of), "scope": "Cluster",
                    "singularResource": of.to_lowercase(), "verbs": ["create"],
                }));
            }
            json!({"version": version, "resources": resources, "freshness": "Current"})
        };
        let versions: Vec<Value> = versions.iter().rev().map(of_version).collect();
        let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let mut answer = Answer::ok(list);
    answer.content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    answer
}

fn openapi_index(layout: Layout) -> Value {
    let mut paths = serde_json::Map::new();
    let versions = |(group, versions): (_, BTreeSet<_>)| versions.into_iter().map(move |version| (group, version));
    for (group, version) in groups(layout).into_iter().flat_map(versions) {
        let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// The patch operations of a version of a group with the parameter `fieldValidation`: it tells kubectl not to validate itself.
fn openapi(group: &str, version: &str, layout: Layout) -> Value {
    let mut paths = serde_json::Map::new();
    for r in served(layout).filter(|r| (r.group, r.version) == (group, version)) {
        let prefix = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        let namespace = if r.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = format!("{prefix}/{}{namespace}/{}/{{name}}", r.version, r.plural);
        let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
            .into();
        let patch = json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": r.group, "version": r.version, "kind": r.kind},
        });
        paths.insert(path, json!({"patch": patch}));
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.2"}, "paths": paths,
        "components": {"schemas": {}},
    })
}
