//! Other services that depend on Calico's, as the guides of some distributions set kubelet up.

use crate::house::{House, SOON};
use crate::machine::eventually;

const KEY: &str = r"HKLM\SYSTEM\CurrentControlSet\Services\kubelet";

/// A node whose kubelet is a service that depends on containerd and CalicoNode, and runs.
fn house() -> Option<House> {
    let house = House::installed()?;
    let program = r"C:\windows\system32\standin-service.exe kubelet";
    sc(&house, &["create", "kubelet", "binPath=", program, "start=", "auto"]);
    let list = ["/v", "DependOnService", "/t", "REG_MULTI_SZ", "/d", r"containerd\0CalicoNode", "/f"];
    house.machine.run_program("reg", &[&["add", KEY][..], &list].concat()).exits(0);
    sc(&house, &["start", "kubelet"]);
    until_kubelet_runs(&house);
    Some(house)
}

#[track_caller]
fn sc(house: &House, words: &[&str]) -> String {
    let done = house.machine.run_program("sc", words);
    assert_eq!(done.code, 0, "sc {words:?}: {}{}", done.stdout, done.stderr);
    done.stdout
}

fn kubelet(house: &House) -> Option<u32> {
    let all = house.machine.processes_of("standin-service.exe");
    all.iter().find(|process| process.command_line.ends_with("kubelet")).map(|process| process.pid)
}

#[track_caller]
fn until_kubelet_runs(house: &House) -> u32 {
    eventually("kubelet to run", SOON, || kubelet(house))
}

fn needs(house: &House) -> String {
    let kept = house.machine.run_program("reg", &["query", KEY]).exits(0).stdout;
    let line = kept.lines().find(|line| line.contains("DependOnService")).unwrap_or_default();
    line.split_whitespace().next_back().unwrap_or_default().to_owned()
}

#[test]
fn kubelet_that_depends_on_calico_is_stopped_before_and_started_after_a_change() {
    let Some(house) = house() else { return };
    let first = until_kubelet_runs(&house);
    assert_eq!(needs(&house), r"containerd\0CalicoNode");
    let done = house.run("reconfigure -y -o json --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0).json();
    assert_eq!(done["success"], true, "{done:#}");
    assert_ne!(until_kubelet_runs(&house), first, "it was stopped, and started again");
    house.until_healthy();
    assert_eq!(needs(&house), r"containerd\0CalicoNode");

    house.run("uninstall -y").exits(0);
    assert_eq!(needs(&house), "containerd", "Windows starts no service that depends on a missing one (1075)");
    house.machine.cut_power();
    house.machine.power_on();
    until_kubelet_runs(&house);
}

/// Windows starts no service whose dependency failed, and nobody tries again: until CalicoNode does.
#[test]
fn kubelet_that_windows_gave_up_at_boot_starts_once_calico_works() {
    const AGENT: &str = r"ProgramData\calicoctl-win\services.json";
    let Some(house) = house() else { return };
    house.until_healthy();
    let document = house.read(AGENT);
    house.machine.cut_power();
    house.machine.file(AGENT.replace('\\', "/").as_str(), "{");
    house.machine.power_on();
    eventually("Windows to give kubelet up", SOON, || {
        let told = house.machine.run_program("sc", &["query", "kubelet"]).stdout;
        told.contains("1068").then_some(())
    });
    assert_eq!(kubelet(&house), None);
    house.machine.file(AGENT.replace('\\', "/").as_str(), document);
    // CalicoNode is started again by Windows, seconds after it failed.
    until_kubelet_runs(&house);
    house.until_healthy();
}

/// Windows starts a service again whose process ended without saying so, five seconds later.
#[test]
fn windows_restarts_an_agent_that_is_killed() {
    let Some(house) = House::installed() else { return };
    house.until_started("felix", 1);
    let agent = || {
        let all = house.machine.processes_of("calicoctl-win.exe");
        all.into_iter().find(|process| process.command_line.ends_with("service run felix"))
    };
    let killed = agent().unwrap();
    house.machine.kill(&killed);
    eventually("another agent", SOON, || agent().filter(|now| now.pid != killed.pid));
    house.until_started("felix", 2);
    house.until_healthy();
}
