//! The objects of a rollout as the cluster has them: the fields that are used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::objects::{FORMER_VNI, IDLE, MAX_UNAVAILABLE, MaxUnavailable, ORDER, REVISION, VNI, WAVE};
use super::waves::FleetNode;
use crate::values::Vni;

/// A rollout. In lists: maps for each kind would make the program larger, and thousands are found fast enough.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    pub sets: Vec<DaemonSet>,
    pub revisions: Vec<Revision>,
    pub pods: Vec<FleetPod>,
    /// Every Windows node.
    pub nodes: Vec<FleetNode>,
    /// The VNI of FelixConfiguration, which Linux nodes follow; none if it was not read.
    pub felix_vni: Option<u32>,
}

/// Why the kubelet does not start a container, when trying again does not help by itself.
const CANNOT_START: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// Results of a container that are not the end of its run: the next one resumes the run, or waits for it.
const WITHOUT_END: [&str; 4] = ["Busy", "InterruptedRun", "NodeLeased", "RunInProgress"];

/// After so many tries, a run that is lost each time is as good as failed.
const TRIES: u32 = 5;

/// The label of a revision of a DaemonSet, and of its pods, with its hash (`DefaultDaemonSetUniqueLabelKey` in
/// Kubernetes' `pkg/apis/apps`).
pub(super) const HASH: &str = "controller-revision-hash";

/// The fields of a DaemonSet that are used.
#[derive(Debug, Clone, Deserialize)]
pub struct DaemonSet {
    pub metadata: Metadata,
    pub spec: SetSpec,
    #[serde(default)]
    pub(super) status: SetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub(super) generation: i64,
    pub(super) deletion_timestamp: Option<Timestamp>,
    owner_references: Vec<Owner>,
}

#[derive(Debug, Clone, Deserialize)]
struct Owner {
    name: String,
}

impl Metadata {
    /// Whether this is a revision of a DaemonSet.
    pub fn is_of(&self, set: &DaemonSet) -> bool {
        self.owner_references.iter().any(|owner| owner.name == set.metadata.name)
    }
}

