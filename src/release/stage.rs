//! Creates a release tree: the release's files, and the manifest that identifies it and later detects drift.
//! Nothing on the node refers to the tree yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use sha2::Digest;

use super::archive::{Archive, MAX_ENTRIES, MAX_TOTAL};
use super::check::{Names, Refusal, TOP, Use};
use super::extract::unpack;
use super::files::{BUFFER, PathContext, Staging};
use super::inflate::WriteOptions;
use super::{invalid, phase};
use crate::fault::Fault;
use crate::item::{Manifest, ManifestFile};
use crate::paths::ETCD_TLS;
use crate::report::event::{Event, Sink};
use crate::values::Sha256;
use crate::version::CalicoVersion;

/// Gets the paths below the top folder, and refuses a release that lacks required files of its version.
pub type LayoutCheck<'a> = &'a dyn Fn(&CalicoVersion, &[&str]) -> Result<()>;

/// The requirements of a release.
pub struct StageOptions<'a> {
    pub version: &'a CalicoVersion,
    /// The expected digest of the archive. A folder has no digest.
    pub sha256: Option<&'a Sha256>,
    pub layout: LayoutCheck<'a>,
}

/// Verifies a release archive, or a folder with an extracted one, and creates a release tree from it at `dest`, which must
/// not exist or be empty. `config.ps1` is omitted from tree and manifest, and so are files of a node, with a warning:
/// this program writes them, and could not if the release had them.
///
/// The manifest is written last and is newer than every file: a file newer than the manifest was changed since. All
/// data is flushed to the disk when this returns.
///
/// # Errors
/// Those of [`super::extract::extract`], and those of the layout check, with the release's path. On failure `dest` is
/// unchanged.
pub fn stage(release: &Path, dest: &Path, options: &StageOptions<'_>, events: Sink) -> Result<Manifest> {
    if release.is_dir() {
        return stage_folder(release, dest, options, events);
    }
    let archive = Archive::open(release, options.sha256, events)?;
    check_layout(&archive.paths().collect::<Vec<_>>(), release, options)?;
    let staging = Staging::next_to(dest)?;
    let write = WriteOptions { digests: true, durable: true };
    warn_of_a_nodes(archive.paths(), events);
    let mut unpacked = unpack(&archive, staging.path(), write, &is_staged, events)?;
    let mut files = BTreeMap::new();
    for (path, size) in unpacked.sizes {
        let sha256 = unpacked.digests.remove(&path).expect("digests were requested, and each file has one");
        files.insert(path, ManifestFile { size, sha256 });
    }
    seal(staging, options.version, Some(archive.sha256), files)
}

fn is_staged(path: &str) -> bool {
    Use::of(path) == Use::Staged
}

/// Names the files that are left out because they are of a node.
fn warn_of_a_nodes<'a>(paths: impl Iterator<Item = &'a str>, events: Sink) {
    let left_out: Vec<&str> = paths.filter(|path| Use::of(path) == Use::OfANode).collect();
    if !left_out.is_empty() {
        let message = format!("the release has files of a node, which are left out: {}", left_out.join(", "));
        events(Event::Warning { id: "ReleaseOfANode", message });
    }
}

fn check_layout(paths: &[&str], release: &Path, options: &StageOptions<'_>) -> Result<()> {
    (options.layout)(options.version, paths).map_err(|error| match error.downcast::<Fault>() {
        // The check does not know which archive it checks.
        Ok(fault) => Fault { what: format!("{}: {}", release.display(), fault.what), ..fault }.into(),
        Err(error) => error.context(format!("check the layout of {}", release.display())),
    })
}

/// Writes the manifest and moves the tree to its destination.
fn seal(
    staging: Staging,
    version: &CalicoVersion,
    archive: Option<Sha256>,
    files: BTreeMap<String, ManifestFile>,
) -> Result<Manifest> {
    let etcd = staging.path().join(ETCD_TLS);
    std::fs::create_dir_all(&etcd).doing("create the folder", &etcd)?;
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
    // File times have a limited resolution: the manifest may have got the same time as the last file.
    let written = file.metadata().and_then(|metadata| metadata.modified()).doing("read", &path)?;
    if written <= latest {
        file.set_modified(latest + Duration::from_micros(1)).doing("write", &path)?;
    }
    file.sync_all().doing("write", &path)?;
    staging.publish()?;
    Ok(manifest)
}

