//! Whether the Node with this machine's name belongs to another machine: two clones of an image have the same name.

use std::time::Duration;

use super::app::App;
use super::cordon;
use crate::apply::journal::Journal;
use crate::apply::node_object::Access;
use crate::apply::standing::Standing;
use crate::node::Node;

/// How long the cluster may take to return the Node.
const LIMIT: Duration = Duration::from_secs(5);

/// Reports that the Node has addresses, and none of them is this machine's. None if that is not so, or unknown.
pub(crate) fn owns(app: &App, node: &dyn Node, name: &str) -> Option<String> {
    let cluster = cordon::reach(app, node, &Access::default(), Some(LIMIT)).ok()?;
    let theirs = cluster.node(name).ok()??.internal_ips;
    let facts = node.facts().ok()?;
    let addresses = facts.adapters.iter().flat_map(|adapter| &adapter.addresses).map(|net| net.addr());
    let mut ours = addresses.filter(|ip| !ip.is_link_local() && !ip.is_loopback()).peekable();
    // While a virtual switch is created, the machine may have no address for a moment.
    ours.peek()?;
    let mine = ours.any(|ip| theirs.contains(&ip.to_string()));
    (!mine && !theirs.is_empty()).then(|| {
        format!(
            "Node {name} has the address {}, which is not this machine's: another machine has its name",
            theirs.join(", ")
        )
    })
}

/// The same for the Node of a generation, or of an interrupted run. A run that began on this machine is about its own
/// Node, also while a virtual switch is created and addresses are missing.
pub(crate) fn owns_node_of(app: &App, node: &dyn Node, standing: &Standing) -> Option<String> {
    let began_here =
        |journal: &Journal| journal.header.terms.machine.is_some() && journal.header.terms.machine == app.machine;
    if standing.journal.as_ref().is_some_and(began_here) {
        return None;
    }
    owns(app, node, standing.node_name()?.as_str())
}
