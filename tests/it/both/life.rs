//! The life of a node, by a user with exactly the rights of docs/rbac.yaml.

#![expect(clippy::print_stdout, reason = "the counts explain a failure")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Joined;

/// The most requests of a verb.
const MOST: [(&str, usize); 18] = [
    ("cluster check", 45),
    ("cluster prepare", 50),
    ("plan", 50),
    // That changes nothing; one that does is an install, a reconfigure or an upgrade.
    ("apply", 50),
    // By the node's own login, as all that looks again and again.
    ("status", 15),
    ("repair", 15),
    ("node cordon", 10),
    ("node uncordon", 10),
    ("install", 60),
    ("reconfigure", 80),
    ("confirm", 10),
    ("upgrade", 60),
    ("rollback", 20),
    ("uninstall", 60),
    ("credentials rotate", 30),
    ("node drain", 30),
    ("preflight", 55),
    // What `status`, `preflight` and `plan` ask, and each object of the cluster that it collects.
    ("diagnose", 150),
];

/// Runs a verb as the operator, holds what it asks of the server, and returns what it printed. `status` asks as the node.
#[track_caller]
fn does(cluster: &impl Joined, words: &str) -> String {
    let (output, asked) = cluster.asked(words == "status", || cluster.run(words).exits(0));
    let mut counts = BTreeMap::new();
    for one in &asked {
        *counts.entry(one.verb.as_str()).or_insert(0) += 1;
    }
    println!("{words}: {} requests {counts:?}", asked.len());
    let (verb, most) = MOST.iter().find(|(verb, _)| words.starts_with(verb)).expect("the table has the verb");
    assert!((1..=*most).contains(&asked.len()), "{verb}: {} requests, {counts:?}\n{asked:#?}", asked.len());
    output.stdout
}

fn status(cluster: &impl Joined) -> Value {
    cluster.run("status -o json").json()
}

/// A life from the check of the cluster to the removal, first with this release.
pub fn a_life(cluster: &impl Joined, first: &str) {
    let release = cluster.release();
    cluster.config(first);
    does(cluster, "cluster check");
    does(cluster, "install -y");
    assert_eq!(status(cluster)["overall"], "Healthy", "{:#}", status(cluster));
    does(cluster, "preflight");
    does(cluster, "cluster prepare -c config.yaml");
    does(cluster, "plan -c config.yaml --set calicoNetwork.vxlan.vxlanVNI=5000");
    does(cluster, "apply -y -c config.yaml");
    does(cluster, "status");
    std::fs::remove_file(cluster.lab().on_node("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
    does(cluster, "repair -y");
    let said: Value = serde_json::from_str(&does(cluster, "diagnose --out node.zip -o json")).unwrap();
    assert_eq!(said["missing"], json!([]), "the rights are enough for all of it: {said:#}");
    for kind in ["nodes", "ippools", "felixconfigurations", "clusterinformations", "blockaffinities", "ipamblocks"] {
        let file = json!(format!("cluster/{kind}.json"));
        assert!(said["files"].as_array().unwrap().contains(&file), "{kind}: {said:#}");
    }
    let node = cluster.node();
    assert!(node["metadata"]["annotations"]["projectcalico.org/VXLANTunnelMACAddr"].is_string(), "{node:#}");

    cluster.bind_pods();
    let said = does(cluster, "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000");
    assert!(said.contains("evicted 3 pods"), "{said}");
    assert!(!cluster.cordoned());

    cluster.bind_pods();
    does(cluster, "reconfigure -y --mode try --confirm-timeout 10m --set calicoNetwork.vxlan.vxlanVNI=4096");
    does(cluster, "confirm -y");
    assert!(!cluster.cordoned());

    cluster.bind_pods();
    does(cluster, &format!("upgrade -y --set calico.version={release}"));
    does(cluster, "rollback -y");
    assert_eq!(status(cluster)["overall"], "Healthy", "{:#}", status(cluster));
    assert!(!cluster.cordoned());

    does(cluster, "credentials rotate -y");
    cluster.bind_pods();
    does(cluster, "node drain -y");
    does(cluster, "node uncordon -y");
    does(cluster, "node cordon -y");
    assert!(cluster.cordoned());
    does(cluster, "node uncordon -y");

    cluster.bind_pods();
    does(cluster, "uninstall -y --drain");
}
