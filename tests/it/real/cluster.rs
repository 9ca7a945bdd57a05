//! A real cluster with Calico on its Linux nodes and a Windows node that has joined. Its objects are those of the
//! embedded cluster, so that a real server's admission judges them too.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Layout, Seed};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::api_server::{ApiServer, free_ports, until};
use super::parts::part;
use crate::lab::{Lab, Output};
use crate::{project, read};

pub const NODE: &str = "win-a1";

/// A user with exactly the rights of docs/rbac.yaml.
pub const OPERATOR: &str = "operator";

/// Another user with the same rights.
pub const NEIGHBOUR: &str = "neighbour";

/// kubelet of the node.
const KUBELET: &str = "kubelet-of-win-a1";

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
          containerRuntimeVersion: "containerd://1.7.27"}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: on-windows}
spec: {policyName: on-windows}
"#;

/// What a cluster is to have.
#[derive(Clone, Copy)]
pub struct Kind {
    pub layout: Layout,
    /// Where Calico's DaemonSet and accounts are.
    pub namespace: &'static str,
}

pub const V1: Kind = Kind { layout: Layout::V1, namespace: "calico-system" };
pub const V3: Kind = Kind { layout: Layout::V3, namespace: "kube-system" };

/// One cluster at a time: a machine of two cores is slow with several.
static TURN: Mutex<()> = Mutex::new(());

pub struct RealCluster {
    pub server: ApiServer,
    pub lab: Lab,
    kind: Kind,
    _turn: MutexGuard<'static, ()>,
}

/// The release of Calico that the cluster runs.
const fn release(layout: Layout) -> &'static str {
    match layout {
        Layout::V1 => "v3.31.7",
        Layout::V3 => "v3.33.0",
    }
}

impl RealCluster {
    /// Starts one, with a sandbox node that has joined it. None if a program was not built.
    pub fn start(kind: Kind) -> Option<Self> {
        let (manager, kubemark, _kubectl) = (part("kube-controller-manager")?, part("kubemark")?, part("kubectl")?);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let users = format!(
            "{OPERATOR},{OPERATOR},{OPERATOR},\"calicoctl-win\"\n{NEIGHBOUR},{NEIGHBOUR},{NEIGHBOUR},\"calicoctl-win\"\n{KUBELET},system:node:{NODE},{KUBELET},\"system:nodes\"\n"
        );
        let mut server = ApiServer::with_users(&users)?;
        let admin = server.file("kubeconfig").display().to_string();
        let [secure] = free_ports();
        server.beside(
            &manager,
            &[
                format!("--kubeconfig={admin}"),
                format!("--authentication-kubeconfig={admin}"),
                format!("--authorization-kubeconfig={admin}"),
                format!("--service-account-private-key-file={}", server.file("accounts.key").display()),
                format!("--root-ca-file={}", server.file("certs/apiserver.crt").display()),
                "--use-service-account-credentials=true".into(),
                "--leader-elect=false".into(),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={secure}"),
                // No kubelet answers for the Linux node: its pod remains anyway.
                "--controllers=*,-taint-eviction-controller".into(),
            ],
            "kube-controller-manager.log",
        );
        let lab = Lab::new();
        let mut cluster = Self { server, lab, kind, _turn: turn };
        cluster.define();
        cluster.seed();
        cluster.join(&kubemark);
        cluster.lab.write("kubeconfig", cluster.server.kubeconfig_of(OPERATOR));
        cluster.bind_pods();
        Some(cluster)
    }

    /// Calico's own definitions, of its release.
    fn define(&self) {
        let file = match self.kind.layout {
            Layout::V1 => "crd.projectcalico.org-v1.yaml",
            Layout::V3 => "projectcalico.org-v3.yaml",
        };
        let path = project().join("tests/fixtures/calico-crds").join(file);
        self.kubectl(&["apply", "--server-side", "-f", path.to_str().unwrap()], "");
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"], "");
    }

