//! A sandbox, and the built program run on it like a user runs it: every command is a separate process, and they share
//! only the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
#[cfg(target_os = "linux")]
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::process::Child;
use std::process::{Command, Stdio};

use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::node::sandbox::model::{Model, Process};
use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use calicoctl_win::values::WinPath;
use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

use crate::stories::{event_lines, schemas};

/// The state folder of the program on a node; its logs differ from run to run.
const STATE: &str = "C/ProgramData/calicoctl-win";

pub struct Lab {
    dir: TempDir,
}

/// The result of a command.
#[must_use]
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A node byte for byte: every file and folder of `C/`, with its mode, and `node.yaml`.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture(BTreeMap<String, Vec<u8>>);

/// Returns the release that a command line names, by its version or in the name of a file.
fn release_in(words: &str) -> Option<&str> {
    let version = Regex::new(r"v\d+\.\d+\.\d+").unwrap();
    version.find_iter(words).last().map(|found| found.as_str())
}

impl Lab {
    /// An empty folder, in memory if the machine has a memory file system.
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Self { dir }
    }

    /// A new node, before the first command.
    pub fn node() -> Self {
        let lab = Self::new();
        let _seen = lab.run("service status").exits(0);
        lab
    }

    /// A node on which Calico is installed.
    pub fn installed() -> Self {
        let lab = Self::node();
        let _done = lab.run("install -y").exits(0);
        lab
    }

    /// A copy of the node and its cluster.
    pub fn copy(&self) -> Self {
        fn tree(from: &Path, to: &Path) {
            fs::create_dir(to).unwrap();
            for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
                let (from, to) = (entry.path(), to.join(entry.file_name()));
                if from.is_dir() {
                    tree(&from, &to);
                } else {
                    fs::copy(&from, &to).unwrap();
                }
            }
            fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
        }
        let copy = Self::new();
        tree(&self.path("node"), &copy.path("node"));
        copy
    }

    /// The path of a file or folder next to the sandbox; commands run there.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file next to the sandbox and returns its name.
    pub fn write<'a>(&self, name: &'a str, text: impl AsRef<[u8]>) -> &'a str {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        name
    }

    /// The path of a file on the node: `C/k/config`.
    pub fn on_node(&self, path: &str) -> PathBuf {
        self.path("node").join(path)
    }

    /// The logs of all runs and agents. The folder of the components' logs is below them.
    pub fn logs(&self) -> String {
        let entries = fs::read_dir(self.on_node("C/ProgramData/calicoctl-win/logs")).unwrap();
        let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files.map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.on_node(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The machine, with every default.
    pub fn model(&self) -> Model {
        serde_yaml::from_str(&self.read("node.yaml")).unwrap()
    }

    /// Edits `node.yaml`, like another user.
    pub fn edit_yaml(&self, edit: impl FnOnce(&str) -> String) {
        let text = self.read("node.yaml");
        let edited = edit(&text);
        assert_ne!(text, edited, "the edit changes nothing");
        fs::write(self.on_node("node.yaml"), edited).unwrap();
    }

    /// The same with what `node.yaml` describes.
    pub fn edit_model(&self, edit: impl FnOnce(&mut Model)) {
        self.edit_yaml(|yaml| {
            let mut model: Model = serde_yaml::from_str(yaml).unwrap();
            edit(&mut model);
            serde_yaml::to_string(&model).unwrap()
        });
    }

    /// Somebody runs a program of the node, so that its file can only be deleted at the next boot.
    pub fn start_program(&self, image: &str) {
        let program = Process { pid: 5000, image: WinPath::known(image), service: None };
        let mut node = SandboxNode::open(&self.path("node")).unwrap();
        node.edit(|model| {
            model.processes.push(program);
            Ok(())
        })
        .unwrap();
    }

    /// Runs `calicoctl-win WORDS --sandbox node`.
    pub fn run(&self, words: &str) -> Output {
        self.fails_at("", words)
    }

    /// The same with an injected fault. First updates Calico on Linux to the named release, as an administrator does:
    /// its manifests contain the definitions and the role that the release needs.
    pub fn fails_at(&self, fault: &str, words: &str) -> Output {
        let clusters_own = self.path("node/cluster").exists()
            || self.path("node").exists() && words.starts_with("install") && !words.contains("--kubeconfig");
        if let Some(release) = release_in(words).filter(|_| clusters_own) {
            self.linux_runs(release);
        }
        self.alone_at(fault, words)
    }

    /// Updates Calico on the Linux nodes of the sandbox's own cluster to a release.
    pub fn linux_runs(&self, release: &str) {
        let cluster = EmbeddedCluster::start(&self.path("node/cluster"), &Seed::new("win-a1"), &[]).unwrap();
        cluster.upgrade_calico(release).unwrap();
    }

    /// The document of `status`. Ignores that FelixConfiguration has another VNI than a story set on the node:
    /// `reconfigure::status_shows_that_the_cluster_has_another_vni` tests that.
    pub fn status(&self) -> Value {
        let mut status = self.run("status -o json").json();
        let reasons = status["reasons"].as_array().unwrap();
        if reasons.len() == 1
            && reasons[0].as_str().unwrap().contains(" in FelixConfiguration: pods here reach no pod ")
        {
            assert_eq!(status["overall"], "Degraded", "{status:#}");
            status["overall"] = "Healthy".into();
        }
        status
    }

    /// The same for a node on which nothing else is wrong.
    pub fn healthy(&self) -> Value {
        let status = self.status();
        assert_eq!(status["overall"], "Healthy", "{status:#}");
        status
    }

    /// Runs it without changing the cluster before.
    pub fn alone(&self, words: &str) -> Output {
        self.alone_at("", words)
    }

    fn alone_at(&self, fault: &str, words: &str) -> Output {
        let mut command = self.command(words);
        command.args(["--sandbox", "node"]);
        if !fault.is_empty() {
            command.env("CALICO_WIN_SANDBOX_FAULT", fault);
        }
        Output::of(words, command)
    }

    /// Runs `calicoctl-win WORDS`, without any node.
    pub fn bare(&self, words: &str) -> Output {
        Output::of(words, self.command(words))
    }

    /// The command, not started; its words are separated by spaces.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_calicoctl-win"));
        command.args(words.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null());
        // No settings of the machine are passed on; Windows programs need SystemRoot.
        command.env_clear().env("TMPDIR", self.path("tmp")).env("TMP", self.path("tmp"));
        if let Some(root) = std::env::var_os("SystemRoot") {
            command.env("SystemRoot", root);
        }
        command
    }

    /// The same as the pod of a fleet runs it: with a revision, which no other command has.
    pub fn command_of_pod(&self, words: &str) -> Command {
        let mut command = self.command(words);
        command.env("CALICO_WIN_FLEET_REVISION", "0123456789ab");
        command
    }

    fn saved_cluster(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("node/cluster/cluster.json")).unwrap()).unwrap()
    }

    /// Every object of the sandbox's cluster: kind, name and content.
    pub fn objects(&self) -> Vec<(String, String, Value)> {
        let entry = |entry: &Value| {
            let key = |field: &str| entry[0][field].as_str().unwrap().to_owned();
            (key("kind"), key("name"), entry[1].clone())
        };
        self.saved_cluster()["objects"].as_array().unwrap().iter().map(entry).collect()
    }

    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        self.objects().into_iter().find(|found| found.0 == kind && found.1 == name).map(|found| found.2)
    }

    /// Edits an object of the cluster, like another client.
    pub fn edit_object(&self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut saved = self.saved_cluster();
        let found = saved["objects"].as_array_mut().unwrap().iter_mut();
        let entry = found.into_iter().find(|entry| entry[0]["kind"] == kind && entry[0]["name"] == name).unwrap();
        edit(&mut entry[1]);
        fs::write(self.path("node/cluster/cluster.json"), saved.to_string()).unwrap();
    }

    /// Deletes objects of the cluster, like another client: those for which `which` says so, by kind and content.
    pub fn remove_objects(&self, which: impl Fn(&str, &Value) -> bool) {
        let mut saved = self.saved_cluster();
        let all = saved["objects"].as_array_mut().unwrap();
        let before = all.len();
        all.retain(|entry| !which(entry[0]["kind"].as_str().unwrap(), &entry[1]));
        assert!(all.len() < before, "there is no such object");
        fs::write(self.path("node/cluster/cluster.json"), saved.to_string()).unwrap();
    }

    /// Creates an object in the cluster, like another client.
    pub fn add_object(&self, kind: &str, object: Value) {
        let mut saved = self.saved_cluster();
        let key = serde_json::json!({
            "kind": kind, "namespace": object["metadata"]["namespace"].as_str().unwrap_or_default(), "name": object["metadata"]["name"],
        });
        saved["objects"].as_array_mut().unwrap().push(serde_json::json!([key, object]));
        fs::write(self.path("node/cluster/cluster.json"), saved.to_string()).unwrap();
    }

    /// Kills the guards of this sandbox, like a power failure.
    #[cfg(target_os = "linux")]
    pub fn end_guards(&self) {
        let mut ended = 0;
        for entry in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
            let is_here = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == self.dir.path());
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if is_here && String::from_utf8_lossy(&words).contains("run\0guard") {
                let pid = entry.file_name().into_string().unwrap();
                assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
                ended += 1;
            }
        }
        assert!(ended > 0, "there is no guard");
        // The last of its threads releases the lock, some time after the process counts as ended.
        let lock = self.on_node("C/ProgramData/calicoctl-win/state/guard.lock");
        if let Ok(lock) = fs::File::options().write(true).open(lock) {
            lock.lock().unwrap();
        }
    }

    /// The whole node.
    pub fn picture(&self) -> Picture {
        let node = self.path("node");
        let mut seen = BTreeMap::from([("node.yaml".to_owned(), without_pods(&self.read("node.yaml")).into_bytes())]);
        let mut folders = vec![node.join("C")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                let name = path.strip_prefix(&node).unwrap().to_str().unwrap().replace('\\', "/");
                let mode = mode(&path);
                if path.is_dir() {
                    seen.insert(format!("{name}/ {mode}"), Vec::new());
                    folders.push(path);
                } else {
                    seen.insert(format!("{name} {mode}"), fs::read(&path).unwrap());
                }
            }
        }
        Picture(seen)
    }

    /// The node without the state folder, which remains after an uninstall without `--purge`.
    pub fn picture_without_state(&self) -> Picture {
        let mut picture = self.picture();
        picture.0.retain(|name, _| !name.starts_with(STATE));
        picture
    }
}

