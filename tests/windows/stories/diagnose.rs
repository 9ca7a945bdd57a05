//! `diagnose` on a running node, whose logs other programs have open.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;

use serde_json::Value;
use zip::ZipArchive;

use crate::house::{House, SOON, standin};
use crate::machine::eventually;

const LOGS: &str = r"ProgramData\calicoctl-win\logs\calico";

/// The files of a diagnosis, by their names without the folder.
fn files(house: &House, zip: &str) -> BTreeMap<String, String> {
    let mut zip = ZipArchive::new(File::open(house.machine.c(zip)).unwrap()).unwrap();
    let mut all = BTreeMap::new();
    for number in 0..zip.len() {
        let mut file = zip.by_index(number).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let (_, name) = file.name().unwrap().split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        all.insert(name, text);
    }
    all
}

/// A log shipper reads the log that Felix writes, and a virus scanner locks a rotated one.
#[test]
fn the_zip_has_rotated_logs_and_those_in_use_and_names_one_that_is_locked() {
    const LOCKED: &str = "calico-felix-20260103T150004.000.log";
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let log = |name: &str| house.machine.c(&format!(r"{LOGS}\{name}"));
    let now = |name: &str| format!(r"C:\{LOGS}\{name}");
    eventually("the log", SOON, || log("calico-felix.log").exists().then_some(()));
    for name in ["calico-felix-20260102T150004.000.log", LOCKED] {
        fs::write(log(name), format!("2026-01-02T15:00:04Z password=hunter2 in {name}\n")).unwrap();
    }
    let mut holders = Vec::new();
    for (name, how, file) in [("reader", "--read", "calico-felix.log"), ("locker", "--lock", LOCKED)] {
        house.machine.file(&format!("test/{name}.exe"), standin("kubelet.exe"));
        let program = format!(r"C:\test\{name}.exe");
        holders.push(house.machine.start_program(&program, &[how, &now(file)], &format!("test/{name}-said")));
        house.until_started(name, 1);
    }

    let said = house.run(r"diagnose --out C:\test\node.zip -o json").exits(0).json();
    assert_eq!(said["causes"], Value::Array(Vec::new()), "{said:#}");
    let missing = said["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{said:#}");
    assert_eq!(missing[0]["file"], format!("logs/{LOCKED}"), "{said:#}");
    // ERROR_SHARING_VIOLATION
    assert!(missing[0]["why"].as_str().unwrap().contains("os error 32"), "{said:#}");

    let files = files(&house, r"test\node.zip");
    let old = &files["logs/calico-felix-20260102T150004.000.log"];
    assert!(old.contains("password=*** in calico-felix"), "{old}");
    let felix = fs::read_to_string(log("calico-felix.log")).unwrap();
    let first = felix.lines().next().unwrap();
    assert!(files["logs/calico-felix.log"].contains(first), "{first}");
    let json = |name: &str| -> Value { serde_json::from_str(&files[name]).unwrap_or_else(|e| panic!("{name}: {e}")) };
    assert_eq!(json("status.json")["overall"], "Healthy");
    assert_eq!(json("receipts/1.json")["generation"], 1);
    assert_eq!(json("plan.json")["changes"], Value::Array(Vec::new()), "the node is as the config says");
    assert_eq!(json("cluster/nodes.json")["kind"], "Node");
    for (name, has) in [
        ("hns/networks.json", "Calico"),
        ("hns/endpoints.json", "Calico_ep"),
        ("services.json", "CalicoFelix"),
        ("routes.json", "0.0.0.0/0"),
        ("adapters.json", "vEthernet"),
        ("firewall-rules.json", "4789"),
        ("report.html", "vSwitch"),
    ] {
        assert!(files[name].contains(has), "{name} has no {has}: {}", files[name]);
    }
    for name in ["facts.json", "preflight.json", "history.json", "runs.json", "events.json", "plan.txt"] {
        assert!(files.contains_key(name), "{name}: {:?}", files.keys());
    }

    for (name, mut holder) in ["reader", "locker"].into_iter().zip(holders) {
        house.end(name, 0);
        holder.wait().unwrap();
    }
    let again = house.run(r"diagnose --out C:\test\again.zip -o json").exits(0).json();
    assert_eq!(again["missing"], Value::Array(Vec::new()), "{again:#}");
}
