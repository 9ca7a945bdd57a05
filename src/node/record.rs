//! Small records of ours in the state folder, as JSON: what a later process must know.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Node;
use crate::item::Access;
use crate::values::WinPath;

/// What is written down there; none when nothing is.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn load<T: DeserializeOwned>(node: &dyn Node, path: &WinPath) -> Result<Option<T>> {
    match fs::read(node.disk(path)) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("read {path}")).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {path}")),
    }
}

/// Removes it. What is gone is removed, whatever Windows said of it.
///
/// # Errors
/// When it is still there.
pub fn forget(node: &dyn Node, path: &WinPath) -> Result<()> {
    match node.remove(path) {
        Err(_) if !node.disk(path).try_exists().unwrap_or(true) => Ok(()),
        removed => removed,
    }
}

/// Writes it down, for administrators only.
///
/// # Errors
/// When the disk refuses.
pub fn save<T: Serialize>(node: &mut dyn Node, path: &WinPath, record: &T) -> Result<()> {
    let text = serde_json::to_vec(record).with_context(|| format!("write {path}"))?;
    node.save(path, &text, Access::Administrators)
}
