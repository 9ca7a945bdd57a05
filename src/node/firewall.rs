//! For both nodes: which firewall rules are equivalent, and which ports they open.

/// Names of the same rule: Calico's scripts use one, rke2 the other.
pub const VXLAN_RULE: [&str; 2] = ["Overlay Traffic 4789 UDP", "OverlayTraffic4789UDP"];

/// Whether a rule of this name is the requested one, maybe by another name.
pub fn is_the_rule(asked: &str, name: &str) -> bool {
    let known = |name: &str| VXLAN_RULE.iter().any(|known| known.eq_ignore_ascii_case(name));
    asked.eq_ignore_ascii_case(name) || (known(asked) && known(name))
}

/// An enabled inbound rule, as far as it decides which ports are open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// It allows, and does not block.
    pub allows: bool,
    /// For TCP, or for any protocol.
    pub tcp: bool,
    /// As Windows has them: `3389`, `5985-5986,80`; empty or `*` for every port.
    pub ports: String,
    /// For one program or one service only.
    pub of_one: bool,
}

/// Whether a firewall with these rules allows inbound connections to a TCP port. A rule that blocks overrides one that
/// allows. A rule without ports but with a program does not count: which program listens is unknown here.
pub fn lets_in(gates: &[Gate], port: u16) -> bool {
    let about = |gate: &&Gate| gate.tcp && covers(gate, port);
    let mut all = gates.iter().filter(about).peekable();
    all.peek().is_some() && all.all(|gate| gate.allows)
}

fn covers(gate: &Gate, port: u16) -> bool {
    let ports = gate.ports.trim();
    if ports.is_empty() || ports == "*" {
        return !gate.of_one;
    }
    // Words, for example `RPC`, mean ports that are assigned later.
    ports.split(',').any(|part| match part.trim().split_once('-') {
        Some((first, last)) => match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&port),
            _ => false,
        },
        None => part.trim().parse() == Ok(port),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_open_if_a_rule_allows_it_and_none_blocks_it() {
        let gate = |allows, ports: &str| Gate { allows, tcp: true, ports: ports.into(), of_one: false };
        let of_one = |ports: &str| Gate { of_one: true, ..gate(true, ports) };
        let udp = Gate { tcp: false, ..gate(true, "3389") };
        for (gates, open) in [
            (vec![], false),
            (vec![gate(true, "3389")], true),
            (vec![gate(true, "80, 3380-3390")], true),
            (vec![gate(true, "5985-5986,RPC")], false),
            (vec![udp], false),
            (vec![gate(true, "3389"), gate(false, "3000-4000")], false),
            (vec![gate(true, "*")], true),
            (vec![of_one("")], false),
            (vec![of_one("3389")], true),
        ] {
            assert_eq!(lets_in(&gates, 3389), open, "{gates:?}");
        }
    }

    #[test]
    fn b31_the_vxlan_rule_is_recognized_by_both_its_names() {
        let [calicos, rke2s] = VXLAN_RULE;
        assert!(is_the_rule(calicos, rke2s) && is_the_rule(rke2s, calicos));
        assert!(is_the_rule(calicos, "overlay traffic 4789 udp"));
        assert!(!is_the_rule(calicos, "kubectl exec 10250") && !is_the_rule("kubectl exec 10250", calicos));
    }
}
