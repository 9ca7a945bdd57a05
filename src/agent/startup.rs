//! What CalicoNode does when it starts: after a boot it makes the network that all others stand
//! on, then it runs Calico's node startup.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::calico::agent_config::{AgentConfig, Command};
use crate::facts::Adapter;
use crate::fault::{Exit, Fault};
use crate::node::{Listing, Node};
use crate::plan::item::{Id, Network, NetworkKind, RegValue, State};
use crate::report::event::{Event, Sink};
use crate::settings::Backend;
use crate::values::Cidr;

use super::Run;
use super::patience::{Missing, wait};

/// Subnet of the bootstrap network `External`, as upstream's scripts and others' tools know it.
const EXTERNAL_PREFIX: &str = "192.168.255.0/30";
const EXTERNAL_GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 255, 1);
const EXTERNAL_VSID: u32 = 9999;

/// The key that upstream made, and its readers know.
const KEY: &str = r"Software\Tigera\Calico";

/// How long the vSwitch may need to get its address: with DHCP on slow networks over a minute.
const MANAGEMENT_IP_LIMIT: Duration = Duration::from_secs(120);
/// How long a new vSwitch must keep its address before it counts as settled.
const SETTLED: Duration = Duration::from_secs(3);
/// Calico's node startup fails until the API server answers and the Node object is there.
const STARTUP_LIMIT: Duration = Duration::from_secs(10 * 60);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(30);

/// The registry value that says for which boot the network is up. Felix and confd wait for it.
pub fn boot_id() -> Id {
    Id::RegValue { key: KEY.into(), name: "BootId".into() }
}

/// The same for upstream's own scripts (`kubelet-service.ps1`), which compare it as a text.
pub fn last_boot_time() -> Id {
    Id::RegValue { key: KEY.into(), name: "LastBootTime".into() }
}

/// The cloud's metadata service, which a new vSwitch loses the way to.
pub fn metadata_route() -> Id {
    Id::Route(known("169.254.169.254/32"))
}

/// Brings Calico up on this node: network, mark, node startup. Done again, it finds everything
/// done but node startup, which is meant to run each time.
///
/// # Errors
/// When a wait reaches its limit, naming what is missing; when the node refuses a change; when
/// node startup does not succeed in time.
pub fn bring_up(
    node: &mut dyn Node,
    config: &AgentConfig,
    booted: Timestamp,
    run: Run<'_>,
    events: Sink<'_>,
) -> Result<()> {
    if config.backend != Backend::None {
        remove_stale(node, events)?;
        let valid_ip = Duration::from_secs(config.valid_ip_timeout_s);
        let routed = await_address(node, valid_ip, events)?;
        let made = make_external(node, config, events)?;
        let management_ip = await_management_ip(node, made, routed, events)?;
        if config.metadata_route {
            put_metadata_route(node, management_ip)?;
        }
        if made && config.backend == Backend::WindowsBgp {
            restart_remote_access(node)?;
        }
    }
    // Before node startup, as upstream: its kubelet-service.ps1 starts kubelet after this mark, and
    // node startup needs the Node object that kubelet makes.
    mark_booted(node, booted)?;
    start_node(node, &config.startup, run, events)?;
    check_network(node, config)
}

/// After a reboot what HNS says of our networks cannot be trusted, so they go. Others' networks
/// stay, whatever their type (upstream's scripts remove all but NAT: defect B13). A node that never
/// had a mark of ours was not seen to reboot: pods may live on its networks.
fn remove_stale(node: &mut dyn Node, events: Sink<'_>) -> Result<()> {
    let boot = State::RegValue(RegValue::String(node.facts()?.boot_id));
    if node.get(&boot_id())?.is_none_or(|known| known == boot) {
        return Ok(());
    }
    let ours = |id: &Id, state: &State| match (id, state) {
        (Id::Network(name), _) if name.eq_ignore_ascii_case("Calico") => true,
        (Id::Network(name), State::Network(network)) if name.eq_ignore_ascii_case("External") => {
            network.subnet == Some(known(EXTERNAL_PREFIX))
        }
        _ => false,
    };
    let mut stale: Vec<Id> =
        node.list(Listing::Networks)?.into_iter().filter(|(id, state)| ours(id, state)).map(|(id, _)| id).collect();
    // `External` last: it holds the vSwitch.
    stale.sort_by_key(Id::target);
    for id in stale {
        events(Event::Log { message: format!("first start since boot: removing {id}") });
        node.put(&id, None).with_context(|| format!("remove {id}, which is from before the boot"))?;
    }
    Ok(())
}

