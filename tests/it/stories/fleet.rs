//! `fleet` and `render fleet`, without a real cluster; `real::fleet` has one.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::schemas;
use crate::etcd::Member;
use crate::lab::{Lab, Output};

/// What names the rollout, as a command has it.
const ROLLOUT: &str = "--image host/c:1 --api-server https://192.0.2.10:6443";

/// The objects that `render fleet` prints.
fn rendered(lab: &Lab, words: &str) -> Vec<Value> {
    let text = lab.bare(&format!("render fleet {ROLLOUT} {words}")).exits(0).stdout;
    text.split("---\n").map(|one| serde_yaml::from_str(one).unwrap()).collect()
}

#[test]
fn the_nodes_do_not_get_the_way_to_the_cluster_of_the_machine_that_runs_fleet() {
    let lab = Lab::new();
    lab.write(
        "node.yaml",
        "spec: {calico: {version: v3.32.1}, kubernetes: {kubeconfig: /home/admin/.kube/config, context: one, serviceCIDRs: [10.96.0.0/12]}}\n",
    );
    let config = |words: &str| -> Value {
        let objects = rendered(&lab, words);
        let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
        let bytes = BASE64_STANDARD.decode(secret["data"]["node.yaml"].as_str().unwrap()).unwrap();
        serde_yaml::from_slice(&bytes).unwrap()
    };
    let by_file = config("-c node.yaml");
    assert_eq!(by_file["spec"]["kubernetes"], json!({ "serviceCIDRs": ["10.96.0.0/12"] }));
    // An option is a layer of the config, too; another admin's makes no other revision.
    assert_eq!(config("-c node.yaml --kubeconfig other --context two"), by_file);
}

#[test]
fn a_config_that_names_one_machine_is_refused_for_many() {
    let lab = Lab::installed();
    lab.write(
        "node.yaml",
        "spec:\n  calico: {version: v3.32.1}\n  kubernetes:\n    nodeName: win-7\n    node: {nodeIP: 10.20.0.27}\n  \
         calicoNetwork: {nodeAddress: 10.20.0.27/24}\n",
    );
    let before = lab.objects();
    for verb in ["fleet plan", "fleet apply -y", "render fleet"] {
        let refused = lab.run(&format!("{verb} {ROLLOUT} -c node.yaml")).exits(4);
        for place in [
            "node.yaml:4:15: spec.kubernetes.nodeName: ",
            "node.yaml:5:20: spec.kubernetes.node.nodeIP: ",
            "node.yaml:6:32: spec.calicoNetwork.nodeAddress: ",
        ] {
            assert!(refused.stderr.contains(&format!("{place}this is one machine's")), "{place}\n{refused}");
        }
    }
    assert!(lab.objects() == before, "something was written");

    let refused = lab.run(&format!("render fleet {ROLLOUT} --set calico.version=v3.32.1 --node-name win-7")).exits(4);
    assert!(refused.stderr.contains("--node-name: spec.kubernetes.nodeName: this is one machine's"), "{refused}");
    // Each machine's own is detected by these.
    lab.write(
        "node.yaml",
        "spec: {calico: {version: v3.32.1}, kubernetes: {nodeName: auto}, calicoNetwork: {nodeAddress: first-found}}\n",
    );
    let _rendered = rendered(&lab, "-c node.yaml");
}

#[test]
fn the_result_of_a_run_is_on_its_node_until_calico_is_removed() {
    let lab = Lab::installed();
    let result = || -> Value {
        let node = lab.object("nodes", "win-a1").unwrap();
        node["metadata"]["annotations"]["calicoctl-win/result"]
            .as_str()
            .map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    };
    let run = |words: &str, fault: &str| {
        let mut command = lab.command_of_pod(&format!("{words} -o json --sandbox node"));
        command.env("CALICO_WIN_SANDBOX_FAULT", fault);
        Output::of(words, command).json()
    };
    let vni = "apply -y --set calicoNetwork.vxlan.vxlanVNI=5000";
    let _by_hand = lab.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=6000").exits(0);
    assert_eq!(result(), Value::Null, "only a pod's run writes it");
    let done = run(vni, "");
    let wanted = json!({
        "revision": "0123456789ab", "run": done["run"], "exit": 0, "id": null, "generation": 3, "vni": 5000,
        "settings": lab.object("nodes", "win-a1").unwrap()["metadata"]["annotations"]["calicoctl-win/settings"],
    });
    assert_eq!(result(), wanted, "{done:#}");
    assert!(wanted["settings"].is_string(), "{wanted:#}");
    // Nothing to do is a result, too.
    let again = run(vni, "");
    assert_eq!((&result()["run"], &again["changed"]), (&again["run"], &json!(false)));

    let reverted = run(&vni.replace("5000", "7000"), "put running CalicoFelix=fail");
    let failed = result();
    assert_eq!((&failed["exit"], &failed["id"]), (&reverted["exit_code"], &reverted["error"]["id"]), "{failed:#}");
    assert_eq!((&failed["exit"], &failed["generation"], &failed["vni"]), (&json!(9), &json!(3), &json!(5000)));
    // Also before anything is changed.
    let refused = run("apply -y --release v9.9.9", "");
    assert_eq!((&result()["run"], &result()["exit"]), (&refused["run"], &refused["exit_code"]), "{refused:#}");
    assert_ne!(refused["exit_code"], 0, "{refused:#}");

    let _removed = lab.run("uninstall -y").exits(0);
    assert_eq!(result(), Value::Null);
}

