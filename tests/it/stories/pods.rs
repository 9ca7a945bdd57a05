//! Pods are attached to the network that a change replaces: those that a drain moves, a DaemonSet's, which a drain
//! ignores, one that HNS keeps although its container has ended, and unknown ones.

use std::fs;

use calicoctl_win::node::sandbox::model::{Model, Name};
use serde_json::{Value, json};

use crate::lab::Lab;

const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";

/// The pods on the node, by their names.
pub fn pods(lab: &Lab) -> Vec<(String, Value)> {
    let here = |(kind, _, pod): &(String, String, Value)| kind == "pods" && pod["spec"]["nodeName"] == "win-a1";
    lab.objects().into_iter().filter(here).map(|(_, name, pod)| (name, pod)).collect()
}

/// The DaemonSet's pod.
fn fluent_bit(lab: &Lab) -> Value {
    let found: Vec<(String, Value)> =
        pods(lab).into_iter().filter(|(name, _)| name.starts_with("fluent-bit-")).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap().1
}

fn model(lab: &Lab) -> Model {
    serde_yaml::from_str(&lab.read("node.yaml")).unwrap()
}

/// The running containers.
fn running(lab: &Lab) -> Vec<String> {
    let text = fs::read_to_string(lab.on_node(".sandbox/containers")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The endpoints of pods on Calico's network: of running containers, and others.
fn endpoints(lab: &Lab) -> (usize, usize) {
    let (model, running) = (model(lab), running(lab));
    let Some(network) = model.networks.get(&Name::new("Calico")) else { return (0, 0) };
    let containers = network.endpoints.values().filter_map(|endpoint| endpoint.container.as_ref());
    let (live, leaked): (Vec<_>, Vec<_>) = containers.partition(|container| running.contains(container));
    (live.len(), leaked.len())
}

/// The VSID of Calico's network.
pub fn vsid(lab: &Lab) -> Option<u32> {
    model(lab).networks.get(&Name::new("Calico")).and_then(|network| network.vsid)
}

fn cordoned(lab: &Lab) -> bool {
    lab.object("nodes", "win-a1").unwrap()["spec"]["unschedulable"] == true
}

/// Whether a pod's address belongs to an endpoint of the current network.
pub fn has_network(lab: &Lab, pod: &Value) -> bool {
    let model = model(lab);
    let mut endpoints = model.networks[&Name::new("Calico")].endpoints.values();
    pod["status"]["podIP"].as_str().is_some_and(|ip| endpoints.any(|endpoint| endpoint.ip.to_string() == ip))
}

/// Adds a container that no pod of the cluster explains, attached to Calico's network.
fn strangers_container(lab: &Lab) {
    lab.edit_model(|model| {
        let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
        let mut endpoint = network.endpoints.values().find(|endpoint| endpoint.container.is_some()).unwrap().clone();
        endpoint.container = Some("by-hand".into());
        endpoint.ip = "192.168.0.60".parse().unwrap();
        network.endpoints.insert(Name::new("by-hand_Calico"), endpoint);
    });
    let mut lines = fs::read_to_string(lab.on_node(".sandbox/containers")).unwrap();
    lines.push_str("by-hand\n");
    fs::write(lab.on_node(".sandbox/containers"), lines).unwrap();
}

#[test]
fn pods_on_the_test_nodes_have_endpoints_and_one_endpoint_is_leaked() {
    let lab = Lab::installed();
    assert_eq!((pods(&lab).len(), endpoints(&lab)), (3, (3, 1)));
    assert!(pods(&lab).iter().all(|(_, pod)| has_network(&lab, pod)));
}

/// A drain ignores the pods of DaemonSets, and HNS refuses to delete the network while they are attached.
#[test]
fn a_vni_change_deletes_daemonset_pods_which_are_re_created_and_leaked_endpoints() {
    let lab = Lab::installed();
    let before = fluent_bit(&lab);
    let shown = lab.run(&format!("{VNI} --dry-run")).exits(0);
    for part in [
        "On the HNS network Calico, which is deleted:\n",
        "demo/fluent-bit-7hb2k (192.168.0.",
        "is deleted; its DaemonSet re-creates it, and it starts when there is a network again",
        "has no container any more, and is deleted",
        "demo/web-5d8f7c9b6d-4xkzq (192.168.0.",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {shown}");
    }
    assert_eq!(endpoints(&lab), (3, 1), "a look changes nothing");

    let lines = lab.run(&format!("{VNI} -o ndjson")).exits(0).ndjson();
    let done =
        lines.iter().filter(|line| line["type"] == "phase_complete").filter_map(|line| line["phase"]["id"].as_str());
    let order: Vec<&str> =
        done.filter(|id| ["drain", "cni-conf", "pods", "services-stop", "hns-network"].contains(id)).collect();
    assert_eq!(order, ["drain", "cni-conf", "pods", "services-stop", "hns-network", "cni-conf"]);
    // A process that ends leaves it to the next one to re-create the pod.
    let _later = lab.run("plan").exits(0);
    let after = fluent_bit(&lab);
    assert_eq!((vsid(&lab), cordoned(&lab)), (Some(5000), false));
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"], "it was re-created");
    assert!(has_network(&lab, &after) && after["status"]["phase"] == "Running", "{after:#}");
}

/// Their containers run on without an endpoint, and never get another one.
#[test]
fn a_repair_re_creates_the_pods_whose_network_somebody_deleted() {
    let lab = Lab::installed();
    lab.edit_model(|model| {
        model.networks.remove(&Name::new("Calico")).unwrap();
    });
    let before = fluent_bit(&lab);
    let repaired = lab.run("repair --yes -o json").exits(0).json();
    let warnings = repaired["warnings"].to_string();
    for pod in ["demo/fluent-bit-7hb2k", "demo/web-5d8f7c9b6d-4xkzq"] {
        assert!(warnings.contains("PodsLostNetwork") && warnings.contains(pod), "{pod}: {repaired:#}");
    }
    // A process that ends leaves it to the next one to re-create the pod.
    let _later = lab.run("verify").exits(0);
    let after = fluent_bit(&lab);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"], "it was re-created");
    assert!(has_network(&lab, &after), "{after:#}");
}

#[test]
fn an_unknown_container_stops_the_change_before_the_cordon() {
    let lab = Lab::installed();
    strangers_container(&lab);
    let before = lab.picture_without_state();
    let refused = lab.run(&format!("{VNI} -o json")).exits(26).json();
    assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!("PodsAttached"), &json!(false)), "{refused:#}");
    assert_eq!((&refused["exit_name"], &refused["error"]["retryable"]), (&json!("IN_USE"), &json!(false)));
    assert!(refused["error"].to_string().contains("by-hand_Calico (192.168.0.60)"), "{refused:#}");
    lab.picture_without_state().same_as(&before);
    assert_eq!((pods(&lab).len(), cordoned(&lab), vsid(&lab)), (3, false, Some(4096)));
}

