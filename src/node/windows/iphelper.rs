//! The IP helper's tables of interfaces, routes and sockets, as plain records.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::net::Ipv4Addr;
use std::ptr;

use anyhow::Result;
use ipnet::Ipv4Net;
use windows_sys::Win32::Foundation::{ERROR_BUFFER_OVERFLOW, ERROR_INSUFFICIENT_BUFFER, ERROR_NO_DATA, FARPROC};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_MULTICAST, IP_ADAPTER_ADDRESSES_LH,
    IP_ADAPTER_DHCP_ENABLED, MIB_IPFORWARD_ROW2, MIB_IPFORWARD_TABLE2, MIB_TCP_STATE_ESTAB, MIB_TCPROW_LH, MIB_UDP6ROW,
    MIB_UDPROW, TCP_TABLE_BASIC_CONNECTIONS, UDP_TABLE_BASIC,
};
use windows_sys::Win32::NetworkManagement::Ndis::IfOperStatusUp;
use windows_sys::Win32::Networking::WinSock::{
    ADDRESS_FAMILY, AF_INET, AF_INET6, IpDadStateDeprecated, SOCKADDR_IN, SOCKADDR_INET,
};

use super::dll::{self, late};
use crate::fault::{Exit, Fault};
use crate::node::win32::{self, refused};
use crate::values::Cidr;

late!("iphlpapi.dll":
    fn FreeMibTable(table: *const c_void) -> ();
    fn GetAdaptersAddresses(family: u32, flags: u32, unused: *const c_void, first: *mut IP_ADAPTER_ADDRESSES_LH,
        size: *mut u32) -> u32;
    fn GetExtendedTcpTable(table: *mut c_void, size: *mut u32, sorted: i32, family: u32, kind: i32, unused: u32) -> u32;
    fn GetExtendedUdpTable(table: *mut c_void, size: *mut u32, sorted: i32, family: u32, kind: i32, unused: u32) -> u32;
    fn GetIpForwardTable2(family: ADDRESS_FAMILY, table: *mut *mut MIB_IPFORWARD_TABLE2) -> u32;
);

/// `IF_TYPE_SOFTWARE_LOOPBACK`.
const LOOPBACK: u32 = 24;

/// An interface with IPv4.
#[derive(Debug, Clone)]
pub struct Interface {
    pub index: u32,
    /// GUID in braces: the name of its registry key.
    pub guid: String,
    /// The alias, for example `Ethernet`.
    pub name: String,
    /// The driver's name, for example `vmxnet3 Ethernet Adapter`.
    pub description: String,
    /// For example `00-15-5D-01-02-03`.
    pub mac: String,
    pub up: bool,
    pub dhcp: bool,
    /// Added to the metrics of its routes.
    pub metric: u32,
    /// The usable ones: addresses still being probed for duplicates are left out.
    pub addresses: Vec<Cidr>,
}

impl Interface {
    /// Whether it has this address.
    pub fn holds(&self, ip: Ipv4Addr) -> bool {
        self.addresses.iter().any(|cidr| cidr.addr() == ip)
    }
}

/// Every interface except the loopback.
pub fn interfaces() -> Result<Vec<Interface>> {
    const FLAGS: u32 = GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER;
    let buffer = table("list the network adapters", |buffer, size| {
        // SAFETY: the buffer is aligned to 8 bytes and has at least `size` of them.
        unsafe { GetAdaptersAddresses(AF_INET.into(), FLAGS, ptr::null(), buffer.cast(), size) }
    })?;
    if buffer.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut next: *const IP_ADAPTER_ADDRESSES_LH = buffer.as_ptr().cast();
    // SAFETY: the call succeeded, so the list lies in `buffer`, which is not touched meanwhile, and
    // its last element has no next one.
    while let Some(adapter) = unsafe { next.as_ref() } {
        next = adapter.Next;
        if adapter.IfType != LOOPBACK {
            // SAFETY: as above.
            found.push(unsafe { interface(adapter) });
        }
    }
    Ok(found)
}

/// Reads a table from a call that reports the size it needs; empty if there is nothing to list.
fn table(to: &str, call: impl Fn(*mut u64, &mut u32) -> u32) -> Result<Vec<u64>> {
    // Enough for some tens of adapters; the table may also grow between two calls.
    let mut size: u32 = 16 * 1024;
    let mut buffer = Vec::new();
    let mut tries = 0;
    loop {
        buffer.resize(size.div_ceil(8) as usize, 0);
        match call(buffer.as_mut_ptr(), &mut size) {
            0 => return Ok(buffer),
            ERROR_NO_DATA => return Ok(Vec::new()),
            ERROR_BUFFER_OVERFLOW | ERROR_INSUFFICIENT_BUFFER if tries < 5 => tries += 1,
            code => return Err(refused(code, to).into()),
        }
    }
}