#[test]
fn a_canary_without_a_node_and_an_image_that_is_none_are_told() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let plan = lab.run("fleet plan -c node.yaml --image host/c:1 --canary stage=canary").exits(0).screen();
    assert!(plan.contains("no Windows node has the label stage=canary"), "{plan}");
    lab.edit_object("nodes", "win-a1", |node| node["metadata"]["labels"]["stage"] = "canary".into());
    let plan = lab.run("fleet plan -c node.yaml --image host/c:1 --canary stage=canary").exits(0).screen();
    assert!(!plan.contains("no Windows node has"), "{plan}");
    for image in ["not-an-image!!", "Host/C", "host/c:", "host/c@sha256:12"] {
        let refused = lab.run(&format!("fleet plan -c node.yaml --image {image}")).exits(64);
        assert!(format!("{refused}").contains("--image"), "{image}: {refused}");
    }
    for image in ["c", "localhost:5000/a/b_c:v1.0-x", &format!("host/c:1@sha256:{}", "0a".repeat(32))] {
        let _fits = lab.run(&format!("fleet plan -c node.yaml --image {image}")).exits(0);
    }
}

/// Node win-a1 has the two pods of demo/web, and a pod of the DaemonSet demo/fluent-bit, which a drain skips.
#[test]
fn a_plan_says_which_services_lose_pods_and_which_have_none_left() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let asks = "fleet plan -c node.yaml --image host/c:1";
    let loses = |output: &Output| {
        let plan = output.json();
        schemas::check(&plan);
        let [node] = &plan["waves"][0]["loses"].as_array().unwrap()[..] else { panic!("{plan:#}") };
        assert_eq!((&node["name"], &node["evicted"]), (&json!("win-a1"), &json!(2)), "{plan:#}");
        node["services"].clone()
    };
    assert_eq!(loses(&lab.run(&format!("{asks} -o json")).exits(0)), json!([]));
    for (namespace, name, app) in
        [("demo", "web", "web"), ("demo", "api", "web"), ("demo", "logs", "fluent-bit"), ("default", "web", "web")]
    {
        lab.add_object(
            "services",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": namespace },
                "spec": { "type": "ClusterIP", "selector": { "app": app } },
            }),
        );
    }
    let both = |alone: bool| json!([{ "name": "demo/api", "alone": alone }, { "name": "demo/web", "alone": alone }]);
    assert_eq!(loses(&lab.run(&format!("{asks} -o json")).exits(0)), both(true));
    let screen = lab.run(asks).exits(0).screen();
    let line = "\n     Services that lose pods: 2; left without any until they run elsewhere: demo/api (on win-a1), demo/web (on win-a1)\n";
    assert!(screen.contains(line), "{screen}");

    // Without the right to read them, the plan has the rest, and says what is missing.
    let unread = lab.fails_at("api GET /api/v1/services?*=403", &format!("{asks} -o json")).exits(0);
    assert_eq!(loses(&unread), Value::Null);
    let screen = lab.fails_at("api GET /api/v1/services?*=403", asks).exits(0).screen();
    assert!(screen.contains("ServicesUnread") && !screen.contains("Services that lose"), "{screen}");

    // A pod on a node of another system serves them meanwhile.
    lab.add_object(
        "pods",
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "web-linux", "namespace": "demo", "uid": "1", "labels": { "app": "web" } },
            "spec": { "nodeName": "linux-1", "containers": [] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
        }),
    );
    assert_eq!(loses(&lab.run(&format!("{asks} -o json")).exits(0)), both(false));
    let screen = lab.run(asks).exits(0).screen();
    assert!(screen.contains("\n     Services that lose pods: 2\n"), "{screen}");
}

#[test]
fn a_plan_says_which_budget_never_lets_a_pod_go() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let budget = |most: u32| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": "web", "namespace": "demo", "uid": "7", "generation": 1 },
            "spec": { "maxUnavailable": most, "selector": { "matchLabels": { "app": "web" } } },
            "status": {
                "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2 - most,
                "expectedPods": 2,
            },
        })
    };
    let blocked = |most: u32| {
        lab.add_object("poddisruptionbudgets.policy", budget(most));
        let plan = lab.run("fleet plan -c node.yaml --image host/c:1 -o json").exits(0).json();
        plan["waves"][0]["blocked"].as_array().unwrap().iter().map(|why| why.as_str().unwrap().to_owned()).collect()
    };
    // One that allows a pod after the other only delays the drain.
    assert_eq!(blocked(1), Vec::<String>::new());
    let never: Vec<String> = blocked(0);
    assert!(never.len() == 2 && never.iter().all(|why| why.starts_with("win-a1: demo/web")), "{never:#?}");
    assert!(never.iter().all(|why| why.contains("budget")), "{never:#?}");

    // Without the right to read them, the plan has the rest, and says what is missing.
    let asks = "fleet plan -c node.yaml --image host/c:1";
    let fault = "api GET /apis/policy/v1/poddisruptionbudgets?*=403";
    let plan = lab.fails_at(fault, &format!("{asks} -o json")).exits(0).json();
    schemas::check(&plan);
    let wave = &plan["waves"][0];
    assert_eq!((&wave["evicted"], &wave["blocked"]), (&json!(2), &json!([])), "{plan:#}");
    let [unread] = &plan["unread"].as_array().unwrap()[..] else { panic!("{plan:#}") };
    assert!(unread.as_str().unwrap().starts_with("budgets were not read: "), "{unread}");
    let screen = lab.fails_at(fault, asks).exits(0).screen();
    assert!(screen.contains("\n! budgets were not read: "), "{screen}");
    assert!(!lab.run(asks).exits(0).screen().contains("not read"));
}

