//! How a run ends, once: with its own result, or by Ctrl-C while no step is being taken. Either way there is a result
//! on the screen, in the log and in `last-run.json`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::options::{ExitCodes, Global};
use super::{ctrl_c, event_log, records};
use crate::apply::cancel::{self, Asked};
use crate::fault::{Exit, Fault};
use crate::report::document::{RunResult, envelope, millis};
use crate::report::log::Log;
use crate::report::reporter::{self, Reporter, Stream, Style};

/// What is known of the run, for Ctrl-C, which ends it from another thread.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    style: Style,
    exit_codes: ExitCodes,
    /// Nothing about a sandbox is written to this machine's Event Log.
    sandboxed: bool,
    run: String,
    began: Instant,
    /// The output so far.
    stream: Arc<Stream>,
    changed: Arc<AtomicBool>,
    /// The verb, once it has the node to change it.
    pub changing: Option<&'static str>,
    /// What is recorded of the run besides its result.
    pub note: Value,
    /// The folder for `last-run.json`, once a changing verb has the node.
    pub state: Option<PathBuf>,
    pub log: Option<PathBuf>,
}

static RECORD: Mutex<Option<Record>> = Mutex::new(None);

impl Record {
    pub fn new(global: &Global, reporter: &Reporter, changed: &Arc<AtomicBool>) -> Self {
        Self {
            style: global.style(),
            exit_codes: global.exit_codes,
            sandboxed: global.sandbox.is_some(),
            run: reporter.run().to_owned(),
            began: Instant::now(),
            stream: reporter.stream(),
            changed: Arc::clone(changed),
            changing: None,
            note: Value::Null,
            state: None,
            log: None,
        }
    }

    /// The result of a run that Ctrl-C ended.
    fn cancelled(&self, asked: Asked) -> RunResult {
        let changed = self.changed.load(Ordering::SeqCst);
        let (what, hint) = match asked {
            Asked::Again if self.has_journal() => (
                "stopped at once by Ctrl-C, in the middle of a step",
                "finish it with: calicoctl-win resume, or undo it with: calicoctl-win resume --undo",
            ),
            Asked::Again => {
                ("stopped at once by Ctrl-C", "see what stands: calicoctl-win status, and kubectl get node")
            }
            _ => ("stopped by Ctrl-C", "run the command again"),
        };
        let error = Fault::new(Exit::Cancelled, "RunCancelled", what).hint(hint);
        let mut result = RunResult::failed(&error.into());
        result.run = Some(self.run.clone());
        result.duration_ms = millis(self.began.elapsed());
        result.changed = changed;
        result.log = self.log.as_ref().map(|log| log.display().to_string());
        if let Some(failure) = &mut result.error {
            failure.state = match (asked, changed) {
                (Asked::Again, _) => "calicoctl-win status shows how far it came",
                (_, true) => "some of it was done: calicoctl-win status shows what stands now",
                (_, false) => "nothing was changed",
            }
            .into();
        }
        result
    }

    /// Whether there is a run to resume.
    fn has_journal(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.join("journal.jsonl").exists())
    }

    fn end_by_ctrl_c(&self, asked: Asked) -> i32 {
        let mut result = self.cancelled(asked);
        if let Some(state) = &self.state {
            // The process ends now: an error of the disk cannot be reported.
            let _refused = keep(state, &self.note, &result);
        }
        if let (Some(command), false) = (self.changing, self.sandboxed) {
            event_log::write(command, &result);
        }
        let mut reporter = Reporter::continued(self.style, &self.run, &self.stream);
        reporter.log = self.log.as_ref().and_then(|log| Log::open(log).ok());
        let code = self.exit_codes.code(&result);
        result.exit_code = code;
        reporter.finish(&result);
        code
    }
}

/// Handles Ctrl-C from here on: during a change the run stops after the current step, else the process ends. A second
/// Ctrl-C ends it in any case.
///
/// # Errors
/// When the system does not install the handler.
pub(crate) fn listen(record: Record) -> Result<()> {
    if held().replace(record).is_some() {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        if !ctrl_c::pass_on() {
            on_ctrl_c();
        }
    })
    .context("listen for Ctrl-C")
}

/// What Ctrl-C does to this run.
pub(crate) fn on_ctrl_c() {
    match cancel::ask() {
        Asked::Stops => {
            let journal = held().as_ref().is_some_and(Record::has_journal);
            let then = if journal { "; calicoctl-win resume finishes it then" } else { "" };
            let text = format!("\nStopping after this step. Press Ctrl-C again to stop now{then}.\n");
            let _session_may_be_gone = std::io::stderr().write_all(text.as_bytes());
        }
        asked => {
            let Some(record) = held().clone() else { process::exit(Exit::Cancelled.code()) };
            // Otherwise the run is reporting its own end at this moment.
            if reporter::ends_here() {
                process::exit(record.end_by_ctrl_c(asked));
            }
        }
    }
}

/// Updates what is known of the run.
pub(crate) fn note(change: impl FnOnce(&mut Record)) {
    if let Some(record) = held().as_mut() {
        change(record);
    }
}

fn held() -> std::sync::MutexGuard<'static, Option<Record>> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims the right to report how the run ended. If Ctrl-C has it, the process ends soon, and this never returns.
pub(crate) fn begin() {
    if !reporter::ends_here() {
        loop {
            thread::park();
        }
    }
}

/// Writes `state\last-run.json`, for provisioners that lose exit code and output; and the same by the run's name.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn keep(state: &Path, note: &Value, result: &RunResult) -> Result<()> {
    let document = envelope("RunResult", result);
    let folder = state.join("state");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("last-run.json"), document.to_string()))
        .context("write last-run.json")?;
    let run = note["run"].as_str().unwrap_or_default();
    records::keep(&folder.join("runs").join(format!("{run}.json")), note, &document).context("keep the run's result")
}

/// Logs what could not be written.
pub(crate) fn told(log: &mut Option<Log>, kept: Result<()>) {
    if let (Err(error), Some(log)) = (kept, log) {
        log.line(Timestamp::now(), "WARN", &format!("{error:#}"));
    }
}
