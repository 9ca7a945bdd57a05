//! Every check has a story: what passes, what fails, and what cannot be told.

use std::collections::BTreeSet;

use super::*;
use crate::calico::samples;
use crate::facts::{
    Adapter, ApiGroup, BgpFacts, ClusterNode, CniConfig, Features, FelixFacts, HnsVersion, HostProcess, NodeCounts,
    OperatorFacts, Os, PolicyFacts, PoolFacts, Product, Right, Runtime, RuntimeKind, ServiceFacts, Survey, Tls,
    TyphaFacts,
};
use crate::settings::Backend;
use crate::values::WinPath;

/// A node that joins a cluster, and nothing is wrong with either.
struct Scene {
    node: NodeFacts,
    cluster: ClusterFacts,
    settings: Option<Settings>,
    side: Option<ClusterSide>,
    /// Nobody looked at the node.
    elsewhere: bool,
}

type Edit = fn(&mut Scene);

fn scene() -> Scene {
    let node = NodeFacts {
        host_name: "win-a1".into(),
        os: Os {
            build: 20348,
            ubr: 2762,
            product: Product::Server,
            installation_type: "Server Core".into(),
            arch: "amd64".into(),
            display_version: Some("21H2".into()),
        },
        elevated: true,
        boot_id: "boot-1".into(),
        runtime: Some(Runtime {
            kind: RuntimeKind::Containerd,
            version: "1.7.27".into(),
            cni_bin_dir: WinPath::known(r"C:\Program Files\containerd\cni\bin"),
            cni_conf_dir: WinPath::known(r"C:\Program Files\containerd\cni\conf"),
        }),
        adapters: vec![Adapter {
            name: "Ethernet".into(),
            mac: "00-15-5D-01-02-03".into(),
            addresses: vec!["10.0.0.21/24".parse().unwrap()],
            gateway: None,
            dhcp: false,
            team: false,
        }],
        hns: Some(HnsVersion { major: 13, minor: 3 }),
        features: Some(Features { containers: true, remote_access: true }),
        pending_reboot: Vec::new(),
        tls: Some(Tls::default()),
        cloud: None,
        survey: Some(survey()),
    };
    let mut settings = samples::settings("v3.32.1");
    settings.node_name = "win-a1".parse().unwrap();
    settings.kubernetes.service_cidrs = vec!["10.96.0.0/12".parse().unwrap()];
    settings.kubernetes.dns_servers = vec!["10.96.0.10".parse().unwrap()];
    let cluster = ClusterFacts {
        server: "https://10.0.0.10:6443".into(),
        kubernetes_version: "v1.33.2".into(),
        calico_namespace: "calico-system".into(),
        api_group: ApiGroup::V1,
        calico_version: Some("v3.32.1".into()),
        felix: FelixFacts { vxlan_enabled: Some(true), vxlan_vni: Some(4096), ..FelixFacts::default() },
        pools: vec![pool("default")],
        strict_affinity: Some(true),
        node: Some(ClusterNode {
            name: "win-a1".into(),
            ready: true,
            schedulable: true,
            internal_ips: vec!["10.0.0.21".into()],
            kubelet_version: "v1.33.2".into(),
            os: "windows".into(),
            labels: [("kubernetes.io/os".to_owned(), "windows".to_owned())].into(),
            max_pods: Some(60),
        }),
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap()],
        kubernetes_service_ips: vec!["10.96.0.1".into()],
        dns_service_ip: Some("10.96.0.10".parse().unwrap()),
        nodes: Some(NodeCounts { all: 4, linux: 3, linux_workers: 2, windows: 1 }),
        operator: Some(OperatorFacts { bgp: Some("Disabled".into()), ..OperatorFacts::default() }),
        host_process: Some(HostProcess::default()),
        bgp: Some(BgpFacts::default()),
        host_endpoints: Some(0),
        policies: Some(PolicyFacts { all: 12, ..PolicyFacts::default() }),
        clock_skew: Some(0),
        missing_rights: Some(Vec::new()),
        linux_datastore: Some("kubernetes".into()),
        ..ClusterFacts::default()
    };
    Scene { node, cluster, settings: Some(settings), side: None, elsewhere: false }
}

