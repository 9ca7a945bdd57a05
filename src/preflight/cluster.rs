//! Checks of the cluster.

use super::{Finding, Row, Severity};
use crate::settings::{Backend, Ipam};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "NodeRegistered",
        group: "cluster",
        severity: Severity::Error,
        why: "calico-node writes its addresses to the Kubernetes Node and fails while there is none",
        fix: "start kubelet so that it registers, or give the registered name with --node-name",
        check: |input| {
            let Some((settings, cluster)) = input.settings.zip(input.cluster) else {
                return Finding::Skip("the cluster was not asked".into());
            };
            match &cluster.node {
                Some(node) => Finding::Ok(node.name.clone()),
                None if !settings.services.start => Finding::Skip("the services are not started".into()),
                None => Finding::Fail(format!("the cluster has no Node {}", settings.node_name)),
            }
        },
    },
    Row {
        id: "StrictAffinity",
        group: "cluster",
        severity: Severity::Error,
        why: "Windows cannot route single addresses of other nodes' blocks, so IPAM must not borrow them",
        fix: "kubectl patch ipamconfigs default --type=merge -p '{\"spec\":{\"strictAffinity\":true}}'",
        check: |input| {
            let Some((settings, cluster)) = input.settings.zip(input.cluster) else {
                return Finding::Skip("the cluster was not asked".into());
            };
            if settings.network.backend == Backend::None || settings.network.ipam != Ipam::CalicoIpam {
                return Finding::Skip("Calico IPAM is not used".into());
            }
            match cluster.strict_affinity {
                Some(true) => Finding::Ok("on".into()),
                Some(false) => Finding::Fail("IPAM strict affinity is off".into()),
                None => Finding::Fail("IPAM strict affinity is not set: there is no IPAM config object".into()),
            }
        },
    },
];
