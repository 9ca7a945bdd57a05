//! How an agent is stopped, and how it waits without missing that.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

/// Set once, by the Service Control Manager or Ctrl-C. Every wait checks it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: Mutex<bool>,
    /// Windows shuts down.
    shutdown: AtomicBool,
    bell: Condvar,
}

impl Stop {
    /// Requests the stop. Wakes every waiter.
    pub fn request(&self) {
        *self.asked() = true;
        self.0.bell.notify_all();
    }

    /// Requests the stop because Windows shuts down.
    pub fn request_for_shutdown(&self) {
        self.0.shutdown.store(true, Ordering::SeqCst);
        self.request();
    }

    /// Whether Windows shuts down.
    pub fn is_for_shutdown(&self) -> bool {
        self.0.shutdown.load(Ordering::SeqCst)
    }

    pub fn requested(&self) -> bool {
        *self.asked()
    }

    /// # Errors
    /// [`Stopped`] when the stop was requested.
    pub fn check(&self) -> Result<()> {
        if self.requested() { Err(Stopped.into()) } else { Ok(()) }
    }

    /// Wakes the waiters: one of their conditions has changed.
    pub fn ring(&self) {
        // A waiter holds the lock, so no wake-up is lost between its check and its wait.
        drop(self.asked());
        self.0.bell.notify_all();
    }

    /// Sleeps until the stop is requested, until `done` (checked at every wake-up), or for `limit`.
    pub fn wait(&self, limit: Duration, done: impl Fn() -> bool) {
        let begun = Instant::now();
        let mut asked = self.asked();
        while !*asked && !done() {
            let Some(left) = limit.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
                return;
            };
            (asked, _) = self.0.bell.wait_timeout(asked, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn asked(&self) -> MutexGuard<'_, bool> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The agent was stopped during an operation: not a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the service was stopped")
    }
}

impl std::error::Error for Stopped {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_wakes_every_waiter() {
        let stop = Stop::default();
        let other = stop.clone();
        let waiter = std::thread::spawn(move || other.wait(Duration::from_secs(600), || false));
        stop.request();
        waiter.join().unwrap();
        assert!(stop.check().unwrap_err().is::<Stopped>());
    }
}
