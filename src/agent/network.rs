//! The network that all others stand on: brought up after a boot, kept afterwards.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::calico::agent_config::AgentConfig;
use crate::calico::networks;
use crate::item::{Id, IpConfig, Network, State};
use crate::node::hns::Endpoint;
use crate::node::{Listing, Node};
use crate::report::event::{Event, Sink};
use crate::settings::Backend;
use crate::values::Cidr;

use super::AgentContext;
use super::boot::is_first_start;
use super::published;
use super::saved::{Route, Saved, configs, physical, reachable, remote_access};
use super::wait::{Missing, wait};

/// How long the vSwitch may need to get its address: with DHCP on slow networks over a minute.
const MANAGEMENT_IP_LIMIT: Duration = Duration::from_secs(120);
/// How many looks in a row a new vSwitch must look the same to count as settled: 250 ms. What goes
/// wrong later is seen by [`Upkeep`].
const SETTLED: u32 = 5;
/// How long a static address may need to move to the vSwitch. Windows moves it within a second or
/// two where it moves it at all.
const STATIC_LIMIT: Duration = Duration::from_secs(5);

/// The cloud's metadata service, which a new vSwitch loses the way to.
pub fn metadata_route() -> Id {
    Id::Route(known("169.254.169.254/32"))
}

/// Brings up the network, and gives what must be kept of it. Done again, it finds everything done.
///
/// # Errors
/// When a wait reaches its limit, naming what is missing; when the node refuses a change.
pub fn bring_up(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<Upkeep> {
    // A crash in the middle left a vSwitch that was not given back what it took.
    let interrupted = Saved::load(node)?.filter(|saved| !saved.restored);
    remove_stale(node, context)?;
    let valid_ip = Duration::from_secs(config.valid_ip_timeout_s);
    let routed = await_address(node, valid_ip, interrupted.as_ref(), context)?;
    let made = make_external(node, config, context)?;
    let settle = made || interrupted.is_some();
    let (management_ip, interface) = await_management_ip(node, settle, routed, context)?;
    let mut saved = Saved::load(node)?.unwrap_or_default();
    if settle {
        saved.put_settings_back(node, &interface, context.events)?;
    }
    let mut routes: Vec<Route> =
        saved.routes.iter().filter(|route| route.adapter == physical(&interface)).cloned().collect();
    // From the config, not by asking for it: a metadata service that wants a token first looks like
    // none (defect B28 of upstream).
    if config.metadata_route && !routes.iter().any(|route| Id::Route(route.prefix) == metadata_route()) {
        let (prefix, adapter) = (known("169.254.169.254/32"), physical(&interface).to_owned());
        // 256 is what New-NetRoute gives when it is told none.
        routes.push(Route { prefix, adapter, next_hop: Ipv4Addr::UNSPECIFIED, metric: 256 });
    }
    let upkeep = Upkeep { management_ip, routes, refused: None };
    upkeep.put_routes(node, context.events)?;
    if settle && !saved.restored {
        // Before the mark: a restart that is cut short is made up for at the next start.
        if config.backend == Backend::WindowsBgp {
            restart_remote_access(node, saved.remote_access)?;
        }
        saved.restored = true;
        saved.store(node)?;
    }
    Ok(upkeep)
}

/// What must be kept of the network while the service runs.
#[derive(Debug, Clone)]
pub struct Upkeep {
    management_ip: Ipv4Addr,
    routes: Vec<Route>,
    /// Why a route could not be put back, for saying it once.
    refused: Option<String>,
}

impl Upkeep {
    /// Puts routes back that vanished: DHCP, agents of the cloud and administrators change them
    /// whenever they like. A refusal is said once, and tried again at the next look.
    pub fn look(&mut self, node: &mut dyn Node, events: Sink<'_>) {
        let refused = self.put_routes(node, events).err().map(|error| format!("{error:#}"));
        if let Some(why) = refused.as_ref().filter(|why| self.refused.as_ref() != Some(why)) {
            events(Event::Log { message: why.clone() });
        }
        self.refused = refused;
    }

    fn put_routes(&self, node: &mut dyn Node, events: Sink<'_>) -> Result<()> {
        if self.routes.is_empty() {
            return Ok(());
        }
        let there = node.list(Listing::Routes).context("list the routes")?;
        let lost: Vec<&Route> =
            self.routes.iter().filter(|route| !there.iter().any(|(id, _)| *id == Id::Route(route.prefix))).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let adapters = configs(node)?;
        let Some((interface, _)) = adapters.iter().find(|(_, ip)| has(ip, self.management_ip)) else {
            // The address is on its way: there is nothing to put them on yet.
            return Ok(());
        };
        for Route { prefix, next_hop, metric, .. } in lost {
            let id = Id::Route(*prefix);
            events(Event::Log { message: format!("{id} is put back on {interface}") });
            let route = State::Route { interface: interface.clone(), next_hop: *next_hop, metric: *metric };
            node.put(&id, Some(&route)).with_context(|| format!("put back {id}"))?;
        }
        Ok(())
    }
}

/// Whether a network is Calico's.
fn is_ours(name: &str, network: &Network) -> bool {
    name.eq_ignore_ascii_case(networks::PODS)
        || name.eq_ignore_ascii_case(networks::BOOTSTRAP) && network.subnet == Some(networks::bootstrap_prefix())
}

/// Removes the networks of before the boot, with the endpoints on them, which HNS may have kept, or a runtime
/// that was faster than this agent made.
fn remove_stale(node: &mut dyn Node, context: &mut AgentContext<'_>) -> Result<()> {
    if !is_first_start(node)? {
        return Ok(());
    }
    let mut all = node.list(Listing::Networks)?.into_iter();
    if all.any(|(id, state)| matches!(state, State::Network(network) if is_ours(&id.target(), &network))) {
        Saved::take(node)?;
    }
    context.stop.check()?;
    let mut note = |node: &mut dyn Node, lost: Vec<Endpoint>| published::note_lost(node, lost, context.events);
    let removed = node.remove_stale_networks(&is_ours, &mut note);
    for name in removed.context("remove the HNS networks from before the boot")? {
        let id = Id::Network(name);
        (context.events)(Event::Log { message: format!("first start since boot: removed {id}") });
    }
    Ok(())
}

/// Waits for an address that others can reach. Tells whether the machine has a default route.
fn await_address(
    node: &mut dyn Node,
    limit: Duration,
    interrupted: Option<&Saved>,
    context: &mut AgentContext<'_>,
) -> Result<bool> {
    let routed = |adapters: &[(String, IpConfig)]| adapters.iter().any(|(_, ip)| ip.gateway.is_some());
    if limit.is_zero() {
        return Ok(routed(&configs(node)?));
    }
    let mut lost = Lost::new(interrupted);
    let routed = wait(node, "a valid IPv4 address", limit, context, |node, so_far| {
        lost.put_back(node, so_far)?;
        let adapters = configs(node)?;
        if adapters.iter().any(|(name, ip)| is_valid(name, ip)) {
            return Ok(Ok(routed(&adapters)));
        }
        let has = |(name, ip): &(String, IpConfig)| {
            let addresses: Vec<String> = ip.addresses.iter().map(ToString::to_string).collect();
            let addresses = if addresses.is_empty() { "no address".into() } else { addresses.join(", ") };
            format!("{name} has {addresses}")
        };
        let all: Vec<String> = adapters.iter().map(has).collect();
        let all = if all.is_empty() { "no adapter is up".into() } else { all.join("; ") };
        Ok(Err(Missing(all)))
    });
    lost.tell(context);
    routed
}

/// A static address that may have to be put back while it is waited for.
struct Lost<'a> {
    saved: Option<&'a Saved>,
    /// What is to be told when the wait is over, which has the sink until then.
    said: Vec<Event>,
}

