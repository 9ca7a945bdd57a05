//! Disruption budgets: which one covers a pod, what it allows now, and whether it ever will.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::pods::Pod;

/// The fields of a `PodDisruptionBudget` that are used.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Budget {
    pub metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub name: String,
    pub namespace: String,
    generation: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    selector: Option<Selector>,
    max_unavailable: Option<Value>,
    unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    disruptions_allowed: i64,
    current_healthy: i64,
    desired_healthy: i64,
    expected_pods: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, Deserialize)]
struct Expression {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl Selector {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| expression.matches(labels))
    }
}

impl Expression {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let label = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => label.is_some_and(|label| self.values.contains(label)),
            "NotIn" => label.is_none_or(|label| !self.values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            // The API server has no other; treating it as a match is the safe choice.
            _ => true,
        }
    }
}

impl Budget {
    /// Whether it covers a pod.
    pub fn selects(&self, pod: &Pod) -> bool {
        self.metadata.namespace == pod.metadata.namespace
            && self.spec.selector.as_ref().is_some_and(|selector| selector.matches(&pod.metadata.labels))
    }

    /// Whether the controller has counted since the budget was last changed.
    fn is_counted(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation
    }

    pub fn allows_now(&self) -> bool {
        self.is_counted() && self.status.disruptions_allowed > 0
    }

    /// A pod that is not ready may be evicted without being counted, as in the eviction API.
    fn allows_unready(&self) -> bool {
        match self.spec.unhealthy_pod_eviction_policy.as_deref() {
            Some("AlwaysAllow") => true,
            _ => self.status.desired_healthy > 0 && self.status.current_healthy >= self.status.desired_healthy,
        }
    }

    /// No number of healthy pods is enough: nothing may be unavailable, or all expected pods are required.
    fn can_never_allow(&self) -> bool {
        let none = |value: &Value| value == &Value::from(0) || value == "0" || value == "0%";
        if self.spec.max_unavailable.as_ref().is_some_and(none) {
            return true;
        }
        let status = &self.status;
        self.is_counted()
            && status.disruptions_allowed == 0
            && status.expected_pods > 0
            && status.desired_healthy >= status.expected_pods
    }

    /// `budget demo/web: 0 disruptions allowed, 1 of 2 pods healthy, 2 needed`.
    pub fn summary(&self) -> String {
        let Status { disruptions_allowed, current_healthy, desired_healthy, expected_pods, .. } = self.status;
        format!(
            "budget {}/{}: {disruptions_allowed} disruptions allowed, {current_healthy} of {expected_pods} pods \
             healthy, {desired_healthy} needed",
            self.metadata.namespace, self.metadata.name
        )
    }
}

/// The budgets that cover a pod; none if the pod needs none.
pub(super) fn of<'a>(pod: &Pod, budgets: &'a [Budget]) -> Vec<&'a Budget> {
    if !pod.counts_for_budgets() {
        return Vec::new();
    }
    budgets.iter().filter(|budget| budget.selects(pod)).collect()
}

/// Why the pod can never be evicted, if that is so.
pub(super) fn never(pod: &Pod, budgets: &[Budget]) -> Option<String> {
    match of(pod, budgets).as_slice() {
        [] => None,
        [budget] if !pod.is_ready() && budget.allows_unready() => None,
        [budget] => budget.can_never_allow().then(|| format!("{}; it can never allow an eviction", budget.summary())),
        several => {
            let names: Vec<String> =
                several.iter().map(|b| format!("{}/{}", b.metadata.namespace, b.metadata.name)).collect();
            Some(format!("is under {} budgets ({}), which Kubernetes always refuses", several.len(), names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "demo", "uid": "1", "labels": {"app": "web", "tier": "front"}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn budget(spec: Value, [allowed, healthy, desired, expected]: [i64; 4]) -> Budget {
        let mut spec = spec;
        if spec.get("selector").is_none() {
            spec["selector"] = json!({"matchLabels": {"app": "web"}});
        }
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "demo", "generation": 2},
            "spec": spec,
            "status": {"observedGeneration": 2, "disruptionsAllowed": allowed, "currentHealthy": healthy,
                "desiredHealthy": desired, "expectedPods": expected},
        }))
        .unwrap()
    }

    #[test]
    fn a_budget_covers_the_pods_of_its_selector() {
        let is_asked = |selector: Value| of(&pod("True"), &[budget(json!({"selector": selector}), [1, 2, 1, 2])]).len();
        assert_eq!(is_asked(json!({"matchLabels": {"app": "web"}})), 1);
        assert_eq!(is_asked(json!({"matchLabels": {"app": "db"}})), 0);
        assert_eq!(is_asked(json!({})), 1, "an empty selector means all pods");
        assert_eq!(is_asked(Value::Null), 0, "and none means no pod");
        for (operator, values, asked) in [
            ("In", json!(["front"]), 1),
            ("NotIn", json!(["front"]), 0),
            ("Exists", json!([]), 1),
            ("DoesNotExist", json!([]), 0),
        ] {
            let expression = json!({"key": "tier", "operator": operator, "values": values});
            assert_eq!(is_asked(json!({"matchExpressions": [expression]})), asked, "{operator}");
        }
    }

    #[test]
    fn never_differs_from_not_now() {
        let says = |spec: Value, counts| never(&pod("True"), &[budget(spec, counts)]);
        assert_eq!(says(json!({"maxUnavailable": 1}), [0, 1, 1, 2]), None, "one is down already: later");
        assert_eq!(says(json!({"minAvailable": 1}), [0, 1, 1, 2]), None);
        insta::assert_snapshot!(says(json!({"maxUnavailable": 0}), [0, 2, 2, 2]).unwrap(), @"budget demo/web: 0 disruptions allowed, 2 of 2 pods healthy, 2 needed; it can never allow an eviction");
        assert!(says(json!({"maxUnavailable": "0%"}), [0, 2, 2, 2]).is_some());
        assert!(says(json!({"minAvailable": "100%"}), [0, 2, 2, 2]).is_some());
        let two = [budget(json!({}), [1, 2, 1, 2]), budget(json!({}), [1, 2, 1, 2])];
        insta::assert_snapshot!(never(&pod("True"), &two).unwrap(), @"is under 2 budgets (demo/web, demo/web), which Kubernetes always refuses");
    }

    #[test]
    fn a_pod_that_is_not_ready_may_be_evicted_if_the_budget_says_so() {
        let all_needed = |policy: Option<&str>, counts| {
            let spec = json!({"minAvailable": 2, "unhealthyPodEvictionPolicy": policy});
            never(&pod("False"), &[budget(spec, counts)]).is_none()
        };
        assert!(all_needed(Some("AlwaysAllow"), [0, 1, 2, 2]));
        assert!(all_needed(None, [0, 2, 2, 2]), "enough others are healthy");
        assert!(!all_needed(None, [0, 1, 2, 2]));
    }

    #[test]
    fn an_outdated_count_decides_nothing() {
        let mut stale = budget(json!({"minAvailable": 2}), [0, 2, 2, 2]);
        stale.metadata.generation = 3;
        assert_eq!(never(&pod("True"), std::slice::from_ref(&stale)), None);
        assert!(!stale.allows_now());
    }
}
