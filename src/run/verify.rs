//! What `verify` looks at, gathered: the state of the node, and what the cluster says of it; and with pods, the user's
//! access to the cluster.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::Result;

use super::Ending;
use super::app::App;
use super::datastore;
use super::generations::{installed, interrupted};
use super::health_gate::Works;
use super::node_status::{self, HNS_STUCK};
use super::open::check_elevated;
use super::sources::Choice;
use super::verb::REPAIR;
use crate::agent;
use crate::apply::lock::{Holder, Lock};
use crate::apply::standing::Standing;
use crate::cluster::Cluster;
use crate::fault::{Exit, Fault};
use crate::node::Node;
use crate::report::answer::Tally;
use crate::settings::Limits;
use crate::verify::left::Left;
use crate::verify::pods::{Ground, PodOptions};
use crate::verify::report::{ProbeReport, VerifyReport};
use crate::verify::{self, Scene, ground};

/// How long the cluster may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What the pods of `verify` are started with.
pub(crate) struct WithPods {
    pub options: PodOptions,
    /// What a pod must reach; if none, the API server.
    pub egress: Option<String>,
}

/// Gets each probe as it ends.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(&mut App, &ProbeReport);

/// Runs the probes, with pods those that need some.
///
/// # Errors
/// `NOT_INSTALLED`; when the node cannot be measured, or one of our records not read; with pods, those of
/// [`ground::check`] and [`ground::through_pods`].
pub(crate) fn run(app: &mut App, node: &mut dyn Node, pods: Option<&WithPods>, tell: Tell<'_>) -> Result<VerifyReport> {
    let standing = Standing::load(node)?;
    let receipt = match (standing.receipt(), &standing.journal) {
        (None, Some(journal)) => return Err(interrupted(format!("a run was interrupted: {journal}"))),
        _ => installed(&standing)?,
    };
    let config = agent::read_config(node)?;
    let status = node_status::measure(app, node)?;
    let limits = Limits { retries: 1, ..Limits::within(ANSWER_WITHIN) };
    let cluster = app.connector.as_services(node, &config, limits);
    let found = match &cluster {
        Ok(Some(cluster)) => cluster.node(config.node_name.as_str()),
        _ => Ok(None),
    };
    let works = Works::new(app, true);
    let network = match status.has_problem(HNS_STUCK) {
        true => Ok(None),
        false => works.network(node, &receipt.target, &mut |event| app.event(&event)),
    };
    let datastore = datastore::ask(app, node, &config, &config.datastore());
    let etcd_blocks = match &datastore {
        Ok(()) => datastore::blocks_in_etcd(app, node, &config),
        Err(_) => Ok(None),
    };
    let (backend, version) = (status.backend.clone(), status.calico_version.clone());
    let interrupted = standing.journal.is_some() && status.run.as_ref().is_some_and(|run| run.interrupted);
    let mut scene =
        Scene { node, status, interrupted, receipt, config, cluster, found, datastore, etcd_blocks, network };
    let started = pods.map(|pods| before(app, &mut scene, pods)).transpose()?;
    let screen = RefCell::new(&mut *app);
    let mut probes = verify::look(&mut scene, &mut |probe| tell(&mut screen.borrow_mut(), probe), &mut |event| {
        screen.borrow_mut().event(&event);
    });
    let name = scene.config.node_name.to_string();
    let (mut notes, mut left, mut demo) = (Vec::new(), Vec::new(), Vec::new());
    if let (Some(pods), Some(started)) = (pods, started) {
        let run = app.run.clone();
        let screen = RefCell::new(&mut *app);
        let (of_pods, still) = ground::through_pods(
            scene.node,
            &started.cluster,
            &run,
            (&started.ground, &pods.options),
            &mut |probe| tell(&mut screen.borrow_mut(), probe),
            &mut |event| screen.borrow_mut().event(&event),
        )?;
        probes.extend(of_pods);
        if Left::load(scene.node)?.is_some_and(|left| left.demo) {
            demo = ground::demo(&name);
        }
        (notes, left) = (started.notes, still);
    }
    let summary = Tally::of(probes.iter().map(|probe| probe.verdict));
    let generation = receipt.generation;
    Ok(VerifyReport { node: name, generation, calico_version: version, backend, probes, summary, notes, demo, left })
}

