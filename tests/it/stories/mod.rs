//! What users live through, with the built program on a sandbox.

mod adoption;
mod changes;
mod crashes;
mod credentials;
mod failures;
mod first_day;
mod offline;
mod output;
mod plans;
mod schemas;
mod variants;
