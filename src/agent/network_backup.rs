//! The host's network settings that a new vSwitch loses: saved before, restored after. The file survives crashes and
//! power cuts.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::item::{Access, Id, IpConfig, State};
use crate::node::hns::physical;
use crate::node::{Listing, Node, SAVED_NETWORK};
use crate::report::event::{Event, Sink};
use crate::values::{Cidr, WinPath};

/// The content of [`SAVED_NETWORK`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkBackup {
    /// Everything was restored. The next save then replaces the adapters, except for static addresses that are lost.
    pub restored: bool,
    /// By the name of the physical adapter, also for its vSwitch.
    pub adapters: BTreeMap<String, IpConfig>,
    pub routes: Vec<Route>,
    /// RemoteAccess ran; it is restarted once the vSwitch exists.
    #[serde(default)]
    pub remote_access: bool,
}

/// The service that speaks BGP on Windows.
pub fn remote_access() -> Id {
    Id::Running("RemoteAccess".into())
}

/// A route that a new vSwitch loses: link-local ones, for example to the clouds' metadata services, and to Azure's host
/// service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    pub prefix: Cidr,
    /// The physical adapter.
    pub adapter: String,
    pub next_hop: Ipv4Addr,
    pub metric: u32,
}

/// An address that other machines can reach.
pub fn reachable(ip: Ipv4Addr) -> bool {
    !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified()
}

impl NetworkBackup {
    pub fn path() -> WinPath {
        WinPath::known(SAVED_NETWORK)
    }

    /// The last save. None if there is no file, or it cannot be parsed: it is never incomplete, because it is replaced
    /// atomically.
    ///
    /// # Errors
    /// When there is a file that cannot be read.
    pub fn load(node: &dyn Node) -> Result<Option<Self>> {
        match fs::read(node.disk(&Self::path())) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("read {}", Self::path())),
        }
    }

    /// Reads the node, and adds what was saved before: all of it if the last one was not restored, because of a power
    /// cut or an error; else the routes, which the active store loses at every boot.
    ///
    /// # Errors
    /// When the node cannot be read, or the file not be written.
    pub fn take(node: &mut dyn Node) -> Result<Self> {
        let now = Self::look(node)?;
        let saved = match Self::load(node)? {
            Some(before) => now.merged_over(before),
            None => now,
        };
        saved.store(node)?;
        Ok(saved)
    }

    fn look(node: &dyn Node) -> Result<Self> {
        let configs = configs(node)?;
        let routes = lost_routes(node, &configs)?;
        let mut adapters: BTreeMap<String, IpConfig> = BTreeMap::new();
        for (name, config) in configs {
            let serves = serves(&config);
            // Of an adapter and the host's side of its vSwitch, use the one with the address.
            if serves || !adapters.contains_key(physical(&name)) {
                adapters.insert(physical(&name).to_owned(), config);
            }
        }
        let remote_access = node.get(&remote_access())?.is_some();
        Ok(Self { restored: false, adapters, routes, remote_access })
    }

    fn merged_over(mut self, before: Self) -> Self {
        if !before.restored {
            self.remote_access |= before.remote_access;
        }
        for (name, former) in before.adapters {
            let is_current = self.adapters.get(&name).is_some_and(|now| match before.restored {
                false => serves(now) && (former.dhcp || !now.dhcp),
                true => former.dhcp || is_set_by_administrator(now, &former),
            });
            if !is_current {
                self.adapters.insert(name, former);
            }
        }
        for route in before.routes {
            if !self.routes.iter().any(|known| known.prefix == route.prefix) {
                self.routes.push(route);
            }
        }
        self
    }

    /// Takes over what an administrator changed on an adapter while the service ran. Returns whether that is new.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn learn(&mut self, node: &mut dyn Node, interface: &str, now: &IpConfig) -> Result<bool> {
        let name = physical(interface).to_owned();
        if self.adapters.get(&name).is_none_or(|known| same(known, now)) {
            return Ok(false);
        }
        self.adapters.insert(name, now.clone());
        self.store(node)?;
        Ok(true)
    }

    /// # Errors
    /// When the file cannot be written.
    pub fn store(&self, node: &mut dyn Node) -> Result<()> {
        let path = Self::path();
        let text = serde_json::to_vec_pretty(self)?;
        node.save(&path, &text, Access::Administrators).with_context(|| format!("write {path}"))
    }

    /// Restores a static address that the host's side of a vSwitch did not get: Windows Server 2004 and 20H2 lose it
    /// (microsoft/SDN issue 498). Reports it. Does nothing with DHCP, whose address arrives automatically, or if the
    /// address is there.
    ///
    /// # Errors
    /// When Windows refuses it.
    pub fn restore_address(&self, node: &mut dyn Node, events: Sink<'_>) -> Result<()> {
        let now = configs(node)?;
        for (name, former) in self.adapters.iter().filter(|(_, former)| !former.dhcp) {
            let wanted: Vec<&Cidr> = former.addresses.iter().filter(|cidr| reachable(cidr.addr())).collect();
            // With its gateway, which a vSwitch may lose alone.
            let whole = |ip: &IpConfig| ip.gateway.is_some() || former.gateway.is_none();
            let elsewhere =
                now.iter().any(|(_, ip)| wanted.iter().any(|cidr| ip.addresses.contains(cidr)) && whole(ip));
            let switch = now.iter().find(|(other, _)| other != name && physical(other) == name);
            let host = switch.or_else(|| now.iter().find(|(other, _)| other == name));
            let (Some((host, _)), false, false) = (host, wanted.is_empty(), elsewhere) else { continue };
            let addresses: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let message = format!("{host} lost the static address {}, which is restored", addresses.join(", "));
            events(Event::Warning { id: "StaticAddressRestored", message });
            let id = Id::Adapter(host.clone());
            node.put(&id, Some(&State::Adapter(former.clone()))).with_context(|| format!("configure {id}"))?;
        }
        Ok(())
    }

    /// Restores name servers and metric that were set by hand, on the interface that now has the management IP.
    ///
    /// # Errors
    /// When Windows refuses it.
    pub fn restore_settings(&self, node: &mut dyn Node, interface: &str, events: Sink<'_>) -> Result<()> {
        let Some(former) = self.adapters.get(physical(interface)) else { return Ok(()) };
        let id = Id::Adapter(interface.to_owned());
        let Some(State::Adapter(now)) = node.get(&id)? else { return Ok(()) };
        let mut wanted = now.clone();
        if !former.dhcp {
            // A second address counts too.
            (wanted.dhcp, wanted.addresses, wanted.gateway) = (false, former.addresses.clone(), former.gateway);
        }
        if !former.dns.is_empty() {
            wanted.dns.clone_from(&former.dns);
        }
        wanted.metric = former.metric.or(now.metric);
        if same(&wanted, &now) {
            return Ok(());
        }
        events(Event::Log { message: format!("{interface} lost settings to the vSwitch, which are restored") });
        node.put(&id, Some(&State::Adapter(wanted))).map(drop).with_context(|| format!("configure {id}"))
    }
}

