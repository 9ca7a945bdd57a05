//! `service run`: the agent of a Windows service, connected to the node and the cluster.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::{Context, Result};

use super::Ending;
use super::app::App;
use super::connector::Connector;
use super::rotate::{self, RENEWAL_LIMIT};
use super::{drift, lost_pods, pending_work};
use crate::agent::cni_gate::LostEndpoint;
use crate::agent::host::Host;
use crate::agent::logs::Limits;
use crate::agent::os::{Level, Scm};
use crate::agent::stop::Stop;
use crate::agent::supervise::Timing;
use crate::agent::trial::ensure_guard;
use crate::agent::{self, Role};
use crate::fault::{Exit, Fault};
use crate::node::{Node, machine};
use crate::report::document::{RunResult, exit_of};
use crate::report::event::Sink;
use crate::settings;
use crate::values::WinPath;

/// Runs what the Service Control Manager starts; with `foreground` the same without it.
///
/// # Errors
/// `NotAService` if another process started it; and the agent's errors.
pub(crate) fn serve(role: Role, foreground: bool, app: &mut App) -> Result<Ending> {
    let sandbox = app.global.sandbox.clone();
    if foreground {
        let stop = Stop::default();
        let asked = stop.clone();
        ctrlc::set_handler(move || asked.request()).context("listen for Ctrl-C")?;
        let mut node = app.node()?;
        let connector = app.connector.clone();
        host(sandbox.is_some(), &stop, &Foreground, &connector, |host| agent::host::serve(role, &mut *node, host))?;
        return Ending::result(RunResult::new(Exit::Ok, false, "stopped"));
    }
    let body = move |stop: &Stop, scm: &dyn Scm| {
        let (runs, looks) = (role == Role::Node).then(|| look_after(stop)).unzip();
        let scm = &Announced { scm, runs: runs.as_ref() };
        let connector = Connector::default();
        // The node is created here, on the thread that uses it.
        let served = machine()
            .and_then(|mut node| host(false, stop, scm, &connector, |host| agent::host::serve(role, &mut *node, host)));
        let code = served.map_or_else(|error| exit_of(&error).code(), |()| 0);
        // In the middle of a change CalicoNode may have no program to run, and ends at once: the guard is needed most.
        scm.running();
        let _first_look_is_over = looks.map(|looks| looks.recv());
        code
    };
    if sandbox.is_none() && agent::os::dispatch(role.service(), Box::new(body))? {
        return Ok(Ending::Quiet);
    }
    Err(not_a_service(role.word()))
}

/// Looks after what earlier runs left, as soon as CalicoNode runs: a service of ours starts the guard, and Windows starts
/// no service until the one that is starting runs (Microsoft's "Service Startup"). On its own thread, since CalicoNode
/// may wait forever for what a trial removed. Returns where to say that it runs, and what ends with the first look.
fn look_after(stop: &Stop) -> (Sender<()>, Receiver<()>) {
    let ((runs, told), (looking, looks)) = (mpsc::channel(), mpsc::channel());
    let stop = stop.clone();
    std::thread::spawn(move || {
        let _it_runs = told.recv();
        let mut guarded = machine().and_then(|mut node| pending_work::needs_guard(&mut *node, agent::os::boot_time()));
        if matches!(guarded, Ok(true)) {
            guarded = pending_work::start_guard(None).map(|()| true);
        }
        if let Err(error) = guarded {
            let message = format!("what an earlier run left cannot be finished: {error:#}");
            agent::os::event_log(Level::Error, &message);
        }
        drop(looking);
        let pending = || pending_work::lacks_guard(&mut *machine()?);
        ensure_guard(&stop, pending, || pending_work::start_guard(None));
    });
    (runs, looks)
}

/// The Service Control Manager, and who else waits for the service to run.
struct Announced<'a> {
    scm: &'a dyn Scm,
    runs: Option<&'a Sender<()>>,
}

impl Scm for Announced<'_> {
    fn running(&self) {
        self.scm.running();
        let _it_looks_once = self.runs.map(|runs| runs.send(()));
    }
}

/// Starts, in session 0, what another process of this program needs after its session.
///
/// # Errors
/// `NotAService` if another process started it.
pub(crate) fn start_in_session0() -> Result<Ending> {
    #[cfg(windows)]
    if agent::os::session0::serve()? {
        return Ok(Ending::Quiet);
    }
    Err(not_a_service("session0"))
}

fn not_a_service(word: &str) -> anyhow::Error {
    let what = format!("`service run {word}` is for the Service Control Manager");
    let fault = Fault::new(Exit::Unsupported, "NotAService", what);
    fault.hint("start the services with: calicoctl-win service start").into()
}

fn host<T>(sandbox: bool, stop: &Stop, scm: &dyn Scm, connector: &Connector, work: impl FnOnce(&Host<'_>) -> T) -> T {
    let (timing, limits) = (Timing::default(), Limits::default());
    let boot_time = || agent::os::general_format(agent::os::boot_time());
    let pause = |node: &mut dyn Node, time: Duration| {
        stop.wait(time, || false);
        if sandbox {
            // A sandbox has its own clock, which must keep up with ours.
            node.pause(time);
        }
    };
    let renew = |node: &mut dyn Node, path: &WinPath| rotate::renew(node, path, connector);
    let within = settings::Limits::within(RENEWAL_LIMIT);
    let connect = |text: &str, base: &Path| connector.connect(text, base, None, within);
    let recreate = |node: &mut dyn Node, lost: &[LostEndpoint], events: Sink<'_>| {
        lost_pods::recreate(node, &connect, lost, events)
    };
    work(&Host {
        stop,
        scm,
        boot_time: &boot_time,
        timing,
        limits,
        pause: &pause,
        renew: &renew,
        recreate: &recreate,
        drift: &drift::of_last_run,
    })
}

/// Nothing asks for its progress.
struct Foreground;

impl Scm for Foreground {
    fn running(&self) {}
}
