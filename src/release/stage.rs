//! Makes a release tree of ours: the release's files, and the manifest that names it and finds
//! drift in it later. Nothing on the node refers to the tree yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use sha2::Digest;

use super::archive::{Archive, MAX_ENTRIES, MAX_TOTAL};
use super::check::{Names, Refusal, TOP};
use super::extract::{Unpack, unpack};
use super::files::{PathContext, Staging};
use super::inflate::BUFFER;
use super::{invalid, phase};
use crate::calico::version::CalicoVersion;
use crate::plan::item::{Manifest, ManifestFile};
use crate::report::event::{Event, Sink};
use crate::values::Sha256;

/// We render this one; the release's own only holds defaults.
const LEFT_OUT: [&str; 2] = ["config.ps1", Manifest::FILE];

/// Tells whether a release of this version has the files it must have; if not, or if the version
/// is not known, says what is wrong.
pub type LayoutCheck<'a> = &'a dyn Fn(&CalicoVersion, &[&str]) -> Result<(), String>;

/// What a release must be.
pub struct StageOptions<'a> {
    pub version: &'a CalicoVersion,
    /// What the archive must hash to. A folder has no digest.
    pub sha256: Option<&'a Sha256>,
    pub layout: LayoutCheck<'a>,
}

/// Verifies a release archive, or a folder that holds an extracted one, and makes a release tree of
/// it at `dest`, which must not exist or be empty. `config.ps1` is left out of tree and manifest.
///
/// The manifest is written last and is later than every file: a file later than the manifest was
/// changed since. All data are on the disk when this returns.
///
/// # Errors
/// As [`super::extract::extract`]; also `ReleaseLayout` from the layout check. `dest` is as it was.
pub fn stage(release: &Path, dest: &Path, options: &StageOptions<'_>, events: Sink) -> Result<Manifest> {
    if release.is_dir() {
        return stage_folder(release, dest, options, events);
    }
    let archive = Archive::open(release, options.sha256, events)?;
    check_layout(&archive.paths().collect::<Vec<_>>(), release, options)?;
    let staging = Staging::beside(dest)?;
    let how = Unpack { digests: true, durable: true, skip: &LEFT_OUT };
    let mut unpacked = unpack(&archive, staging.path(), &how, events)?;
    let mut files = BTreeMap::new();
    for (path, size) in unpacked.sizes {
        let sha256 = unpacked.digests.remove(&path).expect("a digest was asked for, and each file has one");
        files.insert(path, ManifestFile { size, sha256 });
    }
    seal(staging, options.version, Some(archive.sha256), files)
}

fn check_layout(paths: &[&str], release: &Path, options: &StageOptions<'_>) -> Result<()> {
    (options.layout)(options.version, paths).map_err(|why| {
        invalid("ReleaseLayout", format!("{}: not a release {}: {why}", release.display(), options.version))
            .hint("check that the version and the archive belong together")
            .into()
    })
}

/// Writes the manifest and moves the tree to where it is to be.
fn seal(
    staging: Staging,
    version: &CalicoVersion,
    archive: Option<Sha256>,
    files: BTreeMap<String, ManifestFile>,
) -> Result<Manifest> {
    let mut latest = SystemTime::UNIX_EPOCH;
    for path in files.keys() {
        let path = staging.path().join(path);
        let modified = path.metadata().and_then(|metadata| metadata.modified()).doing("read", &path)?;
        latest = latest.max(modified);
    }
    let manifest = Manifest { version: version.to_string(), archive, files };
    let path = staging.path().join(Manifest::FILE);
    let mut file = File::create_new(&path).doing("create", &path)?;
    file.write_all(&serde_json::to_vec_pretty(&manifest)?).doing("write", &path)?;
    // File systems keep time in steps: the manifest may have got the same one as the last file.
    let written = file.metadata().and_then(|metadata| metadata.modified()).doing("read", &path)?;
    if written <= latest {
        file.set_modified(latest + Duration::from_micros(1)).doing("write", &path)?;
    }
    file.sync_all().doing("write", &path)?;
    staging.publish()?;
    Ok(manifest)
}

