//! The verbs that change a node, each with a node on which it changes something.

use std::fs;

use calicoctl_win::node::sandbox::model::Name;
use serde_json::{Value, json};

use super::copy_folder;
use crate::lab::Lab;
use crate::stories::adoption::nssm;
use crate::stories::bundle::of_release;
use crate::stories::containerd::{archive, has_no_runtime};
use crate::stories::migrate::with_flannel;

/// One verb, from one node state to another.
pub struct Row {
    pub name: &'static str,
    pub start: fn() -> Lab,
    pub words: &'static str,
    /// What somebody changes on the node first. Undoing a run does not restore that: it restores the state that the
    /// current generation was made with.
    pub drift: fn(&Lab),
}

/// With the token of the secret, which is the same each time.
const INSTALL: &str = "install -y --set spec.kubernetes.credentials=secret";
const PREPARE: &str = "install --prepare -y";
const BGP: &str = "reconfigure -y --set spec.calicoNetwork.backend=windows-bgp \
                   --ignore-preflight-errors WindowsBgpRelease,RoutingFeature,PoolEncapsulation";
const VNI: &str = "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanVNI=5000";

/// kubelet is another program's and is left as it is.
const PROXY: &str = "reconfigure -y --set spec.kubernetes.node.install=true \
                     --set spec.kubernetes.node.source.path=node/programs";

/// On a machine without a container runtime.
const CONTAINERD: &str = "kubernetes install -y --containerd node/containerd.tar.gz \
                          --set spec.kubernetes.node.source.path=node/programs \
                          --set spec.kubernetes.credentials=secret";

pub const ROWS: [Row; 24] = [
    Row { name: "install", start: lived_in, words: INSTALL, drift: nobody },
    Row {
        name: "reconfigure in place",
        start: installed,
        words: "reconfigure -y --set spec.services.felixLogSeverity=debug",
        drift: nobody,
    },
    Row { name: "reconfigure the VNI", start: installed, words: VNI, drift: nobody },
    Row { name: "reconfigure to windows-bgp", start: installed, words: BGP, drift: nobody },
    Row {
        name: "reconfigure to vxlan",
        start: with_bgp,
        words: "reconfigure -y --set spec.calicoNetwork.backend=vxlan",
        drift: nobody,
    },
    Row {
        name: "reconfigure the adapter",
        start: installed,
        words: "reconfigure -y --set spec.calicoNetwork.vxlan.vxlanAdapter=Storage",
        drift: nobody,
    },
    // From the layout with calico-node.exe to the one with calico.exe.
    Row {
        name: "upgrade across layouts",
        start: with_a_newer_calico_on_linux,
        words: "upgrade -y --release v3.33.0",
        drift: nobody,
    },
    Row {
        name: "upgrade from a bundle",
        start: with_a_bundle,
        words: "upgrade -y --bundle node/bundle.zip",
        drift: nobody,
    },
    Row { name: "prepare an image", start: lived_in, words: PREPARE, drift: nobody },
    Row { name: "install on an image", start: prepared, words: INSTALL, drift: nobody },
    Row { name: "rollback of a VNI", start: with_another_vni, words: "rollback -y", drift: nobody },
    Row { name: "rollback in place", start: with_debug, words: "rollback -y", drift: nobody },
    Row { name: "repair", start: installed, words: "repair -y", drift },
    Row { name: "network reset", start: installed, words: "network reset -y", drift: nobody },
    Row { name: "uninstall", start: installed, words: "uninstall -y", drift: nobody },
    Row { name: "reconfigure the VNI under a dependent", start: with_dependent, words: VNI, drift: nobody },
    Row { name: "uninstall under a dependent", start: with_dependent, words: "uninstall -y", drift: nobody },
    Row { name: "install kube-proxy", start: with_programs, words: PROXY, drift: nobody },
    Row { name: "uninstall with kube-proxy", start: with_proxy, words: "uninstall -y", drift: nobody },
    Row { name: "install containerd", start: without_containerd, words: CONTAINERD, drift: nobody },
    Row { name: "uninstall with containerd", start: with_containerd, words: "uninstall -y", drift: nobody },
    Row { name: "uninstall of policy only", start: policy_only, words: "uninstall -y", drift: nobody },
    Row { name: "uninstall of the scripts", start: by_scripts, words: "uninstall -y", drift: nobody },
    Row {
        name: "migrate from flannel",
        start: on_flannel,
        words: "migrate from flannel -y --set spec.kubernetes.credentials=secret --set calicoNetwork.nodeAddress=10.20.0.21/24",
        drift: nobody,
    },
];

