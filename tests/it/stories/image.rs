//! A machine image: prepared once, generalized, and started as machines with other names, addresses and adapters.

use std::fs;

use serde_json::Value;

use super::bundle::whole;
use super::kubernetes::{bare, is_ready};
use crate::lab::Lab;

/// Nothing answers: a run that asks the cluster or a mirror fails.
const NO_NETWORK: &str = "api down;release 404";

/// What only this machine has: its name, address and MAC, in every spelling.
const IDENTITY: [&str; 6] =
    ["win-a1", "WIN-A1", "10.20.0.21", "00-15-5D-14-00-15", "00:15:5d:14:00:15", "00155d140015"];

const CONFIG: &str = "apiVersion: calicoctl-win/v1alpha1
kind: NodeInstallation
spec:
  calico: {version: v3.32.1}
  kubernetes:
    node:
      install: true
      version: v1.36.2
";

/// A machine with only containerd, which becomes an image from a bundle.
fn prepared() -> Lab {
    let lab = bare();
    lab.write("bundle.zip", whole());
    lab.write("image.yaml", CONFIG);
    let _prepared = lab.fails_at(NO_NETWORK, "install --prepare -y -c image.yaml --bundle bundle.zip").exits(0);
    for file in ["bundle.zip", "image.yaml"] {
        fs::remove_file(lab.path(file)).unwrap();
    }
    fs::remove_dir_all(lab.path("v1.36.2")).unwrap();
    lab
}

/// What Sysprep and another hypervisor make of it: another name, adapter, address and boot.
fn generalize(lab: &Lab) {
    lab.edit_yaml(|yaml| {
        yaml.replace("hostName: win-a1", "hostName: win-b7")
            .replace("00-15-5D-14-00-15", "00-15-5D-77-00-07")
            .replace("10.20.0.21", "10.20.0.47")
            .replace("boot-1", "boot-7")
    });
}

/// The parts of the machine that are not files or services.
fn network(lab: &Lab) -> Value {
    let mut machine = serde_json::to_value(lab.model()).unwrap();
    machine.as_object_mut().unwrap().remove("services").unwrap();
    machine
}