fn survey() -> Survey {
    let command = ["kube-proxy.exe", "--enable-dsr=true", "--source-vip", "192.168.1.2"];
    let service = |command: &[&str], depends_on: &[&str]| ServiceFacts {
        running: true,
        command: command.iter().map(ToString::to_string).collect(),
        depends_on: depends_on.iter().map(ToString::to_string).collect(),
    };
    let services = [
        ("containerd", service(&["containerd.exe"], &[])),
        ("kubelet", service(&["kubelet.exe"], &["CalicoNode"])),
        ("kube-proxy", service(&command, &[])),
        ("caliconode", service(&["calicoctl-win.exe"], &[])),
    ];
    Survey {
        services: services.map(|(name, service)| (name.to_owned(), service)).into(),
        networks: [("nat".to_owned(), "NAT".to_owned())].into(),
        cni_configs: vec![CniConfig { file: "10-calico.conf".into(), plugin: Some("calico".into()) }],
        installed: true,
        calico_folder: true,
        disk_free: Some(20 << 30),
        vxlan_port_free: Some(true),
    }
}

fn survey_of(scene: &mut Scene) -> &mut Survey {
    scene.node.survey.as_mut().unwrap()
}

fn pool(name: &str) -> PoolFacts {
    PoolFacts {
        name: name.into(),
        cidr: "192.168.0.0/16".into(),
        vxlan_mode: "Always".into(),
        ipip_mode: "Never".into(),
        node_selector: "all()".into(),
        block_size: 26,
        blocks_taken: Some(3),
        ..PoolFacts::default()
    }
}

fn report(edit: Edit) -> PreflightReport {
    let mut scene = scene();
    edit(&mut scene);
    let input = Input {
        settings: scene.settings.as_ref(),
        side: scene.side.as_ref(),
        node: (!scene.elsewhere).then_some(&scene.node),
        cluster: Some(&scene.cluster),
        cluster_failure: None,
    };
    run(Scope::Everything, &input, &[])
}

fn check(report: &PreflightReport, id: &str) -> Check {
    report.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("there is no check {id}")).clone()
}

/// Settings of the release and backend for a check that others skip.
fn with_bgp(scene: &mut Scene, version: &str) {
    let settings = scene.settings.as_mut().unwrap();
    settings.network.backend = Backend::WindowsBgp;
    settings.calico.version = version.parse().unwrap();
}

fn refuse(scene: &mut Scene, question: &str) {
    scene.cluster.unanswered.insert(question.into(), format!("user joe may not list {question}"));
}

fn undecided(scene: &mut Scene) {
    scene.settings = None;
    scene.cluster.pools.clear();
    scene.cluster.felix = FelixFacts::default();
    scene.cluster.operator = None;
}

/// What a story ends with besides passing.
#[derive(Clone, Copy)]
struct Story {
    id: &'static str,
    /// Fails, or warns where that is the severity.
    bad: Edit,
    /// Cannot be told: the question was refused or nobody measured it. A check that has all it needs
    /// in hand is skipped where it does not apply.
    untold: Edit,
    /// What else the scene needs for the check to apply and pass.
    good: Edit,
}

const fn story(id: &'static str, bad: Edit, untold: Edit) -> Story {
    Story { id, bad, untold, good: |_| () }
}

