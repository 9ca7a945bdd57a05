//! A zip that is checked completely before any file is extracted.
//!
//! The order matters: first the digest, so that no parser sees an unverified byte; then the table of contents; then
//! every entry, against hard limits and by Windows' rules.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use anyhow::Result;
use sha2::Digest;
use zip::CompressionMethod;
use zip::read::{ArchiveOffset, Config, ZipFileEntry};
use zip::{ZipArchive, ZipReadOptions};

use super::check::{Names, Refusal, TOP};
use super::files::{BUFFER, PathContext, open_shared, read_exact_at};
use super::{invalid, phase};
use crate::fault::Fault;
use crate::report::event::{Event, Sink};
use crate::values::Sha256;
use crate::version::CalicoVersion;

/// Most entries. Releases have 40 to 120.
pub const MAX_ENTRIES: usize = 1000;
/// Largest table of contents, in bytes. It is held in memory; a real one has about 10 kB.
pub const MAX_DIRECTORY: u64 = 1 << 20;
/// Largest file, in bytes. The largest of a real release, calico.exe, has about 95 MB.
pub const MAX_FILE: u64 = 1 << 30;
/// Largest sum of files, in bytes. A real release has about 210 MB.
pub const MAX_TOTAL: u64 = 2 << 30;
/// Greatest compression ratio. Executables reach 3 to 4, scripts 10; a bomb reaches 1000.
pub const MAX_RATIO: u64 = 100;
/// Below this size (in bytes) the ratio is not checked: a small file of blanks is not a bomb.
const RATIO_FREE: u64 = 1 << 20;

/// What kind of archive a file is.
#[derive(Debug)]
pub(super) struct Form {
    /// The one top folder.
    pub top: &'static str,
    name: &'static str,
    missing: (&'static str, &'static str),
    /// What to do about one with another digest, of another form, a hostile one, a truncated one, a damaged one.
    digest: &'static str,
    other: &'static str,
    hostile: &'static str,
    truncated: &'static str,
    damaged: &'static str,
}

/// The zip that the Calico project publishes.
pub(super) const RELEASE: Form = Form {
    top: TOP,
    name: "a Calico for Windows release",
    missing: ("there is no release archive at", "check the path, or name a version or URL instead"),
    digest: PUBLISHED,
    other: "use the asset calico-windows-vX.Y.Z.zip of a Calico release",
    hostile: "the Calico project did not create this archive; download it again from a source that you trust",
    truncated: "download it again: the download was probably interrupted",
    damaged: "download it again, and set its SHA-256 in the config",
};

/// The file of `release bundle`.
pub(super) const BUNDLE: Form = Form {
    top: "calicoctl-win-bundle",
    name: "a bundle",
    missing: ("there is no bundle at", "check the path"),
    digest: "compare with the digest that `release bundle` printed, and copy the file again",
    other: "use a file that this made: calicoctl-win release bundle --out FILE",
    hostile: "`release bundle` did not create this file; copy it again from a source that you trust",
    truncated: "copy it again: the copy was probably interrupted",
    damaged: "copy it again, and give its SHA-256 with --sha256",
};

/// An open archive whose digest and table of contents are valid. The data of an entry are checked while they are
/// inflated.
#[derive(Debug)]
pub struct Archive {
    pub(super) file: File,
    pub(super) path: PathBuf,
    form: &'static Form,
    pub(super) entries: Vec<Entry>,
    /// Folders with an entry of their own, which may be empty.
    pub(super) folders: Vec<String>,
    pub sha256: Sha256,
}

/// A file in an archive.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Below the top folder, with `/`.
    pub path: String,
    pub deflated: bool,
    pub size: u64,
    pub packed: u64,
    pub crc: u32,
    /// The offset of its data in the archive.
    pub start: u64,
}

