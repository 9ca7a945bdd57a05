//! Another Calico release: any to any, across the change of layout, checked before and proven after.

use std::fs;

use calicoctl_win::sandbox::release::SyntheticRelease;
use calicoctl_win::version::CalicoVersion;
use serde_json::{Value, json};

use crate::lab::Lab;

const RELEASE: &str = "C/CalicoWindows";
const PLUGIN: &str = "C/Program Files/containerd/cni/bin/calico.exe";

/// The release from `status`, and its health.
fn runs(lab: &Lab) -> (String, String) {
    let status = lab.status();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    (text("calico_version"), text("overall"))
}

fn healthy(version: &str) -> (String, String) {
    (version.to_owned(), "Healthy".to_owned())
}

/// An unpacked release beside the sandbox, with one modified file.
fn release_with(lab: &Lab, version: &str, file: &str, text: &str) -> String {
    let version: CalicoVersion = version.parse().unwrap();
    for (path, contents) in SyntheticRelease::files(&version) {
        let contents = if path == file { text.to_owned() } else { contents };
        fs::create_dir_all(lab.path(&format!("releases/{version}/{path}")).parent().unwrap()).unwrap();
        fs::write(lab.path(&format!("releases/{version}/{path}")), contents).unwrap();
    }
    format!("releases/{version}")
}

/// Windows renames no folder in which a file is open, and the release's folder is swapped by a rename.
#[test]
fn a_release_is_upgraded_while_a_log_is_open() {
    let lab = Lab::installed();
    let services: Value = serde_json::from_str(&lab.read("C/ProgramData/calicoctl-win/services.json")).unwrap();
    let log = format!(r"{}\calico-node.log", services["logDir"].as_str().unwrap());
    assert!(!lab.read(&log.replace(':', "").replace('\\', "/")).is_empty(), "the service logs to {log}");
    lab.edit_yaml(|text| format!("{text}openFiles: [{{path: '{log}', by: shipper.exe}}]\n"));
    let _done = lab.run("upgrade -y --release v3.33.0").exits(0);
    assert_eq!(runs(&lab), healthy("v3.33.0"));
}

#[test]
fn any_release_can_be_changed_to_any_other_across_layouts() {
    let bare = Lab::node().picture();
    let lab = Lab::installed();
    assert_eq!(runs(&lab), healthy("v3.32.1"));
    for (version, one_binary) in [("v3.33.0", true), ("v3.20.0", false), ("v3.33.2", true), ("v3.31.7", false)] {
        let shown = lab.run(&format!("upgrade --release {version} --dry-run")).exits(0);
        assert!(shown.stdout.contains("Disruption: Calico's services restart.") && !shown.stdout.contains("Drain"));
        let done = lab.run(&format!("upgrade -y --allow-downgrade --release {version} -o json")).exits(0).json();
        assert!(done["msg"].as_str().unwrap().contains(version), "{done}");
        assert_eq!(runs(&lab), healthy(version), "{done}");
        let there = |file: &str| lab.on_node(&format!("{RELEASE}/{file}")).exists();
        assert_eq!((there("calico.exe"), there("calico-node.exe")), (one_binary, !one_binary), "{version}");
        assert!(lab.read(PLUGIN).contains(version), "the plugin is of the release");
        let again = lab.run(&format!("upgrade -y --release {version} -o json")).exits(0).json();
        assert_eq!(again["status"], "no_changes", "{again}");
    }
    for version in ["v3.33.2", "v3.31.7"] {
        lab.linux_runs(version);
        let _back = lab.run("rollback -y").exits(0);
        assert_eq!(runs(&lab), healthy(version));
    }
    let _named = lab.run("rollback -y --to 3").exits(0);
    assert_eq!(runs(&lab), healthy("v3.20.0"));
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&bare);
}

