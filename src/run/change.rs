//! `apply`, `install`, `reconfigure` and `upgrade`: one pipeline from the config to a node that matches it. Pods that
//! would lose their network are moved away first, everything is prepared before the first service stops, and a change
//! that does not work is reverted.

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
use super::pipeline;
use super::pods;
use super::prepare::{Prepared, prepare};
use super::saved::{self, Saved};
use super::stage::Purpose;
use super::standing;
use super::trial;
use super::verb::{self, Base, Goal, Kind, Row};
use crate::apply::cancel;
use crate::apply::converge;
use crate::apply::cordon::Cordon;
use crate::apply::lock::Lock;
use crate::apply::node_object::NodeObject;
use crate::apply::retention;
use crate::apply::standing::{Applied, Standing};
use crate::calico::kube_proxy;
use crate::cluster::DrainOptions;
use crate::cluster::lease::LeaseRenewer;
use crate::config::spec::Mode;
use crate::config::types::Wait;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, Tree};
use crate::node::{Node, STATE_DIR};
use crate::plan::show::{Change, Downgrade, Plan};
use crate::report::document::RunResult;
use crate::settings::{Backend, Datastore, Maintenance};
use crate::values::WinPath;

/// How long the revert of a trial may take before others may change the node.
const UNTIL_REVERTED: Duration = Duration::from_secs(120);

/// What the command line says about a change.
pub(crate) struct Wish<'a> {
    row: &'static Row,
    source: Source,
    /// Whether the services are started, over the config.
    start: Option<bool>,
    unset: &'a [String],
    /// Apply this saved plan.
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
            ..Wish::of(&verb::APPLY)
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
            ..Wish::of(&verb::INSTALL)
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
            ..Wish::of(&verb::RECONFIGURE)
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
            ..Wish::of(&verb::UPGRADE)
        }
    }
}

/// Makes the change, or shows it.
///
/// # Errors
/// What prevents the change; and its failure, after which it is reverted or can be resumed.
pub(crate) fn run<'a>(wish: impl Into<Wish<'a>>, app: &mut App) -> Result<Ending> {
    let wish = wish.into();
    pipeline::run(wish.row, app, |app, node, standing, purpose| gather(wish, app, node, standing, purpose))
}

/// A change to what the config says.
struct Planned<'a> {
    wish: Wish<'a>,
    prepared: Prepared,
    kind: Kind,
    /// How the node is to be drained, if it is.
    drains: Option<DrainOptions>,
    /// How long a trial waits for `confirm`, if the change is a trial.
    trial: Option<Duration>,
}

/// A change that was made.
struct Made {
    applied: Applied,
    msg: String,
    next: Vec<String>,
}

/// Finds the effective config, and plans; compares a saved plan with the current one.
fn gather<'a>(
    wish: Wish<'a>,
    app: &mut App,
    node: &mut dyn Node,
    standing: Standing,
    purpose: Purpose,
) -> Result<Planned<'a>> {
    let saved = wish.saved.map(|file| Saved::load(file, app, node)).transpose()?;
    if wish.row.goal == Goal::Config(Base::Current) {
        standing::must_stand(&standing)?;
    }
    if saved.is_none() && wish.row.goal != Goal::Config(Base::None) {
        standing::start_from(app, node, &standing, wish.unset, &wish.source)?;
    }
    let prepared = prepare(app, node, standing, &wish.source, wish.start, purpose)?;
    saved.map_or(Ok(()), |saved| saved.check(&prepared))?;
    let kind = match prepared.standing.release() {
        None => Kind::First,
        Some(version) if *version != prepared.about.calico_version => Kind::Release,
        Some(_) => Kind::Settings,
    };
    let maintenance = &prepared.resolved.run.maintenance;
    let within = wish.confirm_within.map_or(maintenance.confirm_timeout, Wait::length);
    // Before the first generation there is nothing to revert to.
    let can = wish.row.tries && (wish.mode.is_some() || kind != Kind::First);
    let trial = (can && wish.mode.unwrap_or(maintenance.mode) == Mode::Try).then_some(within);
    Ok(Planned { wish, prepared, kind, drains: None, trial })
}

