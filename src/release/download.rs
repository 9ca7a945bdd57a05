//! A download that resumes after an interruption, and a cache of earlier downloads.
//!
//! In the cache folder, an archive is `<its SHA-256>.zip`. For each URL there is `<key>.json`, with its last content,
//! and during a download `<key>.part` and its `<key>.part.json`. A URL is only stored as a digest, since it may contain
//! a password.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use reqwest::blocking::Response;
use reqwest::header::{
    CONTENT_RANGE, ETAG, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use reqwest::{StatusCode, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::Digest;

use super::archive::{MAX_TOTAL, digest_mismatch, version_in};
use super::files::{BUFFER, PathContext};
use super::transport::{Failure, Http, answered, shown, unavailable};
use super::{invalid, phase};
use crate::fault::{Exit, Fault};
use crate::node::files::rename;
use crate::report::event::{Event, Sink};
use crate::values::Sha256;
use crate::version::CalicoVersion;

/// A server's identifiers for the state of a file, to ask whether it has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Validator {
    etag: Option<String>,
    last_modified: Option<String>,
}

/// The last downloaded content of a URL.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    sha256: Sha256,
    validator: Validator,
    /// Of the release, as the last part of the URL names it.
    #[serde(default)]
    version: Option<CalicoVersion>,
}

/// An archive in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cached {
    /// None if no URL that it came from has it.
    pub version: Option<CalicoVersion>,
    pub path: PathBuf,
    pub bytes: u64,
}

/// The state of an unfinished download.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pending {
    validator: Validator,
    /// Length of the whole, in bytes.
    total: Option<u64>,
}

/// A folder with archives.
pub struct Cache<'a> {
    folder: &'a Path,
}

impl<'a> Cache<'a> {
    pub fn at(folder: &'a Path) -> Self {
        Self { folder }
    }

    /// Its archives, by version.
    ///
    /// # Errors
    /// When the folder cannot be read. A missing folder is empty.
    pub fn list(&self) -> Result<Vec<Cached>> {
        let mut found = Vec::new();
        let mut versions = BTreeMap::new();
        if self.folder.is_dir() {
            for entry in std::fs::read_dir(self.folder).doing("read", self.folder)? {
                let path = entry.doing("read", self.folder)?.path();
                if path.extension().is_some_and(|extension| extension == "zip") {
                    let bytes = std::fs::metadata(&path).doing("look at", &path)?.len();
                    found.push(Cached { version: None, path, bytes });
                } else if let Ok(memory) = std::fs::read(&path)
                    && let Ok(Remembered { sha256, version: Some(version), .. }) = serde_json::from_slice(&memory)
                {
                    versions.insert(self.path_of(&sha256), version);
                }
            }
        }
        for cached in &mut found {
            cached.version = versions.remove(&cached.path);
        }
        found.sort_by(|a, b| (&a.version, &a.path).cmp(&(&b.version, &b.path)));
        Ok(found)
    }

    /// An archive by its digest. One that is damaged in the cache is deleted.
    pub fn archive(&self, sha256: &Sha256) -> Result<Option<PathBuf>> {
        let path = self.path_of(sha256);
        let Ok(mut file) = File::open(&path) else { return Ok(None) };
        let mut hasher = sha2::Sha256::new();
        feed(&mut file, &mut hasher).doing("read", &path)?;
        drop(file);
        if Sha256::from_digest(&hasher.finalize()) == *sha256 {
            return Ok(Some(path));
        }
        std::fs::remove_file(&path).doing("remove the damaged", &path)?;
        Ok(None)
    }

