//! What was measured in the cluster. What is missing from a file saved by an older version counts as not asked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::values::Cidr;

/// The cluster, as far as the install of this node depends on it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterFacts {
    /// URL of the API server, from the chosen context.
    pub server: String,
    /// For example `v1.33.2`.
    pub kubernetes_version: String,
    /// The namespace of calico-node's service account: `calico-system` or `kube-system`.
    pub calico_namespace: String,
    /// The namespaces without that service account if none has it: the configured one, or the usual ones, of which the
    /// first is then a guess.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_account_in: Vec<String>,
    pub api_group: ApiGroup,
    /// The cluster serves no Calico resources: Calico is not installed, or keeps its data in etcd.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub calico_unserved: bool,
    /// Calico keeps its data in etcd, and it was read there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub etcd_read: bool,
    /// ClusterInformation's calicoVersion: the version on the Linux side.
    pub calico_version: Option<String>,
    pub felix: FelixFacts,
    pub pools: Vec<PoolFacts>,
    /// Calico IPAM's strict affinity, which Windows nodes require; none if no IPAM config object exists.
    pub strict_affinity: Option<bool>,
    /// The Kubernetes Node this machine is, if it has joined.
    pub node: Option<ClusterNode>,
    /// Name of the Node that has one of this machine's addresses, if none has its name.
    pub node_with_our_address: Option<String>,
    /// The cluster's service CIDRs: from its ServiceCIDR objects, else from kubeadm's ConfigMap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_cidrs: Vec<Cidr>,
    /// ClusterIPs of the service `default/kubernetes`, of either family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_service_ips: Vec<String>,
    /// ClusterIP of the service `kube-dns`, to compare with the DNS servers in the config.
    pub dns_service_ip: Option<Ipv4Addr>,
    /// `calico_backend` of the ConfigMap `calico-config`: `bird`, `vxlan` or `none`. Only manifest installs have it.
    pub linux_backend: Option<String>,
    /// Where Calico on the Linux nodes keeps its data: `kubernetes` or `etcdv3`. None if neither its DaemonSet nor
    /// `calico-config` says.
    pub linux_datastore: Option<String>,
    pub nodes: Option<NodeCounts>,
    /// The Installation of the Tigera operator, if the operator runs Calico.
    pub operator: Option<OperatorFacts>,
    /// Calico for Windows as HostProcess pods.
    pub host_process: Option<HostProcess>,
    pub typha: Option<TyphaFacts>,
    pub bgp: Option<BgpFacts>,
    /// How many HostEndpoint objects there are.
    pub host_endpoints: Option<usize>,
    /// Whether Calico's controllers create a HostEndpoint for each Node; none if that is not set, which means no.
    pub auto_host_endpoints: Option<bool>,
    pub policies: Option<PolicyFacts>,
    /// Flannel's DaemonSets; none if that was not asked, because nothing of Flannel is on the machine.
    pub flannel: Option<FlannelFacts>,
    /// Whether the cluster is OpenShift: it serves the group `config.openshift.io`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub openshift: bool,
    /// What Windows nodes need on EKS; none if the cluster is not EKS.
    pub eks: Option<EksFacts>,
    /// How many seconds this machine's clock is ahead of the API server's, accurate to two.
    pub clock_skew: Option<i64>,
    /// The Node whose kubelet the kubeconfig belongs to; none for other users, and if the cluster does not say.
    pub kubelet_of: Option<String>,
    /// Rights that an install needs and the kubeconfig's user lacks; none if that was not asked.
    pub missing_rights: Option<Vec<Right>>,
    /// Questions that the cluster refused to answer, with its reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unanswered: BTreeMap<String, String>,
}

/// The reason in [`ClusterFacts::unanswered`] of what a run leaves out.
pub const LEFT_OUT: &str = "this run does not ask the cluster for it: `fleet plan` does, once for all nodes";

/// The question in [`ClusterFacts::unanswered`] that etcd answers.
pub const ETCD: &str = "etcd";

/// The question there about Flannel's DaemonSets and pods.
pub const FLANNEL: &str = "flannel";

impl ClusterFacts {
    /// Whether Calico's own resources are unknown.
    pub const fn calico_unread(&self) -> bool {
        self.calico_unserved && !self.etcd_read
    }

    /// Why a question has no answer; none if it was not refused.
    pub fn untold(&self, question: &str) -> Option<&str> {
        self.unanswered.get(question).map(String::as_str)
    }
}

