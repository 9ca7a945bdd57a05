//! The context of every verb: the global options, the node, the cluster, the screen.

mod config;
pub(crate) mod reach;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::ctrl_c;
use super::ending::{self, Record};
use super::options::{AtBoot as AtBootFlag, Global, Source};
use super::sandbox_env::SandboxEnv;
use super::{Ending, access, class, event_log, records, verb};
use crate::apply::journal::{AtBoot, Terms};
use crate::apply::lock::{self, Holder, Lock};
use crate::apply::renewal;
use crate::apply::standing::Standing;
use crate::apply::steps::GONE_WITH_REBOOT;
use crate::calico::services::FOLDER as INSTALL_DIR;
use crate::cluster::DrainOptions;
use crate::cluster::lease::Validity;
use crate::config::Layered;
use crate::config::types::Wait;
use crate::facts::{Adapter, NodeFacts, Part};
use crate::fault::{Exit, Fault};
use crate::item::Service;
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::faults::SandboxFaults;
use crate::node::sandbox::model::Model;
use crate::node::survey::Folders;
use crate::node::{Node, STATE_DIR, survey};
use crate::plan::show::Plan;
use crate::platform::{self, metadata::Metadata};
use crate::preflight;
use crate::report::document::{RunResult, Status, exit_of};
use crate::report::event::Event;
use crate::report::log::Log;
use crate::report::reporter::Reporter;
use crate::settings::{self, Connection, Reboot};
use crate::values::WinPath;
use crate::version::CalicoVersion;

pub(crate) struct App {
    pub global: Global,
    pub reporter: Reporter,
    pub run: String,
    args: Vec<OsString>,
    env: Option<Rc<SandboxEnv>>,
    warnings: Vec<String>,
    /// The generation to report if the run fails: the one that was current when it began, unless the run sets another.
    pub generation: Option<u32>,
    /// The sources of this run's config besides the machine's file, the command line and the environment.
    ground: config::Ground,
    /// The config, once it was read.
    config: OnceCell<Rc<Layered>>,
    /// How far the engine came.
    pub outcome: Outcome,
    /// Something on the node or in the cluster was changed, also if it was undone: set in the one place that every
    /// change passes.
    changed: Arc<AtomicBool>,
    /// Something is removed only when Windows starts next.
    pub needs_reboot: bool,
    /// The pods that were moved away.
    moved: BTreeSet<String>,
    /// How long the Lease on the Node is still valid, while this run has it.
    pub lease: Option<Validity>,
    /// How long Calico's services were down in a run that fails.
    pub downtime: Duration,
    /// The verb, once it has the node to change it.
    changing: Option<&'static str>,
    /// The machine's id, and the id of its current boot.
    pub machine: Option<String>,
    boot: Option<String>,
    /// What is recorded of this run besides its result.
    note: Value,
    /// The folder for `last-run.json`, once a changing verb has the node.
    state: Option<PathBuf>,
}

/// What the engine did with the change of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was not called, or had not begun.
    Untouched,
    /// The journal exists: the run can be resumed or undone.
    HalfWay,
    Undone,
    /// With the current generation, if there is one.
    Done(Option<u32>),
}

/// Returns a name for a run that sorts by time: `20261121T080512-0042f1`.
pub(crate) fn run_id() -> String {
    format!("{}-{:06x}", Timestamp::now().strftime("%Y%m%dT%H%M%S"), std::process::id())
}

/// The node as a verb finds it.
pub struct Opened {
    pub node: Box<dyn Node>,
    /// None in a dry run.
    pub lock: Option<Lock>,
    /// Its generations, if they can be read.
    pub standing: Result<Standing>,
}

impl App {
    pub fn new(global: Global, reporter: Reporter, args: Vec<OsString>) -> Self {
        let run = reporter.run().to_owned();
        Self {
            global,
            reporter,
            run,
            args,
            env: None,
            warnings: Vec::new(),
            generation: None,
            ground: config::Ground::default(),
            config: OnceCell::new(),
            outcome: Outcome::Untouched,
            changed: Arc::default(),
            needs_reboot: false,
            moved: BTreeSet::new(),
            lease: None,
            downtime: Duration::ZERO,
            changing: None,
            machine: None,
            boot: None,
            note: Value::Null,
            state: None,
        }
    }

