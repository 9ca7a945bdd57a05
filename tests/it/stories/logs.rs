//! `logs`: one story told by several programs, in the order in which it happened.

use std::fs;

use serde_json::Value;

use crate::lab::Lab;

/// Felix's log is rotated in the middle of an error of several lines; CalicoNode and kube-proxy write other forms of
/// times.
fn with_logs() -> Lab {
    let lab = Lab::installed();
    let folder = lab.on_node("C/ProgramData/calicoctl-win/logs/calico");
    for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        fs::remove_file(entry.path()).unwrap();
    }
    for (name, text) in [
        (
            "calico-felix-20260102T150004.000.log",
            "2026-01-02T15:00:01.000Z calicoctl-win: Felix starts\n2026-01-02T15:00:04.000Z panic: oh no\n",
        ),
        ("calico-felix.log", "goroutine 1 [running]:\n2026-01-02T15:00:06.000Z calicoctl-win: Felix restarts\n"),
        ("calico-node.log", "2026-01-02T15:00:02Z node ready\n2026-01-02T15:00:05Z node sees Felix gone\n"),
        ("calico-node.err.log", "2026-01-02T15:00:03Z a warning\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    lab
}

/// The lines without their times, of a document.
fn said(document: &Value) -> Vec<String> {
    let lines = document["lines"].as_array().unwrap().iter();
    lines.map(|line| line["line"].as_str().unwrap().rsplit("Z ").next().unwrap().to_owned()).collect()
}

const ALL: [&str; 7] = [
    "calicoctl-win: Felix starts",
    "node ready",
    "a warning",
    "panic: oh no",
    "goroutine 1 [running]:",
    "node sees Felix gone",
    "calicoctl-win: Felix restarts",
];

#[test]
fn lines_of_all_logs_are_in_the_order_of_their_times() {
    let lab = with_logs();
    let document = lab.run("logs -o json").exits(0).json();
    assert_eq!(said(&document), ALL);
    let trace = &document["lines"][4];
    assert_eq!((&trace["file"], &trace["time"]), (&"calico-felix.log".into(), &"2026-01-02T15:00:04Z".into()));
    let text = lab.run("logs").exits(0).stdout;
    assert!(text.contains("calico-node.log: 2026-01-02T15:00:05Z node sees Felix gone\ncalico-felix.log: "), "{text}");
    let felix = lab.run("logs --component felix -o json").exits(0).json();
    assert_eq!(said(&felix), [ALL[0], ALL[3], ALL[4], ALL[6]]);
}

#[test]
fn the_last_lines_are_those_of_all_logs_together() {
    let lab = with_logs();
    for (words, from) in [("--tail 2", 5), ("--tail 4", 3), ("--tail 50", 0), ("--since 2026-01-02T15:00:05Z", 5)] {
        let document = lab.run(&format!("logs {words} -o json")).exits(0).json();
        assert_eq!(said(&document), ALL[from..], "{words}");
    }
    assert!(said(&lab.run("logs --tail 0 -o json").exits(0).json()).is_empty());
    let refused = lab.run("logs --tail all -o json").exits(64).json();
    assert!(refused["error"]["what"].as_str().unwrap().contains("--tail"), "{refused:#}");
}

/// What is there already comes first, in order.
#[cfg(target_os = "linux")]
#[test]
fn following_begins_with_the_last_lines_and_continues_with_new_ones() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::Stdio;
    let lab = with_logs();
    let mut command = lab.command("logs -f --tail 2 --sandbox node");
    let mut follows = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follows.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = || lines.next().unwrap_or_default();
    assert_eq!(next(), "calico-node.log: 2026-01-02T15:00:05Z node sees Felix gone");
    assert_eq!(next(), "calico-felix.log: 2026-01-02T15:00:06.000Z calicoctl-win: Felix restarts");
    let node = lab.on_node("C/ProgramData/calicoctl-win/logs/calico/calico-node.log");
    writeln!(fs::File::options().append(true).open(node).unwrap(), "2026-01-02T15:00:07Z new").unwrap();
    assert_eq!(next(), "calico-node.log: 2026-01-02T15:00:07Z new");
    follows.kill().unwrap();
    let _ended = follows.wait().unwrap();
}

/// They are outside of the release's folder, which the rollback removes.
#[test]
fn the_logs_of_an_install_that_was_rolled_back_are_shown() {
    let lab = Lab::node();
    let failed = lab.fails_at("put running CalicoFelix=dies", "install -y -o json").exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed:#}");
    assert!(!lab.on_node("C/CalicoWindows").exists());
    let shown = lab.run("logs -o json").exits(0).json();
    let files: Vec<&str> =
        shown["lines"].as_array().unwrap().iter().map(|line| line["file"].as_str().unwrap()).collect();
    assert!(files.contains(&"calico-node.log"), "{shown:#}");
}
