//! Reads policies, and the pods that they select, page by page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::Cluster;
use super::api::{Api, path};
use super::errors::Failure;
use super::etcd_kv;
use super::facts::{POLICIES, calico_group, calico_release, served_groups, served_versions};
use super::fleet::windows_nodes;
use crate::calico::etcd::EtcdFiles;
use crate::policy::{Calico, Kind, Linter, Listed, Pod, Policy};
use crate::report::event::Event;

/// How Calico's controllers name the copies of Kubernetes' policies that they keep in etcd (libcalico-go,
/// lib/backend/k8s/conversion).
const COPIES: &str = "knp.default.";

/// The API group of Kubernetes' administrators.
pub(super) const ADMINS: &str = "policy.networking.k8s.io";

/// `(kind, version, plural)` in that group.
pub(super) const OF_ADMINS: [(Kind, &str, &str); 3] = [
    (Kind::AdminNetworkPolicy, "v1alpha1", "adminnetworkpolicies"),
    (Kind::BaselineAdminNetworkPolicy, "v1alpha1", "baselineadminnetworkpolicies"),
    (Kind::ClusterNetworkPolicy, "v1alpha2", "clusternetworkpolicies"),
];

/// An object of which only the metadata is read.
#[derive(Deserialize)]
struct Object {
    metadata: Meta,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    labels: Option<BTreeMap<String, String>>,
}

impl Cluster {
    /// Reads every policy of Calico's API group, of Kubernetes and of its administrators, then the pods. A user who may not read nodes,
    /// namespaces or pods gets the findings without their numbers. `in_etcd`: Calico's own were read from etcd.
    ///
    /// # Errors
    /// When the policies cannot be read; when the cluster does not answer.
    pub fn lint(&self, linter: &mut Linter, in_etcd: bool) -> Result<()> {
        self.runtime.block_on(async {
            read_policies(&self.api, linter, in_etcd).await?;
            match read_pods(&self.api, linter).await {
                Err(failure) if failure.status == Some(403) => {
                    let message = format!("{}: the findings have no numbers of pods", failure.fault.what);
                    self.api.report(Event::Warning { id: "PodsNotCounted", message });
                    linter.without_pods();
                    Ok(())
                }
                other => Ok(other?),
            }
        })
    }
}

/// Reads Calico's policies from the members of an etcd, and skips the copies of Kubernetes' own.
///
/// # Errors
/// Faults `EtcdForbidden`, `EtcdUnreadable`, and when a value is no policy.
pub fn lint_etcd(members: &[String], files: Option<&EtcdFiles>, limit: Duration, linter: &mut Linter) -> Result<()> {
    let found = etcd_kv::read(members, files, limit, &POLICIES)?;
    for (kind, entries) in [Kind::GlobalNetworkPolicy, Kind::NetworkPolicy].into_iter().zip(found) {
        for entry in entries {
            let key = String::from_utf8_lossy(&entry.key);
            if key.rsplit('/').next().is_some_and(|name| name.starts_with(COPIES)) {
                continue;
            }
            let policy = serde_json::from_slice(&entry.value).with_context(|| format!("read {key} in etcd"))?;
            linter.policy(Policy::of_list(kind, policy), None);
        }
    }
    Ok(())
}

async fn read_policies(api: &Arc<Api>, linter: &mut Linter, in_etcd: bool) -> Result<(), Failure> {
    let (v1, v3) = if in_etcd { (false, false) } else { served_groups(api).await? };
    let (group, version) = calico_group(v1, v3).parts();
    let calico = |plural| path(["apis", group, version, plural]);
    let mut lists = vec![(Kind::KubernetesNetworkPolicy, path(["apis", "networking.k8s.io", "v1", "networkpolicies"]))];
    if v1 || v3 {
        lists.push((Kind::NetworkPolicy, calico("networkpolicies")));
        lists.push((Kind::GlobalNetworkPolicy, calico("globalnetworkpolicies")));
    } else if !in_etcd {
        let message = "the cluster serves no Calico resources, so only Kubernetes' own policies were read";
        api.report(Event::Warning { id: "CalicoResourcesNotServed", message: message.to_owned() });
    }
    for (kind, list) in lists {
        read_list(api, kind, &list, linter).await?;
    }
    let versions = served_versions(api, ADMINS).await?;
    if versions.is_empty() {
        return Ok(());
    }
    if in_etcd {
        linter.read_by(Calico::InEtcd);
    } else if (v1 || v3)
        && let Some(release) = calico_release(api, calico_group(v1, v3)).await?
        && let Ok(release) = release.parse()
    {
        linter.read_by(Calico::Release(release));
    }
    for (kind, version, plural) in OF_ADMINS {
        if !versions.iter().any(|served| served == version) {
            continue;
        }
        match read_list(api, kind, &path(["apis", ADMINS, version, plural]), linter).await {
            // Each kind has a definition of its own.
            Err(failure) if failure.is_not_served() => {}
            other => other?,
        }
    }
    Ok(())
}

async fn read_list(api: &Api, kind: Kind, list: &str, linter: &mut Linter) -> Result<(), Failure> {
    let mark = linter.mark();
    api.each_page::<Listed, _>(
        list,
        linter,
        |linter| linter.back_to(&mark),
        |linter, page| page.into_iter().for_each(|item| linter.policy(Policy::of_list(kind, item), None)),
    )
    .await
}

async fn read_pods(api: &Api, linter: &mut Linter) -> Result<(), Failure> {
    for node in windows_nodes(api).await? {
        linter.windows_node(node.name);
    }
    for namespace in api.list_metadata::<Object>("/api/v1/namespaces").await? {
        linter.namespace(&namespace.metadata.name, &namespace.metadata.labels.unwrap_or_default());
    }
    api.each_page::<Pod, _>("/api/v1/pods", linter, Linter::forget_pods, |linter, page| {
        page.iter().for_each(|pod| linter.pod(pod));
    })
    .await
}
