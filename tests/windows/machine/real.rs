//! This Windows machine itself.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use tempfile::TempDir;

use super::{Machine, Process};

impl Machine {
    pub(super) fn fresh() -> Option<Self> {
        Some(Self { exe: PathBuf::from(env!("CARGO_BIN_EXE_calicoctl-win")), root: TempDir::new().unwrap() })
    }

    /// The folder of the stand-ins for Calico and kubelet; `standins/build.sh` creates it.
    pub fn standins() -> PathBuf {
        std::env::var_os("CALICOCTL_WIN_STANDINS")
            .expect("CALICOCTL_WIN_STANDINS names the folder that tests/windows/standins/build.sh made")
            .into()
    }

    /// The machine's disk as the test sees it.
    pub fn disk(&self) -> PathBuf {
        self.root.path().to_owned()
    }

    /// A path of drive C as the test sees it.
    pub fn c(&self, path: &str) -> PathBuf {
        Path::new(r"C:\").join(path)
    }

    pub(super) fn as_seen_inside(path: &Path, _name: &str) -> String {
        path.to_str().expect("the temporary folder's name is text").to_owned()
    }

    pub(super) fn exe_inside(&self) -> String {
        self.exe.to_str().expect("the executable's name is text").to_owned()
    }

    /// A power cut for one process.
    pub fn power_off(&self, mut running: Child) {
        running.kill().unwrap();
        running.wait().unwrap();
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CALICO_WIN")) {
            command.env_remove(name);
        }
        command
    }

    /// The command, and how to read its exit code.
    pub(super) fn command_with_code(&self, program: &str) -> (Command, impl FnOnce(&Output) -> i32) {
        (self.command(program), |output: &Output| output.status.code().expect("a process of Windows has a code"))
    }

    /// Every process that this user may see, without command lines.
    pub fn processes(&self) -> Vec<Process> {
        let listed = self.run_program("tasklist", &["/fo", "csv", "/nh"]);
        let process = |line: &str| {
            let mut fields = line.trim_matches('"').split("\",\"");
            let (image, pid) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
            Some(Process { pid, image, command_line: String::new() })
        };
        listed.stdout.lines().filter_map(process).collect()
    }

    /// Ends a process at once.
    pub fn kill(&self, process: &Process) {
        let _gone_already = self.run_program("taskkill", &["/f", "/pid", &process.pid.to_string()]);
    }
}
