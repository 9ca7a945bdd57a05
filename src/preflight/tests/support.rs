//! What runs in the cluster beside this node.

use super::*;

pub(super) const STORIES: &[Story] = &[
    story(
        "NoHostProcessCalico",
        |scene| scene.cluster.operator.as_mut().unwrap().windows_dataplane = Some("HNS".into()),
        |scene| {
            scene.cluster.host_process = None;
            refuse(scene, "daemonsets");
        },
    ),
    story(
        "CalicoVersion",
        |scene| scene.cluster.calico_version = Some("v3.11.3".into()),
        |scene| scene.cluster.calico_version = Some("master".into()),
    ),
    story(
        "CalicoVersionMatchesLinux",
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
    Story {
        good: |scene| with_typha(scene, 3),
        ..story(
            "TyphaWorkers",
            |scene| with_typha(scene, 2),
            |scene| {
                with_typha(scene, 3);
                scene.cluster.nodes = None;
                refuse(scene, "nodes");
            },
        )
    },
    Story {
        good: |scene| with_bgp(scene, "v3.29.5"),
        ..story(
            "RouteReflectors",
            |scene| {
                with_bgp(scene, "v3.29.5");
                scene.cluster.node.as_mut().unwrap().route_reflector = Some("244.0.0.1".into());
            },
            undecided,
        )
    },
    story(
        "ServiceAdvertisement",
        |scene| scene.cluster.bgp.as_mut().unwrap().advertised = vec!["serviceClusterIPs: 10.96.0.0/12".into()],
        |scene| refuse(scene, "bgpconfigurations"),
    ),
];

fn with_typha(scene: &mut Scene, linux_workers: usize) {
    scene.cluster.typha = Some(TyphaFacts { wanted: 3, ready: 3 });
    scene.cluster.nodes = Some(NodeCounts { all: 5, linux: 4, linux_workers, windows: 1 });
}

#[test]
fn two_linux_workers_are_enough_without_typha_or_without_the_operator() {
    let status = |edit: fn(&mut Scene)| {
        let found = report(|scene| {
            with_typha(scene, 2);
            edit(scene);
        });
        check(&found, "TyphaWorkers").status
    };
    assert_eq!(status(|_| ()), CheckStatus::Warn);
    assert_eq!(status(|scene| scene.cluster.typha = None), CheckStatus::Skip);
    assert_eq!(status(|scene| scene.cluster.operator = None), CheckStatus::Skip);
}
