//! Checks of the cluster: whether it answers, and whether this node is registered there.

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::{Finding, Input, Judge, Row, Severity};
use crate::calico::kubeconfig::OTHER_LOGINS;
use crate::calico::services::{EXECUTABLE, KUBELET};
use crate::facts::{ClusterFacts, ETCD, FLANNEL, LEFT_OUT, Right};
use crate::fault::Exit;
use crate::settings::Credentials;
use crate::values::{Cidr, joined};

pub(super) const ETCD_ANSWERS: &str = "EtcdAnswers";

pub(super) const REACHABLE: &str = "ClusterReachable";

/// By how many seconds clocks may differ before short-lived tokens and certificates fail.
const SKEW: u64 = 60;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: REACHABLE,
        severity: Severity::Hard(Exit::ClusterUnreachable),
        why: "the cluster decides most of how a node is installed, so it must answer",
        fix: "kubectl --kubeconfig FILE get --raw /readyz  # with the same kubeconfig, on the same machine",
        judge: Judge::Cluster(|cluster, _| {
            Pass(format!("{}, Kubernetes {}", cluster.server, cluster.kubernetes_version))
        }),
    },
    Row {
        id: "ApiServerAddress",
        severity: Severity::Error,
        why: "Windows hosts, and Calico on them, cannot reach a ClusterIP: the node's kubeconfig must have the API server's own address",
        fix: "set the API server's own address in the kubeconfig; in a HostProcess pod set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to it, as Calico's ConfigMap kubernetes-services-endpoint does",
        judge: Judge::Cluster(api_server),
    },
    Row {
        id: "ClusterRights",
        severity: Severity::Error,
        why: "missing rights are detected before the node is changed, all of them at once",
        fix: "calicoctl-win explain ClusterRights  # prints a manifest for a cluster administrator",
        judge: Judge::Cluster(rights),
    },
    Row {
        id: "NodeLogin",
        severity: Severity::Error,
        why: "a kubelet gets only tokens that are bound to its pods (NodeRestriction), so with its kubeconfig the node's login must come from elsewhere",
        fix: OTHER_LOGINS,
        judge: Judge::Cluster(node_login),
    },
    Row {
        id: "ClockInSync",
        severity: Severity::Warning,
        why: "tokens and certificates are refused by a machine whose clock is wrong",
        fix: "w32tm /resync\nw32tm /query /status  # shows whether that worked",
        judge: Judge::Cluster(|cluster, _| match cluster.clock_skew {
            None => Unknown("the API server does not report its time".into()),
            Some(seconds) => {
                let side = if seconds < 0 { "behind" } else { "ahead of" };
                let clock = format!("this machine's clock is {} s {side} the API server's", seconds.unsigned_abs());
                if seconds.unsigned_abs() > SKEW { Fail(clock) } else { Pass(clock) }
            }
        }),
    },
    Row {
        id: "CalicoServiceAccount",
        severity: Severity::Error,
        why: "Calico on a Windows node uses the service account calico-node, which Calico on the cluster's Linux nodes brings",
        fix: "install Calico on the cluster's Linux nodes first\nif it is in another namespace, set spec.kubernetes.calicoNamespace",
        judge: Judge::Cluster(|cluster, _| match cluster.no_account_in.as_slice() {
            [] => match cluster.untold("serviceaccounts") {
                Some(why) => Unknown(why.to_owned()),
                None => Pass(format!("in {}", cluster.calico_namespace)),
            },
            looked => Fail(format!("there is no service account calico-node in {}", looked.join(" or "))),
        }),
    },
    Row {
        id: "NodeRegistered",
        severity: Severity::Error,
        why: "Calico writes its addresses to the Kubernetes Node, and fails if there is none",
        fix: "start kubelet so that it registers, or give the registered name with --node-name",
        judge: Judge::Cluster(node_registered),
    },
    Row {
        id: "NodeAddressMatches",
        severity: Severity::Error,
        why: "a Node with this name but none of this machine's addresses is usually another machine",
        fix: "kubectl get node NAME -o wide  # shows the Node's addresses\ngive the name of this machine's own Node with --node-name",
        judge: Judge::Cluster(node_address),
    },
    Row {
        id: "KubeletVersion",
        severity: Severity::Warning,
        why: "a kubelet must not be newer than its API server, nor more than three minor versions older",
        fix: "install the cluster's version of kubelet on this node",
        judge: Judge::Cluster(kubelet_skew),
    },
    Row {
        id: "KubernetesVersion",
        severity: Severity::Error,
        why: "kubelet and kube-proxy must not be newer than the API server, nor more than three minor versions older, and are upgraded one minor version at a time",
        fix: "set spec.kubernetes.node.version to a version that fits, or leave it out for that of the API server",
        judge: Judge::Cluster(kubernetes_version),
    },
    Row {
        id: "DatastoreMatches",
        severity: Severity::Error,
        why: "all nodes of a cluster must use one datastore: with two, neither side sees the other's pods and policies",
        fix: "set spec.datastore.type to what Calico on Linux has: kubectl get daemonset calico-node -A -o yaml shows DATASTORE_TYPE or ETCD_ENDPOINTS",
        judge: Judge::Cluster(datastore),
    },
    Row {
        id: ETCD_ANSWERS,
        severity: Severity::Error,
        why: "Calico keeps its data in etcd, and its services wait until they may read it",
        fix: "check spec.datastore.etcd: the members' addresses and the client's certificate, and the rights of its user",
        judge: Judge::Cluster(|cluster, input| match cluster.untold(ETCD) {
            _ if !input.etcd() => Skip("Calico keeps its data in the Kubernetes API".into()),
            Some(why) => Fail(why.to_owned()),
            None if cluster.etcd_read => Pass("Calico's data was read".into()),
            None => Unknown("etcd was not asked".into()),
        }),
    },
    Row {
        id: "ServiceCidr",
        severity: Severity::Error,
        why: "traffic from pods to services is excluded from outbound NAT only for the service CIDRs of the config",
        fix: "set spec.kubernetes.serviceCIDRs to the cluster's own, or leave it out",
        judge: Judge::Cluster(service_cidr),
    },
    Row {
        id: "DnsServer",
        severity: Severity::Warning,
        why: "pods use only the DNS servers of the config",
        fix: "set spec.kubernetes.dns.servers to the ClusterIP of the service kube-dns, or leave it out",
        judge: Judge::Cluster(dns_server),
    },
    Row {
        id: "LinuxWorker",
        severity: Severity::Error,
        why: "Calico's controllers, Typha and the cluster's DNS run on Linux nodes only",
        fix: "kubectl get nodes -L kubernetes.io/os  # shows the nodes' systems\nadd a Linux node",
        judge: Judge::Cluster(|cluster, _| match cluster.nodes {
            None => untold(cluster, "nodes", "the cluster's nodes were not counted"),
            Some(nodes) if nodes.linux == 0 => Fail(format!("none of the cluster's {} nodes is Linux", nodes.all)),
            Some(nodes) if nodes.linux_workers == 0 => Warn(
                "the only Linux nodes are control-plane nodes; they need capacity for Calico's and the cluster's pods"
                    .into(),
            ),
            Some(nodes) => Pass(format!("Linux workers: {}, Windows nodes: {}", nodes.linux_workers, nodes.windows)),
        }),
    },
    Row {
        id: "FlannelDaemonSet",
        severity: Severity::Refusal(Exit::Conflict),
        why: "a pod of Flannel's DaemonSet runs flanneld as a process of the host, which would create Flannel's network and CNI configuration again after the node has left Flannel",
        fix: "keep the DaemonSet off this node first, for example with a node selector on a label that this node does not have, and wait until its pod is gone\nkubectl get daemonsets -A  # shows its name\nkubectl -n kube-flannel edit daemonset kube-flannel-ds-windows-amd64",
        judge: Judge::Cluster(flannel_daemon_set),
    },
];

