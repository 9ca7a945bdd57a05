//! kubelet and kube-proxy, hosted by this program: their command lines, their configurations by version, and how kubelet
//! joins.

mod join;
mod kube_proxy;
mod kubelet;
#[cfg(test)]
mod lists;
mod live;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use join::{BootstrapToken, Joining, bootstrap_kubeconfig, read_join_configuration, token_in};
pub use kube_proxy::with_source_vip;
pub use kubelet::lost_fields;
pub use live::{config_path, live_endpoint};

use super::agent_config::Command;
use super::cni::merge;
use super::services::Role;
use crate::fault::{Exit, Fault};
use crate::item::Service;
use crate::paths::kubernetes as paths;
use crate::settings::{KubernetesNode, Settings};
use crate::values::WinPath;

/// `C:\ProgramData\calicoctl-win\kubernetes.json`: what the services kubelet and kube-proxy run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubernetesConfig {
    /// The folder of their logs.
    pub log_dir: WinPath,
    /// The programs by the words of their roles; none for a service of another product.
    pub programs: BTreeMap<String, Command>,
}

impl KubernetesConfig {
    pub const PATH: &str = r"C:\ProgramData\calicoctl-win\kubernetes.json";
}

/// The services that this program makes besides Calico's, in their start order.
pub const ROLES: [Role; 2] = [Role::Kubelet, Role::KubeProxy];

/// The program's file of a role.
pub fn program(role: Role) -> &'static str {
    if role == Role::Kubelet { "kubelet.exe" } else { "kube-proxy.exe" }
}

/// Its path on the node.
pub fn program_path(role: Role) -> WinPath {
    WinPath::known(paths::PROGRAMS).join(program(role))
}

/// The services' document, for the roles that are ours.
pub fn config(settings: &Settings, node: &KubernetesNode, roles: &[Role]) -> KubernetesConfig {
    let command = |role: Role| Command {
        program: program_path(role),
        args: if role == Role::Kubelet { kubelet::arguments(settings, node) } else { kube_proxy::arguments() },
        dir: WinPath::known(paths::PROGRAMS),
        env: if role == Role::Kubelet { BTreeMap::new() } else { kube_proxy::environment() },
    };
    KubernetesConfig {
        log_dir: settings.services.log_dir.clone(),
        programs: roles.iter().map(|role| (role.word().to_owned(), command(*role))).collect(),
    }
}

/// kubelet's configuration. `has_ca`: whether the CA of its clients is on the node.
///
/// # Errors
/// When the overrides are not those of such a document.
pub fn kubelet_config(settings: &Settings, node: &KubernetesNode, has_ca: bool) -> Result<Vec<u8>> {
    rendered(kubelet::config(settings, node, has_ca), &node.kubelet_overrides, "kubeletConfigOverrides")
}

/// kube-proxy's configuration, without the source VIP. `kubeconfig`: its login.
///
/// # Errors
/// When the overrides are not those of such a document.
pub fn kube_proxy_config(settings: &Settings, node: &KubernetesNode, kubeconfig: &WinPath) -> Result<Vec<u8>> {
    rendered(kube_proxy::config(settings, node, kubeconfig), &node.kube_proxy_overrides, "kubeProxyConfigOverrides")
}

fn rendered(mut config: Value, overrides: &Value, field: &str) -> Result<Vec<u8>> {
    let kind = config["kind"].clone();
    let before = [config["apiVersion"].clone(), kind];
    merge(&mut config, overrides);
    if before != [config["apiVersion"].clone(), config["kind"].clone()] {
        let what = format!("spec.kubernetes.node.{field} cannot change apiVersion and kind");
        return Err(Fault::new(Exit::InvalidConfig, "KubernetesConfigOverrides", what)
            .hint(format!("remove them from {field}"))
            .into());
    }
    Ok(serde_yaml::to_string(&config).with_context(|| format!("write the configuration with {field}"))?.into_bytes())
}

/// The service of a role, as Windows has it.
pub fn service(role: Role) -> Service {
    super::services::service(&role.row())
}
