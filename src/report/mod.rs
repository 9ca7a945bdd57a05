//! What the user sees: events as text, bars or NDJSON, and the final documents.

pub mod answer;
pub mod document;
pub mod event;
pub mod explain;
pub mod junit;
pub mod log;
pub mod metrics;
pub mod ndjson;
mod progress;
pub mod reporter;
pub mod screen;
pub mod stdout_queue;
pub mod text;
pub mod time;
mod written;
