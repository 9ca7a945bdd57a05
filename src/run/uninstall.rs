//! `uninstall`: the empty target. Needs neither a valid config nor a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};

use super::Ending;
use super::app::App;
use super::cluster_cleanup;
use super::context::Operation;
use super::cordon::After;
use super::drain;
use super::options::{AdoptedFlag, DrainFlags, Uninstall};
use super::pipeline::{self, Done, Planned, Verb, report};
use super::sources::{Choice, machines_file};
use super::verb::UNINSTALL;
use super::{records, scripts, verify};
use crate::agent::trial::Trial;
use crate::apply::acls::Networks;
use crate::apply::converge::{self, unproven};
use crate::apply::journal::{Removal, Terms};
use crate::apply::node_object::NodeObject;
use crate::apply::standing::{Applied, Standing};
use crate::apply::{marks, store};
use crate::calico::networks;
use crate::calico::services::Role;
use crate::facts::NodeFacts;
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::hns::Endpoint;
use crate::node::{Node, STATE_DIR};
use crate::paths::{default_root, kubernetes as paths};
use crate::plan::order::{self, all_services};
use crate::plan::show::{Adopted, Disposition, Plan};
use crate::plan::{Step, Target};
use crate::values::{WinPath, count};

/// How long the cluster may take to list the pods here: the uninstall continues without it.
const LIMIT: Duration = Duration::from_secs(5);

/// Removes Calico from the node, or shows what would be removed.
///
/// # Errors
/// As [`pipeline::run`]; `PurgeIncomplete` if Calico is removed and our own folder is not.
pub(crate) fn run(args: &Uninstall, app: &mut App) -> Result<Ending> {
    if let Some(flag) = DrainFlags::typed(&app.args).filter(|_| !args.drains) {
        return Err(Fault::new(
            Exit::Usage,
            "Usage",
            format!("{flag} is about a drain, and there is none without --drain"),
        )
        .hint(format!("add --drain, or remove {flag}"))
        .into());
    }
    // Without the network, nothing ends them.
    let mut look = app.node()?;
    verify::remove_left(app, &mut *look, true)?;
    drop(look);
    pipeline::run(&UNINSTALL, app, &Choice::default(), |op| gather(args, op))
}

/// What an uninstall removes.
struct Removed {
    planned: Planned,
    removal: Removal,
    found: Found,
    outcome: RemovalOutcome,
}

/// What there is to report of a removal.
#[derive(Default)]
pub(crate) struct RemovalOutcome {
    /// The endpoints on which Felix kept policies.
    pub ruled: Vec<Endpoint>,
    /// The commands for what remains in the cluster.
    pub left: Vec<String>,
    /// What happens to the Node.
    pub after: Option<After>,
    /// Calico keeps its data in etcd.
    in_etcd: bool,
    /// What Calico's scripts had installed is removed, and kept in the store.
    removes_scripts: bool,
    /// It is restored instead.
    restores_scripts: bool,
    /// What stays of it, and why.
    scripts_left: Vec<String>,
    /// The Node, if its kubelet is removed too.
    kubelet_of: Option<String>,
    /// What is removed was found by its marks alone.
    unrecorded: bool,
}

/// What an uninstall finds besides what the receipts record.
#[derive(Default)]
struct Found {
    /// What is ours by its mark.
    marked: BTreeSet<Id>,
    /// What Calico's scripts made and is removed.
    theirs: BTreeSet<Id>,
    adopted: Option<Adopted>,
    node_name: Option<String>,
    left: Vec<String>,
}

