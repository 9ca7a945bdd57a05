//! Agents with real processes, on a sandbox node: this test program is the stand-in for Calico's program, and a
//! variable says what each start does.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::health::Readiness;
use super::host::{Host, serve};
use super::log_watch::RENDERED;
use super::logs::Limits;
use super::os::Scm;
use super::state::{AgentState, Phase};
use super::stop::Stop;
use super::supervise::Timing;
use super::*;
use crate::calico::testing;
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::faults::SandboxFaults;
use crate::node::sandbox::model::Name;
use crate::paths::kubernetes as paths;
use crate::settings::Backend;

const TOLD: &str = "CALICO_TEST_COMPONENT";

/// The program that the agents here start. Each start uses the next word, and then the last one repeatedly.
#[test]
#[ignore = "this is what the other tests start"]
#[allow(clippy::print_stdout, clippy::print_stderr)]
fn component() {
    let Ok(words) = std::env::var(TOLD) else { return };
    let mut starts = File::options().create(true).append(true).open("starts").unwrap();
    starts.write_all(b"x").unwrap();
    let nth = usize::try_from(starts.metadata().unwrap().len()).unwrap() - 1;
    let words: Vec<&str> = words.split(',').collect();
    match words[nth.min(words.len() - 1)] {
        "run" => {
            ctrlc::set_handler(|| {
                println!("bye");
                std::process::exit(2);
            })
            .unwrap();
            // The hello comes last: a test that sees it may end this process at once.
            eprintln!("an error of start {nth}");
            println!("\nhello from start {nth}");
            park();
        }
        "bgp" => {
            eprint!("2026-01-02 15:04:05.000 [ERROR][12] confd/resource.go 305: Error from ");
            eprintln!("reloadcmd: \"no RemoteAccess\"");
            park();
        }
        // Ignores Ctrl-C, and leaves a child that keeps its output open.
        "stuck" => {
            ctrlc::set_handler(|| ()).unwrap();
            let exe = std::env::current_exe().unwrap();
            let mut child = std::process::Command::new(exe);
            child.args(ARGS).env(TOLD, "grandchild").status().unwrap();
            park();
        }
        "grandchild" => {
            ctrlc::set_handler(|| ()).unwrap();
            let held = File::create("held").unwrap();
            held.lock().unwrap();
            println!("\ngrandchild still runs");
            park();
        }
        code => std::process::exit(code.parse().unwrap()),
    }
}

const ARGS: [&str; 4] = ["--exact", "agent::live::component", "--ignored", "--nocapture"];

fn park() -> ! {
    loop {
        std::thread::park();
    }
}

/// A sandbox node whose component is this program.
struct Live {
    dir: TempDir,
    config: AgentConfig,
    stop: Stop,
    scm: Watcher,
    /// How long a component has to end by itself: more than enough for any that handles Ctrl-C, even on a busy machine.
    grace: Duration,
    /// What the agent's node fails at.
    faults: &'static str,
    /// The pause after the first crash; the longest is four times that.
    first: Duration,
}

/// What was reported to the Service Control Manager.
#[derive(Default)]
struct Watcher(Mutex<Vec<String>>);

impl Scm for Watcher {
    fn running(&self) {
        self.0.lock().unwrap().push("running".into());
    }
}

impl Live {
    fn new(words: &str) -> Self {
        // Next to this program, because it is a link to it.
        let exe = std::env::current_exe().unwrap();
        let dir = TempDir::new_in(exe.parent().unwrap()).unwrap();
        let mut node = SandboxNode::open(dir.path()).unwrap();
        let root = WinPath::known(r"C:\CalicoWindows");
        let program = root.join("calico-node.exe");
        fs::create_dir_all(node.disk(&root)).unwrap();
        fs::hard_link(exe, node.disk(&program)).unwrap();
        let command = Command {
            program,
            args: ARGS.map(str::to_owned).into(),
            dir: root.clone(),
            env: [(TOLD.to_owned(), words.to_owned())].into(),
        };
        let config = AgentConfig { backend: Backend::None, log_dir: root.join("logs"), ..testing::agent(&command) };
        // The network is up, and node startup has succeeded.
        let boot = State::RegValue(RegValue::String(node.boot_id().unwrap()));
        node.put(&startup::boot_id(), Some(&boot)).unwrap();
        tests::calico_node_runs(&mut node, Phase::Running);
        let grace = Duration::from_secs(300);
        let live = Self {
            dir,
            config,
            stop: Stop::default(),
            scm: Watcher::default(),
            grace,
            faults: "",
            first: Duration::from_millis(1),
        };
        live.configure();
        live
    }

