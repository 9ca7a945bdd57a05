//! Whether a changed node works: its services, the network that they created, and the Node that kubelet reports. No run
//! reports success before.

use std::cell::OnceCell;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use jiff::Timestamp;

use super::app::App;
use super::connector::Connector;
use super::context::Operation;
use crate::agent::KUBELET;
use crate::agent::Role;
use crate::agent::state::{self, AgentState, Phase};
use crate::apply::cancel;
use crate::apply::waits::since;
use crate::calico::agent_config::AgentConfig;
use crate::calico::networks;
use crate::cluster::Cluster;
use crate::facts::ClusterNode;
use crate::fault::{Exit, Fault};
use crate::item::{Id, Network, NetworkKind, State};
use crate::node::{Listing, Node};
use crate::plan::order::{self, NODE_SERVICE};
use crate::plan::{Step, Target};
use crate::report::document::exit_of;
use crate::report::event::{Event, Sink};
use crate::settings::{Datastore, Limits};
use crate::wait::Wait;

/// How long Felix and confd must run without a crash. A program that rejects its configuration ends in its first
/// seconds.
const CALM: Duration = Duration::from_secs(5);

/// How long all services may take, including CalicoNode's own waits for the network and the datastore.
const LIMIT: Duration = Duration::from_secs(300);

/// How long the network may differ from the config and from what other nodes are told, once all services work.
const NETWORK_LIMIT: Duration = Duration::from_secs(30);

const LOOK: Duration = Duration::from_millis(250);

/// How long the Node may take to become Ready: kubelet reads the CNI configuration and reports every ten seconds, and
/// after an interruption of the host's network it has to reach the API server again.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// How long the Node must stay Ready: the Node may still show kubelet's report from before the change.
const STAYS_READY: Duration = Duration::from_secs(5);

/// How often the cluster is asked.
const ASK: Duration = Duration::from_secs(1);

/// How long the cluster may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Checks whether a node works, and asks the cluster with the node's own identity.
pub(crate) struct Works {
    /// Without an answer of the cluster, the node does not count as working.
    must_answer: bool,
    connector: Connector,
    /// What the services run, and the cluster as they reach it; read when first needed.
    config: OnceCell<AgentConfig>,
    cluster: OnceCell<Option<Cluster>>,
}

/// What the cluster says of the Node.
enum Said {
    Node(Box<ClusterNode>),
    /// The cluster has no answer, for this reason; it is not an error.
    Nothing(String),
}

/// Whether steps affect the services, so that they must be proven to work.
pub(crate) fn disturb(steps: &[Step]) -> bool {
    let concerns = |id: &Id| matches!(id, Id::Running(_) | Id::Network(_) | Id::CniConf(_) | Id::Tree(_));
    steps.iter().any(|step| concerns(step.id()))
}

/// Whether these steps run node startup: then the cluster must answer, and report the Node.
pub(crate) fn restart(steps: &[Step]) -> bool {
    let run = Id::Running(NODE_SERVICE.into());
    steps.iter().any(|step| matches!(step, Step::Put { id, after: Some(_), .. } if *id == run))
}

/// Returns why a Node is not Ready, unless it waits for the pod network: that is for Calico to fix.
pub(crate) fn not_ready_by_others(node: &ClusterNode) -> Option<String> {
    let why = node.not_ready.clone().unwrap_or_else(|| "it does not say why".into());
    let ours = ["network plugin", "networkplugin", "networkready", "cni"];
    let lower = why.to_lowercase();
    (!node.ready && !ours.iter().any(|word| lower.contains(word))).then_some(why)
}

fn not_ready(node: &ClusterNode) -> String {
    let why = node.not_ready.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    format!("Node {} is not Ready{why}", node.name)
}

impl Works {
    pub fn new(app: &App, must_answer: bool) -> Self {
        let (config, cluster) = (OnceCell::new(), OnceCell::new());
        Self { must_answer, connector: app.connector.clone(), config, cluster }
    }

