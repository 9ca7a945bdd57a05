//! The cluster's services, and the pods' network.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use regex::Regex;
use serde::Serialize;

use super::backend::{self, Undecided};
use super::datastore::is_etcd;
use super::detection;
use super::resolver::Resolver;
use super::{Backend, Credentials, Ipam, Provider};
use crate::config::Origin;
use crate::facts::{Adapter, ClusterFacts, FelixFacts, NodeFacts, physical};
use crate::values::{Cidr, MacPrefix, Vni, joined, known};

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

pub(super) fn kubernetes(
    to: &mut Resolver<'_>,
    credentials: Option<Credentials>,
    cluster: Option<&ClusterFacts>,
) -> Kubernetes {
    const CIDRS: &str = "kubernetes.serviceCIDRs";
    const DNS: &str = "kubernetes.dns.servers";
    let given = to.given(CIDRS).filter(|cidrs: &Vec<Cidr>| !cidrs.is_empty());
    let found = cluster.map(|cluster| cluster.service_cidrs.clone()).filter(|cidrs| !cidrs.is_empty());
    let service_cidrs = to.decided(CIDRS, given, || match found {
        Some(cidrs) => (cidrs, Origin::Detected("the cluster's configuration".into())),
        None => (vec![known("10.96.0.0/12")], Origin::Default),
    });
    let given = to.given(DNS).filter(|servers: &Vec<Ipv4Addr>| !servers.is_empty());
    let dns_servers = to.decided(DNS, given, || match cluster.and_then(|cluster| cluster.dns_service_ip) {
        Some(address) => (vec![address], Origin::Detected("service kube-dns".into())),
        None => (vec![known("10.96.0.10")], Origin::Default),
    });
    for server in dns_servers.iter().filter(|server| !service_cidrs.iter().any(|cidr| cidr.contains(*server))) {
        let cidrs = joined(&service_cidrs, ", ");
        let message = format!("the DNS server {server} is outside the service CIDR {cidrs}");
        to.warn("DnsOutsideServiceCidr", message);
    }
    Kubernetes {
        service_cidrs,
        dns_servers,
        dns_search: to.or_default("kubernetes.dns.search", vec!["svc.cluster.local".to_owned()]),
        calico_namespace: to.auto("kubernetes.calicoNamespace", || match cluster {
            Some(cluster) => (cluster.calico_namespace.clone(), Origin::Detected("the cluster".into())),
            None => ("calico-system".to_owned(), Origin::Default),
        }),
        credentials,
    }
}

/// The source of the login in the node's kubeconfig. With every datastore Calico's CNI plugin reads pods and namespaces
/// from the Kubernetes API, and fails each ADD without a kubeconfig. Only with etcd and the backend none, where the
/// plugin is another product's, does nothing on the node need one.
pub(super) fn credentials(to: &mut Resolver<'_>, cluster: Option<&ClusterFacts>) -> Option<Credentials> {
    const PATH: &str = "kubernetes.credentials";
    let policy_only = to.chosen("calicoNetwork.backend") == Some(Backend::None);
    let given: Option<Credentials> = to.given(PATH);
    let needed = given.is_some() || !policy_only || !is_etcd(to);
    let kubelet_of = cluster.and_then(|cluster| cluster.kubelet_of.as_ref()).filter(|_| needed);
    let usual = needed.then(|| Credentials::usual(kubelet_of.is_some()));
    to.decided(PATH, given.map(Some), || match kubelet_of {
        Some(node) => (usual, Origin::Detected(format!("the kubeconfig of kubelet on {node}"))),
        None => (usual, Origin::Default),
    })
}

