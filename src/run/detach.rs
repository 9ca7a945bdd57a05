//! `--detach`: a run that continues without its caller, and how to find it.

use anyhow::{Context, Result};

use super::Ending;
use super::app::App;
use super::generations::check_standing;
use super::open::{check_elevated, secure};
use super::records;
use super::sources::Choice;
use super::stage::check_named;
use super::verb::{Aim, Row};
use crate::agent::os;
use crate::apply::lock;
use crate::config::types::Wait;
use crate::fault::{Exit, Fault};
use crate::node::STATE_DIR;
use crate::report::document::{RunResult, Status};
use crate::values::WinPath;

/// Starts the same command again without the session, and returns the name of the run. `verb`: its row and what the
/// command line says of the config; none for a command that cannot run without its caller.
pub(crate) fn start(verb: Option<(&Row, Choice<'_>)>, app: &mut App) -> Result<Ending> {
    let usage = |what: &str, hint: &str| Err(Fault::new(Exit::Usage, "Usage", what).hint(hint).into());
    let Some((row, choice)) = verb else {
        return usage("--detach is for commands that change the node", "run it without --detach");
    };
    if app.global.is_dry_run() {
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
    let (mut node, context) = app.look(row, &choice)?;
    check_elevated(context.facts.elevated)?;
    if app.global.wait_for_lock.is_none() {
        lock::free(&*node)?;
    }
    // Errors that can be found now are reported here: the detached run shows nothing.
    row.check_trial(context.trial.as_ref())?;
    check_standing(row, &context.standing)?;
    if matches!(row.aim, Aim::Config(_)) {
        check_named(context.config(&*node)?)?;
    }
    let run = app.run.clone();
    let opened = secure(&mut *node, [WinPath::known(STATE_DIR)])?;
    app.made_safe(opened);
    let waits = app.global.wait_for_lock.as_ref().map(Wait::length).unwrap_or_default();
    records::begin(&mut *node, &run, row.command, waits)?;

    let pid = os::outlive(&mut app.again(&run)?, app.global.sandbox.is_none()).context("start the detached run")?;

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
