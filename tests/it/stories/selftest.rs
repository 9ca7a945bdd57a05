//! `selftest`: every row holds on a sandbox, each is seen to fail when Windows is otherwise, and nothing is left.

use std::collections::BTreeSet;

use calicoctl_win::selftest::{Reach, rows};
use serde_json::Value;

use crate::lab::{Lab, Output};

/// How a sandbox is made unlike Windows, and the one row that says so.
const BROKEN: [(&str, &str); 37] = [
    ("windows boot-id-changes", "BootId"),
    ("list adapters=fail", "AdapterTable"),
    ("list containers=fail", "ContainerList"),
    ("windows hns-is-old", "HnsVersion"),
    ("windows hns-vsid-is-text", "HnsNetworks"),
    ("windows hns-hides-from-v2", "HnsNetworksByV2"),
    ("windows hns-state-is-text", "HnsEndpoints"),
    ("windows hns-references-are-objects", "HnsPolicyLists"),
    ("windows hns-has-other-code", "HnsErrorCodes"),
    ("windows service-loses-description", "ServiceDefinition"),
    ("windows service-loses-recovery", "ServiceRecovery"),
    ("windows service-has-no-process", "ServiceProcess"),
    ("windows no-dependents", "ServiceDependents"),
    ("windows starts-alone", "ServiceDependencies"),
    ("windows stops-needed", "ServiceStopOrder"),
    ("windows service-stays", "ServiceDeleted"),
    ("windows frees-held-names", "DeletedServiceName"),
    ("windows registry-loses-type", "RegistryTypes"),
    ("windows registry-has-case", "RegistryNames"),
    ("windows access-inherits", "FolderAccess"),
    ("windows access-changes", "FolderList"),
    ("windows leaves-temporary", "FileReplaced"),
    ("windows replaces-open-files", "OpenFileReplace"),
    ("windows moves-open-folders", "OpenFolderRename"),
    ("windows ignores-ctrl-c", "CtrlC"),
    ("windows job-leaks", "JobObject"),
    ("windows detach-stays", "DetachedProcess"),
    ("windows event-log-forgets", "EventLog"),
    ("windows firewall-loses-ports", "FirewallRule"),
    ("windows firewall-loses-profiles", "FirewallProfiles"),
    ("windows route-loses-metric", "RouteActive"),
    ("windows routes-persist", "RoutePersistent"),
    ("windows hns-loses-vsid", "OverlayNetwork"),
    ("windows hns-loses-state", "OverlayEndpoint"),
    ("windows addresses-stay-away", "OverlayAddresses"),
    ("windows hns-creates-once", "OverlayRecreate"),
    ("windows dhcp-stays-on", "AdapterDhcp"),
];

/// A node with a second adapter, and with another product's overlay network and an endpoint on it.
fn node() -> Lab {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| {
        let second = "- name: Lab\n  mac: 00-15-5D-14-01-15\n  dhcp: true\n  addresses: [10.30.0.21/24]\nnetworks:\n  \
                      vendor-net:\n    id: 0b7a4a2c-73a1-4d1e-a6a5-0c6e5f1a2b3c\n    kind: Overlay\n    \
                      subnet: 10.1.0.0/16\n    vsid: 4099\n    endpoints:\n      vendor-web: {ip: 10.1.0.7, \
                      mac: 00-15-5D-00-00-07, container: 3f2c9d}\n";
        yaml.replacen("networks:\n", second, 1)
    });
    lab
}

fn failed(report: &Value) -> Vec<&str> {
    let rows = report["rows"].as_array().unwrap_or_else(|| panic!("{report:#}")).iter();
    rows.filter(|row| row["verdict"] == "fail").map(|row| row["id"].as_str().unwrap()).collect()
}

/// All rows, with the sandbox broken in one way.
fn all_rows(lab: &Lab, fault: &str) -> Output {
    lab.fails_at(fault, "selftest --disruptive --yes -o json")
}

