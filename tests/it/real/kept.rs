//! What a real cluster has after a verb, beside what the verb was asked for, and after one that did not succeed.

use std::process::Command;
use std::time::Duration;

use calicoctl_win::cluster::Cluster;
use calicoctl_win::settings::Limits;
use serde_json::{Value, json};

use super::api_server::until;
use super::cluster::{KUBELET, NODE, RealCluster, V3};
use super::parts::part;
use crate::both::Joined as _;
use crate::both::kept::what_is_kept;
use crate::stories::given_up::{STUCK, TRY, expires, gives_up, guard};

const FELIX: &str = "/apis/projectcalico.org/v3/felixconfigurations/default";

impl RealCluster {
    /// Runs `calicoctl-win WORDS` with all rights.
    #[track_caller]
    fn as_admin(&self, words: &str) -> Value {
        self.lab.alone(&format!("{words} --kubeconfig admin.yaml -o json")).exits(0).json()
    }

    /// Runs a line that this program printed.
    #[track_caller]
    fn types(&self, line: &str) {
        let kubectl = part("kubectl").unwrap();
        let path = format!("{}:{}", kubectl.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", path).env("KUBECONFIG", self.server.file("kubeconfig"));
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{line}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// `cluster prepare` ends with a cluster that passes its check, and prints what undoes each patch.
fn a_prepared_cluster(cluster: &RealCluster) {
    cluster.server.patch(FELIX, &json!({ "spec": { "vxlanEnabled": false, "vxlanPort": 4790 } }));
    let _failed = cluster.run("cluster check").exits(3);
    let shown = cluster.as_admin("cluster prepare");
    let _made = cluster.as_admin("cluster prepare --apply -y");
    let spec = cluster.server.get(FELIX)["spec"].clone();
    assert_eq!((&spec["vxlanEnabled"], &spec["vxlanPort"]), (&Value::Null, &Value::Null), "{spec}");
    let _checked = cluster.run("cluster check").exits(0);

    let undo = shown["patches"][0]["undo"].as_str().unwrap();
    cluster.types(undo);
    let spec = cluster.server.get(FELIX)["spec"].clone();
    assert_eq!((&spec["vxlanEnabled"], &spec["vxlanPort"]), (&json!(false), &json!(4790)), "{undo}: {spec}");
    let _made = cluster.as_admin("cluster prepare --apply -y");
}

/// An admission policy by which the server refuses each update of these resources, unless the expression holds.
fn policy(name: &str, (group, version, resources): (&str, &str, &str), expression: &str) -> String {
    format!(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: ["{group}"], apiVersions: [{version}], operations: [UPDATE], resources: [{resources}]}}]
  validations: [{{expression: "{expression}"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"#
    )
}

/// Of two patches the second one is refused, and is made once that is possible.
fn a_cluster_prepared_in_part(cluster: &RealCluster) {
    let ipam = "/apis/projectcalico.org/v3/ipamconfigurations/default";
    cluster.server.patch(ipam, &json!({ "spec": { "strictAffinity": false } }));
    cluster.server.patch(FELIX, &json!({ "spec": { "vxlanPort": 4790 } }));
    let is_locked =
        || cluster.server.client().merge_patch::<_, Value>(&format!("{FELIX}?dryRun=All"), &json!({})).is_err();
    let locked = policy("locked", ("projectcalico.org", "v3", "felixconfigurations"), "false");
    cluster.kubectl(&["apply", "-f", "-"], &locked);
    until("the policy to take effect", || is_locked().then_some(()));
    let failed = cluster.lab.alone("cluster prepare --apply -y -o json --kubeconfig admin.yaml").exits(7).json();
    assert_eq!(
        (&failed["error"]["state"], &failed["changed"]),
        (
            &json!("1 of 2 patches was made, of ipamconfigurations.projectcalico.org default; no node was changed"),
            &json!(true)
        ),
        "{failed:#}"
    );
    cluster.kubectl(&["delete", "-f", "-"], &locked);
    until("the policy to be gone", || (!is_locked()).then_some(()));
    let rest = cluster.as_admin("cluster prepare --apply -y");
    assert_eq!(rest["msg"], "1 patch made", "{rest:#}");
    let _checked = cluster.run("cluster check").exits(0);
}

/// What this program prints for Calico in kube-system are the rights that a user there needs.
fn rights_as_printed(cluster: &RealCluster) {
    let page = cluster.lab.bare("explain ClusterRights --calico-namespace kube-system").exits(0).stdout;
    let manifest = &page[page.find("apiVersion:").unwrap()..];
    let check = || cluster.run("cluster check").code;
    assert_eq!(check(), 0);
    cluster.kubectl(&["delete", "-f", "-"], manifest);
    until("the user to be refused", || (check() != 0).then_some(()));
    cluster.kubectl(&["apply", "-f", "-"], manifest);
    until("the user to be let in", || (check() == 0).then_some(()));
}

/// A revert that fails again and again is given up and reported at the Node; the change can be kept.
fn a_trial_that_cannot_be_reverted(cluster: &RealCluster) {
    let _tried = cluster.run(TRY).exits(0);
    expires(&cluster.lab, 5);
    gives_up(&guard(&cluster.lab, STUCK));
    let events = cluster.server.get("/api/v1/namespaces/default/events?limit=500&fieldSelector=reason=TrialGivenUp");
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["involvedObject"]["name"], NODE, "{events:#?}");
    assert!(!cluster.cordoned(), "the node works with the change");
    let _kept = cluster.run("confirm -y").exits(0);
    assert_eq!(cluster.lab.healthy()["trial"], Value::Null);
    assert!(!cluster.cordoned());
}

/// A node that is not Ready after a change stays cordoned until it is.
fn a_node_that_is_not_ready(cluster: &RealCluster) {
    let path = format!("/api/v1/nodes/{NODE}");
    // It refuses what kubelet says about its node.
    let silent = policy("silent", ("", "v1", "nodes/status"), "request.userInfo.username != 'system:node:win-a1'");
    cluster.kubectl(&["apply", "-f", "-"], &silent);
    cluster.lab.write("kubelet.yaml", cluster.server.kubeconfig_of(KUBELET));
    let limits = Limits { timeout: Duration::from_secs(20), retries: 0, asks: false };
    let kubelet = Cluster::open(Some(&cluster.lab.path("kubelet.yaml")), None, limits).unwrap();
    until("the policy to take effect", || {
        let tried = kubelet.merge_patch::<Value, Value>(&format!("{path}/status?dryRun=All"), &json!({}));
        tried.is_err().then_some(())
    });
    let mut conditions = cluster.node()["status"]["conditions"].clone();
    let ready = conditions.as_array_mut().unwrap().iter_mut().find(|one| one["type"] == "Ready").unwrap();
    (ready["status"], ready["reason"]) = ("False".into(), "KubeletNotReady".into());
    cluster.server.patch(&format!("{path}/status"), &json!({ "status": { "conditions": conditions } }));

    for words in ["reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=4096", "resume -y"] {
        let failed = cluster.run(&format!("{words} -o json")).exits(11).json();
        assert_eq!(failed["error"]["id"], "NodeNotReady", "{failed:#}");
        assert!(cluster.cordoned(), "{words}");
    }
    cluster.kubectl(&["delete", "-f", "-"], &silent);
    until("kubelet to say that the node is Ready", || {
        let conditions = cluster.node()["status"]["conditions"].clone();
        let ready = conditions.as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
        (ready["status"] == "True").then_some(())
    });
    let _resumed = cluster.run("resume -y").exits(0);
    assert!(!cluster.cordoned());
}

/// A purge of one node leaves the secret that others log in with, and names the command that deletes it.
fn a_shared_secret(cluster: &RealCluster) {
    let _gone = cluster.run("uninstall --purge -y").exits(0);
    let _there = cluster.as_admin("install -y -c config.yaml --set kubernetes.credentials=secret");
    let shared = cluster.lab.read("C/CalicoWindows/calico-kube-config");
    cluster.lab.write("other.yaml", shared);
    let gone = cluster.as_admin("uninstall --purge -y");
    let delete = "kubectl -n kube-system delete secret calico-node-token";
    assert_eq!(gone["next"], json!([delete]), "{gone:#}");
    let asked = cluster.lab.bare("cluster check --kubeconfig other.yaml -o json").json();
    assert_ne!(asked["error"]["id"], "ClusterUnauthorized", "another node still logs in: {asked:#}");
    cluster.types(delete);
    // The server remembers for a few seconds that it let a token in.
    until("the other node to be refused", || {
        let asked = cluster.lab.bare("cluster check --kubeconfig other.yaml -o json").json();
        (asked["error"]["id"] == "ClusterUnauthorized").then_some(())
    });
}

#[test]
fn a_real_cluster_keeps_what_no_verb_was_asked_for() {
    let Some(cluster) = RealCluster::start(V3) else { return };
    cluster.lab.write("admin.yaml", cluster.server.kubeconfig());
    cluster.config(cluster.release());
    rights_as_printed(&cluster);
    a_prepared_cluster(&cluster);
    a_cluster_prepared_in_part(&cluster);
    let _installed = cluster.run("install -y").exits(0);
    cluster.bind_pods();
    what_is_kept(&cluster);
    a_trial_that_cannot_be_reverted(&cluster);
    a_node_that_is_not_ready(&cluster);
    a_shared_secret(&cluster);
}
