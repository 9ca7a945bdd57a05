//! The guard: watches a change on trial, and finishes what earlier runs left.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::app::App;
use super::options::Resume;
use super::sources::Choice;
use super::trial::{ANSWER_WITHIN, GIVEN_UP, try_revert};
use super::verb::REVERT;
use super::{Ending, cordon, pending_work, resume};
use crate::agent;
use crate::agent::os::{self, Level};
use crate::agent::trial::{self, TRIES, Trial};
use crate::apply::cordon::Cordon;
use crate::apply::journal::{AtBoot, Journal};
use crate::apply::lock;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::document::{RunResult, exit_of};
use crate::report::event::Event;
use crate::settings::Limits;

/// How often the guard polls.
const LOOK: Duration = Duration::from_millis(250);

/// How long the guard waits before it tries the revert again: at first, and at most. The sum of all pauses is what HNS
/// may need from its start to its first answer.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(32)];

/// Watches a trial until it is over, and reverts the change if it is not confirmed.
pub(crate) fn run(app: &mut App) -> Result<Ending> {
    let Some(_mine) = pending_work::guard_lock(&mut *app.node()?)? else {
        return Ending::result(RunResult::new(Exit::Ok, false, "another guard is running"));
    };
    let node = app.node()?;
    let (interrupted, cordoned) = (pending_work::due_since_boot(&*node, None)?, pending_work::is_to_uncordon(&*node)?);
    drop(node);
    if let Some(way) = interrupted {
        return end_interrupted(app, way);
    }
    if cordoned {
        return cordon::release_left_over(app);
    }
    let (mut seen_live, mut looked, mut lost): (Option<Instant>, Option<Instant>, Option<(Instant, String)>) =
        (None, None, None);
    loop {
        // Opened again each time: other processes change it meanwhile.
        let node = app.node()?;
        // Before the record: a run that ends in between has written it.
        let at_work = lock::holder(&*node).map(|holder| holder.run);
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
        let at_it = at_work.as_ref() == Some(&trial.run);
        drop(node);
        let lost = lost.as_ref().map(|(since, what)| (since.elapsed(), what.as_str()));
        if let Some(why) = trial.verdict(Timestamp::now(), at_it, watched, lost) {
            // Until the next try, others may have the lock.
            match try_revert(app, &why).inspect_err(|_| app.lock = None) {
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
fn out_of_reach(app: &mut App, node: &dyn Node, trial: &Trial) -> Option<String> {
    if let Some(lost) = trial::lost_gateway(node, &trial.gateways) {
        return Some(lost);
    }
    // As the node's own components do, else as the run that began the trial did.
    let limits = Limits::within(ANSWER_WITHIN);
    let own = agent::read_config(node).and_then(|config| app.connector.as_services(node, &config, limits));
    let reached = match own {
        Ok(Some(cluster)) => cluster.reach(),
        _ => app
            .look(&REVERT, &Choice::default())
            .and_then(|(node, context)| context.cluster(&*node)?.within(ANSWER_WITHIN).reach()),
    };
    reached.err().map(|error| format!("{error:#}"))
}

/// The pause between two tries to end a run: right after a boot, network and cluster may still be starting.
const NEXT_TRY: Duration = Duration::from_secs(15);

/// The number of tries before an administrator has to act.
const TRIES_AT_BOOT: usize = 20;

/// Finishes or undoes the run that a boot interrupted, as a run of its own: nobody may be there to call `resume`.
///
/// # Errors
/// When it does not succeed in five minutes.
fn end_interrupted(app: &mut App, way: AtBoot) -> Result<Ending> {
    let args = Resume { undo: way == AtBoot::Undo };
    let mut tries = 0;
    loop {
        let node = app.node()?;
        // Undone by the failed try, or another run was faster.
        if tries > 0 && Journal::load(&*node)?.is_none() && Cordon::load(&*node)?.is_none() {
            return Ending::result(RunResult::new(Exit::Ok, false, "the run that the reboot interrupted is over"));
        }
        drop(node);
        match resume::run(&args, app) {
            Ok(ending) => return Ok(ending),
            Err(error) if exit_of(&error) == Exit::Busy => std::thread::sleep(LOOK),
            Err(error) => {
                tries += 1;
                let message = format!(
                    "a run that the reboot interrupted is not ended yet (try {tries} of {TRIES_AT_BOOT}): {error:#}"
                );
                os::event_log(Level::Error, &message);
                if tries == TRIES_AT_BOOT {
                    return Err(error);
                }
                std::thread::sleep(NEXT_TRY);
            }
        }
    }
}
