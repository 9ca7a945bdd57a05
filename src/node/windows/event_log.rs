//! The newest entries of Windows' event logs.

use std::ptr;

use anyhow::Result;
use windows_sys::Win32::System::EventLog::{CloseEventLog, EVENTLOG_SEQUENTIAL_READ, OpenEventLogW, ReadEventLogW};

use super::wide::{last_error, wide};
use crate::node::event_log::{LOGS, LoggedEvent, records};
use crate::node::win32::refused;

/// `EVENTLOG_BACKWARDS_READ` (winnt.h), which the crate lacks.
const BACKWARDS: u32 = 8;

/// How much of a log is read, in buffers of 64 KiB.
const BUFFERS: usize = 8;

/// The newest entries about Calico, newest first.
///
/// # Errors
/// When a log cannot be opened.
pub fn about_calico() -> Result<Vec<LoggedEvent>> {
    let mut found = Vec::new();
    for log in LOGS {
        newest(log, |buffer| {
            found.extend(records(buffer).into_iter().filter(LoggedEvent::is_about_calico));
            true
        })
        .map_err(|code| refused(code, format!("open the event log {log}")))?;
    }
    found.sort_by_key(|event| std::cmp::Reverse(event.at));
    Ok(found)
}

/// Passes the newest records to `each`, some at a time, until it returns false.
///
/// # Errors
/// The Windows error if the log cannot be opened.
pub fn newest(log: &str, mut each: impl FnMut(&[u8]) -> bool) -> std::result::Result<(), u32> {
    let name = wide(log);
    // SAFETY: null is this machine; the name ends with a zero and outlives the call.
    let log = unsafe { OpenEventLogW(ptr::null(), name.as_ptr()) };
    if log.is_null() {
        return Err(last_error());
    }
    let mut buffer = vec![0_u8; 64 * 1024];
    for _ in 0..BUFFERS {
        let (mut read, mut needed) = (0, 0);
        let flags = EVENTLOG_SEQUENTIAL_READ | BACKWARDS;
        let size = u32::try_from(buffer.len()).expect("it is 64 KiB");
        // SAFETY: the log is open, and the buffer has the size that is said.
        let done =
            unsafe { ReadEventLogW(log, flags, 0, buffer.as_mut_ptr().cast(), size, &raw mut read, &raw mut needed) };
        if done == 0 || !each(&buffer[..(read as usize).min(buffer.len())]) {
            break;
        }
    }
    // SAFETY: it was opened above, and is used no more.
    unsafe { CloseEventLog(log) };
    Ok(())
}
