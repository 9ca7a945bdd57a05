//! Secrets of every kind go through every command, in every format and into every failure. No output, log, record or
//! receipt has one, and on the node they are only in files that SYSTEM and Administrators alone may read.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::node::trust;
use calicoctl_win::sandbox::cluster::EmbeddedCluster;
use calicoctl_win::sandbox::release::SyntheticRelease;
use serde_json::{Value, json};

use super::adoption::scripts_node;
use super::credentials::{cluster, runs_with_etcd};
use crate::docs::commands;
use crate::etcd::Etcd;
use crate::lab::{Lab, Output};

const FORMATS: [&str; 4] = ["text", "json", "ndjson", "yaml"];

/// Every command at its work: the fault that it meets, its words, and its exit code. The words of a command are the
/// beginning of a line.
const LIFE: [(&str, &str, i32); 91] = [
    ("", "preflight -c c.yaml --all", 0),
    ("", "cluster check -c c.yaml", 0),
    ("", "cluster prepare -c c.yaml --apply -y", 0),
    ("", "policy lint -c c.yaml", 0),
    ("", "fleet plan -c c.yaml --image host/c:1 --api-server https://192.0.2.10:6443", 0),
    ("", "fleet apply -c c.yaml --image host/c:1 --api-server https://192.0.2.10:6443 --dry-run", 0),
    ("", "fleet status -c c.yaml", 0),
    ("", "fleet metrics -c c.yaml --out fleet.prom", 0),
    ("", "fleet pause -c c.yaml", 0),
    ("", "fleet resume -c c.yaml", 0),
    ("", "fleet rollback -c c.yaml --dry-run", 0),
    ("", "render fleet -c c.yaml --image host/c:1 --api-server https://192.0.2.10:6443", 0),
    ("", "config init fresh.yaml", 0),
    ("", "config validate c.yaml", 0),
    ("", "config show -c c.yaml --origins", 0),
    ("", "config schema", 0),
    ("", "config import config.ps1", 4),
    ("", "release download -c c.yaml", 0),
    ("", "release list", 0),
    ("", "release bundle -c c.yaml --out bundle.zip", 0),
    ("", "release verify calico-windows-v3.32.1.zip", 0),
    ("", "release extract calico-windows-v3.32.1.zip --dest out", 0),
    ("", "plan -c c.yaml --out plan.json", 0),
    ("", "plan -c c.yaml --print-facts", 0),
    ("", "install -y -c c.yaml --dry-run -v", 0),
    ("put *#9=exit-after", "install -y -c c.yaml", 137),
    ("", "status", 12),
    ("", "resume -y --undo", 0),
    ("", "apply --plan plan.json -y", 0),
    ("", "install -y -c c.yaml", 0),
    ("", "apply -y -c c.yaml", 0),
    ("", "migrate from flannel -y -c c.yaml", 0),
    ("", "config diff -c c.yaml", 0),
    ("", "status", 0),
    ("", "logs", 0),
    ("", "metrics", 0),
    (
        "",
        "render user-data -c c.yaml --program-url https://host/a.exe --program-sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        0,
    ),
    (
        "",
        "render terraform -c c.yaml --module ./terraform --program-url https://host/a.exe --program-sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        0,
    ),
    (
        "",
        "render ansible -c c.yaml --program-url https://host/a.exe --program-sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        0,
    ),
    (
        "",
        "render cloud-config -c c.yaml --program-url https://host/a.exe --program-sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        0,
    ),
    ("", "render dsc -c c.yaml", 0),
    ("", "dsc get", 0),
    ("", "dsc export", 0),
    ("", "dsc schema", 0),
    ("", "dsc manifest", 0),
    // `stories::dsc` gives these an instance on stdin.
    ("", "dsc test", 4),
    ("", "dsc set", 4),
    ("", "dsc delete", 4),
    ("", "diagnose --out node.zip", 0),
    ("", "credentials show", 0),
    ("", "credentials fetch -c c.yaml --out got", 0),
    ("", "credentials rotate -y -c c.yaml", 0),
    ("", "service status", 0),
    ("", "service restart -y", 0),
    ("", "service stop -y", 0),
    ("", "service start", 0),
    ("", "kubernetes install -y -c c.yaml --set kubernetes.node.source.path=programs", 0),
    ("", "kubernetes status", 0),
    ("", "kubernetes uninstall -y", 0),
    ("", "node cordon -y -c c.yaml", 0),
    ("", "node uncordon -y -c c.yaml", 0),
    ("", "node drain --dry-run -c c.yaml", 0),
    ("", "node taint os=windows:NoSchedule -y -c c.yaml", 0),
    ("", "node untaint os -y -c c.yaml", 0),
    ("", "reconfigure -y --set services.felixLogSeverity=debug --mode try", 0),
    ("", "confirm", 0),
    ("put running CalicoFelix=exit-before", "reconfigure -y --set services.felixLogSeverity=error", 137),
    ("", "receipt list", 0),
    ("", "receipt show", 0),
    ("", "history", 0),
    ("", "resume -y", 0),
    ("put running CalicoFelix#2=fail", "reconfigure -y --set services.felixLogSeverity=info", 9),
    ("", "rollback -y", 0),
    ("", "upgrade -y --release v3.33.0", 0),
    ("put *=exit-before", "repair -y", 137),
    ("", "resume -y", 0),
    ("", "repair -y", 0),
    ("", "network list", 0),
    ("", "network show Calico", 0),
    ("", "network reset -y", 0),
    ("", "plan --uninstall", 0),
    ("", "selftest", 0),
    ("", "verify", 0),
    ("", "explain NodeLogin", 0),
    ("", "completion bash", 0),
    ("", "options", 0),
    ("", "version", 0),
    ("", "uninstall -y --dry-run", 0),
    ("put *#7=exit-after", "uninstall -y", 137),
    ("", "uninstall -y", 0),
    ("", "uninstall -y --purge", 0),
];

