//! Which pods of a node are evicted, which remain, and which need a flag. Flags and rules are those of `kubectl drain`,
//! with one more: a pod may have an annotation against eviction.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::DrainOptions;

/// The kubelet's copy of a static pod: deleting it ends nothing.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation against eviction, with the value `false`; the cluster autoscaler uses it too.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// The fields of a Pod that are used.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pod {
    pub metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<Owner>,
    /// When the pod must have ended; set once it is being deleted.
    pub deletion_timestamp: Option<Timestamp>,
    pub finalizers: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Owner {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    volumes: Vec<Volume>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    #[serde(default)]
    empty_dir: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.metadata.namespace, self.metadata.name)
    }
}

impl Pod {
    /// The node that it is on; empty before it is scheduled.
    pub fn node(&self) -> &str {
        &self.spec.node_name
    }

    pub fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether disruption budgets apply to its eviction: not before it runs and not once it is ending.
    pub fn counts_for_budgets(&self) -> bool {
        self.status.phase != "Pending" && !self.is_over() && self.metadata.deletion_timestamp.is_none()
    }

    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    fn controller(&self) -> Option<&Owner> {
        self.metadata.owner_references.iter().find(|owner| owner.controller)
    }

    /// Namespace and name of its DaemonSet, if it has one.
    pub fn daemon_set(&self) -> Option<(&str, &str)> {
        let owner = self.controller().filter(|owner| owner.kind == "DaemonSet")?;
        Some((&self.metadata.namespace, &owner.name))
    }

    /// Whether its deletion is overdue by more than the options allow.
    pub fn is_overdue(&self, options: &DrainOptions, now: Timestamp) -> bool {
        let (Some(limit), Some(end)) = (options.skip_wait_for_delete, self.metadata.deletion_timestamp) else {
            return false;
        };
        now.duration_since(end).unsigned_abs() > limit && now > end
    }
}

/// The decision about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Goes,
    /// It remains, which is fine: the reason.
    Remains(&'static str),
    /// It may be evicted only with a flag: why, and which.
    Refused(Vec<String>),
}

/// Decides about one pod. `orphaned`: its DaemonSet no longer exists.
pub(super) fn fate(pod: &Pod, orphaned: bool, options: &DrainOptions, now: Timestamp) -> Fate {
    if pod.is_overdue(options, now) {
        return Fate::Remains("is terminating and no longer awaited");
    }
    if pod.metadata.annotations.contains_key(MIRROR) {
        return Fate::Remains("is a static pod of the kubelet");
    }
    let mut refused = Vec::new();
    if let Some((namespace, name)) = pod.daemon_set().filter(|_| !pod.is_over()) {
        if !orphaned && options.ignore_daemonsets {
            return Fate::Remains("belongs to a DaemonSet, which would re-create it");
        }
        if !orphaned {
            refused.push(format!("belongs to DaemonSet {namespace}/{name} (--ignore-daemonsets skips it)"));
        } else if !options.force {
            refused.push(format!(
                "was created by DaemonSet {namespace}/{name}, which no longer exists (--force deletes it)"
            ));
        }
    }
    if !pod.is_over() {
        if pod.controller().is_none() && !options.force {
            refused.push("has no controller that would re-create it (--force deletes it for good)".into());
        }
        if pod.spec.volumes.iter().any(|volume| volume.empty_dir.is_some()) && !options.delete_emptydir_data {
            refused.push("has data in an emptyDir volume (--delete-emptydir-data deletes it)".into());
        }
        if pod.metadata.annotations.get(SAFE_TO_EVICT).is_some_and(|safe| safe == "false") && !options.force {
            refused.push(format!("has the annotation {SAFE_TO_EVICT}: \"false\" (--force evicts it anyway)"));
        }
    }
    if refused.is_empty() { Fate::Goes } else { Fate::Refused(refused) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn pod(more: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "web", "namespace": "demo", "uid": "1", "labels": {}, "ownerReferences": [
                {"kind": "ReplicaSet", "name": "web", "controller": true},
            ]},
            "spec": {"volumes": [{"name": "a", "configMap": {}}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (pointer, value) in more.as_object().unwrap() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    const NOW: &str = "2026-11-21T10:00:00Z";

    fn decide(more: &Value, options: &DrainOptions) -> Fate {
        fate(&pod(more), false, options, NOW.parse().unwrap())
    }

    #[test]
    fn a_pod_with_a_controller_is_evicted_and_a_static_or_daemon_pod_remains() {
        let options = DrainOptions { ignore_daemonsets: true, ..DrainOptions::default() };
        assert_eq!(decide(&json!({}), &options), Fate::Goes);
        let mirror = json!({"/metadata/annotations": {"kubernetes.io/config.mirror": "abc"}});
        assert!(matches!(decide(&mirror, &options), Fate::Remains(_)));
        let daemon = json!({"/metadata/ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": true}]});
        assert!(matches!(decide(&daemon, &options), Fate::Remains(_)));
        assert_eq!(
            fate(&pod(&daemon), true, &DrainOptions { force: true, ..options }, NOW.parse().unwrap()),
            Fate::Goes
        );
    }

    #[test]
    fn losses_need_their_flag_and_all_reasons_are_reported_at_once() {
        let all = json!({
            "/metadata/ownerReferences": [],
            "/metadata/annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            "/spec/volumes": [{"name": "scratch", "emptyDir": {}}],
        });
        let Fate::Refused(reasons) = decide(&all, &DrainOptions::default()) else { panic!("it was allowed") };
        insta::assert_snapshot!(reasons.join("\n"), @r#"
        has no controller that would re-create it (--force deletes it for good)
        has data in an emptyDir volume (--delete-emptydir-data deletes it)
        has the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false" (--force evicts it anyway)
        "#);
        let forced = DrainOptions { force: true, delete_emptydir_data: true, ..DrainOptions::default() };
        assert_eq!(decide(&all, &forced), Fate::Goes);
        let daemon = json!({"/metadata/ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": true}]});
        assert!(matches!(decide(&daemon, &DrainOptions::default()), Fate::Refused(_)));
        assert!(matches!(fate(&pod(&daemon), true, &DrainOptions::default(), NOW.parse().unwrap()), Fate::Refused(_)));
    }

    #[test]
    fn a_finished_pod_does_not_block_a_drain() {
        let done =
            json!({"/metadata/ownerReferences": [], "/spec/volumes": [{"emptyDir": {}}], "/status/phase": "Succeeded"});
        assert_eq!(decide(&done, &DrainOptions::default()), Fate::Goes);
    }

    #[test]
    fn a_pod_whose_deletion_is_overdue_can_be_skipped() {
        let ending = json!({"/metadata/deletionTimestamp": "2026-11-21T09:59:00Z"});
        let after = |seconds| DrainOptions {
            skip_wait_for_delete: Some(Duration::from_secs(seconds)),
            ..DrainOptions::default()
        };
        assert!(matches!(decide(&ending, &after(30)), Fate::Remains(_)));
        assert_eq!(decide(&ending, &after(90)), Fate::Goes);
        assert_eq!(decide(&ending, &DrainOptions::default()), Fate::Goes);
        let later = json!({"/metadata/deletionTimestamp": "2026-11-21T10:05:00Z"});
        assert_eq!(decide(&later, &after(30)), Fate::Goes, "its grace period is not over");
    }
}
