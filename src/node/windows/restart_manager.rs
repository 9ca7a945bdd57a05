//! Who has files open, by Windows's Restart Manager: it knows the processes, and needs no right to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ptr;

use anyhow::{Context, Result};
use windows_sys::Win32::Foundation::{ERROR_MORE_DATA, ERROR_SUCCESS};
use windows_sys::Win32::System::RestartManager::{CCH_RM_SESSION_KEY, RM_PROCESS_INFO, RM_UNIQUE_PROCESS};

use super::disk;
use super::dll::late;
use super::processes::{self, Listed};
use super::wide::wide_path;
use crate::node::win32::refused;
use crate::node::{OpenFile, Process};
use crate::values::WinPath;

late!("rstrtmgr.dll":
    fn RmStartSession(session: *mut u32, unused: u32, key: *mut u16) -> u32;
    fn RmEndSession(session: u32) -> u32;
    fn RmRegisterResources(session: u32, files: u32, names: *const *const u16, programs: u32,
        processes: *const RM_UNIQUE_PROCESS, services: u32, service_names: *const *const u16) -> u32;
    fn RmGetList(session: u32, needed: *mut u32, room: *mut u32, found: *mut RM_PROCESS_INFO, why: *mut u32) -> u32;
);

/// See [`crate::node::Node::open_files`].
pub fn open_files(folder: &WinPath, besides: &[Process]) -> Result<Vec<OpenFile>> {
    let mut files = Vec::new();
    walk(folder, &mut files).with_context(|| format!("list {folder}"))?;
    // Nearly always nobody has one open: one question for all.
    if users(&files)?.is_empty() {
        return Ok(Vec::new());
    }
    let listed: BTreeMap<u32, Listed> = processes::snapshot()?.into_iter().map(|one| (one.pid, one)).collect();
    let mut known: BTreeSet<u32> = besides.iter().map(|process| process.pid).collect();
    // What they started, what that started, and so on.
    while listed.values().any(|one| known.contains(&one.parent) && known.insert(one.pid)) {}
    known.insert(std::process::id());
    let mut open = Vec::new();
    for file in files {
        for pid in users(std::slice::from_ref(&file))?.difference(&known) {
            // It may have ended since.
            let Some(image) = listed.get(pid).map(|one| one.image.as_str()) else { continue };
            // A program that runs is no open file: Windows renames its folder.
            if !image.eq_ignore_ascii_case(file.name()) {
                open.push(OpenFile { path: file.clone(), by: format!("{image} (process {pid})") });
            }
        }
    }
    Ok(open)
}

/// Adds the files below a folder. Links are not followed.
fn walk(folder: &WinPath, files: &mut Vec<WinPath>) -> io::Result<()> {
    let entries = match fs::read_dir(disk::place(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let (entry, path) =
            entry.map(|entry| (entry.file_type(), folder.join(&entry.file_name().to_string_lossy())))?;
        match entry? {
            kind if kind.is_dir() => walk(&path, files)?,
            kind if kind.is_file() => files.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// A session of the Restart Manager; a user may have 64 of them.
struct Session(u32);

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the session was started, and is not used any more.
        unsafe { RmEndSession(self.0) };
    }
}

/// The pids of the processes that use one of these files.
fn users(files: &[WinPath]) -> Result<BTreeSet<u32>> {
    let told = |code, what: &str| match code {
        ERROR_SUCCESS => Ok(()),
        code => Err(refused(code, what)),
    };
    let (mut number, mut key) = (0, [0; CCH_RM_SESSION_KEY as usize + 1]);
    // SAFETY: both outlive the call, and the key has the length that the function requires.
    told(unsafe { RmStartSession(&mut number, 0, key.as_mut_ptr()) }, "ask the Restart Manager")?;
    let session = Session(number);
    let paths: Vec<Vec<u16>> = files.iter().map(|file| wide_path(&disk::place(file))).collect();
    let names: Vec<*const u16> = paths.iter().map(|path| path.as_ptr()).collect();
    let length = u32::try_from(names.len()).context("count the files")?;
    // SAFETY: the names end with a zero, there are as many as is said, and they outlive the call. Nothing else is given.
    let code = unsafe { RmRegisterResources(session.0, length, names.as_ptr(), 0, ptr::null(), 0, ptr::null()) };
    told(code, "tell the Restart Manager the files")?;
    let mut found: Vec<RM_PROCESS_INFO> = Vec::new();
    loop {
        let (mut needed, mut why) = (0, 0);
        let mut room = u32::try_from(found.len()).context("count the processes")?;
        // SAFETY: the list has as many entries as is said, and all of it outlives the call.
        let code = unsafe { RmGetList(session.0, &mut needed, &mut room, found.as_mut_ptr(), &mut why) };
        if code == ERROR_MORE_DATA {
            // Others may begin to use one before the next question.
            found.resize(needed as usize + 8, RM_PROCESS_INFO::default());
            continue;
        }
        told(code, "ask the Restart Manager who has the files open")?;
        found.truncate(room as usize);
        return Ok(found.iter().map(|info| info.Process.dwProcessId).collect());
    }
}
