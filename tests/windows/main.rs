//! The executable itself on Windows: on a Windows machine as it is, elsewhere under Wine once
//! `packaging/test.sh` has made both ready.
//!
//! What changes the machine runs on Windows only with `--ignored`, elevated and with the feature
//! Containers. What needs a fault of HNS, a power cut or another Windows runs under Wine alone.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

mod house;
mod machine;
#[cfg(not(windows))]
mod picture;
mod stories;
#[cfg(not(windows))]
#[path = "../it/tokens.rs"]
mod tokens;
mod wire;
