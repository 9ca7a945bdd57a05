//! `apply`, `install`, `reconfigure` and `upgrade`: one way from the config to a node that is as it says. Where pods
//! would be cut off they are moved away first, everything is at hand before the first service stops, and what
//! does not work afterwards is reverted. A verb is a [`Row`].

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::Ending;
use super::app::{App, Outcome, secure};
use super::cordon;
use super::drain;
use super::engine::{self, Agreed, succeeded};
use super::health_gate;
use super::lease;
use super::options::{Apply, ChangeMode, DrainFlags, Drains, Install, Reconfigure, Source, Upgrade};
use super::pods;
use super::prepare::{Prepared, prepare};
use super::saved::{self, Saved};
use super::stage::Purpose;
use super::standing;
use super::trial;
use super::verb;
use crate::apply::cancel;
use crate::apply::converge;
use crate::apply::cordon::Cordon;
use crate::apply::node_object::NodeObject;
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::calico::kube_proxy;
use crate::cluster::DrainOptions;
use crate::cluster::lease::Keeper;
use crate::config::spec::Mode;
use crate::config::types::Wait;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, Tree};
use crate::node::{Node, STATE_DIR};
use crate::plan::show::{Change, Downgrade};
use crate::report::document::RunResult;
use crate::settings::{Backend, Datastore, Maintenance};
use crate::values::WinPath;

/// How long the way back from a trial may take before others may change the node.
const UNTIL_REVERTED: Duration = Duration::from_secs(120);

/// What a verb is beyond the one way.
pub(crate) struct Row {
    pub command: &'static str,
    base: Base,
    /// Pods may be moved away for it; without, a change that needs that is refused.
    drains: bool,
    /// It can be on trial.
    tries: bool,
    /// The kinds of change that are reverted when the Node does not get Ready.
    ready: &'static [Kind],
}

/// Which config counts where none is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The defaults.
    None,
    /// The one of the current generation.
    Current,
    /// The same, where there is one.
    CurrentIfAny,
}

/// What a change is to the node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The first generation.
    First,
    /// Another release.
    Release,
    /// The same release with other settings.
    Settings,
}

const APPLY: Row =
    Row { command: verb::APPLY, base: Base::CurrentIfAny, drains: true, tries: true, ready: &[Kind::Release] };
const INSTALL: Row = Row { command: verb::INSTALL, base: Base::None, drains: false, tries: false, ready: &[] };
const RECONFIGURE: Row = Row { command: verb::RECONFIGURE, base: Base::Current, drains: true, tries: true, ready: &[] };
const UPGRADE: Row = Row {
    command: verb::UPGRADE,
    base: Base::Current,
    drains: true,
    tries: false,
    ready: &[Kind::First, Kind::Release, Kind::Settings],
};

/// What the command line says of a change.
pub(crate) struct Wish<'a> {
    row: &'static Row,
    source: Source,
    /// Whether the services are started, over the config.
    start: Option<bool>,
    unset: &'a [String],
    /// It is to be this plan.
    saved: Option<&'a Path>,
    downgrade: bool,
    /// Whether pods are moved away, over the config.
    drains: Option<bool>,
    drain: DrainFlags,
    mode: Option<Mode>,
    confirm_within: Option<&'a Wait>,
    cluster_vni: Option<&'a Wait>,
}

impl Wish<'_> {
    fn of(row: &'static Row) -> Self {
        Self {
            row,
            source: Source::default(),
            start: None,
            unset: &[],
            saved: None,
            downgrade: false,
            drains: None,
            drain: DrainFlags::default(),
            mode: None,
            confirm_within: None,
            cluster_vni: None,
        }
    }
}

impl<'a> From<&'a Apply> for Wish<'a> {
    fn from(args: &'a Apply) -> Self {
        Self {
            source: args.source.clone(),
            saved: args.plan.as_deref(),
            downgrade: args.allow_downgrade,
            drains: match args.drains {
                Drains::Auto => None,
                Drains::Never => Some(false),
                Drains::Always => Some(true),
            },
            drain: args.drain.clone(),
            ..Wish::of(&APPLY)
        }
    }
}

