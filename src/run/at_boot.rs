//! A run that a boot cut off, and that asked to be finished or undone then: CalicoNode starts a guard
//! for it, since nobody may be there to call `resume`.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::app::App;
use super::options::Resume;
use super::{Ending, resume};
use crate::agent::os::{self, Level};
use crate::agent::trial::Trial;
use crate::apply::cordon::Cordon;
use crate::apply::journal::{AtBoot, Journal};
use crate::apply::lock;
use crate::fault::Exit;
use crate::node::Node;
use crate::report::document::{RunResult, exit_of};

/// How long after one try comes the next: right after a boot network and cluster may be on their way.
const AGAIN: Duration = Duration::from_secs(15);

/// How often it is tried before it is left to people.
const TRIES: usize = 20;

/// How long to wait for another run that has the lock.
const LOOK: Duration = Duration::from_millis(250);

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

/// Whether such a run is there, began before Windows did, and nobody is ending it.
///
/// # Errors
/// As [`due`].
pub(crate) fn waits(node: &dyn Node, booted: Timestamp) -> Result<bool> {
    let Some(Journal { header, .. }) = Journal::load(node)? else { return Ok(false) };
    let at_it = lock::holder(node).is_some_and(|holder| holder.command == "resume");
    let before_boot = match &header.terms.boot {
        Some(boot) => *boot != node.facts().context("measure the node")?.boot_id,
        // An older program left only when it began; and Windows moves its own note of that when the clock is set.
        None => header.started < booted,
    };
    Ok(before_boot && !at_it && due(node)?.is_some())
}

/// Finishes or undoes the run, as a run of its own.
///
/// # Errors
/// When it does not succeed in five minutes.
pub(crate) fn carry_on(app: &mut App, way: AtBoot) -> Result<Ending> {
    let args = Resume { undo: way == AtBoot::Undo };
    let mut tries = 0;
    loop {
        let node = app.node()?;
        // Taken back by the failed try, or somebody was quicker.
        if tries > 0 && Journal::load(&*node)?.is_none() && Cordon::load(&*node)?.is_none() {
            return Ending::result(RunResult::new(Exit::Ok, false, "the run that the boot cut off is over"));
        }
        drop(node);
        match resume::run(&args, app) {
            Ok(ending) => return Ok(ending),
            Err(error) if exit_of(&error) == Exit::Busy => std::thread::sleep(LOOK),
            Err(error) => {
                tries += 1;
                let message =
                    format!("a run that the boot cut off is not ended yet (try {tries} of {TRIES}): {error:#}");
                os::event_log(Level::Error, &message);
                if tries == TRIES {
                    return Err(error);
                }
                std::thread::sleep(AGAIN);
            }
        }
    }
}