/// A release that was already extracted: the same checks, and a copy, since the original may change.
fn stage_folder(source: &Path, dest: &Path, options: &StageOptions<'_>, events: Sink) -> Result<Manifest> {
    let root = if source.join(TOP).is_dir() { source.join(TOP) } else { source.to_owned() };
    let mut found = Found::default();
    found.walk(&root, "")?;
    check_layout(&found.files.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), &root, options)?;

    warn_of_a_nodes(found.files.iter().map(|(path, _)| path.as_str()), events);
    let staging = Staging::next_to(dest)?;
    for folder in found.folders.iter().filter(|path| is_staged(path)) {
        let folder = staging.path().join(folder);
        std::fs::create_dir_all(&folder).doing("create the folder", &folder)?;
    }
    let total = found.files.iter().map(|(_, size)| size).sum();
    let mut buffer = vec![0; BUFFER];
    let (mut current, mut files) = (0, BTreeMap::new());
    for (path, _) in found.files {
        if !is_staged(&path) {
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

/// The contents of a folder, by path below it.
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
                Refusal::OutsideTop => refuse("it is outside the release"),
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
                "{} is larger than a release (over {MAX_ENTRIES} files or {} GiB)",
                folder.display(),
                MAX_TOTAL >> 30
            ),
        )
        .hint("name the folder CalicoWindows of the release, without other files")
        .into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::release::testing::{Bench, names, quiet};
    use crate::sandbox::release::SyntheticRelease;

    fn version() -> CalicoVersion {
        CalicoVersion::new(3, 32, 1)
    }

    fn run(release: &Path, dest: &Path, layout: LayoutCheck) -> Result<Manifest> {
        stage(release, dest, &StageOptions { version: &version(), sha256: None, layout }, &mut quiet)
    }

    fn any(_: &CalicoVersion, _: &[&str]) -> Result<()> {
        Ok(())
    }

    #[test]
    fn a_staged_release_has_a_manifest_newer_than_every_file() {
        let bench = Bench::with(&SyntheticRelease::build(&version()));
        let manifest = run(&bench.archive, &bench.dest, &any).unwrap();

        let expected: BTreeMap<String, ManifestFile> = SyntheticRelease::files(&version())
            .into_iter()
            .filter(|(path, _)| path != "config.ps1")
            .map(|(path, text)| (path, ManifestFile { size: text.len() as u64, sha256: Sha256::of(text.as_bytes()) }))
            .collect();
        assert_eq!(manifest.files, expected);
        assert_eq!(manifest.version, "v3.32.1");
        assert_eq!(manifest.archive, Some(Sha256::of(&std::fs::read(&bench.archive).unwrap())));

        let file = bench.dest.join(Manifest::FILE);
        assert_eq!(serde_json::from_slice::<Manifest>(&std::fs::read(&file).unwrap()).unwrap(), manifest);
        assert!(!bench.dest.join("config.ps1").exists());
        let sealed = file.metadata().unwrap().modified().unwrap();
        for path in manifest.files.keys() {
            assert!(bench.dest.join(path).metadata().unwrap().modified().unwrap() < sealed, "{path}");
        }
    }

    #[test]
    fn a_folder_gives_the_same_release_as_its_archive() {
        let bench = Bench::with(&SyntheticRelease::build(&version()));
        let from_archive = run(&bench.archive, &bench.dest, &any).unwrap();

        let extracted = bench.folder.path().join("extracted");
        std::fs::create_dir(&extracted).unwrap();
        for (path, text) in SyntheticRelease::files(&version()) {
            let path = extracted.join(TOP).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (name, source) in [("one", extracted.clone()), ("two", extracted.join(TOP))] {
            let from_folder = run(&source, &bench.folder.path().join(name), &any).unwrap();
            assert_eq!(from_folder.digest(), from_archive.digest());
            assert_eq!(from_folder.archive, None);
        }
        // A staged tree can be staged again: its manifest is not one of its files.
        let again = run(&bench.dest, &bench.folder.path().join("three"), &any).unwrap();
        assert_eq!(again.digest(), from_archive.digest());
    }

    /// Somebody packed the folder of a node: its name and its login are of that node alone.
    #[test]
    fn files_of_a_node_are_left_out_and_named() {
        let own = ["nodename", "Calico-Kube-Config", "static-rules.json", "etcd-tls/server.key"];
        let mut zip = zip::ZipWriter::new_append(Cursor::new(SyntheticRelease::build(&version()))).unwrap();
        let options = zip::write::SimpleFileOptions::default();
        for path in own {
            zip.start_file(format!("{TOP}/{path}"), options).unwrap();
        }
        zip.start_file(format!("{TOP}/nodename.txt"), options).unwrap();
        let bench = Bench::with(&zip.finish().unwrap().into_inner());
        let extracted = bench.folder.path().join("extracted");
        super::super::extract::extract(&bench.archive, &extracted, &Default::default(), &mut quiet).unwrap();
        for (name, release) in [("archive", &bench.archive), ("folder", &extracted)] {
            let dest = bench.folder.path().join(name);
            let mut warned = Vec::new();
            let mut events = |event| {
                if let Event::Warning { id, message } = event {
                    warned.push((id, message));
                }
            };
            let options = StageOptions { version: &version(), sha256: None, layout: &any };
            let manifest = stage(release, &dest, &options, &mut events).unwrap();
            assert!(manifest.files.contains_key("nodename.txt"), "{name}");
            for path in own {
                assert!(!manifest.files.contains_key(path) && !dest.join(path).exists(), "{name}: {path}");
            }
            let [("ReleaseOfANode", message)] = warned.as_slice() else { panic!("{name}: {warned:?}") };
            assert!(own.iter().all(|path| message.contains(path)), "{name}: {message}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_a_folder_is_refused() {
        let bench = Bench::with(b"");
        let source = bench.folder.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", source.join("README.txt")).unwrap();
        let error = run(&source, &bench.dest, &any).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ReleaseHostileEntry");
        assert!(error.to_string().contains("README.txt"), "{error}");
        assert!(!bench.dest.exists());
    }

    #[test]
    fn a_layout_of_another_version_is_refused() {
        let bench = Bench::with(&SyntheticRelease::build(&CalicoVersion::new(3, 33, 0)));
        let layout = |version: &CalicoVersion, paths: &[&str]| {
            if paths.contains(&"calico-node.exe") {
                return Ok(());
            }
            Err(invalid("ReleaseLayout", format!("no Calico {version}: it lacks calico-node.exe")).into())
        };
        let error = run(&bench.archive, &bench.dest, &layout).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ReleaseLayout");
        assert!(error.to_string().ends_with("v3.32.1.zip: no Calico v3.32.1: it lacks calico-node.exe"), "{error}");
        assert!(bench.is_untouched());
        assert_eq!(names(bench.folder.path()).len(), 1);
    }
}
