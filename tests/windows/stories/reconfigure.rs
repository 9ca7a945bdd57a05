//! A running node is changed, rolled back and repaired.

#[cfg(not(windows))]
use std::fs;

use http::Method;
use serde_json::{Value, json};

#[cfg(not(windows))]
use crate::house::SOON;
use crate::house::{House, NODE};
#[cfg(not(windows))]
use crate::machine::eventually;

const VNI: &str = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";

/// The VSID of Calico's network in HNS; null while there is none.
fn vsid(house: &House) -> Value {
    let network = house.hns().remove("Calico").unwrap_or_default();
    network["Subnets"][0]["Policies"][0]["VSID"].clone()
}

/// Distinguishes networks of the same name and VSID.
#[cfg(not(windows))]
fn network_id(house: &House) -> Value {
    house.hns()["Calico"]["ID"].clone()
}

fn node() -> Option<House> {
    let house = House::joined()?;
    house.until_started("felix", 1);
    Some(house)
}

impl House {
    /// The Node in the cluster.
    pub fn kubernetes_node(&self) -> Value {
        self.cluster().as_admin(&Method::GET, &format!("/api/v1/nodes/{NODE}"), None).unwrap()
    }

    pub fn cordoned(&self) -> bool {
        self.kubernetes_node()["spec"]["unschedulable"] == true
    }

