//! Which network policies have rules that Felix on Windows skips: it knows no negated match, no
//! ICMP type, no named port, no action Log and no IPv6 (reference: Felix' Windows policy sets).
//! A skipped Deny falls through to the next rule.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::facts::PolicyFacts;

/// How many are named; the rest is counted.
const EXAMPLES: usize = 5;

/// A policy of any kind, reduced while it is read to what Windows skips in it: a cluster may have
/// ten thousand.
#[derive(Debug)]
pub(super) struct Policy {
    /// With its namespace, where it has a reason.
    name: String,
    reason: Option<&'static str>,
}

pub(super) fn count(policies: &[Policy]) -> PolicyFacts {
    let skipped = || policies.iter().filter_map(|policy| Some((policy, policy.reason?)));
    PolicyFacts {
        all: policies.len(),
        skipped: skipped().count(),
        examples: skipped().take(EXAMPLES).map(|(policy, reason)| format!("{} ({reason})", policy.name)).collect(),
    }
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
        let name = match (reason, raw.metadata.namespace) {
            (None, _) => String::new(),
            (_, Some(namespace)) => format!("{namespace}/{}", raw.metadata.name),
            (_, None) => raw.metadata.name,
        };
        Self { name, reason }
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
    /// Why Windows skips it.
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
}

impl Entity {
    fn is_negated(&self) -> bool {
        let some = |list: &Option<Vec<IgnoredAny>>| list.as_ref().is_some_and(|list| !list.is_empty());
        some(&self.not_nets) || some(&self.not_ports) || self.not_selector.as_ref().is_some_and(|s| !s.is_empty())
    }
}

impl Peer {
    fn is_negated(&self) -> bool {
        self.ip_block.as_ref().is_some_and(|block| !block.except.is_empty())
    }
}

/// Numbers and ranges, as `8080` and `8000:8100`, are no names; the latter come as text too.
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
    fn what_windows_skips_is_found_in_either_kind_of_policy() {
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
