//! Agents with real processes, on a sandbox node: the program of Calico's is this test program, told
//! by a variable what to do at each of its starts.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::host::{Host, serve};
use super::logs::Limits;
use super::os::Scm;
use super::state::{AgentState, Phase};
use super::stop::Stop;
use super::supervise::Pace;
use super::*;
use crate::item::{Service, StartType};
use crate::node::sandbox::SandboxNode;
use crate::node::sandbox::model::{Name, NodeService};
use crate::settings::Backend;

const TOLD: &str = "CALICO_TEST_COMPONENT";

/// What the agents here start. Each start takes the next word, and the last one again and again.
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
            // The hello last: whoever sees it may end this process at once.
            eprintln!("an error of start {nth}");
            println!("\nhello from start {nth}");
            park();
        }
        // Hears no Ctrl-C, and leaves somebody behind who holds its output open.
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
            println!("\ngrandchild holds on");
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
    /// What a component has to end by itself: more than any that hears Ctrl-C needs, however busy the machine.
    grace: Duration,
}

/// What the Service Control Manager was told.
#[derive(Default)]
struct Watcher(Mutex<Vec<String>>);

impl Scm for Watcher {
    fn running(&self) {
        self.0.lock().unwrap().push("running".into());
    }
    fn trouble(&self, code: Option<i32>) {
        self.0.lock().unwrap().push(format!("trouble {code:?}"));
    }
}

impl Live {
    fn new(words: &str) -> Self {
        // Beside this program, since it is linked into it.
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
        let config = AgentConfig {
            node_name: "win-a1".parse().unwrap(),
            backend: Backend::None,
            vni: 4096.try_into().unwrap(),
            adapter: None,
            log_dir: root.join("logs"),
            valid_ip_timeout_s: 90,
            metadata_route: false,
            cni_conf: None,
            startup: command.clone(),
            felix: command,
            confd: None,
        };
        // The network is up, and node startup has succeeded.
        let boot = State::RegValue(RegValue::String(node.facts().unwrap().boot_id));
        node.put(&startup::boot_id(), Some(&boot)).unwrap();
        stories::calico_node_runs(&mut node, Phase::Running);
        let grace = Duration::from_secs(300);
        let live = Self { dir, config, stop: Stop::default(), scm: Watcher::default(), grace };
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
        let [first, most] = [1, 4].map(Duration::from_millis);
        let (calm, grace) = (Duration::from_secs(600), self.grace);
        let host = Host {
            stop: &self.stop,
            scm: &self.scm,
            booted: Timestamp::now(),
            pace: Pace { first, most, calm, grace },
            limits: Limits::default(),
            // The node's own clock runs faster than ours.
            pause: &|node, time| {
                self.stop.wait(time / 50, || false);
                node.pause(time);
            },
            renew: &|_, _| anyhow::bail!("nobody renews here"),
            recreate: &|_, lost, _| Ok(lost.to_vec()),
        };
        serve(role, &mut self.node(), &host)
    }

