//! A bundle: one zip with everything that a node without downloads needs. Its one folder has the release's zip, this
//! program, kubelet and kube-proxy, containerd's archive, a list of images, `bundle.json`, and `SHA256SUMS` with the digest of each.
//!
//! A run puts the programs of a verified bundle into the cache; from there they are installed by their digests, as if
//! they had been downloaded.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::archive::{Archive, BUNDLE};
use super::download::Cache;
use super::extract::unpack as extract_all;
use super::files::{PathContext, Staging};
use super::inflate::WriteOptions;
use super::invalid;
use super::locate::digest_next_to;
use crate::calico::kubernetes::{ROLES, program};
use crate::fault::{Exit, Fault};
use crate::node::files;
use crate::values::Sha256;
use crate::version::{CalicoVersion, KubernetesVersion};

/// The name of this program in a bundle.
pub const EXECUTABLE: &str = "calicoctl-win.exe";
const ABOUT: &str = "bundle.json";
const IMAGES: &str = "images.txt";
const SUMS: &str = "SHA256SUMS";
const API_VERSION: &str = "calicoctl-win/v1alpha1";
const KIND: &str = "Bundle";
/// The processor of every program: Calico for Windows is built for no other.
const ARCH: &str = "amd64";

/// The name of containerd's archive in a bundle.
const CONTAINERD: &str = "containerd-windows-amd64.tar.gz";

/// What a bundle says of itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    api_version: String,
    kind: String,
    arch: String,
    calico: CalicoVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<KubernetesVersion>,
}

/// What a bundle is made of.
#[derive(Debug)]
pub struct Parts {
    pub calico: CalicoVersion,
    /// The zip that the Calico project publishes.
    pub release: PathBuf,
    /// `calicoctl-win.exe`.
    pub executable: PathBuf,
    /// kubelet.exe and kube-proxy.exe, by their names.
    pub kubernetes: Option<(KubernetesVersion, BTreeMap<&'static str, PathBuf>)>,
    /// containerd's own archive.
    pub containerd: Option<PathBuf>,
    /// References, for example `registry.k8s.io/pause:3.10`.
    pub images: Vec<String>,
}

/// A bundle whose programs are in the cache.
#[derive(Debug)]
pub struct Bundle {
    pub path: PathBuf,
    pub sha256: Sha256,
    /// Nothing said beforehand which digest it must have.
    pub is_unverified: bool,
    pub calico: CalicoVersion,
    /// The digest of the release's zip.
    pub release: Sha256,
    /// The digests of kubelet.exe and kube-proxy.exe.
    pub kubernetes: Option<(KubernetesVersion, [Sha256; 2])>,
    /// containerd's archive in the cache, and its digest.
    pub containerd: Option<(PathBuf, Sha256)>,
    /// How many files it has, and the sum of their sizes in bytes.
    pub files: usize,
    pub bytes: u64,
}

fn zip_name(version: &CalicoVersion) -> String {
    format!("calico-windows-{version}.zip")
}

/// Writes a bundle. The same parts give the same bytes. `to` must not exist.
///
/// # Errors
/// `BundleNotMade`, `BundleArchitecture`; when a part cannot be read or the disk refuses.
pub fn write(to: &Path, parts: &Parts) -> Result<()> {
    check_new(to)?;
    let mut programs = BTreeMap::from([(EXECUTABLE, &parts.executable)]);
    programs.extend(parts.kubernetes.iter().flat_map(|(_, programs)| programs).map(|(name, path)| (*name, path)));
    programs.iter().try_for_each(|(name, path)| check_program(name, path))?;
    let about = About {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
        arch: ARCH.into(),
        calico: parts.calico.clone(),
        kubernetes: parts.kubernetes.as_ref().map(|(version, _)| *version),
    };
    let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let texts = BTreeMap::from([
        (ABOUT, format!("{}\n", serde_json::to_string_pretty(&about)?)),
        (IMAGES, lines(&parts.images)),
    ]);
    let release = zip_name(&parts.calico);
    let files: BTreeMap<&str, &PathBuf> = programs
        .into_iter()
        .chain([(&*release, &parts.release)])
        .chain(parts.containerd.iter().map(|archive| (CONTAINERD, archive)))
        .collect();

    let mut sums: BTreeMap<&str, Sha256> =
        texts.iter().map(|(name, text)| (*name, Sha256::of(text.as_bytes()))).collect();
    for (name, path) in &files {
        sums.insert(name, files::digest(path).doing("read", path)?);
    }
    let list: Vec<String> = sums.iter().map(|(name, sha256)| format!("{sha256}  {name}")).collect();
    let list = lines(&list);
    files::replace(to, |to| {
        let mut zip = ZipWriter::new(File::create(to)?);
        // 1980-01-01: the earliest that a zip can say.
        let options = SimpleFileOptions::default().last_modified_time(DateTime::default()).unix_permissions(0o644);
        zip.start_file(format!("{}/{SUMS}", BUNDLE.top), options)?;
        zip.write_all(list.as_bytes())?;
        for name in sums.keys() {
            // These are compressed already.
            let stored = *name == release || *name == CONTAINERD;
            let method = if stored { CompressionMethod::Stored } else { CompressionMethod::Deflated };
            zip.start_file(format!("{}/{name}", BUNDLE.top), options.compression_method(method))?;
            match files.get(name) {
                Some(path) => drop(io::copy(&mut File::open(path)?, &mut zip)?),
                None => zip.write_all(texts[name].as_bytes())?,
            }
        }
        zip.finish()?;
        Ok(())
    })
    .doing("write", to)
}

/// Refuses to replace a file.
///
/// # Errors
/// `FileExists`.
pub fn check_new(to: &Path) -> Result<(), Fault> {
    if !to.exists() {
        return Ok(());
    }
    Err(Fault::new(Exit::FileExists, "FileExists", format!("{} exists already", to.display()))
        .hint("remove it, or name another file: --out FILE"))
}

/// A bundle that cannot be made.
pub fn not_made(what: String) -> Fault {
    Fault::new(Exit::InvalidConfig, "BundleNotMade", what)
}

/// Refuses a program for another system or processor, as its first bytes tell. Other files are refused when they
/// run for their version, before they are installed.
fn check_program(name: &str, path: &Path) -> Result<()> {
    let mut start = Vec::new();
    File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start)).doing("read", path)?;
    let Some(target) = target_of(&start).filter(|target| *target != "Windows on amd64") else { return Ok(()) };
    let what = format!("{} is for {target}, and nodes need {name} for Windows on {ARCH}", path.display());
    let hint = match name {
        EXECUTABLE => "name the program for the node: --executable calicoctl-win.exe",
        _ => "set spec.kubernetes.node.source to the programs for Windows on amd64",
    };
    Err(Fault::new(Exit::Unsupported, "BundleArchitecture", what).hint(hint).into())
}

