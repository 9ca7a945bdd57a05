//! The store on the node's disk: files by their digest, and whole trees, while a generation needs them. SYSTEM and
//! Administrators only, since it contains kubeconfigs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::receipt::Receipt;
use crate::calico::{static_rules, upstream};
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id, Manifest, ManifestFile, State, Tree};
use crate::node::{Node, STATE_DIR, STORE_DIR, files, record, withdrawn};
use crate::paths;
use crate::plan::Owned;
use crate::values::{Sha256, WinPath};

/// The store's name for a folder that another program created.
pub const FOREIGN: &str = Tree::FOREIGN;

/// The path of a file's bytes.
pub fn blob(sha256: &Sha256) -> WinPath {
    WinPath::known(STORE_DIR).join("blobs").join(sha256.as_str())
}

/// The path of a staged or previous tree, by its digest.
pub fn tree(name: &str) -> WinPath {
    WinPath::known(STORE_DIR).join("trees").join(name)
}

/// Adds bytes to the store.
///
/// # Errors
/// When the disk refuses.
pub fn add(node: &mut dyn Node, bytes: &[u8]) -> Result<Sha256> {
    let sha256 = Sha256::of(bytes);
    let path = blob(&sha256);
    if !is_whole(&node.disk(&path), &sha256) {
        node.save(&path, bytes, Access::Administrators).with_context(|| format!("store {}", sha256.short()))?;
    }
    Ok(sha256)
}

/// Adds a file of the host to the store. A copy, never a link: the file may be written in place later, for example an
/// original by its owner.
///
/// # Errors
/// When it cannot be read or stored, or does not match its digest.
pub fn add_file(node: &dyn Node, file: &Path, sha256: &Sha256) -> Result<()> {
    let to = node.disk(&blob(sha256));
    if is_whole(&to, sha256) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).context("make the store's folder")?;
    }
    let beside = to.with_extension("part");
    let copy = || -> std::io::Result<bool> {
        fs::copy(file, &beside)?;
        fs::File::options().write(true).open(&beside).or_else(|_| fs::File::open(&beside))?.sync_all()?;
        let whole = is_whole(&beside, sha256);
        if whole {
            files::rename(&beside, &to)?;
        } else {
            fs::remove_file(&beside)?;
        }
        Ok(whole)
    };
    if copy().with_context(|| format!("store {}", file.display()))? {
        return Ok(());
    }
    let what = format!("{} is not what it was when it was looked at (sha256 {})", file.display(), sha256.short());
    Err(Fault::new(Exit::PlanStale, "ChangedSincePlan", what).hint("find out what changes it, then run again").into())
}

/// Whether the bytes that a state needs are in the store and undamaged. True if it needs none.
pub fn holds(node: &dyn Node, state: &State) -> bool {
    match state {
        State::File { sha256, .. } => is_whole(&node.disk(&blob(sha256)), sha256),
        State::Tree(Tree::Release(of)) => {
            let folder = node.disk(&tree(of.as_str()));
            let whole = |(name, file): (&String, &ManifestFile)| is_whole(&folder.join(name), &file.sha256);
            manifest(&folder).is_ok_and(|manifest| manifest.digest() == *of && manifest.files.iter().all(whole))
        }
        state => state.name_in_store().is_none_or(|name| node.disk(&tree(&name)).exists()),
    }
}

/// Whether a file exists and has this digest. A damaged one is stored again.
fn is_whole(blob: &Path, sha256: &Sha256) -> bool {
    files::digest(blob).is_ok_and(|digest| digest == *sha256)
}

/// The state of an item before our first change, if its bytes are in the store. Receipt and journal record it too, and
/// have priority; this record outlives both, so that the bytes are not deleted as unneeded.
#[derive(Debug, Serialize, Deserialize)]
pub struct Original {
    pub id: Id,
    pub state: State,
}

impl Original {
    /// Its name in the store.
    pub fn name(&self) -> Option<String> {
        self.state.name_in_store()
    }

    /// The path of its bytes.
    pub fn place(&self) -> Option<WinPath> {
        let name = self.name()?;
        Some(match self.state {
            State::File { .. } => WinPath::known(STORE_DIR).join("blobs").join(&name),
            _ => tree(&name),
        })
    }

