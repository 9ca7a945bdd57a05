//! `cargo bench --bench policy`: the CPU time and peak memory of `policy lint -o json`, from the start of the process to
//! the report: 10,000 policies and 100,000 pods from an API server over TLS, then the same policies from a file; once
//! with few findings, and once with two in each of 8,000 policies. The API server is another process, which makes up
//! each page; a pod has 4 kB, and a namespace 50 labels. It fails above the goals. CPU time and not wall time counts, so
//! that other load on the machine does not decide. `cargo test --bench policy -- --program FILE` measures an executable,
//! and needs no optimised build besides.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its result")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

mod usage;
use usage::{cpu, peak};

const PODS: usize = 100_000;
const NAMESPACES: usize = 1_000;
const LABELS_OF_NAMESPACE: usize = 50;
const WINDOWS_NODES: usize = 20;
const NODES: usize = 1_000;
const KUBERNETES_POLICIES: usize = 4_000;
const CALICO_POLICIES: usize = 4_000;
const GLOBAL_POLICIES: usize = 2_000;
const PAGE: usize = 500;

/// The goals of `docs/performance.md`.
const CPU_S: f64 = 2.0;
const PEAK_MIB: f64 = 64.0;

/// One policy of this many has two rules that Windows skips.
static SKIPPED_EVERY: OnceLock<usize> = OnceLock::new();

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["--serve", folder, every] => {
            SKIPPED_EVERY.get_or_init(|| every.parse().unwrap_or(1));
            serve(Path::new(folder))
        }
        ["--policies", file, every] => {
            SKIPPED_EVERY.get_or_init(|| every.parse().unwrap_or(1));
            write_policies(Path::new(file))
        }
        ["--client", rest @ ..] => {
            client(rest);
            Ok(())
        }
        rest => {
            let program = rest.iter().skip_while(|word| **word != "--program").nth(1).copied();
            measure(program, "20").and_then(|()| measure(program, "1"))
        }
    }
}

fn measure(program: Option<&str>, skipped_every: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("calicoctl-win-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut server = Command::new(std::env::current_exe()?)
        .args(["--serve".as_ref(), folder.as_os_str(), skipped_every.as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the API server")?;
    let mut kubeconfig = String::new();
    BufReader::new(server.stdout.take().context("read the server's output")?).read_line(&mut kubeconfig)?;
    let file = folder.join("policies.yaml");
    Command::new(std::env::current_exe()?)
        .args(["--policies".as_ref(), file.as_os_str(), skipped_every.as_ref()])
        .status()
        .context("write the policies")?;

    println!(
        "{} policies, rules skipped in one of {skipped_every}, {PODS} pods: goal {CPU_S} s of CPU, {PEAK_MIB} MiB",
        KUBERNETES_POLICIES + CALICO_POLICIES + GLOBAL_POLICIES
    );
    let done = holds("from the API ", program, &["--kubeconfig", kubeconfig.trim()])
        .and_then(|()| holds("from a file  ", program, &["-f", &file.to_string_lossy()]));
    drop(server.stdin.take());
    server.wait().context("wait for the server to end")?;
    std::fs::remove_dir_all(&folder).context("clear the working folder")?;
    done
}

/// Whether it reaches the goals in one of three runs.
fn holds(what: &str, program: Option<&str>, words: &[&str]) -> Result<()> {
    for _ in 0..3 {
        if run(what, program, words)? {
            return Ok(());
        }
    }
    bail!("{} misses the goal three times", what.trim())
}

/// Runs the measured process. Returns whether it reaches the goals. `program`: an executable instead of the one of this
/// bench.
fn run(what: &str, program: Option<&str>, words: &[&str]) -> Result<bool> {
    let begun = Instant::now();
    let ended = match program {
        None => Command::new(std::env::current_exe()?).arg("--client").args(words).output()?,
        Some(program) => {
            let lint = ["policy", "lint", "-o", "json"];
            Command::new("python3").args(["-c", OF_CHILD, program]).args(lint).args(words).output()?
        }
    };
    let wall = begun.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&ended.stderr);
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).with_context(|| said.to_string())?;
    let used: Vec<f64> = said.lines().last().unwrap_or_default().split(' ').flat_map(str::parse).collect();
    let [cpu, peak, reference @ ..] = used.as_slice() else {
        println!("{what} wall {wall:.2} s {}; CPU and memory can only be read on Linux", report["summary"]);
        return Ok(true);
    };
    let slower = reference.first().map_or(1.0, |took| (took / REFERENCE_S).max(1.0));
    println!(
        "{what} wall {wall:.2} s, CPU {cpu:.2} s, {:.2} s of a quiet machine, peak {peak:.1} MiB {}",
        cpu / slower,
        report["summary"]
    );
    Ok(cpu / slower <= CPU_S && *peak <= PEAK_MIB)
}

/// Runs a program, and prints its CPU time, its peak memory, and the CPU time of a reference work around it.
const OF_CHILD: &str = r#"import json, resource, subprocess, sys, time
row = {"metadata": {"labels": {"a": "b"}, "fields": {f"k{n}": {} for n in range(40)}}, "spec": {"x": ["y" * 50] * 10}}
text = json.dumps([row] * 500)
def work():
    for _ in range(100):
        json.loads(text)
work()
subprocess.run(sys.argv[1:])
work()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, time.process_time(), file=sys.stderr)"#;

