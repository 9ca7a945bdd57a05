//! Opens the node for a run: elevated, safe, locked, logged.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::app::App;
use super::context::Context;
use super::records;
use super::sources::Choice;
use super::verb::{Aim, RESUME, Row};
use crate::apply::lock::{Holder, Lock};
use crate::apply::renewal;
use crate::calico::services::FOLDER as INSTALL_DIR;
use crate::config::types;
use crate::facts::NodeFacts;
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR, trust};
use crate::report::event::{Event, Sink};
use crate::report::log::Log;
use crate::values::WinPath;
use crate::wait::Wait;

/// How long Windows may take to assign addresses to a virtual switch.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

impl App {
    /// Opens the node to look at it.
    ///
    /// # Errors
    /// When the machine, or a record of ours, cannot be read.
    pub fn look(&mut self, row: &Row, choice: &Choice<'_>) -> Result<(Box<dyn Node>, Context)> {
        let mut node = self.node()?;
        let context = self.context(&mut *node, row, choice)?;
        Ok((node, context))
    }

    /// Reads what is known of a node that is looked at.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn context(&mut self, node: &mut dyn Node, row: &Row, choice: &Choice<'_>) -> Result<Context> {
        let facts = measure(node)?;
        let mut context = Context::load(self, node, facts, row, choice)?;
        self.await_addresses(row, node, &mut context)?;
        Ok(context)
    }

    /// Waits for addresses: a run that ended while the virtual switch was being created may have left the node without
    /// them for a moment.
    fn await_addresses(&mut self, row: &Row, node: &mut dyn Node, context: &mut Context) -> Result<()> {
        if context.standing.journal.is_none() || !matches!(row.aim, Aim::Config(_)) || has_address(&context.facts) {
            return Ok(());
        }
        let what = "an address on the virtual switch that an interrupted run began";
        context.facts = await_address(node, what, &mut |event| self.event(&event))?;
        Ok(())
    }

    /// Opens the node for a verb that changes it: elevated, logged, locked; in a dry run without the lock, to look at
    /// it. An interrupted renewal of credentials is finished first.
    ///
    /// # Errors
    /// `NotElevated`, `BUSY`, `OnTrial`; and when the node or its records cannot be read.
    pub fn open(&mut self, row: &Row, choice: &Choice<'_>) -> Result<(Box<dyn Node>, Context)> {
        if self.global.is_dry_run() {
            return self.look(row, choice);
        }
        let mut node = self.node()?;
        let facts = measure(&*node)?;
        check_elevated(facts.elevated)?;
        let named = self.global.log_file.as_deref().map(open_named).transpose()?;
        let opened = secure(&mut *node, [STATE_DIR, INSTALL_DIR].map(WinPath::known))?;
        let holder = Holder::of(&self.run, row.command, Timestamp::now());
        let limit = self.global.wait_for_lock.as_ref().map(types::Wait::length).unwrap_or_default();
        self.lock = Some(Lock::take(&mut *node, &holder, limit, &mut |event| self.event(&event))?);
        // If the folder did not exist before, it was created for the lock: by this run, or by another account meanwhile.
        if let Some((state, reason)) = secure(&mut *node, [WinPath::known(STATE_DIR)])?.pop() {
            let what = format!("{state} was not ours when the run began: {reason}");
            return Err(Fault::new(Exit::UntrustedFile, "UnsafeFolder", what)
                .hint("find out who made it, and run the command again")
                .into());
        }
        let mut context = Context::load(self, &*node, facts, row, choice)?;
        row.check_trial(context.trial.as_ref())?;
        if row.command != RESUME.command {
            let events = &mut |event| self.event(&event);
            context.standing = renewal::finish_interrupted(&mut *node, context.standing, events)?;
        }
        let state = node.disk(&WinPath::known(STATE_DIR));
        let usual = || Log::open(&state.join("logs").join(format!("{}.log", self.run)));
        let mut log = named.map_or_else(usual, Ok)?;
        let words = without_values(&self.args).join(" ");
        let line = format!("calicoctl-win {} run {}: {words}", env!("CARGO_PKG_VERSION"), self.run);
        log.line(Timestamp::now(), "INFO", &line);
        let generation = context.standing.receipt().map(|receipt| receipt.generation);
        {
            let mut record = self.record();
            record.changing = Some(row.command);
            record.note = records::opened(&self.run, row.command);
            // A run that is killed is remembered too.
            records::keep(&records::kept(&*node, &self.run), &record.note, &Value::Null)
                .context("write down the run")?;
            record.state = Some(state);
            record.log = Some(log.path.clone());
            record.generation = generation;
        }
        self.reporter.log = Some(log);
        // What is written on an image is on every machine made from it.
        let interrupted = context.standing.journal.as_ref();
        let mut facts = context.facts.clone();
        if row.makes_image || interrupted.is_some_and(|journal| journal.header.terms.prepares.is_some()) {
            facts.host_name = "an image".into();
        }
        self.event(&Event::RunStarted { command: row.command, node: facts.host_name.clone(), generation });
        self.reporter.tell(&machine(&facts));
        self.made_safe(opened);
        self.await_addresses(row, &mut *node, &mut context)?;
        Ok((node, context))
    }

    /// Reports which folders others could write to until now.
    pub fn made_safe(&mut self, folders: Vec<(WinPath, String)>) {
        for (folder, reason) in folders {
            self.warn("FolderMadeSafe", format!("{folder} is for administrators only now: {reason}"));
        }
    }

    /// Writes the log elsewhere from here on: the state folder is about to be removed.
    pub fn leave_state_folder(&mut self) {
        self.record().state = None;
        if self.global.log_file.is_none()
            && let Some(log) = self.reporter.log.take()
        {
            let kept = trust::temporary(&self.run, ".log");
            if copy_to_new(&log.path, &kept).is_ok() {
                self.reporter.log = Log::open(&kept).ok();
                self.record().log = Some(kept);
            }
        }
    }
}

