//! The Lease on the Node, while a run changes it.

use std::time::Duration;

use anyhow::Result;

use super::app::App;
use super::context::Operation;
use super::verb::{DuringTrial, Lease};
use crate::cluster::lease::{LeaseRenewer, Owner};
use crate::fault::Exit;
use crate::report::document::exit_of;
use crate::report::event::Event;

/// How long the cluster may take for a Lease that a run does without, or that expires anyway.
const LIMIT: Duration = Duration::from_secs(5);

/// Takes the Lease on a Node, and renews it. While a change is on trial, this machine has it already, and keeps it.
///
/// # Errors
/// BUSY if another machine has it; and, if it is required, when the cluster does not answer, or refuses.
pub(crate) fn take(op: &mut Operation<'_>, name: &str, how: Lease) -> Result<Option<LeaseRenewer>> {
    let kept = op.context.trial.is_some() && op.row.trial == DuringTrial::Allowed;
    if kept || name.is_empty() || how == Lease::Never {
        return Ok(None);
    }
    let facts = &op.context.facts;
    // Enough characters to distinguish machines, and short enough to read.
    let machine = facts.machine_id.iter().flat_map(|id| id.chars()).take(12).collect();
    let owner = Owner { host: facts.host_name.clone(), machine, run: op.app.run.clone() };
    let taken = op.context.cluster(op.node).and_then(|cluster| {
        let patient = if how == Lease::Required { cluster.clone() } else { cluster.within(LIMIT) };
        patient.take_lease(name, &owner)?;
        Ok(LeaseRenewer::new(cluster.within(LIMIT), name, owner))
    });
    match taken {
        Ok(keeper) => Ok(Some(keeper)),
        Err(_) if how == Lease::Quietly => Ok(None),
        Err(error) if how == Lease::Required || exit_of(&error) == Exit::Busy => Err(error),
        Err(error) => {
            let message = format!("other machines are not kept from changing node {name} meanwhile: {error:#}");
            op.app.warn("LeaseNotTaken", message);
            Ok(None)
        }
    }
}

/// Releases the Lease, or leaves it to the next run on the same machine for this long. A failure does not fail the run:
/// the Lease expires by itself.
pub(crate) fn release(app: &mut App, keeper: LeaseRenewer, left_for: Option<Duration>) {
    let released = match left_for {
        Some(length) => keeper.leave_for(length),
        None => keeper.release(),
    };
    match released {
        Ok(true) => {}
        Ok(false) => app.warn("LeaseLost", "another machine took the Lease on this node during the run"),
        Err(error) => {
            let message = format!("the Lease on the node was not released, and expires by itself: {error:#}");
            app.event(&Event::Log { message });
        }
    }
}
