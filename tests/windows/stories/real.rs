//! Programs that link what Calico, kubelet and kube-proxy link, on a machine of the tests. `packaging/real/prepare.sh`
//! builds them.

use serde_json::Value;

use crate::house::{House, SOON};
use crate::machine::{Machine, eventually};
use crate::parts::part;

/// How many questions `tests/real/hns` asks: one that is no longer asked is missed here.
const QUESTIONS: usize = 165;

#[test]
fn hns_answers_what_calico_kubelet_and_kube_proxy_ask_as_real_hns_does() {
    let Some(program) = part("hns.exe") else { return };
    let Some(machine) = Machine::new() else { return };
    let ended = machine.run_program(&program.to_string_lossy(), &[]);
    let rows: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wrong: Vec<String> = rows.iter().filter(|row| row["ok"] != true).map(|row| format!("{row:#}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((rows.len(), ended.code), (QUESTIONS, 0), "{}", ended.stderr);
}

const SANDBOX: &str = "c1d6a0a3f24f4f4b9f4c6b1a8e7d5c3b2a190817263544536271809a8b7c6d5e";

impl House {
    /// The HNS endpoint of a sandbox's pod.
    fn endpoint_of(&self, sandbox: &str) -> Option<Value> {
        let all = self.read("test/hns.endpoints");
        let mut endpoints = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        endpoints.find(|endpoint| endpoint["Name"] == format!("{sandbox}_Calico"))
    }

    /// The rules of a sandbox's pod: each action and its priority.
    fn rules_of(&self, sandbox: &str) -> Vec<(String, u64)> {
        let endpoint = self.endpoint_of(sandbox).unwrap_or_default();
        let policies = endpoint["Policies"].as_array().into_iter().flatten();
        let rules = policies.filter(|policy| policy["Type"] == "ACL");
        rules.map(|rule| (rule["Action"].as_str().unwrap().into(), rule["Priority"].as_u64().unwrap())).collect()
    }
}

#[test]
fn a_pod_gets_its_endpoint_by_our_configuration_and_its_rules_by_felix_and_leaves_nothing() {
    let Some(cri) = part("cri.exe") else { return };
    let Some(house) = House::new() else { return };
    // This test does the container runtime's part.
    house.machine.file("test/runtime.hold", "");
    drop(house.start_kubelet());
    house.install();
    house.until_healthy();
    let cri = |verb: &str, pod: &str| house.machine.run_program(&cri.to_string_lossy(), &[verb, SANDBOX, pod]);
    let pod = house.fluent_bit();
    let name = format!("demo/{}", pod["metadata"]["name"].as_str().unwrap());

    let added = cri("add", &name).exits(0).json();
    let address = added["ips"][0]["address"].as_str().unwrap().strip_suffix("/26").unwrap().to_owned();
    let endpoint = house.endpoint_of(SANDBOX).unwrap();
    assert_eq!(endpoint["IPAddress"], address.as_str(), "{endpoint:#}");
    assert_eq!(added["dns"]["nameservers"][0], "10.96.0.10");
    // Closed, until Felix knows the pod.
    assert_eq!(house.rules_of(SANDBOX), [("Block".into(), 65_500)]);
    house.cluster().pod_runs(&house.fluent_bit(), address.parse().unwrap()).unwrap();
    eventually("Felix's rules", SOON, || {
        (house.rules_of(SANDBOX) == [("Allow".into(), 1000), ("Allow".into(), 1000)]).then_some(())
    });

    cri("del", &name).exits(0);
    assert_eq!(house.endpoint_of(SANDBOX), None);
    let again = cri("add", &name).exits(0).json();
    assert_ne!(again["ips"][0]["address"], format!("{address}/26"), "the freed address is used last");
    cri("del", &name).exits(0);
}
