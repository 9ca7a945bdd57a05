//! What this program does when a row starts it: the hidden `selftest --part NAME`. A part ends by itself after a while,
//! so that nothing is left if nobody ends it.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, exit};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::agent::os;
use crate::agent::stop::Stop;
use crate::node::files;

/// Runs as a service until it is stopped.
pub const SERVICE: &str = "service";
/// Ends with [`ENDED_BY_CTRL_C`] on Ctrl-C.
pub const CTRL_C: &str = "ctrl-c";
/// Starts another process, and waits.
pub const TREE: &str = "tree";
/// Waits.
pub const LEAF: &str = "leaf";
/// Writes where it runs to the file that [`SAYS_IN`] names.
pub const PLACE: &str = "place";

/// A variable of the environment: nobody reads what a detached process prints.
pub const SAYS_IN: &str = "CALICO_WIN_SELFTEST_SAYS_IN";

/// Every part.
pub const NAMES: [&str; 5] = [SERVICE, CTRL_C, TREE, LEAF, PLACE];

/// A part in a sandbox that is unlike Windows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quirks {
    pub ignores_ctrl_c: bool,
    pub job_leaks: bool,
    pub detach_stays: bool,
}

/// What a part says when it is ready.
pub const READY: &str = "ready";

pub const ENDED_BY_CTRL_C: i32 = 7;
const NOT_ENDED: i32 = 9;

/// A row ends a part after seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Plays a part. Returns the exit code of the process.
///
/// # Errors
/// When Windows refuses.
pub fn play(name: &str, quirks: Quirks) -> Result<i32> {
    match name {
        SERVICE => {
            let body = |stop: &Stop, scm: &dyn os::Scm| {
                scm.running();
                stop.wait(LIMIT * 10, || false);
                0
            };
            let _by_hand_it_ends_at_once = os::dispatch("calicoctl-win-selftest", Box::new(body))?;
            return Ok(0);
        }
        CTRL_C => {
            let ends = !quirks.ignores_ctrl_c;
            let on_ctrl_c = move || {
                if ends {
                    exit(ENDED_BY_CTRL_C);
                }
            };
            ctrlc::set_handler(on_ctrl_c).context("listen for Ctrl-C")?;
            say(READY);
        }
        TREE => {
            let mut leaf = Command::new(std::env::current_exe().context("find this program")?);
            leaf.args(["selftest", "--part", LEAF]);
            let started = if quirks.job_leaks { os::detach(&mut leaf) } else { leaf.spawn() };
            drop(started.context("start another process")?);
            say(READY);
        }
        PLACE => {
            let place = os::place();
            let said = format!("session={} job={}", place.session, place.in_job || quirks.detach_stays);
            let file = PathBuf::from(std::env::var_os(SAYS_IN).context("nobody said where to write it")?);
            files::replace(&file, |new| fs::write(new, said)).context("write where this process runs")?;
            return Ok(0);
        }
        _ => {}
    }
    sleep(LIMIT);
    Ok(NOT_ENDED)
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    let _nobody_listens_any_more = writeln!(out, "{line}").and_then(|()| out.flush());
}
