//! The journal of an interrupted run is empty, truncated, deleted or invalid: what existed before the first install is
//! kept all the same, whichever verb runs then.

use std::fs;

use calicoctl_win::apply::journal::Journal;
use calicoctl_win::fault::Fault;
use calicoctl_win::node::sandbox::SandboxNode;

use crate::lab::{Lab, Output};

const JOURNAL: &str = "C/ProgramData/calicoctl-win/journal.jsonl";
const ORIGINALS: [(&str, &str); 4] = [
    ("C/CalicoWindows/config.ps1", "by hand"),
    ("C/Program Files/containerd/cni/conf/10-calico.conf", "{\"name\": \"by hand\"}"),
    ("C/Program Files/containerd/cni/bin/calico.exe", "an old plugin"),
    ("C/Program Files/containerd/cni/bin/calico-ipam.exe", "an old IPAM plugin"),
];
const VERBS: [&str; 10] = [
    "resume -y",
    "resume --undo -y",
    "uninstall -y",
    "uninstall --purge -y",
    "install -y",
    "repair -y",
    "rollback -y",
    "credentials rotate -y",
    "reconfigure -y --set services.felixLogSeverity=debug",
    "status",
];

fn lived_in() -> Lab {
    let lab = Lab::node();
    for (path, text) in ORIGINALS {
        lab.write(&format!("node/{path}"), text);
    }
    lab
}

/// An interrupted run, with the original files replaced.
fn interrupted(words: &str) -> Lab {
    let lab = lived_in();
    if !words.starts_with("install") {
        let _there = lab.run("install -y").exits(0);
    }
    let at = if words.starts_with("uninstall") { "put file *calico.exe" } else { "put running CalicoNode#1" };
    let _killed = lab.fails_at(&format!("{at}=exit-before"), words).exits(137);
    lab
}

/// Checks that every original is in its place, or in our own folder.
#[track_caller]
fn originals_are_there(lab: &Lab, at: &str, output: &Output) {
    let mut kept = Vec::new();
    let mut folders = vec![lab.on_node("C/ProgramData/calicoctl-win")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { folders.push(entry) } else { kept.push(fs::read(entry).unwrap()) }
        }
    }
    for (path, text) in ORIGINALS {
        let there = fs::read(lab.on_node(path)).is_ok_and(|bytes| bytes == text.as_bytes());
        let is_kept = kept.iter().any(|bytes| bytes == text.as_bytes());
        assert!(there || is_kept, "{at}: the original of {path} is lost\n{output}");
    }
}

/// Brings the journal into a state and tries every verb on it. Returns the output of each. `again`: if a verb changed
/// something, the same verb or an uninstall is run after it.
fn all_verbs(lab: &Lab, state: &str, again: bool, make: impl Fn(&Lab)) -> Vec<Output> {
    let mut outputs = Vec::new();
    for words in VERBS {
        let lab = lab.copy();
        make(&lab);
        let output = lab.run(&format!("{words} -o json"));
        originals_are_there(&lab, &format!("{state}: {words}"), &output);
        for next in ["resume -y", "uninstall --purge -y"].iter().filter(|_| again) {
            let then = lab.run(next);
            originals_are_there(&lab, &format!("{state}: {words}, then {next}"), &then);
        }
        outputs.push(output);
    }
    outputs
}

#[test]
fn a_journal_without_its_header_has_its_own_error_and_nothing_is_changed() {
    let headless = |lab: &Lab| lab.read(JOURNAL).split_once('\n').unwrap().1.to_owned();
    type Make = fn(&Lab) -> Vec<u8>;
    let states: [(&str, Make); 4] = [
        ("empty", |_| Vec::new()),
        ("cut in its header", |lab| lab.read(JOURNAL).as_bytes()[..100].to_vec()),
        ("garbage", |_| b"\x00\xff\x00\n\x00\n".to_vec()),
        ("not a journal", |_| b"{\"apiVersion\": \"v1\"}\n".to_vec()),
    ];
    for words in ["install -y", "uninstall -y"] {
        let lab = interrupted(words);
        let refused = |state: &str, outputs: Vec<Output>| {
            for (verb, output) in VERBS.iter().zip(outputs) {
                let result = output.exits(1).json();
                assert_eq!(result["error"]["id"], "JournalHeaderMissing", "{state}: {verb}: {result:#}");
                assert_eq!(result["changed"], false, "{state}: {verb}: {result:#}");
            }
        };
        for (state, bytes) in states {
            refused(state, all_verbs(&lab, state, false, |lab| fs::write(lab.on_node(JOURNAL), bytes(lab)).unwrap()));
        }
        refused(
            "headless",
            all_verbs(&lab, "headless", false, |lab| fs::write(lab.on_node(JOURNAL), headless(lab)).unwrap()),
        );
        let folder = |lab: &Lab| {
            fs::remove_file(lab.on_node(JOURNAL)).unwrap();
            fs::create_dir(lab.on_node(JOURNAL)).unwrap();
        };
        refused("a folder", all_verbs(&lab, "a folder", false, folder));
        let later = |lab: &Lab| lab.read(JOURNAL).replacen("\"schema\":2", "\"schema\":3", 1);
        let outputs = all_verbs(&lab, "later", false, |lab| fs::write(lab.on_node(JOURNAL), later(lab)).unwrap());
        for output in outputs {
            assert_eq!(output.exits(1).json()["error"]["id"], "NewerState");
        }
    }
}

