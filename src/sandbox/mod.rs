//! The world around the node in a try-out: a cluster to join, a release to install, and a stand-in
//! for Calico's own programs. The tests use the same.

pub mod calico;
pub mod cluster;
pub mod kubelet;
mod loopback;
pub mod metadata;
pub mod mirror;
pub mod release;

/// Whether something at this URL can be there for a sandbox: it has a network of its own, where there is
/// nothing but loopback.
pub fn reaches(url: &str) -> bool {
    ["//127.", "//localhost", "//[::1]"].iter().any(|host| url.contains(host))
}