const STORIES: &[Story] = &[
    story("Is64Bit", |scene| scene.node.os.arch = "arm64".into(), |scene| scene.node.os.arch.clear()),
    story("WindowsBuild", |scene| scene.node.os.product = Product::Client, |scene| scene.node.os.build = 0),
    story("HnsNotAvailable", |scene| scene.node.hns = None, |scene| scene.elsewhere = true),
    story(
        "ContainerRuntime",
        |scene| scene.node.runtime = None,
        |scene| {
            scene.node.runtime = None;
            scene.settings.as_mut().unwrap().network.backend = Backend::None;
        },
    ),
    story(
        "AdapterHasValidIP",
        |scene| scene.node.adapters[0].addresses = vec!["169.254.7.7/16".parse().unwrap()],
        |scene| scene.elsewhere = true,
    ),
    Story {
        good: |scene| scene.settings.as_mut().unwrap().network.adapter = Some("ethernet".into()),
        ..story(
            "VxlanAdapter",
            |scene| scene.settings.as_mut().unwrap().network.adapter = Some("Ethernet 7".into()),
            |scene| scene.settings.as_mut().unwrap().network.adapter = None,
        )
    },
    story("Elevated", |scene| scene.node.elevated = false, |scene| scene.elsewhere = true),
    story("KnownBadBuild", |scene| scene.node.os.ubr = 2582, |scene| scene.node.os.build = 0),
    story(
        "KubernetesWindows",
        |scene| scene.cluster.kubernetes_version = "v1.21.0".into(),
        |scene| {
            scene.cluster.kubernetes_version = "v1.10.0".into();
        },
    ),
    story("HnsVxlan", |scene| scene.node.hns = Some(HnsVersion { major: 9, minor: 1 }), |scene| scene.node.hns = None),
    story(
        "ServiceSourceAddress",
        |scene| scene.node.hns = Some(HnsVersion { major: 10, minor: 1 }),
        |scene| {
            scene.node.hns = None;
            scene.node.os.build = 0;
        },
    ),
    story(
        "Tls12",
        |scene| scene.node.tls = Some(Tls { client_enabled: Some(false), ..Tls::default() }),
        |scene| scene.node.tls = None,
    ),
    story(
        "RuntimeSupported",
        |scene| scene.node.runtime.as_mut().unwrap().kind = RuntimeKind::Docker,
        |scene| scene.node.runtime.as_mut().unwrap().version.clear(),
    ),
    story(
        "CniFolders",
        |scene| scene.node.runtime.as_mut().unwrap().cni_conf_dir = WinPath::known(r"C:\etc\cni\net.d"),
        |scene| scene.node.runtime = None,
    ),
    story("StaticAddress", |scene| scene.node.os.build = 19042, |scene| scene.node.adapters.clear()),
    story("AdapterTeamed", |scene| scene.node.adapters[0].team = true, |scene| scene.node.adapters.clear()),
    story(
        "RuntimeRunning",
        |scene| survey_of(scene).services.get_mut("containerd").unwrap().running = false,
        |scene| {
            scene.node.survey = None;
        },
    ),
    story(
        "OtherCni",
        |scene| {
            let theirs = CniConfig { file: "05-flannel.conflist".into(), plugin: Some("flannel".into()) };
            survey_of(scene).cni_configs.push(theirs);
        },
        |scene| scene.node.survey = None,
    ),
    story(
        "Flannel",
        |scene| {
            survey_of(scene).networks.insert("vxlan0".into(), "Overlay".into());
        },
        |scene| scene.node.survey = None,
    ),
    Story {
        good: |scene| with_bgp(scene, "v3.29.5"),
        ..story(
            "RoutingFeature",
            |scene| {
                with_bgp(scene, "v3.29.5");
                scene.node.features.as_mut().unwrap().remote_access = false;
            },
            |scene| {
                with_bgp(scene, "v3.29.5");
                scene.node.features = None;
            },
        )
    },
    story("UdpPort4789", |scene| survey_of(scene).vxlan_port_free = Some(false), |scene| scene.node.survey = None),
    story(
        "KubeletAfterCalico",
        |scene| survey_of(scene).services.get_mut("kubelet").unwrap().depends_on.clear(),
        |scene| scene.node.survey = None,
    ),
    story(
        "KubeProxyFlags",
        |scene| {
            let proxy = survey_of(scene).services.get_mut("kube-proxy").unwrap();
            proxy.command.push("--feature-gates=WinOverlay=true,WinDSR=true".into());
        },
        |scene| scene.node.survey = None,
    ),
    story(
        "Leftovers",
        |scene| {
            survey_of(scene).services.insert("calicoupgrade".into(), ServiceFacts::default());
        },
        |scene| scene.node.survey = None,
    ),
    story("DiskSpace", |scene| survey_of(scene).disk_free = Some(300 << 20), |scene| scene.node.survey = None),
    story(
        "PendingReboot",
        |scene| scene.node.pending_reboot.push("Component Based Servicing".into()),
        |scene| {
            scene.node.features = None;
        },
    ),
    story("ClockSkew", |scene| scene.cluster.clock_skew = Some(-400), |scene| scene.cluster.clock_skew = None),
    story(
        "ClusterRights",
        |scene| {
            scene.cluster.missing_rights =
                Some(vec![Right { verb: "list".into(), resource: "ippools".into(), needed: true, ..Right::default() }]);
        },
        |scene| {
            scene.cluster.missing_rights = None;
            refuse(scene, "selfsubjectaccessreviews");
        },
    ),
    story("NodeRegistered", |scene| scene.cluster.node = None, |scene| scene.settings = None),
    story(
        "NodeAddressMatches",
        |scene| scene.cluster.node.as_mut().unwrap().internal_ips = vec!["10.0.0.99".into()],
        |scene| scene.cluster.node.as_mut().unwrap().internal_ips.clear(),
    ),
    story(
        "KubeletSkew",
        |scene| scene.cluster.node.as_mut().unwrap().kubelet_version = "v1.34.0".into(),
        |scene| scene.cluster.node.as_mut().unwrap().kubelet_version.clear(),
    ),
    story(
        "DatastoreMatches",
        |scene| scene.cluster.linux_datastore = Some("etcdv3".into()),
        |scene| {
            scene.cluster.linux_datastore = None;
            refuse(scene, "daemonsets");
        },
    ),
    story(
        "ServiceCidr",
        |scene| scene.settings.as_mut().unwrap().kubernetes.service_cidrs = vec!["10.80.0.0/16".parse().unwrap()],
        |scene| {
            scene.cluster.service_cidrs.clear();
            scene.cluster.kubernetes_service_ips.clear();
        },
    ),
    story(
        "DnsServer",
        |scene| scene.cluster.dns_service_ip = Some("10.96.0.11".parse().unwrap()),
        |scene| scene.cluster.dns_service_ip = None,
    ),
    story(
        "LinuxWorker",
        |scene| scene.cluster.nodes.as_mut().unwrap().linux = 0,
        |scene| {
            scene.cluster.nodes = None;
            refuse(scene, "nodes");
        },
    ),
    story(
        "CalicoResources",
        |scene| scene.cluster.calico_unserved = true,
        |scene| {
            scene.cluster.calico_unserved = true;
            scene.settings.as_mut().unwrap().datastore =
                crate::settings::Datastore::Etcdv3 { endpoints: Vec::new(), tls: None };
        },
    ),
    story("IpipEnabled", |scene| scene.cluster.pools[0].ipip_mode = "Always".into(), undecided),
    story("BackendKnown", undecided, |scene| {
        scene.settings = None;
        scene.cluster.felix.ipip_enabled = Some(true);
    }),
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
        "HostProcessCalico",
        |scene| scene.cluster.operator.as_mut().unwrap().windows_dataplane = Some("HNS".into()),
        |scene| {
            scene.cluster.host_process = None;
            refuse(scene, "daemonsets");
        },
    ),
    story(
        "CalicoTooOld",
        |scene| scene.cluster.calico_version = Some("v3.11.3".into()),
        |scene| scene.cluster.calico_version = Some("master".into()),
    ),
    story(
        "CalicoVersionSkew",
        |scene| scene.cluster.calico_version = Some("v3.29.0".into()),
        |scene| {
            scene.cluster.calico_version = None;
        },
    ),
    story(
        "ApiGroupSupported",
        |scene| {
            scene.cluster.api_group = ApiGroup::V3;
            scene.settings.as_mut().unwrap().calico.version = "v3.31.0".parse().unwrap();
        },
        |scene| {
            scene.cluster.api_group = ApiGroup::V3;
            scene.settings = None;
        },
    ),
    Story {
        good: |scene| with_bgp(scene, "v3.29.5"),
        ..story("WindowsBgpRelease", |scene| with_bgp(scene, "v3.32.1"), undecided)
    },
    Story {
        good: |scene| with_bgp(scene, "v3.29.5"),
        ..story(
            "BgpPeers",
            |scene| {
                with_bgp(scene, "v3.29.5");
                scene.cluster.bgp.as_mut().unwrap().unsupported = vec!["rack-1: password".into()];
            },
            |scene| {
                with_bgp(scene, "v3.29.5");
                scene.cluster.bgp = None;
                refuse(scene, "bgppeers");
            },
        )
    },
    story(
        "Typha",
        |scene| scene.cluster.typha = Some(TyphaFacts { wanted: 3, ready: 1 }),
        |scene| {
            refuse(scene, "deployments");
        },
    ),
];

