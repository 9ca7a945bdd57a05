//! Checks of the Windows machine.

use super::Finding::{Fail, Pass, Skip, Unknown, Warn};
use super::cluster::minor;
use super::{Finding, Input, Judge, Row, Severity, builds};
use crate::calico::flannel;
use crate::calico::networks::is_calicos;
use crate::facts::{Adapter, NodeFacts, Part, Product, RuntimeKind, Survey, physical};
use crate::fault::{Exit, Fault};
use crate::settings::Backend;

const READ: &str = "MachineFacts";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: READ,
        severity: Severity::Hard(Exit::Failed),
        why: "adapters, HNS, the container runtime, services and networks decide how the node is installed, so Windows must answer every question about them",
        fix: "run the command as administrator; if it fails again, fix what the message names first",
        judge: Judge::Node(|node, _| match node.undecided().as_slice() {
            [] => Pass("everything required was read".into()),
            some => Fail(some.join("; ")),
        }),
    },
    Row {
        id: "Is64Bit",
        severity: Severity::Hard(Exit::Unsupported),
        why: "Calico for Windows is built for amd64 only",
        fix: "use a 64-bit x86 machine",
        judge: Judge::Node(|node, _| match node.os.arch.as_str() {
            "amd64" => Pass("amd64".into()),
            "" => Unknown("Windows does not report its architecture".into()),
            other => Fail(format!("this machine is {other}")),
        }),
    },
    Row {
        id: "WindowsBuild",
        severity: Severity::Hard(Exit::Unsupported),
        why: "Calico needs Windows Server 2019 with update 17763.1432, 2022 with 20348.169, or later; client editions route pods differently and fail",
        fix: "install current updates, or use Windows Server 2022 or 2025",
        judge: Judge::Node(build),
    },
    Row {
        id: "Elevated",
        severity: Severity::Warning,
        why: "reading needs no special rights, but every command that changes the machine requires administrator rights",
        fix: "open PowerShell with Run as administrator",
        judge: Judge::Node(|node, _| match node.elevated {
            true => Pass("this session has administrator rights".into()),
            false if node.untold(Part::Elevated).is_some() => unread(node, Part::Elevated, ""),
            false => Fail("this session has no administrator rights".into()),
        }),
    },
    Row {
        id: "FolderRights",
        severity: Severity::Error,
        why: "SYSTEM reads and runs the files in the CNI folders, so anyone who can write there, or replace one of the folders, can become SYSTEM",
        fix: "install and repair restrict the folders; if a file or a parent folder is named, look at it first, then give it to administrators with icacls: `/setowner *S-1-5-32-544`, `/reset`, `/inheritance:r /grant:r *S-1-5-18:F *S-1-5-32-544:F`",
        judge: Judge::Machine(folder_rights),
    },
    Row {
        id: "KnownGoodBuild",
        severity: Severity::Warning,
        why: "some Windows updates broke the pods' network, and later ones fixed it",
        fix: "on Server 2025, test your workloads first, or use Server 2022\notherwise install the current cumulative update and restart the machine",
        judge: Judge::Node(|node, input| {
            let os = &node.os;
            let bad = builds::BAD_BUILDS.iter().find(|(build, ubrs, ..)| *build == os.build && ubrs.contains(&os.ubr));
            let vxlan = input.network().is_none_or(|network| network.backend == Backend::Vxlan);
            match bad {
                Some((_, _, what, update)) => Fail(format!("{what} on {}.{}; {update} fixes it", os.build, os.ubr)),
                None if os.build == 0 => Unknown("Windows does not report its build".into()),
                // Told there by Kubernetes' SIG Windows, without the exact build.
                None if os.build == 26100 && vxlan => Warn(
                    "Calico's documentation does not list Server 2025 yet, and its overlay networks fail without the \
                     cumulative update of October 2025 (github.com/rancher/rancher/issues/50915)"
                        .into(),
                ),
                None if os.build == 26100 => Warn("Calico's documentation does not list Server 2025 yet".into()),
                None => Pass(format!("no known problem with {}.{}", os.build, os.ubr)),
            }
        }),
    },
    Row {
        id: "KubernetesWindows",
        severity: Severity::Warning,
        why: "each Kubernetes version supports some Windows versions; on others its kubelet is not tested",
        fix: "use Windows Server 2022 or 2025 with a current Kubernetes, or a Kubernetes that supports this Windows",
        judge: Judge::Node(|node, input| {
            let Some(cluster) = input.cluster else { return Unknown("the cluster's version is not known".into()) };
            let builds = minor(&cluster.kubernetes_version).and_then(|(_, minor)| builds::supported(minor));
            let Some(builds) = builds else {
                return Unknown(format!(
                    "the Windows versions that Kubernetes `{}` supports are not known",
                    cluster.kubernetes_version
                ));
            };
            let os = format!("{} ({})", builds::name(node.os.build), node.os.build);
            if builds.contains(&node.os.build) {
                return Pass(os);
            }
            let names: Vec<&str> = builds.iter().map(|build| builds::name(*build)).collect();
            Fail(format!("Kubernetes {} supports {}; this is {os}", cluster.kubernetes_version, names.join(", ")))
        }),
    },
    Row {
        id: "HnsVxlan",
        severity: Severity::Error,
        why: "VXLAN between nodes requires remote subnets, which HNS supports since version 9.2",
        fix: "install current Windows updates and restart the machine",
        judge: Judge::Node(|node, input| match (input.network(), node.hns) {
            (Some(network), _) if network.backend != Backend::Vxlan => Skip("VXLAN is not used".into()),
            (_, None) => unread(node, Part::Hns, "HNS is not available"),
            (_, Some(hns)) if (hns.major, hns.minor) < (9, 2) => {
                Fail(format!("this is HNS {}.{}", hns.major, hns.minor))
            }
            (_, Some(hns)) => Pass(format!("HNS {}.{}", hns.major, hns.minor)),
        }),
    },
    Row {
        id: "ServiceSourceAddress",
        severity: Severity::Warning,
        why: "without Direct Server Return, Windows gives traffic to a ClusterIP the node's address as its source, so policies that name pods do not match it",
        fix: "install current Windows updates: DSR comes with 17763.1432 and with HNS 9.3 or 10.2",
        judge: Judge::Node(|node, _| match (node.hns, node.os.build) {
            (Some(hns), _) if hns.supports_dsr() => Pass("DSR".into()),
            (Some(hns), _) => Fail(format!("HNS {}.{} has no DSR", hns.major, hns.minor)),
            (None, 0) => Unknown("neither HNS nor Windows reports its version".into()),
            (None, _) if node.os.supports_dsr() => Pass("DSR, judged by the Windows build".into()),
            (None, build) => Fail(format!("build {build} has no DSR")),
        }),
    },
    Row {
        id: "Tls12",
        severity: Severity::Warning,
        why: "this program brings its own TLS, but PowerShell, .NET and Windows services use the system's and need 1.2 for the API and for downloads",
        fix: "reg add \"HKLM\\SOFTWARE\\Microsoft\\.NETFramework\\v4.0.30319\" /v SchUseStrongCrypto /t REG_DWORD /d 1\nreg add \"HKLM\\SYSTEM\\CurrentControlSet\\Control\\SecurityProviders\\SCHANNEL\\Protocols\\TLS 1.2\\Client\" /v Enabled /t REG_DWORD /d 1",
        judge: Judge::Node(tls),
    },
    Row {
        id: "HnsAvailable",
        severity: Severity::Error,
        why: "pods get their network from Windows' Host Networking Service, which comes with the feature Containers",
        fix: "Install-WindowsFeature -Name Containers\nthen restart the machine, which this feature requires",
        judge: Judge::Node(|node, _| match node.hns {
            Some(hns) => Pass(format!("HNS {}.{}", hns.major, hns.minor)),
            None if node.untold(Part::Hns).is_some() => unread(node, Part::Hns, ""),
            None => Fail("there is no Host Networking Service: the Windows feature Containers is missing".into()),
        }),
    },
    Row {
        id: "ContainerRuntime",
        severity: Severity::Error,
        why: "CNI binaries and configuration must be in the container runtime's folders",
        fix: "install containerd and start its service, or let this program do it with spec.kubernetes.node.containerd.archive; or set spec.windowsNodes.cniBinDir and cniConfigDir and ignore this check",
        judge: Judge::Node(|node, input| match &node.runtime {
            Some(runtime) => Pass(format!("{} {}", runtime.kind.service(), runtime.version)),
            None if input.settings.is_some_and(|settings| settings.network.backend == Backend::None) => {
                Skip("no CNI files are installed for the backend none".into())
            }
            None if node.untold(Part::Runtime).is_some() => unread(node, Part::Runtime, ""),
            None if installs_containerd(input) => Pass("containerd will be installed".into()),
            None => Fail("no service containerd or docker was found".into()),
        }),
    },
    Row {
        id: "RuntimeSupported",
        severity: Severity::Error,
        why: "Kubernetes 1.24 and later do not support Docker, and 1.26 and later require containerd 1.6 or later",
        fix: "install containerd 1.6 or later, and configure kubelet to use it",
        judge: Judge::Node(runtime_supported),
    },
    Row {
        id: "CniFolders",
        severity: Severity::Warning,
        why: "the container runtime reads CNI files only from its own folders",
        fix: "leave spec.windowsNodes.cniBinDir and cniConfigDir out, or set bin_dir and conf_dir of containerd to the same",
        judge: Judge::Node(|node, input| {
            let Some(settings) = input.settings else { return Unknown("the settings could not be resolved".into()) };
            let Some(runtime) = &node.runtime else { return no_runtime(node, input) };
            let pairs =
                [(&settings.cni.bin_dir, &runtime.cni_bin_dir), (&settings.cni.conf_dir, &runtime.cni_conf_dir)];
            match pairs.into_iter().find(|(ours, theirs)| ours != theirs) {
                None => Pass(runtime.cni_conf_dir.to_string()),
                Some((ours, theirs)) => Fail(format!("the config says {ours}, the runtime uses {theirs}")),
            }
        }),
    },
    Row {
        id: "StaticAddressKept",
        severity: Severity::Warning,
        why: "on Windows 2004 and 20H2 an adapter's static address becomes DHCP when the vSwitch is created",
        fix: "write down address, gateway and DNS servers first, or use Windows Server 2022; this program restores what it can",
        judge: Judge::Node(|node, _| {
            let fixed = node.adapters.iter().find(|adapter| !adapter.dhcp && adapter.reachable_address().is_some());
            match fixed {
                _ if node.adapters.is_empty() => unread(node, Part::Adapters, "no adapter was found"),
                Some(adapter) if builds::LOSE_STATIC_ADDRESS.contains(&node.os.build) => Fail(format!(
                    "{} has a static address, which {} replaces with DHCP",
                    adapter.name,
                    builds::name(node.os.build)
                )),
                _ => Pass("this build keeps it, or the adapters use DHCP".into()),
            }
        }),
    },
    Row {
        id: "AdapterNotTeamed",
        severity: Severity::Error,
        why: "HNS cannot create a vSwitch on a Windows adapter team (LBFO), and trying may disconnect the machine",
        fix: "name an adapter outside the team in spec.calicoNetwork.vxlan.vxlanAdapter, or dissolve the team, which interrupts the machine's network: Remove-NetLbfoTeam NAME",
        judge: Judge::Node(|node, input| {
            if input.network().is_some_and(|network| network.backend == Backend::None) {
                return Skip("no vSwitch is created".into());
            }
            match Adapter::choose(&node.adapters, named_adapter(input), None) {
                None => unread(node, Part::Adapters, "no adapter was found"),
                Some(adapter) if adapter.team => Fail(format!("{} is a team", adapter.name)),
                Some(adapter) => Pass(adapter.name.clone()),
            }
        }),
    },
    Row {
        id: "AdapterAvailable",
        severity: Severity::Error,
        why: "an adapter has one virtual switch: with one of Hyper-V, a SET team or another network plugin on it, HNS refuses Calico's network (0x803B0006)",
        fix: "name another adapter in spec.calicoNetwork.vxlan.vxlanAdapter, or remove the other switch with its owner (Get-VMSwitch, Get-HnsNetwork); that interrupts the machine's network",
        judge: Judge::Machine(adapter_is_free),
    },
    Row {
        id: "LocalFirewallRules",
        severity: Severity::Warning,
        why: "a policy may make Windows Firewall ignore the machine's own rules: those for VXLAN and kubectl exec then let nothing in",
        fix: "add rules for UDP 4789 and TCP 10250 to that policy, or let it apply local firewall rules",
        judge: Judge::Machine(|survey, _, _| match &survey.own_rules_ignored {
            None => Unknown("the firewall's policies were not read".into()),
            Some(profiles) if profiles.is_empty() => Pass("the machine's own rules are effective".into()),
            Some(profiles) => Fail(format!("ignored in these profiles: {}", profiles.join(", "))),
        }),
    },
    Row {
        id: "AdapterHasValidIP",
        severity: Severity::Error,
        why: "HNS creates the vSwitch on an adapter with a real address; 169.254.x.x means that DHCP failed",
        fix: "give the adapter a static address or fix DHCP",
        judge: Judge::Node(|node, _| {
            if node.untold(Part::Adapters).is_some() {
                return unread(node, Part::Adapters, "");
            }
            let valid = node.adapters.iter().find_map(|adapter| {
                let address =
                    adapter.addresses.iter().find(|net| !net.addr().is_loopback() && !net.addr().is_link_local());
                address.map(|address| format!("{} on {}", address.addr(), adapter.name))
            });
            valid.map_or_else(|| Fail("no adapter has a valid IPv4 address".into()), Pass)
        }),
    },
    Row {
        id: "VxlanAdapter",
        severity: Severity::Error,
        why: "HNS cannot create a network on an adapter that does not exist",
        fix: "set spec.calicoNetwork.vxlan.vxlanAdapter to one of this machine's adapters, or leave it empty",
        judge: Judge::Node(|node, input| match named_adapter(input) {
            None => Skip("no adapter is named; HNS chooses".into()),
            Some(_) if node.untold(Part::Adapters).is_some() => unread(node, Part::Adapters, ""),
            Some(name) => {
                let names: Vec<&str> = node.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
                let switched = format!("vEthernet ({name})");
                if names.iter().any(|have| have.eq_ignore_ascii_case(name) || have.eq_ignore_ascii_case(&switched)) {
                    Pass(name.to_owned())
                } else {
                    Fail(format!("there is no adapter `{name}`; there are: {}", names.join(", ")))
                }
            }
        }),
    },
];

