//! The environment of a sandbox node: a cluster to join, a release to install, and a stand-in for Calico's own
//! programs. The tests use the same.

mod agnhost;
pub mod calico;
pub mod cluster;
pub mod kubelet;
mod loopback;
pub mod metadata;
pub mod mirror;
pub mod release;
pub mod traffic;

/// Whether this URL can exist for a sandbox: its own network has only loopback.
pub fn reaches(url: &str) -> bool {
    ["//127.", "//localhost", "//[::1]"].iter().any(|host| url.contains(host))
}
