//! What the server's own authorizers and admission refuse, what another machine holds, and what the cluster lacks: said
//! before anything changes.

use serde_json::{Value, json};

use super::cluster::{KUBELET, OPERATOR, RealCluster, V1};

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/calicoctl-win";
const VNI: &str = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";

impl RealCluster {
    /// Refused as this, with this exit code; nothing was changed, and the server was only read.
    #[track_caller]
    fn refuses(&self, words: &str, code: i32, id: &str) -> Value {
        let (mark, before) = (self.mark(), self.lab.picture_without_state());
        let refused = self.run(&format!("{words} -o json")).exits(code).json();
        assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!(id), &json!(false)), "{words}: {refused:#}");
        self.lab.picture_without_state().same_as(&before);
        assert!(!self.cordoned(), "{words}");
        // Reviews and tokens are created, and stored nowhere.
        let asked = self.asked_since(mark, OPERATOR);
        let written = asked.iter().find(|one| {
            !matches!(one.verb.as_str(), "get" | "list" | "watch")
                && !one.uri.contains("selfsubject")
                && !one.uri.contains("/token?")
        });
        assert!(written.is_none(), "{words}: {written:?}");
        refused
    }

    /// The same with kubelet's own kubeconfig.
    #[track_caller]
    fn refuses_kubelet(&self, more: &str, code: i32) -> Value {
        let before = self.lab.picture_without_state();
        let words = format!("install -y -o json -c config.yaml --kubeconfig kubelet.yaml {more}");
        let refused = self.lab.alone(&words).exits(code).json();
        assert_eq!(refused["error"]["id"], "NodeLogin", "{refused:#}");
        self.lab.picture_without_state().same_as(&before);
        refused
    }
}

/// NodeRestriction lets kubelet ask for the tokens of its own pods only.
fn kubelets_own_kubeconfig(cluster: &RealCluster) {
    cluster.lab.write("kubelet.yaml", cluster.server.kubeconfig_of(KUBELET));
    let bind = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--group=system:nodes"]).collect();
        cluster.kubectl(&words, "");
    };
    bind("create clusterrolebinding nodes-too --clusterrole=calicoctl-win");
    bind("create rolebinding nodes-too --role=calicoctl-win-calico -n calico-system");
    bind("create rolebinding nodes-too --role=calicoctl-win -n default");
    let refused = cluster.refuses_kubelet("", 3);
    let check = refused["error"]["checks"][0].to_string();
    assert!(check.contains("kubelet on win-a1") && check.contains("credentials fetch"), "{check}");
    let insists = "--set kubernetes.credentials=token-request --ignore-preflight-errors NodeLogin";
    let refused = cluster.refuses_kubelet(insists, 17);
    assert!(refused["error"]["why"].to_string().contains("node requested token not bound to a pod"), "{refused:#}");
}

/// A change that could not be finished ends before the cordon.
fn a_right_that_is_missing(cluster: &RealCluster) {
    let all = cluster.server.get(ROLE)["rules"].clone();
    let mut fewer = all.as_array().unwrap().clone();
    fewer.retain(|rule| rule["resources"] != json!(["pods/eviction"]));
    cluster.server.patch(ROLE, &json!({ "rules": fewer }));
    let refused = cluster.refuses(VNI, 17, "ClusterRights");
    let what = refused["error"]["what"].as_str().unwrap();
    assert!(what.contains("create pods/eviction"), "{what}");
    cluster.server.patch(ROLE, &json!({ "rules": all }));
}

fn a_lease_of_another_machine(cluster: &RealCluster) {
    let now = jiff::Timestamp::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "calicoctl-win.win-a1", "namespace": "kube-node-lease" },
        "spec": {
            "holderIdentity": "jump-host/r7", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}"),
        },
    });
    let _last_runs =
        cluster.server.try_kubectl(&["delete", "lease", "calicoctl-win.win-a1", "-n", "kube-node-lease"], "");
    cluster.kubectl(&["create", "-f", "-"], &lease.to_string());
    for verb in [VNI, "node cordon", "node drain -y", "credentials rotate -y", "uninstall -y"] {
        let refused = cluster.refuses(verb, 14, "NodeLeased");
        assert!(refused["error"]["what"].to_string().contains("run r7 on jump-host"), "{refused:#}");
    }
    cluster.kubectl(&["delete", "lease", "calicoctl-win.win-a1", "-n", "kube-node-lease"], "");
}

/// One object that is missing leaves all other answers.
fn an_account_that_is_missing(cluster: &RealCluster) {
    let others = |code: i32| -> Vec<(String, String)> {
        let checked = cluster.run("cluster check -o json").exits(code).json();
        let checks = checked["checks"].as_array().unwrap().iter();
        let mut found: Vec<_> = checks.map(|one| (one["id"].to_string(), one["status"].to_string())).collect();
        let account = found.iter().position(|(id, _)| id == "\"CalicoServiceAccount\"").unwrap();
        assert_eq!(found.remove(account).1, if code == 0 { "\"ok\"" } else { "\"fail\"" }, "{checked:#}");
        found
    };
    let before = others(0);
    cluster.kubectl(&["delete", "serviceaccount", "calico-node", "-n", "calico-system"], "");
    assert_eq!(others(3), before);
}

#[test]
fn what_a_real_server_refuses_is_said_before_anything_changes() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    cluster.config(cluster.release());
    kubelets_own_kubeconfig(&cluster);
    let _installed = cluster.run("install -y").exits(0);
    cluster.bind_pods();
    a_right_that_is_missing(&cluster);
    a_lease_of_another_machine(&cluster);
    let _changed = cluster.run(VNI).exits(0);
    assert!(!cluster.cordoned());
    an_account_that_is_missing(&cluster);
}
