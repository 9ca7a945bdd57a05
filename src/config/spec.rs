//! The document `NodeInstallation` as users write it. Every field is optional; what an absent one
//! means is decided in [`crate::settings`]. The doc comment of a field is its help: it is in the
//! JSON Schema and in `docs/config.md`, with the text after "Default:" as the default.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::keywords::{Backend, Credentials, Ipam, RemoteAccess};
use super::static_rules::StaticRules;
use super::types::{Address, AddressChoice, Auto, CaCertHash, ConfFile, EtcdEndpoint, Pattern, Wait, WebUrl};
use crate::facts::Provider;
use crate::values::{Cidr, MacPrefix, NodeName, Sha256, Vni, WinPath};
use crate::version::{CalicoVersion, KubernetesVersion};

/// One choice of several words, all in lower case.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($variant),+ }
    };
}

words!(/// Where the release comes from.
    SourceType { Release, Mirror, Bundle, Directory });
words!(/// Which datastore Calico uses.
    DatastoreType { Kubernetes, Etcdv3 });
words!(/// The log level of a component.
    LogLevel { Debug, Info, Warning, Error, Fatal });
words!(/// Who initializes nodes for a cloud.
    CloudProvider { External });
words!(/// What to do if a drain is blocked.
    OnBlocked { Fail });
words!(/// How a change is made.
    Mode { Auto, Try });
words!(/// What to do if Windows must reboot.
    RebootPolicy { Never, Request, Now });

