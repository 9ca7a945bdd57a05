//! `uninstall`: the empty target. Needs neither a valid config nor a cluster.

use std::time::Duration;

use anyhow::{Context, Error, Result};

use super::Ending;
use super::app::App;
use super::drain;
use super::engine::{self, Agreed, exit_after};
use super::options::{DrainFlags, Source, Uninstall};
use super::pipeline;
use super::pods;
use super::prepare::announce;
use super::verb;
use super::{cluster_cleanup, cordon, lease, other_machine, saved};
use crate::agent::trial::Trial;
use crate::apply::acls::Networks;
use crate::apply::converge;
use crate::apply::journal::{Removal, Terms};
use crate::apply::lock::Lock;
use crate::apply::node_object::{Access, NodeObject};
use crate::apply::standing::{Applied, Standing};
use crate::apply::{marks, store};
use crate::calico::networks;
use crate::cluster::lease::LeaseRenewer;
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::hns::Endpoint;
use crate::node::{Node, STATE_DIR};
use crate::plan::order::all_services;
use crate::plan::show::{AttachedPod, Disposition, Plan};
use crate::plan::{Step, Target};
use crate::report::document::RunResult;
use crate::settings;
use crate::values::{WinPath, count};

/// How long the cluster may take to list the pods here: the uninstall continues without it.
const LIMIT: Duration = Duration::from_secs(5);

/// Removes Calico from the node, or shows what would be removed.
///
/// # Errors
/// As [`pipeline::run`]; `PurgeIncomplete` if Calico is removed and our own folder is not.
pub(crate) fn run(args: &Uninstall, app: &mut App) -> Result<Ending> {
    pipeline::run(&verb::UNINSTALL, app, |app, node, standing, _| gather(args, app, node, standing))
}

/// What an uninstall removes.
struct Removing<'a> {
    args: &'a Uninstall,
    standing: Standing,
    target: Target,
    steps: Vec<Step>,
    plan: Plan,
    /// The endpoints on which Felix keeps policies.
    ruled: Vec<Endpoint>,
    /// The drain before it, if there is one.
    drain: Option<drain::Planned>,
}

fn gather<'a>(args: &'a Uninstall, app: &mut App, node: &dyn Node, standing: Standing) -> Result<Removing<'a>> {
    app.reach_as(&standing);
    let (target, steps, mut plan) = look(node, &standing)?;
    plan.pods = attached(app, node, &standing, &steps)?;
    let ruled = ruled(node, &standing)?;
    Ok(Removing { args, standing, target, steps, plan, ruled, drain: None })
}

impl Removing<'_> {
    fn is_nothing(&self) -> bool {
        self.plan.changes.is_empty() && self.standing.receipt().is_none() && self.standing.journal.is_none()
    }
}

