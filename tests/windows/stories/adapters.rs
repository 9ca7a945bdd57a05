//! The vSwitch on the machine's adapters: one that takes its time, and one on each of two adapters.

use std::fs;
use std::time::Instant;

use crate::house::{House, SOON};
use crate::machine::eventually;

/// Making a vSwitch takes HNS minutes on some machines (azure-container-networking issue 1369, WSL issue 40246). It
/// answers nothing meanwhile.
#[test]
fn an_hns_that_is_busy_for_90_seconds_with_the_vswitch_is_awaited() {
    let Some(house) = House::new() else { return };
    house.hns_faults("0 1 POST /networks busy 90000\n");
    let mut install = house.machine.start(&house.install_words(), "test/said");
    let asked = || -> Vec<String> { house.read(r"test\hns.log").lines().map(str::to_owned).collect() };
    let makes = |line: &String| line.starts_with("POST /networks");
    let begun = eventually("the vSwitch to be begun", SOON, || asked().iter().position(makes));
    let since = Instant::now();
    eventually("the vSwitch", 3 * SOON, || house.hns().contains_key("External").then_some(()));
    let (busy, log) = (since.elapsed().as_secs(), asked());
    assert!(busy >= 85, "it was made in {busy} s");
    let questions = log.len() - begun - 1;
    assert!(questions as u64 <= 2 * busy, "{questions} questions in {busy} s: {log:#?}");

    // Then it answers: the agent looks once a second until the address is there, and so does the install. A look is a
    // handful of questions, of both versions of HNS; a wait that never pauses asks hundreds in a second.
    let since = Instant::now();
    let pods = eventually("Calico", SOON, || asked().iter().rposition(makes).filter(|at| *at > begun));
    let (seconds, log) = (since.elapsed().as_secs() + 1, asked());
    let questions = log[begun + questions..pods].iter().filter(|line| line.starts_with("GET /networks")).count();
    assert!(questions as u64 <= 12 * (seconds + 1), "{questions} questions in {seconds} s: {log:#?}");
    assert!(install.wait().unwrap().success(), "{}", house.read("test/said"));
    house.until_healthy();
    assert_eq!(asked().iter().filter(|line| makes(line)).count(), 2, "External and Calico, each once");
}

/// rke2 issue 3533: HNS, which is not told an adapter for `Calico`, makes it on another one than `External`.
#[test]
fn networks_on_two_adapters_end_the_install_and_both_are_named() {
    let Some(house) = House::new() else { return };
    // `External` removes its adapter's address, and HNS takes an adapter that has one.
    let adapters = "7\tEthernet\t00-15-5D-01-02-03\t1\tauto\tMicrosoft Hyper-V Network Adapter\t10.20.0.21/24\t0\n\
                    9\tStorage\t00-15-5D-01-02-09\t0\tauto\tMicrosoft Hyper-V Network Adapter\t10.99.0.9/24\t0\n";
    fs::write(house.test_file("adapters"), adapters).unwrap();
    let words = [house.install_words(), vec!["--set", "calicoNetwork.vxlan.vxlanAdapter=Ethernet", "-o", "json"]];
    let failed = house.machine.run(&words.concat()).exits(9).json();
    let both = "HNS made the network Calico on adapter Storage, and External is on adapter Ethernet";
    assert!(failed["error"].to_string().contains(both), "{failed:#}");
    assert_eq!(house.hns().len(), 0, "{failed:#}");
    assert_eq!(house.read(r"test\adapters"), adapters, "each adapter has its address again");
}
