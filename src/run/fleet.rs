//! One change on many nodes: what `fleet` does with the objects of [`crate::fleet`]. Kubernetes makes the change, so a
//! rollout continues without this process; `apply` stays to begin the next wave, and can be run again to continue.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::app::App;
use super::context::Remote;
use super::options::{DrainFlags, Source};
use super::sources::Sources;
use crate::apply::standing::Standing;
use crate::cluster::{Cluster, FleetWatch, fleet_manifest, may_pass};
use crate::config::Layered;
use crate::config::spec::DatastoreType;
use crate::facts::ClusterFacts;
use crate::fault::{Exit, Fault};
use crate::fleet::{
    self, DaemonSet, Fleet, FleetPlan, FleetStatus, MaxUnavailable, Rollout, TriedAction, TriedObject, Wave, WaveState,
    Wishes, daemon_set, idle, preamble, waves,
};
use crate::preflight::report::CheckStatus;
use crate::preflight::{self, Input, Scope};
use crate::report::event::Event;
use crate::report::time::minutes;
use crate::settings;
use crate::values::{Vni, count};

/// How often a rollout is looked at while nothing changes.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// An API server that has just started refuses everybody until it has read the cluster's roles: never for so long.
const REFUSED_FOR: Duration = Duration::from_mins(5);

/// What the command line says about a rollout.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub namespace: String,
    pub image: String,
    /// None is the address in the kubeconfig.
    pub api_server: Option<String>,
    pub max_unavailable: MaxUnavailable,
    pub wishes: Wishes,
}

/// A rollout that can begin.
pub(crate) struct Prepared {
    pub plan: FleetPlan,
    rollout: Rollout,
    waves: Vec<Wave>,
    cluster: Cluster,
    /// The DaemonSets that exist.
    sets: Vec<DaemonSet>,
}

/// Reads the config and the cluster, and plans.
///
/// # Errors
/// `Usage` without a config or with an address that nodes cannot use; `ConfigInvalid` when a field names one machine;
/// when the cluster cannot be read.
pub(crate) fn prepare(request: &Request, app: &mut App) -> Result<Prepared> {
    if app.global.config.is_empty() && app.global.set.is_empty() {
        return Err(Fault::new(Exit::Usage, "Usage", "no config for the nodes")
            .hint("name a file with -c; a new one comes from: calicoctl-win config init node.yaml")
            .into());
    }
    let remote = Remote::open(app, false)?;
    let facts = remote.facts(app)?;
    let cluster = remote.cluster.clone();
    let address = request.api_server.as_deref().unwrap_or_else(|| cluster.server());
    let mut rollout = rollout(request, address, &facts.calico_namespace, &remote.layered)?;
    warn_of_whole_cluster(app, &remote, &facts);
    let nodes = cluster.windows_nodes()?;
    let waves = waves(&request.wishes, &nodes);
    if let Some((key, value)) = &request.wishes.canary
        && !waves.first().is_some_and(|first| nodes.iter().any(|node| first.has(node)))
    {
        let message = format!(
            "no Windows node has the label {key}={value}: without a canary every node is in a later wave; see the labels \
             with: kubectl get nodes -L {key}"
        );
        app.warn("FleetCanaryEmpty", message);
    }
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    let drain = DrainFlags::default().over(&remote.run.maintenance.drain);
    let (pods, unread) = cluster.plan_drains(&names, &drain)?;
    let sets = cluster.fleet_sets(&request.namespace)?;
    let felix = facts.felix.vxlan_vni.and_then(|vni| Vni::try_from(vni).ok()).unwrap_or(Vni::DEFAULT);
    // If it continues, FelixConfiguration may have the new one already.
    let continued = sets.iter().find(|set| rollout.vni.is_some() && set.vni() == rollout.vni);
    rollout.former_vni = continued.and_then(DaemonSet::former_vni);
    let mut plan = fleet::plan(&rollout, &waves, &nodes, &pods, felix);
    plan.unread = unread;
    rollout.former_vni = rollout.former_vni.or_else(|| plan.other_vni(felix));
    let is_wave = |set: &&DaemonSet| waves.iter().any(|wave| wave.name == set.wave());
    plan.replaced = sets.iter().filter(|set| !is_wave(set)).map(|set| set.metadata.name.clone()).collect();
    told(app, &cluster);
    Ok(Prepared { plan, rollout, waves, cluster, sets })
}