    /// Moves a file into the cache, unless it has these bytes already.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn add(&self, file: &Path, sha256: &Sha256) -> Result<()> {
        if self.archive(sha256)?.is_some() {
            return Ok(());
        }
        rename(file, &self.path_of(sha256)).doing("move into the cache", file)
    }

    /// The last downloaded content of a URL, if it is still cached; for offline use.
    pub fn last_of(&self, url: &Url) -> Result<Option<(PathBuf, Sha256)>> {
        let Some(remembered) = self.remembered(url) else { return Ok(None) };
        Ok(self.archive(&remembered.sha256)?.map(|path| (path, remembered.sha256)))
    }

    /// Downloads a URL, unless the server says that the cached content is current.
    ///
    /// # Errors
    /// `ReleaseUnavailable`, `ReleaseNotFound`, `ReleaseDigest`, `ReleaseTooLarge`, `DiskFull`,
    /// `Busy`. The downloaded part is kept for the next time.
    pub fn fetch(&self, http: &Http, url: &Url, expected: Option<&Sha256>, events: Sink) -> Result<(PathBuf, Sha256)> {
        std::fs::create_dir_all(self.folder).doing("create the folder", self.folder)?;
        let known = match expected {
            None => self.last_of(url)?.zip(self.remembered(url).map(|r| r.validator)),
            Some(_) => None,
        };
        let mut part = Part::open(self.folder.join(format!("{}.part", key(url))), expected.is_some())?;
        let finished = http.with_retries(events, |events| {
            let outcome = part.attempt(http, url, known.as_ref().map(|(_, validator)| validator), events)?;
            match (&outcome, expected) {
                (Outcome::Complete { sha256, resumed: true }, Some(expected)) if sha256 != expected => {
                    // The file may have changed between the two halves: try once more, in one piece.
                    part.restart(Pending::default())?;
                    Err(Failure::retry(anyhow!(digest_mismatch(&shown(url), expected, sha256))))
                }
                _ => Ok(outcome),
            }
        })?;
        let sha256 = match (finished, known) {
            (Outcome::Complete { sha256, .. }, _) => sha256,
            (Outcome::Unchanged, Some((archive, _))) => {
                part.discard();
                return Ok(archive);
            }
            (Outcome::Unchanged, None) => return Err(answered(url, StatusCode::NOT_MODIFIED).into()),
        };
        if let Some(expected) = expected.filter(|expected| **expected != sha256) {
            part.discard();
            return Err(digest_mismatch(&shown(url), expected, &sha256).into());
        }
        let version = url.path_segments().and_then(|mut parts| version_in(parts.next_back()?));
        let remembered = Remembered { sha256: sha256.clone(), validator: part.pending.validator.clone(), version };
        let path = self.path_of(&sha256);
        part.keep(&path)?;
        let memory = self.folder.join(format!("{}.json", key(url)));
        std::fs::write(&memory, serde_json::to_vec(&remembered)?).doing("write", &memory)?;
        Ok((path, sha256))
    }

    fn remembered(&self, url: &Url) -> Option<Remembered> {
        let memory = std::fs::read(self.folder.join(format!("{}.json", key(url)))).ok()?;
        serde_json::from_slice(&memory).ok()
    }

    fn path_of(&self, sha256: &Sha256) -> PathBuf {
        self.folder.join(format!("{sha256}.zip"))
    }
}

fn key(url: &Url) -> String {
    Sha256::of(url.as_str().as_bytes()).short().to_owned()
}

enum Outcome {
    Complete {
        sha256: Sha256,
        resumed: bool,
    },
    /// The cached content is current.
    Unchanged,
}

/// The file of a download, and its progress.
struct Part {
    path: PathBuf,
    file: File,
    length: u64,
    hasher: sha2::Sha256,
    pending: Pending,
    /// A digest will verify the result, so the server's validator is not needed.
    verified: bool,
}

