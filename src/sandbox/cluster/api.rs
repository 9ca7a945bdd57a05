//! From a request to its response: authentication, authorization, routing, handler.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{Answer, Cause, Content, Outcome};
use super::auth::{self, Certificate, User};
use super::call::Call;
use super::discovery;
use super::eviction;
use super::faults::Action;
use super::request::Request;
use super::resources::{Resource, core, find};
use super::reviews;
use super::shared::Api;
use super::store::{Key, Store, text};
use super::table::OutputFormat;
use super::watch;

impl Api {
    /// Answers one request. `met` is the fault that applies, if one that replaces a handler's response.
    pub fn handle(self: &Arc<Self>, request: &Request, certificate: &Certificate, met: Option<Action>) -> Answer {
        if let Some(error) = self.trouble() {
            return internal_error(&format!("{error:#}"));
        }
        let mut store = self.store();
        let answer = match store.enter() {
            Ok(()) => self.answer(request, certificate, met, &mut store),
            Err(error) => internal_error(&format!("{error:#}")),
        };
        match store.leave() {
            Ok(()) => answer,
            Err(error) => internal_error(&format!("{error:#}")),
        }
    }

    fn answer(
        self: &Arc<Self>,
        request: &Request,
        certificate: &Certificate,
        met: Option<Action>,
        store: &mut Store,
    ) -> Answer {
        let user = match auth::authenticate(request, certificate, &self.keys, store) {
            Ok(user) => user,
            Err(refusal) => return refusal,
        };
        if let Some(answer) = met.and_then(|action| self.instead(action, request, &user, store)) {
            return answer;
        }
        let before = request.dry_run().then(|| store.snapshot());
        let mut answer = match self.route(request, user, store) {
            Ok(answer) | Err(answer) => answer,
        };
        if let Some(before) = before {
            store.restore(before);
            if let Content::Json(object) = &mut answer.body {
                unversioned(object, store, request, find_target(store, request));
            }
        }
        answer
    }

    fn route(self: &Arc<Self>, request: &Request, user: User, store: &mut Store) -> Outcome {
        // The group of administrators is allowed without reading the roles.
        if !user.groups.iter().any(|group| group == "system:masters") && self.faults.roles_unread() {
            return Err(auth::forbidden(&user, request.target.verb, &request.target, &request.path));
        }
        let user = auth::authorize(user, request, store)?;
        let target = &request.target;
        if target.resource.is_empty() {
            return discovery::answer(request, store.layout);
        }
        if let Some(outcome) = reviews::review(request, &user, store) {
            return outcome;
        }
        let Some(resource) = find_target(store, request) else {
            return Err(aggregated_or_unserved(store, request));
        };
        // Cluster-scoped kinds have no namespaced path, and single objects no path without a namespace.
        let in_namespace = !target.namespace.is_empty();
        let namespace_itself = resource.plural == "namespaces" && resource.group.is_empty();
        let everywhere = matches!(target.verb, "list" | "watch") && target.name.is_empty();
        if !namespace_itself && resource.namespaced != in_namespace && !(resource.namespaced && everywhere) {
            return Err(Answer::no_such_path());
        }
        let output = OutputFormat::of(request.header("accept"))?;
        let mut call = Call { request, resource, user: &user, store, output };
        match (resource.plural, target.subresource.as_str(), target.verb) {
            (_, "", "watch") => watch::watch(self, request, resource, output, call.store),
            (_, "", _) => call.answer(),
            (_, "status", "get" | "update" | "patch") if resource.status => call.answer(),
            ("certificatesigningrequests", "approval", "get" | "update" | "patch") => call.answer(),
            ("pods", "eviction", "create") => eviction::evict(&mut call),
            ("pods", "log", "get") => Err(no_kubelet_log(&call.current()?, request)),
            ("serviceaccounts", "token", "create") => reviews::token_request(&call, &self.keys),
            (_, "status", _) if resource.status => Err(Answer::method_not_allowed()),
            ("pods", "eviction" | "log", _) | ("serviceaccounts", "token", _) => Err(Answer::method_not_allowed()),
            _ => Err(Answer::no_such_path()),
        }
    }

