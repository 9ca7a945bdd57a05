//! Drift of every kind is detected, shown with its current and its wanted state, and repaired.

use std::fs;

use serde_json::{Value, json};

use crate::lab::Lab;

const EXE: &str = "C/Program Files/calicoctl-win/calicoctl-win.exe";

fn replaced(lab: &Lab, from: &str, to: &str) {
    lab.edit_yaml(|yaml| yaml.replacen(from, to, 1));
}

fn overwritten(lab: &Lab, path: &str) {
    assert!(lab.on_node(path).exists(), "{path}");
    fs::write(lab.on_node(path), "somebody wrote here").unwrap();
}

/// `yaml` without the entry of this name, indented by two spaces, and its children.
fn without_entry(yaml: &str, name: &str) -> String {
    let mut inside = false;
    let kept = yaml.split_inclusive('\n').filter(|line| {
        let depth = line.len() - line.trim_start().len();
        if depth <= 2 {
            inside = depth == 2 && line.trim_start().starts_with(&format!("{name}:"));
        }
        !inside
    });
    kept.collect()
}

#[test]
fn every_kind_of_drift_is_shown_with_before_and_after_and_repaired() {
    type Harm = fn(&Lab);
    // The item, the damage, and words of the plan for the current and the wanted state.
    let harms: [(&str, Harm, &str); 14] = [
        (r"C:\CalicoWindows\config.ps1", |lab| overwritten(lab, "C/CalicoWindows/config.ps1"), "sha256"),
        (
            r"C:\CalicoWindows",
            |lab| overwritten(lab, "C/CalicoWindows/calico-node.exe"),
            "1 file changed: calico-node.exe -> release",
        ),
        (
            r"C:\CalicoWindows",
            |lab| fs::remove_file(lab.on_node("C/CalicoWindows/confd/conf.d/blocks.toml")).unwrap(),
            "-> release",
        ),
        (r"C:\Program Files\calicoctl-win\calicoctl-win.exe", |lab| overwritten(lab, EXE), "->"),
        (
            r"calico-ipam.exe",
            |lab| fs::remove_file(lab.on_node("C/Program Files/containerd/cni/bin/calico-ipam.exe")).unwrap(),
            "sha256",
        ),
        (r"10-calico.conf", |lab| overwritten(lab, "C/Program Files/containerd/cni/conf/10-calico.conf"), "->"),
        (
            "CalicoFelix",
            |lab| replaced(lab, "displayName: Calico Windows Agent", "displayName: Somebody's Agent"),
            "automatic",
        ),
        (
            "CalicoFelix",
            |lab| {
                let _stopped = lab.run("service stop -y").exits(0);
                lab.edit_yaml(|yaml| without_entry(yaml, "CalicoFelix"));
            },
            "automatic",
        ),
        ("CalicoFelix", |lab| replaced(lab, "    pid: 4004\n", ""), "start"),
        (
            r"HKLM\Software\Tigera\Calico\InstalledBy",
            |lab| replaced(lab, "data: calicoctl-win", "data: somebody"),
            "\"somebody\" -> \"calicoctl-win\"",
        ),
        (
            "kubectl exec 10250",
            |lab| replaced(lab, "localPorts: \"10250\"", "localPorts: \"10251\""),
            "inbound TCP 10251 -> inbound TCP 10250",
        ),
        (
            "Overlay Traffic 4789 UDP",
            |lab| lab.edit_yaml(|yaml| without_entry(yaml, "Overlay Traffic 4789 UDP")),
            "inbound UDP 4789",
        ),
        ("Calico", |lab| replaced(lab, "vsid: 4096", "vsid: 4097"), "VSID 4097"),
        ("Calico", |lab| lab.edit_yaml(|yaml| without_entry(yaml, "Calico")), "VSID 4096"),
    ];
    for (target, harm, words) in harms {
        let lab = Lab::installed();
        let before = lab.picture_without_state();
        harm(&lab);
        let status = lab.run("status -o json").exits(12).json();
        assert!(!status["drift"].as_array().unwrap().is_empty(), "{target}: {status}");
        let shown = lab.run("repair --dry-run").exits(0).stdout;
        assert!(shown.contains(target) && shown.contains(words), "{target}: no `{words}` in\n{shown}");
        let repaired = lab.run("repair -y -o json").exits(0).json();
        assert_eq!((&repaired["changed"], &repaired["generation"]), (&json!(true), &json!(2)), "{target}: {repaired}");
        assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy", "{target}");
        if words != "VSID 4096" && words != "VSID 4097" {
            lab.picture_without_state().without_logs().only_disk().same_as(&before.without_logs().only_disk());
        }
        let _gone = lab.run("uninstall --purge -y").exits(0);
        lab.picture().says_the_same_as(&Lab::node().picture());
    }
}

