//! kubelet and kube-proxy of this program on a node that has joined: what others change, its login, its address, other
//! networks and datastores, and a kubelet that kubeadm's join left.

use std::fs;

use calicoctl_win::item::RegValue;
use calicoctl_win::node::sandbox::model::{Model, Name, NodeService};
use serde_json::{Value, json};

use super::credentials::runs_with_etcd;
use super::kubernetes::{bare, config, is_ready, phases, stop};
use crate::etcd::Member;
use crate::lab::{Lab, Output};

const KUBELET_CONF: &str = "C/etc/kubernetes/kubelet.conf";
const BOOTSTRAP_CONF: &str = "C/etc/kubernetes/bootstrap-kubelet.conf";
const KUBELET_CONFIG: &str = "C/var/lib/kubelet/config.yaml";
const KUBE_PROXY_CONFIG: &str = "C/var/lib/kube-proxy/config.yaml";
const KUBERNETES_JSON: &str = "C/ProgramData/calicoctl-win/kubernetes.json";
const CERTIFICATE: &str = "C/var/lib/kubelet/pki/kubelet-client-current.pem";

/// A node that has joined.
fn joined() -> Lab {
    let lab = bare();
    let _joined = lab.run("apply -c node.yaml -y").exits(0);
    lab
}

/// Like an administrator who removes the token once it is used.
fn without_token(lab: &Lab) {
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("join: {tokenFile: token}", "join: {}"));
}

fn service<'a>(model: &'a mut Model, name: &str) -> &'a mut NodeService {
    model.services.get_mut(&Name::new(name)).unwrap()
}

/// `sc.exe stop` and `sc.exe delete`.
fn delete_service(lab: &Lab, name: &str) {
    lab.edit_model(|model| {
        model.services.remove(&Name::new(name)).unwrap();
        model.processes.retain(|process| process.service.as_deref() != Some(name));
    });
}

fn delete(lab: &Lab, path: &str) {
    fs::remove_file(lab.on_node(path)).unwrap();
}

fn overwrite(lab: &Lab, path: &str) {
    assert!(lab.on_node(path).is_file(), "{path}");
    fs::write(lab.on_node(path), "somebody wrote here").unwrap();
}

/// The services that a run started.
fn started(output: &Output) -> String {
    let all = phases(output);
    let all: Vec<&str> = all.iter().filter_map(|phase| phase.strip_prefix("services-start: ")).collect();
    all.join(", ")
}

fn definitions(lab: &Lab) -> Vec<(String, Value)> {
    let services = lab.model().services.into_iter();
    services.map(|(name, one)| (name.as_str().to_owned(), serde_json::to_value(one.definition).unwrap())).collect()
}

