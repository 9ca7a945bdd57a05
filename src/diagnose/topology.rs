//! The node's network as a drawing: adapters, HNS networks, endpoints. What is wrong is red and says so.

use std::fmt::Write as _;

use super::page::escaped;
use crate::item::NetworkKind;
use crate::node::hns::Endpoint;
use crate::report::document::{NetworkStatus, NodeStatus};

/// Endpoints of one network that are drawn each.
const MOST: usize = 8;

const WIDTH: usize = 240;
const HEIGHT: usize = 46;
const GAP: usize = 12;
/// From one column to the next.
const STEP: usize = 300;

struct Row {
    head: String,
    detail: String,
    wrong: bool,
}

/// One network with its endpoints.
struct Branch {
    adapter: Option<String>,
    network: Row,
    endpoints: Vec<Row>,
}

fn branch(network: &NetworkStatus, endpoints: &[Endpoint]) -> Branch {
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
    let detail = known.into_iter().flatten().chain(wrong.iter().cloned()).collect::<Vec<_>>().join(", ");
    let mine: Vec<&Endpoint> = endpoints.iter().filter(|one| one.network == network.name).collect();
    let mut rows: Vec<Row> = mine
        .iter()
        .take(MOST)
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
    if mine.len() > MOST {
        rows.push(Row {
            head: format!("{} more", mine.len() - MOST),
            detail: "see hns/endpoints.json".into(),
            wrong: false,
        });
    }
    let head = format!("{} ({:?})", network.name, network.kind);
    Branch {
        adapter: network.adapter.clone(),
        network: Row { head, detail, wrong: !wrong.is_empty() },
        endpoints: rows,
    }
}

/// Draws it; none if there is no HNS network and none is missing.
pub(super) fn svg(status: &NodeStatus, endpoints: &[Endpoint]) -> Option<String> {
    let mut branches: Vec<Branch> = status.networks.iter().map(|network| branch(network, endpoints)).collect();
    let calicos = |network: &NetworkStatus| network.name == "Calico";
    if status.backend.as_deref() == Some("vxlan") && !status.networks.iter().any(calicos) {
        let network = Row { head: "Calico (Overlay)".into(), detail: "is missing".into(), wrong: true };
        branches.push(Branch { adapter: None, network, endpoints: Vec::new() });
    }
    if branches.is_empty() {
        return None;
    }
    branches.sort_by(|one, other| one.adapter.cmp(&other.adapter));
    let mut body = String::new();
    let mut y = GAP;
    let mut adapter: Option<(String, usize)> = None;
    for branch in &branches {
        let rows = branch.endpoints.len().max(1);
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
        for (number, endpoint) in branch.endpoints.iter().enumerate() {
            let at = y + number * (HEIGHT + GAP);
            join(&mut body, GAP + STEP + WIDTH, middle, GAP + 2 * STEP, at);
            draw(&mut body, GAP + 2 * STEP, at, endpoint);
        }
        y += rows * (HEIGHT + GAP);
    }
    let width = 2 * STEP + WIDTH + 2 * GAP;
    let wrong = branches.iter().filter(|branch| branch.network.wrong).map(|branch| branch.network.head.as_str());
    let wrong = wrong.collect::<Vec<_>>().join(", ");
    let says = if wrong.is_empty() { "nothing is wrong with them".to_owned() } else { format!("wrong: {wrong}") };
    Some(format!(
        "<svg role=\"img\" aria-labelledby=\"network-title\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\">\n\
         <title id=\"network-title\">{} HNS networks with adapters and endpoints; {}</title>\n{body}</svg>\n",
        branches.len(),
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
        escaped(&short(&row.head)),
        x + 10,
        y + 36,
        escaped(&short(&row.detail)),
    );
}

fn join(to: &mut String, x: usize, y: usize, to_x: usize, to_y: usize) {
    let (y, to_y) = (y + HEIGHT / 2, to_y + HEIGHT / 2);
    let half = usize::midpoint(x, to_x);
    let _ = writeln!(to, "<path d=\"M{x} {y} C{half} {y} {half} {to_y} {to_x} {to_y}\"/>");
}

/// As much as a box has room for.
fn short(text: &str) -> String {
    const ROOM: usize = 32;
    if text.chars().count() <= ROOM { text.to_owned() } else { text.chars().take(ROOM - 1).chain(['…']).collect() }
}
