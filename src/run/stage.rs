//! The release: in place already, or downloaded, verified and staged.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::app::App;
use super::context::Operation;
use crate::apply::receipt::{About, Receipt};
use crate::apply::retention;
use crate::apply::standing::Standing;
use crate::apply::store;
use crate::calico::layout::{Build, Layout};
use crate::config::Layered;
use crate::fault::{Exit, Fault};
use crate::item::{Id, Manifest, State, Tree};
use crate::node::{Node, files, trust};
use crate::release::{self, archive::Archive, download::Cache, stage::StageOptions};
use crate::report::event::{Event, Sink};
use crate::report::text;
use crate::settings::{self, Connection, Source};
use crate::values::Sha256;
use crate::version::CalicoVersion;

/// A verified release, and the folder of its files.
pub(crate) struct Release {
    pub manifest: Manifest,
    /// None if the files need not be read: they are in place already.
    pub tree: Option<PathBuf>,
    /// It was staged in the node's store just now, and its program has not run here yet.
    pub is_new: bool,
    /// A folder that is deleted with this value: a plan stages beside the node, not on it.
    _scratch: Option<Scratch>,
}

/// Returns the release that a config names: in place already, or downloaded, verified and staged.
pub(crate) fn find_release(
    op: &mut Operation<'_>,
    calico: &settings::Calico,
    connection: &Connection,
    purpose: Purpose,
) -> Result<Release> {
    let Operation { app, context, node, .. } = op;
    let standing = &context.standing;
    Layout::of(&calico.version)?;
    if let Some((manifest, tree)) = current_release(*node, standing, calico)? {
        let place = if tree.is_some() { "kept" } else { "in place" };
        let message = format!("Calico {} is {place}", manifest.version);
        app.event(&Event::PhaseSkipped { phase: "release", reason: message });
        return Ok(Release { manifest, tree, is_new: false, _scratch: None });
    }
    app.phase("release", |app| {
        let source = reachable(app, &calico.source, &calico.version)?;
        let cache = app.cache_dir(*node);
        let mut events = |event| app.event(&event);
        let found = release::locate::locate(
            &source,
            Some(&calico.version),
            calico.sha256.as_ref(),
            &cache,
            connection,
            &mut events,
        )?;
        let version = &calico.version;
        let sha256 = found.sha256.as_ref();
        let (staged, scratch) = match purpose {
            Purpose::Look => {
                let scratch = Scratch::new()?;
                let tree = scratch.0.join("tree");
                let options = StageOptions { version, sha256, layout: &check_layout };
                let staged = release::stage::stage(&found.path, &tree, &options, &mut events);
                (staged.map(|manifest| (manifest, tree)), Some(scratch))
            }
            Purpose::Install => (into_store(app, *node, standing, (&found.path, sha256), version), None),
        };
        if let (Err(error), Source::Url(_)) = (&staged, &source) {
            forget_damaged(&found.path, error);
        }
        let (manifest, tree) = staged?;
        let size: u64 = manifest.files.values().map(|file| file.size).sum();
        let digest =
            manifest.archive.as_ref().map_or_else(String::new, |digest| format!(", sha256 {} ok", digest.short()));
        let message =
            format!("Calico {}, {} files, {}{digest}", manifest.version, manifest.files.len(), text::bytes(size));
        let is_new = purpose == Purpose::Install;
        Ok((Release { manifest, tree: Some(tree), is_new, _scratch: scratch }, message))
    })
}