fn unserved(scene: &mut Scene) {
    scene.cluster.calico_unserved = true;
}

#[test]
fn every_check_passes_fails_and_says_when_it_cannot_tell() {
    for story in STORIES {
        let row = catalogue().find(|row| row.id == story.id).unwrap_or_else(|| panic!("{} is no check", story.id));
        let good = check(&report(story.good), story.id);
        assert_eq!(good.status, CheckStatus::Ok, "{good:?}");
        let bad = check(&report(story.bad), story.id);
        let wanted = if row.severity == Severity::Warning { CheckStatus::Warn } else { CheckStatus::Fail };
        assert_eq!(bad.status, wanted, "{bad:?}");
        let untold = check(&report(story.untold), story.id);
        assert!(matches!(untold.status, CheckStatus::Unknown | CheckStatus::Skip), "{untold:?}");
    }
}

#[test]
fn every_check_has_a_story() {
    let told: BTreeSet<&str> = STORIES.iter().map(|story| story.id).chain([cluster::REACHABLE]).collect();
    let all: BTreeSet<&str> = catalogue().map(|row| row.id).collect();
    assert_eq!(told, all);
    assert_eq!(all.len(), catalogue().count(), "an id stands twice");
}

#[test]
fn a_cluster_that_does_not_answer_fails_and_leaves_the_rest_open() {
    let scene = scene();
    let input = Input { node: Some(&scene.node), cluster_failure: Some("refused"), ..Input::default() };
    let report = run(Scope::Everything, &input, &["ClusterReachable".into()]);
    let reachable = check(&report, "ClusterReachable");
    assert_eq!((reachable.status, reachable.detail.as_str()), (CheckStatus::Fail, "refused"));
    assert!(!reachable.ignored, "nothing can be installed without");
    assert_eq!(check(&report, "StrictAffinity").status, CheckStatus::Unknown);
    assert_eq!(check(&report, "WindowsBuild").status, CheckStatus::Ok);
    let error = verdict(&report).unwrap_err();
    assert_eq!(crate::report::document::exit_of(&error), Exit::ClusterUnreachable);

    let nobody_asked = Input { node: Some(&scene.node), ..Input::default() };
    let report = run(Scope::Everything, &nobody_asked, &[]);
    assert_eq!(check(&report, "ClusterReachable").status, CheckStatus::Skip);
    let without_node = run(Scope::Cluster, &Input::default(), &[]);
    assert!(!without_node.checks.iter().any(|check| check.id == "WindowsBuild"));
}

