//! The MSI and the zip: a newer program beside a running node. The services run a copy of their own, which only a run
//! of the program replaces.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::house::House;
use crate::machine::{Machine, Process};

const PROGRAM: &str = r"Program Files\calicoctl-win-cli\calicoctl-win.exe";
const SERVICES_PROGRAM: &str = r"Program Files\calicoctl-win\calicoctl-win.exe";
const MODULES: &str = r"Program Files\WindowsPowerShell\Modules\CalicoctlWin";

/// The executable under test, as another build: Windows ignores bytes after the program's end, but it is another file.
fn another_build(machine: &Machine) -> Vec<u8> {
    let mut bytes = fs::read(machine.exe()).unwrap();
    bytes.extend(b"another build");
    bytes
}

/// Packs a program as the MSI of a version, on the machine's disk; none, with a printed explanation, without wixl.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what they did not")]
fn msi(machine: &Machine, version: &str, program: &[u8]) -> Option<String> {
    let found = |tool: &str| Command::new("which").arg(tool).output().is_ok_and(|ended| ended.status.success());
    if !["wixl", "msibuild", "faketime"].into_iter().all(found) {
        assert_ne!(std::env::var("CALICOCTL_WIN_REAL").as_deref(), Ok("require"), "wixl is not installed");
        eprintln!("skipped: wixl, msibuild or faketime is missing; packaging/test.sh installs them");
        return None;
    }
    let exe = machine.disk().join(format!("{version}.exe"));
    fs::write(&exe, program).unwrap();
    let name = format!("calicoctl-win-{version}.msi");
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/msi/build.sh");
    let ended = Command::new(build).arg(exe).arg(version).arg(machine.disk().join(&name)).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(machine.path(&name))
}

/// Runs msiexec as a script does, and returns its exit code.
fn msiexec(machine: &Machine, option: &str, msi: &str) -> i32 {
    let said = machine
        .run_program("cmd", &["/v:on", "/c", &format!("start /wait msiexec {option} {msi} /qn & echo !errorlevel!")]);
    said.stdout.trim().parse().unwrap_or_else(|_| panic!("cmd said `{}`: {}", said.stdout, said.stderr))
}

/// Whether the PATH of all users has the program's folder.
fn is_in_path(machine: &Machine) -> bool {
    let key = r"HKLM\System\CurrentControlSet\Control\Session Manager\Environment";
    let path = machine.run_program("reg", &["query", key, "/v", "PATH"]).exits(0).stdout;
    path.contains(r"C:\Program Files\calicoctl-win-cli")
}

