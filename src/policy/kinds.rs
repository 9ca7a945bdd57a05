//! The kinds of findings, the most harmful first.

use super::report::Severity;

/// What can be wrong with a policy on Windows.
#[derive(Debug)]
pub struct FindingKind {
    /// PascalCase; `explain` has a page for it.
    pub id: &'static str,
    pub severity: Severity,
    pub why: &'static str,
}

pub(super) const DENY_SKIPPED: usize = 0;
pub(super) const NOT_READ: usize = 1;
pub(super) const HTTP_IGNORED: usize = 2;
pub(super) const PORT_IGNORED: usize = 3;
pub(super) const NOT_CONVERTED: usize = 4;
pub(super) const ALLOW_SKIPPED: usize = 5;
pub(super) const SELECTOR_INVALID: usize = 6;
pub(super) const REFUSED: usize = 7;
pub(super) const FOR_HOSTS: usize = 8;
pub(super) const MANY_MEMBERS: usize = 9;
pub(super) const EVERY_POD: usize = 10;
pub(super) const BOTH_SELECTORS: usize = 11;
pub(super) const LONG_LIST: usize = 12;
pub(super) const LOG_SKIPPED: usize = 13;
pub(super) const IPV6_SKIPPED: usize = 14;

/// All of them, in the order of their harm.
pub const KINDS: [FindingKind; 15] = [
    FindingKind {
        id: "PolicyDenySkipped",
        severity: Severity::Fail,
        why: "Felix on Windows skips the rule, so what it should deny falls through to the next rule",
    },
    FindingKind {
        id: "PolicyNotRead",
        severity: Severity::Fail,
        why: "this Calico does not read the kind, so nothing of the policy is enforced on any node",
    },
    FindingKind {
        id: "PolicyHttpIgnored",
        severity: Severity::Fail,
        why: "Felix on Windows does not read `http`, so the rule applies to all traffic that its other fields match",
    },
    FindingKind {
        id: "PolicyPortIgnored",
        severity: Severity::Fail,
        why: "Calico does not read named ports of this kind, so the rule applies to all ports and protocols, on Linux too",
    },
    FindingKind {
        id: "PolicyNotConverted",
        severity: Severity::Fail,
        why: "Calico cannot convert the rule: instead of a Deny or Pass it denies all traffic, and another rule it drops, on Linux too",
    },
    FindingKind {
        id: "PolicyAllowSkipped",
        severity: Severity::Fail,
        why: "Felix on Windows skips the rule, so what it should allow or pass on meets the next rules, and is denied if none of them allows it",
    },
    FindingKind {
        id: "PolicySelectorInvalid",
        severity: Severity::Fail,
        why: "a selector that cannot be read selects nothing, and Calico's API refuses it",
    },
    FindingKind {
        id: "PolicyRefused",
        severity: Severity::Fail,
        why: "the API refuses the value, or drops the field: the policy is not what its file looks like",
    },
    FindingKind {
        id: "PolicyForHosts",
        severity: Severity::Warn,
        why: "policies of host endpoints are not enforced on Windows hosts",
    },
    FindingKind {
        id: "PolicyManyMembers",
        severity: Severity::Warn,
        why: "Windows has no IP sets: Felix writes every address into the rules of every endpoint, and again when one changes",
    },
    FindingKind {
        id: "PolicyEveryPod",
        severity: Severity::Warn,
        why: "Windows has no IP sets: the rule lists the address of every pod for every endpoint",
    },
    FindingKind {
        id: "PolicyBothSelectors",
        severity: Severity::Warn,
        why: "Windows has no IP sets: the rule lists the addresses of both selectors for every endpoint",
    },
    FindingKind {
        id: "PolicyLongList",
        severity: Severity::Warn,
        why: "nets and ports are written into the rules of every endpoint",
    },
    FindingKind {
        id: "PolicyLogSkipped",
        severity: Severity::Warn,
        why: "Felix on Windows skips the action Log: nothing is logged there",
    },
    FindingKind {
        id: "PolicyIpv6Skipped",
        severity: Severity::Warn,
        why: "Calico on Windows has no IPv6, so the rule has no effect there",
    },
];
