//! The Lease on the Node, for as long as a run changes it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::app::App;
use crate::cluster::Cluster;
use crate::cluster::lease::{Keeper, Owner};
use crate::node::Node;
use crate::report::event::Event;
use crate::settings::Connection;

/// How long the cluster may take to hear of a Lease that runs out by itself anyhow.
const LIMIT: Duration = Duration::from_secs(5);

/// Takes the Lease on a Node, and keeps it.
///
/// # Errors
/// BUSY when another machine has it.
pub(super) fn take(
    app: &App,
    node: &dyn Node,
    cluster: &Cluster,
    connection: &Connection,
    name: &str,
) -> Result<Keeper> {
    let owner = owner(app, node)?;
    cluster.take_lease(name, &owner)?;
    let mut patient = connection.clone();
    patient.timeout = patient.timeout.min(LIMIT);
    Ok(Keeper::new(app.cluster(node, &patient)?, name, owner))
}

pub(super) fn owner(app: &App, node: &dyn Node) -> Result<Owner> {
    let host = node.facts().context("measure the node")?.host_name;
    Ok(Owner { host, run: app.run.clone() })
}

/// Gives it back. What went well is not given up for it: it runs out by itself.
pub(super) fn give_back(app: &mut App, keeper: Keeper) {
    ended(app, keeper.give_back());
}

/// Leaves it behind for who finishes this on the same machine.
pub(super) fn leave(app: &mut App, keeper: Keeper, length: Duration) {
    ended(app, keeper.leave_for(length));
}

fn ended(app: &mut App, ended: Result<bool>) {
    match ended {
        Ok(true) => {}
        Ok(false) => app.warn("LeaseLost", "another machine took the Lease on this node while the run was at it"),
        Err(error) => {
            let message = format!("the Lease on the node was not given back, and runs out by itself: {error:#}");
            app.event(&Event::Log { message });
        }
    }
}
