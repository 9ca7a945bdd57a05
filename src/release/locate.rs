//! Finds the release of the config: a file or folder on this machine, its version, and its expected digest.

use std::path::{Path, PathBuf};

use anyhow::Result;
use reqwest::Url;
use reqwest::header::RANGE;

use super::archive::version_in;
use super::download::Cache;
use super::files::PathContext;
use super::invalid;
use super::transport::{Failure, Http, shown};
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::settings::Connection;
use crate::settings::Source;
use crate::values::{Sha256, is_this_machine};
use crate::version::CalicoVersion;

/// A release on this machine, not yet opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The archive, or the folder of an extracted one.
    pub path: PathBuf,
    pub version: CalicoVersion,
    /// The expected digest of the archive: from the config, from a file next to it, or (with a warning) computed while
    /// it was downloaded.
    pub sha256: Option<Sha256>,
    /// Its source, for people.
    pub from: String,
}

/// Finds a release, and downloads it into `cache` if it is not there yet.
///
/// `version` and `pinned` are the config's. Without a version, the file's name must contain it; if both do, they must
/// match. Without a pinned digest, `<name>.sha256` or `SHA256SUMS` next to the archive has it; else there is a
/// warning `ReleaseNotPinned`.
///
/// # Errors
/// `ReleaseVersion`, `ReleaseNotFound`, `ReleaseOffline`, `ReleaseInsecure`, `ReleaseDigestFile`, and those of [`Cache::fetch`].
pub fn locate(
    source: &Source,
    version: Option<&CalicoVersion>,
    pinned: Option<&Sha256>,
    cache: &Path,
    connection: &Connection,
    events: Sink,
) -> Result<Located> {
    check_there(source)?;
    match source {
        Source::Directory(path) => {
            let path = PathBuf::from(path);
            if pinned.is_some() {
                let what = format!("{} is a folder, and only an archive has a SHA-256", path.display());
                return Err(invalid("ReleaseDigest", what)
                    .hint("name the zip, or remove the digest to trust the folder")
                    .into());
            }
            let version = version.cloned().ok_or_else(|| {
                invalid("ReleaseVersion", format!("the name of {} does not have a version", path.display()))
                    .hint("set calico.version in the config")
            })?;
            Ok(Located { from: path.display().to_string(), path, version, sha256: None })
        }
        Source::File(path) => {
            let path = PathBuf::from(path);
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let version = agree(version, &name)?;
            let sha256 = match pinned {
                Some(pinned) => Some(pinned.clone()),
                None => digest_next_to(&path, &name)?,
            };
            if sha256.is_none() {
                events(not_pinned(&path.display().to_string()));
            }
            Ok(Located { from: path.display().to_string(), path, version, sha256 })
        }
        Source::Url(text) => {
            let url = parse(text)?;
            let name = url.path_segments().and_then(Iterator::last).unwrap_or_default().to_owned();
            let version = agree(version, &name)?;
            let (path, sha256) = fetch(&url, &name, pinned, &Cache::at(cache), connection, events)?;
            Ok(Located { from: shown(&url), path, version, sha256: Some(sha256) })
        }
    }
}

pub(super) fn fetch(
    url: &Url,
    name: &str,
    pinned: Option<&Sha256>,
    cache: &Cache<'_>,
    connection: &Connection,
    events: Sink,
) -> Result<(PathBuf, Sha256)> {
    if let Some(pinned) = pinned
        && let Some(path) = cache.archive(pinned)?
    {
        return Ok((path, pinned.clone()));
    }
    if connection.offline {
        if pinned.is_none()
            && let Some(found) = cache.last_of(url)?
        {
            events(not_pinned(&shown(url)));
            return Ok(found);
        }
        return Err(invalid(
            "ReleaseOffline",
            format!("{} is not in the cache, and --offline does not allow to download it", shown(url)),
        )
        .hint("copy the archive to this machine and name it with --release FILE, or run without --offline")
        .into());
    }
    if pinned.is_none() && url.scheme() == "http" && !is_this_machine(url.host_str().unwrap_or_default()) {
        // Who can change the archive on its way can change the digest next to it, and SYSTEM runs what is in it.
        let what = format!("{} has no encryption, so neither the file nor its digest there can be trusted", shown(url));
        return Err(invalid("ReleaseInsecure", what)
            .hint(format!("use https, or set the SHA-256 of {name} in the config: {}", digest_field(name)))
            .into());
    }
    let http = Http::new(connection)?;
    let published = match pinned {
        Some(_) => None,
        None => digest_published(&http, url, name, events)?,
    };
    let expected = pinned.or(published.as_ref());
    match expected {
        Some(expected) => {
            if let Some(path) = cache.archive(expected)? {
                return Ok((path, expected.clone()));
            }
        }
        None => events(not_pinned(&shown(url))),
    }
    cache.fetch(&http, url, expected, events)
}

