//! How a run ends, once: with its own result, or by Ctrl-C while no step is being taken. Either way there is a result
//! on the screen, in the log, in `last-run.json` and in the Windows Event Log.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow};
use jiff::Timestamp;
use serde_json::Value;

use super::options::Global;
use super::{class, ctrl_c, event_log, records};
use crate::apply::cancel::{self, Asked};
use crate::fault::{Exit, Fault};
use crate::fleet::TriedObject;
use crate::report::document::{RunResult, Status, envelope, millis};
use crate::report::log::Log;
use crate::report::reporter::{self, Reporter, Stream};
use crate::values::count;

/// How many evicted pods an error names.
const NAMED: usize = 5;

/// What a run has done so far: all that its end tells, also if Ctrl-C ends it from another thread.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    global: Global,
    run: String,
    began: Instant,
    /// The output so far.
    stream: Arc<Stream>,
    /// Something on the node or in the cluster was changed, also if it was undone: set in the one place that every
    /// change passes.
    pub changed: Arc<AtomicBool>,
    /// The verb, once it has the node to change it.
    pub changing: Option<&'static str>,
    /// The verb that shows what the run did.
    pub looks: &'static str,
    /// What is recorded of the run besides its result.
    pub note: Value,
    /// The folder for `last-run.json`, once a changing verb has the node.
    pub state: Option<PathBuf>,
    pub log: Option<PathBuf>,
    /// How far the engine came.
    pub outcome: Outcome,
    /// The generation to report if the run fails: the one that was current when it began, unless the run sets another.
    pub generation: Option<u32>,
    /// How long Calico's services were down.
    pub downtime: Duration,
    /// The pods that were evicted.
    pub evicted: BTreeSet<String>,
    pub warnings: Vec<String>,
    /// Something is removed only when Windows starts next.
    pub needs_reboot: bool,
    /// The Node was cordoned before the run, which leaves it so.
    pub stays_cordoned: bool,
    /// What was changed, for a verb that changes no node.
    pub did: Option<String>,
    /// What the API server would do with each object, after its dry run.
    pub tried: Vec<TriedObject>,
}

/// What the engine did with the change of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was not called, or had not begun.
    Untouched,
    /// The journal exists: the run can be resumed or undone.
    HalfWay,
    /// Ctrl-C ended it in the middle of a step.
    Stopped,
    Undone,
    /// With the current generation, if there is one.
    Done(Option<u32>),
}

