//! What can fail on a machine, and how it is reported.

use serde_json::Value;
use std::fs;

use crate::house::{House, SOON};
use crate::machine::{Machine, eventually};

/// The complete text of a failure.
fn words(result: &Value) -> String {
    result["error"].to_string()
}

#[test]
fn without_hns_the_feature_to_enable_is_named() {
    let Some(house) = House::new() else { return };
    fs::remove_file(house.machine.c(r"windows\system32\vmcompute.dll")).unwrap();
    let refused = house.install_json(3);
    let said = refused.to_string();
    assert!(said.contains("HnsAvailable") && said.contains("Containers"), "{refused:#}");
    assert!(!house.machine.c("CalicoWindows").exists(), "nothing was touched");
}

#[test]
fn an_hns_that_never_answers_is_reported_and_does_not_block_us() {
    let Some(house) = House::new() else { return };
    house.hns_faults("0 -1 GET / hang\n");
    let refused = house.install_json(1);
    assert_eq!(refused["error"]["id"], "HnsStuck", "{refused:#}");
    assert!(
        refused["error"]["hint"].as_str().is_some_and(|hint| hint.contains("restart the services hns and kube-proxy")),
        "{refused:#}"
    );
    assert_eq!(refused["changed"], false);
}

/// HNS has a process before it answers: at boot, and after a restart.
#[cfg(not(windows))]
#[test]
fn an_hns_that_is_starting_is_retried() {
    let Some(house) = House::installed() else { return };
    house.run("service stop --yes").exits(0);
    house.hns_faults("0 20 GET /networks hresult 0x800706BA\n");
    house.run("service start").exits(0);
    house.until_healthy();
    let log = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-node.log");
    assert_eq!(log.matches("HNS is asked again").count(), 1, "{log}");
}

/// hcsshim 95: a network created right after the last one was deleted meets an adapter that has not returned yet.
#[test]
fn a_network_created_too_early_is_retried() {
    let Some(house) = House::new() else { return };
    house.hns_settings("adapter-away=2\nmanagement-ip-polls=3\n");
    house.install();
    house.until_healthy();
    house.machine.cut_power();
    house.machine.power_on();
    house.until_healthy();
    let log = house.read(r"test\hns.log");
    assert!(log.lines().filter(|line| line.starts_with("POST /networks")).count() >= 4, "{log}");
}

/// projectcalico/calico 9120: Calico asks version 2 of HNS beside version 1, and finds nothing for ever.
#[test]
fn a_network_that_version_2_of_hns_does_not_show_is_re_created_once() {
    let Some(house) = House::new() else { return };
    // `External` is made first, and `Calico` when that is there by both.
    house.hns_faults("0 1 POST /networks blind\n1 1 POST /networks blind\n");
    house.install();
    house.until_healthy();
    let log = house.read(r"test\hns.log");
    assert_eq!(log.lines().filter(|line| line.starts_with("POST /networks")).count(), 4, "{log}");

    let Some(house) = House::new() else { return };
    // Windows starts CalicoNode again when it fails, which re-creates it too.
    house.hns_faults("1 -1 POST /networks blind\n");
    let failed = house.install_json(9);
    assert_eq!(failed["error"]["id"], "HnsNetworkUnseen", "{failed:#}");
    assert!(words(&failed).contains("does not show the HNS network Calico"), "{failed:#}");
}

#[test]
fn status_shows_a_management_ip_that_never_arrives() {
    let Some(house) = House::new() else { return };
    // For a pod that is first, Calico's CNI plugin makes the vSwitch.
    house.machine.file("test/runtime.hold", "");
    house.machine.run(&[house.install_words(), vec!["--no-start"]].concat()).exits(0);
    house.hns_settings("management-ip-polls=1000000\n");
    // It waits as long as CalicoNode does, which gives up in the end.
    let mut start = house.machine.start(&["service", "start"], "test/said");
    let status = house.until("the wait", |status| status.to_string().contains("management IP"));
    assert_ne!(status["overall"], "Healthy", "{status:#}");
    let node = house.service("CalicoNode");
    assert!(
        node["waiting_for"].as_str().is_some_and(|what| what.contains("management IP") && what.contains(" s of ")),
        "{node:#}"
    );

    // It arrives after all.
    fs::write(house.test_file("hns.late"), "0").unwrap();
    start.wait().unwrap();
    house.run("service start").exits(0);
    house.until_healthy();
}

#[test]
fn a_service_whose_executable_is_gone_says_so_and_install_repairs_it() {
    let Some(house) = House::installed() else { return };
    house.run("service stop --yes").exits(0);
    fs::remove_file(house.machine.c(r"Program Files\calicoctl-win\calicoctl-win.exe")).unwrap();
    let refused = house.run("service start -o json");
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(words(&refused.json()).contains("cannot find the file"), "{}", refused.stdout);
    let status = house.status();
    assert!(status["drift"].to_string().contains("calicoctl-win.exe"), "{status:#}");
    house.install();
    house.until_healthy();
}

