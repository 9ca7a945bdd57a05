//! The drain itself: concurrent evictions, and a watch that reports when a pod is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result};
use jiff::Timestamp;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::budgets::{self, Budget};
use super::eviction::{self, Answered};
use super::pods::Pod;
use super::{BUDGETS, DrainOptions, DrainPlan, ONE_BUDGET, RELAX, Remaining, Survey, pods_path};
use crate::cluster::api::{Api, Form};
use crate::cluster::errors::Failure;
use crate::cluster::watch::{News, follow};
use crate::fault::{Exit, Fault};
use crate::report::event::{Event, Sink};
use crate::values::count;

/// Concurrent evictions. More would only hit the API server's own limits.
const PARALLEL: usize = 8;

/// How long until a pod that a budget blocks is retried, unless the server says so or the budget changes. As in
/// kubectl.
const BUDGET_PAUSE: Duration = Duration::from_secs(5);

/// The pause for an overloaded server that does not give one.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);

/// How long a temporary error is retried.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// How often to check for cancellation, and to report the progress.
const LOOK: Duration = Duration::from_millis(250);
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// What the tasks report.
enum Report {
    Asked(String, Answered),
    Pods(News<Pod>),
    Budgets(News<Budget>),
}

/// A pod that is being evicted.
struct Leaving {
    pod: Pod,
    state: State,
    /// Why the last eviction failed.
    blocked: Option<String>,
    failing: Option<Instant>,
}

enum State {
    Due(Instant),
    /// Not before this time, whatever changes: the server gave it, or failed.
    Held(Instant),
    /// With the number of budget updates at that time.
    Asked(u64),
    Ending(Instant),
}

struct Run<'a> {
    api: Arc<Api>,
    node: &'a str,
    options: &'a DrainOptions,
    leaving: BTreeMap<String, Leaving>,
    budgets: Vec<Budget>,
    /// The number of budget updates.
    counts: u64,
    reports: UnboundedSender<Report>,
    tasks: JoinSet<()>,
    in_flight: usize,
    /// The pods that have left.
    gone: Vec<Pod>,
    total: usize,
    begun: Instant,
    told: Instant,
    /// Since when the pods cannot be watched, and why.
    lost: Option<(Instant, Failure)>,
    plan: DrainPlan,
    events: Sink<'a>,
}

pub(super) async fn run(
    api: &Arc<Api>,
    node: &str,
    options: &DrainOptions,
    survey: Survey,
    stop: &dyn Fn() -> bool,
    events: Sink<'_>,
) -> Result<DrainPlan> {
    let (pods_at, budgets_at) = (survey.pods_at.clone(), survey.budgets_at.clone());
    let (mut run, received) = Run::new(api, node, options, survey, events);
    let tell = run.reports.clone();
    let listen = move |news| drop(tell.send(Report::Pods(news)));
    run.tasks.spawn(follow(Arc::clone(api), pods_path(node), Form::Whole, Some(pods_at), listen));
    if let Some(at) = budgets_at {
        let tell = run.reports.clone();
        let listen = move |news| drop(tell.send(Report::Budgets(news)));
        run.tasks.spawn(follow(Arc::clone(api), BUDGETS.into(), Form::Whole, Some(at), listen));
    }
    run.finish(received, stop).await
}

impl<'a> Run<'a> {
    fn new(
        api: &Arc<Api>,
        node: &'a str,
        options: &'a DrainOptions,
        survey: Survey,
        events: Sink<'a>,
    ) -> (Self, UnboundedReceiver<Report>) {
        let (reports, received) = unbounded_channel();
        let now = Instant::now();
        let due = |pod| Leaving { pod, state: State::Due(now), blocked: None, failing: None };
        let evicted = survey.pods.iter().map(ToString::to_string).collect();
        let total = survey.pods.len();
        let run = Self {
            api: Arc::clone(api),
            node,
            options,
            leaving: survey.pods.into_iter().map(|pod| (pod.metadata.uid.clone(), due(pod))).collect(),
            budgets: survey.budgets,
            counts: 0,
            reports,
            tasks: JoinSet::new(),
            in_flight: 0,
            gone: Vec::new(),
            total,
            begun: now,
            told: now,
            lost: None,
            plan: DrainPlan { evicted, remaining: survey.remaining },
            events,
        };
        (run, received)
    }

