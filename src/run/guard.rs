//! The guard: watches a change on trial, and finishes what earlier runs left.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::trial::{ANSWER_WITHIN, GIVEN_UP, access, try_revert};
use super::{at_boot, cordon, left_over};
use crate::agent::os::{self, Level};
use crate::agent::trial::{self, TRIES, Trial};
use crate::apply::lock;
use crate::cluster::Cluster;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::{RunResult, exit_of};
use crate::report::event::Event;
use crate::settings::Limits;
use crate::values::WinPath;

/// How often the guard polls.
const LOOK: Duration = Duration::from_millis(250);

/// How long the guard waits before it tries the revert again: at first, and at most. The sum of all pauses is what HNS
/// may need from its start to its first answer.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(32)];

/// Watches a trial until it is over, and reverts the change if it is not confirmed.
pub(crate) fn run(app: &mut App) -> Result<Ending> {
    let Some(_mine) = left_over::guard_lock(&mut *app.node()?)? else {
        return Ending::result(RunResult::new(Exit::Ok, false, "another guard is at it"));
    };
    let node = app.node()?;
    let (interrupted, cordoned) = (left_over::due_since_boot(&*node, None)?, left_over::is_cordoned(&*node)?);
    drop(node);
    if let Some(way) = interrupted {
        return at_boot::run(app, way);
    }
    if cordoned {
        return cordon::release_left_over(app);
    }
    let (mut seen_live, mut looked, mut lost): (Option<Instant>, Option<Instant>, Option<(Instant, String)>) =
        (None, None, None);
    loop {
        // Opened again each time: other processes change it meanwhile.
        let node = app.node()?;
        let Some(trial) = Trial::load(&*node)?.filter(|trial| trial.given_up.is_none()) else {
            return Ending::result(RunResult::new(Exit::Ok, false, "the trial is over"));
        };
        let mut watched = Duration::ZERO;
        if trial.live.is_some() {
            watched = seen_live.get_or_insert_with(Instant::now).elapsed();
            if looked.is_none_or(|last| last.elapsed() >= trial.unreachable_limit() / 4) {
                // A request without an answer takes time, which counts.
                let asked = Instant::now();
                lost = out_of_reach(app, &*node, &trial).map(|what| (lost.map_or(asked, |(at, _)| at), what));
                looked = Some(asked);
            }
        }
        let at_it = lock::holder(&*node).is_some_and(|holder| holder.run == trial.run);
        drop(node);
        let lost = lost.as_ref().map(|(since, what)| (since.elapsed(), what.as_str()));
        if let Some(why) = trial.verdict(Timestamp::now(), at_it, watched, lost) {
            match try_revert(app, &why) {
                Ok(ending) => return Ok(ending),
                // Another run that began earlier is ending, or somebody confirms.
                Err(error) if exit_of(&error) == Exit::Busy => {}
                Err(error) if Fault::id_of(&error) == GIVEN_UP => return Err(error),
                // Everything is restored, except that the Node is still cordoned.
                Err(error) if Fault::id_of(&error) == "UncordonFailed" => return cordon::release_left_over(app),
                Err(error) => {
                    let tried = trial.tries + 1;
                    let message = format!(
                        "the trial of run {} is not reverted yet (try {tried} of {TRIES}): {error:#}",
                        trial.run
                    );
                    os::event_log(Level::Error, &message);
                    app.event(&Event::Log { message });
                    let [first, longest] = AGAIN;
                    let pause = cordon::growing(first, longest).nth(trial.tries as usize).unwrap_or(longest);
                    std::thread::sleep(pause);
                }
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns what cannot be reached any more; none if everything can.
fn out_of_reach(app: &App, node: &dyn Node, trial: &Trial) -> Option<String> {
    if let Some(lost) = trial::lost_gateway(node, &trial.gateways) {
        return Some(lost);
    }
    let reached = match own_cluster(app, node) {
        Some(cluster) => cluster,
        None => cordon::reach(app, node, &access(trial), Some(ANSWER_WITHIN)),
    };
    reached.and_then(|cluster| cluster.reach()).err().map(|error| format!("{error:#}"))
}

/// Connects to the API server as the node's own components do.
fn own_cluster(app: &App, node: &dyn Node) -> Option<Result<Cluster>> {
    let config = crate::agent::read_config(node).ok()?;
    let path: WinPath = config.startup.env.get("KUBECONFIG")?.parse().ok()?;
    let text = std::fs::read_to_string(node.disk(&path)).ok()?;
    Some(app.connect(&text, Path::new("."), None, Limits::within(ANSWER_WITHIN)))
}