/// What names a revision of a DaemonSet, as its controller keeps it.
#[derive(Debug, Clone, Deserialize)]
pub struct Revision {
    pub metadata: Metadata,
    /// The highest is that of the current pods: an earlier one that is returned to gets the next number.
    pub(super) revision: i64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetSpec {
    pub(super) template: Template,
    #[serde(default)]
    update_strategy: Strategy,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Template {
    pub metadata: Metadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Strategy {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SetStatus {
    pub observed_generation: i64,
    pub desired_number_scheduled: usize,
    current_number_scheduled: usize,
    pub updated_number_scheduled: usize,
    number_ready: usize,
}

impl Fleet {
    /// The hash of the current revision of a DaemonSet, if it is known.
    pub(super) fn hash(&self, set: &DaemonSet) -> Option<&String> {
        let of_set = self.revisions.iter().filter(|one| one.metadata.is_of(set));
        of_set.max_by_key(|one| one.revision).and_then(|one| one.metadata.labels.get(HASH))
    }
}

impl DaemonSet {
    /// What its pods install.
    pub fn revision(&self) -> &str {
        self.spec.template.metadata.annotations.get(REVISION).map_or(IDLE, String::as_str)
    }

    pub fn is_idle(&self) -> bool {
        self.revision() == IDLE
    }

    pub fn is_paused(&self) -> bool {
        self.spec.update_strategy.kind == "OnDelete"
    }

    /// Increases with each change of its spec.
    pub fn generation(&self) -> i64 {
        self.metadata.generation
    }

    pub fn wave(&self) -> &str {
        self.metadata.labels.get(WAVE).map_or(&self.metadata.name, String::as_str)
    }

    /// Its place among the waves.
    pub fn order(&self) -> usize {
        self.metadata.annotations.get(ORDER).and_then(|order| order.parse().ok()).unwrap_or(usize::MAX)
    }

    /// The limit that it keeps, or keeps again after a pause.
    pub fn max_unavailable(&self) -> MaxUnavailable {
        let limit = self.metadata.annotations.get(MAX_UNAVAILABLE);
        limit.and_then(|limit| limit.parse().ok()).unwrap_or(MaxUnavailable::Nodes(1))
    }

    /// The VNI that its pods' config sets.
    pub(super) fn template_vni(&self) -> Option<Vni> {
        vni(&self.spec.template.metadata, VNI)
    }

    /// The VNI that the last change sets, also after it was undone.
    pub fn vni(&self) -> Option<Vni> {
        vni(&self.metadata, VNI)
    }

    /// The VNI that the cluster had before the last change.
    pub fn former_vni(&self) -> Option<Vni> {
        vni(&self.metadata, FORMER_VNI)
    }

    /// Whether the controller has read it as it is now, and every one of its nodes has a pod.
    pub fn is_placed(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation
            && self.status.current_number_scheduled >= self.status.desired_number_scheduled
    }

    /// Whether the controller says so, and that every pod is of the current revision and Ready.
    pub(super) fn is_replaced(&self) -> bool {
        let all = self.status.desired_number_scheduled;
        self.is_placed() && self.status.updated_number_scheduled >= all && self.status.number_ready >= all
    }
}

/// The fields of a pod of a wave that are used.
#[derive(Debug, Clone, Deserialize)]
pub struct FleetPod {
    pub metadata: Metadata,
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    conditions: Vec<Condition>,
    init_container_statuses: Vec<Container>,
    container_statuses: Vec<Container>,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    state: State,
    last_state: State,
    restart_count: u32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
    message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    exit_code: i32,
    message: String,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

/// Why a node failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cause {
    pub id: String,
    pub what: String,
}

/// A node without the change.
pub(super) struct Failed {
    pub cause: Cause,
    /// Its run was lost, and the container that its kubelet starts next may end it well.
    pub is_lost: bool,
}

impl FleetPod {
    pub(super) fn node(&self) -> &str {
        &self.spec.node_name
    }

    /// Whether it is of the current revision of its DaemonSet, whose hash this is if the revision is known. Pods that
    /// install the same can be replaced too, for example by `kubectl rollout restart`.
    pub(super) fn is_current(&self, set: &DaemonSet, hash: Option<&String>) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && self.metadata.annotations.get(REVISION).is_some_and(|made| made == set.revision())
            && hash.is_none_or(|hash| self.metadata.labels.get(HASH) == Some(hash))
    }

    /// The VNI that its config sets.
    pub(super) fn vni(&self) -> Option<Vni> {
        vni(&self.metadata, VNI)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    /// Why the change failed on its node, if it did; also while the container is tried again.
    pub(super) fn failure(&self) -> Option<Failed> {
        let containers = || self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let mut waiting = containers().filter_map(|one| one.state.waiting.as_ref());
        if let Some(waiting) = waiting.find(|one| CANNOT_START.contains(&one.reason.as_str())) {
            let cause = Cause { id: waiting.reason.clone(), what: first_line(&waiting.message) };
            return Some(Failed { cause, is_lost: false });
        }
        let apply = self.status.init_container_statuses.first()?;
        let ended = apply.state.terminated.as_ref().or(apply.last_state.terminated.as_ref())?;
        (ended.exit_code != 0).then(|| failed(ended, apply.restart_count))
    }

    /// When the change began on its node and when it was made, if it is.
    pub(super) fn changed(&self) -> Option<(Timestamp, Timestamp)> {
        let ended = self.status.init_container_statuses.first()?.state.terminated.as_ref()?;
        Some((ended.started_at?, ended.finished_at?)).filter(|_| ended.exit_code == 0)
    }
}

/// What `run.ps1` printed last, which kubelet keeps as the message of a container that failed. One that was killed has
/// not printed it.
fn failed(ended: &Terminated, restarts: u32) -> Failed {
    let result = ended.message.lines().rev().find_map(|line| line.trim().strip_prefix("result: "));
    // kubelet cuts the beginning of a line that is too long.
    let last = result.or(ended.message.lines().last()).unwrap_or_default();
    let id = text_of(last, "id");
    let is_lost = restarts + 1 < TRIES && id.as_deref().is_none_or(|id| WITHOUT_END.contains(&id));
    let cause = Cause {
        id: id.unwrap_or_else(|| format!("exit code {}", ended.exit_code)),
        what: text_of(last, "what").unwrap_or_else(|| last.trim().to_owned()),
    };
    Failed { cause, is_lost }
}

/// A text of a JSON object, also of one of which another part is missing.
fn text_of(object: &str, name: &str) -> Option<String> {
    if let Ok(object) = serde_json::from_slice::<Value>(object.as_bytes()) {
        return object[name].as_str().map(str::to_owned);
    }
    let (_, rest) = object.split_once(&format!("\"{name}\":"))?;
    let rest = rest.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = rest.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    serde_json::from_slice(format!("\"{}\"", &rest[..end?]).as_bytes()).ok()
}

fn vni(metadata: &Metadata, annotation: &str) -> Option<Vni> {
    Vni::try_from(metadata.annotations.get(annotation)?.parse::<u32>().ok()?).ok()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
