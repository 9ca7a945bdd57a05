//! kubelet and kube-proxy of this program on a node that has joined: what others change, its login, its address, other
//! networks and datastores, and a kubelet that kubeadm's join left.

use std::fs;

use calicoctl_win::node::sandbox::model::{Model, Name, NodeService};
use serde_json::{Value, json};

use super::kubernetes::{bare, is_ready, phases, stop};
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
            "automatic",
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