impl<'a> From<&'a Install> for Wish<'a> {
    fn from(args: &'a Install) -> Self {
        Self {
            source: args.source.clone(),
            start: args.no_start.then_some(false),
            saved: args.plan.as_deref(),
            downgrade: args.allow_downgrade,
            ..Wish::of(&INSTALL)
        }
    }
}

impl<'a> From<&'a Reconfigure> for Wish<'a> {
    fn from(args: &'a Reconfigure) -> Self {
        Self {
            unset: &args.unset,
            saved: args.plan.as_deref(),
            downgrade: args.allow_downgrade,
            drains: args.no_drain.then_some(false),
            drain: args.drain.clone(),
            mode: args.mode.map(|mode| match mode {
                ChangeMode::Auto => Mode::Auto,
                ChangeMode::Try => Mode::Try,
            }),
            confirm_within: args.confirm_timeout.as_ref(),
            cluster_vni: args.wait_for_cluster_vni.as_ref(),
            ..Wish::of(&RECONFIGURE)
        }
    }
}

impl<'a> From<&'a Upgrade> for Wish<'a> {
    fn from(args: &'a Upgrade) -> Self {
        let drains = args.drains.then_some(true).or_else(|| args.no_drain.then_some(false));
        Self {
            source: args.source.clone(),
            saved: args.plan.as_deref(),
            downgrade: args.allow_downgrade,
            drains,
            drain: args.drain.clone(),
            ..Wish::of(&UPGRADE)
        }
    }
}

/// Makes the change, or shows it.
///
/// # Errors
/// What keeps it from being made; and what it failed with, when it is reverted by then or can be resumed.
pub(crate) fn run<'a>(wish: impl Into<Wish<'a>>, app: &mut App) -> Result<Ending> {
    let wish = wish.into();
    if app.global.dry_run {
        let mut node = app.node()?;
        let prepared = gather(&wish, app, &mut *node, Purpose::Look)?;
        show(&wish, app, &prepared)?;
        return saved::dry_run(prepared.plan, prepared.standing.receipt().map(|receipt| receipt.generation));
    }
    let (mut node, _lock) = app.node_to_change(wish.row.command)?;
    let mut prepared = gather(&wish, app, &mut *node, Purpose::Install)?;
    if let Some(result) = begin(&wish, app, &mut *node, &prepared)? {
        return Ending::result(result);
    }
    if wish.cluster_vni.is_some() && prepared.resolved.settings.datastore != Datastore::Kubernetes {
        let what = "--wait-for-cluster-vni asks the Kubernetes API, and Calico keeps the cluster's VNI in etcd here";
        return Err(Fault::new(Exit::Usage, "Usage", what)
            .hint("leave it out, and change the cluster's VNI with calicoctl")
            .into());
    }
    let drains = show(&wish, app, &prepared)?;
    // Before the first generation nobody knows whose pods lose their network.
    if !wish.row.drains || drains.is_none() && Kind::of(&prepared) == Kind::First {
        refuse_drain(&prepared)?;
    }
    app.confirm(&format!("Apply this to {}?", prepared.about.node_name))?;
    let keeper = keeper(&wish, app, &*node, &prepared)?;
    let trial = on_trial(&wish, &prepared);
    let changed = change(&wish, app, &mut *node, &mut prepared, drains.as_ref(), trial);
    match (keeper, trial, &changed) {
        // Until it is confirmed or reverted the node is not for others to change.
        (Some(keeper), Some(within), Ok(_)) => lease::leave(app, keeper, within + UNTIL_REVERTED),
        // It stands, and its guard reverts it.
        (Some(keeper), Some(_), Err(_)) if is_made(app) => lease::leave(app, keeper, UNTIL_REVERTED),
        (Some(keeper), _, _) => lease::give_back(app, keeper),
        (None, _, _) => {}
    }
    if trial.is_some() && changed.is_err() && !is_made(app) {
        trial::ended_early(&*node)?;
    }
    changed
}

