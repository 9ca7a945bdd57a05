//! `service start|stop|restart|status`, and the hidden `service run`.

use anyhow::{Context, Result};
use serde_json::json;

use super::Ending;
use super::app::App;
use super::args::Service;
use super::status;
use crate::apply::converge::Standing;
use crate::apply::receipt::Receipt;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::plan::item::{Id, State};
use crate::plan::order::SERVICES;
use crate::report::document::RunResult;
use crate::report::event::Event;

pub(crate) fn run(verb: &Service, app: &mut App) -> Result<Ending> {
    match verb {
        Service::Status => show(app),
        Service::Run { component } => Err(Fault::new(
            Exit::Unsupported,
            "NotAService",
            format!("`service run {component}` is for the Service Control Manager"),
        )
        .hint("start the services with: calicoctl-win service start")
        .into()),
        Service::Start => change(app, "service start", false, true),
        Service::Stop => change(app, "service stop", true, false),
        Service::Restart => change(app, "service restart", true, true),
    }
}

fn show(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let services: Result<Vec<_>> = SERVICES.iter().map(|name| status::service(&*node, name)).collect();
    let services = services?;
    let text: Vec<String> = services.iter().map(|service| format!("{:<12} {}", service.name, service.state)).collect();
    let down = services.iter().any(|service| service.state == "Stopped");
    app.reporter.document("ServiceStatus", &json!({ "services": services }), &text.join("\n"));
    if down { Ending::shown(Exit::Unhealthy, "a service is stopped") } else { Ending::shown(Exit::Ok, "done") }
}

fn change(app: &mut App, command: &'static str, stop: bool, start: bool) -> Result<Ending> {
    let dry = app.global.dry_run;
    let (mut node, _lock) =
        if dry { (app.node()?, None) } else { app.node_to_change(command).map(|(node, lock)| (node, Some(lock)))? };
    let standing = Standing::load(&*node)?;
    let Some(receipt) = standing.receipt() else {
        return Err(Fault::new(Exit::NotInstalled, "NotInstalled", "Calico is not installed here by this tool")
            .hint("install it with: calicoctl-win install")
            .into());
    };
    let services = ours(receipt);
    let running = |node: &dyn Node, name: &str| node.get(&Id::Running(name.into())).map(|state| state.is_some());
    let mut changed = Vec::new();
    for name in services.iter().rev().filter(|_| stop) {
        if running(&*node, name)? {
            changed.push(format!("stop {name}"));
            if !dry {
                node.put(&Id::Running((*name).into()), None).with_context(|| format!("stop service {name}"))?;
                app.half_done = true;
                app.event(&Event::Log { message: format!("stopped {name}") });
            }
        }
    }
    for name in services.iter().filter(|_| start) {
        if (dry && stop) || !running(&*node, name)? {
            changed.push(format!("start {name}"));
            if !dry {
                node.put(&Id::Running((*name).into()), Some(&State::Running))
                    .with_context(|| format!("start service {name}"))?;
                app.half_done = true;
                app.event(&Event::Log { message: format!("started {name}") });
            }
        }
    }
    let msg = if changed.is_empty() { "nothing to do".into() } else { changed.join(", ") };
    let dry_run = if dry { "dry run: " } else { "" };
    app.reporter.tell(&format!("{dry_run}{msg}"));
    let mut result = RunResult::new(Exit::Ok, !changed.is_empty() && !dry, msg);
    result.generation = Some(receipt.generation);
    Ending::result(result)
}

/// The services of a generation, in the order in which they start.
fn ours(receipt: &Receipt) -> Vec<&'static str> {
    SERVICES.into_iter().filter(|name| receipt.target.world.contains_key(&Id::Service((*name).into()))).collect()
}
