//! Drains a node like `kubectl drain`, with its flags. Unlike there, everything that blocks the drain is detected before
//! the node is cordoned, and reported at once.

mod budgets;
mod eviction;
mod fleet;
mod pods;
mod run;
mod services;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::budgets::Budget;
use self::pods::{Fate, Pod, fate};
use super::Cluster;
use super::api::{Api, Form, path, query};
use super::errors::Failure;
use super::node::absent;
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::values::count;

const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

/// What may be lost, and how long it may take. The names are those of `kubectl drain`'s flags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainOptions {
    pub ignore_daemonsets: bool,
    pub delete_emptydir_data: bool,
    /// Also pods without a controller, and those with an annotation against eviction.
    pub force: bool,
    /// Seconds for each pod to end; none means each pod's own.
    pub grace_period: Option<u32>,
    /// Time limit for the whole drain; none means no limit.
    pub timeout: Option<Duration>,
    /// A label selector; other pods are kept.
    pub pod_selector: Option<String>,
    /// Delete instead of evicting: budgets do not apply.
    pub disable_eviction: bool,
    /// A pod whose deletion is overdue by more than this is not awaited.
    pub skip_wait_for_delete: Option<Duration>,
}

/// What a drain would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// The pods that are evicted, for example `namespace/name`.
    pub evicted: Vec<String>,
    /// The pods that are not evicted, with the reason.
    pub remaining: Vec<Remaining>,
}

impl DrainPlan {
    /// What was done, when it is done: `evicted 2 pods, 1 remains`.
    pub fn done(&self) -> String {
        let evicted = format!("evicted {}", count(self.evicted.len(), "pod"));
        match self.remaining.len() {
            0 => evicted,
            1 => format!("{evicted}, 1 remains"),
            more => format!("{evicted}, {more} remain"),
        }
    }
}

/// A pod that a drain does not evict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remaining {
    /// For example `namespace/name`.
    pub pod: String,
    pub why: &'static str,
}

impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pod, self.why)
    }
}

/// Everything about a node's pods, read before one is evicted.
#[derive(Default)]
struct Survey {
    pods: Vec<Pod>,
    remaining: Vec<Remaining>,
    refused: Vec<String>,
    budgets: Vec<Budget>,
    /// Where watches of pods and of budgets continue from; none if budgets may not be read.
    pods_at: String,
    budgets_at: Option<String>,
    warnings: Vec<Event>,
}

impl Cluster {
    /// What a drain of this node would do; changes nothing.
    ///
    /// # Errors
    /// `DRAIN_BLOCKED` with everything that blocks it: pods that need a flag (`DrainRefused`), budgets that will never
    /// allow it (`DrainNeverAllowed`). When the cluster cannot be asked.
    pub fn plan_drain(&self, node: &str, options: &DrainOptions, events: Sink) -> Result<DrainPlan> {
        // A missing Node has no pods, but that does not mean that it is drained.
        self.node(node)?.ok_or_else(|| absent(node))?;
        let survey = self.runtime.block_on(self.api.retry_refused(async || survey(&self.api, node, options).await))?;
        survey.warnings.iter().for_each(|warning| events(warning.clone()));
        verdict(node, &survey, options)?;
        Ok(DrainPlan { evicted: survey.pods.iter().map(ToString::to_string).collect(), remaining: survey.remaining })
    }

    /// Evicts the pods of a cordoned node, and returns when they are gone. If this fails, the caller that cordoned the
    /// node uncordons it; evicted pods then run on other nodes.
    ///
    /// `stop` is polled to cancel.
    ///
    /// # Errors
    /// Those of [`Cluster::plan_drain`]; `DrainTimeout` naming each remaining pod and why; `RunCancelled`.
    pub fn drain(
        &self,
        node: &str,
        options: &DrainOptions,
        stop: &dyn Fn() -> bool,
        events: Sink,
    ) -> Result<DrainPlan> {
        self.runtime.block_on(async {
            let survey = self.api.retry_refused(async || survey(&self.api, node, options).await).await?;
            verdict(node, &survey, options)?;
            run::run(&self.api, node, options, survey, stop, events).await
        })
    }
}

fn pods_path(node: &str) -> String {
    query("/api/v1/pods", &[("fieldSelector", &format!("spec.nodeName={node}"))])
}

