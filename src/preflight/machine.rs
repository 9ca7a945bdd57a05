//! Checks of what else is on the machine: other network plugins, kubelet and kube-proxy, leftovers of an earlier
//! install.

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::builds::{self, PAUSE_SINCE};
use super::cluster::minor;
use super::node::unread;
use super::{Finding, Input, Judge, Needs, Row, Severity};
use crate::calico::services::SERVICES;
use crate::calico::{flannel, networks};
use crate::facts::{CniConfig, Features, NodeFacts, Part, ServiceFacts, Survey};
use crate::settings::{Backend, unmatched_network};

/// A release takes about 250 MB unpacked, and the previous one is kept until the new one works.
const DISK_SPACE: u64 = 1 << 30;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "RuntimeRunning",
        severity: Severity::Error,
        why: "kubelet and the pods' network require a running container runtime",
        fix: "Start-Service containerd\ncalicoctl-win preflight --fix  # does the same, and asks first",
        judge: Judge::Machine(|survey, node, _| match runtime_name(node).map(|name| (name, service(survey, name))) {
            None => Skip("no container runtime answers".into()),
            Some((_, Err(without))) => without,
            Some((name, Ok(service))) if service.running => Pass(name.into()),
            Some((name, Ok(_))) => Fail(format!("the service {name} is stopped")),
        }),
    },
    Row {
        id: "PauseImage",
        severity: Severity::Error,
        why: "each pod's sandbox runs the pause image of the container runtime's configuration: one that does not support this Windows leaves every pod in ContainerCreating",
        fix: "set the image that fits in containerd's config.toml: sandbox_image, or with version 3 of the file pinned_images.sandbox\nRestart-Service containerd",
        judge: Judge::Node(pause_image),
    },
    Row {
        id: "CniConfig",
        severity: Severity::Error,
        why: "the container runtime uses the first file in its CNI folder, so with two plugins the file names decide which one is used",
        fix: "move what is named here out of the CNI folder, or set spec.calicoNetwork.backend: none to keep another plugin",
        judge: Judge::Machine(cni_config),
    },
    Row {
        id: "KubeNetwork",
        severity: Severity::Warning,
        why: "with policy only, Felix looks for pods on the HNS networks that kubeNetwork matches, and enforces no policy on others",
        fix: "Get-HnsNetwork | select Name  # shows the networks\nset spec.calicoNetwork.kubeNetwork to an expression for the other plugin's network; nothing, if that plugin creates it with the first pod",
        judge: Judge::Machine(|survey, _, input| match input.network() {
            None => Unknown("no backend is decided".into()),
            Some(network) if network.backend != Backend::None => Skip("Calico has a network of its own".into()),
            Some(network) => unmatched_network(&network.kube_network, survey.networks.keys().map(String::as_str))
                .map_or_else(|| Pass(network.kube_network.clone()), Fail),
        }),
    },
    Row {
        id: "NoFlannel",
        severity: Severity::Error,
        why: "Flannel's HNS network occupies the adapter that Calico needs, and flanneld re-creates it",
        fix: "calicoctl-win migrate from flannel --dry-run  # shows what it removes\ncalicoctl-win migrate from flannel  # drains the node, removes Flannel and installs Calico",
        judge: Judge::Machine(no_flannel),
    },
    Row {
        id: "RoutingFeature",
        severity: Severity::Error,
        why: "BGP on Windows requires the Windows feature RemoteAccess with Routing, and its service",
        fix: "Install-WindowsFeature RemoteAccess,RSAT-RemoteAccess-PowerShell,Routing\nInstall-RemoteAccess -VpnType RoutingOnly\nSet-Service RemoteAccess -StartupType Automatic\nStart-Service RemoteAccess\nfinally, drain the node and restart the machine",
        judge: Judge::Node(|node, input| match (input.network(), node.features) {
            (None, _) => Unknown("no backend is decided".into()),
            (Some(network), _) if network.backend != Backend::WindowsBgp => Skip("BGP is not used".into()),
            (Some(_), None) => unread(node, Part::Features, "the Windows features were not read"),
            (Some(_), Some(Features { remote_access: true, routing, .. })) => {
                match (node.survey.as_ref().and_then(remote_access), routing) {
                    // Server Manager's record may be old: a service that runs is better evidence.
                    (Some(service), Some(false)) if !service.running => Fail("the Windows feature Routing is not installed; without it Windows has the service RemoteAccess too, disabled".into()),
                    (Some(service), _) if !service.running => Fail("the service RemoteAccess is stopped".into()),
                    _ => Pass("RemoteAccess is installed".into()),
                }
            }
            (Some(_), Some(_)) => Fail("the Windows feature RemoteAccess with Routing is missing".into()),
        }),
    },
    Row {
        id: "UdpPort4789",
        severity: Severity::Error,
        why: "a program that listens on UDP 4789 receives the packets that are meant for pods",
        fix: "Get-NetUDPEndpoint -LocalPort 4789 | select OwningProcess  # shows the program\nstop that program",
        judge: Judge::Node(|node, input| {
            match (input.network(), node.survey.as_ref().and_then(|s| s.vxlan_port_free)) {
                (Some(network), _) if network.backend != Backend::Vxlan => Skip("VXLAN is not used".into()),
                (_, None) => unread(node, Part::Survey, "the port was not tested"),
                (_, Some(true)) => Pass("free".into()),
                (_, Some(false)) => Fail("a program listens on UDP 4789".into()),
            }
        }),
    },
    Row {
        id: "KubeletDependencies",
        severity: Severity::Warning,
        why: "kubelet does not start if it depends on a Calico service that is not installed (error 1075), and is stopped and started with one that is",
        fix: "install Calico\nor remove Calico's services from kubelet's dependencies, and keep the others, which `sc.exe qc kubelet` lists",
        judge: Judge::Machine(kubelet_dependencies),
    },
    Row {
        id: "JoinToken",
        severity: Severity::Error,
        why: "a kubelet that has not joined needs a bootstrap token that the cluster accepts",
        fix: "kubeadm token create  # on a control-plane node\nwrite the token to the file that spec.kubernetes.node.join names, or set the variable CALICO_WIN_JOIN_TOKEN",
        judge: Judge::Node(|_, input| needed(input, |needs| &needs.join)),
    },
    Row {
        id: "SourcesAvailable",
        severity: Severity::Error,
        why: "the release, kubelet and kube-proxy come from a server, or from a file on this machine",
        fix: "correct spec.calico.source and spec.kubernetes.node.source, or allow the host in the firewall\nif a proxy is needed, set spec.transport.proxy; without a network, take a bundle: calicoctl-win release bundle --out FILE",
        judge: Judge::Node(|_, input| needed(input, |needs| &needs.sources)),
    },
    Row {
        id: "KubeProxyFlags",
        severity: Severity::Warning,
        why: "without DSR and a source VIP, policies see the node's address instead of the pod's; without a source VIP, a pod that calls a LoadBalancer whose backend is on its own node may time out on newer builds of Server 2019 (kubernetes/community#8890); and a kube-proxy does not start with feature gates that it no longer supports",
        fix: "set kube-proxy's --enable-dsr=true, with VXLAN --source-vip to the address of Calico_ep, and remove WinDSR and WinOverlay from --feature-gates",
        judge: Judge::Machine(kube_proxy),
    },
    Row {
        id: "NoEarlierInstall",
        severity: Severity::Warning,
        why: "services, networks and folders of an earlier install are taken over if they have Calico's names, but its settings only if they are imported; its own programs may start again",
        fix: "calicoctl-win config import --live --out node.yaml  # writes its settings as a config, for install -c\nGet-Service Calico*  # shows the services\nGet-HnsNetwork  # shows the networks\nuninstall restores the previous state",
        judge: Judge::Machine(earlier_install),
    },
    Row {
        id: "RootFolder",
        severity: Severity::Error,
        why: "an install moves the whole folder at calico.rootDir aside, and an uninstall moves it back",
        fix: "set calico.rootDir to a new folder, for example C:\\CalicoWindows",
        judge: Judge::Machine(|survey, _, _| match &survey.other_root {
            None => Pass("new, empty or Calico's".into()),
            Some(folder) => Fail(format!("{folder} has files, and none of them is Calico's")),
        }),
    },
    Row {
        id: "DiskSpace",
        severity: Severity::Error,
        why: "a new release is unpacked completely before it replaces the current one",
        fix: "free at least 1 GB on drive C:",
        judge: Judge::Node(|node, _| match node.survey.as_ref().and_then(|survey| survey.disk_free) {
            None => unread(node, Part::Survey, "the free space was not measured"),
            Some(free) if free < DISK_SPACE => Fail(format!("{} MB are free", free >> 20)),
            Some(free) => Pass(format!("{} GB are free", free >> 30)),
        }),
    },
    Row {
        id: "NoPendingReboot",
        severity: Severity::Warning,
        why: "changes that wait for a restart may replace files and networks after the install",
        fix: "drain the node and restart the machine, then run the command again",
        judge: Judge::Node(|node, _| match (node.pending_reboot.is_empty(), node.features) {
            (false, _) => Fail(node.pending_reboot.join("; ")),
            (true, _) if node.untold(Part::PendingReboot).is_some() => unread(node, Part::PendingReboot, ""),
            // Both were measured together; a facts file of an older version has neither.
            (true, None) => Unknown("it was not read whether a restart is pending".into()),
            (true, Some(_)) => Pass("no restart is pending".into()),
        }),
    },
];

