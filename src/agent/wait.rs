//! Waits with a limit, that report what they wait for, and name what is missing at the limit.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::AgentContext;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::event::Event;

/// What a wait is still missing, for its error.
pub struct Missing(pub String);

/// The pause between two polls: the most that a wait adds to the event that it waits for.
pub const POLL_PAUSE: Duration = Duration::from_millis(50);

/// How often a wait reports its progress.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Polls `look` until it returns a result. `look` gets how long the wait has taken so far; its error ends the wait.
///
/// Time is the sum of the pauses and of the polls' own durations, and not read from the clock, which may jump right
/// after boot.
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
    let (mut elapsed, mut said) = (Duration::ZERO, None);
    loop {
        context.stop.check()?;
        let looking = Instant::now();
        let missing = match look(node, elapsed)? {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        elapsed += looking.elapsed();
        if elapsed >= limit {
            let text = format!("waited {} s for {what}: {}", limit.as_secs(), missing.0);
            return Err(Fault::new(Exit::VerifyFailed, "WaitedTooLong", text)
                .hint("fix what is missing, then start the service again: `calicoctl-win service start`")
                .into());
        }
        if said.is_none_or(|said| elapsed >= said + REPORT_EVERY) {
            said = Some(elapsed);
            (context.events)(Event::Waiting { what: what.to_owned(), elapsed, limit });
        }
        (context.pause)(node, POLL_PAUSE);
        elapsed += POLL_PAUSE;
    }
}
