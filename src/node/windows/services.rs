//! Services, through the Service Control Manager.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use windows_service::service::{Service as Opened, ServiceAccess, ServiceSidType, ServiceStartType, ServiceType};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_SERVICE_CONTROL, ERROR_SERVICE_ALREADY_RUNNING,
    ERROR_SERVICE_CANNOT_ACCEPT_CTRL, ERROR_SERVICE_NEVER_STARTED, ERROR_SERVICE_NOT_ACTIVE,
    ERROR_SERVICE_SPECIFIC_ERROR,
};

use windows_sys::Win32::System::Services::{
    SERVICE_ACTIVE, SERVICE_ENUMERATE_DEPENDENTS, SERVICE_RUNNING, SERVICE_STATE_ALL, SERVICE_STOP_PENDING,
    SERVICE_STOPPED,
};

use super::processes::{self, Running};
use super::{disk, scm, service_key};
use crate::calico::agent_config::AgentConfig;
use crate::calico::services::{SERVICES, is_ours};
use crate::fault::{Exit, Fault};
use crate::item::{Service, StartType};
use crate::node::limits::{SERVICE_STARTS, SERVICE_STOPS};
use crate::node::win32::{self, refused};
use crate::node::{Process, Put, STATE_DIR, nssm, recovery, service_log};
use crate::paths::LOG_DIR;
use crate::values::WinPath;

/// How often a wait polls: short compared with anything a service does, and the most that it adds.
const LOOK: Duration = Duration::from_millis(20);

/// How long a starting service may make no progress if it announces no longer wait.
const PROGRESS_LIMIT: Duration = Duration::from_secs(30);

/// How long a deleted name may remain reserved: until everybody has closed the service.
const DELETE_LIMIT: Duration = Duration::from_secs(10);

/// How long one of our services may take to stop when Windows shuts down: its component's 15 s and some more.
const PRESHUTDOWN: Duration = Duration::from_secs(30);
/// Windows's default for this, since version 1703.
const USUAL_PRESHUTDOWN: Duration = Duration::from_secs(10);

/// All services that are programs. Those of other products that cannot be read are left out, whatever the reason: security
/// products protect theirs, and one with a setting that nobody knows must not end a look at the machine. Nothing of ours
/// is changed for a service that is only listed.
pub fn list() -> Result<Vec<(String, Service)>> {
    let names = scm::names().map_err(|error| scm::said(error, "list the services"))?;
    let mut services = Vec::new();
    for name in names {
        services.extend(listed(&name, get(&name))?.map(|service| (name, service)));
    }
    Ok(services)
}

/// A service in a list; none if it does not belong there.
fn listed(name: &str, read: Result<Option<Service>>) -> Result<Option<Service>> {
    match read {
        Err(error)
            if SERVICES.iter().any(|own| own.eq_ignore_ascii_case(name)) && Fault::id_of(&error) != "AccessDenied" =>
        {
            Err(error)
        }
        read => Ok(read.unwrap_or_default()),
    }
}

/// A service's definition; none if there is no such service, or if it is deleted and only its name is still taken.
pub fn get(name: &str) -> Result<Option<Service>> {
    let what = || format!("read service {name}");
    let opened = scm::open(name, ServiceAccess::QUERY_CONFIG).map_err(|error| scm::said(error, what()))?;
    let Some(opened) = opened else { return Ok(None) };
    if service_key::is_deleted(name)? {
        return Ok(None);
    }
    definition(&opened, name).map(Some)
}

pub(super) fn definition(opened: &Opened, name: &str) -> Result<Service> {
    let said = |error| scm::said(error, format!("read service {name}"));
    let config = opened.query_config().map_err(said)?;
    let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
    let actions = scm::recovery(opened).map_err(said)?;
    Ok(Service {
        display_name: text(&config.display_name),
        // A description in a DLL that lacks it fails with that DLL's error; then use the reference in the registry.
        // Languages and trimmed images leave such services behind, and none is ours.
        description: match scm::description(opened) {
            Err(error) if scm::code(&error) != Some(ERROR_ACCESS_DENIED) => service_key::description(name)?,
            told => translated(told.map_err(said)?, service_key::description(name)),
        },
        image_path: text(config.executable_path.as_os_str()),
        account: config.account_name.as_deref().map(text).unwrap_or_default(),
        start: match config.start_type {
            ServiceStartType::OnDemand => StartType::Manual,
            ServiceStartType::Disabled => StartType::Disabled,
            _ => StartType::Auto,
        },
        depends_on: config.dependencies.iter().map(|needed| text(&needed.to_system_identifier())).collect(),
        restart_after: recovery::restart_after(&actions),
        recovery: recovery::beyond(actions),
        // Services that share a process are Windows's own, and are never changed.
        parameters: if config.service_type.contains(ServiceType::OWN_PROCESS) {
            service_key::parameters(name)?
        } else {
            Default::default()
        },
    })
}

