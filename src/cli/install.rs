//! `install`: make this node what the config says, the first time or again.

use std::path::Path;

use anyhow::Result;

use super::Ending;
use super::app::{App, secure};
use super::args::Install;
use super::cordon;
use super::engine::{engine, succeeded};
use super::lease;
use super::plan::{self, Saved};
use super::prepare::{Prepared, prepare};
use super::resume::describe;
use super::stage::Purpose;
use super::steady;
use crate::apply::converge::{self, Applied, Change};
use crate::apply::journal::AtBoot;
use crate::apply::keep;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::item::Id;
use crate::report::document::RunResult;

pub(crate) fn run(args: &Install, app: &mut App) -> Result<Ending> {
    let start = args.no_start.then_some(false);
    if args.download_only {
        return super::release::download(&args.source, app);
    }
    if app.global.dry_run {
        let mut node = app.node()?;
        let prepared = prepare(app, &mut *node, &args.source, start, Purpose::Look)?;
        app.reporter.tell(&prepared.plan.text());
        return plan::dry_run(prepared.plan, prepared.standing.receipt().map(|receipt| receipt.generation));
    }
    let (mut node, _lock) = app.node_to_change("install")?;
    let mut prepared = prepare(app, &mut *node, &args.source, start, Purpose::Install)?;
    if let Some(result) = begin(app, &mut *node, &prepared, "install", args.plan.as_deref())? {
        return Ending::result(result);
    }
    app.reporter.tell(&prepared.plan.text());
    if prepared.plan.needs_drain {
        return Err(Fault::new(
            Exit::Conflict,
            "NeedsDrain",
            "this change replaces the HNS network under the pods of this node",
        )
        .hint(
            "look at it with: calicoctl-win plan; then drain, change and uncordon with: calicoctl-win reconfigure, \
             with the same -c and --set (without them it keeps the config that stands)",
        )
        .into());
    }
    let question = format!("Apply this to {}?", prepared.resolved.settings.node_name);
    app.confirm(&question)?;
    let name = prepared.about.node_name.to_string();
    lease::hold(app, &mut *node, &name, |app, node| apply(app, node, &mut prepared))
}

/// What comes between plan and question: a saved plan is held against the one of now, and an
/// interrupted run is told of. Gives how the run ends where there is nothing to do.
pub(super) fn begin(
    app: &mut App,
    node: &mut dyn Node,
    prepared: &Prepared,
    command: &str,
    saved: Option<&Path>,
) -> Result<Option<RunResult>> {
    if let Some(file) = saved {
        Saved::load(file)?.check(prepared)?;
    }
    if let Some(journal) = &prepared.standing.journal {
        app.warn("InterruptedRun", format!("this goes on with what was interrupted: {}", describe(journal)));
        return Ok(None);
    }
    if !prepared.steps.is_empty() {
        return Ok(None);
    }
    let generation = match prepared.standing.receipt() {
        Some(receipt) if receipt.target == prepared.target => Some(receipt.generation),
        // Nothing on the node differs, only what is to be left alone: the receipt says so from now on,
        // and its config is what a later change starts from.
        _ => {
            prepared.keep_config(node)?;
            converge::apply(node, &change(&app.run, command, prepared, None), &mut |_| ())?.generation
        }
    };
    // An interrupted run may have left the Node cordoned.
    cordon::release(app, node)?;
    Ok(Some(nothing_to_do(app, prepared, generation)))
}

/// What the engine is asked to do.
fn change<'a>(run: &'a str, command: &'a str, prepared: &'a Prepared, at_boot: Option<AtBoot>) -> Change<'a> {
    let Prepared { target, about, steps, .. } = prepared;
    Change { run, command, target, about: Some(about), at_boot, shown: Some(steps) }
}

fn nothing_to_do(app: &mut App, prepared: &Prepared, generation: Option<u32>) -> RunResult {
    let msg = format!(
        "nothing to do: Calico {} on {} is as the config says",
        prepared.about.calico_version, prepared.about.node_name
    );
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, false, msg);
    result.generation = generation;
    result.next = vec![app.command("status")];
    result
}

/// Stages everything, does what must come right before, and converges; what fails is taken back.
pub(super) fn carry_out(
    app: &mut App,
    node: &mut dyn Node,
    prepared: &mut Prepared,
    command: &str,
    before: impl FnOnce(&mut App, &mut dyn Node, &Prepared) -> Result<()>,
) -> Result<Applied> {
    // A release of ours that stays in place is not made anew, so it must be safe as it is. One that
    // we did not make is moved away whole.
    let root = &prepared.resolved.settings.calico.root;
    let ours = prepared.standing.owned().contains_key(&Id::Tree(root.clone()));
    let opened = secure(node, ours.then(|| root.clone()))?;
    app.made_safe(opened);
    if let Err(error) = prepared.complete(app, node).and_then(|()| before(app, node, prepared)) {
        keep::tidy(node, &mut |event| app.event(&event));
        return Err(error);
    }
    let run = app.run.clone();
    let change = change(&run, command, prepared, app.at_boot(node));
    let proof = steady::proof(&prepared.steps);
    let applied = engine(app, node, |node, events| converge::apply_proven(node, &change, proof, events));
    if let (Err(_), true, about) = (&applied, prepared.made_secret, &prepared.about) {
        // Another node may be at it already, so it is not for us to delete.
        let secret = about.token_secret.as_deref().unwrap_or_default();
        app.warn("SecretLeft", format!("the secret {}/{secret} that this run made stays", about.calico_namespace));
    }
    applied
}

fn apply(app: &mut App, node: &mut dyn Node, prepared: &mut Prepared) -> Result<Ending> {
    let applied = carry_out(app, node, prepared, "install", |_, _, _| Ok(()))?;
    // An interrupted run that this one finished may have cordoned the node.
    cordon::release(app, node)?;
    let about = &prepared.about;
    let started = prepared.resolved.settings.services.start;
    let generation = applied.generation.unwrap_or_default();
    let msg = if started {
        format!("Calico {} is running on {} (generation {generation}).", about.calico_version, about.node_name)
    } else {
        format!(
            "Calico {} is installed on {} and not started (generation {generation}).",
            about.calico_version, about.node_name
        )
    };
    let undo = app.command(if prepared.standing.receipt().is_some() { "rollback" } else { "uninstall" });
    let mut next = vec![app.command("status"), undo.clone()];
    if !started {
        next.insert(0, app.command("service start"));
    } else if let Err(error) = steady::look(node, &prepared.target) {
        // It stands all the same: its logs, and what is seen of it from outside, tell the cause.
        app.half_done = true;
        app.generation = applied.generation;
        return Err(error);
    }
    app.reporter.tell(&format!("{msg}\nNext: {}      Undo: {undo}", next[0]));
    Ending::result(succeeded(app, node, &applied, msg, next))
}
