//! What waits for Windows to be restarted.

use anyhow::Result;

use super::registry;

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
