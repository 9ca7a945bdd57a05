//! The container runtime, from the services that run it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use windows_sys::Win32::Storage::FileSystem::{
    GetFileVersionInfoSizeW, GetFileVersionInfoW, VS_FIXEDFILEINFO, VerQueryValueW,
};

use super::registry;
use super::wide::{wide, wide_path};
use crate::calico::nssm;
use crate::facts::{Runtime, RuntimeKind};
use crate::item::{Service, StartType};
use crate::node::arguments;
use crate::node::containerd::{self, CniDirs, Files};
use crate::values::WinPath;

/// The runtime whose service is there, containerd before Docker; none where neither is. Whether it
/// runs does not count: a stopped containerd is no sign of Docker (defect B21).
///
/// # Errors
/// When the registry or containerd's configuration cannot be read.
pub fn facts() -> Result<Option<Runtime>> {
    let (kind, service) = if let Some(service) = definition("containerd")? {
        (RuntimeKind::Containerd, service)
    } else if let Some(service) = definition("docker")? {
        (RuntimeKind::Docker, service)
    } else {
        return Ok(None);
    };
    let (program, arguments) = nssm::program(&service).unwrap_or_default();
    let program = expand(&program).trim_matches('"').parse::<WinPath>().ok();
    let dirs = match kind {
        RuntimeKind::Containerd => cni_dirs(program.as_ref(), &arguments::split(&expand(&arguments)))?,
        // Where kubelet's own dockershim looked.
        RuntimeKind::Docker => CniDirs { bin: WinPath::known(r"C:\k\cni"), conf: WinPath::known(r"C:\k\cni\config") },
    };
    Ok(Some(Runtime {
        kind,
        version: program.as_ref().map(version).unwrap_or_default(),
        cni_bin_dir: dirs.bin,
        cni_conf_dir: dirs.conf,
    }))
}

/// A service as far as it says what it runs. From the registry, which anybody may read and which
/// answers also while the service manager is busy.
fn definition(name: &str) -> Result<Option<Service>> {
    let key = format!(r"SYSTEM\CurrentControlSet\Services\{name}");
    let Some(image_path) = registry::text(&key, "ImagePath")? else { return Ok(None) };
    let mut parameters = BTreeMap::new();
    for name in ["Application", "AppParameters"] {
        if let Some(value) = registry::get(&format!(r"{key}\Parameters"), name)? {
            parameters.insert(name.to_owned(), value);
        }
    }
    Ok(Some(Service {
        display_name: String::new(),
        description: String::new(),
        image_path: expand(&image_path),
        account: String::new(),
        start: StartType::Auto,
        depends_on: Vec::new(),
        restart_after: Vec::new(),
        parameters,
    }))
}

/// What containerd's configuration says, from where it is read: the file it was told, else the one
/// beside it, else the one in its usual place. None of them there, it runs on its defaults.
fn cni_dirs(program: Option<&WinPath>, arguments: &[String]) -> Result<CniDirs> {
    let beside = program.and_then(WinPath::parent).map(|folder| folder.join("config.toml"));
    let usual = WinPath::known(r"C:\Program Files\containerd\config.toml");
    let told = arguments::option(arguments, &["--config", "-config", "-c"]);
    let told = told.and_then(|path| path.parse::<WinPath>().ok());
    let mut candidates = told.map_or_else(|| beside.into_iter().chain([usual]).collect(), |told| vec![told]);
    candidates.retain(|path| Path::new(path.as_str()).is_file());
    let Some(config) = candidates.first() else { return Ok(CniDirs::default()) };
    let read = |path: &WinPath| match std::fs::read_to_string(path.as_str()) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {path}")),
    };
    let list = |folder: &WinPath| match std::fs::read_dir(folder.as_str()) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("list {folder}")),
    };
    containerd::cni_dirs(config, &Files { read: &read, list: &list })
}

/// The version that a program's own resource names; empty where it has none. Nothing is run to ask.
fn version(program: &WinPath) -> String {
    read_version(Path::new(program.as_str())).map_or_else(String::new, |[a, b, c]| format!("{a}.{b}.{c}"))
}

fn read_version(program: &Path) -> Option<[u16; 3]> {
    let name = wide_path(program);
    // SAFETY: the name is zero-terminated; the handle is not wanted.
    let size = unsafe { GetFileVersionInfoSizeW(name.as_ptr(), std::ptr::null_mut()) };
    if size == 0 {
        return None;
    }
    let mut block = vec![0u32; size as usize / 4 + 1];
    // SAFETY: the block is of that size at least.
    if unsafe { GetFileVersionInfoW(name.as_ptr(), 0, size, block.as_mut_ptr().cast()) } == 0 {
        return None;
    }
    let (root, mut found, mut length) = (wide("\\"), std::ptr::null_mut(), 0);
    // SAFETY: Windows filled the block; what it points to lies in it.
    let there = unsafe { VerQueryValueW(block.as_ptr().cast(), root.as_ptr(), &raw mut found, &raw mut length) };
    if there == 0 || (length as usize) < size_of::<VS_FIXEDFILEINFO>() {
        return None;
    }
    // SAFETY: that is what the root of the block holds, and it is long enough.
    let info = unsafe { found.cast::<VS_FIXEDFILEINFO>().read_unaligned() };
    #[allow(clippy::cast_possible_truncation, reason = "two numbers of 16 bits in each")]
    Some([
        (info.dwProductVersionMS >> 16) as u16,
        info.dwProductVersionMS as u16,
        (info.dwProductVersionLS >> 16) as u16,
    ])
}

/// `%SystemDrive%` and the like. A name that is no variable's stays as it is.
fn expand(text: &str) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        expanded.push_str(before);
        match after.split_once('%') {
            Some((name, behind)) if !name.is_empty() && std::env::var_os(name).is_some() => {
                expanded.push_str(&std::env::var(name).unwrap_or_default());
                rest = behind;
            }
            _ => {
                expanded.push('%');
                rest = after;
            }
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_and_other_percents_stay() {
        let drive = std::env::var("SystemDrive").unwrap();
        assert_eq!(expand(r"%SystemDrive%\k\a%20b.exe 100%"), format!(r"{drive}\k\a%20b.exe 100%"));
    }

    #[test]
    fn a_program_of_windows_names_its_version() {
        assert_ne!(version(&WinPath::known(r"C:\windows\system32\version.dll")), "");
        assert_eq!(version(&WinPath::known(r"C:\windows\no-such.exe")), "");
    }
}
