//! `apply`, `install`, `reconfigure` and `upgrade`: from the config to a node that matches it. Pods that would lose their
//! network are moved away first, everything is prepared before the first service stops, and a change that does not work
//! is reverted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::Ending;
use super::app::App;
use super::context::Operation;
use super::cordon::After;
use super::ending::Outcome;
use super::generations::check_standing;
use super::health_gate::{self, Works};
use super::kubernetes;
use super::open::secure;
use super::options::{
    Apply, ChangeMode, DrainFlags, Drains, Install, MigrateFromFlannel, Reconfigure, SourceOrBundle, Upgrade, quoted,
};
use super::pipeline::{self, Done, Verb, report};
use super::prepare::{Prepared, prepare};
use super::sources::{Choice, machines_file, version_in_file};
use super::stage::Purpose;
use super::verb::{self, Aim, Base, Kind, Lease, Row};
use super::{drain, flannel, trial};
use crate::agent::trial::Trial;
use crate::apply::cancel;
use crate::apply::converge::{self, unproven};
use crate::apply::cordon::ClusterVni;
use crate::apply::joining::has_joined;
use crate::apply::journal::Terms;
use crate::apply::source_vip;
use crate::apply::standing::Applied;
use crate::calico::kube_proxy;
use crate::calico::services::Role;
use crate::config::spec::Mode;
use crate::config::types::Wait;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State, Tree};
use crate::plan::show::{Change, Downgrade, Plan, SettingChange};
use crate::settings::{Backend, Datastore};

/// How long the revert of a trial may take before others may change the node.
const UNTIL_REVERTED: Duration = Duration::from_secs(120);

/// What the command line says about a change.
pub(crate) struct ChangeRequest<'a> {
    row: &'static Row,
    source: SourceOrBundle,
    /// Whether the services are started, over the config.
    start: Option<bool>,
    unset: &'a [String],
    /// Apply this saved plan.
    saved: Option<&'a Path>,
    downgrade: bool,
    /// Whether the node is drained, over the config.
    drains: Option<bool>,
    drain: DrainFlags,
    mode: Option<Mode>,
    confirm_within: Option<&'a Wait>,
    cluster_vni: Option<&'a Wait>,
}

impl<'a> ChangeRequest<'a> {
    /// The verb, and what it says of the config.
    pub fn target(&self) -> (&'static Row, Choice<'a>) {
        (self.row, Choice { unset: self.unset, saved: self.saved, ..Choice::of(&self.source) })
    }

    /// Only what the config says.
    pub fn of(row: &'static Row) -> Self {
        Self {
            row,
            source: SourceOrBundle::default(),
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

    /// The same, of this release or bundle.
    pub fn with(row: &'static Row, source: &SourceOrBundle) -> Self {
        Self { source: source.clone(), ..Self::of(row) }
    }
}

impl<'a> From<&'a Apply> for ChangeRequest<'a> {
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
            ..ChangeRequest::of(&verb::APPLY)
        }
    }
}

impl<'a> From<&'a Install> for ChangeRequest<'a> {
    fn from(args: &'a Install) -> Self {
        Self {
            source: args.source.clone(),
            start: args.no_start.then_some(false),
            saved: args.plan.as_deref(),
            downgrade: args.allow_downgrade,
            ..ChangeRequest::of(&verb::INSTALL)
        }
    }
}

impl<'a> From<&'a Reconfigure> for ChangeRequest<'a> {
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
            ..ChangeRequest::of(&verb::RECONFIGURE)
        }
    }
}

impl<'a> From<&'a Upgrade> for ChangeRequest<'a> {
    fn from(args: &'a Upgrade) -> Self {
        Self {
            source: args.source.clone(),
            saved: args.plan.as_deref(),
            downgrade: args.allow_downgrade,
            drains: args.drains.then_some(true).or_else(|| args.no_drain.then_some(false)),
            drain: args.drain.clone(),
            ..ChangeRequest::of(&verb::UPGRADE)
        }
    }
}

