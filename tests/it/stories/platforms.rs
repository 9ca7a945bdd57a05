//! The platform is detected on the machine, and sets the defaults.

use calicoctl_win::node::sandbox::model::{Model, Name};

use super::boot::power_returns;
use crate::lab::Lab;

/// A node with this in its `node.yaml`.
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

/// Felix runs, is ready, and finds none of the pods.
#[test]
fn policy_only_without_a_network_that_felix_looks_at_is_not_healthy() {
    let lab = Lab::node();
    let azure = "networks:\n  azure: {id: 0b7a, kind: L2Bridge, subnet: 10.240.0.0/16}\n";
    lab.edit_yaml(|there| there.replace("networks:\n", azure));
    let _installed = lab.run("install -y").exits(0);
    lab.healthy();
    lab.edit_yaml(|there| there.replace("\n  azure:", "\n  cbr0:"));
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!(status["overall"], "Degraded", "{status:#}");
    let said = "no HNS network matches kubeNetwork `azure.*`, so Felix enforces no policy; there are: cbr0, nat";
    let problem = &status["problems"][0];
    assert_eq!((&problem["id"], &problem["message"]), (&"KubeNetwork".into(), &said.into()), "{status:#}");
}

/// A node with Flannel's network in its host-gateway mode, with win-bridge, and one pod on it.
pub(super) fn on_win_bridge() -> Lab {
    let lab = Lab::node();
    let cbr0 = "networks:\n  cbr0:\n    id: 0b7a\n    kind: L2Bridge\n    subnet: 10.244.3.0/24\n    endpoints:\n      \
                web-1: {ip: 10.244.3.7, mac: 00-15-5D-00-00-07, container: 3f2c9d}\n";
    lab.edit_yaml(|there| there.replace("networks:\n", cbr0));
    lab
}

/// Felix must look at the network of the other plugin.
#[test]
fn policy_only_is_enforced_on_the_network_of_the_other_plugin() {
    let lab = on_win_bridge();
    let policy_only = "--set calicoNetwork.backend=none";
    let shown = lab.run(&format!("config show --origins {policy_only}")).exits(0).stdout;
    assert!(shown.contains("^cbr0$") && shown.contains("detected: the HNS network cbr0"), "{shown}");
    let _installed = lab.run(&format!("install -y {policy_only}")).exits(0);
    let status = lab.healthy();
    assert_eq!(status["policy_networks"], serde_json::json!(["cbr0"]), "{status:#}");
    assert!(lab.run("status").exits(0).stdout.contains("pods on cbr0"));
    assert!(lab.read("node.yaml").contains("Action: Block"), "Felix keeps rules on the pod's endpoint");

    // The plugin's network has another name since.
    lab.edit_yaml(|there| there.replace("\n  cbr0:", "\n  l2bridge:"));
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!(status["problems"][0]["id"], "KubeNetwork", "{status:#}");
    assert_eq!(status["policy_networks"], serde_json::json!([]), "{status:#}");
    let shown = lab.run("status").exits(12).stdout;
    assert!(shown.contains("not enforced"), "{shown}");
    let _found = lab.run("apply -y").exits(0);
    assert_eq!(lab.healthy()["policy_networks"], serde_json::json!(["l2bridge"]));
}

