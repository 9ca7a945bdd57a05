//! Scenarios of users, with the built program on a sandbox.

pub mod adoption;
mod apply;
#[cfg(target_os = "linux")]
mod at_boot;
pub mod boot;
pub mod bundle;
#[cfg(target_os = "linux")]
mod canary;
mod changes;
pub mod containerd;
mod crashes;
pub mod credentials;
#[cfg(target_os = "linux")]
pub mod ctrl_c;
pub mod datastore;
mod dependents;
mod detach;
mod diagnose;
mod drain;
mod dsc;
pub mod event_lines;
mod failures;
mod first_day;
mod fleet;
#[cfg(target_os = "linux")]
pub mod given_up;
pub mod hostprocess;
mod image;
pub mod import;
mod journal;
pub mod kubernetes;
pub mod lease;
mod leaving;
mod limits;
mod logs;
mod metrics;
pub mod migrate;
mod network;
mod offline;
mod old_state;
mod our_kubelet;
mod output;
mod plans;
mod platforms;
mod pods;
mod policies;
mod progress;
mod proof;
mod reconfigure;
mod records;
mod render;
mod repair;
mod restart;
mod rights;
mod safety;
pub mod schemas;
mod screens;
#[cfg(target_os = "linux")]
mod scripting;
#[cfg(target_os = "linux")]
mod selftest;
mod static_rules;
mod status;
mod touched;
#[cfg(target_os = "linux")]
mod trial;
mod uninstall;
mod upgrade;
mod user_files;
mod variants;
mod verify;
#[cfg(unix)]
mod whole_boot;
