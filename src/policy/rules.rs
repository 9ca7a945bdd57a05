//! What Windows makes of one rule.

use ipnet::IpNet;
use serde_json::Value;

use super::resource::{Entity, Kind, LabelSelector, Listed, Peer, Rule};

/// The number of nets and ports from which a rule is long: they are multiplied for each endpoint.
const LONG: usize = 100;

/// Why Windows skips a rule, or a part of one of Kubernetes' rules, which Calico makes into several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Skipped {
    Negated,
    NamedPort,
    IcmpType,
    Log,
    Ipv6,
}

impl Skipped {
    pub const fn what(self) -> &'static str {
        match self {
            Self::Negated => "a negated match",
            Self::NamedPort => "a named port",
            Self::IcmpType => "an ICMP type",
            Self::Log => "action Log",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// Why a rule is expensive, whatever the number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Costly {
    EveryPod,
    BothSelectors,
    LongList,
}

impl Costly {
    pub const fn what(self) -> &'static str {
        match self {
            Self::EveryPod => "a selector of every pod",
            Self::BothSelectors => "a source and a destination selector",
            Self::LongList => "a long list of nets and ports",
        }
    }
}

impl Listed {
    /// Why Windows skips one of its rules.
    pub fn skipped(&self) -> Option<&'static str> {
        self.rules().find_map(|rule| rule.skipped()).map(|(why, _)| why.what())
    }

    /// Why one of its rules is expensive on Windows.
    pub fn costly(&self) -> Option<&'static str> {
        self.rules().find_map(|rule| rule.costly(self.metadata.namespace.is_none())).map(Costly::what)
    }

    /// Whether one of its rules is about HTTP requests.
    pub fn is_about_http(&self) -> bool {
        self.rules().any(|rule| rule.http.is_some())
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.spec.directions().flat_map(|(_, rules)| rules)
    }
}

impl Rule {
    /// Why Windows skips it, and which fields are the reason.
    pub fn skipped(&self) -> Option<(Skipped, Vec<String>)> {
        let mut found: Vec<(Skipped, String)> = Vec::new();
        let mut note = |is: bool, why: Skipped, field: String| {
            if is {
                found.push((why, field));
            }
        };
        note(self.not_protocol.is_some(), Skipped::Negated, "notProtocol".into());
        note(self.not_icmp.is_some(), Skipped::Negated, "notICMP".into());
        for (name, side) in self.sides() {
            note(!side.not_nets.is_empty(), Skipped::Negated, format!("{name}.notNets"));
            note(!side.not_ports.is_empty(), Skipped::Negated, format!("{name}.notPorts"));
            let negated = side.not_selector.as_ref().is_some_and(|selector| !selector.is_empty());
            note(negated, Skipped::Negated, format!("{name}.notSelector"));
            note(side.ports.iter().any(|port| is_name(port)), Skipped::NamedPort, format!("{name}.ports"));
            let ipv6 = !side.nets.is_empty() && side.nets.iter().all(|net| net.contains(':'));
            note(ipv6, Skipped::Ipv6, format!("{name}.nets"));
        }
        for (field, at, peer) in self.peers() {
            note(peer.is_negated(), Skipped::Negated, format!("{field}[{at}].ipBlock.except"));
            let ipv6 = peer.ip_block.as_ref().is_some_and(|block| block.cidr.contains(':'));
            note(ipv6, Skipped::Ipv6, format!("{field}[{at}].ipBlock"));
            let ipv6 = !peer.networks.is_empty() && peer.networks.iter().all(|net| net.contains(':'));
            note(ipv6, Skipped::Ipv6, format!("{field}[{at}].networks"));
        }
        for (at, protocol) in self.protocols.iter().enumerate() {
            // Calico 3.32 converts it to a named port, and Windows has none.
            note(protocol["destinationNamedPort"].is_string(), Skipped::NamedPort, format!("protocols[{at}]"));
        }
        for (at, port) in self.ports.iter().enumerate() {
            let named = port.port.as_ref().is_some_and(|port| is_name(port));
            note(named, Skipped::NamedPort, format!("ports[{at}]"));
        }
        note(self.icmp.is_some(), Skipped::IcmpType, "icmp".into());
        note(self.action == "Log", Skipped::Log, "action".into());
        note(self.ip_version == Some(6), Skipped::Ipv6, "ipVersion".into());
        // A rule for IPv6 alone loses nothing, whatever else is in it.
        let whole_rule = |(why, field): &&(Skipped, String)| *why == Skipped::Ipv6 && !field.contains('[');
        let first = found.iter().find(whole_rule).or_else(|| found.iter().min()).map(|(why, _)| *why)?;
        Some((first, found.into_iter().filter(|(why, _)| *why == first).map(|(_, field)| field).collect()))
    }

