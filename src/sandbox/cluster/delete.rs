//! How objects end: at once, after a pod's grace period, or when their last finalizer is removed.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::admission;
use super::answer::{Answer, Outcome};
use super::call::Call;
use super::list;
use super::resources::Resource;
use super::store::{Key, Store, at, text};

/// `DeleteOptions`, from the body or within an Eviction.
#[derive(Debug, Default, Clone)]
pub struct Options {
    pub grace_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

impl Options {
    pub fn read(options: &Value) -> Self {
        Self {
            grace_seconds: options["gracePeriodSeconds"].as_i64(),
            uid: text(options, "/preconditions/uid").map(Into::into),
            resource_version: text(options, "/preconditions/resourceVersion").map(Into::into),
            dry_run: options["dryRun"].as_array().is_some_and(|list| list.iter().any(|v| v == "All")),
        }
    }
}

/// What remains of an object after a deletion.
pub enum Left {
    /// It still exists, marked for deletion.
    Ending(Value),
    /// Its last state.
    Gone(Value),
}

/// `DELETE` of one object.
pub fn one(call: &mut Call<'_>) -> Outcome {
    let body: Value = serde_json::from_slice(&call.request.body).unwrap_or_default();
    let options = Options::read(&body);
    let before = call.current()?;
    let name = &call.request.target.name;
    check_uid(call.resource, &before, &options)?;
    admission::delete(call, &before)?;
    let dry = call.request.dry_run() || options.dry_run;
    let key = call.key();
    let left =
        if dry { preview(call.resource, before, &options) } else { end(call.store, call.resource, &key, &options) };
    Ok(match left {
        None => return Err(Answer::not_found(call.resource, name)),
        Some(Left::Ending(object)) => Answer::ok(call.output.one(call.resource, object)),
        Some(Left::Gone(object)) if call.resource.plural == "pods" => {
            Answer::ok(call.output.one(call.resource, object))
        }
        Some(Left::Gone(object)) => {
            let mut details = super::answer::details(call.resource, name);
            details["uid"] = object["metadata"]["uid"].clone();
            Answer::success(200, Some(details))
        }
    })
}

/// `DELETE` of a collection: everything that a list with the same selectors returns.
pub fn collection(call: &mut Call<'_>) -> Outcome {
    let body: Value = serde_json::from_slice(&call.request.body).unwrap_or_default();
    let options = Options::read(&body);
    let answer = list::list(call.request, call.resource, call.output, call.store)?;
    let selector = list::Selector::of(call.request, call.resource)?;
    let namespace = Some(call.request.target.namespace.as_str()).filter(|n| !n.is_empty());
    let picked: Vec<Key> = call
        .store
        .list(call.resource, namespace)
        .filter(|(_, object)| selector.matches(object))
        .map(|(key, _)| key.clone())
        .collect();
    if !(call.request.dry_run() || options.dry_run) {
        for key in picked {
            end(call.store, call.resource, &key, &options);
        }
    }
    Ok(answer)
}

/// The precondition "only if it is still this one".
pub fn check_uid(resource: &Resource, object: &Value, options: &Options) -> Result<(), Answer> {
    let name = text(object, "/metadata/name").unwrap_or_default();
    let is = text(object, "/metadata/uid").unwrap_or_default();
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != is) {
        return Err(Answer::uid_conflict(resource, name, wanted, is));
    }
    let is = text(object, "/metadata/resourceVersion").unwrap_or_default();
    match options.resource_version.as_deref() {
        Some(wanted) if wanted != is => Err(Answer::version_conflict(resource, name, wanted, is)),
        _ => Ok(()),
    }
}

/// Deletes an object as far as possible now: a pod on a node remains, marked, until its kubelet is done; finalizers
/// delay any deletion.
pub fn end(store: &mut Store, resource: &Resource, key: &Key, options: &Options) -> Option<Left> {
    let before = store.get(key)?.clone();
    let finalizers = |of: &str| before[of]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    // A namespace ends when its contents have.
    let namespace = resource.plural == "namespaces";
    let held = finalizers("metadata") || namespace && finalizers("spec");
    let grace = grace(resource, &before, options);
    let already = before["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if already.is_some_and(|a| a <= grace) && (grace > 0 || held) {
        return Some(Left::Ending(before));
    }
    let pod = resource.plural == "pods";
    if pod || held {
        let marked = store.update(key.clone(), marked(resource, before, grace));
        if grace > 0 || held {
            return Some(Left::Ending(marked));
        }
    }
    store.remove(key).map(Left::Gone)
}

/// What `end` would return, without a change.
fn preview(resource: &Resource, before: Value, options: &Options) -> Option<Left> {
    let grace = grace(resource, &before, options);
    let version = before["metadata"]["resourceVersion"].clone();
    let mut after = if resource.plural == "pods" { marked(resource, before, grace) } else { before };
    after["metadata"]["resourceVersion"] = version;
    Some(if grace > 0 { Left::Ending(after) } else { Left::Gone(after) })
}

fn marked(resource: &Resource, mut object: Value, grace: i64) -> Value {
    let end = Timestamp::now() + SignedDuration::from_secs(grace);
    let generation = object["metadata"]["generation"].as_i64();
    let first = object["metadata"].get("deletionTimestamp").is_none();
    let meta = &mut object["metadata"];
    meta["deletionTimestamp"] = at(end).into();
    meta["deletionGracePeriodSeconds"] = json!(grace);
    if resource.plural == "namespaces" {
        object["status"]["phase"] = "Terminating".into();
    }
    let meta = &mut object["metadata"];
    if resource.generation && first {
        meta["generation"] = json!(generation.unwrap_or(0) + 1);
    }
    object
}

/// Only pods have a grace period, and only while they are bound to a node and have not ended.
fn grace(resource: &Resource, object: &Value, options: &Options) -> i64 {
    let over = matches!(text(object, "/status/phase"), Some("Succeeded" | "Failed"));
    if resource.plural != "pods" || over || text(object, "/spec/nodeName").is_none() {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace_seconds.unwrap_or(own).max(0)
}
