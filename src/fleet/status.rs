//! How far a rollout is, from its DaemonSets and their pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::found::{Cause, DaemonSet, Failed, Fleet, FleetPod};
use super::objects::{IDLE, WAVE};
use super::vni::{self, FleetVni};

/// Where a wave is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum WaveState {
    /// Its pods are still those of before.
    Waiting,
    Rolling,
    Paused,
    /// As many nodes failed as may be out at once, so no further node begins. A node whose run was lost does not count:
    /// its kubelet tries again, and the next container resumes the run.
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
    /// Which nodes have which VNI, if the change sets one; else null.
    pub vni: Option<FleetVni>,
    /// Windows nodes that another run has changed since that of their pod, for example by hand: their pods are Ready, and
    /// what the nodes have is not what the revision says.
    pub changed_since: Vec<String>,
    /// Windows nodes without a pod of any wave, except those that a label leaves out.
    pub uncovered: Vec<String>,
    /// Windows nodes that the label `calicoctl-win/fleet=off` leaves out.
    pub left_out: Vec<String>,
    /// What to do next, usually a command; empty while nobody has to do anything.
    pub next: Vec<String>,
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
    /// Nodes without a Ready pod: those that are being changed or failed, and those whose pod is replaced.
    pub out: usize,
    /// Nodes that may be out at once.
    pub at_once: usize,
    /// A number or a share, for example `10%`.
    pub max_unavailable: String,
    /// Until the wave is done, from how many nodes were done in which time; null without one.
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

/// Judges a rollout.
pub fn status(namespace: &str, fleet: &Fleet, now: Timestamp) -> FleetStatus {
    let mut sets: Vec<&DaemonSet> = fleet.sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
    sets.sort_by_key(|set| set.order());
    let revision = sets.first().map_or(IDLE, |set| set.revision());
    let mut causes: BTreeMap<Cause, Vec<String>> = BTreeMap::new();
    let mut waves = Vec::new();
    for set in &sets {
        let of_wave = |pod: &&FleetPod| pod.metadata.labels.get(WAVE).is_some_and(|wave| wave == set.wave());
        let all: Vec<&FleetPod> = fleet.pods.iter().filter(of_wave).collect();
        let hash = fleet.hash(set);
        let (mut done, mut failed, mut lost, mut new) = (0, 0, 0, 0);
        let mut changed = Vec::new();
        for pod in all.iter().filter(|pod| pod.is_current(set, hash)) {
            new += 1;
            if pod.is_ready() {
                done += 1;
                changed.extend(pod.changed());
            } else if let Some(Failed { cause, is_lost }) = pod.failure() {
                failed += 1;
                lost += usize::from(is_lost);
                causes.entry(cause).or_default().push(pod.node().to_owned());
            }
        }
        let nodes = set.status.desired_number_scheduled.max(all.len());
        let limit = set.max_unavailable();
        let waits = set.is_idle() || set.revision() != revision;
        let state = if !waits && set.is_replaced() && done == nodes {
            WaveState::Done
        } else if set.is_paused() {
            WaveState::Paused
        } else if waits {
            WaveState::Waiting
        } else if failed > lost && failed - lost >= limit.of(nodes) {
            WaveState::Stopped
        } else {
            WaveState::Rolling
        };
        let at_once = limit.of(nodes).max(1);
        let eta_seconds =
            if state == WaveState::Rolling { eta(&mut changed, at_once, nodes.saturating_sub(done)) } else { None };
        let ready = all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none() && pod.is_ready());
        let out = nodes.saturating_sub(ready.count());
        waves.push(WaveStatus {
            name: set.wave().to_owned(),
            daemon_set: set.metadata.name.clone(),
            revision: set.revision().to_owned(),
            state,
            nodes,
            done,
            in_progress: new - done - failed,
            failed,
            out,
            at_once: limit.of(nodes).min(nodes),
            max_unavailable: limit.to_string(),
            eta_seconds,
        });
    }
    let mut failures: Vec<FleetFailure> =
        causes.into_iter().map(|(Cause { id, what }, nodes)| FleetFailure { id, what, nodes }).collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.nodes.len()));
    let covered: BTreeSet<&str> = fleet.pods.iter().map(FleetPod::node).collect();
    let of = |off: bool| fleet.nodes.iter().filter(move |node| node.is_left_out() == off).map(|node| node.name.clone());
    // While a pod makes its change, its run has not written its result yet.
    let ready: BTreeSet<&str> = fleet.pods.iter().filter(|pod| pod.is_ready()).map(FleetPod::node).collect();
    let since = fleet.nodes.iter().filter(|node| ready.contains(node.name.as_str()) && node.is_changed_since());
    let since: BTreeSet<&str> = since.map(|node| node.name.as_str()).collect();
    let vni = vni::judge(&sets, fleet, &since, now);
    FleetStatus {
        namespace: namespace.to_owned(),
        revision: revision.to_owned(),
        next: next(&waves, vni.as_ref()),
        waves,
        failures,
        vni,
        changed_since: since.into_iter().map(str::to_owned).collect(),
        uncovered: of(false).filter(|name| !covered.contains(name.as_str())).collect(),
        left_out: of(true).collect(),
    }
}