/// Nothing runs between the first stop and the last start that could have run before.
#[test]
fn the_services_are_down_only_for_stop_swap_and_start() {
    let lab = Lab::installed();
    let lines = lab.run("upgrade -y --release v3.33.0 -o ndjson").exits(0).ndjson();
    let phase = |line: &Value| line["phase"]["id"].as_str().unwrap_or_default().to_owned();
    let of = |kind: &str, name: &str| {
        let fits = |line: &Value| line["type"] == kind && phase(line) == name;
        (lines.iter().position(fits), lines.iter().rposition(fits))
    };
    let (first_stop, last_start) =
        (of("phase_start", "services-stop").0.unwrap(), of("phase_complete", "services-start").1.unwrap());
    let down = &lines[first_stop..=last_start];
    let said: Vec<String> = down
        .iter()
        .filter(|line| line["type"] != "log" && line["type"] != "phase_complete")
        .map(|line| format!("{} {}", line["type"].as_str().unwrap(), phase(line)).trim().to_owned())
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    phase_start services-stop
    phase_start release
    phase_start files
    phase_start services-start
    phase_start node-startup
    phase_start services-start
    ");
    // Only what the services read; the CNI plugins and similar files were there before.
    let changed: Vec<&str> = down
        .iter()
        .filter(|line| line["type"] == "phase_complete")
        .map(|line| line["message"].as_str().unwrap())
        .collect();
    assert!(!changed.join(" ").contains("calico-ipam.exe"), "{changed:?}");
    let fetched = of("phase_complete", "release").0.unwrap();
    assert!(fetched < first_stop, "the release is fetched and checked while the old one works");
    let result = lines.last().unwrap();
    assert!(result["downtime_ms"].as_u64().is_some_and(|ms| ms < 20_000), "{result}");
}

#[test]
fn a_release_that_does_not_run_here_is_refused_while_the_old_one_works() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    for (file, text, id) in [
        ("calico-node.exe", "Stand-in that fails with 193", "ReleaseDoesNotRun"),
        (
            "calico-node.exe",
            "Stand-in for calico-node.exe of Calico for Windows v3.29.0, made by x",
            "ReleaseOtherVersion",
        ),
    ] {
        let folder = release_with(&lab, "v3.30.3", file, text);
        let upgrade = format!("upgrade --allow-downgrade --release {folder} --set calico.version=v3.30.3 -o json");
        let unasked = lab.run(&upgrade).exits(64).json();
        assert_eq!(unasked["error"]["id"], "ConfirmationNeeded", "its program ran before the question: {unasked}");
        let refused = lab.run(&format!("{upgrade} -y")).exits(6).json();
        assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!(id), &json!(false)), "{refused}");
        lab.picture_without_state().same_as(&before);
        assert_eq!(runs(&lab), healthy("v3.32.1"));
    }
    let unknown = lab.run("upgrade -y --release v3.99.0 -o json").exits(15).json();
    assert_eq!(unknown["error"]["id"], "CalicoVersionUnsupported");
    lab.picture_without_state().same_as(&before);
}

/// Defect B19: a failure is an exit code, and every wait has a limit.
#[test]
fn b19_a_change_that_does_not_work_is_reverted_automatically() {
    for (fault, id) in [
        ("put running CalicoFelix#2=dies", "ServiceDied"),
        ("put tree *=in-use", "FileInUse"),
        ("put running CalicoNode#1=slow-stop", "ServiceWillNotStop"),
    ] {
        let lab = Lab::installed();
        let before = lab.picture_without_state();
        let failed = lab.fails_at(fault, "upgrade -y --release v3.33.0 -o json").exits(9).json();
        assert_eq!((&failed["rolled_back"], &failed["generation"]), (&json!(true), &json!(1)), "{fault}: {failed}");
        assert_eq!(failed["error"]["id"], id, "{fault}: {failed}");
        lab.picture_without_state().without_logs().says_the_same_as(&before.without_logs());
        assert_eq!(runs(&lab), healthy("v3.32.1"), "{fault}");
        let _gets_through = lab.run("upgrade -y --release v3.33.0").exits(0);
        assert_eq!(runs(&lab), healthy("v3.33.0"));
    }
}

/// There is nothing to revert to, so it stays for diagnosis.
#[test]
fn an_install_whose_felix_crashes_stays_and_says_so() {
    let lab = Lab::node();
    let text = "Stand-in for calico-node.exe of Calico for Windows v3.32.1, which crashes with 7";
    let folder = release_with(&lab, "v3.32.1", "calico-node.exe", text);
    let failed =
        lab.run(&format!("install -y --release {folder} --set calico.version=v3.32.1 -o json")).exits(11).json();
    assert_eq!(
        (&failed["error"]["id"], &failed["changed"], &failed["generation"]),
        (&json!("ServiceNotSteady"), &json!(true), &json!(1)),
        "{failed:#}"
    );
    assert!(failed["msg"].as_str().unwrap().contains("CalicoFelix does not work"), "{failed:#}");
    let _there = lab.run("status").exits(12);
    let _gone = lab.run("uninstall -y --purge").exits(0);
}

