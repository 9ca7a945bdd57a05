//! Which network policies have rules that Felix on Windows ignores: it does not support negated matches, ICMP types,
//! named ports, the action Log and IPv6 (reference: Felix' Windows policy sets). An ignored Deny falls through to the
//! next rule.
//!
//! And which are expensive there: Windows has no IP sets, so Felix writes the address of every pod that a rule's
//! selector matches into the rules of every endpoint, and all of them again when one changes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::facts::PolicyFacts;

/// How many are named; the rest is counted.
const EXAMPLES: usize = 5;

/// The number of nets and ports from which a rule is long: they are multiplied for each endpoint.
const LONG: usize = 100;

/// A policy of any kind, reduced while it is parsed to what Windows ignores in it: a cluster may have ten thousand.
#[derive(Debug)]
pub(super) struct Policy {
    /// With its namespace, if it has a reason.
    name: String,
    reason: Option<&'static str>,
    /// Why it is expensive.
    costly: Option<&'static str>,
}

pub(super) fn count(policies: &[Policy]) -> PolicyFacts {
    let counted = |reason: fn(&Policy) -> Option<&'static str>| {
        let those = || policies.iter().filter_map(move |policy| Some((policy, reason(policy)?)));
        let examples = those().take(EXAMPLES).map(|(policy, reason)| format!("{} ({reason})", policy.name));
        (those().count(), examples.collect())
    };
    let (skipped, examples) = counted(|policy| policy.reason);
    let (costly, costly_examples) = counted(|policy| policy.costly);
    PolicyFacts { all: policies.len(), skipped, examples, costly, costly_examples }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Raw::deserialize(from).map(Self::from)
    }
}

impl From<Raw> for Policy {
    fn from(raw: Raw) -> Self {
        let rules = || raw.spec.ingress.iter().chain(&raw.spec.egress);
        let reason = rules().find_map(Rule::skipped);
        let everywhere = raw.metadata.namespace.is_none();
        let costly = rules().find_map(|rule| rule.costly(everywhere));
        let name = match (reason.or(costly), raw.metadata.namespace) {
            (None, _) => String::new(),
            (_, Some(namespace)) => format!("{namespace}/{}", raw.metadata.name),
            (_, None) => raw.metadata.name,
        };
        Self { name, reason, costly }
    }
}

#[derive(Deserialize)]
struct Raw {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "null_is_empty")]
    ingress: Vec<Rule>,
    #[serde(default, deserialize_with = "null_is_empty")]
    egress: Vec<Rule>,
}

/// A rule of Calico's policies, or of Kubernetes' own; their fields have different names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    action: String,
    ip_version: Option<u8>,
    icmp: Option<IgnoredAny>,
    #[serde(rename = "notICMP")]
    not_icmp: Option<IgnoredAny>,
    not_protocol: Option<IgnoredAny>,
    #[serde(default)]
    source: Entity,
    #[serde(default)]
    destination: Entity,
    /// Kubernetes.
    #[serde(default, deserialize_with = "null_is_empty")]
    ports: Vec<Port>,
    #[serde(default, deserialize_with = "null_is_empty")]
    from: Vec<Peer>,
    #[serde(default, deserialize_with = "null_is_empty")]
    to: Vec<Peer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entity {
    #[serde(default, deserialize_with = "null_is_empty")]
    nets: Vec<IgnoredAny>,
    selector: Option<String>,
    namespace_selector: Option<String>,
    not_nets: Option<Vec<IgnoredAny>>,
    not_selector: Option<String>,
    not_ports: Option<Vec<IgnoredAny>>,
    #[serde(default, deserialize_with = "null_is_empty")]
    ports: Vec<Value>,
}

#[derive(Deserialize)]
struct Port {
    port: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Peer {
    ip_block: Option<Block>,
    pod_selector: Option<Selector>,
    namespace_selector: Option<Selector>,
}

/// A label selector of Kubernetes; an empty one selects everything.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    match_labels: Option<BTreeMap<String, IgnoredAny>>,
    match_expressions: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default, deserialize_with = "null_is_empty")]
    except: Vec<IgnoredAny>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Rule {
    /// Why Windows ignores it.
    fn skipped(&self) -> Option<&'static str> {
        let sides = [&self.source, &self.destination];
        let negated = self.not_protocol.is_some()
            || self.not_icmp.is_some()
            || sides.iter().any(|side| side.is_negated())
            || self.from.iter().chain(&self.to).any(Peer::is_negated);
        let named = sides.iter().any(|side| side.ports.iter().any(is_name))
            || self.ports.iter().any(|port| port.port.as_ref().is_some_and(is_name));
        [
            (negated, "a negated match"),
            (named, "a named port"),
            (self.icmp.is_some(), "an ICMP type"),
            (self.action == "Log", "action Log"),
            (self.ip_version == Some(6), "IPv6"),
        ]
        .into_iter()
        .find_map(|(is, reason)| is.then_some(reason))
    }

    /// Why it is expensive on Windows. `everywhere` for a policy without namespace.
    fn costly(&self, everywhere: bool) -> Option<&'static str> {
        let sides = [&self.source, &self.destination];
        let everybody = sides.iter().any(|side| side.is_everybody(everywhere))
            || self.from.iter().chain(&self.to).any(Peer::is_everybody);
        let nets = sides.iter().map(|side| side.nets.len()).max().unwrap_or_default() + self.from.len() + self.to.len();
        let ports = sides.iter().map(|side| side.ports.len()).max().unwrap_or_default() + self.ports.len();
        if everybody {
            Some("a selector of every pod")
        } else {
            (nets.max(1) * ports.max(1) > LONG).then_some("a long list of nets and ports")
        }
    }
}

