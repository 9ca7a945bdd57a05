//! What a cloud or a distribution requires, and what it manages itself.

use super::*;
use crate::facts::{EksFacts, Firewall};
use crate::settings::{Provider, RemoteAccess};

const EKS: &str = "v1.33.2-eks-7f9249a";

/// An EKS cluster with all that Windows nodes need.
fn eks(scene: &mut Scene) -> &mut EksFacts {
    scene.cluster.kubernetes_version = EKS.into();
    scene.cluster.eks.insert(EksFacts { windows_ipam: Some(true), windows_role: Some(true), ..EksFacts::default() })
}

fn on_ec2(scene: &mut Scene) {
    let settings = scene.settings.as_mut().unwrap();
    settings.provider = Provider::Ec2;
    settings.platform.metadata_route = true;
    survey_of(scene).link_local_routes = Some([("169.254.169.254/32".into(), "Ethernet".into())].into());
}

fn on_aks(scene: &mut Scene) {
    scene.settings.as_mut().unwrap().provider = Provider::Aks;
}

fn by_rdp(scene: &mut Scene) {
    scene.remote_access = &[RemoteAccess::Rdp];
    survey_of(scene).services.insert("termservice".into(), ServiceFacts { running: true, ..ServiceFacts::default() });
    survey_of(scene).tcp_ports = [(3389, true)].into();
    survey_of(scene).firewall.lets_in = [(3389, true)].into();
}

pub(super) const STORIES: &[Story] = &[
    story(
        "NodeManager",
        |scene| scene.cluster.node.as_mut().unwrap().wmco = Some("10.20.0-abc".into()),
        |scene| {
            scene.cluster.node = None;
            scene.node.survey = None;
        },
    ),
    Story {
        good: |scene| {
            eks(scene);
        },
        ..story(
            "EksWindowsNetworking",
            |scene| eks(scene).windows_ipam = Some(false),
            |scene| {
                eks(scene).windows_ipam = None;
                refuse(scene, "amazon-vpc-cni");
            },
        )
    },
    Story {
        good: |scene| {
            eks(scene);
        },
        ..story(
            "EksInstanceRole",
            |scene| eks(scene).windows_role = Some(false),
            |scene| {
                eks(scene).windows_role = None;
                refuse(scene, "aws-auth");
            },
        )
    },
    Story {
        good: |scene| {
            eks(scene);
        },
        ..story(
            "EksNodeGroup",
            |scene| {
                eks(scene);
                let labels = &mut scene.cluster.node.as_mut().unwrap().labels;
                labels.insert("eks.amazonaws.com/nodegroup".into(), "windows-1".into());
            },
            |scene| {
                eks(scene);
                scene.cluster.node = None;
            },
        )
    },
    Story {
        good: on_ec2,
        ..story(
            "SourceDestCheck",
            |scene| {
                on_ec2(scene);
                with_bgp(scene, "v3.29.5");
            },
            undecided,
        )
    },
    Story {
        good: on_aks,
        ..story(
            "AksCluster",
            |scene| {
                on_aks(scene);
                scene.cluster.kubernetes_version = "v1.19.11".into();
            },
            undecided,
        )
    },
    Story {
        good: on_ec2,
        ..story(
            "MetadataRoute",
            |scene| {
                on_ec2(scene);
                survey_of(scene).link_local_routes = Some([].into());
                survey_of(scene).networks.insert("External".into(), "Overlay".into());
            },
            |scene| {
                on_ec2(scene);
                survey_of(scene).link_local_routes = None;
            },
        )
    },
    Story {
        good: by_rdp,
        ..story(
            "RemoteSession",
            |scene| {
                by_rdp(scene);
                survey_of(scene).tcp_ports = [(3389, false)].into();
            },
            |scene| {
                by_rdp(scene);
                survey_of(scene).firewall =
                    Firewall { unread: Some("the service mpssvc does not answer".into()), ..Firewall::default() };
            },
        )
    },
];

fn told(edit: Edit, id: &str) -> String {
    let check = check(&report(edit), id);
    format!("{:?} {}", check.status, check.detail)
}

#[test]
fn a_node_of_openshifts_operator_is_a_conflict_unless_it_is_ignored() {
    let edit: Edit = |scene| {
        let service = ServiceFacts { running: true, ..ServiceFacts::default() };
        survey_of(scene).services.insert("windows-instance-config-daemon".into(), service);
    };
    let report = report(edit);
    let error = verdict(&report).unwrap_err();
    assert_eq!(crate::report::document::exit_of(&error), Exit::Conflict, "{error}");

    let mut scene = scene();
    edit(&mut scene);
    let input = Input { node: Some(&scene.node), cluster: Some(&scene.cluster), ..Input::default() };
    let told = run(Scope::Everything, &input, &["NodeManager".into()]);
    assert!(check(&told, "NodeManager").ignored);
    assert!(verdict(&told).is_ok());
    assert_eq!(
        self::told(|scene| scene.cluster.openshift = true, "NodeManager"),
        "Warn OpenShift's operator does not manage this node: Calico is not supported there"
    );
}