static RECORD: Mutex<Option<Arc<Mutex<Record>>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    pub fn new(global: &Global, reporter: &Reporter) -> Self {
        Self {
            global: global.clone(),
            run: reporter.run().to_owned(),
            began: Instant::now(),
            stream: reporter.stream(),
            changed: Arc::default(),
            changing: None,
            looks: "status",
            note: Value::Null,
            state: None,
            log: None,
            outcome: Outcome::Untouched,
            generation: None,
            downtime: Duration::ZERO,
            evicted: BTreeSet::new(),
            warnings: Vec::new(),
            needs_reboot: false,
            stays_cordoned: false,
            did: None,
            tried: Vec::new(),
        }
    }

    /// Completes the result, and keeps it where later processes and people look for it.
    pub fn close(&self, result: &mut RunResult, failed_phase: Option<&str>, log: &mut Option<Log>) {
        let (exit, changed) = (class(result), self.outcome == Outcome::HalfWay || self.changed.load(Ordering::SeqCst));
        result.duration_ms = millis(self.began.elapsed());
        result.run = Some(self.run.clone());
        result.warnings.clone_from(&self.warnings);
        result.objects.clone_from(&self.tried);
        result.evicted = self.evicted.iter().cloned().collect();
        result.log = self.log.as_ref().map(|log| log.display().to_string());
        if changed && result.status == Status::NoChanges {
            result.status = Status::Succeeded;
        }
        result.changed |= changed;
        if result.status == Status::ChangesPending && self.global.detailed_exitcode {
            result.exit_code = Exit::ChangesPending.code();
            result.exit_name = Exit::ChangesPending.name().into();
        }
        if let Some(failure) = &mut result.error {
            failure.state = self.global.repeated_in(&self.state_after(exit, changed));
            // There is nothing to resume.
            if failure.id == "RunCancelled" && matches!(self.outcome, Outcome::Done(_)) {
                failure.hint = Some("see how the node is: calicoctl-win status".into());
            }
            failure.hint = failure.hint.take().map(|hint| self.global.repeated_in(&hint));
            result.failed_phase = result.failed_phase.take().or(failed_phase.map(str::to_owned));
            result.generation = self.generation;
            result.downtime_ms = millis(self.downtime);
        }
        if let (Err(error), Some(log)) = (self.keep(result), log) {
            log.line(Timestamp::now(), "WARN", &format!("{error:#}"));
        }
    }

    /// Writes how a change ended to the Windows Event Log; nothing about a sandbox.
    pub fn tell_event_log(&self, result: &RunResult) {
        if let (Some(command), None) = (self.changing, &self.global.sandbox) {
            event_log::write(command, result);
        }
    }

    /// Gives the result the number that this process exits with, and returns it: what was kept has the class.
    pub fn number(&self, result: &mut RunResult) -> i32 {
        let retryable = result.error.as_ref().is_some_and(|failure| failure.retryable);
        result.exit_code = self.global.exit_codes.number(class(result), retryable);
        result.exit_code
    }

    /// Writes `state\last-run.json`, for provisioners that lose exit code and output; and the same by the run's name.
    fn keep(&self, result: &RunResult) -> Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        let document = envelope(result);
        let folder = state.join("state");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join("last-run.json"), document.to_string()))
            .context("write last-run.json")?;
        let file = folder.join("runs").join(format!("{}.json", self.run));
        records::keep(&file, &self.note, &document).context("keep the run's result")
    }

    /// Describes the state after a failure, and what was changed before it.
    fn state_after(&self, exit: Exit, changed: bool) -> String {
        let mut state = match self.outcome {
            Outcome::Undone => "the node is as it was before; the change was rolled back".to_owned(),
            Outcome::HalfWay => "partially changed; the journal can resume or undo it".into(),
            Outcome::Stopped => "`calicoctl-win status` shows how far it came".into(),
            Outcome::Done(Some(generation)) => {
                format!("the change is complete and generation {generation} is current; what failed came after it")
            }
            Outcome::Done(None) => "Calico is removed from this node; what failed came after it".into(),
            Outcome::Untouched if changed && exit == Exit::DrainBlocked => {
                "this machine was not changed, and its Node is schedulable as before".into()
            }
            Outcome::Untouched if changed => match &self.did {
                Some(did) => did.clone(),
                None => format!("some of it was done: `calicoctl-win {}` shows the current state", self.looks),
            },
            Outcome::Untouched => "nothing was changed".into(),
        };
        if !self.downtime.is_zero() && self.generation.is_some() {
            state.push_str("; Calico's services were down meanwhile");
        }
        if !self.evicted.is_empty() {
            let named: Vec<&str> = self.evicted.iter().take(NAMED).map(String::as_str).collect();
            let more = self.evicted.len() - named.len();
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let were = if self.evicted.len() == 1 { "was" } else { "were" };
            let pods = count(self.evicted.len(), "pod");
            state.push_str(&format!("; {pods} {were} evicted: {}{more}", named.join(", ")));
        }
        state
    }

    /// Returns a command to show, with what this run was told of sandbox and config.
    pub fn command(&self, words: &str) -> String {
        self.global.repeated_in(&format!("calicoctl-win {words}"))
    }

    /// Whether there is a run to resume.
    fn has_journal(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.join("journal.jsonl").exists())
    }

    /// Ends the run for a panic. Returns the exit code.
    fn end_by_panic(mut self, why: String) -> i32 {
        const REPORT: &str = "report it with the file that this makes: calicoctl-win diagnose";
        let what = "this program has a defect and cannot continue";
        let fault = match self.has_journal() {
            true => {
                self.outcome = Outcome::HalfWay;
                let hint = format!(
                    "undo the change with: calicoctl-win resume --undo\nor finish it with: calicoctl-win resume\n{REPORT}"
                );
                Fault::new(Exit::FailedIncomplete, "ProgramDefect", what).hint(hint)
            }
            false => Fault::new(Exit::Failed, "ProgramDefect", what).hint(REPORT),
        };
        self.end(&anyhow!(why).context(fault))
    }

    /// Ends the run for Ctrl-C. Returns the exit code.
    fn end_by_ctrl_c(mut self, asked: Asked) -> i32 {
        let (what, hint) = match asked {
            Asked::Again if self.has_journal() => (
                "stopped at once by Ctrl-C, in the middle of a step",
                "finish it with: calicoctl-win resume\nor undo it with: calicoctl-win resume --undo",
            ),
            Asked::Again => {
                ("stopped at once by Ctrl-C", "see the current state: calicoctl-win status\nkubectl get node")
            }
            _ => ("stopped by Ctrl-C", "run the command again"),
        };
        if asked == Asked::Again {
            self.outcome = Outcome::Stopped;
        }
        self.end(&Fault::new(Exit::Cancelled, "RunCancelled", what).hint(hint).into())
    }

    /// Reports the end from another thread than the run's.
    fn end(self, error: &Error) -> i32 {
        let mut result = RunResult::failed(error);
        let mut reporter = Reporter::continued(self.global.style(), &self.run, &self.stream);
        reporter.log = self.log.as_ref().and_then(|log| Log::open(log).ok());
        self.close(&mut result, None, &mut reporter.log);
        self.tell_event_log(&result);
        let code = self.number(&mut result);
        reporter.finish(&result);
        code
    }
}