fn datastore(cluster: &ClusterFacts, input: &Input<'_>) -> Finding {
    let ours = if input.etcd() { "etcdv3" } else { "kubernetes" };
    match cluster.linux_datastore.as_deref() {
        Some(theirs) if theirs != ours => Fail(format!("the config says {ours}, Calico on Linux has {theirs}")),
        Some(theirs) => Pass(theirs.to_owned()),
        None => match cluster.untold("daemonsets") {
            Some(why) => Unknown(why.to_owned()),
            None => Skip("neither the DaemonSet calico-node nor calico-config shows the Linux nodes' datastore".into()),
        },
    }
}

/// Why a question has no answer: the cluster's reason, or else this text.
pub(super) fn untold(cluster: &ClusterFacts, question: &str, otherwise: &str) -> Finding {
    match cluster.untold(question) {
        Some(LEFT_OUT) => Skip(LEFT_OUT.into()),
        why => Unknown(why.unwrap_or(otherwise).to_owned()),
    }
}

/// Whether the API server's address is one that only pods can reach.
fn api_server(cluster: &ClusterFacts, input: &Input) -> Finding {
    let Some(settings) = input.settings else { return without_settings(input) };
    let rest = cluster.server.split_once("://").map_or(cluster.server.as_str(), |(_, rest)| rest);
    let rest = rest.split('/').next().unwrap_or_default();
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    let Ok(address) = host.parse::<std::net::Ipv4Addr>() else {
        let inside = host.ends_with(".svc") || host.contains(".svc.") || host == "kubernetes.default";
        let what = format!("{host} is a name inside the cluster, which a Windows host cannot resolve");
        return if inside { Fail(what) } else { Pass(cluster.server.clone()) };
    };
    let within = |cidrs: &[Cidr]| cidrs.iter().any(|cidr| cidr.contains(&address));
    let service = cluster.kubernetes_service_ips.iter().any(|ip| ip == host);
    match service || within(&cluster.service_cidrs) || within(&settings.kubernetes.service_cidrs) {
        true => Fail(format!("the API server's address {host} is a ClusterIP, which a Windows host cannot reach")),
        false => Pass(cluster.server.clone()),
    }
}