    /// Runs an agent, does something meanwhile, and stops it.
    fn while_serving(&self, role: Role, meanwhile: impl FnOnce(&Self)) -> Result<()> {
        std::thread::scope(|scope| {
            let agent = scope.spawn(|| self.serve(role));
            // Also when `meanwhile` fails, or the scope would wait for ever.
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

    /// Until Felix has said hello for the n-th time, and the agent knows it.
    fn until_start(&self, n: usize) {
        self.until("the next start", |live| {
            let running = live.state(Role::Felix).is_some_and(|state| state.phase == Phase::Running);
            running && live.log("calico-felix.log").contains(&format!("hello from start {n}"))
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
    assert!(log.contains("\nbye\n") && log.contains("calico-node.exe exited with 2, as it was asked to"), "{log}");
    assert_eq!(live.state(Role::Felix).unwrap().phase, Phase::Stopped);
    assert_eq!(*live.scm.0.lock().unwrap(), ["running"]);
}

/// What an interrupt does to this process's console must not reach what is started meanwhile.
#[test]
fn of_agents_side_by_side_each_is_heard() {
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
fn a_reload_is_no_crash() {
    let live = Live::new("129,129,129,run");
    live.while_serving(Role::Felix, |live| {
        live.until_start(3);
        let state = live.state(Role::Felix).unwrap();
        assert_eq!((state.restarts, state.last_exit.unwrap().code, state.crash_loop), (3, Some(129), false));
    })
    .unwrap();
}

/// Defect B2: the scripts start Felix again and again without a pause, and neither SCM nor anybody
/// else sees it.
#[test]
fn b2_a_crash_loop_is_seen_from_outside() {
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
    assert_eq!(live.scm.0.lock().unwrap()[..2], ["running", "trouble Some(7)"]);
}

#[test]
fn a_program_that_is_not_there_is_tried_again() {
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

#[test]
fn one_that_hears_no_ctrl_c_ends_with_all_that_it_started() {
    let live = Live { grace: Duration::from_secs(1), ..Live::new("stuck") };
    let begun = Instant::now();
    live.while_serving(Role::Felix, |live| {
        live.until("the grandchild", |live| live.log("calico-felix.log").contains("grandchild holds on"));
    })
    .unwrap();
    let took = begun.elapsed();
    assert!(took >= live.grace, "it had its grace: {took:?}");
    let held = File::options().write(true).open(live.disk(r"C:\CalicoWindows\held")).unwrap();
    live.stop.wait(Duration::ZERO, || false);
    let begun = Instant::now();
    while held.try_lock().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the grandchild lives on");
        std::thread::yield_now();
    }
}

#[test]
fn two_agents_of_one_role_are_one_too_many() {
    let live = Live::new("run");
    live.while_serving(Role::Felix, |live| {
        live.until_start(0);
        let error = live.serve(Role::Felix).unwrap_err();
        let fault = Fault::of(&error).unwrap();
        assert_eq!((fault.exit, fault.id), (Exit::Busy, "AgentRunsAlready"));
        assert_eq!(live.state(Role::Felix).unwrap().phase, Phase::Running, "the first one's");
    })
    .unwrap();
    assert_eq!(live.log("calico-felix.log").matches("hello").count(), 1);
}

#[test]
fn a_configuration_that_cannot_be_read_starts_nothing_and_is_said() {
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

/// A file where the folder should be stands for a full disk and a folder without the right to write.
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
fn b3_confd_runs_for_windows_bgp_alone() {
    let live = Live::new("run");
    let error = live.serve(Role::Confd).unwrap_err();
    assert_eq!(error.to_string(), "find confd's command: the backend none has no confd");
    assert!(!live.disk(r"C:\CalicoWindows\starts").exists());
    assert_eq!(live.state(Role::Confd).unwrap().phase, Phase::Failed);
}

#[test]
fn node_startup_is_tried_until_it_succeeds_and_status_can_tell() {
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

/// kubelet is there still, and again after the boot before CalicoNode is.
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
fn felix_starts_anew_when_hns_was_restarted_and_the_network_was_checked() {
    let live = Live::new("run");
    set_hns(&live, 900);
    live.while_serving(Role::Felix, |live| {
        live.until_start(0);
        set_hns(live, 904);
        live.until("it waits", |live| live.state(Role::Felix).is_some_and(|state| state.waiting_for.is_some()));
        assert!(!live.log("calico-felix.log").contains("hello from start 1"), "not before CalicoNode is done");
        // What CalicoNode says when it is.
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

fn set_hns(live: &Live, pid: u32) {
    let definition = Service {
        display_name: "Host Network Service".into(),
        description: String::new(),
        image_path: r"C:\Windows\System32\svchost.exe -k NetSvcs".into(),
        account: "LocalSystem".into(),
        start: StartType::Manual,
        depends_on: Vec::new(),
        restart_after: Vec::new(),
        parameters: [].into(),
    };
    let hns = NodeService { definition, pid: Some(pid), stop_seconds: 1 };
    live.node()
        .edit(|model| {
            model.services.insert(Name::new("hns"), hns);
            Ok(())
        })
        .unwrap();
}
