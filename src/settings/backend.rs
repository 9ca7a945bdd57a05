//! Which network backend the cluster runs, by Calico's own rules. A failed or missing answer never counts as one.

use super::selector::{Labels, selects};
use super::{Backend, Provider};
use crate::config::Origin;
use crate::facts::{ClusterFacts, OperatorFacts, PoolFacts};

/// Why the backend cannot be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// Neither config, provider nor cluster decides it.
    NoFacts,
    /// The cluster uses IP-in-IP, which Windows does not support.
    IpIp(String),
    /// The cluster does not decide it.
    Unknown(String),
}

/// The backend for a config that does not set one.
pub(super) fn detect(provider: Provider, cluster: Option<&ClusterFacts>) -> Result<(Backend, Origin), Undecided> {
    let brings = provider.brings();
    if brings.own_network.is_some() {
        return Ok((Backend::None, Origin::Detected(format!("provider {}", brings.name))));
    }
    let (backend, by) = detect_in(cluster.ok_or(Undecided::NoFacts)?)?;
    Ok((backend, Origin::Detected(by)))
}

/// The cluster's own backend for Windows nodes, and the source.
///
/// # Errors
/// [`Undecided`]; nothing is guessed.
pub fn detect_in(cluster: &ClusterFacts) -> Result<(Backend, String), Undecided> {
    if cluster.calico_unread() {
        return by_config_map(cluster);
    }
    let felix = &cluster.felix;
    if felix.ipip_enabled == Some(true) {
        return Err(Undecided::IpIp("FelixConfiguration `default` has ipipEnabled: true".into()));
    }
    // Before Felix' own setting of VXLAN, which may be off just because IPIP is on.
    if let Some(pool) = pools_for_windows(cluster).find(|pool| encapsulates(&pool.ipip_mode)) {
        return Err(Undecided::IpIp(format!("the IP pool `{}` has ipipMode: {}", pool.name, pool.ipip_mode)));
    }
    // Felix' own setting overrides the pools, also if it is false.
    match felix.vxlan_enabled {
        Some(true) => return Ok((Backend::Vxlan, "FelixConfiguration".into())),
        Some(false) => return Ok((Backend::WindowsBgp, "FelixConfiguration".into())),
        None => {}
    }
    let mut pools = pools_for_windows(cluster).peekable();
    let any = pools.peek().is_some();
    match pools.find(|pool| encapsulates(&pool.vxlan_mode)) {
        Some(pool) => Ok((Backend::Vxlan, format!("IP pool {}", pool.name))),
        None if any => Ok((Backend::WindowsBgp, "no IP pool has VXLAN".into())),
        None => by_operator(cluster.operator.as_ref()),
    }
}

/// The pools that pods on a Windows node may get addresses from: enabled, IPv4, and with a node selector that matches
/// the node, or may match it.
pub fn pools_for_windows(cluster: &ClusterFacts) -> impl Iterator<Item = &PoolFacts> {
    let node = cluster.node.as_ref();
    let selected = move |pool: &&PoolFacts| selects(&pool.node_selector, &Labels::of(node)) != Some(false);
    cluster.pools.iter().filter(|pool| pool.gives_to_pods() && !pool.is_ipv6()).filter(selected)
}

/// With Calico in etcd, the Kubernetes API does not serve its resources: use the Linux side's ConfigMap.
fn by_config_map(cluster: &ClusterFacts) -> Result<(Backend, String), Undecided> {
    let by = "the ConfigMap calico-config".to_owned();
    match cluster.linux_backend.as_deref() {
        Some("vxlan") => Ok((Backend::Vxlan, by)),
        Some("bird") => Ok((Backend::WindowsBgp, by)),
        Some("none") => Ok((Backend::None, by)),
        Some(other) => {
            Err(Undecided::Unknown(format!("{by} has calico_backend: {other}, which does not apply to Windows")))
        }
        None => Err(Undecided::Unknown(match cluster.untold("calico-config") {
            Some(why) => why.to_owned(),
            None => "the cluster serves no Calico resources, and has no ConfigMap calico-config".into(),
        })),
    }
}

