//! The records of each run: that it began, and how it ended.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::apply::lock;
use crate::fault::{Exit, Fault};
use crate::item::Access;
use crate::node::{Node, STATE_DIR, record};
use crate::values::WinPath;

/// How many runs are kept.
const KEPT: usize = 50;

fn folder() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("runs")
}

fn path(run: &str) -> WinPath {
    folder().join(&format!("{run}.json"))
}

/// Returns the file with the result of a run.
pub(crate) fn kept(node: &dyn Node, run: &str) -> PathBuf {
    node.disk(&path(run))
}

/// Returns the record of a run before it has a result.
pub(crate) fn begun(run: &str, command: &str) -> Value {
    // The name of the account on Windows, and on Linux in a sandbox.
    let user = ["USERNAME", "USER"].into_iter().find_map(|name| std::env::var(name).ok());
    json!({ "run": run, "command": command, "user": user, "since": Timestamp::now(), "result": null })
}

/// The same once the run has the lock: if it is killed from then on, the lock says so.
pub(crate) fn opened(run: &str, command: &str) -> Value {
    let mut record = begun(run, command);
    record["locked"] = true.into();
    record
}

/// Whether the run of a record without a result is over: it was killed, or the machine restarted.
pub(crate) fn is_interrupted(node: &dyn Node, record: &Value) -> bool {
    let run = record["run"].as_str().unwrap_or_default();
    if !record["result"].is_null() || is_fresh(record) || is_active(node, run) {
        return false;
    }
    // It may have ended, and released the lock, since the record was read.
    find(node, run).ok().flatten().is_none_or(|record| record["result"].is_null())
}

/// Whether a run has the lock.
pub(crate) fn is_active(node: &dyn Node, run: &str) -> bool {
    lock::holder(node).is_some_and(|holder| holder.run == run)
}

/// Records that a run without a screen is starting. `waits`: how long it waits for the run in progress.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn begin(node: &mut dyn Node, run: &str, command: &str, waits: Duration) -> Result<()> {
    let mut record = begun(run, command);
    record["waits_seconds"] = waits.as_secs().into();
    node.save(&path(run), record.to_string().as_bytes(), Access::Administrators).context("write down the run")
}

/// Records how a run ended, and removes the oldest records.
pub(crate) fn keep(file: &Path, record: &Value, result: &Value) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    fs::create_dir_all(folder)?;
    let mut record = record.clone();
    record["result"] = result.clone();
    crate::node::files::replace(file, |new| fs::write(new, record.to_string()))?;
    let mut all: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // Their names begin with the time.
    all.sort();
    for old in all.iter().rev().skip(KEPT).filter(|old| read(old).is_ok()) {
        fs::remove_file(old)?;
    }
    Ok(())
}

/// Returns the records of all runs; those that cannot be read are left out.
///
/// # Errors
/// When the folder exists and cannot be read: that needs an administrator. `NewerState`.
pub(crate) fn all(node: &dyn Node) -> Result<Vec<Value>> {
    let files = match fs::read_dir(node.disk(&folder())) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("read {}", folder())),
    };
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let mut records = Vec::new();
    for file in files {
        match read(&file) {
            Ok(record) => records.push(record),
            Err(error) if record::is_newer(&error) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(records)
}

fn read(file: &Path) -> Result<Value> {
    record::parse(&fs::read(file)?, format!("the record of a run {}", file.display()))
}

/// Returns the record of a run that was detached a moment ago and has not taken the lock yet.
pub(crate) fn starting(node: &dyn Node) -> Option<Value> {
    let record = all(node).ok()?.pop()?;
    (record["result"].is_null() && is_fresh(&record)).then_some(record)
}

/// Whether the process of a detached run may not have taken the lock yet.
pub(crate) fn is_fresh(record: &Value) -> bool {
    let since = record["since"].as_str().and_then(|since| since.parse::<Timestamp>().ok());
    let within = record["waits_seconds"].as_i64().unwrap_or_default().saturating_add(30);
    record["locked"].is_null() && since.is_some_and(|since| Timestamp::now().duration_since(since).as_secs() < within)
}

/// There is no record of a run of this name.
pub(crate) fn unknown(run: &str) -> Fault {
    Fault::new(Exit::NotFound, "NoSuchRun", format!("nothing is known of a run {run}"))
        .hint("the newest are in C:\\ProgramData\\calicoctl-win\\logs, a file each")
}

/// Returns the record of a run; none if there is none that can be read.
///
/// # Errors
/// `NewerState`.
pub(crate) fn find(node: &dyn Node, run: &str) -> Result<Option<Value>> {
    // A name with a separator in it would lead to another folder.
    if !run.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Ok(None);
    }
    match read(&kept(node, run)) {
        Ok(record) => Ok(Some(record)),
        Err(error) if record::is_newer(&error) => Err(error),
        Err(_) => Ok(None),
    }
}
