//! Checks of the Windows machine.

use super::{Finding, Input, Judge, Row, Severity};
use crate::facts::{NodeFacts, Product};
use crate::fault::Exit;
use crate::settings::Backend;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "Is64Bit",
        group: "node",
        severity: Severity::Hard(Exit::Unsupported),
        why: "Calico for Windows is built for amd64 only",
        fix: "use a 64-bit x86 machine",
        judge: Judge::Node(|node, _| match node.os.arch.as_str() {
            "amd64" => Finding::Pass("amd64".into()),
            "" => Finding::Unknown("Windows does not tell its architecture".into()),
            other => Finding::Fail(format!("this machine is {other}")),
        }),
    },
    Row {
        id: "WindowsBuild",
        group: "node",
        severity: Severity::Hard(Exit::Unsupported),
        why: "Calico needs Windows Server 2019 with update 17763.1432, or later; client editions route pods differently and fail",
        fix: "install current updates, or use Windows Server 2022 or 2025",
        judge: Judge::Node(build),
    },
    Row {
        id: "HnsNotAvailable",
        group: "node",
        severity: Severity::Error,
        why: "pods get their network from Windows' Host Networking Service, which comes with the feature Containers",
        fix: "Install-WindowsFeature -Name Containers -Restart",
        judge: Judge::Node(|node, _| match node.hns {
            Some(hns) => Finding::Pass(format!("HNS {}.{}", hns.major, hns.minor)),
            None => {
                Finding::Fail("there is no Host Networking Service: the Windows feature Containers is missing".into())
            }
        }),
    },
    Row {
        id: "ContainerRuntime",
        group: "node",
        severity: Severity::Error,
        why: "CNI binaries and configuration go where the container runtime looks for them",
        fix: "install containerd and start its service, or set spec.windowsNodes.cniBinDir and cniConfigDir and ignore this check",
        judge: Judge::Node(|node, input| match &node.runtime {
            Some(runtime) => Finding::Pass(format!("{:?} {}", runtime.kind, runtime.version)),
            None if input.settings.is_some_and(|settings| settings.network.backend == Backend::None) => {
                Finding::Skip("no CNI files are installed for the backend none".into())
            }
            None => Finding::Fail("no service containerd or docker was found".into()),
        }),
    },
    Row {
        id: "AdapterHasValidIP",
        group: "node",
        severity: Severity::Error,
        why: "HNS builds the virtual switch on an adapter with a real address; 169.254.x.x means that DHCP failed",
        fix: "give the adapter a static address or mend DHCP",
        judge: Judge::Node(|node, _| {
            let valid = node.adapters.iter().find_map(|adapter| {
                let address =
                    adapter.addresses.iter().find(|net| !net.addr().is_loopback() && !net.addr().is_link_local());
                address.map(|address| format!("{} on {}", address.addr(), adapter.name))
            });
            valid.map_or_else(|| Finding::Fail("no adapter has a valid IPv4 address".into()), Finding::Pass)
        }),
    },
    Row {
        id: "VxlanAdapter",
        group: "node",
        severity: Severity::Error,
        why: "HNS refuses to build a network on an adapter that does not exist",
        fix: "set spec.calicoNetwork.vxlan.vxlanAdapter to one of this machine's adapters, or leave it empty",
        judge: Judge::Node(|node, input| match input.settings.and_then(|settings| settings.network.adapter.as_ref()) {
            None => Finding::Skip("no adapter is named; HNS chooses".into()),
            Some(name) => {
                let names: Vec<&str> = node.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
                let switched = format!("vEthernet ({name})");
                if names.iter().any(|have| have.eq_ignore_ascii_case(name) || have.eq_ignore_ascii_case(&switched)) {
                    Finding::Pass(name.clone())
                } else {
                    Finding::Fail(format!("there is no adapter `{name}`; there are: {}", names.join(", ")))
                }
            }
        }),
    },
];

fn build(node: &NodeFacts, _: &Input) -> Finding {
    let os = &node.os;
    let name = format!("build {}.{}", os.build, os.ubr);
    match os.build {
        0 => Finding::Unknown("Windows does not tell its build".into()),
        _ if os.product == Product::Client => Finding::Fail(format!("this is a client edition of Windows ({name})")),
        1..17763 => Finding::Fail(format!("{name} is older than Windows Server 2019")),
        17763 if os.ubr < 1432 => Finding::Fail(format!("{name} lacks the update 17763.1432 of September 2020")),
        _ => Finding::Pass(name),
    }
}