/// Whether a socket uses this UDP port, at any address: an IPv6 socket may receive IPv4 too. It reads the table and
/// does not try to open the port: two programs that try at the same time would each report the other.
pub fn udp_port_is_taken(port: u16) -> Result<bool> {
    let v4 = udp_rows::<MIB_UDPROW>(AF_INET)?.into_iter().map(|row| row.dwLocalPort);
    let v6 = udp_rows::<MIB_UDP6ROW>(AF_INET6)?.into_iter().map(|row| row.dwLocalPort);
    // The lower half is the port, in network byte order.
    Ok(v4.chain(v6).any(|found| u16::from_be(found as u16) == port))
}

fn udp_rows<Row: Copy>(family: ADDRESS_FAMILY) -> Result<Vec<Row>> {
    let buffer = table("list the UDP sockets", |buffer, size| {
        // SAFETY: the buffer is aligned to 8 bytes and has at least `size` of them.
        unsafe { GetExtendedUdpTable(buffer.cast(), size, 0, family.into(), UDP_TABLE_BASIC, 0) }
    })?;
    // SAFETY: the call succeeded, so the buffer holds a count and so many rows.
    Ok(unsafe { rows(&buffer) })
}

/// The other ends of the established IPv4 connections of which either end has this TCP port.
pub fn sessions(port: u16) -> Result<BTreeSet<Ipv4Addr>> {
    let buffer = table("list the TCP connections", |buffer, size| {
        // SAFETY: the buffer is aligned to 8 bytes and has at least `size` of them.
        unsafe { GetExtendedTcpTable(buffer.cast(), size, 0, AF_INET.into(), TCP_TABLE_BASIC_CONNECTIONS, 0) }
    })?;
    // SAFETY: the call succeeded, so the buffer holds a count and so many rows.
    let rows: Vec<MIB_TCPROW_LH> = unsafe { rows(&buffer) };
    let of_port =
        |row: &&MIB_TCPROW_LH| [row.dwLocalPort, row.dwRemotePort].iter().any(|end| u16::from_be(*end as u16) == port);
    // SAFETY: both members of the union are the state, as a number.
    let established = |row: &&MIB_TCPROW_LH| unsafe { row.Anonymous.dwState } == MIB_TCP_STATE_ESTAB as u32;
    let ends = rows.iter().filter(of_port).filter(established);
    Ok(ends.map(|row| Ipv4Addr::from(row.dwRemoteAddr.to_ne_bytes())).collect())
}

/// # Safety
/// The buffer must be empty, or hold a count and so many rows, both of 32 bits.
unsafe fn rows<Row: Copy>(buffer: &[u64]) -> Vec<Row> {
    if buffer.is_empty() {
        return Vec::new();
    }
    let start: *const u32 = buffer.as_ptr().cast();
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(start.add(1).cast::<Row>(), *start as usize) }.to_vec()
}

/// # Safety
/// The adapter's pointers must be those that GetAdaptersAddresses gave.
unsafe fn interface(adapter: &IP_ADAPTER_ADDRESSES_LH) -> Interface {
    let mut addresses = Vec::new();
    let mut next = adapter.FirstUnicastAddress.cast_const();
    // SAFETY: the caller guarantees that the list is valid.
    while let Some(unicast) = unsafe { next.as_ref() } {
        next = unicast.Next;
        // SAFETY: an IPv4 table holds IPv4 addresses, or none.
        let ip = unsafe { unicast.Address.lpSockaddr.cast::<SOCKADDR_IN>().as_ref() }.map(ipv4);
        if let Some(ip) = ip
            && unicast.DadState >= IpDadStateDeprecated
            && let Ok(net) = Ipv4Net::new(ip, unicast.OnLinkPrefixLength)
        {
            addresses.push(Cidr::new(net));
        }
    }
    let length = (adapter.PhysicalAddressLength as usize).min(adapter.PhysicalAddress.len());
    let mac: Vec<String> = adapter.PhysicalAddress[..length].iter().map(|octet| format!("{octet:02X}")).collect();
    // SAFETY: both unions hold plain numbers of the size that is read.
    let (index, flags) = unsafe { (adapter.Anonymous1.Anonymous.IfIndex, adapter.Anonymous2.Flags) };
    Interface {
        index,
        // SAFETY: the name is a text with a zero at its end.
        guid: unsafe { CStr::from_ptr(adapter.AdapterName.cast_const().cast()) }.to_string_lossy().into_owned(),
        // SAFETY: the caller guarantees that the texts are valid.
        name: unsafe { text(adapter.FriendlyName) },
        // SAFETY: as above.
        description: unsafe { text(adapter.Description) },
        mac: mac.join("-"),
        up: adapter.OperStatus == IfOperStatusUp,
        dhcp: flags & IP_ADAPTER_DHCP_ENABLED != 0,
        metric: adapter.Ipv4Metric,
        addresses,
    }
}

/// # Safety
/// The pointer must be null or a UTF-16 text with a zero at its end.
unsafe fn text(pointer: *const u16) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees the zero at its end.
    let length = (0..).take_while(|at| unsafe { *pointer.add(*at) } != 0).count();
    // SAFETY: as many characters were just read.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// The interface with an alias, without regard to case.
