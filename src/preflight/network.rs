//! Checks of Calico's features in the cluster, and whether Windows supports them.

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::cluster::untold;
use super::{Finding, Input, Judge, Row, Severity};
use crate::facts::{ClusterFacts, ETCD, NodeFacts, PoolFacts, Survey};
use crate::settings::{Backend, Ipam, Undecided, backend_of, cluster_vni, mixed_vni, pools_for_windows};
use crate::values::{Cidr, joined};

/// Shows Felix's configuration in etcd.
const FELIX: &str = "calicoctl get felixconfiguration default -o yaml";

pub(super) const STRICT_AFFINITY: &str = "StrictAffinity";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "CalicoResources",
        severity: Severity::Error,
        why: "with the datastore kubernetes, Calico's configuration is read from the cluster's API",
        fix: "install Calico on the cluster's Linux nodes first, or set spec.datastore.type: etcdv3",
        judge: Judge::Cluster(|cluster, input| match cluster.calico_unserved {
            false => Pass(cluster.api_group.to_string()),
            true if input.etcd() => Skip("Calico keeps its data in etcd".into()),
            true => Fail("the cluster serves no Calico resources".into()),
        }),
    },
    Row {
        id: "Ipip",
        severity: Severity::Error,
        why: "Windows does not support IP-in-IP, so its pods could not reach pods on other nodes",
        fix: "move the IP pools to VXLAN (ipipMode: Never, vxlanMode: Always), or set spec.calicoNetwork.backend\ncalicoctl-win cluster prepare  # shows the patches",
        judge: Judge::Calico("calicoctl get ippools -o yaml", |cluster, input| match backend_of(cluster) {
            _ if input.names_backend() => given_ipip(cluster),
            Err(Undecided::IpIp(reason)) => Fail(format!("{reason}: Windows nodes cannot do IP-in-IP")),
            Err(Undecided::Unknown(why)) => Unknown(why),
            _ => Pass("off".into()),
        }),
    },
    Row {
        id: "Backend",
        severity: Severity::Error,
        why: "the backend must come from the config or the cluster; it is never guessed",
        fix: "set spec.calicoNetwork.backend to vxlan, windows-bgp or none",
        judge: Judge::Cluster(backend_known),
    },
    Row {
        id: "BackendMatchesCluster",
        severity: Severity::Warning,
        why: "pods on nodes with different backends cannot reach each other",
        fix: "leave spec.calicoNetwork.backend out, so that it is the cluster's\nif BGP is off there, use VXLAN pools and the backend vxlan, or turn it on",
        judge: Judge::Cluster(|cluster, input| match (input.network(), backend_of(cluster)) {
            (None, _) => Skip("no backend is decided".into()),
            (Some(network), _) if network.backend == Backend::None => Skip("another plugin owns the network".into()),
            (Some(_), Err(Undecided::Unknown(why))) => Unknown(why),
            (Some(_), Err(_)) => Skip("the cluster has IP-in-IP".into()),
            (Some(network), Ok((theirs, by))) if network.backend != theirs => {
                Fail(format!("the config says {}, the cluster {} ({by})", network.backend.name(), theirs.name()))
            }
            (Some(network), _) => match bgp_is_off(cluster).filter(|_| network.backend == Backend::WindowsBgp) {
                Some(why) => Fail(format!("the backend is windows-bgp, and the Linux nodes have no BGP: {why}")),
                None => Pass(network.backend.name().into()),
            },
        }),
    },
    Row {
        id: "IpPools",
        severity: Severity::Error,
        why: "pods get their addresses from the cluster's IP pools, and install creates none",
        fix: "kubectl get ippools -o yaml  # shows the pools\ncreate a pool of the backend's type (vxlanMode: Always for vxlan), enable one, or let its nodeSelector select this node",
        judge: Judge::Calico("calicoctl get ippools -o yaml", ip_pools),
    },
    Row {
        id: "PoolEncapsulation",
        severity: Severity::Error,
        why: "Calico for Windows supports one type of IP pool in a cluster: all VXLAN, or all without encapsulation",
        fix: "kubectl get ippools -o yaml  # shows the pools\ngive all enabled pools the same vxlanMode, or keep some for Linux nodes: nodeSelector: kubernetes.io/os == 'linux'",
        judge: Judge::Calico("calicoctl get ippools -o yaml", one_pool_type),
    },
    Row {
        id: "BgpDisabled",
        severity: Severity::Warning,
        why: "if Windows nodes use VXLAN, BGP between the nodes must be off, because their routes conflict",
        fix: "kubectl patch installation default --type=merge -p \"spec: {calicoNetwork: {bgp: Disabled}}\"  # if the operator installed Calico\nset calico_backend: vxlan in the ConfigMap calico-config  # if a manifest did",
        judge: Judge::Cluster(vxlan_without_bgp),
    },
    Row {
        id: "CrossSubnet",
        severity: Severity::Warning,
        why: "Windows does not support CrossSubnet: it always encapsulates, even if Linux nodes do not",
        fix: "nothing, if nodes of one subnet reach each other over VXLAN; otherwise set vxlanMode: Always",
        judge: Judge::Calico("calicoctl get ippools -o yaml", |cluster, _| {
            if cluster.calico_unread() {
                return unserved();
            }
            let names = named(pools_for_windows(cluster).filter(|pool| pool.vxlan_mode == "CrossSubnet"));
            if names.is_empty() {
                Pass("no pool uses it".into())
            } else {
                Fail(format!("vxlanMode: CrossSubnet in {names}"))
            }
        }),
    },
    Row {
        id: "VxlanMtu",
        severity: Severity::Warning,
        why: "Calico's Windows dataplane does not set an MTU: a vxlanMTU is for Linux nodes only",
        fix: "if the network needs a smaller MTU, set it on the Windows adapters",
        judge: Judge::Calico(FELIX, |cluster, _| match cluster.felix.vxlan_mtu {
            _ if cluster.calico_unread() => unserved(),
            None | Some(0) => Pass("not set".into()),
            Some(mtu) => Fail(format!("FelixConfiguration has vxlanMTU: {mtu}, which Windows ignores")),
        }),
    },
    Row {
        id: "VxlanPort",
        severity: Severity::Error,
        why: "Calico for Windows uses only UDP 4789 for VXLAN and ignores vxlanPort",
        fix: "kubectl patch felixconfiguration default --type=merge -p \"spec: {vxlanPort: 4789}\"",
        judge: Judge::Calico(FELIX, |cluster, input| match (without_vxlan(cluster, input), cluster.felix.vxlan_port) {
            (Some(without), _) => without,
            (None, None | Some(0 | 4789)) => Pass("4789".into()),
            (None, Some(port)) => Fail(format!("FelixConfiguration has vxlanPort: {port}")),
        }),
    },
    Row {
        id: "VxlanVni",
        severity: Severity::Error,
        why: "Windows supports VNIs from 4096; above 65535 its routes would carry another one, and the network External uses 9999",
        fix: "kubectl patch felixconfiguration default --type=merge -p \"spec: {vxlanVNI: 4096}\"  # changes the Linux nodes too",
        judge: Judge::Calico(FELIX, |cluster, input| match without_vxlan(cluster, input) {
            Some(without) => without,
            None => cluster_vni(&cluster.felix).map_or_else(Fail, |vni| Pass(vni.to_string())),
        }),
    },
    Row {
        id: "VniMatchesFelix",
        severity: Severity::Warning,
        why: "pods on nodes with different VNIs cannot reach each other, and nothing reports it",
        fix: "leave spec.calicoNetwork.vxlan.vxlanVNI out, so that it is the cluster's",
        judge: Judge::Calico(FELIX, |cluster, input| match (input.network(), without_vxlan(cluster, input)) {
            (None, _) => Unknown("no backend is decided".into()),
            (_, Some(without)) => without,
            (Some(own), None) => mixed_vni(own, &cluster.felix).map_or_else(|| Pass(own.vni.to_string()), Fail),
        }),
    },
    Row {
        id: STRICT_AFFINITY,
        severity: Severity::Error,
        why: "Windows cannot route single addresses of other nodes' blocks, so IPAM must not borrow them",
        fix: "kubectl patch ipamconfigs default --type=merge -p \"spec: {strictAffinity: true}\"",
        judge: Judge::Calico("calicoctl ipam show --show-configuration", |cluster, input| {
            if cluster.calico_unread() {
                return unserved();
            }
            if input.network().is_some_and(|net| net.backend == Backend::None || net.ipam != Ipam::CalicoIpam) {
                return Skip("Calico IPAM is not used".into());
            }
            match cluster.strict_affinity {
                Some(true) => Pass("on".into()),
                Some(false) => Fail("IPAM strict affinity is off".into()),
                None => Fail("IPAM strict affinity is not set: there is no IPAM config object".into()),
            }
        }),
    },
    Row {
        id: "BlockSize",
        severity: Severity::Error,
        why: "Windows reserves four addresses of a node's only block, so a block smaller than /29 has none left for pods",
        fix: "create an IP pool with larger blocks, for example blockSize: 26, and disable the old one",
        judge: Judge::Calico("calicoctl get ippools -o yaml", |cluster, _| {
            let mut pools = pools_for_windows(cluster).peekable();
            if pools.peek().is_none() {
                return Unknown("no enabled IPv4 pool selects this node".into());
            }
            let small = named(pools.filter(|pool| pool.block_size > 29));
            if small.is_empty() { Pass(sizes(cluster)) } else { Fail(format!("blocks smaller than /29 in {small}")) }
        }),
    },
    Row {
        id: "PodCapacity",
        severity: Severity::Warning,
        why: "a Windows node has one block: /26 gives 60 pods, /25 124, /24 252, whatever kubelet's limit is",
        fix: "set kubelet's --max-pods to what a block holds, or create pools with larger blocks",
        judge: Judge::Calico("calicoctl get ippools -o yaml", pod_capacity),
    },
    Row {
        id: "PoolBlocks",
        severity: Severity::Error,
        why: "a Windows node without a block of its own cannot run pods, because Windows borrows no addresses",
        fix: "calicoctl ipam check  # shows blocks of removed nodes\nadd an IP pool, or release these blocks",
        judge: Judge::Calico("calicoctl ipam show --show-blocks", pool_blocks),
    },
    Row {
        id: "Ipv6",
        severity: Severity::Warning,
        why: "Calico for Windows is IPv4 only: pods get no IPv6 address, and rules about IPv6 are skipped",
        fix: "nothing, if pods on Windows need only IPv4",
        judge: Judge::Calico("calicoctl get ippools -o yaml", |cluster, _| {
            if cluster.calico_unread() {
                return unserved();
            }
            let pools = named(cluster.pools.iter().filter(|pool| pool.is_ipv6() && !pool.disabled));
            let services = cluster.kubernetes_service_ips.iter().any(|ip| ip.contains(':'));
            match (pools.is_empty(), services) {
                (true, false) => Pass("IPv4 only".into()),
                (false, _) => Fail(format!("IPv6 in {pools}")),
                (true, true) => Fail("the cluster's services have IPv6 addresses".into()),
            }
        }),
    },
    Row {
        id: "WireGuard",
        severity: Severity::Warning,
        why: "Windows does not support WireGuard: traffic to and from Windows nodes is not encrypted",
        fix: "nothing, if that is acceptable; otherwise keep such workloads on Linux nodes",
        judge: Judge::Calico(FELIX, |cluster, _| {
            on_or_off(cluster, cluster.felix.wireguard_enabled, "wireguardEnabled")
        }),
    },
    Row {
        id: "Ebpf",
        severity: Severity::Warning,
        why: "Windows has no eBPF dataplane, and still needs what eBPF replaces, such as kube-proxy",
        fix: "keep kube-proxy on the Windows nodes, and VXLAN between the nodes",
        judge: Judge::Calico(FELIX, |cluster, _| on_or_off(cluster, cluster.felix.bpf_enabled, "bpfEnabled")),
    },
    Row {
        id: "HostEndpoints",
        severity: Severity::Warning,
        why: "policies of host endpoints, also of those that Calico creates for each node, are not enforced on Windows hosts",
        fix: "protect Windows hosts with the Windows firewall",
        judge: Judge::Calico("calicoctl get hostendpoints,kubecontrollersconfigurations -o yaml", host_endpoints),
    },
    Row {
        id: "FlannelPoolOverlap",
        severity: Severity::Warning,
        why: "Flannel gives each node a fixed part of its network, and Calico does not know which: two pods may get the same address while some nodes still run Flannel",
        fix: "use an IP pool with other addresses, or migrate all nodes in one maintenance window\nkubectl get ippools -o yaml  # shows the pools",
        judge: Judge::Machine(flannel_overlap),
    },
];