fn needed(input: &Input, of: fn(&Needs) -> &Finding) -> Finding {
    input.needs.map_or_else(|| Skip("preflight tries it".into()), |needs| of(needs).clone())
}

/// Only tags of the image `pause` are known. Other images are the user's own.
fn pause_image(node: &NodeFacts, _: &Input) -> Finding {
    let Some(runtime) = &node.runtime else { return unread(node, Part::Runtime, "no container runtime answers") };
    let Some(image) = &runtime.sandbox_image else { return Pass("the container runtime's default".into()) };
    let name = image.rsplit('/').next().unwrap_or_default();
    let tag = name.strip_prefix("pause:").map(|tag| tag.split(['.', '-']).map(str::parse::<u64>));
    let Some([Ok(major), Ok(minor)]) = tag.and_then(|mut parts| Some([parts.next()?, parts.next()?])) else {
        return Pass(format!("{image}, whose support of Windows is not known"));
    };
    let needed = PAUSE_SINCE.into_iter().find(|(build, _)| node.os.build >= *build);
    match needed {
        Some((_, [first, second])) if [major, minor] < [first, second] => Fail(format!(
            "{image} does not support {}: pause:{first}.{second} is the first that does",
            builds::name(node.os.build)
        )),
        _ => Pass(image.clone()),
    }
}

