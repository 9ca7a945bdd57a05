//! The CNI plugin: its files and its configuration.

use serde::Serialize;

use super::Backend;
use super::resolver::Resolver;
use super::run::Folders;
use super::services::level;
use crate::config::spec::Spec;
use crate::config::types::ConfFile;
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
    /// Merged over the document we render (RFC 7386 merge patch).
    pub overrides: serde_json::Value,
}

pub(super) fn decide(to: &mut Resolver<'_>, spec: &Spec, folders: &Folders, backend: Backend) -> Cni {
    let given = &spec.windows_nodes;
    let network = &spec.calico_network;
    let usual = || "10-calico.conf".parse::<ConfFile>().expect("a literal name is right");
    let conf_file = to.or_default("spec.windowsNodes.cniConfigFile", given.cni_config_file.clone(), usual());
    let log_dir = to.optional("spec.windowsNodes.cniLogDir", given.cni_log_dir.clone());
    let mut overrides = to.or_default(
        "spec.calicoNetwork.cniConfigOverrides",
        network.cni_config_overrides.clone(),
        Default::default(),
    );
    if let Some(dir) = log_dir {
        overrides.entry("log_file_path").or_insert_with(|| dir.join("cni.log").as_str().into());
    }
    let path = "spec.calicoNetwork.windowsUseSingleNetwork";
    let single_network = to.or_default(path, network.windows_use_single_network, true);
    // CalicoNode makes and proves the one network `Calico`. With the option off, the CNI plugin makes others beside it,
    // one per address block, that node startup and the VXLAN routes know nothing of.
    if backend != Backend::None && !single_network {
        let why = "pods would be on networks Calico-a-b-c-d, one per address block, which Calico's node startup and this \
                   program neither make nor check: leave it out, so that they are on the network Calico";
        to.wrong(path, why);
    }
    Cni {
        bin_dir: folders.cni_bin.clone(),
        conf_dir: folders.cni_conf.clone(),
        conf_file: conf_file.as_str().to_owned(),
        log_level: level(to, "spec.windowsNodes.cniLogLevel", given.cni_log_level),
        single_network,
        overrides: overrides.into(),
    }
}
