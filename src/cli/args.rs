//! What can be typed. Doc comments are the help text. Every global flag has a variable
//! `CALICO_WIN_…`; flags are options here and get their defaults in `settings`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cluster::Taint;
use crate::config::types::Wait;
use crate::report::reporter::{Color, Format, Style};

/// Takes a Windows machine from bare to a working Calico node, keeps it right, changes it safely,
/// and takes it off again.
#[derive(Debug, Parser)]
#[command(name = "calicoctl-win", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    after_help = "Try it anywhere: calicoctl-win install --sandbox DIR --yes\nAny check, exit code or field: calicoctl-win explain ID"
)]
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
    /// Override one field of the config, as calicoNetwork.vxlan.vxlanVNI=5000
    #[arg(long, global = true, value_name = "PATH=VALUE", value_parser = path_and_value)]
    pub set: Vec<String>,
    /// Shape of the output
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", env = "CALICO_WIN_OUTPUT")]
    pub output: Option<Format>,
    /// Go on without this session: prints the name of the run at once, for status and logs
    #[arg(long, global = true, env = "CALICO_WIN_DETACH")]
    pub detach: bool,
    /// This is the process that goes on
    #[arg(long, global = true, hide = true, value_name = "RUN")]
    pub detached_run: Option<String>,
    /// What becomes of this run when Windows starts before it is over [default: leave, or finish with
    /// reboot.resumeOnBoot]
    #[arg(long, global = true, value_enum, value_name = "WAY", env = "CALICO_WIN_AT_BOOT")]
    pub at_boot: Option<AtBoot>,
    /// Show what would be done and stop
    #[arg(short = 'n', long, global = true, env = "CALICO_WIN_DRY_RUN")]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long, global = true, env = "CALICO_WIN_YES")]
    pub yes: bool,
    /// Never ask; fail instead
    #[arg(long, global = true, env = "CALICO_WIN_NO_INPUT")]
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
    /// Namespace of Calico's service account, calico-system or kube-system, where it is not to be looked for
    #[arg(long, global = true, value_name = "NAME", env = "CALICO_WIN_CALICO_NAMESPACE")]
    pub calico_namespace: Option<String>,
    /// Proxy for downloads
    #[arg(long, global = true, value_name = "URL", env = "CALICO_WIN_PROXY")]
    pub proxy: Option<String>,
    /// PEM file with CAs to trust for downloads
    #[arg(long, global = true, value_name = "FILE", env = "CALICO_WIN_CA_FILE")]
    pub ca_file: Option<String>,
    /// Use no network but the cluster's
    #[arg(long, global = true, env = "CALICO_WIN_OFFLINE")]
    pub offline: bool,
    /// Checks that may fail, by id
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
    /// Say more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Say only what failed, and the result
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
        _ => Err("write PATH=VALUE, as calicoNetwork.vxlan.vxlanVNI=5000".into()),
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
    /// As documented
    Native,
    /// A needed reboot is 0
    Simple,
    /// A needed reboot is 1003, what may work later is 1002
    CloudbaseInit,
}

/// What CalicoNode does with a run that a boot cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AtBoot {
    /// Nothing: `resume` is for you to call
    Leave,
    /// Finishes it
    Finish,
    /// Takes it back
    Undo,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check node, cluster and release; changes nothing
    Preflight(Preflight),
    /// Show what install or uninstall would do
    Plan(Plan),
    /// Make this node what the config says, the first time or again
    Install(Install),
    /// Change a node that runs: drains it where the change interrupts pods, and uncordons it afterwards
    Reconfigure(Reconfigure),
    /// Go to another Calico release, or to this build of the program; one that does not work is taken back
    Upgrade(Upgrade),
    /// Keep a change that was made with --mode try, or take it back at once
    Confirm(Confirm),
    /// Go back to the generation before, or to one that is named
    Rollback(Rollback),
    /// Show the generations of this node, and what each is made of
    #[command(subcommand)]
    Receipt(Receipt),
    /// Put back what was changed since the last run
    Repair(Repair),
    /// Finish an interrupted run, or undo it
    Resume(Resume),
    /// Take off everything that install made, and give back what was there before
    Uninstall(Uninstall),
    /// Services, HNS networks, CNI files, credentials, drift on one screen
    Status(Status),
    /// Show the logs of the components, and follow them
    Logs(Logs),
    /// Start, stop or look at Calico's services
    #[command(subcommand)]
    Service(Service),
    /// Cordon, drain and taint this machine's Kubernetes Node
    #[command(subcommand)]
    Node(Node),
    /// Show, fetch and renew the node's kubeconfig and etcd certificates
    #[command(subcommand)]
    Credentials(Credentials),
    /// Make, check and show the config document
    #[command(subcommand)]
    Config(Config),
    /// Fetch, verify and extract Calico releases
    #[command(subcommand)]
    Release(Release),
    /// Check the cluster and prepare it for Windows nodes; needs no node
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Explain a check, exit code, event or config field, offline
    Explain(Explain),
    /// Print a completion script
    Completion(Completion),
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
pub struct Preflight {
    /// Look again until all checks pass
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, as 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", env = "CALICO_WIN_TIMEOUT")]
    pub timeout: String,
    /// Mend what can be mended, after asking
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
    /// Exit 2 when there is something to change
    #[arg(long)]
    pub detailed_exitcode: bool,
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
    /// Carry out a saved plan; refused when node or config changed since
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Go to an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Register the services but do not start them
    #[arg(long)]
    pub no_start: bool,
    /// Fetch and verify the release, then stop
    #[arg(long)]
    pub download_only: bool,
}