/// The checks that the nodes' runs skip, which do not read the whole cluster.
fn warn_of_whole_cluster(app: &mut App, remote: &Remote, facts: &ClusterFacts) {
    let side = settings::cluster_side(&remote.layered, None, facts);
    let input = Input { side: Some(&side), cluster: Some(facts), ..Input::default() };
    for check in preflight::run(Scope::Cluster, &input, &[]).checks {
        let failed = matches!(check.status, CheckStatus::Warn | CheckStatus::Fail);
        if failed && preflight::OF_WHOLE_CLUSTER.contains(&check.id.as_str()) {
            app.warn(preflight::known_id(&check.id), check.detail);
        }
    }
}

/// What every node gets. `address`: the API server's, as the nodes reach it.
fn rollout(request: &Request, address: &str, calico_namespace: &str, config: &Layered) -> Result<Rollout> {
    let address = address.trim_end_matches('/');
    let host = address.strip_prefix("https://").filter(|host| !host.is_empty() && !host.contains(['/', ' ']));
    if host.is_none() {
        let what = format!("`{address}` is no address of an API server that a node can use");
        return Err(Fault::new(Exit::Usage, "Usage", what)
            .hint("give it with --api-server https://HOST:PORT; not its ClusterIP, which a host does not reach before kube-proxy runs")
            .into());
    }
    Ok(Rollout {
        namespace: request.namespace.clone(),
        calico_namespace: calico_namespace.to_owned(),
        image: request.image.clone(),
        api_server: address.to_owned(),
        config: yaml(&config.document_for_others()?)?,
        max_unavailable: request.max_unavailable,
        vni: config.config.spec.calico_network.vxlan.vxlan_vni,
        former_vni: None,
        etcd: config.config.spec.datastore.kind == Some(DatastoreType::Etcdv3),
    })
}

/// The roles of the pods, and their bindings.
fn rights(rollout: &Rollout) -> String {
    fleet_manifest(&rollout.calico_namespace, &rollout.namespace)
}

fn yaml(value: &Value) -> Result<String> {
    serde_yaml::to_string(value).context("write it as YAML")
}

fn told(app: &mut App, cluster: &Cluster) {
    cluster.take_events().iter().for_each(|event| app.event(event));
}

/// Asks the API server what it would do with each object of the change, and shows it; nothing is changed.
///
/// # Errors
/// The first refusal; when the server cannot be asked.
pub(crate) fn try_out(prepared: &Prepared, app: &mut App) -> Result<Vec<TriedObject>> {
    let Prepared { plan, rollout, waves, cluster, .. } = prepared;
    let mut refusal = None;
    let mut objects = preamble(rollout, &rights(rollout));
    objects.extend((1..).zip(waves).map(|(order, wave)| daemon_set(rollout, wave, order)));
    let replaced = plan.replaced.iter().map(|name| {
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": rollout.namespace } })
    });
    let deleted = objects.len();
    objects.extend(replaced);
    let mut tried = Vec::new();
    for (order, object) in objects.iter().enumerate() {
        let (action, said) =
            if order < deleted { cluster.try_object(object)? } else { cluster.try_delete_wave(object)? };
        let why = said.as_ref().map(|said| said.root_cause().to_string());
        tried.push(TriedObject::new(object, action, why));
        refusal = refusal.or(said.filter(|_| action == TriedAction::Refused));
    }
    told(app, cluster);
    for TriedObject { kind, namespace, name, action, why } in &tried {
        let place = namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        let why = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        app.reporter.tell(&format!("  {:<9} {kind} {place}{name}{why}", action.word()));
    }
    app.record().tried.clone_from(&tried);
    refusal.map_or(Ok(tried), Err)
}

/// A wave that begins would no longer be paused.
///
/// # Errors
/// `FleetPaused`.
pub(crate) fn check_not_paused(prepared: &Prepared) -> Result<()> {
    match prepared.sets.iter().any(DaemonSet::is_paused) {
        true => Err(paused("the rollout is paused".to_owned()).into()),
        false => Ok(()),
    }
}

fn paused(what: String) -> Fault {
    Fault::new(Exit::Failed, "FleetPaused", what)
        .hint("continue with: calicoctl-win fleet resume\nthen run the same fleet apply again")
}

