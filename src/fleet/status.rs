//! How far a rollout is, from its DaemonSets and their pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::objects::{IDLE, MAX_UNAVAILABLE, MaxUnavailable, ORDER, REVISION, WAVE};

/// Why the kubelet does not start a container, when trying again does not help by itself.
const CANNOT_START: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// The label of a revision of a DaemonSet, and of its pods, with its hash (`DefaultDaemonSetUniqueLabelKey` in
/// Kubernetes' `pkg/apis/apps`).
const HASH: &str = "controller-revision-hash";

/// The fields of a DaemonSet that are used.
#[derive(Debug, Clone, Deserialize)]
pub struct DaemonSet {
    pub metadata: Metadata,
    pub spec: SetSpec,
    #[serde(default)]
    status: SetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    generation: i64,
    deletion_timestamp: Option<Timestamp>,
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
    metadata: Metadata,
    /// The highest is that of the current pods: an earlier one that is returned to gets the next number.
    revision: i64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetSpec {
    template: Template,
    #[serde(default)]
    update_strategy: Strategy,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Metadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Strategy {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SetStatus {
    observed_generation: i64,
    desired_number_scheduled: usize,
    current_number_scheduled: usize,
    updated_number_scheduled: usize,
    number_ready: usize,
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

    /// Whether the controller has read it as it is now, and every one of its nodes has a pod.
    pub fn is_placed(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation
            && self.status.current_number_scheduled >= self.status.desired_number_scheduled
    }

    /// Whether the controller says so, and that every pod is of the current revision and Ready.
    fn is_replaced(&self) -> bool {
        let all = self.status.desired_number_scheduled;
        self.is_placed() && self.status.updated_number_scheduled >= all && self.status.number_ready >= all
    }
}

/// The fields of a pod of a wave that are used.
#[derive(Debug, Clone, Deserialize)]
pub struct FleetPod {
    metadata: Metadata,
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
struct Cause {
    id: String,
    what: String,
}

impl FleetPod {
    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    /// Why the change failed on its node, if it did; also while the container is tried again.
    fn failure(&self) -> Option<Cause> {
        let containers = || self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let mut waiting = containers().filter_map(|one| one.state.waiting.as_ref());
        if let Some(waiting) = waiting.find(|one| CANNOT_START.contains(&one.reason.as_str())) {
            return Some(Cause { id: waiting.reason.clone(), what: first_line(&waiting.message) });
        }
        let apply = self.status.init_container_statuses.first()?;
        let ended = apply.state.terminated.as_ref().or(apply.last_state.terminated.as_ref())?;
        (ended.exit_code != 0).then(|| cause(ended))
    }

    /// How long the change took on its node, in seconds, if it is made.
    fn seconds(&self) -> Option<u64> {
        let ended = self.status.init_container_statuses.first()?.state.terminated.as_ref()?;
        let took = ended.finished_at?.duration_since(ended.started_at?).as_secs();
        u64::try_from(took).ok().filter(|_| ended.exit_code == 0)
    }
}

/// What `run.ps1` printed last, which kubelet keeps as the message of a container that failed.
fn cause(ended: &Terminated) -> Cause {
    let last = ended.message.lines().rev().find_map(|line| line.trim().strip_prefix("result: "));
    let said = last.and_then(|line| serde_json::from_str::<Value>(line).ok());
    let field = |name: &str| Some(said.as_ref()?[name].as_str()?.to_owned());
    Cause {
        id: field("id").unwrap_or_else(|| format!("exit code {}", ended.exit_code)),
        what: field("what").unwrap_or_else(|| ended.message.lines().last().unwrap_or_default().trim().to_owned()),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Where a wave is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum WaveState {
    /// Its pods are still those of before.
    Waiting,
    Rolling,
    Paused,
    /// As many nodes failed as may be out at once, so no further node begins.
    Stopped,
    Done,
}

/// The document of `fleet status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FleetStatus {
    pub namespace: String,
    /// What the first wave installs; `none` before the first rollout.
    pub revision: String,
    /// In their order.
    pub waves: Vec<WaveStatus>,
    /// By cause, the most frequent first.
    pub failures: Vec<FleetFailure>,
    /// Windows nodes without a pod of any wave, except those that a label leaves out.
    pub uncovered: Vec<String>,
    /// Windows nodes that the label `calicoctl-win/fleet=off` leaves out.
    pub left_out: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WaveStatus {
    pub name: String,
    pub daemon_set: String,
    pub revision: String,
    pub state: WaveState,
    /// Windows nodes with a pod of this wave.
    pub nodes: usize,
    /// Calico works there as the revision says.
    pub done: usize,
    pub in_progress: usize,
    pub failed: usize,
    /// A number or a share, for example `10%`.
    pub max_unavailable: String,
    /// Until the wave is done, as the nodes that are done took; null without one.
    pub eta_seconds: Option<u64>,
}

/// Nodes on which the change failed for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FleetFailure {
    /// `explain` has a page for it, unless it is a reason of the kubelet's, or an exit code.
    pub id: String,
    pub what: String,
    pub nodes: Vec<String>,
}

/// Judges the DaemonSets, their revisions and pods of a namespace. `nodes`: every Windows node, and whether a label
/// leaves it out.
pub fn status(
    namespace: &str,
    sets: &[DaemonSet],
    revisions: &[Revision],
    pods: &[FleetPod],
    nodes: &[(String, bool)],
) -> FleetStatus {
    let mut sets: Vec<&DaemonSet> = sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
    sets.sort_by_key(|set| set.order());
    let revision = sets.first().map_or(IDLE, |set| set.revision());
    let mut causes: BTreeMap<Cause, Vec<String>> = BTreeMap::new();
    let mut waves = Vec::new();
    for set in sets {
        let of_wave = |pod: &&FleetPod| pod.metadata.labels.get(WAVE).is_some_and(|wave| wave == set.wave());
        let all: Vec<&FleetPod> = pods.iter().filter(of_wave).collect();
        let of_set = revisions.iter().filter(|one| one.metadata.is_of(set));
        let hash = of_set.max_by_key(|one| one.revision).and_then(|one| one.metadata.labels.get(HASH));
        // Pods that install the same can be replaced too, for example by `kubectl rollout restart`.
        let is_new = |pod: &&&FleetPod| {
            pod.metadata.deletion_timestamp.is_none()
                && pod.metadata.annotations.get(REVISION).is_some_and(|made| made == set.revision())
                && hash.is_none_or(|hash| pod.metadata.labels.get(HASH) == Some(hash))
        };
        let (mut done, mut failed, mut new) = (0, 0, 0);
        let (mut seconds, mut timed) = (0, 0);
        for pod in all.iter().filter(is_new) {
            new += 1;
            if pod.is_ready() {
                done += 1;
                if let Some(took) = pod.seconds() {
                    (seconds, timed) = (seconds + took, timed + 1);
                }
            } else if let Some(cause) = pod.failure() {
                failed += 1;
                causes.entry(cause).or_default().push(pod.spec.node_name.clone());
            }
        }
        let nodes = set.status.desired_number_scheduled.max(all.len());
        let limit = set.max_unavailable();
        let state = if set.is_idle() || set.revision() != revision {
            WaveState::Waiting
        } else if set.is_replaced() && done == nodes {
            WaveState::Done
        } else if set.is_paused() {
            WaveState::Paused
        } else if failed > 0 && failed >= limit.of(nodes) {
            WaveState::Stopped
        } else {
            WaveState::Rolling
        };
        let rounds = (nodes - done).div_ceil(limit.of(nodes).max(1)) as u64;
        let eta_seconds = (state == WaveState::Rolling && timed > 0).then(|| rounds * (seconds / timed));
        waves.push(WaveStatus {
            name: set.wave().to_owned(),
            daemon_set: set.metadata.name.clone(),
            revision: set.revision().to_owned(),
            state,
            nodes,
            done,
            in_progress: new - done - failed,
            failed,
            max_unavailable: limit.to_string(),
            eta_seconds,
        });
    }
    let mut failures: Vec<FleetFailure> =
        causes.into_iter().map(|(Cause { id, what }, nodes)| FleetFailure { id, what, nodes }).collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.nodes.len()));
    let covered: std::collections::BTreeSet<&str> = pods.iter().map(|pod| pod.spec.node_name.as_str()).collect();
    let of = |off: bool| nodes.iter().filter(move |(_, out)| *out == off).map(|(name, _)| name.clone());
    FleetStatus {
        namespace: namespace.to_owned(),
        revision: revision.to_owned(),
        waves,
        failures,
        uncovered: of(false).filter(|name| !covered.contains(name.as_str())).collect(),
        left_out: of(true).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(wave: &str, order: usize, revision: &str, strategy: &str, nodes: usize) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("calicoctl-win-{wave}"), "generation": 2, "labels": { WAVE: wave },
                "annotations": { ORDER: order.to_string(), MAX_UNAVAILABLE: "2" },
            },
            "spec": {
                "template": { "metadata": { "annotations": { REVISION: revision } } },
                "updateStrategy": { "type": strategy },
            },
            "status": {
                "observedGeneration": 2, "desiredNumberScheduled": nodes, "currentNumberScheduled": nodes,
                "updatedNumberScheduled": nodes, "numberReady": nodes,
            },
        }))
        .unwrap()
    }

    fn pod(wave: &str, node: &str, revision: &str, status: Value) -> FleetPod {
        serde_json::from_value(json!({
            "metadata": { "labels": { WAVE: wave }, "annotations": { REVISION: revision } },
            "spec": { "nodeName": node },
            "status": status,
        }))
        .unwrap()
    }

    fn ready() -> Value {
        let ended = json!({
            "exitCode": 0, "startedAt": "2026-01-02T15:00:00Z", "finishedAt": "2026-01-02T15:04:00Z",
        });
        json!({
            "conditions": [{ "type": "Ready", "status": "True" }],
            "initContainerStatuses": [{ "state": { "terminated": ended } }],
        })
    }

    fn failed(message: &str) -> Value {
        let ended = json!({ "exitCode": 9, "message": message });
        json!({ "initContainerStatuses": [{
            "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": ended },
        }] })
    }

    const RESULT: &str = "12:00:01 downloading\nresult: {\"exit_name\":\"FAILED\",\"id\":\"ReleaseDigestMismatch\",\"what\":\"the archive is another one\"}\n";

    fn judged(sets: &[DaemonSet], pods: &[FleetPod]) -> FleetStatus {
        let nodes: Vec<(String, bool)> = pods.iter().map(|pod| (pod.spec.node_name.clone(), false)).collect();
        status("fleet", sets, &[], pods, &nodes)
    }

    #[test]
    fn a_status_has_the_waves_and_the_failed_nodes_by_their_cause() {
        let sets = [set("others", 2, "old", "RollingUpdate", 2), set("canary", 1, "new", "RollingUpdate", 5)];
        let pods = [
            pod("canary", "a", "new", ready()),
            pod("canary", "b", "new", failed(RESULT)),
            pod("canary", "c", "new", json!({})),
            pod("canary", "d", "old", ready()),
            pod("canary", "e", "old", ready()),
            pod("others", "f", "old", ready()),
            pod("others", "g", "old", ready()),
        ];
        let nodes = pods.iter().map(|pod| (pod.spec.node_name.clone(), false));
        let nodes: Vec<_> = nodes.chain([("h".to_owned(), false), ("i".to_owned(), true)]).collect();
        let status = status("fleet", &sets, &[], &pods, &nodes);
        let numbers = |wave: &WaveStatus| {
            (wave.name.clone(), wave.state, [wave.nodes, wave.done, wave.in_progress, wave.failed], wave.eta_seconds)
        };
        let waves: Vec<_> = status.waves.iter().map(numbers).collect();
        let canary = ("canary".to_owned(), WaveState::Rolling, [5, 1, 1, 1], Some(480));
        assert_eq!(waves, [canary, ("others".to_owned(), WaveState::Waiting, [2, 2, 0, 0], None)]);
        assert_eq!(status.waves.iter().map(|wave| wave.max_unavailable.as_str()).collect::<Vec<_>>(), ["2", "2"]);
        let (id, what) = ("ReleaseDigestMismatch".to_owned(), "the archive is another one".to_owned());
        assert_eq!(status.failures, [FleetFailure { id, what, nodes: vec!["b".into()] }]);
        assert_eq!(
            (status.revision.as_str(), status.uncovered, status.left_out),
            ("new", vec!["h".into()], vec!["i".into()])
        );
    }

    #[test]
    fn a_wave_stops_when_as_many_nodes_failed_as_may_be_out() {
        let sets = [set("all", 1, "new", "RollingUpdate", 3)];
        let pull = json!({ "initContainerStatuses": [{
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image x\nmore" } },
        }] });
        let pods =
            [pod("all", "a", "new", failed(RESULT)), pod("all", "b", "new", pull), pod("all", "c", "old", ready())];
        let status = judged(&sets, &pods);
        assert_eq!((status.waves[0].state, status.waves[0].failed), (WaveState::Stopped, 2));
        let ids: Vec<&str> = status.failures.iter().map(|failure| failure.id.as_str()).collect();
        assert_eq!(ids, ["ImagePullBackOff", "ReleaseDigestMismatch"]);
    }

    #[test]
    fn a_run_without_a_result_is_named_by_its_exit_code() {
        let sets = [set("all", 1, "new", "RollingUpdate", 1)];
        let status = judged(&sets, &[pod("all", "a", "new", failed("cannot\nAPI_SERVER is not set\n"))]);
        assert_eq!(status.failures[0].id, "exit code 9");
        assert_eq!(status.failures[0].what, "API_SERVER is not set");
    }

    #[test]
    fn a_wave_is_done_when_calico_works_on_every_node_and_may_be_paused_before() {
        let pods = |revision: &str| [pod("all", "a", "new", ready()), pod("all", "b", revision, ready())];
        let state = |strategy: &str, revision: &str| {
            judged(&[set("all", 1, "new", strategy, 2)], &pods(revision)).waves[0].state
        };
        assert_eq!(state("RollingUpdate", "new"), WaveState::Done);
        assert_eq!(state("RollingUpdate", "old"), WaveState::Rolling);
        assert_eq!(state("OnDelete", "old"), WaveState::Paused);
        let idle = judged(&[set("all", 1, IDLE, "RollingUpdate", 2)], &pods(IDLE));
        assert_eq!(idle.waves[0].state, WaveState::Waiting);
    }
    /// A revision of the DaemonSet of wave `all`.
    fn kept(hash: &str, revision: i64) -> Revision {
        serde_json::from_value(json!({
            "metadata": { "labels": { HASH: hash }, "ownerReferences": [{ "name": "calicoctl-win-all" }] },
            "revision": revision,
        }))
        .unwrap()
    }

    #[test]
    fn after_an_undo_the_pods_of_the_revision_that_was_returned_to_count() {
        // The controller gave the former revision the next number.
        let revisions = [kept("old", 3), kept("new", 2)];
        let hashed = |node: &str, hash: &str| {
            let mut pod = pod("all", node, hash, ready());
            pod.metadata.labels.insert(HASH.into(), hash.into());
            pod
        };
        let mut undone = set("all", 1, "old", "RollingUpdate", 2);
        let judged = |set: &DaemonSet, pods: &[FleetPod]| {
            let wave = status("fleet", std::slice::from_ref(set), &revisions, pods, &[]).waves.remove(0);
            (wave.state, wave.done)
        };
        let (first, half) = ([hashed("a", "new"), hashed("b", "new")], [hashed("a", "new"), hashed("b", "old")]);
        let all = [hashed("a", "old"), hashed("b", "old")];
        undone.status.updated_number_scheduled = 1;
        assert_eq!(judged(&undone, &first), (WaveState::Rolling, 0));
        assert_eq!(judged(&undone, &half), (WaveState::Rolling, 1));
        // Its own numbers are older than the pods.
        assert_eq!(judged(&undone, &all), (WaveState::Rolling, 2));
        undone.status.updated_number_scheduled = 2;
        assert_eq!(judged(&undone, &all), (WaveState::Done, 2));
        undone.status.observed_generation = 1;
        assert_eq!(judged(&undone, &all), (WaveState::Rolling, 2));
    }

    #[test]
    fn pods_that_are_replaced_without_another_config_are_not_done_before() {
        let restarted = set("all", 1, "new", "RollingUpdate", 1);
        let mut old = pod("all", "a", "new", ready());
        old.metadata.labels.insert(HASH.into(), "before".into());
        let revisions = [kept("before", 1), kept("restarted", 2)];
        let wave = status("fleet", &[restarted], &revisions, &[old], &[]).waves.remove(0);
        assert_eq!((wave.state, wave.done), (WaveState::Rolling, 0));
    }
}
