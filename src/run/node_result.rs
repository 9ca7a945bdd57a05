//! How a run of a fleet ended, as an annotation of its Node: it is there when the pod that ran it is replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::Ending;
use super::context::Operation;
use crate::apply::standing::Standing;
use crate::cluster::RESULT;
use crate::fault::Fault;
use crate::fleet::REVISION_VARIABLE;
use crate::report::document::exit_of;
use crate::report::event::Event;

/// How long the cluster may take for the annotation.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A revision has 12 characters; the variable may be anybody's.
const LONGEST: usize = 63;

/// What the run of a pod installs; none for other runs.
pub(super) fn revision() -> Option<String> {
    std::env::var(REVISION_VARIABLE).ok().filter(|revision| !revision.is_empty() && revision.len() <= LONGEST)
}

/// Says on the Node how the run ended, and what the node has now. Nobody who may not do that needs it.
pub(super) fn tell(op: &mut Operation<'_>, revision: &str, ended: &Result<Ending>) {
    let (exit, id) = match ended {
        Ok(Ending::Result(result) | Ending::Shown(result)) => (result.exit_code, None),
        Ok(_) => return,
        Err(error) => (exit_of(error).code(), Some(Fault::id_of(error))),
    };
    // A failed run has reverted.
    let now = Standing::load(op.node).unwrap_or_default();
    let receipt = now.receipt();
    let about = receipt.and_then(|receipt| receipt.about.as_ref());
    let result = json!({
        "revision": revision,
        "run": op.app.run,
        "exit": exit,
        "id": id,
        "generation": receipt.map(|receipt| receipt.generation),
        "vni": about.map(|about| about.vni),
        // With another digest in the annotation `cluster::ACHIEVED`, another run has changed the node since.
        "settings": about.map(|about| &about.settings),
    });
    let annotation = [(RESULT.to_owned(), Some(result.to_string()))].into();
    // A note is no change, which every request that writes counts as.
    let changed = Arc::clone(&op.app.record().changed);
    let before = changed.load(Relaxed);
    let told = op
        .context
        .node_name(op.node)
        .and_then(|name| op.context.cluster(op.node)?.within(ANSWER_WITHIN).annotate_node(&name, &annotation));
    changed.store(before, Relaxed);
    if let Err(error) = told {
        op.app.event(&Event::Log { message: format!("the Node has no annotation about this run: {error:#}") });
    }
}
