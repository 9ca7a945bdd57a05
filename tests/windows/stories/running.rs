//! A running node: components that end, hang and crash, and what is seen of it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::house::{House, SOON};
use crate::machine::eventually;

#[test]
fn a_component_that_is_killed_runs_again() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    let felix = house.machine.processes_of("calico-node.exe");
    assert_eq!(felix.len(), 1, "{felix:?}");
    house.machine.kill(&felix[0]);
    house.until_started("felix", 2);
    let service = house.until("Felix to run again", |status| {
        status["services"]
            .as_array()
            .is_some_and(|all| all.iter().any(|s| s["name"] == "CalicoFelix" && s["restarts"] == 1))
    });
    assert_eq!(service["overall"], "Healthy", "{service:#}");
}

/// Defects B2 of upstream, the other half: a change of configuration is no crash.
#[test]
fn exit_129_starts_the_component_at_once() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    let begun = Instant::now();
    house.end("felix", 129);
    house.until_started("felix", 2);
    // The first pause after a crash would be 2 s.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

/// Defect B2: upstream's Felix service starts a crashing Felix again for ever, at once and unseen.
#[test]
fn b2_a_crash_loop_is_seen_and_does_not_spin() {
    let Some(house) = House::new() else { return };
    house.order("felix", "exit=1");
    house.install();
    let status =
        house.until("a crash loop", |status| status["overall"] != "Healthy" && status.to_string().contains("crash"));
    let felix = house.service("CalicoFelix");
    assert!(felix["restarts"].as_u64() >= Some(2), "{status:#}");
    assert!(felix["waiting_for"].is_string(), "{status:#}");
    // 2 s, 4 s, 8 s: a handful of starts, not hundreds.
    assert!(house.starts("felix").len() <= 6, "{}", house.starts("felix").len());

    house.order("felix", "run");
    house.run("service restart").exits(0);
    house.until_healthy();
}

#[test]
fn a_stop_takes_stuck_children_along() {
    let Some(house) = House::new() else { return };
    house.order("felix", "deaf child");
    house.install();
    house.until_started("felix", 1);
    eventually("the child", SOON, || (house.machine.processes_of("calico-node.exe").len() == 2).then_some(()));
    house.run("service stop").exits(0);
    assert_eq!(house.machine.processes_of("calico-node.exe"), []);
    assert!(house.said("felix").iter().all(|said| said["event"] != "stop"), "it was deaf");

    house.order("felix", "run");
    house.run("service start").exits(0);
    house.until_started("felix", 2);
    house.run("service stop").exits(0);
    let stop = house.said("felix").pop().unwrap();
    assert_eq!(stop["why"], "ctrl-c", "a component that listens stops by itself: {stop}");
}

/// Upstream only compares the pid (7.2); ours also sees a new process with an old pid.
#[test]
fn node_startup_runs_again_when_kubelet_is_a_new_process() {
    let Some(house) = House::installed() else { return };
    house.machine.file("k/kubelet.exe", crate::house::standin("kubelet.exe"));
    let first = house.starts("startup").len();
    let mut kubelet = house.machine.start_program(r"C:\k\kubelet.exe", &[], "kubelet-said");
    house.until_started("startup", first + 1);
    house.end("kubelet", 0);
    kubelet.wait().unwrap();
    let mut kubelet = house.machine.start_program(r"C:\k\kubelet.exe", &[], "kubelet-said");
    house.until_started("startup", first + 2);
    house.end("kubelet", 0);
    kubelet.wait().unwrap();
    house.until_healthy();
}

#[test]
fn node_startup_is_tried_until_it_succeeds_and_status_says_what_it_waits_for() {
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
