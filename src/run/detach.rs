//! `--detach`: a run that continues without its caller, and how to find it.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Ending;
use super::app::App;
use super::open::{check_elevated, secure};
use super::records;
use super::sources::Choice;
use super::verb::{Aim, Row};
use crate::agent::os;
use crate::apply::lock;
use crate::fault::{Exit, Fault};
use crate::node::STATE_DIR;
use crate::report::document::{RunResult, Status};
use crate::values::WinPath;

/// Starts the same command again without the session, and returns the name of the run. `row`: none for a command that
/// cannot run without its caller.
pub(crate) fn start(row: Option<&Row>, app: &mut App) -> Result<Ending> {
    let usage = |what: &str, hint: &str| Err(Fault::new(Exit::Usage, "Usage", what).hint(hint).into());
    let Some(row) = row else {
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
    let (mut node, context) = app.look(row, &Choice::default())?;
    check_elevated(context.facts.elevated)?;
    if app.global.wait_for_lock.is_none() {
        lock::free(&*node)?;
    }
    // Errors that can be found now are reported here: the detached run shows nothing.
    if matches!(row.aim, Aim::Config(_)) {
        context.config(&*node)?;
    }
    let run = app.run.clone();
    let opened = secure(&mut *node, [WinPath::known(STATE_DIR)])?;
    app.made_safe(opened);
    records::begin(&mut *node, &run, row.command)?;

    let pid = os::outlive(&mut command(app, &run)?, app.global.sandbox.is_none()).context("start the detached run")?;

    let msg = format!("{} continues as run {run} (process {pid}).", row.command);
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

/// This command line, for a process that carries it out as a run of this name.
pub(crate) fn command(app: &App, run: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("find our own executable")?);
    command.args(app.args.iter().skip(1)).arg("--detached-run").arg(run);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}
