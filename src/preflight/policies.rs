//! Checks of the network policies: what Felix on Windows skips, what is expensive there, and what Windows does not
//! support (reference: Calico's page on limitations of Windows, for application layer policy).

use super::Finding::{Fail, Pass};
use super::cluster::untold;
use super::{Finding, Judge, Row, Severity};
use crate::facts::{ClusterFacts, PolicyFacts};

/// The questions about policies of Kubernetes' administrators.
const OF_ADMINS: [&str; 4] =
    ["policy.networking.k8s.io", "adminnetworkpolicies", "baselineadminnetworkpolicies", "clusternetworkpolicies"];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "PoliciesSupported",
        severity: Severity::Warning,
        why: "Felix on Windows skips rules with negated matches, named ports, ICMP types, action Log or IPv6, and a Deny rule that is skipped denies nothing",
        fix: "rewrite these rules without what Windows skips, or keep their pods on Linux nodes",
        judge: Judge::Calico("calicoctl get networkpolicies,globalnetworkpolicies -A -o yaml", |cluster, _| {
            counted(cluster, |all| (all.skipped, &all.examples), "have rules that Windows skips")
        }),
    },
    Row {
        id: "PolicyCost",
        severity: Severity::Warning,
        why: "Windows has no IP sets: the rules of every endpoint list the address of every pod that they select, and all are rewritten when a pod is created or deleted",
        fix: "select by namespace or label instead of all(), and combine nets into larger ones",
        judge: Judge::Calico("calicoctl get networkpolicies,globalnetworkpolicies -A -o yaml", |cluster, _| {
            counted(cluster, |all| (all.costly, &all.costly_examples), "are expensive on Windows nodes")
        }),
    },
    Row {
        id: "ApplicationLayerPolicy",
        severity: Severity::Warning,
        why: "Windows does not support application layer policy, so rules about HTTP requests do not protect its pods",
        fix: "keep these pods on Linux nodes, or protect them with rules about protocols, ports and addresses",
        judge: Judge::Calico("calicoctl get networkpolicies,globalnetworkpolicies -A -o yaml", |cluster, _| {
            counted(
                cluster,
                |all| (all.application_layer, &all.application_layer_examples),
                "need application layer policy",
            )
        }),
    },
];

fn counted(cluster: &ClusterFacts, of: fn(&PolicyFacts) -> (usize, &Vec<String>), what: &str) -> Finding {
    let Some(policies) = &cluster.policies else {
        return untold(cluster, "networkpolicies", "the policies were not read");
    };
    let of_admins = OF_ADMINS.iter().find_map(|question| cluster.untold(question));
    let unread = of_admins
        .map_or_else(String::new, |why| format!("; those of Kubernetes' administrators were not all read: {why}"));
    match of(policies) {
        (0, _) => Pass(format!("none of {} policies{unread}", policies.all)),
        (count, examples) => {
            Fail(format!("{count} of {} policies {what}, such as {}{unread}", policies.all, examples.join(", ")))
        }
    }
}
