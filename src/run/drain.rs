//! The pods of this node before a change: which lose their network, whether the node is drained, and how.

use std::time::Duration;

use anyhow::{Error, Result};

use super::app::App;
use super::context::Context;
use super::options::DrainFlags;
use crate::apply::node_object::{pod_of, pods_endpoints, still_attached};
use crate::cluster::{Cluster, DrainOptions, DrainPlan};
use crate::config::types::Wait;
use crate::node::Node;
use crate::node::hns::Endpoint;
use crate::plan::Step;
use crate::plan::show::{AttachedPod, Disposition, Plan};
use crate::settings::Drain;
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

/// Shows which pods a drain evicts and which stay.
///
/// # Errors
/// As [`Cluster::plan_drain`]; `ClusterRights` if this user may not do that.
pub(crate) fn show(app: &mut App, cluster: &Cluster, name: &str, options: &DrainOptions) -> Result<DrainPlan> {
    let plan = cluster.plan_drain(name, options, &mut |event| app.event(&event))?;
    let evict = if options.disable_eviction { ("delete", "pods") } else { ("create", "pods/eviction") };
    let needed = [("patch", "nodes"), evict];
    cluster.check_rights(if plan.evicted.is_empty() { &needed[..1] } else { &needed })?;
    let mut text = format!("Drain of {name}: {} to evict.\n", count(plan.evicted.len(), "pod"));
    plan.evicted.iter().for_each(|pod| text.push_str(&format!("  - {pod}\n")));
    plan.remaining.iter().for_each(|pod| text.push_str(&format!("    {pod}\n")));
    app.reporter.tell(&text);
    Ok(plan)
}

/// Returns the pods attached to networks that these steps delete. They are unknown if the cluster does not answer within
/// the limit.
///
/// # Errors
/// When HNS or the container runtime cannot be asked.
pub(crate) fn attached(
    app: &mut App,
    context: &Context,
    node: &dyn Node,
    (name, limit): (&str, Duration),
    steps: &[Step],
) -> Result<Vec<AttachedPod>> {
    let goes: Vec<String> =
        steps.iter().filter(|step| matches!(step, Step::Vacate { .. })).map(|step| step.id().target()).collect();
    if goes.is_empty() {
        return Ok(Vec::new());
    }
    let goes = |endpoint: &Endpoint| goes.iter().any(|network| network.eq_ignore_ascii_case(&endpoint.network));
    let used: Vec<Endpoint> = pods_endpoints(node)?.into_iter().filter(goes).collect();
    if used.is_empty() {
        return Ok(Vec::new());
    }
    let running = node.containers()?;
    let known = match used.iter().all(|endpoint| endpoint.is_leaked(&running)) {
        true => Ok(Vec::new()),
        false if name.is_empty() => Err(Error::msg("no receipt records the name of the Node")),
        false => context.cluster(node).and_then(|cluster| cluster.within(limit).pods_on(name)),
    };
    let known = known.unwrap_or_else(|error| {
        app.warn("PodsUnknown", format!("which pods are attached to this node's network is unknown: {error:#}"));
        Vec::new()
    });
    let mut attached: Vec<AttachedPod> = used
        .into_iter()
        .map(|endpoint| {
            let pod = pod_of(&endpoint, &known);
            let disposition = match pod {
                _ if endpoint.is_leaked(&running) => Disposition::Leaked,
                Some(pod) if pod.is_of_daemon_set() => Disposition::Recreated,
                Some(_) => Disposition::Moved,
                None => Disposition::Unknown,
            };
            let pod = pod.filter(|_| disposition != Disposition::Leaked).map(ToString::to_string);
            AttachedPod {
                network: endpoint.network.clone(),
                endpoint: endpoint.describe(),
                ip: endpoint.ip,
                pod,
                disposition,
            }
        })
        .collect();
    attached.sort_by(|a, b| (&a.network, &a.pod, a.ip).cmp(&(&b.network, &b.pod, b.ip)));
    Ok(attached)
}

/// Refuses a change that would keep pods attached, before anything is changed. `evicted`: the pods that a drain evicts
/// first.
///
/// # Errors
/// `PodsAttached`; `ClusterRights` if pods have to be deleted and this user may not.
pub(crate) fn check(attached: &[AttachedPod], evicted: &[String], cluster: &Cluster) -> Result<()> {
    let stays = |pod: &&AttachedPod| match pod.disposition {
        Disposition::Recreated | Disposition::Leaked => false,
        Disposition::Moved => !pod.pod.as_ref().is_some_and(|pod| evicted.contains(pod)),
        Disposition::Unknown => true,
    };
    let stays: Vec<String> = attached.iter().filter(stays).map(ToString::to_string).collect();
    if !stays.is_empty() {
        return Err(still_attached(&stays, "nothing was changed"));
    }
    match attached.iter().any(|pod| pod.disposition == Disposition::Recreated) {
        true => cluster.check_rights(&[("delete", "pods")]),
        false => Ok(()),
    }
}

/// Whether pods of this plan lose their network: not those that are only left over.
pub(crate) fn loses_pods(plan: &Plan) -> bool {
    plan.pods.iter().any(|pod| pod.disposition != Disposition::Leaked)
}
