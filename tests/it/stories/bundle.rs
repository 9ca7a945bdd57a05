//! A machine without internet gets everything from one file that another machine made.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use zip::{DateTime, ZipArchive};

use super::kubernetes::{bare, is_ready, programs, sha256};
use crate::lab::Lab;

const KUBERNETES: &str = "\n  kubernetes:\n    node:\n      install: true\n      version: v1.36.2\n";

/// The mirror does not answer: a run that asks it fails.
const NO_NETWORK: &str = "release 404";

fn config(more: &str) -> String {
    format!(
        "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\nspec:\n  calico: {{version: v3.32.1}}{KUBERNETES}{more}"
    )
}

/// A machine with internet, and its config with a place for kubelet and kube-proxy.
fn with_internet() -> Lab {
    let lab = Lab::node();
    let source = programs(&lab, "v1.36.2");
    lab.write("node.yaml", config(&format!("      source: {{path: {source}}}\n")));
    lab
}

/// A bundle of a release, and of kubelet and kube-proxy if `words` name the config.
fn made(lab: &Lab, words: &str) -> PathBuf {
    let made = lab.run(&format!("release bundle {words} --out bundle.zip -o json")).exits(0).json();
    let bundle = lab.path("bundle.zip");
    assert_eq!(made["sha256"], calicoctl_win::values::Sha256::of(&fs::read(&bundle).unwrap()).to_string());
    bundle
}

/// A bundle with a release, kubelet and kube-proxy.
pub fn whole() -> Vec<u8> {
    fs::read(made(&with_internet(), "-c node.yaml")).unwrap()
}

/// A bundle with a release alone.
pub fn of_release(version: &str) -> Vec<u8> {
    fs::read(made(&Lab::node(), &format!("--release {version}"))).unwrap()
}