    /// Handles Ctrl-C from here on.
    ///
    /// # Errors
    /// When the system does not install the handler.
    pub fn listen(&self) -> Result<()> {
        ending::listen(Record::new(&self.global, &self.reporter, &self.changed))?;
        if self.global.detached_run.is_some() {
            ctrl_c::hear(ending::on_ctrl_c);
        }
        Ok(())
    }

    /// Opens the node: the sandbox, or this machine.
    pub fn node(&mut self) -> Result<Box<dyn Node>> {
        let Some(dir) = self.global.sandbox.clone() else {
            if self.global.sandbox_fault.iter().any(|fault| !fault.is_empty()) {
                return Err(Fault::new(Exit::Usage, "SandboxFaultInvalid", "a sandbox fault without a sandbox")
                    .hint("add --sandbox DIR, or remove --sandbox-fault and CALICO_WIN_SANDBOX_FAULT")
                    .into());
            }
            let mut node = crate::node::machine()?;
            node.watch(Arc::clone(&self.changed));
            return Ok(node);
        };
        let node = SandboxNode::open(&dir).with_context(|| format!("open the sandbox {}", dir.display()))?;
        let given = self.global.sandbox_fault.iter().cloned().chain([node.listed_faults()]);
        let faults = SandboxFaults::parse(&given.collect::<Vec<_>>().join(";"))?;
        let host_name = node.facts().context("measure the node")?.host_name;
        let env = Rc::new(SandboxEnv::new(dir, host_name, node.model()?, &faults)?);
        self.env = Some(Rc::clone(&env));
        let played = Rc::clone(&env);
        let kubelet = move |model: &mut Model, running: &mut BTreeSet<String>, published| {
            played.play_kubelet(model, running, published)
        };
        let agents = Rc::clone(&env);
        let retry = move |node: &mut SandboxNode| agents.retry_startup(node);
        let hook = move |node: &mut SandboxNode, name: &str, service: &Service| env.run_service(node, name, service);
        let node = node.with_faults(faults.node).with_quirks(faults.windows).with_start_hook(Box::new(hook));
        let mut node = Box::new(node.with_kubelet(Box::new(kubelet)).with_pause_hook(Box::new(retry)));
        node.watch(Arc::clone(&self.changed));
        Ok(node)
    }

    /// Opens the node for a verb that changes it: elevated, logged, locked. Also returns its generations, if they can
    /// be read.
    pub fn node_to_change(&mut self, command: &'static str) -> Result<(Box<dyn Node>, Lock, Result<Standing>)> {
        let mut node = self.node()?;
        let facts = node.facts().context("measure the node")?;
        if !facts.elevated {
            return Err(Fault::new(Exit::NotElevated, "NotElevated", "this session has no administrator rights")
                .hint("open PowerShell with Run as administrator and run the command again")
                .into());
        }
        (self.machine, self.boot) = (facts.machine_id.clone(), Some(facts.boot_id.clone()));
        let named = self.global.log_file.as_deref().map(open_named).transpose()?;
        let holder =
            Holder { run: self.run.clone(), command: command.into(), pid: std::process::id(), since: Timestamp::now() };
        let opened = secure(&mut *node, [STATE_DIR, INSTALL_DIR].map(WinPath::known))?;
        let lock = self.lock(&mut *node, &holder)?;
        // If the folder did not exist before, it was created for the lock.
        still_safe(&mut *node)?;
        verb::heed_trial(&*node, command)?;
        let standing = match Standing::load(&*node) {
            Ok(standing) if command != verb::RESUME.command => {
                Ok(renewal::finish_interrupted(&mut *node, standing, &mut |event| self.event(&event))?)
            }
            loaded => loaded,
        };
        let state = node.disk(&WinPath::known(STATE_DIR));
        let usual = || Log::open(&state.join("logs").join(format!("{}.log", self.run)));
        let mut log = named.map_or_else(usual, Ok)?;
        let words = without_values(&self.args).join(" ");
        let line = format!("calicoctl-win {} run {}: {words}", env!("CARGO_PKG_VERSION"), self.run);
        log.line(Timestamp::now(), "INFO", &line);
        self.note = records::record(&self.run, command);
        ending::note(|record| {
            record.changing = Some(command);
            record.note = self.note.clone();
            record.state = Some(state.clone());
            record.log = Some(log.path.clone());
        });
        self.reporter.log = Some(log);
        self.state = Some(state);
        self.changing = Some(command);
        let generation = standing.as_ref().ok().and_then(|standing| Some(standing.receipt()?.generation));
        self.generation = generation;
        // For the whole run, whatever is installed at its end.
        if let Ok(standing) = &standing {
            self.reach_as_made(standing);
        }
        self.event(&Event::RunStarted { command, node: facts.host_name.clone(), generation });
        self.reporter.tell(&machine(&facts));
        self.made_safe(opened);
        Ok((node, lock, standing))
    }