/// What the API server, the release server and the machine answer instead.
const FAILURES: [&str; 12] = [
    "api down",
    "api * /*=401",
    "api * /*=403",
    "api * /*=500",
    "api * /*=html",
    "api * /*=truncated",
    "api POST *=409",
    "release corrupt",
    "release 404",
    "put *#4=fail",
    "save *=disk-full",
    "put file*=disk-full",
];

/// A lab with secrets, and what they are: a name for people, and a text that is in nothing else.
struct Planted {
    lab: Lab,
    secrets: Vec<(&'static str, String)>,
    /// Where they were planted: their owner decides who may read those.
    sources: BTreeSet<PathBuf>,
    /// They are of something that an uninstall restores, so the records have them.
    kept: bool,
}

impl Planted {
    fn new(lab: Lab) -> Self {
        Self { lab, secrets: Vec::new(), sources: BTreeSet::new(), kept: false }
    }

    fn secret(&mut self, name: &'static str, text: impl Into<String>) {
        let text = text.into();
        assert!(text.len() >= 12, "{name} is too short to be unique");
        if !self.secrets.iter().any(|(_, known)| *known == text) {
            self.secrets.push((name, text));
        }
    }

    /// A secret PEM, as it is and as a kubeconfig has it.
    fn pem(&mut self, name: &'static str, pem: &str) {
        let body: Vec<&str> = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        self.secret(name, body[body.len() / 2]);
        let base64 = base64::prelude::BASE64_STANDARD.encode(pem);
        self.secret(name, &base64[base64.len() / 2..][..40]);
    }

    /// A token, which may be told apart from others of the same account by its signature.
    fn token(&mut self, name: &'static str, token: &str) {
        self.secret(name, &token[token.len() - 40..]);
    }

    fn source(&mut self, name: &str, text: impl AsRef<[u8]>) {
        self.lab.write(name, text);
        self.sources.insert(self.lab.path(name));
    }

