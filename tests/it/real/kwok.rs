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

/// What the runs on some nodes end with, in pods with this image: a message of `run.ps1`.
pub struct Failure {
    pub image: &'static str,
    pub nodes: Vec<String>,
    pub message: String,
}

/// The runs of a fleet's nodes that do not simply end well.
#[derive(Default)]
pub struct Runs {
    pub failures: Vec<Failure>,
    /// Nodes on which a run is made: its container ends with the code and the message of these annotations of its pod.
    pub made: Vec<String>,
    /// The nodes' Leases are renewed every few minutes: those of a thousand nodes would be most of the requests.
    pub rare_leases: bool,
}

/// The annotation of a pod with the exit code of its run.
pub const CODE: &str = "tests/code";

/// The annotation of a pod with the last lines of its run.
pub const MESSAGE: &str = "tests/message";

pub struct Kubelets {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// Its stages, and those without the end of a run.
    stages: [PathBuf; 2],
    log: PathBuf,
    lease: u32,
    process: Child,
}

impl Kubelets {
    /// None if it was not built.
    pub fn start(server: &ApiServer, runs: &Runs) -> Option<Self> {
        let program = part("kwok")?;
        let stages = ["kwok.yaml", "kwok-held.yaml"].map(|name| server.file(name));
        let mut all = stages_of(runs);
        fs::write(&stages[0], documents(&all)).unwrap();
        all.retain(|stage| stage["metadata"]["name"] != ENDS);
        fs::write(&stages[1], documents(&all)).unwrap();
        let (kubeconfig, log) = (server.file("kubeconfig"), server.file("kwok.log"));
        let lease = if runs.rare_leases { 1200 } else { 40 };
        let process = run(&program, &arguments(&kubeconfig, &stages[0], lease), &log);
        Some(Self { program, kubeconfig, stages, log, lease, process })
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
        self.process = run(&self.program, &arguments(&self.kubeconfig, &self.stages[stages], self.lease), &self.log);
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

fn arguments(kubeconfig: &std::path::Path, stages: &std::path::Path, lease: u32) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", stages.display()),
        format!("--manage-nodes-with-label-selector={LABEL}"),
        format!("--node-lease-duration-seconds={lease}"),
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
const WAITS: &str = ".status.initContainerStatuses[0].state.waiting";
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
fn stages_of(runs: &Runs) -> Vec<Value> {
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
    for (number, failure) in runs.failures.iter().enumerate() {
        let key = "[.spec.containers[0].image, .spec.nodeName] | join(\" \")";
        let pods: Vec<String> = failure.nodes.iter().map(|node| format!("{} {node}", failure.image)).collect();
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        let failed = json!({ "initContainerStatuses": apply(
            &json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
            &ended(9, &failure.message),
            false,
        ) });
        let fails = [here.clone(), exists(RUNS), is(key, &pods)];
        all.push(stage("Pod", &format!("apply-fails-{number}"), &fails, 100, &becomes(&failed)));
        ends.push(is_not(key, &pods));
    }
    if !runs.made.is_empty() {
        let nodes: Vec<&str> = runs.made.iter().map(String::as_str).collect();
        ends.push(is_not(".spec.nodeName", &nodes));
        all.extend(stages_of_runs(&done));
    }
    all.push(stage("Pod", ENDS, &ends, 100, &becomes(&done)));
    all
}

/// The init container ends as its pod's annotations say; one that failed starts again.
fn stages_of_runs(done: &Value) -> [Value; 3] {
    let code = format!(".metadata.annotations[\"{CODE}\"]");
    let here = absent(DELETED);
    let failed = |state: &Value| json!({ "initContainerStatuses": apply(state, &ended(4711, "MESSAGE"), false) });
    let annotated = |step: Value| {
        let template = step["patch"]["template"].as_str().unwrap();
        let code = format!("{{{{ index .metadata.annotations {CODE:?} }}}}");
        let message = format!("{{{{ index .metadata.annotations {MESSAGE:?} | Quote }}}}");
        let template = template.replace("4711", &code).replace("\"MESSAGE\"", &message);
        let mut step = step;
        step["patch"]["template"] = template.into();
        step
    };
    let fails = annotated(becomes(&failed(&json!({ "waiting": { "reason": "CrashLoopBackOff" } }))));
    let mut again = stage("Pod", "run-again", &[here.clone(), exists(&code), exists(WAITS)], 10_000, &json!({}));
    let none = json!({ "annotations": { CODE: null, MESSAGE: null } });
    again["spec"]["steps"] = json!([
        { "patch": { "root": "metadata", "type": "merge", "template": none.to_string() } },
        annotated(becomes(&failed(&running()))),
    ]);
    [
        stage("Pod", "run-ends", &[here.clone(), exists(RUNS), is(&code, &["0"])], 0, &becomes(done)),
        stage("Pod", "run-fails", &[here, exists(RUNS), exists(&code), is_not(&code, &["0"])], 0, &fails),
        // After kubelet's first pause.
        again,
    ]
}
