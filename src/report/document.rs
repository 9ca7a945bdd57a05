//! The documents of `-o json`. Scripts depend on these names: fields are added, never renamed.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::fault::{Exit, Fault};
use crate::fleet::TriedObject;
use crate::item::NetworkKind;
use crate::plan::show::Plan;
pub use crate::preflight::report::{Check, CheckStatus, FailedChecks, PreflightReport, Summary};

/// The version of all documents.
pub const API_VERSION: &str = "calicoctl-win/v1alpha1";

/// A document that this program prints or writes. `cli::documents` is the table of all of them.
pub trait Document: Serialize {
    /// Its kind.
    const KIND: &'static str;
}

/// Puts `apiVersion` and `kind` before a document's own fields.
pub fn envelope<D: Document>(body: &D) -> Value {
    let mut document = json!({ "apiVersion": API_VERSION, "kind": D::KIND });
    if let (Some(top), Ok(Value::Object(fields))) = (document.as_object_mut(), serde_json::to_value(body)) {
        top.extend(fields);
    }
    document
}

/// How a run ended, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Succeeded,
    #[default]
    NoChanges,
    /// A dry run, or a plan, that found something to change.
    ChangesPending,
    Failed,
    Cancelled,
    RebootRequired,
    /// With `--detach`: the run continues in the background.
    Started,
}

/// The document of every verb that changes something, and of every failure of any verb.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct RunResult {
    /// Done, or nothing to do: also if Windows must still restart.
    pub success: bool,
    pub status: Status,
    pub changed: bool,
    pub exit_code: i32,
    pub exit_name: String,
    /// One sentence for people.
    pub msg: String,
    pub error: Option<Failure>,
    pub failed_phase: Option<String>,
    pub rolled_back: bool,
    pub reboot_required: bool,
    /// The current generation after the run.
    pub generation: Option<u32>,
    pub run: Option<String>,
    pub duration_ms: u64,
    /// From the first service stopped to the last one started.
    pub downtime_ms: u64,
    /// The log file, on the machine that ran this.
    pub log: Option<String>,
    /// The pods that were evicted, `namespace/name` each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub evicted: Vec<String>,
    /// The run's warnings, `Id: message` each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub warnings: Vec<String>,
    /// Useful commands now.
    pub next: Vec<String>,
    /// The archive or folder that a download has put here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// What a dry run would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// What the API server would do with each object, with `--dry-run=server`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub objects: Vec<TriedObject>,
}

/// What failed, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failure {
    pub what: String,
    pub why: Option<String>,
    /// The current state, and what was changed so far.
    pub state: String,
    pub hint: Option<String>,
    /// `explain` has a page for it.
    pub id: String,
    /// The same command may succeed later without any change.
    pub retryable: bool,
    /// The checks that failed, as in `PreflightReport`; absent for any other failure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub checks: Vec<Check>,
    /// All messages from the outermost to the root cause.
    pub chain: Vec<String>,
}

impl RunResult {
    /// A run that succeeded, or whose document says what is wrong.
    pub fn new(exit: Exit, changed: bool, msg: impl Into<String>) -> Self {
        let status = match exit {
            Exit::RebootRequired | Exit::RebootStarted => Status::RebootRequired,
            Exit::Ok if changed => Status::Succeeded,
            Exit::Ok => Status::NoChanges,
            _ => Status::Failed,
        };
        Self {
            success: status != Status::Failed,
            status,
            changed,
            exit_code: exit.code(),
            exit_name: exit.name().into(),
            msg: msg.into(),
            reboot_required: status == Status::RebootRequired,
            ..Self::default()
        }
    }

    /// A run that only read. `pending`: it found something to change.
    pub fn looked(pending: bool, msg: impl Into<String>) -> Self {
        let status = if pending { Status::ChangesPending } else { Status::NoChanges };
        Self { status, ..Self::new(Exit::Ok, false, msg) }
    }

