//! Small records of ours in the state folder, as JSON, for later processes.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Node;
use crate::item::Access;
use crate::values::WinPath;

/// Reads a record; none if there is none.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn load<T: DeserializeOwned>(node: &dyn Node, path: &WinPath) -> Result<Option<T>> {
    match fs::read(node.disk(path)) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("read {path}")).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {path}")),
    }
}

/// Removes it. If it is gone afterwards, that is success, whatever Windows reported.
///
/// # Errors
/// When it still exists.
pub fn forget(node: &dyn Node, path: &WinPath) -> Result<()> {
    match node.remove(path) {
        Err(_) if !node.disk(path).try_exists().unwrap_or(true) => Ok(()),
        removed => removed,
    }
}

/// Writes it, for administrators only.
///
/// # Errors
/// When the write fails.
pub fn save<T: Serialize>(node: &mut dyn Node, path: &WinPath, record: &T) -> Result<()> {
    let text = serde_json::to_vec(record).with_context(|| format!("write {path}"))?;
    node.save(path, &text, Access::Administrators)
}