#[test]
fn whatever_is_changed_of_kubelet_and_kube_proxy_is_repaired() {
    type Harm = fn(&Lab);
    const BOTH: &str = "kubelet, kube-proxy";
    // What is named as changed, the harm, what the plan says of it, and what is started again.
    let harms: [(&str, Harm, &str, &str); 19] = [
        ("service kubelet", |lab| delete_service(lab, "kubelet"), "automatic, LocalSystem", "kubelet"),
        ("service kube-proxy", |lab| delete_service(lab, "kube-proxy"), "automatic, LocalSystem", "kube-proxy"),
        ("running kubelet", |lab| stop(lab, &["kubelet"]), "start  kubelet", "kubelet"),
        ("running kube-proxy", |lab| stop(lab, &["kube-proxy"]), "start  kube-proxy", "kube-proxy"),
        (
            "service kubelet",
            |lab| lab.edit_model(|model| service(model, "kubelet").definition.image_path = r"C:\k\kubelet.exe".into()),
            r"runs C:\k\kubelet.exe -> ",
            "kubelet",
        ),
        (
            "service kube-proxy",
            |lab| lab.edit_model(|model| service(model, "kube-proxy").definition.image_path += " --v=9"),
            "removes --v=9",
            "kube-proxy",
        ),
        (r"file C:\var\lib\kubelet\config.yaml", |lab| overwrite(lab, KUBELET_CONFIG), "->", "kubelet"),
        (r"file C:\var\lib\kubelet\config.yaml", |lab| delete(lab, KUBELET_CONFIG), "config.yaml", "kubelet"),
        (r"file C:\var\lib\kube-proxy\config.yaml", |lab| overwrite(lab, KUBE_PROXY_CONFIG), "->", "kube-proxy"),
        (r"file C:\var\lib\kube-proxy\config.yaml", |lab| delete(lab, KUBE_PROXY_CONFIG), "config.yaml", "kube-proxy"),
        (r"file C:\ProgramData\calicoctl-win\kubernetes.json", |lab| overwrite(lab, KUBERNETES_JSON), "->", BOTH),
        (r"file C:\ProgramData\calicoctl-win\kubernetes.json", |lab| delete(lab, KUBERNETES_JSON), "kubernetes", BOTH),
        (r"file C:\etc\kubernetes\bootstrap-kubelet.conf", |lab| overwrite(lab, BOOTSTRAP_CONF), "->", "kubelet"),
        (r"file C:\etc\kubernetes\bootstrap-kubelet.conf", |lab| delete(lab, BOOTSTRAP_CONF), "bootstrap", "kubelet"),
        (r"file C:\etc\kubernetes\pki\ca.crt", |lab| overwrite(lab, "C/etc/kubernetes/pki/ca.crt"), "->", "kubelet"),
        (r"file C:\etc\kubernetes\pki\ca.crt", |lab| delete(lab, "C/etc/kubernetes/pki/ca.crt"), "ca.crt", "kubelet"),
        (
            r"file C:\Program Files\Kubernetes\kubelet.exe",
            |lab| overwrite(lab, "C/Program Files/Kubernetes/kubelet.exe"),
            "->",
            "kubelet",
        ),
        (
            r"file C:\Program Files\Kubernetes\kube-proxy.exe",
            |lab| delete(lab, "C/Program Files/Kubernetes/kube-proxy.exe"),
            "kube-proxy.exe",
            "kube-proxy",
        ),
        // Somebody clears up: all at once, while nothing runs.
        (
            r"folder C:\Program Files\Kubernetes",
            |lab| {
                stop(lab, &["kubelet", "kube-proxy"]);
                fs::remove_dir_all(lab.on_node("C/Program Files/Kubernetes")).unwrap();
                fs::remove_dir_all(lab.on_node("C/var/lib/kube-proxy")).unwrap();
                [KUBELET_CONFIG, KUBERNETES_JSON, BOOTSTRAP_CONF].iter().for_each(|path| delete(lab, path));
            },
            "folder  C:\\var\\lib\\kube-proxy",
            BOTH,
        ),
    ];
    let lab = joined();
    for (item, harm, words, restarted) in harms {
        let (before, definitions_before) = (lab.picture_without_state().only_disk().without_logs(), definitions(&lab));
        let documents = [KUBERNETES_JSON].map(|path| lab.read(path));
        harm(&lab);
        let drift = lab.run("status -o json").exits(12).json()["drift"].clone();
        assert!(drift.as_array().unwrap().contains(&item.into()), "{item}: {drift}");
        let shown = lab.run("repair --dry-run").exits(0).stdout;
        assert!(shown.contains(words), "{item}: no `{words}` in\n{shown}");
        let repaired = lab.run("repair -y -o ndjson").exits(0);
        assert_eq!(started(&repaired), restarted, "{item}: {repaired}");
        lab.picture_without_state().only_disk().without_logs().same_as(&before);
        assert_eq!((definitions(&lab), [KUBERNETES_JSON].map(|path| lab.read(path))), (definitions_before, documents));
        lab.healthy();
        let status = lab.run("kubernetes status").exits(0).stdout;
        assert!(status.matches("Running, v1.36.2").count() == 2 && status.contains("kubelet has joined"), "{status}");
    }
}