impl pipeline::Change for Removing<'_> {
    /// With the commands for what remains in the cluster.
    type Made = (Applied, Vec<String>);

    fn judge(&self, app: &mut App, _: &mut dyn Node) -> Result<Option<RunResult>> {
        if !self.is_nothing() || self.args.purge {
            return Ok(None);
        }
        let msg = "nothing to do: Calico is not installed here by this tool";
        app.reporter.tell(msg);
        Ok(Some(RunResult::new(Exit::Ok, false, msg)))
    }

    fn show(&mut self, app: &mut App, node: &dyn Node) -> Result<()> {
        let Self { args, standing, target, plan, ruled, .. } = self;
        announce(app, plan);
        if !target.absent.is_empty() {
            let names: Vec<String> = target.absent.iter().map(ToString::to_string).collect();
            app.warn(
                "FoundByMarks",
                format!("no receipt tells of these, which are ours by their marks: {}", names.join(", ")),
            );
        }
        if !plan.changes.is_empty() || app.global.dry_run {
            app.tell_plan(plan);
        }
        tell_of_acls(app, ruled);
        warn_of_the_secret(args, app, standing);
        tell_what_goes_for_good(args, app, standing);
        if args.drains {
            self.drain = Some(plan_drain(app, node, standing, plan, &args.drain)?);
        } else if plan.pods.iter().any(|pod| pod.disposition != Disposition::Leaked) {
            drain::not_drained(app);
        }
        Ok(())
    }

    fn would(self, _: &mut App) -> Result<Ending> {
        saved::dry_run(self.plan, None)
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.plan)
    }

    fn ask(&self, app: &mut App, node: &dyn Node) -> Result<()> {
        ask(self.args, app, node, &self.standing, &self.plan)
    }

    fn lease(&self, app: &mut App, node: &dyn Node) -> Result<Option<LeaseRenewer>> {
        Trial::forget(node)?;
        match self.standing.node_name().filter(|_| !self.is_nothing()) {
            Some(name) => lease::take_if_possible(app, node, name.as_str()),
            None => Ok(None),
        }
    }

    fn make(&mut self, app: &mut App, node: &mut dyn Node) -> Result<(Applied, Vec<String>)> {
        let Self { args, standing, target, steps, drain, .. } = &*self;
        let theirs = other_machine::owns_node_of(app, node, standing);
        if let Some(theirs) = &theirs {
            app.warn("ClusterTracesLeft", format!("nothing is removed in the cluster: {theirs}"));
        }
        let drain = drain.as_ref().filter(|_| theirs.is_none());
        let terms = Terms { removal: removal(args), ..drain::Planned::terms(drain, app, node) };
        let object = match drain {
            _ if theirs.is_some() => NodeObject::unknown(),
            Some(drain) => drain.object(),
            None => pods::object_of(app, node, standing),
        };
        let command = verb::UNINSTALL.command;
        let agreed = Agreed { command, target, about: None, steps, terms, proves_services: false, proves_ready: false };
        let applied = engine::carry_out(app, node, standing, &object, agreed)?;
        if theirs.is_some() {
            return Ok((applied, Vec::new()));
        }
        let left = after(removal(args), drain.is_some(), app, node, standing)?;
        Ok((applied, left))
    }

    fn finish(self, app: &mut App, node: &mut dyn Node, lock: Lock, made: Self::Made) -> Result<Ending> {
        let (Self { args, standing, ruled, .. }, (applied, left)) = (self, made);
        finish(Gone { removal: removal(args), standing: &standing, applied, ruled, left }, app, node, lock)
    }
}

fn removal(args: &Uninstall) -> Removal {
    Removal { purge: args.purge, cluster_traces: args.cluster_traces, token_secret: args.delete_token_secret }
}

/// A finished removal of Calico.
pub(crate) struct Gone<'a> {
    pub removal: Removal,
    /// The node's records before it.
    pub standing: &'a Standing,
    pub applied: Applied,
    /// The endpoints on which Felix kept policies.
    pub ruled: Vec<Endpoint>,
    /// The commands for what remains in the cluster.
    pub left: Vec<String>,
}

/// Also removes our own folder if that was asked for, and reports what remains.
pub(crate) fn finish(gone: Gone<'_>, app: &mut App, node: &mut dyn Node, lock: Lock) -> Result<Ending> {
    let Gone { removal, standing, applied, ruled, mut left } = gone;
    if removal.purge {
        app.leave_state_folder();
        let kept = lock.purge(node).map_err(|error| {
            // Calico is removed, so the run that removed it is over too.
            let ended = converge::end_uninstall(node);
            left_behind(app, ended.err().unwrap_or(error))
        })?;
        for file in kept {
            app.reporter.tell(&format!("Kept: {file}, which is yours."));
        }
    } else {
        converge::end_uninstall(node)?;
        app.reporter.tell("Kept: logs and receipts below C:\\ProgramData\\calicoctl-win (--purge removes them too).");
        let others = WinPath::known(STATE_DIR).join(store::KEPT);
        if node.disk(&others).exists() {
            app.reporter.tell(&format!("Kept: {others}, what others had put into Calico's folder."));
        }
    }
    let mut stays = what_stays(node);
    // Some of those pods may have been moved away, or have ended.
    let there = if ruled.is_empty() { Vec::new() } else { node.endpoints().unwrap_or_default() };
    stays.extend(there.iter().filter(|endpoint| ruled.iter().any(|before| before.id == endpoint.id)).map(|endpoint| {
        let Endpoint { name, network, .. } = endpoint;
        format!("ACLs that let everything through on the HNS endpoint {name} of {network}, until its pod is made again")
    }));
    for line in &stays {
        app.reporter.tell(&format!("Left: {line}."));
    }
    let msg = match (applied.changed > 0, stays.is_empty()) {
        (true, true) => "Calico is removed; this machine is as it was before.",
        (true, false) => "Calico is removed; what is left here is named above.",
        (false, _) => "Nothing of Calico was left to remove.",
    };
    app.reporter.tell(msg);
    let exit = exit_after(app, node, &mut left);
    let changed = applied.changed > 0 || removal.purge && !standing.receipts.is_empty();
    let mut result = RunResult::new(exit, changed, msg);
    result.downtime_ms = crate::report::document::millis(applied.downtime);
    result.next = left;
    Ending::result(result)
}

