//! What only a real server refuses, and how it is reached.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::cluster::{KUBELET, OPERATOR, RealCluster, V1};
use crate::both::Joined as _;
use crate::both::refused::what_is_refused;
use crate::clusters::files_with;
use crate::lab::Output;

impl RealCluster {
    /// Refused with kubelet's own kubeconfig.
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

#[test]
fn what_a_real_server_refuses_is_said_before_anything_changes() {
    let Some(cluster) = RealCluster::start(V1) else { return };
    cluster.config(cluster.release());
    the_secrets_of_a_plugin(&cluster);
    a_proxy(&cluster);
    kubelets_own_kubeconfig(&cluster);
    let _installed = cluster.run("install -y").exits(0);
    cluster.bind_pods();
    what_is_refused(&cluster);
}
