//! The settings that concern the cluster: decided without a node, for checks from any machine.

use super::network::{kubernetes, network};
use super::resolver::Resolver;
use super::{Kubernetes, Network, Provider, connection};
use crate::config::Layered;
use crate::config::spec::DatastoreType;
use crate::facts::{Cloud, ClusterFacts};
use crate::version::CalicoVersion;

/// What the config requires of the cluster, with the cluster's own answers for what the config leaves out.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSide {
    pub kubernetes: Kubernetes,
    /// None if no choice works with the cluster's answers; checks say why.
    pub network: Option<Network>,
    /// The release to install, if one is named.
    pub version: Option<CalicoVersion>,
    pub etcd: bool,
}

/// Decides them. A loaded config has no invalid values.
pub fn cluster_side(layered: &Layered, cloud: Option<&Cloud>, cluster: &ClusterFacts) -> ClusterSide {
    let spec = &layered.config.spec;
    let mut to = Resolver::new(layered);
    let found = cloud.map(|cloud| cloud.provider);
    let provider = connection::provider(layered).or(found).unwrap_or(Provider::None);
    let kubernetes = kubernetes(&mut to, spec, Some(cluster));
    let (network, ipip) = network(&mut to, spec, provider, &[], Some(cluster));
    ClusterSide {
        kubernetes,
        network: (ipip.is_none() && to.findings.is_empty()).then_some(network),
        version: spec.calico.version.clone(),
        etcd: spec.datastore.kind == Some(DatastoreType::Etcdv3),
    }
}
