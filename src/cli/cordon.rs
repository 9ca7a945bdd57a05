//! Keeping pods off the node for as long as a change takes, and giving that back however it ends.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Error, Result};
use jiff::Timestamp;

use super::app::App;
use super::args::Source;
use super::drain::Place;
use crate::apply::cordon::Cordon;
use crate::cluster::Cluster;
use crate::config::Origin;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::settings::Connection;
use crate::values::WinPath;

/// Cordons the Node, unless it is; what is ours to undo is written down before.
pub(super) fn take(app: &mut App, node: &mut dyn Node, place: &Place<'_>, command: &str) -> Result<()> {
    let Place { cluster, connection, name } = *place;
    let run = app.run.clone();
    app.phase("cordon", |_| {
        let before = cluster.node(name)?;
        // A Node that is not there is cordon's to refuse.
        if before.is_some_and(|node| !node.schedulable) {
            let whose = if Cordon::load(node)?.is_some() { "an earlier run of ours" } else { "somebody" };
            return Ok(((), format!("node {name} was cordoned by {whose} before")));
        }
        let cordon = Cordon {
            node: name.to_owned(),
            run,
            command: command.to_owned(),
            since: Timestamp::now(),
            kubeconfig: named(connection),
            context: connection.context.clone(),
        };
        cordon.save(node)?;
        cluster.cordon(name)?;
        Ok(((), format!("node {name}: no new pods come")))
    })
}

/// The kubeconfig that somebody named, by a path that means the same from another folder; none where
/// the usual one is used.
pub(super) fn named(connection: &Connection) -> Option<String> {
    (connection.kubeconfig_from != Origin::Default).then(|| whole(&connection.kubeconfig))
}

/// A path that means the same from another folder.
pub(super) fn whole(file: &str) -> String {
    if file.parse::<WinPath>().is_ok() {
        return file.to_owned();
    }
    std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file)).display().to_string()
}

/// Uncordons the Node if a run of ours cordoned it.
///
/// # Errors
/// `UncordonFailed` when the cluster cannot be asked; it stays written down.
pub(super) fn release(app: &mut App, node: &dyn Node) -> Result<()> {
    let Some(cordon) = Cordon::load(node)? else { return Ok(()) };
    let name = cordon.node.clone();
    let uncordoned = app.phase("uncordon", |app| {
        let cluster = reach(app, node, cordon.kubeconfig.as_deref(), cordon.context.as_deref(), None)?;
        let changed = match cluster.uncordon(&name) {
            // Asked again: on the strength of one such answer a Node that is there would stay cordoned.
            Err(error) if is_absent(&error) && cluster.node(&name)?.is_some() => cluster.uncordon(&name),
            answer => answer,
        }?;
        let message = if changed { "takes pods again" } else { "was uncordoned by somebody else" };
        Ok(((), format!("node {name} {message}")))
    });
    match uncordoned {
        Ok(()) => cordon.forget(node),
        // Deleted from the cluster meanwhile: nothing is left to uncordon.
        Err(error) if is_absent(&error) => cordon.forget(node),
        Err(error) => {
            app.half_done = true;
            let what = format!("node {name} could not be uncordoned again");
            let hint = format!("when the cluster answers, run: {}", app.command("resume"));
            Err(error.context(Fault::new(Exit::FailedIncomplete, "UncordonFailed", what).hint(hint)))
        }
    }
}

fn is_absent(error: &Error) -> bool {
    Fault::id_of(error) == "NodeAbsent"
}

/// Leaves the Node cordoned, and says so: there is no network for pods on it any more.
pub(super) fn keep(app: &mut App, node: &dyn Node) -> Result<()> {
    let Some(cordon) = Cordon::load(node)? else { return Ok(()) };
    app.reporter
        .tell(&format!("Node {} stays cordoned: kubectl uncordon {0}, once it has a network again.", cordon.node));
    cordon.forget(node)
}

/// The same after a failure, which is what is told unless this fails too.
pub(super) fn release_after(app: &mut App, node: &dyn Node, error: Error) -> Error {
    let failed_phase = app.reporter.failed_phase;
    match release(app, node) {
        Ok(()) => {
            app.reporter.failed_phase = failed_phase;
            error
        }
        Err(second) => match second.downcast::<Fault>() {
            Ok(fault) => error.context(fault),
            Err(second) => error.context(format!("{second:#}")),
        },
    }
}

/// The cluster as an earlier run reached it, with the kubeconfig and context that it was given, unless
/// the command line says otherwise. `limit`: the most that a question may take.
pub(super) fn reach(
    app: &App,
    node: &dyn Node,
    kubeconfig: Option<&str>,
    context: Option<&str>,
    limit: Option<Duration>,
) -> Result<Cluster> {
    let layered = app.config(node, &Source::default(), &[])?;
    let mut connection = app.connection(node, &layered)?;
    if let (Origin::Default, Some(file)) = (&connection.kubeconfig_from, kubeconfig) {
        file.clone_into(&mut connection.kubeconfig);
        connection.kubeconfig_from = Origin::Set;
        connection.context = connection.context.or_else(|| context.map(Into::into));
    }
    connection.timeout = connection.timeout.min(limit.unwrap_or(connection.timeout));
    app.cluster(node, &connection)
}