/// Reference: Calico's page on limitations of Windows, which names automatic host endpoints.
fn host_endpoints(cluster: &ClusterFacts, _: &Input) -> Finding {
    let created = cluster.auto_host_endpoints == Some(true);
    match (cluster.host_endpoints, cluster.untold("kubecontrollersconfigurations")) {
        (Some(count), _) if created => {
            Fail(format!("Calico creates a host endpoint for each node (autoCreate: Enabled); there are {count}"))
        }
        (None, _) if created => Fail("Calico creates a host endpoint for each node (autoCreate: Enabled)".into()),
        (None, _) => untold(cluster, "hostendpoints", "the host endpoints were not counted"),
        (Some(0), Some(why)) => Unknown(why.to_owned()),
        (Some(0), None) => Pass("none".into()),
        (Some(count), _) => Fail(format!("host endpoints in the cluster: {count}")),
    }
}

/// The config names the backend, so a pool with IP-in-IP is the user's own decision.
fn given_ipip(cluster: &ClusterFacts) -> Finding {
    match backend_of(cluster) {
        Err(Undecided::IpIp(reason)) => Warn(format!("{reason}, and the config names the backend")),
        _ => Pass("off".into()),
    }
}

fn backend_known(cluster: &ClusterFacts, input: &Input) -> Finding {
    match (input.network(), backend_of(cluster)) {
        (Some(network), _) => Pass(network.backend.name().into()),
        // Something else in the config is wrong.
        (None, _) if input.names_backend() => Pass("the config's".into()),
        (None, Ok((backend, by))) => Pass(format!("{} ({by})", backend.name())),
        (None, Err(Undecided::IpIp(_))) => Skip("the cluster has IP-in-IP".into()),
        (None, Err(Undecided::Unknown(_))) if cluster.untold(ETCD).is_some() => Unknown("etcd was not read".into()),
        (None, Err(Undecided::Unknown(why))) => Fail(why),
        (None, Err(Undecided::NoFacts)) => Unknown("the cluster was not asked".into()),
    }
}

