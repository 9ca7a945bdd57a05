//! What requires a restart of Windows, and restarting it.

use std::ptr;

use anyhow::{Context, Result};
use windows_sys::Win32::Foundation::{ERROR_SHUTDOWN_IN_PROGRESS, FARPROC};

use super::wide::{last_error, wide};
use super::{dll, os, registry};
use crate::node::win32::refused;

/// How many seconds logged-on users have to save their work.
const NOTICE: u32 = 30;

/// `SHTDN_REASON_MAJOR_APPLICATION | SHTDN_REASON_MINOR_INSTALLATION | SHTDN_REASON_FLAG_PLANNED` (reason.h): the
/// reason in the Event Log.
const REASON: u32 = 0x0004_0000 | 0x0000_0002 | 0x8000_0000;

/// Restarts Windows. Succeeds if a restart is already in progress.
///
/// # Errors
/// When this process may not, and Windows's own errors.
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

/// The reasons for a restart, a sentence each. Files that will be moved or deleted are one of them, ours too.
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
        reasons.push(format!("the computer is renamed to {next} at the next start"));
    }
    Ok(reasons)
}

/// What will be moved or deleted at the next start: `MoveFileEx` fills the first list, and the second while the first is
/// being worked off (<https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-movefileexw>).
fn pending_files() -> Result<Vec<String>> {
    let Some(key) = registry::open(SESSION_MANAGER)? else { return Ok(Vec::new()) };
    let lists = ["PendingFileRenameOperations", "PendingFileRenameOperations2"];
    Ok(lists.into_iter().filter_map(|name| key.get_value(name).ok()).flat_map(|value| froms(value.as_wide())).collect())
}

/// The paths that are moved or deleted. Pairs of from and to; a file that will be deleted has an empty second text,
/// which an ordinary reader takes for the end of the list. Before a path may stand `*` and a digit, for the pass in which
/// it is worked off.
fn froms(list: &[u16]) -> Vec<String> {
    let texts: Vec<String> = list.split(|unit| *unit == 0).map(String::from_utf16_lossy).collect();
    let path = |text: &str| {
        let text = text.strip_prefix('*').map_or(text, |text| text.trim_start_matches(|c: char| c.is_ascii_digit()));
        text.strip_prefix(r"\??\").map(str::to_owned)
    };
    texts.chunks(2).filter_map(|pair| path(&pair[0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_pending_move_is_read() {
        let list = [r"\??\C:\a.old", "", r"*1\??\C:\b.new", r"!\??\C:\b", r"*2\??\C:\c.old", "", "junk", ""];
        let list: Vec<u16> = list.iter().flat_map(wide).chain([0]).collect();
        assert_eq!(froms(&list), [r"C:\a.old", r"C:\b.new", r"C:\c.old"]);
        assert_eq!(froms(&[]), [""; 0]);
    }
}
