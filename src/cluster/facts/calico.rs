//! Calico's own resources, from the group that serves them. Unknown fields are ignored: Calico adds some with every
//! release.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use ipnet::IpNet;
use serde::Deserialize;

use super::policies::{self, OfAdmins, Policy};
use super::{Checks, Question, Unanswered, ask, ask_all, if_checked};
use crate::cluster::Cluster;
use crate::cluster::api::{Api, path};
use crate::cluster::errors::Failure;
use crate::cluster::policies::ADMINS;
use crate::facts::{ApiGroup, BgpFacts, ClusterFacts, FelixFacts, PoolFacts};
use crate::values::joined;
use crate::version::CalicoVersion;

impl Cluster {
    /// Whether IPAM lets a node use only its own blocks; without a configuration it does not.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub fn strict_affinity(&self) -> Result<bool> {
        let (_, ipam) = Self::of_calico(|group| {
            let (name, version) = group.parts();
            self.get::<Object<IpamConfig>>(&path(["apis", name, version, group.ipam_plural(), "default"]))
        })?;
        Ok(ipam.is_some_and(|ipam| ipam.spec.strict_affinity))
    }
}

/// The pending requests for them.
pub(super) struct Resources {
    felix: Question<Option<Object<Felix>>>,
    pools: Question<Vec<Object<Pool>>>,
    ipam: Question<Option<Object<IpamConfig>>>,
    information: Question<Option<Object<Information>>>,
    affinities: Question<Vec<Object<Affinity>>>,
    bgp: Question<Option<Object<Bgp>>>,
    peers: Question<Vec<Object<Peer>>>,
    host_endpoints: Question<Vec<Bare>>,
    controllers: Question<Option<Object<Controllers>>>,
    policies: [Question<Vec<Policy>>; 3],
    of_admins: Question<Vec<OfAdmins>>,
}

impl Resources {
    pub fn ask(api: &Arc<Api>, group: ApiGroup, checks: Checks) -> Self {
        let whole = checks == Checks::All;
        let (name, version) = group.parts();
        let of = |plural| path(["apis", name, version, plural]);
        let default = |plural| path(["apis", name, version, plural, "default"]);
        Self {
            felix: ask(api, default("felixconfigurations")),
            pools: ask_all(api, of("ippools")),
            ipam: ask(api, default(group.ipam_plural())),
            information: ask(api, default("clusterinformations")),
            affinities: if_checked(whole, || ask_all(api, of("blockaffinities"))),
            bgp: if_checked(whole, || ask(api, default("bgpconfigurations"))),
            peers: if_checked(whole, || ask_all(api, of("bgppeers"))),
            host_endpoints: if_checked(whole, || ask_all(api, of("hostendpoints"))),
            controllers: if_checked(whole, || ask(api, default("kubecontrollersconfigurations"))),
            policies: [
                of("globalnetworkpolicies"),
                of("networkpolicies"),
                path(["apis", "networking.k8s.io", "v1", "networkpolicies"]),
            ]
            .map(|policies| if_checked(whole, || ask_all(api, policies))),
            of_admins: if_checked(whole, || policies::ask_of_admins(api)),
        }
    }

    /// The first four decide something, so each must be answered; only checks need the others.
    pub async fn fill(self, facts: &mut ClusterFacts, node: &str, unanswered: &mut Unanswered) -> Result<(), Failure> {
        if let Some(Object { spec, .. }) = self.felix.answer().await? {
            facts.felix = felix_facts(spec);
        }
        facts.pools = self.pools.answer().await?.into_iter().map(pool).collect();
        facts.strict_affinity = self.ipam.answer().await?.map(|c| c.spec.strict_affinity);
        facts.calico_version =
            self.information.answer().await?.map(|i| i.spec.calico_version).filter(|v| !v.is_empty());

        if let Some(affinities) = unanswered.checked("blockaffinities", self.affinities.answer().await)? {
            count_blocks(&mut facts.pools, &affinities, node);
        }
        let bgp = unanswered.checked("bgpconfigurations", self.bgp.answer().await)?;
        let peers = unanswered.checked("bgppeers", self.peers.answer().await)?;
        facts.bgp = peers.map(|peers| bgp_facts(bgp.flatten().map(|bgp| bgp.spec), &peers));
        let endpoints = unanswered.checked("hostendpoints", self.host_endpoints.answer().await)?;
        facts.host_endpoints = endpoints.map(|endpoints| endpoints.len());
        let controllers = unanswered.checked("kubecontrollersconfigurations", self.controllers.answer().await)?;
        facts.auto_host_endpoints = controllers.flatten().and_then(|found| found.spec.creates_host_endpoints());
        let mut all = Vec::new();
        for question in self.policies {
            match unanswered.checked("networkpolicies", question.answer().await)? {
                Some(policies) => all.extend(policies),
                None => return Ok(()),
            }
        }
        let release = facts.calico_version.as_ref().and_then(|version| version.parse::<CalicoVersion>().ok());
        let of_admins = unanswered.may_be(ADMINS, self.of_admins.answer().await)?;
        for (kind, plural, listed) in of_admins.into_iter().flatten() {
            // A ClusterRole of an earlier release of this program lacks the right. A kind that this Calico does not read is
            // not enforced at all.
            let listed = unanswered.may_be(plural, listed)?;
            if release.as_ref().is_none_or(|release| kind.is_read_by(release.line())) {
                all.extend(listed.into_iter().flatten());
            }
        }
        facts.policies = Some(policies::count(&all));
        Ok(())
    }
}