/// The physical adapter for `External`: the named one, or the one that the node's address, or Calico's method of
/// finding it, selects. Otherwise HNS chooses, as with upstream's scripts: our choice would change with every adapter
/// that comes up, and another adapter means another network for the pods.
fn adapter(
    to: &mut Resolver<'_>,
    backend: Backend,
    address: &str,
    adapters: &[Adapter],
    cluster: Option<&ClusterFacts>,
) -> Option<String> {
    const PATH: &str = "calicoNetwork.vxlan.vxlanAdapter";
    let fixed = address.split('/').next().and_then(|address| address.parse::<Ipv4Addr>().ok());
    let found = match fixed {
        _ if backend != Backend::Vxlan => None,
        Some(fixed) => Adapter::choose(adapters, None, Some(fixed)),
        None => detection::adapter(to, address, adapters, cluster),
    };
    let address = fixed.map_or_else(|| address.to_owned(), |fixed| fixed.to_string());
    let given = to.given(PATH).filter(|name: &String| !name.is_empty()).map(Some);
    to.decided(PATH, given, || match found {
        // Not the host's own adapter on a vSwitch that is already there.
        Some(found) => {
            let from = Origin::Detected(format!("the adapter of the node address {address}"));
            (Some(physical(&found.name).to_owned()), from)
        }
        None => (None, Origin::Default),
    })
}

/// The pods' network, and why the cluster's encapsulation rules it out, if it does.
pub(super) fn network(
    to: &mut Resolver<'_>,
    provider: Provider,
    node: Option<&NodeFacts>,
    cluster: Option<&ClusterFacts>,
) -> (Network, Option<String>) {
    #[cfg(test)]
    crate::counted::count("network");
    let adapters = node.map_or(&[][..], |node| &node.adapters);
    let networks = node.and_then(|node| node.survey.as_ref()).map(|survey| &survey.networks);
    const BACKEND: &str = "calicoNetwork.backend";
    const IPAM: &str = "calicoNetwork.ipam.type";
    let mut ipip = None;
    let given = to.chosen(BACKEND);
    let backend = match given.map_or_else(|| backend::detect(provider, cluster), |given| Ok((given, Origin::Default))) {
        Ok(found) => to.decided(BACKEND, given, || found),
        Err(Undecided::IpIp(reason)) => {
            ipip = Some(reason);
            Backend::None
        }
        Err(reason) => {
            let why = match reason {
                Undecided::Unknown(why) => format!("the cluster does not have it: {why}"),
                _ => "there is no cluster to ask".into(),
            };
            to.wrong(BACKEND, format!("the backend is not given and {why}; set vxlan, windows-bgp or none"));
            Backend::None
        }
    };
    let ipam = to.or_default(IPAM, Ipam::CalicoIpam);
    if let Err(why) = backend.takes(ipam) {
        to.wrong(IPAM, why);
    }
    let brings = provider.brings();
    let kube_network = to.decide("calicoNetwork.kubeNetwork", || match brings.own_network {
        Some(pattern) => (pattern.to_owned(), Origin::Detected(format!("provider {}", brings.name))),
        None if backend == Backend::None => networks_there(networks),
        None => (CALICOS.to_owned(), Origin::Default),
    });
    let address = to.or_default("calicoNetwork.nodeAddress", "autodetect".to_owned());
    let network = Network {
        backend,
        kube_network,
        ipam,
        vni: vni(to, backend, cluster),
        mac_prefix: to.or_default("calicoNetwork.vxlan.vxlanMACPrefix", known("0E-2A")),
        adapter: adapter(to, backend, &address, adapters, cluster),
        node_address: match address.as_str() {
            "autodetect" => NodeAddress::Autodetect,
            "none" => NodeAddress::None,
            fixed if fixed.starts_with(|c: char| c.is_ascii_digit()) => NodeAddress::Fixed(address),
            _ => NodeAddress::By(address),
        },
    };
    (network, ipip)
}

fn vni(to: &mut Resolver<'_>, backend: Backend, cluster: Option<&ClusterFacts>) -> Vni {
    const PATH: &str = "calicoNetwork.vxlan.vxlanVNI";
    let given = to.given(PATH);
    let read = cluster.filter(|cluster| !cluster.calico_unread()).map(|cluster| &cluster.felix);
    let detected = read.filter(|felix| felix.vxlan_vni.is_some()).map(cluster_vni);
    if given.is_none() && backend == Backend::Vxlan {
        if is_etcd(to) && read.is_none() {
            let why = "required, since Calico's data in etcd was not read; `calicoctl get felixconfiguration default \
                       -o yaml` shows the cluster's vxlanVNI, which is 4096 if it has none";
            to.wrong(PATH, why);
        }
        if let Some(Err(problem)) = &detected {
            to.wrong(PATH, problem);
        }
    }
    to.decided(PATH, given, || match detected {
        Some(Ok(vni)) => (vni, Origin::Detected("FelixConfiguration".into())),
        _ => (Vni::DEFAULT, Origin::Default),
    })
}

