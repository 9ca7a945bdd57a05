//! A running node is changed: the VNI, which needs a drain, and smaller settings, which do not.

use std::fs;
use std::process::Stdio;

use calicoctl_win::node::sandbox::model::{Model, Name};
use serde_json::{Value, json};

use super::variants::with_remote_access;
use crate::lab::Lab;

const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";

fn kubernetes_node(lab: &Lab) -> Value {
    lab.object("nodes", "win-a1").unwrap()
}

fn cordoned(lab: &Lab) -> bool {
    kubernetes_node(lab)["spec"]["unschedulable"] == true
}

/// The number of pods on the node that a drain moves.
fn pods(lab: &Lab) -> usize {
    let moves = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet";
    let here = |pod: &Value| pod["spec"]["nodeName"] == "win-a1" && moves(pod);
    lab.objects().iter().filter(|(kind, _, pod)| kind == "pods" && here(pod)).count()
}

/// The health from `status`, and the VSID of the network.
fn standing(lab: &Lab) -> (String, u64) {
    let status = lab.status();
    let networks = status["networks"].as_array().unwrap();
    let calico = networks.iter().find(|network| network["name"] == "Calico");
    let vsid = calico.and_then(|network| network["vsid"].as_u64()).unwrap_or_default();
    (status["overall"].as_str().unwrap().to_owned(), vsid)
}

fn healthy(vsid: u64) -> (String, u64) {
    ("Healthy".to_owned(), vsid)
}

#[test]
fn another_vni_drains_the_node_re_creates_the_network_and_uncordons_it() {
    let lab = Lab::installed();
    assert_eq!(pods(&lab), 2);
    let lines = lab.run(&format!("{VNI} -o ndjson")).exits(0).ndjson();
    assert_eq!(standing(&lab), healthy(5000));
    assert_eq!((pods(&lab), cordoned(&lab)), (0, false));
    let phases: Vec<&str> = lines
        .iter()
        .filter(|line| line["type"] == "phase_complete")
        .map(|line| line["phase"]["id"].as_str().unwrap())
        .collect();
    let uncordoned = lines.iter().find(|line| line["type"] == "phase_complete" && line["phase"]["id"] == "uncordon");
    assert_eq!(uncordoned.unwrap()["changed"], true);
    insta::assert_snapshot!(phases.join(" "), @"cluster cordon drain files cni-conf pods services-stop hns-network files services-start wait-network node-startup services-start cni-conf health-gate annotate node-ready uncordon");
    let result = lines.last().unwrap();
    assert_eq!((&result["generation"], &result["changed"]), (&json!(2), &json!(true)));
    assert!(result["downtime_ms"].as_u64().is_some_and(|ms| ms < 60_000), "{result}");
    let annotations = kubernetes_node(&lab)["metadata"]["annotations"].clone();
    assert!(annotations["calicoctl-win/settings"].is_string(), "{annotations}");

    let again = lab.run(&format!("{VNI} -o json")).exits(0).json();
    assert_eq!(again["status"], "no_changes", "{again}");
    let _gone = lab.run("uninstall -y").exits(0);
    assert!(kubernetes_node(&lab)["metadata"]["annotations"]["calicoctl-win/settings"].is_null());
}

#[test]
fn the_vni_of_the_cluster_is_applied() {
    let lab = Lab::installed();
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
        felix["spec"]["vxlanVNI"] = 5000.into();
    });
    let refused = lab.run("install -y -o json").exits(19).json();
    assert_eq!(refused["error"]["id"], "NeedsDrain");
    assert!(refused["error"]["hint"].as_str().unwrap().contains("calicoctl-win reconfigure"));
    let _done = lab.run("reconfigure -y").exits(0);
    assert_eq!(standing(&lab), healthy(5000));
    assert!(!cordoned(&lab));
}

#[test]
fn the_node_stays_drained_until_the_cluster_has_its_vni() {
    let lab = Lab::installed();
    let late = lab.run(&format!("{VNI} -o json --wait-for-cluster-vni=1s")).exits(10).json();
    assert_eq!(late["error"]["id"], "ClusterVniNotSeen", "{late}");
    assert!(cordoned(&lab) && standing(&lab).1 == 5000);
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
        felix["spec"]["vxlanVNI"] = 5000.into();
    });
    let _done = lab.run("resume -y").exits(0);
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(5000)));
    let _at_once = lab.run("reconfigure -y --set services.felixLogSeverity=debug --wait-for-cluster-vni").exits(0);
}

