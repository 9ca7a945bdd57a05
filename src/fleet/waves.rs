//! Which nodes are changed together. A wave is a DaemonSet, and begins when the one before is done.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::values::{Sha256, Vni};

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

/// The annotations that are used: all of thousands of nodes would take much memory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeAnnotations {
    /// That of `cluster::RESULT`, as JSON.
    #[serde(rename = "calicoctl-win/result")]
    pub result: Option<String>,
    /// That of `cluster::ACHIEVED`, which every run writes: the digest of the settings that the node has.
    #[serde(rename = "calicoctl-win/settings")]
    pub settings: Option<String>,
}

impl FleetNode {
    pub fn is_left_out(&self) -> bool {
        self.labels.get(LEFT_OUT).is_some_and(|value| value == "off")
    }

    /// The result of the last run of a fleet on it; null without one.
    fn result(&self) -> Value {
        let text = self.annotations.result.as_deref();
        text.and_then(|text| serde_json::from_slice(text.as_bytes()).ok()).unwrap_or_default()
    }

    /// The VNI that it had when the last run of a fleet on it ended; none without one.
    pub(super) fn vni(&self) -> Option<Vni> {
        Vni::try_from(u32::try_from(self.result()["vni"].as_u64()?).ok()?).ok()
    }

    /// Whether a run that is not a fleet's has changed it since: what it has is not that run's result.
    pub(super) fn is_changed_since(&self) -> bool {
        let then = self.result();
        then["settings"].as_str().is_some_and(|then| self.annotations.settings.as_deref() != Some(then))
    }
}

/// How the nodes are divided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The label, `KEY=VALUE`, of the nodes that are changed first.
    pub canary: Option<(String, String)>,
    /// A wave for each of these zones, in this order. An empty list is every zone that a node has, by name; none is no
    /// wave for a zone.
    pub zones: Option<Vec<String>>,
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
    /// Also if there is no such label.
    NotIn(String, Vec<String>),
}

impl Expression {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, value) => labels.get(key) == Some(value),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::In(key, value) => json!({ "key": key, "operator": "In", "values": [value] }),
            Self::NotIn(key, values) => json!({ "key": key, "operator": "NotIn", "values": values }),
        }
    }
}