/// The adapter that the config names, with VXLAN: else HNS chooses.
fn named_adapter<'a>(input: &Input<'a>) -> Option<&'a str> {
    let network = input.network().filter(|network| network.backend == Backend::Vxlan)?;
    network.adapter.as_deref()
}

/// Whether another product's vSwitch has the adapter of the vSwitch to be made.
fn adapter_is_free(survey: &Survey, node: &NodeFacts, input: &Input) -> Finding {
    if input.network().is_some_and(|network| network.backend == Backend::None) {
        return Skip("no vSwitch is created".into());
    }
    let Some(adapter) = Adapter::choose(&node.adapters, named_adapter(input), None) else {
        return unread(node, Part::Adapters, "no adapter was found");
    };
    let is = |kind: &str, kinds: &[&str]| kinds.iter().any(|one| one.eq_ignore_ascii_case(kind));
    let foreign = |name: &str| !is_calicos(name) && !flannel::is_network(name);
    let mut others = survey.networks.iter().filter(|(name, kind)| foreign(name) && is(kind, &BIND_ALONE));
    if let Some((name, kind)) = others.next() {
        return Fail(format!("the HNS network {name} ({kind}) of another product has a virtual switch"));
    }
    let explained = survey.networks.values().any(|kind| is(kind, &BIND_ALONE) || is(kind, &["Overlay"]));
    if physical(&adapter.name) != adapter.name && !explained {
        let on = &adapter.name;
        return Fail(format!("{on} is the host's side of a virtual switch that belongs to no HNS network"));
    }
    Pass(adapter.name.clone())
}