/// How one Windows node runs Calico.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "NodeInstallation")]
pub struct Config {
    /// Version of this document's format: `calicoctl-win/v1alpha1`.
    pub api_version: Option<String>,
    /// Kind of this document: `NodeInstallation`.
    pub kind: Option<String>,
    pub metadata: Metadata,
    pub spec: Spec,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Label of this configuration in logs and receipts. Default: none.
    pub name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    pub calico: Calico,
    /// Kubernetes distribution or cloud of the cluster. It decides the defaults of backend, kubeNetwork,
    /// kubeconfig and platform. Default: `auto`, detected from the machine's HNS networks and services and the
    /// cloud's metadata service.
    pub kubernetes_provider: Auto<Provider>,
    pub kubernetes: Kubernetes,
    pub calico_network: CalicoNetwork,
    pub datastore: Datastore,
    pub windows_nodes: WindowsNodes,
    pub services: Services,
    pub platform: Platform,
    pub transport: Transport,
    pub maintenance: Maintenance,
    pub reboot: Reboot,
    pub preflight: Preflight,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Calico {
    /// Exact release to install, for example v3.32.1; the leading `v` is optional. Default: none,
    /// required here or with `--release`.
    pub version: Option<CalicoVersion>,
    pub source: Source,
    /// Folder of the Calico release on the node, on the volume of `C:`. Default: `C:\CalicoWindows`.
    pub root_dir: Option<WinPath>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Where the release comes from: `release` (the project's download site), `mirror` (urlTemplate),
    /// `bundle` (the zip at path) or `directory` (an extracted one at path). Default: from urlTemplate or path if set, else `release`.
    #[serde(rename = "type")]
    pub kind: Option<SourceType>,
    /// Zip file or folder on the machine on which this program runs, for `bundle` and `directory`. Default: none.
    pub path: Option<String>,
    /// URL of the zip on a mirror; `{version}` is replaced by the version, for example v3.32.1. Default: the
    /// project's release page.
    pub url_template: Option<WebUrl>,
    /// Required SHA-256 of the zip, 64 hexadecimal digits. Default: the published one.
    pub sha256: Option<Sha256>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// Kubeconfig with which this program accesses the cluster; the node's own is created from it. A path
    /// on the machine on which this program runs. Default: `C:\k\config`, on EKS
    /// `C:\ProgramData\kubernetes\kubeconfig`.
    pub kubeconfig: Option<String>,
    /// Context of the kubeconfig. Default: its current context.
    pub context: Option<String>,
    /// Name of this machine's Kubernetes Node. Default: `auto`, the host name in lower case.
    pub node_name: Auto<NodeName>,
    /// IPv4 CIDRs of the cluster's services. Default: from kubeadm's configuration in the cluster,
    /// else `10.96.0.0/12`.
    #[serde(rename = "serviceCIDRs")]
    pub service_cidrs: Option<Vec<Cidr>>,
    pub dns: Dns,
    /// Namespace of calico-node's service account: calico-system or kube-system. Default: `auto`, the
    /// one found in the cluster.
    pub calico_namespace: Auto<String>,
    /// Whether a missing token secret of the service account is created if credentials is `secret`. Default: `true`.
    pub create_service_account_token: Option<bool>,
    /// Source of the credentials in the node's own kubeconfig: `token-request` (a token with an expiry, renewed
    /// by CalicoNode), `secret` (a service-account-token secret, which does not expire), `kubeconfig` (the file
    /// calicoKubeconfig) or `host-process` (the service account of the pod in which this program
    /// runs). Default: `token-request`, with kubelet's own kubeconfig `secret`; with etcdv3 and the backend `none`
    /// there is none, and the node has no kubeconfig.
    pub credentials: Option<Credentials>,
    /// Kubeconfig for Calico's components on the node, with credentials `kubeconfig`. A path on the
    /// machine on which this program runs; the files that it names are embedded in the node's. Default: none.
    pub calico_kubeconfig: Option<String>,
    pub node: KubernetesNode,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct KubernetesNode {
    /// Whether this program installs kubelet and kube-proxy as services of its own. A service of that name that another
    /// program made is left as it is. Default: `false`.
    pub install: Option<bool>,
    /// Version of kubelet and kube-proxy, for example v1.33.4. Default: `auto`, that of the API server.
    pub version: Auto<KubernetesVersion>,
    pub source: KubernetesSource,
    pub containerd: Containerd,
    /// IPv4 address of this node in the cluster. Default: `auto`, the address of calicoNetwork.nodeAddress, else that of
    /// the adapter with the default route.
    #[serde(rename = "nodeIP")]
    pub node_ip: Auto<Address>,
    /// Cloud provider for kubelet: only `external`. Default: none.
    pub cloud_provider: Option<CloudProvider>,
    /// DNS domain of the cluster. Default: `cluster.local`.
    pub cluster_domain: Option<String>,
    pub join: Join,
    /// Fields to merge into kubelet's configuration (KubeletConfiguration; JSON merge patch, RFC 7386; null removes a
    /// field). Default: `{}`.
    pub kubelet_config_overrides: Option<serde_json::Map<String, serde_json::Value>>,
    /// Fields to merge into kube-proxy's configuration (KubeProxyConfiguration), likewise. Default: `{}`.
    pub kube_proxy_config_overrides: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct KubernetesSource {
    /// Folder with kubelet.exe and kube-proxy.exe, or Kubernetes' own archive kubernetes-node-windows-amd64.tar.gz, on
    /// the machine on which this program runs. Default: none, they are downloaded from urlTemplate.
    pub path: Option<String>,
    /// URL of the folder with kubelet.exe and kube-proxy.exe on a mirror; `{version}` is replaced by the version, for
    /// example v1.33.4. Default: the project's release page.
    pub url_template: Option<WebUrl>,
    /// Required SHA-256 of kubelet.exe. Default: the published one.
    #[serde(rename = "kubeletSHA256")]
    pub kubelet_sha256: Option<Sha256>,
    /// Required SHA-256 of kube-proxy.exe. Default: the published one.
    #[serde(rename = "kubeProxySHA256")]
    pub kube_proxy_sha256: Option<Sha256>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Containerd {
    /// containerd's own archive, containerd-VERSION-windows-amd64.tar.gz, on the machine on which this program runs: it is
    /// installed with kubelet and kube-proxy. A service containerd that another program made is left as it is.
    /// Default: none, containerd is not installed.
    pub archive: Option<String>,
    /// Required SHA-256 of the archive. Default: that of a .sha256 or SHA256SUMS file next to it.
    pub sha256: Option<Sha256>,
    /// Image of each pod's sandbox. Default: `registry.k8s.io/pause:3.10`.
    pub sandbox_image: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    /// File with a bootstrap token, as `kubeadm token create` prints it, on the machine on which this program runs; or the
    /// variable CALICO_WIN_JOIN_TOKEN has the token. Only needed until the node has joined. Default: none.
    pub token_file: Option<String>,
    /// kubeadm's JoinConfiguration, on the machine on which this program runs: token and CA hashes are taken from it.
    /// Default: none.
    pub config_file: Option<String>,
    /// SHA-256 of the public key of the cluster's CA: `sha256:` and 64 hexadecimal digits. One of them must match the CA of
    /// the kubeconfig. Default: `[]`, the kubeconfig is trusted.
    pub ca_cert_hashes: Option<Vec<CaCertHash>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Dns {
    /// IPv4 addresses of the cluster's DNS servers, for pods. Default: the ClusterIP of the service
    /// kube-dns, else `10.96.0.10`.
    pub servers: Option<Vec<Address>>,
    /// DNS search domains for pods. Default: `[svc.cluster.local]`.
    pub search: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct CalicoNetwork {
    /// Network between pods: `vxlan`, `windows-bgp`, or `none` (policy only; another CNI plugin owns the
    /// network). Default: `auto`, policy only on AKS and EKS, else from FelixConfiguration and the IP pools.
    pub backend: Auto<Backend>,
    /// Regular expression for the names of the HNS networks that pods use. Default: `Calico.*`, on AKS
    /// `azure.*`, on EKS `vpc.*`, else with policy only the other plugin's network that is there, such as `^cbr0$`.
    pub kube_network: Option<Pattern>,
    /// This node's address for Calico: `autodetect`, `none`, an IPv4 address, with or without prefix
    /// length, or one of Calico's methods: `first-found`, `can-reach=`, `interface=`, `skip-interface=`,
    /// `cidr=` or `kubernetes-internal-ip`. Default: `autodetect`.
    pub node_address: Option<AddressChoice>,
    pub ipam: IpamSection,
    pub vxlan: Vxlan,
    /// Use one HNS network and one address block for pods (CNI key windows_use_single_network); only `true` is
    /// supported. Default: `true`.
    pub windows_use_single_network: Option<bool>,
    /// Direct Server Return from pods to services (CNI key windows_loopback_DSR). Default: `auto`,
    /// on if Windows supports it.
    #[serde(rename = "windowsLoopbackDSR")]
    pub windows_loopback_dsr: Auto<bool>,
    /// Keys to merge into the CNI configuration (JSON merge patch, RFC 7386; null removes a key). Default: `{}`.
    pub cni_config_overrides: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct IpamSection {
    /// IPAM plugin of pods: `calico-ipam`, or with the backend none `host-local`.
    /// Default: `calico-ipam`.
    #[serde(rename = "type")]
    pub kind: Option<Ipam>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Vxlan {
    /// VXLAN network identifier, 4096 to 65535 but not 9999, the same on every node. Default:
    /// FelixConfiguration's vxlanVNI, else `4096`; required if etcd has it and is not asked.
    #[serde(rename = "vxlanVNI")]
    #[schemars(range(min = 4096, max = 65535))]
    pub vxlan_vni: Option<Vni>,
    /// First two octets of pods' MAC addresses, for example 0E-2A. Default: `0E-2A`.
    #[serde(rename = "vxlanMACPrefix")]
    pub vxlan_mac_prefix: Option<MacPrefix>,
    /// Name of the network adapter for the HNS network External. Default: the one with
    /// nodeAddress, else Windows chooses the primary one.
    pub vxlan_adapter: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Datastore {
    /// Calico's datastore: `kubernetes` or `etcdv3`. Default: `kubernetes`.
    #[serde(rename = "type")]
    pub kind: Option<DatastoreType>,
    pub etcd: Etcd,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Etcd {
    /// Members of the etcd cluster, each http(s)://host:port. Required with etcdv3. Default: none.
    pub endpoints: Option<Vec<EtcdEndpoint>>,
    /// Client key (PEM) on the node; keyFile, certFile and caCertFile are given together. Default: none.
    pub key_file: Option<WinPath>,
    /// Client certificate (PEM) on the node. Default: none.
    pub cert_file: Option<WinPath>,
    /// Certificate authority (PEM) on the node. Default: none.
    pub ca_cert_file: Option<WinPath>,
    pub tls_secret_ref: TlsSecretRef,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsSecretRef {
    /// Namespace of the secret. Default: the Calico namespace.
    pub namespace: Option<String>,
    /// Name of a secret with etcd-key, etcd-cert and etcd-ca, instead of the three files. Default: none.
    pub name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WindowsNodes {
    /// Folder of the CNI plugins. Default: `auto`, the container runtime's folder, else `C:\k\cni`.
    pub cni_bin_dir: Auto<WinPath>,
    /// Folder of the CNI configuration. Default: `auto`, the container runtime's folder, else
    /// `C:\k\cni\config`.
    pub cni_config_dir: Auto<WinPath>,
    /// File name of the CNI configuration, ending in .conf or .json. Default: `10-calico.conf`.
    pub cni_config_file: Option<ConfFile>,
    /// Folder for a log file of the CNI plugin (cni.log). Default: none, it logs to the container runtime.
    pub cni_log_dir: Option<WinPath>,
    /// Log level of the CNI plugin. Default: `info`.
    pub cni_log_level: Option<LogLevel>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Services {
    /// Whether the Windows services are started. Default: `true`.
    pub start: Option<bool>,
    /// How long CalicoNode waits for a valid IPv4 address after boot; with 0 it does not wait. Default: `90s`.
    #[serde(rename = "startupValidIPTimeout")]
    pub startup_valid_ip_timeout: Option<Wait>,
    /// Folder of the services' logs on the node, outside of calico.rootDir: that folder is replaced as a whole, which a
    /// program that reads a log there would block. Default: `C:\ProgramData\calicoctl-win\logs\calico`.
    pub log_dir: Option<WinPath>,
    /// Log level of Felix, which overrides that of FelixConfiguration. Default: none.
    pub felix_log_severity: Option<LogLevel>,
    /// Whether kube-proxy is restarted when the HNS network is re-created: its service is stopped before and
    /// started afterwards; its HostProcess pod on this node is deleted afterwards, and its DaemonSet re-creates it.
    /// Default: `true`.
    pub restart_kube_proxy: Option<bool>,
    /// Environment variables for every Calico component; they override this program's. No secrets.
    /// Default: `{}`.
    pub extra_env: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Platform {
    /// Static rules, which Felix applies before all policy: `aks` denies pods access to Azure's wireserver. Rules of your
    /// own are in a file outside of calico.rootDir (`file: PATH`), or here as in such a file. With `none` a
    /// static-rules.json that you put into calico.rootDir is kept. Default: `auto`, `aks` on AKS, else `none`.
    pub static_rules: Option<StaticRules>,
    /// Restore the cloud's metadata route after the vSwitch has removed it. Default: `auto`, on for GCE, and for
    /// EC2 unless the backend is none.
    pub preserve_metadata_route: Auto<bool>,
    /// Create the firewall rule for TCP 10250, which kubectl exec and logs need. Default: `true`, `false` with
    /// backend none.
    pub firewall_kubectl_exec: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Transport {
    /// URL of the HTTP proxy for downloads. Without it the variables `HTTPS_PROXY` and `HTTP_PROXY` apply; only they
    /// may have a user and password, which are not recorded. For the API server, `proxy-url` of the kubeconfig or
    /// the variable `HTTPS_PROXY` applies, as in kubectl. Default: none.
    pub proxy: Option<WebUrl>,
    /// Hosts, domains and CIDRs that are reached without the proxy. Default: `[]`.
    pub no_proxy: Option<Vec<String>>,
    /// PEM file with certificate authorities to trust in addition to the system's. Default: none.
    pub ca_file: Option<String>,
    /// Timeout of one request. Default: `60s`.
    pub timeout: Option<Wait>,
    /// How often a failed request is retried, 0 to 20. Default: `5`.
    #[schemars(range(min = 0, max = 20))]
    pub retries: Option<u32>,
    /// Use no network except the cluster's API. Default: `false`.
    pub offline: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Maintenance {
    pub drain: Drain,
    /// Whether the node is uncordoned afterwards. Default: `auto`, if this program cordoned it.
    pub uncordon: Auto<bool>,
    /// How a change is made: `auto` keeps it, `try` reverts it unless it is confirmed. To prepare a change and
    /// apply it later, use `calicoctl-win plan --out`. Default: `auto`.
    pub mode: Option<Mode>,
    /// How long a `try` change waits for `confirm`. Default: `5m`.
    pub confirm_timeout: Option<Wait>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Drain {
    /// Whether the node is drained before a change that interrupts pods. Default: `auto`, if the
    /// change requires it.
    pub enabled: Auto<bool>,
    /// Timeout of the drain. Default: `10m`.
    pub timeout: Option<Wait>,
    /// Seconds in which each pod must terminate; -1 uses the pod's own. Default: `-1`.
    #[schemars(range(min = -1, max = 86400))]
    pub grace_period_seconds: Option<i64>,
    /// Ignore pods of DaemonSets. Default: `true`.
    pub ignore_daemon_sets: Option<bool>,
    /// Also evict pods with emptyDir volumes, whose data is lost. Default: `false`.
    pub delete_empty_dir_data: Option<bool>,
    /// Also delete pods that no controller re-creates. Default: `false`.
    pub force: Option<bool>,
    /// Delete pods instead of evicting them, which bypasses PodDisruptionBudgets. Default: `false`.
    pub disable_eviction: Option<bool>,
    /// What to do if the drain is blocked: `fail` uncordons the node again and stops. Default: `fail`.
    pub on_blocked: Option<OnBlocked>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Reboot {
    /// What to do if Windows must reboot: `never` does nothing, `request` sets the exit code, `now` reboots. Default: `request`.
    pub policy: Option<RebootPolicy>,
    /// Whether CalicoNode finishes a run that a restart interrupted. Default: `false`.
    pub resume_on_boot: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Preflight {
    /// Ids of checks whose failure does not stop the run. Default: `[]`.
    pub ignore: Option<Vec<String>>,
    /// Remote access that you use on this machine: the check `RemoteSession` tests that each still
    /// accepts connections. Default: `[]`.
    pub remote_access: Option<Vec<RemoteAccess>>,
}
