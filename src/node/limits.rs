//! How long a change of an item may take on a node before it counts as failed.

use std::time::Duration;

use crate::item::Id;

/// A service that is not running by then will not run. Windows itself gives a service's program 30 s for its first
/// report.
pub const SERVICE_STARTS: Duration = Duration::from_secs(180);

/// A stop that takes longer counts as refused. NSSM and our own services need less than 20 s.
pub const SERVICE_STOPS: Duration = Duration::from_secs(60);

/// How long all deletions for one HNS network may take together: the CNI plugin waits for the lock meanwhile.
pub const NETWORK_DELETED: Duration = Duration::from_secs(300);

/// The limit of a change; none if nobody waits for it. `removes`: the item is removed, or the service stopped.
pub const fn of(id: &Id, removes: bool) -> Option<Duration> {
    match id {
        Id::Running(_) if removes => Some(SERVICE_STOPS),
        Id::Running(_) => Some(SERVICE_STARTS),
        Id::Network(_) if removes => Some(NETWORK_DELETED),
        _ => None,
    }
}
