//! `node cordon|uncordon|drain|taint|untaint`: this machine's Kubernetes Node; the machine itself is not changed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use super::app::App;
use super::context::Operation;
use super::cordon::After;
use super::options::Node as Args;
use super::pipeline::{self, Done, Verb, report};
use super::sources::Choice;
use super::verb;
use super::{Ending, drain, pending_work};
use crate::apply::cancel;
use crate::apply::cordon::Cordon;
use crate::apply::node_object::NodeObject;
use crate::apply::standing::Applied;
use crate::cluster::{Cluster, DrainOptions, Taint, Taints};
use crate::fault::{Exit, Fault};
use crate::report::event::Event;
use crate::settings;

/// Changes the Node. It must not be uncordoned while a run drains it, so all of these take the lock; and another machine
/// may be changing it, so they take the Lease.
///
/// # Errors
/// As [`pipeline::run`]; `NodeOfOtherMachine`; and when the cluster cannot be asked, or refuses.
pub(crate) fn run(args: &Args, app: &mut App) -> Result<Ending> {
    let row = match args {
        Args::Cordon => &verb::CORDON,
        Args::Uncordon => &verb::UNCORDON,
        Args::Drain(_) => &verb::DRAIN,
        Args::Taint { .. } => &verb::TAINT,
        Args::Untaint { .. } => &verb::UNTAINT,
    };
    pipeline::run(row, app, &Choice::default(), |op| {
        let name = settings::node_name(op.context.config(op.node)?, &op.context.facts, |_| anyhow::Ok(true))?;
        let cluster = op.context.cluster(op.node)?;
        if let Some(theirs) = op.context.other_machine(op.node, &name) {
            return Err(Fault::new(Exit::Conflict, "NodeOfOtherMachine", theirs)
                .hint("do it on that machine, or give this machine's own Node: --set kubernetes.nodeName=NAME")
                .into());
        }
        Ok(NodeChange { args, cluster: cluster.clone(), name, msg: String::new() })
    })
}

/// A change of the Node.
struct NodeChange<'a> {
    args: &'a Args,
    cluster: Cluster,
    name: String,
    /// What was done.
    msg: String,
}

impl Verb for NodeChange<'_> {
    fn node_name(&self) -> &str {
        &self.name
    }

    fn show(&mut self, op: &mut Operation<'_>) -> Result<()> {
        if let Args::Drain(flags) = self.args {
            let options = flags.over(&op.context.run(op.node)?.maintenance.drain);
            drain::show(op.app, &self.cluster, &self.name, &options)?;
        }
        Ok(())
    }

    fn refuse(&self, op: &mut Operation<'_>) -> Result<()> {
        let journal = op.context.standing.interrupted();
        let Some(journal) = journal.filter(|_| matches!(self.args, Args::Uncordon)) else { return Ok(()) };
        let what = format!("a run was interrupted: {journal}");
        if journal.is_draining() {
            op.app.warn("InterruptedRun", format!("{what}; `resume` cordons and drains the node again"));
            return Ok(());
        }
        let hint = format!(
            "finish it with: calicoctl-win resume\nor undo it with: calicoctl-win resume --undo\nor let pods come to the \
             node as it is: kubectl uncordon {}",
            self.name
        );
        Err(Fault::new(Exit::Interrupted, "InterruptedRun", what).hint(hint).into())
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        let (name, word) = (&self.name, self.word());
        let is_so = match self.args {
            Args::Cordon | Args::Uncordon => {
                let schedulable = self.cluster.node(name)?.is_some_and(|node| node.schedulable);
                schedulable == matches!(self.args, Args::Uncordon)
            }
            Args::Drain(_) => false,
            Args::Taint { .. } | Args::Untaint { .. } => {
                let there = self.cluster.taints(name)?;
                self.edit(there.clone())? == there
            }
        };
        if is_so {
            return op.app.done(false, format!("nothing to do: node {name} is {word} already"));
        }
        let msg = format!("dry run: node {name} would be {word}");
        op.app.reporter.tell(&msg);
        Ending::result(crate::report::document::RunResult::looked(true, msg))
    }

    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        match self.args {
            Args::Drain(_) => op.app.confirm("the node", &format!("Drain {}?", self.name), None),
            _ => Ok(()),
        }
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let (name, word) = (&self.name, self.word());
        let changed = match self.args {
            Args::Cordon => self.cluster.cordon(name, None)?,
            Args::Uncordon => {
                let changed = self.cluster.uncordon(name)?;
                // This also undoes what a finished run left.
                if pending_work::is_cordoned(op.node)? {
                    let left = Cordon::load(op.node)?.filter(|left| left.node == *name);
                    left.map_or(Ok(()), |left| left.forget(op.node))?;
                }
                changed
            }
            Args::Drain(flags) => {
                let options = flags.over(&op.context.run(op.node)?.maintenance.drain);
                let (changed, done) = self.drain(op, &options)?;
                self.msg = format!("node {name} is {word}: {done}");
                changed
            }
            Args::Taint { .. } | Args::Untaint { .. } => self.cluster.retaint(name, &|there| self.edit(there))?,
        };
        if self.msg.is_empty() {
            self.msg = match changed {
                true => format!("node {name} is {word}"),
                false => format!("nothing to do: node {name} is {word} already"),
            };
        }
        for event in self.cluster.take_events() {
            op.app.event(&event);
        }
        Ok(Applied { changed: usize::from(changed), generation: None, downtime: Duration::ZERO })
    }

    fn after(&self) -> After {
        After::Leave
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        op.app.reporter.tell(&self.msg);
        if matches!(self.args, Args::Untaint { .. }) {
            let labels = self.cluster.node(&self.name)?.map(|node| node.labels).unwrap_or_default();
            op.app.reporter.tell(&shown_labels(&self.name, labels));
        }
        let next = match self.args {
            Args::Drain(_) => vec![op.app.command("node uncordon")],
            _ => Vec::new(),
        };
        report(op, Done::new(&applied, self.msg.clone(), next))
    }
}

