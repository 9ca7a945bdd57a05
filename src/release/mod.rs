//! The Calico release: finding it, fetching it, checking it, and laying it out in a folder.
//!
//! - [`locate`] turns a [`crate::settings::Source`] into a local file or folder, with [`download`]
//!   (resumed, cached) and [`transport`] (proxy, CA, retries) behind it.
//! - [`archive`] opens a zip: digest first, then its table of contents, all of it checked by
//!   [`check`] before a byte is written.
//! - [`extract`] inflates a checked archive; [`stage`] also writes the manifest that makes the
//!   folder a release tree of ours.
//!
//! Everything that is wrong with a release ends as [`crate::fault::Exit::ReleaseInvalid`].

pub mod archive;
pub mod check;
pub mod download;
pub mod extract;
mod files;
#[cfg(test)]
mod fixtures;
mod inflate;
pub mod locate;
mod relay;
mod sinks;
pub mod stage;
pub mod transport;

/// The phases whose progress this room reports.
pub mod phase {
    pub const FETCH: &str = "fetch";
    pub const VERIFY: &str = "verify";
    pub const UNPACK: &str = "unpack";
}

use crate::fault::{Exit, Fault};

/// A release that is not what it should be.
fn invalid(id: &'static str, what: impl Into<String>) -> Fault {
    Fault::new(Exit::ReleaseInvalid, id, what)
}
