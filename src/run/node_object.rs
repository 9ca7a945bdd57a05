//! `node cordon|uncordon|drain|taint|untaint`: this machine's Kubernetes Node; the machine itself is not changed.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::app::{App, Opened};
use super::options::{Node as Verb, Source};
use super::{Ending, drain, lease, left_over, other_machine};
use crate::apply::cordon::Cordon;
use crate::cluster::{Cluster, Taint, Taints};
use crate::config::Layered;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::RunResult;
use crate::settings;

pub(crate) fn run(verb: &Verb, app: &mut App) -> Result<Ending> {
    let command = match verb {
        Verb::Cordon => "node cordon",
        Verb::Uncordon => "node uncordon",
        Verb::Drain(_) => "node drain",
        Verb::Taint { .. } => "node taint",
        Verb::Untaint { .. } => "node untaint",
    };
    // A Node must not be uncordoned while a run drains it, so all of these take the lock.
    let Opened { mut node, lock: _lock, .. } = app.node_for(command)?;
    let layered = app.config(&*node, &Source::default())?;
    let name = settings::node_name(&layered, &node.facts().context("measure the node")?, |_| anyhow::Ok(true))?;
    let (_, cluster) = app.configured_cluster(&*node)?;
    if let Some(theirs) = other_machine::owns(app, &*node, &name) {
        return Err(Fault::new(Exit::Conflict, "NodeOfOtherMachine", theirs)
            .hint("do it on that machine, or give this machine's own Node: --set kubernetes.nodeName=NAME")
            .into());
    }
    // Another machine may be changing the node.
    let ending = if app.global.dry_run {
        act(verb, app, &*node, &layered, &cluster, &name)
    } else {
        lease::hold(app, &mut *node, &name, |app, node| act(verb, app, node, &layered, &cluster, &name))
    };
    for event in cluster.take_events() {
        app.event(&event);
    }
    ending
}

fn act(
    verb: &Verb,
    app: &mut App,
    node: &dyn Node,
    layered: &Layered,
    cluster: &Cluster,
    name: &str,
) -> Result<Ending> {
    match verb {
        Verb::Cordon => schedule(app, cluster, name, false),
        Verb::Uncordon => {
            let ending = schedule(app, cluster, name, true)?;
            // This also undoes what a finished run left.
            if !app.global.dry_run && left_over::is_cordoned(node)? {
                Cordon::load(node)?.filter(|left| left.node == name).map_or(Ok(()), |left| left.forget(node))?;
            }
            Ok(ending)
        }
        Verb::Taint { taints, overwrite } => {
            let edit = |there: Taints| taints.iter().try_fold(there, |there, taint| there.with(taint, *overwrite));
            retaint(app, cluster, name, &edit, &format!("tainted with {}", list(taints)))
        }
        Verb::Untaint { taints } => {
            let edit = |there| Ok(taints.iter().fold(there, Taints::without));
            let ending = retaint(app, cluster, name, &edit, &format!("freed of the taints {}", list(taints)))?;
            app.reporter.tell(&labels(name, cluster.node(name)?.map(|node| node.labels).unwrap_or_default()));
            Ok(ending)
        }
        Verb::Drain(flags) => {
            let options = flags.over(&settings::run(layered, None).maintenance.drain);
            drain_node(app, cluster, name, &options)
        }
    }
}

fn schedule(app: &mut App, cluster: &Cluster, name: &str, schedulable: bool) -> Result<Ending> {
    let word = if schedulable { "uncordoned" } else { "cordoned" };
    if app.global.dry_run {
        let is = cluster.node(name)?.is_some_and(|node| node.schedulable);
        return if is == schedulable { done(app, false, nothing(name, word)) } else { would(app, name, word) };
    }
    let changed = if schedulable { cluster.uncordon(name)? } else { cluster.cordon(name, None)? };
    let msg = if changed { format!("node {name} is {word}") } else { nothing(name, word) };
    done(app, changed, msg)
}

fn retaint(
    app: &mut App,
    cluster: &Cluster,
    name: &str,
    edit: &dyn Fn(Taints) -> Result<Taints>,
    word: &str,
) -> Result<Ending> {
    if app.global.dry_run {
        let there = cluster.taints(name)?;
        return if edit(there.clone())? == there {
            done(app, false, nothing(name, word))
        } else {
            would(app, name, word)
        };
    }
    let changed = cluster.retaint(name, edit)?;
    let msg = if changed { format!("node {name} is {word}") } else { nothing(name, word) };
    done(app, changed, msg)
}

fn drain_node(app: &mut App, cluster: &Cluster, name: &str, options: &crate::cluster::DrainOptions) -> Result<Ending> {
    let plan = cluster.plan_drain(name, options, &mut |event| app.event(&event))?;
    app.reporter.tell(&drain::text(name, &plan));
    if app.global.dry_run {
        return would(app, name, "cordoned and drained");
    }
    app.confirm(&format!("Drain {name}?"))?;
    let cordoned = drain::cordon(app, cluster, name)?;
    let drained = match drain::drain(app, cluster, name, options) {
        Ok(drained) => drained,
        Err(error) => return Err(drain::uncordon_after(app, cluster, name, cordoned, error)),
    };
    let msg = format!("node {name} is cordoned and drained: {}", drained.done());
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, cordoned || !drained.evicted.is_empty(), msg);
    result.next = vec![app.command("node uncordon")];
    Ending::result(result)
}

fn nothing(name: &str, word: &str) -> String {
    format!("nothing to do: node {name} is {word} already")
}

fn would(app: &mut App, name: &str, word: &str) -> Result<Ending> {
    let msg = format!("dry run: node {name} would be {word}");
    app.reporter.tell(&msg);
    Ending::result(RunResult::looked(true, msg))
}

fn done(app: &mut App, changed: bool, msg: String) -> Result<Ending> {
    app.reporter.tell(&msg);
    Ending::result(RunResult::new(Exit::Ok, changed, msg))
}

/// Returns the labels by which pods distinguish the node from Linux nodes, once no taint keeps them off it.
fn labels(name: &str, labels: BTreeMap<String, String>) -> String {
    let telling = |key: &str| key.ends_with("kubernetes.io/os") || key == "node.kubernetes.io/windows-build";
    let shown: Vec<String> =
        labels.iter().filter(|(key, _)| telling(key)).map(|(key, value)| format!("{key}={value}")).collect();
    match shown.as_slice() {
        [] => format!("node {name} has no label kubernetes.io/os: pods for Linux may come to it"),
        shown => format!(
            "node {name} has the labels {}: from now on only their nodeSelector kubernetes.io/os: linux keeps pods for Linux away",
            shown.join(", ")
        ),
    }
}

fn list(taints: &[Taint]) -> String {
    taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
