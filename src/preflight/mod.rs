//! Checks that decide, before anything is changed, whether an install can work: rows of data, each
//! a pure function of what was measured. All run, and all failures are shown at once.

mod builds;
mod cluster;
mod fix;
mod machine;
mod network;
mod node;
mod platform;
mod policies;
mod renamed;
pub mod report;
mod support;
#[cfg(test)]
mod tests;

pub use cluster::minor;
pub use fix::{Fix, fix};
pub use machine::has_flannel;
pub use node::machine_read;
pub use renamed::{RENAMED, renamed};

use crate::facts::{ClusterFacts, NodeFacts, Part, Survey};
use crate::fault::{Exit, Fault};
use crate::settings::{Backend, ClusterSide, Kubernetes, Network, RemoteAccess, Settings};
use crate::version::CalicoVersion;
use report::{Check, CheckStatus, FailedChecks, PreflightReport, Summary};

/// What checks examine. None: it was not measured, and checks that need it are skipped.
#[derive(Default)]
pub struct Input<'a> {
    pub settings: Option<&'a Settings>,
    /// The part of the config that concerns the cluster, which is known also if the settings cannot be resolved.
    pub side: Option<&'a ClusterSide>,
    pub node: Option<&'a NodeFacts>,
    pub cluster: Option<&'a ClusterFacts>,
    /// Why the cluster did not answer, if it was asked.
    pub cluster_failure: Option<&'a str>,
    /// The run removes Flannel first.
    pub replaces_flannel: bool,
    /// Ways by which people must be able to reach the machine.
    pub remote_access: &'a [RemoteAccess],
    /// Only `preflight` tries it: a run says itself what is wrong when it gets it.
    pub needs: Option<&'a Needs>,
}

/// What a run gets from elsewhere, and whether it is there.
pub struct Needs {
    /// The bootstrap token of a kubelet that has not joined.
    pub join: Finding,
    /// The release and Kubernetes' programs.
    pub sources: Finding,
}

impl<'a> Input<'a> {
    /// The pods' network, if it is decided.
    fn network(&self) -> Option<&'a Network> {
        self.side?.network.as_ref()
    }

    /// Why what concerns the pods' network is not checked: it is not Calico's. None if it is, or nothing is decided.
    fn other_plugin(&self) -> Option<Finding> {
        let other = self.network().is_some_and(|network| network.backend == Backend::None);
        other.then(|| Finding::Skip("another plugin owns the network".into()))
    }

    fn kubernetes(&self) -> Option<&'a Kubernetes> {
        self.side.map(|side| &side.kubernetes)
    }

    /// Whether the config itself names the backend.
    fn names_backend(&self) -> bool {
        self.side.is_some_and(|side| side.names_backend)
    }

    /// Whether Calico keeps its data in etcd.
    fn etcd(&self) -> bool {
        self.side.is_some_and(|side| side.etcd)
    }

    /// The release to install.
    fn release(&self) -> Option<&'a CalicoVersion> {
        self.side?.version.as_ref()
    }
}

/// How bad a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Stops the run; cannot be ignored. The exit class is the check's own.
    Hard(Exit),
    /// Stops the run with an exit class of its own, unless it is ignored by id.
    Refusal(Exit),
    /// Stops the run unless it is ignored by id.
    Error,
    Warning,
}

impl Severity {
    /// The words for it in the table of checks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hard(_) => "error, cannot be ignored",
            Self::Refusal(_) | Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Pass(String),
    /// Worth knowing, whatever the severity of a failure.
    Warn(String),
    Fail(String),
    /// The check does not apply here.
    Skip(String),
    /// Unknown: the question was refused or not asked.
    Unknown(String),
}

/// What a check needs, and how it judges that.
#[derive(Clone, Copy)]
pub enum Judge {
    Node(fn(&NodeFacts, &Input) -> Finding),
    /// What else is on the machine.
    Machine(fn(&Survey, &NodeFacts, &Input) -> Finding),
    Cluster(fn(&ClusterFacts, &Input) -> Finding),
    /// One of Calico's own resources. The text is calicoctl's command that shows what the check examines, for the
    /// datastore etcdv3 if etcd was not read.
    Calico(&'static str, fn(&ClusterFacts, &Input) -> Finding),
}

impl Judge {
    const fn needs_node(self) -> bool {
        matches!(self, Self::Node(_) | Self::Machine(_))
    }
}

/// One row.
pub struct Row {
    pub id: &'static str,
    pub severity: Severity,
    pub why: &'static str,
    /// What to do: a sentence or a command on each line, with its effect if that hurts. People paste
    /// them, and a `;` joins commands in PowerShell.
    pub fix: &'static str,
    pub judge: Judge,
}

/// The rows, each with its group, in the order in which they are shown.
const GROUPS: [(&str, &[Row]); 7] = [
    ("node", node::ROWS),
    ("machine", machine::ROWS),
    ("cluster", cluster::ROWS),
    ("network", network::ROWS),
    ("network", policies::ROWS),
    ("calico", support::ROWS),
    ("platform", platform::ROWS),
];

fn grouped() -> impl Iterator<Item = (&'static str, &'static Row)> {
    GROUPS.iter().flat_map(|(group, rows)| rows.iter().map(move |row| (*group, row)))
}

/// Every check.
pub fn catalogue() -> impl Iterator<Item = &'static Row> {
    grouped().map(|(_, row)| row)
}

