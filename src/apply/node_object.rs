//! This machine's Node in its cluster, and the pods on it: what a run does there. The machine is changed even if the
//! cluster does not answer; only what needs the cluster fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};
use serde::{Deserialize, Serialize};

use super::cancel;
use crate::agent::cni_gate;
use crate::calico::kubeconfig::{self, NodeCredentials};
use crate::cluster::{self, CertificateRequest, Cluster, DrainOptions, DrainPlan, PodOnNode};
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, World};
use crate::node::Node;
use crate::node::hns::Endpoint;
use crate::paths::kubernetes as paths;
use crate::report::event::{Event, Sink};
use crate::values::WinPath;

/// How long pods may take to end unless a drain sets another limit.
const LIMIT: Duration = Duration::from_secs(300);

/// How long a container may still run after its pod was deleted from the cluster.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// How a run was told to reach the cluster, for the run that ends it; empty for the usual way. Never the kubeconfig's
/// contents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The path of the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// How pods leave a network that is removed.
#[derive(Debug, Clone, Copy)]
pub struct Leaving {
    /// All lose their endpoints at once, and are then deleted.
    pub dropped: bool,
    /// None may keep the network, and no answer of the cluster is needed: an undo must not end between two states.
    pub whatever: bool,
    /// CalicoNode runs afterwards, which re-creates pods that lost their network.
    pub recreated: bool,
}

/// The Node, and the cluster to ask about it.
pub struct NodeObject {
    name: String,
    /// Or why it cannot be asked.
    cluster: Result<Cluster, String>,
    /// How long pods may take to end.
    limit: Duration,
    /// Why the cluster did not answer, once it did not: notes on the Node are not worth a second wait.
    silent: RefCell<Option<String>>,
    /// The login with which its kubelet joins, also after a rollback removed it from the machine.
    bootstrap: RefCell<Option<NodeCredentials>>,
}

impl NodeObject {
    /// With the cluster, if it was found. `limit`: how long pods may take to end.
    pub fn new(name: &str, cluster: Result<Cluster>, limit: Option<Duration>) -> Self {
        let cluster = cluster.map_err(|error| format!("{error:#}"));
        let (name, limit) = (name.to_owned(), limit.unwrap_or(LIMIT));
        Self { name, cluster, limit, silent: RefCell::default(), bootstrap: RefCell::default() }
    }

    /// Without a Node: nothing can be asked.
    pub fn unknown() -> Self {
        Self::new("", Err(Error::msg("it is not known which Node this machine is")), None)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn cluster(&self) -> Result<&Cluster> {
        let what = || format!("ask the cluster about Node {}", self.name);
        self.cluster.as_ref().map_err(|why| Error::msg(why.clone()).context(what()))
    }

    /// Returns the Node's items; empty if there is no such Node.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn look(&self) -> Result<World> {
        Ok(self.while_it_answers(|cluster| twice(cluster, &self.name))?.unwrap_or_default())
    }

    /// From here on, a cluster that did not answer is asked again.
    pub fn ask_again(&self) {
        self.silent.take();
    }

    /// Whether a Node is cordoned.
    ///
    /// # Errors
    /// `NodeAbsent`; when the cluster cannot be asked.
    pub fn cordon(&self, name: &str) -> Result<Option<State>> {
        let mut items = twice(self.cluster()?, name)?.ok_or_else(|| cluster::absent(name))?;
        Ok(items.remove(&Id::Cordon(name.to_owned())))
    }

    /// Sets the state of an item of the Node.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or refuses.
    pub fn put(&self, id: &Id, state: Option<&State>) -> Result<()> {
        if matches!(id, Id::Cordon(_)) {
            return self.cluster()?.put_node_item(id, state);
        }
        self.while_it_answers(|cluster| cluster.put_node_item(id, state))
    }

    /// The last request of its kubelet for a client certificate.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or refuses.
    pub fn certificate_request(&self, node: &dyn Node) -> Result<Option<CertificateRequest>> {
        let file = std::fs::read_to_string(node.disk(&WinPath::known(paths::BOOTSTRAP_CONF)));
        if let Ok(login) = file.map_err(Error::from).and_then(|text| kubeconfig::parse(&text)) {
            *self.bootstrap.borrow_mut() = Some(login);
        }
        let bootstrap = self.bootstrap.borrow();
        self.while_it_answers(|cluster| cluster.certificate_request(&self.name, bootstrap.as_ref()))
    }

