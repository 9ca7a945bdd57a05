//! What a platform requires, and what this Windows can do.

use serde::Serialize;

use super::resolver::Resolver;
use super::{Backend, Provider};
use crate::config::Origin;
use crate::config::static_rules::StaticRules;
use crate::facts::{MetadataRoute, NodeFacts};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// The rules that Felix applies before all policy. Never `Auto`.
    pub static_rules: StaticRules,
    /// Restore the cloud's metadata route after the vSwitch removed it.
    pub metadata_route: bool,
    /// Open TCP 10250, which `kubectl exec` and `logs` need.
    pub firewall_kubectl_exec: bool,
}

pub(super) fn decide(to: &mut Resolver<'_>, provider: Provider, backend: Backend) -> Platform {
    let brings = provider.brings();
    let detected = || Origin::Detected(format!("provider {}", brings.name));
    let rules = to.given("platform.staticRules").filter(|rules| *rules != StaticRules::Auto);
    let rules = to.decided("platform.staticRules", rules, || match brings.wireserver {
        true => (StaticRules::Aks, detected()),
        false => (StaticRules::None, Origin::Default),
    });
    Platform {
        static_rules: rules,
        metadata_route: to.auto("platform.preserveMetadataRoute", || match brings.metadata_route {
            MetadataRoute::Lost => (true, detected()),
            MetadataRoute::LostToVSwitch if backend != Backend::None => (true, detected()),
            _ => (false, Origin::Default),
        }),
        firewall_kubectl_exec: to.or_default("platform.firewallKubectlExec", backend != Backend::None),
    }
}

/// Whether Windows can do Direct Server Return.
pub(super) fn dsr(to: &mut Resolver<'_>, node: &NodeFacts) -> bool {
    to.auto("calicoNetwork.windowsLoopbackDSR", || match node.hns {
        Some(hns) => (hns.supports_dsr(), Origin::Detected(format!("HNS {}.{}", hns.major, hns.minor))),
        None => (node.os.supports_dsr(), Origin::Detected(format!("Windows build {}.{}", node.os.build, node.os.ubr))),
    })
}