/// What kubelet got for its token: only kubelet can make it.
#[test]
fn a_lost_login_of_kubelet_is_named_and_needs_a_token_again() {
    let lab = joined();
    without_token(&lab);
    let status = |lab: &Lab| lab.run("status").exits(12).stdout;
    let lost = "kubelet has no login in C:\\etc\\kubernetes\\kubelet.conf";
    for harm in [overwrite, delete] {
        harm(&lab, KUBELET_CONF);
        let shown = status(&lab);
        assert!(shown.contains(lost) && shown.contains("calicoctl-win explain KubeletLoginLost"), "{shown}");
    }
    // kubelet runs with the login that it has read: no step is needed.
    let repaired = lab.run("repair -y").exits(0).stdout;
    assert!(repaired.contains(&format!("KubeletLoginLost: {lost}")), "{repaired}");
    assert!(repaired.contains("nothing to do"), "{repaired}");
    let shown = lab.run("kubernetes status").exits(0).stdout;
    assert!(shown.contains("kubelet has not joined the cluster"), "{shown}");

    // The token in its bootstrap kubeconfig is still valid.
    let valid = lab.copy();
    stop(&valid, &["kubelet"]);
    let _repaired = valid.run("repair -y").exits(0);
    valid.healthy();

    // Nothing but its kubeconfig is lost: it writes that again with its certificate, without any token.
    let certified = lab.copy();
    certified.write(&format!("node/{CERTIFICATE}"), "a certificate");
    expire_token(&certified);
    certified.write("node.yaml", fs::read_to_string(lab.path("node.yaml")).unwrap());
    assert_eq!(certified.run("apply -c node.yaml -y -o json").exits(0).json()["changed"], false);
    stop(&certified, &["kubelet"]);
    let _repaired = certified.run("repair -y").exits(0);
    certified.healthy();
    assert!(certified.read(KUBELET_CONF).contains("kubelet-client-current.pem"));

    // Otherwise it needs a new token.
    expire_token(&lab);
    stop(&lab, &["kubelet"]);
    let failed = lab.run("repair -y -o json");
    assert_eq!(failed.json()["error"]["id"], "ServiceNotSteady", "{failed}");
    let logged = lab.run("logs --component kubelet").exits(0).stdout;
    assert!(logged.contains("cannot create certificate signing request: Unauthorized"), "{logged}");
    let before = lab.picture_without_state();
    let refused = lab.run("apply -c node.yaml -y -o json").json();
    assert_eq!(
        (&refused["error"]["id"], &refused["changed"]),
        (&"JoinTokenRefused".into(), &false.into()),
        "{refused:#}"
    );
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("kubeadm token create") && hint.contains("join.tokenFile"), "{hint}");
    lab.picture_without_state().same_as(&before);
    lab.add_object("secrets", token_secret("fedcba"));
    lab.write("token", "fedcba.0123456789abcdef");
    let text = fs::read_to_string(lab.path("node.yaml")).unwrap();
    lab.write("node.yaml", text.replace("join: {}", "join: {tokenFile: token}"));
    let _joined = lab.run("apply -c node.yaml -y").exits(0);
    lab.healthy();
    assert!(is_ready(&lab, "win-a1"));
}

fn expire_token(lab: &Lab) {
    lab.edit_object("secrets", "bootstrap-token-abcdef", |secret| {
        // 2026-01-01T00:00:00Z
        secret["data"]["expiration"] = "MjAyNi0wMS0wMVQwMDowMDowMFo=".into();
    });
}

/// The secret of a new token, like that of the first one.
fn token_secret(id: &str) -> Value {
    use base64::Engine as _;
    let data = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "data": {
            "token-id": data(id), "token-secret": data("0123456789abcdef"), "usage-bootstrap-authentication": data("true"),
            "auth-extra-groups": data("system:bootstrappers:kubeadm:default-node-token"),
        },
    })
}

/// What kube-proxy reads of the network.
fn winkernel(lab: &Lab) -> Value {
    let read = |path: &str| serde_yaml::from_str::<Value>(&lab.read(path)).unwrap()["winkernel"].clone();
    read("C/ProgramData/calicoctl-win/agent/kube-proxy.yaml")
}

