//! `fleet` on a real cluster: its scheduler, and its DaemonSet controller, which limits how many nodes are out at once.
//! KWOK plays the kubelets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use calicoctl_win::cluster::Cluster;
use calicoctl_win::settings::Limits;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api_server::{free_ports, until};
use super::cluster::{NEIGHBOUR, NODE, RealCluster, V1};
use super::kwok::{CODE, Failure, Kubelets, LABEL, MESSAGE, Runs};
use super::parts::part;
use crate::lab::{Lab, Output};
use crate::stories::hostprocess::{kept, last_line};

/// A node that its label leaves out.
const OUT: &str = "node-out";

pub const NODES: usize = 40;
const CANARIES: usize = 2;
/// In percent of the 38 nodes after the canaries: four.
const AT_ONCE: &str = "--max-unavailable 10%";
const LIMIT: usize = 4;

pub const PODS: &str = "/api/v1/namespaces/calicoctl-win/pods";

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["metadata"].get("deletionTimestamp").is_none()
        && conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// KWOK has started the container `apply` of a pod on a node on which runs are made, and it has not ended.
pub fn starts(pod: &Value) -> bool {
    pod["metadata"].get("deletionTimestamp").is_none()
        && !pod["status"]["initContainerStatuses"][0]["state"]["running"].is_null()
        && pod["metadata"]["annotations"].get(CODE).is_none()
}

pub struct Fleet {
    kubelets: Kubelets,
    pub cluster: RealCluster,
}

impl Fleet {
    pub fn start(runs: &Runs) -> Option<Self> {
        Self::with_nodes(NODES, runs)
    }

