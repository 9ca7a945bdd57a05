//! `uninstall`: the empty target. Needs neither a valid config nor a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::args::{Source, Uninstall};
use super::cordon;
use super::engine::{engine, succeeded};
use super::prepare::announce;
use super::reconfigure::ACHIEVED;
use crate::apply::converge::{self, Change, Standing};
use crate::apply::receipt::About;
use crate::fault::Exit;
use crate::node::Node;
use crate::plan::Target;
use crate::plan::show::Plan;
use crate::report::document::RunResult;

pub(crate) fn run(args: &Uninstall, app: &mut App) -> Result<Ending> {
    if app.global.dry_run {
        let node = app.node()?;
        let plan = plan(&*node)?;
        app.reporter.tell(&plan.text());
        let mut result = RunResult::new(Exit::Ok, false, format!("dry run: {}", plan.counts()));
        result.plan = Some(plan);
        return Ending::result(result);
    }
    let (mut node, lock) = app.node_to_change("uninstall")?;
    let standing = Standing::load(&*node)?;
    let target = Target::default();
    let steps = converge::plan(&*node, &standing, &target)?;
    let plan = Plan::new(&steps, &target, standing.receipt().is_some());
    let nothing = plan.changes.is_empty() && standing.receipt().is_none() && standing.journal.is_none();
    if nothing && !args.purge {
        return Ending::result(RunResult::new(
            Exit::Ok,
            false,
            "nothing to do: Calico is not installed here by this tool",
        ));
    }
    announce(app, &plan);
    if !plan.changes.is_empty() {
        app.reporter.tell(&plan.text());
        app.confirm("Remove Calico from this node?")?;
    }
    // Also what an earlier uninstall left there, as long as a receipt tells of it.
    let made_secret = |about: &&About| about.token_secret.is_some();
    let about = standing.receipts.iter().rev().filter_map(|receipt| receipt.about.as_ref()).find(made_secret).cloned();
    let run = app.run.clone();
    let change = Change { run: &run, command: "uninstall", target: &target, about: None, shown: Some(&steps) };
    let applied = engine(app, &mut *node, |node, events| converge::apply(node, &change, events))?;
    // An interrupted run that this one ended may have cordoned the node.
    if let Err(error) = cordon::release(app, &*node) {
        app.warn("UncordonFailed", format!("{error:#}"));
    }
    let newest = standing.receipts.iter().rev().find_map(|receipt| receipt.about.as_ref());
    let name = newest.map(|about| about.node_name.to_string()).unwrap_or_default();
    if standing.receipts.iter().any(|receipt| receipt.command == "reconfigure")
        && let Err(error) = remove_annotation(app, &*node, &name)
    {
        app.warn("NotAnnotated", format!("node {name} keeps the annotation {ACHIEVED}: {error:#}"));
    }

    let mut left = Vec::new();
    // Every node with a token of this secret loses access when it goes, so only --purge takes it.
    if let Some(About { calico_namespace, token_secret: Some(name), .. }) = about.as_ref().filter(|_| !args.purge) {
        app.reporter
            .tell(&format!("Kept: the secret {calico_namespace}/{name} in the cluster, which other nodes may use."));
        left.push(format!("kubectl -n {calico_namespace} delete secret {name}"));
    }
    if let Some(about) = about.filter(|about| about.token_secret.is_some() && args.purge)
        && let Err(error) = remove_secret(app, &*node, &about)
    {
        let name = about.token_secret.unwrap_or_default();
        app.warn(
            "SecretLeft",
            format!("the secret {}/{name} that install made is still there: {error:#}", about.calico_namespace),
        );
        left.push(format!("kubectl -n {} delete secret {name}", about.calico_namespace));
    }
    if args.purge {
        app.leave_state_folder();
        for file in lock.purge(&*node)? {
            app.reporter.tell(&format!("Kept: {file}, which is yours."));
        }
    } else {
        app.reporter.tell("Kept: logs and receipts below C:\\ProgramData\\calicoctl-win (--purge removes them too).");
    }
    let msg = if applied.changed > 0 {
        "Calico is removed; the node is as it was before."
    } else {
        "Nothing of Calico was left to remove."
    };
    app.reporter.tell(msg);
    let exit = succeeded(app, &*node, &mut left);
    let mut result = RunResult::new(exit, applied.changed > 0 || args.purge && !standing.receipts.is_empty(), msg);
    result.downtime_ms = crate::report::document::millis(applied.downtime);
    result.next = left;
    Ending::result(result)
}

/// What an uninstall would do.
pub(crate) fn plan(node: &dyn Node) -> Result<Plan> {
    let standing = Standing::load(node)?;
    let target = Target::default();
    let steps = converge::plan(node, &standing, &target)?;
    Ok(Plan::new(&steps, &target, standing.receipt().is_some()))
}

/// How long the cluster may take to drop a note that harms nobody.
const NOTE_LIMIT: Duration = Duration::from_secs(10);

fn remove_annotation(app: &App, node: &dyn Node, name: &str) -> Result<()> {
    let layered = app.config(node, &Source::default(), &[])?;
    let mut connection = app.connection(node, &layered)?;
    connection.timeout = connection.timeout.min(NOTE_LIMIT);
    let none = BTreeMap::from([(ACHIEVED.to_owned(), None)]);
    app.cluster(node, &connection)?.annotate_node(name, &none).map(drop)
}

fn remove_secret(app: &App, node: &dyn Node, about: &About) -> Result<()> {
    let layered = app.config(node, &Source::default(), &[])?;
    let cluster = app.cluster(node, &app.connection(node, &layered)?)?;
    cluster.delete_token_secret(&about.calico_namespace)?;
    Ok(())
}