    fn configure(&self) {
        let text = serde_json::to_vec(&self.config).unwrap();
        let path = self.disk(AgentConfig::PATH);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn node(&self) -> SandboxNode {
        SandboxNode::open(self.dir.path()).unwrap()
    }

    fn disk(&self, path: &str) -> PathBuf {
        self.node().disk(&WinPath::known(path))
    }

    fn serve(&self, role: Role) -> Result<()> {
        let (first, most) = (self.first, 4 * self.first);
        let (calm, grace) = (Duration::from_secs(600), self.grace);
        let host = Host {
            stop: &self.stop,
            scm: &self.scm,
            boot_time: &|| "1/2/2026 3:04:05 PM".into(),
            timing: Timing { first, most, calm, grace, live: Duration::ZERO, ..Timing::default() },
            drift: &|_| Ok(Vec::new()),
            limits: Limits::default(),
            // The node's own clock runs faster than this test's.
            pause: &|node, time| {
                self.stop.wait(time / 50, || false);
                node.pause(time);
            },
            renew: &|_, _| anyhow::bail!("no renewal in this test"),
            recreate: &|_, lost, _| Ok(lost.to_vec()),
        };
        let faults = SandboxFaults::parse(self.faults).unwrap().node;
        serve(role, &mut self.node().with_faults(faults), &host)
    }

    /// Runs an agent, does something meanwhile, and stops it.
    fn while_serving(&self, role: Role, meanwhile: impl FnOnce(&Self)) -> Result<()> {
        std::thread::scope(|scope| {
            let agent = scope.spawn(|| self.serve(role));
            // Also if `meanwhile` fails, or the scope would wait forever.
            let stop = StopAtEnd(&self.stop);
            meanwhile(self);
            drop(stop);
            agent.join().unwrap()
        })
    }

    fn state(&self, role: Role) -> Option<AgentState> {
        state::read(&self.node(), role)
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.disk(r"C:\CalicoWindows\logs").join(name)).unwrap_or_default()
    }

    /// Until Felix has printed its n-th hello, and the agent knows it.
    fn until_start(&self, n: usize) {
        self.until_start_of(Role::Felix, n);
    }

    fn until_start_of(&self, role: Role, n: usize) {
        self.until("the next start", |live| {
            let running = live.state(role).is_some_and(|state| state.phase == Phase::Running);
            running && live.log(&format!("{}.log", role.log())).contains(&format!("hello from start {n}"))
        });
    }

    fn until(&self, what: &str, seen: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !seen(self) {
            let limit = Duration::from_secs(300);
            if begun.elapsed() >= limit {
                let log: String = self.log("calico-felix.log").chars().take(2000).collect();
                panic!("{what}: {:?}\n{log}", self.state(Role::Felix));
            }
            self.stop.wait(Duration::from_millis(5), || false);
        }
    }
}

struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}

#[test]
fn felix_runs_writes_its_logs_and_stops_by_ctrl_c() {
    let live = Live::new("run");
    live.while_serving(Role::Felix, |live| {
        live.until_start(0);
        let state = live.state(Role::Felix).unwrap();
        assert_eq!((state.phase, state.pid, state.restarts), (Phase::Running, std::process::id(), 0));
        assert!(state.child.is_some() && state.waiting_for.is_none() && !state.crash_loop);
    })
    .unwrap();
    assert!(live.log("calico-felix.err.log").contains("an error of start 0\n"));
    let log = live.log("calico-felix.log");
    assert!(log.contains("\nbye\n") && log.contains("calico-node.exe exited with 2, as requested"), "{log}");
    assert_eq!(live.state(Role::Felix).unwrap().phase, Phase::Stopped);
    assert_eq!(*live.scm.0.lock().unwrap(), ["running"]);
}

