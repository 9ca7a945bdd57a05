//! A running node: components that end, hang and crash, and how that is shown.

use serde_json::json;

use crate::house::{House, SOON};
use crate::machine::eventually;

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn a_killed_component_is_restarted() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    let felix = house.machine.processes_of("calico-node.exe");
    assert_eq!(felix.len(), 1, "{felix:?}");
    house.machine.kill(&felix[0]);
    house.until_started("felix", 2);
    let again = |all: &Vec<serde_json::Value>| all.iter().any(|s| s["name"] == "CalicoFelix" && s["restarts"] == 1);
    house.until("Felix to run again, and to be ready", |status| {
        status["services"].as_array().is_some_and(again) && status["overall"] == "Healthy"
    });
}

/// Defect B2 of upstream, the other half: a change of configuration is not a crash.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn exit_129_restarts_the_component_at_once() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    house.end("felix", 129);
    house.until_started("felix", 2);
    let log = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log");
    assert!(log.contains("exited with 129") && log.contains("restarted at once"), "{log}");
    assert!(!log.contains("it starts again in"), "a pause, as after a crash: {log}");
}

/// Defect B2: upstream's Felix service restarts a crashing Felix forever, at once and unnoticed.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn b2_a_crash_loop_is_reported_and_slowed_down() {
    let Some(house) = House::new() else { return };
    house.order("felix", "exit=1");
    let ended = house.install_json(11);
    assert_eq!(ended["error"]["id"], "ServiceNotSteady", "{ended:#}");
    let loops = |status: &serde_json::Value| {
        status["services"].as_array().is_some_and(|all| all.iter().any(|service| service["crash_loop"] == true))
    };
    let status = house.until("a crash loop", loops);
    assert_ne!(status["overall"], "Healthy", "{status:#}");
    let felix = house.service("CalicoFelix");
    assert!(felix["restarts"].as_u64() >= Some(2), "{status:#}");
    assert!(felix["waiting_for"].is_string(), "{status:#}");
    // 2 s, 4 s, 8 s: a handful of starts, not hundreds.
    assert!(house.starts("felix").len() <= 6, "{}", house.starts("felix").len());

    house.order("felix", "run");
    house.run("service restart --yes").exits(0);
    house.until_healthy();
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn a_stop_kills_stuck_children() {
    let Some(house) = House::new() else { return };
    house.order("felix", "deaf child");
    house.install();
    house.until_started("felix", 1);
    eventually("the child", SOON, || (house.machine.processes_of("calico-node.exe").len() == 2).then_some(()));
    house.run("service stop --yes").exits(0);
    house.machine.until_gone("calico-node.exe");
    assert!(house.said("felix").iter().all(|said| said["event"] != "stop"), "it was deaf");

    house.order("felix", "run");
    house.run("service start").exits(0);
    house.until_started("felix", 2);
    house.run("service stop --yes").exits(0);
    let stop = house.said("felix").pop().unwrap();
    assert_eq!(stop["why"], "ctrl-c", "a component that listens stops by itself: {stop}");
}

/// Upstream only compares the pid (7.2); this program also detects a new process with an old pid.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn node_startup_runs_again_when_kubelet_is_a_new_process() {
    let Some(house) = House::installed() else { return };
    let first = house.starts("startup").len();
    let mut kubelet = house.start_kubelet();
    house.until_started("startup", first + 1);
    house.end("kubelet", 0);
    kubelet.wait().unwrap();
    let mut kubelet = house.start_kubelet();
    house.until_started("startup", first + 2);
    house.end("kubelet", 0);
    kubelet.wait().unwrap();
    house.until_healthy();
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn node_startup_is_retried_until_it_succeeds_and_status_shows_the_wait() {
    let Some(house) = House::new() else { return };
    house.order("startup", "exit=1\nexit=1\nrun");
    house.install();
    let codes: Vec<_> = house
        .said("startup")
        .into_iter()
        .filter(|said| said["event"] == "stop")
        .map(|said| said["code"].clone())
        .collect();
    assert_eq!(codes, [json!(1), json!(1), json!(0)]);
    house.until_healthy();
}