/// A text of Windows that is translated is kept as the reference to its translations.
fn translated(text: String, kept: Result<String>) -> String {
    kept.ok().filter(|kept| kept.starts_with('@')).unwrap_or(text)
}

/// A service's dependencies; none if there is no such service.
pub fn depends_on(name: &str) -> Result<Option<Vec<String>>> {
    Ok(get(name)?.map(|service| service.depends_on))
}

/// Changes only a service's dependencies: the rest is another product's, and is not known here. They apply from the
/// service's next start.
pub fn put_depends_on(name: &str, wanted: &[String]) -> Result<()> {
    let access = ServiceAccess::QUERY_CONFIG | ServiceAccess::CHANGE_CONFIG;
    let what = || format!("change what service {name} depends on");
    let Some(opened) = scm::open(name, access).map_err(|error| scm::said(error, what()))? else {
        return Err(refused(win32::SERVICE_DOES_NOT_EXIST, what()).into());
    };
    scm::change_dependencies(&opened, wanted).map_err(|error| scm::said(error, what()))
}

/// The services that depend on this one, also indirectly, running or not. Windows does not document that it follows
/// indirect dependencies, so they are queried one by one.
pub fn dependents(name: &str) -> Result<Vec<String>> {
    let access = ServiceAccess::from_bits_retain(SERVICE_ENUMERATE_DEPENDENTS);
    let mut found = vec![name.to_owned()];
    let mut at = 0;
    while let Some(service) = found.get(at) {
        let what = || format!("list what depends on service {service}");
        let opened = scm::open(service, access).map_err(|error| scm::said(error, what()))?;
        let told = opened.map(|opened| scm::dependents(&opened, SERVICE_STATE_ALL)).transpose();
        for dependent in told.map_err(|error| scm::said(error, what()))?.unwrap_or_default() {
            if !found.iter().any(|known| known.eq_ignore_ascii_case(&dependent)) {
                found.push(dependent);
            }
        }
        at += 1;
    }
    found.remove(0);
    Ok(found)
}

/// Creates, changes in place or removes a service's definition. A running service is not removed.
pub fn put(name: &str, service: Option<&Service>) -> Result<Put> {
    let Some(wanted) = service else {
        return delete(name).map(|name_held| Put { name_held, ..Put::default() });
    };
    let until = Instant::now() + DELETE_LIMIT;
    loop {
        match define(name, wanted) {
            // A service of that name is being deleted, or another process just created one.
            Err(error)
                if ["ServiceMarkedForDelete", "AlreadyExists"].contains(&Fault::id_of(&error))
                    && Instant::now() < until =>
            {
                sleep(LOOK);
            }
            other => return other.map(|()| Put::default()),
        }
    }
}

