//! Files as both nodes have them, with [`std::fs`] alone: digests, replacing in one step, and
//! release trees swapped as a whole.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use backon::{BlockingRetryable, ConstantBuilder};

use super::win32;
use crate::item::{Manifest, Tree};
use crate::values::Sha256;

/// The digest of a file's bytes, read in pieces.
pub fn digest(path: &Path) -> io::Result<Sha256> {
    use sha2::Digest;
    let mut file = File::open(path)?;
    let mut hasher = sha2::Sha256::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(Sha256::from_digest(hasher.finalize().as_slice())),
            n => hasher.update(&piece[..n]),
        }
    }
}

/// What the name beside a file ends in.
pub const BESIDE: &str = ".calicoctl-win-new";

/// A name beside a file for what is to replace it. Always the same, so that what a crash left is
/// overwritten by the next try.
pub fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{BESIDE}"))
}

/// Renames, over a file that is there. Windows refuses that while someone reads one of the two: a
/// virus scanner, a back-up, or another run of ours that looks; and it does not move a folder in
/// which a file is open. See [`until_free`].
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    until_free(|| fs::rename(from, to))
}

/// Does something to a file or folder that somebody may be looking at on Windows. They are done in a
/// moment, so it is tried for up to 2 s there.
pub fn until_free(work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    work.retry(ConstantBuilder::default().with_delay(Duration::from_millis(20)).with_max_times(100))
        .when(|error| cfg!(windows) && is_in_use(error))
        .call()
}

/// Whether Windows refused because somebody has the file, or one in the folder, open: "access is
/// denied" (5) and "sharing violation" (32) both say so.
pub fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
        || cfg!(windows) && error.raw_os_error() == Some(win32::SHARING_VIOLATION.cast_signed())
}

/// Takes the attribute "read-only" away, which on Windows keeps a file from being replaced and
/// deleted. Elsewhere a file's own mode keeps nobody from either.
pub fn make_writable(file: &Path) -> io::Result<()> {
    if cfg!(not(windows)) {
        return Ok(());
    }
    let mut permissions = match fs::metadata(file) {
        Ok(meta) => meta.permissions(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !permissions.readonly() {
        return Ok(());
    }
    #[allow(clippy::permissions_set_readonly_false, reason = "on Windows it is an attribute and no right")]
    permissions.set_readonly(false);
    fs::set_permissions(file, permissions)
}

/// Gone already is as good as gone now.
pub fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Replaces a file in one step: `fill` writes beside it, then it is flushed and renamed over. At
/// no time is the file half there; a failure takes the new one away.
pub fn replace(path: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let new = beside(path);
    let placed =
        fill(&new).and_then(|()| File::options().write(true).open(&new)?.sync_all()).and_then(|()| rename(&new, path));
    if placed.is_err() {
        // The error that counts is the first one.
        drop(fs::remove_file(&new));
    }
    placed
}

/// Makes a file that only its owner may read. On Windows it has the access list of its folder.
pub fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

/// What the name of a program ends in that ran when it was to go, with a number behind it.
const RENAMED: &str = ".old-";

/// A free name for a program that is renamed away because it runs: `calicoctl-win.exe.old-1`.
pub fn free_name(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let free = (1u32..).map(|n| file.with_file_name(format!("{name}{RENAMED}{n}"))).find(|old| !old.exists());
    free.unwrap_or_else(|| beside(file))
}

/// Removes the programs that were renamed away earlier and have ended. Those that still run stay,
/// and so does what cannot be listed.
pub fn remove_renamed(file: &Path) {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let entries = file.parent().and_then(|folder| fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if renamed(&entry).is_some_and(|program| program == name) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// Whether everything in a folder is a program that was renamed away.
pub fn holds_renamed_only(folder: &Path) -> bool {
    fs::read_dir(folder)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| renamed(&entry).is_some())))
}

/// What a program that was renamed away was called, in lower case.
fn renamed(entry: &fs::DirEntry) -> Option<String> {
    let name = entry.file_name().to_string_lossy().to_lowercase();
    let (program, number) = name.rsplit_once(RENAMED)?;
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| program.to_owned())
}

/// Adds a line to a file and flushes it to the disk.
pub fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(line)?;
    file.sync_data()
}

