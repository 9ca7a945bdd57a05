//! Lines for stdout. A session that drops while the virtual switch is rebuilt leaves a pipe without a reader: printing
//! must not delay the change then.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// How long to wait until a line is read before the reader counts as gone. While there is a reader, a line is printed
/// before the run continues.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of waiting lines from which on progress is left out.
const QUEUE_LIMIT: usize = 256;

/// What happens to a line that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// It may be left out: another one follows.
    Progress,
    /// It waits.
    Normal,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    /// A line is being written.
    writing: bool,
    /// No line was read for [`READER_TIMEOUT`].
    stalled: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && !self.writing
    }
}

/// Lines and the thread that writes them.
pub struct StdoutQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl StdoutQueue {
    /// Starts the thread that writes to `to`; none if it does not start.
    fn new(to: Box<dyn Write + Send>) -> Option<Arc<Self>> {
        let stdout = Arc::new(Self { queue: Mutex::default(), changed: Condvar::new() });
        let own = Arc::clone(&stdout);
        thread::Builder::new().name("stdout".into()).spawn(move || own.write(to)).ok().map(|_| stdout)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut to: Box<dyn Write + Send>) {
        let mut queue = self.queue();
        loop {
            let Some(line) = queue.lines.pop_front() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.writing = true;
            drop(queue);
            let _session_may_be_gone = writeln!(to, "{line}").and_then(|()| to.flush());
            queue = self.queue();
            queue.writing = false;
            queue.stalled &= !queue.is_empty();
            self.changed.notify_all();
        }
    }

    /// Adds a line, and waits until it is written if there is a reader.
    fn line(&self, line: &str, priority: Priority) {
        let mut queue = self.queue();
        if priority == Priority::Progress && queue.lines.len() >= QUEUE_LIMIT {
            return;
        }
        queue.lines.push_back(line.to_owned());
        self.changed.notify_all();
        if queue.stalled {
            return;
        }
        let waited =
            self.changed.wait_timeout_while(queue, READER_TIMEOUT, |queue| !queue.is_empty() && !queue.stalled);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.stalled |= !queue.is_empty();
        // Others do not wait for the same.
        self.changed.notify_all();
    }

    /// Waits until everything is written: a reader that pauses must get the end of the output whole.
    fn flush(&self) {
        let out = self.changed.wait_while(self.queue(), |queue| !queue.is_empty());
        drop(out.unwrap_or_else(PoisonError::into_inner));
    }
}

static STDOUT: OnceLock<Option<Arc<StdoutQueue>>> = OnceLock::new();

/// Prints a line to stdout without a long delay.
pub fn line(line: &str, priority: Priority) {
    match STDOUT.get_or_init(|| StdoutQueue::new(Box::new(std::io::stdout()))) {
        Some(stdout) => stdout.line(line, priority),
        None => last(line),
    }
}

/// Prints a line to stdout after all others, a result or a document, and waits for its reader.
pub fn last(line: &str) {
    flush();
    let mut out = std::io::stdout().lock();
    let _session_may_be_gone = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Waits until all lines are written.
pub fn flush() {
    if let Some(Some(stdout)) = STDOUT.get() {
        stdout.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    use super::*;

    /// A pipe whose reader takes what is sent after `resume`.
    struct Pipe {
        resume: Receiver<()>,
        reads: Sender<String>,
        open: bool,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.open {
                self.resume.recv().map_err(io::Error::other)?;
                self.open = true;
            }
            self.reads.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_up_nothing_and_loses_progress_only() {
        let ((go, resume), (reads, read)) = (channel(), channel());
        let stdout = StdoutQueue::new(Box::new(Pipe { resume, reads, open: false })).unwrap();
        let begun = Instant::now();
        for n in 0..5000 {
            stdout.line(&format!("waiting {n}"), Priority::Progress);
            if n % 100 == 0 {
                stdout.line(&format!("phase {n}"), Priority::Normal);
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "one wait, not five thousand");
        go.send(()).unwrap();
        stdout.flush();
        let all: String = read.try_iter().collect();
        let count = |word: &str| all.lines().filter(|line| line.starts_with(word)).count();
        assert_eq!(count("phase "), 50, "every phase is told");
        assert!((1..=QUEUE_LIMIT).contains(&count("waiting ")), "{}", count("waiting "));
    }

    #[test]
    fn with_a_reader_a_line_is_out_before_its_sender_continues() {
        let ((go, resume), (reads, read)) = (channel(), channel());
        go.send(()).unwrap();
        let stdout = StdoutQueue::new(Box::new(Pipe { resume, reads, open: false })).unwrap();
        stdout.line("one", Priority::Normal);
        assert!(read.try_iter().collect::<String>().starts_with("one"));
    }
}
