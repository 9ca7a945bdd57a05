//! Waits with a limit, that report what they wait for.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::node::Node;
use crate::report::event::{Event, Sink};

/// How often a wait reports its progress.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A wait: how long at most, and how the time between two looks passes.
pub struct Wait<'a> {
    /// What is waited for; if none, what is missing is reported.
    pub what: Option<&'a str>,
    pub limit: Duration,
    pub pause: Duration,
    /// Lets time pass. Its error ends the wait.
    pub rest: &'a mut dyn FnMut(&mut dyn Node, Duration) -> Result<()>,
}

impl Wait<'_> {
    /// Looks until there is a result, and returns what is still missing if there is none at the limit. `look` gets how
    /// long the wait has taken so far; its error ends the wait.
    ///
    /// Time is the sum of the pauses and of the looks' own durations, and not read from the clock, which may jump right
    /// after boot.
    ///
    /// # Errors
    /// Those of `look` and of `rest`.
    pub fn until<T>(
        self,
        node: &mut dyn Node,
        events: Sink,
        mut look: impl FnMut(&mut dyn Node, Duration, Sink) -> Result<Result<T, String>>,
    ) -> Result<Result<T, String>> {
        let (mut elapsed, mut said) = (Duration::ZERO, None);
        loop {
            let looking = Instant::now();
            let missing = match look(node, elapsed, events)? {
                Err(missing) => missing,
                found => return Ok(found),
            };
            elapsed += looking.elapsed();
            if elapsed >= self.limit {
                return Ok(Err(missing));
            }
            if said.is_none_or(|said| elapsed >= said + REPORT_EVERY) {
                said = Some(elapsed);
                let what = self.what.map_or(missing, str::to_owned);
                events(Event::Waiting { what, elapsed, limit: self.limit });
            }
            let pause = self.pause.min(self.limit - elapsed);
            (self.rest)(node, pause)?;
            elapsed += pause;
        }
    }
}

/// Lets time pass for this process, and not on a sandbox's clock.
///
/// # Errors
/// Never: it has the form of [`Wait::rest`].
pub fn sleep(_: &mut dyn Node, time: Duration) -> Result<()> {
    thread::sleep(time);
    Ok(())
}
