//! Services: create, start, stop, delete, with the same errors on both nodes.
//!
//! On the machine the services are real, and their program is this suite: the ignored test [`service_program`] at the
//! end. Under Wine the Service Control Manager's rules are those of `tests/windows/shims/sechost.c`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use calicoctl_win::fault::Fault;
use calicoctl_win::item::{Id, Recovery, RecoveryAction, RegValue, Service, StartType, State};
use calicoctl_win::node::sandbox::SandboxNode;
use calicoctl_win::node::sandbox::model::{Model, Name};
use calicoctl_win::node::{Listing, Node, Put, ServiceState};
use calicoctl_win::values::WinPath;

use crate::nodes::on_each;

/// Puts the program of a test's services onto a node, and returns its path there.
fn program(node: &dyn Node) -> WinPath {
    let path = WinPath::known(r"C:\contract\service.exe");
    let place = node.disk(&path);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    if !place.exists() {
        let own = std::env::current_exe().unwrap();
        // A link if the file system supports it: tests are large. Another test may be first.
        let made = fs::hard_link(&own, &place).or_else(|_| fs::copy(&own, &place).map(drop));
        assert!(made.is_ok() || place.exists(), "{made:?}");
    }
    path
}

/// A service with instructions: see [`service_program`].
fn service(node: &dyn Node, name: &str, does: &str) -> Service {
    let program = program(node);
    Service {
        display_name: format!("Contract service {name}"),
        description: "Of calicoctl-win's tests. [managed by calicoctl-win]".into(),
        image_path: format!("\"{program}\" --ignored --exact services::service_program -- {does}"),
        account: "LocalSystem".into(),
        start: StartType::Manual,
        depends_on: Vec::new(),
        restart_after: vec![5, 10, 60],
        recovery: None,
        parameters: BTreeMap::new(),
    }
}

fn put(node: &mut dyn Node, name: &str, wanted: &Service) {
    node.put(&id(name), Some(&State::Service(Box::new(wanted.clone())))).unwrap();
    assert_eq!(get(node, name).as_ref(), Some(wanted), "get gives what was put");
}

fn get(node: &dyn Node, name: &str) -> Option<Service> {
    node.get(&id(name)).unwrap().map(|state| match state {
        State::Service(service) => *service,
        other => panic!("{other:?}"),
    })
}

fn id(name: &str) -> Id {
    Id::Service(name.into())
}

fn running(name: &str) -> Id {
    Id::Running(name.into())
}

fn start(node: &mut dyn Node, name: &str) -> anyhow::Result<Put> {
    node.put(&running(name), Some(&State::Running))
}

fn stop(node: &mut dyn Node, name: &str) {
    node.put(&running(name), None).unwrap();
    assert_eq!(node.process(name).unwrap(), None, "its process is gone");
    assert_eq!(node.get(&running(name)).unwrap(), None);
}

fn remove(node: &mut dyn Node, name: &str) {
    node.put(&id(name), None).unwrap();
    assert_eq!(get(node, name), None, "the name is free at once");
}

/// The id of a refusal, which must name the service.
fn refused(result: anyhow::Result<impl std::fmt::Debug>, name: &str) -> &'static str {
    let error = result.unwrap_err();
    assert!(format!("{error:#}").contains(name), "{error:#}");
    Fault::of(&error).unwrap_or_else(|| panic!("{error:#}")).id
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_service_is_created_and_changed_in_place() {
    on_each(|node| {
        let name = "ContractDefinition";
        assert_eq!(get(node, name), None);
        let mut wanted = service(node, name, "runs");
        put(node, name, &wanted);
        assert_eq!(get(node, "CONTRACTdefinition").as_ref(), Some(&wanted), "names have no case");
        put(node, name, &wanted);

        wanted.display_name = "Später umbenannt, auf jedem Knoten".into();
        wanted.description = "Von jemand anderem".into();
        wanted.image_path = r"C:\Program Files\unquoted\x.exe -a  -b".into();
        wanted.start = StartType::Disabled;
        wanted.depends_on = vec!["RpcSs".into(), "Tcpip".into()];
        wanted.restart_after = vec![7];
        put(node, name, &wanted);
        let listed = node.list(Listing::Services).unwrap();
        assert!(listed.contains(&(id(name), State::Service(Box::new(wanted.clone())))), "{listed:#?}");

        wanted.start = StartType::Auto;
        wanted.description = String::new();
        wanted.depends_on.clear();
        wanted.restart_after.clear();
        put(node, name, &wanted);
        remove(node, name);
        node.put(&id(name), None).unwrap();
        // The name is free again at once.
        put(node, name, &wanted);
        remove(node, name);
    });
}

