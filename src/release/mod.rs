//! The Calico release: finding, downloading, checking and extracting it.
//!
//! - [`locate`] turns a [`crate::settings::Source`] into a local file or folder, with [`download`] (resumed, cached)
//!   and [`transport`] (proxy, CA, retries).
//! - [`archive`] opens a zip: first its digest, then its table of contents, all of it checked by [`check`] before a
//!   byte is written.
//! - [`extract`] inflates a checked archive; [`stage`] also writes the manifest that makes the
//!   folder a release tree of this program.
//! - [`bundle`] is one file with everything that a node without downloads needs.
//! - [`programs`] finds Kubernetes' own programs.
//!
//! Every error about a release is of class [`crate::fault::Exit::ReleaseInvalid`].

pub mod archive;
pub mod bundle;
pub mod check;
pub mod download;
pub mod extract;
mod files;
mod inflate;
pub mod locate;
pub mod programs;
mod sinks;
pub mod stage;
#[cfg(test)]
mod testing;
pub mod transport;

/// The phases whose progress this module reports.
pub mod phase {
    pub const FETCH: &str = "fetch";
    pub const VERIFY: &str = "verify";
    pub const UNPACK: &str = "unpack";
}

use crate::fault::{Exit, Fault};

/// An invalid release.
fn invalid(id: &'static str, what: impl Into<String>) -> Fault {
    Fault::new(Exit::ReleaseInvalid, id, what)
}