#[test]
fn on_ec2_the_metadata_route_survives_the_virtual_switch() {
    let lab = node_with(
        "cloud: {flavour: EC2, hostName: ip-10-20-0-21.ec2.internal}\nroutes:\n  169.254.169.254/32: {interface: Ethernet, nextHop: 0.0.0.0, metric: 256}",
    );
    assert_eq!(origin(&lab, "spec.kubernetesProvider"), r#""EC2" (detected: the EC2 instance metadata service)"#);
    // The cluster has the node by its host name: kubelet chose that.
    assert!(origin(&lab, "spec.kubernetes.nodeName").ends_with("(detected: host name)"));
    assert_eq!(origin(&lab, "spec.platform.preserveMetadataRoute"), "true (detected: provider EC2)");

    let _installed = lab.run("install -y").exits(0);
    let yaml = lab.read("node.yaml");
    let route = yaml.split("169.254.169.254/32").nth(1).unwrap_or_else(|| panic!("the route is lost:\n{yaml}"));
    assert!(route.contains("vEthernet (Ethernet)"), "{yaml}");
}

/// The routes that the agents of EC2, GCE and Azure add.
const CLOUDS: [(&str, &str); 3] = [
    ("cloud: {flavour: EC2, hostName: ip-10-20-0-21.ec2.internal}\n", "169.254.169.254/32"),
    ("cloud: {flavour: GCE, hostName: win-a1}\n", "169.254.169.254/32"),
    ("", "168.63.129.16/32"),
];

fn on_cloud((cloud, prefix): (&str, &str)) -> Lab {
    node_with(&format!("{cloud}routes:\n  {prefix}: {{interface: Ethernet, nextHop: 10.20.0.1, metric: 42}}"))
}

fn routes(lab: &Lab) -> serde_json::Value {
    let model: serde_json::Value = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    model["routes"].clone()
}

#[test]
fn g7_the_metadata_routes_of_the_clouds_outlive_an_uninstall() {
    for (cloud, prefix) in CLOUDS {
        let lab = on_cloud((cloud, prefix));
        let before = routes(&lab)[prefix].clone();
        let _installed = lab.run("install -y").exits(0);
        assert_eq!(routes(&lab)[prefix]["interface"], "vEthernet (Ethernet)", "{cloud}");
        let removed = lab.run("uninstall -y").exits(0);
        assert_eq!(routes(&lab)[prefix], before, "{cloud}: {removed}");
    }
}

/// The active store, which Windows uses and forgets when it stops, and the persistent one, with which it starts. `route -p`
/// and `New-NetRoute` write both; DHCP writes only the first.
fn stores(lab: &Lab) -> [serde_json::Value; 2] {
    let model: serde_json::Value = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    ["routes", "persistentRoutes"].map(|store| model[store].clone())
}

#[test]
fn g7_the_metadata_routes_are_right_in_both_stores_after_every_step() {
    for (cloud, prefix) in CLOUDS {
        for persists in [false, true] {
            let lab = on_cloud((cloud, prefix));
            if persists {
                lab.edit_yaml(|yaml| {
                    let (_, routes) = yaml.split_once("\nroutes:").unwrap();
                    let routes = routes.lines().nth(1).unwrap();
                    format!("{yaml}persistentRoutes:\n{routes}\n")
                });
            }
            let [before, persistent] = stores(&lab);
            assert_eq!(persistent.is_object(), persists, "{persistent}");
            let mut on_the_vswitch = before.clone();
            on_the_vswitch[prefix]["interface"] = "vEthernet (Ethernet)".into();
            let works = |when: &str| {
                let now = stores(&lab);
                assert_eq!(now, [on_the_vswitch.clone(), persistent.clone()], "{cloud}, {persists}: {when}");
            };
            let _installed = lab.run("install -y").exits(0);
            works("after the install");
            power_returns(&lab);
            let [active, _] = stores(&lab);
            assert!(active.is_null(), "a boot takes all of them: {active}");
            let _scm = lab.run("service start").exits(0);
            works("after a boot");
            let _changed = lab.run("reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000").exits(0);
            works("after another VNI");
            let _removed = lab.run("uninstall -y").exits(0);
            assert_eq!(stores(&lab), [before.clone(), persistent.clone()], "{cloud}, {persists}: after the uninstall");
            lab.edit_model(|model| {
                model.boots("without Calico".into(), model.boot_time);
            });
            let [active, kept] = stores(&lab);
            assert_eq!(active, persistent, "{cloud}, {persists}: after a boot without Calico, what was persistent");
            assert_eq!(kept, persistent, "{cloud}, {persists}");
        }
    }
}

#[test]
fn g7_a_metadata_route_is_restored_after_a_kill_and_by_an_undo() {
    let (cloud, prefix) = CLOUDS[0];
    let lab = on_cloud((cloud, prefix));
    let before = routes(&lab)[prefix].clone();
    let _killed = lab.fails_at("put running CalicoFelix=exit-before", "install -y").exits(137);
    assert_eq!(routes(&lab)[prefix]["interface"], "vEthernet (Ethernet)", "the vSwitch is there");
    let _undone = lab.run("resume --undo -y").exits(0);
    assert_eq!(routes(&lab)[prefix], before, "after an undo");

    let _installed = lab.run("install -y").exits(0);
    let _killed = lab.fails_at("put network *#2=exit-after", "uninstall -y").exits(137);
    assert!(routes(&lab)[prefix].is_null(), "it went with the vSwitch");
    let _resumed = lab.run("resume -y").exits(0);
    assert_eq!(routes(&lab)[prefix], before, "after the run that ends it");
}

#[test]
fn a_route_that_windows_refuses_is_a_warning_with_the_command_that_adds_it() {
    let lab = on_cloud(CLOUDS[0]);
    let _installed = lab.run("install -y").exits(0);
    let removed = lab.fails_at("put route *=fail", "uninstall -y").exits(0);
    let said = format!("{}{}", removed.stdout, removed.stderr);
    assert!(said.contains("New-NetRoute -DestinationPrefix 169.254.169.254/32 -InterfaceAlias 'Ethernet'"), "{said}");
    assert!(said.contains(" -PolicyStore ActiveStore"), "it is persistent only if it was: {said}");
}

#[test]
fn named_settings_win_over_detection() {
    let lab = node_with("cloud: {flavour: EC2, hostName: ip-10-20-0-21.ec2.internal}");
    let shown = lab.run("config show --origins -o json --set kubernetesProvider=none").exits(0).json();
    let text = shown.to_string();
    assert!(text.contains(r#"{"path":"spec.kubernetesProvider","value":"none","origin":"--set"}"#), "{text}");
}

const VPC: &str =
    "networks:\n  vpcbr1a2b: {id: 0b7a4a2c-73a1-4d1e-a6a5-0c6e5f1a2b3d, kind: L2Bridge, subnet: 10.0.0.0/16}\n";

/// kube-proxy as Amazon's bootstrap registers it.
const KUBE_PROXY: &str = r#"services:
  kube-proxy:
    definition:
      displayName: kube-proxy service
      description: Kubernetes network proxy
      imagePath: '"C:\Program Files\Amazon\EKS\bin\kube-proxy.exe" --v=4 --bind-address=10.20.0.21'
      account: LocalSystem
      start: auto
      dependsOn: [kubelet]
    pid: 2212
"#;

/// A node of EKS: the VPC CNI's network, and Amazon's kube-proxy.
fn eks() -> Lab {
    let lab = Lab::node();
    lab.edit_yaml(|there| there.replace("networks:\n", VPC).replace("services:\n", KUBE_PROXY));
    lab.write("node/C/Program Files/Amazon/EKS/bin/kube-proxy.exe", "MZ");
    lab
}

fn kube_proxy(lab: &Lab) -> (String, bool) {
    let model: Model = serde_yaml::from_str(&lab.read("node.yaml")).unwrap();
    let service = &model.services[&Name::new("kube-proxy")];
    (service.definition.image_path.clone(), service.pid.is_some())
}

#[test]
fn on_eks_kube_proxy_gets_dsr_and_is_restored_byte_for_byte() {
    let lab = eks();
    let before = lab.picture();
    let (bare, _) = kube_proxy(&lab);
    assert_eq!(origin(&lab, "spec.kubernetesProvider"), r#""EKS" (detected: the HNS network vpcbr1a2b)"#);
    assert_eq!(origin(&lab, "spec.calicoNetwork.kubeNetwork"), r#""vpc.*" (detected: provider EKS)"#);
    let planned = lab.run("plan").exits(0).stdout;
    assert!(planned.contains("service  kube-proxy"), "{planned}");
    assert!(planned.contains("adds --enable-dsr=true\n"), "{planned}");

    let _installed = lab.run("install -y").exits(0);
    let (patched, runs) = kube_proxy(&lab);
    // The sandbox's cluster is newer than the end of the gate.
    assert_eq!((patched, runs), (format!("{bare} --enable-dsr=true"), true));
    assert!(!lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf").exists(), "the VPC CNI is the CNI here");
    let again = lab.run("install -y -o json").exits(0).json();
    assert_eq!(again["changed"], false, "{again}");
    assert_eq!(lab.run("status -o json").exits(0).json()["overall"], "Healthy");

    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().says_the_same_as(&before);
}

#[test]
fn kube_proxy_runs_again_after_a_run_was_killed_around_its_restart() {
    for fault in ["put service kube-proxy=exit-before", "put service kube-proxy=exit-after"] {
        let lab = eks();
        let before = lab.picture();
        let (bare, _) = kube_proxy(&lab);
        let died = lab.fails_at(fault, "install -y");
        assert_eq!(died.code, 137, "{died}");
        assert!(!kube_proxy(&lab).1, "{fault}: it was stopped for the change");
        let _finished = lab.run("resume -y").exits(0);
        assert_eq!(kube_proxy(&lab), (format!("{bare} --enable-dsr=true"), true), "{fault}");
        let _gone = lab.run("uninstall --purge -y").exits(0);
        lab.picture().says_the_same_as(&before);

        let lab = eks();
        let died = lab.fails_at(fault, "install -y");
        assert_eq!(died.code, 137, "{died}");
        let _undone = lab.run("resume --undo -y").exits(0);
        assert_eq!(kube_proxy(&lab), (bare, true), "{fault}");
    }
}

/// The check of a report, for example `Warn: detail`.
fn told(report: &serde_json::Value, id: &str) -> String {
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == id).unwrap();
    format!("{}: {}", check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

#[test]
fn a_node_of_openshifts_operator_is_refused_unless_allowed() {
    let lab = Lab::node();
    let _made = lab.run("plan");
    let file = lab.path("node/cluster/cluster.json");
    let mut cluster: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    annotate(&mut cluster, "win-a1", "windowsmachineconfig.openshift.io/version", "10.20.0");
    std::fs::write(&file, cluster.to_string()).unwrap();

    let before = lab.picture_without_state();
    let refused = lab.run("install -y -o json").exits(13).json();
    assert_eq!(refused["error"]["id"], "NodeManager");
    assert_eq!(refused["error"]["what"], "the Windows Machine Config Operator 10.20.0 manages the Node win-a1");
    lab.picture_without_state().same_as(&before);
    let _told = lab.run("install -y --ignore-preflight-errors NodeManager").exits(0);
}

/// Annotates an object of this name in the cluster's store.
fn annotate(store: &mut serde_json::Value, name: &str, key: &str, value: &str) {
    match store {
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| annotate(item, name, key, value)),
        serde_json::Value::Object(fields) => {
            if fields.get("kind").is_some_and(|kind| kind == "Node") && fields["metadata"]["name"] == name {
                fields["metadata"]["annotations"][key] = value.into();
            }
            fields.values_mut().for_each(|field| annotate(field, name, key, value));
        }
        _ => {}
    }
}

#[test]
fn a_requested_check_of_remote_access_runs() {
    let lab = Lab::node();
    let asked = lab.run("preflight -o json --set preflight.remoteAccess=rdp,winrm").exits(3).json();
    assert_eq!(
        told(&asked, "RemoteSession"),
        "fail: RDP: there is no service TermService; WinRM: there is no service WinRM"
    );
    let plain = lab.run("preflight -o json").exits(0).json();
    assert_eq!(
        told(&plain, "RemoteSession"),
        "skip: not requested; to check it, set spec.preflight.remoteAccess, for example [rdp, winrm]"
    );
}

#[test]
fn a_lost_metadata_route_is_reported() {
    let lab = node_with(
        "cloud: {flavour: EC2, hostName: ip-10-20-0-21.ec2.internal}\nroutes:\n  169.254.169.254/32: {interface: Ethernet, nextHop: 0.0.0.0, metric: 256}",
    );
    let seen = lab.run("preflight -o json").exits(0).json();
    assert_eq!(told(&seen, "MetadataRoute"), "ok: 169.254.169.254/32 goes through Ethernet");
    let off = lab.run("preflight -o json --set platform.preserveMetadataRoute=false").exits(0).json();
    assert!(told(&off, "MetadataRoute").starts_with("warn: spec.platform.preserveMetadataRoute is off"), "{off}");
}

#[test]
fn unreadable_facts_are_shown_and_nothing_is_installed_on_a_guess() {
    let unread = |part: &str| {
        let lab = Lab::node();
        lab.edit_yaml(|yaml| {
            yaml.replacen("adapters:\n", &format!("unread: {{{part}: Windows refused it}}\nadapters:\n"), 1)
        });
        lab
    };
    for part in ["adapters", "hns", "runtime", "survey"] {
        let lab = unread(part);
        let before = lab.picture_without_state();
        let checked = lab.run("preflight -o json").exits(1).json();
        assert_eq!(told(&checked, "MachineFacts"), "fail: Windows refused it", "{part}");
        assert_eq!(checked["summary"]["fail"], 1, "{part}: {checked:#}");
        let refused = lab.run("install -y -o json --ignore-preflight-errors MachineFacts").exits(1).json();
        assert_eq!(refused["error"]["id"], "MachineFacts", "{part}: {refused:#}");
        assert_eq!(lab.run("config show --origins -o json").exits(1).json()["error"]["id"], "MachineFacts", "{part}");
        lab.picture_without_state().same_as(&before);
    }
    // A check that only advises stops nothing if it cannot run.
    for (part, id) in [("tls", "Tls12"), ("features", "RoutingFeature"), ("pendingReboot", "NoPendingReboot")] {
        let lab = unread(part);
        let bgp = "--set calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,RoutingFeature,PoolEncapsulation";
        let checked = lab.run(&format!("preflight -o json {bgp}")).exits(0).json();
        assert_eq!(told(&checked, id), "unknown: Windows refused it", "{checked:#}");
    }
    // A service manager that does not answer.
    let lab = Lab::node();
    let checked = lab.fails_at("list services=fail", "preflight -o json").exits(1).json();
    assert!(told(&checked, "MachineFacts").starts_with("fail: look at the machine: list the services"), "{checked:#}");
    assert!(told(&checked, "UdpPort4789").starts_with("unknown: look at the machine"), "{checked:#}");
}
