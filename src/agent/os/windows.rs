//! Jobs, Ctrl-C on a private console, the Service Control Manager and the Event Log.

use std::env;
use std::ffi::{OsString, c_void};
use std::io;
use std::mem;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use windows_service::service::{
    ServiceControl, ServiceControlAccept, ServiceExitCode, ServiceState, ServiceStatus, ServiceType,
};
use windows_service::service_control_handler::{self, ServiceControlHandlerResult, ServiceStatusHandle};
use windows_service::{define_windows_service, service_dispatcher};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_FAILED_SERVICE_CONTROLLER_CONNECT, ERROR_PROCESS_ABORTED, HANDLE_FLAG_INHERIT,
    INVALID_HANDLE_VALUE, SetHandleInformation,
};
use windows_sys::Win32::System::Console::{
    ATTACH_PARENT_PROCESS, AttachConsole, CTRL_C_EVENT, FreeConsole, GenerateConsoleCtrlEvent, GetConsoleCP,
    GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, SetConsoleCtrlHandler, SetStdHandle,
};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::EventLog::{
    DeregisterEventSource, EVENTLOG_ERROR_TYPE, EVENTLOG_INFORMATION_TYPE, EVENTLOG_WARNING_TYPE, RegisterEventSourceW,
    ReportEventW,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, IsProcessInJob, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation, SetInformationJobObject,
    TerminateJobObject,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::RemoteDesktop::{
    ProcessIdToSessionId, WTS_CURRENT_SERVER_HANDLE, WTS_CURRENT_SESSION, WTSClientProtocolType,
};
use windows_sys::Win32::System::Threading::{
    CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, CREATE_SUSPENDED, DETACHED_PROCESS,
    GetCurrentProcess, GetCurrentProcessId, OpenThread, ResumeThread, THREAD_SUSPEND_RESUME,
};

use super::{Body, Level, Place, Scm};
use crate::agent::stop::Stop;
use crate::calico::registry::EVENT_SOURCE;
use crate::node::windows::dll::late;
use crate::node::windows::{filetime, processes};

/// A process has one console, and its children inherit whether it ignores Ctrl-C: an interrupt and a start must not
/// happen at the same time.
static CONSOLE: Mutex<()> = Mutex::new(());

/// Starts a process that outlives this one and its session: without its console, in its own group, and outside the
/// session's job, which ends with the session, if that job allows it. The caller must redirect its standard streams.
///
/// # Errors
/// When it cannot be started.
pub fn detach(command: &mut Command) -> io::Result<Child> {
    for id in [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        // If it inherited a pipe, the reader of this process's output would wait for its end.
        // SAFETY: takes no memory of this process; an invalid handle is refused.
        unsafe { SetHandleInformation(GetStdHandle(id), HANDLE_FLAG_INHERIT, 0) };
    }
    let detached = DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP;
    command.creation_flags(detached | CREATE_BREAKAWAY_FROM_JOB).spawn().or_else(|error| {
        if error.raw_os_error() == Some(ERROR_ACCESS_DENIED.cast_signed()) {
            return command.creation_flags(detached).spawn();
        }
        Err(error)
    })
}

/// A process and its children: a job, which kills them all when it is closed, also when this process is killed.
#[derive(Debug)]
pub struct JobObject {
    pid: u32,
    job: OwnedHandle,
}

impl JobObject {
    /// Starts a process, with a hidden console of its own: its Ctrl-C will come from there. With its own process group
    /// it would not receive it.
    ///
    /// # Errors
    /// When it cannot be started or put into the job. Nothing of it runs then.
    pub fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        command.creation_flags(CREATE_SUSPENDED | CREATE_NO_WINDOW);
        let mut child = {
            let _mine = CONSOLE.lock().unwrap_or_else(PoisonError::into_inner);
            // [`JobObject::interrupt`] leaves Ctrl-C ignored.
            // SAFETY: takes no memory of this process.
            unsafe { SetConsoleCtrlHandler(None, 0) };
            command.spawn()?
        };
        match Self::hold(&child) {
            Ok(job) => Ok((child, job)),
            Err(error) => {
                // It is still suspended, so it has done nothing.
                drop(child.kill().and_then(|()| child.wait()));
                Err(error)
            }
        }
    }

    /// Puts a suspended process into a job, and resumes it.
    fn hold(child: &Child) -> io::Result<Self> {
        // SAFETY: no attributes and no name; the result is checked before it is owned.
        let job = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        if job.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle was just created here, and nothing else closes it.
        let job = unsafe { OwnedHandle::from_raw_handle(job) };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let size = size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>() as u32;
        // SAFETY: the pointer and the size are those of `limits`, which outlives the call.
        succeeded(unsafe {
            SetInformationJobObject(
                job.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast::<c_void>(),
                size,
            )
        })?;
        // SAFETY: both handles are open: the child is not waited for yet.
        succeeded(unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) })?;
        resume(child.id())?;
        Ok(Self { pid: child.id(), job })
    }

    /// Sends Ctrl-C to the process, which a Go program handles as os.Interrupt.
    ///
    /// # Errors
    /// When the process has no console (any more).
    pub fn interrupt(&self) -> io::Result<()> {
        let _mine = CONSOLE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: none of these calls takes memory of this process; the handler is a plain function that
        // lives as long as the program.
        unsafe {
            let had_console = GetConsoleCP() != 0;
            // Attaching replaces files and pipes by the console.
            let streams = [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE].map(|id| (id, GetStdHandle(id)));
            FreeConsole();
            // While this process is on that console it gets the Ctrl-C too, maybe only after it has left again: a handler
            // discards it (attaching removes the earlier one), and it is ignored until the next process is started.
            let sent = succeeded(AttachConsole(self.pid)).and_then(|()| {
                SetConsoleCtrlHandler(None, 1);
                SetConsoleCtrlHandler(Some(swallow), 0);
                SetConsoleCtrlHandler(Some(swallow), 1);
                succeeded(GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0))
            });
            FreeConsole();
            if had_console {
                AttachConsole(ATTACH_PARENT_PROCESS);
            }
            for (id, stream) in streams {
                SetStdHandle(id, stream);
            }
            sent
        }
    }

    /// Kills the process and its children.
    pub fn kill(&self) {
        // SAFETY: the job is open as long as `self` is.
        unsafe { TerminateJobObject(self.job.as_raw_handle(), ERROR_PROCESS_ABORTED) };
    }
}

