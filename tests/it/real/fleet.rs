//! `fleet` on a real cluster: its scheduler, and its DaemonSet controller, which limits how many nodes are out at once.
//! The nodes have no kubelet: a stand-in reports what their pods would.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use calicoctl_win::cluster::{Cluster, query};
use calicoctl_win::settings::Limits;
use serde_json::{Value, json};

use super::api_server::{free_ports, until};
use super::cluster::{NODE, RealCluster, V1};
use super::parts::part;
use crate::lab::{Lab, Output};

/// A node that its label leaves out.
const OUT: &str = "node-out";

pub const NODES: usize = 40;
const CANARIES: usize = 2;
/// In percent of the 38 nodes after the canaries: four.
const AT_ONCE: &str = "--max-unavailable 10%";
const LIMIT: usize = 4;

const PODS: &str = "/api/v1/namespaces/calicoctl-win/pods";

/// How often a kubelet renews its Lease; its node is lost after 40 s without.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// What the pods of a node end with, by the revision's image and the node: the message of a failed one.
type Ends = Arc<Mutex<BTreeMap<(String, String), String>>>;

/// The kubelets of all nodes.
pub struct Kubelets {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// What fails, and with which message.
    ends: Ends,
    /// No run on a node ends while this is set.
    pub slow: Arc<AtomicBool>,
    /// The most nodes without a ready pod at the same time, after it was set to 0.
    most_out: Arc<AtomicUsize>,
}

