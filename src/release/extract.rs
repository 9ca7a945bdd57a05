//! Extracts a checked archive into a folder, on all cores, with little memory.
//!
//! The largest files come first, so that the workers end at about the same time. A file that the archive contains twice
//! (calico.exe is used under two names) is inflated once. The files are written to a folder next to the destination,
//! which is renamed when everything in it is verified.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::Result;

use super::archive::{Archive, Entry};
use super::files::{PathContext, Staging};
use super::inflate::{self, WriteOptions};
use super::phase;
use super::sinks::Progress;
use crate::report::event::{Event, Sink};
use crate::values::Sha256;

/// More workers do not help: a release has three large files.
const MAX_WORKERS: usize = 4;
/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Clone)]
pub struct ExtractOptions {
    /// The expected digest of the archive.
    pub sha256: Option<Sha256>,
}

/// What was extracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extracted {
    /// The archive's digest.
    pub sha256: Sha256,
    pub files: usize,
    /// The sum of the files' sizes, in bytes.
    pub bytes: u64,
    /// How many entries were inflated: less than `files` when some are the same.
    pub inflated: usize,
}

/// Verifies an archive and extracts it to `dest`, without its top folder. `dest` must not exist or be empty; on failure
/// it is unchanged.
///
/// # Errors
/// Those of the archive ([`Archive::open`], `ReleaseDamaged`), `FolderNotEmpty`, `DiskFull`, `AccessDenied`.
pub fn extract(archive: &Path, dest: &Path, options: &ExtractOptions, events: Sink) -> Result<Extracted> {
    let archive = Archive::open(archive, options.sha256.as_ref(), events)?;
    let staging = Staging::next_to(dest)?;
    let options = WriteOptions { digests: false, durable: false };
    let unpacked = unpack(&archive, staging.path(), options, &|_| true, events)?;
    staging.publish()?;
    Ok(Extracted {
        sha256: archive.sha256.clone(),
        files: unpacked.sizes.len(),
        bytes: unpacked.sizes.values().sum(),
        inflated: unpacked.inflated,
    })
}

/// Inflates every file of an archive and checks its size and CRC, and writes nothing.
///
/// # Errors
/// `ReleaseDamaged`.
pub fn check_data(archive: &Archive) -> Result<()> {
    let (options, progress) = (WriteOptions { digests: false, durable: false }, Progress::default());
    archive.entries.iter().try_for_each(|entry| inflate::inflate(archive, entry, &[], options, &progress).map(drop))
}

pub(super) struct Unpacked {
    pub sizes: BTreeMap<String, u64>,
    /// By path; empty unless requested.
    pub digests: BTreeMap<String, Sha256>,
    pub inflated: usize,
}

/// A file to inflate, and the other entries with the same data.
struct Task<'a> {
    entry: &'a Entry,
    paths: Vec<&'a str>,
}

