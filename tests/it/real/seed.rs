//! What makes a cluster of an API server: Calico on its Linux nodes, controllers, and kubelet's own code for a node. Its
//! objects are those of the embedded cluster, so that a real server's admission judges them too.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Layout, Seed};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::api_server::{ApiServer, free_ports, until};
use super::parts::part;

/// kubelet says that it runs on Linux; the server stores another answer, whenever it says so.
const ON_WINDOWS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: on-windows}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [nodes, nodes/status]}
  matchConditions: [{name: node, expression: object.metadata.name == "win-a1"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{status: Object.status{nodeInfo: Object.status.nodeInfo{
          operatingSystem: "windows", osImage: "Windows Server 2022 Datacenter", kernelVersion: "10.0.20348.2700",
          containerRuntimeVersion: "containerd://1.7.27"}ADDRESS}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: on-windows}
spec: {policyName: on-windows}
"#;

impl ApiServer {
    /// Starts kube-controller-manager, which also signs and approves kubelets' certificates.
    pub fn control(&mut self, manager: &Path) {
        let at = |name: &str| self.file(name).display().to_string();
        let (admin, [secure]) = (at("kubeconfig"), free_ports());
        let arguments = [
            format!("--kubeconfig={admin}"),
            format!("--authentication-kubeconfig={admin}"),
            format!("--authorization-kubeconfig={admin}"),
            format!("--service-account-private-key-file={}", at("accounts.key")),
            format!("--root-ca-file={}", at("ca.crt")),
            format!("--cluster-signing-cert-file={}", at("ca.crt")),
            format!("--cluster-signing-key-file={}", at("ca.key")),
            "--use-service-account-credentials=true".into(),
            "--leader-elect=false".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={secure}"),
            // No kubelet answers for the Linux node: its pod remains anyway.
            "--controllers=*,-taint-eviction-controller".into(),
        ];
        // It ends if the server is not ready ten seconds after its start.
        until("the API server to be ready", || self.try_kubectl(&["get", "--raw", "/readyz"], "").ok());
        self.beside(manager, &arguments, "kube-controller-manager.log");
    }

    /// Calico's own definitions, of its release.
    pub fn define(&self, layout: Layout) {
        let file = match layout {
            Layout::V1 => "crd.projectcalico.org-v1.yaml",
            Layout::V3 => "projectcalico.org-v3.yaml",
        };
        self.kubectl(&["apply", "--server-side", "-f", "-"], &read(&format!("tests/fixtures/calico-crds/{file}")));
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"], "");
    }

    /// The objects of an embedded cluster, and the rights of docs/rbac.yaml. `namespace`: Calico's.
    pub fn seed(&self, seed: &Seed, namespace: &str) {
        let dir = TempDir::new().unwrap();
        drop(EmbeddedCluster::start(dir.path(), seed, &[]).unwrap());
        let saved: Value = serde_json::from_str(&fs::read_to_string(dir.path().join("cluster.json")).unwrap()).unwrap();
        let moved = |text: &str| match namespace {
            "calico-system" => text.to_owned(),
            other => text.replace("calico-system", other),
        };
        let objects = saved["objects"].as_array().unwrap();
        let node = seed.windows_node.as_str();
        let mut wanted: Vec<(String, Value)> = objects.iter().filter_map(|entry| new_object(entry, node)).collect();
        // What is in a namespace needs it.
        wanted.sort_by_key(|(path, _)| path != "/api/v1/namespaces");
        for (path, object) in &wanted {
            let object: Value = serde_json::from_str(&moved(&object.to_string())).unwrap();
            // An object that the server does not take is a mistake of the embedded cluster's.
            let made = self.client().post::<_, Value>(&format!("{}?fieldValidation=Strict", moved(path)), &object);
            if let Err(error) = made {
                let text = format!("{error:#}");
                assert!(text.contains("already exists"), "{path}: {text}\n{object:#}");
            }
        }
        let linux = objects.iter().map(|entry| &entry[1]);
        let linux =
            linux.into_iter().find(|object| object["kind"] == "Node" && object["metadata"]["name"] == "linux-1");
        let status = json!({ "status": linux.unwrap()["status"] });
        self.patch("/api/v1/nodes/linux-1/status", &status);
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &moved(&read("docs/rbac.yaml")));
    }

    /// Assigns the pods that wait for a node, as a scheduler would: those for Linux to linux-1, the others to this node.
    pub fn bind_waiting_pods(&self, node: &str) {
        let waiting = self.get("/api/v1/pods?limit=500&fieldSelector=spec.nodeName=");
        for pod in waiting["items"].as_array().unwrap() {
            let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
            let linux = pod["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux";
            let binding = json!({
                "metadata": { "name": name },
                "target": { "kind": "Node", "name": if linux { "linux-1" } else { node } },
            });
            let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
            // Its controller may have deleted it since.
            let _bound = self.client().post::<Value, Value>(&path, &binding);
        }
    }

    /// Creates MutatingAdmissionPolicies, written in v1.
    pub fn mutates_by(&self, policies: &str) {
        let version = |version: &str| format!("apiVersion: admissionregistration.k8s.io/{version}\n");
        let policies = if self.mutates_in_beta() {
            policies.replace(&version("v1"), &version("v1beta1"))
        } else {
            policies.to_owned()
        };
        self.kubectl(&["apply", "-f", "-"], &policies);
    }

    /// Makes the server store of the node win-a1 that it runs Windows, and this address instead of kubelet's.
    pub fn on_windows(&self, address: Option<&str>) {
        let field = |one| format!(", addresses: [Object.status.addresses{{type: \"InternalIP\", address: \"{one}\"}}]");
        let address = address.map(field).unwrap_or_default();
        self.mutates_by(&ON_WINDOWS.replace("ADDRESS", &address));
        // kubelet repeats what it says only every five minutes, so the policy must have taken effect.
        let node = json!({ "metadata": { "name": "win-a1" } });
        until("the policy to take effect", || {
            let tried: Value = self.post("/api/v1/nodes?dryRun=All", &node);
            (tried["status"]["nodeInfo"]["operatingSystem"] == "windows").then_some(())
        });
    }

    /// kubelet's own code registers the node and runs its pods, without containers. It is for Linux: the label is set
    /// when the Node is Ready. Returns the Node as it was then.
    pub fn start_kubemark(&mut self, kubemark: &Path, node: &str, kubeconfig: &Path) -> Value {
        let [port] = free_ports();
        self.beside(
            kubemark,
            &[
                "--morph=kubelet".into(),
                format!("--name={node}"),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--kubelet-port={port}"),
                "--kubelet-read-only-port=0".into(),
                "--use-host-image-service=false".into(),
            ],
            "kubemark.log",
        );
        let path = format!("/api/v1/nodes/{node}");
        let ready = until("the node to be Ready", || {
            let node: Value = self.client().get(&path).ok().flatten()?;
            let conditions = node["status"]["conditions"].as_array()?.clone();
            let is_ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            is_ready.then_some(node)
        });
        let windows = json!({ "metadata": { "labels": {
            "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348" } } });
        self.patch(&path, &windows);
        ready
    }

    /// Runs kubectl with all rights; it must succeed.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        self.try_kubectl(arguments, input).unwrap_or_else(|said| panic!("kubectl {arguments:?}: {said}"))
    }

    /// The same; returns what kubectl says if it fails.
    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let file = self.file("kubectl-input");
        fs::write(&file, input).unwrap();
        let mut command = Command::new(part("kubectl").expect("it was there"));
        command.args(arguments).stdin(File::open(file).unwrap());
        command.env("KUBECONFIG", self.file("kubeconfig")).env("HOME", self.file("home"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

/// A text file of the project.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Where a saved object is created, and the object without what a server sets. None if a real server, a controller or
/// kubelet makes it by itself.
fn new_object(entry: &Value, node: &str) -> Option<(String, Value)> {
    let (key, mut object) = (&entry[0], entry[1].clone());
    let name = key["name"].as_str()?;
    let is_wanted = match object["kind"].as_str()? {
        "ClusterRole" | "ClusterRoleBinding" => name == "calico-node",
        "ConfigMap" => name != "kube-root-ca.crt",
        "CustomResourceDefinition" | "Installation" | "Pod" | "ReplicaSet" | "ServiceCIDR" => false,
        "Secret" => name.starts_with("bootstrap-token-"),
        "Node" => name == "linux-1",
        "Service" => name != "kubernetes",
        "ServiceAccount" => name != "default",
        _ => true,
    };
    if !is_wanted {
        return None;
    }
    object.as_object_mut()?.remove("status");
    for set in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences"] {
        object["metadata"].as_object_mut()?.remove(set);
    }
    if object["kind"] == "PodDisruptionBudget" {
        // No other node takes the pods that are evicted.
        object["spec"]["maxUnavailable"] = 3.into();
    }
    if object["kind"] == "Deployment" {
        object["spec"]["replicas"] = 3.into();
    }
    if let Some(pod) = object.pointer_mut("/spec/template/spec") {
        pod["automountServiceAccountToken"] = false.into();
        // The kubelet of the tests is Linux's, and refuses pods for another system.
        if pod["nodeSelector"]["kubernetes.io/os"] == "windows" {
            pod["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        }
    }
    let version = object["apiVersion"].as_str()?;
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let plural = key["kind"].as_str()?.split('.').next()?;
    let namespace = key["namespace"].as_str()?;
    let path = if namespace.is_empty() {
        format!("{root}/{plural}")
    } else {
        format!("{root}/namespaces/{namespace}/{plural}")
    };
    Some((path, object))
}