/// Kinds of HNS networks whose vSwitch HNS gives to no overlay of another name.
const BIND_ALONE: [&str; 3] = ["Transparent", "L2Bridge", "L2Tunnel"];

/// Why a part of the machine is unknown: Windows's reason, or else this text.
pub(super) fn unread(node: &NodeFacts, part: Part, otherwise: &str) -> Finding {
    Unknown(node.untold(part).unwrap_or(otherwise).to_owned())
}

fn installs_containerd(input: &Input) -> bool {
    let node = input.settings.and_then(|settings| settings.kubernetes_node.as_ref());
    node.is_some_and(|node| node.containerd.is_some())
}

fn no_runtime(node: &NodeFacts, input: &Input) -> Finding {
    match node.untold(Part::Runtime) {
        None if installs_containerd(input) => Skip("containerd will be installed".into()),
        _ => unread(node, Part::Runtime, "no container runtime was found"),
    }
}

/// Whether everything that decides how this machine is installed was read.
///
/// # Errors
/// Fault `MachineFacts` with everything that was not read.
pub fn machine_read(node: &NodeFacts) -> Result<(), Fault> {
    match node.undecided().as_slice() {
        [] => Ok(()),
        some => Err(Fault::new(Exit::Failed, READ, some.join("; "))
            .hint("fix what the message names, then run the command again: it decides how the node is installed")),
    }
}

