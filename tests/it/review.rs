//! What a wrong or hostile environment must not cause: lost data, half-done changes, leaks, wrong reports.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use serde_json::Value;
use tempfile::TempDir;

/// A sandbox node and the program that works on it.
struct Lab(TempDir);

impl Lab {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("node")
    }

    /// The path of a file on the node's disk.
    fn c(&self, path: &str) -> PathBuf {
        self.dir().join("C").join(path)
    }

    fn put(&self, path: &str, text: &str) {
        fs::create_dir_all(self.c(path).parent().unwrap()).unwrap();
        fs::write(self.c(path), text).unwrap();
    }

    /// Calico on Linux has the named release, as an administrator would have it.
    fn output(&self, words: &[&str]) -> Output {
        if let Some(release) = crate::lab::release_in(&words.join(" ")) {
            self.run(&["service", "status"]);
            let cluster = EmbeddedCluster::start(&self.dir().join("cluster"), &Seed::new("win-a1"), &[]).unwrap();
            cluster.upgrade_calico(release).unwrap();
        }
        self.run(words)
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_calicoctl-win"))
            .env_clear()
            .env("TMPDIR", self.0.path())
            .current_dir(self.0.path())
            .args(["--sandbox", "node", "--yes"])
            .args(words)
            .output()
            .unwrap()
    }

    /// Runs a command and returns its JSON document.
    fn json(&self, words: &[&str]) -> Value {
        let output = self.output(&[words, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| {
            panic!(
                "{words:?}: {why}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }

    /// Runs a command that must succeed.
    fn ok(&self, words: &[&str]) -> Value {
        let result = self.json(words);
        assert_eq!(result["exit_name"], "OK", "{words:?}: {result:#}");
        result
    }

    /// Every file of `C/` with its bytes, and `node.yaml`.
    fn picture(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::from([("node.yaml".into(), fs::read(self.dir().join("node.yaml")).unwrap())]);
        let mut folders = vec![self.dir().join("C")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    files.insert(entry.path(), fs::read(entry.path()).unwrap());
                }
            }
        }
        files
    }
}

const STATE: &str = "ProgramData/calicoctl-win";

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

#[test]
fn a_reverted_run_says_so_and_names_the_current_generation() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    // The second put on CalicoFelix starts it; the third one reverts the change.
    let result = lab.json(&["install", "--release", "v3.33.0", "--sandbox-fault", "put running CalicoFelix#2=dies"]);
    assert_eq!(
        (&result["exit_name"], &result["rolled_back"], &result["changed"], &result["generation"]),
        (&"FAILED_ROLLED_BACK".into(), &true.into(), &true.into(), &1.into()),
        "{result:#}"
    );
}

#[test]
fn secrets_of_the_command_line_and_the_config_are_not_shown_or_logged() {
    let lab = Lab::new();
    let set = ["--set", "services.extraEnv.CUSTOM=hunter2"];
    lab.ok(&[&["install"], &set[..]].concat());
    let result = lab.json(&["install", "--set=services.extraEnv.A=hunter2", "--proxy", "http://me:hunter2@p:1"]);
    assert_eq!(result["exit_name"], "INVALID_CONFIG", "{result:#}");
    for words in [["config", "show"], ["plan", "-v"], ["status", "-v"]] {
        for format in ["text", "json"] {
            let output = lab.output(&[&words[..], &set[..], &["-o", format]].concat());
            let said = [output.stdout, output.stderr].concat();
            assert!(!String::from_utf8_lossy(&said).contains("hunter2"), "{words:?} {format}");
        }
    }
    let may = ["config.ps1", "services.json"];
    for (path, text) in lab.picture() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let found = String::from_utf8_lossy(&text).contains("hunter2");
        assert!(!found || may.contains(&name) || name.len() == 64, "{}", path.display());
    }
}

#[cfg(unix)]
#[test]
fn only_administrators_can_read_the_state_folder() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    lab.ok(&["install"]);
    assert_eq!(fs::metadata(lab.c(STATE)).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_dry_run_writes_nothing_whatever_the_verb() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    let before = lab.picture();
    let mut zips = fs::read_dir(lab.dir().join("cache")).unwrap().map(|entry| entry.unwrap().path());
    let zip = zips.find(|path| path.extension().is_some_and(|ext| ext == "zip")).unwrap();
    for words in [
        &["install", "--release", "v3.33.0"][..],
        &["install", "--download-only", "--release", "v3.30.0"],
        &["release", "download", "--release", "v3.30.0"],
        &["release", "extract", zip.to_str().unwrap(), "--dest", "out"],
        &["config", "init", "new.yaml"],
        &["service", "stop"],
        &["resume"],
        &["uninstall", "--purge"],
    ] {
        let result = lab.ok(&[words, &["--dry-run"]].concat());
        assert_eq!(result["changed"], false, "{words:?}");
        assert_eq!(lab.picture(), before, "{words:?}");
    }
    assert!(!lab.0.path().join("out").exists() && !lab.0.path().join("new.yaml").exists());
    let cached = lab.output(&["release", "list"]);
    assert!(!String::from_utf8_lossy(&cached.stdout).contains("v3.30.0"));
}

