//! Routes of the host that go with the last network on a vSwitch: those to the metadata services of clouds. While
//! CalicoNode runs, it keeps them; a run that removes Calico restores them on the adapter.

use anyhow::{Context, Result};

use super::journal::Journal;
use crate::agent::network_backup::{Route, configs, lost_routes, serves};
use crate::item::{Id, State};
use crate::node::Node;
use crate::node::hns::physical;
use crate::plan::Target;
use crate::plan::order::NODE_SERVICE;
use crate::report::event::{Event, Sink};

/// The routes that a run may lose: those there are now, and those that a run it ends has already lost.
///
/// # Errors
/// When the node cannot be read.
pub(super) fn before(node: &dyn Node, interrupted: Option<&Journal>) -> Result<Vec<Route>> {
    let mut routes = interrupted.map(|journal| journal.header.routes.clone()).unwrap_or_default();
    for route in lost_routes(node, &configs(node)?)? {
        if !routes.iter().any(|known| known.prefix == route.prefix) {
            routes.push(route);
        }
    }
    Ok(routes)
}

/// Restores the routes that are gone, once there is no CalicoNode to do it. A failure is a warning: Calico is removed
/// all the same.
///
/// # Errors
/// When the node cannot be read.
pub(super) fn restore(node: &mut dyn Node, routes: &[Route], goal: &Target, events: Sink) -> Result<()> {
    if goal.world.contains_key(&Id::Service(NODE_SERVICE.into())) {
        return Ok(());
    }
    for Route { prefix, adapter, next_hop, metric } in routes {
        let id = Id::Route(*prefix);
        if node.get(&id).with_context(|| format!("look at {id}"))?.is_some() {
            continue;
        }
        // Another product's network may keep the vSwitch: then its host side has the address.
        let serving = configs(node)?.into_iter().find(|(name, ip)| physical(name) == adapter && serves(ip));
        let interface = serving.map_or_else(|| adapter.clone(), |(name, _)| name);
        let route = State::Route { interface: interface.clone(), next_hop: *next_hop, metric: *metric };
        events(match node.put(&id, Some(&route)) {
            Ok(_) => Event::Log { message: format!("{id} is restored on {interface}") },
            Err(error) => Event::Warning {
                id: "RouteNotRestored",
                message: format!(
                    "{id} went with the virtual switch and could not be restored on {interface}: {error:#}\n\
                     New-NetRoute -DestinationPrefix {prefix} -InterfaceAlias '{interface}' -NextHop {next_hop} -RouteMetric {metric} \
                     -PolicyStore ActiveStore"
                ),
            },
        });
    }
    Ok(())
}
