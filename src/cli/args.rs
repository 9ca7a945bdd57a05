//! What can be typed. Doc comments are the help text. Every global flag has a variable
//! `CALICO_WIN_…`; flags are options here and get their defaults in `settings`.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cluster::Taint;
use crate::config::types::Wait;
use crate::report::reporter::{Color, Format, Style};

/// Installs, changes and removes Calico on a Windows node of a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "calicoctl-win", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Config file; repeat to layer, later ones win, - is stdin
    #[arg(short, long, global = true, value_name = "FILE", env = "CALICO_WIN_CONFIG")]
    pub config: Vec<PathBuf>,
    /// Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    #[arg(long, global = true, value_name = "PATH=VALUE", value_parser = path_and_value)]
    pub set: Vec<String>,
    /// Output format
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", env = "CALICO_WIN_OUTPUT")]
    pub output: Option<Format>,
    /// Continue without this session: prints the name of the run at once, for status and logs
    #[arg(long, global = true, env = "CALICO_WIN_DETACH", value_parser = BoolishValueParser::new())]
    pub detach: bool,
    /// This is the process that continues
    #[arg(long, global = true, hide = true, value_name = "RUN")]
    pub detached_run: Option<String>,
    /// What to do with this run if Windows restarts before it ends [default: leave, or finish with
    /// reboot.resumeOnBoot]
    #[arg(long, global = true, value_enum, value_name = "WAY", env = "CALICO_WIN_AT_BOOT")]
    pub at_boot: Option<AtBoot>,
    /// Show what would be done and stop
    #[arg(short = 'n', long, global = true, env = "CALICO_WIN_DRY_RUN", value_parser = BoolishValueParser::new())]
    pub dry_run: bool,
    /// Exit 2 if a plan or a dry run finds something to change
    #[arg(long, global = true, env = "CALICO_WIN_DETAILED_EXITCODE", value_parser = BoolishValueParser::new())]
    pub detailed_exitcode: bool,
    /// Do not ask for confirmation
    #[arg(short, long, global = true, env = "CALICO_WIN_YES", value_parser = BoolishValueParser::new())]
    pub yes: bool,
    /// Never ask; fail instead
    #[arg(long, global = true, env = "CALICO_WIN_NO_INPUT", value_parser = BoolishValueParser::new())]
    pub no_input: bool,
    /// Work on a sandbox node in this folder instead of this machine
    #[arg(long, global = true, value_name = "DIR", env = "CALICO_WIN_SANDBOX")]
    pub sandbox: Option<PathBuf>,
    /// Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    #[arg(long, global = true, value_name = "SPEC", env = "CALICO_WIN_SANDBOX_FAULT", value_delimiter = ';')]
    pub sandbox_fault: Vec<String>,
    /// Kubeconfig with the rights to install; only this tool uses it
    #[arg(long, global = true, value_name = "FILE", env = "CALICO_WIN_KUBECONFIG")]
    pub kubeconfig: Option<String>,
    /// Context in the kubeconfig
    #[arg(long, global = true, value_name = "NAME", env = "CALICO_WIN_CONTEXT")]
    pub context: Option<String>,
    /// Name of this machine's Kubernetes Node
    #[arg(long, global = true, value_name = "NAME", env = "CALICO_WIN_NODE_NAME")]
    pub node_name: Option<String>,
    /// Namespace of Calico's service account [default: detected]
    #[arg(long, global = true, value_name = "NAME", env = "CALICO_WIN_CALICO_NAMESPACE")]
    pub calico_namespace: Option<String>,
    /// Proxy for downloads
    #[arg(long, global = true, value_name = "URL", env = "CALICO_WIN_PROXY")]
    pub proxy: Option<String>,
    /// PEM file with CAs to trust for downloads
    #[arg(long, global = true, value_name = "FILE", env = "CALICO_WIN_CA_FILE")]
    pub ca_file: Option<String>,
    /// Use no network but the cluster
    #[arg(long, global = true, env = "CALICO_WIN_OFFLINE", value_parser = BoolishValueParser::new())]
    pub offline: bool,
    /// Ids of checks that may fail
    #[arg(
        long,
        global = true,
        value_name = "ID,...",
        value_delimiter = ',',
        env = "CALICO_WIN_IGNORE_PREFLIGHT_ERRORS"
    )]
    pub ignore_preflight_errors: Vec<String>,
    /// How exit codes are numbered
    #[arg(long, global = true, value_enum, default_value = "native", env = "CALICO_WIN_EXIT_CODES")]
    pub exit_codes: ExitCodes,
    /// Show more details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Show only what failed, and the result
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Colour the text
    #[arg(long, global = true, value_enum, default_value = "auto", env = "CALICO_WIN_COLOR")]
    pub color: Color,
    /// Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    #[arg(long, global = true, value_name = "FILE", env = "CALICO_WIN_LOG_FILE")]
    pub log_file: Option<PathBuf>,
}

