//! The command line's arguments. Doc comments are the help text. The options of changes are in [`crate::run::options`].

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::components::{Component, LogOf};
use crate::config::types::Wait;
use crate::fleet::{self, MaxUnavailable};
use crate::run::options::{
    AdoptedFlag, Apply, Confirm, Global, Install, MigrateFromFlannel, NetworkReset, Node, Reconfigure, Repair, Resume,
    Rollback, Source, SourceOrBundle, Uninstall, Upgrade,
};
use crate::selftest::child;
use crate::verify::AGNHOST;
use crate::version::ReleaseLine;

/// Installs, changes and removes Calico on a Windows node of a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "calicoctl-win", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check this machine, the cluster and the release; changes nothing
    #[command(alias = "doctor")]
    Preflight(Preflight),
    /// Show what install or uninstall would change
    Plan(Plan),
    /// Install, reconfigure or upgrade as needed, for scripts; does nothing if the node is as the config says
    Apply(Apply),
    /// Install Calico, or bring this node in line with the config
    Install(Install),
    /// Change a running node; drains it first if the change interrupts pods
    Reconfigure(Reconfigure),
    /// Upgrade Calico, or this program; rolled back if the node does not work
    Upgrade(Upgrade),
    /// Replace another network plugin by Calico
    #[command(subcommand)]
    Migrate(Migrate),
    /// Keep a change made with --mode try, or revert it
    Confirm(Confirm),
    /// Return to the previous generation, or to a named one
    Rollback(Rollback),
    /// Show the generations of this node, and what each consists of
    #[command(subcommand)]
    Receipt(Receipt),
    /// Show the runs on this node: when, by whom, how each ended
    History,
    /// Restore what was changed since the last run
    Repair(Repair),
    /// Finish an interrupted run, or undo it
    Resume(Resume),
    /// Remove Calico and restore the previous state
    #[command(aliases = ["remove", "delete"])]
    Uninstall(Uninstall),
    /// Show services, HNS networks, CNI files, credentials and drift
    Status(Status),
    /// Test whether pods and services work on this node
    Verify(Verify),
    /// Show or follow the logs of the components
    Logs(Logs),
    /// Print the state of this node as metrics for Prometheus, or write them for a textfile collector
    Metrics(Metrics),
    /// Start, stop and show Calico's services
    #[command(subcommand)]
    Service(Service),
    /// Install, show and remove kubelet and kube-proxy
    #[command(subcommand)]
    Kubernetes(Kubernetes),
    /// Show this machine's HNS networks with their endpoints, and re-create Calico's
    #[command(subcommand)]
    Network(Network),
    /// Cordon, drain and taint this machine's Kubernetes Node
    #[command(subcommand)]
    Node(Node),
    /// Show, fetch and rotate the node's kubeconfig or etcd certificates
    #[command(subcommand)]
    Credentials(Credentials),
    /// Create, check and show the config
    #[command(subcommand)]
    Config(Config),
    /// Download, verify and extract Calico releases
    #[command(subcommand)]
    Release(Release),
    /// Check the cluster, and prepare it for Windows nodes; from any machine
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Check network policies for what Windows does not enforce
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Change many nodes, wave after wave, by a DaemonSet; from any machine
    #[command(subcommand)]
    Fleet(Fleet),
    /// Print user data, or a document for DSC, made from the config
    #[command(subcommand)]
    Render(Render),
    /// Be a resource of Desired State Configuration (DSC v3), whose engine runs these
    #[command(subcommand)]
    Dsc(Dsc),
    /// Collect what explains a problem, without secrets, in a zip with a page to read first
    Diagnose(Diagnose),
    /// Prove on this machine what this program assumes of Windows; leaves nothing behind
    Selftest(Selftest),
    /// Explain a check, exit code, event or config field
    Explain(Explain),
    /// Print a completion script
    Completion(Completion),
    /// Print the options that every command takes
    Options,
    /// Print the version
    Version,
}

fn secret(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let (namespace, name) = parts.ok_or("write NAMESPACE/NAME, for example default/registry")?;
    Ok((namespace.to_owned(), name.to_owned()))
}

fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("write HOST:PORT, for example 192.0.2.1:443".into()),
    }
}

