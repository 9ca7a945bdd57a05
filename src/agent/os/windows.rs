//! Jobs, Ctrl-C on a private console, the Service Control Manager and the Event Log.

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_CALL_NOT_IMPLEMENTED, ERROR_FAILED_SERVICE_CONTROLLER_CONNECT, ERROR_PROCESS_ABORTED,
    ERROR_SERVICE_SPECIFIC_ERROR, HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE, NO_ERROR, SetHandleInformation,
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
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation, SetInformationJobObject,
    TerminateJobObject,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Services::SERVICE_TABLE_ENTRYW;
use windows_sys::Win32::System::Services::{
    RegisterServiceCtrlHandlerExW, SERVICE_ACCEPT_PRESHUTDOWN, SERVICE_ACCEPT_STOP, SERVICE_CONTROL_INTERROGATE,
    SERVICE_CONTROL_PRESHUTDOWN, SERVICE_CONTROL_SHUTDOWN, SERVICE_CONTROL_STOP, SERVICE_RUNNING,
    SERVICE_START_PENDING, SERVICE_STATUS, SERVICE_STOP_PENDING, SERVICE_STOPPED, SERVICE_WIN32_OWN_PROCESS,
    SetServiceStatus, StartServiceCtrlDispatcherW,
};
use windows_sys::Win32::System::Threading::{
    CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, CREATE_SUSPENDED, DETACHED_PROCESS,
    OpenThread, ResumeThread, THREAD_SUSPEND_RESUME,
};

use super::{Body, Level, Scm};
use crate::agent::stop::Stop;
use crate::calico::registry::EVENT_SOURCE;
use crate::node::windows::filetime;

/// A process has one console, and whether it ignores Ctrl-C goes over to those that it starts: an interrupt
/// and a start must not run side by side.
static CONSOLE: Mutex<()> = Mutex::new(());

/// Starts a process that outlives this one and the session it is in: without its console, in a group
/// of its own, and out of the session's job, which ends with it, where that job lets it go. Its
/// standard streams are for the caller to take away.
///
/// # Errors
/// When it cannot be started.
pub fn detach(command: &mut Command) -> io::Result<Child> {
    for id in [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        // A pipe that it inherited would keep whoever reads from us waiting for its end.
        // SAFETY: takes no memory of ours; a handle that is none is refused.
        unsafe { SetHandleInformation(GetStdHandle(id), HANDLE_FLAG_INHERIT, 0) };
    }
    let apart = DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP;
    command.creation_flags(apart | CREATE_BREAKAWAY_FROM_JOB).spawn().or_else(|error| {
        if error.raw_os_error() == Some(ERROR_ACCESS_DENIED.cast_signed()) {
            return command.creation_flags(apart).spawn();
        }
        Err(error)
    })
}

/// A process and all that it starts: a job, which ends them all when it is closed, also when this
/// process is killed.
#[derive(Debug)]
pub struct JobObject {
    pid: u32,
    job: OwnedHandle,
}

