//! calicoctl-win takes a Windows machine from bare to a working Calico node, keeps it right,
//! changes it safely, and takes it off again.
//!
//! The modules in reading order. State is data and there is one engine: a config becomes
//! [`settings`], settings become the wanted [`item::World`], and [`apply`] converges the
//! node from what it is to what is wanted. The first block is pure: no file system, clock,
//! environment, process, HTTP or Windows API. `tests/it/layering.rs` holds that.
//!
//! The library serves the binary and its tests; it promises no stable API.
#![deny(unsafe_code)]

pub mod fault;
pub mod item;
pub mod paths;
pub mod values;
pub mod version;
pub mod yaml;

pub mod facts;

pub mod config;
pub mod settings;

pub mod calico;

pub mod plan;
pub mod preflight;

pub mod apply;
pub mod node;

pub mod cluster;
pub mod platform;
pub mod release;

pub mod agent;

pub mod report;

pub mod sandbox;

pub mod run;

pub mod cli;