/// How long the reference work takes on a quiet machine. Where caches and cores are shared, the same work needs more CPU
/// time, the measured one too.
const REFERENCE_S: f64 = 0.5;

/// The measured process: what the executable does, then what that took.
fn client(words: &[&str]) {
    let words = ["calicoctl-win", "policy", "lint", "-o", "json"].iter().chain(words);
    let _findings = calicoctl_win::cli::main(words.map(Into::into));
    if let Some((cpu, peak)) = cpu().zip(peak()) {
        eprintln!("{} {}", cpu.as_secs_f64(), peak as f64 / f64::from(1 << 20));
    }
}

/// The server's process: prints the path of its kubeconfig once it listens, and ends with its stdin.
fn serve(folder: &Path) -> Result<()> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let pem = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)?;
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let file = folder.join("admin.yaml");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{name: a, cluster: {{server: 'https://{}', certificate-authority-data: {}}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{token: a}}}}]\n",
        listener.local_addr()?,
        STANDARD.encode(pem)
    );
    std::fs::write(&file, text)?;
    println!("{}", file.display());
    std::io::stdout().flush()?;
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            // A client that closes the connection is not an error.
            std::thread::spawn(move || connection(socket, config).ok());
        }
    });
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn connection(socket: TcpStream, config: Arc<ServerConfig>) -> Result<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config)?, socket));
    loop {
        let mut request = String::new();
        stream.read_line(&mut request)?;
        loop {
            let mut header = String::new();
            if stream.read_line(&mut header)? <= 2 {
                break;
            }
        }
        let target = request.split(' ').nth(1).context("read the request")?;
        let (status, kind, body) = match answer(target) {
            Some(body) => ("200 OK", "application/json", body),
            None => ("404 Not Found", "text/plain", "404 page not found\n".to_owned()),
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all(head.as_bytes())?;
        stream.get_mut().write_all(body.as_bytes())?;
        stream.get_mut().flush()?;
    }
}

