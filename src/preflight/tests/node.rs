//! The Windows machine.

use super::*;

pub(super) const STORIES: &[Story] = &[
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
];