unsafe extern "system" fn swallow(control: u32) -> i32 {
    i32::from(control == CTRL_C_EVENT)
}

/// Resumes the threads of a suspended process: only one, before it has run.
fn resume(pid: u32) -> io::Result<()> {
    // SAFETY: the result is checked before it is owned, and nobody else closes it.
    let threads = unsafe {
        let threads = CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0);
        if threads == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        OwnedHandle::from_raw_handle(threads)
    };
    let mut entry = THREADENTRY32 { dwSize: size_of::<THREADENTRY32>() as u32, ..Default::default() };
    // SAFETY: the entry says its size, and outlives the call.
    let mut more = unsafe { Thread32First(threads.as_raw_handle(), &mut entry) };
    let mut resumed = 0;
    while more != 0 {
        if entry.th32OwnerProcessID == pid {
            // SAFETY: the handle is checked before it is owned and used.
            unsafe {
                let thread = OpenThread(THREAD_SUSPEND_RESUME, 0, entry.th32ThreadID);
                if thread.is_null() {
                    return Err(io::Error::last_os_error());
                }
                let thread = OwnedHandle::from_raw_handle(thread);
                if ResumeThread(thread.as_raw_handle()) == u32::MAX {
                    return Err(io::Error::last_os_error());
                }
            }
            resumed += 1;
        }
        // SAFETY: as for the first.
        more = unsafe { Thread32Next(threads.as_raw_handle(), &mut entry) };
    }
    if resumed == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
}