    /// A run that failed.
    pub fn failed(error: &anyhow::Error) -> Self {
        let exit = exit_of(error);
        let failure = Failure::new(error);
        Self {
            success: false,
            status: if exit == Exit::Cancelled { Status::Cancelled } else { Status::Failed },
            error: Some(failure.clone()),
            rolled_back: exit == Exit::FailedRolledBack,
            ..Self::new(exit, false, failure.what)
        }
    }
}

/// Whole milliseconds, for documents.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The exit class of an error: that of its outermost fault, else FAILED.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    Fault::of(error).map_or(Exit::Failed, |fault| fault.exit)
}

impl Failure {
    pub fn new(error: &anyhow::Error) -> Self {
        let fault = Fault::of(error);
        let mut chain: Vec<String> = error.chain().map(|cause| shortened(&cause.to_string())).collect();
        // `start service X` adds nothing to `start service X: it ended right away`.
        chain.reverse();
        chain.dedup_by(|outer, inner| inner.starts_with(&**outer));
        chain.reverse();
        // The fault says what failed, its context during which operation.
        let what = fault.map_or_else(|| chain[0].clone(), |fault| shortened(&fault.what));
        let hint = match fault {
            Some(fault) => fault.hint.clone(),
            None => Some("fix the cause that is named here and run the command again; -v shows more".into()),
        };
        let checks = error.downcast_ref::<FailedChecks>().map_or_else(Vec::new, |failed| failed.checks.clone());
        let id = fault.map_or("Failed", |fault| fault.id).into();
        let state = "nothing was changed".into();
        let retryable = fault.is_some_and(Fault::is_retryable);
        let mut failure = Self { what, why: None, state, hint, id, retryable, checks, chain };
        let (_, causes) = failure.operations_and_causes();
        failure.why = (!causes.is_empty()).then(|| causes.join(": "));
        failure
    }

    /// What failed and why, in one line.
    pub fn line(&self) -> String {
        self.why.as_ref().map_or_else(|| self.what.clone(), |why| format!("{}: {why}", self.what))
    }

    /// What failed, why, the state, and what to do, for a program that shows one line.
    pub fn sentence(&self) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("; fix: {}", hint.replace('\n', "; ")));
        format!("{}: {}; state: {}{hint}", self.id, self.line(), self.state)
    }

    /// The operations that failed, from the outermost in, and the causes of the failure.
    pub fn operations_and_causes(&self) -> (&[String], &[String]) {
        let at = self.chain.iter().position(|said| *said == self.what).unwrap_or(0);
        (&self.chain[..at], self.chain.get(at + 1..).unwrap_or_default())
    }
}

/// How much of one message is shown, in characters: a server may answer with megabytes.
const LONGEST: usize = 2000;

fn shortened(message: &str) -> String {
    match message.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} ... ({} bytes in all)", &message[..end], message.len()),
        None => message.to_owned(),
    }
}

/// The document of `receipt list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Generations {
    /// Oldest first.
    pub generations: Vec<Generation>,
}

/// The document of `history`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct History {
    /// The newest 50 runs that could change the node, oldest first.
    pub runs: Vec<PastRun>,
}

/// A run of this program on the node. What an older version did not record is null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PastRun {
    pub run: String,
    pub command: Option<String>,
    /// The Windows account that started it.
    pub user: Option<String>,
    pub started: Option<Timestamp>,
    /// The name of its exit code; none if it has not ended, or was killed.
    pub result: Option<String>,
    pub changed: Option<bool>,
    /// The generation that was current at its end.
    pub generation: Option<u32>,
    pub msg: Option<String>,
    /// It was killed, or Windows restarted.
    pub interrupted: bool,
    /// The later run that ended what this one left half done.
    pub ended_by: Option<EndedBy>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EndedBy {
    pub run: String,
    pub command: String,
    /// `finished`, `undone`, or `replaced` by another change.
    pub how: String,
}