/// Whether this node has, or would have, the backend vxlan.
fn uses_vxlan(cluster: &ClusterFacts, input: &Input) -> Option<bool> {
    match input.network() {
        Some(network) => Some(network.backend == Backend::Vxlan),
        // With a VNI that Windows does not support there are no settings, but there is a backend.
        None => Some(backend_of(cluster).ok()?.0 == Backend::Vxlan),
    }
}

/// Why Felix's settings of VXLAN do not count; none if they do.
fn without_vxlan(cluster: &ClusterFacts, input: &Input) -> Option<Finding> {
    match uses_vxlan(cluster, input) {
        None => Some(Unknown("no backend is decided".into())),
        Some(false) => Some(Skip("VXLAN is not used".into())),
        Some(true) => cluster.calico_unread().then(unserved),
    }
}

fn unserved() -> Finding {
    Unknown("the cluster serves no Calico resources".into())
}

fn named<'a>(pools: impl Iterator<Item = &'a PoolFacts>) -> String {
    joined(pools.map(|pool| &pool.name), ", ")
}

fn on_or_off(cluster: &ClusterFacts, set: Option<bool>, field: &str) -> Finding {
    match set {
        _ if cluster.calico_unread() => unserved(),
        Some(true) => Fail(format!("FelixConfiguration has {field}: true")),
        _ => Pass("off".into()),
    }
}