    /// Waits until every service that the config starts works, on a network that other nodes can reach.
    ///
    /// # Errors
    /// `ServiceNotSteady` if a service ends, crashes repeatedly, or does not work in five minutes; `PodNetworkWrong` if
    /// the network differs from what other nodes are told.
    pub fn services(&self, node: &mut dyn Node, target: &Target, events: Sink) -> Result<()> {
        let mut expected = false;
        for role in Role::ALL {
            let run = Id::Running(role.service().into());
            expected |= target.world.contains_key(&run);
            expected |= order::runs(&target.world, role) && node.process(role.service())?.is_some();
        }
        if !expected {
            return Ok(());
        }
        phase("health-gate", node, events, |node, events| {
            let mut left = LIMIT;
            loop {
                let begun = node.now();
                let wait = Wait { what: None, limit: left, pause: LOOK, rest: &mut cancel::pause };
                if let Err(what) = wait.until(node, events, |node, _, _| Ok(look(node, target)?.map_or(Ok(()), Err)))? {
                    return Err(not_steady(format!("waited {} s for {what}", LIMIT.as_secs())).into());
                }
                let wait = Wait { what: None, limit: NETWORK_LIMIT, pause: ASK, rest: &mut cancel::pause };
                let settled = wait.until(node, events, |node, _, events| {
                    if look(node, target)?.is_some() {
                        return Ok(Ok(false));
                    }
                    let wrong = self.network(node, target, events)?;
                    Ok(wrong.map_or(Ok(true), |what| Err(format!("the network of pods: {what}"))))
                })?;
                match settled {
                    Ok(true) => return Ok("the services work".into()),
                    // A service does not work any more.
                    Ok(false) => left = left.saturating_sub(since(begun, node.now())),
                    Err(what) => {
                        let what = what.trim_start_matches("the network of pods: ");
                        let what = format!("{what}, for {} s now", NETWORK_LIMIT.as_secs());
                        return Err(Fault::new(Exit::VerifyFailed, "PodNetworkWrong", what)
                            .hint("what Calico's node startup did last is in its log: calicoctl-win logs")
                            .into());
                    }
                }
            }
        })
    }

