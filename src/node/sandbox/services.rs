//! The Service Control Manager's rules.

use std::path::Path;

use anyhow::Result;

use crate::fault::{Exit, Fault};
use crate::item::{Service, StartType};
use crate::node::ServiceState;
use crate::node::win32::{self, refused};

use super::model::{Model, Name, NodeService, Pending};
use super::place::locate;

/// How many seconds a stop may take before it counts as refused.
pub const STOP_LIMIT: u32 = 60;

/// How many seconds a service that starts may take until it runs.
pub const START_LIMIT: u32 = 180;

/// A service that is not deleted.
pub fn get<'a>(model: &'a Model, name: &str) -> Option<&'a NodeService> {
    model.services.get(&Name::new(name)).filter(|service| !service.deleted)
}

/// The definition of a service that is not deleted.
pub fn definition<'a>(model: &'a Model, name: &str) -> Result<Option<&'a Service>> {
    match get(model, name) {
        Some(service) if service.unreadable => {
            Err(refused(win32::ACCESS_DENIED, format!("read service {name}")).into())
        }
        service => Ok(service.map(|service| &service.definition)),
    }
}

/// Creates, changes or removes a service's definition. Returns whether a deleted one's name stays taken.
pub fn put_definition(model: &mut Model, name: &str, wanted: Option<&Service>) -> Result<bool> {
    let key = Name::new(name);
    match (model.services.get_mut(&key), wanted) {
        (Some(NodeService { deleted: true, held_open: true, .. }), Some(_)) => {
            return Err(refused(win32::SERVICE_MARKED_FOR_DELETE, format!("make service {name}")).into());
        }
        (Some(service), Some(wanted)) if !service.deleted => {
            service.definition = wanted.clone();
            if wanted.start == StartType::Disabled {
                // Windows does not start a disabled service (1058): its recovery action does nothing.
                service.restart_in = None;
            }
        }
        (_, Some(wanted)) => {
            let service = NodeService::new(wanted.clone(), None);
            model.services.insert(key, service);
        }
        (Some(NodeService { pid: Some(pid), .. }), None) => {
            let what = format!("delete service {name}, which runs (pid {pid})");
            return Err(refused(win32::SERVICE_MARKED_FOR_DELETE, what).into());
        }
        (Some(service), None) if service.held_open => {
            service.deleted = true;
            return Ok(true);
        }
        (_, None) => {
            model.services.remove(&key);
        }
    }
    Ok(false)
}

/// A dependency of a service.
pub enum Needed {
    Service(String),
    /// A load ordering group and its members. One running member is enough, once all were started.
    Group(String, Vec<String>),
}

/// The direct dependencies that must be started before a service; none if it already runs.
pub fn to_start(model: &Model, name: &str) -> Result<Option<Vec<Needed>>> {
    let Some(service) = model.services.get(&Name::new(name)) else {
        return Err(refused(win32::SERVICE_DOES_NOT_EXIST, format!("start service {name}")).into());
    };
    if service.pid.is_some() {
        return Ok(None);
    }
    if service.deleted {
        return Err(refused(win32::SERVICE_MARKED_FOR_DELETE, format!("start service {name}")).into());
    }
    if service.definition.start == StartType::Disabled {
        return Err(refused(win32::SERVICE_DISABLED, format!("start service {name}")).into());
    }
    let mut needed = Vec::new();
    for depended in &service.definition.depends_on {
        if let Some(group) = depended.strip_prefix('+') {
            let members = model.service_groups.get(&Name::new(group)).into_iter().flatten();
            needed.push(Needed::Group(group.to_owned(), members.map(|member| member.as_str().to_owned()).collect()));
        } else if !model.services.contains_key(&Name::new(depended.as_str())) {
            let what = format!("start service {name}, which depends on {depended}");
            return Err(refused(win32::SERVICE_DEPENDENCY_DELETED, what).into());
        } else {
            needed.push(Needed::Service(depended.clone()));
        }
    }
    Ok(Some(needed))
}

/// Starts a service itself: it has a process afterwards. Returns the seconds until it runs.
pub fn start(model: &mut Model, root: &Path, name: &str) -> Result<u32> {
    let key = Name::new(name);
    let pid = model.free_pid();
    let Some(service) = model.services.get_mut(&key) else {
        return Err(refused(win32::SERVICE_DOES_NOT_EXIST, format!("start service {name}")).into());
    };
    let executable = service.executable();
    let there = match &executable {
        Some(path) => locate(root, path)?.is_file(),
        None => false,
    };
    if !there {
        let program = executable.map_or_else(|| service.definition.image_path.clone(), |path| path.to_string());
        return Err(refused(win32::FILE_NOT_FOUND, format!("start service {name}: {program}")).into());
    }
    (service.pid, service.gave_up, service.restart_in) = (Some(pid), false, None);
    service.pending = (service.start_seconds > 0).then_some(Pending::Start);
    Ok(service.start_seconds)
}