    /// The response of a fault; none for those that act on the connection.
    fn instead(&self, action: Action, request: &Request, user: &User, store: &Store) -> Option<Answer> {
        Some(match action {
            Action::Unauthorized => Answer::unauthorized(),
            Action::Forbidden => auth::forbidden(user, request.target.verb, &request.target, &request.path),
            Action::NotFound => match find_target(store, request) {
                Some(resource) => Answer::not_found(resource, &request.target.name),
                None => Answer::no_such_path(),
            },
            Action::NotFoundText => Answer::no_such_path(),
            Action::Conflict => match find_target(store, request) {
                Some(resource) => Answer::conflict(resource, &request.target.name),
                None => Answer::no_such_path(),
            },
            Action::Expired => super::list::expired(None),
            Action::UnsupportedMediaType => Answer::unsupported_media_type(&["application/json-patch+json"]),
            Action::Invalid => {
                let cause = Cause::new("FieldValueInvalid", "spec", "Invalid value: a rule of this cluster forbids it");
                let (group, kind) = (&request.target.group, find_target(store, request).map_or("Object", |r| r.kind));
                Answer::invalid(kind, group, &request.target.name, &[cause])
            }
            Action::TooManyRequests => Answer::overloaded(),
            Action::InternalError => internal_error("etcdserver: request timed out"),
            Action::InternalErrorBare => Answer::refusal(500, "", "etcdserver: leader changed", None),
            Action::Html => Answer::page("<html><body>Please sign in to continue</body></html>\n"),
            Action::Protobuf => {
                Answer { content_type: "application/vnd.kubernetes.protobuf", ..Answer::text(200, "k8s\0") }
            }
            Action::Redirect => Answer::text(302, "").header("Location", "https://login.example/"),
            Action::Unavailable => Answer::text(503, "service unavailable\n"),
            Action::GatewayTimeout => {
                let message = "Timeout: request did not complete within the allotted timeout";
                Answer::refusal(504, "Timeout", message, Some(json!({})))
            }
            Action::Reset
            | Action::Restart
            | Action::Cut
            | Action::Truncated
            | Action::Slow
            | Action::Far
            | Action::Unfilled
            | Action::ExitBefore
            | Action::ExitAfter
            | Action::Noted => {
                return None;
            }
        })
    }
}

fn find_target(store: &Store, request: &Request) -> Option<&'static Resource> {
    let target = &request.target;
    find(store.layout, &target.group, &target.version, &target.resource)
}

fn internal_error(why: &str) -> Answer {
    let details = json!({"causes": [{"message": why}]});
    Answer::refusal(500, "InternalError", format!("Internal error occurred: {why}"), Some(details))
}

/// A group that an APIService delegates to another server, which never runs here, is 503; any other is 404.
fn aggregated_or_unserved(store: &Store, request: &Request) -> Answer {
    let name = format!("{}.{}", request.target.version, request.target.group);
    match store.get(&Key::new(core("apiservices"), "", &name)) {
        Some(service) if service["spec"]["service"].is_object() => Answer::text(503, "service unavailable\n"),
        _ => Answer::no_such_path(),
    }
}

/// Logs come from the kubelet, and there is none.
fn no_kubelet_log(pod: &Value, request: &Request) -> Answer {
    let node = text(pod, "/spec/nodeName").unwrap_or_default();
    let container = request.param("container").or(text(pod, "/spec/containers/0/name")).unwrap_or_default();
    let (namespace, name) = (&request.target.namespace, &request.target.name);
    let message = format!(
        "Get \"https://{node}:10250/containerLogs/{namespace}/{name}/{container}\": dial tcp: lookup {node} on \
         10.255.255.53:53: no such host"
    );
    Answer::refusal(500, "", message, None)
}

/// The response to a dry run has the current version, or none for an object that is not created.
fn unversioned(object: &mut Value, store: &Store, request: &Request, resource: Option<&'static Resource>) {
    let Some(resource) = resource else { return };
    let stands = store.get(&Key::new(resource, &request.target.namespace, &request.target.name));
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match stands.map(|o| o["metadata"]["resourceVersion"].clone()) {
        Some(version) if metadata.contains_key("resourceVersion") => {
            metadata.insert("resourceVersion".into(), version);
        }
        _ => drop(metadata.remove("resourceVersion")),
    }
}