impl pipeline::Change for Planned<'_> {
    type Made = Made;

    fn judge(&self, app: &mut App, node: &mut dyn Node) -> Result<Option<RunResult>> {
        self.refuse_downgrade()?;
        if let Some(result) = self.nothing_to_do(app, node)? {
            return Ok(Some(result));
        }
        if self.wish.cluster_vni.is_some() && self.prepared.resolved.settings.datastore != Datastore::Kubernetes {
            let what =
                "--wait-for-cluster-vni asks the Kubernetes API, and Calico keeps the cluster's VNI in etcd here";
            return Err(Fault::new(Exit::Usage, "Usage", what)
                .hint("leave it out, and change the cluster's VNI with calicoctl")
                .into());
        }
        Ok(None)
    }

    fn show(&mut self, app: &mut App, _: &dyn Node) -> Result<()> {
        let prepared = &self.prepared;
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
        if prepared.plan.changes.is_empty() || !self.wish.row.drains {
            return Ok(());
        }
        let maintenance = &prepared.resolved.run.maintenance;
        let wanted = self.wish.drains.or(maintenance.drain.enabled);
        let options = self.wish.drain.over(&maintenance.drain);
        let name = prepared.about.node_name.as_str();
        let pods = (prepared.plan.needs_drain, prepared.plan.pods.as_slice());
        self.drains = drain::before(app, name, pods, wanted, options, |_| Ok(&prepared.cluster))?;
        Ok(())
    }

    fn would(self, _: &mut App) -> Result<Ending> {
        let Prepared { plan, standing, .. } = self.prepared;
        saved::dry_run(plan, standing.receipt().map(|receipt| receipt.generation))
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.prepared.plan)
    }

    fn ask(&self, app: &mut App, _: &dyn Node) -> Result<()> {
        let prepared = &self.prepared;
        // Before the first generation it is unknown whose pods lose their network.
        if !self.wish.row.drains || self.drains.is_none() && self.kind == Kind::First {
            refuse_drain(prepared, self.kind)?;
        }
        app.confirm(&format!("Apply this to {}?", prepared.about.node_name))
    }

    /// A first installation proceeds even if the Lease cannot be taken.
    fn lease(&self, app: &mut App, node: &dyn Node) -> Result<Option<LeaseRenewer>> {
        let prepared = &self.prepared;
        if self.wish.row.drains && (self.wish.row.goal == Goal::Config(Base::Current) || self.kind != Kind::First) {
            return lease::take(app, node, &prepared.place()).map(Some);
        }
        lease::take_if_possible(app, node, prepared.about.node_name.as_str())
    }

    fn make(&mut self, app: &mut App, node: &mut dyn Node) -> Result<Made> {
        let Planned { kind, trial, .. } = *self;
        let applied = self.carry_out(app, node)?;
        let prepared = &self.prepared;
        let stale = self.wish.row.drains && warn_of_kube_proxy(app, node, prepared);
        if kind == Kind::First {
            health_gate::ends_working(app, node, &prepared.target, &applied)?;
        }
        if let Some(limit) = self.wish.cluster_vni {
            await_cluster(app, prepared, limit.length())?;
        }
        health_gate::ends_ready(app, node, &prepared.target, health_gate::restart(&prepared.steps), &applied)?;
        self.uncordon(app, node)?;
        self.warn_of_config(app, node);

        let msg = self.said(&applied);
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
        Ok(Made { applied, msg, next })
    }

    fn release(&self, app: &mut App, node: &dyn Node, keeper: Option<LeaseRenewer>, failed: bool) -> Result<()> {
        match (keeper, self.trial) {
            // Others may not change the node until the change is confirmed or reverted.
            (Some(keeper), Some(within)) if !failed => lease::leave(app, keeper, within + UNTIL_REVERTED),
            // The change is made, and its guard reverts it.
            (Some(keeper), Some(_)) if is_made(app) => lease::leave(app, keeper, UNTIL_REVERTED),
            (keeper, _) => lease::release(app, keeper),
        }
        if self.trial.is_some() && failed && !is_made(app) {
            trial::ended_early(node)?;
        }
        Ok(())
    }

    fn finish(self, app: &mut App, node: &mut dyn Node, _: Lock, made: Made) -> Result<Ending> {
        Ending::result(succeeded(app, node, &made.applied, made.msg, made.next))
    }
}

