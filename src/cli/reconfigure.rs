//! `reconfigure`: changes a node that runs, in the least disruptive way there is. Where pods would be
//! cut off they are moved away first, and everything else is ready before the first service stops.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::Ending;
use super::app::App;
use super::app::reach::GENERATION;
use super::args::{ChangeMode, Reconfigure as Args, Source};
use super::cordon;
use super::drain;
use super::engine::{installed, succeeded};
use super::install::{self, Asked, Drained, Until};
use super::lease;
use super::plan;
use super::prepare::{Prepared, prepare};
use super::stage::Purpose;
use super::steady;
use super::trial;
use crate::apply::cancel;
use crate::apply::converge::Standing;
use crate::apply::cordon::Cordon;
use crate::apply::receipt::About;
use crate::apply::store;
use crate::calico::kube_proxy;
use crate::cluster::{Cluster, DrainOptions};
use crate::config::spec::Mode;
use crate::config::types::Wait;
use crate::config::{self, Document};
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::item::Id;
use crate::plan::show::Change;
use crate::settings::{Backend, Datastore, Maintenance};

/// The Node's annotation with the digest of the settings that were achieved: for a fleet to see who
/// is done.
pub(super) const ACHIEVED: &str = "calicoctl-win/settings";

/// How long the way back from a trial may take before others may change the node.
const UNTIL_TAKEN_BACK: Duration = Duration::from_secs(120);