    /// How many pods are on the node that a drain evicts.
    fn pods(&self) -> usize {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}");
        let pods = self.cluster().as_admin(&Method::GET, &path, None).unwrap();
        let moves = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet";
        pods["items"].as_array().unwrap().iter().filter(moves).count()
    }

    /// Runs it and returns its events.
    #[track_caller]
    fn events(&self, words: &str) -> Vec<Value> {
        let ended = self.run(&format!("{words} -o ndjson")).exits(0);
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The names of a run's phases.
fn phases(events: &[Value]) -> String {
    let complete = events.iter().filter(|event| event["type"] == "phase_complete");
    complete.map(|event| event["phase"]["id"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn another_vni_drains_the_node_re_creates_the_network_and_uncordons_it() {
    let Some(house) = node() else { return };
    #[cfg(not(windows))]
    let before = network_id(&house);
    assert_eq!((vsid(&house), house.pods()), (json!(4096), 2));

    let events = house.events(VNI);
    insta::assert_snapshot!(phases(&events), @"cluster cordon drain files cni-conf pods services-stop hns-network files services-start wait-network node-startup services-start cni-conf health-gate annotate node-ready uncordon");
    let result = events.last().unwrap();
    assert_eq!((&result["generation"], &result["changed"]), (&json!(2), &json!(true)), "{result:#}");
    assert!(result["downtime_ms"].as_u64().is_some_and(|ms| ms > 0), "{result:#}");

    let status = house.until_healthy();
    assert_eq!((vsid(&house), house.pods(), house.cordoned()), (json!(5000), 0, false), "{status:#}");
    #[cfg(not(windows))]
    assert_ne!(network_id(&house), before, "the network was re-created");
    assert_eq!(house.kubernetes_node()["spec"]["taints"].as_array().map_or(0, Vec::len), 0);
    assert!(house.kubernetes_node()["metadata"]["annotations"]["calicoctl-win/settings"].is_string());
    // Felix programs routes with the VNI of the network.
    let felix = house.until_started("felix", 2);
    assert_eq!(felix[1]["env"]["FELIX_VXLANVNI"], "5000");
    assert_eq!(house.starts("startup").last().unwrap()["env"]["VXLAN_VNI"], "5000");

    let again = house.run(&format!("{VNI} -o json")).exits(0).json();
    assert_eq!(again["status"], "no_changes", "{again:#}");
    assert_eq!(house.starts("felix").len(), 2, "nothing was restarted");

    // Back, which is an ordinary change.
    let back = house.run("rollback -y -o json").exits(0).json();
    assert_eq!(back["generation"], 3, "{back:#}");
    house.until_healthy();
    assert_eq!((vsid(&house), house.cordoned()), (json!(4096), false));
}

#[cfg(not(windows))]
impl House {
    /// The DaemonSet's pod.
    pub fn fluent_bit(&self) -> Value {
        let pods = self.cluster().pods_on(NODE).unwrap();
        let is_its = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        pods.iter().find(is_its).cloned().unwrap_or_default()
    }

    /// The ids of the endpoints that the CNI plugin made on the network `Calico`, once the DaemonSet's pod has its own:
    /// that, and one that leaked.
    pub fn pods_endpoints(&self) -> Vec<String> {
        eventually("the DaemonSet's pod to have an endpoint", SOON, || {
            let all = self.read(r"test\hns.endpoints");
            let endpoints = all.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let of_cni = |one: &Value| one["Name"].as_str().is_some_and(|name| name.ends_with("_Calico"));
            let ids: Vec<String> = endpoints.filter(of_cni).map(|one| one["ID"].as_str().unwrap().to_owned()).collect();
            let runs = !self.read(r"test\hcs.systems").is_empty();
            (ids.len() == 2 && runs && self.fluent_bit()["status"]["podIP"].is_string()).then_some(ids)
        })
    }
}

/// A drain skips the pods of DaemonSets, and HNS refuses to delete their network.
#[test]
#[cfg(not(windows))]
fn a_vni_change_deletes_daemonset_pods_and_leaked_endpoints_before_the_network() {
    let Some(house) = node() else { return };
    let (endpoints, before) = (house.pods_endpoints(), house.fluent_bit());

    house.machine.file("test/runtime.hold", "");
    let words: Vec<&str> = VNI.split_whitespace().collect();
    let mut change = house.machine.start(&words, "test/said");
    // kubelet ends the container. Without a CNI configuration containerd cannot delete the endpoint.
    eventually("the DaemonSet's pod to be deleted", SOON, || {
        (house.fluent_bit()["metadata"]["uid"] != before["metadata"]["uid"]).then_some(())
    });
    assert_eq!(vsid(&house), 4096, "kubelet is waited for");
    fs::remove_file(house.test_file("runtime.hold")).unwrap();
    let ended = change.wait().unwrap();
    assert!(ended.success(), "{}", house.read("test/said"));

    house.until_healthy();
    assert_eq!((vsid(&house), house.cordoned()), (json!(5000), false));
    let asked = house.read(r"test\hns.log");
    let at = |what: String| asked.lines().position(|line| line == what).unwrap_or_else(|| panic!("{what}:\n{asked}"));
    let network = asked.lines().position(|line| line.starts_with("DELETE /networks/")).unwrap();
    for id in endpoints {
        assert!(at(format!("DELETE /endpoints/{id}")) < network);
    }
    assert_eq!(house.pods_endpoints().len(), 2, "the next pod has one on the new network");
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn a_log_level_restarts_felix_and_moves_no_pod() {
    let Some(house) = node() else { return };
    let networks = house.hns();
    let severity = |house: &House| house.starts("felix").last().unwrap()["env"]["FELIX_LOGSEVERITYSCREEN"].clone();

    let events = house.events("reconfigure -y --set services.felixLogSeverity=debug");
    assert!(!phases(&events).contains("cordon") && !phases(&events).contains("hns-network"), "{}", phases(&events));
    house.until_started("felix", 2);
    house.until_healthy();
    assert_eq!(severity(&house), "debug");
    assert_eq!((house.pods(), house.hns() == networks), (2, true));

    house.run("rollback -y").exits(0);
    house.until_started("felix", 3);
    house.until_healthy();
    assert!(severity(&house).is_null(), "FelixConfiguration decides");
    assert_eq!((house.pods(), house.hns() == networks), (2, true));
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated, where the feature Containers is")]
fn a_drain_that_a_budget_forbids_changes_nothing() {
    let Some(house) = node() else { return };
    let before = (house.hns(), house.read(r"ProgramData\calicoctl-win\services.json"));
    let budget = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets/web";
    house.cluster().as_admin(&Method::PATCH, budget, Some(&json!({"spec": {"maxUnavailable": 0}}))).unwrap();

    let refused = house.run(&format!("{VNI} -o json")).exits(8).json();

    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("DrainNeverAllowed"), &json!(false)));
    assert!(refused["error"].to_string().contains("demo/web"), "the budget is named: {refused:#}");
    assert_eq!((house.pods(), house.cordoned()), (2, false));
    let after = (house.hns(), house.read(r"ProgramData\calicoctl-win\services.json"));
    assert_eq!(after, before);
    assert_eq!(house.starts("felix").len(), 1, "nothing was restarted");
    let status = house.until_healthy();
    assert_eq!(status["run"], Value::Null, "{status:#}");
}

#[cfg(not(windows))]
impl House {
    /// Changes the VNI on trial.
    #[track_caller]
    fn try_vni(&self, within: &str) {
        let words = format!("{VNI} --mode try --confirm-timeout {within}");
        // To a file: under Wine the guard, which continues, keeps a pipe open that this would wait for.
        let mut run = self.machine.start(&words.split_whitespace().collect::<Vec<_>>(), "test/tried");
        assert!(run.wait().unwrap().success(), "{}", self.read(r"test\tried"));
        assert_eq!(vsid(self), 5000);
    }

    /// Waits until the trial is over and the former network is restored.
    #[track_caller]
    fn until_rolled_back(&self) {
        let trial = r"ProgramData\calicoctl-win\state\trial.json";
        eventually("the node to be reverted", 2 * SOON, || {
            (vsid(self) == 4096 && !self.machine.c(trial).exists()).then_some(())
        });
    }
}

/// The change itself may disconnect the node: then its author can do nothing about it.
#[cfg(not(windows))]
#[test]
fn a_trial_without_the_api_server_is_rolled_back() {
    let Some(house) = node() else { return };
    // Its deadline is longer than what is waited for here.
    house.try_vni("1h");
    let status = house.status();
    assert_eq!((vsid(&house), &status["trial"]["from"]), (json!(5000), &json!(1)), "{status:#}");

    house.wire.cut();

    eventually("the network of the trial to be gone", 2 * SOON, || (!house.hns().contains_key("Calico")).then_some(()));
    // Calico's own startup needs the API server: until then it fails.
    let failed = |said: &Value| said["event"] == "stop" && said["code"] == 1;
    eventually("startup to fail", SOON, || house.said("startup").iter().any(failed).then_some(()));
    house.wire.reconnect(house.cluster().addr());
    house.until_rolled_back();
    let status = house.until_healthy();
    assert_eq!((&status["trial"], vsid(&house)), (&Value::Null, json!(4096)), "{status:#}");
    assert_eq!(house.until_started("felix", 3).last().unwrap()["env"]["FELIX_VXLANVNI"], "4096");
    assert!(!house.cordoned());
}

/// After a boot only the service knows of the trial.
#[cfg(not(windows))]
#[test]
fn a_trial_interrupted_by_a_power_cut_is_rolled_back() {
    let Some(house) = node() else { return };
    house.try_vni("45s");
    house.machine.cut_power();
    house.machine.power_on();
    house.until_rolled_back();
    house.until_healthy();
    assert_eq!((house.status()["trial"].clone(), house.cordoned()), (Value::Null, false));
}

#[cfg(not(windows))]
#[test]
fn a_confirmed_trial_is_kept() {
    let Some(house) = node() else { return };
    house.try_vni("10m");
    house.run("confirm -y").exits(0);
    house.machine.cut_power();
    house.machine.power_on();
    let status = house.until_healthy();
    assert_eq!((vsid(&house), &status["trial"], &status["generation"]), (json!(5000), &Value::Null, &json!(2)));
}

#[cfg(not(windows))]
#[test]
fn drift_is_detected_and_repaired() {
    let Some(house) = node() else { return };
    let conf = r"Program Files\containerd\cni\conf\10-calico.conf";
    let (conf_before, program) =
        (house.read(conf), fs::read(house.machine.c(r"CalicoWindows\calico-node.exe")).unwrap());
    let command = |program: &str, arguments: &[&str]| {
        let done = house.machine.run_program(program, arguments);
        assert_eq!(done.code, 0, "{program} {arguments:?}: {}{}", done.stdout, done.stderr);
        done.stdout
    };
    let nothing = house.run("repair -y -o json").exits(0).json();
    assert_eq!(nothing["status"], "no_changes", "{nothing:#}");

    // Calico writes the file with the node's name at each start, and empties it first.
    house.run("service stop --yes").exits(0);
    house.order("startup", "writes=700");
    house.run("repair -y").exits(0);
    house.until_healthy();
    house.order("startup", "writes=0");

    // A file, a registry value, a service and a firewall rule, one after the other.
    let theirs = r"CalicoWindows\calico-node.exe.txt";
    house.machine.file("CalicoWindows/calico-node.exe.txt", "somebody's own note");
    let key = r"HKLM\Software\Tigera\Calico";
    let firewall = house.read(r"test\firewall");
    let drifts: [(&str, &dyn Fn()); 4] = [
        ("10-calico.conf", &|| fs::write(house.machine.c(conf), "{}").unwrap()),
        ("InstalledBy", &|| drop(command("reg", &["add", key, "/v", "InstalledBy", "/d", "somebody", "/f"]))),
        // While it runs it would only be marked.
        ("CalicoFelix", &|| {
            house.run("service stop --yes").exits(0);
            drop(command("sc", &["delete", "CalicoFelix"]));
        }),
        ("firewall", &|| fs::write(house.test_file("firewall"), "").unwrap()),
    ];
    for (what, drift) in drifts {
        drift();
        let status = house.status();
        assert!(status["drift"].to_string().contains(what), "{what}: {status:#}");
        let repaired = house.run("repair -y -o json").exits(0).json();
        assert_eq!(repaired["changed"], true, "{what}: {repaired:#}");
        let status = house.until_healthy();
        assert_eq!(status["drift"], json!([]), "{what}: {status:#}");
        assert_eq!((house.pods(), vsid(&house)), (2, json!(4096)), "{what}");
    }
    assert_eq!(house.read(conf), conf_before);
    assert!(command("reg", &["query", key, "/v", "InstalledBy"]).contains("calicoctl-win"));
    assert_eq!(house.service("CalicoFelix")["state"], "Running");
    assert_eq!(house.read(r"test\firewall").lines().count(), firewall.lines().count());
    assert_eq!(house.read(theirs), "somebody's own note");

    // The program itself, while it runs.
    let ours = house.machine.c(r"CalicoWindows\calico-node.exe");
    fs::rename(&ours, ours.with_extension("old")).unwrap();
    fs::write(&ours, "tampered with").unwrap();
    let release = r"--set calico.source.type=bundle --set calico.source.path=C:\calico-windows-v3.32.1.zip";
    house.run(&format!("repair -y {release}")).exits(0);
    house.until_healthy();
    assert_eq!(fs::read(&ours).unwrap(), program);

    // Defect B11: an old network with the right name. Pods on it would reach nothing, so they are deleted.
    let wrong = fs::read_to_string(house.test_file("hns.networks")).unwrap().replace("4096", "4097");
    fs::write(house.test_file("hns.networks"), wrong).unwrap();
    assert_eq!(vsid(&house), 4097);
    house.run("repair -y").exits(0);
    house.until_healthy();
    assert_eq!((vsid(&house), house.pods(), house.cordoned()), (json!(4096), 0, false));
}