    /// Opens the node for a verb that changes it; in a dry run without the lock, to look at it.
    ///
    /// # Errors
    /// As [`Self::node_to_change`].
    pub fn node_for(&mut self, command: &'static str) -> Result<Opened> {
        if self.global.dry_run {
            let node = self.node()?;
            let standing = Standing::load(&*node);
            return Ok(Opened { node, lock: None, standing });
        }
        let (node, lock, standing) = self.node_to_change(command)?;
        Ok(Opened { node, lock: Some(lock), standing })
    }

    /// Takes the lock; while another run has it, waits as long as the command line allows.
    fn lock(&mut self, node: &mut dyn Node, holder: &Holder) -> Result<Lock> {
        let begun = Instant::now();
        loop {
            let taken = Lock::take(node, holder);
            match &taken {
                Err(error) if exit_of(error) == Exit::Busy && self.waits_for_lock(&*node, begun)? => {}
                _ => return taken,
            }
        }
    }

    /// Waits a moment for the run that has the lock; returns false once the limit is reached.
    fn waits_for_lock(&mut self, node: &dyn Node, begun: Instant) -> Result<bool> {
        const LOOK: Duration = Duration::from_millis(250);
        let limit = self.global.wait_for_lock.as_ref().map_or(Duration::ZERO, Wait::length);
        let elapsed = begun.elapsed();
        if elapsed >= limit {
            return Ok(false);
        }
        let who =
            lock::holder(node).map_or_else(String::new, |holder| format!(": {} (run {})", holder.command, holder.run));
        self.event(&Event::Waiting { what: format!("the run in progress to end{who}"), elapsed, limit });
        std::thread::sleep(LOOK.min(limit - elapsed));
        Ok(true)
    }

    /// Reports which folders others could write to until now.
    pub fn made_safe(&mut self, folders: Vec<(WinPath, String)>) {
        for (folder, reason) in folders {
            self.warn("FolderMadeSafe", format!("{folder} is for administrators only now: {reason}"));
        }
    }

    /// Writes the log elsewhere from here on: the state folder is about to be removed.
    pub fn leave_state_folder(&mut self) {
        self.state = None;
        ending::note(|record| record.state = None);
        if self.global.log_file.is_none()
            && let Some(log) = self.reporter.log.take()
        {
            let kept = std::env::temp_dir().join(log.path.file_name().unwrap_or_default());
            if std::fs::copy(&log.path, &kept).is_ok() {
                self.reporter.log = Log::open(&kept).ok();
                ending::note(|record| record.log = Some(kept));
            }
        }
    }

    /// Measures the machine, and detects its platform.
    ///
    /// # Errors
    /// Fault `MachineFacts` if a value that matters could not be read.
    pub fn measure(&self, node: &dyn Node, layered: &Layered, standing: &Standing) -> Result<NodeFacts> {
        let facts = self.measure_for_checks(node, layered, standing.receipt().is_some())?;
        preflight::machine_read(&facts)?;
        Ok(facts)
    }

    /// The same for the checks, which report themselves what could not be read. `installed`: we have installed Calico.
    pub fn measure_for_checks(&self, node: &dyn Node, layered: &Layered, installed: bool) -> Result<NodeFacts> {
        let mut facts = node.facts().context("measure the node")?;
        let metadata = match &self.env {
            Some(env) => env.metadata()?,
            None => Metadata::link_local(),
        };
        facts.cloud = platform::detect(node, settings::provider(layered), &metadata)?;
        let run = settings::run(layered, Some(&facts));
        let settings::Folders { root, logs, cni_bin, cni_conf } = &run.folders;
        match survey::survey(node, &Folders { root, cni_conf, cni_bin, logs }, installed).context("look at the machine")
        {
            Ok(mut survey) => {
                if self.env.is_none() {
                    survey::of_this_machine(&mut survey);
                    let asked = run.remote_access.iter();
                    let ports: Vec<u16> = asked.flat_map(|access| access.ports().iter().copied()).collect();
                    let addresses: Vec<Ipv4Addr> =
                        facts.adapters.iter().filter_map(Adapter::reachable_address).collect();
                    survey::ask_ports(&mut survey, &addresses, &ports);
                }
                facts.survey = Some(survey);
            }
            Err(error) => facts.leave_out(Part::Survey, format!("{error:#}")),
        }
        Ok(facts)
    }

