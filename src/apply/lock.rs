//! One run at a time on a node.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::standing::Standing;
use super::store;
use crate::fault::{Exit, Fault};
use crate::item::Access;
use crate::node::{Node, OpenFile, STATE_DIR, record};
use crate::report::event::Sink;
use crate::report::time;
use crate::values::WinPath;
use crate::wait::{self, Wait};

/// How often it is tried while another run has the lock.
const LOOK: Duration = Duration::from_millis(20);

/// `status` holds the lock for a moment, to see whether another process does.
const FREED_WITHIN: Duration = Duration::from_millis(200);

/// Held while a run changes things. The system releases it when the process ends for any reason.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    holder: PathBuf,
}

/// Who holds the lock, for messages of other runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub run: String,
    pub command: String,
    pub pid: u32,
    pub since: Timestamp,
}

impl Holder {
    /// This process, with a run of this command.
    pub fn of(run: &str, command: &str, since: Timestamp) -> Self {
        Self { run: run.into(), command: command.into(), pid: std::process::id(), since }
    }
}

impl Lock {
    /// Takes the lock; while another run has it, waits this long.
    ///
    /// # Errors
    /// `BUSY` naming the other run; or when the state folder cannot be created.
    pub fn take(node: &mut dyn Node, holder: &Holder, limit: Duration, events: Sink) -> Result<Self> {
        let folder = WinPath::known(STATE_DIR);
        let path = node.disk(&folder.join("lock"));
        // None while a purge removes the folder.
        let open = || match File::options().create(true).truncate(false).write(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).with_context(|| format!("open {}", path.display())),
        };
        // The holder is written to a separate file: on Windows a locked file cannot be read.
        let about = node.disk(&folder.join("lock.json"));
        let wait = Wait { what: None, limit: limit.max(FREED_WITHIN), pause: LOOK, rest: &mut wait::sleep };
        let told = &mut |event| {
            if !limit.is_zero() {
                events(event);
            }
        };
        let taken = wait.until(node, told, |node, _, _| {
            let purging = || Ok(Err("the purge in progress to end".into()));
            // Everything of ours is below this folder, and inherits that nobody else may read it: `save` creates missing
            // folders with these rights. It replaces the file, so not the one that may be locked by now.
            if !node.disk(&folder).is_dir()
                && let Err(error) = node.save(&folder.join("lock.json"), b"", Access::Administrators)
            {
                // Another run creates or removes the folder at the same time.
                let kind = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
                return match kind {
                    Some(ErrorKind::AlreadyExists | ErrorKind::NotFound) => purging(),
                    _ => Err(error).with_context(|| format!("make {folder}")),
                };
            }
            let Some(file) = open()? else { return purging() };
            match file.try_lock() {
                // A purge may have removed the file between the two calls: then the lock is on a deleted file.
                Ok(()) if open()?.is_some_and(|again| again.try_lock().is_err()) => Ok(Ok(file)),
                Ok(()) | Err(TryLockError::WouldBlock) => {
                    let who = read(&about).map(|holder| format!(": {} (run {})", holder.command, holder.run));
                    Ok(Err(format!("the run in progress to end{}", who.unwrap_or_default())))
                }
                Err(TryLockError::Error(error)) => Err(error).context("take the lock"),
            }
        })?;
        let Ok(file) = taken else { return Err(busy(read(&about).as_ref()).into()) };
        fs::write(&about, serde_json::to_vec(holder)?).context("say who holds the lock")?;
        Ok(Self { _file: file, holder: about })
    }

    /// Removes our own folder except the config that an administrator put into it. The lock is removed last, so that no
    /// other run begins in a folder that is being removed. Returns what remains.
    ///
    /// # Errors
    /// When the store still keeps a folder that existed before the install, and no receipt records whose it is; nothing
    /// is removed then. When something cannot be removed.
    pub fn purge(self, node: &dyn Node) -> Result<Vec<String>> {
        let folder = WinPath::known(STATE_DIR);
        // What was removed on purpose is not brought back.
        let _files_of_users = store::forget(node, &Standing::load(node)?.removed())?;
        let foreign = store::tree(store::FOREIGN);
        if node.disk(&foreign).exists() {
            return Err(Fault::new(
                Exit::Conflict,
                "StoreHoldsOriginal",
                format!("{foreign} holds a folder that was there before the first install, and no receipt says where"),
            )
            .hint("move it to where it belongs, as C:\\CalicoWindows, then run: calicoctl-win uninstall --purge")
            .into());
        }
        if let Some(original) = store::originals(node)?.first() {
            let place = original.place().map_or_else(String::new, |place| place.to_string());
            let what = format!("{place} is what {} was before a run whose journal is lost", original.id.target());
            return Err(Fault::new(Exit::Conflict, "StoreHoldsOriginal", what)
                .hint("move it to where it belongs, or elsewhere, then run: calicoctl-win uninstall --purge")
                .into());
        }
        let (mut left, mut failed) = (Vec::new(), None);
        for entry in fs::read_dir(node.disk(&folder)).with_context(|| format!("read {folder}"))? {
            let name = entry.with_context(|| format!("read {folder}"))?.file_name().to_string_lossy().to_lowercase();
            match name.as_str() {
                // The journal records that all this must be removed.
                "lock" | "journal.jsonl" => continue,
                "config.yaml" => {
                    left.push(folder.join("config.yaml").to_string());
                    continue;
                }
                // Files of users from removed releases.
                store::KEPT => {
                    left.push(folder.join(store::KEPT).to_string());
                    continue;
                }
                _ => {}
            }
            let path = folder.join(&name);
            // A run that waits for the lock renames a file that it has just written.
            if let Err(error) = node.remove(&path)
                && node.disk(&path).exists()
            {
                let open = node.open_files(&path, &[]).unwrap_or_default();
                failed.get_or_insert(match open.first() {
                    Some(OpenFile { path, by }) => error.context(format!("{by} has {path} open")),
                    None => error,
                });
            }
        }
        // The rest is removed all the same.
        failed.map_or(Ok(()), Err)?;
        record::forget(node, &folder.join("journal.jsonl"))?;
        node.remove(&folder.join("lock"))?;
        // Windows frees the lock's name, and with it the folder, only when the file is closed.
        drop(self);
        // The folder remains if the config remains, or if another run has just begun.
        let _not_empty = fs::remove_dir(node.disk(&folder));
        Ok(left)
    }
}

