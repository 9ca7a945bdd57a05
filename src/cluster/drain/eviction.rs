//! One eviction request, and the meaning of its response. Statuses and bodies are those of a real API server
//! (`tests/fixtures/kube-recordings.jsonl`).

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::DrainOptions;
use super::pods::Pod;
use crate::cluster::api::{Api, Call, path};
use crate::cluster::errors::{Failure, Trouble};

/// The result of asking to evict a pod.
#[derive(Debug)]
pub(super) enum Answered {
    /// It is ending, or will be with its namespace.
    Ending,
    /// It does not exist any more.
    Gone,
    /// A budget does not allow it now: the reason, and when to ask again.
    Budget(String, Option<Duration>),
    /// Two budgets: it will never be allowed.
    Never(String),
    /// The server is overloaded, and may say when to retry.
    Overload(Option<Duration>),
    /// An error that may be temporary.
    Failing(Failure),
    /// An error that is not.
    Failed(Failure),
}

/// Asks to evict exactly this pod: another of the same name is kept.
pub(super) async fn ask(api: &Api, pod: &Pod, options: &DrainOptions) -> Answered {
    let call = match call(pod, options) {
        Ok(call) => call,
        Err(failure) => return Answered::Failed(failure),
    };
    match api.attempt(&call).await {
        Ok(_) => Answered::Ending,
        Err(trouble) => match meaning(&trouble) {
            Some(answered) => answered,
            // The name exists, but may be another pod's.
            None if matches!(&trouble, Trouble::Answer(answer) if answer.status == 409) => replaced(api, pod).await,
            None => judged(api, &call, trouble),
        },
    }
}

fn call(pod: &Pod, options: &DrainOptions) -> Result<Call, Failure> {
    let (namespace, name) = (pod.metadata.namespace.as_str(), pod.metadata.name.as_str());
    let mut delete = json!({ "preconditions": { "uid": pod.metadata.uid } });
    if let Some(seconds) = options.grace_period {
        delete["gracePeriodSeconds"] = seconds.into();
    }
    let pod = ["api", "v1", "namespaces", namespace, "pods", name];
    if options.disable_eviction {
        return Call::write(Method::DELETE, &path(pod), "application/json", &delete);
    }
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": name, "namespace": namespace },
        "deleteOptions": delete,
    });
    Call::write(Method::POST, &path(pod.into_iter().chain(["eviction"])), "application/json", &eviction)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    causes: Vec<Cause>,
    retry_after_seconds: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

/// The meaning of responses that only an eviction has; none for all others.
fn meaning(trouble: &Trouble) -> Option<Answered> {
    let Trouble::Answer(answer) = trouble else { return None };
    let status: Status = serde_json::from_slice(&answer.body).unwrap_or_default();
    let cause = |reason: &str| status.details.causes.iter().find(|cause| cause.reason == reason);
    match answer.status {
        404 if status.reason == "NotFound" && !status.details.name.is_empty() => Some(Answered::Gone),
        429 => {
            let hint = answer.retry_after().or(status.details.retry_after_seconds.map(Duration::from_secs));
            Some(match cause("DisruptionBudget") {
                Some(cause) => Answered::Budget(cause.message.clone(), hint),
                None => Answered::Overload(hint),
            })
        }
        500 if status.message.contains("more than one PodDisruptionBudget") => {
            Some(Answered::Never(status.message.trim_end_matches('.').to_owned()))
        }
        403 if cause("NamespaceTerminating").is_some() => Some(Answered::Ending),
        _ => None,
    }
}

fn judged(api: &Api, call: &Call, trouble: Trouble) -> Answered {
    let passes = match &trouble {
        Trouble::Answer(answer) => matches!(answer.status, 409 | 500 | 502 | 503 | 504),
        Trouble::Transport(_) | Trouble::Slow(_) => true,
        Trouble::Login(_) => false,
    };
    let failure = api.failure(call, trouble);
    if passes || api.is_refused_for_now(&failure) { Answered::Failing(failure) } else { Answered::Failed(failure) }
}

