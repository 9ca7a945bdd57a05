//! The pods that are attached to an HNS network that is deleted: which they are, whether the change is allowed, and how
//! they are detached.

use std::time::Duration;

use anyhow::Result;

use super::app::App;
use super::cordon;
use crate::apply::node_object::{NodeObject, pod_of, pods_endpoints, still_attached};
use crate::apply::standing::Standing;
use crate::cluster::{Cluster, PodOnNode};
use crate::node::Node;
use crate::node::hns::Endpoint;
use crate::plan::Step;
use crate::plan::show::{AttachedPod, Disposition};

/// How long the cluster may take for an answer that is optional.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Returns the pods attached to networks that these steps delete. They are unknown if the cluster does not answer.
pub(crate) fn attached(
    app: &mut App,
    node: &dyn Node,
    steps: &[Step],
    known: impl FnOnce(&App) -> Result<Vec<PodOnNode>>,
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
    let known = if used.iter().all(|endpoint| endpoint.is_leaked(&running)) { Ok(Vec::new()) } else { known(app) };
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

/// Refuses a change that would keep pods attached, before anything is changed. `moved`: the pods that a drain moves
/// away first.
///
/// # Errors
/// `PodsAttached`; `ClusterRights` if pods have to be deleted and this user may not.
pub(crate) fn judge(attached: &[AttachedPod], moved: &[String], cluster: Option<&Cluster>) -> Result<()> {
    let stays = |pod: &&AttachedPod| match pod.disposition {
        Disposition::Recreated | Disposition::Leaked => false,
        Disposition::Moved => !pod.pod.as_ref().is_some_and(|pod| moved.contains(pod)),
        Disposition::Unknown => true,
    };
    let stays: Vec<String> = attached.iter().filter(stays).map(ToString::to_string).collect();
    if !stays.is_empty() {
        return Err(still_attached(&stays, "nothing was changed"));
    }
    match cluster {
        Some(cluster) if attached.iter().any(|pod| pod.disposition == Disposition::Recreated) => {
            cluster.check_may_delete_pods()
        }
        _ => Ok(()),
    }
}

/// Returns the Node that an earlier run created, for whoever ends that run. If the cluster does not answer, that is
/// reported when it is needed.
pub(crate) fn object_of<'a>(app: &App, node: &dyn Node, standing: &Standing) -> NodeObject<'a> {
    let access = standing.journal.as_ref().map(|journal| journal.header.terms.access.clone()).unwrap_or_default();
    match standing.node_name() {
        Some(name) => NodeObject::found(name.as_str(), cordon::reach(app, node, &access, Some(ANSWER_WITHIN))),
        None => NodeObject::unknown(),
    }
}
