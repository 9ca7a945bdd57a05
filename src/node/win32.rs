//! Windows error numbers, as faults that a user can act on.

use crate::fault::{Exit, Fault};

pub const FILE_NOT_FOUND: u32 = 2;
pub const PATH_NOT_FOUND: u32 = 3;
pub const ACCESS_DENIED: u32 = 5;
pub const NOT_SAME_DEVICE: u32 = 17;
pub const SHARING_VIOLATION: u32 = 32;
pub const NOT_SUPPORTED: u32 = 50;
pub const INVALID_PARAMETER: u32 = 87;
pub const BROKEN_PIPE: u32 = 109;
pub const DISK_FULL: u32 = 112;
pub const MODULE_NOT_FOUND: u32 = 126;
pub const PROCEDURE_NOT_FOUND: u32 = 127;
pub const ALREADY_EXISTS: u32 = 183;
pub const BAD_EXE_FORMAT: u32 = 193;
pub const DEPENDENT_SERVICES_RUNNING: u32 = 1051;
pub const SERVICE_REQUEST_TIMEOUT: u32 = 1053;
pub const SERVICE_DISABLED: u32 = 1058;
pub const SERVICE_DOES_NOT_EXIST: u32 = 1060;
pub const PROCESS_ABORTED: u32 = 1067;
pub const SERVICE_DEPENDENCY_FAIL: u32 = 1068;
pub const SERVICE_MARKED_FOR_DELETE: u32 = 1072;
pub const SERVICE_EXISTS: u32 = 1073;
pub const SERVICE_DEPENDENCY_DELETED: u32 = 1075;
pub const DUPLICATE_SERVICE_NAME: u32 = 1078;
pub const NOT_FOUND: u32 = 1168;
pub const TIMEOUT: u32 = 1460;
pub const RPC_UNAVAILABLE: u32 = 1722;
pub const RPC_NOT_REGISTERED: u32 = 1753;
pub const OBJECT_ALREADY_EXISTS: u32 = 5010;
/// `E_FAIL`: unspecified error.
pub const UNSPECIFIED: u32 = 0x8000_4005;
pub const HNS_NETWORK_NOT_FOUND: u32 = 0x803B_0001;
pub const HNS_ENDPOINT_NOT_FOUND: u32 = 0x803B_0002;
pub const HNS_ADAPTER_NOT_FOUND: u32 = 0x803B_0006;
pub const HNS_NETWORK_EXISTS: u32 = 0x803B_0010;
pub const HNS_MANAGER_STOPPED: u32 = 0x803B_0020;
pub const HNS_HAS_REFERENCES: u32 = 0x803B_002C;
/// What HNS answers to a request that it can never fulfil: an invalid network, type of network, policy, type of policy,
/// GUID, JSON, reference, address, prefix or subnet, or something that it does not support (hcsshim, computecore.h).
pub const HNS_BAD_REQUEST: [u32; 13] = [
    0x803B_000A,
    0x803B_000B,
    0x803B_000D,
    0x803B_000E,
    0x803B_0015,
    0x803B_0019,
    0x803B_001B,
    0x803B_001C,
    0x803B_001E,
    0x803B_0030,
    0x803B_0032,
    0x803B_0033,
    NOT_SUPPORTED,
];

/// A Windows error: what was tried and why it failed, with number and text.
pub fn refused(code: u32, what: impl Into<String>) -> Fault {
    let (id, text, hint) = meaning(code);
    let number = if code > 0xFFFF { format!("{code:#010X}") } else { code.to_string() };
    let fault = Fault::new(Exit::Failed, id, format!("{} (Windows error {number}: {text})", what.into()));
    if hint.is_empty() { fault } else { fault.hint(hint) }
}

/// Windows denied access for lack of rights: to a registry key, a service, HNS. For a file the reason may also be that
/// it is in use, which [`refused`] says.
pub fn denied(what: impl Into<String>) -> Fault {
    let what = format!("{} (Windows error {ACCESS_DENIED}: access is denied)", what.into());
    Fault::new(Exit::Failed, "AccessDenied", what).hint(
        "run it in an elevated session (Run as administrator) or as SYSTEM; if it was one, an administrator must \
         restore the rights that Windows sets",
    )
}

/// Whether there is more to say about an error number than the number.
pub fn is_known(code: u32) -> bool {
    meaning(code).0 != "WindowsError"
}