fn has_address(facts: &NodeFacts) -> bool {
    let mut addresses = facts.adapters.iter().flat_map(|adapter| &adapter.addresses).map(|net| net.addr());
    addresses.any(|ip| !ip.is_link_local() && !ip.is_loopback())
}

/// Measures the node.
///
/// # Errors
/// `HnsStuck`; and when the node cannot be measured.
pub(crate) fn measure(node: &dyn Node) -> Result<NodeFacts> {
    node.facts().and_then(|facts| Ok(facts.with_hns()?)).context("measure the node")
}

/// Waits until an adapter has an address, which a new virtual switch removes for a moment. Returns the node as it is
/// then, also if it has none in time.
///
/// # Errors
/// When the node cannot be measured.
pub(crate) fn await_address(node: &mut dyn Node, what: &str, events: Sink<'_>) -> Result<NodeFacts> {
    let mut facts = measure(node)?;
    let wait = Wait {
        what: Some(what),
        limit: SETTLES_WITHIN,
        pause: Duration::from_millis(500),
        rest: &mut |node, time| {
            node.pause(time);
            Ok(())
        },
    };
    let _without_one = wait.until(node, events, |node, _, _| {
        facts = measure(node)?;
        Ok(if has_address(&facts) { Ok(()) } else { Err(String::new()) })
    })?;
    Ok(facts)
}

/// Copies a file, but not over another one.
fn copy_to_new(from: &Path, to: &Path) -> std::io::Result<u64> {
    std::io::copy(&mut File::open(from)?, &mut File::create_new(to)?)
}

/// Refuses a session without administrator rights.
///
/// # Errors
/// `NotElevated`.
pub(crate) fn check_elevated(elevated: bool) -> Result<()> {
    if elevated {
        return Ok(());
    }
    Err(Fault::new(Exit::NotElevated, "NotElevated", "this session has no administrator rights")
        .hint("open PowerShell with Run as administrator and run the command again")
        .into())
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

/// Returns the machine in one line, the first line of every run.
pub(crate) fn machine(facts: &NodeFacts) -> String {
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
        |runtime| format!("{} {}", runtime.kind.service(), runtime.version),
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
