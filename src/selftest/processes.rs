//! Processes: Ctrl-C, job objects, processes that outlive their session, and the Event Log.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{FOLDER, Program, Reach, Row, TestContext, child};
use crate::agent::os::{self, JobObject, Level};
use crate::node::probe::Probe;
use crate::node::win32;
use crate::report::answer::Answer;
use crate::values::WinPath;

const GROUP: &str = "processes";

pub const ROWS: &[Row] = &[
    Row {
        id: "CtrlC",
        group: GROUP,
        asks: "a process gets the Ctrl-C that is sent to its console, and ends by itself",
        needed_for: "Calico's programs end in order when their service stops",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: ctrl_c,
    },
    Row {
        id: "JobObject",
        group: GROUP,
        asks: "a process and those that it started end with their job object",
        needed_for: "no program of Calico runs on after its service, or has files open that a run replaces",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: job,
    },
    Row {
        id: "DetachedProcess",
        group: GROUP,
        asks: "a detached process runs in session 0 and outside of every job, so it continues when this session ends",
        needed_for: "a run with --detach, and the guard of a change on trial, continue when the session ends",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: detached,
    },
    Row {
        id: "EventLog",
        group: GROUP,
        asks: "an entry that is written to the Application log can be read there; it stays",
        needed_for: "the result of a run, and why a service does not start, are found there",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: event_log,
    },
];

/// How long a process may take for what takes a moment, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(20);

fn part(program: &Program, name: &str) -> Command {
    let mut command = Command::new(&program.path);
    command.args(["selftest", "--part", name]).args(&program.words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The lines that a process prints, and then that nobody has its output open any more.
fn lines(child: &mut Child) -> Receiver<String> {
    let (send, lines) = channel();
    if let Some(out) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}

fn exit_code(child: &mut Child) -> Result<Option<i32>> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().context("wait for a process")? {
            return Ok(Some(status.code().unwrap_or(-1)));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(None)
}

fn ctrl_c(context: &mut TestContext<'_>) -> Result<Answer> {
    let (mut child, job) = JobObject::start(&mut part(&context.program, child::CTRL_C)).context("start a process")?;
    let said = lines(&mut child);
    let ready = said.recv_timeout(LIMIT);
    let sent = job.interrupt();
    let code = exit_code(&mut child)?;
    job.kill();
    drop(child.wait());
    match (ready, sent, code) {
        (Err(_), ..) => Answer::fails("the process did not start"),
        (_, Err(error), _) => Answer::fails(format!("Ctrl-C could not be sent: {error}")),
        (.., Some(child::ENDED_BY_CTRL_C)) => Answer::holds("it ended by itself"),
        (.., Some(code)) => Answer::fails(format!("it ended with exit code {code}")),
        (.., None) => Answer::fails(format!("it still ran after {} s", LIMIT.as_secs())),
    }
}

fn job(context: &mut TestContext<'_>) -> Result<Answer> {
    let (mut child, job) = JobObject::start(&mut part(&context.program, child::TREE)).context("start a process")?;
    let said = lines(&mut child);
    let ready = said.recv_timeout(LIMIT);
    drop(job);
    let ended = exit_code(&mut child)?;
    if ended.is_none() {
        drop(child.kill().and_then(|()| child.wait()));
    }
    // The second process has the output open as long as it runs.
    let both = said.recv_timeout(LIMIT) == Err(RecvTimeoutError::Disconnected);
    match (ready, ended) {
        (Err(_), _) => Answer::fails("the process did not start"),
        (_, None) => Answer::fails("the process runs on after its job object"),
        (_, Some(_)) => Answer::of(both, "both ended", "the process that it started runs on after the job object"),
    }
}

fn detached(context: &mut TestContext<'_>) -> Result<Answer> {
    let file = context.node.disk(&WinPath::known(FOLDER).join("place"));
    let mut part = part(&context.program, child::PLACE);
    part.env(child::SAYS_IN, &file).stdout(Stdio::null());
    if let Err(error) = os::outlive(&mut part, context.program.real) {
        return Answer::fails(format!("it is not started: {error}"));
    }
    let begun = Instant::now();
    let place = loop {
        match fs::read_to_string(&file) {
            Ok(place) => break place,
            Err(_) if begun.elapsed() < LIMIT => thread::sleep(Duration::from_millis(10)),
            Err(_) => return Answer::fails("the process did not start"),
        }
    };
    // A sandbox's run stays in the session that began it.
    let outlives = place.ends_with("job=false") && (!context.program.real || place.starts_with("session=0 "));
    Answer::of(outlives, place.clone(), format!("{place}: it ends with this session, or with its job"))
}

fn event_log(context: &mut TestContext<'_>) -> Result<Answer> {
    let mark = format!("calicoctl-win selftest {}", context.node.now().as_nanosecond());
    if context.program.real {
        os::event_log(Level::Information, &format!("{mark}: proves that entries are kept; nothing was changed"));
    }
    let probe = Probe::FindEvent(mark);
    let mut found = context.node.probe(&probe)?;
    // The Event Log's service writes it a moment later.
    for _ in 0..50 {
        if found.is_none() {
            break;
        }
        context.node.pause(Duration::from_millis(100));
        found = context.node.probe(&probe)?;
    }
    match found {
        None => Answer::holds("found again"),
        Some(win32::NOT_FOUND) => Answer::fails("an entry that was written is not there"),
        Some(code) => Answer::fails(format!("the log cannot be read (Windows error {code})")),
    }
}