/// A run that waits for FelixConfiguration has made its change: only its Node is not schedulable yet.
#[test]
fn a_wait_for_the_clusters_vni_that_was_ended_is_resumed_or_undone_whole() {
    let felix = |lab: &Lab, vni: u64| {
        lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
            felix["spec"]["vxlanVNI"] = vni.into();
        });
    };
    let waiting = || {
        let lab = Lab::installed();
        let _over = lab.run(&format!("{VNI} --wait-for-cluster-vni=1s")).exits(10);
        lab
    };
    let lab = waiting();
    let shown = lab.run("status").exits(12).stdout;
    assert!(shown.contains("with node win-a1 cordoned, waiting for FelixConfiguration to have VNI 5000"), "{shown}");
    assert!(!shown.contains("vxlanVNI=4096"), "{shown}");
    let _still = lab.run("resume -y").exits(10);
    assert!(cordoned(&lab) && standing(&lab).1 == 5000);
    let nothing = lab.run("apply -y").exits(0).screen();
    assert!(cordoned(&lab) && nothing.contains("stays cordoned, waiting for FelixConfiguration"), "{nothing}");

    let undone = lab.run("resume --undo -y").exits(0).stdout;
    assert!(undone.contains("win-a1 is as generation 1 made it"), "{undone}");
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(4096)));

    let lab = waiting();
    felix(&lab, 5000);
    let _done = lab.run("resume -y").exits(0);
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(5000)));

    // An undo that was ended is undone to the wait.
    let lab = waiting();
    let _ended = lab.fails_at("put network Calico=exit-after", "resume --undo -y").exits(137);
    let _back = lab.run("resume --undo -y").exits(0);
    assert!(cordoned(&lab) && standing(&lab).1 == 5000);
    let _undone = lab.run("resume --undo -y").exits(0);
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(4096)));

    // The change itself was ended.
    let lab = Lab::installed();
    let _killed = lab.fails_at("put network Calico=exit-after", &format!("{VNI} --wait-for-cluster-vni=1s")).exits(137);
    let _made = lab.run("resume -y").exits(10);
    assert!(cordoned(&lab) && standing(&lab).1 == 5000);
    let _undone = lab.run("resume --undo -y").exits(0);
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(4096)));
}

#[test]
fn status_says_what_a_run_in_progress_waits_for() {
    let lab = Lab::installed();
    let mut command = lab.command(&format!("{VNI} --wait-for-cluster-vni=10m --sandbox node"));
    let mut waiting = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let shown = loop {
        assert!(waiting.try_wait().unwrap().is_none(), "it waits");
        let shown = lab.run("status").stdout;
        if shown.contains("FelixConfiguration to have") {
            break shown;
        }
    };
    assert!(shown.contains("! in progress: reconfigure (run "), "{shown}");
    assert!(!shown.contains("vxlanVNI=4096") && !shown.contains("--undo"), "{shown}");
    waiting.kill().unwrap();
    let _killed = waiting.wait().unwrap();
    let shown = lab.run("status").exits(12).stdout;
    assert!(shown.contains("! interrupted: reconfigure (run ") && shown.contains("resume --undo"), "{shown}");
    let _undone = lab.run("resume --undo -y").exits(0);
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(4096)));
    let shown = lab.run("history").exits(0).stdout;
    assert!(shown.contains("reconfigure  interrupted, undone by resume (20"), "{shown}");
}

/// Defect B20: settings were lost when another one was changed.
#[test]
fn b20_settings_that_are_not_named_are_kept() {
    let lab = Lab::node();
    let _there = lab.run("install -y --set services.felixLogSeverity=debug").exits(0);
    let felix = || lab.read("C/ProgramData/calicoctl-win/felix.json").contains("debug");
    let _vni = lab.run(VNI).exits(0);
    assert!(felix(), "the VNI was changed and nothing else");
    let plan = lab.run("reconfigure -n -o json").exits(0).json();
    assert_eq!(plan["plan"]["changes"], json!([]), "{plan}");
    let _log = lab.run("reconfigure -y --set services.felixLogSeverity=info").exits(0);
    assert_eq!((felix(), standing(&lab)), (false, healthy(5000)));
    let _follows_the_cluster = lab.run("reconfigure -y --unset calicoNetwork.vxlan.vxlanVNI").exits(0);
    assert_eq!(standing(&lab), healthy(4096));

    // A complete config replaces all settings.
    lab.write("whole.yaml", "spec: {calicoNetwork: {vxlan: {vxlanVNI: 5000}}, services: {felixLogSeverity: debug}}\n");
    let _whole = lab.run("reconfigure -y -c whole.yaml").exits(0);
    assert_eq!((felix(), standing(&lab)), (true, healthy(5000)));
}

#[test]
fn a_change_that_needs_no_drain_moves_no_pod() {
    let lab = Lab::installed();
    let lines = lab.run("reconfigure -y -o ndjson --set services.felixLogSeverity=debug").exits(0).ndjson();
    assert!(lines.iter().all(|line| line["type"] != "pod_evicted" && line["phase"]["id"] != "cordon"));
    assert_eq!((pods(&lab), cordoned(&lab), standing(&lab)), (2, false, healthy(4096)));
    assert!(lab.read("C/ProgramData/calicoctl-win/felix.json").contains("debug"));
}

#[test]
fn a_dry_run_shows_the_change_and_the_evicted_pods_and_changes_nothing() {
    let lab = Lab::installed();
    let before = lab.picture();
    let shown = lab.run(&format!("{VNI} --dry-run")).exits(0);
    let takes = "Takes about 18 s, plus the time in which pods terminate; Calico's services are down for about";
    for part in ["-/+ hns-network  Calico", "Drain: needed", takes, "[WARN]  MixedVni", "  - demo/web-5d8f7c9b6d-4xkzq"]
    {
        assert!(shown.stdout.contains(part), "{part}: {shown}");
    }
    lab.picture().same_as(&before);
    assert_eq!((pods(&lab), cordoned(&lab)), (2, false));
}

