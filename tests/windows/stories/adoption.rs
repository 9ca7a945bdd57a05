//! A node on which upstream's scripts installed Calico: services with NSSM, files by hand.

use crate::house::{House, SOON, standin};
use crate::machine::eventually;
use crate::picture::Picture;

/// The scripts' services: name, part and dependencies.
const SERVICES: [(&str, &str, &str); 4] = [
    ("CalicoNode", "node", ""),
    ("CalicoFelix", "felix", "CalicoNode"),
    ("CalicoConfd", "confd", "CalicoNode"),
    ("CalicoUpgrade", "upgrade", ""),
];

/// A text in the `.reg` format of REG_EXPAND_SZ (kind 2) and REG_MULTI_SZ (kind 7).
fn hex(kind: u8, text: &str) -> String {
    let zeros = if kind == 7 { 2 } else { 1 };
    let units = text.encode_utf16().chain(std::iter::repeat_n(0, zeros));
    let bytes: Vec<String> = units.flat_map(u16::to_le_bytes).map(|byte| format!("{byte:02x}")).collect();
    format!("hex({kind}):{}", bytes.join(","))
}

/// The scripts' definition of a service, as NSSM stores it (reference 7.1).
fn definition(name: &str, part: &str, depends_on: &str) -> String {
    let key = format!(r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\{name}");
    let dependency =
        if depends_on.is_empty() { String::new() } else { format!("\"DependOnService\"={}\n", hex(7, depends_on)) };
    let expanded = |value: &str, text: &str| format!("\"{value}\"={}\n", hex(2, text));
    let parameters = [
        expanded("Application", r"%SystemRoot%\System32\WindowsPowerShell\v1.0\powershell.exe"),
        expanded("AppParameters", &format!(r"C:\CalicoWindows\{part}\{part}-service.ps1")),
        expanded("AppDirectory", r"C:\CalicoWindows"),
        expanded("AppStdout", &format!(r"C:\CalicoWindows\logs\calico-{part}.log")),
        expanded("AppStderr", &format!(r"C:\CalicoWindows\logs\calico-{part}.err.log")),
        "\"AppRotateFiles\"=dword:00000001\n\"AppRotateBytes\"=dword:00a00000\n".to_owned(),
    ];
    format!(
        "[{key}]\n\"DisplayName\"=\"Calico Windows {part}\"\n\"Description\"=\"Calico {part}, by the scripts\"\n\
         \"ErrorControl\"=dword:00000001\n\"ImagePath\"={}\n\"ObjectName\"=\"LocalSystem\"\n\
         \"Start\"=dword:00000002\n\"Type\"=dword:00000010\n{dependency}\n\
         [{key}\\Parameters]\n{}\n[{key}\\Parameters\\AppExit]\n@=\"Restart\"\n\n",
        hex(2, r"C:\CalicoWindows\nssm-2.24\win64\nssm.exe"),
        parameters.concat()
    )
}

fn scripts_node() -> Option<House> {
    let house = House::new()?;
    for (path, contents) in [
        // It runs until SCM stops it, which is all of NSSM that matters here.
        ("CalicoWindows/nssm-2.24/win64/nssm.exe", standin("containerd.exe")),
        ("CalicoWindows/config.ps1", b"$env:CALICO_NETWORKING_BACKEND=\"vxlan\"\r\n"),
        ("CalicoWindows/calico-kube-config", b"apiVersion: v1\n"),
        ("CalicoWindows/calico-node.exe", standin("calico-node.exe")),
        ("CalicoWindows/logs/calico-node.log", b"it ran\n"),
        ("Program Files/containerd/cni/conf/10-calico.conf", b"{\"name\": \"Calico\"}\n"),
        ("Program Files/containerd/cni/bin/calico.exe", b"the scripts' plugin"),
    ] {
        house.machine.file(path, contents);
    }
    let services = SERVICES.map(|(name, part, depends_on)| definition(name, part, depends_on)).concat();
    let tigera = "[HKEY_LOCAL_MACHINE\\SOFTWARE\\Tigera\\Calico]\n\"LastBootTime\"=\"1/5/2026 7:58:11 AM\"\n";
    // In UTF-16: a file in another encoding would be read as that.
    let text = format!("Windows Registry Editor Version 5.00\n\n{services}{tigera}");
    let bytes: Vec<u8> = "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let file = house.machine.file("test/nssm.reg", bytes);
    let imported = house.machine.run_program("regedit", &["/S", &file]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    // A service that is only in the registry is visible from the next boot on.
    house.machine.cut_power();
    house.machine.power_on();
    eventually("NSSM to run", SOON, || (house.machine.processes_of("nssm.exe").len() == 4).then_some(()));
    Some(house)
}

/// Defects B1 (which NSSM, where), B15 (an orphaned CalicoConfd) and B19 (a stopped CalicoUpgrade blocks the start
/// forever).
#[test]
fn b1_b15_b19_a_node_of_the_scripts_is_taken_over_and_restored() {
    let Some(house) = scripts_node() else { return };
    let before = Picture::take(&house.machine);

    house.install();
    house.until_healthy();
    house.machine.until_gone("nssm.exe");
    assert_eq!(house.service("CalicoNode")["state"], "Running");
    let there = Picture::take(&house.machine);
    assert_eq!(there.names_with("CalicoUpgrade"), [""; 0]);
    assert_eq!(there.names_with("AppParameters"), [""; 0], "nothing of NSSM's parameters is left in the way");
    house.until_healthy();
    let again = house.install_json(0);
    assert_eq!(again["changed"], false, "{again:#}");

    house.run("uninstall --purge --yes").exits(0);
    eventually("NSSM to run again", SOON, || (house.machine.processes_of("nssm.exe").len() >= 3).then_some(()));
    Picture::take(&house.machine).same_as(&before);
}

#[test]
fn what_the_scripts_installed_is_removed_and_comes_back() {
    let Some(house) = scripts_node() else { return };
    let before = Picture::take(&house.machine);
    house.run("uninstall --yes").exits(0);
    house.machine.until_gone("nssm.exe");
    let without = Picture::take(&house.machine);
    for gone in ["CalicoNode", "CalicoFelix", "CalicoConfd", "CalicoUpgrade"] {
        assert_eq!(without.names_with(&format!(r"Services\\{gone}")), [""; 0]);
    }
    for gone in [
        "CalicoWindows",
        "Program Files/containerd/cni/conf/10-calico.conf",
        "Program Files/containerd/cni/bin/calico.exe",
    ] {
        assert!(!house.machine.c(gone).exists(), "{gone} is there");
    }

    house.run("resume --undo --yes").exits(0);
    eventually("NSSM to run again", SOON, || (house.machine.processes_of("nssm.exe").len() >= 3).then_some(()));
    house.run("uninstall --yes").exits(0);
    house.run("resume --undo --yes").exits(0);
    Picture::take(&house.machine).without(&["file ProgramData/calicoctl-win"]).same_as(&before);
}
