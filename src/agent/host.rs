//! An agent from its start to its end: configuration, lock, logs, state, then its role.

use std::cell::RefCell;
use std::fs::{self, File, TryLockError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::cni_gate;
use super::health::{self, Liveness, Readiness};
use super::log_watch::{LogWatch, RENDERED, not_rendered};
use super::logs::{Limits, LogFile};
use super::os::{self, Level, Scm};
use super::process::{Running, Streams};
use super::renew::{Read, Renew, Renewal};
use super::startup::{self, Again};
use super::state::{self, Board};
use super::stop::{Stop, Stopped};
use super::supervise::{Moment, Reason, Timing, supervise};
use super::watched_processes::{HNS, WatchedProcesses};
use super::{AgentContext, Role, await_turn, component, kube_proxy, read_config, wait};
use crate::calico::agent_config::{AgentConfig, Command, LiveEndpoint};
use crate::calico::kubernetes;
use crate::fault::{Exit, Fault};
use crate::item::Access;
use crate::node::{Node, Process, STATE_DIR, files};
use crate::report::event::Event;
use crate::values::WinPath;

/// How long one run of node startup may take before it counts as hanging. Its own waits, for example for the datastore,
/// are shorter.
const STARTUP_RUN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How long Felix and confd wait for CalicoNode after HNS was restarted.
const HNS_LIMIT: Duration = Duration::from_secs(5 * 60);

/// What an agent gets from its caller.
pub struct Host<'a> {
    pub stop: &'a Stop,
    pub scm: &'a dyn Scm,
    /// When Windows started: see [`AgentContext::boot_time`].
    pub boot_time: &'a dyn Fn() -> String,
    pub timing: Timing,
    pub limits: Limits,
    /// Lets time pass, and ends early when a stop is requested.
    pub pause: &'a dyn Fn(&mut dyn Node, Duration),
    /// Renews the node's token.
    pub renew: Renew<'a>,
    /// Re-creates pods that lost their network.
    pub recreate: cni_gate::Recreate<'a>,
    /// Differences from what the last run left.
    pub drift: super::Drift<'a>,
}

/// Runs a role until it is done or stopped. When this returns, errors are in the log, in the Event Log and in the
/// agent's state.
///
/// # Errors
/// When the configuration does not exist or cannot be read, when another agent has this role, and what ends the role.
pub fn serve(role: Role, node: &mut dyn Node, host: &Host<'_>) -> Result<()> {
    let config = match retrying(host, || read_config(node)) {
        Ok(config) => config,
        Err(error) => {
            // The configured log folder is in the file that cannot be read.
            let log = LogFile::new(&node.disk(&WinPath::known(STATE_DIR).join("logs")), &own_log(role), host.limits);
            return Err(report(role, error, log));
        }
    };
    let log = |end: &str| LogFile::new(&node.disk(&config.log_dir), &format!("{}{end}", role.log()), host.limits);
    let (out, err) = (log(".log"), log(".err.log"));
    let lock = match retrying(host, || lock(role, node)) {
        Ok(lock) => lock,
        Err(error) => return Err(report(role, error, out)),
    };
    let streams = Streams::new(role, out, err);
    let (board, unwritten) = Board::new(node, role);
    if let Err(error) = unwritten {
        streams.say(&format!("the state for `status` cannot be written; the service continues: {error:#}"));
    }
    host.scm.running();
    streams.say(&format!("the agent of {} starts ({})", role.service(), env!("CARGO_PKG_VERSION")));
    let ended = match role {
        Role::Node => run_node(node, &config, &streams, &board, host),
        // Every other role keeps a program running.
        _ => run_component(role, node, &config, &streams, &board, host),
    };
    // kubelet and containerd still run, and after the boot they run before this service.
    if role == Role::Node && host.stop.is_for_shutdown() {
        match cni_gate::withdraw(node, &config) {
            Ok(true) => streams.say("Windows shuts down: the CNI configuration is withdrawn"),
            Ok(false) => {}
            Err(error) => streams.say(&format!("error: {error:#}")),
        }
    }
    drop(lock);
    match ended {
        Err(error) if !error.is::<Stopped>() => {
            let text = sentence(&error);
            streams.say(&format!("error: {text}"));
            os::event_log(Level::Error, &format!("{}: {text}", role.service()));
            board.closed(Some(text));
            Err(error)
        }
        _ => {
            streams.say("stopped");
            board.closed(None);
            Ok(())
        }
    }
}

