//! A machine without a container runtime becomes a node: containerd from its own archive, then kubelet and kube-proxy.

use std::fs;

use calicoctl_win::values::Sha256;
use serde_json::{Value, json};

use super::kubernetes::{bare, is_ready, stop};
use crate::lab::Lab;
use crate::tar::tar_gz;

const FOLDER: &str = "C/Program Files/containerd";
const PROGRAMS: [&str; 3] = ["containerd.exe", "containerd-shim-runhcs-v1.exe", "ctr.exe"];

/// containerd's own archive of a version, and its digest.
pub fn archive(version: &str) -> (Vec<u8>, String) {
    let programs =
        PROGRAMS.map(|name| (format!("bin/{name}"), format!("Stand-in for containerd Windows {version}, {name}")));
    let bytes = tar_gz(programs.iter().map(|(path, text)| (path.as_str(), text.as_bytes())));
    let sha256 = Sha256::of(&bytes).to_string();
    (bytes, sha256)
}

/// A machine without a container runtime, in a cluster that does not know it, and a config that installs everything.
pub fn without_runtime() -> Lab {
    let lab = bare();
    has_no_runtime(&lab);
    fs::remove_dir_all(lab.on_node(FOLDER)).unwrap();
    let (bytes, sha256) = archive("2.1.4");
    lab.write("containerd.tar.gz", bytes);
    lab.write("containerd.tar.gz.sha256", sha256);
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    let archive = "      install: true\n      containerd: {archive: containerd.tar.gz}\n";
    lab.write("node.yaml", text.replace("      install: true\n", archive));
    lab
}

/// Removes the machine's container runtime and its service.
pub fn has_no_runtime(lab: &Lab) {
    lab.edit_yaml(|yaml| {
        let (before, rest) = yaml.split_once("runtime:\n").unwrap();
        let (_, rest) = rest.split_once("hns:\n").unwrap();
        let (middle, rest) = rest.split_once("  containerd:\n").unwrap();
        let (_, after) = rest.split_once("  hns:\n").unwrap();
        format!("{before}hns:\n{middle}  hns:\n{after}")
    });
}

fn service(lab: &Lab) -> Option<Value> {
    let model: Value = serde_yaml::from_str(&fs::read_to_string(lab.path("node/node.yaml")).unwrap()).unwrap();
    model["services"].get("containerd").cloned()
}

