//! One of Calico's processes: started with its environment, its output written to the logs, ended with its children.

use std::io::Read;
use std::process::{self, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::Role;
use super::log_watch::LogWatch;
use super::logs::LogFile;
use super::os::JobObject;
use super::stop::Stop;
use crate::calico::agent_config::Command;
use crate::node::Node;

/// How long a killed process may take to end, and its output to be read.
const GONE: Duration = Duration::from_secs(5);

/// How much is read at once. A log keeps no more in memory.
const PIECE: usize = 64 * 1024;

/// How much of a line is watched.
const LINE: usize = 1024;

/// The two logs of a component.
#[derive(Debug, Clone)]
pub struct Streams {
    out: Arc<Mutex<LogFile>>,
    err: Arc<Mutex<LogFile>>,
    watch: Arc<Mutex<LogWatch>>,
}

impl Streams {
    pub fn new(role: Role, out: LogFile, err: LogFile) -> Self {
        let watch = LogWatch::new(role, Instant::now());
        Self { out: Arc::new(Mutex::new(out)), err: Arc::new(Mutex::new(err)), watch: Arc::new(Mutex::new(watch)) }
    }

    /// Appends a line of the agent.
    pub fn say(&self, line: &str) {
        locked(&self.out).say(line, Timestamp::now());
    }

    /// What the component has logged since its start.
    pub fn watch(&self) -> MutexGuard<'_, LogWatch> {
        locked(&self.watch)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exit code, once there is one, and the condition variable for it.
type Exit = Arc<(Mutex<Option<i32>>, Condvar)>;

/// A process that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    pid: u32,
    job: Option<JobObject>,
    exit: Exit,
    /// Reports when each log has been read to its end.
    pumps: mpsc::Receiver<()>,
}

impl Running {
    /// Starts a command. Its own variables are added to those of this process. Wakes `stop`'s waiters when it ends.
    ///
    /// # Errors
    /// When the program does not exist or is not a program.
    pub fn start(node: &dyn Node, command: &Command, streams: &Streams, stop: &Stop) -> Result<Self> {
        let mut start = process::Command::new(node.disk(&command.program));
        start.args(&command.args).current_dir(node.disk(&command.dir)).envs(&command.env);
        start.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, job) =
            JobObject::start(&mut start).with_context(|| format!("start {} in {}", command.program, command.dir))?;
        let (done, pumps) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            pump(out, &streams.out, &streams.watch, done.clone());
        }
        if let Some(err) = child.stderr.take() {
            pump(err, &streams.err, &streams.watch, done);
        }
        let (pid, exit) = (child.id(), Exit::default());
        let (known, stop) = (Arc::clone(&exit), stop.clone());
        thread::spawn(move || {
            let code = child.wait().map_or(-1, |status| code_of(&status));
            *locked(&known.0) = Some(code);
            known.1.notify_all();
            stop.ring();
        });
        Ok(Self { pid, job: Some(job), exit, pumps })
    }

    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its exit code; none while it runs.
    pub fn code(&self) -> Option<i32> {
        *locked(&self.exit.0)
    }

    /// Requests that it ends, waits for `grace`, then kills it with its children. Returns the exit code.
    pub fn end(self, grace: Duration) -> i32 {
        if let Some(job) = &self.job
            && self.code().is_none()
            && (job.interrupt().is_err() || self.exit_within(grace).is_none())
        {
            job.kill();
            self.exit_within(GONE);
        }
        self.reaped()
    }

    /// Cleans up after one that has ended: kills its remaining children and reads the rest of its output.
    pub fn reaped(mut self) -> i32 {
        // First, since a grandchild may keep the pipe open.
        drop(self.job.take());
        let begun = Instant::now();
        for _ in 0..2 {
            // If a pipe is still open, its thread continues to read; nobody waits for it.
            let _done_or_given_up = self.pumps.recv_timeout(GONE.saturating_sub(begun.elapsed()));
        }
        self.code().unwrap_or(-1)
    }

    fn exit_within(&self, limit: Duration) -> Option<i32> {
        let (code, bell) = &*self.exit;
        let (code, _) =
            bell.wait_timeout_while(locked(code), limit, |code| code.is_none()).unwrap_or_else(PoisonError::into_inner);
        *code
    }
}

/// Copies output into a log, until its end, and shows its lines to `watch`.
fn pump(
    mut from: impl Read + Send + 'static,
    to: &Arc<Mutex<LogFile>>,
    watch: &Arc<Mutex<LogWatch>>,
    done: mpsc::Sender<()>,
) {
    let (to, watch) = (Arc::clone(to), Arc::clone(watch));
    thread::spawn(move || {
        let (mut piece, mut line) = (vec![0; PIECE], Vec::new());
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => {
                    locked(&to).write(&piece[..n], Timestamp::now());
                    for part in piece[..n].split_inclusive(|byte| *byte == b'\n') {
                        let room = LINE - line.len();
                        line.extend_from_slice(&part[..part.len().min(room)]);
                        if part.ends_with(b"\n") {
                            locked(&watch).line(String::from_utf8_lossy(&line).trim_end(), Instant::now());
                            line.clear();
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        locked(&to).end(Timestamp::now());
        let _nobody_may_wait_any_more = done.send(());
    });
}

#[cfg(windows)]
fn code_of(status: &process::ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}

/// For a process ended by a signal, the code that a shell uses.
#[cfg(not(windows))]
fn code_of(status: &process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
