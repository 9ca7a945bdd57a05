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
    story("IpPools", |scene| scene.cluster.pools.clear(), unserved),
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
    let report = report(with_etcd);
    assert_eq!(check(&report, "CalicoResources").status, CheckStatus::Skip);
    // And what was not read is neither in order nor a fault.
    for row in catalogue() {
        let Judge::Calico(command, _) = row.judge else { continue };
        let found = check(&report, row.id);
        match found.status {
            CheckStatus::Unknown => assert!(found.detail.ends_with(command), "{}: {}", row.id, found.detail),
            status => assert_eq!((row.id, status), ("BgpPeers", CheckStatus::Skip)),
        }
    }
}

/// 2^(32−n) − 4 pods on a node, since a Windows node has one block.
#[test]
fn a_block_gives_a_node_so_many_pods_and_kubelet_is_held_against_it() {
    let judged = |block_size: u8, max_pods: u64| {
        let mut scene = scene();
        scene.cluster.pools[0].block_size = block_size;
        scene.cluster.node.as_mut().unwrap().max_pods = Some(max_pods);
        let input = Input { settings: scene.settings.as_ref(), cluster: Some(&scene.cluster), ..Input::default() };
        let report = run(Scope::Everything, &input, &[]);
        let [size, capacity] = ["BlockSize", "PodCapacity"].map(|id| check(&report, id));
        format!("/{block_size}: {:?} | {:?} {}", size.status, capacity.status, capacity.detail)
    };
    let lines = [
        judged(24, 252),
        judged(25, 125),
        judged(26, 60),
        judged(26, 61),
        judged(28, 12),
        judged(29, 4),
        judged(30, 1),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    /24: Ok | Ok 252 pods, kubelet takes 252
    /25: Ok | Warn kubelet takes 125 pods, a block holds 124 (default: /25, 124 pods a node)
    /26: Ok | Ok 60 pods, kubelet takes 60
    /26: Ok | Warn kubelet takes 61 pods, a block holds 60 (default: /26, 60 pods a node)
    /28: Ok | Ok 12 pods, kubelet takes 12
    /29: Ok | Ok 4 pods, kubelet takes 4
    /30: Fail | Warn kubelet takes 1 pods, a block holds 0 (default: /30, 0 pods a node)
    ");
}
