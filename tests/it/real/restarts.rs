//! A server that restarts, or is too busy, while a node is changed.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use calicoctl_win::cluster::Cluster;
use calicoctl_win::settings::Limits;
use serde_json::{Value, json};

use super::api_server::until;
use super::cluster::{Joined as _, NEIGHBOUR, OPERATOR, RealCluster, V1};

/// How many runs a server's restart interrupts; the full form has 30 (`CALICO_WIN_RESTARTS=30`).
fn times() -> usize {
    std::env::var("CALICO_WIN_RESTARTS").map_or(3, |times| times.parse().unwrap())
}

/// A moment of a change of the VNI, which takes about three seconds.
fn a_moment(number: usize) -> Duration {
    Duration::from_millis(RandomState::new().hash_one(number) % 4000)
}

fn installed() -> Option<RealCluster> {
    let cluster = RealCluster::start(V1)?;
    cluster.config(cluster.release());
    let _done = cluster.run("install -y").exits(0);
    Some(cluster)
}

const fn vni(number: usize) -> u64 {
    if number.is_multiple_of(2) { 5000 } else { 4096 }
}

/// It ends as it should, or says that it did not, and is resumed; in the end no node is left cordoned.
#[test]
fn a_change_during_which_the_api_server_restarts_ends_or_is_resumed() {
    let Some(mut cluster) = installed() else { return };
    for number in 0..times() {
        cluster.bind_pods();
        let (moment, vni) = (a_moment(number), vni(number));
        let mut run = cluster.begin(&format!("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI={vni}"));
        thread::sleep(moment);
        cluster.server.restart();
        let code = run.wait().unwrap().code();
        let said = std::fs::read_to_string(cluster.lab.path("said")).unwrap();
        let at = format!("restart {number} after {} ms: exit {code:?}\n{said}", moment.as_millis());
        println!("restart {number} after {} ms: exit {code:?}", moment.as_millis());
        cluster.server.until_up();
        if code != Some(0) {
            let resumed = cluster.run("resume -y");
            assert_eq!(resumed.code, 0, "{at}\nresume: {resumed}");
        }
        // Until it has read the roles, a server that has just started refuses everybody with 403.
        until("the node's login to be let in", || (cluster.lab.status()["overall"] == "Healthy").then_some(()));
        let status = cluster.lab.healthy();
        assert_eq!(status["run"], Value::Null, "{at}\n{status:#}");
        assert!(!cluster.cordoned(), "{at}");
    }
}

/// One seat in API priority and fairness for the group of the operator: what comes while it is taken gets 429.
fn one_seat(cluster: &RealCluster) {
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": { "name": "narrow" },
        "spec": { "type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": { "type": "Reject" } } },
    });
    let all =
        json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"] }]);
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": { "name": "narrow" },
        "spec": {
            "matchingPrecedence": 100, "priorityLevelConfiguration": { "name": "narrow" },
            "rules": [{ "subjects": [{ "kind": "Group", "group": { "name": "calicoctl-win" } }], "resourceRules": all }],
        },
    });
    let both = json!({ "apiVersion": "v1", "kind": "List", "items": [level, schema] });
    cluster.kubectl(&["apply", "--server-side", "-f", "-"], &both.to_string());
}

/// Others of the operator's group keep the one seat taken while the node is changed.
#[test]
fn a_change_whose_requests_are_answered_429_ends_or_is_resumed() {
    let Some(cluster) = installed() else { return };
    cluster.bind_pods();
    one_seat(&cluster);
    let kubeconfig = cluster.lab.path("neighbour");
    std::fs::write(&kubeconfig, cluster.server.kubeconfig_of(NEIGHBOUR)).unwrap();
    let mark = cluster.mark();
    let mut run = cluster.begin("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000");
    let over = AtomicBool::new(false);
    let code = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let limits = Limits { timeout: Duration::from_secs(5), retries: 0, asks: false };
                let neighbour = Cluster::open(Some(&kubeconfig), None, limits).unwrap();
                while !over.load(Ordering::Relaxed) {
                    let _maybe_refused = neighbour.get::<Value>("/api/v1/pods?limit=500");
                }
            });
        }
        let code = run.wait().unwrap().code();
        over.store(true, Ordering::Relaxed);
        code
    });
    let said = std::fs::read_to_string(cluster.lab.path("said")).unwrap();
    let refused = cluster.asked_since(mark, OPERATOR).iter().filter(|one| one.code == 429).count();
    println!("{refused} requests were answered with 429: exit {code:?}");
    assert!(refused > 0, "{said}");
    if code != Some(0) {
        let resumed = cluster.run("resume -y");
        assert_eq!(resumed.code, 0, "{said}\nresume: {resumed}");
    }
    let _healthy = cluster.lab.healthy();
    assert!(!cluster.cordoned());
}
