//! What the Service Control Manager says of a service, and what it gave up.

use anyhow::Result;
use windows_service::service::ServiceAccess;
use windows_sys::Win32::Foundation::ERROR_SERVICE_DEPENDENCY_FAIL;
use windows_sys::Win32::System::Services::{
    SERVICE_RUNNING, SERVICE_START_PENDING, SERVICE_STATUS_CURRENT_STATE, SERVICE_STOP_PENDING, SERVICE_STOPPED,
};

use super::services::{definition, dependents, process_of, status};
use super::{scm, service_key};
use crate::item::StartType;
use crate::node::ServiceState;

/// Whether a service starts, runs or stops. After a crash the Service Control Manager may still say that it runs: one
/// without a process is stopped.
pub fn state(name: &str) -> Result<Option<ServiceState>> {
    let opened = scm::open(name, ServiceAccess::QUERY_STATUS)
        .map_err(|error| scm::said(error, format!("look at service {name}")))?;
    let Some(opened) = opened else { return Ok(None) };
    if service_key::is_deleted(name)? {
        return Ok(None);
    }
    let state = judged(status(&opened, name)?.state);
    Ok(Some(if process_of(&opened, name)?.is_some() { state } else { ServiceState::Stopped }))
}

const fn judged(state: SERVICE_STATUS_CURRENT_STATE) -> ServiceState {
    match state {
        SERVICE_STOPPED => ServiceState::Stopped,
        SERVICE_START_PENDING => ServiceState::Starting,
        SERVICE_STOP_PENDING => ServiceState::Stopping,
        SERVICE_RUNNING => ServiceState::Running,
        _ => ServiceState::Paused,
    }
}

/// Starts the automatic services that depend on this one and that Windows gave up. Returns their names. What cannot be
/// read or started is somebody else's trouble, which the Service Control Manager reports itself.
pub fn start_stranded(name: &str) -> Result<Vec<String>> {
    let mut started = Vec::new();
    for dependent in dependents(name)? {
        if revive(&dependent).unwrap_or(false) {
            started.push(dependent);
        }
    }
    Ok(started)
}

fn revive(name: &str) -> Result<bool> {
    let access = ServiceAccess::START | ServiceAccess::QUERY_STATUS | ServiceAccess::QUERY_CONFIG;
    let what = || format!("start service {name}");
    let Some(opened) = scm::open(name, access).map_err(|error| scm::said(error, what()))? else { return Ok(false) };
    if !is_stranded(definition(&opened, name)?.start, &status(&opened, name)?) {
        return Ok(false);
    }
    opened.start::<&str>(&[]).map_err(|error| scm::said(error, what()))?;
    Ok(true)
}

/// Whether Windows gave a service up because a dependency failed: then it leaves 1068 as the exit code of the service
/// that it did not start. After a stop that is 0, and before a first start 1077.
fn is_stranded(start: StartType, status: &scm::Status) -> bool {
    start == StartType::Auto && status.state == SERVICE_STOPPED && status.exit == ERROR_SERVICE_DEPENDENCY_FAIL
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windows_sys::Win32::Foundation::ERROR_SERVICE_NEVER_STARTED;

    use super::*;

    #[test]
    fn only_an_automatic_service_that_windows_gave_up_is_stranded() {
        let status = |state, exit| scm::Status {
            state,
            pid: None,
            own_process: true,
            exit,
            specific: 0,
            checkpoint: 0,
            wait_hint: Duration::ZERO,
        };
        assert!(is_stranded(StartType::Auto, &status(SERVICE_STOPPED, ERROR_SERVICE_DEPENDENCY_FAIL)));
        assert!(!is_stranded(StartType::Manual, &status(SERVICE_STOPPED, ERROR_SERVICE_DEPENDENCY_FAIL)));
        assert!(!is_stranded(StartType::Auto, &status(SERVICE_START_PENDING, ERROR_SERVICE_DEPENDENCY_FAIL)));
        for by_an_admin in [0, ERROR_SERVICE_NEVER_STARTED] {
            assert!(!is_stranded(StartType::Auto, &status(SERVICE_STOPPED, by_an_admin)));
        }
    }

    #[test]
    fn a_service_runs_only_when_the_service_manager_says_so() {
        assert_eq!(judged(SERVICE_START_PENDING), ServiceState::Starting);
        assert_eq!(judged(SERVICE_STOP_PENDING), ServiceState::Stopping);
        assert_eq!(judged(SERVICE_RUNNING), ServiceState::Running);
    }
}
