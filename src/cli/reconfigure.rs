//! `reconfigure`: changes a node that runs, in the least disruptive way there is. Where pods would be
//! cut off they are moved away first, and everything else is ready before the first service stops.

use std::collections::BTreeMap;

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::args::{Reconfigure as Args, Source};
use super::cordon;
use super::drain;
use super::install;
use super::plan::Saved;
use super::prepare::{Prepared, prepare};
use super::resume::describe;
use super::stage::Purpose;
use crate::apply::converge::{self, Standing};
use crate::apply::cordon::Cordon;
use crate::cluster::DrainOptions;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::{RunResult, millis};
use crate::settings::{Backend, Drain, Maintenance};

/// The Node's annotation with the digest of the settings that were achieved: for a fleet to see who
/// is done.
const ACHIEVED: &str = "calicoctl-win/settings";

pub(crate) fn run(args: &Args, app: &mut App) -> Result<Ending> {
    if app.global.dry_run {
        return look(args, app);
    }
    let (mut node, _lock) = app.node_to_change("reconfigure")?;
    is_installed(&*node)?;
    let mut prepared = prepare(app, &mut *node, &Source::default(), None, Purpose::Install)?;
    if let Some(file) = &args.plan {
        Saved::load(file)?.check(&prepared)?;
    }
    if let Some(journal) = &prepared.standing.journal {
        app.warn("InterruptedRun", format!("this goes on with what was interrupted: {}", describe(journal)));
    } else if prepared.steps.is_empty() {
        let generation = match prepared.standing.receipt() {
            Some(receipt) if receipt.target == prepared.target => Some(receipt.generation),
            _ => {
                let change = install::change(&app.run, "reconfigure", &prepared);
                converge::apply(&mut *node, &change, &mut |_| ())?.generation
            }
        };
        cordon::release(app, &*node)?;
        return Ending::result(install::nothing_to_do(app, &prepared, generation));
    }
    let drains = show(args, app, &prepared)?;
    app.confirm(&format!("Apply this to {}?", prepared.resolved.settings.node_name))?;
    let applied = install::carry_out(app, &mut *node, &mut prepared, "reconfigure", |app, node, prepared| {
        drains.as_ref().map_or(Ok(()), |options| empty(app, node, prepared, options))
    })?;
    annotate(app, &prepared);
    uncordon(app, &*node, &prepared)?;

    let about = &prepared.about;
    let generation = applied.generation.unwrap_or_default();
    let msg = format!("{} is reconfigured (generation {generation}).", about.node_name);
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, applied.changed > 0, msg);
    result.generation = applied.generation;
    result.downtime_ms = millis(applied.downtime);
    result.next = vec![app.command("status")];
    Ending::result(result)
}

fn look(args: &Args, app: &mut App) -> Result<Ending> {
    let mut node = app.node()?;
    is_installed(&*node)?;
    let prepared = prepare(app, &mut *node, &Source::default(), None, Purpose::Look)?;
    show(args, app, &prepared)?;
    let mut result = RunResult::new(Exit::Ok, false, format!("dry run: {}", prepared.plan.counts()));
    result.generation = prepared.standing.receipt().map(|receipt| receipt.generation);
    result.plan = Some(prepared.plan);
    Ending::result(result)
}

fn is_installed(node: &dyn Node) -> Result<()> {
    let standing = Standing::load(node)?;
    if standing.receipt().is_none() && standing.journal.is_none() {
        return Err(Fault::new(Exit::NotInstalled, "NotInstalled", "Calico is not installed here by this tool")
            .hint("install it with: calicoctl-win install")
            .into());
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
    let maintenance = &prepared.resolved.run.maintenance;
    let wanted = if args.no_drain { Some(false) } else { maintenance.drain.enabled };
    if !wanted.unwrap_or(prepared.plan.needs_drain) || prepared.plan.changes.is_empty() {
        if prepared.plan.needs_drain {
            app.warn("NotDrained", "pods stay on this node and lose their network; they must be deleted afterwards");
        }
        return Ok(None);
    }
    let options = args.drain.over(of_settings(&maintenance.drain));
    let name = prepared.resolved.settings.node_name.to_string();
    let plan = prepared.cluster.plan_drain(&name, &options, &mut |event| app.event(&event))?;
    app.reporter.tell(&drain::text(&name, &plan));
    Ok(Some(options))
}

fn of_settings(drain: &Drain) -> DrainOptions {
    DrainOptions {
        ignore_daemonsets: drain.ignore_daemon_sets,
        delete_emptydir_data: drain.delete_empty_dir_data,
        force: drain.force,
        grace_period: drain.grace_period_seconds,
        timeout: drain::limit(drain.timeout),
        pod_selector: None,
        disable_eviction: drain.disable_eviction,
        skip_wait_for_delete: None,
    }
}

/// Cordons and drains the node. When that fails nothing is different from before.
fn empty(app: &mut App, node: &mut dyn Node, prepared: &Prepared, options: &DrainOptions) -> Result<()> {
    let name = prepared.resolved.settings.node_name.to_string();
    let connection = &prepared.resolved.run.connection;
    let drained = cordon::take(app, node, &prepared.cluster, connection, &name, "reconfigure")
        .and_then(|()| drain::drain(app, &prepared.cluster, &name, options));
    for event in prepared.cluster.take_events() {
        app.event(&event);
    }
    drained.map(drop).map_err(|error| cordon::release_after(app, node, error))
}

/// Tells the cluster what was achieved. A node that works is not given up for a note about it.
fn annotate(app: &mut App, prepared: &Prepared) {
    let digest = prepared.about.settings.to_string();
    let annotations = BTreeMap::from([(ACHIEVED.to_owned(), Some(digest))]);
    let name = prepared.about.node_name.as_str();
    if let Err(error) = prepared.cluster.annotate_node(name, &annotations) {
        app.warn("NotAnnotated", format!("node {name} does not carry the digest of its settings: {error:#}"));
    }
}

/// Lets pods come again: if we had kept them off, unless the config says otherwise.
fn uncordon(app: &mut App, node: &dyn Node, prepared: &Prepared) -> Result<()> {
    let name = prepared.about.node_name.as_str();
    let Maintenance { uncordon, .. } = prepared.resolved.run.maintenance;
    match (uncordon, Cordon::load(node)?) {
        (Some(false), Some(cordon)) => {
            app.reporter.tell(&format!("Node {name} stays cordoned, as the config says."));
            cordon.forget(node)
        }
        (Some(true), None) => prepared.cluster.uncordon(name).map(drop),
        _ => cordon::release(app, node),
    }
}