    /// Returns how the pod network differs from what Calico's node startup creates.
    ///
    /// # Errors
    /// When the machine, or the services' configuration, cannot be read.
    pub fn network(&self, node: &dyn Node, target: &Target, events: Sink) -> Result<Option<String>> {
        let network = |name: &str| -> Result<Option<Network>> {
            let id = Id::Network(name.into());
            if !target.world.contains_key(&id) {
                return Ok(None);
            }
            Ok(node.get(&id)?.and_then(|state| if let State::Network(network) = state { Some(network) } else { None }))
        };
        if !target.world.contains_key(&Id::Network(networks::PODS.into())) {
            return Ok(None);
        }
        let (Some(pods), Some(details)) = (network(networks::PODS)?, node.network_details(networks::PODS)?) else {
            return Ok(Some(format!("the HNS network {} is not there", networks::PODS)));
        };
        if details.unseen_by_v2 {
            return Ok(Some(format!("version 2 of HNS does not show the HNS network {}", networks::PODS)));
        }
        if !details.endpoints.iter().any(|name| name.eq_ignore_ascii_case(networks::HOST_ENDPOINT)) {
            return Ok(Some(format!("the HNS network {} has no endpoint {}", networks::PODS, networks::HOST_ENDPOINT)));
        }
        let Some(ip) = pods.management_ip else {
            return Ok(Some(format!("the HNS network {} has no management IP", networks::PODS)));
        };
        if let Some(bootstrap) = network(networks::BOOTSTRAP)?
            && bootstrap.management_ip != Some(ip)
        {
            let on = |network: &Network| {
                let ip = network.management_ip.map_or_else(|| "none".into(), |ip| ip.to_string());
                network.adapter.as_ref().map_or(ip.clone(), |adapter| format!("{ip} on adapter {adapter}"))
            };
            let (here, there) = (on(&pods), on(&bootstrap));
            return Ok(Some(format!("the management IP of Calico is {here}, that of External {there}")));
        }
        let has = |state: &State| matches!(state, State::Adapter(config) if config.addresses.iter().any(|cidr| cidr.addr() == ip));
        if !node.list(Listing::Adapters)?.iter().any(|(_, state)| has(state)) {
            return Ok(Some(format!("no adapter has {ip}, the management IP of Calico")));
        }
        if pods.kind != NetworkKind::Overlay {
            return Ok(None);
        }
        let Some(mac) = details.dr_mac else {
            events(Event::Log {
                message: "HNS does not say which MAC other nodes must send to: it is not compared".into(),
            });
            return Ok(None);
        };
        if self.config(node)?.datastore() != Datastore::Kubernetes {
            let message =
                "with etcd as datastore, what other nodes are told of this one is in etcd's Node: it is not compared";
            events(Event::Log { message: message.into() });
            return Ok(None);
        }
        let found = match self.node_says(node) {
            Ok(Said::Node(found)) => found,
            Ok(Said::Nothing(why)) => return Ok(Some(why)),
            Err(error) => {
                let why = format!("the cluster cannot be asked what other nodes are told: {error:#}");
                if self.must_answer {
                    return Ok(Some(why));
                }
                events(Event::Log { message: why });
                return Ok(None);
            }
        };
        if found.tunnel_mac.as_ref() != Some(&mac) {
            let told = found.tunnel_mac.unwrap_or_else(|| "none".into());
            return Ok(Some(format!(
                "other nodes send to the MAC {told} (annotation projectcalico.org/VXLANTunnelMACAddr of Node {}), \
                 and the HNS network Calico has {mac}",
                found.name
            )));
        }
        let address = ip.to_string();
        Ok(found.calico_address.filter(|told| *told != address).map(|told| {
            format!(
                "other nodes send to {told} (annotation projectcalico.org/IPv4Address of Node {}), \
                 and the HNS network Calico is on {address}",
                found.name
            )
        }))
    }

    /// What the services run.
    fn config(&self, node: &dyn Node) -> Result<&AgentConfig> {
        if self.config.get().is_none() {
            let _first = self.config.set(crate::agent::read_config(node)?);
        }
        self.config.get().context("read the services' configuration")
    }

    /// Asks the cluster for this node's Node, with the node's own kubeconfig.
    fn node_says(&self, node: &dyn Node) -> Result<Said> {
        let config = self.config(node)?;
        let name = config.node_name.as_str();
        if self.cluster.get().is_none() {
            let limits = Limits { retries: 0, ..Limits::within(ANSWER_WITHIN) };
            let _first = self.cluster.set(self.connector.as_services(node, config, limits)?);
        }
        let Some(Some(cluster)) = self.cluster.get() else {
            return Ok(Said::Nothing(format!("without a kubeconfig nobody can be asked about Node {name}")));
        };
        Ok(match cluster.node(name)? {
            Some(found) => Said::Node(Box::new(found)),
            None => Said::Nothing(format!("the cluster has no Node {name}: its kubelet makes it when it joins")),
        })
    }

    /// Returns why this Node is not Ready before a change, unless Calico fixes that. None if the cluster does not
    /// answer: callers that need it report that.
    pub fn not_ready_before(&self, node: &dyn Node) -> Option<String> {
        match self.node_says(node) {
            Ok(Said::Node(found)) => not_ready_by_others(&found),
            _ => None,
        }
    }

    /// Returns what keeps pods from running here: the CNI configuration is not published, or the Node is not Ready.
    /// None if nothing does. Asks the cluster once.
    ///
    /// # Errors
    /// When the node or the cluster does not answer.
    pub fn keeps_pods_away(&self, node: &dyn Node, target: &Target) -> Result<Option<String>> {
        for (id, state) in &target.world {
            if matches!(id, Id::CniConf(_)) && node.get(id)?.as_ref() != Some(state) {
                return Ok(Some(format!("the CNI configuration {} is not published", id.target())));
            }
        }
        Ok(match self.node_says(node)? {
            Said::Node(found) if !found.ready => Some(not_ready(&found)),
            Said::Node(_) | Said::Nothing(_) => None,
        })
    }

