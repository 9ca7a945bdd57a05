//! A node is drained, cordoned and tainted, in a cluster that behaves like a real one.

use std::fs;
use std::thread;
use std::time::Duration;

use calicoctl_win::sandbox::cluster::{ApiFault, EmbeddedCluster, Seed};
use http::Method;
use serde_json::{Value, json};

use crate::lab::{Lab, Output};

const NODE: &str = "/api/v1/nodes/win-a1";

/// A node in a cluster that this test can read.
struct Town {
    lab: Lab,
    cluster: EmbeddedCluster,
}

impl Town {
    fn new(faults: &[&str]) -> Self {
        let lab = Lab::node();
        let faults: Vec<ApiFault> = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        let cluster = EmbeddedCluster::start(&lab.path("elsewhere"), &Seed::new("win-a1"), &faults).unwrap();
        lab.write("admin.yaml", cluster.admin_kubeconfig_direct());
        let town = Self { lab, cluster };
        // These stories create their own DaemonSets.
        town.delete("/apis/apps/v1/namespaces/demo/daemonsets/fluent-bit");
        town.delete("/api/v1/namespaces/demo/pods/fluent-bit-7hb2k");
        town
    }

    fn run(&self, words: &str) -> Output {
        self.lab.run(&format!("{words} --kubeconfig admin.yaml"))
    }

    fn get(&self, path: &str) -> Value {
        self.cluster.as_admin(&Method::GET, path, None).unwrap()
    }

    fn delete(&self, path: &str) {
        let at_once = json!({"gracePeriodSeconds": 0});
        self.cluster.as_admin(&Method::DELETE, path, Some(&at_once)).unwrap();
    }

    fn patch(&self, path: &str, patch: &Value) {
        self.cluster.as_admin(&Method::PATCH, path, Some(patch)).unwrap();
    }

    /// A running pod on the node, besides the two of the Deployment `web`.
    fn pod(&self, name: &str, metadata: &Value, spec: &Value) {
        let mut pod = json!({
            "metadata": {"labels": {"app": name}},
            "spec": {"nodeName": "win-a1", "containers": [{"name": "c", "image": "pause"}]},
        });
        for (part, more) in [("metadata", metadata), ("spec", spec)] {
            for (key, value) in more.as_object().unwrap() {
                pod[part][key] = value.clone();
            }
        }
        pod["metadata"]["name"] = name.into();
        self.cluster.as_admin(&Method::POST, "/api/v1/namespaces/demo/pods", Some(&pod)).unwrap();
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        self.patch(&format!("/api/v1/namespaces/demo/pods/{name}/status"), &status);
    }

    /// A budget, and its controller's counts: allowed, healthy, desired, expected.
    fn budget(&self, name: &str, spec: &Value, [allowed, healthy, desired, expected]: [u32; 4]) {
        let budget = json!({"metadata": {"name": name}, "spec": spec});
        let budgets = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets";
        self.cluster.as_admin(&Method::POST, budgets, Some(&budget)).unwrap();
        let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy,
            "desiredHealthy": desired, "expectedPods": expected}});
        self.patch(&format!("{budgets}/{name}/status"), &status);
    }

    fn cordoned(&self) -> bool {
        self.get(NODE)["spec"]["unschedulable"] == true
    }

    /// Names of the node's pods.
    fn pods(&self) -> Vec<String> {
        let list = self.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dwin-a1");
        let names = list["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap());
        names.map(|name| name.split("-5d8f").next().unwrap().to_owned()).collect()
    }
}

fn managed() -> Value {
    json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "7", "controller": true}]})
}

fn daemon() -> Value {
    json!({"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "8", "controller": true},
    ]})
}

fn why(result: &Value) -> &str {
    result["error"]["why"].as_str().unwrap()
}

#[test]
fn pods_behind_a_healthy_budget_are_evicted_one_after_the_other() {
    let town = Town::new(&[]);
    let lines = town.run("node drain -y -o ndjson").exits(0).ndjson();
    assert!(town.pods().is_empty() && town.cordoned());
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    assert_eq!((of("pod_evicted").len(), of("pod_gone").len()), (2, 2));
    assert_eq!(of("pod_gone").last().unwrap()["gone"], 2);
    for blocked in of("pod_blocked") {
        let why = blocked["why"].as_str().unwrap();
        // The budget may allow it by the time it is read.
        assert!(why.starts_with("budget demo/web: ") || why.starts_with("The disruption budget web needs"), "{why}");
    }

    let again = town.run("node drain -y -o json").exits(0).json();
    assert_eq!(again["changed"], false, "{again}");
    let back = town.run("node uncordon -o json").exits(0).json();
    assert_eq!((&back["changed"], town.cordoned()), (&json!(true), false));
}

