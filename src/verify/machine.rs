//! Probes of the machine: services, HNS, the CNI configuration and its plugin.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Asked, Probe, Scene};
use crate::apply::cancel;
use crate::apply::node_object::{attached, pod_of};
use crate::calico::cni::CniConf;
use crate::calico::networks::{self, HOST_ENDPOINT};
use crate::calico::services::FELIX;
use crate::cluster::PodOnNode;
use crate::item::{Id, State};
use crate::node::Node;
use crate::node::hns::Endpoint;
use crate::report::answer::Answer;
use crate::report::document::ServiceStatus;
use crate::report::event::Sink;
use crate::values::WinPath;
use crate::wait::Wait;

/// How long Felix may take to write the rules of a new pod. It tries again every 5 seconds (`win_dataplane.go`).
const RULED_WITHIN: Duration = Duration::from_secs(30);

/// What is looked for is in it.
pub(super) const NO_NETWORK: &str = "the HNS network Calico is missing: see PodNetwork";

pub(super) const PROBES: &[Probe] = &[
    Probe {
        id: "ServicesRun",
        group: "node",
        asks: "every service of Calico's that the config starts runs, is ready and does not crash",
        fix: "see what each service needs with: calicoctl-win status",
        asked: Asked::Looking(services),
    },
    Probe {
        id: "PodNetwork",
        group: "node",
        asks: "HNS has the network of pods, of the right type and VSID, with this machine's address, as other nodes are told",
        fix: "restore it with: calicoctl-win repair",
        asked: Asked::Looking(network),
    },
    Probe {
        id: "HostEndpoint",
        group: "node",
        asks: "the network of pods has the endpoint Calico_ep, with an address of its subnet",
        fix: "restore it with: calicoctl-win service restart",
        asked: Asked::Looking(host_endpoint),
    },
    Probe {
        id: "PodEndpoints",
        group: "node",
        asks: "HNS has an endpoint with the address of every pod that runs on this node, and Felix has written its rules",
        fix: "delete the pods without an endpoint, which never get another; let Felix write the rules of closed pods with: calicoctl-win service restart",
        asked: Asked::Waiting(pod_endpoints),
    },
    Probe {
        id: "CniConfigPublished",
        group: "node",
        asks: "the CNI configuration is published and as the current generation has it",
        fix: "restore it with: calicoctl-win repair",
        asked: Asked::Looking(cni_config),
    },
    Probe {
        id: "CniPluginRuns",
        group: "node",
        asks: "the CNI plugin runs, and supports the version that the CNI configuration names",
        fix: "restore it with: calicoctl-win repair",
        asked: Asked::Looking(cni_plugin),
    },
];

fn services(scene: &mut Scene<'_>) -> Result<Answer> {
    let wrong = scene.problems("ServicesRun").map(|problem| problem.message.clone()).collect();
    let running = |service: &&ServiceStatus| service.state == "Running";
    let names: Vec<&str> = scene.status.services.iter().filter(running).map(|service| service.name.as_str()).collect();
    Answer::unless(wrong, format!("running: {}", names.join(", ")))
}

