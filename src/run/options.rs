//! The options of a run: the global ones, and those of the verbs that change the node. Doc comments are the help text.
//! Every global flag has a variable `CALICO_WIN_…`; flags are options here and get their defaults in `settings`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::BoolishValueParser;
use clap::{Arg, Args, Command, Subcommand, ValueEnum};
use regex::{Captures, Regex};

use crate::cluster::Taint;
use crate::config::types::Wait;
use crate::preflight;
use crate::report::explain;
use crate::report::reporter::{Format, Style};
use crate::report::screen::Color;

/// A plan that was confirmed on the screen of another process: `DIGEST:LINES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfirmedPlan {
    pub digest: String,
    /// How many lines of NDJSON that process has told.
    pub lines: u64,
}

impl std::fmt::Display for ConfirmedPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.digest, self.lines)
    }
}

impl std::str::FromStr for ConfirmedPlan {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once(':').and_then(|(digest, lines)| Some((digest.to_owned(), lines.parse().ok()?)));
        parts.map(|(digest, lines)| Self { digest, lines }).ok_or("it is not DIGEST:LINES")
    }
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
    /// It makes this plan, which was shown by the process that stays with it
    #[arg(long = "agreed", global = true, hide = true, value_name = "PLAN")]
    pub confirmed: Option<ConfirmedPlan>,
    /// What to do with this run if Windows restarts before it ends [default: leave, or finish with
    /// reboot.resumeOnBoot]
    #[arg(long, global = true, value_enum, value_name = "WAY", env = "CALICO_WIN_AT_BOOT")]
    pub at_boot: Option<AtBoot>,
    /// Show what would be done and stop; for fleet apply, =server asks the API server
    #[arg(
        short = 'n',
        long,
        global = true,
        value_enum,
        value_name = "server",
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "plan",
        ignore_case = true,
        hide_default_value = true,
        hide_possible_values = true,
        env = "CALICO_WIN_DRY_RUN"
    )]
    pub dry_run: DryRun,
    /// Exit 2 if a plan or a dry run finds something to change
    #[arg(long, global = true, env = "CALICO_WIN_DETAILED_EXITCODE", value_parser = BoolishValueParser::new())]
    pub detailed_exitcode: bool,
    /// Do not ask for confirmation
    #[arg(short, long, global = true, env = "CALICO_WIN_YES", value_parser = BoolishValueParser::new())]
    pub yes: bool,
    /// Never ask; fail instead
    #[arg(long, global = true, env = "CALICO_WIN_NO_INPUT", value_parser = BoolishValueParser::new())]
    pub no_input: bool,
    /// If another run is in progress, wait this long for its end, for example 90s or 10m
    #[arg(long, global = true, value_name = "TIME", env = "CALICO_WIN_WAIT_FOR_LOCK")]
    pub wait_for_lock: Option<Wait>,
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
        value_parser = check_id,
        env = "CALICO_WIN_IGNORE_PREFLIGHT_ERRORS"
    )]
    pub ignore_preflight_errors: Vec<String>,
    /// How exit codes are numbered
    #[arg(long, global = true, value_enum, default_value = "native", env = "CALICO_WIN_EXIT_CODES")]
    pub exit_codes: ExitCodes,
    /// Show more details; `-vv` also each request to the API server, on stderr
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

/// The verbs that start from the config that is named, or ask its cluster.
pub(crate) const TAKE_CONFIG: [&str; 15] = [
    "apply",
    "cluster",
    "config diff",
    "config show",
    "credentials",
    "install",
    "migrate",
    "kubernetes install",
    "node",
    "plan",
    "preflight",
    "reconfigure",
    "release download",
    "upgrade",
    "verify",
];
/// Those that use no node, or another machine's.
pub(crate) const TAKE_NOTHING: [&str; 7] =
    ["completion", "config init", "config schema", "config validate", "explain", "plan --print-facts", "version"];

/// A value as one word of a command line. To PowerShell, a comma makes two of it.
pub fn quoted(value: &str) -> String {
    if value.contains(|c: char| c.is_whitespace() || c == ',') { format!("\"{value}\"") } else { value.to_owned() }
}

fn path_and_value(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((path, _)) if !path.is_empty() => Ok(text.into()),
        _ => Err("write PATH=VALUE, for example calicoNetwork.vxlan.vxlanVNI=5000".into()),
    }
}

impl Global {
    pub fn is_dry_run(&self) -> bool {
        self.dry_run != DryRun::None
    }

    /// Adds this run's sandbox, config and kubeconfig to each command of this program in a text, so that it can be
    /// pasted. A command is on a line of its own, after a colon or in backticks, up to the end or to two spaces.
    pub fn repeated_in(&self, text: &str) -> String {
        static COMMAND: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"(?m)(?:^ *|: |`)calicoctl-win ((?:[^ `\n]| [^ `\n])+)").expect("it is one"));
        let added = |found: &Captures<'_>| {
            let is =
                |verb: &&str| found[1].strip_prefix(*verb).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
            let mut command = found[0].to_owned();
            let mut add = |flag: &str, value: &str| {
                if !found[1].contains(flag) {
                    command.push_str(&format!(" {flag} {}", quoted(value)));
                }
            };
            if is(&"explain") {
                self.calico_namespace.iter().for_each(|name| add("--calico-namespace", name));
            }
            if TAKE_NOTHING.iter().any(is) {
                return command;
            }
            if TAKE_CONFIG.iter().any(is) {
                let files: Vec<_> = self.config.iter().map(|file| file.to_string_lossy()).collect();
                // A saved plan has its config in it.
                if !found[1].contains("-c ") && !found[1].contains("--plan ") {
                    files.iter().filter(|file| *file != "-").for_each(|file| add("-c", file));
                }
                self.kubeconfig.iter().for_each(|file| add("--kubeconfig", file));
                self.context.iter().for_each(|context| add("--context", context));
            }
            self.sandbox.iter().for_each(|dir| add("--sandbox", &dir.to_string_lossy()));
            command
        };
        COMMAND.replace_all(text, added).into_owned()
    }

    pub fn style(&self) -> Style {
        Style {
            format: self.output.unwrap_or_default(),
            color: self.color,
            verbose: self.verbose > 0,
            quiet: self.quiet,
        }
    }
}

