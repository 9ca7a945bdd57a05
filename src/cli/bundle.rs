//! `release bundle`: everything that a node without downloads needs, in one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::args::AGNHOST;
use super::documents::ReleaseVerification;
use crate::apply::standing::Standing;
use crate::calico::kubernetes::{ROLES, program};
use crate::calico::services::Role;
use crate::config::Layered;
use crate::fault::Exit;
use crate::release::bundle::{self, Parts};
use crate::release::{locate, programs};
use crate::report::text;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::options::Source;
use crate::run::sources::{Choice, Sources};
use crate::run::stage::{Scratch, check_archive, reachable};
use crate::run::verb::PREFLIGHT;
use crate::settings::{self, Containerd, InAdvance};
use crate::values::count;
use crate::version::{CalicoVersion, KubernetesVersion};

pub(crate) fn run(source: &Source, out: &Path, executable: Option<&Path>, app: &mut App) -> Result<Ending> {
    bundle::check_new(out)?;
    // Any machine can make one; a node knows its pause image and has a cache.
    let scratch = Scratch::new()?;
    let (layered, cache, own, pause) = if app.global.sandbox.is_some() || cfg!(windows) {
        let (node, context) = app.look(&PREFLIGHT, &Choice { source: source.clone(), ..Choice::default() })?;
        let pause = context.facts.runtime.as_ref().and_then(|runtime| runtime.sandbox_image.clone());
        (context.config(&*node)?.clone(), app.cache_dir(&*node), node.executable()?, pause)
    } else {
        let layered = Sources::named(app, source).read(None, &Standing::default())?;
        let own = std::env::current_exe().context("find our own executable")?;
        (layered, scratch.0.clone(), own, None)
    };
    if app.global.is_dry_run() {
        return app.would(format!("pack {} into {}", contents(&layered)?, out.display()));
    }
    let (calico, release) = app.phase("release", |app| fetch_release(app, &layered, &cache))?;
    let parts = Parts {
        calico,
        release,
        executable: executable.map_or(own, Path::to_owned),
        kubernetes: fetch_programs(app, &layered, &cache)?,
        containerd: find_containerd(app, &layered, &cache)?,
        images: pause.into_iter().chain([AGNHOST.to_owned()]).collect(),
    };
    bundle::write(out, &parts)?;
    // What was written is read like on a node.
    let made = bundle::unpack(out, None, &scratch.0.join("written"))?;
    let body = ReleaseVerification {
        path: out.into(),
        sha256: made.sha256,
        files: made.files,
        bytes: made.bytes,
        version: Some(made.calico),
    };
    let written = std::fs::metadata(out).with_context(|| format!("look at {}", out.display()))?.len();
    let msg = format!(
        "{}: {}, {} of {}, sha256 {}",
        out.display(),
        contents(&layered)?,
        count(body.files, "file"),
        text::bytes(written),
        body.sha256
    );
    app.reporter.document(&body, &msg);
    Ending::shown(Exit::Ok, msg)
}

/// What a config installs, in words.
fn contents(layered: &Layered) -> Result<String> {
    let calico = settings::release(layered)?.version;
    let programs = settings::kubernetes_programs(layered)?;
    let containerd =
        if programs.as_ref().is_some_and(|found| found.containerd.is_some()) { ", containerd" } else { "" };
    let programs =
        programs.map_or_else(String::new, |InAdvance { version, .. }| format!(", kubelet and kube-proxy {version}"));
    Ok(format!("Calico {calico}{programs}{containerd}"))
}

type Programs = (KubernetesVersion, BTreeMap<&'static str, PathBuf>);

/// Finds the zip of the release, and checks it.
fn fetch_release(app: &mut App, layered: &Layered, cache: &Path) -> Result<((CalicoVersion, PathBuf), String)> {
    let (wanted, connection) = (settings::release(layered)?, settings::connection(layered, None));
    let from = reachable(app, &wanted.source, &wanted.version)?;
    let mut events = |event| app.event(&event);
    let (version, sha256) = (Some(&wanted.version), wanted.sha256.as_ref());
    let found = locate::locate(&from, version, sha256, cache, &connection, &mut events)?;
    if found.path.is_dir() {
        let what = format!("{} is a folder, and a bundle has the zip of the release", found.path.display());
        return Err(bundle::not_made(what).hint("name the zip, a version or a URL: --release").into());
    }
    let archive = check_archive(&found.path, found.sha256.as_ref(), version, &mut events)?;
    let message = format!("Calico {}, sha256 {}", wanted.version, archive.sha256.short());
    Ok(((wanted.version, found.path), message))
}

/// Finds kubelet and kube-proxy, if the config installs them.
fn fetch_programs(app: &mut App, layered: &Layered, cache: &Path) -> Result<Option<Programs>> {
    let Some(InAdvance { version, programs: wanted, .. }) = settings::kubernetes_programs(layered)? else {
        return Ok(None);
    };
    let connection = settings::connection(layered, None);
    let mut found = BTreeMap::new();
    for role in ROLES {
        let pinned = if role == Role::Kubelet { &wanted.kubelet_sha256 } else { &wanted.kube_proxy_sha256 };
        let name = (program(role), pinned.as_ref());
        let path = app.phase("kubernetes", |app| {
            let mut events = |event| app.event(&event);
            let (path, sha256) = programs::locate(&wanted, version, name, cache, &connection, &mut events)?;
            Ok((path, format!("{} of Kubernetes {version}, sha256 {}", name.0, sha256.short())))
        })?;
        found.insert(program(role), path);
    }
    Ok(Some((version, found)))
}

/// Finds containerd's archive, if the config installs it, and looks whether its programs are in it.
fn find_containerd(app: &mut App, layered: &Layered, cache: &Path) -> Result<Option<PathBuf>> {
    let wanted = settings::kubernetes_programs(layered)?.and_then(|found| found.containerd);
    let Some(Containerd { archive, sha256, .. }) = wanted else { return Ok(None) };
    let archive = PathBuf::from(archive);
    app.phase("kubernetes", |app| {
        programs::of_containerd(&archive, sha256.as_ref(), cache, &mut |event| app.event(&event))?;
        let message = format!("containerd from {}", archive.display());
        Ok((Some(archive), message))
    })
}
