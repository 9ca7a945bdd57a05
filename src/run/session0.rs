//! A change that interrupts the connection which it is made over. It is confirmed on the screen, and then made by a run
//! in session 0; this process stays with that run and passes on what it tells. If the session ends, the run continues.

use std::fs::File;
use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::app::App;
use super::context::Operation;
use super::options::ConfirmedPlan;
use super::{Ending, ctrl_c, records};
use crate::agent::os;
use crate::fault::{Exit, Fault};
use crate::plan::show::{Disruption, Plan};

/// Whether the change is made by a run in session 0, which this process stays with.
pub(crate) fn is_due(app: &App, plan: &Plan) -> bool {
    plan.disruption == Disruption::HostNetwork
        && app.global.sandbox.is_none()
        && app.global.detached_run.is_none()
        && os::is_remote()
}

/// Refuses to make another plan than the one that was confirmed on the screen, and begins to tell.
///
/// # Errors
/// `PlanStale`.
pub(crate) fn take_over(app: &mut App, plan: Option<&Plan>) -> Result<()> {
    let Some(confirmed) = &app.global.confirmed else { return Ok(()) };
    if plan.is_none_or(|plan| plan.digest != confirmed.digest) {
        let what = "the node or its config changed since the plan was shown";
        return Err(Fault::new(Exit::PlanStale, "PlanStale", what)
            .hint("run the command again, and look at the new plan")
            .into());
    }
    app.reporter.speak();
    Ok(())
}

/// Starts the run, and stays with it until it ends. The lock is free from here on: the run takes it.
///
/// # Errors
/// When it cannot be started; and `RunLost` if it ended without a result.
pub(crate) fn stay(op: &mut Operation<'_>, plan: &Plan) -> Result<Ending> {
    let app = &mut *op.app;
    let run = app.run.clone();
    records::begin(op.node, &run, op.row.command, Duration::ZERO)?;
    app.reporter.tell(&format!(
        "This change interrupts the connection of this session, so run {run} makes it without the session.\n\
         If the connection drops: {}",
        app.command(&format!("status --wait --run {run}"))
    ));
    app.lock = None;
    let mut command = app.again(&run)?;
    let confirmed = ConfirmedPlan { digest: plan.digest.clone(), lines: app.reporter.lines() };
    // It was confirmed on this screen, or needs no confirmation.
    command.args(["--agreed", &confirmed.to_string()]);
    if !app.global.yes {
        command.arg("--yes");
    }
    for (name, value) in app.reporter.screen() {
        command.env(name, value);
    }
    let os::Escorted { mut stdin, stdout, stderr } =
        os::escort(&command).context("start the run without the session")?;
    app.stdin.hand_over(&mut stdin).context("pass stdin to the run without the session")?;
    ctrl_c::goes_to(stdin);
    let errors = thread::spawn(|| pass_on(stderr, io::stderr()));
    pass_on(stdout, io::stdout());
    drop(errors.join());
    let result = records::find(op.node, &run)?.map(|mut record| record["result"].take()).unwrap_or_default();
    let ended = Exit::all().find(|exit| result["exit_code"] == exit.code());
    let Some(exit) = ended else {
        return Err(Fault::new(Exit::FailedIncomplete, "RunLost", format!("run {run} ended without a result"))
            .hint(format!("see the node's state: {}", app.command("status")))
            .into());
    };
    Ok(Ending::Told(app.global.exit_codes.number(exit, result["error"]["retryable"] == true)))
}

/// Passes on what the run tells, until it ends. Losing the session stops nobody.
fn pass_on(mut from: File, mut to: impl Write) {
    let mut part = [0; 0x4000];
    loop {
        // The pipe breaks when the run ends.
        let Ok(length @ 1..) = from.read(&mut part) else { return };
        let _session_may_be_gone = to.write_all(&part[..length]).and_then(|()| to.flush());
    }
}
