//! The rows of `selftest` that Wine answers otherwise than Windows, exactly.

/// It runs services in session 1, its Event Log keeps nothing, it renames a folder in which a file is open, and it reads
/// an access list from a file's mode and owner.
pub const OTHERWISE: [&str; 4] = ["DetachedProcess", "EventLog", "OpenFolderRename", "FolderList"];
