//! The current state of a node, as far as a plan needs it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::calico::services::is_ours;
use crate::item::{Id, State, World};
use crate::node::Node;
use crate::plan::diff::{self, ids};
use crate::plan::order::is_own;
use crate::plan::{Owned, Target};

/// Returns the state of every item that a plan to `target` needs.
///
/// # Errors
/// When an item cannot be read: a failed query does not mean that it is absent.
pub fn observe(node: &dyn Node, target: &Target, owned: &Owned) -> Result<World> {
    let mut world = World::new();
    for id in ids(target, owned) {
        if let Some(state) = node.get(&id).with_context(|| format!("look at {id}"))? {
            world.insert(id, state);
        }
    }
    for name in dependents(node, &diff::services(target, owned))? {
        for id in [Id::DependsOn(name.clone()), Id::Running(name)] {
            if let Some(state) = node.get(&id).with_context(|| format!("look at {id}"))? {
                world.insert(id, state);
            }
        }
    }
    Ok(world)
}

/// Returns the services of other products that depend on one of these, also indirectly.
///
/// # Errors
/// When the service manager cannot be asked.
pub fn dependents(node: &dyn Node, services: &[String]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for service in services {
        for name in node.dependents(service).with_context(|| format!("list what depends on service {service}"))? {
            // Windows compares names without case; a known service keeps its known name.
            let known = services.iter().find(|known| known.eq_ignore_ascii_case(&name)).cloned();
            found.insert(known.unwrap_or(name));
        }
    }
    found.retain(|name| !is_own(name));
    Ok(found)
}

/// Returns the running services of other products, among those that a run to this target may stop.
pub(super) fn others_running(node: &dyn Node, target: &Target, owned: &Owned) -> Result<BTreeSet<Id>> {
    let services = diff::services(target, owned);
    let mut running = BTreeSet::new();
    for name in dependents(node, &services)?.into_iter().chain(services) {
        let id = Id::Running(name.clone());
        let ours = matches!(node.get(&Id::Service(name.clone()))?, Some(State::Service(service)) if is_ours(&service));
        if !is_own(&name) && !ours && node.get(&id).with_context(|| format!("look at {id}"))?.is_some() {
            running.insert(id);
        }
    }
    Ok(running)
}
