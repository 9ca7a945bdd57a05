//! The node's network as a drawing: adapters, vSwitches, HNS networks, endpoints and the peers on other machines. What is
//! wrong is red and says so.

use std::fmt::Write as _;

use super::page::escaped;
use crate::facts::{Adapter, physical};
use crate::item::NetworkKind;
use crate::node::hns::Endpoint;
use crate::node::hns::inventory::HnsNetwork;
use crate::report::document::{NetworkStatus, NodeStatus};
use crate::values::count;

/// Endpoints, and peers, of one network that are drawn each.
const MOST: usize = 8;

const WIDTH: usize = 240;
const HEIGHT: usize = 46;
const GAP: usize = 12;
/// From one column to the next.
const STEP: usize = 280;

struct Row {
    head: String,
    detail: String,
    wrong: bool,
}

/// One network with its endpoints and peers.
struct Branch {
    adapter: Option<String>,
    /// Its name, if HNS says it.
    vswitch: Option<String>,
    management_ip: Option<String>,
    network: Row,
    leaves: Vec<Row>,
}

impl Branch {
    /// Whether both networks are on one vSwitch. An adapter is bound to one only. The GUID that HNS has for the vSwitch
    /// says nothing of that: in all recorded answers it is the network's own.
    fn shares_vswitch(&self, other: &Self) -> bool {
        let is_one = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
        is_one(&self.adapter, &other.adapter) || self.adapter == other.adapter && is_one(&self.vswitch, &other.vswitch)
    }
}

/// The vSwitch of these networks; none if they have none. Without the management IP on the host's side of the vSwitch, the
/// host has no connection over it.
fn vswitch(of: &[&Branch], adapters: &[Adapter]) -> Option<Row> {
    let adapter = of.iter().find_map(|branch| branch.adapter.as_deref());
    let name = of.iter().find_map(|branch| branch.vswitch.as_deref());
    let head = name.or(adapter.map(|_| "vSwitch"))?;
    // It takes the adapter's addresses to an adapter of the host's own.
    let host = adapters.iter().find(|one| adapter.is_some_and(|name| one.name != name && physical(&one.name) == name));
    let has = |ip: &str| adapters.iter().flat_map(|one| &one.addresses).any(|net| net.addr().to_string() == ip);
    let lost = of.iter().filter_map(|branch| branch.management_ip.as_deref()).find(|ip| !has(ip));
    let lost = lost.filter(|_| !adapters.is_empty());
    let detail = match (lost, host) {
        (Some(ip), _) => format!("no adapter has its {ip}"),
        (None, Some(host)) => host.name.clone(),
        (None, None) => String::new(),
    };
    let head = if head == "vSwitch" { head.to_owned() } else { format!("vSwitch {head}") };
    Some(Row { head, detail, wrong: lost.is_some() })
}

/// The networks for pods, for which routes to other nodes are needed.
fn is_for_pods(network: &NetworkStatus) -> bool {
    network.name.eq_ignore_ascii_case("Calico")
}

/// The other machines to which a network leads: with VXLAN their subnets, as its policies have them; with BGP the peers
/// to which Windows has a session.
fn peers(network: &NetworkStatus, known: &[HnsNetwork], status: &NodeStatus) -> Vec<Row> {
    let mine = known.iter().filter(|one| one.name == network.name).flat_map(|one| &one.policies);
    let routes = mine.filter(|policy| policy["Type"] == "RemoteSubnetRoute").map(|route| {
        let text = |key: &str| route[key].as_str().unwrap_or("?");
        let vni = route["IsolationId"].as_u64();
        let other = vni.filter(|vni| network.vsid.is_some_and(|vsid| u64::from(vsid) != *vni));
        let detail = match other {
            Some(vni) => format!("other VNI {vni}, on {}", text("ProviderAddress")),
            None => format!("on {}", text("ProviderAddress")),
        };
        Row { head: format!("subnet {}", text("DestinationPrefix")), detail, wrong: other.is_some() }
    });
    let mut rows: Vec<Row> = routes.collect();
    if let Some(sessions) = status.bgp_sessions.as_ref().filter(|_| is_for_pods(network)) {
        let session = |ip: &std::net::Ipv4Addr| Row {
            head: format!("BGP peer {ip}"),
            detail: "session is established".into(),
            wrong: false,
        };
        rows.extend(sessions.iter().map(session));
        if sessions.is_empty() {
            rows.push(Row { head: "BGP peers".into(), detail: "no session is established".into(), wrong: true });
        }
    }
    shortened(rows, "see hns/networks.json")
}

