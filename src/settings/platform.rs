//! What a platform requires, and what this Windows can do.

use serde::Serialize;

use super::resolver::Resolver;
use super::{Backend, Provider};
use crate::config::Origin;
use crate::config::spec::{Spec, StaticRules};
use crate::facts::{MetadataRoute, NodeFacts};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// Block pods from Azure's wireserver (AKS).
    pub static_rules: bool,
    /// Restore the cloud's metadata route after the vSwitch removed it.
    pub metadata_route: bool,
    /// Open TCP 10250, which `kubectl exec` and `logs` need.
    pub firewall_kubectl_exec: bool,
}

pub(super) fn decide(to: &mut Resolver<'_>, spec: &Spec, provider: Provider, backend: Backend) -> Platform {
    let given = &spec.platform;
    let rules = given.static_rules.filter(|rules| *rules != StaticRules::Auto);
    let brings = provider.brings();
    let detected = || Origin::Detected(format!("provider {}", brings.name));
    let rules = to.decide("spec.platform.staticRules", rules, || match brings.wireserver {
        true => (StaticRules::Aks, detected()),
        false => (StaticRules::None, Origin::Default),
    });
    let route = given.preserve_metadata_route.0;
    let metadata_route = to.decide("spec.platform.preserveMetadataRoute", route, || match brings.metadata_route {
        MetadataRoute::Lost => (true, detected()),
        MetadataRoute::LostToVSwitch if backend != Backend::None => (true, detected()),
        _ => (false, Origin::Default),
    });
    let path = "spec.platform.firewallKubectlExec";
    Platform {
        static_rules: rules == StaticRules::Aks,
        metadata_route,
        firewall_kubectl_exec: to.or_default(path, given.firewall_kubectl_exec, backend != Backend::None),
    }
}

/// Whether Windows can do Direct Server Return.
pub(super) fn dsr(to: &mut Resolver<'_>, spec: &Spec, node: &NodeFacts) -> bool {
    let given = spec.calico_network.windows_loopback_dsr.0;
    to.decide("spec.calicoNetwork.windowsLoopbackDSR", given, || match node.hns {
        Some(hns) => (hns.supports_dsr(), Origin::Detected(format!("HNS {}.{}", hns.major, hns.minor))),
        None => (node.os.supports_dsr(), Origin::Detected(format!("Windows build {}.{}", node.os.build, node.os.ubr))),
    })
}
