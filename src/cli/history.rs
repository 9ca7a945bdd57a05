//! `history`: the recorded runs on this node.

use anyhow::Result;
use serde_json::Value;

use super::table::{lines, table};
use crate::fault::Exit;
use crate::node::Node;
use crate::report::document::{EndedBy, History, PastRun};
use crate::report::time::columns;
use crate::run::app::App;
use crate::run::{Ending, records};

pub(crate) fn run(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let History { runs } = recorded(&*node)?;
    let detail = app.global.verbose > 0;
    let header = ["STARTED", "AGE", "COMMAND", "RESULT", "GEN", "BY", "RUN"];
    let mut table = table(&header[..if detail { 7 } else { 5 }]);
    for run in &runs {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".into());
        let [started, age] = run.started.map_or_else(|| ["?".into(), String::new()], columns);
        let mut row = vec![
            started,
            age,
            text(&run.command),
            run.ended(),
            run.generation.map_or_else(String::new, |generation| generation.to_string()),
        ];
        if detail {
            row.extend([text(&run.user), run.run.clone()]);
        }
        table.add_row(row);
    }
    let mut text = lines(&table) + "\n";
    if runs.is_empty() {
        text = "no run is remembered on this node\n".into();
    }
    app.reporter.document(&History { runs }, &text);
    Ending::shown(Exit::Ok, "shown")
}

/// The recorded runs, oldest first.
pub(super) fn recorded(node: &dyn Node) -> Result<History> {
    let records = records::all(node)?;
    let mut runs: Vec<PastRun> = records.iter().filter_map(|record| past(node, record, &records)).collect();
    runs.sort_by(|one, other| one.run.cmp(&other.run));
    Ok(History { runs })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The run that ended this one, which was interrupted, by the record of the former.
fn ended_by(ending: &Value) -> Option<EndedBy> {
    let how = text(&ending["ends"]["how"])?;
    Some(EndedBy { run: text(&ending["run"])?, command: text(&ending["command"])?, how })
}

/// Parses a run's record, written when it began or ended. `all`: the records of all runs.
fn past(node: &dyn Node, record: &Value, all: &[Value]) -> Option<PastRun> {
    let run = text(&record["run"])?;
    let result = &record["result"];
    let count = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    Some(PastRun {
        interrupted: records::is_interrupted(node, record),
        ended_by: all.iter().rfind(|other| other["ends"]["run"] == *run).and_then(ended_by),
        run,
        command: text(&record["command"]),
        user: text(&record["user"]),
        started: text(&record["since"]).and_then(|at| at.parse().ok()),
        result: text(&result["exit_name"]),
        changed: result["changed"].as_bool(),
        generation: count(&result["generation"]),
        msg: text(&result["msg"]),
    })
}
