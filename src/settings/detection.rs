//! Calico's methods to choose one of a machine's addresses, as far as they identify the adapter: the vSwitch must be on
//! the adapter with the node's address.

use std::net::Ipv4Addr;

use regex::Regex;

use super::resolver::Resolver;
use crate::config::types::Address;
use crate::facts::{Adapter, ClusterFacts, physical};
use crate::values::Cidr;

/// Interfaces that Calico for Windows skips with every method except `interface=`.
const EXCLUDED: [&str; 5] = [r".*cbr.*", r".*[Dd]ocker.*", r".*\(nat\).*", r".*Calico.*_ep", r"Loopback.*"];

/// The adapter that a method selects: of several, the one with the preferred default route, which comes first. None if
/// none matches, and for the methods that depend on the machine: what `can-reach=` and `first-found` select changes
/// with its routes and with every adapter that comes up, while HNS's own choice, the primary adapter, stays the same.
pub(super) fn adapter<'a>(
    to: &Resolver<'_>,
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
            let internal = internal_ips(to, adapters, cluster);
            usable().find(|adapter| has(adapter, &|ip| internal.contains(&ip.to_string())))
        }
        _ => None,
    }
}

/// The addresses that kubelet reports of this machine: those of the Node, unless a kubelet of this program gets another.
fn internal_ips(to: &Resolver<'_>, adapters: &[Adapter], cluster: Option<&ClusterFacts>) -> Vec<String> {
    let installs = to.given("kubernetes.node.install").unwrap_or(false);
    let given = to.chosen("kubernetes.node.nodeIP").filter(|_| installs).map(|Address(ip)| ip.to_string());
    let reported = || cluster?.node.as_ref().map(|node| node.internal_ips.clone()).filter(|ips| !ips.is_empty());
    let detected = || Adapter::choose(adapters, None, None)?.reachable_address().filter(|_| installs);
    match given {
        Some(given) => vec![given],
        None => reported().unwrap_or_else(|| detected().iter().map(Ipv4Addr::to_string).collect()),
    }
}

/// Whether an adapter's name matches one of some expressions, before or after a vSwitch was bound to it.
fn is_named(adapter: &Adapter, patterns: &[&str]) -> bool {
    let name = adapter.name.as_str();
    let fits = |pattern: &&str| Regex::new(pattern).is_ok_and(|it| it.is_match(name) || it.is_match(physical(name)));
    patterns.iter().any(fits)
}
