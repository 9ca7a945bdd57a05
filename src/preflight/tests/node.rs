//! The Windows machine.

use super::*;

fn untold(scene: &mut Scene, part: Part) {
    scene.node.leave_out(part, "Windows refused it");
}

pub(super) const STORIES: &[Story] = &[
    story("Is64Bit", |scene| scene.node.os.arch = "arm64".into(), |scene| scene.node.os.arch.clear()),
    story("WindowsBuild", |scene| scene.node.os.product = Product::Client, |scene| scene.node.os.build = 0),
    story("HnsAvailable", |scene| scene.node.hns = None, |scene| untold(scene, Part::Hns)),
    story("ContainerRuntime", |scene| scene.node.runtime = None, |scene| untold(scene, Part::Runtime)),
    story(
        "AdapterHasValidIP",
        |scene| scene.node.adapters[0].addresses = vec!["169.254.7.7/16".parse().unwrap()],
        |scene| untold(scene, Part::Adapters),
    ),
    Story {
        good: |scene| scene.settings.as_mut().unwrap().network.adapter = Some("ethernet".into()),
        ..story(
            "VxlanAdapter",
            |scene| scene.settings.as_mut().unwrap().network.adapter = Some("Ethernet 7".into()),
            |scene| {
                scene.settings.as_mut().unwrap().network.adapter = Some("ethernet".into());
                untold(scene, Part::Adapters);
            },
        )
    },
    story("Elevated", |scene| scene.node.elevated = false, |scene| untold(scene, Part::Elevated)),
    story(
        "FolderRights",
        |scene| {
            let writers = survey_of(scene).writers.as_mut().unwrap();
            writers.others.insert(r"C:\etc\cni\net.d\00.conf".into(), "BUILTIN\\Users".into());
        },
        |scene| survey_of(scene).writers = None,
    ),
    story("KnownGoodBuild", |scene| scene.node.os.ubr = 2582, |scene| scene.node.os.build = 0),
    story(
        "KubernetesWindows",
        |scene| scene.cluster.kubernetes_version = "v1.21.0".into(),
        |scene| {
            scene.cluster.kubernetes_version = "v1.10.0".into();
        },
    ),
    story(
        "HnsVxlan",
        |scene| scene.node.hns = Some(HnsVersion { major: 9, minor: 1 }),
        |scene| untold(scene, Part::Hns),
    ),
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
        |scene| untold(scene, Part::Tls),
    ),
    story(
        "RuntimeSupported",
        |scene| scene.node.runtime.as_mut().unwrap().kind = RuntimeKind::Docker,
        |scene| scene.node.runtime.as_mut().unwrap().version.clear(),
    ),
    story(
        "CniFolders",
        |scene| scene.node.runtime.as_mut().unwrap().cni_conf_dir = WinPath::known(r"C:\etc\cni\net.d"),
        |scene| untold(scene, Part::Runtime),
    ),
    story("StaticAddressKept", |scene| scene.node.os.build = 19042, |scene| untold(scene, Part::Adapters)),
    story(
        "AdapterAvailable",
        |scene| {
            survey_of(scene).networks = [("nat".into(), "NAT".into())].into();
            scene.node.adapters[0].name = "vEthernet (Hyper-V)".into();
        },
        |scene| untold(scene, Part::Adapters),
    ),
    story(
        "LocalFirewallRules",
        |scene| survey_of(scene).own_rules_ignored = Some(vec!["Domain".into()]),
        |scene| survey_of(scene).own_rules_ignored = None,
    ),
    story("AdapterNotTeamed", |scene| scene.node.adapters[0].team = true, |scene| untold(scene, Part::Adapters)),
];

