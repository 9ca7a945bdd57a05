//! What an agent needs of the operating system beyond the standard library: a process that ends with its children,
//! Ctrl-C for it, the Service Control Manager, the Event Log.
#![allow(unsafe_code)]

#[cfg(windows)]
mod locale;
#[cfg(windows)]
pub mod session0;
#[cfg(not(windows))]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(windows)]
pub use locale::general_format;
#[cfg(windows)]
pub use session0::escort;
#[cfg(not(windows))]
pub use unix::{JobObject, boot_time, detach, dispatch, escort, event_log, general_format, is_remote, place};
#[cfg(windows)]
pub use windows::{JobObject, boot_time, detach, dispatch, event_log, is_remote, place};

use std::fs::File;
use std::io;
use std::process::Command;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::stop::Stop;

/// The severity of an entry of the Event Log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Information,
    Warning,
    Error,
}

/// Where a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The session; 0 is that of services, which does not end at sign-out.
    pub session: u32,
    /// Whether in a job object, with which it ends.
    pub in_job: bool,
}

/// Starts a process that outlives this one, its job and its session, and returns its id. Its standard streams must
/// be redirected. `real`: for this machine, and so by an administrator; a run on a sandbox stays in its session.
///
/// # Errors
/// When it cannot be started.
#[cfg_attr(not(windows), allow(unused_variables))]
pub fn outlive(command: &mut Command, real: bool) -> io::Result<u32> {
    #[cfg(windows)]
    if real && (place().session != 0 || place().in_job) {
        return session0::start(command);
    }
    detach(command).map(|child| child.id())
}

/// A run in session 0 that this process follows: its standard streams, which end with it.
#[derive(Debug)]
pub struct Escorted {
    pub stdin: File,
    pub stdout: File,
    pub stderr: File,
}

/// What a service reports to the Service Control Manager while it lives.
pub trait Scm {
    /// It is up and running.
    fn running(&self);
}

/// The work of a service: until it is done or stopped. Returns the exit code, 0 for a clean end.
pub type Body = Box<dyn FnOnce(&Stop, &dyn Scm) -> i32 + Send>;

/// A time as .NET's general format "G" writes it in the United States.
fn english(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%-m/%-d/%Y %-I:%M:%S %p").to_string()
}
