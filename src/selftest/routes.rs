//! Routes: the store that Windows uses now, and the one from which it adds routes at a boot.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::{Reach, Row, TestContext};
use crate::item::{Id, State};
use crate::node::probe::Probe;
use crate::node::win32;
use crate::report::answer::Answer;
use crate::values::Cidr;

pub const GROUP: &str = "routes";

/// An address for documentation (RFC 5737): nobody sends anything there.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 199);

pub const ROWS: &[Row] = &[
    Row {
        id: "RouteActive",
        group: GROUP,
        asks: "a route is in the active store as it was written, and gone when removed",
        needed_for: "the route to the cloud's metadata service, which a vSwitch removes and CalicoNode restores",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: active,
    },
    Row {
        id: "RoutePersistent",
        group: GROUP,
        asks: "a route that is written to the active store is not in the persistent one",
        needed_for: "a route that CalicoNode restored is gone after a boot, and saved and restored again",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: persistent,
    },
];

fn prefix() -> Cidr {
    Cidr::new(ipnet::Ipv4Net::new_assert(ADDRESS, 32))
}

/// What the rows make.
pub fn item() -> Id {
    Id::Route(prefix())
}

/// Adds the route on a loopback adapter if there is one, else on the first adapter; none without an adapter.
fn add(context: &mut TestContext<'_>) -> Result<Option<State>> {
    let names: Vec<String> = context.facts.adapters.iter().map(|adapter| adapter.name.clone()).collect();
    let loopback = names.iter().find(|name| name.to_lowercase().contains("loopback"));
    let Some(interface) = loopback.or(names.first()).cloned() else { return Ok(None) };
    let route = State::Route { interface, next_hop: Ipv4Addr::UNSPECIFIED, metric: 9000 };
    context.node.put(&item(), Some(&route))?;
    Ok(Some(route))
}

const NO_ADAPTER: &str = "the machine has no adapter";

fn active(context: &mut TestContext<'_>) -> Result<Answer> {
    let Some(route) = add(context)? else { return Answer::skipped(NO_ADAPTER) };
    let found = context.node.get(&item())?;
    context.node.put(&item(), None)?;
    let left = context.node.get(&item())?;
    match (found, left) {
        (Some(found), None) if found == route => Answer::holds("as written, and gone when removed"),
        (found, None) => Answer::fails(format!("{route:?} is read as {found:?}")),
        (_, Some(left)) => Answer::fails(format!("after its removal there is {left:?}")),
    }
}

fn persistent(context: &mut TestContext<'_>) -> Result<Answer> {
    if add(context)?.is_none() {
        return Answer::skipped(NO_ADAPTER);
    }
    match context.node.probe(&Probe::FindPersistentRoute(ADDRESS))? {
        Some(win32::NOT_FOUND) => Answer::holds("it is not there"),
        None => Answer::fails("it is in the persistent store too"),
        Some(code) => Answer::fails(format!("the persistent store cannot be read (Windows error {code})")),
    }
}