impl Archive {
    /// Hashes the file, compares with the expected digest, reads the table of contents and checks it.
    ///
    /// # Errors
    /// A [`Fault`] of class ReleaseInvalid: `ReleaseDigest`, `ReleaseTruncated`, `ReleaseNotZip`,
    /// `ReleaseLayout`, `ReleaseHostileEntry`, `ReleaseTooLarge`, `ReleaseDamaged`,
    /// `ReleaseNotFound`.
    pub fn open(path: &Path, expected: Option<&Sha256>, events: Sink) -> Result<Self> {
        Self::open_as(&RELEASE, path, expected, events)
    }

    /// The same for an archive of another form.
    pub(super) fn open_as(form: &'static Form, path: &Path, expected: Option<&Sha256>, events: Sink) -> Result<Self> {
        let file = match open_shared(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let (what, hint) = form.missing;
                return Err(invalid("ReleaseNotFound", format!("{what} {}", path.display())).hint(hint).into());
            }
            opened => opened.doing("open", path)?,
        };
        let metadata = file.metadata().doing("read", path)?;
        if !metadata.is_file() {
            return Err(invalid("ReleaseNotZip", format!("{} is not a file", path.display())).into());
        }
        let size = metadata.len();
        let sha256 = hash(&file, size, path, events)?;
        if let Some(expected) = expected.filter(|expected| **expected != sha256) {
            return Err(digest_mismatch(&path.display().to_string(), expected, &sha256).hint(form.digest).into());
        }