/// Which API group holds Calico's resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiGroup {
    #[default]
    #[serde(rename = "crd.projectcalico.org/v1")]
    V1,
    #[serde(rename = "projectcalico.org/v3")]
    V3,
}

impl ApiGroup {
    /// Group and version, as in paths of the API.
    pub const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::V1 => ("crd.projectcalico.org", "v1"),
            Self::V3 => ("projectcalico.org", "v3"),
        }
    }

    /// Plural of the IPAM configuration, which differs between the two groups.
    pub const fn ipam_plural(self) -> &'static str {
        match self {
            Self::V1 => "ipamconfigs",
            Self::V3 => "ipamconfigurations",
        }
    }
}

impl fmt::Display for ApiGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, version) = self.parts();
        write!(f, "{group}/{version}")
    }
}

/// FelixConfiguration `default`; none if a field is not set.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FelixFacts {
    #[serialize_always]
    pub vxlan_enabled: Option<bool>,
    #[serialize_always]
    pub vxlan_vni: Option<u32>,
    #[serialize_always]
    pub ipip_enabled: Option<bool>,
    /// UDP port of VXLAN.
    pub vxlan_port: Option<u16>,
    #[serde(rename = "vxlanMTU")]
    pub vxlan_mtu: Option<u32>,
    pub bpf_enabled: Option<bool>,
    pub wireguard_enabled: Option<bool>,
}

/// An IPPool, in the fields that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolFacts {
    pub name: String,
    pub cidr: String,
    /// `Never`, `Always` or `CrossSubnet`.
    pub vxlan_mode: String,
    pub ipip_mode: String,
    pub disabled: bool,
    pub node_selector: String,
    pub block_size: u8,
    /// Blocks with an affinity to a node; none if that was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_taken: Option<u64>,
    /// Whether one of them is this node's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_our_block: bool,
    /// `Workload`, `Tunnel`, `LoadBalancer`; empty means workloads and tunnels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_uses: Vec<String>,
    /// assignmentMode Manual: only pods that ask for this pool get addresses from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub manual: bool,
}

impl PoolFacts {
    /// Whether its addresses are IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.cidr.contains(':')
    }

    /// Whether pods get addresses from it automatically.
    pub fn gives_to_pods(&self) -> bool {
        let workload = self.allowed_uses.is_empty() || self.allowed_uses.iter().any(|u| u == "Workload");
        !self.disabled && workload
    }

    /// How many blocks it has: 2^(blockSize − prefix length).
    pub fn blocks(&self) -> Option<u64> {
        let (_, prefix) = self.cidr.split_once('/')?;
        let bits = u32::from(self.block_size).checked_sub(prefix.parse().ok()?)?;
        1u64.checked_shl(bits)
    }

    /// How many pods one node can have from it: the node gets one block, in which Windows reserves the first three
    /// addresses and the last.
    pub fn pods_per_node(&self) -> u64 {
        let bits = 32u32.saturating_sub(u32::from(self.block_size));
        1u64.checked_shl(bits).unwrap_or(0).saturating_sub(4)
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterNode {
    pub name: String,
    pub ready: bool,
    pub schedulable: bool,
    pub internal_ips: Vec<String>,
    pub kubelet_version: String,
    /// `windows` or `linux`; empty if kubelet has not reported it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub os: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// kubelet's limit of pods.
    pub max_pods: Option<u64>,
    /// Why it is not Ready, in the words of kubelet or the cluster.
    pub not_ready: Option<String>,
    /// Its address from Calico's node startup: other nodes send the traffic for its pods there.
    pub calico_address: Option<String>,
    /// The MAC to which other nodes send the traffic for its pods, from node startup.
    pub tunnel_mac: Option<String>,
    /// The id of the cluster of route reflectors to which it belongs; none if it is no route reflector.
    pub route_reflector: Option<String>,
    /// Version of OpenShift's Windows Machine Config Operator that created this Node; none if it did not.
    pub wmco: Option<String>,
    /// The digest of the settings applied here, from the Node. Not used in a plan for another machine.
    #[serde(skip)]
    pub achieved: Option<String>,
}

/// Flannel as the cluster runs it on one Node. Each has its namespace in its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlannelFacts {
    /// The DaemonSets that select the Node.
    pub daemon_sets: Vec<String>,
    /// Their pods, and those of DaemonSets that select it no more, which have not been deleted.
    pub pods: Vec<String>,
}

