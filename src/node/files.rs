//! File operations for both nodes, with [`std::fs`] alone: digests, atomic replacement, and release trees swapped as a
//! whole.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
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

/// The suffix of a temporary file's name.
pub const BESIDE: &str = ".calicoctl-win-new";

/// The name of a temporary file that will replace this one. Always the same, so that the next try overwrites what a
/// crash left.
pub fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{BESIDE}"))
}

/// Renames, over an existing file. Windows refuses that while another process has one of the two open: a virus scanner,
/// a backup, or another run of ours; and it does not move a folder in which a file is open. See [`until_free`].
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    until_free(|| fs::rename(from, to))
}

/// Retries an operation on a file or folder that another process may have open on Windows, for up to 2 s. Such
/// processes close it soon.
pub fn until_free(work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    free_within(Duration::from_secs(2), work)
}

/// Removes a file, or a folder with all that is in it. Waits for programs that have a file in the folder open.
pub fn remove(place: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(place)?.is_dir() {
        return fs::remove_file(place);
    }
    free_within(TREE_HELD, || gone(fs::remove_dir_all(place)))
}

/// How long a folder may be held: a virus scanner reads its files one after the other, and Calico's services are
/// stopped by now.
const TREE_HELD: Duration = Duration::from_secs(30);

/// As [`until_free`], for up to a limit.
pub fn free_within(limit: Duration, work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(20);
    let times = usize::try_from(limit.as_millis() / PAUSE.as_millis()).unwrap_or(usize::MAX);
    work.retry(ConstantBuilder::default().with_delay(PAUSE).with_max_times(times))
        .when(|error| cfg!(windows) && is_in_use(error))
        .call()
}

/// Whether Windows refused because a process has the file, or one in the folder, open: both "access is denied" (5) and
/// "sharing violation" (32) mean that.
pub fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
        || cfg!(windows) && error.raw_os_error() == Some(win32::SHARING_VIOLATION.cast_signed())
}

/// Clears the attribute "read-only", which on Windows prevents replacing and deleting a file. Elsewhere a file's own
/// mode prevents neither.
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

/// Treats "not found" as success when something is removed.
pub fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Replaces a file atomically: `fill` writes a temporary file, which is flushed and renamed. The file is never half
/// written; a failure removes the temporary file.
pub fn replace(path: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let new = beside(path);
    let placed =
        fill(&new).and_then(|()| File::options().write(true).open(&new)?.sync_all()).and_then(|()| rename(&new, path));
    if placed.is_err() {
        // Report the first error.
        drop(fs::remove_file(&new));
    }
    placed
}

/// Creates a file that only its owner may read. On Windows it has the access list of its folder.
pub fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

/// The suffix of a program that was renamed because it runs, before a number.
const RENAMED: &str = ".old-";

/// A free name for a program that is renamed because it runs: `calicoctl-win.exe.old-1`.
pub fn free_name(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let free = (1u32..).map(|n| file.with_file_name(format!("{name}{RENAMED}{n}"))).find(|old| !old.exists());
    free.unwrap_or_else(|| beside(file))
}

/// Removes the programs that were renamed earlier and have ended. Skips those that still run, and a folder that cannot
/// be listed.
pub fn remove_renamed(file: &Path) {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let entries = file.parent().and_then(|folder| fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if renamed(&entry).is_some_and(|program| program == name) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// Whether everything in a folder is a renamed program.
pub fn holds_renamed_only(folder: &Path) -> bool {
    fs::read_dir(folder)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| renamed(&entry).is_some())))
}

/// The original name of a renamed program, in lower case.
fn renamed(entry: &fs::DirEntry) -> Option<String> {
    let name = entry.file_name().to_string_lossy().to_lowercase();
    let (program, number) = name.rsplit_once(RENAMED)?;
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| program.to_owned())
}

/// The end of a file, at most this many bytes; not from the start of a line.
///
/// # Errors
/// When it cannot be read.
pub fn end_of(path: &Path, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    // It may be written meanwhile.
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Appends a line to a file and flushes it to the disk.
pub fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(line)?;
    file.sync_data()
}

/// The current state of a folder that is swapped as a whole; none if there is none.
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
    // A manifest that cannot be parsed says nothing about the folder: treat the folder as not ours.
    let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else {
        return Ok(Some(Tree::Foreign));
    };
    let written = fs::metadata(&path).and_then(|m| m.modified()).ok();
    let mut drifted = Vec::new();
    for (name, wanted) in &manifest.files {
        let file = dir.join(name);
        let same = match fs::symlink_metadata(&file) {
            Ok(meta) if meta.is_file() && meta.len() == wanted.size => {
                // The manifest is written last: newer files may have been changed since.
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

/// Moves `wanted` to `target` and the previous tree into `trees`, by two renames. If the process ends at any moment,
/// calling it again completes the swap.
///
/// # Errors
/// When `trees` does not hold `wanted`, or holds another folder that is not ours already.
pub fn swap_tree(target: &Path, trees: &Path, wanted: Option<&Tree>) -> Result<()> {
    let present = read_tree(target)?;
    if present.as_ref() == wanted {
        return Ok(());
    }
    // Find the wanted tree before anything is moved.
    let source = wanted.map(|tree| find_tree(trees, tree)).transpose()?;
    fs::create_dir_all(trees).with_context(|| format!("create {}", trees.display()))?;
    if let Some(tree) = &present {
        let kept = shelf(trees, tree)?;
        free_within(TREE_HELD, || fs::rename(target, &kept))
            .with_context(|| format!("move {} to {}", target.display(), kept.display()))?;
    }
    if let Some(source) = source {
        free_within(TREE_HELD, || fs::rename(&source, target))
            .with_context(|| format!("move {} to {}", source.display(), target.display()))?;
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

/// The path of a wanted tree in the store.
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

/// The path for the previous tree: its name must be free.
fn shelf(trees: &Path, tree: &Tree) -> Result<PathBuf> {
    let name = shelf_name(tree);
    let place = trees.join(&name);
    match tree {
        // The same release twice; the current one was just found complete.
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

/// `name`, `name-2`, `name-3`, …: there may be several drifted trees.
fn places(trees: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    std::iter::once(trees.join(name)).chain((2..1000).map(move |n| trees.join(format!("{name}-{n}"))))
}

#[cfg(all(test, windows))]
mod tests {
    use super::*;

    /// A log shipper that has a file in the folder open for longer than another file is waited for.
    #[test]
    fn a_folder_that_is_held_for_some_seconds_is_moved() {
        let mut held = 200;
        let work = || {
            held -= 1;
            if held > 0 { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
        };
        free_within(TREE_HELD, work).unwrap();
    }
}
