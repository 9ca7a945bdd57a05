//! Ctrl-C: a run stops between two steps; the journal allows it to be resumed or undone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::fault::{Exit, Fault};
use crate::node::Node;

static ASKED: AtomicBool = AtomicBool::new(false);
/// How many [`UnderWay`] exist: they nest. None once the process is ending: no step may begin any more.
static UNDER_WAY: Mutex<Option<usize>> = Mutex::new(Some(0));

fn under_way() -> MutexGuard<'static, Option<usize>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// No step is in progress: the process may end at once.
    Idle,
    /// The run stops after the current step.
    Stops,
    /// It is the second request: the process may end at once, in the middle of a step.
    Again,
}

/// Asks the current run to stop.
pub fn ask() -> Asked {
    let mut under_way = under_way();
    match *under_way {
        None | Some(0) => {
            *under_way = None;
            Asked::Idle
        }
        _ if ASKED.swap(true, Ordering::SeqCst) => Asked::Again,
        _ => Asked::Stops,
    }
}

/// Whether the run was asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Fails if the run was asked to stop.
///
/// # Errors
/// `RunCancelled`.
pub fn check() -> Result<()> {
    if asked() {
        return Err(Fault::new(Exit::Cancelled, "RunCancelled", "the run was cancelled between two steps")
            .hint("finish it with: calicoctl-win resume\nor undo it with: calicoctl-win resume --undo")
            .into());
    }
    Ok(())
}

/// Lets time pass on the node, unless the run was asked to stop.
///
/// # Errors
/// As [`check`].
pub fn pause(node: &mut dyn Node, time: Duration) -> Result<()> {
    check()?;
    node.pause(time);
    Ok(())
}

/// Marks that steps are being taken, while it exists.
#[derive(Debug)]
pub struct UnderWay;

impl UnderWay {
    pub fn begin() -> Self {
        loop {
            if let Some(count) = under_way().as_mut() {
                *count += 1;
                return Self;
            }
            // The process is ending.
            thread::park();
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(count) = under_way().as_mut() {
            *count -= 1;
        }
    }
}
