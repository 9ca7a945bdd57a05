//! `selftest` on the real executable: every row holds on Windows, and those that Wine answers otherwise are known.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::house::House;
use crate::wine_rows::OTHERWISE;

fn failed(report: &Value) -> BTreeSet<&str> {
    let rows = report["rows"].as_array().unwrap_or_else(|| panic!("{report:#}")).iter();
    rows.filter(|row| row["verdict"] == "fail").map(|row| row["id"].as_str().unwrap()).collect()
}

fn expected() -> BTreeSet<&'static str> {
    if cfg!(windows) { BTreeSet::new() } else { OTHERWISE.into() }
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn every_row_holds_but_those_that_wine_answers_otherwise() {
    let Some(house) = House::new() else { return };
    let ended = house.run("selftest -o json");
    let report = ended.json();
    assert_eq!(failed(&report), expected(), "{report:#}");
    assert_eq!(ended.code, if expected().is_empty() { 0 } else { 3 });
    assert_eq!((&report["removed"], &report["left"]), (&serde_json::json!([]), &serde_json::json!([])));
}

#[cfg(not(windows))]
mod under_wine {
    use std::fs;

    use super::*;
    use crate::house::SOON;
    use crate::machine::eventually;
    use crate::picture::Picture;

    /// On a machine with two adapters; one of them loses its network meanwhile and has it afterwards.
    #[test]
    fn the_rows_that_interrupt_an_adapter_hold_and_nothing_is_left() {
        let Some(house) = House::new() else { return };
        let adapters = house.test_file("adapters");
        let second = "8\tLab\t00-15-5D-01-02-04\t1\tauto\tvmxnet3\t10.30.0.21/24\t0\n";
        fs::write(&adapters, fs::read_to_string(&adapters).unwrap() + second).unwrap();
        // As Windows keeps an interface with DHCP.
        let key = r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces\{00000000-0000-4000-8000-000000000008}";
        let lists = ["IPAddress", "SubnetMask", "DefaultGateway", "DefaultGatewayMetric"];
        let values = lists.map(|name| (name, "REG_MULTI_SZ", "")).into_iter().chain([("EnableDHCP", "REG_DWORD", "1")]);
        for (name, kind, value) in values {
            house.machine.run_program("reg", &["add", key, "/v", name, "/t", kind, "/d", value, "/f"]).exits(0);
        }
        house.foreign_networks();
        let before = Picture::take(&house.machine);
        let report = house.run("selftest --disruptive --yes -o json").json();
        assert_eq!(failed(&report), expected(), "{report:#}");
        let skipped: Vec<&Value> =
            report["rows"].as_array().unwrap().iter().filter(|row| row["verdict"] == "skip").collect();
        assert!(skipped.is_empty(), "{skipped:#?}");
        let said = report["hns"].to_string();
        assert!(
            said.contains("calicoctl-win-selftest") && !said.contains("vendor") && !said.contains("10.30."),
            "{said}"
        );
        Picture::take(&house.machine).same_as(&before);
    }

    #[test]
    fn a_selftest_that_is_killed_is_removed_by_the_next_one() {
        let Some(house) = House::new() else { return };
        let before = Picture::take(&house.machine);
        let mut removed = 0;
        for row in ["ServiceDefinition", "ServiceDependents", "RegistryTypes", "FolderAccess", "JobObject"] {
            let mut running = house.machine.start_to_kill(&["selftest"], "said");
            let said = house.machine.disk().join("said");
            eventually(row, SOON, || fs::read_to_string(&said).unwrap().contains(row).then_some(()));
            running.kill().unwrap();
            let _killed = running.wait().unwrap();
            let report = house.run("selftest -o json").json();
            assert_eq!(failed(&report), expected(), "killed after {row}: {report:#}");
            assert_eq!(report["left"], serde_json::json!([]), "{row}");
            removed += report["removed"].as_array().unwrap().len();
            fs::remove_file(said).unwrap();
        }
        assert!(removed > 0, "nothing was ever left");
        Picture::take(&house.machine).same_as(&before);
    }
}