/// Whether a release can be found, as [`locate`] does, without downloading it: the server that answers, or the place.
///
/// # Errors
/// As [`locate`].
pub fn available(source: &Source, pinned: Option<&Sha256>, cache: &Path, connection: &Connection) -> Result<String> {
    check_there(source)?;
    match source {
        Source::Directory(path) | Source::File(path) => Ok(path.clone()),
        Source::Url(text) => answers(&parse(text)?, "", pinned, &Cache::at(cache), connection),
    }
}

pub(super) fn answers(
    url: &Url,
    name: &str,
    pinned: Option<&Sha256>,
    cache: &Cache<'_>,
    connection: &Connection,
) -> Result<String> {
    let is_cached = pinned.is_some_and(|pinned| matches!(cache.archive(pinned), Ok(Some(_))));
    if connection.offline || is_cached {
        // Asks no server.
        return fetch(url, name, pinned, cache, connection, &mut |_| ()).map(|_| "in the cache".into());
    }
    let http = Http::new(connection)?;
    match http.send(url, http.get(url).header(RANGE, "bytes=0-0")) {
        Ok(_) => Ok(format!("{} answers", url.host_str().unwrap_or_default())),
        Err(Failure::Retry { error, .. } | Failure::Final(error)) => Err(error),
    }
}

pub(super) fn parse(text: &str) -> Result<Url, Fault> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // Not shown: text that is not a URL may still contain a password.
    url.ok_or_else(|| Fault::new(Exit::InvalidConfig, "ReleaseUrl", "the release's URL is not an http or https URL"))
}

/// Checks that a file or folder with a release exists; no server is asked.
///
/// # Errors
/// `ReleaseNotFound`.
pub fn check_there(source: &Source) -> Result<(), Fault> {
    let (path, there) = match source {
        Source::Directory(path) => (path, Path::new(path).is_dir()),
        Source::File(path) => (path, Path::new(path).is_file()),
        Source::Url(_) => return Ok(()),
    };
    if there {
        return Ok(());
    }
    Err(invalid("ReleaseNotFound", format!("there is no release at {path}"))
        .hint("check the path, or name a version or URL instead"))
}

fn agree(given: Option<&CalicoVersion>, name: &str) -> Result<CalicoVersion, Fault> {
    match (given, version_in(name)) {
        (Some(given), Some(found)) if *given != found => Err(invalid(
            "ReleaseVersion",
            format!("the config says {given}, but the archive is named `{}`", name.escape_debug()),
        )
        .hint("make calico.version and the archive agree")),
        (Some(given), _) => Ok(given.clone()),
        (None, Some(found)) => Ok(found),
        (None, None) => Err(invalid(
            "ReleaseVersion",
            format!("the name `{}` has no version, unlike calico-windows-v3.32.1.zip", name.escape_debug()),
        )
        .hint("set calico.version in the config")),
    }
}

pub(super) fn digest_next_to(archive: &Path, name: &str) -> Result<Option<Sha256>> {
    for (sum_file, sums) in [(format!("{name}.sha256"), false), ("SHA256SUMS".to_owned(), true)] {
        let path = archive.with_file_name(sum_file);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                if let Some(digest) = digest_in(&text, name, sums, &path.display().to_string())? {
                    return Ok(Some(digest));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).doing("read", &path),
        }
    }
    Ok(None)
}

fn digest_published(http: &Http, url: &Url, name: &str, events: Sink) -> Result<Option<Sha256>> {
    for (sum_file, sums) in [(format!("{name}.sha256"), false), ("SHA256SUMS".to_owned(), true)] {
        let mut sum_url = url.clone();
        if let Ok(mut segments) = sum_url.path_segments_mut() {
            segments.pop().push(&sum_file);
        }
        if let Some(text) = http.text(&sum_url, events)?
            && let Some(digest) = digest_in(&text, name, sums, &shown(&sum_url))?
        {
            return Ok(Some(digest));
        }
    }
    Ok(None)
}

/// Reads the output of sha256sum: `<digest>  <name>` or `<digest> *<name>` in each line. A file for one archive (`sums`
/// false) may contain only the digest.
fn digest_in(text: &str, name: &str, sums: bool, from: &str) -> Result<Option<Sha256>, Fault> {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (digest, of) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let of = of.trim_start().trim_start_matches('*');
        if of.rsplit(['/', '\\']).next() == Some(name) || (!sums && of.is_empty()) {
            return digest.parse().map(Some).map_err(|why| {
                invalid("ReleaseDigestFile", format!("{from}: {why}"))
                    .hint(format!("correct that file, or set the digest in the config: {}", digest_field(name)))
            });
        }
    }
    Ok(None)
}

