//! Moving the pods off a node, as `kubectl drain` does it, with its flags. Unlike there, everything
//! that stands in the way is found before the node is cordoned, and told at once.

mod budgets;
mod eviction;
mod pods;
mod run;

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
use super::api::{Api, path, query};
use super::errors::Failure;
use super::node::absent;
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};

const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

/// What may be lost, and how long it may take. The names are those of `kubectl drain`'s flags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainOptions {
    pub ignore_daemonsets: bool,
    pub delete_emptydir_data: bool,
    /// Also pods that nobody makes again, and those that say that they must not be evicted.
    pub force: bool,
    /// Seconds for each pod to end; none leaves it to the pod.
    pub grace_period: Option<u32>,
    /// Longest time for all of it; none waits for ever.
    pub timeout: Option<Duration>,
    /// A label selector; pods that it does not mean stay.
    pub pod_selector: Option<String>,
    /// Delete in place of evicting: budgets are not asked.
    pub disable_eviction: bool,
    /// A pod that should have ended longer ago than this is not waited for.
    pub skip_wait_for_delete: Option<Duration>,
}

/// What a drain would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// The pods that go, as `namespace/name`.
    pub goes: Vec<String>,
    /// The pods that stay, with why.
    pub stays: Vec<Stays>,
}

/// A pod that a drain leaves where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stays {
    /// As `namespace/name`.
    pub pod: String,
    pub why: &'static str,
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pod, self.why)
    }
}

/// Everything that is known of a node's pods before one is touched.
struct Survey {
    pods: Vec<Pod>,
    stays: Vec<Stays>,
    refused: Vec<String>,
    budgets: Vec<Budget>,
    /// Where watches of pods and of budgets go on from; none where budgets may not be read.
    pods_at: String,
    budgets_at: Option<String>,
    warnings: Vec<Event>,
}

impl Cluster {
    /// What a drain of this node would do; asks, and changes nothing.
    ///
    /// # Errors
    /// `DRAIN_BLOCKED` with everything that stands in the way: pods that need a flag
    /// (`DrainRefused`), budgets that will never allow it (`DrainNeverAllowed`). When the cluster
    /// cannot be asked.
    pub fn plan_drain(&self, node: &str, options: &DrainOptions, events: Sink) -> Result<DrainPlan> {
        // A Node that is not there has no pods, which does not make it drained.
        self.node(node)?.ok_or_else(|| absent(node))?;
        let survey = self.runtime.block_on(self.api.patiently(async || survey(&self.api, node, options).await))?;
        survey.warnings.iter().for_each(|warning| events(warning.clone()));
        verdict(node, &survey, options)?;
        Ok(DrainPlan { goes: survey.pods.iter().map(ToString::to_string).collect(), stays: survey.stays })
    }

    /// Moves the pods off a node that is cordoned, and returns when they are gone. Whoever cordoned
    /// the node uncordons it when this fails; pods that went by then are running elsewhere.
    ///
    /// `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// As [`Cluster::plan_drain`]; `DrainTimeout` naming each pod that is left and why;
    /// `RunCancelled`.
    pub fn drain(
        &self,
        node: &str,
        options: &DrainOptions,
        stop: &dyn Fn() -> bool,
        events: Sink,
    ) -> Result<DrainPlan> {
        self.runtime.block_on(async {
            let survey = self.api.patiently(async || survey(&self.api, node, options).await).await?;
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
    let (found, pods_at): (Vec<Pod>, String) = api.list_from(&list).await?;
    let (mut warnings, mut budgets, mut budgets_at) = (Vec::new(), Vec::new(), None);
    if !options.disable_eviction {
        match api.list_from(BUDGETS).await {
            Ok((list, at)) => (budgets, budgets_at) = (list, Some(at)),
            // The server asks them all the same; only we cannot tell beforehand what it will say.
            Err(failure) if failure.status == Some(403) && !api.is_refused_for_now(&failure) => {
                warnings.push(Event::Warning {
                    id: "BudgetsUnread",
                    message: "disruption budgets may not be read with these rights, so a drain that can never end is \
                          only noticed by its time limit"
                        .into(),
                });
            }
            Err(failure) => return Err(failure),
        }
    }
    let orphans = orphans(api, &found).await?;
    let (mut pods, mut stays, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let now = Timestamp::now();
    for pod in found {
        let gone = |(namespace, name): (&str, &str)| orphans.contains(&(namespace.to_owned(), name.to_owned()));
        let orphaned = pod.daemon_set().is_some_and(gone);
        match fate(&pod, orphaned, options, now) {
            Fate::Goes => pods.push(pod),
            Fate::Stays(why) => stays.push(Stays { pod: pod.to_string(), why }),
            Fate::Refused(why) => refused.push(format!("{pod} {}", why.join(", and "))),
        }
    }
    Ok(Survey { pods, stays, refused, budgets, pods_at, budgets_at, warnings })
}

/// The DaemonSets (namespace and name) that own pods here and are gone.
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

/// Says no, with all reasons at once.
fn verdict(node: &str, survey: &Survey, options: &DrainOptions) -> Result<()> {
    let mut reasons = survey.refused.clone();
    let mut id = "DrainRefused";
    let mut hint =
        "give the flags that you agree to, or move these pods away yourself; nothing was cordoned or evicted";
    if !options.disable_eviction {
        let never = |pod: &Pod| budgets::never(pod, &survey.budgets).map(|why| format!("{pod}: {why}"));
        let never: Vec<String> = survey.pods.iter().filter_map(never).collect();
        if reasons.is_empty() && !never.is_empty() {
            id = "DrainNeverAllowed";
            hint =
                "scale the application up or change its budget (kubectl get pdb -A); nothing was cordoned or evicted";
        }
        reasons.extend(never);
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let what = format!("{} of node {node} may not be moved away", count(reasons.len()));
    Err(Fault::new(Exit::DrainBlocked, id, what).hint(hint).because(anyhow::Error::msg(reasons.join("\n"))))
}

fn count(pods: usize) -> String {
    if pods == 1 { "1 pod".into() } else { format!("{pods} pods") }
}
