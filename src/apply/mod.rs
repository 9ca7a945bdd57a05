//! Applying a plan: the journal before the first change, compare-and-set at each step, the receipt at the end, and
//! finishing or undoing after a crash.

pub mod acls;
pub mod cancel;
pub mod converge;
pub mod cordon;
#[cfg(test)]
mod crash_matrix;
mod host_routes;
pub mod joining;
pub mod journal;
pub mod lock;
pub mod marks;
pub mod node_object;
pub mod observe;
pub mod receipt;
pub mod renewal;
pub mod retention;
pub mod source_vip;
mod stale_files;
pub mod standing;
pub mod steps;
pub mod store;
pub mod user_files;
pub mod waits;