/// The container runtime's service, and whether it runs.
pub(super) fn runtime_service(node: &NodeFacts, survey: &Survey) -> Option<(&'static str, bool)> {
    let name = runtime_name(node)?;
    Some((name, survey.service(name)?.running))
}

fn runtime_name(node: &NodeFacts) -> Option<&'static str> {
    Some(node.runtime.as_ref()?.kind.service())
}

/// A service, or the result without it: one that cannot be read is not absent.
fn service<'a>(survey: &'a Survey, name: &str) -> Result<&'a ServiceFacts, Finding> {
    survey.service(name).ok_or_else(|| match survey.unread_services.get(name) {
        Some(why) => Unknown(why.clone()),
        None => Skip(format!("{name} is not a service on this machine")),
    })
}

fn remote_access(survey: &Survey) -> Option<&ServiceFacts> {
    survey.service("RemoteAccess")
}

fn cni_config(survey: &Survey, _: &NodeFacts, input: &Input) -> Finding {
    let Some(settings) = input.settings else { return Unknown("the settings could not be resolved".into()) };
    let ours = &settings.cni.conf_file;
    let stays = |config: &&CniConfig| !config.is_folder && (!input.replaces_flannel || !config.is_flannels());
    let (own, others): (Vec<_>, Vec<_>) =
        survey.cni_configs.iter().partition(|config| config.file.eq_ignore_ascii_case(ours));
    let others = others.into_iter().filter(stays);
    let named: Vec<String> = others.map(|config| format!("{} ({})", config.file, whose(config))).collect();
    match (settings.network.backend, named.is_empty()) {
        (backend, _) if backend != Backend::None && own.iter().any(|config| config.is_folder) => {
            Fail(format!("{ours} in the CNI folder is a folder, and Calico's configuration is a file of that name"))
        }
        (Backend::None, false) => Pass(format!("the pods' network belongs to {}", named.join(", "))),
        (Backend::None, true) => Warn("the backend is none, and no other plugin has a configuration yet".into()),
        (_, true) => Pass("only Calico's".into()),
        (_, false) => Fail(format!("other configurations in the CNI folder: {}", named.join(", "))),
    }
}

