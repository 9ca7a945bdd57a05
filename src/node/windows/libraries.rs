//! Libraries (DLLs) that are looked up at run time, and where Windows may look for them.

use windows_sys::Win32::Foundation::{FreeLibrary, HMODULE};
use windows_sys::Win32::System::LibraryLoader::{
    GetModuleHandleW, GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW,
};

use super::{last_error, wide};

/// From here on a library is looked for in `System32` alone: not beside the executable, where an
/// ordinary user may have put one when it was started from a downloads folder, and not in the
/// current folder or on `PATH`. First of all calls of the program.
///
/// Looked up, not imported: what lacks the function (Windows before 8) is refused later with a
/// sentence, and not by the loader.
pub fn restrict_search() {
    type SetDefaultDllDirectories = unsafe extern "system" fn(u32) -> i32;
    let name = wide("kernel32.dll");
    // SAFETY: the name is zero-terminated; kernel32 is in every process and is never unloaded.
    let kernel32 = unsafe { GetModuleHandleW(name.as_ptr()) };
    if kernel32.is_null() {
        return;
    }
    // SAFETY: the handle is that of a loaded library, the name is zero-terminated.
    let found = unsafe { GetProcAddress(kernel32, c"SetDefaultDllDirectories".as_ptr().cast()) };
    if let Some(found) = found {
        // SAFETY: this is the function's documented signature.
        let set =
            unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, SetDefaultDllDirectories>(found) };
        // SAFETY: takes a number of flags. A refusal leaves the search as it was.
        unsafe { set(LOAD_LIBRARY_SEARCH_SYSTEM32) };
    }
}

/// Whether a library of Windows's own is there and loads.
///
/// # Errors
/// Windows's number where it does not: 126 where it is not there.
pub fn loads(name: &str) -> Result<(), u32> {
    let name = wide(name);
    // SAFETY: the name is zero-terminated; the reserved handle is null as it must be.
    let library: HMODULE = unsafe { LoadLibraryExW(name.as_ptr(), std::ptr::null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32) };
    if library.is_null() {
        return Err(last_error());
    }
    // SAFETY: the handle was just given to us, and nothing of the library is in use.
    unsafe { FreeLibrary(library) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_windows_loads_and_another_does_not() {
        assert_eq!(loads("version.dll"), Ok(()));
        assert_eq!(loads("no-such-library.dll"), Err(126));
    }
}
