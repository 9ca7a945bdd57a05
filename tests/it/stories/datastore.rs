//! A node whose Calico works, and whose datastore does not answer.

use std::fs;

use serde_json::{Value, json};

use super::boot::with_kubelets_kubeconfig;
use super::credentials::runs_with_etcd;
use crate::etcd::{Etcd, Member};
use crate::lab::Lab;

/// The state after a boot while the datastore does not answer: CalicoNode's agent runs Calico's node startup
/// repeatedly, which exits with 1. And somebody has changed a file that all services read.
pub fn boots_without_datastore(lab: &Lab) {
    // Pods may start before the network.
    with_kubelets_kubeconfig(lab);
    lab.edit_yaml(|yaml| yaml.replacen("bootId: ", "bootId: second-", 1));
    let model: Value = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    let said = json!({
        "role": "node", "pid": model["services"]["CalicoNode"]["pid"], "since": "2026-01-02T15:04:05Z",
        "phase": "preparing", "restarts": 7, "lastExit": { "code": 1, "at": "2026-01-02T15:09:05Z" }, "crashLoop": true,
        "waitingFor": { "what": "Calico's node startup", "since": "2026-01-02T15:09:05Z", "limitS": null },
    });
    lab.write("node/C/ProgramData/calicoctl-win/agent/node.json", said.to_string());
    fs::write(lab.on_node("C/CalicoWindows/nodename"), "WIN-A1").unwrap();
}

/// Checks that neither status nor repair stops anything because of the datastore.
#[track_caller]
pub fn waits_for_it(lab: &Lab, why: &str) {
    let shown = lab.run("status").exits(12);
    assert!(shown.stdout.contains("CalicoNode waits for Calico's datastore, which cannot be used: "), "{shown}");
    assert!(shown.stdout.contains(why), "{shown}");
    assert!(!shown.stdout.contains("repair"), "status advises to stop what waits: {shown}");
    let before = lab.picture_without_state();
    let refused = lab.run("repair -y -o json").exits(7).json();
    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("DatastoreAway"), &json!(false)), "{refused:#}");
    assert!(refused["error"].to_string().contains(why), "{refused:#}");
    lab.picture_without_state().same_as(&before);
}

#[track_caller]
pub fn is_repaired(lab: &Lab) {
    let _repaired = lab.run("repair -y").exits(0);
    // The new agent reports no crash loop; a sandbox's reports nothing at all.
    fs::remove_file(lab.on_node("C/ProgramData/calicoctl-win/agent/node.json")).unwrap();
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

#[test]
fn while_etcd_does_not_answer_repair_changes_nothing_and_status_names_etcd() {
    let mut member = Member::start();
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let etcd = format!("--set datastore.type=etcdv3 --set datastore.etcd.endpoints={}", member.url());
    let vxlan = "--set calicoNetwork.backend=vxlan --set calicoNetwork.vxlan.vxlanVNI=4096";
    let _there = lab.run(&format!("install -y {vxlan} {etcd}")).exits(0);
    lab.healthy();
    member.stop();
    let running = lab.run("status -o json").exits(12).json();
    assert_eq!(running["overall"], "Degraded", "{running:#}");
    assert_eq!(running["problems"][0]["id"], "DatastoreAway", "{running:#}");
    assert!(running["services"].as_array().unwrap().iter().all(|service| service["state"] == "Running"), "{running:#}");
    boots_without_datastore(&lab);
    waits_for_it(&lab, "refuses the connection");

    member.start_again();
    is_repaired(&lab);
}

#[test]
fn an_etcd_client_whose_certificate_has_expired_is_named_and_no_service_stopped() {
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let etcd = Etcd::start();
    let put = |cert: &str, key: &str| {
        for (file, text) in [("client.key", key), ("client.crt", cert), ("ca.crt", &etcd.ca)] {
            lab.write(&format!("node/C/k/etcd/{file}"), text);
        }
    };
    put(&etcd.cert, &etcd.key);
    lab.write(
        "etcd.yaml",
        format!(
            "spec:\n  calicoNetwork: {{backend: vxlan, vxlan: {{vxlanVNI: 4096}}}}\n  datastore:\n    type: etcdv3\n    etcd:\n      \
             endpoints: ['{}']\n      keyFile: C:\\k\\etcd\\client.key\n      certFile: C:\\k\\etcd\\client.crt\n      caCertFile: C:\\k\\etcd\\ca.crt\n",
            etcd.url
        ),
    );
    let _there = lab.run("install -y -c etcd.yaml").exits(0);
    let (cert, key) = &etcd.expired;
    put(cert, key);
    let running = lab.run("status -o json").exits(12).json();
    assert_eq!(running["problems"][0]["id"], "DatastoreAway", "{running:#}");
    let certificate = running["credentials"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&certificate["kind"], &certificate["path"]),
        (&json!("etcd-certificate"), &json!(r"C:\k\etcd\client.crt"))
    );
    assert!(certificate["expires"].as_str().unwrap() < "2026", "{certificate}");
    boots_without_datastore(&lab);
    waits_for_it(&lab, "has expired");
}

