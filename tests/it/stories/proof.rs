//! A change that looks done and does not work: no run reports success, and no pods are scheduled.

use std::fs;

use calicoctl_win::item::NetworkKind;
use calicoctl_win::node::sandbox::model::Name;
use calicoctl_win::sandbox::release::SyntheticRelease;
use calicoctl_win::version::CalicoVersion;
use serde_json::{Value, json};

use super::boot::{dead, with_kubelets_kubeconfig};
use super::pods::vsid;
use crate::lab::{Lab, Output};

const CONF: &str = "C/Program Files/containerd/cni/conf/10-calico.conf";

/// A release of the sandbox's version whose program has an instruction.
fn release(lab: &Lab, told: &str) -> String {
    let version: CalicoVersion = "v3.32.1".parse().unwrap();
    for (path, mut contents) in SyntheticRelease::files(&version) {
        if path == "calico-node.exe" {
            contents = format!("Stand-in for calico-node.exe of Calico for Windows v3.32.1, {told}");
        }
        lab.write(&format!("release/{path}"), contents);
    }
    format!("--release {} --set calico.version=v3.32.1", lab.path("release").display())
}

/// A working node, on which Calico's program follows the instruction from the next VNI on.
fn installed_with(told: &str) -> Lab {
    let lab = Lab::node();
    let release = release(&lab, told);
    let _installed = lab.run(&format!("install -y {release}")).exits(0);
    assert_eq!(overall(&lab), "Healthy");
    lab
}

fn overall(lab: &Lab) -> Value {
    lab.run("status -o json").json()["overall"].take()
}

fn cordoned(lab: &Lab) -> bool {
    lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"] == true
}

/// Returns the steps of a run that allow pods to start: publishing the CNI configuration, uncordoning the node.
fn let_pods_come(output: &Output) -> Vec<String> {
    let lines = output.ndjson();
    let rolled_back = lines.iter().position(|line| line["type"] == "rollback_start").unwrap_or(lines.len());
    let done = lines[..rolled_back].iter().filter(|line| line["type"] == "phase_complete");
    let phases = done.map(|line| line["phase"]["id"].as_str().unwrap().to_owned());
    phases.filter(|phase| ["cni-conf", "uncordon"].contains(&phase.as_str())).skip(1).collect()
}

pub fn set_ready(lab: &Lab, ready: bool, reason: &str, message: &str) {
    lab.edit_object("nodes", "win-a1", |node| {
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        let condition = conditions.iter_mut().find(|condition| condition["type"] == "Ready").unwrap();
        condition["status"] = if ready { "True" } else { "False" }.into();
        (condition["reason"], condition["message"]) = (reason.into(), message.into());
    });
}

/// What no published CNI configuration changes.
const NO_NETWORK: (&str, &str) = (
    "KubeletNotReady",
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: the plugin calico failed its STATUS",
);

const VNI: &str = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";

#[test]
fn nothing_is_published_before_node_startup_has_succeeded() {
    for (told, how) in [
        ("whose startup fails at VNI 5000", "FATAL failed to create remote HNSEndpoint Calico_ep"),
        ("whose startup hangs at VNI 5000", "Waiting for HNS to answer on Calico_ep"),
    ] {
        let lab = installed_with(told);
        let failed = lab.run(&format!("{VNI} -o ndjson"));
        assert_eq!(let_pods_come(&failed), Vec::<String>::new(), "{failed}");
        let result = failed.exits(9).ndjson().pop().unwrap();
        assert_eq!(
            (&result["error"]["id"], &result["rolled_back"]),
            (&json!("NodeStartupFailed"), &json!(true)),
            "{result:#}"
        );
        assert_eq!(result["failed_phase"], "node-startup", "{result:#}");
        let why = result["error"]["chain"].to_string();
        assert!(why.contains("did not succeed within 300 s") && why.contains(how), "{why}");
        assert_eq!((overall(&lab), cordoned(&lab)), (json!("Healthy"), false), "{told}");
        assert!(lab.read(CONF).contains("4096"), "{}", lab.read(CONF));
    }
}

