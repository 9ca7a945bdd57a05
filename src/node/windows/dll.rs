//! Libraries (DLLs): functions that not every Windows has, looked up when needed, since a missing import would keep the
//! whole program from starting; and where Windows searches for them.

use std::ffi::CStr;

use windows_sys::Win32::Foundation::{FARPROC, HMODULE};
use windows_sys::Win32::System::LibraryLoader::{GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW};

use super::wide::{last_error, wide};

/// From here on libraries are loaded from `System32` only: not from the executable's folder, where an ordinary user may
/// have put one if it was started from a downloads folder, and not from the current folder or `PATH`. The first call of
/// the program.
///
/// A Windows without the function (before 8) is refused later with a message.
pub fn restrict_search() {
    type SetDefaultDllDirectories = unsafe extern "system" fn(u32) -> i32;
    if let Ok(Some(found)) = function("kernel32.dll", c"SetDefaultDllDirectories") {
        // SAFETY: this is the function's documented signature.
        let set =
            unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, SetDefaultDllDirectories>(found) };
        // SAFETY: takes a number of flags. On failure the search order is unchanged.
        unsafe { set(LOAD_LIBRARY_SEARCH_SYSTEM32) };
    }
}

/// Whether a library of Windows exists and loads.
///
/// # Errors
/// Windows's number if not: 126 if it does not exist.
pub fn loads(name: &str) -> Result<(), u32> {
    load(name).map(drop)
}

/// A function of a DLL in the system's own folder, and only there. The DLL stays loaded.
///
/// # Errors
/// Windows error 126 if there is no such DLL, 127 if it has no such function.
pub fn function(dll: &str, name: &CStr) -> Result<FARPROC, u32> {
    let module = load(dll)?;
    // SAFETY: the module is loaded and never freed, and `name` has a zero at its end.
    match unsafe { GetProcAddress(module, name.as_ptr().cast()) } {
        None => Err(last_error()),
        found => Ok(found),
    }
}

/// A function that every supported Windows has; `name` has a zero at its end. For [`late`].
pub fn known(dll: &str, name: &'static str) -> unsafe extern "system" fn() -> isize {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok();
    name.and_then(|name| function(dll, name).ok()?).expect("every supported Windows has it")
}

/// Declares functions of a DLL that Windows takes from the executable's folder too: one that is imported is loaded before
/// [`restrict_search`] is called, one that is declared here at its first call.
macro_rules! late {
    ($dll:literal: $(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        /// See Windows's own.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "it is Windows's")]
        unsafe fn $name($($argument: $kind),*) -> $result {
            type Function = unsafe extern "system" fn($($kind),*) -> $result;
            let found = $crate::node::windows::dll::known($dll, concat!(stringify!($name), "\0"));
            // SAFETY: this is the function's documented signature, and the caller keeps the function's contract.
            unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, Function>(found)($($argument),*) }
        }
    )*};
}
pub(crate) use late;

fn load(dll: &str) -> Result<HMODULE, u32> {
    let file = wide(dll);
    // SAFETY: `file` is UTF-16 with a zero at its end and outlives the call.
    let module = unsafe { LoadLibraryExW(file.as_ptr(), std::ptr::null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32) };
    if module.is_null() { Err(last_error()) } else { Ok(module) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::win32;

    #[test]
    fn a_missing_dll_and_a_missing_function_differ() {
        assert_eq!(function("no-such-thing.dll", c"f").unwrap_err(), win32::MODULE_NOT_FOUND);
        assert_eq!(function("kernel32.dll", c"NoSuchThing").unwrap_err(), win32::PROCEDURE_NOT_FOUND);
        assert!(function("kernel32.dll", c"GetTickCount64").unwrap().is_some());
        assert_eq!(loads("version.dll"), Ok(()));
        assert_eq!(loads("no-such-library.dll"), Err(win32::MODULE_NOT_FOUND));
    }
}
