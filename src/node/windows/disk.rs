//! Files, folders and release trees, with their access rights.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use windows_sys::Win32::Storage::FileSystem::{MOVEFILE_DELAY_UNTIL_REBOOT, MoveFileExW};

use super::security;
use super::wide::wide_path;
use crate::item::{Access, State, Tree};
use crate::node::acl::{self, Acl};
use crate::node::files::{self, gone};
use crate::node::trust::{self, Verdict};
use crate::node::win32::{self, refused};
use crate::node::{STORE_DIR, unsafe_folder};
use crate::values::{Sha256, WinPath};

/// A path for [`std::fs`].
pub fn place(path: &WinPath) -> PathBuf {
    PathBuf::from(path.as_str())
}

pub fn get_dir(path: &WinPath) -> Result<Option<State>> {
    let folder = place(path);
    if !look(path, &folder)?.is_some_and(|found| found.is_dir()) {
        return Ok(None);
    }
    let access = security::access(&folder).map_err(failed(|| format!("read the access list of {path}")))?;
    Ok(Some(State::Dir { access }))
}

/// # Errors
/// `UnsafeFolder` for a link: its target is not the folder.
pub fn get_tree(path: &WinPath) -> Result<Option<State>> {
    let folder = place(path);
    not_a_link(path, &folder)?;
    look(path, &folder)?;
    Ok(files::read_tree(&folder)?.map(State::Tree))
}

pub fn get_file(path: &WinPath) -> Result<Option<State>> {
    let file = place(path);
    if !look(path, &file)?.is_some_and(|found| found.is_file()) {
        return Ok(None);
    }
    let sha256 = files::digest(&file).map_err(failed(|| format!("read {path}")))?;
    let access = security::access(&file).map_err(failed(|| format!("read the access list of {path}")))?;
    Ok(Some(State::File { sha256, access }))
}

/// Returns the folder if it is deleted only when Windows starts next.
pub fn put_dir(path: &WinPath, wanted: Option<&Access>) -> Result<Option<WinPath>> {
    let folder = place(path);
    let Some(wanted) = wanted else {
        return match fs::remove_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                // Its only contents are our programs that still run: delete it with them. Windows keeps it if others
                // add files to it.
                let waits = files::holds_renamed_only(&folder) && delete_at_boot(&folder).is_ok();
                Ok(waits.then(|| path.clone()))
            }
            other => gone(other).map(|()| None).map_err(failed(|| format!("remove folder {path}"))),
        };
    };
    parent_is_there(path, &folder)?;
    if folder.is_file() {
        return Err(refused(win32::ALREADY_EXISTS, format!("create folder {path}")).into());
    }
    if !folder.is_dir() {
        security::create_folder(&folder, wanted).map_err(failed(|| format!("create folder {path}")))?;
        return Ok(None);
    }
    let access = security::access(&folder).map_err(failed(|| format!("read the access list of {path}")))?;
    match (&access, wanted) {
        (have, want) if have == want => Ok(()),
        (_, Access::Open(sddl)) => security::restore(&folder, sddl),
        (Access::Open(_), Access::Closed) => security::close(&folder),
        (_, Access::Administrators) => security::restrict(&folder),
        (Access::Administrators, Access::Inherited) => security::inherit(&folder),
        _ => Ok(()),
    }
    .map_err(failed(|| format!("set the access list of {path}")))?;
    Ok(None)
}

pub fn put_tree(path: &WinPath, wanted: Option<&Tree>) -> Result<()> {
    let folder = place(path);
    parent_is_there(path, &folder)?;
    not_a_link(path, &folder)?;
    let store = place(&WinPath::known(STORE_DIR).join("trees"));
    files::swap_tree(&folder, &store, wanted).map_err(|error| in_use(path, &folder, error))?;
    // Programs of a release run as SYSTEM, so nobody else may change them. In the store that was inherited, and the
    // next change at the drive's root would undo it.
    if matches!(wanted, Some(Tree::Release(_) | Tree::Drifted { .. })) {
        security::restrict(&folder).map_err(failed(|| format!("set the access list of {path}")))?;
    }
    Ok(())
}

