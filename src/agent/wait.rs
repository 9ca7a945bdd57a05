//! Waiting that has a limit, says what it waits for, and names what is missing when it gives up.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::AgentContext;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::event::Event;

/// What a wait still lacks, for its last words.
pub struct Missing(pub String);

/// How long to look away between two looks: what a wait may add to the event that it waits for.
pub const LOOK_AWAY: Duration = Duration::from_millis(50);

/// How often a wait says that it goes on.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Looks until `look` finds what it waits for. `look` is told how long the wait has taken so far; an
/// error of it ends the wait.
///
/// Time is counted by the pauses and by how long the looks took, and not read off the clock, which
/// may jump right after boot.
///
/// # Errors
/// Fault `WaitedTooLong` with what is missing when `limit` is over; [`super::Stopped`] when the
/// agent was asked to stop.
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
                .hint("add what is missing, then start the service again: `calicoctl-win service start`")
                .into());
        }
        if said.is_none_or(|said| elapsed >= said + SAY_EVERY) {
            said = Some(elapsed);
            (context.events)(Event::Waiting { what: what.to_owned(), elapsed, limit });
        }
        (context.pause)(node, LOOK_AWAY);
        elapsed += LOOK_AWAY;
    }
}