#[test]
fn a_log_level_restarts_the_one_service_that_reads_it() {
    let lab = Lab::installed();
    let lines = lab.run("reconfigure -y -o ndjson --set services.felixLogSeverity=debug").exits(0).ndjson();
    let done = |phase: &str| -> Vec<&str> {
        let those = lines.iter().filter(|line| line["type"] == "phase_complete" && line["phase"]["id"] == phase);
        those.map(|line| line["message"].as_str().unwrap()).collect()
    };
    assert_eq!((done("services-stop"), done("services-start")), (vec!["CalicoFelix"], vec!["CalicoFelix"]));
    assert!(lines.iter().all(|line| line["type"] != "connectivity_notice"));
    let planned = lab.run("reconfigure -n -o json --set services.felixLogSeverity=info").exits(0).json();
    assert_eq!((&planned["plan"]["disruption"], &planned["plan"]["needs_drain"]), (&json!("services"), &json!(false)));
    assert!(planned["plan"]["about_seconds_down"].as_u64().unwrap() <= 4, "{planned}");
}

/// A node on which kube-proxy runs.
fn with_kube_proxy() -> Lab {
    let lab = Lab::node();
    let proxy = r"services:
  kube-proxy:
    definition:
      displayName: kube-proxy
      description: ''
      imagePath: C:\k\kube-proxy.exe --enable-dsr=true --source-vip=192.168.0.2
      account: LocalSystem
      start: auto
    pid: 9000
";
    lab.edit_yaml(|yaml| yaml.replacen("services:\n", proxy, 1));
    lab.write("node/C/k/kube-proxy.exe", "MZ");
    lab
}

/// The process of kube-proxy; none if it does not run.
fn kube_proxy(lab: &Lab) -> Option<u32> {
    let model: Model = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    model.services[&Name::new("kube-proxy")].pid
}

#[test]
fn kube_proxy_is_restarted_around_another_network_and_left_alone_otherwise() {
    let lab = with_kube_proxy();
    let bare = lab.picture();
    let _there = lab.run("install -y").exits(0);
    let _log = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    assert_eq!(kube_proxy(&lab), Some(9000), "nothing of it changed");

    let lines = lab.run(&format!("{VNI} -o ndjson")).exits(0).ndjson();
    let done = |phase: &str| -> Vec<&str> {
        let those = lines.iter().filter(|line| line["type"] == "phase_complete" && line["phase"]["id"] == phase);
        those.map(|line| line["message"].as_str().unwrap()).collect()
    };
    assert_eq!(done("services-stop"), ["kube-proxy, CalicoFelix, CalicoNode"]);
    assert_eq!(done("services-start"), ["CalicoNode", "CalicoFelix, kube-proxy"]);
    assert!(kube_proxy(&lab).is_some_and(|pid| pid != 9000));
    assert!(!lines.iter().any(|line| line.to_string().contains("KubeProxyStale")));

    // If somebody stopped it, it stays stopped.
    let runs_as = |pid: Option<u32>| {
        lab.edit_model(|model| {
            model.services.get_mut(&Name::new("kube-proxy")).unwrap().pid = pid;
        });
    };
    runs_as(None);
    let _back = lab.run("rollback -y").exits(0);
    assert_eq!((kube_proxy(&lab), standing(&lab)), (None, healthy(4096)));
    let _gone = lab.run("uninstall --purge -y").exits(0);
    assert_eq!(kube_proxy(&lab), None);
    runs_as(Some(9000));
    lab.picture().says_the_same_as(&bare);
}

#[test]
fn kube_proxy_runs_again_however_a_run_ends() {
    let there = with_kube_proxy();
    let _there = there.run("install -y").exits(0);
    for at in ["put running kube-proxy#1=exit-after", "put network Calico#1=exit-after"] {
        for after in ["resume -y", "resume -y --undo", "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=6000"] {
            let lab = there.copy();
            let _killed = lab.fails_at(at, VNI).exits(137);
            assert_eq!(kube_proxy(&lab), None);
            let _done = lab.run(after).exits(0);
            assert!(kube_proxy(&lab).is_some(), "{at}, then {after}");
        }
    }
    let lab = there.copy();
    let failed = lab.fails_at("put running kube-proxy#2=fail", &format!("{VNI} -o json")).exits(9).json();
    assert_eq!((&failed["rolled_back"], standing(&lab)), (&json!(true), healthy(4096)), "{failed}");
    assert!(kube_proxy(&lab).is_some());
    let _gone = lab.run("uninstall -y").exits(0);
    assert!(kube_proxy(&lab).is_some(), "it is not ours to remove");
}