#[test]
fn every_blocking_pod_is_reported_at_once_before_the_node_is_cordoned() {
    let town = Town::new(&[]);
    town.pod("bare", &json!({}), &json!({}));
    town.pod("scratch", &managed(), &json!({"volumes": [{"name": "s", "emptyDir": {}}]}));
    town.pod("agent-1", &daemon(), &json!({}));
    town.cluster
        .as_admin(
            &Method::POST,
            "/apis/apps/v1/namespaces/demo/daemonsets",
            Some(&json!({"metadata": {"name": "agent"}, "spec": {
                "selector": {"matchLabels": {"app": "agent-1"}},
                "template": {"metadata": {"labels": {"app": "agent-1"}}, "spec": {"containers": []}},
            }})),
        )
        .unwrap();
    let refused = town.run("node drain -y -o json --ignore-daemonsets=false").exits(8).json();
    assert_eq!((refused["error"]["id"].as_str(), &refused["changed"]), (Some("DrainRefused"), &json!(false)));
    insta::assert_snapshot!(why(&refused), @"
    demo/agent-1 belongs to DaemonSet demo/agent (--ignore-daemonsets skips it)
    demo/bare has no controller that would re-create it (--force deletes it for good)
    demo/scratch has data in an emptyDir volume (--delete-emptydir-data deletes it)
    ");
    assert!(!town.cordoned(), "unlike kubectl");
    assert_eq!(town.pods().len(), 5);

    let dry = town.run("node drain -n --delete-emptydir-data --force").exits(0);
    insta::assert_snapshot!(dry.screen(), @"
    Drain of win-a1: 4 pods to evict.
      - demo/bare
      - demo/scratch
      - demo/web-5d8f7c9b6d-4xkzq
      - demo/web-5d8f7c9b6d-9vlmt
        demo/agent-1 belongs to a DaemonSet, which would re-create it
    dry run: node win-a1 would be cordoned and drained
    result: OK (exit 0) changed=false reboot=false
    ");
    assert!(!town.cordoned());
    let _done = town.run("node drain -y --ignore-daemonsets --delete-emptydir-data --force").exits(0);
    assert_eq!(town.pods(), ["agent-1"]);
}

#[test]
fn a_budget_that_can_never_allow_it_is_named_at_once() {
    let town = Town::new(&[]);
    town.pod("alone", &managed(), &json!({}));
    town.budget("alone", &json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "alone"}}}), [0, 1, 1, 1]);
    town.budget("web-too", &json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}), [1, 2, 1, 2]);
    let refused = town.run("node drain -y -o json").exits(8).json();
    assert_eq!(refused["error"]["id"], "DrainNeverAllowed");
    insta::assert_snapshot!(why(&refused), @"
    demo/alone: budget demo/alone: 0 disruptions allowed, 1 of 1 pods healthy, 1 needed; it can never allow an eviction
    demo/web-5d8f7c9b6d-4xkzq: is under 2 budgets (demo/web, demo/web-too), which Kubernetes always refuses
    demo/web-5d8f7c9b6d-9vlmt: is under 2 budgets (demo/web, demo/web-too), which Kubernetes always refuses
    ");
    assert!(!town.cordoned() && town.pods().len() == 3);
    let hint = |refused: &Value| refused["error"]["hint"].as_str().unwrap().to_owned();
    assert!(hint(&refused).starts_with("where a pod has several budgets, change their selectors"), "{refused:#}");
    // No number of replicas helps a pod with two budgets.
    let alone = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets/alone";
    town.cluster.as_admin(&Method::DELETE, alone, None).unwrap();
    let refused = town.run("node drain -y -o json").exits(8).json();
    assert_eq!(refused["error"]["id"], "DrainNeverAllowed");
    assert!(hint(&refused).starts_with("change the selectors of the budgets"), "{refused:#}");
    assert!(!hint(&refused).contains("scale"), "{refused:#}");
    let _deleted = town.run("node drain -y --disable-eviction").exits(0);
    assert!(town.pods().is_empty());
}