/// An interrupt in this process's console must not reach a process that is started meanwhile.
#[test]
fn each_of_several_agents_gets_its_interrupt() {
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let live = Live::new("run");
                    live.while_serving(Role::Felix, |live| live.until_start(0)).unwrap();
                    assert!(live.log("calico-felix.log").contains("\nbye\n"));
                }
            });
        }
    });
}

#[test]
fn a_reload_is_not_a_crash() {
    let live = Live::new("129,129,129,run");
    live.while_serving(Role::Felix, |live| {
        live.until_start(3);
        let state = live.state(Role::Felix).unwrap();
        assert_eq!((state.restarts, state.last_exit.unwrap().code, state.crash_loop), (3, Some(129), false));
    })
    .unwrap();
}

/// Defect B2: the scripts restart Felix repeatedly without a pause, and nobody sees it.
#[test]
fn b2_a_crash_loop_is_visible_from_outside() {
    let live = Live::new("7");
    live.while_serving(Role::Felix, |live| {
        live.until("a crash loop", |live| live.state(Role::Felix).is_some_and(|state| state.crash_loop));
        let state = live.state(Role::Felix).unwrap();
        assert!(state.restarts >= 3, "{state:?}");
        assert_eq!(state.last_exit.unwrap().code, Some(7));
    })
    .unwrap();
    assert!(
        live.log("calico-felix.log").contains("exited with 7, 3 times in a row: a crash loop; it starts again in ")
    );
    // A service that runs has no exit code (`SERVICE_STATUS.dwWin32ExitCode`): the state and the Event Log have it.
    assert_eq!(*live.scm.0.lock().unwrap(), ["running"]);
}

#[test]
fn a_missing_program_is_retried() {
    let live = Live::new("run");
    let program = live.disk(r"C:\CalicoWindows\calico-node.exe");
    let aside = program.with_extension("aside");
    fs::rename(&program, &aside).unwrap();
    live.while_serving(Role::Felix, |live| {
        live.until("a crash loop", |live| live.state(Role::Felix).is_some_and(|state| state.crash_loop));
        fs::rename(&aside, &program).unwrap();
        live.until_start(0);
    })
    .unwrap();
    assert!(live.log("calico-felix.log").contains(r"start C:\CalicoWindows\calico-node.exe in C:\CalicoWindows: "));
}

/// One failed query (1722, 1450, 5) would otherwise end a healthy Felix.
#[test]
fn a_component_keeps_running_while_windows_denies_access_to_it() {
    let live = Live { faults: "process hns#2+=fail", ..Live::new("run") };
    live.while_serving(Role::Felix, |live| {
        live.until_start(0);
        live.until("the message", |live| {
            let failed = live.state(Role::Felix).is_some_and(|state| state.phase == Phase::Failed);
            failed || live.log("calico-felix.log").contains("hns cannot be queried")
        });
        assert_eq!(live.state(Role::Felix).map(|state| (state.phase, state.restarts)), Some((Phase::Running, 0)));
    })
    .unwrap();
}

#[test]
fn a_component_that_ignores_ctrl_c_is_killed_with_its_children() {
    let live = Live { grace: Duration::from_secs(1), ..Live::new("stuck") };
    let begun = Instant::now();
    live.while_serving(Role::Felix, |live| {
        live.until("the grandchild", |live| live.log("calico-felix.log").contains("grandchild still runs"));
    })
    .unwrap();
    let took = begun.elapsed();
    assert!(took >= live.grace, "it had its grace: {took:?}");
    let held = File::options().write(true).open(live.disk(r"C:\CalicoWindows\held")).unwrap();
    live.stop.wait(Duration::ZERO, || false);
    let begun = Instant::now();
    while held.try_lock().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the grandchild still runs");
        std::thread::yield_now();
    }
}

