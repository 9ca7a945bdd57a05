//! The CNI plugin: its files and its configuration.

use serde::Serialize;
use serde_json::Map;

use super::Backend;
use super::resolver::Resolver;
use super::run::Folders;
use crate::values::WinPath;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cni {
    pub bin_dir: WinPath,
    pub conf_dir: WinPath,
    /// For example `10-calico.conf`.
    pub conf_file: String,
    pub log_level: String,
    /// Pods share one block and one HNS network: the CNI key `windows_use_single_network`.
    pub single_network: bool,
    /// Merged over the rendered document (RFC 7386 merge patch).
    pub overrides: serde_json::Value,
}

pub(super) fn decide(to: &mut Resolver<'_>, folders: &Folders, backend: Backend) -> Cni {
    const SINGLE: &str = "calicoNetwork.windowsUseSingleNetwork";
    let log_dir: Option<WinPath> = to.optional("windowsNodes.cniLogDir");
    let mut overrides = to.or_default("calicoNetwork.cniConfigOverrides", Map::new());
    if let Some(dir) = log_dir {
        overrides.entry("log_file_path").or_insert_with(|| dir.join("cni.log").as_str().into());
    }
    let single_network = to.or_default(SINGLE, true);
    // CalicoNode creates and checks the network `Calico`. With false, the CNI plugin creates one per address block,
    // which node startup and the VXLAN routes do not support.
    if backend != Backend::None && !single_network {
        let why = "with false, pods use one network Calico-a-b-c-d per address block, which Calico's node startup and \
                   this program neither create nor check: remove it, so that they use the network Calico";
        to.wrong(SINGLE, why);
    }
    Cni {
        bin_dir: folders.cni_bin.clone(),
        conf_dir: folders.cni_conf.clone(),
        conf_file: to.or_default("windowsNodes.cniConfigFile", "10-calico.conf".to_owned()),
        log_level: to.or_default("windowsNodes.cniLogLevel", "info".to_owned()),
        single_network,
        overrides: overrides.into(),
    }
}
