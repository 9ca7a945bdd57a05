//! What earlier runs left for CalicoNode to finish at its start: a change on trial, a run that a boot interrupted, a
//! cordoned Node. A guard does it, in its own process.

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
    // These belong to the command that began the trial, and to no other.
    for variable in ["CALICO_WIN_DETACH", "CALICO_WIN_DRY_RUN", "CALICO_WIN_SANDBOX_FAULT"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    os::outlive(&mut command, sandbox.is_none()).context("start the guard of the trial").map(drop)
}

/// Whether something is left for a guard, and no guard runs. `booted`: when Windows started.
///
/// # Errors
/// When a record of ours cannot be read.
pub(crate) fn needs_guard(node: &mut dyn Node, booted: Timestamp) -> Result<bool> {
    Ok(lacks_guard(node)? || waits(node, booted)? || is_to_uncordon(node)?)
}

/// Whether a trial is active without a guard. One that was given up is left to an administrator.
pub(crate) fn lacks_guard(node: &mut dyn Node) -> Result<bool> {
    Ok(Trial::load(node)?.is_some_and(|trial| trial.given_up.is_none()) && guard_lock(node)?.is_some())
}

/// Takes the guard's lock; none while there is a guard.
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

/// Returns the `--at-boot` choice of an interrupted run that began before Windows started: a run that was stopped since
/// is left to an administrator, and a change on trial has its own guard. `booted`: when Windows started, for the
/// journal of an older program, which records only when its run began; without it such a run counts.
///
/// # Errors
/// When the journal cannot be read, or the node not measured.
pub(crate) fn due_since_boot(node: &dyn Node, booted: Option<Timestamp>) -> Result<Option<AtBoot>> {
    let Some(Journal { header, .. }) = Journal::load(node)?.filter(|journal| journal.header.terms.at_boot.is_some())
    else {
        return Ok(None);
    };
    if Trial::load(node)?.is_some() {
        return Ok(None);
    }
    let before_boot = match &header.terms.boot {
        Some(boot) => *boot != node.boot_id()?,
        // Windows adjusts its recorded start time when the clock is set.
        None => booted.is_none_or(|booted| header.started < booted),
    };
    Ok(header.terms.at_boot.filter(|_| before_boot))
}

/// Whether there is such a run, and no process is ending it.
fn waits(node: &dyn Node, booted: Timestamp) -> Result<bool> {
    let at_it = lock::holder(node).is_some_and(|holder| holder.command == RESUME.command);
    Ok(!at_it && due_since_boot(node, Some(booted))?.is_some())
}

/// Whether CalicoNode has such a Node to uncordon; not before the cluster has the VNI that it waits for, which `resume`
/// looks at.
///
/// # Errors
/// As [`is_cordoned`].
pub(crate) fn is_to_uncordon(node: &dyn Node) -> Result<bool> {
    Ok(is_cordoned(node)? && Cordon::load(node)?.is_none_or(|left| left.awaits.is_none()))
}

/// Whether a run left the Node cordoned, with nothing half done on this machine: a finished run, or one that ended
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
    let at_it =
        lock::holder(node).is_some_and(|holder| Some(&holder.run) == run.as_ref() || holder.command == RESUME.command);
    Ok(run.is_some() && !at_it && Trial::load(node)?.is_none())
}
