//! The world around the node in a try-out: a cluster to join. The tests use the same.

pub mod calico;
pub mod cluster;