fn folder_rights(survey: &Survey, _: &NodeFacts, input: &Input) -> Finding {
    let Some(writers) = &survey.writers else {
        return Unknown("the permissions of the CNI folders were not read".into());
    };
    if input.network().is_some_and(|network| network.backend == Backend::None) {
        return Skip("the CNI folders belong to another product".into());
    }
    let named = |(path, who): (&String, &String)| format!("{path} ({who})");
    let folders: Vec<String> = writers.folders.iter().map(named).collect();
    let others: Vec<String> = writers.others.iter().map(named).collect();
    match (others.is_empty(), folders.is_empty()) {
        (true, true) => Pass("only administrators may write to the CNI folders".into()),
        (true, false) => Warn(format!("others may write to {}; install and repair restrict it", folders.join(", "))),
        (false, _) => Fail(format!("others may change {}", [others, folders].concat().join(", "))),
    }
}

fn build(node: &NodeFacts, _: &Input) -> Finding {
    let os = &node.os;
    let name = format!("build {}.{}", os.build, os.ubr);
    match os.build {
        0 => Unknown("Windows does not report its build".into()),
        _ if os.product == Product::Client => Fail(format!("this is a client edition of Windows ({name})")),
        1..17763 => Fail(format!("{name} is older than Windows Server 2019")),
        17763 if os.ubr < 1432 => Fail(format!("{name} lacks the update 17763.1432 of August 2020")),
        20348 if os.ubr < 169 => Fail(format!("{name} lacks the update 20348.169 of August 2021")),
        17764..18317 => {
            Fail(format!("{name} is not supported: a Windows later than Server 2019 must be build 18317 or later"))
        }
        _ => Pass(name),
    }
}