impl Entity {
    /// `all()` lists every pod and its address; without a selector there is no list. Alone it means the policy's own
    /// namespace, if it has one.
    fn is_everybody(&self, everywhere: bool) -> bool {
        let all = |selector: &Option<String>| selector.as_ref().map(|s| s.trim() == "all()");
        match (all(&self.selector), all(&self.namespace_selector)) {
            (None | Some(true), Some(true)) => true,
            (Some(true), None) => everywhere,
            _ => false,
        }
    }

    fn is_negated(&self) -> bool {
        let some = |list: &Option<Vec<IgnoredAny>>| list.as_ref().is_some_and(|list| !list.is_empty());
        some(&self.not_nets) || some(&self.not_ports) || self.not_selector.as_ref().is_some_and(|s| !s.is_empty())
    }
}

impl Selector {
    fn is_empty(&self) -> bool {
        self.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && self.match_expressions.as_ref().is_none_or(Vec::is_empty)
    }
}

impl Peer {
    /// All pods of all namespaces.
    fn is_everybody(&self) -> bool {
        self.namespace_selector.as_ref().is_some_and(Selector::is_empty)
            && self.pod_selector.as_ref().is_none_or(Selector::is_empty)
    }

    fn is_negated(&self) -> bool {
        self.ip_block.as_ref().is_some_and(|block| !block.except.is_empty())
    }
}

/// Numbers and ranges, such as `8080` and `8000:8100`, are not names; ranges are text too.
fn is_name(port: &Value) -> bool {
    port.as_str().is_some_and(|text| text.chars().any(|c| !c.is_ascii_digit() && c != ':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reason(spec: Value) -> Option<&'static str> {
        serde_json::from_value::<Policy>(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap().reason
    }

    #[test]
    fn what_windows_ignores_is_found_in_either_kind_of_policy() {
        for (rule, wanted) in [
            (json!({"action": "Allow", "protocol": "TCP", "destination": {"ports": [80, "8000:8100"]}}), None),
            (json!({"action": "Deny", "source": {"notNets": ["10.0.0.0/8"]}}), Some("a negated match")),
            (json!({"action": "Deny", "source": {"notSelector": "a == 'b'"}}), Some("a negated match")),
            (json!({"action": "Allow", "notProtocol": "UDP"}), Some("a negated match")),
            (json!({"action": "Allow", "protocol": "TCP", "destination": {"ports": ["http"]}}), Some("a named port")),
            (json!({"action": "Allow", "protocol": "ICMP", "icmp": {"type": 8}}), Some("an ICMP type")),
            (json!({"action": "Log"}), Some("action Log")),
            (json!({"action": "Allow", "ipVersion": 6}), Some("IPv6")),
            (json!({"from": [{"podSelector": {}}], "ports": [{"port": 80}]}), None),
            (json!({"ports": [{"port": "web", "protocol": "TCP"}]}), Some("a named port")),
            (
                json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}),
                Some("a negated match"),
            ),
        ] {
            assert_eq!(reason(json!({"ingress": [rule]})), wanted, "{rule}");
            assert_eq!(reason(json!({"ingress": null, "egress": [rule]})), wanted, "{rule}");
        }
    }

    #[test]
    fn what_is_expensive_on_windows_is_found_in_either_kind_of_policy() {
        let costly = |namespace: Option<&str>, rule: &Value| {
            let spec = json!({"ingress": [rule]});
            let metadata = json!({"name": "p", "namespace": namespace});
            serde_json::from_value::<Policy>(json!({"metadata": metadata, "spec": spec})).unwrap().costly
        };
        let nets: Vec<String> = (0..60).map(|n| format!("10.0.{n}.0/24")).collect();
        let (every, long) = (Some("a selector of every pod"), Some("a long list of nets and ports"));
        for (rule, in_namespace, global) in [
            (json!({"action": "Allow"}), None, None),
            (json!({"action": "Allow", "source": {"selector": "app == 'web'"}}), None, None),
            (json!({"action": "Allow", "source": {"selector": "all()"}}), None, every),
            (json!({"action": "Allow", "source": {"namespaceSelector": "all()"}}), every, every),
            (json!({"action": "Deny", "source": {"nets": nets}}), None, None),
            (json!({"action": "Deny", "source": {"nets": nets}, "destination": {"ports": [80, 443]}}), long, long),
            (json!({"from": [{"namespaceSelector": {}}]}), every, every),
            (json!({"from": [{"podSelector": {}}]}), None, None),
            (json!({"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]}), None, None),
        ] {
            assert_eq!((costly(Some("shop"), &rule), costly(None, &rule)), (in_namespace, global), "{rule}");
        }
    }

    #[test]
    fn the_first_are_named_and_all_are_counted() {
        let policy = |name: &str, action: &str| {
            let spec = json!({"egress": [{"action": action}]});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})).unwrap()
        };
        let mut all: Vec<Policy> = (0..7).map(|n| policy(&format!("log-{n}"), "Log")).collect();
        all.push(policy("fine", "Allow"));
        let facts = count(&all);
        assert_eq!((facts.all, facts.skipped, facts.examples.len()), (8, 7, 5));
        assert_eq!(facts.examples[0], "shop/log-0 (action Log)");
    }
}
