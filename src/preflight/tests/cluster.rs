//! The cluster, and whether this node is registered there.

use super::*;

pub(super) const STORIES: &[Story] = &[
    story("ClockInSync", |scene| scene.cluster.clock_skew = Some(-400), |scene| scene.cluster.clock_skew = None),
    story(
        "ApiServerAddress",
        |scene| scene.cluster.server = "https://10.96.0.1:443".into(),
        |scene| scene.settings = None,
    ),
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
    story(
        "NodeLogin",
        |scene| scene.cluster.kubelet_of = Some("win-a1".into()),
        |scene| refuse(scene, "selfsubjectreviews"),
    ),
    story(
        "CalicoServiceAccount",
        |scene| scene.cluster.no_account_in = vec!["calico-system".into(), "kube-system".into()],
        |scene| scene.unreached = Some("the API server refuses the connection"),
    ),
    story("NodeRegistered", |scene| scene.cluster.node = None, |scene| scene.settings = None),
    story(
        "NodeAddressMatches",
        |scene| scene.cluster.node.as_mut().unwrap().internal_ips = vec!["10.0.0.99".into()],
        |scene| scene.cluster.node.as_mut().unwrap().internal_ips.clear(),
    ),
    story(
        "KubeletVersion",
        |scene| scene.cluster.node.as_mut().unwrap().kubelet_version = "v1.34.0".into(),
        |scene| scene.cluster.node.as_mut().unwrap().kubelet_version.clear(),
    ),
    Story {
        good: |scene| with_kubernetes(scene, "v1.33.2"),
        ..story(
            "KubernetesVersion",
            |scene| with_kubernetes(scene, "v1.34.0"),
            |scene| {
                with_kubernetes(scene, "v1.33.2");
                scene.cluster.kubernetes_version = "unknown".into();
            },
        )
    },
    story(
        "DatastoreMatches",
        |scene| scene.cluster.linux_datastore = Some("etcdv3".into()),
        |scene| {
            scene.cluster.linux_datastore = None;
            refuse(scene, "daemonsets");
        },
    ),
    Story {
        good: |scene| {
            with_etcd(scene);
            scene.cluster.etcd_read = true;
        },
        ..story(
            "EtcdAnswers",
            |scene| {
                with_etcd(scene);
                scene.cluster.unanswered.insert("etcd".into(), "etcd at http://a:2379 refuses the connection".into());
            },
            with_etcd,
        )
    },
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
    Story {
        good: |scene| scene.cluster.flannel = Some(FlannelFacts::default()),
        ..story(
            "FlannelDaemonSet",
            |scene| {
                let set = "kube-flannel/kube-flannel-ds-windows-amd64".into();
                scene.cluster.flannel = Some(FlannelFacts { daemon_sets: vec![set], pods: Vec::new() });
            },
            |scene| refuse(scene, "flannel"),
        )
    },
];