/// The versions of the PowerShell module that are there.
fn modules(machine: &Machine) -> Vec<String> {
    let folders = fs::read_dir(machine.c(MODULES)).into_iter().flatten();
    folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn the_msi_installs_upgrades_refuses_an_older_one_and_removes_itself() {
    let Some(machine) = Machine::new() else { return };
    let (first, next) = (fs::read(machine.exe()).unwrap(), another_build(&machine));
    let Some(old) = msi(&machine, "0.1.0", &first) else { return };
    let new = msi(&machine, "0.2.0", &next).unwrap();
    let installed = || fs::read(machine.c(PROGRAM)).unwrap();

    assert!(!is_in_path(&machine));
    assert_eq!(msiexec(&machine, "/i", &old), 0);
    assert!(is_in_path(&machine));
    // A new session has the new PATH.
    machine.cut_power();
    machine.power_on();
    let called_by_name = machine.run_program("cmd", &["/c", "calicoctl-win", "version"]).exits(0);
    assert_eq!(called_by_name.stdout.trim(), concat!("calicoctl-win ", env!("CARGO_PKG_VERSION")));
    assert_eq!(modules(&machine), ["0.1.0"]);
    assert!(machine.c(PROGRAM).with_file_name("scripts").join("install-calico-windows.ps1").is_file());

    assert_eq!(msiexec(&machine, "/i", &new), 0);
    assert!(installed() == next, "the newer program is installed");
    assert_eq!(modules(&machine), ["0.2.0"], "the older module is gone");
    // ERROR_INSTALL_FAILURE
    assert_eq!(msiexec(&machine, "/i", &old), 1603, "an older one is refused");
    assert!(installed() == next, "and changes nothing");
    assert!(is_in_path(&machine));

    assert_eq!(msiexec(&machine, "/x", &new), 0);
    assert!(!machine.c(PROGRAM).parent().unwrap().exists());
    assert_eq!(modules(&machine), Vec::<String>::new());
    assert!(!is_in_path(&machine));
}

/// The processes that run a service. A command of the test whose output has ended may still be listed beside them.
fn services(house: &House) -> Vec<Process> {
    let mut all = house.machine.processes_of("calicoctl-win.exe");
    all.retain(|process| process.command_line.contains(" service run "));
    all.sort_by_key(|process| process.pid);
    all
}

/// The newer program reads the state of the running older one, and its `apply` replaces that without touching the network;
/// `rollback` restores it.
fn is_replaced_by(house: &House, newer_path: &str, newer: &[u8]) {
    let (networks, running) = (house.hns(), services(house));
    let older = fs::read(house.machine.c(SERVICES_PROGRAM)).unwrap();
    let status = house.machine.run_program(newer_path, &["status", "-o", "json"]).json();
    assert_eq!(status["generation"], 1, "the newer program reads what the older one wrote: {status:#}");

    let asked = house.read(r"test\hns.log").lines().count();
    let words = ["apply", "--yes", "-c", &house.config, "--release", &house.release, "-o", "ndjson"];
    let said = house.machine.run_program(newer_path, &words).exits(0).stdout;
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["generation"], 2, "{said}");
    let phases: Vec<_> =
        lines.iter().filter(|line| line["type"] == "phase_start").map(|line| &line["phase"]["id"]).collect();
    let without_drain =
        ["cluster", "services-stop", "files", "services-start", "node-startup", "services-start", "health-gate"];
    assert_eq!(phases, without_drain);
    assert!(fs::read(house.machine.c(SERVICES_PROGRAM)).unwrap() == newer, "the services' program is the newer one");
    house.until_healthy();
    assert!(services(house).iter().all(|process| !running.contains(process)), "the services were restarted");
    assert_eq!(house.hns(), networks, "the same networks, with the same ids");
    let log = house.read(r"test\hns.log");
    let changes: Vec<_> = log.lines().skip(asked).filter(|line| !line.starts_with("GET ")).collect();
    assert!(changes.iter().all(|line| !line.contains(" /networks")), "{changes:#?}");

    house.run("rollback --yes").exits(0);
    assert!(fs::read(house.machine.c(SERVICES_PROGRAM)).unwrap() == older, "the older program is restored");
    house.until_healthy();
}

#[test]
fn the_program_of_a_newer_zip_replaces_a_running_older_one_without_touching_the_network() {
    const UNPACKED: &str = r"C:\tools\calicoctl-win\calicoctl-win.exe";
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let running = services(&house);
    // The zip is unpacked over the one before.
    for program in [fs::read(house.machine.exe()).unwrap(), another_build(&house.machine)] {
        house.machine.file("tools/calicoctl-win/calicoctl-win.exe", program);
        let status = house.machine.run_program(UNPACKED, &["status", "-o", "json"]).json();
        assert_eq!(status["overall"], "Healthy", "{status:#}");
    }
    assert_eq!(services(&house), running, "unpacking stops no service");
    is_replaced_by(&house, UNPACKED, &another_build(&house.machine));
}

#[test]
fn msi_and_apply_replace_a_running_older_executable_without_touching_the_network() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let running = services(&house);
    let older = fs::read(house.machine.c(SERVICES_PROGRAM)).unwrap();
    let newer = another_build(&house.machine);
    let Some(msi) = msi(&house.machine, "0.2.0", &newer) else { return };

    assert_eq!(msiexec(&house.machine, "/i", &msi), 0);
    assert_eq!(services(&house), running, "the MSI stops no service");
    assert!(fs::read(house.machine.c(SERVICES_PROGRAM)).unwrap() == older, "and leaves their program");
    let newer_path = format!(r"C:\{PROGRAM}");
    is_replaced_by(&house, &newer_path, &newer);

    let running = services(&house);
    assert_eq!(msiexec(&house.machine, "/x", &msi), 0);
    assert_eq!(services(&house), running, "removing the MSI leaves the services");
    house.until_healthy();
}