/// Makes the change, wave after wave, and waits for the end.
///
/// # Errors
/// `FleetStopped` when a wave has as many failed nodes as may be out; `FleetPaused`; `FleetTimeout`; what the server
/// says.
pub(crate) fn apply(prepared: &Prepared, limit: Duration, app: &mut App) -> Result<FleetStatus> {
    let Prepared { plan, rollout, waves, cluster, sets } = prepared;
    app.record().looks = "fleet status";
    app.phase("objects", |_| {
        let objects = preamble(rollout, &rights(rollout));
        for object in &objects {
            cluster.apply_object(object)?;
        }
        for name in &plan.replaced {
            cluster.delete_wave(&rollout.namespace, name)?;
        }
        let known = |wave: &Wave| sets.iter().any(|set| set.wave() == wave.name);
        for (order, wave) in (1..).zip(waves).filter(|(_, wave)| !known(wave)) {
            cluster.apply_object(&idle(rollout, wave, order))?;
        }
        Ok(((), format!("{} applied", count(objects.len() + waves.len(), "object"))))
    })?;
    let deadline = Instant::now() + limit;
    let mut watch = cluster.watch_fleet(&rollout.namespace, false);
    let revision = rollout.revision();
    let has_begun = sets.iter().any(|set| set.revision() == revision);
    // Only then the controller limits how many nodes are out at once.
    until(app, (cluster, &mut watch), (deadline, has_begun), "every node to have a pod of its wave", |fleet| {
        let is_placed = |wave: &Wave| fleet.sets.iter().any(|set| set.wave() == wave.name && set.is_placed());
        let placed = waves.iter().filter(|wave| is_placed(wave)).count();
        let left = format!(": {placed} of {} done", count(waves.len(), "wave"));
        Ok((placed < waves.len()).then(|| (left, String::new())))
    })?;
    for (order, wave) in (1..).zip(waves) {
        app.phase("wave", |app| {
            let what = format!("wave {} ({order} of {})", wave.name, waves.len());
            let mut begun = Begun::default();
            until(app, (cluster, &mut watch), (deadline, true), &what, |fleet| {
                if begun.generation.is_none() {
                    begun.generation = Some(cluster.apply_object(&daemon_set(rollout, wave, order))?);
                }
                left(fleet, &rollout.namespace, &wave.name, &mut begun)
            })?;
            Ok(((), format!("{what} is done")))
        })?;
    }
    look(cluster, &rollout.namespace, app)
}

/// What is known of a wave that was begun.
#[derive(Default)]
struct Begun {
    /// Of its DaemonSet, as it was applied.
    generation: Option<i64>,
    is_seen: bool,
}

/// What is left of a wave, as text, and how long it takes; none if it is done.
fn left(fleet: &Fleet, namespace: &str, wave: &str, begun: &mut Begun) -> Result<Option<(String, String)>> {
    let Some(set) = fleet.sets.iter().find(|set| set.wave() == wave) else {
        if !begun.is_seen {
            return Ok(Some(Default::default()));
        }
        let what = format!("the DaemonSet of wave {wave} was deleted");
        return Err(Fault::new(Exit::Failed, "FleetStopped", what)
            .hint("look who deleted it; then apply again")
            .into());
    };
    begun.is_seen = true;
    // The watch may be behind what was applied.
    if begun.generation.is_none_or(|applied| set.generation() < applied) {
        return Ok(Some(Default::default()));
    }
    let status = fleet::status(namespace, fleet, Timestamp::now());
    let Some(found) = status.waves.iter().find(|one| one.name == wave) else { return Ok(Some(Default::default())) };
    match found.state {
        WaveState::Done => Ok(None),
        WaveState::Paused => {
            let what = format!("the rollout was paused in wave {wave}: {} of {} are done", found.done, found.nodes);
            Err(paused(what).into())
        }
        WaveState::Stopped => {
            let first = status.failures.first().map_or_else(String::new, |one| format!(": {}: {}", one.id, one.what));
            let what = format!(
                "wave {wave} stopped: {} of {} failed, and {} may be out at once{first}",
                found.failed,
                count(found.nodes, "node"),
                found.max_unavailable
            );
            let hint = "see all causes with: calicoctl-win fleet status\nreturn with: calicoctl-win fleet rollback";
            Err(Fault::new(Exit::Failed, "FleetStopped", what).hint(hint).into())
        }
        WaveState::Rolling | WaveState::Waiting => {
            let eta =
                found.eta_seconds.map_or_else(String::new, |seconds| format!(", about {} left", minutes(seconds)));
            let failed = if found.failed == 0 { String::new() } else { format!(", {} failed", found.failed) };
            Ok(Some((format!(": {} of {} done{failed}", found.done, found.nodes), eta)))
        }
    }
}

