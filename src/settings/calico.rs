//! Which release, and where it is installed.

use anyhow::Result;
use serde::Serialize;

use super::resolver::{Resolver, filled};
use super::run::root_dir;
use crate::config::spec::{SourceType, Spec};
use crate::config::types::WebUrl;
use crate::config::{Layered, fault};
use crate::paths::STATE_DIR;
use crate::values::{Sha256, WinPath};
use crate::version::CalicoVersion;

/// The URL of the zip that the project publishes (reference: release assets of projectcalico/calico).
const RELEASE_URL: &str =
    "https://github.com/projectcalico/calico/releases/download/{version}/calico-windows-{version}.zip";

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calico {
    pub version: CalicoVersion,
    pub source: Source,
    /// The archive's digest, when the config pins it.
    pub sha256: Option<Sha256>,
    /// `C:\CalicoWindows`.
    pub root: WinPath,
}

/// Where the release comes from. Paths are on the machine that this program runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    File(String),
    Directory(String),
    Url(String),
}

/// The release that a config names, without asking node or cluster: to download it in advance.
///
/// # Errors
/// A [`crate::fault::Fault`] `ConfigInvalid` with all findings.
pub fn release(layered: &Layered) -> Result<Calico> {
    let mut to = Resolver::new(layered);
    let spec = &layered.config.spec;
    let root = root_dir(&mut to, spec);
    let calico = decide(&mut to, spec, root);
    if to.findings.is_empty() { Ok(calico) } else { Err(fault(&to.findings)) }
}

pub(super) fn decide(to: &mut Resolver<'_>, spec: &Spec, root: WinPath) -> Calico {
    const PATH: &str = "spec.calico.source.path";
    const URL: &str = "spec.calico.source.urlTemplate";
    const VERSION: &str = "spec.calico.version";
    if spec.calico.version.is_none() {
        to.wrong(VERSION, "which Calico release to install is not given; set spec.calico.version or use --release");
    }
    let version = to.or_default(VERSION, spec.calico.version.clone(), CalicoVersion::new(0, 0, 0));
    let given = &spec.calico.source;
    let path = filled(&given.path);
    let url = given.url_template.as_ref().map(WebUrl::as_str).filter(|url| !url.is_empty()).map(str::to_owned);
    let kind = to.or_default(
        "spec.calico.source.type",
        given.kind,
        match (&path, &url) {
            (Some(path), _) if path.to_lowercase().ends_with(".zip") => SourceType::Bundle,
            (Some(_), _) => SourceType::Directory,
            (None, Some(_)) => SourceType::Mirror,
            (None, None) => SourceType::Release,
        },
    );
    let source = match kind {
        SourceType::Bundle | SourceType::Directory => {
            let path = to.optional(PATH, path).unwrap_or_default();
            to.optional::<String>(URL, None);
            if kind == SourceType::Bundle { Source::File(path) } else { Source::Directory(path) }
        }
        SourceType::Release | SourceType::Mirror => {
            to.optional::<String>(PATH, None);
            let template = to.or_default(URL, url, RELEASE_URL.to_owned());
            Source::Url(template.replace("{version}", &version.to_string()))
        }
    };
    refuse_other_volume(to, &root);
    Calico { version, source, sha256: to.optional("spec.calico.source.sha256", given.sha256.clone()), root }
}

/// A release is swapped in by renaming its folder, which Windows does within a volume only. The previous and the next
/// one are in the state folder.
fn refuse_other_volume(to: &mut Resolver<'_>, root: &WinPath) {
    let volume = |path: &str| path.get(..2).unwrap_or_default().to_uppercase();
    let ours = volume(STATE_DIR);
    if volume(root.as_str()) != ours {
        let why =
            format!("{root} is not on {ours}, where the releases are kept: a folder is swapped only within a volume");
        to.wrong("spec.calico.rootDir", why);
    }
}
