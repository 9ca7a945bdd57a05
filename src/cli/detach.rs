//! `--detach`: a run that goes on without its caller, and how it is found again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Ending;
use super::app::{App, secure};
use super::args::Verb;
use crate::agent::os;
use crate::apply::lock;
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR};
use crate::plan::item::Access;
use crate::report::document::{RunResult, Status};
use crate::values::WinPath;

/// How many runs are remembered.
const KEPT: usize = 50;

/// Starts the same command again without the session, and gives the name of the run.
pub(super) fn start(verb: &Verb, app: &mut App) -> Result<Ending> {
    let usage = |what: &str, hint: &str| Err(Fault::new(Exit::Usage, "Usage", what).hint(hint).into());
    let Some(command) = name(verb) else {
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
    lock::free(&*node)?;
    let run = app.run.clone();
    let opened = secure(&mut *node, [WinPath::known(STATE_DIR)])?;
    app.made_safe(opened);
    let record = json!({ "run": run, "command": command, "since": Timestamp::now(), "result": null });
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

/// The commands that can go on without their caller.
pub(super) fn name(verb: &Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Install(_) => "install",
        Verb::Reconfigure(_) => "reconfigure",
        Verb::Upgrade(_) => "upgrade",
        Verb::Rollback(_) => "rollback",
        Verb::Repair(_) => "repair",
        Verb::Resume(_) => "resume",
        Verb::Uninstall(_) => "uninstall",
        _ => return None,
    })
}

fn folder() -> WinPath {
    WinPath::known(STATE_DIR).join("state").join("runs")
}

fn path(run: &str) -> WinPath {
    folder().join(&format!("{run}.json"))
}

/// Where the result of a run is kept.
pub(super) fn kept(node: &dyn Node, run: &str) -> PathBuf {
    node.disk(&path(run))
}

/// Keeps how a run ended, and forgets the oldest ones.
pub(super) fn keep(file: &Path, run: &str, result: &Value) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    fs::create_dir_all(folder)?;
    let record = json!({ "run": run, "result": result });
    crate::node::files::replace(file, |new| fs::write(new, record.to_string()))?;
    let mut all: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // Their names begin with the time.
    all.sort();
    for old in all.iter().rev().skip(KEPT) {
        fs::remove_file(old)?;
    }
    Ok(())
}

/// A run that was detached a moment ago and has not taken the lock yet: what is written down of it.
pub(super) fn starting(node: &dyn Node) -> Option<Value> {
    let entries = fs::read_dir(node.disk(&folder())).ok()?;
    let newest = entries.filter_map(|entry| Some(entry.ok()?.path())).max()?;
    let record: Value = serde_json::from_slice(&fs::read(newest).ok()?).ok()?;
    (record["result"].is_null() && is_fresh(&record)).then_some(record)
}

/// Whether the process of a detached run may still be on its way to the lock.
pub(super) fn is_fresh(record: &Value) -> bool {
    let since = record["since"].as_str().and_then(|since| since.parse::<Timestamp>().ok());
    since.is_some_and(|since| Timestamp::now().duration_since(since).as_secs() < 30)
}

/// What is known of a run: none when nobody wrote anything down.
pub(super) fn find(node: &dyn Node, run: &str) -> Option<Value> {
    // A name with a separator in it would lead elsewhere.
    if !run.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return None;
    }
    serde_json::from_slice(&fs::read(kept(node, run)).ok()?).ok()
}