/// Whether the engine has made the change, whatever failed after it.
fn is_made(app: &App) -> bool {
    matches!(app.outcome, Outcome::Done(_))
}

/// Finds the config that counts, and plans; a saved plan is held against the one of now.
fn gather(wish: &Wish<'_>, app: &mut App, node: &mut dyn Node, purpose: Purpose) -> Result<Prepared> {
    let saved = wish.saved.map(|file| Saved::load(file, app, node)).transpose()?;
    if wish.row.base == Base::Current {
        standing::must_stand(node)?;
    }
    if saved.is_none() && wish.row.base != Base::None {
        standing::start_from(app, node, wish.unset, &wish.source)?;
    }
    let prepared = prepare(app, node, &wish.source, wish.start, purpose)?;
    saved.map_or(Ok(()), |saved| saved.check(&prepared))?;
    Ok(prepared)
}

impl Kind {
    fn of(prepared: &Prepared) -> Self {
        match prepared.standing.release() {
            None => Self::First,
            Some(version) if *version != prepared.about.calico_version => Self::Release,
            Some(_) => Self::Settings,
        }
    }
}

/// What comes between plan and question: a downgrade is refused unless it is allowed, and an interrupted run is
/// told of. Gives how the run ends where there is nothing to do.
fn begin(wish: &Wish<'_>, app: &mut App, node: &mut dyn Node, prepared: &Prepared) -> Result<Option<RunResult>> {
    if let (Some(Downgrade { from, to }), false) = (&prepared.plan.downgrade, wish.downgrade) {
        let what = format!("this is a downgrade: Calico {from} is on this node, and {to} is older");
        return Err(Fault::new(Exit::DowngradeRefused, "DowngradeNotAllowed", what)
            .hint(format!(
                "set spec.calico.version to {from} to keep it, or add --allow-downgrade to install {to} all the same"
            ))
            .into());
    }
    if let Some(journal) = &prepared.standing.journal {
        let interrupted = journal;
        let message = if journal.header.target == prepared.target {
            format!("this finishes the interrupted {interrupted}")
        } else {
            format!(
                "this does not finish the interrupted {interrupted}: the node gets this config instead; to finish or \
                 undo that run use: {}",
                app.command("resume")
            )
        };
        app.warn("InterruptedRun", message);
        return Ok(None);
    }
    if !prepared.steps.is_empty() {
        return Ok(None);
    }
    let generation = match prepared.standing.receipt() {
        Some(receipt) if receipt.target == prepared.target => {
            // What it was made with is kept, also where it changes nothing on the node.
            if receipt.about.as_ref() != Some(&prepared.about) {
                prepared.keep_config(node)?;
                let mut receipt = receipt.clone();
                receipt.about = Some(prepared.about.clone());
                receipt.save(node)?;
            }
            Some(receipt.generation)
        }
        // Nothing on the node differs, only what is to be left alone: the receipt says so from now on,
        // and its config is what a later change starts from.
        _ => {
            prepared.keep_config(node)?;
            let run = app.run.clone();
            let Prepared { target, about, steps, .. } = prepared;
            let change = converge::Change {
                run: &run,
                command: wish.row.command,
                target,
                about: Some(about),
                terms: app.terms(node, None, Some(&prepared.resolved.run.connection)),
                shown: Some(steps),
            };
            let object = NodeObject::new(about.node_name.as_str(), &prepared.cluster, None);
            converge::apply_proven(node, &object, &change, &|_, _, _| Ok(()), &mut |event| app.event(&event))?
                .generation
        }
    };
    let said = prepared.cluster_facts.node.as_ref().map(|node| node.achieved.as_deref());
    if said.is_some_and(|said| said != Some(prepared.about.settings.to_string().as_str())) {
        let object = NodeObject::new(prepared.about.node_name.as_str(), &prepared.cluster, None);
        converge::tell_again(&object, &Standing::load(node)?, &mut |event| app.event(&event));
    }
    // An interrupted run may have left the Node cordoned.
    if prepared.cluster_facts.node.as_ref().is_none_or(|node| node.ready) {
        cordon::release(app, node)?;
    }
    let msg = format!(
        "nothing to do: Calico {} on {} is as the config says",
        prepared.about.calico_version, prepared.about.node_name
    );
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, false, msg);
    result.generation = generation;
    result.next = vec![app.command("status")];
    Ok(Some(result))
}

