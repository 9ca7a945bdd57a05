//! Services.

use super::*;

#[test]
fn services_start_and_stop_in_the_order_of_windows() {
    let (_dir, mut node) = node();
    let (calico_node, felix) = (Id::Service("CalicoNode".into()), Id::Service("CalicoFelix".into()));
    let exe = r"C:\k\kubelet.exe";
    let (broken, dependent) = (Id::Service("Broken".into()), Id::Service("Dependent".into()));
    let mut tell = Vec::new();
    tell.push(said(node.put(&running("CalicoNode"), Some(&State::Running))));
    node.put(&calico_node, Some(&service(exe, &[]))).unwrap();
    node.put(&felix, Some(&service(exe, &["calicoNODE"]))).unwrap();
    node.put(&running("calicofelix"), Some(&State::Running)).unwrap();
    assert_eq!(node.get(&running("CalicoNode")).unwrap(), Some(State::Running), "Windows starts it along");
    node.put(&broken, Some(&service(r"C:\no\such.exe", &[]))).unwrap();
    node.put(&dependent, Some(&service(exe, &["BROKEN"]))).unwrap();
    tell.push(said(node.put(&running("Dependent"), Some(&State::Running))));
    node.put(&dependent, Some(&service(exe, &["CalicoNode", "CalicoConfd"]))).unwrap();
    tell.push(said(node.put(&running("Dependent"), Some(&State::Running))));
    node.put(&dependent, Some(&service(exe, &["Dependent"]))).unwrap();
    tell.push(said(node.put(&running("Dependent"), Some(&State::Running))));
    node.put(&dependent, Some(&service(exe, &["calicoFELIX"]))).unwrap();
    assert_eq!(node.dependents("caliconode").unwrap(), ["CalicoFelix", "Dependent"]);
    node.put(&running("Dependent"), Some(&State::Running)).unwrap();
    tell.push(said(node.put(&running("CalicoNode"), None)));
    tell.push(said(node.put(&felix, None)));
    node.put(&running("Dependent"), None).unwrap();
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
    ServiceDependencyDown: start service Dependent, which depends on BROKEN: start service BROKEN: C:\no\such.exe (Windows error 2: the system cannot find the file specified) (Windows error 1068: the dependency service or group failed to start)
    ServiceDependencyMissing: start service Dependent, which depends on CalicoConfd (Windows error 1075: the dependency service does not exist or has been marked for deletion)
    ServiceDependencyDown: start service Dependent, which depends on Dependent: it depends on Dependent (Windows error 1068: the dependency service or group failed to start)
    ServiceHasDependents: stop service CalicoNode, on which CalicoFelix, Dependent depends (Windows error 1051: a stop control has been sent to a service that other running services are dependent on)
    ServiceMarkedForDelete: delete service CalicoFelix, which runs (pid 4004) (Windows error 1072: the specified service has been marked for deletion)
    ServiceDisabled: start service CalicoNode (Windows error 1058: the service is disabled)
    FileNotFound: start service CalicoNode: C:\no\such.exe (Windows error 2: the system cannot find the file specified)
    "#);
    for id in [&dependent, &broken, &felix, &calico_node] {
        node.put(id, None).unwrap();
    }
    assert_eq!(node.list(Listing::Services).unwrap().len(), 3);
}

#[test]
fn one_running_member_of_a_group_is_enough_for_what_depends_on_it() {
    let (_dir, mut node) = node();
    let exe = r"C:\k\kubelet.exe";
    for (name, exe) in [("First", r"C:\no\such.exe"), ("Second", exe)] {
        node.put(&Id::Service(name.into()), Some(&service(exe, &[]))).unwrap();
    }
    node.put(&Id::Service("Dependent".into()), Some(&service(exe, &["+network"]))).unwrap();
    insta::assert_snapshot!(said(node.put(&running("Dependent"), Some(&State::Running))), @"ServiceDependencyDown: start service Dependent, which depends on the group network: no service of it runs (Windows error 1068: the dependency service or group failed to start)");
    node.edit(|model| {
        model.service_groups.insert(Name::new("Network"), ["First", "Second"].map(Name::new).into());
        Ok(())
    })
    .unwrap();
    node.put(&running("Dependent"), Some(&State::Running)).unwrap();
    assert_eq!(node.get(&running("Second")).unwrap(), Some(State::Running));
    assert_eq!(node.get(&running("First")).unwrap(), None);
}