pub(super) fn felix_facts(spec: Felix) -> FelixFacts {
    FelixFacts {
        vxlan_enabled: spec.vxlan_enabled,
        vxlan_vni: spec.vxlan_vni,
        ipip_enabled: spec.ipip_enabled,
        vxlan_port: spec.vxlan_port,
        vxlan_mtu: spec.vxlan_mtu,
        bpf_enabled: spec.bpf_enabled,
        wireguard_enabled: spec.wireguard_enabled,
    }
}

/// Counts the blocks that nodes hold, by pool.
pub(super) fn count_blocks(pools: &mut [PoolFacts], affinities: &[Object<Affinity>], node: &str) {
    for pool in pools.iter_mut() {
        pool.blocks_taken = Some(0);
    }
    let nets: Vec<Option<IpNet>> = pools.iter().map(|pool| pool.cidr.parse().ok()).collect();
    for Object { spec, .. } in affinities.iter().filter(|a| !a.spec.deleted.is_set()) {
        let Ok(block) = spec.cidr.parse::<IpNet>() else { continue };
        let within = nets.iter().position(|net| net.is_some_and(|net| net.contains(&block)));
        if let Some(pool) = within.and_then(|at| pools.get_mut(at)) {
            pool.blocks_taken = pool.blocks_taken.map(|taken| taken + 1);
            pool.has_our_block |= spec.node == node;
        }
    }
}

pub(super) fn bgp_facts(bgp: Option<Bgp>, peers: &[Object<Peer>]) -> BgpFacts {
    let bgp = bgp.unwrap_or_default();
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unsupported = Vec::new();
    for Object { metadata, spec } in peers {
        if !spec.peer_ip.is_empty() {
            *named.entry(&spec.peer_ip).or_default() += 1;
        }
        let lost: Vec<&str> = [
            ("password", spec.password.is_some()),
            ("filters", !spec.filters.is_empty()),
            ("port", spec.peer_ip.rsplit_once(':').is_some_and(|(ip, _)| !ip.contains(':') || ip.ends_with(']'))),
            ("maxRestartTime", spec.max_restart_time.is_some()),
            ("ttlSecurity", spec.ttl_security.is_some()),
            ("reachableBy", spec.reachable_by.is_some()),
            ("numAllowedLocalASNumbers", spec.num_allowed_local.is_some()),
            ("keepOriginalNextHop", spec.keep_original_next_hop),
        ]
        .into_iter()
        .filter_map(|(name, set)| set.then_some(name))
        .collect();
        if !lost.is_empty() {
            unsupported.push(format!("{}: {}", metadata.name, lost.join(", ")));
        }
    }
    BgpFacts {
        mesh: bgp.mesh,
        mesh_password: bgp.mesh_password.is_some(),
        peers: peers.len(),
        unsupported,
        duplicates: named.into_iter().filter(|(_, times)| *times > 1).map(|(ip, _)| ip.to_owned()).collect(),
        advertised: bgp.advertised(),
    }
}

/// A pool, with Calico's defaults for missing fields.
pub(super) fn pool(object: Object<Pool>) -> PoolFacts {
    let spec = object.spec;
    let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
    let block_size = match spec.block_size {
        0 if spec.cidr.contains(':') => 122,
        0 => 26,
        size => size,
    };
    PoolFacts {
        name: object.metadata.name,
        cidr: spec.cidr,
        vxlan_mode: or(spec.vxlan_mode, "Never"),
        ipip_mode: or(spec.ipip_mode, "Never"),
        disabled: spec.disabled,
        node_selector: or(spec.node_selector, "all()"),
        block_size,
        blocks_taken: None,
        has_our_block: false,
        allowed_uses: spec.allowed_uses,
        manual: spec.assignment_mode == "Manual",
    }
}

