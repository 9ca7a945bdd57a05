//! Which nodes are changed together. A wave is a DaemonSet, and begins when the one before is done.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::values::Vni;

/// The label with which a node is left out of every wave, with the value `off`.
pub const LEFT_OUT: &str = "calicoctl-win/fleet";

const ZONE: &str = "topology.kubernetes.io/zone";

/// The longest name of a wave: it is part of the name of a DaemonSet, whose pods get five more characters.
const LONGEST: usize = 40;

/// A Windows node, as its metadata says.
#[derive(Debug, Clone, Deserialize)]
pub struct FleetNode {
    pub name: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) annotations: NodeAnnotations,
}

/// The annotation that is used: all of thousands of nodes would take much memory.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct NodeAnnotations {
    /// That of `cluster::RESULT`, as JSON.
    #[serde(rename = "calicoctl-win/result")]
    pub result: Option<String>,
}

impl FleetNode {
    pub fn is_left_out(&self) -> bool {
        self.labels.get(LEFT_OUT).is_some_and(|value| value == "off")
    }

    /// The VNI that it had when the last run of a fleet on it ended; none without one.
    pub(super) fn vni(&self) -> Option<Vni> {
        let result: Value = serde_json::from_str(self.annotations.result.as_deref()?).ok()?;
        Vni::try_from(u32::try_from(result["vni"].as_u64()?).ok()?).ok()
    }
}

/// How the nodes are divided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The label, `KEY=VALUE`, of the nodes that are changed first.
    pub canary: Option<(String, String)>,
    /// A wave for each zone.
    pub zones: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wave {
    /// Part of the name of its DaemonSet.
    pub name: String,
    /// What a node's labels must match, each as `nodeAffinity` writes it.
    expressions: Vec<Expression>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expression {
    In(String, String),
    NotIn(String, String),
    Absent(String),
}

impl Expression {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, value) => labels.get(key) == Some(value),
            Self::NotIn(key, value) => labels.get(key) != Some(value),
            Self::Absent(key) => !labels.contains_key(key),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::In(key, value) => json!({ "key": key, "operator": "In", "values": [value] }),
            Self::NotIn(key, value) => json!({ "key": key, "operator": "NotIn", "values": [value] }),
            Self::Absent(key) => json!({ "key": key, "operator": "DoesNotExist" }),
        }
    }
}

impl Wave {
    fn new(name: &str, canary: Option<Expression>, zone: Option<Expression>) -> Self {
        let left_out = Expression::NotIn(LEFT_OUT.into(), "off".into());
        Self { name: name.to_owned(), expressions: [left_out].into_iter().chain(canary).chain(zone).collect() }
    }

    pub fn has(&self, node: &FleetNode) -> bool {
        self.expressions.iter().all(|expression| expression.matches(&node.labels))
    }

    /// The affinity of its pods.
    pub fn affinity(&self) -> Value {
        let expressions: Vec<Value> = self.expressions.iter().map(Expression::json).collect();
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": expressions }],
        } } })
    }
}

/// The waves for these nodes, in their order: the canary first, then the zones by name, then the nodes without a zone.
/// No two have a node in common, and without the label of [`LEFT_OUT`] every node is in one.
pub fn waves(wishes: &Wishes, nodes: &[FleetNode]) -> Vec<Wave> {
    let label = wishes.canary.clone();
    let first = label.clone().map(|(key, value)| Wave::new("canary", Some(Expression::In(key, value)), None));
    let others = label.map(|(key, value)| Expression::NotIn(key, value));
    if !wishes.zones {
        let name = if first.is_some() { "others" } else { "all" };
        return first.into_iter().chain([Wave::new(name, others, None)]).collect();
    }
    let zones: BTreeSet<&String> = nodes.iter().filter_map(|node| node.labels.get(ZONE)).collect();
    let of_zone = |zone: &&String| {
        let expression = Expression::In(ZONE.into(), (*zone).clone());
        Wave::new(&format!("zone-{}", named(zone)), others.clone(), Some(expression))
    };
    let elsewhere = Wave::new("no-zone", others.clone(), Some(Expression::Absent(ZONE.into())));
    first.into_iter().chain(zones.iter().map(of_zone)).chain([elsewhere]).collect()
}

/// A zone as part of a name of Kubernetes.
fn named(zone: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = zone.chars().map(fits).take(LONGEST).collect();
    name.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, labels: &[(&str, &str)]) -> FleetNode {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        FleetNode { name: name.into(), labels, annotations: NodeAnnotations::default() }
    }

    fn nodes() -> Vec<FleetNode> {
        vec![
            node("a", &[(ZONE, "Europe_1a"), ("stage", "canary")]),
            node("b", &[(ZONE, "Europe_1a")]),
            node("c", &[(ZONE, "europe-1b")]),
            node("d", &[]),
            node("e", &[(ZONE, "europe-1b"), (LEFT_OUT, "off")]),
        ]
    }

    fn shown(wishes: &Wishes) -> String {
        let nodes = nodes();
        let members = |wave: &Wave| -> String {
            nodes.iter().filter(|node| wave.has(node)).map(|node| node.name.as_str()).collect()
        };
        let waves = waves(wishes, &nodes);
        waves.iter().map(|wave| format!("{}:{}", wave.name, members(wave))).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_node_is_in_one_wave_unless_its_label_leaves_it_out() {
        let canary = Some(("stage".to_owned(), "canary".to_owned()));
        assert_eq!(shown(&Wishes::default()), "all:abcd");
        assert_eq!(shown(&Wishes { canary: canary.clone(), zones: false }), "canary:a others:bcd");
        assert_eq!(shown(&Wishes { canary: None, zones: true }), "zone-europe-1a:ab zone-europe-1b:c no-zone:d");
        assert_eq!(shown(&Wishes { canary, zones: true }), "canary:a zone-europe-1a:b zone-europe-1b:c no-zone:d");
    }

    #[test]
    fn a_wave_says_its_nodes_in_the_terms_of_the_scheduler() {
        let wishes = Wishes { canary: Some(("stage".into(), "canary".into())), zones: true };
        let terms: Vec<String> = waves(&wishes, &nodes()).iter().map(|wave| wave.affinity().to_string()).collect();
        assert!(terms[0].contains(r#"{"key":"stage","operator":"In","values":["canary"]}"#), "{}", terms[0]);
        assert!(terms[1].contains(r#"{"key":"stage","operator":"NotIn","values":["canary"]}"#), "{}", terms[1]);
        assert!(terms[3].contains(r#"{"key":"topology.kubernetes.io/zone","operator":"DoesNotExist"}"#));
        assert!(
            terms
                .iter()
                .all(|term| term.contains(r#"{"key":"calicoctl-win/fleet","operator":"NotIn","values":["off"]}"#))
        );
    }
}
