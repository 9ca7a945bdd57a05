//! `metrics`: the state of the node for Prometheus, printed or as a file of the textfile collector.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::args::Metrics;
use crate::fault::{Exit, Fault};
use crate::node::{Node, files};
use crate::report::metrics::{self, LastRun};
use crate::run::app::App;
use crate::run::node_status::measure;
use crate::run::open::check_elevated;
use crate::run::{Ending, records};

pub(crate) fn run(args: &Metrics, app: &mut App) -> Result<Ending> {
    if let Some(file) = &args.out {
        check_name(file)?;
    }
    let node = app.node()?;
    // Only administrators may read the records of runs.
    check_elevated(node.caller().elevated)?;
    let status = measure(app, &*node)?;
    let text = metrics::text(&status, last_run(&*node)?.as_ref(), node.now());
    give(&text, args.out.as_deref(), app)
}

/// Prints metrics, or writes them to a file.
pub(super) fn give(text: &str, file: Option<&Path>, app: &mut App) -> Result<Ending> {
    let Some(file) = file else {
        app.reporter.raw(text);
        return Ok(Ending::Quiet);
    };
    if app.global.is_dry_run() {
        return app.would(format!("write {}", file.display()));
    }
    // A collector never reads half of it.
    files::replace(file, |new| std::fs::write(new, text)).map_err(|cause| {
        let fault = Fault::new(Exit::Failed, "MetricsNotWritten", format!("cannot write {}", file.display()))
            .hint("name a file in the folder that the textfile collector reads, which must exist");
        anyhow::Error::new(cause).context(fault)
    })?;
    app.done(false, format!("wrote {}", file.display()))
}

/// Collectors read only files of this name.
pub(super) fn check_name(file: &Path) -> Result<()> {
    if file.extension().is_some_and(|ending| ending == "prom") {
        return Ok(());
    }
    let what = format!("{} does not end in .prom, and a textfile collector reads no other file", file.display());
    Err(Fault::new(Exit::Usage, "Usage", what).hint("name it calicoctl-win.prom").into())
}

/// The newest run that has ended.
fn last_run(node: &dyn Node) -> Result<Option<LastRun>> {
    let mut all = records::all(node).context("read the records of runs")?;
    all.retain(|record| record["result"].is_object());
    all.sort_by_key(|record| record["run"].as_str().unwrap_or_default().to_owned());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(all.pop().map(|record| LastRun {
        command: text(&record["command"]),
        result: text(&record["result"]["exit_name"]),
        success: record["result"]["success"] == true,
        started: record["since"].as_str().and_then(|at| at.parse().ok()),
        duration_ms: record["result"]["duration_ms"].as_u64(),
    }))
}
