//! calicoctl-win installs Calico on a Windows machine, repairs it, changes it safely, and uninstalls it.
//!
//! The modules are in reading order. State is data and there is one engine: a config becomes [`settings`], settings
//! become the target [`item::World`], and [`apply`] converges the node from its current state to the target. The first
//! block is pure: no file system, clock, environment, process, HTTP or Windows API. `tests/it/layering.rs` checks that.
//!
//! The library is for the binary and its tests; it has no stable API.
#![deny(unsafe_code)]

#[cfg(test)]
mod counted;
pub mod fault;
pub mod item;
mod packed;
pub mod paths;
pub mod values;
pub mod version;
pub mod yaml;

pub mod facts;

pub mod config;
pub mod settings;

pub mod calico;

pub mod fleet;
pub mod plan;
pub mod policy;
pub mod preflight;

pub mod apply;
pub mod node;
pub mod wait;

pub mod cluster;
pub mod platform;
pub mod release;

pub mod agent;

pub mod selftest;

pub mod diagnose;

pub mod render;
pub mod report;

pub mod sandbox;

pub mod verify;

pub mod run;

pub mod cli;
