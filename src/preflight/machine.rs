//! Checks of what else is on the machine: other network plugins, kubelet and kube-proxy, what an
//! earlier install left.

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::cluster::minor;
use super::node::unread;
use super::{Finding, Input, Judge, Row, Severity};
use crate::calico::networks;
use crate::calico::services::{CONFD, FELIX, NODE};
use crate::facts::{Features, NodeFacts, Part, RuntimeKind, Survey};
use crate::settings::{Backend, Provider};

const GROUP: &str = "machine";

/// A release takes some 250 MB unpacked, and the former one is kept until the new one stands.
const ROOM: u64 = 1 << 30;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "RuntimeRunning",
        group: GROUP,
        severity: Severity::Error,
        why: "kubelet and the pods' network need a container runtime that runs",
        fix: "Start-Service containerd\ncalicoctl-win preflight --fix does the same after asking",
        judge: Judge::Node(|node, _| {
            let Some(survey) = &node.survey else { return not_surveyed(node) };
            match runtime_service(node, survey) {
                None => Skip("the runtime is no service here".into()),
                Some((name, true)) => Pass(name.into()),
                Some((name, false)) => Fail(format!("the service {name} is stopped")),
            }
        }),
    },
    Row {
        id: "OtherCni",
        group: GROUP,
        severity: Severity::Error,
        why: "a container runtime takes the first configuration in its CNI folder, so a second plugin decides by its file's name which one is used",
        fix: "move the other plugin's file out of the CNI folder, or choose backend none where that plugin is to stay",
        judge: Judge::Node(other_cni),
    },
    Row {
        id: "Flannel",
        group: GROUP,
        severity: Severity::Error,
        why: "Flannel's HNS network holds the adapter that Calico needs, and flanneld makes it again",
        fix: "drain the node first, then run these one at a time:\nStop-Service flanneld  # no more routes for pods on Flannel's network\nsc.exe delete flanneld  # removes the service\nGet-HnsNetwork | Where-Object Name -in vxlan0, cbr0 | Remove-HnsNetwork  # pods on Flannel's network lose it\nat last, restart the machine, which ends what still runs on it",
        judge: Judge::Node(flannel),
    },
    Row {
        id: "RoutingFeature",
        group: GROUP,
        severity: Severity::Error,
        why: "on Windows BGP is done by the role RemoteAccess with Routing",
        fix: "Install-WindowsFeature RemoteAccess,RSAT-RemoteAccess-PowerShell,Routing\nInstall-RemoteAccess -VpnType RoutingOnly\nat last, drain the node and restart the machine",
        judge: Judge::Node(|node, input| match (input.network(), node.features) {
            (None, _) => Unknown("no backend is decided".into()),
            (Some(network), _) if network.backend != Backend::WindowsBgp => Skip("BGP is not used".into()),
            (Some(_), None) => unread(node, Part::Features, "nobody looked for Windows features"),
            (Some(_), Some(Features { remote_access: true, .. })) => Pass("RemoteAccess is there".into()),
            (Some(_), Some(_)) => Fail("the Windows feature RemoteAccess with Routing is missing".into()),
        }),
    },
    Row {
        id: "UdpPort4789",
        group: GROUP,
        severity: Severity::Error,
        why: "a program that listens on UDP 4789 gets the packets that are the pods'",
        fix: "Get-NetUDPEndpoint -LocalPort 4789 | select OwningProcess, and stop that program",
        judge: Judge::Node(|node, input| {
            match (input.network(), node.survey.as_ref().and_then(|s| s.vxlan_port_free)) {
                (Some(network), _) if network.backend != Backend::Vxlan => Skip("VXLAN is not used".into()),
                (_, None) => unread(node, Part::Survey, "it was not tried whether the port is free"),
                (_, Some(true)) => Pass("free".into()),
                (_, Some(false)) => Fail("a program listens on UDP 4789".into()),
            }
        }),
    },
    Row {
        id: "KubeletAfterCalico",
        group: GROUP,
        severity: Severity::Warning,
        why: "Windows does not start a kubelet that depends on a Calico service that is not installed (error 1075); one that depends on an installed one is stopped and started with it",
        fix: "install Calico\nwithout Calico, remove its names from kubelet's dependencies and keep the others, which `sc.exe qc kubelet` lists",
        judge: Judge::Node(kubelet_dependencies),
    },
    Row {
        id: "KubeProxyFlags",
        group: GROUP,
        severity: Severity::Warning,
        why: "without DSR and a source VIP, policy sees the node's address in place of the pod's; and feature gates that a newer kube-proxy no longer knows stop it",
        fix: "set kube-proxy's --enable-dsr=true, with VXLAN --source-vip to the address of Calico_ep, and remove WinDSR and WinOverlay from --feature-gates",
        judge: Judge::Node(kube_proxy),
    },
    Row {
        id: "Leftovers",
        group: GROUP,
        severity: Severity::Warning,
        why: "what another installer left is taken over where it has Calico's names; what it started itself may start again",
        fix: "Get-Service Calico*  # shows the services\nGet-HnsNetwork  # shows the networks\nan uninstall restores what was there before",
        judge: Judge::Node(leftovers),
    },
    Row {
        id: "DiskSpace",
        group: GROUP,
        severity: Severity::Error,
        why: "a release is unpacked beside the one that runs, and swapped only when it is whole",
        fix: "make room on the disk of C:, 1 GB at least",
        judge: Judge::Node(|node, _| match node.survey.as_ref().and_then(|survey| survey.disk_free) {
            None => unread(node, Part::Survey, "it was not measured how much is free"),
            Some(free) if free < ROOM => Fail(format!("{} MB are free", free >> 20)),
            Some(free) => Pass(format!("{} GB are free", free >> 30)),
        }),
    },
    Row {
        id: "PendingReboot",
        group: GROUP,
        severity: Severity::Warning,
        why: "what waits for a restart may change files and networks under a fresh install",
        fix: "drain the node and restart the machine, then run the command again",
        judge: Judge::Node(|node, _| match (node.pending_reboot.is_empty(), node.features) {
            (false, _) => Fail(node.pending_reboot.join("; ")),
            (true, _) if node.untold(Part::PendingReboot).is_some() => unread(node, Part::PendingReboot, ""),
            // Both were measured together; a facts file of an older version has neither.
            (true, None) => Unknown("it was not looked whether something waits".into()),
            (true, Some(_)) => Pass("nothing waits for a restart".into()),
        }),
    },
];

