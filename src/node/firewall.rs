//! Which firewall rules are one and the same, for both nodes.

/// Names of one and the same rule: the one that Calico's scripts give, and rke2's.
pub const VXLAN_RULE: [&str; 2] = ["Overlay Traffic 4789 UDP", "OverlayTraffic4789UDP"];

/// Whether a rule of this name is the one that is asked for, maybe by another name.
pub fn is_the_rule(asked: &str, name: &str) -> bool {
    let known = |name: &str| VXLAN_RULE.iter().any(|known| known.eq_ignore_ascii_case(name));
    asked.eq_ignore_ascii_case(name) || (known(asked) && known(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b31_the_vxlan_rule_is_known_by_both_its_names() {
        let [calicos, rke2s] = VXLAN_RULE;
        assert!(is_the_rule(calicos, rke2s) && is_the_rule(rke2s, calicos));
        assert!(is_the_rule(calicos, "overlay traffic 4789 udp"));
        assert!(!is_the_rule(calicos, "kubectl exec 10250") && !is_the_rule("kubectl exec 10250", calicos));
    }
}