    /// Waits until the Node is Ready and stays so. If kubelet does not run, reports it and does not wait.
    ///
    /// # Errors
    /// `NodeNotReady` after three minutes.
    pub fn ready(&self, node: &mut dyn Node, target: &Target, events: Sink) -> Result<()> {
        if !target.world.contains_key(&Id::Running(NODE_SERVICE.into())) {
            return Ok(());
        }
        if node.processes(KUBELET)?.is_empty() {
            let message = "kubelet does not run here: whether the Node gets Ready is not waited for";
            events(Event::Log { message: message.into() });
            return Ok(());
        }
        phase("node-ready", node, events, |node, events| {
            let mut ready_since = None;
            let limit = READY_WITHIN + STAYS_READY;
            let wait = Wait { what: None, limit, pause: ASK, rest: &mut cancel::pause };
            let ready = wait.until(node, events, |node, waited, _| {
                let what = match self.node_says(node) {
                    Ok(Said::Nothing(why)) => return Ok(Ok(format!("{why}; that is not waited for"))),
                    Ok(Said::Node(found)) if found.ready => {
                        let since = *ready_since.get_or_insert(waited);
                        if waited - since >= STAYS_READY {
                            return Ok(Ok(format!("Node {} is Ready", found.name)));
                        }
                        return Ok(Err(format!("Node {} has to stay so for {} s", found.name, STAYS_READY.as_secs())));
                    }
                    Ok(Said::Node(found)) => not_ready(&found),
                    Err(error) => {
                        let why = format!("whether the Node is Ready cannot be asked: {error:#}");
                        if !self.must_answer {
                            return Ok(Ok(why));
                        }
                        why
                    }
                };
                ready_since = None;
                if waited >= READY_WITHIN { Err(not_ready_in_time(&what)) } else { Ok(Err(what)) }
            })?;
            ready.map_err(|what| not_ready_in_time(&what))
        })
    }

    /// What must work before a change counts as done; otherwise it is reverted.
    pub fn proof(&self, services: bool, ready: bool) -> impl Fn(&mut dyn Node, &Target, Sink) -> Result<()> {
        move |node, target, events| {
            if services {
                self.services(node, target, events)?;
            }
            if ready { self.ready(node, target, events) } else { Ok(()) }
        }
    }

    /// Waits after a change that stays in place until the Node is Ready. A Node that was cordoned is uncordoned only
    /// after that.
    ///
    /// # Errors
    /// As [`Works::ready`]; the change is reported as made.
    pub fn ends_ready(&self, op: &mut Operation<'_>, target: &Target) -> Result<()> {
        let ended = self.ready(op.node, target, &mut |event| op.app.event(&event));
        ended.map_err(|error| is_made(op.app, error))
    }

    /// The same for the services, if there is nothing to revert to.
    ///
    /// # Errors
    /// As [`Works::services`].
    pub fn ends_working(&self, op: &mut Operation<'_>, target: &Target) -> Result<()> {
        let ended = self.services(op.node, target, &mut |event| op.app.event(&event));
        ended.map_err(|error| is_made(op.app, error))
    }
}

fn not_ready_in_time(what: &str) -> Error {
    let what = format!("{what}, {} s after the change", READY_WITHIN.as_secs());
    Fault::new(Exit::VerifyFailed, "NodeNotReady", what)
        .hint("`kubectl describe node` says why, and kubelet's log\nwhat is cordoned stays so: when the Node is Ready, run: calicoctl-win resume")
        .into()
}

