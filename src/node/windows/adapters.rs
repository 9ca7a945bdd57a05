//! The network adapters and their IPv4 configuration, through the IP helper.

use std::ffi::CStr;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use windows_registry::LOCAL_MACHINE;
use windows_sys::Win32::Foundation::{ERROR_BAD_NET_NAME, ERROR_GEN_FAILURE, ERROR_NOT_FOUND, FARPROC};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    DNS_INTERFACE_SETTINGS, DNS_INTERFACE_SETTINGS_VERSION1, DNS_SETTING_NAMESERVER, MIB_IPINTERFACE_ROW,
    MIB_IPNET_ROW2, MIB_UNICASTIPADDRESS_ROW,
};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, IpDadStatePreferred, IpPrefixOriginManual, IpSuffixOriginManual, SOCKADDR_INET,
};
use windows_sys::core::GUID;

use super::dhcp;
use super::dll;
use super::iphelper::{self, Interface, RouteRow};
use super::routes;
use super::wide::wide;
use crate::facts::Adapter;
use crate::fault::{Exit, Fault};
use crate::item::IpConfig;
use crate::node::win32::{self, refused};
use crate::values::Cidr;

/// The metric of a gateway's route by default.
const GATEWAY_METRIC: u32 = 256;

/// Every adapter that is up, for [`crate::facts::NodeFacts`]: the preferred default route first.
pub fn facts() -> Result<Vec<Adapter>> {
    let interfaces = iphelper::interfaces()?;
    let rows = iphelper::routes()?;
    let fact = |interface: &Interface| Adapter {
        name: interface.name.clone(),
        mac: interface.mac.clone(),
        addresses: interface.addresses.clone(),
        gateway: gateway(&rows, interface),
        dhcp: interface.dhcp,
        team: is_team(&interface.description),
    };
    let mut up: Vec<&Interface> = interfaces.iter().filter(|interface| interface.up).collect();
    up.sort_by_key(|interface| default_route_metric(&rows, interface).unwrap_or(u32::MAX));
    Ok(up.into_iter().map(fact).collect())
}

/// Windows' own teaming (LBFO) shows its team as one adapter of this driver. HNS cannot create a vSwitch on it from
/// Server 2022 on.
fn is_team(description: &str) -> bool {
    description.to_lowercase().contains("network adapter multiplexor")
}

/// The IPv4 configuration of every adapter that is up.
pub fn list() -> Result<Vec<(String, IpConfig)>> {
    let rows = iphelper::routes()?;
    let up = iphelper::interfaces()?.into_iter().filter(|interface| interface.up);
    Ok(up.map(|interface| (interface.name.clone(), config(&interface, &rows))).collect())
}

pub fn get(name: &str) -> Result<Option<IpConfig>> {
    let Some(interface) = iphelper::interface_named(name)?.filter(|interface| interface.up) else {
        return Ok(None);
    };
    Ok(Some(config(&interface, &iphelper::routes()?)))
}

/// Restores what a vSwitch made an adapter lose. With DHCP only the metric and the DNS servers that were set by hand:
/// the rest comes from the lease. Addresses and gateway count at once, and after the next boot.
///
/// # Errors
/// Windows error 1168 if there is no such adapter; `DhcpNotSet` if Windows accepts the change and does not make it.
pub fn put(name: &str, wanted: &IpConfig) -> Result<()> {
    let find = || -> Result<Interface> {
        let none = || refused(win32::NOT_FOUND, format!("configure adapter {name}"));
        iphelper::interface_named(name)?.ok_or_else(|| none().into())
    };
    let mut interface = find()?;
    // First what the DHCP client reads: it would remove an address that is set while it is on.
    match (wanted.dhcp, interface.dhcp) {
        (false, _) => keep(&interface, wanted)?,
        (true, false) => forget(&interface)?,
        (true, true) => {}
    }
    if wanted.dhcp != interface.dhcp {
        dhcp::set(interface.index, wanted.dhcp)?;
        interface = find()?;
        if wanted.dhcp != interface.dhcp {
            let is = if wanted.dhcp { "off" } else { "on" };
            let what = format!("Windows accepted the change of DHCP of adapter {name}, and it is still {is}");
            return Err(Fault::new(Exit::Failed, "DhcpNotSet", what).into());
        }
    }
    let rows = iphelper::routes()?;
    let now = config(&interface, &rows);
    if !wanted.dhcp {
        for address in wanted.addresses.iter().filter(|address| !now.addresses.contains(address)) {
            add_address(&interface, *address)?;
        }
        if let Some(gateway) = wanted.gateway.filter(|_| now.gateway != wanted.gateway) {
            let prefix = routes::default_prefix();
            let row = RouteRow { prefix, interface: interface.index, next_hop: gateway, metric: GATEWAY_METRIC };
            routes::add(&row).with_context(|| format!("set the gateway of adapter {name}"))?;
        }
    }
    if now.dns != wanted.dns {
        set_dns(&interface, &wanted.dns)?;
    }
    if now.metric != wanted.metric {
        set_metric(&interface, wanted.metric)?;
    }
    Ok(())
}

