//! Linux has no Service Control Manager: agents run in the foreground there, for trying out and for
//! tests, with real processes.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use anyhow::Result;
use jiff::Timestamp;

use super::{Body, Level};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

unsafe extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

/// Starts a process that outlives this one and the session it is in. Its standard streams are for
/// the caller to take away.
///
/// # Errors
/// When it cannot be started.
pub fn detach(command: &mut Command) -> io::Result<Child> {
    command.process_group(0).spawn()
}

/// A process and all that it starts.
#[derive(Debug)]
pub struct JobObject {
    group: i32,
}

impl JobObject {
    /// Starts a process that leads a group, so that its children go with it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        let child = command.process_group(0).spawn()?;
        let group = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok((child, Self { group }))
    }

    /// Asks the process to end.
    ///
    /// # Errors
    /// When there is no such process any more.
    pub fn interrupt(&self) -> io::Result<()> {
        self.signal(self.group, SIGINT)
    }

    /// Ends the process and all that it started.
    pub fn kill(&self) {
        // An error means that nothing is left of the group.
        drop(self.signal(-self.group, SIGKILL));
    }

    fn signal(&self, to: i32, signal: i32) -> io::Result<()> {
        // SAFETY: kill takes two numbers and touches no memory of ours. The group was made for a
        // child of this process, so its number is not 0 or 1.
        match unsafe { kill(to, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for JobObject {
    fn drop(&mut self) {
        self.kill();
    }
}

/// When the system started.
pub fn boot_time() -> Timestamp {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_else(Timestamp::now)
}

/// Runs a service under the Service Control Manager. False: that is not who started this process.
///
/// # Errors
/// Never here.
pub fn dispatch(_name: &'static str, _body: Body) -> Result<bool> {
    Ok(false)
}

/// There is no Event Log.
pub fn event_log(_level: Level, _message: &str) {}
