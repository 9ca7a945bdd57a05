//! Replaces credentials that expire. This makes no new generation: the target is the same, and a rollback must not
//! restore an old token. So the receipts get the new digests and otherwise stay unchanged. It is still a run like
//! others: one that a power failure interrupts is finished or undone.

use std::time::Duration;

use anyhow::Result;

use super::journal::{Header, Journal, Renewed, Terms};
use super::node_object::NodeObject;
use super::standing::{Applied, Standing};
use super::steps::Engine;
use super::{retention, stale_files, store};
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id, State};
use crate::node::Node;
use crate::plan::{Owned, Step};
use crate::report::event::Sink;
use crate::values::{Sha256, WinPath};

/// Replaces the contents of files that install wrote, one step each, for SYSTEM and Administrators only. The caller
/// holds the lock, and has ended an interrupted run.
///
/// # Errors
/// Fault `NotInstalled` for a file that is not in the current generation; and when the disk refuses: then call
/// [`super::converge::undo`].
pub fn replace(
    node: &mut dyn Node,
    standing: &Standing,
    (run, command): (&str, &str),
    terms: Terms,
    files: &[(WinPath, Vec<u8>)],
    events: Sink<'_>,
) -> Result<Applied> {
    let mut renewed = Vec::new();
    for (path, bytes) in files {
        let state = standing.receipt().and_then(|receipt| receipt.target.world.get(&Id::File(path.clone())));
        let Some(State::File { sha256: before, .. }) = state else {
            let what = format!("{path} is not of an installation by this tool");
            return Err(Fault::new(Exit::NotInstalled, "NotInstalled", what)
                .hint("install Calico first: calicoctl-win install")
                .into());
        };
        let (path, before, after) = (path.clone(), before.clone(), store::add(node, bytes)?);
        renewed.push(Renewed { path, before, after });
    }
    let Some(receipt) = standing.receipt().filter(|_| !renewed.is_empty()) else {
        return Ok(Applied { changed: 0, generation: None, downtime: Duration::ZERO });
    };
    let (from, about) = (Some(receipt.generation), receipt.about.as_ref());
    let header = Header::new(run, command, from, &receipt.target, about, Terms { renewed, ..terms }, node.now());
    let journal = Journal::begin(node, header, Owned::new())?;
    finish(node, standing, journal, false, events).map(|(applied, _)| applied)
}

/// Checks that no run of another kind must be ended first.
///
/// # Errors
/// Fault `InterruptedRun`.
pub fn may_begin(standing: &Standing) -> Result<()> {
    match &standing.journal {
        Some(journal) if !journal.header.terms.is_renewal() => {
            let what = "a run was interrupted, and what it wanted the credentials to be is not done yet";
            Err(Fault::new(Exit::Interrupted, "InterruptedRun", what)
                .hint("finish it with: calicoctl-win resume\nor undo it with: calicoctl-win resume --undo")
                .into())
        }
        _ => Ok(()),
    }
}

/// Finishes an interrupted renewal before anything else is done: its credentials may be in use already. Returns the
/// state of the node afterwards.
///
/// # Errors
/// When the disk refuses.
pub fn finish_interrupted(node: &mut dyn Node, mut standing: Standing, events: Sink<'_>) -> Result<Standing> {
    match standing.journal.take() {
        Some(journal) if journal.header.terms.is_renewal() => {
            stale_files::sweep_of(node, &standing, &journal, events)?;
            finish(node, &standing, journal, false, events).map(|(_, standing)| standing)
        }
        journal => Ok(Standing { journal, ..standing }),
    }
}

/// Finishes or undoes the run. Also returns the state of the node afterwards.
///
/// # Errors
/// When the disk refuses.
pub(super) fn finish(
    node: &mut dyn Node,
    standing: &Standing,
    journal: Journal,
    back: bool,
    events: Sink<'_>,
) -> Result<(Applied, Standing)> {
    let renewed = &journal.header.terms.renewed;
    let wanted = |renewed: &Renewed| if back { renewed.before.clone() } else { renewed.after.clone() };
    // The receipts first: otherwise `repair` would restore an old token.
    let mut receipts = standing.receipts.clone();
    for receipt in &mut receipts {
        let mut changed = false;
        for file in renewed {
            if let Some(State::File { sha256, .. }) = receipt.target.world.get_mut(&Id::File(file.path.clone())) {
                let digest: Sha256 = wanted(file);
                changed |= *sha256 != digest;
                *sha256 = digest;
            }
        }
        if changed {
            receipt.save(node)?;
        }
    }
    let mut steps = Vec::new();
    for file in renewed {
        let id = Id::File(file.path.clone());
        let after = Some(State::File { sha256: wanted(file), access: Access::Administrators });
        let before = node.get(&id)?;
        if before != after {
            steps.push(Step::Put { id, before, after });
        }
    }
    let object = NodeObject::unknown();
    let mut engine = Engine::new(node, &object, journal, standing.owned(), (Vec::new(), steps), events);
    // One file of a pair is no login, so they are all taken.
    engine.take_rest()?;
    let Engine { node, journal, changed, events, .. } = engine;
    journal.end(node)?;
    // The old token must not remain on the disk.
    let standing = Standing { receipts, unreadable: standing.unreadable.clone(), ..Standing::default() };
    retention::tidy(node, &standing, events);
    let generation = standing.receipt().map(|receipt| receipt.generation);
    Ok((Applied { changed, generation, downtime: Duration::ZERO }, standing))
}
