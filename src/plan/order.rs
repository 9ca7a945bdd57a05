//! Which service reads what, and so must stop before a change and start after it; and the names of the phases that
//! users see.

use std::time::Duration;

use super::Step;
use crate::calico::services::Role;
use crate::calico::services::is_ours;
pub use crate::calico::services::{FELIX as FELIX_SERVICE, NODE as NODE_SERVICE, SERVICES};
use crate::calico::{kubernetes, networks, registry};
use crate::item::{Id, State, World};
use crate::paths::{self, containerd};
use crate::values::WinPath;

/// Upstream's service that waits for an upgrade by the operator. This program has none: it is listed so that it is stopped
/// before it is removed, and started after it was restored.
pub const UPGRADE_SERVICE: &str = "CalicoUpgrade";

/// Every service that a run may stop and start, in start order.
pub fn all_services() -> impl DoubleEndedIterator<Item = &'static str> {
    SERVICES.into_iter().chain([UPGRADE_SERVICE])
}

/// Whether a service is Calico's and not another product's.
pub fn is_own(service: &str) -> bool {
    all_services().any(|own| own.eq_ignore_ascii_case(service))
}

/// Whether a service runs kubelet, kube-proxy or containerd for this program, by its definition in one of these worlds.
pub fn is_our_kubernetes(service: &str, worlds: &[&World]) -> bool {
    let named = service == containerd::NAME || kubernetes::ROLES.into_iter().any(|role| role.service() == service);
    let id = Id::Service(service.to_owned());
    named && worlds.iter().any(|world| matches!(world.get(&id), Some(State::Service(service)) if is_ours(service)))
}

/// Whether this program runs a role's service, as a world says.
pub fn runs(world: &World, role: Role) -> bool {
    let name = role.service();
    if role.is_calicos() { world.contains_key(&Id::Service(name.into())) } else { is_our_kubernetes(name, &[world]) }
}

/// What kubelet, kube-proxy or containerd reads, if this program runs it.
pub fn our_kubernetes_reads(service: &str, id: &Id) -> bool {
    if service == containerd::NAME {
        // It reads the CNI folders all the time.
        let folder = WinPath::known(containerd::FOLDER);
        return match id {
            Id::Service(name) => name == service,
            Id::File(path) => path.parent() == Some(folder),
            _ => false,
        };
    }
    let Some(role) = Role::of_service(service) else { return false };
    match id {
        Id::Service(name) => name == service,
        // kubelet never uses it, and kube-proxy has its load balancers in it.
        Id::Network(_) => role == Role::KubeProxy,
        Id::File(path) => {
            let path = path.as_str().to_ascii_lowercase();
            let is = |end: &str| path.ends_with(&format!("\\{end}"));
            is("calicoctl-win.exe") || role.row().reads.iter().any(|end| is(end))
        }
        _ => false,
    }
}

/// What all of Calico's services read at their start.
const READ_BY_ALL: [&str; 7] =
    ["calicoctl-win.exe", "services.json", "calico-kube-config", "nodename", "server.key", "server.crt", "ca.crt"];

/// Whether a running service must be stopped before this item changes.
///
/// All run our executable with the release's binaries; what only one of them reads is in its row. `config.ps1` and the CNI files are read by others. What CalicoNode writes
/// while it runs is not changed meanwhile.
///
/// Another product's service reads nothing of ours, only its own definition, and uses the networks: kube-proxy has its
/// load balancers in them.
pub fn reads(service: &str, id: &Id) -> bool {
    match id {
        Id::Service(name) if name == service => true,
        Id::Network(_) => true,
        _ if !is_own(service) => false,
        Id::Tree(_) => true,
        Id::Service(name) => name == NODE_SERVICE,
        // Not the file of etcd's CA.
        Id::File(path) if path.as_str() == paths::kubernetes::CA => false,
        Id::File(path) => {
            let name = path.name().to_ascii_lowercase();
            READ_BY_ALL.contains(&name.as_str())
                || Role::of_service(service).is_some_and(|role| role.row().reads.contains(&name.as_str()))
        }
        Id::RegValue { .. } => service == NODE_SERVICE && registry::agents_own().contains(id),
        _ => false,
    }
}

/// An estimate of how many seconds the steps take, and how many of them from the first service stopped to the last one
/// started: Windows's usual times, measured on Server 2019 and 2022.
pub fn about_seconds(steps: &[Step]) -> (u64, u64) {
    let mut total = Duration::ZERO;
    let (mut stopped, mut down) = (None, Duration::ZERO);
    for step in steps {
        if matches!(step, Step::Put { id: Id::Running(_), after: None, .. }) {
            stopped.get_or_insert(total);
        }
        total += about(step);
        if let (Some(since), Step::Put { id: Id::Running(_), after: Some(_), .. }) = (stopped, step) {
            down = total - since;
        }
    }
    let whole = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    (whole(total), whole(down))
}

fn about(step: &Step) -> Duration {
    Duration::from_millis(match step {
        Step::Put { id: Id::Running(_), after: None, .. } => 2000,
        Step::Put { id: Id::Running(_), .. } => 1000,
        // The virtual switch is created with the first network on an adapter, and gets its address by DHCP.
        Step::Await { id: Id::Network(name), .. } if name == networks::BOOTSTRAP => 20_000,
        // The rest of node startup, once its network exists.
        Step::Await { id: Id::Running(_), .. } => 0,
        Step::Await { .. } => 8000,
        // Without pods. Pods take their own time.
        Step::Vacate { .. } | Step::Drain { .. } => 100,
        Step::Put { id: Id::Network(_), .. } => 3000,
        Step::Put { id: Id::Tree(_), .. } => 1000,
        Step::Put { id: Id::Service(_) | Id::DependsOn(_) | Id::Firewall(_), .. } => 200,
        Step::Put { .. } => 50,
    })
}

/// The phase that an item's change belongs to, in kebab-case.
pub const fn phase(id: &Id, put: bool) -> &'static str {
    match id {
        Id::Dir(_) | Id::Tree(_) => "release",
        Id::File(_) => "files",
        Id::RegValue { .. } => "registry",
        Id::Firewall(_) => "firewall",
        Id::Service(_) | Id::DependsOn(_) => "services",
        Id::Network(_) | Id::Route(_) | Id::Adapter(_) if put => "hns-network",
        Id::Network(_) | Id::Route(_) | Id::Adapter(_) => "wait-network",
        Id::CniConf(_) => "cni-conf",
        Id::Running(_) if put => "run",
        Id::Running(_) => "node-startup",
        Id::Cordon(_) => "cordon",
        Id::Achieved(_) | Id::CalicoIsUp(_) => "annotate",
    }
}