/// Never deletes and re-creates: the name would not be free before everybody has closed it. A half-made change differs
/// from both the old and the wanted definition, so it can be detected: an NSSM service gets its parameters before
/// NSSM's command line, and loses them after it.
fn define(name: &str, wanted: &Service) -> Result<()> {
    let access = ServiceAccess::QUERY_CONFIG | ServiceAccess::CHANGE_CONFIG | ServiceAccess::START;
    let what = || format!("change service {name}");
    let open = || scm::open(name, access).map_err(|error| scm::said(error, what()));
    let (opened, former) = match open()? {
        Some(opened) => {
            let now = definition(&opened, name)?;
            if !wanted.parameters.is_empty() {
                service_key::put_parameters(name, &wanted.parameters)?;
            }
            scm::change(&opened, &now, wanted).map_err(|error| scm::said(error, what()))?;
            (opened, Some(now))
        }
        None => {
            scm::create(name, wanted).map_err(|error| scm::said(error, format!("make service {name}")))?;
            let opened = open()?.with_context(|| format!("find service {name}, which was just made"))?;
            (opened, None)
        }
    };
    let said = |error| scm::said(error, what());
    // Only what differs: a description that a DLL translates, and recovery actions of an unknown kind, stay.
    if former.as_ref().is_none_or(|former| former.description != wanted.description) {
        opened.set_description(&wanted.description).map_err(said)?;
    }
    let acts = |service: &Service| (service.restart_after.clone(), service.recovery.clone());
    if former.as_ref().is_none_or(|former| acts(former) != acts(wanted)) {
        let actions = wanted.recovery.clone().unwrap_or_else(|| recovery::restarts(&wanted.restart_after));
        scm::set_recovery(&opened, &actions).map_err(said)?;
    }
    if is_ours(wanted) {
        // Restarts also follow an exit that was reported with an error; NT SERVICE\<name> can be used in access lists;
        // a service that a CNI waits for starts without delay.
        opened.set_failure_actions_on_non_crash_failures(true).map_err(said)?;
        opened.set_config_service_sid_info(ServiceSidType::Unrestricted).map_err(said)?;
        opened.set_preshutdown_timeout(PRESHUTDOWN).map_err(said)?;
        if wanted.start == StartType::Auto {
            opened.set_delayed_auto_start(false).map_err(said)?;
        }
    } else if former.is_some_and(|former| is_ours(&former)) {
        // Windows's defaults.
        opened.set_failure_actions_on_non_crash_failures(false).map_err(said)?;
        opened.set_config_service_sid_info(ServiceSidType::None).map_err(said)?;
        opened.set_preshutdown_timeout(USUAL_PRESHUTDOWN).map_err(said)?;
    }
    service_key::put_parameters(name, &wanted.parameters)
}

/// Returns when the name is free, or when it has waited for that for some time. Returns whether somebody still has the
/// service open: Windows has accepted the deletion then, and nothing can be done but wait.
fn delete(name: &str) -> Result<bool> {
    let what = || format!("delete service {name}");
    let said = |error| scm::said(error, what());
    let Some(opened) = scm::open(name, ServiceAccess::DELETE | ServiceAccess::QUERY_STATUS).map_err(said)? else {
        return Ok(false);
    };
    // Windows would accept this and reserve the name until the service stops.
    if let Some(process) = process_of(&opened, name)? {
        let what = format!("{}, which runs (pid {})", what(), process.pid);
        return Err(refused(win32::SERVICE_MARKED_FOR_DELETE, what).into());
    }
    match opened.delete() {
        // Another process did before us, and the name is not free yet.
        Err(error) if scm::code(&error) == Some(win32::SERVICE_MARKED_FOR_DELETE) => {}
        other => other.map_err(said)?,
    }
    // The name remains while any handle is open, ours too.
    drop(opened);
    let until = Instant::now() + DELETE_LIMIT;
    while scm::open(name, ServiceAccess::QUERY_STATUS).map_err(said)?.is_some() {
        if Instant::now() >= until {
            return Ok(true);
        }
        sleep(LOOK);
    }
    Ok(false)
}

/// The process of a running service, verified with the process table: after a crash the Service Control Manager may
/// still report that it runs.
pub fn process(name: &str) -> Result<Option<Process>> {
    let opened = scm::open(name, ServiceAccess::QUERY_STATUS)
        .map_err(|error| scm::said(error, format!("look at service {name}")))?;
    let Some(opened) = opened else { return Ok(None) };
    let running = process_of(&opened, name)?;
    Ok(running.map(|Running { pid, created }| Process { pid, since: created }))
}

pub(super) fn status(opened: &Opened, name: &str) -> Result<scm::Status> {
    scm::status(opened).map_err(|error| scm::said(error, format!("look at service {name}")))
}

pub(super) fn process_of(opened: &Opened, name: &str) -> Result<Option<Running>> {
    let status = status(opened, name)?;
    match status.pid {
        Some(pid) if status.state != SERVICE_STOPPED => processes::by_pid(pid),
        _ => Ok(None),
    }
}