/// Waits for an address that others can reach. Tells whether the machine has a default route.
fn await_address(node: &mut dyn Node, limit: Duration, events: Sink<'_>) -> Result<bool> {
    if limit.is_zero() {
        return Ok(node.facts()?.adapters.iter().any(|adapter| adapter.gateway.is_some()));
    }
    wait(node, "a valid IPv4 address", limit, events, |node| {
        let adapters = node.facts()?.adapters;
        if adapters.iter().any(|adapter| valid_address(adapter).is_some()) {
            return Ok(Ok(adapters.iter().any(|adapter| adapter.gateway.is_some())));
        }
        let has = |adapter: &Adapter| {
            let addresses: Vec<String> = adapter.addresses.iter().map(ToString::to_string).collect();
            let addresses = if addresses.is_empty() { "no address".into() } else { addresses.join(", ") };
            format!("{} has {addresses}", adapter.name)
        };
        let all: Vec<String> = adapters.iter().map(has).collect();
        let all = if all.is_empty() { "no adapter is up".into() } else { all.join("; ") };
        Ok(Err(Missing(all)))
    })
}

/// An address that is neither loopback, link-local nor the one of the host on a NAT network.
fn valid_address(adapter: &Adapter) -> Option<Ipv4Addr> {
    if adapter.name.eq_ignore_ascii_case("vEthernet (nat)") {
        return None;
    }
    adapter.addresses.iter().map(|cidr| cidr.addr()).find(|ip| !ip.is_loopback() && !ip.is_link_local())
}

/// Makes `External`, which holds the vSwitch while networks of pods come and go. Tells whether it
/// was made now.
fn make_external(node: &mut dyn Node, config: &AgentConfig, events: Sink<'_>) -> Result<bool> {
    let id = external();
    let (kind, vsid, adapter) = match config.backend {
        Backend::WindowsBgp => (NetworkKind::L2Bridge, None, None),
        _ => (NetworkKind::Overlay, Some(EXTERNAL_VSID), config.adapter.clone()),
    };
    let wanted = State::Network(Network {
        kind,
        subnet: Some(known(EXTERNAL_PREFIX)),
        gateway: Some(EXTERNAL_GATEWAY),
        vsid,
        adapter,
        management_ip: None,
    });
    match node.get(&id)? {
        Some(there) if there.satisfies(&wanted) => return Ok(false),
        Some(State::Network(there)) if there.subnet != Some(known(EXTERNAL_PREFIX)) => {
            // Somebody else's. It holds a vSwitch just as well.
            let message = format!("the HNS network External is not ours ({there:?}); it is used as it is");
            events(Event::Warning { id: "ForeignExternalNetwork", message });
            return Ok(false);
        }
        // Ours, but of another backend, adapter or VSID.
        Some(_) => node.put(&id, None).context("remove the HNS network External of another backend")?,
        None => (),
    }
    events(Event::ConnectivityNotice {
        message: "the vSwitch takes the network adapter: connections over it stall or drop for some seconds".into(),
        resume_with: "calicoctl-win status --wait".into(),
    });
    node.put(&id, Some(&wanted)).context("create the HNS network External")?;
    Ok(true)
}

/// Waits until the host has its address on the vSwitch: HNS knows it, an adapter has it and, where
/// the machine had a default route, that is back too. After a fresh vSwitch it must stay so.
fn await_management_ip(node: &mut dyn Node, made: bool, routed: bool, events: Sink<'_>) -> Result<Ipv4Addr> {
    let enough = if made { SETTLED.as_secs() } else { 0 };
    let mut seen = 0;
    wait(node, "the management IP of the HNS network External", MANAGEMENT_IP_LIMIT, events, |node| {
        let missing = |text: String| Ok(Err(Missing(text)));
        let ip = match node.get(&external())? {
            Some(State::Network(Network { management_ip: Some(ip), .. })) => ip,
            other => {
                seen = 0;
                let what = if other.is_some() { "HNS does not know it yet" } else { "the network is gone" };
                return missing(what.into());
            }
        };
        let adapters = node.facts()?.adapters;
        let Some(adapter) = adapters.iter().find(|adapter| has(adapter, ip)) else {
            seen = 0;
            return missing(format!("no adapter has {ip}"));
        };
        if routed && adapter.gateway.is_none() {
            seen = 0;
            return missing(format!("{} has no default gateway", adapter.name));
        }
        if seen < enough {
            seen += 1;
            return missing(format!("{ip} is not settled yet"));
        }
        Ok(Ok(ip))
    })
}

fn has(adapter: &Adapter, ip: Ipv4Addr) -> bool {
    adapter.addresses.iter().any(|cidr| cidr.addr() == ip)
}

