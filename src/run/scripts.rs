//! What Calico's own scripts installed on a node, as items: an uninstall removes them, and keeps what they were.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::import::{config_ps1, live, node_name};
use crate::apply::marks;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::calico::networks;
use crate::calico::nssm;
use crate::calico::services::{FIREWALL_GROUP, NODE};
use crate::calico::upstream::{self, Installation};
use crate::calico::{registry, services};
use crate::config::import::{self, Source};
use crate::config::{self, Document, Origin, Override};
use crate::facts::{ClusterFacts, NodeFacts, RuntimeKind};
use crate::item::{Id, Manifest, Service, State, Tree};
use crate::node::{Listing, Node};
use crate::paths;
use crate::plan::Target;
use crate::plan::files_in_use::users_of_files;
use crate::plan::order::{all_services, is_own};
use crate::settings;
use crate::values::WinPath;
use crate::version::CalicoVersion;

const VERSION: &str = "spec.calico.version";

/// An installation by Calico's scripts.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    /// Every item of it.
    pub items: BTreeSet<Id>,
    /// The name of the Node, as node startup wrote it.
    pub node_name: Option<String>,
    /// What stays, and why.
    pub left: Vec<String>,
}

/// Returns the installation on a node that has services of the scripts; none without them.
///
/// # Errors
/// When the node cannot be read: a failed query does not mean that nothing is there.
pub(super) fn found(node: &dyn Node, facts: &NodeFacts) -> Result<Option<Scripts>> {
    let mut services = Vec::new();
    for (id, state) in node.list(Listing::Services).context("list the services")? {
        if let (Id::Service(name), State::Service(service)) = (id, state) {
            services.push((name, *service));
        }
    }
    let theirs = |name: &str| {
        let found = services.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, service)| service).filter(|service| nssm::script(service).is_some())
    };
    let mut scripts = Scripts::default();
    let mut definition = None;
    for name in all_services() {
        if let Some(service) = theirs(name) {
            scripts.items.extend([Id::Service(name.into()), Id::Running(name.into())]);
            definition = if name == NODE { Some(service) } else { definition.or(Some(service)) };
        }
    }
    let Some(installation) = definition.and_then(Installation::of) else { return Ok(None) };
    let root = installation.root.clone();
    scripts.node_name = node_name(node, &paths::nodename(&root));
    scripts.items.extend(cni(node, facts, installation)?);
    scripts.items.extend(marks::networks(node)?);
    for (id, state) in node.list(Listing::FirewallRules).context("list the firewall's rules")? {
        if let (Id::Firewall(name), State::Firewall(rule)) = (&id, &state)
            && services::is_scripts_rule(name)
            && rule.group != FIREWALL_GROUP
        {
            scripts.items.insert(id);
        }
    }
    if node.get(&registry::last_boot_time())?.is_some() {
        scripts.items.insert(registry::last_boot_time());
    }
    scripts.folder(node, &services, &root)?;
    Ok(Some(scripts))
}

/// The CNI configuration and the plugins; none with policy only, where they are another product's.
fn cni(node: &dyn Node, facts: &NodeFacts, installation: Installation) -> Result<Vec<Id>> {
    let runtime = facts.runtime.as_ref();
    let text = config_ps1(node, &installation.root)?.unwrap_or_default();
    let source = Source {
        root: installation.root,
        containerd: Some(runtime.is_none_or(|runtime| runtime.kind == RuntimeKind::Containerd)),
        environment: installation.environment,
        ..Source::file("config.ps1")
    };
    let Some(folders) = import::cni_folders(&text, &source) else { return Ok(Vec::new()) };
    let conf_dir = folders.conf_dir.or_else(|| runtime.map(|runtime| runtime.cni_conf_dir.clone()));
    let bin_dir = folders.bin_dir.or_else(|| runtime.map(|runtime| runtime.cni_bin_dir.clone()));
    let conf = conf_dir.map(|dir| Id::CniConf(dir.join(&folders.conf_file)));
    let plugins =
        bin_dir.into_iter().flat_map(|dir| ["calico.exe", "calico-ipam.exe"].map(|name| Id::File(dir.join(name))));
    let mut there = Vec::new();
    for id in conf.into_iter().chain(plugins) {
        if node.get(&id)?.is_some() {
            there.push(id);
        }
    }
    Ok(there)
}

impl Scripts {
    /// The files that the scripts put into their folder, and each folder in which nothing else is. A folder from which a
    /// service of another product runs stays whole: the scripts' kubelet needs more of it than its program.
    fn folder(&mut self, node: &dyn Node, services: &[(String, Service)], root: &WinPath) -> Result<()> {
        let (target, release) =
            (Target::default(), Manifest { version: String::new(), archive: None, files: [].into() });
        if let Some(user) = users_of_files(services, |_| true, root, &target, &release).first() {
            self.left.push(format!("{root}, from which the service {} runs {}", user.service, user.path));
            return Ok(());
        }
        let (mut items, mut others) = (BTreeSet::new(), Vec::new());
        walk(node, root, root, &mut items, &mut others)?;
        match others.len() {
            0 => {}
            1 => self.left.push(format!("{}, which is not Calico's", others[0])),
            more => self.left.push(format!("{} and {} more files that are not Calico's", others[0], more - 1)),
        }
        self.items.append(&mut items);
        Ok(())
    }
}

