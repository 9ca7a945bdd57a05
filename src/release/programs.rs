//! Kubernetes' own programs for Windows: from a folder, from the project's archive, or downloaded one by one.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::bufread::GzDecoder;
use reqwest::Url;

use super::archive::{MAX_FILE, digest_mismatch};
use super::download::Cache;
use super::files::{BUFFER, PathContext};
use super::invalid;
use super::locate::{answers, digest_next_to, fetch, not_pinned, parse};
use crate::fault::Fault;
use crate::node::files;
use crate::paths::containerd;
use crate::report::event::Sink;
use crate::settings::{Connection, Programs};
use crate::values::Sha256;
use crate::version::KubernetesVersion;

/// The folder of the programs in the project's archive.
const IN_ARCHIVE: &str = "kubernetes/node/bin";

/// The folder in containerd's archive.
const IN_CONTAINERD: &str = "bin";

/// Finds a program, and downloads or extracts it into `cache` if that is needed. `pinned`: the digest in the config.
///
/// # Errors
/// `KubernetesNotFound`, `KubernetesArchive`, `ReleaseDigest`, and those of a download.
pub fn locate(
    programs: &Programs,
    version: KubernetesVersion,
    (name, pinned): (&str, Option<&Sha256>),
    cache: &Path,
    connection: &Connection,
    events: Sink,
) -> Result<(PathBuf, Sha256)> {
    let Some(path) = &programs.path else {
        return fetch(&url(programs, version, name)?, name, pinned, &Cache::at(cache), connection, events);
    };
    let path = Path::new(path);
    let (file, published) = if path.is_dir() {
        let places = [path.join(name), path.join(IN_ARCHIVE).join(name)];
        let file = places.into_iter().find(|place| place.is_file()).ok_or_else(|| not_found(path, name))?;
        let published = digest_next_to(&file, name)?;
        (file, published)
    } else if path.is_file() {
        // The archive's own digest, if it is next to it, is that of everything in it.
        let archive = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let expected = digest_next_to(path, &archive)?;
        let found = files::digest(path).doing("read", path)?;
        if let Some(expected) = expected.as_ref().filter(|expected| **expected != found) {
            return Err(digest_mismatch(&path.display().to_string(), expected, &found).into());
        }
        let file = extract(path, &format!("{IN_ARCHIVE}/{name}"), cache, damaged, not_found)?;
        let published = expected.is_some().then(|| files::digest(&file)).transpose().doing("read", &file)?;
        (file, published)
    } else {
        return Err(not_found(path, name).into());
    };
    let found = files::digest(&file).doing("read", &file)?;
    match pinned.or(published.as_ref()) {
        Some(expected) if *expected != found => {
            Err(digest_mismatch(&file.display().to_string(), expected, &found).into())
        }
        Some(_) => Ok((file, found)),
        None => {
            events(not_pinned(&file.display().to_string()));
            Ok((file, found))
        }
    }
}

/// Whether a program can be found, as [`locate`] does, without downloading it: the server that answers, or the place.
///
/// # Errors
/// As [`locate`].
pub fn available(
    programs: &Programs,
    version: KubernetesVersion,
    (name, pinned): (&str, Option<&Sha256>),
    cache: &Path,
    connection: &Connection,
) -> Result<String> {
    match &programs.path {
        Some(path) if Path::new(path).exists() => Ok(path.clone()),
        Some(path) => Err(not_found(Path::new(path), name).into()),
        None => answers(&url(programs, version, name)?, name, pinned, &Cache::at(cache), connection),
    }
}

fn url(programs: &Programs, version: KubernetesVersion, name: &str) -> Result<Url, Fault> {
    let folder = programs.url_template.replace("{version}", &version.to_string());
    parse(&format!("{}/{name}", folder.trim_end_matches('/')))
}

fn not_found(path: &Path, name: &str) -> Fault {
    invalid("KubernetesNotFound", format!("there is no {name} in {}", path.display())).hint(
        "set spec.kubernetes.node.source.path to a folder with kubelet.exe and kube-proxy.exe, or to \
         kubernetes-node-windows-amd64.tar.gz",
    )
}