/// FelixConfiguration is changed at half of the nodes. The plan of the rest still says that the others are apart.
#[test]
fn a_plan_in_the_middle_of_a_change_of_the_vni_says_who_has_which_and_what_is_left() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}, calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
    let pod = lab.command_of_pod("apply -y --set calicoNetwork.vxlan.vxlanVNI=5000 --sandbox node");
    let _done = Output::of("apply", pod).exits(0);
    for (name, vni) in [("win-b1", json!(4096)), ("win-c1", json!(4096)), ("win-d1", json!(5000))] {
        let result = json!({ "revision": "0123456789ab", "exit": 0, "vni": vni }).to_string();
        lab.add_object(
            "nodes",
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {
                    "name": name, "uid": name, "labels": { "kubernetes.io/os": "windows" },
                    "annotations": { "calicoctl-win/result": result },
                },
                "spec": {}, "status": {},
            }),
        );
    }
    let asks = "fleet plan -c node.yaml --image host/c:1";
    let planned = || {
        let plan = lab.run(&format!("{asks} -o json")).exits(0).json();
        schemas::check(&plan);
        let steps = plan["steps"].as_array().unwrap().iter();
        let commands: Vec<String> = steps.filter_map(|step| step["command"].as_str().map(str::to_owned)).collect();
        (plan, commands)
    };
    let both = json!([{ "vni": 5000, "nodes": ["win-a1", "win-d1"] }, { "vni": 4096, "nodes": ["win-b1", "win-c1"] }]);
    let (half, commands) = planned();
    assert_eq!((&half["vni"], &half["vni_nodes"], &half["apart_seconds"]), (&json!(5000), &both, &json!(600)));
    assert_eq!((commands.len(), &half["steps"][0]["after_seconds"]), (1, &json!(0)), "it is due: {half:#}");

    let felix = |felix: &mut Value| felix["spec"]["vxlanVNI"] = json!(5000);
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", felix);
    let (patched, commands) = planned();
    assert_eq!((&patched["vni"], &patched["vni_nodes"], &patched["apart_seconds"]), (&json!(5000), &both, &json!(600)));
    assert_eq!(commands, [""; 0]);
    let screen = lab.run(asks).exits(0).screen();
    let lines = "\n! VNI 5000 is on 2 of 4 nodes: pods on nodes with different VNIs do not reach each other, for about \
                 10 min\n  FelixConfiguration has it\n";
    assert!(screen.contains(lines), "{screen}");
    assert!(screen.contains("  1. at first: wave all continues: 2 of 4 nodes left, 1 at once\n"), "{screen}");

    // A node without a result has the VNI that the DaemonSet keeps, or that of FelixConfiguration.
    let forget = |name: &str| {
        lab.edit_object("nodes", name, |node| node["metadata"]["annotations"] = json!({}));
    };
    forget("win-c1");
    let (one, _) = planned();
    assert_eq!(one["vni_nodes"][1], json!({ "vni": 4096, "nodes": ["win-b1"] }), "{one:#}");
    let _waits = lab.run("fleet apply -y -c node.yaml --image host/c:1 --timeout 1s").exits(1);
    let set = lab.object("daemonsets.apps", "calicoctl-win-all").unwrap();
    assert_eq!(set["metadata"]["annotations"]["calicoctl-win/former-vni"], "4096", "{set:#}");
    assert_eq!(planned().0["vni_nodes"], both);

    let done = |node: &mut Value| node["metadata"]["annotations"]["calicoctl-win/result"] = json!(r#"{"vni":5000}"#);
    for name in ["win-b1", "win-c1"] {
        lab.edit_object("nodes", name, done);
    }
    let (all, commands) = planned();
    assert_eq!((&all["vni"], &all["vni_nodes"], &all["apart_seconds"]), (&Value::Null, &json!([]), &Value::Null));
    assert_eq!((&all["steps"], commands.len()), (&json!([]), 0));
}

/// Another division of the nodes replaces the DaemonSets of the one before.
#[test]
fn a_dry_run_says_which_daemon_sets_it_would_delete_and_deletes_none() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let apply = "fleet apply -y -c node.yaml --image host/c:1";
    let _waits = lab.run(&format!("{apply} --timeout 1s")).exits(1);
    let sets = || {
        ["all", "canary", "others"]
            .map(|wave| lab.object("daemonsets.apps", &format!("calicoctl-win-{wave}")).is_some())
    };
    assert_eq!(sets(), [true, false, false]);
    let before = lab.objects();
    let text = lab.run(&format!("{apply} --canary stage=canary --dry-run=server")).exits(0).screen();
    assert!(text.contains("  delete    DaemonSet calicoctl-win/calicoctl-win-all\n"), "{text}");
    assert!(lab.objects() == before, "something was written");
    let _waits = lab.run(&format!("{apply} --canary stage=canary --timeout 1s")).exits(1);
    assert_eq!(sets(), [false, true, true]);
}