/// Writes a static configuration for the next boot, when the DHCP client reads it and gives it to the adapter: the IP
/// helper changes the active store alone. The values are those of Microsoft's "TCP/IP and NBT configuration parameters"
/// (KB 314053).
fn keep(interface: &Interface, wanted: &IpConfig) -> Result<()> {
    let what = || format!("keep the static address of adapter {}", interface.name);
    let key = LOCAL_MACHINE.create(interface_key(interface)).with_context(what)?;
    let addresses: Vec<String> = wanted.addresses.iter().map(|cidr| cidr.addr().to_string()).collect();
    let masks: Vec<String> = wanted.addresses.iter().map(|cidr| cidr.netmask().to_string()).collect();
    let gateways: Vec<String> = wanted.gateway.iter().map(ToString::to_string).collect();
    let metrics: Vec<String> = gateways.iter().map(|_| "0".to_owned()).collect();
    let lists = [
        ("IPAddress", addresses),
        ("SubnetMask", masks),
        ("DefaultGateway", gateways),
        ("DefaultGatewayMetric", metrics),
    ];
    for (name, list) in lists {
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        key.set_multi_string(name, &list).with_context(what)?;
    }
    // Last: without it Windows ignores the others.
    key.set_u32("EnableDHCP", 0).with_context(what)
}

/// Removes what [`keep`] writes.
fn forget(interface: &Interface) -> Result<()> {
    let what = || format!("remove the static address of adapter {}", interface.name);
    let key = LOCAL_MACHINE.create(interface_key(interface)).with_context(what)?;
    for name in ["IPAddress", "SubnetMask", "DefaultGateway", "DefaultGatewayMetric"] {
        key.set_multi_string(name, &[] as &[&str]).with_context(what)?;
    }
    key.set_u32("EnableDHCP", 1).with_context(what)
}

/// Asks for a neighbour's hardware address; its cached address does not count.
///
/// # Errors
/// When no adapter is on its network, and if Windows cannot ask.
pub fn answers(neighbour: Ipv4Addr) -> Result<bool> {
    type Resolve = unsafe extern "system" fn(*mut MIB_IPNET_ROW2, *const SOCKADDR_INET) -> u32;
    let what = || format!("ask {neighbour} for its hardware address");
    let interfaces = iphelper::interfaces()?;
    let near = |interface: &&Interface| interface.up && interface.addresses.iter().any(|net| net.contains(&neighbour));
    let Some(interface) = interfaces.iter().find(near) else { return Ok(false) };
    let found = iphelper::function(c"ResolveIpNetEntry2", &what())?;
    // SAFETY: the function of this name has this form (netioapi.h); a found function is not null, and
    // `Option` of it has the same form.
    let resolve = unsafe { std::mem::transmute::<FARPROC, Resolve>(found) };
    let mut row = MIB_IPNET_ROW2 {
        Address: iphelper::sockaddr(neighbour),
        InterfaceIndex: interface.index,
        ..Default::default()
    };
    // SAFETY: the row outlives the call, which writes to it; no address to ask from is given.
    match unsafe { resolve(&raw mut row, std::ptr::null()) } {
        0 => Ok(true),
        // No machine has that address, or the link is down.
        ERROR_BAD_NET_NAME | ERROR_NOT_FOUND | ERROR_GEN_FAILURE => Ok(false),
        code => Err(refused(code, what()).into()),
    }
}

fn config(interface: &Interface, rows: &[RouteRow]) -> IpConfig {
    IpConfig {
        dhcp: interface.dhcp,
        addresses: interface.addresses.clone(),
        gateway: gateway(rows, interface),
        dns: dns(interface),
        metric: metric(interface),
    }
}

/// Next hop of the interface's own default route.
fn gateway(rows: &[RouteRow], interface: &Interface) -> Option<Ipv4Addr> {
    let best = routes::best(rows, std::slice::from_ref(interface), &routes::default_prefix())?;
    Some(best.next_hop).filter(|ip| !ip.is_unspecified())
}

