//! `network list|show|reset`: the HNS networks of this machine, and what is on them.

use anyhow::Result;
use serde_json::Value;

use super::args::Network as Verb;
use super::documents::{ListedNetwork, NetworkList};
use super::table::{lines, table};
use crate::apply::node_object::pod_with;
use crate::apply::standing::Standing;
use crate::calico::networks;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::hns::KnownNetwork;
use crate::node::hns::inventory::{Answers, HnsEndpoint, HnsNetwork, LoadBalancer};
use crate::node::{Listing, Node};
use crate::run::app::App;
use crate::run::{Ending, generations, node_status};
use crate::values::joined;

pub(crate) fn run(verb: &Verb, app: &mut App) -> Result<Ending> {
    match verb {
        Verb::List => list(app),
        Verb::Show { network } => show(network, app),
        Verb::Reset(args) => generations::run(args, app),
    }
}

fn list(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let found = inventory(&*node, &Standing::load(&*node)?)?;
    let networks: Vec<ListedNetwork> = found.into_iter().map(ListedNetwork::from).collect();
    let detail = app.global.verbose > 0;
    let header = ["NAME", "TYPE", "VSID", "MANAGEMENT IP", "ADAPTER", "ENDPOINTS", "OWNER", "ID"];
    let mut table = table(&header[..if detail { 8 } else { 7 }]);
    for network in &networks {
        let mut row = vec![
            network.name.clone(),
            network.kind.clone(),
            or_none(network.vsid),
            or_none(network.management_ip.as_ref()),
            or_none(network.adapter.as_ref()),
            network.endpoints.to_string(),
            owner(network.owner).to_owned(),
        ];
        row.extend(detail.then(|| network.id.clone()));
        table.add_row(row);
    }
    let text = if networks.is_empty() { "HNS has no network.".to_owned() } else { lines(&table) };
    app.reporter.document(&NetworkList { networks }, &text);
    Ending::shown(Exit::Ok, "shown")
}

fn show(asked: &str, app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let standing = Standing::load(&*node)?;
    let mut network = one(inventory(&*node, &standing)?, asked)?;
    let attached = |endpoint: &HnsEndpoint| !endpoint.remote && matches!(endpoint.state, Some("attached" | "shared"));
    if network.endpoints.iter().any(attached) {
        match node_status::pods(app, &*node, &standing) {
            Ok(pods) => {
                for endpoint in network.endpoints.iter_mut().filter(|endpoint| !endpoint.remote) {
                    let ip = endpoint.ip.as_ref().and_then(|ip| ip.parse().ok());
                    endpoint.pod = ip.and_then(|ip| pod_with(ip, &pods)).map(ToString::to_string);
                }
            }
            Err(error) => app.warn("PodsUnknown", format!("which pods have these endpoints is unknown: {error:#}")),
        }
    }
    let text = text(&network);
    app.reporter.document(&network, &text);
    Ending::shown(Exit::Ok, "shown")
}

/// What HNS shows, with whose each network is.
pub(super) fn inventory(node: &dyn Node, standing: &Standing) -> Result<Vec<HnsNetwork>> {
    let ask = |path: &str| {
        let said = node.ask_hns(path)?;
        said.map_err(|refusal| anyhow::Error::new(refusal.fault(format!("ask HNS for {path}"))))
    };
    let answers = Answers {
        networks: ask("/networks/")?,
        endpoints: ask("/endpoints/")?,
        // A load balancer explains little alone, and old builds of Windows have another form of them.
        policy_lists: ask("/policylists/").unwrap_or_default(),
    };
    let owned = standing.owned();
    let owner = |known: &KnownNetwork| match &known.network {
        _ if owned.keys().any(|id| matches!(id, Id::Network(name) if name.eq_ignore_ascii_case(&known.name))) => {
            "calicoctl-win"
        }
        Some(network) if networks::is_made_by_calico(&known.name, network) => "calico",
        _ => "other",
    };
    let mut found = answers.inventory(owner);
    // HNS names the adapter only if it was asked for one.
    for (id, state) in node.list(Listing::Networks)? {
        if let (Id::Network(name), State::Network(network)) = (id, state) {
            for known in found.iter_mut().filter(|known| known.name == name && known.adapter.is_none()) {
                known.adapter.clone_from(&network.adapter);
            }
        }
    }
    Ok(found)
}