impl JobObject {
    /// Starts a process, with a console of its own that nobody sees: that is where its Ctrl-C will come from. A
    /// process group of its own would not hear it.
    ///
    /// # Errors
    /// When it cannot be started or held. Nothing of it runs then.
    pub fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        command.creation_flags(CREATE_SUSPENDED | CREATE_NO_WINDOW);
        let mut child = {
            let _mine = CONSOLE.lock().unwrap_or_else(PoisonError::into_inner);
            // [`JobObject::interrupt`] leaves Ctrl-C ignored.
            // SAFETY: takes no memory of ours.
            unsafe { SetConsoleCtrlHandler(None, 0) };
            command.spawn()?
        };
        match Self::hold(&child) {
            Ok(job) => Ok((child, job)),
            Err(error) => {
                // It waits for its job still, so it has done nothing.
                drop(child.kill().and_then(|()| child.wait()));
                Err(error)
            }
        }
    }

    /// Puts a process that waits into a job, and lets it run.
    fn hold(child: &Child) -> io::Result<Self> {
        // SAFETY: no attributes and no name; the result is checked before it is owned.
        let job = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        if job.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle was just made for us, and nobody else closes it.
        let job = unsafe { OwnedHandle::from_raw_handle(job) };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let size = size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>() as u32;
        // SAFETY: the pointer and the size are those of `limits`, which outlives the call.
        yes(unsafe {
            SetInformationJobObject(
                job.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast::<c_void>(),
                size,
            )
        })?;
        // SAFETY: both handles are open: the child is not waited for yet.
        yes(unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) })?;
        resume(child.id())?;
        Ok(Self { pid: child.id(), job })
    }

    /// Ctrl-C for the process, which a Go program takes as os.Interrupt.
    ///
    /// # Errors
    /// When the process has no console (any more).
    pub fn interrupt(&self) -> io::Result<()> {
        let _mine = CONSOLE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: none of these calls takes memory of ours; the handler is a plain function that
        // lives as long as the program.
        unsafe {
            let had_console = GetConsoleCP() != 0;
            // Attaching puts the console in the place of files and pipes.
            let streams = [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE].map(|id| (id, GetStdHandle(id)));
            FreeConsole();
            // While we are on its console the Ctrl-C is for us too, and may reach us when we have
            // left it again: a handler swallows it (attaching forgets the one of before), and it is
            // ignored until the next process is started.
            let sent = yes(AttachConsole(self.pid)).and_then(|()| {
                SetConsoleCtrlHandler(None, 1);
                SetConsoleCtrlHandler(Some(swallow), 0);
                SetConsoleCtrlHandler(Some(swallow), 1);
                yes(GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0))
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

    /// Ends the process and all that it started.
    pub fn kill(&self) {
        // SAFETY: the job is open as long as `self` is.
        unsafe { TerminateJobObject(self.job.as_raw_handle(), ERROR_PROCESS_ABORTED) };
    }
}

unsafe extern "system" fn swallow(control: u32) -> i32 {
    i32::from(control == CTRL_C_EVENT)
}

/// Lets the threads of a process run that was made to wait: only one, before it has run.
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

fn yes(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// When Windows started, as `Win32_OperatingSystem.LastBootUpTime` has it: the kernel's own note,
/// and not the clock less the uptime, which differs after the clock was set.
pub fn boot_time() -> Timestamp {
    const TIME_OF_DAY: u32 = 3;
    type Query = unsafe extern "system" fn(u32, *mut c_void, u32, *mut u32) -> i32;
    let name: Vec<u16> = "ntdll.dll\0".encode_utf16().collect();
    // SYSTEM_TIMEOFDAY_INFORMATION: BootTime, CurrentTime, TimeZoneBias, then what we do not need.
    let mut answer = [0_i64; 6];
    // SAFETY: ntdll is in every process. The function has had this signature for ever; it is given a
    // buffer of the size that it is told.
    let done = unsafe {
        let query = GetProcAddress(GetModuleHandleW(name.as_ptr()), c"NtQuerySystemInformation".as_ptr().cast());
        query.map(|query| {
            let query = mem::transmute::<unsafe extern "system" fn() -> isize, Query>(query);
            query(TIME_OF_DAY, answer.as_mut_ptr().cast(), size_of_val(&answer) as u32, ptr::null_mut())
        })
    };
    match done {
        // Not cut to the second: what began less than one before is from before.
        Some(0) => filetime::timestamp(answer[0]).unwrap_or_else(|_| Timestamp::now()),
        _ => Timestamp::now(),
    }
}

/// Writes to the Application log as `calicoctl-win`. Where that fails the log file has it.
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

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().filter(|unit| *unit != 0).chain([0]).collect()
}

/// How long the Service Control Manager is to wait for the next word of a service that starts or
/// stops.
const HINT: Duration = Duration::from_secs(10);
/// A component gets 10 s to stop and 5 s to be gone. What is not done a while after that hangs.
const STOP_LIMIT: Duration = Duration::from_secs(25);

/// What the control handler and the main function of the one service in this process share: Windows
/// calls both without a word of ours in between.
struct Shared {
    name: &'static str,
    body: Mutex<Option<Body>>,
    stop: Stop,
    status: AtomicPtr<c_void>,
    /// What the Service Control Manager was told last.
    state: Mutex<u32>,
    checkpoint: AtomicU32,
    /// The component's last exit code while it is started again and again.
    trouble: Mutex<Option<i32>>,
}

static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();

/// Runs a service under the Service Control Manager, until it is stopped. False: that is not who
/// started this process.
///
/// # Errors
/// When Windows refuses for another reason.
pub fn dispatch(name: &'static str, body: Body) -> Result<bool> {
    let shared = Shared {
        name,
        body: Mutex::new(Some(body)),
        stop: Stop::default(),
        status: AtomicPtr::new(ptr::null_mut()),
        state: Mutex::new(SERVICE_START_PENDING),
        checkpoint: AtomicU32::new(0),
        trouble: Mutex::new(None),
    };
    if SHARED.set(Arc::new(shared)).is_err() {
        anyhow::bail!("run service {name}: this process runs one already");
    }
    let mut name = wide(name);
    let table = [
        SERVICE_TABLE_ENTRYW { lpServiceName: name.as_mut_ptr(), lpServiceProc: Some(service_main) },
        SERVICE_TABLE_ENTRYW::default(),
    ];
    // SAFETY: the table ends with an empty entry, and lives until the call returns, which is when
    // the service has stopped.
    if unsafe { StartServiceCtrlDispatcherW(table.as_ptr()) } != 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(ERROR_FAILED_SERVICE_CONTROLLER_CONNECT.cast_signed()) {
        return Ok(false);
    }
    Err(error).context("become a service")
}

unsafe extern "system" fn service_main(_argc: u32, _argv: *mut *mut u16) {
    let Some(shared) = SHARED.get() else { return };
    let name = wide(shared.name);
    // SAFETY: the name ends with a zero; the handler is a plain function and is given no context.
    let status = unsafe { RegisterServiceCtrlHandlerExW(name.as_ptr(), Some(handler), ptr::null()) };
    if status.is_null() {
        event_log(Level::Error, &format!("{}: no control handler: {}", shared.name, io::Error::last_os_error()));
        return;
    }
    shared.status.store(status, Ordering::SeqCst);
    shared.report(SERVICE_START_PENDING, NO_ERROR, 0);
    let (send, ended) = mpsc::channel();
    let body = shared.body.lock().unwrap_or_else(PoisonError::into_inner).take();
    let worker = Arc::clone(shared);
    // The work is on a thread of its own: one that hangs in a call must not keep the Service Control
    // Manager waiting for ever.
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
                event_log(Level::Error, &format!("{}: still busy when it was to stop; it is ended", shared.name));
                break None;
            }
            shared.report(SERVICE_STOP_PENDING, NO_ERROR, 0);
        } else {
            shared.report(SERVICE_START_PENDING, NO_ERROR, 0);
        }
    };
    match code {
        // An end with an error would be one that the Service Control Manager restarts the service after
        // (`fFailureActionsOnNonCrashFailures`), in the middle of what it was stopped for.
        _ if shared.stop.requested() => shared.report(SERVICE_STOPPED, NO_ERROR, 0),
        Some(0) => shared.report(SERVICE_STOPPED, NO_ERROR, 0),
        Some(code) => shared.report(SERVICE_STOPPED, ERROR_SERVICE_SPECIFIC_ERROR, code.cast_unsigned()),
        None => shared.report(SERVICE_STOPPED, ERROR_PROCESS_ABORTED, 0),
    }
}

