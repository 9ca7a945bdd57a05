//! A run that a boot interrupted, and that is to be finished or undone then: CalicoNode starts a guard for it, since
//! nobody may be there to call `resume`.

use std::time::Duration;

use anyhow::Result;

use super::app::App;
use super::options::Resume;
use super::{Ending, resume};
use crate::agent::os::{self, Level};
use crate::apply::cordon::Cordon;
use crate::apply::journal::{AtBoot, Journal};
use crate::fault::Exit;
use crate::report::document::{RunResult, exit_of};

/// The pause between two tries: right after a boot, network and cluster may still be starting.
const AGAIN: Duration = Duration::from_secs(15);

/// The number of tries before an administrator has to act.
const TRIES: usize = 20;

/// How long to wait for another run that has the lock.
const LOOK: Duration = Duration::from_millis(250);

/// Finishes or undoes the run, as a run of its own.
///
/// # Errors
/// When it does not succeed in five minutes.
pub(crate) fn run(app: &mut App, way: AtBoot) -> Result<Ending> {
    let args = Resume { undo: way == AtBoot::Undo };
    let mut tries = 0;
    loop {
        let node = app.node()?;
        // Undone by the failed try, or another run was faster.
        if tries > 0 && Journal::load(&*node)?.is_none() && Cordon::load(&*node)?.is_none() {
            return Ending::result(RunResult::new(Exit::Ok, false, "the run that the reboot interrupted is over"));
        }
        drop(node);
        match resume::run(&args, app) {
            Ok(ending) => return Ok(ending),
            Err(error) if exit_of(&error) == Exit::Busy => std::thread::sleep(LOOK),
            Err(error) => {
                tries += 1;
                let message =
                    format!("a run that the reboot interrupted is not ended yet (try {tries} of {TRIES}): {error:#}");
                os::event_log(Level::Error, &message);
                if tries == TRIES {
                    return Err(error);
                }
                std::thread::sleep(AGAIN);
            }
        }
    }
}