/// The container runtime's service, and whether it runs.
pub(super) fn runtime_service(node: &NodeFacts, survey: &Survey) -> Option<(&'static str, bool)> {
    let name = match node.runtime.as_ref()?.kind {
        RuntimeKind::Containerd => "containerd",
        RuntimeKind::Docker => "docker",
    };
    Some((name, survey.service(name)?.running))
}

fn not_surveyed(node: &NodeFacts) -> Finding {
    unread(node, Part::Survey, "the machine's services and networks were not looked at")
}

fn other_cni(node: &NodeFacts, input: &Input) -> Finding {
    let Some(survey) = &node.survey else { return not_surveyed(node) };
    let Some(settings) = input.settings else { return Unknown("no settings could be made".into()) };
    let ours = &settings.cni.conf_file;
    let others = || survey.cni_configs.iter().filter(|config| !config.file.eq_ignore_ascii_case(ours));
    let named: Vec<String> = others()
        .map(|config| format!("{} ({})", config.file, config.plugin.as_deref().unwrap_or("not readable")))
        .collect();
    match (settings.network.backend, named.is_empty()) {
        (Backend::None, false) => Pass(format!("the network is {}'s", named.join(", "))),
        (Backend::None, true) => Warn("the backend is none, and no other plugin has a configuration yet".into()),
        (_, true) => Pass("Calico's alone".into()),
        (_, false) => Fail(format!("there are {}", named.join(", "))),
    }
}

fn kubelet_dependencies(node: &NodeFacts, _: &Input) -> Finding {
    let Some(survey) = &node.survey else { return not_surveyed(node) };
    let Some(kubelet) = survey.service("kubelet") else { return Skip("kubelet is no service here".into()) };
    let is_calicos = |name: &&str| [NODE, FELIX, CONFD].iter().any(|own| own.eq_ignore_ascii_case(name));
    let calicos = kubelet.depends_on.iter().map(String::as_str).filter(is_calicos);
    let (there, missing): (Vec<&str>, Vec<&str>) = calicos.partition(|name| survey.service(name).is_some());
    match (there.is_empty(), missing.is_empty()) {
        (_, false) => Fail(format!("kubelet depends on {}, which is not installed", missing.join(", "))),
        (true, true) => Pass("kubelet depends on no Calico service".into()),
        (false, true) => {
            let there = there.join(", ");
            Pass(format!(
                "kubelet depends on {there}: a run that stops {there} stops kubelet first and starts it again"
            ))
        }
    }
}

