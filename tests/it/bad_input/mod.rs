//! The response to bad input: one clear error with its own exit code, an unchanged node, pure JSON, and no secret
//! anywhere.

mod bundle;
mod cluster;
mod command_line;
mod config;
mod node;
mod release;

use std::fs;
use std::path::Path;

use regex::Regex;

use crate::lab::Lab;

/// One bad input, and the expected error.
pub struct Case {
    name: &'static str,
    /// An injected fault; usually none.
    fault: &'static str,
    /// The command, on a sandbox node.
    words: &'static str,
    exit: (i32, &'static str),
    id: &'static str,
    /// Something was changed, although the node is as before.
    changed: bool,
}

pub const FAILED: (i32, &str) = (1, "FAILED");
pub const PREFLIGHT: (i32, &str) = (3, "PREFLIGHT_FAILED");
pub const CONFIG: (i32, &str) = (4, "INVALID_CONFIG");
pub const NOT_ELEVATED: (i32, &str) = (5, "NOT_ELEVATED");
pub const RELEASE: (i32, &str) = (6, "RELEASE_INVALID");
pub const CLUSTER: (i32, &str) = (7, "CLUSTER_UNREACHABLE");
pub const ROLLED_BACK: (i32, &str) = (9, "FAILED_ROLLED_BACK");
pub const BUSY: (i32, &str) = (14, "BUSY");
pub const UNSUPPORTED: (i32, &str) = (15, "UNSUPPORTED");
pub const NOT_INSTALLED: (i32, &str) = (16, "NOT_INSTALLED");
pub const ACCESS: (i32, &str) = (17, "CLUSTER_ACCESS_DENIED");
pub const AWAY: (i32, &str) = (18, "RELEASE_UNAVAILABLE");
pub const IN_USE: (i32, &str) = (26, "IN_USE");
pub const USAGE: (i32, &str) = (64, "USAGE");

const fn case(name: &'static str, words: &'static str, exit: (i32, &'static str), id: &'static str) -> Case {
    // A reverted change counts as a change.
    Case { name, fault: "", words, exit, id, changed: exit.0 == ROLLED_BACK.0 }
}

impl Case {
    const fn with(self, fault: &'static str) -> Self {
        Self { fault, ..self }
    }

    const fn with_changed(self, changed: bool) -> Self {
        Self { changed, ..self }
    }

    /// Runs it on a node, as text and as JSON, and returns the error text.
    #[track_caller]
    fn meets(&self, lab: &Lab) -> String {
        let name = self.name;
        let before = lab.picture_without_state();

        let shown = lab.fails_at(self.fault, self.words);
        assert_eq!(shown.code, self.exit.0, "{name}: {shown}");
        let last = shown.stdout.lines().last().unwrap_or_default().to_owned();
        let changed = self.changed;
        let beginning = format!("result: {} (exit {}) changed={changed} reboot=false", self.exit.1, self.exit.0);
        assert!(last.starts_with(&beginning), "{name}: {shown}");
        assert!(shown.stderr.contains("\n  fix: "), "{name} has no fix: {shown}");
        assert!(shown.stderr.ends_with(&format!("\n  more: calicoctl-win explain {}\n", self.id)), "{name}: {shown}");
        lab.picture_without_state().same_as(&before);

        let told = lab.fails_at(self.fault, &format!("{} -o json", self.words));
        let result = told.json();
        assert_eq!(told.code, self.exit.0, "{name}: {told}");
        assert_eq!(result["kind"], "RunResult", "{name}: {told}");
        assert_eq!(result["status"], "failed", "{name}: {told}");
        assert_eq!(result["exit_code"], self.exit.0, "{name}: {told}");
        assert_eq!(result["exit_name"], self.exit.1, "{name}: {told}");
        assert_eq!(result["changed"], changed, "{name}: {told}");
        assert_eq!(result["error"]["id"], self.id, "{name}: {told}");
        for key in ["what", "hint"] {
            assert!(!result["error"][key].as_str().unwrap_or_default().is_empty(), "{name} has no {key}: {told}");
        }
        lab.picture_without_state().same_as(&before);

        for text in [&shown.stdout, &shown.stderr, &told.stdout] {
            assert!(!has_secret(text), "{name} shows a secret: {text}");
        }
        no_secret_in(&lab.path("node"));
        let _page = lab.bare(&format!("explain {}", self.id)).exits(0);
        masked(lab, &shown.stderr)
    }
}

/// Runs each on its own node; returns all error texts.
#[track_caller]
fn screens(cases: &[Case], arrange: impl Fn(&Lab)) -> String {
    let mut text = String::new();
    for case in cases {
        let lab = Lab::node();
        arrange(&lab);
        text += &format!("{}\n  {}\n", case.name, case.meets(&lab).trim_end().replace('\n', "\n  "));
    }
    text
}

/// The error without what differs between machines, and without the line on `explain`.
fn masked(lab: &Lab, stderr: &str) -> String {
    let folder = lab.path("").display().to_string();
    let mut text = stderr.replace(folder.trim_end_matches(['/', '\\']), "LAB");
    for (pattern, mask) in [
        (r"  more: .*\n", ""),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\b[0-9a-f]{64}\b", "DIGEST"),
        (r"CRC is [0-9a-f]{8}, but [0-9a-f]{8}", "CRC is CRC, but CRC"),
        (r"\bstore [0-9a-f]{12}\b", "store DIGEST"),
        (r"\bpid \d+", "pid PID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? \S+ \([^)]* ago\)", "TIME"),
        (r"\d{4}-\d\d-\d\d\b", "DATE"),
        (r"\d{8}T\d{6}-[0-9a-f]{6}", "RUN"),
        (r"cause: [^\n]*\(os error \d+\)", "cause: (the system's own words)"),
        (r": [^:\n]*\(os error \d+\)", ": (the system's own words)"),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
    }
    text
}

/// Whether a text contains the beginning of a JSON Web Token or of a private key.
fn has_secret(text: &str) -> bool {
    text.contains("eyJ") || text.contains("PRIVATE KEY")
}

/// Searches all files of a node except the kubeconfig itself and the store's copy of it, which only SYSTEM and
/// Administrators can read.
#[track_caller]
fn no_secret_in(node: &Path) {
    let mut paths = vec![node.join("C"), node.join("node.yaml")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            if !path.ends_with("store/blobs") {
                paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        } else if !path.ends_with("calico-kube-config") {
            // Our own executable contains these words too, like any program that reads such files.
            let program = path.extension().is_some_and(|extension| extension == "exe");
            let text = fs::read(&path).unwrap();
            assert!(program || !has_secret(&String::from_utf8_lossy(&text)), "a secret is in {}", path.display());
        }
    }
}

#[test]
fn no_secret_leaves_the_kubeconfig_in_a_successful_run() {
    let lab = Lab::installed();
    no_secret_in(&lab.path("node"));
    let kubeconfig = lab.read("C/CalicoWindows/calico-kube-config");
    assert!(has_secret(&kubeconfig), "there is a token to look for");
    for words in ["status", "status -o json", "plan -o json", "plan --out plan.json", "config show -o json"] {
        let seen = lab.run(words);
        assert!(!has_secret(&format!("{seen}")), "{words}: {seen}");
    }
    assert!(!has_secret(&fs::read_to_string(lab.path("plan.json")).unwrap()));
}