/// The network of a name or an id, in any case.
fn one(found: Vec<HnsNetwork>, asked: &str) -> Result<HnsNetwork> {
    let id = asked.trim_matches(['{', '}']);
    let is = |network: &HnsNetwork| network.name.eq_ignore_ascii_case(asked) || network.id.eq_ignore_ascii_case(id);
    let (mut meant, others): (Vec<HnsNetwork>, Vec<HnsNetwork>) = found.into_iter().partition(is);
    let named = |network: &HnsNetwork| network.name.clone();
    match (meant.len(), meant.pop()) {
        (1, Some(network)) => Ok(network),
        (0, _) => {
            let there = joined(others.iter().map(named), ", ");
            let there = if there.is_empty() { "none".into() } else { there };
            Err(Fault::new(Exit::NotFound, "NoSuchNetwork", format!("HNS has no network {asked}"))
                .hint(format!("there are: {there}; see them with: calicoctl-win network list"))
                .into())
        }
        (number, last) => {
            let ids = meant.iter().chain(&last).map(|network| network.id.clone());
            let what = format!("HNS has {number} networks of the name {asked}");
            Err(Fault::new(Exit::Usage, "NoSuchNetwork", what)
                .hint(format!("name one by its id: {}", joined(ids, ", ")))
                .into())
        }
    }
}

fn text(network: &HnsNetwork) -> String {
    let mut rows =
        vec![("type", network.kind.clone()), ("owner", owner(network.owner).to_owned()), ("id", network.id.clone())];
    let facts = [
        ("VSID", network.vsid.map(|vsid| vsid.to_string())),
        ("management IP", network.management_ip.clone()),
        ("adapter", network.adapter.clone()),
        ("vSwitch", network.vswitch.clone()),
        ("router MAC", network.router_mac.clone()),
    ];
    rows.extend(facts.into_iter().filter_map(|(name, value)| Some((name, value?))));
    for subnet in &network.subnets {
        let gateway = subnet.gateway.as_ref().map_or_else(String::new, |gateway| format!(", gateway {gateway}"));
        rows.push(("subnet", format!("{}{gateway}", subnet.prefix)));
    }
    rows.extend(network.policies.iter().map(|policy| ("policy", policy_line(policy))));
    let mut text = format!("HNS network {}\n", network.name);
    for (name, value) in rows {
        text.push_str(&format!("  {name:<14} {value}\n"));
    }
    if network.endpoints.is_empty() {
        text.push_str("\nIt has no endpoint.\n");
    } else {
        let mut table = table(["ENDPOINT", "POD", "IP", "MAC", "STATE", "ACLS"]);
        for endpoint in &network.endpoints {
            table.add_row(endpoint_row(endpoint));
        }
        text.push_str(&format!("\n{}\n", lines(&table)));
    }
    if !network.load_balancers.is_empty() {
        let mut table = table(["LOAD BALANCER", "PORT", "BACKENDS"]);
        for one in &network.load_balancers {
            table.add_row(balancer_row(one));
        }
        text.push_str(&format!("\n{}\n", lines(&table)));
    }
    text
}

fn endpoint_row(endpoint: &HnsEndpoint) -> [String; 6] {
    let state = endpoint.state.map(str::to_owned);
    let state = match (&endpoint.provider_address, endpoint.remote) {
        (Some(machine), true) => format!("on {machine}"),
        (None, true) => "remote, or this host".to_owned(),
        _ => or_none(state),
    };
    let acls = endpoint.policies.iter().filter(|policy| crate::node::hns::is_acl(policy)).count();
    // A name begins with the id of the pod's sandbox, which is long.
    let name = if endpoint.name.chars().count() > 40 {
        endpoint.name.chars().take(37).chain("...".chars()).collect()
    } else {
        endpoint.name.clone()
    };
    let (ip, mac) = (or_none(endpoint.ip.as_ref()), or_none(endpoint.mac.as_ref()));
    [name, or_none(endpoint.pod.as_ref()), ip, mac, state, acls.to_string()]
}

fn balancer_row(one: &LoadBalancer) -> [String; 3] {
    let vips = if one.vips.is_empty() { "(addresses of the host)".to_owned() } else { joined(&one.vips, ", ") };
    let port = format!("{} {} -> {}", one.protocol, or_none(one.external_port), or_none(one.internal_port));
    [vips, port, joined(&one.backends, ", ")]
}

/// For example `RemoteSubnetRoute DestinationPrefix=10.244.3.0/26 ProviderAddress=10.20.0.4`.
fn policy_line(policy: &Value) -> String {
    let fields = policy.as_object().into_iter().flatten().filter(|(name, _)| *name != "Type");
    let fields = fields
        .map(|(name, value)| format!(" {name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    format!("{}{}", policy["Type"].as_str().unwrap_or("?"), fields.collect::<String>())
}

fn owner(word: &'static str) -> &'static str {
    match word {
        "calico" => "Calico",
        "other" => "another product",
        own => own,
    }
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
