//! Maps a path of the node to the sandbox's folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::values::WinPath;

/// The place of a node's path in the folder `root`. Existing names keep their case, others are as given.
///
/// # Errors
/// When the path contains `..` or a symbolic link, which could leave the folder.
pub fn locate(root: &Path, path: &WinPath) -> Result<PathBuf> {
    let drive = path.as_str().chars().next().unwrap_or('C').to_ascii_uppercase();
    let mut place = root.join(drive.to_string());
    for part in path.parts() {
        if part == ".." || part == "." || part.contains('/') {
            bail!("{path} leads out of the sandbox");
        }
        place = entry(&place, part).with_context(|| format!("look up {path}"))?;
        if place.is_symlink() {
            bail!("{path} goes through the symbolic link {}, which a sandbox does not follow", place.display());
        }
    }
    Ok(place)
}

/// One name in a folder, found without case.
fn entry(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let exact = folder.join(name);
    if exact.symlink_metadata().is_ok() {
        return Ok(exact);
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(exact),
        Err(e) => return Err(e),
    };
    let wanted = name.to_lowercase();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|own| own.to_lowercase() == wanted) {
            return Ok(entry.path());
        }
    }
    Ok(exact)
}
