//! The platform is found on the machine, and decides what nobody set.

use crate::lab::Lab;

/// A node whose `node.yaml` says this too.
fn node_with(yaml: &str) -> Lab {
    let lab = Lab::node();
    lab.edit_yaml(|there| format!("{there}\n{yaml}\n"));
    lab
}

fn origin(lab: &Lab, path: &str) -> String {
    let shown = lab.run("config show --origins -o json").exits(0).json();
    let fields = shown["fields"].as_array().unwrap_or_else(|| panic!("{shown:#}"));
    let field = fields.iter().find(|field| field["path"] == path).unwrap_or_else(|| panic!("{path}: {shown:#}"));
    format!("{} ({})", field["value"], field["origin"].as_str().unwrap())
}

#[test]
fn on_aks_calico_enforces_policy_only_on_azures_networks() {
    let lab = Lab::node();
    let azure =
        "networks:\n  azure: {id: 0b7a4a2c-73a1-4d1e-a6a5-0c6e5f1a2b3c, kind: L2Bridge, subnet: 10.240.0.0/16}\n";
    lab.edit_yaml(|there| there.replace("networks:\n", azure));
    assert_eq!(origin(&lab, "spec.kubernetesProvider"), r#""AKS" (detected: the HNS network azure)"#);
    assert_eq!(origin(&lab, "spec.calicoNetwork.backend"), r#""none" (detected: provider AKS)"#);
    assert_eq!(origin(&lab, "spec.calicoNetwork.kubeNetwork"), r#""azure.*" (detected: provider AKS)"#);
    let before = lab.picture();

    let _installed = lab.run("install -y").exits(0);
    assert!(!lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf").exists(), "azure-vnet is the CNI here");
    let rules = std::fs::read_to_string(lab.on_node("C/CalicoWindows/static-rules.json")).unwrap();
    assert!(rules.contains("168.63.129.16"), "{rules}");
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

#[test]
fn on_ec2_the_metadata_route_survives_the_vswitch() {
    let lab = node_with(
        "cloud: {flavour: EC2, hostName: ip-10-20-0-21.ec2.internal}\nroutes:\n  169.254.169.254/32: {interface: Ethernet, nextHop: 0.0.0.0, metric: 256}",
    );
    assert_eq!(origin(&lab, "spec.kubernetesProvider"), r#""EC2" (detected: the EC2 instance metadata service)"#);
    // The cluster has the node under its host name: that is what kubelet chose.
    assert!(origin(&lab, "spec.kubernetes.nodeName").ends_with("(detected: host name)"));
    assert_eq!(origin(&lab, "spec.platform.preserveMetadataRoute"), "true (detected: provider EC2)");

    let _installed = lab.run("install -y").exits(0);
    let yaml = lab.read("node.yaml");
    let route = yaml.split("169.254.169.254/32").nth(1).unwrap_or_else(|| panic!("the route is lost:\n{yaml}"));
    assert!(route.contains("vEthernet (Ethernet)"), "{yaml}");
}

#[test]
fn what_is_told_is_believed() {
    let lab = node_with("cloud: {flavour: EC2, hostName: ip-10-20-0-21.ec2.internal}");
    let shown = lab.run("config show --origins -o json --set kubernetesProvider=none").exits(0).json();
    let text = shown.to_string();
    assert!(text.contains(r#"{"path":"spec.kubernetesProvider","value":"none","origin":"--set"}"#), "{text}");
}