/// `node.yaml` without the endpoints of pods: Kubernetes creates and deletes pods at any time. The stories of pods test
/// them.
fn without_pods(yaml: &str) -> String {
    let endpoint = Regex::new(r"(?m)^ +[0-9a-f]{64}_Calico:\n(?: {8,}.*\n)+").unwrap();
    endpoint.replace_all(yaml, "").into_owned()
}

#[cfg(unix)]
fn mode(path: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    format!("{:o}", fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777)
}

#[cfg(not(unix))]
fn mode(_path: &Path) -> String {
    String::new()
}

impl Picture {
    /// Returns the names of the files that contain a text.
    pub fn files_with(&self, text: &str) -> Vec<String> {
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        self.0.iter().filter(|(_, bytes)| has(bytes)).map(|(name, _)| name.clone()).collect()
    }

    /// Fails with the names of the differences.
    #[track_caller]
    pub fn same_as(&self, before: &Self) {
        let gone = before.0.keys().filter(|name| !self.0.contains_key(*name)).map(|name| format!("- {name}"));
        let new = self.0.keys().filter(|name| !before.0.contains_key(*name)).map(|name| format!("+ {name}"));
        let changed = self.0.iter().filter(|(name, bytes)| before.0.get(*name).is_some_and(|b| b != *bytes));
        let changed = changed.map(|(name, bytes)| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            format!("~ {name}\n{}\nwas\n{}", text(bytes), text(&before.0[name]))
        });
        let differences: Vec<String> = gone.chain(new).chain(changed).collect();
        assert!(differences.is_empty(), "the node has changed:\n{}", differences.join("\n"));
    }

    /// As [`Self::same_as`], on a node whose `node.yaml` was edited in between and has another layout since: the
    /// content must be the same.
    #[track_caller]
    pub fn says_the_same_as(mut self, before: &Self) {
        let read = |picture: &Self| -> Model {
            serde_yaml::from_str(std::str::from_utf8(&picture.0["node.yaml"]).unwrap()).unwrap()
        };
        let (now, then) = (read(&self), read(before));
        assert!(now.same(&then), "{now:#?}\nwas\n{then:#?}");
        self.0.insert("node.yaml".into(), before.0["node.yaml"].clone());
        self.same_as(before);
    }

    /// Only the files: it is unknown who created an empty folder.
    #[must_use]
    pub fn without_folders(mut self) -> Self {
        self.0.retain(|name, _| !name.contains("/ "));
        self
    }

    /// Only the disk: processes have other ids each time they start.
    #[must_use]
    pub fn only_disk(mut self) -> Self {
        self.0.remove("node.yaml");
        self
    }

    /// Without the components' logs, which grow whenever a service starts.
    #[must_use]
    pub fn without_logs(mut self) -> Self {
        self.0.retain(|name, _| !name.contains("/logs/"));
        self
    }

    /// Returns the names of the files and folders with this prefix.
    pub fn names(&self, beginning: &str) -> Vec<&str> {
        let names = self.0.keys().map(String::as_str).filter(|name| name.starts_with(beginning));
        names.map(|name| name.rsplit_once(' ').map_or(name, |(name, _)| name)).collect()
    }
}