/// Runs a wait as a phase of a run: how long it took, and its result.
fn phase(
    phase: &'static str,
    node: &mut dyn Node,
    events: Sink,
    wait: impl FnOnce(&mut dyn Node, Sink) -> Result<String>,
) -> Result<()> {
    let _under_way = cancel::UnderWay::begin();
    let begun = node.now();
    events(Event::PhaseStarted { phase, place: None });
    let waited = wait(node, events);
    events(match &waited {
        Ok(message) => {
            let took = since(begun, node.now());
            Event::PhaseCompleted { phase, message: message.clone(), changed: false, took }
        }
        Err(error) => Event::PhaseFailed { phase, message: format!("{error:#}") },
    });
    waited.map(drop)
}

/// The error of a failed proof of a change that stays in place, so that its logs and state show the cause.
fn is_made(app: &App, error: Error) -> Error {
    if exit_of(&error) != Exit::Failed {
        return error;
    }
    let what = "the change is complete, and whether it works could not be checked";
    let hint = format!("fix the cause that is named here, then check: {}", app.command("status"));
    error.context(Fault::new(Exit::VerifyFailed, "ProofIncomplete", what).hint(hint))
}

/// Returns what the services still wait for; none if each works.
///
/// # Errors
/// `ServiceNotSteady` if a service ended, gave up, or crashes repeatedly.
fn look(node: &dyn Node, target: &Target) -> Result<Option<String>> {
    for role in Role::ALL {
        let name = role.service();
        if !order::runs(&target.world, role) {
            continue;
        }
        if node.process(name)?.is_none() {
            if !target.world.contains_key(&Id::Running(name.into())) {
                continue;
            }
            let why = state::read(node, role).and_then(|said| said.failure);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            return Err(not_steady(format!("{name} ended{why}")).into());
        }
        // A report of another process is about an earlier agent.
        let Some(said) = state::live(node, role)? else { return Ok(Some(format!("{name} to begin"))) };
        if let Some(missing) = missing(&said, node.now())? {
            return Ok(Some(missing));
        }
    }
    Ok(None)
}

fn missing(said: &AgentState, now: Timestamp) -> Result<Option<String>> {
    let name = said.role.service();
    // Failures of node startup before it succeeded do not count.
    let loops = said.crash_loop && said.role != Role::Node;
    if loops || said.failure.is_some() {
        let code = said.last_exit.and_then(|last| last.code);
        let code = code.map_or_else(String::new, |code| format!(" with exit code {code}"));
        let why = said.failure.clone().unwrap_or_else(|| format!("its program ends again and again{code}"));
        return Err(not_steady(format!("{name} does not work: {why}")).into());
    }
    if let Some(waits) = said.wait(now) {
        return Ok(Some(format!("{name}, which waits for {waits}")));
    }
    if said.phase != Phase::Running || said.role == Role::Node && !said.at_work() {
        return Ok(Some(format!("{name} to be at its work")));
    }
    // CalicoNode's program ends when it is done; the process of the others must run.
    if said.role == Role::Node {
        return Ok(None);
    }
    // What only a log says is not waited for.
    if let Some(why) = said.trouble().filter(|_| said.not_ready().is_some()) {
        return Ok(Some(format!("{name} to be ready: {why}")));
    }
    let since = said.child.as_ref().and_then(|child| child.since);
    let lived = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok()).unwrap_or_default();
    Ok((lived < CALM).then(|| format!("{name} to run for {} s", CALM.as_secs())))
}

