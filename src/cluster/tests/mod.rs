//! This module against a server that replays real responses.

mod credentials;
mod facts;
mod failures;
mod kubeconfigs;
mod watches;

use std::time::Duration;

use serde_json::{Value, json};

use super::testing::{Reply, Server};
use super::*;

const FELIX: &str = "/apis/crd.projectcalico.org/v1/felixconfigurations/default";

/// Short limits: failures are immediate.
fn short_limits() -> Limits {
    Limits { timeout: Duration::from_secs(5), retries: 0, asks: false }
}

/// An error as printed for a user.
fn story(error: &anyhow::Error) -> String {
    let fault = Fault::of(error).expect("every failure of this room has a name");
    let mut text = format!("{} {}\n  what {error}\n", fault.exit.name(), fault.id);
    for cause in error.chain().skip(1) {
        // The operating systems word it differently.
        let cause = cause.to_string();
        let cause = if cause.contains("(os error") || cause.contains("address information") {
            "(the operating system's text)"
        } else {
            &cause
        };
        text.push_str(&format!("  why  {cause}\n"));
    }
    text + &format!("  fix  {}\n", fault.hint.as_deref().expect("every failure of this room has a fix"))
}

#[test]
fn objects_are_read_changed_and_deleted_over_tls() {
    let server = Server::start();
    server.replay(&["version-admin", "token-secret-delete"]);
    server.on(&format!("PATCH {FELIX}"), [Reply::recorded("felix-merge-unknown-default")]);
    let cluster = server.connect();

    let version: Value = cluster.get("/version").unwrap().unwrap();
    assert_eq!(version["gitVersion"], "v1.36.2");
    let felix: Value = cluster.merge_patch(FELIX, &json!({"spec": {"vxlanVni": 4096}})).unwrap();
    assert_eq!(felix["spec"]["vxlanVNI"], 4097);
    let secret = path(["api", "v1", "namespaces", "calico-system", "secrets", "calico-node-token"]);
    assert!(cluster.delete(&secret).unwrap());

    let seen = server.seen();
    assert_eq!(seen[0].headers["authorization"], "Bearer admins-token");
    assert!(seen[0].headers["user-agent"].starts_with("calicoctl-win/"));
    assert_eq!(seen[1].headers["content-type"], "application/merge-patch+json");
    assert_eq!(seen[1].body, r#"{"spec":{"vxlanVni":4096}}"#);
    assert!(seen[1].target.ends_with("?fieldManager=calicoctl-win"), "{}", seen[1].target);
    let message = "the API server warns: unknown field \"spec.vxlanVni\"".to_owned();
    assert_eq!(cluster.take_events(), [Event::Warning { id: "ClusterWarning", message }]);
}

#[test]
fn only_the_servers_404_for_the_object_means_absent() {
    let server = Server::start();
    server.replay(&["felix-404", "v3-ipamconfigs-404"]);
    let cluster = server.connect();

    let absent = "/apis/crd.projectcalico.org/v1/felixconfigurations/node.win-worker-1";
    assert!(cluster.get::<Value>(absent).unwrap().is_none());
    assert!(!cluster.delete("/api/v1/namespaces/x/secrets/y").is_ok_and(|deleted| deleted));

    let unserved = cluster.get::<Value>("/apis/projectcalico.org/v3/ipamconfigs/default").unwrap_err();
    assert_eq!(Fault::id_of(&unserved), "ApiNotServed");
    // JSON, 404, but about another object.
    server.on("GET /api/v1/nodes/win-a1", [Reply::recorded("serviceaccount-404")]);
    assert!(cluster.get::<Value>("/api/v1/nodes/win-a1").is_err());
}

#[test]
fn a_response_of_another_schema_is_an_error_without_values() {
    let server = Server::start();
    let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6InNlc2FtZSJ9";
    server.on("GET /version", [Reply::json(200, &json!({ "major": token }))]);
    let cluster = server.connect();
    let error = cluster.get::<std::collections::BTreeMap<String, u8>>("/version").unwrap_err();
    assert!(story(&error).contains("ClusterAnswer") && !format!("{error:?}").contains("eyJ"), "{error:?}");
}

#[test]
fn names_are_encoded() {
    assert_eq!(path(["api", "v1", "nodes", "a/b?c d%"]), "/api/v1/nodes/a%2Fb%3Fc%20d%25");
    assert_eq!(query("/x", &[("fieldSelector", "type=a/b&c")]), "/x?fieldSelector=type%3Da%2Fb%26c");
    assert_eq!(query("/x?a=b", &[("c", "d")]), "/x?a=b&c=d");
}

#[test]
fn a_list_is_read_page_by_page_and_starts_over_once_when_it_expires() {
    let page = |items: &[u8], rest: &str| Reply::json(200, &json!({"metadata": {"continue": rest}, "items": items}));
    let server = Server::start();
    server.on("GET /api/v1/pods", [page(&[1, 2], "p2/="), page(&[7], "p2/=")]);
    server.on("GET /api/v1/pods?continue=p2%2F%3D", [Reply::recorded("list-continue-410"), page(&[8, 9], "")]);
    let cluster = server.connect();

    assert_eq!(cluster.list::<u8>("/api/v1/pods").unwrap(), [7, 8, 9]);
    let first = "/api/v1/pods?limit=500";
    let second = "/api/v1/pods?limit=500&continue=p2%2F%3D";
    let targets: Vec<String> = server.seen().into_iter().map(|s| s.target).collect();
    assert_eq!(targets, [first, second, first, second]);

    server.on("GET /api/v1/pods", [page(&[1], "p2/=")]);
    server.on("GET /api/v1/pods?continue=p2%2F%3D", [Reply::recorded("list-continue-410")]);
    let error = cluster.list::<u8>("/api/v1/pods").unwrap_err();
    assert_eq!(Fault::id_of(&error), "ClusterListExpired");
}

#[test]
fn a_list_without_an_end_is_refused() {
    let page = json!({"metadata": {"continue": "again"}, "items": []});
    let server = Server::start();
    for key in ["GET /api/v1/pods", "GET /api/v1/pods?continue=again"] {
        server.on(key, [Reply::json(200, &page)]);
    }
    let error = server.connect().list::<u8>("/api/v1/pods").unwrap_err();
    assert_eq!(Fault::id_of(&error), "ClusterAnswer");
    assert_eq!(error.to_string(), "the list of GET /api/v1/pods does not end");
    assert_eq!(server.seen().len(), 1000);
}

#[test]
fn temporary_errors_are_retried_and_writes_only_if_that_is_safe() {
    let overload = Reply::recorded("overload-429").retry_after(0);
    let down = Reply::recorded("aggregated-503").retry_after(0);
    let felix = Reply::recorded("felix-get");
    let server = Server::start();
    let cluster = server.connect();
    let id = |error: anyhow::Error| Fault::id_of(&error);

    server.on(&format!("GET {FELIX}"), [overload.clone(), down.clone(), Reply::Cut, felix.clone()]);
    assert!(cluster.get::<Value>(FELIX).unwrap().is_some());
    assert_eq!(server.keys().len(), 4);
    let tries = cluster.take_events();
    assert_eq!(tries.len(), 3, "{tries:?}");
    assert!(matches!(&tries[0], Event::Log { message } if message.contains("HTTP 429; trying again")), "{tries:?}");

    // The overloaded server did not process it, so it is retried.
    server.on(&format!("PATCH {FELIX}"), [overload, felix.clone()]);
    assert!(cluster.merge_patch::<_, Value>(FELIX, &json!({})).is_ok());
    // Whether these took effect is unknown, and left to the caller.
    for (reply, name) in [(down, "AggregatedApiDown"), (Reply::Cut, "ClusterConnectionLost")] {
        server.on(&format!("PATCH {FELIX}"), [reply, felix.clone()]);
        assert_eq!(id(cluster.merge_patch::<_, Value>(FELIX, &json!({})).unwrap_err()), name);
    }
}

#[test]
fn retries_end_with_the_time_limit() {
    let server = Server::start();
    server.on("GET /version", [Reply::recorded("overload-429").retry_after(u64::MAX)]);
    let error = server.connect().get::<Value>("/version").unwrap_err();
    assert_eq!(Fault::id_of(&error), "ClusterOverloaded");
    assert_eq!(server.keys().len(), 1);
}

#[test]
fn a_node_is_read_and_annotated() {
    let server = Server::start();
    let node = json!({
        "metadata": {"name": "win-a1"},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [
                {"type": "Hostname", "address": "win-a1"},
                {"type": "InternalIP", "address": "10.0.0.7"},
            ],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "v1.33.2", "machineID": "", "operatingSystem": "windows",
                "osImage": "", "systemUUID": "",
            },
        },
    });
    server.on("GET /api/v1/nodes/win-a1", [Reply::json(200, &node)]);
    server.on("PATCH /api/v1/nodes/win-a1", [Reply::json(200, &node)]);
    let cluster = server.connect();

    let read = cluster.node("win-a1").unwrap().unwrap();
    assert!(read.ready && !read.schedulable);
    assert_eq!(
        (read.internal_ips.as_slice(), read.kubelet_version.as_str()),
        (["10.0.0.7".to_owned()].as_slice(), "v1.33.2")
    );
    let annotations = [("a/b".to_owned(), Some("c".to_owned())), ("gone".to_owned(), None)].into();
    assert!(cluster.annotate_node("win-a1", &annotations).unwrap());
    let sent: Value = serde_json::from_str(&server.seen().last().unwrap().body).unwrap();
    assert_eq!(sent, json!({"metadata": {"annotations": {"a/b": "c", "gone": null}}}));
    let asked = server.seen().len();
    assert!(!cluster.annotate_node("win-a1", &[("gone".to_owned(), None)].into()).unwrap(), "it is so already");
    assert_eq!(server.seen().len(), asked + 1, "only looked");
}