#[test]
fn a_second_agent_of_a_role_is_refused() {
    let live = Live::new("run");
    live.while_serving(Role::Felix, |live| {
        live.until_start(0);
        let error = live.serve(Role::Felix).unwrap_err();
        let fault = Fault::of(&error).unwrap();
        assert_eq!((fault.exit, fault.id), (Exit::Busy, "AgentRunsAlready"));
        assert_eq!(live.state(Role::Felix).unwrap().phase, Phase::Running, "that of the first one");
    })
    .unwrap();
    assert_eq!(live.log("calico-felix.log").matches("hello").count(), 1);
}

#[test]
fn an_unreadable_configuration_is_reported_and_starts_nothing() {
    let live = Live::new("run");
    fs::write(live.disk(AgentConfig::PATH), "{\"nodeName\": \"win").unwrap();
    let error = live.serve(Role::Felix).unwrap_err();
    let fault = Fault::of(&error).unwrap();
    assert_eq!((fault.exit, fault.id), (Exit::InvalidConfig, "AgentConfigInvalid"));
    assert_eq!(live.scm.0.lock().unwrap().len(), 0, "it never ran");
    assert!(!live.disk(r"C:\CalicoWindows\starts").exists());
    let log = fs::read_to_string(live.disk(r"C:\ProgramData\calicoctl-win\logs\service-felix.log")).unwrap();
    assert!(log.contains("services.json is not what install wrote: EOF while parsing"), "{log}");
}

/// A file instead of the folder represents a full disk and a folder without write access.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let live = Live::new("run");
    fs::write(live.disk(r"C:\CalicoWindows\logs"), "").unwrap();
    live.while_serving(Role::Felix, |live| {
        live.until("it runs", |live| live.disk(r"C:\CalicoWindows\starts").exists());
        live.until("it is known", |live| live.state(Role::Felix).is_some_and(|state| state.child.is_some()));
    })
    .unwrap();
    assert_eq!(live.state(Role::Felix).unwrap().restarts, 0);
}

/// Defect B3: the scripts run confd whatever the backend.
#[test]
fn b3_confd_runs_only_for_windows_bgp() {
    let live = Live::new("run");
    let error = live.serve(Role::Confd).unwrap_err();
    assert_eq!(error.to_string(), "find confd's command: the backend none has no confd");
    assert!(!live.disk(r"C:\CalicoWindows\starts").exists());
    assert_eq!(live.state(Role::Confd).unwrap().phase, Phase::Failed);
}

/// confd keeps running, and BGP is never configured.
#[test]
fn an_error_that_confd_only_logs_is_reported() {
    let mut live = Live { grace: Duration::ZERO, ..Live::new("bgp") };
    live.config.others.insert("confd".into(), Some(live.config.felix.clone()));
    live.configure();
    live.while_serving(Role::Confd, |live| {
        live.until("the error", |live| live.state(Role::Confd).is_some_and(|state| state.log_error.is_some()));
        let state = live.state(Role::Confd).unwrap();
        let error = state.log_error.unwrap();
        assert_eq!(error, "it could not configure BGP: Error from reloadcmd: \"no RemoteAccess\"");
        let why = "it has not rendered peerings.ps1 and blocks.ps1";
        assert_eq!(state.readiness, Some(Readiness::NotReady(why.into())));
        for name in RENDERED {
            fs::write(live.disk(live.config.felix.dir.join(name).as_str()), "").unwrap();
        }
        live.until("what it renders", |live| {
            live.state(Role::Confd).is_some_and(|state| state.readiness == Some(Readiness::Ready))
        });
    })
    .unwrap();
}

#[test]
fn node_startup_is_retried_until_it_succeeds_and_status_shows_it() {
    let live = Live::new("1,1,1,1,0");
    live.while_serving(Role::Node, |live| {
        live.until("a crash loop that waits", |live| {
            let state = live.state(Role::Node);
            let waiting = state.filter(|state| state.crash_loop).and_then(|state| state.waiting_for);
            waiting.is_some_and(|waiting| waiting.what == "Calico's node startup" && waiting.limit_s.is_none())
        });
        live.until("success", |live| live.log("calico-node.log").contains("Calico initialised"));
        let state = live.state(Role::Node).unwrap();
        assert_eq!((state.phase, state.restarts, state.crash_loop), (Phase::Running, 0, false));
    })
    .unwrap();
}

