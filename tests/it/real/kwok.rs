//! Kubelets by KWOK, which plays them for nodes without a machine: it keeps their Leases, and their pods go through
//! stages.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use serde_json::{Value, json};

use super::api_server::{ApiServer, end, run};
use super::parts::part;

/// The label of the nodes whose kubelets it plays.
pub const LABEL: &str = "stage";

/// What the run on a node ends with, in pods with this image: a message of `run.ps1`.
pub struct Failure {
    pub image: &'static str,
    pub node: String,
    pub message: String,
}

pub struct Kubelets {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// Its stages, and those without the end of a run.
    stages: [PathBuf; 2],
    log: PathBuf,
    process: Child,
}

impl Kubelets {
    /// None if it was not built.
    pub fn start(server: &ApiServer, failures: &[Failure]) -> Option<Self> {
        let program = part("kwok")?;
        let stages = ["kwok.yaml", "kwok-held.yaml"].map(|name| server.file(name));
        let mut all = stages_of_pods(failures);
        fs::write(&stages[0], documents(&all)).unwrap();
        all.retain(|stage| stage["metadata"]["name"] != ENDS);
        fs::write(&stages[1], documents(&all)).unwrap();
        let (kubeconfig, log) = (server.file("kubeconfig"), server.file("kwok.log"));
        let process = run(&program, &arguments(&kubeconfig, &stages[0]), &log);
        Some(Self { program, kubeconfig, stages, log, process })
    }

    /// From now on no run on a node ends.
    pub fn hold(&mut self, server: &ApiServer) {
        self.restart(server, 1);
    }

    /// The runs that were held end.
    pub fn release(&mut self, server: &ApiServer) {
        self.restart(server, 0);
    }

    fn restart(&mut self, server: &ApiServer, stages: usize) {
        end(&mut self.process);
        // It waits until the Leases of another process of KWOK have expired.
        server.kubectl(&["delete", "leases", "--all", "-n", "kube-node-lease"], "");
        self.process = run(&self.program, &arguments(&self.kubeconfig, &self.stages[stages]), &self.log);
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

fn arguments(kubeconfig: &std::path::Path, stages: &std::path::Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", stages.display()),
        format!("--manage-nodes-with-label-selector={LABEL}"),
        "--node-lease-duration-seconds=40".into(),
    ]
}

fn documents(stages: &[Value]) -> String {
    stages.iter().map(|stage| format!("---\n{stage:#}\n")).collect()
}

/// The stage in which a run ends well.
const ENDS: &str = "apply-ends";

/// A stage: while all of `when` hold, it is done after a delay.
fn stage(kind: &str, name: &str, when: &[Value], delay: u32, step: &Value) -> Value {
    let when: Vec<Value> = when.iter().map(|one| json!({ "jq": one })).collect();
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": { "name": name },
        "spec": {
            "resourceRef": { "apiGroup": "v1", "kind": kind },
            "selector": { "matchExpressions": when },
            "delay": { "durationMilliseconds": delay },
            "steps": [step],
        },
    })
}

fn exists(key: &str) -> Value {
    json!({ "key": key, "operator": "Exists" })
}

fn absent(key: &str) -> Value {
    json!({ "key": key, "operator": "DoesNotExist" })
}

fn is(key: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": "In", "values": values })
}

fn is_not(key: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": "NotIn", "values": values })
}

/// The step that sets the status.
fn becomes(status: &Value) -> Value {
    // JSON is YAML, which its templates are.
    json!({ "patch": { "subresource": "status", "root": "status", "type": "merge", "template": status.to_string() } })
}

const DELETED: &str = ".metadata.deletionTimestamp";
const RUNS: &str = ".status.initContainerStatuses[0].state.running";
const BEGUN: &str = "2026-01-02T15:00:00Z";

/// A container's status. KWOK's templates have its image.
fn container(list: &str, name: &str, state: &Value, last: &Value, ready: bool) -> Value {
    let image = format!("{{{{ (index .spec.{list} 0).image }}}}");
    json!({
        "name": name, "image": image, "imageID": "", "restartCount": 0, "ready": ready, "state": state, "lastState": last,
    })
}

fn ready(status: &str) -> Value {
    json!([{ "type": "Ready", "status": status, "reason": "ContainersNotReady" }])
}

fn apply(state: &Value, last: &Value, ready: bool) -> Value {
    json!([container("initContainers", "apply", state, last, ready)])
}

fn ended(code: i32, message: &str) -> Value {
    json!({ "terminated": {
        "startedAt": BEGUN, "finishedAt": "2026-01-02T15:04:00Z", "exitCode": code, "message": message,
    } })
}

fn running() -> Value {
    json!({ "running": { "startedAt": BEGUN } })
}

/// The nodes are Ready. A pod's init container runs `apply`, and ends; then its container runs, and is ready.
fn stages_of_pods(failures: &[Failure]) -> Vec<Value> {
    let resources = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    let node = json!({
        "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
        "capacity": resources, "allocatable": resources,
    });
    let logs = json!([container("containers", "logs", &running(), &json!({}), true)]);
    let begun = json!({
        "phase": "Pending", "conditions": ready("False"),
        "initContainerStatuses": apply(&running(), &json!({}), false),
    });
    let done = json!({
        "phase": "Running", "conditions": ready("True"), "containerStatuses": logs,
        "initContainerStatuses": apply(&ended(0, ""), &json!({}), true),
    });
    let idle = json!({ "phase": "Running", "conditions": ready("True"), "containerStatuses": logs });
    let here = absent(DELETED);
    let mut ends = vec![here.clone(), exists(RUNS)];
    let mut all = vec![
        stage("Node", "node-ready", &[absent(".status.conditions")], 0, &becomes(&node)),
        stage(
            "Pod",
            "apply-begins",
            &[here.clone(), exists(".spec.initContainers"), absent(".status.initContainerStatuses")],
            0,
            &becomes(&begun),
        ),
        stage(
            "Pod",
            "idle",
            &[here.clone(), absent(".spec.initContainers"), is_not(".status.phase", &["Running"])],
            0,
            &becomes(&idle),
        ),
        // At once, the controller would replace a pod before it has seen that it is deleted.
        stage("Pod", "deleted", &[exists(DELETED)], 500, &json!({ "delete": true })),
    ];
    for (number, failure) in failures.iter().enumerate() {
        let key = "[.spec.containers[0].image, .spec.nodeName] | join(\" \")";
        let pod = format!("{} {}", failure.image, failure.node);
        let failed = json!({ "initContainerStatuses": apply(
            &json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
            &ended(9, &failure.message),
            false,
        ) });
        let fails = [here.clone(), exists(RUNS), is(key, &[&pod])];
        all.push(stage("Pod", &format!("apply-fails-{number}"), &fails, 100, &becomes(&failed)));
        ends.push(is_not(key, &[&pod]));
    }
    all.push(stage("Pod", ENDS, &ends, 100, &becomes(&done)));
    all
}