const BGP: &str = "--set calicoNetwork.backend=windows-bgp --ignore-preflight-errors \
                   WindowsBgpRelease,RoutingFeature,PoolEncapsulation";

#[test]
fn kube_proxy_has_a_source_vip_with_vxlan_and_none_with_windows_bgp() {
    let lab = bare();
    let before = lab.picture_without_state();
    let _joined = lab.run(&format!("apply -c node.yaml -y {BGP}")).exits(0);
    assert!(is_ready(&lab, "win-a1"));
    let without = json!({"networkName": "Calico", "enableDSR": true});
    assert_eq!(winkernel(&lab), without);
    assert_eq!(lab.run(&format!("apply -c node.yaml -y -o json {BGP}")).exits(0).json()["changed"], false);

    let changed = lab.run("reconfigure -c node.yaml -y -o ndjson --set calicoNetwork.backend=vxlan").exits(0);
    assert_eq!(started(&changed), "CalicoNode, CalicoFelix, kube-proxy", "{changed}");
    assert_eq!(winkernel(&lab)["sourceVip"], "192.168.0.2");
    lab.healthy();
    let back = lab.run("rollback -y -o ndjson").exits(0);
    assert!(started(&back).ends_with("kube-proxy") && !started(&back).contains("kubelet"), "{back}");
    assert_eq!(winkernel(&lab), without);
    assert!(is_ready(&lab, "win-a1"));
    let _removed = lab.run("uninstall -y").exits(0);
    lab.picture_without_state().same_as(&before);
}

/// kubelet and kube-proxy need the Kubernetes API also where Calico does not.
#[test]
fn a_bare_machine_becomes_a_node_of_a_cluster_with_etcd() {
    let member = Member::start();
    let lab = bare();
    runs_with_etcd(&lab);
    let before = lab.picture_without_state();
    let etcd = format!("--set datastore.type=etcdv3 --set datastore.etcd.endpoints={}", member.url());
    let vxlan = "--set calicoNetwork.backend=vxlan --set calicoNetwork.vxlan.vxlanVNI=4096";
    let words = format!("apply -c node.yaml -y -o json {vxlan} {etcd}");
    let _joined = lab.run(&words).exits(0);
    assert!(is_ready(&lab, "win-a1"));
    lab.healthy();
    assert_eq!(winkernel(&lab)["sourceVip"], "192.168.0.2");
    let proxy: Value = serde_yaml::from_str(&lab.read(KUBE_PROXY_CONFIG)).unwrap();
    assert_eq!(proxy["clientConnection"]["kubeconfig"], r"C:\CalicoWindows\calico-kube-config");
    assert!(lab.read("C/CalicoWindows/calico-kube-config").contains("token:"));
    assert_eq!(lab.run(&words).exits(0).json()["changed"], false);
    let _removed = lab.run("uninstall -y").exits(0);
    lab.picture_without_state().same_as(&before);
}

/// A bare machine with a second adapter.
fn with_storage() -> Lab {
    let lab = bare();
    lab.edit_yaml(|yaml| {
        let adapter =
            "networks:\n- name: Storage\n  mac: 00-15-5D-14-01-15\n  addresses: [10.30.0.21/24]\n  dhcp: false\n";
        let (before, after) = yaml.split_once("networks:\n").unwrap();
        format!("{before}{}networks:\n{after}", adapter.strip_prefix("networks:\n").unwrap())
    });
    lab
}

/// Where the address is: kubelet's flag, kube-proxy's configuration, the Node, and Calico's own variable.
fn addresses(lab: &Lab) -> [String; 4] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kubernetes: Value = serde_json::from_str(&lab.read(KUBERNETES_JSON)).unwrap();
    let mut flags = kubernetes["programs"]["kubelet"]["args"].as_array().unwrap().iter().map(text);
    let flag = flags.find_map(|flag| flag.strip_prefix("--node-ip=").map(str::to_owned)).unwrap();
    let proxy: Value = serde_yaml::from_str(&lab.read(KUBE_PROXY_CONFIG)).unwrap();
    let node = lab.object("nodes", "win-a1").unwrap();
    let calico: Value = serde_json::from_str(&lab.read("C/ProgramData/calicoctl-win/services.json")).unwrap();
    [
        flag,
        text(&proxy["bindAddress"]),
        text(&node["status"]["addresses"][0]["address"]),
        text(&calico["startup"]["env"]["IP"]),
    ]
}