/// Shows the plan, and what becomes of the pods. Gives how the node is to be drained, if it is.
fn show(wish: &Wish<'_>, app: &mut App, prepared: &Prepared) -> Result<Option<DrainOptions>> {
    app.tell_plan(&prepared.plan);
    let former = prepared.standing.receipt().and_then(|receipt| receipt.about.as_ref());
    let vni = prepared.about.vni;
    if let Some(former) = former.filter(|former| former.backend == Backend::Vxlan && former.vni != vni) {
        let message = format!(
            "the VNI goes from {} to {vni}: while nodes differ in it, pods on one do not reach those on the other; \
             change FelixConfiguration and the other nodes in the same window",
            former.vni
        );
        app.warn("MixedVni", message);
    }
    if prepared.plan.changes.is_empty() || !wish.row.drains {
        return Ok(None);
    }
    let maintenance = &prepared.resolved.run.maintenance;
    let wanted = wish.drains.or(maintenance.drain.enabled);
    let options = wish.drain.over(&maintenance.drain);
    let name = prepared.about.node_name.as_str();
    let pods = (prepared.plan.needs_drain, prepared.plan.pods.as_slice());
    drain::before(app, name, pods, wanted, options, |_| Ok(&prepared.cluster))
}

/// Refuses a change for which pods would have to go.
fn refuse_drain(prepared: &Prepared) -> Result<()> {
    if prepared.plan.needs_drain {
        let what = "this change replaces the HNS network under the pods of this node";
        let hint = "look at it with: calicoctl-win plan; then drain, change and uncordon with: calicoctl-win \
                    reconfigure, with the same -c and --set (without them it keeps the current config)";
        return Err(Fault::new(Exit::NeedsDrain, "NeedsDrain", what).hint(hint).into());
    }
    pods::judge(&prepared.plan.pods, &[], Some(&prepared.cluster))
}

/// Keeps other machines from changing the node. A node that is to be installed is, also where the cluster
/// gives no Lease.
fn keeper(wish: &Wish<'_>, app: &mut App, node: &dyn Node, prepared: &Prepared) -> Result<Option<Keeper>> {
    if wish.row.drains && (wish.row.base == Base::Current || Kind::of(prepared) != Kind::First) {
        return lease::take(app, node, &prepared.place()).map(Some);
    }
    lease::take_if_possible(app, node, prepared.about.node_name.as_str())
}

/// How long a trial goes on without `confirm`, if the change is to be one.
fn on_trial(wish: &Wish<'_>, prepared: &Prepared) -> Option<Duration> {
    let maintenance = &prepared.resolved.run.maintenance;
    let mode = wish.mode.unwrap_or(maintenance.mode);
    let within = wish.confirm_within.map_or(maintenance.confirm_timeout, Wait::length);
    // There is nothing to go back to before the first generation.
    let can = wish.row.tries && (wish.mode.is_some() || Kind::of(prepared) != Kind::First);
    (can && mode == Mode::Try).then_some(within)
}

