//! What a process that ended in the middle of a step left: a file's replacement beside it, a registry key without its
//! value. Repeating the step would use them, but undoing a run does not repeat it: half a kubeconfig must not remain.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use super::journal::Journal;
use super::standing::Standing;
use super::store;
use crate::calico::registry;
use crate::item::Id;
use crate::node::{Node, SAVED_NETWORK, STATE_DIR, files};
use crate::plan::order::NODE_SERVICE;
use crate::report::event::{Event, Sink};
use crate::values::WinPath;

/// Removes such files in our own folders, and beside those of `ids` that are files. Not what CalicoNode's agent may be
/// writing. One that cannot be removed, for example from a read-only folder, is only reported: the run can be resumed or
/// undone all the same.
///
/// # Errors
/// When a folder of ours cannot be listed.
pub fn sweep<'a>(node: &dyn Node, ids: impl IntoIterator<Item = &'a Id>, events: Sink) -> Result<()> {
    let own = WinPath::known(STATE_DIR);
    let agents = files::beside(&node.disk(&WinPath::known(SAVED_NETWORK)));
    let under_way = |path: &Path| -> Result<bool> {
        Ok(*path == *agents && node.get(&Id::Service(NODE_SERVICE.into()))?.is_some())
    };
    for folder in [own.clone(), own.join("receipts"), own.join("state"), store::originals_folder()] {
        let entries = match fs::read_dir(node.disk(&folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("list {folder}")),
        };
        for entry in entries {
            let path = entry.with_context(|| format!("list {folder}"))?.path();
            if path.to_string_lossy().ends_with(files::BESIDE) && !under_way(&path)? {
                remove(&path, events);
            }
        }
    }
    for id in ids {
        if let Id::File(path) | Id::CniConf(path) = id {
            remove(&files::beside(&node.disk(path)), events);
        }
    }
    Ok(())
}

/// As [`sweep`], for everything that an interrupted run may have changed; and removes the registry keys that were
/// created for a value which was never written, since no step would be planned for them. An empty key that cannot be
/// removed is only reported: the run can be resumed or undone all the same.
///
/// # Errors
/// As [`sweep`], and when the registry cannot be read.
pub fn sweep_of(node: &mut dyn Node, standing: &Standing, interrupted: &Journal, events: Sink) -> Result<()> {
    let owned = standing.owned();
    let touched: BTreeSet<&Id> = owned.keys().chain(interrupted.header.target.world.keys()).collect();
    sweep(node, touched.iter().copied(), events)?;
    // CalicoNode's agent may be writing its own values.
    let agents = registry::agents_own();
    let values = touched.into_iter().filter(|id| matches!(id, Id::RegValue { .. }) && !agents.contains(id));
    for id in values {
        if node.get(id)?.is_none()
            && let Err(error) = node.put(id, None)
        {
            let message = format!("an empty registry key may have stayed: {error:#}");
            events(Event::Warning { id: "RegistryNotTidy", message });
        }
    }
    Ok(())
}

fn remove(file: &Path, events: Sink) {
    match fs::remove_file(file) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let message = format!("{} was never finished and cannot be removed: {error}", file.display());
            events(Event::Warning { id: "StaleFileStays", message });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::testing;
    use crate::item::State;
    use crate::node::sandbox::SandboxNode;

    #[test]
    fn unfinished_files_are_removed_except_those_of_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        let names = ["journal.jsonl", "state\\last-run.json", "store\\originals\\some", "node.save"];
        let files = names.map(|name| files::beside(&node.disk(&WinPath::known(STATE_DIR).join(name))));
        let there = || files.each_ref().map(|file| file.exists());
        for file in &files {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "half of it").unwrap();
        }
        let service = Id::Service(NODE_SERVICE.into());
        node.put(&service, Some(&State::Service(Box::new(testing::nssm("node"))))).unwrap();
        sweep(&node, [], &mut |_| {}).unwrap();
        assert_eq!(there(), [false, false, false, true]);

        node.put(&service, None).unwrap();
        sweep(&node, [], &mut |_| {}).unwrap();
        assert_eq!(there(), [false; 4]);
    }

    /// A folder of such a name is refused by every system, also to root, as a file in a read-only folder is by Windows.
    #[test]
    fn a_file_that_cannot_be_removed_is_reported_and_the_others_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let node = SandboxNode::open(dir.path()).unwrap();
        let names = [r"C:\CalicoWindows\calico-kube-config", r"C:\CalicoWindows\nodename"].map(WinPath::known);
        let [stays, goes] = names.each_ref().map(|path| files::beside(&node.disk(path)));
        fs::create_dir_all(stays.join("full")).unwrap();
        fs::write(&goes, "half of it").unwrap();
        let mut warned = Vec::new();
        let ids = names.map(Id::File);
        sweep(&node, &ids, &mut |event| warned.push(event)).unwrap();
        assert!(stays.exists() && !goes.exists());
        let [Event::Warning { id: "StaleFileStays", message }] = warned.as_slice() else { panic!("{warned:?}") };
        assert!(message.contains(stays.to_str().unwrap()), "{message}");
    }
}