/// The id of a check as static text, for events.
pub fn known_id(id: &str) -> &'static str {
    catalogue().find(|row| row.id == id).map_or("PREFLIGHT_FAILED", |row| row.id)
}

/// Which checks are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Everything,
    /// What needs no node.
    Cluster,
}

/// Runs every check in scope.
pub fn run(scope: Scope, input: &Input, ignored: &[String]) -> PreflightReport {
    let within = |row: &Row| scope == Scope::Everything || !row.judge.needs_node();
    let rows = grouped().filter(|(_, row)| within(row));
    let checks: Vec<Check> = rows.map(|(group, row)| examine(group, row, input, ignored)).collect();
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let summary = Summary {
        ok: count(CheckStatus::Ok),
        warn: count(CheckStatus::Warn),
        fail: count(CheckStatus::Fail),
        skip: count(CheckStatus::Skip),
        unknown: count(CheckStatus::Unknown),
    };
    PreflightReport { checks, summary }
}

fn judge(row: &Row, input: &Input) -> Finding {
    match row.judge {
        Judge::Node(judge) => match input.node {
            Some(node) => judge(node, input),
            None => Finding::Skip("no node was examined".into()),
        },
        Judge::Machine(judge) => match input.node.map(|node| (node, &node.survey)) {
            Some((node, Some(survey))) => judge(survey, node, input),
            Some((node, None)) => node::unread(node, Part::Survey, "the machine's services and networks were not read"),
            None => Finding::Skip("no node was examined".into()),
        },
        Judge::Cluster(judge) | Judge::Calico(_, judge) => match (input.cluster, input.cluster_failure) {
            (Some(cluster), _) => in_etcd(row, judge(cluster, input), input),
            (None, Some(failure)) if row.id == cluster::REACHABLE => Finding::Fail(failure.to_owned()),
            (None, Some(_)) => Finding::Unknown("the cluster did not answer".into()),
            (None, None) => Finding::Skip("the cluster was not asked".into()),
        },
    }
}

/// If what is kept in etcd was not read, a check of it cannot pass.
fn in_etcd(row: &Row, found: Finding, input: &Input) -> Finding {
    let read = input.cluster.is_some_and(|cluster| cluster.etcd_read);
    match (row.judge, found) {
        (Judge::Calico(command, _), Finding::Pass(_) | Finding::Unknown(_)) if input.etcd() && !read => {
            Finding::Unknown(format!("Calico keeps it in etcd, which was not read; to see it: {command}"))
        }
        (_, found) => found,
    }
}

fn examine(group: &str, row: &Row, input: &Input, ignored: &[String]) -> Check {
    let (status, detail) = match judge(row, input) {
        Finding::Pass(detail) => (CheckStatus::Ok, detail),
        Finding::Skip(detail) => (CheckStatus::Skip, detail),
        Finding::Unknown(detail) => (CheckStatus::Unknown, detail),
        Finding::Warn(detail) => (CheckStatus::Warn, detail),
        Finding::Fail(detail) if row.severity == Severity::Warning => (CheckStatus::Warn, detail),
        Finding::Fail(detail) => (CheckStatus::Fail, detail),
    };
    let hard = matches!(row.severity, Severity::Hard(_));
    let named = ignored.iter().any(|id| id.eq_ignore_ascii_case(row.id));
    Check {
        id: row.id.into(),
        group: group.into(),
        status,
        ignored: status == CheckStatus::Fail && named && !hard,
        detail,
        why: Some(row.why.into()),
        fix: Some(if input.etcd() { with_calicoctl(row) } else { row.fix.into() }),
    }
}