#[test]
fn a_node_with_another_name_is_found_by_its_address() {
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
fn an_address_of_the_api_server_that_only_pods_reach_fails() {
    let servers: [Edit; 5] = [
        |scene| {
            scene.cluster.server = "https://172.20.0.1".into();
            scene.cluster.kubernetes_service_ips = vec!["172.20.0.1".into()];
        },
        |scene| scene.cluster.server = "https://kubernetes.default.svc:443".into(),
        |scene| scene.cluster.server = "https://kubernetes.default.svc.cluster.local/".into(),
        |scene| scene.cluster.server = "https://api.example.com:6443/k8s/clusters/c-1".into(),
        |scene| scene.cluster.server = "https://[fd00::10]:6443".into(),
    ];
    let told = servers.map(|edit| {
        let check = check(&report(edit), "ApiServerAddress");
        format!("{:?} {}", check.status, check.detail)
    });
    insta::assert_snapshot!(told.join("\n"), @r"
    Fail the API server's address 172.20.0.1 is a ClusterIP, which a Windows host cannot reach
    Fail kubernetes.default.svc is a name inside the cluster, which a Windows host cannot resolve
    Fail kubernetes.default.svc.cluster.local is a name inside the cluster, which a Windows host cannot resolve
    Ok https://api.example.com:6443/k8s/clusters/c-1
    Ok https://[fd00::10]:6443
    ");
}

/// The API server gives a kubelet only tokens that are bound to its pods.
#[test]
fn with_kubelets_own_kubeconfig_the_login_is_a_secret_that_it_may_read() {
    let judged = |login: Option<Credentials>, missing: &[(&str, &str)]| {
        let found = report(|scene| {
            scene.cluster.kubelet_of = Some("win-a1".into());
            scene.settings.as_mut().unwrap().kubernetes.credentials = login;
            let right = |(verb, resource): &(&str, &str)| Right {
                verb: (*verb).into(),
                resource: (*resource).into(),
                needed: true,
                ..Right::default()
            };
            scene.cluster.missing_rights = Some(missing.iter().map(right).collect());
        });
        let said = ["NodeLogin", "ClusterRights"].map(|id| {
            let check = check(&found, id);
            format!("{:?} {}", check.status, check.detail)
        });
        said.join(" | ")
    };
    use Credentials::{Kubeconfig, Secret, TokenRequest};
    let lines = [
        judged(Some(TokenRequest), &[("create", "serviceaccounts/token")]),
        judged(Some(Secret), &[]),
        judged(Some(Secret), &[("get", "secrets"), ("list", "ippools")]),
        judged(Some(Kubeconfig), &[]),
        judged(None, &[]),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Fail the kubeconfig is that of kubelet on win-a1, which gets no token for calico-node | Ok all required rights
    Warn the kubeconfig is that of kubelet on win-a1, so the node gets the token of a secret, which does not expire | Ok all required rights
    Fail the kubeconfig is that of kubelet on win-a1, which gets no token for calico-node, and may not get secrets in the whole cluster | Fail the kubeconfig's user may not list ippools in the whole cluster
    Ok the login is not that of the kubeconfig | Ok all required rights
    Skip the node needs no login | Ok all required rights
    ");
}

fn with_kubernetes(scene: &mut Scene, version: &str) {
    let node = crate::settings::KubernetesNode {
        version: version.parse().unwrap(),
        node_ip: "10.0.0.21".parse().unwrap(),
        cloud_provider: None,
        cluster_domain: "cluster.local".into(),
        containerd: None,
        kubelet_overrides: serde_json::json!({}),
        kube_proxy_overrides: serde_json::json!({}),
        programs: crate::settings::Programs::default(),
        join: crate::settings::Join::default(),
    };
    scene.settings.as_mut().unwrap().kubernetes_node = Some(node);
}

#[test]
fn our_kubelet_keeps_to_the_skew_and_goes_one_minor_version_at_a_time() {
    let found = |wanted: &str, current: &str, ours: bool| {
        let mut scene = scene();
        with_kubernetes(&mut scene, wanted);
        scene.cluster.node.as_mut().unwrap().kubelet_version = current.into();
        let program = if ours { crate::calico::services::EXECUTABLE } else { r"C:\k\kubelet.exe" };
        let command = [program, "service", "run", "kubelet"].map(str::to_owned).into();
        let kubelet = ServiceFacts { running: true, command, depends_on: Vec::new() };
        survey_of(&mut scene).services.insert("kubelet".into(), kubelet);
        finding(&scene, "KubernetesVersion")
    };
    let told = [
        found("v1.33.9", "v1.33.2", true),
        found("v1.33.0", "v1.32.1", true),
        found("v1.33.0", "v1.31.1", true),
        found("v1.32.0", "v1.33.1", true),
        found("v1.32.0", "v1.33.1", false),
        found("v1.34.0", "v1.33.1", true),
        found("v1.29.0", "v1.29.0", true),
    ];
    insta::assert_snapshot!(told.join("\n"), @r"
    Ok: v1.33.9
    Ok: v1.33.0
    Fail: kubelet is v1.31: the next minor version is v1.32, and the config says v1.33.0
    Fail: kubelet is v1.33, and v1.32.0 is older: it cannot read what the newer one wrote
    Ok: v1.32.0
    Fail: v1.34.0 is newer than the API server v1.33.2
    Fail: v1.29.0 is 4 minor versions older than the API server
    ");
}