/// What a folder that is swapped as a whole is now; none when there is none.
///
/// # Errors
/// When the folder or its manifest cannot be read.
pub fn read_tree(dir: &Path) -> Result<Option<Tree>> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let path = dir.join(Manifest::FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some(Tree::Foreign)),
        Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
    };
    // A manifest that is none says nothing about the folder: it is not ours to judge.
    let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else {
        return Ok(Some(Tree::Foreign));
    };
    let written = fs::metadata(&path).and_then(|m| m.modified()).ok();
    let mut drifted = Vec::new();
    for (name, wanted) in &manifest.files {
        let file = dir.join(name);
        let same = match fs::symlink_metadata(&file) {
            Ok(meta) if meta.is_file() && meta.len() == wanted.size => {
                // The manifest is written last: what is newer may have been changed since.
                let untouched = meta.modified().ok().is_some_and(|at| Some(at) <= written);
                untouched || digest(&file).with_context(|| format!("read {}", file.display()))? == wanted.sha256
            }
            Ok(_) => false,
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(e).with_context(|| format!("look at {}", file.display())),
        };
        if !same {
            drifted.push(name.clone());
        }
    }
    let of = manifest.digest();
    Ok(Some(if drifted.is_empty() { Tree::Release(of) } else { Tree::Drifted { of, files: drifted } }))
}

/// Puts `wanted` at `target` and what was there into `trees`, by two renames. Whatever moment the
/// process ends at, the same call made again gets there.
///
/// # Errors
/// When `trees` does not hold `wanted`, or holds another folder that is not ours already.
pub fn swap_tree(target: &Path, trees: &Path, wanted: Option<&Tree>) -> Result<()> {
    let present = read_tree(target)?;
    if present.as_ref() == wanted {
        return Ok(());
    }
    // Look for what is wanted before anything moves.
    let source = wanted.map(|tree| find_tree(trees, tree)).transpose()?;
    fs::create_dir_all(trees).with_context(|| format!("create {}", trees.display()))?;
    if let Some(tree) = &present {
        let kept = shelf(trees, tree)?;
        rename(target, &kept).with_context(|| format!("move {} to {}", target.display(), kept.display()))?;
    }
    if let Some(source) = source {
        rename(&source, target).with_context(|| format!("move {} to {}", source.display(), target.display()))?;
    }
    Ok(())
}

fn shelf_name(tree: &Tree) -> String {
    match tree {
        Tree::Release(digest) => digest.to_string(),
        Tree::Drifted { of, .. } => format!("drifted-{of}"),
        Tree::Foreign => "foreign".into(),
    }
}

/// Where a wanted tree stands in the store.
fn find_tree(trees: &Path, wanted: &Tree) -> Result<PathBuf> {
    let name = shelf_name(wanted);
    let mut others = Vec::new();
    for place in places(trees, &name).take_while(|place| place.exists()) {
        match read_tree(&place)? {
            Some(tree) if tree == *wanted => return Ok(place),
            other => others.push(format!("{} is {other:?}", place.display())),
        }
    }
    let instead = if others.is_empty() { "it is not there".into() } else { others.join(", ") };
    anyhow::bail!("find the tree {name} in the store {}: {instead}", trees.display())
}

/// Where a tree that makes room is kept: its name must be free.
fn shelf(trees: &Path, tree: &Tree) -> Result<PathBuf> {
    let name = shelf_name(tree);
    let place = trees.join(&name);
    match tree {
        // The same release twice; the one that stands was just found whole.
        Tree::Release(_) if place.exists() => {
            fs::remove_dir_all(&place).with_context(|| format!("remove {}", place.display()))?;
            Ok(place)
        }
        Tree::Release(_) => Ok(place),
        Tree::Foreign if place.exists() => anyhow::bail!(
            "{} already keeps a folder that was there before us; move one of the two away",
            place.display()
        ),
        Tree::Foreign => Ok(place),
        Tree::Drifted { .. } => Ok(places(trees, &name).find(|place| !place.exists()).unwrap_or(place)),
    }
}

/// `name`, `name-2`, `name-3`, …: drifted trees may be more than one.
fn places(trees: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    std::iter::once(trees.join(name)).chain((2..1000).map(move |n| trees.join(format!("{name}-{n}"))))
}
