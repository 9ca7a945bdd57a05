//! Our registry values, all below HKEY_LOCAL_MACHINE.

use crate::item::{Id, RegValue, State};

/// The key by which upstream's scripts and other tools detect Calico.
pub const KEY: &str = r"Software\Tigera\Calico";

/// The volatile key below it that marks one boot of Windows; see `node::windows::boot`.
pub const BOOT_KEY: &str = "Boot";

/// The source of our entries in the Application log.
pub const EVENT_SOURCE: &str = "calicoctl-win";

/// A value of Calico's key.
fn value(name: &str) -> Id {
    Id::RegValue { key: KEY.into(), name: name.into() }
}

/// Who installed Calico.
pub fn installed_by() -> Id {
    value("InstalledBy")
}

/// The boot in which the network is up. Felix and confd wait for it.
pub fn boot_id() -> Id {
    value("BootId")
}

/// The same for upstream's own scripts (`kubelet-service.ps1`), which compare it as text.
pub fn last_boot_time() -> Id {
    value("LastBootTime")
}

/// What the agent writes while it runs: a run removes these values but does not set them.
pub fn agents_own() -> [Id; 2] {
    [boot_id(), last_boot_time()]
}

/// Lets Event Viewer show the text of our entries instead of "the description for Event ID … cannot be found": the file
/// with the message of each id. This is the one that `eventcreate` uses for its own entries, a part of every Windows:
/// its messages 1 to 1000 are `%1`, the entry's text.
pub fn event_source() -> [(Id, State); 2] {
    let key = format!(r"SYSTEM\CurrentControlSet\Services\EventLog\Application\{EVENT_SOURCE}");
    let value = |name: &str, value| (Id::RegValue { key: key.clone(), name: name.into() }, State::RegValue(value));
    [
        value("EventMessageFile", RegValue::ExpandString(r"%SystemRoot%\System32\EventCreate.exe".into())),
        // Errors, warnings and information (EVENTLOG_ERROR_TYPE 1, _WARNING_TYPE 2, _INFORMATION_TYPE 4).
        value("TypesSupported", RegValue::Dword(7)),
    ]
}