/// Starts a service and waits until it runs. Its final state decides, not the result of the call: a service that ends
/// at once is reported in more than one way.
pub fn start(name: &str) -> Result<()> {
    let access = ServiceAccess::START | ServiceAccess::QUERY_STATUS | ServiceAccess::QUERY_CONFIG;
    let what = || format!("start service {name}");
    let Some(opened) = scm::open(name, access).map_err(|error| scm::said(error, what()))? else {
        return Err(refused(win32::SERVICE_DOES_NOT_EXIST, what()).into());
    };
    if let Some(process) = process_of(&opened, name)? {
        match status(&opened, name)?.state {
            SERVICE_RUNNING => return Ok(()),
            SERVICE_STOP_PENDING => stopped(&opened, name, &process, Instant::now(), SERVICE_STOPS)?,
            _ => {}
        }
    }
    // File times may have a resolution of 2 s.
    let started = SystemTime::now() - Duration::from_secs(2);
    let refusal = match opened.start::<&str>(&[]) {
        Ok(()) => None,
        Err(error) => match scm::code(&error) {
            Some(ERROR_SERVICE_ALREADY_RUNNING) => None,
            Some(code @ win32::SERVICE_REQUEST_TIMEOUT) => Some(code),
            Some(win32::FILE_NOT_FOUND | win32::PATH_NOT_FOUND) => {
                let service = definition(&opened, name)?;
                let program =
                    nssm::split(&service.image_path).map_or(service.image_path.as_str(), |(program, _)| program);
                return Err(scm::said(error, format!("{}: {program}", what())));
            }
            Some(win32::SERVICE_DEPENDENCY_FAIL) => return Err(dependency_down(&opened, name, started)?.into()),
            _ => return Err(scm::said(error, what())),
        },
    };
    settle(&opened, name, refusal, started)
}

/// A service that is not started because one that it depends on does not run. Windows does not say which.
fn dependency_down(opened: &Opened, name: &str, started: SystemTime) -> Result<Fault> {
    let needed = definition(opened, name)?.depends_on;
    // Groups of services begin with a plus sign (SC_GROUP_IDENTIFIER).
    let down = needed.iter().find(|needed| !needed.starts_with('+') && !matches!(process(needed), Ok(Some(_))));
    let whom = down.map_or_else(|| needed.join(", "), String::clone);
    let fault = refused(win32::SERVICE_DEPENDENCY_FAIL, format!("start service {name}, which depends on {whom}"));
    Ok(match down {
        Some(down) => fault.hint(format!("{down} does not run: {}", log_hint(down, started))),
        None => fault,
    })
}

/// Waits until a started service runs, or has ended.
fn settle(opened: &Opened, name: &str, refusal: Option<u32>, started: SystemTime) -> Result<()> {
    let begun = Instant::now();
    let (mut progress, mut seen) = (begun, None);
    loop {
        let status = status(opened, name)?;
        match status.state {
            SERVICE_STOPPED => return Err(ended(name, &status, refusal, started).into()),
            SERVICE_RUNNING if process_of(opened, name)?.is_some() => return Ok(()),
            SERVICE_RUNNING => return Err(ended(name, &status, refusal, started).into()),
            _ => {}
        }
        if seen != Some(status.checkpoint) {
            (progress, seen) = (Instant::now(), Some(status.checkpoint));
        }
        if progress.elapsed() >= status.wait_hint.max(PROGRESS_LIMIT) || begun.elapsed() >= SERVICE_STARTS {
            let pid = status.pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            let what = format!("start service {name}: still starting after {} s{pid}", begun.elapsed().as_secs());
            return Err(Fault::new(Exit::Failed, "ServiceWillNotStart", what).hint(log_hint(name, started)).into());
        }
        sleep(LOOK);
    }
}

/// A service that ended instead of running: with its own exit code, or Windows's.
fn ended(name: &str, status: &scm::Status, refusal: Option<u32>, started: SystemTime) -> Fault {
    let what = format!("start service {name}");
    match (status.exit, refusal) {
        (ERROR_SERVICE_SPECIFIC_ERROR, _) => Fault::new(
            Exit::Failed,
            "ServiceDied",
            format!("{what}: it ended right away with its exit code {}", status.specific),
        )
        .hint(log_hint(name, started)),
        (0 | ERROR_SERVICE_NEVER_STARTED | win32::SERVICE_REQUEST_TIMEOUT, Some(code)) => Fault::new(
            Exit::Failed,
            "ServiceWillNotStart",
            format!("{what}: its program did not report to the Service Control Manager (Windows error {code})"),
        )
        .hint(log_hint(name, started)),
        (0, None) => Fault::new(Exit::Failed, "ServiceDied", format!("{what}: it ended right away"))
            .hint(log_hint(name, started)),
        (code, _) => {
            // Windows's own text, in its own language: only for people.
            let text = std::io::Error::from_raw_os_error(code.cast_signed());
            Fault::new(Exit::Failed, "ServiceDied", format!("{what}: it ended right away: {text}"))
                .hint(log_hint(name, started))
        }
    }
}