#[test]
fn a_bundle_that_is_left_out_or_added_changes_nothing() {
    let lab = Lab::node();
    lab.write("bundle.zip", of_release("v3.32.1"));
    lab.write("node.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let _made = lab.run("install -y -c node.yaml --bundle bundle.zip").exits(0);
    for words in ["", "--bundle bundle.zip", ""] {
        let again = lab.run(&format!("install -y -c node.yaml {words} -o json")).exits(0).json();
        assert_eq!((&again["status"], &again["changed"]), (&"no_changes".into(), &false.into()), "{again:#}");
    }
}

#[test]
fn a_bundle_makes_a_bare_machine_without_internet_a_ready_node() {
    let lab = bare();
    lab.write("bundle.zip", whole());
    lab.write("node.yaml", config("      join: {tokenFile: token}\n"));
    let words = "apply -c node.yaml -y --offline";
    let alone = lab.fails_at(NO_NETWORK, &format!("{words} -o json"));
    assert_eq!(alone.json()["error"]["id"], "ReleaseOffline", "{alone}");

    let screen = lab.fails_at(NO_NETWORK, &format!("{words} --bundle bundle.zip")).exits(0).screen();
    let begun = screen.lines().take(9).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(begun, @r"
    calicoctl-win VERSION on win-a1: Windows Server 2022 build 20348.2700, containerd 1.7.27
    [ OK ]  cluster         https://10.20.0.10:6443, Kubernetes v1.36.2, Calico v3.32.1  SECONDS
    [WARN]  ReleaseNotPinned: bundle not verified: give the SHA-256 of bundle.zip with --sha256, or in the file bundle.zip.sha256
    [ OK ]  bundle          Calico v3.32.1, Kubernetes v1.36.2 from bundle.zip, sha256 DIGEST  SECONDS
    [ OK ]  release         Calico v3.32.1, 27 files, 2.44 KiB, sha256 DIGEST ok  SECONDS
    [ OK ]  kubernetes      kubelet.exe of Kubernetes v1.36.2, sha256 DIGEST  SECONDS
    [ OK ]  kubernetes      kube-proxy.exe of Kubernetes v1.36.2, sha256 DIGEST  SECONDS
    Settings:
      calico.version                v3.32.1
    ");
    assert!(is_ready(&lab, "win-a1"), "{screen}");
    lab.healthy();
    assert_eq!(
        lab.read("C/Program Files/Kubernetes/kubelet.exe"),
        "Stand-in for Kubernetes Windows v1.36.2, kubelet.exe"
    );

    // At each boot, and without the file for what needs no other release.
    let again = lab.fails_at(NO_NETWORK, &format!("{words} --bundle bundle.zip -o json")).exits(0).json();
    assert_eq!(again["changed"], false, "{again:#}");
    fs::remove_file(lab.path("bundle.zip")).unwrap();
    let debug = "reconfigure -y --set services.felixLogSeverity=debug";
    let _changed = lab.fails_at(NO_NETWORK, debug).exits(0);
    lab.healthy();
}

#[test]
fn the_verb_for_kubelet_and_kube_proxy_takes_a_bundle_and_so_does_its_run_without_a_session() {
    for detached in [false, true] {
        let lab = bare();
        lab.write("bundle.zip", whole());
        let config = config("      join: {tokenFile: token}\n").replace("      install: true\n", "");
        lab.write("node.yaml", config);
        let detach = if detached { "--detach" } else { "" };
        let words = format!("kubernetes install -c node.yaml -y --bundle bundle.zip {detach}");
        let _begun = lab.fails_at(NO_NETWORK, &words).exits(0);
        let _ended = lab.run("status --wait").exits(0);
        assert!(is_ready(&lab, "win-a1"), "detached: {detached}");
        lab.healthy();
    }
}

#[test]
fn a_node_is_upgraded_from_a_bundle_and_rolled_back() {
    let lab = Lab::installed();
    lab.write("bundle.zip", of_release("v3.33.0"));
    lab.linux_runs("v3.33.0");
    let plan = lab.run("plan --bundle bundle.zip --out plan.json -o json").exits(0).json();
    assert_ne!(plan["changes"].as_array().unwrap().len(), 0);
    // Without `--offline` it is the same.
    let _done = lab.fails_at(NO_NETWORK, "upgrade -y --bundle bundle.zip").exits(0);
    assert_eq!(lab.healthy()["calico_version"], "v3.33.0");
    let _back = lab.fails_at(NO_NETWORK, "rollback -y").exits(0);
    assert_eq!(lab.healthy()["calico_version"], "v3.32.1");
}

#[test]
fn the_digest_beside_a_bundle_or_on_the_command_line_counts() {
    let lab = Lab::node();
    let bytes = of_release("v3.32.1");
    let sha256 = calicoctl_win::values::Sha256::of(&bytes).to_string();
    lab.write("bundle.zip", bytes);
    let warns = |words: &str| {
        let plan = lab.run(&format!("plan --bundle bundle.zip -o json {words}")).exits(0).json();
        plan["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|warning| warning.as_str().unwrap().contains("bundle not verified"))
    };
    assert!(warns(""), "nothing says which file it must be");
    assert!(!warns(&format!("--sha256 {sha256}")));
    lab.write("bundle.zip.sha256", &sha256);
    assert!(!warns(""));
    lab.write("bundle.zip.sha256", self::sha256("another"));
    let refused = lab.run("plan --bundle bundle.zip -o json").exits(6).json();
    assert_eq!(refused["error"]["id"], "ReleaseDigest");
}

#[test]
fn the_same_parts_make_the_same_bytes() {
    let (one, other) = (whole(), whole());
    assert!(one == other, "the bundles differ");
    let mut zip = ZipArchive::new(std::io::Cursor::new(one)).unwrap();
    let names: Vec<String> = zip.file_names().map(|name| name.unwrap().into_owned()).collect();
    insta::assert_snapshot!(names.join("\n"), @r"
    calicoctl-win-bundle/SHA256SUMS
    calicoctl-win-bundle/bundle.json
    calicoctl-win-bundle/calico-windows-v3.32.1.zip
    calicoctl-win-bundle/calicoctl-win.exe
    calicoctl-win-bundle/images.txt
    calicoctl-win-bundle/kube-proxy.exe
    calicoctl-win-bundle/kubelet.exe
    ");
    for at in 0..zip.len() {
        let entry = zip.by_index(at).unwrap();
        assert_eq!(
            (entry.last_modified(), entry.unix_mode()),
            (Some(DateTime::default()), Some(0o100_644)),
            "{}",
            entry.name().unwrap()
        );
    }
    let mut text = |name: &str| {
        let mut text = String::new();
        zip.by_name(&format!("calicoctl-win-bundle/{name}")).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    insta::assert_snapshot!(text("bundle.json"), @r#"
    {
      "apiVersion": "calicoctl-win/v1alpha1",
      "kind": "Bundle",
      "arch": "amd64",
      "calico": "v3.32.1",
      "kubernetes": "v1.36.2"
    }
    "#);
    insta::assert_snapshot!(text("images.txt"), @"registry.k8s.io/e2e-test-images/agnhost:2.53");
}

#[test]
fn a_bundle_is_checked_on_arrival_and_never_overwritten() {
    let lab = Lab::new();
    lab.write("bundle.zip", whole());
    let seen = lab.bare("release verify bundle.zip -o json").exits(0).json();
    assert_eq!((&seen["files"], &seen["version"]), (&7.into(), &"v3.32.1".into()), "{seen:#}");
    let node = with_internet();
    let bundle = made(&node, "-c node.yaml");
    let before = fs::read(&bundle).unwrap();
    let again = node.run("release bundle -c node.yaml --out bundle.zip -o json").exits(25).json();
    assert_eq!(again["error"]["id"], "FileExists");
    assert!(before == fs::read(&bundle).unwrap());
    let would = node.run("release bundle -c node.yaml --out other.zip --dry-run").exits(0);
    assert!(would.stdout.contains("pack Calico v3.32.1, kubelet and kube-proxy v1.36.2 into other.zip"), "{would}");
    assert!(!node.path("other.zip").exists());
}

/// The programs are those of this workstation, and of another processor.
#[cfg(target_os = "linux")]
#[test]
fn a_bundle_has_no_program_for_another_system_or_processor() {
    let lab = Lab::node();
    let release = calicoctl_win::sandbox::release::SyntheticRelease::build(&"v3.32.1".parse().unwrap());
    lab.write("calico-windows-v3.32.1.zip", release);
    let words = "release bundle --release calico-windows-v3.32.1.zip --out bundle.zip";
    let refused = lab.bare(&format!("{words} -o json")).exits(15).json();
    assert_eq!(refused["error"]["id"], "BundleArchitecture");
    assert!(refused["error"]["what"].as_str().unwrap().contains("is for Linux"), "{refused:#}");

    let mut program = vec![0; 0x80];
    program[..2].copy_from_slice(b"MZ");
    program[0x3c] = 0x40;
    program[0x40..0x46].copy_from_slice(b"PE\0\0\x64\xaa");
    lab.write("calicoctl-win.exe", &program);
    let refused = lab.bare(&format!("{words} --executable calicoctl-win.exe -o json")).exits(15).json();
    assert!(refused["error"]["what"].as_str().unwrap().contains("is for Windows on arm64"), "{refused:#}");
    assert!(!lab.path("bundle.zip").exists());

    program[0x44..0x46].copy_from_slice(b"\x64\x86");
    lab.write("calicoctl-win.exe", &program);
    let _made = lab.bare(&format!("{words} --executable calicoctl-win.exe")).exits(0);
    let _whole = lab.bare("release verify bundle.zip").exits(0);
}
