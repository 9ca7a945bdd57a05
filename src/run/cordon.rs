//! Makes the node schedulable again after a run that cordoned it, however the run ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use backon::{BackoffBuilder as _, ExponentialBuilder};

use super::Ending;
use super::app::App;
use super::options::Source;
use super::{left_over, own_logins};
use crate::agent::os::{self, Level};
use crate::apply::converge;
use crate::apply::cordon::Cordon;
use crate::apply::node_object::Access;
use crate::apply::retention;
use crate::cluster::lease::Validity;
use crate::cluster::{self, CORDONED_BY, Cluster};
use crate::config::Origin;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::{RunResult, exit_of};
use crate::report::event::Event;

/// Uncordons the Node if a run of ours cordoned it. While the run has the Lease, waits for errors that may be
/// temporary: also 403, since by the record this user was allowed to cordon.
///
/// # Errors
/// `UncordonFailed` when the cluster does not answer; the record stays, and CalicoNode tries again at its next start.
pub(crate) fn release(app: &mut App, node: &mut dyn Node) -> Result<()> {
    let Some(cordon) = Cordon::load(node)? else { return Ok(()) };
    let name = cordon.node.clone();
    let limit = app.lease.as_ref().map(Validity::left).unwrap_or_default();
    let (begun, mut paused) = (Instant::now(), Duration::ZERO);
    let mut pauses = growing(Duration::from_secs(5), Duration::from_secs(80));
    let uncordoned = app.phase("uncordon", |app| {
        loop {
            let error = match uncordon(app, node, &cordon) {
                Err(error) if cluster::may_pass(&error) || Fault::id_of(&error) == "ClusterForbidden" => error,
                Err(error) => return Err(error),
                Ok(true) => return Ok(((), format!("node {name} takes pods again"))),
                Ok(false) => return Ok(((), format!("node {name} takes pods already"))),
            };
            let elapsed = begun.elapsed() + paused;
            // The Lease may belong to another run by now.
            let runs = app.lease.as_ref().is_some_and(|lease| !lease.left().is_zero());
            match pauses.next().filter(|pause| runs && elapsed + *pause < limit) {
                Some(pause) => {
                    let message = format!(
                        "node {name} is not uncordoned yet, and it is tried again for up to {} s: {error:#}",
                        limit.as_secs()
                    );
                    match paused.is_zero() {
                        true => app.warn("UncordonWaits", message),
                        false => app.event(&Event::Log { message }),
                    }
                    app.event(&Event::Waiting { what: format!("node {name} to be uncordoned"), elapsed, limit });
                    node.pause(pause);
                    paused += pause;
                }
                None => return Err(error),
            }
        }
    });
    match uncordoned {
        Ok(()) => cordon.forget(node),
        // It was deleted from the cluster: there is nothing to uncordon.
        Err(error) if is_absent(&error) => cordon.forget(node),
        Err(error) => {
            let what = format!("node {name} could not be uncordoned");
            let hint = format!("when the cluster answers, run: {}", app.command("resume"));
            Err(error.context(Fault::new(Exit::FailedIncomplete, "UncordonFailed", what).hint(hint)))
        }
    }
}

/// Returns pauses, each twice as long as the previous one, up to the longest.
pub(crate) fn growing(first: Duration, longest: Duration) -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest).without_max_times().build()
}

fn uncordon(app: &App, node: &dyn Node, cordon: &Cordon) -> Result<bool> {
    let cluster = reach(app, node, &cordon.access, None)?;
    match cluster.uncordon(&cordon.node) {
        // Asked again: a single wrong answer would leave an existing Node cordoned.
        Err(error) if is_absent(&error) && cluster.node(&cordon.node)?.is_some() => cluster.uncordon(&cordon.node),
        answer => answer,
    }
}

fn is_absent(error: &Error) -> bool {
    Fault::id_of(error) == "NodeAbsent"
}

/// Makes the cordon the user's: no run undoes it any more.
pub(crate) fn unmark(app: &mut App, cluster: &Cluster, name: &str) {
    let mark = BTreeMap::from([(CORDONED_BY.to_owned(), None)]);
    if let Err(error) = cluster.annotate_node(name, &mark) {
        app.event(&Event::Log { message: format!("node {name} still says which run cordoned it: {error:#}") });
    }
}

/// Leaves the Node cordoned, and reports it: there is no network for pods on it any more.
pub(crate) fn keep(app: &mut App, node: &dyn Node) -> Result<()> {
    let Some(cordon) = Cordon::load(node)? else { return Ok(()) };
    if let Ok(cluster) = reach(app, node, &cordon.access, None) {
        unmark(app, &cluster, &cordon.node);
    }
    app.reporter
        .tell(&format!("Node {} stays cordoned: kubectl uncordon {0}, once it has a network again.", cordon.node));
    cordon.forget(node)
}