fn runtime_supported(node: &NodeFacts, input: &Input) -> Finding {
    let Some(runtime) = &node.runtime else { return no_runtime(node, input) };
    let version = input.cluster.and_then(|cluster| minor(&cluster.kubernetes_version));
    let Some((_, kubernetes)) = version else { return Unknown("the cluster's version is not known".into()) };
    match (runtime.kind, minor(&runtime.version)) {
        (RuntimeKind::Docker, _) if kubernetes >= 24 => Fail(format!("Docker with Kubernetes 1.{kubernetes}")),
        (RuntimeKind::Docker, _) => Pass("Docker".into()),
        (RuntimeKind::Containerd, None) => Unknown("containerd does not report its version".into()),
        (RuntimeKind::Containerd, Some(own)) if kubernetes >= 26 && own < (1, 6) => {
            Fail(format!("containerd {} with Kubernetes 1.{kubernetes}", runtime.version))
        }
        (RuntimeKind::Containerd, Some(_)) => Pass(format!("containerd {}", runtime.version)),
    }
}

/// WinHTTP's bit for TLS 1.2.
const WIN_HTTP_TLS12: u32 = 0x800;

fn tls(node: &NodeFacts, _: &Input) -> Finding {
    let Some(tls) = node.tls else { return unread(node, Part::Tls, "the settings were not read") };
    let mut off = Vec::new();
    if tls.client_enabled == Some(false) {
        off.push("SCHANNEL has TLS 1.2 disabled");
    } else if tls.client_disabled_by_default == Some(true) {
        off.push("SCHANNEL has TLS 1.2 off by default");
    }
    if [tls.dotnet_strong_crypto, tls.dotnet_strong_crypto_32].contains(&Some(false)) {
        off.push(".NET's SchUseStrongCrypto is 0");
    }
    if [tls.win_http, tls.win_http_32].into_iter().flatten().any(|set| set != 0 && set & WIN_HTTP_TLS12 == 0) {
        off.push("WinHTTP's DefaultSecureProtocols leaves TLS 1.2 out");
    }
    if off.is_empty() { Pass("on".into()) } else { Fail(off.join("; ")) }
}
