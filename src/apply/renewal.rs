//! New credentials in the place of those that end. That is no new generation: the world that was
//! wanted is the same, and going back to a former one must not bring an old token back. So the
//! receipts learn of it, and what they say of everything else stays.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::converge::Standing;
use super::retention;
use super::store;
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id, State};
use crate::node::Node;
use crate::report::event::Sink;
use crate::values::{Sha256, WinPath};

/// Replaces files that install made with these contents, in one step each, for SYSTEM and
/// Administrators only. The caller holds the lock. Gives whether anything was different.
///
/// Power may fail at any point: until a file is replaced, `status` names it as changed and `repair`
/// writes the new contents, which are in the store by then.
///
/// # Errors
/// Fault `InterruptedRun` while a run is to be finished first, `NotInstalled` for a file that no
/// standing generation has; and when the disk refuses.
pub fn replace(node: &mut dyn Node, files: &[(WinPath, Vec<u8>)], events: Sink<'_>) -> Result<bool> {
    let standing = Standing::load(node)?;
    if standing.journal.is_some() {
        let what = "a run was interrupted, and what it wanted the credentials to be is not done yet";
        return Err(Fault::new(Exit::Interrupted, "InterruptedRun", what)
            .hint("finish it with: calicoctl-win resume, or undo it with: calicoctl-win resume --undo")
            .into());
    }
    let receipt = standing.receipt();
    let mut new: BTreeMap<Id, Sha256> = BTreeMap::new();
    let mut different = false;
    for (path, bytes) in files {
        let id = Id::File(path.clone());
        if !receipt.is_some_and(|receipt| receipt.target.world.contains_key(&id)) {
            let what = format!("{path} is not of an installation by this tool");
            return Err(Fault::new(Exit::NotInstalled, "NotInstalled", what)
                .hint("install Calico first: calicoctl-win install")
                .into());
        }
        different |= std::fs::read(node.disk(path)).ok().as_ref() != Some(bytes);
        new.insert(id, store::add(node, bytes)?);
    }
    for mut receipt in standing.receipts.iter().cloned() {
        let mut changed = false;
        for (id, digest) in &new {
            if let Some(State::File { sha256, .. }) = receipt.target.world.get_mut(id) {
                changed |= sha256 != digest;
                sha256.clone_from(digest);
            }
        }
        if changed {
            receipt.save(node)?;
        }
    }
    for (path, bytes) in files {
        node.save(path, bytes, Access::Administrators).with_context(|| format!("write {path}"))?;
    }
    // The old token must not lie about.
    retention::tidy(node, events);
    Ok(different)
}