/// Whether an adapter has an address that other machines can reach.
pub fn serves(config: &IpConfig) -> bool {
    config.addresses.iter().any(|cidr| reachable(cidr.addr()))
}

/// Whether an administrator gave this configuration to an adapter that had a static one when the service ran last. A
/// vSwitch that Windows created at the boot may have DHCP instead (calico issue 4631), and an address that Windows
/// still tests for duplicates does not exist yet.
fn is_set_by_administrator(now: &IpConfig, former: &IpConfig) -> bool {
    let new = |cidr: &Cidr| !former.addresses.contains(cidr);
    !now.dhcp && now.addresses.iter().any(|cidr| reachable(cidr.addr()) && new(cidr))
}

/// Addresses have no order.
fn same(a: &IpConfig, b: &IpConfig) -> bool {
    let sorted = |config: &IpConfig| {
        let mut config = config.clone();
        config.addresses.sort_by_key(|cidr| (cidr.addr(), cidr.prefix_len()));
        config
    };
    sorted(a) == sorted(b)
}

/// The IPv4 configuration of every adapter that is up.
///
/// # Errors
/// When the node cannot be read.
pub fn configs(node: &dyn Node) -> Result<Vec<(String, IpConfig)>> {
    let listed = node.list(Listing::Adapters).context("list the adapters")?;
    Ok(listed
        .into_iter()
        .filter_map(|(id, state)| match (id, state) {
            (Id::Adapter(name), State::Adapter(config)) => Some((name, config)),
            _ => None,
        })
        .collect())
}

