//! The guard: watches over a change on trial, and sees to what earlier runs left.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::trial::{ANSWER_WITHIN, GIVEN_UP, access, try_back};
use super::{at_boot, cordon, left_over};
use crate::agent::os::{self, Level};
use crate::agent::trial::{self, TRIES, Trial};
use crate::apply::lock;
use crate::cluster::Cluster;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::{RunResult, exit_of};
use crate::report::event::Event;
use crate::values::WinPath;

/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(250);

/// How long the guard waits before it tries the way back again: at first, and at most. All pauses
/// together are what HNS may need from its start to its first answer.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(32)];

/// Watches over a trial until it is over, and brings the node back if that is how it ends.
pub(crate) fn run(app: &mut App) -> Result<Ending> {
    let Some(_mine) = left_over::guard_lock(&mut *app.node()?)? else {
        return Ending::result(RunResult::new(Exit::Ok, false, "another guard is at it"));
    };
    let node = app.node()?;
    let (cut_off, cordoned) = (left_over::due_since_boot(&*node)?, left_over::is_cordoned(&*node)?);
    drop(node);
    if let Some(way) = cut_off {
        return at_boot::carry_on(app, way);
    }
    if cordoned {
        return cordon::release_left_over(app);
    }
    let (mut seen_live, mut looked, mut lost): (Option<Instant>, Option<Instant>, Option<(Instant, String)>) =
        (None, None, None);
    loop {
        // Opened anew each time: others change it meanwhile.
        let node = app.node()?;
        let Some(trial) = Trial::load(&*node)?.filter(|trial| trial.given_up.is_none()) else {
            return Ending::result(RunResult::new(Exit::Ok, false, "the trial is over"));
        };
        let mut watched = Duration::ZERO;
        if trial.live.is_some() {
            watched = seen_live.get_or_insert_with(Instant::now).elapsed();
            if looked.is_none_or(|last| last.elapsed() >= trial.patience() / 4) {
                // The question takes its time where nobody answers, and that counts.
                let asked = Instant::now();
                lost = out_of_reach(app, &*node, &trial).map(|what| (lost.map_or(asked, |(at, _)| at), what));
                looked = Some(asked);
            }
        }
        let at_it = lock::holder(&*node).is_some_and(|holder| holder.run == trial.run);
        drop(node);
        let lost = lost.as_ref().map(|(since, what)| (since.elapsed(), what.as_str()));
        if let Some(why) = trial.verdict(Timestamp::now(), at_it, watched, lost) {
            match try_back(app, &why) {
                Ok(ending) => return Ok(ending),
                // A run that began before is at its end, or somebody confirms.
                Err(error) if exit_of(&error) == Exit::Busy => {}
                Err(error) if Fault::id_of(&error) == GIVEN_UP => return Err(error),
                // All is as before, but for the Node.
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

/// What cannot be reached any more; none while all can.
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

/// The API server as the node's own components reach it.
fn own_cluster(app: &App, node: &dyn Node) -> Option<Result<Cluster>> {
    let config = crate::agent::read_config(node).ok()?;
    let path: WinPath = config.startup.env.get("KUBECONFIG")?.parse().ok()?;
    let text = std::fs::read_to_string(node.disk(&path)).ok()?;
    Some(app.connect(&text, Path::new("."), None, ANSWER_WITHIN))
}
