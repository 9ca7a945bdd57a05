//! A machine that is a Wine prefix: cloned for one test, switched off and removed with it.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::{Ended, Machine, Process, SOON, eventually};

/// What OpenSSH tells a session of its connection.
const SSH: (&str, &str) = ("SSH_CONNECTION", "192.0.2.7 50022 192.0.2.10 22");

impl Machine {
    #[expect(clippy::print_stderr, reason = "who runs the tests is to know what they did not")]
    pub(super) fn fresh() -> Option<Self> {
        let (Some(exe), Some(template)) = (variable("CALICOCTL_WIN_EXE"), variable("CALICOCTL_WIN_WINE_PREFIX")) else {
            eprintln!("skipped: packaging/test.sh builds the .exe and runs this under Wine");
            return None;
        };
        // Beside the template, so that hard links work.
        let root = TempDir::with_prefix_in("prefix-", template.parent().expect("a prefix lies in a folder")).unwrap();
        clone(&template, root.path());
        let machine = Self { exe, root };
        fs::write(machine.settings(), [0; 64]).unwrap();
        machine.power_on();
        Some(machine)
    }

    /// The settings of `machine.c`, which every process maps.
    fn settings(&self) -> PathBuf {
        self.root.path().join("machine")
    }

    fn tell(&self, at: u64, bytes: &[u8]) {
        File::options().write(true).open(self.settings()).unwrap().write_all_at(bytes, at).unwrap();
    }

    /// Sets the wall clock of every process this many seconds from the host's, and the time zone of
    /// those that start from now on.
    pub fn set_clock(&self, seconds: i64, zone: &str) {
        let mut padded = [0; 48];
        padded[..zone.len()].copy_from_slice(zone.as_bytes());
        self.tell(0, &seconds.to_le_bytes());
        self.tell(16, &padded);
    }

    /// Whether drive C is full, except for the folder that tests and stand-ins share.
    pub fn fill_disk(&self, full: bool) {
        self.tell(8, &i64::from(full).to_le_bytes());
    }

    /// The folder of the stand-ins for Calico and kubelet; `prepare.sh` creates it.
    pub fn standins() -> PathBuf {
        variable("CALICOCTL_WIN_WINE_PREFIX").expect("there is a machine").with_file_name("standins")
    }

    /// Switched on before it is used, and kept on: otherwise what the first program starts would keep open the pipes
    /// for that program's output. Services with the start type `auto` start.
    pub fn power_on(&self) {
        quietly(self.wine("wineserver").arg("-p"));
        // It prints its usage, and ends. Of all programs it needs the least of Wine.
        quietly(&mut self.command(&Self::standins().join("run.exe").to_string_lossy()));
    }

    /// Cuts the power: every process ends at once, without notice. The registry is saved, although a real power cut
    /// only guarantees what was flushed.
    pub fn cut_power(&self) {
        self.stop();
        eventually("the last process to be gone", SOON, || self.processes().is_empty().then_some(()));
    }

    /// Shuts Windows down: first its services are told, and have their time.
    pub fn shut_down(&self) {
        self.run_program(&Self::standins().join("run.exe").to_string_lossy(), &["preshutdown"]).exits(0);
        self.cut_power();
    }

    fn stop(&self) {
        // It ends each process and saves the registry. When the processes were killed separately, a busy machine came
        // up without its last registry changes.
        for option in ["-k", "-w"] {
            quietly(self.wine("wineserver").arg(option));
        }
    }

    /// An empty folder on the same disk.
    pub fn beside(&self) -> TempDir {
        TempDir::with_prefix_in("saved-", self.root.path().parent().unwrap()).unwrap()
    }

    /// Copies the machine, which must be off, into an empty folder.
    pub fn save_to(&self, folder: &Path) {
        copy_prefix(self.root.path(), folder);
    }

    /// Restores the machine, which must be off, from a copy.
    pub fn load_from(&self, folder: &Path) {
        for item in inside(&self.disk()).into_iter().filter(|item| !is_windows(item)) {
            let removed = if item.is_dir() { fs::remove_dir_all(&item) } else { fs::remove_file(&item) };
            removed.unwrap();
        }
        for link in inside(&self.root.path().join("dosdevices")) {
            fs::remove_file(link).unwrap();
        }
        copy_prefix(folder, self.root.path());
    }

    /// Cuts the power during a command, and switches it on again.
    pub fn power_off(&self, mut running: Child) {
        self.cut_power();
        running.wait().unwrap();
        self.power_on();
    }

