//! The identity of this boot.
//!
//! A volatile registry key is gone after a boot, whatever happens to the clock and the time zone. A boot time that is
//! computed or printed changes with both, and has made upstream's scripts delete the networks of a running node
//! (calico#9359).

use anyhow::Result;
use windows_registry::{Key, LOCAL_MACHINE};
use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Registry::RegQueryInfoKeyW;

use super::registry;
use crate::calico::registry::{BOOT_KEY, KEY};
use crate::node::win32::{self, refused};

const VALUE: &str = "Id";

/// Windows rebuilds everything below `HKLM\HARDWARE` at each boot and keeps it in memory only. Nothing writes to the
/// first of these later; not every machine has it.
const HARDWARE: [&str; 2] = [r"HARDWARE\DESCRIPTION\System\BIOS", r"HARDWARE\DESCRIPTION\System"];

/// The identity of this boot.
///
/// It is derived from the time at which Windows recorded the hardware, which every account may read. The first run that
/// finds Calico's key and may write stores it in a volatile key below it, and later runs read it there. So reading a
/// machine without Calico leaves no trace, and a run without administrator rights gets the same answer.
///
/// # Errors
/// When the registry cannot be read.
pub fn id() -> Result<String> {
    let mark = format!(r"{KEY}\{BOOT_KEY}");
    if let Some(id) = registry::text(&mark, VALUE)? {
        return Ok(id);
    }
    let id = hardware()?;
    if registry::exists(KEY)? {
        // Without the rights it is not stored: the next run computes the same.
        let _unmarked = LOCAL_MACHINE
            .options()
            .read()
            .write()
            .create()
            .volatile()
            .wow64_64()
            .open(&mark)
            .and_then(|key| key.set_string(VALUE, &id));
    }
    Ok(id)
}

/// When the machine's description was written, in steps of 100 ns.
fn hardware() -> Result<String> {
    for name in HARDWARE {
        if let Some(key) = registry::open(name)? {
            return written(&key, name);
        }
    }
    Err(refused(win32::FILE_NOT_FOUND, format!("read HKLM\\{}", HARDWARE[1])).into())
}

fn written(key: &Key, name: &str) -> Result<String> {
    let null = std::ptr::null_mut::<u32>;
    let mut written = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    // SAFETY: the key is open; what is not requested may be null.
    let code = unsafe {
        RegQueryInfoKeyW(
            key.as_raw(),
            std::ptr::null_mut(),
            null(),
            std::ptr::null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            null(),
            &raw mut written,
        )
    };
    if code != 0 {
        return Err(refused(code, format!("read HKLM\\{name}")).into());
    }
    Ok(format!("boot-{:08x}{:08x}", written.dwHighDateTime, written.dwLowDateTime))
}
