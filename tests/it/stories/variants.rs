//! Backends, datastores, runtimes, releases and their sources.

use calicoctl_win::sandbox::release::SyntheticRelease;
use calicoctl_win::values::Sha256;

use super::credentials::{cluster, runs_with_etcd};
use crate::etcd::Etcd;
use crate::lab::Lab;
use crate::read;

/// For pods on the network that each node has.
const POLICY_ONLY: &str = "--set calicoNetwork.backend=none --set calicoNetwork.kubeNetwork=nat";

/// Installs, checks that it is healthy, and uninstalls it again.
fn install_and_uninstall(lab: &Lab, words: &str, look: impl FnOnce(&serde_json::Value)) {
    let before = lab.picture();
    let result = lab.run(&format!("{words} -y -o json")).exits(0).json();
    assert_eq!(result["changed"], true, "{words}");
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!(status["overall"], "Healthy", "{words}: {status}");
    look(&status);
    let again = lab.run(&format!("{words} -y -o json")).exits(0).json();
    assert_eq!(again["changed"], false, "{words}: {again}");
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

#[test]
fn every_backend_is_installed_and_uninstalled() {
    let lab = Lab::node();
    with_remote_access(&lab);
    let networks = |status: &serde_json::Value| -> Vec<String> {
        let networks = status["networks"].as_array().unwrap().iter();
        networks.map(|n| format!("{} {}", n["name"], n["type"]).replace('"', "")).collect()
    };
    install_and_uninstall(
        &lab,
        "install --set calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,PoolEncapsulation",
        |status| {
            assert_eq!(status["backend"], "windows-bgp");
            assert_eq!(networks(status), ["Calico L2Bridge", "External L2Bridge", "nat NAT"]);
            assert_eq!(status["services"][2]["state"], "Running", "{status}");
        },
    );
    install_and_uninstall(&lab, &format!("install {POLICY_ONLY}"), |status| {
        assert_eq!(networks(status), ["nat NAT"]);
        assert_eq!(status["cni"], serde_json::Value::Null);
        assert!(!lab.on_node("C/Program Files/containerd/cni/conf/10-calico.conf").exists());
    });
}

/// With etcd, as in docs/config.md: Calico's CNI plugin still asks the Kubernetes API about each pod, and without a
/// kubeconfig in its configuration fails each ADD with `no configuration has been provided, try setting
/// KUBERNETES_MASTER`.
#[test]
fn with_etcd_the_cni_plugin_has_a_kubeconfig_too() {
    let page = read("docs/config.md");
    let (_, section) = page.split_once("\netcd as datastore:").unwrap();
    let (_, block) = section.split_once("```yaml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let etcd = Etcd::start();
    let lab = Lab::node();
    runs_with_etcd(&lab);
    for (file, text) in [("server.key", &etcd.key), ("server.crt", &etcd.cert), ("ca.crt", &etcd.ca)] {
        lab.write(&format!("node/C/CalicoWindows/etcd-tls/{file}"), text);
    }
    lab.write("etcd.yaml", block.replace("https://etcd-0:2379", &etcd.url));
    for version in ["v3.26.5", "v3.32.1"] {
        install_and_uninstall(&lab, &format!("install -c etcd.yaml --release {version}"), |status| {
            let conf = lab.read("C/Program Files/containerd/cni/conf/10-calico.conf");
            let conf: serde_json::Value = serde_json::from_str(&conf).unwrap();
            assert_eq!(conf["etcd_endpoints"], etcd.url, "{conf}");
            let kubeconfig = r"C:\CalicoWindows\calico-kube-config";
            assert_eq!(conf["kubernetes"], serde_json::json!({ "kubeconfig": kubeconfig }), "{conf}");
            assert!(lab.on_node("C/CalicoWindows/calico-kube-config").is_file());
            assert_eq!(status["credentials"][0]["path"], kubeconfig, "{status}");
            assert_eq!(status["node"]["ready"], true, "{status}");
        });
    }
}

/// Defect B25: without a kubeconfig, node startup must not be told to mark the node available, or it never succeeds.
/// Only policy-only mode with etcd works without one: the CNI plugin is another product's.
#[test]
fn policy_only_with_etcd_the_node_gets_no_kubeconfig() {
    let etcd = format!("--set datastore.type=etcdv3 --set datastore.etcd.endpoints={}", Etcd::plain());
    let lab = Lab::node();
    runs_with_etcd(&lab);
    for version in ["v3.26.5", "v3.32.1"] {
        install_and_uninstall(&lab, &format!("install --release {version} {POLICY_ONLY} {etcd}"), |status| {
            assert_eq!(status["credentials"], serde_json::json!([]));
            assert!(!lab.on_node("C/CalicoWindows/calico-kube-config").exists());
        });
    }
}

/// An etcd that a sandbox cannot reach.
const AWAY: &str = "--set datastore.type=etcdv3 --set datastore.etcd.endpoints=http://10.9.9.9:2379";

#[test]
fn if_etcd_is_not_read_the_vni_is_required() {
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let before = lab.picture_without_state();
    let asked = lab.run(&format!("install -y -o json --set calicoNetwork.backend=vxlan {AWAY}")).exits(4).json();
    assert_eq!(asked["error"]["id"], "ConfigInvalid", "{asked:#}");
    let said = asked["error"].to_string();
    assert!(
        said.contains("spec.calicoNetwork.vxlan.vxlanVNI: required, since Calico's data in etcd was not read"),
        "{said}"
    );
    lab.picture_without_state().same_as(&before);
}

/// The API still has Calico's resources from before, or from another installation, which nobody updates.
#[test]
fn with_etcd_no_check_relies_on_calicos_resources_in_the_api() {
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let etcd = format!("{AWAY} --set calicoNetwork.backend=vxlan --set calicoNetwork.vxlan.vxlanVNI=5000");
    let report = lab.run(&format!("preflight -o json {etcd}")).exits(0).json();
    let found = |id: &str| report["checks"].as_array().unwrap().iter().find(|check| check["id"] == id).unwrap();
    for (id, command) in [
        ("Ipip", "calicoctl get ippools -o yaml"),
        ("IpPools", "calicoctl get ippools -o yaml"),
        ("BlockSize", "calicoctl get ippools -o yaml"),
        ("VxlanPort", "calicoctl get felixconfiguration default -o yaml"),
        ("VniMatchesFelix", "calicoctl get felixconfiguration default -o yaml"),
        ("WireGuard", "calicoctl get felixconfiguration default -o yaml"),
        ("Ebpf", "calicoctl get felixconfiguration default -o yaml"),
        ("StrictAffinity", "calicoctl ipam show --show-configuration"),
    ] {
        let check = found(id);
        assert_eq!(check["status"], "unknown", "{check:#}");
        assert!(check["detail"].as_str().unwrap().ends_with(command), "{check:#}");
    }
    let installed = lab.run(&format!("install -y -o json {etcd}")).exits(0).json();
    assert!(!installed["warnings"].to_string().contains("Vni"), "the right VNI is warned of: {installed:#}");
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!((&status["overall"], &status["mixed_vni"]), (&"Healthy".into(), &serde_json::Value::Null), "{status}");
    let waits = lab
        .run("reconfigure -y -o json --set calicoNetwork.vxlan.vxlanVNI=5001 --wait-for-cluster-vni=5s")
        .exits(64)
        .json();
    assert!(waits["error"]["what"].as_str().unwrap().contains("in etcd"), "{waits:#}");
}

/// Calico's node startup creates an IP pool in a cluster that has none, unless it is told not to.
#[test]
fn no_install_creates_an_ip_pool_and_a_backend_that_needs_one_is_refused() {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    let pools = || {
        let objects = lab.objects().into_iter();
        objects
            .filter(|(kind, ..)| kind == "ippools.crd.projectcalico.org")
            .map(|(_, name, _)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(pools(), ["default-ipv4-ippool"]);
    let pool = "/apis/crd.projectcalico.org/v1/ippools/default-ipv4-ippool";
    cluster(&lab).as_admin(&http::Method::DELETE, pool, None).unwrap();
    assert_eq!(pools(), Vec::<String>::new());
    install_and_uninstall(&lab, &format!("install {POLICY_ONLY}"), |status| {
        assert_eq!(status["cni"], serde_json::Value::Null);
        assert_eq!(pools(), Vec::<String>::new(), "an IP pool was made in the user's cluster");
    });
    for backend in ["vxlan", "windows-bgp"] {
        let words = format!(
            "install -y -o json --set calicoNetwork.backend={backend} --ignore-preflight-errors WindowsBgpRelease,RoutingFeature,PoolEncapsulation"
        );
        let refused = lab.run(&words).exits(3).json();
        assert_eq!(refused["error"]["id"], "IpPools", "{refused:#}");
        assert_eq!(refused["changed"], false);
    }
    assert_eq!(pools(), Vec::<String>::new());
}

#[test]
fn cached_releases_are_listed_with_their_version() {
    let lab = Lab::node();
    for version in ["v3.32.1", "v3.31.0"] {
        let _there = lab.run(&format!("release download --release {version}")).exits(0);
    }
    let listed = lab.run("release list -o json").exits(0).json();
    let versions: Vec<&serde_json::Value> =
        listed["archives"].as_array().unwrap().iter().map(|archive| &archive["version"]).collect();
    assert_eq!(versions, ["v3.31.0", "v3.32.1"], "{listed:#}");
    let shown = lab.run("release list").exits(0).stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("v3.31.0 ") && lines[1].starts_with("v3.32.1 "), "{shown}");
    assert!(lines[0].ends_with(".zip"), "{shown}");
}

#[test]
fn old_and_new_releases_have_their_own_layouts() {
    let lab = Lab::node();
    for (version, node, same_plugin) in [
        ("v3.20.0", "calico-node.exe", false),
        ("v3.26.5", "calico-node.exe", false),
        ("v3.30.3", "calico-node.exe", false),
        ("v3.33.0", "calico.exe", true),
    ] {
        install_and_uninstall(&lab, &format!("install --release {version}"), |status| {
            assert_eq!(status["calico_version"], version);
            assert!(lab.on_node("C/CalicoWindows").join(node).is_file(), "{version}");
            let plugin = |name: &str| lab.read(&format!("C/Program Files/containerd/cni/bin/{name}"));
            assert!(plugin("calico.exe").contains(version));
            assert_eq!(plugin("calico.exe") == plugin("calico-ipam.exe"), same_plugin, "{version}");
        });
    }
}

#[test]
fn a_release_comes_from_a_zip_a_folder_or_by_its_version() {
    let lab = Lab::node();
    let version = "v3.31.2".parse().unwrap();
    let zip = SyntheticRelease::build(&version);
    let digest = Sha256::of(&zip);
    lab.write("calico-windows-v3.31.2.zip", &zip);
    for (path, text) in SyntheticRelease::files(&version) {
        lab.write(&format!("unpacked/{path}"), text);
    }
    install_and_uninstall(&lab, &format!("install --release calico-windows-v3.31.2.zip --sha256 {digest}"), |status| {
        assert_eq!(status["calico_version"], "v3.31.2");
    });
    install_and_uninstall(&lab, "install --release unpacked --set calico.version=v3.31.2", |status| {
        assert_eq!(status["calico_version"], "v3.31.2");
    });
    install_and_uninstall(&lab, "install --release 3.31.2", |status| assert_eq!(status["calico_version"], "v3.31.2"));

    let before = lab.picture_without_state();
    let wrong = "0".repeat(64);
    let refused = lab.run(&format!("install -y --release calico-windows-v3.31.2.zip --sha256 {wrong} -o json"));
    assert_eq!(refused.exits(6).json()["changed"], false);
    lab.picture_without_state().same_as(&before);
}

#[test]
fn a_node_with_docker_has_its_plugins_in_dockers_folders() {
    let lab = Lab::node();
    lab.edit_yaml(|yaml| {
        yaml.replace("kind: containerd", "kind: docker")
            .replace(r"C:\Program Files\containerd\cni\bin", r"C:\k\cni")
            .replace(r"C:\Program Files\containerd\cni\conf", r"C:\k\cni\config")
    });
    install_and_uninstall(&lab, "install --ignore-preflight-errors RuntimeSupported", |status| {
        assert_eq!(status["cni"]["conf"], r"C:\k\cni\config\10-calico.conf");
        assert!(lab.on_node("C/k/cni/calico-ipam.exe").is_file());
    });
}

#[test]
fn an_upgrade_by_install_works_and_uninstall_restores_the_first_state() {
    let lab = Lab::node();
    let before = lab.picture();
    let _old = lab.run("install -y --release v3.30.3").exits(0);
    let new = lab.run("install -y --release v3.33.0 -o json").exits(0).json();
    assert_eq!(new["generation"], 2, "{new}");
    assert!(new["next"][1].as_str().unwrap().contains("rollback"), "{new}");
    assert_eq!(lab.run("status -o json").exits(0).json()["calico_version"], "v3.33.0");
    assert!(!lab.on_node("C/CalicoWindows/calico-node.exe").exists(), "the old release's files are still there");
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}

/// The service of BGP on Windows, as its feature installs it.
pub fn with_remote_access(lab: &Lab) {
    lab.write("node/C/Windows/System32/svchost.exe", "Windows' own");
    let service = "services:\n  RemoteAccess:\n    definition:\n      displayName: Routing and Remote Access\n      \
                   description: Routes\n      imagePath: C:\\Windows\\System32\\svchost.exe -k netsvcs\n      \
                   account: LocalSystem\n      start: auto\n    pid: 3020\n";
    lab.edit_yaml(|yaml| yaml.replacen("services:\n", service, 1));
}

/// Defect B31.
#[test]
fn b31_bgp_has_its_firewall_rule_and_status_watches_remote_access() {
    let lab = Lab::node();
    with_remote_access(&lab);
    let words = "install -y --set calicoNetwork.backend=windows-bgp --ignore-preflight-errors WindowsBgpRelease,PoolEncapsulation";
    let _installed = lab.run(words).exits(0);
    let rule = "Calico BGP 179";
    assert!(lab.read("node.yaml").contains(rule));
    let status = lab.run("status -o json").exits(0).json();
    assert_eq!((&status["overall"], &status["bgp_sessions"]), (&"Healthy".into(), &serde_json::json!([])));
    lab.edit_yaml(|yaml| format!("{yaml}bgpSessions: [10.20.0.11]\n"));
    let shown = lab.run("status").exits(0).stdout;
    assert!(shown.contains("BGP sessions") && shown.contains("Established") && shown.contains("10.20.0.11"), "{shown}");
    // Windows stops it, for example after an update.
    lab.edit_yaml(|yaml| {
        let (before, after) = yaml.split_once("  RemoteAccess:").unwrap();
        let pid = regex::Regex::new(r"    pid: \d+\n").unwrap();
        format!("{before}  RemoteAccess:{}", pid.replace(after, ""))
    });
    let status = lab.run("status -o json").exits(12).json();
    assert_eq!((&status["overall"], &status["problems"][0]["id"]), (&"Degraded".into(), &"RoutingFeature".into()));
    let _back = lab.run("uninstall -y").exits(0);
    assert!(!lab.read("node.yaml").contains(rule));
}

#[test]
fn calico_may_be_in_another_folder_and_move() {
    let lab = Lab::node();
    let before = lab.picture();
    let elsewhere = r"install -y --set calico.rootDir=C:\Calico";
    let _there = lab.run(elsewhere).exits(0);
    let _usual = lab.run("install -y").exits(0);
    assert!(!lab.on_node("C/Calico").exists() && lab.on_node("C/CalicoWindows").exists());
    let _there = lab.run(elsewhere).exits(0);
    let _gone = lab.run("uninstall --purge -y").exits(0);
    lab.picture().same_as(&before);
}