fn ip_pools(cluster: &ClusterFacts, input: &Input) -> Finding {
    match input.network() {
        None => return Unknown("no backend is decided".into()),
        Some(network) if network.backend == Backend::None || network.ipam != Ipam::CalicoIpam => {
            return Skip("Calico IPAM is not used".into());
        }
        Some(_) if cluster.calico_unread() => return unserved(),
        Some(_) => {}
    }
    match named(pools_for_windows(cluster)) {
        names if names.is_empty() => Fail("no enabled IPv4 pool selects this node".into()),
        names => Pass(names),
    }
}

fn one_pool_type(cluster: &ClusterFacts, input: &Input) -> Finding {
    let pools: Vec<&PoolFacts> = pools_for_windows(cluster).collect();
    if pools.is_empty() {
        return Unknown("no enabled IPv4 pool selects this node".into());
    }
    let (vxlan, plain): (Vec<&PoolFacts>, Vec<&PoolFacts>) =
        pools.into_iter().partition(|pool| pool.vxlan_mode != "Never");
    let bgp = input.network().is_some_and(|network| network.backend == Backend::WindowsBgp);
    match (vxlan.is_empty(), plain.is_empty()) {
        (false, false) => {
            Fail(format!("{} with VXLAN and {} without", named(vxlan.into_iter()), named(plain.into_iter())))
        }
        (false, true) if bgp => {
            Fail(format!("{} with VXLAN, and the backend windows-bgp supports none", named(vxlan.into_iter())))
        }
        (false, true) => Pass("VXLAN".into()),
        _ => Pass("no VXLAN".into()),
    }
}

