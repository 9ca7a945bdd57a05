//! `pods/eviction`: a deletion that checks the disruption budgets first.

use serde_json::{Value, json};

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::delete::{self, Options};
use super::list::label_selector_matches;
use super::resources::core;
use super::store::{Key, Store, now, text};
use super::table::condition;

/// `POST …/pods/NAME/eviction`.
pub fn evict(call: &mut Call<'_>) -> Outcome {
    let name = call.request.target.name.clone();
    let body: Value = serde_json::from_slice(&call.request.body)
        .map_err(|e| Answer::bad_request(format!("the object provided is unrecognized: {e}")))?;
    if text(&body, "/metadata/name").is_some_and(|n| n != name) {
        return Err(Answer::bad_request("name in URL does not match name in Eviction object"));
    }
    let pod = call.current()?;
    let mut options = Options::read(&body["deleteOptions"]);
    options.dry_run |= call.request.dry_run();
    delete::check_uid(call.resource, &pod, &options)?;

    let terminating = pod["metadata"].get("deletionTimestamp").is_some();
    let counted = matches!(text(&pod, "/status/phase"), Some("Running" | "Unknown") | None);
    if counted && !terminating {
        spend_budget(call.store, &pod, options.dry_run)?;
    }
    if !options.dry_run {
        let key = call.key();
        if !terminating {
            call.store.update(key.clone(), with_disruption_target(pod));
        }
        delete::end(call.store, call.resource, &key, &options);
    }
    Ok(Answer::success(201, None))
}

/// Uses one disruption of the budget that selects the pod, if one does.
fn spend_budget(store: &mut Store, pod: &Value, dry_run: bool) -> Result<(), Answer> {
    let namespace = text(pod, "/metadata/namespace").unwrap_or_default();
    let name = text(pod, "/metadata/name").unwrap_or_default();
    let budgets: Vec<(Key, Value)> = store
        .list(core("poddisruptionbudgets"), Some(namespace))
        .filter(|(_, b)| label_selector_matches(&b["spec"]["selector"], &pod["metadata"]["labels"]))
        .map(|(k, b)| (k.clone(), b.clone()))
        .collect();
    let (key, mut budget) = match <[(Key, Value); 1]>::try_from(budgets) {
        Ok([one]) => one,
        Err(none) if none.is_empty() => return Ok(()),
        Err(_) => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Answer::refusal(500, "", message, None));
        }
    };
    let budget_name = &key.name;
    let count = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let (healthy, desired) = (count("/status/currentHealthy"), count("/status/desiredHealthy"));
    let policy = text(&budget, "/spec/unhealthyPodEvictionPolicy");
    // A pod that is not ready is not counted, so it may be evicted if enough others are, or always.
    if condition(pod, "Ready") != Some("True") && (policy == Some("AlwaysAllow") || (desired > 0 && healthy >= desired))
    {
        return Ok(());
    }
    if count("/status/observedGeneration") < count("/metadata/generation") {
        let why = format!("The disruption budget {budget_name} is still being processed by the server.");
        return Err(refused(&why, Some(10)));
    }
    let left = count("/status/disruptionsAllowed");
    if left <= 0 {
        let why =
            format!("The disruption budget {budget_name} needs {desired} healthy pods and has {healthy} currently");
        return Err(refused(&why, None));
    }
    if dry_run {
        return Ok(());
    }
    budget["status"]["disruptionsAllowed"] = (left - 1).into();
    budget["status"]["disruptedPods"][name] = now().into();
    if left == 1 {
        let observed = budget["status"]["observedGeneration"].clone();
        for condition in budget["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["status"] = "False".into();
            condition["reason"] = "InsufficientPods".into();
            condition["observedGeneration"] = observed.clone();
        }
    }
    store.update(key, budget);
    Ok(())
}

/// 429 by a budget. Only an outdated status comes with `Retry-After`.
fn refused(why: &str, retry_after: Option<u64>) -> Answer {
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    if let Some(seconds) = retry_after {
        details["retryAfterSeconds"] = seconds.into();
    }
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let answer = Answer::refusal(429, "TooManyRequests", message, Some(details));
    match retry_after {
        Some(seconds) => answer.header("Retry-After", seconds.to_string()),
        None => answer,
    }
}

fn with_disruption_target(mut pod: Value) -> Value {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": now(),
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    match pod["status"]["conditions"].as_array_mut() {
        Some(list) => list.push(condition),
        None => pod["status"]["conditions"] = json!([condition]),
    }
    pod
}