pub(crate) fn run(args: &Args, app: &mut App) -> Result<Ending> {
    if app.global.dry_run {
        return look(args, app);
    }
    let (mut node, _lock) = app.node_to_change("reconfigure")?;
    start_from(app, &*node, &args.unset)?;
    let mut prepared = prepare(app, &mut *node, &Source::default(), None, Purpose::Install)?;
    let asked = Asked { saved: args.plan.as_deref(), downgrade: args.allow_downgrade };
    if let Some(result) = install::begin(app, &mut *node, &prepared, "reconfigure", &asked)? {
        return Ending::result(result);
    }
    if args.wait_for_cluster_vni.is_some() && prepared.resolved.settings.datastore != Datastore::Kubernetes {
        let what = "--wait-for-cluster-vni asks the Kubernetes API, and Calico keeps the cluster's VNI in etcd here";
        return Err(Fault::new(Exit::Usage, "Usage", what)
            .hint("leave it out, and change the cluster's VNI with calicoctl")
            .into());
    }
    let drains = show(args, app, &prepared)?;
    app.confirm(&format!("Apply this to {}?", prepared.resolved.settings.node_name))?;
    let keeper = lease::take(app, &*node, &prepared.place())?;
    let trial = on_trial(args, &prepared.resolved.run.maintenance);
    let changed = change(args, app, &mut *node, &mut prepared, drains.as_ref(), trial);
    match (trial, &changed) {
        // Until it is confirmed or taken back the node is not for others to change.
        (Some(within), Ok(_)) => lease::leave(app, keeper, within + UNTIL_TAKEN_BACK),
        _ => lease::give_back(app, keeper),
    }
    if trial.is_some() && changed.is_err() {
        trial::ended_early(&*node)?;
    }
    changed
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

/// How long a trial goes on without `confirm`, if the change is to be one.
fn on_trial(args: &Args, maintenance: &Maintenance) -> Option<Duration> {
    let mode = match args.mode {
        Some(ChangeMode::Auto) => Mode::Auto,
        Some(ChangeMode::Try) => Mode::Try,
        None => maintenance.mode,
    };
    let within = args.confirm_timeout.as_ref().map_or(maintenance.confirm_timeout, Wait::length);
    (mode == Mode::Try).then_some(within)
}

/// Makes the change, with the node locked here and in the cluster.
fn change(
    args: &Args,
    app: &mut App,
    node: &mut dyn Node,
    prepared: &mut Prepared,
    drains: Option<&DrainOptions>,
    trial: Option<Duration>,
) -> Result<Ending> {
    let until = if trial.is_some() { Until::Ready } else { Until::Working };
    let drained = Drained::by(drains);
    let applied = install::carry_out(app, node, prepared, "reconfigure", until, drained, |app, node, prepared| {
        if let Some(within) = trial {
            trial::begin(app, node, prepared, within)?;
        }
        drains.map_or(Ok(()), |options| drain::empty(app, node, &prepared.place(), "reconfigure", options))
    })?;
    let stale = warn_of_kube_proxy(app, node, prepared);
    annotate(app, &prepared.cluster, &prepared.about);
    if let Some(limit) = &args.wait_for_cluster_vni {
        await_cluster(app, prepared, limit.length())?;
    }
    steady::ends_ready(app, node, &prepared.target, steady::restart(&prepared.steps), &applied)?;
    uncordon(app, node, prepared)?;

    let about = &prepared.about;
    let generation = applied.generation.unwrap_or_default();
    let msg = format!("{} is reconfigured (generation {generation}).", about.node_name);
    app.reporter.tell(&msg);
    let mut next = if trial.is_some() { trial::is_live(app, node)? } else { vec![app.command("status")] };
    if stale {
        next.insert(0, format!("Restart-Service {}", kube_proxy::NAME));
    }
    Ending::result(succeeded(app, node, &applied, msg, next))
}

fn look(args: &Args, app: &mut App) -> Result<Ending> {
    let mut node = app.node()?;
    start_from(app, &*node, &args.unset)?;
    let prepared = prepare(app, &mut *node, &Source::default(), None, Purpose::Look)?;
    show(args, app, &prepared)?;
    plan::dry_run(prepared.plan, prepared.standing.receipt().map(|receipt| receipt.generation))
}

/// What is not said is as it was: without a config file the one of the standing generation counts.
pub(super) fn start_from(app: &mut App, node: &dyn Node, unset: &[String]) -> Result<()> {
    let standing = Standing::load(node)?;
    if let Some(receipt) = standing.receipt() {
        let mut config = store::config(node, receipt)?.unwrap_or_else(|| json!({}));
        for path in unset {
            take_out(&mut config, path)?;
        }
        let name = format!("{GENERATION}{}", receipt.generation);
        app.base = Some(Document { name, text: config.to_string() });
    } else if standing.journal.is_none() {
        installed(&standing)?;
    }
    Ok(())
}

/// Takes a field out of a document; one that nobody had set is out already.
fn take_out(config: &mut Value, path: &str) -> Result<()> {
    let whole = if path.starts_with("spec.") { path.to_owned() } else { format!("spec.{path}") };
    if !config::fields().any(|field| field.path == whole) {
        let what = format!("--unset {path}: the config has no such field");
        return Err(Fault::new(Exit::Usage, "Usage", what).hint("calicoctl-win config schema shows them all").into());
    }
    let (parent, field) = whole.rsplit_once('.').unwrap_or(("", &whole));
    if let Some(Value::Object(section)) = config.pointer_mut(&format!("/{}", parent.replace('.', "/"))) {
        section.remove(field);
    }
    Ok(())
}

/// Shows the plan, and what becomes of the pods. Gives how the node is to be drained, if it is.
fn show(args: &Args, app: &mut App, prepared: &Prepared) -> Result<Option<DrainOptions>> {
    app.reporter.tell(&prepared.plan.text());
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
    if prepared.plan.changes.is_empty() {
        return Ok(None);
    }
    let maintenance = &prepared.resolved.run.maintenance;
    let wanted = if args.no_drain { Some(false) } else { maintenance.drain.enabled };
    let options = args.drain.over(&maintenance.drain);
    let name = prepared.about.node_name.as_str();
    let pods = (prepared.plan.needs_drain, prepared.plan.pods.as_slice());
    drain::before(app, name, pods, wanted, options, |_| Ok(&prepared.cluster))
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

/// Tells the cluster what was achieved. A node that works is not given up for a note about it.
pub(super) fn annotate(app: &mut App, cluster: &Cluster, about: &About) {
    let digest = about.settings.to_string();
    let annotations = BTreeMap::from([(ACHIEVED.to_owned(), Some(digest))]);
    let name = about.node_name.as_str();
    if let Err(error) = cluster.annotate_node(name, &annotations) {
        app.warn("NotAnnotated", format!("node {name} does not carry the digest of its settings: {error:#}"));
    }
}

/// Lets pods come again: if we had kept them off, unless the config says otherwise.
fn uncordon(app: &mut App, node: &mut dyn Node, prepared: &Prepared) -> Result<()> {
    let name = prepared.about.node_name.as_str();
    let Maintenance { uncordon, .. } = prepared.resolved.run.maintenance;
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