#[test]
fn an_install_whose_node_startup_fails_is_undone() {
    for told in ["whose startup fails", "whose startup hangs"] {
        let lab = Lab::node();
        let before = lab.picture_without_state();
        let release = release(&lab, told);
        let failed = lab.run(&format!("install -y {release} -o json")).exits(9).json();
        assert_eq!(failed["error"]["id"], "NodeStartupFailed", "{failed:#}");
        lab.picture_without_state().same_as(&before);
    }
}

#[test]
fn a_resumed_run_waits_for_node_startup_as_well() {
    let lab = installed_with("whose startup fails at VNI 5000");
    let killed = lab.fails_at("put running CalicoNode#2=exit-after", VNI);
    let _killed = killed.exits(137);
    let taken_back = lab.run("resume -y -o json").exits(9).json();
    assert_eq!(taken_back["error"]["id"], "NodeStartupFailed", "{taken_back:#}");
    assert_eq!((overall(&lab), cordoned(&lab)), (json!("Healthy"), false));
}

/// A restart of the services has nothing to revert to.
#[test]
fn started_services_are_waited_for() {
    let lab = Lab::node();
    let release = release(&lab, "whose startup fails");
    let _installed = lab.run(&format!("install -y --no-start {release}")).exits(0);
    let failed = lab.run("service start -o json").exits(11).json();
    assert_eq!(failed["error"]["id"], "ServiceNotSteady", "{failed:#}");
    assert!(failed["msg"].as_str().unwrap().contains("Calico's node startup"), "{failed:#}");
}

#[test]
fn the_mac_of_the_network_must_be_published_to_other_nodes() {
    let lab = Lab::installed();
    lab.edit_object("nodes", "win-a1", |node| {
        node["metadata"]["annotations"]["projectcalico.org/VXLANTunnelMACAddr"] = "00:15:5d:00:00:01".into();
    });
    let failed = lab.run("reconfigure -y --set services.felixLogSeverity=debug -o json").exits(9).json();
    assert_eq!(
        (&failed["error"]["id"], &failed["rolled_back"]),
        (&json!("PodNetworkWrong"), &json!(true)),
        "{failed:#}"
    );
    let why = failed["error"]["chain"].to_string();
    assert!(why.contains("other nodes send to the MAC 00:15:5d:00:00:01"), "{why}");
    // Node startup writes it again.
    let _restarted = lab.run("service restart -y").exits(0);
    let _changed = lab.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
}

#[test]
fn a_missing_endpoint_of_the_host_is_reported() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| yaml.replace("Calico_ep:", "somebodys:"));
    let failed = lab.run("reconfigure -y --set services.felixLogSeverity=debug -o json").exits(9).json();
    assert_eq!(failed["error"]["id"], "PodNetworkWrong", "{failed:#}");
    assert!(failed["error"]["chain"].to_string().contains("has no endpoint Calico_ep"), "{failed:#}");
}

#[test]
fn a_node_that_never_becomes_ready_stays_cordoned() {
    let lab = Lab::installed();
    set_ready(&lab, false, NO_NETWORK.0, NO_NETWORK.1);
    let failed = lab.run(&format!("{VNI} -o json")).exits(11).json();
    assert_eq!(
        (&failed["error"]["id"], &failed["changed"], &failed["generation"]),
        (&json!("NodeNotReady"), &json!(true), &json!(2)),
        "{failed:#}"
    );
    assert!(failed["msg"].as_str().unwrap().contains("Node win-a1 is not Ready (KubeletNotReady: "), "{failed:#}");
    assert!(cordoned(&lab), "a node that is not Ready is not uncordoned");
    let refused = lab.run("resume -y -o json").exits(11).json();
    assert_eq!((&refused["error"]["id"], cordoned(&lab)), (&json!("NodeNotReady"), true), "{refused:#}");
    set_ready(&lab, true, "KubeletReady", "");
    let _resumed = lab.run("resume -y").exits(0);
    assert!(!cordoned(&lab));
}

