//! What to write instead of a rule, if Windows enforces an equivalent.

use ipnet::Ipv4Net;

use super::complement;
use super::resource::{Entity, Rule};
use super::rules::{Skipped, is_name};

/// More nets than this are no help.
const MOST: usize = 64;

/// The fields that replace those for which Windows skips a rule; none if one of them has no equivalent.
pub(super) fn of_skipped(rule: &Rule, why: Skipped) -> Option<String> {
    match why {
        Skipped::Negated => without_negations(rule),
        Skipped::NamedPort => numbers(rule),
        Skipped::IcmpType | Skipped::Log | Skipped::Ipv6 => None,
    }
}

/// None if the rule has no name of a port.
fn numbers(rule: &Rule) -> Option<String> {
    let sides = rule.sides().into_iter().flat_map(|(_, side)| &side.ports);
    let ports = sides.chain(rule.ports.iter().filter_map(|port| port.port.as_ref()));
    let names: Vec<&str> = ports.map(String::as_str).filter(|port| is_name(port)).collect();
    let protocols = rule.protocols.iter().filter_map(|protocol| protocol["destinationNamedPort"].as_str());
    let names: Vec<&str> = names.into_iter().chain(protocols).collect();
    (!names.is_empty()).then(|| format!("the number of the port instead of the name {}", names.join(", ")))
}

fn without_negations(rule: &Rule) -> Option<String> {
    if rule.not_protocol.is_some() || rule.not_icmp.is_some() || rule.icmp.is_some() {
        return None;
    }
    let mut lines = Vec::new();
    for (name, side) in rule.sides() {
        if !side.not_nets.is_empty() {
            let nets = complement::nets(&side.nets, &side.not_nets)?;
            lines.push(format!("{name}.nets: [{}], without notNets", nets.join(", ")));
        }
        if !side.not_ports.is_empty() {
            let ports = complement::ports(&side.ports, &side.not_ports)?;
            lines.push(format!("{name}.ports: [{}], without notPorts", ports.join(", ")));
        }
        if let Some(not) = side.not_selector.as_ref().filter(|selector| !selector.is_empty()) {
            lines.push(format!("{name}.selector: \"{}\", without notSelector", and_not(side, not)?));
        }
    }
    for (field, at, peer) in rule.peers() {
        if let Some(block) = peer.ip_block.as_ref().filter(|block| !block.except.is_empty()) {
            let nets = complement::nets(std::slice::from_ref(&block.cidr), &block.except)?;
            lines.push(format!("an ipBlock without except instead of {field}[{at}] for each of: {}", nets.join(", ")));
        }
    }
    // For these the rule would still be skipped.
    lines.extend(numbers(rule));
    Some(lines.join("\n"))
}

/// Without a selector, a negated one also matches addresses outside the cluster, which no selector does.
fn and_not(side: &Entity, not: &str) -> Option<String> {
    match side.selector.as_deref().map(str::trim).filter(|selector| !selector.is_empty()) {
        Some("all()") => Some(format!("!({not})")),
        Some(selector) => Some(format!("({selector}) && !({not})")),
        None => side.selects().then(|| format!("!({not})")),
    }
}

/// The policy's own pods belong into `spec.selector`, of which a rule lists no address.
pub(super) fn of_both_selectors(direction: &str, selector: Option<&str>, rule: &Rule) -> Option<String> {
    let (name, own) =
        if direction == "ingress" { ("destination", &rule.destination) } else { ("source", &rule.source) };
    if own.namespace_selector.as_ref().is_some_and(|text| !text.is_empty()) {
        return None;
    }
    let own = own.selector.as_deref()?;
    let selector = match selector.map(str::trim).filter(|selector| !matches!(*selector, "" | "all()")) {
        Some(selector) => format!("({selector}) && ({own})"),
        None => own.to_owned(),
    };
    Some(format!("spec.selector: \"{selector}\" in a policy with only this rule, without {name}.selector"))
}

/// The same nets in fewer entries.
pub(super) fn of_long_list(rule: &Rule) -> Option<String> {
    let mut lines = Vec::new();
    for (name, side) in rule.sides() {
        let nets: Option<Vec<Ipv4Net>> = side.nets.iter().map(|net| net.parse().ok()).collect();
        let fewer = nets.map(|nets| Ipv4Net::aggregate(&nets)).unwrap_or_default();
        if !fewer.is_empty() && fewer.len() <= MOST && fewer.len() < side.nets.len() {
            let fewer: Vec<String> = fewer.iter().map(Ipv4Net::to_string).collect();
            lines.push(format!("{name}.nets: [{}]", fewer.join(", ")));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_rewrite_leaves_nothing_for_which_windows_skips_the_rule() {
        let written = |rule: Value| {
            let rule: Rule = serde_json::from_value(rule).unwrap();
            of_skipped(&rule, rule.skipped().unwrap().0)
        };
        for (rule, wanted) in [
            (
                json!({"source": {"notNets": ["0.0.0.0/1"]}, "destination": {"ports": ["http"]}}),
                Some("source.nets: [128.0.0.0/1], without notNets\nthe number of the port instead of the name http"),
            ),
            (
                json!({"source": {"namespaceSelector": "has(a)", "notSelector": "b == 'c'"}}),
                Some("source.selector: \"!(b == 'c')\", without notSelector"),
            ),
            (json!({"source": {"notSelector": "b == 'c'"}}), None),
            (json!({"source": {"notNets": ["0.0.0.0/1"]}, "icmp": {"type": 8}}), None),
            (json!({"notProtocol": "TCP", "source": {"notPorts": [80]}}), None),
        ] {
            assert_eq!(written(rule.clone()).as_deref(), wanted, "{rule}");
        }
    }
}