#[test]
fn kube_proxy_is_not_restarted_if_the_config_forbids_it() {
    let lab = with_kube_proxy();
    let _there = lab.run("install -y --set services.restartKubeProxy=false").exits(0);
    let done = lab.run(&format!("{VNI} -o json")).exits(0).json();
    assert_eq!((&done["next"][0], kube_proxy(&lab)), (&json!("Restart-Service kube-proxy"), Some(9000)), "{done}");
    assert!(done["warnings"].to_string().contains("KubeProxyStale"));
    let log = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    assert!(!log.stdout.contains("KubeProxyStale"), "{log}");
}

/// A node on which kube-proxy runs in a HostProcess pod, as in the manifests of sig-windows-tools.
fn with_kube_proxy_pod() -> Lab {
    let lab = Lab::installed();
    let labels = json!({"k8s-app": "kube-proxy-windows"});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"}, "hostNetwork": true,
            "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\system"}},
            "containers": [{"name": "kube-proxy", "image": "sigwindowstools/kube-proxy:v1.33.1-calico-hostprocess"}],
        },
    });
    lab.add_object(
        "daemonsets.apps",
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "kube-proxy-windows", "namespace": "kube-system", "uid": "5d1f"},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }),
    );
    // The DaemonSet's controller makes the pod.
    let _look = lab.run("plan").exits(0);
    lab
}

/// The names of its pods: one, with another name each time that it is re-created.
fn kube_proxy_pods(lab: &Lab) -> Vec<String> {
    let _look = lab.run("plan").exits(0);
    let names = crate::stories::pods::pods(lab).into_iter().map(|(name, _)| name);
    names.filter(|name| name.starts_with("kube-proxy-windows-")).collect()
}

#[test]
fn kube_proxy_in_a_pod_is_re_created_for_another_network_however_the_run_ends() {
    let there = with_kube_proxy_pod();
    let before = kube_proxy_pods(&there);
    assert_eq!(before.len(), 1);
    let _log = there.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    assert_eq!(kube_proxy_pods(&there), before, "nothing of it changed");

    let lab = there.copy();
    let _done = lab.run(VNI).exits(0);
    let after = kube_proxy_pods(&lab);
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");

    // The pod is deleted right after node startup succeeded.
    for at in ["put network Calico#1=exit-after", "api DELETE /api/v1/namespaces/kube-system/pods/*#1=exit-before"] {
        for after in ["resume -y", "resume -y --undo"] {
            let lab = there.copy();
            let _killed = lab.fails_at(at, VNI).exits(137);
            let _done = lab.run(after).exits(0);
            let found = kube_proxy_pods(&lab);
            assert!(found.len() == 1 && found != before, "{at}, then {after}: {before:?} {found:?}");
        }
    }

    let failed = there.fails_at("put running CalicoFelix#2=fail", &format!("{VNI} -o json")).exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed}");
    let found = kube_proxy_pods(&there);
    assert!(found.len() == 1 && found != before, "{before:?} {found:?}");
}

#[test]
fn kube_proxy_in_a_pod_is_named_if_the_config_forbids_to_restart_it() {
    let lab = with_kube_proxy_pod();
    let before = kube_proxy_pods(&lab);
    let done = lab.run(&format!("{VNI} -o json --set services.restartKubeProxy=false")).exits(0).json();
    let command = format!("kubectl delete pod -n kube-system {}", before[0]);
    assert!(done["warnings"].to_string().contains(&command), "{done:#}");
    assert_eq!(kube_proxy_pods(&lab), before);
}

/// A generation may differ from the previous one only in its config.
#[test]
fn a_change_without_steps_is_what_the_next_one_starts_from() {
    let lab = with_kube_proxy();
    let _there = lab.run("install -y").exits(0);
    let left_alone = lab.run("reconfigure -y -o json --set services.restartKubeProxy=false").exits(0).json();
    let more = lab.run(&format!("{VNI} -o json")).exits(0).json();
    assert!(left_alone["error"].is_null(), "{left_alone:#}");
    assert_eq!((&more["next"][0], kube_proxy(&lab)), (&json!("Restart-Service kube-proxy"), Some(9000)), "{more:#}");
}

/// What runs between the first stop and the last start could not run before or after.
#[test]
fn only_required_steps_run_while_the_services_are_down() {
    let lab = Lab::installed();
    let lines = lab.run(&format!("{VNI} -v -o ndjson")).exits(0).ndjson();
    let phase = |line: &Value| line["phase"]["id"].as_str().unwrap_or_default().to_owned();
    let first = lines.iter().position(|line| phase(line) == "services-stop").unwrap();
    let last = lines.iter().rposition(|line| phase(line) == "services-start").unwrap();
    let allowed = ["services-stop", "hns-network", "files", "services-start", "wait-network", "node-startup"];
    for line in &lines[first..=last] {
        let fits = match line["type"].as_str().unwrap() {
            "phase_start" | "phase_complete" => allowed.contains(&phase(line).as_str()),
            "connectivity_notice" | "waiting" => true,
            // What each step does, and CalicoNode's messages while it starts.
            "log" => allowed.contains(&line["phase"]["key"].as_str().unwrap().split('#').next().unwrap()),
            _ => false,
        };
        assert!(fits, "{line}");
    }
    // The user of an RDP or WinRM session reads it before the session may drop.
    let notice = lines.iter().position(|line| line["type"] == "connectivity_notice").unwrap();
    let touched =
        lines.iter().position(|line| line["type"] == "phase_complete" && phase(line) == "hns-network").unwrap();
    assert!(notice < touched);
    assert!(lines[notice]["resume_with"].as_str().unwrap().starts_with("calicoctl-win status --wait"));
}

