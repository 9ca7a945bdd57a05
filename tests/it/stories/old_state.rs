//! What an older program left on a node is finished, undone, kept, upgraded and removed by this one.

use std::fs::{self, File};
use std::io::copy;

use serde_json::{Value, json};

use crate::lab::Lab;
use crate::project;

/// A node as the program of commit c5f41a4 left it.
fn left(state: &str) -> Lab {
    let lab = Lab::new();
    let file = project().join(format!("tests/fixtures/state-c5f41a4/{state}.zip"));
    let mut archive = zip::ZipArchive::new(File::open(file).unwrap()).unwrap();
    let mut folders = Vec::new();
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).unwrap();
        let path = lab.path("node").join(entry.enclosed_name().unwrap());
        if entry.is_dir() {
            fs::create_dir_all(&path).unwrap();
            folders.push((path, entry.unix_mode().unwrap()));
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        copy(&mut entry, &mut File::create(&path).unwrap()).unwrap();
        #[cfg(unix)]
        set_mode(&path, entry.unix_mode().unwrap());
    }
    #[cfg(unix)]
    folders.iter().for_each(|(path, mode)| set_mode(path, *mode));
    // The cluster is as old: this adds the rights that releases need now.
    lab.linux_runs("v3.32.1");
    lab
}

#[cfg(unix)]
fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777)).unwrap();
}

/// Generation, VSID of the pods' network, whether the Node is schedulable, and a run or a trial that is not over.
fn stands(lab: &Lab) -> (Value, Option<u64>, bool, bool) {
    let status = lab.run("status -o json").json();
    let networks = status["networks"].as_array().unwrap();
    let pods = networks.iter().find(|network| network["name"] == "Calico");
    (
        status["generation"].clone(),
        pods.and_then(|network| network["vsid"].as_u64()),
        lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"] != true,
        !status["run"].is_null() || !status["trial"].is_null(),
    )
}

