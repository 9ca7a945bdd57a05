//! A failed run reports what it changed, the current state and what remains.

use serde_json::{Value, json};

use crate::lab::Lab;

const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";
const STATE: &str = "C/ProgramData/calicoctl-win";

#[track_caller]
fn says(result: &Value, id: &str, changed: bool, parts: &[&str]) {
    assert_eq!((&result["error"]["id"], &result["changed"]), (&json!(id), &json!(changed)), "{result:#}");
    let state = result["error"]["state"].as_str().unwrap();
    assert!(parts.iter().all(|part| state.contains(part)), "{parts:?}: {result:#}");
}

/// How many pods the result lists as evicted.
fn evicted(result: &Value) -> usize {
    result["evicted"].as_array().unwrap().len()
}

#[test]
fn a_purge_that_fails_after_the_removal_says_that_calico_is_removed() {
    let lab = Lab::installed();
    let failed = lab.fails_at(r"remove *\lock.json=fail", "uninstall --purge -y -o json").exits(1).json();
    says(&failed, "PurgeIncomplete", true, &["Calico is removed from this node"]);
    assert!(failed["msg"].as_str().unwrap().contains(r"C:\ProgramData\calicoctl-win could not be removed"));
    assert!(failed["error"]["hint"].as_str().unwrap().contains("uninstall --purge"), "{failed:#}");
    lab.picture_without_state().same_as(&Lab::node().picture_without_state());
    let _again = lab.run("uninstall --purge -y").exits(0);
    assert!(!lab.on_node(STATE).exists());

    let lab = Lab::installed();
    let shown = lab.fails_at(r"remove *\lock.json=fail", "uninstall --purge -y").exits(1);
    assert!(shown.stderr.contains("  state: Calico is removed from this node"), "{shown}");
}

#[test]
fn a_change_that_cannot_remove_its_cordon_record_says_that_it_is_made() {
    let lab = Lab::installed();
    let failed = lab.fails_at(r"remove *\cordon.json=fail", &format!("{VNI} -o json")).exits(10).json();
    says(&failed, "CordonNotForgotten", true, &["generation 2 is current"]);
    assert_eq!(failed["generation"], 2, "{failed:#}");
    let node = lab.object("nodes", "win-a1").unwrap();
    assert!(node["spec"]["unschedulable"] != true, "{node:#}");
    let _forgotten = lab.run("resume -y").exits(0);
    let _fine = lab.healthy();
}

#[test]
fn a_reverted_change_says_what_it_changed() {
    let lab = Lab::installed();
    let words = "reconfigure -y --set services.felixLogSeverity=debug -o json";
    let failed = lab.fails_at("put running CalicoFelix#2=dies", words).exits(9).json();
    assert_eq!(failed["rolled_back"], true);
    let id = failed["error"]["id"].as_str().unwrap().to_owned();
    says(&failed, &id, true, &["the node is as it was before", "Calico's services were down meanwhile"]);
    assert_eq!(failed.get("evicted"), None, "{failed:#}");

    let failed = lab.fails_at("put running CalicoNode#2=dies", &format!("{VNI} -o json")).exits(9).json();
    let id = failed["error"]["id"].as_str().unwrap().to_owned();
    says(&failed, &id, true, &["the node is as it was before", "services were down", "2 pods were evicted"]);
    assert_eq!(evicted(&failed), 2, "{failed:#}");

    // The first step does nothing, so there was nothing to undo.
    let lab = Lab::node();
    let failed = lab.fails_at("put *#1=fail", "install -y -o json").exits(9).json();
    let id = failed["error"]["id"].as_str().unwrap().to_owned();
    says(&failed, &id, false, &["the node is as it was before"]);
}

#[test]
fn a_drain_that_ends_after_an_eviction_says_so() {
    let lab = Lab::installed();
    // Both evictions are requested at once; one of them is refused.
    let faults = "api POST */eviction#2+=403";
    let failed = lab.fails_at(faults, &format!("{VNI} -o json"));
    let failed = failed.json();
    assert_ne!(failed["exit_code"], 0, "{failed:#}");
    let id = failed["error"]["id"].as_str().unwrap().to_owned();
    says(&failed, &id, true, &["1 pod was evicted"]);
    assert_eq!(evicted(&failed), 1, "{failed:#}");
    let shown = Lab::installed().fails_at(faults, VNI);
    assert!(!shown.stderr.contains("nothing was changed"), "{shown}");
}

#[test]
fn a_service_that_was_stopped_before_the_error_counts_as_changed() {
    let lab = Lab::installed();
    let failed = lab.fails_at("put running CalicoFelix=fail-after", "service stop -y -o json");
    assert_ne!(failed.code, 0, "{failed}");
    let failed = failed.json();
    assert_eq!(failed["changed"], true, "{failed:#}");
    assert_eq!(lab.run("service status -o json").exits(12).json()["services"][1]["state"], "Stopped");
    let refused = Lab::installed().fails_at("put running CalicoFelix=fail", "service stop -y -o json").json();
    assert_eq!(refused["changed"], false, "{refused:#}");
}

/// An install that finds nothing to do ends what an interrupted one left in the cluster.
#[test]
fn an_uncordon_counts_as_changed() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("api PATCH */nodes/win-a1*#2=exit-before", VNI);
    let cordoned = |lab: &Lab| lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"] == true;
    let _finished_but_for_the_uncordon = lab.fails_at("api PATCH */nodes/win-a1*=503", "resume -y");
    assert!(cordoned(&lab));
    let done = lab.run("resume -y -o json").exits(0).json();
    assert_eq!((&done["changed"], cordoned(&lab)), (&json!(true), false), "{done:#}");
}
