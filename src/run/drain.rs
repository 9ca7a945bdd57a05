//! Draining with the screen attached: for `node drain`, and before a change that needs the node empty.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::app::App;
use super::options::DrainFlags;
use super::pods;
use crate::apply::cancel;
use crate::apply::journal::Terms;
use crate::apply::node_object::NodeObject;
use crate::cluster::{Cluster, DrainOptions, DrainPlan};
use crate::config::types::Wait;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::show::AttachedPod;
use crate::report::event::Event;
use crate::settings::{Connection, Drain};
use crate::values::count;

impl DrainFlags {
    /// Returns the flags' values, over those of the config.
    pub fn over(&self, config: &Drain) -> DrainOptions {
        DrainOptions {
            ignore_daemonsets: self.ignore_daemonsets.unwrap_or(config.ignore_daemon_sets),
            delete_emptydir_data: self.delete_emptydir_data.unwrap_or(config.delete_empty_dir_data),
            force: self.force.unwrap_or(config.force),
            grace_period: self.grace_period.map_or(config.grace_period_seconds, |seconds| u32::try_from(seconds).ok()),
            timeout: self.drain_timeout.as_ref().map_or(config.timeout, Wait::limit),
            pod_selector: self.pod_selector.clone(),
            disable_eviction: self.disable_eviction.unwrap_or(config.disable_eviction),
            skip_wait_for_delete: match self.skip_wait_for_delete_timeout {
                Some(0) | None => None,
                Some(seconds) => Some(Duration::from_secs(seconds)),
            },
        }
    }
}

/// Returns the pods that are evicted and those that stay, for people.
pub(crate) fn text(name: &str, plan: &DrainPlan) -> String {
    let mut text = format!("Drain of {name}: {} to evict.\n", count(plan.evicted.len(), "pod"));
    plan.evicted.iter().for_each(|pod| text.push_str(&format!("  - {pod}\n")));
    plan.remaining.iter().for_each(|pod| text.push_str(&format!("    {pod}\n")));
    text
}

/// Cordons a node as a phase; returns false if it was cordoned already.
pub(crate) fn cordon(app: &mut App, cluster: &Cluster, name: &str) -> Result<bool> {
    app.phase("cordon", |_| {
        let cordoned = cluster.cordon(name, None)?;
        let message = if cordoned { "no new pods come" } else { "was cordoned before, and stays so" };
        Ok((cordoned, format!("node {name}: {message}")))
    })
}

/// Drains a cordoned node, as a phase. Ctrl-C ends it.
pub(crate) fn drain(app: &mut App, cluster: &Cluster, name: &str, options: &DrainOptions) -> Result<DrainPlan> {
    let _under_way = cancel::UnderWay::begin();
    let begun = Instant::now();
    app.event(&Event::PhaseStarted { phase: "drain", place: None });
    match cluster.drain(name, options, &cancel::asked, &mut |event| app.event(&event)) {
        Ok(drained) => {
            let changed = !drained.evicted.is_empty();
            app.event(&Event::PhaseCompleted {
                phase: "drain",
                message: drained.done(),
                changed,
                took: begun.elapsed(),
            });
            Ok(drained)
        }
        Err(error) => {
            app.event(&Event::PhaseFailed { phase: "drain", message: format!("{error:#}") });
            Err(error)
        }
    }
}

/// The Node to drain, and how to reach it.
pub(crate) struct Place<'a> {
    pub cluster: &'a Cluster,
    pub connection: &'a Connection,
    pub name: &'a str,
}

/// A drain that is decided, and how its Node is reached.
pub(crate) struct Planned {
    pub name: String,
    pub connection: Connection,
    pub cluster: Cluster,
    pub options: DrainOptions,
}

impl Planned {
    /// Returns the Node as the engine changes it.
    pub fn object(&self) -> NodeObject<'_> {
        NodeObject::new(&self.name, &self.cluster, self.options.timeout)
    }

    /// Returns the options of a run that drains the Node; without a drain, pods lose a network that is deleted.
    pub fn terms(drain: Option<&Self>, app: &App, node: &dyn Node) -> Terms {
        let (options, connection) = drain.map(|drain| (&drain.options, &drain.connection)).unzip();
        Terms { drops_pods: drain.is_none(), ..app.terms(node, options, connection) }
    }
}

/// Decides whether a change drains the node first, and shows which pods are evicted. `needs`: pods would lose their
/// network, and which of them are attached to networks that are deleted; `wanted`: the user's choice. The cluster is
/// asked only then.
pub(crate) fn before<C: Borrow<Cluster>>(
    app: &mut App,
    name: &str,
    (needs, attached): (bool, &[AttachedPod]),
    wanted: Option<bool>,
    options: DrainOptions,
    cluster: impl FnOnce(&App) -> Result<C>,
) -> Result<Option<DrainOptions>> {
    if !wanted.unwrap_or(needs) {
        if needs {
            not_drained(app);
        }
        return Ok(None);
    }
    let cluster = cluster(app)?;
    let plan = cluster.borrow().plan_drain(name, &options, &mut |event| app.event(&event))?;
    app.reporter.tell(&text(name, &plan));
    pods::judge(attached, &plan.evicted, Some(cluster.borrow()))?;
    Ok(Some(options))
}

/// Reports what happens to pods that are not moved away.
pub(crate) fn not_drained(app: &mut App) {
    let message = "the pods on this node lose their network: those with a controller are deleted, so that it makes \
                   them again; the others must be deleted by hand";
    app.warn("NotDrained", message);
}

/// Uncordons the node, if we had cordoned it, and returns the error.
pub(crate) fn uncordon_after(
    app: &mut App,
    cluster: &Cluster,
    name: &str,
    cordoned: bool,
    error: anyhow::Error,
) -> anyhow::Error {
    if !cordoned {
        return error;
    }
    match cluster.uncordon(name) {
        Ok(_) => {
            app.event(&Event::Log { message: format!("node {name} is uncordoned again") });
            error
        }
        Err(second) => {
            let what = format!("the drain failed, and node {name} could not be uncordoned again ({second:#})");
            let hint = format!("when the cluster answers, run: {}", app.command("node uncordon"));
            error.context(Fault::new(Exit::FailedIncomplete, "UncordonFailed", what).hint(hint))
        }
    }
}
