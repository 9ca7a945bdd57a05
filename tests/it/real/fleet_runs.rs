//! A fleet with nodes on which the pods' command is really run: each one is a sandbox, with a cluster of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use calicoctl_win::cluster::Cluster;
use calicoctl_win::settings::Limits;
use serde_json::{Value, json};

use super::api_server::until;
use super::fleet::{Fleet, NODES, PODS, is_ready, starts};
use super::kwok::{CODE, LABEL, MESSAGE, Runs};
use crate::lab::{Lab, Output};
use crate::stories::boot::with_kubelets_kubeconfig;
use crate::stories::hostprocess::{after, detached, kept, lab, last_line};
use crate::stories::lease;

/// The variable of a pod with the revision that it installs.
const REVISION: &str = "CALICO_WIN_FLEET_REVISION";

const CHANGED: &str = "registry.example.com/calicoctl-win:2";

/// What happens to the run of the change on a node.
#[derive(Clone, Copy)]
enum Fate {
    Ends,
    /// Its process ends there; kubelet's next try resumes it.
    Killed(&'static str),
    /// It hangs there, until an admin ends it.
    Hung(&'static str),
    /// A run from another machine holds the Lease on the Node, until it has been found.
    Leased,
    /// It fails there each time, and is undone.
    Broken(&'static str),
}

/// The nodes of the first wave, then those of the second; the other nodes of the fleet are KWOK's alone.
const CANARIES: [Fate; 10] = [
    Fate::Killed("put running CalicoNode=exit-after"),
    Fate::Killed("put *#2=exit-before"),
    Fate::Killed("put network *=exit-within"),
    Fate::Hung("put running CalicoFelix=hang"),
    Fate::Leased,
    Fate::Ends,
    Fate::Ends,
    Fate::Ends,
    Fate::Ends,
    Fate::Ends,
];
const OTHERS: [Fate; 10] = [
    Fate::Broken("put running CalicoNode#2=fail"),
    Fate::Broken("put running CalicoFelix=fail"),
    Fate::Broken("put network *=fail"),
    Fate::Broken("api unreachable at VNI 5000#2+"),
    Fate::Broken("api unreachable at VNI 5000#4+"),
    Fate::Ends,
    Fate::Ends,
    Fate::Ends,
    Fate::Ends,
    Fate::Ends,
];
/// As many as are broken.
const AT_ONCE: usize = 5;

struct Node {
    lab: Lab,
    fate: Fate,
    /// How often a container has begun the change.
    tries: AtomicUsize,
    /// The last lines of those that failed.
    causes: Mutex<Vec<String>>,
}

/// The containers of the nodes, as a runtime starts them.
struct Containers {
    nodes: Arc<BTreeMap<String, Node>>,
    running: Arc<Mutex<Running>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Running {
    nodes: BTreeSet<String>,
    /// No container starts.
    paused: bool,
    stopped: bool,
}

impl Containers {
    fn start(fleet: &Fleet, nodes: BTreeMap<String, Node>) -> Self {
        let limits = Limits { timeout: Duration::from_secs(20), retries: 3, asks: false };
        let client = Cluster::open(Some(&fleet.cluster.server.file("kubeconfig")), None, limits).unwrap();
        let (nodes, running) = (Arc::new(nodes), Arc::<Mutex<Running>>::default());
        let all = (Arc::clone(&nodes), Arc::clone(&running));
        let thread = thread::spawn(move || {
            let (nodes, running) = (&all.0, &all.1);
            thread::scope(|scope| {
                while !running.lock().unwrap().stopped {
                    for pod in client.list::<Value>(PODS).unwrap_or_default() {
                        let name = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
                        let Some(node) = nodes.get(&name).filter(|_| starts(&pod)) else { continue };
                        let mut now = running.lock().unwrap();
                        if !now.paused && now.nodes.insert(name.clone()) {
                            let client = &client;
                            scope.spawn(move || {
                                node.run_container(client, &pod);
                                running.lock().unwrap().nodes.remove(&name);
                            });
                        }
                    }
                    thread::sleep(Duration::from_millis(200));
                }
            });
        });
        Self { nodes, running, thread: Some(thread) }
    }

    /// The VNI of each node while no container runs; each one is healthy and schedulable, and no run is interrupted.
    fn vnis(&self) -> BTreeMap<&str, u64> {
        self.running.lock().unwrap().paused = true;
        until("the containers to end", || self.running.lock().unwrap().nodes.is_empty().then_some(()));
        let vni = |lab: &Lab| {
            let status = lab.healthy();
            assert_eq!((&status["run"], &status["node"]["schedulable"]), (&Value::Null, &json!(true)), "{status:#}");
            let mut networks = status["networks"].as_array().unwrap().iter();
            networks.find(|network| network["name"] == "Calico").and_then(|network| network["vsid"].as_u64()).unwrap()
        };
        let vnis = self.nodes.iter().map(|(name, node)| (name.as_str(), vni(&node.lab))).collect();
        self.running.lock().unwrap().paused = false;
        vnis
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        self.running.lock().unwrap().stopped = true;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl Node {
    /// Runs the container of a pod, and writes how it ended to the pod.
    fn run_container(&self, client: &Cluster, pod: &Value) {
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
        // The list may be from before the end of the last run.
        let Ok(Some(pod)) = client.get::<Value>(&path).map(|pod| pod.filter(starts)) else { return };
        let apply = &pod["spec"]["initContainers"][0];
        let secret = pod["spec"]["volumes"][0]["secret"]["secretName"].as_str().unwrap();
        let secret: Option<Value> = client.get(&format!("{}/{secret}", PODS.replace("pods", "secrets"))).unwrap();
        let config = BASE64_STANDARD.decode(secret.unwrap()["data"]["node.yaml"].as_str().unwrap()).unwrap();
        self.lab.write("node.yaml", config);
        let arguments: Vec<&str> = apply["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let fault = self.fault(apply["image"] == CHANGED);
        let mut variables = apply["env"].as_array().unwrap().iter();
        let revision = variables.find(|one| one["name"] == REVISION).and_then(|one| one["value"].as_str()).unwrap();
        let (code, lines) = self.run_script(&arguments.join(" "), revision, fault);
        if code != 0 {
            self.causes.lock().unwrap().push(lines.lines().last().unwrap().to_owned());
        }
        let annotations = json!({ CODE: code.to_string(), MESSAGE: kept(&lines) });
        // The pod may be deleted.
        let _said = client.merge_patch::<_, Value>(&path, &json!({ "metadata": { "annotations": annotations } }));
    }

    /// What the last run wrote to its Node.
    fn result(&self) -> Value {
        let node = self.lab.object("nodes", "win-a1").unwrap();
        serde_json::from_str(node["metadata"]["annotations"]["calicoctl-win/result"].as_str().unwrap()).unwrap()
    }

    fn fault(&self, is_changed: bool) -> &'static str {
        let first = is_changed && self.tries.fetch_add(1, Ordering::SeqCst) == 0;
        match self.fate {
            Fate::Killed(fault) | Fate::Hung(fault) if first => fault,
            Fate::Broken(fault) if is_changed => fault,
            Fate::Leased if first => {
                lease::held_elsewhere(&self.lab);
                ""
            }
            _ => "",
        }
    }

    /// What `run.ps1` does: the exit code and the lines.
    fn run_script(&self, arguments: &str, revision: &str, fault: &str) -> (i32, String) {
        let start = || {
            let words = detached(arguments);
            let mut command = self.lab.command(&format!("{words} --sandbox node"));
            command.env(REVISION, revision).env("CALICO_WIN_SANDBOX_FAULT", fault);
            Output::of(&words, command)
        };
        // For a run that hangs, its two hours are over.
        let limit = if fault.ends_with("=hang") { "--timeout=10s" } else { "--timeout=2h" };
        let (run, ended) = loop {
            let started = start();
            if started.code == 14 {
                self.end_hung();
                continue;
            }
            if started.code != 0 {
                let result = last_line(&started.json());
                return (started.code, started.stdout + &result);
            }
            let run = started.json()["run"].as_str().unwrap().to_owned();
            let ended = self.lab.run(&after("status", &run).replace("--timeout=2h", limit));
            if ended.code != 14 {
                break (run, ended);
            }
            let found = self.lab.run(&format!("status --run={run} --output=json")).json();
            self.causes.lock().unwrap().push(found["result"]["error"]["id"].as_str().unwrap().to_owned());
            self.lab.edit_object(lease::KIND, lease::NAME, |lease| {
                lease["spec"]["renewTime"] = "2026-01-02T15:04:05.000000Z".into();
            });
        };
        let mut lines = ended.stdout + &self.lab.run(&after("logs", &run)).stdout;
        if ended.code != 0 {
            let ended = self.lab.run(&format!("status --run={run} --output=json")).json();
            let id = if ended["state"] == "interrupted" { "InterruptedRun" } else { "RunInProgress" };
            let none = json!({ "exit_name": "UNHEALTHY", "error": { "id": id, "what": "it has no result" } });
            lines += &last_line(if ended["result"].is_null() { &none } else { &ended["result"] });
        }
        (ended.code, lines)
    }

    /// An admin ends the run that holds the lock.
    fn end_hung(&self) {
        let holder = fs::read_to_string(self.lab.on_node("C/ProgramData/calicoctl-win/lock.json")).unwrap_or_default();
        let Ok(holder) = serde_json::from_str::<Value>(&holder) else { return };
        let pid = holder["pid"].to_string();
        let own = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == self.lab.path(""));
        if own && matches!(self.fate, Fate::Hung(_)) {
            let _ended = Command::new("kill").args(["-9", &pid]).status().unwrap();
        }
    }
}

fn nodes() -> BTreeMap<String, Node> {
    let template = lab();
    with_kubelets_kubeconfig(&template);
    let kubeconfig = fs::read(template.path("kubeconfig")).unwrap();
    let fates = CANARIES.into_iter().chain(OTHERS);
    fates
        .zip(1..)
        .map(|(fate, number)| {
            let lab = template.copy();
            lab.write("kubeconfig", &kubeconfig);
            (format!("node-{number:02}"), Node { lab, fate, tries: AtomicUsize::new(0), causes: Mutex::default() })
        })
        .collect()
}

#[test]
fn every_node_of_a_change_that_is_killed_hangs_or_fails_has_the_old_or_the_new_vni() {
    let nodes = nodes();
    let names: Vec<String> = nodes.keys().cloned().collect();
    let runs = Runs { made: names.clone(), ..Runs::default() };
    let Some(fleet) = Fleet::start(&runs) else { return };
    let (canaries, others) = names.split_at(CANARIES.len());
    for name in canaries {
        fleet.cluster.kubectl(&["label", "node", name, &format!("{LABEL}=canary"), "--overwrite"], "");
    }
    fleet.cluster.lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    fleet
        .cluster
        .lab
        .write("vni.yaml", "spec: {calico: {version: v3.32.1}, calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
    let change = |config: &str, image: &str| {
        Fleet::change("apply --timeout 15m", config, image)
            .replace("--max-unavailable 10%", &format!("--max-unavailable {AT_ONCE}"))
    };
    let containers = Containers::start(&fleet, nodes);
    let _installed = fleet.run(&change("node.yaml", "1 -y")).exits(0);
    assert!(containers.vnis().values().all(|vni| *vni == 4096));

    let stopped = fleet.run(&change("vni.yaml", "2 -y")).exits(1).json();
    assert_eq!(stopped["error"]["id"], "FleetStopped", "{stopped:#}");
    let status = fleet.status();
    assert_eq!((&status["waves"][0]["state"], &status["waves"][1]["state"]), (&json!("Done"), &json!("Stopped")));
    let failures = status["failures"].as_array().unwrap();
    let by_cause = |failure: &Value, name: &str| failure["nodes"].as_array().unwrap().iter().any(|node| node == name);
    let cause = |name: &String| {
        let mut own = failures.iter().filter(|failure| by_cause(failure, name)).map(|failure| &failure["id"]);
        own.next().unwrap_or_else(|| panic!("{name}: {status:#}")).as_str().unwrap()
    };
    let (broken, rest) = others.split_at(AT_ONCE);
    let all: usize = failures.iter().map(|failure| failure["nodes"].as_array().unwrap().len()).sum();
    assert_eq!(all, AT_ONCE, "{status:#}");
    let causes: Vec<&str> = broken.iter().map(cause).collect();
    assert_eq!(causes[..3], ["RolledBack"; 3], "Windows failed: {status:#}");
    assert!(causes[3..].iter().all(|id| !["RolledBack", "Failed"].contains(id)), "the proof failed: {status:#}");

    // Each node has what its pod says.
    let pods = fleet.cluster.server.get(PODS)["items"].as_array().unwrap().clone();
    let new = |node: &str| {
        let mut own = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node);
        own.any(|pod| is_ready(pod) && pod["spec"]["initContainers"][0]["image"] == CHANGED)
    };
    let vnis = containers.vnis();
    let have = |nodes: &[String], vni: u64| nodes.iter().all(|node| vnis[node.as_str()] == vni);
    assert!(have(canaries, 5000) && have(broken, 4096), "{vnis:#?}");
    assert!(rest.iter().all(|node| vnis[node.as_str()] == if new(node) { 5000 } else { 4096 }), "{vnis:#?}");
    for (name, node) in containers.nodes.iter() {
        let (tries, causes) = (node.tries.load(Ordering::SeqCst), node.causes.lock().unwrap());
        let first = match node.fate {
            Fate::Ends => None,
            Fate::Leased => Some("NodeLeased"),
            Fate::Killed(_) => Some("InterruptedRun"),
            Fate::Hung(_) => Some("RunInProgress"),
            Fate::Broken(_) => Some("FAILED_ROLLED_BACK"),
        };
        assert_eq!(first.is_some(), !causes.is_empty(), "{name}: {causes:#?}");
        assert!(first.is_none_or(|first| causes[0].contains(first)), "{name}: {causes:#?}");
        let result = node.result();
        assert!(result.to_string().len() < 1024, "{result}");
        assert_eq!(
            (&result["vni"], result["exit"] == 0),
            (&json!(vnis[name.as_str()]), result["id"].is_null()),
            "{name}"
        );
        if new(name) {
            assert_eq!((&result["revision"], &result["exit"]), (&status["revision"], &json!(0)), "{name}: {result}");
        }
        // Another try resumes what was killed or hung.
        let again = matches!(node.fate, Fate::Killed(_) | Fate::Hung(_));
        // The Lease ends no container: the script tries again.
        let once = matches!(node.fate, Fate::Ends | Fate::Leased);
        assert!(if again { tries > 1 } else { !once || tries <= 1 }, "{name}: {tries}");
    }
    let limit = fleet.cluster.most_out("calicoctl-win-others-", NODES - CANARIES.len());
    assert_eq!(limit, AT_ONCE, "the limit is reached, and kept");

    let _back = fleet.run("fleet rollback -y").exits(0);
    until("every wave to be done", || {
        let status = fleet.status();
        status["waves"].as_array().unwrap().iter().all(|wave| wave["state"] == "Done").then_some(())
    });
    assert!(containers.vnis().values().all(|vni| *vni == 4096));

    // Out of every node: the labels of the page, and the Job of each node.
    fleet
        .cluster
        .kubectl(&["label", "nodes", "-l", "kubernetes.io/os=windows", "calicoctl-win/fleet=off", "--overwrite"], "");
    until("no pod to be left", || fleet.cluster.server.get(PODS)["items"].as_array().unwrap().is_empty().then_some(()));
    for (name, node) in containers.nodes.iter() {
        let (code, lines) = node.run_script("uninstall", "", "");
        assert_eq!(code, 0, "{name}: {lines}");
        assert_eq!(node.lab.run("status -o json").exits(16).json()["overall"], "NotInstalled", "{name}");
        let annotations = node.lab.object("nodes", "win-a1").unwrap()["metadata"]["annotations"].clone();
        assert_eq!(annotations["calicoctl-win/result"], Value::Null, "{name}: {annotations:#}");
    }
}