impl NodeChange<'_> {
    /// What the Node is afterwards.
    fn word(&self) -> String {
        let list = |taints: &[Taint]| taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self.args {
            Args::Cordon => "cordoned".into(),
            Args::Uncordon => "uncordoned".into(),
            Args::Drain(_) => "cordoned and drained".into(),
            Args::Taint { taints, .. } => format!("tainted with {}", list(taints)),
            Args::Untaint { taints } => format!("freed of the taints {}", list(taints)),
        }
    }

    /// The taints afterwards.
    fn edit(&self, there: Taints) -> Result<Taints> {
        match self.args {
            Args::Taint { taints, overwrite } => {
                taints.iter().try_fold(there, |there, taint| there.with(taint, *overwrite))
            }
            Args::Untaint { taints } => Ok(taints.iter().fold(there, Taints::without)),
            _ => Ok(there),
        }
    }

    /// Cordons and drains the Node; a drain that fails uncordons it. Returns whether anything was changed, and what was
    /// done.
    fn drain(&self, op: &mut Operation<'_>, options: &DrainOptions) -> Result<(bool, String)> {
        let (app, name) = (&mut *op.app, &self.name);
        let cordoned = app.phase_of_change("cordon", |_| {
            let cordoned = self.cluster.cordon(name, None)?;
            let message = if cordoned { "no new pods come" } else { "was cordoned before, and stays so" };
            Ok((cordoned, format!("node {name}: {message}"), cordoned))
        })?;
        let _under_way = cancel::UnderWay::begin();
        let begun = Instant::now();
        app.event(&Event::PhaseStarted { phase: "drain", place: None });
        let object = NodeObject::new(name, Ok(self.cluster.clone()), None);
        match object.drain(options, &mut |event| app.event(&event)) {
            Ok(drained) => {
                let (message, changed, took) = (drained.done(), !drained.evicted.is_empty(), begun.elapsed());
                app.event(&Event::PhaseCompleted { phase: "drain", message: message.clone(), changed, took });
                Ok((cordoned || changed, message))
            }
            Err(error) => {
                app.event(&Event::PhaseFailed { phase: "drain", message: format!("{error:#}") });
                Err(if cordoned { self.uncordon_after(app, error) } else { error })
            }
        }
    }

    /// Uncordons the Node, and returns the error to report.
    fn uncordon_after(&self, app: &mut App, error: Error) -> Error {
        let name = &self.name;
        match self.cluster.uncordon(name) {
            Ok(_) => {
                app.event(&Event::Log { message: format!("node {name} is uncordoned") });
                error
            }
            Err(second) => {
                let what = format!("the drain failed, and node {name} could not be uncordoned ({second:#})");
                let hint = format!("when the cluster answers, run: {}", app.command("node uncordon"));
                error.context(Fault::new(Exit::FailedIncomplete, "UncordonFailed", what).hint(hint))
            }
        }
    }
}

/// Returns the labels by which pods distinguish the node from Linux nodes, once no taint keeps them off it.
fn shown_labels(name: &str, labels: BTreeMap<String, String>) -> String {
    let telling = |key: &str| key.ends_with("kubernetes.io/os") || key == "node.kubernetes.io/windows-build";
    let shown: Vec<String> =
        labels.iter().filter(|(key, _)| telling(key)).map(|(key, value)| format!("{key}={value}")).collect();
    match shown.as_slice() {
        [] => format!("node {name} has no label kubernetes.io/os: pods for Linux may come to it"),
        shown => format!(
            "node {name} has the labels {}: from now on only their nodeSelector kubernetes.io/os: linux keeps pods for Linux away",
            shown.join(", ")
        ),
    }
}
