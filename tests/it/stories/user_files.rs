//! Files that users have in or at the folders of Calico and of this program.

use std::fs;
use std::io::{Cursor, Write as _};

use calicoctl_win::sandbox::release::SyntheticRelease;
use calicoctl_win::version::CalicoVersion;
use serde_json::Value;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::lab::Lab;

/// The kept files: their path in the release, and their text.
fn kept(lab: &Lab) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let releases = fs::read_dir(lab.on_node("C/ProgramData/calicoctl-win/kept")).unwrap();
    let mut folders: Vec<_> = releases.map(|release| (release.unwrap().path(), String::new())).collect();
    while let Some((folder, below)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = format!("{below}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                folders.push((entry.path(), name));
            } else {
                found.push((name, fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// The messages of the warnings with this id.
fn warned<'a>(lines: &'a [Value], id: &str) -> Vec<&'a str> {
    let with_id = lines.iter().filter(|line| line["id"] == id);
    with_id.map(|line| line["message"].as_str().unwrap()).collect()
}

#[test]
fn added_and_edited_files_are_kept_named_and_never_overwritten() {
    let lab = Lab::installed();
    for round in ["first", "second"] {
        lab.write("node/C/CalicoWindows/notes/mine.txt", round);
        lab.write("node/C/CalicoWindows/ipam.lock", "Calico's own");
        let edited = format!("{}\n# {round}\n", lab.read("C/CalicoWindows/install-calico.ps1"));
        lab.write("node/C/CalicoWindows/install-calico.ps1", edited);
        let removed = lab.run("uninstall -y -o ndjson").exits(0).ndjson();
        let kept = warned(&removed, "FilesKept");
        assert!(kept.len() == 1 && kept[0].contains(r"C:\ProgramData\calicoctl-win\kept\"), "{kept:?}");
        let _again = lab.run("install -y").exits(0);
    }
    let kept = kept(&lab);
    let told: Vec<String> =
        kept.iter().map(|(name, text)| format!("{name}: {}", text.split_whitespace().last().unwrap())).collect();
    assert_eq!(
        told,
        [
            "/install-calico.ps1: first",
            "/install-calico.ps1: second",
            "/notes/mine.txt: first",
            "/notes/mine.txt: second"
        ]
    );
}

#[test]
fn a_folder_of_another_product_is_never_moved_aside_for_the_release() {
    let lab = Lab::node();
    lab.write("node/C/Users/admin/report.txt", "precious");
    let before = lab.picture_without_state();
    let refused = lab.run(r"install -y -o json --set calico.rootDir=C:\Users").exits(3).json();
    let checks = refused["error"]["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["id"] == "RootFolder"), "{refused:#}");
    lab.picture_without_state().same_as(&before);
    fs::create_dir(lab.on_node("C/Empty")).unwrap();
    let _done = lab.run(r"install -y --set calico.rootDir=C:\Empty").exits(0);
}

/// The install writes these itself, and found only with running services that it could not.
#[test]
fn a_release_that_was_packed_from_a_node_is_installed_without_that_nodes_files() {
    let mut zip = ZipWriter::new_append(Cursor::new(SyntheticRelease::build(&CalicoVersion::new(3, 32, 1)))).unwrap();
    for name in ["nodename", "calico-kube-config"] {
        zip.start_file(format!("CalicoWindows/{name}"), SimpleFileOptions::default()).unwrap();
        zip.write_all(b"of another node").unwrap();
    }
    let lab = Lab::node();
    lab.write("calico-windows-v3.32.1.zip", zip.finish().unwrap().into_inner());
    let lines = lab.run("install -y --release calico-windows-v3.32.1.zip -o ndjson").exits(0).ndjson();
    let named = ["the release has files of a node, which are left out: nodename, calico-kube-config"];
    assert_eq!(warned(&lines, "ReleaseOfANode"), named);
    assert_eq!(lab.read("C/CalicoWindows/nodename"), "win-a1");
    assert_eq!(lab.picture().files_with("of another node"), Vec::<String>::new());
    assert_eq!(lab.status()["overall"], "Healthy");
}

/// Calico's configuration is a file of that name, which is written last, when the services run.
#[test]
fn a_folder_with_the_name_of_the_cni_configuration_is_found_before_any_change() {
    let lab = Lab::node();
    let folder = lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf");
    fs::create_dir_all(&folder).unwrap();
    let before = lab.picture_without_state();
    let refused = lab.run("install -y -o json").exits(3).json();
    let checks = refused["error"]["checks"].as_array().unwrap();
    let [check] = checks.as_slice() else { panic!("{refused:#}") };
    assert_eq!(check["id"], "CniConfig");
    assert!(check["detail"].as_str().unwrap().starts_with("10-calico.conf in the CNI folder is a folder"), "{check}");
    lab.picture_without_state().same_as(&before);

    // Nor does such a folder give pods a network, which the rollback could not delete then.
    let failed = lab.run("install -y -o json --ignore-preflight-errors CniConfig").exits(9).json();
    assert_eq!(failed["rolled_back"], true, "{failed:#}");
    lab.picture_without_state().same_as(&before);
    fs::remove_dir(&folder).unwrap();
    let _fine = lab.run("install -y").exits(0);
}

#[test]
fn a_config_of_the_administrator_survives_a_purge() {
    let lab = Lab::node();
    let state = "C/ProgramData/calicoctl-win";
    let config = "apiVersion: calicoctl-win/v1alpha1\nkind: NodeInstallation\n";
    lab.write("node/C/ProgramData/calicoctl-win/config.yaml", config);
    let (before, rest) = (lab.picture(), lab.picture_without_state());
    let _done = lab.run("install -y").exits(0);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture_without_state().same_as(&rest);
    assert_eq!(lab.picture().names(state), before.names(state));
    assert_eq!(lab.read("C/ProgramData/calicoctl-win/config.yaml"), config);
}

#[test]
fn an_unreadable_config_of_the_administrator_is_an_error() {
    let lab = Lab::node();
    lab.write("node/C/ProgramData/calicoctl-win/config.yaml", b"kind: \xff\xfe");
    let refused = lab.run("install -y -o json").exits(4).json();
    assert_eq!(refused["error"]["id"], "ConfigUnreadable", "{refused:#}");
}

#[test]
fn a_purge_without_receipts_keeps_the_folder_from_before_the_install() {
    let lab = Lab::node();
    lab.write("node/C/CalicoWindows/mine.txt", "precious");
    let _done = lab.run("install -y").exits(0);
    fs::remove_dir_all(lab.on_node("C/ProgramData/calicoctl-win/receipts")).unwrap();
    let refused = lab.run("uninstall --purge -y -o json").exits(13).json();
    assert_eq!(refused["error"]["id"], "StoreHoldsOriginal", "{refused:#}");
    assert_eq!(lab.read("C/ProgramData/calicoctl-win/store/trees/foreign/mine.txt"), "precious");
}

#[test]
fn other_files_in_calicos_folder_are_not_deleted_with_it() {
    let lab = Lab::installed();
    lab.write("node/C/CalicoWindows/tls/client.key", "precious");
    let _upgraded = lab.run("install -y --release v3.33.0").exits(0);
    let _gone = lab.run("uninstall -y").exits(0);
    let key = [("/tls/client.key".to_owned(), "precious".to_owned())];
    assert_eq!(kept(&lab), key);
    let _again = lab.run("install -y").exits(0);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    assert_eq!(kept(&lab), key);
    // The folder from before the install also remains if no record names its owner.
    lab.write("node/C/CalicoWindows/mine.txt", "precious");
    let _done = lab.run("install -y").exits(0);
    fs::remove_dir_all(lab.on_node("C/ProgramData/calicoctl-win/receipts")).unwrap();
    let _upgraded = lab.run("install -y --release v3.33.0").exits(0);
    assert_eq!(lab.read("C/ProgramData/calicoctl-win/store/trees/foreign/mine.txt"), "precious");
}

#[test]
fn calicos_logs_survive_an_upgrade_and_an_uninstall() {
    let lab = Lab::installed();
    lab.write("node/C/CalicoWindows/logs/felix/felix.log", "first release");
    let _upgraded = lab.run("install -y --release v3.33.0").exits(0);
    lab.write("node/C/CalicoWindows/logs/felix/felix.log", "second release");
    let _gone = lab.run("uninstall -y").exits(0);
    for text in ["first release", "second release"] {
        let files = lab.picture().files_with(text);
        assert!(files.iter().any(|name| name.contains("/felix.log ")), "{text}: {files:?}");
    }
}