impl PastRun {
    /// How it ended, for people.
    pub fn ended(&self) -> String {
        let mut text = match &self.result {
            Some(result) => result.clone(),
            None if self.interrupted => "interrupted".into(),
            None => "not ended".into(),
        };
        if let Some(EndedBy { run, command, how }) = &self.ended_by {
            text.push_str(&format!(", {how} by {command} ({run})"));
        }
        text
    }
}

/// One generation of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Generation {
    pub generation: u32,
    pub finished: Timestamp,
    pub run: String,
    /// The verb that created it.
    pub command: String,
    /// None after an uninstall, like all that follows.
    pub calico_version: Option<String>,
    pub backend: Option<String>,
    pub vni: Option<u32>,
    pub node_name: Option<String>,
    /// It is the node's wanted state now.
    pub standing: bool,
    /// All its files are kept, for `rollback --to`.
    pub can_go_back: bool,
}

/// The document of `plan`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PlanDocument {
    #[serde(flatten)]
    pub plan: Plan,
    /// Things to know that do not stop the run.
    pub warnings: Vec<String>,
}

/// The document of `status`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NodeStatus {
    pub overall: Overall,
    /// Why it is not healthy, a sentence each: the messages of `problems`.
    pub reasons: Vec<String>,
    /// Why it is not healthy, each with what to run next.
    pub problems: Vec<Problem>,
    pub generation: Option<u32>,
    pub calico_version: Option<String>,
    pub backend: Option<String>,
    pub services: Vec<ServiceStatus>,
    pub networks: Vec<NetworkStatus>,
    pub cni: Option<CniStatus>,
    pub credentials: Vec<CredentialStatus>,
    pub node: Option<KubernetesNode>,
    /// Items that differ from the current generation.
    pub drift: Vec<String>,
    /// A run in progress, or one that was interrupted.
    pub run: Option<RunInProgress>,
    /// A change that is rolled back unless it is confirmed.
    pub trial: Option<OnTrial>,
    /// The VNI of this node, and of the rest of the cluster, while they differ.
    pub mixed_vni: Option<MixedVni>,
    /// With the backend windows-bgp: the peers to which Windows has a session.
    pub bgp_sessions: Option<BTreeSet<Ipv4Addr>>,
    /// With policy only: the HNS networks of the other plugin on whose pods Felix enforces policies.
    pub policy_networks: Option<Vec<String>>,
    /// Why Calico's datastore cannot be used from here; asked only if the node is not healthy.
    pub datastore: Option<String>,
    /// An interrupted `verify --pods`, whose pods may still be in the cluster.
    pub verify_left: Option<VerifyLeft>,
}

/// One reason why a node is not healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// `explain` has a page for it.
    pub id: &'static str,
    pub message: String,
    /// What solves it, or shows more.
    pub command: String,
}

impl NodeStatus {
    /// Adds a problem, with the words of the command without the program's name.
    pub fn problem(&mut self, id: &'static str, message: impl Into<String>, command: impl Into<String>) {
        self.problems.push(Problem { id, message: message.into(), command: command.into() });
    }