/// On the sandbox's clock the two services take a second each to stop; the rest is ours.
#[test]
fn a_vni_change_adds_at_most_a_second_to_windows_own_times() {
    let ours = (0..3).map(|_| {
        let result = Lab::installed().run(&format!("{VNI} -o json")).exits(0).json();
        result["downtime_ms"].as_u64().unwrap() - 2000
    });
    // The machine that runs the tests may be busy.
    let ours = ours.min().unwrap();
    assert!(ours <= 1000, "{ours} ms");
}

#[test]
fn status_shows_that_the_cluster_has_another_vni() {
    let lab = Lab::installed();
    let _there = lab.run(VNI).exits(0);
    let mixed = || lab.run("status -o json").json()["mixed_vni"].clone();
    assert_eq!(mixed(), json!({"node": 5000, "cluster": 4096, "changed_here": true}));
    let shown = lab.run("status").exits(12).stdout;
    assert!(shown.starts_with("OVERALL: DEGRADED "), "{shown}");
    assert!(shown.contains("\n! VNI 5000 here, 4096 in FelixConfiguration"), "{shown}");
    // The node was changed last, and on purpose.
    let patch = r#"kubectl patch felixconfiguration default --type=merge -p "spec: {vxlanVNI: 5000}""#;
    assert!(shown.contains(&format!("\n    {patch}\n")), "{shown}");
    let back = "calicoctl-win reconfigure --set calicoNetwork.vxlan.vxlanVNI=4096 --sandbox node";
    assert!(shown.contains(&format!("\nOr return this node to VNI 4096: {back}\n")), "{shown}");
    // The same if it is changed once more.
    let again = lab.copy();
    let _there = again.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=7000").exits(0);
    let mixed_again = &again.run("status -o json").json()["mixed_vni"];
    assert_eq!(*mixed_again, json!({"node": 7000, "cluster": 4096, "changed_here": true}));
    // Waiting does not change it.
    let _at_once = lab.run("status --wait").exits(12);
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
        felix["spec"]["vxlanVNI"] = 5000.into();
    });
    assert_eq!(mixed(), Value::Null);
    // Now the cluster was changed, to a VNI that this node never had.
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
        felix["spec"]["vxlanVNI"] = 6000.into();
    });
    let shown = lab.run("status").exits(12).stdout;
    assert!(shown.contains("\n    calicoctl-win reconfigure --set calicoNetwork.vxlan.vxlanVNI=6000"), "{shown}");
    assert!(shown.contains("Or set spec.vxlanVNI of FelixConfiguration"), "{shown}");
}

#[test]
fn a_drain_that_is_refused_changes_nothing() {
    let lab = Lab::installed();
    lab.edit_object("poddisruptionbudgets.policy", "web", |budget| budget["spec"]["maxUnavailable"] = 0.into());
    let before = lab.picture_without_state();
    let refused = lab.run(&format!("{VNI} -o json")).exits(8).json();
    assert_eq!(refused["error"]["id"], "DrainNeverAllowed");
    assert_eq!((&refused["changed"], &refused["downtime_ms"]), (&json!(false), &json!(0)));
    lab.picture_without_state().same_as(&before);
    assert_eq!((pods(&lab), cordoned(&lab), standing(&lab)), (2, false, healthy(4096)));

    let _past_the_budget = lab.run(&format!("{VNI} --disable-eviction")).exits(0);
    assert_eq!(standing(&lab), healthy(5000));
}

#[test]
fn a_drain_that_takes_too_long_fails_and_the_node_is_uncordoned() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    let late = lab.fails_at("api no-kubelet", &format!("{VNI} -o json --drain-timeout 1s")).exits(8).json();
    assert_eq!(late["error"]["id"], "DrainTimeout");
    // The budget allows one eviction, so the cluster is not as it was.
    let evicted = late["evicted"].as_array().unwrap();
    assert!(evicted.len() == 1 && evicted[0].as_str().unwrap().starts_with("demo/web-"), "{late:#}");
    assert_eq!(late["changed"], true, "{late:#}");
    lab.picture_without_state().same_as(&before);
    assert!(!cordoned(&lab) && !lab.on_node("C/ProgramData/calicoctl-win/state/cordon.json").exists());
}

#[test]
fn a_change_that_fails_is_reverted_and_the_node_is_uncordoned() {
    for fault in ["put running CalicoNode#2=fail", "put network Calico#1=fail-after", "put *10-calico.conf#2=disk-full"]
    {
        let lab = Lab::installed();
        let failed = lab.fails_at(fault, &format!("{VNI} -o json")).exits(9).json();
        assert_eq!(failed["rolled_back"], true, "{fault}: {failed}");
        assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(4096)), "{fault}");
        let _now = lab.run(VNI).exits(0);
        assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(5000)), "{fault}");
    }
}