/// The zones of the nodes differ only in their letters, and one node has none.
#[test]
fn zones_are_the_same_waves_whether_they_are_found_or_listed() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    lab.edit_object("nodes", "win-a1", |node| node["metadata"]["labels"][ZONE] = "Europe_1a".into());
    let joins = |name: &str, zone: Option<&str>| {
        let mut labels = json!({ "kubernetes.io/os": "windows" });
        zone.into_iter().for_each(|zone| labels[ZONE] = zone.into());
        let metadata = json!({ "name": name, "uid": name, "labels": labels });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {} });
        lab.add_object("nodes", node);
    };
    joins("win-b1", Some("europe-1a"));
    joins("win-c1", None);
    let planned = |zones: &str| -> (Vec<(String, Value)>, Value) {
        let plan = lab.run(&format!("fleet plan -c node.yaml {ROLLOUT} --zones {zones} -o json")).exits(0).json();
        let wave = |wave: &Value| (wave["name"].as_str().unwrap().to_owned(), wave["nodes"].clone());
        (plan["waves"].as_array().unwrap().iter().map(wave).collect(), plan["replaced"].clone())
    };
    let (found, replaced) = planned("auto");
    let nodes: Vec<&Value> = found.iter().map(|(_, nodes)| nodes).collect();
    assert_eq!(nodes, [&json!(["win-a1"]), &json!(["win-b1"]), &json!(["win-c1"])], "{found:#?}");
    assert_eq!((found[1].0.as_str(), &replaced), ("zone-europe-1a", &json!([])));
    assert_eq!(planned("Europe_1a,europe-1a").0, found);
    // Their order is that of the list. What it does not list is in the last wave.
    let (other, _) = planned("europe-1a");
    let nodes: Vec<&Value> = other.iter().map(|(_, nodes)| nodes).collect();
    assert_eq!(nodes, [&json!(["win-b1"]), &json!(["win-a1", "win-c1"])], "{other:#?}");
    assert_ne!(other[1].0, found[2].0, "they have other nodes");

    // render does not look into a cluster, and makes the same of the same list.
    let sets = |objects: Vec<Value>| -> Vec<Value> {
        let mut sets: Vec<Value> = objects.into_iter().filter(|object| object["kind"] == "DaemonSet").collect();
        sets.sort_by_key(|set| set["metadata"]["annotations"]["calicoctl-win/order"].to_string());
        let affinity = |set: &Value| set["spec"]["template"]["spec"]["affinity"].clone();
        sets.iter().map(|set| json!([set["metadata"]["name"], affinity(set)])).collect()
    };
    let written = sets(rendered(&lab, "-c node.yaml --zones Europe_1a,europe-1a"));
    assert_eq!(written.len(), 3, "{written:#?}");
    let _waits = lab.run(&format!("fleet apply -y -c node.yaml {ROLLOUT} --zones auto --timeout 1s")).exits(1);
    let in_cluster = || {
        sets(
            lab.objects()
                .into_iter()
                .filter(|(kind, ..)| kind == "daemonsets.apps")
                .map(|(_, _, set)| set)
                .filter(|set| set["metadata"]["namespace"] == "calicoctl-win")
                .collect(),
        )
    };
    assert_eq!(in_cluster(), written);
    let through = rendered(&lab, "-c node.yaml --zones Europe_1a,europe-1a --through zone-europe-1a");
    let begun = through.iter().filter(|set| set["spec"]["template"]["spec"]["initContainers"].is_array());
    assert_eq!(begun.count(), 2);
    let refused = lab.bare(&format!("render fleet {ROLLOUT} -c node.yaml --zones auto")).exits(64);
    assert!(refused.stderr.contains("--zones europe-1a,europe-1b"), "{refused}");
    for wrong in ["a,,b", "-a", "a_", "a/b"] {
        let refused = lab.bare(&format!("render fleet {ROLLOUT} -c node.yaml --zones={wrong}")).exits(64);
        assert!(format!("{refused}").contains("--zones"), "{refused}");
    }

    // A node of a new zone is in the last wave until there is one for its zone, which has other nodes then.
    joins("win-d1", Some("europe-1b"));
    let nodes = |waves: &[(String, Value)]| waves.last().unwrap().1.clone();
    assert_eq!(nodes(&planned("Europe_1a,europe-1a").0), json!(["win-c1", "win-d1"]));
    let (later, replaced) = planned("auto");
    assert_eq!((&later[2].0, &later[2].1), (&"zone-europe-1b".to_owned(), &json!(["win-d1"])));
    assert_eq!((nodes(&later), &replaced), (json!(["win-c1"]), &json!([written[2][0]])));
    let _waits = lab.run(&format!("fleet apply -y -c node.yaml {ROLLOUT} --zones auto --timeout 1s")).exits(1);
    assert_eq!(in_cluster(), sets(rendered(&lab, "-c node.yaml --zones Europe_1a,europe-1a,europe-1b")));
}

/// Each node would read what grows with the number of nodes, so a rollout would cost its square.
#[test]
fn a_run_of_a_rollout_lists_nothing_of_the_whole_cluster() {
    let lab = Lab::installed();
    let asked = |words: &str, code: i32| -> Vec<String> {
        let _gone = std::fs::remove_file(lab.path("node/cluster/calls"));
        let mut command = lab.command_of_pod(&format!("{words} --sandbox node"));
        command.env("CALICO_WIN_SANDBOX_FAULT", "api GET /*=noted;api POST /*=noted;api PATCH /*=noted");
        let _done = Output::of(words, command).exits(code);
        let calls = std::fs::read_to_string(lab.path("node/cluster/calls")).unwrap();
        calls.lines().map(str::to_owned).collect()
    };
    let whole = ["policies", "bgp", "hostendpoints", "blockaffinities", "kubecontrollers", "calico-typha"];
    for (words, most) in [("apply -y", 37), ("apply -y --set calicoNetwork.vxlan.vxlanVNI=5000", 70)] {
        let calls = asked(words, 0);
        // Calico's own programs, and `status`, use the node's login.
        let calls: Vec<String> = calls.into_iter().filter(|call| !call.ends_with("(by a service's program)")).collect();
        // The numbers of docs/fleet.md.
        assert!(calls.len() <= most, "{words}: {}: {calls:#?}", calls.len());
        let nodes = |call: &&String| call.contains("/api/v1/nodes?") || call.ends_with("/api/v1/nodes");
        let lists: Vec<&String> =
            calls.iter().filter(|call| nodes(call) || whole.iter().any(|one| call.contains(one))).collect();
        assert!(lists.is_empty(), "{words}: {lists:#?}");
    }
    // What the readiness probe asks, and docs/fleet.md counts.
    let probe = |code: i32| {
        let probe = asked("status -o json", code);
        for one in ["/api/v1/nodes/win-a1 ", "/felixconfigurations/default ", "/ipamconfigs/default "] {
            assert!(probe.iter().any(|call| call.contains(one)), "{one}: {probe:#?}");
        }
        probe.len()
    };
    // The datastore is the API server, which has answered already.
    assert_eq!(probe(12), 3);
    let felix = |felix: &mut Value| felix["spec"]["vxlanVNI"] = json!(5000);
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", felix);
    assert_eq!(probe(0), 3);

    // `fleet plan` says what the runs do not look for.
    lab.add_object(
        "hostendpoints.crd.projectcalico.org",
        json!({
            "apiVersion": "crd.projectcalico.org/v1", "kind": "HostEndpoint",
            "metadata": { "name": "one", "uid": "7" }, "spec": { "node": "win-a1" },
        }),
    );
    let plan = lab.run("fleet plan --set calico.version=v3.32.1 --image host/c:1").exits(0).screen();
    assert!(plan.contains("HostEndpoints"), "{plan}");
}