/// When HNS restarts it may have lost its state.
#[cfg(not(windows))]
#[test]
fn a_new_process_of_hns_brings_the_network_up_again() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    let startups = house.starts("startup").len();
    for verb in ["stop", "start"] {
        let done = house.machine.run_program("sc", &[verb, "hns"]);
        assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    }
    house.until_started("startup", startups + 1);
    house.until_started("felix", 2);
    house.until_healthy();
    let log = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log");
    assert!(log.contains("Host Networking Service"), "it says why:\n{log}");
}

/// Each service process must stay under 20 MB with 10 MB/s of log, and the disk must not fill up.
#[cfg(not(windows))]
#[test]
#[expect(clippy::print_stdout, reason = "packaging/bench.sh shows it")]
fn a_flood_of_log_lines_fills_neither_memory_nor_disk() {
    let Some(house) = House::new() else { return };
    house.order("felix", "log=10485760");
    house.install();
    house.until_started("felix", 1);
    let logs = house.machine.c(r"ProgramData\calicoctl-win\logs\calico");
    let written = || -> Vec<u64> {
        let files = std::fs::read_dir(&logs).unwrap().flatten();
        let felix = files.filter(|file| file.file_name().to_string_lossy().starts_with("calico-felix"));
        felix.filter_map(|file| Some(file.metadata().ok()?.len())).collect()
    };
    eventually("the log to be rotated", SOON, || (written().len() >= 4).then_some(()));
    let largest = written().into_iter().max();
    assert!(largest <= Some(11 << 20), "{largest:?}");
    let agents = house.machine.processes_of("calicoctl-win.exe");
    for role in ["felix", "node"] {
        let agent = agents.iter().find(|agent| agent.command_line.ends_with(role)).expect("the agent runs");
        let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid)).unwrap();
        let kilobytes = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            line.expect("Linux says how much memory a process has").parse().unwrap()
        };
        // What Windows calls private bytes, and the largest working set, which includes the program's file and shared
        // DLLs.
        let (private, peak) = (kilobytes("RssAnon:"), kilobytes("VmHWM:"));
        println!("the agent of {role}: {private} kB private, {peak} kB working set at most");
        assert!(private < 20_000, "{role}: {private} kB");
    }
    house.run("service stop --yes").exits(0);
    let last = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log");
    let torn = last.lines().find(|line| line.contains("felix/log.go") && !line.ends_with('x'));
    assert_eq!(torn, None);
}

/// A log shipper, a virus scanner, `Get-Content -Wait`: Windows renames no file that somebody has open without sharing
/// its deletion.
#[cfg(not(windows))]
#[test]
fn a_reader_that_keeps_a_log_from_being_rotated_costs_no_line() {
    const LOG: &str = r"C:\ProgramData\calicoctl-win\logs\calico\calico-felix.log";
    let Some(house) = House::installed() else { return };
    let log = house.machine.c(r"ProgramData\calicoctl-win\logs\calico\calico-felix.log");
    let rotated = || calicoctl_win::agent::logs::rotated_files(&log);
    eventually("the log", SOON, || log.exists().then_some(()));
    house.machine.file("test/reader.exe", crate::house::standin("kubelet.exe"));
    let mut reader = house.machine.start_program(r"C:\test\reader.exe", &["--read", LOG], "test/reader-said");
    house.until_started("reader", 1);

    house.order("felix", "log=1048576\nrun");
    house.end("felix", 129);
    let size = || std::fs::metadata(&log).map_or(0, |about| about.len());
    eventually("the log to grow beyond its limit", SOON, || (size() > 11 << 20).then_some(()));
    assert!(rotated().is_empty(), "the reader keeps its name: {:?}", rotated());

    house.end("reader", 0);
    reader.wait().unwrap();
    eventually("the log to be rotated", SOON, || (!rotated().is_empty()).then_some(()));
    house.end("felix", 129);
    house.until_started("felix", 3);
    house.run("service stop --yes").exits(0);
    let files = [rotated(), vec![log.clone()]].concat();
    let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert!(!text.contains("are missing here"));
    let number = |line: &str| line.split_once("log.go 7: line ").map(|(_, rest)| rest[..10].parse::<usize>().unwrap());
    let numbers: Vec<usize> = text.lines().filter_map(number).collect();
    assert!(numbers.len() > (11 << 20) / 101, "{}", numbers.len());
    let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert_eq!(gap, None, "no line is lost");
}