    /// Returns what the config says about restarts; the defaults if it cannot be read.
    pub fn reboot(&self, node: &dyn Node) -> Reboot {
        settings::run(&self.config(node, &Source::default()).unwrap_or_default(), None).reboot
    }

    /// Returns what to do with this run if Windows starts before it is over: from the command line, else from the
    /// config.
    pub fn at_boot(&self, node: &dyn Node) -> Option<AtBoot> {
        match self.global.at_boot {
            Some(AtBootFlag::Leave) => None,
            Some(AtBootFlag::Finish) => Some(AtBoot::Finish),
            Some(AtBootFlag::Undo) => Some(AtBoot::Undo),
            None => self.reboot(node).resume_on_boot.then_some(AtBoot::Finish),
        }
    }

    /// Returns the options of a run besides its target. `connection`: how the cluster is reached, if there is one.
    pub fn terms(&self, node: &dyn Node, drain: Option<&DrainOptions>, connection: Option<&Connection>) -> Terms {
        Terms {
            machine: self.machine.clone(),
            boot: self.boot.clone(),
            at_boot: self.at_boot(node),
            drain: drain.cloned(),
            access: connection.map(access::of).unwrap_or_default(),
            ..Terms::default()
        }
    }

    /// Returns the URL to download from; a sandbox replaces the name of its own source of releases.
    pub fn release_url(&self, url: &str, version: &CalicoVersion) -> Result<String> {
        match &self.env {
            Some(env) => env.release_url(url, version),
            None => Ok(url.to_owned()),
        }
    }

    pub fn event(&mut self, event: &Event) {
        for said in self.env.iter().flat_map(|env| env.said()).collect::<Vec<_>>() {
            self.reporter.agent_event(&said);
        }
        // A sandbox is only found with its folder.
        if let Event::ConnectivityNotice { message, .. } = event {
            let resume_with = self.command("status --wait");
            self.reporter.event(&Event::ConnectivityNotice { message: message.clone(), resume_with });
            return;
        }
        match event {
            Event::Warning { id, message } => {
                self.needs_reboot |= *id == GONE_WITH_REBOOT;
                self.warnings.push(format!("{id}: {message}"));
            }
            Event::PodEvicted { pod } | Event::PodGone { pod, .. } => drop(self.moved.insert(pod.clone())),
            _ => {}
        }
        self.reporter.event(event);
    }

    /// Marks that only files of the caller were written, and the node was not changed.
    pub fn nothing_changed(&self) {
        self.changed.store(false, Relaxed);
    }

    /// Shows a plan.
    pub fn tell_plan(&mut self, plan: &Plan) {
        let text = plan.text(self.global.verbose > 0);
        self.reporter.tell(&text);
    }

    /// Returns all warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Warns, each message only once: a command that waits checks repeatedly.
    pub fn warn(&mut self, id: &'static str, message: impl Into<String>) {
        let message = message.into();
        if !self.warnings.contains(&format!("{id}: {message}")) {
            self.event(&Event::Warning { id, message });
        }
    }

    /// Shows some work as a phase.
    pub fn phase<T>(&mut self, phase: &'static str, work: impl FnOnce(&mut Self) -> Result<(T, String)>) -> Result<T> {
        let begun = Instant::now();
        self.event(&Event::PhaseStarted { phase, place: None });
        match work(self) {
            Ok((value, message)) => {
                self.event(&Event::PhaseCompleted { phase, message, changed: false, took: begun.elapsed() });
                Ok(value)
            }
            Err(error) => {
                self.event(&Event::PhaseFailed { phase, message: format!("{error:#}") });
                Err(error)
            }
        }
    }

    /// Asks before something is changed.
    pub fn confirm(&mut self, question: &str) -> Result<()> {
        self.confirm_change("the node", question)
    }

    /// Asks before something other than the node is changed.
    pub fn confirm_change(&mut self, what: &str, question: &str) -> Result<()> {
        self.asked(what, &format!("{question} [y/N]"), |answer| matches!(answer.to_lowercase().as_str(), "y" | "yes"))
    }

