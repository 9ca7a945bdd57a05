//! The components' log files: rotated by size and age while they are written, a limited number of them kept, and never
//! a reason for a component to stop.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Role;
use crate::node::{Node, files};

/// When a file is rotated, and how many rotated files are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes after which a file is rotated at the end of a line.
    pub size: u64,
    pub age: Duration,
    /// Rotated files of one log.
    pub files: usize,
    /// Bytes of them together.
    pub total: u64,
}

impl Default for Limits {
    /// 10 MB or a day, as in the services of the scripts.
    fn default() -> Self {
        Self { size: 10 << 20, age: Duration::from_secs(24 * 3600), files: 5, total: 50 << 20 }
    }
}

/// How much of a log's end is read for its last lines.
const TAIL: u64 = 16 * 1024;

/// The last lines that a role's program wrote, for an error: the log itself may be gone later, and from v3.33 on node
/// startup writes to the error log.
pub fn last_words(node: &dyn Node, role: Role) -> Vec<String> {
    let Ok(config) = super::read_config(node) else { return Vec::new() };
    let log = |end: &str| node.disk(&config.log_dir.join(&format!("{}{end}", role.log())));
    let written = |path: &PathBuf| fs::metadata(path).and_then(|about| about.modified()).ok();
    let mut logs = [log(".log"), log(".err.log")];
    logs.sort_by_key(|path| std::cmp::Reverse(written(path)));
    logs.iter().map(|path| tail(path).unwrap_or_default()).find(|lines| !lines.is_empty()).unwrap_or_default()
}

/// The last three lines of a log that the component wrote, none longer than a screen shows.
fn tail(path: &Path) -> io::Result<Vec<String>> {
    let text = files::end_of(path, TAIL)?;
    let theirs = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(" calicoctl-win: "));
    let mut lines: Vec<String> = theirs.rev().take(3).map(|line| line.chars().take(300).collect()).collect();
    lines.reverse();
    Ok(lines)
}

/// How long after a failed write the next one is tried.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

/// How many bytes of the agent's messages wait for the component to end its line.
const ASIDE: usize = 16 * 1024;

/// One log, for example `calico-felix.log`. Writes go to the file at once; nothing is buffered.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    limits: Limits,
    open: Option<Open>,
    lost: Lost,
    /// The agent's messages that wait for the end of the component's line.
    aside: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
    since: Timestamp,
    /// The last byte ended a line.
    whole: bool,
}

/// What could not be written since the last successful write.
#[derive(Debug, Default)]
struct Lost {
    bytes: u64,
    /// The reason of the first failure.
    why: String,
    retry: Option<Timestamp>,
    /// The start of the current line was dropped, so drop the rest.
    mid_line: bool,
}

impl LogFile {
    /// A log in `folder`. Nothing is opened before the first write.
    pub fn new(folder: &Path, name: &str, limits: Limits) -> Self {
        Self { path: folder.join(name), limits, open: None, lost: Lost::default(), aside: Vec::new() }
    }

    /// Bytes that could not be written since the last successful write.
    pub const fn dropped(&self) -> u64 {
        self.lost.bytes
    }