/// What changes a kubelet and kube-proxy of ours. The first install is killed in `stories::kubernetes`.
pub const KUBELET_ROWS: [Row; 4] = [
    Row {
        name: "upgrade of our kubelet",
        start: with_kubelet,
        words: "apply -y -c node/next/node.yaml",
        drift: nobody,
    },
    Row { name: "rollback of our kubelet", start: with_next_kubelet, words: "rollback -y", drift: nobody },
    Row { name: "removal of our kubelet", start: with_kubelet, words: "kubernetes uninstall -y", drift: nobody },
    Row { name: "uninstall with our kubelet", start: with_kubelet, words: "uninstall -y", drift: nobody },
];

/// A second adapter, and items of other products: networks, a service, a route, a firewall rule, registry values and
/// files.
const STRANGERS: [(&str, &str); 4] = [
    (
        "networks:\n",
        "- name: Storage\n  mac: 00-15-5D-14-01-15\n  addresses: [10.30.0.21/24]\n  gateway: 10.30.0.1\n  dhcp: false\n\
         routes:\n  10.99.0.0/16: {interface: Storage, nextHop: 10.30.0.1, metric: 20}\n\
         firewall:\n  Contoso: {displayName: Contoso, protocol: TCP, localPorts: '7443', enabled: true}\n\
         networks:\n  contoso: {id: 0c, kind: Internal, subnet: 172.30.0.0/24, gateway: 172.30.0.1}\n",
    ),
    (
        "services:\n",
        "services:\n  ContosoAgent:\n    definition:\n      displayName: Contoso Agent\n      description: Watches\n      \
         imagePath: C:\\Contoso\\agent.exe\n      account: LocalSystem\n      start: auto\n    pid: 3000\n",
    ),
    (
        "registry:\n",
        "registry:\n  SOFTWARE\\Contoso: {Key: {type: string, data: 'theirs'}}\n  \
         Software\\Tigera\\Calico: {LastBootTime: {type: string, data: '1/1/2026 8:00 AM'}}\n",
    ),
    ("hostName: win-a1\n", "hostName: win-a1\n"),
];

/// Files of other products and of an earlier manual Calico installation.
const FILES: [(&str, &str); 6] = [
    ("C/CalicoWindows/config.ps1", "by hand"),
    ("C/CalicoWindows/notes/todo.txt", "an administrator's"),
    ("C/Program Files/containerd/cni/conf/10-calico.conf", "{\"name\": \"by hand\"}"),
    ("C/Program Files/containerd/cni/bin/calico.exe", "an old plugin"),
    ("C/Program Files/containerd/cni/bin/contoso.exe", "another plugin"),
    ("C/Contoso/agent.exe", "a stranger's"),
];

/// The items of other products in `node.yaml` that never change: a word of each.
pub const NEVER_TOUCHED: [(&str, &[&str]); 6] = [
    ("networks", &["contoso", "nat"]),
    ("services", &["ContosoAgent", "containerd", "hns", "kubelet"]),
    ("routes", &["10.99.0.0/16"]),
    ("firewall", &["Contoso"]),
    ("registry", &["SOFTWARE\\Contoso", "SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion"]),
    ("files", &["C/Contoso/agent.exe", "C/Program Files/containerd/cni/bin/contoso.exe"]),
];

/// The key of the marks of other products on the Node object.
pub const THEIRS: &str = "contoso.example/owner";

