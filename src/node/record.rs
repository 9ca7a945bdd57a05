//! Small records of ours in the state folder, as JSON, for later processes.

use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Node, files};
use crate::fault::{Exit, Fault};
use crate::item::Access;
use crate::values::WinPath;

/// The schema number of these records; one without a number has this one too.
const SCHEMA: u64 = 1;

/// The error for what a newer version of this program wrote: it may mean something that this one does not know.
pub fn newer(what: impl Display, schema: u64, known: u64) -> Fault {
    let what = format!("{what} has schema {schema}, this version knows up to {known}");
    Fault::new(Exit::Failed, "NewerState", what).hint("a newer calicoctl-win wrote it: use that version on this node")
}

/// Whether that is the error.
pub fn is_newer(error: &Error) -> bool {
    Fault::id_of(error) == "NewerState"
}

/// Reads a record; none if there is none.
///
/// # Errors
/// When the file exists and cannot be read; `NewerState`.
pub fn load<T: DeserializeOwned>(node: &dyn Node, path: &WinPath) -> Result<Option<T>> {
    match fs::read(node.disk(path)) {
        Ok(text) => parse(&text, path).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {path}")),
    }
}

/// Parses a record.
///
/// # Errors
/// When it is not valid; `NewerState`.
pub fn parse<T: DeserializeOwned>(text: &[u8], name: impl Display) -> Result<T> {
    #[derive(Deserialize)]
    struct Probe {
        schema: u64,
    }
    let schema = serde_json::from_slice(text).map_or(SCHEMA, |Probe { schema }| schema);
    if schema > SCHEMA {
        return Err(newer(name, schema, SCHEMA).into());
    }
    serde_json::from_slice(text).with_context(|| format!("read {name}"))
}

/// Removes it. If it is gone afterwards, that is success, whatever Windows reported.
///
/// # Errors
/// When it still exists.
pub fn forget(node: &dyn Node, path: &WinPath) -> Result<()> {
    // What a crash left of a write: no later one of this record overwrites it.
    drop(fs::remove_file(files::beside(&node.disk(path))));
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
