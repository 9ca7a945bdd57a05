//! `service start|stop|restart`: Calico's services, without other changes. A start includes kubelet, kube-proxy and
//! containerd if this program runs them: Calico's node startup waits for the Node that kubelet creates.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Ending;
use super::app::App;
use super::context::Operation;
use super::cordon::After;
use super::generations::installed;
use super::health_gate::Works;
use super::pipeline::{self, Done, Verb, report};
use super::sources::Choice;
use super::verb::{RESTART, Row, STOP};
use crate::apply::observe;
use crate::apply::standing::Applied;
use crate::calico::kube_proxy;
use crate::calico::services::KUBELET;
use crate::item::{Id, StartType, State};
use crate::node::Node;
use crate::paths::containerd;
use crate::plan::diff::in_start_order;
use crate::plan::order::{FELIX_SERVICE, SERVICES, is_our_kubernetes};
use crate::plan::show::RESETS;
use crate::report::document::RunResult;
use crate::report::event::Event;

/// Starts, stops or restarts Calico's services, with those of other products that depend on them.
///
/// # Errors
/// As [`pipeline::run`]; `NotInstalled`; errors of Windows; and what keeps the services from working.
pub(crate) fn run(row: &'static Row, app: &mut App) -> Result<Ending> {
    pipeline::run(row, app, &Choice::default(), plan)
}

/// What is stopped and started, in order.
struct Switched(Vec<(String, bool)>);

fn plan(op: &mut Operation<'_>) -> Result<Switched> {
    let (stops, starts) = match op.row.command {
        command if command == STOP.command => (true, false),
        command => (command == RESTART.command, true),
    };
    let world = &installed(&op.context.standing)?.target.world;
    let ours = SERVICES.into_iter().filter(|name| world.contains_key(&Id::Service((*name).into())));
    let ours: Vec<String> = ours.map(str::to_owned).collect();
    let others = dependents(op.node, &ours)?;
    let of_kubernetes =
        |names: &'static [&'static str]| names.iter().copied().filter(|name| is_our_kubernetes(name, &[world]));
    let running = |name: &str| op.node.get(&Id::Running(name.into())).map(|state| state.is_some());
    let (mut steps, mut stopped) = (Vec::new(), Vec::new());
    // Windows does not stop a service while a service that depends on it runs.
    for name in ours.iter().chain(&others).rev().filter(|_| stops) {
        if running(name)? {
            steps.push((name.clone(), false));
            stopped.push(name.as_str());
        }
    }
    let started = of_kubernetes(&[containerd::NAME, KUBELET])
        .chain(ours.iter().map(String::as_str))
        .chain(of_kubernetes(&[kube_proxy::NAME]))
        .map(|name| (name, true))
        .chain(others.iter().map(|name| (name.as_str(), false)));
    for (name, own) in started.filter(|_| starts) {
        let again = stopped.contains(&name);
        if again || !running(name)? && (own || !stops && automatic(op.node, name)?) {
            steps.push((name.to_owned(), true));
        }
    }
    Ok(Switched(steps))
}

impl Switched {
    fn said(&self) -> String {
        let word = |starts| if starts { "start" } else { "stop" };
        let steps: Vec<String> = self.0.iter().map(|(name, starts)| format!("{} {name}", word(*starts))).collect();
        if steps.is_empty() { "nothing to do".into() } else { steps.join(", ") }
    }

    fn restarts_felix(&self) -> bool {
        let has = |starts| self.0.iter().any(|step| step.0 == FELIX_SERVICE && step.1 == starts);
        has(false) && has(true)
    }
}

impl Verb for Switched {
    /// The Node is not changed.
    fn node_name(&self) -> &str {
        ""
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        let msg = self.said();
        op.app.reporter.tell(&format!("dry run: {msg}"));
        if self.restarts_felix() {
            op.app.reporter.tell(RESETS);
        }
        let mut result = RunResult::looked(!self.0.is_empty(), msg);
        result.generation = op.context.standing.receipt().map(|receipt| receipt.generation);
        Ending::result(result)
    }

    /// Only before something stops.
    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        if self.0.iter().all(|(_, starts)| *starts) {
            return Ok(());
        }
        let resets = if self.restarts_felix() { format!(" {RESETS}.") } else { String::new() };
        op.app.confirm("services", &format!("This will {}.{resets} Continue?", self.said()), None)
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        for (name, starts) in &self.0 {
            let id = Id::Running(name.clone());
            let (state, doing, done) =
                if *starts { (Some(&State::Running), "start", "started") } else { (None, "stop", "stopped") };
            // Windows may have started a dependent with the service that it depends on.
            if op.node.get(&id)?.as_ref() != state {
                op.node.put(&id, state).with_context(|| format!("{doing} service {name}"))?;
                op.app.event(&Event::Log { message: format!("{done} {name}") });
            }
        }
        let receipt = installed(&op.context.standing)?;
        if self.0.iter().any(|(_, starts)| *starts) {
            let works = Works::new(op.app, true);
            works.services(op.node, &receipt.target, &mut |event| op.app.event(&event))?;
        }
        Ok(Applied { changed: self.0.len(), generation: Some(receipt.generation), downtime: Duration::ZERO })
    }

    fn after(&self) -> After {
        After::Leave
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        let msg = self.said();
        op.app.reporter.tell(&msg);
        report(op, Done::new(&applied, msg, Vec::new()))
    }
}

/// Returns the services of other products that depend on these, in the order in which they start.
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
