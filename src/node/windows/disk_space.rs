//! The free space of the system's disk.

use windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW;

/// Bytes that may be written to `C:`; none if Windows does not say.
pub fn free_bytes() -> Option<u64> {
    let path = super::wide::wide(r"C:\");
    let mut free = 0;
    // SAFETY: the path ends with a zero and outlives the call, `free` may be written, and the two
    // other results are not asked for.
    let told = unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &mut free, std::ptr::null_mut(), std::ptr::null_mut()) };
    (told != 0).then_some(free)
}