    /// Whether the store has the only copy: false if the item has this state again.
    fn is_only_copy(&self, node: &dyn Node) -> Result<bool> {
        let there = self.place().is_some_and(|place| node.disk(&place).exists());
        Ok(there && node.get(&self.id)?.and_then(|now| now.name_in_store()) != self.name())
    }
}

/// Stores the bytes of an original before it is first changed, and records whose they are. A folder that another
/// program created stays in the store without such a record.
///
/// # Errors
/// As [`add_file`].
pub fn keep_original(node: &mut dyn Node, id: &Id, state: &State) -> Result<()> {
    let (Some(path), Some(name)) = (id.path(), state.name_in_store().filter(|name| name != FOREIGN)) else {
        return Ok(());
    };
    let original = Original { id: id.clone(), state: state.clone() };
    // Two items may have the same bytes.
    let file = format!("{name}-{}", Sha256::of(path.as_str().as_bytes()).short());
    record::save(node, &originals_folder().join(&file), &original)
        .and_then(|()| match state {
            State::File { sha256, .. } => {
                let there = node.disk(path);
                let hidden = matches!(id, Id::CniConf(_)) && !there.exists();
                add_file(node, &if hidden { node.disk(&withdrawn(path)) } else { there }, sha256)
            }
            _ => Ok(()),
        })
        .with_context(|| format!("keep the original of {path}"))
}

/// The folder in the store that records which bytes are originals, and of which items.
pub fn originals_folder() -> WinPath {
    WinPath::known(STORE_DIR).join("originals")
}

/// Returns the originals whose only copy is in the store.
///
/// # Errors
/// When the store or an item cannot be read.
pub fn originals(node: &dyn Node) -> Result<Vec<Original>> {
    let mut originals = Vec::new();
    for (_, original) in written_down(node)? {
        if original.is_only_copy(node)? {
            originals.push(original);
        }
    }
    Ok(originals)
}

fn written_down(node: &dyn Node) -> Result<Vec<(PathBuf, Original)>> {
    let folder = originals_folder();
    let mut originals = Vec::new();
    for (name, file) in entries(&node.disk(&folder))? {
        // A file that a process was still writing when it ended records nothing yet: the item was not changed then.
        if name.ends_with(files::BESIDE) {
            continue;
        }
        if let Some(original) = record::load(node, &folder.join(&name))? {
            originals.push((file, original));
        }
    }
    Ok(originals)
}

/// Returns the digest of a file of the host.
///
/// # Errors
/// When it cannot be read.
pub fn digest(file: &Path) -> Result<Sha256> {
    files::digest(file).with_context(|| format!("read {}", file.display()))
}

/// Returns the manifest of a tree on the host's disk.
///
/// # Errors
/// When it does not exist or is not valid.
pub fn manifest(tree: &Path) -> Result<Manifest> {
    let file = tree.join(Manifest::FILE);
    let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("parse {}", file.display()))
}

/// Returns the config that a generation was made from; none if an earlier version of this program stored none.
///
/// # Errors
/// When it is not in the store, or is not valid.
pub fn config(node: &dyn Node, receipt: &Receipt) -> Result<Option<Value>> {
    kept(node, receipt, receipt.about.as_ref().and_then(|about| about.config.as_ref()))
}

/// Returns the effective config of a generation, every field by its path; none if it was not stored.
///
/// # Errors
/// When it is not in the store, or cannot be read.
pub fn effective(node: &dyn Node, receipt: &Receipt) -> Result<Option<BTreeMap<String, Value>>> {
    kept(node, receipt, receipt.about.as_ref().and_then(|about| about.effective.as_ref()))
}

fn kept<T: DeserializeOwned>(node: &dyn Node, receipt: &Receipt, digest: Option<&Sha256>) -> Result<Option<T>> {
    let Some(digest) = digest else { return Ok(None) };
    let what = || format!("read the config of generation {}: {}", receipt.generation, blob(digest));
    let text = fs::read(node.disk(&blob(digest))).with_context(what)?;
    serde_json::from_slice(&text).with_context(what).map(Some)
}