#[test]
fn both_of_amazons_older_controllers_are_enough_and_one_alone_is_not() {
    let networking = |edit| told(edit, "EksWindowsNetworking");
    let lines = [
        networking(|scene| {
            *eks(scene) = EksFacts {
                controllers: vec!["vpc-resource-controller".into(), "vpc-admission-webhook".into()],
                ..EksFacts::default()
            };
        }),
        networking(|scene| {
            *eks(scene) = EksFacts { controllers: vec!["vpc-resource-controller".into()], ..EksFacts::default() };
        }),
        networking(|scene| *eks(scene) = EksFacts::default()),
        networking(|scene| {
            *eks(scene) = EksFacts::default();
            refuse(scene, "vpc-resource-controller");
        }),
        networking(|_| ()),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Ok vpc-resource-controller and vpc-admission-webhook are installed
    Warn only vpc-resource-controller of the two older controllers is installed
    Warn there is neither a ConfigMap amazon-vpc-cni nor the older vpc-resource-controller
    Unknown user joe may not list vpc-resource-controller
    Skip this is not an EKS cluster
    ");
}

/// For an access entry the cluster shows only the groups that it gives, which the node itself sees.
#[test]
fn a_node_that_logs_in_by_an_access_entry_needs_no_aws_auth() {
    let role = |edit| told(edit, "EksInstanceRole");
    let lines = [
        role(|scene| eks(scene).windows_role = None),
        role(|scene| eks(scene).windows_role = Some(false)),
        role(|scene| {
            let eks = eks(scene);
            (eks.windows_role, eks.node_in_group) = (None, Some(true));
        }),
        role(|scene| {
            let eks = eks(scene);
            (eks.windows_role, eks.node_in_group) = (Some(false), Some(true));
        }),
        role(|scene| eks(scene).node_in_group = Some(false)),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Unknown there is no ConfigMap aws-auth, so access entries decide, which are not visible inside the cluster: aws eks list-access-entries --cluster-name NAME
    Warn aws-auth has no role in the group eks:kube-proxy-windows, unless an access entry gives it
    Ok this node is in eks:kube-proxy-windows
    Ok this node is in eks:kube-proxy-windows
    Warn this node logs in without the group eks:kube-proxy-windows
    ");
}

#[test]
fn the_metadata_route_is_checked_where_a_vswitch_removes_it() {
    let route = |edit| told(edit, "MetadataRoute");
    let lines = [
        route(|_| ()),
        route(|scene| {
            on_ec2(scene);
            scene.settings.as_mut().unwrap().network.backend = Backend::None;
        }),
        route(|scene| {
            on_ec2(scene);
            survey_of(scene).link_local_routes = Some([].into());
        }),
        route(|scene| {
            on_ec2(scene);
            scene.settings.as_mut().unwrap().platform.metadata_route = false;
        }),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Skip needed on EC2 and GCE only: Azure's route is restored with the others of its adapter
    Skip no vSwitch is created
    Ok the default route is used; CalicoNode adds this route when there is a vSwitch
    Warn spec.platform.preserveMetadataRoute is off, so creating the vSwitch removes the route
    ");
}

#[test]
fn one_of_winrms_two_ports_is_enough_and_a_stopped_service_is_named() {
    let session = |edit| told(edit, "RemoteSession");
    let lines = [
        session(|_| ()),
        session(|scene| {
            scene.remote_access = &[RemoteAccess::WinRm, RemoteAccess::Ssh];
            let service = |running| ServiceFacts { running, ..ServiceFacts::default() };
            survey_of(scene).services.insert("winrm".into(), service(true));
            survey_of(scene).services.insert("sshd".into(), service(false));
            survey_of(scene).tcp_ports = [(5985, false), (5986, true)].into();
        }),
        session(|scene| {
            scene.remote_access = &[RemoteAccess::WinRm];
            survey_of(scene).tcp_ports = [(5985, false), (5986, false)].into();
        }),
        session(|scene| {
            by_rdp(scene);
            survey_of(scene).firewall.lets_in = [(3389, false)].into();
        }),
        // One port listens and is blocked, the other is open and nothing listens.
        session(|scene| {
            scene.remote_access = &[RemoteAccess::WinRm];
            survey_of(scene).services.insert("winrm".into(), ServiceFacts { running: true, ..ServiceFacts::default() });
            survey_of(scene).tcp_ports = [(5985, true), (5986, false)].into();
            survey_of(scene).firewall.lets_in = [(5985, false), (5986, true)].into();
        }),
        session(|scene| {
            by_rdp(scene);
            survey_of(scene).firewall =
                Firewall { unread: Some("the service mpssvc does not answer".into()), ..Firewall::default() };
        }),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Skip not requested; to check it, set spec.preflight.remoteAccess, for example [rdp, winrm]
    Fail SSH: the service sshd is stopped
    Fail WinRM: there is no service WinRM
    Fail RDP: the firewall blocks TCP 3389
    Fail WinRM: the firewall blocks TCP 5985 or 5986
    Unknown RDP listens; the firewall rules were not read: the service mpssvc does not answer
    ");
}

#[test]
fn a_missing_dsr_of_kube_proxy_is_added_by_install_on_eks_and_is_a_warning_elsewhere() {
    fn without_dsr(scene: &mut Scene) {
        let proxy = survey_of(scene).services.get_mut("kube-proxy").unwrap();
        proxy.command.retain(|word| word != "--enable-dsr=true");
    }
    let lines = [
        told(without_dsr, "KubeProxyFlags"),
        told(
            |scene| {
                without_dsr(scene);
                scene.settings.as_mut().unwrap().provider = Provider::Eks;
            },
            "KubeProxyFlags",
        ),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Warn --enable-dsr=true is missing
    Ok DSR, source VIP and feature gates are correct; --enable-dsr=true is added by install
    ");
}