#[derive(Deserialize)]
pub(super) struct Object<S> {
    pub metadata: Named,
    pub spec: S,
}

#[derive(Deserialize)]
pub(super) struct Named {
    pub name: String,
}

/// An object that is only counted.
#[derive(Deserialize)]
pub(super) struct Bare {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Felix {
    vxlan_enabled: Option<bool>,
    #[serde(rename = "vxlanVNI")]
    vxlan_vni: Option<u32>,
    ipip_enabled: Option<bool>,
    vxlan_port: Option<u16>,
    #[serde(rename = "vxlanMTU")]
    vxlan_mtu: Option<u32>,
    bpf_enabled: Option<bool>,
    wireguard_enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pool {
    cidr: String,
    #[serde(default)]
    vxlan_mode: String,
    #[serde(default)]
    ipip_mode: String,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    node_selector: String,
    #[serde(default)]
    block_size: u8,
    #[serde(default)]
    allowed_uses: Vec<String>,
    #[serde(default)]
    assignment_mode: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IpamConfig {
    #[serde(default)]
    strict_affinity: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Information {
    #[serde(default)]
    pub calico_version: String,
}

#[derive(Deserialize)]
pub(super) struct Affinity {
    pub cidr: String,
    #[serde(default)]
    pub node: String,
    #[serde(default)]
    pub deleted: Deleted,
}

/// The one field whose type differs between the groups.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Deleted {
    /// In `crd.projectcalico.org/v1`: `"true"` or `"false"`.
    V1(String),
    /// In `projectcalico.org/v3`.
    V3(bool),
}

impl Default for Deleted {
    fn default() -> Self {
        Self::V3(false)
    }
}

impl Deleted {
    fn is_set(&self) -> bool {
        match self {
            Self::V1(word) => word == "true",
            Self::V3(set) => *set,
        }
    }
}

#[derive(Default, Deserialize)]
pub(super) struct Bgp {
    #[serde(rename = "nodeToNodeMeshEnabled")]
    mesh: Option<bool>,
    #[serde(rename = "nodeMeshPassword")]
    mesh_password: Option<serde::de::IgnoredAny>,
    #[serde(rename = "serviceClusterIPs")]
    cluster_ips: Option<Vec<Block>>,
    #[serde(rename = "serviceExternalIPs")]
    external_ips: Option<Vec<Block>>,
    #[serde(rename = "serviceLoadBalancerIPs")]
    load_balancer_ips: Option<Vec<Block>>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    cidr: String,
}

impl Bgp {
    fn advertised(&self) -> Vec<String> {
        let lists = [
            ("serviceClusterIPs", &self.cluster_ips),
            ("serviceExternalIPs", &self.external_ips),
            ("serviceLoadBalancerIPs", &self.load_balancer_ips),
        ];
        lists
            .into_iter()
            .filter_map(|(field, blocks)| Some((field, blocks.as_ref().filter(|blocks| !blocks.is_empty())?)))
            .map(|(field, blocks)| format!("{field}: {}", joined(blocks.iter().map(|block| &block.cidr), ", ")))
            .collect()
    }
}

/// KubeControllersConfiguration `default`.
#[derive(Deserialize)]
pub(super) struct Controllers {
    #[serde(default)]
    controllers: NodeControllers,
}

#[derive(Default, Deserialize)]
struct NodeControllers {
    node: Option<NodeController>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeController {
    host_endpoint: Option<HostEndpointController>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HostEndpointController {
    auto_create: Option<String>,
}

impl Controllers {
    /// Whether they create a HostEndpoint for each Node; none if that is not set.
    pub fn creates_host_endpoints(&self) -> Option<bool> {
        let endpoints = self.controllers.node.as_ref()?.host_endpoint.as_ref()?;
        endpoints.auto_create.as_deref().map(|word| word == "Enabled")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peer {
    #[serde(default, rename = "peerIP")]
    peer_ip: String,
    // The secret itself is not read.
    password: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    filters: Vec<String>,
    max_restart_time: Option<serde::de::IgnoredAny>,
    ttl_security: Option<serde::de::IgnoredAny>,
    reachable_by: Option<serde::de::IgnoredAny>,
    #[serde(rename = "numAllowedLocalASNumbers")]
    num_allowed_local: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    keep_original_next_hop: bool,
}
