//! What earlier runs left that CalicoNode sees to when it starts: a change on trial, a run that a boot cut off, a Node
//! that is cordoned. A guard does it, a process of its own.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::verb::RESUME;
use crate::agent::os;
use crate::agent::trial::Trial;
use crate::apply::cordon::Cordon;
use crate::apply::journal::{AtBoot, Journal};
use crate::apply::lock;
use crate::item::Access;
use crate::node::{Node, STATE_DIR};
use crate::values::WinPath;

/// Starts a guard that outlives this process.
pub(crate) fn start_guard(sandbox: Option<&Path>) -> Result<()> {
    let program = std::env::current_exe().context("find our own executable")?;
    let mut command = Command::new(program);
    command.args(["service", "run", "guard", "--yes"]);
    if let Some(dir) = sandbox {
        command.arg("--sandbox").arg(dir);
    }
    // These are of the command that began the trial, and of no other.
    for variable in ["CALICO_WIN_DETACH", "CALICO_WIN_DRY_RUN", "CALICO_WIN_SANDBOX_FAULT"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    os::detach(&mut command).context("start the guard of the trial").map(drop)
}

/// Whether something is left that a guard is to see to, and none is at it. `booted`: when Windows started.
///
/// # Errors
/// When a record of ours cannot be read.
pub(crate) fn needs_guard(node: &mut dyn Node, booted: Timestamp) -> Result<bool> {
    Ok(lacks_guard(node)? || waits(node, booted)? || is_cordoned(node)?)
}

/// Whether a trial is on that nobody watches over. One that was given up is for people.
pub(crate) fn lacks_guard(node: &mut dyn Node) -> Result<bool> {
    Ok(Trial::load(node)?.is_some_and(|trial| trial.given_up.is_none()) && guard_lock(node)?.is_some())
}

/// The right to be the guard; none while there is one.
pub(crate) fn guard_lock(node: &mut dyn Node) -> Result<Option<File>> {
    let path = WinPath::known(STATE_DIR).join("state").join("guard.lock");
    if !node.disk(&path).exists() {
        node.save(&path, b"", Access::Administrators).with_context(|| format!("make {path}"))?;
    }
    let file = File::options().write(true).open(node.disk(&path)).with_context(|| format!("open {path}"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {path}")),
    }
}

/// What an interrupted run asked for. A change on trial has a guard of its own.
///
/// # Errors
/// When the journal cannot be read.
pub(crate) fn due(node: &dyn Node) -> Result<Option<AtBoot>> {
    if Trial::load(node)?.is_some() {
        return Ok(None);
    }
    Ok(Journal::load(node)?.and_then(|journal| journal.header.terms.at_boot))
}

/// The same, of a run that began before Windows did: one that somebody stopped since is left to people.
///
/// # Errors
/// As [`due`].
pub(crate) fn due_since_boot(node: &dyn Node) -> Result<Option<AtBoot>> {
    let Some(asked) = due(node)? else { return Ok(None) };
    let began_in = Journal::load(node)?.and_then(|journal| journal.header.terms.boot);
    let now = node.facts().context("measure the node")?.boot_id;
    Ok((began_in != Some(now)).then_some(asked))
}

/// Whether such a run is there, began before Windows did, and nobody is ending it.
///
/// # Errors
/// As [`due`].
fn waits(node: &dyn Node, booted: Timestamp) -> Result<bool> {
    let Some(Journal { header, .. }) = Journal::load(node)? else { return Ok(false) };
    let at_it = lock::holder(node).is_some_and(|holder| holder.command == "resume");
    let before_boot = match &header.terms.boot {
        Some(boot) => *boot != node.facts().context("measure the node")?.boot_id,
        // An older program left only when it began; and Windows moves its own note of that when the clock is set.
        None => header.started < booted,
    };
    Ok(before_boot && !at_it && due(node)?.is_some())
}

/// Whether a run left the Node cordoned, with nothing half-way on this machine: one that is over, or one that ended
/// while it moved pods away.
///
/// # Errors
/// When a record of ours cannot be read.
pub(crate) fn is_cordoned(node: &dyn Node) -> Result<bool> {
    let left = Cordon::load(node)?.map(|cordon| cordon.run);
    let run = match Journal::load(node)? {
        Some(journal) if journal.is_draining() => Some(journal.header.run),
        Some(_) => None,
        None => left,
    };
    let at_it = lock::holder(node).is_some_and(|holder| Some(&holder.run) == run.as_ref() || holder.command == RESUME);
    Ok(run.is_some() && !at_it && Trial::load(node)?.is_none())
}
