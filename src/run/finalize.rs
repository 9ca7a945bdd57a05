//! What is left of a run that ended between its last step and its result: the cluster is told what
//! was achieved, and what was gathered for a run that never began goes.

use std::collections::BTreeMap;

use super::app::App;
use super::options::Source;
use super::standing::{ACHIEVED, annotate, annotates};
use crate::apply::converge::Standing;
use crate::apply::receipt::Receipt;
use crate::apply::retention;
use crate::cluster::Cluster;
use crate::node::Node;

/// Brings what the newest generation says of the Node there, and tidies the store. What cannot be
/// reached is told, and harms nobody.
pub(crate) fn settle(app: &mut App, node: &dyn Node) {
    retention::tidy(node, &mut |event| app.event(&event));
    let Ok(standing) = Standing::load(node) else { return };
    let told = |receipt: &Receipt| annotates(&receipt.command);
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
