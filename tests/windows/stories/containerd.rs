//! A machine without a container runtime gets containerd from its own archive, and is without it again.

use std::fs;

use crate::house::{House, SOON, standin};
use crate::machine::eventually;
use crate::picture::Picture;
use crate::tar::tar_gz;

const FOLDER: &str = "Program Files/containerd";

/// containerd's own archive, with a stand-in.
fn archive() -> Vec<u8> {
    tar_gz([
        ("bin/containerd.exe", standin("containerd.exe")),
        ("bin/containerd-shim-runhcs-v1.exe", b"a shim".as_slice()),
        ("bin/ctr.exe", b"a client"),
    ])
}

/// A node with kubelet and kube-proxy of another product, and without containerd.
fn without_runtime() -> Option<House> {
    let house = House::new()?;
    house.machine.run_program("sc", &["stop", "containerd"]);
    house.machine.until_gone("containerd.exe");
    house.sc(&["delete", "containerd"]);
    for name in ["containerd.exe", "config.toml"] {
        fs::remove_file(house.machine.c(FOLDER).join(name)).unwrap();
    }
    for name in ["kubelet", "kube-proxy"] {
        house.machine.file(&format!("k/{name}.exe"), standin("containerd.exe"));
        let command = format!(r"C:\k\{name}.exe {name}");
        house.sc(&["create", name, "start=", "auto", "binPath=", &command, "DisplayName=", name]);
        house.sc(&["start", name]);
    }
    house.machine.file("k/containerd.tar.gz", archive());
    Some(house)
}

#[test]
fn a_machine_without_a_runtime_gets_containerd_and_is_without_it_again() {
    let Some(house) = without_runtime() else { return };
    let before = Picture::take(&house.machine);
    let words =
        [vec!["kubernetes"], house.install_words(), vec!["--containerd", r"C:\k\containerd.tar.gz", "-o", "json"]]
            .concat();
    let done = house.machine.run(&words).exits(0).json();
    let warned = done["warnings"].to_string();
    for name in ["kubelet", "kube-proxy"] {
        assert!(warned.contains(&format!("the service {name} was made by another program")), "{done:#}");
    }
    house.until_healthy();
    assert_eq!(house.machine.processes_of("containerd.exe").len(), 1);
    let config = house.read(&format!("{FOLDER}/config.toml"));
    for part in ["sandbox_image = 'registry.k8s.io/pause:", r"bin_dir = 'C:\Program Files\containerd\cni\bin'"] {
        assert!(config.contains(part), "{config}");
    }
    assert_eq!(house.read(&format!("{FOLDER}/ctr.exe")), "a client");
    // Windows has the version from the program itself.
    let checks = house.machine.run(&["preflight", "-c", &house.config, "-o", "json"]).json().to_string();
    assert!(checks.contains("ontainerd 1.7.27"), "{checks}");
    assert_eq!(house.machine.run(&words).exits(0).json()["changed"], false);

    // Windows starts it at a boot.
    house.machine.cut_power();
    house.machine.power_on();
    eventually("containerd to run", SOON, || (house.machine.processes_of("containerd.exe").len() == 1).then_some(()));
    house.until_healthy();

    house.run("uninstall --purge --yes").exits(0);
    assert_eq!(house.machine.processes_of("containerd.exe").len(), 0);
    Picture::take(&house.machine).same_as(&before);
}
