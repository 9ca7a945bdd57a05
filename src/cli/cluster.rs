//! `cluster check`: the checks that need no node, from any machine. `cluster prepare` is in `run`.

use anyhow::Result;

use super::args::ClusterVerb;
use super::checks::show;
use crate::cluster::absent;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::checks::{of_cluster, tell};
use crate::run::cluster_patches;
use crate::run::context::Remote;

pub(crate) fn run(verb: &ClusterVerb, app: &mut App) -> Result<Ending> {
    match verb {
        ClusterVerb::Check => check(app),
        ClusterVerb::Prepare { apply } => cluster_patches::prepare(app, *apply),
    }
}

fn check(app: &mut App) -> Result<Ending> {
    let remote = Remote::open(app, false)?;
    let facts = remote.facts(app)?;
    // Without a name no node is examined.
    if let (Some(name), None) = (&app.global.node_name, &facts.node) {
        return Err(absent(name).into());
    }
    let report = of_cluster(app, &remote, &facts);
    tell(app, &report);
    show(app, "cluster check", &report, false, None)
}
