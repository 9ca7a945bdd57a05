//! The records of a node: its runs, and the config that it was made with.

use serde_json::{Value, json};

use crate::lab::Lab;

fn history(lab: &Lab) -> Vec<Value> {
    lab.run("history -o json").exits(0).json()["runs"].as_array().unwrap().clone()
}

#[test]
fn history_shows_every_run_and_its_result() {
    let lab = Lab::node();
    assert!(lab.run("history").exits(0).stdout.contains("no run is remembered"));
    let mut command = lab.command("install -y --sandbox node");
    assert!(command.env("USERNAME", "Alice").output().unwrap().status.success());
    let _failed = lab.fails_at("put running CalicoFelix=dies", "service restart -y").exits(1);
    let _killed = lab.fails_at("put *#2=exit-after", "uninstall -y").exits(137);
    let runs = history(&lab);
    let ends: Vec<(&str, &str)> = runs
        .iter()
        .map(|run| (run["command"].as_str().unwrap(), run["result"].as_str().unwrap_or("not ended")))
        .collect();
    assert_eq!(ends, [("install", "OK"), ("service restart", "FAILED"), ("uninstall", "not ended")]);
    assert_eq!([0, 1, 2].map(|at| runs[at]["interrupted"] == true), [false, false, true]);
    let _status_of_a_killed_run = lab.run(&format!("status --run {}", runs[2]["run"].as_str().unwrap())).exits(12);
    assert_eq!(lab.status()["run"]["interrupted"], true);
    let _undone = lab.run("resume --undo -y").exits(0);
    let runs = history(&lab);
    assert_eq!(
        runs[2]["ended_by"],
        json!({ "run": runs[3]["run"], "command": "resume", "how": "undone" }),
        "{runs:#?}"
    );
    let shown = lab.run("history").exits(0).stdout;
    assert!(shown.contains("interrupted, undone by resume (20"), "{shown}");
    assert_eq!(
        (&runs[0]["user"], &runs[0]["generation"], &runs[0]["changed"]),
        (&json!("Alice"), &json!(1), &json!(true))
    );
    assert!(runs[0]["started"].is_string());
}

#[test]
fn a_log_that_cannot_be_written_is_reported_before_anything_is_done() {
    let lab = Lab::node();
    lab.write("file", "no folder");
    let before = lab.picture();
    let refused = lab.run("install -y -o json --log-file file/run.log").exits(64).json();
    assert_eq!((&refused["error"]["id"], &refused["log"]), (&json!("LogNotWritable"), &Value::Null), "{refused:#}");
    lab.picture().same_as(&before);
}

#[test]
fn the_applied_config_is_shown_and_compared() {
    let lab = Lab::installed();
    assert!(lab.run("config diff").exits(0).stdout.starts_with("no difference"));
    let diff = lab.run("config diff -o json --set services.felixLogSeverity=debug --detailed-exitcode").exits(2).json();
    let change = json!({"path": "spec.services.felixLogSeverity", "before": null, "after": "debug"});
    assert_eq!(diff["settings_diff"], json!([change]));
    let _done = lab.run("apply -y --set services.felixLogSeverity=debug").exits(0);
    let applied = lab.run("config show --applied").exits(0).stdout;
    assert!(applied.contains("\n  services:\n") && applied.contains("\n    felixLogSeverity: debug\n"), "{applied}");
    let none = Lab::node().run("config show --applied -o json").exits(16).json();
    assert_eq!(none["error"]["id"], "NotInstalled");
}

/// A template whose value was empty.
#[test]
fn a_config_that_is_null_is_as_empty_as_an_empty_file() {
    let lab = Lab::new();
    lab.write("null.yaml", "null\n");
    let refused = lab.bare("config validate null.yaml -o json").exits(4).json();
    assert_eq!(refused["error"]["id"], "ConfigUnreadable", "{refused:#}");
}