fn adapter_of_external(lab: &Lab) -> Value {
    let status = lab.run("status -o json").json();
    let mut networks = status["networks"].as_array().unwrap().iter();
    networks.find(|network| network["name"] == "External").unwrap()["adapter"].clone()
}

#[test]
fn the_nodes_address_by_hand_is_kubelets_and_kube_proxys_and_calico_has_its_own() {
    let lab = with_storage();
    let _joined = lab.run("apply -c node.yaml -y").exits(0);
    assert_eq!(addresses(&lab), ["10.20.0.21", "10.20.0.21", "10.20.0.21", "autodetect"]);
    let by_hand = "--set kubernetes.node.nodeIP=10.30.0.21";
    let changed = lab.run(&format!("reconfigure -y -o ndjson {by_hand}")).exits(0);
    assert_eq!(started(&changed), "kubelet, kube-proxy");
    assert_eq!(addresses(&lab), ["10.30.0.21", "10.30.0.21", "10.30.0.21", "autodetect"]);
    lab.healthy();
    let _back = lab.run("rollback -y").exits(0);
    assert_eq!(addresses(&lab), ["10.20.0.21", "10.20.0.21", "10.20.0.21", "autodetect"]);

    // Without it, Calico's address is the node's.
    let lab = with_storage();
    let _joined = lab.run("apply -c node.yaml -y --set calicoNetwork.nodeAddress=10.30.0.21/24").exits(0);
    assert_eq!(addresses(&lab), ["10.30.0.21", "10.30.0.21", "10.30.0.21", "10.30.0.21/24"]);
    assert_eq!(adapter_of_external(&lab), "Storage");
}

/// The vSwitch must be on the adapter whose address Calico takes once the Node has it.
#[test]
fn calico_takes_the_address_by_hand_if_it_is_to_have_that_of_the_node() {
    let internal = "--set calicoNetwork.nodeAddress=kubernetes-internal-ip";
    for (by_hand, adapter) in [(" --set kubernetes.node.nodeIP=10.30.0.21", "Storage"), ("", "Ethernet")] {
        let lab = with_storage();
        let words = format!("apply -c node.yaml -y -o json {internal}{by_hand}");
        let _joined = lab.run(&words).exits(0);
        assert_eq!(adapter_of_external(&lab), adapter);
        assert_eq!(lab.run(&words).exits(0).json()["changed"], false, "the Node has it now");
    }
}

#[test]
fn an_address_that_the_machine_does_not_have_is_refused_before_anything_is_changed() {
    let lab = with_storage();
    let refused = |lab: &Lab, more: &str| {
        let before = lab.picture_without_state();
        let refused = lab.run(&format!("apply -c node.yaml -y -o json {more}")).exits(4).json();
        assert_eq!(
            (&refused["error"]["id"], &refused["changed"]),
            (&"ConfigInvalid".into(), &false.into()),
            "{refused:#}"
        );
        lab.picture_without_state().same_as(&before);
        refused["error"]["what"].as_str().unwrap().to_owned() + &refused["error"]["chain"].to_string()
    };
    let other = refused(&lab, "--set kubernetes.node.nodeIP=10.20.0.99");
    assert!(
        other.contains("no adapter of this machine has the address 10.20.0.99; it has 10.20.0.21, 10.30.0.21"),
        "{other}"
    );
    lab.edit_model(|model| model.adapters.iter_mut().for_each(|adapter| adapter.addresses.clear()));
    let before = lab.picture_without_state();
    let error = lab.run("apply -c node.yaml -y -o json").exits(3).json()["error"].clone();
    let checks: Vec<&Value> = error["checks"].as_array().unwrap().iter().map(|check| &check["id"]).collect();
    assert_eq!(checks, ["AdapterHasValidIP"], "{error:#}");
    lab.picture_without_state().same_as(&before);
    // A person who knows better must say which address.
    let none = refused(&lab, "--ignore-preflight-errors AdapterHasValidIP");
    assert!(none.contains("kubernetes.node.nodeIP: no adapter of this machine has an IPv4 address"), "{none}");
}

