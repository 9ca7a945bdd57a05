//! The executable with a sandbox node: that it runs on Windows at all, its documents and exit codes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;

use crate::machine::{Ended, Machine};

const CONFIG: &str = include_str!("../../fixtures/config/vxlan.yaml");
const POLICIES: &str = include_str!("../../fixtures/policies/every-kind.yaml");
const FACTS: &str = include_str!("../../fixtures/facts/server-2022.json");

#[test]
fn version_and_help_are_printed() {
    let Some(machine) = Machine::new() else { return };
    let version = env!("CARGO_PKG_VERSION");

    let long = machine.run(&["version"]);
    assert_eq!(long.code, 0, "{}", long.stderr);
    assert!(long.stdout.contains(version), "{}", long.stdout);
    let document = machine.run(&["version", "-o", "json"]).json();
    assert_eq!((&document["version"], &document["target"]), (&version.into(), &"x86_64-windows".into()));

    let short = machine.run(&["--version"]);
    assert_eq!((short.code, short.stdout.trim()), (0, format!("calicoctl-win {version}").as_str()));

    let help = machine.run(&["--help"]);
    assert_eq!(help.code, 0, "{}", help.stderr);
    for verb in ["install", "status", "uninstall", "plan", "resume"] {
        assert!(help.stdout.contains(verb), "{verb} is not in the help:\n{}", help.stdout);
    }
}

