//! A real API server on this host's loopback: kube-apiserver with its etcd, RBAC, NodeRestriction and an audit log.

use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use calicoctl_win::cluster::Cluster;
use calicoctl_win::settings::Limits;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::parts::part;

/// A user, by a token that is the user's name: all rights.
pub const ADMIN: &str = "admin";

/// Each metadata of a request when its answer begins, if it is a stream, and when it has ended. Of the states of pods
/// also what was written.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Request, verbs: [patch, update], resources: [{resources: [pods/status]}]}, {level: Metadata}]
";

/// How long a program may take to start on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// The minor version whose API servers have MutatingAdmissionPolicy in v1; older ones have it in v1beta1, if asked.
const MUTATING_POLICIES: u32 = 36;

pub struct ApiServer {
    dir: TempDir,
    programs: Vec<Child>,
    /// How those beside it were started, with the names of their logs.
    beside: Vec<(PathBuf, Vec<String>, String)>,
    server: Child,
    command: (PathBuf, Vec<String>),
    port: u16,
    client: Cluster,
    minor: u32,
}

impl ApiServer {
    /// Starts it. None if it was not built.
    pub fn start() -> Option<Self> {
        Self::with_users("")
    }

    /// Starts it with further users, a line each: token, name, uid, quoted groups.
    pub fn with_users(users: &str) -> Option<Self> {
        let (etcd, apiserver) = (part("etcd")?, part("kube-apiserver")?);
        let dir = TempDir::new().unwrap();
        let [etcd_port, peer_port, port] = free_ports();
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let key = KeyPair::generate().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("accounts.key"), key.serialize_pem()).unwrap();
        fs::write(at("accounts.pub"), key.public_key_pem()).unwrap();
        fs::write(at("tokens"), format!("{ADMIN},{ADMIN},{ADMIN},system:masters\n{users}")).unwrap();
        fs::write(at("audit.yaml"), AUDIT).unwrap();
        write_certificates(dir.path());
        let etcd = run(
            &etcd,
            &[
                format!("--data-dir={}", at("etcd")),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
                "--unsafe-no-fsync".into(),
            ],
            &dir.path().join("etcd.log"),
        );
        let minor = minor_version(&apiserver);
        let mut arguments = vec![
            format!("--etcd-servers={etcd_url}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", at("certs")),
            format!("--tls-cert-file={}", at("server.crt")),
            format!("--tls-private-key-file={}", at("server.key")),
            format!("--client-ca-file={}", at("ca.crt")),
            "--enable-bootstrap-token-auth=true".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", at("accounts.pub")),
            format!("--service-account-signing-key-file={}", at("accounts.key")),
            format!("--token-auth-file={}", at("tokens")),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            // Calico's own DaemonSet is privileged.
            "--allow-privileged=true".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            format!("--audit-policy-file={}", at("audit.yaml")),
            format!("--audit-log-path={}", at("audit.log")),
            // In MB: another file would begin after 100.
            "--audit-log-maxsize=2000".into(),
        ];
        if minor < MUTATING_POLICIES {
            arguments.push("--runtime-config=admissionregistration.k8s.io/v1beta1=true".into());
            arguments.push("--feature-gates=MutatingAdmissionPolicy=true".into());
        }
        let server = run(&apiserver, &arguments, &dir.path().join("kube-apiserver.log"));
        fs::write(at("kubeconfig"), kubeconfig(Path::new(&at("ca.crt")), port, ADMIN)).unwrap();
        let client = open(dir.path());
        let (programs, beside) = (vec![etcd], Vec::new());
        let started = Self { dir, programs, beside, server, command: (apiserver, arguments), port, client, minor };
        started.until_up();
        Some(started)
    }

    pub fn until_up(&self) {
        until("the API server", || self.client.get::<Value>("/api/v1/namespaces/default").ok().flatten());
    }

    /// Starts another program that lives as long as this.
    pub fn beside(&mut self, program: &Path, arguments: &[String], log: &str) {
        let child = run(program, arguments, &self.dir.path().join(log));
        self.programs.push(child);
        self.beside.push((program.to_owned(), arguments.to_vec(), log.to_owned()));
    }

    /// Kills such a program, by the name of its log, and starts it again, with these arguments too.
    pub fn restart_beside(&mut self, log: &str, more: &[&str]) {
        let at = self.beside.iter().position(|(.., own)| own == log).unwrap();
        // The first program is etcd.
        end(&mut self.programs[at + 1]);
        let (program, arguments, _) = &mut self.beside[at];
        arguments.extend(more.iter().map(|one| (*one).to_owned()));
        self.programs[at + 1] = run(program, arguments, &self.dir.path().join(log));
    }

    /// Kills the API server and starts it again, without waiting for its answers.
    pub fn restart(&mut self) {
        end(&mut self.server);
        let (program, arguments) = &self.command;
        self.server = run(program, arguments, &self.dir.path().join("kube-apiserver.log"));
    }

    /// A file of its folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A kubeconfig with all rights.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of(ADMIN)
    }

    /// The kubeconfig of a user.
    pub fn kubeconfig_of(&self, user: &str) -> String {
        kubeconfig(&self.file("ca.crt"), self.port, user)
    }

    /// Whether it has MutatingAdmissionPolicy in v1beta1.
    pub const fn mutates_in_beta(&self) -> bool {
        self.minor < MUTATING_POLICIES
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// An object that is there.
    pub fn get(&self, path: &str) -> Value {
        self.client.get(path).unwrap().unwrap_or_else(|| panic!("there is no {path}"))
    }

    /// The address of its etcd, where Calico's data can be too.
    pub fn etcd(&self) -> &str {
        let named = |argument: &String| argument.starts_with("--etcd-servers=");
        let argument = self.command.1.iter().find(|one| named(one)).unwrap();
        argument.split_once('=').unwrap().1
    }

    pub fn put_in_etcd(&self, key: &str, value: &Value) {
        let put = ask_etcd(self.etcd(), "", "kv/put", &key_with(key, value));
        assert!(put.is_ok(), "{key}: {put:?}");
    }

    pub fn post(&self, path: &str, object: &Value) -> Value {
        self.client.post(path, object).unwrap()
    }

    pub fn patch(&self, path: &str, patch: &Value) -> Value {
        self.client.merge_patch(path, patch).unwrap()
    }

    pub fn client(&self) -> &Cluster {
        &self.client
    }

    /// A client for another thread.
    pub fn another_client(&self) -> Cluster {
        open(self.dir.path())
    }
}

