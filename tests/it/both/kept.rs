//! What a node and its cluster have after a change, beside what was asked for.

use std::process::Child;

use serde_json::{Value, json};

use super::{Joined, NODE, until};

/// Options of one run are no settings of the node.
fn options_of_one_run(cluster: &impl Joined) {
    let once = "--set maintenance.uncordon=false --set maintenance.drain.force=true";
    let _changed = cluster.run(&format!("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000 {once}")).exits(0);
    assert!(cluster.cordoned());
    let _again = cluster.run("node uncordon").exits(0);
    cluster.bind_pods();
    let _changed = cluster.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=4096").exits(0);
    assert!(!cluster.cordoned(), "nobody asked for that a second time");
}

/// A Node that was cordoned before a change stays cordoned, which is said at its end.
fn a_node_that_was_cordoned(cluster: &impl Joined) {
    cluster.schedulable(false);
    let done = cluster.run("reconfigure -y -o json --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0).json();
    assert!(done["warnings"].to_string().contains("NodeStaysCordoned"), "{done:#}");
    assert!(cluster.cordoned());
    cluster.schedulable(true);
    cluster.bind_pods();
}

/// A change of the VNI that waits in its drain, for as long as nobody lets go of this pod.
fn in_its_drain(cluster: &impl Joined, vni: u64) -> (Child, String) {
    let path = "/api/v1/namespaces/demo/pods";
    let pods = cluster.get(&format!("{path}?labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3D{NODE}"));
    let mut pods = pods["items"].as_array().unwrap().iter();
    let pod = pods.find(|pod| pod["metadata"]["deletionTimestamp"].is_null()).unwrap();
    let pod = format!("{path}/{}", pod["metadata"]["name"].as_str().unwrap());
    cluster.patch(&pod, &json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    let run = cluster.begin(&format!("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI={vni}"));
    until("the eviction", || cluster.get(&pod)["metadata"]["deletionTimestamp"].is_string());
    (run, pod)
}

fn let_go(cluster: &impl Joined, pod: &str) {
    cluster.patch(pod, &json!({ "metadata": { "finalizers": null } }));
}

/// A run that is killed in its drain is resumed: its node is cordoned, and has not changed.
fn a_run_that_is_killed_in_its_drain(cluster: &impl Joined) {
    let (mut run, pod) = in_its_drain(cluster, 4096);
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(cluster.lab().status()["run"]["interrupted"], true);
    assert!(cluster.cordoned());
    let_go(cluster, &pod);
    let _resumed = cluster.run("resume -y").exits(0);
    assert!(!cluster.cordoned());
    assert_eq!(cluster.lab().healthy()["run"], Value::Null);
    cluster.bind_pods();
}

/// Somebody uncordons the node while it is drained: new pods may come, so its network is not taken from them.
fn a_node_that_is_uncordoned_in_its_drain(cluster: &impl Joined) {
    let before = cluster.lab().healthy()["generation"].clone();
    let (mut run, pod) = in_its_drain(cluster, 5000);
    cluster.schedulable(true);
    let_go(cluster, &pod);
    let code = run.wait().unwrap().code();
    let said = std::fs::read_to_string(cluster.lab().path("said")).unwrap();
    assert_eq!(code, Some(9), "{said}");
    assert!(said.contains("was uncordoned by somebody while this run needs it empty"), "{said}");
    assert!(!cluster.cordoned());
    assert_eq!(cluster.lab().healthy()["generation"], before);
    cluster.bind_pods();
}

/// All of them on an installed node, whose pods run.
pub fn what_is_kept(cluster: &impl Joined) {
    options_of_one_run(cluster);
    cluster.bind_pods();
    a_node_that_was_cordoned(cluster);
    a_run_that_is_killed_in_its_drain(cluster);
    a_node_that_is_uncordoned_in_its_drain(cluster);
}