/// Why the Linux nodes exchange no routes by BGP; none if they do, or if nothing says so.
fn bgp_is_off(cluster: &ClusterFacts) -> Option<String> {
    match (&cluster.operator, cluster.linux_backend.as_deref()) {
        (Some(operator), _) if operator.bgp.as_deref() == Some("Disabled") => {
            Some("the Installation has bgp: Disabled".into())
        }
        (None, Some(other)) if other != "bird" => {
            Some(format!("the ConfigMap calico-config has calico_backend: {other}"))
        }
        _ => None,
    }
}

fn vxlan_without_bgp(cluster: &ClusterFacts, input: &Input) -> Finding {
    match uses_vxlan(cluster, input) {
        None => return Unknown("no backend is decided".into()),
        Some(false) => return Skip("VXLAN is not used".into()),
        Some(true) => {}
    }
    if let Some(operator) = &cluster.operator {
        return match operator.bgp.as_deref() {
            Some("Enabled") => Fail("the Installation has bgp: Enabled".into()),
            _ => Pass("BGP is off".into()),
        };
    }
    match cluster.linux_backend.as_deref() {
        Some("bird") => Fail("the ConfigMap calico-config has calico_backend: bird".into()),
        Some(other) => Pass(format!("calico_backend: {other}")),
        None => untold(
            cluster,
            "calico-config",
            "neither the operator nor a ConfigMap calico-config shows whether BGP is on",
        ),
    }
}

/// For example `default: /26, 60 pods per node`.
fn sizes(cluster: &ClusterFacts) -> String {
    let one = |pool: &PoolFacts| format!("{}: /{}, {} pods per node", pool.name, pool.block_size, pool.pods_per_node());
    joined(pools_for_windows(cluster).map(one).take(5), "; ")
}

fn pod_capacity(cluster: &ClusterFacts, _: &Input) -> Finding {
    let Some(node) = &cluster.node else { return Skip("the Node is not registered".into()) };
    let Some(max_pods) = node.max_pods else { return Unknown("kubelet has not reported its pod limit".into()) };
    let Some(most) = pools_for_windows(cluster).map(PoolFacts::pods_per_node).max() else {
        return Unknown("no enabled IPv4 pool selects this node".into());
    };
    if max_pods <= most {
        return Pass(format!("kubelet's pod limit is {max_pods}, a block holds {most}"));
    }
    Fail(format!("kubelet's pod limit is {max_pods}, a block holds {most} ({})", sizes(cluster)))
}

fn pool_blocks(cluster: &ClusterFacts, _: &Input) -> Finding {
    let pools: Vec<&PoolFacts> = pools_for_windows(cluster).filter(|pool| !pool.manual).collect();
    if pools.iter().any(|pool| pool.has_our_block) {
        return Pass("this node has a block".into());
    }
    let mut free = 0;
    for pool in &pools {
        let (Some(all), Some(taken)) = (pool.blocks(), pool.blocks_taken) else {
            return untold(cluster, "blockaffinities", "the pools' blocks were not counted");
        };
        free += all.saturating_sub(taken);
    }
    match (pools.is_empty(), free) {
        (true, _) => Unknown("no enabled IPv4 pool selects this node".into()),
        (false, 0) => Fail(format!("no block is left in {}", named(pools.into_iter()))),
        (false, free) => Pass(format!("free blocks: {free}")),
    }
}

/// Whether pods of Calico and of Flannel may have the same address.
fn flannel_overlap(survey: &Survey, _: &NodeFacts, input: &Input) -> Finding {
    if let Some(skip) = input.other_plugin() {
        return skip;
    }
    let Some(network) = &survey.flannel_network else {
        return Skip("Flannel's configuration is not on this machine".into());
    };
    let Some(cluster) = input.cluster else { return Unknown("the cluster did not answer".into()) };
    if cluster.calico_unread() {
        return Unknown("Calico's pools were not read".into());
    }
    let overlaps = |pool: &Cidr| pool.contains(&network.network()) || network.contains(&pool.network());
    let shared = cluster.pools.iter().filter(|pool| !pool.disabled);
    let mut shared = shared.filter(|pool| pool.cidr.parse().is_ok_and(|pool: Cidr| overlaps(&pool)));
    match shared.next() {
        Some(pool) => Fail(format!(
            "Calico's IP pool {} ({}) has addresses of Flannel's network {network}: pods on nodes that still run \
             Flannel may have the same address",
            pool.name, pool.cidr
        )),
        None => Pass(format!("no IP pool has addresses of Flannel's network {network}")),
    }
}
