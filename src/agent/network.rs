//! The network that everything else needs: brought up after a boot, maintained afterwards.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::calico::agent_config::AgentConfig;
use crate::calico::networks;
use crate::fault::Fault;
use crate::item::{Id, IpConfig, Network, State};
use crate::node::hns::{Endpoint, physical, unseen_by_v2};
use crate::node::{Listing, Node};
use crate::report::event::{Event, Sink};
use crate::settings::Backend;
use crate::values::Cidr;

use super::AgentContext;
use super::boot::is_first_start;
use super::cni_gate;
use super::network_backup::{NetworkBackup, Route, configs, reachable, remote_access, serves};
use super::wait::{Missing, wait};

/// How long the vSwitch may need to get its address: with DHCP on slow networks over a minute.
const MANAGEMENT_IP_LIMIT: Duration = Duration::from_secs(120);
/// How long a new vSwitch must be unchanged to count as settled: DHCP, the search for duplicate addresses and routes
/// come one after the other. Upstream sleeps 10 s; [`Upkeep`] detects later problems.
const SETTLED: Duration = Duration::from_secs(3);
/// How often HNS is asked while it creates a vSwitch: each request waits for it, and slows it down. The adapters are
/// read in every poll.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long the adapter that had the host's address before the boot is preferred to others.
const HOLDER_LIMIT: Duration = Duration::from_secs(30);
/// How long a static address may need to move to the vSwitch. If Windows moves it, that takes a second or two.
const STATIC_LIMIT: Duration = Duration::from_secs(5);

/// How long version 2 of HNS may take to show a network that version 1 shows, as long as Calico's startup waits for the
/// rest of a network; and how often it is asked.
const SEEN_LIMIT: Duration = Duration::from_secs(5);
const SEEN_PAUSE: Duration = Duration::from_millis(500);

/// The route to the cloud's metadata service, which a new vSwitch loses.
pub fn metadata_route() -> Id {
    Id::Route(known("169.254.169.254/32"))
}

/// Brings up the network, and returns what must be maintained. Running it again changes nothing.
///
/// # Errors
/// When a wait reaches its limit, naming what is missing; when the node refuses a change.
pub fn bring_up(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<Upkeep> {
    remove_stale(node, context)?;
    let before = NetworkBackup::load(node)?;
    let holders = holders(config, before.as_ref());
    // A boot, or a crash in the middle, left a vSwitch whose host settings were not restored.
    let interrupted = before.filter(|saved| !saved.restored);
    let valid_ip = Duration::from_secs(config.valid_ip_timeout_s);
    let routed = await_address(node, valid_ip, &holders, interrupted.as_ref(), context)?;
    let made = make_external(node, config, context)?;
    let settle = made || interrupted.is_some();
    let (management_ip, interface) = await_management_ip(node, settle, routed, context)?;
    let mut saved = NetworkBackup::load(node)?.unwrap_or_default();
    if settle {
        saved.restore_settings(node, &interface, context.events)?;
    }
    let mut routes: Vec<Route> =
        saved.routes.iter().filter(|route| route.adapter == physical(&interface)).cloned().collect();
    // From the config, not by asking: a metadata service that requires a token first seems to be absent (defect B28 of
    // upstream).
    if config.metadata_route && !routes.iter().any(|route| Id::Route(route.prefix) == metadata_route()) {
        let (prefix, adapter) = (known("169.254.169.254/32"), physical(&interface).to_owned());
        // 256 is the default of New-NetRoute.
        routes.push(Route { prefix, adapter, next_hop: Ipv4Addr::UNSPECIFIED, metric: 256 });
    }
    let upkeep = Upkeep { management_ip, interface, routes, refused: None, changed: None };
    upkeep.put_routes(node, context.events)?;
    if settle && !saved.restored {
        // Before the mark: the next start repeats an interrupted restart.
        if config.backend == Backend::WindowsBgp {
            restart_remote_access(node, saved.remote_access)?;
        }
        saved.restored = true;
        saved.store(node)?;
    }
    Ok(upkeep)
}

/// What must be maintained while the service runs.
#[derive(Debug, Clone)]
pub struct Upkeep {
    management_ip: Ipv4Addr,
    /// The host's side of the vSwitch.
    interface: String,
    routes: Vec<Route>,
    /// Why a route could not be restored, to report it once.
    refused: Option<String>,
    /// Another configuration of the interface, and in how many polls it was the same.
    changed: Option<(IpConfig, u32)>,
}

/// In how many polls another configuration must be the same to count as an administrator's.
const CHANGED: u32 = 10;

impl Upkeep {
    /// Restores routes that vanished: DHCP, agents of the cloud and administrators may change them at any time. A
    /// failure is reported once, and retried at the next poll.
    pub fn look(&mut self, node: &mut dyn Node, events: Sink<'_>) {
        let kept = self.put_routes(node, events).and_then(|()| self.learn(node, events));
        let refused = kept.err().map(|error| format!("{error:#}"));
        if let Some(why) = refused.as_ref().filter(|why| self.refused.as_ref() != Some(why)) {
            events(Event::Log { message: why.clone() });
        }
        self.refused = refused;
    }

    /// While the service runs, only an administrator changes the interface: the next vSwitch gets its current
    /// configuration.
    fn learn(&mut self, node: &mut dyn Node, events: Sink<'_>) -> Result<()> {
        let adapters = configs(node)?;
        let Some((_, now)) = adapters.into_iter().find(|(name, ip)| *name == self.interface && serves(ip)) else {
            self.changed = None;
            return Ok(());
        };
        let polls = match self.changed.take() {
            Some((known, polls)) if known == now => polls.saturating_add(1),
            _ => 0,
        };
        self.changed = Some((now.clone(), polls));
        if polls == CHANGED
            && let Some(mut saved) = NetworkBackup::load(node)?.filter(|saved| saved.restored)
            && saved.learn(node, &self.interface, &now)?
        {
            let message = format!("{} has another configuration, which is kept from now on", self.interface);
            events(Event::Log { message });
        }
        Ok(())
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
            // The address is still moving: there is no interface for the routes yet.
            return Ok(());
        };
        for Route { prefix, next_hop, metric, .. } in lost {
            let id = Id::Route(*prefix);
            events(Event::Log { message: format!("{id} is restored on {interface}") });
            let route = State::Route { interface: interface.clone(), next_hop: *next_hop, metric: *metric };
            node.put(&id, Some(&route)).with_context(|| format!("restore {id}"))?;
        }
        Ok(())
    }
}

