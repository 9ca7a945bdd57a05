//! Linux has no Service Control Manager: agents run in the foreground there, for trying out and for
//! tests, with real processes.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use anyhow::Result;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Body, Escorted, Level};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

unsafe extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

/// Starts a process that outlives this one and its session. The caller must redirect its standard streams.
///
/// # Errors
/// When it cannot be started.
pub fn detach(command: &mut Command) -> io::Result<Child> {
    command.process_group(0).spawn()
}

/// Whether this session ends with a connection. No change of a sandbox can interrupt one.
pub const fn is_remote() -> bool {
    false
}

/// Linux has no session 0.
///
/// # Errors
/// Always.
pub fn escort(_: &Command) -> io::Result<Escorted> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A process and its children.
#[derive(Debug)]
pub struct JobObject {
    group: i32,
}

impl JobObject {
    /// Starts a process that leads a group, so that its children end with it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        let child = command.process_group(0).spawn()?;
        let group = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok((child, Self { group }))
    }

    /// Requests that the process ends.
    ///
    /// # Errors
    /// When the process no longer exists.
    pub fn interrupt(&self) -> io::Result<()> {
        self.signal(self.group, SIGINT)
    }

    /// Kills the process and its children.
    pub fn kill(&self) {
        // An error means that the group is empty.
        drop(self.signal(-self.group, SIGKILL));
    }

    fn signal(&self, to: i32, signal: i32) -> io::Result<()> {
        // SAFETY: kill takes two numbers and touches no memory of this process. The group was made for a
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

/// Runs a service under the Service Control Manager. False if that did not start this process.
///
/// # Errors
/// None here.
pub fn dispatch(_name: &'static str, _body: Body) -> Result<bool> {
    Ok(false)
}

/// There is no Event Log.
pub fn event_log(_level: Level, _message: &str) {}

/// A time as .NET's general format "G" writes it: a sandbox is a system of the United States.
pub fn general_format(time: Timestamp) -> String {
    super::english(time, &TimeZone::system())
}

/// Where this process runs. There are no sessions of Windows, and no jobs.
pub fn place() -> super::Place {
    super::Place { session: 0, in_job: false }
}
