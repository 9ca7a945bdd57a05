//! New credentials for a node: `credentials rotate`, and the renewal by CalicoNode's agent.

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::Ending;
use super::app::{App, Opened, run_id};
use super::engine::{engine, installed};
use super::lease;
use super::login::{self, Wanted};
use super::options::Source;
use super::prepare::cluster_facts;
use super::standing::start_from;
use crate::apply::journal::{AtBoot, Terms};
use crate::apply::lock::{Holder, Lock};
use crate::apply::node_object::NodeObject;
use crate::apply::standing::Standing;
use crate::apply::{converge, renewal};
use crate::calico::kubeconfig;
use crate::cluster::Cluster;
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::Node;
use crate::paths::{self, ETCD_TLS};
use crate::report::document::RunResult;
use crate::settings::{self, Datastore};
use crate::values::WinPath;

/// The name of the verb, for lock and journal.
const ROTATE: &str = "credentials rotate";

/// Replaces the node's credentials. This makes no generation: the target is the same.
///
/// # Errors
/// `NotInstalled`; when the cluster issues none; and as [`engine`].
pub(crate) fn rotate(app: &mut App) -> Result<Ending> {
    let Opened { mut node, lock: _lock, standing } = app.node_for(ROTATE)?;
    let standing = standing?;
    renewal::may_begin(&standing)?;
    let receipt = installed(&standing)?;
    start_from(app, &*node, &standing, &[], &Source::default())?;
    let layered = app.config(&*node, &Source::default())?;
    let facts = app.measure(&*node, &layered, &standing)?;
    let run = settings::run(&layered, Some(&facts));
    let cluster = app.cluster(&*node, &run.connection)?;
    let asked = cluster_facts(&cluster, &layered, &run, &facts);
    for event in cluster.take_events() {
        app.event(&event);
    }
    let resolved = settings::resolve(&layered, &facts, Some(&asked?))?;
    let settings = &resolved.settings;
    let has = |path: &WinPath| receipt.target.world.contains_key(&Id::File(path.clone()));

    let mut new: Vec<(WinPath, Vec<u8>)> = Vec::new();
    let own = paths::kubeconfig(&settings.calico.root);
    let kubernetes = &settings.kubernetes;
    if app.global.dry_run {
        return app.would(format!("give {} new credentials", settings.node_name));
    }
    let mut secret = None;
    if let Some(wanted) = Wanted::of(&resolved.run, kubernetes).filter(|_| has(&own)) {
        let issued = app.phase("credentials", |app| {
            let issued = login::issue(app, Some(&*node), &cluster, &wanted)?;
            Ok((issued, format!("a new login of namespace {}", kubernetes.calico_namespace)))
        })?;
        secret = issued.credentials.token().and_then(|token| kubeconfig::claims(token.reveal()).secret);
        new.push((own, kubeconfig::render(&issued.credentials, &kubernetes.calico_namespace)?));
    }
    let etcd = login::etcd(app, &*node, &cluster, &resolved)?;
    if let (Datastore::Etcdv3 { tls: Some(tls), .. }, Some(files), true) = (&settings.datastore, &etcd.files, etcd.ours)
    {
        new.push((tls.key_file.clone(), files.key.reveal().into()));
        new.push((tls.cert_file.clone(), files.cert.clone().into()));
        new.push((tls.ca_cert_file.clone(), files.ca_cert.clone().into()));
    }
    let question = format!("Give {} these new credentials?", settings.node_name);
    app.confirm(&question)?;
    let name = settings.node_name.to_string();
    let replace = |app: &mut App, node: &mut dyn Node| {
        let name = app.run.clone();
        // One file of a pair is no login.
        let terms = Terms { at_boot: Some(AtBoot::Finish), ..app.terms(node, None, Some(&run.connection)) };
        engine(app, node, &NodeObject::unknown(), |node, events| {
            renewal::replace(node, &name, ROTATE, terms, &new, events)
        })
    };
    let changed = lease::hold(app, &mut *node, &name, replace)?.changed > 0;
    let msg = match (changed, secret) {
        (true, _) => {
            "the node has new credentials; Felix and confd restart with them, pods are not interrupted".to_owned()
        }
        (false, Some(secret)) => format!(
            "nothing to do: the token of secret {secret} is as before; delete the secret, which ends it on every node, then rotate again"
        ),
        (false, None) => format!("nothing to do: {ETCD_TLS} and kubeconfig are as their sources have them"),
    };
    app.reporter.tell(&msg);
    let mut result = RunResult::new(Exit::Ok, changed, msg);
    result.generation = Some(receipt.generation);
    Ending::result(result)
}

/// Renews a token that is due, for the agent: gets a new one with the current one, and writes it to the same file. The
/// cluster is asked before the lock is taken, so that no run waits for a slow cluster.
///
/// # Errors
/// Faults of [`Cluster::renewed`] and [`renewal::replace`]; `Busy` during another run.
pub(crate) fn renew(
    node: &mut dyn Node,
    path: &WinPath,
    connect: &dyn Fn(&str) -> Result<Cluster>,
) -> Result<Option<Timestamp>> {
    let read = |node: &dyn Node| std::fs::read_to_string(node.disk(path)).with_context(|| format!("read {path}"));
    let text = read(node)?;
    let current = kubeconfig::parse(&text)?;
    let renewed = connect(&text)?.renewed(&current)?;
    let bytes = kubeconfig::render(&renewed, &kubeconfig::namespace(&text).unwrap_or_default())?;
    let (run, command) = (run_id(), "token renewal".to_owned());
    let holder =
        Holder { run: run.clone(), command: command.clone(), pid: std::process::id(), since: Timestamp::now() };
    let _lock = Lock::take(node, &holder)?;
    if read(node)? != text {
        let what = format!("{path} was written by another run meanwhile");
        return Err(Fault::new(Exit::Busy, "Busy", what).hint("nothing is to be done: that one counts").into());
    }
    // After a power failure nobody may be there to resume it.
    let boot = Some(node.boot_id()?);
    let terms = Terms { boot, at_boot: Some(AtBoot::Finish), ..Terms::default() };
    let replaced = renewal::replace(node, &run, &command, terms, &[(path.clone(), bytes)], &mut |_| ());
    if replaced.is_err() && Standing::load(node)?.journal.is_some_and(|journal| journal.header.run == run) {
        converge::undo_with(node, &NodeObject::unknown(), &mut |_| ())?;
    }
    replaced?;
    Ok(renewed.expires)
}