/// The account of a fleet's pods.
const ACCOUNT: &str = "system:serviceaccount:other:calicoctl-win";

/// Gives a lab's cluster the roles of a fleet in the namespace `other`, and returns those with rules, and the subjects of
/// all bindings.
fn with_roles(lab: &Lab) -> (Vec<Value>, Vec<Value>) {
    let objects = rendered(lab, "--set calico.version=v3.32.1 --namespace other");
    let (mut roles, mut bound) = (Vec::new(), Vec::new());
    for object in objects.iter().filter(|one| one["apiVersion"].as_str().unwrap().starts_with("rbac.")) {
        // What calico-node has is in the sandbox's cluster.
        let name = object["metadata"]["name"].as_str().unwrap();
        if name == "calicoctl-win-renewal" {
            continue;
        }
        assert!(name.starts_with("calicoctl-win-fleet"), "a user's roles are not the pods': {object:#}");
        if object["subjects"].is_null() {
            roles.push(object.clone());
        } else {
            bound.push(object["subjects"].clone());
        }
        lab.add_object(&plural(object), object.clone());
    }
    (roles, bound)
}

fn plural(role: &Value) -> String {
    format!("{}s.rbac.authorization.k8s.io", role["kind"].as_str().unwrap().to_lowercase())
}

/// Runs a command as a pod does, with the login in the file `pod`. Returns the result, and what it says it could not do.
fn as_pod(lab: &Lab, words: &str) -> (Value, Vec<&'static str>) {
    let words = format!("{words} --kubeconfig pod -o json --sandbox node");
    // The Job of an uninstall has no revision.
    let command = if words.starts_with("apply") { lab.command_of_pod(&words) } else { lab.command(&words) };
    let done = Output::of(&words, command).json();
    let warnings = done["warnings"].to_string();
    let mut refused = vec!["Rights", "may not", "forbidden", "skipped", "LeaseNotTaken", "Unread"];
    refused.retain(|word| warnings.contains(word));
    (done, refused)
}

const WITH_DRAIN: &str = "apply -y --drain=always --set calicoNetwork.vxlan.vxlanVNI=5000";

/// Every node has the token of their account.
#[test]
fn the_account_of_the_pods_has_the_rights_for_their_runs_and_less_than_a_user() {
    let lab = Lab::installed();
    let (roles, bound) = with_roles(&lab);
    assert_eq!((roles.len(), bound.len()), (5, 5));
    let account = json!([{ "kind": "ServiceAccount", "name": "calicoctl-win", "namespace": "other" }]);
    assert!(bound.iter().all(|subjects| subjects == &account), "{bound:#?}");
    let roles: String = roles.iter().map(Value::to_string).collect();
    for none in ["\"namespaces\"", "networkpolicies", "bgp", "hostendpoints", "blocks", "blockaffinities", "typha"] {
        assert!(!roles.contains(none), "{none}: {roles}");
    }

    lab.write("pod", super::restart::cluster(&lab).kubeconfig_of(ACCOUNT, Some("system:serviceaccounts")).unwrap());
    let runs = |words: &str| {
        let (done, refused) = as_pod(&lab, words);
        assert_eq!((&done["exit_code"], refused), (&json!(0), vec![]), "{words}: {done:#}");
        done
    };
    let changed = runs(WITH_DRAIN);
    assert_eq!(changed["evicted"].as_array().map(Vec::len), Some(2), "{changed:#}");
    let node = lab.object("nodes", "win-a1").unwrap();
    assert!(node["metadata"]["annotations"]["calicoctl-win/result"].is_string(), "{node:#}");
    let _removed = runs("uninstall -y --drain");
}

/// Rules without which the runs here say nothing, and why. `real::hostprocess` sees which are used.
const NOT_MISSED: [(&str, &str); 8] = [
    ("watch pods", "a drain asks for an evicted pod instead"),
    ("get pods", "a drain sees the end of an evicted pod in its watch"),
    ("list daemonsets", "nothing of Flannel is on the machine"),
    ("watch poddisruptionbudgets", "no budget delays an eviction here"),
    ("create events", "only the log says that there is no Event"),
    ("delete leases", "the Lease expires by itself"),
    ("get configmaps amazon-vpc-cni aws-auth", "the cluster is not Amazon's"),
    ("get deployments vpc-resource-controller vpc-admission-webhook", "the cluster is not Amazon's"),
];