fn gather(args: &Uninstall, op: &mut Operation<'_>) -> Result<Removed> {
    let (context, standing) = (op.context, &op.context.standing);
    let mut name = standing.node_name().map(ToString::to_string).unwrap_or_default();
    let found = look_for(op.node, standing, &context.facts, args)?;
    if name.is_empty() && !found.theirs.is_empty() {
        // Without a config that can be read, the pods here are not known to the cluster.
        name = found.node_name.clone().or_else(|| context.node_name(op.node).ok()).unwrap_or_default();
    }
    let (target, steps, mut plan) = plan_without(op.node, standing, &found)?;
    plan.pods = drain::attached(op.app, context, op.node, (&name, LIMIT), &steps)?;
    // There is nothing to drain for if only our own records are removed.
    let drains = args.drains && !steps.is_empty();
    if name.is_empty() && drains {
        name = context.node_name(op.node)?;
    }
    let networks = match standing.receipt() {
        Some(receipt) => Networks::of(op.node, receipt.about.as_ref(), &receipt.target),
        None => Networks::of_scripts(&target),
    };
    let mut ruled = networks.map_or_else(|| Ok(Vec::new()), |networks| networks.ruled(op.node))?;
    // Those of a network that goes go with it.
    ruled.retain(|endpoint| !target.absent.contains(&Id::Network(endpoint.network.clone())));
    let Uninstall { purge, cluster_traces, delete_token_secret: token_secret, .. } = *args;
    let (drains, flags) = (Some(drains), args.drain.clone());
    Ok(Removed {
        planned: Planned { name, target, steps, plan, drains, flags, drain: None },
        removal: Removal { purge, cluster_traces, token_secret },
        outcome: RemovalOutcome {
            ruled,
            removes_scripts: !found.theirs.is_empty(),
            restores_scripts: found.adopted == Some(Adopted::Restore),
            scripts_left: found.left.clone(),
            unrecorded: standing.in_place().is_none() && standing.journal.is_none() && !found.marked.is_empty(),
            ..RemovalOutcome::of(op)
        },
        found,
    })
}

/// Returns the plan of an uninstall without a drain, and warns of what it loses.
///
/// # Errors
/// As [`run`], before anything is changed.
pub(crate) fn plan(adopted: Option<AdoptedFlag>, op: &mut Operation<'_>) -> Result<Plan> {
    let mut removed = gather(&Uninstall { adopted, ..Uninstall::default() }, op)?;
    op.app.announce(&removed.planned.plan);
    removed.warn(op);
    removed.planned.decide_drain(op)?;
    Ok(removed.planned.plan)
}

impl Removed {
    fn warn(&self, op: &mut Operation<'_>) {
        if !self.found.marked.is_empty() {
            let names: Vec<String> = self.found.marked.iter().map(ToString::to_string).collect();
            let message = format!("no receipt records these, which are ours by their marks: {}", names.join(", "));
            op.app.warn("FoundByMarks", message);
        }
    }

    fn is_nothing(&self, standing: &Standing) -> bool {
        self.planned.plan.changes.is_empty() && standing.in_place().is_none() && standing.journal.is_none()
    }

    /// Whether this run removes something in the cluster, which an earlier uninstall may have left there.
    fn is_in_cluster(&self, standing: &Standing) -> bool {
        let Removal { cluster_traces, token_secret, .. } = self.removal;
        cluster_traces && standing.node_name().is_some()
            || token_secret && cluster_cleanup::token_secret(standing).is_some()
    }
}

