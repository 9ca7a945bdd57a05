//! Calls of the Service Control Manager that the crate `windows-service` lacks: exact command lines, clearing
//! dependencies, the process of a service that starts or stops.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::ptr;
use std::time::Duration;

use windows_service::Error;
use windows_service::service::{Service, ServiceAccess};
use windows_service::service_manager::{ServiceManager, ServiceManagerAccess};
use windows_sys::Win32::Foundation::{ERROR_MORE_DATA, ERROR_SERVICE_DOES_NOT_EXIST};
use windows_sys::Win32::System::Services::{
    ChangeServiceConfig2W, ChangeServiceConfigW, CloseServiceHandle, CreateServiceW, ENUM_SERVICE_STATE,
    ENUM_SERVICE_STATUS_PROCESSW, ENUM_SERVICE_STATUSW, EnumDependentServicesW, EnumServicesStatusExW, OpenSCManagerW,
    QueryServiceConfig2W, QueryServiceStatusEx, SC_ACTION, SC_ENUM_PROCESS_INFO, SC_HANDLE, SC_MANAGER_CONNECT,
    SC_MANAGER_CREATE_SERVICE, SC_MANAGER_ENUMERATE_SERVICE, SC_STATUS_PROCESS_INFO, SERVICE_AUTO_START,
    SERVICE_CONFIG, SERVICE_CONFIG_DESCRIPTION, SERVICE_CONFIG_FAILURE_ACTIONS, SERVICE_DEMAND_START,
    SERVICE_DESCRIPTIONW, SERVICE_DISABLED, SERVICE_ERROR_NORMAL, SERVICE_FAILURE_ACTIONSW, SERVICE_NO_CHANGE,
    SERVICE_QUERY_STATUS, SERVICE_STATE_ALL, SERVICE_STATUS_CURRENT_STATE, SERVICE_STATUS_PROCESS, SERVICE_WIN32,
    SERVICE_WIN32_OWN_PROCESS,
};

use crate::item::{self, StartType};
use crate::node::win32::{self, refused};

/// A service's status, with what the crate's status leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// For example `SERVICE_RUNNING`.
    pub state: SERVICE_STATUS_CURRENT_STATE,
    /// Also while it starts and stops. None if there is no process.
    pub pid: Option<u32>,
    /// Whether the process is the service's alone, so that it ends with the service.
    pub own_process: bool,
    /// Windows error of the last exit; 1066 means that `specific` applies.
    pub exit: u32,
    /// The service's own exit code.
    pub specific: u32,
    pub checkpoint: u32,
    pub wait_hint: Duration,
}