/// Whether a network is Calico's.
fn is_ours(name: &str, network: &Network) -> bool {
    name.eq_ignore_ascii_case(networks::PODS)
        || name.eq_ignore_ascii_case(networks::BOOTSTRAP) && network.subnet == Some(networks::bootstrap_prefix())
}

/// Deletes the networks from before the boot, with their endpoints, which HNS may have kept, or which a runtime created
/// that started before this agent.
fn remove_stale(node: &mut dyn Node, context: &mut AgentContext<'_>) -> Result<()> {
    if !is_first_start(node)? {
        return Ok(());
    }
    let mut all = node.list(Listing::Networks)?.into_iter();
    if all.any(|(id, state)| matches!(state, State::Network(network) if is_ours(&id.target(), &network))) {
        NetworkBackup::take(node)?;
    }
    context.stop.check()?;
    let why = "these pods started before the network was up, and lose theirs";
    let mut note = |node: &mut dyn Node, lost: Vec<Endpoint>| {
        cni_gate::record_lost(node, lost.iter().map(Into::into).collect(), why, context.events)
    };
    let removed = node.remove_stale_networks(&is_ours, &mut note);
    for name in removed.context("remove the HNS networks from before the boot")? {
        let id = Id::Network(name);
        (context.events)(Event::Log { message: format!("first start since boot: removed {id}") });
    }
    Ok(())
}

/// The physical adapters of which one must have an address before the vSwitch is created: otherwise HNS would create it
/// on another adapter. The one of the config, or those that had a gateway before; none if that is unknown.
fn holders(config: &AgentConfig, before: Option<&NetworkBackup>) -> Vec<String> {
    let routed = |saved: &NetworkBackup| -> Vec<String> {
        let with_gateway = saved.adapters.iter().filter(|(_, ip)| ip.gateway.is_some());
        with_gateway.map(|(name, _)| name.to_lowercase()).collect()
    };
    match &config.adapter {
        Some(adapter) => vec![adapter.to_lowercase()],
        None => before.map(routed).unwrap_or_default(),
    }
}

