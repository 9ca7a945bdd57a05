//! The pods that are attached to an HNS network that goes: which they are, whether that may be, and how they
//! are taken off it.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Error, Result};

use super::app::App;
use super::app::reach::cluster_as;
use super::cordon;
use crate::agent;
use crate::agent::published::LostEndpoint;
use crate::apply::node_object::{Access, NodeObject, pod_of, pods_endpoints, still_attached};
use crate::apply::standing::Standing;
use crate::cluster::{Cluster, PodOnNode};
use crate::node::Node;
use crate::node::hns::Endpoint;
use crate::plan::Step;
use crate::plan::show::{AttachedPod, Fate};
use crate::report::event::{Event, Sink};

/// The attached pods of networks that these steps delete. What the cluster does not tell is unknown.
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
            let fate = match pod {
                _ if endpoint.is_leaked(&running) => Fate::Leaked,
                Some(pod) if pod.is_of_daemon_set() => Fate::Recreated,
                Some(_) => Fate::Moved,
                None => Fate::Unknown,
            };
            let pod = pod.filter(|_| fate != Fate::Leaked).map(ToString::to_string);
            AttachedPod { network: endpoint.network.clone(), endpoint: endpoint.describe(), ip: endpoint.ip, pod, fate }
        })
        .collect();
    attached.sort_by(|a, b| (&a.network, &a.pod, a.ip).cmp(&(&b.network, &b.pod, b.ip)));
    Ok(attached)
}

/// Refuses a change under pods that would stay attached, before anything is different. `moved`: the pods that
/// a drain moves away before.
///
/// # Errors
/// `PodsAttached`; `ClusterRights` where pods have to be deleted and may not be.
pub(crate) fn judge(attached: &[AttachedPod], moved: &[String], cluster: Option<&Cluster>) -> Result<()> {
    let stays = |pod: &&AttachedPod| match pod.fate {
        Fate::Recreated | Fate::Leaked => false,
        Fate::Moved => !pod.pod.as_ref().is_some_and(|pod| moved.contains(pod)),
        Fate::Unknown => true,
    };
    let stays: Vec<String> = attached.iter().filter(stays).map(ToString::to_string).collect();
    if !stays.is_empty() {
        return Err(still_attached(&stays, "nothing was changed"));
    }
    match cluster {
        Some(cluster) if attached.iter().any(|pod| pod.fate == Fate::Recreated) => cluster.check_may_delete_pods(),
        _ => Ok(()),
    }
}

/// The Node that an earlier run made, for whoever ends that run. Where it is away that is said where it is needed.
pub(crate) fn object_of<'a>(app: &App, node: &dyn Node, standing: &Standing) -> NodeObject<'a> {
    match standing.node_name() {
        Some(name) => NodeObject::found(name.as_str(), cordon::reach(app, node, &Access::default(), None)),
        None => NodeObject::unknown(),
    }
}

/// Has the pods made again that lost their endpoint at a boot: they never get another one. With the rights of
/// the node's own kubelet where its kubeconfig is a file, which may delete the pods of its node, else with those
/// of Calico's account. Gives those that are left, by their names.
///
/// # Errors
/// When no login may list the pods of this node.
pub(crate) fn recreate(
    node: &mut dyn Node,
    connect: &dyn Fn(&str, &Path) -> Result<Cluster>,
    lost: &[LostEndpoint],
    events: Sink,
) -> Result<Vec<LostEndpoint>> {
    let name = agent::read_config(node)?.node_name;
    let (mut logins, mut known) = (Vec::new(), None);
    let mut refused = Error::msg("neither kubelet nor Calico has a kubeconfig on this node");
    for file in cordon::logins_of(node) {
        let pods = cluster_as(node, &file, connect)
            .and_then(|login| Ok((login.pods_on(name.as_str())?, login)))
            .with_context(|| format!("ask for the pods of this node with {file}"));
        match pods {
            Ok((pods, login)) => {
                known.get_or_insert(pods);
                logins.push(login);
            }
            Err(error) => refused = error,
        }
    }
    let Some(known) = known else { return Err(refused) };
    let attached: Vec<Ipv4Addr> = node.endpoints()?.iter().filter_map(|endpoint| endpoint.ip).collect();
    let mut left = Vec::new();
    for lost in lost {
        // A pod that is gone, or whose address is an endpoint's again, needs nobody any more.
        let is_its =
            |pod: &&PodOnNode| lost.ip.is_some_and(|ip| pod.addresses.contains(&ip) && !attached.contains(&ip));
        let Some(pod) = known.iter().find(is_its) else { continue };
        let mut why = Error::msg("nothing would make it again");
        let deleted = pod.controller.is_some()
            && logins.iter().any(|login| match login.delete_pod(pod) {
                Ok(()) => true,
                Err(error) => {
                    why = error;
                    false
                }
            });
        let (told, message) = if deleted {
            let told = "lost its network when the machine booted: deleted, so that it is made again";
            (told, format!("deleted pod {pod}, which lost its network at the boot; its controller makes it again"))
        } else {
            left.push(LostEndpoint { pod: Some(pod.to_string()), ..lost.clone() });
            let told = "has had no network since the machine booted, and must be deleted";
            (told, format!("pod {pod} has had no network since the boot and must be deleted: {why:#}"))
        };
        let new = lost.pod.is_none() || deleted;
        if new {
            // It is in the Event Log too.
            logins.iter().any(|login| login.warn_on_pod(pod, name.as_str(), "NetworkLost", told).is_ok());
            events(Event::Warning { id: "PodsLostNetwork", message });
        }
    }
    Ok(left)
}
