//! Lines of several logs in the order of their times: each log with its rotated files, read once and line by line.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::agent::logs::rotated_files;

/// A line, and which of the logs it is in.
pub(super) struct Line {
    pub log: usize,
    /// Its own time, or that of the line above it; none before the first time of a log.
    pub time: Option<Timestamp>,
    pub text: String,
}

/// Passes every line of the logs to `each`, in the order of their times; lines of one log stay in their order, and a
/// line without a time with the line above it. Returns how much of each file was read: up to its last complete line.
///
/// # Errors
/// When a file cannot be read, or `each` fails.
pub(super) fn merged(
    logs: &[PathBuf],
    since: Option<Timestamp>,
    each: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<BTreeMap<PathBuf, u64>> {
    let mut read = BTreeMap::new();
    let now = Timestamp::now();
    let mut all = Vec::new();
    for log in logs {
        let files = rotated_files(log).into_iter().chain([log.clone()]).collect();
        let mut one = Log { files, open: None, last: None, since, now, next: None };
        one.step(&mut read)?;
        all.push(one);
    }
    let mut current = None;
    loop {
        let stays = current.filter(|at: &usize| all[*at].next.as_ref().is_some_and(|next| !next.is_dated));
        let first = || {
            let waiting = all.iter().enumerate().filter_map(|(at, log)| Some((log.next.as_ref()?.time, at)));
            waiting.min().map(|(_, at)| at)
        };
        let Some(at) = stays.or_else(first) else { return Ok(read) };
        if let Some(Next { time, text, .. }) = all[at].next.take() {
            each(Line { log: at, time, text })?;
        }
        all[at].step(&mut read)?;
        current = Some(at);
    }
}

/// A log that is read.
struct Log {
    /// Its files that are not yet read, oldest first.
    files: VecDeque<PathBuf>,
    open: Option<Open>,
    /// The time of the previous line.
    last: Option<Timestamp>,
    since: Option<Timestamp>,
    now: Timestamp,
    /// The next line; none at the end.
    next: Option<Next>,
}

struct Open {
    path: PathBuf,
    reader: BufReader<File>,
    /// Up to its last complete line.
    at: u64,
    written: Option<Timestamp>,
}

struct Next {
    time: Option<Timestamp>,
    /// It has a time of its own.
    is_dated: bool,
    text: String,
}

impl Log {
    /// Reads the next line that is not too old.
    fn step(&mut self, read: &mut BTreeMap<PathBuf, u64>) -> Result<()> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(path) = self.files.pop_front() else { return Ok(()) };
                // It may have been rotated or deleted just now.
                if let Ok(file) = File::open(&path) {
                    let written = written(&path);
                    self.open = Some(Open { path, reader: BufReader::new(file), at: 0, written });
                }
                continue;
            };
            let Some((length, text)) = whole_line(&mut open.reader, &open.path)? else {
                read.insert(open.path.clone(), open.at);
                self.open = None;
                continue;
            };
            open.at += length;
            let own = time_of(&text, self.now);
            self.last = own.or(self.last);
            // Before the first time of a log, that of the file counts.
            let age = self.last.or(open.written);
            if self.since.is_some_and(|since| age.is_some_and(|age| age < since)) {
                continue;
            }
            self.next = Some(Next { time: self.last, is_dated: own.is_some(), text });
            return Ok(());
        }
    }
}

/// Reads the lines of a file from an offset; returns the offset after the last complete line. A file that does not
/// exist has no lines: it was rotated or deleted just now.
///
/// # Errors
/// When it cannot be read.
pub(super) fn lines(path: &Path, from: u64, each: &mut dyn FnMut(&str)) -> Result<u64> {
    let Ok(mut file) = File::open(path) else { return Ok(from) };
    let size = file.metadata().map_or(0, |about| about.len());
    if size == from {
        return Ok(from);
    }
    file.seek(SeekFrom::Start(from)).with_context(|| format!("read {}", path.display()))?;
    let (mut reader, mut at) = (BufReader::new(file), from);
    while let Some((length, text)) = whole_line(&mut reader, path)? {
        at += length;
        each(&text);
    }
    Ok(at)
}

/// The next line and its length with its end. None at the end of the file, and for half a line: it is read when it is
/// complete.
fn whole_line(reader: &mut BufReader<File>, path: &Path) -> Result<Option<(u64, String)>> {
    let mut line = Vec::new();
    let length = reader.read_until(b'\n', &mut line).with_context(|| format!("read {}", path.display()))?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line);
    Ok(Some((length as u64, text.trim_end_matches(['\r', '\n']).to_owned())))
}

