//! The lock under which Calico changes HNS networks.

use std::time::Duration;

use anyhow::Result;
use windows_sys::Win32::Foundation::{CloseHandle, GetLastError, HANDLE, WAIT_ABANDONED, WAIT_OBJECT_0, WAIT_TIMEOUT};
use windows_sys::Win32::Storage::FileSystem::SYNCHRONIZE;
use windows_sys::Win32::System::Threading::{CreateMutexExW, ReleaseMutex, WaitForSingleObject};

use super::wide::wide;
use crate::fault::{Exit, Fault};
use crate::node::win32::{self, refused};

/// Calico's CNI plugin takes `TigeraCalicoCNINetworkMutex` through the Go package juju/mutex, which
/// puts `juju-mutex-` before the name. Services and containerd's children live in session 0, whose
/// own names are the global ones; from a user's session they are reached by `Global\`.
const NAME: &str = r"Global\juju-mutex-TigeraCalicoCNINetworkMutex";

/// As long as Calico's CNI plugin waits itself.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The lock, held by this thread until it is dropped.
pub struct NetworkLock(HANDLE);

impl NetworkLock {
    /// Waits for the lock. One whose holder died is taken over: HNS keeps its own state right.
    ///
    /// # Errors
    /// BUSY when somebody holds it for longer than `limit`.
    pub fn hold(limit: Duration) -> Result<Self> {
        let name = wide(NAME);
        // SAFETY: `name` is UTF-16 with a zero at its end. Only the right to wait is asked for,
        // which an administrator has on the object that SYSTEM made.
        let handle = unsafe { CreateMutexExW(std::ptr::null(), name.as_ptr(), 0, SYNCHRONIZE) };
        if handle.is_null() {
            // SAFETY: it reads this thread's last error.
            let code = unsafe { GetLastError() };
            let what = "take the lock of Calico's networks";
            return Err(if code == win32::ACCESS_DENIED { win32::denied(what) } else { refused(code, what) }.into());
        }
        let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX - 1);
        // SAFETY: the handle is a mutex that was just opened with the right to wait for it.
        let waited = unsafe { WaitForSingleObject(handle, milliseconds) };
        if matches!(waited, WAIT_OBJECT_0 | WAIT_ABANDONED) {
            return Ok(Self(handle));
        }
        // SAFETY: it reads this thread's last error.
        let code = unsafe { GetLastError() };
        // SAFETY: the handle is open and used no more.
        unsafe { CloseHandle(handle) };
        if waited != WAIT_TIMEOUT {
            return Err(refused(code, "wait for the lock of Calico's networks").into());
        }
        let what = format!("another program has been changing Calico's networks for {} s", limit.as_secs());
        Err(Fault::new(Exit::Busy, "NetworkLockHeld", what)
            .hint("wait until no pod is being started or removed here, then run again; restart the machine if it stays so")
            .into())
    }
}

impl Drop for NetworkLock {
    fn drop(&mut self) {
        // SAFETY: this thread holds the mutex, since a lock cannot be sent to another one, and the
        // handle is closed only here.
        unsafe {
            ReleaseMutex(self.0);
            CloseHandle(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_has_one_holder_and_outlives_a_dead_one() {
        let held = NetworkLock::hold(LIMIT).unwrap();
        let other = std::thread::spawn(|| NetworkLock::hold(Duration::from_millis(20)).map(drop).unwrap_err());
        let error = other.join().unwrap();
        assert_eq!(Fault::id_of(&error), "NetworkLockHeld");
        drop(held);
        // A thread that ends with the lock abandons it.
        std::thread::spawn(|| std::mem::forget(NetworkLock::hold(LIMIT).unwrap())).join().unwrap();
        drop(NetworkLock::hold(Duration::from_secs(5)).unwrap());
    }
}
