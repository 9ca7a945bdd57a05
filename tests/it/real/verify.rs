//! The pods of `verify` on a real cluster: admission, rights, Pod Security, kubelet, the namespace controller. The runtime
//! of the tests runs no container, so a server runs for ever and a client never ends.

use std::fs;

use calicoctl_win::node::sandbox::model::Name;
use serde_json::{Value, json};

use super::api_server::until;
use super::audit::are_modest;
use super::cluster::{Joined as _, NODE, OPERATOR, RealCluster, V1};
use crate::read;

const NAMESPACE: &str = "calicoctl-win-verify";

/// kubelet of the tests is Linux's, and refuses pods for another system, and images of which it does not know the user.
const AS_LINUX: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: as-linux}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions: [{name: windows, expression: "has(object.spec.os) && object.spec.os.name == 'windows'"}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "remove", path: "/spec/os"}, JSONPatch{op: "remove", path: "/spec/securityContext"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: as-linux}
spec: {policyName: as-linux}
"#;

impl RealCluster {
    fn pods_of_verify(&self) -> Vec<Value> {
        let all = self.server.get(&format!("/api/v1/namespaces/{NAMESPACE}/pods?limit=500"));
        all["items"].as_array().unwrap().clone()
    }

    fn namespace(&self) -> Option<Value> {
        self.server.client().get(&format!("/api/v1/namespaces/{NAMESPACE}")).unwrap()
    }
}

fn verdict(report: &Value, id: &str) -> (String, String) {
    let probes = report["probes"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let probe = probes.iter().find(|probe| probe["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"));
    (probe["verdict"].as_str().unwrap().to_owned(), probe["answered"].as_str().unwrap().to_owned())
}

/// Waits until kubelet has given the server an address, and attaches it to the network of the sandbox, as the CNI plugin
/// would.
fn attach(cluster: &RealCluster) -> String {
    let ip = until("the server to run", || {
        let pods = cluster.pods_of_verify();
        let server = pods.iter().find(|pod| pod["metadata"]["name"] == "server-windows-11851a84")?;
        server["status"]["podIP"].as_str().filter(|_| server["status"]["phase"] == "Running").map(str::to_owned)
    });
    cluster.lab.edit_model(|model| {
        let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
        let mut endpoint = network.endpoints[&Name::new("Calico_ep")].clone();
        (endpoint.ip, endpoint.remote, endpoint.container) = (ip.parse().unwrap(), false, Some("server".into()));
        network.endpoints.insert(Name::new("server_Calico"), endpoint);
    });
    ip
}

fn detach(cluster: &RealCluster) {
    cluster.lab.edit_model(|model| {
        model.networks.get_mut(&Name::new("Calico")).unwrap().endpoints.remove(&Name::new("server_Calico"));
    });
}

#[test]
fn the_pods_of_verify_are_made_bound_timed_out_and_removed_also_after_a_kill() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    cluster.config(cluster.release());
    let _done = cluster.run("install -y").exits(0);
    fs::copy(cluster.server.file("kubeconfig"), cluster.lab.path("admin.yaml")).unwrap();

    // Without the rights of docs/rbac-verify.yaml nothing is started, and all that is missing is said.
    let refused = cluster.run("verify --pods -o json").exits(17).json();
    assert_eq!(refused["error"]["id"], "VerifyRights", "{refused:#}");
    assert!(cluster.namespace().is_none());

    // With that manifest the rights of an operator are enough, also where Pod Security is restricted.
    cluster.kubectl(&["apply", "-f", "-"], &read("docs/rbac-verify.yaml"));
    let security = |level: Option<&str>| {
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        cluster.server.patch(&format!("/api/v1/namespaces/{NAMESPACE}"), &labels);
    };
    security(Some("restricted"));
    // kubelet refuses the pod at once, but may be slow on a busy machine.
    let report = cluster.run("verify --pods --start-timeout 30s -o json").exits(11).json();
    let (failed, why) = verdict(&report, "PodsStart");
    assert!(failed == "fail" && why.contains("has ended: PodOSNotSupported: "), "{why}");
    security(None);
    cluster.server.mutates_by(AS_LINUX);
    let pod = json!({"metadata": {"name": "a"}, "spec": {"os": {"name": "windows"}, "securityContext": {}, "automountServiceAccountToken": false, "containers": [{"name": "a", "image": "a"}]}});
    until("the policy to take effect", || {
        let tried: Value = cluster.server.post("/api/v1/namespaces/demo/pods?dryRun=All", &pod);
        tried["spec"]["os"].is_null().then_some(())
    });

    // The runtime of the tests ends no client: it is waited for, and removed.
    let words = "verify --pods --start-timeout 3s -o json";
    let mark = cluster.mark();
    let run = cluster.begin(words);
    let ip = attach(&cluster);
    let output = run.wait_with_output().unwrap();
    let said = fs::read_to_string(cluster.lab.path("said")).unwrap();
    assert_eq!(output.status.code(), Some(11), "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(verdict(&report, "PodsStart"), ("ok".into(), format!("a pod runs with {ip}")), "{report:#}");
    let (_, why) = verdict(&report, "PodToPod");
    assert_eq!(why, "the pod client-windows-1-11851a84 does not end, for 63 s", "{report:#}");
    // No kubelet answers for the Linux node.
    let (skipped, why) = verdict(&report, "PodToLinux");
    assert_eq!(skipped, "skip");
    assert!(why.contains("the pod server-linux-11851a84 does not run: "), "{why}");
    are_modest(&cluster.asked_since(mark, OPERATOR));
    let bound = |pod: &Value| pod["spec"]["nodeName"] == NODE;
    until("the pods to be removed", || cluster.pods_of_verify().is_empty().then_some(()));
    assert_eq!(report["left"], json!([]), "{report:#}");
    assert!(cluster.namespace().is_some());
    detach(&cluster);

    // It is killed while its pods run.
    let mut run = cluster.begin(words);
    attach(&cluster);
    until("a client", || {
        let pods = cluster.pods_of_verify();
        pods.iter().any(|pod| bound(pod) && pod["metadata"]["name"] == "client-windows-1-11851a84").then_some(())
    });
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(!cluster.pods_of_verify().is_empty());
    let resumed = cluster.run("resume -y").exits(0);
    assert!(resumed.stdout.contains("Removed the pods that verify (run "), "{resumed}");
    assert!(cluster.pods_of_verify().is_empty());
    detach(&cluster);
    let services = cluster.server.get(&format!("/api/v1/namespaces/{NAMESPACE}/services"));
    assert_eq!(services["items"], json!([]));

    // An administrator needs no manifest: verify creates the namespace and removes it. A pod without an endpoint in HNS
    // has no network.
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--wait"], "");
    let report = cluster.lab.alone(&format!("{words} --kubeconfig admin.yaml")).exits(11).json();
    let (_, why) = verdict(&report, "PodsStart");
    assert!(why.contains("and HNS has no endpoint with that address, for 3 s"), "{why}");
    assert_eq!(report["left"], json!([]), "{report:#}");
    assert!(cluster.namespace().is_none());
}
