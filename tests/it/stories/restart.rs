//! The API server restarts during a run, or does not answer at its end: temporary refusals are retried, and a node that
//! a run left cordoned is uncordoned by CalicoNode.

use std::time::{Duration, Instant};

use calicoctl_win::cluster::rights_manifest;
use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use http::Method;
use serde_json::{Value, json};

use super::proof::set_ready;
use crate::lab::Lab;

const VNI: &str = "reconfigure -y --kubeconfig ops.yaml --set spec.calicoNetwork.vxlan.vxlanVNI=5000";
const MARK: &str = "calicoctl-win/cordoned-by";

/// A node on which Calico is installed, and [`with_ops`].
fn installed() -> Lab {
    let lab = Lab::installed();
    with_ops(&lab);
    lab
}

/// Makes `ops.yaml` of a user with only the rights of `docs/rbac.yaml`: an administrator of `system:masters` is never
/// refused.
pub fn with_ops(lab: &Lab) {
    let cluster = cluster(lab);
    lab.write("ops.yaml", cluster.kubeconfig_of("ops", Some("calicoctl-win")).unwrap());
    for document in rights_manifest(None).split("---\n") {
        let object: Value = serde_yaml::from_str(document).unwrap();
        // Comments, and objects that the sandbox's cluster has already.
        if object.is_null() || object["metadata"]["name"] == "calicoctl-win-renewal" {
            continue;
        }
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let place =
            object["metadata"]["namespace"].as_str().map_or(String::new(), |name| format!("/namespaces/{name}"));
        let path = format!("/apis/rbac.authorization.k8s.io/v1{place}/{plural}");
        cluster.as_admin(&Method::POST, &path, Some(&object)).unwrap();
    }
}

pub fn cluster(lab: &Lab) -> EmbeddedCluster {
    EmbeddedCluster::start(&lab.path("node/cluster"), &Seed::new("win-a1"), &[]).unwrap()
}

/// kubelet's own kubeconfig on the node.
fn with_kubelets_kubeconfig(lab: &Lab) {
    let text = cluster(lab).kubeconfig_of("system:node:win-a1", Some("system:nodes")).unwrap();
    lab.write("node/C/k/config", text);
}

/// A node that a successful change has left cordoned.
fn left_cordoned() -> Lab {
    let lab = installed();
    let failed = lab.fails_at("api PATCH /api/v1/nodes/win-a1#3+=503", &format!("{VNI} -o json")).exits(10).json();
    assert_eq!(failed["error"]["id"], "UncordonFailed", "{failed}");
    let waits = "UncordonWaits: node win-a1 is not uncordoned yet, and it is tried again for ";
    assert!(failed["warnings"].to_string().contains(waits), "{failed}");
    assert_eq!((cordon(&lab), recorded(&lab)), ((true, failed["run"].clone()), true));
    lab
}

/// Whether the Node is cordoned, and its note of who cordoned it.
fn cordon(lab: &Lab) -> (bool, Value) {
    let node = lab.object("nodes", "win-a1").unwrap();
    (node["spec"]["unschedulable"] == true, node["metadata"]["annotations"][MARK].clone())
}

fn recorded(lab: &Lab) -> bool {
    lab.on_node("C/ProgramData/calicoctl-win/state/cordon.json").exists()
}

/// Starts CalicoNode, as at a boot, and waits until the record is removed.
#[track_caller]
fn starts_again(lab: &Lab) {
    let _started = lab.run("service restart -y").exits(0);
    gone(lab);
}

