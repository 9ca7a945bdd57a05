//! The cluster's services, and the pods' network.

use std::net::Ipv4Addr;

use serde::Serialize;

use super::backend::{self, Undecided};
use super::datastore::is_etcd;
use super::detection;
use super::resolver::{Resolver, filled};
use super::{Backend, Credentials, Ipam, Provider};
use crate::config::Origin;
use crate::config::spec::Spec;
use crate::config::types::{Address, AddressChoice, Pattern};
use crate::facts::{Adapter, ClusterFacts, FelixFacts};
use crate::values::{Cidr, MacPrefix, Vni};

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
    spec: &Spec,
    credentials: Option<Credentials>,
    cluster: Option<&ClusterFacts>,
) -> Kubernetes {
    let given = &spec.kubernetes;
    let service_cidrs = to.decide(
        "spec.kubernetes.serviceCIDRs",
        given.service_cidrs.clone().filter(|cidrs| !cidrs.is_empty()),
        || match cluster.map(|cluster| &cluster.service_cidrs) {
            Some(cidrs) if !cidrs.is_empty() => (cidrs.clone(), Origin::Detected("the cluster's configuration".into())),
            _ => (vec!["10.96.0.0/12".parse::<Cidr>().expect("a literal CIDR is right")], Origin::Default),
        },
    );
    let servers = to.decide(
        "spec.kubernetes.dns.servers",
        given.dns.servers.clone().filter(|servers| !servers.is_empty()),
        || match cluster.and_then(|cluster| cluster.dns_service_ip) {
            Some(address) => (vec![Address(address)], Origin::Detected("service kube-dns".into())),
            None => (vec![Address(Ipv4Addr::new(10, 96, 0, 10))], Origin::Default),
        },
    );
    let dns_servers: Vec<Ipv4Addr> = servers.into_iter().map(|Address(address)| address).collect();
    for server in dns_servers.iter().filter(|server| !service_cidrs.iter().any(|cidr| cidr.contains(*server))) {
        let cidrs: Vec<String> = service_cidrs.iter().map(Cidr::to_string).collect();
        let message = format!("the DNS server {server} is outside the service CIDR {}", cidrs.join(", "));
        to.warn("DnsOutsideServiceCidr", message);
    }
    Kubernetes {
        service_cidrs,
        dns_servers,
        dns_search: to.or_default(
            "spec.kubernetes.dns.search",
            given.dns.search.clone(),
            vec!["svc.cluster.local".to_owned()],
        ),
        calico_namespace: to.decide("spec.kubernetes.calicoNamespace", given.calico_namespace.0.clone(), || {
            match cluster {
                Some(cluster) => (cluster.calico_namespace.clone(), Origin::Detected("the cluster".into())),
                None => ("calico-system".to_owned(), Origin::Default),
            }
        }),
        credentials,
    }
}

/// The source of the login in the node's kubeconfig. With every datastore Calico's CNI plugin reads pods and namespaces
/// from the Kubernetes API, and fails each ADD without a kubeconfig. Only with etcd and the backend none, where the
/// plugin is another product's, does nothing on the node need one.
pub(super) fn credentials(to: &mut Resolver<'_>, spec: &Spec) -> Option<Credentials> {
    let policy_only = spec.calico_network.backend == Some(Backend::None);
    let (path, given) = ("spec.kubernetes.credentials", spec.kubernetes.credentials);
    if given.is_none() && is_etcd(spec) && policy_only {
        return to.optional(path, None);
    }
    Some(to.or_default(path, given, Credentials::TokenRequest))
}

/// The physical adapter for `External`: the named one, or the one that the node's address, or Calico's method of
/// finding it, selects. Otherwise HNS chooses, as with upstream's scripts: our choice would change with every adapter
/// that comes up, and another adapter means another network for the pods.
fn adapter(
    to: &mut Resolver<'_>,
    named: Option<String>,
    backend: Backend,
    address: &str,
    adapters: &[Adapter],
    cluster: Option<&ClusterFacts>,
) -> Option<String> {
    let path = "spec.calicoNetwork.vxlan.vxlanAdapter";
    if named.is_some() || backend != Backend::Vxlan {
        return to.optional(path, named);
    }
    let fixed = address.split('/').next().and_then(|address| address.parse::<Ipv4Addr>().ok());
    let found = match fixed {
        Some(fixed) => Adapter::choose(adapters, None, Some(fixed)),
        None => detection::adapter(address, adapters, cluster),
    };
    let Some(found) = found else {
        return to.optional(path, None);
    };
    let address = fixed.map_or_else(|| address.to_owned(), |fixed| fixed.to_string());
    // The host's own adapter on a vSwitch that is already there.
    let virtual_of = found.name.strip_prefix("vEthernet (").and_then(|name| name.strip_suffix(')'));
    let name = virtual_of.unwrap_or(&found.name).to_owned();
    to.note(path, Some(name), Origin::Detected(format!("the adapter of the node address {address}")))
}

