//! Checks of what runs in the cluster beside this node: Calico's version, its operator, Typha, BGP.

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::cluster::untold;
use super::{Finding, Input, Judge, Row, Severity};
use crate::calico::layout::Layout;
use crate::facts::{ApiGroup, ClusterFacts};
use crate::fault::Exit;
use crate::settings::Backend;
use crate::version::CalicoVersion;

/// Up to how many nodes Calico needs no Typha (Calico's installation guide), and how many one Typha
/// serves.
const NODES_WITHOUT_TYPHA: usize = 50;
const NODES_PER_TYPHA: usize = 200;

/// How many Linux workers the operator needs for a highly available Typha (Calico's requirements for Windows).
const WORKERS_FOR_TYPHA: usize = 3;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "NoHostProcessCalico",
        severity: Severity::Hard(Exit::Conflict),
        why: "Calico's HostProcess pods remove the services CalicoNode, CalicoFelix and kube-proxy each time they start",
        fix: "to keep Calico's HostProcess pods, install nothing here; to replace them, disable them first:\nkubectl patch installation default --type=merge -p \"spec: {calicoNetwork: {windowsDataplane: Disabled}}\"",
        judge: Judge::Cluster(host_process),
    },
    Row {
        id: "CalicoVersion",
        severity: Severity::Error,
        why: "Calico for Windows supports clusters whose Linux nodes run Calico v3.12 or later",
        fix: "upgrade Calico on the Linux nodes first",
        judge: Judge::Calico("calicoctl get clusterinformation default -o yaml", |cluster, _| {
            match linux_version(cluster) {
                Err(finding) => finding,
                Ok(linux) if !linux.reaches(3, 12, 0) => Fail(format!("the Linux nodes run {linux}")),
                Ok(linux) => Pass(linux.to_string()),
            }
        }),
    },
    Row {
        id: "CalicoVersionMatchesLinux",
        severity: Severity::Error,
        why: "a release newer than the Linux nodes' writes fields that their CRDs drop and needs rights that their role lacks: addresses leak, and new pods get no network. An older one is a warning, because it is normal during an upgrade",
        fix: "upgrade Calico on the Linux nodes first, or install the release that they run: --release VERSION",
        judge: Judge::Calico("calicoctl get clusterinformation default -o yaml", version_skew),
    },
    Row {
        id: "ApiGroupSupported",
        severity: Severity::Error,
        why: "Calico before v3.32 does not find its resources in projectcalico.org/v3",
        fix: "install v3.32.0 or later: --release VERSION",
        judge: Judge::Cluster(|cluster, input| match (cluster.api_group, input.release()) {
            _ if cluster.calico_unread() => Skip("the cluster serves no Calico resources".into()),
            (ApiGroup::V1, _) => Pass(ApiGroup::V1.to_string()),
            (ApiGroup::V3, None) => Unknown("no release is named".into()),
            (ApiGroup::V3, Some(version)) if Layout::of(version).is_ok_and(|it| it.knows_api_group()) => {
                Pass(ApiGroup::V3.to_string())
            }
            (ApiGroup::V3, Some(version)) => {
                Fail(format!("the cluster has {} only, which {version} does not support", ApiGroup::V3))
            }
        }),
    },
    Row {
        id: "WindowsBgpRelease",
        severity: Severity::Error,
        why: "some releases do not configure BGP on Windows: v3.32.0 and v3.32.1 have templates that fail, and failures are reported since v3.30.3",
        fix: "install a release before v3.30.3 or after v3.32.1 for windows-bgp, or use VXLAN",
        judge: Judge::Cluster(windows_bgp_release),
    },
    Row {
        id: "BgpPeers",
        severity: Severity::Warning,
        why: "RemoteAccess does not support BGP passwords, filters or ports, and supports one peer per address: the rest is ignored silently",
        fix: "kubectl get bgppeers -o yaml  # shows the peers\nexclude Windows nodes from such peers with nodeSelector",
        judge: Judge::Calico("calicoctl get bgppeers -o yaml", bgp_peers),
    },
    Row {
        id: "Typha",
        severity: Severity::Warning,
        why: "without Typha every node reads the datastore itself, which overloads the API server of a large cluster",
        fix: "kubectl -n NAMESPACE get deployment calico-typha  # shows its replicas\nscale it to one replica for each 200 nodes",
        judge: Judge::Cluster(typha),
    },
    Row {
        id: "TyphaWorkers",
        severity: Severity::Warning,
        why: "Typha runs on Linux nodes only; with the operator it is highly available from three Linux workers on",
        fix: "kubectl get nodes -L kubernetes.io/os  # shows the nodes' systems\nadd Linux workers",
        judge: Judge::Cluster(typha_workers),
    },
    Row {
        id: "RouteReflectors",
        severity: Severity::Warning,
        why: "a Windows node cannot be a BGP route reflector, so its peers do not get each other's routes from it",
        fix: "kubectl annotate node NAME projectcalico.org/RouteReflectorClusterID-  # the node is no route reflector any more\nmake a Linux node the route reflector",
        judge: Judge::Cluster(route_reflectors),
    },
    Row {
        id: "ServiceAdvertisement",
        severity: Severity::Warning,
        why: "Windows nodes do not advertise the addresses of services by BGP, only Linux nodes do",
        fix: "nothing, if traffic to these addresses may enter through Linux nodes",
        judge: Judge::Calico("calicoctl get bgpconfiguration default -o yaml", service_advertisement),
    },
];