/// Collects the scripts' files below a folder, the folders that are empty without them, and the files of other users. Returns
/// whether the folder is empty then.
fn walk(
    node: &dyn Node,
    root: &WinPath,
    folder: &WinPath,
    items: &mut BTreeSet<Id>,
    others: &mut Vec<WinPath>,
) -> Result<bool> {
    let mut is_empty = true;
    let place = node.disk(folder);
    if !place.is_dir() {
        return Ok(true);
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(&place).with_context(|| format!("read {folder}"))? {
        let entry = entry.with_context(|| format!("read {folder}"))?;
        let kind = entry.file_type().with_context(|| format!("look at {}", entry.path().display()))?;
        entries.push((folder.join(&entry.file_name().to_string_lossy()), kind));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, kind) in entries {
        let below = &path.as_str()[root.as_str().len()..];
        if kind.is_dir() {
            is_empty &= walk(node, root, &path, items, others)?;
        } else if kind.is_file() && upstream::is_file(below) {
            items.insert(Id::File(path));
        } else {
            // A link is never followed.
            others.push(path);
            is_empty = false;
        }
    }
    let holds_theirs = items.iter().any(|id| id.path().is_some_and(|path| path.is_below(folder)));
    if is_empty && (folder == root || holds_theirs || upstream::is_folder(&folder.as_str()[root.as_str().len()..])) {
        items.insert(Id::Dir(folder.clone()));
        return Ok(true);
    }
    Ok(false)
}

/// The items of the scripts' installation that this program adopted and would restore: none if there was none.
pub(super) fn adopted(standing: &Standing) -> BTreeSet<Id> {
    let owned = standing.owned();
    let is_script = |state: &State| matches!(state, State::Service(service) if nssm::script(service).is_some());
    let was_there = |id: &Id| match id {
        Id::Service(name) | Id::Running(name) => is_own(name),
        Id::Network(name) => networks::is_calicos(name),
        Id::Tree(_) | Id::File(_) | Id::CniConf(_) | Id::Firewall(_) | Id::RegValue { .. } => true,
        _ => false,
    };
    let theirs = owned.iter().filter_map(|(id, original)| Some((id, original.as_ref()?)));
    if !theirs.clone().any(|(id, original)| matches!(id, Id::Service(name) if is_own(name)) && is_script(original)) {
        return BTreeSet::new();
    }
    theirs.filter(|(id, _)| was_there(id)).map(|(id, _)| id.clone()).collect()
}

/// The files of other users in a folder of the scripts that stays in the store, if there are any. `purge`: the store goes,
/// and they are moved out of it.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn files_in_store(node: &dyn Node, standing: &Standing, purge: bool) -> Result<Option<String>> {
    let owned = standing.owned();
    let root = owned.iter().find_map(|(id, original)| match (id, original) {
        (Id::Tree(root), Some(State::Tree(Tree::Foreign))) => Some(root),
        _ => None,
    });
    let folder = store::tree(store::FOREIGN);
    let (Some(root), true) = (root, node.disk(&folder).is_dir()) else { return Ok(None) };
    let files = store::of_others(&node.disk(&folder))?;
    let Some(first) = files.first() else { return Ok(None) };
    let folder = if purge { store::kept_foreign(node) } else { folder };
    let more = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
    Ok(Some(format!("{}{more}, not Calico's and in {root} before the first install: now in {folder}", first.display())))
}

/// The settings of an installation.
pub(super) struct Settings {
    /// By the paths of the config.
    pub values: BTreeMap<String, Value>,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// The settings that the scripts' installation has; none if there is none.
///
/// # Errors
/// When they cannot be read.
pub(super) fn settings(
    node: &dyn Node,
    facts: &NodeFacts,
    cluster: &ClusterFacts,
    version: &CalicoVersion,
) -> Result<Option<Settings>> {
    match node.get(&Id::Service(NODE.into()))? {
        Some(State::Service(service)) if nssm::script(&service).is_some() => {}
        _ => return Ok(None),
    }
    let imported = live(node)?;
    let document = Document { name: "config.ps1".into(), text: imported.document.to_string() };
    // The scripts do not record which release they installed, so the version is not one of their settings.
    let version =
        Override { path: VERSION.into(), value: version.to_string(), from: Origin::Detected("this run".into()) };
    let layered = config::load(&[document], &[version])?;
    let resolved = settings::resolve(&layered, facts, Some(cluster))?;
    let fields = resolved.origins.iter().filter(|field| layered.origin(&field.path).is_some());
    let with_value =
        fields.filter(|field| !field.value.is_null() && field.path != VERSION && !config::is_of_a_run(&field.path));
    let values = with_value.map(|field| (field.path.clone(), field.value.clone())).collect();
    let unread = imported.unread.iter().map(ToString::to_string).collect();
    Ok(Some(Settings { values, unread }))
}