/// What a service wrote since it was started, as the hint of its failure.
fn log_hint(name: &str, begun: SystemTime) -> String {
    let told = std::fs::read(AgentConfig::PATH).ok();
    let config = told.and_then(|text| serde_json::from_slice::<AgentConfig>(&text).ok());
    let logs = config.map_or_else(|| WinPath::known(LOG_DIR), |config| config.log_dir);
    let own = WinPath::known(STATE_DIR).join("logs");
    service_log::hint(name, &disk::place(&logs), &disk::place(&own), begun)
}

/// Stops a service; returns when its process is gone.
pub fn stop(name: &str) -> Result<()> {
    stop_within(name, SERVICE_STOPS)
}

/// The same with another limit.
pub fn stop_within(name: &str, limit: Duration) -> Result<()> {
    // The crate has no name for the right to list dependents.
    let dependents = ServiceAccess::from_bits_retain(SERVICE_ENUMERATE_DEPENDENTS);
    let access = ServiceAccess::STOP | ServiceAccess::QUERY_STATUS | dependents;
    let what = || format!("stop service {name}");
    let Some(opened) = scm::open(name, access).map_err(|error| scm::said(error, what()))? else { return Ok(()) };
    // Read first: a stopped service no longer has a process.
    let Some(process) = process_of(&opened, name)? else { return Ok(()) };
    let begun = Instant::now();
    while status(&opened, name)?.state != SERVICE_STOP_PENDING {
        let Err(error) = opened.stop() else { break };
        match scm::code(&error) {
            // With the last two its process ended before it answered (Raymond Chen, 5 April 2019): an earlier stop had
            // reached it, or it crashed on this one.
            Some(ERROR_SERVICE_NOT_ACTIVE | win32::BROKEN_PIPE | win32::PROCESS_ABORTED) => break,
            // It accepts no control while it starts or pauses. A service that never accepts any looks the same, so both
            // have the limit.
            Some(ERROR_SERVICE_CANNOT_ACCEPT_CTRL | ERROR_INVALID_SERVICE_CONTROL | win32::SERVICE_REQUEST_TIMEOUT) => {
                if begun.elapsed() >= limit {
                    return Err(will_not_stop(name, process.pid, limit).into());
                }
                sleep(LOOK);
            }
            Some(win32::DEPENDENT_SERVICES_RUNNING) => {
                let dependents = scm::dependents(&opened, SERVICE_ACTIVE).map_err(|error| scm::said(error, what()))?;
                let what = format!("{}, on which {} depends", what(), dependents.join(", "));
                return Err(refused(win32::DEPENDENT_SERVICES_RUNNING, what).into());
            }
            _ => return Err(scm::said(error, what())),
        }
        if !processes::is_there(&process)? {
            break;
        }
    }
    stopped(&opened, name, &process, begun, limit)
}

/// How long the Service Control Manager may take to notice that a process has ended. After that it never will, and a
/// missing process counts as stopped.
const NOTICE: Duration = Duration::from_secs(1);

/// Waits until a service has stopped and its process, if it is its own, has ended.
fn stopped(opened: &Opened, name: &str, process: &Running, begun: Instant, limit: Duration) -> Result<()> {
    let mut ended: Option<Instant> = None;
    loop {
        let now = status(opened, name)?;
        let gone = !processes::is_there(process)?;
        if gone {
            ended.get_or_insert_with(Instant::now);
        }
        let noticed = now.state == SERVICE_STOPPED || ended.is_some_and(|ended| ended.elapsed() >= NOTICE);
        if noticed && (gone || !now.own_process) {
            return Ok(());
        }
        if begun.elapsed() >= limit {
            return Err(will_not_stop(name, process.pid, limit).into());
        }
        if gone || !now.own_process {
            sleep(LOOK);
        } else {
            processes::ends_within(process, LOOK)?;
        }
    }
}

fn will_not_stop(name: &str, pid: u32, limit: Duration) -> Fault {
    let what = format!("stop service {name}: still stopping after {} s (pid {pid})", limit.as_secs());
    refused(win32::SERVICE_REQUEST_TIMEOUT, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_service_that_cannot_be_read_ends_no_list() {
        let refusal = || Err(refused(122, "read it").into());
        assert_eq!(listed("SomeProduct", refusal()).unwrap(), None);
        assert_eq!(Fault::id_of(&listed("CalicoNode", refusal()).unwrap_err()), Fault::id_of(&refusal().unwrap_err()));
    }
}
