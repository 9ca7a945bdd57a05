//! The power fails in the middle of a run, nobody is there when it returns, and the run was told what to do then.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::boot::power_returns;
use crate::lab::Lab;

const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";

/// Starts Windows, and with it CalicoNode.
fn boots(lab: &Lab) {
    power_returns(lab);
    let _scm = lab.run("service start");
}

fn interrupted(lab: &Lab) -> bool {
    lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl").exists()
        || lab.on_node("C/ProgramData/calicoctl-win/state/cordon.json").exists()
}

/// Health and VSID, once nothing is in progress any more.
fn settled(lab: &Lab) -> (Value, Value) {
    let begun = Instant::now();
    while interrupted(lab) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody ends the run");
        std::thread::sleep(Duration::from_millis(100));
    }
    let _settled = lab.run("status --wait --timeout 60s");
    let status = lab.status();
    let calico = status["networks"].as_array().unwrap().iter().find(|network| network["name"] == "Calico");
    assert_eq!((&status["run"], &status["node"]["schedulable"]), (&Value::Null, &json!(true)), "{status:#}");
    (status["overall"].clone(), calico.map_or(Value::Null, |calico| calico["vsid"].clone()))
}

#[test]
fn a_run_that_a_boot_interrupted_is_finished_or_undone_as_requested() {
    let there = Lab::installed();
    for (asked, vsid) in
        [("--at-boot finish", 5000), ("--at-boot undo", 4096), ("--set reboot.resumeOnBoot=true", 5000)]
    {
        for fault in [
            "put *10-calico.conf#1=exit-after",
            "put network Calico=exit-after",
            "put running CalicoFelix#2=exit-before",
        ] {
            let lab = there.copy();
            let _power_goes = lab.fails_at(fault, &format!("{VNI} {asked}")).exits(137);
            boots(&lab);
            assert_eq!(settled(&lab), (json!("Healthy"), json!(vsid)), "{asked}, {fault}");
        }
    }
}

/// Windows adjusts its recorded start time when the clock is set: the run seems to have begun after the boot.
#[test]
fn a_clock_that_was_set_does_not_hide_a_boot() {
    let lab = Lab::installed();
    let _power_goes = lab.fails_at("put network Calico=exit-after", &format!("{VNI} --at-boot finish")).exits(137);
    power_returns(&lab);
    lab.edit_yaml(|yaml| yaml.replace("2099-01-02T15:04:05Z", "2020-01-02T15:04:05Z"));
    let _scm = lab.run("service start");
    assert_eq!(settled(&lab), (json!("Healthy"), json!(5000)));
}

#[test]
fn a_run_without_at_boot_is_left_to_an_administrator() {
    let lab = Lab::installed();
    let _power_goes = lab
        .fails_at("put network Calico=exit-after", &format!("{VNI} --set reboot.resumeOnBoot=true --at-boot leave"))
        .exits(137);
    boots(&lab);
    std::thread::sleep(Duration::from_secs(2));
    assert!(interrupted(&lab));
    let status = lab.run("status -o json").json();
    assert_eq!(status["run"]["interrupted"], true, "{status:#}");
    let _by_hand = lab.run("resume -y").exits(0);
    assert_eq!(settled(&lab), (json!("Healthy"), json!(5000)));
}

/// The service restarts, and Windows does not: the run may be in progress, or an administrator is reading what it left.
#[test]
fn without_a_boot_nothing_is_resumed_automatically() {
    let lab = Lab::installed();
    let _killed = lab.fails_at("put network Calico=exit-after", &format!("{VNI} --at-boot finish")).exits(137);
    let _restart = lab.run("service restart -y");
    std::thread::sleep(Duration::from_secs(2));
    assert!(interrupted(&lab));
}