/// Inflates every entry whose path is wanted into `folder`, which exists and is empty.
pub(super) fn unpack(
    archive: &Archive,
    folder: &Path,
    options: WriteOptions,
    is_wanted: &dyn Fn(&str) -> bool,
    events: Sink,
) -> Result<Unpacked> {
    let wanted: Vec<&Entry> = archive.entries.iter().filter(|entry| is_wanted(&entry.path)).collect();
    let folders = archive.folders.iter().map(String::as_str).filter(|path| is_wanted(path));
    make_folders(folders, &wanted, folder)?;
    let tasks = tasks(archive, &wanted)?;
    let total: u64 = wanted.iter().map(|entry| entry.size).sum();

    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.min(MAX_WORKERS).min(tasks.len());
    let (progress, next) = (Progress::default(), AtomicUsize::new(0));
    let (sender, results) = mpsc::channel();
    let mut digests = BTreeMap::new();
    let mut failure = None;

    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, tasks, progress, next) = (sender.clone(), &tasks, &progress, &next);
            scope.spawn(move || {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let paths: Vec<PathBuf> = task.paths.iter().map(|path| folder.join(path)).collect();
                    let done = inflate::inflate(archive, task.entry, &paths, options, progress);
                    let stopped = matches!(done, Ok(None) | Err(_));
                    // The receiver outlives the workers; without it nobody needs the result.
                    if sender.send((task, done)).is_err() || stopped {
                        progress.stop.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match results.recv_timeout(PROGRESS_EVERY) {
                Ok((task, Ok(Some(Some(digest))))) => {
                    digests.extend(task.paths.iter().map(|path| ((*path).to_owned(), digest.clone())));
                }
                Ok((_, Ok(_))) => {}
                Ok((_, Err(error))) => {
                    progress.stop.store(true, Ordering::Relaxed);
                    failure.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let current = progress.written.load(Ordering::Relaxed);
                    events(Event::Progress { phase: phase::UNPACK, current, total: Some(total) });
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    events(Event::Progress { phase: phase::UNPACK, current: total, total: Some(total) });
    Ok(Unpacked {
        sizes: wanted.iter().map(|entry| (entry.path.clone(), entry.size)).collect(),
        digests,
        inflated: tasks.len(),
    })
}

fn make_folders<'a>(folders: impl Iterator<Item = &'a str>, wanted: &[&'a Entry], folder: &Path) -> Result<()> {
    let parents = wanted.iter().filter_map(|entry| entry.path.rsplit_once('/').map(|(parent, _)| parent));
    let folders: BTreeSet<&str> = parents.chain(folders).collect();
    for path in folders {
        let path = folder.join(path);
        std::fs::create_dir_all(&path).doing("create the folder", &path)?;
    }
    Ok(())
}

/// Groups entries with the same data, largest first.
fn tasks<'a>(archive: &Archive, wanted: &[&'a Entry]) -> Result<Vec<Task<'a>>> {
    let mut tasks: Vec<Task> = Vec::with_capacity(wanted.len());
    let mut alike: HashMap<(u32, u64), Vec<usize>> = HashMap::new();
    'entries: for entry in wanted {
        let candidates = alike.entry((entry.crc, entry.size)).or_default();
        for &index in candidates.iter() {
            if inflate::same_data(archive, tasks[index].entry, entry)? {
                tasks[index].paths.push(&entry.path);
                continue 'entries;
            }
        }
        candidates.push(tasks.len());
        tasks.push(Task { entry, paths: vec![&entry.path] });
    }
    tasks.sort_by_key(|task| std::cmp::Reverse(task.entry.packed));
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use zip::CompressionMethod;

    use super::*;
    use crate::fault::Fault;
    use crate::release::testing::{Bench, edited, names, noise, quiet, zip_of, zip_with};

    fn run(bench: &Bench) -> Result<Extracted> {
        extract(&bench.archive, &bench.dest, &ExtractOptions::default(), &mut quiet)
    }

    #[test]
    fn a_release_is_extracted_without_its_top_folder() {
        let exe = noise(3 * super::super::files::BUFFER + 17, 1);
        for method in [CompressionMethod::Deflated, CompressionMethod::Stored] {
            let bench = Bench::with(&zip_with(
                method,
                &[
                    ("CalicoWindows/", b""),
                    ("CalicoWindows/calico-node.exe", &exe),
                    ("CalicoWindows/confd/conf.d/blocks.toml", b"[template]\n"),
                    ("CalicoWindows/empty.txt", b""),
                    ("CalicoWindows/logs/", b""),
                ],
            ));
            let mut last = None;
            let extracted =
                extract(&bench.archive, &bench.dest, &ExtractOptions::default(), &mut |event| last = Some(event))
                    .unwrap();
            assert_eq!((extracted.files, extracted.bytes, extracted.inflated), (3, exe.len() as u64 + 11, 3));
            assert_eq!(extracted.sha256, Sha256::of(&std::fs::read(&bench.archive).unwrap()));
            assert_eq!(names(&bench.dest), ["calico-node.exe", "confd", "empty.txt", "logs"]);
            assert!(std::fs::read(bench.dest.join("calico-node.exe")).unwrap() == exe);
            assert_eq!(std::fs::read(bench.dest.join("confd/conf.d/blocks.toml")).unwrap(), b"[template]\n");
            let total = extracted.bytes;
            assert_eq!(last, Some(Event::Progress { phase: "unpack", current: total, total: Some(total) }));
        }
    }

    #[test]
    fn data_that_an_archive_contains_twice_are_inflated_once() {
        let exe = noise(300_000, 1);
        let bench = Bench::with(&zip_of(&[
            ("CalicoWindows/calico.exe", &exe),
            ("CalicoWindows/cni/calico.exe", &exe),
            ("CalicoWindows/other.exe", &noise(300_000, 2)),
        ]));
        let extracted = run(&bench).unwrap();
        assert_eq!((extracted.files, extracted.inflated, extracted.bytes), (3, 2, 900_000));
        assert!(std::fs::read(bench.dest.join("calico.exe")).unwrap() == exe);
        assert!(std::fs::read(bench.dest.join("cni/calico.exe")).unwrap() == exe);
    }

    #[test]
    fn a_flipped_byte_is_detected_and_nothing_is_left() {
        let exe = noise(300_000, 1);
        let mut stored = zip_with(CompressionMethod::Stored, &[("CalicoWindows/calico-node.exe", &exe)]);
        stored[150_000] ^= 1;
        let mut deflated = zip_of(&[("CalicoWindows/a.txt", b"a"), ("CalicoWindows/calico-node.exe", &exe)]);
        let middle = deflated.len() / 2;
        deflated[middle] ^= 1;
        for (zip, why) in [(stored, "its CRC is"), (deflated, "entry `calico-node.exe`: ")] {
            let bench = Bench::with(&zip);
            let error = run(&bench).unwrap_err();
            assert_eq!(Fault::id_of(&error), "ReleaseDamaged");
            assert!(error.to_string().contains(why), "{error}");
            assert!(bench.is_untouched());
        }
    }

    #[test]
    fn an_entry_with_a_wrong_size_is_refused() {
        for says in [39_000_u32, 41_000] {
            let zip = zip_of(&[("CalicoWindows/calico-node.exe", &noise(40_000, 1))]);
            let bench = Bench::with(&edited(zip, &40_000_u32.to_le_bytes(), &says.to_le_bytes()));
            let error = run(&bench).unwrap_err();
            assert_eq!(Fault::id_of(&error), "ReleaseDamaged");
            assert!(error.to_string().contains("er than declared"), "{error}");
            assert!(bench.is_untouched());
        }
    }

    #[test]
    fn a_full_folder_is_not_changed_and_an_empty_one_is_used() {
        let bench = Bench::with(&zip_of(&[("CalicoWindows/a.txt", b"a")]));
        std::fs::create_dir(&bench.dest).unwrap();
        run(&bench).unwrap();
        std::fs::write(bench.dest.join("mine.txt"), b"mine").unwrap();
        let error = run(&bench).unwrap_err();
        assert_eq!(Fault::id_of(&error), "FolderNotEmpty");
        assert_eq!(names(&bench.dest), ["a.txt", "mine.txt"]);
        assert_eq!(names(bench.folder.path()), ["calico-windows-v3.32.1.zip", "out"]);
    }

    #[test]
    fn leftovers_of_a_killed_run_are_removed() {
        let bench = Bench::with(&zip_of(&[("CalicoWindows/a.txt", b"a")]));
        let left = bench.folder.path().join(".out.calicoctl-win-partial");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("half.exe"), b"half").unwrap();
        run(&bench).unwrap();
        assert_eq!(names(&bench.dest), ["a.txt"]);
        assert_eq!(names(bench.folder.path()), ["calico-windows-v3.32.1.zip", "out"]);
    }
}