#[test]
fn the_logs_of_kubelet_and_kube_proxy_are_shown_alone_and_among_calicos() {
    let lab = joined();
    let said = |words: &str| -> Vec<String> {
        let document = lab.run(&format!("logs {words} -o json")).exits(0).json();
        let lines = document["lines"].as_array().unwrap().iter();
        lines.map(|line| format!("{}: {}", line["file"].as_str().unwrap(), line["line"].as_str().unwrap())).collect()
    };
    assert_eq!(said("--component kube-proxy"), [""; 0]);
    for (name, text) in [
        ("kubelet-20260102T150004.000.log", "2026-01-02T15:00:01Z calicoctl-win: kubelet starts\n"),
        ("kubelet.log", "2026-01-02T15:00:07Z calicoctl-win: kubelet restarts\n"),
        ("kubelet.err.log", "I0102 15:00:05.000000    4001 server.go:467] \"Kubelet version\"\n"),
        ("kube-proxy.err.log", "E0102 15:00:06.000000    4021 proxier.go:1] no network\n"),
    ] {
        lab.write(&format!("node/C/ProgramData/calicoctl-win/logs/calico/{name}"), text);
    }
    let kubelet = [
        "kubelet.log: 2026-01-02T15:00:01Z calicoctl-win: kubelet starts",
        "kubelet.err.log: I0102 15:00:05.000000    4001 server.go:467] \"Kubelet version\"",
        "kubelet.log: 2026-01-02T15:00:07Z calicoctl-win: kubelet restarts",
    ];
    let proxy = "kube-proxy.err.log: E0102 15:00:06.000000    4021 proxier.go:1] no network";
    assert_eq!(said("--component kubelet"), kubelet);
    assert_eq!(said("--component kube-proxy"), [proxy]);
    let all = said("");
    let ours: Vec<&String> = all.iter().filter(|line| line.starts_with("kube")).collect();
    assert_eq!(ours, [kubelet[0], kubelet[1], proxy, kubelet[2]]);
    assert!(all.iter().any(|line| line.starts_with("calico-node.log: ")), "{all:?}");
}

/// The advice of `status` leads to the reason.
#[test]
fn why_kubelet_does_not_start_is_in_its_log() {
    let lab = joined();
    overwrite(&lab, KUBELET_CONFIG);
    stop(&lab, &["kubelet"]);
    let _started = lab.run("service start -y");
    let shown = lab.run("status").exits(12).stdout;
    assert!(shown.contains("crash loop") && shown.contains("logs --component kubelet"), "{shown}");
    let logged = lab.run("logs --component kubelet").exits(0).stdout;
    assert!(logged.contains("failed to load kubelet config file"), "{logged}");
    let _repaired = lab.run("repair -y").exits(0);
    lab.healthy();
}

