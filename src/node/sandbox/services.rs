//! The Service Control Manager's rules.

use std::path::Path;

use anyhow::Result;

use crate::fault::Fault;
use crate::node::win32::{self, refused};
use crate::plan::item::{Service, StartType};

use super::disk::locate;
use super::model::{Model, Name, NodeService};

/// Seconds that a stop is waited for before it counts as refused.
pub const STOP_LIMIT: u32 = 60;

/// Makes, changes or removes a service's definition.
pub fn put_definition(model: &mut Model, name: &str, wanted: Option<&Service>) -> Result<()> {
    let key = Name::new(name);
    match (model.services.get_mut(&key), wanted) {
        (Some(service), Some(wanted)) => service.definition = wanted.clone(),
        (None, Some(wanted)) => {
            let service = NodeService { definition: wanted.clone(), pid: None, stop_seconds: 1 };
            model.services.insert(key, service);
        }
        (Some(NodeService { pid: Some(pid), .. }), None) => {
            let what = format!("delete service {name}, which runs (pid {pid})");
            return Err(refused(win32::SERVICE_MARKED_FOR_DELETE, what).into());
        }
        (_, None) => {
            model.services.remove(&key);
        }
    }
    Ok(())
}

/// Starts a service: its process is there afterwards. Says false when it ran already. What it
/// depends on is not started along: Windows would, but our engine has an order of its own.
pub fn start(model: &mut Model, root: &Path, name: &str) -> Result<bool> {
    let key = Name::new(name);
    let pid = model.free_pid();
    let Some(service) = model.services.get(&key) else {
        return Err(refused(win32::SERVICE_DOES_NOT_EXIST, format!("start service {name}")).into());
    };
    if service.pid.is_some() {
        return Ok(false);
    }
    let definition = &service.definition;
    if definition.start == StartType::Disabled {
        return Err(refused(win32::SERVICE_DISABLED, format!("start service {name}")).into());
    }
    let down: Vec<&str> =
        definition.depends_on.iter().filter(|needed| !is_running(model, needed)).map(String::as_str).collect();
    if !down.is_empty() {
        let what = format!("start service {name}, which depends on {}: not running", down.join(", "));
        return Err(refused(win32::SERVICE_DEPENDENCY_FAIL, what).into());
    }
    let executable = service.executable();
    let there = match &executable {
        Some(path) => locate(root, path)?.is_file(),
        None => false,
    };
    if !there {
        let program = executable.map_or_else(|| definition.image_path.clone(), |path| path.to_string());
        return Err(refused(win32::FILE_NOT_FOUND, format!("start service {name}: {program}")).into());
    }
    if let Some(service) = model.services.get_mut(&key) {
        service.pid = Some(pid);
    }
    Ok(true)
}

/// Stops a service and what it started. Gives the seconds that it took, also when the limit came
/// before the service stopped.
pub fn stop(model: &mut Model, name: &str) -> (u32, Result<()>) {
    let key = Name::new(name);
    let Some(service) = model.services.get(&key).filter(|service| service.pid.is_some()) else {
        return (0, Ok(()));
    };
    let took = service.stop_seconds;
    let dependants: Vec<&str> = model
        .services
        .iter()
        .filter(|(_, other)| other.pid.is_some())
        .filter(|(_, other)| other.definition.depends_on.iter().any(|needed| Name::new(needed.as_str()) == key))
        .map(|(other, _)| other.as_str())
        .collect();
    if !dependants.is_empty() {
        let what = format!("stop service {name}, on which {} depends", dependants.join(", "));
        return (0, Err(refused(win32::DEPENDENT_SERVICES_RUNNING, what).into()));
    }
    if took > STOP_LIMIT {
        return (STOP_LIMIT, Err(will_not_stop(name).into()));
    }
    end(model, name);
    (took, Ok(()))
}

/// A stop that was waited for in vain.
pub fn will_not_stop(name: &str) -> Fault {
    refused(win32::SERVICE_REQUEST_TIMEOUT, format!("stop service {name}: still stopping after {STOP_LIMIT} s"))
}

/// Ends a service's process and its children, as a crash does.
pub fn end(model: &mut Model, name: &str) {
    let key = Name::new(name);
    if let Some(service) = model.services.get_mut(&key) {
        service.pid = None;
    }
    model.processes.retain(|process| process.service.as_ref().is_none_or(|own| Name::new(own.as_str()) != key));
}

pub fn is_running(model: &Model, name: &str) -> bool {
    model.services.get(&Name::new(name)).is_some_and(|service| service.pid.is_some())
}