#[test]
fn all_failures_are_told_at_once_and_some_can_be_ignored() {
    let bad: Edit = |scene| {
        scene.cluster.strict_affinity = Some(false);
        scene.cluster.pools[0].block_size = 30;
    };
    let error = verdict(&report(bad)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 checks failed: StrictAffinity: IPAM strict affinity is off; BlockSize: blocks smaller than /29 in default"
    );

    let mut scene = scene();
    bad(&mut scene);
    let input = Input { settings: scene.settings.as_ref(), cluster: Some(&scene.cluster), ..Input::default() };
    let ignored = ["strictaffinity".to_owned(), "BlockSize".to_owned()];
    assert!(verdict(&run(Scope::Everything, &input, &ignored)).is_ok());
    assert_eq!(unknown_ids(&["strictaffinity".into(), "StrictAfinity".into()]), ["StrictAfinity"]);
}

#[test]
fn defects_of_the_scripts_are_findings_here() {
    // B7: a backend that the config names, and the cluster does not have.
    let b7 = check(
        &report(|scene| scene.settings.as_mut().unwrap().network.backend = Backend::WindowsBgp),
        "BackendMatchesCluster",
    );
    assert_eq!(b7.detail, "the config says windows-bgp, the cluster vxlan (FelixConfiguration)");
    // B8: a cluster that does not tell is not taken for BGP.
    let b8 = check(&report(undecided), "BackendKnown");
    assert_eq!(b8.detail, "the cluster has no enabled IPv4 pool that selects this node");
    // B9: Felix says no VXLAN, and a pool has IP-in-IP.
    let b9 = check(
        &report(|scene| {
            scene.settings = None;
            scene.cluster.felix.vxlan_enabled = Some(false);
            scene.cluster.pools[0].ipip_mode = "CrossSubnet".into();
        }),
        "IpipEnabled",
    );
    assert_eq!(b9.status, CheckStatus::Fail);
    // B10: the VNI is compared.
    let b10 = check(&report(|scene| scene.cluster.felix.vxlan_vni = Some(5000)), "VniDiffersFromFelix");
    assert!(b10.detail.starts_with("the VNI 4096 differs from the cluster's 5000"), "{}", b10.detail);
    // B14: a VNI that Windows cannot take is found before anything is registered.
    for vni in [0, 1, 4095, 9999, 65536] {
        let b14 = check(
            &report(match vni {
                0 => |scene: &mut Scene| scene.cluster.felix.vxlan_vni = Some(0),
                1 => |scene: &mut Scene| scene.cluster.felix.vxlan_vni = Some(1),
                4095 => |scene: &mut Scene| scene.cluster.felix.vxlan_vni = Some(4095),
                9999 => |scene: &mut Scene| scene.cluster.felix.vxlan_vni = Some(9999),
                _ => |scene: &mut Scene| scene.cluster.felix.vxlan_vni = Some(65536),
            }),
            "VniOutOfRange",
        );
        assert_eq!(b14.status, CheckStatus::Fail, "{vni}");
    }
    // B22: every DNS server and service CIDR is a value of its own, compared with the cluster's.
    let b22 = check(&report(|scene| scene.cluster.service_cidrs.push("10.112.0.0/16".parse().unwrap())), "ServiceCidr");
    assert_eq!(b22.detail, "the cluster's services have 10.112.0.0/16, the config has 10.96.0.0/12");
    // B30: what RemoteAccess leaves out of BGP is told.
    let b30 = check(
        &report(|scene| {
            with_bgp(scene, "v3.29.5");
            let bgp = scene.cluster.bgp.as_mut().unwrap();
            bgp.mesh_password = true;
            bgp.unsupported = vec!["rack-1: password, filters".into()];
            bgp.duplicates = vec!["10.0.0.1".into()];
        }),
        "BgpPeers",
    );
    assert_eq!(
        b30.detail,
        "Windows leaves out rack-1: password, filters; the node mesh: password; 10.0.0.1: more than one peer"
    );
    // B32: a service CIDR that is an address and no CIDR does not hold the cluster's services.
    let b32 = check(
        &report(|scene| {
            scene.settings.as_mut().unwrap().kubernetes.service_cidrs = vec!["10.96.0.10/32".parse().unwrap()];
        }),
        "ServiceCidr",
    );
    assert_eq!(b32.detail, "the service kubernetes has 10.96.0.1, which is outside 10.96.0.10/32");
}

