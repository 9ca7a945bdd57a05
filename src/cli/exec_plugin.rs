//! Runs a kubeconfig's exec plugin for [`crate::cluster`]: the Kubernetes client has no limit for a plugin, and cannot
//! end one.

use std::ffi::OsString;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::os::JobObject;
use crate::cluster::{PLUGIN_CANNOT_START, PLUGIN_TIMED_OUT};

/// How often it is checked whether the plugin has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a program with the streams and variables of this process. `words`: the limit in seconds, the program, its
/// arguments. Returns the program's exit code; at the limit, kills it with its children.
pub(super) fn run(words: &[OsString]) -> i32 {
    let [limit, program, args @ ..] = words else { return PLUGIN_CANNOT_START };
    let Some(Ok(seconds)) = limit.to_str().map(str::parse) else { return PLUGIN_CANNOT_START };
    let Ok((mut plugin, job)) = JobObject::start(Command::new(program).args(args)) else { return PLUGIN_CANNOT_START };
    let (limit, begun) = (Duration::from_secs(seconds), Instant::now());
    loop {
        match plugin.try_wait() {
            Ok(Some(status)) => return status.code().unwrap_or(PLUGIN_CANNOT_START),
            Ok(None) if begun.elapsed() < limit => thread::sleep(LOOK),
            _ => {
                job.kill();
                return PLUGIN_TIMED_OUT;
            }
        }
    }
}