/// kubelet still runs, and after the boot it runs before CalicoNode.
#[test]
fn the_cni_configuration_is_withdrawn_when_windows_shuts_down_and_not_by_a_stop() {
    for (shuts_down, left) in [(true, [false, true]), (false, [true, false])] {
        let mut live = Live::new("0");
        let conf = WinPath::known(r"C:\cni\10-calico.conf");
        live.config.cni_conf = Some(conf.clone());
        live.configure();
        let places = [live.disk(conf.as_str()), live.disk(r"C:\cni\10-calico.conf.withdrawn")];
        fs::create_dir_all(places[0].parent().unwrap()).unwrap();
        fs::write(&places[0], "{}").unwrap();
        live.while_serving(Role::Node, |live| {
            live.until("success", |live| live.log("calico-node.log").contains("Calico initialised"));
            if shuts_down {
                live.stop.request_for_shutdown();
            }
        })
        .unwrap();
        assert_eq!(places.map(|place| place.exists()), left);
    }
}

#[test]
fn felix_restarts_when_hns_was_restarted_and_the_network_was_checked() {
    let live = Live::new("run");
    set_hns(&live, 900);
    live.while_serving(Role::Felix, |live| {
        live.until_start(0);
        set_hns(live, 904);
        live.until("it waits", |live| live.state(Role::Felix).is_some_and(|state| state.waiting_for.is_some()));
        assert!(!live.log("calico-felix.log").contains("hello from start 1"), "not before CalicoNode is done");
        // The state that CalicoNode then reports.
        let mut node = live.state(Role::Felix).unwrap();
        node.role = Role::Node;
        node.network_of_hns = Some(crate::node::Process { pid: 904, since: None });
        let path = live.disk(r"C:\ProgramData\calicoctl-win\agent\node.json");
        crate::node::files::replace(&path, |new| fs::write(new, serde_json::to_vec(&node).unwrap())).unwrap();
        live.until_start(1);
    })
    .unwrap();
    assert!(
        live.log("calico-felix.log")
            .contains("the Host Networking Service was restarted: calico-node.exe is restarted")
    );
}

/// A server that answers 200, and 503 to requests that begin like this.
fn unwell(requests: &'static str) -> u16 {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let (mut stream, mut question) = (stream.unwrap(), [0; 512]);
            let read = std::io::Read::read(&mut stream, &mut question).unwrap_or_default();
            let well = !question[..read].starts_with(requests.as_bytes());
            drop(write!(stream, "HTTP/1.1 {} x\r\n\r\n", if well { 200 } else { 503 }));
        }
    });
    port
}

/// A Felix with hanging threads keeps running, and programs nothing.
#[test]
fn felix_that_is_not_live_is_restarted() {
    let port = unwell("GET /liveness");
    let mut live = Live::new("run");
    for (name, value) in [("FELIX_HEALTHENABLED", "true"), ("FELIX_HEALTHPORT", &port.to_string())] {
        live.config.felix.env.insert(name.into(), value.into());
    }
    live.configure();
    live.while_serving(Role::Felix, |live| live.until_start(1)).unwrap();
    let log = live.log("calico-felix.log");
    assert!(log.contains("Felix is not live, 6 times in a row: it says so (HTTP 5xx): calico-node.exe is"), "{log}");
}

#[test]
fn kubelet_and_kube_proxy_that_are_not_live_are_restarted() {
    for (role, request, path) in [
        (Role::Kubelet, "GET /healthz ", paths::KUBELET_CONFIG),
        (Role::KubeProxy, "GET /livez ", paths::KUBE_PROXY_CONFIG),
    ] {
        let mut live = Live::new("run");
        live.config.others.insert(role.word().into(), Some(live.config.felix.clone()));
        live.configure();
        let port = unwell(request);
        let config = match role {
            Role::Kubelet => format!("healthzPort: {port}\n"),
            _ => format!("healthzBindAddress: 127.0.0.1:{port}\n"),
        };
        let path = live.disk(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, config).unwrap();
        live.while_serving(role, |live| live.until_start_of(role, 1)).unwrap();
        let log = live.log(&format!("{}.log", role.log()));
        let said = format!("{} is not live, 6 times in a row: it says so (HTTP 5xx): ", role.word());
        assert!(log.contains(&said), "{log}");
    }
}

