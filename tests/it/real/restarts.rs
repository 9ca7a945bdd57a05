//! A server that restarts, or is too busy, while a node is changed.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{OPERATOR, RealCluster, V1};

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
        let words = cluster.with_access(&format!("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI={vni}"));
        let said = cluster.lab.path("said");
        let mut command = cluster.lab.command(&words);
        command.args(["--sandbox", "node"]).stdin(Stdio::null());
        let (out, err) = (File::create(&said).unwrap(), File::options().append(true).open(&said).unwrap());
        let mut run = command.stdout(out).stderr(err).spawn().unwrap();
        thread::sleep(moment);
        cluster.server.restart();
        let code = run.wait().unwrap().code();
        let said = std::fs::read_to_string(&said).unwrap();
        let at = format!("restart {number} after {} ms: exit {code:?}\n{said}", moment.as_millis());
        println!("restart {number} after {} ms: exit {code:?}", moment.as_millis());
        cluster.server.until_up();
        if code != Some(0) {
            let resumed = cluster.run("resume -y");
            assert!(matches!(resumed.code, 0), "{at}\nresume: {resumed}");
        }
        let status = cluster.lab.healthy();
        assert_eq!(status["run"], Value::Null, "{at}\n{status:#}");
        assert!(!cluster.cordoned(), "{at}");
    }
}

/// API priority and fairness leaves the operator one request at a time, and refuses the others.
#[test]
fn a_server_that_answers_429_slows_a_change_and_does_not_break_it() {
    let Some(cluster) = installed() else { return };
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": { "name": "narrow" },
        "spec": { "type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": { "type": "Reject" } } },
    });
    let all =
        json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"] }]);
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": { "name": "narrow" },
        "spec": {
            "matchingPrecedence": 100, "priorityLevelConfiguration": { "name": "narrow" },
            "rules": [{ "subjects": [{ "kind": "User", "user": { "name": OPERATOR } }], "resourceRules": all }],
        },
    });
    for object in [level, schema] {
        cluster.kubectl(&["apply", "--server-side", "-f", "-"], &object.to_string());
    }
    let mark = cluster.mark();
    let _done = cluster.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
    let refused = cluster.asked_since(mark, OPERATOR).iter().filter(|one| one.code == 429).count();
    assert!(refused > 0, "the server had time for all of it");
    println!("{refused} requests were answered with 429");
    let _healthy = cluster.lab.healthy();
    assert!(!cluster.cordoned());
}
