//! Checks of the platform: what a cloud or a distribution requires for Windows nodes, and what it
//! manages on the machine itself.

use std::collections::BTreeMap;

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::cluster::{minor, untold};
use super::node::unread;
use super::{Finding, Input, Judge, Row, Severity};
use crate::calico::networks;
use crate::facts::{ClusterFacts, EksFacts, MetadataRoute, NodeFacts, Part, Survey};
use crate::fault::Exit;
use crate::settings::{Backend, Provider, RemoteAccess};
use crate::values::joined;

/// Where all clouds have their metadata service.
const METADATA: &str = "169.254.169.254/32";

/// The Windows service with which OpenShift's operator manages a machine.
const WICD: &str = "windows-instance-config-daemon";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "NodeManager",
        severity: Severity::Refusal(Exit::Conflict),
        why: "OpenShift's Windows Machine Config Operator (WMCO) manages the services and networks of its nodes, and reverts changes to them",
        fix: "use OVN-Kubernetes on that node; if you know that the operator leaves Calico alone: --ignore-preflight-errors NodeManager",
        judge: Judge::Cluster(node_manager),
    },
    Row {
        id: "EksWindowsNetworking",
        severity: Severity::Warning,
        why: "on EKS, Amazon's VPC controller assigns addresses to Windows pods; without it no Windows pod starts",
        fix: "kubectl -n kube-system patch configmap amazon-vpc-cni --type=merge -p \"data: {enable-windows-ipam: 'true'}\"",
        judge: Judge::Cluster(|cluster, _| match &cluster.eks {
            None => not_eks(),
            Some(eks) => vpc_controller(cluster, eks),
        }),
    },
    Row {
        id: "EksInstanceRole",
        severity: Severity::Warning,
        why: "the role of Windows instances must be in the group eks:kube-proxy-windows, or kube-proxy may not read Services and EndpointSlices",
        fix: "kubectl -n kube-system edit configmap aws-auth  # add eks:kube-proxy-windows to the groups of the instances' role\nor create an access entry of the type EC2_WINDOWS",
        judge: Judge::Cluster(|cluster, _| match &cluster.eks {
            None => not_eks(),
            Some(eks) => instance_role(cluster, eks),
        }),
    },
    Row {
        id: "EksNodeGroup",
        severity: Severity::Warning,
        why: "EKS replaces the machines of a managed node group at each update and repair, and what was installed on them is lost",
        fix: "install from the user data of the group's launch template, or use self-managed nodes",
        judge: Judge::Cluster(|cluster, input| match (&cluster.eks, &cluster.node) {
            (None, _) => not_eks(),
            (Some(_), None) if input.node.is_none() => Skip("no node was examined".into()),
            (Some(_), None) => Unknown("the Node is not registered".into()),
            (Some(_), Some(node)) => match node.labels.get("eks.amazonaws.com/nodegroup") {
                Some(group) => Fail(format!("the Node {} is in the managed node group {group}", node.name)),
                None => Pass("the node is in no managed node group".into()),
            },
        }),
    },
    Row {
        id: "SourceDestCheck",
        severity: Severity::Warning,
        why: "without encapsulation, EC2 drops the traffic of pods unless the source/destination check of the instances is off",
        fix: "aws ec2 modify-instance-attribute --instance-id ID --no-source-dest-check  # for this instance and the Linux nodes'\nor use VXLAN",
        judge: Judge::Node(source_dest_check),
    },
    Row {
        id: "AksCluster",
        severity: Severity::Warning,
        why: "AKS offers Calico for Windows from Kubernetes 1.20 on, and only if it is enabled when the cluster is created",
        fix: "create a new AKS cluster with Calico as its network policy",
        judge: Judge::Cluster(aks_cluster),
    },
    Row {
        id: "MetadataRoute",
        severity: Severity::Warning,
        why: "creating a vSwitch removes the route to the cloud's metadata service, which has the instance's credentials and name",
        fix: "set spec.platform.preserveMetadataRoute: true and run install again\nNew-NetRoute -DestinationPrefix 169.254.169.254/32 -InterfaceAlias 'vEthernet (Ethernet)' -PolicyStore ActiveStore  # the same by hand, until Windows restarts",
        judge: Judge::Node(metadata_route),
    },
    Row {
        id: "RemoteSession",
        severity: Severity::Error,
        why: "creating the vSwitch interrupts remote sessions; if none can be opened again, only the machine's console is left",
        fix: "Enable-PSRemoting  # opens WinRM\nSet-ItemProperty 'HKLM:\\System\\CurrentControlSet\\Control\\Terminal Server' fDenyTSConnections 0  # allows RDP\nEnable-NetFirewallRule -DisplayGroup 'Remote Desktop'  # opens the firewall for RDP",
        judge: Judge::Machine(remote_session),
    },
];

