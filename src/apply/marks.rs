//! Items that are ours although no receipt records them: found by the marks on what this program creates, and by the
//! known names of items that cannot carry a mark.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use super::store;
use crate::calico::agent_config::{AgentConfig, FelixConfig};
use crate::calico::kubernetes::{self, KubernetesConfig};
use crate::calico::services::{EXECUTABLE, FIREWALL_GROUP, FOLDER, Role, is_ours};
use crate::calico::{networks, registry};
use crate::facts::{NodeFacts, Part};
use crate::item::{Id, RegValue, State, Tree};
use crate::node::{Listing, Node};
use crate::paths::{self, containerd, kubernetes as at};
use crate::plan::Owned;
use crate::values::WinPath;

/// The folder of a release unless its config names another.
const ROOT: &str = r"C:\CalicoWindows";

/// Returns every item that has our mark and is not in `owned`. HNS networks, CNI files and other items that cannot
/// carry a mark count only if a marked item shows that this program installed Calico here.
///
/// # Errors
/// When the node cannot be read: a failed query does not mean that nothing is there.
pub fn found(node: &dyn Node, owned: &Owned, facts: &NodeFacts) -> Result<BTreeSet<Id>> {
    let mut found = marked(node)?;
    if !found.is_empty() {
        found.extend(unmarked(node, facts)?);
    }
    found.retain(|id| !owned.contains_key(id));
    Ok(found)
}

fn marked(node: &dyn Node) -> Result<BTreeSet<Id>> {
    let mut found = BTreeSet::new();
    for (id, state) in node.list(Listing::Services).context("list the services")? {
        if let (Id::Service(name), State::Service(service)) = (&id, &state)
            && is_ours(service)
        {
            found.insert(Id::Running(name.clone()));
            found.insert(id);
        }
    }
    for (id, state) in node.list(Listing::FirewallRules).context("list the firewall's rules")? {
        if matches!(&state, State::Firewall(rule) if rule.group == FIREWALL_GROUP) {
            found.insert(id);
        }
    }
    let installed_by = registry::installed_by();
    if node.get(&installed_by)? == Some(State::RegValue(RegValue::String("calicoctl-win".into()))) {
        found.extend(registry::agents_own());
        found.insert(installed_by);
    }
    for (id, _) in registry::event_source() {
        if node.get(&id)?.is_some() {
            found.insert(id);
        }
    }
    let root = root(node);
    if matches!(node.get(&Id::Tree(root.clone()))?, Some(State::Tree(Tree::Release(_) | Tree::Drifted { .. }))) {
        found.insert(Id::Tree(root));
    }
    let exe = Id::File(WinPath::known(EXECUTABLE));
    if node.get(&exe)?.is_some() {
        found.insert(exe);
        found.insert(Id::Dir(WinPath::known(FOLDER)));
    }
    for path in [AgentConfig::PATH, FelixConfig::PATH, KubernetesConfig::PATH] {
        let config = Id::File(WinPath::known(path));
        if node.get(&config)?.is_some() {
            found.insert(config);
        }
    }
    found.extend(of_kubernetes(node, &found)?);
    Ok(found)
}

/// The files of the services kubelet and kube-proxy that are ours.
fn of_kubernetes(node: &dyn Node, found: &BTreeSet<Id>) -> Result<Vec<Id>> {
    let mut files = Vec::new();
    for role in kubernetes::ROLES {
        if !found.contains(&Id::Service(role.service().into())) {
            continue;
        }
        let own: &[&str] = match role {
            Role::Kubelet => &[at::KUBELET_CONF, at::BOOTSTRAP_CONF, at::KUBELET_CONFIG],
            _ => &[at::KUBE_PROXY_CONFIG],
        };
        let paths = own.iter().map(|path| WinPath::known(path)).chain([kubernetes::program_path(role)]);
        for id in paths.map(Id::File) {
            if node.get(&id)?.is_some() {
                files.push(id);
            }
        }
        files.push(Id::Dir(WinPath::known(at::PROGRAMS)));
    }
    if found.contains(&Id::Service(containerd::NAME.into())) {
        for name in containerd::PROGRAMS.into_iter().chain(["config.toml"]) {
            let id = Id::File(containerd::path(name));
            if node.get(&id)?.is_some() {
                files.push(id);
            }
        }
    }
    Ok(files)
}

/// The folder of the release, according to the services.
fn root(node: &dyn Node) -> WinPath {
    let text = fs::read(node.disk(&WinPath::known(AgentConfig::PATH))).unwrap_or_default();
    let said = serde_json::from_slice::<AgentConfig>(&text).ok().and_then(|config| config.startup.program.parent());
    said.unwrap_or_else(|| WinPath::known(ROOT))
}

fn unmarked(node: &dyn Node, facts: &NodeFacts) -> Result<BTreeSet<Id>> {
    let mut found = networks(node)?;
    if let Some(why) = facts.untold(Part::Runtime) {
        bail!("{why}");
    }
    if let Some(runtime) = &facts.runtime {
        found.extend(cni(node, &runtime.cni_conf_dir, &runtime.cni_bin_dir)?);
    }
    Ok(found)
}

/// Returns the HNS networks that Calico makes on a node on which it is installed, by their names.
///
/// # Errors
/// When HNS cannot be asked.
pub fn networks(node: &dyn Node) -> Result<BTreeSet<Id>> {
    let mut found = BTreeSet::new();
    for (id, state) in node.list(Listing::Networks).context("list the HNS networks")? {
        if let (Id::Network(name), State::Network(network)) = (&id, &state)
            && networks::is_made_by_calico(name, network)
        {
            found.insert(id);
        }
    }
    Ok(found)
}

/// Returns the CNI configurations that name our kubeconfig, and the plugins that are those of our release.
fn cni(node: &dyn Node, conf_dir: &WinPath, bin_dir: &WinPath) -> Result<BTreeSet<Id>> {
    let root = root(node);
    let mut found = BTreeSet::new();
    let kubeconfig = paths::kubeconfig(&root).to_string();
    for entry in fs::read_dir(node.disk(conf_dir)).into_iter().flatten() {
        let entry = entry.with_context(|| format!("read {conf_dir}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Parsed as JSON because of escaped characters; a file that is not JSON is not Calico's.
        let text = fs::read(entry.path()).unwrap_or_default();
        let conf: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        if mentions(&conf, &kubeconfig) {
            found.insert(Id::CniConf(conf_dir.join(&name)));
        }
    }
    let Ok(manifest) = store::manifest(&node.disk(&root)) else { return Ok(found) };
    for name in ["calico.exe", "calico-ipam.exe"] {
        let id = Id::File(bin_dir.join(name));
        let released =
            |digest| manifest.files.iter().any(|(path, file)| path.starts_with("cni/") && file.sha256 == digest);
        if let Some(State::File { sha256, .. }) = node.get(&id)?
            && released(sha256)
        {
            found.insert(id);
        }
    }
    Ok(found)
}

fn mentions(conf: &serde_json::Value, path: &str) -> bool {
    match conf {
        serde_json::Value::String(text) => text.replace('/', "\\").eq_ignore_ascii_case(path),
        serde_json::Value::Array(all) => all.iter().any(|part| mentions(part, path)),
        serde_json::Value::Object(all) => all.values().any(|part| mentions(part, path)),
        _ => false,
    }
}
