//! Session 0: services run there, and it does not end at sign-out. A process that must outlive its session is started
//! there by a service that exists only for that moment.
//!
//! A job that a session puts around its processes may forbid to leave it (Windows Terminal, WinRM, a scheduled task),
//! and Windows ends every process of a session that signs out. What to start goes to the service through a pipe that
//! only SYSTEM and administrators can open: its arguments and environment are neither in the registry nor on a disk.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use std::{env, ptr};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use windows_service::service::{
    Service, ServiceAccess, ServiceErrorControl, ServiceInfo, ServiceStartType, ServiceState, ServiceType,
};
use windows_service::service_manager::{ServiceManager, ServiceManagerAccess};
use windows_sys::Win32::Foundation::{
    ERROR_GEN_FAILURE, ERROR_PIPE_CONNECTED, ERROR_SERVICE_EXISTS, ERROR_SERVICE_MARKED_FOR_DELETE,
    INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_FIRST_PIPE_INSTANCE, PIPE_ACCESS_DUPLEX, SECURITY_IDENTIFICATION,
};
use windows_sys::Win32::System::Pipes::{
    ConnectNamedPipe, CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE, PIPE_WAIT,
};

use super::windows::{detach, dispatch, start_arguments, wide};
use super::{Escorted, Level, Scm, event_log};
use crate::agent::stop::Stop;
use crate::node::windows::security;

/// The service's name. There is one at a time: a second session waits.
const NAME: &str = "calicoctl-win-session0";

/// SYSTEM and administrators.
const LIST: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)";

/// Windows gives a service's program 30 s to start; waiting for another session, and the start, may take as long.
const LIMIT: Duration = Duration::from_secs(90);

/// A service that exists for longer without having been started was left by a process that was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(10);

const LOOK: Duration = Duration::from_millis(50);

/// The process to start.
#[derive(Serialize, Deserialize)]
struct Task {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
    /// The pipes for its standard streams; none if they are closed.
    streams: Option<[String; 3]>,
}

impl Task {
    fn of(command: &Command, streams: Option<[String; 3]>) -> io::Result<Self> {
        let mut env: Vec<(OsString, OsString)> = env::vars_os().collect();
        for (name, value) in command.get_envs() {
            env.retain(|(had, _)| !had.eq_ignore_ascii_case(name));
            env.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
        // Variables like `=C:` are the command prompt's own.
        env.retain(|(name, _)| !name.to_string_lossy().starts_with('='));
        Ok(Self {
            program: command.get_program().to_owned(),
            args: command.get_args().map(OsStr::to_owned).collect(),
            env,
            dir: env::current_dir()?,
            streams,
        })
    }

    fn start(self) -> io::Result<u32> {
        let mut command = Command::new(self.program);
        command.args(self.args).env_clear().envs(self.env).current_dir(self.dir);
        match self.streams {
            None => command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()),
            Some([stdin, stdout, stderr]) => {
                command.stdin(connect(&stdin)?).stdout(connect(&stdout)?).stderr(connect(&stderr)?)
            }
        };
        detach(&mut command).map(|child| child.id())
    }
}

/// Starts a command in session 0, as LocalSystem, with this process's folder and environment and what the command adds
/// to it. It has no standard streams. Returns the number of its process.
///
/// # Errors
/// Without administrator rights; what Windows reports about the service or the program.
pub(super) fn start(command: &Command) -> io::Result<u32> {
    hand_over(&Task::of(command, None)?)
}

/// As [`start`], with its standard streams here.
///
/// # Errors
/// As there.
pub fn escort(command: &Command) -> io::Result<Escorted> {
    let names = ["stdin", "stdout", "stderr"].map(pipe_name);
    let [stdin, stdout, stderr] = names.each_ref().map(|name| listen(name));
    let escorted = Escorted { stdin: stdin?, stdout: stdout?, stderr: stderr? };
    hand_over(&Task::of(command, Some(names))?)?;
    Ok(escorted)
}

/// A name that no other process has.
fn pipe_name(what: &str) -> String {
    let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    format!(r"\\.\pipe\calicoctl-win-{}-{nanos}-{what}", process::id())
}

