//! The settings that concern the cluster: also decided without a node, for checks from any machine.

use super::network::{Kubernetes, Network, kubernetes, network};
use super::resolver::Resolver;
use super::run::RunSettings;
use super::{Backend, Provider, connection, run};
use crate::config::Layered;
use crate::facts::{Cloud, ClusterFacts, NodeFacts};
use crate::version::CalicoVersion;

/// What the config requires of the cluster, with the cluster's own answers for what the config leaves out.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSide {
    pub kubernetes: Kubernetes,
    /// None if no choice works with the cluster's answers; checks say why.
    pub network: Option<Network>,
    /// Whether the config itself names the backend.
    pub names_backend: bool,
    /// The release to install, if one is named.
    pub version: Option<CalicoVersion>,
    pub etcd: bool,
}

/// Decides them. A loaded config has no invalid values.
pub fn cluster_side(layered: &Layered, cloud: Option<&Cloud>, cluster: &ClusterFacts) -> ClusterSide {
    let mut to = Resolver::new(layered);
    let run = run::decide(&mut to, None, Some(cluster));
    let found = cloud.map(|cloud| cloud.provider);
    let provider = connection::provider(layered).or(found).unwrap_or(Provider::None);
    decide(&mut to, &run, provider, None, Some(cluster)).0
}

/// The same, the network as far as it was decided, and why the cluster's encapsulation rules it out, if it does.
pub(super) fn decide(
    to: &mut Resolver<'_>,
    run: &RunSettings,
    provider: Provider,
    node: Option<&NodeFacts>,
    cluster: Option<&ClusterFacts>,
) -> (ClusterSide, Network, Option<String>) {
    let kubernetes = kubernetes(to, run.credentials, cluster);
    let findings = to.findings.len();
    let (network, ipip) = network(to, provider, node, cluster);
    let works = ipip.is_none() && to.findings.len() == findings;
    let side = ClusterSide {
        kubernetes,
        network: works.then(|| network.clone()),
        names_backend: to.chosen::<Backend>("calicoNetwork.backend").is_some(),
        version: to.given("calico.version"),
        etcd: run.etcd,
    };
    (side, network, ipip)
}