    /// Why it is expensive. `everywhere` for a policy without namespace.
    pub fn costly(&self, everywhere: bool) -> Option<Costly> {
        let everybody = self.sides().iter().any(|(_, side)| side.is_everybody(everywhere))
            || self.peers().any(|(_, _, peer)| peer.is_everybody());
        let nets = self.sides().iter().map(|(_, side)| side.nets.len()).max().unwrap_or_default()
            + self.peers().map(|(_, _, peer)| peer.networks.len().max(1)).sum::<usize>();
        let ports = self.sides().iter().map(|(_, side)| side.ports.len()).max().unwrap_or_default()
            + self.ports.len()
            + self.protocols.len();
        if everybody {
            Some(Costly::EveryPod)
        } else if self.sides().iter().all(|(_, side)| side.selects()) {
            Some(Costly::BothSelectors)
        } else {
            (nets.max(1) * ports.max(1) > LONG).then_some(Costly::LongList)
        }
    }

    /// The field of an administrators' rule that Calico cannot convert (libcalico-go,
    /// lib/backend/k8s/conversion/conversion.go of v3.29.0 to v3.31.6, clusternetworkpolicy.go of v3.32.0).
    pub fn unconverted(&self, kind: Kind) -> Option<String> {
        let known = match kind {
            Kind::AdminNetworkPolicy => ["Allow", "Deny", "Pass"].as_slice(),
            Kind::BaselineAdminNetworkPolicy => &["Allow", "Deny"],
            Kind::ClusterNetworkPolicy => &["Accept", "Deny", "Pass"],
            _ => return None,
        };
        if !known.contains(&self.action.as_str()) {
            return Some(format!("action {}", self.action));
        }
        let reversed = |range: &Value| range["start"].as_u64() > range["end"].as_u64();
        if let Some(at) = self.ports.iter().position(|port| port.port_range.as_ref().is_some_and(reversed)) {
            return Some(format!("ports[{at}].portRange"));
        }
        let of_protocols = self.protocols.iter().position(|protocol| {
            ["tcp", "udp", "sctp"].iter().any(|name| reversed(&protocol[*name]["destinationPort"]["range"]))
        });
        if let Some(at) = of_protocols {
            return Some(format!("protocols[{at}]"));
        }
        self.peers().find_map(|(field, at, peer)| {
            if let Some(bad) = peer.networks.iter().find(|net| net.parse::<IpNet>().is_err()) {
                return Some(format!("{field}[{at}].networks: {bad}"));
            }
            let read = peer.namespaces.is_some() || peer.pods.is_some() || field == "to" && !peer.networks.is_empty();
            let named = match peer {
                _ if read => return None,
                Peer { nodes: Some(_), .. } => ".nodes",
                Peer { domain_names: Some(_), .. } => ".domainNames",
                _ => "",
            };
            Some(format!("{field}[{at}]{named}"))
        })
    }

    /// Whether Calico denies all traffic if it cannot convert the rule; else it drops the rule (the same files).
    pub fn fails_closed(&self, kind: Kind) -> bool {
        self.action == "Deny" || self.action == "Pass" && kind != Kind::BaselineAdminNetworkPolicy
    }

    pub const fn sides(&self) -> [(&'static str, &Entity); 2] {
        [("source", &self.source), ("destination", &self.destination)]
    }

    /// Those of Kubernetes, with the name of their list and their place in it.
    pub fn peers(&self) -> impl Iterator<Item = (&'static str, usize, &Peer)> {
        let from = self.from.iter().enumerate().map(|(at, peer)| ("from", at, peer));
        from.chain(self.to.iter().enumerate().map(|(at, peer)| ("to", at, peer)))
    }
}

impl Entity {
    /// Whether it has a list of pods.
    pub fn selects(&self) -> bool {
        let some = |selector: &Option<String>| selector.as_ref().is_some_and(|text| !text.trim().is_empty());
        some(&self.selector) || some(&self.namespace_selector)
    }

    /// `all()` lists every pod and its address; without a selector there is no list. Alone it means the policy's own
    /// namespace, if it has one.
    fn is_everybody(&self, everywhere: bool) -> bool {
        let all = |selector: &Option<String>| selector.as_ref().map(|s| matches!(s.trim(), "all()" | "all( )"));
        match (all(&self.selector), all(&self.namespace_selector)) {
            (None | Some(true), Some(true)) => true,
            (Some(true), None) => everywhere,
            _ => false,
        }
    }
}

impl LabelSelector {
    fn is_empty(&self) -> bool {
        self.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
            && self.match_expressions.as_ref().is_none_or(Vec::is_empty)
    }
}

impl Peer {
    /// All pods of all namespaces.
    fn is_everybody(&self) -> bool {
        let (namespaces, pods) = self.selectors();
        namespaces.is_some_and(LabelSelector::is_empty) && pods.is_none_or(LabelSelector::is_empty)
    }

    /// Of namespaces and of pods. Pods go before namespaces, as in Calico's conversion.
    pub fn selectors(&self) -> (Option<&LabelSelector>, Option<&LabelSelector>) {
        match &self.pods {
            Some(pods) => (Some(&pods.namespace_selector), Some(&pods.pod_selector)),
            None => (self.namespaces.as_ref().or(self.namespace_selector.as_ref()), self.pod_selector.as_ref()),
        }
    }

    fn is_negated(&self) -> bool {
        self.ip_block.as_ref().is_some_and(|block| !block.except.is_empty())
    }
}

/// Numbers and ranges, such as `8080` and `8000:8100`, are not names; ranges are text too.
pub(super) fn is_name(port: &str) -> bool {
    port.chars().any(|c| !c.is_ascii_digit() && c != ':')
}