/// Asks etcd's gateway for JSON, without TLS. `token`: of a user, if etcd has users.
pub fn ask_etcd(gateway: &str, token: &str, call: &str, body: &Value) -> Result<Value, String> {
    // reqwest requires one, also without TLS; another test may have set it.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{gateway}/v3/{call}")).body(body.to_string());
    let answer = request.header("Authorization", token).send().map_err(|error| error.to_string())?;
    let (status, text) = (answer.status(), answer.text().unwrap());
    if status.is_success() { Ok(serde_json::from_str(&text).unwrap()) } else { Err(text) }
}

/// A key of etcd and its value, as the gateway has them.
pub fn key_with(key: &str, value: &Value) -> Value {
    use base64::Engine as _;
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    json!({ "key": encoded(key), "value": encoded(&value.to_string()) })
}

/// A client with all rights, of the server of this folder.
fn open(dir: &Path) -> Cluster {
    let limits = Limits { timeout: Duration::from_secs(20), retries: 0, asks: false };
    Cluster::open(Some(&dir.join("kubeconfig")), None, limits).unwrap()
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for program in self.programs[1..].iter_mut().rev() {
            end(program);
        }
        end(&mut self.server);
        end(&mut self.programs[0]);
    }
}

pub fn end(program: &mut Child) {
    let _ended_already = program.kill();
    let _status = program.wait();
}

pub fn run(program: &Path, arguments: &[String], log: &Path) -> Child {
    let said: File = OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
    command.spawn().unwrap()
}

/// What a program of Kubernetes says to `--version`: `Kubernetes v1.36.3`.
fn minor_version(program: &Path) -> u32 {
    let said = Command::new(program).arg("--version").output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    said.split('.').nth(1).unwrap().parse().unwrap()
}

/// Polls until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "waited {} s for {what}", LIMIT.as_secs());
        thread::sleep(Duration::from_millis(50));
    }
}

/// The cluster's CA, which kube-controller-manager signs kubelets' certificates with, and the server's own certificate.
fn write_certificates(dir: &Path) {
    let params = |name: &str, names: Vec<String>| {
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = params("kubernetes", Vec::new());
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    fs::write(dir.join("ca.crt"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    fs::write(dir.join("ca.key"), ca_key.serialize_pem()).unwrap();
    let own = params("kube-apiserver", vec!["127.0.0.1".into()]);
    fs::write(dir.join("server.crt"), own.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem()).unwrap();
    fs::write(dir.join("server.key"), key.serialize_pem()).unwrap();
}

fn kubeconfig(authority: &Path, port: u16, token: &str) -> String {
    use base64::Engine as _;
    let authority = base64::engine::general_purpose::STANDARD.encode(fs::read(authority).unwrap());
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tests",
        "clusters": [{ "name": "tests", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": authority } }],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "tests", "context": { "cluster": "tests", "user": "user" } }],
    });
    serde_json::to_string_pretty(&document).unwrap()
}

/// Ports of loopback that nobody has. All are taken at once, so that they differ, and freed.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let taken = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    taken.map(|listener| listener.local_addr().unwrap().port())
}
