//! What a run gets from elsewhere: `preflight` tries whether it is there, since a run would say so only later.

use std::collections::BTreeSet;

use anyhow::Result;

use super::app::App;
use super::context::{Context, Known};
use super::kubernetes;
use super::stage::reachable;
use crate::apply::joining::has_joined;
use crate::calico::kubernetes::{ROLES, program, program_path};
use crate::calico::services::Role;
use crate::fault::Exit;
use crate::item::Id;
use crate::node::Node;
use crate::preflight::{Finding, Needs};
use crate::release::{locate, programs};
use crate::report::document::{Failure, exit_of};
use crate::settings::{KubernetesNode, Settings};

/// Tries it; none if the settings are not known.
pub(crate) fn tried(app: &App, context: &Context, node: &dyn Node, known: &Known) -> Option<Needs> {
    let resolved = known.resolved.as_ref().ok().filter(|_| known.cluster.is_ok())?;
    let said = |found: Result<Finding>| {
        found.unwrap_or_else(|error| match (exit_of(&error), Failure::new(&error).line()) {
            (Exit::ClusterUnreachable, line) => Finding::Unknown(line),
            (_, line) => Finding::Fail(line),
        })
    };
    Some(Needs {
        join: said(join(context, node, resolved.settings.kubernetes_node.as_ref())),
        sources: said(sources(app, context, node, &resolved.settings)),
    })
}

fn join(context: &Context, node: &dyn Node, wanted: Option<&KubernetesNode>) -> Result<Finding> {
    let Some(wanted) = wanted else { return Ok(Finding::Skip("the config does not install kubelet".into())) };
    if !kubernetes::may_install(node, Role::Kubelet)? {
        return Ok(Finding::Skip("kubelet is another program's".into()));
    }
    kubernetes::join(node, context.cluster(node)?, wanted)?;
    Ok(Finding::Pass(if has_joined(node) { "kubelet has joined" } else { "the cluster accepts it" }.into()))
}

/// Asks each server, or looks for the file, of what is not in place or in the cache.
fn sources(app: &App, context: &Context, node: &dyn Node, settings: &Settings) -> Result<Finding> {
    let (connection, cache) = (&context.run(node)?.connection, app.cache_dir(node));
    let (in_place, calico) = (context.standing.in_place(), &settings.calico);
    let mut found = BTreeSet::new();
    if in_place.is_none_or(|(_, version, _)| *version != calico.version) {
        let source = reachable(app, &calico.source, &calico.version)?;
        found.insert(locate::available(&source, calico.sha256.as_ref(), &cache, connection)?);
    }
    let has =
        |role| in_place.is_some_and(|(receipt, ..)| receipt.target.world.contains_key(&Id::File(program_path(role))));
    if let Some(wanted) = &settings.kubernetes_node {
        let from = kubernetes::on_node(node, &wanted.programs);
        for (role, pinned) in ROLES.into_iter().zip([&from.kubelet_sha256, &from.kube_proxy_sha256]) {
            if !has(role) && kubernetes::may_install(node, role)? {
                let named = (program(role), pinned.as_ref());
                found.insert(programs::available(&from, wanted.version, named, &cache, connection)?);
            }
        }
    }
    Ok(Finding::Pass(match found.is_empty() {
        true => "in place".into(),
        false => found.into_iter().collect::<Vec<_>>().join(", "),
    }))
}