fn succeeded(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// When Windows started, like `Win32_OperatingSystem.LastBootUpTime`: the kernel's own record, and not the clock minus
/// the uptime, which differs after the clock was set.
pub fn boot_time() -> Timestamp {
    const TIME_OF_DAY: u32 = 3;
    type Query = unsafe extern "system" fn(u32, *mut c_void, u32, *mut u32) -> i32;
    let name: Vec<u16> = "ntdll.dll\0".encode_utf16().collect();
    // SYSTEM_TIMEOFDAY_INFORMATION: BootTime, CurrentTime, TimeZoneBias, then fields that are not needed.
    let mut answer = [0_i64; 6];
    // SAFETY: ntdll is in every process. The function has always had this signature; it gets a buffer of the given
    // size.
    let done = unsafe {
        let query = GetProcAddress(GetModuleHandleW(name.as_ptr()), c"NtQuerySystemInformation".as_ptr().cast());
        query.map(|query| {
            let query = mem::transmute::<unsafe extern "system" fn() -> isize, Query>(query);
            query(TIME_OF_DAY, answer.as_mut_ptr().cast(), size_of_val(&answer) as u32, ptr::null_mut())
        })
    };
    match done {
        // Not rounded to the second: what started less than a second before the boot is from before it.
        Some(0) => filetime::timestamp(answer[0]).unwrap_or_else(|_| Timestamp::now()),
        _ => Timestamp::now(),
    }
}

/// Where this process runs. If Windows does not say, the worst case is assumed.
pub fn place() -> Place {
    let (mut session, mut in_job) = (u32::MAX, 1);
    // SAFETY: both calls write one number each, to memory of this process, which is open for itself.
    unsafe {
        ProcessIdToSessionId(GetCurrentProcessId(), &raw mut session);
        IsProcessInJob(GetCurrentProcess(), ptr::null_mut(), &raw mut in_job);
    }
    Place { session, in_job: in_job != 0 }
}

/// The processes that host a shell of WinRM: PowerShell's, and that of winrs.
const WINRM: [&str; 2] = ["wsmprovhost.exe", "winrshost.exe"];

/// Whether this session rests on a connection over the network: RDP, SSH, WinRM.
pub fn is_remote() -> bool {
    // OpenSSH sets it.
    env::var_os("SSH_CONNECTION").is_some()
        || is_rdp()
        || processes::ancestors()
            .is_ok_and(|names| names.iter().any(|name| WINRM.iter().any(|host| name.eq_ignore_ascii_case(host))))
}

late!("wtsapi32.dll":
    fn WTSQuerySessionInformationW(server: *mut c_void, session: u32, what: i32, answer: *mut *mut u16,
        size: *mut u32) -> i32;
    fn WTSFreeMemory(memory: *mut c_void) -> ();
);

/// Whether this is a session of Remote Desktop.
fn is_rdp() -> bool {
    const RDP: u16 = 2;
    let (mut answer, mut size) = (ptr::null_mut(), 0);
    // SAFETY: on success Windows gives memory with one number of 16 bits, which is freed here.
    unsafe {
        let asked = WTSQuerySessionInformationW(
            WTS_CURRENT_SERVER_HANDLE,
            WTS_CURRENT_SESSION,
            WTSClientProtocolType,
            &raw mut answer,
            &raw mut size,
        );
        if asked == 0 || answer.is_null() {
            return false;
        }
        let rdp = size as usize >= size_of::<u16>() && answer.read() == RDP;
        WTSFreeMemory(answer.cast());
        rdp
    }
}

/// Writes to the Application log as `calicoctl-win`. If that fails, the log file has the message.
pub fn event_log(level: Level, message: &str) {
    // The message of each id from 1 to 1000 is the text alone: see `event_source`.
    let (kind, id) = match level {
        Level::Information => (EVENTLOG_INFORMATION_TYPE, 1),
        Level::Warning => (EVENTLOG_WARNING_TYPE, 100),
        Level::Error => (EVENTLOG_ERROR_TYPE, 200),
    };
    let source = wide(EVENT_SOURCE);
    // An entry takes 31,839 characters.
    let text = wide(&message.chars().take(8000).collect::<String>());
    let texts = [text.as_ptr()];
    // SAFETY: all texts end with a zero and outlive the calls; the handle is checked.
    unsafe {
        let log = RegisterEventSourceW(ptr::null(), source.as_ptr());
        if !log.is_null() {
            ReportEventW(log, kind, 0, id, ptr::null_mut(), 1, 0, texts.as_ptr(), ptr::null());
            DeregisterEventSource(log);
        }
    }
}

pub(super) fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().filter(|unit| *unit != 0).chain([0]).collect()
}

/// How long the Service Control Manager should wait for the next report of a service that starts or stops.
const HINT: Duration = Duration::from_secs(10);
/// A component gets 10 s to stop and 5 s to end. If it takes much longer, it hangs.
const STOP_LIMIT: Duration = Duration::from_secs(25);

/// What the control handler and the main function of the one service in this process share: Windows calls both, without
/// an argument of this program.
struct Shared {
    name: &'static str,
    body: Mutex<Option<Body>>,
    stop: Stop,
    status: OnceLock<ServiceStatusHandle>,
    /// The last report to the Service Control Manager.
    state: Mutex<ServiceState>,
    checkpoint: AtomicU32,
    arguments: OnceLock<Vec<OsString>>,
}

static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();

/// Runs a service under the Service Control Manager, until it is stopped. False if that did not start this process.
///
/// # Errors
/// When Windows refuses for another reason.
pub fn dispatch(name: &'static str, body: Body) -> Result<bool> {
    let shared = Shared {
        name,
        body: Mutex::new(Some(body)),
        stop: Stop::default(),
        status: OnceLock::new(),
        state: Mutex::new(ServiceState::StartPending),
        checkpoint: AtomicU32::new(0),
        arguments: OnceLock::new(),
    };
    if SHARED.set(Arc::new(shared)).is_err() {
        anyhow::bail!("run service {name}: this process already runs one");
    }
    let not_started_by_it = ERROR_FAILED_SERVICE_CONTROLLER_CONNECT.cast_signed();
    match service_dispatcher::start(name, ffi_service_main) {
        Ok(()) => Ok(true),
        Err(windows_service::Error::Winapi(error)) if error.raw_os_error() == Some(not_started_by_it) => Ok(false),
        Err(error) => Err(error).context("become a service"),
    }
}

