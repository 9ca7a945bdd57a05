//! `cargo bench --bench preflight`: the CPU time and memory for reading and checking a large cluster: 5,000 nodes,
//! 10,000 policies and 200 pools. The cluster is another process, so that only the client is measured.
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use calicoctl_win::cluster::{Cluster, FactsOptions};
use calicoctl_win::preflight::{Input, Scope, run};
use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use calicoctl_win::settings::Limits;
use serde_json::{Value, json};

mod usage;
use usage::{cpu, peak};

const NODES: usize = 5_000;
const POLICIES: usize = 10_000;
const POOLS: usize = 200;

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [serve, folder] if serve == "--serve" => self::serve(Path::new(folder)),
        _ => measure(),
    }
}

/// The cluster's process: prints the path of its kubeconfig once it runs, and ends with its stdin.
fn serve(folder: &Path) -> Result<()> {
    drop(EmbeddedCluster::start(folder, &Seed::new("win-a1"), &[]).context("start the cluster")?);
    // A cluster's state is a file, so a large one is written there and not over the API.
    fill(&folder.join("cluster.json"))?;
    let cluster = EmbeddedCluster::start(folder, &Seed::new("win-a1"), &[])?;
    let kubeconfig = folder.join("admin.yaml");
    std::fs::write(&kubeconfig, cluster.admin_kubeconfig_direct())?;
    println!("{}", kubeconfig.display());
    std::io::stdout().flush()?;
    let mut end = String::new();
    std::io::stdin().read_line(&mut end)?;
    Ok(())
}

fn measure() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("calicoctl-win-bench-{}", std::process::id()));
    let mut server = Command::new(std::env::current_exe()?)
        .args(["--serve".as_ref(), folder.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the cluster")?;
    let mut kubeconfig = String::new();
    BufReader::new(server.stdout.take().context("read the cluster's output")?).read_line(&mut kubeconfig)?;

    let (begun, cpu) = (Instant::now(), cpu());
    let limits = Limits::within(Duration::from_secs(120));
    let cluster = Cluster::open(Some(Path::new(kubeconfig.trim())), None, limits)?;
    let facts = cluster.facts(&FactsOptions { node_name: Some("win-a1"), ..FactsOptions::default() })?;
    let report = run(Scope::Cluster, &Input { cluster: Some(&facts), ..Input::default() }, &[]);
    let took = begun.elapsed();

    drop(server.stdin.take());
    server.wait().context("wait for the cluster to end")?;
    std::fs::remove_dir_all(&folder).context("clear the working folder")?;
    let nodes = facts.nodes.context("the nodes were not counted")?.all;
    let policies = facts.policies.context("the policies were not read")?.all;
    println!("{nodes} nodes, {policies} policies, {} pools, {} checks", facts.pools.len(), report.checks.len());
    println!("wall               {:>8.2} s", took.as_secs_f64());
    match (self::cpu().zip(cpu), peak()) {
        (Some((after, before)), Some(peak)) => {
            println!("CPU                {:>8.2} s   goal 2 s", (after - before).as_secs_f64());
            println!("peak memory        {:>8.1} MB  goal 80 MB", peak as f64 / 1e6);
        }
        _ => println!("CPU and memory can only be read on Linux"),
    }
    Ok(())
}

/// Copies objects until there are enough.
fn fill(state: &Path) -> Result<()> {
    let mut saved: Value = serde_json::from_slice(&std::fs::read(state)?)?;
    let objects = saved["objects"].as_array_mut().context("the state has no objects")?;
    let of = |kind: &str, name: &str| -> Result<(Value, Value)> {
        let found = objects.iter().find(|entry| entry[0]["kind"] == kind && entry[0]["name"] == name);
        let found = found.with_context(|| format!("there is no {kind} {name}"))?;
        Ok((found[0].clone(), found[1].clone()))
    };
    let node = of("nodes", "linux-1")?;
    let pool = of("ippools.crd.projectcalico.org", "default-ipv4-ippool")?;
    let affinity = of("blockaffinities.crd.projectcalico.org", "linux-1-192-168-10-0-26")?;
    let mut added = Vec::new();
    let mut copy = |(key, object): &(Value, Value), name: String, edit: &dyn Fn(&mut Value)| {
        let (mut key, mut object) = (key.clone(), object.clone());
        key["name"] = name.clone().into();
        object["metadata"]["name"] = name.into();
        edit(&mut object);
        added.push(json!([key, object]));
    };
    for n in 0..NODES {
        let name = format!("node-{n}");
        copy(&node, name.clone(), &|object| {
            object["metadata"]["labels"]["kubernetes.io/hostname"] = name.clone().into();
        });
        let block = format!("10.{}.{}.{}/26", 128 + n / 1024, n / 4 % 256, n % 4 * 64);
        copy(&affinity, format!("{name}-block"), &|object| {
            object["spec"]["cidr"] = block.clone().into();
            object["spec"]["node"] = name.clone().into();
        });
    }
    for n in 0..POOLS {
        copy(&pool, format!("pool-{n}"), &|object| object["spec"]["cidr"] = format!("10.{}.0.0/16", n % 256).into());
    }
    let key = json!({ "kind": "networkpolicies.networking.k8s.io", "namespace": "demo", "name": "" });
    let rule = json!({
        "from": [{ "podSelector": { "matchLabels": { "app": "web" } } }, { "ipBlock": { "cidr": "10.0.0.0/8" } }],
        "ports": [{ "port": 8080, "protocol": "TCP" }, { "port": 8443, "protocol": "TCP" }],
    });
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "demo", "resourceVersion": "1", "uid": "0", "labels": { "team": "shop" } },
        "spec": { "podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [rule, rule], "egress": [{}] },
    });
    for n in 0..POLICIES {
        copy(&(key.clone(), policy.clone()), format!("policy-{n}"), &|_| ());
    }
    objects.extend(added);
    std::fs::write(state, serde_json::to_vec(&saved)?)?;
    Ok(())
}