fn path_and_value(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((path, _)) if !path.is_empty() => Ok(text.into()),
        _ => Err("write PATH=VALUE, for example calicoNetwork.vxlan.vxlanVNI=5000".into()),
    }
}

impl Global {
    pub fn style(&self) -> Style {
        Style {
            format: self.output.unwrap_or_default(),
            color: self.color,
            verbose: self.verbose > 0,
            quiet: self.quiet,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExitCodes {
    /// The numbers in docs/exit-codes.md
    Native,
    /// A required reboot is 0
    Simple,
    /// A required reboot is 1003, what may work later is 1002
    CloudbaseInit,
}

/// What CalicoNode does with a run that a restart interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AtBoot {
    /// Leaves it for resume
    Leave,
    /// Finishes it
    Finish,
    /// Undoes it
    Undo,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check this machine, the cluster and the release; changes nothing
    #[command(alias = "doctor")]
    Preflight(Preflight),
    /// Show what install or uninstall would change
    Plan(Plan),
    /// Install Calico, or bring this node in line with the config
    Install(Install),
    /// Change a running node; drains it first if the change interrupts pods
    Reconfigure(Reconfigure),
    /// Upgrade Calico, or this program; rolled back if the node does not work
    Upgrade(Upgrade),
    /// Keep a change made with --mode try, or revert it
    Confirm(Confirm),
    /// Return to the previous generation, or to a named one
    Rollback(Rollback),
    /// Show the generations of this node, and what each consists of
    #[command(subcommand)]
    Receipt(Receipt),
    /// Restore what was changed since the last run
    Repair(Repair),
    /// Finish an interrupted run, or undo it
    Resume(Resume),
    /// Remove Calico and restore the previous state
    #[command(aliases = ["remove", "delete"])]
    Uninstall(Uninstall),
    /// Show services, HNS networks, CNI files, credentials and drift
    Status(Status),
    /// Show or follow the logs of the components
    Logs(Logs),
    /// Start, stop and show Calico's services
    #[command(subcommand)]
    Service(Service),
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
    /// Explain a check, exit code, event or config field
    Explain(Explain),
    /// Print a completion script
    Completion(Completion),
    /// Print the options that every command takes
    Options,
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
pub struct Preflight {
    /// Repeat until all checks pass
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", env = "CALICO_WIN_TIMEOUT")]
    pub timeout: String,
    /// Fix what can be fixed automatically; asks first
    #[arg(long)]
    pub fix: bool,
}

/// Which Calico, over the config's section `calico`.
#[derive(Debug, Clone, Default, Args)]
pub struct Source {
    /// Calico release: a version, a zip, an unpacked folder, or a URL
    #[arg(long, value_name = "VERSION|FILE|DIR|URL", env = "CALICO_WIN_RELEASE")]
    pub release: Option<String>,
    /// SHA-256 that the archive must have
    #[arg(long, value_name = "HEX", env = "CALICO_WIN_SHA256")]
    pub sha256: Option<String>,
}

#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    pub source: Source,
    /// Plan the removal instead
    #[arg(long)]
    pub uninstall: bool,
    /// Save the plan, for: install --plan FILE
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Plan for the node that this facts file describes, on any machine
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// Print this node's facts, for --facts elsewhere, instead of a plan
    #[arg(long, conflicts_with_all = ["out", "facts", "uninstall"])]
    pub print_facts: bool,
}

#[derive(Debug, Args)]
pub struct Install {
    #[command(flatten)]
    pub source: Source,
    /// Apply a saved plan; refused if the node or the config has changed since
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Allow an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Register the services but do not start them
    #[arg(long)]
    pub no_start: bool,
    /// Download and verify the release, then stop
    #[arg(long)]
    pub download_only: bool,
}

#[derive(Debug, Args)]
pub struct Reconfigure {
    /// Reset a field to its default, or to what the cluster says; repeatable
    #[arg(long, value_name = "PATH")]
    pub unset: Vec<String>,
    /// Apply a saved plan; refused if the node or the config has changed since
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Allow an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// try: revert automatically unless the change is confirmed in time [default: auto]
    #[arg(long, value_enum, value_name = "MODE", env = "CALICO_WIN_MODE")]
    pub mode: Option<ChangeMode>,
    /// With --mode try: how long to wait for confirm [default: 5m]
    #[arg(long, value_name = "TIME", env = "CALICO_WIN_CONFIRM_TIMEOUT")]
    pub confirm_timeout: Option<Wait>,
    /// Keep pods off until FelixConfiguration has this node's VNI; at most this long
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1h")]
    pub wait_for_cluster_vni: Option<Wait>,
    /// Do not drain the node, even if the change interrupts pods
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

#[derive(Debug, Args)]
pub struct Upgrade {
    #[command(flatten)]
    pub source: Source,
    /// Apply a saved plan; refused if the node or the config has changed since
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Allow an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Drain the node first, even if pods keep their network
    #[arg(long = "drain", conflicts_with = "no_drain")]
    pub drains: bool,
    /// Do not drain the node, even if the change interrupts pods
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
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
pub struct Rollback {
    /// Number of the generation [default: the previous one]
    #[arg(long, value_name = "GENERATION")]
    pub to: Option<u32>,
    /// Do not drain the node, even if the change interrupts pods
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

#[derive(Debug, Args)]
pub struct Repair {
    /// Do not drain the node, even if the change interrupts pods
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

/// How a change is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChangeMode {
    /// Keep the change
    Auto,
    /// Revert it automatically unless it is confirmed
    Try,
}

#[derive(Debug, Args)]
pub struct Confirm {
    /// Revert the change now
    #[arg(long)]
    pub revert: bool,
}

#[derive(Debug, Args)]
pub struct Resume {
    /// Restore the state before the run
    #[arg(long)]
    pub undo: bool,
}

#[derive(Debug, Args)]
pub struct Uninstall {
    /// Also remove the state, logs and receipts of calicoctl-win
    #[arg(long)]
    pub purge: bool,
    /// Also delete the token secret that install created in the cluster; other nodes that log in with it
    /// lose access
    #[arg(long)]
    pub delete_token_secret: bool,
    /// Drain the node first; it stays cordoned
    #[arg(long = "drain")]
    pub drains: bool,
    /// Also release this node's IPAM blocks, and remove Calico's annotations from the Node
    #[arg(long)]
    pub cluster_traces: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

#[derive(Debug, Args)]
pub struct Status {
    /// Wait until the node is healthy and no run is in progress
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", env = "CALICO_WIN_TIMEOUT")]
    pub timeout: String,
    /// Show the state or outcome of a run; exits as the run did
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
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

/// What `service run` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Component {
    Node,
    Felix,
    Confd,
    /// Watches over a change that is not confirmed
    Guard,
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
    /// Only lines since then: 10m, 2h, or a time like 2026-01-02T15:04:05Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
}

/// Whose logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogOf {
    /// CalicoNode: the network and Calico's node startup
    Node,
    Felix,
    Confd,
    /// The runs of calicoctl-win
    Tool,
}

#[derive(Debug, Subcommand)]
pub enum Node {
    /// Keep new pods off the node
    Cordon,
    /// Let new pods run on the node again
    Uncordon,
    /// Cordon the node and evict its pods, like kubectl drain; cordons nothing if a pod may not be evicted
    Drain(DrainFlags),
    /// Add taints; other taints stay
    Taint {
        /// For example os=windows:NoSchedule
        #[arg(value_name = "KEY[=VALUE]:EFFECT", required = true)]
        taints: Vec<Taint>,
        /// Replace the value of a taint with the same key and effect
        #[arg(long)]
        overwrite: bool,
    },
    /// Remove taints; other taints stay
    Untaint {
        /// A key alone means all taints with it
        #[arg(value_name = "KEY[=VALUE][:EFFECT]", required = true)]
        taints: Vec<Taint>,
    },
}

/// As kubectl drain's, over the config's section `maintenance.drain`.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Drain")]
pub struct DrainFlags {
    /// Leave pods of DaemonSets where they are
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub ignore_daemonsets: Option<bool>,
    /// Also pods with emptyDir volumes, whose data is deleted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub delete_emptydir_data: Option<bool>,
    /// Also pods without a controller, and pods marked as not safe to evict
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub force: Option<bool>,
    /// Seconds each pod has to stop; -1 uses the value of the pod
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub grace_period: Option<i64>,
    /// Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    #[arg(long, alias = "timeout", value_name = "TIME", env = "CALICO_WIN_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<Wait>,
    /// Only pods with these labels
    #[arg(long, value_name = "SELECTOR")]
    pub pod_selector: Option<String>,
    /// Delete pods instead of evicting them; ignores disruption budgets
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub disable_eviction: Option<bool>,
    /// Do not wait for pods whose deletion is older than this many seconds; 0 waits
    #[arg(long, value_name = "SECONDS")]
    pub skip_wait_for_delete_timeout: Option<u64>,
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
    },
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
    /// Check an archive: digest, layout, every entry; writes nothing
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

#[derive(Debug, Args)]
pub struct Explain {
    /// For example StrictAffinity, CLUSTER_UNREACHABLE, 7, phase_complete or calicoNetwork.vxlan.vxlanVNI
    pub id: String,
}

#[derive(Debug, Args)]
pub struct Completion {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
