//! Failures on a real node: conflicting items, services that crash, two administrators at once.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::lab::Lab;

#[test]
fn a_failed_install_leaves_the_node_as_it_was() {
    for fault in [
        "put running CalicoFelix=dies",
        "put running CalicoNode=fail",
        "put tree C:\\CalicoWindows=in-use",
        "put firewall *#1=fail-after",
        "put cni-conf *=disk-full",
        "append *#28=disk-full",
    ] {
        let lab = Lab::node();
        let before = lab.picture_without_state();
        let failed = lab.fails_at(fault, "install -y -o json").exits(9).json();
        assert_eq!(failed["exit_name"], "FAILED_ROLLED_BACK", "{fault}: {failed}");
        assert_eq!(failed["rolled_back"], true, "{fault}: {failed}");
        assert!(failed["failed_phase"].is_string() || fault.starts_with("append"), "{fault}: {failed}");
        lab.picture_without_state().same_as(&before);
        let status = lab.run("status -o json").exits(16).json();
        assert_eq!(status["run"], Value::Null, "{fault}: {status}");
        let _fine = lab.run("install -y").exits(0);
        let _gone = lab.run("uninstall --purge -y").exits(0);
        lab.picture().same_as(&Lab::node().picture());
    }
}

/// A disk that is full before the first change: what the run writes first is in its journal.
#[test]
fn a_failure_before_the_first_change_of_an_install_is_no_rollback() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    for number in [1, 9, 24] {
        let failed = lab.fails_at(&format!("append *#{number}+=disk-full"), "install -y -o json").exits(1).json();
        assert_eq!((&failed["rolled_back"], &failed["changed"]), (&false.into(), &false.into()), "{failed:#}");
        assert_eq!(failed["error"]["state"], "nothing was changed", "{failed:#}");
        lab.picture_without_state().same_as(&before);
    }
    let events = lab.fails_at("append *#9+=disk-full", "install -y -o ndjson").exits(1).stdout;
    assert!(!events.contains("\"rollback_"), "{events}");
    let _fine = lab.run("install -y").exits(0);
}

#[test]
fn a_change_whose_rollback_failed_too_is_said_to_be_rolled_back() {
    let lab = Lab::installed();
    lab.write("vni.yaml", "spec: {calicoNetwork: {vxlan: {vxlanVNI: 5000}}}");
    let _failed = lab.fails_at("append *#9+=disk-full", "reconfigure -y -c vni.yaml").exits(10);
    let status = lab.run("status -o json").exits(12).json();
    assert!(status["run"]["at"].as_str().unwrap().ends_with("), while it was being rolled back"), "{status:#}");
    let _back = lab.run("resume --undo -y").exits(0);
}

#[test]
fn a_failed_change_leaves_the_previous_generation_running() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    let words = "install -y --set services.felixLogSeverity=debug -o json";
    let failed = lab.fails_at("put running CalicoFelix#2=dies", words);
    // Felix is stopped first and then started: the second put on it is the start.
    let failed = failed.exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed}");
    assert_eq!(lab.run("status -o json").exits(0).json()["generation"], 1);
    let after = lab.picture_without_state();
    assert_eq!(after.names("C/"), before.names("C/"));
    assert!(!lab.read("C/ProgramData/calicoctl-win/felix.json").contains("debug"));
}

/// HNS makes the vSwitch for minutes, and answers nothing meanwhile: Calico gives up before.
#[test]
fn a_change_that_failed_because_hns_is_slow_is_reverted_when_it_answers() {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| format!("{yaml}\nswitchSeconds: 250\n"));
    let failed = lab.run("install -y -o json").exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed:#}");
    let status = lab.status();
    let networks: Vec<_> = status["networks"].as_array().unwrap().iter().map(|network| &network["name"]).collect();
    assert_eq!((&status["overall"], networks), (&"NotInstalled".into(), vec![&"nat".into()]), "{status:#}");
}

