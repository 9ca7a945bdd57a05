//! `verify`: the probes of [`crate::verify`] as they end, and what they say together.

use std::path::Path;

use anyhow::{Context, Result};

use super::args::Verify;
use crate::fault::Exit;
use crate::node::files;
use crate::report::answer::Verdict;
use crate::report::junit;
use crate::report::reporter::Format;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::verify as run;
use crate::verify;
use crate::verify::pods::PodOptions;
use crate::verify::report::ProbeReport;

pub(crate) fn run(args: &Verify, app: &mut App) -> Result<Ending> {
    let mut node = app.node()?;
    if args.remove {
        return run::remove(app, &mut *node);
    }
    let quiet = app.global.quiet;
    let pods = args.pods.then(|| run::WithPods {
        options: PodOptions {
            image_windows: args.image_windows.clone(),
            image_linux: args.image_linux.clone(),
            pull_secret: args.pull_secret.clone(),
            start_within: args.start_timeout.length(),
            demo: args.demo,
        },
        egress: args.egress.clone(),
    });
    let report = run::run(app, &mut *node, pods.as_ref(), &mut |app, probe| {
        if !quiet || probe.verdict == Verdict::Fail {
            let line = app.global.repeated_in(&line(probe));
            app.reporter.say(&line);
        }
    })?;
    let junit = junit::report("calicoctl-win verify", &report.checks());
    if let Some(file) = &args.junit_file {
        write(file, &junit)?;
    }
    if app.reporter.format() == Format::Junit {
        app.reporter.raw(&junit);
    } else {
        let demo = report.demo.iter().map(|line| format!("{line}\n")).collect::<String>();
        let text = app.global.repeated_in(&format!("\n{demo}{}\n", report.summary.text("probe")));
        app.reporter.document(&report, &text);
    }
    let exit = if verify::holds(&report.probes) { Exit::Ok } else { Exit::VerifyFailed };
    Ending::shown(exit, report.summary.text("probe"))
}

fn write(file: &Path, text: &str) -> Result<()> {
    files::replace(file, |new| std::fs::write(new, text)).with_context(|| format!("write {}", file.display()))
}

/// Returns a probe as text.
fn line(probe: &ProbeReport) -> String {
    let mut line = format!("{} {:<20} {}", probe.verdict.tag(), probe.id, probe.answered);
    if let Some(fix) = &probe.fix {
        let fix = fix.replace('\n', "\n              ");
        line.push_str(&format!("\n         expected: {}\n         fix: {fix}", probe.asks));
    }
    line
}