#[track_caller]
fn names_no_machine(lab: &Lab) {
    let picture = lab.picture();
    for text in IDENTITY {
        // That file is the machine itself.
        let mut files = picture.files_with(text);
        files.retain(|name| name != "node.yaml");
        assert_eq!(files, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn an_image_has_everything_but_what_is_of_one_machine() {
    let lab = bare();
    let before = lab.picture_without_state();
    let machine = network(&lab);
    lab.write("bundle.zip", whole());
    lab.write("image.yaml", CONFIG);
    let cluster = lab.objects();
    let words = "install --prepare -y -c image.yaml --bundle bundle.zip";
    insta::assert_snapshot!(lab.fails_at(NO_NETWORK, words).exits(0).screen(), @r"
    calicoctl-win VERSION on an image: Windows Server 2022 build 20348.2700, containerd 1.7.27
    [WARN]  ReleaseNotPinned: bundle not verified: give the SHA-256 of bundle.zip with --sha256, or in the file bundle.zip.sha256
    [ OK ]  bundle          Calico v3.32.1, Kubernetes v1.36.2 from bundle.zip, sha256 DIGEST  SECONDS
    [ OK ]  release         Calico v3.32.1, 27 files, 2.44 KiB, sha256 DIGEST ok  SECONDS
    [ OK ]  kubernetes      kubelet.exe of Kubernetes v1.36.2, sha256 DIGEST  SECONDS
    [ OK ]  kubernetes      kube-proxy.exe of Kubernetes v1.36.2, sha256 DIGEST  SECONDS
    Disruption: none.
    Takes about 3 s.

      +   folder   C:\Program Files\calicoctl-win                    others may only read
      +   folder   C:\Program Files\Kubernetes                       others may only read
      +   release  C:\CalicoWindows                                  release DIGEST
      +   file     C:\Program Files\calicoctl-win\calicoctl-win.exe  sha256 DIGEST
      +   file     C:\Program Files\Kubernetes\kube-proxy.exe        sha256 DIGEST
      +   file     C:\Program Files\Kubernetes\kubelet.exe           sha256 DIGEST
      +   service  CalicoFelix                                       disabled, LocalSystem, after CalicoNode
      +   service  CalicoNode                                        disabled, LocalSystem
      +   service  kube-proxy                                        disabled, LocalSystem
      +   service  kubelet                                           disabled, LocalSystem
    Plan: 10 to create, 0 to update, 0 to delete.
    [ 1/3]  release         calicoctl-win, Kubernetes, CalicoWindows  SECONDS
    [ 2/3]  files           calicoctl-win.exe, kube-proxy.exe, kubelet.exe  SECONDS
    [ 3/3]  services        CalicoFelix, CalicoNode, kube-proxy, kubelet  SECONDS
    Calico v3.32.1 is in place, and its services are disabled: this machine can be made an image.
    On each machine made from it: calicoctl-win apply -c FILE
    result: OK (exit 0) changed=true reboot=false log=node/C/ProgramData/calicoctl-win/logs/RUN.log
    ");
    insta::assert_snapshot!(lab.fails_at(NO_NETWORK, "status").exits(16).screen(), @r"
    OVERALL: PREPARED   Calico v3.32.1
     COMPONENT    STATE    DETAIL
     CalicoNode   Stopped
     CalicoFelix  Stopped
     kubelet      Stopped
     kube-proxy   Stopped
     HNS nat      NAT
    Make it a node: calicoctl-win apply -c FILE --sandbox node
    result: NOT_INSTALLED (exit 16) changed=false reboot=false
    ");
    assert_eq!(lab.run("status -o json").exits(16).json()["overall"], "Prepared");
    assert_eq!(network(&lab), machine, "no network, route, rule or registry value is changed");
    assert!(lab.objects() == cluster, "the cluster is not changed");
    names_no_machine(&lab);
    for (path, text) in [
        ("C/Program Files/Kubernetes/kubelet.exe", "v1.36.2"),
        ("C/Program Files/calicoctl-win/calicoctl-win.exe", "calicoctl-win"),
        ("C/CalicoWindows/calico-node.exe", "v3.32.1"),
    ] {
        assert!(lab.read(path).contains(text), "{path}");
    }
    let services: Value = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    for name in ["CalicoNode", "CalicoFelix", "kubelet", "kube-proxy"] {
        let service = &services["services"][name];
        assert_eq!((&service["definition"]["start"], &service["pid"]), (&"disabled".into(), &Value::Null), "{name}");
    }
    for path in ["C/CalicoWindows/config.ps1", "C/CalicoWindows/nodename", "C/ProgramData/calicoctl-win/journal.jsonl"]
    {
        assert!(!lab.on_node(path).exists(), "{path}");
    }

    let again = lab.fails_at(NO_NETWORK, &format!("{words} -o json")).exits(0).json();
    assert_eq!(again["changed"], false, "{again:#}");
    let _removed = lab.run("uninstall -y").exits(0);
    lab.picture_without_state().same_as(&before);
    assert_eq!(lab.run("status -o json").exits(16).json()["overall"], "NotInstalled");
}

#[test]
fn a_machine_made_from_an_image_becomes_a_node_by_one_apply_without_downloads() {
    let lab = prepared();
    generalize(&lab);
    lab.write("node.yaml", format!("{CONFIG}      join: {{tokenFile: token}}\n"));
    let plan = lab.run("plan -c node.yaml -o json").exits(0).json();
    let creates = |target: &str| {
        let mut changes = plan["changes"].as_array().unwrap().iter();
        changes.any(|change| change["target"] == target && change["action"] == "create")
    };
    assert!(!creates(r"C:\CalicoWindows") && !creates(r"C:\Program Files\Kubernetes\kubelet.exe"), "{plan:#}");
    assert!(creates(r"C:\CalicoWindows\nodename"), "{plan:#}");
    let _done = lab.fails_at("release 404", "apply -c node.yaml -y").exits(0);
    let node = lab.object("nodes", "win-b7").expect("it joined with its own name");
    assert!(lab.object("nodes", "win-a1").is_none());
    assert!(is_ready(&lab, "win-b7"), "{node:#}");
    assert_eq!(lab.read("C/CalicoWindows/nodename"), "win-b7");
    assert_eq!(lab.healthy()["generation"], 2);
    names_no_machine(&lab);
    let _removed = lab.run("uninstall -y").exits(0);
    assert!(!lab.on_node("C/CalicoWindows").exists());
    assert!(!lab.read("node.yaml").contains("CalicoNode"));
}

/// kubelet comes with the image, from another product.
#[test]
fn a_failed_first_boot_leaves_the_image_and_the_next_one_succeeds() {
    let lab = Lab::node();
    let _prepared = lab.run("install --prepare -y").exits(0);
    generalize_node(&lab);
    let checked = lab.run("preflight -o json").exits(0).json();
    let earlier = checked["checks"].as_array().unwrap().iter().find(|check| check["id"] == "NoEarlierInstall").unwrap();
    assert_eq!(earlier["status"], "ok", "what the image has is this program's own: {earlier:#}");
    let before = lab.picture_without_state();
    let failed = lab.fails_at("put service CalicoFelix=fail", "apply -y -o json").exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed:#}");
    lab.picture_without_state().same_as(&before);
    assert_eq!(lab.run("status -o json").exits(16).json()["overall"], "Prepared");
    let _done = lab.run("apply -y").exits(0);
    lab.healthy();
}

fn generalize_node(lab: &Lab) {
    // Its cluster knows it by its name already.
    lab.edit_yaml(|yaml| yaml.replace("boot-1", "boot-7"));
}

#[test]
fn an_interrupted_preparation_is_resumed_or_undone_and_names_no_machine() {
    for (end, overall) in [("resume -y", "Prepared"), ("resume -y --undo", "NotInstalled")] {
        let lab = Lab::node();
        let before = lab.picture_without_state();
        let _killed = lab.fails_at("put *#4=exit-after", "install --prepare -y").exits(137);
        names_no_machine(&lab);
        assert_eq!(lab.run("status -o json").exits(12).json()["overall"], "Failed");
        let _ended = lab.run(end).exits(0);
        assert_eq!(lab.run("status -o json").exits(16).json()["overall"], overall);
        names_no_machine(&lab);
        if overall == "NotInstalled" {
            lab.picture_without_state().same_as(&before);
        }
        // It may be prepared after that.
        let _prepared = lab.run("install --prepare -y").exits(0);
        names_no_machine(&lab);
    }
}

#[test]
fn what_is_changed_in_an_image_is_named_and_prepared_again() {
    let lab = Lab::node();
    let _prepared = lab.run("install --prepare -y").exits(0);
    fs::write(lab.on_node("C/CalicoWindows/calico-node.exe"), "another").unwrap();
    insta::assert_snapshot!(lab.run("status").exits(16).screen(), @r"
    OVERALL: PREPARED   Calico v3.32.1
    ! changed since it was prepared: release C:\CalicoWindows
        calicoctl-win install --prepare --sandbox node
     COMPONENT    STATE    DETAIL
     CalicoNode   Stopped
     CalicoFelix  Stopped
     HNS nat      NAT
    Make it a node: calicoctl-win apply -c FILE --sandbox node
    result: NOT_INSTALLED (exit 16) changed=false reboot=false
    ");
    let _again = lab.run("install --prepare -y").exits(0);
    assert_eq!(lab.run("status -o json").exits(16).json()["drift"], serde_json::json!([]));
    let _newer = lab.run("install --prepare -y --release v3.33.0").exits(0);
    assert_eq!(lab.run("status -o json").exits(16).json()["calico_version"], "v3.33.0");
}

#[test]
fn a_machine_that_is_or_was_a_node_is_no_image() {
    let lab = Lab::installed();
    let refused = |lab: &Lab| lab.run("install --prepare -y -o json").exits(13).json()["error"].clone();
    let node = refused(&lab);
    assert_eq!(node["id"], "NotAnImage");
    assert!(!node.to_string().contains("uninstall"), "Calico runs here: {node}");
    let _removed = lab.run("uninstall -y").exits(0);
    let records = refused(&lab);
    assert_eq!(records["id"], "NotAnImage", "its records name the machine");
    assert!(records["hint"].as_str().unwrap().contains("uninstall --purge"), "{records}");
    let _purged = lab.run("uninstall -y --purge").exits(0);
    let _prepared = lab.run("install --prepare -y").exits(0);
    names_no_machine(&lab);

    // A failed install leaves a log.
    let lab = Lab::node();
    let _failed = lab.fails_at("api down", "install -y").code;
    assert!(refused(&lab)["what"].as_str().unwrap().contains("the log of `install`"));

    let lab = Lab::node();
    let services = super::adoption::nssm("CalicoNode", "node", "", Some(3108));
    lab.edit_yaml(|yaml| yaml.replacen("services:\n", &format!("services:\n{services}"), 1));
    assert!(refused(&lab)["what"].as_str().unwrap().contains("the service CalicoNode of another program"));
}

/// The commands of the example, on a sandbox.
#[test]
fn the_packer_example_makes_an_image() {
    let lab = bare();
    let bundle = whole();
    let sha256 = calicoctl_win::values::Sha256::of(&bundle).to_string();
    lab.write("bundle.zip", bundle);
    let config = crate::read("packaging/packer/image.yaml").replace("v1.33.4", "v1.36.2");
    lab.write("image.yaml", config);
    let _valid = lab.bare("config validate image.yaml").exits(0);
    let example = crate::read("packaging/packer/windows-node.pkr.hcl");
    let commands: Vec<String> = example
        .lines()
        .filter_map(|line| line.split_once(r"C:\\calico-setup\\calicoctl-win.exe ")?.1.split(['"', ';']).next())
        .map(|words| words.replace(r"C:\\calico-setup\\", "").replace("${var.bundle_sha256}", &sha256))
        .filter(|words| !words.is_empty())
        .collect();
    let [prepare, status] = commands.as_slice() else { panic!("{commands:?}") };
    let _prepared = lab.fails_at(NO_NETWORK, prepare).exits(0);
    assert!(example.contains("valid_exit_codes = [16]"));
    let shown = lab.run(status).exits(16);
    assert!(shown.stdout.starts_with("OVERALL: PREPARED   Calico v3.32.1\n"), "{shown}");
}