/// What a program runs on: of a PE image, the field Machine of its COFF header, whose place is at 0x3c.
fn target_of(start: &[u8]) -> Option<&'static str> {
    if start.starts_with(b"\x7fELF") {
        return Some("Linux");
    }
    if start.starts_with(b"\xcf\xfa\xed\xfe") {
        return Some("macOS");
    }
    if !start.starts_with(b"MZ") {
        return None;
    }
    let at = usize::try_from(u32::from_le_bytes(start.get(0x3c..0x40)?.try_into().ok()?)).ok()?;
    let header = start.get(at..at + 6)?.strip_prefix(b"PE\0\0")?;
    Some(match u16::from_le_bytes(header.try_into().ok()?) {
        0x8664 => "Windows on amd64",
        0xaa64 => "Windows on arm64",
        0x014c => "Windows on x86",
        _ => "Windows on another processor",
    })
}

/// Whether a file is a bundle, as the name of its first entry tells.
pub fn is_one(file: &Path) -> bool {
    /// The part of a local file header before the name.
    const HEADER: usize = 30;
    let mut start = Vec::new();
    let wanted = format!("{}/", BUNDLE.top);
    let read = File::open(file).and_then(|file| file.take(100).read_to_end(&mut start));
    read.is_ok()
        && start.starts_with(b"PK")
        && start.get(HEADER..).is_some_and(|name| name.starts_with(wanted.as_bytes()))
}

