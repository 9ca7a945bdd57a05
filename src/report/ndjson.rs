//! Events as lines of JSON: `version` first, `result` last, `seq` strictly increasing.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::document::{CheckStatus, millis};
use super::event::Event;
use crate::values::count;

/// Version of the event stream: minor numbers add, major numbers break.
pub const SCHEMA: &str = "events/1.0";

/// The fields of an event besides `ts`, `run` and `seq`.
pub fn fields(event: &Event) -> Value {
    match event {
        Event::PhaseStarted { phase, place } => {
            let (index, total) = place.unzip();
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
                "part": phase, "current": current, "total": total, "unit": "bytes" })
        }
        Event::Waiting { what, elapsed, limit } => {
            json!({ "type": "waiting", "level": "info", "message": format!("waiting for {what}"),
                "elapsed_ms": millis(*elapsed), "limit_ms": millis(*limit) })
        }
        Event::PodEvicted { pod } => {
            json!({ "type": "pod_evicted", "level": "info", "message": format!("{pod} is terminating"), "pod": pod })
        }
        Event::PodBlocked { pod, why, retry } => {
            json!({ "type": "pod_blocked", "level": "warn", "message": format!("{pod}: {why}"),
                "pod": pod, "why": why, "retry_ms": millis(*retry) })
        }
        Event::PodGone { pod, gone, total } => {
            json!({ "type": "pod_gone", "level": "info", "message": format!("{pod} is gone"),
                "pod": pod, "gone": gone, "total": total })
        }
        Event::DrainProgress { gone, total, blocked, ending, elapsed, limit } => {
            json!({ "type": "drain_progress", "level": "info", "message": format!("{gone} of {} deleted", count(*total, "pod")),
                "gone": gone, "total": total, "blocked": blocked, "ending": ending, "elapsed_ms": millis(*elapsed),
                "limit_ms": limit.map(millis) })
        }
        Event::ConnectivityNotice { message, resume_with } => {
            json!({ "type": "connectivity_notice", "level": "warn", "message": message,
                "kind": "host_network_interrupt", "resume_with": resume_with })
        }
        Event::ConfirmDeadline { deadline, command } => {
            json!({ "type": "confirm_deadline", "level": "warn",
                "message": format!("the change reverts at {deadline:.0} unless it is confirmed"),
                "deadline": deadline, "command": command })
        }
        Event::RunStarted { command, node, generation } => {
            json!({ "type": "run_start", "level": "info", "message": format!("{command} on {node}"),
                "command": command, "node": node, "generation_from": generation })
        }
        Event::Checked(check) => {
            json!({ "type": "check_result", "level": level(check.status), "message": format!("{}: {}", check.id, check.detail), "check": check })
        }
        Event::Planned(change) => {
            json!({ "type": "planned_change", "level": "info", "message": format!("{} {}", format!("{:?}", change.action).to_lowercase(), change.id), "change": change })
        }
        Event::PlanMade { counts, disruption } => {
            json!({ "type": "change_summary", "level": "info", "message": counts, "disruption": disruption })
        }
        Event::RollbackStarted { reason } => {
            json!({ "type": "rollback_start", "level": "warn", "message": "the change failed and is being rolled back", "reason": reason })
        }
        Event::RollbackCompleted { complete } => {
            let message = if *complete { "the change was rolled back" } else { "the change could not be rolled back" };
            json!({ "type": "rollback_complete", "level": if *complete { "info" } else { "error" }, "message": message, "complete": complete })
        }
        Event::Warning { id, message } => {
            json!({ "type": "diagnostic", "level": "warn", "message": message, "id": id })
        }
        Event::Log { message } => json!({ "type": "log", "level": "debug", "message": message }),
    }
}

const fn level(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Fail => "error",
        CheckStatus::Warn | CheckStatus::Unknown => "warn",
        CheckStatus::Ok | CheckStatus::Skip => "info",
    }
}

/// One line: time, run and number before the event's own fields.
pub fn line(now: Timestamp, run: &str, seq: u64, fields: Value) -> String {
    let mut line = Map::new();
    line.insert("ts".into(), json!(format!("{now:.3}")));
    // The same order on every line, for readability.
    for first in ["level", "type", "message"] {
        line.insert(first.into(), fields.get(first).cloned().unwrap_or_default());
    }
    line.insert("run".into(), json!(run));
    line.insert("seq".into(), json!(seq));
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    Value::Object(line).to_string()
}
