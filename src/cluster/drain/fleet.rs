//! What drains of many nodes would do, from one pass over the cluster's pods.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::super::Cluster;
use super::super::api::Api;
use super::super::errors::Failure;
use super::pods::{Fate, Pod, fate};
use super::services::{Service, Services};
use super::{BUDGETS, Budget, DrainOptions, budgets};
use crate::fleet::NodePods;
use crate::report::event::Event;

const SERVICES: &str = "/api/v1/services";

const NO_BUDGETS: &str = "budgets were not read: the kubeconfig's user may not list PodDisruptionBudgets, so it is not \
                          known which pods they keep from being evicted (calicoctl-win explain BudgetsUnread)";

/// What is found in the pods.
struct Found {
    nodes: BTreeMap<String, NodePods>,
    /// None if they may not be read.
    services: Option<Services>,
}

impl Found {
    /// Adds a pod of any node. `fate`: what a drain does with it, if it is on one of the nodes.
    fn add(&mut self, pod: &Pod, fate: impl FnOnce() -> Fate, budgets: &[Budget]) {
        let mut is_evicted = false;
        if let Some(node) = self.nodes.get_mut(pod.node()) {
            match fate() {
                Fate::Goes => {
                    is_evicted = true;
                    node.evicted += 1;
                    node.blocked.extend(budgets::never(pod, budgets).map(|why| format!("{pod}: {why}")));
                }
                Fate::Refused(why) => node.blocked.push(format!("{pod} {}", why.join(", and "))),
                Fate::Remains(_) => {}
            }
        }
        // Also one on another node serves them.
        self.services.iter_mut().for_each(|services| services.add(pod, is_evicted));
    }
}

impl Cluster {
    /// What a drain of each of these nodes would evict, what blocks it, and which Services lose pods by it. No more than
    /// a page of pods is in memory.
    ///
    /// # Errors
    /// When pods, budgets or Services cannot be read. Without the right to the Services or the budgets, the plan is
    /// without them; the second result says so of the budgets.
    pub fn plan_drains(
        &self,
        nodes: &[String],
        options: &DrainOptions,
    ) -> Result<(BTreeMap<String, NodePods>, Vec<String>)> {
        let empty =
            || -> BTreeMap<String, NodePods> { nodes.iter().map(|name| (name.clone(), NodePods::default())).collect() };
        let now = Timestamp::now();
        let mut unread = Vec::new();
        let mut found = self.runtime.block_on(async {
            let budgets = allowed::<Budget>(&self.api, BUDGETS).await?;
            if budgets.is_none() {
                unread.push(NO_BUDGETS.to_owned());
            }
            let budgets = budgets.unwrap_or_default();
            let mut found = Found { nodes: empty(), services: services(&self.api).await? };
            self.api
                .each_page::<Pod, _>(
                    "/api/v1/pods",
                    &mut found,
                    |found| {
                        found.nodes = empty();
                        found.services.iter_mut().for_each(Services::forget_pods);
                    },
                    |found, page| {
                        for pod in page {
                            found.add(&pod, || fate(&pod, false, options, now), &budgets);
                        }
                    },
                )
                .await?;
            Ok::<_, Failure>(found)
        })?;
        if let Some(services) = found.services {
            services.tell(&mut found.nodes);
        }
        Ok((found.nodes, unread))
    }
}

async fn services(api: &Api) -> Result<Option<Services>, Failure> {
    let services = allowed::<Service>(api, SERVICES).await?;
    if services.is_none() {
        api.report(Event::Warning {
            id: "ServicesUnread",
            message: "Services cannot be read with these rights, so it is not known which of them lose pods".into(),
        });
    }
    Ok(services.map(Services::new))
}

/// A list; none without the right to it.
async fn allowed<T: DeserializeOwned>(api: &Api, path: &str) -> Result<Option<Vec<T>>, Failure> {
    match api.retry_refused(async || api.list::<T>(path).await).await {
        Ok(list) => Ok(Some(list)),
        Err(failure) if failure.status == Some(403) && !api.is_refused_for_now(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}
