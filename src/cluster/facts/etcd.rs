//! Calico's own resources, from etcd. Keys and values are those of libcalico-go's etcdv3 backend: the resources of
//! `projectcalico.org/v3` as JSON by kind and name, and IPAM's own data below `/calico/ipam/v2`.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::calico::{Affinity, Bare, Bgp, Controllers, Deleted, Felix, Information, Named, Object, Peer, Pool};
use super::calico::{bgp_facts, count_blocks, felix_facts, pool};
use super::policies::{self, Policy};
use crate::calico::etcd::EtcdFiles;
use crate::cluster::etcd_kv::{self, KeyValue};
use crate::facts::ClusterFacts;

const FELIX: &str = "/calico/resources/v3/projectcalico.org/felixconfigurations/default";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const IPAM: &str = "/calico/ipam/v2/config";
const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
/// `HOST/ipv4/block/10.244.1.0-26` for each block of a node.
const AFFINITIES: &str = "/calico/ipam/v2/host/";
const BGP: &str = "/calico/resources/v3/projectcalico.org/bgpconfigurations/default";
const PEERS: &str = "/calico/resources/v3/projectcalico.org/bgppeers/";
const HOST_ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/hostendpoints/";
const CONTROLLERS: &str = "/calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/default";
/// Calico's controllers copy those of Kubernetes here.
pub(in crate::cluster) const POLICIES: [&str; 2] = [
    "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/",
    "/calico/resources/v3/projectcalico.org/networkpolicies/",
];

/// Reads what Calico keeps in etcd into the facts of a cluster whose API does not serve it. `node`: whose blocks are its
/// own.
///
/// # Errors
/// Faults `EtcdForbidden`, `EtcdUnreadable`, and when a value is not Calico's. Then the facts are as they were.
pub fn read_etcd(
    facts: &mut ClusterFacts,
    node: &str,
    endpoints: &[String],
    files: Option<&EtcdFiles>,
    limit: Duration,
) -> Result<()> {
    let [global, namespaced] = POLICIES;
    let names =
        [FELIX, POOLS, IPAM, INFORMATION, AFFINITIES, BGP, PEERS, HOST_ENDPOINTS, CONTROLLERS, global, namespaced];
    let found = etcd_kv::read(endpoints, files, limit, &names)?;
    let below = |name: &str| {
        let at = names.iter().position(|known| *known == name);
        at.and_then(|at| found.get(at)).map_or(&[][..], Vec::as_slice)
    };
    let felix = one::<Object<Felix>>(below(FELIX))?;
    let mut pools: Vec<_> = all::<Object<Pool>>(below(POOLS))?.into_iter().map(pool).collect();
    let ipam = one::<IpamConfig>(below(IPAM))?;
    let information = one::<Object<Information>>(below(INFORMATION))?;
    let affinities = below(AFFINITIES).iter().map(affinity).collect::<Result<Vec<_>>>()?;
    count_blocks(&mut pools, &affinities.into_iter().flatten().collect::<Vec<_>>(), node);
    let bgp = one::<Object<Bgp>>(below(BGP))?;
    let peers = all::<Object<Peer>>(below(PEERS))?;
    let controllers = one::<Object<Controllers>>(below(CONTROLLERS))?;
    let mut policies = all::<Policy>(below(global))?;
    policies.extend(all::<Policy>(below(namespaced))?);

    facts.felix = felix.map(|felix| felix_facts(felix.spec)).unwrap_or_default();
    facts.pools = pools;
    facts.strict_affinity = ipam.map(|ipam| ipam.strict_affinity);
    facts.calico_version = information.map(|found| found.spec.calico_version).filter(|version| !version.is_empty());
    facts.bgp = Some(bgp_facts(bgp.map(|bgp| bgp.spec), &peers));
    facts.host_endpoints = Some(all::<Bare>(below(HOST_ENDPOINTS))?.len());
    facts.auto_host_endpoints = controllers.and_then(|found| found.spec.creates_host_endpoints());
    facts.policies = Some(policies::count(&policies));
    facts.etcd_read = true;
    Ok(())
}

/// Returns the IPAM blocks that are confirmed for a node, as CIDRs.
///
/// # Errors
/// As [`read_etcd`].
pub fn etcd_blocks_of(
    node: &str,
    endpoints: &[String],
    files: Option<&EtcdFiles>,
    limit: Duration,
) -> Result<Vec<String>> {
    let below = format!("{AFFINITIES}{node}/");
    let mut blocks = Vec::new();
    for entry in etcd_kv::read(endpoints, files, limit, &[&below])?.iter().flatten() {
        let Some(Object { spec, .. }) = affinity(entry)? else { continue };
        let AffinityValue { state, deleted } = parse(entry)?;
        if state == "confirmed" && !deleted {
            blocks.push(spec.cidr);
        }
    }
    Ok(blocks)
}

/// IPAM's settings, which are no v3 resource in etcd.
#[derive(Deserialize)]
struct IpamConfig {
    #[serde(default)]
    strict_affinity: bool,
}

#[derive(Deserialize)]
struct AffinityValue {
    /// `pending`, `confirmed` or `pendingDeletion` (libcalico-go, lib/backend/model/block_affinity.go).
    #[serde(default)]
    state: String,
    #[serde(default)]
    deleted: bool,
}

fn parse<T: DeserializeOwned>(entry: &KeyValue) -> Result<T> {
    let key = || format!("read {} in etcd", String::from_utf8_lossy(&entry.key));
    serde_json::from_slice(&entry.value).with_context(key)
}

fn one<T: DeserializeOwned>(found: &[KeyValue]) -> Result<Option<T>> {
    found.first().map(parse).transpose()
}

fn all<T: DeserializeOwned>(found: &[KeyValue]) -> Result<Vec<T>> {
    found.iter().map(parse).collect()
}

/// A node's block, which its key names; none for other keys below the hosts.
fn affinity(entry: &KeyValue) -> Result<Option<Object<Affinity>>> {
    let key = String::from_utf8_lossy(&entry.key);
    let parts: Vec<&str> = key.trim_start_matches(AFFINITIES).split('/').collect();
    let [node, "ipv4" | "ipv6", "block", block] = parts[..] else { return Ok(None) };
    let Some((address, length)) = block.rsplit_once('-') else { return Ok(None) };
    let deleted = Deleted::V3(parse::<AffinityValue>(entry)?.deleted);
    let spec = Affinity { cidr: format!("{address}/{length}"), node: node.to_owned(), deleted };
    Ok(Some(Object { metadata: Named { name: block.to_owned() }, spec }))
}
