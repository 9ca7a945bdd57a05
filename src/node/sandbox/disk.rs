//! The disk of a sandbox node: `DIR/C/…`. Names are found without case; no path leaves the folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::item::{Access, State, Tree};
use crate::node::files::{self, gone};
use crate::node::trust::{self, Verdict};
use crate::node::win32::{self, refused};
use crate::node::{STORE_DIR, unsafe_folder};
use crate::values::{Sha256, WinPath};

use super::access::{access, acl, caller, forget, of_folder, restrict};
use super::model::Model;
use super::place::locate;

/// The disk, and who has files on it open.
pub struct Disk<'a> {
    pub root: &'a Path,
    pub model: &'a Model,
}

impl Disk<'_> {
    pub fn get_dir(&self, path: &WinPath) -> Result<Option<State>> {
        let there = locate(self.root, path)?.is_dir();
        there.then(|| Ok(State::Dir { access: of_folder(self.root, self.model, path)? })).transpose()
    }

    pub fn get_file(&self, path: &WinPath) -> Result<Option<State>> {
        let place = locate(self.root, path)?;
        if !place.is_file() {
            return Ok(None);
        }
        let sha256 = files::digest(&place).with_context(|| format!("read {path}"))?;
        Ok(Some(State::File { sha256, access: access(self.root, &place) }))
    }

    pub fn get_tree(&self, path: &WinPath) -> Result<Option<State>> {
        Ok(files::read_tree(&locate(self.root, path)?)?.map(State::Tree))
    }

    /// Returns the access list that `node.yaml` must record for the folder; none if it need not.
    pub fn put_dir(&self, path: &WinPath, wanted: Option<&Access>) -> Result<Option<String>> {
        let place = locate(self.root, path)?;
        match wanted {
            Some(wanted) => {
                self.parent_is_there(path, &place)?;
                if place.is_file() {
                    return Err(refused(win32::ALREADY_EXISTS, format!("create folder {path}")).into());
                }
                let is_new = !place.is_dir();
                if is_new {
                    fs::create_dir(&place).with_context(|| format!("create folder {path}"))?;
                }
                let have = of_folder(self.root, self.model, path)?;
                let kept = self.model.acls.get(path).cloned();
                let plain = |access: &Access| {
                    restrict(self.root, &place, access).with_context(|| format!("set access of {path}"))
                };
                Ok(match (have, wanted) {
                    (have, want) if have == *want => kept,
                    (_, Access::Open(sddl)) => {
                        plain(&Access::Inherited)?;
                        let bare = Model { acls: self.without(path), ..self.model.clone() };
                        let usual = of_folder(self.root, &bare, path)?;
                        (usual != *wanted).then(|| sddl.clone())
                    }
                    (_, Access::Administrators) => {
                        plain(wanted)?;
                        None
                    }
                    (Access::Administrators, Access::Inherited) => {
                        plain(wanted)?;
                        None
                    }
                    (Access::Open(_), Access::Closed) => {
                        plain(wanted)?;
                        None
                    }
                    (_, Access::Closed | Access::ClosedIfNew) if is_new => {
                        plain(wanted)?;
                        None
                    }
                    _ => kept,
                })
            }
            None => {
                self.not_held(path, "remove folder")?;
                match fs::remove_dir(&place) {
                    // Files of other products are kept.
                    Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(self.model.acls.get(path).cloned()),
                    other => gone(other)
                        .and_then(|()| forget(self.root, &place))
                        .map(|()| None)
                        .with_context(|| format!("remove folder {path}")),
                }
            }
        }
    }

    /// The access lists of all others.
    fn without(&self, path: &WinPath) -> BTreeMap<WinPath, String> {
        self.model.acls.iter().filter(|(other, _)| *other != path).map(|(p, l)| (p.clone(), l.clone())).collect()
    }

    /// Returns the new name of a running program that should be removed.
    pub fn put_file(&self, path: &WinPath, wanted: Option<(&Sha256, &Access)>) -> Result<Option<WinPath>> {
        let place = locate(self.root, path)?;
        self.not_held(path, if wanted.is_some() { "replace" } else { "delete" })?;
        if place.is_dir() {
            return Err(refused(win32::ACCESS_DENIED, format!("write {path}, which is a folder")).into());
        }
        files::make_writable(&place).with_context(|| format!("write {path}"))?;
        let runs = self.model.programs().any(|(program, _)| program == *path) && place.is_file();
        let old = runs.then(|| files::free_name(&place));
        let Some((sha256, wanted)) = wanted else {
            old.as_ref()
                .map_or_else(|| gone(fs::remove_file(&place)), |old| fs::rename(&place, old))
                .and_then(|()| forget(self.root, &place))
                .with_context(|| format!("delete {path}"))?;
            let name = old.and_then(|old| Some(old.file_name()?.to_string_lossy().into_owned()));
            return Ok(name.and_then(|name| Some(path.parent()?.join(&name))));
        };
        let blob_path = WinPath::known(STORE_DIR).join("blobs").join(sha256.as_str());
        let blob = locate(self.root, &blob_path)?;
        if !blob.is_file() {
            return Err(refused(win32::FILE_NOT_FOUND, format!("read {blob_path}, which is to become {path}")).into());
        }
        self.parent_is_there(path, &place)?;
        // A copy and not a hard link: editing the file must not change the store. It keeps the mode of an original.
        files::replace(&place, |new| {
            gone(fs::remove_file(new))?;
            fs::copy(&blob, new)?;
            if files::digest(new)? != *sha256 {
                let what = format!("{blob_path} was damaged: its bytes are not those of its name");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if access(self.root, new) != *wanted {
                restrict(self.root, new, wanted)?;
            }
            old.as_ref().map_or(Ok(()), |old| fs::rename(&place, old))
        })
        .with_context(|| format!("write {path}"))?;
        if !runs {
            files::remove_renamed(&place);
        }
        Ok(None)
    }

    pub fn put_tree(&self, path: &WinPath, wanted: Option<&Tree>) -> Result<()> {
        let place = locate(self.root, path)?;
        self.parent_is_there(path, &place)?;
        if files::read_tree(&place)?.as_ref() == wanted {
            return Ok(());
        }
        if !path.as_str().get(..2).is_some_and(|volume| STORE_DIR[..2].eq_ignore_ascii_case(volume)) {
            return Err(refused(win32::NOT_SAME_DEVICE, format!("move {path}")).into());
        }
        if let Some((file, by)) = self.model.locks().find(|(file, _)| file.is_below(path)) {
            return Err(refused(win32::ACCESS_DENIED, format!("move {path}: {file} is in use by {by}")).into());
        }
        files::swap_tree(&place, &locate(self.root, &WinPath::known(STORE_DIR).join("trees"))?, wanted)
            .with_context(|| format!("swap {path}"))?;
        // Programs of a release run as SYSTEM.
        if matches!(wanted, Some(Tree::Release(_) | Tree::Drifted { .. })) {
            restrict(self.root, &place, &Access::Administrators).with_context(|| format!("set access of {path}"))?;
        }
        Ok(())
    }

    /// Replaces a file of our own; missing folders are created for administrators only.
    pub fn save(&self, path: &WinPath, bytes: &[u8], wanted: Access) -> Result<()> {
        self.not_held(path, "replace")?;
        let place = self.own(path)?;
        files::replace(&place, |new| {
            gone(fs::remove_file(new))?;
            fs::write(new, [])?;
            if wanted == Access::Administrators {
                restrict(self.root, new, &wanted)?;
            }
            fs::write(new, bytes)
        })
        .with_context(|| format!("write {path}"))
    }

    /// What a process leaves that ends while it replaces a file: some bytes in the temporary file.
    pub fn half_written(&self, path: &WinPath, bytes: &[u8]) -> Result<()> {
        let place = self.own(path)?;
        fs::write(files::beside(&place), bytes).with_context(|| format!("write {path}"))
    }

    /// Appends to a file of our own; folders as in [`Self::save`].
    pub fn append(&self, path: &WinPath, bytes: &[u8]) -> Result<()> {
        let place = self.own(path)?;
        files::append(&place, bytes).with_context(|| format!("append to {path}"))
    }

    /// Like a Windows node. Also returns whether a folder was renamed and created again.
    pub fn secure(&self, path: &WinPath) -> Result<(Option<String>, bool)> {
        let root = locate(self.root, path)?;
        if !root.is_dir() {
            return Ok((None, false));
        }
        let look = |place: &Path| acl(self.root, self.model, &self.path_of(place).context("leave the sandbox")?);
        match trust::judge(path, root.clone(), &caller(self.model), &look)? {
            Verdict::Safe => Ok((None, false)),
            Verdict::Close { all, why } => {
                for item in all {
                    restrict(self.root, &item, &Access::Administrators).with_context(|| format!("secure {path}"))?;
                }
                Ok((Some(why), true))
            }
            Verdict::Replace { why } => {
                let aside = trust::aside(&root);
                self.not_held(path, "rename").and_then(|()| Ok(fs::rename(&root, &aside)?)).map_err(|error| {
                    error.context(unsafe_folder(path, &format!("{why}, and it cannot be renamed away")))
                })?;
                fs::create_dir(&root)
                    .and_then(|()| restrict(self.root, &root, &Access::Administrators))
                    .with_context(|| format!("make {path} again"))?;
                let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let aside = path.parent().map_or_else(|| path.clone(), |folder| folder.join(&name));
                Ok((Some(format!("{why}; what was there is {aside} now")), true))
            }
        }
    }

    /// The node's path for a place on the disk; none for a place outside.
    pub fn path_of(&self, place: &Path) -> Option<WinPath> {
        let below = place.strip_prefix(self.root).ok()?;
        let mut parts = below.components().map(|part| part.as_os_str().to_string_lossy());
        let drive = parts.next().filter(|drive| drive.len() == 1)?;
        let rest: Vec<_> = parts.collect();
        format!("{drive}:\\{}", rest.join("\\")).parse().ok()
    }

    fn own(&self, path: &WinPath) -> Result<PathBuf> {
        let place = locate(self.root, path)?;
        let mut missing: Vec<&Path> = place.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
        while let Some(folder) = missing.pop() {
            fs::create_dir(folder)
                .and_then(|()| restrict(self.root, folder, &Access::Administrators))
                .with_context(|| format!("create the folder of {path}"))?;
        }
        Ok(place)
    }

    fn parent_is_there(&self, path: &WinPath, place: &Path) -> Result<()> {
        if place.parent().is_some_and(Path::is_dir) {
            return Ok(());
        }
        Err(refused(win32::PATH_NOT_FOUND, format!("write {path}, whose folder is not there")).into())
    }

    fn not_held(&self, path: &WinPath, verb: &str) -> Result<()> {
        match self.model.open_files.iter().find(|file| file.path == *path) {
            Some(file) => {
                let what = format!("{verb} {path}, which is in use by {}", file.by);
                Err(refused(win32::SHARING_VIOLATION, what).into())
            }
            None => Ok(()),
        }
    }
}