/// The VNI of the cluster's other nodes.
///
/// # Errors
/// Why Windows does not support it.
pub fn cluster_vni(felix: &FelixFacts) -> Result<Vni, String> {
    felix.vxlan_vni.map_or(Ok(Vni::DEFAULT), Vni::try_from).map_err(|problem| {
        format!("FelixConfiguration `default` has a vxlanVNI that Windows does not support: {problem}")
    })
}

/// Calico's own networks.
const CALICOS: &str = "Calico.*";

/// With policy only: an expression for the networks of the other plugin that are on the machine, such as Flannel's `cbr0`;
/// the default if there are none yet.
fn networks_there(networks: Option<&BTreeMap<String, String>>) -> (String, Origin) {
    let has_pods = |kind: &str| {
        ["L2Bridge", "L2Tunnel", "Overlay", "Transparent"].iter().any(|one| one.eq_ignore_ascii_case(kind))
    };
    let there = networks.into_iter().flatten().filter(|(name, kind)| has_pods(kind) && !is_bootstrap(name));
    let names: Vec<&str> = there.map(|(name, _)| name.as_str()).collect();
    let calicos = Regex::new(CALICOS).is_ok_and(|pattern| names.iter().any(|name| pattern.is_match(name)));
    let escaped: Vec<String> = names.iter().map(|name| regex::escape(name)).collect();
    match escaped.as_slice() {
        [] => (CALICOS.to_owned(), Origin::Default),
        _ if calicos => (CALICOS.to_owned(), Origin::Default),
        [one] => (format!("^{one}$"), Origin::Detected(format!("the HNS network {}", names[0]))),
        more => (format!("^({})$", more.join("|")), Origin::Detected(format!("the HNS networks {}", names.join(", ")))),
    }
}

/// A network without pods, which keeps the vSwitch: Calico's, and Flannel's of the same name.
fn is_bootstrap(name: &str) -> bool {
    name.eq_ignore_ascii_case("External")
}

/// Returns the HNS networks on whose pods Felix enforces policies.
pub fn matched_networks<'a>(pattern: &str, networks: impl Iterator<Item = &'a str>) -> Vec<String> {
    let matches = Regex::new(pattern).ok();
    let matched = networks.filter(|name| matches.as_ref().is_some_and(|pattern| pattern.is_match(name)));
    matched.map(str::to_owned).collect()
}

/// Returns why Felix finds no pods with policy only: no HNS network has a name that `pattern` matches.
pub fn unmatched_network<'a>(pattern: &str, networks: impl Iterator<Item = &'a str>) -> Option<String> {
    let matches = Regex::new(pattern).ok()?;
    let names: Vec<&str> = networks.collect();
    if names.iter().any(|name| matches.is_match(name)) {
        return None;
    }
    let there = if names.is_empty() { "there is none".into() } else { format!("there are: {}", names.join(", ")) };
    Some(format!("no HNS network matches kubeNetwork `{pattern}`, so Felix enforces no policy; {there}"))
}

/// Why a node's VNI does not go with the cluster's; none if it does, or if there is no VXLAN.
pub fn mixed_vni(network: &Network, felix: &FelixFacts) -> Option<String> {
    let (own, theirs) = (network.vni, felix.vxlan_vni.unwrap_or(Vni::DEFAULT.get()));
    (network.backend == Backend::Vxlan && own.get() != theirs).then(|| {
        format!(
            "the VNI {own} differs from the cluster's {theirs} (FelixConfiguration `default`): \
             pods on nodes with different VNIs cannot reach each other"
        )
    })
}
