//! A change of a thousand nodes, while programs of Kubernetes are killed. By hand, for docs/performance.md:
//! `cargo test --test it -- --ignored --nocapture a_thousand`. `CALICO_WIN_SEED` is the number that it prints.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api_server::end;
use super::fleet::{Fleet, PODS, is_ready, message};
use super::kwok::{Failure, Runs};

const NODES: usize = 1000;
const LIMIT: usize = 100;
/// As many of the nodes fail for each cause.
const EACH: usize = 10;
const KILLS: usize = 5;
const MANAGER: &str = "kube-controller-manager.log";

/// Polls for as long as a thousand nodes may take.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            println!("{:5} s: {what}", begun.elapsed().as_secs());
            return found;
        }
        assert!(begun.elapsed() < Duration::from_mins(20), "waited for {what}");
        thread::sleep(Duration::from_millis(500));
    }
}

/// The only wave, if the API server answers.
fn wave(fleet: &Fleet) -> Option<(Value, [usize; 4])> {
    let status = fleet.run("fleet status");
    let status = [0, 12].contains(&status.code).then(|| status.json())?;
    let number = |name: &str| status["waves"][0][name].as_u64().map(|number| number as usize);
    let numbers = [number("nodes")?, number("done")?, number("in_progress")?, number("failed")?];
    Some((status, numbers))
}

/// The pods, by their nodes: one each, which is not being deleted.
fn pods(fleet: &Fleet) -> BTreeMap<String, Value> {
    let all = fleet.cluster.server.get(PODS)["items"].as_array().unwrap().clone();
    let pods: BTreeMap<String, Value> =
        all.iter().map(|pod| (pod["spec"]["nodeName"].as_str().unwrap().to_owned(), pod.clone())).collect();
    assert_eq!((all.len(), pods.len()), (NODES, NODES));
    pods
}

#[test]
#[ignore = "it takes minutes"]
fn a_thousand_nodes_are_changed_while_the_api_server_and_the_controllers_are_killed() {
    let seed = std::env::var("CALICO_WIN_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("CALICO_WIN_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let messages = [
        message("put service CalicoFelix=fail", "install -y -c node.yaml -o json"),
        message("", "apply -y -c node.yaml -o json --release v9.9.9"),
        message("", "apply -y -c node.yaml -o json --kubeconfig none"),
    ];
    let mut numbers: Vec<usize> = (1..=NODES).collect();
    random.shuffle(&mut numbers);
    let failing = |cause: usize| -> Vec<String> {
        let mut names: Vec<String> =
            numbers[cause * EACH..][..EACH].iter().map(|number| format!("node-{number:02}")).collect();
        names.sort_unstable();
        names
    };
    let failures = messages.iter().enumerate().map(|(cause, message)| Failure {
        image: "registry.example.com/calicoctl-win:2",
        nodes: failing(cause),
        message: message.clone(),
    });
    let runs = Runs { failures: failures.collect(), rare_leases: true, ..Runs::default() };
    let Some(mut fleet) = Fleet::with_nodes(NODES, &runs) else { return };
    // As rare as the Leases.
    fleet.cluster.server.restart_beside(MANAGER, &["--node-monitor-grace-period=30m"]);
    let change = |config: &str, image: &str| {
        format!(
            "fleet apply -y -c {config} --image registry.example.com/calicoctl-win:{image} --max-unavailable {LIMIT} \
             --api-server https://192.0.2.10:6443"
        )
    };
    let begun = Instant::now();
    let _installed = fleet.run(&change("node.yaml", "1")).exits(0);
    println!("{:5} s: every node has a config", begun.elapsed().as_secs());
    let old = wave(&fleet).unwrap().0["revision"].clone();

    let begun = Instant::now();
    let words = format!("{} --kubeconfig admin -o json", change("vni.yaml", "2"));
    let mut apply = fleet.cluster.lab.command(&words).stdout(Stdio::null()).spawn().unwrap();
    let failed = EACH * messages.len();
    let mut kills: Vec<usize> = (0..KILLS).map(|_| random.usize(1..NODES - failed - LIMIT)).collect();
    kills.sort_unstable();
    for (number, done) in kills.into_iter().enumerate() {
        until(&format!("{done} nodes are done"), || {
            wave(&fleet).filter(|(status, [_, is_done, ..])| status["revision"] != old && *is_done >= done)
        });
        // Each of them at least once.
        if if number < 2 { number == 0 } else { random.bool() } {
            println!("kill kube-apiserver");
            fleet.cluster.server.restart();
            fleet.cluster.server.until_up();
        } else {
            println!("kill kube-controller-manager");
            fleet.cluster.server.restart_beside(MANAGER, &[]);
        }
    }
    let (status, _) = until("the other nodes are done", || {
        wave(&fleet).filter(|(_, numbers)| *numbers == [NODES, NODES - failed, 0, failed])
    });
    println!("{:5} s: the change, of which {failed} nodes failed", begun.elapsed().as_secs());
    assert!(apply.try_wait().unwrap().is_none(), "fleet apply waits for the failed nodes");
    end(&mut apply);

    // By their causes.
    let named: BTreeMap<(String, String), BTreeSet<String>> = status["failures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| {
            let text = |field: &str| failure[field].as_str().unwrap().to_owned();
            let nodes = failure["nodes"].as_array().unwrap().iter();
            ((text("id"), text("what")), nodes.map(|node| node.as_str().unwrap().to_owned()).collect())
        })
        .collect();
    let causes: Vec<&String> = named.keys().map(|(id, _)| id).collect();
    println!("causes: {causes:?}");
    let all: BTreeSet<BTreeSet<String>> = named.into_values().collect();
    assert_eq!(all, (0..messages.len()).map(|cause| failing(cause).into_iter().collect()).collect());

    // Every node has the old or the new VNI: those that failed have reverted.
    let failed_nodes: BTreeSet<String> = (0..messages.len()).flat_map(failing).collect();
    let mut seen = Vec::new();
    for (node, pod) in pods(&fleet) {
        assert_eq!(pod["metadata"]["annotations"]["calicoctl-win/revision"], status["revision"], "{node}");
        assert_eq!(is_ready(&pod), !failed_nodes.contains(&node), "{node}");
        seen.push(pod);
    }
    let most_out = |seen: &[Value]| {
        let most = fleet.cluster.most_out_with("calicoctl-win-all-", NODES, seen);
        println!("at most {most} of {LIMIT} nodes were out at once");
        assert!(most <= LIMIT, "{most}");
    };
    most_out(&seen);

    // The wave is not done, and all of it returns.
    let begun = Instant::now();
    let _back = fleet.run("fleet rollback -y").exits(0);
    until("every node has the former revision", || {
        wave(&fleet).filter(|(status, _)| status["waves"][0]["state"] == "Done" && status["failures"] == json!([]))
    });
    println!("{:5} s: the rollback", begun.elapsed().as_secs());
    for (node, pod) in pods(&fleet) {
        seen.push(pod.clone());
        assert!(is_ready(&pod) && pod["metadata"]["annotations"]["calicoctl-win/revision"] == old, "{node}");
    }
    most_out(&seen);
}
