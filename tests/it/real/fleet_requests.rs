//! What `fleet` itself asks of the API server, from its audit log: nothing for each node.

use std::collections::BTreeMap;

use super::audit::{Request, are_modest};
use super::cluster::NEIGHBOUR;
use super::fleet::Fleet;
use super::kwok::Runs;

/// How many requests of each verb and resource.
fn by_resource(asked: &[Request]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for one in asked.iter().filter(|one| !one.resource.is_empty()) {
        *counts.entry(format!("{} {}", one.verb, one.resource)).or_insert(0) += 1;
    }
    counts
}

#[test]
fn a_rollout_asks_nothing_for_each_of_its_nodes() {
    let Some(fleet) = Fleet::start(&Runs::default()) else { return };
    fleet.with_other_admin();
    // A list of 40 objects is one request.
    let of = |words: &str, codes: &[i32]| {
        let mark = fleet.cluster.mark();
        let output = fleet.cluster.lab.bare(&format!("{words} --kubeconfig other -o json"));
        assert!(codes.contains(&output.code), "{output}");
        let asked = fleet.cluster.asked_since(mark, NEIGHBOUR);
        are_modest(&asked);
        let of_one_node = |one: &&Request| one.uri.contains("spec.nodeName%3Dn") || one.uri.contains("/nodes/node-");
        let of_one_node: Vec<&Request> = asked.iter().filter(of_one_node).collect();
        assert!(of_one_node.is_empty(), "{words}: {of_one_node:#?}");
        let counts = by_resource(&asked);
        println!("{words}: {} requests: {counts:#?}", asked.len());
        counts
    };
    let plan = of(&Fleet::change("plan", "node.yaml", "1"), &[0]);
    let apply = of(&Fleet::change("apply", "node.yaml", "1 -y"), &[0]);
    let status = of("fleet status", &[0, 12]);
    let once = ["controllerrevisions", "daemonsets", "nodes", "pods"];
    assert_eq!(status, once.iter().map(|resource| (format!("list {resource}"), 1)).collect());
    // The facts of the cluster, the nodes, their pods; then what is followed, and the status at the end.
    for (words, counts, most) in [("plan", &plan, 2), ("apply", &apply, 4)] {
        let lists = |resource: &str| counts.get(&format!("list {resource}")).copied().unwrap_or_default();
        assert!(once.iter().all(|resource| lists(resource) <= most), "{words}: {counts:#?}");
    }
    assert_eq!(plan["list services"], 1, "{plan:#?}");
    let changes = |counts: &BTreeMap<String, usize>| {
        let reads = ["get ", "list ", "watch ", "create selfsubject"];
        counts.keys().filter(|what| !reads.iter().any(|read| what.starts_with(read))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(changes(&plan), [""; 0]);
    assert!(changes(&apply).iter().all(|what| what.starts_with("patch ")), "{apply:#?}");
    // Each wave is applied idle, and when its turn comes.
    assert_eq!(apply["patch daemonsets"], 4, "{apply:#?}");
}
