//! To be written.

pub mod calico;