/// Waits for an address that other machines can reach: on one of the `holders` for a while, then on any adapter. Returns whether
/// the machine has a default route.
fn await_address(
    node: &mut dyn Node,
    limit: Duration,
    holders: &[String],
    interrupted: Option<&NetworkBackup>,
    context: &mut AgentContext<'_>,
) -> Result<bool> {
    let routed = |adapters: &[(String, IpConfig)]| adapters.iter().any(|(_, ip)| ip.gateway.is_some());
    if limit.is_zero() {
        return Ok(routed(&configs(node)?));
    }
    let mut lost = Lost::new(interrupted);
    let routed = wait(node, "a valid IPv4 address", limit, context, |node, so_far| {
        lost.restore(node, so_far)?;
        let adapters = configs(node)?;
        let any = holders.is_empty() || so_far >= HOLDER_LIMIT.min(limit / 2);
        let holds = |name: &str| any || holders.contains(&physical(name).to_lowercase());
        if adapters.iter().any(|(name, ip)| holds(name) && is_valid(name, ip)) {
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

/// A static address that may have to be restored while waiting.
struct Lost<'a> {
    saved: Option<&'a NetworkBackup>,
    /// Events for after the wait, which uses the sink until then.
    said: Vec<Event>,
}

impl<'a> Lost<'a> {
    const fn new(saved: Option<&'a NetworkBackup>) -> Self {
        Self { saved, said: Vec::new() }
    }

    /// Once, after Windows has had its time to do it.
    fn restore(&mut self, node: &mut dyn Node, so_far: Duration) -> Result<()> {
        match self.saved.take_if(|_| so_far >= STATIC_LIMIT) {
            Some(saved) => saved.restore_address(node, &mut |event| self.said.push(event)),
            None => Ok(()),
        }
    }

    fn tell(self, context: &mut AgentContext<'_>) {
        self.said.into_iter().for_each(|event| (context.events)(event));
    }
}

/// An address that is neither loopback, link-local nor the host's on a NAT network.
fn is_valid(name: &str, ip: &IpConfig) -> bool {
    !name.eq_ignore_ascii_case("vEthernet (nat)") && ip.addresses.iter().any(|cidr| reachable(cidr.addr()))
}

/// Creates `External`, which keeps the vSwitch while networks of pods are created and deleted. Returns whether it was
/// created now.
fn make_external(node: &mut dyn Node, config: &AgentConfig, context: &mut AgentContext<'_>) -> Result<bool> {
    let id = external();
    let Some(wanted) = networks::bootstrap(config.backend, config.adapter.clone()) else { return Ok(false) };
    let wanted = State::Network(wanted);
    let there = node.get(&id)?;
    // A boot may leave one that version 2 of HNS does not show, too.
    let mut remade = there.is_some() && !is_seen(node, networks::BOOTSTRAP, context)?;
    match &there {
        Some(there) if there.satisfies(&wanted) && !remade => return Ok(false),
        Some(State::Network(there)) if there.subnet != Some(networks::bootstrap_prefix()) => {
            // Another product's network keeps a vSwitch as well.
            let message = format!("the HNS network External is not Calico's ({there:?}); it is used as it is");
            (context.events)(Event::Warning { id: "ForeignExternalNetwork", message });
            return Ok(false);
        }
        _ => {}
    }
    context.stop.check()?;
    NetworkBackup::take(node)?;
    if there.is_some() {
        // Calico's, but with another backend, adapter or VSID, or not shown by both versions of HNS.
        node.put(&id, None).context("remove the HNS network External of another backend")?;
    }
    (context.events)(Event::ConnectivityNotice {
        message: "the vSwitch takes over the network adapter: connections over it stall or drop for some seconds"
            .into(),
        resume_with: "calicoctl-win status --wait".into(),
    });
    loop {
        node.put(&id, Some(&wanted)).context("create the HNS network External")?;
        if is_seen(node, networks::BOOTSTRAP, context)? {
            return Ok(true);
        }
        if remade {
            return Err(unseen_by_v2(networks::BOOTSTRAP).into());
        }
        remade = true;
        remove_unseen(node, networks::BOOTSTRAP, context)?;
    }
}

/// Whether a network, if it is there, is shown by both versions of HNS: version 2 may take a moment.
pub(super) fn is_seen(node: &mut dyn Node, name: &str, context: &mut AgentContext<'_>) -> Result<bool> {
    let mut waited = Duration::ZERO;
    while node.network_details(name)?.is_some_and(|details| details.unseen_by_v2) {
        if waited >= SEEN_LIMIT {
            return Ok(false);
        }
        context.stop.check()?;
        (context.pause)(node, SEEN_PAUSE);
        waited += SEEN_PAUSE;
    }
    Ok(true)
}

/// Deletes a network that version 2 of HNS does not show, so that it is re-created.
pub(super) fn remove_unseen(node: &mut dyn Node, name: &str, context: &mut AgentContext<'_>) -> Result<()> {
    let message = format!("version 2 of HNS does not show the HNS network {name}: it is re-created");
    (context.events)(Event::Log { message });
    context.stop.check()?;
    let what = || format!("delete the HNS network {name}, which version 2 of HNS does not show");
    node.put(&Id::Network(name.into()), None).with_context(what).map(drop)
}

/// Waits until the host has its address on the vSwitch: HNS knows it, an adapter has it and, if the machine had a
/// default route, it has that again too. A new vSwitch must be unchanged for some polls. Returns the address and the
/// interface.
fn await_management_ip(
    node: &mut dyn Node,
    settle: bool,
    routed: bool,
    context: &mut AgentContext<'_>,
) -> Result<(Ipv4Addr, String)> {
    let saved = if settle { NetworkBackup::load(node)? } else { None };
    let mut lost = Lost::new(saved.as_ref());
    let mut said: Option<(Duration, Result<Ipv4Addr, String>)> = None;
    // What was found last, and since when.
    let mut last = None;
    let found =
        wait(node, "the management IP of the HNS network External", MANAGEMENT_IP_LIMIT, context, |node, so_far| {
            lost.restore(node, so_far)?;
            if said.as_ref().is_none_or(|(then, _)| so_far >= *then + ASK_EVERY) {
                said = Some((so_far, said_by_hns(node)?));
            }
            let found = match said.as_ref() {
                Some((_, Ok(ip))) => on_adapter(node, *ip, routed, saved.as_ref())?,
                Some((_, Err(why))) => Err(Missing(why.clone())),
                None => Err(Missing("HNS has not been asked yet".into())),
            };
            let (ip, name, config) = match found {
                Ok(found) => found,
                Err(missing) => {
                    last = None;
                    return Ok(Err(missing));
                }
            };
            let look = (ip, name.clone(), config);
            if last.as_ref().is_none_or(|(known, _)| *known != look) {
                last = Some((look, so_far));
            }
            let unchanged = last.as_ref().map_or(Duration::ZERO, |(_, since)| so_far.saturating_sub(*since));
            if settle && unchanged < SETTLED {
                return Ok(Err(Missing(format!("{ip} is not settled yet"))));
            }
            Ok(Ok((ip, name)))
        });
    lost.tell(context);
    found
}

/// The management IP of `External` by HNS, or why there is none. A slow HNS has none yet: creating the vSwitch may
/// take minutes (azure-container-networking issue 1369, WSL issue 40246).
fn said_by_hns(node: &dyn Node) -> Result<Result<Ipv4Addr, String>> {
    let there = match node.get(&external()) {
        Err(error) if Fault::id_of(&error) == "HnsStuck" => return Ok(Err("HNS has not answered yet".into())),
        there => there?,
    };
    Ok(match there {
        Some(State::Network(Network { management_ip: Some(ip), .. })) if reachable(ip) => Ok(ip),
        Some(State::Network(Network { management_ip: Some(ip), .. })) => {
            Err(format!("HNS has only {ip}, which other machines cannot reach"))
        }
        Some(_) => Err("HNS does not know it yet".into()),
        None => Err("the network does not exist".into()),
    })
}

/// The interface with the management IP. The default route must be where it was before the vSwitch was created: it may
/// be on another adapter (upstream's VXLAN_ADAPTER).
fn on_adapter(
    node: &dyn Node,
    ip: Ipv4Addr,
    routed: bool,
    before: Option<&NetworkBackup>,
) -> Result<Result<(Ipv4Addr, String, IpConfig), Missing>> {
    let missing = |text: String| Ok(Err(Missing(text)));
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

/// RemoteAccess uses interface numbers for BGP, and these have changed. Not started if it did not run before and does
/// not now.
fn restart_remote_access(node: &mut dyn Node, ran: bool) -> Result<()> {
    let id = remote_access();
    if !ran && node.get(&id)?.is_none() {
        return Ok(());
    }
    node.put(&id, None).context("stop RemoteAccess")?;
    node.put(&id, Some(&State::Running)).map(drop).context("start RemoteAccess")
}

fn external() -> Id {
    Id::Network(networks::BOOTSTRAP.into())
}

fn known(cidr: &str) -> Cidr {
    cidr.parse().expect("a literal CIDR is valid")
}
