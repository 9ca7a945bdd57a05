//! What must be known before `verify` starts pods, and the way through: enter the namespace, probe, leave it.

use std::time::Instant;

use anyhow::Result;
use jiff::SignedDuration;
use serde_json::Value;

use super::left::Left;
use super::namespace::{self, Site};
use super::pods::{Ground, PodOptions, Pods};
use super::report::ProbeReport;
use super::{probes, spec};
use crate::apply::cancel;
use crate::cluster::{Cluster, VERIFY_NAMESPACE, path};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::answer::Answer;
use crate::report::event::Sink;
use crate::values::joined;

/// Checks that the pods can be started. Returns what the user must know of them.
///
/// # Errors
/// `VerifyNamespaceForeign`; `VerifyRights` with all that are missing; `VerifyPullSecret`; when the cluster cannot be
/// asked, or refuses.
pub fn check(cluster: &Cluster, ground: &Ground, options: &PodOptions) -> Result<Vec<String>> {
    let looked = namespace::look(cluster);
    let exists = match &looked {
        Ok(found) => found.is_some(),
        // All rights that are missing are said together.
        Err(error) if Fault::id_of(error) == "ClusterForbidden" => false,
        Err(_) => return looked.map(|_| Vec::new()),
    };
    let missing = cluster.missing_for_verify(exists, options.pull_secret.is_some(), options.demo)?;
    if !missing.is_empty() {
        let what =
            format!("the kubeconfig's user may not start the pods of verify: it lacks {}", joined(&missing, ", "));
        let hint =
            "ask a cluster administrator to apply the manifest that this prints: calicoctl-win explain VerifyRights";
        return Err(Fault::new(Exit::ClusterAccessDenied, "VerifyRights", what).hint(hint).into());
    }
    let then = if options.demo { "left in place" } else { "removed afterwards" };
    looked?;
    let mut notes = vec![format!(
        "pods are started in namespace {VERIFY_NAMESPACE} and {then}: {} here{}",
        options.image_windows,
        ground.linux.as_ref().map_or_else(String::new, |linux| format!(", {} on {linux}", options.image_linux))
    )];
    if options.demo {
        notes.push(format!(
            "two network policies are created for the pod server-windows-{} alone: Felix programs its rules again, which can reset TCP connections of that pod, and of no other",
            spec::id_of(&ground.node)
        ));
    }
    match &options.pull_secret {
        Some((namespace, name)) => {
            read_secret(cluster, namespace, name)?;
            notes.push(format!("the images are pulled with a copy of the secret {namespace}/{name}"));
        }
        None => notes.push(
            "the images are pulled without a secret; for a private registry give --pull-secret NAMESPACE/NAME".into(),
        ),
    }
    if ground.linux.is_none() {
        notes.push("no Linux node is Ready: PodToLinux, LinuxToPod and NodePort are skipped".into());
    }
    Ok(notes)
}

/// Reads the secret with which images are pulled.
fn read_secret(cluster: &Cluster, namespace: &str, name: &str) -> Result<Value> {
    let refuse = |what: String| {
        Fault::new(Exit::NotFound, "VerifyPullSecret", what)
            .hint("create one with: kubectl create secret docker-registry --help")
    };
    let found = cluster.get::<Value>(&path(["api", "v1", "namespaces", namespace, "secrets", name]))?;
    let found = found.ok_or_else(|| refuse(format!("there is no secret {name} in namespace {namespace}")))?;
    let kind = found["type"].as_str().unwrap_or_default();
    if ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"].contains(&kind) {
        return Ok(found);
    }
    Err(refuse(format!("the secret {namespace}/{name} has type {kind}, with which no image can be pulled")).into())
}

/// Runs the probes that need pods, and removes the pods again, also if that fails or is stopped; with `demo` they stay
/// if all is well. Returns the probes, and what could not be removed.
///
/// # Errors
/// When the pods cannot be created; `RunCancelled`.
pub fn through_pods(
    node: &mut dyn Node,
    cluster: &Cluster,
    run: &str,
    (ground, options): (&Ground, &PodOptions),
    tell: &mut dyn FnMut(&ProbeReport),
    events: Sink,
) -> Result<(Vec<ProbeReport>, Vec<String>)> {
    let _under_way = cancel::UnderWay::begin();
    let left = Left { node: ground.node.clone(), run: run.to_owned(), since: node.now(), demo: false };
    left.save(node)?;
    let site = |cluster| Site { cluster, id: spec::id_of(&ground.node), run };
    let mut reports: Vec<ProbeReport> = Vec::new();
    let probed = (|| {
        site(cluster).enter(node, events)?;
        if let Some((namespace, name)) = &options.pull_secret {
            let secret = read_secret(cluster, namespace, name)?;
            site(cluster).create(&spec::secret(&spec::id_of(&ground.node), &secret))?;
        }
        let mut begun = Instant::now();
        let mut pods = Pods { site: site(cluster), ground, options, node };
        let mut note = |id: &str, answer: Answer| {
            let probe = probes().find(|probe| probe.id == id).expect("the table has every probe");
            let took = SignedDuration::try_from(begun.elapsed()).unwrap_or_default();
            let report = ProbeReport::new(probe, answer, took);
            begun = Instant::now();
            tell(&report);
            reports.push(report);
        };
        pods.run(&mut note, events)
    })();
    if options.demo && probed.is_ok() && super::holds(&reports) {
        Left { demo: true, ..left }.save(node)?;
        reports.sort_by_key(|report| probes().position(|probe| probe.id == report.id));
        return Ok((reports, Vec::new()));
    }
    let removed = remove(node, cluster, &left, events);
    probed?;
    reports.sort_by_key(|report| probes().position(|probe| probe.id == report.id));
    Ok((reports, removed?))
}

/// Removes what a verify has in the cluster. Returns what is still there.
///
/// # Errors
/// When the cluster cannot be asked, or refuses.
pub fn remove(node: &mut dyn Node, cluster: &Cluster, left: &Left, events: Sink) -> Result<Vec<String>> {
    let site = Site { cluster, id: spec::id_of(&left.node), run: &left.run };
    let still = site.leave(node, events)?;
    if still.is_empty() {
        Left::forget(node)?;
    }
    Ok(still)
}

/// What `--demo` left in place, and what to run with it.
pub fn demo(node: &str) -> Vec<String> {
    let id = spec::id_of(node);
    vec![
        format!(
            "left in namespace {VERIFY_NAMESPACE}: the pod server-windows-{id} and the policies deny-all-{id} and allow-one-{id}"
        ),
        format!("see the policies with: kubectl -n {VERIFY_NAMESPACE} get networkpolicies -o yaml"),
        format!("see what the pods said with: kubectl -n {VERIFY_NAMESPACE} get pods -l {}={id}", spec::OF_NODE),
        "remove all of it with: calicoctl-win verify --remove".into(),
    ]
}