/// What a check of a node's settings finds if there are none.
fn without_settings(input: &Input) -> Finding {
    match input.node {
        Some(_) => Unknown("the settings could not be resolved".into()),
        None => Skip("no node was examined".into()),
    }
}

/// Whether this is the right that decides [`node_login`].
fn is_of_login(cluster: &ClusterFacts, right: &Right) -> bool {
    cluster.kubelet_of.is_some() && ["secrets", "serviceaccounts/token"].contains(&right.resource.as_str())
}

fn node_login(cluster: &ClusterFacts, input: &Input) -> Finding {
    let Some(node) = &cluster.kubelet_of else {
        return match cluster.untold("selfsubjectreviews") {
            Some(why) => Unknown(why.to_owned()),
            None => Pass("the kubeconfig is not kubelet's own".into()),
        };
    };
    let who = format!("the kubeconfig is that of kubelet on {node}");
    match input.kubernetes().and_then(|kubernetes| kubernetes.credentials) {
        None => Skip("the node needs no login".into()),
        Some(Credentials::TokenRequest) => Fail(format!("{who}, which gets no token for calico-node")),
        Some(Credentials::Secret) => {
            let Some(missing) = &cluster.missing_rights else {
                return untold(cluster, "selfsubjectaccessreviews", "the user's rights were not read");
            };
            match missing.iter().find(|right| is_of_login(cluster, right)) {
                Some(right) => Fail(format!("{who}, which gets no token for calico-node, and may not {right}")),
                None => Warn(format!("{who}, so the node gets the token of a secret, which does not expire")),
            }
        }
        Some(Credentials::Kubeconfig | Credentials::HostProcess) => {
            Pass("the login is not that of the kubeconfig".into())
        }
    }
}