fn host_process(cluster: &ClusterFacts, _: &Input) -> Finding {
    if let Some(pod) = cluster.host_process.as_ref().and_then(|found| found.pod_here.as_ref()) {
        return Fail(format!("the pod {}/{pod} runs Calico on this node", cluster.calico_namespace));
    }
    if cluster.operator.as_ref().is_some_and(|operator| operator.windows_dataplane.as_deref() == Some("HNS")) {
        return Fail(
            "the operator's Installation has windowsDataplane: HNS, so its pods run on every Windows node".into(),
        );
    }
    match (&cluster.host_process, cluster.untold("installations")) {
        (Some(found), _) if found.daemon_set => {
            Warn("there is a DaemonSet calico-node-windows; it has no pod on this node".into())
        }
        (None, _) => untold(cluster, "daemonsets", "HostProcess pods were not looked for"),
        (_, Some(why)) => Unknown(why.to_owned()),
        _ => Pass("none".into()),
    }
}

/// The version of Calico on the Linux nodes.
fn linux_version(cluster: &ClusterFacts) -> Result<CalicoVersion, Finding> {
    let Some(text) = &cluster.calico_version else {
        return Err(Unknown(
            "neither the DaemonSet calico-node nor ClusterInformation shows the cluster's Calico version".into(),
        ));
    };
    text.parse().map_err(Unknown)
}

fn version_skew(cluster: &ClusterFacts, input: &Input) -> Finding {
    let linux = match linux_version(cluster) {
        Ok(linux) => linux,
        Err(finding) => return finding,
    };
    match input.release() {
        None => Skip(format!("the Linux nodes run {linux}, and no release is named to compare with")),
        Some(own) if own.line() == linux.line() => Pass(format!("{own}, the Linux nodes run {linux}")),
        Some(own) if own.line() > linux.line() => {
            Fail(format!("the Linux nodes run {linux}, and the release to install is newer: {own}"))
        }
        Some(own) => Warn(format!("the Linux nodes run {linux}, and the release to install is {own}")),
    }
}

fn windows_bgp_release(_: &ClusterFacts, input: &Input) -> Finding {
    match input.network() {
        None => return Unknown("no backend is decided".into()),
        Some(network) if network.backend != Backend::WindowsBgp => return Skip("BGP is not used".into()),
        Some(_) => {}
    }
    let Some(version) = input.release() else { return Unknown("no release is named".into()) };
    if version.is_line(3, 32) && !version.reaches(3, 32, 2) {
        return Fail(format!("{version}'s templates for BGP on Windows fail"));
    }
    if version.reaches(3, 30, 3) && !version.reaches(3, 33, 0) {
        return Warn(format!(
            "failures of BGP on Windows are reported for {version}: look at Get-BgpRouter afterwards"
        ));
    }
    Pass(version.to_string())
}

