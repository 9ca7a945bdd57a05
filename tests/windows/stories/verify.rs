//! `verify` on the real executable: what HNS, the services and Calico's own CNI plugin answer.

use serde_json::Value;

use crate::house::House;

fn probe<'a>(report: &'a Value, id: &str) -> &'a Value {
    let probes = report["probes"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    probes.iter().find(|probe| probe["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

#[test]
fn every_probe_holds_and_a_cni_plugin_that_does_not_start_is_named() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let report = house.run("verify -o json").exits(0).json();
    for id in ["ServicesRun", "PodNetwork", "HostEndpoint", "CniConfigPublished", "CniPluginRuns", "IpamBlock"] {
        assert_eq!(probe(&report, id)["verdict"], "ok", "{id}: {report:#}");
    }
    let answered = probe(&report, "CniPluginRuns")["answered"].as_str().unwrap().to_owned();
    let (plugin, _) = answered.split_once(" supports CNI ").unwrap();
    let place = plugin.trim_start_matches(r"C:\").replace('\\', "/");
    house.machine.file(&place, "half a file");
    let report = house.run("verify -o json").exits(11).json();
    let said = probe(&report, "CniPluginRuns")["answered"].as_str().unwrap();
    assert!(said.starts_with(&format!("run {plugin}: start it: ")), "{said}");
}
