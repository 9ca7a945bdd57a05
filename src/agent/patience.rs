//! Waiting that has a limit, says what it waits for, and names what is missing when it gives up.

use std::time::Duration;

use anyhow::Result;

use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::event::{Event, Sink};

/// What a wait still lacks, for its last words.
pub struct Missing(pub String);

/// How long to look away between two looks.
const LOOK_AWAY: Duration = Duration::from_secs(1);

/// Looks until `look` finds what it waits for. An error of `look` ends the wait.
///
/// Time is counted by the pauses and not read off the clock, which may jump right after boot.
///
/// # Errors
/// Fault `WaitedTooLong` with what is missing when `limit` is over.
pub fn wait<T>(
    node: &mut dyn Node,
    what: &str,
    limit: Duration,
    events: Sink<'_>,
    mut look: impl FnMut(&mut dyn Node) -> Result<Result<T, Missing>>,
) -> Result<T> {
    let mut elapsed = Duration::ZERO;
    loop {
        let missing = match look(node)? {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        if elapsed >= limit {
            let text = format!("waited {} s for {what}: {}", limit.as_secs(), missing.0);
            return Err(Fault::new(Exit::VerifyFailed, "WaitedTooLong", text)
                .hint("mend what is missing, then start the service again: `calicoctl-win service start`")
                .into());
        }
        events(Event::Waiting { what: what.to_owned(), elapsed, limit });
        node.pause(LOOK_AWAY);
        elapsed += LOOK_AWAY;
    }
}
