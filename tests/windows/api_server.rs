//! A real API server on this host's loopback: kube-apiserver with its etcd, for the programs of Kubernetes that run on
//! a machine of the tests.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use calicoctl_win::cluster::Cluster;
use calicoctl_win::settings::Limits;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::house::SOON;
use crate::machine::eventually;
use crate::parts::part;

const TOKEN: &str = "an-administrator-of-the-tests";

pub struct ApiServer {
    dir: TempDir,
    programs: Vec<Child>,
    client: Cluster,
}

impl ApiServer {
    /// Starts it. None if it was not built.
    pub fn start() -> Option<Self> {
        let (etcd, apiserver) = (part("etcd")?, part("kube-apiserver")?);
        let dir = TempDir::new().unwrap();
        let [etcd_port, peer_port, port] = free_ports();
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let key = rcgen::KeyPair::generate().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("accounts.key"), key.serialize_pem()).unwrap();
        fs::write(at("accounts.pub"), key.public_key_pem()).unwrap();
        fs::write(at("tokens"), format!("{TOKEN},admin,admin,system:masters\n")).unwrap();
        fs::write(at("kubeconfig"), kubeconfig(port)).unwrap();
        let run = |program: &Path, name: &str, args: &[String]| {
            let said = File::create(at(&format!("{name}.log"))).unwrap();
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
            command.spawn().unwrap()
        };
        let programs = vec![
            run(
                &etcd,
                "etcd",
                &[
                    format!("--data-dir={}", at("etcd")),
                    format!("--listen-client-urls={etcd_url}"),
                    format!("--advertise-client-urls={etcd_url}"),
                    format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
                    "--unsafe-no-fsync".into(),
                ],
            ),
            run(
                &apiserver,
                "kube-apiserver",
                &[
                    format!("--etcd-servers={etcd_url}"),
                    "--bind-address=127.0.0.1".into(),
                    format!("--secure-port={port}"),
                    format!("--cert-dir={}", at("certs")),
                    "--service-account-issuer=https://kubernetes.default.svc".into(),
                    format!("--service-account-key-file={}", at("accounts.pub")),
                    format!("--service-account-signing-key-file={}", at("accounts.key")),
                    format!("--token-auth-file={}", at("tokens")),
                    "--authorization-mode=Node,RBAC".into(),
                    "--service-cluster-ip-range=10.96.0.0/16".into(),
                ],
            ),
        ];
        let limits = Limits { timeout: Duration::from_secs(20), retries: 0 };
        let client = Cluster::open(Some(Path::new(&at("kubeconfig"))), None, limits).unwrap();
        let server = Self { dir, programs, client };
        eventually("the API server", SOON, || server.client.get::<Value>("/api/v1/namespaces/default").ok().flatten());
        Some(server)
    }

    /// A kubeconfig with all rights.
    pub fn kubeconfig(&self) -> String {
        fs::read_to_string(self.dir.path().join("kubeconfig")).unwrap()
    }

    /// An object that is there.
    pub fn get(&self, path: &str) -> Value {
        self.client.get(path).unwrap().unwrap_or_else(|| panic!("there is no {path}"))
    }

    pub fn post(&self, path: &str, object: &Value) -> Value {
        self.client.post(path, object).unwrap()
    }

    pub fn patch(&self, path: &str, patch: &Value) -> Value {
        self.client.merge_patch(path, patch).unwrap()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for program in self.programs.iter_mut().rev() {
            let _ended_already = program.kill();
            let _status = program.wait();
        }
    }
}

fn kubeconfig(port: u16) -> String {
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tests",
        "clusters": [{ "name": "tests", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "admin", "user": { "token": TOKEN } }],
        "contexts": [{ "name": "tests", "context": { "cluster": "tests", "user": "admin" } }],
    });
    serde_json::to_string_pretty(&document).unwrap()
}

/// Ports of loopback that nobody has. All are taken at once, so that they differ, and freed.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let taken = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    taken.map(|listener| listener.local_addr().unwrap().port())
}