/// Returns the file that is deleted only when Windows starts next, if there is one.
pub fn put_file(path: &WinPath, wanted: Option<(&Sha256, &Access)>) -> Result<Option<WinPath>> {
    let file = place(path);
    if file.is_dir() {
        return Err(refused(win32::ACCESS_DENIED, format!("write {path}, which is a folder")).into());
    }
    let Some((sha256, access)) = wanted else {
        return delete(path, &file);
    };
    let blob_path = WinPath::known(STORE_DIR).join("blobs").join(sha256.as_str());
    let blob = place(&blob_path);
    if !blob.is_file() {
        return Err(refused(win32::FILE_NOT_FOUND, format!("read {blob_path}, which is to become {path}")).into());
    }
    parent_is_there(path, &file)?;
    replace(&file, access, |new| {
        // The bytes and nothing else: no mark of the web from a download.
        copy(&blob, new)?;
        let whole = files::digest(&blob)? == *sha256;
        let what = || format!("{blob_path} was damaged: its bytes are not those of its name");
        if whole { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidData, what())) }
    })
    .map_err(failed(|| format!("write {path}")))?;
    Ok(None)
}

/// Missing folders are created for administrators only.
pub fn save(path: &WinPath, bytes: &[u8], access: Access) -> Result<()> {
    let file = place(path);
    make_folders(path, &file)?;
    replace(&file, &access, |new| new.write_all(bytes)).map_err(failed(|| format!("write {path}")))
}

/// Folders as in [`save`].
pub fn append(path: &WinPath, line: &str) -> Result<()> {
    let file = place(path);
    make_folders(path, &file)?;
    files::append(&file, format!("{line}\n").as_bytes()).map_err(failed(|| format!("append to {path}")))
}

/// Like [`super::super::Node::secure`].
///
/// # Errors
/// `UnsafeFolder`.
pub fn secure(path: &WinPath) -> Result<Option<String>> {
    let root = place(path);
    not_a_link(path, &root)?;
    if !root.is_dir() {
        return Ok(None);
    }
    match trust::judge(path, root.clone(), &security::caller(), &acl)? {
        Verdict::Safe => Ok(None),
        Verdict::Close { all, why } => {
            for item in all {
                security::restrict(&item).map_err(failed(|| format!("set the access list of {}", item.display())))?;
            }
            Ok(Some(why))
        }
        Verdict::Replace { why } => {
            let aside = trust::aside(&root);
            let refused = |what: &str, error: io::Error| {
                anyhow::Error::new(error).context(unsafe_folder(path, &format!("{why}, and {what}")))
            };
            fs::rename(&root, &aside).map_err(|error| refused("it cannot be renamed away", error))?;
            security::create_folder(&root, &Access::Administrators)
                .map_err(|error| refused("it cannot be re-created", error))?;
            still_ours(path, &root)?;
            Ok(Some(format!("{why}; what was there is {} now", aside.display())))
        }
    }
}

/// Checks a folder again that was just created: another process may have been faster.
fn still_ours(path: &WinPath, folder: &Path) -> Result<()> {
    not_a_link(path, folder)?;
    match acl(folder)?.other(&security::caller(), acl::CHANGE_FOLDER) {
        Some(other) => {
            let who = trust::account(&other.sid);
            Err(unsafe_folder(path, &format!("{who} made it, or may write to it, since it was checked")).into())
        }
        None => Ok(()),
    }
}

/// Owner and access list of a file or folder; of a link, those of the link.
pub fn acl(place: &Path) -> Result<Acl> {
    security::acl(place).map_err(failed(|| format!("read the access list of {}", place.display())))
}

/// The metadata of a path; none if it does not exist. "Access denied" is an error.
fn look(path: &WinPath, place: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(place) {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(win32::denied(format!("look at {path}")).into()),
        Err(e) => Err(failed(|| format!("look at {path}"))(e)),
    }
}

fn not_a_link(path: &WinPath, folder: &Path) -> Result<()> {
    if folder.is_symlink() {
        return Err(unsafe_folder(path, "it is a link to another folder").into());
    }
    Ok(())
}

fn parent_is_there(path: &WinPath, place: &Path) -> Result<()> {
    if place.parent().is_some_and(Path::is_dir) {
        return Ok(());
    }
    Err(refused(win32::PATH_NOT_FOUND, format!("write {path}, whose folder is not there")).into())
}

fn make_folders(path: &WinPath, file: &Path) -> Result<()> {
    let mut missing: Vec<&Path> = file.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
    while let Some(folder) = missing.pop() {
        match security::create_folder(folder, &Access::Administrators) {
            // Another run at the same time, or another process.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => still_ours(path, folder)?,
            other => other.map_err(failed(|| format!("create the folder of {path}")))?,
        }
    }
    Ok(())
}

/// Replaces a file atomically, with its access list from the first byte on. A failure leaves the old file.
fn replace(file: &Path, access: &Access, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let new = files::beside(file);
    gone(fs::remove_file(&new))?;
    let written = security::create_file(&new, access)
        .and_then(|mut made| fill(&mut made).and_then(|()| made.sync_all()))
        .and_then(|()| put_in_place(&new, file));
    if written.is_err() {
        // Report the first error.
        drop(fs::remove_file(&new));
    }
    written
}