/// The arguments with which the service of this process was started; the first is its name.
pub(super) fn start_arguments() -> &'static [OsString] {
    SHARED.get().and_then(|shared| shared.arguments.get()).map_or(&[], Vec::as_slice)
}

define_windows_service!(ffi_service_main, service_main);

fn service_main(arguments: Vec<OsString>) {
    let Some(shared) = SHARED.get() else { return };
    drop(shared.arguments.set(arguments));
    // A plain function: `register` frees what a closure holds at the first stop, and Windows may ask again after it.
    match service_control_handler::register(shared.name, handler) {
        Ok(status) => drop(shared.status.set(status)),
        Err(error) => {
            event_log(Level::Error, &format!("{}: no control handler: {error}", shared.name));
            return;
        }
    }
    shared.report(ServiceState::StartPending, NONE);
    let (send, ended) = mpsc::channel();
    let body = shared.body.lock().unwrap_or_else(PoisonError::into_inner).take();
    let worker = Arc::clone(shared);
    // The work is on its own thread: one that hangs in a call must not block the Service Control Manager forever.
    std::thread::spawn(move || {
        let code = body.map_or(0, |body| body(&worker.stop, &*worker));
        let _nobody_listens_when_the_stop_took_too_long = send.send(code);
    });
    let mut asked: Option<Instant> = None;
    let code = loop {
        match ended.recv_timeout(Duration::from_secs(1)) {
            Ok(code) => break Some(code),
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if shared.stop.requested() {
            let asked = *asked.get_or_insert_with(Instant::now);
            if asked.elapsed() >= STOP_LIMIT {
                event_log(Level::Error, &format!("{}: did not stop in time; it is ended", shared.name));
                break None;
            }
            shared.report(ServiceState::StopPending, NONE);
        } else {
            shared.report(ServiceState::StartPending, NONE);
        }
    };
    let exit = match code {
        // An end with an error would be one that the Service Control Manager restarts the service after
        // (`fFailureActionsOnNonCrashFailures`), in the middle of what it was stopped for.
        _ if shared.stop.requested() => NONE,
        Some(0) => NONE,
        Some(code) => ServiceExitCode::ServiceSpecific(code.cast_unsigned()),
        None => ServiceExitCode::Win32(ERROR_PROCESS_ABORTED),
    };
    shared.report(ServiceState::Stopped, exit);
}

fn handler(control: ServiceControl) -> ServiceControlHandlerResult {
    let Some(shared) = SHARED.get() else { return ServiceControlHandlerResult::NoError };
    match control {
        ServiceControl::Stop => shared.stop.request(),
        ServiceControl::Preshutdown | ServiceControl::Shutdown => shared.stop.request_for_shutdown(),
        ServiceControl::Interrogate => return ServiceControlHandlerResult::NoError,
        _ => return ServiceControlHandlerResult::NotImplemented,
    }
    shared.report(ServiceState::StopPending, NONE);
    ServiceControlHandlerResult::NoError
}

/// No error.
const NONE: ServiceExitCode = ServiceExitCode::NO_ERROR;

impl Shared {
    /// Reports to the Service Control Manager, unless an earlier report is later in a service's life: the worker, the
    /// thread that waits for it and Windows' own thread report concurrently.
    fn report(&self, state: ServiceState, exit_code: ServiceExitCode) {
        let mut told = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = match state {
            ServiceState::Stopped => false,
            ServiceState::StopPending => *told == ServiceState::Stopped,
            ServiceState::Running => self.stop.requested() || *told == ServiceState::Stopped,
            _ => *told != ServiceState::StartPending,
        };
        let (false, Some(handle)) = (stale, self.status.get()) else { return };
        *told = state;
        let pending = matches!(state, ServiceState::StartPending | ServiceState::StopPending);
        let accepted = match state {
            ServiceState::Running => ServiceControlAccept::STOP | ServiceControlAccept::PRESHUTDOWN,
            _ => ServiceControlAccept::empty(),
        };
        let status = ServiceStatus {
            service_type: ServiceType::OWN_PROCESS,
            current_state: state,
            controls_accepted: accepted,
            exit_code,
            checkpoint: if pending { self.checkpoint.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 },
            wait_hint: if pending { HINT } else { Duration::ZERO },
            process_id: None,
        };
        let _who_started_it_may_be_gone = handle.set_service_status(status);
    }
}

impl Scm for Shared {
    fn running(&self) {
        self.report(ServiceState::Running, NONE);
    }
}