/// projectcalico/calico 9120: Calico's startup, Felix and kube-proxy ask version 2 of HNS, and find nothing for ever.
#[test]
fn a_network_that_version_2_of_hns_does_not_show_is_re_created_once() {
    let hiding = |times: u32| {
        let lab = Lab::installed();
        lab.edit_yaml(|yaml| format!("{yaml}\nunseenNetworks: {{Calico: {times}}}\n"));
        lab
    };
    let lab = hiding(1);
    let _re_created = lab.run(VNI).exits(0);
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(5000)));

    let lab = hiding(2);
    let failed = lab.run(&format!("{VNI} -o json")).exits(9).json();
    assert_eq!(
        (&failed["error"]["id"], &failed["rolled_back"]),
        (&json!("HnsNetworkUnseen"), &json!(true)),
        "{failed}"
    );
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(4096)));
}

#[test]
fn a_node_that_somebody_cordoned_stays_cordoned() {
    for (fault, code, vsid) in [("", 0, 5000), ("put running CalicoNode#2=fail", 9, 4096)] {
        let lab = Lab::installed();
        let _theirs = lab.run("node cordon").exits(0);
        let done = lab.copy().fails_at(fault, &format!("{VNI} -o json")).exits(code).json();
        assert!(done["warnings"].to_string().contains("NodeStaysCordoned: node win-a1 was cordoned"), "{done:#}");
        let done = lab.fails_at(fault, VNI).exits(code).stdout;
        let (_, end) = done.rsplit_once("[ OK ]").unwrap_or(("", &done));
        let told = "Node win-a1 stays cordoned, as it was before this run: calicoctl-win node uncordon --sandbox node";
        assert!(end.contains(told), "{done}");
        assert_eq!((cordoned(&lab), standing(&lab)), (true, healthy(vsid)));
    }
}

#[test]
fn resume_uncordons_a_node_that_could_not_be_uncordoned() {
    let lab = Lab::installed();
    let failed = lab.fails_at("api PATCH /api/v1/nodes/win-a1#3+=503", &format!("{VNI} -o json")).exits(10).json();
    assert_eq!(failed["error"]["id"], "UncordonFailed");
    assert!(cordoned(&lab));
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!((&status["run"]["interrupted"], &status["run"]["command"]), (&json!(true), &json!("reconfigure")));
    let dry = lab.run("resume -n").exits(0);
    assert!(dry.stdout.contains("dry run: would uncordon node win-a1"), "{dry}");
    let _done = lab.run("resume -y").exits(0);
    assert_eq!((cordoned(&lab), standing(&lab)), (false, healthy(5000)));
    assert_eq!(lab.run("resume -y -o json").exits(0).json()["status"], "no_changes");
}

#[test]
fn resume_also_writes_the_note_of_the_settings_that_the_node_lacks() {
    let lab = Lab::installed();
    // The cordon is the first write, the note the second.
    let failed = lab.fails_at("api PATCH /api/v1/nodes/win-a1#2+=503", &format!("{VNI} -o json")).exits(10).json();
    assert_eq!(failed["error"]["id"], "UncordonFailed");
    let noted = || kubernetes_node(&lab)["metadata"]["annotations"]["calicoctl-win/settings"].clone();
    let settings = lab.run("receipt show -o json").exits(0).json()["about"]["settings"].clone();
    assert_ne!(noted(), settings);
    let _done = lab.run("resume -y").exits(0);
    assert_eq!((cordoned(&lab), noted()), (false, settings));
}

#[test]
fn without_a_drain_the_pods_are_deleted_with_their_network_and_the_output_says_so() {
    let lab = Lab::installed();
    let done = lab.run(&format!("{VNI} --no-drain")).exits(0);
    assert!(done.stdout.contains("[WARN]  NotDrained"), "{done}");
    assert_eq!((pods(&lab), cordoned(&lab), standing(&lab)), (0, false, healthy(5000)));
}

#[test]
fn a_node_without_calico_has_nothing_to_reconfigure() {
    let lab = Lab::node();
    let refused = lab.run("reconfigure -y -o json").exits(16).json();
    assert_eq!(refused["error"]["id"], "NotInstalled");
}

/// Defects B11 and B15: the Overlay network of the same block was kept, and CalicoConfd remained.
#[test]
fn b11_b15_another_backend_re_creates_the_networks_and_leaves_no_service_behind() {
    let lab = Lab::node();
    with_remote_access(&lab);
    let bare = lab.picture();
    let _there = lab.run("install -y").exits(0);
    let networks = || -> Vec<String> {
        let status = lab.run("status -o json").exits(0).json();
        let networks = status["networks"].as_array().unwrap().iter();
        networks.map(|network| format!("{} {}", network["name"], network["type"]).replace('"', "")).collect()
    };
    let confd = || lab.read("node.yaml").contains("CalicoConfd");
    let _bgp = lab.run("reconfigure -y --set calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,PoolEncapsulation").exits(0);
    assert_eq!(
        (networks(), confd()),
        (["Calico", "External"].map(|n| format!("{n} L2Bridge")).into_iter().chain(["nat NAT".into()]).collect(), true)
    );
    assert_eq!((pods(&lab), cordoned(&lab)), (0, false));
    let _vxlan = lab.run("rollback -y").exits(0);
    assert_eq!((standing(&lab), confd()), (healthy(4096), false));
    let _bgp_again = lab.run("reconfigure -y --set calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,PoolEncapsulation").exits(0);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&bare);
}

