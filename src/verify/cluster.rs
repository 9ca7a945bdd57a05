//! Probes of what the cluster has for this node, asked with the node's own kubeconfig.

use anyhow::Result;

use super::machine::{NO_NETWORK, read_conf};
use super::{Asked, Probe, Scene};
use crate::calico::networks;
use crate::item::{Id, State};
use crate::report::answer::Answer;
use crate::report::time::at;
use crate::settings::Datastore;
use crate::values::WinPath;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        id: "ApiAnswers",
        group: "cluster",
        asks: "the API server answers the node's own kubeconfig, and has its Node",
        fix: "find the cause with: calicoctl-win preflight",
        asked: Asked::Looking(api),
    },
    Probe {
        id: "CredentialsValid",
        group: "cluster",
        asks: "no token or certificate that the node logs in with has expired",
        fix: "replace them with: calicoctl-win credentials rotate",
        asked: Asked::Looking(credentials),
    },
    Probe {
        id: "DatastoreAnswers",
        group: "cluster",
        asks: "Calico's datastore answers the node's services",
        fix: "look at what it says of itself with: calicoctl-win explain DatastoreAway",
        asked: Asked::Looking(datastore),
    },
    Probe {
        id: "NodeIsReady",
        group: "cluster",
        asks: "kubelet reports the Node as Ready",
        fix: "see what kubelet says with: kubectl describe node NAME",
        asked: Asked::Looking(node_ready),
    },
];

pub(super) const ADDRESSES: &[Probe] = &[
    Probe {
        id: "IpamBlock",
        group: "addresses",
        asks: "Calico's IPAM has a confirmed block for this node, and the network of pods is on it",
        fix: "let Calico's node startup claim one with: calicoctl-win service restart",
        asked: Asked::Looking(block),
    },
    Probe {
        id: "ClusterDns",
        group: "addresses",
        asks: "the DNS server of pods is a service of the cluster with a ready endpoint",
        fix: "see why with: kubectl -n kube-system get pods,endpointslices -l k8s-app=kube-dns",
        asked: Asked::Looking(dns),
    },
];

fn api(scene: &mut Scene<'_>) -> Result<Answer> {
    let name = &scene.config.node_name;
    match (&scene.cluster, &scene.found) {
        (Ok(None), _) => Answer::skipped("Calico's services have no kubeconfig"),
        (Err(error), _) | (_, Err(error)) => Answer::fails(format!("{error:#}")),
        (Ok(Some(cluster)), Ok(None)) => Answer::fails(format!("{} has no Node {name}", cluster.server())),
        (Ok(Some(cluster)), Ok(Some(_))) => Answer::holds(format!("{} has Node {name}", cluster.server())),
    }
}

fn node_ready(scene: &mut Scene<'_>) -> Result<Answer> {
    let name = &scene.config.node_name;
    if let Err(skipped) = scene.own_cluster() {
        return Ok(skipped);
    }
    match &scene.found {
        Ok(Some(node)) if node.ready && node.schedulable => Answer::holds(format!("Node {name} is Ready")),
        Ok(Some(node)) if node.ready => Answer::holds(format!("Node {name} is Ready, and cordoned")),
        Ok(Some(node)) => {
            let why = node.not_ready.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            Answer::fails(format!("Node {name} is not Ready{why}"))
        }
        _ => Answer::skipped(format!("there is no Node {name}")),
    }
}

fn credentials(scene: &mut Scene<'_>) -> Result<Answer> {
    let now = scene.node.now();
    let credentials = &scene.status.credentials;
    if credentials.is_empty() {
        return Answer::skipped("the node has no credentials of its own");
    }
    let expired = credentials.iter().filter_map(|one| {
        let expires = one.expires.filter(|expires| *expires <= now)?;
        Some(format!("{} has expired at {}", one.path, at(expires)))
    });
    let renewal = scene.status.problems.iter().filter(|problem| problem.id == "TokenNotRenewed");
    let wrong = expired.chain(renewal.map(|problem| problem.message.clone())).collect();
    let valid = credentials.iter().map(|one| match one.expires {
        Some(expires) => format!("{} is valid until {}", one.kind, at(expires)),
        None => format!("{} does not expire", one.kind),
    });
    Answer::unless(wrong, valid.collect::<Vec<_>>().join(", "))
}

fn datastore(scene: &mut Scene<'_>) -> Result<Answer> {
    let name = match scene.config.datastore() {
        Datastore::Kubernetes => "the Kubernetes API".to_owned(),
        Datastore::Etcdv3 { endpoints, .. } => format!("etcd at {}", endpoints.join(", ")),
    };
    match &scene.datastore {
        Ok(()) => Answer::holds(format!("{name} answers")),
        Err(error) => Answer::fails(format!("{name}: {error:#}")),
    }
}

fn block(scene: &mut Scene<'_>) -> Result<Answer> {
    if let Some(skipped) = scene.no_network().or_else(|| scene.no_hns()) {
        return Ok(skipped);
    }
    let name = scene.config.node_name.as_str();
    let blocks = match (&scene.etcd_blocks, scene.config.datastore()) {
        (Ok(Some(blocks)), _) => blocks.clone(),
        (Err(error), _) => return Answer::fails(format!("{error:#}")),
        (Ok(None), Datastore::Etcdv3 { .. }) => return Answer::skipped("etcd does not answer: see DatastoreAnswers"),
        (Ok(None), Datastore::Kubernetes) => match scene.own_cluster() {
            Ok(cluster) => cluster.blocks_of(name)?,
            Err(skipped) => return Ok(skipped),
        },
    };
    if blocks.is_empty() {
        return Answer::fails(format!("no block is confirmed for node {name}"));
    }
    let Some(State::Network(pods)) = scene.node.get(&Id::Network(networks::PODS.into()))? else {
        return Answer::skipped(NO_NETWORK);
    };
    let subnet = pods.subnet.map(|subnet| subnet.to_string()).unwrap_or_default();
    if blocks.contains(&subnet) {
        return Answer::holds(format!("{subnet} is this node's"));
    }
    Answer::fails(format!("the network of pods is on {subnet}, and the node's blocks are {}", blocks.join(", ")))
}

fn dns(scene: &mut Scene<'_>) -> Result<Answer> {
    let Some(conf) = scene.status.cni.as_ref().map(|cni| cni.conf.clone()) else {
        return Answer::skipped("policy only: pods get their DNS server from another product");
    };
    let conf: WinPath = conf.parse().map_err(anyhow::Error::msg)?;
    let servers = read_conf(scene.node, &conf)?.dns.nameservers;
    let cluster = match scene.own_cluster() {
        Ok(cluster) => cluster,
        Err(skipped) => return Ok(skipped),
    };
    let Some(service) = cluster.dns_service()? else {
        return Answer::fails("there is no service kube-dns in namespace kube-system");
    };
    if !servers.contains(&service.address) {
        let servers = servers.join(", ");
        return Answer::fails(format!("{conf} names {servers}, and the service kube-dns has {}", service.address));
    }
    if service.ready == 0 {
        return Answer::fails(format!("the service kube-dns ({}) has no ready endpoint", service.address));
    }
    Answer::holds(format!("kube-dns ({}) has {} ready", service.address, service.ready))
}
