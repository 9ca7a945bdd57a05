//! What rows make, by name, and its removal: after each row, at the end, and before the next run if one was killed.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

use super::{TestContext, firewall, overlay, registry, routes, services};
use crate::fault::{Exit, Fault};
use crate::item::{Access, Id, IpConfig, State};
use crate::node::{Listing, Node, files, record};
use crate::values::WinPath;

/// The folder of the rows. SYSTEM and Administrators only.
pub const FOLDER: &str = r"C:\ProgramData\calicoctl-win-selftest";

/// Below it: folders whose access a row changes, and one in which it has a file open.
pub const FOLDERS: [&str; 4] = ["closed", "readable", "open", "held"];

/// Held while rows run: two selftests would remove each other's things. Dropping it removes the folder.
#[derive(Debug)]
pub struct Hold {
    file: Option<File>,
    folder: std::path::PathBuf,
}

impl Hold {
    /// Makes the folder, or takes over that of a killed run. Also returns what was wrong with one that others could
    /// write to.
    ///
    /// # Errors
    /// `Busy` if another selftest runs, `UnsafeFolder` if somebody else's folder has the name and cannot be renamed.
    pub fn take(node: &mut dyn Node) -> Result<(Self, Option<String>)> {
        let folder = WinPath::known(FOLDER);
        // A program in it runs as SYSTEM, so nobody else may have made it, also not in between.
        let secured = node.secure(&folder).with_context(|| format!("make {folder} safe"))?;
        let place = node.disk(&folder.join("lock"));
        // Not replaced: somebody may hold it.
        if !place.exists() {
            node.save(&folder.join("lock"), b"", Access::Administrators).with_context(|| format!("make {folder}"))?;
        }
        if let Some(reason) = node.secure(&folder).with_context(|| format!("make {folder} safe"))? {
            let what = format!("{folder} was not ours when the selftest began: {reason}");
            return Err(Fault::new(Exit::UntrustedFile, "UnsafeFolder", what)
                .hint("find out who made it, and run the command again")
                .into());
        }
        let file = File::options().write(true).open(&place).with_context(|| format!("open {}", place.display()))?;
        if file.try_lock().is_err() {
            return Err(Fault::new(Exit::Busy, "Busy", "another selftest runs on this machine")
                .hint("wait until it has ended, then run the command again")
                .into());
        }
        Ok((Self { file: Some(file), folder: node.disk(&folder) }, secured))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Windows removes the name of an open file only when it is closed.
        drop(self.file.take());
        drop(files::gone(fs::remove_file(self.folder.join("lock"))));
        // What is in it is reported as left.
        drop(fs::remove_dir(&self.folder));
    }
}

/// The items of a group, in the order of their removal.
fn items(group: &str) -> Vec<Id> {
    match group {
        services::GROUP => services::items(),
        registry::GROUP => registry::items(),
        firewall::GROUP => vec![firewall::item()],
        routes::GROUP => vec![routes::item()],
        overlay::GROUP => overlay::items(),
        _ => Vec::new(),
    }
}

const GROUPS: [&str; 5] = [services::GROUP, registry::GROUP, firewall::GROUP, routes::GROUP, overlay::GROUP];

/// Restores the adapter of a run that was killed meanwhile.
fn restore_adapter(node: &mut dyn Node) -> Result<Option<String>> {
    let Some((name, before)) = record::load::<(String, IpConfig)>(node, &overlay::saved_adapter())? else {
        return Ok(None);
    };
    let id = Id::Adapter(name);
    node.put(&id, Some(&State::Adapter(before)))?;
    record::forget(node, &overlay::saved_adapter())?;
    Ok(Some(id.to_string()))
}

/// Removes what a group's rows make. Returns what was there, and what could not be removed.
fn remove(context: &mut TestContext<'_>, group: &str) -> (Vec<String>, Vec<String>) {
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    if group == overlay::GROUP {
        match restore_adapter(context.node) {
            Ok(restored) => removed.extend(restored),
            Err(error) => left.push(format!("the static address of an adapter: {error:#}")),
        }
        // One question, and none if HNS does not answer.
        let listed = context.stuck.is_none().then(|| context.node.list(Listing::Networks));
        let listed = listed.map(|listed| context.note_stuck(listed)).and_then(Result::ok).unwrap_or_default();
        if !listed.iter().any(|(id, _)| items(group).contains(id)) {
            return (removed, left);
        }
    }
    for id in items(group) {
        // What cannot be read is not known to be there: a machine without HNS, a firewall that is stopped.
        let there = |node: &dyn Node| matches!(node.get(&id), Ok(Some(_)));
        if !there(&*context.node) {
            continue;
        }
        let put = context.node.put(&id, None);
        if put.is_err() || there(&*context.node) {
            left.push(id.to_string());
        } else {
            removed.push(id.to_string());
        }
    }
    (removed, left)
}

/// Removes what the rows of a group have made. What cannot be removed is tried again at the end.
pub fn group(context: &mut TestContext<'_>, group: &str) {
    drop(remove(context, group));
    clear(context, false);
}

/// Removes what an earlier run left. Returns what that was.
pub fn everything(context: &mut TestContext<'_>) -> Vec<String> {
    let mut removed: Vec<String> = GROUPS.iter().flat_map(|group| remove(context, group).0).collect();
    removed.extend(clear(context, true));
    removed
}

/// Removes what is still there. Returns what remains.
pub fn rest(context: &mut TestContext<'_>) -> Vec<String> {
    let mut left: Vec<String> = GROUPS.iter().flat_map(|group| remove(context, group).1).collect();
    clear(context, true);
    let folder = WinPath::known(FOLDER);
    let entries = fs::read_dir(context.node.disk(&folder)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    left.extend(names.filter(|name| name != "lock").map(|name| folder.join(&name).to_string()));
    left
}

/// Empties the folder. Returns the names of what was in it. `all`: the services' program too.
fn clear(context: &mut TestContext<'_>, all: bool) -> Vec<String> {
    let folder = WinPath::known(FOLDER);
    let mut removed = Vec::new();
    for name in FOLDERS.map(str::to_owned).into_iter().chain(FOLDERS.map(|name| format!("{name}{}", files::BESIDE))) {
        let below = folder.join(&name);
        let place = context.node.disk(&below);
        if place.is_dir() {
            empty(&place);
            // Through the node, which knows the access list of a folder that was opened.
            drop(context.node.put(&Id::Dir(below.clone()), None));
            removed.push(below.to_string());
        }
    }
    for entry in fs::read_dir(context.node.disk(&folder)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file
            && ![Some("lock"), overlay::saved_adapter().name().into()].contains(&Some(&*name))
            && (all || name != services::PROGRAM)
        {
            drop(files::until_free(|| fs::remove_file(entry.path())));
            removed.push(folder.join(&name).to_string());
        }
    }
    removed
}

/// Removes the files in a folder.
fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        drop(fs::remove_file(entry.path()));
    }
}
