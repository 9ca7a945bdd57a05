//! Ctrl-C: between two steps a run stops where it is, and the journal knows how to go on or back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;

use crate::fault::{Exit, Fault};

static ASKED: AtomicBool = AtomicBool::new(false);
/// How many [`UnderWay`] live: they nest.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

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
    match UNDER_WAY.load(Ordering::SeqCst) {
        0 => Asked::Idle,
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
            .hint("go on with: calicoctl-win resume, or back with: calicoctl-win resume --undo")
            .into());
    }
    Ok(())
}

/// Says that steps are being taken, for as long as it lives.
#[derive(Debug)]
pub struct UnderWay;

impl UnderWay {
    pub fn begin() -> Self {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}
