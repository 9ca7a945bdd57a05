//! An overlay network under a test name, on an adapter that may lose its network meanwhile: only on request.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde_json::Value;

use super::{FOLDER, Reach, Row, TestContext};
use crate::item::{Id, IpConfig, Network, NetworkKind, State};
use crate::node::probe::Probe;
use crate::node::{Node, record};
use crate::report::answer::Answer;
use crate::values::{Cidr, WinPath};

pub const GROUP: &str = "overlay";
const NETWORK: &str = "calicoctl-win-selftest";
const AGAIN: &str = "calicoctl-win-selftest-again";
const ENDPOINT: &str = "calicoctl-win-selftest-endpoint";

/// A network for documentation (RFC 5737), and a VSID that no Calico chooses by itself.
const PREFIX: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 26);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const VSID: u32 = 65_533;

/// How long addresses may take to move to a vSwitch or to return.
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(250);

pub const ROWS: &[Row] = &[
    Row {
        id: "OverlayNetwork",
        group: GROUP,
        asks: "HNS creates an overlay network, lists it with its VSID, and gives it a management IP",
        needed_for: "Calico's own network, and how long a run waits for it",
        bears_on_vni: true,
        reach: Reach::Disrupts,
        run: network,
    },
    Row {
        id: "OverlayEndpoint",
        group: GROUP,
        asks: "an endpoint on it has a state, and is gone when deleted",
        needed_for: "endpoints of running pods keep their network",
        bears_on_vni: true,
        reach: Reach::Disrupts,
        run: endpoint,
    },
    Row {
        id: "OverlayAddresses",
        group: GROUP,
        asks: "after the network is deleted the adapter has its addresses again",
        needed_for: "a run continues after a network only when the machine has its addresses",
        bears_on_vni: true,
        reach: Reach::Disrupts,
        run: addresses,
    },
    Row {
        id: "OverlayRecreate",
        group: GROUP,
        asks: "HNS creates another network on that adapter right after",
        needed_for: "a change of the VNI deletes the network and creates it again",
        bears_on_vni: true,
        reach: Reach::Disrupts,
        run: again,
    },
    Row {
        id: "AdapterDhcp",
        group: GROUP,
        asks: "an adapter with DHCP gets its addresses as static ones: DHCP is off and they stay; then DHCP is on again",
        needed_for: "a static address that a virtual switch lost is restored",
        bears_on_vni: false,
        reach: Reach::Disrupts,
        run: static_address,
    },
];

/// Everything that the rows make.
pub fn items() -> Vec<Id> {
    vec![Id::Network(NETWORK.into()), Id::Network(AGAIN.into())]
}

/// The adapter that a row has given a static address, and its configuration before.
pub fn saved_adapter() -> WinPath {
    WinPath::known(FOLDER).join("adapter.json")
}

/// The adapter: the one that is named, or one without a gateway if there are several. The error says why there is
/// none.
fn adapter(context: &TestContext<'_>) -> Result<String, Answer> {
    let adapters = &context.facts.adapters;
    if let Some(wanted) = &context.adapter {
        let found = adapters.iter().find(|adapter| adapter.name.eq_ignore_ascii_case(wanted));
        let none = || Answer::Fails(format!("there is no adapter `{wanted}`"));
        return found.map(|found| found.name.clone()).ok_or_else(none);
    }
    let physical = || adapters.iter().filter(|adapter| !adapter.name.to_lowercase().starts_with("vethernet ("));
    let why = "the machine has one adapter, and its network would be interrupted: --adapter NAME allows it";
    if physical().count() < 2 {
        return Err(Answer::Skipped(why.into()));
    }
    let spare = physical().find(|adapter| adapter.gateway.is_none());
    let none = || Answer::Skipped("every adapter has a gateway: --adapter NAME says which one may fail".into());
    spare.map(|spare| spare.name.clone()).ok_or_else(none)
}

fn wanted(adapter: &str) -> State {
    State::Network(Network {
        kind: NetworkKind::Overlay,
        subnet: Some(Cidr::new(PREFIX)),
        gateway: Some(GATEWAY),
        vsid: Some(VSID),
        adapter: Some(adapter.to_owned()),
        management_ip: None,
    })
}

fn config(node: &dyn Node, adapter: &str) -> Result<IpConfig> {
    Ok(match node.get(&Id::Adapter(adapter.into()))? {
        Some(State::Adapter(config)) => config,
        _ => IpConfig { dhcp: false, addresses: Vec::new(), gateway: None, dns: Vec::new(), metric: None },
    })
}

/// Waits for a condition. Returns the time since `begun`; none at the limit.
fn after(
    context: &mut TestContext<'_>,
    begun: Timestamp,
    is: &dyn Fn(&dyn Node) -> Result<bool>,
) -> Result<Option<String>> {
    loop {
        let elapsed = context.node.now().duration_since(begun);
        if is(&*context.node)? {
            return Ok(Some(format!("{:.1} s", elapsed.as_secs_f64())));
        }
        if elapsed.unsigned_abs() > LIMIT {
            return Ok(None);
        }
        context.node.pause(PAUSE);
    }
}

