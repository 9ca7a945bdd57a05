//! Node startup: run until it succeeds, and again when others start anew.

use super::*;

#[test]
fn node_startup_does_not_wait_for_its_turn_when_kubelet_starts() {
    let mut story = Story::new(Backend::None);
    kubelet(&story.node, 0);
    story.exits = vec![1; 5];
    story.meanwhile = Box::new(|node, time| {
        if time == Duration::from_secs(16) {
            kubelet(node, 4711);
        }
    });
    story.start(Role::Node).unwrap();
    // 1 + 2 + 4 + 8 s, 1 s into the 16 s kubelet comes, then 2 s.
    assert_eq!(story.runs, 6);
    assert!(story.virtual_time <= Duration::from_millis(18_050), "{:?}", story.virtual_time);
}

/// kubelet runs as another process, which is no service, or with pid 0 not at all.
fn kubelet(node: &dyn Node, pid: u32) {
    let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
    let mut other = SandboxNode::open(&root).unwrap();
    other
        .edit(|model| {
            model.services.get_mut(&Name::new("kubelet")).unwrap().pid = None;
            model.processes.clear();
            if pid > 0 {
                let image = WinPath::known(r"C:\k\Kubelet.exe");
                model.processes.push(crate::node::sandbox::model::Process { pid, image, service: None });
            }
            Ok(())
        })
        .unwrap();
}

/// Watches while others do things, and gives what is to be done again, or none when nothing was
/// until the stop.
fn watched(story: &mut Story, meanwhile: impl Fn(&mut dyn Node, Duration) + 'static) -> Option<Again> {
    let stop = story.stop.clone();
    let limit = Duration::from_secs(20);
    story.virtual_time = Duration::ZERO;
    story.meanwhile = Box::new(move |node, time| {
        meanwhile(node, time);
        if time >= limit {
            stop.request();
        }
    });
    let found = story.context(|node, _, context| {
        let mut seen = Seen::look(node)?;
        startup::watch(node, &mut seen, &mut None, context)
    });
    story.stop = Stop::default();
    match found {
        Ok(again) => Some(again),
        Err(error) if error.is::<stop::Stopped>() => None,
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn node_startup_runs_again_when_kubelet_was_started_and_not_when_it_ended() {
    let mut story = Story::new(Backend::None);
    let at = |second: u64, pid: u32| {
        move |node: &mut dyn Node, time: Duration| {
            if time == Duration::from_secs(second) {
                kubelet(node, pid);
            }
        }
    };
    kubelet(&story.node, 0);
    assert_eq!(watched(&mut story, |_, _| ()), None);
    assert_eq!(watched(&mut story, at(5, 4711)), Some(Again::NodeStartup), "the first one");
    assert!(story.virtual_time <= Duration::from_millis(5050));
    assert_eq!(watched(&mut story, |_, _| ()), None, "it runs on");
    assert_eq!(watched(&mut story, at(5, 4712)), Some(Again::NodeStartup), "another one");
    assert_eq!(watched(&mut story, at(5, 0)), None, "it is gone");
}

#[test]
fn a_restart_of_hns_is_seen_and_said_and_its_stop_is_none() {
    let mut story = Story::new(Backend::Vxlan);
    let hns = |pid: Option<u32>| {
        move |node: &mut dyn Node, time: Duration| {
            if time == Duration::from_secs(5) {
                set_hns(node, pid);
            }
        }
    };
    set_hns(&story.node, Some(900));
    assert_eq!(watched(&mut story, hns(None)), None, "stopped");
    set_hns(&story.node, Some(900));
    assert_eq!(watched(&mut story, hns(Some(904))), Some(Again::Everything));
    assert!(story.events.iter().any(|e| matches!(e, Event::Warning { id: "HnsRestarted", .. })));
}

fn set_hns(node: &dyn Node, pid: Option<u32>) {
    let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
    let mut other = SandboxNode::open(&root).unwrap();
    other
        .edit(|model| {
            let service = NodeService {
                definition: Service {
                    display_name: "Host Network Service".into(),
                    description: String::new(),
                    image_path: r"C:\Windows\System32\svchost.exe -k NetSvcs".into(),
                    account: "LocalSystem".into(),
                    start: StartType::Manual,
                    depends_on: Vec::new(),
                    restart_after: Vec::new(),
                    parameters: [].into(),
                },
                pid,
                stop_seconds: 1,
            };
            model.services.insert(Name::new("hns"), service);
            Ok(())
        })
        .unwrap();
}

#[test]
fn node_startup_is_tried_again_within_limits() {
    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1, 1, 1];
    story.start(Role::Node).unwrap();
    assert_eq!(story.runs, 4);

    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1; 1000];
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"Calico's node startup did not succeed in 600 s: 15 tries, the last one exited with 1");
}

#[test]
fn a_calico_network_with_another_vsid_is_not_let_pass() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.config.vni = 5000.try_into().unwrap();
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"the HNS network Calico is Overlay with VSID 4096 and should be Overlay with VSID 5000");
}

#[test]
fn services_know_their_role_and_what_install_told_them() {
    let ours = r#""C:\Program Files\calicoctl-win\calicoctl-win.exe" service run felix"#;
    assert_eq!(Role::of_command_line(ours), Some(Role::Felix));
    for other in [r"C:\k\kubelet.exe --windows-service", "x service run kubelet", "felix"] {
        assert_eq!(Role::of_command_line(other), None, "{other}");
    }
    let story = Story::new(Backend::Vxlan);
    let error = read_config(&story.node).unwrap_err();
    assert_eq!(Fault::id_of(&error), "AgentConfigMissing");
    let place = story.node.disk(&WinPath::known(AgentConfig::PATH));
    fs::create_dir_all(place.parent().unwrap_or(Path::new(""))).unwrap();
    fs::write(place, serde_json::to_vec(&story.config).unwrap()).unwrap();
    assert_eq!(read_config(&story.node).unwrap(), story.config);
}
