//! kubelet, containerd and Calico's CNI plugin on a sandbox node: pods get a container and an endpoint while a CNI
//! configuration is published, and lose both when they end. Like the real ones, they never check the network of a
//! running pod again, and do not notice when it is lost. Containers of agnhost connect where they are told to, and end
//! with the result; so do those of pods that are bound to a Linux node.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::agnhost::Program;
use super::cluster::joining::Admission;
use super::cluster::{EmbeddedCluster, Ended, text};
use super::traffic::{Source, Traffic};
use crate::agent::state::{self, AgentState, LastExit, Phase, Waiting};
use crate::agent::{self, Role};
use crate::calico::agent_config::Command;
use crate::calico::kubeconfig;
use crate::item::{Id, State};
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::model::{Endpoint, Model, Name, NodeNetwork};
use crate::node::{Node, files};
use crate::values::{Sha256, WinPath};
use crate::version::KubernetesVersion;
use crate::yaml;

/// The network that the CNI plugin attaches pods to.
const NETWORK: &str = "Calico";

/// Does what they would have done since the last call.
///
/// # Errors
/// When the cluster's state cannot be read or written.
pub fn play(
    cluster: &EmbeddedCluster,
    node: &str,
    model: &mut Model,
    root: &Path,
    running: &mut BTreeSet<String>,
    published: bool,
) -> Result<()> {
    play_linux(cluster, node, model, root)?;
    let service = |name: &str| model.services.get(&Name::new(name)).map(|service| service.pid.is_some());
    // A container runtime without a service of that name is taken to run.
    let runs = service("kubelet") == Some(true) && service("containerd") != Some(false);
    if !runs {
        return Ok(());
    }
    let pods = cluster.pods_on(node)?;
    let wanted: BTreeSet<String> = pods.iter().map(|pod| sandbox_of(model, pod, "")).collect();
    // Containers end with their pod, and with Windows.
    let ours = |id: &&String| id.len() == 64;
    for ended in running.difference(&wanted).filter(ours).cloned().collect::<Vec<_>>() {
        running.remove(&ended);
        // Without a CNI configuration containerd cannot call the plugin ("failed to destroy network for sandbox: cni
        // plugin not initialized", containerd#8774), and HNS keeps the endpoint.
        if published {
            for network in model.networks.values_mut() {
                network.endpoints.retain(|_, endpoint| endpoint.container.as_ref() != Some(&ended));
            }
        }
    }
    if !published || !model.networks.contains_key(&Name::new(NETWORK)) {
        return Ok(());
    }
    cluster.report_ready(node)?;
    for pod in pods {
        let sandbox = sandbox_of(model, &pod, "");
        if running.contains(&sandbox) || pod["metadata"].get("deletionTimestamp").is_some() {
            continue;
        }
        // The first try of a DaemonSet's pod fails, and its endpoint outlives its sandbox
        // (microsoft/Windows-Containers#631).
        let missing = images(&pod).find(|image| model.missing_images.contains(*image));
        if let Some(image) = missing {
            let why = format!("failed to pull and unpack image \"{image}\": pull access denied");
            cluster.pod_waits(&pod, "ErrImagePull", &why)?;
            continue;
        }
        let daemon = text(&pod, "/metadata/ownerReferences/0/kind") == Some("DaemonSet");
        let first = daemon.then(|| sandbox_of(model, &pod, "first try"));
        let Some(network) = model.networks.get_mut(&Name::new(NETWORK)) else { continue };
        let Some(ip) = attach(network, &sandbox) else { continue };
        if let Some(first) = first {
            attach(network, &first);
        }
        running.insert(sandbox);
        cluster.pod_runs(&pod, ip)?;
    }
    run_to_end(cluster, node, model, root, cluster.pods_on(node)?)
}

fn images(pod: &Value) -> impl Iterator<Item = &str> {
    pod["spec"]["containers"].as_array().into_iter().flatten().filter_map(|one| one["image"].as_str())
}

/// Whether a container of a pod is agnhost's.
fn is_agnhost(pod: &Value) -> bool {
    let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.any(|container| Program::of(container) != Program::Unknown)
}

/// Ends the running pods whose containers only connect.
fn run_to_end(cluster: &EmbeddedCluster, node: &str, model: &Model, root: &Path, pods: Vec<Value>) -> Result<()> {
    let runs = |pod: &Value| text(pod, "/status/phase") == Some("Running") && is_agnhost(pod);
    let pods: Vec<Value> = pods.into_iter().filter(runs).collect();
    if pods.is_empty() {
        return Ok(());
    }
    let traffic = Traffic::read(cluster, node, model, root)?;
    for pod in pods {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let ended = containers.map(|container| {
            let Program::Connects(to) = Program::of(container) else { return None };
            let name = text(container, "/name").unwrap_or_default().to_owned();
            Some(Ended { name, failure: traffic.connect(Source::Pod(&pod), &to).err() })
        });
        if let Some(ended) = ended.collect::<Option<Vec<Ended>>>() {
            cluster.pod_ended(&pod, &ended)?;
        }
    }
    Ok(())
}