#[test]
fn every_row_holds_on_a_sandbox_and_nothing_is_left() {
    let lab = node();
    let before = lab.picture();
    let report = all_rows(&lab, "").exits(0).json();
    let verdicts: BTreeSet<&str> =
        report["rows"].as_array().unwrap().iter().map(|row| row["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, BTreeSet::from(["ok"]), "{report:#}");
    assert_eq!(report["rows"].as_array().unwrap().len(), rows().count());
    lab.picture().same_as(&before);

    let text = lab.run("selftest").exits(0).stdout;
    let last: Vec<&str> = text.trim_end().lines().rev().take(2).collect();
    assert!(last[0].starts_with("result: OK (exit 0) changed=false"), "{text}");
    assert!(last[1].starts_with("Rows needed to change the VNI: BootId, ") && last[1].ends_with("; all passed."));
    lab.picture().same_as(&before);
}

#[test]
fn each_assumption_that_is_broken_fails_exactly_its_row() {
    let named: BTreeSet<&str> = BROKEN.iter().map(|(_, row)| *row).collect();
    assert_eq!(named, rows().map(|row| row.id).collect(), "every row has a way to break it");
    std::thread::scope(|all| {
        // A process that does not end is waited for: these take longer than the rest together.
        for half in [&BROKEN[..13], &BROKEN[13..25], &BROKEN[25..26], &BROKEN[26..]] {
            all.spawn(move || {
                for (fault, row) in half {
                    let report = all_rows(&node(), fault).exits(3).json();
                    assert_eq!(failed(&report), [*row], "{fault}: {report:#}");
                    let bears = rows().any(|known| known.id == *row && known.bears_on_vni);
                    assert_eq!(report["vni"]["failed"].as_array().unwrap().len(), usize::from(bears), "{fault}");
                }
            });
        }
    });
}

/// Each question would take half a minute.
#[test]
fn hns_that_does_not_answer_is_asked_once() {
    let lab = node();
    let report = all_rows(&lab, "windows hns-is-stuck;list hns=noted").exits(3).json();
    let of_hns: Vec<&str> = rows().filter(|row| row.group == "hns").map(|row| row.id).collect();
    assert_eq!(failed(&report)[..of_hns.len()], of_hns, "{report:#}");
    let calls = lab.read(".sandbox/calls");
    assert_eq!(calls.lines().filter(|call| call.starts_with("list ")).count(), 1, "{calls}");

    // It was already stuck when the machine was measured.
    let lab = node();
    lab.edit_yaml(|yaml| format!("{yaml}\nhnsBusy: 1000000\n"));
    let report = all_rows(&lab, "list hns=noted;get network*=noted;put network*=noted").exits(3).json();
    assert_eq!(failed(&report), [&of_hns[..], &["OverlayNetwork"]].concat(), "the other rows hold: {report:#}");
    assert!(!lab.on_node(".sandbox/calls").exists(), "it is not asked again");
}

/// As a power cut does, before each change that a row makes, and so after the one before.
#[test]
fn a_selftest_that_is_killed_is_removed_by_the_next_one() {
    let lab = node();
    let before = lab.picture();
    let mut removed = 0;
    for at in 1.. {
        let ended = all_rows(&lab, &format!("*#{at}=exit-before"));
        if ended.code == 0 {
            assert!(at > 70, "{at} changes are too few");
            break;
        }
        assert_eq!(ended.code, 137, "{at}: {ended:?}");
        let report = lab.run("selftest -o json").exits(0).json();
        removed += report["removed"].as_array().unwrap().len();
        assert_eq!(report["left"], Value::Array(Vec::new()), "{at}");
        lab.picture().same_as(&before);
    }
    assert!(removed > 40, "{removed} things were left");
    for at in (2..70).step_by(7) {
        let _ended = all_rows(&lab, &format!("*#{at}=exit-within"));
        let _removed = lab.run("selftest -q").exits(0);
        lab.picture().same_as(&before);
    }
}

#[test]
fn what_a_selftest_cannot_remove_is_named_and_removed_by_the_next_one() {
    let lab = node();
    let before = lab.picture();
    // Written, written again and removed by its row, written by the next one: then nothing can be removed.
    let report = lab.fails_at("put firewall*#5+=fail", "selftest -o json").exits(3).json();
    assert_eq!((failed(&report), &report["left"]), (vec![], &serde_json::json!(["firewall calicoctl-win-selftest"])));
    let next = lab.run("selftest -o json").exits(0).json();
    assert_eq!(next["removed"], report["left"]);
    lab.picture().same_as(&before);
}

/// Two would remove each other's things.
#[test]
fn one_selftest_runs_at_a_time_and_not_beside_a_run() {
    let lab = Lab::node();
    let _killed = lab.fails_at("*#2=exit-before", "selftest -q").exits(137);
    let lock = std::fs::File::open(lab.on_node("C/ProgramData/calicoctl-win-selftest/lock")).unwrap();
    lock.lock().unwrap();
    let refused = lab.run("selftest -o json").exits(14).json();
    assert_eq!(refused["error"]["id"], "Busy");
    drop(lock);
    let _done = lab.run("selftest").exits(0);

    let _done = lab.run("install -y").exits(0);
    let before = lab.picture();
    let lock = std::fs::File::open(lab.on_node("C/ProgramData/calicoctl-win/lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(lab.run("selftest -o json").exits(14).json()["error"]["id"], "Busy");
    drop(lock);
    let _done = lab.run("selftest").exits(0);
    lab.picture().same_as(&before);
}

/// Its program runs as SYSTEM.
#[test]
fn a_folder_that_somebody_else_made_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::node();
    let folder = lab.on_node("C/ProgramData/calicoctl-win-selftest");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(folder.join("calicoctl-win-selftest.exe"), "theirs").unwrap();
    let before = lab.picture();
    let refused = lab.run("selftest -o json").exits(23).json();
    assert_eq!(refused["error"]["id"], "UnsafeFolder", "{refused:#}");
    lab.picture().same_as(&before);
}

/// On a machine that GitHub discards afterwards, where nobody answers a question.
#[test]
fn the_workflow_runs_every_row_without_a_question() {
    let workflow = include_str!("../../../.github/workflows/ci.yml");
    let line = workflow.lines().find_map(|line| line.trim().strip_prefix("cargo run --locked -- selftest ")).unwrap();
    let report = node().run(&format!("selftest {}", line.split(" | ").next().unwrap())).exits(0).json();
    assert_eq!(report["summary"]["ok"].as_u64(), Some(rows().count() as u64), "{:#}", report["summary"]);
}

#[test]
fn with_one_adapter_the_rows_that_interrupt_it_are_skipped_unless_it_is_named() {
    let lab = Lab::node();
    let before = lab.picture();
    let skipped = |words: &str| -> Vec<String> {
        let report = lab.run(words).exits(0).json();
        let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["verdict"] == "skip");
        rows.map(|row| row["answered"].as_str().unwrap().to_owned()).collect()
    };
    let disruptive = rows().filter(|row| row.reach == Reach::Disrupts).count();
    let told = skipped("selftest --disruptive --yes -o json");
    assert!(told.len() == disruptive && told[0].contains("--adapter NAME"), "{told:?}");
    assert_eq!(skipped("selftest --disruptive --adapter ethernet --yes -o json"), [""; 0]);
    lab.picture().same_as(&before);

    let report = lab.run("selftest --disruptive --adapter Nowhere --yes -o json").exits(3).json();
    assert_eq!(failed(&report), ["OverlayNetwork"], "{report:#}");
}

#[test]
fn names_and_addresses_are_masked_in_everything_that_hns_said() {
    let report = all_rows(&node(), "").exits(0).json();
    let said = report["hns"].to_string();
    assert!(said.contains(r#""Type":"overlay""#) && said.contains(r#""VSID":4099"#), "{said}");
    assert!(said.contains("calicoctl-win-selftest"), "{said}");
    for secret in ["vendor", "10.1.0", "10.30.0", "00-15-5D", "0B7A4A2C", "3f2c9d"] {
        assert!(!report.to_string().to_lowercase().contains(&secret.to_lowercase()), "{secret} in {report:#}");
    }

    // The adapter is in what could not be removed, and in what the next run removes.
    let lab = node();
    let stays = all_rows(&lab, "put adapter Lab#2+=fail").exits(3).json();
    let removed = lab.run("selftest -o json").exits(0).json();
    for (list, report) in [(&stays["left"], &stays), (&removed["removed"], &removed)] {
        assert!(list.to_string().contains("adapter <name "), "{list}");
        assert!(!report.to_string().contains("Lab"), "{report:#}");
    }
}

#[test]
fn preflight_deep_runs_the_rows_that_only_read() {
    let lab = node();
    let before = lab.picture();
    let checks = |fault: &str, code: i32| -> Vec<(String, String)> {
        let report = lab.fails_at(fault, "preflight --deep -o json").exits(code).json();
        let of_rows = report["checks"].as_array().unwrap().iter().filter(|check| check["group"] == "selftest");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        of_rows.map(|check| (text(&check["id"]), text(&check["status"]))).collect()
    };
    let reading: Vec<(String, String)> =
        rows().filter(|row| row.reach == Reach::Reads).map(|row| (row.id.to_owned(), "ok".to_owned())).collect();
    assert_eq!(checks("", 0), reading);
    let failed: Vec<String> = checks("windows hns-state-is-text", 3)
        .into_iter()
        .filter(|(_, told)| told == "fail")
        .map(|(id, _)| id)
        .collect();
    assert_eq!(failed, ["HnsEndpoints"]);
    lab.picture().same_as(&before);
}

#[test]
fn a_selftest_needs_an_administrator_and_says_yes_before_it_interrupts_an_adapter() {
    let lab = node();
    let unasked = lab.run("selftest --disruptive -o json").exits(64).json();
    assert_eq!(unasked["error"]["id"], "ConfirmationNeeded");
    lab.edit_yaml(|yaml| yaml.replace("elevated: true", "elevated: false"));
    let refused = lab.run("selftest -o json").exits(5).json();
    assert_eq!(refused["error"]["id"], "NotElevated");
    let unknown = lab.fails_at("windows vista", "selftest -o json").exits(64).json();
    assert_eq!(unknown["error"]["id"], "SandboxFaultInvalid");
}