    /// Asks the user to type a word before something that cannot be undone.
    pub fn confirm_by(&mut self, word: &str, question: &str) -> Result<()> {
        self.asked("the node", &format!("{question} Type {word} to go on:"), |answer| answer == word)
    }

    fn asked(&mut self, what: &str, question: &str, agrees: impl Fn(&str) -> bool) -> Result<()> {
        if self.global.yes {
            return Ok(());
        }
        if self.global.no_input || !std::io::stdin().is_terminal() {
            return Err(Fault::new(
                Exit::Usage,
                "ConfirmationNeeded",
                format!("this changes {what} and nobody is there to confirm it"),
            )
            .hint("run it again with --yes, or look first with --dry-run")
            .into());
        }
        self.reporter.say(question);
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).context("read the answer")?;
        if agrees(answer.trim()) {
            Ok(())
        } else {
            Err(Fault::new(Exit::Cancelled, "NotConfirmed", "not confirmed").into())
        }
    }

    /// Ends a dry run that has no plan to show.
    pub fn would(&mut self, what: impl std::fmt::Display) -> Result<Ending> {
        let msg = format!("dry run: would {what}");
        self.reporter.tell(&msg);
        Ending::result(RunResult::looked(true, msg))
    }

    /// Returns a command to show, with its sandbox.
    pub fn command(&self, words: &str) -> String {
        match &self.global.sandbox {
            Some(dir) => {
                let quote = if dir.to_string_lossy().contains(char::is_whitespace) { "\"" } else { "" };
                format!("calicoctl-win {words} --sandbox {quote}{}{quote}", dir.display())
            }
            None => format!("calicoctl-win {words}"),
        }
    }

    /// Ends the output and returns the process's exit code.
    pub fn close(mut self, ending: Ending, took: Duration) -> i32 {
        ending::begin();
        let (mut result, shown) = match ending {
            Ending::Quiet => return Exit::Ok.code(),
            Ending::Told(code) => return code,
            Ending::Result(result) => (*result, false),
            Ending::Shown(result) => (*result, true),
        };
        result.duration_ms = crate::report::document::millis(took);
        result.run = Some(self.run.clone());
        result.warnings = self.warnings();
        result.log = self.reporter.log.as_ref().map(|log| log.path.display().to_string());
        let changed = self.outcome == Outcome::HalfWay || self.changed.load(Relaxed);
        if changed && result.status == Status::NoChanges {
            result.status = Status::Succeeded;
        }
        result.changed |= changed;
        if result.status == Status::ChangesPending && self.global.detailed_exitcode {
            result.exit_code = Exit::ChangesPending.code();
            result.exit_name = Exit::ChangesPending.name().into();
        }
        let exit = class(&result);
        if let Some(failure) = &mut result.error {
            failure.state = self.state_after(exit, changed);
            // There is nothing to resume.
            if failure.id == "RunCancelled" && matches!(self.outcome, Outcome::Done(_)) {
                failure.hint = Some(format!("see how the node is: {}", self.command("status")));
            }
            result.failed_phase = result.failed_phase.or(self.reporter.failed_phase.map(Into::into));
            result.generation = self.generation;
            result.downtime_ms = crate::report::document::millis(self.downtime);
        }
        if let Some(state) = self.state.take() {
            ending::told(&mut self.reporter.log, ending::keep(&state, &self.note, &result));
        }
        // Nothing about a sandbox is written to this machine's Event Log.
        if let (Some(command), None) = (self.changing, &self.global.sandbox) {
            event_log::write(command, &result);
        }
        if let Some(run) = self.global.detached_run.clone() {
            // A detached run shows nothing: its result is recorded.
            if let Ok(node) = self.node()
                && let Some(note) = records::find(&*node, &run)
            {
                let document = crate::report::document::envelope("RunResult", &result);
                let kept = records::keep(&records::kept(&*node, &run), &note, &document);
                ending::told(&mut self.reporter.log, kept.context("keep the run's result"));
            }
        }
        // The record has the class; the output has the number that this process exits with.
        let code = self.global.exit_codes.code(&result);
        result.exit_code = code;
        if shown {
            self.reporter.close(&result);
        } else {
            self.reporter.finish(&result);
        }
        code
    }

    /// Describes the state after a failure, and what was changed before it.
    fn state_after(&self, exit: Exit, changed: bool) -> String {
        let mut state = match self.outcome {
            Outcome::Undone => "the node is as it was before; the change was rolled back".to_owned(),
            Outcome::HalfWay => "the node is half-way; nothing is lost, the journal knows how to go on or back".into(),
            Outcome::Done(Some(generation)) => {
                format!("the change is made and generation {generation} is current; what failed came after it")
            }
            Outcome::Done(None) => "Calico is removed from this node; what failed came after it".into(),
            Outcome::Untouched if exit == Exit::DrainBlocked => {
                "this machine was not changed, and its Node takes pods as before".into()
            }
            Outcome::Untouched if changed => "some of it was done: calicoctl-win status shows what stands now".into(),
            Outcome::Untouched => "nothing was changed".into(),
        };
        if !self.downtime.is_zero() && self.generation.is_some() {
            state.push_str("; Calico's services were down meanwhile");
        }
        match self.moved.len() {
            0 => {}
            1 => state.push_str("; 1 pod was evicted"),
            pods => state.push_str(&format!("; {pods} pods were evicted")),
        }
        state
    }

    /// The command line of this run.
    pub fn args(&self) -> &[OsString] {
        &self.args
    }
}

