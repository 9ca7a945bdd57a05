//! What the server's authorizers refuse, what another machine holds, and what the cluster lacks: said before anything
//! changes.

use http::Method;
use serde_json::{Value, json};

use super::Joined;

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/calicoctl-win";
const VNI: &str = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";

/// Refused as this, with this exit code; nothing was changed, and the server was only read.
#[track_caller]
fn refuses(cluster: &impl Joined, words: &str, code: i32, id: &str) -> Value {
    let before = cluster.lab().picture_without_state();
    let (output, asked) = cluster.asked(false, || cluster.run(&format!("{words} -o json")).exits(code));
    let refused = output.json();
    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!(id), &json!(false)), "{words}: {refused:#}");
    cluster.lab().picture_without_state().same_as(&before);
    assert!(!cluster.cordoned(), "{words}");
    // Reviews and tokens are created, and stored nowhere.
    let written = asked.iter().find(|one| {
        !matches!(one.verb.as_str(), "get" | "list" | "watch")
            && !one.uri.contains("selfsubject")
            && !one.uri.contains("/token")
    });
    assert!(written.is_none(), "{words}: {written:?}");
    refused
}

/// A change that could not be finished ends before the cordon.
fn a_right_that_is_missing(cluster: &impl Joined) {
    let all = cluster.get(ROLE)["rules"].clone();
    for (verb, resource) in [("create", "pods/eviction"), ("patch", "nodes")] {
        let mut fewer = all.as_array().unwrap().clone();
        fewer.retain(|rule| (&rule["verbs"], &rule["resources"]) != (&json!([verb]), &json!([resource])));
        assert_eq!(fewer.len() + 1, all.as_array().unwrap().len());
        cluster.patch(ROLE, &json!({ "rules": fewer }));
        let refused = refuses(cluster, VNI, 17, "ClusterRights");
        let what = refused["error"]["what"].as_str().unwrap();
        assert!(what.contains(&format!("{verb} {resource}")), "{what}");
    }
    cluster.patch(ROLE, &json!({ "rules": all }));
}

fn a_node_that_is_missing(cluster: &impl Joined) {
    let refused = cluster.run("cluster check --node-name nope -o json").exits(7).json();
    assert_eq!(refused["error"]["id"], "NodeAbsent", "{refused:#}");
}

/// Kubernetes refuses each eviction of a pod that two budgets select, whatever the number of its replicas.
fn two_budgets_for_one_pod(cluster: &impl Joined) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web-too", "namespace": "demo" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    let path = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets";
    cluster.change(&Method::POST, path, &budget);
    let refused = cluster.run("node drain -y -o json").exits(8).json();
    let (id, hint) = (&refused["error"]["id"], refused["error"]["hint"].to_string());
    assert_eq!(id, "DrainNeverAllowed", "{refused:#}");
    assert!(hint.contains("change the selectors of the budgets") && !hint.contains("scale"), "{hint}");
    assert!(!cluster.cordoned());
    cluster.change(&Method::DELETE, &format!("{path}/web-too"), &json!({}));
}

fn a_lease_of_another_machine(cluster: &impl Joined) {
    let now = jiff::Timestamp::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "calicoctl-win.win-a1", "namespace": "kube-node-lease" },
        "spec": {
            "holderIdentity": "jump-host/r7", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}"),
        },
    });
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    cluster.change(&Method::POST, path, &lease);
    for verb in [VNI, "node cordon", "node drain -y", "credentials rotate -y", "uninstall -y"] {
        let refused = refuses(cluster, verb, 14, "NodeLeased");
        assert!(refused["error"]["what"].to_string().contains("run r7 on jump-host"), "{refused:#}");
    }
    cluster.change(&Method::DELETE, &format!("{path}/calicoctl-win.win-a1"), &json!({}));
}

/// One object that is missing leaves all other answers.
fn an_account_that_is_missing(cluster: &impl Joined) {
    let others = |code: i32| -> Vec<(String, String)> {
        let checked = cluster.run("cluster check -o json").exits(code).json();
        let checks = checked["checks"].as_array().unwrap().iter();
        let mut found: Vec<_> = checks.map(|one| (one["id"].to_string(), one["status"].to_string())).collect();
        let account = found.iter().position(|(id, _)| id == "\"CalicoServiceAccount\"").unwrap();
        assert_eq!(found.remove(account).1, if code == 0 { "\"ok\"" } else { "\"fail\"" }, "{checked:#}");
        found
    };
    let before = others(0);
    let account = format!("/api/v1/namespaces/{}/serviceaccounts/calico-node", cluster.kind().namespace);
    cluster.change(&Method::DELETE, &account, &json!({}));
    assert_eq!(others(3), before);
}

/// All of them on an installed node, whose pods run; then the node can be changed.
pub fn what_is_refused(cluster: &impl Joined) {
    a_right_that_is_missing(cluster);
    a_node_that_is_missing(cluster);
    two_budgets_for_one_pod(cluster);
    a_lease_of_another_machine(cluster);
    let _changed = cluster.run(VNI).exits(0);
    assert!(!cluster.cordoned());
    an_account_that_is_missing(cluster);
}
