//! What a user of the sandbox finds: Windows's rules, kept.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::faults::{Crash, SandboxFaults};
use super::*;
use crate::fault::{Exit, Fault as Failure};
use crate::node::STORE_DIR;
use crate::plan::item::{Manifest, ManifestFile, Network, NetworkKind, RegValue, StartType, Tree};
use crate::values::Sha256;

/// A new node in a folder of its own.
fn node() -> (TempDir, SandboxNode) {
    let dir = TempDir::new().unwrap();
    let node = SandboxNode::open(dir.path()).unwrap();
    (dir, node)
}

fn path(text: &str) -> WinPath {
    WinPath::known(text)
}

/// Keeps bytes in the store, as the engine does, and gives the state that has them.
fn blob(node: &mut SandboxNode, bytes: &[u8], access: Access) -> State {
    let sha256 = Sha256::of(bytes);
    node.save(&path(STORE_DIR).join("blobs").join(sha256.as_str()), bytes, Access::Administrators).unwrap();
    State::File { sha256, access }
}

fn service(exe: &str, depends_on: &[&str]) -> State {
    State::Service(Box::new(Service {
        display_name: "x".into(),
        description: "x".into(),
        image_path: format!("\"{exe}\" service run"),
        account: "LocalSystem".into(),
        start: StartType::Auto,
        depends_on: depends_on.iter().map(|s| (*s).to_owned()).collect(),
        restart_after: vec![5],
        parameters: Default::default(),
    }))
}

fn overlay(subnet: &str, vsid: u32) -> State {
    State::Network(Network {
        kind: NetworkKind::Overlay,
        subnet: Some(subnet.parse().unwrap()),
        gateway: None,
        vsid: Some(vsid),
        adapter: None,
        management_ip: None,
    })
}

fn running(name: &str) -> Id {
    Id::Running(name.into())
}

/// What an error says and, where it is known, its id.
fn said(result: Result<()>) -> String {
    let error = result.unwrap_err();
    let id = error.downcast_ref::<Failure>().map_or("-", |fault| fault.id);
    format!("{id}: {error:#}")
}

fn yaml(dir: &TempDir) -> String {
    fs::read_to_string(dir.path().join("node.yaml")).unwrap()
}

#[test]
fn a_new_folder_becomes_a_server_2022_node_and_stays_it() {
    let dir = TempDir::new().unwrap();
    let fresh = dir.path().join("deep").join("node");
    let facts = SandboxNode::open(&fresh).unwrap().facts().unwrap();
    assert_eq!((facts.os.build, facts.host_name.as_str(), facts.elevated), (20348, "win-a1", true));
    assert_eq!(facts.runtime.unwrap().cni_bin_dir, path(r"C:\Program Files\containerd\cni\bin"));
    assert_eq!(SandboxNode::open(&fresh).unwrap().facts().unwrap().boot_id, facts.boot_id);
}