/// The programs start, and only later it shows that they do not work.
#[test]
fn a_release_whose_felix_crashes_is_reverted_automatically() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    let text = "Stand-in for calico.exe of Calico for Windows v3.33.0, which crashes with 7";
    let folder = release_with(&lab, "v3.33.0", "calico.exe", text);
    let words = format!("upgrade -y --release {folder} --set calico.version=v3.33.0 -o ndjson");
    let lines = lab.run(&words).exits(9).ndjson();
    let result = lines.last().unwrap();
    assert_eq!(
        (&result["error"]["id"], &result["rolled_back"]),
        (&json!("ServiceNotSteady"), &json!(true)),
        "{result}"
    );
    assert_eq!((&result["failed_phase"], &result["generation"]), (&json!("health-gate"), &json!(1)), "{result}");
    let why = result["error"]["chain"].to_string();
    assert!(why.contains("CalicoFelix does not work: its program ends again and again with exit code 7"), "{why}");
    assert!(lines.iter().any(|line| line["type"] == "rollback_complete" && line["complete"] == true));
    assert_eq!(runs(&lab), healthy("v3.32.1"));
    lab.picture_without_state().without_logs().says_the_same_as(&before.without_logs());
    assert!(!lab.on_node("C/ProgramData/calicoctl-win/receipts/0002.json").exists());

    // Killed between the last start and the proof: resume requires the same proof.
    let count = (1..).find(|n| {
        let other = lab.copy();
        let output = other.fails_at(
            &format!("put *#{n}=exit-after"),
            &words.replace("releases", &lab.path("releases").display().to_string()),
        );
        output.code == 9
    });
    let last = count.unwrap() - 1;
    let other = lab.copy();
    let words = words.replace("releases", &lab.path("releases").display().to_string());
    let _killed = other.fails_at(&format!("put *#{}=exit-after", last / 2), &words).exits(137);
    let taken_back = other.run("resume -y -o json").exits(9).json();
    assert_eq!(taken_back["error"]["id"], "ServiceNotSteady", "{taken_back}");
    assert_eq!(runs(&other), healthy("v3.32.1"));
}

#[test]
fn a_reboot_in_the_middle_does_not_prevent_the_revert() {
    let lab = Lab::installed();
    super::boot::with_kubelets_kubeconfig(&lab);
    let _killed = lab.fails_at("put *#5=exit-after", "upgrade -y --release v3.33.0").exits(137);
    lab.edit_yaml(|yaml| yaml.replacen("bootId: ", "bootId: second-", 1));
    let done = lab.run("resume -y -o json").exits(0).json();
    assert_eq!((&done["generation"], runs(&lab)), (&json!(2), healthy("v3.33.0")), "{done}");
}

/// Defect B20: the automatic upgrade ran the installer with default parameters, and lost the settings.
#[test]
fn b20_an_upgrade_keeps_the_settings() {
    let lab = Lab::node();
    let set = "--set services.felixLogSeverity=debug --set calicoNetwork.vxlan.vxlanVNI=5000";
    let _there = lab.run(&format!("install -y {set}")).exits(0);
    let _newer = lab.run("upgrade -y --release v3.33.0").exits(0);
    assert!(lab.read("C/ProgramData/calicoctl-win/felix.json").contains("debug"));
    assert!(lab.read("C/ProgramData/calicoctl-win/services.json").contains("5000"));
    // And a later change keeps the new release.
    let _info = lab.run("reconfigure -y --set services.felixLogSeverity=info").exits(0);
    assert_eq!(runs(&lab), healthy("v3.33.0"));
}

/// Defect B27: upstream's upgrade wrote the Node's status for an annotation, for which its own roles have no right.
#[test]
fn b27_an_upgrade_writes_no_status_of_the_node() {
    let lab = Lab::installed();
    let done = lab.fails_at("api PUT *=403", "upgrade -y --release v3.33.0 -o json").exits(0).json();
    assert_eq!((&done["changed"], runs(&lab)), (&json!(true), healthy("v3.33.0")), "{done}");
}