impl Part {
    fn open(path: PathBuf, verified: bool) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.doing("open", &path)?;
        if file.try_lock().is_err() {
            return Err(Fault::new(Exit::Busy, "Busy", "another run is downloading the same release")
                .hint("wait until it has finished, then run the command again")
                .into());
        }
        let mut hasher = sha2::Sha256::new();
        let length = feed(&mut file, &mut hasher).doing("read", &path)?;
        let state = std::fs::read(state_path(&path)).ok();
        let pending = state.and_then(|state| serde_json::from_slice(&state).ok()).unwrap_or_default();
        Ok(Self { path, file, length, hasher, pending, verified })
    }

    /// One request and its outcome.
    fn attempt(&mut self, http: &Http, url: &Url, known: Option<&Validator>, events: Sink) -> Result<Outcome, Failure> {
        let mut request = http.get(url);
        if let Some(known) = known {
            for (header, value) in [(IF_NONE_MATCH, &known.etag), (IF_MODIFIED_SINCE, &known.last_modified)] {
                request = value.iter().fold(request, |request, value| request.header(&header, value));
            }
        }
        let validator = self.pending.validator.strong();
        let resumed = self.length > 0 && (self.verified || validator.is_some());
        if resumed {
            request = request.header(RANGE, format!("bytes={}-", self.length));
            request = validator.iter().fold(request, |request, value| request.header(IF_RANGE, *value));
        }
        let response = http.send(url, request)?;
        match response.status() {
            StatusCode::NOT_MODIFIED => return Ok(Outcome::Unchanged),
            StatusCode::RANGE_NOT_SATISFIABLE if resumed => {
                // It may be complete already: interrupted between the last byte and the end.
                if content_range(&response).is_some_and(|(_, total)| total == Some(self.length)) {
                    return Ok(self.complete(true));
                }
                self.restart(Pending::default())?;
                return Err(Failure::retry(unavailable(url, "the part that was downloaded before does not match")));
            }
            StatusCode::PARTIAL_CONTENT if resumed => match content_range(&response) {
                Some((Some(start), total)) if start == self.length => {
                    self.pending.total = total.or(self.pending.total);
                }
                _ => {
                    self.restart(Pending::default())?;
                    return Err(Failure::retry(unavailable(url, "the server resumed at a wrong position")));
                }
            },
            StatusCode::OK => {
                self.restart(Pending { validator: Validator::of(&response), total: response.content_length() })?;
            }
            status => return Err(Failure::done(answered(url, status))),
        }
        self.receive(http, url, response, events)?;
        Ok(self.complete(resumed))
    }

    fn receive(&mut self, http: &Http, url: &Url, mut response: Response, events: Sink) -> Result<(), Failure> {
        let mut buffer = vec![0; BUFFER];
        loop {
            http.check_deadline(url)?;
            let n = response.read(&mut buffer).map_err(|error| {
                let why = format!("the download was interrupted after {} bytes", self.length);
                Failure::retry(Error::new(error).context(unavailable(url, &why)))
            })?;
            if n == 0 {
                break;
            }
            self.file.write_all(&buffer[..n]).doing("write", &self.path)?;
            self.hasher.update(&buffer[..n]);
            self.length += n as u64;
            if self.length.max(self.pending.total.unwrap_or(0)) > MAX_TOTAL {
                return Err(Failure::done(invalid(
                    "ReleaseTooLarge",
                    format!("{} is refused: it is larger than {} GiB", shown(url), MAX_TOTAL >> 30),
                )));
            }
            events(Event::Progress { phase: phase::FETCH, current: self.length, total: self.pending.total });
        }
        match self.pending.total {
            Some(total) if total != self.length => {
                let why = format!("the server sent {} of {total} bytes", self.length);
                Err(Failure::retry(unavailable(url, &why)))
            }
            _ => Ok(()),
        }
    }

    fn complete(&self, resumed: bool) -> Outcome {
        Outcome::Complete { sha256: Sha256::from_digest(&self.hasher.clone().finalize()), resumed }
    }

    /// Starts again, and records what is needed to resume.
    fn restart(&mut self, pending: Pending) -> Result<()> {
        self.file.set_len(0).doing("write", &self.path)?;
        self.file.seek(SeekFrom::Start(0)).doing("write", &self.path)?;
        (self.length, self.hasher, self.pending) = (0, sha2::Sha256::new(), pending);
        let state = state_path(&self.path);
        std::fs::write(&state, serde_json::to_vec(&self.pending)?).doing("write", &state)
    }

    /// Moves the finished file into the cache.
    fn keep(self, archive: &Path) -> Result<()> {
        self.file.sync_all().doing("write", &self.path)?;
        drop(self.file);
        rename(&self.path, archive).doing("make", archive)?;
        // The next download of the URL writes it again.
        drop(std::fs::remove_file(state_path(&self.path)));
        Ok(())
    }

    fn discard(self) {
        drop(self.file);
        // A file that cannot be removed now is overwritten by the next download.
        drop(std::fs::remove_file(&self.path));
        drop(std::fs::remove_file(state_path(&self.path)));
    }
}

impl Validator {
    fn of(response: &Response) -> Self {
        let text = |name: HeaderName| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        Self { etag: text(ETAG), last_modified: text(LAST_MODIFIED) }
    }

    /// The validator for `If-Range`, which does not accept a weak ETag.
    fn strong(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/")).or(self.last_modified.as_deref())
    }
}

fn state_path(part: &Path) -> PathBuf {
    part.with_extension("part.json")
}

/// Hashes the rest of a file; returns its number of bytes.
fn feed(file: &mut File, hasher: &mut sha2::Sha256) -> std::io::Result<u64> {
    let mut buffer = vec![0; BUFFER];
    let mut length = 0;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        length += n as u64;
    }
    Ok(length)
}

/// The start and total of `Content-Range: bytes 5-9/10` or `bytes */10`.
fn content_range(response: &Response) -> Option<(Option<u64>, Option<u64>)> {
    let text = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-').and_then(|(start, _)| start.parse().ok());
    Some((start, total.parse().ok()))
}