#[test]
fn without_one_of_their_rights_a_run_of_the_pods_fails_or_says_what_it_could_not_do() {
    let ground = Lab::installed();
    let (roles, _) = with_roles(&ground);
    let pod = super::restart::cluster(&ground).kubeconfig_of(ACCOUNT, Some("system:serviceaccounts")).unwrap();
    let mut without: Vec<(&Value, usize)> = Vec::new();
    for role in &roles {
        without.extend((0..role["rules"].as_array().unwrap().len()).map(|rule| (role, rule)));
    }
    let is_missed = |&(role, rule): &(&Value, usize)| {
        let lab = ground.copy();
        lab.write("pod", &pod);
        let mut role = role.clone();
        role["rules"].as_array_mut().unwrap().remove(rule);
        lab.add_object(&plural(&role), role);
        ["apply -y", WITH_DRAIN, "uninstall -y --drain"].iter().any(|words| {
            let (done, refused) = as_pod(&lab, words);
            done["exit_code"] != 0 || !refused.is_empty()
        })
    };
    let half = without.len() / 2;
    let look = |part: &[(&Value, usize)]| part.iter().map(is_missed).collect::<Vec<bool>>();
    let missed = std::thread::scope(|scope| {
        let first = scope.spawn(|| look(&without[..half]));
        let second = look(&without[half..]);
        [first.join().unwrap(), second].concat()
    });
    let unmissed = without.iter().zip(missed).filter(|(_, missed)| !missed).map(|((role, rule), _)| {
        let rule = &role["rules"][rule];
        let names =
            rule["resourceNames"].as_array().into_iter().flatten().map(|name| format!(" {}", name.as_str().unwrap()));
        format!(
            "{} {}{}",
            rule["verbs"][0].as_str().unwrap(),
            rule["resources"][0].as_str().unwrap(),
            names.collect::<String>()
        )
    });
    let unmissed: Vec<String> = unmissed.collect();
    assert_eq!(unmissed, NOT_MISSED.map(|(rule, _)| rule.to_owned()), "{unmissed:#?}");
}

/// kubectl does not reach what Calico keeps in etcd.
#[test]
fn a_plan_names_calicoctl_if_calico_keeps_its_data_in_etcd() {
    let member = Member::start();
    let lab = Lab::installed();
    let config = |datastore: &str| {
        format!(
            "spec: {{calico: {{version: v3.32.1}}, calicoNetwork: {{backend: vxlan, vxlan: {{vxlanVNI: 5000}}}}{datastore}}}\n"
        )
    };
    lab.write("node.yaml", config(""));
    let etcd = format!(", datastore: {{type: etcdv3, etcd: {{endpoints: [\"{}\"]}}}}", member.url());
    lab.write("etcd.yaml", config(&etcd));
    let command = |file: &str| {
        let plan = lab.run(&format!("fleet plan -c {file} --image host/c:1 -o json")).exits(0).json();
        plan["steps"].as_array().unwrap().iter().find_map(|step| step["command"].as_str().map(str::to_owned)).unwrap()
    };
    let kubectl = r#"kubectl patch felixconfiguration default --type=merge -p "spec: {vxlanVNI: 5000}""#;
    assert_eq!(command("node.yaml"), kubectl);
    let calicoctl = r#"calicoctl patch felixconfiguration default -p '{"spec":{"vxlanVNI":5000}}'"#;
    assert_eq!(command("etcd.yaml"), calicoctl, "it reads only JSON");
}

#[test]
fn the_api_server_says_what_it_would_do_with_each_object_and_nothing_is_changed() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let asks = "fleet apply -c node.yaml --image host/c:1 --dry-run=server";
    let before = lab.objects();
    let actions = |result: &Value| -> Vec<(String, String)> {
        let of = |object: &Value, name: &str| object[name].as_str().unwrap().to_owned();
        result["objects"].as_array().unwrap().iter().map(|object| (of(object, "kind"), of(object, "action"))).collect()
    };
    let is = |result: &Value, kind: &str, action: &str| {
        let (kind, action) = (kind.to_owned(), action.to_owned());
        assert!(actions(result).contains(&(kind, action.clone())), "{action}: {result:#}");
    };

    // It does not judge what is in a namespace that does not exist.
    let first = lab.run(&format!("{asks} -o json")).exits(0).json();
    schemas::check(&first);
    assert_eq!((&first["status"], &first["changed"]), (&json!("changes_pending"), &json!(false)), "{first:#}");
    is(&first, "Namespace", "create");
    is(&first, "DaemonSet", "unknown");
    let secret = first["objects"].as_array().unwrap().iter().find(|object| object["kind"] == "Secret").unwrap();
    assert!(secret["why"].as_str().unwrap().contains("namespaces \"calicoctl-win\" not found"), "{secret:#}");
    assert_eq!(first["next"], json!(["kubectl create namespace calicoctl-win"]));
    assert!(lab.objects() == before, "something was written");
    let pending = lab.run(&format!("{asks} --detailed-exitcode")).exits(2).screen();
    assert!(pending.contains("\nnext: kubectl create namespace calicoctl-win\n"), "{pending}");

    // What it refuses is named for each object, and has the exit code of its cause.
    lab.add_object(
        "namespaces",
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "calicoctl-win" } }),
    );
    let all = lab.run(&format!("{asks} -o json")).exits(0).json();
    is(&all, "DaemonSet", "create");
    assert_eq!(all["next"], json!([]), "{all:#}");
    // With what the controllers have put in the namespace.
    let before = lab.objects();
    let refused = lab.fails_at("api PATCH /apis/apps/v1/*=422", &format!("{asks} -o json")).exits(7).json();
    schemas::check(&refused);
    assert_eq!(
        (&refused["error"]["id"], &refused["changed"]),
        (&json!("ClusterRejected"), &json!(false)),
        "{refused:#}"
    );
    assert_eq!(refused["error"]["state"], "nothing was changed");
    is(&refused, "DaemonSet", "refused");
    is(&refused, "Secret", "create");
    let text = lab.fails_at("api PATCH /api/v1/namespaces/calicoctl-win/secrets/*=403", asks).exits(17).screen();
    assert!(text.contains("  refused   Secret calicoctl-win/calicoctl-win-"), "{text}");
    assert!(text.contains("  create    DaemonSet calicoctl-win/calicoctl-win-all\n"), "{text}");
    assert!(lab.objects() == before, "something was written");

    // The wave exists, and has not begun.
    let _waits = lab.run("fleet apply -y -c node.yaml --image host/c:1 --timeout 1s").exits(1);
    let before = lab.objects();
    let text = lab.run(asks).exits(0).screen();
    assert!(text.contains("  update    DaemonSet calicoctl-win/calicoctl-win-all\n"), "{text}");
    assert!(text.contains("  unchanged Namespace calicoctl-win\n") && !text.contains("create"), "{text}");
    assert!(lab.objects() == before, "something was written");
}

