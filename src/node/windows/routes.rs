//! IPv4 routes of the active store, through the IP helper. They are lost at a reboot, and when their adapter is reset.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use windows_sys::Win32::NetworkManagement::IpHelper::MIB_IPFORWARD_ROW2;
use windows_sys::Win32::Networking::WinSock::{MIB_IPPROTO_NETMGMT, NlroManual};

use super::iphelper::{self, Interface, RouteRow};
use crate::item::{Id, State};
use crate::node::win32::{self, refused};
use crate::values::Cidr;

/// Creates, deletes or changes a route; returns a Windows error.
type Change = unsafe extern "system" fn(*const MIB_IPFORWARD_ROW2) -> u32;

/// Every route on an interface that has a name. A prefix with several routes appears once for each.
pub fn list() -> Result<Vec<(Id, State)>> {
    let names = names(iphelper::interfaces()?);
    let state = |row: RouteRow| Some((Id::Route(row.prefix), state(&row, names.get(&row.interface)?)));
    Ok(iphelper::routes()?.into_iter().filter_map(state).collect())
}

/// The route to a prefix: of several, the one that Windows uses.
pub fn get(prefix: &Cidr) -> Result<Option<State>> {
    let interfaces = iphelper::interfaces()?;
    let best = best(&iphelper::routes()?, &interfaces, prefix);
    let names = names(interfaces);
    Ok(best.and_then(|row| Some(state(&row, names.get(&row.interface)?))))
}

/// Makes this the only route to its prefix, or removes all of them. Only the default route may have others: those of
/// other adapters are not ours.
///
/// # Errors
/// Windows error 1168 if there is no such interface.
pub fn put(prefix: &Cidr, route: Option<&State>) -> Result<()> {
    let old: Vec<RouteRow> = iphelper::routes()?.into_iter().filter(|row| row.prefix == *prefix).collect();
    let Some(state) = route else {
        return old.iter().try_for_each(delete);
    };
    let State::Route { interface, next_hop, metric } = state else {
        bail!("route {prefix} cannot be put as {state:?}");
    };
    let Some(adapter) = iphelper::interface_named(interface)? else {
        return Err(refused(win32::NOT_FOUND, format!("add route {prefix} on {interface}")).into());
    };
    add(&RouteRow { prefix: *prefix, interface: adapter.index, next_hop: *next_hop, metric: *metric })?;
    if prefix.prefix_len() == 0 {
        return Ok(());
    }
    old.iter().filter(|row| row.interface != adapter.index || row.next_hop != *next_hop).try_for_each(delete)
}

/// Adds a route, or sets the metric of an existing one.
pub fn add(row: &RouteRow) -> Result<()> {
    match change(c"CreateIpForwardEntry2", row, "add")? {
        win32::OBJECT_ALREADY_EXISTS => {
            let code = change(c"SetIpForwardEntry2", row, "change")?;
            iphelper::check(code, || describe("change", row))
        }
        code => iphelper::check(code, || describe("add", row)),
    }
}

fn delete(row: &RouteRow) -> Result<()> {
    match change(c"DeleteIpForwardEntry2", row, "delete")? {
        // Already gone, for example with its adapter.
        win32::NOT_FOUND | win32::FILE_NOT_FOUND => Ok(()),
        code => iphelper::check(code, || describe("delete", row)),
    }
}

fn change(function: &std::ffi::CStr, row: &RouteRow, verb: &str) -> Result<u32> {
    let found = iphelper::function(function, &describe(verb, row))?;
    // SAFETY: the three functions of these names take a row and answer with an error number
    // (netioapi.h); a found function is not null, and `Option` of it has the same form.
    let call = unsafe { std::mem::transmute::<windows_sys::Win32::Foundation::FARPROC, Change>(found) };
    let entry = entry(row);
    // SAFETY: the row outlives the call, which only reads it.
    Ok(unsafe { call(&raw const entry) })
}

/// The row with the defaults of InitializeIpForwardEntry: no expiry, created by the administrator.
fn entry(row: &RouteRow) -> MIB_IPFORWARD_ROW2 {
    let mut entry = MIB_IPFORWARD_ROW2 {
        InterfaceIndex: row.interface,
        NextHop: iphelper::sockaddr(row.next_hop),
        ValidLifetime: u32::MAX,
        PreferredLifetime: u32::MAX,
        Metric: row.metric,
        Protocol: MIB_IPPROTO_NETMGMT,
        Immortal: true,
        Origin: NlroManual,
        ..Default::default()
    };
    entry.DestinationPrefix.Prefix = iphelper::sockaddr(row.prefix.network());
    entry.DestinationPrefix.PrefixLength = row.prefix.prefix_len();
    entry
}

