//! The kubeconfigs of the node's own programs, and which kubeconfigs are trusted.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::agent;
use crate::cluster::{self, Cluster};
use crate::node::Node;
use crate::node::trust::{self, Use};
use crate::values::WinPath;

/// The paths of kubelet's kubeconfig: kubeadm's, that of Calico's scripts, and Amazon's.
const KUBELETS: [&str; 3] =
    [r"C:\etc\kubernetes\kubelet.conf", r"C:\k\config", r"C:\ProgramData\kubernetes\kubeconfig"];

/// Connects to the cluster with a kubeconfig's text and the folder of its relative paths.
pub(crate) type Connect<'a> = &'a dyn Fn(&str, &Path) -> Result<Cluster>;

/// Connects to the cluster as a program of the node does, with its kubeconfig.
///
/// # Errors
/// `UntrustedFile` if others may change it; and when it cannot be read or used.
pub(crate) fn as_program(node: &dyn Node, file: &WinPath, connect: Connect<'_>) -> Result<Cluster> {
    let place = node.disk(file);
    check_kubeconfig(Some(node), &place, None)?;
    let text = cluster::read_kubeconfig(&place).with_context(|| format!("read {file}"))?;
    connect(&text, place.parent().unwrap_or(Path::new("")))
}

/// Returns the kubeconfigs of the node's programs: kubelet's, which has more rights, then Calico's.
pub(crate) fn programs_kubeconfigs(node: &dyn Node) -> Vec<WinPath> {
    let own = agent::read_config(node).ok().and_then(|config| config.kubeconfig());
    KUBELETS.map(WinPath::known).into_iter().chain(own).filter(|file| node.disk(file).is_file()).collect()
}

/// Refuses a kubeconfig that others could have written, or one that names such a file or plugin.
///
/// # Errors
/// `UntrustedFile`.
pub(crate) fn check_kubeconfig(node: Option<&dyn Node>, file: &Path, context: Option<&str>) -> Result<()> {
    trust::check(node, file, Use::Read, "the kubeconfig")?;
    // The code that reads the file reports why it cannot be read.
    let Ok(text) = cluster::read_kubeconfig(file) else { return Ok(()) };
    let named = cluster::files_of(&text, file.parent().unwrap_or(Path::new("")), context);
    for file in &named.read {
        trust::check(node, file, Use::Read, "the kubeconfig's file")?;
    }
    for program in &named.run {
        trust::check(node, program, Use::Run, "the kubeconfig's plugin")?;
    }
    Ok(())
}