#[test]
fn no_truncation_makes_a_journal_look_absent() {
    let lab = interrupted("install -y");
    let whole = fs::read(lab.on_node(JOURNAL)).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap();
    let node = SandboxNode::open(&lab.path("node")).unwrap();
    for length in 0..whole.len() {
        fs::write(lab.on_node(JOURNAL), &whole[..length]).unwrap();
        match Journal::load(&node) {
            Ok(journal) => assert!(length > header && journal.is_some(), "cut to {length} bytes"),
            Err(error) => assert!(
                length <= header && Fault::id_of(&error) == "JournalHeaderMissing",
                "cut to {length} bytes: {error:#}"
            ),
        }
    }
}

/// A journal truncated after its header looks like a run that ended there. It only records less.
#[test]
fn a_truncated_journal_loses_no_original() {
    for words in ["install -y", "uninstall -y"] {
        let lab = interrupted(words);
        let whole = fs::read(lab.on_node(JOURNAL)).unwrap();
        let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        // After each line, and in the middle of the next one.
        let lengths: Vec<usize> = ends.flat_map(|end| [end, (end + 20).min(whole.len())]).collect();
        for (at, length) in lengths.into_iter().enumerate() {
            let lab = lab.copy();
            fs::write(lab.on_node(JOURNAL), &whole[..length]).unwrap();
            let verb = ["resume -y", "resume --undo -y", "uninstall --purge -y", "install -y"][at % 4];
            let output = lab.run(verb);
            originals_are_there(&lab, &format!("{words}, cut to {length} bytes: {verb}"), &output);
            let purged = lab.run("uninstall --purge -y");
            originals_are_there(&lab, &format!("{words}, cut to {length} bytes: {verb}, then a purge"), &purged);
        }
        let header = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        all_verbs(&lab, "cut behind its header", true, |lab| {
            fs::write(lab.on_node(JOURNAL), &whole[..header]).unwrap();
        });
    }
}

#[test]
fn a_deleted_journal_loses_no_original_and_the_error_says_where_they_are() {
    for words in ["install -y", "uninstall -y", "upgrade -y --release v3.33.0"] {
        let lab = interrupted(words);
        all_verbs(&lab, "deleted", true, |lab| fs::remove_file(lab.on_node(JOURNAL)).unwrap());
    }
    let lab = interrupted("install -y");
    fs::remove_file(lab.on_node(JOURNAL)).unwrap();
    let told = lab.run("resume -y -o json").exits(0).json()["warnings"].to_string();
    assert!(told.contains("OriginalKept") && told.contains("calico.exe"), "{told}");

    // The folder is removed once they are restored.
    let refused = lab.run("uninstall --purge -y -o json").exits(13).json();
    assert_eq!(refused["error"]["id"], "StoreHoldsOriginal", "{refused:#}");
    for (path, text) in ORIGINALS {
        lab.write(&format!("node/{path}"), text);
    }
    let foreign = lab.on_node("C/ProgramData/calicoctl-win/store/trees/foreign");
    if foreign.exists() {
        fs::remove_dir_all(foreign).unwrap();
    }
    let _gone = lab.run("uninstall --purge -y").exits(0);
    assert!(!lab.on_node("C/ProgramData/calicoctl-win").exists());
}

/// The records of originals are removed with them.
#[test]
fn a_restored_node_has_no_record_of_an_original() {
    let lab = lived_in();
    let _there = lab.run("install -y").exits(0);
    let notes = || fs::read_dir(lab.on_node("C/ProgramData/calicoctl-win/store/originals")).unwrap().count();
    assert_eq!(notes(), 3, "one for each file outside of Calico's folder");
    let _gone = lab.run("uninstall -y").exits(0);
    assert_eq!(notes(), 0);
    lab.picture_without_state().same_as(&lived_in().picture_without_state());
}
