//! The node's network as a drawing: adapters, HNS networks, endpoints and the peers on other machines. What is wrong is
//! red and says so.

use std::fmt::Write as _;

use super::page::escaped;
use crate::item::NetworkKind;
use crate::node::hns::Endpoint;
use crate::node::hns::inventory::HnsNetwork;
use crate::report::document::{NetworkStatus, NodeStatus};
use crate::values::count;

/// Endpoints, and peers, of one network that are drawn each.
const MOST: usize = 8;

const WIDTH: usize = 260;
const HEIGHT: usize = 46;
const GAP: usize = 12;
/// From one column to the next.
const STEP: usize = 320;

struct Row {
    head: String,
    detail: String,
    wrong: bool,
}

/// One network with its endpoints and peers.
struct Branch {
    adapter: Option<String>,
    network: Row,
    leaves: Vec<Row>,
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
    let mut wrong = Vec::new();
    if let Some(wanted) = network.wanted_vsid {
        wrong.push(format!("VSID should be {wanted}"));
    }
    if network.management_ip.is_none() && network.kind == NetworkKind::Overlay {
        wrong.push("no management IP".to_owned());
    }
    if network.unseen_by_v2 {
        wrong.push("not shown by version 2 of HNS".to_owned());
    }
    let known = [network.vsid.map(|vsid| format!("VSID {vsid}")), network.management_ip.clone()];
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
    Branch { adapter: network.adapter.clone(), network: Row { head, detail, wrong: !wrong.is_empty() }, leaves }
}

/// Draws it; none if there is no HNS network and none is missing.
pub(super) fn svg(status: &NodeStatus, endpoints: &[Endpoint], known: &[HnsNetwork]) -> Option<String> {
    let mut branches: Vec<Branch> =
        status.networks.iter().map(|network| branch(network, endpoints, known, status)).collect();
    if status.backend.as_deref() == Some("vxlan") && !status.networks.iter().any(is_for_pods) {
        let network = Row { head: "Calico (Overlay)".into(), detail: "is missing".into(), wrong: true };
        branches.push(Branch { adapter: None, network, leaves: Vec::new() });
    }
    if branches.is_empty() {
        return None;
    }
    branches.sort_by(|one, other| one.adapter.cmp(&other.adapter));
    let mut body = String::new();
    let mut y = GAP;
    let mut adapter: Option<(String, usize)> = None;
    for branch in &branches {
        let rows = branch.leaves.len().max(1);
        let middle = y;
        if let Some(name) = &branch.adapter {
            let known = adapter.as_ref().filter(|(known, _)| known == name).map(|(_, at)| *at);
            let at = known.unwrap_or_else(|| {
                draw(&mut body, GAP, middle, &Row { head: name.clone(), detail: "adapter".into(), wrong: false });
                middle
            });
            adapter = Some((name.clone(), at));
            join(&mut body, GAP + WIDTH, at, GAP + STEP, middle);
        }
        draw(&mut body, GAP + STEP, middle, &branch.network);
        for (number, leaf) in branch.leaves.iter().enumerate() {
            let at = y + number * (HEIGHT + GAP);
            join(&mut body, GAP + STEP + WIDTH, middle, GAP + 2 * STEP, at);
            draw(&mut body, GAP + 2 * STEP, at, leaf);
        }
        y += rows * (HEIGHT + GAP);
    }
    let width = 2 * STEP + WIDTH + 2 * GAP;
    let rows = branches.iter().flat_map(|branch| [&branch.network].into_iter().chain(&branch.leaves));
    let wrong = rows.filter(|row| row.wrong).map(|row| row.head.as_str());
    let wrong = wrong.collect::<Vec<_>>().join(", ");
    let says = if wrong.is_empty() { "nothing is wrong with them".to_owned() } else { format!("wrong: {wrong}") };
    Some(format!(
        "<svg role=\"img\" aria-labelledby=\"network-title\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\">\n\
         <title id=\"network-title\">{} with adapters, endpoints and peers; {}</title>\n{body}</svg>\n",
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
        escaped(&short(&row.head, 29)),
        x + 10,
        y + 36,
        escaped(&short(&row.detail, 37)),
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