/// Renames over a file, also over a running program, which is first renamed itself. If the new file then cannot take
/// its name, the old name is restored.
fn put_in_place(new: &Path, file: &Path) -> io::Result<()> {
    files::make_writable(file)?;
    match fs::rename(new, file) {
        Ok(()) => {
            files::remove_renamed(file);
            return Ok(());
        }
        Err(error) if files::is_in_use(&error) => {}
        Err(error) => return Err(error),
    }
    let old = files::free_name(file);
    // Open in a way that prevents even renaming: by a virus scanner, for a moment.
    if fs::rename(file, &old).is_err() {
        return files::rename(new, file);
    }
    if let Err(error) = files::rename(new, file) {
        // The name was free a moment ago, so this works.
        drop(fs::rename(&old, file));
        return Err(error);
    }
    files::remove_renamed(file);
    Ok(())
}

/// How long a running program may take to end before its file waits for a boot: the container runtime may just be
/// calling a CNI plugin.
const CALL_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Deletes a file. A running program that does not end soon is renamed, and deleted when Windows starts next.
fn delete(path: &WinPath, file: &Path) -> Result<Option<WinPath>> {
    let what = || format!("delete {path}");
    files::make_writable(file).map_err(failed(what))?;
    files::remove_renamed(file);
    let error = match gone(fs::remove_file(file)) {
        Ok(()) => return Ok(None),
        Err(error) if files::is_in_use(&error) => error,
        Err(error) => return Err(failed(what)(error)),
    };
    // This program's own file is in use for as long as it runs.
    let is_own = std::env::current_exe().is_ok_and(|own| own == file);
    if !is_own && files::free_within(CALL_ENDS_WITHIN, || gone(fs::remove_file(file))).is_ok() {
        return Ok(None);
    }
    let old = files::free_name(file);
    if fs::rename(file, &old).is_err() {
        return match files::until_free(|| gone(fs::remove_file(file))) {
            Ok(()) => Ok(None),
            Err(_) => Err(failed(what)(error)),
        };
    }
    // It may have ended meanwhile.
    if gone(fs::remove_file(&old)).is_ok() {
        return Ok(None);
    }
    if let Err(error) = delete_at_boot(&old) {
        drop(fs::rename(&old, file));
        return Err(failed(|| format!("delete {path} when Windows starts next"))(error));
    }
    let name = old.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(path.parent().map(|folder| folder.join(&name)))
}

/// Lets Windows delete a file, or a folder that is empty by then, at its next start.
fn delete_at_boot(path: &Path) -> io::Result<()> {
    let name = wide_path(path);
    // SAFETY: the name is zero-terminated; no second name means to delete.
    let asked = unsafe { MoveFileExW(name.as_ptr(), std::ptr::null(), MOVEFILE_DELAY_UNTIL_REBOOT) };
    if asked == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn copy(from: &Path, to: &mut File) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut piece = vec![0; 256 * 1024];
    loop {
        match source.read(&mut piece)? {
            0 => return Ok(()),
            n => to.write_all(&piece[..n])?,
        }
    }
}

/// An error of a swap. Windows does not move a folder in which a file is open, and does not say which: name the first
/// file that cannot be opened exclusively.
fn in_use(path: &WinPath, folder: &Path, error: anyhow::Error) -> anyhow::Error {
    let refusal = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).filter(|e| files::is_in_use(e));
    if refusal.is_none() {
        return error.context(format!("swap {path}"));
    }
    let what = match held(folder) {
        Some(file) => format!("move {path}: {} is in use", file.display()),
        None => format!("move {path}: a file in it is in use"),
    };
    error.context(refused(win32::ACCESS_DENIED, what))
}

/// A file in a folder that another process has open.
fn held(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).ok()?.flatten() {
            let path = entry.path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // For writing and exclusively: no other way detects a running program.
            let alone = File::options().write(true).share_mode(0).open(&path);
            if alone.is_err_and(|error| error.raw_os_error() == Some(win32::SHARING_VIOLATION.cast_signed())) {
                return Some(path);
            }
        }
    }
    None
}

/// A disk error as a fault, if its number is known.
fn failed(what: impl FnOnce() -> String) -> impl FnOnce(io::Error) -> anyhow::Error {
    move |error| match error.raw_os_error().map(i32::cast_unsigned) {
        Some(code) if win32::is_known(code) => refused(code, what()).into(),
        _ => anyhow::Error::new(error).context(what()),
    }
}
