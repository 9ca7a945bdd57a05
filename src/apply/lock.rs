//! One run at a time on a node.

use std::fs::{self, File, TryLockError};
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR};
use crate::values::WinPath;

/// Held for as long as a run changes things. The system drops it when the process ends, however.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    holder: PathBuf,
}

/// Who holds the lock, for others to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub run: String,
    pub command: String,
    pub pid: u32,
    pub since: Timestamp,
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// `BUSY` naming the other run; or when the state folder cannot be made.
    pub fn take(node: &dyn Node, holder: &Holder) -> Result<Self> {
        let folder = WinPath::known(STATE_DIR);
        fs::create_dir_all(node.disk(&folder)).with_context(|| format!("make {folder}"))?;
        let path = node.disk(&folder.join("lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        // The holder stands in a file of its own: on Windows a locked file cannot be read.
        let about = node.disk(&folder.join("lock.json"));
        match file.try_lock() {
            Ok(()) => {
                fs::write(&about, serde_json::to_vec(holder)?).context("say who holds the lock")?;
                Ok(Self { _file: file, holder: about })
            }
            Err(TryLockError::WouldBlock) => Err(busy(read(&about).as_ref()).into()),
            Err(TryLockError::Error(error)) => Err(error).context("take the lock"),
        }
    }
}

/// The run in progress, if there is one.
pub fn holder(node: &dyn Node) -> Option<Holder> {
    let folder = WinPath::known(STATE_DIR);
    let file = File::open(node.disk(&folder.join("lock"))).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => read(&node.disk(&folder.join("lock.json"))),
        _ => None,
    }
}

fn read(about: &std::path::Path) -> Option<Holder> {
    serde_json::from_slice(&fs::read(about).ok()?).ok()
}

fn busy(holder: Option<&Holder>) -> Fault {
    let what = match holder {
        Some(Holder { run, command, pid, since }) => {
            format!("another run holds the lock: `{command}` (run {run}, process {pid}) since {since}")
        }
        None => "another run holds the lock".into(),
    };
    Fault::new(Exit::Busy, "Busy", what).hint("wait for it with: calicoctl-win status --wait")
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only tidiness: whether the lock is held is asked of the system, not of this file.
        let _removed = fs::remove_file(&self.holder);
    }
}
