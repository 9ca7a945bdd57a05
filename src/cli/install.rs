//! `install`: make this node what the config says, the first time or again.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::Ending;
use super::app::{App, secure};
use super::args::Install;
use super::cordon;
use super::engine::{engine, succeeded};
use super::lease;
use super::plan::{self, Saved};
use super::pods::{self, Pods};
use super::prepare::{Prepared, prepare};
use super::resume::describe;
use super::stage::Purpose;
use super::steady::{self, Works};
use crate::apply::converge::{self, Applied, Change};
use crate::apply::journal::AtBoot;
use crate::apply::keep;
use crate::cluster::DrainOptions;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::Target;
use crate::plan::item::{Id, State, Tree};
use crate::plan::show::Downgrade;
use crate::report::document::RunResult;
use crate::report::event::Sink;

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
    let asked = Asked { saved: args.plan.as_deref(), downgrade: args.allow_downgrade };
    if let Some(result) = begin(app, &mut *node, &prepared, "install", &asked)? {
        return Ending::result(result);
    }
    app.reporter.tell(&prepared.plan.text());
    if prepared.plan.needs_drain {
        return Err(Fault::new(
            Exit::NeedsDrain,
            "NeedsDrain",
            "this change replaces the HNS network under the pods of this node",
        )
        .hint(
            "look at it with: calicoctl-win plan; then drain, change and uncordon with: calicoctl-win reconfigure, \
             with the same -c and --set (without them it keeps the config that stands)",
        )
        .into());
    }
    pods::judge(&prepared.plan.pods, &[], Some(&prepared.cluster))?;
    let question = format!("Apply this to {}?", prepared.resolved.settings.node_name);
    app.confirm(&question)?;
    let name = prepared.about.node_name.to_string();
    lease::hold(app, &mut *node, &name, |app, node| apply(app, node, &mut prepared))
}

/// What the command line says of the plan.
pub(super) struct Asked<'a> {
    /// It is to be this one.
    pub saved: Option<&'a Path>,
    /// It may go to an older release.
    pub downgrade: bool,
}

/// What comes between plan and question: a saved plan is held against the one of now, and an
/// interrupted run is told of. Gives how the run ends where there is nothing to do.
pub(super) fn begin(
    app: &mut App,
    node: &mut dyn Node,
    prepared: &Prepared,
    command: &str,
    asked: &Asked<'_>,
) -> Result<Option<RunResult>> {
    if let Some(file) = asked.saved {
        Saved::load(file)?.check(prepared)?;
    }
    if let (Some(Downgrade { from, to }), false) = (&prepared.plan.downgrade, asked.downgrade) {
        let what = format!("this is a downgrade: Calico {from} is on this node, and {to} is older");
        return Err(Fault::new(Exit::DowngradeRefused, "DowngradeNotAllowed", what)
            .hint(format!(
                "set spec.calico.version to {from} to keep it, or add --allow-downgrade to install {to} all the same"
            ))
            .into());
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
    if prepared.cluster_facts.node.as_ref().is_none_or(|node| node.ready) {
        cordon::release(app, node)?;
    }
    Ok(Some(nothing_to_do(app, prepared, generation)))
}

/// What the engine is asked to do.
fn change<'a>(run: &'a str, command: &'a str, prepared: &'a Prepared, at_boot: Option<AtBoot>) -> Change<'a> {
    let Prepared { target, about, steps, .. } = prepared;
    Change { run, command, target, about: Some(about), at_boot, drops_pods: false, shown: Some(steps) }
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

/// What must be shown before a change counts as made; what it lacks then is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The services work.
    Working,
    /// And the Node is Ready, unless it was not for a reason of others.
    Ready,
}

/// What becomes of the pods before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// They are moved away, within this time; none is without a limit.
    Within(Option<Duration>),
    /// None may be attached to a network that goes.
    Before,
    /// They lose a network that goes.
    No,
}

impl Drained {
    pub fn by(drains: Option<&DrainOptions>) -> Self {
        drains.map_or(Self::No, |options| Self::Within(options.timeout))
    }
}

/// Stages everything, does what must come right before, and converges; what fails is taken back.
pub(super) fn carry_out(
    app: &mut App,
    node: &mut dyn Node,
    prepared: &mut Prepared,
    command: &str,
    until: Until,
    drained: Drained,
    before: impl FnOnce(&mut App, &mut dyn Node, &Prepared) -> Result<()>,
) -> Result<Applied> {
    // A release of ours that stays in place is not made anew, so it must be safe as it is. One that
    // we did not make is moved away whole.
    let root = &prepared.resolved.settings.calico.root;
    let tree = Id::Tree(root.clone());
    let ours = prepared.standing.owned().contains_key(&tree)
        && matches!(node.get(&tree)?, Some(State::Tree(Tree::Release(_) | Tree::Drifted { .. })));
    let opened = secure(node, ours.then(|| root.clone()))?;
    app.made_safe(opened);
    if let Err(error) = prepared.complete(app, node).and_then(|()| before(app, node, prepared)) {
        keep::tidy(node, &mut |event| app.event(&event));
        return Err(error);
    }
    let run = app.run.clone();
    let mut change = change(&run, command, prepared, app.at_boot(node));
    change.drops_pods = drained == Drained::No;
    let limit = if let Drained::Within(limit) = drained { limit } else { None };
    let pods = Pods::new(prepared.about.node_name.as_str(), &prepared.cluster, limit);
    let works = Works::new(app, steady::restart(&prepared.steps));
    let disturbs = prepared.standing.receipt().is_some() && steady::disturb(&prepared.steps);
    let was_ready = prepared.cluster_facts.node.as_ref().and_then(steady::not_ready_by_others).is_none();
    let proof = |node: &mut dyn Node, target: &Target, events: Sink| {
        if disturbs {
            works.services(node, target, events)?;
        }
        if until == Until::Ready && was_ready { works.ready(node, target, events) } else { Ok(()) }
    };
    let applied =
        engine(app, node, &pods, |node, vacate, events| converge::apply_proven(node, &change, &proof, vacate, events));
    if let (Err(_), true, about) = (&applied, prepared.made_secret, &prepared.about) {
        // Another node may be at it already, so it is not for us to delete.
        let secret = about.token_secret.as_deref().unwrap_or_default();
        app.warn("SecretLeft", format!("the secret {}/{secret} that this run made stays", about.calico_namespace));
    }
    applied
}

fn apply(app: &mut App, node: &mut dyn Node, prepared: &mut Prepared) -> Result<Ending> {
    let applied = carry_out(app, node, prepared, "install", Until::Working, Drained::Before, |_, _, _| Ok(()))?;
    if prepared.standing.receipt().is_none() {
        steady::ends_working(app, node, &prepared.target, &applied)?;
    }
    steady::ends_ready(app, node, &prepared.target, steady::restart(&prepared.steps), &applied)?;
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
    }
    app.reporter.tell(&format!("{msg}\nNext: {}      Undo: {undo}", next[0]));
    Ending::result(succeeded(app, node, &applied, msg, next))
}