impl<'a> From<&'a MigrateFromFlannel> for ChangeRequest<'a> {
    fn from(args: &'a MigrateFromFlannel) -> Self {
        Self {
            source: args.source.clone(),
            drains: Some(!args.no_drain),
            drain: args.drain.clone(),
            ..ChangeRequest::of(&verb::MIGRATE)
        }
    }
}

/// Makes the change, or shows it.
///
/// # Errors
/// What prevents the change; and its failure, after which it is reverted or can be resumed.
pub(crate) fn run<'a>(request: impl Into<ChangeRequest<'a>>, app: &mut App) -> Result<Ending> {
    let request = request.into();
    let (row, choice) = request.target();
    pipeline::run(row, app, &choice, |op| gather(request, op))
}

/// A change to what the config says.
struct Configured<'a> {
    request: ChangeRequest<'a>,
    prepared: Prepared,
    kind: Kind,
    /// How long a trial waits for `confirm`, if the change is a trial.
    trial: Option<Duration>,
    /// kube-proxy still uses the network that was replaced.
    kube_proxy_stale: bool,
}

/// Finds the effective config, and plans; compares a saved plan with the current one.
fn gather<'a>(request: ChangeRequest<'a>, op: &mut Operation<'_>) -> Result<Configured<'a>> {
    let standing = &op.context.standing;
    check_standing(request.row, standing)?;
    let purpose = if op.app.global.is_dry_run() { Purpose::Look } else { Purpose::Install };
    let prepared = prepare(op, request.start, (request.drains, &request.drain), purpose)?;
    if let Some(saved) = &op.context.sources.saved {
        saved.check(&prepared.planned.plan, &prepared.about.settings)?;
    }
    let kind = match standing.release() {
        None => Kind::First,
        Some(version) if *version != prepared.about.calico_version => Kind::Release,
        Some(_) => Kind::Settings,
    };
    let maintenance = &prepared.resolved.run.maintenance;
    let within = request.confirm_within.map_or(maintenance.confirm_timeout, Wait::length);
    // Before the first generation there is nothing to revert to.
    let can = request.row.tries && (request.mode.is_some() || kind != Kind::First);
    let trial = (can && request.mode.unwrap_or(maintenance.mode) == Mode::Try).then_some(within);
    Ok(Configured { request, prepared, kind, trial, kube_proxy_stale: false })
}