/// kubelet does not end the pod, for example because its container does not stop.
#[test]
fn a_daemonset_pod_that_does_not_end_stops_the_change_before_the_network_is_touched() {
    let lab = Lab::installed();
    let _moved = lab.run("node drain -y --ignore-daemonsets").exits(0);
    let _takes_pods = lab.run("node uncordon").exits(0);
    let failed = lab.fails_at("api no-kubelet", &format!("{VNI} -o json --drain-timeout 1s")).exits(9).json();
    assert_eq!((&failed["error"]["id"], &failed["rolled_back"]), (&json!("PodsNotGone"), &json!(true)), "{failed:#}");
    assert!(failed["error"].to_string().contains("demo/fluent-bit-7hb2k"), "{failed:#}");
    assert_eq!((cordoned(&lab), vsid(&lab)), (false, Some(4096)));
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
}

#[test]
fn without_a_drain_endpoints_and_then_their_pods_are_deleted() {
    let lab = Lab::installed();
    let mut bare = pods(&lab).into_iter().find(|(name, _)| name.ends_with("4xkzq")).unwrap().1;
    bare["metadata"]["ownerReferences"] = Value::Null;
    lab.edit_object("pods", "web-5d8f7c9b6d-4xkzq", |pod| *pod = bare);
    let before = fluent_bit(&lab);
    let done = lab.run(&format!("{VNI} --no-drain")).exits(0);
    assert!(done.stdout.contains("[WARN]  NotDrained"), "{done}");
    let named = "these lost their network and must be deleted by hand: demo/web-5d8f7c9b6d-4xkzq\n";
    assert!(done.stdout.contains("PodsWithoutNetwork") && done.stdout.contains(named), "{done}");
    assert_eq!((vsid(&lab), cordoned(&lab)), (Some(5000), false));
    let left: Vec<String> =
        pods(&lab).into_iter().map(|(name, _)| name).filter(|name| name.starts_with("web")).collect();
    assert_eq!(left, ["web-5d8f7c9b6d-4xkzq"], "the other one is for its controller to make again");
    // A process that ends leaves it to the next one to re-create the pod.
    let _later = lab.run("plan").exits(0);
    let after = fluent_bit(&lab);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(has_network(&lab, &after));
}