/// Calico is removed already: the error names what is not.
fn left_behind(app: &App, error: Error) -> Error {
    if Fault::of(&error).is_some() {
        return error;
    }
    let what = format!("Calico is removed, but {STATE_DIR} could not be removed");
    let again = format!("remove the cause, then run it again: {}", app.command("uninstall --purge"));
    error.context(Fault::new(Exit::Failed, "PurgeIncomplete", what).hint(again))
}

/// Cleans up in the cluster after Calico is removed; a Node that was drained for it stays cordoned, since this machine
/// has no network for pods any more. Returns the commands for what remains there.
pub(crate) fn after(
    removal: Removal,
    drained: bool,
    app: &mut App,
    node: &mut dyn Node,
    standing: &Standing,
) -> Result<Vec<String>> {
    if drained {
        cordon::keep(app, node)?;
    } else if let Err(error) = cordon::release(app, node) {
        // An interrupted run that this one ended may have cordoned the node.
        app.warn("UncordonFailed", format!("{error:#}"));
    }
    Ok(cluster_cleanup::clear(removal, app, node, standing))
}

/// Lists what the flags remove besides Calico, which cannot be restored.
fn tell_what_goes_for_good(args: &Uninstall, app: &mut App, standing: &Standing) {
    if args.purge {
        let generations = count(standing.receipts.len(), "generation");
        app.reporter.tell(&format!(
            "Removed for good (--purge): {STATE_DIR} with {generations} to roll back to, the stored configs and the logs; \
             config.yaml in it stays."
        ));
    }
    if args.cluster_traces {
        let name = standing.node_name().map_or_else(|| "this machine".into(), |name| format!("Node {name}"));
        app.reporter.tell(&format!(
            "Removed for good (--cluster-traces): the IPAM blocks of {name} that no pod uses, and Calico's annotations on it."
        ));
    }
}

/// Asks for confirmation, by the name of the node if something cannot be restored.
fn ask(args: &Uninstall, app: &mut App, node: &dyn Node, standing: &Standing, plan: &Plan) -> Result<()> {
    if plan.changes.is_empty() && !args.purge {
        return Ok(());
    }
    let name = match standing.node_name() {
        Some(name) => name.to_string(),
        None => node.facts().context("measure the node")?.host_name,
    };
    let pods = match plan.pods.iter().filter(|pod| pod.disposition != Disposition::Leaked).count() {
        0 => String::new(),
        1 => " 1 pod on it loses its network.".into(),
        pods => format!(" {pods} pods on it lose their network."),
    };
    let version = standing.release().map_or_else(String::new, |version| format!(" {version}"));
    let question = format!("Remove Calico{version} from {name}?{pods}");
    if args.purge { app.confirm_by(&name, &question) } else { app.confirm(&question) }
}

