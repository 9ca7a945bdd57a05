//! What kubelet and kube-proxy need on the node, if this program runs them.

use anyhow::{Context, Result};

use super::wanted::Wanted;
use crate::calico::containerd as runtime;
use crate::calico::kubernetes::{self, KubernetesConfig};
use crate::calico::services::Role;
use crate::item::{Access, Id, State};
use crate::paths::{containerd, kubernetes as paths};
use crate::settings::{KubernetesNode, Settings};
use crate::values::{Sha256, WinPath};

/// What determines it besides the settings.
#[derive(Debug, Clone, Default)]
pub struct KubernetesFiles {
    /// The programs that are ours to run, by the role of their service. A service that another program made is left as it
    /// is, and its program is not here.
    pub programs: Vec<(Role, Sha256)>,
    /// The programs of containerd, if it is ours too.
    pub containerd: Vec<(&'static str, Sha256)>,
    /// The cluster's CA in PEM; none if the kubeconfig uses the system's roots.
    pub ca_pem: Option<String>,
    pub bootstrap: Bootstrap,
}

/// The kubeconfig with which kubelet joins.
#[derive(Clone, Default)]
pub enum Bootstrap {
    /// Another program's, or none: kubelet has joined.
    #[default]
    Absent,
    Rendered(Vec<u8>),
    /// There will be one, but a plan for another machine has no token.
    Pending,
}

impl std::fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::Rendered(_) => "Rendered(***)",
            Self::Pending => "Pending",
        })
    }
}

/// What kubelet writes: a run removes it with kubelet, but does not set it.
pub fn kubelets_own() -> [Id; 1] {
    [Id::File(WinPath::known(paths::KUBELET_CONF))]
}

/// Adds them to the wanted world. Returns the roles whose services are ours.
pub(super) fn add(
    wanted: &mut Wanted<'_>,
    settings: &Settings,
    node: &KubernetesNode,
    files: &KubernetesFiles,
    kubeconfig: Option<&WinPath>,
) -> Result<Vec<Role>> {
    let roles: Vec<Role> = files.programs.iter().map(|(role, _)| *role).collect();
    for (role, sha256) in &files.programs {
        wanted.digest(Id::File(kubernetes::program_path(*role)), sha256.clone(), Access::Inherited);
        wanted.add(Id::Service(role.service().into()), State::Service(Box::new(kubernetes::service(*role))));
    }
    if let Some(wanted_of) = node.containerd.as_ref().filter(|_| !files.containerd.is_empty()) {
        for (name, sha256) in &files.containerd {
            wanted.digest(Id::File(containerd::path(name)), sha256.clone(), Access::Inherited);
        }
        let config = runtime::config(&wanted_of.sandbox_image, &settings.cni);
        wanted.file(containerd::path("config.toml"), config.into_bytes(), Access::Inherited);
        let id = Id::Service(containerd::NAME.into());
        wanted.add(id, State::Service(Box::new(runtime::service())));
    }
    if roles.is_empty() {
        return Ok(roles);
    }
    wanted.json(KubernetesConfig::PATH, &kubernetes::config(settings, node, &roles))?;
    if roles.contains(&Role::Kubelet) {
        let has_ca = files.ca_pem.is_some();
        let config = kubernetes::kubelet_config(settings, node, has_ca)?;
        wanted.file(WinPath::known(paths::KUBELET_CONFIG), config, Access::Inherited);
        if let Some(ca) = &files.ca_pem {
            wanted.file(WinPath::known(paths::CA), ca.clone().into_bytes(), Access::Inherited);
        }
        let bootstrap = WinPath::known(paths::BOOTSTRAP_CONF);
        match &files.bootstrap {
            Bootstrap::Absent => {}
            Bootstrap::Rendered(bytes) => wanted.file(bootstrap, bytes.clone(), Access::Administrators),
            Bootstrap::Pending => wanted.digest(Id::File(bootstrap), Sha256::unknown(), Access::Administrators),
        }
    }
    if roles.contains(&Role::KubeProxy) {
        let kubeconfig = kubeconfig.context("find the kubeconfig for kube-proxy")?;
        let config = kubernetes::kube_proxy_config(settings, node, kubeconfig)?;
        wanted.file(WinPath::known(paths::KUBE_PROXY_CONFIG), config, Access::Inherited);
    }
    Ok(roles)
}