    /// Runs a command on the sandbox with a fault and looks for every secret in what it prints.
    #[track_caller]
    fn run(&mut self, fault: &str, words: &str, format: &str) -> Output {
        let with_format = format!("{words} -o {format}");
        let output = self.lab.fails_at(fault, &with_format);
        self.node_login();
        self.silent(&format!("{fault}: {with_format}"), &output);
        output
    }

    /// Adds the login that the node has got by now.
    fn node_login(&mut self) {
        let Ok(text) = fs::read_to_string(self.lab.on_node("C/CalicoWindows/calico-kube-config")) else { return };
        let kubeconfig: Value = serde_yaml::from_str(&text).unwrap_or_default();
        if let Some(token) = kubeconfig["users"][0]["user"]["token"].as_str().filter(|token| token.len() > 40) {
            self.token("the node's token", token);
        }
    }

    #[track_caller]
    fn silent(&self, what: &str, output: &Output) {
        for (name, text) in &self.secrets {
            assert!(!output.stdout.contains(text) && !output.stderr.contains(text), "{name}: {what}: {output}");
        }
    }

    /// Looks for the secrets in every file of the lab, and in every object of its cluster. Returns how many files that
    /// only administrators may read have one.
    #[track_caller]
    fn on_disk(&self, when: &str) -> usize {
        let mut closed = 0;
        let node = SandboxNode::open(&self.lab.path("node")).unwrap();
        let mut open = vec![self.lab.path("")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
                // The API server has every secret; its objects are looked at below.
                open.extend(entries.filter(|path| *path != self.lab.path("node/cluster")));
                continue;
            }
            // The program itself is large.
            if self.sources.contains(&path) || path.extension().is_some_and(|ending| ending == "exe") {
                continue;
            }
            let Ok(bytes) = fs::read(&path) else { continue };
            let text = if path.to_string_lossy().ends_with("node.zip") { unpacked(bytes) } else { bytes };
            let text = String::from_utf8_lossy(&text);
            for (name, _) in self.secrets.iter().filter(|(_, secret)| text.contains(secret)) {
                let who = || format!("{when}: {name} is in {}", path.display());
                assert!(self.kept || !is_record(&path), "{}", who());
                closed += 1;
                if path.starts_with(self.lab.path("node/C")) {
                    assert_eq!(trust::readable_by(&node, &path).unwrap(), None, "{}", who());
                } else {
                    let mode = fs::metadata(&path).unwrap().permissions().mode();
                    assert!(path.starts_with(self.lab.path("got")) && mode & 0o077 == 0, "{} ({mode:o})", who());
                }
            }
        }
        let has_cluster = self.lab.path("node/cluster/cluster.json").exists();
        let objects = if has_cluster { self.lab.objects() } else { Vec::new() };
        for (kind, name, object) in objects.into_iter().filter(|(kind, ..)| kind != "secrets") {
            let text = object.to_string();
            let found = self.secrets.iter().find(|(_, secret)| text.contains(secret));
            assert!(found.is_none(), "{when}: {found:?} is in {kind}/{name}: {text}");
        }
        closed
    }
}

/// The contents of all files of a zip.
fn unpacked(zip: Vec<u8>) -> Vec<u8> {
    let mut zip = zip::ZipArchive::new(Cursor::new(zip)).unwrap();
    let mut all = Vec::new();
    for number in 0..zip.len() {
        zip.by_index(number).unwrap().read_to_end(&mut all).unwrap();
    }
    all
}

/// Whether this is a file about what was done, which needs no secret at all.
fn is_record(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let state = "/C/ProgramData/calicoctl-win/";
    match path.split_once(state) {
        Some((_, rest)) => !rest.starts_with("store/"),
        None => path.contains("/.sandbox/") || path.ends_with(".log"),
    }
}