#[test]
fn while_the_api_server_does_not_answer_repair_changes_nothing() {
    let lab = Lab::installed();
    boots_without_datastore(&lab);
    let before = lab.picture_without_state();
    let refused = lab.fails_at("api GET /*=reset", "repair -y -o json").exits(7).json();
    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("DatastoreAway"), &json!(false)), "{refused:#}");
    lab.picture_without_state().same_as(&before);
    is_repaired(&lab);
}

#[test]
fn what_calico_keeps_in_etcd_is_checked_as_in_the_kubernetes_api() {
    let member = Member::start();
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let etcd = format!("--set datastore.type=etcdv3 --set datastore.etcd.endpoints={}", member.url());
    let resources = "/calico/resources/v3/projectcalico.org";
    let felix = |spec: &str| {
        let felix = format!(r#"{{"kind":"FelixConfiguration","metadata":{{"name":"default"}},"spec":{spec}}}"#);
        member.put(&format!("{resources}/felixconfigurations/default"), &felix);
    };
    let pool = |spec: &str| {
        let pool = format!(r#"{{"kind":"IPPool","metadata":{{"name":"default-ipv4-ippool"}},"spec":{spec}}}"#);
        member.put(&format!("{resources}/ippools/default-ipv4-ippool"), &pool);
    };
    felix(r#"{"vxlanEnabled":true,"vxlanPort":4790,"wireguardEnabled":true}"#);
    pool(r#"{"cidr":"192.168.0.0/16","vxlanMode":"Always","blockSize":30}"#);
    member.put("/calico/ipam/v2/config", "{}");
    let controllers =
        r#"{"metadata":{"name":"default"},"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled"}}}}}"#;
    member.put(&format!("{resources}/kubecontrollersconfigurations/default"), controllers);
    let found = lab.run(&format!("preflight -o json {etcd}")).exits(3).json();
    let check = |id: &str| {
        let checks = found["checks"].as_array().unwrap();
        checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("{id}: {found:#}")).clone()
    };
    for id in ["VxlanPort", "BlockSize", "StrictAffinity"] {
        assert_eq!(check(id)["status"], "fail", "{:#}", check(id));
    }
    for id in ["WireGuard", "HostEndpoints"] {
        assert_eq!(check(id)["status"], "warn", "{:#}", check(id));
    }
    assert_eq!(check("EtcdAnswers")["status"], "ok", "{:#}", check("EtcdAnswers"));
    assert_eq!(check("StrictAffinity")["fix"], "calicoctl ipam configure --strictaffinity=true");
    let refused = lab.run(&format!("install -y -o json {etcd}")).exits(3).json();
    assert_eq!(refused["changed"], false, "{refused:#}");

    felix(r#"{"vxlanEnabled":true,"vxlanVNI":5000}"#);
    pool(r#"{"cidr":"192.168.0.0/16","vxlanMode":"Always"}"#);
    member.put("/calico/ipam/v2/config", r#"{"strict_affinity":true}"#);
    let _there = lab.run(&format!("install -y {etcd}")).exits(0);
    assert!(lab.read("node.yaml").contains("5000"), "the VNI is that of FelixConfiguration in etcd");
    // Only calicoctl may remove what belongs together there.
    let removed = lab.run("uninstall -y --cluster-traces -o json").exits(0).json();
    assert_eq!(removed["next"][0], "calicoctl delete node win-a1", "{removed:#}");
    assert!(removed["warnings"].to_string().contains("ClusterTracesLeft: Calico's data in etcd"), "{removed:#}");
}
