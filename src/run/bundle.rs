//! `release bundle`: finds everything that a node without downloads needs, and packs it into one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::app::App;
use super::options::Source;
use super::sources::{Choice, Sources};
use super::stage::{Scratch, check_archive, reachable};
use super::verb::PREFLIGHT;
use crate::apply::standing::Standing;
use crate::calico::kubernetes::{ROLES, program};
use crate::calico::services::Role;
use crate::config::Layered;
use crate::release::bundle::{self, Bundle, Parts};
use crate::release::{locate, programs};
use crate::settings::{self, Containerd, InAdvance};
use crate::verify::AGNHOST;
use crate::version::{CalicoVersion, KubernetesVersion};

/// What a bundle is made of.
pub(crate) struct Packing {
    layered: Layered,
    cache: PathBuf,
    executable: PathBuf,
    /// The pause image of a node.
    pause: Option<String>,
    scratch: Scratch,
}

impl Packing {
    /// Reads the config. Any machine can make a bundle; a node knows its pause image and has a cache.
    ///
    /// # Errors
    /// When the config cannot be read.
    pub fn open(app: &mut App, source: &Source) -> Result<Self> {
        let scratch = Scratch::new()?;
        if app.global.sandbox.is_some() || cfg!(windows) {
            let (node, context) = app.look(&PREFLIGHT, &Choice { source: source.clone(), ..Choice::default() })?;
            let pause = context.facts.runtime.as_ref().and_then(|runtime| runtime.sandbox_image.clone());
            let (layered, cache) = (context.config(&*node)?.clone(), app.cache_dir(&*node));
            return Ok(Self { layered, cache, executable: node.executable()?, pause, scratch });
        }
        let layered = Sources::named(app, source).read(None, &Standing::default())?;
        let executable = std::env::current_exe().context("find our own executable")?;
        Ok(Self { layered, cache: scratch.0.clone(), executable, pause: None, scratch })
    }

    /// What the config installs, in words.
    ///
    /// # Errors
    /// When the config has no valid release or programs.
    pub fn contents(&self) -> Result<String> {
        let calico = settings::release(&self.layered)?.version;
        let programs = settings::kubernetes_programs(&self.layered)?;
        let containerd =
            if programs.as_ref().is_some_and(|found| found.containerd.is_some()) { ", containerd" } else { "" };
        let programs = programs
            .map_or_else(String::new, |InAdvance { version, .. }| format!(", kubelet and kube-proxy {version}"));
        Ok(format!("Calico {calico}{programs}{containerd}"))
    }

    /// Downloads what is missing, writes the bundle, and reads it as a node does. `executable`: in place of this one.
    ///
    /// # Errors
    /// When a file cannot be fetched, is not what it should be, or cannot be packed.
    pub fn pack(self, app: &mut App, out: &Path, executable: Option<&Path>) -> Result<Bundle> {
        let Self { layered, cache, executable: own, pause, scratch } = self;
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
        bundle::unpack(out, None, &scratch.0.join("written"))
    }
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
