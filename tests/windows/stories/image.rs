//! A machine image, made from one file: what it has, and what becomes of it at the first boot.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::house::House;
use crate::picture::Picture;

const BUNDLE: &str = r"C:\test\bundle.zip";

/// What this program and Calico have on the machine.
const FOLDERS: [&str; 3] = [r"ProgramData\calicoctl-win", "CalicoWindows", r"Program Files\calicoctl-win"];

/// What `reg` shows of a value of the registry.
fn registry(house: &House, key: &str, name: &str) -> Option<String> {
    let said = house.machine.run_program("reg", &["query", key, "/v", name]);
    let line = said.stdout.lines().find(|line| line.trim_start().starts_with(name))?.to_owned();
    line.split_whitespace().last().map(str::to_owned)
}

/// How Windows starts a service: 4 is disabled.
fn start(house: &House, service: &str) -> Option<String> {
    registry(house, &format!(r"HKLM\System\CurrentControlSet\Services\{service}"), "Start")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// The files that name what only this machine is, of which Sysprep and another hypervisor make something else.
fn of_this_machine(house: &House) -> Vec<String> {
    let machine = registry(house, r"HKLM\Software\Microsoft\Cryptography", "MachineGuid").unwrap();
    let name = house.machine.run_program("cmd", &["/c", "echo %COMPUTERNAME%"]).stdout.trim().to_lowercase();
    assert!(machine.len() > 30 && name.len() > 1, "{machine} {name}");
    let own = [machine.to_lowercase(), format!("\"{name}\""), "10.20.0.21".into()];
    let mut all = Vec::new();
    FOLDERS.iter().for_each(|folder| files(&house.machine.c(folder), &mut all));
    all.retain(|path| {
        let bytes = fs::read(path).unwrap();
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        // Programs are the same everywhere.
        !bytes.starts_with(b"MZ") && own.iter().any(|own| text.contains(own))
    });
    all.iter().map(|path| path.display().to_string()).collect()
}

#[test]
fn a_machine_becomes_an_image_from_a_bundle_and_a_node_at_its_first_boot() {
    let Some(house) = House::new() else { return };
    let machine = &house.machine;
    machine.run(&["release", "bundle", "--release", &house.release, "--out", BUNDLE]).exits(0);
    fs::remove_file(machine.c("calico-windows-v3.32.1.zip")).unwrap();
    let image = machine.file("test/image.yaml", "spec: {calico: {version: v3.32.1}}\n");
    let before = Picture::take(machine);

    let prepare = ["install", "--prepare", "--yes", "-c", &image, "--bundle", BUNDLE, "--offline", "-o", "json"];
    let prepared = machine.run(&prepare).exits(0).json();
    assert_eq!((&prepared["changed"], &prepared["reboot_required"]), (&json!(true), &json!(false)), "{prepared:#}");
    for service in ["CalicoNode", "CalicoFelix"] {
        assert_eq!(start(&house, service).as_deref(), Some("0x4"), "{service} is disabled");
    }
    assert!(house.hns().is_empty(), "no network is made: {:#?}", house.hns());
    assert_eq!(house.run("status -o json").exits(16).json()["overall"], "Prepared");
    assert_eq!(of_this_machine(&house), Vec::<String>::new());
    assert_eq!(registry(&house, r"HKLM\Software\Tigera\Calico", "BootId"), None, "no boot is recorded");

    // The machine that is made of it has nothing else, and starts nothing of it before its config is there.
    fs::remove_file(house.test_file("bundle.zip")).unwrap();
    machine.cut_power();
    machine.power_on();
    assert_eq!(house.run("status -o json").exits(16).json()["overall"], "Prepared");
    machine.run(&["apply", "--yes", "-c", &house.config, "--offline"]).exits(0);
    let status = house.until_healthy();
    assert_eq!(status["generation"], 2, "{status:#}");
    assert_eq!(start(&house, "CalicoFelix").as_deref(), Some("0x2"), "it starts with the machine");
    assert!(!of_this_machine(&house).is_empty(), "a node's records name it");

    house.run("uninstall --purge --yes").exits(0);
    machine.until_gone("calico-node.exe");
    Picture::take(machine).same_as(&before);
}
