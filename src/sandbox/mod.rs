//! To be written.

pub mod release;
