//! Every decision. [`Settings`] has no open value, and each value has its origin.
//!
//! [`resolve`] makes them from the config and the facts. Every default is there, and only there; [`connection`] decides
//! the few that are needed before the cluster can be asked.

mod backend;
mod cluster_side;
mod connection;
mod detection;
mod maintenance;
mod network;
mod resolve;
mod resolver;
mod selector;
mod services;

use std::net::Ipv4Addr;

use serde::Serialize;

pub use backend::{Undecided, detect_in as backend_of, pools_for_windows};
pub use cluster_side::{ClusterSide, cluster_side};
pub use connection::{Connection, connection, provider};
pub use maintenance::{Drain, Maintenance, Reboot, maintenance, reboot};
pub use network::credentials;
pub use resolve::{creates_token_secret, release, resolve, root_dir, to_config_document};
pub use services::Services;

use crate::config::Origin;
pub use crate::config::words::{Backend, Credentials, Ipam, RemoteAccess};
pub use crate::facts::Provider;
use crate::facts::{ApiGroup, RuntimeKind};
use crate::values::{Cidr, MacPrefix, NodeName, Sha256, Vni, WinPath};
use crate::version::CalicoVersion;

/// The variables that make Calico's node startup create IP pools.
pub const POOL_CIDRS: [&str; 2] = ["CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR"];

/// How this node must be. Serializable, so that a plan can carry its digest.
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
    /// Calico's API group, written explicitly for CNI and components of versions that know the key.
    pub api_group: Option<ApiGroup>,
}

/// Which release, and where it is installed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calico {
    pub version: CalicoVersion,
    pub source: Source,
    /// The archive's digest, when the config pins it.
    pub sha256: Option<Sha256>,
    /// `C:\CalicoWindows`.
    pub root: WinPath,
}

/// Where the release comes from. Paths are on the machine that this program runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    File(String),
    Directory(String),
    Url(String),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubernetes {
    pub service_cidrs: Vec<Cidr>,
    pub dns_servers: Vec<Ipv4Addr>,
    pub dns_search: Vec<String>,
    /// `calico-system` or `kube-system`.
    pub calico_namespace: String,
    /// None if the node needs no kubeconfig: with etcd and the backend none, unless the config asks for one.
    pub credentials: Option<Credentials>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    pub backend: Backend,
    /// Regular expression for the HNS networks that pods use.
    pub kube_network: String,
    pub node_address: NodeAddress,
    pub ipam: Ipam,
    pub vni: Vni,
    pub mac_prefix: MacPrefix,
    /// Name of the physical adapter for `External`; if none, HNS chooses.
    pub adapter: Option<String>,
}

/// The variables `IP` and `IP_AUTODETECTION_METHOD` of calico-node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeAddress {
    Autodetect,
    /// Automatic, by one of Calico's methods, for example `cidr=10.20.0.0/16`.
    By(String),
    None,
    /// An address, or an address with its prefix length.
    Fixed(String),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Datastore {
    Kubernetes,
    Etcdv3 { endpoints: Vec<String>, tls: Option<EtcdTls> },
}

/// Where the etcd client's files are on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdTls {
    pub key_file: WinPath,
    pub cert_file: WinPath,
    pub ca_cert_file: WinPath,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cni {
    pub bin_dir: WinPath,
    pub conf_dir: WinPath,
    /// For example `10-calico.conf`.
    pub conf_file: String,
    pub log_level: String,
    /// Pods share one block and one HNS network: the CNI key `windows_use_single_network`.
    pub single_network: bool,
    /// Merged over the document we render (RFC 7386 merge patch).
    pub overrides: serde_json::Value,
}

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

/// The result of [`resolve`]: the node's settings, the run's own settings, and the origin of each value.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub settings: Settings,
    pub run: RunSettings,
    /// One for every field of the config document, by path.
    pub origins: Vec<FieldOrigin>,
    pub warnings: Vec<Warning>,
}

/// Settings of this run, not of the node.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    pub connection: Connection,
    /// With [`Credentials::Secret`]: whether the token secret may be created if there is none.
    pub create_token_secret: bool,
    /// With [`Credentials::Kubeconfig`]: the file, on the machine that this program runs on.
    pub calico_kubeconfig: Option<String>,
    /// Secret to read etcd's certificates from, into the files that [`EtcdTls`] names.
    pub etcd_tls_secret: Option<SecretRef>,
    pub maintenance: Maintenance,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    pub namespace: String,
    pub name: String,
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

/// Something to know that does not stop the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub id: &'static str,
    pub message: String,
}