/// The field of the config with the digest of a file.
fn digest_field(name: &str) -> &'static str {
    match name {
        "kubelet.exe" => "kubernetes.node.source.kubeletSHA256",
        "kube-proxy.exe" => "kubernetes.node.source.kubeProxySHA256",
        _ if name.starts_with("containerd-") => "kubernetes.node.containerd.sha256",
        _ => "calico.source.sha256",
    }
}

pub(super) fn not_pinned(what: &str) -> Event {
    Event::Warning {
        id: "ReleaseNotPinned",
        message: format!(
            "release not verified: no SHA-256 of {what} is in the config, or in a .sha256 or SHA256SUMS file next to it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Layered;
    use crate::release::testing::names;
    use crate::sandbox::mirror::ReleaseFault::{
        Corrupt, IgnoreRange, NoSums, NotFound, Reset, Slow, Truncate, Unavailable,
    };
    use crate::sandbox::mirror::{Asked, ReleaseFault, ReleaseServer};
    use crate::sandbox::release::SyntheticRelease;
    use crate::settings;

    fn version() -> CalicoVersion {
        CalicoVersion::new(3, 32, 1)
    }

    fn usual() -> Connection {
        settings::connection(&Layered::default(), None)
    }

    /// A mirror and a machine that downloads from it.
    struct Download {
        server: ReleaseServer,
        cache: tempfile::TempDir,
        connection: Connection,
        warnings: Vec<&'static str>,
    }

    impl Download {
        fn from(faults: &[ReleaseFault]) -> Self {
            let connection =
                Connection { no_proxy: vec!["*".into()], backoff: Duration::from_millis(1), retries: 3, ..usual() };
            let server = ReleaseServer::start(&[version()], faults).unwrap();
            Self { server, cache: tempfile::tempdir().unwrap(), connection, warnings: Vec::new() }
        }

        fn run(&mut self, pinned: Option<&Sha256>) -> Result<Located> {
            let source = Source::Url(self.server.url(&version()));
            let warnings = &mut self.warnings;
            locate(&source, None, pinned, self.cache.path(), &self.connection, &mut |event| {
                if let Event::Warning { id, .. } = event {
                    warnings.push(id);
                }
            })
        }

        /// The requests for the archive itself.
        fn asked(&self) -> Vec<Asked> {
            self.server.asked().into_iter().filter(|asked| asked.path.ends_with(".zip")).collect()
        }
    }

    fn digest() -> Sha256 {
        Sha256::of(&SyntheticRelease::build(&version()))
    }

    fn is_whole(located: &Located) -> bool {
        std::fs::read(&located.path).unwrap() == SyntheticRelease::build(&version())
    }

    /// The server at this address would have to answer with both.
    #[test]
    fn a_mirror_without_encryption_requires_a_digest_in_the_config() {
        let cache = tempfile::tempdir().unwrap();
        let connection =
            Connection { no_proxy: vec!["*".into()], retries: 0, timeout: Duration::from_millis(1), ..usual() };
        let source = Source::Url("http://me:sesame@192.0.2.1/calico-windows-v3.32.1.zip".into());
        let locate = |pinned| locate(&source, None, pinned, cache.path(), &connection, &mut |_| {}).unwrap_err();
        let refused = locate(None);
        assert_eq!(Fault::id_of(&refused), "ReleaseInsecure");
        assert!(!format!("{refused:?}").contains("sesame"), "{refused:?}");
        assert_eq!(Fault::id_of(&locate(Some(&digest()))), "ReleaseUnavailable", "it is asked");
        for (name, field) in [
            ("calico-windows-v3.32.1.zip", "calico.source.sha256"),
            ("kubelet.exe", "kubernetes.node.source.kubeletSHA256"),
            ("kube-proxy.exe", "kubernetes.node.source.kubeProxySHA256"),
        ] {
            let url = parse(&format!("http://192.0.2.1/{name}")).unwrap();
            let refused = fetch(&url, name, None, &Cache::at(cache.path()), &connection, &mut |_| {}).unwrap_err();
            let hint = Fault::of(&refused).and_then(|fault| fault.hint.clone()).unwrap();
            assert!(hint.ends_with(&format!("set the SHA-256 of {name} in the config: {field}")), "{hint}");
        }
    }

    #[test]
    fn a_release_is_fetched_and_its_published_digest_found() {
        let mut download = Download::from(&[]);
        let located = download.run(None).unwrap();
        assert!(is_whole(&located));
        assert_eq!((&located.version, &located.sha256), (&version(), &Some(digest())));
        assert_eq!(located.from, download.server.url(&version()));
        assert!(download.warnings.is_empty());
        assert!(names(download.cache.path()).contains(&format!("{}.zip", digest())));
        assert_eq!(names(download.cache.path()).len(), 2, "the archive and the record of the URL");
    }

    #[test]
    fn a_fetched_release_is_not_fetched_again() {
        let mut download = Download::from(&[]);
        download.run(Some(&digest())).unwrap();
        let before = download.server.asked().len();
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        assert_eq!(download.server.asked().len(), before, "a pinned release needs no request at all");
        download.run(None).unwrap();
        assert_eq!(download.asked().len(), 1, "a published digest is enough");

        download.connection.offline = true;
        assert!(is_whole(&download.run(None).unwrap()));
    }

    /// Defect B6: an existing archive was used whatever its version or completeness.
    #[test]
    fn b6_a_damaged_archive_in_the_cache_is_fetched_again() {
        let mut download = Download::from(&[]);
        let located = download.run(Some(&digest())).unwrap();
        std::fs::write(&located.path, b"rotten").unwrap();
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        assert_eq!(download.asked().len(), 2);
    }

    #[test]
    fn an_interrupted_download_resumes() {
        let mut download = Download::from(&[Reset]);
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        let half = SyntheticRelease::build(&version()).len() / 2;
        let asked = download.asked();
        assert_eq!(asked.len(), 2);
        assert_eq!((asked[0].status, asked[0].range.as_deref()), (200, None));
        assert_eq!((asked[1].status, asked[1].range.clone()), (206, Some(format!("bytes={half}-"))));
        assert!(asked[1].if_range.is_some());
    }

    #[test]
    fn the_next_run_resumes_a_failed_download() {
        let mut download = Download::from(&[Reset]);
        download.connection.retries = 0;
        let error = download.run(Some(&digest())).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ReleaseUnavailable");
        assert!(error.to_string().contains("was interrupted after"), "{error}");
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        assert_eq!(download.asked().last().unwrap().status, 206);
    }

    #[test]
    fn a_server_that_cannot_resume_sends_everything() {
        // The first response is truncated, the second one is complete although only the rest was requested.
        let mut download = Download::from(&[Reset, IgnoreRange]);
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        let asked = download.asked();
        assert_eq!((asked.len(), asked[1].status, asked[1].range.is_some()), (2, 200, true));
    }

    #[test]
    fn a_finished_part_is_used_unchanged() {
        let mut download = Download::from(&[Reset]);
        download.connection.retries = 0;
        download.run(Some(&digest())).unwrap_err();
        let part = names(download.cache.path()).into_iter().find(|name| name.ends_with(".part")).unwrap();
        std::fs::write(download.cache.path().join(part), SyntheticRelease::build(&version())).unwrap();
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        assert_eq!(download.asked().last().unwrap().status, 416);
    }

    #[test]
    fn a_part_of_another_file_is_discarded() {
        let mut download = Download::from(&[Reset]);
        download.connection.retries = 0;
        download.run(Some(&digest())).unwrap_err();
        let part = names(download.cache.path()).into_iter().find(|name| name.ends_with(".part")).unwrap();
        let path = download.cache.path().join(part);
        let wrong = vec![0; usize::try_from(path.metadata().unwrap().len()).unwrap()];
        std::fs::write(&path, wrong).unwrap();
        download.connection.retries = 3;
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        let statuses: Vec<u16> = download.asked().iter().map(|asked| asked.status).collect();
        assert_eq!(
            statuses,
            [200, 206, 200, 206],
            "interrupted; resumed and wrong; from the start, interrupted; resumed"
        );
    }

    #[test]
    fn an_overloaded_server_is_retried_and_a_refusal_is_not() {
        let mut download = Download::from(&[Unavailable { times: Some(2) }]);
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
        assert_eq!(download.asked().len(), 3);

        for (fault, id, requests) in
            [(Unavailable { times: None }, "ReleaseUnavailable", 4), (NotFound, "ReleaseNotFound", 1)]
        {
            let mut download = Download::from(&[fault]);
            let error = download.run(Some(&digest())).unwrap_err();
            assert_eq!(Fault::id_of(&error), id);
            assert_eq!(download.asked().len(), requests, "{fault:?}");
        }
    }

    #[test]
    fn a_wrong_archive_is_refused_and_not_kept() {
        for fault in [Corrupt, Truncate] {
            let mut download = Download::from(&[fault]);
            let error = download.run(None).unwrap_err();
            assert_eq!(Fault::id_of(&error), "ReleaseDigest", "{fault:?}");
            assert!(names(download.cache.path()).is_empty(), "{:?}", names(download.cache.path()));
        }
    }

    #[test]
    fn a_slow_server_is_awaited_until_the_deadline() {
        let mut download = Download::from(&[Slow]);
        download.connection.download_timeout = Duration::from_millis(150);
        let error = download.run(Some(&digest())).unwrap_err();
        assert!(error.to_string().contains("took longer"), "{error}");
        download.connection.download_timeout = Duration::from_secs(60);
        assert!(is_whole(&download.run(Some(&digest())).unwrap()));
    }

    #[test]
    fn without_a_digest_there_is_a_warning_and_the_server_is_asked_whether_it_changed() {
        let mut download = Download::from(&[NoSums]);
        assert!(is_whole(&download.run(None).unwrap()));
        assert!(is_whole(&download.run(None).unwrap()));
        download.connection.offline = true;
        assert!(is_whole(&download.run(None).unwrap()));
        assert_eq!(download.warnings, ["ReleaseNotPinned"; 3]);
        let statuses: Vec<u16> = download.asked().iter().map(|asked| asked.status).collect();
        assert_eq!(statuses, [200, 304]);
    }

    #[test]
    fn offline_fetches_nothing() {
        let mut download = Download::from(&[]);
        download.connection.offline = true;
        assert_eq!(Fault::id_of(&download.run(None).unwrap_err()), "ReleaseOffline");
        assert!(download.server.asked().is_empty());
    }

    #[test]
    fn a_file_s_version_and_digest_are_found_next_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let name = "calico-windows-v3.32.1.zip";
        let archive = folder.path().join(name);
        std::fs::write(&archive, b"zip").unwrap();
        let find = |version: Option<CalicoVersion>| {
            let mut warnings = Vec::new();
            let source = Source::File(archive.display().to_string());
            let found = locate(&source, version.as_ref(), None, folder.path(), &usual(), &mut |e| {
                warnings.push(e);
            });
            (found, warnings.len())
        };
        let (found, warnings) = find(None);
        assert_eq!((found.unwrap().sha256, warnings), (None, 1));

        let (one, two) = (Sha256::of(b"one"), Sha256::of(b"two"));
        let sums = folder.path().join("SHA256SUMS");
        std::fs::write(&sums, format!("{one}  other.zip\n{two} *./{name}\n")).unwrap();
        let (found, warnings) = find(Some(version()));
        assert_eq!((found.unwrap().sha256, warnings), (Some(two), 0));

        let own = folder.path().join(format!("{name}.sha256"));
        std::fs::write(&own, format!("{one}\n")).unwrap();
        assert_eq!(find(None).0.unwrap().sha256, Some(one));
        std::fs::write(&own, "oops\n").unwrap();
        assert_eq!(Fault::id_of(&find(None).0.unwrap_err()), "ReleaseDigestFile");

        assert_eq!(Fault::id_of(&find(Some(CalicoVersion::new(3, 30, 0))).0.unwrap_err()), "ReleaseVersion");
    }

    #[test]
    fn secrets_in_a_url_are_not_shown() {
        let url = Url::parse("https://me:hunter2@mirror.example/c.zip?sig=hunter3#x").unwrap();
        assert_eq!(shown(&url), "https://mirror.example/c.zip");
    }

    #[test]
    fn a_missing_release_or_an_invalid_url_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere").display().to_string();
        for (source, id) in [
            (Source::File(nowhere.clone()), "ReleaseNotFound"),
            (Source::Directory(nowhere), "ReleaseNotFound"),
            (Source::Directory(folder.path().display().to_string()), "ReleaseVersion"),
            (Source::Url("ftp://user:hunter2@host/calico-windows-v3.32.1.zip".into()), "ReleaseUrl"),
            (Source::Url("http://127.0.0.1/release.zip".into()), "ReleaseVersion"),
        ] {
            let error = locate(&source, None, None, folder.path(), &usual(), &mut |_| {}).unwrap_err();
            assert_eq!(Fault::id_of(&error), id, "{source:?}");
            assert!(!format!("{error:#}").contains("hunter2"));
        }
        let (source, pinned) = (Source::Directory(folder.path().display().to_string()), Sha256::of(b"an archive"));
        let error = locate(&source, None, Some(&pinned), folder.path(), &usual(), &mut |_| {}).unwrap_err();
        assert_eq!(Fault::id_of(&error), "ReleaseDigest", "it would not be compared");
    }
}
