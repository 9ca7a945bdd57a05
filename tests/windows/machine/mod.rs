//! A Windows machine to run the executable on: this one, or a Wine prefix per test.

#[cfg(windows)]
mod real;
#[cfg(not(windows))]
mod wine;

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The time limit of everything that needs no wait of ours. A machine under load is slow.
pub const SOON: Duration = Duration::from_secs(90);

/// One fresh machine. Under Wine it is a clone of the prepared prefix, switched off when dropped.
pub struct Machine {
    exe: PathBuf,
    /// Its own folder: with Wine the prefix, on Windows an empty one.
    root: TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// All 32 bits.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A process of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// For [`Machine::kill`]; under Wine the pid in Linux.
    pub pid: u32,
    /// File name of its program.
    pub image: String,
    pub command_line: String,
}

impl Ended {
    fn new(code: i32, output: Output) -> Self {
        Self {
            code,
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The one JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| {
            panic!("exit {}: stdout is not one JSON document: {e}\n{}\n{}", self.code, self.stdout, self.stderr)
        })
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }
}

impl Machine {
    /// None, with a printed explanation, if there is neither Windows nor a prepared Wine prefix.
    pub fn new() -> Option<Self> {
        Self::fresh()
    }

    /// A path on the machine, existing or not, in the form for the executable.
    pub fn path(&self, name: &str) -> String {
        Self::as_seen_inside(&self.disk().join(name), name)
    }

    /// Writes a file to the machine; returns its path in the form for the executable.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        write(&self.disk().join(name), contents);
        self.path(name)
    }

    /// Writes a file to drive C, which on Windows is not in the test's own folder.
    pub fn file_on_c(&self, path: &str, contents: impl AsRef<[u8]>) {
        write(&self.c(path), contents);
    }

    /// Runs the executable like a script: no terminal, none of our variables.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Ended {
        self.run_program(&self.exe.to_string_lossy(), args)
    }

    /// Runs another program of the machine.
    #[track_caller]
    pub fn run_program(&self, program: &str, args: &[&str]) -> Ended {
        let (mut command, code) = self.command_with_code(program);
        command.args(args);
        let output = self.output(&mut command);
        Ended::new(code(&output), output)
    }

    /// Runs a command to its end. Without pipes: a process that it left behind may keep them open, and this would wait
    /// for it.
    fn output(&self, command: &mut Command) -> Output {
        self.output_with(Stdio::null(), command)
    }

    fn output_with(&self, stdin: Stdio, command: &mut Command) -> Output {
        let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile_in(self.root.path()).unwrap());
        let (out, err) = (stdout.try_clone().unwrap(), stderr.try_clone().unwrap());
        let status = command.stdin(stdin).stdout(out).stderr(err).status().unwrap();
        let [stdout, stderr] = [&mut stdout, &mut stderr].map(|file| {
            let mut said = Vec::new();
            file.rewind().unwrap();
            let _length = file.read_to_end(&mut said).unwrap();
            said
        });
        Output { status, stdout, stderr }
    }

    /// Starts the executable without waiting for it. Its output goes to the file `said`.
    pub fn start(&self, args: &[&str], said: &str) -> Child {
        self.start_program(&self.exe.to_string_lossy(), args, said)
    }

    /// Starts a program without waiting for it. Its output goes to the file `said`.
    pub fn start_program(&self, program: &str, args: &[&str], said: &str) -> Child {
        let said = File::create(self.disk().join(said)).unwrap();
        let mut command = self.command(program);
        command.args(args).stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    /// Runs it from a batch line, and returns the `%ERRORLEVEL%` there.
    pub fn code_seen_by_cmd(&self, args: &[&str]) -> i32 {
        let line = format!("{} {} >nul 2>nul & echo !errorlevel!", self.exe_inside(), args.join(" "));
        let ended = self.run_program("cmd", &["/v:on", "/c", &line]);
        let said = ended.stdout.trim();
        said.parse().unwrap_or_else(|_| panic!("cmd said `{said}`: {}", ended.stderr))
    }

    /// The executable under test.
    #[cfg(not(windows))]
    pub fn exe(&self) -> &Path {
        &self.exe
    }

    /// The processes whose program has this file name.
    pub fn processes_of(&self, image: &str) -> Vec<Process> {
        self.processes().into_iter().filter(|process| process.image.eq_ignore_ascii_case(image)).collect()
    }

    /// Waits until no process has a program of this file name: one that has ended may still be listed for a moment.
    #[track_caller]
    pub fn until_gone(&self, image: &str) {
        eventually(&format!("{image} to be gone"), SOON, || self.processes_of(image).is_empty().then_some(()));
    }
}

fn write(path: &Path, contents: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

/// Polls until `look` returns something; fails at the `limit`.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    eventually_every(Duration::from_millis(50), what, limit, look)
}

/// The same with another pause between two polls: some are expensive.
#[track_caller]
pub fn eventually_every<T>(pause: Duration, what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < limit, "waited {} s for {what}", limit.as_secs());
        std::thread::sleep(pause);
    }
}
