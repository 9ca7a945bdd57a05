//! Windows itself: its version, the processor, the name of the machine, and the account that runs this program.

use anyhow::{Context, Result};
use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::Foundation::{CloseHandle, ERROR_NOT_ALL_ASSIGNED, HANDLE, LUID};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, GetTokenInformation, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_PRIVILEGE_ENABLED,
    TOKEN_ADJUST_PRIVILEGES, TOKEN_ELEVATION, TOKEN_PRIVILEGES, TOKEN_QUERY, TOKEN_USER, TokenElevation, TokenUser,
};
use windows_sys::Win32::System::SystemInformation::{
    ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetSystemWindowsDirectoryW, IMAGE_FILE_MACHINE_AMD64,
    IMAGE_FILE_MACHINE_ARM64, IMAGE_FILE_MACHINE_I386, IMAGE_FILE_MACHINE_UNKNOWN, OSVERSIONINFOEXW,
};
use windows_sys::Win32::System::SystemServices::{VER_NT_DOMAIN_CONTROLLER, VER_NT_SERVER};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::wide::{last_error, wide};
use super::{dll, registry, sid};
use crate::facts::{Os, Product};
use crate::fault::{Exit, Fault};
use crate::node::win32::refused;

const CURRENT_VERSION: &str = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion";

/// Version and edition. The build comes from the kernel, which no manifest and no compatibility setting changes; the
/// rest comes from the registry.
///
/// # Errors
/// When the registry cannot be read.
pub fn facts() -> Result<Os> {
    let version = version();
    let text = |name| registry::text(CURRENT_VERSION, name);
    let product = match u32::from(version.wProductType) {
        VER_NT_DOMAIN_CONTROLLER => Product::DomainController,
        VER_NT_SERVER => Product::Server,
        _ => Product::Client,
    };
    Ok(Os {
        build: version.dwBuildNumber,
        ubr: registry::number(CURRENT_VERSION, "UBR")?.unwrap_or_default(),
        product,
        installation_type: text("InstallationType")?.unwrap_or_default(),
        arch: machine()?,
        display_version: text("DisplayVersion")?,
    })
}

/// Refuses a Windows that is not on drive C:. Calico's own programs and scripts name that drive, and so does this one.
///
/// # Errors
/// Fault `SystemDrive`.
pub fn refuse_another_drive() -> Result<(), Fault> {
    let mut name = [0_u16; 260];
    // SAFETY: the buffer is as long as is said and outlives the call.
    let length = unsafe { GetSystemWindowsDirectoryW(name.as_mut_ptr(), 260) };
    let length = usize::try_from(length).unwrap_or_default().min(name.len());
    on_drive_c(&String::from_utf16_lossy(&name[..length]))
}

fn on_drive_c(windows: &str) -> Result<(), Fault> {
    // Without an answer there is nothing to refuse.
    if windows.is_empty() || windows.to_ascii_uppercase().starts_with("C:") {
        return Ok(());
    }
    let what = format!("Windows is in {windows}, and Calico for Windows works only where it is on drive C:");
    Err(Fault::new(Exit::Unsupported, "SystemDrive", what)
        .hint("run Calico on a machine whose Windows is installed on drive C:"))
}

fn version() -> OSVERSIONINFOEXW {
    let mut version = OSVERSIONINFOEXW {
        dwOSVersionInfoSize: size_of::<OSVERSIONINFOEXW>().try_into().expect("it is 284 bytes"),
        // SAFETY: a record of numbers and arrays of numbers, for which zero is a value.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: the size field says which of the two records it is; the call always succeeds.
    unsafe { RtlGetVersion((&raw mut version).cast()) };
    version
}

/// The machine's processor: `amd64`, `arm64`, or Windows's number for it.
///
/// # Errors
/// `UNSUPPORTED` if this is a 32-bit program on a 64-bit machine, where Windows would show it another registry and
/// another `System32`.
fn machine() -> Result<String> {
    let (process, native) = machines();
    if process == IMAGE_FILE_MACHINE_I386 && native != IMAGE_FILE_MACHINE_I386 {
        return Err(Fault::new(
            Exit::Unsupported,
            "Is64Bit",
            "this is a 32-bit program on a 64-bit Windows, which shows it a registry and a System32 of their own",
        )
        .hint("use the calicoctl-win.exe for amd64")
        .into());
    }
    Ok(match native {
        IMAGE_FILE_MACHINE_AMD64 => "amd64".into(),
        IMAGE_FILE_MACHINE_ARM64 => "arm64".into(),
        IMAGE_FILE_MACHINE_I386 => "x86".into(),
        other => format!("{other:#06x}"),
    })
}

/// The architecture of this process, if it differs from the machine's, and the machine's. Looked up: Windows before
/// 1709 does not have the function, and there the two are the same.
fn machines() -> (u16, u16) {
    type IsWow64Process2 = unsafe extern "system" fn(HANDLE, *mut u16, *mut u16) -> i32;
    let own = if cfg!(target_pointer_width = "32") { IMAGE_FILE_MACHINE_I386 } else { IMAGE_FILE_MACHINE_AMD64 };
    let (mut process, mut native) = (IMAGE_FILE_MACHINE_UNKNOWN, own);
    if let Ok(Some(found)) = dll::function("kernel32.dll", c"IsWow64Process2") {
        // SAFETY: this is the function's documented signature.
        let ask = unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, IsWow64Process2>(found) };
        // SAFETY: the handle stands for this process; both places are ours.
        unsafe { ask(GetCurrentProcess(), &raw mut process, &raw mut native) };
    }
    (process, native)
}