/// The routes there are now that are lost when a vSwitch is made, or the last network on it deleted. `configs`: as
/// [`configs`] returns them.
///
/// # Errors
/// When the node cannot be read.
pub fn lost_routes(node: &dyn Node, configs: &[(String, IpConfig)]) -> Result<Vec<Route>> {
    let own: Vec<Ipv4Addr> = configs.iter().flat_map(|(_, ip)| ip.addresses.iter().map(|cidr| cidr.addr())).collect();
    let routes = node.list(Listing::Routes).context("list the routes")?;
    Ok(routes
        .into_iter()
        .filter_map(|(id, state)| match (id, state) {
            (Id::Route(prefix), State::Route { interface, next_hop, metric }) if is_lost(&prefix, &own) => {
                Some(Route { prefix, adapter: physical(&interface).to_owned(), next_hop, metric })
            }
            _ => None,
        })
        .collect())
}

/// Whether a vSwitch loses a route. Routes that Windows creates for an address do not count.
fn is_lost(prefix: &Cidr, own: &[Ipv4Addr]) -> bool {
    let azure_host = Ipv4Addr::new(168, 63, 129, 16);
    let ip = prefix.addr();
    if ip == azure_host {
        return prefix.prefix_len() == 32;
    }
    let broadcast = Ipv4Addr::new(169, 254, 255, 255);
    ip.is_link_local() && prefix.prefix_len() > 16 && ip != broadcast && !own.contains(&ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dhcp: bool, address: &str) -> IpConfig {
        IpConfig { dhcp, addresses: vec![address.parse().unwrap()], gateway: None, dns: vec![], metric: None }
    }

    fn saved(restored: bool, config: IpConfig, routes: &[&str]) -> NetworkBackup {
        let route = |prefix: &&str| Route {
            prefix: prefix.parse().unwrap(),
            adapter: "Ethernet".into(),
            next_hop: Ipv4Addr::UNSPECIFIED,
            metric: 256,
        };
        let adapters = BTreeMap::from([("Ethernet".into(), config)]);
        NetworkBackup { restored, adapters, routes: routes.iter().map(route).collect(), remote_access: false }
    }

    #[test]
    fn a_save_from_before_a_crash_overrides_an_incomplete_vswitch() {
        let before = config(false, "10.20.0.21/24");
        let incomplete = saved(false, config(true, "169.254.21.21/16"), &[]);
        let merged = incomplete.clone().merged_over(saved(false, before.clone(), &["169.254.169.254/32"]));
        assert_eq!(merged.adapters["Ethernet"], before);
        assert_eq!(merged.routes.len(), 1);
        // The restored part is complete; its routes are lost at every boot.
        let lease = config(true, "10.20.0.33/24");
        let merged = incomplete.clone().merged_over(saved(true, lease, &["169.254.169.254/32"]));
        assert_eq!(merged.adapters, incomplete.adapters);
        assert_eq!(merged.routes.len(), 1);
    }

    #[test]
    fn a_static_address_is_kept_over_boots_until_an_administrator_gives_another() {
        let former = saved(true, config(false, "10.20.0.21/24"), &[]);
        let kept = |now: IpConfig| saved(false, now, &[]).merged_over(former.clone()).adapters["Ethernet"].clone();
        let mut probed = config(false, "10.20.0.21/24");
        probed.addresses.clear();
        for lost in [config(true, "169.254.21.21/16"), config(true, "10.20.0.77/24"), probed] {
            assert_eq!(kept(lost.clone()), former.adapters["Ethernet"], "{lost:?}");
        }
        let given = config(false, "10.20.0.99/24");
        assert_eq!(kept(given.clone()), given);
    }

    #[test]
    fn an_administrators_new_address_is_not_reverted() {
        let now = saved(false, config(false, "10.20.0.99/24"), &[]);
        let merged = now.clone().merged_over(saved(false, config(false, "10.20.0.21/24"), &[]));
        assert_eq!(merged.adapters, now.adapters);
    }

    #[test]
    fn routes_that_windows_creates_are_not_saved() {
        let own = ["169.254.7.7".parse().unwrap()];
        let lost = |prefix: &&str| is_lost(&prefix.parse().unwrap(), &own);
        let all = ["169.254.169.254/32", "169.254.169.123/32", "168.63.129.16/32", "169.254.0.0/16", "169.254.7.7/32"];
        let others = ["169.254.255.255/32", "0.0.0.0/0", "10.0.0.0/8"];
        let kept: Vec<&&str> = all.iter().chain(&others).filter(|prefix| lost(prefix)).collect();
        assert_eq!(kept, [&"169.254.169.254/32", &"169.254.169.123/32", &"168.63.129.16/32"]);
    }
}
