//! The patches that a cluster needs before it can have Windows nodes: `cluster prepare`.

use anyhow::{Error, Result};

use super::Ending;
use super::app::App;
use super::checks::of_cluster;
use super::context::Remote;
use crate::cluster::{Cluster, Patch, Preparation, Wishes};
use crate::config::Layered;
use crate::facts::ClusterFacts;
use crate::fault::{Exit, Fault};
use crate::preflight::{known_id, verdict};
use crate::report::document::{CheckStatus, ClusterPatch, ClusterPatches, RunResult};
use crate::report::event::Event;
use crate::values::joined;

/// Patches are not all that a cluster needs: refuses to call it ready while a check fails, and repeats the warnings.
fn is_ready(app: &mut App, remote: &Remote, facts: &ClusterFacts) -> Result<()> {
    let report = of_cluster(app, remote, facts);
    for check in report.checks.iter().filter(|check| check.status == CheckStatus::Warn) {
        app.event(&Event::Warning { id: known_id(&check.id), message: check.detail.clone() });
    }
    verdict(&report)
}

/// Shows what the cluster needs, and with `apply` changes it, with consent.
///
/// # Errors
/// When the cluster does not answer or refuses; `ClusterPatchReverted`; a failed check of a cluster with every patch.
pub(crate) fn prepare(app: &mut App, apply: bool) -> Result<Ending> {
    let remote = Remote::open(app, false)?;
    let facts = remote.facts(app)?;
    let Remote { layered, cluster, .. } = &remote;
    let Preparation { patches, awaited } = cluster.preparation(&facts, wishes(layered))?;
    let shown = ClusterPatches { patches: patches.iter().map(document).collect(), awaited: awaited.clone() };
    for what in &awaited {
        app.warn("PoolAwaitsOperator", what.clone());
    }
    if patches.is_empty() && awaited.is_empty() {
        is_ready(app, &remote, &facts)?;
    }
    let text = text(&patches);
    let nothing = if awaited.is_empty() { counted(0) } else { "nothing to patch: the operator's turn".to_owned() };
    if !apply || app.global.is_dry_run() {
        let said = if patches.is_empty() { nothing } else { counted(patches.len()) };
        let result = RunResult::looked(!patches.is_empty(), said);
        app.reporter.document(&shown, &format!("{text}{}\n", result.msg));
        return Ok(Ending::Shown(Box::new(result)));
    }
    if patches.is_empty() {
        app.reporter.say(&nothing);
        return Ending::result(RunResult::new(Exit::Ok, false, nothing));
    }
    app.reporter.tell(text.trim_end());
    app.confirm("the cluster", &format!("Make {} in {}?", counted(patches.len()), facts.server), None)?;
    make(app, cluster, &patches)?;
    let facts = remote.facts(app)?;
    let left = cluster.preparation(&facts, wishes(layered))?;
    if let Some(patch) = left.patches.first() {
        let what = format!("{} was patched, and is as before: {}", patch.object, patch.why);
        return Err(Fault::new(Exit::VerifyFailed, "ClusterPatchReverted", what)
            .hint("something owns that object and reverts the change: change it there\nto see what: kubectl get OBJECT -o yaml --show-managed-fields")
            .into());
    }
    if left.awaited.is_empty() {
        is_ready(app, &remote, &facts)?;
    }
    Ending::result(RunResult::new(Exit::Ok, true, format!("{} made", counted(patches.len()))))
}

/// Applies patches, and shows each one before.
pub(super) fn make(app: &mut App, cluster: &Cluster, patches: &[Patch]) -> Result<()> {
    let mut begun = 0;
    let made = cluster.prepare(patches, &mut |patch| {
        begun += 1;
        app.event(&Event::Log { message: patch.command() });
    });
    for event in cluster.take_events() {
        app.event(&event);
    }
    // The last one failed.
    let Some((_, done)) =
        patches.get(..begun).and_then(|begun| begun.split_last()).filter(|(_, done)| !done.is_empty())
    else {
        return made;
    };
    made.map_err(|error| partly(app, done, patches.len(), error))
}

/// The error for patches of which only these were made: what they are, and how to make the rest or undo them.
fn partly(app: &mut App, done: &[Patch], all: usize, error: Error) -> Error {
    let objects = joined(done.iter().map(|patch| patch.object.as_str()), ", ");
    let were = if done.len() == 1 { "was" } else { "were" };
    app.record().did = Some(format!("{} of {all} patches {were} made, of {objects}; no node was changed", done.len()));
    let Some(fault) = Fault::of(&error).cloned() else { return error };
    let undo: Vec<String> = done.iter().rev().map(Patch::undo).collect();
    let first = fault.hint.as_ref().map_or_else(String::new, |hint| format!("{hint}\n"));
    let hint = format!(
        "{first}then make the rest with: calicoctl-win cluster prepare --apply\nor undo what was made:\n{}",
        undo.join("\n")
    );
    error.context(fault.hint(hint))
}

/// Returns what the config needs from the cluster besides what every Windows node needs.
pub(super) fn wishes(layered: &Layered) -> Wishes {
    let network = &layered.config.spec.calico_network;
    Wishes { vni: network.vxlan.vxlan_vni, backend: network.backend.0 }
}

fn counted(patches: usize) -> String {
    match patches {
        0 => "the cluster is ready for Windows nodes".into(),
        1 => "1 patch".into(),
        n => format!("{n} patches"),
    }
}

fn document(patch: &Patch) -> ClusterPatch {
    ClusterPatch {
        object: patch.object.clone(),
        why: patch.why.clone(),
        create: patch.create,
        interrupts: patch.interrupts,
        patch: patch.body.clone(),
        command: patch.command(),
        undo: patch.undo(),
    }
}

pub(super) fn text(patches: &[Patch]) -> String {
    let mut text = String::new();
    for patch in patches {
        let mark = if patch.interrupts { "!" } else { " " };
        let sign = if patch.create { "+" } else { "~" };
        text.push_str(&format!(
            "{mark} {sign}   {}\n        why: {}\n        {}\n        to undo it:\n        {}\n",
            patch.object,
            patch.why,
            patch.command(),
            patch.undo()
        ));
    }
    if patches.iter().any(|patch| patch.interrupts) {
        text.push_str("\n! changes how packets between pods are sent, on Linux nodes too: connections pause until all nodes follow.\n");
    }
    if !patches.is_empty() {
        text.push('\n');
    }
    text
}
