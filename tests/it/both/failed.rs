//! What the Node object says after runs that failed, and after one that was killed.

use serde_json::Value;

use super::{Joined, NODE};

const VNI: &str = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";

/// What Calico and this program write to the Node: whether Calico's network is up, and the node's settings.
fn told(cluster: &impl Joined) -> (bool, Value) {
    let node = cluster.node();
    let up = node["status"]["conditions"].as_array().unwrap().iter().any(|one| one["reason"] == "CalicoIsUp");
    (up, node["metadata"]["annotations"]["calicoctl-win/settings"].clone())
}

/// How the changes of the node ended, as `kubectl describe node` shows it.
fn events(cluster: &impl Joined) -> Vec<String> {
    let events = cluster.get("/api/v1/namespaces/default/events?limit=500");
    let own = events["items"].as_array().unwrap().iter().filter(|one| one["involvedObject"]["name"] == NODE);
    let own = own.filter(|one| one["source"]["component"] == "calicoctl-win");
    let mut events: Vec<String> =
        own.map(|one| format!("{} {}", one["type"], one["reason"]).replace('"', "")).collect();
    events.sort();
    events
}

/// A first install that fails, or is undone after it was killed, leaves nothing of Calico on the Node: the scheduler
/// would place pods there.
fn a_first_install(cluster: &impl Joined) {
    let _failed = cluster.fails_at("put cni-conf *=disk-full", "install -y").exits(9);
    assert_eq!(told(cluster), (false, Value::Null));
    let _killed = cluster.fails_at("put cni-conf *=exit-after", "install -y").exits(137);
    assert!(told(cluster).0, "Calico's node startup has said so");
    let _undone = cluster.run("resume -y --undo").exits(0);
    assert_eq!(told(cluster), (false, Value::Null));
}

/// A change that fails is reverted: the Node is schedulable and has the settings of the previous generation.
fn a_change(cluster: &impl Joined) {
    let before = told(cluster);
    let failed = cluster.fails_at("put running CalicoFelix=fail", &format!("{VNI} -o json")).exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed:#}");
    assert_eq!((told(cluster), cluster.cordoned()), (before, false));
    cluster.lab().healthy();
    cluster.bind_pods();
}

/// On a node without Calico, whose pods run.
pub fn what_fails(cluster: &impl Joined) {
    cluster.config(cluster.release());
    a_first_install(cluster);
    let _installed = cluster.run("install -y").exits(0);
    assert!(told(cluster).0 && told(cluster).1.is_string(), "{:?}", told(cluster));
    cluster.bind_pods();
    a_change(cluster);
    let _changed = cluster.run(VNI).exits(0);
    // Of the two installs and of the two changes.
    let (done, failed) = ("Normal CalicoChanged", "Warning CalicoChangeFailed");
    assert_eq!(events(cluster), [done, done, failed, failed]);
    let _gone = cluster.run("uninstall -y --drain").exits(0);
    assert_eq!(told(cluster), (false, Value::Null));
}