fn not_eks() -> Finding {
    Skip("this is not an EKS cluster".into())
}

fn node_manager(cluster: &ClusterFacts, input: &Input) -> Finding {
    let survey = input.node.and_then(|node| node.survey.as_ref());
    if let Some((node, version)) = cluster.node.as_ref().and_then(|node| Some((node, node.wmco.as_ref()?))) {
        return Fail(format!("the Windows Machine Config Operator {version} manages the Node {}", node.name));
    }
    if survey.is_some_and(|survey| survey.has_service(WICD)) {
        return Fail(format!("the operator's service {WICD} is on this machine"));
    }
    match (cluster.openshift, &cluster.node, survey) {
        _ if input.node.is_none() && cluster.node.is_none() => Skip("no node was examined".into()),
        (_, None, None) => Unknown("neither the Node nor the machine's services were read".into()),
        (true, ..) => Warn("OpenShift's operator does not manage this node: Calico is not supported there".into()),
        (false, ..) => Pass("nobody else manages this node".into()),
    }
}

/// Questions about what assigns addresses to Windows pods.
const VPC_QUESTIONS: [&str; 3] = ["amazon-vpc-cni", "vpc-resource-controller", "vpc-admission-webhook"];

fn vpc_controller(cluster: &ClusterFacts, eks: &EksFacts) -> Finding {
    let refused = VPC_QUESTIONS.iter().find_map(|question| cluster.untold(question));
    match (eks.windows_ipam, eks.controllers.as_slice(), refused) {
        (Some(true), ..) => Pass("enable-windows-ipam is true".into()),
        (_, [one, other], _) => Pass(format!("{one} and {other} are installed")),
        // What may not be read may be there.
        (.., Some(why)) => Unknown(why.to_owned()),
        (_, [one], _) => Fail(format!("only {one} of the two older controllers is installed")),
        (None, ..) => Fail("there is neither a ConfigMap amazon-vpc-cni nor the older vpc-resource-controller".into()),
        (Some(false), ..) => Fail("the ConfigMap amazon-vpc-cni has no enable-windows-ipam: true".into()),
    }
}

/// EKS keeps access entries outside the cluster, where they are not visible; the groups that they give a node are.
fn instance_role(cluster: &ClusterFacts, eks: &EksFacts) -> Finding {
    match (eks.node_in_group, eks.windows_role) {
        (Some(true), _) => Pass("this node is in eks:kube-proxy-windows".into()),
        (Some(false), _) => Fail("this node logs in without the group eks:kube-proxy-windows".into()),
        (None, Some(true)) => Pass("aws-auth has a role in eks:kube-proxy-windows".into()),
        (None, Some(false)) => {
            Fail("aws-auth has no role in the group eks:kube-proxy-windows, unless an access entry gives it".into())
        }
        (None, None) => untold(
            cluster,
            "aws-auth",
            "there is no ConfigMap aws-auth, so access entries decide, which are not visible inside the cluster: \
             aws eks list-access-entries --cluster-name NAME",
        ),
    }
}

/// Reference: Calico's requirements for Windows, for AWS. The metadata service of the instance does not show the check.
fn source_dest_check(_: &NodeFacts, input: &Input) -> Finding {
    let Some(settings) = input.settings else { return Unknown("the settings could not be resolved".into()) };
    match (settings.provider, settings.network.backend) {
        (Provider::Ec2, Backend::WindowsBgp) => {
            Fail("the instance cannot see whether its source/destination check is off, which windows-bgp needs".into())
        }
        (Provider::Ec2, backend) => Pass(format!("the backend {} does not need it off", backend.name())),
        _ => Skip("this is not EC2".into()),
    }
}

/// The minor version of Kubernetes from which AKS offers Calico for Windows (Calico's requirements for Windows).
const AKS_SINCE: (u64, u64) = (1, 20);

