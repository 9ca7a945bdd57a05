//! Checks of the platform: what a cloud or a distribution needs for Windows nodes, and what of the
//! machine it keeps to itself.

use std::collections::BTreeMap;

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::cluster::untold;
use super::node::unread;
use super::{Finding, Input, Judge, Row, Severity};
use crate::calico::networks;
use crate::facts::{ClusterFacts, EksFacts, NodeFacts, Part, Survey};
use crate::fault::Exit;
use crate::settings::{Backend, Provider, RemoteAccess};

const GROUP: &str = "platform";

/// Where all clouds have their metadata service.
const METADATA: &str = "169.254.169.254/32";

/// The Windows service by which OpenShift's operator keeps a machine as it wants it.
const WICD: &str = "windows-instance-config-daemon";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "WmcoManagedNode",
        group: GROUP,
        severity: Severity::Refusal(Exit::Conflict),
        why: "OpenShift's Windows Machine Config Operator owns this node's services and networks, and puts its own back",
        fix: "use OVN-Kubernetes on that node; where you know that the operator leaves Calico alone: --ignore-preflight-errors WmcoManagedNode",
        judge: Judge::Cluster(wmco),
    },
    Row {
        id: "EksWindowsNetworking",
        group: GROUP,
        severity: Severity::Warning,
        why: "on EKS Amazon's VPC controller gives Windows pods their addresses; without it none starts, whatever Calico does",
        fix: "kubectl -n kube-system patch configmap amazon-vpc-cni --type=merge -p '{\"data\":{\"enable-windows-ipam\":\"true\"}}'",
        judge: Judge::Cluster(|cluster, _| match &cluster.eks {
            None => not_eks(),
            Some(eks) => vpc_controller(cluster, eks),
        }),
    },
    Row {
        id: "EksInstanceRole",
        group: GROUP,
        severity: Severity::Warning,
        why: "the role of Windows instances must be in the group eks:kube-proxy-windows, or kube-proxy may not read Services and EndpointSlices",
        fix: "kubectl -n kube-system edit configmap aws-auth, and add eks:kube-proxy-windows to the groups of the instances' role; or make an access entry of the type EC2_WINDOWS",
        judge: Judge::Cluster(|cluster, _| match &cluster.eks {
            None => not_eks(),
            Some(eks) => instance_role(cluster, eks),
        }),
    },
    Row {
        id: "EksManagedNodeGroup",
        group: GROUP,
        severity: Severity::Warning,
        why: "EKS replaces the machines of a managed node group at each update and repair, and what was installed on them is gone",
        fix: "put the install into the user data of the group's launch template, or use self-managed nodes",
        judge: Judge::Cluster(|cluster, input| match (&cluster.eks, &cluster.node) {
            (None, _) => not_eks(),
            (Some(_), None) if input.node.is_none() => Skip("no node was looked at".into()),
            (Some(_), None) => Unknown("the Node is not registered".into()),
            (Some(_), Some(node)) => match node.labels.get("eks.amazonaws.com/nodegroup") {
                Some(group) => Fail(format!("the Node {} is of the managed node group {group}", node.name)),
                None => Pass("the node is of no managed node group".into()),
            },
        }),
    },
    Row {
        id: "MetadataRoute",
        group: GROUP,
        severity: Severity::Warning,
        why: "a new vSwitch loses the route to the cloud's metadata service, and with it the instance's credentials and name",
        fix: "set spec.platform.preserveMetadataRoute: true and run install again\nNew-NetRoute -DestinationPrefix 169.254.169.254/32 -InterfaceAlias 'vEthernet (Ethernet)'  # the same by hand",
        judge: Judge::Node(metadata_route),
    },
    Row {
        id: "RemoteSession",
        group: GROUP,
        severity: Severity::Error,
        why: "the vSwitch cuts sessions, and a way back in that does not work leaves the machine's console as the only one",
        fix: "Enable-PSRemoting  # opens WinRM\nSet-ItemProperty 'HKLM:\\System\\CurrentControlSet\\Control\\Terminal Server' fDenyTSConnections 0  # allows RDP\nEnable-NetFirewallRule -DisplayGroup 'Remote Desktop'  # opens the firewall for RDP",
        judge: Judge::Node(remote_session),
    },
];

fn not_eks() -> Finding {
    Skip("this is no EKS cluster".into())
}

fn wmco(cluster: &ClusterFacts, input: &Input) -> Finding {
    let survey = input.node.and_then(|node| node.survey.as_ref());
    if let Some((node, version)) = cluster.node.as_ref().and_then(|node| Some((node, node.wmco.as_ref()?))) {
        return Fail(format!("the Windows Machine Config Operator {version} manages the Node {}", node.name));
    }
    if survey.is_some_and(|survey| survey.service(WICD).is_some()) {
        return Fail(format!("the operator's service {WICD} is on this machine"));
    }
    match (cluster.openshift, &cluster.node, survey) {
        _ if input.node.is_none() && cluster.node.is_none() => Skip("no node was looked at".into()),
        (_, None, None) => Unknown("neither the Node nor the machine's services were looked at".into()),
        (true, ..) => Warn("OpenShift, and this node is not its operator's: Calico is not supported there".into()),
        (false, ..) => Pass("nobody else manages this node".into()),
    }
}

