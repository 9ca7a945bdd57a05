//! The objects that decide a node's network, as the API server has them, for people who look for a cause.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::Cluster;
use super::api::path;
use super::cleanup::block_name;
use crate::facts::ApiGroup;
use crate::fault::Fault;

/// How long each request may take.
const EACH_WITHIN: Duration = Duration::from_secs(5);

/// IPAM blocks of the node that are read.
const MOST_BLOCKS: usize = 16;

impl Cluster {
    /// Reads the Node, and Calico's resources that its network follows, by their plurals. Secrets and ConfigMaps are not
    /// read. What the API server does not have is left out; what could not be read has the reason.
    pub fn network_objects(&self, group: ApiGroup, node: &str) -> Vec<(&'static str, Result<Value>)> {
        let cluster = self.within(EACH_WITHIN);
        let (name, version) = group.parts();
        let of = |plural| path(["apis", name, version, plural]);
        let default = |plural| path(["apis", name, version, plural, "default"]);
        let mut found = Vec::new();
        let installation = path(["apis", "operator.tigera.io", "v1", "installations", "default"]);
        found.push(("nodes", cluster.get(&path(["api", "v1", "nodes", node]))));
        found.push(("installations", cluster.get(&installation)));
        for plural in ["clusterinformations", "bgpconfigurations", group.ipam_plural()] {
            found.push((plural, cluster.get(&default(plural))));
        }
        let list = |plural, is_meant: &dyn Fn(&Value) -> bool| {
            let all: Vec<Value> = cluster.list(&of(plural))?;
            Ok(Some(Value::Array(all.into_iter().filter(is_meant).collect())))
        };
        // Felix reads the one for all nodes, and its own.
        let own = format!("node.{node}");
        let is_felix = |felix: &Value| felix["metadata"]["name"] == "default" || felix["metadata"]["name"] == *own;
        found.push(("ippools", list("ippools", &|_| true)));
        found.push(("bgppeers", list("bgppeers", &|_| true)));
        found.push(("felixconfigurations", list("felixconfigurations", &is_felix)));
        let affinities = list("blockaffinities", &|affinity| affinity["spec"]["node"] == *node);
        if let Ok(Some(Value::Array(affinities))) = &affinities {
            let cidrs = affinities.iter().filter_map(|affinity| affinity["spec"]["cidr"].as_str()).take(MOST_BLOCKS);
            let block = |cidr: &str| cluster.get(&path(["apis", name, version, "ipamblocks", &block_name(cidr)]));
            let blocks: Result<Vec<Option<Value>>> = cidrs.map(block).collect();
            found.push(("ipamblocks", blocks.map(|blocks| Some(blocks.into_iter().flatten().collect()))));
        }
        found.push(("blockaffinities", affinities));
        found.into_iter().filter_map(|(plural, read)| Some((plural, there(read)?))).collect()
    }
}

/// An object without its history of writes, which is longer than the object; none if the cluster does not have it.
fn there(read: Result<Option<Value>>) -> Option<Result<Value>> {
    match read {
        Ok(object) => {
            let mut object = object?;
            match &mut object {
                Value::Array(all) => all.iter_mut().for_each(without_writes),
                one => without_writes(one),
            }
            Some(Ok(object))
        }
        Err(error) if Fault::id_of(&error) == "ApiNotServed" => None,
        Err(error) => Some(Err(error)),
    }
}

fn without_writes(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