fn flannel(node: &NodeFacts, input: &Input) -> Finding {
    if input.network().is_some_and(|network| network.backend == Backend::None) {
        return Skip("another plugin owns the network".into());
    }
    let Some(survey) = &node.survey else { return not_surveyed(node) };
    let networks = survey.networks.keys().filter(|name| matches!(name.as_str(), "vxlan0" | "cbr0"));
    let services = ["flanneld", "flannel"].into_iter().filter(|name| survey.service(name).is_some());
    let found: Vec<String> =
        networks.map(|name| format!("network {name}")).chain(services.map(|name| format!("service {name}"))).collect();
    if found.is_empty() { Pass("none".into()) } else { Fail(format!("Flannel is here: {}", found.join(", "))) }
}

/// Gates that kube-proxy of these minor versions and later takes for granted, and will refuse.
const GATES: [(&str, u64); 2] = [("WinDSR", 33), ("WinOverlay", 20)];

fn kube_proxy(node: &NodeFacts, input: &Input) -> Finding {
    let Some(survey) = &node.survey else { return not_surveyed(node) };
    let Some(proxy) = survey.service("kube-proxy") else { return Skip("kube-proxy is no service here".into()) };
    let mut wrong = Vec::new();
    let mut ours = "";
    if input.settings.is_some_and(|settings| settings.dsr) && proxy.flag("--enable-dsr") != Some("true") {
        // On EKS kube-proxy is Amazon's, with nobody to set its flags, so we do.
        let amazons = input.settings.is_some_and(|settings| settings.provider == Provider::Eks);
        match amazons && proxy.flag("--config").is_none() {
            true => ours = "; --enable-dsr=true is added by install",
            false => wrong.push("--enable-dsr=true is missing".to_owned()),
        }
    }
    let overlay = input.network().is_some_and(|network| network.backend == Backend::Vxlan);
    if overlay && proxy.flag("--source-vip").is_none() && proxy.flag("--config").is_none() {
        wrong.push("--source-vip is missing".to_owned());
    }
    let kubelet = input.cluster.and_then(|cluster| Some(cluster.node.as_ref()?.kubelet_version.as_str()));
    if let (Some((_, version)), Some(gates)) = (kubelet.and_then(minor), proxy.flag("--feature-gates")) {
        let stale = GATES.iter().filter(|(gate, since)| version >= *since && gates.contains(gate));
        wrong.extend(stale.map(|(gate, since)| format!("the feature gate {gate} is of no use since v1.{since}")));
    }
    if wrong.is_empty() {
        Pass(format!("DSR, source VIP and feature gates are right{ours}"))
    } else {
        Fail(wrong.join("; "))
    }
}

fn leftovers(node: &NodeFacts, _: &Input) -> Finding {
    let Some(survey) = &node.survey else { return not_surveyed(node) };
    let mut found = Vec::new();
    if survey.service("CalicoUpgrade").is_some() {
        found.push("the service CalicoUpgrade of older releases".to_owned());
    }
    if !survey.installed {
        found.extend(foreign(survey));
    }
    if found.is_empty() { Pass("none".into()) } else { Fail(found.join(", ")) }
}

/// Calico's names on a machine where we did not install it.
fn foreign(survey: &Survey) -> Vec<String> {
    let services = ["CalicoNode", "CalicoFelix", "CalicoConfd"].into_iter().filter(|n| survey.service(n).is_some());
    let networks = [networks::PODS, networks::BOOTSTRAP].into_iter().filter(|name| survey.networks.contains_key(*name));
    let mut found: Vec<String> =
        services.map(|name| format!("service {name}")).chain(networks.map(|n| format!("HNS network {n}"))).collect();
    if survey.calico_folder {
        found.push(r"folder C:\CalicoWindows".into());
    }
    found
}