/// The DNS host name in lower case, not the NetBIOS name, which is limited to 15 characters.
///
/// # Errors
/// When Windows refuses.
pub fn host_name() -> Result<String> {
    let mut name = vec![0u16; 256];
    let mut length = 256;
    // SAFETY: the buffer has the length that is said. A DNS label is 63 characters at most.
    let told = unsafe { GetComputerNameExW(ComputerNamePhysicalDnsHostname, name.as_mut_ptr(), &raw mut length) };
    if told == 0 {
        return Err(refused(last_error(), "read the host name").into());
    }
    name.truncate(length as usize);
    Ok(String::from_utf16(&name).context("read the host name")?.to_lowercase())
}

/// Whether this process has full administrator rights, as SYSTEM always does.
///
/// # Errors
/// When Windows refuses to say.
pub fn is_elevated() -> Result<bool> {
    let mut elevation = TOKEN_ELEVATION { TokenIsElevated: 0 };
    let mut needed = 0;
    let size = size_of::<TOKEN_ELEVATION>().try_into().expect("it is 4 bytes");
    let token = Token::open(TOKEN_QUERY)?;
    // SAFETY: the token is open, and the place has the size that is said.
    let told =
        unsafe { GetTokenInformation(token.0, TokenElevation, (&raw mut elevation).cast(), size, &raw mut needed) };
    if told == 0 {
        return Err(refused(last_error(), "ask whether this session is elevated").into());
    }
    Ok(elevation.TokenIsElevated != 0)
}

/// The SID of the account that runs this program; none if Windows does not say.
pub fn own_sid() -> Option<String> {
    let token = Token::open(TOKEN_QUERY).ok()?;
    // A TOKEN_USER followed by its SID: 16 and 68 bytes at most. Words, for alignment.
    let mut buffer = [0u64; 16];
    let mut needed = 0;
    let size = size_of_val(&buffer).try_into().ok()?;
    // SAFETY: the token is open, and the buffer has the size that is said.
    let told = unsafe { GetTokenInformation(token.0, TokenUser, buffer.as_mut_ptr().cast(), size, &raw mut needed) };
    if told == 0 {
        return None;
    }
    // SAFETY: Windows wrote a TOKEN_USER, whose SID lies in the same buffer.
    Some(unsafe { sid::sid_text((*buffer.as_ptr().cast::<TOKEN_USER>()).User.Sid) })
}

/// Enables a privilege that administrators have and that is disabled by default, for example `SeShutdownPrivilege`.
///
/// # Errors
/// When this process does not have the privilege.
pub fn enable(right: &str) -> Result<()> {
    let what = || format!("take the right {right}");
    let token = Token::open(TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY)?;
    let name = wide(right);
    let mut luid = LUID::default();
    // SAFETY: the name is UTF-16 with a zero at its end; `luid` outlives the call.
    if unsafe { LookupPrivilegeValueW(std::ptr::null(), name.as_ptr(), &raw mut luid) } == 0 {
        return Err(refused(last_error(), what()).into());
    }
    let wanted = TOKEN_PRIVILEGES {
        PrivilegeCount: 1,
        Privileges: [LUID_AND_ATTRIBUTES { Luid: luid, Attributes: SE_PRIVILEGE_ENABLED }],
    };
    let none = std::ptr::null_mut::<TOKEN_PRIVILEGES>();
    // SAFETY: the token is open, `wanted` has the one privilege that it counts, and what was before is
    // not asked for.
    let done = unsafe { AdjustTokenPrivileges(token.handle(), 0, &raw const wanted, 0, none, std::ptr::null_mut()) };
    match last_error() {
        // Windows reports success, but this process does not have the privilege.
        ERROR_NOT_ALL_ASSIGNED => Err(refused(ERROR_NOT_ALL_ASSIGNED, what()).into()),
        _ if done != 0 => Ok(()),
        code => Err(refused(code, what()).into()),
    }
}

/// This process's access token.
pub struct Token(HANDLE);

impl Token {
    /// Opens it with `access`, for example `TOKEN_QUERY`.
    ///
    /// # Errors
    /// When Windows refuses.
    pub fn open(access: u32) -> Result<Self> {
        let mut token = std::ptr::null_mut();
        // SAFETY: the handle stands for this process.
        if unsafe { OpenProcessToken(GetCurrentProcess(), access, &raw mut token) } == 0 {
            return Err(refused(last_error(), "open this process's token").into());
        }
        Ok(Self(token))
    }

    /// Open while this value lives.
    const fn handle(&self) -> HANDLE {
        self.0
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: opened by us, and not used any more.
        unsafe { CloseHandle(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_windows_on_another_drive_is_refused() {
        on_drive_c(r"c:\windows").unwrap();
        on_drive_c("").unwrap();
        let refused = on_drive_c(r"D:\Windows").unwrap_err();
        assert_eq!((refused.exit, refused.id), (Exit::Unsupported, "SystemDrive"));
        refuse_another_drive().unwrap();
    }
}