#[test]
fn a_rollback_re_creates_the_previous_network() {
    let lab = Lab::installed();
    let _there = lab.run(VNI).exits(0);
    let shown = lab.run("rollback --dry-run").exits(0);
    assert!(shown.stdout.contains("Drain: needed"), "{shown}");
    let back = lab.run("rollback -y -o json").exits(0).json();
    assert_eq!((&back["generation"], standing(&lab), cordoned(&lab)), (&json!(3), healthy(4096), false));
    // And forward again: a rollback is a change like any other.
    let _again = lab.run("rollback -y").exits(0);
    assert_eq!(standing(&lab), healthy(5000));
    assert_eq!(lab.run("rollback -y --to 17 -o json").exits(24).json()["error"]["id"], "NoSuchGeneration");
    let _gone = lab.run("uninstall -y").exits(0);
    let _nothing = lab.run("rollback -y").exits(16);
}

#[test]
fn a_rollback_restores_the_previous_settings_without_moving_pods() {
    let lab = Lab::installed();
    assert_eq!(lab.run("rollback -y -o json").exits(24).json()["error"]["id"], "NoSuchGeneration");
    let _debug = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
    let _back = lab.run("rollback -y").exits(0);
    assert!(!lab.read("C/ProgramData/calicoctl-win/felix.json").contains("debug"));
    assert_eq!((pods(&lab), standing(&lab)), (2, healthy(4096)));
}

#[test]
fn a_repair_restores_only_what_was_changed() {
    let conf = "C/Program Files/containerd/cni/conf/10-calico.conf";
    let binary = "C/CalicoWindows/calico-node.exe";
    let lab = Lab::installed();
    let nothing = lab.run("repair -y -o json").exits(0).json();
    assert_eq!((&nothing["status"], &nothing["generation"]), (&json!("no_changes"), &json!(1)));
    let before = lab.read(conf);
    fs::write(lab.on_node(conf), "{}").unwrap();
    let _repaired = lab.run("repair -y").exits(0);
    assert_eq!((lab.read(conf), standing(&lab), pods(&lab)), (before, healthy(4096), 2));

    let program = fs::read(lab.on_node(binary)).unwrap();
    fs::write(lab.on_node(binary), "tampered with").unwrap();
    let _fetched_again = lab.run("repair -y").exits(0);
    assert_eq!((fs::read(lab.on_node(binary)).unwrap(), standing(&lab)), (program, healthy(4096)));

    // An old network with the right name: pods on it would reach no other node.
    lab.edit_yaml(|yaml| yaml.replace("vsid: 4096", "vsid: 4097"));
    let _drained = lab.run("repair -y").exits(0);
    assert_eq!((standing(&lab), pods(&lab), cordoned(&lab)), (healthy(4096), 0, false));
}

#[test]
fn an_interrupted_run_is_ended_before_a_rollback() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("put *#3=exit-after", VNI).exits(137);
    for words in ["rollback -y -o json", "repair -y -o json"] {
        assert_eq!(lab.run(words).exits(22).json()["error"]["id"], "InterruptedRun");
    }
    let _undone = lab.run("resume --undo -y").exits(0);
    assert_eq!((standing(&lab), cordoned(&lab)), (healthy(4096), false));
}

/// Pods that come to it may not start, or lose their network when the run is ended.
#[test]
fn a_node_with_half_a_change_is_not_uncordoned_before_the_run_is_ended() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("put network Calico=exit-after", VNI).exits(137);
    let refused = lab.run("node uncordon -y -o json").exits(22).json();
    assert_eq!((&refused["error"]["id"], cordoned(&lab)), (&json!("InterruptedRun"), true), "{refused:#}");
    let hint = refused["error"]["hint"].as_str().unwrap();
    for command in ["calicoctl-win resume --sandbox node", "kubectl uncordon win-a1"] {
        assert!(hint.lines().any(|line| line.ends_with(command)), "{hint}");
    }
    let dry = lab.run("node uncordon --dry-run").exits(0).screen();
    assert!(dry.contains("this would be refused"), "{dry}");
    let _done = lab.run("resume -y").exits(0);
    assert_eq!((standing(&lab), cordoned(&lab)), (healthy(5000), false));

    // While pods were moved away, nothing on the machine had been changed.
    let lab = Lab::installed();
    let _killed = lab.fails_at("api POST /api/v1/namespaces/*/eviction=exit-before", VNI).exits(137);
    assert!(cordoned(&lab));
    let done = lab.run("node uncordon -y -o json").exits(0).json();
    assert!(done["warnings"].to_string().contains("a run was interrupted"), "{done:#}");
    assert!(!cordoned(&lab));
}

