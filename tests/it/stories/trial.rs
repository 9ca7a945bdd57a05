//! A change on trial: kept when somebody confirms it, and reverted automatically when nobody does, when the API server
//! is unreachable, and when its run ends in the middle.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::boot::with_kubelets_kubeconfig;
use crate::lab::{Lab, Output};

const TRY: &str = "reconfigure -y --mode try --set spec.calicoNetwork.vxlan.vxlanVNI=5000";

fn status(lab: &Lab) -> Value {
    lab.run("status -o json").json()
}

fn vsid(lab: &Lab) -> Option<u64> {
    let status = status(lab);
    let mut networks = status["networks"].as_array().unwrap().iter();
    networks.find(|network| network["name"] == "Calico").and_then(|network| network["vsid"].as_u64())
}

/// Polls until the condition holds; the guard is a separate process.
#[track_caller]
pub(super) fn until(lab: &Lab, limit: u64, what: &str, is: impl Fn(&Lab) -> bool) {
    let begun = Instant::now();
    while !is(lab) {
        assert!(begun.elapsed() < Duration::from_secs(limit), "{what}: not within {limit} s: {:#}", status(lab));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn over(lab: &Lab) -> bool {
    !lab.on_node("C/ProgramData/calicoctl-win/state/trial.json").exists()
}

/// The trial is over and the node has its previous state, without traces.
#[track_caller]
fn await_revert(lab: &Lab, limit: u64) {
    until(lab, limit, "it is reverted", over);
    let _settled = lab.run("status --wait --timeout 60s").exits(0);
    assert_eq!(vsid(lab), Some(4096));
    let status = status(lab);
    assert_eq!((&status["overall"], &status["trial"]), (&json!("Healthy"), &Value::Null), "{status:#}");
    assert_eq!(status["node"]["schedulable"], true);
    assert!(lease(lab).is_none());
}

fn lease(lab: &Lab) -> Option<Value> {
    lab.object("leases.coordination.k8s.io", "calicoctl-win.win-a1").map(|lease| lease["spec"].clone())
}

#[test]
fn a_change_that_is_confirmed_stays() {
    let lab = Lab::installed();
    let done = lab.run(&format!("{TRY} --confirm-timeout 10m -o ndjson")).exits(0).ndjson();
    let told = done.iter().find(|line| line["type"] == "confirm_deadline").expect("it says until when");
    assert!(told["command"].as_str().unwrap().starts_with("calicoctl-win confirm"), "{told}");
    let shown = lab.run("status").exits(12);
    assert!(shown.stdout.contains("NOT confirmed: reverts to generation 1 at "), "{shown}");
    // Each look counts down.
    let left = |shown: &Output| {
        let text = shown.stdout.split_once(" to generation 1 at ").unwrap().1;
        let text = text.split_once(" (in ").expect("it says how long").1;
        let (minutes, seconds) = text.split_once("s)").unwrap().0.split_once("m ").unwrap();
        minutes.parse::<u64>().unwrap() * 60 + seconds.parse::<u64>().unwrap()
    };
    let first = left(&shown);
    until(&lab, 10, "time passes", |lab| left(&lab.run("status")) < first);
    assert!(first < 600, "{shown}");
    assert_eq!((vsid(&lab), &status(&lab)["trial"]["from"]), (Some(5000), &json!(1)));
    let lease = lease(&lab).expect("the node is held until somebody decides");
    assert_eq!(lease["leaseDurationSeconds"], 720);

    for words in ["install", "reconfigure --set services.felixLogSeverity=debug", "repair", "resume"] {
        let refused = lab.run(&format!("{words} -y -o json")).exits(14).json();
        assert_eq!(refused["error"]["id"], "OnTrial", "{words}");
    }
    assert!(lab.run("confirm -n").exits(0).stdout.contains("dry run: would keep"));
    let kept = lab.run("confirm -o json").exits(0).json();
    assert_eq!((&kept["changed"], &kept["generation"]), (&json!(true), &json!(2)));
    assert_eq!((vsid(&lab), over(&lab), self::lease(&lab)), (Some(5000), true, None));
    assert_eq!(last_run(&lab), "confirm OK");
    assert_eq!(lab.run("confirm -o json").exits(24).json()["error"]["id"], "NotOnTrial");
}

/// What `history` shows of the newest run.
fn last_run(lab: &Lab) -> String {
    let history = lab.run("history -o json").exits(0).json();
    let run = history["runs"].as_array().unwrap().last().unwrap();
    format!("{} {}", run["command"].as_str().unwrap(), run["result"].as_str().unwrap_or("not ended"))
}

#[test]
fn a_change_that_is_not_confirmed_is_reverted_automatically() {
    let lab = Lab::installed();
    let _tried = lab.run(&format!("{TRY} --confirm-timeout 3s")).exits(0);
    await_revert(&lab, 60);
    until(&lab, 60, "the revert is in the history", |lab| last_run(lab) == "revert OK");
    let said = lab.logs();
    assert!(said.contains("TrialReverted: nobody confirmed it within 3 s: node win-a1 reverts to generation 1"));
    assert_eq!(lab.run("confirm -o json").exits(24).json()["error"]["id"], "NotOnTrial");
}

#[test]
fn a_change_is_reverted_at_once_on_request() {
    let lab = Lab::installed();
    let _tried = lab.run(&format!("{TRY} --confirm-timeout 1h")).exits(0);
    let back = lab.run("confirm --revert -y -o json").exits(0).json();
    assert_eq!((&back["changed"], &back["generation"]), (&json!(true), &json!(3)));
    assert_eq!(last_run(&lab), "revert OK");
    await_revert(&lab, 5);
}

/// The issue's own scenario: with the API unreachable during a trial, the node returns to VNI 4096.
#[test]
fn an_unreachable_api_server_reverts_the_change_early() {
    let lab = Lab::installed();
    with_kubelets_kubeconfig(&lab);
    let _tried = lab.run(&format!("{TRY} --confirm-timeout 30s")).exits(0);
    let begun = Instant::now();
    lab.edit_yaml(|yaml| format!("{yaml}faults: [api down]\n"));
    // It is unreachable only while the change is active: the change interrupts it.
    until(&lab, 29, "the network of the change goes", |lab| vsid(lab) != Some(5000));
    assert!(begun.elapsed() < Duration::from_secs(29), "it is the deadline that reverted it");
    lab.edit_yaml(|yaml| yaml.replace("\nfaults:\n- api down\n", "\n").replace("faults: [api down]\n", ""));
    await_revert(&lab, 120);
}

/// It is still configured, and does not answer.
#[test]
fn an_unreachable_gateway_reverts_the_change_early() {
    let lab = Lab::installed();
    let _tried = lab.run(&format!("{TRY} --confirm-timeout 30s")).exits(0);
    let begun = Instant::now();
    lab.edit_yaml(|yaml| format!("{yaml}silent: [10.20.0.1]\n"));
    until(&lab, 29, "it is reverted", over);
    assert!(begun.elapsed() < Duration::from_secs(29), "it is the deadline that reverted it");
    await_revert(&lab, 60);
    let said = lab.logs();
    assert!(said.contains("TrialReverted: the gateway 10.20.0.1 does not answer for "), "{said}");
}

/// A gateway that never answered proves nothing.
#[test]
fn a_gateway_that_was_silent_before_is_no_reason_to_revert() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| format!("{yaml}silent: [10.20.0.1]\n"));
    let _tried = lab.run(&format!("{TRY} --confirm-timeout 8s")).exits(0);
    std::thread::sleep(Duration::from_secs(5));
    assert!(!over(&lab));
    let _kept = lab.run("confirm").exits(0);
    assert_eq!(vsid(&lab), Some(5000));
}

