//! `cluster check`: the checks that need no node, from any machine.

use std::path::PathBuf;

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::args::{ClusterVerb, Source};
use super::preflight::show;
use super::prepare::examine;
use crate::cluster::FactsOptions;
use crate::config::Layered;
use crate::config::types::Auto;
use crate::fault::{Exit, Fault};
use crate::preflight::{Input, Scope};
use crate::settings::{self, Connection};

pub(crate) fn run(verb: &ClusterVerb, app: &mut App) -> Result<Ending> {
    match verb {
        ClusterVerb::Check => check(app),
    }
}

fn check(app: &mut App) -> Result<Ending> {
    let (layered, cluster) = open(app)?;
    let name = layered.config.spec.kubernetes.node_name.clone().and_then(Auto::given);
    let connection = settings::connection(&layered, None)?;
    let facts = cluster.facts(&FactsOptions {
        node_name: name.as_ref().map(|name| name.0.as_str()),
        addresses: &[],
        namespace_override: connection.calico_namespace.as_deref(),
    });
    for event in cluster.take_events() {
        app.event(&event);
    }
    let facts = facts?;
    let side = settings::cluster_side(&layered, None, &facts);
    let input = Input { side: Some(&side), cluster: Some(&facts), ..Input::default() };
    let report = examine(app, &layered, Scope::Cluster, &input);
    show(app, &report, None)
}

/// The config and the cluster, without a node: with a sandbox its own, else the one that the
/// kubeconfig names.
fn open(app: &mut App) -> Result<(Layered, crate::cluster::Cluster)> {
    if app.global.sandbox.is_some() {
        let node = app.node()?;
        let layered = app.config(&*node, &Source::default(), &[])?;
        let connection = settings::connection(&layered, None)?;
        let cluster = app.cluster(&*node, &connection)?;
        return Ok((layered, cluster));
    }
    let layered = app.named_config(&Source::default(), &[])?;
    let connection = settings::connection(&layered, None)?;
    let cluster = app.cluster_from(&kubeconfig(&connection)?, &connection)?;
    Ok((layered, cluster))
}

/// The file that flag, variable or config name. The default is one of a Windows node.
fn kubeconfig(connection: &Connection) -> Result<PathBuf> {
    use crate::config::Origin;
    if connection.kubeconfig_from == Origin::Default && !cfg!(windows) {
        return Err(Fault::new(
            Exit::ClusterUnreachable,
            "KubeconfigMissing",
            "no kubeconfig is given, so the cluster cannot be asked",
        )
        .hint("give the kubeconfig of a cluster administrator with --kubeconfig FILE, or in CALICO_WIN_KUBECONFIG")
        .into());
    }
    Ok(PathBuf::from(&connection.kubeconfig))
}
