//! The container runtime, from its service.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use windows_sys::Win32::Storage::FileSystem::VS_FIXEDFILEINFO;

use super::dll::late;
use super::registry;
use super::wide::{wide, wide_path};
use crate::calico::nssm;
use crate::facts::{Runtime, RuntimeKind};
use crate::item::{Service, StartType};
use crate::node::arguments;
use crate::node::containerd::{self, CriConfig, Files};
use crate::values::WinPath;

/// The runtime whose service exists, containerd before Docker; none if neither does. Whether it runs does not matter: a
/// stopped containerd does not mean Docker (defect B21).
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
        RuntimeKind::Containerd => cri_config(&arguments::split(&expand(&arguments)))?,
        // The folders of kubelet's own dockershim.
        RuntimeKind::Docker => CriConfig {
            bin: WinPath::known(r"C:\k\cni"),
            conf: WinPath::known(r"C:\k\cni\config"),
            sandbox_image: None,
        },
    };
    Ok(Some(Runtime {
        kind,
        version: program.as_ref().map(version).unwrap_or_default(),
        cni_bin_dir: dirs.bin,
        cni_conf_dir: dirs.conf,
        sandbox_image: dirs.sandbox_image,
    }))
}

/// A service, as far as needed to find its program. From the registry, which every account may read, also while the
/// service manager is busy.
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
        recovery: None,
        parameters,
    }))
}

/// The file that containerd reads: the one given on its command line, else that in `%ProgramFiles%\containerd`, wherever
/// its executable lies (`defaults_windows.go` of containerd).
fn config(arguments: &[String], program_files: Option<String>) -> WinPath {
    let told = arguments::option(arguments, &["--config", "-config", "-c"]);
    let usual = program_files.map(|folder| format!(r"{folder}\containerd\config.toml"));
    told.and_then(|path| path.parse().ok())
        .or_else(|| usual?.parse().ok())
        .unwrap_or_else(|| WinPath::known(r"C:\Program Files\containerd\config.toml"))
}

/// What containerd's configuration says; without one, the defaults.
fn cri_config(arguments: &[String]) -> Result<CriConfig> {
    let config = &config(arguments, std::env::var("ProgramFiles").ok());
    if !Path::new(config.as_str()).is_file() {
        return Ok(CriConfig::default());
    }
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
    containerd::read(config, &Files { read: &read, list: &list })
}

late!("version.dll":
    fn GetFileVersionInfoSizeW(file: *const u16, unused: *mut u32) -> u32;
    fn GetFileVersionInfoW(file: *const u16, unused: u32, size: u32, block: *mut c_void) -> i32;
    fn VerQueryValueW(block: *const c_void, what: *const u16, found: *mut *mut c_void, length: *mut u32) -> i32;
);

/// The version in a program's own resource; empty if it has none. The program is not run.
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

/// Expands `%SystemDrive%` and the like. Unknown names are unchanged.
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
    fn variables_are_expanded_and_other_percents_are_kept() {
        let drive = std::env::var("SystemDrive").unwrap();
        assert_eq!(expand(r"%SystemDrive%\k\a%20b.exe 100%"), format!(r"{drive}\k\a%20b.exe 100%"));
    }

    #[test]
    fn containerd_reads_the_file_it_is_told_or_the_one_in_program_files_and_none_beside_itself() {
        let read = |arguments: &str| config(&arguments::split(arguments), Some(r"D:\Programs".into())).to_string();
        assert_eq!(read("--run-service"), r"D:\Programs\containerd\config.toml");
        assert_eq!(read(r"--config C:\k\config.toml --run-service"), r"C:\k\config.toml");
        assert_eq!(config(&[], None).as_str(), r"C:\Program Files\containerd\config.toml");
    }

    #[test]
    fn a_program_of_windows_has_its_version() {
        assert_ne!(version(&WinPath::known(r"C:\windows\system32\version.dll")), "");
        assert_eq!(version(&WinPath::known(r"C:\windows\no-such.exe")), "");
    }
}
