//! Makes the settings from config and facts.

use anyhow::Result;

use super::resolver::Resolver;
use super::{
    ClusterSide, FieldOrigin, Provider, Resolved, Settings, calico, cluster_side, cni, datastore, kubernetes_node,
    node_name, platform, run, services,
};
use crate::config::{API_VERSION, KIND, Layered, Origin, fault};
use crate::facts::{ClusterFacts, NodeFacts, RuntimeKind};
use crate::fault::{Exit, Fault};

/// Decides everything. `cluster` is none if the plan is made without one.
///
/// # Errors
/// A [`Fault`]: `ConfigInvalid` with all findings, or `Ipip` if that is the only one.
pub fn resolve(layered: &Layered, node: &NodeFacts, cluster: Option<&ClusterFacts>) -> Result<Resolved> {
    decide(layered, node, cluster).1
}

/// The same, and what concerns the cluster, which is known also if there are no settings.
pub fn decide(layered: &Layered, node: &NodeFacts, cluster: Option<&ClusterFacts>) -> (ClusterSide, Result<Resolved>) {
    #[cfg(test)]
    crate::counted::count("resolve");
    let mut to = Resolver::new(layered);
    to.text("metadata.name");
    let run = run::decide(&mut to, Some(node), cluster);
    let calico = calico::decide(&mut to, run.folders.root.clone());
    let provider = to.auto("kubernetesProvider", || match &node.cloud {
        Some(cloud) => (cloud.provider, Origin::Detected(cloud.evidence.clone())),
        None if cluster.is_some_and(|cluster| cluster.openshift) => {
            (Provider::OpenShift, Origin::Detected("the API group config.openshift.io".into()))
        }
        None => (Provider::None, Origin::Default),
    });
    let node_name = node_name::decide(&mut to, node, cluster, provider);
    let (side, network, ipip) = cluster_side::decide(&mut to, &run, provider, Some(node), cluster);
    let kubernetes = side.kubernetes.clone();
    let settings = Settings {
        provider,
        node_name,
        datastore: datastore::decide(&mut to, &calico.root, &kubernetes.calico_namespace),
        cni: cni::decide(&mut to, &run.folders, network.backend),
        services: services::decide(&mut to, run.folders.logs.clone(), &calico.root),
        platform: platform::decide(&mut to, provider, network.backend),
        runtime: node.runtime.as_ref().map_or(RuntimeKind::Containerd, |runtime| runtime.kind),
        dsr: platform::dsr(&mut to, node),
        kubernetes_node: kubernetes_node::decide(&mut to, node, cluster, &network),
        api_group: cluster.map(|cluster| cluster.api_group),
        calico,
        kubernetes,
        network,
    };
    let resolved = match ipip {
        Some(reason) if to.findings.is_empty() => Err(ipip_fault(&reason).into()),
        ipip => {
            if let Some(reason) = ipip {
                to.wrong("calicoNetwork.backend", reason);
            }
            to.origins.sort_by(|one, other| one.path.cmp(&other.path));
            match to.findings.is_empty() {
                true => Ok(Resolved { settings, run, origins: to.origins, warnings: to.warnings }),
                false => Err(fault(&to.findings)),
            }
        }
    };
    (side, resolved)
}

/// The effective config as a document that gives the same settings again, whatever the cluster answers later.
pub fn to_config_document(resolved: &Resolved) -> String {
    let mut document = serde_json::json!({ "apiVersion": API_VERSION, "kind": KIND });
    for FieldOrigin { path, value, .. } in resolved.origins.iter().filter(|field| !field.value.is_null()) {
        let pointer = path.split('.').fold(&mut document, |here, part| &mut here[part]);
        *pointer = value.clone();
    }
    serde_yaml::to_string(&document).expect("plain values can be written as YAML")
}

fn ipip_fault(reason: &str) -> Fault {
    Fault::new(Exit::PreflightFailed, "Ipip", format!("{reason}: Windows nodes cannot do IP-in-IP"))
        .hint("move the IP pools to VXLAN (ipipMode: Never, vxlanMode: Always), or set spec.calicoNetwork.backend")
}

#[cfg(test)]
mod tests;