/// Verifies a bundle, and puts its programs into the cache. `expected`: the digest of the bundle; if none, the one in a
/// file next to it counts, if there is one. If anything is wrong, the cache stays as it is.
///
/// # Errors
/// `BundleInvalid`, `BundleArchitecture`, and those of [`Archive::open`].
pub fn unpack(path: &Path, expected: Option<&Sha256>, cache: &Path) -> Result<Bundle> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let published = match expected {
        Some(_) => None,
        None => digest_next_to(path, &name)?,
    };
    let expected = expected.or(published.as_ref());
    let archive = Archive::open_as(&BUNDLE, path, expected, &mut |_| {})?;
    let staging = Staging::next_to(&cache.join("bundle"))?;
    let options = WriteOptions { digests: true, durable: false };
    let found = extract_all(&archive, staging.path(), options, &|_| true, &mut |_| {})?.digests;
    let text = |name: &str| std::fs::read_to_string(staging.path().join(name)).map_err(|_| lacks(path, name));
    compare(&found, &sums(&text(SUMS)?).map_err(|why| unusable(path, &why))?).map_err(|why| unusable(path, &why))?;
    let about = about(&text(ABOUT)?, path)?;

    let cached = |name: &str| {
        let sha256 = found.get(name).ok_or_else(|| lacks(path, name))?;
        Cache::at(cache).add(&staging.path().join(name), sha256)?;
        anyhow::Ok(sha256.clone())
    };
    let wanted = ROLES.map(program);
    if about.kubernetes.is_some()
        && let Some(missing) = wanted.iter().find(|name| !found.contains_key(**name))
    {
        return Err(lacks(path, missing).into());
    }
    let release = cached(&zip_name(&about.calico))?;
    let kubernetes = match about.kubernetes {
        Some(version) => Some((version, [cached(wanted[0])?, cached(wanted[1])?])),
        None => None,
    };
    let containerd = match found.contains_key(CONTAINERD) {
        true => {
            let sha256 = cached(CONTAINERD)?;
            Cache::at(cache).archive(&sha256)?.map(|archive| (archive, sha256))
        }
        false => None,
    };
    Ok(Bundle {
        path: path.to_owned(),
        sha256: archive.sha256.clone(),
        is_unverified: expected.is_none(),
        calico: about.calico,
        release,
        kubernetes,
        containerd,
        files: found.len(),
        bytes: archive.total(),
    })
}

fn about(text: &str, path: &Path) -> Result<About> {
    let about: About =
        serde_json::from_slice(text.as_bytes()).map_err(|why| unusable(path, &format!("{ABOUT}: {why}")))?;
    if (&*about.api_version, &*about.kind) != (API_VERSION, KIND) {
        let found = format!("{} {}", about.api_version, about.kind);
        return Err(unusable(path, &format!("{ABOUT} is {found}, which this version does not read")).into());
    }
    if about.arch != ARCH {
        let what =
            format!("{}: the bundle is for {}, and Calico for Windows runs on {ARCH}", path.display(), about.arch);
        return Err(Fault::new(Exit::Unsupported, "BundleArchitecture", what)
            .hint("use a bundle for this machine's processor")
            .into());
    }
    Ok(about)
}

/// Reads the list of digests: lines with a digest, two spaces and a name.
fn sums(text: &str) -> Result<BTreeMap<String, Sha256>, String> {
    let line = |line: &str| {
        let (sha256, name) = line.split_once("  ").ok_or_else(|| format!("{SUMS} has the line `{line}`"))?;
        let sha256 = sha256.parse().map_err(|why| format!("{SUMS}: {why}"))?;
        Ok((name.to_owned(), sha256))
    };
    text.lines().map(line).collect()
}

/// Says what differs between a bundle's files and its list.
fn compare(found: &BTreeMap<String, Sha256>, listed: &BTreeMap<String, Sha256>) -> Result<(), String> {
    for (name, sha256) in found.iter().filter(|(name, _)| *name != SUMS) {
        match listed.get(name) {
            Some(expected) if expected == sha256 => {}
            Some(expected) => return Err(format!("the SHA-256 of {name} is {sha256}, and {SUMS} says {expected}")),
            None => return Err(format!("it has {name}, which is not in {SUMS}")),
        }
    }
    match listed.keys().find(|name| !found.contains_key(*name)) {
        Some(missing) => Err(format!("it has no {missing}, which is in {SUMS}")),
        None => Ok(()),
    }
}

fn lacks(path: &Path, name: &str) -> Fault {
    unusable(path, &format!("it has no {name}"))
}

fn unusable(path: &Path, why: &str) -> Fault {
    invalid("BundleInvalid", format!("{}: the bundle cannot be used: {why}", path.display()))
        .hint("copy it again, or create a new one: calicoctl-win release bundle --out FILE")
}
