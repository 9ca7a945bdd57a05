//! What else is on the machine.

use super::*;

fn policy_only(scene: &mut Scene) {
    scene.settings.as_mut().unwrap().network.backend = Backend::None;
}

pub(super) const STORIES: &[Story] = &[
    story(
        "JoinToken",
        |scene| scene.needs.join = Finding::Fail("cannot read the file".into()),
        |scene| scene.needs.join = Finding::Unknown("the cluster does not answer".into()),
    ),
    story(
        "SourcesAvailable",
        |scene| scene.needs.sources = Finding::Fail("no such host".into()),
        |scene| scene.needs.sources = Finding::Unknown("the disk does not answer".into()),
    ),
    story(
        "RuntimeRunning",
        |scene| survey_of(scene).services.get_mut("containerd").unwrap().running = false,
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    story(
        "PauseImage",
        |scene| scene.node.runtime.as_mut().unwrap().sandbox_image = Some("registry.k8s.io/pause:3.5".into()),
        |scene| scene.node.leave_out(Part::Runtime, "its configuration cannot be read"),
    ),
    story(
        "CniConfig",
        |scene| {
            let theirs =
                CniConfig { file: "05-flannel.conflist".into(), plugin: Some("flannel".into()), is_folder: false };
            survey_of(scene).cni_configs.push(theirs);
        },
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    Story {
        good: |scene| {
            policy_only(scene);
            survey_of(scene).networks.insert("Calico2".into(), "L2Bridge".into());
        },
        ..story("KubeNetwork", policy_only, |scene| {
            policy_only(scene);
            scene.node.leave_out(Part::Survey, "a service refused it");
        })
    },
    story(
        "NoFlannel",
        |scene| {
            survey_of(scene).networks.insert("vxlan0".into(), "Overlay".into());
        },
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
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
                scene.node.leave_out(Part::Features, "Windows refused it");
            },
        )
    },
    story(
        "UdpPort4789",
        |scene| survey_of(scene).vxlan_port_free = Some(false),
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    story(
        "KubeletDependencies",
        |scene| survey_of(scene).services.get_mut("kubelet").unwrap().depends_on.push("CalicoFelix".into()),
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    story(
        "KubeProxyFlags",
        |scene| {
            let proxy = survey_of(scene).services.get_mut("kube-proxy").unwrap();
            proxy.command.push("--feature-gates=WinOverlay=true,WinDSR=true".into());
        },
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    story(
        "NoEarlierInstall",
        |scene| {
            survey_of(scene).services.insert("calicoupgrade".into(), ServiceFacts::default());
        },
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    story(
        "RootFolder",
        |scene| survey_of(scene).other_root = Some(r"C:\Users".into()),
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    story(
        "DiskSpace",
        |scene| survey_of(scene).disk_free = Some(300 << 20),
        |scene| scene.node.leave_out(Part::Survey, "a service refused it"),
    ),
    story(
        "NoPendingReboot",
        |scene| scene.node.pending_reboot.push("Component Based Servicing".into()),
        |scene| scene.node.leave_out(Part::PendingReboot, "Windows refused it"),
    ),
];

#[test]
fn kube_proxys_flags_are_read_from_its_command_line() {
    let detail = |edit: Edit| check(&report(edit), "KubeProxyFlags").detail;
    assert_eq!(
        detail(|scene| {
            let proxy = survey_of(scene).services.get_mut("kube-proxy").unwrap();
            proxy.command = vec!["kube-proxy.exe".into(), "--feature-gates=WinDSR=true,WinOverlay=true".into()];
        }),
        "--enable-dsr=true is missing; --source-vip is missing; \
         the feature gate WinDSR is obsolete since v1.33; the feature gate WinOverlay is obsolete since v1.20"
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
fn bgp_requires_that_remote_access_runs() {
    let found = |running, routing| {
        let mut scene = scene();
        with_bgp(&mut scene, "v3.29.5");
        let service = ServiceFacts { running, command: Vec::new(), depends_on: Vec::new() };
        survey_of(&mut scene).services.insert("remoteaccess".into(), service);
        scene.node.features.as_mut().unwrap().routing = routing;
        finding(&scene, "RoutingFeature")
    };
    let stopped = "Fail: the service RemoteAccess is stopped";
    assert_eq!([found(false, None), found(false, Some(true))], [stopped, stopped]);
    let missing = found(false, Some(false));
    assert!(missing.starts_with("Fail: the Windows feature Routing is not installed; "), "{missing}");
    // Server Manager's record may be old.
    assert_eq!(found(true, Some(false)), "Ok: RemoteAccess is installed");
}

#[test]
fn leftovers_of_another_installer_are_named() {
    let found = check(
        &report(|scene| {
            let survey = survey_of(scene);
            survey.installed = false;
            survey.networks.insert("External".into(), "Overlay".into());
        }),
        "NoEarlierInstall",
    );
    assert_eq!(found.detail, r"service CalicoNode, HNS network External, folder C:\CalicoWindows");
}

/// Defect B26: Calico's own removal of its HostProcess pods leaves their configuration.
#[test]
fn b26_a_configuration_that_calicos_pods_left_is_named_as_calicos() {
    let found = check(
        &report(|scene| {
            let theirs =
                CniConfig { file: "10-calico.conflist".into(), plugin: Some("calico".into()), is_folder: false };
            survey_of(scene).cni_configs.push(theirs);
        }),
        "CniConfig",
    );
    assert_eq!(
        found.detail,
        "other configurations in the CNI folder: 10-calico.conflist (calico; delete it if Calico's HostProcess pods \
         left it)"
    );
}

#[test]
fn a_folder_in_the_place_of_the_cni_configuration_is_refused() {
    let told = |file: &str| {
        let mut scene = scene();
        let folder = CniConfig { file: file.into(), is_folder: true, plugin: None };
        survey_of(&mut scene).cni_configs = vec![folder];
        finding(&scene, "CniConfig")
    };
    let own = "Fail: 10-calico.conf in the CNI folder is a folder, and Calico's configuration is a file of that name";
    assert_eq!([told("10-Calico.conf").as_str(), &told("05-old.conf")], [own, "Ok: only Calico's"]);
}

#[test]
fn a_pause_image_must_support_this_windows() {
    let found = |image: &str, build: u32| {
        let mut scene = scene();
        scene.node.os.build = build;
        scene.node.runtime.as_mut().unwrap().sandbox_image = Some(image.into());
        finding(&scene, "PauseImage")
    };
    let told = [
        found("registry.k8s.io/pause:3.9", 20348),
        found("k8s.gcr.io/pause:3.5", 20348),
        found("k8s.gcr.io/pause:3.5", 17763),
        found("mcr.microsoft.com/oss/kubernetes/pause:3.4.1", 26100),
        found("registry.k8s.io/pause:3.10.1-windows-amd64", 26100),
        found("registry.corp.example/windows-pause:1", 20348),
        found("registry.corp.example/pause@sha256:0123", 20348),
    ];
    insta::assert_snapshot!(told.join("\n"), @r"
    Ok: registry.k8s.io/pause:3.9
    Fail: k8s.gcr.io/pause:3.5 does not support Server 2022: pause:3.6 is the first that does
    Ok: k8s.gcr.io/pause:3.5
    Fail: mcr.microsoft.com/oss/kubernetes/pause:3.4.1 does not support Server 2025: pause:3.6 is the first that does
    Ok: registry.k8s.io/pause:3.10.1-windows-amd64
    Ok: registry.corp.example/windows-pause:1, whose support of Windows is not known
    Ok: registry.corp.example/pause@sha256:0123, whose support of Windows is not known
    ");
}