/// The kubelets of the Linux nodes: agnhost's pods get an address of the node's block, and run.
fn play_linux(cluster: &EmbeddedCluster, node: &str, model: &Model, root: &Path) -> Result<()> {
    let mut pods = cluster.pods_on_linux()?;
    pods.retain(is_agnhost);
    if pods.is_empty() {
        return Ok(());
    }
    let mut taken: BTreeSet<Ipv4Addr> =
        pods.iter().filter_map(|pod| text(pod, "/status/podIP")?.parse().ok()).collect();
    for pod in pods.iter().filter(|pod| text(pod, "/status/podIP").is_none()) {
        let Some(ip) = (10..62).map(|last| Ipv4Addr::new(192, 168, 10, last)).find(|ip| !taken.contains(ip)) else {
            break;
        };
        taken.insert(ip);
        cluster.pod_runs(pod, ip)?;
    }
    run_to_end(cluster, node, model, root, cluster.pods_on_linux()?)
}

/// The id of a pod's sandbox: another one after each boot.
fn sandbox_of(model: &Model, pod: &Value, of: &str) -> String {
    let uid = text(pod, "/metadata/uid").unwrap_or_default();
    Sha256::of(format!("{} {uid} {of}", model.boot_id).as_bytes()).to_string()
}

/// CNI ADD: the next address of the node's block, and an endpoint with it, named like those of Calico's plugin.
fn attach(network: &mut NodeNetwork, sandbox: &str) -> Option<Ipv4Addr> {
    let subnet = network.subnet?;
    let taken: BTreeSet<Ipv4Addr> = network.endpoints.values().map(|endpoint| endpoint.ip).collect();
    // The addresses of the network, the gateway and `Calico_ep`, and the last one, are never a pod's.
    let ip = subnet.hosts().skip(2).find(|ip| !taken.contains(ip))?;
    let [_, b, c, d] = ip.octets();
    let mac = format!("0E-2A-64-{b:02X}-{c:02X}-{d:02X}");
    let container = Some(sandbox.to_owned());
    let endpoint = Endpoint::new(ip, mac, container);
    network.endpoints.insert(Name::new(format!("{sandbox}_{NETWORK}")), endpoint);
    Some(ip)
}

/// Lets a kubelet that this program hosts do what it would have done by now: wait for the network, join, and create its
/// Node. Its agent's state says how far it is. Nothing, if there is no such kubelet or it is done.
///
/// # Errors
/// When the node or the cluster's state cannot be read or written.
pub fn join<'a>(cluster: &dyn Fn() -> Result<&'a EmbeddedCluster>, root: &Path) -> Result<()> {
    let mut node = SandboxNode::open(root)?;
    let role = Role::Kubelet;
    let Some(process) = node.process(role.service())? else { return Ok(()) };
    let ours = match node.get(&Id::Service(role.service().into()))? {
        Some(State::Service(service)) => Role::of_command_line(&service.image_path) == Some(role),
        _ => false,
    };
    let said = state::read(&node, role).filter(|said| said.pid == process.pid);
    // A new process may have the id of the last one, whose child has ended with it.
    let runs = !node.processes(agent::KUBELET)?.is_empty();
    let done = |said: &AgentState| said.phase == Phase::Running && said.waiting_for.is_none();
    if !ours || runs && said.as_ref().is_some_and(done) {
        return Ok(());
    }
    let mut said = AgentState::new(role, process.pid, said.map_or_else(|| node.now(), |said| said.since));
    let now = node.now();
    let waits = |what: &str| Some(Waiting { what: what.to_owned(), since: now, limit_s: None });
    let config = agent::read_config(&node)?;
    let command = config.command(role).context("find kubelet's command")?;
    if !agent::network_is_up(&node)? {
        said.waiting_for = waits("CalicoNode to bring up the network");
        return state::save(&node, &said);
    }
    said.phase = Phase::Running;
    let started = start(cluster, &node, command, process.pid)?;
    if !matches!(started, Started::Exits(_)) && node.processes(command.program.name())?.is_empty() {
        node.spawn(role.service(), &command.program)?;
    }
    match started {
        Started::Registered => {
            said.child = Some(crate::node::Process { pid: process.pid + 1, since: Some(node.now()) });
        }
        Started::Waits(what) => said.waiting_for = waits(&what),
        Started::Exits(why) => {
            let line = format!("{} {why}\n", node.now());
            let folder = node.disk(&config.log_dir);
            fs::create_dir_all(&folder).context("create the log folder")?;
            files::append(&folder.join("kubelet.err.log"), line.as_bytes()).context("write kubelet.err.log")?;
            (said.phase, said.restarts, said.crash_loop) = (Phase::Restarting, 3, true);
            said.last_exit = Some(LastExit { code: Some(1), at: node.now() });
        }
    }
    state::save(&node, &said)
}

