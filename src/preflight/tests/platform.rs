//! What a cloud or a distribution needs, and keeps to itself.

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

fn by_rdp(scene: &mut Scene) {
    scene.remote_access = &[RemoteAccess::Rdp];
    survey_of(scene).services.insert("termservice".into(), ServiceFacts { running: true, ..ServiceFacts::default() });
    survey_of(scene).tcp_ports = [(3389, true)].into();
    survey_of(scene).firewall.lets_in = [(3389, true)].into();
}

pub(super) const STORIES: &[Story] = &[
    story(
        "WmcoManagedNode",
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
            "EksManagedNodeGroup",
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
fn a_node_of_openshifts_operator_is_a_conflict_unless_one_says_so() {
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
    let told = run(Scope::Everything, &input, &["WmcoManagedNode".into()]);
    assert!(check(&told, "WmcoManagedNode").ignored);
    assert!(verdict(&told).is_ok());
    assert_eq!(
        self::told(|scene| scene.cluster.openshift = true, "WmcoManagedNode"),
        "Warn OpenShift, and this node is not its operator's: Calico is not supported there"
    );
}

#[test]
fn amazons_older_controllers_do_as_well_and_half_of_them_does_not() {
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
    Ok vpc-resource-controller and vpc-admission-webhook are there
    Warn of the older controllers only vpc-resource-controller is there
    Warn there is neither a ConfigMap amazon-vpc-cni nor the older vpc-resource-controller
    Unknown user joe may not list vpc-resource-controller
    Skip this is no EKS cluster
    ");
}

/// An access entry leaves nothing in the cluster but the groups that it gives, which the node itself sees.
#[test]
fn a_node_that_logs_in_by_an_access_entry_is_not_looked_for_in_aws_auth() {
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
    Unknown there is no ConfigMap aws-auth, so access entries decide, which are not seen from inside the cluster: aws eks list-access-entries --cluster-name NAME
    Warn aws-auth has no role in the group eks:kube-proxy-windows, unless an access entry gives it
    Ok this node is in eks:kube-proxy-windows
    Ok this node is in eks:kube-proxy-windows
    Warn this node logs in without the group eks:kube-proxy-windows
    ");
}

#[test]
fn the_metadata_route_is_looked_at_where_a_vswitch_takes_it() {
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
    Skip no cloud whose route the vSwitch takes
    Skip no vSwitch is made
    Ok by the default route; CalicoNode makes one when the vSwitch is there
    Warn spec.platform.preserveMetadataRoute is off, so the vSwitch takes the route away
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
        // What listens is kept out, and what is let in finds nobody.
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
    Skip nobody asked: spec.preflight.remoteAccess, as [rdp, winrm]
    Fail SSH: the service sshd is stopped
    Fail WinRM: there is no service WinRM
    Fail RDP: the firewall lets nobody in on TCP 3389
    Fail WinRM: the firewall lets nobody in on TCP 5985 or 5986
    Unknown RDP listens; whether the firewall lets anybody in: the service mpssvc does not answer
    ");
}

#[test]
fn on_eks_kube_proxys_missing_dsr_is_installs_work_and_elsewhere_yours() {
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
    Ok DSR, source VIP and feature gates are right; --enable-dsr=true is added by install
    ");
}
