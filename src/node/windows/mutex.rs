//! The lock under which Calico changes HNS networks.

use std::time::Duration;

use anyhow::Result;
use windows_sys::Win32::Foundation::{CloseHandle, GetLastError, HANDLE, WAIT_ABANDONED, WAIT_OBJECT_0, WAIT_TIMEOUT};
use windows_sys::Win32::Storage::FileSystem::{READ_CONTROL, SYNCHRONIZE};
use windows_sys::Win32::System::Threading::{CreateMutexExW, ReleaseMutex, WaitForSingleObject};

use super::security;
use super::wide::wide;
use crate::fault::{Exit, Fault};
use crate::node::trust;
use crate::node::win32::{self, refused};

/// Calico's CNI plugin uses `TigeraCalicoCNINetworkMutex` through the Go package juju/mutex, which adds the prefix
/// `juju-mutex-`. Services and containerd's children are in session 0, whose names are the global ones; a user's
/// session reaches them by `Global\`.
const NAME: &str = r"Global\juju-mutex-TigeraCalicoCNINetworkMutex";

/// Calico's CNI plugin waits as long.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The lock, held by this thread until it is dropped.
pub struct NetworkLock(HANDLE);

impl NetworkLock {
    /// Waits for the lock. A lock whose holder died is taken over: HNS keeps its own state consistent.
    ///
    /// # Errors
    /// BUSY if another process holds it for longer than `limit`.
    pub fn hold(limit: Duration) -> Result<Self> {
        Self::hold_named(NAME, limit)
    }

    fn hold_named(name: &str, limit: Duration) -> Result<Self> {
        let handle = open(name)?;
        let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX - 1);
        // SAFETY: the handle is a mutex that was just opened with the right to wait for it.
        let waited = unsafe { WaitForSingleObject(handle, milliseconds) };
        if matches!(waited, WAIT_OBJECT_0 | WAIT_ABANDONED) {
            return Ok(Self(handle));
        }
        // SAFETY: it reads this thread's last error.
        let code = unsafe { GetLastError() };
        let stranger = stranger(handle);
        // SAFETY: the handle is open and used no more.
        unsafe { CloseHandle(handle) };
        if waited != WAIT_TIMEOUT {
            return Err(refused(code, "wait for the lock of Calico's networks").into());
        }
        let (limit, hint) = (limit.as_secs(), "wait until no pod is being started or removed here, then run again");
        let (what, hint) = match stranger {
            // Calico's own programs are SYSTEM's.
            Some(who) => (
                format!("a program of {who} has held the lock of Calico's networks for {limit} s"),
                "end that program: it is not Calico's; then run again",
            ),
            None => (format!("another program has been changing Calico's networks for {limit} s"), hint),
        };
        Err(Fault::new(Exit::Busy, "NetworkLockHeld", what)
            .hint(format!("{hint}; restart the machine if it stays so"))
            .into())
    }
}

/// SYSTEM and administrators: who makes an object says who may hold it.
const LIST: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)";

/// Opens the lock, or makes it so that no other account may hold it.
fn open(name: &str) -> Result<HANDLE> {
    let (what, name) = ("take the lock of Calico's networks", wide(name));
    let mut denied = 0;
    // Without the right to read its owner, the right to wait is enough.
    for rights in [SYNCHRONIZE | READ_CONTROL, SYNCHRONIZE] {
        // SAFETY: `name` is UTF-16 with a zero at its end, and the attributes outlive the call.
        let handle = security::with_list(LIST, |list| unsafe { CreateMutexExW(list, name.as_ptr(), 0, rights) })?;
        if !handle.is_null() {
            return Ok(handle);
        }
        // SAFETY: it reads this thread's last error.
        denied = unsafe { GetLastError() };
        if denied != win32::ACCESS_DENIED {
            return Err(refused(denied, what).into());
        }
    }
    debug_assert_eq!(denied, win32::ACCESS_DENIED);
    let what = format!("{what}: another account made it, and keeps administrators out");
    Err(win32::denied(what)
        .hint("restart the machine, and find out who runs programs here before the services start")
        .into())
}

/// SYSTEM, and the group of administrators.
const TRUSTED: [&str; 2] = ["S-1-5-18", "S-1-5-32-544"];

/// The account that made the lock, if Calico's programs do not run as it.
fn stranger(handle: HANDLE) -> Option<String> {
    let owner = security::acl_of(handle).ok()?.owner;
    (!TRUSTED.contains(&owner.as_str())).then(|| trust::account(&owner))
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

    /// Any local user may make a mutex of this name first, and hold it for ever.
    #[test]
    fn the_account_that_made_a_lock_that_stays_held_is_named_and_ours_keeps_others_out() {
        const OWN: &str = r"Global\calicoctl-win-test-of-a-squatted-lock";
        let (name, rights) = (wide(OWN), SYNCHRONIZE | READ_CONTROL);
        // SAFETY: the name is UTF-16 with a zero at its end.
        let squatted = unsafe { CreateMutexExW(std::ptr::null(), name.as_ptr(), 1, rights) };
        let made_by = security::acl_of(squatted).unwrap().owner;
        let hold = || NetworkLock::hold_named(OWN, Duration::from_millis(20)).map(drop);
        let error = std::thread::spawn(move || hold().unwrap_err()).join().unwrap().to_string();
        if !TRUSTED.contains(&made_by.as_str()) {
            assert!(error.starts_with("a program of ") && error.contains(&made_by), "{error}");
        }
        // SAFETY: this thread holds the mutex, and the handle is used no more.
        unsafe {
            ReleaseMutex(squatted);
            CloseHandle(squatted);
        }
        let held = NetworkLock::hold_named(OWN, LIMIT).unwrap();
        let entries = security::acl_of(held.0).unwrap().entries.expect("it has a list");
        let strangers = entries.iter().filter(|entry| !TRUSTED.contains(&entry.trustee.as_str()));
        assert_eq!(strangers.count(), 0, "{entries:?}");
    }

    #[test]
    fn the_lock_has_one_holder_and_survives_a_dead_one() {
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