    /// The machine's disk as the test sees it.
    pub fn disk(&self) -> PathBuf {
        self.root.path().join("drive_c")
    }

    /// A path of drive C, with `\` or `/`, as the test sees it.
    pub fn c(&self, path: &str) -> PathBuf {
        self.disk().join(path.replace('\\', "/"))
    }

    /// The saved HKEY_LOCAL_MACHINE. Current only while the machine is off.
    pub fn saved_registry(&self) -> String {
        fs::read_to_string(self.root.path().join("system.reg")).unwrap()
    }

    pub(super) fn as_seen_inside(_path: &Path, name: &str) -> String {
        format!("C:\\{}", name.replace('/', "\\"))
    }

    pub(super) fn exe_inside(&self) -> String {
        format!("Z:{}", self.exe.display()).replace('/', "\\")
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = self.wine("timeout");
        // A longer run hangs, however busy the host is.
        command.args(["--kill-after=5", "600", "wine", program]);
        command
    }

    /// Runs the executable in a session that ends with it: what it left there is killed.
    #[track_caller]
    pub fn run_in_session(&self, args: &[&str]) -> Ended {
        self.run_in(Stdio::null(), args, &[])
    }

    /// As [`Self::run_in_session`], in a session of SSH.
    #[track_caller]
    pub fn run_over_ssh(&self, args: &[&str]) -> Ended {
        self.tell_over_ssh(args, "")
    }

    /// As [`Self::run_over_ssh`], with this on stdin.
    #[track_caller]
    pub fn tell_over_ssh(&self, args: &[&str], text: &str) -> Ended {
        self.run_in(self.typed(text), args, &[SSH])
    }

    fn run_in(&self, stdin: Stdio, args: &[&str], variables: &[(&str, &str)]) -> Ended {
        let exe = self.exe().to_string_lossy();
        let (mut command, code) = self.command_through("session", &exe);
        let output = self.output_with(stdin, command.args(args).envs(variables.iter().copied()));
        Ended::new(code(&output), output)
    }

    /// What a program has on stdin.
    fn typed(&self, text: &str) -> Stdio {
        let mut stdin = tempfile::tempfile_in(self.root.path()).unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.rewind().unwrap();
        stdin.into()
    }

