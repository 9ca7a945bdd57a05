//! Events as lines of JSON: `version` first, `result` last, `seq` strictly increasing.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::document::millis;
use super::event::Event;

/// Version of the event stream: minor numbers add, major numbers break.
pub const SCHEMA: &str = "events/1.0";

/// The fields of an event besides `ts`, `run` and `seq`.
pub fn fields(event: &Event) -> Value {
    match event {
        Event::PhaseStarted { phase, index, total } => {
            json!({ "type": "phase_start", "level": "info", "message": format!("{phase} begins"),
                "phase": { "id": phase, "index": index, "total": total } })
        }
        Event::PhaseCompleted { phase, message, changed, took } => {
            json!({ "type": "phase_complete", "level": "info", "message": message,
                "phase": { "id": phase }, "changed": changed, "duration_ms": millis(*took) })
        }
        Event::PhaseSkipped { phase, reason } => {
            json!({ "type": "phase_skipped", "level": "info", "message": reason, "phase": { "id": phase } })
        }
        Event::PhaseFailed { phase, message } => {
            json!({ "type": "phase_errored", "level": "error", "message": message, "phase": { "id": phase } })
        }
        Event::Progress { phase, current, total } => {
            json!({ "type": "progress", "level": "info", "message": format!("{phase}: {current} bytes"),
                "phase_id": phase, "current": current, "total": total, "unit": "bytes" })
        }
        Event::Waiting { what, elapsed, limit } => {
            json!({ "type": "waiting", "level": "info", "message": format!("waiting for {what}"),
                "elapsed_ms": millis(*elapsed), "limit_ms": millis(*limit) })
        }
        Event::ConnectivityNotice { message, resume_with } => {
            json!({ "type": "connectivity_notice", "level": "warn", "message": message,
                "kind": "host_network_interrupt", "resume_with": resume_with })
        }
        Event::Warning { id, message } => {
            json!({ "type": "diagnostic", "level": "warn", "message": message, "id": id })
        }
        Event::Log { message } => json!({ "type": "log", "level": "debug", "message": message }),
    }
}

/// One line: time, run and number before the event's own fields.
pub fn line(now: Timestamp, run: &str, seq: u64, fields: Value) -> String {
    let mut line = Map::new();
    line.insert("ts".into(), json!(format!("{now:.3}")));
    line.insert("run".into(), json!(run));
    line.insert("seq".into(), json!(seq));
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    Value::Object(line).to_string()
}
