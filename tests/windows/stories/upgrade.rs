//! Upgrades with the real executable, real services and real processes.

use crate::house::{House, release};
use crate::machine::Ended;

/// Upgrades to another release, whose archive is put beside the others.
fn upgrade(house: &House, version: &str) -> Ended {
    let file = house.machine.file(&format!("calico-windows-{version}.zip"), release(version));
    house.cluster().upgrade_calico(version).unwrap();
    house.machine.run(&["upgrade", "--yes", "-c", &house.config, "--release", &file, "-o", "json"])
}

fn is_there(house: &House, file: &str) -> bool {
    house.machine.c(&format!(r"CalicoWindows\{file}")).exists()
}

#[test]
fn an_upgrade_to_the_next_layout_replaces_the_running_one() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let done = upgrade(&house, "v3.33.0").exits(0).json();
    assert_eq!((&done["changed"], &done["generation"]), (&true.into(), &2.into()), "{done:#}");
    assert!(is_there(&house, "calico.exe") && !is_there(&house, "calico-node.exe"));
    let status = house.until_healthy();
    assert_eq!(status["calico_version"], "v3.33.0", "{status:#}");
    let last = house.starts("felix").pop().unwrap();
    assert!(last["program"].as_str().unwrap().to_lowercase().ends_with(r"\calico.exe"), "{last:#}");

    let back = house.run("rollback --yes -o json").exits(0).json();
    assert_eq!(back["generation"], 3, "{back:#}");
    assert!(is_there(&house, "calico-node.exe") && !is_there(&house, "calico.exe"));
    assert_eq!(house.until_healthy()["calico_version"], "v3.32.1");
}

#[test]
fn a_release_whose_felix_crashes_is_rolled_back() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    house.until_started("felix", 1);
    house.order("felix", "exit=7\nexit=7\nexit=7\nctrlc=0\n");
    let failed = upgrade(&house, "v3.33.0").exits(9).json();
    assert_eq!(
        (&failed["error"]["id"], &failed["rolled_back"]),
        (&"ServiceNotSteady".into(), &true.into()),
        "{failed:#}"
    );
    assert!(failed["error"]["chain"].to_string().contains("exit code 7"), "{failed:#}");
    assert!(is_there(&house, "calico-node.exe") && !is_there(&house, "calico.exe"));
    assert_eq!(house.until_healthy()["calico_version"], "v3.32.1");
}

/// The archive's program is not for this machine: the old one continues, unchanged.
#[test]
fn a_program_that_does_not_run_is_detected_before_anything_stops() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let started = house.starts("felix").len();
    let version = "v3.30.3".parse().unwrap();
    let archive = calicoctl_win::sandbox::release::SyntheticRelease::build(&version);
    let file = house.machine.file("calico-windows-v3.30.3.zip", archive);
    let words = ["upgrade", "--yes", "--allow-downgrade", "-c", &house.config, "--release", &file, "-o", "json"];
    let refused = house.machine.run(&words).exits(6).json();
    assert_eq!(
        (&refused["error"]["id"], &refused["changed"]),
        (&"ReleaseDoesNotRun".into(), &false.into()),
        "{refused:#}"
    );
    assert_eq!(house.starts("felix").len(), started);
    assert_eq!(house.until_healthy()["calico_version"], "v3.32.1");
}
