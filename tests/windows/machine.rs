//! A Windows machine to run the executable on: this one, or a Wine prefix of its own per test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// One fresh machine. Under Wine it is a clone of the prepared prefix, switched off when dropped.
pub struct Machine {
    exe: PathBuf,
    /// A folder of its own: with Wine the prefix, on Windows an empty one.
    root: TempDir,
}

/// How a run ended.
pub struct Ended {
    /// As the parent saw it. Wine gives only its low byte; see [`Machine::code_seen_by_cmd`].
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The one JSON document on stdout.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("stdout is not one JSON document: {e}\n{}\n{}", self.stdout, self.stderr))
    }
}

impl Machine {
    /// None, said in a plain sentence, where there is neither Windows nor a prepared Wine prefix.
    pub fn new() -> Option<Self> {
        Self::fresh()
    }

    /// A path on the machine, there or not, as the executable is to be given it.
    pub fn path(&self, name: &str) -> String {
        Self::as_seen_inside(&self.disk().join(name), name)
    }

    /// Puts a file on the machine; its path as the executable is to be given it.
    pub fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.disk().join(name), text).unwrap();
        self.path(name)
    }

    /// Runs the executable, as a script would: no terminal, none of our variables.
    pub fn run(&self, args: &[&str]) -> Ended {
        let mut command = self.command(&self.exe.to_string_lossy());
        command.args(args);
        ended(command.output())
    }

    /// Starts the executable and does not wait for it. What it says goes to the file `said`.
    pub fn start(&self, args: &[&str], said: &str) -> Child {
        let said = File::create(self.disk().join(said)).unwrap();
        let mut command = self.command(&self.exe.to_string_lossy());
        command.args(args).stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    /// Runs it from a batch line, and says which `%ERRORLEVEL%` that saw: all 32 bits, also under
    /// Wine, whose own exit code has 8.
    pub fn code_seen_by_cmd(&self, args: &[&str]) -> i32 {
        let mut command = self.command("cmd");
        let line = format!("{} {} >nul 2>nul & echo !errorlevel!", self.exe_inside(), args.join(" "));
        command.args(["/v:on", "/c", &line]);
        let ended = ended(command.output());
        let said = ended.stdout.trim();
        said.parse().unwrap_or_else(|_| panic!("cmd said `{said}`: {}", ended.stderr))
    }
}

fn ended(output: std::io::Result<Output>) -> Ended {
    let output = output.unwrap();
    Ended {
        code: output.status.code().expect("it ended by itself"),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[cfg(windows)]
impl Machine {
    fn fresh() -> Option<Self> {
        Some(Self { exe: PathBuf::from(env!("CARGO_BIN_EXE_calicoctl-win")), root: TempDir::new().unwrap() })
    }

    /// Where the test finds what it puts on the machine.
    pub fn disk(&self) -> PathBuf {
        self.root.path().to_owned()
    }

    fn as_seen_inside(path: &Path, _name: &str) -> String {
        path.to_str().expect("the temporary folder's name is text").to_owned()
    }

    fn exe_inside(&self) -> String {
        self.exe.to_str().expect("the executable's name is text").to_owned()
    }

    /// What a power cut is to one process.
    pub fn power_off(&self, mut running: Child) {
        running.kill().unwrap();
        running.wait().unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CALICO_WIN")) {
            command.env_remove(name);
        }
        command
    }
}

#[cfg(not(windows))]
impl Machine {
    #[expect(clippy::print_stderr, reason = "who runs the tests is to know what they did not")]
    fn fresh() -> Option<Self> {
        let (Some(exe), Some(template)) = (variable("CALICOCTL_WIN_EXE"), variable("CALICOCTL_WIN_WINE_PREFIX")) else {
            eprintln!("skipped: packaging/test.sh builds the .exe and runs this under Wine");
            return None;
        };
        // Beside the template, so that hard links reach.
        let root = TempDir::with_prefix_in("prefix-", template.parent().expect("a prefix lies in a folder")).unwrap();
        clone(&template, root.path());
        let machine = Self { exe, root };
        machine.power_on();
        Some(machine)
    }

    /// Switched on before it is used, and kept on: what the first program starts would hold on to
    /// the pipes that its output comes through.
    fn power_on(&self) {
        quietly(self.wine("wineserver").arg("-p"));
        quietly(self.command("cmd").args(["/c", "exit"]));
    }

    /// Cuts the power, and gives it again.
    pub fn power_off(&self, mut running: Child) {
        for option in ["-k", "-w"] {
            quietly(self.wine("wineserver").arg(option));
        }
        running.wait().unwrap();
        self.power_on();
    }

    /// Where the test finds what it puts on the machine.
    pub fn disk(&self) -> PathBuf {
        self.root.path().join("drive_c")
    }

    fn as_seen_inside(_path: &Path, name: &str) -> String {
        format!("C:\\{name}")
    }

    fn exe_inside(&self) -> String {
        format!("Z:{}", self.exe.display()).replace('/', "\\")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.wine("timeout");
        // Wine is slow to start and never takes minutes: what does hangs.
        command.args(["--kill-after=5", "120", "wine", program]);
        command
    }

    fn wine(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear();
        for name in ["PATH", "HOME"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("LC_ALL", "C.UTF-8")
            .env("WINEPREFIX", self.root.path())
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree=;mshtml=")
            .current_dir(self.disk());
        command
    }
}

#[cfg(not(windows))]
fn quietly(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
}

#[cfg(not(windows))]
impl Drop for Machine {
    fn drop(&mut self) {
        for option in ["-k", "-w"] {
            quietly(self.wine("wineserver").arg(option));
        }
    }
}

#[cfg(not(windows))]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(|path| std::path::absolute(path).unwrap())
}

/// Copies a prefix that is switched off. Windows' own folder is 630 MB that no test changes: hard
/// links. The registry is written in place, and so copied.
#[cfg(not(windows))]
fn clone(template: &Path, prefix: &Path) {
    let copy = |options: &str, from: PathBuf, to: &Path| {
        let copied = Command::new("cp").arg(options).arg(&from).arg(to).status().unwrap();
        assert!(copied.success(), "cannot copy {}", from.display());
    };
    let inside =
        |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<PathBuf>>();
    let disk = prefix.join("drive_c");
    std::fs::create_dir(&disk).unwrap();
    for item in inside(template).into_iter().filter(|item| !item.ends_with("drive_c")) {
        copy("-a", item, prefix);
    }
    for item in inside(&template.join("drive_c")) {
        copy(if item.ends_with("windows") { "-al" } else { "-a" }, item, &disk);
    }
}
