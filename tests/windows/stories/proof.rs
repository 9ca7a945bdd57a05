//! Calico's own startup has succeeded, and Felix and the Node are ready, before a run reports success.

use http::Method;
use serde_json::{Value, json};

use crate::house::{House, NODE, SOON};
use crate::machine::eventually;

const CONF: &str = r"Program Files\containerd\cni\conf\10-calico.conf";

const VNI: [&str; 6] = ["reconfigure", "-y", "--set", "calicoNetwork.vxlan.vxlanVNI=5000", "-o", "ndjson"];

fn set_ready(house: &House, status: &str) {
    let message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady";
    let ready = json!({ "type": "Ready", "status": status, "reason": "KubeletNotReady", "message": message });
    let patch = json!({ "status": { "conditions": [ready] } });
    house.cluster().as_admin(&Method::PATCH, &format!("/api/v1/nodes/{NODE}/status"), Some(&patch)).unwrap();
}

/// The events of a run so far.
fn events(house: &House) -> Vec<Value> {
    let text = house.read(r"test\said");
    text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line.strip_suffix('\n')?).ok()).collect()
}

fn waits_for(house: &House, what: &str) -> Option<()> {
    events(house).iter().any(|event| event["message"].as_str().unwrap_or_default().contains(what)).then_some(())
}

#[test]
fn nothing_is_published_while_node_startup_fails_on_the_new_network() {
    let Some(house) = House::joined() else { return };
    let (startups, felix) = (house.starts("startup").len(), house.starts("felix").len());
    house.order("startup", "exit=1 late\nexit=1 late\nexit=1 late\nrun");
    let mut run = house.machine.start(&VNI, "test/said");

    // The network exists, and startup has failed on it.
    house.until_started("startup", startups + 3);
    let vsid = house.hns()["Calico"]["Subnets"][0]["Policies"][0]["VSID"].clone();
    assert_eq!((vsid, house.machine.c(CONF).exists(), house.cordoned()), (json!(5000), false, true));
    assert_eq!(house.starts("felix").len(), felix, "Felix reads what startup writes");

    // An earlier failure does not change the result.
    assert!(run.wait().unwrap().success(), "{:#?}", events(&house).last());
    let mut ended = house.said("startup").into_iter().filter(|said| said["event"] == "stop");
    assert_eq!(ended.next_back().unwrap()["code"], 0, "startup succeeded before the run ended");
    assert_eq!((house.machine.c(CONF).exists(), house.cordoned()), (true, false));
    assert_eq!(house.starts("felix").len(), felix + 1, "and started once");
    house.until_healthy();
}

#[test]
fn a_node_is_uncordoned_when_it_is_ready_and_not_before() {
    let Some(house) = House::joined() else { return };
    set_ready(&house, "False");
    let mut run = house.machine.start(&VNI, "test/said");
    eventually("the wait for a Ready node", SOON, || {
        waits_for(&house, &format!("Node {NODE} is not Ready (KubeletNotReady: "))
    });
    assert!(house.machine.c(CONF).exists() && house.cordoned());
    set_ready(&house, "True");
    assert!(run.wait().unwrap().success(), "{:#?}", events(&house).last());
    assert!(!house.cordoned());
}

#[test]
fn a_felix_that_is_not_ready_is_awaited_and_shown() {
    let Some(house) = House::new() else { return };
    house.order("felix", "unready exit=129 after=4000\nunready exit=129 after=4000\nrun");
    house.install();
    assert_eq!(house.starts("felix").len(), 3, "the one that is ready");
    house.until_healthy();
    house.order("felix", "unready");
    house.end("felix", 129);
    let says = "Felix says that it is not ready (HTTP 503)";
    let status = house.until("Felix not ready", |status| status["reasons"].to_string().contains(says));
    assert_eq!(status["overall"], "Degraded", "{status:#}");
}
