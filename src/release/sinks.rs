//! The files that an entry's data are written to, and the progress.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use sha2::Digest;

use super::archive::{Archive, Entry};
use super::files::PathContext;
use crate::values::Sha256;

/// The progress of all workers, and whether one of them has failed.
#[derive(Default)]
pub struct Progress {
    pub written: AtomicU64,
    pub stop: AtomicBool,
}

/// The files that one entry's data are written to.
pub(super) struct Sinks {
    files: Vec<(File, PathBuf)>,
    crc: crc32fast::Hasher,
    sha256: Option<sha2::Sha256>,
    written: u64,
}

impl Sinks {
    pub fn create(paths: &[PathBuf], size: u64, digest: bool) -> Result<Self> {
        let files = paths
            .iter()
            .map(|path| {
                let file = File::create_new(path).doing("create", path)?;
                // Windows detects here already that the disk is too small, and fragments less.
                file.set_len(size).doing("create", path)?;
                Ok((file, path.clone()))
            })
            .collect::<Result<_>>()?;
        Ok(Self { files, crc: crc32fast::Hasher::new(), sha256: digest.then(sha2::Sha256::new), written: 0 })
    }

    pub fn write(&mut self, archive: &Archive, entry: &Entry, block: &[u8], progress: &Progress) -> Result<()> {
        self.written += block.len() as u64;
        if self.written > entry.size {
            return Err(archive.entry_damaged(entry, "it is larger than declared").into());
        }
        self.crc.update(block);
        if let Some(hasher) = &mut self.sha256 {
            hasher.update(block);
        }
        for (file, path) in &mut self.files {
            file.write_all(block).doing("write", path)?;
        }
        progress.written.fetch_add((block.len() * self.files.len()) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that the data are complete, and returns the digest if requested; with `durable`, flushes the data to the
    /// disk.
    pub fn finish(self, archive: &Archive, entry: &Entry, durable: bool) -> Result<Option<Sha256>> {
        if self.written != entry.size {
            return Err(archive.entry_damaged(entry, "it is smaller than declared").into());
        }
        let crc = self.crc.finalize();
        if crc != entry.crc {
            let why = format!("its CRC is {crc:08x}, but {:08x} is expected", entry.crc);
            return Err(archive.entry_damaged(entry, &why).into());
        }
        if durable {
            for (file, path) in &self.files {
                file.sync_data().doing("write", path)?;
            }
        }
        Ok(self.sha256.map(|hasher| Sha256::from_digest(&hasher.finalize())))
    }
}