fn rights(cluster: &ClusterFacts, _: &Input) -> Finding {
    let Some(missing) = &cluster.missing_rights else {
        return untold(cluster, "selfsubjectaccessreviews", "the user's rights were not read");
    };
    let list = |needed: bool, for_changes: bool| {
        let those = missing.iter().filter(|right| right.needed == needed && right.for_changes == for_changes);
        let those = those.filter(|right| !is_of_login(cluster, right));
        joined(those, ", ")
    };
    let (needed, checks, changes) = (list(true, false), list(false, false), list(false, true));
    if !needed.is_empty() {
        return Fail(format!("the kubeconfig's user may not {needed}"));
    }
    let left_out = |what: &str, rights: &str| format!("{what}, because the kubeconfig's user may not {rights}");
    let parts: Vec<String> = [("some checks are skipped", checks), ("reconfigure would be refused", changes)]
        .iter()
        .filter(|(_, rights)| !rights.is_empty())
        .map(|(what, rights)| left_out(what, rights))
        .collect();
    if parts.is_empty() { Pass("all required rights".into()) } else { Warn(parts.join("; ")) }
}

/// Whether this program runs kubelet, now or after the run: it leaves a kubelet that another program made.
fn installs_kubelet(input: &Input) -> bool {
    let wanted = input.settings.is_some_and(|settings| settings.kubernetes_node.is_some());
    let others = input.node.and_then(|node| node.survey.as_ref()).is_some_and(|survey| {
        survey.has_service(KUBELET) && !survey.service(KUBELET).is_some_and(|service| is_our_kubelet(&service.command))
    });
    wanted && !others
}

fn is_our_kubelet(command: &[String]) -> bool {
    matches!(command, [program, rest @ ..] if program.eq_ignore_ascii_case(EXECUTABLE) && rest == ["service", "run", "kubelet"])
}

/// Flannel that the cluster runs on this node, or would.
fn flannel_daemon_set(cluster: &ClusterFacts, input: &Input) -> Finding {
    if let Some(skip) = input.other_plugin() {
        return skip;
    }
    let Some(flannel) = &cluster.flannel else {
        return match cluster.untold(FLANNEL) {
            Some(why) => Unknown(why.to_owned()),
            None => Skip("nothing of Flannel is on this machine".into()),
        };
    };
    if let Some(pod) = flannel.pods.first() {
        return Fail(format!("the cluster runs Flannel on this node: pod {pod}"));
    }
    match flannel.daemon_sets.first() {
        Some(set) => Fail(format!("the DaemonSet {set} selects this node: the cluster would run Flannel here")),
        None => Pass("no DaemonSet of Flannel selects this node".into()),
    }
}

/// A kubelet that this program installs: the skew to the API server, and one minor version at a time.
fn kubernetes_version(cluster: &ClusterFacts, input: &Input) -> Finding {
    let Some(settings) = input.settings else { return without_settings(input) };
    let Some(wanted) = settings.kubernetes_node.as_ref().map(|node| node.version) else {
        return Skip("kubelet and kube-proxy are not installed by this program".into());
    };
    let Some((_, server)) = minor(&cluster.kubernetes_version) else {
        return Unknown(format!("the API server's version `{}` cannot be read", cluster.kubernetes_version));
    };
    if wanted.minor > server {
        return Fail(format!("{wanted} is newer than the API server {}", cluster.kubernetes_version));
    }
    if wanted.minor + 3 < server {
        return Fail(format!("{wanted} is {} minor versions older than the API server", server - wanted.minor));
    }
    let survey = input.node.and_then(|node| node.survey.as_ref());
    let ours =
        survey.and_then(|survey| survey.service(KUBELET)).is_some_and(|kubelet| is_our_kubelet(&kubelet.command));
    let current = cluster.node.as_ref().filter(|_| ours).and_then(|node| minor(&node.kubelet_version));
    match current {
        Some((_, current)) if wanted.minor > current + 1 => Fail(format!(
            "kubelet is v1.{current}: the next minor version is v1.{}, and the config says {wanted}",
            current + 1
        )),
        Some((_, current)) if wanted.minor < current => {
            Fail(format!("kubelet is v1.{current}, and {wanted} is older: it cannot read what the newer one wrote"))
        }
        _ => Pass(wanted.to_string()),
    }
}

