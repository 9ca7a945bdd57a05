//! SIDs as text.

use windows_sys::Win32::Foundation::LocalFree;
use windows_sys::Win32::Security::Authorization::ConvertSidToStringSidW;
use windows_sys::Win32::Security::PSID;

/// A SID as text: `S-1-5-18`.
///
/// # Safety
/// It must be a valid SID, or null.
pub unsafe fn sid_text(sid: PSID) -> String {
    let mut text = std::ptr::null_mut();
    // SAFETY: the caller gives a valid SID; null is refused.
    if sid.is_null() || unsafe { ConvertSidToStringSidW(sid, &raw mut text) } == 0 {
        return "nobody".into();
    }
    // SAFETY: Windows gave a zero-terminated string, allocated with LocalAlloc.
    unsafe { taken(text) }
}

/// A string of Windows's, which is freed.
///
/// # Safety
/// It must be zero-terminated, allocated with `LocalAlloc`, and not be used any more.
pub unsafe fn taken(text: *mut u16) -> String {
    let mut length = 0;
    // SAFETY: the caller gives a zero-terminated string.
    while unsafe { *text.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: that many units were just counted.
    let units = unsafe { std::slice::from_raw_parts(text, length) };
    let copy = String::from_utf16_lossy(units);
    // SAFETY: as the caller says.
    unsafe { LocalFree(text.cast()) };
    copy
}