impl Verb for Removed {
    fn node_name(&self) -> &str {
        &self.planned.name
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.planned.plan)
    }

    fn judge(&mut self, op: &mut Operation<'_>) -> Result<Option<Done>> {
        if !self.is_nothing(&op.context.standing) || self.removal.purge || self.is_in_cluster(&op.context.standing) {
            return Ok(None);
        }
        let mut msg = "nothing to do: neither this tool nor Calico's scripts installed Calico here".to_owned();
        let root = default_root();
        if op.node.disk(&root).is_dir() {
            msg.push_str(&format!("; {root} stays, since no service shows whose it is"));
        }
        Ok(Some(Done { after: After::Leave, ..Done::nothing(None, msg) }))
    }

    fn show(&mut self, op: &mut Operation<'_>) -> Result<()> {
        op.app.announce(&self.planned.plan);
        self.warn(op);
        let Self { planned, removal, outcome, .. } = self;
        let standing = &op.context.standing;
        if !planned.plan.changes.is_empty() || op.app.global.is_dry_run() {
            planned.tell(op);
        }
        if !outcome.ruled.is_empty() {
            let names: Vec<&str> = outcome.ruled.iter().map(|endpoint| endpoint.name.as_str()).collect();
            op.app.reporter.tell(&format!(
                "Network policies end for the pods of these HNS endpoints, which then allow all traffic: {}",
                names.join(", ")
            ));
        }
        // The one thing that an uninstall of this node destroys for other nodes.
        if removal.token_secret {
            let message = match cluster_cleanup::token_secret(standing) {
                Some(secret) => format!(
                    "the secret {secret} in the cluster is deleted: every other node that logs in with its token loses \
                     access"
                ),
                None => "no receipt says that install made a token secret, so none is deleted".into(),
            };
            op.app.warn("TokenSecretDeleted", message);
        }
        if removal.purge {
            let records = match standing.receipts.len() {
                0 => String::new(),
                more => format!("the records of {}, the stored configs and ", count(more, "generation")),
            };
            let config = if op.node.disk(&machines_file()).exists() { "; config.yaml in it stays" } else { "" };
            // The folder may have only what this run has written.
            let earlier = records::all(op.node)?.iter().any(|record| record["run"] != op.app.run.as_str());
            if earlier || !records.is_empty() {
                let text = format!("--purge removes for good: {STATE_DIR} with {records}the logs{config}.");
                op.app.reporter.tell(&text);
            }
        }
        if removal.cluster_traces {
            let name = standing.node_name().map_or_else(|| "this machine".into(), |name| format!("Node {name}"));
            let removed = match self.outcome.in_etcd {
                true => format!("Calico's annotations on {name}"),
                false => format!("the IPAM blocks of {name} that no pod uses, and Calico's annotations on it"),
            };
            op.app.reporter.tell(&format!("--cluster-traces removes for good: {removed}."));
        }
        planned.decide_drain(op)
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        self.planned.would(op)
    }

    /// By the name of the node if something cannot be restored.
    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        let plan = &self.planned.plan;
        if plan.changes.is_empty() && !self.removal.purge && !self.is_in_cluster(&op.context.standing) {
            return Ok(());
        }
        let name = if self.planned.name.is_empty() { &op.context.facts.host_name } else { &self.planned.name };
        let pods = match plan.pods.iter().filter(|pod| pod.disposition != Disposition::Leaked).count() {
            0 => String::new(),
            1 => " 1 pod on it loses its network.".into(),
            pods => format!(" {pods} pods on it lose their network."),
        };
        let version = op.context.standing.release().map_or_else(String::new, |version| format!(" {version}"));
        let question = format!("Remove Calico{version} from {name}?{pods}");
        op.app.confirm("the node", &question, self.removal.purge.then_some(name))
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        Trial::forget(op.node)?;
        let only_in_cluster = self.is_nothing(&op.context.standing) && !self.removal.purge;
        let Self { planned, removal, outcome, found } = self;
        let theirs = op.context.standing.node_name().and_then(|name| op.context.other_machine(op.node, name.as_str()));
        if only_in_cluster {
            // Another record of an uninstall would end the undo of the one that removed Calico.
            outcome.clean_cluster(op, *removal, false, theirs);
            return Ok(Applied { changed: 0, generation: None, downtime: Duration::ZERO });
        }
        if theirs.is_some() {
            planned.drain = None;
        }
        let object = if theirs.is_some() { NodeObject::unknown() } else { planned.object(op) };
        let (theirs_go, node) = (found.theirs.clone(), planned.name.parse().ok());
        let terms = Terms { removal: *removal, theirs: theirs_go, node, ..planned.terms(op) };
        let applied = planned.apply(op, &object, None, &unproven, terms)?;
        outcome.clean_cluster(op, *removal, planned.drain.is_some(), theirs);
        Ok(applied)
    }

    fn after(&self) -> After {
        self.outcome.after.clone().unwrap_or(After::Try)
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        std::mem::take(&mut self.outcome).finish(op, self.removal, applied)
    }
}