/// The fix of a check, by calicoctl, which changes what is in etcd.
fn with_calicoctl(row: &Row) -> String {
    match row.judge {
        Judge::Calico(..) if row.id == network::STRICT_AFFINITY => {
            "calicoctl ipam configure --strictaffinity=true".into()
        }
        Judge::Calico(..) => row
            .fix
            .replace("kubectl ", "calicoctl ")
            .replace("\ncalicoctl-win cluster prepare  # shows the patches", ""),
        _ => row.fix.into(),
    }
}

/// Checks of the whole cluster, which the run on one of many nodes skips.
pub const OF_WHOLE_CLUSTER: [&str; 10] = [
    "LinuxWorker",
    "PoolBlocks",
    "HostEndpoints",
    "PoliciesSupported",
    "PolicyCost",
    "ApplicationLayerPolicy",
    "BgpPeers",
    "Typha",
    "TyphaWorkers",
    "ServiceAdvertisement",
];

/// Checks that may succeed later without any change: kubelet registers the Node after the first boot, and Windows sets
/// the clock.
const PASSING: [&str; 3] = ["CalicoServiceAccount", "NodeRegistered", "ClockInSync"];

/// Whether a run may continue.
///
/// # Errors
/// One fault that names every failed check, with [`FailedChecks`]; its class is that of the first with its own class.
pub fn verdict(report: &PreflightReport) -> anyhow::Result<()> {
    let failed: Vec<&Check> =
        report.checks.iter().filter(|check| check.status == CheckStatus::Fail && !check.ignored).collect();
    let Some(first) = failed.first() else { return Ok(()) };
    let row = |check: &Check| catalogue().find(|row| row.id == check.id);
    let exit = failed.iter().find_map(|check| match row(check)?.severity {
        Severity::Hard(exit) | Severity::Refusal(exit) => Some(exit),
        Severity::Error | Severity::Warning => None,
    });
    let (what, hint) = match failed.as_slice() {
        [one] => (one.detail.clone(), one.fix.clone().unwrap_or_default()),
        several => {
            let ids: Vec<&str> = several.iter().map(|check| check.id.as_str()).collect();
            let what = format!("{} checks failed: {}", several.len(), ids.join(", "));
            (what, "fix what each check names, then run the command again".to_owned())
        }
    };
    let passes = |check: &&Check| {
        PASSING.contains(&check.id.as_str())
            || row(check).is_some_and(|row| row.severity == Severity::Hard(Exit::ClusterUnreachable))
    };
    let fault = Fault::new(exit.unwrap_or(Exit::PreflightFailed), known_id(&first.id), what.clone())
        .hint(hint)
        .retryable(failed.iter().all(passes));
    Err(fault.because(FailedChecks { what, checks: failed.into_iter().cloned().collect() }))
}

/// Whether the only failed check is that of etcd.
pub fn is_etcd_alone(failed: &[Check]) -> bool {
    matches!(failed, [one] if one.id == cluster::ETCD_ANSWERS)
}

/// The ids in this list that no check has.
pub fn unknown_ids(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).filter(|id| !catalogue().any(|row| row.id.eq_ignore_ascii_case(id))).collect()
}

/// The catalogue as a Markdown document, which is `docs/checks.md`: one table, then a section for
/// each, which `explain` shows.
pub fn document() -> String {
    let mut text = String::from(
        "# Checks\n\nWhat `calicoctl-win preflight` checks. `calicoctl-win cluster check` runs the checks that need no \
         node, and `install` runs all of them before it changes anything. Every check runs, and all failures are shown \
         at once. An error stops the run unless `--ignore-preflight-errors ID` names it; a warning does not.\n\n\
         This page is generated from the catalogue in `src/preflight`, and a test compares them.\n\n\
         | check | group | severity | what it is for |\n|---|---|---|---|\n",
    );
    for (group, Row { id, severity, why, .. }) in grouped() {
        text.push_str(&format!("| `{id}` | {group} | {} | {why} |\n", severity.name()));
    }
    for (group, row) in grouped() {
        let (id, severity, why, fix) = (row.id, row.severity.name(), capital(row.why), lines(row.fix));
        text.push_str(&format!("\n## {id}\nA check, group {group} ({severity}). {why}.\n\nWhat to do:{fix}\n"));
        if let Judge::Calico(command, _) = row.judge {
            text.push_str(&format!(
                "\nWith the datastore etcdv3 the result is unknown if etcd was not asked. To look at it yourself: \
                 `{command}`\n"
            ));
        }
    }
    text
}

/// Markdown for one line, or a code block for several.
fn lines(text: &str) -> String {
    if text.contains('\n') { format!("\n\n```text\n{text}\n```") } else { format!(" {text}") }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