/// Previously this failed in the last phase, with everything removed, and everything was re-created.
#[test]
fn an_uninstall_shows_the_pods_and_detaches_them_before_anything_is_removed() {
    let lab = Lab::installed();
    let shown = lab.run("uninstall --dry-run").exits(0);
    assert!(shown.stdout.contains("demo/fluent-bit-7hb2k (192.168.0."), "{shown}");
    let drained = lab.copy();
    let unknown = lab.copy();

    let lines = lab.run("uninstall -y -o ndjson").exits(0).ndjson();
    assert!(lines.iter().any(|line| line.to_string().contains("NotDrained")));
    let done =
        lines.iter().filter(|line| line["type"] == "phase_complete").filter_map(|line| line["phase"]["id"].as_str());
    let order: Vec<&str> =
        done.filter(|id| ["cni-conf", "pods", "services-stop", "hns-network"].contains(id)).collect();
    assert_eq!(order, ["cni-conf", "pods", "services-stop", "hns-network"]);
    let _later = lab.run("plan").exits(0);
    assert_eq!((vsid(&lab), fluent_bit(&lab)["status"]["phase"].clone()), (None, json!("Pending")));

    let _moved = drained.run("uninstall -y --drain").exits(0);
    assert_eq!((vsid(&drained), cordoned(&drained)), (None, true));

    strangers_container(&unknown);
    let before = unknown.picture_without_state();
    let refused = unknown.run("uninstall -y --drain -o json").exits(26).json();
    assert_eq!(refused["error"]["id"], "PodsAttached", "{refused:#}");
    unknown.picture_without_state().same_as(&before);
    assert!(!cordoned(&unknown));
    let named = unknown.run("uninstall -y").exits(0);
    assert!(named.stdout.contains("must be deleted by hand: by-hand_Calico"), "{named}");
}

/// After it is killed at each step around the pods' end, the run is finished, or undone.
#[test]
fn a_run_that_is_killed_while_pods_end_is_finished_or_undone() {
    let there = Lab::installed();
    for words in [VNI.to_owned(), format!("{VNI} --no-drain")] {
        for at in [
            "put *10-calico.conf#1=exit-after",
            "put endpoint#1=exit-before",
            "put endpoint#1=exit-after",
            "put running CalicoFelix#1=exit-before",
            "put network Calico#1=exit-after",
            "put *10-calico.conf#2=exit-after",
        ] {
            let killed = there.copy();
            let _killed = killed.fails_at(at, &words).exits(137);
            let undone = killed.copy();
            let _on = killed.run("resume -y").exits(0);
            let _back = undone.run("resume --undo -y").exits(0);
            for (lab, vni) in [(&killed, 5000), (&undone, 4096)] {
                assert_eq!((vsid(lab), cordoned(lab)), (Some(vni), false), "{words} at {at}");
                assert!(has_network(lab, &fluent_bit(lab)), "{words} at {at}: {vni}");
            }
        }
    }
}

/// The container runtime finishes a pod that it was adding when the CNI configuration was withdrawn: its endpoint comes
/// after the step that detaches pods, and HNS refuses to delete the network.
#[test]
fn a_pod_that_was_being_added_when_the_configuration_went_does_not_keep_the_network() {
    let lab = Lab::installed();
    let removed = lab.fails_at("put network Calico#1=late-pod", "uninstall -y").exits(0);
    assert!(!model(&lab).networks.contains_key(&Name::new("Calico")), "{removed}");
    assert!(running(&lab).iter().any(|id| id.starts_with("late-pod-")), "the fault struck: {:?}", running(&lab));
}
