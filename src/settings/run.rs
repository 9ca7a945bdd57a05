//! The settings of a run: decided from the config and the machine, before the cluster can be asked.

use super::connection::{self, Connection};
use super::datastore::{self, SecretRef};
use super::kubernetes_node::installs_containerd;
use super::maintenance::{self, Maintenance, Reboot};
use super::network::credentials;
use super::resolver::Resolver;
use super::{Credentials, RemoteAccess};
use crate::config::{Layered, Origin};
use crate::facts::{ClusterFacts, NodeFacts, Runtime};
use crate::paths::{self, LOG_DIR, containerd};
use crate::values::{WinPath, known};

/// What concerns one run, and what must be known before the node's settings can be decided.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    pub connection: Connection,
    /// The source of the login in the node's kubeconfig; none if it needs none.
    pub credentials: Option<Credentials>,
    /// Whether the config names that source.
    pub credentials_named: bool,
    /// With [`Credentials::Secret`]: whether the token secret may be created if there is none.
    pub create_token_secret: bool,
    /// With [`Credentials::Kubeconfig`]: the file, on the machine that this program runs on.
    pub calico_kubeconfig: Option<String>,
    /// Whether Calico keeps its data in etcd.
    pub etcd: bool,
    /// Secret to read etcd's certificates from.
    pub etcd_tls_secret: Option<SecretRef>,
    pub maintenance: Maintenance,
    pub reboot: Reboot,
    pub folders: Folders,
    /// Ids of the checks whose failure does not stop the run.
    pub ignored_checks: Vec<String>,
    /// Ways by which people must be able to reach the machine.
    pub remote_access: Vec<RemoteAccess>,
}

/// Where Calico's files are on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    pub root: WinPath,
    pub logs: WinPath,
    pub cni_bin: WinPath,
    pub cni_conf: WinPath,
}

/// Decides them; without a machine, only from the config.
pub fn run(layered: &Layered, machine: Option<&NodeFacts>) -> RunSettings {
    decide(&mut Resolver::new(layered), machine, None)
}

pub(super) fn decide(
    to: &mut Resolver<'_>,
    machine: Option<&NodeFacts>,
    cluster: Option<&ClusterFacts>,
) -> RunSettings {
    RunSettings {
        connection: connection::decide(to, machine.and_then(|machine| machine.cloud.as_ref())),
        credentials: credentials(to, cluster),
        credentials_named: to.given::<Credentials>("kubernetes.credentials").is_some(),
        create_token_secret: to.or_default("kubernetes.createServiceAccountToken", true),
        calico_kubeconfig: to.text("kubernetes.calicoKubeconfig"),
        etcd: datastore::is_etcd(to),
        etcd_tls_secret: datastore::tls_secret(to),
        maintenance: maintenance::decide(to),
        reboot: maintenance::decide_reboot(to),
        folders: folders(to, machine.and_then(|machine| machine.runtime.as_ref())),
        ignored_checks: to.or_default("preflight.ignore", Vec::new()),
        remote_access: to.or_default("preflight.remoteAccess", Vec::new()),
    }
}

fn folders(to: &mut Resolver<'_>, runtime: Option<&Runtime>) -> Folders {
    let installs = installs_containerd(to);
    let dir = |found: fn(&Runtime) -> &WinPath, own: &str, usual: &str| match runtime {
        Some(runtime) => (found(runtime).clone(), Origin::Detected(runtime.kind.service().into())),
        // Once it is installed, they are detected.
        None if installs => (containerd::path("cni").join(own), Origin::Detected("containerd".into())),
        None => (known(usual), Origin::Default),
    };
    Folders {
        root: root_dir(to),
        logs: to.or_default("services.logDir", known(LOG_DIR)),
        cni_bin: to.auto("windowsNodes.cniBinDir", || dir(|runtime| &runtime.cni_bin_dir, "bin", r"C:\k\cni")),
        cni_conf: to
            .auto("windowsNodes.cniConfigDir", || dir(|runtime| &runtime.cni_conf_dir, "conf", r"C:\k\cni\config")),
    }
}

/// The root folder of Calico.
pub(super) fn root_dir(to: &mut Resolver<'_>) -> WinPath {
    to.or_default("calico.rootDir", paths::default_root())
}
