//! Which fields a policy has, and which values the API takes: a field that it does not know is dropped or refused, and
//! the policy is not what it looks like. For policies in files; those in a cluster have passed.
//!
//! Calico's are from its CRDs (manifests/v3_projectcalico_org.yaml and manifests/crds.yaml of v3.32.1) and from its API's
//! types (api/pkg/lib/numorstring), those of Kubernetes from the API networking.k8s.io/v1.

use serde_json::Value;

use Shape::{Any, Each, Fields, OneOf, Port, Protocol};

/// What a value may be. Its type is checked where it is read.
enum Shape {
    Any,
    OneOf(&'static [&'static str]),
    /// A name or a number.
    Protocol,
    /// A name, a number or a range, from this number on.
    Port(u64),
    Each(&'static Self),
    Fields(&'static [(&'static str, Self)]),
}

const TYPES: Shape = Each(&OneOf(&["Ingress", "Egress"]));
const ICMP: Shape = Fields(&[("type", Any), ("code", Any)]);
const CALICO_PORTS: Shape = Each(&Port(0));
const ENTITY: Shape = Fields(&[
    ("nets", Any),
    ("notNets", Any),
    ("selector", Any),
    ("notSelector", Any),
    ("namespaceSelector", Any),
    ("ports", CALICO_PORTS),
    ("notPorts", CALICO_PORTS),
    ("serviceAccounts", Fields(&[("names", Any), ("selector", Any)])),
    ("services", Fields(&[("name", Any), ("namespace", Any)])),
]);
const RULES: Shape = Each(&Fields(&[
    ("action", OneOf(&["Allow", "Deny", "Log", "Pass"])),
    ("ipVersion", Any),
    ("protocol", Protocol),
    ("notProtocol", Protocol),
    ("icmp", ICMP),
    ("notICMP", ICMP),
    ("http", Fields(&[("methods", Any), ("paths", Any)])),
    ("metadata", Fields(&[("annotations", Any)])),
    ("source", ENTITY),
    ("destination", ENTITY),
]));
const CALICO: Shape = Fields(&[
    ("order", Any),
    ("tier", Any),
    ("selector", Any),
    ("serviceAccountSelector", Any),
    ("performanceHints", Any),
    ("types", TYPES),
    ("ingress", RULES),
    ("egress", RULES),
]);
/// What only a global one has besides.
const GLOBAL: Shape =
    Fields(&[("namespaceSelector", Any), ("doNotTrack", Any), ("preDNAT", Any), ("applyOnForward", Any)]);

const LABELS: Shape = Fields(&[
    ("matchLabels", Any),
    ("matchExpressions", Each(&Fields(&[("key", Any), ("operator", Any), ("values", Any)]))),
]);
const PEERS: Shape = Each(&Fields(&[
    ("podSelector", LABELS),
    ("namespaceSelector", LABELS),
    ("ipBlock", Fields(&[("cidr", Any), ("except", Any)])),
]));
const PORTS: Shape =
    Each(&Fields(&[("protocol", OneOf(&["TCP", "UDP", "SCTP"])), ("port", Port(1)), ("endPort", Port(1))]));
const KUBERNETES: Shape = Fields(&[
    ("podSelector", LABELS),
    ("policyTypes", TYPES),
    ("ingress", Each(&Fields(&[("from", PEERS), ("ports", PORTS)]))),
    ("egress", Each(&Fields(&[("to", PEERS), ("ports", PORTS)]))),
]);

/// What is wrong in a `spec`, and what was meant.
pub(super) type Refused = Vec<(String, Option<String>)>;

/// What the API does not take of a policy of Calico's.
pub(super) fn of_calico(is_global: bool, spec: &Value) -> Refused {
    let mut found = Vec::new();
    look(if is_global { &[&CALICO, &GLOBAL] } else { &[&CALICO] }, spec, "spec", &mut found);
    found
}

/// The same of Kubernetes' own.
pub(super) fn of_kubernetes(spec: &Value) -> Refused {
    let mut found = Vec::new();
    look(&[&KUBERNETES], spec, "spec", &mut found);
    found
}