fn network(scene: &mut Scene<'_>) -> Result<Answer> {
    let seen = ["KubeNetwork", "HnsNetworkUnseen", "HnsStuck"];
    let seen = scene.problems("PodNetwork").filter(|one| seen.contains(&one.id));
    let mut wrong: Vec<String> = seen.map(|problem| problem.message.clone()).collect();
    if scene.hns_is_stuck() {
        return Answer::fails(wrong.join("; "));
    }
    if scene.no_network().is_some() {
        return Answer::unless(wrong, "policy only: the pod network of the other product is there");
    }
    for (id, wanted) in &scene.receipt.target.world {
        let (Id::Network(name), State::Network(wanted)) = (id, wanted) else { continue };
        let Some(State::Network(now)) = scene.node.get(id)? else {
            wrong.push(format!("the HNS network {name} is missing"));
            continue;
        };
        if now.kind != wanted.kind {
            wrong.push(format!("the HNS network {name} has type {}, not {}", now.kind, wanted.kind));
        } else if now.vsid != wanted.vsid && wanted.vsid.is_some() {
            let vsid = |vsid: Option<u32>| vsid.map_or_else(|| "none".into(), |vsid| vsid.to_string());
            wrong.push(format!("the HNS network {name} has VSID {}, not {}", vsid(now.vsid), vsid(wanted.vsid)));
        }
    }
    if let Some(mixed) = scene.status.mixed_vni {
        wrong.push(format!("the VNI is {} here, and {} in FelixConfiguration", mixed.node, mixed.cluster));
    }
    if wrong.is_empty() {
        match &scene.network {
            Ok(differs) => wrong.extend(differs.clone()),
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    let shown = |name: &str| {
        let network = scene.status.networks.iter().find(|network| network.name.eq_ignore_ascii_case(name))?;
        let vsid = network.vsid.map_or_else(String::new, |vsid| format!(" with VSID {vsid}"));
        let ip = network.management_ip.as_ref().map_or_else(String::new, |ip| format!(" on {ip}"));
        Some(format!("{} is {}{vsid}{ip}", network.name, network.kind))
    };
    Answer::unless(wrong, shown(networks::PODS).unwrap_or_default())
}

fn host_endpoint(scene: &mut Scene<'_>) -> Result<Answer> {
    if let Some(skipped) = scene.no_network().or_else(|| scene.no_hns()) {
        return Ok(skipped);
    }
    let Some(State::Network(pods)) = scene.node.get(&Id::Network(networks::PODS.into()))? else {
        return Answer::skipped(NO_NETWORK);
    };
    let endpoints = scene.node.endpoints()?;
    let mut on_network = endpoints.iter().filter(|endpoint| endpoint.network.eq_ignore_ascii_case(networks::PODS));
    let Some(endpoint) = on_network.find(|endpoint| endpoint.is_the_hosts()) else {
        return Answer::fails(format!("the HNS network {} has no endpoint {HOST_ENDPOINT}", networks::PODS));
    };
    match (endpoint.ip, pods.subnet) {
        (Some(ip), Some(subnet)) if subnet.contains(&ip) => Answer::holds(format!("{HOST_ENDPOINT} has {ip}")),
        (Some(ip), Some(subnet)) => Answer::fails(format!("{HOST_ENDPOINT} has {ip}, which is not in {subnet}")),
        _ => Answer::fails(format!("{HOST_ENDPOINT} has no address")),
    }
}

fn pod_endpoints(scene: &mut Scene<'_>, events: Sink) -> Result<Answer> {
    if let Some(skipped) = scene.no_hns() {
        return Ok(skipped);
    }
    let attached = attached(scene.node)?;
    let pods = match scene.own_cluster() {
        Ok(cluster) => cluster.pods_on(scene.config.node_name.as_str())?,
        Err(skipped) => return Ok(skipped),
    };
    let mut wrong: Vec<String> =
        pods.iter().filter(|pod| pod.is_detached(&attached)).map(|pod| format!("{pod} has no endpoint")).collect();
    wrong.extend(closed(scene, &pods, events)?);
    let run = pods.iter().filter(|pod| pod.running && !pod.addresses.is_empty()).count();
    Answer::unless(
        wrong,
        match run {
            0 => "no pod runs on the pod network".into(),
            1 => "the one pod has its endpoint".into(),
            run => format!("{run} pods have their endpoints"),
        },
    )
}

/// The pods that still have the rule with which the CNI plugin closed them, although Felix is ready. Felix since v3.31
/// keeps in mind which rules it wrote for a pod, and not to which endpoint: if the pod gets another one, they are not
/// written again (`endpoint_mgr.go`, `CompleteDeferredWork`; projectcalico/calico#10437).
fn closed(scene: &mut Scene<'_>, pods: &[PodOnNode], events: Sink) -> Result<Option<String>> {
    let ready = |service: &ServiceStatus| {
        let waits = service.not_ready.is_some() || service.waiting_for.is_some() || service.crash_loop;
        service.name == FELIX && service.state == "Running" && !waits
    };
    // Another product's CNI plugin does not close pods; and without Felix, see ServicesRun.
    if scene.no_network().is_some() || !scene.status.services.iter().any(ready) {
        return Ok(None);
    }
    let (mut first, limit): (Option<Vec<String>>, _) = (None, RULED_WITHIN.as_secs());
    let wait = Wait {
        what: Some("Felix to write the rules of new pods"),
        limit: RULED_WITHIN,
        pause: Duration::from_secs(1),
        rest: &mut cancel::pause,
    };
    let ruled = wait.until(scene.node, events, |node, _, _| {
        let mut closed: Vec<Endpoint> = node.endpoints()?.into_iter().filter(Endpoint::is_closed).collect();
        if closed.is_empty() {
            return Ok(Ok(()));
        }
        let running = node.containers()?;
        // Pods that were attached since the first look are not waited for.
        let known = |id: &String| first.as_ref().is_none_or(|first| first.contains(id));
        closed.retain(|endpoint| endpoint.is_used(&running) && known(&endpoint.id));
        let of = closed.iter().filter_map(|endpoint| pod_of(endpoint, pods)).filter(|pod| pod.running && !pod.ending);
        let said = |pod: &PodOnNode| format!("{pod} is closed: Felix has not written its rules for {limit} s");
        let said: Vec<String> = of.map(said).collect();
        first.get_or_insert_with(|| closed.into_iter().map(|endpoint| endpoint.id).collect());
        Ok(if said.is_empty() { Ok(()) } else { Err(said.join("; ")) })
    })?;
    Ok(ruled.err())
}

fn cni_config(scene: &mut Scene<'_>) -> Result<Answer> {
    let Some(cni) = &scene.status.cni else {
        return Answer::skipped("policy only: the CNI configuration is another product's");
    };
    match cni.state.as_str() {
        "OK" => Answer::holds(cni.conf.clone()),
        state => Answer::fails(format!("{} is {}", cni.conf, state.to_lowercase())),
    }
}

fn cni_plugin(scene: &mut Scene<'_>) -> Result<Answer> {
    let Some(cni) = &scene.status.cni else {
        return Answer::skipped("policy only: the CNI plugin is another product's");
    };
    let conf: WinPath = cni.conf.parse().map_err(anyhow::Error::msg)?;
    let bin: WinPath = cni.bin.parse().map_err(anyhow::Error::msg)?;
    let wanted = read_conf(scene.node, &conf)?.cni_version;
    let plugin = bin.join("calico.exe");
    let supported = scene.node.cni_versions(&scene.node.disk(&plugin)).with_context(|| format!("run {plugin}"))?;
    if supported.contains(&wanted) {
        return Answer::holds(format!("{plugin} supports CNI {wanted}"));
    }
    Answer::fails(format!("{plugin} supports CNI {}, and {conf} names {wanted}", supported.join(", ")))
}

/// The CNI configuration, published or withdrawn.
pub(super) fn read_conf(node: &dyn Node, conf: &WinPath) -> Result<CniConf> {
    let withdrawn = crate::node::withdrawn(conf);
    let text = fs::read_to_string(node.disk(conf)).or_else(|_| fs::read_to_string(node.disk(&withdrawn)));
    CniConf::parse(&text.with_context(|| format!("read {conf}"))?).with_context(|| format!("parse {conf}"))
}
