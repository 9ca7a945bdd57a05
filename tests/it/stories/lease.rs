//! One run at a time changes a node, from any machine: the Lease.

use serde_json::{Value, json};

use crate::lab::Lab;

pub const KIND: &str = "leases.coordination.k8s.io";
pub const NAME: &str = "calicoctl-win.win-a1";
const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";

fn holder(lab: &Lab) -> Option<String> {
    lab.object(KIND, NAME).map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
}

/// Another machine holds the Lease, for an hour.
pub fn held_elsewhere(lab: &Lab) {
    lab.add_object(
        KIND,
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NAME, "namespace": "kube-node-lease", "uid": "7", "resourceVersion": "7"},
            "spec": {
                "holderIdentity": "jump-host/r7", "leaseDurationSeconds": 3600,
                "renewTime": jiff::Timestamp::now().to_string(),
            },
        }),
    );
}

/// A node with two generations, and something to repair.
fn changed_twice() -> Lab {
    let lab = Lab::installed();
    let _second = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    std::fs::write(lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf"), "{}").unwrap();
    lab
}

#[test]
fn every_verb_refuses_a_node_that_another_machine_is_changing() {
    let lab = changed_twice();
    held_elsewhere(&lab);
    let interrupted = Lab::installed();
    let _killed = interrupted.fails_at("put *#3=exit-after", VNI).exits(137);
    interrupted.edit_object(KIND, NAME, |lease| lease["spec"]["holderIdentity"] = "jump-host/r7".into());
    let verbs = [
        VNI,
        "node cordon",
        "node drain -y",
        "node uncordon",
        "credentials rotate -y",
        "install -y --set services.felixLogSeverity=info",
        "upgrade -y --release v3.33.0",
        "rollback -y",
        "repair -y",
        "uninstall -y",
    ];
    let resumes = ["resume -y", "resume -y --undo"];
    for (lab, words) in verbs.map(|words| (&lab, words)).into_iter().chain(resumes.map(|words| (&interrupted, words))) {
        let before = lab.picture_without_state();
        let refused = lab.run(&format!("{words} -o json")).exits(14).json();
        assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("NodeLeased"), &json!(false)), "{words}");
        let what = refused["error"]["what"].as_str().unwrap();
        let said = "node win-a1 is being changed by run r7 on jump-host, whose Lease is valid until 20";
        assert!(what.starts_with(said), "{words}: {what}");
        lab.picture_without_state().same_as(&before);
        let node = lab.object("nodes", "win-a1").unwrap();
        assert!(node["spec"]["unschedulable"].is_null() || std::ptr::eq(lab, &interrupted), "{words}");
    }

    // Its machine died long ago.
    let old = |lease: &mut Value| lease["spec"]["renewTime"] = "2026-01-02T15:04:05.000000Z".into();
    for (lab, words) in [(&lab, "repair -y"), (&interrupted, "resume -y")] {
        lab.edit_object(KIND, NAME, old);
        let _done = lab.run(words).exits(0);
        assert_eq!(holder(lab), None, "{words}: it is released");
    }
}

/// Two clones of an image have one name. The machine's own id distinguishes them.
#[test]
fn machines_of_the_same_name_are_distinguished() {
    let lab = changed_twice();
    held_elsewhere(&lab);
    lab.edit_object(KIND, NAME, |lease| lease["spec"]["holderIdentity"] = "win-a1/5e0fa77e/r7".into());
    let refused = lab.run(&format!("{VNI} -o json")).exits(14).json();
    let what = refused["error"]["what"].as_str().unwrap();
    assert!(what.starts_with("node win-a1 is being changed by run r7 on win-a1 (machine 5e0fa77e)"), "{what}");
}

/// A killed run leaves its Lease for three minutes. A run that has the machine's own lock knows that it has ended.
#[test]
fn the_next_run_of_the_same_machine_takes_over_a_dead_runs_lease_at_once() {
    let lab = changed_twice();
    let dies = [
        (VNI, "put *#3=exit-after"),
        ("upgrade -y --release v3.33.0", "put *#3=exit-after"),
        ("rollback -y", "put *#1=exit-after"),
        ("repair -y", "put *10-calico.conf=exit-after"),
        ("uninstall -y", "put *#2=exit-after"),
    ];
    for (words, fault) in dies {
        for after in ["resume -y", "resume -y --undo", "uninstall -y"] {
            let lab = lab.copy();
            let _killed = lab.fails_at(fault, words).exits(137);
            assert!(holder(&lab).is_some_and(|holder| holder.starts_with("win-a1/")), "{words}: {:?}", holder(&lab));
            let _done = lab.run(after).exits(0);
            assert_eq!(holder(&lab), None, "{words}, then {after}");
        }
    }
}

#[test]
fn without_a_cluster_repair_rollback_and_uninstall_need_no_lease() {
    let lab = changed_twice();
    for words in ["repair -y", "uninstall -y"] {
        let done = lab.fails_at("api down", &format!("{words} -o json")).exits(0).json();
        let warned = done["warnings"].to_string();
        assert!(warned.contains("LeaseNotTaken: other machines are not kept from changing node win-a1"), "{warned}");
    }
    let nothing = lab.run("uninstall -y -o json").exits(0).json();
    assert_eq!(nothing["status"], "no_changes");
}
