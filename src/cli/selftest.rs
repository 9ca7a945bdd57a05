//! `selftest`: the rows of [`crate::selftest`] on this machine or a sandbox, as they end, and what they say together.

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};

use super::args::Selftest;
use crate::apply::lock::{Holder, Lock};
use crate::fault::Exit;
use crate::node::sandbox::faults::SandboxFaults;
use crate::node::sandbox::quirks::Quirk;
use crate::node::{Node, STATE_DIR};
use crate::report::answer::Verdict;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::open::check_elevated;
use crate::selftest::report::{RowReport, SelftestReport};
use crate::selftest::{self, Hold, Program, Reach, TestContext, child};
use crate::values::WinPath;

pub(crate) fn run(args: &Selftest, app: &mut App) -> Result<Ending> {
    if let Some(part) = &args.part {
        std::process::exit(child::play(part, quirks(app))?);
    }
    let reach = match (args.disruptive, app.global.is_dry_run()) {
        (_, true) => Reach::Reads,
        (true, _) => Reach::Disrupts,
        (false, _) => Reach::Changes,
    };
    let mut node = app.node()?;
    check_elevated(node.caller().elevated)?;
    if reach == Reach::Disrupts {
        app.confirm("the network of an adapter", "Run the rows that interrupt it?", None)?;
    }
    let report = {
        let _lock = lock(app, &mut *node)?;
        let hold = (reach > Reach::Reads).then(|| hold(app, &mut *node)).transpose()?;
        let mut context = TestContext::new(&mut *node, program(app)?, args.adapter.clone())?;
        let (reporter, quiet) = (&mut app.reporter, app.global.quiet);
        let mut tell = |row: &RowReport| {
            if !quiet || row.verdict == Verdict::Fail {
                reporter.say(&line(row));
            }
        };
        let report = selftest::run(&mut context, reach, &mut tell);
        let is_safe_as_before = hold.is_none_or(|(_hold, secured)| !secured);
        if is_safe_as_before && report.left.is_empty() && report.removed.is_empty() {
            // What the rows made is gone again.
            app.record().changed.store(false, Ordering::SeqCst);
        }
        report
    };
    app.reporter.document(&report, &summary(&report));
    let passed = selftest::holds(&report) && report.left.is_empty();
    let exit = if passed { Exit::Ok } else { Exit::PreflightFailed };
    Ending::shown(exit, format!("{}. {}", report.summary.text("row"), report.on_vni()))
}

/// Returns this program as the rows start it.
pub(crate) fn program(app: &App) -> Result<Program> {
    let path = std::env::current_exe().context("find our own executable")?;
    let mut words: Vec<OsString> = Vec::new();
    if let Some(dir) = &app.global.sandbox {
        words.extend([OsString::from("--sandbox"), dir.clone().into()]);
        words.extend(app.global.sandbox_fault.iter().map(|fault| OsString::from(format!("--sandbox-fault={fault}"))));
    }
    Ok(Program { path, words, real: app.global.sandbox.is_none() })
}

/// Returns how the program of a sandbox is unlike a process on Windows.
fn quirks(app: &App) -> child::Quirks {
    let faults = SandboxFaults::parse(&app.global.sandbox_fault.join(";")).unwrap_or_default();
    let is = |quirk| app.global.sandbox.is_some() && faults.windows.contains(&quirk);
    child::Quirks {
        ignores_ctrl_c: is(Quirk::IgnoresCtrlC),
        job_leaks: is(Quirk::JobLeaks),
        detach_stays: is(Quirk::DetachStays),
    }
}

/// Takes the lock of the runs that change the node. Without a state folder there is nothing to lock, and nothing is
/// left for it.
fn lock(app: &App, node: &mut dyn Node) -> Result<Option<Lock>> {
    if !node.disk(&WinPath::known(STATE_DIR).join("lock")).exists() {
        return Ok(None);
    }
    let holder = Holder::of(&app.run, "selftest", node.now());
    Lock::take(node, &holder, Duration::ZERO, &mut |_| ()).map(Some)
}

/// Returns also whether a folder had to be made safe.
fn hold(app: &mut App, node: &mut dyn Node) -> Result<(Hold, bool)> {
    let (hold, secured) = Hold::take(node)?;
    let was_unsafe = secured.is_some();
    app.made_safe(secured.map(|reason| (WinPath::known(selftest::FOLDER), reason)).into_iter().collect());
    Ok((hold, was_unsafe))
}

/// Returns a row as text.
fn line(row: &RowReport) -> String {
    let mut line = format!("{} {:<20} {}", row.verdict.tag(), row.id, row.answered);
    if row.verdict == Verdict::Fail {
        line.push_str(&format!("\n         expected: {}\n         depends on it: {}", row.asks, row.needed_for));
    }
    line
}

fn summary(report: &SelftestReport) -> String {
    let mut text = format!("\n{}\n", report.summary.text("row"));
    for (what, names) in [("An interrupted selftest had left, now removed", &report.removed), ("Left", &report.left)] {
        if !names.is_empty() {
            text.push_str(&format!("{what}: {}\n", names.join(", ")));
        }
    }
    text.push_str(&report.on_vni());
    text
}