#[track_caller]
fn gone(lab: &Lab) {
    let begun = Instant::now();
    while recorded(lab) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody sees to it: {:?}", cordon(lab));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Makes the change in spite of the fault; returns the warnings.
#[track_caller]
fn change_succeeds(fault: &str) -> String {
    let lab = installed();
    let done = lab.fails_at(fault, &format!("{VNI} -o json"));
    assert_eq!(done.code, 0, "{fault}: {done}");
    assert_eq!((cordon(&lab), recorded(&lab)), ((false, Value::Null), false), "{fault}");
    let _fine = lab.healthy();
    done.json()["warnings"].to_string()
}

#[test]
fn a_restart_of_the_api_server_only_makes_a_drain_slower() {
    change_succeeds("api POST /api/v1/namespaces/*/eviction#1=restart");
    change_succeeds("api PATCH /api/v1/nodes/win-a1#1=restart");
}

/// Just before, while the Node is annotated, and with the answer to it.
#[test]
fn a_restart_of_the_api_server_leaves_no_node_cordoned() {
    change_succeeds("api PATCH /api/v1/nodes/win-a1#2=restart");
    change_succeeds("api PATCH /api/v1/nodes/win-a1#3=restart");
}

#[test]
fn a_right_that_was_never_granted_is_reported_at_once() {
    let lab = installed();
    lab.edit_object("clusterroles.rbac.authorization.k8s.io", "calicoctl-win", |role| {
        role["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["pods/eviction"]));
    });
    let begun = Instant::now();
    let refused = lab.run(&format!("{VNI} -o json")).exits(17).json();
    assert_eq!(refused["error"]["id"], "ClusterRights", "{refused}");
    // Half of the time allowed for a right that was seen.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!((cordon(&lab), recorded(&lab)), ((false, Value::Null), false));
}

/// Nothing on the machine was changed yet, so only the cordon must be undone.
#[test]
fn an_interrupted_drain_is_undone_when_calico_starts_next() {
    let lab = installed();
    let _killed = lab.fails_at("api POST /api/v1/namespaces/*/eviction#1=exit-after", VNI).exits(137);
    assert!(cordon(&lab).0);
    with_kubelets_kubeconfig(&lab);
    let _started = lab.run("service restart -y").exits(0);
    let begun = Instant::now();
    while lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists() || recorded(&lab) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody sees to it: {:?}", cordon(&lab));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(cordon(&lab), (false, Value::Null));
    assert_eq!(lab.healthy()["run"], Value::Null);
}

#[test]
fn a_node_that_a_run_left_cordoned_is_uncordoned_when_calico_starts_next() {
    let lab = left_cordoned();
    with_kubelets_kubeconfig(&lab);
    starts_again(&lab);
    assert_eq!(cordon(&lab), (false, Value::Null));
    assert_eq!(lab.healthy()["run"], Value::Null);
}

#[test]
fn a_node_that_a_run_left_cordoned_is_not_uncordoned_before_it_is_ready() {
    let lab = left_cordoned();
    with_kubelets_kubeconfig(&lab);
    set_ready(&lab, false, "KubeletNotReady", "[container runtime is down]");
    let _started = lab.run("service restart -y").exits(0);
    let said = |what: &str| lab.logs().contains(what);
    let begun = Instant::now();
    while !said("stays cordoned while it is not Ready (KubeletNotReady: [container runtime is down])") {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody sees to it: {:?}", cordon(&lab));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(cordon(&lab).0 && recorded(&lab));
    set_ready(&lab, true, "KubeletReady", "");
    gone(&lab);
    assert_eq!(cordon(&lab), (false, Value::Null));
}

#[test]
fn a_node_that_somebody_else_cordoned_stays_cordoned() {
    let lab = left_cordoned();
    with_kubelets_kubeconfig(&lab);
    lab.edit_object("nodes", "win-a1", |node| {
        node["metadata"]["annotations"].as_object_mut().unwrap().remove(MARK).unwrap();
    });
    starts_again(&lab);
    assert_eq!(cordon(&lab), (true, Value::Null));

    // Also if they cordon it with this tool.
    let lab = left_cordoned();
    let said = lab.run("node cordon --kubeconfig ops.yaml -o json").exits(0).json();
    assert_eq!((&said["changed"], cordon(&lab)), (&json!(true), (true, Value::Null)), "the annotation is gone");
}

/// Without kubelet's kubeconfig it depends on the right that `docs/rbac.yaml` names in a comment.
#[test]
fn without_kubelets_kubeconfig_the_nodes_own_login_must_have_the_right() {
    let lab = left_cordoned();
    let _started = lab.run("service restart -y").exits(0);
    let begun = Instant::now();
    let refused = |lab: &Lab| {
        lab.logs().contains("system:serviceaccount:calico-system:calico-node cannot patch nodes of the core group")
    };
    while !refused(&lab) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody tried");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(cordon(&lab).0 && recorded(&lab));
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!(status["run"]["interrupted"], true, "{status:#}");

    let rule = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]});
    let subject = json!({"kind": "ServiceAccount", "name": "calico-node", "namespace": "calico-system"});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let name = json!({"name": "calicoctl-win-uncordon"});
    let role = json!({"metadata": name, "rules": [rule]});
    let kind =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "calicoctl-win-uncordon"});
    let binding = json!({"metadata": name, "roleRef": kind, "subjects": [subject]});
    let there = cluster(&lab);
    there.as_admin(&Method::POST, &format!("{rbac}/clusterroles"), Some(&role)).unwrap();
    there.as_admin(&Method::POST, &format!("{rbac}/clusterrolebindings"), Some(&binding)).unwrap();
    drop(there);
    starts_again(&lab);
    assert_eq!(cordon(&lab), (false, Value::Null));
}