/// The sandbox's cluster, and the administrator's login as an exec plugin with secrets in its arguments, environment
/// and answer; a release with a secret in none of its files.
fn with_plugin() -> Planted {
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    let admin: Value = serde_yaml::from_str(&cluster(&lab).admin_kubeconfig()).unwrap();
    let user = &admin["users"][0]["user"];
    let pem = |field: &str| {
        let bytes = base64::prelude::BASE64_STANDARD.decode(user[field].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let (cert, key) = (pem("client-certificate-data"), pem("client-key-data"));
    lab.add_object("daemonsets.apps", super::schemas::a_wave());
    let mut planted = Planted::new(lab);
    planted.pem("the administrator's key", &key);
    planted.pem("the administrator's certificate", &cert);
    planted.secret("the plugin's argument", "canary-argument");
    planted.secret("the plugin's variable", "canary-variable");
    planted.source(
        "login.json",
        json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": { "clientCertificateData": cert, "clientKeyData": key },
        })
        .to_string(),
    );
    planted.source("plugin.sh", "#!/bin/sh\nexec /bin/cat \"$(/usr/bin/dirname \"$0\")/login.json\"\n");
    fs::set_permissions(planted.lab.path("plugin.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut with = admin.clone();
    with["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh",
        "args": ["--secret", "canary-argument"],
        "env": [{ "name": "CLIENT_SECRET", "value": "canary-variable" }], "interactiveMode": "Never",
    } });
    planted.source("exec.yaml", with.to_string());
    planted.lab.write(
        "c.yaml",
        "spec: {kubernetes: {kubeconfig: exec.yaml}, transport: {retries: 0, timeout: 5s}, \
         maintenance: {drain: {force: true, deleteEmptyDirData: true}}}\n",
    );
    planted.secret("a password in config.ps1", "canary-of-config-ps1");
    planted.source(
        "config.ps1",
        "$env:CALICO_NETWORKING_BACKEND=\"vxlan\"\n$env:ETCD_PASSWORD = 'canary-of-config-ps1'\n\
         $env:HTTPS_PROXY = 'http://me:canary-of-config-ps1@proxy:3128'\n\
         $env:PROXY_PASSWORD = (\"canary-of-config-ps1\").Trim()\n\
         Connect-Vault -Password 'canary-of-config-ps1'\n",
    );
    let release = SyntheticRelease::build(&"v3.32.1".parse().unwrap());
    planted.lab.write("calico-windows-v3.32.1.zip", release);
    for name in ["kubelet.exe", "kube-proxy.exe"] {
        let program = format!("Stand-in for Kubernetes Windows v1.36.2, {name}");
        planted.lab.write(&format!("programs/{name}"), program);
    }
    planted
}

/// The command of these words.
fn command(words: &str, all: &BTreeSet<String>) -> String {
    let is = |command: &&String| words == command.as_str() || words.starts_with(&format!("{command} "));
    let named = all.iter().filter(is).max_by_key(|command| command.len());
    named.unwrap_or_else(|| panic!("{words} is no command")).clone()
}

#[test]
fn every_command_of_the_program_meets_the_canaries_and_works_once() {
    let all = commands();
    let work = LIFE.into_iter().filter(|(fault, _, code)| fault.is_empty() && [0, 4].contains(code));
    assert_eq!(work.map(|(_, words, _)| command(words, &all)).collect::<BTreeSet<_>>(), all);
}

/// The whole life of a node, in every format.
#[test]
fn no_secret_of_a_plugin_or_token_is_in_an_output_a_record_or_an_open_file() {
    std::thread::scope(|scope| {
        for format in FORMATS {
            scope.spawn(move || {
                let mut planted = with_plugin();
                for (fault, words, code) in LIFE {
                    if words.starts_with("repair") {
                        fs::write(planted.lab.on_node("C/CalicoWindows/nodename"), "other").unwrap();
                    }
                    let output = planted.run(fault, words, format);
                    assert_eq!(output.code, code, "{fault}: {words}: {output}");
                    let closed = planted.on_disk(words);
                    assert!(closed > 0 || words != "status" || code != 0, "the node's own login is a secret too");
                }
                assert!(planted.secrets.iter().any(|(name, _)| *name == "the node's token"));
            });
        }
    });
}

