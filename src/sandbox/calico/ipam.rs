//! The part of Calico IPAM that a Windows host needs at startup: its own block.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::kube::Kube;

/// The handle of a block's first three addresses and its last one on a Windows host.
const RESERVED: &str = "windows-reserved-ipam-handle";

/// The host's block: its existing one, or the first free one of a pool.
///
/// # Errors
/// When IPAM has no strict affinity, which Windows requires, or no pool has a free block.
pub fn ensure_block(kube: &Kube, node: &str) -> Result<Ipv4Net> {
    let config = kube.calico(kube.plural("ipamconfigs", "ipamconfigurations"), "default")?;
    if !config.is_some_and(|config| config["spec"]["strictAffinity"] == true) {
        bail!("global strict affinity should not be false for Windows node");
    }
    let affinities = kube.calico_list("blockaffinities")?;
    let own = affinities.iter().find(|affinity| {
        let spec = &affinity["spec"];
        spec["node"] == node && spec["state"] == "confirmed" && spec["deleted"] != "true" && spec["deleted"] != true
    });
    let blocks = kube.calico_list("ipamblocks")?;
    if let Some(own) = own {
        let block = cidr(&own["spec"]["cidr"])?;
        if !blocks.iter().any(|there| there["spec"]["cidr"] == own["spec"]["cidr"]) {
            create_block(kube, node, &block)?;
        }
        return Ok(block);
    }
    let taken: BTreeSet<Ipv4Net> =
        affinities.iter().chain(&blocks).filter_map(|taken| taken["spec"]["cidr"].as_str()?.parse().ok()).collect();
    let block = free_block(&kube.calico_list("ippools")?, &taken)?;
    claim(kube, node, &block)?;
    Ok(block)
}

/// The first free block of a pool for all nodes.
fn free_block(pools: &[Value], taken: &BTreeSet<Ipv4Net>) -> Result<Ipv4Net> {
    let mut usable = 0;
    for pool in pools {
        let spec = &pool["spec"];
        let selector = spec["nodeSelector"].as_str().unwrap_or_default();
        let Ok(net) = cidr(&spec["cidr"]) else { continue };
        if spec["disabled"] == true || !matches!(selector, "" | "all()") {
            continue;
        }
        usable += 1;
        let size = spec["blockSize"].as_u64().filter(|size| *size > 0).unwrap_or(26);
        let size = u8::try_from(size).context("a pool's blockSize is not a prefix length")?;
        let free = net
            .subnets(size)
            .with_context(|| format!("pool {net} has no blocks of /{size}"))?
            .find(|block| !taken.iter().any(|other| other.contains(block) || block.contains(other)));
        if let Some(block) = free {
            return Ok(block);
        }
    }
    if usable == 0 {
        bail!("no configured Calico pools for this node");
    }
    bail!("no free IPAM block in any Calico pool")
}

fn claim(kube: &Kube, node: &str, block: &Ipv4Net) -> Result<()> {
    let deleted = if kube.is_v3() { json!(false) } else { json!("false") };
    let affinity = json!({ "cidr": block, "node": node, "state": "confirmed", "deleted": deleted, "type": "host" });
    kube.calico_create("blockaffinities", "BlockAffinity", &format!("{node}-{}", dashed(block)), &affinity)
        .context("claim a block's affinity")?;
    create_block(kube, node, block)
}

fn create_block(kube: &Kube, node: &str, block: &Ipv4Net) -> Result<()> {
    let size = 1_usize << (32 - block.prefix_len());
    let reserved = |at: usize| at < 3 || at == size - 1;
    let allocations: Vec<Value> = (0..size).map(|at| if reserved(at) { json!(0) } else { Value::Null }).collect();
    let unallocated: Vec<usize> = (0..size).filter(|at| !reserved(*at)).collect();
    let spec = json!({
        "cidr": block,
        "affinity": format!("host:{node}"),
        "strictAffinity": true,
        "allocations": allocations,
        "unallocated": unallocated,
        "attributes": [{ "handle_id": RESERVED, "secondary": { "note": "windows host rsvd" } }],
        "deleted": false,
    });
    kube.calico_create("ipamblocks", "IPAMBlock", &dashed(block), &spec).context("create a block")
}

/// A block's name: `192-168-20-64-26`.
fn dashed(block: &Ipv4Net) -> String {
    block.to_string().replace(['.', '/'], "-")
}

fn cidr(value: &Value) -> Result<Ipv4Net> {
    let text = value.as_str().context("a CIDR is missing")?;
    text.parse().with_context(|| format!("{text} is not an IPv4 CIDR"))
}