fn bgp_peers(cluster: &ClusterFacts, input: &Input) -> Finding {
    if input.network().is_some_and(|network| network.backend != Backend::WindowsBgp) {
        return Skip("BGP is not used".into());
    }
    let Some(bgp) = &cluster.bgp else {
        return untold(cluster, "bgppeers", "the BGP peers were not read");
    };
    let mut lost = bgp.unsupported.clone();
    if bgp.mesh_password {
        lost.push("the node mesh: password".into());
    }
    lost.extend(bgp.duplicates.iter().map(|ip| format!("{ip}: more than one peer")));
    match lost.is_empty() {
        true => Pass(format!("peers: {}", bgp.peers)),
        false => Fail(format!("Windows ignores {}", lost.join("; "))),
    }
}

fn typha(cluster: &ClusterFacts, _: &Input) -> Finding {
    let Some(nodes) = cluster.nodes else {
        return untold(cluster, "nodes", "the cluster's nodes were not counted");
    };
    if cluster.untold("deployments").is_some() {
        return untold(cluster, "deployments", "");
    }
    let Some(typha) = cluster.typha else {
        return match nodes.all > NODES_WITHOUT_TYPHA {
            true => Fail(format!("{} nodes, and there is no Typha", nodes.all)),
            false => Pass(format!("not needed for {} nodes", nodes.all)),
        };
    };
    let enough = nodes.all.div_ceil(NODES_PER_TYPHA);
    if typha.ready < typha.wanted {
        Fail(format!("{} of {} Typha pods are ready", typha.ready, typha.wanted))
    } else if (typha.wanted as usize) < enough {
        Fail(format!("Typha pods: {} for {} nodes", typha.wanted, nodes.all))
    } else {
        Pass(format!("{} ready", typha.ready))
    }
}

/// Reference: Calico's requirements for Windows, which name three workers for clusters of the operator.
fn typha_workers(cluster: &ClusterFacts, _: &Input) -> Finding {
    let needed = ["nodes", "deployments", "installations"];
    if let Some(question) = needed.into_iter().find(|question| cluster.untold(question).is_some()) {
        return untold(cluster, question, "");
    }
    match (cluster.typha, &cluster.operator, cluster.nodes) {
        (None, ..) => Skip("there is no Typha".into()),
        (_, None, _) => Skip("the operator does not manage Calico".into()),
        (.., None) => Unknown("the cluster's nodes were not counted".into()),
        (.., Some(nodes)) if nodes.linux_workers < WORKERS_FOR_TYPHA => {
            Fail(format!("Linux workers: {}, and Typha needs {WORKERS_FOR_TYPHA}", nodes.linux_workers))
        }
        (.., Some(nodes)) => Pass(format!("Linux workers: {}", nodes.linux_workers)),
    }
}

/// Reference: Calico's requirements for Windows, "Windows node cannot act as route reflectors".
fn route_reflectors(cluster: &ClusterFacts, input: &Input) -> Finding {
    match input.network() {
        None => return Unknown("no backend is decided".into()),
        Some(network) if network.backend != Backend::WindowsBgp => return Skip("BGP is not used".into()),
        Some(_) => {}
    }
    match &cluster.node {
        None if input.node.is_none() => Skip("no node was examined".into()),
        None => Unknown("the Node is not registered".into()),
        Some(node) => match &node.route_reflector {
            Some(id) => Fail(format!("the Node {} has RouteReflectorClusterID {id}", node.name)),
            None => Pass("this node is none".into()),
        },
    }
}

/// Reference: Calico's page on limitations of Windows.
fn service_advertisement(cluster: &ClusterFacts, _: &Input) -> Finding {
    if cluster.untold("bgpconfigurations").is_some() {
        return untold(cluster, "bgpconfigurations", "");
    }
    match &cluster.bgp {
        None => untold(cluster, "bgppeers", "BGP's configuration was not read"),
        Some(bgp) if bgp.advertised.is_empty() => Pass("none".into()),
        Some(bgp) => Fail(format!("BGPConfiguration has {}", bgp.advertised.join("; "))),
    }
}