#[test]
fn no_secret_is_in_what_a_failure_shows() {
    let all = &commands();
    std::thread::scope(|scope| {
        for (at, failure) in FAILURES.into_iter().enumerate() {
            scope.spawn(move || {
                let mut planted = with_plugin();
                let mut met = BTreeSet::new();
                let each = LIFE.into_iter().filter(|(_, words, _)| met.insert(command(words, all)));
                for (nth, (_, words, _)) in each.enumerate() {
                    // What it ends with is the matter of other stories.
                    let _ended = planted.run(failure, words, FORMATS[(at + nth) % FORMATS.len()]);
                    if words.starts_with("install") {
                        let _there = planted.run("", "install -y -c c.yaml", "json");
                    }
                }
                let _closed = planted.on_disk(failure);
            });
        }
    });
}

/// What a node's own login and files go through.
const NODE: [&str; 12] = [
    "preflight",
    "plan",
    "install -y",
    "status",
    "credentials show",
    "credentials rotate -y",
    "receipt show",
    "reconfigure -y --set services.felixLogSeverity=debug",
    "config show --applied",
    "history",
    "logs",
    "uninstall -y",
];

/// Runs each command on a copy with each kind of output.
#[track_caller]
fn live(planted: &mut Planted, with: &str) {
    for (at, words) in NODE.into_iter().enumerate() {
        // Later runs take the config from the receipt.
        let first = ["preflight", "plan", "install"].iter().any(|verb| words.starts_with(verb));
        let words = if first { format!("{words} {with}") } else { words.to_owned() };
        let output = planted.run("", &words, FORMATS[at % FORMATS.len()]);
        assert_eq!(output.code, 0, "{words}: {output}");
        let _closed = planted.on_disk(&words);
    }
}

#[test]
fn the_nodes_own_logins_and_etcds_files_stay_with_administrators() {
    // The token of a secret.
    let mut planted = Planted::new(Lab::node());
    live(&mut planted, "--set kubernetes.credentials=secret");
    assert!(!planted.secrets.is_empty());

    // A client certificate that an administrator gives.
    let lab = Lab::node();
    let _started = lab.run("cluster check").exits(0);
    let given = cluster(&lab).kubeconfig_of("calico-of-win-a1", Some("system:masters")).unwrap();
    let user: Value = serde_yaml::from_str(&given).unwrap();
    let key = user["users"][0]["user"]["client-key-data"].as_str().unwrap();
    let mut planted = Planted::new(lab);
    planted.pem("the given key", &String::from_utf8(base64::prelude::BASE64_STANDARD.decode(key).unwrap()).unwrap());
    planted.source("given.yaml", &given);
    live(
        &mut planted,
        "--set kubernetes.credentials=kubeconfig --set kubernetes.calicoKubeconfig=given.yaml \
         --ignore-preflight-errors ClusterRights",
    );

    let (_etcd, mut planted, with) = with_etcd();
    live(&mut planted, &with);
}

/// etcd's files, from a secret of the cluster, and the options that name it.
fn with_etcd() -> (Etcd, Planted, String) {
    let etcd = Etcd::start();
    let lab = Lab::node();
    runs_with_etcd(&lab);
    let base64 = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
    let data = json!({ "etcd-key": base64(&etcd.key), "etcd-cert": base64(&etcd.cert), "etcd-ca": base64(&etcd.ca) });
    let name = json!({ "namespace": "calico-system", "name": "calico-etcd-secrets" });
    lab.add_object("secrets", json!({ "apiVersion": "v1", "kind": "Secret", "metadata": name, "data": data }));
    let mut planted = Planted::new(lab);
    planted.pem("etcd's key", &etcd.key);
    let with = format!(
        "--set calicoNetwork.backend=vxlan --set calicoNetwork.vxlan.vxlanVNI=4096 --set datastore.type=etcdv3 \
         --set datastore.etcd.endpoints={} --set datastore.etcd.tlsSecretRef.name=calico-etcd-secrets",
        etcd.url
    );
    (etcd, planted, with)
}

