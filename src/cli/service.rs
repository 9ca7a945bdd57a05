//! `service start|stop|restart|status`, and the hidden `service run`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::args::{Component, Service};
use super::{credentials, status};
use crate::agent::host::Host;
use crate::agent::logs::Limits;
use crate::agent::os::{Level, Scm};
use crate::agent::published::LostEndpoint;
use crate::agent::stop::Stop;
use crate::agent::supervise::Pace;
use crate::agent::trial::see_to_guard;
use crate::agent::{self, Role};
use crate::apply::observe;
use crate::apply::receipt::Receipt;
use crate::apply::standing::Standing;
use crate::cluster::{self, Cluster};
use crate::fault::{Exit, Fault};
use crate::item::{Id, StartType, State};
use crate::node::{Node, machine};
use crate::plan::diff::in_start_order;
use crate::plan::order::SERVICES;
use crate::report::document::{RunResult, ServiceStatus, exit_of};
use crate::report::event::{Event, Sink};
use crate::run::Ending;
use crate::run::app::App;
use crate::run::engine::installed;
use crate::run::{left_over, lost_pods};
use crate::values::WinPath;

pub(crate) fn run(verb: &Service, app: &mut App) -> Result<Ending> {
    match verb {
        Service::Status => show(app),
        Service::Run { component, foreground } => serve(*component, *foreground, app),
        Service::Start => change(app, "service start", false, true),
        Service::Stop => change(app, "service stop", true, false),
        Service::Restart => change(app, "service restart", true, true),
    }
}

/// What the Service Control Manager starts; with `foreground` the same without it.
fn serve(component: Component, foreground: bool, app: &mut App) -> Result<Ending> {
    let role = match component {
        Component::Node => Role::Node,
        Component::Felix => Role::Felix,
        Component::Confd => Role::Confd,
        Component::Guard => return crate::run::guard::run(app),
    };
    let sandbox = app.global.sandbox.clone();
    if foreground {
        let stop = Stop::default();
        let asked = stop.clone();
        ctrlc::set_handler(move || asked.request()).context("listen for Ctrl-C")?;
        let mut node = app.node()?;
        let connect = |text: &str, base: &Path| app.connect(text, base, None, RENEWAL_LIMIT);
        host(sandbox.is_some(), &stop, &Foreground, &connect, |host| agent::host::serve(role, &mut *node, host))?;
        return Ending::result(RunResult::new(Exit::Ok, false, "stopped"));
    }
    let body = move |stop: &Stop, scm: &dyn Scm| {
        if role == Role::Node {
            // Before anything else: half-way through a change there may be nothing for CalicoNode to run.
            let mut cut_off = machine().and_then(|mut node| left_over::needs_guard(&mut *node, agent::os::boot_time()));
            if matches!(cut_off, Ok(true)) {
                cut_off = left_over::start_guard(None).map(|()| true);
            }
            if let Err(error) = cut_off {
                let message = format!("what an earlier run left is not looked after: {error:#}");
                agent::os::event_log(Level::Error, &message);
            }
            let stop = stop.clone();
            // On a thread of its own, since CalicoNode itself may wait for ever for what the trial took.
            std::thread::spawn(move || {
                let pending = || left_over::lacks_guard(&mut *machine()?);
                see_to_guard(&stop, pending, || left_over::start_guard(None));
            });
        }
        let connect = |text: &str, base: &Path| {
            let options = cluster::Options { timeout: RENEWAL_LIMIT, ..cluster::Options::default() };
            Cluster::connect(text, base, None, None, &options)
        };
        // The node is made here, on the thread that uses it.
        let served = machine()
            .and_then(|mut node| host(false, stop, scm, &connect, |host| agent::host::serve(role, &mut *node, host)));
        served.map_or_else(|error| exit_of(&error).code(), |()| 0)
    };
    if sandbox.is_none() && agent::os::dispatch(role.service(), Box::new(body))? {
        return Ok(Ending::Quiet);
    }
    Err(Fault::new(
        Exit::Unsupported,
        "NotAService",
        format!("`service run {}` is for the Service Control Manager", role.word()),
    )
    .hint("start the services with: calicoctl-win service start")
    .into())
}

/// How long the API server may take for one answer when a token is renewed: the agent does nothing
/// else meanwhile, and there is a third of the token's life to try again.
const RENEWAL_LIMIT: Duration = Duration::from_secs(10);