/// Opens the log that the command line names, before anything is done that belongs in it.
fn open_named(file: &Path) -> Result<Log> {
    Log::open(file).map_err(|error| {
        error.context(
            Fault::new(Exit::Usage, "LogNotWritable", format!("cannot write the log {}", file.display()))
                .hint("name a file in a folder that this session may write to, or leave --log-file out"),
        )
    })
}

/// Secures those of our folders that others could write to, and returns what was wrong with them.
///
/// # Errors
/// As [`Node::secure`].
pub(crate) fn secure(
    node: &mut dyn Node,
    folders: impl IntoIterator<Item = WinPath>,
) -> Result<Vec<(WinPath, String)>> {
    let mut opened = Vec::new();
    for folder in folders {
        if let Some(reason) = node.secure(&folder).with_context(|| format!("make {folder} safe"))? {
            opened.push((folder, reason));
        }
    }
    Ok(opened)
}

/// Checks the state folder again while we hold the lock in it: another account could have created it in between.
fn still_safe(node: &mut dyn Node) -> Result<()> {
    let state = WinPath::known(STATE_DIR);
    match node.secure(&state).with_context(|| format!("make {state} safe"))? {
        None => Ok(()),
        Some(reason) => {
            let what = format!("{state} was not ours when the run began: {reason}");
            Err(Fault::new(Exit::UntrustedFile, "UnsafeFolder", what)
                .hint("find out who made it, and run the command again")
                .into())
        }
    }
}

/// Returns the machine in one line, the first line of every run.
fn machine(facts: &NodeFacts) -> String {
    let os = &facts.os;
    let name = match os.build {
        17763 => "Windows Server 2019",
        20348 => "Windows Server 2022",
        25398 => "Windows Server 23H2",
        26100 => "Windows Server 2025",
        _ => "Windows",
    };
    let runtime = facts.runtime.as_ref().map_or_else(
        || "no container runtime".into(),
        |runtime| format!("{} {}", format!("{:?}", runtime.kind).to_lowercase(), runtime.version),
    );
    format!(
        "calicoctl-win {} on {}: {name} build {}.{}, {runtime}",
        env!("CARGO_PKG_VERSION"),
        facts.host_name,
        os.build,
        os.ubr
    )
}

/// Returns a command line for the log, without the values of `--set` and without users in URLs: they may be secrets.
fn without_values(args: &[OsString]) -> Vec<String> {
    let mut words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let mut set = false;
    for word in &mut words {
        let (flag, value) = match word.strip_prefix("--set=") {
            Some(value) => ("--set=", value),
            None if set => ("", word.as_str()),
            None => ("", ""),
        };
        let next = word == "--set";
        if !value.is_empty() {
            *word = format!("{flag}{}=***", value.split('=').next().unwrap_or_default());
        } else if let (Some((scheme, rest)), false) = (word.split_once("://"), set) {
            // The query of a signed URL, and a user, may be secrets.
            let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
            let host = rest.rsplit_once('@').map_or_else(|| rest.to_owned(), |(_, host)| format!("***@{host}"));
            *word = format!("{scheme}://{host}{query}");
        }
        set = next;
    }
    words
}