fn node_registered(cluster: &ClusterFacts, input: &Input) -> Finding {
    let Some(settings) = input.settings else { return without_settings(input) };
    match &cluster.node {
        Some(node) if !node.os.is_empty() && node.os != "windows" => {
            Fail(format!("the Node {} is a {} machine", node.name, node.os))
        }
        Some(node) => Pass(node.name.clone()),
        None if !settings.services.start => Skip("the services are not started".into()),
        None if installs_kubelet(input) => Skip("kubelet, which this program installs, creates it".into()),
        None => Fail(match &cluster.node_with_our_address {
            Some(other) => format!(
                "the cluster has no Node {}, but the Node {other} has this machine's address: give --node-name {other}",
                settings.node_name
            ),
            None => format!("the cluster has no Node {}", settings.node_name),
        }),
    }
}

fn node_address(cluster: &ClusterFacts, input: &Input) -> Finding {
    let (Some(node), Some(machine)) = (&cluster.node, input.node) else {
        return Skip("no Node and machine to compare".into());
    };
    if node.internal_ips.is_empty() {
        return Unknown(format!("the Node {} has no InternalIP yet", node.name));
    }
    let addresses = machine.adapters.iter().flat_map(|adapter| &adapter.addresses).map(|net| net.addr());
    let ours: Vec<String> =
        addresses.filter(|ip| !ip.is_link_local() && !ip.is_loopback()).map(|ip| ip.to_string()).collect();
    if ours.is_empty() {
        return Skip("this machine has no address to compare".into());
    }
    match node.internal_ips.iter().find(|ip| ours.contains(ip)) {
        Some(ip) => Pass(ip.clone()),
        None => Fail(format!(
            "the Node {} has {}, and this machine {}",
            node.name,
            node.internal_ips.join(", "),
            ours.join(", ")
        )),
    }
}

/// Major and minor of `v1.33.2` or `v1.33.2-eks-1234`.
pub fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.trim_end_matches(|c: char| !c.is_ascii_digit());
    Some((major, minor.parse().ok()?))
}

fn kubelet_skew(cluster: &ClusterFacts, _: &Input) -> Finding {
    let Some(node) = &cluster.node else { return Skip("the Node is not registered".into()) };
    let kubelet = &node.kubelet_version;
    let (Some((_, own)), Some((_, server))) = (minor(kubelet), minor(&cluster.kubernetes_version)) else {
        return Unknown(format!("`{kubelet}` and `{}` cannot be compared", cluster.kubernetes_version));
    };
    if own > server {
        Fail(format!("kubelet {kubelet} is newer than the API server {}", cluster.kubernetes_version))
    } else if own + 3 < server {
        Fail(format!("kubelet {kubelet} is {} minor versions older than the API server", server - own))
    } else {
        Pass(kubelet.clone())
    }
}

fn service_cidr(cluster: &ClusterFacts, input: &Input) -> Finding {
    let Some(kubernetes) = input.kubernetes() else { return Skip("there is no config to compare with".into()) };
    let own = &kubernetes.service_cidrs;
    let shown = |cidrs: &[Cidr]| joined(cidrs, ", ");
    let inside = |ip: &std::net::Ipv4Addr| own.iter().any(|cidr| cidr.contains(ip));
    let service = cluster.kubernetes_service_ips.iter().find_map(|ip| ip.parse().ok());
    if let Some(ip) = service.filter(|ip| !inside(ip)) {
        return Fail(format!("the service kubernetes has {ip}, which is outside {}", shown(own)));
    }
    let theirs = &cluster.service_cidrs;
    if let Some(cidr) = theirs.iter().find(|cidr| !own.iter().any(|own| own.contains(&***cidr))) {
        return Fail(format!("the cluster's services have {cidr}, the config has {}", shown(own)));
    }
    if service.is_none() && theirs.is_empty() {
        return untold(cluster, "services", "the cluster does not show its service CIDR");
    }
    Pass(shown(own))
}

fn dns_server(cluster: &ClusterFacts, input: &Input) -> Finding {
    let Some(kubernetes) = input.kubernetes() else { return Skip("there is no config to compare with".into()) };
    let own = &kubernetes.dns_servers;
    let shown = joined(own, ", ");
    match cluster.dns_service_ip {
        Some(ip) if own.contains(&ip) => Pass(shown),
        Some(ip) => Fail(format!("the service kube-dns has {ip}, the config has {shown}")),
        None => untold(cluster, "services", "the cluster has no service kube-system/kube-dns"),
    }
}