#[test]
fn a_machine_without_a_container_runtime_becomes_a_ready_node_by_one_apply_and_a_bare_one_again() {
    let lab = without_runtime();
    let before = lab.picture_without_state();
    let alone = lab.run("preflight -o json").json();
    assert!(alone.to_string().contains("no service containerd or docker was found"), "{alone:#}");
    let plan = lab.run("plan -c node.yaml -v").exits(0).stdout;
    assert!(plan.contains("service      containerd"), "{plan}");

    let screen = lab.run("apply -c node.yaml -y").exits(0).screen();
    assert!(is_ready(&lab, "win-a1"), "{screen}");
    assert!(screen.contains("containerd, kubelet, CalicoNode"), "in this order: {screen}");
    lab.healthy();
    insta::assert_snapshot!(lab.read(&format!("{FOLDER}/config.toml")), @r"
    version = 2

    [plugins.'io.containerd.grpc.v1.cri']
    sandbox_image = 'registry.k8s.io/pause:3.10'

    [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = 'C:\Program Files\containerd\cni\bin'
    conf_dir = 'C:\Program Files\containerd\cni\conf'
    ");
    insta::assert_snapshot!(serde_yaml::to_string(&service(&lab).unwrap()["definition"]).unwrap(), @r#"
    displayName: Containerd
    description: Container runtime [managed by calicoctl-win]
    imagePath: "\"C:\\Program Files\\containerd\\containerd.exe\" --run-service"
    account: LocalSystem
    start: auto
    restartAfter:
    - 15
    - 15
    "#);
    let again = lab.run("apply -c node.yaml -y -o json").exits(0).json();
    assert_eq!(again["changed"], false, "{again:#}");
    // Its CNI folders and its pause image are read like those of another containerd.
    let checks = lab.run("preflight -c node.yaml -o json").json().to_string();
    for part in ["containerd 2.1.4", "registry.k8s.io/pause:3.10"] {
        assert!(checks.contains(part), "{checks}");
    }

    // The archive is only needed for another version.
    fs::remove_file(lab.path("containerd.tar.gz")).unwrap();
    let kept = lab.run("apply -c node.yaml -y -o json").exits(0).json();
    assert_eq!(kept["changed"], false, "{kept:#}");
    let (bytes, sha256) = archive("2.1.5");
    lab.write("containerd.tar.gz", bytes);
    lab.write("containerd.tar.gz.sha256", sha256);
    let _newer = lab.run("apply -c node.yaml -y").exits(0);
    assert!(lab.read(&format!("{FOLDER}/ctr.exe")).contains("2.1.5"));
    lab.healthy();
    let _back = lab.run("rollback -y").exits(0);
    assert!(lab.read(&format!("{FOLDER}/ctr.exe")).contains("2.1.4"));
    lab.healthy();

    let _gone = lab.run("uninstall --purge -y").exits(0);
    assert_eq!(service(&lab), None);
    lab.picture_without_state().same_as(&before);
}

/// kubelet asks the runtime when it starts.
#[test]
fn service_start_starts_containerd_before_kubelet() {
    let lab = without_runtime();
    let screen = lab.run("apply -c node.yaml -y --set services.start=false").exits(0).screen();
    let (_, next) = screen.split_once("Next: ").unwrap_or_else(|| panic!("{screen}"));
    let (next, _) = next.split_once("      ").unwrap();
    assert_eq!(next, "calicoctl-win service start --sandbox node");
    let runs = |lab: &Lab| service(lab).unwrap()["pid"].is_number();
    assert!(!runs(&lab), "{screen}");
    let start = || {
        let done = lab.run("service start -o json").exits(0).json();
        assert!(is_ready(&lab, "win-a1") && runs(&lab), "{done:#}");
        lab.healthy();
        done["msg"].as_str().unwrap().to_owned()
    };
    let all = "start containerd, start kubelet, start CalicoNode, start CalicoFelix, start kube-proxy";
    assert_eq!(start(), all);
    assert_eq!(start(), "nothing to do");

    stop(&lab, &["containerd"]);
    let status = lab.run("status").stdout;
    assert!(status.contains("the service containerd is stopped: no pod starts"), "{status}");
    assert_eq!(start(), "start containerd");
    stop(&lab, &["containerd", "kubelet", "CalicoNode", "CalicoFelix", "kube-proxy"]);
    assert_eq!(start(), all);
}

#[test]
fn a_containerd_of_another_program_is_left_as_it_is() {
    let lab = bare();
    let (bytes, _) = archive("2.1.4");
    lab.write("containerd.tar.gz", bytes);
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("      install: true\n", ""));
    let found = |lab: &Lab| service(lab).map(|mut found| (found["definition"].take(), found["pid"].take()));
    let (definition, files) = (found(&lab), lab.read(&format!("{FOLDER}/containerd.exe")));
    let lines =
        lab.run("kubernetes install -c node.yaml -y --containerd containerd.tar.gz -o ndjson").exits(0).ndjson();
    let warned = lines.iter().any(|line| {
        line["id"] == "KubernetesServiceKept" && line["message"].as_str().unwrap().starts_with("the service containerd")
    });
    assert!(warned, "{lines:#?}");
    assert_eq!((found(&lab), lab.read(&format!("{FOLDER}/containerd.exe"))), (definition.clone(), files));
    assert!(!lab.on_node(&format!("{FOLDER}/config.toml")).exists());
    let _gone = lab.run("uninstall --purge -y").exits(0);
    assert_eq!(found(&lab), definition);
}

#[test]
fn an_archive_that_is_not_containerds_changes_nothing() {
    let lab = without_runtime();
    let before = lab.picture_without_state();
    let refused = |id: &str| {
        let result = lab.run("apply -c node.yaml -y -o json").json();
        assert_eq!((&result["error"]["id"], &result["changed"]), (&json!(id), &json!(false)), "{result:#}");
        result["error"]["what"].as_str().unwrap().to_owned()
    };
    lab.write("containerd.tar.gz", "half a file");
    assert!(refused("ReleaseDigest").contains("containerd.tar.gz"));
    fs::remove_file(lab.path("containerd.tar.gz.sha256")).unwrap();
    assert!(refused("ContainerdArchive").contains("is no archive of containerd"));
    fs::remove_file(lab.path("containerd.tar.gz")).unwrap();
    assert!(refused("ContainerdArchive").ends_with("there is no such file"));
    lab.picture_without_state().same_as(&before);
}

/// Wherever the first apply ends, `resume` finishes it, and `resume --undo` leaves a machine without containerd.
#[test]
fn an_interrupted_installation_is_finished_or_undone() {
    for point in [
        "file *containerd.exe=exit-within",
        "file *config.toml",
        "service containerd",
        "running containerd",
        "*10-calico.conf",
    ] {
        let action = if point.contains('=') { "" } else { "=exit-after" };
        let killed = |lab: &Lab| lab.fails_at(&format!("put {point}{action}"), "apply -c node.yaml -y").exits(137);
        let lab = without_runtime();
        let before = lab.picture_without_state();
        let _killed = killed(&lab);
        let _undone = lab.run("resume --undo -y").exits(0);
        assert_eq!(service(&lab), None, "{point}");
        lab.picture_without_state().same_as(&before);

        let lab = without_runtime();
        let _killed = killed(&lab);
        let _finished = lab.run("resume -y").exits(0);
        assert!(is_ready(&lab, "win-a1"), "{point}");
        lab.healthy();
    }
}

/// A bundle that another machine made of the config and containerd's archive.
fn bundle() -> Vec<u8> {
    let lab = without_runtime();
    let would = lab.run("release bundle -c node.yaml --out bundle.zip --dry-run").exits(0).stdout;
    assert!(
        would.contains("pack Calico v3.32.1, kubelet and kube-proxy v1.36.2, containerd into bundle.zip"),
        "{would}"
    );
    let _made = lab.run("release bundle -c node.yaml --out bundle.zip").exits(0);
    fs::read(lab.path("bundle.zip")).unwrap()
}

/// The same machine and config without any file but the bundle.
fn with_only_a_bundle() -> Lab {
    let lab = without_runtime();
    lab.write("bundle.zip", bundle());
    fs::remove_file(lab.path("containerd.tar.gz")).unwrap();
    fs::remove_dir_all(lab.path("v1.36.2")).unwrap();
    lab
}

#[test]
fn containerd_comes_from_a_bundle_without_another_file() {
    let lab = with_only_a_bundle();
    let before = lab.picture_without_state();
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("      containerd: {archive: containerd.tar.gz}\n", ""));
    let alone = lab.run("kubernetes install -c node.yaml -y --containerd -o json");
    assert_eq!((&alone.json()["error"]["id"], alone.code), (&json!("Usage"), 64), "{alone}");
    let words = "kubernetes install -c node.yaml -y --offline --bundle bundle.zip --containerd";
    let screen = lab.fails_at("release 404", words).exits(0).screen();
    assert!(screen.contains("Calico v3.32.1, Kubernetes v1.36.2, containerd from bundle.zip"), "{screen}");
    assert!(screen.contains("containerd from the bundle"), "{screen}");
    assert!(is_ready(&lab, "win-a1") && lab.read(&format!("{FOLDER}/containerd.exe")).contains("2.1.4"), "{screen}");
    lab.healthy();
    // What is stored of the config names the bundle, which is not needed any more, whether it is there or not.
    let debug =
        |severity: &str| lab.run(&format!("reconfigure -y --set services.felixLogSeverity={severity}")).exits(0);
    let _with = debug("debug");
    fs::remove_file(lab.path("bundle.zip")).unwrap();
    let _without = debug("info");
    lab.healthy();
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn the_config_pins_containerd_in_a_bundle_too() {
    let lab = with_only_a_bundle();
    let before = lab.picture_without_state();
    let other = Sha256::of(b"another");
    let words =
        format!("apply -c node.yaml -y --bundle bundle.zip -o json --set kubernetes.node.containerd.sha256={other}");
    let refused = lab.run(&words).json();
    assert_eq!(refused["error"]["id"], "ReleaseDigest", "{refused:#}");
    lab.picture_without_state().same_as(&before);
}

#[test]
fn an_image_has_containerd_and_each_machine_made_of_it_starts_it() {
    let lab = with_only_a_bundle();
    let before = lab.picture_without_state();
    let words = "install --prepare -y -c node.yaml --bundle bundle.zip";
    let _prepared = lab.fails_at("api down;release 404", words).exits(0);
    for name in PROGRAMS {
        assert!(lab.read(&format!("{FOLDER}/{name}")).contains("2.1.4"), "{name}");
    }
    let found = service(&lab).unwrap();
    assert_eq!((&found["definition"]["start"], &found["pid"]), (&json!("disabled"), &Value::Null), "{found:#}");
    assert!(!lab.on_node(&format!("{FOLDER}/config.toml")).exists(), "its CNI folders are of the machine's config");
    assert_eq!(lab.run(&format!("{words} -o json")).exits(0).json()["changed"], false);

    fs::remove_file(lab.path("bundle.zip")).unwrap();
    let programs = "kubernetes.node.source.path";
    let _applied =
        lab.fails_at("release 404", &format!("apply -c node.yaml -y --offline --set {programs}=gone")).exits(0);
    assert!(is_ready(&lab, "win-a1"));
    assert_eq!(service(&lab).unwrap()["definition"]["start"], "auto");
    lab.healthy();
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture_without_state().same_as(&before);
}
