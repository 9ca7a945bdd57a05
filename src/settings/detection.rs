//! Calico's methods of choosing among a machine's addresses, as far as they tell the adapter: the
//! vSwitch is to stand on the one whose address the node is known by.

use std::net::Ipv4Addr;

use regex::Regex;

use crate::facts::{Adapter, ClusterFacts};
use crate::values::Cidr;

/// Interfaces that Calico for Windows passes over with every method but `interface=`.
const EXCLUDED: [&str; 5] = [r".*cbr.*", r".*[Dd]ocker.*", r".*\(nat\).*", r".*Calico.*_ep", r"Loopback.*"];

/// The adapter that a method leads to: of several the one with the preferred default route, which
/// comes first. None where none fits, and for the methods that leave it to the machine: what
/// `can-reach=` and `first-found` find changes with its routes and with every adapter that comes up,
/// and HNS's own choice, the primary adapter, is at least always the same.
pub(super) fn adapter<'a>(
    method: &str,
    adapters: &'a [Adapter],
    cluster: Option<&ClusterFacts>,
) -> Option<&'a Adapter> {
    let usable = || adapters.iter().filter(|adapter| adapter.reachable_address().is_some());
    let allowed = || usable().filter(|adapter| !is_named(adapter, &EXCLUDED));
    let has = |adapter: &Adapter, fits: &dyn Fn(Ipv4Addr) -> bool| adapter.addresses.iter().any(|a| fits(a.addr()));
    match method.split_once('=') {
        Some(("interface", patterns)) => {
            let patterns: Vec<&str> = patterns.split(',').collect();
            usable().find(|adapter| is_named(adapter, &patterns))
        }
        Some(("skip-interface", patterns)) => {
            let patterns: Vec<&str> = patterns.split(',').collect();
            allowed().find(|adapter| !is_named(adapter, &patterns))
        }
        Some(("cidr", cidrs)) => {
            let cidrs: Vec<Cidr> = cidrs.split(',').filter_map(|cidr| cidr.parse().ok()).collect();
            allowed().find(|adapter| has(adapter, &|ip| cidrs.iter().any(|cidr| cidr.contains(&ip))))
        }
        None if method == "kubernetes-internal-ip" => {
            let internal = &cluster?.node.as_ref()?.internal_ips;
            usable().find(|adapter| has(adapter, &|ip| internal.contains(&ip.to_string())))
        }
        _ => None,
    }
}

/// Whether an adapter's name fits one of some expressions, before or after a vSwitch took it.
fn is_named(adapter: &Adapter, patterns: &[&str]) -> bool {
    let name = adapter.name.as_str();
    let physical = name.strip_prefix("vEthernet (").and_then(|name| name.strip_suffix(')')).unwrap_or(name);
    let fits = |pattern: &&str| Regex::new(pattern).is_ok_and(|it| it.is_match(name) || it.is_match(physical));
    patterns.iter().any(fits)
}
