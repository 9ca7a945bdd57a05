//! What `verify` looks at, gathered: the state of the node, and what the cluster says of it.

use std::time::Duration;

use anyhow::Result;

use super::app::App;
use super::generations::installed;
use super::health_gate::Works;
use super::{datastore, node_status};
use crate::agent;
use crate::apply::standing::Standing;
use crate::node::Node;
use crate::settings::Limits;
use crate::verify::report::{ProbeReport, Tally, VerifyReport};
use crate::verify::{self, Scene};

/// How long the cluster may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Runs the probes. `tell` gets each as it ends.
///
/// # Errors
/// `NOT_INSTALLED`; when the node cannot be measured, or one of our records not read.
pub(crate) fn run(
    app: &mut App,
    node: &mut dyn Node,
    tell: &mut dyn FnMut(&mut App, &ProbeReport),
) -> Result<VerifyReport> {
    let standing = Standing::load(node)?;
    let receipt = installed(&standing)?;
    let config = agent::read_config(node)?;
    let status = node_status::measure(app, node)?;
    let limits = Limits { retries: 1, ..Limits::within(ANSWER_WITHIN) };
    let cluster = app.connector.as_services(node, &config, limits);
    let found = match &cluster {
        Ok(Some(cluster)) => cluster.node(config.node_name.as_str()),
        _ => Ok(None),
    };
    let works = Works::new(app, true);
    let network = works.network(node, &receipt.target, &mut |event| app.event(&event));
    let datastore = datastore::ask(app, node, &config, &config.datastore());
    let (backend, version) = (status.backend.clone(), status.calico_version.clone());
    let mut scene = Scene { node, status, receipt, config, cluster, found, datastore, network };
    let probes = verify::look(&mut scene, &mut |probe| tell(app, probe));
    Ok(VerifyReport {
        node: scene.config.node_name.to_string(),
        generation: receipt.generation,
        calico_version: version,
        backend,
        summary: Tally::of(&probes),
        probes,
    })
}