#[derive(Debug, Args)]
pub struct Reconfigure {
    /// Take back a field that was set before: its default counts, or what the cluster says; repeatable
    #[arg(long, value_name = "PATH")]
    pub unset: Vec<String>,
    /// Carry out a saved plan; refused when node or config changed since
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Go to an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// try: the node goes back by itself unless the change is confirmed in time [default: auto]
    #[arg(long, value_enum, value_name = "MODE", env = "CALICO_WIN_MODE")]
    pub mode: Option<ChangeMode>,
    /// With --mode try: how long to wait for confirm [default: 5m]
    #[arg(long, value_name = "TIME", env = "CALICO_WIN_CONFIRM_TIMEOUT")]
    pub confirm_timeout: Option<Wait>,
    /// Keep pods off until FelixConfiguration says this node's VNI, at most so long
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1h")]
    pub wait_for_cluster_vni: Option<Wait>,
    /// Do not move pods away, though the change cuts them off
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

#[derive(Debug, Args)]
pub struct Upgrade {
    #[command(flatten)]
    pub source: Source,
    /// Carry out a saved plan; refused when node or config changed since
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Go to an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Move pods away before, though an upgrade leaves them their network
    #[arg(long = "drain", conflicts_with = "no_drain")]
    pub drains: bool,
    /// Do not move pods away, though the change cuts them off
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

#[derive(Debug, Subcommand)]
pub enum Receipt {
    /// One line for each generation, oldest first
    List,
    /// What a generation is made of and what of the node is ours
    Show {
        /// Its number [default: the one that stands]
        #[arg(value_name = "GENERATION")]
        generation: Option<u32>,
    },
}

#[derive(Debug, Args)]
pub struct Rollback {
    /// Number of the generation [default: the one before]
    #[arg(long, value_name = "GENERATION")]
    pub to: Option<u32>,
    /// Do not move pods away, though the change cuts them off
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

#[derive(Debug, Args)]
pub struct Repair {
    /// Do not move pods away, though the change cuts them off
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
}

/// How a change is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChangeMode {
    /// For good
    Auto,
    /// Goes back by itself unless it is confirmed
    Try,
}

#[derive(Debug, Args)]
pub struct Confirm {
    /// Take the change back now
    #[arg(long)]
    pub revert: bool,
}

#[derive(Debug, Args)]
pub struct Resume {
    /// Go back to how the node was before the run
    #[arg(long)]
    pub undo: bool,
}

#[derive(Debug, Args)]
pub struct Uninstall {
    /// Also remove our own state, logs and receipts
    #[arg(long)]
    pub purge: bool,
    /// Also delete the token secret that install made in the cluster; every other node that logs in with it
    /// loses access
    #[arg(long)]
    pub delete_token_secret: bool,
    /// Move pods away before; the node stays cordoned
    #[arg(long = "drain")]
    pub drains: bool,
    /// Also give back this node's IPAM blocks, and take Calico's annotations off the Node
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
    /// How long to wait, as 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "10m", env = "CALICO_WIN_TIMEOUT")]
    pub timeout: String,
    /// How this run ended, or that it is at it; with --wait, when it is over. Exits as the run did
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Service {
    /// Start the services, in order
    Start,
    /// Stop the services, in order
    Stop,
    /// Stop, then start
    Restart,
    /// Show whether they run
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
    /// Go on with what is written from now on
    #[arg(short, long)]
    pub follow: bool,
    /// Only of this one
    #[arg(long, value_enum, value_name = "NAME")]
    pub component: Option<LogOf>,
    /// Only of this run of the tool
    #[arg(long, value_name = "ID", conflicts_with = "component")]
    pub run: Option<String>,
    /// Only what was written since: 10m, 2h, or a time as 2026-01-02T15:04:05Z
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
    /// The runs of this tool
    Tool,
}

#[derive(Debug, Subcommand)]
pub enum Node {
    /// Keep new pods off the node
    Cordon,
    /// Let new pods come to the node again
    Uncordon,
    /// Cordon the node and move its pods away, as kubectl drain; nothing is cordoned if a pod may not go
    Drain(DrainFlags),
    /// Add taints; those of others stay
    Taint {
        /// As os=windows:NoSchedule
        #[arg(value_name = "KEY[=VALUE]:EFFECT", required = true)]
        taints: Vec<Taint>,
        /// Replace the value of a taint with the same key and effect
        #[arg(long)]
        overwrite: bool,
    },
    /// Take taints off; those of others stay
    Untaint {
        /// A key alone means all its taints
        #[arg(value_name = "KEY[=VALUE][:EFFECT]", required = true)]
        taints: Vec<Taint>,
    },
}

/// As kubectl drain's, over the config's section `maintenance.drain`.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Drain")]
pub struct DrainFlags {
    /// Leave pods of DaemonSets where they are
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub ignore_daemonsets: Option<bool>,
    /// Also pods with emptyDir volumes, whose data is lost
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub delete_emptydir_data: Option<bool>,
    /// Also pods that no controller makes again, and those that say they are not safe to evict
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub force: Option<bool>,
    /// Seconds each pod has to end; -1 leaves it to the pod
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub grace_period: Option<i64>,
    /// Longest wait for the drain, as 90s or 10m; 0 waits for ever [default: 10m]
    #[arg(long, alias = "timeout", value_name = "TIME", env = "CALICO_WIN_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<Wait>,
    /// Only pods with these labels
    #[arg(long, value_name = "SELECTOR")]
    pub pod_selector: Option<String>,
    /// Delete in place of evicting, past disruption budgets
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub disable_eviction: Option<bool>,
    /// Do not wait for pods that should have ended so many seconds ago; 0 waits
    #[arg(long, value_name = "SECONDS")]
    pub skip_wait_for_delete_timeout: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum Credentials {
    /// What the node logs in with: whose it is, where it came from, when it ends; never the secrets
    Show,
    /// Get credentials as install would, and write them into a folder; the node stays as it is
    Fetch {
        /// Folder for calico-kube-config, or for etcd's server.key, server.crt and ca.crt
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Give the node new credentials; Calico's services take them up by themselves
    Rotate,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print a complete config to start from
    Init {
        /// Write it here instead of printing it; an existing file is left alone
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Make a config from the config.ps1 of Calico's own scripts, which is read and never run
    Import {
        /// The config.ps1
        #[arg(value_name = "FILE", required_unless_present = "live", conflicts_with = "live")]
        file: Option<PathBuf>,
        /// From what runs on this node: its services, config.ps1, CNI configuration and HNS networks
        #[arg(long)]
        live: bool,
        /// Write it here instead of printing it; an existing file is left alone
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the config as it takes effect
    Show {
        /// Say for each field where its value comes from
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
    /// Fetch and verify a release into the cache
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
        /// Folder to make; must not exist, or be empty
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
    /// The checks of `preflight` that concern the cluster, from any machine; changes nothing
    Check,
    /// Show the patches that the cluster needs before it takes Windows nodes
    Prepare {
        /// Make them, after asking
        #[arg(long)]
        apply: bool,
    },
}

#[derive(Debug, Args)]
pub struct Explain {
    /// As StrictAffinityOff, CLUSTER_UNREACHABLE, 7, phase_complete or calicoNetwork.vxlan.vxlanVNI
    pub id: String,
}

#[derive(Debug, Args)]
pub struct Completion {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