/// The same after a failure, which is the error to report unless this fails too.
pub(crate) fn release_after(app: &mut App, node: &mut dyn Node, error: Error) -> Error {
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

/// Connects to the cluster as an earlier run did, with its kubeconfig and context, unless the command line says
/// otherwise. `limit`: the longest time for a request.
pub(crate) fn reach(app: &App, node: &dyn Node, access: &Access, limit: Option<Duration>) -> Result<Cluster> {
    let layered = app.config(node, &Source::default())?;
    let mut connection = app.connection(node, &layered)?;
    if let (Origin::Default, Some(file)) = (&connection.kubeconfig_from, &access.kubeconfig) {
        connection.kubeconfig.clone_from(file);
        connection.kubeconfig_from = Origin::Set;
        connection.context = connection.context.or_else(|| access.context.clone());
    }
    connection.timeout = connection.timeout.min(limit.unwrap_or(connection.timeout));
    app.cluster(node, &connection)
}

/// How often CalicoNode tries to uncordon its Node after one start.
const TRIES: usize = 12;

/// How long the API server may take to answer CalicoNode.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Uncordons the Node when CalicoNode starts, if the Node itself says that the same run cordoned it. As a run of its
/// own.
///
/// # Errors
/// When the cluster does not answer for several minutes, or refuses; `NodeNotReady` if the Node does not become Ready
/// meanwhile.
pub(crate) fn release_left_over(app: &mut App) -> Result<Ending> {
    let mut pauses = growing(Duration::from_secs(1), Duration::from_secs(60)).take(TRIES - 1);
    loop {
        let error = match try_left_over(app) {
            Ok(message) => return Ending::result(RunResult::new(Exit::Ok, true, message)),
            Err(error) => error,
        };
        let passes = cluster::may_pass(&error) || matches!(exit_of(&error), Exit::Busy | Exit::VerifyFailed);
        match pauses.next().filter(|_| passes) {
            Some(pause) => {
                app.event(&Event::Log { message: format!("the node is not uncordoned yet: {error:#}") });
                std::thread::sleep(pause);
            }
            None => {
                os::event_log(Level::Error, &format!("the node that a run left cordoned stays so: {error:#}"));
                return Err(error);
            }
        }
    }
}

fn try_left_over(app: &mut App) -> Result<String> {
    let (mut node, _lock, standing) = app.node_to_change("uncordon")?;
    if left_over::is_cordoned(&*node)? && standing?.is_draining() {
        converge::undo(&mut *node, &mut |event| app.event(&event))?;
    }
    // The run may have ended right after it removed its journal.
    retention::tidy(&*node, &mut |event| app.event(&event));
    let Some(cordon) = Cordon::load(&*node)?.filter(|_| left_over::is_cordoned(&*node).unwrap_or_default()) else {
        return Ok("no run left the node cordoned".into());
    };
    let mut refused = None;
    for file in own_logins::of(&*node) {
        let released = app
            .cluster_as(&*node, &file, ANSWER_WITHIN)
            .and_then(|cluster| uncordon_if_ours(&cluster, &cordon))
            .with_context(|| format!("uncordon node {} with {file}", cordon.node));
        match released {
            Ok(message) => {
                cordon.forget(&*node)?;
                app.event(&Event::Log { message: message.clone() });
                return Ok(message);
            }
            // kubelet's error comes first, and says more than Calico's missing rights.
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let what = format!("there is no kubeconfig on this node to uncordon node {} with", cordon.node);
        Fault::new(Exit::ClusterUnreachable, "KubeconfigMissing", what).into()
    }))
}

fn uncordon_if_ours(cluster: &Cluster, cordon: &Cordon) -> Result<String> {
    let Cordon { node, run, .. } = cordon;
    // A run that another one took over may have left its own name there.
    if cluster.cordoned_by(node)?.is_none() {
        return Ok(format!("node {node} is not cordoned by a run of this program any more, and is left as it is"));
    }
    // The run may have left it cordoned for that reason.
    if let Some(why) = cluster.node(node)?.filter(|found| !found.ready).map(|found| found.not_ready) {
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let what = format!("node {node} stays cordoned while it is not Ready{why}");
        return Err(Fault::new(Exit::VerifyFailed, "NodeNotReady", what).into());
    }
    cluster.uncordon(node)?;
    Ok(format!("node {node}, which run {run} had left cordoned, takes pods again"))
}
