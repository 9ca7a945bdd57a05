//! `logs`: the logs of the components, rotated files first; and new lines with `--follow`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::args::Logs as Args;
use super::components::LogOf;
use super::documents::{LogLine, Logs};
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
    if found.is_empty() && !args.follow {
        app.reporter.tell("there are no logs yet");
    }
    let several = found.len() > 1 || args.follow;
    let mut kept: Vec<LogLine> = Vec::new();
    let mut show = |app: &mut App, name: &str, line: &str| {
        let fields = || LogLine { file: name.into(), line: harmless(line) };
        match format {
            Format::Json | Format::Yaml | Format::Junit | Format::Dsc => kept.push(fields()),
            Format::Ndjson => app.reporter.each(&fields()),
            Format::Text if several => app.reporter.log_line(&format!("{name}: {line}")),
            Format::Text => app.reporter.log_line(line),
        }
    };
    let mut read: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for log in &found {
        for path in rotated_files(log).into_iter().chain([log.clone()]) {
            let mut filter = Filter { since, last: written(&path) };
            let to = lines(&path, 0, &mut |line| {
                if filter.takes(line) {
                    show(app, &name(log), line);
                }
            })?;
            read.insert(path, to);
        }
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
                let mut start = from;
                if size < from {
                    start = 0;
                    if let Some(former) = rotated_files(&log).pop() {
                        lines(&former, from, &mut |line| show(app, &name(&log), line))?;
                    }
                }
                let to = lines(&log, start, &mut |line| show(app, &name(&log), line))?;
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

fn written(path: &Path) -> Option<Timestamp> {
    Timestamp::try_from(fs::metadata(path).ok()?.modified().ok()?).ok()
}

/// Reads the lines of a file from an offset; returns the offset after the last complete line. A file that does not
/// exist has no lines: it was rotated or deleted just now.
fn lines(path: &Path, from: u64, each: &mut dyn FnMut(&str)) -> Result<u64> {
    let Ok(mut file) = File::open(path) else { return Ok(from) };
    let size = file.metadata().map_or(0, |about| about.len());
    if size == from {
        return Ok(from);
    }
    file.seek(SeekFrom::Start(from)).with_context(|| format!("read {}", path.display()))?;
    let (mut reader, mut at, mut line) = (BufReader::new(file), from, Vec::new());
    loop {
        line.clear();
        let n = reader.read_until(b'\n', &mut line).with_context(|| format!("read {}", path.display()))?;
        if line.last() != Some(&b'\n') {
            // Half a line: it is read when it is complete.
            return Ok(at);
        }
        at += n as u64;
        each(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
    }
}

/// Passes the lines written since a time. A line without a time belongs to the previous one.
struct Filter {
    since: Option<Timestamp>,
    /// The time of the previous line; before the first one, that of the file.
    last: Option<Timestamp>,
}

impl Filter {
    fn takes(&mut self, line: &str) -> bool {
        let Some(since) = self.since else { return true };
        self.last = time_of(line).or(self.last);
        self.last.is_none_or(|last| last >= since)
    }
}

/// Returns the time at the start of a line: `2026-01-02T15:04:05.123Z`, or Calico's own `2026-01-02 15:04:05.123` in
/// the machine's time zone.
fn time_of(line: &str) -> Option<Timestamp> {
    let first = line.split_whitespace().next()?;
    if let Ok(time) = first.parse::<Timestamp>() {
        return Some(time);
    }
    let local = |length: usize| line.get(..length)?.parse::<DateTime>().ok();
    local(23).or_else(|| local(19))?.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_dated_by_their_own_timestamps() {
        let mut filter = Filter { since: "2026-01-02T15:00:00Z".parse().ok(), last: None };
        let taken: Vec<bool> = [
            "2026-01-02T14:59:59.999Z calicoctl-win: old",
            "  its second line",
            "2026-01-02T15:00:00Z calicoctl-win: new",
            "  its second line",
        ]
        .map(|line| filter.takes(line))
        .into();
        assert_eq!(taken, [false, false, true, true]);
        assert!(time_of("2026-01-02 15:04:05.123 [INFO][44] felix/x.go 12: y").is_some());
        assert!(time_of("2026-01-02 15:04:05 startup").is_some());
        assert_eq!(time_of("Übung macht den Meister, sagt man ja so"), None);
    }

    #[test]
    fn half_a_line_is_read_when_it_is_complete() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("calico-felix.log");
        fs::write(&path, "one\r\ntw").unwrap();
        let mut seen = Vec::new();
        let at = lines(&path, 0, &mut |line| seen.push(line.to_owned())).unwrap();
        fs::write(&path, "one\r\ntwo\n").unwrap();
        lines(&path, at, &mut |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["one", "two"]);
    }

    #[test]
    fn since_is_a_time_or_a_duration() {
        let now = "2026-01-02T15:00:00Z".parse().unwrap();
        assert_eq!(since("10m", now).unwrap().to_string(), "2026-01-02T14:50:00Z");
        assert_eq!(since("2026-01-01T00:00:00Z", now).unwrap().to_string(), "2026-01-01T00:00:00Z");
        assert!(since("yesterday", now).is_err());
    }
}