/// A service that was starting runs.
pub fn started(model: &mut Model, name: &str) {
    if let Some(service) = model.services.get_mut(&Name::new(name)) {
        service.pending = None;
    }
}

/// A service that made no end of its start.
pub fn will_not_start(name: &str) -> Fault {
    let what = format!("start service {name}: still starting after {START_LIMIT} s");
    Fault::new(Exit::Failed, "ServiceWillNotStart", what)
}

/// A service's start was given up because of what it depends on.
pub fn give_up(model: &mut Model, name: &str) {
    if let Some(service) = model.services.get_mut(&Name::new(name)) {
        service.gave_up = true;
    }
}

/// The automatic services that depend on this one and whose start was given up.
pub fn stranded(model: &Model, name: &str) -> Vec<String> {
    let is_stranded = |name: &String| {
        let service = model.services.get(&Name::new(name.as_str()));
        service.is_some_and(|service| {
            service.pid.is_none() && service.gave_up && service.definition.start == StartType::Auto
        })
    };
    dependents(model, name).into_iter().filter(is_stranded).collect()
}

pub fn state(service: &NodeService) -> ServiceState {
    match (service.pid, service.pending) {
        (None, _) => ServiceState::Stopped,
        (Some(_), Some(Pending::Start)) => ServiceState::Starting,
        (Some(_), Some(Pending::Stop)) => ServiceState::Stopping,
        (Some(_), None) => ServiceState::Running,
    }
}

/// The services that depend on this one, also indirectly, running or not.
pub fn dependents(model: &Model, name: &str) -> Vec<String> {
    if !model.services.contains_key(&Name::new(name)) {
        return Vec::new();
    }
    let mut found = vec![Name::new(name)];
    let mut at = 0;
    while let Some(needed) = found.get(at).cloned() {
        let depends =
            |service: &NodeService| service.definition.depends_on.iter().any(|name| Name::new(name.as_str()) == needed);
        let more: Vec<Name> = model.services.iter().filter(|(_, s)| depends(s)).map(|(name, _)| name.clone()).collect();
        found.extend(more.into_iter().filter(|name| !found.contains(name)).collect::<Vec<_>>());
        at += 1;
    }
    found[1..].iter().map(|name| name.as_str().to_owned()).collect()
}

/// Stops a service and what it started. Returns the seconds that it took, also if the limit was reached first.
pub fn stop(model: &mut Model, name: &str) -> (u32, Result<()>) {
    let key = Name::new(name);
    let Some(service) = model.services.get(&key).filter(|service| service.pid.is_some()) else {
        return (0, Ok(()));
    };
    let took = service.stop_seconds;
    let running: Vec<String> =
        dependents(model, name).into_iter().filter(|dependent| is_running(model, dependent)).collect();
    if !running.is_empty() {
        let what = format!("stop service {name}, on which {} depends", running.join(", "));
        return (0, Err(refused(win32::DEPENDENT_SERVICES_RUNNING, what).into()));
    }
    if took > STOP_LIMIT {
        return (STOP_LIMIT, Err(will_not_stop(name).into()));
    }
    end(model, name);
    (took, Ok(()))
}

/// A stop that reached the limit.
pub fn will_not_stop(name: &str) -> Fault {
    refused(win32::SERVICE_REQUEST_TIMEOUT, format!("stop service {name}: still stopping after {STOP_LIMIT} s"))
}

/// A service's process ends by itself: its next recovery action is due.
pub fn crash(model: &mut Model, name: &str) {
    end(model, name);
    if let Some(service) = model.services.get_mut(&Name::new(name)) {
        let delays = &service.definition.restart_after;
        let next = delays.get(service.failures as usize).or(delays.last());
        service.restart_in = next.copied();
        service.failures += 1;
    }
}

/// Lets time pass.
pub fn settle(model: &mut Model, seconds: u32) {
    for left in model.services.values_mut().filter_map(|service| service.restart_in.as_mut()) {
        *left = left.saturating_sub(seconds);
    }
}

/// The services that their recovery actions start now.
pub fn to_recover(model: &Model) -> Vec<String> {
    let due = model.services.iter().filter(|(_, service)| service.restart_in == Some(0) && !service.deleted);
    due.map(|(name, _)| name.as_str().to_owned()).collect()
}

/// Ends a service's process and its children.
pub fn end(model: &mut Model, name: &str) {
    let key = Name::new(name);
    if let Some(service) = model.services.get_mut(&key) {
        (service.pid, service.pending) = (None, None);
    }
    model.processes.retain(|process| process.service.as_ref().is_none_or(|own| Name::new(own.as_str()) != key));
}

pub fn is_running(model: &Model, name: &str) -> bool {
    model.services.get(&Name::new(name)).is_some_and(|service| service.pid.is_some())
}