/// Returns how many bytes these need in the store. Ignores what is elsewhere, for example the current release.
pub fn size(node: &dyn Node, names: &BTreeSet<String>) -> u64 {
    let of = |name: &String| {
        let blob = fs::metadata(node.disk(&WinPath::known(STORE_DIR).join("blobs").join(name)));
        let files =
            manifest(&node.disk(&tree(name))).map(|manifest| manifest.files.values().map(|file| file.size).sum());
        blob.map_or(0, |blob| blob.len()) + files.unwrap_or(0)
    };
    names.iter().map(of).sum()
}

/// What is not removed although no generation needs it.
#[derive(Debug, Default)]
pub struct Remains {
    /// Those that no record mentions.
    pub originals: Vec<Original>,
    /// The folders with files of the user.
    pub folders: Vec<WinPath>,
    /// The first error of what could not be removed: the rest was.
    pub failed: Option<anyhow::Error>,
}

/// Removes what no generation needs any more: secrets first of all. See [`discard_tree`] for what remains of a tree. An
/// original whose only copy is in the store is removed only by the run that restored the item, which had `settled` it.
/// `receipts`: all of them.
///
/// # Errors
/// When it is not known what must be kept.
pub fn collect(node: &dyn Node, receipts: &[&Receipt], needed: &BTreeSet<String>, settled: &Owned) -> Result<Remains> {
    let mut needed = needed.clone();
    let mut remains = Remains::default();
    for (file, original) in written_down(node)? {
        let name = original.name().unwrap_or_default();
        if needed.contains(&name) {
            continue;
        }
        let is_settled = settled.get(&original.id).is_some_and(|state| state.as_ref() == Some(&original.state));
        let with_release = original
            .id
            .path()
            .is_some_and(|path| receipts.iter().flat_map(|receipt| roots(receipt)).any(|root| path.is_below(root)));
        // What the run itself has restored is not looked at again: that could fail, and the original would remain.
        let only_copy = (with_release || !is_settled) && original.is_only_copy(node)?;
        if is_settled && only_copy && with_release {
            // The release's folder was removed as a whole, so the file was not restored.
            remains.folders.extend(keep_file(node, &original)?);
        }
        if is_settled || !only_copy {
            fs::remove_file(&file).with_context(|| format!("remove {} from the store", file.display()))?;
        } else {
            needed.insert(name);
            remains.originals.push(original);
        }
    }
    for part in ["blobs", "trees"] {
        let folder = node.disk(&WinPath::known(STORE_DIR).join(part));
        for (name, path) in entries(&folder)? {
            // A folder that existed before the install leaves the store only when it is restored.
            if needed.contains(&name) || name == FOREIGN {
                continue;
            }
            let removed = if path.is_dir() {
                discard_tree(node, receipts, &name)
            } else {
                fs::remove_file(&path)
                    .map(|()| None)
                    .with_context(|| format!("remove {} from the store", path.display()))
            };
            // One that cannot be removed must not keep a token of another one on the disk.
            match removed {
                Ok(folder) => remains.folders.extend(folder),
                Err(error) => remains.failed = remains.failed.or(Some(error)),
            }
        }
    }
    Ok(remains)
}

/// Deletes what an uninstall removed of other programs: it is not brought back any more. Returns the folder with files of
/// users that were in the scripts' folder, if there were any.
///
/// # Errors
/// When something cannot be kept or removed.
pub fn forget(node: &dyn Node, removed: &Owned) -> Result<Option<WinPath>> {
    if removed.is_empty() {
        return Ok(None);
    }
    for (file, original) in written_down(node)? {
        if removed.get(&original.id).is_some_and(|state| state.as_ref() == Some(&original.state)) {
            fs::remove_file(&file).with_context(|| format!("remove {} from the store", file.display()))?;
        }
    }
    let path = node.disk(&tree(FOREIGN));
    if !removed.values().flatten().any(|state| *state == State::Tree(Tree::Foreign)) || !path.exists() {
        return Ok(None);
    }
    let kept = kept_foreign(node);
    let files = of_others(&path)?;
    for file in &files {
        move_to(&path.join(file), &node.disk(&kept).join(file)).with_context(|| format!("keep {}", file.display()))?;
    }
    fs::remove_dir_all(&path).with_context(|| format!("remove {} from the store", path.display()))?;
    Ok((!files.is_empty()).then_some(kept))
}

