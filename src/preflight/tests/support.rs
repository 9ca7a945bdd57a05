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
];
