//! The Node at the end of a run that cordoned it, however the run ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use backon::{BackoffBuilder as _, ExponentialBuilder};

use super::app::App;
use super::context::{Context, Operation};
use super::sources::Choice;
use super::trusted_kubeconfigs::{as_program, programs_kubeconfigs};
use super::verb::LEFT_CORDONED;
use super::{Ending, lost_pods, pending_work};
use crate::agent::cni_gate::{self, LostEndpoint};
use crate::agent::os::{self, Level};
use crate::apply::converge;
use crate::apply::cordon::Cordon;
use crate::apply::node_object::NodeObject;
use crate::apply::retention;
use crate::apply::standing::Standing;
use crate::cluster::lease::{LeaseRenewer, Validity};
use crate::cluster::{self, CORDONED_BY, Cluster};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::{RunResult, exit_of};
use crate::report::event::{Event, Sink};
use crate::settings::Limits;

/// What happens at the end of a run to a Node that it, or an earlier run, cordoned.
#[derive(Debug, Clone)]
pub(crate) enum After {
    /// It is uncordoned if a run of ours cordoned it.
    Uncordon,
    /// It is uncordoned, even if another user cordoned it.
    UncordonAlways,
    /// It stays cordoned, for the reason that ends this sentence. No run undoes that any more.
    Keep(String),
    /// As [`After::Uncordon`]; a failure is only reported.
    Try,
    /// It is left to a later run.
    Leave,
}

/// Ends the cordon. While the run has the Lease, waits for errors that may be temporary: also 403, since by the record
/// this user was allowed to cordon.
///
/// # Errors
/// `UncordonFailed` when the cluster does not answer; the record stays, and CalicoNode tries again at its next start.
pub(crate) fn end(op: &mut Operation<'_>, name: &str, after: After, keeper: Option<&LeaseRenewer>) -> Result<()> {
    let cordon = if matches!(after, After::Leave) { None } else { Cordon::load(op.node)? };
    if let Some(cordon) = cordon.as_ref().filter(|_| !matches!(after, After::Keep(_)))
        && waits_for_vni(op, cordon)?
    {
        return Ok(());
    }
    match (after, cordon) {
        (After::UncordonAlways, None) => op.context.cluster(op.node)?.uncordon(name).map(drop),
        (After::Uncordon | After::Try, None) if op.app.record().stays_cordoned => {
            let uncordon = op.app.command("node uncordon");
            op.app.reporter.tell(&format!("Node {name} stays cordoned, as it was before this run: {uncordon}"));
            Ok(())
        }
        (_, None) => Ok(()),
        (After::Keep(why), Some(cordon)) => {
            let mark = BTreeMap::from([(CORDONED_BY.to_owned(), None)]);
            let unmarked = op.context.cluster(op.node).and_then(|cluster| cluster.annotate_node(&cordon.node, &mark));
            if let Err(error) = unmarked {
                let message = format!("node {} still says which run cordoned it: {error:#}", cordon.node);
                op.app.event(&Event::Log { message });
            }
            op.app.reporter.tell(&format!("Node {} stays cordoned{why}.", cordon.node));
            cordon.forget(op.node)
        }
        (after, Some(cordon)) => match (after, release(op, &cordon, keeper.map(LeaseRenewer::validity).as_ref())) {
            (After::Try, Err(error)) => {
                op.app.warn("UncordonFailed", format!("{error:#}"));
                Ok(())
            }
            (_, released) => released,
        },
    }
}

/// Whether the Node stays cordoned, because this node has the VNI that a run waited for and the cluster has not. Tells it.
fn waits_for_vni(op: &mut Operation<'_>, cordon: &Cordon) -> Result<bool> {
    let Some(awaited) = &cordon.awaits else { return Ok(false) };
    let standing = Standing::load(op.node)?;
    let has = standing.receipt().and_then(|receipt| receipt.about.as_ref()).map(|about| about.vni);
    let found = op.context.cluster(op.node).and_then(|cluster| cluster.felix_vni());
    if has != Some(awaited.vni) || found.as_ref().is_ok_and(|vni| *vni == awaited.vni.get()) {
        return Ok(false);
    }
    let has = found.map_or_else(|error| format!("it could not be read: {error:#}"), |vni| format!("it has {vni}"));
    let message = format!(
        "node {} stays cordoned, waiting for {awaited} ({has}); to wait on: {}",
        cordon.node,
        op.app.command("resume")
    );
    op.app.warn("ClusterVniNotSeen", message);
    Ok(true)
}