/// A service of upstream's scripts, with every kind of value.
fn nssm(node: &dyn Node, name: &str) -> Service {
    let text = |text: &str| RegValue::ExpandString(text.into());
    let parameters = [
        ("Application", text(r"%SystemRoot%\System32\WindowsPowerShell\v1.0\powershell.exe")),
        ("AppParameters", text(r"C:\CalicoWindows\node\node-service.ps1")),
        ("AppDirectory", text(r"C:\CalicoWindows")),
        ("AppStdout", RegValue::String(r"C:\CalicoWindows\logs\calico-node.log".into())),
        ("AppEnvironmentExtra", RegValue::MultiString(vec!["A=1".into(), "B=zwei Wörter".into()])),
        ("AppRotateBytes", RegValue::Dword(10_485_760)),
        ("AppAffinity", RegValue::Qword(3)),
        ("Odd", RegValue::Binary(vec![1, 0, 255])),
        (r"AppExit\", RegValue::String("Restart".into())),
        (r"AppExit\129", RegValue::String("Exit".into())),
        (r"AppEvents\Start\Post", RegValue::String(String::new())),
    ];
    Service {
        image_path: r"C:\CalicoWindows\nssm-2.24\win64\nssm.exe".into(),
        description: "Calico Windows Startup, configures Calico datamodel resources for this node.".into(),
        restart_after: Vec::new(),
        start: StartType::Auto,
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
        ..service(node, name, "runs")
    }
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn an_nssm_service_is_changed_in_place_and_restored_with_all_its_parameters() {
    on_each(|node| {
        let name = "ContractNssm";
        let theirs = nssm(node, name);
        put(node, name, &theirs);
        let ours = service(node, name, "runs");
        put(node, name, &ours);
        start(node, name).unwrap();
        stop(node, name);
        put(node, name, &theirs);

        // One value removed, one added and one of another type: exactly these.
        let mut changed = theirs.clone();
        changed.parameters.remove(r"AppExit\129");
        changed.parameters.insert("AppThrottle".into(), RegValue::Dword(1500));
        let directory = changed.parameters.remove("AppDirectory").unwrap();
        changed.parameters.insert("APPdirectory".into(), directory);
        changed.parameters.insert("AppStdout".into(), RegValue::ExpandString(r"%TEMP%\x.log".into()));
        put(node, name, &changed);
        remove(node, name);
        put(node, name, &theirs);
        remove(node, name);
        // Nothing of it remains for the next service of that name.
        put(node, name, &ours);
        remove(node, name);
    });
}

/// Another product's service that ours replaced comes back as it was.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn recovery_actions_of_any_kind_are_restored() {
    on_each(|node| {
        let name = "ContractRecovery";
        let actions = [(1, 1500), (3, 20_000), (0, 0)].map(|(kind, after_ms)| RecoveryAction { kind, after_ms });
        let recovery = Recovery {
            reset_after: 3600,
            actions: actions.into(),
            reboot_message: String::new(),
            command: r#""C:\Program Files\watch.exe" --failed"#.into(),
        };
        let theirs = Service { recovery: Some(recovery), restart_after: vec![1], ..nssm(node, name) };
        put(node, name, &theirs);
        let renamed = Service { display_name: "Umbenannt".into(), ..theirs.clone() };
        put(node, name, &renamed);
        let ours = service(node, name, "runs");
        put(node, name, &ours);
        put(node, name, &theirs);
        remove(node, name);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_service_starts_has_a_process_and_stops() {
    on_each(|node| {
        let name = "ContractRuns";
        let wanted = service(node, name, "runs");
        put(node, name, &wanted);
        assert_eq!((node.process(name).unwrap(), node.get(&running(name)).unwrap()), (None, None));
        start(node, name).unwrap();
        let process = node.process(name).unwrap().unwrap();
        assert_eq!(node.get(&running(name)).unwrap(), Some(State::Running));
        assert!(process.since.is_none_or(|since| since <= node.now()));
        start(node, name).unwrap();
        assert_eq!(node.process(name).unwrap(), Some(process), "it runs already, and goes on");

        assert_eq!(refused(node.put(&id(name), None), name), "ServiceMarkedForDelete");
        assert_eq!(get(node, name), Some(wanted), "and nothing was done");
        stop(node, name);
        stop(node, name);
        start(node, name).unwrap();
        stop(node, name);
        remove(node, name);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_stop_returns_when_the_process_has_ended() {
    on_each(|node| {
        let name = "ContractSlow";
        let wanted = service(node, name, "stops-slowly");
        put(node, name, &wanted);
        start(node, name).unwrap();
        stop(node, name);
        remove(node, name);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_service_that_cannot_start_says_why() {
    on_each(|node| {
        let name = "ContractRefused";
        assert_eq!(refused(start(node, name), name), "ServiceNotFound");
        node.put(&running(name), None).unwrap();
        let mut wanted = service(node, name, "runs");
        wanted.start = StartType::Disabled;
        put(node, name, &wanted);
        assert_eq!(refused(start(node, name), name), "ServiceDisabled");
        wanted.start = StartType::Manual;
        wanted.image_path = r#""C:\no such\program.exe" run"#.into();
        put(node, name, &wanted);
        assert_eq!(refused(start(node, name), r"C:\no such\program.exe"), "FileNotFound");
        assert_eq!(node.process(name).unwrap(), None);
        remove(node, name);
    });
}

/// StartService and ControlService as Microsoft documents them: 1068, 1075 and 1051, and dependents in
/// EnumDependentServices.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn dependencies_start_before_a_service_and_stop_after_it() {
    on_each(|node| {
        let (needed, middle, top) = ("ContractNeeded", "ContractMiddle", "ContractTop");
        let define = |node: &mut dyn Node, name: &str, depends_on: &[&str]| {
            let mut wanted = service(node, name, "runs");
            wanted.depends_on = depends_on.iter().map(|name| (*name).to_owned()).collect();
            put(node, name, &wanted);
        };
        define(node, needed, &[]);
        define(node, middle, &["CONTRACTneeded"]);
        define(node, top, &[middle]);
        let mut dependents = node.dependents(needed).unwrap();
        dependents.sort();
        assert_eq!(dependents, [middle, top]);
        assert_eq!(node.dependents(top).unwrap(), [""; 0]);
        start(node, top).unwrap();
        for name in [needed, middle, top] {
            assert_eq!(node.get(&running(name)).unwrap(), Some(State::Running), "{name}");
        }
        for name in [needed, middle] {
            assert_eq!(refused(node.put(&running(name), None), name), "ServiceHasDependents");
        }
        for name in [top, middle, needed] {
            stop(node, name);
        }
        // A dependency that cannot start, and one that does not exist.
        let mut broken = service(node, needed, "runs");
        broken.image_path = r#""C:\no such\program.exe" run"#.into();
        put(node, needed, &broken);
        let failed = start(node, middle);
        let said = format!("{:#}", failed.as_ref().unwrap_err()).to_lowercase();
        assert!(said.contains("start service contractmiddle, which depends on contractneeded"), "{said}");
        assert_eq!(refused(failed, middle), "ServiceDependencyDown");
        define(node, middle, &["ContractNowhere"]);
        assert_eq!(refused(start(node, middle), middle), "ServiceDependencyMissing");
        assert_eq!(node.dependents("ContractNowhere").unwrap(), [""; 0]);
        for name in [top, middle, needed] {
            remove(node, name);
        }
    });
}

pub fn until(node: &mut dyn Node, what: &str, is_so: impl Fn(&dyn Node) -> bool) {
    let begun = node.now();
    while !is_so(node) {
        assert!(node.now().duration_since(begun).as_secs() < 60, "waited for {what}");
        node.pause(Duration::from_millis(50));
    }
}

/// Ends a service's process as a crash does.
fn crash(node: &dyn Node, name: &str) {
    let disk = node.disk(&WinPath::known(r"C:\"));
    if disk != Path::new(r"C:\") {
        return SandboxNode::open(disk.parent().unwrap()).unwrap().crash_service(name).unwrap();
    }
    let pid = node.process(name).unwrap().unwrap().pid;
    fs::write(format!(r"C:\contract\die-{pid}"), "").unwrap();
}

/// SERVICE_FAILURE_ACTIONS as Microsoft documents them: for a service that ends without saying so.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_service_that_crashes_is_started_again_and_one_that_is_stopped_is_not() {
    on_each(|node| {
        let name = "ContractRecovers";
        let mut wanted = service(node, name, "dies-when-told");
        wanted.restart_after = vec![1];
        put(node, name, &wanted);
        start(node, name).unwrap();
        let first = node.process(name).unwrap().unwrap();
        crash(node, name);
        until(node, "it to end", |node| node.process(name).unwrap().as_ref() != Some(&first));
        until(node, "it to be started again", |node| node.process(name).unwrap().is_some());
        stop(node, name);
        node.pause(Duration::from_secs(2));
        assert_eq!(node.get(&running(name)).unwrap(), None);
        remove(node, name);
    });
}

/// A service that reports a checkpoint in each moment of its start is waited for.
#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn a_start_returns_when_the_service_runs() {
    on_each(|node| {
        let name = "ContractStartsSlowly";
        let wanted = service(node, name, "starts-slowly");
        put(node, name, &wanted);
        let disk = node.disk(&WinPath::known(r"C:\"));
        if disk != Path::new(r"C:\") {
            let slow = |model: &mut Model| {
                model.services.get_mut(&Name::new(name)).unwrap().start_seconds = 2;
                Ok(())
            };
            SandboxNode::open(disk.parent().unwrap()).unwrap().edit(slow).unwrap();
        }
        let begun = node.now();
        start(node, name).unwrap();
        assert!(node.now().duration_since(begun).as_millis() >= 600, "it was starting");
        assert_eq!(node.service_state(name).unwrap(), Some(ServiceState::Running));
        stop(node, name);
        remove(node, name);
    });
}

#[test]
#[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
fn dependencies_change_without_the_rest_of_the_service() {
    on_each(|node| {
        let name = "ContractDependent";
        let id = Id::DependsOn(name.into());
        assert_eq!(node.get(&id).unwrap(), None);
        let mut wanted = nssm(node, name);
        wanted.depends_on = vec!["RpcSs".into(), "CalicoNode".into()];
        wanted.restart_after = vec![7];
        put(node, name, &wanted);
        for needed in [&["RpcSs"][..], &[], &["RpcSs", "CalicoNode"]] {
            wanted.depends_on = needed.iter().map(|name| (*name).to_owned()).collect();
            let state = State::DependsOn(wanted.depends_on.clone());
            node.put(&id, Some(&state)).unwrap();
            assert_eq!(node.get(&id).unwrap(), Some(state));
            assert_eq!(get(node, name).as_ref(), Some(&wanted));
        }
        remove(node, name);
        assert_eq!(refused(node.put(&id, Some(&State::DependsOn(Vec::new()))), name), "ServiceNotFound");
    });
}

/// Only the machine has programs that end by themselves; the sandbox has a fault for it.
#[cfg(windows)]
mod on_the_machine {
    use std::time::Duration;

    use super::*;
    use crate::nodes::alone;
    use calicoctl_win::node::windows::{processes, services};

    fn machine(name: &str, does: &str, story: impl FnOnce(&mut dyn Node, &str)) {
        let _alone = alone();
        let mut node = calicoctl_win::node::machine().unwrap();
        let wanted = service(&*node, name, does);
        put(&mut *node, name, &wanted);
        story(&mut *node, name);
        remove(&mut *node, name);
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_service_that_ends_at_once_is_reported_with_its_exit_code() {
        machine("ContractEnds", "ends", |node, name| {
            let error = start(node, name).unwrap_err();
            assert_eq!(error.to_string(), "start service ContractEnds: it ended right away with its exit code 7");
            assert_eq!(Fault::id_of(&error), "ServiceDied");
        });
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_program_that_is_not_a_service_is_reported() {
        machine("ContractNone", "is-no-service", |node, name| {
            let error = start(node, name).unwrap_err();
            assert_eq!(Fault::id_of(&error), "ServiceWillNotStart", "{error:#}");
        });
    }

    /// services.msc is open: its handle keeps the name.
    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_service_that_somebody_has_open_is_deleted_and_its_name_stays_taken() {
        use windows_service::service::ServiceAccess;
        use windows_service::service_manager::{ServiceManager, ServiceManagerAccess};
        let _alone = alone();
        let mut node = calicoctl_win::node::machine().unwrap();
        let name = "ContractHeld";
        let wanted = service(&*node, name, "runs");
        put(&mut *node, name, &wanted);
        let manager = ServiceManager::local_computer(None::<&str>, ServiceManagerAccess::CONNECT).unwrap();
        let held = manager.open_service(name, ServiceAccess::QUERY_CONFIG).unwrap();
        assert!(node.put(&id(name), None).unwrap().name_held, "it is deleted all the same");
        assert_eq!((get(&*node, name), node.service_state(name).unwrap()), (None, None));
        assert!(!node.list(Listing::Services).unwrap().iter().any(|(listed, _)| *listed == id(name)));
        assert!(node.put(&id(name), None).unwrap().name_held, "asked again, it is the same");
        drop(held);
        put(&mut *node, name, &wanted);
        remove(&mut *node, name);
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_service_whose_process_died_counts_as_stopped_and_can_start() {
        machine("ContractDies", "dies-when-told", |node, name| {
            start(node, name).unwrap();
            let dead = node.process(name).unwrap().unwrap();
            let process = processes::by_pid(dead.pid).unwrap().unwrap();
            fs::write(format!(r"C:\contract\die-{}", dead.pid), "").unwrap();
            assert!(processes::ends_within(&process, Duration::from_secs(30)).unwrap());
            assert_eq!(node.process(name).unwrap(), None);
            assert_eq!(node.get(&running(name)).unwrap(), None);
            start(node, name).unwrap();
            assert_ne!(node.process(name).unwrap().unwrap().pid, dead.pid);
            stop(node, name);
        });
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_service_that_will_not_stop_is_named_with_its_pid() {
        machine("ContractStays", "takes-no-stop", |node, name| {
            start(node, name).unwrap();
            let pid = node.process(name).unwrap().unwrap().pid;
            let error = services::stop_within(name, Duration::from_millis(300)).unwrap_err();
            assert_eq!(Fault::id_of(&error), "ServiceWillNotStop");
            assert!(error.to_string().contains(&format!("(pid {pid})")), "{error:#}");
            fs::write(format!(r"C:\contract\die-{pid}"), "").unwrap();
            let process = processes::by_pid(pid).unwrap();
            assert!(
                process.is_none_or(|process| { processes::ends_within(&process, Duration::from_secs(30)).unwrap() })
            );
        });
    }

    #[test]
    #[cfg_attr(windows, ignore = "changes this machine: run it elevated")]
    fn a_service_that_ends_instead_of_answering_a_stop_has_stopped() {
        machine("ContractGoes", "ends-when-told-to-stop", |node, name| {
            start(node, name).unwrap();
            stop(node, name);
            assert_eq!(node.process(name).unwrap(), None);
        });
    }
}

/// Not a test: the program of the services above; its last argument says what to do. Started by hand it ends at once,
/// since no Service Control Manager waits for it.
#[cfg(windows)]
#[test]
#[ignore = "runs as a service"]
fn service_program() {
    program::run();
}

#[cfg(windows)]
mod program {
    use std::ffi::OsString;
    use std::fs;
    use std::process::exit;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use windows_service::service::{
        ServiceControl, ServiceControlAccept, ServiceExitCode, ServiceState, ServiceStatus, ServiceType,
    };
    use windows_service::service_control_handler::{self, ServiceControlHandlerResult};
    use windows_service::{define_windows_service, service_dispatcher};

    define_windows_service!(ffi_main, main);

    fn does() -> String {
        std::env::args().next_back().unwrap_or_default()
    }

    pub fn run() {
        if does() != "is-no-service" {
            let _who_waits = service_dispatcher::start("", ffi_main);
        }
    }

    fn main(arguments: Vec<OsString>) {
        let does = does();
        let (told, tell) = channel();
        let accepts = does != "takes-no-stop";
        let goes = does == "ends-when-told-to-stop";
        let handler = move |control| match control {
            ServiceControl::Stop if goes => exit(4),
            ServiceControl::Stop => {
                let _main_ends_first = told.send(());
                ServiceControlHandlerResult::NoError
            }
            ServiceControl::Interrogate => ServiceControlHandlerResult::NoError,
            _ => ServiceControlHandlerResult::NotImplemented,
        };
        let handle = service_control_handler::register(&arguments[0], handler).unwrap();
        let report = |state, exit, checkpoint| {
            let accepted = if state == ServiceState::Running && accepts {
                ServiceControlAccept::STOP
            } else {
                ServiceControlAccept::empty()
            };
            handle
                .set_service_status(ServiceStatus {
                    service_type: ServiceType::OWN_PROCESS,
                    current_state: state,
                    controls_accepted: accepted,
                    // A specific code of 0 is an error too: recovery actions would follow a stop.
                    exit_code: match exit {
                        0 => ServiceExitCode::Win32(0),
                        code => ServiceExitCode::ServiceSpecific(code),
                    },
                    checkpoint,
                    wait_hint: Duration::from_secs(5),
                    process_id: None,
                })
                .unwrap();
        };
        report(ServiceState::StartPending, 0, 1);
        if does == "starts-slowly" {
            for step in 2..5 {
                std::thread::sleep(Duration::from_millis(200));
                report(ServiceState::StartPending, 0, step);
            }
        }
        if does == "ends" {
            report(ServiceState::Stopped, 7, 0);
            return;
        }
        report(ServiceState::Running, 0, 0);
        let die = format!(r"C:\contract\die-{}", std::process::id());
        while tell.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            if fs::exists(&die).unwrap() {
                exit(3);
            }
        }
        if does == "stops-slowly" {
            for step in 1..4 {
                report(ServiceState::StopPending, 0, step);
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        report(ServiceState::Stopped, 0, 0);
    }
}
