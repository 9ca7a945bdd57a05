//! What is not as the last run left it.

use anyhow::{Context, Result};

use crate::agent::trial::Trial;
use crate::apply::converge::plan;
use crate::apply::lock;
use crate::apply::standing::Standing;
use crate::item::{Id, State};
use crate::node::Node;
use crate::plan::Step;

/// The items that differ from the receipt; none while a run changes the node, or has to be ended.
///
/// # Errors
/// When a record of ours cannot be read, or the node not be looked at.
pub(crate) fn of_last_run(node: &mut dyn Node) -> Result<Vec<String>> {
    let standing = Standing::load(node)?;
    let changes = lock::holder(node).is_some() || standing.journal.is_some() || Trial::load(node)?.is_some();
    match standing.receipt().filter(|_| !changes) {
        Some(receipt) => drift(node, &plan(node, &standing, &receipt.target)?),
        None => Ok(Vec::new()),
    }
}

/// Returns what differs from the receipt. Some steps of a repair are only consequences: it restarts services, and
/// rewrites our files beside a release that it replaces.
pub(super) fn drift(node: &dyn Node, steps: &[Step]) -> Result<Vec<String>> {
    let mut last: Vec<(&Id, Option<&State>)> = Vec::new();
    for step in steps {
        let (id, after) = match step {
            Step::Put { id, after, .. } => (id, after.as_ref()),
            Step::Await { id, state, .. } => (id, Some(state)),
            Step::Vacate { .. } | Step::Drain { .. } => continue,
        };
        match last.iter_mut().find(|(known, _)| *known == id) {
            Some(known) => known.1 = after,
            None => last.push((id, after)),
        }
    }
    let mut drift = Vec::new();
    for (id, after) in last {
        let is_as_left = matches!(id, Id::Running(_) | Id::File(_) | Id::CniConf(_))
            && node.get(id).with_context(|| format!("look at {id}"))?.as_ref() == after;
        if !is_as_left {
            drift.push(id.to_string());
        }
    }
    Ok(drift)
}
