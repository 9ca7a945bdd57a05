//! These stories on the cluster of a sandbox.

use std::cell::Cell;
use std::fs;

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Layout, Seed};
use http::Method;
use serde_json::{Value, json};

use super::{Asked, Joined, Kind, NODE, OPERATOR, V1, failed, kept, life, refused};
use crate::clusters::create;
use crate::lab::{Lab, Output};
use crate::read;

const V3: Kind = Kind { layout: Layout::V3, ..V1 };

struct SandboxCluster {
    lab: Lab,
    cluster: EmbeddedCluster,
    kind: Kind,
    /// How many pods were made.
    made: Cell<u32>,
}

impl SandboxCluster {
    fn start(kind: Kind) -> Self {
        let lab = Lab::node();
        let seed = Seed { layout: kind.layout, calico: kind.release().into(), ..Seed::new(NODE) };
        let noted = ["* /*=noted".parse().unwrap()];
        let cluster = EmbeddedCluster::start(&lab.path("elsewhere"), &seed, &noted).unwrap();
        create(&cluster, &read("docs/rbac.yaml"), |_| {});
        let direct = format!("https://127.0.0.1:{}", cluster.addr().port());
        let own = cluster.kubeconfig_of(OPERATOR, Some("calicoctl-win")).unwrap();
        lab.write("kubeconfig", own.replace(&EmbeddedCluster::stable_url(), &direct));
        let joined = Self { lab, cluster, kind, made: Cell::new(0) };
        let budget = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets/web";
        joined.patch(budget, &json!({ "spec": { "maxUnavailable": 3 } }));
        joined.bind_pods();
        joined
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.lab.path("elsewhere/calls")).unwrap_or_default()
    }
}

impl Joined for SandboxCluster {
    fn lab(&self) -> &Lab {
        &self.lab
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn get(&self, path: &str) -> Value {
        self.cluster.as_admin(&Method::GET, path, None).unwrap()
    }

    fn change(&self, method: &Method, path: &str, body: &Value) {
        self.cluster.as_admin(method, path, Some(body)).unwrap();
    }

    /// No controller of the sandbox replaces the pods of a Deployment.
    fn bind_pods(&self) {
        let pods = "/api/v1/namespaces/demo/pods";
        let set = self.get("/apis/apps/v1/namespaces/demo/replicasets/web-5d8f7c9b6d");
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set["metadata"]["name"], "uid": set["metadata"]["uid"],
            "controller": true,
        });
        let there = self.get(&format!("{pods}?labelSelector=app%3Dweb"));
        for _ in there["items"].as_array().unwrap().len()..3 {
            self.made.set(self.made.get() + 1);
            let name = format!("web-5d8f7c9b6d-{}", self.made.get());
            let pod = json!({
                "metadata": { "name": name, "labels": { "app": "web" }, "ownerReferences": [owner] },
                "spec": { "nodeName": NODE, "containers": [{ "name": "web", "image": "pause" }] },
            });
            self.change(&Method::POST, pods, &pod);
            let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
            self.patch(&format!("{pods}/{name}/status"), &json!({ "status": status }));
        }
    }

    fn asked(&self, by_node: bool, run: impl FnOnce() -> Output) -> (Output, Vec<Asked>) {
        let before = self.calls().len();
        let output = run();
        // The node's requests are those of Calico's programs too.
        let of_user = |line: &&str| by_node == line.ends_with(" (by a service's program)");
        let calls = self.calls();
        let asked = calls[before..].lines().filter(of_user).map(|line| {
            let (method, path) = line.split_once(' ').unwrap();
            let verb = match method {
                "POST" => "create".to_owned(),
                other => other.to_lowercase(),
            };
            Asked { verb, uri: path.to_owned() }
        });
        (output, asked.collect())
    }
}

#[test]
fn a_node_lives_on_the_sandboxs_cluster_with_the_rights_of_rbac_yaml() {
    for (kind, first) in [(V1, "v3.31.6"), (V3, "v3.32.1")] {
        life::a_life(&SandboxCluster::start(kind), first);
    }
}

fn installed(kind: Kind) -> SandboxCluster {
    let cluster = SandboxCluster::start(kind);
    cluster.config(cluster.release());
    let _installed = cluster.run("install -y").exits(0);
    cluster.bind_pods();
    cluster
}

#[test]
fn the_sandboxs_cluster_keeps_what_no_verb_was_asked_for() {
    kept::what_is_kept(&installed(V3));
}

#[test]
fn what_the_sandboxs_cluster_refuses_is_said_before_anything_changes() {
    refused::what_is_refused(&installed(V1));
}

#[test]
fn a_run_that_fails_leaves_the_node_object_of_the_sandboxs_cluster_as_it_was() {
    failed::what_fails(&SandboxCluster::start(V1));
}