impl Kubelets {
    fn start(client: Cluster, names: Vec<String>) -> Self {
        let (stop, slow) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (ends, most_out) = (Ends::default(), Arc::new(AtomicUsize::new(0)));
        let all = (Arc::clone(&stop), Arc::clone(&ends), Arc::clone(&slow), Arc::clone(&most_out));
        let thread = thread::spawn(move || {
            let (stop, ends, slow, most_out) = all;
            let mut renewed: Option<Instant> = None;
            while !stop.load(Ordering::SeqCst) {
                if renewed.is_none_or(|at| at.elapsed() > RENEW_EVERY) {
                    names.iter().for_each(|name| renew(&client, name));
                    renewed = Some(Instant::now());
                }
                let Ok(pods) = client.list::<Value>(PODS) else {
                    thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let ready = pods.iter().filter(|pod| is_ready(pod)).count();
                most_out.fetch_max(names.len().saturating_sub(ready), Ordering::SeqCst);
                for pod in &pods {
                    act(&client, pod, &ends.lock().unwrap(), slow.load(Ordering::SeqCst));
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        Self { stop, thread: Some(thread), ends, slow, most_out }
    }

    fn fail(&self, image: &str, node: &str, message: String) {
        self.ends.lock().unwrap().insert((image.to_owned(), node.to_owned()), message);
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["metadata"].get("deletionTimestamp").is_none()
        && conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Renews the Lease of a node.
fn renew(client: &Cluster, name: &str) {
    let now = jiff::Timestamp::now().to_string();
    let spec = json!({ "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format!("{:.26}Z", now.trim_end_matches('Z')) });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease =
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": spec });
    if client.merge_patch::<_, Value>(&format!("{leases}/{name}"), &json!({ "spec": spec })).is_err() {
        let _made = client.post::<_, Value>(leases, &lease);
    }
}

/// What the kubelet of a pod's node does with it.
fn act(client: &Cluster, pod: &Value, ends: &BTreeMap<(String, String), String>, slow: bool) {
    let name = pod["metadata"]["name"].as_str().unwrap();
    let Some(node) = pod["spec"]["nodeName"].as_str() else { return };
    let path = format!("{PODS}/{name}");
    if pod["metadata"].get("deletionTimestamp").is_some() {
        // Its containers have ended.
        let _gone = client.delete(&query(&path, &[("gracePeriodSeconds", "0")]));
        return;
    }
    let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
    let applies = pod["spec"].get("initContainers").is_some();
    if applies && slow || pod["status"].get("conditions").is_some_and(|_| is_ready(pod)) {
        return;
    }
    let times = json!({ "startedAt": "2026-01-02T15:00:00Z", "finishedAt": "2026-01-02T15:04:00Z" });
    let terminated = |code: i32, message: &str| {
        let mut ended = times.clone();
        ended["exitCode"] = code.into();
        ended["message"] = message.into();
        ended
    };
    let container = |name: &str, state: Value, last: Value, ready: bool| json!({ "name": name, "image": image, "imageID": "", "restartCount": 0, "ready": ready, "state": state, "lastState": last });
    let failure = ends.get(&(image.to_owned(), node.to_owned())).filter(|_| applies);
    let status = match failure {
        Some(message) => json!({
            "phase": "Pending",
            "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotInitialized" }],
            "initContainerStatuses": [container(
                "apply",
                json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
                json!({ "terminated": terminated(9, message) }),
                false,
            )],
        }),
        None => {
            let done = container("apply", json!({ "terminated": terminated(0, "") }), json!({}), true);
            json!({
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True" }],
                "initContainerStatuses": if applies { json!([done]) } else { json!([]) },
                "containerStatuses": [container("logs", json!({ "running": {} }), json!({}), true)],
            })
        }
    };
    if failure.is_none() || pod["status"]["initContainerStatuses"].is_null() {
        let _said = client.merge_patch::<_, Value>(&format!("{path}/status"), &json!({ "status": status }));
    }
}

pub struct Fleet {
    pub kubelets: Kubelets,
    pub cluster: RealCluster,
}

impl Fleet {
    pub fn start() -> Option<Self> {
        let scheduler = part("kube-scheduler")?;
        let mut cluster = RealCluster::start(V1)?;
        // kubelet's own code is Linux's, and refuses pods for Windows.
        cluster.kubectl(&["label", "node", NODE, "kubernetes.io/os=linux", "--overwrite"], "");
        let admin = cluster.server.file("kubeconfig").display().to_string();
        let [secure] = free_ports();
        let arguments = [
            format!("--kubeconfig={admin}"),
            format!("--authentication-kubeconfig={admin}"),
            format!("--authorization-kubeconfig={admin}"),
            "--leader-elect=false".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={secure}"),
        ];
        cluster.server.beside(&scheduler, &arguments, "kube-scheduler.log");
        let names: Vec<String> = (1..=NODES).map(|number| format!("node-{number:02}")).collect();
        for (number, name) in names.iter().enumerate() {
            let stage = if number < CANARIES { "canary" } else { "others" };
            let labels = json!({ "kubernetes.io/os": "windows", "kubernetes.io/hostname": name, "stage": stage });
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
            cluster.server.post("/api/v1/nodes", &node);
            let resources = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "KubeletReady" }]);
            let status = json!({ "status": { "conditions": ready, "capacity": resources, "allocatable": resources } });
            cluster.server.patch(&format!("/api/v1/nodes/{name}/status"), &status);
        }
        let out = json!({ "kubernetes.io/os": "windows", "calicoctl-win/fleet": "off" });
        cluster.server.post("/api/v1/nodes", &json!({ "metadata": { "name": OUT, "labels": out } }));
        let limits = Limits { timeout: Duration::from_secs(20), retries: 0 };
        let client = Cluster::open(Some(&cluster.server.file("kubeconfig")), None, limits).unwrap();
        fs::copy(cluster.server.file("kubeconfig"), cluster.lab.path("admin")).unwrap();
        cluster.lab.write("node.yaml", "spec: {calico: {version: v3.31.7}}\n");
        cluster.lab.write("vni.yaml", "spec: {calico: {version: v3.31.7}, calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
        Some(Self { kubelets: Kubelets::start(client, names), cluster })
    }

    pub fn run(&self, words: &str) -> Output {
        self.cluster.lab.bare(&format!("{words} --kubeconfig admin -o json"))
    }

    /// A change of all nodes, the canaries first. The address is one that nodes reach.
    pub fn change(verb: &str, config: &str, image: &str) -> String {
        format!(
            "fleet {verb} -c {config} --image registry.example.com/calicoctl-win:{image} {AT_ONCE} \
             --canary stage=canary --api-server https://192.0.2.10:6443"
        )
    }

    fn status(&self) -> Value {
        let output = self.run("fleet status");
        assert!([0, 12].contains(&output.code), "{output}");
        output.json()
    }

    /// The revisions that pods were ready with: a node each.
    fn revisions(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in self.cluster.server.get(PODS)["items"].as_array().unwrap().iter().filter(|pod| is_ready(pod)) {
            let revision = pod["metadata"]["annotations"]["calicoctl-win/revision"].as_str().unwrap();
            found.entry(revision.to_owned()).or_default().insert(pod["spec"]["nodeName"].as_str().unwrap().to_owned());
        }
        found
    }
}

/// The last line of a failed container, as run.ps1 makes it of the result of a run: here of one in a sandbox.
fn message() -> String {
    let lab = Lab::node();
    lab.write("node.yaml", "spec: {calico: {version: v3.31.7}}\n");
    let failed = lab.fails_at("put service CalicoFelix=fail", "apply -y -c node.yaml -o json");
    let result = failed.json();
    assert_eq!(result["success"], false, "{failed}");
    let line = json!({
        "exit_name": result["exit_name"], "id": result["error"]["id"], "what": result["error"]["what"],
    });
    format!("run r on NODE: apply\nresult: {line}\n")
}

#[test]
fn a_change_of_many_nodes_stops_at_the_failed_ones_and_is_undone() {
    let Some(fleet) = Fleet::start() else { return };
    // Only looked at.
    let plan = fleet.run(&Fleet::change("plan", "vni.yaml", "2")).exits(0).json();
    let waves = plan["waves"].as_array().unwrap();
    let planned: Vec<(&Value, usize)> =
        waves.iter().map(|wave| (&wave["name"], wave["nodes"].as_array().unwrap().len())).collect();
    assert_eq!(planned, [(&json!("canary"), CANARIES), (&json!("others"), NODES - CANARIES)]);
    assert_eq!((&plan["vni"], &plan["left_out"]), (&json!(5000), &json!([OUT])));
    assert_eq!(waves[1]["at_once"], LIMIT);
    let absent = fleet.run("fleet status").exits(24).json();
    assert_eq!(absent["error"]["id"], "FleetAbsent", "{absent:#}");

    // Every node, and never more at once than allowed: also not at the beginning, when there were no pods.
    let first = fleet.run(&Fleet::change("apply", "node.yaml", "1 -y")).exits(0).json();
    assert_eq!(first["changed"], true);
    let done = fleet.status();
    let states: Vec<&Value> = done["waves"].as_array().unwrap().iter().map(|wave| &wave["state"]).collect();
    assert_eq!(states, ["Done", "Done"], "{done:#}");
    let old = done["revision"].as_str().unwrap().to_owned();
    assert_eq!(fleet.revisions().get(&old).map(BTreeSet::len), Some(NODES));
    assert_eq!((&done["uncovered"], &done["left_out"]), (&json!([]), &json!([OUT])));

    // As many nodes fail as may be out at once.
    let message = message();
    let image = "registry.example.com/calicoctl-win:2";
    let broken: Vec<String> = (20..20 + LIMIT).map(|number| format!("node-{number}")).collect();
    broken.iter().for_each(|node| fleet.kubelets.fail(image, node, message.clone()));
    fleet.kubelets.most_out.store(0, Ordering::SeqCst);
    let stopped = fleet.run(&Fleet::change("apply", "vni.yaml", "2 -y")).exits(1).json();
    assert_eq!(stopped["error"]["id"], "FleetStopped", "{stopped:#}");
    assert_eq!(fleet.kubelets.most_out.load(Ordering::SeqCst), LIMIT, "the limit is reached, and kept");
    let status = fleet.status();
    assert_eq!(status["waves"][1]["state"], "Stopped", "{status:#}");
    let failures = status["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{status:#}");
    let mut named: Vec<&str> =
        failures[0]["nodes"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, broken);
    assert!(message.contains(failures[0]["id"].as_str().unwrap()) && failures[0]["id"] != "Failed", "{status:#}");
    let new = status["revision"].as_str().unwrap().to_owned();
    assert_ne!(new, old);

    // Every node is as it was again.
    let back = fleet.run("fleet rollback -y").exits(0).json();
    assert_eq!(back["changed"], true, "{back:#}");
    until("every node to have the former revision", || {
        (fleet.revisions().get(&old).map(BTreeSet::len) == Some(NODES)).then_some(())
    });
    until("the controller's numbers", || (fleet.status()["waves"][1]["state"] == "Done").then_some(()));
    assert_eq!(fleet.status()["failures"], json!([]));

    // Pods that are replaced by pods that install the same are not done before.
    fleet.kubelets.slow.store(true, Ordering::SeqCst);
    let restart = ["rollout", "restart", "daemonset/calicoctl-win-others", "-n", "calicoctl-win"];
    fleet.cluster.kubectl(&restart, "");
    let begun = until("pods to be replaced", || {
        let wave = fleet.status()["waves"][1].clone();
        assert_eq!(wave["state"], "Rolling", "{wave:#}");
        (wave["in_progress"] != 0).then_some(wave)
    });
    assert_eq!(begun["done"], 0, "{begun:#}");
    fleet.kubelets.slow.store(false, Ordering::SeqCst);
    until("every pod to be replaced", || (fleet.status()["waves"][1]["state"] == "Done").then_some(()));
}

#[test]
fn a_pause_lets_no_further_node_begin_and_the_same_command_continues() {
    let Some(fleet) = Fleet::start() else { return };
    let _done = fleet.run(&Fleet::change("apply", "node.yaml", "1 -y")).exits(0);
    fleet.kubelets.slow.store(true, Ordering::SeqCst);
    let words = Fleet::change("apply", "vni.yaml", "2 -y");
    let waiting = fleet.cluster.lab.command(&format!("{words} --kubeconfig admin -o json"));
    let waiting = thread::spawn(move || Output::of("fleet apply", waiting));
    until("the canaries to begin", || (fleet.status()["waves"][0]["in_progress"] != 0).then_some(()));
    let paused = fleet.run("fleet pause").exits(0).json();
    assert_eq!(paused["changed"], true);
    let said = waiting.join().unwrap().exits(1).json();
    assert_eq!(said["error"]["id"], "FleetPaused", "{said:#}");
    assert_eq!(fleet.run("fleet pause").exits(0).json()["changed"], false);
    // What has begun ends, and the wave is as far as it was.
    fleet.kubelets.slow.store(false, Ordering::SeqCst);
    let status = until("the nodes that have begun", || {
        let status = fleet.status();
        (status["waves"][0]["in_progress"] == 0).then_some(status)
    });
    assert_eq!(status["waves"][0]["state"], "Paused", "{status:#}");
    assert_eq!(status["waves"][1]["state"], "Waiting", "{status:#}");
    assert!(status["waves"][0]["done"].as_u64().unwrap() < CANARIES as u64, "{status:#}");

    let resumed = fleet.run("fleet resume").exits(0).json();
    assert_eq!(resumed["changed"], true);
    let _done = fleet.run(&words).exits(0);
    let status = fleet.status();
    assert!(status["waves"].as_array().unwrap().iter().all(|wave| wave["state"] == "Done"), "{status:#}");
}

/// By hand, for docs/performance.md: `cargo test --test it -- --ignored --nocapture five_thousand`.
#[test]
#[ignore = "it measures, and takes minutes"]
fn five_thousand_nodes_are_planned_and_looked_at() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    let admin = cluster.server.file("kubeconfig");
    fs::copy(&admin, cluster.lab.path("admin")).unwrap();
    cluster.lab.write("node.yaml", "spec: {calico: {version: v3.31.7}}\n");
    let limits = Limits { timeout: Duration::from_secs(60), retries: 2 };
    thread::scope(|scope| {
        for part in 0..4 {
            let client = Cluster::open(Some(&admin), None, limits).unwrap();
            scope.spawn(move || {
                for number in (0..5000).filter(|number| number % 4 == part) {
                    let name = format!("node-{number:04}");
                    let labels = json!({ "kubernetes.io/os": "windows", "kubernetes.io/hostname": name });
                    let node = json!({ "metadata": { "name": name, "labels": labels } });
                    let _node: Value = client.post("/api/v1/nodes", &node).unwrap();
                    let labels = json!({ "app.kubernetes.io/name": "calicoctl-win", "calicoctl-win/wave": "all" });
                    let pod = json!({
                        "metadata": { "name": name, "labels": labels, "annotations": { "calicoctl-win/revision": "r" } },
                        "spec": { "nodeName": name, "containers": [{ "name": "logs", "image": "registry.example.com/a:1" }] },
                    });
                    let _pod: Value = client.post("/api/v1/namespaces/default/pods", &pod).unwrap();
                }
            });
        }
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "calicoctl-win-all", "labels": { "app.kubernetes.io/name": "calicoctl-win", "calicoctl-win/wave": "all" } },
        "spec": {
            "selector": { "matchLabels": { "calicoctl-win/wave": "none" } },
            "template": {
                "metadata": { "labels": { "calicoctl-win/wave": "none" } },
                "spec": {
                    "nodeSelector": { "nowhere": "true" },
                    "containers": [{ "name": "logs", "image": "registry.example.com/a:1" }],
                },
            },
        },
    });
    cluster.server.post("/apis/apps/v1/namespaces/default/daemonsets", &set);
    for words in [Fleet::change("plan", "node.yaml", "1"), "fleet status --namespace default".to_owned()] {
        let command = cluster.lab.command(&format!("{words} --kubeconfig admin -o json"));
        let mut timed = std::process::Command::new("/usr/bin/time");
        timed.args(["-f", "%e s, %U s user, %M KiB"]).arg(command.get_program()).args(command.get_args());
        let output = timed.current_dir(cluster.lab.path("")).env("TMPDIR", cluster.lab.path("tmp")).output().unwrap();
        println!("{words}: {}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let nodes =
            |wave: &Value| wave["nodes"].as_array().map_or(wave["nodes"].as_u64(), |all| Some(all.len() as u64));
        let all: u64 = document["waves"].as_array().unwrap().iter().filter_map(nodes).sum();
        assert!(all >= 5000, "{document:#}");
    }
    followed(&cluster, &admin);
}

/// Every pod is changed twice while `fleet status --watch` follows them.
fn followed(cluster: &RealCluster, admin: &Path) {
    let mut watch = cluster.lab.command("fleet status --watch -o ndjson --namespace default --kubeconfig admin");
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut document = |what: &str, text: &str| {
        let found = lines.find(|line| line.contains(text));
        assert!(found.is_some(), "{what}");
        let status = fs::read_to_string(format!("/proc/{}/status", watch.id())).unwrap();
        let size = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        println!("{what}: {}, {}", size("VmRSS"), size("VmHWM"));
    };
    document("the first document", "\"document\"");
    let client = Cluster::open(Some(admin), None, Limits { timeout: Duration::from_secs(60), retries: 2 }).unwrap();
    for revision in ["s", "t"] {
        let begun = Instant::now();
        for number in 0..5000 {
            let at = format!("/api/v1/namespaces/default/pods/node-{number:04}");
            let patch = json!({ "metadata": { "annotations": { "calicoctl-win/revision": revision } } });
            let _pod: Value = client.merge_patch(&at, &patch).unwrap();
        }
        // Then the watch has the pods before it, too.
        let set = "/apis/apps/v1/namespaces/default/daemonsets/calicoctl-win-all";
        let name = format!("last-{revision}");
        let patch = json!({ "metadata": { "labels": { "calicoctl-win/wave": name } } });
        let _set: Value = client.merge_patch(set, &patch).unwrap();
        document(&format!("5,000 changes in {} s", begun.elapsed().as_secs()), &name);
    }
    super::api_server::end(&mut watch);
}