/// Kubernetes continues the rollout: only `fleet status` shows how.
#[test]
fn an_apply_that_ends_early_names_fleet_status() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let late = lab.run("fleet apply -y -c node.yaml --image host/c:1 --timeout 1s -o json").exits(1).json();
    assert_eq!(late["error"]["id"], "FleetTimeout", "{late:#}");
    assert!(late["error"]["state"].as_str().unwrap().contains("`calicoctl-win fleet status"), "{late:#}");
    // Nothing in a sandbox makes the pods of the waves.
    assert!(late["error"]["hint"].as_str().unwrap().starts_with("no wave has begun: "), "{late:#}");
}

#[test]
fn a_change_of_the_vni_of_which_no_wave_has_begun_says_what_is_wanted() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}, calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
    let _waits = lab.run("fleet apply -y -c node.yaml --image host/c:1 --timeout 1s").exits(1);
    let status = lab.run("fleet status -o json").exits(0).json();
    let vni = &status["vni"];
    assert_eq!((&vni["wanted"], &vni["former"], &vni["felix"]), (&json!(5000), &json!(4096), &json!(4096)), "{vni:#}");
    assert!(lab.run("fleet status").exits(0).stdout.contains("VNI 5000: 0 of "), "{status:#}");
    assert!(lab.run("fleet metrics").exits(0).stdout.contains("fleet_vni 5000"), "{status:#}");
    // Not the command for Linux nodes: no Windows node has it.
    assert!(status["next"][0].as_str().unwrap().starts_with("run the same fleet apply again"), "{status:#}");
}

#[test]
fn a_rollout_that_is_paused_before_its_first_wave_is_told_until_it_is_resumed() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let apply = "fleet apply -y -c node.yaml --image host/c:1 --timeout 1s -o json";
    let _waits = lab.run(apply).exits(1);
    assert_eq!(lab.run("fleet pause -o json").exits(0).json()["msg"], "1 wave paused");
    assert_eq!(lab.run("fleet pause -o json").exits(0).json()["msg"], "the rollout is paused already");
    let status = lab.run("fleet status -o json").exits(0).json();
    assert_eq!(status["waves"][0]["state"], "Paused", "{status:#}");
    assert!(status["next"][0].as_str().unwrap().starts_with("calicoctl-win fleet resume"), "{status:#}");
    let before = lab.objects();
    let refused = lab.run(apply).exits(1).json();
    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("FleetPaused"), &json!(false)), "{refused:#}");
    assert!(refused["error"]["hint"].as_str().unwrap().contains("calicoctl-win fleet resume"), "{refused:#}");
    assert!(lab.objects() == before, "something was written");
    assert_eq!(lab.run("fleet resume -o json").exits(0).json()["msg"], "1 wave resumed");
    assert_eq!(lab.run("fleet resume -o json").exits(0).json()["msg"], "the rollout is not paused");
    assert_eq!(lab.run(apply).exits(1).json()["error"]["id"], "FleetTimeout");
}

#[test]
fn without_a_rollout_the_command_that_begins_one_is_named_with_what_it_needs() {
    let lab = Lab::installed();
    let begins = "calicoctl-win fleet apply -c FILE --image IMAGE";
    for verb in ["status", "metrics", "pause", "resume", "rollback -y"] {
        let absent = lab.run(&format!("fleet {verb}")).exits(24);
        assert!(absent.screen().contains(begins), "{verb}: {absent}");
    }
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let _waits = lab.run("fleet apply -y -c node.yaml --image host/c:1 --timeout 1s").exits(1);
    let none = lab.run("fleet rollback -y").exits(24);
    assert!(none.stderr.contains("FleetNoEarlier") && none.screen().contains(begins), "{none}");
}

/// A change of the VNI of four nodes: two are done, one is being changed, and one failed.
fn vni_rollout(lab: &Lab) {
    let labels = json!({ "app.kubernetes.io/name": "calicoctl-win", "calicoctl-win/wave": "all" });
    let made = json!({ "calicoctl-win/revision": "new", "calicoctl-win/vni": "5000" });
    lab.add_object(
        "daemonsets.apps",
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {
                "name": "calicoctl-win-all", "namespace": "calicoctl-win", "labels": labels, "generation": 1,
                "annotations": {
                    "calicoctl-win/order": "1", "calicoctl-win/max-unavailable": "50%",
                    "calicoctl-win/vni": "5000", "calicoctl-win/former-vni": "4096",
                },
            },
            "spec": { "template": { "metadata": { "annotations": made } }, "updateStrategy": { "type": "RollingUpdate" } },
            "status": { "observedGeneration": 1, "desiredNumberScheduled": 4, "currentNumberScheduled": 4 },
        }),
    );
    let message = "result: {\"id\": \"ReleaseDigestMismatch\", \"what\": \"the archive is another one\"}";
    let failed =
        json!({ "initContainerStatuses": [{ "lastState": { "terminated": { "exitCode": 6, "message": message } } }] });
    for (node, status) in [("a", done()), ("b", done()), ("c", json!({})), ("d", failed)] {
        lab.add_object("pods", pod(node, &status));
    }
}

/// The status of a pod whose change is made.
fn done() -> Value {
    let ended = json!({ "exitCode": 0, "startedAt": "2026-01-02T15:00:00Z", "finishedAt": "2026-01-02T15:04:00Z" });
    json!({
        "conditions": [{ "type": "Ready", "status": "True" }],
        "initContainerStatuses": [{ "state": { "terminated": ended } }],
    })
}