/// The commands by what they are for.
pub(super) const GROUPS: [(&str, &[&str]); 6] = [
    ("Set up", &["preflight", "plan", "apply", "install", "render"]),
    ("Change", &["reconfigure", "upgrade", "migrate", "confirm", "rollback", "uninstall"]),
    ("Look", &["status", "verify", "history", "logs", "metrics", "receipt", "config", "explain"]),
    ("Repair", &["diagnose", "repair", "resume", "service", "network"]),
    ("Cluster", &["kubernetes", "cluster", "fleet", "policy", "node", "credentials", "release"]),
    ("Machine", &["selftest", "dsc", "completion", "options", "version"]),
];

/// What people type most, by command; each can be pasted.
pub(super) const EXAMPLES: [(&str, &[&str]); 37] = [
    ("preflight", &["preflight", "preflight -c node.yaml --wait", "preflight --fix"]),
    ("plan", &["plan -c node.yaml", "plan -c node.yaml --out plan.json", "plan --uninstall"]),
    (
        "apply",
        &[
            "apply -c node.yaml --yes -o json",
            "apply -c node.yaml --dry-run",
            "apply --plan plan.json",
            "apply -c node.yaml --bundle bundle.zip --yes",
        ],
    ),
    (
        "install",
        &[
            "install -c node.yaml",
            "install -c node.yaml --yes -o json",
            "install --release v3.32.1 --no-start",
            "install --prepare -c image.yaml",
        ],
    ),
    (
        "reconfigure",
        &[
            "reconfigure --set calicoNetwork.vxlan.vxlanVNI=5000",
            "reconfigure --set calicoNetwork.vxlan.vxlanVNI=5000 --mode try",
            "reconfigure --unset transport.proxy",
        ],
    ),
    ("upgrade", &["upgrade --release v3.32.1", "upgrade --release calico-windows-v3.32.1.zip --dry-run"]),
    ("migrate", &["migrate from flannel --dry-run", "migrate from flannel -c node.yaml"]),
    ("confirm", &["confirm", "confirm --revert"]),
    ("rollback", &["rollback --dry-run", "rollback", "rollback --to 3"]),
    (
        "uninstall",
        &[
            "uninstall --dry-run",
            "uninstall --drain",
            "uninstall --adopted=remove",
            "uninstall --purge --cluster-traces",
        ],
    ),
    ("status", &["status", "status --wait --timeout 5m", "status --watch", "status -o json"]),
    ("verify", &["verify", "verify --pods", "verify --pods --junit-file verify.xml"]),
    ("logs", &["logs --tail 50", "logs -f --tail 20", "logs --component felix --since 1h"]),
    ("metrics", &["metrics", r"metrics --out C:\metrics\calicoctl-win.prom"]),
    ("history", &["history", "history -o json"]),
    ("receipt", &["receipt list", "receipt show 2"]),
    ("config", &["config init node.yaml", "config validate node.yaml", "config show --origins", "config diff"]),
    ("config import", &["config import config.ps1 --out node.yaml", "config import --live"]),
    ("explain", &["explain StrictAffinity", "explain 7", "explain calicoNetwork"]),
    ("repair", &["repair --dry-run", "repair"]),
    ("resume", &["resume", "resume --undo"]),
    ("service", &["service status", "service restart"]),
    ("network", &["network list", "network show Calico", "network reset --dry-run", "network reset"]),
    (
        "kubernetes",
        &[
            "kubernetes install -c node.yaml",
            "kubernetes install -c node.yaml --bundle bundle.zip --containerd",
            "kubernetes status",
            "kubernetes uninstall --dry-run",
        ],
    ),
    ("cluster", &["cluster check", "cluster prepare", "cluster prepare --apply"]),
    (
        "fleet",
        &[
            "fleet plan -c node.yaml --image registry.example.com/calicoctl-win:0.1.0",
            "fleet apply -c node.yaml --image registry.example.com/calicoctl-win:0.1.0 --max-unavailable 10%",
            "fleet status --watch",
            "fleet rollback",
        ],
    ),
    (
        "policy",
        &["policy lint", "policy lint -f policies.yaml --release-line v3.31", "policy lint -f policies -o junit"],
    ),
    ("node", &["node drain --dry-run", "node cordon", "node taint os=windows:NoSchedule"]),
    ("node drain", &["node drain --dry-run", "node drain --delete-emptydir-data --drain-timeout 5m"]),
    ("credentials", &["credentials show", "credentials rotate"]),
    (
        "release",
        &[
            "release download --release v3.32.1",
            "release verify calico-windows-v3.32.1.zip",
            "release list",
            "release bundle -c node.yaml --out bundle.zip",
        ],
    ),
    (
        "render",
        &[
            "render user-data -c node.yaml --program-url https://example.com/calicoctl-win.exe --program-sha256 HEX",
            "render cloud-config -c node.yaml --program-url https://example.com/calicoctl-win.exe --program-sha256 HEX",
            "render terraform -c node.yaml --program-url https://example.com/calicoctl-win.exe --program-sha256 HEX --module ./terraform",
        ],
    ),
    ("diagnose", &["diagnose", r"diagnose --out C:\Temp\node.zip"]),
    ("selftest", &["selftest", "selftest -o json", "selftest --disruptive --adapter Ethernet2 --yes"]),
    ("dsc", &["dsc manifest", "dsc schema", "dsc get", "dsc set --what-if"]),
    ("completion", &["completion powershell", "completion bash"]),
    ("version", &["version", "version -o json"]),
];