impl RemovalOutcome {
    /// Reads where Calico keeps its data, before the records are removed.
    pub fn of(op: &Operation<'_>) -> Self {
        let standing = &op.context.standing;
        let installed = standing.receipts.iter().rev().find(|receipt| receipt.about.is_some());
        let config = installed.and_then(|receipt| store::effective(op.node, receipt).ok().flatten());
        let kind = config.as_ref().and_then(|fields| fields.get("spec.datastore.type"));
        let kubelet = standing.receipt().is_some_and(|receipt| order::runs(&receipt.target.world, Role::Kubelet));
        let kubelet_of = standing.node_name().filter(|_| kubelet).map(ToString::to_string);
        Self { in_etcd: kind.is_some_and(|kind| kind == "etcdv3"), kubelet_of, ..Self::default() }
    }

    /// Cleans up in the cluster after Calico is removed; a Node that was drained for it stays cordoned, since this
    /// machine has no network for pods any more. `theirs`: why the Node is another machine's, if it is.
    pub fn clean_cluster(&mut self, op: &mut Operation<'_>, removal: Removal, drained: bool, theirs: Option<String>) {
        self.after = Some(match theirs {
            Some(_) => After::Leave,
            None if drained => {
                let name = op.context.standing.node_name().map_or("NAME", |name| name.as_str());
                After::Keep(format!(": kubectl uncordon {name}, once it has a network again"))
            }
            None => After::Try,
        });
        match theirs {
            Some(theirs) => op.app.warn("ClusterTracesLeft", format!("nothing is removed in the cluster: {theirs}")),
            None => self.left = cluster_cleanup::clear(op, removal, self.in_etcd),
        }
    }

    /// Also removes our own folder if that was asked for, and reports what remains.
    pub fn finish(self, op: &mut Operation<'_>, removal: Removal, applied: Applied) -> Result<Ending> {
        if removal.purge {
            op.app.leave_state_folder();
            let lock = op.app.lock.take().context("find the lock of this run")?;
            let kept = lock.purge(op.node).map_err(|error| {
                // Calico is removed, so the run that removed it is over too.
                let error = converge::end_uninstall(op.node).err().unwrap_or(error);
                purge_incomplete(op.app, error)
            })?;
            for file in kept {
                op.app.reporter.tell(&format!("Kept: {file}, which is yours."));
            }
        } else {
            converge::end_uninstall(op.node)?;
            let kept = format!("Kept: logs and receipts below {STATE_DIR} (--purge removes them too).");
            op.app.reporter.tell(&kept);
            let others = WinPath::known(STATE_DIR).join(store::KEPT);
            if op.node.disk(&others).exists() {
                op.app.reporter.tell(&format!("Kept: {others}, files of other products in Calico's folder."));
            }
        }
        let mut stays = what_stays(op.node);
        stays.extend(self.scripts_left.clone());
        if let Some(name) = &self.kubelet_of {
            let data = WinPath::known(paths::KUBELET_DATA);
            if op.node.disk(&data).exists() {
                stays.push(format!("{data} with kubelet's certificates and the volumes of pods"));
            }
            op.app.reporter.tell(&format!("Left: the Node {name} in the cluster, which no kubelet reports for."));
        }
        // Some of those pods may have been moved away, or have ended.
        let there = if self.ruled.is_empty() { Vec::new() } else { op.node.endpoints().unwrap_or_default() };
        let ruled = there.iter().filter(|endpoint| self.ruled.iter().any(|before| before.id == endpoint.id));
        stays.extend(ruled.map(|Endpoint { name, network, .. }| {
            format!("ACLs that allow all traffic on the HNS endpoint {name} of {network}, until its pod is re-created")
        }));
        for line in &stays {
            op.app.reporter.tell(&format!("Left: {line}."));
        }
        let brought_back = self.removes_scripts && !removal.purge && applied.changed > 0;
        let msg = match (applied.changed > 0, stays.is_empty()) {
            (true, _) if self.restores_scripts => "What Calico's scripts had installed is back; the rest is removed.",
            (true, true) if self.removes_scripts => "Calico is removed, and what Calico's scripts had installed.",
            (true, true) if self.unrecorded => {
                "Calico is removed, as far as its marks show; no receipt says what was here before."
            }
            (true, true) => "Calico is removed; this machine is as it was before.",
            (true, false) => "Calico is removed; what is left here is named above.",
            (false, _) => "Nothing of Calico was left to remove on this machine.",
        };
        op.app.reporter.tell(msg);
        let mut left = self.left;
        if brought_back {
            let undo = op.app.command("resume --undo");
            op.app.reporter.tell(&format!("Undo, until the next install: {undo}"));
            left.push(undo);
        }
        left.extend(self.kubelet_of.map(|name| format!("kubectl delete node {name}")));
        report(op, Done { generation: None, ..Done::new(&applied, msg.into(), left) })
    }
}

