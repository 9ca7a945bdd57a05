//! New credentials for a node: `credentials rotate`, and the renewal by CalicoNode's agent.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use super::Ending;
use super::app::{App, run_id};
use super::connector::Connector;
use super::context::{Operation, gather};
use super::cordon::After;
use super::engine;
use super::generations::{installed, interrupted};
use super::login::{self, Wanted};
use super::pipeline::{self, Done, Verb, report};
use super::sources::Choice;
use super::verb::{RENEW, ROTATE};
use crate::apply::journal::{AtBoot, Terms};
use crate::apply::lock::{Holder, Lock};
use crate::apply::node_object::NodeObject;
use crate::apply::standing::{Applied, Standing};
use crate::apply::{converge, renewal};
use crate::calico::kubeconfig;
use crate::cluster::Checks;
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::Node;
use crate::paths::{self, ETCD_TLS};
use crate::settings::{Datastore, Limits};
use crate::values::WinPath;

/// Replaces the node's credentials. This makes no generation: the target is the same.
///
/// # Errors
/// `NotInstalled`; when the cluster issues none; and as [`pipeline::run`].
pub(crate) fn rotate(app: &mut App) -> Result<Ending> {
    pipeline::run(&ROTATE, app, &Choice::default(), fetch)
}

/// New credentials.
struct Rotated {
    name: String,
    files: Vec<(WinPath, Vec<u8>)>,
    /// The secret whose token the new login has.
    secret: Option<String>,
}

fn fetch(op: &mut Operation<'_>) -> Result<Rotated> {
    if op.context.standing.journal.is_some() {
        return Err(interrupted("a run was interrupted, and what it wanted the credentials to be is not done yet"));
    }
    let receipt = installed(&op.context.standing)?;
    let known = gather(op.app, op.context, op.node, false, Checks::None)?.or_unread()?;
    known.cluster?;
    let resolved = known.resolved?;
    let (settings, cluster, node) = (&resolved.settings, op.context.cluster(op.node)?, &*op.node);
    let mut rotated = Rotated { name: settings.node_name.to_string(), files: Vec::new(), secret: None };
    if op.app.global.is_dry_run() {
        return Ok(rotated);
    }
    let kubernetes = &settings.kubernetes;
    let own = paths::kubeconfig(&settings.calico.root);
    let has_own = receipt.target.world.contains_key(&Id::File(own.clone()));
    if let Some(wanted) = Wanted::of(&resolved.run, kubernetes).filter(|_| has_own) {
        let issued = op.app.phase("credentials", |app| {
            let issued = login::issue(app, Some(node), cluster, &wanted)?;
            Ok((issued, format!("a new login of namespace {}", kubernetes.calico_namespace)))
        })?;
        rotated.secret = issued.credentials.token().and_then(|token| kubeconfig::claims(token.reveal()).secret);
        rotated.files.push((own, kubeconfig::render(&issued.credentials, &kubernetes.calico_namespace)?));
    }
    let etcd = known.etcd?;
    if let (Datastore::Etcdv3 { tls: Some(tls), .. }, Some(files), true) = (&settings.datastore, etcd.files, etcd.ours)
    {
        rotated.files.push((tls.key_file.clone(), files.key.reveal().into()));
        rotated.files.push((tls.cert_file.clone(), files.cert.into()));
        rotated.files.push((tls.ca_cert_file.clone(), files.ca_cert.into()));
    }
    Ok(rotated)
}

impl Verb for Rotated {
    fn node_name(&self) -> &str {
        &self.name
    }

    fn would(&mut self, op: &mut Operation<'_>) -> Result<Ending> {
        op.app.would(format!("give {} new credentials", self.name))
    }

    fn ask(&self, op: &mut Operation<'_>) -> Result<()> {
        op.app.confirm("the node", &format!("Give {} these new credentials?", self.name), None)
    }

    fn make(&mut self, op: &mut Operation<'_>) -> Result<Applied> {
        let (run, standing, object) = (op.app.run.clone(), &op.context.standing, NodeObject::unknown());
        // One file of a pair is no login.
        let terms = Terms { at_boot: Some(AtBoot::Finish), ..op.context.terms(op.app, op.node, None) };
        engine::run(op, &object, |node, events| {
            renewal::replace(node, standing, (&run, ROTATE.command), terms, &self.files, events)
        })
    }

    fn after(&self) -> After {
        After::Leave
    }

    fn finish(&mut self, op: &mut Operation<'_>, applied: Applied) -> Result<Ending> {
        let msg = match (applied.changed > 0, &self.secret) {
            (true, _) => {
                "the node has new credentials; Felix and confd restart with them, pods are not interrupted".to_owned()
            }
            (false, Some(secret)) => format!(
                "nothing to do: the token of secret {secret} is as before; delete the secret, which ends it on every node, then rotate again"
            ),
            (false, None) => format!("nothing to do: {ETCD_TLS} and kubeconfig are as their sources have them"),
        };
        op.app.reporter.tell(&msg);
        let generation = op.context.standing.receipt().map(|receipt| receipt.generation);
        report(op, Done { generation, ..Done::new(&applied, msg, Vec::new()) })
    }
}

/// How long the API server may take for one answer when a token is renewed: the agent does nothing else meanwhile, and
/// there is a third of the token's lifetime to try again.
pub(crate) const RENEWAL_LIMIT: Duration = Duration::from_secs(10);

/// Renews a token that is due, for the agent: gets a new one with the current one, and writes it to the same file. The
/// cluster is asked before the lock is taken, so that no run waits for a slow cluster.
///
/// # Errors
/// Faults of [`crate::cluster::Cluster::renewed`] and [`renewal::replace`]; `Busy` during another run.
pub(crate) fn renew(node: &mut dyn Node, path: &WinPath, connector: &Connector) -> Result<Option<Timestamp>> {
    let read = |node: &dyn Node| std::fs::read_to_string(node.disk(path)).with_context(|| format!("read {path}"));
    let text = read(node)?;
    let current = kubeconfig::parse(&text)?;
    let cluster = connector.connect(&text, std::path::Path::new("."), None, Limits::within(RENEWAL_LIMIT))?;
    let renewed = cluster.renewed(&current)?;
    let bytes = kubeconfig::render(&renewed, &kubeconfig::namespace(&text).unwrap_or_default())?;
    let (run, command) = (run_id(), RENEW.command.to_owned());
    let holder = Holder::of(&run, &command, Timestamp::now());
    let _lock = Lock::take(node, &holder, Duration::ZERO, &mut |_| ())?;
    if read(node)? != text {
        let what = format!("{path} was written by another run meanwhile");
        return Err(Fault::new(Exit::Busy, "Busy", what).hint("nothing needs to be done: that one counts").into());
    }
    let standing = Standing::load(node)?;
    renewal::may_begin(&standing)?;
    let standing = renewal::finish_interrupted(node, standing, &mut |_| ())?;
    // After a power failure nobody may be there to resume it.
    let boot = Some(node.boot_id()?);
    let terms = Terms { boot, at_boot: Some(AtBoot::Finish), ..Terms::default() };
    let files = [(path.clone(), bytes)];
    let replaced = renewal::replace(node, &standing, (&run, &command), terms, &files, &mut |_| ());
    if replaced.is_err() {
        let standing = Standing::load(node)?;
        if standing.journal.as_ref().is_some_and(|journal| journal.header.run == run) {
            converge::undo(node, &standing, &NodeObject::unknown(), &mut |_| ())?;
        }
    }
    replaced?;
    Ok(renewed.expires)
}