    /// Appends a component's output. What cannot be written is counted and dropped.
    pub fn write(&mut self, bytes: &[u8], now: Timestamp) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(from) = self.ready(rest, now) else { return };
            rest = &rest[from..];
            let take = self.until_rotation(rest);
            let piece = &rest[..take];
            match self.put(piece) {
                Ok(()) => rest = &rest[take..],
                Err(error) => return self.lose(rest, &error, now),
            }
            self.flush_aside();
        }
    }

    /// Appends a line of the agent, after the component's current line.
    pub fn say(&mut self, line: &str, now: Timestamp) {
        let line = format!("{now:.3} calicoctl-win: {}\n", line.replace('\n', " "));
        if self.open.as_ref().is_some_and(|open| !open.whole) {
            if self.aside.len() + line.len() <= ASIDE {
                self.aside.extend_from_slice(line.as_bytes());
            }
            return;
        }
        let mid_line = std::mem::take(&mut self.lost.mid_line);
        self.write(line.as_bytes(), now);
        self.lost.mid_line |= mid_line;
    }

    /// The component ended: completes a line that it did not end.
    pub fn end(&mut self, now: Timestamp) {
        self.lost.mid_line = false;
        if self.open.as_ref().is_some_and(|open| !open.whole) {
            self.write(b"\n", now);
        }
    }

    /// Prepares the file for some bytes, and returns how many of them to leave out. None if it cannot be written now.
    fn ready(&mut self, bytes: &[u8], now: Timestamp) -> Option<usize> {
        if self.lost.retry.is_some_and(|retry| now < retry && retry.duration_since(now) <= RETRY) {
            self.drop_bytes(bytes);
            return None;
        }
        let due = self.open.as_ref().is_some_and(|open| {
            open.whole
                && (open.size >= self.limits.size
                    || SignedDuration::try_from(self.limits.age).is_ok_and(|age| now.duration_since(open.since) >= age))
        });
        if due {
            self.rotate(now);
        }
        if let Err(error) = self.open_file(now) {
            self.lose(bytes, &error, now);
            return None;
        }
        let mut from = 0;
        if self.lost.bytes > 0 {
            if self.lost.mid_line {
                match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(at) => from = at + 1,
                    None => {
                        self.drop_bytes(bytes);
                        return None;
                    }
                }
                self.lost.bytes += from as u64;
            }
            let torn = self.open.as_ref().is_some_and(|open| !open.whole);
            let note = format!(
                "{}{now:.3} calicoctl-win: {} bytes of this log are missing here: {}\n",
                if torn { "\n" } else { "" },
                self.lost.bytes,
                self.lost.why
            );
            if let Err(error) = self.put(note.as_bytes()) {
                self.lose(&bytes[from..], &error, now);
                return None;
            }
            self.lost = Lost::default();
        }
        Some(from)
    }

    /// How much may be written before the file must be rotated, so that no line is split.
    fn until_rotation(&self, bytes: &[u8]) -> usize {
        // The same for the agent's messages that wait for the end of the line.
        let full = if self.aside.is_empty() { self.limits.size } else { 0 };
        let left = self.open.as_ref().map_or(0, |open| full.saturating_sub(open.size));
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let end_of_line = bytes.iter().skip(left).position(|byte| *byte == b'\n');
        end_of_line.map_or(bytes.len(), |at| left + at + 1)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = match open.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            open.size += n as u64;
            open.whole = rest[n - 1] == b'\n';
            rest = &rest[n..];
        }
        Ok(())
    }

    fn flush_aside(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.whole) && !self.aside.is_empty() {
            let aside = std::mem::take(&mut self.aside);
            // A failure here recurs, and is counted, at the component's next line.
            drop(self.put(&aside));
        }
    }

    fn lose(&mut self, bytes: &[u8], error: &io::Error, now: Timestamp) {
        if self.lost.bytes == 0 {
            self.lost.why = error.to_string();
        }
        self.lost.retry = Some(now + RETRY);
        // The next attempt opens it again: the folder may be another one by then.
        let torn = self.open.take().is_some_and(|open| !open.whole);
        self.lost.mid_line |= torn;
        self.drop_bytes(bytes);
    }

    fn drop_bytes(&mut self, bytes: &[u8]) {
        self.lost.bytes += bytes.len() as u64;
        if let Some(last) = bytes.last() {
            self.lost.mid_line = *last != b'\n';
        }
    }

    fn open_file(&mut self, now: Timestamp) -> io::Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        // Only the folder itself: install creates those above it, with their access rights.
        if let Some(folder) = self.path.parent()
            && !folder.is_dir()
        {
            fs::create_dir(folder)?;
        }
        let file = File::options().create(true).append(true).open(&self.path)?;
        let about = file.metadata()?;
        // Not the creation time: NTFS gives a new file that of one of the same name that was renamed a moment before.
        let written = about.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        let since = if about.len() == 0 { now } else { written.unwrap_or(now) };
        let whole = about.len() == 0 || ends_a_line(&self.path)?;
        self.open = Some(Open { file, size: about.len(), since, whole });
        self.prune();
        if !whole {
            // A power cut left an incomplete line.
            self.put(b"\n")?;
        }
        Ok(())
    }

    /// Rotates the file to the name that NSSM would have given it. It stays open until it has that name, so that no line
    /// is lost if another process does not let it be renamed: Windows requires `FILE_SHARE_DELETE` of every process that
    /// has it open (this one has it), and fails with "sharing violation" (32) or "access is denied" (5) without.
    fn rotate(&mut self, now: Timestamp) {
        let mut to = (0..1000).map(|n| aside_name(&self.path, now + SignedDuration::from_millis(n)));
        let renamed = to.find(|to| !to.exists()).map(|to| fs::rename(&self.path, to));
        match renamed {
            Some(Ok(())) => self.open = None,
            // Somebody removed or renamed it: the next write creates a new one.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => self.open = None,
            _ => self.postpone_rotation(now),
        }
    }

    /// Lets a file that cannot be rotated grow by another tenth.
    fn postpone_rotation(&mut self, now: Timestamp) {
        let extra = self.limits.size / 10;
        if let Some(open) = &mut self.open {
            open.size = self.limits.size.saturating_sub(extra);
            open.since = now;
        }
    }

    /// Removes the oldest files beyond the limits.
    fn prune(&self) {
        let mut kept = rotated_files(&self.path);
        kept.reverse();
        let mut total = 0;
        for (n, path) in kept.iter().enumerate() {
            total += fs::metadata(path).map_or(0, |about| about.len());
            if n >= self.limits.files || total > self.limits.total {
                // The next time, if it is open now.
                drop(fs::remove_file(path));
            }
        }
    }
}

