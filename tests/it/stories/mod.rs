//! What users live through, with the built program on a sandbox.

mod adoption;
#[cfg(target_os = "linux")]
mod at_boot;
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
mod lease;
mod offline;
mod output;
mod plans;
mod platforms;
mod reconfigure;
mod repair;
mod restart;
mod safety;
mod schemas;
#[cfg(target_os = "linux")]
mod trial;
mod uninstall;
mod upgrade;
mod variants;
