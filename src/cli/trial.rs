//! `reconfigure --mode try`: a change that goes back by itself unless it is confirmed. A guard, a
//! process of its own, watches over it; CalicoNode starts one anew after a boot, for this, for a run that
//! the boot cut off, and for a Node that a run left cordoned.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::Ending;
use super::app::App;
use super::args::{DrainFlags, Source};
use super::drain::{self, Place};
use super::engine::succeeded;
use super::prepare::{Prepared, announce};
use super::{at_boot, cordon, lease, reconfigure};
use crate::agent::os::{self, Level};
use crate::agent::trial::{self, Trial};
use crate::apply::converge::{self, Applied, Change, Standing};
use crate::apply::lock;
use crate::apply::receipt::{About, Receipt};
use crate::cluster::Cluster;
use crate::fault::{Exit, Fault};
use crate::node::{Node, STATE_DIR};
use crate::plan::item::Access;
use crate::plan::show::Plan;
use crate::report::document::{RunResult, exit_of};
use crate::report::event::Event;
use crate::values::WinPath;

/// What the way back is called in journals and receipts.
const REVERT: &str = "revert";

/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(250);

/// How long the guard waits before it tries the way back again.
const AGAIN: Duration = Duration::from_secs(3);

/// How long a question of the guard may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The most that the way back waits for pods to go.
const DRAIN_WITHIN: Duration = Duration::from_secs(120);

/// Writes down that the change which begins is on trial, and starts its guard: from here on the node
/// goes back also when this process ends in the middle.
pub(super) fn begin(app: &mut App, node: &mut dyn Node, prepared: &Prepared, within: Duration) -> Result<()> {
    let from = prepared.standing.receipt().map(|receipt| receipt.generation);
    let connection = &prepared.resolved.run.connection;
    let trial = Trial {
        run: app.run.clone(),
        command: "reconfigure".into(),
        node: prepared.about.node_name.to_string(),
        from: from.context("find the generation to go back to")?,
        began: Timestamp::now(),
        confirm_within: within.as_secs().max(1),
        // One that never answered says nothing by its silence.
        gateways: trial::gateways(node)?
            .into_iter()
            .filter(|gateway| !matches!(node.answers(*gateway), Ok(false)))
            .collect(),
        live: None,
        kubeconfig: cordon::named(connection),
        context: connection.context.clone(),
    };
    trial.save(node)?;
    let sandbox = app.global.sandbox.clone();
    start_guard(sandbox.as_deref()).inspect_err(|_| drop(Trial::forget(node)))
}

/// The change is there: says until when it must be confirmed, and gives the commands for it.
pub(super) fn is_live(app: &mut App, node: &mut dyn Node) -> Result<Vec<String>> {
    let mut trial = Trial::load(node)?.context("find the trial that this run began")?;
    trial.live = Some(Timestamp::now());
    trial.save(node)?;
    let deadline = trial.deadline().unwrap_or(Timestamp::MAX);
    let command = app.command("confirm");
    app.event(&Event::ConfirmDeadline { deadline, command: command.clone() });
    Ok(vec![command, app.command("confirm --revert"), app.command("status")])
}

/// The trial is over before it was live: the change failed, and was taken back.
pub(super) fn ended_early(node: &dyn Node) -> Result<()> {
    if Standing::load(node)?.journal.is_none() { Trial::forget(node) } else { Ok(()) }
}

