//! `fleet`: one change on many nodes, made by Kubernetes' DaemonSet controller.

use anyhow::Result;

use super::args::{Fleet, FleetChange};
use crate::fault::Exit;
use crate::fleet::{FleetStatus, Wishes, plan_text, status_text};
use crate::report::document::RunResult;
use crate::run::Ending;
use crate::run::app::App;
use crate::run::context::Remote;
use crate::run::fleet::{self, Request};
use crate::values::count;

pub(crate) fn run(verb: &Fleet, app: &mut App) -> Result<Ending> {
    match verb {
        Fleet::Plan(change) => {
            let prepared = fleet::prepare(&request(change), app)?;
            app.reporter.document(&prepared.plan, &plan_text(&prepared.plan));
            let nodes: usize = prepared.plan.waves.iter().map(|wave| wave.nodes.len()).sum();
            Ok(Ending::Shown(Box::new(RunResult::looked(nodes > 0, count(nodes, "node")))))
        }
        Fleet::Apply { change, timeout } => {
            let prepared = fleet::prepare(&request(change), app)?;
            app.reporter.tell(plan_text(&prepared.plan).trim_end());
            let nodes: usize = prepared.plan.waves.iter().map(|wave| wave.nodes.len()).sum();
            if app.global.dry_run {
                return app.would(format!("change {}", count(nodes, "node")));
            }
            app.confirm("the nodes of the cluster", &format!("Make this change on {}?", count(nodes, "node")), None)?;
            let status = fleet::apply(&prepared, timeout.length(), app)?;
            app.done(true, done(&status))
        }
        Fleet::Status(place) => {
            let cluster = Remote::open(app, false)?.cluster;
            let _there = fleet::sets(&cluster, &place.namespace)?;
            let status = fleet::look(&cluster, &place.namespace)?;
            let exit = if status.failures.is_empty() { Exit::Ok } else { Exit::Unhealthy };
            app.reporter.document(&status, &status_text(&status));
            Ending::shown(exit, done(&status))
        }
        Fleet::Pause(place) | Fleet::Resume(place) => {
            let pause = matches!(verb, Fleet::Pause(_));
            let words = if pause { ("pause", "paused") } else { ("resume", "resumed") };
            let cluster = Remote::open(app, false)?.cluster;
            if app.global.dry_run {
                let sets = fleet::sets(&cluster, &place.namespace)?;
                let other = sets.iter().filter(|set| set.is_paused() != pause).count();
                return app.would(format!("{} {}", words.0, count(other, "wave")));
            }
            let changed = fleet::pause(&cluster, &place.namespace, pause)?;
            app.done(changed > 0, format!("{} {}", count(changed, "wave"), words.1))
        }
        Fleet::Rollback(place) => {
            let cluster = Remote::open(app, false)?.cluster;
            let sets = fleet::sets(&cluster, &place.namespace)?;
            if app.global.dry_run {
                return app.would(format!("return {} to what it installed before", count(sets.len(), "wave")));
            }
            app.confirm("the nodes of the cluster", "Return the nodes to what was installed before?", None)?;
            let undone = fleet::rollback(&cluster, &place.namespace)?;
            app.done(true, format!("returned to what was installed before: {}", undone.join(", ")))
        }
    }
}

pub(super) fn request(change: &FleetChange) -> Request {
    Request {
        namespace: change.place.namespace.clone(),
        image: change.image.clone(),
        api_server: change.api_server.clone(),
        max_unavailable: change.max_unavailable,
        wishes: Wishes { canary: change.canary.clone(), zones: change.zones },
    }
}

/// How many nodes have the last revision.
fn done(status: &FleetStatus) -> String {
    let sum = |of: fn(&crate::fleet::WaveStatus) -> usize| status.waves.iter().map(of).sum::<usize>();
    let begun = |of: fn(&crate::fleet::WaveStatus) -> usize| {
        status.waves.iter().filter(|wave| wave.revision == status.revision).map(of).sum::<usize>()
    };
    format!(
        "{} of {} have revision {}, {} failed",
        begun(|wave| wave.done),
        count(sum(|wave| wave.nodes), "node"),
        status.revision,
        sum(|wave| wave.failed)
    )
}