    pub fn has_problem(&self, id: &str) -> bool {
        self.problems.iter().any(|problem| problem.id == id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Overall {
    Healthy,
    Degraded,
    Failed,
    Changing,
    NotInstalled,
    /// The machine is prepared as an image: everything but its own config is in place, and no service runs.
    Prepared,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServiceStatus {
    pub name: String,
    /// `Running`, `Starting`, `Stopping`, `Paused`, `Stopped` or `Absent`.
    pub state: String,
    pub pid: Option<u32>,
    pub since: Option<Timestamp>,
    /// How often its component was restarted.
    pub restarts: Option<u32>,
    /// What the service waits for before it is ready, and for how long.
    pub waiting_for: Option<String>,
    /// Why it runs but is not ready: it is starting, Felix is not ready, or its log repeats an error.
    pub not_ready: Option<String>,
    /// The last exit code of its component.
    pub last_exit: Option<i32>,
    /// Its component crashes repeatedly.
    pub crash_loop: bool,
    /// Why it ended, if it did so by itself.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NetworkStatus {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: NetworkKind,
    pub vsid: Option<u32>,
    /// The VSID that the current generation needs, if it is another.
    #[serde(skip)]
    pub wanted_vsid: Option<u32>,
    pub management_ip: Option<String>,
    pub adapter: Option<String>,
    /// Version 2 of HNS does not show this network of Calico's, so that Calico and kube-proxy do not find it.
    pub unseen_by_v2: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CniStatus {
    pub conf: String,
    pub bin: String,
    /// `OK`, `Drifted`, `Missing`, or `Withdrawn` by the run that is in progress or was interrupted.
    pub state: String,
    pub drift: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CredentialStatus {
    pub kind: String,
    pub path: String,
    /// None for a token that does not expire.
    pub expires: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KubernetesNode {
    pub name: String,
    /// None when the cluster could not be asked.
    pub ready: Option<bool>,
    pub schedulable: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OnTrial {
    /// The run that made the change.
    pub run: String,
    /// The generation that a rollback restores.
    pub from: u32,
    /// When; none while its run is in progress.
    pub deadline: Option<Timestamp>,
    /// Why the rollback failed and is not retried any more; none while it is.
    pub given_up: Option<String>,
    /// The command that ends a trial that was given up.
    pub command: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VerifyLeft {
    pub run: String,
    pub since: Timestamp,
    /// What removes them.
    pub command: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MixedVni {
    pub node: u32,
    /// From FelixConfiguration.
    pub cluster: u32,
    /// The node had the cluster's VNI in an earlier generation, so FelixConfiguration is to follow.
    pub changed_here: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunInProgress {
    pub run: String,
    pub command: String,
    pub since: Timestamp,
    /// No process holds the lock any more: `resume` or `resume --undo`.
    pub interrupted: bool,
    /// For example `step 7 of 23: service CalicoNode`.
    pub at: Option<String>,
}

/// The document of `credentials show`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CredentialsReport {
    /// The node's logins. Never a secret.
    pub credentials: Vec<Credential>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Credential {
    /// `kubeconfig`, `etcd-certificate` or `etcd-ca`.
    pub kind: String,
    pub path: String,
    /// As `serviceaccount calico-system/calico-node`, or a certificate's common name.
    pub subject: Option<String>,
    /// None for what does not expire.
    pub expires: Option<Timestamp>,
    /// From when CalicoNode asks for another token, if it runs; none for what it does not renew.
    pub renewed_from: Option<Timestamp>,
    /// `TokenRequest`, `secret NAME`, `kubeconfig` or `file`.
    pub origin: String,
    /// What needs attention, a sentence each.
    pub problems: Vec<String>,
}

/// The document of `cluster prepare`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClusterPatches {
    /// None if the cluster is ready for Windows nodes, or will be after `awaited`.
    pub patches: Vec<ClusterPatch>,
    /// What the operator is configured to do and has not done yet, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClusterPatch {
    /// For example `ippools.crd.projectcalico.org default-ipv4-ippool`.
    pub object: String,
    pub why: String,
    /// The object does not exist and is created.
    pub create: bool,
    /// Traffic between pods is sent differently then, on Linux nodes too.
    pub interrupts: bool,
    /// A JSON merge patch, or the whole new object.
    pub patch: Value,
    /// The same with kubectl.
    pub command: String,
    /// What undoes it, with kubectl.
    pub undo: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_megabytes_is_shortened_everywhere() {
        let answer = "é".repeat(1_000_000);
        let error = anyhow::anyhow!("HTTP 500: {answer}").context("GET /version").context(answer);
        let failure = Failure::new(&error);
        for said in failure.chain.iter().chain(&failure.why).chain([&failure.what]) {
            assert!(said.chars().count() < 2 * LONGEST + 100, "{}", said.len());
        }
        assert!(failure.what.ends_with("é ... (2000000 bytes in all)"), "{}", failure.what);
    }
}