/// How long the first steps are retried: if a service ends before it runs, Windows does not start the services that
/// depend on it (1068), and never tries again when this one recovers.
const EARLY: Duration = Duration::from_secs(60);

/// Retries while an error may be temporary: a virus scanner that has a file open, a disk that is not ready. A fault is
/// permanent.
fn retrying<T>(host: &Host<'_>, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match work() {
            Err(error) if !error.is::<Fault>() && begun.elapsed() < EARLY && !host.stop.requested() => {
                host.stop.wait(Duration::from_millis(200), || false);
            }
            other => return other,
        }
    }
}

/// The log of an agent before it knows the configured log folder: next to the logs of runs.
fn own_log(role: Role) -> String {
    format!("service-{}.log", role.word())
}

fn report(role: Role, error: anyhow::Error, mut log: LogFile) -> anyhow::Error {
    let text = sentence(&error);
    log.say(&format!("error: {text}"), Timestamp::now());
    os::event_log(Level::Error, &format!("{}: {text}", role.service()));
    error
}

/// An error with its fix.
fn sentence(error: &anyhow::Error) -> String {
    let hint = Fault::of(error).and_then(|fault| fault.hint.as_ref());
    hint.map_or_else(|| format!("{error:#}"), |hint| format!("{error:#}; to fix it: {hint}"))
}

