//! Attempts that show how this Windows behaves.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use windows_service::service::ServiceAccess;
use windows_sys::Win32::Storage::FileSystem::{FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE};

use super::{disk, event_log, firewall, hns, scm, services};
use crate::node::files;
use crate::node::probe::Probe;
use crate::node::win32;
use crate::values::WinPath;

/// See [`crate::node::Node::probe`].
pub fn run(probe: &Probe) -> Result<Option<u32>> {
    match probe {
        Probe::ReplaceOpenFile(path) => replace_open(path),
        Probe::MoveOpenFolder(file) => move_open(file),
        Probe::ReuseHeldName(name) => reuse_held(name),
        Probe::FindPersistentRoute(address) => Ok(find_persistent(*address)),
        Probe::RuleInEveryProfile(name) => Ok((!firewall::is_in_every_profile(name)?).then_some(win32::NOT_FOUND)),
        Probe::FindEvent(text) => Ok(find_event(text)),
        Probe::MakeEndpoint { network, name, ip } => hns::make_endpoint(network, name, *ip),
    }
}

fn hold(place: &Path, share: u32) -> Result<File> {
    let held = File::options().read(true).share_mode(share).open(place);
    held.with_context(|| format!("open {}", place.display()))
}

fn replace_open(path: &WinPath) -> Result<Option<u32>> {
    let place = disk::place(path);
    let new = files::beside(&place);
    fs::write(&new, b"new").with_context(|| format!("write {}", new.display()))?;
    let held = hold(&place, FILE_SHARE_READ)?;
    let tried = fs::rename(&new, &place);
    drop(held);
    files::gone(fs::remove_file(&new)).with_context(|| format!("remove {}", new.display()))?;
    Ok(code(tried))
}

fn move_open(file: &WinPath) -> Result<Option<u32>> {
    let place = disk::place(file);
    let folder = place.parent().context("a file has a folder")?;
    let away = files::beside(folder);
    let held = hold(&place, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE)?;
    let tried = fs::rename(folder, &away);
    drop(held);
    if tried.is_ok() {
        fs::rename(&away, folder).with_context(|| format!("rename {}", away.display()))?;
    }
    Ok(code(tried))
}

fn code(tried: io::Result<()>) -> Option<u32> {
    tried.err().map(|error| error.raw_os_error().map_or(win32::UNSPECIFIED, i32::cast_unsigned))
}

/// The name of a deleted service is reserved until everybody has closed it (DeleteService).
fn reuse_held(name: &str) -> Result<Option<u32>> {
    let said = |error| scm::said(error, format!("delete service {name}, which is open"));
    let definition = services::get(name)?.with_context(|| format!("find service {name}"))?;
    let held = scm::open(name, ServiceAccess::QUERY_STATUS).map_err(said)?;
    if let Some(opened) = scm::open(name, ServiceAccess::DELETE).map_err(said)? {
        opened.delete().map_err(said)?;
    }
    let again = scm::create(name, &definition);
    drop(held);
    Ok(again.err().map(|error| scm::code(&error).unwrap_or(win32::UNSPECIFIED)))
}

/// Where `route -p` keeps routes, by their text; and where the Network Store Interface keeps those of
/// `New-NetRoute`, by names that hold the address in hex. The second is not documented.
const PERSISTENT: [&str; 2] = [
    r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\PersistentRoutes",
    r"SYSTEM\CurrentControlSet\Control\Nsi\{eb004a00-9b1a-11d4-9123-0050047759bc}\16",
];

fn find_persistent(address: Ipv4Addr) -> Option<u32> {
    let hex: String = address.octets().iter().map(|octet| format!("{octet:02x}")).collect();
    let names = [format!("{address},"), hex];
    let is_there = PERSISTENT.iter().any(|key| {
        let values = windows_registry::LOCAL_MACHINE.open(key).and_then(|key| Ok(key.values()?.collect::<Vec<_>>()));
        // A key that is not there has no routes.
        values.unwrap_or_default().iter().any(|(name, _)| {
            let name = name.to_lowercase();
            names.iter().any(|wanted| name.contains(wanted.as_str()))
        })
    });
    (!is_there).then_some(win32::NOT_FOUND)
}

/// Searches the newest entries, half a megabyte of them.
fn find_event(text: &str) -> Option<u32> {
    let needle: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut found = Some(win32::NOT_FOUND);
    let opened = event_log::newest("Application", |records| {
        if records.windows(needle.len()).any(|part| part == needle) {
            found = None;
        }
        found.is_some()
    });
    if let Err(code) = opened {
        return Some(code);
    }
    found
}
