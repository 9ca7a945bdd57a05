//! Flannel as the cluster runs it on a Node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::Deserialize;
use serde_json::Value;

use super::{Question, Unanswered, ask_all, ask_metadata};
use crate::cluster::api::{Api, query};
use crate::cluster::errors::Failure;
use crate::facts::{FLANNEL, FlannelFacts};

/// Its requests.
pub(super) struct Flannel {
    sets: Question<Vec<DaemonSet>>,
    pods: Question<Vec<Pod>>,
}

impl Flannel {
    pub fn ask(api: &Arc<Api>, node: &str) -> Self {
        let on_node = format!("spec.nodeName={node}");
        Self {
            sets: ask_all(api, "/apis/apps/v1/daemonsets".to_owned()),
            pods: ask_metadata(api, query("/api/v1/pods", &[("fieldSelector", &on_node)])),
        }
    }

    /// A Node that has not joined has the label of its system.
    pub async fn read(self, node: Option<&Node>, unanswered: &mut Unanswered) -> Result<Option<FlannelFacts>, Failure> {
        let sets = unanswered.checked(FLANNEL, self.sets.answer().await)?;
        let pods = unanswered.checked(FLANNEL, self.pods.answer().await)?;
        let (Some(sets), Some(pods)) = (sets, pods) else { return Ok(None) };
        let os = || BTreeMap::from([("kubernetes.io/os".to_owned(), "windows".to_owned())]);
        let labels = node.map_or_else(os, |node| node.metadata.labels.clone().unwrap_or_default());
        let taints = node.and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default();
        let flannels = sets.iter().filter(|set| FlannelFacts::is_daemon_set(&set.metadata.name));
        let here = |pod: &&Pod| {
            let mut owners = pod.metadata.owner_references.iter();
            pod.metadata.deletion_timestamp.is_none()
                && owners.any(|owner| owner.kind == "DaemonSet" && FlannelFacts::is_daemon_set(&owner.name))
        };
        Ok(Some(FlannelFacts {
            daemon_sets: flannels
                .filter(|set| set.spec.template.spec.selects(&labels, taints))
                .map(|set| set.metadata.full_name())
                .collect(),
            pods: pods.iter().filter(here).map(|pod| pod.metadata.full_name()).collect(),
        }))
    }
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

impl Metadata {
    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct DaemonSet {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    spec: Placement,
}

/// What decides on which Nodes a DaemonSet's pods run. Affinity and tolerations are as the API has them: types for them
/// would be 20 kB of the executable.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Placement {
    node_selector: BTreeMap<String, String>,
    affinity: Value,
    tolerations: Value,
}

impl Placement {
    /// Whether the DaemonSet controller creates a pod on a Node with these labels and taints
    /// (`pkg/controller/daemon/daemon_controller.go`, `NodeShouldRunDaemonPod`).
    fn selects(&self, labels: &BTreeMap<String, String>, taints: &[Taint]) -> bool {
        let selected = self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let terms = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let wanted = self.affinity.pointer(terms).is_none_or(|terms| {
            let all = |term: &Value| items(&term["matchExpressions"]).iter().all(|one| holds(one, labels));
            items(terms).iter().any(all)
        });
        selected && wanted && taints.iter().all(|taint| self.tolerates(taint))
    }

    /// The controller itself tolerates what kubelet says of a Node, such as `node.kubernetes.io/not-ready`.
    fn tolerates(&self, taint: &Taint) -> bool {
        if taint.effect == "PreferNoSchedule" || taint.key.starts_with("node.kubernetes.io/") {
            return true;
        }
        items(&self.tolerations).iter().any(|one| {
            let exists = text(one, "operator") == "Exists";
            let same = exists || text(one, "value") == taint.value.as_deref().unwrap_or_default();
            let key = text(one, "key");
            let effect = text(one, "effect");
            (key == taint.key || key.is_empty() && exists) && same && (effect.is_empty() || effect == taint.effect)
        })
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

/// Whether an expression holds for a Node's labels. Numbers (`Gt`, `Lt`) are not compared: such a term counts as true.
fn holds(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(text(expression, "key"));
    let listed = value.is_some_and(|value| items(&expression["values"]).iter().any(|one| one == value));
    match text(expression, "operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_set_runs_where_selector_affinity_and_tolerations_let_it() {
        let labels = |of: &[(&str, &str)]| of.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let windows: BTreeMap<String, String> = labels(&[("kubernetes.io/os", "windows"), ("pool", "a")]);
        let taint = |key: &str, effect: &str| Taint { key: key.into(), effect: effect.into(), ..Taint::default() };
        let selects = |placement: &str, taints: &[Taint]| {
            let placement: Placement = crate::yaml::read(placement).unwrap();
            placement.selects(&windows, taints)
        };
        let affinity = |expression: &str| {
            format!(
                "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{expression}]}}]}}}}}}"
            )
        };
        for (placement, is) in [
            ("{}", true),
            ("nodeSelector: {kubernetes.io/os: windows}", true),
            ("nodeSelector: {kubernetes.io/os: windows, flannel: 'yes'}", false),
            (&*affinity("{key: kubernetes.io/os, operator: In, values: [windows]}"), true),
            (&*affinity("{key: kubernetes.io/os, operator: In, values: [linux]}"), false),
            (&*affinity("{key: pool, operator: NotIn, values: [a]}"), false),
            (&*affinity("{key: pool, operator: Exists}"), true),
            (&*affinity("{key: pool, operator: DoesNotExist}"), false),
        ] {
            assert_eq!(selects(placement, &[]), is, "{placement}");
        }
        let taints = [taint("node.kubernetes.io/not-ready", "NoExecute"), taint("os", "NoSchedule")];
        for (placement, is) in [
            ("{}", false),
            ("tolerations: [{operator: Exists, effect: NoSchedule}]", true),
            ("tolerations: [{operator: Exists, effect: NoExecute}]", false),
            ("tolerations: [{key: os}]", true),
            ("tolerations: [{key: os, value: windows}]", false),
        ] {
            assert_eq!(selects(placement, &taints), is, "{placement}");
        }
    }
}