fn not_steady(what: String) -> Fault {
    Fault::new(Exit::VerifyFailed, "ServiceNotSteady", what)
        .hint("its log says why: calicoctl-win logs\nwith another release the cause may be gone")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what an agent with this report still lacks, 12 s after it began.
    fn said(role: &str, more: &str) -> String {
        let more = if more.contains("crashLoop") { more.to_owned() } else { format!(r#", "crashLoop": false{more}"#) };
        let more = if more.contains("phase") { more } else { format!(r#", "phase": "running"{more}"#) };
        let text =
            format!(r#"{{"role": "{role}", "pid": 4000, "since": "2026-01-02T15:04:00Z", "restarts": 0{more}}}"#);
        let said: AgentState = serde_json::from_str(&text).unwrap();
        match missing(&said, "2026-01-02T15:04:12Z".parse().unwrap()) {
            Ok(None) => "works".into(),
            Ok(Some(what)) => format!("waits for {what}"),
            Err(error) => format!("failed: {error:#}"),
        }
    }

    #[test]
    fn an_agent_works_when_its_component_has_lived_for_a_while() {
        let child = |since| format!(r#", "child": {{"pid": 4010, "since": "2026-01-02T15:04:{since}Z"}}"#);
        assert_eq!(said("node", ""), "works");
        assert_eq!(said("node", r#", "phase": "preparing""#), "waits for CalicoNode to be at its work");
        assert_eq!(said("felix", &child("06")), "works");
        assert_eq!(said("felix", &child("09")), "waits for CalicoFelix to run for 5 s");
        assert_eq!(said("felix", ""), "waits for CalicoFelix to run for 5 s");
        let ready = |what: &str| format!(r#"{}, "readiness": {what}"#, child("06"));
        assert_eq!(said("felix", &ready(r#""ready""#)), "works");
        assert_eq!(said("felix", &ready(r#"{"notReady": "HTTP 503"}"#)), "waits for CalicoFelix to be ready: HTTP 503");
        let waits = r#", "waitingFor": {"what": "the network", "since": "2026-01-02T15:04:02Z", "limitS": 90}"#;
        assert_eq!(said("node", waits), "waits for CalicoNode, which waits for the network (10 s of 90 s)");
    }

    /// The network or the datastore was late: what counts is the result.
    #[test]
    fn node_startup_that_failed_before_it_succeeded_works() {
        let tries = r#", "crashLoop": true, "lastExit": {"code": 1, "at": "2026-01-02T15:04:05Z"}"#;
        assert_eq!(said("node", tries), "works");
        let goes_on = format!(
            r#", "phase": "preparing", "waitingFor": {{"what": "Calico's node startup", "since": "2026-01-02T15:04:02Z", "limitS": null}}{tries}"#
        );
        assert_eq!(said("node", &goes_on), "waits for CalicoNode, which waits for Calico's node startup (10 s)");
    }

    /// An older agent reports running during node startup.
    #[test]
    fn node_startup_that_still_runs_has_not_succeeded() {
        let runs = r#", "child": {"pid": 4010, "since": "2026-01-02T15:04:06Z"}"#;
        assert_eq!(said("node", runs), "waits for CalicoNode to be at its work");
    }

    #[test]
    fn a_node_that_waits_for_the_pod_network_is_ours_to_fix() {
        let node = |why: &str| ClusterNode { not_ready: Some(why.into()), ..ClusterNode::default() };
        let ours = "KubeletNotReady: container runtime network not ready: NetworkReady=false \
                    reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
        assert_eq!(not_ready_by_others(&node(ours)), None);
        for others in
            ["NodeStatusUnknown: Kubelet stopped posting node status.", "KubeletNotReady: [container runtime is down]"]
        {
            assert_eq!(not_ready_by_others(&node(others)).as_deref(), Some(others));
        }
        assert_eq!(not_ready_by_others(&ClusterNode { ready: true, ..ClusterNode::default() }), None);
    }

    #[test]
    fn a_crashing_program_or_an_agent_that_gave_up_does_not_work() {
        let once = r#", "phase": "restarting", "lastExit": {"code": 7, "at": "2026-01-02T15:04:05Z"}"#;
        assert_eq!(said("felix", once), "waits for CalicoFelix to be at its work", "one end is no loop");
        assert_eq!(
            said("felix", &format!(r#"{once}, "crashLoop": true"#)),
            "failed: CalicoFelix does not work: its program ends again and again with exit code 7"
        );
        assert_eq!(
            said("confd", r#", "failure": "the configuration is not ours""#),
            "failed: CalicoConfd does not work: the configuration is not ours"
        );
    }
}
