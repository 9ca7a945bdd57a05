//! What the user sees: events on their way to text, bars or NDJSON, and the final documents.

pub mod event;
pub mod explain;