/// `shapes`: one, or several that have their fields together.
fn look(shapes: &[&Shape], value: &Value, path: &str, found: &mut Refused) {
    match (shapes, value) {
        (_, Value::Null) | ([Any], _) => {}
        ([Each(shape)], Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                look(&[shape], item, &format!("{path}[{at}]"), found);
            }
        }
        ([OneOf(allowed)], Value::String(text)) if !allowed.contains(&text.as_str()) => {
            let what = format!("{path}: `{text}` is none of {}", allowed.join(", "));
            found.push((what, meant(text, allowed)));
        }
        ([Protocol], value) if !is_protocol(value) => {
            found.push((format!("{path}: {value} is no protocol"), meant(&shown(value), &PROTOCOLS)));
        }
        ([Port(lowest)], value) if !is_port(value, *lowest) => {
            found.push((format!("{path}: {value} is no port from {lowest} to 65535"), None));
        }
        (shapes, Value::Object(fields)) => {
            let known: Vec<&(&str, Shape)> = shapes
                .iter()
                .filter_map(|shape| if let Fields(of) = shape { Some(*of) } else { None })
                .flatten()
                .collect();
            for (name, value) in fields {
                match known.iter().find(|(known, _)| known == name) {
                    Some((_, shape)) => look(&[shape], value, &format!("{path}.{name}"), found),
                    None => {
                        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                        found.push((format!("{path}.{name}: there is no such field"), meant(name, &names)));
                    }
                }
            }
        }
        _ => {}
    }
}

/// The names that Calico's API knows; it does not look at their case.
const PROTOCOLS: [&str; 6] = ["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"];

fn is_protocol(value: &Value) -> bool {
    let text = shown(value);
    PROTOCOLS.iter().any(|name| name.eq_ignore_ascii_case(&text)) || text.parse::<u8>().is_ok()
}

fn is_port(value: &Value, lowest: u64) -> bool {
    let text = shown(value);
    let number = |text: &str| text.parse::<u64>().ok().filter(|port| (lowest..=65535).contains(port));
    if let Some((first, last)) = text.split_once(':') {
        return number(first).zip(number(last)).is_some_and(|(first, last)| first <= last);
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    !is_number || number(&text).is_some()
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The word that was meant: one with another case, or with one letter wrong, missing or too many, or two exchanged.
fn meant(word: &str, allowed: &[&str]) -> Option<String> {
    let same = allowed.iter().find(|one| one.eq_ignore_ascii_case(word));
    same.or_else(|| allowed.iter().find(|one| is_near(word, one))).map(|one| (*one).to_owned())
}

fn is_near(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let begin = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[begin..], &other[begin..]);
    match (one, other) {
        ([a, b, rest @ ..], [c, d, others @ ..]) if a == d && b == c => rest == others,
        ([_, rest @ ..], [_, others @ ..]) if rest == others => true,
        ([_, rest @ ..], others) if rest == others => true,
        (rest, [_, others @ ..]) => rest == others,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(found: Refused) -> String {
        let line = |(what, meant): (String, Option<String>)| {
            format!("{what}{}", meant.map_or_else(String::new, |meant| format!(" -> {meant}")))
        };
        found.into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn fields_and_values_that_the_api_refuses_are_found_with_what_was_meant() {
        insta::assert_snapshot!(
            said(of_calico(false, &json!({
                "types": ["ingress"], "ingres": [], "doNotTrack": true,
                "egress": [{"action": "deny", "protocol": "TPC", "destination": {"ports": [99999, "9:1", "http", "80:90"]}}],
            }))),
            @r#"
        spec.types[0]: `ingress` is none of Ingress, Egress -> Ingress
        spec.ingres: there is no such field -> ingress
        spec.doNotTrack: there is no such field
        spec.egress[0].action: `deny` is none of Allow, Deny, Log, Pass -> Deny
        spec.egress[0].protocol: "TPC" is no protocol -> TCP
        spec.egress[0].destination.ports[0]: 99999 is no port from 0 to 65535
        spec.egress[0].destination.ports[1]: "9:1" is no port from 0 to 65535
        "#
        );
        insta::assert_snapshot!(
            said(of_kubernetes(&json!({
                "podSelector": {}, "ingress": [{"from": [{"podselector": {}}], "ports": [{"port": 0, "protocol": "Tcp"}]}],
            }))),
            @r"
        spec.ingress[0].from[0].podselector: there is no such field -> podSelector
        spec.ingress[0].ports[0].port: 0 is no port from 1 to 65535
        spec.ingress[0].ports[0].protocol: `Tcp` is none of TCP, UDP, SCTP -> TCP
        "
        );
        assert_eq!(said(of_calico(true, &json!({"doNotTrack": true, "order": 1, "selector": "all()"}))), "");
        let numbers = json!({"ingress": [{"action": "Allow", "protocol": 6, "notProtocol": "tcp", "source": null}]});
        assert_eq!(said(of_calico(false, &numbers)), "");
    }
}