#[test]
fn if_the_revert_fails_too_the_error_says_how_to_resume() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    // The start fails, and then every removal of a service.
    let faults = "put running CalicoFelix=dies;put service Calico*#3=fail";
    let failed = lab.fails_at(faults, "install -y -o json").exits(10).json();
    assert_eq!(failed["exit_name"], "FAILED_INCOMPLETE", "{failed}");
    assert_eq!(failed["rolled_back"], false);
    assert!(failed["error"]["hint"].as_str().unwrap().contains("resume --undo"), "{failed}");
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!(status["run"]["interrupted"], true, "{status}");
    let _back = lab.run("resume --undo -y").exits(0);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn another_products_network_external_is_a_conflict_and_is_kept() {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| {
        yaml.replace(
            "networks:\n",
            "networks:\n  External: {id: 0c, kind: L2Bridge, subnet: 10.7.0.0/16, gateway: 10.7.0.1}\n",
        )
    });
    let before = lab.picture_without_state();
    for words in ["install -y -o json", "plan -o json"] {
        let refused = lab.run(words).exits(13).json();
        assert_eq!(refused["error"]["id"], "ForeignNetwork", "{refused}");
        assert_eq!((&refused["exit_name"], &refused["changed"]), (&"CONFLICT".into(), &false.into()));
    }
    lab.picture_without_state().same_as(&before);
}

#[test]
fn a_session_that_is_not_elevated_changes_nothing() {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| yaml.replace("elevated: true", "elevated: false"));
    let before = lab.picture();
    for words in ["install -y -o json", "uninstall -y -o json", "service start -o json", "resume -y -o json"] {
        assert_eq!(lab.run(words).exits(5).json()["exit_name"], "NOT_ELEVATED", "{words}");
    }
    let _looking_is_free = lab.run("plan").exits(0);
    lab.picture().same_as(&before);
}

/// A run that hangs in the middle of its changes, and is killed when dropped.
struct Hanging(Child);