    fn while_it_answers<T>(&self, ask: impl FnOnce(&Cluster) -> Result<T>) -> Result<T> {
        if let Some(why) = &*self.silent.borrow() {
            bail!("{why}");
        }
        let answer = self.cluster().and_then(ask);
        if let Err(error) = &answer
            && Fault::of(error).is_some_and(|fault| fault.exit == Exit::ClusterUnreachable)
        {
            *self.silent.borrow_mut() = Some(format!("{error:#}"));
        }
        answer
    }

    /// Moves the pods away. Ctrl-C ends the wait.
    ///
    /// # Errors
    /// As [`Cluster::drain`].
    pub fn drain(&self, options: &DrainOptions, events: Sink) -> Result<DrainPlan> {
        let cluster = self.cluster()?;
        let drained = cluster.drain(&self.name, options, &cancel::asked, &mut *events);
        cluster.take_events().into_iter().for_each(events);
        drained
    }

    /// Whether the cluster answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn reach(&self) -> Result<()> {
        self.while_it_answers(Cluster::reach)
    }

    fn known(&self) -> Result<Vec<PodOnNode>> {
        self.while_it_answers(|cluster| cluster.pods_on(&self.name))
    }

    /// Detaches pods from a network that is removed: deletes leaked endpoints and pods of DaemonSets, and waits until
    /// their endpoints are deleted; or deletes the endpoints, and then the pods.
    ///
    /// # Errors
    /// Unless they leave whatever happens: `PodsAttached` if other pods are attached; `PodsNotGone` if it takes too
    /// long; when the cluster cannot be asked.
    pub fn vacate(&self, node: &mut dyn Node, network: &str, leaving: Leaving, events: Sink) -> Result<()> {
        // An undo waits for a silent cluster only once.
        if !(leaving.dropped || leaving.whatever && self.silent.borrow().is_some()) {
            match self.await_vacated(node, network, leaving, events) {
                Err(error) if leaving.whatever && Fault::of(&error).is_none_or(|why| why.exit != Exit::Cancelled) => {
                    events(Event::Log { message: format!("pods do not leave the HNS network {network}: {error:#}") });
                }
                done => return done,
            }
        }
        let live = live_endpoints(node, network, events)?;
        if live.is_empty() { Ok(()) } else { self.drop(node, live, leaving, events) }
    }

    fn await_vacated(&self, node: &mut dyn Node, network: &str, leaving: Leaving, events: Sink) -> Result<()> {
        let begun = Instant::now();
        let mut deleted = BTreeSet::new();
        loop {
            let live = live_endpoints(node, network, events)?;
            if live.is_empty() {
                return Ok(());
            }
            let elapsed = begun.elapsed();
            let mut waits = Vec::new();
            let mut stays = Vec::new();
            let known = match leaving.whatever {
                true => self.known(),
                false => self.cluster().and_then(|cluster| cluster.pods_on(&self.name)),
            }?;
            for endpoint in &live {
                match pod_of(endpoint, &known) {
                    Some(pod) if pod.is_of_daemon_set() || pod.ending => {
                        // Deleted again if the pod is not ending: "not found" may come from an API server that is
                        // behind.
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
                    None if deleted.iter().any(|(ip, _): &(Option<Ipv4Addr>, String)| *ip == endpoint.ip)
                        || elapsed < ENDS_WITHIN =>
                    {
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
                    .hint("look at what keeps them: kubectl describe pod\nthen run the command again")
                    .because(Error::msg(waits.join("\n"))));
            }
            cancel::check()?;
            let what = format!("{} to leave the HNS network {network}", waits.join(", "));
            events(Event::Waiting { what, elapsed, limit: self.limit });
            std::thread::sleep((elapsed / 4).clamp(Duration::from_millis(50), Duration::from_secs(1)));
        }
    }

    /// Deletes the pods of this Node in which kube-proxy runs, so that their DaemonSet starts it on the re-created
    /// network: its load balancers went with the former one (microsoft/Windows-Containers#79). With `restart` false,
    /// and where that fails, they are only named: the network works without it.
    pub fn restart_kube_proxy(&self, restart: bool, events: Sink) {
        let known = match self.while_it_answers(|cluster| cluster.pods_on(&self.name)) {
            Ok(known) => known,
            Err(error) => {
                let message = format!("whether kube-proxy runs in a pod of this node is unknown: {error:#}");
                return events(Event::Log { message });
            }
        };
        for pod in known.iter().filter(|pod| pod.kube_proxy && !pod.ending) {
            let done = match restart && pod.is_of_daemon_set() {
                true => self.cluster().and_then(|cluster| cluster.delete_pod(pod)).map_err(|why| format!(" ({why:#})")),
                false => Err(String::new()),
            };
            events(match done {
                Ok(()) => Event::Log {
                    message: format!(
                        "deleted pod {pod}, which its DaemonSet makes again: kube-proxy starts on the new network"
                    ),
                },
                Err(why) => Event::Warning {
                    id: "KubeProxyStale",
                    message: format!(
                        "kube-proxy in pod {pod} still counts on the network that is gone{why}: \
                         kubectl delete pod -n {} {}",
                        pod.namespace, pod.name
                    ),
                },
            });
        }
    }

    /// Deletes the endpoints of pods, and then the pods: a pod never gets another endpoint. Names the pods that nobody
    /// re-creates.
    fn drop(&self, node: &mut dyn Node, live: Vec<Endpoint>, leaving: Leaving, events: Sink) -> Result<()> {
        let known = self.known();
        let later =
            |why: &Error| format!("pods lose their network, and are re-created when the cluster answers ({why:#})");
        if let (Err(error), true) = (&known, leaving.recreated) {
            cni_gate::record_lost(node, live.iter().map(Into::into).collect(), &later(error), events)?;
        }
        for endpoint in &live {
            node.delete_endpoint(&endpoint.id)?;
        }
        if known.is_err() && leaving.recreated {
            return Ok(());
        }
        let mut left = Vec::new();
        for endpoint in &live {
            let pod = known.as_ref().ok().and_then(|known| pod_of(endpoint, known));
            match pod {
                Some(pod) if pod.controller.is_some() => {
                    match self.cluster().and_then(|cluster| cluster.delete_pod(pod)) {
                        Ok(()) => events(Event::Log { message: format!("deleted pod {pod}, which lost its network") }),
                        Err(error) if leaving.recreated => {
                            cni_gate::record_lost(node, vec![endpoint.into()], &later(&error), events)?;
                        }
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

/// Returns the items of a Node. Asks a second time before it counts as absent: the answer may come from an API server
/// that is behind.
fn twice(cluster: &Cluster, name: &str) -> Result<Option<World>> {
    let found = cluster.node_items(name)?;
    if found.is_some() { Ok(found) } else { cluster.node_items(name) }
}

/// The error for a change that would keep pods attached.
pub fn still_attached(who: &[String], state: &str) -> Error {
    let what = format!("pods are attached to the HNS network that this change replaces; {state}");
    Fault::new(Exit::InUse, "PodsAttached", what)
        .hint("delete these pods or end these containers, then run the command again")
        .because(Error::msg(who.join("\n")))
}

/// Deletes the leaked endpoints of pods on a network, and returns the others.
fn live_endpoints(node: &mut dyn Node, network: &str, events: Sink) -> Result<Vec<Endpoint>> {
    let mut used = pods_endpoints(node)?;
    used.retain(|endpoint| endpoint.network.eq_ignore_ascii_case(network));
    if used.is_empty() {
        return Ok(used);
    }
    let running = node.containers()?;
    let (leaked, live): (Vec<Endpoint>, Vec<Endpoint>) =
        used.into_iter().partition(|endpoint| endpoint.is_leaked(&running));
    for endpoint in &leaked {
        node.delete_endpoint(&endpoint.id)?;
        events(Event::Log { message: format!("deleted the leaked HNS endpoint {}", endpoint.describe()) });
    }
    Ok(live)
}

/// Returns the endpoints of pods on this machine.
///
/// # Errors
/// When HNS cannot be asked.
pub fn pods_endpoints(node: &dyn Node) -> Result<Vec<Endpoint>> {
    Ok(node.endpoints()?.into_iter().filter(Endpoint::is_a_pods).collect())
}

/// Returns the addresses that endpoints have.
///
/// # Errors
/// When HNS cannot be asked.
pub fn attached(node: &dyn Node) -> Result<Vec<Ipv4Addr>> {
    Ok(node.endpoints()?.iter().filter_map(|endpoint| endpoint.ip).collect())
}

/// Returns the pod that has the endpoint's address.
pub fn pod_of<'a>(endpoint: &Endpoint, known: &'a [PodOnNode]) -> Option<&'a PodOnNode> {
    pod_with(endpoint.ip?, known)
}

/// Returns the pod that has this address.
pub fn pod_with(ip: Ipv4Addr, known: &[PodOnNode]) -> Option<&PodOnNode> {
    known.iter().find(|pod| pod.addresses.contains(&ip))
}