/// A release that someone extracted already: the same checks, and a copy of our own, since what
/// lies there may change under us.
fn stage_folder(source: &Path, dest: &Path, options: &StageOptions<'_>, events: Sink) -> Result<Manifest> {
    let root = if source.join(TOP).is_dir() { source.join(TOP) } else { source.to_owned() };
    let mut found = Found::default();
    found.walk(&root, "")?;
    check_layout(&found.files.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), &root, options)?;

    let staging = Staging::beside(dest)?;
    for folder in &found.folders {
        let folder = staging.path().join(folder);
        std::fs::create_dir_all(&folder).doing("make the folder", &folder)?;
    }
    let total = found.files.iter().map(|(_, size)| size).sum();
    let mut buffer = vec![0; BUFFER];
    let (mut current, mut files) = (0, BTreeMap::new());
    for (path, _) in found.files {
        if LEFT_OUT.iter().any(|left_out| left_out.eq_ignore_ascii_case(&path)) {
            continue;
        }
        let copied = copy(&root.join(&path), &staging.path().join(&path), &mut buffer)?;
        current += copied.size;
        events(Event::Progress { phase: phase::UNPACK, current, total: Some(total) });
        files.insert(path, copied);
    }
    seal(staging, options.version, None, files)
}

fn copy(from: &Path, to: &Path, buffer: &mut [u8]) -> Result<ManifestFile> {
    let mut source = File::open(from).doing("open", from)?;
    let mut target = File::create_new(to).doing("create", to)?;
    let (mut hasher, mut size) = (sha2::Sha256::new(), 0);
    loop {
        let n = source.read(buffer).doing("read", from)?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        target.write_all(&buffer[..n]).doing("write", to)?;
        size += n as u64;
    }
    target.sync_data().doing("write", to)?;
    Ok(ManifestFile { size, sha256: Sha256::from_digest(&hasher.finalize()) })
}

/// What a folder holds, by path below it.
#[derive(Default)]
struct Found {
    names: Names,
    folders: BTreeSet<String>,
    files: Vec<(String, u64)>,
    total: u64,
}

impl Found {
    fn walk(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let mut entries =
            folder.read_dir().doing("list", folder)?.collect::<Result<Vec<_>, _>>().doing("list", folder)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let refuse = |why: &str| {
                invalid("ReleaseHostileEntry", format!("{} is refused: {why}", path.display()))
                    .hint("remove it from the folder, or use the release's zip archive")
            };
            let name = entry.file_name().into_string().map_err(|_| refuse("its name is not Unicode"))?;
            let below = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let kind = entry.file_type().doing("read", &path)?;
            if !kind.is_dir() && !kind.is_file() {
                return Err(refuse("it is a link or special file").into());
            }
            let below = self.names.admit(&below, kind.is_dir()).map_err(|refusal| match refusal {
                Refusal::Hostile(why) => refuse(&why),
                Refusal::OutsideTop => refuse("it lies outside the release"),
            })?;
            if kind.is_dir() {
                self.folders.insert(below.clone());
                self.walk(&path, &below)?;
            } else {
                let size = entry.metadata().doing("read", &path)?.len();
                self.total += size;
                self.files.push((below, size));
            }
            if self.files.len() + self.folders.len() > MAX_ENTRIES || self.total > MAX_TOTAL {
                return Err(self.too_large(folder));
            }
        }
        Ok(())
    }

    fn too_large(&self, folder: &Path) -> anyhow::Error {
        invalid(
            "ReleaseTooLarge",
            format!(
                "{} holds more than a release does (over {MAX_ENTRIES} files or {} GiB)",
                folder.display(),
                MAX_TOTAL >> 30
            ),
        )
        .hint("name the folder that holds the release, CalicoWindows, and nothing else")
        .into()
    }
}
