//! What is recognised of Calico on a node where no receipt records it, and what helps.

use anyhow::Result;

use crate::calico::nssm;
use crate::calico::services::{NODE, is_ours};
use crate::item::{Id, State};
use crate::node::Node;
use crate::paths;
use crate::plan::order::all_services;
use crate::values::joined;

/// The command for services of Calico's scripts, of which all that an import needs is there.
pub(crate) const IMPORT: &str = "config import --live --out node.yaml";
/// For services with the mark of this program.
pub(crate) const INSTALL: &str = "install -c FILE";

/// Returns what there is, and a command; none if there is neither a service nor a folder of Calico.
///
/// # Errors
/// When the node cannot be read.
pub(super) fn recognised(node: &dyn Node) -> Result<Option<(String, &'static str)>> {
    let (mut ours, mut scripts, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for name in all_services() {
        match node.get(&Id::Service(name.into()))? {
            Some(State::Service(service)) if is_ours(&service) => ours.push(name),
            Some(State::Service(service)) if nssm::script(&service).is_some() => scripts.push(name),
            Some(_) => others.push(name),
            None => {}
        }
    }
    let has_node = [&ours, &scripts, &others].iter().any(|names| names.contains(&NODE));
    let mut said = Vec::new();
    if !ours.is_empty() {
        said.push(format!("this program installed {}, and no receipt records it", joined(&ours, ", ")));
    }
    if !scripts.is_empty() {
        said.push(format!("Calico's scripts installed {}", joined(&scripts, ", ")));
    }
    if !others.is_empty() {
        said.push(format!("neither this program nor Calico's scripts installed {}", joined(&others, ", ")));
    }
    let root = paths::default_root();
    if said.is_empty() {
        let what =
            format!("{root} is here, without a service of Calico: install replaces it, and keeps what was in it");
        return Ok(node.disk(&root).is_dir().then_some((what, "install")));
    }
    if !has_node {
        said.push(format!("there is no service {NODE}"));
    }
    let command = match () {
        () if !ours.is_empty() => INSTALL,
        () if scripts.contains(&NODE) => IMPORT,
        () if !scripts.is_empty() => "uninstall",
        () => "explain NotInstalledHere",
    };
    Ok(Some((said.join("; "), command)))
}
