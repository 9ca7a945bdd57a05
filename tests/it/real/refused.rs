//! What the server's own authorizers and admission refuse, what another machine holds, and what the cluster lacks: said
//! before anything changes.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::cluster::{KUBELET, OPERATOR, RealCluster, V1};
use crate::clusters::files_with;
use crate::lab::Output;

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/calicoctl-win";
const VNI: &str = "reconfigure -y --set calicoNetwork.vxlan.vxlanVNI=5000";

impl RealCluster {
    /// Refused as this, with this exit code; nothing was changed, and the server was only read.
    #[track_caller]
    fn refuses(&self, words: &str, code: i32, id: &str) -> Value {
        let (mark, before) = (self.mark(), self.lab.picture_without_state());
        let refused = self.run(&format!("{words} -o json")).exits(code).json();
        assert_eq!((&refused["error"]["id"], &refused["changed"]), (&json!(id), &json!(false)), "{words}: {refused:#}");
        self.lab.picture_without_state().same_as(&before);
        assert!(!self.cordoned(), "{words}");
        // Reviews and tokens are created, and stored nowhere.
        let asked = self.asked_since(mark, OPERATOR);
        let written = asked.iter().find(|one| {
            !matches!(one.verb.as_str(), "get" | "list" | "watch")
                && !one.uri.contains("selfsubject")
                && !one.uri.contains("/token?")
        });
        assert!(written.is_none(), "{words}: {written:?}");
        refused
    }

    /// The same with kubelet's own kubeconfig.
    #[track_caller]
    fn refuses_kubelet(&self, more: &str, code: i32) -> Value {
        let before = self.lab.picture_without_state();
        let words = format!("install -y -o json -c config.yaml --kubeconfig kubelet.yaml {more}");
        let refused = self.lab.alone(&words).exits(code).json();
        assert_eq!(refused["error"]["id"], "NodeLogin", "{refused:#}");
        self.lab.picture_without_state().same_as(&before);
        refused
    }
}

/// Client secrets are in a plugin's arguments and environment: they are shown nowhere, whatever the plugin prints and the
/// server answers.
fn the_secrets_of_a_plugin(cluster: &RealCluster) {
    let login = |token: &str| {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token } });
        format!("echo '{credential}'")
    };
    let mut kubeconfig: Value = serde_json::from_str(&cluster.server.kubeconfig_of(OPERATOR)).unwrap();
    kubeconfig["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "/bin/sh", "args": ["plugin.sh", "canary-argument"],
        "env": [{ "name": "CLIENT_SECRET", "value": "canary-env" }],
    } });
    cluster.lab.write("exec.yaml", kubeconfig.to_string());
    for (script, code, said) in [
        ("echo canary-stdout; exit 3".to_owned(), 7, "/bin/sh"),
        (login("canary-token"), 17, "401"),
        (login(OPERATOR), 0, ""),
    ] {
        cluster.lab.write("plugin.sh", format!("echo canary-stderr >&2\n{script}\n"));
        for format in ["text", "json"] {
            let words = format!("cluster check -c config.yaml --kubeconfig exec.yaml -o {format}");
            let ended = cluster.lab.alone(&words).exits(code);
            // What the plugin prints for its user is on the terminal, as with kubectl.
            let shown = format!("{}{}", ended.stdout, ended.stderr.replace("canary-stderr", ""));
            assert!(shown.contains(said) && !shown.contains("canary"), "{script}: {ended}");
            assert_eq!(files_with(&cluster.lab.path("node"), "canary"), Vec::<String>::new(), "{script}");
        }
    }
}