/// What gives Windows pods their addresses, and the questions that tell of it.
const VPC_QUESTIONS: [&str; 3] = ["amazon-vpc-cni", "vpc-resource-controller", "vpc-admission-webhook"];

fn vpc_controller(cluster: &ClusterFacts, eks: &EksFacts) -> Finding {
    let refused = VPC_QUESTIONS.iter().find_map(|question| cluster.untold(question));
    match (eks.windows_ipam, eks.controllers.as_slice(), refused) {
        (Some(true), ..) => Pass("enable-windows-ipam is true".into()),
        (_, [one, other], _) => Pass(format!("{one} and {other} are there")),
        // What we may not see may be there.
        (.., Some(why)) => Unknown(why.to_owned()),
        (_, [one], _) => Fail(format!("of the older controllers only {one} is there")),
        (None, ..) => Fail("there is neither a ConfigMap amazon-vpc-cni nor the older vpc-resource-controller".into()),
        (Some(false), ..) => Fail("the ConfigMap amazon-vpc-cni has no enable-windows-ipam: true".into()),
    }
}

/// Access entries are kept by EKS beside the cluster, and not seen from inside; what they gave a node is.
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
            "there is no ConfigMap aws-auth, so access entries decide, which are not seen from inside the cluster: \
             aws eks list-access-entries --cluster-name NAME",
        ),
    }
}

fn metadata_route(node: &NodeFacts, input: &Input) -> Finding {
    let Some(settings) = input.settings else { return Unknown("no settings could be made".into()) };
    if !matches!(settings.provider, Provider::Ec2 | Provider::Gce) {
        return Skip("no cloud whose route the vSwitch takes".into());
    }
    if settings.network.backend == Backend::None {
        return Skip("no vSwitch is made".into());
    }
    let Some((survey, routes)) = node.survey.as_ref().and_then(|s| Some((s, s.link_local_routes.as_ref()?))) else {
        return unread(node, Part::Survey, "the machine's routes were not looked at");
    };
    match (routes.get(METADATA), settings.platform.metadata_route) {
        (_, false) => Fail("spec.platform.preserveMetadataRoute is off, so the vSwitch takes the route away".into()),
        (Some(interface), true) => Pass(format!("{METADATA} goes by {interface}")),
        (None, true) if has_switch(survey) => Fail(format!("there is a vSwitch, and no route {METADATA}")),
        (None, true) => Pass("by the default route; CalicoNode makes one when the vSwitch is there".into()),
    }
}

/// Whether Calico's networks, and with them the vSwitch, are there.
fn has_switch(survey: &Survey) -> bool {
    [networks::PODS, networks::BOOTSTRAP].iter().any(|name| survey.networks.contains_key(*name))
}

fn remote_session(node: &NodeFacts, input: &Input) -> Finding {
    if input.remote_access.is_empty() {
        return Skip("nobody asked: spec.preflight.remoteAccess, as [rdp, winrm]".into());
    }
    let Some(survey) = &node.survey else {
        return unread(node, Part::Survey, "the machine's services were not looked at");
    };
    let wrong: Vec<String> = input.remote_access.iter().filter_map(|access| unreachable_by(*access, survey)).collect();
    let names: Vec<&str> = input.remote_access.iter().map(|access| access.name()).collect();
    match (wrong.is_empty(), &survey.firewall.unread) {
        (false, _) => Fail(wrong.join("; ")),
        (true, Some(why)) => {
            Unknown(format!("{} listens; whether the firewall lets anybody in: {why}", names.join(", ")))
        }
        (true, None) => Pass(names.join(", ")),
    }
}

/// What keeps people from reaching the machine so.
fn unreachable_by(access: RemoteAccess, survey: &Survey) -> Option<String> {
    let (name, service) = (access.name(), access.service());
    match survey.service(service) {
        None => return Some(format!("{name}: there is no service {service}")),
        Some(found) if !found.running => return Some(format!("{name}: the service {service} is stopped")),
        Some(_) => {}
    }
    let known = |answers: &BTreeMap<u16, bool>| access.ports().iter().any(|port| answers.contains_key(port));
    let yes = |answers: &BTreeMap<u16, bool>, port: &u16| answers.get(port) == Some(&true);
    let ports: Vec<String> = access.ports().iter().map(ToString::to_string).collect();
    let mut listening = access.ports().iter().filter(|port| yes(&survey.tcp_ports, port)).peekable();
    if known(&survey.tcp_ports) && listening.peek().is_none() {
        return Some(format!("{name}: nothing answers on TCP {}", ports.join(" or ")));
    }
    let lets_in = &survey.firewall.lets_in;
    // A port that lets people in and has nobody behind it is no way.
    let through = access
        .ports()
        .iter()
        .any(|port| yes(lets_in, port) && (yes(&survey.tcp_ports, port) || !known(&survey.tcp_ports)));
    (known(lets_in) && !through).then(|| format!("{name}: the firewall lets nobody in on TCP {}", ports.join(" or ")))
}