fn put_metadata_route(node: &mut dyn Node, management_ip: Ipv4Addr) -> Result<()> {
    let adapters = node.facts()?.adapters;
    let interface = adapters
        .iter()
        .find(|adapter| has(adapter, management_ip))
        .map(|adapter| adapter.name.clone())
        .with_context(|| format!("find the adapter with {management_ip} for the metadata route"))?;
    let there = match node.get(&metadata_route())? {
        Some(State::Route { interface, .. }) => adapters.iter().any(|adapter| adapter.name == interface),
        _ => false,
    };
    if there {
        return Ok(());
    }
    // Metric 256 is what New-NetRoute gives when it is told none.
    let route = State::Route { interface, next_hop: Ipv4Addr::UNSPECIFIED, metric: 256 };
    node.put(&metadata_route(), Some(&route)).context("put the metadata route back")
}

/// RemoteAccess speaks BGP on interfaces that have new numbers now. Left alone when it is stopped.
fn restart_remote_access(node: &mut dyn Node) -> Result<()> {
    let id = Id::Running("RemoteAccess".into());
    if node.get(&id)?.is_none() {
        return Ok(());
    }
    node.put(&id, None).context("stop RemoteAccess")?;
    node.put(&id, Some(&State::Running)).context("start RemoteAccess")
}

fn mark_booted(node: &mut dyn Node, booted: Timestamp) -> Result<()> {
    // .NET's general format "G" in en-US, which is LocalSystem's unless somebody changed it.
    let time = booted.to_zoned(TimeZone::system()).strftime("%-m/%-d/%Y %-I:%M:%S %p").to_string();
    let boot = node.facts()?.boot_id;
    for (id, text) in [(last_boot_time(), time), (boot_id(), boot)] {
        let value = State::RegValue(RegValue::String(text));
        if node.get(&id)?.as_ref() != Some(&value) {
            node.put(&id, Some(&value)).with_context(|| format!("write {id}"))?;
        }
    }
    Ok(())
}

/// Runs Calico's node startup until it succeeds. CalicoNode does so at its start and whenever
/// kubelet started again.
///
/// # Errors
/// Fault `NodeStartupFailed` with the last exit code when it did not succeed in time.
pub fn start_node(node: &mut dyn Node, startup: &Command, run: Run<'_>, events: Sink<'_>) -> Result<()> {
    let (mut elapsed, mut backoff, mut tries) = (Duration::ZERO, FIRST_BACKOFF, 0);
    loop {
        let code = run(node, startup).with_context(|| format!("run {}", startup.program))?;
        tries += 1;
        if code == 0 {
            return Ok(());
        }
        if elapsed + backoff > STARTUP_LIMIT {
            let what = format!(
                "Calico's node startup did not succeed in {} s: {tries} tries, the last one exited with {code}",
                STARTUP_LIMIT.as_secs()
            );
            return Err(Fault::new(Exit::VerifyFailed, "NodeStartupFailed", what)
                .hint("its log says why: calico-node.log in spec.services.logDir (C:\\CalicoWindows\\logs)")
                .into());
        }
        events(Event::Log { message: format!("node startup exited with {code}, again in {} s", backoff.as_secs()) });
        events(Event::Waiting { what: "Calico's node startup".into(), elapsed, limit: STARTUP_LIMIT });
        node.pause(backoff);
        elapsed += backoff;
        backoff = (backoff * 2).min(LAST_BACKOFF);
    }
}

/// Calico reuses a network `Calico` of the right subnet whatever its VSID or type (defect B11), and
/// a node with a wrong one cannot reach other nodes' pods. So that is looked at, not trusted.
fn check_network(node: &mut dyn Node, config: &AgentConfig) -> Result<()> {
    let (kind, vsid) = match config.backend {
        Backend::Vxlan => (NetworkKind::Overlay, Some(config.vni.get())),
        Backend::WindowsBgp => (NetworkKind::L2Bridge, None),
        Backend::None => return Ok(()),
    };
    let wanted = Network { kind, subnet: None, gateway: None, vsid, adapter: None, management_ip: None };
    let wrong = match node.get(&Id::Network("Calico".into()))? {
        Some(there) if there.satisfies(&State::Network(wanted)) => return Ok(()),
        Some(State::Network(there)) => {
            let with = |vsid: Option<u32>| vsid.map_or_else(String::new, |vsid| format!(" with VSID {vsid}"));
            format!("is {:?}{} and should be {kind:?}{}", there.kind, with(there.vsid), with(vsid))
        }
        _ => "is not there, though node startup succeeded".into(),
    };
    Err(Fault::new(Exit::VerifyFailed, "HnsNetworkWrong", format!("the HNS network Calico {wrong}"))
        .hint(
            "drain the node, then run `calicoctl-win uninstall` and `calicoctl-win install`: the network is made anew",
        )
        .into())
}

fn external() -> Id {
    Id::Network("External".into())
}

fn known(cidr: &str) -> Cidr {
    cidr.parse().expect("a literal CIDR is one")
}