impl Planned<'_> {
    fn refuse_downgrade(&self) -> Result<()> {
        let Some(Downgrade { from, to }) = self.prepared.plan.downgrade.as_ref().filter(|_| !self.wish.downgrade)
        else {
            return Ok(());
        };
        let what = format!("this is a downgrade: Calico {from} is on this node, and {to} is older");
        Err(Fault::new(Exit::DowngradeRefused, "DowngradeNotAllowed", what)
            .hint(format!(
                "set spec.calico.version to {from} to keep it, or add --allow-downgrade to install {to} all the same"
            ))
            .into())
    }

    /// Returns the result if there is nothing to do; for an interrupted run, reports what happens to it.
    fn nothing_to_do(&self, app: &mut App, node: &mut dyn Node) -> Result<Option<RunResult>> {
        let prepared = &self.prepared;
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
                // The config is stored, even if it changes nothing on the node.
                if receipt.about.as_ref() != Some(&prepared.about) {
                    prepared.keep_config(node)?;
                    let mut receipt = receipt.clone();
                    receipt.about = Some(prepared.about.clone());
                    receipt.save(node)?;
                }
                Some(receipt.generation)
            }
            // The node does not differ, only the list of what to leave alone: the receipt records it from now on, and
            // its config is what a later change starts from.
            _ => {
                prepared.keep_config(node)?;
                let run = app.run.clone();
                let Prepared { target, about, steps, .. } = prepared;
                let change = converge::Change {
                    run: &run,
                    command: self.wish.row.command,
                    target,
                    about: Some(about),
                    terms: app.terms(node, None, Some(&prepared.resolved.run.connection)),
                    shown: Some(steps),
                };
                let object = NodeObject::new(about.node_name.as_str(), &prepared.cluster, None);
                let standing = &prepared.standing;
                converge::apply_proven(node, standing, &object, &change, &|_, _, _| Ok(()), &mut |event| {
                    app.event(&event);
                })?
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

    fn said(&self, applied: &Applied) -> String {
        let prepared = &self.prepared;
        let about = &prepared.about;
        let (name, version) = (&about.node_name, &about.calico_version);
        let generation = applied.generation.unwrap_or_default();
        let what = match (self.kind, prepared.standing.release()) {
            _ if !prepared.resolved.settings.services.start => {
                format!("Calico {version} is installed on {name} and not started")
            }
            (Kind::Release, Some(former)) => format!("{name} runs Calico {version}, before it was {former}"),
            (Kind::Settings, _) if self.wish.row.tries => format!("{name} is reconfigured"),
            _ => format!("Calico {version} is running on {name}"),
        };
        format!("{what} (generation {generation}).")
    }

    /// Stages everything, moves the pods away, and converges; reverts what fails.
    fn carry_out(&mut self, app: &mut App, node: &mut dyn Node) -> Result<Applied> {
        let Self { wish, prepared, kind, drains, trial } = self;
        // A release of ours that stays in place is not re-created, so it must be safe as it is. One that we did not
        // create is moved away whole.
        let root = &prepared.resolved.settings.calico.root;
        let tree = Id::Tree(root.clone());
        let ours = prepared.standing.owned().contains_key(&tree)
            && matches!(node.get(&tree)?, Some(State::Tree(Tree::Release(_) | Tree::Drifted { .. })));
        let opened = secure(node, ours.then(|| root.clone()))?;
        if !opened.is_empty() {
            // The files in it have other rights now: that is not a change by others.
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
        let mut terms = app.terms(node, drains.as_ref(), Some(&prepared.resolved.run.connection));
        // Without a drain, pods lose a network that is deleted; before that, `install` refuses such a change.
        terms.drops_pods = wish.row.drains && drains.is_none() && stands;
        let limit = drains.as_ref().and_then(|options| options.timeout);
        let object = NodeObject::new(prepared.about.node_name.as_str(), &prepared.cluster, limit);
        let was_ready = prepared.cluster_facts.node.as_ref().and_then(health_gate::not_ready_by_others).is_none();
        let agreed = Agreed {
            command,
            target: &prepared.target,
            about: Some(&prepared.about),
            steps: &prepared.steps,
            terms,
            proves_services: stands && health_gate::disturb(&prepared.steps),
            proves_ready: was_ready && (trial.is_some() || wish.row.ready.contains(kind)),
        };
        let applied = engine::carry_out(app, node, &prepared.standing, &object, agreed);
        if let (Err(_), true, about) = (&applied, prepared.made_secret, &prepared.about) {
            // Another node may use the secret already, so it is not ours to delete.
            let secret = about.token_secret.as_deref().unwrap_or_default();
            app.warn("SecretLeft", format!("the secret {}/{secret} that this run made stays", about.calico_namespace));
        }
        applied
    }

    /// The machine's own config file is used by the next run, whatever release was named for this one.
    fn warn_of_config(&self, app: &mut App, node: &dyn Node) {
        let file = WinPath::known(STATE_DIR).join("config.yaml");
        if self.wish.source.release.is_none() || !app.global.config.is_empty() || !node.disk(&file).exists() {
            return;
        }
        let version = &self.prepared.about.calico_version;
        let said =
            app.read_config(node, &Source::default()).ok().and_then(|layered| layered.config.spec.calico.version);
        if let Some(said) = said.map(|said| said.to_string()).filter(|said| *said != version.to_string()) {
            let message =
                format!("{file} still says Calico {said}: write {version} there, or the next run returns to it");
            app.warn("ConfigOfOtherRelease", message);
        }
    }

    /// Makes the node schedulable if a run of ours had cordoned it, unless the config says otherwise.
    fn uncordon(&self, app: &mut App, node: &mut dyn Node) -> Result<()> {
        let prepared = &self.prepared;
        let name = prepared.about.node_name.as_str();
        let Maintenance { uncordon, .. } = prepared.resolved.run.maintenance;
        // Does not apply to a verb that moves no pods away.
        let uncordon = uncordon.filter(|_| self.wish.row.drains);
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
}

/// Whether the engine has made the change, even if something failed after it.
fn is_made(app: &App) -> bool {
    matches!(app.outcome, Outcome::Done(_))
}

/// Refuses a change that needs pods to be moved away.
fn refuse_drain(prepared: &Prepared, kind: Kind) -> Result<()> {
    if prepared.plan.needs_drain {
        let what = "this change replaces the HNS network under the pods of this node";
        let hint = match kind {
            Kind::First => {
                "look at it with: calicoctl-win plan\nthen drain, install and uncordon with: calicoctl-win apply, \
                 with the same -c and --set"
            }
            _ => {
                "look at it with: calicoctl-win plan\nthen drain, change and uncordon with: calicoctl-win reconfigure, \
                 with the same -c and --set (without them it keeps the current config)"
            }
        };
        return Err(Fault::new(Exit::NeedsDrain, "NeedsDrain", what).hint(hint).into());
    }
    pods::judge(&prepared.plan.pods, &[], Some(&prepared.cluster))
}

/// The load balancers of services were in the deleted network, and kube-proxy still assumes them, if the config forbids
/// to restart it. A failed check does not fail a change that is made.
fn warn_of_kube_proxy(app: &mut App, node: &dyn Node, prepared: &Prepared) -> bool {
    let gone = |change: &Change| change.kind == "hns-network" && change.before.is_some();
    if prepared.resolved.settings.services.restart_kube_proxy || !prepared.plan.changes.iter().any(gone) {
        return false;
    }
    // Restarting one that does not run is harmless.
    let stale = node.get(&Id::Running(kube_proxy::NAME.into())).map_or(true, |runs| runs.is_some());
    if stale {
        app.warn(
            "KubeProxyStale",
            format!("the service {} still counts on the network that is gone: restart it", kube_proxy::NAME),
        );
    }
    stale
}

/// Waits until the Linux side has the same VNI: until then, pods here reach no other node.
fn await_cluster(app: &mut App, prepared: &Prepared, limit: Duration) -> Result<()> {
    let _under_way = cancel::UnderWay::begin();
    let (group, vni) = (prepared.cluster_facts.api_group, prepared.about.vni);
    app.phase("cluster-vni", |app| {
        prepared.cluster.await_vni(group, vni, limit, &cancel::asked, &mut |event| app.event(&event))?;
        Ok(((), format!("FelixConfiguration says VNI {vni}")))
    })?;
    Ok(())
}
