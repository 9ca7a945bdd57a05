//! Text in Windows's form, and the error of a failed call.

use std::ffi::OsStr;
use std::os::windows::ffi::OsStrExt;
use std::path::Path;

use windows_sys::Win32::Foundation::GetLastError;

/// Text in Windows's form: UTF-16, ended by a zero.
pub(crate) fn wide(text: impl AsRef<OsStr>) -> Vec<u16> {
    text.as_ref().encode_wide().chain([0]).collect()
}

/// A path in Windows's form, of any length: `\\?\C:\…`.
pub(crate) fn wide_path(path: &Path) -> Vec<u16> {
    let text = path.as_os_str();
    let is_plain = path.is_absolute() && !text.to_string_lossy().starts_with(r"\\");
    // The long form is used literally: no forward slashes in it.
    if is_plain { wide(format!(r"\\?\{}", text.to_string_lossy().replace('/', "\\"))) } else { wide(text) }
}

/// Windows's number for the error of the previous call.
pub(crate) fn last_error() -> u32 {
    // SAFETY: takes nothing and only reads a number of this thread.
    unsafe { GetLastError() }
}
