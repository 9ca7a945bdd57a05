//! What drains of many nodes would do, from one pass over the cluster's pods.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;

use super::super::Cluster;
use super::pods::{Fate, Pod, fate};
use super::{BUDGETS, Budget, DrainOptions, budgets};
use crate::fleet::NodePods;

impl Cluster {
    /// What a drain of each of these nodes would evict, and what blocks it. No more than a page of pods is in memory.
    ///
    /// # Errors
    /// When pods or budgets cannot be read.
    pub fn plan_drains(&self, nodes: &[String], options: &DrainOptions) -> Result<BTreeMap<String, NodePods>> {
        let empty =
            || -> BTreeMap<String, NodePods> { nodes.iter().map(|name| (name.clone(), NodePods::default())).collect() };
        let mut found = empty();
        let now = Timestamp::now();
        self.runtime.block_on(async {
            let budgets: Vec<Budget> = self.api.list(BUDGETS).await?;
            self.api
                .each_page::<Pod, _>(
                    "/api/v1/pods",
                    &mut found,
                    |found| *found = empty(),
                    |found, page| {
                        for pod in page {
                            let Some(node) = found.get_mut(pod.node()) else { continue };
                            match fate(&pod, false, options, now) {
                                Fate::Goes => {
                                    node.evicted += 1;
                                    let never = budgets::never(&pod, &budgets);
                                    node.blocked.extend(never.map(|why| format!("{pod}: {why}")));
                                }
                                Fate::Refused(why) => node.blocked.push(format!("{pod} {}", why.join(", and "))),
                                Fate::Remains(_) => {}
                            }
                        }
                    },
                )
                .await
        })?;
        Ok(found)
    }
}
