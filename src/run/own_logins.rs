//! The node's own kubeconfigs, and which kubeconfigs are trusted.

use std::path::Path;

use anyhow::{Context, Result};

use crate::agent;
use crate::cluster::{self, Cluster};
use crate::node::Node;
use crate::node::trust::{self, Use};
use crate::values::WinPath;

/// The paths of kubelet's kubeconfig: kubeadm's, that of Calico's scripts, and Amazon's.
const KUBELETS: [&str; 3] =
    [r"C:\etc\kubernetes\kubelet.conf", r"C:\k\config", r"C:\ProgramData\kubernetes\kubeconfig"];

/// Returns the node's own kubeconfigs: kubelet's, which has more rights, then Calico's.
pub(crate) fn of(node: &dyn Node) -> Vec<WinPath> {
    let own = agent::read_config(node).ok().and_then(|config| config.startup.env.get("KUBECONFIG")?.parse().ok());
    KUBELETS.map(WinPath::known).into_iter().chain(own).filter(|file| node.disk(file).is_file()).collect()
}

/// Connects to the cluster as a program of the node does, with its kubeconfig. `connect` gets its text and folder.
///
/// # Errors
/// `UntrustedFile` if others may change it; and when it cannot be read or used.
pub(crate) fn cluster_as(
    node: &dyn Node,
    file: &WinPath,
    connect: &dyn Fn(&str, &Path) -> Result<Cluster>,
) -> Result<Cluster> {
    let place = node.disk(file);
    believe_kubeconfig(Some(node), &place, None)?;
    let text = std::fs::read_to_string(&place).with_context(|| format!("read {file}"))?;
    connect(&text, place.parent().unwrap_or(Path::new("")))
}

/// Refuses a kubeconfig that others could have written, or one that names such a file or plugin.
///
/// # Errors
/// `UntrustedFile`.
pub(crate) fn believe_kubeconfig(node: Option<&dyn Node>, file: &Path, context: Option<&str>) -> Result<()> {
    trust::believe(node, file, Use::Read, "the kubeconfig")?;
    // The code that reads the file reports why it cannot be read.
    let Ok(text) = std::fs::read_to_string(file) else { return Ok(()) };
    let named = cluster::files_of(&text, file.parent().unwrap_or(Path::new("")), context);
    for file in &named.read {
        trust::believe(node, file, Use::Read, "the kubeconfig's file")?;
    }
    for program in &named.run {
        trust::believe(node, program, Use::Run, "the kubeconfig's plugin")?;
    }
    Ok(())
}