/// How far a kubelet came.
enum Started {
    Registered,
    Waits(String),
    Exits(String),
}

/// kubelet's start, with its flags and files like the real one.
fn start<'a>(
    cluster: &dyn Fn() -> Result<&'a EmbeddedCluster>,
    node: &SandboxNode,
    command: &Command,
    process: u32,
) -> Result<Started> {
    let flag = |name: &str| command.args.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
    let file = |name: &str| flag(name).and_then(|path| path.parse::<WinPath>().ok());
    let read = |path: &WinPath| fs::read_to_string(node.disk(path));
    let name = flag("--hostname-override").unwrap_or_default().to_owned();
    let Some(config) = file("--config") else { return Ok(Started::Exits("no configuration".into())) };
    let document = read(&config).map_err(|error| error.to_string());
    let document = document.and_then(|text| yaml::read::<Value>(&text).map_err(|wrong| wrong.problem));
    match document {
        Ok(document) if document["kind"] == "KubeletConfiguration" => {}
        Ok(_) => return Ok(Started::Exits(format!("failed to load kubelet config file {config}: no such kind"))),
        Err(why) => return Ok(Started::Exits(format!("failed to load kubelet config file {config}: {why}"))),
    }
    let (Some(own), Some(bootstrap)) = (file("--kubeconfig"), file("--bootstrap-kubeconfig")) else {
        return Ok(Started::Exits("no kubeconfig".into()));
    };
    let is_config = |text: String| yaml::read::<Value>(&text).is_ok_and(|file| file["kind"] == "Config");
    if !read(&own).is_ok_and(is_config) {
        let Ok(text) = read(&bootstrap) else {
            return Ok(Started::Exits(format!("unable to load bootstrap kubeconfig: stat {bootstrap}")));
        };
        let login = kubeconfig::parse(&text)?;
        if login.server != EmbeddedCluster::stable_url() {
            return Ok(Started::Waits("the sandbox's own cluster: its kubelet joins no other".into()));
        }
        let token = login.token().map(|token| token.reveal().to_owned()).unwrap_or_default();
        let current = flag("--cert-dir").map(|folder| format!("{folder}\\kubelet-client-current.pem"));
        let current = current.and_then(|path| path.parse::<WinPath>().ok());
        // It may still have its certificate, and only the file that names it is lost.
        let has_certificate = current.as_ref().is_some_and(|path| node.disk(path).is_file());
        let admission = if has_certificate {
            let user = json!({ "name": "default-auth", "user": { "client-certificate": current } });
            Admission::Issued(json!({ "apiVersion": "v1", "kind": "Config", "users": [user] }).to_string())
        } else {
            cluster()?.admit(&token, &name, process)?
        };
        match admission {
            Admission::Issued(kubeconfig) => {
                fs::write(node.disk(&own), kubeconfig).with_context(|| format!("write {own}"))?;
            }
            Admission::Pending(request) => {
                return Ok(Started::Waits(format!("the approval of its certificate request {request}")));
            }
            Admission::Denied(request) => {
                return Ok(Started::Exits(format!("certificate signing request {request} is denied")));
            }
            Admission::Unauthorized => {
                return Ok(Started::Exits("cannot create certificate signing request: Unauthorized".into()));
            }
            Admission::Forbidden => {
                return Ok(Started::Exits("cannot create certificate signing request: forbidden".into()));
            }
        }
    }
    let address = flag("--node-ip").and_then(|ip| ip.parse().ok()).unwrap_or(Ipv4Addr::UNSPECIFIED);
    let said = node.ask(&node.disk(&command.program), &["--version"])?.unwrap_or_default();
    let version = said.parse::<KubernetesVersion>().map(|version| version.to_string()).unwrap_or_default();
    let os = node.model()?.os;
    cluster()?.register(&name, address, [&version, &format!("10.0.{}.{}", os.build, os.ubr)])?;
    Ok(Started::Registered)
}