/// With an integer `minAvailable`, Kubernetes counts the existing pods: if one was evicted and its replacement does not
/// exist yet, the budget looks as if it never allows an eviction.
#[test]
fn a_drain_waits_for_a_budget_whose_pod_was_just_evicted() {
    let town = Town::new(&["no-controllers", "POST /api/v1/namespaces/demo/pods/*/eviction=noted"]);
    let both = json!({"labels": {"app": "both"}, "ownerReferences": managed()["ownerReferences"]});
    for name in ["one", "two"] {
        town.pod(name, &both, &json!({}));
    }
    town.budget("both", &json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "both"}}}), [1, 2, 1, 2]);
    let counts = |allowed: u32, pods: u32| {
        let status = json!({"status": {"disruptionsAllowed": allowed, "currentHealthy": pods, "expectedPods": pods}});
        town.patch("/apis/policy/v1/namespaces/demo/poddisruptionbudgets/both/status", &status);
    };
    let asked = || fs::read_to_string(town.lab.path("elsewhere/calls")).unwrap_or_default().lines().count();
    let done = thread::scope(|scope| {
        let drain = scope.spawn(|| town.run("node drain -y -o json --pod-selector app=both --timeout 60s"));
        let until = |is: &dyn Fn() -> bool| {
            while !is() && !drain.is_finished() {
                thread::sleep(Duration::from_millis(20));
            }
        };
        until(&|| town.pods().len() == 3);
        counts(0, 1);
        let before = asked();
        until(&|| asked() >= before + 2);
        counts(1, 2);
        drain.join().unwrap()
    });
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(town.pods(), ["web", "web"]);
}

/// Pods that were started meanwhile would lose their network.
#[test]
fn a_node_that_is_uncordoned_during_a_change_keeps_its_network() {
    let town = Town::new(&[]);
    let _installed = town.run("install -y").exits(0);
    let mut held = managed();
    held["finalizers"] = json!(["example.com/hold"]);
    town.pod("held", &held, &json!({}));
    let pod = "/api/v1/namespaces/demo/pods/held";
    let done = thread::scope(|scope| {
        let change = scope.spawn(|| town.run("reconfigure -y -o json --set spec.calicoNetwork.vxlan.vxlanVNI=5000"));
        while !town.get(pod)["metadata"]["deletionTimestamp"].is_string() && !change.is_finished() {
            thread::sleep(Duration::from_millis(20));
        }
        town.patch(NODE, &json!({"spec": {"unschedulable": null}}));
        town.patch(pod, &json!({"metadata": {"finalizers": null}}));
        change.join().unwrap()
    });
    let failed = done.exits(9).json();
    assert_eq!(failed["error"]["id"], "NodeUncordoned", "{failed}");
    assert!(!town.cordoned());
    let status = town.run("status -o json").exits(0).json();
    assert_eq!((&status["overall"], &status["generation"]), (&json!("Healthy"), &json!(1)), "{status}");
}