/// Waits until nothing is left, which `left` says. Each change of that is a line, as of `kubectl rollout status`: who
/// has no terminal sees no bar. `has_begun`: a wave, which continues without this process.
fn until(
    app: &mut App,
    (cluster, watch): (&Cluster, &mut FleetWatch),
    (deadline, has_begun): (Instant, bool),
    what: &str,
    mut left: impl FnMut(&Fleet) -> Result<Option<(String, String)>>,
) -> Result<()> {
    let begun = Instant::now();
    let mut shown = String::new();
    loop {
        let found = watch.fleet().map_or_else(|| Ok(Some(Default::default())), &mut left);
        told(app, cluster);
        let (rest, eta) = match found {
            Ok(None) => return Ok(()),
            Ok(Some(left)) => left,
            // The API server may restart meanwhile; the rollout waits for it.
            Err(error) if may_pass(&error) => (format!(": {error:#}"), String::new()),
            Err(error) => return Err(error),
        };
        let lost = watch.lost().map_or_else(String::new, |(_, why)| format!("; {}", why.what));
        let now = format!("{rest}{lost}");
        if now != shown && !now.is_empty() {
            app.reporter.tell(&format!("{:<7} {:<15} {what}{rest}{eta}{lost}", "[WAIT]", "fleet"));
            shown = now;
        }
        check_access(watch)?;
        if Instant::now() >= deadline {
            let fault = Fault::new(Exit::Failed, "FleetTimeout", format!("the time is up: {what}"));
            let how = match has_begun {
                true => "the wave that has begun continues without this command; the same fleet apply begins the next",
                false => "no wave has begun: the same fleet apply continues",
            };
            return Err(fault.hint(format!("{how}\nlook with: calicoctl-win fleet status")).into());
        }
        let what = format!("{what}{rest}{eta}{lost}");
        app.event(&Event::Waiting { what, elapsed: begun.elapsed(), limit: deadline - begun });
        watch.wait(LOOK_EVERY.min(deadline - Instant::now()));
    }
}

/// # Errors
/// When the API server refuses what it allowed before, and not only because it has just started.
fn check_access(watch: &FleetWatch) -> Result<()> {
    match watch.lost() {
        Some((time, why)) if why.exit == Exit::ClusterAccessDenied && time > REFUSED_FOR => Err(why.clone().into()),
        _ => Ok(()),
    }
}

/// Shows how far the rollout in a namespace is, each time that it has changed, and at least so often.
///
/// # Errors
/// `FleetAbsent`; when the cluster cannot be read, or no longer.
pub(crate) fn watch(
    cluster: &Cluster,
    namespace: &str,
    app: &mut App,
    mut show: impl FnMut(&FleetStatus, Option<String>, &mut App),
) -> Result<Infallible> {
    show(&look(cluster, namespace, app)?, None, app);
    let mut watch = cluster.watch_fleet(namespace, true);
    loop {
        watch.wait(LOOK_EVERY);
        told(app, cluster);
        check_access(&watch)?;
        let Some(fleet) = watch.fleet() else { continue };
        let lost = watch.lost().map(|(time, why)| format!("as it was {} s ago: {}", time.as_secs(), why.what));
        show(&judged(namespace, fleet, app), lost, app);
    }
}

/// How far the rollout in a namespace is.
///
/// # Errors
/// `FleetAbsent`; when the cluster cannot be read.
pub(crate) fn look(cluster: &Cluster, namespace: &str, app: &mut App) -> Result<FleetStatus> {
    let mut fleet = cluster.fleet(namespace)?;
    if fleet.sets.is_empty() {
        return Err(absent(namespace).into());
    }
    if fleet.sets.iter().any(|set| set.vni().is_some()) {
        // Who may see the rollout need not have a right to Calico's resources.
        match cluster.felix_vni() {
            Ok(vni) => fleet.felix_vni = Some(vni),
            Err(error) => {
                app.event(&Event::Log { message: format!("the VNI of FelixConfiguration is not known: {error:#}") });
            }
        }
    }
    told(app, cluster);
    Ok(judged(namespace, &fleet, app))
}

fn judged(namespace: &str, fleet: &Fleet, app: &App) -> FleetStatus {
    let mut status = fleet::status(namespace, fleet, Timestamp::now());
    status.next.iter_mut().for_each(|next| *next = app.global.repeated_in(next));
    status
}