/// Id, Windows's own text and the fix, of an error number.
const fn meaning(code: u32) -> (&'static str, &'static str, &'static str) {
    match code {
        FILE_NOT_FOUND => ("FileNotFound", "the system cannot find the file specified", ""),
        PATH_NOT_FOUND => ("FileNotFound", "the system cannot find the path specified", ""),
        ACCESS_DENIED => ("FileInUse", "access is denied", "stop what holds the file, then run again"),
        NOT_SAME_DEVICE => ("WindowsError", "the system cannot move the file to a different disk drive", ""),
        SHARING_VIOLATION => (
            "FileInUse",
            "the process cannot access the file because it is being used by another process",
            "stop what holds the file, then run again",
        ),
        INVALID_PARAMETER => ("WindowsError", "the parameter is incorrect", ""),
        DISK_FULL => ("DiskFull", "there is not enough space on the disk", "make room on the disk, then run again"),
        ALREADY_EXISTS => ("AlreadyExists", "cannot create a file when that file already exists", ""),
        DEPENDENT_SERVICES_RUNNING => (
            "ServiceHasDependents",
            "a stop control has been sent to a service that other running services are dependent on",
            "stop the services that depend on it first",
        ),
        SERVICE_REQUEST_TIMEOUT => (
            "ServiceWillNotStop",
            "the service did not respond to the start or control request in a timely fashion",
            "look at the service's log; end its process when it hangs, then run again",
        ),
        SERVICE_DISABLED => ("ServiceDisabled", "the service is disabled", "enable the service, then run again"),
        SERVICE_DOES_NOT_EXIST => {
            ("ServiceNotFound", "the specified service does not exist as an installed service", "")
        }
        PROCESS_ABORTED => {
            ("ServiceDied", "the process terminated unexpectedly", "look at the service's log for the reason")
        }
        SERVICE_DEPENDENCY_FAIL => (
            "ServiceDependencyDown",
            "the dependency service or group failed to start",
            "start the services that it depends on first",
        ),
        SERVICE_MARKED_FOR_DELETE => (
            "ServiceMarkedForDelete",
            "the specified service has been marked for deletion",
            "stop the service and close services.msc, then run again",
        ),
        SERVICE_DEPENDENCY_DELETED => (
            "ServiceDependencyMissing",
            "the dependency service does not exist or has been marked for deletion",
            "install the service that it depends on, or take that name out of its dependencies",
        ),
        SERVICE_EXISTS => ("AlreadyExists", "the specified service already exists", ""),
        DUPLICATE_SERVICE_NAME => (
            "ServiceNameTaken",
            "the name is already in use as either a service name or a service display name",
            "another service has this display name: rename or remove it, then run again",
        ),
        NOT_FOUND => ("NotFound", "element not found", ""),
        TIMEOUT => ("NoAnswer", "this operation returned because the timeout period expired", ""),
        RPC_UNAVAILABLE | RPC_NOT_REGISTERED | HNS_MANAGER_STOPPED => (
            "HnsStopped",
            "the service that is to answer is stopped",
            "start the service hns: Start-Service hns; then run again",
        ),
        UNSPECIFIED => ("WindowsError", "unspecified error", ""),
        OBJECT_ALREADY_EXISTS => ("AlreadyExists", "the object already exists", ""),
        HNS_NETWORK_NOT_FOUND => ("NotFound", "HNS has no such network", ""),
        HNS_ENDPOINT_NOT_FOUND => ("NotFound", "HNS has no such endpoint", ""),
        HNS_ADAPTER_NOT_FOUND => (
            "HnsAdapterNotFound",
            "HNS does not find the adapter",
            "name a physical adapter that is up, or none to let HNS choose",
        ),
        HNS_NETWORK_EXISTS => ("HnsNetworkExists", "HNS has a network of that name already", ""),
        HNS_HAS_REFERENCES => (
            "HnsNetworkInUse",
            "HNS still has references to the network",
            "drain the node, so that no pod uses the network, then run again",
        ),
        _ => ("WindowsError", "Windows refused", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_failed_with_windowss_number() {
        insta::assert_snapshot!(refused(SERVICE_DISABLED, "start service x"), @"start service x (Windows error 1058: the service is disabled)");
        insta::assert_snapshot!(refused(HNS_HAS_REFERENCES, "delete network y"), @"delete network y (Windows error 0x803B002C: HNS still has references to the network)");
    }
}