fn ends_a_line(path: &Path) -> io::Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// `calico-felix.err.log` rotated at a time: `calico-felix.err-20260102T150405.678.log`.
fn aside_name(path: &Path, at: Timestamp) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".log").unwrap_or(&name);
    let time = at.strftime("%Y%m%dT%H%M%S.%3f");
    path.with_file_name(format!("{stem}-{time}.log"))
}

/// The rotated files of a log, oldest first: `calico-felix.err-20260102T150405.678.log`.
pub fn rotated_files(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let prefix = format!("{}-", name.strip_suffix(".log").unwrap_or(&name));
    let is_time =
        |text: &str| text.len() >= 15 && text.chars().all(|c| c.is_ascii_digit() || c == 'T' || c == '.' || c == '-');
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".log")).is_some_and(is_time)
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ours).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::calico::agent_config::{AgentConfig, Command};
    use crate::calico::testing;
    use crate::node::sandbox::SandboxNode;
    use crate::values::WinPath;

    const SMALL: Limits = Limits { size: 100, age: Duration::from_secs(3600), files: 3, total: 1000 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn all(folder: &Path) -> Vec<(String, String)> {
        let mut files = rotated_files(&folder.join("calico-felix.log"));
        files.push(folder.join("calico-felix.log"));
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap_or_default())).collect()
    }

    /// From v3.33 on node startup writes to stderr, and the other log has only the agent's own lines.
    #[test]
    fn the_last_words_of_node_startup_may_be_in_its_error_log() {
        let dir = TempDir::new().unwrap();
        let node = SandboxNode::open(dir.path()).unwrap();
        let program = WinPath::known(r"C:\CalicoWindows\calico.exe");
        let command = Command { dir: WinPath::known(r"C:\CalicoWindows"), program, args: Vec::new(), env: [].into() };
        let config = testing::agent(&command);
        let write = |path: &WinPath, text: &str| {
            let file = node.disk(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(&WinPath::known(AgentConfig::PATH), &serde_json::to_string(&config).unwrap());
        write(&config.log_dir.join("calico-node.err.log"), "first\nno right to get nodes\n");
        write(
            &config.log_dir.join("calico-node.log"),
            "2026-01-02T15:04:05Z calicoctl-win: node startup exited with 1\n",
        );
        assert_eq!(last_words(&node, Role::Node), ["first", "no right to get nodes"]);
    }

    #[test]
    fn a_full_file_is_rotated_between_two_lines_and_few_are_kept() {
        let dir = TempDir::new().unwrap();
        let mut log = LogFile::new(dir.path(), "calico-felix.log", SMALL);
        let text: String = (0..60).map(|n| format!("line {n:02} of the component\n")).collect();
        // In pieces that end in the middle of lines.
        for (n, piece) in text.as_bytes().chunks(37).enumerate() {
            log.write(piece, at(n as i64));
        }
        let files = all(dir.path());
        assert_eq!(files.len(), 4, "three rotated, and the current one: {files:?}");
        for (name, text) in &files {
            assert!(text.len() <= 125 && text.ends_with('\n') && text.starts_with("line "), "{name}: {text}");
        }
        let kept: String = files.iter().map(|(_, text)| text.as_str()).collect();
        assert!(text.ends_with(&kept), "the newest lines, none lost between files");
        assert!(files[0].0.starts_with("calico-felix-20270115T08"), "{}", files[0].0);
    }

    /// A log shipper, a virus scanner, `Get-Content -Wait`: Windows does not rename a file that a process has open
    /// without `FILE_SHARE_DELETE`.
    #[cfg(windows)]
    #[test]
    fn no_line_is_lost_if_a_reader_blocks_the_rotation() {
        use std::os::windows::fs::OpenOptionsExt;
        const SHARE_READ_WRITE: u32 = 1 | 2;
        let dir = TempDir::new().unwrap();
        let mut log = LogFile::new(dir.path(), "calico-felix.log", Limits { files: 20, total: 10_000, ..SMALL });
        let lines: Vec<String> = (0..60).map(|n| format!("line {n:02} of the component\n")).collect();
        log.write(lines[0].as_bytes(), at(0));
        let path = dir.path().join("calico-felix.log");
        let reader = File::options().read(true).share_mode(SHARE_READ_WRITE).open(&path).unwrap();
        for (n, line) in lines[1..40].iter().enumerate() {
            log.write(line.as_bytes(), at(n as i64));
            assert_eq!(log.dropped(), 0, "at line {n}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), lines[..40].concat(), "it keeps growing");
        drop(reader);
        for line in &lines[40..] {
            log.write(line.as_bytes(), at(100));
        }
        let files = all(dir.path());
        assert!(files.len() > 1, "and is rotated when the reader has closed it");
        assert_eq!(files.iter().map(|(_, text)| text.as_str()).collect::<String>(), lines.concat());
    }

    #[test]
    fn a_file_is_rotated_after_a_day() {
        let dir = TempDir::new().unwrap();
        let mut log = LogFile::new(dir.path(), "calico-felix.log", SMALL);
        log.write(b"old\n", at(0));
        log.write(b"still\n", at(3599));
        log.write(b"new\n", at(3600));
        let texts: Vec<String> = all(dir.path()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["old\nstill\n", "new\n"]);
    }

    #[test]
    fn the_kept_bytes_are_limited_too() {
        let dir = TempDir::new().unwrap();
        let mut log = LogFile::new(dir.path(), "calico-felix.log", Limits { total: 210, ..SMALL });
        for second in 0..30 {
            log.write(&[[b'x'; 50].as_slice(), b"\n"].concat(), at(second));
        }
        assert_eq!(rotated_files(&dir.path().join("calico-felix.log")).len(), 2);
    }

    /// A folder that cannot be created, because a file has its name, represents a full disk and a folder without write
    /// access.
    #[test]
    fn dropped_bytes_are_counted_and_reported_after_the_next_write() {
        let dir = TempDir::new().unwrap();
        let folder = dir.path().join("logs");
        fs::write(&folder, "").unwrap();
        let mut log = LogFile::new(&folder, "calico-felix.log", SMALL);
        log.write(b"lost\nhalf a l", at(0));
        log.say("lost too", at(0));
        assert!(log.dropped() > 13);
        fs::remove_file(&folder).unwrap();
        log.write(b"ine\nwhole\n", at(2));
        let text = fs::read_to_string(folder.join("calico-felix.log")).unwrap();
        let (note, rest) = text.split_once('\n').unwrap();
        assert!(note.contains(" bytes of this log are missing here: "), "{note}");
        assert_eq!((rest, log.dropped()), ("whole\n", 0), "an incomplete line does not count");
    }

    #[test]
    fn the_agents_messages_are_between_the_components_lines() {
        let dir = TempDir::new().unwrap();
        let mut log = LogFile::new(dir.path(), "calico-felix.log", Limits::default());
        log.write(b"first ha", at(0));
        log.say("hello", at(0));
        log.write(b"lf\nsecond", at(1));
        log.end(at(1));
        assert_eq!(
            fs::read_to_string(dir.path().join("calico-felix.log")).unwrap(),
            "first half\n2027-01-15T08:00:00.000Z calicoctl-win: hello\nsecond\n"
        );
    }

    #[test]
    fn an_incomplete_line_from_before_a_power_cut_is_ended() {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("calico-felix.log"), "torn").unwrap();
        LogFile::new(dir.path(), "calico-felix.log", Limits::default()).write(b"next\n", Timestamp::now());
        assert_eq!(fs::read_to_string(dir.path().join("calico-felix.log")).unwrap(), "torn\nnext\n");
    }
}
