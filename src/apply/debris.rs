//! What a process that ended while it replaced a file left beside it. The next replacement would
//! write over it, but a run that is undone has none: half a kubeconfig must not lie about.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use crate::node::{Node, STATE_DIR, files};
use crate::plan::item::Id;
use crate::values::WinPath;

/// Removes it in our own folders, and beside those of `ids` that are files.
///
/// # Errors
/// When a folder of ours cannot be listed or something cannot be removed.
pub fn sweep<'a>(node: &dyn Node, ids: impl IntoIterator<Item = &'a Id>) -> Result<()> {
    let own = WinPath::known(STATE_DIR);
    for folder in [own.clone(), own.join("receipts"), own.join("state")] {
        let entries = match fs::read_dir(node.disk(&folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("list {folder}")),
        };
        for entry in entries {
            let path = entry.with_context(|| format!("list {folder}"))?.path();
            if path.to_string_lossy().ends_with(files::BESIDE) {
                remove(&path)?;
            }
        }
    }
    for id in ids {
        if let Id::File(path) | Id::CniConf(path) = id {
            remove(&files::beside(&node.disk(path)))?;
        }
    }
    Ok(())
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(error).with_context(|| format!("remove {}, which was never finished", file.display()))
        }
        _ => Ok(()),
    }
}
