//! kubelet and kube-proxy, if this program installs them.

use std::net::Ipv4Addr;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Backend;
use super::network::{Network, NodeAddress};
use super::resolver::Resolver;
use crate::config::spec::CloudProvider;
use crate::config::types::{Address, CaCertHash, WebUrl};
use crate::config::{Layered, Origin, fault};
use crate::facts::{Adapter, ClusterFacts, NodeFacts};
use crate::values::{Sha256, known};
use crate::version::KubernetesVersion;

/// Where the project publishes its programs for Windows, each with a `.sha256` next to it.
const URL: &str = "https://dl.k8s.io/release/{version}/bin/windows/amd64";

/// The minor versions whose flags, fields and feature gates are known.
pub const KNOWN_MINORS: std::ops::RangeInclusive<u64> = 28..=36;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesNode {
    pub version: KubernetesVersion,
    pub node_ip: Ipv4Addr,
    pub cloud_provider: Option<String>,
    pub cluster_domain: String,
    /// Merged over the rendered configurations (RFC 7386 merge patch).
    pub kubelet_overrides: Value,
    pub kube_proxy_overrides: Value,
    /// containerd, if this program installs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containerd: Option<Containerd>,
    /// How the programs and the cluster are reached is of one run only.
    #[serde(skip)]
    pub programs: Programs,
    #[serde(skip)]
    pub join: Join,
}

/// Where the programs come from. Paths are on the machine that this program runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// A folder or an archive; none to download.
    pub path: Option<String>,
    pub url_template: String,
    pub kubelet_sha256: Option<Sha256>,
    pub kube_proxy_sha256: Option<Sha256>,
}

/// containerd, from an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Containerd {
    pub sandbox_image: String,
    /// On the machine that this program runs on.
    #[serde(skip)]
    pub archive: String,
    #[serde(skip)]
    pub sha256: Option<Sha256>,
}

/// How kubelet joins the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Join {
    pub token_file: Option<String>,
    pub config_file: Option<String>,
    pub ca_cert_hashes: Vec<CaCertHash>,
}

/// What a config installs, as far as it is the same on every machine.
#[derive(Debug, Clone)]
pub struct InAdvance {
    pub version: KubernetesVersion,
    pub programs: Programs,
    pub containerd: Option<Containerd>,
}

/// The programs that a config installs, without asking node or cluster: to get them in advance; none if it installs none.
///
/// # Errors
/// A [`crate::fault::Fault`] `ConfigInvalid` if it does not say which.
pub fn kubernetes_programs(layered: &Layered) -> Result<Option<InAdvance>> {
    let mut to = Resolver::new(layered);
    if !to.or_default("kubernetes.node.install", false) {
        return Ok(None);
    }
    let (programs, containerd, version) = (programs(&mut to), containerd(&mut to), version(&mut to, None, true));
    if !to.findings.is_empty() {
        return Err(fault(&to.findings));
    }
    Ok(version.map(|version| InAdvance { version, programs, containerd }))
}

/// Decides them; none if the config does not install them.
pub(super) fn decide(
    to: &mut Resolver<'_>,
    node: &NodeFacts,
    cluster: Option<&ClusterFacts>,
    network: &Network,
) -> Option<KubernetesNode> {
    let installs = to.or_default("kubernetes.node.install", false);
    let programs = programs(to);
    let join = Join {
        token_file: to.text("kubernetes.node.join.tokenFile"),
        config_file: to.text("kubernetes.node.join.configFile"),
        ca_cert_hashes: to.or_default("kubernetes.node.join.caCertHashes", Vec::new()),
    };
    if join.token_file.is_some() && join.config_file.is_some() {
        to.wrong(
            "kubernetes.node.join.tokenFile",
            "set a file with the token or kubeadm's JoinConfiguration, not both",
        );
    }
    let containerd = containerd(to);
    let cloud_provider: Option<CloudProvider> = to.optional("kubernetes.node.cloudProvider");
    let cluster_domain = to.or_default("kubernetes.node.clusterDomain", "cluster.local".to_owned());
    let kubelet_overrides = to.or_default("kubernetes.node.kubeletConfigOverrides", Map::new()).into();
    let kube_proxy_overrides = to.or_default("kubernetes.node.kubeProxyConfigOverrides", Map::new()).into();
    let version = version(to, cluster, installs);
    let node_ip = node_ip(to, node, network, installs);
    if installs && network.backend == Backend::None {
        let why = "with the backend none another product makes the pods' network, whose name kube-proxy needs: install \
                   kubelet and kube-proxy as that product describes, and remove this";
        to.wrong("kubernetes.node.install", why);
    }
    let (version, node_ip) = (version?, node_ip?);
    installs.then(|| KubernetesNode {
        version,
        node_ip,
        cloud_provider: cloud_provider.map(|CloudProvider::External| "external".to_owned()),
        cluster_domain,
        kubelet_overrides,
        kube_proxy_overrides,
        containerd,
        programs,
        join,
    })
}

