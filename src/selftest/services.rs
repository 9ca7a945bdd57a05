//! The Service Control Manager.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::{FOLDER, Reach, Row, TestContext, child};
use crate::fault::Fault;
use crate::item::{Id, Service, StartType, State};
use crate::node::probe::Probe;
use crate::node::{Node, win32};
use crate::report::answer::Answer;
use crate::values::WinPath;

pub const GROUP: &str = "services";
/// The program of the services: a copy of this one, in our folder.
pub const PROGRAM: &str = "calicoctl-win-selftest.exe";
const ONE: &str = "calicoctl-win-selftest-1";
/// Depends on the first.
const TWO: &str = "calicoctl-win-selftest-2";

pub const ROWS: &[Row] = &[
    Row {
        id: "ServiceDefinition",
        group: GROUP,
        asks: "a service is read as it was written, also after a change in place",
        needed_for: "a service that somebody changed is found, and restored as it was",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: definition,
    },
    Row {
        id: "ServiceRecovery",
        group: GROUP,
        asks: "the recovery actions of a service are read as they were written",
        needed_for: "Windows restarts a service that crashed",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: recovery,
    },
    Row {
        id: "ServiceProcess",
        group: GROUP,
        asks: "a service that was started has a process, and none after a stop",
        needed_for: "files are replaced only after the processes that run them have ended",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: process,
    },
    Row {
        id: "ServiceDependents",
        group: GROUP,
        asks: "Windows lists the services that depend on another",
        needed_for: "other services that depend on Calico's are stopped before them and started after them",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: dependents,
    },
    Row {
        id: "ServiceDependencies",
        group: GROUP,
        asks: "a service that is started starts those that it depends on",
        needed_for: "CalicoFelix runs only with CalicoNode, also after a boot",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: dependencies,
    },
    Row {
        id: "ServiceStopOrder",
        group: GROUP,
        asks: "a service on which a running one depends is not stopped (error 1051)",
        needed_for: "the order in which a change stops services",
        bears_on_vni: true,
        reach: Reach::Changes,
        run: stop_order,
    },
    Row {
        id: "ServiceDeleted",
        group: GROUP,
        asks: "the name of a deleted service is free at once when nobody has it open",
        needed_for: "an uninstall leaves no service, and an install after it can create them",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: deleted,
    },
    Row {
        id: "DeletedServiceName",
        group: GROUP,
        asks: "the name of a deleted service that somebody has open is reserved (error 1072)",
        needed_for: "services are changed in place, and a removal waits until services.msc is closed",
        bears_on_vni: false,
        reach: Reach::Changes,
        run: marked,
    },
];

/// Everything that the rows make, in the order of its removal.
pub fn items() -> Vec<Id> {
    vec![running(TWO), running(ONE), id(TWO), id(ONE)]
}

fn id(name: &str) -> Id {
    Id::Service(name.into())
}

fn running(name: &str) -> Id {
    Id::Running(name.into())
}

/// Creates a service that runs until it is stopped.
fn make(context: &mut TestContext<'_>, name: &str, depends_on: &[&str]) -> Result<Service> {
    let program = WinPath::known(FOLDER).join(PROGRAM);
    let place = context.node.disk(&program);
    if !place.exists() {
        let own = if context.program.real { context.program.path.clone() } else { context.node.executable()? };
        fs::copy(&own, &place).with_context(|| format!("copy {} to {program}", own.display()))?;
    }
    let service = Service {
        display_name: format!("calicoctl-win selftest {name}"),
        description: "Proves how Windows treats services. Removed when the selftest ends.".into(),
        image_path: format!("\"{program}\" selftest --part {}", child::SERVICE),
        account: "LocalSystem".into(),
        start: StartType::Manual,
        depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        restart_after: vec![5, 10, 60],
        recovery: None,
        parameters: BTreeMap::new(),
    };
    put(context, name, &service)?;
    Ok(service)
}

fn put(context: &mut TestContext<'_>, name: &str, service: &Service) -> Result<()> {
    context.node.put(&id(name), Some(&State::Service(Box::new(service.clone())))).map(drop)
}

fn get(node: &dyn Node, name: &str) -> Result<Option<Service>> {
    Ok(match node.get(&id(name))? {
        Some(State::Service(service)) => Some(*service),
        _ => None,
    })
}