/// Extracts a release into the node's store, verified. Returns its manifest and its folder.
fn into_store(
    app: &mut App,
    node: &dyn Node,
    standing: &Standing,
    (release, sha256): (&Path, Option<&Sha256>),
    version: &CalicoVersion,
) -> Result<(Manifest, PathBuf)> {
    let dest = node.disk(&store::tree("staging"));
    if dest.exists() {
        std::fs::remove_dir_all(&dest).context("remove what an earlier run left half-staged")?;
    }
    let options = StageOptions { version, sha256, layout: &check_layout };
    let manifest = release::stage::stage(release, &dest, &options, &mut |event| app.event(&event))?;
    let receipts: Vec<&Receipt> = standing.receipts.iter().collect();
    let kept = store::discard_tree(node, &receipts, manifest.digest().as_str()).context("replace a staged release")?;
    kept.iter().for_each(|folder| app.event(&retention::files_kept(folder)));
    let staged = node.disk(&store::tree(manifest.digest().as_str()));
    files::rename(&dest, &staged).context("put the staged release into the store")?;
    Ok((manifest, staged))
}

/// Puts the release of a generation into the store again, from the cache or from its original place: that needs neither
/// cluster nor network. None if neither has it any more.
pub(crate) fn again(op: &mut Operation<'_>, about: &About) -> Result<Option<(Manifest, PathBuf)>> {
    let Operation { app, context, node, .. } = op;
    let Some(sha256) = &about.archive else { return Ok(None) };
    let cached = Cache::at(&app.cache_dir(*node)).archive(sha256)?;
    let whole = |file: &PathBuf| store::digest(file).is_ok_and(|digest| digest == *sha256);
    let Some(archive) = cached.or_else(|| Some(PathBuf::from(&about.source)).filter(whole)) else { return Ok(None) };
    app.phase("release", |app| {
        let release = (archive.as_path(), Some(sha256));
        let staged = into_store(app, *node, &context.standing, release, &about.calico_version)?;
        try_program(app, *node, &staged.1, &about.calico_version)?;
        let message =
            format!("Calico {}, from the archive that is still here (sha256 {})", about.calico_version, sha256.short());
        Ok((Some(staged), message))
    })
}

/// Runs the new program for its version, once the change is confirmed and while the current installation still works:
/// one that does not run here, or is of another version, would otherwise fail while the services are stopped.
pub(crate) fn try_program(app: &mut App, node: &dyn Node, tree: &Path, version: &CalicoVersion) -> Result<()> {
    let layout = Layout::of(version)?;
    let name = layout.node_binary();
    let said = node.ask(&tree.join(name), layout.version_words()).map_err(|error| {
        Fault::new(
            Exit::ReleaseInvalid,
            "ReleaseDoesNotRun",
            format!("{name} of Calico {version} does not run on this machine"),
        )
        .hint("use the zip for Windows on this machine's processor; a virus scanner or AppLocker may hold it, too")
        .because(error)
    })?;
    let Some(said) = said else { return Ok(()) };
    match differs(version, &said) {
        None => Ok(()),
        Some(true) => {
            let what = format!("{name} says that it is {said}, and the release is called {version}");
            Err(Fault::new(Exit::ReleaseInvalid, "ReleaseOtherVersion", what)
                .hint("name the version that it really is: command lines and files differ between versions")
                .into())
        }
        Some(false) => {
            let said = said.lines().next().unwrap_or_default();
            app.warn(
                "ReleaseOfNoVersion",
                format!("{name} is a build without a version (`{said}`): it is run as {version}"),
            );
            Ok(())
        }
    }
}

/// Whether a program reports another version than it should; false if it reports none, as private builds do; none if it
/// matches.
fn differs(version: &CalicoVersion, said: &str) -> Option<bool> {
    let words = said.split(|letter: char| letter.is_whitespace() || letter == ',');
    let mut versions = words.filter(|word| word.contains('.')).filter_map(|word| word.parse::<CalicoVersion>().ok());
    match versions.next() {
        Some(found) if !found.reaches(0, 0, 1) => Some(false),
        // A build between two releases has the number of the previous one, or of the next one.
        Some(found) => (found.line() != version.line()).then_some(true),
        None => Some(false),
    }
}

/// Removes a damaged download from the cache, so that it is not used again.
fn forget_damaged(archive: &Path, error: &anyhow::Error) {
    let broken = ["ReleaseDamaged", "ReleaseTruncated", "ReleaseNotZip"];
    if broken.contains(&Fault::id_of(error)) {
        let _next_download_replaces_it = std::fs::remove_file(archive);
    }
}