/// A kube-proxy that ends by itself has not done its work either.
#[test]
fn kubelet_and_kube_proxy_that_end_are_restarted_counted_and_reported() {
    for role in [Role::Kubelet, Role::KubeProxy] {
        let mut live = Live::new("7,0,255,run");
        live.config.others.insert(role.word().into(), Some(live.config.felix.clone()));
        live.configure();
        let config = live.disk(paths::KUBE_PROXY_CONFIG);
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(config, "kind: KubeProxyConfiguration\n").unwrap();
        live.while_serving(role, |live| {
            live.until_start_of(role, 3);
            let state = live.state(role).unwrap();
            let last = state.last_exit.and_then(|last| last.code);
            assert_eq!((state.restarts, last, state.crash_loop), (3, Some(255), true), "{}", role.word());
            assert!(state.child.is_some() && state.waiting_for.is_none(), "{state:?}");
        })
        .unwrap();
        let log = live.log(&format!("{}.log", role.log()));
        let ends = log.lines().filter_map(|line| line.split_once("calico-node.exe exited with ")).map(|(_, end)| end);
        let ends: Vec<&str> = ends.map(|end| end.split(" in ").next().unwrap()).collect();
        let wanted = ["7; it starts again", "0; it starts again", "255, 3 times", "2, as requested"];
        assert_eq!(ends, wanted, "{log}");
        assert!(log.contains("255, 3 times in a row: a crash loop; it starts again in 0 s"), "{log}");
    }
}

/// The pause is longer after each end, up to a limit, and `status` says how long it is.
#[test]
fn a_kube_proxy_that_ends_at_once_each_time_is_started_less_and_less_often() {
    let mut live = Live::new("1");
    live.config.others.insert("kube-proxy".into(), Some(live.config.felix.clone()));
    live.configure();
    let config = live.disk(paths::KUBE_PROXY_CONFIG);
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, "kind: KubeProxyConfiguration\n").unwrap();
    live.first = Duration::from_secs(1);
    live.while_serving(Role::KubeProxy, |live| {
        for (restarts, pause) in [(1, 1), (2, 2)] {
            live.until("the next pause", |live| {
                let state = live.state(Role::KubeProxy).filter(|state| state.restarts == restarts);
                let waits = state.and_then(|state| state.waiting_for);
                waits.is_some_and(|waits| {
                    (waits.what.as_str(), waits.limit_s) == ("the next start: its program exited with 1", Some(pause))
                })
            });
        }
    })
    .unwrap();
}

/// Windows gives up a service that ends before it runs, and its dependents. A scanner that has a file open for a moment,
/// and a full disk, must not cause that.
#[test]
fn a_temporary_error_does_not_end_a_service_before_it_runs() {
    let live = Live { faults: r"save *\agent\felix.json=disk-full", ..Live::new("run") };
    // A folder in its place cannot be read; when it is removed, the agent starts.
    let config = live.disk(FelixConfig::PATH);
    fs::create_dir(&config).unwrap();
    std::thread::scope(|scope| {
        let agent = scope.spawn(|| live.serve(Role::Felix));
        let stop = StopAtEnd(&live.stop);
        live.stop.wait(Duration::from_millis(300), || agent.is_finished());
        assert!(!agent.is_finished(), "it ended at once");
        // The agent may be reading it at this moment.
        live.until("the folder to be removed", |_| fs::remove_dir(&config).is_ok());
        live.until("Felix", |live| agent.is_finished() || live.log("calico-felix.log").contains("hello from start 0"));
        drop(stop);
        agent.join().unwrap().unwrap();
    });
    assert_eq!(live.scm.0.lock().unwrap()[0], "running");
    assert!(live.log("calico-felix.log").contains("the state for `status` cannot be written"));
}

fn set_hns(live: &Live, pid: u32) {
    live.node()
        .edit(|model| {
            model.services.insert(Name::new("hns"), tests::hns_service(Some(pid)));
            Ok(())
        })
        .unwrap();
}
