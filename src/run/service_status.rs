//! The state of our services, from the service manager and from the reports of their agents.

use anyhow::Result;

use crate::agent::{self, Role};
use crate::calico::kubernetes;
use crate::calico::services::is_ours;
use crate::item::{Id, State};
use crate::node::{Node, ServiceState};
use crate::plan::order::SERVICES;
use crate::report::document::ServiceStatus;
use crate::report::time;
use crate::values::joined;

/// Returns Calico's services, and kubelet and kube-proxy if this program runs them.
pub(crate) fn our_services(node: &dyn Node) -> Result<Vec<ServiceStatus>> {
    let ours = |role: &Role| match node.get(&Id::Service(role.service().into())) {
        Ok(Some(State::Service(service))) => is_ours(&service),
        _ => false,
    };
    let kubernetes = kubernetes::ROLES.into_iter().filter(ours).map(Role::service);
    SERVICES.into_iter().chain(kubernetes).map(|name| service(node, name)).collect()
}

/// Returns one of our services, from the Service Control Manager.
pub(crate) fn service(node: &dyn Node, name: &str) -> Result<ServiceStatus> {
    let there = node.get(&Id::Service(name.into()))?.is_some();
    let process = node.process(name)?;
    let state = match node.service_state(name)? {
        None => "Absent",
        // It may have ended between the two questions.
        _ if process.is_none() => "Stopped",
        Some(ServiceState::Stopped) => "Stopped",
        Some(ServiceState::Starting) => "Starting",
        Some(ServiceState::Running) => "Running",
        Some(ServiceState::Stopping) => "Stopping",
        Some(ServiceState::Paused) => "Paused",
    };
    // An agent's report counts while its process is the service's. For a stopped service, its last agent's report says
    // why.
    let role = Role::ALL.into_iter().find(|role| role.service() == name);
    let said = role.and_then(|role| agent::state::read(node, role)).filter(|_| there);
    let live = said.as_ref().filter(|said| process.as_ref().is_some_and(|process| process.pid == said.pid));
    Ok(ServiceStatus {
        name: name.into(),
        state: state.into(),
        pid: process.as_ref().map(|process| process.pid),
        since: process.as_ref().and_then(|process| process.since).or_else(|| live.map(|said| said.since)),
        restarts: live.map(|said| said.restarts),
        waiting_for: live.and_then(|said| said.wait(node.now())),
        // What its log says does not revert a change: a pod that is not yet deleted has no endpoint either.
        not_ready: live.and_then(|said| said.trouble()),
        last_exit: live.and_then(|said| said.last_exit?.code),
        crash_loop: live.is_some_and(|said| said.crash_loop),
        failure: said.as_ref().filter(|_| process.is_none()).and_then(|said| said.failure.clone()),
    })
}

/// Returns details of a service besides its state, for a document: `pid 4321, 3 restarts, …`.
pub(crate) fn detail(service: &ServiceStatus) -> String {
    joined(parts(service), ", ")
}

/// The same for the screen, with the local time since when it runs.
pub(crate) fn row(service: &ServiceStatus) -> String {
    let mut parts = parts(service);
    if let Some(since) = service.since.filter(|_| service.pid.is_some()) {
        parts.insert(1, format!("since {}", time::since(since)));
    }
    joined(parts, ", ")
}

fn parts(service: &ServiceStatus) -> Vec<String> {
    let mut parts: Vec<String> = service.pid.iter().map(|pid| format!("pid {pid}")).collect();
    match service.restarts {
        Some(1) => parts.push("1 restart".into()),
        Some(n) if n > 1 => parts.push(format!("{n} restarts")),
        _ => {}
    }
    if service.crash_loop {
        let code = service.last_exit.map_or_else(String::new, |code| format!(" (exit code {code})"));
        parts.push(format!("crash loop{code}"));
    }
    if let Some(what) = &service.waiting_for {
        parts.push(format!("waits for {what}"));
    } else if service.not_ready.is_some() {
        parts.push("not ready".into());
    }
    parts
}