/// A kubeconfig that users may read exposes the node's token.
#[cfg(unix)]
#[test]
fn widened_access_is_removed() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::installed();
    let file = lab.on_node("C/CalicoWindows/calico-kube-config");
    let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let shown = lab.run("repair --dry-run").exits(0).stdout;
    assert!(shown.contains("SYSTEM and Administrators only"), "{shown}");
    let _mended = lab.run("repair -y").exits(0);
    assert_eq!(mode(), 0o600);
    assert_eq!(lab.run("status -o json").exits(0).json()["drift"], json!([]));
}

/// What does not affect the pods' network needs no drain, and items of other products are not checked.
#[test]
fn a_repair_moves_no_pods_without_need_and_changes_nothing_of_other_products() {
    let lab = Lab::installed();
    lab.edit_yaml(|yaml| {
        yaml.replacen("networks:\n", "networks:\n  azure: {id: 0c, kind: L2Bridge, subnet: 10.1.0.0/16}\n", 1).replacen(
            "registry:\n",
            "registry:\n  SOFTWARE\\Contoso:\n    Edited: {type: dword, data: 3}\n",
            1,
        )
    });
    assert_eq!(lab.run("status -o json").exits(0).json()["drift"], json!([]));
    overwritten(&lab, "C/CalicoWindows/config.ps1");
    overwritten(&lab, "C/CalicoWindows/calico-node.exe");
    let lines = lab.run("repair -y -o ndjson").exits(0).ndjson();
    let phases: Vec<&Value> =
        lines.iter().filter(|line| line["type"] == "phase_start").map(|line| &line["phase"]["id"]).collect();
    assert!(!phases.iter().any(|phase| *phase == "drain" || *phase == "hns-network"), "{phases:?}");
    let yaml = lab.read("node.yaml");
    assert!(yaml.contains("azure") && yaml.contains("Contoso"), "{yaml}");
}