fn start(context: &mut TestContext<'_>, name: &str) -> Result<()> {
    context.node.put(&running(name), Some(&State::Running)).map(drop)
}

/// Stops a service. Returns the id of the refusal, if there was one.
fn stop(context: &mut TestContext<'_>, name: &str) -> Result<Option<&'static str>> {
    match context.node.put(&running(name), None) {
        Ok(_) => Ok(None),
        Err(error) if !Fault::id_of(&error).is_empty() => Ok(Some(Fault::id_of(&error))),
        Err(error) => Err(error),
    }
}

/// Without its recovery actions, which have a row of their own.
fn plain(service: &Service) -> Service {
    Service { restart_after: Vec::new(), ..service.clone() }
}

fn definition(context: &mut TestContext<'_>) -> Result<Answer> {
    let made = make(context, ONE, &[])?;
    let changed = Service {
        display_name: "calicoctl-win selftest, changed".into(),
        description: "Changed".into(),
        start: StartType::Disabled,
        ..made.clone()
    };
    for wanted in [made, changed] {
        put(context, ONE, &wanted)?;
        let found = get(&*context.node, ONE)?.as_ref().map(plain);
        if found.as_ref() != Some(&plain(&wanted)) {
            return Answer::fails(format!("{:?} is read as {found:?}", plain(&wanted)));
        }
    }
    Answer::holds("as written, also after a change in place")
}

fn recovery(context: &mut TestContext<'_>) -> Result<Answer> {
    let made = make(context, ONE, &[])?;
    let found = get(&*context.node, ONE)?.map(|service| service.restart_after).unwrap_or_default();
    let told = format!("restarts after {:?} s are read as {found:?}", made.restart_after);
    Answer::of(found == made.restart_after, "3 restarts, as written", told)
}

fn process(context: &mut TestContext<'_>) -> Result<Answer> {
    make(context, ONE, &[])?;
    start(context, ONE)?;
    let while_it_runs = context.node.process(ONE)?;
    stop(context, ONE)?;
    let afterwards = context.node.process(ONE)?;
    match (while_it_runs, afterwards) {
        (Some(_), None) => Answer::holds("one while it runs, none after the stop"),
        (None, _) => Answer::fails("a service that was started has no process"),
        (_, Some(_)) => Answer::fails("a service that was stopped has a process"),
    }
}

fn dependents(context: &mut TestContext<'_>) -> Result<Answer> {
    make(context, ONE, &[])?;
    make(context, TWO, &[ONE])?;
    let found = context.node.dependents(ONE)?;
    let right = matches!(&found[..], [one] if one.eq_ignore_ascii_case(TWO));
    Answer::of(right, "the one that depends on it", format!("Windows lists {found:?}, and one depends on it"))
}

fn dependencies(context: &mut TestContext<'_>) -> Result<Answer> {
    make(context, ONE, &[])?;
    make(context, TWO, &[ONE])?;
    start(context, TWO)?;
    let runs = context.node.get(&running(ONE))?.is_some();
    Answer::of(runs, "both run", "the service runs, and the one that it depends on does not")
}

fn stop_order(context: &mut TestContext<'_>) -> Result<Answer> {
    make(context, ONE, &[])?;
    make(context, TWO, &[ONE])?;
    start(context, ONE)?;
    start(context, TWO)?;
    match stop(context, ONE)? {
        Some("ServiceHasDependents") => Answer::holds("refused with error 1051"),
        None => Answer::fails("the service was stopped"),
        Some(id) => Answer::fails(format!("refused as {id}")),
    }
}

fn deleted(context: &mut TestContext<'_>) -> Result<Answer> {
    let service = make(context, ONE, &[])?;
    context.node.put(&id(ONE), None)?;
    if get(&*context.node, ONE)?.is_some() {
        return Answer::fails("a deleted service is still there");
    }
    put(context, ONE, &service)?;
    Answer::holds("created again at once")
}

fn marked(context: &mut TestContext<'_>) -> Result<Answer> {
    make(context, ONE, &[])?;
    match context.node.probe(&Probe::ReuseHeldName(ONE.into()))? {
        Some(win32::SERVICE_MARKED_FOR_DELETE) => Answer::holds("reserved, with error 1072"),
        None => Answer::fails("the name is free although the service is open"),
        Some(code) => Answer::fails(format!("refused with Windows error {code}")),
    }
}