/// An HTTP proxy that connects everybody to the server; returns its address, and what it was asked for.
fn proxy(server: u16) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let connect = move |mut client: TcpStream| -> io::Result<()> {
        let mut lines = BufReader::new(client.try_clone()?).lines();
        let first = lines.next().unwrap()?;
        // A client sends nothing more until it is connected.
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        seen.lock().unwrap().push(first);
        let mut server = TcpStream::connect(("127.0.0.1", server))?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
        thread::spawn(move || io::copy(&mut from, &mut to));
        io::copy(&mut client, &mut server).map(drop)
    };
    thread::spawn(move || {
        for client in listener.incoming() {
            let connect = connect.clone();
            thread::spawn(move || connect(client.unwrap()));
        }
    });
    (address, asked)
}

/// The proxy of downloads is not that of the API server, which is reached as by kubectl.
fn a_proxy(cluster: &RealCluster) {
    let (address, asked) = proxy(cluster.server.port());
    let connected = || std::mem::take(&mut *asked.lock().unwrap());
    let mut kubeconfig: Value = serde_json::from_str(&cluster.server.kubeconfig_of(OPERATOR)).unwrap();
    let server = &mut kubeconfig["clusters"][0]["cluster"];
    // A name that only the proxy can resolve: local servers are reached without one.
    (server["server"], server["tls-server-name"]) = ("https://api.test:6443".into(), "127.0.0.1".into());
    cluster.lab.write("by-name.yaml", kubeconfig.to_string());
    kubeconfig["clusters"][0]["cluster"]["proxy-url"] = format!("http://{address}").into();
    cluster.lab.write("proxied.yaml", kubeconfig.to_string());

    let through = |kubeconfig: &str, variable: &str| {
        let words = format!("cluster check -c config.yaml --kubeconfig {kubeconfig}");
        let mut command = cluster.lab.command(&words);
        command.args(["--sandbox", "node"]).env("HTTPS_PROXY", variable);
        let _checked = Output::of(&words, command).exits(0);
        let connected = connected();
        assert!(connected.iter().all(|one| one == "CONNECT api.test:6443 HTTP/1.1"), "{connected:?}");
        assert!(!connected.is_empty(), "{words} with HTTPS_PROXY={variable}");
    };
    through("proxied.yaml", "http://127.0.0.1:9");
    through("by-name.yaml", &format!("http://{address}"));
    let proxied = format!("--kubeconfig={}", cluster.lab.path("proxied.yaml").display());
    cluster.kubectl(&[&proxied, "get", "nodes"], "");
    assert!(!connected().is_empty(), "kubectl");
    let _checked = cluster.run(&format!("cluster check --set transport.proxy=http://{address}")).exits(0);
    assert_eq!(connected(), Vec::<String>::new());
}

/// NodeRestriction lets kubelet ask for the tokens of its own pods only.
fn kubelets_own_kubeconfig(cluster: &RealCluster) {
    cluster.lab.write("kubelet.yaml", cluster.server.kubeconfig_of(KUBELET));
    let bind = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--group=system:nodes"]).collect();
        cluster.kubectl(&words, "");
    };
    bind("create clusterrolebinding nodes-too --clusterrole=calicoctl-win");
    bind("create rolebinding nodes-too --role=calicoctl-win-calico -n calico-system");
    bind("create rolebinding nodes-too --role=calicoctl-win -n default");
    let refused = cluster.refuses_kubelet("", 3);
    let check = refused["error"]["checks"][0].to_string();
    assert!(check.contains("kubelet on win-a1") && check.contains("credentials fetch"), "{check}");
    let insists = "--set kubernetes.credentials=token-request --ignore-preflight-errors NodeLogin";
    let refused = cluster.refuses_kubelet(insists, 17);
    assert!(refused["error"]["why"].to_string().contains("node requested token not bound to a pod"), "{refused:#}");
}

