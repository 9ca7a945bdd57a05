//! Everything decided. [`Settings`] has no value that is still open; each knows where it came from.
//!
//! [`resolve`] makes them from the config and what was measured. Every default is there, and only
//! there; [`connection`] decides the few that are needed before the cluster can be asked.

mod backend;
mod cluster_side;
mod connection;
mod detection;
mod maintenance;
mod network;
mod resolve;
mod resolver;
mod selector;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Serialize;

pub use backend::{Undecided, detect_in as backend_of, pools_for_windows};
pub use cluster_side::{ClusterSide, cluster_side};
pub use connection::{Connection, connection, provider};
pub use maintenance::{Drain, Maintenance, Reboot, maintenance, reboot};
pub use network::credentials;
pub use resolve::{creates_token_secret, release, resolve, root_dir, to_config_document};

use crate::config::Origin;
pub use crate::config::words::{Backend, Credentials, Ipam, RemoteAccess};
pub use crate::facts::Provider;
use crate::facts::{ApiGroup, RuntimeKind};
use crate::values::{Cidr, MacPrefix, NodeName, Sha256, Vni, WinPath};
use crate::version::CalicoVersion;

/// The variables by which Calico's node startup is told to make IP pools.
pub const POOL_CIDRS: [&str; 2] = ["CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR"];

/// How this node is to be. Serialisable, so that a plan can carry its digest.
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
    /// Calico's API group, written out for CNI and components where they know the key.
    pub api_group: Option<ApiGroup>,
}

/// Which release, and where it is put.
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

/// Where the release comes from. Paths are of the machine this program runs on.
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
    /// None where the node needs no kubeconfig: with etcd and the backend none, unless the config asks for one.
    pub credentials: Option<Credentials>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    pub backend: Backend,
    /// Regular expression over the HNS networks that pods use.
    pub kube_network: String,
    pub node_address: NodeAddress,
    pub ipam: Ipam,
    pub vni: Vni,
    pub mac_prefix: MacPrefix,
    /// Name of the physical adapter for `External`; none lets HNS choose.
    pub adapter: Option<String>,
}

/// The variables `IP` and `IP_AUTODETECTION_METHOD` of calico-node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeAddress {
    Autodetect,
    /// The same by a method of Calico's, as `cidr=10.20.0.0/16`.
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

/// Where the etcd client's files lie on the node.
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
    /// As `10-calico.conf`.
    pub conf_file: String,
    pub log_level: String,
    /// Pods on one block and one HNS network, as the CNI key `windows_use_single_network`.
    pub single_network: bool,
    /// Merged over the document we render (RFC 7386 merge patch).
    pub overrides: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Services {
    /// Whether they are started (`--no-start`).
    pub start: bool,
    /// How long CalicoNode waits for a valid IPv4 address after boot; zero does not wait.
    pub valid_ip_timeout: Duration,
    pub log_dir: WinPath,
    pub felix_log_severity: String,
    /// Whether kube-proxy is stopped while the network that it works in is made anew.
    pub restart_kube_proxy: bool,
    /// Added to every component's environment.
    pub extra_env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// Block pods' way to Azure's wireserver (AKS).
    pub static_rules: bool,
    /// Put the cloud's metadata route back after the vSwitch took it.
    pub metadata_route: bool,
    /// Open TCP 10250, which `kubectl exec` and `logs` need.
    pub firewall_kubectl_exec: bool,
}

/// What [`resolve`] gives: the node's settings, what the run itself needs, and where each value
/// came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub settings: Settings,
    pub run: RunSettings,
    /// One for every field of the config document, by path.
    pub origins: Vec<FieldOrigin>,
    pub warnings: Vec<Warning>,
}

/// How this program goes about it, as against what the node becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    pub connection: Connection,
    /// With [`Credentials::Secret`]: whether the token secret may be created where there is none.
    pub create_token_secret: bool,
    /// With [`Credentials::Kubeconfig`]: the file, on the machine this program runs on.
    pub calico_kubeconfig: Option<String>,
    /// Secret to fetch etcd's certificates from, into the files that [`EtcdTls`] names.
    pub etcd_tls_secret: Option<SecretRef>,
    pub maintenance: Maintenance,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    pub namespace: String,
    pub name: String,
}

/// A field's value, as it would stand in the config document, and who decided it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldOrigin {
    /// As `spec.calico.version`.
    pub path: String,
    /// Null where the field has no value, such as a proxy that is not there.
    pub value: serde_json::Value,
    pub from: Origin,
}

/// Something to know that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub id: &'static str,
    pub message: String,
}