impl Hanging {
    fn new(lab: &Lab, fault: &str, words: &str) -> Self {
        let mut command = lab.command(&format!("{words} -o ndjson --sandbox node"));
        command.env("CALICO_WIN_SANDBOX_FAULT", fault).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let begun = lines.find(|line| line.contains("\"phase_start\""));
        assert!(begun.is_some(), "the run ended before it changed anything");
        Self(child)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_second_run_at_the_same_time_is_refused_and_reading_is_not() {
    let lab = Lab::node();
    let first = Hanging::new(&lab, "put *#2=hang", "install -y");
    for words in ["install -y -o json", "uninstall -y -o json", "resume -y -o json"] {
        let busy = lab.run(words).exits(14).json();
        assert_eq!((&busy["exit_name"], &busy["changed"]), (&"BUSY".into(), &false.into()));
        assert!(busy["msg"].as_str().unwrap().contains("`install`"), "{busy}");
    }
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!((&status["overall"], &status["run"]["interrupted"]), (&"Changing".into(), &false.into()), "{status}");
    drop(first);

    let status = lab.run("status").exits(12);
    assert!(status.stdout.contains("interrupted: install (run "), "{status}");
    assert!(status.stdout.contains("Undo it instead: calicoctl-win resume --undo"), "{status}");
    let _resumed = lab.run("install -y").exits(0);
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");

    // The same over an installed generation.
    let second = Hanging::new(&lab, "put *#1=hang", "uninstall -y");
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Changing");
    let _busy = lab.run("service restart -y").exits(14);
    drop(second);
    let _back = lab.run("resume --undo -y").exits(0);
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

/// Whether the Node reports that Calico's network is up, and its settings.
fn told(lab: &Lab) -> (bool, bool) {
    let node = lab.object("nodes", "win-a1").unwrap();
    let up = node["status"]["conditions"].as_array().unwrap().iter().any(|one| one["reason"] == "CalicoIsUp");
    (up, node["metadata"]["annotations"]["calicoctl-win/settings"].is_string())
}

/// The released program ends at a panic without anything else.
#[test]
fn a_defect_of_the_program_ends_with_a_result_and_can_be_undone() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let failed = lab.fails_at("facts=panic", "install -y -o json").exits(1).json();
    assert_eq!(
        (&failed["error"]["id"], &failed["exit_name"]),
        (&"ProgramDefect".into(), &"FAILED".into()),
        "{failed:#}"
    );
    assert_eq!(failed["error"]["state"], "nothing was changed");
    let failed = lab.fails_at("put running CalicoNode#1=panic", "install -y -o json").exits(10).json();
    assert_eq!(failed["error"]["id"], "ProgramDefect", "{failed:#}");
    let why = failed["error"]["why"].as_str().unwrap();
    assert!(why.starts_with("src/") && why.contains("a sandbox fault asked for it"), "{why}");
    assert_eq!(lab.read("C/ProgramData/calicoctl-win/state/last-run.json").parse::<Value>().unwrap()["exit_code"], 10);
    let _undone = lab.run("resume -y --undo").exits(0);
    lab.picture_without_state().same_as(&before);
}

/// Other nodes, the scheduler and a fleet's report rely on it.
#[test]
fn a_reverted_install_leaves_no_trace_of_calico_on_the_node_object() {
    let lab = Lab::node();
    let _failed = lab.fails_at("put cni-conf *=disk-full", "install -y").exits(9);
    assert_eq!(told(&lab), (false, false));
    for fault in ["put cni-conf *=exit-after", "save *0001.json=exit-after"] {
        let lab = Lab::node();
        let _killed = lab.fails_at(fault, "install -y").exits(137);
        assert!(told(&lab).0, "{fault}: Calico's node startup has said so");
        let _undone = lab.run("resume -y --undo").exits(0);
        assert_eq!(told(&lab), (false, false), "{fault}");
    }
    let lab = Lab::installed();
    assert_eq!(told(&lab), (true, true));
    let _gone = lab.run("uninstall -y").exits(0);
    assert_eq!(told(&lab), (false, false));
}

/// The Node records the settings of the current generation.
#[test]
fn the_nodes_note_of_its_settings_is_reverted_with_the_change() {
    let lab = Lab::installed();
    let says =
        |lab: &Lab| lab.object("nodes", "win-a1").unwrap()["metadata"]["annotations"]["calicoctl-win/settings"].clone();
    let first = says(&lab);
    let words = "reconfigure -y --set services.felixLogSeverity=debug";
    let failed = lab.copy();
    let _failed = failed.fails_at("put running CalicoFelix#2=dies", words).exits(9);
    assert_eq!(says(&failed), first);
    let killed = lab.copy();
    let _killed = killed.fails_at("remove *journal.jsonl=exit-before", words).exits(137);
    assert_ne!(says(&killed), first);
    let _undone = killed.run("resume -y --undo").exits(0);
    assert_eq!(says(&killed), first);
    // The cluster does not answer when the note is written, and the change stays.
    let untold = lab.fails_at("api PATCH /api/v1/nodes/*=503", &format!("{words} -o json")).exits(0).json();
    assert!(untold["warnings"].to_string().contains("NotAnnotated"), "{untold}");
    assert_eq!((says(&lab), &untold["generation"]), (first, &2.into()));
}

#[test]
fn logs_that_only_administrators_may_read_are_not_said_to_be_missing() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| yaml.replace("elevated: true", "elevated: false"));
    for words in ["logs -o json", "logs --component felix -o json", "logs --run 1 -o json"] {
        assert_eq!(lab.run(words).exits(5).json()["error"]["id"], "NotElevated", "{words}");
    }
    let fresh = Lab::node();
    fresh.edit_yaml(|yaml| yaml.replace("elevated: true", "elevated: false"));
    assert!(fresh.run("logs").exits(0).stdout.contains("there are no logs yet"));
}

#[test]
fn a_reverted_run_says_so_and_names_the_current_generation() {
    let lab = Lab::installed();
    // The second put on CalicoFelix starts it; the third one reverts the change.
    let fault = "put running CalicoFelix#2=dies";
    let failed = lab.fails_at(fault, "install -y -o json --release v3.33.0").exits(9).json();
    assert_eq!(
        (&failed["rolled_back"], &failed["changed"], &failed["generation"]),
        (&true.into(), &true.into(), &1.into()),
        "{failed:#}"
    );
}

#[test]
fn an_edited_file_of_the_program_does_not_block_a_rollback() {
    let lab = Lab::installed();
    let good = lab.read("C/CalicoWindows/config.ps1");
    lab.write("node/C/CalicoWindows/config.ps1", "edited by hand");
    let fault = "put service CalicoNode=fail;put cni-conf *#1=fail";
    let _failed = lab.fails_at(fault, "install -y --release v3.33.0").exits(9);
    assert_eq!(lab.read("C/CalicoWindows/config.ps1"), good);
}
