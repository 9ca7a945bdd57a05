//! Faults that a user asks for.

use super::*;

fn faulty(dir: &Path, faults: &str) -> SandboxNode {
    SandboxNode::open(dir).unwrap().with_faults(SandboxFaults::parse(faults).unwrap().node).crashes_as_errors()
}

#[test]
fn calls_fail_on_demand() {
    let dir = TempDir::new().unwrap();
    let mut node = faulty(
        dir.path(),
        "put running kubelet=slow-stop; get network*=fail; save *#2=disk-full; put Firewall *#1=fail-after;list networks=fail",
    );
    let file = path(r"C:\ProgramData\calicoctl-win\x.json");
    let rule = crate::item::FirewallRule {
        display_name: "x".into(),
        group: String::new(),
        protocol: "UDP".into(),
        local_ports: "4789".into(),
        enabled: true,
        profiles: String::new(),
        remote_addresses: String::new(),
        edge_traversal: false,
    };
    let firewall = Id::Firewall("x".into());
    let mut tell = vec![
        said(node.put(&running("kubelet"), None)),
        said(node.get(&Id::Network("nat".into())).map(drop)),
        said(node.list(Listing::Networks).map(drop)),
        said(node.put(&firewall, Some(&State::Firewall(rule.clone())))),
    ];
    assert_eq!(node.get(&firewall).unwrap(), Some(State::Firewall(rule)));
    node.save(&file, b"1", Access::Inherited).unwrap();
    tell.push(said(node.save(&file, b"2", Access::Inherited)));
    node.save(&file, b"3", Access::Inherited).unwrap();
    insta::assert_snapshot!(tell.join("\n"), @r#"
    ServiceWillNotStop: stop service kubelet: still stopping after 60 s (Windows error 1053: the service did not respond to the start or control request in a timely fashion)
    -: get hns-network nat: failed, as a sandbox fault asked
    -: list networks: failed, as a sandbox fault asked
    -: set firewall rule x: failed after it was done, as a sandbox fault asked
    DiskFull: save file C:\ProgramData\calicoctl-win\x.json (Windows error 112: there is not enough space on the disk)
    "#);
    assert_eq!(node.touches(), 5);
}

#[test]
fn the_process_ends_on_demand_before_during_or_after_a_call() {
    let dir = TempDir::new().unwrap();
    let journal = path(r"C:\ProgramData\calicoctl-win\journal.ndjson");
    for (fault, text) in [
        ("append *#2=torn", "{\"a\":1}\n{\"b\""),
        ("append *#2=exit-before", "{\"a\":1}\n"),
        ("append *#2=exit-after", "{\"a\":1}\n{\"b\":22}\n"),
        ("#2=exit-after", "{\"a\":1}\n{\"b\":22}\n"),
        ("* *journal*#2=exit-before", "{\"a\":1}\n"),
    ] {
        let mut node = faulty(dir.path(), fault);
        let place = node.disk(&journal);
        node.append(&journal, "{\"a\":1}").unwrap();
        assert!(node.append(&journal, "{\"b\":22}").unwrap_err().is::<Crash>(), "{fault}");
        assert_eq!(fs::read_to_string(&place).unwrap(), text, "{fault}");
        // A crashed process does nothing more.
        assert!(node.append(&journal, "{}").unwrap_err().is::<Crash>());
        assert!(node.get(&running("kubelet")).unwrap_err().is::<Crash>());
        fs::remove_file(place).unwrap();
    }
}

#[test]
fn a_service_can_be_made_to_crash() {
    let dir = TempDir::new().unwrap();
    let mut node = faulty(dir.path(), "put running kubelet#2=dies");
    node.put(&running("kubelet"), None).unwrap();
    insta::assert_snapshot!(said(node.put(&running("kubelet"), Some(&State::Running))), @"ServiceDied: start service kubelet: it ended right away, as a sandbox fault asked (Windows error 1067: the process terminated unexpectedly)");
    assert_eq!(node.get(&running("kubelet")).unwrap(), None);
    node.put(&running("kubelet"), Some(&State::Running)).unwrap();
}

#[test]
fn faults_are_parsed_or_explained() {
    let faults = SandboxFaults::parse(" api GET /api/v1/nodes=503 ; put *#7=exit-before;; release *#1=reset ").unwrap();
    assert_eq!((faults.node.len(), faults.api.as_slice()), (1, ["GET /api/v1/nodes=503".to_owned()].as_slice()));
    assert_eq!(faults.release, ["*#1=reset"]);
    let tell: Vec<String> = ["put x", "push x=fail", "put x=explode", "put *#0=fail", "save *=torn", "get *=disk-full"]
        .iter()
        .map(|text| said(SandboxFaults::parse(text).map(drop)))
        .collect();
    insta::assert_snapshot!(tell.join("\n"), @r#"
    SandboxFaultInvalid: the sandbox fault `put x` is not right: it has no `=ACTION`
    SandboxFaultInvalid: the sandbox fault `push x=fail` is not right: `push` is no call; there are *, facts, get, list, put, save, append, remove, process
    SandboxFaultInvalid: the sandbox fault `put x=explode` is not right: `explode` is no action; there are fail, fail-after, disk-full, in-use, slow-stop, dies, hang, slow, panic, exit-before, exit-within, exit-after, torn, late-pod, noted
    SandboxFaultInvalid: the sandbox fault `put *#0=fail` is not right: `#0` is no count from 1 up
    SandboxFaultInvalid: the sandbox fault `save *=torn` is not right: that call cannot end like this
    SandboxFaultInvalid: the sandbox fault `get *=disk-full` is not right: that call cannot end like this
    "#);
}