/// Whether another pod has the name now.
async fn replaced(api: &Api, pod: &Pod) -> Answered {
    let (namespace, name) = (pod.metadata.namespace.as_str(), pod.metadata.name.as_str());
    match api.get::<Value>(&path(["api", "v1", "namespaces", namespace, "pods", name])).await {
        Ok(Some(now)) if now["metadata"]["uid"] == pod.metadata.uid.as_str() => Answered::Overload(None),
        Ok(_) => Answered::Gone,
        Err(failure) => Answered::Failing(failure),
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::testing::{Reply, Server};

    use super::*;

    const EVICTION: &str = "POST /api/v1/namespaces/demo/pods/web-1/eviction";
    const POD: &str = "/api/v1/namespaces/demo/pods/web-1";

    /// Asks to evict `demo/web-1`, from a server with a real response.
    fn asked(server: &Server, options: &DrainOptions) -> String {
        let pod = json!({"metadata": {"name": "web-1", "namespace": "demo", "uid": "17"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let cluster = server.connect();
        match cluster.runtime.block_on(ask(&cluster.api, &pod, options)) {
            Answered::Budget(said, hint) => format!("budget: {said} {hint:?}"),
            Answered::Never(said) => format!("never: {said}"),
            Answered::Overload(hint) => format!("overload {hint:?}"),
            Answered::Failing(failure) => format!("failing {}", failure.fault.id),
            Answered::Failed(failure) => format!("failed {}", failure.fault.id),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    #[test]
    fn a_refusal_by_a_budget_differs_from_overload_and_from_never() {
        let table: Vec<String> = [
            "evict-201",
            "evict-429",
            "evict-429-retry-after",
            "overload-429",
            "evict-two-budgets-500",
            "evict-limited-403",
            "evict-name-mismatch-400",
            "path-404",
            "aggregated-503",
        ]
        .iter()
        .map(|id| {
            let server = Server::start();
            server.on(EVICTION, [Reply::recorded(id)]);
            format!("{id}: {}", asked(&server, &DrainOptions::default()))
        })
        .collect();
        insta::assert_snapshot!(table.join("\n"), @"
        evict-201: ending
        evict-429: budget: The disruption budget guarded needs 1 healthy pods and has 1 currently None
        evict-429-retry-after: budget: The disruption budget guarded is still being processed by the server. Some(10s)
        overload-429: overload Some(1s)
        evict-two-budgets-500: never: This pod has more than one PodDisruptionBudget, which the eviction subresource does not support
        evict-limited-403: failed ClusterForbidden
        evict-name-mismatch-400: failed ClusterRejected
        path-404: failed ApiNotServed
        aggregated-503: failing ClusterUnavailable
        ");
    }

    #[test]
    fn a_pod_counts_as_gone_if_its_name_is_free_or_anothers() {
        let server = Server::start();
        server.on(EVICTION, [Reply::recorded("evict-404")]);
        assert_eq!(asked(&server, &DrainOptions::default()), "gone");
        server.on(EVICTION, [Reply::recorded("evict-uid-409")]);
        let pod = |uid: &str| Reply::json(200, &json!({"metadata": {"name": "web-1", "uid": uid}}));
        server.on(&format!("GET {POD}"), [pod("18")]);
        assert_eq!(asked(&server, &DrainOptions::default()), "gone");
        server.on(&format!("GET {POD}"), [pod("17")]);
        assert_eq!(asked(&server, &DrainOptions::default()), "overload None", "it is asked again");
    }

    #[test]
    fn the_pod_is_named_by_its_uid_and_deleted_if_eviction_is_disabled() {
        let server = Server::start();
        server
            .on(EVICTION, [Reply::recorded("evict-201")])
            .on(&format!("DELETE {POD}"), [Reply::json(200, &json!({}))]);
        let options = DrainOptions { grace_period: Some(5), ..DrainOptions::default() };
        asked(&server, &options);
        asked(&server, &DrainOptions { disable_eviction: true, ..options });
        let sent: Vec<Value> = server.seen().iter().map(|seen| serde_json::from_str(&seen.body).unwrap()).collect();
        let delete = json!({"preconditions": {"uid": "17"}, "gracePeriodSeconds": 5});
        assert_eq!(sent[0]["apiVersion"], "policy/v1");
        assert_eq!((&sent[0]["deleteOptions"], &sent[1]), (&delete, &delete));
    }
}
