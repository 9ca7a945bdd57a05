//! The life of a node, by a user with exactly the rights of docs/rbac.yaml.

use serde_json::{Value, json};

use super::audit::{are_modest, counted};
use super::cluster::{Kind, OPERATOR, RealCluster, V1, V3};

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

impl RealCluster {
    /// Runs a verb as the operator, holds what it asks of the server, and returns what it printed. `status` asks as the
    /// node.
    #[track_caller]
    fn does(&self, words: &str) -> String {
        let mark = self.mark();
        let output = self.run(words).exits(0);
        let account = format!("system:serviceaccount:{}:calico-node", self.kind.namespace);
        let asked = self.asked_since(mark, if words == "status" { &account } else { OPERATOR });
        assert!(!asked.is_empty(), "{words}");
        are_modest(&asked);
        let (verb, most) = MOST.iter().find(|(verb, _)| words.starts_with(verb)).expect("the table has the verb");
        let counts = counted(&asked);
        println!("{words}: {} requests {counts:?}", asked.len());
        assert!(asked.len() <= *most, "{verb}: {} requests, {counts:?}\n{asked:#?}", asked.len());
        output.stdout
    }

    fn status(&self) -> Value {
        self.run("status -o json").json()
    }
}

fn a_life(kind: Kind, first: &str) {
    let Some(cluster) = RealCluster::start(kind) else { return };
    let release = cluster.release();
    cluster.config(first);
    cluster.does("cluster check");
    cluster.does("install -y");
    assert_eq!(cluster.status()["overall"], "Healthy", "{:#}", cluster.status());
    cluster.does("preflight");
    cluster.does("cluster prepare -c config.yaml");
    cluster.does("plan -c config.yaml --set calicoNetwork.vxlan.vxlanVNI=5000");
    cluster.does("apply -y -c config.yaml");
    cluster.does("status");
    std::fs::remove_file(cluster.lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
    cluster.does("repair -y");
    let said: Value = serde_json::from_str(&cluster.does("diagnose --out node.zip -o json")).unwrap();
    assert_eq!(said["missing"], json!([]), "the rights are enough for all of it: {said:#}");
    for kind in ["nodes", "ippools", "felixconfigurations", "clusterinformations", "blockaffinities", "ipamblocks"] {
        let file = json!(format!("cluster/{kind}.json"));
        assert!(said["files"].as_array().unwrap().contains(&file), "{kind}: {said:#}");
    }
    let node = cluster.node();
    assert!(node["metadata"]["annotations"]["projectcalico.org/VXLANTunnelMACAddr"].is_string(), "{node:#}");

    cluster.bind_pods();
    let said = cluster.does("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000");
    assert!(said.contains("evicted 3 pods"), "{said}");
    assert!(!cluster.cordoned());

    cluster.bind_pods();
    cluster.does("reconfigure -y --mode try --confirm-timeout 10m --set calicoNetwork.vxlan.vxlanVNI=4096");
    cluster.does("confirm -y");
    assert!(!cluster.cordoned());

    cluster.bind_pods();
    cluster.does(&format!("upgrade -y --set calico.version={release}"));
    cluster.does("rollback -y");
    assert_eq!(cluster.status()["overall"], "Healthy", "{:#}", cluster.status());
    assert!(!cluster.cordoned());

    cluster.does("credentials rotate -y");
    cluster.bind_pods();
    cluster.does("node drain -y");
    cluster.does("node uncordon -y");
    cluster.does("node cordon -y");
    assert!(cluster.cordoned());
    cluster.does("node uncordon -y");

    cluster.bind_pods();
    cluster.does("uninstall -y --drain");
}

#[test]
fn a_node_of_the_v1_group_lives_on_a_real_cluster_with_the_rights_of_rbac_yaml() {
    a_life(V1, "v3.31.6");
}

#[test]
fn a_node_of_the_v3_group_lives_on_a_real_cluster_with_the_rights_of_rbac_yaml() {
    a_life(V3, "v3.32.1");
}