fn hand_over(task: &Task) -> io::Result<u32> {
    let task = serde_json::to_vec(task)?;
    let name = pipe_name("task");
    let pipe = listen(&name)?;
    let service = create_service_when_free()?;
    let started = service.start(&[&name]).map_err(plain);
    // From here on it is removed automatically, also if it is killed.
    let deleted = service.delete().map_err(plain);
    started?;
    // The service may have deleted itself already.
    deleted.or_else(|error| if is(&error, ERROR_SERVICE_MARKED_FOR_DELETE) { Ok(()) } else { Err(error) })?;

    // A service that ends early never connects: then the thread ends with this process.
    let (send, told) = mpsc::channel();
    thread::spawn(move || {
        let _nobody_waits_any_more = send.send(ask(pipe, &task));
    });
    let began = Instant::now();
    loop {
        if let Ok(answer) = told.recv_timeout(LOOK) {
            return answer;
        }
        let status = service.query_status().map_err(plain)?;
        if status.current_state == ServiceState::Stopped {
            // It stops only after its response was read, if it sent one.
            return told.recv_timeout(LOOK).unwrap_or_else(|_| {
                let what = format!("service {NAME} ended without a response ({:?})", status.exit_code);
                Err(io::Error::other(what))
            });
        }
        if began.elapsed() > LIMIT {
            let what = format!("service {NAME} has not answered for {} s", LIMIT.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
    }
}

/// A new pipe with one end.
fn listen(name: &str) -> io::Result<File> {
    let name = wide(name);
    // SAFETY: the name ends with a zero; it and the attributes outlive the call.
    let pipe = security::with_list(LIST, |list| unsafe {
        CreateNamedPipeW(
            name.as_ptr(),
            // It fails if another process has a pipe of this name.
            PIPE_ACCESS_DUPLEX | FILE_FLAG_FIRST_PIPE_INSTANCE,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            1,
            0x10000,
            0x10000,
            0,
            list,
        )
    })?;
    if pipe == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle was just created here, and nothing else closes it.
    Ok(unsafe { File::from_raw_handle(pipe) })
}

/// Sends the task to the process that connects, and reads the result.
fn ask(mut pipe: File, task: &[u8]) -> io::Result<u32> {
    // SAFETY: the pipe is open, and made for calls that wait.
    if unsafe { ConnectNamedPipe(pipe.as_raw_handle(), ptr::null_mut()) } == 0 {
        let error = io::Error::last_os_error();
        if !is(&error, ERROR_PIPE_CONNECTED) {
            return Err(error);
        }
    }
    pipe.write_all(&(task.len() as u64).to_le_bytes())?;
    pipe.write_all(task)?;
    let (mut code, mut pid) = ([0; 4], [0; 4]);
    pipe.read_exact(&mut code)?;
    pipe.read_exact(&mut pid)?;
    match i32::from_le_bytes(code) {
        0 => Ok(u32::from_le_bytes(pid)),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Creates the service as soon as there is none.
fn create_service_when_free() -> io::Result<Service> {
    let rights = ServiceManagerAccess::CONNECT | ServiceManagerAccess::CREATE_SERVICE;
    let manager = ServiceManager::local_computer(None::<&str>, rights).map_err(plain)?;
    let info = ServiceInfo {
        name: NAME.into(),
        display_name: "calicoctl-win: starts a run that outlives its session".into(),
        service_type: ServiceType::OWN_PROCESS,
        start_type: ServiceStartType::OnDemand,
        error_control: ServiceErrorControl::Normal,
        executable_path: env::current_exe()?,
        launch_arguments: ["service", "run", "session0"].map(OsString::from).into(),
        dependencies: Vec::new(),
        account_name: None,
        account_password: None,
    };
    let access = ServiceAccess::START | ServiceAccess::QUERY_STATUS | ServiceAccess::DELETE;
    let began = Instant::now();
    let mut left_behind = false;
    loop {
        let error = match manager.create_service(&info, access).map_err(plain) {
            Err(error) if is(&error, ERROR_SERVICE_EXISTS) || is(&error, ERROR_SERVICE_MARKED_FOR_DELETE) => error,
            made => return made,
        };
        if began.elapsed() > LIMIT {
            return Err(error);
        }
        if !left_behind && is(&error, ERROR_SERVICE_EXISTS) && began.elapsed() > LEFT_BEHIND {
            left_behind = true;
            if let Ok(old) = manager.open_service(NAME, access)
                && old.query_status().is_ok_and(|status| status.current_state == ServiceState::Stopped)
            {
                old.delete().map_err(plain)?;
            }
        }
        thread::sleep(LOOK);
    }
}

/// Runs the service. False if the Service Control Manager did not start this process.
///
/// # Errors
/// When Windows refuses.
pub fn serve() -> Result<bool> {
    let body = |_: &Stop, scm: &dyn Scm| {
        scm.running();
        match take(start_arguments().get(1)) {
            Ok(()) => 0,
            Err(error) => {
                event_log(Level::Error, &format!("a run outside of its session could not be started: {error:#}"));
                1
            }
        }
    };
    dispatch(NAME, Box::new(body))
}

fn take(pipe: Option<&OsString>) -> Result<()> {
    // The process that created it may have ended.
    if let Ok(manager) = ServiceManager::local_computer(None::<&str>, ServiceManagerAccess::CONNECT)
        && let Ok(own) = manager.open_service(NAME, ServiceAccess::DELETE)
    {
        let _it_was_deleted_already = own.delete();
    }
    let pipe = pipe.context("the arguments do not name a pipe")?;
    let mut pipe = connect(pipe).context("open the pipe of the calling process")?;
    let mut size = [0; 8];
    pipe.read_exact(&mut size).context("read what to start")?;
    let mut task = Vec::new();
    (&mut pipe).take(u64::from_le_bytes(size)).read_to_end(&mut task).context("read what to start")?;
    let task: Task = serde_json::from_slice(&task).context("parse what to start")?;
    let (code, pid) = match task.start() {
        Ok(pid) => (0, pid),
        Err(error) => (error.raw_os_error().unwrap_or(ERROR_GEN_FAILURE.cast_signed()), 0),
    };
    pipe.write_all(&code.to_le_bytes()).and_then(|()| pipe.write_all(&pid.to_le_bytes())).context("answer")?;
    // Until it is read: data in the pipe is lost when the pipe is closed.
    pipe.sync_all().context("answer")
}

fn connect(pipe: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).security_qos_flags(SECURITY_IDENTIFICATION).open(pipe)
}

fn is(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == Some(code.cast_signed())
}

fn plain(error: windows_service::Error) -> io::Error {
    match error {
        windows_service::Error::Winapi(error) => error,
        other => io::Error::other(other),
    }
}
