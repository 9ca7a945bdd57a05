//! Carrying a plan out: the journal before the first touch, compare-and-set at each step, the
//! receipt at the end, and the way forward or back after a crash.

pub mod acls;
pub mod cancel;
pub mod converge;
pub mod cordon;
#[cfg(test)]
mod crash_matrix;
pub mod journal;
pub mod lock;
pub mod marks;
pub mod node_object;
pub mod observe;
pub mod receipt;
pub mod renewal;
pub mod retention;
mod stale_files;
pub mod standing;
mod steps;
pub mod store;