    async fn finish(mut self, mut received: UnboundedReceiver<Report>, stop: &dyn Fn() -> bool) -> Result<DrainPlan> {
        let deadline = self.options.timeout.map(|limit| self.begun + limit);
        while !self.leaving.is_empty() {
            if stop() {
                return Err(self.cancelled().into());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.timed_out());
            }
            self.ask_due();
            let wake = deadline.map_or(self.next(), |deadline| deadline.min(self.next()));
            match timeout_at(wake, received.recv()).await {
                Ok(Some(report)) => self.handle(report)?,
                Ok(None) | Err(_) => self.look()?,
            }
        }
        Ok(self.plan)
    }

    /// The latest time of the next action.
    fn next(&self) -> Instant {
        let look = Instant::now() + LOOK;
        if self.in_flight >= PARALLEL {
            return look;
        }
        let due = self.leaving.values().filter_map(|leaving| match leaving.state {
            State::Due(at) | State::Held(at) => Some(at),
            State::Asked(_) | State::Ending(_) => None,
        });
        due.min().map_or(look, |due| due.min(look))
    }

    fn ask_due(&mut self) {
        let now = Instant::now();
        for (uid, leaving) in &mut self.leaving {
            if self.in_flight >= PARALLEL {
                return;
            }
            if !matches!(leaving.state, State::Due(at) | State::Held(at) if at <= now) {
                continue;
            }
            leaving.state = State::Asked(self.counts);
            self.in_flight += 1;
            let (api, reports) = (Arc::clone(&self.api), self.reports.clone());
            let (uid, pod, options) = (uid.clone(), leaving.pod.clone(), self.options.clone());
            self.tasks.spawn(async move {
                let answered = eviction::ask(&api, &pod, &options).await;
                // After the drain there is no receiver.
                drop(reports.send(Report::Asked(uid, answered)));
            });
        }
    }

    fn handle(&mut self, report: Report) -> Result<()> {
        match report {
            Report::Asked(uid, answered) => {
                self.in_flight -= 1;
                self.answered(&uid, answered)?;
            }
            Report::Pods(News::Lost(failure)) => {
                let since = self.lost.take().map_or_else(Instant::now, |(since, _)| since);
                self.lost = Some((since, failure));
            }
            Report::Pods(news) => {
                self.lost = None;
                self.pods_changed(news);
            }
            Report::Budgets(news) => self.budgets_changed(news),
        }
        self.look()
    }

    fn answered(&mut self, uid: &str, answered: Answered) -> Result<()> {
        // The watch may have reported it first.
        let Some(leaving) = self.leaving.get_mut(uid) else { return Ok(()) };
        let pod = leaving.pod.to_string();
        let now = Instant::now();
        if !matches!(answered, Answered::Failing(_)) {
            leaving.failing = None;
        }
        let (why, pause, held) = match answered {
            Answered::Gone => {
                self.leaves(uid);
                return Ok(());
            }
            Answered::Ending => {
                leaving.state = State::Ending(now);
                leaving.blocked = None;
                (self.events)(Event::PodEvicted { pod });
                return Ok(());
            }
            Answered::Never(why) => return Err(self.never(format!("{pod}: {why}"), ONE_BUDGET)),
            Answered::Failed(failure) => return Err(failure.into()),
            Answered::Budget(said, hint) => {
                // A budget counts an evicted pod again only when its replacement exists.
                let asked = budgets::of(&leaving.pod, &self.budgets);
                let speaks_for = |gone: &Pod| asked.iter().any(|budget| budget.selects(gone));
                if !self.gone.iter().any(speaks_for)
                    && let Some(why) = budgets::never(&leaving.pod, &self.budgets)
                {
                    let fix = if asked.len() > 1 { ONE_BUDGET } else { RELAX };
                    return Err(self.never(format!("{pod}: {why}"), fix));
                }
                // The budget changed while the request was pending: that update does not come again.
                let news = matches!(leaving.state, State::Asked(received) if received < self.counts);
                let open = news && !asked.is_empty() && asked.iter().all(|budget| budget.allows_now());
                // If they differ, the copy of the budget is older than the response.
                let known = asked.first().filter(|budget| !budget.allows_now());
                let summary = known.map(|budget| budget.summary());
                let pause = hint.unwrap_or(if open { Duration::ZERO } else { BUDGET_PAUSE });
                (summary.unwrap_or(said), pause, hint.is_some())
            }
            Answered::Overload(hint) => {
                // Not all at the same time again.
                let pause = hint.unwrap_or(OVERLOAD_PAUSE).mul_f64(1.0 + fastrand::f64() / 2.0);
                ("the API server is overloaded".to_owned(), pause, true)
            }
            Answered::Failing(failure) => {
                let since = *leaving.failing.get_or_insert(now);
                if now.duration_since(since) > RETRY_FOR {
                    return Err(failure.into());
                }
                // With what the server says: a webhook that fails is named only there.
                (
                    format!("{:#}", Error::from(failure)),
                    (now.duration_since(since) / 2).clamp(OVERLOAD_PAUSE, BUDGET_PAUSE),
                    true,
                )
            }
        };
        leaving.state = if held { State::Held(now + pause) } else { State::Due(now + pause) };
        if leaving.blocked.as_ref() != Some(&why) {
            leaving.blocked = Some(why.clone());
            (self.events)(Event::PodBlocked { pod, why, retry: pause });
        }
        Ok(())
    }

    /// Updates of pods from the watch: a pod is gone when its uid is.
    fn pods_changed(&mut self, news: News<Pod>) {
        let now = Timestamp::now();
        match news {
            News::There(pod) => self.is_there(pod, now),
            News::Gone(pod) => self.leaves(&pod.metadata.uid),
            News::All(pods) => {
                let there = |uid: &String| pods.iter().any(|pod| pod.metadata.uid == *uid);
                let gone: Vec<String> = self.leaving.keys().filter(|uid| !there(uid)).cloned().collect();
                gone.iter().for_each(|uid| self.leaves(uid));
                pods.into_iter().for_each(|pod| self.is_there(pod, now));
            }
            News::Lost(_) | News::Found => {}
        }
    }

    fn is_there(&mut self, pod: Pod, now: Timestamp) {
        let Some(leaving) = self.leaving.get_mut(&pod.metadata.uid) else { return };
        let given_up = pod.is_overdue(self.options, now);
        leaving.pod = pod;
        if given_up {
            self.skip_overdue();
        }
    }

    /// Skips pods whose deletion is overdue.
    fn skip_overdue(&mut self) {
        let now = Timestamp::now();
        let late: Vec<String> = self
            .leaving
            .iter()
            .filter(|(_, leaving)| leaving.pod.is_overdue(self.options, now))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in late {
            if let Some(leaving) = self.leaving.remove(&uid) {
                let pod = leaving.pod.to_string();
                self.plan.evicted.retain(|evicted| *evicted != pod);
                self.plan.remaining.push(Remaining { pod, why: "is terminating and no longer awaited" });
                self.total -= 1;
            }
        }
    }

    fn leaves(&mut self, uid: &str) {
        if let Some(leaving) = self.leaving.remove(uid) {
            let pod = leaving.pod.to_string();
            self.gone.push(leaving.pod);
            (self.events)(Event::PodGone { pod, gone: self.gone.len(), total: self.total });
        }
    }

    /// Updates of budgets from the watch: pods of a budget that now allows evictions are due at once.
    fn budgets_changed(&mut self, news: News<Budget>) {
        let same =
            |a: &Budget, b: &Budget| a.metadata.name == b.metadata.name && a.metadata.namespace == b.metadata.namespace;
        match news {
            News::There(budget) => {
                self.budgets.retain(|known| !same(known, &budget));
                self.budgets.push(budget);
            }
            News::Gone(budget) => self.budgets.retain(|known| !same(known, &budget)),
            News::All(all) => self.budgets = all,
            // The server checks them anyway.
            News::Lost(_) | News::Found => return,
        }
        self.counts += 1;
        let now = Instant::now();
        for leaving in self.leaving.values_mut().filter(|leaving| leaving.blocked.is_some()) {
            if let State::Due(at) = &mut leaving.state
                && budgets::of(&leaving.pod, &self.budgets).iter().all(|budget| budget.allows_now())
            {
                *at = now.min(*at);
            }
        }
    }

    fn look(&mut self) -> Result<()> {
        if self.options.skip_wait_for_delete.is_some() {
            self.skip_overdue();
        }
        if let Some((_, failure)) = self.lost.take_if(|(since, _)| since.elapsed() > RETRY_FOR) {
            return Err(failure.into());
        }
        if self.told.elapsed() >= REPORT_EVERY {
            self.told = Instant::now();
            let blocked = |leaving: &Leaving| Some(format!("{}: {}", leaving.pod, leaving.blocked.as_ref()?));
            let ending = |leaving: &Leaving| matches!(leaving.state, State::Ending(_)).then(|| leaving.state());
            (self.events)(Event::DrainProgress {
                gone: self.gone.len(),
                total: self.total,
                blocked: self.leaving.values().filter_map(blocked).collect(),
                ending: self.leaving.values().filter_map(ending).collect(),
                elapsed: self.begun.elapsed(),
                limit: self.options.timeout,
            });
        }
        Ok(())
    }

    fn timed_out(&self) -> Error {
        let limit = self.options.timeout.unwrap_or_default();
        let what = format!(
            "{} of {} still on node {} after {} s",
            self.leaving.len(),
            count(self.total, "pod"),
            self.node,
            limit.as_secs_f64()
        );
        let reasons: Vec<String> = self.leaving.values().map(Leaving::state).collect();
        Fault::new(Exit::DrainBlocked, "DrainTimeout", what)
            .hint(self.hint("fix what blocks these pods, or allow more time with --drain-timeout"))
            .because(Error::msg(reasons.join("\n")))
    }

    fn never(&self, why: String, fix: &str) -> Error {
        let what = format!("1 pod of node {} cannot be evicted", self.node);
        Fault::new(Exit::DrainBlocked, "DrainNeverAllowed", what)
            .hint(self.hint(fix))
            .retryable(false)
            .because(Error::msg(why))
    }

    fn cancelled(&self) -> Fault {
        Fault::new(Exit::Cancelled, "RunCancelled", format!("the drain of node {} was cancelled", self.node))
            .hint(self.hint("run the command again later"))
    }

    /// What to do, and where the pods are that were evicted.
    fn hint(&self, fix: &str) -> String {
        match self.gone.is_empty() {
            true => fix.to_owned(),
            false => format!("{fix}; pods evicted so far run on other nodes"),
        }
    }
}

