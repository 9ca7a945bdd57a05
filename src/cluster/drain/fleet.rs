//! What drains of many nodes would do, from one pass over the cluster's pods.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;

use super::super::Cluster;
use super::super::api::Api;
use super::super::errors::Failure;
use super::pods::{Fate, Pod, fate};
use super::services::{Service, Services};
use super::{BUDGETS, Budget, DrainOptions, budgets};
use crate::fleet::NodePods;
use crate::report::event::Event;

const SERVICES: &str = "/api/v1/services";

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
    /// When pods, budgets or Services cannot be read; a missing right to the Services is only warned of.
    pub fn plan_drains(&self, nodes: &[String], options: &DrainOptions) -> Result<BTreeMap<String, NodePods>> {
        let empty =
            || -> BTreeMap<String, NodePods> { nodes.iter().map(|name| (name.clone(), NodePods::default())).collect() };
        let now = Timestamp::now();
        let mut found = self.runtime.block_on(async {
            let budgets: Vec<Budget> = self.api.list(BUDGETS).await?;
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
        Ok(found.nodes)
    }
}

async fn services(api: &Api) -> Result<Option<Services>, Failure> {
    match api.retry_refused(async || api.list::<Service>(SERVICES).await).await {
        Ok(services) => Ok(Some(Services::new(services))),
        Err(failure) if failure.status == Some(403) && !api.is_refused_for_now(&failure) => {
            api.report(Event::Warning {
                id: "ServicesUnread",
                message: "Services cannot be read with these rights, so it is not known which of them lose pods".into(),
            });
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}