/// The same for a Node that an administrator had cordoned before, and uncordons while the run is interrupted.
#[test]
fn a_resumed_run_detects_that_the_node_was_uncordoned() {
    let lab = Lab::installed();
    let cordoned = |is: bool| lab.edit_object("nodes", "win-a1", |node| node["spec"]["unschedulable"] = is.into());
    cordoned(true);
    let change = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";
    let _killed = lab.fails_at("put cni-conf *=exit-before", change).exits(137);
    cordoned(false);
    let failed = lab.run("resume -y").exits(9).screen();
    assert!(failed.contains("was uncordoned by somebody while this run needs it empty"), "{failed}");
    assert!(!failed.contains("stays so"), "{failed}");
    assert_eq!(lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"], false);
    assert_eq!(lab.healthy()["generation"], 1);
}

#[test]
fn a_pod_that_hangs_is_named_with_its_finalizers_and_the_node_is_uncordoned() {
    let town = Town::new(&[]);
    let mut held = managed();
    held["finalizers"] = json!(["example.com/hold"]);
    town.pod("held", &held, &json!({}));
    let late = town.run("node drain -y -o json --timeout 2s").exits(8).json();
    assert_eq!(late["error"]["id"], "DrainTimeout");
    assert_eq!(late["error"]["what"], "1 of 3 pods still on node win-a1 after 2 s");
    assert!(why(&late).contains("demo/held") && why(&late).contains("example.com/hold"), "{late}");
    assert!(!town.cordoned());

    // A Node that was cordoned before stays cordoned.
    let _cordoned = town.run("node cordon").exits(0);
    let late = town.run("node drain -y -o ndjson --drain-timeout 3s").exits(8).ndjson();
    assert!(town.cordoned());
    let progress: Vec<_> = late.iter().filter(|line| line["type"] == "drain_progress").collect();
    let ending = progress.iter().rev().find_map(|line| line["ending"][0].as_str()).unwrap_or_default();
    assert!(ending.starts_with("demo/held: terminating for ") && ending.ends_with("example.com/hold"), "{progress:#?}");
}

#[test]
fn only_the_pods_that_a_selector_matches_are_evicted() {
    let town = Town::new(&[]);
    town.pod("other", &managed(), &json!({}));
    let _done = town.run("node drain -y --pod-selector app=other").exits(0);
    assert_eq!(town.pods(), ["web", "web"]);
}

#[test]
fn a_busy_or_failing_server_only_makes_a_drain_slower() {
    for fault in [
        "POST /api/v1/namespaces/*/eviction#1=429",
        "POST /api/v1/namespaces/*/eviction#1=500",
        "POST /api/v1/namespaces/*/eviction#1=reset",
        "POST /api/v1/namespaces/*/eviction#2=cut",
        "GET /api/v1/pods?*watch=true*#1=reset",
        "GET /api/v1/pods?*watch=true*#1=503",
        "GET /apis/policy/v1/poddisruptionbudgets?*watch=true*=403",
        "GET /apis/policy/v1/poddisruptionbudgets?limit*=403",
        "PATCH /api/v1/nodes/*#1=reset",
        "PATCH /api/v1/nodes/*#1=cut",
        // Allowed a moment before: the server has just started.
        "GET /api/v1/pods?*limit=500*#2=403",
    ] {
        let town = Town::new(&[fault]);
        let done = town.run("node drain -y -o json --timeout 30s");
        assert_eq!(done.code, 0, "{fault}: {done}");
        assert!(town.pods().is_empty() && town.cordoned(), "{fault}");
    }
}

#[test]
fn a_refusal_of_the_server_ends_the_drain_and_uncordons_the_node() {
    let town = Town::new(&["POST /api/v1/namespaces/*/eviction=403"]);
    let done = town.run("node drain -y -o json").exits(17).json();
    assert_eq!(done["error"]["id"], "ClusterForbidden");
    assert!(!town.cordoned());
}

/// A webhook that fails names itself only in the server's message.
#[test]
fn an_eviction_that_fails_until_the_time_is_up_is_named_with_what_the_server_said() {
    let town = Town::new(&["POST /api/v1/namespaces/*/eviction=500"]);
    let late = town.run("node drain -y -o json --timeout 2s").exits(8).json();
    assert_eq!(late["error"]["id"], "DrainTimeout");
    assert!(why(&late).contains("HTTP 500: "), "{late:#}");
    let hint = |late: &Value| late["error"]["hint"].as_str().unwrap().contains("pods evicted so far");
    assert!(!hint(&late), "none was evicted: {late:#}");
    let town = Town::new(&[]);
    let mut held = managed();
    held["finalizers"] = json!(["example.com/hold"]);
    town.pod("held", &held, &json!({}));
    let late = town.run("node drain -y -o json --timeout 2s").exits(8).json();
    assert!(hint(&late), "two were: {late:#}");
}

#[test]
fn taints_are_added_and_removed_beside_other_taints() {
    let town = Town::new(&[]);
    let keys = || -> Vec<String> {
        let node = town.get(NODE);
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints
            .iter()
            .map(|taint| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap()))
            .collect()
    };
    let others =
        json!({"spec": {"taints": [{"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-11-21T00:29:17Z"}]}});
    town.patch(NODE, &others);
    let dry = town.run("node taint os=windows:NoSchedule -n").exits(0);
    assert!(dry.stdout.contains("dry run: node win-a1 would be tainted with os=windows:NoSchedule"), "{dry}");
    let done = town.run("node taint os=windows:NoSchedule -o json").exits(0).json();
    assert_eq!(done["changed"], true);
    assert_eq!(keys(), ["theirs:NoExecute", "os:NoSchedule"]);
    assert_eq!(town.get(NODE)["spec"]["taints"][0], others["spec"]["taints"][0]);
    assert_eq!(town.run("node taint os=windows:NoSchedule -o json").exits(0).json()["changed"], false);
    let other = town.run("node taint os=linux:NoSchedule -o json").exits(13).json();
    assert_eq!(other["error"]["id"], "TaintExists");
    let _overwritten = town.run("node taint os=linux:NoSchedule --overwrite").exits(0);
    let _wrong = town.run("node taint os=linux:Never").exits(64);
    let off = town.run("node untaint os").exits(0);
    insta::assert_snapshot!(off.screen(), @r"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd 1.7.27
    node win-a1 is freed of the taints os
    node win-a1 has the labels beta.kubernetes.io/os=windows, kubernetes.io/os=windows, node.kubernetes.io/windows-build=10.0.20348: from now on only their nodeSelector kubernetes.io/os: linux keeps pods for Linux away
    result: OK (exit 0) changed=true reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    ");
    assert_eq!(keys(), ["theirs:NoExecute"]);
}

#[test]
fn a_node_without_a_node_object_does_not_count_as_cordoned() {
    let town = Town::new(&[]);
    let absent = town.run("node cordon -o json --node-name elsewhere").exits(7).json();
    assert_eq!(absent["error"]["id"], "NodeAbsent");
    assert_eq!(town.run("node cordon -o json").exits(0).json()["changed"], true);
    assert_eq!(town.run("node cordon -o json").exits(0).json()["changed"], false);
}