fn damaged(archive: &Path, why: &str) -> Fault {
    invalid("KubernetesArchive", format!("{} cannot be read: {why}", archive.display()))
        .hint("use kubernetes-node-windows-amd64.tar.gz of the Kubernetes release, and compare its digest")
}

/// Extracts containerd's programs; each with its name, its path in the cache and its digest. `pinned`: the digest of the
/// archive in the config.
///
/// # Errors
/// `ContainerdArchive`, `ReleaseDigest`.
pub fn of_containerd(
    archive: &Path,
    pinned: Option<&Sha256>,
    cache: &Path,
    events: Sink,
) -> Result<Vec<(&'static str, PathBuf, Sha256)>> {
    let refused = |archive: &Path, why: &str| {
        invalid("ContainerdArchive", format!("{} is no archive of containerd: {why}", archive.display())).hint(
            "set spec.kubernetes.node.containerd.archive to containerd-VERSION-windows-amd64.tar.gz of a release of \
             containerd",
        )
    };
    if !archive.is_file() {
        return Err(refused(archive, "there is no such file").into());
    }
    let published = digest_next_to(archive, &archive.file_name().unwrap_or_default().to_string_lossy())?;
    let found = files::digest(archive).doing("read", archive)?;
    match pinned.or(published.as_ref()) {
        Some(expected) if *expected != found => {
            return Err(digest_mismatch(&archive.display().to_string(), expected, &found).into());
        }
        Some(_) => {}
        None => events(not_pinned(&archive.display().to_string())),
    }
    let extracted = containerd::PROGRAMS.into_iter().map(|name| {
        let missing = |archive: &Path, name: &str| refused(archive, &format!("it has no {IN_CONTAINERD}/{name}"));
        let path = extract(archive, &format!("{IN_CONTAINERD}/{name}"), cache, refused, missing)?;
        let sha256 = files::digest(&path).doing("read", &path)?;
        Ok((name, path, sha256))
    });
    extracted.collect()
}

/// Extracts one program of an archive into the cache; returns its path.
fn extract(
    archive: &Path,
    wanted: &str,
    cache: &Path,
    damaged: impl Fn(&Path, &str) -> Fault,
    not_found: impl Fn(&Path, &str) -> Fault,
) -> Result<PathBuf> {
    let name = wanted.rsplit('/').next().unwrap_or(wanted);
    let damaged = |why: String| damaged(archive, &why);
    std::fs::create_dir_all(cache).doing("create the folder", cache)?;
    let input = BufReader::with_capacity(BUFFER, File::open(archive).doing("open", archive)?);
    let mut tar = GzDecoder::new(input);
    let mut block = [0; 512];
    loop {
        tar.read_exact(&mut block).map_err(|error| damaged(error.to_string()))?;
        if block.iter().all(|byte| *byte == 0) {
            return Err(not_found(archive, name).into());
        }
        let entry = Header::read(&block).ok_or_else(|| damaged("it is not a tar archive".into()))?;
        let mut data = tar.by_ref().take(entry.size);
        if entry.is_file && entry.path == wanted && entry.size <= MAX_FILE {
            let part = cache.join(format!("{name}.part"));
            let mut out = File::create(&part).doing("create", &part)?;
            let copied = std::io::copy(&mut data, &mut out).map_err(|error| damaged(error.to_string()))?;
            if copied < entry.size {
                return Err(damaged("it ends too early".into()).into());
            }
            out.flush().doing("write", &part)?;
            drop(out);
            let to = cache.join(format!("{}.exe", files::digest(&part).doing("read", &part)?));
            files::rename(&part, &to).with_context(|| format!("put {name} into the cache"))?;
            return Ok(to);
        }
        std::io::copy(&mut data, &mut std::io::sink()).map_err(|error| damaged(error.to_string()))?;
        let padding = entry.size.wrapping_neg() % 512;
        std::io::copy(&mut tar.by_ref().take(padding), &mut std::io::sink())
            .map_err(|error| damaged(error.to_string()))?;
    }
}

/// The header of an entry of a tar archive (POSIX ustar).
struct Header {
    path: String,
    size: u64,
    is_file: bool,
}

