//! Processes by name and by pid, with the time they were created.

use std::io;
use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use windows_sys::Win32::Foundation::{
    ERROR_INVALID_PARAMETER, ERROR_NO_MORE_FILES, FILETIME, INVALID_HANDLE_VALUE, WAIT_FAILED, WAIT_OBJECT_0,
};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::Threading::{
    GetProcessTimes, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, WaitForSingleObject,
};

use super::filetime;

/// A process that runs now. Pids are used again; pid and creation time together are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub pid: u32,
    pub created: Timestamp,
}

/// The processes whose image has this file name, without regard to case.
pub fn named(image: &str) -> Result<Vec<Running>> {
    let mut found = Vec::new();
    for (pid, name) in snapshot()? {
        // One that has ended since is not there any more.
        if name.to_lowercase() == image.to_lowercase()
            && let Some(process) = by_pid(pid)?
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// The process with this pid; none when there is none.
///
/// # Errors
/// When Windows does not let us look at it.
pub fn by_pid(pid: u32) -> Result<Option<Running>> {
    let Some(handle) = open(pid)? else { return Ok(None) };
    // An ended process keeps its pid as long as somebody has it open, as the Service Control
    // Manager may.
    if wait(&handle, Duration::ZERO)? {
        return Ok(None);
    }
    Ok(created(&handle, pid)?.map(|created| Running { pid, created }))
}

/// Whether this very process still runs.
pub fn is_there(process: &Running) -> Result<bool> {
    Ok(by_pid(process.pid)?.as_ref() == Some(process))
}

/// Waits for this very process to end. Says whether it did within the limit.
pub fn ends_within(process: &Running, limit: Duration) -> Result<bool> {
    match open(process.pid)? {
        Some(handle) if created(&handle, process.pid)? == Some(process.created) => wait(&handle, limit),
        _ => Ok(true),
    }
}

fn open(pid: u32) -> Result<Option<OwnedHandle>> {
    // SAFETY: no pointers are passed.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE, 0, pid) };
    if handle.is_null() {
        let error = io::Error::last_os_error();
        // What Windows says of a pid that nobody has.
        if error.raw_os_error() == Some(ERROR_INVALID_PARAMETER.cast_signed()) {
            return Ok(None);
        }
        return Err(error).with_context(|| format!("look at process {pid}"));
    }
    // SAFETY: the handle is open, and nobody else closes it.
    Ok(Some(unsafe { OwnedHandle::from_raw_handle(handle) }))
}

/// Waits for the end of a process; true when it has ended.
fn wait(process: &OwnedHandle, limit: Duration) -> Result<bool> {
    // All ones would mean without limit.
    let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
    // SAFETY: the handle is open for as long as it is borrowed.
    match unsafe { WaitForSingleObject(process.as_raw_handle(), millis) } {
        WAIT_OBJECT_0 => Ok(true),
        WAIT_FAILED => Err(io::Error::last_os_error()).context("wait for a process to end"),
        _ => Ok(false),
    }
}

/// When a process began; none where it is still being made.
fn created(process: &OwnedHandle, pid: u32) -> Result<Option<Timestamp>> {
    let [mut created, mut exited, mut kernel, mut user] = [FILETIME::default(); 4];
    // SAFETY: the handle is open, and the four times outlive the call that fills them.
    let done = unsafe { GetProcessTimes(process.as_raw_handle(), &mut created, &mut exited, &mut kernel, &mut user) };
    if done == 0 {
        return Err(io::Error::last_os_error()).with_context(|| format!("ask when process {pid} was created"));
    }
    let ticks = (u64::from(created.dwHighDateTime) << 32) | u64::from(created.dwLowDateTime);
    Ok(begun(ticks))
}

/// Under Wine a process that is being made is in the list already, with whatever stood in memory where its
/// time will stand: taken for a time, the same process would be another one a moment later.
fn begun(ticks: u64) -> Option<Timestamp> {
    filetime::timestamp(ticks.cast_signed()).ok().filter(|created| *created > Timestamp::UNIX_EPOCH)
}

/// Pid and image name of every process.
fn snapshot() -> Result<Vec<(u32, String)>> {
    // SAFETY: no pointers are passed.
    let handle = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error()).context("list the processes");
    }
    // SAFETY: the handle is open, and nobody else closes it.
    let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
    let size = u32::try_from(size_of::<PROCESSENTRY32W>()).expect("an entry is a few hundred bytes");
    let mut entry = PROCESSENTRY32W { dwSize: size, ..PROCESSENTRY32W::default() };
    let mut processes = Vec::new();
    // SAFETY: the snapshot is open, and the entry says its own size.
    let mut more = unsafe { Process32FirstW(handle.as_raw_handle(), &mut entry) };
    while more != 0 {
        let end = entry.szExeFile.iter().position(|&unit| unit == 0).unwrap_or(entry.szExeFile.len());
        processes.push((entry.th32ProcessID, String::from_utf16_lossy(&entry.szExeFile[..end])));
        // SAFETY: as above.
        more = unsafe { Process32NextW(handle.as_raw_handle(), &mut entry) };
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(ERROR_NO_MORE_FILES.cast_signed()) {
        bail!("list the processes: {error}");
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_without_a_time_is_still_being_made() {
        for garbage in [0, 0x5555_5570_12a0, u64::from(u32::MAX), 0x7f00_0000_0000_0000, u64::MAX] {
            assert_eq!(begun(garbage), None, "{garbage:#x}");
        }
        assert_eq!(begun(134_082_432_000_000_000).unwrap().to_string(), "2025-11-22T00:00:00Z");
    }

    #[test]
    fn a_process_is_found_by_name_and_pid_until_it_ends() {
        let me = by_pid(std::process::id()).unwrap().unwrap();
        assert!(me.created <= Timestamp::now() && is_there(&me).unwrap());
        let exe = std::env::current_exe().unwrap();
        let shouted = exe.file_name().unwrap().to_string_lossy().to_uppercase();
        assert!(named(&shouted).unwrap().contains(&me));
        assert!(!ends_within(&me, Duration::from_millis(1)).unwrap());

        let mut program = Command::new(exe);
        program.args(["--ignored", "--exact", "node::windows::processes::tests::until_its_input_ends"]);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = by_pid(child.id()).unwrap().unwrap();
        assert!(is_there(&process).unwrap());
        drop(child.stdin.take());
        assert!(ends_within(&process, Duration::from_secs(30)).unwrap());
        // The child is still open here, and so is its pid.
        assert_eq!(by_pid(process.pid).unwrap(), None);
        assert!(!is_there(&process).unwrap() && ends_within(&process, Duration::ZERO).unwrap());
        child.wait().unwrap();
        assert_eq!(by_pid(3).unwrap(), None, "pids are multiples of four");
    }

    #[test]
    #[ignore = "not a test: the child of the one above"]
    fn until_its_input_ends() {
        io::stdin().read_line(&mut String::new()).unwrap();
    }
}
