//! Functions that not every Windows has, looked up when they are needed: an import that is missing
//! would keep the whole program from starting.

use std::ffi::CStr;

use windows_sys::Win32::Foundation::{FARPROC, GetLastError};
use windows_sys::Win32::System::LibraryLoader::{GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW};

/// Text as Windows takes it: UTF-16 with a zero at its end.
pub fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// A function of a DLL in the system's own folder, and only there. The DLL stays loaded.
///
/// # Errors
/// Windows error 126 when there is no such DLL, 127 when it has no such function.
pub fn function(dll: &str, name: &CStr) -> Result<FARPROC, u32> {
    let file = wide(dll);
    // SAFETY: `file` is UTF-16 with a zero at its end and outlives the call.
    let module = unsafe { LoadLibraryExW(file.as_ptr(), std::ptr::null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32) };
    if module.is_null() {
        // SAFETY: it reads this thread's last error.
        return Err(unsafe { GetLastError() });
    }
    // SAFETY: the module is loaded and never freed, and `name` has a zero at its end.
    match unsafe { GetProcAddress(module, name.as_ptr().cast()) } {
        // SAFETY: it reads this thread's last error.
        None => Err(unsafe { GetLastError() }),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::win32;

    #[test]
    fn a_missing_dll_and_a_missing_function_are_told_apart() {
        assert_eq!(function("no-such-thing.dll", c"f").unwrap_err(), win32::MODULE_NOT_FOUND);
        assert_eq!(function("kernel32.dll", c"NoSuchThing").unwrap_err(), win32::PROCEDURE_NOT_FOUND);
        assert!(function("kernel32.dll", c"GetTickCount64").unwrap().is_some());
    }
}
