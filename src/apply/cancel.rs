//! Ctrl-C: between two steps a run stops where it is, and the journal knows how to go on or back.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::fault::{Exit, Fault};

static ASKED: AtomicBool = AtomicBool::new(false);
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// Asks a run under way to stop. False when there is none, or it was asked before: then the process
/// may end at once.
pub fn ask() -> bool {
    UNDER_WAY.load(Ordering::SeqCst) && !ASKED.swap(true, Ordering::SeqCst)
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
        UNDER_WAY.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.store(false, Ordering::SeqCst);
    }
}