/// Seconds until the nodes that are left are changed, from when each change that is made began and ended; none without
/// one.
fn eta(changed: &mut [(Timestamp, Timestamp)], at_once: usize, left: usize) -> Option<u64> {
    changed.sort_by_key(|(_, ended)| *ended);
    let (_, last) = *changed.last()?;
    let seconds = |from: Timestamp, to: Timestamp| u64::try_from(to.duration_since(from).as_secs()).unwrap_or_default();
    if changed.len() < at_once {
        // Too few to say how many end in a time.
        let took: u64 = changed.iter().map(|(began, ended)| seconds(*began, *ended)).sum();
        return Some(left.div_ceil(at_once) as u64 * (took / changed.len() as u64));
    }
    // Of the last two rounds: a pause before them does not count.
    let recent = &changed[changed.len().saturating_sub(2 * at_once)..];
    let first = recent.iter().map(|(began, _)| *began).min()?;
    Some((left as u64 * seconds(first, last)).div_ceil(recent.len() as u64))
}

/// What to do next: a command to run, or none while nobody has to do anything.
fn next(waves: &[WaveStatus], vni: Option<&FleetVni>) -> Vec<String> {
    let has = |state: WaveState| waves.iter().any(|wave| wave.state == state);
    let patch = vni.and_then(FleetVni::patch);
    let half = vni.is_some_and(FleetVni::has_half);
    let next = if has(WaveState::Stopped) {
        "calicoctl-win fleet rollback".to_owned()
    } else if has(WaveState::Paused) {
        "calicoctl-win fleet resume".to_owned()
    } else if let Some(patch) = patch.clone().filter(|_| half) {
        patch
    } else if has(WaveState::Rolling) {
        "calicoctl-win fleet status --watch".to_owned()
    } else if has(WaveState::Waiting) {
        "run the same fleet apply again, unless it still runs: it begins the next wave".to_owned()
    } else if let Some(patch) = patch {
        patch
    } else {
        return Vec::new();
    };
    vec![next]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::found::{HASH, Revision};
    use super::super::objects::{FORMER_VNI, MAX_UNAVAILABLE, ORDER, REVISION, VNI};
    use super::super::waves::FleetNode;
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

    fn fleet(sets: &[DaemonSet], revisions: &[Revision], pods: &[FleetPod]) -> Fleet {
        Fleet { sets: sets.to_vec(), revisions: revisions.to_vec(), pods: pods.to_vec(), ..Fleet::default() }
    }

    fn now() -> Timestamp {
        "2026-01-02T16:00:00Z".parse().unwrap()
    }

    fn judged(sets: &[DaemonSet], pods: &[FleetPod]) -> FleetStatus {
        status("fleet", &fleet(sets, &[], pods), now())
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
        let mut fleet = fleet(&sets, &[], &pods);
        let node = |name: &str, label: &str| {
            let labels = [(super::super::LEFT_OUT.to_owned(), label.to_owned())].into();
            FleetNode { name: name.into(), labels, annotations: Default::default() }
        };
        fleet.nodes.extend(pods.iter().map(|pod| node(pod.node(), "")));
        fleet.nodes.extend([node("h", ""), node("i", "off")]);
        let status = status("fleet", &fleet, now());
        let numbers = |wave: &WaveStatus| {
            let numbers = [wave.nodes, wave.done, wave.in_progress, wave.failed, wave.out, wave.at_once];
            (wave.name.clone(), wave.state, numbers, wave.eta_seconds)
        };
        let waves: Vec<_> = status.waves.iter().map(numbers).collect();
        let canary = ("canary".to_owned(), WaveState::Rolling, [5, 1, 1, 1, 2, 2], Some(480));
        assert_eq!(waves, [canary, ("others".to_owned(), WaveState::Waiting, [2, 2, 0, 0, 0, 2], None)]);
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
    fn a_wave_continues_while_a_lost_run_may_be_resumed() {
        let mut set = set("all", 1, "new", "RollingUpdate", 2);
        set.metadata.annotations.insert(MAX_UNAVAILABLE.into(), "1".into());
        let state = |message: &str, restarts: u32| {
            let mut status = failed(message);
            status["initContainerStatuses"][0]["restartCount"] = restarts.into();
            let judged = judged(&[set.clone()], &[pod("all", "a", "new", status), pod("all", "b", "old", ready())]);
            (judged.waves[0].state, judged.waves[0].failed, judged.failures.len())
        };
        let result = |id: &str| format!("result: {{\"id\":\"{id}\",\"what\":\"what\"}}\n");
        // Named as failed, but nobody has to do anything.
        let ids = ["InterruptedRun", "RunInProgress", "Busy", "NodeLeased"];
        for lost in ids.map(result).iter().map(String::as_str).chain(["run r on A: apply"]) {
            assert_eq!(state(lost, 0), (WaveState::Rolling, 1, 1), "{lost}");
            assert_eq!(state(lost, 4), (WaveState::Stopped, 1, 1), "{lost}: five times");
        }
        // The node has answered.
        assert_eq!(state(RESULT, 0), (WaveState::Stopped, 1, 1));
    }

    #[test]
    fn a_run_without_a_result_is_named_by_its_exit_code() {
        let sets = [set("all", 1, "new", "RollingUpdate", 1)];
        let status = judged(&sets, &[pod("all", "a", "new", failed("cannot\nAPI_SERVER is not set\n"))]);
        assert_eq!(status.failures[0].id, "exit code 9");
        assert_eq!(status.failures[0].what, "API_SERVER is not set");
    }

    #[test]
    fn a_cause_of_which_a_part_is_missing_is_named_all_the_same() {
        let named = |message: &str| {
            let sets = [set("all", 1, "new", "RollingUpdate", 1)];
            let failure = judged(&sets, &[pod("all", "a", "new", failed(message))]).failures.remove(0);
            (failure.id, failure.what)
        };
        let is = |id: &str, what: &str| (id.to_owned(), what.to_owned());
        let id = "ReleaseDigestMismatch";
        // kubelet keeps the end of a log, and the beginning of a message.
        let whole =
            r#"result: {"exit_name":"FAILED","what":"archive \"a\" is another one","id":"ReleaseDigestMismatch"}"#;
        assert_eq!(named(whole), is(id, "archive \"a\" is another one"));
        assert_eq!(named(&whole[54..]), is(id, r#"another one","id":"ReleaseDigestMismatch"}"#));
        assert_eq!(named(r#"result: {"id":"ReleaseDigestMismatch","what":"archive"#).0, id);
        assert_eq!(named(r#"result: {"id":"ReleaseDig"#).0, "exit code 9");
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
            let wave = status("fleet", &fleet(std::slice::from_ref(set), &revisions, pods), now()).waves.remove(0);
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
        let wave = status("fleet", &fleet(&[restarted], &revisions, &[old]), now()).waves.remove(0);
        assert_eq!((wave.state, wave.done), (WaveState::Rolling, 0));
    }
    /// A Ready pod whose run ended then, with this VNI in its config.
    fn changed(wave: &str, node: &str, revision: &str, at: &str, vni: Option<&str>) -> FleetPod {
        let mut status = ready();
        status["initContainerStatuses"][0]["state"]["terminated"]["finishedAt"] = at.into();
        let mut pod = pod(wave, node, revision, status);
        pod.metadata.annotations.extend(vni.map(|vni| (VNI.to_owned(), vni.to_owned())));
        pod
    }

    /// A wave of a change from VNI 4096 to 5000.
    fn vni_set(wave: &str, order: usize, begun: bool, nodes: usize) -> DaemonSet {
        let mut set = set(wave, order, if begun { "new" } else { "old" }, "RollingUpdate", nodes);
        set.metadata.annotations.insert(VNI.into(), "5000".into());
        set.metadata.annotations.insert(FORMER_VNI.into(), "4096".into());
        if begun {
            set.spec.template.metadata.annotations.insert(VNI.into(), "5000".into());
        }
        set
    }

    fn by_vni(status: &FleetStatus) -> Vec<(Option<u32>, Vec<String>)> {
        let vni = status.vni.as_ref().unwrap();
        vni.nodes.iter().map(|one| (one.vni.map(crate::values::Vni::get), one.nodes.clone())).collect()
    }

    #[test]
    fn a_change_of_the_vni_says_which_nodes_have_which_for_how_long_and_what_to_run() {
        const PATCH: &str = r#"kubectl patch felixconfiguration default --type=merge -p "spec: {vxlanVNI: 5000}""#;
        let sets = [vni_set("all", 1, true, 4)];
        let old = |node: &str| changed("all", node, "old", "2025-11-01T00:00:00Z", None);
        let new = |node: &str, at: &str| changed("all", node, "new", at, Some("5000"));
        let first = new("a", "2026-01-02T15:50:00Z");
        let judged = |pods: &[FleetPod], felix: u32| {
            let fleet = Fleet { felix_vni: Some(felix), ..fleet(&sets, &[], pods) };
            status("fleet", &fleet, now())
        };
        let numbers = |status: &FleetStatus| {
            let vni = status.vni.as_ref().unwrap();
            (vni.wanted.get(), vni.former.map(crate::values::Vni::get), vni.felix, vni.apart_seconds)
        };
        // One of four, and one is being changed.
        let begun = judged(&[first.clone(), pod("all", "b", "new", json!({})), old("c"), old("d")], 4096);
        assert_eq!(numbers(&begun), (5000, Some(4096), Some(4096), Some(600)));
        let wanted =
            [(Some(5000), vec!["a".into()]), (Some(4096), vec!["c".into(), "d".into()]), (None, vec!["b".into()])];
        assert_eq!(by_vni(&begun), wanted);
        assert_eq!(begun.next, ["calicoctl-win fleet status --watch"]);
        // Half of them: Linux nodes follow now.
        let second = new("b", "2026-01-02T15:55:00Z");
        let half = [first.clone(), second.clone(), old("c"), old("d")];
        assert_eq!(judged(&half, 4096).next, [PATCH]);
        assert_eq!(judged(&half, 5000).next, ["calicoctl-win fleet status --watch"]);
        // All of them: Linux and Windows are apart until FelixConfiguration is changed, and no longer after it.
        let all = [first, second, new("c", "2026-01-02T15:56:00Z"), new("d", "2026-01-02T15:57:00Z")];
        let apart = judged(&all, 4096);
        assert_eq!((numbers(&apart).3, apart.next), (Some(600), vec![PATCH.to_owned()]));
        let done = judged(&all, 5000);
        assert_eq!((numbers(&done).3, &done.vni.unwrap().apart_since, done.next.len()), (Some(420), &None, 0));
    }

    #[test]
    fn after_an_undo_the_former_vni_is_the_wanted_one() {
        let mut undone = vni_set("all", 1, false, 2);
        undone.metadata.annotations.insert(FORMER_VNI.into(), "4096".into());
        let pods = [
            changed("all", "a", "old", "2026-01-02T15:58:00Z", None),
            changed("all", "b", "new", "2026-01-02T15:50:00Z", Some("5000")),
        ];
        let fleet = Fleet { felix_vni: Some(4096), ..fleet(&[undone], &[], &pods) };
        let status = status("fleet", &fleet, now());
        let vni = status.vni.as_ref().unwrap();
        assert_eq!((vni.wanted.get(), vni.former.map(crate::values::Vni::get)), (4096, Some(5000)));
        assert_eq!(by_vni(&status), [(Some(4096), vec!["a".into()]), (Some(5000), vec!["b".into()])]);
    }

    #[test]
    fn a_change_without_a_vni_says_nothing_of_it() {
        assert_eq!(judged(&[set("all", 1, "new", "RollingUpdate", 1)], &[pod("all", "a", "new", ready())]).vni, None);
    }

    #[test]
    fn the_time_left_is_that_of_the_nodes_that_are_done() {
        let at = |minute: i64| {
            "2026-01-02T15:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_mins(minute)
        };
        // Two at once, four minutes each.
        let round = |began: i64| [(at(began), at(began + 4)); 2];
        assert_eq!(eta(&mut [], 2, 8), None);
        assert_eq!(eta(&mut round(0)[..1], 2, 3), Some(2 * 240));
        assert_eq!(eta(&mut round(0), 2, 8), Some(4 * 240));
        // After a pause of an hour.
        let mut paused = [round(0), round(60), round(64)].concat();
        assert_eq!(eta(&mut paused, 2, 8), Some(4 * 240));
    }
}
