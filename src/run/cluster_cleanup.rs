//! What an uninstall leaves in the cluster, and removes there. An error here does not undo the removal from the node:
//! it is reported, with the commands to run.

use std::time::Duration;

use super::app::App;
use super::context::Operation;
use crate::apply::journal::Removal;
use crate::apply::receipt::About;
use crate::apply::standing::Standing;
use crate::cluster::{Cluster, Released};

/// How long the cluster may take for this.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the token secret that an install created, `namespace/name`: every node with a token of it loses access
/// when it is deleted.
pub(crate) fn token_secret(standing: &Standing) -> Option<String> {
    let mut abouts = standing.receipts.iter().rev().filter_map(|receipt| receipt.about.as_ref());
    abouts.find_map(|about| Some(format!("{}/{}", about.calico_namespace, about.token_secret.as_ref()?)))
}

/// With etcd only calicoctl may remove what belongs together. Returns its commands.
fn of_etcd(app: &mut App, name: &str) -> [String; 2] {
    let message = format!(
        "Calico's data in etcd still has Node {name} and its IPAM blocks: calicoctl removes them, with etcd's certificates"
    );
    app.warn("ClusterTracesLeft", message);
    [
        format!("calicoctl delete node {name}"),
        format!("calicoctl delete felixconfiguration node.{name} --skip-not-exists"),
    ]
}

/// Deletes on request what Calico wrote for the Node, including its IPAM blocks, and the token secret that this program created.
/// Returns the commands for what remains.
pub(crate) fn clear(op: &mut Operation<'_>, removal: Removal, in_etcd: bool) -> Vec<String> {
    let Operation { app, context, node, .. } = op;
    let abouts: Vec<&About> =
        context.standing.receipts.iter().rev().filter_map(|receipt| receipt.about.as_ref()).collect();
    let mut left = Vec::new();
    let Some(newest) = abouts.first() else {
        if removal.cluster_traces {
            app.warn(
                "ClusterTracesLeft",
                "no receipt says which Node this machine was, so nothing was removed in the cluster",
            );
        }
        return left;
    };
    let (name, namespace) = (newest.node_name.as_str(), &newest.calico_namespace);
    // Also what an earlier uninstall left there, if a receipt mentions it.
    let secret = abouts.iter().find_map(|about| about.token_secret.as_ref());
    let delete = secret.map(|secret| format!("kubectl -n {namespace} delete secret {secret}"));

    let cluster = match context.cluster(*node) {
        Ok(cluster) => cluster.within(LIMIT),
        Err(error) => {
            app.warn("ClusterTracesLeft", format!("the cluster still has what Calico wrote on Node {name}: {error:#}"));
            left.extend(delete);
            return left;
        }
    };
    if removal.cluster_traces {
        if let Err(error) = cluster.clear_calico_annotations(name) {
            app.warn("ClusterTracesLeft", format!("Node {name} keeps Calico's annotations: {error:#}"));
        }
        match in_etcd {
            true => left.extend(of_etcd(app, name)),
            false => blocks(app, &cluster, name),
        }
    } else {
        // A purge removes the records that name the Node.
        let how = match removal.purge {
            true => String::new(),
            false => format!(" To remove it: {}", app.command("uninstall --cluster-traces")),
        };
        app.reporter
            .tell(&format!("Not removed: what Calico has in the cluster for Node {name}, such as IPAM blocks.{how}"));
    }
    if let (Some(secret), Some(delete)) = (secret, delete) {
        let gone = if removal.token_secret { cluster.delete_token_secret(namespace).map(|_| true) } else { Ok(false) };
        match gone {
            Ok(true) => app.reporter.tell(&format!(
                "Removed: the secret {namespace}/{secret} in the cluster; a node that logs in with its token needs: \
                 calicoctl-win credentials rotate"
            )),
            Ok(false) => {
                app.reporter
                    .tell(&format!("Kept: the secret {namespace}/{secret} in the cluster, which other nodes may use."));
                left.push(delete);
            }
            Err(error) => {
                let message = format!("the secret {namespace}/{secret} that install made is still there: {error:#}");
                app.warn("SecretLeft", message);
                left.push(delete);
            }
        }
    }
    for event in cluster.take_events() {
        app.event(&event);
    }
    left
}

fn blocks(app: &mut App, cluster: &Cluster, name: &str) {
    match cluster.release_blocks(name) {
        Ok(blocks) => {
            for Released { cidr, in_use } in blocks {
                if in_use == 0 {
                    app.reporter.tell(&format!("Released: the IPAM block {cidr}."));
                } else {
                    let message = format!("the IPAM block {cidr} stays: {in_use} addresses in it are in use");
                    app.warn("ClusterTracesLeft", message);
                }
            }
        }
        Err(error) => app.warn("ClusterTracesLeft", format!("Node {name} keeps its IPAM blocks: {error:#}")),
    }
}