pub fn interface_named(name: &str) -> Result<Option<Interface>> {
    Ok(interfaces()?.into_iter().find(|interface| interface.name.to_lowercase() == name.to_lowercase()))
}

/// An IPv4 route of the active store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRow {
    pub prefix: Cidr,
    pub interface: u32,
    pub next_hop: Ipv4Addr,
    pub metric: u32,
}

/// Every IPv4 route.
pub fn routes() -> Result<Vec<RouteRow>> {
    let mut table: *mut MIB_IPFORWARD_TABLE2 = ptr::null_mut();
    // SAFETY: the call writes a pointer to a table of its own.
    let code = unsafe { GetIpForwardTable2(AF_INET, &raw mut table) };
    match code {
        0 => (),
        win32::NOT_FOUND | win32::FILE_NOT_FOUND => return Ok(Vec::new()),
        code => check(code, || "list the routes".into())?,
    }
    // SAFETY: the call succeeded, so there are `NumEntries` rows from `Table` on.
    let rows = unsafe {
        std::slice::from_raw_parts(
            (&raw const (*table).Table).cast::<MIB_IPFORWARD_ROW2>(),
            (*table).NumEntries as usize,
        )
    };
    let read = |row: &MIB_IPFORWARD_ROW2| {
        // SAFETY: an IPv4 table holds IPv4 addresses.
        let (prefix, next_hop) = unsafe { (ipv4(&row.DestinationPrefix.Prefix.Ipv4), ipv4(&row.NextHop.Ipv4)) };
        let prefix = Cidr::new(Ipv4Net::new(prefix, row.DestinationPrefix.PrefixLength).ok()?);
        Some(RouteRow { prefix, interface: row.InterfaceIndex, next_hop, metric: row.Metric })
    };
    let routes = rows.iter().filter_map(read).collect();
    // SAFETY: the table is the call's own and used no more.
    unsafe { FreeMibTable(table.cast()) };
    Ok(routes)
}

fn ipv4(address: &SOCKADDR_IN) -> Ipv4Addr {
    // SAFETY: the union holds four bytes however they are looked at.
    Ipv4Addr::from(unsafe { address.sin_addr.S_un.S_addr }.to_ne_bytes())
}

/// An IPv4 address in the IP helper's form.
pub fn sockaddr(ip: Ipv4Addr) -> SOCKADDR_INET {
    let mut address = SOCKADDR_INET::default();
    // SAFETY: all of the union is zero, which is a valid address of any kind.
    let v4 = unsafe { &mut address.Ipv4 };
    v4.sin_family = AF_INET;
    v4.sin_addr.S_un.S_addr = u32::from_ne_bytes(ip.octets());
    address
}

/// A function of the IP helper that not every system has.
///
/// # Errors
/// UNSUPPORTED, naming the function and what it is needed for.
pub fn function(name: &CStr, to: &str) -> Result<FARPROC> {
    dll::function("iphlpapi.dll", name).map_err(|code| {
        let what = format!("{to}: iphlpapi.dll has no {} (Windows error {code})", name.to_string_lossy());
        Fault::new(Exit::Unsupported, "WindowsFunctionMissing", what)
            .hint("use Windows Server 2019 or later with current updates")
            .into()
    })
}

/// Checks the result of a call of the IP helper.
pub fn check(code: u32, what: impl FnOnce() -> String) -> Result<()> {
    match code {
        0 => Ok(()),
        win32::ACCESS_DENIED => Err(win32::denied(what()).into()),
        code => Err(refused(code, what()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_function_is_named_with_its_purpose() {
        let error = function(c"NoSuchThing", "add route 1.2.3.4/32").unwrap_err();
        assert_eq!(error.to_string(), "add route 1.2.3.4/32: iphlpapi.dll has no NoSuchThing (Windows error 127)");
    }

    #[test]
    fn a_udp_port_is_taken_while_a_socket_uses_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = std::net::UdpSocket::bind(address).unwrap();
            let port = socket.local_addr().unwrap().port();
            assert!(udp_port_is_taken(port).unwrap(), "{address}");
            drop(socket);
            assert!(!udp_port_is_taken(port).unwrap(), "{address}");
        }
    }

    #[test]
    fn a_session_is_named_by_its_other_end_while_it_is_established() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(sessions(port).unwrap(), BTreeSet::new(), "it only listens");
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(sessions(port).unwrap(), [Ipv4Addr::LOCALHOST].into());
        drop((client, server));
    }

    #[test]
    fn addresses_survive_a_round_trip() {
        let ip = Ipv4Addr::new(10, 20, 0, 21);
        let address = sockaddr(ip);
        // SAFETY: `sockaddr` makes an IPv4 address.
        assert_eq!(ipv4(unsafe { &address.Ipv4 }), ip);
    }
}
