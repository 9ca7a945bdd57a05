//! The Lease on the Node, for as long as a run changes it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::app::App;
use super::cordon;
use super::drain::Place;
use crate::apply::node_object::Access;
use crate::cluster::lease::{Keeper, Owner};
use crate::fault::Exit;
use crate::node::Node;
use crate::report::document::exit_of;
use crate::report::event::Event;

/// How long the cluster may take to hear of a Lease that runs out by itself anyhow.
const LIMIT: Duration = Duration::from_secs(5);

/// Takes the Lease on a Node, and keeps it; until it is given back the run knows how long it holds.
///
/// # Errors
/// BUSY when another machine has it; and when the cluster cannot be asked, or refuses.
pub(crate) fn take(app: &mut App, node: &dyn Node, place: &Place<'_>) -> Result<Keeper> {
    let owner = owner(app, node)?;
    place.cluster.take_lease(place.name, &owner)?;
    let mut patient = place.connection.clone();
    patient.timeout = patient.timeout.min(LIMIT);
    let keeper = Keeper::new(app.cluster(node, &patient)?, place.name, owner);
    app.lease = Some(keeper.term());
    Ok(keeper)
}

/// Does what changes a node with its Lease held, as far as there is a cluster to ask for one: a node is
/// to be mended, and cleared, also without.
///
/// # Errors
/// BUSY when another machine has the Lease, and what the work fails with.
pub(crate) fn hold<T>(
    app: &mut App,
    node: &mut dyn Node,
    name: &str,
    work: impl FnOnce(&mut App, &mut dyn Node) -> Result<T>,
) -> Result<T> {
    let keeper = take_if_possible(app, node, name)?;
    let done = work(app, node);
    if let Some(keeper) = keeper {
        give_back(app, keeper);
    }
    done
}

/// Takes the Lease, as far as there is a cluster to ask for one.
///
/// # Errors
/// BUSY when another machine has it.
pub(crate) fn take_if_possible(app: &mut App, node: &dyn Node, name: &str) -> Result<Option<Keeper>> {
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

/// Takes the Lease from a cluster that answers at once, and keeps it.
pub(crate) fn take_quickly(app: &mut App, node: &dyn Node, name: &str) -> Result<Keeper> {
    let cluster = cordon::reach(app, node, &Access::default(), Some(LIMIT))?;
    let owner = owner(app, node)?;
    cluster.take_lease(name, &owner)?;
    let keeper = Keeper::new(cluster, name, owner);
    app.lease = Some(keeper.term());
    Ok(keeper)
}

pub(crate) fn owner(app: &App, node: &dyn Node) -> Result<Owner> {
    let facts = node.facts().context("measure the node")?;
    // Enough of it to tell two machines apart, and to be read.
    let machine = facts.machine_id.unwrap_or_default().chars().take(12).collect();
    Ok(Owner { host: facts.host_name, machine, run: app.run.clone() })
}

/// Gives it back. What went well is not given up for it: it runs out by itself.
pub(crate) fn give_back(app: &mut App, keeper: Keeper) {
    ended(app, keeper.give_back());
}

/// Leaves it behind for who finishes this on the same machine.
pub(crate) fn leave(app: &mut App, keeper: Keeper, length: Duration) {
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