impl Verb for Configured<'_> {
    fn node_name(&self) -> &str {
        &self.prepared.planned.name
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.prepared.planned.plan)
    }

    fn judge(&mut self, op: &mut Operation<'_>) -> Result<Option<Done>> {
        self.nothing_to_do(op)
    }

    fn show(&mut self, op: &mut Operation<'_>) -> Result<()> {
        let Prepared { planned, about, .. } = &mut self.prepared;
        planned.tell(op);
        let former = op.context.standing.receipt().and_then(|receipt| receipt.about.as_ref());
        if let Some(former) = former.filter(|former| former.backend == Backend::Vxlan && former.vni != about.vni) {
            let message = format!(
                "the VNI goes from {} to {}: while nodes differ in it, pods on one do not reach those on the other; \
                 change FelixConfiguration and the other nodes in the same window",
                former.vni, about.vni
            );
            op.app.warn("MixedVni", message);
        }
        if planned.plan.changes.is_empty() || !op.row.drains {
            return Ok(());
        }
        planned.decide_drain(op)
    }

    fn refuse(&self, op: &mut Operation<'_>) -> Result<()> {
        if let Some(Downgrade { from, to }) =
            self.prepared.planned.plan.downgrade.as_ref().filter(|_| !self.request.downgrade)
        {
            let what = format!("this is a downgrade: Calico {from} is on this node, and {to} is older");
            let hint = format!(
                "set spec.calico.version to {from} to keep it, or add --allow-downgrade to install {to} all the same"
            );
            return Err(Fault::new(Exit::DowngradeRefused, "DowngradeNotAllowed", what).hint(hint).into());
        }
        if self.request.cluster_vni.is_some() && self.prepared.resolved.settings.datastore != Datastore::Kubernetes {
            let what =
                "--wait-for-cluster-vni asks the Kubernetes API, and Calico keeps the cluster's VNI in etcd here";
            return Err(Fault::new(Exit::Usage, "Usage", what)
                .hint("leave it out, and change the cluster's VNI with calicoctl")
                .into());
        }
        // Before the first generation it is unknown whose pods lose their network.
        if !op.row.drains || self.prepared.planned.drain.is_none() && self.kind == Kind::First {
            self.refuse_drain(op)?;
        }
        Ok(())
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        self.prepared.planned.would(op)
    }

    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        op.app.confirm("the node", &format!("Apply this to {}?", self.prepared.planned.name), None)
    }

    /// A first installation proceeds even if the Lease cannot be taken.
    fn lease(&self, op: &Operation<'_>) -> Lease {
        let required = op.row.aim == Aim::Config(Base::Current) || self.kind != Kind::First;
        if op.row.drains && required { Lease::Required } else { op.row.lease }
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let works = self.prepared.planned.works(op);
        let applied = self.apply(op, &works);
        let is_as_before = matches!(op.app.record().outcome, Outcome::Untouched | Outcome::Undone);
        if self.trial.is_some() && applied.is_err() && is_as_before {
            Trial::forget(op.node)?;
        }
        let applied = applied?;
        let planned = &self.prepared.planned;
        self.kube_proxy_stale = op.row.drains && self.warn_of_kube_proxy(op);
        if self.kind == Kind::First {
            works.ends_working(op, &planned.target)?;
        }
        if let Some(awaited) = self.awaited() {
            await_vni(op, &awaited)?;
        }
        works.ends_ready(op, &planned.target)?;
        Ok(applied)
    }

    /// The node is made schedulable if a run of ours had cordoned it, unless the config says otherwise.
    fn after(&self) -> After {
        // The config's choice does not apply to a verb that moves no pods away.
        match self.prepared.resolved.run.maintenance.uncordon.filter(|_| self.request.row.drains) {
            Some(false) => After::Keep(", as the config says".into()),
            Some(true) => After::UncordonAlways,
            None => After::Uncordon,
        }
    }

    fn leaves_lease(&self, op: &Operation<'_>, failed: bool) -> Option<Duration> {
        let within = self.trial?;
        let is_made = matches!(op.app.record().outcome, Outcome::Done(_));
        match failed {
            // Others may not change the node until the change is confirmed or reverted.
            false => Some(within + UNTIL_REVERTED),
            // The change is made, and its guard reverts it.
            true => is_made.then_some(UNTIL_REVERTED),
        }
    }

    fn ends(&self, op: &Operation<'_>) -> &'static str {
        let same = op.context.standing.journal.as_ref();
        let same = same.is_some_and(|journal| journal.header.target.is_same(&self.prepared.planned.target));
        if same { "finished" } else { "replaced" }
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        self.warn_of_config(op);
        if op.row.replaces_flannel && self.prepared.resolved.settings.services.start {
            // The migration is made, whatever this says.
            if let Err(error) = flannel::tell_of_kube_proxy(op, &self.prepared.resolved.settings) {
                op.app.warn("KubeProxyNetwork", format!("what kube-proxy needs could not be looked at: {error:#}"));
            }
        }
        let msg = self.said(op, &applied);
        let undo = op.app.command(if self.kind == Kind::First { "uninstall" } else { "rollback" });
        let mut next = vec![op.app.command("status"), undo.clone()];
        if self.trial.is_some() {
            op.app.reporter.tell(&msg);
            next = trial::is_live(op)?;
        } else {
            if self.is_not_started(op) {
                next.insert(0, op.app.command("service start"));
                if op.row.replaces_flannel && source_vip::is_unknown(op.node, &self.prepared.planned.target)? {
                    next.insert(1, op.app.command("apply"));
                }
            }
            op.app.reporter.tell(&format!("{msg}\nNext: {}      Undo: {undo}", next[0]));
        }
        if self.kube_proxy_stale {
            next.insert(0, format!("Restart-Service {}", kube_proxy::NAME));
        }
        report(op, Done::new(&applied, msg, next))
    }
}

