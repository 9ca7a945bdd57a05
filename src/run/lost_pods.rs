//! Pods that lost their network: at a boot, or with a network that a run deleted while the cluster did not answer.

use anyhow::{Context as _, Error, Result};

use super::trusted_kubeconfigs::{Connect, as_program, programs_kubeconfigs};
use crate::agent;
use crate::agent::cni_gate::{self, LostEndpoint};
use crate::apply::node_object::attached;
use crate::cluster::{Cluster, PodOnNode};
use crate::node::Node;
use crate::report::event::{Event, Sink};

/// Deletes pods that lost their endpoint, so that they are re-created: they never get another one. Uses the
/// node's own kubelet kubeconfig if it is a file, since kubelet may delete the pods of its node, else Calico's account.
/// Returns the names of the pods that remain.
///
/// # Errors
/// When no login may list the pods of this node.
pub(crate) fn recreate(
    node: &mut dyn Node,
    connect: Connect<'_>,
    lost: &[LostEndpoint],
    events: Sink,
) -> Result<Vec<LostEndpoint>> {
    let name = agent::read_config(node)?.node_name;
    let (mut logins, mut known) = (Vec::new(), None);
    let mut refused = Error::msg("neither kubelet nor Calico has a kubeconfig on this node");
    for file in programs_kubeconfigs(node) {
        let pods = as_program(node, &file, connect)
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
    delete(node, name.as_str(), &known, &logins.iter().collect::<Vec<_>>(), lost, events)
}

/// The same at once for the running pods that have no endpoint: somebody else deleted their network, which a run has
/// created again. They are recorded first.
///
/// # Errors
/// When the cluster does not list the pods, or HNS its endpoints; when the record cannot be written.
pub(crate) fn recreate_detached(node: &mut dyn Node, name: &str, cluster: &Cluster, events: Sink) -> Result<()> {
    let (attached, known) = (attached(node)?, cluster.pods_on(name)?);
    let lost =
        |pod: &PodOnNode| LostEndpoint { endpoint: pod.to_string(), ip: pod.addresses.first().copied(), pod: None };
    let losses = known.iter().filter(|pod| pod.is_detached(&attached)).map(lost).collect();
    let why = "these pods lost their endpoints with the HNS network that was missing";
    cni_gate::record_lost(node, losses, why, events)?;
    let recreate = |node: &mut dyn Node, lost: &[LostEndpoint], events: Sink<'_>| {
        delete(node, name, &known, &[cluster], lost, events)
    };
    cni_gate::recreate(node, &recreate, events);
    Ok(())
}

/// As [`recreate`], at once, with the rights of a run. What fails is in the log, and CalicoNode tries it again.
pub(crate) fn recreate_now(node: &mut dyn Node, name: &str, cluster: &Cluster, events: Sink) {
    let recreate = |node: &mut dyn Node, lost: &[LostEndpoint], events: Sink<'_>| {
        delete(node, name, &cluster.pods_on(name)?, &[cluster], lost, events)
    };
    cni_gate::recreate(node, &recreate, events);
}

/// Deletes those that a login may delete. Returns the names of the pods that remain.
fn delete(
    node: &dyn Node,
    name: &str,
    known: &[PodOnNode],
    logins: &[&Cluster],
    lost: &[LostEndpoint],
    events: Sink,
) -> Result<Vec<LostEndpoint>> {
    let attached = attached(node)?;
    let mut left = Vec::new();
    for lost in lost {
        // A pod that is deleted, or whose address belongs to an endpoint again, needs nothing.
        let is_its =
            |pod: &&PodOnNode| lost.ip.is_some_and(|ip| pod.addresses.contains(&ip) && !attached.contains(&ip));
        let Some(pod) = known.iter().find(is_its) else { continue };
        let mut why = Error::msg("nothing would re-create it");
        let deleted = pod.controller.is_some()
            && logins.iter().any(|login| match login.delete_pod(pod) {
                Ok(()) => true,
                Err(error) => {
                    why = error;
                    false
                }
            });
        let (told, message) = if deleted {
            let told = "lost its network: deleted, so that it is re-created";
            (told, format!("deleted pod {pod}, which lost its network; its controller re-creates it"))
        } else {
            left.push(LostEndpoint { pod: Some(pod.to_string()), ..lost.clone() });
            let told = "has no network, and must be deleted";
            (told, format!("pod {pod} has no network and must be deleted: {why:#}"))
        };
        let new = lost.pod.is_none() || deleted;
        if new {
            // The Event Log has it too.
            logins.iter().any(|login| login.warn_on_pod(pod, name, "NetworkLost", told).is_ok());
            events(Event::Warning { id: "PodsLostNetwork", message });
        }
    }
    Ok(left)
}
