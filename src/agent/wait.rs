//! The waits of an agent, which end when it is stopped.

use std::time::Duration;

use anyhow::Result;

use super::AgentContext;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::wait::Wait;

/// What a wait is still missing, for its error.
pub struct Missing(pub String);

/// The pause between two polls: the most that a wait adds to the event that it waits for.
pub const POLL_PAUSE: Duration = Duration::from_millis(50);

/// Polls `look` until it returns a result. `look` gets how long the wait has taken so far; its error ends the wait.
///
/// # Errors
/// Fault `WaitedTooLong` with what is missing at the `limit`; [`super::Stopped`] when the agent was stopped.
pub fn wait<T>(
    node: &mut dyn Node,
    what: &str,
    limit: Duration,
    context: &mut AgentContext<'_>,
    mut look: impl FnMut(&mut dyn Node, Duration) -> Result<Result<T, Missing>>,
) -> Result<T> {
    let AgentContext { stop, pause, events, .. } = context;
    let rest = &mut |node: &mut dyn Node, time| {
        pause(node, time);
        stop.check()
    };
    stop.check()?;
    let wait = Wait { what: Some(what), limit, pause: POLL_PAUSE, rest };
    let waited = wait.until(node, events, |node, elapsed, _| Ok(look(node, elapsed)?.map_err(|missing| missing.0)))?;
    waited.map_err(|missing| {
        let text = format!("waited {} s for {what}: {missing}", limit.as_secs());
        Fault::new(Exit::VerifyFailed, "WaitedTooLong", text)
            .hint("fix what is missing, then start the service again: `calicoctl-win service start`")
            .into()
    })
}