/// Calico is removed already: the error names what is not.
fn purge_incomplete(app: &App, error: Error) -> Error {
    if Fault::of(&error).is_some() {
        return error;
    }
    let what = format!("Calico is removed, but {STATE_DIR} could not be removed");
    let again = format!("remove the cause, then run it again: {}", app.command("uninstall --purge"));
    error.context(Fault::new(Exit::Failed, "PurgeIncomplete", what).hint(again))
}

/// Looks for what is removed although no receipt says that it is ours: what has our mark, and what Calico's scripts made.
fn look_for(node: &dyn Node, standing: &Standing, facts: &NodeFacts, args: &Uninstall) -> Result<Found> {
    let adopted = args.adopted;
    let mut found = Found { marked: marks::found(node, &standing.owned(), facts)?, ..Found::default() };
    // A removal that was interrupted is continued.
    let begun = standing.journal.as_ref().filter(|journal| journal.header.about.is_none());
    let begun = begun.map(|journal| journal.header.terms.theirs.clone()).unwrap_or_default();
    let taken_over = scripts::adopted(standing);
    if !begun.is_empty() {
        found.adopted = Some(if adopted == Some(AdoptedFlag::Restore) { Adopted::Restore } else { Adopted::Remove });
        found.theirs = begun;
    } else if !taken_over.is_empty() {
        found.adopted = Some(if adopted == Some(AdoptedFlag::Remove) { Adopted::Remove } else { Adopted::Restore });
        found.theirs = taken_over;
    }
    // Its folder would be ours otherwise.
    let not_ours = standing.in_place().is_none() && standing.journal.is_none() && found.marked.is_empty();
    if not_ours
        && adopted != Some(AdoptedFlag::Restore)
        && let Some(scripts) = scripts::found(node, facts)?
    {
        found.adopted = Some(Adopted::Remove);
        (found.theirs, found.node_name, found.left) = (scripts.items, scripts.node_name, scripts.left);
    }
    if found.adopted == Some(Adopted::Restore) {
        found.theirs.clear();
    }
    if found.adopted == Some(Adopted::Remove) {
        found.left.extend(scripts::files_in_store(node, standing, args.purge)?);
    }
    Ok(found)
}

/// Returns the plan of an uninstall. The target is empty; what was found besides is removed too.
fn plan_without(node: &dyn Node, standing: &Standing, found: &Found) -> Result<(Target, Vec<Step>, Plan)> {
    let absent = found.marked.union(&found.theirs).cloned().collect();
    let target = Target { absent, ..Target::default() };
    let steps = converge::plan(node, standing, &target)?;
    let mut plan = Plan::new(&steps, &target, standing.receipt().is_some());
    plan.adopted = found.adopted;
    Ok((target, steps, plan))
}

/// Returns services and networks with Calico's names that still exist: of other products, or created again since.
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