/// Kills the process at every `stride`-th call to the node and request to the cluster, and checks the results of
/// `resume` and `resume --undo`. Returns the number of points.
fn kill_at_every_point(before: &Lab, words: &str, stride: usize) -> usize {
    let mut points = 0;
    for fault in ["*#", "api * /*#"] {
        for (at, n) in (1..).step_by(stride).enumerate() {
            let end = if at % 2 == 0 { "exit-before" } else { "exit-after" };
            let lab = before.copy();
            let output = lab.fails_at(&format!("{fault}{n}={end}"), words);
            if output.code == 0 {
                break;
            }
            let _killed = output.exits(137);
            points += 1;
            for words in ["resume -y", "resume --undo -y"] {
                let lab = lab.copy();
                let _done = lab.run(words).exits(0);
                let (overall, vsid) = standing(&lab);
                assert!(overall == "Healthy" && [4096, 5000].contains(&vsid), "{fault}{n} {words}: {overall} {vsid}");
                assert!(!cordoned(&lab), "{fault}{n} {words}: still cordoned");
                assert!(!lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists());
            }
        }
    }
    points
}

#[test]
fn after_a_power_failure_the_node_has_the_new_or_the_old_state_and_is_uncordoned() {
    let points = kill_at_every_point(&Lab::installed(), VNI, 6);
    assert!(points >= 8, "only {points}");
}

#[test]
#[ignore = "every point takes minutes"]
fn a_power_failure_at_any_change_or_request_is_recovered() {
    let lab = Lab::installed();
    let points = kill_at_every_point(&lab, VNI, 1);
    assert!(points >= 50, "only {points}");
    let _there = lab.run(VNI).exits(0);
    let back = kill_at_every_point(&lab, "rollback -y", 1);
    assert!(back >= 40, "only {back}");
}

/// The options of one run are not settings of the node: they must be given each time.
#[test]
fn options_of_one_run_are_no_settings_of_the_node() {
    let lab = Lab::installed();
    let may =
        "--set maintenance.uncordon=false --set maintenance.drain.force=true --set preflight.ignore=[KubeletVersion]";
    let _changed = lab.run(&format!("reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000 {may}")).exits(0);
    assert!(cordoned(&lab));
    let applied = lab.run("config show --applied").exits(0).stdout;
    assert!(!applied.contains("force") && !applied.contains("KubeletVersion"), "{applied}");
    let _again = lab.run("node uncordon").exits(0);
    let _changed = lab.run("reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5001").exits(0);
    assert!(!cordoned(&lab), "nobody asked for that a second time");
}

/// The drain is a step of the run, so ending the run ends it too.
#[test]
fn a_run_that_is_killed_in_its_drain_is_finished_or_undone() {
    let there = Lab::installed();
    let words = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";
    for fault in [
        "api PATCH /api/v1/nodes/win-a1#1=exit-before",
        "api PATCH /api/v1/nodes/win-a1#1=exit-after",
        "api POST *eviction#1=exit-after",
        "api POST *eviction#2=exit-before",
    ] {
        for (ends, vni) in [("resume -y", 5000), ("resume -y --undo", 4096), ("repair -y", 0)] {
            let lab = there.copy();
            let _killed = lab.fails_at(fault, words).exits(137);
            let status = lab.status();
            assert_eq!(status["run"]["interrupted"], true, "{fault}: {status:#}");
            if vni == 0 {
                assert_eq!(lab.run("repair -y -o json").exits(22).json()["error"]["id"], "InterruptedRun");
                continue;
            }
            let ended = lab.run(ends).exits(0);
            assert!(!cordoned(&lab), "{fault}, {ends}: {ended}");
            let status = lab.status();
            let calico = status["networks"].as_array().unwrap().iter().find(|network| network["name"] == "Calico");
            assert_eq!(calico.unwrap()["vsid"], vni, "{fault}, {ends}");
            let web = super::pods::pods(&lab).into_iter().filter(|(name, _)| name.starts_with("web")).count();
            assert!(web == 0 || ends.ends_with("undo"), "{fault}, {ends}: {web} pods are still here");
        }
    }
}

/// `kubectl describe node` shows how each change ended.
#[test]
fn how_a_change_ended_is_an_event_on_the_node() {
    let lab = Lab::installed();
    let _nothing = lab.run("apply -y").exits(0);
    let _changed = lab.run(VNI).exits(0);
    let _failed = lab.fails_at("put running CalicoFelix=fail", &VNI.replace("5000", "6000")).exits(9);
    let told: Vec<(String, String)> = lab
        .objects()
        .into_iter()
        .filter(|(kind, _, event)| kind == "events" && event["involvedObject"]["name"] == "win-a1")
        .map(|(.., event)| {
            let text = |key: &str| event[key].as_str().unwrap().to_owned();
            (format!("{} {}", text("type"), text("reason")), text("message"))
        })
        .collect();
    let [_installed, (changed, done), (failed, why)] = &told[..] else { panic!("{told:#?}") };
    assert_eq!((changed.as_str(), failed.as_str()), ("Normal CalicoChanged", "Warning CalicoChangeFailed"));
    assert!(done.starts_with("reconfigure: generation 2 is current (run "), "{done}");
    assert!(
        why.starts_with("reconfigure failed (run ") && why.contains("the change failed and was rolled back"),
        "{why}"
    );
}