        let mut archive = Self { file, path: path.to_owned(), form, entries: Vec::new(), folders: Vec::new(), sha256 };
        archive.bound_directory(size)?;
        // No data may precede the archive: two programs could read such a file differently.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let file = archive.file.try_clone().doing("read", path)?;
        let mut zip = ZipArchive::with_config(config, file).map_err(|e| archive.truncated(&e.to_string()))?;
        archive.read_directory(&zip)?;
        archive.read_headers(&mut zip)?;
        Ok(archive)
    }

    /// The paths of all files, below the top folder.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.path.as_str())
    }

    /// The sum of all files' sizes, in bytes.
    pub fn total(&self) -> u64 {
        self.entries.iter().map(|entry| entry.size).sum()
    }

    /// Checks the end-of-directory record of a zip (APPNOTE 4.3.16) before the parser does, which reserves memory for
    /// as many entries as the record claims. Zips of Calico have no comment and need no ZIP64, so the record is the
    /// last 22 bytes, and the table of contents ends where it begins.
    fn bound_directory(&self, size: u64) -> Result<(), Fault> {
        const LENGTH: usize = 22;
        let mut magic = [0; 4];
        if read_exact_at(&self.file, &mut magic, 0).is_err() || !magic.starts_with(b"PK") {
            let path = self.path.display();
            return Err(invalid("ReleaseNotZip", format!("{path} is not a zip archive"))
                .hint("open it: it may be a page of a proxy or a sign-in page"));
        }
        let mut record = [0; LENGTH];
        let start = size.saturating_sub(LENGTH as u64);
        read_exact_at(&self.file, &mut record, start).map_err(|e| self.truncated(&e.to_string()))?;
        let half = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 2)) << 16;
        if &record[..4] != b"PK\x05\x06" || half(20) != 0 {
            return Err(self.truncated("it does not end like a zip archive"));
        }
        let (entries, length, offset) = (usize::from(half(10)), word(12), word(16));
        if entries > MAX_ENTRIES {
            return Err(self.too_large(&format!("it has {entries} entries, and the limit is {MAX_ENTRIES}")));
        }
        if length > MAX_DIRECTORY {
            return Err(self.too_large("its table of contents is larger than 1 MiB"));
        }
        if offset + length != start {
            return Err(self.damaged("there is data before it, or between its parts"));
        }
        Ok(())
    }

    /// Checks every entry of the table of contents.
    fn read_directory(&mut self, zip: &ZipArchive<File>) -> Result<(), Fault> {
        if zip.has_duplicate_names() {
            return Err(self.damaged("two of its entries have the same name"));
        }
        let mut names = Names::default();
        let mut total = 0u64;
        let (mut entries, mut folders) = (Vec::new(), Vec::new());
        for index in 0..zip.len() {
            let entry = zip.by_index_data(index).map_err(|e| self.damaged(&e.to_string()))?;
            let name = std::str::from_utf8(entry.name_raw())
                .map_err(|_| self.hostile(&String::from_utf8_lossy(entry.name_raw()), "its name is not UTF-8"))?;
            let folder = is_folder(name);
            let path = names.admit_entry(name, folder, self.form.top).map_err(|refusal| self.refuse(name, refusal))?;
            self.check_entry(&entry, name, folder)?;
            total = total.saturating_add(entry.size());
            if total > MAX_TOTAL {
                return Err(self.too_large(&format!("its files take more than {} GiB", MAX_TOTAL >> 30)));
            }
            if folder {
                folders.extend(Some(path).filter(|path| !path.is_empty()));
                continue;
            }
            entries.push(Entry {
                path,
                deflated: entry.compression() == CompressionMethod::Deflated,
                size: entry.size(),
                packed: entry.compressed_size(),
                crc: entry.crc32(),
                start: 0,
            });
        }
        if entries.is_empty() {
            return Err(invalid("ReleaseLayout", format!("{}: the archive is empty", self.path.display()))
                .hint(self.form.other));
        }
        (self.entries, self.folders) = (entries, folders);
        Ok(())
    }

    fn check_entry(&self, entry: &ZipFileEntry<'_>, name: &str, folder: bool) -> Result<(), Fault> {
        // Unix stores the file's mode in the upper half, Windows its attributes in the lower.
        const TYPE: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        const DIRECTORY: u32 = 0o040_000;
        const REPARSE_POINT_DEVICE_OR_LABEL: u32 = 0x400 | 0x40 | 0x08;

        let attributes = entry.external_attributes();
        let kind = (attributes >> 16) & TYPE;
        let plain = kind == 0 || kind == if folder { DIRECTORY } else { REGULAR };
        if !plain || attributes & REPARSE_POINT_DEVICE_OR_LABEL != 0 {
            return Err(self.hostile(name, "it is a link or special file"));
        }
        if entry.encrypted() {
            return Err(self.hostile(name, "it is encrypted"));
        }
        match entry.compression() {
            CompressionMethod::Deflated => {}
            CompressionMethod::Stored if entry.size() == entry.compressed_size() => {}
            CompressionMethod::Stored => {
                return Err(self.hostile(name, "it is stored with a wrong size"));
            }
            other => {
                return Err(self
                    .hostile(name, &format!("it uses a compression method that Calico's archives do not ({other})")));
            }
        }
        if folder && entry.size() != 0 {
            return Err(self.hostile(name, "it is a folder with contents"));
        }
        if entry.size() > MAX_FILE {
            return Err(self.too_large(&format!("`{}` is larger than {} GiB", name.escape_debug(), MAX_FILE >> 30)));
        }
        if entry.size() > RATIO_FREE && entry.size() / entry.compressed_size().max(1) > MAX_RATIO {
            return Err(self.too_large(&format!(
                "`{}` would grow more than {MAX_RATIO}-fold when extracted",
                name.escape_debug()
            )));
        }
        Ok(())
    }

    /// The header before each entry's data must match the table of contents, and no two entries may share bytes. Finds
    /// the offset of the data.
    fn read_headers(&mut self, zip: &mut ZipArchive<File>) -> Result<(), Fault> {
        let mut starts = Vec::with_capacity(self.entries.len());
        for index in 0..zip.len() {
            let name = zip.name_for_index(index).and_then(Result::ok).unwrap_or_default().into_owned();
            let checked = ZipReadOptions::new().enforce_header_consistency(true);
            let entry = zip
                .by_index_with_options(index, checked)
                .map_err(|e| self.damaged(&format!("entry `{}`: {e}", name.escape_debug())))?;
            if !is_folder(&name) {
                starts.extend(entry.data_start());
            }
        }
        if zip.has_overlapping_entries().map_err(|e| self.damaged(&e.to_string()))? {
            return Err(self.damaged("its entries overlap"));
        }
        if starts.len() != self.entries.len() {
            return Err(self.damaged("its entries' data are not where they should be"));
        }
        for (entry, start) in self.entries.iter_mut().zip(starts) {
            entry.start = start;
        }
        Ok(())
    }

    fn refuse(&self, name: &str, refusal: Refusal) -> Fault {
        match refusal {
            Refusal::Hostile(why) => self.hostile(name, &why),
            Refusal::OutsideTop => invalid(
                "ReleaseLayout",
                format!(
                    "{}: the archive has `{}`, but {} has one top folder, {}",
                    self.path.display(),
                    name.escape_debug(),
                    self.form.name,
                    self.form.top
                ),
            )
            .hint(self.form.other),
        }
    }

    fn hostile(&self, name: &str, why: &str) -> Fault {
        let mut shown: String = name.escape_debug().take(200).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        invalid(
            "ReleaseHostileEntry",
            format!("{}: the archive's entry `{shown}` is refused: {why}", self.path.display()),
        )
        .hint(self.form.hostile)
    }

    fn too_large(&self, why: &str) -> Fault {
        invalid("ReleaseTooLarge", format!("{}: the archive is refused: {why}", self.path.display()))
            .hint(self.form.hostile)
    }

    fn damaged(&self, why: &str) -> Fault {
        invalid("ReleaseDamaged", format!("{}: the archive is damaged: {why}", self.path.display()))
            .hint(self.form.damaged)
    }

    pub(super) fn entry_damaged(&self, entry: &Entry, why: &str) -> Fault {
        self.damaged(&format!("entry `{}`: {why}", entry.path))
    }

    fn truncated(&self, why: &str) -> Fault {
        let path = self.path.display();
        invalid("ReleaseTruncated", format!("{path}: the archive is truncated, or damaged at its end ({why})"))
            .hint(self.form.truncated)
    }
}