fn absent(namespace: &str) -> Fault {
    let what = format!("there is no rollout in namespace {namespace}");
    Fault::new(Exit::NotFound, "FleetAbsent", what)
        .hint("begin one with: calicoctl-win fleet apply -c FILE --image IMAGE\nor name its namespace with --namespace")
}

/// The DaemonSets of a rollout.
///
/// # Errors
/// `FleetAbsent` if there is none.
pub(crate) fn sets(cluster: &Cluster, namespace: &str) -> Result<Vec<DaemonSet>> {
    let sets = cluster.fleet_sets(namespace)?;
    if sets.is_empty() {
        return Err(absent(namespace).into());
    }
    Ok(sets)
}

/// The waves that `pause`, or its opposite, would change.
pub(crate) fn other(sets: &[DaemonSet], pause: bool) -> impl Iterator<Item = &DaemonSet> {
    sets.iter().filter(move |set| set.is_paused() != pause)
}

/// Lets no further node begin, or lets them begin again. Returns how many waves were changed.
///
/// # Errors
/// What the server says.
pub(crate) fn pause(cluster: &Cluster, namespace: &str, sets: &[DaemonSet], pause: bool) -> Result<usize> {
    let mut changed = 0;
    for set in other(sets, pause) {
        match pause {
            true => cluster.pause_wave(namespace, set)?,
            false => cluster.resume_wave(namespace, set)?,
        }
        changed += 1;
    }
    Ok(changed)
}

/// The waves of the last rollout, the last one first.
pub(crate) fn begun(sets: &[DaemonSet]) -> impl Iterator<Item = &DaemonSet> {
    let last = sets.first().map(DaemonSet::revision);
    sets.iter().rev().filter(move |set| !set.is_idle() && Some(set.revision()) == last)
}

/// Returns every wave of the last rollout to what it installed before, the last one first. Returns their names.
///
/// # Errors
/// `FleetNoEarlier` if no wave has an earlier revision; what the server says.
pub(crate) fn rollback(cluster: &Cluster, namespace: &str, sets: &[DaemonSet]) -> Result<Vec<String>> {
    let mut undone = Vec::new();
    for set in begun(sets) {
        if cluster.undo_wave(namespace, set)? {
            undone.push(set.wave().to_owned());
        }
    }
    if undone.is_empty() {
        let what = "no wave has installed anything else before";
        return Err(Fault::new(Exit::NotFound, "FleetNoEarlier", what)
            .hint("apply another config with: calicoctl-win fleet apply -c FILE --image IMAGE\nor remove Calico from a node with a Job (docs/hostprocess.md)")
            .into());
    }
    Ok(undone)
}

/// The objects of a rollout as YAML, for those who apply them themselves: every wave, those after `through` idle; all
/// idle without it.
///
/// # Errors
/// `Usage` when there is no such wave, or the config cannot be written.
pub(crate) fn render(request: &Request, through: Option<&str>, app: &mut App) -> Result<String> {
    let layered = Sources::named(app, &Source::default()).read(None, &Standing::default())?;
    let namespace = settings::run(&layered, None).connection.calico_namespace;
    let Some(address) = request.api_server.as_deref() else {
        return Err(Fault::new(Exit::Usage, "Usage", "the nodes need the address of the API server")
            .hint("give it with --api-server https://HOST:PORT")
            .into());
    };
    let rollout = rollout(request, address, namespace.as_deref().unwrap_or("calico-system"), &layered)?;
    let waves = waves(&request.wishes, &[]);
    let begun = match through {
        None => 0,
        Some(name) => match waves.iter().position(|wave| wave.name == name) {
            Some(at) => at + 1,
            None => {
                let names: Vec<&str> = waves.iter().map(|wave| wave.name.as_str()).collect();
                return Err(Fault::new(Exit::Usage, "Usage", format!("--through: there is no wave `{name}`"))
                    .hint(format!("the waves are: {}", names.join(", ")))
                    .into());
            }
        },
    };
    let mut objects = preamble(&rollout, &rights(&rollout));
    for (order, wave) in (1..).zip(&waves) {
        let make = if order <= begun { daemon_set } else { idle };
        objects.push(make(&rollout, wave, order));
    }
    let documents: Vec<String> = objects.iter().map(yaml).collect::<Result<_>>()?;
    Ok(documents.join("---\n"))
}
