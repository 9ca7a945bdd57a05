//! Ctrl-C: between two steps a run stops where it is, and the journal knows how to go on or back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

use crate::fault::{Exit, Fault};

static ASKED: AtomicBool = AtomicBool::new(false);
/// How many [`UnderWay`] live: they nest. None once the process ends: then no step may begin any more.
static UNDER_WAY: Mutex<Option<usize>> = Mutex::new(Some(0));

fn under_way() -> MutexGuard<'static, Option<usize>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a wish to stop comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// No steps are being taken: the process may end at once.
    Idle,
    /// The run stops after the step that it is at.
    Stops,
    /// It was asked before: the process may end at once, in the middle of a step.
    Again,
}

/// Asks a run under way to stop.
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

/// Fails when the run was asked to stop.
///
/// # Errors
/// `RunCancelled`.
pub fn check() -> Result<()> {
    if asked() {
        return Err(Fault::new(Exit::Cancelled, "RunCancelled", "the run was cancelled between two steps")
            .hint("finish it with: calicoctl-win resume, or undo it with: calicoctl-win resume --undo")
            .into());
    }
    Ok(())
}

/// Says that steps are being taken, for as long as it lives.
#[derive(Debug)]
pub struct UnderWay;

impl UnderWay {
    pub fn begin() -> Self {
        loop {
            if let Some(count) = under_way().as_mut() {
                *count += 1;
                return Self;
            }
            // The process ends at this moment.
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