/// Makes the change, with the node locked here and in the cluster.
fn change(
    wish: &Wish<'_>,
    app: &mut App,
    node: &mut dyn Node,
    prepared: &mut Prepared,
    drains: Option<&DrainOptions>,
    trial: Option<Duration>,
) -> Result<Ending> {
    let kind = Kind::of(prepared);
    let applied = carry_out(wish, app, node, prepared, drains, trial)?;
    let stale = wish.row.drains && warn_of_kube_proxy(app, node, prepared);
    if kind == Kind::First {
        health_gate::ends_working(app, node, &prepared.target, &applied)?;
    }
    if let Some(limit) = wish.cluster_vni {
        await_cluster(app, prepared, limit.length())?;
    }
    health_gate::ends_ready(app, node, &prepared.target, health_gate::restart(&prepared.steps), &applied)?;
    uncordon(wish, app, node, prepared)?;
    warn_of_config(app, node, prepared);

    let msg = said(wish, kind, prepared, &applied);
    let undo = app.command(if kind == Kind::First { "uninstall" } else { "rollback" });
    let mut next = vec![app.command("status"), undo.clone()];
    if trial.is_some() {
        app.reporter.tell(&msg);
        next = trial::is_live(app, node)?;
    } else {
        if !prepared.resolved.settings.services.start {
            next.insert(0, app.command("service start"));
        }
        app.reporter.tell(&format!("{msg}\nNext: {}      Undo: {undo}", next[0]));
    }
    if stale {
        next.insert(0, format!("Restart-Service {}", kube_proxy::NAME));
    }
    Ending::result(succeeded(app, node, &applied, msg, next))
}

fn said(wish: &Wish<'_>, kind: Kind, prepared: &Prepared, applied: &Applied) -> String {
    let about = &prepared.about;
    let (name, version) = (&about.node_name, &about.calico_version);
    let generation = applied.generation.unwrap_or_default();
    let what = match (kind, prepared.standing.release()) {
        _ if !prepared.resolved.settings.services.start => {
            format!("Calico {version} is installed on {name} and not started")
        }
        (Kind::Release, Some(former)) => format!("{name} runs Calico {version}, before it was {former}"),
        (Kind::Settings, _) if wish.row.tries => format!("{name} is reconfigured"),
        _ => format!("Calico {version} is running on {name}"),
    };
    format!("{what} (generation {generation}).")
}

/// Stages everything, moves the pods away, and converges; what fails is reverted.
fn carry_out(
    wish: &Wish<'_>,
    app: &mut App,
    node: &mut dyn Node,
    prepared: &mut Prepared,
    drains: Option<&DrainOptions>,
    trial: Option<Duration>,
) -> Result<Applied> {
    // A release of ours that stays in place is not made anew, so it must be safe as it is. One that
    // we did not make is moved away whole.
    let root = &prepared.resolved.settings.calico.root;
    let tree = Id::Tree(root.clone());
    let ours = prepared.standing.owned().contains_key(&tree)
        && matches!(node.get(&tree)?, Some(State::Tree(Tree::Release(_) | Tree::Drifted { .. })));
    let opened = secure(node, ours.then(|| root.clone()))?;
    if !opened.is_empty() {
        // The files in it have other access now: that is no change by somebody else.
        prepared.steps = converge::plan(node, &prepared.standing, &prepared.target)?;
    }
    app.made_safe(opened);
    let command = wish.row.command;
    let ready = prepared
        .complete(app, node)
        .and_then(|()| trial.map_or(Ok(()), |within| trial::begin(app, node, prepared, command, within)));
    if let Err(error) = ready {
        retention::tidy(node, &mut |event| app.event(&event));
        return Err(error);
    }
    let stands = prepared.standing.receipt().is_some();
    let mut terms = app.terms(node, drains, Some(&prepared.resolved.run.connection));
    // Without a drain pods lose a network that goes; what `install` refuses, it refuses until then.
    terms.drops_pods = wish.row.drains && drains.is_none() && stands;
    let limit = drains.and_then(|options| options.timeout);
    let object = NodeObject::new(prepared.about.node_name.as_str(), &prepared.cluster, limit);
    let was_ready = prepared.cluster_facts.node.as_ref().and_then(health_gate::not_ready_by_others).is_none();
    let agreed = Agreed {
        command,
        target: &prepared.target,
        about: Some(&prepared.about),
        steps: &prepared.steps,
        terms,
        proves_services: stands && health_gate::disturb(&prepared.steps),
        proves_ready: was_ready && (trial.is_some() || wish.row.ready.contains(&Kind::of(prepared))),
    };
    let applied = engine::carry_out(app, node, &object, agreed);
    if let (Err(_), true, about) = (&applied, prepared.made_secret, &prepared.about) {
        // Another node may be at it already, so it is not for us to delete.
        let secret = about.token_secret.as_deref().unwrap_or_default();
        app.warn("SecretLeft", format!("the secret {}/{secret} that this run made stays", about.calico_namespace));
    }
    applied
}