impl Header {
    fn read(block: &[u8; 512]) -> Option<Self> {
        let text = |field: &[u8]| {
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).trim().to_owned()
        };
        if &block[257..262] != b"ustar" {
            return None;
        }
        let (prefix, name) = (text(&block[345..500]), text(&block[..100]));
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let size = u64::from_str_radix(&text(&block[124..136]), 8).ok()?;
        let is_file = matches!(block[156], b'0' | 0);
        Some(Self { path: path.trim_start_matches("./").to_owned(), size, is_file })
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::config::Layered;
    use crate::settings;

    const VERSION: KubernetesVersion = KubernetesVersion { minor: 33, patch: 4 };

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        for (path, bytes) in files {
            let mut block = [0; 512];
            block[..path.len()].copy_from_slice(path.as_bytes());
            block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
            block[156] = b'0';
            block[257..262].copy_from_slice(b"ustar");
            gz.write_all(&block).unwrap();
            gz.write_all(bytes).unwrap();
            gz.write_all(&vec![0; bytes.len().wrapping_neg() % 512]).unwrap();
        }
        gz.write_all(&[0; 1024]).unwrap();
        gz.finish().unwrap()
    }

    fn locate(path: &Path, pinned: Option<&Sha256>, warned: &mut usize) -> Result<(PathBuf, Sha256)> {
        let programs = Programs { path: Some(path.display().to_string()), ..Programs::default() };
        let cache = path.parent().unwrap().join("cache");
        let connection = settings::connection(&Layered::default(), None);
        super::locate(&programs, VERSION, ("kubelet.exe", pinned), &cache, &connection, &mut |_| *warned += 1)
    }

    #[test]
    fn a_program_comes_from_a_folder_or_from_the_archive_and_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, archive) = (dir.path().join("bin"), dir.path().join("node.tar.gz"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("kubelet.exe"), "kubelet").unwrap();
        let long = vec![7; 1500];
        let files: [(&str, &[u8]); 3] = [
            ("kubernetes/LICENSES", &long),
            ("kubernetes/node/bin/kube-proxy.exe", b"kube-proxy"),
            ("kubernetes/node/bin/kubelet.exe", b"kubelet"),
        ];
        std::fs::write(&archive, tar(&files)).unwrap();
        let digest = Sha256::of(b"kubelet");
        for place in [&folder, &archive] {
            let mut warned = 0;
            let (path, found) = locate(place, None, &mut warned).unwrap();
            assert_eq!((std::fs::read(path).unwrap(), found, warned), (b"kubelet".to_vec(), digest.clone(), 1));
            warned = 0;
            locate(place, Some(&digest), &mut warned).unwrap();
            assert_eq!(warned, 0, "it is pinned");
            let other = locate(place, Some(&Sha256::of(b"other")), &mut warned).unwrap_err();
            assert_eq!(Fault::id_of(&other), "ReleaseDigest");
        }
        std::fs::write(folder.join("kubelet.exe.sha256"), Sha256::of(b"other").as_str()).unwrap();
        assert_eq!(Fault::id_of(&locate(&folder, None, &mut 0).unwrap_err()), "ReleaseDigest");
        let sums = format!("{}  node.tar.gz\n", Sha256::of(b"other").as_str());
        std::fs::write(dir.path().join("SHA256SUMS"), sums).unwrap();
        assert_eq!(Fault::id_of(&locate(&archive, None, &mut 0).unwrap_err()), "ReleaseDigest");
    }

    #[test]
    fn what_is_not_such_an_archive_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let id = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            Fault::id_of(&locate(&path, None, &mut 0).unwrap_err())
        };
        assert_eq!(id("empty.tar.gz", &tar(&[])), "KubernetesNotFound");
        assert_eq!(id("server.tar.gz", &tar(&[("kubernetes/server/bin/kubelet.exe", b"x")])), "KubernetesNotFound");
        assert_eq!(id("page.tar.gz", b"<html>"), "KubernetesArchive");
        let whole = tar(&[("kubernetes/node/bin/kubelet.exe", &[1; 4000])]);
        assert_eq!(id("cut.tar.gz", &whole[..whole.len() / 2]), "KubernetesArchive");
        assert_eq!(Fault::id_of(&locate(&dir.path().join("none"), None, &mut 0).unwrap_err()), "KubernetesNotFound");
    }
}
