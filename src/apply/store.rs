//! The store on the node's disk: files by their digest, and whole trees, for as long as a
//! generation needs them. SYSTEM and Administrators only, since kubeconfigs lie in it too.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::Digest;

use crate::node::{Node, STATE_DIR, STORE_DIR};
use crate::plan::item::{Access, Manifest, State, Tree};
use crate::values::{Sha256, WinPath};

/// Where a file's bytes lie.
pub fn blob(sha256: &Sha256) -> WinPath {
    WinPath::known(STORE_DIR).join("blobs").join(sha256.as_str())
}

/// Where a staged or former tree lies, by its digest.
pub fn tree(name: &str) -> WinPath {
    WinPath::known(STORE_DIR).join("trees").join(name)
}

/// What a state is called in the store; none for what needs no bytes.
pub fn name_in_store(state: &State) -> Option<String> {
    match state {
        State::File { sha256, .. } | State::Tree(Tree::Release(sha256)) => Some(sha256.to_string()),
        State::Tree(Tree::Drifted { of, .. }) => Some(format!("drifted-{of}")),
        State::Tree(Tree::Foreign) => Some("foreign".into()),
        _ => None,
    }
}

/// Puts bytes into the store.
///
/// # Errors
/// When the disk refuses.
pub fn add(node: &mut dyn Node, bytes: &[u8]) -> Result<Sha256> {
    let sha256 = Sha256::of(bytes);
    let path = blob(&sha256);
    if !node.disk(&path).exists() {
        node.save(&path, bytes, Access::Administrators).with_context(|| format!("store {}", sha256.short()))?;
    }
    Ok(sha256)
}

/// Puts a file of the host's into the store, by a hard link where that works. The caller must not
/// change the file afterwards.
///
/// # Errors
/// When it cannot be read or stored.
pub fn add_file(node: &dyn Node, file: &Path, sha256: &Sha256) -> Result<()> {
    let to = node.disk(&blob(sha256));
    if to.exists() {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).context("make the store's folder")?;
    }
    if fs::hard_link(file, &to).is_ok() {
        return Ok(());
    }
    copy(file, &to).with_context(|| format!("store {}", file.display()))
}

/// Keeps the bytes of an original before it is first touched. A copy, never a link: the original
/// may be written to in place.
///
/// # Errors
/// When it cannot be read or stored.
pub fn keep_original(node: &dyn Node, path: &WinPath, sha256: &Sha256) -> Result<()> {
    let to = node.disk(&blob(sha256));
    if to.exists() {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).context("make the store's folder")?;
    }
    copy(&node.disk(path), &to).with_context(|| format!("keep the original of {path}"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let beside = to.with_extension("part");
    fs::copy(from, &beside)?;
    fs::File::options().write(true).open(&beside).or_else(|_| fs::File::open(&beside))?.sync_all()?;
    fs::rename(&beside, to)?;
    Ok(())
}

/// The digest of a file of the host's.
///
/// # Errors
/// When it cannot be read.
pub fn digest(file: &Path) -> Result<Sha256> {
    let mut reader = fs::File::open(file).with_context(|| format!("open {}", file.display()))?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let n = reader.read(&mut buffer).with_context(|| format!("read {}", file.display()))?;
        if n == 0 {
            return Ok(Sha256::from_digest(hasher.finalize().as_slice()));
        }
        hasher.update(&buffer[..n]);
    }
}

/// The manifest of a tree on the host's disk.
///
/// # Errors
/// When it is not there or not ours.
pub fn manifest(tree: &Path) -> Result<Manifest> {
    let file = tree.join(Manifest::FILE);
    let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("parse {}", file.display()))
}

/// Removes what no generation needs any more: secrets first of all. The logs that Calico's
/// components left in a tree that goes are kept below our own log folder.
///
/// # Errors
/// When something cannot be removed.
pub fn collect(node: &dyn Node, needed: &BTreeSet<String>) -> Result<()> {
    for part in ["blobs", "trees"] {
        let folder = node.disk(&WinPath::known(STORE_DIR).join(part));
        for (name, path) in entries(&folder)? {
            if needed.contains(&name) {
                continue;
            }
            if path.is_dir() {
                keep_logs(node, &name, &path)?;
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            }
            .with_context(|| format!("remove {} from the store", path.display()))?;
        }
    }
    Ok(())
}

fn keep_logs(node: &dyn Node, name: &str, tree: &Path) -> Result<()> {
    let logs = tree.join("logs");
    if logs.is_dir() && !entries(&logs)?.is_empty() {
        let kept =
            node.disk(&WinPath::known(STATE_DIR).join("logs").join(&format!("calico-{}", &name[..name.len().min(12)])));
        if let Some(folder) = kept.parent() {
            fs::create_dir_all(folder).context("make the log folder")?;
        }
        if kept.exists() {
            fs::remove_dir_all(&kept).context("replace the kept logs")?;
        }
        fs::rename(&logs, &kept).context("keep Calico's logs")?;
    }
    Ok(())
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
