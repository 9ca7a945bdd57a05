//! The rows of `selftest` that Wine answers otherwise than Windows, exactly.

/// Its Service Control Manager ignores dependencies, its Event Log keeps nothing, it renames a folder in which a file is
/// open, and it reads an access list from a file's mode and owner.
pub const OTHERWISE: [&str; 6] =
    ["EventLog", "FolderHeld", "FolderList", "ServiceDependencies", "ServiceDependents", "ServiceStopOrder"];
