//! Power cuts: during an install at one point after another, and on a running node.

use std::process::Child;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use crate::house::{House, SOON};
use crate::machine::eventually;
use crate::picture::Picture;

/// A point of an install, and how to detect it.
type Point = (&'static str, fn(&House) -> bool);

const POINTS: [Point; 5] = [
    ("the release is being put in place", |house| house.machine.c(r"CalicoWindows\calico-node.exe").exists()),
    ("the agent's document is there", |house| house.machine.c(r"ProgramData\calicoctl-win\services.json").exists()),
    ("HNS has External", |house| house.hns().contains_key("External")),
    ("node startup runs", |house| !house.starts("startup").is_empty()),
    ("Felix runs", |house| !house.starts("felix").is_empty()),
];

/// Starts an install and cuts the power as soon as `reached` is true.
fn cut_when(house: &House, reached: fn(&House) -> bool) {
    let mut install: Child = house.machine.start(&house.install_words(), "test/said");
    let over = || -> bool { reached(house) };
    let begun = std::time::Instant::now();
    while !over() && install.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < SOON, "the point never came:\n{}", house.read("test/said"));
        std::thread::sleep(Duration::from_millis(1));
    }
    house.machine.power_off(install);
}

/// A test for each point: they run at the same time.
macro_rules! at_each_point {
    ($story:path: $($name:ident => $point:literal),+) => {$(
        #[test]
        fn $name() {
            let Some(house) = House::new() else { return };
            $story(&house, POINTS[$point]);
        }
    )+};
}

at_each_point!(finish:
    an_install_interrupted_by_a_power_cut_at_the_release_is_finished => 0,
    an_install_interrupted_by_a_power_cut_at_the_agents_document_is_finished => 1,
    an_install_interrupted_by_a_power_cut_at_the_network_is_finished => 2,
    an_install_interrupted_by_a_power_cut_at_node_startup_is_finished => 3,
    an_install_interrupted_by_a_power_cut_at_felix_is_finished => 4);

at_each_point!(undo:
    an_install_interrupted_by_a_power_cut_at_the_release_is_undone => 0,
    an_install_interrupted_by_a_power_cut_at_the_agents_document_is_undone => 1,
    an_install_interrupted_by_a_power_cut_at_the_network_is_undone => 2,
    an_install_interrupted_by_a_power_cut_at_node_startup_is_undone => 3,
    an_install_interrupted_by_a_power_cut_at_felix_is_undone => 4);

fn finish(house: &House, (point, reached): Point) {
    cut_when(house, reached);
    let status = house.status();
    if status["run"]["interrupted"] == true {
        assert!(!status["overall"].as_str().unwrap().starts_with("Healthy"), "{point}: {status:#}");
        let resumed = house.run("resume --yes");
        assert_eq!(resumed.code, 0, "{point}: {}{}", resumed.stdout, resumed.stderr);
    } else {
        // The last point may be after the last step.
        house.install();
    }
    let status = house.until_healthy();
    assert_eq!(status["run"], Value::Null, "{point}: {status:#}");
    let again = house.install_json(0);
    assert_eq!(again["changed"], false, "{point}: {again:#}");
}

/// Nobody is there when the power returns: the run's own setting decides.
#[test]
fn a_change_interrupted_by_a_power_cut_is_finished_or_undone_when_windows_starts() {
    for (asked, vsid) in [("finish", 5000), ("undo", 4096)] {
        let Some(house) = House::installed() else { return };
        house.until_healthy();
        let network = |house: &House| {
            let network = house.hns().remove("Calico").unwrap_or_default();
            network["Subnets"][0]["Policies"][0]["VSID"].clone()
        };
        let words = format!("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000 --at-boot {asked}");
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut change: Child = house.machine.start(&words, "test/said");
        let begun = std::time::Instant::now();
        // The old network is gone, or the new one is there: the journal exists in both cases.
        while network(&house) == 4096 && change.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < SOON, "the network never went:\n{}", house.read("test/said"));
            std::thread::sleep(Duration::from_millis(1));
        }
        house.machine.cut_power();
        change.wait().unwrap();
        assert!(house.machine.c(r"ProgramData\calicoctl-win\journal.jsonl").exists(), "{asked}: it was over");
        house.machine.power_on();
        let status = eventually("the run is over", 2 * SOON, || {
            let status = house.status();
            (status["run"].is_null() && status["overall"] == "Healthy").then_some(status)
        });
        let said = house.read(r"ProgramData\calicoctl-win\logs\calico\calico-node.log");
        let found = (network(&house), &status["node"]["schedulable"]);
        assert_eq!(found, (vsid.into(), &Value::Bool(true)), "{asked}:\n{said}");
    }
}

fn undo(house: &House, (point, reached): Point) {
    house.foreign_networks();
    let before = Picture::take(&house.machine);
    cut_when(house, reached);
    if house.status()["run"]["interrupted"] == true {
        // As after a power cut between a key and its value, or between two keys.
        for key in [r"Software\Tigera", r"SYSTEM\CurrentControlSet\Services\EventLog\Application\calicoctl-win"] {
            for verb in ["add", "delete"] {
                house.machine.run_program("reg", &[verb, &format!(r"HKLM\{key}"), "/v", "half", "/f"]).exits(0);
            }
        }
        let undone = house.run("resume --undo --yes");
        assert_eq!(undone.code, 0, "{point}: {}{}", undone.stdout, undone.stderr);
    }
    // Uninstall does not remove what existed before the first step.
    let gone = house.run("uninstall --purge --yes");
    assert!([0, 16].contains(&gone.code), "{point}: {}{}", gone.stdout, gone.stderr);
    Picture::take(&house.machine).same_as_before(&before, point);
}