#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("thesis.doc"), "years of work").unwrap();
    let error = SandboxNode::open(dir.path()).err().unwrap();
    assert_eq!(error.downcast_ref::<Failure>().unwrap().exit, Exit::Usage);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_wrong_node_yaml_is_named_by_line_and_column() {
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
fn the_users_own_node_yaml_comes_back_byte_for_byte() {
    let (dir, mut node) = node();
    let own = format!("{}\n# my remark\nopenFiles:   [{{path: C:/k/config, by: \"notepad\"}}]\n", yaml(&dir));
    fs::write(dir.path().join("node.yaml"), &own).unwrap();

    let value = crate::calico::registry::boot_id();
    let other = Id::RegValue { key: r"software\tigera\CALICO".into(), name: "LastBootTime".into() };
    node.put(&value, Some(&State::RegValue(RegValue::String("boot-1".into())))).unwrap();
    node.put(&running("kubelet"), None).unwrap();
    node.put(&Id::Network("External".into()), Some(&overlay("192.168.255.0/30", 9999))).unwrap();
    assert!(yaml(&dir).contains("vEthernet (Ethernet)") && !yaml(&dir).contains("my remark"));

    // Another process goes on from here.
    let mut node = SandboxNode::open(dir.path()).unwrap();
    node.put(&other, Some(&State::RegValue(RegValue::Dword(1)))).unwrap();
    node.put(&Id::Network("external".into()), None).unwrap();
    node.put(&running("KUBELET"), Some(&State::Running)).unwrap();
    node.put(&value, None).unwrap();
    assert_ne!(yaml(&dir), own);
    node.put(&other, None).unwrap();
    assert_eq!(yaml(&dir), own);

    // What the user edits in a file that we wrote is not lost.
    node.put(&other, Some(&State::RegValue(RegValue::Dword(1)))).unwrap();
    fs::write(dir.path().join("node.yaml"), yaml(&dir).replace("20348", "26100")).unwrap();
    assert_eq!(node.facts().unwrap().os.build, 26100, "seen by a process that is already running");
    node.put(&other, None).unwrap();
    assert_eq!(SandboxNode::open(dir.path()).unwrap().facts().unwrap().os.build, 26100);
    assert_eq!(node.get(&other).unwrap(), None);
}

#[test]
fn paths_are_found_without_case_and_lead_nowhere_else() {
    let (dir, node) = node();
    let exe = path(r"c:\PROGRAM FILES\Containerd\CONTAINERD.exe");
    // Windows finds a file whatever its name's case, so there the name is left as it was given.
    let plain = |path: &Path| path.to_string_lossy().replace('\\', "/").to_lowercase();
    let found = node.disk(&exe);
    assert_eq!(plain(&found), plain(&dir.path().join("C/Program Files/containerd/containerd.exe")));
    assert!(found.is_file(), "{}", found.display());
    let outside = path(r"C:\k").join(r"..\..\..\..\etc\passwd");
    assert!(node.get(&Id::File(outside.clone())).is_err());
    assert!(fs::read(node.disk(&outside)).is_err() && fs::create_dir_all(node.disk(&outside)).is_err());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/etc", dir.path().join("C/k/link")).unwrap();
        let error = node.get(&Id::File(path(r"C:\k\link\passwd"))).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
}

#[test]
fn files_come_from_the_store_and_keep_who_may_read_them() {
    let (dir, mut node) = node();
    let id = Id::File(path(r"C:\k\calico-kube-config"));
    let secret = blob(&mut node, b"token", Access::Administrators);
    node.put(&id, Some(&secret)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(secret));
    let open = blob(&mut node, b"token", Access::Inherited);
    node.put(&id, Some(&open)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(open));
    node.put(&id, None).unwrap();
    node.put(&id, None).unwrap();
    assert_eq!(node.get(&id).unwrap(), None);
    assert_eq!(fs::read_dir(dir.path().join("C/k")).unwrap().count(), 1, "nothing is left beside it");

    let lost = State::File { sha256: Sha256::of(b"never kept"), access: Access::Inherited };
    assert!(said(node.put(&id, Some(&lost))).starts_with("FileNotFound"));
    let nowhere = Id::File(path(r"C:\no\such\folder\x"));
    let state = blob(&mut node, b"x", Access::Inherited);
    assert!(said(node.put(&nowhere, Some(&state))).contains("Windows error 3"));
}

#[cfg(unix)]
#[test]
fn an_original_with_a_mode_of_its_own_gets_it_back() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, mut node) = node();
    let id = Id::CniConf(path(r"C:\k\10-other.conf"));
    let place = node.disk(id.path().unwrap());
    fs::write(&place, "{}").unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o640)).unwrap();
    let original = node.get(&id).unwrap().unwrap();
    let State::File { sha256, access: Access::Inherited } = &original else { panic!("{original:?}") };
    let kept = node.disk(&path(STORE_DIR).join("blobs").join(sha256.as_str()));
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::copy(&place, kept).unwrap();
    node.put(&id, None).unwrap();
    node.put(&id, Some(&original)).unwrap();
    assert_eq!(fs::metadata(place).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn only_an_empty_folder_is_removed() {
    let (_dir, mut node) = node();
    let (top, below) = (Id::Dir(path(r"C:\CalicoWindows")), Id::Dir(path(r"C:\CalicoWindows\logs")));
    let state = State::Dir { access: Access::Administrators };
    node.put(&top, Some(&state)).unwrap();
    node.put(&below, Some(&State::Dir { access: Access::Inherited })).unwrap();
    node.put(&top, None).unwrap();
    assert_eq!(node.get(&top).unwrap(), Some(state), "what is in it is somebody else's");
    node.put(&below, None).unwrap();
    node.put(&top, None).unwrap();
    assert_eq!(node.get(&top).unwrap(), None);
}

#[test]
fn what_is_in_use_is_not_replaced_and_its_folder_not_moved() {
    let (_dir, mut node) = node();
    let new = blob(&mut node, b"newer", Access::Inherited);
    let config = Id::File(path(r"C:\k\config"));
    node.put(&config, Some(&new)).unwrap();
    node.edit(|model| {
        model.open_files.push(model::OpenFile { path: path(r"C:\k\config"), by: "kubelet".into() });
        Ok(())
    })
    .unwrap();
    for wanted in [Some(&new), None] {
        let said = said(node.put(&config, wanted));
        assert!(
            said.starts_with("FileInUse: ") && said.contains("which is in use by kubelet (Windows error 32: "),
            "{said}"
        );
    }

    let root = path(r"C:\CalicoWindows");
    node.put(&Id::Dir(root.clone()), Some(&State::Dir { access: Access::Inherited })).unwrap();
    node.edit(|model| {
        model.open_files.push(model::OpenFile { path: root.join("readme.txt"), by: "notepad.exe".into() });
        Ok(())
    })
    .unwrap();
    insta::assert_snapshot!(said(node.put(&Id::Tree(root), None)), @r"FileInUse: move C:\CalicoWindows: C:\CalicoWindows\readme.txt is in use by notepad.exe (Windows error 5: access is denied)");
}

#[test]
fn a_program_that_runs_makes_room_and_its_file_goes_later() {
    let (_dir, mut node) = node();
    let folder = path(r"C:\Program Files\containerd");
    let (exe, old) = (Id::File(folder.join("containerd.exe")), Id::File(folder.join("containerd.exe.old-1")));
    let (new, newer) = (blob(&mut node, b"new", Access::Inherited), blob(&mut node, b"newer", Access::Inherited));

    node.put(&exe, Some(&new)).unwrap();
    assert!(node.get(&exe).unwrap().as_ref() == Some(&new) && node.get(&old).unwrap().is_some());
    assert_eq!(node.left_until_reboot(), []);
    node.put(&running("kubelet"), None).unwrap();
    node.put(&running("containerd"), None).unwrap();
    node.put(&exe, Some(&newer)).unwrap();
    assert_eq!(node.get(&old).unwrap(), None, "it ran no more");

    node.put(&running("containerd"), Some(&State::Running)).unwrap();
    node.put(&exe, None).unwrap();
    assert_eq!(node.get(&exe).unwrap(), None);
    assert_eq!(node.left_until_reboot(), [folder.join("containerd.exe.old-1")]);
    insta::assert_snapshot!(node.facts().unwrap().pending_reboot.join("; "), @r"files wait to be moved or deleted: C:\Program Files\containerd\containerd.exe.old-1");
}

/// Stages a small release in the store, as the engine does.
fn stage(node: &SandboxNode, version: &str) -> Tree {
    let bytes = format!("calico-node {version}");
    let file = ManifestFile { size: bytes.len() as u64, sha256: Sha256::of(bytes.as_bytes()) };
    let files = [("bin/calico-node.exe".to_owned(), file)].into();
    let manifest = Manifest { version: version.into(), archive: None, files };
    let place = node.disk(&path(STORE_DIR).join("trees").join(manifest.digest().as_str()));
    fs::create_dir_all(place.join("bin")).unwrap();
    fs::write(place.join("bin/calico-node.exe"), bytes).unwrap();
    fs::write(place.join(Manifest::FILE), serde_json::to_vec(&manifest).unwrap()).unwrap();
    Tree::Release(manifest.digest())
}

#[test]
fn release_trees_are_swapped_whole_and_the_foreign_one_comes_back() {
    let (_dir, mut node) = node();
    let id = Id::Tree(path(r"C:\CalicoWindows"));
    let place = node.disk(id.path().unwrap());
    let (old, new) = (State::Tree(stage(&node, "v3.30.0")), State::Tree(stage(&node, "v3.32.1")));
    fs::create_dir(&place).unwrap();
    fs::write(place.join("config.ps1"), "by hand").unwrap();
    let foreign = node.get(&id).unwrap();
    assert_eq!(foreign, Some(State::Tree(Tree::Foreign)));

    for state in [&old, &new, &old] {
        node.put(&id, Some(state)).unwrap();
        assert_eq!(node.get(&id).unwrap().as_ref(), Some(state));
    }
    // Half-way: one rename was made, the other was not.
    let State::Tree(Tree::Release(digest)) = &old else { unreachable!() };
    fs::rename(&place, node.disk(&path(STORE_DIR).join("trees").join(digest.as_str()))).unwrap();
    node.put(&id, Some(&new)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(new.clone()));

    node.put(&id, None).unwrap();
    assert_eq!(node.get(&id).unwrap(), None);
    node.put(&id, foreign.as_ref()).unwrap();
    assert_eq!(fs::read_to_string(place.join("config.ps1")).unwrap(), "by hand");
}

#[test]
fn a_release_that_was_changed_is_found_and_kept() {
    let (_dir, mut node) = node();
    let id = Id::Tree(path(r"C:\CalicoWindows"));
    let release = stage(&node, "v3.32.1");
    let state = State::Tree(release.clone());
    node.put(&id, Some(&state)).unwrap();
    let place = node.disk(id.path().unwrap());
    // Same size, newer than the manifest.
    let exe = place.join("bin/calico-node.exe");
    fs::write(&exe, "evilly-node v3.32.1").unwrap();
    fs::File::options()
        .write(true)
        .open(&exe)
        .unwrap()
        .set_modified(std::time::SystemTime::now() + Duration::from_secs(60))
        .unwrap();
    let Tree::Release(of) = release else { unreachable!() };
    let drifted = State::Tree(Tree::Drifted { of, files: vec!["bin/calico-node.exe".into()] });
    assert_eq!(node.get(&id).unwrap(), Some(drifted.clone()));

    stage(&node, "v3.32.1");
    node.put(&id, Some(&state)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(state));
    node.put(&id, Some(&drifted)).unwrap();
    assert_eq!(fs::read_to_string(&exe).unwrap(), "evilly-node v3.32.1");

    // A release that the store does not have is missed before anything moves.
    let other = State::Tree(Tree::Release(Sha256::of(b"v3.99")));
    assert!(node.put(&id, Some(&other)).is_err());
    assert_eq!(node.get(&id).unwrap(), Some(drifted));
}

#[test]
fn services_keep_the_order_that_windows_keeps() {
    let (_dir, mut node) = node();
    let (calico_node, felix) = (Id::Service("CalicoNode".into()), Id::Service("CalicoFelix".into()));
    let exe = r"C:\k\kubelet.exe";
    let mut tell = Vec::new();
    tell.push(said(node.put(&running("CalicoNode"), Some(&State::Running))));
    node.put(&calico_node, Some(&service(exe, &[]))).unwrap();
    node.put(&felix, Some(&service(exe, &["calicoNODE"]))).unwrap();
    tell.push(said(node.put(&running("CalicoFelix"), Some(&State::Running))));
    node.put(&running("CalicoNode"), Some(&State::Running)).unwrap();
    node.put(&running("calicofelix"), Some(&State::Running)).unwrap();
    tell.push(said(node.put(&running("CalicoNode"), None)));
    tell.push(said(node.put(&felix, None)));
    node.put(&running("CalicoFelix"), None).unwrap();
    node.put(&running("CalicoNode"), None).unwrap();
    let State::Service(mut disabled) = service(exe, &[]) else { unreachable!() };
    disabled.start = StartType::Disabled;
    node.put(&calico_node, Some(&State::Service(disabled))).unwrap();
    tell.push(said(node.put(&running("CalicoNode"), Some(&State::Running))));
    node.put(&calico_node, Some(&service(r"C:\no\such.exe", &[]))).unwrap();
    tell.push(said(node.put(&running("CalicoNode"), Some(&State::Running))));
    insta::assert_snapshot!(tell.join("\n"), @r#"
    ServiceNotFound: start service CalicoNode (Windows error 1060: the specified service does not exist as an installed service)
    ServiceDependencyDown: start service CalicoFelix, which depends on calicoNODE: not running (Windows error 1068: the dependency service or group failed to start)
    ServiceHasDependents: stop service CalicoNode, on which CalicoFelix depends (Windows error 1051: a stop control has been sent to a service that other running services are dependent on)
    ServiceMarkedForDelete: delete service CalicoFelix, which runs (pid 4004) (Windows error 1072: the specified service has been marked for deletion)
    ServiceDisabled: start service CalicoNode (Windows error 1058: the service is disabled)
    FileNotFound: start service CalicoNode: C:\no\such.exe (Windows error 2: the system cannot find the file specified)
    "#);
    node.put(&felix, None).unwrap();
    node.put(&calico_node, None).unwrap();
    assert_eq!(node.list(Listing::Services).unwrap().len(), 3);
}

#[test]
fn a_service_takes_its_time_to_stop() {
    let (dir, mut node) = node();
    let slow = |node: &mut SandboxNode, seconds| {
        node.edit(|model| {
            model.services.get_mut(&Name::new("kubelet")).unwrap().stop_seconds = seconds;
            Ok(())
        })
        .unwrap();
    };
    slow(&mut node, 30);
    let before = node.now();
    node.put(&running("kubelet"), None).unwrap();
    assert!(node.now().duration_since(before).as_secs() >= 30);
    node.put(&running("kubelet"), Some(&State::Running)).unwrap();
    slow(&mut node, 600);
    insta::assert_snapshot!(said(node.put(&running("kubelet"), None)), @"ServiceWillNotStop: stop service kubelet: still stopping after 60 s (Windows error 1053: the service did not respond to the start or control request in a timely fashion)");
    assert_eq!(SandboxNode::open(dir.path()).unwrap().get(&running("kubelet")).unwrap(), Some(State::Running));
}

#[test]
fn a_service_runs_its_hook_and_dies_with_its_error() {
    let (_dir, node) = node();
    let mut node = node.with_start_hook(Box::new(|node, name, service| {
        assert_eq!(service.display_name, "x");
        node.spawn(name, &path(r"C:\k\kubelet.exe"))?;
        if name == "Bad" { bail!("no kubeconfig") } else { Ok(()) }
    }));
    for name in ["Good", "Bad"] {
        node.put(&Id::Service(name.into()), Some(&service(r"C:\k\kubelet.exe", &[]))).unwrap();
    }
    node.put(&running("Good"), Some(&State::Running)).unwrap();
    assert_eq!(node.model().unwrap().processes.len(), 1);
    insta::assert_snapshot!(said(node.put(&running("Bad"), Some(&State::Running))), @"ServiceDied: start service Bad: its program failed (Windows error 1067: the process terminated unexpectedly): no kubeconfig");
    assert_eq!(node.get(&running("Bad")).unwrap(), None);
    node.put(&running("Good"), None).unwrap();
    assert!(node.model().unwrap().processes.is_empty(), "children end with their service");
}

#[test]
fn a_service_that_dies_passes_on_what_its_program_knows_to_do() {
    let (_dir, node) = node();
    let mut node = node.with_start_hook(Box::new(|_, _, _| {
        Err(Failure::new(Exit::Failed, "NoAnswer", "no kubeconfig").hint("fetch it again").into())
    }));
    node.put(&Id::Service("Bad".into()), Some(&service(r"C:\k\kubelet.exe", &[]))).unwrap();
    let error = node.put(&running("Bad"), Some(&State::Running)).unwrap_err();
    let fault = error.downcast_ref::<Failure>().unwrap();
    assert_eq!((fault.id, fault.hint.as_deref()), ("ServiceDied", Some("fetch it again")));
}

#[test]
fn the_first_network_takes_the_adapter_and_the_last_gives_it_back() {
    let (_dir, mut node) = node();
    let external = Id::Network("External".into());
    let metadata = Id::Route("169.254.169.254/32".parse().unwrap());
    let on_link = State::Route { interface: "Ethernet".into(), next_hop: "0.0.0.0".parse().unwrap(), metric: 5 };
    node.put(&metadata, Some(&on_link)).unwrap();
    let before = node.facts().unwrap().adapters;
    let names = |node: &SandboxNode| -> Vec<String> {
        let addresses = |a: &crate::facts::Adapter| a.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        node.facts().unwrap().adapters.iter().map(|a| format!("{} {}", a.name, addresses(a).join(","))).collect()
    };
    node.put(&external, Some(&overlay("192.168.255.0/30", 9999))).unwrap();
    assert_eq!(names(&node), ["Ethernet ", "vEthernet (Ethernet) 169.254.21.21/16"]);
    assert_eq!(node.get(&metadata).unwrap(), None);
    let ip = |node: &SandboxNode, id: &Id| match node.get(id).unwrap() {
        Some(State::Network(network)) => network.management_ip,
        other => panic!("{other:?}"),
    };
    assert_eq!(ip(&node, &external), None);
    node.pause(Duration::from_secs(4));
    assert_eq!(ip(&node, &external), None);
    node.pause(Duration::from_secs(1));
    assert_eq!(ip(&node, &external), Some("10.20.0.21".parse().unwrap()));
    assert_eq!(names(&node), ["Ethernet ", "vEthernet (Ethernet) 10.20.0.21/24"]);

    // A second network finds the vSwitch and disturbs nobody.
    let calico = Id::Network("Calico".into());
    node.put(&calico, Some(&overlay("10.244.1.0/26", 5000))).unwrap();
    assert_eq!(ip(&node, &calico), Some("10.20.0.21".parse().unwrap()));
    let State::Network(network) = node.get(&calico).unwrap().unwrap() else { unreachable!() };
    assert_eq!((network.vsid, network.adapter.as_deref()), (Some(5000), Some("Ethernet")));
    node.put(&external, None).unwrap();
    assert_eq!(names(&node)[0], "Ethernet ");
    let then = node.now();
    node.put(&calico, None).unwrap();
    assert!(node.now().duration_since(then).as_secs() >= 5);
    assert_eq!(node.facts().unwrap().adapters, before);
    assert_eq!(node.list(Listing::Networks).unwrap().len(), 1, "nat is another's");
}

#[test]
fn hns_refuses_what_it_refuses() {
    let (_dir, mut node) = node();
    let calico = Id::Network("Calico".into());
    let State::Network(mut wrong) = overlay("10.244.1.0/26", 4096) else { unreachable!() };
    wrong.adapter = Some("Ethernet 2".into());
    let mut tell = vec![said(node.put(&calico, Some(&State::Network(wrong))))];
    node.put(&calico, Some(&overlay("10.244.1.0/26", 4096))).unwrap();
    node.put(&calico, Some(&overlay("10.244.1.0/26", 4096))).unwrap();
    tell.push(said(node.put(&Id::Network("CALICO".into()), Some(&overlay("10.244.1.0/26", 5000)))));
    node.edit(|model| {
        let network = model.networks.get_mut(&Name::new("Calico")).unwrap();
        let endpoint = model::Endpoint {
            ip: "10.244.1.5".parse().unwrap(),
            mac: "0E-2A-0A-F4-01-05".into(),
            remote: false,
            provider_address: None,
            container: Some("3f2c".into()),
        };
        network.endpoints.insert(Name::new("web-1"), endpoint);
        Ok(())
    })
    .unwrap();
    tell.push(said(node.put(&calico, None)));
    node.edit(|model| {
        model.hns = None;
        Ok(())
    })
    .unwrap();
    tell.push(said(node.put(&Id::Network("x".into()), Some(&overlay("10.1.0.0/26", 4096)))));
    insta::assert_snapshot!(tell.join("\n"), @r#"
    HnsAdapterNotFound: create HNS network Calico on adapter `Ethernet 2`; there are: Ethernet (Windows error 0x803B0006: HNS does not find the adapter)
    HnsNetworkExists: create HNS network CALICO (Windows error 0x803B0010: HNS has a network of that name already)
    HnsNetworkInUse: delete HNS network Calico, to which endpoints are attached: web-1 of container 3f2c (Windows error 0x803B002C: HNS still has references to the network)
    HnsNotAvailable: the Host Networking Service does not answer
    "#);
}

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
    let rule = crate::plan::item::FirewallRule {
        display_name: "x".into(),
        group: String::new(),
        protocol: "UDP".into(),
        local_ports: "4789".into(),
        enabled: true,
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
    -: firewall x: failed after it was done, as a sandbox fault asked
    DiskFull: save file C:\ProgramData\calicoctl-win\x.json (Windows error 112: there is not enough space on the disk)
    "#);
    assert_eq!(node.touches(), 5);
}

#[test]
fn the_process_ends_on_demand_before_after_or_in_the_midst() {
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
        // The dead do nothing more.
        assert!(node.append(&journal, "{}").unwrap_err().is::<Crash>());
        assert!(node.get(&running("kubelet")).unwrap_err().is::<Crash>());
        fs::remove_file(place).unwrap();
    }
}

#[test]
fn a_service_can_be_asked_to_die() {
    let dir = TempDir::new().unwrap();
    let mut node = faulty(dir.path(), "put running kubelet#2=dies");
    node.put(&running("kubelet"), None).unwrap();
    insta::assert_snapshot!(said(node.put(&running("kubelet"), Some(&State::Running))), @"ServiceDied: start service kubelet: it ended right away, as a sandbox fault asked (Windows error 1067: the process terminated unexpectedly)");
    assert_eq!(node.get(&running("kubelet")).unwrap(), None);
    node.put(&running("kubelet"), Some(&State::Running)).unwrap();
}

#[test]
fn faults_are_read_or_explained() {
    let faults = SandboxFaults::parse(" api GET /api/v1/nodes=503 ; put *#7=exit-before;; release *#1=reset ").unwrap();
    assert_eq!((faults.node.len(), faults.api.as_slice()), (1, ["GET /api/v1/nodes=503".to_owned()].as_slice()));
    assert_eq!(faults.release, ["*#1=reset"]);
    let tell: Vec<String> = ["put x", "push x=fail", "put x=explode", "put *#0=fail", "save *=torn", "get *=disk-full"]
        .iter()
        .map(|text| said(SandboxFaults::parse(text).map(drop)))
        .collect();
    insta::assert_snapshot!(tell.join("\n"), @r#"
    SandboxFaultInvalid: the sandbox fault `put x` is not right: it has no `=ACTION`
    SandboxFaultInvalid: the sandbox fault `push x=fail` is not right: `push` is no call; there are *, facts, get, list, put, save, append
    SandboxFaultInvalid: the sandbox fault `put x=explode` is not right: `explode` is no action; there are fail, fail-after, disk-full, in-use, slow-stop, dies, hang, exit-before, exit-after, torn
    SandboxFaultInvalid: the sandbox fault `put *#0=fail` is not right: `#0` is no count from 1 up
    SandboxFaultInvalid: the sandbox fault `save *=torn` is not right: that call cannot end like this
    SandboxFaultInvalid: the sandbox fault `get *=disk-full` is not right: that call cannot end like this
    "#);
}

#[test]
fn node_yaml_can_list_faults_of_its_own() {
    let (dir, node) = node();
    drop(node);
    let text = format!("{}faults:\n- put running kubelet=fail\n- api *=503\n", yaml(&dir));
    fs::write(dir.path().join("node.yaml"), text).unwrap();
    let node = SandboxNode::open(dir.path()).unwrap();
    let faults = SandboxFaults::parse(&node.listed_faults()).unwrap();
    assert_eq!((faults.node.len(), faults.api), (1, vec!["*=503".to_owned()]));
}

#[test]
fn the_users_page_is_right() {
    let page = include_str!("../../../docs/sandbox.md");
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
}