/// Whether the cluster was enabled at its creation cannot be seen.
fn aks_cluster(cluster: &ClusterFacts, input: &Input) -> Finding {
    match input.settings {
        None if input.node.is_none() => return Skip("no node was examined".into()),
        None => return Unknown("the settings could not be resolved".into()),
        Some(settings) if settings.provider != Provider::Aks => return Skip("this is not AKS".into()),
        Some(_) => {}
    }
    match minor(&cluster.kubernetes_version) {
        None => Unknown(format!("`{}` is no version of Kubernetes", cluster.kubernetes_version)),
        Some(version) if version < AKS_SINCE => Fail(format!("the cluster has {}", cluster.kubernetes_version)),
        Some(_) => Pass(cluster.kubernetes_version.clone()),
    }
}

fn metadata_route(node: &NodeFacts, input: &Input) -> Finding {
    let Some(settings) = input.settings else { return Unknown("the settings could not be resolved".into()) };
    if settings.provider.brings().metadata_route == MetadataRoute::Left {
        return Skip("needed on EC2 and GCE only: Azure's route is restored with the others of its adapter".into());
    }
    if settings.network.backend == Backend::None {
        return Skip("no vSwitch is created".into());
    }
    let Some((survey, routes)) = node.survey.as_ref().and_then(|s| Some((s, s.link_local_routes.as_ref()?))) else {
        return unread(node, Part::Survey, "the machine's routes were not read");
    };
    match (routes.get(METADATA), settings.platform.metadata_route) {
        (_, false) => {
            Fail("spec.platform.preserveMetadataRoute is off, so creating the vSwitch removes the route".into())
        }
        (Some(interface), true) => Pass(format!("{METADATA} goes through {interface}")),
        (None, true) if has_switch(survey) => Fail(format!("there is a vSwitch, but no route {METADATA}")),
        (None, true) => Pass("the default route is used; CalicoNode adds this route when there is a vSwitch".into()),
    }
}

/// Whether Calico's networks exist, and with them the vSwitch.
fn has_switch(survey: &Survey) -> bool {
    [networks::PODS, networks::BOOTSTRAP].iter().any(|name| survey.networks.contains_key(*name))
}

fn remote_session(survey: &Survey, _: &NodeFacts, input: &Input) -> Finding {
    if input.remote_access.is_empty() {
        return Skip("not requested; to check it, set spec.preflight.remoteAccess, for example [rdp, winrm]".into());
    }
    let wrong: Vec<String> = input.remote_access.iter().filter_map(|access| unreachable_by(*access, survey)).collect();
    let names: Vec<&str> = input.remote_access.iter().map(|access| access.name()).collect();
    match (wrong.is_empty(), &survey.firewall.unread) {
        (false, _) => Fail(wrong.join("; ")),
        (true, Some(why)) => Unknown(format!("{} listens; the firewall rules were not read: {why}", names.join(", "))),
        (true, None) => Pass(names.join(", ")),
    }
}

/// What prevents remote access of this kind.
fn unreachable_by(access: RemoteAccess, survey: &Survey) -> Option<String> {
    let (name, service) = (access.name(), access.service());
    match survey.service(service) {
        None if !survey.has_service(service) => return Some(format!("{name}: there is no service {service}")),
        Some(found) if !found.running => return Some(format!("{name}: the service {service} is stopped")),
        _ => {}
    }
    let known = |answers: &BTreeMap<u16, bool>| access.ports().iter().any(|port| answers.contains_key(port));
    let yes = |answers: &BTreeMap<u16, bool>, port: &u16| answers.get(port) == Some(&true);
    let ports = joined(access.ports(), " or ");
    let mut listening = access.ports().iter().filter(|port| yes(&survey.tcp_ports, port)).peekable();
    if known(&survey.tcp_ports) && listening.peek().is_none() {
        return Some(format!("{name}: nothing answers on TCP {ports}"));
    }
    let lets_in = &survey.firewall.lets_in;
    // A port that the firewall opens but on which nothing listens does not count.
    let through = access
        .ports()
        .iter()
        .any(|port| yes(lets_in, port) && (yes(&survey.tcp_ports, port) || !known(&survey.tcp_ports)));
    (known(lets_in) && !through).then(|| format!("{name}: the firewall blocks TCP {ports}"))
}
