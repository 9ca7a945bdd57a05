//! Every decision. [`Settings`] has no open value, and each value has its origin.
//!
//! [`resolve`] makes them from the config and the facts, [`run()`] those that are needed before the cluster can be asked.
//! Every default is in this room.

mod backend;
mod calico;
mod cluster_side;
mod cni;
mod connection;
mod datastore;
mod detection;
mod kubernetes_node;
mod maintenance;
mod network;
mod node_name;
mod platform;
mod resolve;
mod resolver;
mod run;
mod selector;
mod services;

use serde::Serialize;

pub use backend::{Undecided, detect_in as backend_of, pools_for_windows};
pub use calico::{Calico, Source, release};
pub use cluster_side::{ClusterSide, cluster_side};
pub use cni::Cni;
pub use connection::{Connection, Limits, connection, provider};
pub use datastore::{Datastore, EtcdTls, SecretRef, datastore};
pub use kubernetes_node::{Containerd, InAdvance, Join, KNOWN_MINORS, KubernetesNode, Programs, kubernetes_programs};
pub use maintenance::{Drain, Maintenance, Reboot};
pub use network::{Kubernetes, Network, NodeAddress, cluster_vni, matched_networks, mixed_vni, unmatched_network};
pub use node_name::node_name;
pub use platform::Platform;
pub use resolve::{decide, resolve, to_config_document};
pub use run::{Folders, RunSettings, run};
pub use services::Services;

use crate::config::Origin;
pub use crate::config::keywords::{Backend, Credentials, Ipam, RemoteAccess};
pub use crate::config::static_rules::StaticRules;
pub use crate::config::types::CaCertHash;
pub use crate::facts::Provider;
use crate::facts::{ApiGroup, RuntimeKind};
use crate::values::NodeName;

/// The variables that make Calico's node startup create IP pools.
pub const POOL_CIDRS: [&str; 2] = ["CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR"];

/// The effective settings of this node. Serializable, so that a plan can have their digest.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    pub calico: Calico,
    pub provider: Provider,
    pub node_name: NodeName,
    pub kubernetes: Kubernetes,
    pub network: Network,
    pub datastore: Datastore,
    pub cni: Cni,
    pub services: Services,
    pub platform: Platform,
    pub runtime: RuntimeKind,
    /// Whether Windows can do Direct Server Return here.
    pub dsr: bool,
    /// kubelet and kube-proxy, if this program installs them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_node: Option<KubernetesNode>,
    /// Calico's API group, written explicitly for CNI and components of versions that know the key.
    pub api_group: Option<ApiGroup>,
}

/// The result of [`resolve`]: the node's settings, the run's own settings, and the origin of each value.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub settings: Settings,
    pub run: RunSettings,
    /// One for every field of the config document, by path.
    pub origins: Vec<FieldOrigin>,
    pub warnings: Vec<Warning>,
}

/// A field's value, as in the config document, and who decided it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldOrigin {
    /// For example `spec.calico.version`.
    pub path: String,
    /// Null if the field has no value, for example without a proxy.
    pub value: serde_json::Value,
    pub from: Origin,
}

/// A warning, which does not stop the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub id: &'static str,
    pub message: String,
}
