//! A power failure: the process is killed, at one call after another, and the next process reaches the new state or the
//! old one.

use crate::lab::{Lab, Picture};

/// More calls than any run here has.
const MANY: usize = 400;

/// Runs `words` on nodes made by `make`, each killed `stride` calls later than the previous one, until one finishes,
/// and passes each to `then`. Returns how many were killed.
fn stop_at(stride: usize, first: usize, make: fn() -> Lab, words: &str, then: impl Fn(&Lab, usize)) -> usize {
    for (stopped, n) in (first..MANY).step_by(stride).enumerate() {
        let lab = make();
        let output = lab.fails_at(&format!("*#{n}=exit-after"), words);
        if output.code == 0 {
            return stopped;
        }
        let output = output.exits(137);
        assert_eq!(output.stderr, "", "a dead process says nothing");
        then(&lab, n);
    }
    panic!("{words} has more than {MANY} touches");
}

/// A node with items of other products.
fn lived_in() -> Lab {
    let lab = Lab::node();
    lab.write("node/C/CalicoWindows/config.ps1", "by hand");
    lab.write("node/C/Program Files/containerd/cni/conf/10-calico.conf", "{\"name\": \"by hand\"}");
    lab.write("node/C/Program Files/containerd/cni/bin/calico.exe", "an old plugin");
    lab
}

fn installed() -> Lab {
    let lab = lived_in();
    let _there = lab.run("install -y").exits(0);
    lab
}

fn overall(lab: &Lab, code: i32) -> String {
    lab.run("status -o json").exits(code).json()["overall"].as_str().unwrap().to_owned()
}

fn bare() -> Picture {
    lived_in().picture_without_state()
}

#[test]
fn an_install_that_was_killed_is_finished() {
    let stopped = stop_at(7, 1, lived_in, "install -y", |lab, n| {
        let status = lab.run("status -o json").json();
        if status["run"] == serde_json::Value::Null {
            // Before the journal, nothing on the node was changed.
            lab.picture_without_state().same_as(&bare());
            return;
        }
        assert_eq!(status["run"]["interrupted"], true, "at {n}: {status}");
        let _done = lab.run("resume -y").exits(0);
        assert_eq!(overall(lab, 0), "Healthy", "at {n}");
        let nothing = lab.run("install -y -o json").exits(0).json();
        assert_eq!(nothing["changed"], false, "at {n}: {nothing}");
        let _gone = lab.run("uninstall --purge -y").exits(0);
        lab.picture().same_as(&bare());
    });
    assert!(stopped >= 6, "only {stopped}");
}

#[test]
fn an_install_that_was_killed_is_undone() {
    let before = bare();
    let stopped = stop_at(7, 4, lived_in, "install -y", |lab, n| {
        if lab.run("status -o json").json()["overall"] == "Healthy" {
            // It was complete; only the record of its end is missing.
            assert!(lab.run("install -y -o json").exits(0).json()["changed"] == false, "at {n}");
            return;
        }
        let _back = lab.run("resume --undo -y").exits(0);
        lab.picture_without_state().same_as(&before);
        assert_eq!(overall(lab, 16), "NotInstalled", "at {n}");
    });
    assert!(stopped >= 6, "only {stopped}");
}

#[test]
fn a_new_install_over_one_that_was_killed_continues_it() {
    // Not just after the virtual switch took the adapter: its address is not there yet, no time passes on a sandbox
    // between two runs, and `install`, unlike `resume`, needs an address.
    let stopped = stop_at(20, 3, lived_in, "install -y", |lab, n| {
        let _done = lab.run("install -y").exits(0);
        assert_eq!(overall(lab, 0), "Healthy", "at {n}");
        let _gone = lab.run("uninstall --purge -y").exits(0);
        lab.picture().same_as(&bare());
    });
    assert!(stopped >= 2, "only {stopped}");
}

#[test]
fn an_uninstall_that_was_killed_is_finished_or_undone() {
    let before = bare();
    let stopped = stop_at(7, 2, installed, "uninstall -y", |lab, n| {
        if n % 2 == 0 {
            let _done = lab.run("resume -y").exits(0);
            lab.picture_without_state().same_as(&before);
            assert_eq!(overall(lab, 16), "NotInstalled", "at {n}");
        } else {
            let _back = lab.run("resume --undo -y").exits(0);
            assert_eq!(overall(lab, 0), "Healthy", "at {n}");
            let _gone = lab.run("uninstall --purge -y").exits(0);
            lab.picture_without_state().same_as(&before);
        }
    });
    assert!(stopped >= 4, "only {stopped}");
}

