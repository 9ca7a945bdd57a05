//! The file `node.yaml`, which the user may edit.

use super::*;

#[test]
fn a_new_folder_becomes_a_server_2022_node_and_stays_one() {
    let dir = TempDir::new().unwrap();
    let fresh = dir.path().join("deep").join("node");
    let facts = SandboxNode::open(&fresh).unwrap().facts().unwrap();
    assert_eq!((facts.os.build, facts.host_name.as_str(), facts.elevated), (20348, "win-a1", true));
    assert_eq!(facts.runtime.unwrap().cni_bin_dir, path(r"C:\Program Files\containerd\cni\bin"));
    assert_eq!(SandboxNode::open(&fresh).unwrap().facts().unwrap().boot_id, facts.boot_id);
}

#[test]
fn a_folder_with_other_contents_is_not_changed() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("thesis.doc"), "years of work").unwrap();
    let error = SandboxNode::open(dir.path()).err().unwrap();
    assert_eq!(error.downcast_ref::<Failure>().unwrap().exit, Exit::Usage);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_invalid_node_yaml_is_reported_by_line_and_column() {
    let (dir, node) = node();
    drop(node);
    let broken = yaml(&dir).replace("hostName: win-a1", "hostName: win-a1\nhostname: twice");
    fs::write(dir.path().join("node.yaml"), &broken).unwrap();
    let error = SandboxNode::open(dir.path()).err().unwrap();
    assert_eq!(error.downcast_ref::<Failure>().unwrap().exit, Exit::InvalidConfig);
    assert!(error.to_string().contains("line 5, column 1") && error.to_string().contains("hostname"), "{error}");
    assert_eq!(yaml(&dir), broken);
}

#[test]
fn the_users_own_node_yaml_is_restored_byte_for_byte() {
    let (dir, mut node) = node();
    let own = format!("{}\n# my remark\nopenFiles:   [{{path: C:/k/config, by: \"notepad\"}}]\n", yaml(&dir));
    fs::write(dir.path().join("node.yaml"), &own).unwrap();

    let value = crate::calico::registry::boot_id();
    let other = Id::RegValue { key: r"software\tigera\CALICO".into(), name: "LastBootTime".into() };
    node.put(&value, Some(&State::RegValue(RegValue::String("boot-1".into())))).unwrap();
    node.put(&running("kubelet"), None).unwrap();
    node.put(&Id::Network("External".into()), Some(&overlay("192.168.255.0/30", 9999))).unwrap();
    assert!(yaml(&dir).contains("vEthernet (Ethernet)") && !yaml(&dir).contains("my remark"));

    // Another process continues from here.
    let mut node = SandboxNode::open(dir.path()).unwrap();
    node.put(&other, Some(&State::RegValue(RegValue::Dword(1)))).unwrap();
    node.put(&Id::Network("external".into()), None).unwrap();
    node.put(&running("KUBELET"), Some(&State::Running)).unwrap();
    node.put(&value, None).unwrap();
    assert_ne!(yaml(&dir), own);
    node.put(&other, None).unwrap();
    assert_eq!(yaml(&dir), own);

    // The user's edits in a file that the sandbox wrote are kept.
    node.put(&other, Some(&State::RegValue(RegValue::Dword(1)))).unwrap();
    fs::write(dir.path().join("node.yaml"), yaml(&dir).replace("20348", "26100")).unwrap();
    assert_eq!(node.facts().unwrap().os.build, 26100, "seen by a process that is already running");
    node.put(&other, None).unwrap();
    assert_eq!(SandboxNode::open(dir.path()).unwrap().facts().unwrap().os.build, 26100);
    assert_eq!(node.get(&other).unwrap(), None);
}

#[test]
fn node_yaml_can_list_faults() {
    let (dir, node) = node();
    drop(node);
    let text = format!("{}faults:\n- put running kubelet=fail\n- api *=503\n", yaml(&dir));
    fs::write(dir.path().join("node.yaml"), text).unwrap();
    let node = SandboxNode::open(dir.path()).unwrap();
    let faults = SandboxFaults::parse(&node.listed_faults()).unwrap();
    assert_eq!((faults.node.len(), faults.api), (1, vec!["*=503".to_owned()]));
}

#[test]
fn the_first_five_fields_of_the_page_are_enough() {
    let (_, example) = include_str!("../../../../docs/sandbox.md").split_once("```yaml\n").unwrap();
    let mut fields = 0;
    let is_of_five = |line: &&str| {
        fields += usize::from(line.starts_with(|first: char| first.is_ascii_lowercase()));
        fields <= 5
    };
    let five: Vec<&str> = example.lines().take_while(is_of_five).collect();
    assert!(five.last().unwrap().starts_with("bootId:"), "{five:#?}");
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("node.yaml"), five.join("\n")).unwrap();
    let facts = SandboxNode::open(dir.path()).unwrap().facts().unwrap();
    assert_eq!((facts.host_name.as_str(), facts.os.build, facts.runtime), ("win-b2", 17763, None));
}

#[test]
fn the_page_for_users_matches_the_sandbox() {
    let page = include_str!("../../../../docs/sandbox.md");
    let block = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    let (dir, node) = node();
    drop(node);
    fs::write(dir.path().join("node.yaml"), block("yaml")).unwrap();
    let node = SandboxNode::open(dir.path()).unwrap();
    assert_eq!(node.facts().unwrap().os.build, 17763);
    assert_eq!(SandboxFaults::parse(&node.listed_faults()).unwrap().node.len(), 1);
    let examples: Vec<&str> = block("faults").lines().collect();
    assert_eq!(SandboxFaults::parse(&examples.join(";")).unwrap().node.len(), examples.len());
    let examples: Vec<&str> = block("server-faults").lines().collect();
    let of_servers = SandboxFaults::parse(&examples.join(";")).unwrap();
    assert_eq!(of_servers.api.len() + of_servers.release.len(), examples.len());
}