#[test]
fn an_install_or_a_repair_succeeds_only_when_the_node_is_ready() {
    let lab = Lab::node();
    let _starts_the_cluster = lab.run("preflight");
    set_ready(&lab, false, NO_NETWORK.0, NO_NETWORK.1);
    let failed = lab.run("install -y -o json").exits(11).json();
    assert_eq!((&failed["error"]["id"], &failed["generation"]), (&json!("NodeNotReady"), &json!(1)), "{failed:#}");
    fs::write(lab.on_node("C/CalicoWindows/config.ps1"), "# edited").unwrap();
    let failed = lab.run("repair -y -o json").exits(11).json();
    assert_eq!(failed["error"]["id"], "NodeNotReady", "{failed:#}");
    fs::write(lab.on_node("C/CalicoWindows/config.ps1"), "# edited").unwrap();
    set_ready(&lab, true, "KubeletReady", "");
    let _repaired = lab.run("repair -y").exits(0);
    let _nothing = lab.run("install -y").exits(0);
}

#[test]
fn an_upgrade_after_which_the_node_is_not_ready_is_undone() {
    let lab = Lab::installed();
    set_ready(&lab, false, NO_NETWORK.0, NO_NETWORK.1);
    let failed = lab.run("upgrade -y --release v3.33.0 -o json").exits(9).json();
    assert_eq!((&failed["error"]["id"], &failed["rolled_back"]), (&json!("NodeNotReady"), &json!(true)), "{failed:#}");
    assert_eq!(lab.run("status -o json").json()["calico_version"], "v3.32.1");
}

#[test]
fn a_node_that_was_not_ready_before_is_reported_and_nothing_is_undone() {
    let lab = Lab::installed();
    set_ready(&lab, false, "KubeletNotReady", "[container runtime is down]");
    let plan = lab.run("plan --set services.felixLogSeverity=debug").exits(0);
    assert!(plan.stdout.contains("Node win-a1 is not Ready: KubeletNotReady: [container runtime is down]"), "{plan}");
    let stands = lab.run("upgrade -y --release v3.33.0 -o json").exits(11).json();
    assert_eq!((&stands["error"]["id"], &stands["generation"]), (&json!("NodeNotReady"), &json!(2)), "{stands:#}");
    assert_eq!(lab.run("status -o json").json()["calico_version"], "v3.33.0");
}

/// Nobody watches `apply`: each of the node's requests on the new network in turn is the first without an answer.
#[test]
fn a_change_that_costs_the_node_its_way_to_the_api_server_is_undone() {
    let bare = Lab::installed();
    with_kubelets_kubeconfig(&bare);
    let change = "apply -y --set calicoNetwork.vxlan.vxlanVNI=5000 -o json";
    let mut dropped = 0;
    for n in 1.. {
        let lab = bare.copy();
        let ended = lab.fails_at(&format!("api unreachable at VNI 5000#{n}+"), change);
        // The network was proven: what fails afterwards does not undo it.
        if ended.code == 11 {
            assert!(n > 5, "the proof asked the cluster only {n} times");
            let state = ended.json()["error"]["state"].to_string();
            assert!(state.contains("the change is complete and generation 2 is current"), "{state}");
            break;
        }
        dropped += usize::from(ended.stdout.contains("PodsLostNetwork"));
        let _later = lab.run("status");
        let (status, dead) = (lab.run("status -o json").json(), dead(&lab));
        let fault = format!("without an answer from request {n} on: {ended}\n{status:#}");
        assert_eq!((ended.code, &ended.json()["rolled_back"]), (9, &json!(true)), "{fault}");
        assert_eq!((&status["overall"], cordoned(&lab)), (&json!("Healthy"), false), "{fault}");
        assert_eq!((vsid(&lab), dead), (Some(4096), Vec::<String>::new()), "{fault}");
    }
    assert!(dropped > 0, "no pod was on the new network when it was given up");
}