#[derive(Debug, Subcommand)]
pub enum Migrate {
    /// The plugin that is on this node
    #[command(subcommand)]
    From(Former),
}

#[derive(Debug, Subcommand)]
pub enum Former {
    /// Drain the node, remove Flannel, install Calico and verify; resume --undo restores Flannel
    Flannel(MigrateFromFlannel),
}

#[derive(Debug, Args)]
pub struct Preflight {
    /// Repeat until all checks pass
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", env = "CALICO_WIN_TIMEOUT")]
    pub timeout: Wait,
    /// Fix what can be fixed automatically; asks first
    #[arg(long)]
    pub fix: bool,
    /// Show every check, also those that pass
    #[arg(long)]
    pub all: bool,
    /// Also ask Windows what this program assumes of it: the rows of selftest that only read
    #[arg(long)]
    pub deep: bool,
}

#[derive(Debug, Subcommand)]
pub enum Fleet {
    /// Show which nodes are changed in which order, what they lose, and about how long it takes
    Plan(FleetChange),
    /// Make the change on every Windows node, wave after wave, and wait for the end; run it again to continue
    Apply {
        #[command(flatten)]
        change: FleetChange,
        /// How long to wait; the wave that has begun continues after it
        #[arg(long, value_name = "TIME", default_value = "24h", env = "CALICO_WIN_TIMEOUT")]
        timeout: Wait,
    },
    /// Show how far the change is, and the failed nodes by their cause
    Status {
        #[command(flatten)]
        place: FleetPlace,
        /// Show it each time that it changes, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Print how far the change is as metrics for Prometheus, or write them for a textfile collector
    Metrics {
        #[command(flatten)]
        place: FleetPlace,
        /// File to write, in one step, in the folder of a textfile collector; must end in .prom
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Let no further node begin; those that have begun finish
    Pause(FleetPlace),
    /// Continue after a pause
    Resume(FleetPlace),
    /// Return the nodes of the last change to what was installed before
    Rollback(FleetPlace),
}

/// Where the objects of a fleet are.
#[derive(Debug, Args)]
pub struct FleetPlace {
    /// Namespace of the DaemonSets
    #[arg(long, value_name = "NAME", default_value = fleet::NAMESPACE)]
    pub namespace: String,
}

#[derive(Debug, Args)]
pub struct FleetChange {
    #[command(flatten)]
    pub place: FleetPlace,
    /// Image for HostProcess containers, made by packaging/hostprocess/image.sh
    #[arg(long, value_name = "IMAGE", value_parser = fleet::image)]
    pub image: String,
    /// Address of the API server as the nodes reach it [default: that of the kubeconfig]
    #[arg(long, value_name = "URL")]
    pub api_server: Option<String>,
    /// Nodes of a wave that may be out at once, also the failed ones: a number, or a share such as 10%
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub max_unavailable: MaxUnavailable,
    /// Change the nodes with this label first
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub canary: Option<(String, String)>,
    /// Change one zone after the other: those in this list, or with `auto` those of the nodes, by name
    #[arg(long, value_name = "auto|ZONE,...", value_delimiter = ',', value_parser = zone)]
    pub zones: Vec<String>,
}

/// The value of a label.
fn zone(text: &str) -> Result<String, &'static str> {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let fits = text.chars().all(|c| ends(c) || "_.-".contains(c)) && text.starts_with(ends) && text.ends_with(ends);
    if fits && text.len() <= 63 {
        Ok(text.to_owned())
    } else {
        Err("write the values of the nodes' label topology.kubernetes.io/zone")
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) = parts.ok_or("write KEY=VALUE, for example stage=canary")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[derive(Debug, Subcommand)]
pub enum Render {
    /// A script for cloudbase-init or EC2Launch: downloads this program and applies the config
    UserData {
        #[command(flatten)]
        program: RenderProgram,
        #[command(flatten)]
        runner: RenderRunner,
    },
    /// The same as a cloud-config for cloudbase-init
    CloudConfig {
        #[command(flatten)]
        program: RenderProgram,
    },
    /// A call of the Terraform module, which makes the same script
    Terraform {
        #[command(flatten)]
        program: RenderProgram,
        #[command(flatten)]
        runner: RenderRunner,
        /// Source of the module: a folder, or a URL with its version
        #[arg(long, value_name = "SOURCE")]
        module: String,
    },
    /// A playbook with the Ansible role, which downloads this program and applies the config
    Ansible {
        #[command(flatten)]
        program: RenderProgram,
    },
    /// The objects of fleet, for those who apply them with kubectl or from Git
    Fleet {
        #[command(flatten)]
        change: FleetChange,
        /// The waves up to this one make the change; those after it wait [default: all wait]
        #[arg(long, value_name = "WAVE")]
        through: Option<String>,
    },
    /// A configuration document for DSC v3
    Dsc,
}

/// What runs the script on the machine; cloudbase-init without an option.
#[derive(Debug, Args)]
pub struct RenderRunner {
    /// For EC2Launch v2
    #[arg(long)]
    pub ec2: bool,
    /// For another program: only the script
    #[arg(long, conflicts_with = "ec2")]
    pub script: bool,
}

/// The calicoctl-win.exe that the machine downloads.
#[derive(Debug, Args)]
pub struct RenderProgram {
    /// URL of calicoctl-win.exe
    #[arg(long, value_name = "URL")]
    pub program_url: String,
    /// SHA-256 that it must have
    #[arg(long, value_name = "HEX")]
    pub program_sha256: String,
}

#[derive(Debug, Subcommand)]
pub enum Dsc {
    /// Print the state of this node
    Get,
    /// Print the state, and whether the node matches the instance on stdin
    Test,
    /// Bring this node to the instance on stdin: apply -c - --yes
    Set {
        /// Print the state after the change and what differs, and change nothing
        #[arg(long)]
        what_if: bool,
    },
    /// Remove Calico: uninstall --yes
    Delete,
    /// Print the state of this node if Calico is installed
    Export,
    /// Print the JSON Schema of an instance
    Schema,
    /// Print the resource's manifest
    Manifest,
}

#[derive(Debug, Args)]
pub struct Diagnose {
    /// The zip to write; an existing file is left alone [default: one in this folder, named by the machine and the time]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Selftest {
    /// Also create and delete an overlay network, which interrupts the network of an adapter
    #[arg(long)]
    pub disruptive: bool,
    /// The adapter whose network may be interrupted [default: one without a gateway, if there are several]
    #[arg(long, value_name = "NAME", requires = "disruptive")]
    pub adapter: Option<String>,
    /// This is a process that a row started
    #[arg(long, hide = true, value_name = "NAME", value_parser = child::NAMES)]
    pub part: Option<String>,
}

#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    pub source: SourceOrBundle,
    /// Plan the removal instead
    #[arg(long)]
    pub uninstall: bool,
    /// With --uninstall: as in uninstall
    #[arg(long, value_enum, value_name = "WAY", requires = "uninstall")]
    pub adopted: Option<AdoptedFlag>,
    /// Save the plan with its config, for: apply --plan FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["facts", "uninstall"])]
    pub out: Option<PathBuf>,
    /// Plan for the node that this facts file describes, on any machine
    #[arg(long, value_name = "FILE", conflicts_with = "bundle")]
    pub facts: Option<PathBuf>,
    /// Print this node's facts, for --facts elsewhere, instead of a plan
    #[arg(long, conflicts_with_all = ["out", "facts", "uninstall"])]
    pub print_facts: bool,
}

#[derive(Debug, Subcommand)]
pub enum Receipt {
    /// One line for each generation, oldest first
    List,
    /// What a generation consists of, and what on the node belongs to it
    Show {
        /// Its number [default: the current one]
        #[arg(value_name = "GENERATION")]
        generation: Option<u32>,
    },
}

#[derive(Debug, Args)]
pub struct Status {
    /// Wait until the node is healthy and no run is in progress
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", env = "CALICO_WIN_TIMEOUT")]
    pub timeout: Wait,
    /// Show it again every two seconds until Ctrl-C
    #[arg(long, conflicts_with_all = ["wait", "run"])]
    pub watch: bool,
    /// Show the state or outcome of a run; exits as the run did
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// Also start pods, here and on a Linux node, and test their connections; they are removed afterwards
    #[arg(long)]
    pub pods: bool,
    /// Image of the pods on this node: agnhost for its build of Windows, or one with the same commands
    #[arg(long, value_name = "IMAGE", requires = "pods", default_value = AGNHOST, env = "CALICO_WIN_IMAGE_WINDOWS")]
    pub image_windows: String,
    /// Image of the pods on the Linux node: agnhost, or one with the same commands
    #[arg(long, value_name = "IMAGE", requires = "pods", default_value = AGNHOST, env = "CALICO_WIN_IMAGE_LINUX")]
    pub image_linux: String,
    /// Secret with which the images are pulled; a copy is used
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "pods", value_parser = secret, env = "CALICO_WIN_PULL_SECRET")]
    pub pull_secret: Option<(String, String)>,
    /// How long a pod may take to start, for example 90s or 10m
    #[arg(long, value_name = "TIME", requires = "pods", default_value = "5m")]
    pub start_timeout: Wait,
    /// What a pod must reach outside of the pod network [default: the API server]
    #[arg(long, value_name = "HOST:PORT", requires = "pods", value_parser = host_and_port)]
    pub egress: Option<String>,
    /// Also try network policies that deny all and allow one, and leave them and the pods in place to look at
    #[arg(long, requires = "pods")]
    pub demo: bool,
    /// Remove what --demo, or an interrupted verify, left in the cluster, and test nothing
    #[arg(long, conflicts_with_all = ["pods", "junit_file"])]
    pub remove: bool,
    /// Also write the probes to this file as JUnit's test results
    #[arg(long, value_name = "FILE")]
    pub junit_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Kubernetes {
    /// Install both, and Calico, as the config says: apply with kubernetes.node.install=true
    Install(KubernetesInstall),
    /// Show the services kubelet and kube-proxy: whose they are, their versions, and whether kubelet has joined
    Status,
    /// Remove both and leave Calico: reconfigure with kubernetes.node.install=false
    Uninstall,
}