#[test]
fn a_service_takes_its_configured_time_to_stop() {
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
fn a_service_runs_its_hook_and_ends_with_its_error() {
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
fn a_service_that_ends_passes_on_its_programs_hint() {
    let (_dir, node) = node();
    let mut node = node.with_start_hook(Box::new(|_, _, _| {
        Err(Failure::new(Exit::Failed, "NoAnswer", "no kubeconfig").hint("fetch it again").into())
    }));
    node.put(&Id::Service("Bad".into()), Some(&service(r"C:\k\kubelet.exe", &[]))).unwrap();
    let error = node.put(&running("Bad"), Some(&State::Running)).unwrap_err();
    let fault = error.downcast_ref::<Failure>().unwrap();
    assert_eq!((fault.id, fault.hint.as_deref()), ("ServiceDied", Some("fetch it again")));
}

/// services.msc is open: Windows accepts the deletion, and keeps the name until the window closes.
#[test]
fn a_deleted_service_that_somebody_has_open_is_gone_and_its_name_is_not_free() {
    let (_dir, mut node) = node();
    let (id, wanted) = (Id::Service("CalicoNode".into()), service(r"C:\k\kubelet.exe", &[]));
    let hold = |node: &mut SandboxNode, held: bool| {
        let change = |model: &mut Model| {
            model.services.get_mut(&Name::new("CalicoNode")).unwrap().held_open = held;
            Ok(())
        };
        node.edit(change).unwrap();
    };
    node.put(&id, Some(&wanted)).unwrap();
    hold(&mut node, true);
    assert!(node.put(&id, None).unwrap().name_held);
    assert_eq!((node.get(&id).unwrap(), node.service_state("CalicoNode").unwrap()), (None, None));
    assert_eq!(node.list(Listing::Services).unwrap().len(), 3);
    assert!(said(node.put(&id, Some(&wanted))).starts_with("ServiceMarkedForDelete: make service CalicoNode"));
    assert!(said(node.put(&running("CalicoNode"), Some(&State::Running))).starts_with("ServiceMarkedForDelete"));
    hold(&mut node, false);
    node.put(&id, Some(&wanted)).unwrap();
    assert_eq!(node.get(&id).unwrap(), Some(wanted));
}

fn timed(node: &mut SandboxNode, name: &str, change: impl Fn(&mut NodeService)) {
    node.edit(|model| {
        change(model.services.get_mut(&Name::new(name)).unwrap());
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_service_that_starts_slowly_is_starting_until_it_runs() {
    let (dir, mut node) = node();
    node.put(&running("kubelet"), None).unwrap();
    timed(&mut node, "kubelet", |service| service.start_seconds = 40);
    let seen = SandboxNode::open(dir.path()).unwrap();
    let mut node = node.with_start_hook(Box::new(move |_, name, _| {
        assert_eq!(seen.service_state(name).unwrap(), Some(ServiceState::Running), "its program waits for that");
        Ok(())
    }));
    let before = node.now();
    node.put(&running("kubelet"), Some(&State::Running)).unwrap();
    assert!((40..45).contains(&node.now().duration_since(before).as_secs()));

    node.put(&running("kubelet"), None).unwrap();
    timed(&mut node, "kubelet", |service| service.start_seconds = 600);
    insta::assert_snapshot!(said(node.put(&running("kubelet"), Some(&State::Running))), @"ServiceWillNotStart: start service kubelet: still starting after 180 s");
    assert_eq!(node.service_state("kubelet").unwrap(), Some(ServiceState::Starting));
}

#[test]
fn recovery_actions_start_a_service_again_that_ended_by_itself_and_no_other() {
    let (_dir, mut node) = node();
    let id = Id::Service("Crashes".into());
    let State::Service(mut wanted) = service(r"C:\k\kubelet.exe", &[]) else { unreachable!() };
    wanted.restart_after = vec![5, 60];
    node.put(&id, Some(&State::Service(wanted))).unwrap();
    for delay in [5, 60, 60] {
        node.put(&running("Crashes"), Some(&State::Running)).unwrap();
        node.crash_service("Crashes").unwrap();
        node.pause(Duration::from_secs(delay - 1));
        assert_eq!(node.get(&running("Crashes")).unwrap(), None, "{delay}");
        node.pause(Duration::from_secs(1));
        assert_eq!(node.get(&running("Crashes")).unwrap(), Some(State::Running), "{delay}");
    }
    node.put(&running("Crashes"), None).unwrap();
    node.crash_service("kubelet").unwrap();
    node.pause(Duration::from_secs(3600));
    for name in ["Crashes", "kubelet"] {
        assert_eq!(node.get(&running(name)).unwrap(), None, "{name}: stopped, and without recovery actions");
    }
}

#[test]
fn server_managers_record_says_whether_the_feature_routing_is_installed() {
    let (_dir, mut node) = node();
    let id = Id::RegValue { key: Features::ROUTING.into(), name: Features::INSTALL_STATE.into() };
    for (state, installed) in [(Some(0), Some(false)), (Some(1), Some(true)), (None, None)] {
        node.put(&id, state.map(|state| State::RegValue(RegValue::Dword(state))).as_ref()).unwrap();
        assert_eq!(node.facts().unwrap().features.unwrap().routing, installed);
    }
}

/// A service is another process than the one that starts it.
#[test]
fn a_service_continues_if_the_process_that_starts_it_is_killed() {
    let (dir, mut node) = node();
    node.put(&Id::Service("Web".into()), Some(&service(r"C:\k\kubelet.exe", &[]))).unwrap();
    drop(node);
    let ran = std::rc::Rc::<Cell<usize>>::default();
    let opened = |killed: bool| {
        let (ran, folder) = (std::rc::Rc::clone(&ran), dir.path().to_owned());
        let node = SandboxNode::open(&folder).unwrap().crashes_as_errors();
        node.with_start_hook(Box::new(move |node, name, _| {
            assert_eq!(name, "Web");
            ran.set(ran.get() + 1);
            // While this process lives, no other one runs the program.
            let none = Box::new(|_: &mut SandboxNode, _: &str, _: &Service| panic!("it runs twice"));
            SandboxNode::open(&folder).unwrap().with_start_hook(none).pause(Duration::from_secs(1));
            if killed { Err(node.crash()) } else { Ok(()) }
        }))
    };
    assert!(said(opened(true).put(&running("Web"), Some(&State::Running))).contains("the process ended here"));
    assert_eq!(ran.get(), 1);
    let mut other = opened(false);
    for _ in 0..2 {
        other.pause(Duration::from_secs(1));
        assert_eq!((ran.get(), other.get(&running("Web")).unwrap()), (2, Some(State::Running)));
    }

    // One that was stopped since is not continued.
    other.put(&running("Web"), None).unwrap();
    drop(opened(true).put(&running("Web"), Some(&State::Running)));
    other.put(&running("Web"), None).unwrap();
    other.pause(Duration::from_secs(1));
    assert_eq!(ran.get(), 3);
}