/// Handles Ctrl-C from here on: during a change the run stops after the current step, else the process ends. A second
/// Ctrl-C ends it in any case.
///
/// # Errors
/// When the system does not install the handler.
pub(crate) fn listen(record: &Arc<Mutex<Record>>) -> Result<()> {
    if locked(&RECORD).replace(Arc::clone(record)).is_some() {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        if !ctrl_c::pass_on() {
            on_ctrl_c();
        }
    })
    .context("listen for Ctrl-C")
}

/// From here on a panic, in any thread, ends the process with a result. The released program would end without one.
pub(crate) fn report_panics(record: &Arc<Mutex<Record>>) {
    let (record, first) = (Arc::clone(record), locked(record).clone());
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
        let why = format!("{place}: {}", panic.payload_as_str().unwrap_or("panic"));
        if !reporter::ends_here() {
            // It happened while the end was reported.
            let _nobody_may_read = std::io::stderr().write_all(format!("{why}\n").as_bytes());
            process::exit(Exit::Failed.code());
        }
        let record = match record.try_lock() {
            Ok(record) => record.clone(),
            Err(TryLockError::Poisoned(record)) => record.into_inner().clone(),
            // This thread may have it.
            Err(TryLockError::WouldBlock) => first.clone(),
        };
        process::exit(record.end_by_panic(why));
    }));
}

/// What Ctrl-C does to this run.
pub(crate) fn on_ctrl_c() {
    let record = locked(&RECORD).as_ref().map(|record| locked(record).clone());
    match cancel::ask() {
        Asked::Stops => {
            let record = record.filter(Record::has_journal);
            let then =
                record.map_or_else(String::new, |record| format!("; {} finishes it then", record.command("resume")));
            let text = format!("\nStopping after this step. Press Ctrl-C again to stop now{then}.\n");
            let _session_may_be_gone = std::io::stderr().write_all(text.as_bytes());
        }
        asked => {
            let Some(record) = record else { process::exit(Exit::Cancelled.code()) };
            // Otherwise the run is reporting its own end at this moment.
            if reporter::ends_here() {
                process::exit(record.end_by_ctrl_c(asked));
            }
        }
    }
}

/// Claims the right to report how the run ended. If Ctrl-C has it, the process ends soon, and this never returns.
pub(crate) fn begin() {
    if !reporter::ends_here() {
        loop {
            thread::park();
        }
    }
}