/// What is there before the first pod.
struct Started {
    cluster: Cluster,
    ground: Ground,
    notes: Vec<String>,
    _lock: Lock,
}

/// Takes the lock, removes what an interrupted verify left, and says what the user must know.
fn before(app: &mut App, scene: &mut Scene<'_>, pods: &WithPods) -> Result<Started> {
    check_elevated(scene.node.caller().elevated)?;
    let lock = lock(app, scene.node)?;
    let cluster = cluster(app, scene.node)?;
    let (address, domain) = scene.ground();
    let ground = Ground {
        node: scene.config.node_name.to_string(),
        address,
        linux: cluster.linux_nodes()?.into_iter().next(),
        domain,
        egress: pods.egress.clone().or_else(|| cluster.outside()),
    };
    let mut notes = ground::check(&cluster, &ground, &pods.options)?;
    if let Some(left) = Left::load(scene.node)? {
        let still = ground::remove(scene.node, &cluster, &left, &mut |event| app.event(&event))?;
        let what =
            if still.is_empty() { "removed".to_owned() } else { format!("not removed yet: {}", still.join(", ")) };
        notes.push(format!("the pods of run {} were {what}", left.run));
    }
    notes.iter().for_each(|note| app.reporter.tell(note));
    Ok(Started { cluster, ground, notes, _lock: lock })
}

/// Takes the lock of the runs that change the node.
fn lock(app: &App, node: &mut dyn Node) -> Result<Lock> {
    let holder = Holder::of(&app.run, "verify", node.now());
    Lock::take(node, &holder, Duration::ZERO, &mut |_| ())
}

/// The cluster as the user logs in.
fn cluster(app: &mut App, node: &mut dyn Node) -> Result<Cluster> {
    let context = app.context(node, &REPAIR, &Choice::default())?;
    context.cluster(node).cloned()
}

/// Removes what `--demo`, or an interrupted verify, left in the cluster.
///
/// # Errors
/// When the cluster cannot be asked, or refuses; `VerifyLeft` if something is still there.
pub(crate) fn remove(app: &mut App, node: &mut dyn Node) -> Result<Ending> {
    check_elevated(node.caller().elevated)?;
    let Some(left) = Left::load(node)? else { return app.done(false, "nothing to do: verify left nothing".into()) };
    if app.global.is_dry_run() {
        return app.would(format!("remove the pods that verify (run {}) left in the cluster", left.run));
    }
    let _lock = lock(app, node)?;
    let cluster = cluster(app, node)?;
    let still = ground::remove(node, &cluster, &left, &mut |event| app.event(&event))?;
    if still.is_empty() {
        return app.done(true, format!("removed what verify (run {}) left in the cluster", left.run));
    }
    let what = format!("not removed yet: {}", still.join(", "));
    Err(Fault::new(Exit::FailedIncomplete, "VerifyLeft", what)
        .hint("run it again: calicoctl-win verify --remove")
        .into())
}

/// Removes what an interrupted verify left in the cluster, and says so; `demo`: also what is there on purpose. A failure
/// is told, and stops nothing.
pub(crate) fn remove_left(app: &mut App, node: &mut dyn Node, demo: bool) -> Result<()> {
    let Some(left) = Left::load(node)?.filter(|left| demo || !left.demo) else { return Ok(()) };
    if app.global.is_dry_run() {
        app.reporter.tell(&format!("Would remove the pods that verify (run {}) left in the cluster.", left.run));
        return Ok(());
    }
    let _lock = lock(app, node)?;
    let removed =
        cluster(app, node).and_then(|cluster| ground::remove(node, &cluster, &left, &mut |event| app.event(&event)));
    match removed {
        Ok(still) if still.is_empty() => {
            app.reporter.tell(&format!("Removed the pods that verify (run {}) left in the cluster.", left.run));
        }
        Ok(still) => app.warn("VerifyLeft", format!("not removed yet: {}", still.join(", "))),
        Err(error) => app.warn("VerifyLeft", format!("the pods of verify could not be removed: {error:#}")),
    }
    Ok(())
}