/// The first ones; wrong ones before others.
fn shortened(mut rows: Vec<Row>, rest_in: &str) -> Vec<Row> {
    rows.sort_by_key(|row| !row.wrong);
    let more = rows.len().saturating_sub(MOST);
    if more > 0 {
        rows.truncate(MOST);
        rows.push(Row { head: format!("{more} more"), detail: rest_in.into(), wrong: false });
    }
    rows
}

fn branch(network: &NetworkStatus, endpoints: &[Endpoint], shown: &[HnsNetwork], status: &NodeStatus) -> Branch {
    let vswitch = shown.iter().find(|one| one.name == network.name && one.vswitch.as_ref() != Some(&one.id));
    let vswitch = vswitch.and_then(|one| one.vswitch.clone());
    let mut wrong = Vec::new();
    if let Some(wanted) = network.wanted_vsid {
        let has = network.vsid.map_or_else(|| "none".to_owned(), |vsid| vsid.to_string());
        wrong.push(format!("VSID {has}, not {wanted}"));
    }
    if network.management_ip.is_none() && network.kind == NetworkKind::Overlay {
        wrong.push("no management IP".to_owned());
    }
    if network.unseen_by_v2 {
        wrong.push("not shown by version 2 of HNS".to_owned());
    }
    let vsid = network.vsid.filter(|_| network.wanted_vsid.is_none());
    let known = [vsid.map(|vsid| format!("VSID {vsid}")), network.management_ip.clone()];
    let detail = wrong.iter().cloned().chain(known.into_iter().flatten()).collect::<Vec<_>>().join(", ");
    let mine = endpoints.iter().filter(|one| one.network == network.name);
    let rows: Vec<Row> = mine
        .map(|one| Row {
            head: one.name.clone(),
            detail: [
                one.ip.map(|ip| ip.to_string()),
                one.remote.then(|| "another machine, or the host".to_owned()),
                (one.state == Some(5)).then(|| "degraded".to_owned()),
            ]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
            wrong: one.state == Some(5),
        })
        .collect();
    let mut leaves = shortened(rows, "see hns/endpoints.json");
    leaves.extend(peers(network, shown, status));
    let head = format!("{} ({:?})", network.name, network.kind);
    let (adapter, management_ip) = (network.adapter.clone(), network.management_ip.clone());
    Branch { adapter, vswitch, management_ip, network: Row { head, detail, wrong: !wrong.is_empty() }, leaves }
}