/// A change that could not be finished ends before the cordon.
fn a_right_that_is_missing(cluster: &RealCluster) {
    let all = cluster.server.get(ROLE)["rules"].clone();
    for (verb, resource) in [("create", "pods/eviction"), ("patch", "nodes")] {
        let mut fewer = all.as_array().unwrap().clone();
        fewer.retain(|rule| (&rule["verbs"], &rule["resources"]) != (&json!([verb]), &json!([resource])));
        assert_eq!(fewer.len() + 1, all.as_array().unwrap().len());
        cluster.server.patch(ROLE, &json!({ "rules": fewer }));
        let refused = cluster.refuses(VNI, 17, "ClusterRights");
        let what = refused["error"]["what"].as_str().unwrap();
        assert!(what.contains(&format!("{verb} {resource}")), "{what}");
    }
    cluster.server.patch(ROLE, &json!({ "rules": all }));
}

fn a_node_that_is_missing(cluster: &RealCluster) {
    let refused = cluster.run("cluster check --node-name nope -o json").exits(7).json();
    assert_eq!(refused["error"]["id"], "NodeAbsent", "{refused:#}");
}

/// Kubernetes refuses each eviction of a pod that two budgets select, whatever the number of its replicas.
fn two_budgets_for_one_pod(cluster: &RealCluster) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web-too", "namespace": "demo" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    cluster.kubectl(&["create", "-f", "-"], &budget.to_string());
    let refused = cluster.run("node drain -y -o json").exits(8).json();
    let (id, hint) = (&refused["error"]["id"], refused["error"]["hint"].to_string());
    assert_eq!(id, "DrainNeverAllowed", "{refused:#}");
    assert!(hint.contains("change the selectors of the budgets") && !hint.contains("scale"), "{hint}");
    assert!(!cluster.cordoned());
    cluster.kubectl(&["delete", "pdb", "web-too", "-n", "demo"], "");
}

fn a_lease_of_another_machine(cluster: &RealCluster) {
    let now = jiff::Timestamp::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "calicoctl-win.win-a1", "namespace": "kube-node-lease" },
        "spec": {
            "holderIdentity": "jump-host/r7", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}"),
        },
    });
    let _last_runs =
        cluster.server.try_kubectl(&["delete", "lease", "calicoctl-win.win-a1", "-n", "kube-node-lease"], "");
    cluster.kubectl(&["create", "-f", "-"], &lease.to_string());
    for verb in [VNI, "node cordon", "node drain -y", "credentials rotate -y", "uninstall -y"] {
        let refused = cluster.refuses(verb, 14, "NodeLeased");
        assert!(refused["error"]["what"].to_string().contains("run r7 on jump-host"), "{refused:#}");
    }
    cluster.kubectl(&["delete", "lease", "calicoctl-win.win-a1", "-n", "kube-node-lease"], "");
}

/// One object that is missing leaves all other answers.
fn an_account_that_is_missing(cluster: &RealCluster) {
    let others = |code: i32| -> Vec<(String, String)> {
        let checked = cluster.run("cluster check -o json").exits(code).json();
        let checks = checked["checks"].as_array().unwrap().iter();
        let mut found: Vec<_> = checks.map(|one| (one["id"].to_string(), one["status"].to_string())).collect();
        let account = found.iter().position(|(id, _)| id == "\"CalicoServiceAccount\"").unwrap();
        assert_eq!(found.remove(account).1, if code == 0 { "\"ok\"" } else { "\"fail\"" }, "{checked:#}");
        found
    };
    let before = others(0);
    cluster.kubectl(&["delete", "serviceaccount", "calico-node", "-n", "calico-system"], "");
    assert_eq!(others(3), before);
}

#[test]
fn what_a_real_server_refuses_is_said_before_anything_changes() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    cluster.config(cluster.release());
    the_secrets_of_a_plugin(&cluster);
    a_proxy(&cluster);
    kubelets_own_kubeconfig(&cluster);
    let _installed = cluster.run("install -y").exits(0);
    cluster.bind_pods();
    a_right_that_is_missing(&cluster);
    a_node_that_is_missing(&cluster);
    two_budgets_for_one_pod(&cluster);
    a_lease_of_another_machine(&cluster);
    let _changed = cluster.run(VNI).exits(0);
    assert!(!cluster.cordoned());
    an_account_that_is_missing(&cluster);
}
