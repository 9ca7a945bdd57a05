//! Attempts that show how Windows behaves where the product relies on it and no item shows it. `selftest` makes them.

use std::net::Ipv4Addr;

use crate::values::WinPath;

/// An attempt. It removes what it makes, except an endpoint, which is removed with its network.
#[derive(Debug, Clone)]
pub enum Probe {
    /// Renames another file over this one while it is open and its reader lets others only read.
    ReplaceOpenFile(WinPath),
    /// Renames the folder of this file while the file is open. Renames it again if that was possible.
    MoveOpenFolder(WinPath),
    /// Deletes a service of which a handle is open, and creates one of the same name.
    ReuseHeldName(String),
    /// Looks in the newest entries of the Application log for this text.
    FindEvent(String),
    /// Looks for a host route to this address in the persistent store.
    FindPersistentRoute(Ipv4Addr),
    /// Looks whether an inbound firewall rule applies in every network profile.
    RuleInEveryProfile(String),
    /// Creates an endpoint on an HNS network.
    MakeEndpoint { network: String, name: String, ip: Ipv4Addr },
}