/// The load balancers of services were in the network that went, and kube-proxy believes that they
/// are there still, if the config forbids to restart it. A change that is made does not fail for a look.
fn warn_of_kube_proxy(app: &mut App, node: &dyn Node, prepared: &Prepared) -> bool {
    let gone = |change: &Change| change.kind == "hns-network" && change.before.is_some();
    if prepared.resolved.settings.services.restart_kube_proxy || !prepared.plan.changes.iter().any(gone) {
        return false;
    }
    // Restarting one that does not run harms nobody.
    let stale = node.get(&Id::Running(kube_proxy::NAME.into())).map_or(true, |runs| runs.is_some());
    if stale {
        app.warn(
            "KubeProxyStale",
            format!("the service {} still counts on the network that is gone: restart it", kube_proxy::NAME),
        );
    }
    stale
}

/// Keeps the node as it is until the Linux side has the same VNI: until then pods here reach nobody.
fn await_cluster(app: &mut App, prepared: &Prepared, limit: Duration) -> Result<()> {
    let _under_way = cancel::UnderWay::begin();
    let (group, vni) = (prepared.cluster_facts.api_group, prepared.about.vni);
    app.phase("cluster-vni", |app| {
        prepared.cluster.await_vni(group, vni, limit, &cancel::asked, &mut |event| app.event(&event))?;
        Ok(((), format!("FelixConfiguration says VNI {vni}")))
    })?;
    Ok(())
}

/// The machine's own config file counts for the next run, whatever release was named for this one.
fn warn_of_config(app: &mut App, node: &dyn Node, prepared: &Prepared) {
    let file = WinPath::known(STATE_DIR).join("config.yaml");
    if !app.global.config.is_empty() || !node.disk(&file).exists() {
        return;
    }
    let version = &prepared.about.calico_version;
    let said = app.config(node, &Source::default(), &[]).ok().and_then(|layered| layered.config.spec.calico.version);
    if let Some(said) = said.map(|said| said.to_string()).filter(|said| *said != version.to_string()) {
        let message = format!("{file} still says Calico {said}: write {version} there, or the next run returns to it");
        app.warn("ConfigOfOtherRelease", message);
    }
}

/// Lets pods come again: if a run of ours had kept them off, unless the config says otherwise.
fn uncordon(wish: &Wish<'_>, app: &mut App, node: &mut dyn Node, prepared: &Prepared) -> Result<()> {
    let name = prepared.about.node_name.as_str();
    let Maintenance { uncordon, .. } = prepared.resolved.run.maintenance;
    // Where no pods are moved away it is not asked for.
    let uncordon = uncordon.filter(|_| wish.row.drains);
    match (uncordon, Cordon::load(node)?) {
        (Some(false), Some(cordon)) => {
            app.reporter.tell(&format!("Node {name} stays cordoned, as the config says."));
            cordon::unmark(app, &prepared.cluster, name);
            cordon.forget(node)
        }
        (Some(true), None) => prepared.cluster.uncordon(name).map(drop),
        _ => cordon::release(app, node),
    }
}