/// The folder to which [`forget`] moves the files of users that were in the scripts' folder.
pub fn kept_foreign(node: &dyn Node) -> WinPath {
    free_folder(node, &WinPath::known(STATE_DIR).join(KEPT), FOREIGN)
}

/// Returns the files in the folder of the scripts' installation that are neither theirs nor Calico's, relative to it.
///
/// # Errors
/// When it cannot be read.
pub fn of_others(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = folders.pop() {
        for (name, path) in entries(&folder.join(&below))? {
            let file = below.join(name);
            if path.is_dir() && !path.is_symlink() {
                folders.push(file);
            } else if !upstream::is_file(&file.to_string_lossy().replace('/', "\\")) {
                found.push(file);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Our folder for files that others put into a release of ours, after the release was removed.
pub const KEPT: &str = "kept";

/// Removes a release's folder from the store, but keeps what the release did not have: the components' logs in this
/// program's log folder, and other and edited files in `kept`, of which it returns the folder. Does nothing if there is
/// no such folder.
///
/// # Errors
/// When something cannot be kept or removed.
pub fn discard_tree(node: &dyn Node, receipts: &[&Receipt], name: &str) -> Result<Option<WinPath>> {
    let path = node.disk(&tree(name));
    if !path.exists() {
        return Ok(None);
    }
    let short = &name[..name.len().min(12)];
    let own = WinPath::known(STATE_DIR);
    let logs = path.join("logs");
    if logs.is_dir() && !entries(&logs)?.is_empty() {
        let kept = free_folder(node, &own.join("logs"), &format!("calico-{short}"));
        move_to(&logs, &node.disk(&kept)).context("keep Calico's logs")?;
    }
    // Without a manifest, the release was not completely staged.
    let mut files = match manifest(&path) {
        Ok(manifest) => foreign_files(&path, &manifest, &written(receipts))?,
        Err(_) => Vec::new(),
    };
    if has_current_rules(node, receipts, &path)? {
        let rules = paths::static_rules(&WinPath::known(r"C:\"));
        files.retain(|file| *file != Path::new(rules.name()));
    }
    let kept = free_folder(node, &own.join(KEPT), short);
    for file in &files {
        move_to(&path.join(file), &node.disk(&kept).join(file)).with_context(|| format!("keep {}", file.display()))?;
    }
    fs::remove_dir_all(&path).with_context(|| format!("remove {} from the store", path.display()))?;
    Ok((!files.is_empty()).then_some(kept))
}

/// Moves an original from the store to `kept`, and returns the folder there.
fn keep_file(node: &dyn Node, original: &Original) -> Result<Option<WinPath>> {
    let (Some(name), Some(place), Some(path)) = (original.name(), original.place(), original.id.path()) else {
        return Ok(None);
    };
    let kept = free_folder(node, &WinPath::known(STATE_DIR).join(KEPT), &name[..name.len().min(12)]);
    move_to(&node.disk(&place), &node.disk(&kept).join(path.name())).with_context(|| format!("keep {path}"))?;
    Ok(Some(kept))
}

/// Whether the static rules in a release's folder are AKS's, or are in Calico's folder, too: those of the user stay there
/// when a release replaces another one.
fn has_current_rules(node: &dyn Node, receipts: &[&Receipt], tree: &Path) -> Result<bool> {
    let rules = paths::static_rules(&WinPath::known(r"C:\"));
    let Ok(text) = fs::read(tree.join(rules.name())) else { return Ok(false) };
    if static_rules::are_of_aks(&text) {
        return Ok(true);
    }
    let roots: BTreeSet<&WinPath> = receipts.iter().flat_map(|receipt| roots(receipt)).collect();
    for root in roots {
        let current = node.disk(&paths::static_rules(root));
        let stays = matches!(files::read_tree(&node.disk(root))?, Some(Tree::Release(_) | Tree::Drifted { .. }));
        if current.exists() && (stays || is_whole(&current, &Sha256::of(&text))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The folders with a release in a generation.
fn roots(receipt: &Receipt) -> impl Iterator<Item = &WinPath> {
    receipt.target.world.keys().filter_map(|id| if let Id::Tree(root) = id { Some(root) } else { None })
}

/// The first of `name`, `name-2` and so on that does not exist: what was kept before is not overwritten.
fn free_folder(node: &dyn Node, folder: &WinPath, name: &str) -> WinPath {
    let mut free = folder.join(name);
    for number in 2.. {
        if !node.disk(&free).exists() {
            break;
        }
        free = folder.join(&format!("{name}-{number}"));
    }
    free
}

/// Returns the files that this program wrote into a release, if nothing was there before, relative to it and in lower case:
/// etcd's key for example.
fn written(receipts: &[&Receipt]) -> BTreeSet<String> {
    let mut written = BTreeSet::new();
    for receipt in receipts {
        let trees: Vec<&WinPath> = roots(receipt).collect();
        for (id, _) in receipt.owned.iter().filter(|(_, original)| original.is_none()) {
            if let Id::File(path) = id
                && let Some(root) = trees.iter().find(|root| path.is_below(root))
            {
                let below = &path.as_str()[root.as_str().len()..];
                written.insert(below.trim_start_matches('\\').replace('\\', "/").to_lowercase());
            }
        }
    }
    written
}

/// Returns the files in a release's folder that neither the release nor this program wrote, or that were edited,
/// relative to it. What confd writes into its working folder is its own.
fn foreign_files(tree: &Path, manifest: &Manifest, written: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
    let root = WinPath::known(r"C:\");
    let ours = [paths::kubeconfig, paths::config_ps1, paths::nodename].map(|path| path(&root));
    let mut known: BTreeSet<String> = manifest.files.keys().map(|path| path.to_lowercase()).collect();
    known.extend(ours.iter().map(|path| path.name().to_lowercase()));
    known.extend([Manifest::FILE.to_lowercase(), paths::IPAM_LOCK.to_owned()]);
    known.extend(written.iter().cloned());
    let mut found = match files::read_tree(tree)? {
        Some(Tree::Drifted { files, .. }) => files.into_iter().map(PathBuf::from).collect(),
        _ => Vec::new(),
    };
    // A program that differs is damaged: users edit texts.
    let is_text = |file: &PathBuf| file.extension().is_none_or(|kind| kind != "exe" && kind != "dll");
    found.retain(|file| is_text(file) && tree.join(file).exists());
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for (name, path) in entries(&tree.join(&folder))? {
            let file = folder.join(name);
            let text = file.to_string_lossy().replace('\\', "/").to_lowercase();
            if path.is_dir() && !path.is_symlink() {
                if text != "confd" {
                    folders.push(file);
                }
            } else if !known.contains(&text) {
                found.push(file);
            }
        }
    }
    Ok(found)
}

fn move_to(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    files::rename(from, to).with_context(|| format!("move {} to {}", from.display(), to.display()))
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("read {}", folder.display())),
    };
    let mut entries = Vec::new();
    for entry in read {
        let entry = entry.with_context(|| format!("read {}", folder.display()))?;
        entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::sandbox::SandboxNode;

    #[test]
    fn what_cannot_be_removed_keeps_nothing_else_in_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let node = SandboxNode::open(dir.path()).unwrap();
        let plain: Vec<PathBuf> = (0..20).map(|n| node.disk(&tree(&format!("tree-{n}")))).collect();
        plain.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        // Its logs are kept, and the folder for them cannot be made.
        let stuck = node.disk(&tree("stuck"));
        fs::create_dir_all(stuck.join("logs")).unwrap();
        fs::write(stuck.join("logs/calico-node.log"), "").unwrap();
        fs::write(node.disk(&WinPath::known(STATE_DIR).join("logs")), "").unwrap();

        let remains = collect(&node, &[], &BTreeSet::new(), &Owned::new()).unwrap();
        assert_eq!(remains.failed.unwrap().to_string(), "keep Calico's logs");
        assert_eq!((plain.iter().filter(|folder| folder.exists()).count(), stuck.exists()), (0, true));
    }
}