unsafe extern "system" fn handler(control: u32, _kind: u32, _data: *mut c_void, _context: *mut c_void) -> u32 {
    let Some(shared) = SHARED.get() else { return NO_ERROR };
    match control {
        SERVICE_CONTROL_STOP | SERVICE_CONTROL_PRESHUTDOWN | SERVICE_CONTROL_SHUTDOWN => {
            if control == SERVICE_CONTROL_STOP {
                shared.stop.request();
            } else {
                shared.stop.request_for_shutdown();
            }
            shared.report(SERVICE_STOP_PENDING, NO_ERROR, 0);
            NO_ERROR
        }
        SERVICE_CONTROL_INTERROGATE => NO_ERROR,
        _ => ERROR_CALL_NOT_IMPLEMENTED,
    }
}

impl Shared {
    /// Tells the Service Control Manager, unless what was told before is later in a service's life: the
    /// worker, the one that waits for it and Windows' own thread report side by side.
    fn report(&self, state: u32, win32: u32, specific: u32) {
        let mut told = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = match state {
            SERVICE_STOPPED => false,
            SERVICE_STOP_PENDING => *told == SERVICE_STOPPED,
            SERVICE_RUNNING => self.stop.requested() || *told == SERVICE_STOPPED,
            _ => *told != SERVICE_START_PENDING,
        };
        if stale {
            return;
        }
        *told = state;
        let pending = matches!(state, SERVICE_START_PENDING | SERVICE_STOP_PENDING);
        let accepted = if state == SERVICE_RUNNING { SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_PRESHUTDOWN } else { 0 };
        let status = SERVICE_STATUS {
            dwServiceType: SERVICE_WIN32_OWN_PROCESS,
            dwCurrentState: state,
            dwControlsAccepted: accepted,
            dwWin32ExitCode: win32,
            dwServiceSpecificExitCode: specific,
            dwCheckPoint: if pending { self.checkpoint.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 },
            dwWaitHint: if pending { HINT.as_millis() as u32 } else { 0 },
        };
        // SAFETY: the handle is the one that Windows gave this service, and is never closed.
        unsafe { SetServiceStatus(self.status.load(Ordering::SeqCst), &status) };
    }
}

impl Scm for Shared {
    fn running(&self) {
        self.report(SERVICE_RUNNING, NO_ERROR, 0);
    }

    fn trouble(&self, code: Option<i32>) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == code {
            return;
        }
        *known = code;
        // A running service may have an exit code too, and `sc query` shows it.
        match code {
            Some(code) => self.report(SERVICE_RUNNING, ERROR_SERVICE_SPECIFIC_ERROR, code.cast_unsigned()),
            None => self.report(SERVICE_RUNNING, NO_ERROR, 0),
        }
    }
}
