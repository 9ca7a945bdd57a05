//! Runs without their caller: detached ones, and those whose caller closes the pipe or dies.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use calicoctl_win::node::sandbox::model::Name;
use serde_json::{Value, json};

use crate::lab::{Lab, Output};

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
    for verb in ["status", "logs", "logs -f"] {
        let unknown = lab.run(&format!("{verb} --run 20260102T150405-000001 -o ndjson")).exits(24).ndjson();
        assert_eq!(unknown.last().unwrap()["error"]["id"], "NoSuchRun", "{verb}");
    }
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
    let lock = File::options().write(true).open(lab.on_node("C/ProgramData/calicoctl-win/lock")).unwrap();
    lock.lock().unwrap();
    let started = lab.run(&format!("{VNI} --detach -o json --wait-for-lock 1s")).exits(0).json();
    let run = started["run"].as_str().unwrap();
    let record = lab.on_node(&format!("C/ProgramData/calicoctl-win/state/runs/{run}.json"));
    let ended = loop {
        let record: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
        if !record["result"].is_null() {
            break record;
        }
        std::thread::yield_now();
    };
    assert_eq!(ended["result"]["error"]["id"], "Busy", "{ended}");
    drop(lock);
    let ended = lab.run(&format!("status --run {run} -o json")).exits(14).json();
    assert_eq!((&ended["state"], &ended["result"]["error"]["id"]), (&json!("ended"), &json!("Busy")), "{ended}");
}

/// It has no lock and no journal yet.
#[test]
fn a_detached_run_that_waits_for_another_is_not_lost() {
    let lab = Lab::installed();
    let lock = File::options().write(true).open(lab.on_node("C/ProgramData/calicoctl-win/lock")).unwrap();
    lock.lock().unwrap();
    let started = lab.run(&format!("{VNI} --detach -o json --wait-for-lock 1h")).exits(0).json();
    let run = started["run"].as_str().unwrap();
    let file = lab.on_node(&format!("C/ProgramData/calicoctl-win/state/runs/{run}.json"));
    let mut record: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    record["since"] = json!(jiff::Timestamp::now() - Duration::from_secs(600));
    fs::write(&file, record.to_string()).unwrap();
    let waits = lab.run(&format!("status --run {run} -o json")).exits(0).json();
    assert_eq!(waits["state"], "running", "{waits}");
    drop(lock);
    let _ended = lab.run(&format!("status --wait --run {run}")).exits(0);
    assert_eq!(vsid(&lab), 5000);
}

/// The last that a run of a fleet does is to say on its Node how it ended.
#[test]
fn a_run_is_in_progress_until_it_has_written_down_how_it_ended() {
    let lab = Lab::installed();
    let words = "apply -y --detach -o json";
    let mut command = lab.command_of_pod(&format!("{words} --sandbox node"));
    command.env("CALICO_WIN_SANDBOX_FAULT", "api PATCH /api/v1/nodes/*=slow");
    let started = Output::of(words, command).exits(0).json();
    let run = started["run"].as_str().unwrap();
    let ended = lab.run(&format!("status --wait --run {run} -o json")).exits(0).json();
    assert_eq!((&ended["state"], &ended["result"]["changed"]), (&json!("ended"), &json!(false)), "{ended:#}");
    let logs = lab.run(&format!("logs --run {run}")).exits(0);
    assert!(logs.stdout.contains("the Node has no annotation about this run"), "{logs}");
}

/// The caller hears of it, not only who asks for the run later.
#[test]
fn what_can_be_known_is_refused_before_the_run_is_detached() {
    let (fresh, installed) = (Lab::node(), Lab::installed());
    for (lab, words, code, id) in [
        (&installed, "reconfigure --plan there-is-none.json", 4, "PlanInvalid"),
        (&installed, "reconfigure --unset nosuch.field", 64, "Usage"),
        (&installed, "upgrade --release there-is-none.zip", 6, "ReleaseNotFound"),
        (&installed, "upgrade --release v9.9.9", 15, "CalicoVersionUnsupported"),
        (&installed, "install --release nofile", 6, "ReleaseNotFound"),
        (&fresh, "install --release v9.9", 6, "ReleaseNotFound"),
        (&fresh, "apply --plan there-is-none.json", 4, "PlanInvalid"),
        (&fresh, "reconfigure", 16, "NotInstalled"),
        (&fresh, "upgrade --release v3.33.0", 16, "NotInstalled"),
        (&fresh, "rollback", 16, "NotInstalled"),
        (&fresh, "repair", 16, "NotInstalled"),
    ] {
        let refused = lab.run(&format!("{words} --detach -y -o json")).exits(code).json();
        assert_eq!((&refused["success"], &refused["error"]["id"]), (&json!(false), &json!(id)), "{words}: {refused:#}");
        assert_eq!(refused["error"]["state"], "nothing was changed");
    }
    let runs =
        |lab: &Lab| fs::read_dir(lab.on_node("C/ProgramData/calicoctl-win/state/runs")).map_or(0, Iterator::count);
    assert_eq!((runs(&fresh), runs(&installed)), (0, 1));
}

/// A variable that is set for a whole script does not refuse its dry runs.
#[test]
fn the_variable_for_detached_runs_is_ignored_in_a_dry_run() {
    let lab = Lab::node();
    let with_variable = |words: &str| {
        let mut command = lab.command(&format!("{words} --sandbox node"));
        command.env("CALICO_WIN_DETACH", "true");
        Output::of(words, command)
    };
    let dry = with_variable("install -n -o json").exits(0).json();
    assert_eq!((&dry["status"], &dry["plan"]["needs_drain"]), (&json!("changes_pending"), &json!(false)), "{dry:#}");
    let _typed = with_variable("install -n --detach").exits(64);
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

/// A session whose network the vSwitch has just taken reads nothing: its pipe is full, and a change must not wait for it
/// with the services down.
#[test]
fn a_change_is_made_although_nobody_reads_its_output() {
    for format in ["text", "ndjson"] {
        let lab = Lab::installed();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mut command = lab.command(&format!("{VNI} -v -o {format} --sandbox node"));
        let mut child = command.stdout(writer.try_clone().unwrap()).stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        // More than a pipe holds.
        let filler = std::thread::spawn(move || drop(writer.write_all(&[b'\n'; 1 << 20])));
        let is_made = || {
            let model = lab.model();
            let runs = ["CalicoNode", "CalicoFelix"].map(|name| model.services[&Name::new(name)].pid.is_some());
            let vsid = model.networks.get(&Name::new("Calico")).and_then(|network| network.vsid);
            let cordoned = lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"] == true;
            (vsid, runs, cordoned) == (Some(5000), [true; 2], false)
        };
        let begun = Instant::now();
        while !is_made() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{format}: nothing was made");
            assert_eq!(child.try_wait().unwrap(), None, "{format}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        filler.join().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{format}: {said}");
        let last = said.lines().rfind(|line| !line.is_empty()).unwrap();
        assert!(last.contains("result"), "{format}: the result is told: {last}");
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