/// kubelet and the container runtime were faster after the boot: the pod has an endpoint on a network that is deleted,
/// and would never get another one.
#[test]
fn after_a_boot_a_pod_that_lost_its_endpoint_is_re_created() {
    const CONF: &str = r"Program Files\containerd\cni\conf\10-calico.conf";
    const AGENT: &str = r"ProgramData\calicoctl-win\services.json";
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let endpoints = house.pods_endpoints();
    let (before, conf) = (house.fluent_bit(), house.read(CONF));
    let id = house.hns()["Calico"]["ID"].clone();
    let document = house.read(AGENT);

    house.machine.cut_power();
    // containerd is first: CalicoNode fails until the pod has an endpoint. Windows starts it again.
    house.machine.file(&AGENT.replace('\\', "/"), "{");
    // The network cannot be up yet.
    house.order("startup", "exit=1 late\nexit=1 late\nrun");
    let startups = house.starts("startup").len();
    house.machine.power_on();
    eventually("an endpoint on the network from before the boot", SOON, || {
        let all = house.read(r"test\hns.endpoints");
        let new = |line: &str| line.contains("_Calico\"") && !endpoints.iter().any(|id| line.contains(id.as_str()));
        (all.lines().any(new) && !house.read(r"test\hcs.systems").is_empty()).then_some(())
    });
    house.machine.file(&AGENT.replace('\\', "/"), document);
    house.until_started("startup", startups + 2);
    assert!(!house.machine.c(CONF).exists(), "kubelet would attach pods");
    assert_eq!(house.read(&format!("{CONF}.withdrawn")), conf);

    eventually("the pod to be re-created", SOON, || {
        (house.fluent_bit()["metadata"]["uid"] != before["metadata"]["uid"]).then_some(())
    });
    house.until_healthy();
    assert_ne!(house.hns()["Calico"]["ID"], id, "the network was re-created");
    assert_eq!(house.read(CONF), conf);
    let events = house.cluster().as_admin(&Method::GET, "/api/v1/namespaces/demo/events", None).unwrap();
    let told = events["items"].as_array().unwrap().iter().find(|event| event["reason"] == "NetworkLost").unwrap();
    assert_eq!(told["involvedObject"]["name"], before["metadata"]["name"], "{told:#}");
}

/// Windows tells the services before it ends them: until the next boot's network is up, kubelet finds no configuration.
#[test]
fn at_shutdown_the_cni_configuration_is_withdrawn_and_felix_stops_by_itself() {
    const CONF: &str = r"Program Files\containerd\cni\conf\10-calico.conf";
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let conf = house.read(CONF);
    house.machine.shut_down();
    assert_eq!((house.read(CONF), house.read(&format!("{CONF}.withdrawn"))), (String::new(), conf.clone()));
    let stop = house.said("felix").into_iter().rfind(|said| said["event"] == "stop").unwrap();
    assert_eq!(stop["why"], "ctrl-c", "{stop}");

    house.machine.power_on();
    house.until_started("felix", 2);
    house.until_healthy();
    assert_eq!(house.read(CONF), conf);
}

/// Defect B13: upstream's first start after a boot removes every HNS network that is not NAT.
#[test]
fn b13_after_a_power_cut_the_node_recovers_and_others_networks_are_kept() {
    let Some(house) = House::new() else { return };
    house.foreign_networks();
    house.install();
    house.until_healthy();
    let before = house.hns();

    house.machine.cut_power();
    assert_eq!(house.machine.processes(), []);
    house.machine.power_on();
    house.until_started("felix", 2);
    house.until_healthy();

    let after = house.hns();
    let id = |networks: &std::collections::BTreeMap<String, Value>, name: &str| networks[name]["ID"].clone();
    for theirs in ["nat", "vendor-overlay"] {
        assert_eq!(id(&after, theirs), id(&before, theirs), "{theirs}");
    }
    for ours in ["External", "Calico"] {
        assert_ne!(id(&after, ours), id(&before, ours), "{ours} is from before the boot");
    }
    let again = house.install_json(0);
    assert_eq!(again["changed"], false, "{again:#}");
}

/// Defect B12: upstream compares the boot time as text in the caller's culture. A changed clock or time zone then looks
/// like a reboot, and every network is deleted.
#[test]
fn b12_only_a_reboot_counts_as_a_reboot() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let before = house.hns();
    house.run("service stop --yes").exits(0);
    let key = r"HKLM\Software\Tigera\Calico";
    for wrong in ["21.11.2026 08:00:00", "1/1/1999 1:00:00 AM"] {
        let set = house.machine.run_program("reg", &["add", key, "/v", "LastBootTime", "/d", wrong, "/f"]);
        assert_eq!(set.code, 0, "{}", set.stderr);
        house.run("service restart --yes").exits(0);
        eventually("a start", SOON, || (house.status()["overall"] == "Healthy").then_some(()));
        assert_eq!(house.hns(), before, "LastBootTime {wrong}");
    }
}
