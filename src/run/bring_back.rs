//! `resume --undo` after an uninstall that removed what Calico's scripts had installed: that comes back from the store.

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::context::Operation;
use super::cordon::After;
use super::engine;
use super::import::node_name;
use super::open::await_address;
use super::options::DrainFlags;
use super::pipeline::{self, Done, Planned, Verb, report};
use super::sources::Choice;
use super::verb::RESUME;
use crate::apply::converge::{self, Change};
use crate::apply::cordon::Cordon;
use crate::apply::journal::Terms;
use crate::apply::standing::{Applied, Standing};
use crate::apply::store;
use crate::fault::{Exit, Fault};
use crate::item::{Id, State};
use crate::node::Node;
use crate::plan::show::Plan;
use crate::plan::{Step, Target};
use crate::report::event::Sink;

/// The end of the run.
pub(crate) const IS_BACK: &str = "What Calico's scripts had installed is back, as it was before the uninstall.";

/// Whether the last uninstall can be undone, and no run was interrupted since.
pub(crate) fn is_due(node: &dyn Node) -> bool {
    let is_over = |standing: &Standing| standing.journal.is_none() && !standing.removed().is_empty();
    Standing::load(node).is_ok_and(|standing| is_over(&standing)) && matches!(Cordon::load(node), Ok(None))
}

/// Brings it back, or shows what comes back.
///
/// # Errors
/// As [`pipeline::run`]; `CameBackSince` if something of it exists again.
pub(crate) fn run(app: &mut App) -> Result<Ending> {
    pipeline::run(&RESUME, app, &Choice::default(), gather)
}

/// The services of the scripts create the virtual switch, as ours do: the machine is without address for a moment.
///
/// # Errors
/// When the node cannot be measured.
pub(crate) fn has_address(node: &mut dyn Node, _: &Target, events: Sink<'_>) -> Result<()> {
    await_address(node, "an address on the virtual switch of Calico's scripts", events).map(drop)
}

struct BroughtBack {
    planned: Planned,
    standing: Standing,
}

fn gather(op: &mut Operation<'_>) -> Result<BroughtBack> {
    let standing = Standing { brings_back: true, ..op.context.standing.clone() };
    let name = match standing.node_name() {
        Some(name) => name.to_string(),
        // Pods may be attached by the time it is undone.
        None => written_name(op.node, &standing).or_else(|| op.context.node_name(op.node).ok()).unwrap_or_default(),
    };
    let target = Target::default();
    let steps = converge::plan(op.node, &standing, &target)?;
    // Nothing that somebody made since is replaced.
    let is_new = |step: &&Step| {
        let shared = matches!(step.id(), Id::Dir(_) | Id::Firewall(_) | Id::RegValue { .. });
        !shared && matches!(step, Step::Put { before: Some(_), .. })
    };
    if let Some(step) = steps.iter().find(is_new) {
        let what = format!("{} exists again since the uninstall", step.id());
        return Err(Fault::new(Exit::Conflict, "CameBackSince", what)
            .hint("remove it, or leave what the uninstall removed in the store")
            .into());
    }
    for (id, state) in standing.removed() {
        if let Some(state) = state.filter(|state| !store::holds(op.node, state)) {
            let what = format!("the store does not hold what {id} was: {}", crate::plan::show::state(&state));
            return Err(Fault::new(Exit::NotFound, "GenerationGone", what)
                .hint("install Calico instead: calicoctl-win install")
                .into());
        }
    }
    let plan = Plan::new(&steps, &target, false);
    op.app.announce(&plan);
    let flags = DrainFlags::default();
    Ok(BroughtBack {
        planned: Planned { name, target, steps, plan, drains: Some(false), flags, drain: None },
        standing,
    })
}

/// The name of the Node in the file that Calico's node startup had written, and that was removed.
fn written_name(node: &dyn Node, standing: &Standing) -> Option<String> {
    let removed = standing.removed();
    let sha256 = removed.iter().find_map(|(id, state)| match (id, state) {
        (Id::File(path), Some(State::File { sha256, .. })) if path.name() == "nodename" => Some(sha256),
        _ => None,
    })?;
    node_name(node, &store::blob(sha256))
}

impl Verb for BroughtBack {
    fn node_name(&self) -> &str {
        &self.planned.name
    }

    fn plan(&self) -> Option<&Plan> {
        Some(&self.planned.plan)
    }

    fn show(&mut self, op: &mut Operation<'_>) -> Result<()> {
        self.planned.tell(op);
        Ok(())
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        self.planned.would(op)
    }

    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        op.app.confirm("the node", "Bring back what Calico's scripts had installed?", None)
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let Self { planned, standing } = &*self;
        let Planned { steps, target, .. } = planned;
        let object = planned.object(op);
        let node = planned.name.parse().ok();
        let (run, terms) = (op.app.run.clone(), Terms { brings_back: true, node, ..planned.terms(op) });
        let change = Change { run: &run, command: op.row.command, target, about: None, terms, shown: Some(steps) };
        engine::run(op, &object, |node, events| converge::apply(node, standing, &object, &change, &has_address, events))
    }

    fn after(&self) -> After {
        After::Leave
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        op.app.reporter.tell(IS_BACK);
        let next = vec![op.app.command("status")];
        report(op, Done { generation: None, ..Done::new(&applied, IS_BACK.into(), next) })
    }
}
