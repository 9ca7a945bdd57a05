//! What is left of a run that ended between its last step and its result: the cluster is told what
//! was achieved, and what was gathered for a run that never began goes.

use std::collections::BTreeMap;

use super::app::App;
use super::args::Source;
use super::reconfigure::{ACHIEVED, annotate};
use crate::apply::converge::Standing;
use crate::apply::keep;
use crate::apply::receipt::Receipt;
use crate::cluster::Cluster;
use crate::node::Node;

/// The verbs that write on the Node which settings were achieved.
const TELLING: [&str; 3] = ["reconfigure", "rollback", "upgrade"];

/// Brings what the newest generation says of the Node there, and tidies the store. What cannot be
/// reached is told, and harms nobody.
pub(super) fn settle(app: &mut App, node: &dyn Node) {
    keep::tidy(node, &mut |event| app.event(&event));
    let Ok(standing) = Standing::load(node) else { return };
    let told = |receipt: &Receipt| TELLING.contains(&receipt.command.as_str());
    let newest = standing.receipts.last();
    app.reach_as(&standing);
    if let Some(about) = newest.filter(|receipt| told(receipt)).and_then(|receipt| receipt.about.as_ref()) {
        match reach(app, node) {
            Ok(cluster) => annotate(app, &cluster, about),
            Err(error) => app.warn("NotAnnotated", format!("node {} is not annotated: {error:#}", about.node_name)),
        }
    }
    // An uninstall takes it away again, and what CalicoNode said there of the network.
    let gone = newest.is_some_and(|receipt| receipt.about.is_none());
    let before = standing.receipts.iter().rev().find(|receipt| gone && receipt.about.is_some());
    let Some(about) = before.and_then(|receipt| receipt.about.as_ref()) else { return };
    let name = about.node_name.as_str();
    let none = BTreeMap::from([(ACHIEVED.to_owned(), None)]);
    let cleared = reach(app, node).and_then(|cluster| {
        cluster.clear_network_condition(name)?;
        if standing.receipts.iter().any(told) { cluster.annotate_node(name, &none).map(drop) } else { Ok(()) }
    });
    if let Err(error) = cleared {
        let message = format!("the cluster still has what Calico wrote on Node {name}: {error:#}");
        app.warn("ClusterTracesLeft", message);
    }
}

fn reach(app: &App, node: &dyn Node) -> anyhow::Result<Cluster> {
    let layered = app.config(node, &Source::default(), &[])?;
    let connection = app.connection(node, &layered)?;
    app.cluster(node, &connection)
}
