//! What users live through, with the built program on a sandbox.

mod adoption;
#[cfg(target_os = "linux")]
mod at_boot;
mod boot;
mod changes;
mod crashes;
mod credentials;
mod datastore;
mod dependents;
mod detach;
mod drain;
mod failures;
mod first_day;
#[cfg(target_os = "linux")]
mod given_up;
mod import;
mod journal;
mod lease;
mod offline;
mod output;
mod plans;
mod platforms;
mod pods;
mod proof;
mod reconfigure;
mod repair;
mod restart;
mod rights;
mod safety;
mod schemas;
mod status;
mod touched;
#[cfg(target_os = "linux")]
mod trial;
mod uninstall;
mod upgrade;
mod variants;