#[test]
fn text_from_a_cluster_cannot_control_the_terminal() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    let file = lab.dir().join("node.yaml");
    let hostile = text(&file).replace("hostName: ", "hostName: \"\\e[2J[ OK ]\" # ");
    fs::write(&file, hostile).unwrap();
    for words in [["status"], ["install"], ["plan"]] {
        let output = lab.output(&words);
        assert!(![output.stdout, output.stderr].concat().contains(&0x1b), "{words:?}");
    }
}

#[test]
fn waiting_for_health_is_not_satisfied_by_a_run_in_progress() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    // Another process holds the lock.
    let held = fs::File::options().write(true).open(lab.c(STATE).join("lock")).unwrap();
    held.lock().unwrap();
    fs::write(
        lab.c(STATE).join("lock.json"),
        r#"{"run": "r", "command": "install", "pid": 1, "since": "2026-01-01T00:00:00Z"}"#,
    )
    .unwrap();
    assert_eq!(lab.output(&["status"]).status.code(), Some(0));
    assert_eq!(lab.output(&["status", "--wait", "--timeout", "1s"]).status.code(), Some(12));
    assert_eq!(lab.json(&["install"])["exit_name"], "BUSY");
}

#[test]
fn a_stop_that_fails_in_the_middle_reports_a_change() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    let fault = ["--sandbox-fault", "put running CalicoNode=slow-stop"];
    let result = lab.json(&[&["service", "stop"], &fault[..]].concat());
    assert_eq!((&result["changed"], &result["status"]), (&true.into(), &"failed".into()), "{result:#}");
    lab.ok(&["service", "start"]);
    let output = lab.output(&[&["service", "stop"], &fault[..]].concat());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("nothing was changed"), "{output:?}");
}

#[test]
fn a_config_of_the_administrator_survives_a_purge() {
    let lab = Lab::new();
    lab.output(&["status"]);
    let config = "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\n";
    lab.put(&format!("{STATE}/config.yaml"), config);
    let before = lab.picture();
    lab.ok(&["install"]);
    lab.ok(&["uninstall", "--purge"]);
    assert_eq!(lab.picture(), before);
}

#[test]
fn an_unreadable_machine_config_is_an_error() {
    let lab = Lab::new();
    lab.output(&["status"]);
    fs::create_dir_all(lab.c(STATE)).unwrap();
    fs::write(lab.c(STATE).join("config.yaml"), b"kind: \xff\xfe").unwrap();
    let result = lab.json(&["install"]);
    assert_eq!(result["error"]["id"], "ConfigUnreadable", "{result:#}");
}

#[test]
fn a_purge_without_receipts_keeps_the_folder_from_before_the_install() {
    let lab = Lab::new();
    lab.output(&["status"]);
    lab.put("CalicoWindows/mine.txt", "precious");
    lab.ok(&["install"]);
    fs::remove_dir_all(lab.c(STATE).join("receipts")).unwrap();
    let result = lab.json(&["uninstall", "--purge"]);
    assert_eq!(result["error"]["id"], "StoreHoldsOriginal", "{result:#}");
    assert_eq!(text(&lab.c(STATE).join("store/trees/foreign/mine.txt")), "precious");
}

#[test]
fn calico_may_be_in_another_folder_and_move() {
    let lab = Lab::new();
    lab.output(&["status"]);
    let before = lab.picture();
    lab.ok(&["install", "--set", r"calico.rootDir=C:\Calico"]);
    lab.ok(&["install"]);
    assert!(!lab.c("Calico").exists() && lab.c("CalicoWindows").exists());
    lab.ok(&["install", "--set", r"calico.rootDir=C:\Calico"]);
    lab.ok(&["uninstall", "--purge"]);
    assert_eq!(lab.picture(), before);
}

