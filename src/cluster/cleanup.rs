//! Removes what Calico left of a node in the cluster: a condition and annotations of the Node, and the IPAM blocks of
//! its pods.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Cluster;
use super::api::path;
use super::node::{is_calico_up, node_path};
use crate::facts::ApiGroup;

/// The handle of a block's addresses that Windows reserves: the first three and the last.
const WINDOWS: &str = "windows-reserved-ipam-handle";

/// The prefix of annotations that Calico's components write on a Node.
const ANNOTATIONS: &str = "projectcalico.org/";

#[derive(Deserialize)]
struct Affinity {
    metadata: Named,
    spec: AffinitySpec,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct AffinitySpec {
    cidr: String,
    node: String,
}

#[derive(Deserialize)]
struct Block {
    spec: BlockSpec,
}

#[derive(Deserialize)]
struct BlockSpec {
    #[serde(default)]
    affinity: Option<String>,
    #[serde(default)]
    allocations: Vec<Option<usize>>,
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    #[serde(default)]
    handle_id: Option<String>,
    /// Calico keeps a released address from being assigned again for a while (v3.33).
    #[serde(default, rename = "releasedAt")]
    released_at: Option<String>,
}

impl BlockSpec {
    /// How many addresses pods have: neither Windows's own nor released ones.
    fn in_use(&self) -> usize {
        let free = |at: &usize| {
            let holder = self.attributes.get(*at);
            holder.is_some_and(|it| it.handle_id.as_deref() == Some(WINDOWS) || it.released_at.is_some())
        };
        self.allocations.iter().flatten().filter(|at| !free(at)).count()
    }
}

/// A block of a node, and whether it was released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    pub cidr: String,
    /// Addresses that pods still have: then the block is kept.
    pub in_use: usize,
}

/// The name of the IPAM block with this CIDR.
pub(super) fn block_name(cidr: &str) -> String {
    cidr.replace(['.', '/'], "-")
}

impl Cluster {
    /// Removes the condition of a Node by which Calico reports that it is up; false if there is none. Conditions of
    /// other components are kept.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or does not allow it.
    pub(super) fn clear_network_condition(&self, name: &str) -> Result<bool> {
        let Some(node) = self.get::<Value>(&node_path(name))? else { return Ok(false) };
        let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let all = conditions.len();
        conditions.retain(|condition| {
            !is_calico_up(condition["type"].as_str().unwrap_or_default(), condition["reason"].as_str())
        });
        if conditions.len() == all {
            return Ok(false);
        }
        // The complete list is replaced, so it must be the one that was read.
        let version = &node["metadata"]["resourceVersion"];
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": conditions } });
        self.merge_patch::<_, Value>(&path(["api", "v1", "nodes", name, "status"]), &patch)?;
        Ok(true)
    }

    /// Removes Calico's own annotations from a Node: while its tunnel address is there, other nodes have a route to it.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or does not allow it.
    pub fn clear_calico_annotations(&self, name: &str) -> Result<bool> {
        let Some(node) = self.get::<Value>(&node_path(name))? else { return Ok(false) };
        let there = node["metadata"]["annotations"].as_object().into_iter().flatten();
        let calicos: BTreeMap<String, Option<String>> =
            there.filter(|(key, _)| key.starts_with(ANNOTATIONS)).map(|(key, _)| (key.clone(), None)).collect();
        if calicos.is_empty() {
            return Ok(false);
        }
        self.annotate_node(name, &calicos)
    }

    /// Releases the IPAM blocks of a node in which no pod has an address. The affinity is deleted last, so that a block
    /// always names its owner.
    ///
    /// # Errors
    /// When the cluster cannot be asked, or does not allow it.
    pub fn release_blocks(&self, name: &str) -> Result<Vec<Released>> {
        Ok(Self::of_calico(|group| self.release_blocks_of(group, name))?.1)
    }

    fn release_blocks_of(&self, group: ApiGroup, name: &str) -> Result<Vec<Released>> {
        let (group, version) = group.parts();
        let affinities: Vec<Affinity> = self.list(&path(["apis", group, version, "blockaffinities"]))?;
        let mut released = Vec::new();
        for affinity in affinities.into_iter().filter(|affinity| affinity.spec.node == name) {
            let cidr = affinity.spec.cidr;
            let block_path = path(["apis", group, version, "ipamblocks", &block_name(&cidr)]);
            let block: Option<Block> = self.get(&block_path)?;
            let in_use = block.as_ref().map_or(0, |block| block.spec.in_use());
            if in_use == 0 {
                let own = format!("host:{name}");
                if block.is_some_and(|block| block.spec.affinity.as_deref() == Some(own.as_str())) {
                    self.delete(&block_path)?;
                }
                self.delete(&path(["apis", group, version, "blockaffinities", &affinity.metadata.name]))?;
            }
            released.push(Released { cidr, in_use });
        }
        Ok(released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_windows_reserves_or_that_were_released_are_not_in_use() {
        let block = |allocations: Value| -> BlockSpec {
            serde_json::from_value(json!({
                "affinity": "host:win-a1", "allocations": allocations,
                "attributes": [
                    {"handle_id": WINDOWS},
                    {"handle_id": "k8s-pod-network.3f2c"},
                    {"handle_id": "k8s-pod-network.77aa", "releasedAt": "2026-11-22T10:00:00Z"},
                ],
            }))
            .unwrap()
        };
        assert_eq!(block(json!([0, 0, 0, null, 0])).in_use(), 0);
        assert_eq!(block(json!([0, 0, 0, 1, null, 1, 0])).in_use(), 2);
        assert_eq!(block(json!([0, 0, 0, 2, 1, 0])).in_use(), 1);
        // An address with an unknown holder is in use.
        assert_eq!(block(json!([0, 7])).in_use(), 1);
    }
}