#[test]
fn repeated_power_failures_only_take_longer() {
    let before = bare();
    for (words, first) in [("resume -y", 10), ("resume --undo -y", 14)] {
        let lab = lived_in();
        let _dead = lab.fails_at(&format!("put *#{first}=exit-before"), "install -y").exits(137);
        for n in [1, 2, 3] {
            let _dead_again = lab.fails_at(&format!("put *#{n}=exit-after"), words).exits(137);
        }
        let _at_last = lab.run(words).exits(0);
        if words.contains("--undo") {
            lab.picture_without_state().same_as(&before);
        } else {
            assert_eq!(overall(&lab, 0), "Healthy");
            let _gone = lab.run("uninstall --purge -y").exits(0);
            lab.picture().same_as(&before);
        }
    }
}

/// The services are processes of their own: CalicoNode, which the killed undo was starting, is not killed.
/// On Linux, where a process is killed from outside.
#[cfg(target_os = "linux")]
#[test]
fn an_undo_that_is_killed_while_calico_node_starts_is_continued() {
    use std::process::Stdio;

    use calicoctl_win::node::sandbox::model::Name;

    use super::trial::until;

    let lab = Lab::installed();
    let _dead =
        lab.fails_at("put running CalicoNode=exit-after", "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000");
    let mut command = lab.command("resume --undo -y --sandbox node");
    // The second one to read it is the agent of CalicoNode.
    command.env("CALICO_WIN_SANDBOX_FAULT", "get *BootId#2=hang").stdout(Stdio::null());
    let mut undo = command.spawn().unwrap();
    until(&lab, 300, "CalicoNode starts", |lab| {
        lab.read("C/ProgramData/calicoctl-win/agent/node.json").contains("\"phase\": \"preparing\"")
    });
    undo.kill().unwrap();
    undo.wait().unwrap();
    let _back = lab.run("resume --undo -y").exits(0);
    assert_eq!(overall(&lab, 0), "Healthy");
    assert_eq!(lab.model().networks[&Name::new("Calico")].vsid, Some(4096));
}

#[test]
fn a_torn_journal_line_does_not_count() {
    let before = bare();
    for n in [1, 12, 30] {
        let lab = lived_in();
        let _dead = lab.fails_at(&format!("append *#{n}=torn"), "install -y").exits(137);
        let journal = lab.read("C/ProgramData/calicoctl-win/journal.jsonl");
        assert!(!journal.ends_with('\n'), "the line is whole: {journal}");
        if n == 12 {
            let _done = lab.run("resume -y").exits(0);
            assert_eq!(overall(&lab, 0), "Healthy");
            let _gone = lab.run("uninstall -y").exits(0);
        } else {
            let _back = lab.run("resume --undo -y").exits(0);
        }
        lab.picture_without_state().same_as(&before);
    }
}

#[test]
fn a_node_without_an_interrupted_run_has_nothing_to_resume() {
    let lab = Lab::installed();
    for words in ["resume -y -o json", "resume --undo -y -o json"] {
        let nothing = lab.run(words).exits(0).json();
        assert_eq!(nothing["status"], "no_changes", "{nothing}");
    }
    assert_eq!(overall(&lab, 0), "Healthy");
}

#[test]
fn services_run_again_after_a_no_start_change_that_fails_or_is_killed() {
    let lab = Lab::installed();
    let change = "install -y --no-start --release v3.33.0";
    let _reverted = lab.fails_at("put tree *#1=fail", change).exits(9);
    assert_eq!(overall(&lab, 0), "Healthy", "reverted");
    for resume in ["resume -y --undo", "resume -y"] {
        let _killed = lab.fails_at("put tree *#1=exit-after", change).exits(137);
        let _resumed = lab.run(resume).exits(0);
        assert_eq!(overall(&lab, 0), "Healthy", "{resume}");
    }
    assert_eq!(lab.run("status -o json").exits(0).json()["calico_version"], "v3.33.0");
}