fn release(op: &mut Operation<'_>, cordon: &Cordon, lease: Option<&Validity>) -> Result<()> {
    let Operation { app, context, node, .. } = op;
    let name = &cordon.node;
    let limit = lease.map(Validity::left).unwrap_or_default();
    let (begun, mut paused) = (Instant::now(), Duration::ZERO);
    let mut pauses = growing(Duration::from_secs(5), Duration::from_secs(80));
    let uncordoned = app.phase_of_change("uncordon", |app| {
        loop {
            let error = match uncordon(context, *node, cordon) {
                Err(error) if cluster::may_pass(&error) || Fault::id_of(&error) == "ClusterForbidden" => error,
                Err(error) => return Err(error),
                Ok(true) => return Ok(((), format!("node {name} is uncordoned"), true)),
                Ok(false) => return Ok(((), format!("node {name} is uncordoned already"), false)),
            };
            let elapsed = begun.elapsed() + paused;
            // The Lease may belong to another run by now.
            let runs = lease.is_some_and(|lease| !lease.left().is_zero());
            let Some(pause) = pauses.next().filter(|pause| runs && elapsed + *pause < limit) else {
                return Err(error);
            };
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
    });
    match uncordoned {
        // If it was deleted from the cluster, there is nothing to uncordon.
        Err(error) if !is_absent(&error) => {
            let what = format!("node {name} could not be uncordoned");
            let hint = format!("when the cluster answers, run: {}", app.command("resume"));
            Err(error.context(Fault::new(Exit::FailedIncomplete, "UncordonFailed", what).hint(hint)))
        }
        _ => cordon.forget(*node),
    }
}

/// Returns pauses, each twice as long as the previous one, up to the longest.
pub(crate) fn growing(first: Duration, longest: Duration) -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest).without_max_times().build()
}

fn uncordon(context: &Context, node: &dyn Node, cordon: &Cordon) -> Result<bool> {
    let cluster = context.cluster(node)?;
    match cluster.uncordon(&cordon.node) {
        // Asked again: a single wrong answer would leave an existing Node cordoned.
        Err(error) if is_absent(&error) && cluster.node(&cordon.node)?.is_some() => cluster.uncordon(&cordon.node),
        answer => answer,
    }
}

fn is_absent(error: &Error) -> bool {
    Fault::id_of(error) == "NodeAbsent"
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
        // Until the next try, others may have the lock.
        let error = match try_left_over(app).inspect_err(|_| app.lock = None) {
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
    let (mut node, context) = app.open(&LEFT_CORDONED, &Choice::default())?;
    if pending_work::is_cordoned(&*node)? && context.standing.is_draining() {
        let events = &mut |event| app.event(&event);
        converge::undo(&mut *node, &context.standing, &NodeObject::unknown(), events)?;
    }
    // The run may have ended right after it removed its journal.
    retention::tidy(&*node, &context.standing, &mut |event| app.event(&event));
    let Some(cordon) = Cordon::load(&*node)?.filter(|_| pending_work::is_to_uncordon(&*node).unwrap_or_default())
    else {
        return Ok("no run left the node cordoned".into());
    };
    let (mut refused, connector) = (None, app.connector.clone());
    for file in programs_kubeconfigs(&*node) {
        let limits = Limits::within(ANSWER_WITHIN);
        let connect = |text: &str, base: &std::path::Path| connector.connect(text, base, None, limits);
        let released = as_program(&*node, &file, &connect)
            .and_then(|cluster| uncordon_if_ours(&cluster, &cordon))
            .with_context(|| format!("uncordon node {} with {file}", cordon.node));
        match released {
            Ok(message) => {
                cordon.forget(&*node)?;
                app.event(&Event::Log { message: message.clone() });
                let recreate = |node: &mut dyn Node, lost: &[LostEndpoint], events: Sink<'_>| {
                    lost_pods::recreate(node, &connect, lost, events)
                };
                cni_gate::recreate(&mut *node, &recreate, &mut |event| app.event(&event));
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
    Ok(format!("node {node}, which run {run} had left cordoned, is uncordoned"))
}