/// The pods' network, and why the cluster's encapsulation rules it out, if it does.
pub(super) fn network(
    to: &mut Resolver<'_>,
    spec: &Spec,
    provider: Provider,
    adapters: &[Adapter],
    cluster: Option<&ClusterFacts>,
) -> (Network, Option<String>) {
    #[cfg(test)]
    crate::counted::count("network");
    let given = &spec.calico_network;
    let path = "spec.calicoNetwork.backend";
    let mut ipip = None;
    let backend = match given.backend.map_or_else(|| backend::detect(provider, cluster), |b| Ok((b, Origin::Default))) {
        Ok((backend, from)) => to.decide(path, given.backend, || (backend, from)),
        Err(reason) => {
            match reason {
                Undecided::IpIp(reason) => ipip = Some(reason),
                Undecided::Unknown(why) => to.wrong(
                    path,
                    format!("the backend is not given and the cluster does not tell it: {why}; set vxlan, windows-bgp or none"),
                ),
                Undecided::NoFacts => to.wrong(
                    path,
                    "the backend is not given and there is no cluster to ask; set vxlan, windows-bgp or none",
                ),
            }
            Backend::None
        }
    };
    let ipam = to.or_default("spec.calicoNetwork.ipam.type", given.ipam.kind, Ipam::CalicoIpam);
    if let Err(why) = backend.takes(ipam) {
        to.wrong("spec.calicoNetwork.ipam.type", why);
    }
    let kube_network = to.decide("spec.calicoNetwork.kubeNetwork", given.kube_network.clone(), || {
        let brings = provider.brings();
        let (pattern, from) = match brings.own_network {
            Some(pattern) => (pattern, Origin::Detected(format!("provider {}", brings.name))),
            None => ("Calico.*", Origin::Default),
        };
        (pattern.parse::<Pattern>().expect("a literal expression is right"), from)
    });
    let address = to.or_default(
        "spec.calicoNetwork.nodeAddress",
        given.node_address.clone(),
        "autodetect".parse::<AddressChoice>().expect("a literal choice is right"),
    );
    let network = Network {
        backend,
        kube_network: kube_network.as_str().to_owned(),
        node_address: match address.as_str() {
            "autodetect" => NodeAddress::Autodetect,
            "none" => NodeAddress::None,
            fixed if fixed.starts_with(|c: char| c.is_ascii_digit()) => NodeAddress::Fixed(fixed.to_owned()),
            method => NodeAddress::By(method.to_owned()),
        },
        ipam,
        vni: vni(to, spec, backend, cluster),
        mac_prefix: to.or_default(
            "spec.calicoNetwork.vxlan.vxlanMACPrefix",
            given.vxlan.vxlan_mac_prefix.clone(),
            "0E-2A".parse::<MacPrefix>().expect("a literal prefix is right"),
        ),
        adapter: adapter(to, filled(&given.vxlan.vxlan_adapter), backend, address.as_str(), adapters, cluster),
    };
    (network, ipip)
}

fn vni(to: &mut Resolver<'_>, spec: &Spec, backend: Backend, cluster: Option<&ClusterFacts>) -> Vni {
    let path = "spec.calicoNetwork.vxlan.vxlanVNI";
    let given = spec.calico_network.vxlan.vxlan_vni;
    if is_etcd(spec) {
        if given.is_none() && backend == Backend::Vxlan {
            to.wrong(
                path,
                "required with the datastore etcdv3, from which it is not read; `calicoctl get felixconfiguration \
                 default -o yaml` shows the cluster's vxlanVNI, which is 4096 if it has none",
            );
        }
        return to.or_default(path, given, Vni::DEFAULT);
    }
    let felix = cluster.map(|cluster| &cluster.felix);
    let detected = felix.map(cluster_vni);
    if let (None, Some(Err(problem)), Backend::Vxlan) = (given, &detected, backend) {
        to.wrong(path, problem);
    }
    to.decide(path, given, || match detected {
        Some(Ok(vni)) if felix.is_some_and(|felix| felix.vxlan_vni.is_some()) => {
            (vni, Origin::Detected("FelixConfiguration".into()))
        }
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

/// Why a node's VNI does not go with the cluster's; none if it does, or if there is no VXLAN.
pub fn mixed_vni(network: &Network, felix: &FelixFacts) -> Option<String> {
    let (own, theirs) = (network.vni, felix.vxlan_vni.unwrap_or(Vni::DEFAULT.get()));
    (network.backend == Backend::Vxlan && own.get() != theirs).then(|| {
        format!(
            "the VNI {own} differs from the cluster's {theirs} (FelixConfiguration `default`): \
             this node's pods will not reach those of nodes with the other"
        )
    })
}