#[test]
fn an_installed_node_is_shown_changed_upgraded_and_uninstalled() {
    let lab = left("installed");
    assert_eq!(stands(&lab), (json!(1), Some(4096), true, false));
    assert_eq!(lab.run("config diff -o json").exits(15).json()["error"]["id"], "AppliedNotKept");
    assert_eq!(lab.run("receipt list -o json").exits(0).json()["generations"][0]["command"], "install");

    let changed = lab.copy();
    let done = changed.run("apply -y -o json --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0).json();
    assert_eq!(done["generation"], 2, "{done:#}");
    assert_eq!(stands(&changed), (json!(2), Some(5000), true, false));
    let _back = changed.run("rollback -y").exits(0);
    assert_eq!(stands(&changed).1, Some(4096));

    let upgraded = lab.copy();
    let _newer = upgraded.run("upgrade -y --release v3.33.0").exits(0);
    assert_eq!(upgraded.run("status -o json").json()["calico_version"], "v3.33.0");

    let _gone = lab.run("uninstall -y --purge").exits(0);
    assert_eq!(stands(&lab), (Value::Null, None, true, false));
    assert!(!lab.on_node("C/CalicoWindows").exists() && !lab.on_node("C/ProgramData/calicoctl-win").exists());
}

/// Its logs are in the folder that an upgrade replaces.
#[test]
fn a_log_that_others_read_stops_an_upgrade_before_the_services_stop() {
    let lab = left("installed");
    let held = r"openFiles: [{path: 'C:\CalicoWindows\logs\calico-felix.log', by: fluent-bit.exe (process 4312)}]";
    lab.edit_yaml(|yaml| format!("{yaml}{held}\n"));
    let before = stands(&lab);
    for words in ["upgrade -y --release v3.33.0", "uninstall -y"] {
        let refused = lab.run(&format!("{words} -o ndjson")).exits(26).ndjson();
        let result = refused.last().unwrap();
        assert_eq!(
            (&result["error"]["id"], &result["rolled_back"]),
            (&json!("FileInUse"), &json!(false)),
            "{result:#}"
        );
        assert_eq!((&result["exit_name"], &result["error"]["retryable"]), (&json!("IN_USE"), &json!(true)));
        let told = r"fluent-bit.exe (process 4312) has C:\CalicoWindows\logs\calico-felix.log open";
        assert!(result["error"].to_string().contains(&told.replace('\\', r"\\")), "{result:#}");
        assert!(refused.iter().all(|event| event["phase"]["id"] != "services-stop"), "{words}: {refused:#?}");
        assert!(refused.iter().any(|event| event["type"] == "waiting"), "{words}: {refused:#?}");
    }
    assert_eq!(stands(&lab), before);
    lab.edit_yaml(|yaml| yaml[..yaml.find("openFiles").unwrap()].to_owned());
    let _newer = lab.run("upgrade -y --release v3.33.0").exits(0);
}

#[test]
fn an_interrupted_run_is_finished_or_undone() {
    for (state, finished, undone) in [
        ("install-killed", (json!(1), Some(4096)), (Value::Null, None)),
        ("reconfigure-killed", (json!(2), Some(5000)), (json!(1), Some(4096))),
        ("uninstall-killed", (Value::Null, None), (json!(1), Some(4096))),
    ] {
        for (words, (generation, vsid)) in [("resume -y", finished), ("resume -y --undo", undone)] {
            let lab = left(state);
            assert!(stands(&lab).3, "{state}: the run is not over");
            let _ended = lab.run(words).exits(0);
            assert_eq!(stands(&lab), (generation, vsid, true, false), "{state}: {words}");
            let _gone = lab.run("uninstall -y --purge").exits(0);
            assert_eq!(stands(&lab).1, None, "{state}: {words}");
        }
    }
}

#[test]
fn a_node_that_was_left_cordoned_is_uncordoned() {
    let lab = left("left-cordoned");
    assert_eq!(stands(&lab), (json!(2), Some(5000), false, true));
    let _uncordoned = lab.run("resume -y").exits(0);
    assert_eq!(stands(&lab), (json!(2), Some(5000), true, false));
}

#[test]
fn a_change_on_trial_is_kept_or_reverted() {
    for (words, vsid) in [("confirm -y", 5000), ("confirm -y --revert", 4096)] {
        let lab = left("on-trial");
        assert!(stands(&lab).3, "it is on trial");
        let _ended = lab.run(words).exits(0);
        let (_, network, takes_pods, open) = stands(&lab);
        assert_eq!((network, takes_pods, open), (Some(vsid), true, false), "{words}");
    }
}

/// Data of a newer program may mean something that this one does not know.
#[test]
fn the_state_of_a_newer_program_is_refused_and_not_changed() {
    for (state, file, known) in [
        ("installed", "C/ProgramData/calicoctl-win/receipts/0001.json", 1),
        ("reconfigure-killed", "C/ProgramData/calicoctl-win/journal.jsonl", 2),
        ("left-cordoned", "C/ProgramData/calicoctl-win/receipts/0001.json", 1),
        ("left-cordoned", "C/ProgramData/calicoctl-win/state/cordon.json", 1),
        ("on-trial", "C/ProgramData/calicoctl-win/state/trial.json", 1),
    ] {
        let lab = left(state);
        let text = lab.read(file);
        let text = if text.contains(r#""schema""#) {
            text.replacen(r#""schema":1"#, r#""schema":3"#, 1).replacen(r#""schema": 1"#, r#""schema": 3"#, 1)
        } else {
            // A record without a number has the first schema.
            text.replacen('{', r#"{"schema": 3, "#, 1)
        };
        lab.write(&format!("node/{file}"), &text);
        let before = lab.picture_without_state();
        for words in ["apply -y", "resume -y", "uninstall -y", "rollback -y", "repair -y"] {
            let refused = lab.run(&format!("{words} -o json")).json();
            assert_eq!((&refused["success"], &refused["changed"]), (&json!(false), &json!(false)), "{file}: {words}");
            assert_eq!(refused["error"]["id"], "NewerState", "{file}: {words}: {refused:#}");
            assert!(
                refused["error"].to_string().contains(&format!("this version knows up to {known}")),
                "{file}: {words}: {refused:#}"
            );
        }
        lab.picture_without_state().same_as(&before);
        assert_eq!(lab.read(file), text);
    }
}
