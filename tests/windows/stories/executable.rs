//! Our own executable: replaced while it runs, and removed by itself.

use std::fs;

use crate::house::{House, SOON};
use crate::machine::eventually;
use crate::picture::Picture;

const INSTALLED: &str = r"Program Files\calicoctl-win\calicoctl-win.exe";

#[test]
fn a_newer_executable_replaces_the_running_one() {
    let Some(house) = House::installed() else { return };
    house.until_healthy();
    let old = house.machine.processes_of("calicoctl-win.exe");
    // Windows ignores bytes after the program's end, but to us it is another file.
    let mut bytes = fs::read(house.machine.exe()).unwrap();
    bytes.extend(b"another build");
    let newer = house.machine.file("new/calicoctl-win.exe", &bytes);

    let upgraded = house.machine.run_program(&newer, &house.install_words());
    assert_eq!(upgraded.code, 0, "{}{}", upgraded.stdout, upgraded.stderr);
    assert!(fs::read(house.machine.c(INSTALLED)).unwrap() == bytes, "the services' executable is the new one");
    house.until_healthy();
    let now = house.machine.processes_of("calicoctl-win.exe");
    assert!(now.iter().all(|process| !old.contains(process)), "{now:?}");

    house.machine.cut_power();
    house.machine.power_on();
    house.until_healthy();
    let folder = house.machine.c(r"Program Files\calicoctl-win");
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["calicoctl-win.exe"], "what was moved aside is gone");
}

/// A running program cannot delete its own file: it is deleted at the next boot, and Windows' own exit code for that
/// says so.
#[test]
fn uninstall_run_from_the_installed_executable_says_that_a_reboot_removes_the_rest() {
    let Some(house) = House::new() else { return };
    let before = Picture::take(&house.machine);
    house.install();
    house.until_healthy();
    let own = house.machine.file(
        "uninstall.cmd",
        format!("@\"C:\\{INSTALLED}\" uninstall --purge --yes -o json > C:\\said.json 2>&1\r\n@echo %errorlevel%\r\n"),
    );
    let ended = house.machine.run_program("cmd", &["/c", &own]);
    let result: serde_json::Value =
        serde_json::from_str(&house.read("said.json")).unwrap_or_else(|e| panic!("{e}: {}", house.read("said.json")));
    assert_eq!(ended.stdout.trim(), "3010", "{result:#}");
    assert_eq!(
        (&result["exit_name"], &result["reboot_required"]),
        (&"REBOOT_REQUIRED".into(), &true.into()),
        "{result:#}"
    );

    house.machine.cut_power();
    house.machine.power_on();
    eventually("the file to go", SOON, || (!house.machine.c(INSTALLED).exists()).then_some(()));
    Picture::take(&house.machine).without(&["file uninstall.cmd", "file said.json"]).same_as(&before);
}
