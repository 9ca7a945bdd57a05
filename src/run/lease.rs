//! The Lease on the Node, while a run changes it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::app::App;
use super::cordon;
use super::drain::Place;
use crate::agent::trial::Trial;
use crate::apply::node_object::Access;
use crate::cluster::lease::{LeaseRenewer, Owner};
use crate::fault::Exit;
use crate::node::Node;
use crate::report::document::exit_of;
use crate::report::event::Event;

/// How long the cluster may take to release a Lease, which expires anyway.
const LIMIT: Duration = Duration::from_secs(5);

/// Takes the Lease on a Node, and renews it; until it is released, the run knows how long it is valid.
///
/// # Errors
/// BUSY if another machine has it; and when the cluster does not answer, or refuses.
pub(crate) fn take(app: &mut App, node: &dyn Node, place: &Place<'_>) -> Result<LeaseRenewer> {
    let owner = owner(app, node)?;
    place.cluster.take_lease(place.name, &owner)?;
    let mut patient = place.connection.clone();
    patient.timeout = patient.timeout.min(LIMIT);
    let keeper = LeaseRenewer::new(app.cluster(node, &patient)?, place.name, owner);
    app.lease = Some(keeper.validity());
    Ok(keeper)
}

/// Changes the Node while holding its Lease, if a cluster answers. While a change is on trial, this machine has the
/// Lease already, and keeps it.
///
/// # Errors
/// BUSY if another machine has the Lease, and what the work fails with.
pub(crate) fn hold<T>(
    app: &mut App,
    node: &mut dyn Node,
    name: &str,
    work: impl FnOnce(&mut App, &mut dyn Node) -> Result<T>,
) -> Result<T> {
    let on_trial = Trial::load(node)?.is_some();
    let keeper = if on_trial { None } else { take_if_possible(app, node, name)? };
    let done = work(app, node);
    release(app, keeper);
    done
}

/// Takes the Lease, if a cluster answers.
///
/// # Errors
/// BUSY if another machine has it.
pub(crate) fn take_if_possible(app: &mut App, node: &dyn Node, name: &str) -> Result<Option<LeaseRenewer>> {
    match take_quickly(app, node, name) {
        Ok(keeper) => Ok(Some(keeper)),
        Err(error) if exit_of(&error) == Exit::Busy => Err(error),
        Err(error) => {
            let message = format!("other machines are not kept from changing node {name} meanwhile: {error:#}");
            app.warn("LeaseNotTaken", message);
            Ok(None)
        }
    }
}

/// Takes the Lease from a cluster that answers at once, and renews it.
pub(crate) fn take_quickly(app: &mut App, node: &dyn Node, name: &str) -> Result<LeaseRenewer> {
    let cluster = cordon::reach(app, node, &Access::default(), Some(LIMIT))?;
    let owner = owner(app, node)?;
    cluster.take_lease(name, &owner)?;
    let keeper = LeaseRenewer::new(cluster, name, owner);
    app.lease = Some(keeper.validity());
    Ok(keeper)
}

pub(crate) fn owner(app: &App, node: &dyn Node) -> Result<Owner> {
    let facts = node.facts().context("measure the node")?;
    // Enough characters to distinguish machines, and short enough to read.
    let machine = facts.machine_id.unwrap_or_default().chars().take(12).collect();
    Ok(Owner { host: facts.host_name, machine, run: app.run.clone() })
}

/// Releases the Lease, if this run has it. A failure does not fail the run: the Lease expires by itself.
pub(crate) fn release(app: &mut App, keeper: Option<LeaseRenewer>) {
    if let Some(keeper) = keeper {
        ended(app, keeper.release());
    }
}

/// Leaves the Lease to the next run on the same machine.
pub(crate) fn leave(app: &mut App, keeper: LeaseRenewer, length: Duration) {
    ended(app, keeper.leave_for(length));
}

fn ended(app: &mut App, ended: Result<bool>) {
    app.lease = None;
    match ended {
        Ok(true) => {}
        Ok(false) => app.warn("LeaseLost", "another machine took the Lease on this node while the run was at it"),
        Err(error) => {
            let message = format!("the Lease on the node was not released, and expires by itself: {error:#}");
            app.event(&Event::Log { message });
        }
    }
}