/// One agent per role. The system releases the lock whenever the process ends.
fn lock(role: Role, node: &mut dyn Node) -> Result<File> {
    let path = state::folder().join(&format!("{}.lock", role.word()));
    if !node.disk(&path).exists() {
        node.save(&path, b"", Access::Administrators).with_context(|| format!("create {path}"))?;
    }
    let mut options = File::options();
    let file = options.write(true).open(node.disk(&path)).with_context(|| format!("open {path}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let who = state::read(node, role).map_or_else(String::new, |state| format!(" (process {})", state.pid));
            let what = format!("another agent runs for {}{who}", role.service());
            Err(Fault::new(Exit::Busy, "AgentRunsAlready", what).hint("to see it: calicoctl-win service status").into())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {path}")),
    }
}

/// Writes events to log, state and Event Log.
fn tell(event: &Event, role: Role, streams: &Streams, board: &Board) {
    match event {
        Event::Waiting { what, elapsed, limit } => {
            let new = board.waiting(what, *elapsed, *limit);
            if new {
                streams.say(&format!("waiting for {what}"));
            }
        }
        Event::ConnectivityNotice { message, .. } | Event::Log { message } => streams.say(message),
        Event::Warning { id, message } => {
            streams.say(&format!("{id}: {message}"));
            os::event_log(Level::Warning, &format!("{}: {id}: {message}", role.service()));
        }
        _ => {}
    }
}

/// Calls `work` with everything that the modules below need.
fn with_context<T>(
    role: Role,
    streams: &Streams,
    board: &Board,
    host: &Host<'_>,
    work: impl FnOnce(&mut AgentContext<'_>) -> T,
) -> T {
    work(&mut AgentContext {
        stop: host.stop,
        boot_time: host.boot_time,
        // It continues while the service runs, and `status` shows it: an API server that is down is not a reason to end,
        // and nobody would restart the service.
        startup_limit: None,
        pause: &mut |node, time| (host.pause)(node, time),
        run: &mut |node, command| run(node, command, streams, board, host),
        recreate: host.recreate,
        drift: host.drift,
        drift_every: host.timing.drift,
        events: &mut |event| tell(&event, role, streams, board),
    })
}

/// Runs a command to its end.
fn run(node: &mut dyn Node, command: &Command, streams: &Streams, board: &Board, host: &Host<'_>) -> Result<i32> {
    let running = Running::start(node, command, streams, host.stop)?;
    board.startup_runs(running.pid());
    host.stop.wait(STARTUP_RUN_LIMIT, || running.code().is_some());
    let hangs = running.code().is_none();
    if hangs && !host.stop.requested() {
        let limit = STARTUP_RUN_LIMIT.as_secs();
        streams.say(&format!("{} has not finished after {limit} s and is killed", command.program.name()));
    }
    let code = if hangs { running.end(host.timing.grace) } else { running.reaped() };
    host.stop.check()?;
    board.ran(code);
    Ok(if hangs && code == 0 { -1 } else { code })
}

fn run_node(
    node: &mut dyn Node,
    config: &AgentConfig,
    streams: &Streams,
    board: &Board,
    host: &Host<'_>,
) -> Result<()> {
    // Before any wait, also that of the token's renewal: no pod may start until the network is up.
    cni_gate::withdraw_after_boot(node, config, &mut |event| tell(&event, Role::Node, streams, board))?;
    // Before any wait, too: node startup may wait for the Node that kubelet creates.
    startup::start_stranded(node, &mut |event| tell(&event, Role::Node, streams, board));
    // In every wait: a token may expire while node startup fails for that very reason.
    let renewal = RefCell::new(Renewal::new(config, host.renew));
    let pause = |node: &mut dyn Node, time: Duration| {
        (host.pause)(node, time);
        let mut renewal = renewal.borrow_mut();
        renewal.look(node, &mut |event| tell(&event, Role::Node, streams, board));
        board.renewal(renewal.trouble());
    };
    pause(node, Duration::ZERO);
    let host = &Host { pause: &pause, ..*host };
    with_context(Role::Node, streams, board, host, |context| {
        // Before node startup, so that a start of kubelet or HNS meanwhile is not missed.
        let mut processes = WatchedProcesses::look(node, context.events);
        let mut upkeep = startup::bring_up(node, config, context)?;
        loop {
            board.network_is_up(processes.hns());
            board.at_work();
            streams.say("Calico initialised");
            let again = startup::watch(node, &mut processes, &mut upkeep, context)?;
            board.preparing();
            match again {
                Again::NodeStartup => startup::start_again(node, config, context)?,
                Again::Everything => upkeep = startup::bring_up(node, config, context)?,
            }
        }
    })
}

fn run_component(
    role: Role,
    node: &mut dyn Node,
    config: &AgentConfig,
    streams: &Streams,
    board: &Board,
    host: &Host<'_>,
) -> Result<()> {
    let command = component(role, config)?;
    with_context(role, streams, board, host, |context| await_turn(role, node, context))?;
    let events = &mut |event| tell(&event, role, streams, board);
    let mut processes = WatchedProcesses::look(node, events);
    let mut read = Read::now(node, config);
    let felix = command.health().filter(|_| role == Role::Felix);
    let mut liveness = None;
    let mut outside = |node: &mut dyn Node, moment: Moment| -> Result<Option<Reason>> {
        match moment {
            Moment::Starts => {
                let endpoint = felix.map(LiveEndpoint::of_felix).or_else(|| live_endpoint(role, node));
                liveness = endpoint.map(|endpoint| Liveness::new(endpoint, host.timing.live, host.timing.opens));
            }
            Moment::Stopped => {}
            Moment::Runs => {
                if let Some(reason) = liveness.as_mut().and_then(Liveness::look) {
                    return Ok(Some(reason));
                }
            }
        }
        if let Some(at) = felix {
            board.readiness(match moment {
                Moment::Runs => health::ask(at),
                Moment::Starts | Moment::Stopped => Readiness::NotReady("Felix was just started".into()),
            });
        }
        let now = Instant::now();
        match moment {
            Moment::Starts => {
                *streams.watch() = LogWatch::new(role, now);
                board.log_error(None);
                if role == Role::Confd {
                    board.readiness(readiness_of_confd(&RENDERED));
                }
            }
            Moment::Stopped => {}
            Moment::Runs => {
                let absent = |name: &&str| role == Role::Confd && !node.disk(&command.dir.join(name)).exists();
                let unrendered: Vec<&str> = RENDERED.into_iter().filter(absent).collect();
                board.log_error(streams.watch().error(&unrendered, now));
                if role == Role::Confd {
                    board.readiness(readiness_of_confd(&unrendered));
                }
            }
        }
        match moment {
            // It has its own login, and uses no network.
            _ if role == Role::Kubelet => return Ok(None),
            Moment::Runs => {}
            Moment::Starts if role == Role::Confd => return forget_rendered(node, &command.dir).map(|()| None),
            Moment::Starts if role == Role::KubeProxy => return kube_proxy::write_config(node, config).map(|()| None),
            Moment::Starts => return Ok(None),
            Moment::Stopped => {
                await_network_of(node, processes.hns().cloned(), role, streams, board, host)?;
                return Ok(None);
            }
        }
        if read.changed(node) {
            return Ok(Some("the node's credentials were renewed".to_owned()));
        }
        let changed = processes.hns_changed(node, &mut |event| tell(&event, role, streams, board));
        Ok(changed.then(|| "the Host Networking Service was restarted".to_owned()))
    };
    supervise(node, command, streams, &host.timing, host.stop, board, &mut outside)
}

/// Where kubelet and kube-proxy report whether they are live, in the file that they read. If it cannot be read, they say so
/// themselves.
fn live_endpoint(role: Role, node: &dyn Node) -> Option<LiveEndpoint> {
    let path = kubernetes::config_path(role)?;
    kubernetes::live_endpoint(role, &fs::read_to_string(node.disk(&path)).ok()?)
}

fn readiness_of_confd(absent: &[&str]) -> Readiness {
    not_rendered(absent).map_or(Readiness::Ready, Readiness::NotReady)
}

/// confd configures RemoteAccess only if its output differs from the existing files. After a failure, or when
/// RemoteAccess lost its state, nothing would happen, so each start renders again (like upstream's confd-service.ps1).
fn forget_rendered(node: &dyn Node, folder: &WinPath) -> Result<()> {
    for name in RENDERED {
        let file = folder.join(name);
        files::gone(fs::remove_file(node.disk(&file)))
            .with_context(|| format!("remove {file}, so that confd renders it again"))?;
    }
    Ok(())
}

/// Waits until CalicoNode has checked the network with this process of HNS. At the limit the component starts anyway:
/// policies on old networks are better than none.
fn await_network_of(
    node: &mut dyn Node,
    hns: Option<Process>,
    role: Role,
    streams: &Streams,
    board: &Board,
    host: &Host<'_>,
) -> Result<()> {
    let what = "CalicoNode to check the network after a restart of the Host Networking Service";
    let waited = with_context(role, streams, board, host, |context| {
        wait(node, what, HNS_LIMIT, context, |node, _| {
            let stands = state::read(node, Role::Node).and_then(|state| state.network_of_hns);
            // After an error, it is read again.
            let now = node.process(HNS).ok().flatten();
            Ok(if stands.is_some() && (stands == hns || stands == now) {
                Ok(())
            } else {
                Err(wait::Missing("it has not reported that".into()))
            })
        })
    });
    match waited {
        Err(error) if error.is::<Fault>() => {
            streams.say(&format!("{error:#}; continuing without it"));
            Ok(())
        }
        other => other,
    }
}