/// Supports each Windows of the check `PauseImage`; the default of containerd 2.0 and of kubeadm since 1.31.
const SANDBOX_IMAGE: &str = "registry.k8s.io/pause:3.10";

const CONTAINERD: &str = "kubernetes.node.containerd.archive";

/// Whether the config installs containerd.
pub(super) fn installs_containerd(to: &Resolver<'_>) -> bool {
    to.given("kubernetes.node.install").unwrap_or(false)
        && to.given(CONTAINERD).is_some_and(|archive: String| !archive.is_empty())
}

fn containerd(to: &mut Resolver<'_>) -> Option<Containerd> {
    let sha256 = to.optional("kubernetes.node.containerd.sha256");
    let sandbox_image = to.or_default("kubernetes.node.containerd.sandboxImage", SANDBOX_IMAGE.to_owned());
    to.text(CONTAINERD).map(|archive| Containerd { sandbox_image, archive, sha256 })
}

fn programs(to: &mut Resolver<'_>) -> Programs {
    const TEMPLATE: &str = "kubernetes.node.source.urlTemplate";
    let path = to.text("kubernetes.node.source.path");
    let given: Option<WebUrl> = to.given(TEMPLATE);
    if path.is_some() && given.is_some() {
        to.wrong(TEMPLATE, "set a path or a URL for kubelet and kube-proxy, not both");
    }
    Programs {
        path,
        url_template: to.or_default(TEMPLATE, known::<WebUrl>(URL)).to_string(),
        kubelet_sha256: to.optional("kubernetes.node.source.kubeletSHA256"),
        kube_proxy_sha256: to.optional("kubernetes.node.source.kubeProxySHA256"),
    }
}

fn version(to: &mut Resolver<'_>, cluster: Option<&ClusterFacts>, installs: bool) -> Option<KubernetesVersion> {
    const PATH: &str = "kubernetes.node.version";
    let servers = cluster.and_then(|cluster| cluster.kubernetes_version.parse::<KubernetesVersion>().ok());
    let given = to.chosen(PATH).map(Some);
    let by = || match servers.filter(|_| installs) {
        Some(server) => (Some(server), Origin::Detected("the API server".into())),
        None => (None, Origin::Default),
    };
    let version = to.decided(PATH, given, by);
    if !installs {
        return version;
    }
    match version {
        None => {
            let why = "the API server's version is not known, so the version of kubelet and kube-proxy must be set, for \
                       example v1.33.4";
            to.wrong(PATH, why);
        }
        Some(version) if !KNOWN_MINORS.contains(&version.minor) => {
            let (first, last) = (KNOWN_MINORS.start(), KNOWN_MINORS.end());
            let why = format!(
                "the flags and fields of {version} are not known: this program installs v1.{first} to v1.{last}"
            );
            to.wrong(PATH, why);
        }
        Some(_) => {}
    }
    version
}

fn node_ip(to: &mut Resolver<'_>, node: &NodeFacts, network: &Network, installs: bool) -> Option<Ipv4Addr> {
    const PATH: &str = "kubernetes.node.nodeIP";
    let fixed = match &network.node_address {
        NodeAddress::Fixed(address) => address.split('/').next().and_then(|address| address.parse().ok()),
        _ => None,
    };
    let main = || {
        let adapter = Adapter::choose(&node.adapters, None, None)?;
        Some((adapter.reachable_address()?, format!("the adapter {}", adapter.name)))
    };
    let given: Option<Option<Address>> = to.chosen(PATH).map(Some);
    let address = to.decided(PATH, given, || match (fixed, main()) {
        _ if !installs => (None, Origin::Default),
        (Some(fixed), _) => (Some(Address(fixed)), Origin::Detected("calicoNetwork.nodeAddress".into())),
        (None, Some((address, by))) => (Some(Address(address)), Origin::Detected(by)),
        (None, None) => (None, Origin::Default),
    });
    if installs && address.is_none() {
        to.wrong(PATH, "no adapter of this machine has an IPv4 address that others can reach; set the node's address");
    }
    // kubelet reports no address that the machine does not have (`validateNodeIP` in Kubernetes' pkg/kubelet).
    let adapters = node.adapters.iter().filter_map(Adapter::reachable_address);
    let there: Vec<String> = adapters.map(|ip| ip.to_string()).collect();
    if let Some(Address(ip)) = address.as_ref().filter(|_| installs && !there.is_empty())
        && Adapter::choose(&node.adapters, None, Some(*ip)).is_none()
    {
        let why = format!("no adapter of this machine has the address {ip}; it has {}", there.join(", "));
        to.wrong(PATH, why);
    }
    address.map(|Address(address)| address)
}
