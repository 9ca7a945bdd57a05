//! `release download|bundle|verify|extract|list`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::args::Release;
use super::documents::{ReleaseList, ReleaseVerification};
use crate::fault::{Exit, Fault};
use crate::release::archive::version_in;
use crate::release::bundle::{self, Bundle};
use crate::release::download::{Cache, Cached};
use crate::release::extract::{ExtractOptions, check_data, extract};
use crate::release::locate;
use crate::report::document::RunResult;
use crate::report::event::Event;
use crate::report::text;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::bundle::Packing;
use crate::run::options::Source;
use crate::run::sources::{Choice, digest};
use crate::run::stage::{Scratch, check_archive, reachable};
use crate::run::verb::PREFLIGHT;
use crate::settings;
use crate::values::count;
use crate::version::CalicoVersion;

pub(crate) fn run(verb: &Release, app: &mut App) -> Result<Ending> {
    match verb {
        Release::Download { source } => download(source, app),
        Release::Bundle { source, out, executable } => pack(source, out, executable.as_deref(), app),
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
    let cache = app.cache_dir(&*node);
    if app.global.is_dry_run() {
        return app.would(format!("fetch Calico {} into {}", wanted.version, cache.display()));
    }
    let found = app.phase("fetch", |app| {
        let found =
            locate::locate(&from, Some(&wanted.version), wanted.sha256.as_ref(), &cache, &connection, &mut |event| {
                app.event(&event);
            })?;
        if !found.path.is_dir() {
            check_archive(&found.path, found.sha256.as_ref(), Some(&wanted.version), &mut |event| app.event(&event))?;
        }
        let message = found.path.display().to_string();
        Ok((found, message))
    })?;
    let msg = format!("Calico {} is at {}", wanted.version, found.path.display());
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, false, msg);
    result.path = Some(found.path);
    Ending::result(result)
}

/// Packs everything that a node without downloads needs into one file.
fn pack(source: &Source, out: &Path, executable: Option<&Path>, app: &mut App) -> Result<Ending> {
    bundle::check_new(out)?;
    let packing = Packing::open(app, source)?;
    let contents = packing.contents()?;
    if app.global.is_dry_run() {
        return app.would(format!("pack {contents} into {}", out.display()));
    }
    let Bundle { sha256, files, bytes, calico, .. } = packing.pack(app, out, executable)?;
    let body = ReleaseVerification { path: out.into(), sha256, files, bytes, version: Some(calico) };
    let written = std::fs::metadata(out).with_context(|| format!("look at {}", out.display()))?.len();
    let (path, files, written) = (out.display(), count(body.files, "file"), text::bytes(written));
    let msg = format!("{path}: {contents}, {files} of {written}, sha256 {}", body.sha256);
    app.reporter.document(&body, &msg);
    Ending::shown(Exit::Ok, msg)
}

fn verify(zip: &Path, sha256: Option<&str>, version: Option<&str>, app: &mut App) -> Result<Ending> {
    let (sha256, version) = (sha256.map(digest).transpose()?, named_version(zip, version)?);
    let (path, mut events) = (zip.to_owned(), |event| app.event(&event));
    let body = if bundle::is_one(zip) {
        let scratch = Scratch::new()?;
        let found = bundle::unpack(zip, sha256.as_ref(), &scratch.0)?;
        let release = Cache::at(&scratch.0).archive(&found.release)?.context("read the release in the bundle")?;
        check_data(&check_archive(&release, None, version.as_ref().or(Some(&found.calico)), &mut events)?)?;
        let Bundle { sha256, files, bytes, calico, .. } = found;
        ReleaseVerification { path, sha256, files, bytes, version: Some(calico) }
    } else {
        let archive = check_archive(zip, sha256.as_ref(), version.as_ref(), &mut events)?;
        check_data(&archive)?;
        let (files, bytes) = (archive.paths().count(), archive.total());
        ReleaseVerification { path, sha256: archive.sha256, files, bytes, version }
    };
    let (files, bytes) = (count(body.files, "file"), text::bytes(body.bytes));
    let msg = format!("{}: {files}, {bytes}, sha256 {}", zip.display(), body.sha256);
    app.reporter.document(&body, &msg);
    Ending::shown(Exit::Ok, msg)
}

fn unpack(zip: &Path, dest: &Path, sha256: Option<&str>, version: Option<&str>, app: &mut App) -> Result<Ending> {
    let (sha256, version) = (sha256.map(digest).transpose()?, named_version(zip, version)?);
    if app.global.is_dry_run() {
        check_archive(zip, sha256.as_ref(), version.as_ref(), &mut |event| app.event(&event))?;
        return app.would(format!("extract {} into {}", zip.display(), dest.display()));
    }
    if version.is_some() {
        // Layout first: extraction alone checks the entries, not the files that a version must have.
        check_archive(zip, sha256.as_ref(), version.as_ref(), &mut |event| app.event(&event))?;
    }
    let begun = Instant::now();
    app.event(&Event::PhaseStarted { phase: "unpack", place: None });
    let done = extract(zip, dest, &ExtractOptions { sha256 }, &mut |event| app.event(&event))?;
    let message = format!("{}, {} into {}", count(done.files, "file"), text::bytes(done.bytes), dest.display());
    app.event(&Event::PhaseCompleted {
        phase: "unpack",
        message: message.clone(),
        changed: false,
        took: begun.elapsed(),
    });
    Ending::result(RunResult::new(Exit::Ok, false, message))
}

fn list(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let archives = Cache::at(&app.cache_dir(&*node)).list()?;
    let version = |cached: &Cached| cached.version.as_ref().map_or_else(|| "unknown".into(), ToString::to_string);
    let line = |cached: &Cached| {
        format!("{:<10} {:>10}  {}\n", version(cached), text::bytes(cached.bytes), cached.path.display())
    };
    let (text, counted): (String, _) = (archives.iter().map(line).collect(), count(archives.len(), "archive"));
    let text = if text.is_empty() { "the cache is empty".into() } else { text };
    app.reporter.document(&ReleaseList { archives }, &text);
    Ending::shown(Exit::Ok, counted)
}

fn named_version(zip: &Path, version: Option<&str>) -> Result<Option<CalicoVersion>> {
    let parse =
        |text: &str| text.parse().map_err(|why: String| Fault::new(Exit::Usage, "Usage", format!("--version: {why}")));
    Ok(version.map(parse).transpose()?.or_else(|| zip.file_name().and_then(|name| version_in(&name.to_string_lossy()))))
}