/// Without pools: those that the operator is about to create.
fn by_operator(operator: Option<&OperatorFacts>) -> Result<(Backend, String), Undecided> {
    let by = "the operator's Installation".to_owned();
    let none = || Undecided::Unknown("the cluster has no enabled IPv4 pool that selects this node".into());
    let operator = operator.ok_or_else(none)?;
    if let Some(cni) = operator.cni.as_deref().filter(|cni| *cni != "Calico") {
        return Ok((Backend::None, format!("{by}, where {cni} owns the pods' network")));
    }
    let pools = || operator.pools.iter().filter(|pool| !pool.cidr.contains(':'));
    if let Some(pool) = pools().find(|pool| pool.encapsulation.starts_with("IPIP")) {
        let reason = format!("{by} has encapsulation: {} for {}", pool.encapsulation, pool.cidr);
        return Err(Undecided::IpIp(reason));
    }
    if pools().any(|pool| pool.encapsulation.starts_with("VXLAN")) {
        return Ok((Backend::Vxlan, by));
    }
    match operator.bgp.as_deref() {
        Some("Enabled") if pools().next().is_some() => Ok((Backend::WindowsBgp, by)),
        _ => Err(none()),
    }
}

pub(super) fn encapsulates(mode: &str) -> bool {
    matches!(mode, "Always" | "CrossSubnet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{FelixFacts, OperatorPool};

    fn pool(name: &str, vxlan: &str, ipip: &str) -> PoolFacts {
        PoolFacts {
            name: name.into(),
            cidr: "10.1.0.0/16".into(),
            vxlan_mode: vxlan.into(),
            ipip_mode: ipip.into(),
            node_selector: "all()".into(),
            block_size: 26,
            ..PoolFacts::default()
        }
    }

    fn cluster(pools: Vec<PoolFacts>) -> ClusterFacts {
        ClusterFacts { pools, ..ClusterFacts::default() }
    }

    fn unknown(cluster: &ClusterFacts) -> String {
        match detect_in(cluster) {
            Err(Undecided::Unknown(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn b9_ipip_in_a_pool_counts_even_if_felix_disables_vxlan() {
        let felix = FelixFacts { vxlan_enabled: Some(false), ..FelixFacts::default() };
        let cluster = ClusterFacts { felix, ..cluster(vec![pool("old", "Never", "CrossSubnet")]) };
        assert_eq!(detect_in(&cluster), Err(Undecided::IpIp("the IP pool `old` has ipipMode: CrossSubnet".into())));
    }

    #[test]
    fn b8_a_cluster_that_does_not_say_is_never_bgp() {
        assert_eq!(unknown(&cluster(Vec::new())), "the cluster has no enabled IPv4 pool that selects this node");
        let etcd = ClusterFacts { calico_unserved: true, ..cluster(Vec::new()) };
        assert!(unknown(&etcd).contains("serves no Calico resources"));
        let word = ClusterFacts { linux_backend: Some("brid".into()), ..etcd.clone() };
        assert!(unknown(&word).contains("calico_backend: brid"));
        let unanswered = [("calico-config".to_owned(), "user joe may not get configmaps".to_owned())].into();
        assert_eq!(unknown(&ClusterFacts { unanswered, ..etcd.clone() }), "user joe may not get configmaps");
        for (word, backend) in [("vxlan", Backend::Vxlan), ("bird", Backend::WindowsBgp), ("none", Backend::None)] {
            let told = ClusterFacts { linux_backend: Some(word.into()), ..etcd.clone() };
            assert_eq!(detect_in(&told), Ok((backend, "the ConfigMap calico-config".into())));
        }
    }

    #[test]
    fn only_pools_for_this_node_count() {
        let linux =
            PoolFacts { node_selector: "kubernetes.io/os == 'linux'".into(), ..pool("linux", "Never", "Always") };
        let balancer = PoolFacts { allowed_uses: vec!["LoadBalancer".into()], ..pool("services", "Never", "Always") };
        let ours = pool("ours", "Always", "Never");
        let cluster = cluster(vec![linux, balancer, ours]);
        assert_eq!(detect_in(&cluster), Ok((Backend::Vxlan, "IP pool ours".into())));
    }

    #[test]
    fn the_operators_installation_decides_if_there_is_no_pool_yet() {
        let with = |encapsulation: &str, bgp: &str, cni: &str| {
            let pools = vec![OperatorPool { cidr: "10.1.0.0/16".into(), encapsulation: encapsulation.into() }];
            let operator =
                OperatorFacts { bgp: Some(bgp.into()), cni: Some(cni.into()), pools, ..OperatorFacts::default() };
            detect_in(&ClusterFacts { operator: Some(operator), ..cluster(Vec::new()) })
        };
        assert_eq!(with("VXLANCrossSubnet", "Disabled", "Calico").unwrap().0, Backend::Vxlan);
        assert_eq!(with("None", "Enabled", "Calico").unwrap().0, Backend::WindowsBgp);
        assert_eq!(with("None", "Enabled", "AmazonVPC").unwrap().0, Backend::None);
        assert!(matches!(with("IPIP", "Enabled", "Calico"), Err(Undecided::IpIp(_))));
        assert!(matches!(with("None", "Disabled", "Calico"), Err(Undecided::Unknown(_))));
    }
}
