//! The pods that are attached to an HNS network that goes: which they are, whether that may be, and how they
//! are taken off it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};

use super::app::App;
use super::app::reach::cluster_as;
use super::cordon;
use crate::agent;
use crate::agent::published::LostEndpoint;
use crate::apply::cancel;
use crate::apply::converge::Standing;
use crate::cluster::{Cluster, PodOnNode};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::node::hns::{Endpoint, is_calicos};
use crate::plan::Step;
use crate::plan::show::{AttachedPod, Fate};
use crate::report::event::{Event, Sink};

/// How long pods may take to end unless a drain's limit says otherwise.
const LIMIT: Duration = Duration::from_secs(300);

/// How long a container may still run whose pod is gone from the cluster.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

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
            let pod = of(&endpoint, &known);
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

fn still_attached(who: &[String], state: &str) -> Error {
    let what = format!("pods are attached to the HNS network that this change replaces; {state}");
    Fault::new(Exit::Conflict, "PodsAttached", what)
        .hint("delete these pods or end these containers, then run the command again")
        .because(Error::msg(who.join("\n")))
}

/// How a run takes pods off the networks that it deletes.
pub(crate) struct Pods<'a> {
    name: String,
    cluster: Reach<'a>,
    limit: Duration,
}

enum Reach<'a> {
    Known(&'a Cluster),
    Found(Box<Cluster>),
    /// Why it cannot be asked.
    Away(String),
}

impl<'a> Pods<'a> {
    /// Of a Node in a cluster that was asked before. `limit`: how long they may take to end.
    pub fn new(name: &str, cluster: &'a Cluster, limit: Option<Duration>) -> Self {
        Self { name: name.to_owned(), cluster: Reach::Known(cluster), limit: limit.unwrap_or(LIMIT) }
    }

    /// Of the Node that an earlier run made; its cluster is looked for only where pods are attached.
    pub fn of(app: &App, node: &dyn Node, standing: &Standing) -> Self {
        let name = standing.node_name().map(ToString::to_string).unwrap_or_default();
        let attached =
            pods_endpoints(node).map_or(true, |all| all.iter().any(|endpoint| is_calicos(&endpoint.network)));
        let cluster = if attached {
            match cordon::reach(app, node, None, None, None) {
                Ok(cluster) => Reach::Found(Box::new(cluster)),
                Err(error) => Reach::Away(format!("{error:#}")),
            }
        } else {
            Reach::Away("no pod was attached when this run began, so the cluster was not asked".into())
        };
        Self { name, cluster, limit: LIMIT }
    }

    fn known(&self) -> Result<Vec<PodOnNode>> {
        self.cluster()?.pods_on(&self.name)
    }

    fn cluster(&self) -> Result<&Cluster> {
        match &self.cluster {
            Reach::Known(cluster) => Ok(cluster),
            Reach::Found(cluster) => Ok(cluster),
            Reach::Away(why) => Err(Error::msg(why.clone()).context("ask the cluster for the pods of this node")),
        }
    }

    /// Takes them off a network: leaked endpoints are deleted, pods of DaemonSets too, and their endpoints
    /// are waited for. `drops`: every endpoint is deleted, and then its pod.
    ///
    /// # Errors
    /// `PodsAttached` when others are attached; `PodsNotGone` when it takes too long.
    pub fn vacate(&self, node: &mut dyn Node, network: &str, drops: bool, events: Sink) -> Result<()> {
        let begun = Instant::now();
        let mut deleted = BTreeSet::new();
        loop {
            let on = |endpoint: &Endpoint| endpoint.network.eq_ignore_ascii_case(network);
            let used: Vec<Endpoint> = pods_endpoints(node)?.into_iter().filter(on).collect();
            if used.is_empty() {
                return Ok(());
            }
            let running = node.containers()?;
            let (leaked, live): (Vec<Endpoint>, Vec<Endpoint>) =
                used.into_iter().partition(|endpoint| endpoint.is_leaked(&running));
            for endpoint in &leaked {
                node.delete_endpoint(&endpoint.id)?;
                events(Event::Log { message: format!("deleted the leaked HNS endpoint {}", endpoint.describe()) });
            }
            if live.is_empty() {
                return Ok(());
            }
            if drops {
                return self.drop(node, &live, events);
            }
            let elapsed = begun.elapsed();
            let mut waits = Vec::new();
            let mut stays = Vec::new();
            let known = self.known()?;
            for endpoint in &live {
                match of(endpoint, &known) {
                    Some(pod) if pod.is_of_daemon_set() || pod.ending => {
                        // Again, if that did not take: "not found" may be a server's that is behind.
                        if !pod.ending {
                            self.cluster()?.delete_pod(pod)?;
                            if deleted.insert((endpoint.ip, pod.to_string())) {
                                let message = format!("deleted pod {pod}, which its DaemonSet makes again");
                                events(Event::Log { message });
                            }
                        }
                        waits.push(pod.to_string());
                    }
                    Some(pod) => stays.push(pod.to_string()),
                    None if deleted.iter().any(|(ip, _)| *ip == endpoint.ip) || elapsed < ENDS_WITHIN => {
                        waits.push(endpoint.describe());
                    }
                    None => stays.push(endpoint.describe()),
                }
            }
            if !stays.is_empty() {
                return Err(still_attached(&stays, "the network was not touched"));
            }
            if elapsed >= self.limit {
                let what = format!("pods did not leave the HNS network {network} in {} s", self.limit.as_secs());
                return Err(Fault::new(Exit::DrainBlocked, "PodsNotGone", what)
                    .hint("look at what keeps them: kubectl describe pod; then run the command again")
                    .because(Error::msg(waits.join("\n"))));
            }
            cancel::check()?;
            let what = format!("{} to leave the HNS network {network}", waits.join(", "));
            events(Event::Waiting { what, elapsed, limit: self.limit });
            std::thread::sleep((elapsed / 4).clamp(Duration::from_millis(50), Duration::from_secs(1)));
        }
    }

    /// Deletes the endpoints of pods, and then the pods: they never get another network. One that nothing
    /// makes again is named.
    fn drop(&self, node: &mut dyn Node, live: &[Endpoint], events: Sink) -> Result<()> {
        let known = self.known();
        for endpoint in live {
            node.delete_endpoint(&endpoint.id)?;
        }
        let mut left = Vec::new();
        for endpoint in live {
            let pod = known.as_ref().ok().and_then(|known| of(endpoint, known));
            match pod {
                Some(pod) if pod.controller.is_some() => {
                    match self.cluster().and_then(|cluster| cluster.delete_pod(pod)) {
                        Ok(()) => events(Event::Log { message: format!("deleted pod {pod}, which lost its network") }),
                        Err(error) => left.push(format!("{pod} ({error:#})")),
                    }
                }
                Some(pod) => left.push(pod.to_string()),
                None => left.push(endpoint.describe()),
            }
        }
        if !left.is_empty() {
            let why = known.err().map_or_else(String::new, |error| format!(" ({error:#})"));
            let message = format!("these lost their network and must be deleted by hand: {}{why}", left.join(", "));
            events(Event::Warning { id: "PodsWithoutNetwork", message });
        }
        Ok(())
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

fn pods_endpoints(node: &dyn Node) -> Result<Vec<Endpoint>> {
    Ok(node.endpoints()?.into_iter().filter(Endpoint::is_a_pods).collect())
}

/// The pod that has an endpoint's address.
fn of<'a>(endpoint: &Endpoint, known: &'a [PodOnNode]) -> Option<&'a PodOnNode> {
    let ip = endpoint.ip?;
    known.iter().find(|pod| pod.addresses.contains(&ip))
}