#[test]
fn a_config_is_valid_or_the_error_gives_the_position() {
    let Some(machine) = Machine::new() else { return };

    let good = machine.file("Knöten 1.yaml", CONFIG);
    let validated = machine.run(&["config", "validate", "-c", &good]);
    assert_eq!(validated.code, 0, "{}{}", validated.stdout, validated.stderr);

    for (wrong, said) in [
        (
            CONFIG.replace("vxlanVNI: 4096", "vxlanVNI: 9999"),
            "bäd 1.yaml:13:17: spec.calicoNetwork.vxlan.vxlanVNI: 9999",
        ),
        (CONFIG.replace("backend: vxlan", "backend: vxlam"), "bäd 1.yaml:11:14: spec.calicoNetwork.backend: `vxlam`"),
        (CONFIG.replace("serviceCIDRs", "serviceCIDR"), "bäd 1.yaml:7:5: spec.kubernetes.serviceCIDR: unknown field"),
        (CONFIG.replace("10.96.0.0/12", "fd00::/108"), "bäd 1.yaml:7:20: spec.kubernetes.serviceCIDRs: `fd00::/108`"),
        ("spec: [".to_owned(), "bäd 1.yaml:1:7: "),
    ] {
        let bad = machine.file("bäd 1.yaml", &wrong);
        let refused = machine.run(&["config", "validate", "-c", &bad]);
        assert_eq!(refused.code, 4, "{wrong}\n{}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains(said), "`{said}` is not in\n{}", refused.stderr);
    }
}

/// As in a pipeline on a Windows machine, without a cluster.
#[test]
fn policies_in_a_file_are_judged() {
    let Some(machine) = Machine::new() else { return };
    let file = machine.file("every kind.yaml", POLICIES);
    let judged = machine.run(&["policy", "lint", "-f", &file, "-o", "json"]);
    assert_eq!(judged.code, 3, "{}{}", judged.stdout, judged.stderr);
    let report = judged.json();
    assert_eq!((&report["summary"]["fail"], &report["summary"]["warn"]), (&19.into(), &11.into()), "{report:#}");
}

#[test]
fn config_init_writes_a_config_and_never_overwrites_one() {
    let Some(machine) = Machine::new() else { return };
    let file = machine.path("Mein Knoten.yaml");

    let written = machine.run(&["config", "init", &file]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    assert_eq!(machine.run(&["config", "validate", &file]).code, 0);

    let again = machine.run(&["config", "init", &file]);
    assert_eq!(again.code, 25, "{}{}", again.stdout, again.stderr);
}

#[test]
fn a_plan_is_made_from_saved_facts() {
    let Some(machine) = Machine::new() else { return };
    let (config, facts) = (machine.file("node.yaml", CONFIG), machine.file("facts.json", FACTS));

    let planned = machine.run(&["plan", "-c", &config, "--facts", &facts, "-o", "json"]);

    assert_eq!(planned.code, 0, "{}{}", planned.stdout, planned.stderr);
    let plan = planned.json();
    assert_eq!(plan["kind"], "Plan");
    let changes = plan["changes"].as_array().expect("a plan has changes");
    for service in ["CalicoNode", "CalicoFelix"] {
        assert!(changes.iter().any(|c| c["kind"] == "service" && c["target"] == service), "{service}: {plan:#}");
    }
}

#[test]
fn a_node_comes_up_on_a_sandbox_and_is_restored() {
    let Some(machine) = Machine::new() else { return };
    let sandbox = Sandbox::new(&machine, "Schöne neue Kiste");
    // Another product's CNI configuration is in the place of ours.
    sandbox.write("C/Program Files/containerd/cni/conf/10-calico.conf", "{\"name\": \"another\"}\n");
    sandbox.write("C/Program Files/containerd/cni/bin/calico.exe", "another product's\n");
    let before = sandbox.contents();

    let installed = sandbox.run(&["install", "--yes"]);
    assert_eq!(installed.code, 0, "{}{}", installed.stdout, installed.stderr);
    assert!(installed.stdout.contains("result: OK (exit 0) changed=true"), "{}", installed.stdout);

    let status = sandbox.run(&["status", "-o", "json"]);
    assert_eq!((status.code, &status.json()["overall"]), (0, &"Healthy".into()), "{}", status.stdout);

    let again = sandbox.run(&["install", "--yes", "-o", "json"]);
    let result = again.json();
    assert_eq!((again.code, &result["status"], &result["changed"]), (0, &"no_changes".into(), &false.into()));

    let gone = sandbox.run(&["uninstall", "--purge", "--yes"]);
    assert_eq!(gone.code, 0, "{}{}", gone.stdout, gone.stderr);
    assert_eq!(sandbox.contents(), before);
    assert_eq!(sandbox.run(&["status"]).code, 16);
}

#[test]
fn after_a_power_cut_a_run_is_resumed_or_undone() {
    let Some(machine) = Machine::new() else { return };
    let sandbox = Sandbox::new(&machine, "node");
    let before = sandbox.contents();

    // The process ends when it should start Felix, without cleanup.
    let cut = ["install", "--yes", "--sandbox-fault", "put running CalicoFelix=exit-before"];
    assert_eq!(sandbox.run(&cut).code, 137);
    let status = sandbox.run(&["status", "-o", "json"]);
    assert_eq!((status.code, &status.json()["run"]["interrupted"]), (12, &true.into()), "{}", status.stdout);
    let undone = sandbox.run(&["resume", "--undo", "--yes"]);
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    sandbox.run(&["uninstall", "--purge", "--yes"]);
    assert_eq!(sandbox.contents(), before);

    assert_eq!(sandbox.run(&cut).code, 137);
    let resumed = sandbox.run(&["resume", "--yes"]);
    assert_eq!(resumed.code, 0, "{}{}", resumed.stdout, resumed.stderr);
    assert_eq!(sandbox.run(&["status"]).code, 0);
}

#[test]
fn only_one_run_at_a_time_changes_a_node() {
    let Some(machine) = Machine::new() else { return };
    let sandbox = Sandbox::new(&machine, "node");

    let hanging = sandbox.start(&["install", "--yes", "--sandbox-fault", "put running CalicoFelix=hang"]);
    let hangs = || {
        let run = &sandbox.run(&["status", "-o", "json"]).json()["run"];
        run["interrupted"] == false && run["at"].as_str().is_some_and(|at| at.ends_with("running CalicoFelix"))
    };
    let said = || std::fs::read_to_string(machine.disk().join("said")).unwrap();
    assert!((0..100).any(|_| hangs()), "install does not come to the step that hangs:\n{}", said());
    let second = sandbox.run(&["install", "--yes", "-o", "json"]);
    assert_eq!((second.code, &second.json()["exit_name"]), (14, &"BUSY".into()), "{}", second.stdout);

    machine.power_off(hanging);
    let resumed = sandbox.run(&["resume", "--yes"]);
    assert_eq!(resumed.code, 0, "{}{}", resumed.stdout, resumed.stderr);
    assert_eq!(sandbox.run(&["status"]).code, 0);
}

#[test]
fn a_failure_is_one_json_document_with_the_exit_code_that_windows_sees() {
    let Some(machine) = Machine::new() else { return };
    let wrong = machine.file("bad.yaml", CONFIG.replace("4096", "4095"));
    let sandbox = machine.path("node");

    for (args, name, code) in [
        (&["frobnicate", "-o", "json"][..], "USAGE", 64),
        (&["install", "--no-such-flag", "-o", "json"], "USAGE", 64),
        (&["install", "-c", &wrong, "-y", "-o", "json", "--sandbox", &sandbox], "INVALID_CONFIG", 4),
        (&["config", "validate", "-c", "C:\\no-such-file.yaml", "-o", "json"], "INVALID_CONFIG", 4),
        (&["release", "verify", &wrong, "-o", "json"], "RELEASE_INVALID", 6),
        (&["status", "-o", "json", "--sandbox", &sandbox, "--kubeconfig", "C:\\none"], "NOT_INSTALLED", 16),
    ] {
        let failed = machine.run(args);
        let result = failed.json();
        assert_eq!(failed.code, code, "{args:?}: {result:#}");
        if result["kind"] == "RunResult" {
            assert_eq!((&result["exit_code"], &result["exit_name"]), (&code.into(), &name.into()), "{result:#}");
        }
        assert_eq!(machine.code_seen_by_cmd(args), code, "{args:?}");
    }
}

#[test]
fn events_are_one_per_line() {
    let Some(machine) = Machine::new() else { return };
    let sandbox = Sandbox::new(&machine, "node");
    let installed = sandbox.run(&["install", "--yes", "-o", "ndjson"]);
    let types: Vec<String> = installed
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .map(|event| event["type"].as_str().expect("an event has a type").to_owned())
        .collect();
    assert_eq!(types.first().map(String::as_str), Some("version"));
    assert_eq!(types.last().map(String::as_str), Some("result"));
    assert!(types.contains(&"connectivity_notice".to_owned()), "{types:?}");
}

/// A sandbox node in a folder of the machine.
struct Sandbox<'a> {
    machine: &'a Machine,
    /// In the form for the executable, and as the test sees it.
    inside: String,
    folder: PathBuf,
}

impl<'a> Sandbox<'a> {
    fn new(machine: &'a Machine, name: &str) -> Self {
        let sandbox = Self { machine, inside: machine.path(name), folder: machine.disk().join(name) };
        let made = sandbox.run(&["status"]);
        assert_eq!(made.code, 16, "{}{}", made.stdout, made.stderr);
        sandbox
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.machine.run(&self.with(args))
    }

    fn start(&self, args: &[&str]) -> Child {
        self.machine.start(&self.with(args), "said")
    }

    fn with<'b>(&'b self, args: &[&'b str]) -> Vec<&'b str> {
        args.iter().copied().chain(["--sandbox", &self.inside]).collect()
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.folder.join(path), text).unwrap();
    }

    /// The complete node: every folder and file of its disk, and `node.yaml`.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut contents =
            BTreeMap::from([("node.yaml".into(), std::fs::read(self.folder.join("node.yaml")).unwrap())]);
        let mut folders = vec![self.folder.join("C")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let bytes = if path.is_dir() { Vec::new() } else { std::fs::read(&path).unwrap() };
                if path.is_dir() {
                    folders.push(path.clone());
                }
                contents.insert(path, bytes);
            }
        }
        contents
    }
}