/// A zip marks folders with a slash at the end; old .NET wrote backslashes.
fn is_folder(name: &str) -> bool {
    name.ends_with(['/', '\\'])
}

/// Hashing alone keeps a core busy, so another thread reads ahead.
fn hash(file: &File, size: u64, path: &Path, events: Sink) -> Result<Sha256> {
    const STEP: u64 = 8 << 20;
    /// One is hashed, one is read, one waits.
    const BLOCKS: usize = 3;
    let (full, blocks) = mpsc::channel::<std::io::Result<(Vec<u8>, usize)>>();
    let (hashed, empty) = mpsc::channel();
    for _ in 0..BLOCKS {
        hashed.send(vec![0; BUFFER]).expect("its receiver is in this function");
    }
    // Takes both ends, so that either thread's end also ends the other.
    std::thread::scope(move |scope| {
        scope.spawn(move || {
            let mut at = 0;
            while let Some(mut block) = (at < size).then(|| empty.recv().ok()).flatten() {
                let n = block.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
                let read = read_exact_at(file, &mut block[..n], at).map(|()| (block, n));
                at += n as u64;
                if full.send(read).is_err() {
                    return;
                }
            }
        });
        let (mut hasher, mut at) = (sha2::Sha256::new(), 0);
        for read in blocks {
            let (block, n) = read.doing("read", path)?;
            hasher.update(&block[..n]);
            at += n as u64;
            // The reader has ended when it has read everything.
            drop(hashed.send(block));
            if at % STEP == 0 || at == size {
                events(Event::Progress { phase: phase::VERIFY, current: at, total: Some(size) });
            }
        }
        Ok(Sha256::from_digest(&hasher.finalize()))
    })
}

/// What to do about a file with another digest.
const PUBLISHED: &str = "compare with the digest that the Calico project published; if the file is the wrong one, remove it and \
                         download it again";

