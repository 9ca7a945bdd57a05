//! `uninstall`: the empty target. Needs neither a valid config nor a cluster.

use std::time::Duration;

use anyhow::{Context, Error, Result};

use super::Ending;
use super::app::App;
use super::drain;
use super::engine::{self, Agreed, exit_after};
use super::options::{DrainFlags, Source, Uninstall};
use super::pods;
use super::prepare::{announce, node_name};
use super::verb::UNINSTALL;
use super::{cluster_cleanup, cordon, lease, other_machine, saved};
use crate::agent::trial::Trial;
use crate::apply::acls::Networks;
use crate::apply::converge::{self};
use crate::apply::journal::Removal;
use crate::apply::lock::Lock;
use crate::apply::node_object::{Access, NodeObject};
use crate::apply::standing::{Applied, Standing};
use crate::apply::{marks, store};
use crate::calico::networks;
use crate::cluster::{Cluster, DrainOptions};
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::hns::Endpoint;
use crate::node::{Node, STATE_DIR};
use crate::plan::order::all_services;
use crate::plan::show::{AttachedPod, Fate, Plan};
use crate::plan::{Step, Target};
use crate::report::document::RunResult;
use crate::settings::{self, Connection};
use crate::values::WinPath;

/// How long the cluster may take to tell which pods are here: it goes on without.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Uninstall, app: &mut App) -> Result<Ending> {
    if app.global.dry_run {
        let node = app.node()?;
        let standing = Standing::load(&*node)?;
        let (_, steps, mut plan) = look(&*node, &standing)?;
        plan.pods = attached(app, &*node, &standing, &steps)?;
        app.tell_plan(&plan);
        tell_of_acls(app, &*node, &standing)?;
        if args.drains {
            Drain::plan(app, &*node, &standing, &plan, &args.drain)?;
        }
        warn_of_the_secret(args, app, &standing);
        tell_what_goes_for_good(args, app, &standing);
        return saved::dry_run(plan, None);
    }
    let (mut node, lock) = app.node_to_change(UNINSTALL)?;
    let standing = Standing::load(&*node)?;
    app.reach_as(&standing);
    let (target, steps, mut plan) = look(&*node, &standing)?;
    plan.pods = attached(app, &*node, &standing, &steps)?;
    let nothing = plan.changes.is_empty() && standing.receipt().is_none() && standing.journal.is_none();
    if nothing && !args.purge {
        let msg = "nothing to do: Calico is not installed here by this tool";
        app.reporter.tell(msg);
        return Ending::result(RunResult::new(Exit::Ok, false, msg));
    }
    announce(app, &plan);
    if !target.absent.is_empty() {
        let names: Vec<String> = target.absent.iter().map(ToString::to_string).collect();
        app.warn(
            "FoundByMarks",
            format!("no receipt tells of these, which are ours by their marks: {}", names.join(", ")),
        );
    }
    if !plan.changes.is_empty() {
        app.tell_plan(&plan);
    }
    let ruled = tell_of_acls(app, &*node, &standing)?;
    warn_of_the_secret(args, app, &standing);
    tell_what_goes_for_good(args, app, &standing);
    let drains = if args.drains { Some(Drain::plan(app, &*node, &standing, &plan, &args.drain)?) } else { None };
    if drains.is_none() && plan.pods.iter().any(|pod| pod.fate != Fate::Leaked) {
        drain::not_drained(app);
    }
    ask(args, app, &*node, &standing, &plan)?;
    let removal =
        Removal { purge: args.purge, cluster_traces: args.cluster_traces, token_secret: args.delete_token_secret };
    Trial::forget(&*node)?;
    let name = standing.node_name().filter(|_| !nothing);
    let (applied, left) = match name {
        Some(name) => lease::hold(app, &mut *node, name.as_str(), |app, node| {
            remove(removal, app, node, &standing, &target, &steps, drains.as_ref())
        }),
        None => remove(removal, app, &mut *node, &standing, &target, &steps, drains.as_ref()),
    }?;
    let gone = Gone { removal, standing: &standing, applied, ruled, left };
    finish(gone, app, &mut *node, lock)
}

/// Calico, taken off a node.
pub(crate) struct Gone<'a> {
    pub removal: Removal,
    /// How the node stood before.
    pub standing: &'a Standing,
    pub applied: Applied,
    /// The endpoints on which Felix kept policies.
    pub ruled: Vec<Endpoint>,
    /// The commands for what is left in the cluster.
    pub left: Vec<String>,
}