/// Starts a guard that outlives this process.
pub(super) fn start_guard(sandbox: Option<&Path>) -> Result<()> {
    let program = std::env::current_exe().context("find our own executable")?;
    let mut command = Command::new(program);
    command.args(["service", "run", "guard", "--yes"]);
    if let Some(dir) = sandbox {
        command.arg("--sandbox").arg(dir);
    }
    // These are of the command that began the trial, and of no other.
    for variable in ["CALICO_WIN_DETACH", "CALICO_WIN_DRY_RUN", "CALICO_WIN_SANDBOX_FAULT"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    os::detach(&mut command).context("start the guard of the trial").map(drop)
}

/// Whether a trial is on that nobody watches over.
pub(super) fn lacks_guard(node: &mut dyn Node) -> Result<bool> {
    Ok(Trial::load(node)?.is_some() && guard_lock(node)?.is_some())
}

/// The right to be the guard; none while there is one.
fn guard_lock(node: &mut dyn Node) -> Result<Option<File>> {
    let path = WinPath::known(STATE_DIR).join("state").join("guard.lock");
    if !node.disk(&path).exists() {
        node.save(&path, b"", Access::Administrators).with_context(|| format!("make {path}"))?;
    }
    let file = File::options().write(true).open(node.disk(&path)).with_context(|| format!("open {path}"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {path}")),
    }
}

/// Watches over a trial until it is over, and brings the node back if that is how it ends.
pub(super) fn guard(app: &mut App) -> Result<Ending> {
    let Some(_mine) = guard_lock(&mut *app.node()?)? else {
        return Ending::result(RunResult::new(Exit::Ok, false, "another guard is at it"));
    };
    let node = app.node()?;
    let (cut_off, cordoned) = (at_boot::due(&*node)?, cordon::is_left_over(&*node)?);
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
        let Some(trial) = Trial::load(&*node)? else {
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
            match go_back(app, &why) {
                Ok(ending) => return Ok(ending),
                // A run that began before is at its end, or somebody confirms.
                Err(error) if exit_of(&error) == Exit::Busy => {}
                Err(error) => {
                    let message = format!("the trial of run {} is not taken back yet: {error:#}", trial.run);
                    os::event_log(Level::Error, &message);
                    app.event(&Event::Log { message });
                    std::thread::sleep(AGAIN);
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
        None => cordon::reach(app, node, trial.kubeconfig.as_deref(), trial.context.as_deref(), Some(ANSWER_WITHIN)),
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

/// Takes the change back, as a run of its own.
pub(super) fn go_back(app: &mut App, why: &str) -> Result<Ending> {
    let (mut node, _lock) = app.node_to_change("confirm")?;
    let Some(trial) = Trial::load(&*node)? else {
        return Ending::result(RunResult::new(Exit::Ok, false, "the trial is over"));
    };
    let message = format!("{why}: node {} goes back to generation {}", trial.node, trial.from);
    os::event_log(Level::Warning, &message);
    app.warn("TrialTakenBack", message);
    let (applied, about) = revert(app, &mut *node, &trial)?;
    if let Ok(cluster) =
        cordon::reach(app, &*node, trial.kubeconfig.as_deref(), trial.context.as_deref(), Some(ANSWER_WITHIN))
    {
        reconfigure::annotate(app, &cluster, &about);
        let _runs_out_by_itself = cluster.give_back_lease(&trial.node, &lease::owner(app, &*node)?);
    }
    Trial::forget(&*node)?;
    let msg = format!("{} is as generation {} made it; the change was not kept.", trial.node, trial.from);
    app.reporter.tell(&msg);
    let next = vec![app.command("status")];
    Ending::result(succeeded(app, &*node, &applied, msg, next))
}

/// Brings the node to the generation before the trial, from wherever it is. Where the API server is
/// away it goes on all the same; a step that needs it is taken again when this is called again.
fn revert(app: &mut App, node: &mut dyn Node, trial: &Trial) -> Result<(Applied, About)> {
    let mut standing = Standing::load(node)?;
    if let Some(journal) = &standing.journal {
        let back = journal.header.command == REVERT;
        let mut events = |event: Event| app.event(&event);
        if back { converge::resume(node, &mut events) } else { converge::undo(node, &mut events) }?;
        standing = Standing::load(node)?;
    }
    let former = former(&standing, trial)?.clone();
    let about = former.about.clone().context("read what the generation was made from")?;
    let mut applied =
        Applied { changed: 0, generation: standing.receipt().map(|now| now.generation), downtime: Duration::ZERO };
    if standing.receipt().is_none_or(|now| now.target != former.target) {
        let steps = converge::plan(node, &standing, &former.target)?;
        let plan = Plan::new(&steps, &former.target, true);
        announce(app, &plan);
        app.reporter.tell(&plan.text());
        if plan.needs_drain
            && let Err(error) = empty(app, node, trial)
        {
            app.warn("NotDrained", format!("pods stay on this node and lose their network: {error:#}"));
        }
        let run = app.run.clone();
        let target = &former.target;
        // The trial sees to it itself.
        let at_boot = None;
        let change = Change { run: &run, command: REVERT, target, about: Some(&about), at_boot, shown: Some(&steps) };
        applied = converge::apply(node, &change, &mut |event| app.event(&event))?;
    }
    cordon::release(app, node)?;
    Ok((applied, about))
}

fn former<'a>(standing: &'a Standing, trial: &Trial) -> Result<&'a Receipt> {
    standing.receipts.iter().find(|receipt| receipt.generation == trial.from).ok_or_else(|| {
        let what = format!("the receipt of generation {}, which the trial is to go back to, is gone", trial.from);
        Fault::new(Exit::FailedIncomplete, "GenerationGone", what)
            .hint("keep the change with: calicoctl-win confirm; or make the former one from its config")
            .into()
    })
}

/// Moves the pods away, if the cluster can be asked and lets them go in time.
fn empty(app: &mut App, node: &mut dyn Node, trial: &Trial) -> Result<()> {
    let cluster = cordon::reach(app, node, trial.kubeconfig.as_deref(), trial.context.as_deref(), Some(ANSWER_WITHIN))?;
    cluster.reach()?;
    let layered = app.config(node, &Source::default(), &[])?;
    let connection = app.connection(node, &layered)?;
    let given = &layered.config.spec.maintenance.drain;
    let mut options = DrainFlags::default().over(drain::of_document(given));
    options.ignore_daemonsets = given.ignore_daemon_sets.unwrap_or(true);
    options.timeout = Some(options.timeout.map_or(DRAIN_WITHIN, |limit| limit.min(DRAIN_WITHIN)));
    let place = Place { cluster: &cluster, connection: &connection, name: &trial.node };
    drain::empty(app, node, &place, REVERT, &options)
}
