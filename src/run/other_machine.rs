//! Whether the Node of this machine's name is another machine's: two clones of an image have one name.

use std::time::Duration;

use super::app::App;
use super::cordon;
use crate::apply::node_object::Access;
use crate::node::Node;

/// How long the cluster may take to say whose the Node is.
const LIMIT: Duration = Duration::from_secs(5);

/// Says that the Node has addresses, and none of them is this machine's. None where that is not so, or cannot be
/// known.
pub(crate) fn owns(app: &App, node: &dyn Node, name: &str) -> Option<String> {
    let cluster = cordon::reach(app, node, &Access::default(), Some(LIMIT)).ok()?;
    let theirs = cluster.node(name).ok()??.internal_ips;
    let facts = node.facts().ok()?;
    let mut ours = facts.adapters.iter().flat_map(|adapter| &adapter.addresses).map(|net| net.addr()).peekable();
    // While a virtual switch is made there may be none for a moment.
    ours.peek()?;
    let mine = ours.any(|ip| theirs.contains(&ip.to_string()));
    (!mine && !theirs.is_empty()).then(|| {
        format!(
            "Node {name} has the address {}, which is not this machine's: another machine has its name",
            theirs.join(", ")
        )
    })
}
