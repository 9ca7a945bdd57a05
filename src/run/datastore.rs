//! Checks whether Calico's datastore answers, asked as the node's services do.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::app::App;
use super::login;
use crate::agent;
use crate::calico::agent_config::AgentConfig;
use crate::calico::etcd::EtcdFiles;
use crate::cluster::{etcd, etcd_blocks_of};
use crate::fault::{Exit, Fault};
use crate::item::Id;
use crate::node::Node;
use crate::plan::Step;
use crate::plan::order::SERVICES;
use crate::settings::{Datastore, EtcdTls, Limits};
use crate::values::WinPath;

/// How long one member, or the API server, may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Refuses to stop services while the datastore does not answer: once restarted they would wait for it.
///
/// # Errors
/// Fault `DatastoreAway` if these steps start or stop one of our services, and it does not answer.
pub(crate) fn must_answer(app: &mut App, node: &dyn Node, steps: &[Step]) -> Result<()> {
    let of_ours =
        |step: &Step| matches!(step, Step::Put { id: Id::Running(name), .. } if SERVICES.contains(&name.as_str()));
    if !steps.iter().any(of_ours) {
        return Ok(());
    }
    away(app, node, steps, None).map_or(Ok(()), |error| {
        let what = "Calico's datastore cannot be used, so nothing was changed: Calico's services would only wait for it";
        let hint = "fix what the cause names; Calico's node startup tries again by itself, and `calicoctl-win status` shows it";
        Err(error.context(Fault::new(Exit::ClusterUnreachable, "DatastoreAway", what).hint(hint)))
    })
}

/// Returns why the datastore cannot be used, if the reason is not drift on this node. None if the steps write how the
/// services reach it: then they are the fix. `answer`: what the API server said when it was asked for the Node with the
/// services' kubeconfig; a server that hangs is not waited for twice.
pub(crate) fn away(
    app: &mut App,
    node: &dyn Node,
    steps: &[Step],
    answer: Option<Result<()>>,
) -> Option<anyhow::Error> {
    let config = agent::read_config(node).ok()?;
    let datastore = config.datastore();
    let mut files: Vec<WinPath> = vec![WinPath::known(AgentConfig::PATH)];
    match &datastore {
        Datastore::Kubernetes => files.extend(config.kubeconfig()),
        Datastore::Etcdv3 { tls, .. } => {
            files.extend(tls.iter().flat_map(|tls| [&tls.key_file, &tls.cert_file, &tls.ca_cert_file]).cloned());
        }
    }
    let changed = |step: &Step| match step {
        Step::Put { id: Id::File(path), before, after } => before != after && files.contains(path),
        _ => false,
    };
    if steps.iter().any(changed) {
        return None;
    }
    let is_unusable = |exit| matches!(exit, Exit::ClusterUnreachable | Exit::ClusterAccessDenied);
    let unusable = |error: &anyhow::Error| {
        Fault::of(error).is_some_and(|fault| is_unusable(fault.exit) || fault.id == "EtcdCertificateInvalid")
    };
    let answer = answer.filter(|_| datastore == Datastore::Kubernetes);
    answer.unwrap_or_else(|| ask(app, node, &config, &datastore)).err().filter(unusable)
}

/// Refuses a release line whose Felix may not read what it needs: a run would wait for it without success. What cannot
/// be asked does not matter here: without an API server the machine is changed as well.
///
/// # Errors
/// Fault `NodeRights`.
pub(crate) fn may_run(app: &mut App, node: &dyn Node, line: (u64, u64)) -> Result<()> {
    let asked = || -> Result<()> {
        let config = agent::read_config(node)?;
        match (config.datastore(), app.connector.as_services(node, &config, Limits::within(LIMIT))?) {
            (Datastore::Kubernetes, Some(cluster)) => cluster.check_release_of_services(line),
            _ => Ok(()),
        }
    };
    asked().or_else(|error| if Fault::id_of(&error) == "NodeRights" { Err(error) } else { Ok(()) })
}

/// Asks the datastore, as the node's services do.
///
/// # Errors
/// When it does not answer, or refuses.
pub(crate) fn ask(app: &mut App, node: &dyn Node, config: &AgentConfig, datastore: &Datastore) -> Result<()> {
    match datastore {
        Datastore::Etcdv3 { endpoints, tls } => members(app, node, endpoints, tls.as_ref()).map(drop),
        Datastore::Kubernetes => {
            let cluster = app.connector.as_services(node, config, Limits::within(LIMIT))?;
            let cluster = cluster.context("find the services' kubeconfig")?;
            cluster.node(config.node_name.as_str()).map(drop)
        }
    }
}

/// The members of etcd that answer, and the client's files.
fn members(
    app: &mut App,
    node: &dyn Node,
    endpoints: &[String],
    tls: Option<&EtcdTls>,
) -> Result<(Vec<String>, Option<EtcdFiles>)> {
    let files = tls.map(|tls| login::etcd_files_at(node, tls)).transpose()?;
    if let Some(files) = &files {
        etcd::check(files, node.now())?;
    }
    Ok((login::try_members(app, endpoints, files.as_ref(), LIMIT)?, files))
}

/// Returns the blocks that Calico's IPAM has confirmed for this node, if they are in etcd.
///
/// # Errors
/// When no member answers, or refuses.
pub(crate) fn blocks_in_etcd(app: &mut App, node: &dyn Node, config: &AgentConfig) -> Result<Option<Vec<String>>> {
    let Datastore::Etcdv3 { endpoints, tls } = config.datastore() else { return Ok(None) };
    let (members, files) = members(app, node, &endpoints, tls.as_ref())?;
    etcd_blocks_of(config.node_name.as_str(), &members, files.as_ref(), LIMIT).map(Some)
}
