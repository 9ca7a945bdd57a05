//! Windows starts, and kubelet and the container runtime start before CalicoNode: they attach pods to the old network,
//! which is then deleted. Those pods would never get another endpoint.

use std::fs;

use calicoctl_win::node::sandbox::model::Name;
use serde_json::{Value, json};

use super::pods::{has_network, pods};
use super::restart::cluster;
use crate::lab::Lab;

const CONF: &str = "C/Program Files/containerd/cni/conf/10-calico.conf";

/// The power fails and returns; no service of Calico runs yet.
pub fn power_returns(lab: &Lab) {
    lab.edit_model(|model| {
        // After every time that a run recorded, whatever its clock.
        model.boots("the next boot".into(), "2099-01-02T15:04:05Z".parse().unwrap());
        for name in ["CalicoNode", "CalicoFelix"] {
            model.services.get_mut(&Name::new(name)).unwrap().pid = None;
        }
    });
}

/// The same, and CalicoNode starts. kubelet runs before.
fn boots(lab: &Lab) {
    power_returns(lab);
    let _scm = lab.run("service start").exits(0);
    let_kubelet_run(lab);
}

/// Lets kubelet do its work, by listing the pods.
fn let_kubelet_run(lab: &Lab) {
    let _shown = lab.run("reconfigure --dry-run --set spec.calicoNetwork.vxlan.vxlanVNI=5000");
}

/// Writes kubelet's own kubeconfig to kubeadm's path.
pub fn with_kubelets_kubeconfig(lab: &Lab) {
    let text = cluster(lab).kubeconfig_of("system:node:win-a1", Some("system:nodes")).unwrap();
    lab.write("node/C/etc/kubernetes/kubelet.conf", text);
}

/// Returns the Events about pods: the pod, and the reason.
fn events(lab: &Lab) -> Vec<(String, Value)> {
    let lost = |(kind, _, event): &(String, String, Value)| kind == "events" && event["reason"] == "NetworkLost";
    let told = lab.objects().into_iter().filter(lost);
    told.map(|(_, _, event)| (event["involvedObject"]["name"].as_str().unwrap().into(), event["message"].clone()))
        .collect()
}

/// Returns the pods of the node that have an address without an endpoint.
pub fn dead(lab: &Lab) -> Vec<String> {
    let dead = |(_, pod): &(String, Value)| pod["status"]["podIP"].is_string() && !has_network(lab, pod);
    pods(lab).into_iter().filter(dead).map(|(name, _)| name).collect()
}

#[test]
fn after_a_boot_no_pod_keeps_an_address_without_an_endpoint() {
    let lab = Lab::installed();
    with_kubelets_kubeconfig(&lab);
    let before = pods(&lab);
    boots(&lab);
    assert_eq!(dead(&lab), Vec::<String>::new());
    let after = pods(&lab);
    let daemons = |all: &[(String, Value)]| {
        let found = all.iter().find(|(name, _)| name.starts_with("fluent-bit")).unwrap();
        (found.1["metadata"]["uid"].clone(), found.1["status"]["phase"].clone())
    };
    assert_ne!(daemons(&after).0, daemons(&before).0, "it was re-created");
    assert_eq!(daemons(&after).1, "Running");
    let said = json!("lost its network: deleted, so that it is re-created");
    let told = events(&lab);
    assert!(told.len() == before.len() && told.iter().all(|(_, message)| *message == said), "{told:#?}");
    assert!(lab.on_node(CONF).is_file() && !lab.on_node(&format!("{CONF}.withdrawn")).exists());
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!(status["overall"], "Healthy", "{status:#}");
}

/// Neither kubelet's kubeconfig nor the right that `docs/rbac.yaml` names in a comment exists.
#[test]
fn pods_that_may_not_be_deleted_are_named_until_they_are_deleted() {
    let lab = Lab::installed();
    let names: Vec<String> = pods(&lab).into_iter().map(|(name, _)| name).collect();
    boots(&lab);
    assert_eq!(dead(&lab), names);
    let status = lab.run("status -o json").exits(12).json();
    let reasons = status["reasons"].to_string();
    assert_eq!(status["overall"], "Degraded", "{status:#}");
    for name in &names {
        assert!(reasons.contains(&format!("demo/{name} (192.168.0.")), "{name}: {reasons}");
    }
    let text = lab.run("status").exits(12);
    assert!(text.stdout.contains("pods have lost their network and must be deleted: demo/"), "{text}");

    // With the right, it is done at the next attempt.
    with_kubelets_kubeconfig(&lab);
    let _again = lab.run("service restart -y").exits(0);
    let_kubelet_run(&lab);
    assert_eq!(dead(&lab), Vec::<String>::new());
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

/// A pod without a controller is for its owner to delete.
#[test]
fn a_pod_without_a_controller_is_left_and_named() {
    let lab = Lab::installed();
    with_kubelets_kubeconfig(&lab);
    let name = "web-5d8f7c9b6d-4xkzq";
    lab.edit_object("pods", name, |pod| drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences")));
    boots(&lab);
    assert_eq!(dead(&lab), [name]);
    let status = lab.run("status -o json").exits(12).json();
    assert!(status["reasons"].to_string().contains(&format!("demo/{name} (192.168.0.")), "{status:#}");
    let told = events(&lab).into_iter().find(|(pod, _)| pod == name).unwrap().1;
    assert_eq!(told, "has no network, and must be deleted");
}

/// While CalicoNode cannot create the network, kubelet has no CNI configuration.
#[test]
fn until_the_network_is_up_the_cni_configuration_is_withdrawn() {
    let lab = Lab::installed();
    let before = fs::read(lab.on_node(CONF)).unwrap();
    power_returns(&lab);
    let _refused = lab.fails_at("put network External#1+=fail", "service start");
    assert!(!lab.on_node(CONF).exists());
    assert_eq!(fs::read(lab.on_node(&format!("{CONF}.withdrawn"))).unwrap(), before);
    let status = lab.run("status -o json").json();
    assert!(status["reasons"].to_string().contains("the CNI configuration is withdrawn"), "{status:#}");
    let planned = lab.run("plan -o json").exits(0).json();
    assert!(!planned.to_string().contains("10-calico.conf"), "to us it is there: {planned:#}");

    let _there = lab.run("service start").exits(0);
    assert_eq!(fs::read(lab.on_node(CONF)).unwrap(), before);
    assert!(!lab.on_node(&format!("{CONF}.withdrawn")).exists());
    let gone = lab.copy();
    // An uninstall removes it, withdrawn or not.
    fs::rename(gone.on_node(CONF), gone.on_node(&format!("{CONF}.withdrawn"))).unwrap();
    let _uninstalled = gone.run("uninstall -y").exits(0);
    assert!(!gone.on_node(CONF).exists() && !gone.on_node(&format!("{CONF}.withdrawn")).exists());
}
