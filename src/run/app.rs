//! A run's own side: its options, the screen, its questions, and what it has done so far.

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use super::connector::Connector;
use super::ending::{self, Record};
use super::options::Global;
use super::sandbox_env::SandboxEnv;
use super::stdin::Stdin;
use super::{Ending, ctrl_c, records};
use crate::apply::lock::Lock;
use crate::apply::steps::{GONE_WITH_REBOOT, STAYS_CORDONED};
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR};
use crate::plan::show::Plan;
use crate::report::document::{RunResult, envelope};
use crate::report::event::Event;
use crate::report::reporter::Reporter;
use crate::values::WinPath;

pub(crate) struct App {
    pub global: Global,
    /// The command line of this run.
    pub args: Vec<OsString>,
    pub stdin: Rc<Stdin>,
    pub run: String,
    pub reporter: Reporter,
    pub connector: Connector,
    /// Held by a run that changes the node, until it has written down how it ended.
    pub lock: Option<Lock>,
    record: Arc<Mutex<Record>>,
}

/// Returns a name for a run that sorts by time: `20261121T080512-0042f1`.
pub(crate) fn run_id() -> String {
    format!("{}-{:06x}", Timestamp::now().strftime("%Y%m%dT%H%M%S"), std::process::id())
}

impl App {
    pub fn new(global: Global, reporter: Reporter, args: Vec<OsString>) -> Self {
        let record = Record::new(&global, &reporter);
        let asks = !global.no_input && std::io::stdin().is_terminal();
        let connector = Connector { changed: Arc::clone(&record.changed), asks, ..Connector::default() };
        let run = reporter.run().to_owned();
        let stdin = Rc::default();
        Self { global, args, stdin, run, reporter, connector, lock: None, record: Arc::new(Mutex::new(record)) }
    }