#[test]
fn the_file_of_a_previous_release_is_not_used_for_the_next() {
    let lab = Lab::node();
    let version: CalicoVersion = "v3.30.3".parse().unwrap();
    fs::write(lab.path("calico-windows-v3.30.3.zip"), SyntheticRelease::build(&version)).unwrap();
    let _from_a_file = lab.run("install -y --release calico-windows-v3.30.3.zip").exits(0);
    assert_eq!(runs(&lab), healthy("v3.30.3"));
    let _from_the_mirror = lab.run("upgrade -y --release v3.32.1").exits(0);
    assert_eq!(runs(&lab), healthy("v3.32.1"));
    let _from_the_file = lab.run("upgrade -y --allow-downgrade --release calico-windows-v3.30.3.zip").exits(0);
    assert_eq!(runs(&lab), healthy("v3.30.3"));
    let nothing = lab.run("uninstall -y").exits(0);
    assert!(nothing.stdout.contains("as it was before"), "{nothing}");
    let refused = lab.run("upgrade -y --release v3.32.1 -o json").exits(16).json();
    assert_eq!(refused["error"]["id"], "NotInstalled");
}

#[test]
fn the_machines_config_is_named_if_it_has_another_release() {
    let lab = Lab::node();
    lab.write("node/C/ProgramData/calicoctl-win/config.yaml", "spec: {calico: {version: v3.30.3}}\n");
    lab.linux_runs("v3.30.3");
    let _there = lab.run("install -y").exits(0);
    let newer = lab.run("upgrade -y --release v3.32.1").exits(0);
    assert!(newer.stdout.contains("ConfigOfOtherRelease") && newer.stdout.contains("v3.30.3"), "{newer}");
    lab.write("node/C/ProgramData/calicoctl-win/config.yaml", "spec: {calico: {version: v3.33.0}}\n");
    lab.linux_runs("v3.33.0");
    let followed = lab.run("upgrade -y").exits(0);
    assert!(!followed.stdout.contains("ConfigOfOtherRelease"), "{followed}");
    assert_eq!(runs(&lab), healthy("v3.33.0"));
}

/// Another build of this program: its file is swapped, and the services run it.
#[test]
fn this_program_is_upgraded_the_same_way() {
    let exe = "C/Program Files/calicoctl-win/calicoctl-win.exe";
    let lab = Lab::installed();
    let ours = lab.read(exe);
    // As if an earlier build were installed and in its receipt.
    let receipt = lab.on_node("C/ProgramData/calicoctl-win/receipts/0001.json");
    let old = "an earlier build";
    let digest = |text: &str| calicoctl_win::values::Sha256::of(text.as_bytes()).to_string();
    let text = fs::read_to_string(&receipt).unwrap();
    fs::write(&receipt, text.replace(&digest(&ours), &digest(old))).unwrap();
    fs::write(lab.on_node(exe), old).unwrap();
    fs::write(lab.on_node(&format!("C/ProgramData/calicoctl-win/store/blobs/{}", digest(old))), old).unwrap();
    assert_eq!(runs(&lab), healthy("v3.32.1"));

    let done = lab.run("upgrade -y -o json").exits(0).json();
    assert_eq!((&done["changed"], lab.read(exe)), (&json!(true), ours), "{done}");
    assert_eq!(runs(&lab), healthy("v3.32.1"));
    let _back = lab.run("rollback -y").exits(0);
    assert_eq!(lab.read(exe), old);
}

#[test]
fn an_upgrade_drains_on_request() {
    let lab = Lab::installed();
    let lines = lab.run("upgrade -y --drain --release v3.33.0 -o ndjson").exits(0).ndjson();
    let done: Vec<&str> = lines
        .iter()
        .filter(|line| line["type"] == "phase_complete")
        .map(|line| line["phase"]["id"].as_str().unwrap())
        .filter(|phase| ["cordon", "drain", "services-stop", "services-start", "uncordon"].contains(phase))
        .collect();
    insta::assert_snapshot!(done.join(" "), @"cordon drain services-stop services-start services-start uncordon");
    assert_eq!(runs(&lab), healthy("v3.33.0"));
}