/// Removes our own folder too if that was asked for, and says what stays.
pub(crate) fn finish(gone: Gone<'_>, app: &mut App, node: &mut dyn Node, lock: Lock) -> Result<Ending> {
    let Gone { removal, standing, applied, ruled, mut left } = gone;
    if removal.purge {
        app.leave_state_folder();
        let kept = lock.purge(node).map_err(|error| {
            // Calico is gone all the same, and so is the run that took it away.
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

/// Calico is gone by then: says what is not.
fn left_behind(app: &App, error: Error) -> Error {
    if Fault::of(&error).is_some() {
        return error;
    }
    let what = format!("Calico is removed, but {STATE_DIR} could not be removed");
    let again = format!("remove the cause, then run it again: {}", app.command("uninstall --purge"));
    error.context(Fault::new(Exit::Failed, "PurgeIncomplete", what).hint(again))
}

/// Takes everything off the node and out of the cluster. Gives the commands for what is left there.
fn remove(
    removal: Removal,
    app: &mut App,
    node: &mut dyn Node,
    standing: &Standing,
    target: &Target,
    steps: &[Step],
    drain: Option<&Drain>,
) -> Result<(Applied, Vec<String>)> {
    let theirs = other_machine::owns_node_of(app, node, standing);
    if let Some(theirs) = &theirs {
        app.warn("ClusterTracesLeft", format!("nothing is removed in the cluster: {theirs}"));
    }
    let drain = drain.filter(|_| theirs.is_none());
    let drains = drain.map(|drain| (&drain.options, &drain.connection));
    let mut terms = app.terms(node, drains.map(|(options, _)| options), drains.map(|(_, connection)| connection));
    terms.drops_pods = drain.is_none();
    terms.removal = removal;
    let object = match drain {
        _ if theirs.is_some() => NodeObject::unknown(),
        Some(drain) => NodeObject::new(&drain.name, &drain.cluster, drain.options.timeout),
        None => pods::object_of(app, node, standing),
    };
    let agreed =
        Agreed { command: UNINSTALL, target, about: None, steps, terms, proves_services: false, proves_ready: false };
    let applied = engine::carry_out(app, node, &object, agreed)?;
    let left = if theirs.is_some() { Vec::new() } else { after(removal, drain.is_some(), app, node, standing)? };
    Ok((applied, left))
}

/// What is done in the cluster once Calico is gone; a Node that was drained for it stays cordoned, since nothing is
/// left here that a pod could use. Gives the commands for what is left there.
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

/// What the flags take away besides Calico, and nothing brings back.
fn tell_what_goes_for_good(args: &Uninstall, app: &mut App, standing: &Standing) {
    if args.purge {
        let generations = match standing.receipts.len() {
            1 => "1 generation".to_owned(),
            count => format!("{count} generations"),
        };
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

/// Asks, by the name of the node where nothing brings back what goes.
fn ask(args: &Uninstall, app: &mut App, node: &dyn Node, standing: &Standing, plan: &Plan) -> Result<()> {
    if plan.changes.is_empty() && !args.purge {
        return Ok(());
    }
    let name = match standing.node_name() {
        Some(name) => name.to_string(),
        None => node.facts().context("measure the node")?.host_name,
    };
    let pods = match plan.pods.iter().filter(|pod| pod.fate != Fate::Leaked).count() {
        0 => String::new(),
        1 => " 1 pod on it loses its network.".into(),
        pods => format!(" {pods} pods on it lose their network."),
    };
    let version = standing.release().map_or_else(String::new, |version| format!(" {version}"));
    let question = format!("Remove Calico{version} from {name}?{pods}");
    if args.purge { app.confirm_by(&name, &question) } else { app.confirm(&question) }
}

/// The one thing that an uninstall of this node destroys for others.
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

/// What an uninstall would do.
pub(crate) fn plan(node: &dyn Node) -> Result<Plan> {
    let standing = Standing::load(node)?;
    look(node, &standing).map(|(_, _, plan)| plan)
}

/// Nothing is wanted; what no receipt tells of and bears our mark must go as well.
fn look(node: &dyn Node, standing: &Standing) -> Result<(Target, Vec<Step>, Plan)> {
    let absent = marks::found(node, &standing.owned())?;
    let target = Target { absent, ..Target::default() };
    let steps = converge::plan(node, standing, &target)?;
    let plan = Plan::new(&steps, &target, standing.receipt().is_some());
    Ok((target, steps, plan))
}

/// The pods on networks that go. Without a cluster to ask, or a Node to ask for, they are unknown.
fn attached(app: &mut App, node: &dyn Node, standing: &Standing, steps: &[Step]) -> Result<Vec<AttachedPod>> {
    pods::attached(app, node, steps, |app| {
        let name = standing.node_name().context("find the name of the Node: no receipt tells it")?;
        cordon::reach(app, node, &Access::default(), Some(LIMIT))?.pods_on(name.as_str())
    })
}

/// Tells which pods of another product's networks Felix keeps policies on; gives their endpoints.
fn tell_of_acls(app: &mut App, node: &dyn Node, standing: &Standing) -> Result<Vec<Endpoint>> {
    let stood = standing.receipt();
    let networks = stood.and_then(|receipt| Networks::of(node, receipt.about.as_ref(), &receipt.target));
    let ruled = networks.map_or_else(|| Ok(Vec::new()), |networks| networks.ruled(node))?;
    if !ruled.is_empty() {
        let names: Vec<&str> = ruled.iter().map(|endpoint| endpoint.name.as_str()).collect();
        app.reporter.tell(&format!(
            "Network policies end for the pods of these HNS endpoints, which let everything through then: {}",
            names.join(", ")
        ));
    }
    Ok(ruled)
}

/// Services and networks of Calico's names that are still there: somebody else's, or made anew since.
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

/// A drain before everything goes.
struct Drain {
    connection: Connection,
    cluster: Cluster,
    name: String,
    options: DrainOptions,
}

impl Drain {
    /// Finds the cluster and the Node and shows which pods go; nothing is different yet.
    fn plan(app: &mut App, node: &dyn Node, standing: &Standing, plan: &Plan, flags: &DrainFlags) -> Result<Self> {
        let layered = app.config(node, &Source::default(), &[])?;
        let connection = app.connection(node, &layered)?;
        let cluster = app.cluster(node, &connection)?;
        let name = match standing.node_name() {
            Some(name) => name.to_string(),
            None => node_name(&layered, &node.facts().context("measure the node")?),
        };
        let options = flags.over(&settings::maintenance(&layered).drain);
        drain::before(app, &name, (true, &plan.pods), Some(true), options.clone(), |_| Ok(&cluster))?;
        Ok(Self { connection, cluster, name, options })
    }
}
