//! Ctrl-C and SIGTERM end a run with a result, in every stage.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::schemas;
#[cfg(target_os = "linux")]
use crate::lab::Terminal;
use crate::lab::{Lab, each_phase_ends};

fn ctrl_c(child: &Child) {
    signal("INT", child);
}

fn signal(name: &str, child: &Child) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Starts a command with NDJSON, sends Ctrl-C at the line with this text, and returns all lines and the exit code.
pub fn stopped_at(lab: &Lab, words: &str, fault: &str, at: &str) -> (Vec<Value>, Option<i32>) {
    stopped_by("INT", lab, words, fault, at)
}

/// The same with another signal.
fn stopped_by(name: &str, lab: &Lab, words: &str, fault: &str, at: &str) -> (Vec<Value>, Option<i32>) {
    let mut command = lab.command(&format!("{words} -o ndjson --sandbox node"));
    command.env("CALICO_WIN_SANDBOX_FAULT", fault).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut seen = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        seen.push(serde_json::from_str(&line).unwrap());
        if line.contains(at) {
            signal(name, &child);
        }
    }
    each_phase_ends(&seen);
    (seen, child.wait().unwrap().code())
}

#[test]
fn a_run_that_waits_for_the_lock_ends_with_a_result() {
    let lab = Lab::installed();
    let lock = std::fs::File::options().write(true).open(lab.on_node("C/ProgramData/calicoctl-win/lock")).unwrap();
    lock.lock().unwrap();
    let (lines, code) = stopped_at(&lab, "apply -y --wait-for-lock 1h", "", "the run in progress to end");
    let result = lines.last().unwrap();
    assert_eq!((code, &result["type"], &result["status"]), (Some(130), &json!("result"), &json!("cancelled")));
    assert_eq!((&result["changed"], &result["error"]["id"]), (&json!(false), &json!("RunCancelled")), "{result:#}");
    let numbers: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

/// They end in no other way.
#[test]
fn what_has_no_end_is_no_document_and_its_stream_ends_with_a_result() {
    let lab = Lab::installed();
    lab.add_object("daemonsets.apps", schemas::a_wave());
    for words in ["status --watch", "logs -f", "fleet status --watch"] {
        let (lines, code) = stopped_at(&lab, words, "", r#""seq":1,"#);
        let result = lines.last().unwrap();
        assert_eq!((code, &result["type"], &result["status"]), (Some(130), &json!("result"), &json!("cancelled")));
        assert_eq!(lines[1]["type"], "document", "{words}");
        schemas::check(&lines[1]["document"]);
        for format in ["json", "yaml"] {
            let refused = lab.run(&format!("{words} -o {format}")).exits(64);
            assert!(refused.stdout.contains("json and yaml are one document"), "{refused}");
        }
    }
    let (status, _) = stopped_at(&lab, "status --watch", "", r#""seq":1,"#);
    let said = (&status[1]["document"]["success"], &status[1]["document"]["exit_code"]);
    assert_eq!(said, (&json!(true), &json!(0)));
}

/// A rollout takes hours, and a pipeline has no terminal: each change is a line.
#[test]
fn a_fleet_apply_without_a_terminal_says_what_it_waits_for() {
    let lab = Lab::installed();
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let mut command = lab.command("fleet apply -y -c node.yaml --image host/c:1 --sandbox node");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().unwrap().starts_with("[WAIT]") {
            ctrl_c(&child);
        }
    }
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:#?}");
    assert!(
        said.iter().any(|line| line.ends_with("every node to have a pod of its wave: 0 of 1 wave done")),
        "{said:#?}"
    );
    assert!(errors.contains("`calicoctl-win fleet status"), "{errors}");
}

/// The API server delays the run before anything is planned. A service manager and a container's runtime send SIGTERM.
#[test]
fn a_run_stopped_before_its_plan_is_recorded_as_cancelled() {
    let installed = Lab::installed();
    for name in ["INT", "TERM"] {
        let lab = installed.copy();
        let (lines, code) = stopped_by(name, &lab, "apply -y", "facts#2=hang", "run_start");
        assert_eq!((code, &lines.last().unwrap()["status"]), (Some(130), &json!("cancelled")), "{name}");
        let kept: Value = serde_json::from_str(&lab.read("C/ProgramData/calicoctl-win/state/last-run.json")).unwrap();
        assert_eq!((&kept["exit_name"], &kept["changed"]), (&json!("CANCELLED"), &json!(false)), "{name}: {kept:#}");
        let log = std::fs::read_to_string(lab.path(kept["log"].as_str().unwrap())).unwrap();
        assert!(log.contains("result: CANCELLED (exit 130)"), "{name}: {log}");
    }
}

#[test]
fn the_current_step_is_finished_first_and_the_output_says_so() {
    let lab = Lab::installed();
    let mut command = lab.command("apply -y -o json --sandbox node --set services.felixLogSeverity=debug");
    command.env("CALICO_WIN_SANDBOX_FAULT", "put running CalicoFelix#2=hang");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The current step hangs: Felix was stopped, and is being started.
    let journal = lab.on_node("C/ProgramData/calicoctl-win/journal.jsonl");
    let is_felix = |line: &&str| line.starts_with(r#"{"step":"#) && line.contains("CalicoFelix");
    while std::fs::read_to_string(&journal).unwrap_or_default().lines().filter(is_felix).count() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    ctrl_c(&child);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("Stopping after this step. Press Ctrl-C again to stop now") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it said nothing");
    }
    ctrl_c(&child);
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((child.wait().unwrap().code(), &result["status"]), (Some(130), &json!("cancelled")));
    assert!(result["error"]["hint"].as_str().unwrap().contains("calicoctl-win resume"), "{result:#}");
    let _finished = lab.run("resume -y").exits(0);
}

/// A phase that was reported as begun is reported as ended, although its thread never finishes it.
#[test]
fn the_phase_that_is_stopped_ends_too() {
    let lab = Lab::installed();
    let (lines, code) = stopped_at(&lab, "apply -y", "api GET /version*=slow", r#""phase_start""#);
    assert_eq!((code, &lines.last().unwrap()["status"]), (Some(130), &json!("cancelled")), "{lines:#?}");
    let ended = lines.iter().rfind(|line| line["type"] == "phase_errored").unwrap();
    assert_eq!(ended["phase"], json!({ "id": "cluster", "key": "cluster" }));
}

/// The line of an error begins on a row without a bar.
#[cfg(target_os = "linux")]
#[track_caller]
fn on_a_clear_row(shown: &str, error: &str) {
    let row = shown.split(['\r', '\n']).rfind(|row| row.contains(error)).unwrap_or_else(|| panic!("{shown}"));
    let before = row.split(error).next().unwrap();
    assert!(["", "\u{1b}[2K", "\u{1b}[31m"].contains(&before), "{before:?} in {shown}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_shows_what_a_step_does_and_for_how_long() {
    let lab = Lab::installed();
    let mut command = lab.command("uninstall -y --color never --sandbox node");
    command.env("CALICO_WIN_SANDBOX_FAULT", "put hns-network Calico=hang");
    let mut terminal = Terminal::of(&command);
    terminal.shows("[ 9/10] hns-network     removing HNS network Calico (limit 5 min)... 1s");
    // `status` has the same number.
    let at = lab.run("status -o json").exits(0).json()["run"]["at"].as_str().unwrap().to_owned();
    assert!(at.ends_with("at step 9 of 10: hns-network Calico"), "{at}");
    terminal.ctrl_c();
    terminal.shows("Press Ctrl-C again to stop now");
    terminal.ctrl_c();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    on_a_clear_row(&shown, "error: stopped at once by Ctrl-C");
    for command in ["resume --sandbox node\r\n", "resume --undo --sandbox node\r\n"] {
        assert!(shown.contains(&format!("calicoctl-win {command}")), "{shown}");
    }
    let _finished = lab.run("resume -y").exits(0);
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_at_the_question_ends_with_a_result() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    let mut terminal = Terminal::of(&lab.command("uninstall --color never --sandbox node"));
    terminal.shows("[y/N]");
    terminal.ctrl_c();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    let shown = shown.replace("\r\n", "\n");
    let end = shown.find("error: ").map(|at| &shown[at..shown.rfind(" log=").unwrap()]).unwrap();
    insta::assert_snapshot!(end, @r"
    error: stopped by Ctrl-C
      state: nothing was changed
      fix: run the command again
      more: calicoctl-win explain RunCancelled
    result: CANCELLED (exit 130) changed=false reboot=false
    ");
    lab.picture_without_state().same_as(&before);
}

/// A purge cannot be undone, so "y" is not enough.
#[cfg(target_os = "linux")]
#[test]
fn a_purge_is_confirmed_by_the_name_of_the_node() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    for (answer, code) in [("y", 130), ("win-a2", 130), ("win-a1", 0)] {
        let mut terminal = Terminal::of(&lab.command("uninstall --purge --color never --sandbox node"));
        terminal.shows("continue:");
        terminal.types(answer);
        let (ended, shown) = terminal.end();
        // It is longer than a row of the screen.
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(words.join(" ").contains("Type win-a1 to continue:"), "{answer}: {shown}");
        assert_eq!(ended, Some(code), "{answer}: {shown}");
        if code != 0 {
            assert!(shown.contains("error: not confirmed"), "{answer}: {shown}");
            lab.picture_without_state().same_as(&before);
        }
    }
    assert!(!lab.on_node("C/ProgramData/calicoctl-win").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_in_the_download_clears_its_bar() {
    let lab = Lab::node();
    let before = lab.picture_without_state();
    let mut command = lab.command("install -y --color never --sandbox node");
    command.env("CALICO_WIN_SANDBOX_FAULT", "release slow");
    let mut terminal = Terminal::of(&command);
    terminal.shows("% [");
    terminal.shows(" left");
    terminal.ctrl_c();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    on_a_clear_row(&shown, "error: stopped by Ctrl-C");
    assert!(shown.contains("state: nothing was changed") && shown.contains("result: CANCELLED (exit 130)"), "{shown}");
    lab.picture_without_state().same_as(&before);
}

#[cfg(target_os = "linux")]
#[test]
fn the_board_of_a_drain_fits_on_the_screen() {
    let lab = Lab::installed();
    let mut command = lab.command("node drain -y --color never --sandbox node");
    command.env("CALICO_WIN_SANDBOX_FAULT", "api no-kubelet");
    let mut terminal = Terminal::of(&command);
    terminal.shows("held: demo/web");
    terminal.shows("terminating for");
    terminal.ctrl_c();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    // indicatif fills each row with blanks; the reason is longer than a row.
    let row = shown.split("        held: ").nth(1).unwrap().split("   ").next().unwrap();
    assert!((20..=66).contains(&row.len()), "{row} in {shown}");
}