/// A node that kubeadm joined, with the service that runs its kubelet. `wrapped`: by NSSM, as PrepareNode.ps1 of
/// kubernetes-sigs/sig-windows-tools makes it; else by `sc.exe`.
fn by_kubeadm(wrapped: bool) -> Lab {
    let lab = Lab::node();
    let _cluster = lab.run("cluster check").code;
    config(&lab, "v1.36.2", "");
    without_token(&lab);
    for (path, text) in [
        (
            KUBELET_CONF,
            "apiVersion: v1\nkind: Config\nusers:\n- name: default-auth\n  user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}\n",
        ),
        (KUBELET_CONFIG, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 77\n"),
        (CERTIFICATE, "a certificate"),
        ("C/etc/kubernetes/pki/ca.crt", "the cluster's CA"),
        ("C/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--pod-infra-container-image=pause\""),
    ] {
        lab.write(&format!("node/{path}"), text);
    }
    if wrapped {
        lab.edit_model(|model| {
            let definition = &mut service(model, "kubelet").definition;
            definition.image_path = r"C:\k\nssm.exe".into();
            let value = |text: &str| RegValue::ExpandString(text.into());
            let script = r"-ExecutionPolicy Bypass -NoProfile C:\k\StartKubelet.ps1";
            definition
                .parameters
                .insert("Application".into(), value(r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"));
            definition.parameters.insert("AppParameters".into(), value(script));
        });
    }
    lab
}

#[test]
fn while_the_service_of_kubeadms_kubelet_exists_it_is_described_and_left_alone_and_then_taken_over() {
    for (wrapped, runs) in [(false, r"C:\k\kubelet.exe "), (true, r"-NoProfile C:\k\StartKubelet.ps1")] {
        let lab = by_kubeadm(wrapped);
        let theirs = |lab: &Lab| {
            let files = [KUBELET_CONF, KUBELET_CONFIG, CERTIFICATE, "C/etc/kubernetes/pki/ca.crt"];
            let kubelet = serde_json::to_value(service(&mut lab.model(), "kubelet")).unwrap();
            (files.map(|path| lab.read(path)), kubelet)
        };
        let before = (theirs(&lab), lab.picture_without_state());
        let status = lab.run("kubernetes status").exits(0).stdout;
        assert!(status.contains("kubelet    Running, of another program: ") && status.contains(runs), "{status}");

        // It needs no token, since kubelet is not ours to let join.
        let done = lab.run("apply -c node.yaml -y -o json").exits(0).json();
        let warned = done["warnings"].as_array().unwrap();
        let kept = "the service kubelet was made by another program and is left as it is: ";
        let text = warned[0].as_str().unwrap();
        assert!(warned.len() == 1 && text.contains(kept) && text.contains(runs), "{done:#}");
        assert_eq!(theirs(&lab), before.0);
        assert!(lab.run("service status").exits(0).stdout.contains("kube-proxy   Running"));
        lab.healthy();
        assert_eq!(lab.run("apply -c node.yaml -y -o json").exits(0).json()["changed"], false);
        let repaired = lab.run("repair -y").exits(0).stdout;
        assert!(repaired.contains("nothing to do") && !repaired.contains("KubeletLoginLost"), "{repaired}");
        let removed = lab.copy();
        let joined_again = lab.read(KUBELET_CONF) + "# by kubeadm, since then\n";
        removed.write(&format!("node/{KUBELET_CONF}"), &joined_again);
        let with_it = theirs(&removed);
        let _removed = removed.run("uninstall -y").exits(0);
        assert_eq!(theirs(&removed), with_it, "no login of another kubelet is restored either");

        // As `explain KubernetesServiceKept` says.
        delete_service(&lab, "kubelet");
        let taken = lab.run("apply -c node.yaml -y -o json").exits(0).json();
        let warned = taken["warnings"].to_string();
        assert!(warned.contains("KubeletConfigReplaced") && warned.contains("its maxPods: "), "{taken:#}");
        let status = lab.run("kubernetes status").exits(0).stdout;
        assert!(status.contains("kubelet    Running, v1.36.2") && status.contains("kubelet has joined"), "{status}");
        assert!(is_ready(&lab, "win-a1"));
        lab.healthy();
        assert_eq!(lab.read(KUBELET_CONF), before.0.0[0], "it keeps its login");
        let back = lab.run("rollback --dry-run -o json").exits(0).json();
        let told = "the service kubelet is deleted, and no kubelet runs on this machine then: its Node becomes NotReady; \
                    the service of the kubelet before it was deleted by hand, and only its configuration is restored";
        assert!(back["warnings"].to_string().contains(told), "{back:#}");
        let other = lab.copy();
        let _changed = other.run("reconfigure -y --set services.felixLogSeverity=debug").exits(0);
        let back = other.run("rollback --dry-run -o json").exits(0).json();
        assert_eq!(back["warnings"], Value::Null, "kubelet stays");
        let _removed = lab.run("uninstall -y").exits(0);
        lab.picture_without_state().only_disk().same_as(&before.1.only_disk());
    }
}
