//! The executable itself on Windows: on a Windows machine directly, elsewhere under Wine once `packaging/test.sh` has
//! prepared it.
//!
//! On Windows, tests that change the machine run only with `--ignored`, elevated and with the feature Containers. Tests
//! that need a fault of HNS, a power cut or another Windows run only under Wine.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

#[cfg(not(windows))]
#[allow(dead_code, reason = "tests/it uses all of it")]
#[path = "../it/real/api_server.rs"]
mod api_server;
mod house;
mod machine;
#[path = "../it/real/parts.rs"]
mod parts;
#[cfg(not(windows))]
mod picture;
#[cfg(not(windows))]
#[path = "../it/real/seed.rs"]
mod seed;
mod stories;
#[cfg(not(windows))]
#[path = "../it/tar.rs"]
mod tar;
#[cfg(not(windows))]
#[path = "../it/tokens.rs"]
mod tokens;
mod wine_rows;
mod wire;