    /// Starts the executable in a session of SSH, which is killed with the child, with this on stdin. Its output goes
    /// to the file `said`.
    pub fn start_over_ssh(&self, args: &[&str], text: &str, said: &str) -> Child {
        let said = File::create(self.disk().join(said)).unwrap();
        let mut command = self.wine("wine");
        command.arg(Self::standins().join("run.exe")).args(["session", r"C:\code", &self.exe_inside()]).args(args);
        command.envs([SSH]).stdin(self.typed(text)).stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    pub(super) fn command_with_code(&self, program: &str) -> (Command, impl FnOnce(&Output) -> i32) {
        // Programs that the machine's own programs start share their console and their redirections.
        self.command_through(if program.starts_with('/') { "alone" } else { "console" }, program)
    }

    /// The command through `run.exe`, which keeps the exit code, and how to read that.
    fn command_through(&self, way: &str, program: &str) -> (Command, impl FnOnce(&Output) -> i32) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("code-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let inside = |path: &Path| format!("Z:{}", path.display()).replace('/', "\\");
        let kept = self.root.path().join(name);
        let mut command = self.command(&Self::standins().join("run.exe").to_string_lossy());
        command.arg(way).arg(inside(&kept));
        command.arg(if program.starts_with('/') { inside(Path::new(program)) } else { program.to_owned() });
        let code = move |output: &Output| {
            let code = fs::read_to_string(&kept).ok().and_then(|code| code.parse().ok());
            code.or_else(|| output.status.code()).unwrap_or_else(|| panic!("it did not end by itself: {output:?}"))
        };
        (command, code)
    }

    /// Runs the executable and also returns the entries that it wrote to the Event Log, each after its level. Wine does
    /// not store them, but can log them, long texts only in part.
    #[track_caller]
    pub fn run_with_event_log(&self, args: &[&str]) -> (Ended, Vec<String>) {
        let exe = self.exe().to_string_lossy();
        let (mut command, code) = self.command_with_code(&exe);
        let output = self.output(command.args(args).env("WINEDEBUG", "-all,+eventlog"));
        let ended = Ended::new(code(&output), output);
        let entry = |line: &str| {
            let (level, said) = line.split_once(":eventlog:ReportEventW L\"")?;
            let level = level.rsplit(':').next()?;
            Some(format!("{level}: {said}"))
        };
        let entries = ended.stderr.lines().filter_map(entry).collect();
        (ended, entries)
    }

    /// Every process of the machine, Wine's own among them.
    pub fn processes(&self) -> Vec<Process> {
        let process = |(pid, line): (u32, String)| {
            // Only processes with a Windows path: neither `wine` while it starts nor the wineserver.
            let (drive, rest) = line.split_once(":\\")?;
            let end = rest.to_ascii_lowercase().find(".exe")? + ".exe".len();
            let image = rest[..end].rsplit('\\').next()?.to_owned();
            (drive.len() <= 2).then_some(Process { pid, image, command_line: line })
        };
        self.everything().filter_map(process).collect()
    }

    /// Pid and command line of everything that runs for this machine, by the prefix in its environment.
    fn everything(&self) -> impl Iterator<Item = (u32, String)> {
        let ours = format!("WINEPREFIX={}", self.root.path().display());
        let process = move |folder: PathBuf| {
            let pid = folder.file_name()?.to_str()?.parse().ok()?;
            let environment = fs::read(folder.join("environ")).ok()?;
            if !environment.split(|byte| *byte == 0).any(|variable| variable == ours.as_bytes()) {
                return None;
            }
            let line = fs::read(folder.join("cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()))
        };
        let folders = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
        folders.filter_map(process)
    }

    /// Starts the executable so that killing the child kills its Windows process: there is no process between the two.
    pub fn start_to_kill(&self, args: &[&str], said: &str) -> Child {
        let said = File::create(self.disk().join(said)).unwrap();
        let mut command = self.wine("wine");
        command.arg(self.exe()).args(args).stdin(Stdio::null());
        command.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    /// Ends a process at once.
    pub fn kill(&self, process: &Process) {
        quietly(Command::new("kill").args(["-9", &process.pid.to_string()]));
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
            .env("LD_PRELOAD", Self::standins().join("machine.so"))
            .env("CALICOCTL_TEST_MACHINE", self.settings())
            .env("LC_ALL", "C.UTF-8")
            .env("WINEPREFIX", self.root.path())
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree=;mshtml=;msv1_0=")
            .current_dir(self.disk());
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn quietly(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(|path| std::path::absolute(path).unwrap())
}

/// Copies a prefix that is switched off. Windows' own folder is 630 MB that no test changes: hard
/// links. The registry is written in place, and so copied.
fn clone(template: &Path, prefix: &Path) {
    let windows = template.join("drive_c/windows");
    fs::create_dir(prefix.join("drive_c")).unwrap();
    let linked = Command::new("cp").arg("-al").arg(&windows).arg(prefix.join("drive_c")).status().unwrap();
    assert!(linked.success(), "cannot link {}", windows.display());
    copy_prefix(template, prefix);
}

/// Copies a prefix except Windows' own folder, which no program changes.
fn copy_prefix(from: &Path, to: &Path) {
    for item in inside(from).into_iter().filter(|item| !item.ends_with("drive_c")) {
        copy_into(&item, to);
    }
    fs::create_dir_all(to.join("drive_c")).unwrap();
    for item in inside(&from.join("drive_c")).into_iter().filter(|item| !is_windows(item)) {
        copy_into(&item, &to.join("drive_c"));
    }
}

/// Copies a file, a link or a folder with its contents. Large files, such as programs and archives, are linked: nothing
/// writes into them; they are only replaced.
fn copy_into(item: &Path, folder: &Path) {
    const LARGE: u64 = 1 << 20;
    const GROWS: [&str; 3] = ["reg", "log", "jsonl"];
    let to = folder.join(item.file_name().expect("it lies in a folder"));
    let about = fs::symlink_metadata(item).unwrap();
    if about.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(item).unwrap(), to).unwrap();
    } else if about.is_dir() {
        fs::create_dir_all(&to).unwrap();
        inside(item).iter().for_each(|item| copy_into(item, &to));
        fs::set_permissions(to, about.permissions()).unwrap();
    } else if about.len() > LARGE && !item.extension().is_some_and(|end| GROWS.iter().any(|name| end == *name)) {
        fs::hard_link(item, to).unwrap();
    } else {
        let _bytes = fs::copy(item, &to).unwrap();
        File::options().write(true).open(to).unwrap().set_modified(about.modified().unwrap()).unwrap();
    }
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn is_windows(item: &Path) -> bool {
    item.ends_with("drive_c/windows")
}
