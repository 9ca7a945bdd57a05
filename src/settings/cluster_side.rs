//! What of the settings concerns the cluster: decided without a node, for checks from anywhere.

use super::network::{kubernetes, network};
use super::resolver::Resolver;
use super::{Kubernetes, Network, Provider, connection};
use crate::config::Layered;
use crate::config::spec::DatastoreType;
use crate::facts::{Cloud, ClusterFacts};
use crate::version::CalicoVersion;

/// What the config, with the cluster's own answers for what it leaves out, wants of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSide {
    pub kubernetes: Kubernetes,
    /// None where the cluster's answers leave no choice that would work; checks say which.
    pub network: Option<Network>,
    /// The release to install, where one is named.
    pub version: Option<CalicoVersion>,
    pub etcd: bool,
    /// Whether the config itself names the backend and the VNI.
    pub names_backend: bool,
    pub names_vni: bool,
}

/// Decides them. A config that was loaded has no wrong value in itself.
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
        names_backend: spec.calico_network.backend.is_some(),
        names_vni: spec.calico_network.vxlan.vxlan_vni.is_some(),
    }
}
