//! The pipeline of every change: gather, plan, show, ask, make, report. Each verb implements the stages; this file
//! fixes their order, and that none is skipped.

use anyhow::Result;

use super::Ending;
use super::app::{App, Opened};
use super::escort;
use super::lease;
use super::stage::Purpose;
use super::verb::Row;
use crate::apply::lock::Lock;
use crate::apply::standing::Standing;
use crate::cluster::lease::LeaseRenewer;
use crate::node::Node;
use crate::plan::show::Plan;
use crate::report::document::RunResult;

/// A planned change of the node: everything that is known before anything is changed.
pub(crate) trait Change {
    /// The result of making the change.
    type Made;

    /// Refuses a change that may not be made. Returns the result if there is nothing to do.
    fn judge(&self, app: &mut App, node: &mut dyn Node) -> Result<Option<RunResult>>;

    /// Shows the plan, and decides what happens to the pods.
    fn show(&mut self, app: &mut App, node: &dyn Node) -> Result<()>;

    /// Ends a dry run, once the plan is shown.
    fn would(self, app: &mut App) -> Result<Ending>;

    /// The plan; none if what to do is decided already.
    fn plan(&self) -> Option<&Plan> {
        None
    }

    /// Asks for confirmation.
    fn ask(&self, app: &mut App, node: &dyn Node) -> Result<()>;

    /// Keeps other machines from changing the node meanwhile.
    fn lease(&self, app: &mut App, node: &dyn Node) -> Result<Option<LeaseRenewer>>;

    /// Makes the change, while the node is locked here and in the cluster.
    fn make(&mut self, app: &mut App, node: &mut dyn Node) -> Result<Self::Made>;

    /// Lets other machines change the node again.
    fn release(&self, app: &mut App, _: &dyn Node, keeper: Option<LeaseRenewer>, _failed: bool) -> Result<()> {
        lease::release(app, keeper);
        Ok(())
    }

    /// Reports how the run ended.
    fn finish(self, app: &mut App, node: &mut dyn Node, lock: Lock, made: Self::Made) -> Result<Ending>;
}

/// Makes a change, or shows it. `gather` looks at node and cluster, checks, and plans.
///
/// # Errors
/// What prevents the change; and its failure, after which it is reverted or can be resumed.
pub(crate) fn run<C: Change>(
    row: &'static Row,
    app: &mut App,
    gather: impl FnOnce(&mut App, &mut dyn Node, Standing, Purpose) -> Result<C>,
) -> Result<Ending> {
    let Opened { mut node, lock, standing } = app.node_for(row.command)?;
    let purpose = if lock.is_some() { Purpose::Install } else { Purpose::Look };
    let mut change = gather(app, &mut *node, standing?, purpose)?;
    let Some(lock) = lock else {
        change.show(app, &*node)?;
        return change.would(app);
    };
    if let Some(result) = change.judge(app, &mut *node)? {
        return Ending::result(result);
    }
    change.show(app, &*node)?;
    change.ask(app, &*node)?;
    if let Some(plan) = change.plan().filter(|plan| escort::is_due(app, plan)) {
        return escort::stay(app, row, plan, node, lock);
    }
    escort::go_on(app, change.plan())?;
    let keeper = change.lease(app, &*node)?;
    let made = change.make(app, &mut *node);
    change.release(app, &*node, keeper, made.is_err())?;
    change.finish(app, &mut *node, lock, made?)
}