/// Warns of the one thing that an uninstall of this node destroys for other nodes.
fn warn_of_the_secret(args: &Uninstall, app: &mut App, standing: &Standing) {
    if !args.delete_token_secret {
        return;
    }
    let message = match cluster_cleanup::token_secret(standing) {
        Some(secret) => format!(
            "the secret {secret} in the cluster is deleted: every other node that logs in with its token loses access"
        ),
        None => "no receipt says that install made a token secret, so none is deleted".into(),
    };
    app.warn("TokenSecretDeleted", message);
}

/// Returns the plan of an uninstall.
pub(crate) fn plan(node: &dyn Node) -> Result<Plan> {
    let standing = Standing::load(node)?;
    look(node, &standing).map(|(_, _, plan)| plan)
}

/// The target is empty; items that no receipt mentions and that have our mark are removed too.
fn look(node: &dyn Node, standing: &Standing) -> Result<(Target, Vec<Step>, Plan)> {
    let absent = marks::found(node, &standing.owned())?;
    let target = Target { absent, ..Target::default() };
    let steps = converge::plan(node, standing, &target)?;
    let plan = Plan::new(&steps, &target, standing.receipt().is_some());
    Ok((target, steps, plan))
}

/// Returns the pods on networks that are deleted. Without a cluster, or without a Node, they are unknown.
fn attached(app: &mut App, node: &dyn Node, standing: &Standing, steps: &[Step]) -> Result<Vec<AttachedPod>> {
    pods::attached(app, node, steps, |app| {
        let name = standing.node_name().context("find the name of the Node: no receipt tells it")?;
        cordon::reach(app, node, &Access::default(), Some(LIMIT))?.pods_on(name.as_str())
    })
}

/// Returns the endpoints of another product's networks on which Felix keeps policies.
fn ruled(node: &dyn Node, standing: &Standing) -> Result<Vec<Endpoint>> {
    let stood = standing.receipt();
    let networks = stood.and_then(|receipt| Networks::of(node, receipt.about.as_ref(), &receipt.target));
    networks.map_or_else(|| Ok(Vec::new()), |networks| networks.ruled(node))
}

fn tell_of_acls(app: &mut App, ruled: &[Endpoint]) {
    if !ruled.is_empty() {
        let names: Vec<&str> = ruled.iter().map(|endpoint| endpoint.name.as_str()).collect();
        app.reporter.tell(&format!(
            "Network policies end for the pods of these HNS endpoints, which let everything through then: {}",
            names.join(", ")
        ));
    }
}

/// Returns services and networks with Calico's names that still exist: of others, or created again since.
fn what_stays(node: &dyn Node) -> Vec<String> {
    let stays = |id: Id, what: String, why: &str| match node.get(&id) {
        Ok(there) => there.map(|_| format!("{what}, which {why}")),
        // Calico is removed all the same.
        Err(error) => Some(format!("perhaps {what}, which could not be looked at: {error:#}")),
    };
    let services = all_services().filter_map(|name| {
        let why = "another product or Calico's own scripts made";
        stays(Id::Service(name.into()), format!("the service {name}"), why)
    });
    let networks = [networks::PODS, networks::BOOTSTRAP].into_iter().filter_map(|name| {
        let why = "was there before or is another product's";
        stays(Id::Network(name.into()), format!("the HNS network {name}"), why)
    });
    services.chain(networks).collect()
}

/// Finds the cluster and the Node and shows which pods are evicted; nothing is changed yet.
fn plan_drain(
    app: &mut App,
    node: &dyn Node,
    standing: &Standing,
    plan: &Plan,
    flags: &DrainFlags,
) -> Result<drain::Planned> {
    let (connection, cluster) = app.configured_cluster(node)?;
    let layered = app.config(node, &Source::default())?;
    let name = match standing.node_name() {
        Some(name) => name.to_string(),
        None => settings::node_name(&layered, &node.facts().context("measure the node")?, |_| anyhow::Ok(true))?,
    };
    let options = flags.over(&settings::run(&layered, None).maintenance.drain);
    drain::before(app, &name, (true, &plan.pods), Some(true), options.clone(), |_| Ok(&cluster))?;
    Ok(drain::Planned { name, connection, cluster, options })
}
