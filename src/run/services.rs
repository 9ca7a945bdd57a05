//! `service start|stop|restart`: Calico's services, without other changes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::Ending;
use super::app::{App, Opened};
use super::engine::installed;
use super::health_gate::Works;
use crate::apply::observe;
use crate::apply::receipt::Receipt;
use crate::fault::Exit;
use crate::item::{Id, StartType, State};
use crate::node::Node;
use crate::plan::diff::in_start_order;
use crate::plan::order::SERVICES;
use crate::report::document::RunResult;
use crate::report::event::Event;

/// Starts, stops or restarts Calico's services, with those of others that depend on them.
///
/// # Errors
/// `NotInstalled`; errors of Windows; and what keeps the services from working.
pub(crate) fn change(app: &mut App, command: &'static str, stop: bool, start: bool) -> Result<Ending> {
    let dry = app.global.dry_run;
    let Opened { mut node, lock: _lock, standing } = app.node_for(command)?;
    let standing = standing?;
    let receipt = installed(&standing)?;
    let ours: Vec<String> = ours(receipt).into_iter().map(str::to_owned).collect();
    let others = dependents(&*node, &ours)?;
    let running = |node: &dyn Node, name: &str| node.get(&Id::Running(name.into())).map(|state| state.is_some());
    let (mut changed, mut stopped) = (Vec::new(), Vec::new());
    // Windows does not stop a service while a service that depends on it runs.
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
        let works = Works::new(app, true);
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

/// Returns the services of others that depend on ours, in the order in which they start.
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

/// Whether Windows starts a service by itself at boot: if it is stopped, it was stopped with ours.
fn automatic(node: &dyn Node, name: &str) -> Result<bool> {
    let service = node.get(&Id::Service(name.into()))?;
    Ok(matches!(service, Some(State::Service(service)) if service.start == StartType::Auto))
}

/// Returns the services of a generation, in the order in which they start.
fn ours(receipt: &Receipt) -> Vec<&'static str> {
    SERVICES.into_iter().filter(|name| receipt.target.world.contains_key(&Id::Service((*name).into()))).collect()
}