/// Of the routes to a prefix, the one with the lowest sum of its own and its interface's metric.
pub fn best(routes: &[RouteRow], interfaces: &[Interface], prefix: &Cidr) -> Option<RouteRow> {
    let metric = |index: u32| interfaces.iter().find(|interface| interface.index == index).map(|i| i.metric);
    routes
        .iter()
        .filter(|row| row.prefix == *prefix)
        .filter_map(|row| Some((row.metric.saturating_add(metric(row.interface)?), row)))
        .min_by_key(|(metric, _)| *metric)
        .map(|(_, row)| *row)
}

/// The default route's prefix.
pub fn default_prefix() -> Cidr {
    Cidr::new(ipnet::Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0))
}

fn names(interfaces: Vec<Interface>) -> HashMap<u32, String> {
    interfaces.into_iter().map(|interface| (interface.index, interface.name)).collect()
}

fn state(row: &RouteRow, interface: &str) -> State {
    State::Route { interface: interface.to_owned(), next_hop: row.next_hop, metric: row.metric }
}

fn describe(verb: &str, row: &RouteRow) -> String {
    format!("{verb} route {} by {} on interface {}", row.prefix, row.next_hop, row.interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::node::windows::testing::Machine;

    fn metadata() -> Cidr {
        "169.254.169.254/32".parse().unwrap()
    }

    fn on(interface: &str, metric: u32) -> State {
        State::Route { interface: interface.into(), next_hop: Ipv4Addr::UNSPECIFIED, metric }
    }

    #[test]
    fn of_several_routes_the_one_that_windows_uses_is_returned() {
        let Some(machine) = Machine::new() else { return };
        let adapter = |index: u32, name: &str, metric: u32| {
            format!("{index}\t{name}\t00-15-5D-01-02-03\t1\t{metric}\tvmxnet3\t10.{index}.0.21/24\t0\n")
        };
        machine.write("adapters", &[adapter(7, "Slow", 100), adapter(8, "Fast", 5), adapter(9, "Lab", 50)].concat());
        let row = |index: u32, metric: u32| format!("0.0.0.0/0\t{index}\t10.{index}.0.1\t{metric}\n");
        // Also a route on an unknown interface.
        machine.write("routes", &[row(7, 0), row(8, 20), row(42, 0)].concat());
        let State::Route { interface, metric, .. } = get(&default_prefix()).unwrap().unwrap() else { unreachable!() };
        assert_eq!((interface.as_str(), metric), ("Fast", 20), "route and interface metric count together");
        let facts = super::super::adapters::facts().unwrap();
        let names: Vec<&str> = facts.iter().map(|adapter| adapter.name.as_str()).collect();
        assert_eq!(names, ["Fast", "Slow", "Lab"], "the preferred default route first");
        assert_eq!(list().unwrap().len(), 2);
    }

    #[test]
    fn a_route_moves_with_its_adapter_and_a_default_route_keeps_others() {
        let Some(machine) = Machine::new() else { return };
        let second = "8\tBackup\t00-15-5D-01-02-04\t1\tauto\tvmxnet3\t10.30.0.21/24\t0\n";
        machine.write("adapters", &(machine.read("adapters") + second));
        put(&metadata(), Some(&on("Ethernet", 256))).unwrap();
        put(&metadata(), Some(&on("backup", 256))).unwrap();
        assert_eq!(get(&metadata()).unwrap(), Some(on("Backup", 256)));
        assert_eq!(list().unwrap().len(), 2, "the old one is gone");
        let route = State::Route { interface: "Backup".into(), next_hop: "10.30.0.1".parse().unwrap(), metric: 256 };
        put(&default_prefix(), Some(&route)).unwrap();
        assert_eq!(list().unwrap().iter().filter(|(id, _)| *id == Id::Route(default_prefix())).count(), 2);
    }

    #[test]
    fn a_refusal_names_the_route_and_why() {
        let Some(machine) = Machine::new() else { return };
        let mut tell = Vec::new();
        for (fault, route) in [
            ("CreateIpForwardEntry2 5", Some(on("Ethernet", 256))),
            ("CreateIpForwardEntry2 87", Some(on("Ethernet", 256))),
            ("", Some(on("Wi-Fi", 256))),
            ("GetIpForwardTable2 5", None),
        ] {
            machine.write("iphlpapi.faults", fault);
            let error = put(&metadata(), route.as_ref()).unwrap_err();
            tell.push(format!("{}: {error:#}", Fault::id_of(&error)));
        }
        insta::assert_snapshot!(tell.join("\n"), @r#"
        AccessDenied: add route 169.254.169.254/32 by 0.0.0.0 on interface 7 (Windows error 5: access is denied)
        WindowsError: add route 169.254.169.254/32 by 0.0.0.0 on interface 7 (Windows error 87: the parameter is incorrect)
        NotFound: add route 169.254.169.254/32 on Wi-Fi (Windows error 1168: element not found)
        AccessDenied: list the routes (Windows error 5: access is denied)
        "#);
    }
}