    /// The objects of the embedded cluster, and the rights of docs/rbac.yaml.
    fn seed(&self) {
        let dir = TempDir::new().unwrap();
        let seed = Seed { layout: self.kind.layout, calico: release(self.kind.layout).into(), ..Seed::new(NODE) };
        drop(EmbeddedCluster::start(dir.path(), &seed, &[]).unwrap());
        let saved: Value = serde_json::from_str(&fs::read_to_string(dir.path().join("cluster.json")).unwrap()).unwrap();
        let moved = |text: &str| match self.kind.namespace {
            "calico-system" => text.to_owned(),
            other => text.replace("calico-system", other),
        };
        let mut wanted: Vec<(String, Value)> =
            saved["objects"].as_array().unwrap().iter().filter_map(new_object).collect();
        // What is in a namespace needs it.
        wanted.sort_by_key(|(path, _)| path != "/api/v1/namespaces");
        for (path, object) in &wanted {
            let object: Value = serde_json::from_str(&moved(&object.to_string())).unwrap();
            // An object that the server does not take is a mistake of the embedded cluster's.
            let made =
                self.server.client().post::<_, Value>(&format!("{}?fieldValidation=Strict", moved(path)), &object);
            if let Err(error) = made {
                let text = format!("{error:#}");
                assert!(text.contains("already exists"), "{path}: {text}\n{object:#}");
            }
        }
        let linux = saved["objects"].as_array().unwrap().iter().map(|entry| &entry[1]);
        let linux =
            linux.into_iter().find(|object| object["kind"] == "Node" && object["metadata"]["name"] == "linux-1");
        let status = json!({ "status": linux.unwrap()["status"] });
        self.server.patch("/api/v1/nodes/linux-1/status", &status);
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &moved(&read("docs/rbac.yaml")));
    }

    /// kubelet's own code registers the node and runs its pods, without containers. It says that it is Linux.
    fn join(&mut self, kubemark: &Path) {
        self.kubectl(&["apply", "-f", "-"], ON_WINDOWS);
        // kubelet repeats what it says only every five minutes, so the policy must have taken effect.
        let node = json!({ "metadata": { "name": NODE } });
        until("the policy to take effect", || {
            let tried: Value = self.server.post("/api/v1/nodes?dryRun=All", &node);
            (tried["status"]["nodeInfo"]["operatingSystem"] == "windows").then_some(())
        });
        let kubeconfig = self.server.file("kubelet-kubeconfig");
        fs::write(&kubeconfig, self.server.kubeconfig_of(KUBELET)).unwrap();
        let [port] = free_ports();
        self.server.beside(
            kubemark,
            &[
                "--morph=kubelet".into(),
                format!("--name={NODE}"),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--kubelet-port={port}"),
                "--kubelet-read-only-port=0".into(),
                "--use-host-image-service=false".into(),
            ],
            "kubemark.log",
        );
        let path = format!("/api/v1/nodes/{NODE}");
        let node = until("the node to be Ready", || {
            let node: Value = self.server.client().get(&path).ok().flatten()?;
            let conditions = node["status"]["conditions"].as_array()?.clone();
            let is_ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            is_ready.then_some(node)
        });
        let windows = json!({ "metadata": { "labels": {
            "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348" } } });
        self.server.patch(&path, &windows);
        // The machine has the addresses that kubelet found on this host.
        let addresses = node["status"]["addresses"].as_array().unwrap();
        let internal = addresses.iter().find(|one| one["type"] == "InternalIP").unwrap();
        let address = internal["address"].as_str().unwrap().to_owned();
        let _made = self.lab.alone("service status --kubeconfig kubeconfig").code;
        self.lab.edit_yaml(|yaml| yaml.replace("10.20.0.21/24", &format!("{address}/24")));
        let own = self.server.kubeconfig_of(KUBELET);
        fs::create_dir_all(self.lab.on_node("C/k")).unwrap();
        fs::write(self.lab.on_node("C/k/config"), own).unwrap();
    }

    /// Assigns the pods that wait for a node, as a scheduler would, and waits until kubelet runs them.
    pub fn bind_pods(&self) {
        let pods = |selector: &str| {
            let all = self.server.get(&format!("/api/v1/pods?limit=500&fieldSelector={selector}"));
            all["items"].as_array().unwrap().clone()
        };
        // Three of the Deployment, one of the DaemonSet here, one of the DaemonSet on Linux.
        let mut bound = BTreeSet::new();
        until("the controllers' pods", || {
            for pod in pods("spec.nodeName=") {
                let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
                let linux = pod["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux";
                let binding = json!({
                    "metadata": { "name": name },
                    "target": { "kind": "Node", "name": if linux { "linux-1" } else { NODE } },
                });
                let path = format!(
                    "/api/v1/namespaces/{}/pods/{}/binding",
                    namespace.as_str().unwrap(),
                    name.as_str().unwrap()
                );
                // Its controller may have deleted it since.
                if self.server.client().post::<Value, Value>(&path, &binding).is_ok() {
                    bound.insert(name.to_string());
                }
            }
            let running = pods(&format!("spec.nodeName={NODE},status.phase=Running"));
            let ready = running.iter().filter(|pod| pod["metadata"].get("deletionTimestamp").is_none());
            (ready.count() == 4).then_some(())
        });
    }

    /// Runs kubectl with all rights; it must succeed.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        self.try_kubectl(arguments, input).unwrap_or_else(|said| panic!("kubectl {arguments:?}: {said}"))
    }

    /// The same; returns what kubectl says if it fails.
    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let file = self.lab.path("kubectl-input");
        fs::write(&file, input).unwrap();
        let mut command = Command::new(part("kubectl").expect("it was there"));
        command.args(arguments).stdin(File::open(file).unwrap());
        command.env("KUBECONFIG", self.server.file("kubeconfig")).env("HOME", self.lab.path("tmp"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Runs `calicoctl-win WORDS` on the node as the operator.
    pub fn run(&self, words: &str) -> Output {
        self.lab.alone(&self.with_access(words))
    }

    /// The words of a command with the operator's access and, where the verb reads one, the config.
    pub fn with_access(&self, words: &str) -> String {
        let reads = ["cluster check", "install", "reconfigure"].iter().any(|verb| words.starts_with(verb));
        format!("{words} --kubeconfig kubeconfig{}", if reads { " -c config.yaml" } else { "" })
    }

    /// Writes the config: this release, and where Calico is.
    pub fn config(&self, release: &str) {
        let config = format!(
            "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec:\n  calico: {{version: {release}}}\n  \
             kubernetes: {{calicoNamespace: {}}}\n",
            self.kind.namespace
        );
        self.lab.write("config.yaml", config);
    }

    pub fn node(&self) -> Value {
        self.server.get(&format!("/api/v1/nodes/{NODE}"))
    }

    pub fn cordoned(&self) -> bool {
        self.node()["spec"]["unschedulable"] == true
    }

    pub const fn release(&self) -> &'static str {
        release(self.kind.layout)
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}", self.try_kubectl(&["get", "nodes,pods", "-A", "-o", "wide"], ""));
            for name in ["kube-apiserver", "kube-controller-manager", "kubemark"] {
                let text = fs::read_to_string(self.server.file(&format!("{name}.log"))).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                println!("--- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
    }
}

/// Where a saved object is created, and the object without what a server sets. None if a real server, a controller or
/// kubelet makes it by itself.
fn new_object(entry: &Value) -> Option<(String, Value)> {
    let (key, mut object) = (&entry[0], entry[1].clone());
    let name = key["name"].as_str()?;
    let is_wanted = match object["kind"].as_str()? {
        "ClusterRole" | "ClusterRoleBinding" => name == "calico-node",
        "ConfigMap" => name != "kube-root-ca.crt",
        "CustomResourceDefinition" | "Installation" | "Pod" | "ReplicaSet" | "Secret" | "ServiceCIDR" => false,
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
            pod["nodeSelector"] = json!({ "kubernetes.io/hostname": NODE });
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
