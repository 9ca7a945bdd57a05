//! Ids that checks had in the previous release. They are still accepted in this one, because scripts and configs use
//! them; the next release removes this file.

/// A former id and the current one.
pub const RENAMED: [(&str, &str); 32] = [
    ("AdapterIsFree", "AdapterAvailable"),
    ("AdapterTeamed", "AdapterNotTeamed"),
    ("AdapterTeaming", "AdapterNotTeamed"),
    ("ApiServerIsClusterIp", "ApiServerAddress"),
    ("BackendKnown", "Backend"),
    ("CalicoTooOld", "CalicoVersion"),
    ("CalicoVersionSkew", "CalicoVersionMatchesLinux"),
    ("ClockSkew", "ClockInSync"),
    ("EarlierInstall", "NoEarlierInstall"),
    ("EksManagedNodeGroup", "EksNodeGroup"),
    ("FirewallRulesCount", "LocalFirewallRules"),
    ("Flannel", "NoFlannel"),
    ("HnsNotAvailable", "HnsAvailable"),
    ("HostProcessCalico", "NoHostProcessCalico"),
    ("IpipEnabled", "Ipip"),
    ("KnownBadBuild", "KnownGoodBuild"),
    ("KubeletAfterCalico", "KubeletDependencies"),
    ("KubeletSkew", "KubeletVersion"),
    ("Leftovers", "NoEarlierInstall"),
    ("MachineRead", "MachineFacts"),
    ("OnePoolType", "PoolEncapsulation"),
    ("OtherCni", "CniConfig"),
    ("PendingReboot", "NoPendingReboot"),
    ("PoliciesExpensive", "PolicyCost"),
    ("PoliciesSkipped", "PoliciesSupported"),
    ("PoolsExhausted", "PoolBlocks"),
    ("StaticAddress", "StaticAddressKept"),
    ("VniDiffersFromFelix", "VniMatchesFelix"),
    ("VniOutOfRange", "VxlanVni"),
    ("VxlanWithBgp", "BgpDisabled"),
    ("VxlanWithoutBgp", "BgpDisabled"),
    ("WmcoManagedNode", "NodeManager"),
];

/// The former and the current id of a check that is asked for by its former one, in any case.
pub fn renamed(id: &str) -> Option<(&'static str, &'static str)> {
    RENAMED.into_iter().find(|(former, _)| former.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::catalogue;
    use super::*;
    use crate::report::explain::explain;

    #[test]
    fn every_former_id_leads_to_a_check_and_shadows_nothing_that_has_a_page() {
        for (former, current) in RENAMED {
            assert!(catalogue().any(|row| row.id == current), "{former} leads to no check: {current}");
            assert_eq!(explain(former), None, "{former} has a page of its own");
            assert_eq!(renamed(current), None, "{current} is renamed again");
        }
        let former: BTreeSet<String> = RENAMED.iter().map(|(former, _)| former.to_lowercase()).collect();
        assert_eq!(former.len(), RENAMED.len(), "an id is listed twice");
    }

    #[test]
    fn a_former_id_is_recognized_in_any_case() {
        assert_eq!(renamed("ipipENABLED"), Some(("IpipEnabled", "Ipip")));
        assert_eq!(renamed("StrictAffinity"), None);
    }
}