/// What a dry run asks. The other names are those of a variable that is set or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// It is no dry run
    #[value(hide = true, aliases = ["false", "no", "off", "f", "n", "0"])]
    None,
    /// Only this program
    #[value(aliases = ["true", "yes", "on", "t", "y", "1"])]
    Plan,
    /// The API server too
    Server,
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

/// The same, or everything from one file.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceOrBundle {
    #[command(flatten)]
    pub source: Source,
    /// File with everything, of release bundle; nothing is downloaded, and --sha256 is the file's
    #[arg(long, value_name = "FILE", conflicts_with = "release", env = "CALICO_WIN_BUNDLE")]
    pub bundle: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    pub source: SourceOrBundle,
    /// Apply a saved plan, with the config in it; refused if the node has changed since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["release", "sha256", "bundle"])]
    pub plan: Option<PathBuf>,
    /// Allow an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// When to drain the node first; auto: if the change interrupts pods
    #[arg(long = "drain", value_enum, value_name = "WHEN", default_value = "auto", env = "CALICO_WIN_DRAIN")]
    pub drains: Drains,
    #[command(flatten)]
    pub drain: DrainFlags,
}

/// When pods are moved away before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Drains {
    /// If the change interrupts pods, unless the config says otherwise
    Auto,
    /// Pods lose their network if the change interrupts it
    Never,
    /// Whatever is changed
    Always,
}

#[derive(Debug, Args)]
pub struct Install {
    #[command(flatten)]
    pub source: SourceOrBundle,
    /// Apply a saved plan, with the config in it; refused if the node has changed since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["release", "sha256", "bundle", "no_start"])]
    pub plan: Option<PathBuf>,
    /// Allow an older release than the one on this node
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Register the services but do not start them
    #[arg(long)]
    pub no_start: bool,
    /// Prepare an image: put the release, this program, kubelet and kube-proxy in place and register the services,
    /// disabled; asks no cluster, changes no network, and writes nothing that names this machine
    #[arg(long, conflicts_with_all = ["plan", "no_start", "download_only", "allow_downgrade"])]
    pub prepare: bool,
    /// Download and verify the release, then stop
    #[arg(long, conflicts_with = "bundle")]
    pub download_only: bool,
}

#[derive(Debug, Args)]
pub struct Reconfigure {
    /// Reset a field to its default, or to what the cluster says; repeatable
    #[arg(long, value_name = "PATH")]
    pub unset: Vec<String>,
    /// Apply a saved plan, with the config in it; refused if the node has changed since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["unset"])]
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
    pub source: SourceOrBundle,
    /// Apply a saved plan, with the config in it; refused if the node has changed since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["release", "sha256", "bundle"])]
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

#[derive(Debug, Args)]
pub struct MigrateFromFlannel {
    #[command(flatten)]
    pub source: SourceOrBundle,
    /// Do not drain the node; refused if pods use Flannel's network
    #[arg(long)]
    pub no_drain: bool,
    #[command(flatten)]
    pub drain: DrainFlags,
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

#[derive(Debug, Args)]
pub struct NetworkReset {
    /// Do not drain the node: its pods lose their network
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

/// What is done with an installation by Calico's own scripts that was adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AdoptedFlag {
    /// It comes back and runs, as before the first install
    Restore,
    /// It is removed too
    Remove,
}

#[derive(Debug, Default, Args)]
pub struct Uninstall {
    /// What to do with an installation by Calico's own scripts that this tool adopted [default: restore]; one that it
    /// did not adopt is removed
    #[arg(long, value_enum, value_name = "WAY", env = "CALICO_WIN_ADOPTED")]
    pub adopted: Option<AdoptedFlag>,
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

impl DrainFlags {
    /// The first of these flags that a command line has. Variables do not count: they are for every drain.
    pub fn typed(words: &[OsString]) -> Option<&str> {
        let flags = Self::augment_args(Command::new("drain"));
        let names: Vec<&str> = flags.get_arguments().filter_map(Arg::get_long_and_visible_aliases).flatten().collect();
        words.iter().filter_map(|word| word.to_str()?.split('=').next()).find(|word| {
            let name = word.strip_prefix("--");
            name.is_some_and(|name| name == "timeout" || names.contains(&name))
        })
    }
}

/// An id of a check on the command line; a former one too.
fn check_id(id: &str) -> Result<String, String> {
    let id = id.trim();
    let is_known = preflight::renamed(id).is_some() || preflight::unknown_ids(&[id.to_owned()]).is_empty();
    if is_known { Ok(id.to_owned()) } else { Err(no_such_check(id)) }
}

/// Says that no check has this id, and which one is like it.
pub(super) fn no_such_check(id: &str) -> String {
    let near = explain::did_you_mean(id, [].into_iter())
        .into_iter()
        .find(|near| preflight::catalogue().any(|row| row.id == *near));
    let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    format!("there is no check `{id}` to ignore{meant}")
}

/// What is done to this machine's Kubernetes Node, and to nothing else.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Keep new pods off the node
    Cordon,
    /// Let new pods run on the node again; refused while an interrupted run has left the node half changed
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