/// A pod of [`vni_rollout`] on a node.
fn pod(node: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("all-{node}"), "namespace": "calicoctl-win",
            "labels": { "app.kubernetes.io/name": "calicoctl-win", "calicoctl-win/wave": "all" },
            "annotations": { "calicoctl-win/revision": "new", "calicoctl-win/vni": "5000" },
        },
        "spec": { "nodeName": node, "containers": [] },
        "status": status,
    })
}

/// Its pod is Ready as before, and says what the node had.
#[test]
fn a_node_that_another_run_has_changed_since_is_named_and_its_vni_is_not_claimed() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}, calicoNetwork: {vxlan: {vxlanVNI: 5000}}}\n");
    let mut apply = lab.command("apply -y --drain=never --set calicoNetwork.vxlan.vxlanVNI=5000 --sandbox node");
    apply.env("CALICO_WIN_FLEET_REVISION", "new");
    let _done = Output::of("apply", apply).exits(0);
    vni_rollout(&lab);
    lab.add_object("pods", pod("win-a1", &done()));
    let looked = || {
        let status = lab.run("fleet status -o json").exits(12).json();
        schemas::check(&status);
        let plan = lab.run("fleet plan -c node.yaml --image host/c:1 -o json").exits(0).json();
        schemas::check(&plan);
        (status["changed_since"].clone(), status["vni"]["nodes"].clone(), plan["vni_nodes"].clone())
    };
    let with = json!([{ "vni": 5000, "nodes": ["a", "b", "win-a1"] }, { "vni": null, "nodes": ["c", "d"] }]);
    let planned = json!([{ "vni": 5000, "nodes": ["win-a1"] }]);
    assert_eq!(looked(), (json!([]), with.clone(), planned.clone()));

    let _by_hand = lab.run("reconfigure -y --no-drain --set calicoNetwork.vxlan.vxlanVNI=6000").exits(0);
    let without = json!([{ "vni": 5000, "nodes": ["a", "b"] }, { "vni": null, "nodes": ["c", "d", "win-a1"] }]);
    assert_eq!(looked(), (json!(["win-a1"]), without, json!([{ "vni": null, "nodes": ["win-a1"] }])));
    let screen = lab.run("fleet status").exits(12).stdout;
    assert!(screen.contains("\nchanged since by another run: win-a1\n"), "{screen}");

    // It has again what the pod's run left.
    let _back = lab.run("rollback -y --no-drain").exits(0);
    assert_eq!(looked(), (json!([]), with, planned));
    let screen = lab.run("fleet status").exits(12).stdout;
    assert!(!screen.contains("changed since by another run"), "{screen}");
}

#[test]
fn a_status_has_the_nodes_by_their_vni_and_the_next_command() {
    let lab = Lab::installed();
    vni_rollout(&lab);
    let status = lab.run("fleet status -o json").exits(12).json();
    schemas::check(&status);
    let vni = &status["vni"];
    assert_eq!((&vni["wanted"], &vni["former"], &vni["felix"]), (&json!(5000), &json!(4096), &json!(4096)), "{vni:#}");
    assert_eq!(vni["nodes"], json!([{ "vni": 5000, "nodes": ["a", "b"] }, { "vni": null, "nodes": ["c", "d"] }]));
    assert_eq!(vni["apart_since"], "2026-01-02T15:04:00Z");
    let patch = r#"kubectl patch felixconfiguration default --type=merge -p "spec: {vxlanVNI: 5000}""#;
    assert_eq!(status["next"], json!([patch]), "half of them have it");
    let text = lab.run("fleet status").exits(12).stdout;
    assert!(text.contains("VNI 5000: 2 of 4 nodes; FelixConfiguration has 4096\n"), "{text}");
    assert!(text.contains(&format!("next: {patch}\n")), "{text}");
}

#[test]
fn metrics_have_the_nodes_by_wave_and_state_and_the_causes() {
    let lab = Lab::installed();
    vni_rollout(&lab);
    let text = lab.run("fleet metrics").exits(0).stdout;
    for sample in [
        r#"fleet_info{namespace="calicoctl-win",revision="new"} 1"#,
        r#"fleet_wave_state{wave="all",state="rolling"} 1"#,
        r#"fleet_wave_state{wave="all",state="done"} 0"#,
        r#"fleet_nodes{wave="all",state="done"} 2"#,
        r#"fleet_nodes{wave="all",state="in_progress"} 1"#,
        r#"fleet_nodes{wave="all",state="failed"} 1"#,
        r#"fleet_nodes{wave="all",state="not_begun"} 0"#,
        r#"fleet_nodes_out{wave="all"} 2"#,
        r#"fleet_nodes_out_limit{wave="all"} 2"#,
        r#"fleet_wave_left_seconds{wave="all"} 240"#,
        r#"fleet_failures{id="ReleaseDigestMismatch"} 1"#,
        r#"fleet_vni_nodes{vni="5000"} 2"#,
        r#"fleet_vni_nodes{vni="unknown"} 2"#,
        "fleet_vni 5000",
        "fleet_felix_vni 4096",
        "fleet_vni_apart 1",
    ] {
        assert!(text.lines().any(|line| line.strip_prefix("calicoctl_win_") == Some(sample)), "{sample}\n{text}");
    }
    let _written = lab.run("fleet metrics --out fleet.prom").exits(0);
    let written = std::fs::read_to_string(lab.path("fleet.prom")).unwrap();
    assert_eq!(
        written.lines().filter(|line| line.starts_with('#')).count(),
        text.lines().filter(|line| line.starts_with('#')).count()
    );
    let _refused = lab.run("fleet metrics --out fleet.txt").exits(64);
}