    pub fn with_nodes(nodes: usize, runs: &Runs) -> Option<Self> {
        let (scheduler, _kwok) = (part("kube-scheduler")?, part("kwok")?);
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
        let names: Vec<String> = (1..=nodes).map(|number| format!("node-{number:02}")).collect();
        for (number, name) in names.iter().enumerate() {
            let stage = if number < CANARIES { "canary" } else { "others" };
            let labels = json!({ "kubernetes.io/os": "windows", "kubernetes.io/hostname": name, LABEL: stage });
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
            cluster.server.post("/api/v1/nodes", &node);
        }
        let out = json!({ "kubernetes.io/os": "windows", "calicoctl-win/fleet": "off" });
        cluster.server.post("/api/v1/nodes", &json!({ "metadata": { "name": OUT, "labels": out } }));
        fs::copy(cluster.server.file("kubeconfig"), cluster.lab.path("admin")).unwrap();
        cluster.lab.write("node.yaml", "spec: {calico: {version: v3.31.7}}\n");
        cluster.lab.write("vni.yaml", "spec: {calico: {version: v3.31.7}, calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
        Some(Self { kubelets: Kubelets::start(&cluster.server, runs)?, cluster })
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

    /// What the API server would do with each object of a change: the kind, the namespace, and the action.
    fn tried(&self, config: &str) -> Vec<[String; 3]> {
        let result = self.run(&Self::change("apply", config, "2 --dry-run=server")).exits(0).json();
        assert_eq!(result["changed"], false, "{result:#}");
        let of = |object: &Value, name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let objects = result["objects"].as_array().unwrap().iter();
        objects.map(|object| ["kind", "namespace", "action"].map(|name| of(object, name))).collect()
    }

    /// The most nodes of the second wave that were out at once.
    fn most_out(&self) -> usize {
        self.cluster.most_out("calicoctl-win-others-", NODES - CANARIES)
    }

    /// `kubectl rollout VERB` of a wave: what it prints, or what it says if it fails.
    fn rollout(&self, verb: &str, wave: &str) -> Result<String, String> {
        let set = format!("daemonset/calicoctl-win-{wave}");
        self.cluster.server.try_kubectl(&["rollout", verb, &set, "-n", "calicoctl-win"], "")
    }

    pub fn status(&self) -> Value {
        let output = self.run("fleet status");
        assert!([0, 12].contains(&output.code), "{output}");
        output.json()
    }

    /// From now on no run on a node ends.
    pub fn hold(&mut self) {
        self.kubelets.hold(&self.cluster.server);
    }

    /// The runs that were held end.
    pub fn release(&mut self) {
        self.kubelets.release(&self.cluster.server);
    }

    /// Makes the kubeconfig `other` of another admin, so that the audit log says who asked.
    pub fn with_other_admin(&self) {
        let user = format!("--user={NEIGHBOUR}");
        self.cluster.kubectl(&["create", "clusterrolebinding", NEIGHBOUR, "--clusterrole=cluster-admin", &user], "");
        fs::write(self.cluster.lab.path("other"), self.cluster.server.kubeconfig_of(NEIGHBOUR)).unwrap();
    }

    /// Starts `fleet apply`, which another thread waits for.
    fn begin(&self, words: &str) -> JoinHandle<Output> {
        let command = self.cluster.lab.command(&format!("{words} --kubeconfig admin -o json"));
        thread::spawn(move || Output::of("fleet apply", command))
    }

    /// Ends the run that is in progress on a node, one of those on which runs are made, with this code and these last
    /// lines.
    fn end_run(&self, node: &str, code: i32, message: &str) {
        let annotations = json!({ CODE: code.to_string(), MESSAGE: message });
        until(&format!("a run on {node}"), || {
            let pods = self.cluster.server.get(PODS);
            let mut pods = pods["items"].as_array().unwrap().iter();
            let pod = pods.find(|pod| pod["spec"]["nodeName"] == node && starts(pod))?;
            let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
            let patch = json!({ "metadata": { "annotations": annotations } });
            self.cluster.server.client().merge_patch::<_, Value>(&path, &patch).ok()
        });
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
pub fn message(fault: &str, words: &str) -> String {
    let lab = Lab::node();
    lab.write("node.yaml", "spec: {calico: {version: v3.31.7}}\n");
    let failed = lab.fails_at(fault, words);
    let result = failed.json();
    assert_eq!(result["success"], false, "{failed}");
    kept(&format!("run r on NODE: apply\n{}", last_line(&result))).to_owned()
}

#[test]
fn a_change_of_many_nodes_stops_at_the_failed_ones_and_is_undone() {
    // As many nodes fail as may be out at once.
    let message = message("put service CalicoFelix=fail", "apply -y -c node.yaml -o json");
    let broken: Vec<String> = (20..20 + LIMIT).map(|number| format!("node-{number}")).collect();
    let failure =
        Failure { image: "registry.example.com/calicoctl-win:2", nodes: broken.clone(), message: message.clone() };
    let runs = Runs { failures: vec![failure], ..Runs::default() };
    let Some(mut fleet) = Fleet::start(&runs) else { return };
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

    // The server does not judge what is in a namespace that it lacks.
    for [kind, namespace, action] in fleet.tried("node.yaml") {
        let known = if kind == "Namespace" { action == "create" } else { ["create", "unchanged"].contains(&&*action) };
        assert!(if namespace == "calicoctl-win" { action == "unknown" } else { known }, "{kind}: {action}");
    }
    let there = fleet.cluster.server.try_kubectl(&["get", "namespace", "calicoctl-win"], "");
    assert!(there.is_err_and(|said| said.contains("not found")), "a dry run creates nothing");

    // Every node, and never more at once than allowed: also not at the beginning, when there were no pods.
    let first = fleet.run(&Fleet::change("apply", "node.yaml", "1 -y")).exits(0).json();
    assert_eq!(first["changed"], true);
    let done = fleet.status();
    let states: Vec<&Value> = done["waves"].as_array().unwrap().iter().map(|wave| &wave["state"]).collect();
    assert_eq!(states, ["Done", "Done"], "{done:#}");
    let old = done["revision"].as_str().unwrap().to_owned();
    assert_eq!(fleet.revisions().get(&old).map(BTreeSet::len), Some(NODES));
    // Twice, because the first changes nothing.
    for [kind, _, action] in [fleet.tried("vni.yaml"), fleet.tried("vni.yaml")].concat() {
        let wanted = match kind.as_str() {
            "DaemonSet" => "update",
            "Secret" => "create",
            _ => "unchanged",
        };
        assert_eq!(action, wanted, "{kind}");
    }
    assert_eq!(fleet.status(), done);
    assert_eq!((&done["uncovered"], &done["left_out"]), (&json!([]), &json!([OUT])));

    let stopped = fleet.run(&Fleet::change("apply", "vni.yaml", "2 -y")).exits(1).json();
    assert_eq!(stopped["error"]["id"], "FleetStopped", "{stopped:#}");
    assert_eq!(fleet.most_out(), LIMIT, "the limit is reached, and kept");
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
    fleet.hold();
    let restart = ["rollout", "restart", "daemonset/calicoctl-win-others", "-n", "calicoctl-win"];
    fleet.cluster.kubectl(&restart, "");
    let begun = until("pods to be replaced", || {
        let wave = fleet.status()["waves"][1].clone();
        assert_eq!(wave["state"], "Rolling", "{wave:#}");
        (wave["in_progress"] != 0).then_some(wave)
    });
    assert_eq!(begun["done"], 0, "{begun:#}");
    fleet.release();
    until("every pod to be replaced", || (fleet.status()["waves"][1]["state"] == "Done").then_some(()));
    assert_eq!(fleet.most_out(), LIMIT);

    // A node is taken out by its label, and comes back without it.
    let taken = "node-30";
    let label = |value: &str| fleet.cluster.kubectl(&["label", "node", taken, value, "--overwrite"], "");
    let has_pod = || {
        let pods = fleet.cluster.server.get(PODS);
        pods["items"].as_array().unwrap().iter().any(|pod| pod["spec"]["nodeName"] == taken)
    };
    label("calicoctl-win/fleet=off");
    let status = until("the node to be out", || {
        let status = fleet.status();
        (!has_pod() && status["waves"][1]["nodes"] == NODES - CANARIES - 1).then_some(status)
    });
    assert_eq!((&status["left_out"], &status["failures"]), (&json!([taken, OUT]), &json!([])), "{status:#}");
    assert_eq!(status["waves"][1]["state"], "Done", "{status:#}");
    let _changed = fleet.run(&Fleet::change("apply", "vni.yaml", "3 -y")).exits(0);
    let third = fleet.status()["revision"].as_str().unwrap().to_owned();
    assert_eq!((fleet.revisions()[&third].len(), has_pod()), (NODES - 1, false));
    label("calicoctl-win/fleet-");
    until("the node to have the change", || (fleet.revisions()[&third].len() == NODES).then_some(()));

    // A quota refuses the Secret of another config, and nothing else.
    fleet.cluster.kubectl(&["create", "quota", "few", "--hard=count/secrets=1", "-n", "calicoctl-win"], "");
    let words = Fleet::change("apply", "vni.yaml", "3 --set services.felixLogSeverity=debug --dry-run=server");
    until("the quota", || {
        let output = fleet.run(&words);
        let result = output.json();
        let mut refused = result["objects"].as_array()?.iter().filter(|object| object["action"] == "refused");
        let (first, others) = (refused.next()?, refused.count());
        assert_eq!((&first["kind"], others, output.code), (&json!("Secret"), 0, 17), "{result:#}");
        assert_eq!(result["error"]["id"], "ClusterForbidden", "{result:#}");
        first["why"].as_str().unwrap().contains("exceeded quota").then_some(())
    });
}

#[test]
fn a_pause_lets_no_further_node_begin_and_the_same_command_continues() {
    let Some(mut fleet) = Fleet::start(&Runs::default()) else { return };
    let _done = fleet.run(&Fleet::change("apply", "node.yaml", "1 -y")).exits(0);
    let old = fleet.status()["revision"].as_str().unwrap().to_owned();
    // Before the first change, a wave's pods installed nothing.
    let _undone = fleet.rollout("undo", "canary").unwrap();
    let _waited = fleet.rollout("status", "canary").unwrap();
    let revisions = fleet.revisions();
    assert_eq!((revisions["none"].len(), revisions[&old].len()), (CANARIES, NODES - CANARIES), "{revisions:#?}");

    fleet.hold();
    let words = Fleet::change("apply", "vni.yaml", "2 -y");
    let waiting = fleet.begin(&words);
    until("the canaries to begin", || (fleet.status()["waves"][0]["in_progress"] != 0).then_some(()));
    let paused = fleet.run("fleet pause").exits(0).json();
    assert_eq!(paused["changed"], true);
    let said = waiting.join().unwrap().exits(1).json();
    assert_eq!(said["error"]["id"], "FleetPaused", "{said:#}");
    assert_eq!(fleet.run("fleet pause").exits(0).json()["changed"], false);
    // What has begun ends, and the wave is as far as it was.
    fleet.release();
    let status = until("the nodes that have begun", || {
        let status = fleet.status();
        (status["waves"][0]["in_progress"] == 0).then_some(status)
    });
    assert_eq!(status["waves"][0]["state"], "Paused", "{status:#}");
    assert_eq!(status["waves"][1]["state"], "Paused", "{status:#}");
    let refused = fleet.rollout("status", "canary").unwrap_err();
    assert!(refused.contains("only available for RollingUpdate"), "{refused}");
    assert!(status["waves"][0]["done"].as_u64().unwrap() < CANARIES as u64, "{status:#}");

    let resumed = fleet.run("fleet resume").exits(0).json();
    assert_eq!(resumed["changed"], true);
    let _done = fleet.run(&words).exits(0);
    let status = fleet.status();
    assert!(status["waves"].as_array().unwrap().iter().all(|wave| wave["state"] == "Done"), "{status:#}");

    // kubectl returns one wave to what it installed before, within its limit, and waits for it.
    let new = status["revision"].as_str().unwrap();
    let _undone = fleet.rollout("undo", "others").unwrap();
    let waited = fleet.rollout("status", "others").unwrap();
    assert!(waited.contains("successfully rolled out"), "{waited}");
    let revisions = fleet.revisions();
    let nodes = |revision: &str| revisions.get(revision).map(BTreeSet::len);
    assert_eq!((nodes(new), nodes(&old)), (Some(CANARIES), Some(NODES - CANARIES)), "{revisions:#?}");
    assert!(fleet.most_out() <= LIMIT);
}

#[test]
fn a_lost_run_is_waited_for_and_a_pause_stops_the_controller_within_five_seconds() {
    const LOST: &str = "node-01";
    let Some(fleet) = Fleet::start(&Runs { made: vec![LOST.into()], ..Runs::default() }) else { return };
    let first = fleet.begin(&Fleet::change("apply", "node.yaml", "1 -y"));
    fleet.end_run(LOST, 0, "");
    let _done = first.join().unwrap().exits(0);

    // One at a time: a failure would end the command.
    let one_at_a_time = |words: String| words.replace(AT_ONCE, "--max-unavailable 1");
    let change = fleet.begin(&one_at_a_time(Fleet::change("apply", "vni.yaml", "2 -y")));
    fleet.end_run(LOST, 1, "result: {\"id\":\"InterruptedRun\",\"what\":\"the run was interrupted\"}\n");
    let lost = until("the lost run", || Some(fleet.status()).filter(|status| status["failures"] != json!([])));
    assert_eq!(lost["failures"][0]["id"], "InterruptedRun", "{lost:#}");
    assert_eq!((&lost["waves"][0]["state"], &lost["waves"][0]["failed"]), (&json!("Rolling"), &json!(1)), "{lost:#}");
    // The kubelet starts the container again, which resumes it.
    fleet.end_run(LOST, 0, "");

    fleet.with_other_admin();
    // Before it begins, its nodes are done with what it had.
    until("the second wave to begin", || {
        let wave = fleet.status()["waves"][1].clone();
        (wave["state"] == "Rolling" && wave["done"].as_u64() > Some(2)).then_some(())
    });
    let paused = fleet.cluster.lab.bare("fleet pause --kubeconfig other -o json").exits(0).json();
    assert_eq!(paused["changed"], true);
    let said = change.join().unwrap().exits(1).json();
    assert_eq!(said["error"]["id"], "FleetPaused", "{said:#}");
    // The clock is the audit log's.
    let of = |line: &Value| line["requestReceivedTimestamp"].as_str().unwrap().parse::<Timestamp>().unwrap();
    let audit = until("more than 5 s after the pause", || {
        let audit = fleet.cluster.audit();
        let mut asked = audit.iter().filter(|line| {
            line["user"]["username"] == NEIGHBOUR
                && line["verb"] == "patch"
                && line["objectRef"]["resource"] == "daemonsets"
        });
        let asked = of(asked.next()?);
        // A controller that continued would have changed more pods by then.
        fleet.cluster.server.get(PODS);
        (of(audit.last()?).duration_since(asked) > SignedDuration::from_secs(10)).then_some((asked, audit))
    });
    let (asked, audit) = audit;
    let mut after: Vec<SignedDuration> = audit
        .iter()
        .filter(|line| {
            line["user"]["username"] == "system:serviceaccount:kube-system:daemon-set-controller"
                && line["objectRef"]["resource"] == "pods"
                && ["create", "delete"].iter().any(|verb| line["verb"] == *verb)
        })
        .map(|line| of(line).duration_since(asked))
        .collect();
    after.sort_unstable();
    println!("the last pod is created or deleted {:?} after the request to pause", after.last().unwrap());
    assert!(after.len() > NODES && *after.last().unwrap() <= SignedDuration::from_secs(5), "{after:?}");
    // A run that had begun ends.
    let left = until("the last run to end", || {
        let left = fleet.status();
        assert_eq!(left["waves"][1]["state"], "Paused", "{left:#}");
        (left["waves"][1]["in_progress"] == 0).then_some(left)
    });
    assert!(left["waves"][1]["done"].as_u64().unwrap() < (NODES - CANARIES) as u64, "it was not at its end: {left:#}");
}

#[test]
fn one_zone_is_changed_after_the_other_and_a_node_of_a_new_zone_too() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    let Some(fleet) = Fleet::with_nodes(6, &Runs::default()) else { return };
    // They differ only in a letter.
    for (number, zone) in [(1, "Europe-1a"), (2, "Europe-1a"), (3, "europe-1a"), (4, "europe-1a"), (5, "europe-1a")] {
        fleet.cluster.kubectl(&["label", "node", &format!("node-{number:02}"), &format!("{ZONE}={zone}")], "");
    }
    let apply = |config: &str, image: &str, zones: &str| {
        let words =
            Fleet::change("apply", config, image).replace("--canary stage=canary", &format!("--zones {zones} -y"));
        fleet.run(&words.replace(AT_ONCE, "--max-unavailable 100%")).exits(0)
    };
    let _first = apply("node.yaml", "1", "auto");
    let before = Timestamp::now();
    let _change = apply("vni.yaml", "2", "auto");
    let waves = |status: &Value| -> Vec<(String, u64, Value)> {
        let waves = status["waves"].as_array().unwrap().iter();
        let number = |wave: &Value, name: &str| wave[name].as_u64().unwrap();
        waves.map(|one| (one["name"].as_str().unwrap().into(), number(one, "done"), one["state"].clone())).collect()
    };
    let status = fleet.status();
    let found = waves(&status);
    assert_eq!(found.iter().map(|wave| wave.1).collect::<Vec<_>>(), [2, 3, 1], "{status:#}");
    assert!(found.iter().all(|wave| wave.2 == "Done") && status["uncovered"] == json!([]), "{status:#}");

    // The pods of a zone are made when all of the one before are Ready.
    let pods: Value = serde_json::from_str(&fleet.cluster.kubectl(&["get", "--raw", PODS], "")).unwrap();
    let made = |wave: &str| -> Vec<Timestamp> {
        let of = |pod: &&Value| pod["metadata"]["labels"]["calicoctl-win/wave"] == wave;
        let time = |pod: &Value| pod["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
        pods["items"].as_array().unwrap().iter().filter(of).map(time).collect()
    };
    let times: Vec<Vec<Timestamp>> = found.iter().map(|wave| made(&wave.0)).collect();
    for (earlier, later) in times.iter().zip(&times[1..]) {
        assert!(earlier.iter().max() <= later.iter().min(), "{times:#?}");
    }
    assert!(times.iter().flatten().all(|time| time.as_second() >= before.as_second()), "{times:#?}");

    // The last wave has a node of a new zone at once.
    let labels =
        json!({ "kubernetes.io/os": "windows", "kubernetes.io/hostname": "node-07", ZONE: "europe-1c", LABEL: "" });
    fleet.cluster.server.post("/api/v1/nodes", &json!({ "metadata": { "name": "node-07", "labels": labels } }));
    until("the new node to be done", || (waves(&fleet.status())[2].1 == 2).then_some(()));
}

/// By hand, for docs/performance.md: `cargo test --test it -- --ignored --nocapture five_thousand`.
#[test]
#[ignore = "it measures, and takes minutes"]
fn five_thousand_nodes_are_planned_and_looked_at() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    let admin = cluster.server.file("kubeconfig");
    fs::copy(&admin, cluster.lab.path("admin")).unwrap();
    // The pods have no controller.
    let config = "spec: {calico: {version: v3.31.7}, maintenance: {drain: {force: true}}}\n";
    cluster.lab.write("node.yaml", config);
    let limits = Limits { timeout: Duration::from_secs(60), retries: 2, asks: false };
    thread::scope(|scope| {
        for part in 0..4 {
            let client = Cluster::open(Some(&admin), None, limits).unwrap();
            scope.spawn(move || {
                for number in (0..5000).filter(|number| number % 4 == part) {
                    let name = format!("node-{number:04}");
                    let labels = json!({ "kubernetes.io/os": "windows", "kubernetes.io/hostname": name });
                    let node = json!({ "metadata": { "name": name, "labels": labels } });
                    let _node: Value = client.post("/api/v1/nodes", &node).unwrap();
                    let labels = json!({
                        "app.kubernetes.io/name": "calicoctl-win", "calicoctl-win/wave": "all", "serves": name,
                    });
                    let pod = json!({
                        "metadata": { "name": name, "labels": labels, "annotations": { "calicoctl-win/revision": "r" } },
                        "spec": { "nodeName": name, "containers": [{ "name": "logs", "image": "registry.example.com/a:1" }] },
                    });
                    let _pod: Value = client.post("/api/v1/namespaces/default/pods", &pod).unwrap();
                    let ready = json!({ "type": "Ready", "status": "True" });
                    let status = json!({ "status": { "phase": "Running", "conditions": [ready] } });
                    let at = format!("/api/v1/namespaces/default/pods/{name}/status");
                    let _pod: Value = client.merge_patch(&at, &status).unwrap();
                    let spec = json!({ "clusterIP": "None", "selector": { "serves": name } });
                    let service = json!({ "metadata": { "name": name }, "spec": spec });
                    let _service: Value = client.post("/api/v1/namespaces/default/services", &service).unwrap();
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
        timed.args(["-f", "%e %M"]).arg(command.get_program()).args(command.get_args());
        let output = timed.current_dir(cluster.lab.path("")).env("TMPDIR", cluster.lab.path("tmp")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let figures: Vec<f64> = said.lines().last().unwrap().split(' ').map(|figure| figure.parse().unwrap()).collect();
        let (seconds, mib) = (figures[0], figures[1] / 1024.0);
        println!("{words}: {seconds} s, {mib:.0} MiB");
        let limit = if words.contains("plan") { 5.0 } else { 2.0 };
        assert!(seconds <= limit && mib <= 100.0, "{words}: {seconds} s, {mib:.0} MiB");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let nodes =
            |wave: &Value| wave["nodes"].as_array().map_or(wave["nodes"].as_u64(), |all| Some(all.len() as u64));
        let all: u64 = document["waves"].as_array().unwrap().iter().filter_map(nodes).sum();
        assert!(all >= 5000, "{document:#}");
        if words.contains("plan") {
            let lost = document["waves"][1]["loses"][4000]["services"][0].clone();
            assert_eq!(lost["alone"], true, "{lost}");
        }
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
        let most = size("VmHWM");
        let kib: u64 = most.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kib <= 100 * 1024, "{what}: {most}");
    };
    document("the first document", "\"document\"");
    let client =
        Cluster::open(Some(admin), None, Limits { timeout: Duration::from_secs(60), retries: 2, asks: false }).unwrap();
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
