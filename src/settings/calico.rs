//! Which release, and where it is installed.

use anyhow::Result;
use serde::Serialize;

use super::resolver::Resolver;
use super::run::root_dir;
use crate::config::spec::SourceType;
use crate::config::{Layered, Origin, fault};
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
    let root = root_dir(&mut to);
    let calico = decide(&mut to, root);
    if to.findings.is_empty() { Ok(calico) } else { Err(fault(&to.findings)) }
}

pub(super) fn decide(to: &mut Resolver<'_>, root: WinPath) -> Calico {
    const PATH: &str = "calico.source.path";
    const URL: &str = "calico.source.urlTemplate";
    let version = to.optional("calico.version").unwrap_or_else(|| {
        to.wrong(
            "calico.version",
            "which Calico release to install is not given; set spec.calico.version or use --release",
        );
        CalicoVersion::new(0, 0, 0)
    });
    let text = |to: &Resolver<'_>, path| to.given(path).filter(|text: &String| !text.is_empty());
    let (path, url) = (text(to, PATH), text(to, URL));
    let kind = to.or_default(
        "calico.source.type",
        match (&path, &url) {
            (Some(path), _) if path.to_lowercase().ends_with(".zip") => SourceType::Bundle,
            (Some(_), _) => SourceType::Directory,
            (None, Some(_)) => SourceType::Mirror,
            (None, None) => SourceType::Release,
        },
    );
    let source = match kind {
        SourceType::Bundle | SourceType::Directory => {
            to.note(URL, None::<String>, Origin::Default);
            let path = to.text(PATH).unwrap_or_default();
            if kind == SourceType::Bundle { Source::File(path) } else { Source::Directory(path) }
        }
        SourceType::Release | SourceType::Mirror => {
            to.note(PATH, None::<String>, Origin::Default);
            let template = to.decided(URL, url, || (RELEASE_URL.to_owned(), Origin::Default));
            Source::Url(template.replace("{version}", &version.to_string()))
        }
    };
    refuse_other_volume(to, &root);
    refuse_own_state(to, &root);
    Calico { version, source, sha256: to.optional("calico.source.sha256"), root }
}

/// An install moves aside what is at the root, which must not be this program's own state.
fn refuse_own_state(to: &mut Resolver<'_>, root: &WinPath) {
    let state = WinPath::known(STATE_DIR);
    if root.is_below(&state) || state.is_below(root) {
        to.wrong("calico.rootDir", format!("{root} overlaps with {STATE_DIR}, where this program keeps its state"));
    }
}

/// A release is swapped in by renaming its folder, which Windows does within a volume only. The previous and the next
/// one are in the state folder.
fn refuse_other_volume(to: &mut Resolver<'_>, root: &WinPath) {
    let volume = |path: &str| path.get(..2).unwrap_or_default().to_uppercase();
    let ours = volume(STATE_DIR);
    if volume(root.as_str()) != ours {
        let why = format!(
            "{root} is not on {ours}, where the releases are kept: a folder can be replaced only within a volume"
        );
        to.wrong("calico.rootDir", why);
    }
}
