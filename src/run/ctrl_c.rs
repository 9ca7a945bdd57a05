//! Ctrl-C between two processes: the one that has the screen, and the run that makes the change without the session.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What asks the run to stop, as Ctrl-C on its own screen would.
const STOP: u8 = 3;

/// The stdin of the run that this process stays with.
static RUN: Mutex<Option<File>> = Mutex::new(None);

/// Where Ctrl-C goes from here on.
pub(crate) fn goes_to(stdin: File) {
    *run() = Some(stdin);
}

/// Passes it on to the run that this process stays with. False if there is none.
pub(crate) fn pass_on() -> bool {
    // Without a reader the run has ended, and so does this process.
    run().as_mut().is_some_and(|stdin| stdin.write_all(&[STOP]).is_ok())
}

/// Hears of it from the process that stays with this run, if one does.
pub(crate) fn hear(mut pressed: impl FnMut() + Send + 'static) {
    thread::spawn(move || {
        let mut said = [0];
        while let Ok(1) = io::stdin().read(&mut said) {
            if said[0] == STOP {
                pressed();
            }
        }
    });
}

fn run() -> std::sync::MutexGuard<'static, Option<File>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}
