//! A change of the VNI while it is made: which nodes have which, and for how long they have been apart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::found::{DaemonSet, Fleet};
use crate::values::Vni;

/// Pods on nodes with different VNIs do not reach each other. Linux nodes have that of FelixConfiguration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FleetVni {
    /// What the nodes get.
    pub wanted: Vni,
    /// The other one, which nodes have that are not changed yet; null if there is none.
    pub former: Option<Vni>,
    /// What FelixConfiguration has, which Linux nodes follow; null if it cannot be read.
    pub felix: Option<u32>,
    /// The Windows nodes with a pod, by their VNI: the wanted one first.
    pub nodes: Vec<VniNodes>,
    /// Since when nodes have different VNIs; null if they do not, or if it is not known.
    pub apart_since: Option<Timestamp>,
    /// For how long: until now, or, if all are the same again, from the first changed node to the last.
    pub apart_seconds: Option<u64>,
}

/// Nodes with the same VNI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VniNodes {
    /// Null: it is not known, because the node is being changed, its change failed, or another run has changed it since.
    pub vni: Option<Vni>,
    pub nodes: Vec<String>,
}

impl VniNodes {
    /// Nodes by their VNI.
    pub(super) fn group(nodes: impl IntoIterator<Item = (Option<Vni>, String)>) -> Vec<Self> {
        let mut by_vni: BTreeMap<Option<Vni>, Vec<String>> = BTreeMap::new();
        for (vni, node) in nodes {
            by_vni.entry(vni).or_default().push(node);
        }
        by_vni.into_iter().map(|(vni, nodes)| Self { vni, nodes }).collect()
    }

    /// How many nodes have this VNI, and of how many.
    pub(super) fn counts(all: &[Self], vni: Option<Vni>) -> (usize, usize) {
        let of = |one: &Self| one.nodes.len();
        (all.iter().filter(|one| one.vni == vni).map(of).sum(), all.iter().map(of).sum())
    }
}

impl FleetVni {
    /// How many nodes have the wanted VNI, and of how many.
    pub fn counts(&self) -> (usize, usize) {
        VniNodes::counts(&self.nodes, Some(self.wanted))
    }

    /// Whether half of the nodes have it: then fewer pods are apart if Linux nodes have it too.
    pub(super) fn has_half(&self) -> bool {
        let (wanted, all) = self.counts();
        wanted > 0 && 2 * wanted >= all
    }

    /// The command that changes the Linux nodes, if they have another VNI. With etcd, that is not known here.
    pub(super) fn patch(&self) -> Option<String> {
        self.felix.filter(|felix| *felix != self.wanted.get()).map(|_| patch(self.wanted))
    }
}

/// The command that gives Linux nodes this VNI. Windows PowerShell 5.1 would drop the quotes of JSON; kubectl reads YAML
/// too (its patch.go: `yaml.ToJSON`).
pub fn patch(vni: impl Display) -> String {
    format!(r#"kubectl patch felixconfiguration default --type=merge -p "spec: {{vxlanVNI: {vni}}}""#)
}

/// The same where Calico keeps its data in etcd, which kubectl does not reach. It reads only JSON (calicoctl's patch.go).
pub(super) fn patch_in_etcd(vni: Vni) -> String {
    format!(r#"calicoctl patch felixconfiguration default -p '{{"spec":{{"vxlanVNI":{vni}}}}}'"#)
}

/// Judges the VNIs of a rollout. None if it does not set one. `sets`: in the order of the waves. `since`: the nodes that
/// another run has changed since.
pub(super) fn judge(sets: &[&DaemonSet], fleet: &Fleet, since: &BTreeSet<&str>, now: Timestamp) -> Option<FleetVni> {
    let last = sets.iter().find_map(|set| set.vni());
    let before = sets.iter().find_map(|set| set.former_vni());
    let first = sets.first()?;
    // Before it begins, the first wave's pods do not set it; after an undo neither.
    let begins = if first.is_idle() { last } else { first.template_vni() };
    let wanted = begins.or(before)?;
    let former = [before, last].into_iter().flatten().find(|vni| *vni != wanted);

    let mut nodes: BTreeMap<&str, Option<Vni>> = BTreeMap::new();
    // When the first and the last node got it.
    let mut times: BTreeMap<Vni, (Timestamp, Timestamp)> = BTreeMap::new();
    for pod in fleet.pods.iter() {
        if pod.metadata.deletion_timestamp.is_some() {
            // The next one may be there already.
            nodes.entry(pod.node()).or_default();
            continue;
        }
        let vni = pod.vni().or(before).filter(|_| pod.is_ready() && !since.contains(pod.node()));
        nodes.insert(pod.node(), vni);
        if let (Some(vni), Some((_, at))) = (vni, pod.changed()) {
            times
                .entry(vni)
                .and_modify(|(first, last)| (*first, *last) = (at.min(*first), at.max(*last)))
                .or_insert((at, at));
        }
    }
    let mut nodes = VniNodes::group(nodes.into_iter().map(|(node, vni)| (vni, node.to_owned())));
    nodes.sort_by_key(|one| Reverse((one.vni == Some(wanted), one.vni)));

    let known = || nodes.iter().filter_map(|one| one.vni);
    let felix = fleet.felix_vni;
    let differ = known().count() > 1 || felix.is_some_and(|felix| known().any(|vni| vni.get() != felix));
    let first = |vni: Vni| times.get(&vni).map(|(first, _)| *first);
    // It began when the last of the VNIs came.
    let apart_since = known().filter_map(first).max().filter(|_| differ);
    let apart = match apart_since {
        Some(since) => Some(now.duration_since(since)),
        None if differ || former.is_none() => None,
        None => times.get(&wanted).map(|(first, last)| last.duration_since(*first)),
    };
    let apart_seconds = apart.and_then(|time| u64::try_from(time.as_secs()).ok());
    Some(FleetVni { wanted, former, felix, nodes, apart_since, apart_seconds })
}