/// Draws it; none if there is no HNS network and none is missing.
pub(super) fn svg(
    status: &NodeStatus,
    endpoints: &[Endpoint],
    known: &[HnsNetwork],
    adapters: &[Adapter],
) -> Option<String> {
    let mut branches: Vec<Branch> =
        status.networks.iter().map(|network| branch(network, endpoints, known, status)).collect();
    if status.backend.as_deref() == Some("vxlan") && !status.networks.iter().any(is_for_pods) {
        let network = Row { head: "Calico (Overlay)".into(), detail: "is missing".into(), wrong: true };
        branches.push(Branch { adapter: None, vswitch: None, management_ip: None, network, leaves: Vec::new() });
    }
    if branches.is_empty() {
        return None;
    }
    branches.sort_by(|one, other| (&one.adapter, &one.vswitch).cmp(&(&other.adapter, &other.vswitch)));
    let mut body = String::new();
    let mut wrong = Vec::new();
    let mut y = GAP;
    let column = |number: usize| GAP + number * STEP;
    for on_one in branches.chunk_by(Branch::shares_vswitch) {
        let top = y;
        let vswitch = vswitch(&on_one.iter().collect::<Vec<_>>(), adapters);
        if let Some(adapter) = on_one.iter().find_map(|branch| branch.adapter.clone()) {
            draw(&mut body, column(0), top, &Row { head: adapter, detail: "adapter".into(), wrong: false });
            join(&mut body, column(0) + WIDTH, top, column(1), top);
        }
        if let Some(vswitch) = &vswitch {
            draw(&mut body, column(1), top, vswitch);
            wrong.extend(vswitch.wrong.then(|| vswitch.head.clone()));
        }
        for branch in on_one {
            if vswitch.is_some() {
                join(&mut body, column(1) + WIDTH, top, column(2), y);
            }
            draw(&mut body, column(2), y, &branch.network);
            for (number, leaf) in branch.leaves.iter().enumerate() {
                let at = y + number * (HEIGHT + GAP);
                join(&mut body, column(2) + WIDTH, y, column(3), at);
                draw(&mut body, column(3), at, leaf);
            }
            y += branch.leaves.len().max(1) * (HEIGHT + GAP);
            let rows = [&branch.network].into_iter().chain(&branch.leaves);
            wrong.extend(rows.filter(|row| row.wrong).map(|row| row.head.clone()));
        }
    }
    let width = column(3) + WIDTH + GAP;
    let wrong = wrong.join(", ");
    let says = if wrong.is_empty() { "nothing is wrong with them".to_owned() } else { format!("wrong: {wrong}") };
    Some(format!(
        "<svg role=\"img\" aria-labelledby=\"network-title\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\">\n\
         <title id=\"network-title\">{} with adapters, vSwitches, endpoints and peers; {}</title>\n{body}</svg>\n",
        count(branches.len(), "HNS network"),
        escaped(&says)
    ))
}

fn draw(to: &mut String, x: usize, y: usize, row: &Row) {
    let class = if row.wrong { " class=\"wrong\"" } else { "" };
    let _ = writeln!(
        to,
        "<g{class}><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\
         <text x=\"{}\" y=\"{}\">{}</text><text class=\"small\" x=\"{}\" y=\"{}\">{}</text></g>",
        x + 10,
        y + 19,
        escaped(&short(&row.head, 26)),
        x + 10,
        y + 36,
        escaped(&short(&row.detail, 34)),
    );
}

fn join(to: &mut String, x: usize, y: usize, to_x: usize, to_y: usize) {
    let (y, to_y) = (y + HEIGHT / 2, to_y + HEIGHT / 2);
    let half = usize::midpoint(x, to_x);
    let _ = writeln!(to, "<path d=\"M{x} {y} C{half} {y} {half} {to_y} {to_x} {to_y}\"/>");
}

/// As much as a box has room for, also in a wide font.
fn short(text: &str, room: usize) -> String {
    if text.chars().count() <= room { text.to_owned() } else { text.chars().take(room - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(adapter: Option<&str>, vswitch: Option<&str>) -> Branch {
        let network = Row { head: String::new(), detail: String::new(), wrong: false };
        let (adapter, vswitch) = (adapter.map(str::to_owned), vswitch.map(str::to_owned));
        Branch { adapter, vswitch, management_ip: None, network, leaves: Vec::new() }
    }

    #[test]
    fn networks_of_one_adapter_or_one_named_vswitch_share_it() {
        let (ethernet, default) = (Some("Ethernet"), Some("Default Switch"));
        for (one, other, shared) in [
            ((ethernet, None), (ethernet, None), true),
            ((ethernet, None), (Some("Ethernet 2"), None), false),
            ((None, default), (None, default), true),
            ((None, default), (None, Some("WSL")), false),
            ((None, None), (None, None), false),
            ((ethernet, None), (None, default), false),
        ] {
            let branches = [on(one.0, one.1), on(other.0, other.1)];
            assert_eq!(branches[0].shares_vswitch(&branches[1]), shared, "{one:?} {other:?}");
        }
        let named = on(None, default);
        assert_eq!(vswitch(&[&named], &[]).unwrap().head, "vSwitch Default Switch");
        assert!(vswitch(&[&on(None, None)], &[]).is_none());
        let wide = on(ethernet, Some("Azure"));
        assert_eq!(vswitch(&[&wide], &[]).unwrap().head, "vSwitch Azure");
    }
}
