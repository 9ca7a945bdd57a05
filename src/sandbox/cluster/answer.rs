//! Responses of the API: a status, a few headers and a body, and the `Status` objects that Kubernetes sends for every
//! refusal. Texts and fields are those of a real kube-apiserver 1.36 (`tests/fixtures/kube-recordings.jsonl`).

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::resources::Resource;

/// A handler's result: refusals are responses too, and `?` returns them.
pub type Outcome = Result<Answer, Answer>;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Content,
}

#[derive(Debug)]
pub enum Content {
    Json(Value),
    Text(String),
    /// JSON lines sent as changes happen; the stream ends when the sender is dropped.
    Lines(mpsc::Receiver<Value>),
}

pub const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    pub fn json(status: u16, body: Value) -> Self {
        Self { status, content_type: JSON, headers: Vec::new(), body: Content::Json(body) }
    }

    pub fn ok(body: Value) -> Self {
        Self::json(200, body)
    }

    pub fn lines(lines: mpsc::Receiver<Value>) -> Self {
        Self { status: 200, content_type: JSON, headers: Vec::new(), body: Content::Lines(lines) }
    }

    /// Plain text; Go's `http.Error` adds `nosniff`.
    pub fn text(status: u16, body: &str) -> Self {
        let headers = vec![("X-Content-Type-Options", "nosniff".into())];
        Self { status, content_type: TEXT, headers, body: Content::Text(body.into()) }
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// A refusal. Empty `reason` and `details` are omitted, as in the real one.
    pub fn refusal(code: u16, reason: &str, message: impl Into<String>, details: Option<Value>) -> Self {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "code": code,
        });
        if !reason.is_empty() {
            status["reason"] = reason.into();
        }
        if let Some(details) = details {
            status["details"] = details;
        }
        Self::json(code, status)
    }

    /// `Status: Success`, as evictions (201) and deletions (200, with details) answer.
    pub fn success(code: u16, details: Option<Value>) -> Self {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        match details {
            Some(details) => status["details"] = details,
            None => status["code"] = code.into(),
        }
        Self::json(code, status)
    }

    pub fn unauthorized() -> Self {
        Self::refusal(401, "Unauthorized", "Unauthorized", None)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::refusal(400, "BadRequest", message, None)
    }

    /// Nobody serves this path.
    pub fn no_such_path() -> Self {
        Self::text(404, "404 page not found\n")
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::refusal(404, "NotFound", message, Some(details(resource, name)))
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::refusal(409, "AlreadyExists", message, Some(details(resource, name)))
    }

    /// The caller's resourceVersion differs from the object's.
    pub fn conflict(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; please apply your \
             changes to the latest version and try again",
            resource.qualified()
        );
        Self::refusal(409, "Conflict", message, Some(details(resource, name)))
    }

    /// The precondition of a deletion or eviction names another object's uid.
    pub fn uid_conflict(resource: &Resource, name: &str, wanted: &str, is: &str) -> Self {
        let kind = resource.kind;
        let message = format!(
            "Operation cannot be fulfilled on {kind} \"{name}\": the UID in the precondition ({wanted}) does not match \
             the UID in record ({is}). The object might have been deleted and then recreated"
        );
        Self::refusal(409, "Conflict", message, Some(json!({"name": name, "kind": kind})))
    }

    pub fn version_conflict(resource: &Resource, name: &str, wanted: &str, is: &str) -> Self {
        let kind = resource.kind;
        let message = format!(
            "Operation cannot be fulfilled on {kind} \"{name}\": the ResourceVersion in the precondition ({wanted}) does \
             not match the ResourceVersion in record ({is}). The object might have been modified"
        );
        Self::refusal(409, "Conflict", message, Some(json!({"name": name, "kind": kind})))
    }

    /// An admission plugin or a rule refuses this one object.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::refusal(403, "Forbidden", message, Some(details(resource, name)))
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::refusal(405, "MethodNotAllowed", message, Some(json!({})))
    }

    pub fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Self::refusal(406, "NotAcceptable", message, Some(json!({})))
    }

    /// The body's media type is none of `accepted`.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::refusal(415, "UnsupportedMediaType", message, None)
    }

    /// A web page, like a proxy's.
    pub fn page(body: &str) -> Self {
        Self { content_type: "text/html", ..Self::text(200, body) }
    }

    /// The server is overloaded: text and `Retry-After`, to differ from a budget's 429.
    pub fn overloaded() -> Self {
        Self::text(429, "Too many requests, please try again later.\n").header("Retry-After", "1")
    }

    /// The object violates its schema or a rule. `subject` is its name in the message: a kind with its group.
    pub fn invalid(kind: &str, group: &str, name: &str, causes: &[Cause]) -> Self {
        let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let why = if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) };
        let mut details = json!({"kind": kind});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !group.is_empty() {
            details["group"] = group.into();
        }
        details["causes"] = causes.iter().map(Cause::json).collect();
        Self::refusal(422, "Invalid", format!("{subject} \"{name}\" is invalid: {why}"), Some(details))
    }
}

/// One reason why an object is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`…
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

impl Cause {
    pub fn new(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), field: field.into() }
    }

    pub fn required(field: impl Into<String>) -> Self {
        Self::new("FieldValueRequired", field, "Required value")
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

/// `details` of a `Status` about one object.
pub fn details(resource: &Resource, name: &str) -> Value {
    let mut details = json!({"kind": resource.plural});
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    details
}