async fn survey(api: &Api, node: &str, options: &DrainOptions) -> Result<Survey, Failure> {
    let mut list = pods_path(node);
    if let Some(selector) = &options.pod_selector {
        list = query(&list, &[("labelSelector", selector)]);
    }
    let (found, pods_at): (Vec<Pod>, String) = api.list_from(&list, Form::Whole).await?;
    let (mut warnings, mut budgets, mut budgets_at) = (Vec::new(), Vec::new(), None);
    if !options.disable_eviction {
        match api.list_from(BUDGETS, Form::Whole).await {
            Ok((list, at)) => (budgets, budgets_at) = (list, Some(at)),
            // The server checks budgets anyway; only its answer cannot be predicted.
            Err(failure) if failure.status == Some(403) && !api.is_refused_for_now(&failure) => {
                warnings.push(Event::Warning {
                    id: "BudgetsUnread",
                    message:
                        "disruption budgets cannot be read with these rights, so a drain that can never finish is \
                          only detected by its time limit"
                            .into(),
                });
            }
            Err(failure) => return Err(failure),
        }
    }
    let orphans = orphans(api, &found).await?;
    let (mut pods, mut remaining, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let now = Timestamp::now();
    for pod in found {
        let gone = |(namespace, name): (&str, &str)| orphans.contains(&(namespace.to_owned(), name.to_owned()));
        let orphaned = pod.daemon_set().is_some_and(gone);
        match fate(&pod, orphaned, options, now) {
            Fate::Goes => pods.push(pod),
            Fate::Remains(why) => remaining.push(Remaining { pod: pod.to_string(), why }),
            Fate::Refused(why) => refused.push(format!("{pod} {}", why.join(", and "))),
        }
    }
    Ok(Survey { pods, remaining, refused, budgets, pods_at, budgets_at, warnings })
}

/// The DaemonSets (namespace and name) that own pods here and no longer exist.
async fn orphans(api: &Api, pods: &[Pod]) -> Result<BTreeSet<(String, String)>, Failure> {
    let owned = pods.iter().filter_map(Pod::daemon_set);
    let mut sets: BTreeSet<_> = owned.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect();
    for set in sets.clone() {
        let at = path(["apis", "apps", "v1", "namespaces", &set.0, "daemonsets", &set.1]);
        if api.get::<Value>(&at).await?.is_some() {
            sets.remove(&set);
        }
    }
    Ok(sets)
}

/// The fix for a budget that never allows an eviction.
const RELAX: &str = "scale the application up or change its budget (kubectl get pdb -A)";

/// The fix for a pod with several budgets: the API server answers its eviction with 500, whatever they allow
/// (Kubernetes' pkg/registry/core/pod/storage/eviction.go).
const ONE_BUDGET: &str =
    "change the selectors of the budgets, or delete budgets, until each pod has only one (kubectl get pdb -A)";

const RELAX_OR_ONE_BUDGET: &str = "where a pod has several budgets, change their selectors until it has only one; else scale the application up or change its budget (kubectl get pdb -A)";

/// Refuses, with all reasons at once.
fn verdict(node: &str, survey: &Survey, options: &DrainOptions) -> Result<()> {
    let mut reasons = survey.refused.clone();
    let mut id = "DrainRefused";
    let mut fix = "pass the flags that you agree to, or move these pods yourself";
    if !options.disable_eviction {
        let never = |pod: &Pod| budgets::never(pod, &survey.budgets).map(|why| format!("{pod}: {why}"));
        let never: Vec<String> = survey.pods.iter().filter_map(never).collect();
        if reasons.is_empty() && !never.is_empty() {
            id = "DrainNeverAllowed";
            let several = survey.pods.iter().filter(|pod| budgets::of(pod, &survey.budgets).len() > 1).count();
            fix = match several {
                0 => RELAX,
                _ if several == never.len() => ONE_BUDGET,
                _ => RELAX_OR_ONE_BUDGET,
            };
        }
        reasons.extend(never);
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let what = format!("{} of node {node} cannot be evicted", count(reasons.len(), "pod"));
    Err(Fault::new(Exit::DrainBlocked, id, what)
        .hint(format!("{fix}; nothing was cordoned or evicted"))
        .retryable(false)
        .because(anyhow::Error::msg(reasons.join("\n"))))
}