/// Waits until the cluster has the VNI: until the Linux side has it too, pods here reach no other node.
///
/// # Errors
/// As [`crate::cluster::Cluster::await_vni`]; the Node stays cordoned.
pub(crate) fn await_vni(op: &mut Operation<'_>, awaited: &ClusterVni) -> Result<()> {
    let _under_way = cancel::UnderWay::begin();
    let ClusterVni { group, vni, limit_s } = *awaited;
    let cluster = op.context.cluster(op.node)?;
    op.app.reporter.tell(&format!("Waiting for {awaited}, for up to {limit_s} s: until then no new pods."));
    op.app.phase("cluster-vni", |app| {
        let limit = Duration::from_secs(limit_s);
        cluster.await_vni(group, vni, limit, &cancel::asked, &mut |event| app.event(&event))?;
        Ok(((), format!("FelixConfiguration says VNI {vni}")))
    })
}

impl Configured<'_> {
    /// What keeps the Node cordoned once the change is made.
    fn awaited(&self) -> Option<ClusterVni> {
        let Prepared { about, cluster_facts, .. } = &self.prepared;
        let limit_s = self.request.cluster_vni?.length().as_secs();
        Some(ClusterVni { group: cluster_facts.api_group, vni: about.vni, limit_s })
    }

    /// Returns the result if there is nothing to do; for an interrupted run, reports what happens to it.
    fn nothing_to_do(&self, op: &mut Operation<'_>) -> Result<Option<Done>> {
        let Prepared { planned, about, .. } = &self.prepared;
        let standing = &op.context.standing;
        if let Some(interrupted) = &standing.journal {
            let message = if interrupted.header.target.is_same(&planned.target) {
                format!("this finishes the interrupted {interrupted}")
            } else {
                format!(
                    "this does not finish the interrupted {interrupted}: the node gets this config instead; to finish or \
                     undo that run use: {}",
                    op.app.command("resume")
                )
            };
            op.app.warn("InterruptedRun", message);
            return Ok(None);
        }
        if !planned.steps.is_empty() {
            return Ok(None);
        }
        let object = planned.object(op);
        // What is written from here on is our own record, also on the Node: no change.
        let flag = Arc::clone(&op.app.record().changed);
        let changed = flag.load(Relaxed);
        let generation = match standing.receipt() {
            Some(receipt) if receipt.target.is_same(&planned.target) => {
                // The config is stored, even if it changes nothing on the node.
                if receipt.about.as_ref() != Some(about) {
                    self.prepared.keep_config(op.node)?;
                    let mut receipt = receipt.clone();
                    receipt.about = Some(about.clone());
                    receipt.save(op.node)?;
                }
                Some(receipt.generation)
            }
            // The node does not differ, only the list of what to leave alone: the receipt records it from now on, and
            // its config is what a later change starts from.
            _ => {
                self.prepared.keep_config(op.node)?;
                let change = converge::Change {
                    run: &op.app.run.clone(),
                    command: op.row.command,
                    target: &planned.target,
                    about: Some(about),
                    terms: op.context.terms(op.app, op.node, None),
                    shown: Some(&planned.steps),
                };
                let events = &mut |event| op.app.event(&event);
                converge::apply(op.node, standing, &object, &change, &unproven, events)?.generation
            }
        };
        let found = self.prepared.cluster_facts.node.as_ref();
        if found.is_some_and(|found| found.achieved.as_deref() != Some(about.settings.as_str())) {
            converge::tell_again(&object, about, &mut |event| op.app.event(&event));
        }
        flag.store(changed, Relaxed);
        let msg =
            format!("nothing to do: Calico {} on {} is as the config says", about.calico_version, about.node_name);
        // An interrupted run may have left the Node cordoned.
        let after = if found.is_none_or(|found| found.ready) { After::Uncordon } else { After::Leave };
        Ok(Some(Done { after, next: vec![op.app.command("status")], ..Done::nothing(generation, msg) }))
    }

    /// Whether the services must be started by hand: a run that leaves them as they are does not stop them either.
    fn is_not_started(&self, op: &Operation<'_>) -> bool {
        let runs = || matches!(op.node.get(&Id::Running(Role::Node.service().into())), Ok(Some(_)));
        !self.prepared.resolved.settings.services.start && !runs()
    }

    fn said(&self, op: &Operation<'_>, applied: &Applied) -> String {
        let (name, version) = (&self.prepared.about.node_name, &self.prepared.about.calico_version);
        let what = match (self.kind, op.context.standing.release()) {
            _ if self.is_not_started(op) => {
                format!("Calico {version} is installed on {name} and not started")
            }
            (Kind::Release, Some(former)) => format!("{name} runs Calico {version}, before it was {former}"),
            (Kind::Settings, _) if op.row.tries => format!("{name} is reconfigured"),
            _ => format!("Calico {version} is running on {name}"),
        };
        format!("{what} (generation {}).", applied.generation.unwrap_or_default())
    }

    /// Stages everything, moves the pods away, and converges; reverts what fails.
    fn apply(&mut self, op: &mut Operation<'_>, works: &Works) -> Result<Applied> {
        let cluster_vni = self.awaited();
        let Self { prepared, kind, trial, .. } = self;
        let standing = &op.context.standing;
        // A release of ours that stays in place is not re-created, so it must be safe as it is. One that another program
        // created is moved away whole.
        let root = prepared.resolved.settings.calico.root.clone();
        let tree = Id::Tree(root.clone());
        let ours = standing.owned().contains_key(&tree)
            && matches!(op.node.get(&tree)?, Some(State::Tree(Tree::Release(_) | Tree::Drifted { .. })));
        let opened = secure(op.node, ours.then_some(root))?;
        if !opened.is_empty() {
            // The files in it have other rights now: that is not a change by others.
            prepared.planned.steps = converge::plan(op.node, standing, &prepared.planned.target)?;
        }
        op.app.made_safe(opened);
        prepared.complete(op)?;
        if let Some(within) = *trial {
            trial::begin(op, &prepared.planned.name, within)?;
        }
        let Prepared { planned, about, cluster_facts, .. } = &*prepared;
        let was_ready = cluster_facts.node.as_ref().and_then(health_gate::not_ready_by_others).is_none();
        let services = standing.receipt().is_some() && health_gate::disturb(&planned.steps);
        let proof = works.proof(services, was_ready && (trial.is_some() || op.row.ready.contains(kind)));
        let (object, terms) = (planned.object(op), Terms { cluster_vni, ..planned.terms(op) });
        let joined = prepared.resolved.settings.kubernetes_node.is_none() || has_joined(op.node);
        let applied = planned.apply(op, &object, Some(about), &proof, terms);
        let applied = applied.map_err(|error| kubernetes::explain(op, &object, joined, error));
        if applied.is_err() && prepared.made_secret {
            // Another node may use the secret already, so it is not ours to delete.
            let secret = about.token_secret.as_deref().unwrap_or_default();
            let message = format!("the secret {}/{secret} that this run made remains", about.calico_namespace);
            op.app.warn("SecretLeft", message);
        }
        applied
    }

    /// The machine's own config file is used by the next run, whatever release was named for this one.
    fn warn_of_config(&self, op: &mut Operation<'_>) {
        let SourceOrBundle { source, bundle } = &self.request.source;
        if source.release.is_none() && bundle.is_none() || !op.app.global.config.is_empty() {
            return;
        }
        let version = self.prepared.about.calico_version.to_string();
        if let Some(said) = version_in_file(op.node).filter(|said| *said != version) {
            let file = machines_file();
            let message =
                format!("{file} still says Calico {said}: write {version} there, or the next run returns to it");
            op.app.warn("ConfigOfOtherRelease", message);
        }
    }

    /// Refuses a change that needs pods to be moved away.
    fn refuse_drain(&self, op: &Operation<'_>) -> Result<()> {
        let plan = &self.prepared.planned.plan;
        if !plan.needs_drain {
            return drain::check(&plan.pods, &[], op.context.cluster(op.node)?);
        }
        let what = match &plan.kubelet_minor {
            Some(kubelet) if !plan.replaces_network() => kubelet.to_string(),
            _ => "this change replaces the HNS network under the pods of this node".into(),
        };
        let hint = match self.request.saved {
            Some(file) => {
                let file = quoted(&file.to_string_lossy());
                format!("drain, change and uncordon with: calicoctl-win apply --plan {file}")
            }
            None => self.with_drain(op)?,
        };
        Err(Fault::new(Exit::NeedsDrain, "NeedsDrain", what).hint(hint).into())
    }

    /// Returns how to make the same change with a drain. `install` starts from the defaults, and the verbs that drain
    /// from the current generation: what that sets otherwise is named.
    fn with_drain(&self, op: &Operation<'_>) -> Result<String> {
        let (global, sources) = (&op.app.global, &op.context.sources);
        let SourceOrBundle { source, bundle } = &self.request.source;
        let (stdin, bundle) = (Path::new("-"), bundle.as_ref().map(|file| file.to_string_lossy()));
        let named = [
            ("-c", sources.files.first().filter(|file| *file == stdin).map(|_| "-")),
            ("--release", source.release.as_deref()),
            ("--bundle", bundle.as_deref()),
            ("--sha256", source.sha256.as_deref()),
        ];
        let named = named.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(value?))));
        let mut flags: String = named.collect();
        // `reconfigure` takes no release, and `apply` resets no field.
        let resets =
            self.kind != Kind::First && source.release.is_none() && bundle.is_none() && source.sha256.is_none();
        let kept = sources.kept_by_reconfigure(op.node, &op.context.standing)?.unwrap_or_default();
        let mut set = Vec::new();
        for SettingChange { path, after, .. } in &self.prepared.planned.plan.settings_diff {
            let Some(field) = path.strip_prefix("spec.") else { continue };
            let sets = sources.sets(path);
            if !sets && kept.pointer(&format!("/{}", path.replace('.', "/"))).is_none() {
                continue;
            }
            if !sets && resets {
                flags.push_str(&format!(" --unset {field}"));
            } else if let Some(value) = after.as_ref().and_then(word) {
                flags.push_str(&format!(" --set {}", quoted(&format!("{field}={value}"))));
                set.push(field);
            }
        }
        let is_said = |given: &String| {
            given.split_once('=').is_some_and(|(path, _)| set.contains(&path.trim_start_matches("spec.")))
        };
        let same = if global.set.iter().all(is_said) { "" } else { ", with the same --set" };
        let verb = if resets { "reconfigure" } else { "apply" };
        Ok(format!(
            "look at it{same}: calicoctl-win {verb} --dry-run{flags}\nthen drain, change and uncordon{same}: \
             calicoctl-win {verb}{flags}"
        ))
    }

    /// The load balancers of services were in the deleted network, and kube-proxy still assumes them, if the config
    /// forbids to restart it. A failed check does not fail a change that is made.
    fn warn_of_kube_proxy(&self, op: &mut Operation<'_>) -> bool {
        let gone = |change: &Change| change.kind == "hns-network" && change.before.is_some();
        let restarts = self.prepared.resolved.settings.services.restart_kube_proxy;
        if restarts || !self.prepared.planned.plan.changes.iter().any(gone) {
            return false;
        }
        // Restarting one that does not run is harmless.
        let stale = op.node.get(&Id::Running(kube_proxy::NAME.into())).map_or(true, |runs| runs.is_some());
        if stale {
            let message =
                format!("the service {} still counts on the network that is gone: restart it", kube_proxy::NAME);
            op.app.warn("KubeProxyStale", message);
        }
        stale
    }
}

/// A setting's value as `--set` takes it; none if it has fields, or has no value.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(items) => Some(items.iter().map(word).collect::<Option<Vec<_>>>()?.join(",")),
        Value::Null | Value::Object(_) => None,
    }
}
