//! Stories with the test DLL for the firewall (tests/windows/shims/firewall.c).

use super::*;
use crate::node::windows::testing::Machine;

const NAME: &str = "Overlay Traffic 4789 UDP";

/// A firewall with these rules and faults; lines as in firewall.c.
fn firewall(rules: &str, faults: &str) -> Option<Machine> {
    let machine = Machine::new()?;
    machine.write("firewall", rules);
    machine.write("firewall.faults", faults);
    Some(machine)
}

fn ours() -> FirewallRule {
    FirewallRule {
        display_name: NAME.into(),
        group: FIREWALL_GROUP.into(),
        protocol: "UDP".into(),
        local_ports: "4789".into(),
        enabled: true,
        profiles: String::new(),
        remote_addresses: String::new(),
        edge_traversal: false,
    }
}

fn said(result: Result<()>) -> String {
    let error = result.unwrap_err();
    let id = Fault::id_of(&error);
    format!("{id}: {error:#}")
}

#[test]
fn b31_an_existing_rule_is_changed_in_place_and_several_become_one() {
    let others = "7\tOverlay Traffic 4789 UDP\t\t17\t4789\t1\t2\t1\t1\n9\tRDP\t\t6\t3389\t1\t1\t1\t2\n";
    let Some(machine) = firewall(&format!("3\tOverlayTraffic4789UDP\t\t17\t4790\t0\t1\t0\t3\n{others}"), "") else {
        return;
    };
    assert!(!get(NAME).unwrap().unwrap().enabled, "one that blocks lets nothing in");
    put(NAME, Some(&ours())).unwrap();
    // The outbound one and the other service's are unchanged.
    let made = "3\tOverlay Traffic 4789 UDP\tcalicoctl-win\t17\t4789\t1\t1\t1\t2147483647\n";
    assert_eq!(machine.read("firewall"), format!("{made}{others}"));
    assert_eq!(list().unwrap(), [(NAME.to_owned(), ours())]);
    put(NAME, Some(&ours())).unwrap();
    assert_eq!(machine.read("firewall"), format!("{made}{others}"));
    drop(machine);

    let twice =
        "1\tOverlay Traffic 4789 UDP\t\t17\t4789\t1\t1\t1\t3\n2\tOverlayTraffic4789UDP\t\t17\t4789\t1\t1\t1\t3\n";
    let Some(machine) = firewall(twice, "") else { return };
    put(NAME, Some(&ours())).unwrap();
    assert_eq!(machine.read("firewall").lines().count(), 1);
    assert_eq!(get(NAME).unwrap(), Some(ours()));
    put(NAME, None).unwrap();
    assert_eq!(machine.read("firewall"), "");
    put(NAME, None).unwrap();
}

/// A rule of the right name that counts in one profile, for one network, lets no other node in.
#[test]
fn a_rule_that_counts_only_here_and_there_is_another_one() {
    let narrow = "3\tOverlay Traffic 4789 UDP\tcalicoctl-win\t17\t4789\t1\t1\t1\t3\t10.1.0.0/255.255.0.0\t1\n";
    let Some(machine) = firewall(narrow, "") else { return };
    let there = get(NAME).unwrap().unwrap();
    assert_eq!(
        (&*there.profiles, &*there.remote_addresses, there.edge_traversal),
        ("Domain,Private", "10.1.0.0/255.255.0.0", true)
    );
    assert_ne!(there, ours());
    put(NAME, Some(&ours())).unwrap();
    assert_eq!(get(NAME).unwrap(), Some(ours()));
    put(NAME, Some(&there)).unwrap();
    assert_eq!(machine.read("firewall"), narrow, "an undo brings it back as it was");
}

#[test]
fn the_open_ports_are_reported() {
    // Profiles are bits: Domain, Private, Public. The machine's network is in the first.
    let rules = "1\tRDP\t\t6\t3389\t1\t1\t1\t1\n2\tWinRM, private\t\t6\t5985-5986\t1\t1\t1\t2\n\
                 3\tSSH, off\t\t6\t22\t0\t1\t1\t7\n4\tSSH, outbound\t\t6\t22\t1\t2\t1\t7\n";
    let Some(machine) = firewall(rules, "") else { return };
    let told = lets_in(&[3389, 5985, 22]).unwrap();
    assert_eq!(told, [(22, false), (3389, true), (5985, false)].into());
    machine.write("firewall.faults", "Enum 0x800706D9\n");
    drop(lets_in(&[3389]).unwrap_err());
}

#[test]
fn a_firewall_that_refuses_says_why() {
    let mut tell = Vec::new();
    for fault in ["Rules 0x800706D9", "Add 0x80070005", "Enum 0x80070057"] {
        let Some(_machine) = firewall("", fault) else { return };
        tell.push(said(put(NAME, Some(&ours()))));
    }
    insta::assert_snapshot!(tell.join("\n"), @r#"
    FirewallStopped: read the firewall's rules: the service mpssvc does not answer (Windows error 0x800706D9)
    AccessDenied: add firewall rule Overlay Traffic 4789 UDP: add it to the firewall's rules (Windows error 5: access is denied)
    WindowsError: list the firewall's rules (Windows error 87: the parameter is incorrect)
    "#);
}