/// A first install stays if its proof fails, and reports that, also if the proof could not run.
#[test]
fn an_install_that_could_not_be_verified_stays_and_says_so() {
    let bare = Lab::node();
    let found = (1..400).find_map(|n| {
        let lab = bare.copy();
        let output = lab.fails_at(&format!("list adapters#{n}=fail"), "install -y -o json");
        (output.code == 11).then(|| (lab, output.json()))
    });
    let (lab, said) = found.unwrap();
    let error = &said["error"];
    assert_eq!((&error["id"], &said["changed"]), (&json!("ProofIncomplete"), &json!(true)), "{said:#}");
    assert_eq!(error["why"], "list adapters: failed, as a sandbox fault asked");
    assert!(
        error["state"].as_str().unwrap().starts_with("the change is complete and generation 1 is current"),
        "{said:#}"
    );
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

#[test]
fn without_a_kubelet_no_run_waits_for_the_node() {
    let lab = Lab::node();
    let _starts_the_cluster = lab.run("preflight");
    set_ready(&lab, false, "NodeStatusUnknown", "Kubelet stopped posting node status.");
    lab.edit_yaml(|yaml| yaml.replacen("\n    pid: 2040\n", "\n", 1));
    let installed = lab.run("install -y -v").exits(0);
    assert!(installed.stdout.contains("kubelet does not run here"), "{installed}");
}

/// It runs, and never gets in sync with the datastore: a right is missing.
#[test]
fn felix_that_never_becomes_ready_is_reported() {
    let lab = Lab::node();
    let told = release(&lab, "whose Felix never gets ready");
    let failed = lab.run(&format!("install -y {told} -o json")).exits(11).json();
    assert_eq!((&failed["error"]["id"], &failed["generation"]), (&json!("ServiceNotSteady"), &json!(1)), "{failed:#}");
    assert!(failed["msg"].as_str().unwrap().contains("CalicoFelix to be ready: Felix says"), "{failed:#}");
    let status = lab.run("status").exits(12);
    assert!(
        status.stdout.contains("! CalicoFelix is not ready: Felix says that it is not ready (HTTP 503)"),
        "{status}"
    );
    assert!(status.stdout.contains("OVERALL: DEGRADED"), "{status}");
}

#[test]
fn a_release_whose_felix_never_becomes_ready_is_reverted() {
    let lab = Lab::installed();
    let told = release(&lab, "whose Felix never gets ready");
    let failed = lab.run(&format!("upgrade -y {told} -o json")).exits(9).json();
    assert_eq!(
        (&failed["error"]["id"], &failed["rolled_back"]),
        (&json!("ServiceNotSteady"), &json!(true)),
        "{failed:#}"
    );
    assert_eq!(overall(&lab), "Healthy");
}

/// rke2 issue 3533: with two adapters HNS made `Calico` on another one than `External`.
#[test]
fn networks_on_different_adapters_fail_the_run_and_both_adapters_are_named() {
    let lab = Lab::node();
    lab.edit_model(|model| {
        for name in ["vEthernet (Lab)", "Lab"] {
            let mut adapter = model.adapters.last().unwrap().clone();
            (adapter.name, adapter.gateway) = (name.into(), None);
            adapter.addresses = name.starts_with('v').then(|| "10.99.0.9/24".parse().unwrap()).into_iter().collect();
            model.adapters.insert(0, adapter);
        }
        let mut other = model.networks.values().next().unwrap().clone();
        (other.id, other.kind) = ("22222222-2222-3333-4444-555555555555".into(), NetworkKind::Overlay);
        (other.adapter, other.management_ip) = (Some("Lab".into()), Some([10, 99, 0, 9].into()));
        model.networks.insert(Name::new("flannel.4097"), other);
    });
    let failed = lab.run("install -y -o json --set calicoNetwork.nodeAddress=10.20.0.21").json();
    let both = "HNS made the network Calico on adapter Lab, and External is on adapter Ethernet";
    assert!(failed["error"]["chain"].to_string().contains(both), "{failed:#}");
}