#[test]
fn a_run_that_is_killed_in_the_middle_is_reverted_by_its_guard() {
    let lab = Lab::installed();
    for fault in ["put network Calico=exit-after", "put running CalicoNode#1=exit-after"] {
        let _killed = lab.fails_at(fault, &format!("{TRY} --confirm-timeout 1h")).exits(137);
        await_revert(&lab, 60);
    }
}

#[test]
fn a_change_that_fails_is_no_trial() {
    let lab = Lab::installed();
    let failed = lab.fails_at("put running CalicoNode#2=fail", &format!("{TRY} -o json")).exits(9).json();
    assert_eq!(failed["rolled_back"], true);
    assert_eq!((vsid(&lab), over(&lab), lease(&lab)), (Some(4096), true, None));
}

/// The power fails during the trial, which kills the guard. CalicoNode starts at boot.
#[test]
fn a_power_failure_during_the_trial_does_not_change_its_end() {
    let lab = Lab::installed();
    let _tried = lab.run(&format!("{TRY} --confirm-timeout 8s")).exits(0);
    lab.end_guards();
    std::thread::sleep(Duration::from_secs(9));
    assert_eq!((vsid(&lab), over(&lab)), (Some(5000), false), "nothing reverts it");
    let _boot = lab.run("service restart -y").exits(0);
    await_revert(&lab, 60);
}

#[test]
fn an_uninstall_ends_the_trial() {
    let lab = Lab::node();
    let bare = lab.picture();
    let _there = lab.run("install -y").exits(0);
    let _tried = lab.run(&format!("{TRY} --confirm-timeout 10m")).exits(0);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&bare);
}
