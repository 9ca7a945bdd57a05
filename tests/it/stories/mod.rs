//! What users live through, with the built program on a sandbox.

mod changes;
mod crashes;
mod credentials;
mod failures;
mod first_day;
mod offline;
mod output;
mod plans;
mod platforms;
mod schemas;
mod variants;