impl Output {
    pub fn of(words: &str, mut command: Command) -> Self {
        let output = command.output().unwrap_or_else(|error| panic!("run {words}: {error}"));
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        Self { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Exactly one JSON document on stdout, and nothing on stderr.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.stderr, "", "{self}");
        let document = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self}"));
        schemas::check(&document);
        document
    }

    /// Returns the lines of NDJSON, after checking the rules of every stream.
    #[track_caller]
    pub fn ndjson(&self) -> Vec<Value> {
        assert_eq!(self.stderr, "", "{self}");
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let lines: Vec<Value> = self.stdout.lines().map(parse).collect();
        assert_eq!(lines.first().unwrap()["type"], "version", "{self}");
        assert_eq!(lines.last().unwrap()["type"], "result", "{self}");
        for (at, line) in lines.iter().enumerate() {
            assert_eq!(line["seq"], at, "{line}");
            event_lines::check(line);
            schemas::check(&line["document"]);
        }
        each_phase_ends(&lines);
        lines
    }

    /// Both streams, with everything masked that differs from run to run.
    pub fn screen(&self) -> String {
        let masks = [
            (r"\d{8}T\d{6}-[0-9a-f]{6}(?:-[0-9a-f]{16})?", "RUN"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (
                r"\d{4}-\d\d-\d\d\s+\d\d:\d\d(:\d\d)?\s+\S+\s+(\((in\s+)?[0-9dhmsay\s]+(ago)?\)|\d+( days|[hms])( \d\d[ms])?)",
                "TIME",
            ),
            (r#""\d+/\d+/\d{4} \d+:\d\d:\d\d [AP]M""#, "BOOT-TIME"),
            (r"\b(sha256|release) [0-9a-f]{12}\b", "$1 DIGEST"),
            (r"(?m) +\d+\.\ds$", "  SECONDS"),
            (r"calicoctl-win \d+\.\d+\.\d+\S*", "calicoctl-win VERSION"),
            (r"log=\S*[/\\]tmp[/\\]", "log=TMP/"),
            (r"\b[0-9a-f]{64}_Calico\b", "SANDBOX_Calico"),
        ];
        let mut text = self.stdout.clone();
        if !self.stderr.is_empty() {
            text += &format!("--- stderr\n{}", self.stderr);
        }
        for (pattern, mask) in masks {
            text = Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
        }
        text
    }
}

/// A command on a terminal of its own, which `script` makes.
#[cfg(target_os = "linux")]
pub struct Terminal {
    child: Child,
    shown: String,
}

#[cfg(target_os = "linux")]
impl Terminal {
    pub fn of(program: &Command) -> Self {
        let words = std::iter::once(program.get_program()).chain(program.get_args());
        let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
        let mut script = Command::new("script");
        script.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]).current_dir(program.get_current_dir().unwrap());
        script.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("COLUMNS", "80");
        let child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("this test needs script: {error}")), shown: String::new() }
    }

    /// Reads until the screen has shown a text.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        while !self.shown.contains(text) {
            assert!(self.read(), "it ends without `{text}`: {}", self.shown);
        }
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // What it writes is ASCII.
        let count = self.child.stdout.as_mut().unwrap().read(&mut bytes).unwrap();
        self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        count > 0
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn ctrl_c(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(&[3]).unwrap();
    }

    /// Its exit code, and all that it has shown.
    pub fn end(mut self) -> (Option<i32>, String) {
        while self.read() {}
        (self.child.wait().unwrap().code(), self.shown)
    }
}

/// Checks that each phase that begins has its own key and ends once, and that none ends without a start.
#[track_caller]
pub fn each_phase_ends(lines: &[Value]) {
    let keys = |kinds: &[&str]| {
        let those = lines.iter().filter(|line| kinds.contains(&line["type"].as_str().unwrap_or_default()));
        those.map(|line| line["phase"]["key"].to_string()).collect::<Vec<_>>()
    };
    let (begun, ended) = (keys(&["phase_start"]), keys(&["phase_complete", "phase_errored"]));
    let distinct: BTreeSet<&String> = begun.iter().collect();
    assert!(distinct.len() == begun.len() && !begun.contains(&"null".into()), "begun: {begun:?}");
    let sorted = |mut keys: Vec<String>| {
        keys.sort();
        keys
    };
    assert_eq!(sorted(begun), sorted(ended), "{lines:#?}");
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}