impl<'a> Lost<'a> {
    const fn new(saved: Option<&'a Saved>) -> Self {
        Self { saved, said: Vec::new() }
    }

    /// Once, when Windows has had its time to do it.
    fn put_back(&mut self, node: &mut dyn Node, so_far: Duration) -> Result<()> {
        match self.saved.take_if(|_| so_far >= STATIC_LIMIT) {
            Some(saved) => saved.put_address_back(node, &mut |event| self.said.push(event)),
            None => Ok(()),
        }
    }

    fn tell(self, context: &mut AgentContext<'_>) {
        self.said.into_iter().for_each(|event| (context.events)(event));
    }
}

/// An address that is neither loopback, link-local nor the one of the host on a NAT network.
fn is_valid(name: &str, ip: &IpConfig) -> bool {
    !name.eq_ignore_ascii_case("vEthernet (nat)") && ip.addresses.iter().any(|cidr| reachable(cidr.addr()))
}

/// Makes `External`, which holds the vSwitch while networks of pods come and go. Tells whether it
/// was made now.
fn make_external(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<bool> {
    let id = external();
    let Some(wanted) = networks::bootstrap(config.backend, config.adapter.clone()) else { return Ok(false) };
    let wanted = State::Network(wanted);
    let there = node.get(&id)?;
    match &there {
        Some(there) if there.satisfies(&wanted) => return Ok(false),
        Some(State::Network(there)) if there.subnet != Some(networks::bootstrap_prefix()) => {
            // Somebody else's. It holds a vSwitch just as well.
            let message = format!("the HNS network External is not ours ({there:?}); it is used as it is");
            (context.events)(Event::Warning { id: "ForeignExternalNetwork", message });
            return Ok(false);
        }
        _ => {}
    }
    context.stop.check()?;
    Saved::take(node)?;
    if there.is_some() {
        // Ours, but of another backend, adapter or VSID.
        node.put(&id, None).context("remove the HNS network External of another backend")?;
    }
    (context.events)(Event::ConnectivityNotice {
        message: "the vSwitch takes the network adapter: connections over it stall or drop for some seconds".into(),
        resume_with: "calicoctl-win status --wait".into(),
    });
    node.put(&id, Some(&wanted)).context("create the HNS network External")?;
    Ok(true)
}

/// Waits until the host has its address on the vSwitch: HNS knows it, an adapter has it and, where
/// the machine had a default route, that is back too. A fresh vSwitch must look the same for some
/// looks. Gives the address and the interface.
fn await_management_ip(
    node: &mut dyn Node,
    settle: bool,
    routed: bool,
    context: &mut AgentContext<'_>,
) -> Result<(Ipv4Addr, String)> {
    let saved = if settle { Saved::load(node)? } else { None };
    let mut lost = Lost::new(saved.as_ref());
    let (mut same, mut last) = (0, None);
    let found =
        wait(node, "the management IP of the HNS network External", MANAGEMENT_IP_LIMIT, context, |node, so_far| {
            lost.put_back(node, so_far)?;
            let (ip, name, config) = match management_ip(node, routed, saved.as_ref())? {
                Ok(found) => found,
                Err(missing) => {
                    last = None;
                    return Ok(Err(missing));
                }
            };
            let look = Some((ip, name.clone(), config));
            same = if look == last { same + 1 } else { 0 };
            last = look;
            if settle && same < SETTLED {
                return Ok(Err(Missing(format!("{ip} is not settled yet"))));
            }
            Ok(Ok((ip, name)))
        });
    lost.tell(context);
    found
}

/// One look for the management IP, and the interface that has it. The default route must be where it was
/// before the vSwitch took the adapter: a machine may have it on another one (upstream's VXLAN_ADAPTER).
fn management_ip(
    node: &dyn Node,
    routed: bool,
    before: Option<&Saved>,
) -> Result<Result<(Ipv4Addr, String, IpConfig), Missing>> {
    let missing = |text: String| Ok(Err(Missing(text)));
    let ip = match node.get(&external())? {
        Some(State::Network(Network { management_ip: Some(ip), .. })) if reachable(ip) => ip,
        Some(State::Network(Network { management_ip: Some(ip), .. })) => {
            return missing(format!("HNS has only {ip}, which others cannot reach"));
        }
        Some(_) => return missing("HNS does not know it yet".into()),
        None => return missing("the network is gone".into()),
    };
    let adapters = configs(node)?;
    let Some((name, config)) = adapters.iter().find(|(_, config)| has(config, ip)).cloned() else {
        return missing(format!("no adapter has {ip}"));
    };
    let had = before.and_then(|saved| saved.adapters.get(physical(&name))).map(|before| before.gateway.is_some());
    match had {
        Some(true) if config.gateway.is_none() => return missing(format!("{name} has no default gateway")),
        None if routed && adapters.iter().all(|(_, config)| config.gateway.is_none()) => {
            return missing("no adapter has a default gateway".into());
        }
        _ => {}
    }
    Ok(Ok((ip, name, config)))
}

fn has(config: &IpConfig, ip: Ipv4Addr) -> bool {
    config.addresses.iter().any(|cidr| cidr.addr() == ip)
}

/// RemoteAccess speaks BGP on interfaces that have new numbers now. Left alone when it did not run
/// before and does not now.
fn restart_remote_access(node: &mut dyn Node, ran: bool) -> Result<()> {
    let id = remote_access();
    if !ran && node.get(&id)?.is_none() {
        return Ok(());
    }
    node.put(&id, None).context("stop RemoteAccess")?;
    node.put(&id, Some(&State::Running)).context("start RemoteAccess")
}

fn external() -> Id {
    Id::Network(networks::BOOTSTRAP.into())
}

fn known(cidr: &str) -> Cidr {
    cidr.parse().expect("a literal CIDR is one")
}