#[test]
fn an_edited_file_of_the_program_does_not_block_a_rollback() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    let good = text(&lab.c("CalicoWindows/config.ps1"));
    fs::write(lab.c("CalicoWindows/config.ps1"), "edited by hand").unwrap();
    let fault = "put service CalicoNode=fail;put cni-conf *#1=fail";
    let result = lab.json(&["install", "--release", "v3.33.0", "--sandbox-fault", fault]);
    assert_eq!(result["exit_name"], "FAILED_ROLLED_BACK", "{result:#}");
    assert_eq!(text(&lab.c("CalicoWindows/config.ps1")), good);
}

#[test]
fn a_tampered_binary_of_the_release_is_not_stored() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    let good = text(&lab.c("Program Files/containerd/cni/bin/calico.exe"));
    // In place, like an editor or malware: the store must have a separate copy.
    for path in ["CalicoWindows/cni/calico.exe", "Program Files/containerd/cni/bin/calico.exe"] {
        fs::write(lab.c(path), "evil").unwrap();
    }
    lab.ok(&["install"]);
    assert_eq!(text(&lab.c("Program Files/containerd/cni/bin/calico.exe")), good);
    assert_eq!(text(&lab.c("CalicoWindows/cni/calico.exe")), good);
}

#[test]
fn a_damaged_store_is_repaired_and_not_published() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    for blob in fs::read_dir(lab.c(STATE).join("store/blobs")).unwrap() {
        fs::write(blob.unwrap().path(), "rotten").unwrap();
    }
    fs::remove_file(lab.c("Program Files/containerd/cni/bin/calico.exe")).unwrap();
    fs::remove_file(lab.c("Program Files/containerd/cni/conf/10-calico.conf")).unwrap();
    lab.ok(&["install"]);
    assert!(text(&lab.c("Program Files/containerd/cni/conf/10-calico.conf")).contains("\"calico\""));
    assert_eq!(lab.ok(&["install"])["changed"], false);
}

#[test]
fn other_files_in_calicos_folder_are_not_deleted_with_it() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    lab.put("CalicoWindows/tls/client.key", "precious");
    lab.ok(&["install", "--release", "v3.33.0"]);
    lab.ok(&["uninstall"]);
    let kept: Vec<PathBuf> =
        lab.picture().into_keys().filter(|path| path.starts_with(lab.c(STATE).join("kept"))).collect();
    let [file] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(file.ends_with("tls/client.key") && text(file) == "precious", "{kept:?}");
    lab.ok(&["install"]);
    lab.ok(&["uninstall", "--purge"]);
    assert_eq!(text(file), "precious");
    // The folder from before the install also remains if no record names its owner.
    lab.put("CalicoWindows/mine.txt", "precious");
    lab.ok(&["install"]);
    fs::remove_dir_all(lab.c(STATE).join("receipts")).unwrap();
    lab.ok(&["install", "--release", "v3.33.0"]);
    assert_eq!(text(&lab.c(STATE).join("store/trees/foreign/mine.txt")), "precious");
}

#[test]
fn services_run_again_after_a_no_start_change_that_fails_or_is_killed() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    let change = ["install", "--no-start", "--release", "v3.33.0", "--sandbox-fault"];
    let result = lab.json(&[&change[..], &["put tree *#1=fail"]].concat());
    assert_eq!(result["exit_name"], "FAILED_ROLLED_BACK", "{result:#}");
    assert_eq!(lab.json(&["status"])["overall"], "Healthy", "reverted");
    for resume in [&["resume", "--undo"][..], &["resume"]] {
        assert!(!lab.output(&[&change[..], &["put tree *#1=exit-after"]].concat()).status.success());
        lab.ok(resume);
        assert_eq!(lab.json(&["status"])["overall"], "Healthy", "{resume:?}");
    }
    assert_eq!(lab.json(&["status"])["calico_version"], "v3.33.0");
}

#[test]
fn calicos_logs_survive_an_upgrade_and_an_uninstall() {
    let lab = Lab::new();
    lab.ok(&["install"]);
    lab.put("CalicoWindows/logs/felix/felix.log", "first release");
    lab.ok(&["install", "--release", "v3.33.0"]);
    lab.put("CalicoWindows/logs/felix/felix.log", "second release");
    lab.ok(&["uninstall"]);
    let kept: String = lab
        .picture()
        .into_iter()
        .filter(|(path, _)| path.ends_with("felix.log"))
        .map(|(_, text)| String::from_utf8(text).unwrap())
        .collect();
    assert!(kept.contains("first release") && kept.contains("second release"), "{kept}");
}
