//! Processes by name and by pid, with their creation time.

use std::collections::BTreeMap;
use std::io;
use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_PARAMETER, ERROR_NO_MORE_FILES, FILETIME, INVALID_HANDLE_VALUE, WAIT_FAILED,
    WAIT_OBJECT_0,
};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::Threading::{
    GetProcessTimes, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, WaitForSingleObject,
};

use super::filetime;

/// A running process. Pids are reused; pid and creation time together are unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub pid: u32,
    /// None if Windows does not let us open the process: an administrator without `SeDebugPrivilege` may not open those
    /// of other accounts, for example NETWORK SERVICE, nor those that a security product protects.
    pub created: Option<Timestamp>,
}

impl Running {
    /// Whether it is the same process, as far as Windows tells.
    fn is(&self, other: &Self) -> bool {
        let told = self.created.zip(other.created);
        self.pid == other.pid && told.is_none_or(|(mine, its)| mine == its)
    }
}

/// The processes whose image has this file name, without regard to case.
pub fn named(image: &str) -> Result<Vec<Running>> {
    let mut found = Vec::new();
    for listed in snapshot()? {
        // It may have ended since it was listed.
        if listed.image.to_lowercase() == image.to_lowercase()
            && let Some(process) = by_pid(listed.pid)?
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// The process with this pid; none if there is none. One that Windows does not let us open is there.
///
/// # Errors
/// Windows's own, other than "access denied".
pub fn by_pid(pid: u32) -> Result<Option<Running>> {
    let handle = match open(pid)? {
        Opened::Gone => return Ok(None),
        Opened::Denied => return Ok(is_listed(pid)?.then_some(Running { pid, created: None })),
        Opened::Process(handle) => handle,
    };
    // An ended process keeps its pid while another process has it open, for example the Service Control Manager.
    if wait(&handle, Duration::ZERO)? {
        return Ok(None);
    }
    Ok(created(&handle, pid)?.map(|created| Running { pid, created: Some(created) }))
}

/// Whether exactly this process still runs.
pub fn is_there(process: &Running) -> Result<bool> {
    Ok(by_pid(process.pid)?.is_some_and(|found| found.is(process)))
}

/// How often a process that cannot be waited for is looked for in the list of all.
const LIST_EVERY: Duration = Duration::from_millis(100);

/// Waits for exactly this process to end. Returns whether it did within the limit.
pub fn ends_within(process: &Running, limit: Duration) -> Result<bool> {
    match open(process.pid)? {
        Opened::Gone => Ok(true),
        Opened::Denied => {
            let begun = Instant::now();
            while is_listed(process.pid)? {
                let left = limit.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    return Ok(false);
                }
                sleep(left.min(LIST_EVERY));
            }
            Ok(true)
        }
        Opened::Process(handle) => {
            let now = created(&handle, process.pid)?;
            let same = now.is_some() && (process.created.is_none() || process.created == now);
            if same { wait(&handle, limit) } else { Ok(true) }
        }
    }
}

/// A process that is looked at often. It stays open, so that each look is one cheap question: opening it twenty
/// times a second fills the records of security products.
#[derive(Debug)]
pub struct Watched {
    process: Running,
    handle: OwnedHandle,
}

impl Watched {
    /// Opens exactly this process; none if it has ended, or may not be opened.
    ///
    /// # Errors
    /// Windows's own, other than "access denied".
    pub fn open(process: &Running) -> Result<Option<Self>> {
        let Opened::Process(handle) = open(process.pid)? else { return Ok(None) };
        let found = created(&handle, process.pid)?.map(|created| Running { pid: process.pid, created: Some(created) });
        let same = found.is_some_and(|found| found.is(process));
        Ok(same.then(|| Self { process: process.clone(), handle }))
    }

    /// Whether this is that process.
    pub fn is(&self, process: &Running) -> bool {
        self.process == *process
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// Windows's own.
    pub fn runs(&self) -> Result<bool> {
        wait(&self.handle, Duration::ZERO).map(|ended| !ended)
    }
}

enum Opened {
    Process(OwnedHandle),
    /// Windows does not let us open it. A process that has ended may be refused in the same way.
    Denied,
    Gone,
}

fn open(pid: u32) -> Result<Opened> {
    // SAFETY: no pointers are passed.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE, 0, pid) };
    if handle.is_null() {
        let error = io::Error::last_os_error();
        return match error.raw_os_error().map(i32::cast_unsigned) {
            // Windows's error for an unused pid.
            Some(ERROR_INVALID_PARAMETER) => Ok(Opened::Gone),
            Some(ERROR_ACCESS_DENIED) => Ok(Opened::Denied),
            _ => Err(error).with_context(|| format!("look at process {pid}")),
        };
    }
    // SAFETY: the handle is open, and nobody else closes it.
    Ok(Opened::Process(unsafe { OwnedHandle::from_raw_handle(handle) }))
}

/// Whether a process of this pid runs: the list needs no right to it, and has none that ended.
fn is_listed(pid: u32) -> Result<bool> {
    Ok(snapshot()?.iter().any(|listed| listed.pid == pid))
}

/// Waits for the end of a process; true when it has ended.
fn wait(process: &OwnedHandle, limit: Duration) -> Result<bool> {
    // All ones would mean no limit.
    let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
    // SAFETY: the handle is open for as long as it is borrowed.
    match unsafe { WaitForSingleObject(process.as_raw_handle(), millis) } {
        WAIT_OBJECT_0 => Ok(true),
        WAIT_FAILED => Err(io::Error::last_os_error()).context("wait for a process to end"),
        _ => Ok(false),
    }
}

/// The creation time of a process; none if it is still being created.
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

/// Under Wine a process that is being created is already in the list, with arbitrary memory in place of its time: used
/// as a time, the process would seem to be another one a moment later.
fn begun(ticks: u64) -> Option<Timestamp> {
    filetime::timestamp(ticks.cast_signed()).ok().filter(|created| *created > Timestamp::UNIX_EPOCH)
}

/// A process in the list of all.
pub struct Listed {
    pub pid: u32,
    /// Who started it. It may have ended since, and its pid be another's.
    pub parent: u32,
    pub image: String,
}

/// The image names of the process that started this one, of the one that started that, and so on.
///
/// # Errors
/// When Windows does not list the processes.
pub fn ancestors() -> Result<Vec<String>> {
    let mut all: BTreeMap<u32, Listed> = snapshot()?.into_iter().map(|listed| (listed.pid, listed)).collect();
    let mut found = Vec::new();
    // Each is taken once, so reused pids make no circle.
    let mut next = all.remove(&std::process::id()).map(|own| own.parent);
    while let Some(listed) = next.and_then(|pid| all.remove(&pid)) {
        next = Some(listed.parent);
        found.push(listed.image);
    }
    Ok(found)
}

/// Every process.
pub fn snapshot() -> Result<Vec<Listed>> {
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
        processes.push(Listed {
            pid: entry.th32ProcessID,
            parent: entry.th32ParentProcessID,
            image: String::from_utf16_lossy(&entry.szExeFile[..end]),
        });
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
    use std::process::{Child, Command, Stdio};

    use windows_sys::Win32::Security::{
        ACL, ACL_REVISION, DACL_SECURITY_INFORMATION, InitializeAcl, InitializeSecurityDescriptor, SECURITY_DESCRIPTOR,
        SetKernelObjectSecurity, SetSecurityDescriptorDacl,
    };
    use windows_sys::Win32::System::SystemServices::SECURITY_DESCRIPTOR_REVISION;

    use super::*;

    #[test]
    fn a_process_without_a_time_is_still_being_created() {
        for garbage in [0, 0x5555_5570_12a0, u64::from(u32::MAX), 0x7f00_0000_0000_0000, u64::MAX] {
            assert_eq!(begun(garbage), None, "{garbage:#x}");
        }
        assert_eq!(begun(134_082_432_000_000_000).unwrap().to_string(), "2025-11-22T00:00:00Z");
    }

    #[test]
    fn who_started_this_process_is_known_by_its_image() {
        let exe = std::env::current_exe().unwrap();
        let mut program = Command::new(&exe);
        program.args(["--ignored", "--exact", "--nocapture", "node::windows::processes::tests::names_its_ancestors"]);
        let said = String::from_utf8(program.output().unwrap().stdout).unwrap();
        let own = exe.file_name().unwrap().to_string_lossy().into_owned();
        assert!(said.lines().any(|line| line == format!("started by {own}")), "{said}");
    }

    #[test]
    #[ignore = "another test starts it"]
    #[expect(clippy::print_stdout, reason = "the other test reads it")]
    fn names_its_ancestors() {
        println!("\nstarted by {}", ancestors().unwrap().first().unwrap());
    }

    #[test]
    fn a_process_is_found_by_name_and_pid_until_it_ends() {
        let me = by_pid(std::process::id()).unwrap().unwrap();
        assert!(me.created.unwrap() <= Timestamp::now() && is_there(&me).unwrap());
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
        // The child is still open here, so its pid is still used.
        assert_eq!(by_pid(process.pid).unwrap(), None);
        assert!(!is_there(&process).unwrap() && ends_within(&process, Duration::ZERO).unwrap());
        child.wait().unwrap();
        assert_eq!(by_pid(3).unwrap(), None, "pids are multiples of four");
    }

    fn child() -> Child {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--ignored", "--exact", "node::windows::processes::tests::until_its_input_ends"]);
        program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_watched_process_stays_open_and_others_do_not() {
        let node = crate::node::windows::WindowsNode::default();
        let runs = |pid: u32, created: Option<Timestamp>| {
            crate::node::Node::runs(&node, &crate::node::Process { pid, since: created }).unwrap()
        };
        let [watched, other] = [child(), child()];
        let known = [&other, &watched].map(|child| by_pid(child.id()).unwrap().unwrap());
        // The one that is asked for last is watched. It ends first.
        assert!(known.iter().all(|process| runs(process.pid, process.created)));
        for mut child in [watched, other] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        // Windows frees a pid some time after nobody has the process open.
        let begun = Instant::now();
        while !matches!(open(known[0].pid).unwrap(), Opened::Gone) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            sleep(Duration::from_millis(10));
        }
        assert!(matches!(open(known[1].pid).unwrap(), Opened::Process(_)), "nobody has it open");
        assert!(!runs(known[1].pid, known[1].created));
    }

    /// A child that runs until its input ends, and that Windows lets nobody open: its access list is empty.
    fn protected() -> Child {
        let child = child();
        let mut acl = ACL::default();
        let mut descriptor = SECURITY_DESCRIPTOR::default();
        let size = u32::try_from(size_of::<ACL>()).unwrap();
        // SAFETY: both structures outlive the calls, and the handle is the child's own.
        unsafe {
            let descriptor = (&raw mut descriptor).cast();
            assert_ne!(InitializeAcl(&mut acl, size, ACL_REVISION), 0);
            assert_ne!(InitializeSecurityDescriptor(descriptor, SECURITY_DESCRIPTOR_REVISION), 0);
            assert_ne!(SetSecurityDescriptorDacl(descriptor, 1, &acl, 0), 0);
            assert_ne!(SetKernelObjectSecurity(child.as_raw_handle(), DACL_SECURITY_INFORMATION, descriptor), 0);
        }
        child
    }

    #[test]
    fn a_process_that_windows_lets_nobody_open_is_there() {
        let mut child = protected();
        let process = Running { pid: child.id(), created: None };
        assert!(matches!(open(process.pid).unwrap(), Opened::Denied), "this Windows lets us open it all the same");
        assert_eq!(by_pid(process.pid).unwrap(), Some(process.clone()));
        let image = std::env::current_exe().unwrap();
        assert!(named(&image.file_name().unwrap().to_string_lossy()).unwrap().contains(&process));
        assert!(is_there(&process).unwrap());
        assert!(!ends_within(&process, Duration::from_millis(1)).unwrap());
        drop(child.stdin.take());
        assert!(ends_within(&process, Duration::from_secs(30)).unwrap());
        assert_eq!(by_pid(process.pid).unwrap(), None, "the child is still open here, so its pid is still used");
        child.wait().unwrap();
    }

    #[test]
    #[ignore = "not a test: the child of the ones above"]
    fn until_its_input_ends() {
        io::stdin().read_line(&mut String::new()).unwrap();
    }
}
