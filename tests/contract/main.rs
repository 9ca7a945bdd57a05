//! One contract for both nodes: the same calls with the same expectations on the sandbox node and
//! on the Windows machine, so that the sandbox is held to the truth.
//!
//! On Linux this runs for the sandbox alone. `packaging/test.sh` also builds it for Windows and
//! runs it under Wine, where it runs for both. On a Windows machine those that only look run always;
//! those that change it run elevated, when asked for: `cargo test --test contract -- --ignored`.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]
#![allow(clippy::print_stdout, reason = "a failed story says which node it was, and what was left out")]

mod facts;
mod files;
mod network;
mod nodes;
mod registry;
mod services;
