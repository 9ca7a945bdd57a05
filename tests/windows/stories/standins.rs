//! The test house itself: a machine boots and loses power like a real one, and the stand-ins follow their instructions.
//! The other stories depend on this.

use crate::house::{House, SOON};
use crate::machine::{Machine, eventually};
use crate::picture::Picture;

#[test]
fn services_start_at_boot_and_end_with_the_power() {
    let Some(machine) = Machine::new() else { return };
    let running = |image: &'static str| eventually(image, SOON, || machine.processes_of(image).first().cloned());
    for image in ["containerd.exe", "standin-service.exe"] {
        running(image);
    }
    let before = running("containerd.exe");

    machine.cut_power();
    assert_eq!(machine.processes(), []);
    machine.power_on();
    assert_ne!(running("containerd.exe"), before);

    machine.kill(&running("containerd.exe"));
    machine.until_gone("containerd.exe");
}

#[test]
fn a_reboot_alone_changes_nothing_in_a_picture() {
    let Some(machine) = Machine::new() else { return };
    let first = Picture::take(&machine);
    Picture::take(&machine).same_as(&first);
    assert!(!first.names_with(r"Services\\containerd").is_empty());
    assert!(!first.names_with("containerd.exe").is_empty());
}

#[test]
fn a_stand_in_has_the_real_command_lines_and_follows_its_instructions() {
    let Some(house) = House::new() else { return };
    let machine = &house.machine;
    let old = machine.file("old/calico-node.exe", crate::house::standin("calico-node.exe"));
    let new = machine.file("new/calico.exe", crate::house::standin("calico.exe"));

    house.order("felix", "exit=129 after=200\nlog=1000 torn");
    assert_eq!(machine.run_program(&old, &["-felix"]).code, 129);
    let mut second = machine.start_program(&new, &["component", "felix"], "test/said");
    house.until_started("felix", 2);
    let wrote = || house.read("test/said").contains(" line 0000000001 xxx").then_some(());
    eventually("its first line", SOON, wrote);
    house.end("felix", 7);
    assert_eq!(second.wait().unwrap().code(), Some(7));

    let starts = house.starts("felix");
    assert_eq!(starts[0]["args"], serde_json::json!(["-felix"]));
    assert_eq!(starts[1]["args"], serde_json::json!(["component", "felix"]));
    assert_eq!(starts[1]["program"], new.as_str());
    let said = house.read("test/said");
    assert!(said.starts_with("felix is up\n") && said.contains(" line 0000000001 xxx"), "{said}");

    // Arguments that the real ones refuse are refused here too.
    for (program, args) in [
        (&old, &["-should-install-windows-upgrade"][..]),
        (&old, &["component", "felix"]),
        (&new, &["-felix"]),
        (&new, &["component", "node", "startup", "-complete-startup"]),
    ] {
        assert_eq!(machine.run_program(program, args).code, 2, "{args:?}");
    }
}
