//! What waits for Windows to be restarted, and restarting it.

use std::ptr;

use anyhow::{Context, Result};
use windows_sys::Win32::Foundation::{ERROR_SHUTDOWN_IN_PROGRESS, FARPROC};

use super::wide::{last_error, wide};
use super::{dll, os, registry};
use crate::node::win32::refused;

/// How long who is logged on has to save their work. Seconds.
const NOTICE: u32 = 30;

/// `SHTDN_REASON_MAJOR_APPLICATION | SHTDN_REASON_MINOR_INSTALLATION | SHTDN_REASON_FLAG_PLANNED`
/// (reason.h): what the Event Log says of it.
const REASON: u32 = 0x0004_0000 | 0x0000_0002 | 0x8000_0000;

/// Has Windows restart. One that is under way already is as good.
///
/// # Errors
/// When this process may not, and what Windows refuses with.
pub fn restart(why: &str) -> Result<()> {
    type Initiate = unsafe extern "system" fn(*const u16, *const u16, u32, i32, i32, u32) -> i32;
    let what = "restart Windows";
    os::enable("SeShutdownPrivilege").context("take the right to restart Windows")?;
    let found = dll::function("advapi32.dll", c"InitiateSystemShutdownExW").map_err(|code| refused(code, what))?;
    // SAFETY: the function of this name has this form (winreg.h); a found function is not null, and
    // `Option` of it has the same form.
    let initiate = unsafe { std::mem::transmute::<FARPROC, Initiate>(found) };
    let message = wide(why);
    // SAFETY: the message is UTF-16 with a zero at its end and outlives the call; null is this machine.
    if unsafe { initiate(ptr::null(), message.as_ptr(), NOTICE, 0, 1, REASON) } != 0 {
        return Ok(());
    }
    match last_error() {
        ERROR_SHUTDOWN_IN_PROGRESS => Ok(()),
        code => Err(refused(code, what).into()),
    }
}

const SESSION_MANAGER: &str = r"SYSTEM\CurrentControlSet\Control\Session Manager";
const COMPUTER_NAME: &str = r"SYSTEM\CurrentControlSet\Control\ComputerName";
const SERVICING: &str = r"SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending";
const UPDATE: &str = r"SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired";

/// The reasons for a restart, a sentence each. Files that wait to be moved or deleted are one of
/// them; ours may be among those.
///
/// # Errors
/// When the registry cannot be read.
pub fn facts() -> Result<Vec<String>> {
    let mut reasons = Vec::new();
    if registry::exists(SERVICING)? {
        reasons.push("a Windows feature or update was added or removed".into());
    }
    if registry::exists(UPDATE)? {
        reasons.push("Windows Update installed something".into());
    }
    let names = pending_files()?;
    if let Some(first) = names.first() {
        let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        reasons.push(format!("files wait to be moved or deleted: {first}{more}"));
    }
    let name = |part: &str| registry::text(&format!(r"{COMPUTER_NAME}\{part}"), "ComputerName");
    if let (Some(now), Some(next)) = (name("ActiveComputerName")?, name("ComputerName")?)
        && !now.eq_ignore_ascii_case(&next)
    {
        reasons.push(format!("the computer is to be named {next}"));
    }
    Ok(reasons)
}

/// What is to be moved or deleted at the next start. Pairs of from and to, and a file that is to go
/// has an empty one for its second, which a reader of lists of texts takes for the end.
fn pending_files() -> Result<Vec<String>> {
    let Some(key) = registry::open(SESSION_MANAGER)? else { return Ok(Vec::new()) };
    let Ok(value) = key.get_value("PendingFileRenameOperations") else { return Ok(Vec::new()) };
    let texts: Vec<String> = value.as_wide().split(|unit| *unit == 0).map(String::from_utf16_lossy).collect();
    Ok(texts.chunks(2).filter_map(|pair| Some(pair[0].strip_prefix(r"\??\")?.to_owned())).collect())
}