fn answer(target: &str) -> Option<String> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let start = query.split('&').find_map(|part| part.strip_prefix("continue=")).map_or(0, |n| n.parse().unwrap_or(0));
    let page = |all: usize, item: fn(&mut String, usize)| Some(page(start, all, item));
    match path {
        "/apis/crd.projectcalico.org" => {
            Some(r#"{"versions":[{"groupVersion":"crd.projectcalico.org/v1","version":"v1"}]}"#.to_owned())
        }
        "/apis/networking.k8s.io/v1/networkpolicies" => page(KUBERNETES_POLICIES, kubernetes_policy),
        "/apis/crd.projectcalico.org/v1/networkpolicies" => page(CALICO_POLICIES, calico_policy),
        "/apis/crd.projectcalico.org/v1/globalnetworkpolicies" => page(GLOBAL_POLICIES, global_policy),
        "/api/v1/nodes" => {
            page(WINDOWS_NODES, |to, n| put(to, format_args!(r#"{{"metadata":{{"name":"node-{n}"}}}}"#)))
        }
        "/api/v1/namespaces" => page(NAMESPACES, namespace),
        "/api/v1/pods" => page(PODS, pod),
        _ => None,
    }
}

fn put(to: &mut String, text: std::fmt::Arguments<'_>) {
    to.write_fmt(text).expect("a String takes everything");
}

fn page(start: usize, all: usize, item: fn(&mut String, usize)) -> String {
    let end = (start + PAGE).min(all);
    let rest = if end < all { end.to_string() } else { String::new() };
    let mut text = format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"1","continue":"{rest}"}},"items":["#);
    for n in start..end {
        text.push_str(if n > start { "," } else { "" });
        item(&mut text, n);
    }
    text + "]}"
}

fn namespace(to: &mut String, n: usize) {
    put(to, format_args!(r#"{{"metadata":{{"name":"ns-{n}","labels":{{"team":"team-{}""#, n % 97));
    for label in 1..LABELS_OF_NAMESPACE {
        put(to, format_args!(r#","label-{label}.example.com/of-a-namespace":"value-{}""#, n % (label + 1)));
    }
    to.push_str("}}}");
}

/// Of the usual size, with labels that many pods have and one that is its own.
fn pod(to: &mut String, n: usize) {
    let (namespace, app) = (n % NAMESPACES, n / NAMESPACES % 50);
    put(
        to,
        format_args!(
            r#"{{"metadata":{{"name":"app-{app}-{n}","namespace":"ns-{namespace}","uid":"4f0b8f6a-{n}","labels":{{"app":"app-{app}","tier":"tier-{}","version":"v{}","pod-template-hash":"{}","statefulset.kubernetes.io/pod-name":"app-{app}-{n}","app.kubernetes.io/name":"app","app.kubernetes.io/instance":"one","helm.sh/chart":"chart-1.2.3"}},"managedFields":[{{"manager":"kubelet","operation":"Update","fieldsV1":{{"#,
            app % 5,
            app % 3,
            n % 1000,
        ),
    );
    for field in 0..24 {
        put(
            to,
            format_args!(r#""f:field-{field}":{{".":{{}},"k:{{\"type\":\"Ready-{field}\"}}":{{"f:status":{{}}}}}},"#),
        );
    }
    put(to, format_args!(r#""f:last":{{}}}}}}]}},"spec":{{"nodeName":"node-{}","containers":["#, n % NODES));
    for container in 0..3 {
        let comma = if container > 0 { "," } else { "" };
        put(
            to,
            format_args!(
                r#"{comma}{{"name":"c{container}","image":"registry.example.com/team/app:v1.2.3@sha256:97866440e04a77454533fea5293789d85a80bef0f4d06a6b242a978762428bf","env":[{{"name":"A","value":"some text of the usual length"}},{{"name":"B","value":"other text of the usual length"}}],"resources":{{"limits":{{"cpu":"1","memory":"1Gi"}}}},"volumeMounts":[{{"name":"kube-api-access-x7k2p","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}]}}"#
            ),
        );
    }
    put(
        to,
        format_args!(
            r#"],"serviceAccountName":"default"}},"status":{{"phase":"Running","podIP":"10.{}.{}.{}","conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-11-21T08:05:12Z"}}]}}}}"#,
            n >> 16,
            n >> 8 & 255,
            n & 255,
        ),
    );
}

fn is_skipped(n: usize) -> bool {
    n.is_multiple_of(*SKIPPED_EVERY.get().unwrap_or(&1))
}

fn kubernetes_policy(to: &mut String, n: usize) {
    let (port, except) = if is_skipped(n) { (r#""web""#, r#","except":["10.1.0.0/16"]"#) } else { ("8080", "") };
    put(
        to,
        format_args!(
            r#"{{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{{"name":"policy-{n}","namespace":"ns-{}"}},"spec":{{"podSelector":{{"matchLabels":{{"app":"app-{}"}}}},"policyTypes":["Ingress","Egress"],"ingress":[{{"from":[{{"podSelector":{{"matchLabels":{{"app":"app-{}"}}}}}},{{"namespaceSelector":{{"matchLabels":{{"team":"team-{}"}}}},"podSelector":{{"matchLabels":{{"tier":"tier-1"}}}}}}],"ports":[{{"port":{port},"protocol":"TCP"}}]}}],"egress":[{{"to":[{{"ipBlock":{{"cidr":"10.0.0.0/8"{except}}}}}]}}]}}}}"#,
            n % NAMESPACES,
            n % 50,
            n % 49,
            n % 97,
        ),
    );
}

fn calico_policy(to: &mut String, n: usize) {
    let (not, type_of) = if is_skipped(n) {
        (r#","notNets":["10.1.0.0/16"]"#, r#","protocol":"ICMP","icmp":{"type":8}"#)
    } else {
        ("", "")
    };
    put(
        to,
        format_args!(
            r#"{{"apiVersion":"crd.projectcalico.org/v1","kind":"NetworkPolicy","metadata":{{"name":"default.policy-{n}","namespace":"ns-{}"}},"spec":{{"selector":"app in {{'app-{}', 'app-{}'}} && has(tier)","types":["Ingress","Egress"],"ingress":[{{"action":"Allow","protocol":"TCP","source":{{"selector":"app == 'app-{}' || version != 'v1'"}},"destination":{{"ports":[80,443]}}}},{{"action":"Deny","source":{{"nets":["10.0.0.0/8"]{not}}}}}],"egress":[{{"action":"Allow"{type_of}}}]}}}}"#,
            n % NAMESPACES,
            n % 50,
            n % 49,
            n % 47,
        ),
    );
}

fn global_policy(to: &mut String, n: usize) {
    let label = 1 + n % (LABELS_OF_NAMESPACE - 1);
    put(
        to,
        format_args!(
            r#"{{"apiVersion":"crd.projectcalico.org/v1","kind":"GlobalNetworkPolicy","metadata":{{"name":"policy-{n}"}},"spec":{{"selector":"app == 'app-{}'","namespaceSelector":"label-{label}.example.com/of-a-namespace == 'value-{}'","types":["Ingress"],"ingress":[{{"action":"Allow","source":{{"selector":"tier == 'tier-{}' && !(version in {{'v0'}})","namespaceSelector":"team in {{'team-{}', 'team-{}'}}"}}}}]}}}}"#,
            n % 50,
            n % (label + 1),
            n % 5,
            n % 97,
            n % 89,
        ),
    );
}

fn write_policies(file: &Path) -> Result<()> {
    let mut text = String::new();
    let mut write = |all: usize, policy: fn(&mut String, usize)| -> Result<()> {
        for n in 0..all {
            let mut json = String::new();
            policy(&mut json, n);
            text.push_str("---\n");
            block(&serde_json::from_str(&json)?, 0, &mut text);
        }
        Ok(())
    };
    write(KUBERNETES_POLICIES, kubernetes_policy)?;
    write(CALICO_POLICIES, calico_policy)?;
    write(GLOBAL_POLICIES, global_policy)?;
    std::fs::write(file, text)?;
    Ok(())
}

/// As kubectl writes YAML: a line for each field.
fn block(value: &serde_json::Value, depth: usize, to: &mut String) {
    let indent = "  ".repeat(depth);
    let child = |lead: String, value: &serde_json::Value, to: &mut String| match value {
        serde_json::Value::Object(_) | serde_json::Value::Array(_) => {
            put(to, format_args!("{indent}{lead}\n"));
            block(value, depth + 1, to);
        }
        plain => put(to, format_args!("{indent}{lead} {plain}\n")),
    };
    match value {
        serde_json::Value::Object(fields) => fields.iter().for_each(|(key, value)| child(format!("{key}:"), value, to)),
        serde_json::Value::Array(items) => items.iter().for_each(|value| child("-".to_owned(), value, to)),
        plain => put(to, format_args!("{indent}{plain}\n")),
    }
}