/// Checks that a version has the required files.
pub(crate) fn check_layout(version: &CalicoVersion, files: &[&str]) -> Result<()> {
    let layout = Layout::of(version)?;
    layout
        .check(files.iter().copied())
        .map_err(|missing| layout.refusal(&missing, Build::guess(files.iter().copied())).into())
}

/// Opens the zip of a release and checks it, with the files that its version must have if one is named.
pub(crate) fn check_archive(
    zip: &Path,
    sha256: Option<&Sha256>,
    version: Option<&CalicoVersion>,
    events: Sink,
) -> Result<Archive> {
    let archive = Archive::open(zip, sha256, events)?;
    if let Some(version) = version {
        check_layout(version, &archive.paths().collect::<Vec<_>>())?;
    }
    Ok(archive)
}

/// Returns the current release, if it is the wanted one and unchanged; with its folder if an interrupted run has moved
/// it into the store, and another release is in its place.
fn current_release(
    node: &dyn Node,
    standing: &Standing,
    calico: &settings::Calico,
) -> Result<Option<(Manifest, Option<PathBuf>)>> {
    let Some((receipt, version, archive)) = standing.in_place() else { return Ok(None) };
    if *version != calico.version {
        return Ok(None);
    }
    let wanted = match &calico.source {
        // A folder has no digest to compare; a file's digest shows whether it is the same archive.
        Source::Directory(_) => return Ok(None),
        Source::File(file) if !Path::new(file).exists() => return Ok(None),
        Source::File(file) => Some(store::digest(Path::new(file))?),
        Source::Url(_) => calico.sha256.clone(),
    };
    if wanted.is_some() && wanted.as_ref() != archive {
        return Ok(None);
    }
    let root = Id::Tree(calico.root.clone());
    let Some(wanted @ State::Tree(Tree::Release(digest))) = receipt.target.world.get(&root) else { return Ok(None) };
    if node.get(&root)?.as_ref() == Some(wanted) {
        return Ok(Some((store::manifest(&node.disk(&calico.root))?, None)));
    }
    if !store::holds(node, wanted) {
        return Ok(None);
    }
    let kept = node.disk(&store::tree(digest.as_str()));
    Ok(Some((store::manifest(&kept)?, Some(kept))))
}

/// Checks what is known of the release that a config names without any server.
pub(crate) fn check_named(layered: &Layered) -> Result<()> {
    let wanted = settings::release(layered)?;
    Layout::of(&wanted.version)?;
    Ok(release::locate::check_there(&wanted.source)?)
}

/// Returns the source to download from; a sandbox replaces the name of its own source of releases.
pub(crate) fn reachable(app: &App, source: &Source, version: &CalicoVersion) -> Result<Source> {
    Ok(match (source, &app.connector.env) {
        (Source::Url(url), Some(env)) => Source::Url(env.release_url(url, version)?),
        _ => source.clone(),
    })
}

/// A folder on this machine that is removed when it is dropped.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Result<Self> {
        let path = trust::temporary("calicoctl-win", "");
        // Not one that is there already.
        std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _temporary_files_may_stay = std::fs::remove_dir_all(&self.0);
    }
}

/// How far `prepare` may go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing on the node changes, not even the store.
    Look,
    /// The release is staged in the node's store.
    Install,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_line_differs_from_one_without_a_version() {
        let version = CalicoVersion::new(3, 32, 1);
        for (said, differs) in [
            ("v3.32.1", None),
            ("v3.32.0-48-gdeadbeef", None),
            ("calico version v3.32.1, commit 0a1b2c", None),
            ("v3.30.3", Some(true)),
            ("v3.33.0-0.dev", Some(true)),
            ("v0.0.0-dev", Some(false)),
            ("<unknown>", Some(false)),
            ("", Some(false)),
        ] {
            assert_eq!(super::differs(&version, said), differs, "{said}");
        }
    }
}