impl Leaving {
    /// What blocks it, for people.
    fn state(&self) -> String {
        let pod = &self.pod;
        if let Some(why) = &self.blocked {
            return format!("{pod}: {why}");
        }
        let since = match self.state {
            State::Ending(since) => format!("terminating for {:.0} s", since.elapsed().as_secs_f64()),
            State::Due(_) | State::Held(_) | State::Asked(_) => "eviction was requested, without a response".into(),
        };
        match pod.metadata.finalizers.as_slice() {
            [] => format!("{pod}: {since}; the kubelet has not reported its containers as stopped"),
            finalizers => format!("{pod}: {since}; blocked by the finalizers {}", finalizers.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::testing::Server;

    #[test]
    fn a_pod_that_an_overloaded_server_refused_waits_as_long_as_the_server_asked() {
        let server = Server::start();
        let cluster = server.connect();
        let pod =
            serde_json::from_value(json!({"metadata": {"name": "web-1", "namespace": "demo", "uid": "u"}})).unwrap();
        let survey = Survey { pods: vec![pod], ..Survey::default() };
        let hour = Duration::from_hours(1);
        cluster.runtime.block_on(async {
            let (options, mut events) = (DrainOptions::default(), |_| ());
            let (mut run, _received) = Run::new(&cluster.api, "win-a1", &options, survey, &mut events);
            run.answered("u", Answered::Overload(Some(hour))).unwrap();
            // A change of any budget does not concern it.
            run.budgets_changed(News::All(Vec::new()));
            run.ask_due();
            assert_eq!(run.in_flight, 0);
            let State::Held(until) = run.leaving["u"].state else { panic!("it waits") };
            let wait = until.duration_since(run.begun);
            assert!((hour..hour * 3 / 2 + Duration::from_mins(1)).contains(&wait), "{wait:?}");
        });
    }
}