/// The error for a wrong digest.
pub(super) fn digest_mismatch(what: &str, expected: &Sha256, found: &Sha256) -> Fault {
    invalid("ReleaseDigest", format!("{what}: its SHA-256 is {found}, but {expected} is expected")).hint(PUBLISHED)
}

/// The version of `calico-windows-v3.32.1.zip`.
pub fn version_in(name: &str) -> Option<CalicoVersion> {
    name.strip_prefix("calico-windows-")?.strip_suffix(".zip")?.strip_prefix('v')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::extract::{ExtractOptions, extract};
    use crate::release::testing::{Bench, edited, noise, quiet, zip_of};

    /// The error of extracting an archive; checks that nothing is left behind.
    fn refused(bytes: &[u8]) -> (&'static str, String) {
        let bench = Bench::with(bytes);
        let error = extract(&bench.archive, &bench.dest, &ExtractOptions::default(), &mut quiet).unwrap_err();
        assert!(bench.is_untouched(), "something was left behind after {error:#}");
        let fault = Fault::of(&error).expect("a fault");
        assert_eq!(fault.exit, crate::fault::Exit::ReleaseInvalid);
        assert!(fault.hint.is_some());
        (fault.id, error.to_string())
    }

    fn sound() -> Vec<u8> {
        zip_of(&[
            ("CalicoWindows/", b""),
            ("CalicoWindows/calico-node.exe", &noise(40_000, 1)),
            ("CalicoWindows/b", b"b"),
        ])
    }

    /// A valid archive with one more entry, whose name is then overwritten.
    fn with_name(name: &str) -> Vec<u8> {
        let stand_in = format!("CalicoWindows/{}", "z".repeat(name.len()));
        let zip = zip_of(&[("CalicoWindows/a.txt", b"a"), (&stand_in[14..], b"evil")]);
        edited(zip, &stand_in.as_bytes()[14..], name.as_bytes())
    }

    /// The offset of the n-th entry of the table of contents.
    fn central(zip: &[u8], n: usize) -> usize {
        zip.windows(4).enumerate().filter(|(_, w)| w == b"PK\x01\x02").nth(n).expect("an entry").0
    }

    #[test]
    fn hostile_names_are_refused_and_nothing_is_written() {
        for name in [
            "/etc/passwd",
            "\\\\server\\share\\x",
            "C:\\Windows\\x.dll",
            "CalicoWindows/../evil.txt",
            "CalicoWindows\\..\\evil.txt",
            "CalicoWindows/a.txt:stream",
            "CalicoWindows//x",
            "CalicoWindows/NUL.txt",
            "CalicoWindows/dot.",
            "CalicoWindows/space ",
            "CalicoWindows/bell\x07",
            "CalicoWindows/A.TXT",
            "CalicoWindows/a.txt/below",
            "CalicoWindows\\a.txt",
        ] {
            let (id, said) = refused(&with_name(name));
            assert_eq!(id, "ReleaseHostileEntry", "{name}: {said}");
            assert!(said.contains(&name.escape_debug().to_string()), "{name}: {said}");
            assert!(said.contains("calico-windows-v3.32.1.zip"), "{said}");
        }
        assert_eq!(refused(&with_name("Elsewhere/x")).0, "ReleaseLayout");
        assert_eq!(refused(&with_name("calicowindows/x")).0, "ReleaseLayout");
        assert_eq!(refused(&with_name("CalicoWindows/a.txt")).0, "ReleaseDamaged");
    }

    #[test]
    fn entries_that_are_not_plain_files_are_refused() {
        let byte = |offset: usize, bytes: &[u8]| {
            let mut zip = sound();
            let at = central(&zip, 1) + offset;
            zip[at..at + bytes.len()].copy_from_slice(bytes);
            zip
        };
        for (what, zip, id) in [
            ("symbolic link", byte(38, &(0o120_777_u32 << 16).to_le_bytes()), "ReleaseHostileEntry"),
            ("device", byte(38, &(0o020_666_u32 << 16).to_le_bytes()), "ReleaseHostileEntry"),
            ("pipe", byte(38, &(0o010_666_u32 << 16).to_le_bytes()), "ReleaseHostileEntry"),
            ("reparse point", byte(38, &0x400_u32.to_le_bytes()), "ReleaseHostileEntry"),
            ("encrypted", byte(8, &[1, 0]), "ReleaseHostileEntry"),
            ("bzip2", byte(10, &[12, 0]), "ReleaseHostileEntry"),
            ("stored in another size", byte(10, &[0, 0]), "ReleaseHostileEntry"),
            ("another size than its header has", byte(24, &40_001_u32.to_le_bytes()), "ReleaseDamaged"),
            ("another packed size", byte(20, &30_u32.to_le_bytes()), "ReleaseDamaged"),
            ("another crc", byte(16, &[1, 2, 3, 4]), "ReleaseDamaged"),
            ("a header that is not there", byte(42, &7_u32.to_le_bytes()), "ReleaseDamaged"),
            ("a bomb", byte(24, &100_000_000_u32.to_le_bytes()), "ReleaseTooLarge"),
            ("a file of 2 GiB", byte(24, &(2_u32 << 30).to_le_bytes()), "ReleaseTooLarge"),
        ] {
            let (found, said) = refused(&zip);
            assert_eq!(found, id, "{what}: {said}");
            assert!(said.contains("calico-node.exe"), "{what}: {said}");
        }
    }

    #[test]
    fn a_name_only_in_the_header_is_refused() {
        let mut zip = sound();
        let at = zip.windows(4).position(|w| w == b"node").unwrap();
        zip[at] = b'N';
        assert_eq!(refused(&zip).0, "ReleaseDamaged");
    }

    #[test]
    fn truncated_archives_are_refused() {
        let sound = sound();
        for cut in [5, 40, sound.len() / 2, sound.len() - 30, sound.len() - 1] {
            assert_eq!(refused(&sound[..cut]).0, "ReleaseTruncated", "cut at {cut}");
        }
        assert_eq!(refused(&[sound.clone(), vec![0; 9]].concat()).0, "ReleaseTruncated");
        assert_eq!(refused(b"<html>Sign in</html>").0, "ReleaseNotZip");
        assert_eq!(refused(b"").0, "ReleaseNotZip");
        assert_eq!(refused(&[b"PK".to_vec(), sound].concat()).0, "ReleaseDamaged");
        assert_eq!(refused(&zip_of(&[])).0, "ReleaseLayout");
        assert_eq!(refused(&zip_of(&[("CalicoWindows/", b"")])).0, "ReleaseLayout");
    }

    #[test]
    fn a_record_that_claims_too_much_is_refused_before_it_is_used() {
        let record = |offset: usize, bytes: &[u8]| {
            let mut zip = sound();
            let at = zip.len() - 22 + offset;
            zip[at..at + bytes.len()].copy_from_slice(bytes);
            zip
        };
        assert_eq!(refused(&record(10, &[0xff, 0xff])).0, "ReleaseTooLarge");
        assert_eq!(refused(&record(12, &u32::MAX.to_le_bytes())).0, "ReleaseTooLarge");
        let many: Vec<String> = (0..=MAX_ENTRIES).map(|n| format!("CalicoWindows/{n}")).collect();
        let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
        assert_eq!(refused(&zip_of(&many)).0, "ReleaseTooLarge");
    }

    #[test]
    fn the_digest_is_checked_first() {
        let bench = Bench::with(b"not even a zip");
        let expected = Sha256::of(b"something else");
        let options = ExtractOptions { sha256: Some(expected.clone()) };
        let error = extract(&bench.archive, &bench.dest, &options, &mut quiet).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ReleaseDigest");
        assert!(error.to_string().contains(expected.as_str()), "{error}");
        assert!(bench.is_untouched());

        let missing = bench.folder.path().join("nowhere.zip");
        let error = Archive::open(&missing, None, &mut quiet).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ReleaseNotFound");
    }
}