/// Whose a configuration of the CNI folder is.
fn whose(config: &CniConfig) -> &str {
    match config.plugin.as_deref() {
        // Calico's own removal of its HostProcess pods looks for it in another folder (defect B26).
        Some("calico") => "calico; delete it if Calico's HostProcess pods left it",
        plugin => plugin.unwrap_or("not readable"),
    }
}

fn kubelet_dependencies(survey: &Survey, _: &NodeFacts, _: &Input) -> Finding {
    let kubelet = match service(survey, "kubelet") {
        Ok(kubelet) => kubelet,
        Err(without) => return without,
    };
    let is_calicos = |name: &&str| SERVICES.iter().any(|own| own.eq_ignore_ascii_case(name));
    let calicos = kubelet.depends_on.iter().map(String::as_str).filter(is_calicos);
    let (there, missing): (Vec<&str>, Vec<&str>) = calicos.partition(|name| survey.has_service(name));
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

/// Whether Flannel has a service, a network or a CNI configuration on the machine.
pub fn has_flannel(survey: &Survey) -> bool {
    flannel::SERVICES.into_iter().any(|name| survey.has_service(name))
        || survey.networks.keys().any(|name| flannel::is_network(name))
        || survey.cni_configs.iter().any(CniConfig::is_flannels)
}

fn no_flannel(survey: &Survey, _: &NodeFacts, input: &Input) -> Finding {
    if let Some(skip) = input.other_plugin() {
        return skip;
    }
    if input.replaces_flannel {
        return Skip("this run removes Flannel".into());
    }
    let networks = survey.networks.keys().filter(|name| flannel::is_network(name));
    let services = flannel::SERVICES.into_iter().filter(|name| survey.has_service(name));
    let found: Vec<String> =
        networks.map(|name| format!("network {name}")).chain(services.map(|name| format!("service {name}"))).collect();
    if found.is_empty() { Pass("none".into()) } else { Fail(format!("Flannel was found: {}", found.join(", "))) }
}

/// Feature gates that are always on in kube-proxy from these minor versions on, and will be removed.
const GATES: [(&str, u64); 2] = [("WinDSR", 33), ("WinOverlay", 20)];

fn kube_proxy(survey: &Survey, _: &NodeFacts, input: &Input) -> Finding {
    let proxy = match service(survey, "kube-proxy") {
        Ok(proxy) => proxy,
        Err(without) => return without,
    };
    let mut wrong = Vec::new();
    let mut ours = "";
    if input.settings.is_some_and(|settings| settings.dsr) && proxy.flag("--enable-dsr") != Some("true") {
        // On EKS kube-proxy is Amazon's and nobody can set its flags, so install does.
        let amazons = input.settings.is_some_and(|settings| settings.provider.brings().own_kube_proxy);
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
        wrong.extend(stale.map(|(gate, since)| format!("the feature gate {gate} is obsolete since v1.{since}")));
    }
    if wrong.is_empty() {
        Pass(format!("DSR, source VIP and feature gates are correct{ours}"))
    } else {
        Fail(wrong.join("; "))
    }
}

fn earlier_install(survey: &Survey, _: &NodeFacts, _: &Input) -> Finding {
    let mut found = Vec::new();
    if survey.has_service("CalicoUpgrade") {
        found.push("the service CalicoUpgrade of older releases".to_owned());
    }
    if !survey.installed {
        found.extend(foreign(survey));
    }
    if found.is_empty() { Pass("none".into()) } else { Fail(found.join(", ")) }
}

/// What has Calico's names on a machine on which this program did not install it.
fn foreign(survey: &Survey) -> Vec<String> {
    let services = SERVICES.into_iter().filter(|n| survey.has_service(n));
    let networks = [networks::PODS, networks::BOOTSTRAP].into_iter().filter(|name| survey.networks.contains_key(*name));
    let mut found: Vec<String> =
        services.map(|name| format!("service {name}")).chain(networks.map(|n| format!("HNS network {n}"))).collect();
    if survey.calico_folder {
        found.push(r"folder C:\CalicoWindows".into());
    }
    found
}
