//! What Calico does not do on Windows is said before it happens.

use serde_json::{Value, json};

use crate::lab::Lab;

/// The detail of a check, with its status.
fn said(lab: &Lab, id: &str) -> String {
    let report = lab.run("preflight -o json").exits(0).json();
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == id);
    let check = check.unwrap_or_else(|| panic!("{id}: {report:#}"));
    format!("{} {}", check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

#[test]
fn what_windows_does_not_do_with_a_clusters_calico_gets_a_warning() {
    let lab = Lab::node();
    for id in ["HostEndpoints", "ServiceAdvertisement", "ApplicationLayerPolicy"] {
        assert!(said(&lab, id).starts_with("ok "), "{id}: {}", said(&lab, id));
    }
    assert_eq!(said(&lab, "TyphaWorkers"), "skip there is no Typha");

    let object = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let created = json!({ "controllers": { "node": { "hostEndpoint": { "autoCreate": "Enabled" } } } });
    lab.add_object(
        "kubecontrollersconfigurations.crd.projectcalico.org",
        object("KubeControllersConfiguration", "default", created),
    );
    lab.edit_object("bgpconfigurations.crd.projectcalico.org", "default", |bgp| {
        bgp["spec"]["serviceClusterIPs"] = json!([{ "cidr": "10.96.0.0/12" }]);
        bgp["spec"]["serviceExternalIPs"] = json!([{ "cidr": "203.0.113.0/25" }, { "cidr": "203.0.113.128/25" }]);
    });
    let rule = json!({ "action": "Allow", "protocol": "TCP", "http": { "methods": ["GET"] } });
    lab.add_object(
        "globalnetworkpolicies.crd.projectcalico.org",
        object("GlobalNetworkPolicy", "only-get", json!({ "selector": "app == 'web'", "ingress": [rule] })),
    );
    let replicas = json!({ "replicas": 1 });
    let typha = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "calico-typha", "namespace": "calico-system" },
        "spec": replicas, "status": { "readyReplicas": 1 },
    });
    lab.add_object("deployments.apps", typha);

    let told =
        ["HostEndpoints", "ServiceAdvertisement", "ApplicationLayerPolicy", "TyphaWorkers"].map(|id| said(&lab, id));
    assert_eq!(
        told,
        [
            "warn Calico creates a host endpoint for each node (autoCreate: Enabled); there are 0",
            "warn BGPConfiguration has serviceClusterIPs: 10.96.0.0/12; serviceExternalIPs: 203.0.113.0/25, 203.0.113.128/25",
            "warn 1 of 1 policies need application layer policy, such as only-get (HTTP requests)",
            "warn Linux workers: 1, and Typha needs 3",
        ]
    );
    let _installed = lab.run("install -y").exits(0);
}

#[test]
fn a_windows_node_with_bgp_is_no_route_reflector() {
    let lab = Lab::node();
    // The first run creates the cluster.
    let _seen = lab.run("preflight").exits(0);
    lab.edit_object("ippools.crd.projectcalico.org", "default-ipv4-ippool", |pool| {
        pool["spec"]["vxlanMode"] = "Never".into();
    });
    lab.edit_object("felixconfigurations.crd.projectcalico.org", "default", |felix| {
        felix["spec"]["vxlanEnabled"] = false.into();
    });
    lab.edit_object("installations.operator.tigera.io", "default", |found| {
        found["spec"]["calicoNetwork"]["bgp"] = "Enabled".into();
    });
    lab.edit_yaml(|there| format!("{there}\ncloud: {{flavour: EC2, hostName: ip-10-20-0-21.ec2.internal}}\n"));
    let told = |id: &str| {
        let words = "preflight -o json --set calicoNetwork.backend=windows-bgp";
        let report = lab.run(words).json();
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == id).cloned();
        let check = check.unwrap_or_else(|| panic!("{id}: {report:#}"));
        format!("{} {}", check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
    };
    assert_eq!(told("RouteReflectors"), "ok this node is none");
    assert_eq!(
        told("SourceDestCheck"),
        "warn the instance cannot see whether its source/destination check is off, which windows-bgp needs"
    );
    lab.edit_object("nodes", "win-a1", |node| {
        node["metadata"]["annotations"]["projectcalico.org/RouteReflectorClusterID"] = "244.0.0.1".into();
    });
    assert_eq!(told("RouteReflectors"), "warn the Node win-a1 has RouteReflectorClusterID 244.0.0.1");
}

const RESETS: &str = "TCP connections of pods may be reset, because Felix restarts.";

#[test]
fn a_plan_says_that_felix_restarts_only_if_pods_keep_their_network() {
    let bare = Lab::node();
    assert!(!bare.run("plan").exits(0).stdout.contains(RESETS), "no Felix runs yet");
    let lab = Lab::installed();
    assert!(!lab.run("plan").exits(0).stdout.contains(RESETS), "nothing changes");
    let shown = |words: &str| lab.run(words).exits(0).stdout;
    let log = "reconfigure --dry-run --set services.felixLogSeverity=debug";
    assert!(shown(log).contains(RESETS));
    assert_eq!(lab.run(&format!("{log} -o json")).exits(0).json()["plan"]["resets_connections"], true);
    assert!(shown("service restart --dry-run").contains(RESETS.trim_end_matches('.')));
    assert!(!shown("service stop --dry-run").contains(RESETS.trim_end_matches('.')), "Felix does not start again");
    let network = shown("reconfigure --dry-run --set calicoNetwork.vxlan.vxlanVNI=5000");
    assert!(network.contains("pods on this node lose their network") && !network.contains(RESETS), "{network}");
    assert!(!shown("uninstall --dry-run").contains(RESETS), "Felix does not start again");
}