#[derive(Debug, Args)]
pub struct KubernetesInstall {
    #[command(flatten)]
    pub source: SourceOrBundle,
    /// Also install containerd from its own archive, unless the machine has it; without FILE, from the bundle
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub containerd: Option<Option<String>>,
}

#[derive(Debug, Subcommand)]
pub enum Network {
    /// Every HNS network of this machine, and whose it is
    List,
    /// One HNS network with its subnets, policies, endpoints and load balancers
    Show {
        /// Its name, or its id if several have that name
        #[arg(value_name = "NAME|ID")]
        network: String,
    },
    /// Drain the node, delete Calico's HNS networks and create them again; other networks stay
    Reset(NetworkReset),
}

#[derive(Debug, Subcommand)]
pub enum Service {
    /// Start the services
    Start,
    /// Stop the services
    Stop,
    /// Stop, then start
    Restart,
    /// Show their state
    Status,
    /// What the Service Control Manager starts
    #[command(hide = true)]
    Run {
        #[arg(value_enum)]
        component: Component,
        /// Run it here, without the Service Control Manager
        #[arg(long)]
        foreground: bool,
    },
}

#[derive(Debug, Args)]
pub struct Logs {
    /// Follow: print what is written from now on
    #[arg(short, long)]
    pub follow: bool,
    /// Only this component
    #[arg(long, value_enum, value_name = "NAME")]
    pub component: Option<LogOf>,
    /// Only this run of calicoctl-win
    #[arg(long, value_name = "ID", conflicts_with = "component")]
    pub run: Option<String>,
    /// Only the last lines, of all logs together
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Only lines since then: 10m, 2h, or a time like 2026-01-02T15:04:05Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
}