/// The scripts' node: the user's own services may have secrets in their environment.
fn with_nssm() -> Planted {
    let mut planted = Planted::new(scripts_node());
    planted.lab.edit_yaml(|yaml| yaml.replace("PROXY_PASSWORD=s3cret", "PROXY_PASSWORD=canary-of-nssm"));
    // The machine itself.
    planted.sources.extend(["node/node.yaml", "node/.sandbox/node.yaml"].map(|file| planted.lab.path(file)));
    planted.secret("the environment of an NSSM service", "canary-of-nssm");
    planted.kept = true;
    planted
}

#[test]
fn the_environment_of_the_scripts_services_stays_with_administrators() {
    let mut planted = with_nssm();
    for format in FORMATS {
        let _live = planted.run("", "config import --live", format);
    }
    live(&mut planted, "");
}

/// The files of a diagnosis: of the node as it is, of a run that was killed, with the states before and wanted in its
/// journal, and of the complete one.
fn diagnosed(planted: &mut Planted, fault: &str, with: &str, item: &str) {
    let collect = |planted: &mut Planted, zip: &str| {
        let output = planted.run("", &format!("diagnose --out {zip}"), "text");
        assert_eq!(output.code, 0, "{output}");
        let _closed = planted.on_disk(zip);
        zip::ZipArchive::new(fs::File::open(planted.lab.path(zip)).unwrap()).unwrap()
    };
    let _before = collect(planted, "before-node.zip");
    let killed = planted.run(fault, &format!("install -y {with}"), "json");
    assert_eq!(killed.code, 137, "{killed}");
    let mut zip = collect(planted, "killed-node.zip");
    let mut names = zip.file_names().map(|name| name.unwrap().into_owned());
    let name = names.find(|name| name.ends_with("/journal.json")).unwrap();
    drop(names);
    let mut journal = String::new();
    zip.by_name(&name).unwrap().read_to_string(&mut journal).unwrap();
    assert!(journal.contains(item), "{item}: {journal}");
    assert_eq!(planted.run("", "resume -y", "json").code, 0);
    let _after = collect(planted, "after-node.zip");
}

#[test]
fn no_secret_of_the_scripts_or_etcd_is_in_a_diagnosis_also_of_a_killed_run() {
    diagnosed(&mut with_nssm(), "put running CalicoFelix#2=exit-before", "", "service CalicoFelix");
    let (_etcd, mut planted, with) = with_etcd();
    diagnosed(&mut planted, "put running CalicoFelix=exit-before", &with, "etcd");
}

/// A kubeconfig for which the sandbox's cluster is far away, so that it is reached as its user says.
fn elsewhere(user: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'{more}}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {user}}}]\n"
    )
}

