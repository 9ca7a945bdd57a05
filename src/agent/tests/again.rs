//! Node startup: run until it succeeds, and again when other services restart.

use super::*;
use crate::fault::Fault;
use crate::node::sandbox::faults::SandboxFaults;

#[test]
fn node_startup_is_retried_at_once_when_kubelet_starts() {
    let mut story = Story::new(Backend::None);
    kubelet(&story.node, 0);
    story.exits = vec![1; 5];
    story.meanwhile = Box::new(|node, time| {
        if time == Duration::from_secs(16) {
            kubelet(node, 4711);
        }
    });
    story.start(Role::Node).unwrap();
    // 1 + 2 + 4 + 8 s, 1 s into the 16 s kubelet starts, then 2 s.
    assert_eq!(story.runs, 6);
    assert!(story.virtual_time <= Duration::from_millis(18_050), "{:?}", story.virtual_time);
}

/// kubelet runs as another process, which is not a service; with pid 0 it does not run.
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

/// Watches while the node is changed, and returns what must be done again; none if nothing must until the stop.
fn watched(story: &mut Story, meanwhile: impl Fn(&mut dyn Node, Duration) + 'static) -> Option<Again> {
    watched_for(story, Duration::from_secs(20), meanwhile)
}

fn watched_for(
    story: &mut Story,
    limit: Duration,
    meanwhile: impl Fn(&mut dyn Node, Duration) + 'static,
) -> Option<Again> {
    let stop = story.stop.clone();
    story.virtual_time = Duration::ZERO;
    story.meanwhile = Box::new(move |node, time| {
        meanwhile(node, time);
        if time >= limit {
            stop.request();
        }
    });
    let found = story.context(|node, _, context| {
        let mut processes = WatchedProcesses::look(node, context.events);
        startup::watch(node, &mut processes, &mut None, context)
    });
    story.stop = Stop::default();
    match found {
        Ok(again) => Some(again),
        Err(error) if error.is::<stop::Stopped>() => None,
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn node_startup_runs_again_when_kubelet_starts_and_not_when_it_ends() {
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
    assert_eq!(watched(&mut story, |_, _| ()), None, "it keeps running");
    assert_eq!(watched(&mut story, at(5, 4712)), Some(Again::NodeStartup), "another one");
    assert_eq!(watched(&mut story, at(5, 0)), None, "it has ended");
}

#[test]
fn a_restart_of_hns_is_detected_and_reported_and_a_stop_is_not() {
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

/// Windows refuses now and then while it is short of memory: that is not a change, and not a reason to end.
#[test]
fn processes_that_cannot_be_queried_count_as_unchanged_and_that_is_reported_once() {
    let mut story = Story::new(Backend::Vxlan);
    set_hns(&story.node, Some(900));
    kubelet(&story.node, 4711);
    let faults = SandboxFaults::parse("process hns#3+=fail; process 4711#20+=fail").unwrap().node;
    let dir = story.node.root().to_owned();
    story.node = SandboxNode::open(&dir).unwrap().with_faults(faults);
    assert_eq!(watched(&mut story, |_, _| ()), None);
    let told = |word: &str| {
        let is_told = |event: &&Event| matches!(event, Event::Log { message } if message.contains(word));
        story.events.iter().filter(is_told).count()
    };
    assert_eq!((told("hns cannot be queried"), told("kubelet.exe cannot be queried")), (1, 1));
}

/// Somebody else changes the node: that is reported once, and never repaired automatically.
#[test]
fn a_change_of_the_node_by_others_is_reported_once() {
    let mut story = Story::new(Backend::None);
    story.start(Role::Node).unwrap();
    story.events.clear();
    let drift = Rc::clone(&story.drift);
    let touches = story.node.touches();
    let meanwhile = move |_: &mut dyn Node, time: Duration| match time.as_secs() {
        4..30 => *drift.borrow_mut() = vec![r"file C:\CalicoWindows\calico-node.exe".into()],
        _ => drift.borrow_mut().clear(),
    };
    assert_eq!(watched_for(&mut story, Duration::from_secs(65), meanwhile), None);
    let warned = |event: &Event| matches!(event, Event::Warning { id: "NodeDrifted", message } if message.contains("calico-node.exe"));
    let again =
        |event: &Event| matches!(event, Event::Log { message } if message.contains("again as the last run left it"));
    let all: Vec<&Event> = story.events.iter().filter(|event| warned(event) || again(event)).collect();
    assert!(matches!(all[..], [first, second] if warned(first) && again(second)), "{:?}", story.events);
    assert_eq!(story.node.touches(), touches, "nothing was repaired");
}

/// At a boot CalicoNode ended before it ran, so Windows did not start kubelet, and does not retry.
#[test]
fn services_that_windows_gave_up_are_started_and_those_that_an_administrator_stopped_are_not() {
    let mut story = Story::new(Backend::None);
    calico_node_runs(&mut story.node, Phase::Preparing);
    story.edit(|model| {
        let kubelet = model.services[&Name::new("kubelet")].clone();
        let needs = |needed: &str, start: StartType, gave_up: bool| NodeService {
            definition: Service { depends_on: vec![needed.into()], start, ..kubelet.definition.clone() },
            pid: None,
            gave_up,
            ..kubelet.clone()
        };
        for (name, service) in [
            ("kubelet", needs("CalicoNode", StartType::Auto, true)),
            ("agent", needs("kubelet", StartType::Auto, true)),
            ("by-hand", needs("CalicoNode", StartType::Manual, true)),
            ("stopped", needs("CalicoNode", StartType::Auto, false)),
            ("other", needs("containerd", StartType::Auto, true)),
        ] {
            model.services.insert(Name::new(name), service);
        }
    });
    story.start(Role::Node).unwrap();
    let runs = |name: &&str| story.node.process(name).unwrap().is_some();
    let all = ["kubelet", "agent", "by-hand", "stopped", "other"];
    assert_eq!(all.iter().filter(|name| runs(name)).collect::<Vec<_>>(), [&"kubelet", &"agent"]);
    assert_eq!(story.node.start_stranded("CalicoNode").unwrap(), [""; 0], "once");
}

/// Upstream's kubelet script waits, without end, until `LastBootTime` is the text that it creates itself: a German system
/// has another text, and Windows adjusts the time of its start when its clock is set.
#[test]
fn the_time_of_the_boot_is_updated_as_windows_shows_it() {
    let mut story = Story::new(Backend::None);
    story.start(Role::Node).unwrap();
    let says = |story: &Story| story.node.get(&startup::last_boot_time()).unwrap();
    let text = |text: &str| Some(State::RegValue(RegValue::String(text.into())));
    assert_eq!(says(&story), text("1/2/2026 3:04:05 PM"));
    for now in ["02.01.2026 15:04:05", "02.01.2026 15:09:05"] {
        let windows = Rc::clone(&story.boot_time);
        let set = move |_: &mut dyn Node, time| {
            if time == Duration::from_secs(5) {
                *windows.borrow_mut() = now.into();
            }
        };
        assert_eq!(watched(&mut story, set), None);
        assert_eq!(says(&story), text(now));
    }
}

fn set_hns(node: &dyn Node, pid: Option<u32>) {
    let root = node.disk(&WinPath::known(r"C:\")).parent().unwrap().to_owned();
    let mut other = SandboxNode::open(&root).unwrap();
    other
        .edit(|model| {
            model.services.insert(Name::new("hns"), hns_service(pid));
            Ok(())
        })
        .unwrap();
}

#[test]
fn node_startup_is_retried_within_limits() {
    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1, 1, 1];
    story.start(Role::Node).unwrap();
    assert_eq!(story.runs, 4);

    let mut story = Story::new(Backend::Vxlan);
    story.exits = vec![1; 1000];
    insta::assert_snapshot!(story.start(Role::Node).unwrap_err(), @"Calico's node startup did not succeed in 600 s: 15 tries, the last one exited with 1");
}

#[test]
fn a_calico_network_with_another_vsid_is_refused() {
    let mut story = Story::new(Backend::Vxlan);
    story.start(Role::Node).unwrap();
    story.config.vni = 5000.try_into().unwrap();
    let error = story.start(Role::Node).unwrap_err();
    insta::assert_snapshot!(error, @"the HNS network Calico is Overlay with VSID 4096 instead of Overlay with VSID 5000");
    let hint = Fault::of(&error).and_then(|fault| fault.hint.as_deref());
    assert_eq!(hint, Some("run `calicoctl-win reconfigure`: it drains the node and re-creates the network"));
}

#[test]
fn services_know_their_role_and_their_configuration() {
    let ours = r#""C:\Program Files\calicoctl-win\calicoctl-win.exe" service run felix"#;
    assert_eq!(Role::of_command_line(ours), Some(Role::Felix));
    for other in [r"C:\k\kubelet.exe --windows-service", "x service run kubectl", "felix"] {
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
