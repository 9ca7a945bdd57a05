//! `--detach`: a run that goes on without its caller, and how it is found again.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Ending;
use super::app::{App, secure};
use super::change::ROWS;
use super::options::Source;
use crate::agent::os;
use crate::apply::lock;
use crate::fault::{Exit, Fault};
use crate::item::Access;
use crate::node::{Node, STATE_DIR};
use crate::report::document::{RunResult, Status};
use crate::values::WinPath;

/// How many runs are remembered.
const KEPT: usize = 50;

/// Starts the same command again without the session, and gives the name of the run. `command`: none for one
/// that cannot go on without its caller.
pub(crate) fn start(command: Option<&'static str>, app: &mut App) -> Result<Ending> {
    let usage = |what: &str, hint: &str| Err(Fault::new(Exit::Usage, "Usage", what).hint(hint).into());
    let Some(command) = command else {
        return usage("--detach is for commands that change the node", "run it without --detach");
    };
    if app.global.dry_run {
        return usage("a dry run ends at once: there is nothing to detach", "run it without --detach");
    }
    if app.global.config.iter().any(|file| file.as_os_str() == "-") {
        return usage("a detached run has no stdin to read a config from", "write the config to a file: -c FILE");
    }
    if !app.global.yes {
        let what = "a detached run cannot ask for confirmation";
        return Err(Fault::new(Exit::Usage, "ConfirmationNeeded", what)
            .hint("look first with --dry-run, then run it with --detach --yes")
            .into());
    }
    let mut node = app.node()?;
    if !node.facts().context("measure the node")?.elevated {
        return Err(Fault::new(Exit::NotElevated, "NotElevated", "this session may not administer the machine")
            .hint("open PowerShell with Run as administrator and run the command again")
            .into());
    }
    if app.global.wait_for_lock.is_none() {
        lock::free(&*node)?;
    }
    // Nobody sees the detached run fail at what can be said now.
    if ROWS.iter().any(|row| row.command == command) {
        app.config(&*node, &Source::default(), &[])?;
    }
    let run = app.run.clone();
    let opened = secure(&mut *node, [WinPath::known(STATE_DIR)])?;
    app.made_safe(opened);
    let record = record(&run, command);
    node.save(&path(&run), record.to_string().as_bytes(), Access::Administrators).context("write down the run")?;

    let program = std::env::current_exe().context("find our own executable")?;
    let mut child = Command::new(program);
    child.args(app.args().iter().skip(1)).arg("--detached-run").arg(&run);
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = os::detach(&mut child).context("start the detached run")?;

    let msg = format!("{command} goes on by itself as run {run} (process {}).", child.id());
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, false, msg);
    result.status = Status::Started;
    result.next = vec![
        app.command(&format!("status --wait --run {run}")),
        app.command(&format!("logs --run {run}")),
        app.command("status --wait"),
    ];
    Ending::result(result)
}

fn folder() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("runs")
}

fn path(run: &str) -> WinPath {
    folder().join(&format!("{run}.json"))
}

/// Where the result of a run is kept.
pub(crate) fn kept(node: &dyn Node, run: &str) -> PathBuf {
    node.disk(&path(run))
}

/// What is written down of a run before it has a result.
pub(crate) fn record(run: &str, command: &str) -> Value {
    // Windows' name of the account, and Linux' in a sandbox.
    let user = ["USERNAME", "USER"].into_iter().find_map(|name| std::env::var(name).ok());
    json!({ "run": run, "command": command, "user": user, "since": Timestamp::now(), "result": null })
}

/// Keeps how a run ended, and forgets the oldest ones.
pub(crate) fn keep(file: &Path, record: &Value, result: &Value) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    fs::create_dir_all(folder)?;
    let mut record = record.clone();
    record["result"] = result.clone();
    crate::node::files::replace(file, |new| fs::write(new, record.to_string()))?;
    let mut all: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // Their names begin with the time.
    all.sort();
    for old in all.iter().rev().skip(KEPT) {
        fs::remove_file(old)?;
    }
    Ok(())
}

/// The files of all runs that are remembered.
///
/// # Errors
/// When the folder is there and cannot be read: that takes an administrator.
pub(crate) fn all(node: &dyn Node) -> Result<Vec<PathBuf>> {
    match fs::read_dir(node.disk(&folder())) {
        Ok(entries) => Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("read {}", folder())),
    }
}

/// A run that was detached a moment ago and has not taken the lock yet: what is written down of it.
pub(crate) fn starting(node: &dyn Node) -> Option<Value> {
    let newest = all(node).ok()?.into_iter().max()?;
    let record: Value = serde_json::from_slice(&fs::read(newest).ok()?).ok()?;
    (record["result"].is_null() && is_fresh(&record)).then_some(record)
}

/// Whether the process of a detached run may still be on its way to the lock.
pub(crate) fn is_fresh(record: &Value) -> bool {
    let since = record["since"].as_str().and_then(|since| since.parse::<Timestamp>().ok());
    since.is_some_and(|since| Timestamp::now().duration_since(since).as_secs() < 30)
}

/// What is known of a run: none when nobody wrote anything down.
pub(crate) fn find(node: &dyn Node, run: &str) -> Option<Value> {
    // A name with a separator in it would lead elsewhere.
    if !run.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return None;
    }
    serde_json::from_slice(&fs::read(kept(node, run)).ok()?).ok()
}