#[test]
fn a_manual_uncordon_ends_it_too() {
    let lab = left_cordoned();
    let _done = lab.run("node uncordon --kubeconfig ops.yaml").exits(0);
    assert_eq!((cordon(&lab), recorded(&lab)), ((false, Value::Null), false));
    assert_eq!(lab.run("resume -y -o json").exits(0).json()["status"], "no_changes");
}

/// What a run kept for itself may be a token: it must not outlive the run, no matter who uncordons the Node.
#[test]
fn an_undo_that_ends_with_its_journal_leaves_nothing_in_the_store() {
    let lab = Lab::installed();
    let stored = || {
        let picture = lab.picture();
        let names = picture.names("C/ProgramData/calicoctl-win/store/");
        names.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = stored();
    let change = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";
    let _killed = lab.fails_at("put cni-conf *=exit-before", change).exits(137);
    let _killed = lab.fails_at(r"remove *\journal.jsonl=exit-after", "resume --undo -y").exits(137);
    assert_ne!(stored(), before, "nothing is left to clear");
    let _ended = lab.run("resume -y").exits(0);
    assert_eq!(stored(), before);
    assert_eq!(lab.healthy()["generation"], 1);
}

#[test]
fn stopping_services_is_confirmed_and_starting_them_is_not() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    for words in ["service stop", "service restart"] {
        let refused = lab.run(&format!("{words} -o json")).exits(64).json();
        assert_eq!(refused["error"]["id"], "ConfirmationNeeded", "{words}: {refused:#}");
    }
    lab.picture_without_state().same_as(&before);
    let _stopped = lab.run("service stop -y").exits(0);
    // Nothing stops.
    let _again = lab.run("service stop").exits(0);
    let _started = lab.run("service start").exits(0);
}

#[test]
fn a_stop_that_fails_in_the_middle_reports_a_change() {
    let lab = Lab::installed();
    let fault = "put running CalicoNode=slow-stop";
    let result = lab.fails_at(fault, "service stop -y -o json").json();
    assert_eq!((&result["changed"], &result["status"]), (&json!(true), &json!("failed")), "{result:#}");
    let _again = lab.run("service start").exits(0);
    let failed = lab.fails_at(fault, "service stop -y");
    assert!(failed.code != 0 && !failed.stderr.contains("nothing was changed"), "{failed}");
}
