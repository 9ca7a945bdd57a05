//! What an agent needs of the operating system beyond the standard library: a process that takes
//! its children along, Ctrl-C for it, the Service Control Manager, the Event Log.
#![allow(unsafe_code)]

#[cfg(not(windows))]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(not(windows))]
pub use unix::{JobObject, boot_time, detach, dispatch, event_log};
#[cfg(windows)]
pub use windows::{JobObject, boot_time, detach, dispatch, event_log};

use super::stop::Stop;

/// How bad an entry of the Event Log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Information,
    Warning,
    Error,
}

/// What a service tells the Service Control Manager while it lives.
pub trait Scm {
    /// It has what it needs, and is at its work.
    fn running(&self);

    /// Its component ended with this code and is started again and again; none takes that back.
    fn trouble(&self, code: Option<i32>);
}

/// The work of a service: until it is done or the stop is asked for. Gives the exit code, 0 for a
/// clean end.
pub type Body = Box<dyn FnOnce(&Stop, &dyn Scm) -> i32 + Send>;
