//! Runs without their caller: detached ones, and those whose caller closes the pipe or dies.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::lab::Lab;

const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";

fn vsid(lab: &Lab) -> u64 {
    let status = lab.run("status -o json").json();
    let mut networks = status["networks"].as_array().unwrap().iter();
    networks.find(|network| network["name"] == "Calico").and_then(|n| n["vsid"].as_u64()).unwrap_or_default()
}

#[test]
fn a_detached_run_prints_its_name_at_once_and_is_found_by_it() {
    let lab = Lab::installed();
    let started = lab.run(&format!("{VNI} --detach -o json")).exits(0).json();
    assert_eq!((&started["status"], &started["changed"]), (&json!("started"), &json!(false)), "{started}");
    let run = started["run"].as_str().unwrap();
    // There is no gap between the start of the process and its lock.
    assert_eq!(lab.run("status -o json").json()["overall"], "Changing");
    let waited = lab.run("status --wait").exits(12);
    assert!(waited.stdout.contains("! VNI 5000 here, 4096 in FelixConfiguration"), "{waited}");
    assert_eq!(vsid(&lab), 5000);

    let ended = lab.run(&format!("status --wait --run {run} -o json")).exits(0).json();
    assert_eq!((&ended["state"], &ended["result"]["generation"]), (&json!("ended"), &json!(2)), "{ended}");
    let logs = lab.run(&format!("logs --run {run}")).exits(0);
    assert!(logs.stdout.contains(&format!("run {run}: ")), "{logs}");
    assert_eq!(lab.run("status --run 20260102T150405-000001 -o json").exits(13).json()["error"]["id"], "NoSuchRun");
}

#[test]
fn status_shows_the_failure_of_a_detached_run() {
    let lab = Lab::installed();
    let fault = "put running CalicoNode#2=fail";
    let started = lab.fails_at(fault, &format!("{VNI} --detach -o json")).exits(0).json();
    let run = started["run"].as_str().unwrap();
    let ended = lab.run(&format!("status --wait --run {run} -o json")).exits(9).json();
    assert_eq!(ended["result"]["rolled_back"], true, "{ended}");

    // What can be checked before is reported to the caller.
    for config in ["-c there-is-none.yaml", "--set calicoNetwork.vxlan.vxlanVNI=1"] {
        let refused = lab.run(&format!("reconfigure --detach -y -o json {config}")).exits(4).json();
        assert_eq!(refused["status"], "failed", "{refused}");
    }
    // Also a run that fails before it takes the lock.
    let started = lab.run("reconfigure --detach -y -o json --plan there-is-none.json").exits(0).json();
    let run = started["run"].as_str().unwrap();
    let ended = lab.run(&format!("status --wait --run {run} -o json")).exits(4).json();
    assert_eq!(ended["result"]["error"]["id"], "PlanInvalid", "{ended}");
}

#[test]
fn commands_that_cannot_be_detached_are_refused_at_once() {
    let lab = Lab::installed();
    for (words, code) in [
        ("reconfigure --detach", 64),
        ("status --detach", 64),
        ("reconfigure --detach -y -n", 64),
        ("reconfigure --detach -y -c -", 64),
    ] {
        let _refused = lab.run(words).exits(code);
    }
}

/// The reader closes the pipe, like a session that drops.
#[test]
fn a_run_continues_when_its_output_is_closed() {
    for format in ["text", "ndjson"] {
        let lab = Lab::installed();
        let mut command = lab.command(&format!("{VNI} -v -o {format} --sandbox node"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{format}");
        assert_eq!(vsid(&lab), 5000, "{format}");
    }
}

/// Inherited handles must not keep the caller waiting: the pipe ends with the caller.
#[test]
fn a_detached_run_keeps_no_handle_of_its_caller() {
    let lab = Lab::installed();
    let begun = Instant::now();
    // The pods never end, so the run continues until its drain times out.
    let words = format!("{VNI} --detach --drain-timeout 5s -o json");
    let started = lab.fails_at("api no-kubelet", &words).exits(0).json();
    assert!(begun.elapsed() < Duration::from_secs(4), "the pipe was open for {:?}", begun.elapsed());
    let run = started["run"].as_str().unwrap();
    let _blocked = lab.run(&format!("status --wait --run {run}")).exits(8);
}
