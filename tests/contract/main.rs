//! One contract for both nodes: the same calls with the same expectations on the sandbox node and on the Windows
//! machine, so that the sandbox behaves like the machine.
//!
//! On Linux this runs for the sandbox only. `packaging/test.sh` also builds it for Windows and runs it under Wine, for
//! both. On a Windows machine the tests that only read always run; those that change it run elevated, on request:
//! `cargo test --test contract -- --ignored`.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]
#![allow(clippy::print_stdout, reason = "a failed story says which node it was, and what was left out")]

mod facts;
mod files;
mod network;
mod nodes;
mod registry;
mod selftest;
mod services;
#[path = "../windows/wine_rows.rs"]
mod wine_rows;