/// The value that Windows compares: the sum of the route's own metric and the interface's.
fn default_route_metric(rows: &[RouteRow], interface: &Interface) -> Option<u32> {
    let best = routes::best(rows, std::slice::from_ref(interface), &routes::default_prefix())?;
    Some(best.metric.saturating_add(interface.metric))
}

/// The registry key with what was set by hand.
fn interface_key(interface: &Interface) -> String {
    format!(r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces\{}", interface.guid)
}

fn dns(interface: &Interface) -> Vec<Ipv4Addr> {
    let servers = LOCAL_MACHINE.open(interface_key(interface)).and_then(|key| key.get_string("NameServer"));
    let servers = servers.unwrap_or_default();
    servers.split([',', ' ']).filter_map(|server| server.parse().ok()).collect()
}

/// The interface metric, if it was set. If Windows cannot be asked, treat it as automatic.
fn metric(interface: &Interface) -> Option<u32> {
    let row = interface_row(interface).ok()?;
    (!row.UseAutomaticMetric).then_some(row.Metric)
}

fn interface_row(interface: &Interface) -> Result<MIB_IPINTERFACE_ROW> {
    let mut row = MIB_IPINTERFACE_ROW { Family: AF_INET, InterfaceIndex: interface.index, ..Default::default() };
    let to = format!("read the metric of adapter {}", interface.name);
    change(c"GetIpInterfaceEntry", &mut row, to)?;
    Ok(row)
}

fn set_metric(interface: &Interface, metric: Option<u32>) -> Result<()> {
    let mut row = interface_row(interface)?;
    row.UseAutomaticMetric = metric.is_none();
    row.Metric = metric.unwrap_or(0);
    // Windows reads 64 for IPv4 and accepts only 0 (SetIpInterfaceEntry, remarks).
    row.SitePrefixLength = 0;
    change(c"SetIpInterfaceEntry", &mut row, format!("set the metric of adapter {}", interface.name))
}

fn add_address(interface: &Interface, address: Cidr) -> Result<()> {
    let mut row = MIB_UNICASTIPADDRESS_ROW {
        Address: iphelper::sockaddr(address.addr()),
        InterfaceIndex: interface.index,
        PrefixOrigin: IpPrefixOriginManual,
        SuffixOrigin: IpSuffixOriginManual,
        ValidLifetime: u32::MAX,
        PreferredLifetime: u32::MAX,
        OnLinkPrefixLength: address.prefix_len(),
        // Known to be unique: the adapter had it before.
        DadState: IpDadStatePreferred,
        ..Default::default()
    };
    let to = format!("give adapter {} the address {address}", interface.name);
    match change(c"CreateUnicastIpAddressEntry", &mut row, to) {
        // It exists, but is still being probed for duplicates.
        Err(e) if e.downcast_ref::<Fault>().is_some_and(|fault| fault.id == "AlreadyExists") => Ok(()),
        other => other,
    }
}

/// Calls a function of the IP helper that takes a row and returns an error number.
fn change<Row>(name: &CStr, row: &mut Row, to: String) -> Result<()> {
    let found = iphelper::function(name, &to)?;
    // SAFETY: this module's callers pass the row that the named function takes (netioapi.h); a
    // found function is not null, and `Option` of it has the same form.
    let call = unsafe { std::mem::transmute::<FARPROC, unsafe extern "system" fn(*mut Row) -> u32>(found) };
    // SAFETY: the row is ours for the length of the call.
    iphelper::check(unsafe { call(row) }, || to)
}

/// Sets the DNS servers, with the function that Windows has for it since 2004, or else in the registry, where that
/// function writes them; the DNS client reads them there when the adapter comes up again.
fn set_dns(interface: &Interface, servers: &[Ipv4Addr]) -> Result<()> {
    let what = || format!("set the DNS servers of adapter {}", interface.name);
    let text: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let text = text.join(",");
    let (Ok(found), Some(guid)) = (dll::function("iphlpapi.dll", c"SetInterfaceDnsSettings"), guid(&interface.guid))
    else {
        let key = LOCAL_MACHINE.create(interface_key(interface)).with_context(what)?;
        return key.set_string("NameServer", &text).with_context(what);
    };
    let mut servers = wide(&text);
    let settings = DNS_INTERFACE_SETTINGS {
        Version: DNS_INTERFACE_SETTINGS_VERSION1,
        Flags: u64::from(DNS_SETTING_NAMESERVER),
        NameServer: servers.as_mut_ptr(),
        ..Default::default()
    };
    type Set = unsafe extern "system" fn(GUID, *const DNS_INTERFACE_SETTINGS) -> u32;
    // SAFETY: SetInterfaceDnsSettings has this form (netioapi.h); a found function is not null.
    let set = unsafe { std::mem::transmute::<FARPROC, Set>(found) };
    // SAFETY: the settings and the text in them outlive the call.
    iphelper::check(unsafe { set(guid, &raw const settings) }, what)
}

/// `{6B29FC40-CA47-1067-B31D-00DD010662DA}` as a number.
fn guid(text: &str) -> Option<GUID> {
    let digits: String = text.trim_matches(['{', '}']).split('-').collect();
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok().map(GUID::from_u128))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::windows::testing::Machine;

    #[test]
    fn a_team_is_recognized_by_its_driver() {
        assert!(is_team("Microsoft Network Adapter Multiplexor Driver"));
        assert!(is_team("Microsoft Network Adapter Multiplexor Driver #2"));
        assert!(!is_team("vmxnet3 Ethernet Adapter"));
    }

    /// calico issue 4631: an address in the active store is gone after the next boot.
    #[test]
    fn a_restored_static_address_is_kept_and_dhcp_is_off_now_and_after_the_next_boot() {
        let Some(machine) = Machine::new() else { return };
        machine.write("adapters", &machine.read("adapters").replace("10.20.0.21/24\t0", "169.254.21.21/16\t1"));
        let wanted = IpConfig {
            dhcp: false,
            addresses: vec!["10.20.0.21/24".parse().unwrap(), "10.20.0.22/20".parse().unwrap()],
            gateway: Some([10, 20, 0, 1].into()),
            dns: Vec::new(),
            metric: None,
        };
        assert!(get("Ethernet").unwrap().unwrap().dhcp);
        put("Ethernet", &wanted).unwrap();
        let now = get("Ethernet").unwrap().unwrap();
        assert_eq!((now.dhcp, now.addresses.contains(&wanted.addresses[0])), (false, true));
        let interface = iphelper::interface_named("Ethernet").unwrap().unwrap();
        let key = LOCAL_MACHINE.open(interface_key(&interface)).unwrap();
        let list = |name: &str| key.get_multi_string(name).unwrap();
        assert_eq!(key.get_u32("EnableDHCP").unwrap(), 0);
        assert_eq!(list("IPAddress"), ["10.20.0.21", "10.20.0.22"]);
        assert_eq!(list("SubnetMask"), ["255.255.255.0", "255.255.240.0"]);
        assert_eq!(
            (list("DefaultGateway"), list("DefaultGatewayMetric")),
            (vec!["10.20.0.1".into()], vec!["0".into()])
        );
        let lease = IpConfig { dhcp: true, ..wanted };
        put("Ethernet", &lease).unwrap();
        assert!(get("Ethernet").unwrap().unwrap().dhcp);
        assert_eq!((key.get_u32("EnableDHCP").unwrap(), list("IPAddress")), (1, Vec::new()));
        drop(key);
        LOCAL_MACHINE.remove_tree(interface_key(&interface)).unwrap();
    }

    #[test]
    fn a_dhcp_client_that_is_not_switched_says_why() {
        let mut told = Vec::new();
        for fault in ["PUT keep", "PUT 0x80041003", "PUT 0x80070057"] {
            let Some(machine) = Machine::new() else { return };
            machine.write("wmi.faults", fault);
            let wanted = IpConfig { dhcp: false, ..get("Ethernet").unwrap().unwrap() };
            let error = put("Ethernet", &wanted).unwrap_err();
            told.push(format!("{}: {error:#}", Fault::id_of(&error)));
            assert!(get("Ethernet").unwrap().unwrap().dhcp);
        }
        insta::assert_snapshot!(told.join("\n"), @"
        DhcpNotSet: Windows accepted the change of DHCP of adapter Ethernet, and it is still on
        AccessDenied: switch DHCP off on interface 7 (Windows error 5: access is denied)
        WindowsError: switch DHCP off on interface 7 (Windows error 87: the parameter is incorrect)
        ");
    }

    #[test]
    fn an_interfaces_guid_is_parsed() {
        let read = guid("{6B29FC40-CA47-1067-B31D-00DD010662DA}").unwrap();
        assert_eq!((read.data1, read.data2, read.data4[7]), (0x6B29_FC40, 0xCA47, 0xDA));
        assert!(guid("lo").is_none());
    }
}
