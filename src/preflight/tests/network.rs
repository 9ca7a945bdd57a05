//! What Calico does in the cluster, and its policies.

use super::*;

pub(super) const STORIES: &[Story] = &[
    story(
        "CalicoResources",
        |scene| scene.cluster.calico_unserved = true,
        |scene| scene.unreached = Some("the API server refuses the connection"),
    ),
    story("IpipEnabled", |scene| scene.cluster.pools[0].ipip_mode = "Always".into(), undecided),
    // What the cluster does not tell is a failure here, and never a guess.
    story("BackendKnown", undecided, |scene| scene.unreached = Some("the API server refuses the connection")),
    story(
        "BackendMatchesCluster",
        |scene| scene.settings.as_mut().unwrap().network.backend = Backend::WindowsBgp,
        |scene| {
            scene.cluster.pools.clear();
            scene.cluster.felix = FelixFacts::default();
            scene.cluster.operator = None;
        },
    ),
    story(
        "OnePoolType",
        |scene| scene.cluster.pools.push(PoolFacts { vxlan_mode: "Never".into(), ..pool("plain") }),
        |scene| scene.cluster.pools.clear(),
    ),
    story(
        "VxlanWithBgp",
        |scene| scene.cluster.operator.as_mut().unwrap().bgp = Some("Enabled".into()),
        |scene| {
            scene.cluster.operator = None;
            refuse(scene, "calico-config");
        },
    ),
    story("CrossSubnet", |scene| scene.cluster.pools[0].vxlan_mode = "CrossSubnet".into(), unserved),
    story("VxlanMtu", |scene| scene.cluster.felix.vxlan_mtu = Some(1400), unserved),
    story("VxlanPort", |scene| scene.cluster.felix.vxlan_port = Some(8472), undecided),
    story("VniOutOfRange", |scene| scene.cluster.felix.vxlan_vni = Some(4095), undecided),
    story("VniDiffersFromFelix", |scene| scene.cluster.felix.vxlan_vni = Some(5000), undecided),
    story("StrictAffinity", |scene| scene.cluster.strict_affinity = Some(false), unserved),
    story("BlockSize", |scene| scene.cluster.pools[0].block_size = 30, |scene| scene.cluster.pools.clear()),
    story(
        "PodCapacity",
        |scene| scene.cluster.node.as_mut().unwrap().max_pods = Some(110),
        |scene| scene.cluster.node.as_mut().unwrap().max_pods = None,
    ),
    story(
        "PoolsExhausted",
        |scene| scene.cluster.pools[0].blocks_taken = Some(1024),
        |scene| {
            scene.cluster.pools[0].blocks_taken = None;
            refuse(scene, "blockaffinities");
        },
    ),
    story("Ipv6", |scene| scene.cluster.kubernetes_service_ips.push("fd00::1".into()), unserved),
    story("WireGuard", |scene| scene.cluster.felix.wireguard_enabled = Some(true), unserved),
    story("Ebpf", |scene| scene.cluster.felix.bpf_enabled = Some(true), unserved),
    story(
        "HostEndpoints",
        |scene| scene.cluster.host_endpoints = Some(2),
        |scene| {
            scene.cluster.host_endpoints = None;
            refuse(scene, "hostendpoints");
        },
    ),
    story(
        "PoliciesSkipped",
        |scene| scene.cluster.policies.as_mut().unwrap().skipped = 1,
        |scene| {
            scene.cluster.policies = None;
            refuse(scene, "networkpolicies");
        },
    ),
    story(
        "PoliciesExpensive",
        |scene| scene.cluster.policies.as_mut().unwrap().costly = 3,
        |scene| {
            scene.cluster.policies = None;
            refuse(scene, "networkpolicies");
        },
    ),
];

#[test]
fn with_etcd_nobody_misses_calicos_resources_in_the_api() {
    let with_etcd: Edit = |scene| {
        scene.cluster.calico_unserved = true;
        scene.settings.as_mut().unwrap().datastore =
            crate::settings::Datastore::Etcdv3 { endpoints: Vec::new(), tls: None };
    };
    assert_eq!(check(&report(with_etcd), "CalicoResources").status, CheckStatus::Skip);
}