/// The tables of builds, row by row, as three checks judge them.
#[test]
fn every_build_of_the_tables_is_judged() {
    let judged = |build: u32, ubr: u32, product: Product| {
        let mut scene = scene();
        (scene.node.os.build, scene.node.os.ubr, scene.node.os.product) = (build, ubr, product);
        scene.node.hns = None;
        let input = Input { node: Some(&scene.node), ..Input::default() };
        let report = run(Scope::Everything, &input, &[]);
        let said = ["WindowsBuild", "KnownGoodBuild", "ServiceSourceAddress"].map(|id| {
            let check = check(&report, id);
            format!("{:?} {}", check.status, check.detail)
        });
        format!("{build}.{ubr}: {}", said.join(" | "))
    };
    use Product::{Client, DomainController, Server};
    let lines = [
        judged(14393, 7000, Server),
        judged(17763, 1431, Server),
        judged(17763, 1432, Server),
        judged(17763, 1554, Server),
        judged(18316, 1, Server),
        judged(18317, 1, Server),
        judged(19042, 1, Server),
        judged(20348, 168, Server),
        judged(20348, 2321, DomainController),
        judged(20348, 2322, Server),
        judged(20348, 2582, Server),
        judged(20348, 2762, Server),
        judged(22631, 1, Client),
        judged(25398, 1, Server),
        judged(26100, 1, Server),
        judged(26100, 1, Client),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    14393.7000: Fail build 14393.7000 is older than Windows Server 2019 | Ok no known problem with 14393.7000 | Warn build 14393 has no DSR
    17763.1431: Fail build 17763.1431 lacks the update 17763.1432 of August 2020 | Ok no known problem with 17763.1431 | Warn build 17763 has no DSR
    17763.1432: Ok build 17763.1432 | Warn pods may not reach services after a restart of HNS on 17763.1432; KB4580390 (17763.1554) fixes it | Ok DSR, judged by the Windows build
    17763.1554: Ok build 17763.1554 | Ok no known problem with 17763.1554 | Ok DSR, judged by the Windows build
    18316.1: Fail build 18316.1 is not supported: a Windows later than Server 2019 must be build 18317 or later | Ok no known problem with 18316.1 | Warn build 18316 has no DSR
    18317.1: Ok build 18317.1 | Ok no known problem with 18317.1 | Ok DSR, judged by the Windows build
    19042.1: Ok build 19042.1 | Ok no known problem with 19042.1 | Ok DSR, judged by the Windows build
    20348.168: Fail build 20348.168 lacks the update 20348.169 of August 2021 | Ok no known problem with 20348.168 | Ok DSR, judged by the Windows build
    20348.2321: Ok build 20348.2321 | Ok no known problem with 20348.2321 | Ok DSR, judged by the Windows build
    20348.2322: Ok build 20348.2322 | Warn pods lose their network on 20348.2322; KB5044281 (20348.2762) fixes it | Ok DSR, judged by the Windows build
    20348.2582: Ok build 20348.2582 | Warn pods lose their network on 20348.2582; KB5044281 (20348.2762) fixes it | Ok DSR, judged by the Windows build
    20348.2762: Ok build 20348.2762 | Ok no known problem with 20348.2762 | Ok DSR, judged by the Windows build
    22631.1: Fail this is a client edition of Windows (build 22631.1) | Ok no known problem with 22631.1 | Ok DSR, judged by the Windows build
    25398.1: Ok build 25398.1 | Ok no known problem with 25398.1 | Ok DSR, judged by the Windows build
    26100.1: Ok build 26100.1 | Warn Calico's documentation does not list Server 2025 yet, and its overlay networks fail without the cumulative update of October 2025 (github.com/rancher/rancher/issues/50915) | Ok DSR, judged by the Windows build
    26100.1: Fail this is a client edition of Windows (build 26100.1) | Warn Calico's documentation does not list Server 2025 yet, and its overlay networks fail without the cumulative update of October 2025 (github.com/rancher/rancher/issues/50915) | Ok DSR, judged by the Windows build
    ");
}

#[test]
fn docker_ends_with_kubernetes_1_24_and_an_old_containerd_with_1_26() {
    use RuntimeKind::{Containerd, Docker};
    let judged = |kind, version: &str, kubernetes: &str| {
        let mut scene = scene();
        let runtime = scene.node.runtime.as_mut().unwrap();
        (runtime.kind, runtime.version) = (kind, version.into());
        scene.cluster.kubernetes_version = kubernetes.into();
        let input = Input { node: Some(&scene.node), cluster: Some(&scene.cluster), ..Input::default() };
        check(&run(Scope::Everything, &input, &[]), "RuntimeSupported").status
    };
    for (kind, version, kubernetes, status) in [
        (Docker, "20.10.9", "v1.23.17", CheckStatus::Ok),
        (Docker, "20.10.9", "v1.24.0", CheckStatus::Fail),
        (Containerd, "1.5.18", "v1.25.16", CheckStatus::Ok),
        (Containerd, "1.5.18", "v1.26.0", CheckStatus::Fail),
        (Containerd, "1.6.0", "v1.26.0", CheckStatus::Ok),
        (Containerd, "2.1.4", "v1.36.2", CheckStatus::Ok),
    ] {
        assert_eq!(judged(kind, version, kubernetes), status, "{kind:?} {version} with {kubernetes}");
    }
}

/// Calico ignores VXLAN_ADAPTER with BGP.
#[test]
fn with_bgp_the_adapter_of_vxlan_does_not_matter() {
    let found = |backend| {
        let report = report(|scene| {
            let network = &mut scene.settings.as_mut().unwrap().network;
            (network.backend, network.adapter) = (backend, Some("Storage".into()));
        });
        ["VxlanAdapter", "AdapterAvailable"].map(|id| check(&report, id).status)
    };
    assert_eq!(found(Backend::WindowsBgp), [CheckStatus::Skip, CheckStatus::Ok]);
    assert_eq!(found(Backend::Vxlan)[0], CheckStatus::Fail);
}

/// microsoft/SDN 300, 269, 532, rke2 3515: HNS answers 0x803B0006, with or without the adapter's name.
#[test]
fn an_adapter_whose_virtual_switch_another_product_has_is_not_available() {
    let found = |name: &str, kind: &str, adapter: &str| {
        let report = report(|scene| {
            survey_of(scene).networks = [(name.into(), kind.into())].into();
            scene.node.adapters[0].name = adapter.into();
        });
        check(&report, "AdapterAvailable").status
    };
    for kind in ["Transparent", "l2bridge", "L2Tunnel"] {
        assert_eq!(found("vendor", kind, "Ethernet"), CheckStatus::Fail, "{kind}");
    }
    assert_eq!(
        found("vendor", "Overlay", "vEthernet (Ethernet)"),
        CheckStatus::Ok,
        "HNS shares the switch of overlays"
    );
    assert_eq!(found("External", "L2Bridge", "vEthernet (Ethernet)"), CheckStatus::Ok, "Calico's own");
    assert_eq!(found("nat", "NAT", "vEthernet (SET)"), CheckStatus::Fail, "a switch of Hyper-V, or a team");
}

/// Told by SIG Windows, for overlay networks only.
#[test]
fn server_2025_gets_a_warning_about_overlay_networks_with_its_source() {
    let found = |backend| {
        let report = report(|scene| {
            scene.node.os.build = 26100;
            scene.settings.as_mut().unwrap().network.backend = backend;
        });
        check(&report, "KnownGoodBuild").detail
    };
    assert!(found(Backend::Vxlan).contains("rancher/rancher/issues/50915"));
    assert!(!found(Backend::WindowsBgp).contains("overlay"));
}