#[test]
fn a_deleted_service_is_re_created() {
    let Some(house) = House::installed() else { return };
    // It runs, so it is only marked until it stops (error 1072 meanwhile).
    let deleted = house.machine.run_program("sc", &["delete", "CalicoFelix"]);
    assert_eq!(deleted.code, 0, "{}{}", deleted.stdout, deleted.stderr);
    house.install();
    house.until_healthy();
    assert_eq!(house.service("CalicoFelix")["state"], "Running");
}

#[test]
fn a_log_that_cannot_be_written_stops_no_component() {
    let Some(house) = House::installed() else { return };
    house.run("service stop --yes").exits(0);
    let log = house.machine.c(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log");
    fs::remove_file(&log).unwrap();
    // Now nobody can write a file of that name, not even root.
    fs::create_dir(&log).unwrap();
    let before = house.starts("felix").len();
    house.run("service start").exits(0);
    house.until_started("felix", before + 1);
    house.until("Felix to run", |_| house.service("CalicoFelix")["state"] == "Running");
    fs::remove_dir(&log).unwrap();
}

/// Breaks the place of Felix's log while it runs, and restarts it while broken; returns the log once it can be written
/// again.
fn felix_runs_without_a_log(house: &House, break_it: impl Fn(&House), repair_it: impl Fn(&House)) -> String {
    house.until_started("felix", 1);
    break_it(house);
    house.end("felix", 129);
    house.until_started("felix", 2);
    house.until("Felix to run", |_| house.service("CalicoFelix")["state"] == "Running");

    repair_it(house);
    // It writes its lines again.
    house.end("felix", 129);
    house.until_started("felix", 3);
    house.until_healthy();
    assert_eq!(house.starts("felix").len(), 3, "it was never started but when it asked for it");
    eventually("the log", SOON, || {
        let log = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log");
        log.contains("are missing here").then_some(log)
    })
}

#[test]
fn a_full_disk_stops_no_component_and_its_log_says_what_is_missing() {
    let Some(house) = House::installed() else { return };
    let said = felix_runs_without_a_log(&house, |h| h.machine.fill_disk(true), |h| h.machine.fill_disk(false));
    assert!(said.contains("(os error 112)"), "{said}");
}

/// On Linux root may write anywhere except below /sys.
#[test]
fn a_log_folder_that_is_read_only_stops_no_component() {
    let Some(house) = House::installed() else { return };
    house.run("service stop --yes").exits(0);
    let logs = house.machine.c(r"ProgramData\calicoctl-win\logs\calico");
    let away = house.machine.c(r"ProgramData\calicoctl-win\logs\calico-away");
    fs::rename(&logs, &away).unwrap();
    std::os::unix::fs::symlink("/sys/kernel", &logs).unwrap();
    let before = house.starts("felix").len();
    house.run("service start").exits(0);
    house.until_started("felix", before + 1);
    house.until("Felix to run", |_| house.service("CalicoFelix")["state"] == "Running");

    fs::remove_file(&logs).unwrap();
    fs::rename(&away, &logs).unwrap();
    house.end("felix", 129);
    house.until_started("felix", before + 2);
    house.until_healthy();
    // Access denied, or write-protected if /sys is mounted so.
    eventually("the log", SOON, || {
        let log = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log");
        let errors = ["(os error 5)", "(os error 19)"];
        (log.contains("are missing here") && errors.iter().any(|error| log.contains(error))).then_some(())
    });
}

/// Defect B12: upstream compares boot times as text, so a changed clock or time zone looks like a reboot, and every
/// network is deleted.
#[test]
fn b12_a_clock_that_is_set_back_and_another_time_zone_wipe_no_network() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let before = house.hns();
    let boot_time = || {
        let query = ["query", r"HKLM\Software\Tigera\Calico", "/v", "LastBootTime"];
        house.machine.run_program("reg", &query).exits(0).stdout
    };
    let mut times = vec![boot_time()];
    for (hours, zone) in [(-3, "Asia/Tokyo"), (-20, "America/New_York")] {
        house.run("service stop --yes").exits(0);
        house.machine.set_clock(hours * 3600, zone);
        house.run("service start").exits(0);
        house.until_healthy();
        assert_eq!(house.hns(), before, "{hours} h, {zone}");
        times.push(boot_time());
    }
    times.dedup();
    assert_eq!(times.len(), 3, "each zone writes the boot's time in another way: {times:#?}");
    let log = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-node.log");
    let mut begun = log.lines().filter(|line| line.contains("the agent of CalicoNode starts")).collect::<Vec<_>>();
    assert_eq!(begun.len(), 3, "{log}");
    let order = begun.clone();
    begun.sort_unstable();
    begun.reverse();
    assert_eq!(begun, order, "the clock went back");
}