/// A service; none if there is none of that name.
pub fn open(name: &str, access: ServiceAccess) -> windows_service::Result<Option<Service>> {
    let manager = ServiceManager::local_computer(None::<&str>, ServiceManagerAccess::CONNECT)?;
    match manager.open_service(name, access) {
        Ok(service) => Ok(Some(service)),
        Err(error) if code(&error) == Some(ERROR_SERVICE_DOES_NOT_EXIST) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The Windows error behind an error.
pub fn code(error: &Error) -> Option<u32> {
    match error {
        Error::Winapi(error) => error.raw_os_error().map(i32::cast_unsigned),
        _ => None,
    }
}

/// What was tried and why it failed.
pub fn said(error: Error, what: impl Into<String>) -> anyhow::Error {
    match code(&error) {
        Some(win32::ACCESS_DENIED) => win32::denied(what).into(),
        Some(code) => refused(code, what).into(),
        None => anyhow::Error::from(error).context(what.into()),
    }
}

pub fn status(service: &Service) -> windows_service::Result<Status> {
    let mut raw = SERVICE_STATUS_PROCESS::default();
    let mut needed = 0;
    let size = u32::try_from(size_of::<SERVICE_STATUS_PROCESS>()).expect("a status is a few words");
    // SAFETY: the handle is open, and the status is as large as is said.
    let done = unsafe {
        QueryServiceStatusEx(
            service.raw_handle(),
            SC_STATUS_PROCESS_INFO,
            ptr::from_mut(&mut raw).cast(),
            size,
            &mut needed,
        )
    };
    succeeded(done)?;
    Ok(Status {
        state: raw.dwCurrentState,
        pid: Some(raw.dwProcessId).filter(|&pid| pid != 0),
        own_process: raw.dwServiceType & SERVICE_WIN32_OWN_PROCESS != 0,
        exit: raw.dwWin32ExitCode,
        specific: raw.dwServiceSpecificExitCode,
        checkpoint: raw.dwCheckPoint,
        wait_hint: Duration::from_millis(raw.dwWaitHint.into()),
    })
}

/// Registers a service.
pub fn create(name: &str, wanted: &item::Service) -> windows_service::Result<()> {
    let access = SC_MANAGER_CONNECT | SC_MANAGER_CREATE_SERVICE;
    let texts = Texts::of(wanted);
    let name = wide(name);
    // SAFETY: null stands for this machine and its one database.
    let manager = Handle(unsafe { OpenSCManagerW(ptr::null(), ptr::null(), access) });
    manager.opened()?;
    // SAFETY: every text ends with a null and outlives the call; null if nothing is set.
    let service = Handle(unsafe {
        CreateServiceW(
            manager.0,
            name.as_ptr(),
            texts.display_name.as_ptr(),
            SERVICE_QUERY_STATUS,
            SERVICE_WIN32_OWN_PROCESS,
            start_type(wanted.start),
            SERVICE_ERROR_NORMAL,
            texts.image_path.as_ptr(),
            ptr::null(),
            ptr::null_mut(),
            texts.depends_on.as_ptr(),
            texts.account.as_ptr(),
            ptr::null(),
        )
    });
    service.opened()
}

/// Changes a service in place, only where it differs from `now`: setting the account again would require its password,
/// and a text that Windows translates (`@DLL,-number`) would be lost. Dependencies are always given: a service manager
/// that does not return them forgets them otherwise.
pub fn change(service: &Service, now: &item::Service, wanted: &item::Service) -> windows_service::Result<()> {
    let texts = Texts::of(wanted);
    let unless = |same: bool, text: &[u16]| if same { ptr::null() } else { text.as_ptr() };
    let same_account = now.account.eq_ignore_ascii_case(&wanted.account);
    // SAFETY: the handle is open; every text ends with a null and outlives the call; null and SERVICE_NO_CHANGE leave
    // a setting as it is. Dependencies are cleared by an empty list, which two nulls are.
    let done = unsafe {
        ChangeServiceConfigW(
            service.raw_handle(),
            SERVICE_NO_CHANGE,
            if now.start == wanted.start { SERVICE_NO_CHANGE } else { start_type(wanted.start) },
            SERVICE_NO_CHANGE,
            unless(now.image_path == wanted.image_path, &texts.image_path),
            ptr::null(),
            ptr::null_mut(),
            texts.depends_on.as_ptr(),
            unless(same_account, &texts.account),
            ptr::null(),
            unless(now.display_name == wanted.display_name, &texts.display_name),
        )
    };
    succeeded(done)
}

/// Changes only a service's dependencies.
pub fn change_dependencies(service: &Service, names: &[String]) -> windows_service::Result<()> {
    let names = list(names);
    // SAFETY: the handle is open; the list ends with a null of its own and outlives the call; null and
    // SERVICE_NO_CHANGE leave a setting as it is.
    let done = unsafe {
        ChangeServiceConfigW(
            service.raw_handle(),
            SERVICE_NO_CHANGE,
            SERVICE_NO_CHANGE,
            SERVICE_NO_CHANGE,
            ptr::null(),
            ptr::null(),
            ptr::null_mut(),
            names.as_ptr(),
            ptr::null(),
            ptr::null(),
            ptr::null(),
        )
    };
    succeeded(done)
}

/// Sets the recovery actions, of any kind. An empty text removes the one before.
pub fn set_recovery(service: &Service, wanted: &item::Recovery) -> windows_service::Result<()> {
    let (mut message, mut command) = (wide(&wanted.reboot_message), wide(&wanted.command));
    let action = |action: &item::RecoveryAction| SC_ACTION { Type: action.kind.cast_signed(), Delay: action.after_ms };
    let mut actions: Vec<SC_ACTION> = wanted.actions.iter().map(action).collect();
    let count = u32::try_from(actions.len()).unwrap_or(u32::MAX);
    // Windows removes the actions only if this pointer is not null.
    actions.push(SC_ACTION::default());
    let info = SERVICE_FAILURE_ACTIONSW {
        dwResetPeriod: wanted.reset_after,
        lpRebootMsg: message.as_mut_ptr(),
        lpCommand: command.as_mut_ptr(),
        cActions: count,
        lpsaActions: actions.as_mut_ptr(),
    };
    // SAFETY: the handle is open; the record is of this level, and all that it points to outlives the call.
    let done = unsafe {
        ChangeServiceConfig2W(service.raw_handle(), SERVICE_CONFIG_FAILURE_ACTIONS, (&raw const info).cast())
    };
    succeeded(done)
}

/// The description; empty if there is none.
pub fn description(service: &Service) -> windows_service::Result<String> {
    let buffer = config(service, SERVICE_CONFIG_DESCRIPTION)?;
    // SAFETY: Windows put this structure at the front of the buffer, which is aligned for it.
    let description = unsafe { &*buffer.as_ptr().cast::<SERVICE_DESCRIPTIONW>() };
    // SAFETY: the text lies in the buffer and ends with a null, or there is none.
    Ok(unsafe { text(description.lpDescription) })
}

/// The recovery actions, also those of a kind that the crate does not know, such as `SC_ACTION_OWN_RESTART`.
pub fn recovery(service: &Service) -> windows_service::Result<item::Recovery> {
    let buffer = config(service, SERVICE_CONFIG_FAILURE_ACTIONS)?;
    // SAFETY: Windows put this structure at the front of the buffer, which is aligned for it.
    let info = unsafe { &*buffer.as_ptr().cast::<SERVICE_FAILURE_ACTIONSW>() };
    let action = |at: usize| {
        // SAFETY: the buffer has as many actions as is said, aligned.
        let SC_ACTION { Type, Delay } = unsafe { *info.lpsaActions.add(at) };
        item::RecoveryAction { kind: Type.cast_unsigned(), after_ms: Delay }
    };
    let count = if info.lpsaActions.is_null() { 0 } else { info.cActions as usize };
    // SAFETY: the texts lie in the buffer and end with a null, or there are none.
    let (reboot_message, command) = unsafe { (text(info.lpRebootMsg), text(info.lpCommand)) };
    Ok(item::Recovery {
        reset_after: info.dwResetPeriod,
        actions: (0..count).map(action).collect(),
        reboot_message,
        command,
    })
}

/// A part of a service's configuration: its structure, and what that points to. In words, so that it is aligned.
fn config(service: &Service, level: SERVICE_CONFIG) -> windows_service::Result<Vec<u64>> {
    let mut buffer = vec![0_u64; 1024];
    let mut needed = 0;
    // SAFETY: the handle is open, and the buffer is as large as is said: 8 KB is the most there is.
    let done =
        unsafe { QueryServiceConfig2W(service.raw_handle(), level, buffer.as_mut_ptr().cast(), 8 * 1024, &mut needed) };
    succeeded(done)?;
    Ok(buffer)
}

/// The names of all services that are programs and not drivers.
pub fn names() -> windows_service::Result<Vec<String>> {
    let access = SC_MANAGER_CONNECT | SC_MANAGER_ENUMERATE_SERVICE;
    // SAFETY: null stands for this machine and its one database.
    let manager = Handle(unsafe { OpenSCManagerW(ptr::null(), ptr::null(), access) });
    manager.opened()?;
    let mut names = Vec::new();
    let (mut needed, mut count, mut resume) = (0, 0, 0);
    loop {
        // 64 KB, in words for alignment: each call continues where the last one stopped.
        let mut buffer = vec![0_u64; 8 * 1024];
        // SAFETY: the handle is open, and the buffer is as large as is said.
        let done = unsafe {
            EnumServicesStatusExW(
                manager.0,
                SC_ENUM_PROCESS_INFO,
                SERVICE_WIN32,
                SERVICE_STATE_ALL,
                buffer.as_mut_ptr().cast(),
                64 * 1024,
                &mut needed,
                &mut count,
                &mut resume,
                ptr::null(),
            )
        };
        let more = match succeeded(done) {
            Ok(()) => false,
            Err(error) if code(&error) == Some(ERROR_MORE_DATA) => true,
            Err(error) => return Err(error),
        };
        let entries = buffer.as_ptr().cast::<ENUM_SERVICE_STATUS_PROCESSW>();
        for at in 0..count as usize {
            // SAFETY: Windows filled that many entries, aligned, with names that lie in the buffer.
            names.push(unsafe { text((*entries.add(at)).lpServiceName) });
        }
        // Without room for a single entry the loop would never end.
        if !more || count == 0 {
            return Ok(names);
        }
    }
}

/// The services in this state that depend on this one.
pub fn dependents(service: &Service, state: ENUM_SERVICE_STATE) -> windows_service::Result<Vec<String>> {
    // The documented maximum: 256 KB.
    let mut buffer = vec![0_u64; 32 * 1024];
    let (mut needed, mut count) = (0, 0);
    // SAFETY: the handle is open, and the buffer is as large as is said.
    let done = unsafe {
        EnumDependentServicesW(
            service.raw_handle(),
            state,
            buffer.as_mut_ptr().cast::<ENUM_SERVICE_STATUSW>(),
            256 * 1024,
            &mut needed,
            &mut count,
        )
    };
    succeeded(done)?;
    let entries = buffer.as_ptr().cast::<ENUM_SERVICE_STATUSW>();
    // SAFETY: Windows filled that many entries, aligned, with names that lie in the buffer.
    Ok((0..count as usize).map(|at| unsafe { text((*entries.add(at)).lpServiceName) }).collect())
}

/// A definition's texts in Windows's form.
struct Texts {
    display_name: Vec<u16>,
    image_path: Vec<u16>,
    /// Each with its null, and one more; two if there are none.
    depends_on: Vec<u16>,
    account: Vec<u16>,
}

impl Texts {
    fn of(service: &item::Service) -> Self {
        Self {
            display_name: wide(&service.display_name),
            image_path: wide(&service.image_path),
            depends_on: list(&service.depends_on),
            account: wide(&service.account),
        }
    }
}

fn list(names: &[String]) -> Vec<u16> {
    let mut list: Vec<u16> = names.iter().flat_map(|name| wide(name)).collect();
    list.push(0);
    if names.is_empty() {
        list.push(0);
    }
    list
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// # Safety
/// The pointer is null or leads to a text that ends with a null.
unsafe fn text(pointer: *const u16) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller says that the text ends with a null, so every unit up to it can be read.
    let length = (0..).take_while(|&at| unsafe { *pointer.add(at) } != 0).count();
    // SAFETY: that many units were just read.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(pointer, length) })
}

const fn start_type(start: StartType) -> u32 {
    match start {
        StartType::Auto => SERVICE_AUTO_START,
        StartType::Manual => SERVICE_DEMAND_START,
        StartType::Disabled => SERVICE_DISABLED,
    }
}

fn succeeded(done: i32) -> windows_service::Result<()> {
    if done == 0 { Err(Error::Winapi(io::Error::last_os_error())) } else { Ok(()) }
}

/// A handle of the Service Control Manager that is closed when dropped.
struct Handle(SC_HANDLE);

impl Handle {
    fn opened(&self) -> windows_service::Result<()> {
        if self.0.cast::<c_void>().is_null() { Err(Error::Winapi(io::Error::last_os_error())) } else { Ok(()) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the handle is open, and is closed only here.
            unsafe { CloseServiceHandle(self.0) };
        }
    }
}