    /// This command line, for a process that carries it out as a run of this name.
    ///
    /// # Errors
    /// When our own executable is not found.
    pub fn again(&self, run: &str) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("find our own executable")?);
        command.args(self.args.iter().skip(1)).arg("--detached-run").arg(run);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    /// What the run has done so far.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with a result also for a defect of this program.
    pub fn report_panics(&self) {
        ending::report_panics(&self.record);
    }

    /// Handles Ctrl-C from here on.
    ///
    /// # Errors
    /// When the system does not install the handler; when the process that stays with this run has ended.
    pub fn listen(&mut self) -> Result<()> {
        ending::listen(&self.record)?;
        if self.global.detached_run.is_some() {
            if self.global.confirmed.is_some() {
                let taken = Stdin::take_over().context("read what the session has on stdin")?;
                self.stdin = Rc::new(taken);
            }
            ctrl_c::hear(ending::on_ctrl_c);
        }
        Ok(())
    }

    /// The folder with what was downloaded.
    pub fn cache_dir(&self, node: &dyn Node) -> PathBuf {
        match &self.global.sandbox {
            Some(dir) => dir.join("cache"),
            None => node.disk(&WinPath::known(STATE_DIR).join("cache")),
        }
    }

    /// Opens the node: the sandbox, or this machine.
    pub fn node(&mut self) -> Result<Box<dyn Node>> {
        let mut node = match self.global.sandbox.clone() {
            Some(dir) => {
                let (node, env) = SandboxEnv::open(dir, &self.global.sandbox_fault)?;
                self.connector.env = Some(env);
                node
            }
            None if self.global.sandbox_fault.iter().any(|fault| !fault.is_empty()) => {
                return Err(Fault::new(Exit::Usage, "SandboxFaultInvalid", "a sandbox fault without a sandbox")
                    .hint("add --sandbox DIR, or remove --sandbox-fault and CALICO_WIN_SANDBOX_FAULT")
                    .into());
            }
            None => crate::node::machine()?,
        };
        node.watch(Arc::clone(&self.connector.changed));
        Ok(node)
    }

    pub fn event(&mut self, event: &Event) {
        if let Some(env) = self.connector.env.as_ref().map(Rc::clone) {
            env.said().iter().for_each(|said| self.reporter.agent_event(said));
        }
        match event {
            // A sandbox is only found with its folder.
            Event::ConnectivityNotice { message, .. } => {
                let resume_with = self.command("status --wait");
                let message = message.clone();
                return self.reporter.event(&Event::ConnectivityNotice { message, resume_with });
            }
            Event::Warning { id, message } => {
                let mut record = self.record();
                record.needs_reboot |= *id == GONE_WITH_REBOOT;
                record.stays_cordoned |= *id == STAYS_CORDONED;
                record.warnings.push(format!("{id}: {message}"));
            }
            Event::PodEvicted { pod } => drop(self.record().evicted.insert(pod.clone())),
            _ => {}
        }
        self.reporter.event(event);
    }

    /// Warns, each message only once: a command that waits checks repeatedly.
    pub fn warn(&mut self, id: &'static str, message: impl Into<String>) {
        let message = message.into();
        let known = self.record().warnings.contains(&format!("{id}: {message}"));
        if !known {
            self.event(&Event::Warning { id, message });
        }
    }

    /// Does work for its result alone: nothing of it is shown, and a failure is none of this run's. Returns its
    /// warnings, too.
    pub fn unheard<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> (T, Vec<String>) {
        let (warnings, phase) = (std::mem::take(&mut self.record().warnings), self.reporter.failed_phase);
        self.reporter.silence();
        let done = work(self);
        self.reporter.speak();
        self.reporter.failed_phase = phase;
        let its = std::mem::replace(&mut self.record().warnings, warnings);
        (done, its)
    }

    /// Shows some work that changes nothing as a phase.
    pub fn phase<T>(&mut self, phase: &'static str, work: impl FnOnce(&mut Self) -> Result<(T, String)>) -> Result<T> {
        self.phase_of_change(phase, |app| work(app).map(|(value, message)| (value, message, false)))
    }

    /// Shows some work as a phase; its result also says whether it changed something.
    pub fn phase_of_change<T>(
        &mut self,
        phase: &'static str,
        work: impl FnOnce(&mut Self) -> Result<(T, String, bool)>,
    ) -> Result<T> {
        let begun = Instant::now();
        self.event(&Event::PhaseStarted { phase, place: None });
        match work(self) {
            Ok((value, message, changed)) => {
                self.event(&Event::PhaseCompleted { phase, message, changed, took: begun.elapsed() });
                Ok(value)
            }
            Err(error) => {
                self.event(&Event::PhaseFailed { phase, message: format!("{error:#}") });
                Err(error)
            }
        }
    }

    /// Emits a plan as events.
    pub fn announce(&mut self, plan: &Plan) {
        for change in &plan.changes {
            self.event(&Event::Planned(Box::new(change.clone())));
        }
        self.event(&Event::PlanMade { counts: plan.counts(), disruption: plan.disruption });
    }

    /// Asks before something is changed; with a word that must be typed, before something that cannot be undone.
    pub fn confirm(&mut self, what: &str, question: &str, word: Option<&str>) -> Result<()> {
        if self.global.yes {
            return Ok(());
        }
        let is_asked = std::io::stdin().is_terminal() && self.reporter.is_text();
        if self.global.no_input || !is_asked {
            let what = format!("this changes {what}, which must be confirmed");
            return Err(Fault::new(Exit::Usage, "ConfirmationNeeded", what)
                .hint("run it again with --yes, or look first with --dry-run")
                .into());
        }
        match word {
            Some(word) => self.reporter.say(&format!("{question} Type {word} to continue:")),
            None => self.reporter.say(&format!("{question} [y/N]")),
        }
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).context("read the answer")?;
        let answer = answer.trim();
        if word.map_or_else(|| ["y", "yes"].contains(&&*answer.to_lowercase()), |word| answer == word) {
            return Ok(());
        }
        Err(Fault::new(Exit::Cancelled, "NotConfirmed", "not confirmed").into())
    }

    /// Ends a run that looked, or had only this to do.
    pub fn done(&mut self, changed: bool, msg: String) -> Result<Ending> {
        self.reporter.tell(&msg);
        Ending::result(RunResult::new(Exit::Ok, changed, msg))
    }

    /// Ends a dry run that has no plan to show.
    pub fn would(&mut self, what: impl std::fmt::Display) -> Result<Ending> {
        let msg = format!("dry run: would {what}");
        self.reporter.tell(&msg);
        Ending::result(RunResult::looked(true, msg))
    }

    /// Returns a command to show, with what this run was told of sandbox and config.
    pub fn command(&self, words: &str) -> String {
        self.record().command(words)
    }

    /// Ends the output and returns the process's exit code.
    pub fn close(mut self, ending: Ending) -> i32 {
        ending::begin();
        let quiet = matches!(ending, Ending::Quiet);
        let (mut result, shown) = match ending {
            Ending::Quiet => (RunResult::new(Exit::Ok, false, "shown"), true),
            Ending::Told(code) => return code,
            Ending::Result(result) => (*result, false),
            Ending::Shown(result) => (*result, true),
        };
        let record = self.record().clone();
        record.close(&mut result, self.reporter.failed_phase, &mut self.reporter.log);
        self.lock = None;
        record.tell_event_log(&result);
        // A detached run that did not get the node: its result is looked for under its name all the same.
        if let (Some(run), None) = (self.global.detached_run.clone(), &record.state)
            && let Ok(node) = self.node()
            && let Ok(Some(note)) = records::find(&*node, &run)
        {
            let _nobody_hears = records::keep(&records::kept(&*node, &run), &note, &envelope(&result));
        }
        let code = record.number(&mut result);
        if shown {
            self.reporter.close(&result, !quiet);
        } else {
            self.reporter.finish(&result);
        }
        code
    }
}