#[test]
fn no_secret_of_a_kubeconfig_is_shown_when_it_does_not_work() {
    const SECRET: &str = "canary-of-a-kubeconfig";
    let url = "https://me:canary-of-a-kubeconfig@127.0.0.1:1";
    let sandbox = |user: &str| elsewhere(user, "").replace("https://127.0.0.1:1", &EmbeddedCluster::stable_url());
    for kubeconfig in [
        elsewhere(&format!("{{token: {SECRET}}}"), ""),
        elsewhere("{tokenFile: token}", ""),
        elsewhere(&format!("{{username: me, password: {SECRET}}}"), ""),
        elsewhere(&format!("{{client-certificate-data: {SECRET}, client-key-data: {SECRET}}}"), ""),
        elsewhere(&format!("{{token: [{SECRET}]}}"), ""),
        elsewhere(&format!("{{token: {SECRET}"), ""),
        elsewhere(&format!("{{token: \"{SECRET}\\n\"}}"), ""),
        elsewhere(&format!("{{auth-provider: {{name: oidc, config: {{refresh-token: {SECRET}}}}}}}"), ""),
        elsewhere("{}", &format!(", proxy-url: 'http://me:{SECRET}@127.0.0.1:1'")),
        elsewhere("{}", &format!(", proxy-url: 'socks5://me:{SECRET}@127.0.0.1:1'")),
        elsewhere("{}", &format!(", proxy-url: 'http://me:{SECRET}@ 127.0.0.1:1'")),
        elsewhere("{}", "").replace("https://127.0.0.1:1", url),
        // Reached, and refused by the API server.
        sandbox(&format!("{{token: {SECRET}}}")),
        sandbox("{tokenFile: token}"),
        sandbox(&format!("{{username: me, password: {SECRET}}}")),
    ] {
        let mut planted = Planted::new(Lab::node());
        planted.secret("the kubeconfig's secret", SECRET);
        planted.source("token", SECRET);
        planted.source("bad.yaml", &kubeconfig);
        for (at, words) in ["preflight", "cluster check", "plan", "install -y", "credentials fetch --out got", "status"]
            .into_iter()
            .enumerate()
        {
            let words = format!("{words} --kubeconfig bad.yaml --set transport.retries=0 -vv");
            let _refused = planted.run("", &words, FORMATS[at % FORMATS.len()]);
        }
        let _refused = planted.run(
            "",
            "install -y --set kubernetes.credentials=kubeconfig --set kubernetes.calicoKubeconfig=bad.yaml",
            "json",
        );
        let _closed = planted.on_disk(&kubeconfig);
    }
}

#[test]
fn no_secret_of_a_value_of_the_config_or_a_variable_is_shown() {
    const SECRET: &str = "canary-of-a-value";
    let login = format!("http://me:{SECRET}@127.0.0.1:1");
    let mut planted = Planted::new(Lab::node());
    planted.secret("the value", SECRET);
    for set in [
        format!("--set transport.proxy={login}"),
        format!("--proxy {login}"),
        format!("--set calico.source.urlTemplate={login}/{{version}}.zip"),
        format!("--release {login}/calico-windows-v3.32.1.zip"),
        format!("--set datastore.type=etcdv3 --set datastore.etcd.endpoints={login}"),
        format!("--set services.extraEnv.ETCD_PASSWORD={SECRET}"),
        format!("--set services.extraEnv.HTTPS_PROXY={login}"),
        format!("--set services.extraEnv={{\"DB_TOKEN\":\"{SECRET}\"}}"),
    ] {
        for (at, words) in
            ["plan", "install -y", "release download", "reconfigure -y", "apply -y"].into_iter().enumerate()
        {
            let words = format!("{words} {set}");
            let refused = planted.run("", &words, FORMATS[at % FORMATS.len()]);
            assert_ne!(refused.code, 0, "{words}: {refused}");
        }
        let words = format!("config show {set}");
        let _shown = planted.run("", &words, "json");
        let _closed = planted.on_disk(&set);
    }
    // Of a process's variables, which nothing records.
    for variable in ["HTTPS_PROXY", "HTTP_PROXY", "CALICO_WIN_PROXY"] {
        for (at, words) in ["preflight", "release download", "install -y", "cluster check"].into_iter().enumerate() {
            let words = format!(
                "{words} --set calico.source.urlTemplate=http://10.255.255.1/{{version}}.zip --set transport.retries=0 \
                 --sandbox node -v -o {}",
                FORMATS[at % FORMATS.len()]
            );
            let mut command = planted.lab.command(&words);
            command.env(variable, &login);
            let output = Output::of(&words, command);
            planted.silent(&format!("{variable}: {words}"), &output);
        }
        let _closed = planted.on_disk(variable);
    }
}