/// A node with items of other products. Its cluster knows it: what Calico itself leaves there (its block, its
/// annotations) and the token secret, which remains for other nodes, exist already, so that a restored node is exactly
/// the same.
pub fn lived_in() -> Lab {
    let former = furnished();
    let _there = former.run(INSTALL).exits(0);
    // An uninstall without a drain deletes them, and there is no controller to re-create them.
    let web = |(kind, name, _): &(String, String, Value)| kind == "pods" && name.starts_with("web-");
    let pods: Vec<Value> = former.objects().into_iter().filter(web).map(|(_, _, pod)| pod).collect();
    assert_eq!(pods.len(), 2);
    let _gone = former.run("uninstall -y").exits(0);
    // A process that ends leaves it to the next one to re-create the DaemonSet's pod.
    let _later = former.run("plan").exits(0);
    let lab = furnished();
    let cluster = lab.path("node/cluster");
    if cluster.exists() {
        fs::remove_dir_all(&cluster).unwrap();
    }
    copy_folder(&former.path("node/cluster"), &cluster);
    pods.into_iter().for_each(|pod| lab.add_object("pods", pod));
    others_mark_the_node(&lab);
    lab
}

/// Marks the Node object for other products: a label, an annotation and a taint.
fn others_mark_the_node(lab: &Lab) {
    let file = lab.path("node/cluster/cluster.json");
    let mut saved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let objects = saved["objects"].as_array_mut().unwrap();
    let node = objects.iter_mut().find(|entry| entry[0]["kind"] == "nodes" && entry[0]["name"] == "win-a1").unwrap();
    node[1]["metadata"]["labels"][THEIRS] = "theirs".into();
    node[1]["metadata"]["annotations"][THEIRS] = "theirs".into();
    node[1]["spec"]["taints"] = json!([{"key": THEIRS, "value": "theirs", "effect": "PreferNoSchedule"}]);
    fs::write(file, serde_json::to_vec(&saved).unwrap()).unwrap();
}

