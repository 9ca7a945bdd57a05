//! `release download|verify|extract|list`.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::args::Release;
use super::documents::{ReleaseList, ReleaseVerification};
use crate::fault::{Exit, Fault};
use crate::release::archive::{Archive, version_in};
use crate::release::download::{Cache, Cached};
use crate::release::extract::{ExtractOptions, check_data, extract};
use crate::release::locate;
use crate::report::document::RunResult;
use crate::report::event::Event;
use crate::report::text;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::options::Source;
use crate::run::sources::Choice;
use crate::run::stage::{cache_dir, check_layout, reachable};
use crate::run::verb::PREFLIGHT;
use crate::settings;
use crate::values::{Sha256, count};
use crate::version::CalicoVersion;

pub(crate) fn run(verb: &Release, app: &mut App) -> Result<Ending> {
    match verb {
        Release::Download { source } => download(source, app),
        Release::Verify { zip, sha256, version } => verify(zip, sha256.as_deref(), version.as_deref(), app),
        Release::Extract { zip, dest, sha256, version } => {
            unpack(zip, dest, sha256.as_deref(), version.as_deref(), app)
        }
        Release::List => list(app),
    }
}

/// Downloads the release that config and flags name into the cache. Also used by `install --download-only`.
pub(crate) fn download(source: &Source, app: &mut App) -> Result<Ending> {
    let (node, context) = app.look(&PREFLIGHT, &Choice { source: source.clone(), ..Choice::default() })?;
    let layered = context.config(&*node)?;
    let wanted = settings::release(layered)?;
    let connection = settings::connection(layered, None);
    let from = reachable(app, &wanted.source, &wanted.version)?;
    let cache = cache_dir(app, &*node);
    if app.global.dry_run {
        return app.would(format!("fetch Calico {} into {}", wanted.version, cache.display()));
    }
    let found = app.phase("fetch", |app| {
        let found =
            locate::locate(&from, Some(&wanted.version), wanted.sha256.as_ref(), &cache, &connection, &mut |event| {
                app.event(&event);
            })?;
        if !found.path.is_dir() {
            check(&found.path, found.sha256.as_ref(), Some(&wanted.version), &mut |event| app.event(&event))?;
        }
        let message = found.path.display().to_string();
        Ok((found, message))
    })?;
    let msg = format!("Calico {} is at {}", wanted.version, found.path.display());
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, true, msg);
    result.path = Some(found.path);
    Ending::result(result)
}

fn verify(zip: &Path, sha256: Option<&str>, version: Option<&str>, app: &mut App) -> Result<Ending> {
    let (sha256, version) = (digest(sha256)?, named_version(zip, version)?);
    let archive = check(zip, sha256.as_ref(), version.as_ref(), &mut |event| app.event(&event))?;
    check_data(&archive)?;
    let files = archive.paths().count();
    let msg = format!(
        "{}: {}, {}, sha256 {}",
        zip.display(),
        count(files, "file"),
        text::bytes(archive.total()),
        archive.sha256
    );
    let body = ReleaseVerification {
        path: zip.into(),
        sha256: archive.sha256.clone(),
        files,
        bytes: archive.total(),
        version,
    };
    app.reporter.document(&body, &msg);
    Ending::shown(Exit::Ok, msg)
}

fn unpack(zip: &Path, dest: &Path, sha256: Option<&str>, version: Option<&str>, app: &mut App) -> Result<Ending> {
    let (sha256, version) = (digest(sha256)?, named_version(zip, version)?);
    if app.global.dry_run {
        check(zip, sha256.as_ref(), version.as_ref(), &mut |event| app.event(&event))?;
        return app.would(format!("extract {} into {}", zip.display(), dest.display()));
    }
    if version.is_some() {
        // Layout first: extraction alone checks the entries, not the files that a version must have.
        check(zip, sha256.as_ref(), version.as_ref(), &mut |event| app.event(&event))?;
    }
    let begun = Instant::now();
    app.event(&Event::PhaseStarted { phase: "unpack", place: None });
    let done = extract(zip, dest, &ExtractOptions { sha256 }, &mut |event| app.event(&event))?;
    let message = format!("{}, {} into {}", count(done.files, "file"), text::bytes(done.bytes), dest.display());
    app.event(&Event::PhaseCompleted {
        phase: "unpack",
        message: message.clone(),
        changed: true,
        took: begun.elapsed(),
    });
    Ending::result(RunResult::new(Exit::Ok, true, message))
}

fn list(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let archives = Cache::at(&cache_dir(app, &*node)).list()?;
    let version = |cached: &Cached| cached.version.as_ref().map_or_else(|| "unknown".into(), ToString::to_string);
    let line = |cached: &Cached| {
        format!("{:<10} {:>10}  {}\n", version(cached), text::bytes(cached.bytes), cached.path.display())
    };
    let (text, counted): (String, _) = (archives.iter().map(line).collect(), count(archives.len(), "archive"));
    let text = if text.is_empty() { "the cache is empty".into() } else { text };
    app.reporter.document(&ReleaseList { archives }, &text);
    Ending::shown(Exit::Ok, counted)
}

fn check(
    zip: &Path,
    sha256: Option<&Sha256>,
    version: Option<&CalicoVersion>,
    events: crate::report::event::Sink,
) -> Result<Archive> {
    let archive = Archive::open(zip, sha256, events)?;
    if let Some(version) = version {
        check_layout(version, &archive.paths().collect::<Vec<_>>())?;
    }
    Ok(archive)
}

fn digest(text: Option<&str>) -> Result<Option<Sha256>> {
    let parse =
        |text: &str| text.parse().map_err(|why: String| Fault::new(Exit::Usage, "Usage", format!("--sha256: {why}")));
    Ok(text.map(parse).transpose()?)
}

fn named_version(zip: &Path, version: Option<&str>) -> Result<Option<CalicoVersion>> {
    let parse =
        |text: &str| text.parse().map_err(|why: String| Fault::new(Exit::Usage, "Usage", format!("--version: {why}")));
    Ok(version.map(parse).transpose()?.or_else(|| zip.file_name().and_then(|name| version_in(&name.to_string_lossy()))))
}
