//! `fleet` and `render fleet`, without a real cluster; `real::fleet` has one.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::lab::Lab;

/// What names the rollout, as a command has it.
const ROLLOUT: &str = "--image host/c:1 --api-server https://192.0.2.10:6443";

/// The objects that `render fleet` prints.
fn rendered(lab: &Lab, words: &str) -> Vec<Value> {
    let text = lab.bare(&format!("render fleet {ROLLOUT} {words}")).exits(0).stdout;
    text.split("---\n").map(|one| serde_yaml::from_str(one).unwrap()).collect()
}

#[test]
fn the_nodes_do_not_get_the_way_to_the_cluster_of_the_machine_that_runs_fleet() {
    let lab = Lab::new();
    lab.write(
        "node.yaml",
        "spec: {calico: {version: v3.32.1}, kubernetes: {kubeconfig: /home/admin/.kube/config, context: one, serviceCIDRs: [10.96.0.0/12]}}\n",
    );
    let config = |words: &str| -> Value {
        let objects = rendered(&lab, words);
        let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
        let bytes = BASE64_STANDARD.decode(secret["data"]["node.yaml"].as_str().unwrap()).unwrap();
        serde_yaml::from_slice(&bytes).unwrap()
    };
    let by_file = config("-c node.yaml");
    assert_eq!(by_file["spec"]["kubernetes"], json!({ "serviceCIDRs": ["10.96.0.0/12"] }));
    // An option is a layer of the config, too; another admin's makes no other revision.
    assert_eq!(config("-c node.yaml --kubeconfig other --context two"), by_file);
}
