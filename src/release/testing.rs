//! Archives for this module's tests.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::report::event::Event;

/// A zip of these names and contents, deflated. Names that end with `/` are folders.
pub fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    zip_with(CompressionMethod::Deflated, files)
}

pub fn zip_with(method: CompressionMethod, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, contents) in files {
        if name.ends_with('/') {
            zip.add_directory(*name, options).unwrap();
        } else {
            zip.start_file(*name, options).unwrap();
            zip.write_all(contents).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

/// Bytes that deflate cannot compress and that differ by seed.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 56) as u8 & 0x3f
    })
    .take(length)
    .collect()
}

/// Replaces every occurrence of some bytes by as many others.
pub fn edited(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, w)| *w == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "nothing to edit");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    bytes
}

/// A folder with an archive, and a place for the result.
pub struct Bench {
    pub folder: TempDir,
    pub archive: PathBuf,
    pub dest: PathBuf,
}

impl Bench {
    pub fn with(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("calico-windows-v3.32.1.zip");
        std::fs::write(&archive, bytes).unwrap();
        let dest = folder.path().join("out");
        Self { folder, archive, dest }
    }

    /// The folder contains nothing but the archive.
    pub fn is_untouched(&self) -> bool {
        names(self.folder.path()) == ["calico-windows-v3.32.1.zip"]
    }
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn quiet(_: Event) {}