fn network(context: &mut TestContext<'_>) -> Result<Answer> {
    context.check_hns()?;
    let name = match adapter(context) {
        Ok(name) => name,
        Err(answer) => return Ok(answer),
    };
    let before = config(&*context.node, &name)?;
    let has_address = !before.addresses.is_empty();
    context.before = Some((name.clone(), before));
    let (id, wanted, begun) = (Id::Network(NETWORK.into()), wanted(&name), context.node.now());
    context.node.put(&id, Some(&wanted))?;
    let made = context.node.now().duration_since(begun).as_secs_f64();
    let has_ip = |node: &dyn Node| {
        let found = node.get(&Id::Network(NETWORK.into()))?;
        Ok(matches!(found, Some(State::Network(Network { management_ip: Some(_), .. }))))
    };
    let moved = if has_address { after(context, begun, &has_ip)? } else { Some("no time".into()) };
    let _kept_for_the_report = context.ask_hns("/networks/")?;
    let found = context.node.get(&id)?;
    // HNS lists an adapter only if it was asked for.
    let same = found.as_ref().is_some_and(|found| match (found, &wanted) {
        (State::Network(have), State::Network(want)) => {
            (have.kind, have.subnet, have.vsid) == (want.kind, want.subnet, want.vsid)
        }
        _ => false,
    });
    match moved {
        _ if !same => Answer::fails(format!("{wanted:?} is listed as {found:?}")),
        None => Answer::fails(format!("made in {made:.1} s, and no management IP in {} s", LIMIT.as_secs())),
        Some(moved) => Answer::holds(format!("made in {made:.1} s, management IP after {moved}")),
    }
}

const NO_NETWORK: &str = "there is no test network";

fn endpoint(context: &mut TestContext<'_>) -> Result<Answer> {
    if context.before.is_none() || context.node.get(&Id::Network(NETWORK.into()))?.is_none() {
        return Answer::skipped(NO_NETWORK);
    }
    let probe = Probe::MakeEndpoint { network: NETWORK.into(), name: ENDPOINT.into(), ip: ADDRESS };
    if let Some(code) = context.node.probe(&probe)? {
        return Answer::fails(format!("it cannot be created (error {code:#010X})"));
    }
    let listed = context.ask_hns("/endpoints/")?.unwrap_or_default();
    let is_ours = |endpoint: &&Value| endpoint["Name"] == ENDPOINT;
    let Some(found) = listed.as_array().into_iter().flatten().find(is_ours) else {
        return Answer::fails("it is created, and not listed");
    };
    let (id, state) = (found["ID"].as_str().unwrap_or_default().to_owned(), found["State"].as_u64());
    context.node.delete_endpoint(&id)?;
    let left = context.node.endpoints()?.into_iter().any(|endpoint| endpoint.name == ENDPOINT);
    match state {
        _ if left => Answer::fails("it is still listed after it was deleted"),
        Some(state) => Answer::holds(format!("state {state}, and gone when deleted")),
        None => Answer::fails("it has no state"),
    }
}

fn addresses(context: &mut TestContext<'_>) -> Result<Answer> {
    let Some((name, before)) = context.before.clone() else { return Answer::skipped(NO_NETWORK) };
    let begun = context.node.now();
    context.node.put(&Id::Network(NETWORK.into()), None)?;
    let deleted = context.node.now().duration_since(begun).as_secs_f64();
    let back = |node: &dyn Node| {
        let now = config(node, &name)?;
        Ok(before.addresses.iter().all(|address| now.addresses.contains(address)))
    };
    match after(context, begun, &back)? {
        Some(time) => Answer::holds(format!("deleted in {deleted:.1} s, addresses there after {time}")),
        None => Answer::fails(format!("the adapter has not all its addresses after {} s", LIMIT.as_secs())),
    }
}

fn again(context: &mut TestContext<'_>) -> Result<Answer> {
    let Some((name, _)) = context.before.clone() else { return Answer::skipped(NO_NETWORK) };
    let (id, begun) = (Id::Network(AGAIN.into()), context.node.now());
    context.node.put(&id, Some(&wanted(&name)))?;
    let made = context.node.now().duration_since(begun).as_secs_f64();
    let is_there = context.node.get(&id)?.is_some();
    context.node.put(&id, None)?;
    Answer::of(is_there, format!("made in {made:.1} s"), "created, and not listed")
}

fn static_address(context: &mut TestContext<'_>) -> Result<Answer> {
    let Some((name, before)) = context.before.clone() else { return Answer::skipped(NO_NETWORK) };
    if !before.dhcp || before.addresses.is_empty() {
        return Answer::skipped("the adapter has no address from DHCP");
    }
    let fixed = IpConfig { dhcp: false, ..before.clone() };
    let has = |wanted: &IpConfig| {
        let (name, wanted) = (name.clone(), wanted.clone());
        move |node: &dyn Node| -> Result<bool> {
            let now = config(node, &name)?;
            Ok(now.dhcp == wanted.dhcp && wanted.addresses.iter().all(|address| now.addresses.contains(address)))
        }
    };
    // The network before is just gone.
    let begun = context.node.now();
    if after(context, begun, &has(&before))?.is_none() {
        return Answer::skipped("the adapter has not its addresses again");
    }
    // A killed run leaves it, and the next one restores the adapter from it.
    record::save(context.node, &saved_adapter(), &(&name, &before))?;
    let id = Id::Adapter(name.clone());
    let (begun, put) = (context.node.now(), context.node.put(&id, Some(&State::Adapter(fixed.clone()))));
    let kept = put.and_then(|_| after(context, begun, &has(&fixed)));
    let begun = context.node.now();
    context.node.put(&id, Some(&State::Adapter(before.clone())))?;
    let back = after(context, begun, &has(&before))?;
    record::forget(context.node, &saved_adapter())?;
    match (kept?, back) {
        (None, _) => Answer::fails("its DHCP is still on, or its addresses are not there"),
        (_, None) => Answer::fails(format!("without its addresses {} s after DHCP was on again", LIMIT.as_secs())),
        (Some(kept), Some(back)) => Answer::holds(format!("static after {kept}, by DHCP again after {back}")),
    }
}