#[test]
fn after_a_power_failure_in_an_upgrade_the_node_has_the_new_or_the_old_release() {
    let before = Lab::installed();
    let mut points = 0;
    for n in (1..).step_by(5) {
        let lab = before.copy();
        let output = lab.fails_at(&format!("*#{n}=exit-after"), "upgrade -y --release v3.33.0");
        if output.code == 0 {
            break;
        }
        let _killed = output.exits(137);
        points += 1;
        let other = lab.copy();
        let status = lab.run("status -o json").json();
        let (interrupted, over) = (status["run"] != Value::Null, status["generation"] == 2);
        let _done = lab.run("resume -y").exits(0);
        assert_eq!(runs(&lab), healthy(if interrupted || over { "v3.33.0" } else { "v3.32.1" }), "{n}");
        let _undone = other.run("resume --undo -y").exits(0);
        assert_eq!(runs(&other), healthy(if over && !interrupted { "v3.33.0" } else { "v3.32.1" }), "{n}");
    }
    assert!(points >= 5, "only {points}");
}

#[test]
fn receipts_show_the_generations_and_which_can_be_restored() {
    let lab = Lab::node();
    assert!(lab.run("receipt list").exits(0).stdout.contains("Nothing was ever installed"));
    let none = lab.run("receipt show -o json").exits(16).json();
    assert_eq!(none["error"]["id"], "NotInstalled");
    let _there = lab.run("install -y").exits(0);
    for severity in ["debug", "info", "warning", "error", "fatal", "debug"] {
        let _changed = lab.run(&format!("reconfigure -y --set services.felixLogSeverity={severity}")).exits(0);
    }
    // The seventh was made from the same as the second.
    let _newer = lab.run("upgrade -y --release v3.33.0").exits(0);
    let listed = lab.run("receipt list -o json").exits(0).json();
    let lines = listed["generations"].as_array().unwrap();
    let told: Vec<String> = lines
        .iter()
        .map(|line| {
            let word = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
            let flag = |field: &str| if line[field] == true { format!(" {field}") } else { String::new() };
            format!(
                "{} {} {}{}{}",
                line["generation"],
                word("command"),
                word("calico_version"),
                flag("standing"),
                flag("can_go_back")
            )
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    1 install v3.32.1
    2 reconfigure v3.32.1 can_go_back
    3 reconfigure v3.32.1
    4 reconfigure v3.32.1 can_go_back
    5 reconfigure v3.32.1 can_go_back
    6 reconfigure v3.32.1 can_go_back
    7 reconfigure v3.32.1 can_go_back
    8 upgrade v3.33.0 standing
    ");
    let gone = lab.run("rollback -y --to 3 -o json").exits(24).json();
    assert_eq!(gone["error"]["id"], "GenerationGone", "{gone}");
    assert_eq!(runs(&lab), healthy("v3.33.0"));
    let _back = lab.run("rollback -y --to 5").exits(0);
    assert_eq!(runs(&lab), healthy("v3.32.1"));

    let shown = lab.run("receipt show 8").exits(0);
    assert!(shown.stdout.contains("Calico v3.33.0") && shown.stdout.contains("rollback --to 8"), "{shown}");
    let document = lab.run("receipt show 1 -o json").exits(0).json();
    assert_eq!((&document["kind"], &document["generation"]), (&json!("Receipt"), &json!(1)));
    assert_eq!(lab.run("receipt show 17 -o json").exits(24).json()["error"]["id"], "NoSuchGeneration");
    assert!(!shown.stdout.contains("token"), "{shown}");
}

#[test]
fn an_install_after_an_interrupted_upgrade_restores_the_current_release() {
    let lab = Lab::installed();
    // The new release is in the old one's place; the old one is in the store.
    let cut = lab.fails_at("put tree *=exit-after", "upgrade -y --release v3.33.0");
    let _killed = cut.exits(137);
    assert!(lab.on_node("C/CalicoWindows/calico.exe").exists());

    let again = lab.run("install -y --set spec.services.felixLogSeverity=debug").exits(0);

    assert!(again.stdout.contains("Calico v3.32.1 is kept"), "{again}");
    assert_eq!(runs(&lab), healthy("v3.32.1"));
}

/// The config still names the previous release, and so does every verb that starts from it.
/// The release as it lies in the store, with each file as it was but one.
fn damage_in_store(lab: &Lab, damage: impl Fn(&std::path::Path)) {
    let store = lab.on_node("C/ProgramData/calicoctl-win/store/trees");
    let trees: Vec<_> = fs::read_dir(store).unwrap().map(|tree| tree.unwrap().path()).collect();
    let [former] = trees.as_slice() else { panic!("{trees:?}") };
    damage(&former.join("calico-node.exe"));
}

#[test]
fn a_release_that_was_damaged_in_the_store_is_unpacked_again_before_the_services_stop() {
    let flipped = |file: &std::path::Path| {
        let (written, mut bytes) = (fs::metadata(file).unwrap().modified().unwrap(), fs::read(file).unwrap());
        bytes[0] ^= 1;
        fs::write(file, bytes).unwrap();
        fs::File::options().write(true).open(file).unwrap().set_modified(written).unwrap();
    };
    let truncated = |file: &std::path::Path| fs::write(file, "MZ").unwrap();
    for damage in [&flipped as &dyn Fn(&std::path::Path), &truncated] {
        let lab = Lab::installed();
        let good = lab.read(&format!("{RELEASE}/calico-node.exe"));
        let _newer = lab.run("upgrade -y --release v3.33.0").exits(0);
        damage_in_store(&lab, damage);
        let _back = lab.run("rollback -y").exits(0);
        assert_eq!(runs(&lab), healthy("v3.32.1"));
        assert_eq!(lab.read(&format!("{RELEASE}/calico-node.exe")), good);
    }
}

#[test]
fn a_damaged_release_without_its_archive_is_refused_with_the_services_running() {
    let lab = Lab::installed();
    let _newer = lab.run("upgrade -y --release v3.33.0").exits(0);
    damage_in_store(&lab, |file| fs::write(file, "MZ").unwrap());
    fs::remove_dir_all(lab.on_node("cache")).unwrap();
    let services = lab.status()["services"].clone();
    let refused = lab.run("rollback -y -o json --offline").exits(24).json();
    assert_eq!(
        (&refused["error"]["id"], &refused["changed"]),
        (&json!("GenerationGone"), &json!(false)),
        "{refused:#}"
    );
    assert_eq!(lab.status()["services"], services, "the same processes");
    assert_eq!(runs(&lab), healthy("v3.33.0"));
}

#[test]
fn a_release_that_is_not_there_is_named_also_on_an_installed_node() {
    let lab = Lab::installed();
    for verb in ["install", "upgrade"] {
        let refused = lab.run(&format!("{verb} -y -o json --release calico-windows-v3.32.1.zip")).exits(6).json();
        assert_eq!(refused["error"]["id"], "ReleaseNotFound", "{refused:#}");
    }
}

#[test]
fn a_rollback_skips_no_generation_that_cannot_be_read() {
    let lab = Lab::installed();
    for severity in ["debug", "warning"] {
        let _changed = lab.run(&format!("reconfigure -y --set services.felixLogSeverity={severity}")).exits(0);
    }
    let receipts = lab.on_node("C/ProgramData/calicoctl-win/receipts");
    let second = fs::read_dir(receipts).unwrap().map(|file| file.unwrap().path());
    let second = second.into_iter().find(|file| file.file_stem().unwrap().to_str().unwrap().ends_with('2')).unwrap();
    fs::write(second, "{").unwrap();
    let before = lab.picture_without_state();
    let refused = lab.run("rollback -y -o json").exits(1).json();
    assert_eq!(refused["error"]["id"], "ReceiptUnreadable", "{refused:#}");
    assert!(refused["error"]["what"].as_str().unwrap().starts_with("generation 2, before this one, cannot be read"));
    lab.picture_without_state().same_as(&before);
    let _back = lab.run("rollback -y --to 1").exits(0);
    assert_eq!(lab.status()["generation"], 4);
}

#[test]
fn a_dry_run_says_that_the_run_would_be_refused() {
    let lab = Lab::installed();
    for (words, code, reason) in [
        (
            "install --set calicoNetwork.vxlan.vxlanVNI=5000",
            19,
            "this change replaces the HNS network under the pods of this node",
        ),
        ("upgrade --release v3.31.7", 20, "this is a downgrade: Calico v3.32.1 is on this node, and v3.31.7 is older"),
    ] {
        let dry = lab.run(&format!("{words} -n -o json")).exits(0).json();
        assert_eq!(dry["warnings"].to_string().matches("WouldBeRefused").count(), 1, "{dry:#}");
        assert!(dry["warnings"].to_string().contains(&format!("this would be refused: {reason}")), "{dry:#}");
        let refused = lab.run(&format!("{words} -y -o json")).exits(code).json();
        assert_eq!(refused["error"]["what"], reason);
    }
    let dry = lab.run("upgrade --release v3.33.0 -n -o json").exits(0).json();
    assert!(!dry["warnings"].to_string().contains("WouldBeRefused"), "{dry:#}");
}

#[test]
fn only_rollback_installs_an_older_release_without_a_flag() {
    let lab = Lab::installed();
    let _newer = lab.run("upgrade -y --release v3.33.0").exits(0);
    let before = lab.picture_without_state();

    let shown = lab.run("install -n").exits(0);
    assert!(shown.stdout.contains("! DOWNGRADE  Calico v3.33.0 -> v3.32.1\n"), "{shown}");
    let plan = lab.run("plan -o json --release v3.32.1 --out back.json").exits(0).json();
    assert_eq!(plan["downgrade"], json!({"from": "v3.33.0", "to": "v3.32.1"}), "{plan:#}");
    let dry = lab.run("install -n -o json").exits(0).json();
    assert_eq!(dry["plan"]["downgrade"], plan["downgrade"], "{dry:#}");
    for words in [
        "install -y",
        "install -y --plan back.json",
        "install -y --release v3.30.3",
        "reconfigure -y --set calico.version=v3.32.1",
        "upgrade -y --release v3.32.1",
    ] {
        let refused = lab.run(&format!("{words} -o json")).exits(20).json();
        assert_eq!(
            (&refused["error"]["id"], &refused["changed"]),
            (&json!("DowngradeNotAllowed"), &json!(false)),
            "{words}: {refused:#}"
        );
        assert!(refused["error"]["hint"].as_str().unwrap().contains("--allow-downgrade"), "{words}: {refused:#}");
    }
    lab.picture_without_state().same_as(&before);
    let repaired = lab.run("repair -y -o json").exits(0).json();
    assert_eq!(repaired["status"], "no_changes", "{repaired:#}");

    let back = lab.copy();
    let shown = back.run("rollback -y").exits(0);
    assert!(shown.stdout.contains("! DOWNGRADE  Calico v3.33.0 -> v3.32.1\n"), "{shown}");
    assert_eq!(runs(&back), healthy("v3.32.1"));

    for words in ["install -y --plan back.json --allow-downgrade", "upgrade -y --release v3.32.1 --allow-downgrade"] {
        let lab = lab.copy();
        let _saved = lab.run("plan --release v3.32.1 --out back.json").exits(0);
        let _asked_for = lab.run(words).exits(0);
        assert_eq!(runs(&lab), healthy("v3.32.1"), "{words}");
    }
}

#[test]
fn an_interrupted_downgrade_is_finished_and_named_as_such() {
    let lab = Lab::installed();
    let _newer = lab.run("upgrade -y --release v3.33.0").exits(0);
    let _killed = lab
        .fails_at("put running CalicoNode#2=exit-before", "upgrade -y --release v3.32.1 --allow-downgrade")
        .exits(137);
    let shown = lab.run("resume -y").exits(0);
    assert!(shown.stdout.contains("! DOWNGRADE  Calico v3.33.0 -> v3.32.1\n"), "{shown}");
    assert_eq!(runs(&lab), healthy("v3.32.1"));
}

/// It is unknown whether what others put there is newer, so it is reported and nothing is refused.
#[test]
fn a_calico_of_unknown_release_is_reported() {
    let lab = Lab::node();
    lab.write("node/C/CalicoWindows/config.ps1", "by hand");
    let plan = lab.run("plan -o json").exits(0).json();
    assert!(plan["warnings"].to_string().contains("ReleaseUnknown") && plan["downgrade"].is_null(), "{plan:#}");
    let there = lab.run("install -y -o json").exits(0).json();
    assert!(there["warnings"].to_string().contains("ReleaseUnknown"), "{there:#}");
    let known = lab.run("plan -o json --release v3.33.0").exits(0).json();
    assert!(!known["warnings"].to_string().contains("ReleaseUnknown"), "{known:#}");
}

/// The check of this id in a report.
fn check(lab: &Lab, id: &str, release: &str) -> Value {
    lab.write("release.yaml", format!("spec: {{calico: {{version: {release}}}}}\n"));
    let report = lab.alone("preflight -o json -c release.yaml").json();
    report["checks"].as_array().unwrap().iter().find(|check| check["id"] == id).unwrap().clone()
}

#[test]
fn a_release_newer_than_calico_on_linux_is_refused_before_any_change() {
    let lab = Lab::installed();
    let before = lab.picture_without_state();
    for words in ["upgrade -y --release v3.33.0 -o json", "install -y --release v3.33.0 -o json"] {
        let refused = lab.alone(words).exits(3).json();
        let error = &refused["error"];
        assert_eq!(
            (&error["id"], &refused["changed"]),
            (&json!("CalicoVersionMatchesLinux"), &json!(false)),
            "{refused}"
        );
        assert_eq!(error["what"], "the Linux nodes run v3.32.1, and the release to install is newer: v3.33.0");
    }
    lab.picture_without_state().same_as(&before);
    // An older one is only for the time of an upgrade.
    lab.linux_runs("v3.33.0");
    assert_eq!(check(&lab, "CalicoVersionMatchesLinux", "v3.32.1")["status"], "warn");
    assert_eq!(check(&lab, "CalicoVersionMatchesLinux", "v3.33.0")["status"], "ok");
    let _newer = lab.alone("upgrade -y --release v3.33.0").exits(0);
    assert_eq!(runs(&lab), healthy("v3.33.0"));
}

#[test]
fn the_release_on_linux_is_read_from_its_daemon_set_and_not_from_a_windows_node() {
    let lab = Lab::installed();
    let ahead = "upgrade -y --release v3.33.0 --ignore-preflight-errors CalicoVersionMatchesLinux";
    let _ahead = lab.alone(ahead).exits(0);
    let information = lab.object("clusterinformations.crd.projectcalico.org", "default").unwrap();
    assert_eq!(information["spec"]["calicoVersion"], "v3.33.0", "any node's startup overwrites it");
    let skew = check(&lab, "CalicoVersionMatchesLinux", "v3.33.0");
    assert_eq!(skew["status"], "fail", "{skew}");
    assert_eq!(skew["detail"], "the Linux nodes run v3.32.1, and the release to install is newer: v3.33.0");
}

/// RBAC is checked before it matters whether an API is served: Felix would never be in sync.
#[test]
fn a_release_whose_felix_may_not_read_what_it_needs_is_refused_before_any_change() {
    for (linux, windows, lacking, has) in [
        (
            "v3.31.7",
            "v3.33.0",
            ["clusternetworkpolicies.policy.networking.k8s.io", "virtualmachineinstancemigrations.kubevirt.io"],
            "adminnetworkpolicies",
        ),
        (
            "v3.33.0",
            "v3.31.7",
            ["list adminnetworkpolicies.policy.networking.k8s.io", "baselineadminnetworkpolicies"],
            "clusternetworkpolicies",
        ),
    ] {
        let lab = Lab::node();
        lab.linux_runs(linux);
        let pristine = lab.picture_without_state();
        let ignoring = "--ignore-preflight-errors CalicoVersionMatchesLinux --allow-downgrade";
        let refused = |words: &str| {
            let refused = lab.alone(&format!("{words} -y --release {windows} {ignoring} -o json")).exits(3).json();
            assert_eq!(refused["error"]["id"], "NodeRights", "{linux}: {words}: {refused}");
            let what = refused["error"]["what"].as_str().unwrap();
            assert!(what.starts_with("the service account calico-system/calico-node lacks rights"), "{what}");
            assert!(lacking.iter().all(|right| what.contains(right)), "{what}");
            assert!(!what.contains(&format!(" {has}")) && !what.contains("stagednetworkpolicies"), "{what}");
        };
        // With a token that is fetched for it, and with the node's current one.
        refused("install");
        lab.picture_without_state().same_as(&pristine);
        refused("install --set kubernetes.credentials=secret");
        assert!(lab.object("secrets", "calico-node-token").is_none(), "a secret was made for nothing");
        let _there = lab.alone(&format!("install -y --release {linux}")).exits(0);
        let before = lab.picture_without_state();
        refused("upgrade");
        lab.picture_without_state().same_as(&before);
        assert_eq!(runs(&lab), healthy(linux));
        assert_ne!(lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"], true);
        // Calico on Linux is upgraded first, which adds the role.
        let _fits = lab.run(&format!("upgrade -y --release {windows} --allow-downgrade")).exits(0);
        assert_eq!(runs(&lab), healthy(windows));
        // Nor is the earlier release restored while the cluster has another role.
        let back = lab.alone("rollback -y -o json").exits(3).json();
        assert_eq!((&back["error"]["id"], &back["changed"]), (&json!("NodeRights"), &json!(false)), "{back}");
        assert!(back["error"]["what"].as_str().unwrap().contains(&format!("list {has}")), "{back}");
        assert_eq!(runs(&lab), healthy(windows));
    }
}