/// What the store and the cache have is not downloaded: the site may not answer, and the cluster is not needed.
#[test]
fn a_damaged_program_is_restored_from_the_machine_if_possible() {
    let lab = Lab::installed();
    let program = fs::read(lab.on_node("C/CalicoWindows/calico-node.exe")).unwrap();
    let plugin = "C/Program Files/containerd/cni/bin/calico.exe";
    for away in ["release 404", "release 404; api down"] {
        overwritten(&lab, plugin);
        // Without the cluster, CalicoNode could not start with the new program.
        if !away.contains("api") {
            overwritten(&lab, "C/CalicoWindows/calico-node.exe");
        }
        // Only what was changed is reported, and not the consequences in a repair.
        let status = lab.run("status").exits(12);
        let changed = if away.contains("api") { "" } else { r"release C:\CalicoWindows, " };
        let plugin = r"file C:\Program Files\containerd\cni\bin\calico.exe";
        let told = |line: &str| {
            let list = line.strip_prefix("! changed since the last run: ")?;
            let mut list: Vec<&str> = list.split(", ").collect();
            list.sort_unstable_by(|a, b| b.cmp(a));
            Some(list.join(", "))
        };
        let told = status.stdout.lines().find_map(told).unwrap_or_default();
        assert_eq!(told, format!("{changed}{plugin}"), "{status}");
        assert!(status.stdout.contains("calicoctl-win repair"), "{status}");
        let lines = lab.fails_at(away, "repair -y -o ndjson").exits(0).ndjson();
        let fetches = |line: &Value| {
            let phase = line["phase"]["id"].as_str().unwrap_or_default();
            phase == "cluster" || line["type"].as_str().unwrap().starts_with("download")
        };
        assert!(!lines.iter().any(fetches), "{away}");
        assert_eq!(fs::read(lab.on_node("C/CalicoWindows/calico-node.exe")).unwrap(), program);
        assert_eq!(lab.run("status -o json").exits(0).json()["drift"], json!([]), "{away}");
    }

    // The named zip, if nothing was downloaded.
    let named = Lab::node();
    let cache = fs::read_dir(lab.path("node/cache")).unwrap().map(|entry| entry.unwrap().path());
    let zip = cache.into_iter().find(|path| path.extension().is_some_and(|end| end == "zip")).unwrap();
    fs::copy(zip, named.path("calico-windows-v3.32.1.zip")).unwrap();
    let _there = named.run("install -y --release calico-windows-v3.32.1.zip").exits(0);
    overwritten(&named, "C/CalicoWindows/calico-node.exe");
    let _mended = named.fails_at("release 404", "repair -y").exits(0);
    overwritten(&named, "C/CalicoWindows/calico-node.exe");
    fs::remove_file(named.path("calico-windows-v3.32.1.zip")).unwrap();
    let lost = named.fails_at("release 404", "repair -y -o json").exits(6).json();
    assert_eq!(lost["error"]["id"], "ReleaseNotFound", "{lost}");
}

#[test]
fn an_interrupted_repair_has_no_earlier_state_to_return_to_and_says_so() {
    let lab = Lab::installed();
    let whole = lab.read("C/CalicoWindows/config.ps1");
    lab.write("node/C/CalicoWindows/config.ps1", format!("{whole}# drift\n"));
    let _killed = lab.fails_at("put *#1=exit-after", "repair -y").exits(137);
    let undone = lab.run("resume --undo -y -o json").exits(0).json();
    assert_eq!(
        undone["msg"],
        "A repair restores the current generation, so there is nothing to undo: the node is as generation 1 made it."
    );
    assert_eq!(lab.read("C/CalicoWindows/config.ps1"), whole);
}

#[test]
fn a_tampered_binary_of_the_release_is_not_stored() {
    let lab = Lab::installed();
    let copies = ["C/CalicoWindows/cni/calico.exe", "C/Program Files/containerd/cni/bin/calico.exe"];
    let good = lab.read(copies[1]);
    // In place, like an editor or malware: the store must have a separate copy.
    for path in copies {
        overwritten(&lab, path);
    }
    let _repaired = lab.run("install -y").exits(0);
    for path in copies {
        assert_eq!(lab.read(path), good, "{path}");
    }
}

#[test]
fn a_damaged_store_is_repaired_and_not_published() {
    let lab = Lab::installed();
    for blob in fs::read_dir(lab.on_node("C/ProgramData/calicoctl-win/store/blobs")).unwrap() {
        fs::write(blob.unwrap().path(), "rotten").unwrap();
    }
    let conf = "C/Program Files/containerd/cni/conf/10-calico.conf";
    fs::remove_file(lab.on_node("C/Program Files/containerd/cni/bin/calico.exe")).unwrap();
    fs::remove_file(lab.on_node(conf)).unwrap();
    let _repaired = lab.run("install -y").exits(0);
    assert!(lab.read(conf).contains("\"calico\""));
    assert_eq!(lab.run("install -y -o json").exits(0).json()["changed"], false);
}