#[test]
fn a_node_that_is_called_otherwise_is_found_by_its_address() {
    let found = check(
        &report(|scene| {
            scene.cluster.node = None;
            scene.cluster.node_with_our_address = Some("ip-10-0-0-21.ec2.internal".into());
        }),
        "NodeRegistered",
    );
    assert_eq!(
        found.detail,
        "the cluster has no Node win-a1, but the Node ip-10-0-0-21.ec2.internal has this machine's address: \
         give --node-name ip-10-0-0-21.ec2.internal"
    );
}

#[test]
fn kube_proxys_flags_are_read_where_they_stand() {
    let detail = |edit: Edit| check(&report(edit), "KubeProxyFlags").detail;
    assert_eq!(
        detail(|scene| {
            let proxy = survey_of(scene).services.get_mut("kube-proxy").unwrap();
            proxy.command = vec!["kube-proxy.exe".into(), "--feature-gates=WinDSR=true,WinOverlay=true".into()];
        }),
        "--enable-dsr=true is missing; --source-vip is missing; \
         the feature gate WinDSR is of no use since v1.33; the feature gate WinOverlay is of no use since v1.20"
    );
    // Older ones need them.
    let old = check(
        &report(|scene| {
            let proxy = survey_of(scene).services.get_mut("kube-proxy").unwrap();
            proxy.command.push("--feature-gates=WinDSR=true".into());
            scene.cluster.node.as_mut().unwrap().kubelet_version = "v1.32.1".into();
        }),
        "KubeProxyFlags",
    );
    assert_eq!(old.status, CheckStatus::Ok, "{old:?}");
}

#[test]
fn what_another_installer_left_is_named() {
    let found = check(
        &report(|scene| {
            let survey = survey_of(scene);
            survey.installed = false;
            survey.networks.insert("External".into(), "Overlay".into());
        }),
        "Leftovers",
    );
    assert_eq!(found.detail, r"service CalicoNode, HNS network External, folder C:\CalicoWindows");
}

#[test]
fn only_some_failures_are_mended_by_the_program() {
    let mut node = scene().node;
    assert_eq!(mend("StrictAffinity", None), Some(Mend::ClusterPatches));
    assert_eq!((mend("WindowsBuild", Some(&node)), mend("RuntimeRunning", Some(&node))), (None, None));
    node.survey.as_mut().unwrap().services.get_mut("containerd").unwrap().running = false;
    assert_eq!(mend("RuntimeRunning", Some(&node)).unwrap().to_string(), "start the service containerd");
}