fn written(path: &Path) -> Option<Timestamp> {
    Timestamp::try_from(fs::metadata(path).ok()?.modified().ok()?).ok()
}

/// Returns the time at the start of a line:
/// - `2026-01-02T15:04:05.123Z`: this program, and its agents
/// - `2026-01-02 15:04:05.123`: Calico, in the machine's time zone
/// - `2026/01/02 15:04:05`: Go programs before their own log is set up
/// - `I0102 15:04:05.123456`: kubelet and kube-proxy; the year is the one that puts it before now
pub(super) fn time_of(line: &str, now: Timestamp) -> Option<Timestamp> {
    let first = line.split_whitespace().next()?;
    if let Ok(time) = first.parse::<Timestamp>() {
        return Some(time);
    }
    let local = |text: &str| Some(text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok()?.timestamp());
    if first.len() == 5 && first.starts_with(['I', 'W', 'E', 'F']) {
        let (month, day, time) = (line.get(1..3)?, line.get(3..5)?, line.get(6..21)?);
        let year = now.to_zoned(TimeZone::system()).year();
        let of = |year: i16| local(&format!("{year:04}-{month}-{day} {time}"));
        let tomorrow = now + SignedDuration::from_hours(24);
        return of(year).filter(|time| *time <= tomorrow).or_else(|| of(year - 1));
    }
    let start = |length: usize| local(&line.get(..length)?.replacen('/', "-", 2));
    start(23).or_else(|| start(19))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-10T00:00:00Z".parse().unwrap()
    }

    /// A time of the machine's zone in UTC.
    fn local(text: &str) -> Timestamp {
        text.parse::<DateTime>().unwrap().to_zoned(TimeZone::system()).unwrap().timestamp()
    }

    #[test]
    fn each_programs_times_are_read() {
        for (line, wanted) in [
            ("2026-01-02T15:04:05.123Z calicoctl-win: starts", "2026-01-02T15:04:05.123Z".parse().unwrap()),
            ("2026-01-02 15:04:05.123 [INFO][44] felix/x.go 12: y", local("2026-01-02 15:04:05.123")),
            ("2026-01-02 15:04:05 startup", local("2026-01-02 15:04:05")),
            ("2026/01/02 15:04:05 maxprocs: leaving", local("2026-01-02 15:04:05")),
            ("I0102 15:04:05.123456    4711 server.go:12] \"Starting\"", local("2026-01-02 15:04:05.123456")),
            ("E1231 23:59:59.000000    4711 server.go:12] of last year", local("2025-12-31 23:59:59")),
        ] {
            assert_eq!(time_of(line, now()), Some(wanted), "{line}");
        }
        for line in
            ["Übung macht den Meister, sagt man ja so", "", "Info: 15:04", "I0102", "E1399 99:99:99.000000 x", "1/2"]
        {
            assert_eq!(time_of(line, now()), None, "{line}");
        }
    }

    #[test]
    fn lines_of_several_logs_are_in_the_order_of_their_times() {
        let dir = tempfile::TempDir::new().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let _rotated = write(
            "calico-felix-20260102T150003.000.log",
            "no time yet\n2026-01-02T15:00:01Z a1\n2026-01-02T15:00:03Z a3\n",
        );
        let felix = write(
            "calico-felix.log",
            "  of a3\n2026-01-02T15:00:05Z a5\n  of a5\n2026-01-02T15:00:04Z late a4\nhalf a li",
        );
        let node = write("calico-node.log", "2026-01-02T15:00:03Z b3\n  of b3\n2026-01-02T15:00:05Z b5\n");
        let logs = [felix.clone(), node];
        let said = |since: Option<&str>| {
            let mut said = Vec::new();
            let since = since.map(|text| text.parse().unwrap());
            let read = merged(&logs, since, &mut |line| {
                said.push(line.text.trim().to_owned());
                Ok(())
            });
            (said.join("|").replace("2026-01-02T15:00:0", ""), read.unwrap())
        };
        let (all, read) = said(None);
        assert_eq!(all, "no time yet|1Z a1|3Z a3|of a3|3Z b3|of b3|5Z a5|of a5|4Z late a4|5Z b5");
        assert_eq!(read[&felix], fs::metadata(&felix).unwrap().len() - 9, "half a line is read when it is complete");
        // Before the first time of a log, that of the file counts, which is written now.
        assert_eq!(said(Some("2026-01-02T15:00:04Z")).0, "no time yet|5Z a5|of a5|4Z late a4|5Z b5");
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
}
