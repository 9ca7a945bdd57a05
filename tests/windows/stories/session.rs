//! Sessions that end: sign-out, a dropped RDP or WinRM connection, a scheduled task that is over.

use serde_json::{Value, json};

use crate::house::House;

/// What Windows keeps for a moment to start a run in session 0.
const SERVICE: &str = "calicoctl-win-session0";

const VNI: [&str; 6] = ["reconfigure", "-y", "--set", "calicoNetwork.vxlan.vxlanVNI=5000", "-o", "json"];

fn vsid(house: &House) -> Value {
    house.hns()["Calico"]["Subnets"][0]["Policies"][0]["VSID"].clone()
}

/// Whether Windows has a service of this name.
fn is_service(house: &House, name: &str) -> bool {
    let asked = house.machine.run_program("sc", &["query", name]);
    asked.code == 0
}

#[test]
fn a_detached_run_continues_after_the_sign_out() {
    let Some(house) = House::joined() else { return };
    let started = house.machine.run_in_session(&[&VNI[..], &["--detach"]].concat()).exits(0).json();
    assert_eq!((&started["status"], vsid(&house)), (&json!("started"), json!(4096)), "{started:#}");
    assert!(is_service(&house, "CalicoNode") && !is_service(&house, SERVICE));

    let run = started["run"].as_str().unwrap();
    let ended = house.run(&format!("status --wait --run {run} -o json")).exits(0).json();
    assert_eq!((&ended["result"]["generation"], vsid(&house)), (&json!(2), json!(5000)), "{ended:#}");
    assert!(!house.cordoned());
    house.until_healthy();
}

#[test]
fn a_trial_that_nobody_can_confirm_after_the_sign_out_is_reverted() {
    let Some(house) = House::joined() else { return };
    let words = [&VNI[..], &["--mode", "try", "--confirm-timeout", "5s"]].concat();
    let result = house.machine.run_in_session(&words).exits(0).json();
    assert_eq!((&result["generation"], vsid(&house)), (&json!(2), json!(5000)), "{result:#}");
    house.until("the revert", |status| status["generation"] == 3 && status["overall"] == "Healthy");
    assert_eq!((vsid(&house), house.cordoned()), (json!(4096), false));
}

/// The events in an output of NDJSON.
fn events(text: &str) -> Vec<Value> {
    text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line.strip_suffix('\n')?).ok()).collect()
}

/// An install makes the vSwitch.
fn install<'a>(house: &'a House, output: &'a str) -> Vec<&'a str> {
    [house.install_words(), vec!["-o", output]].concat()
}

#[test]
fn an_install_over_ssh_is_told_there_as_if_it_were_made_there() {
    let Some(house) = House::new() else { return };
    let told = events(&house.machine.run_over_ssh(&install(&house, "ndjson")).exits(0).stdout);
    let numbers: Vec<u64> = told.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..told.len() as u64).collect::<Vec<_>>(), "one stream of lines");
    let begun = |phase: &str| {
        let of = |event: &&Value| event["type"] == "phase_start" && event["phase"]["key"] == phase;
        told.iter().filter(of).count()
    };
    assert_eq!(["cluster", "release", "files", "node-startup"].map(begun), [1; 4], "{told:#?}");
    let result = told.last().unwrap();
    assert_eq!((&result["type"], &result["generation"]), (&json!("result"), &json!(1)), "{result:#}");
    assert_eq!([SERVICE, "CalicoNode"].map(|name| is_service(&house, name)), [false, true]);
    house.until_healthy();
}

#[test]
fn how_an_install_over_ssh_failed_is_told_there() {
    let Some(house) = House::new() else { return };
    // Always: Windows starts CalicoNode again after it failed.
    house.hns_faults("1 -1 POST /networks blind\n");
    let failed = house.machine.run_over_ssh(&install(&house, "json")).exits(9).json();
    assert_eq!(failed["error"]["id"], "HnsNetworkUnseen", "{failed:#}");
    house.hns_faults("");
    let done = house.machine.run_over_ssh(&install(&house, "text")).exits(0).stdout;
    let (before, after) = done.split_once("without the session.").unwrap_or_else(|| panic!("{done}"));
    // The plan is told once, and what is made after it.
    assert!(before.contains("to create") && !after.contains("to create"), "{done}");
    assert!(after.contains("is running on"), "{done}");
}

#[test]
fn a_connection_that_drops_while_the_network_is_made_does_not_stop_an_install() {
    let Some(house) = House::new() else { return };
    house.order("startup", "exit=1 late\nexit=1 late\nrun");
    let mut session = house.machine.start_over_ssh(&install(&house, "ndjson"), "", "test/said");
    house.until_started("startup", 1);
    let told = events(&house.read(r"test\said"));
    session.kill().unwrap();
    session.wait().unwrap();

    let run = told[0]["run"].as_str().unwrap();
    let ended = house.run(&format!("status --wait --run {run} -o json")).exits(0).json();
    assert_eq!(ended["result"]["generation"], 1, "{ended:#}");
    house.until_healthy();
}

/// As Microsoft's DSC engine calls it: the instance is on stdin, which only the process in the session has.
#[test]
fn a_connection_that_drops_does_not_stop_what_dsc_sets() {
    let Some(house) = House::new() else { return };
    let mut instance: Value = serde_yaml::from_str(&house.read("node.yaml")).unwrap();
    instance["spec"]["calico"]["source"] = json!({ "type": "bundle", "path": house.release });
    house.order("startup", "exit=1 late\nexit=1 late\nrun");
    let mut session = house.machine.start_over_ssh(&["dsc", "set"], &instance.to_string(), "test/said");
    house.until_started("startup", 1);
    session.kill().unwrap();
    session.wait().unwrap();
    let ended = house.run("status --wait -o json").json();
    assert_eq!(ended["generation"], 1, "{ended:#}");
    house.until_healthy();

    instance["_exist"] = false.into();
    let gone = house.machine.tell_over_ssh(&["dsc", "set"], &instance.to_string()).exits(0);
    let state: Value = serde_json::from_str(&gone.stdout).unwrap_or_else(|_| panic!("one line of state: {gone:?}"));
    assert_eq!(state, json!({ "_exist": false }));
    assert_eq!(events(&gone.stderr).len(), gone.stderr.lines().count(), "only lines of JSON: {gone:?}");
    assert!(!is_service(&house, "CalicoNode"), "{gone:?}");
}

#[test]
fn a_config_that_is_piped_over_ssh_is_used_by_the_run_without_the_session() {
    let Some(house) = House::new() else { return };
    let words = ["install", "--yes", "-c", "-", "--release", &house.release];
    let done = house.machine.tell_over_ssh(&words, &house.read("node.yaml")).exits(0);
    assert!(done.stdout.contains("without the session.") && done.stdout.contains("is running on"), "{done:?}");
    house.until_healthy();
}