/// Checks that no run is in progress.
///
/// # Errors
/// `BUSY` naming the run.
pub fn free(node: &dyn Node) -> Result<()> {
    holder(node).map_or(Ok(()), |holder| Err(busy(Some(&holder)).into()))
}

/// Returns the run in progress, if there is one.
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
            format!("another run holds the lock: `{command}` (run {run}, process {pid}) since {}", time::since(*since))
        }
        None => "another run holds the lock".into(),
    };
    Fault::new(Exit::Busy, "Busy", what).hint("wait for it with: calicoctl-win status --wait")
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only tidiness: the system knows whether the lock is held, not this file.
        let _removed = fs::remove_file(&self.holder);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::node::sandbox::SandboxNode;

    #[test]
    fn a_run_that_begins_during_a_purge_waits_for_it_or_is_told_that_the_node_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let holder = Holder { run: "r".into(), command: "x".into(), pid: 1, since: Timestamp::UNIX_EPOCH };
        let mut begun = SandboxNode::open(dir.path()).unwrap();
        let (opened, is_open) = channel();
        thread::scope(|scope| {
            let purges = scope.spawn(|| {
                let mut purged = SandboxNode::open(dir.path()).unwrap();
                opened.send(()).unwrap();
                for _ in 0..300 {
                    let lock = Lock::take(&mut purged, &holder, Duration::from_mins(10), &mut |_| ()).unwrap();
                    lock.purge(&purged).unwrap();
                }
            });
            is_open.recv().unwrap();
            while !purges.is_finished() {
                if let Err(error) = Lock::take(&mut begun, &holder, Duration::ZERO, &mut |_| ()) {
                    assert_eq!(Fault::id_of(&error), "Busy", "{error:#}");
                }
            }
            purges.join().unwrap();
        });
    }
}
