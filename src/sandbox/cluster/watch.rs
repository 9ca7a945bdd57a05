//! Watches: one JSON line for each change, from a resourceVersion or from the current state.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Content, Outcome};
use super::list::Selector;
use super::request::Request;
use super::resources::Resource;
use super::shared::Api;
use super::store::{Change, Store};
use super::table::OutputFormat;

/// Without `timeoutSeconds` the real one chooses 30 to 60 minutes.
const DEFAULT_TIMEOUT: u64 = 1800;
/// A bookmark comes this long before the end of a watch that asked for bookmarks.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

struct Watch {
    resource: &'static Resource,
    namespace: Option<String>,
    selector: Selector,
    output: OutputFormat,
    seen: u64,
}

/// Answers a watch request; a task sends the lines, and ends with the client or the timeout.
pub fn watch(
    api: &Arc<Api>,
    request: &Request,
    resource: &'static Resource,
    output: OutputFormat,
    store: &Store,
) -> Outcome {
    let selector = Selector::of(request, resource)?;
    let namespace = Some(request.target.namespace.clone()).filter(|n| !n.is_empty());
    let from = match request.param("resourceVersion").unwrap_or("0") {
        _ if request.param("sendInitialEvents") == Some("true") => None,
        "0" => None,
        text => Some(text.parse().map_err(|_| {
            Answer::bad_request(format!(
                "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: invalid syntax"
            ))
        })?),
    };
    let mut watch = Watch { resource, namespace, selector, output, seen: from.unwrap_or_else(|| store.version()) };
    let mut first = Vec::new();
    match from {
        Some(version) if version < store.compacted() => {
            let why = format!("too old resource version: {version} ({})", store.compacted());
            let (line, lines) = mpsc::channel(1);
            if let Content::Json(status) = Answer::refusal(410, "Expired", why, None).body {
                // The channel is empty and has space for one.
                line.try_send(json!({"type": "ERROR", "object": status})).ok();
            }
            return Ok(Answer::lines(lines));
        }
        Some(_) => {}
        None => {
            let present = store.list(resource, watch.namespace.as_deref());
            let picked = present.map(|(_, object)| object).filter(|object| watch.selector.matches(object));
            first.extend(picked.map(|object| watch.line("ADDED", object.clone())));
            if request.param("sendInitialEvents") == Some("true") {
                let mut bookmark = watch.bookmark();
                bookmark["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                first.push(bookmark);
            }
        }
    }

    let seconds = request.param("timeoutSeconds").and_then(|t| t.parse().ok()).unwrap_or(DEFAULT_TIMEOUT);
    let end = Instant::now() + Duration::from_secs(seconds);
    let bookmarks = request.param("allowWatchBookmarks").is_some_and(|b| b == "true" || b == "1");
    let mut bookmark_at = (bookmarks && seconds > 2).then(|| end - BOOKMARK_BEFORE_END);
    let mut changed = store.subscribe();
    let api = Arc::clone(api);
    let (line, lines) = mpsc::channel(64);
    tokio::spawn(async move {
        for event in first {
            if line.send(event).await.is_err() {
                return;
            }
        }
        loop {
            // The guard must not live across an await.
            let news = watch.news(&api.store());
            for event in news {
                if line.send(event).await.is_err() {
                    return;
                }
            }
            let wake = bookmark_at.unwrap_or(end);
            match timeout_at(wake, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) if bookmark_at.take().is_some() => {
                    if line.send(watch.bookmark()).await.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    });
    Ok(Answer::lines(lines))
}

impl Watch {
    fn line(&self, kind: &str, object: Value) -> Value {
        json!({"type": kind, "object": self.output.one(self.resource, object)})
    }

    fn bookmark(&self) -> Value {
        json!({"type": "BOOKMARK", "object": {
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": {"resourceVersion": self.seen.to_string()},
        }})
    }

    /// The lines for the changes since the last call.
    fn news(&mut self, store: &Store) -> Vec<Value> {
        let kind = self.resource.qualified();
        let of_ours = |change: &&Change| {
            change.key.kind == kind && self.namespace.as_ref().is_none_or(|n| *n == change.key.namespace)
        };
        let lines = store.since(self.seen).filter(of_ours).filter_map(|change| self.tell(change)).collect();
        self.seen = store.version();
        lines
    }

    /// A change as this watch sees it: entering the selection is ADDED, leaving it DELETED.
    fn tell(&self, change: &Change) -> Option<Value> {
        let picked = |object: &Option<Value>| object.as_ref().is_some_and(|o| self.selector.matches(o));
        match (picked(&change.before), picked(&change.after)) {
            (false, true) => Some(self.line("ADDED", change.after.clone()?)),
            (true, true) => Some(self.line("MODIFIED", change.after.clone()?)),
            (true, false) => {
                let mut last = change.before.clone()?;
                last["metadata"]["resourceVersion"] = change.version.to_string().into();
                Some(self.line("DELETED", last))
            }
            (false, false) => None,
        }
    }
}