fn host<T>(
    sandbox: bool,
    stop: &Stop,
    scm: &dyn Scm,
    connect: &dyn Fn(&str, &Path) -> Result<Cluster>,
    work: impl FnOnce(&Host<'_>) -> T,
) -> T {
    let (booted, pace, limits) = (agent::os::boot_time(), Pace::default(), Limits::default());
    let pause = |node: &mut dyn Node, time: Duration| {
        stop.wait(time, || false);
        if sandbox {
            // Its clock is its own, and is to keep up with ours.
            node.pause(time);
        }
    };
    let renew =
        |node: &mut dyn Node, path: &WinPath| credentials::renew(node, path, &|text| connect(text, Path::new(".")));
    let recreate =
        |node: &mut dyn Node, lost: &[LostEndpoint], events: Sink<'_>| lost_pods::recreate(node, connect, lost, events);
    work(&Host { stop, scm, booted, pace, limits, pause: &pause, renew: &renew, recreate: &recreate })
}

/// Nobody asks how it goes.
struct Foreground;

impl Scm for Foreground {
    fn running(&self) {}
    fn trouble(&self, _code: Option<i32>) {}
}

fn show(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let services: Result<Vec<_>> = SERVICES.iter().map(|name| status::service(&*node, name)).collect();
    let services = services?;
    let line = |service: &ServiceStatus| {
        let why = service.failure.as_ref().map_or_else(String::new, |why| format!("\n  {why}"));
        let line = format!("{:<12} {:<8} {}", service.name, service.state, status::detail(service));
        format!("{}{why}", line.trim_end())
    };
    let text: Vec<String> = services.iter().map(line).collect();
    let down = services.iter().any(|service| service.state == "Stopped" || service.crash_loop);
    app.reporter.document("ServiceStatus", &json!({ "services": services }), &text.join("\n"));
    if down {
        Ending::shown(Exit::Unhealthy, "a service is stopped, or its component crashes")
    } else {
        Ending::shown(Exit::Ok, "done")
    }
}

fn change(app: &mut App, command: &'static str, stop: bool, start: bool) -> Result<Ending> {
    let dry = app.global.dry_run;
    let (mut node, _lock) =
        if dry { (app.node()?, None) } else { app.node_to_change(command).map(|(node, lock)| (node, Some(lock)))? };
    let standing = Standing::load(&*node)?;
    let receipt = installed(&standing)?;
    let ours: Vec<String> = ours(receipt).into_iter().map(str::to_owned).collect();
    let others = dependents(&*node, &ours)?;
    let running = |node: &dyn Node, name: &str| node.get(&Id::Running(name.into())).map(|state| state.is_some());
    let (mut changed, mut stopped) = (Vec::new(), Vec::new());
    // Windows stops no service on which another depends that runs.
    for name in ours.iter().chain(&others).rev().filter(|_| stop) {
        if running(&*node, name)? {
            changed.push(format!("stop {name}"));
            stopped.push(name);
            if !dry {
                node.put(&Id::Running(name.clone()), None).with_context(|| format!("stop service {name}"))?;
                app.event(&Event::Log { message: format!("stopped {name}") });
            }
        }
    }
    for name in ours.iter().chain(&others).filter(|_| start) {
        let wanted = ours.contains(name) || stopped.contains(&name) || !stop && automatic(&*node, name)?;
        if wanted && ((dry && stop) || !running(&*node, name)?) {
            changed.push(format!("start {name}"));
            if !dry {
                node.put(&Id::Running(name.clone()), Some(&State::Running))
                    .with_context(|| format!("start service {name}"))?;
                app.event(&Event::Log { message: format!("started {name}") });
            }
        }
    }
    if start && !dry && !changed.is_empty() {
        let works = crate::run::health_gate::Works::new(app, true);
        works.services(&mut *node, &receipt.target, &mut |event| app.event(&event))?;
    }
    let msg = if changed.is_empty() { "nothing to do".into() } else { changed.join(", ") };
    let dry_run = if dry { "dry run: " } else { "" };
    app.reporter.tell(&format!("{dry_run}{msg}"));
    let found = !changed.is_empty();
    let mut result = if dry { RunResult::looked(found, msg) } else { RunResult::new(Exit::Ok, found, msg) };
    result.generation = Some(receipt.generation);
    Ending::result(result)
}

/// The services of others that depend on ours, in the order in which they start.
fn dependents(node: &dyn Node, ours: &[String]) -> Result<Vec<String>> {
    let mut needed = BTreeMap::new();
    for name in observe::dependents(node, ours)? {
        if let Some(State::DependsOn(names)) = node.get(&Id::DependsOn(name.clone()))? {
            needed.insert(name, names);
        }
    }
    let needs = |name: &str, other: &str| needed[name].iter().any(|needed| needed.eq_ignore_ascii_case(other));
    Ok(in_start_order(needed.keys().cloned().collect(), needs))
}

/// Whether Windows starts a service by itself at boot: one that stands still was stopped with ours.
fn automatic(node: &dyn Node, name: &str) -> Result<bool> {
    let service = node.get(&Id::Service(name.into()))?;
    Ok(matches!(service, Some(State::Service(service)) if service.start == StartType::Auto))
}

/// The services of a generation, in the order in which they start.
fn ours(receipt: &Receipt) -> Vec<&'static str> {
    SERVICES.into_iter().filter(|name| receipt.target.world.contains_key(&Id::Service((*name).into()))).collect()
}