fn furnished() -> Lab {
    let lab = Lab::node();
    let mut yaml = lab.read("node.yaml");
    for (at, with) in STRANGERS {
        assert_eq!(yaml.matches(at).count(), 1, "{at}");
        yaml = yaml.replace(at, with);
    }
    fs::write(lab.on_node("node.yaml"), yaml).unwrap();
    for (path, text) in FILES {
        let file = lab.on_node(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    lab
}

pub fn installed() -> Lab {
    let lab = lived_in();
    let _there = lab.run(INSTALL).exits(0);
    lab
}

/// Calico on Linux has the target release already.
fn with_a_newer_calico_on_linux() -> Lab {
    let lab = installed();
    lab.linux_runs("v3.33.0");
    lab
}

fn with_a_bundle() -> Lab {
    let lab = with_a_newer_calico_on_linux();
    lab.write("node/bundle.zip", of_release("v3.33.0"));
    lab
}

fn prepared() -> Lab {
    let lab = lived_in();
    let _there = lab.run(PREPARE).exits(0);
    lab
}

/// A running service of another product that depends on CalicoNode: Windows does not stop CalicoNode before it.
fn with_dependent() -> Lab {
    let lab = installed();
    add_dependent(&lab, "containerd, CalicoNode");
    lab
}

fn add_dependent(lab: &Lab, on: &str) {
    let dependent = format!(
        "services:\n  ContosoProbe:\n    definition:\n      displayName: Contoso Probe\n      description: Asks\n      \
         imagePath: C:\\Contoso\\agent.exe\n      account: LocalSystem\n      start: auto\n      dependsOn: [{on}]\n    \
         pid: 3004\n"
    );
    lab.edit_yaml(|yaml| yaml.replacen("services:\n", &dependent, 1));
}

/// Felix alone, for the pods of another product's network.
fn policy_only() -> Lab {
    let lab = lived_in();
    let azure = "networks:\n  azure:\n    id: 0b7a\n    kind: L2Bridge\n    subnet: 10.240.0.0/16\n    endpoints:\n      \
                 web-1: {ip: 10.240.0.7, mac: 00-15-5D-00-00-07, container: 3f2c9d}\n";
    lab.edit_yaml(|yaml| yaml.replacen("networks:\n", azure, 1));
    let _there = lab.run("install -y --set spec.calicoNetwork.backend=none").exits(0);
    lab
}

fn with_programs() -> Lab {
    let lab = installed();
    add_programs(&lab);
    lab
}

fn without_containerd() -> Lab {
    let lab = lived_in();
    has_no_runtime(&lab);
    lab.edit_yaml(|yaml| yaml.replacen("      dependsOn: [containerd]\n", "", 1));
    add_programs(&lab);
    lab.write("node/containerd.tar.gz", archive("2.1.4").0);
    lab
}

/// And a service of another product that depends on it since.
fn with_containerd() -> Lab {
    let lab = without_containerd();
    let _there = lab.run(CONTAINERD).exits(0);
    add_dependent(&lab, "containerd");
    lab
}

fn add_programs(lab: &Lab) {
    for name in ["kubelet.exe", "kube-proxy.exe"] {
        lab.write(&format!("node/programs/{name}"), format!("Stand-in for Kubernetes Windows v1.36.2, {name}"));
    }
}

/// Calico as its own scripts install it.
fn by_scripts() -> Lab {
    let lab = lived_in();
    let services = [
        nssm("CalicoFelix", "felix", "CalicoNode", Some(3104)),
        nssm("CalicoNode", "node", "", Some(3108)),
        nssm("CalicoUpgrade", "upgrade", "", None),
    ];
    lab.edit_yaml(|yaml| yaml.replacen("services:\n", &format!("services:\n{}", services.concat()), 1));
    for (path, text) in [("nssm-2.24/win64/nssm.exe", "nssm"), ("node/node-service.ps1", "# starts")] {
        lab.write(&format!("node/C/CalicoWindows/{path}"), text);
    }
    lab
}

fn with_proxy() -> Lab {
    let lab = with_programs();
    let _there = lab.run(PROXY).exits(0);
    lab
}

/// A node of which kubelet and kube-proxy are ours, and what the next minor version needs.
fn with_kubelet() -> Lab {
    let lab = lived_in();
    lab.edit_model(|model| {
        model.services.remove(&Name::new("kubelet")).unwrap();
        model.processes.retain(|process| process.image.name() != "kubelet.exe");
    });
    lab.write("node/token", "abcdef.0123456789abcdef");
    // Not in the words of a run: there, a version is one of Calico.
    for (folder, version) in [("now", "v1.35.0"), ("next", "v1.36.2")] {
        for name in ["kubelet.exe", "kube-proxy.exe"] {
            lab.write(&format!("node/{folder}/{name}"), format!("Stand-in for Kubernetes Windows {version}, {name}"));
        }
        let config = format!(
            "spec:\n  calico: {{version: v3.32.1}}\n  kubernetes:\n    credentials: secret\n    node:\n      install: true\n      \
             version: {version}\n      source: {{path: node/{folder}}}\n      join: {{tokenFile: node/token}}\n"
        );
        lab.write(&format!("node/{folder}/node.yaml"), config);
    }
    let _there = lab.run("apply -y -c node/now/node.yaml").exits(0);
    lab
}

fn with_next_kubelet() -> Lab {
    let lab = with_kubelet();
    let _there = lab.run("apply -y -c node/next/node.yaml").exits(0);
    lab
}

fn on_flannel() -> Lab {
    let lab = lived_in();
    with_flannel(&lab);
    lab
}

fn with_bgp() -> Lab {
    let lab = installed();
    let _there = lab.run(BGP).exits(0);
    lab
}

fn with_another_vni() -> Lab {
    let lab = installed();
    let _there = lab.run(VNI).exits(0);
    lab
}

fn with_debug() -> Lab {
    let lab = installed();
    let _there = lab.run("reconfigure -y --set spec.services.felixLogSeverity=debug").exits(0);
    lab
}

fn nobody(_: &Lab) {}

/// Changes files, the registry and the firewall.
fn drift(lab: &Lab) {
    fs::write(lab.on_node("C/CalicoWindows/calico-node.exe"), "tampered with").unwrap();
    fs::write(lab.on_node("C/CalicoWindows/config.ps1"), "# edited").unwrap();
    fs::remove_file(lab.on_node("C/Program Files/containerd/cni/bin/calico-ipam.exe")).unwrap();
    lab.edit_yaml(|yaml| {
        yaml.replace("localPorts: \"10250\"", "localPorts: \"10251\"").replace("data: calicoctl-win", "data: somebody")
    });
}