/// Restarts after an end with an error too, an identity for access lists, and time to stop when Windows shuts down.
#[test]
fn the_services_have_windows_settings_beyond_their_definition() {
    let Some(house) = House::installed() else { return };
    for service in ["CalicoNode", "CalicoFelix"] {
        let key = format!(r"HKLM\SYSTEM\CurrentControlSet\Services\{service}");
        let kept = house.machine.run_program("reg", &["query", &key]).exits(0).stdout;
        for (value, number) in
            [("FailureActionsOnNonCrashFailures", "0x1"), ("ServiceSidType", "0x1"), ("PreshutdownTimeout", "0x7530")]
        {
            let line = kept.lines().find(|line| line.contains(value)).unwrap_or_else(|| panic!("{value}: {kept}"));
            assert!(line.trim_end().ends_with(number), "{line}");
        }
    }
}

/// Windows on ARM runs programs for amd64, so the program itself must refuse.
#[test]
fn an_install_on_another_processor_is_refused() {
    let Some(machine) = Machine::new() else { return };
    let sandbox = machine.path("node");
    assert_eq!(machine.run(&["status", "--sandbox", &sandbox]).code, 16);
    let model = machine.disk().join("node").join("node.yaml");
    let text = fs::read_to_string(&model).unwrap();
    fs::write(&model, text.replace("arch: amd64", "arch: arm64")).unwrap();
    let refused = machine.run(&["install", "--yes", "--sandbox", &sandbox, "-o", "json"]).exits(15).json();
    assert_eq!((&refused["exit_name"], &refused["error"]["id"]), (&"UNSUPPORTED".into(), &"Is64Bit".into()));
    assert_eq!(refused["error"]["what"], "this machine is arm64", "{refused:#}");
    assert_eq!(refused["changed"], false);
}

#[test]
fn a_second_agent_of_a_service_does_not_start() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    let second = house.run("service run felix --foreground -o json");
    assert_eq!(second.code, 14, "{}{}", second.stdout, second.stderr);
    assert_eq!(house.starts("felix").len(), 1);
    house.until_healthy();
}

#[test]
fn an_unreadable_configuration_is_reported_without_a_restart_loop() {
    let Some(house) = House::installed() else { return };
    house.run("service stop --yes").exits(0);
    let before = house.starts("felix").len();
    fs::write(house.machine.c(r"ProgramData\calicoctl-win\services.json"), "{ this is no document").unwrap();
    let refused = house.run("service start -o json");
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    let said = words(&refused.json());
    assert!(said.contains("CalicoNode"), "{said}");
    assert!(said.contains("its log ends with") && said.contains("is not what install wrote"), "{said}");
    house.machine.until_gone("calicoctl-win.exe");
    let status = house.status();
    assert!(status.to_string().contains("services.json"), "{status:#}");
    assert_eq!(house.starts("felix").len(), before);
    house.install();
    house.until_healthy();
}

#[test]
fn folders_with_spaces_and_umlauts_work() {
    let Some(house) = House::new() else { return };
    let config = crate::house::config("v3.32.1", "vxlan")
        .replace(
            "    version: v3.32.1\n",
            "    version: v3.32.1\n    rootDir: 'C:\\Program Files\\Calico für Windows'\n",
        )
        .replace("  services:\n", "  services:\n    logDir: 'C:\\Prögram Lögs\\calico'\n");
    let config = house.machine.file("Mein Knöten/node 1.yaml", config);
    let release = house.machine.file("Mein Knöten/calico 1.zip", crate::house::release("v3.32.1"));
    let words = ["install", "--yes", "-c", &config, "--release", &release];
    house.machine.run(&words).exits(0);
    house.until_healthy();
    let felix = &house.until_started("felix", 1)[0];
    assert_eq!(felix["program"], r"C:\Program Files\Calico für Windows\calico-node.exe");
    assert_eq!(house.read(r"Program Files\Calico für Windows\nodename"), crate::house::NODE);
    eventually("the log", SOON, || {
        house.read(r"Prögram Lögs\calico\calico-felix.log").contains("felix is up").then_some(())
    });
    house.run("uninstall --purge --yes").exits(0);
    assert!(!house.machine.c(r"Program Files\Calico für Windows").exists());
}

/// Defect B11: upstream reuses a network of the right subnet whatever its VSID, and pods reach nothing.
#[test]
fn b11_a_network_with_another_vsid_is_re_created() {
    let Some(house) = House::new() else { return };
    let wrong = r#"{"ID":"0AAAAAAA-73A1-4D1E-A6A5-0C6E5F1A2B3C","Name":"Calico","Type":"Overlay","NetworkAdapterName":"Ethernet","Subnets":[{"AddressPrefix":"192.168.0.0/26","GatewayAddress":"192.168.0.1","Policies":[{"Type":"VSID","VSID":5000}]}],"State":1}"#;
    fs::write(house.test_file("hns.networks"), format!("{wrong}\n")).unwrap();
    house.install();
    house.until_healthy();
    assert_eq!(house.hns()["Calico"]["Subnets"][0]["Policies"][0]["VSID"], 4096);
}