impl FlannelFacts {
    /// Whether a DaemonSet of this name is Flannel's: `kube-flannel-ds` of its own manifest, and
    /// `kube-flannel-ds-windows-amd64` of SIG Windows' (`hostprocess/flannel/flanneld/flannel-overlay.yml`).
    pub fn is_daemon_set(name: &str) -> bool {
        name.contains("flannel")
    }
}

/// What an EKS cluster has for Windows nodes, in `kube-system`. None means absent or unreadable:
/// [`ClusterFacts::unanswered`] has their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EksFacts {
    /// `enable-windows-ipam` of the ConfigMap `amazon-vpc-cni`: Amazon's own controller, which runs next to the API
    /// server, assigns addresses to Windows pods.
    pub windows_ipam: Option<bool>,
    /// The Deployments that exist of `vpc-resource-controller` and `vpc-admission-webhook`, which assign the addresses
    /// in older clusters.
    pub controllers: Vec<String>,
    /// Whether the ConfigMap `aws-auth` maps an instance role to the group of Windows nodes.
    pub windows_role: Option<bool>,
    /// Whether the caller is in that group, if the caller is a node: this covers both `aws-auth` and access entries.
    /// None for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_in_group: Option<bool>,
}

/// The number of the cluster's Nodes, by their labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeCounts {
    pub all: usize,
    pub linux: usize,
    /// Linux nodes that are not control plane nodes.
    pub linux_workers: usize,
    pub windows: usize,
}

/// The Tigera operator's Installation `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OperatorFacts {
    /// `HNS`, `Disabled`, or none if it is not set, which means `Disabled`.
    pub windows_dataplane: Option<String>,
    /// `Enabled` or `Disabled`.
    pub bgp: Option<String>,
    /// `Calico`, or the plugin that owns the pods' network, for example `AmazonVPC`.
    pub cni: Option<String>,
    pub pools: Vec<OperatorPool>,
}

/// An IP pool as defined in the Installation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OperatorPool {
    pub cidr: String,
    /// `IPIP`, `VXLAN`, `IPIPCrossSubnet`, `VXLANCrossSubnet` or `None`.
    pub encapsulation: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostProcess {
    /// Whether there is a DaemonSet `calico-node-windows`.
    pub daemon_set: bool,
    /// Its pod on this node.
    pub pod_here: Option<String>,
}

/// The Deployment `calico-typha`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TyphaFacts {
    pub wanted: u32,
    pub ready: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpFacts {
    /// Whether every node peers with every other; none if it is not set, which means yes.
    pub mesh: Option<bool>,
    /// Whether the mesh has a password.
    #[serde(default)]
    pub mesh_password: bool,
    pub peers: usize,
    /// BGPPeers with settings that Windows ignores, for example `rack-1: password, filters`.
    #[serde(default)]
    pub unsupported: Vec<String>,
    /// Addresses that more than one BGPPeer names.
    #[serde(default)]
    pub duplicates: Vec<String>,
    /// Addresses of services that nodes announce by BGP, for example `serviceClusterIPs: 10.96.0.0/12`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advertised: Vec<String>,
}

/// Network policies of all kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyFacts {
    pub all: usize,
    /// How many have rules that Windows ignores.
    pub skipped: usize,
    /// The first of those, with the reason.
    pub examples: Vec<String>,
    /// How many have rules that are expensive on each Windows node.
    #[serde(default)]
    pub costly: usize,
    /// The first of those, with the reason.
    #[serde(default)]
    pub costly_examples: Vec<String>,
    /// How many have rules about HTTP requests.
    #[serde(default)]
    pub application_layer: usize,
    /// The first of those.
    #[serde(default)]
    pub application_layer_examples: Vec<String>,
}

/// A permission, or the lack of one.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Right {
    pub verb: String,
    /// Empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural, with `/` and the subresource, if there is one.
    pub resource: String,
    /// The one object that it covers; none for all.
    pub name: Option<String>,
    /// None for cluster-wide rights.
    pub namespace: Option<String>,
    /// The run cannot work without it. Other rights are for checks, which are skipped without them.
    pub needed: bool,
    /// Needed only to change a running node: to drain it, and to keep pods from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_changes: bool,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => f.write_str(" in the whole cluster"),
        }
    }
}
