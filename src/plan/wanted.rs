//! The wanted world, while it is collected: items, the bytes of their files, and the folders that they need.

use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::item::{Access, Id, State, World};
use crate::paths::STATE_DIR;
use crate::values::{Sha256, WinPath};

/// Bytes by their digest. They may contain a token, so they do not print.
pub struct Blob {
    sha256: Sha256,
    bytes: Vec<u8>,
}

impl Blob {
    pub const fn sha256(&self) -> &Sha256 {
        &self.sha256
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self { sha256: Sha256::of(&bytes), bytes }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({}, {} bytes)", self.sha256.short(), self.bytes.len())
    }
}

/// Collects the wanted world.
pub(super) struct Wanted<'a> {
    pub root: &'a WinPath,
    pub world: World,
    pub blobs: Vec<Blob>,
}

impl Wanted<'_> {
    pub fn add(&mut self, id: Id, state: State) {
        self.world.insert(id, state);
    }

    /// A document for our services; it may contain secrets.
    pub fn json(&mut self, path: &str, document: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(document).with_context(|| format!("write {path}"))?;
        text.push(b'\n');
        self.file(WinPath::known(path), text, Access::Administrators);
        Ok(())
    }

    pub fn file(&mut self, path: WinPath, bytes: Vec<u8>, access: Access) {
        self.bytes(Id::File(path), bytes, access);
    }

    pub fn bytes(&mut self, id: Id, bytes: Vec<u8>, access: Access) {
        let sha256 = Sha256::of(&bytes);
        self.digest(id, sha256.clone(), access);
        self.blobs.push(Blob { sha256, bytes });
    }

    pub fn digest(&mut self, id: Id, sha256: Sha256, access: Access) {
        if let Some(path) = id.path().cloned() {
            self.folder_of(&path);
        }
        self.add(id, State::File { sha256, access });
    }

    pub fn folder_of(&mut self, path: &WinPath) {
        if let Some(parent) = path.parent() {
            self.folder(&parent);
        }
    }

    /// A folder that SYSTEM reads or runs from, so others must not write to it.
    pub fn folder(&mut self, path: &WinPath) {
        self.folders_above(path);
        if self.may_be_missing(path) {
            self.add(Id::Dir(path.clone()), State::Dir { access: Access::Closed });
        }
    }

    /// The folders above a path, only to be created if missing: an existing one may have other users.
    pub fn folders_above(&mut self, path: &WinPath) {
        let mut next = path.parent();
        while let Some(folder) = next {
            if self.may_be_missing(&folder) {
                let wanted = self.world.entry(Id::Dir(folder.clone()));
                wanted.or_insert(State::Dir { access: Access::ClosedIfNew });
            }
            next = folder.parent();
        }
    }

    /// Never below the release's root, which is replaced as a whole before files are written there, and not below our own
    /// state folder, which exists.
    pub fn may_be_missing(&self, folder: &WinPath) -> bool {
        let own = WinPath::known(STATE_DIR);
        let windows = [r"C:\Program Files", r"C:\ProgramData", r"C:\Windows"].map(WinPath::known);
        let always_there = folder.parent().is_none() || folder.is_below(&own) || windows.contains(folder);
        !always_there && !folder.is_below(self.root)
    }
}
