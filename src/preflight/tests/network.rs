//! What Calico does in the cluster, and its policies.

use super::*;

pub(super) const STORIES: &[Story] = &[
    story(
        "CalicoResources",
        |scene| scene.cluster.calico_unserved = true,
        |scene| scene.unreached = Some("the API server refuses the connection"),
    ),
    story("Ipip", |scene| scene.cluster.pools[0].ipip_mode = "Always".into(), undecided),
    // Without an answer from the cluster this check fails; nothing is guessed.
    story("Backend", undecided, |scene| scene.unreached = Some("the API server refuses the connection")),
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
        "PoolEncapsulation",
        |scene| scene.cluster.pools.push(PoolFacts { vxlan_mode: "Never".into(), ..pool("plain") }),
        |scene| scene.cluster.pools.clear(),
    ),
    story(
        "BgpDisabled",
        |scene| scene.cluster.operator.as_mut().unwrap().bgp = Some("Enabled".into()),
        |scene| {
            scene.cluster.operator = None;
            refuse(scene, "calico-config");
        },
    ),
    story("CrossSubnet", |scene| scene.cluster.pools[0].vxlan_mode = "CrossSubnet".into(), unserved),
    story("VxlanMtu", |scene| scene.cluster.felix.vxlan_mtu = Some(1400), unserved),
    story("VxlanPort", |scene| scene.cluster.felix.vxlan_port = Some(8472), undecided),
    story("VxlanVni", |scene| scene.cluster.felix.vxlan_vni = Some(4095), undecided),
    story("VniMatchesFelix", |scene| scene.cluster.felix.vxlan_vni = Some(5000), undecided),
    story("StrictAffinity", |scene| scene.cluster.strict_affinity = Some(false), unserved),
    story("BlockSize", |scene| scene.cluster.pools[0].block_size = 30, |scene| scene.cluster.pools.clear()),
    story(
        "PodCapacity",
        |scene| scene.cluster.node.as_mut().unwrap().max_pods = Some(110),
        |scene| scene.cluster.node.as_mut().unwrap().max_pods = None,
    ),
    story(
        "PoolBlocks",
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
        "ApplicationLayerPolicy",
        |scene| scene.cluster.policies.as_mut().unwrap().application_layer = 1,
        |scene| {
            scene.cluster.policies = None;
            refuse(scene, "networkpolicies");
        },
    ),
    story(
        "PoliciesSupported",
        |scene| scene.cluster.policies.as_mut().unwrap().skipped = 1,
        |scene| {
            scene.cluster.policies = None;
            refuse(scene, "networkpolicies");
        },
    ),
    story(
        "PolicyCost",
        |scene| scene.cluster.policies.as_mut().unwrap().costly = 3,
        |scene| {
            scene.cluster.policies = None;
            refuse(scene, "networkpolicies");
        },
    ),
    Story {
        good: |scene| survey_of(scene).flannel_network = Some("10.244.0.0/16".parse().unwrap()),
        ..story(
            "FlannelPoolOverlap",
            |scene| {
                let pool = scene.cluster.pools[0].cidr.parse().unwrap();
                survey_of(scene).flannel_network = Some(pool);
            },
            |scene| {
                survey_of(scene).flannel_network = Some("10.244.0.0/16".parse().unwrap());
                scene.unreached = Some("the API server refuses the connection");
            },
        )
    },
];

#[test]
fn with_etcd_calicos_resources_are_not_expected_in_the_api() {
    let report = report(with_etcd);
    assert_eq!(check(&report, "CalicoResources").status, CheckStatus::Skip);
    // And what was not read neither passes nor fails.
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
fn kubelets_pod_limit_is_compared_with_what_a_block_holds() {
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
    /24: Ok | Ok kubelet's pod limit is 252, a block holds 252
    /25: Ok | Warn kubelet's pod limit is 125, a block holds 124 (default: /25, 124 pods per node)
    /26: Ok | Ok kubelet's pod limit is 60, a block holds 60
    /26: Ok | Warn kubelet's pod limit is 61, a block holds 60 (default: /26, 60 pods per node)
    /28: Ok | Ok kubelet's pod limit is 12, a block holds 12
    /29: Ok | Ok kubelet's pod limit is 4, a block holds 4
    /30: Fail | Warn kubelet's pod limit is 1, a block holds 0 (default: /30, 0 pods per node)
    ");
}

#[test]
fn bgp_does_not_use_vxlan_pools() {
    let found = check(&report(|scene| with_bgp(scene, "v3.29.5")), "PoolEncapsulation");
    let why = "default with VXLAN, and the backend windows-bgp supports none";
    assert_eq!((found.status, found.detail.as_str()), (CheckStatus::Fail, why));
}

#[test]
fn bgp_needs_linux_nodes_that_have_it_too() {
    let judged = |operator: Option<&str>, config_map: Option<&str>| {
        let mut scene = scene();
        with_bgp(&mut scene, "v3.29.5");
        scene.cluster.felix.vxlan_enabled = None;
        scene.cluster.pools[0].vxlan_mode = "Never".into();
        let of = |bgp: &str| OperatorFacts { bgp: Some(bgp.into()), ..OperatorFacts::default() };
        scene.cluster.operator = operator.map(of);
        scene.cluster.linux_backend = config_map.map(str::to_owned);
        let settings = scene.settings.as_ref().unwrap();
        let side = side(settings, true);
        let input = Input { side: Some(&side), cluster: Some(&scene.cluster), ..Input::default() };
        let found = check(&run(Scope::Everything, &input, &[]), "BackendMatchesCluster");
        format!("{:?} {}", found.status, found.detail)
    };
    insta::assert_snapshot!(judged(None, Some("vxlan")), @"Warn the backend is windows-bgp, and the Linux nodes have no BGP: the ConfigMap calico-config has calico_backend: vxlan");
    insta::assert_snapshot!(judged(Some("Disabled"), None), @"Warn the backend is windows-bgp, and the Linux nodes have no BGP: the Installation has bgp: Disabled");
    for (operator, config_map) in [(Some("Enabled"), None), (None, Some("bird")), (None, None)] {
        assert_eq!(judged(operator, config_map), "Ok windows-bgp");
    }
}

#[test]
fn host_endpoints_that_calico_creates_are_found_before_there_is_one() {
    let told = |edit: Edit| {
        let found = check(&report(edit), "HostEndpoints");
        format!("{:?} {}", found.status, found.detail)
    };
    assert_eq!(told(|_| ()), "Ok none");
    assert_eq!(told(|scene| scene.cluster.auto_host_endpoints = Some(false)), "Ok none");
    assert_eq!(
        told(|scene| scene.cluster.auto_host_endpoints = Some(true)),
        "Warn Calico creates a host endpoint for each node (autoCreate: Enabled); there are 0"
    );
    assert_eq!(
        told(|scene| refuse(scene, "kubecontrollersconfigurations")),
        "Unknown user joe may not list kubecontrollersconfigurations"
    );
}
