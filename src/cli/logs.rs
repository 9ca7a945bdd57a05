//! `logs`: the lines of the components' logs in the order of their times; and new lines with `--follow`.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};

use super::args::Logs as Args;
use super::components::LogOf;
use super::documents::{LogLine, Logs};
use super::log_lines::{Line, lines, merged, time_of};
use crate::agent::logs::rotated_files;
use crate::agent::{self, Role};
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR};
use crate::paths::LOG_DIR;
use crate::report::reporter::Format;
use crate::report::text::harmless;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::open::check_elevated;
use crate::run::records;
use crate::values::WinPath;

/// How often followed files are read.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(crate) fn run(args: &Args, app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    // Only administrators may read the folder, and without what is in it nobody knows where the logs are.
    if node.disk(&WinPath::known(STATE_DIR)).exists() {
        check_elevated(node.caller().elevated)?;
    }
    let since = args.since.as_deref().map(|text| since(text, Timestamp::now())).transpose()?;
    let format = app.reporter.format();
    let whole = matches!(format, Format::Json | Format::Yaml | Format::Junit | Format::Dsc);
    if args.follow {
        check_endless(format, "--follow")?;
    }
    let own = args.run.as_ref().map(|_| LogOf::Tool);
    let of = args.component.or(own);
    let is_meant = |path: &PathBuf| args.run.as_ref().is_none_or(|run| path.file_stem().is_some_and(|s| s == &**run));
    let mut found = files(&*node, of);
    found.retain(is_meant);
    if let Some(run) = args.run.as_ref().filter(|_| found.is_empty())
        && records::find(&*node, run)?.is_none()
    {
        return Err(records::unknown(run).into());
    }
    if found.is_empty() && !args.follow {
        app.reporter.tell("there are no logs yet");
    }
    let several = found.len() > 1 || args.follow;
    let mut kept: Vec<LogLine> = Vec::new();
    let mut show = |app: &mut App, name: &str, time: Option<Timestamp>, line: &str| {
        let fields = || LogLine { file: name.into(), time, line: harmless(line) };
        match format {
            Format::Json | Format::Yaml | Format::Junit | Format::Dsc => kept.push(fields()),
            Format::Ndjson => app.reporter.each(&fields()),
            Format::Text if several => app.reporter.log_line(&format!("{name}: {line}")),
            Format::Text => app.reporter.log_line(line),
        }
    };
    // The last lines, if only those are asked for.
    let mut tail: VecDeque<Line> = VecDeque::new();
    let mut read = merged(&found, since, &mut |line| {
        match args.tail {
            None => show(app, &name(&found[line.log]), line.time, &line.text),
            Some(number) => {
                tail.push_back(line);
                if tail.len() > number {
                    tail.pop_front();
                }
            }
        }
        Ok(())
    })?;
    for line in tail {
        show(app, &name(&found[line.log]), line.time, &line.text);
    }
    // Until the session ends.
    if args.follow {
        loop {
            std::thread::sleep(LOOK_EVERY);
            for log in files(&*node, of).into_iter().filter(is_meant) {
                // A file that is shorter than the part that was read is a new one; the rest of the previous one is in the
                // newest rotated file.
                let from = read.get(&log).copied().unwrap_or(0);
                let size = fs::metadata(&log).map_or(0, |about| about.len());
                let now = Timestamp::now();
                let mut shown = |line: &str| show(app, &name(&log), time_of(line, now), line);
                let mut start = from;
                if size < from {
                    start = 0;
                    if let Some(former) = rotated_files(&log).pop() {
                        lines(&former, from, &mut shown)?;
                    }
                }
                let to = lines(&log, start, &mut shown)?;
                read.insert(log, to);
            }
        }
    }
    if whole {
        app.reporter.document(&Logs { lines: kept }, "");
    }
    Ending::shown(Exit::Ok, "done")
}

/// Refuses a format that is one document for an output without an end.
pub(super) fn check_endless(format: Format, flag: &str) -> Result<()> {
    if matches!(format, Format::Text | Format::Ndjson) {
        return Ok(());
    }
    let fault = Fault::new(Exit::Usage, "Usage", format!("{flag} has no end, and json and yaml are one document"));
    Err(fault.hint(format!("use -o text or -o ndjson with {flag}")).into())
}

/// Parses a time, or a duration before now.
fn since(text: &str, now: Timestamp) -> Result<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let ago: crate::config::types::Wait = text.parse().map_err(|_| {
        Fault::new(Exit::Usage, "Usage", format!("--since: `{text}` is neither a time nor how long ago"))
            .hint("write it as 10m, 2h or 2026-01-02T15:04:05Z")
    })?;
    Ok(now - SignedDuration::try_from(ago.length()).unwrap_or(SignedDuration::MAX))
}

/// Returns the log files that exist, for example `calico-felix.log`.
pub(super) fn files(node: &dyn Node, of: Option<LogOf>) -> Vec<PathBuf> {
    let folder = agent::read_config(node).map_or_else(|_| WinPath::known(LOG_DIR), |c| c.log_dir);
    let mut all = Vec::new();
    for role in Role::ALL {
        if of.is_none_or(|of| of == LogOf::Service(role)) {
            let log = |end: &str| node.disk(&folder.join(&format!("{}{end}", role.log())));
            all.extend([log(".log"), log(".err.log")]);
        }
    }
    if of == Some(LogOf::Tool) {
        let own = node.disk(&WinPath::known(STATE_DIR).join("logs"));
        let mut runs: Vec<PathBuf> = fs::read_dir(own).map_or_else(
            |_| Vec::new(),
            |entries| {
                entries
                    .filter_map(|entry| Some(entry.ok()?.path()))
                    .filter(|path| path.extension().is_some_and(|e| e == "log"))
                    .collect()
            },
        );
        runs.sort();
        all.extend(runs);
    }
    all.retain(|path| path.is_file());
    all
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_time_or_a_duration() {
        let now = "2026-01-02T15:00:00Z".parse().unwrap();
        assert_eq!(since("10m", now).unwrap().to_string(), "2026-01-02T14:50:00Z");
        assert_eq!(since("2026-01-01T00:00:00Z", now).unwrap().to_string(), "2026-01-01T00:00:00Z");
        assert!(since("yesterday", now).is_err());
    }
}