#[derive(Debug, Args)]
pub struct Metrics {
    /// File to write, in one step, in the folder of a textfile collector; must end in .prom
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Credentials {
    /// Show what the node logs in with, its origin and expiry; never the secrets
    Show,
    /// Fetch credentials into a folder, without changing the node
    Fetch {
        /// Folder for calico-kube-config, or for etcd's server.key, server.crt and ca.crt
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Replace the credentials of the node; Calico's services pick them up
    Rotate,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print a config to start from
    Init {
        /// Write it here instead of printing it; an existing file is left alone
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Write every field, with its default
        #[arg(long)]
        full: bool,
    },
    /// Create a config from the config.ps1 of Calico's scripts, which is read and never run
    Import {
        /// The config.ps1
        #[arg(value_name = "FILE", required_unless_present = "live", conflicts_with = "live")]
        file: Option<PathBuf>,
        /// From what this node runs: services, config.ps1, CNI configuration and HNS networks
        #[arg(long)]
        live: bool,
        /// Write it here instead of printing it; an existing file is left alone
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the effective config
    Show {
        /// Show where each value comes from
        #[arg(long)]
        origins: bool,
        /// Show what the current generation was made with instead
        #[arg(long, conflicts_with = "origins")]
        applied: bool,
    },
    /// Show how the effective config differs from what the current generation was made with
    Diff,
    /// Check the config
    Validate {
        /// Config files, besides -c
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of the config
    Schema,
}

#[derive(Debug, Subcommand)]
pub enum Release {
    /// Download and verify a release into the cache
    Download {
        #[command(flatten)]
        source: Source,
    },
    /// Pack all that a node without downloads needs into one file: the release, this program, kubelet and kube-proxy if
    /// the config installs them, a list of images, and digests
    Bundle {
        #[command(flatten)]
        source: Source,
        /// File to write; must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// calicoctl-win.exe for the node [default: this program]
        #[arg(long, value_name = "FILE")]
        executable: Option<PathBuf>,
    },
    /// Check an archive or a bundle: digest, layout, every entry; writes nothing
    Verify {
        /// The archive
        zip: PathBuf,
        /// SHA-256 it must have
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
        /// Calico version it must be; else from its name
        #[arg(long)]
        version: Option<String>,
    },
    /// Verify an archive and extract it
    Extract {
        /// The archive
        zip: PathBuf,
        /// Folder to create; must not exist, or be empty
        #[arg(long, value_name = "DIR")]
        dest: PathBuf,
        /// SHA-256 it must have
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
        /// Calico version it must be; else from its name, else only the entries are checked
        #[arg(long)]
        version: Option<String>,
    },
    /// Show what is in the cache
    List,
}

#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Run the checks that concern the cluster; changes nothing
    Check,
    /// Show the patches that the cluster needs for Windows nodes
    Prepare {
        /// Apply them; asks first
        #[arg(long)]
        apply: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// Show rules that Windows skips, and rules that are expensive there; changes nothing
    Lint {
        /// Policies in a file, a folder, or on stdin (-), instead of those of the cluster, which is not asked
        #[arg(short, long = "file", value_name = "FILE")]
        files: Vec<PathBuf>,
        /// With --file: release line of the cluster's Calico, for example v3.31, as which the files are judged
        #[arg(long, value_name = "LINE", requires = "files")]
        release_line: Option<ReleaseLine>,
    },
}

#[derive(Debug, Args)]
pub struct Explain {
    /// For example StrictAffinity, CLUSTER_UNREACHABLE, 7, phase_complete or calicoNetwork.vxlan.vxlanVNI; a section
    /// of the config lists its fields [default: list all]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Completion {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
