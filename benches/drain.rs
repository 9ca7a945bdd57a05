//! The time that a drain adds to the pods' own termination: 110 pods with healthy budgets, an API server 20 ms away,
//! and a kubelet that ends pods at once. `cargo bench --bench drain` prints it.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use calicoctl_win::cluster::{Cluster, DrainOptions};
use calicoctl_win::report::event::Event;
use calicoctl_win::sandbox::cluster::{EmbeddedCluster, Seed};
use calicoctl_win::settings::Limits;
use http::Method;
use serde_json::json;

const PODS: usize = 110;

/// Ten applications, so ten budgets.
const APPLICATIONS: usize = 10;

/// The most that a drain of these pods may take.
const LIMIT: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let dir = tempfile::tempdir().context("create a folder for the cluster")?;
    let cluster = EmbeddedCluster::start(dir.path(), &Seed::new("win-a1"), &["* /*=far".parse()?])?;
    let make = |path: &str, object: serde_json::Value| cluster.as_admin(&Method::POST, path, Some(&object));
    for application in 0..APPLICATIONS {
        let labels = json!({ "app": format!("app-{application}") });
        let budget = json!({ "maxUnavailable": "100%", "selector": { "matchLabels": labels } });
        let name = format!("app-{application}");
        let budgets = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets";
        make(budgets, json!({ "metadata": { "name": name }, "spec": budget }))?;
        for pod in 0..PODS / APPLICATIONS {
            let owner =
                json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true });
            let name = format!("app-{application}-{pod}");
            let metadata = json!({ "name": name, "labels": labels, "ownerReferences": [owner] });
            let spec = json!({ "nodeName": "win-a1", "containers": [{ "name": "c", "image": "pause" }] });
            make("/api/v1/namespaces/demo/pods", json!({ "metadata": metadata, "spec": spec }))?;
            let ready = json!([{ "type": "Ready", "status": "True" }]);
            let status = json!({ "status": { "phase": "Running", "conditions": ready } });
            let path = format!("/api/v1/namespaces/demo/pods/{name}/status");
            cluster.as_admin(&Method::PATCH, &path, Some(&status))?;
        }
    }
    // The sandbox's own two pods have a budget that allows one eviction at a time.
    let options = DrainOptions { pod_selector: Some("app!=web".into()), ..DrainOptions::default() };
    let kubeconfig = cluster.admin_kubeconfig_direct();
    let client = Cluster::connect(&kubeconfig, Path::new("."), None, None, Limits::within(Duration::from_secs(30)))?;
    until_counted(&client)?;

    let begun = Instant::now();
    client.plan_drain("win-a1", &options, &mut |_| ())?;
    client.cordon("win-a1", None)?;
    let ready = begun.elapsed();
    let (mut held, mut evicted) = (0, Duration::ZERO);
    let drained = client.drain("win-a1", &options, &|| false, &mut |event| match event {
        Event::PodBlocked { .. } => held += 1,
        Event::PodEvicted { .. } => evicted = begun.elapsed(),
        _ => {}
    })?;
    let whole = begun.elapsed();
    ensure!(drained.evicted.len() == PODS, "evicted {} pods", drained.evicted.len());
    println!("survey and cordon      {:>6} ms", ready.as_millis());
    println!("last eviction accepted {:>6} ms", evicted.as_millis());
    println!("last pod gone          {:>6} ms   (limit {} ms)", whole.as_millis(), LIMIT.as_millis());
    println!("per pod                {:>8.1} ms", whole.as_secs_f64() * 1000.0 / 110.0);
    println!("blocked by a budget       {held:>6} times");
    Ok(())
}

/// Waits until the controller has counted the budgets.
fn until_counted(client: &Cluster) -> Result<()> {
    let begun = Instant::now();
    loop {
        let budgets: Vec<serde_json::Value> = client.list("/apis/policy/v1/poddisruptionbudgets")?;
        let counted = budgets.iter().filter(|budget| budget["status"]["expectedPods"] == PODS / APPLICATIONS).count();
        if counted == APPLICATIONS {
            return Ok(());
        }
        ensure!(begun.elapsed() < Duration::from_secs(60), "only {counted} budgets are counted");
    }
}