impl Wave {
    fn new(name: &str, canary: Option<Expression>, zone: Option<Expression>) -> Self {
        let left_out = Expression::NotIn(LEFT_OUT.into(), vec!["off".into()]);
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

/// The waves for these nodes, in their order: the canary first, then the zones, then the nodes of no zone or of another
/// one. No two have a node in common, and without the label of [`LEFT_OUT`] every node is in one, also one that joins
/// later.
pub fn waves(wishes: &Wishes, nodes: &[FleetNode]) -> Vec<Wave> {
    let label = wishes.canary.clone();
    let first = label.clone().map(|(key, value)| Wave::new("canary", Some(Expression::In(key, value)), None));
    let others = label.map(|(key, value)| Expression::NotIn(key, vec![value]));
    let Some(listed) = &wishes.zones else {
        let name = if first.is_some() { "others" } else { "all" };
        return first.into_iter().chain([Wave::new(name, others, None)]).collect();
    };
    let of_nodes: BTreeSet<&String> = nodes.iter().filter_map(|node| node.labels.get(ZONE)).collect();
    let mut zones: Vec<&String> = Vec::new();
    for zone in listed.iter().chain(of_nodes.into_iter().filter(|_| listed.is_empty())) {
        if !zones.contains(&zone) {
            zones.push(zone);
        }
    }
    let of_zone = |zone: &&String| {
        let expression = Expression::In(ZONE.into(), (*zone).clone());
        Wave::new(&format!("zone-{}", named(zone)), others.clone(), Some(expression))
    };
    // With other zones it has other nodes, so it is another wave: one of a name that exists is not deleted, and its pods
    // would remain on nodes that are in another wave now.
    let all: String = zones.iter().map(|zone| format!("{zone}\n")).collect();
    let values = zones.iter().map(|zone| (*zone).clone()).collect();
    let elsewhere = (!zones.is_empty()).then(|| Expression::NotIn(ZONE.into(), values));
    let last = Wave::new(&format!("other-zones-{}", digest(&all)), others.clone(), elsewhere);
    first.into_iter().chain(zones.iter().map(of_zone)).chain([last]).collect()
}

/// A zone as part of a name of Kubernetes, which no other zone has.
fn named(zone: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = zone.chars().map(fits).collect();
    if name == zone && name.len() <= LONGEST && !name.starts_with('-') && !name.ends_with('-') {
        return name;
    }
    let digest = digest(zone);
    let first: String = name.chars().take(LONGEST - digest.len() - 1).collect();
    format!("{}-{digest}", first.trim_matches('-'))
}

fn digest(text: &str) -> String {
    Sha256::of(text.as_bytes()).as_str()[..6].to_owned()
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

    fn zones(listed: &[&str]) -> Option<Vec<String>> {
        Some(listed.iter().map(|zone| (*zone).to_owned()).collect())
    }

    #[test]
    fn every_node_is_in_one_wave_unless_its_label_leaves_it_out() {
        let canary = Some(("stage".to_owned(), "canary".to_owned()));
        assert_eq!(shown(&Wishes::default()), "all:abcd");
        assert_eq!(shown(&Wishes { canary: canary.clone(), zones: None }), "canary:a others:bcd");
        assert_eq!(
            shown(&Wishes { canary: None, zones: zones(&[]) }),
            "zone-europe-1a-01eea3:ab zone-europe-1b:c other-zones-6152ff:d"
        );
        assert_eq!(
            shown(&Wishes { canary: canary.clone(), zones: zones(&[]) }),
            "canary:a zone-europe-1a-01eea3:b zone-europe-1b:c other-zones-6152ff:d"
        );
        // In the order of the list, and whether a node is there or not.
        assert_eq!(
            shown(&Wishes { canary, zones: zones(&["europe-1b", "europe-1c", "europe-1b"]) }),
            "canary:a zone-europe-1b:c zone-europe-1c: other-zones-2477d5:bd"
        );
        let without = [node("a", &[])];
        let names: Vec<String> =
            waves(&Wishes { canary: None, zones: zones(&[]) }, &without).into_iter().map(|wave| wave.name).collect();
        assert!(names.len() == 1 && names[0].starts_with("other-zones-"), "{names:?}");
    }

    #[test]
    fn no_two_zones_have_the_same_name_of_a_wave() {
        let long = "z".repeat(LONGEST);
        let all = ["a-b", "a.b", "a_b", "A-b", "a-B", &long, &format!("{long}1"), &format!("{long}2"), "-", ""];
        let names: BTreeSet<String> = all.iter().map(|zone| named(zone)).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
        assert_eq!((named("a-b"), named(&long)), ("a-b".to_owned(), long.clone()));
        // Also as the name of a DaemonSet (RFC 1123), with the prefix.
        let fits = |name: &String| {
            name.len() <= LONGEST
                && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
                && !name.ends_with('-')
        };
        assert!(names.iter().all(fits), "{names:?}");
    }

    #[test]
    fn a_wave_says_its_nodes_in_the_terms_of_the_scheduler() {
        let wishes = Wishes { canary: Some(("stage".into(), "canary".into())), zones: zones(&[]) };
        let terms: Vec<String> = waves(&wishes, &nodes()).iter().map(|wave| wave.affinity().to_string()).collect();
        assert!(terms[0].contains(r#"{"key":"stage","operator":"In","values":["canary"]}"#), "{}", terms[0]);
        assert!(terms[1].contains(r#"{"key":"stage","operator":"NotIn","values":["canary"]}"#), "{}", terms[1]);
        let elsewhere =
            r#"{"key":"topology.kubernetes.io/zone","operator":"NotIn","values":["Europe_1a","europe-1b"]}"#;
        assert!(terms[3].contains(elsewhere), "{}", terms[3]);
        assert!(
            terms
                .iter()
                .all(|term| term.contains(r#"{"key":"calicoctl-win/fleet","operator":"NotIn","values":["off"]}"#))
        );
        let none = waves(&Wishes { canary: None, zones: zones(&[]) }, &[]).remove(0).affinity().to_string();
        assert!(!none.contains(ZONE), "an operator needs values: {none}");
    }

    #[test]
    fn a_result_is_of_the_settings_that_the_node_has_or_of_earlier_ones() {
        let since = |result: Option<&str>, settings: Option<&str>| {
            let mut node = node("a", &[]);
            let own = |text: &str| text.to_owned();
            node.annotations = NodeAnnotations { result: result.map(own), settings: settings.map(own) };
            (node.is_changed_since(), node.vni().map(Vni::get))
        };
        let result = r#"{"vni":5000,"settings":"one"}"#;
        assert_eq!(since(Some(result), Some("one")), (false, Some(5000)));
        assert_eq!(since(Some(result), Some("two")), (true, Some(5000)));
        assert_eq!(since(Some(result), None), (true, Some(5000)));
        // Without a run of a fleet, and of a version that did not write it.
        assert_eq!(since(None, Some("two")), (false, None));
        assert_eq!(since(Some(r#"{"vni":5000}"#), Some("two")), (false, Some(5000)));
    }
}
