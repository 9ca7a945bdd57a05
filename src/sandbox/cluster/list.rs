//! Lists: label and field selectors, pages with a continue token, resource versions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::answer::{Answer, Outcome};
use super::request::Request;
use super::resources::Resource;
use super::store::{Key, Store};
use super::table::OutputFormat;

/// What a list or watch selects.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    /// JSON pointer, wanted value, whether it must be equal.
    fields: Vec<(String, String, bool)>,
    labels: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String, bool),
    In(String, Vec<String>, bool),
}

impl Selector {
    pub fn of(request: &Request, resource: &Resource) -> Result<Self, Answer> {
        let mut selector = Self::default();
        for term in request.param("fieldSelector").unwrap_or_default().split(',').filter(|t| !t.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (field, value, true)
            } else {
                return Err(Answer::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'")));
            };
            if !supported(resource, field) {
                return Err(Answer::bad_request(format!("field label not supported: {field}")));
            }
            selector.fields.push((format!("/{}", field.replace('.', "/")), value.into(), equal));
        }
        if let Some(labels) = request.param("labelSelector") {
            selector.labels = requirements(labels)
                .ok_or_else(|| Answer::bad_request(format!("unable to parse requirement: found '{labels}'")))?;
        }
        Ok(selector)
    }

    pub fn matches(&self, object: &Value) -> bool {
        let fields = self.fields.iter().all(|(pointer, wanted, equal)| {
            let is = object.pointer(pointer).map(plain).unwrap_or_default();
            (is == *wanted) == *equal
        });
        fields && self.labels.iter().all(|r| r.holds(&object["metadata"]["labels"]))
    }
}

impl Requirement {
    fn holds(&self, labels: &Value) -> bool {
        match self {
            Self::Exists(key, wanted) => labels.get(key).is_some() == *wanted,
            Self::In(key, values, wanted) => {
                let within = labels.get(key).and_then(Value::as_str).is_some_and(|v| values.iter().any(|x| x == v));
                within == *wanted
            }
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), Into::into)
}

fn supported(resource: &Resource, field: &str) -> bool {
    let more: &[&str] = match (resource.group, resource.plural) {
        ("", "pods") => &["spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase"],
        ("", "secrets") => &["type"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "events") => &["involvedObject.name", "involvedObject.namespace", "involvedObject.kind", "reason", "type"],
        _ => &[],
    };
    field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) || more.contains(&field)
}

/// Whether `{matchLabels, matchExpressions}` selects an object with these labels.
pub fn label_selector_matches(selector: &Value, labels: &Value) -> bool {
    let by_label = selector["matchLabels"].as_object().into_iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
    let by_expression = selector["matchExpressions"].as_array().into_iter().flatten().all(|e| {
        let key = plain(&e["key"]);
        let values = e["values"].as_array().into_iter().flatten().map(plain).collect();
        match e["operator"].as_str().unwrap_or_default() {
            "In" => Requirement::In(key, values, true),
            "NotIn" => Requirement::In(key, values, false),
            "Exists" => Requirement::Exists(key, true),
            _ => Requirement::Exists(key, false),
        }
        .holds(labels)
    });
    by_label && by_expression
}

/// `a=b,c!=d,e in (f,g),h notin (i),j,!k`
fn requirements(text: &str) -> Option<Vec<Requirement>> {
    let mut list = Vec::new();
    let mut depth = 0;
    let terms = text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    for term in terms.map(str::trim).filter(|t| !t.is_empty()) {
        let set = |wanted, (key, values): (&str, &str)| {
            let values = values.trim().strip_prefix('(')?.strip_suffix(')')?;
            Some(Requirement::In(key.trim().into(), values.split(',').map(|v| v.trim().into()).collect(), wanted))
        };
        let one = |wanted, (key, value): (&str, &str)| {
            Requirement::In(key.trim().into(), vec![value.trim_start_matches('=').trim().into()], wanted)
        };
        list.push(if let Some(parts) = term.split_once(" notin ") {
            set(false, parts)?
        } else if let Some(parts) = term.split_once(" in ") {
            set(true, parts)?
        } else if let Some(parts) = term.split_once("!=") {
            one(false, parts)
        } else if let Some(parts) = term.split_once('=') {
            one(true, parts)
        } else if let Some(key) = term.strip_prefix('!') {
            Requirement::Exists(key.trim().into(), false)
        } else if term.contains([' ', '(']) {
            return None;
        } else {
            Requirement::Exists(term.into(), true)
        });
    }
    Some(list)
}

/// Answers a list request.
pub fn list(request: &Request, resource: &Resource, output: OutputFormat, store: &Store) -> Outcome {
    let namespace = Some(request.target.namespace.as_str()).filter(|n| !n.is_empty());
    let selector = Selector::of(request, resource)?;
    let (mut version, start) = match request.param("continue") {
        Some(token) => read_token(token)?,
        None => (None, None),
    };
    if request.param("resourceVersionMatch").is_some() && start.is_none() {
        version = wanted_version(request, store)?;
    }
    let at = version.unwrap_or_else(|| store.version());
    let objects = if at == store.version() {
        store.list(resource, namespace).map(|(k, v)| (k.clone(), v.clone())).collect()
    } else {
        let objects = store.list_at(resource, namespace, at);
        objects.ok_or_else(|| expired(start.as_ref()))?
    };
    let objects = objects
        .into_iter()
        .filter(|(key, _)| start.as_ref().is_none_or(|s| (&key.namespace, &key.name) > (&s.0, &s.1)));
    let mut picked: Vec<(Key, Value)> = objects.filter(|(_, object)| selector.matches(object)).collect();

    let limit = request.param("limit").and_then(|l| l.parse().ok()).filter(|l| *l > 0).unwrap_or(usize::MAX);
    let mut metadata = json!({"resourceVersion": at.to_string()});
    if resource.custom {
        metadata["continue"] = "".into();
    }
    if picked.len() > limit {
        let rest = picked.split_off(limit);
        let (last, _) = &picked[limit - 1];
        metadata["continue"] = token(i64::try_from(at).unwrap_or(i64::MAX), last).into();
        // With a selector the real one does not know the remaining number.
        if selector.fields.is_empty() && selector.labels.is_empty() {
            metadata["remainingItemCount"] = rest.len().into();
        }
    }
    let items = picked.into_iter().map(|(_, object)| object).collect();
    Ok(Answer::ok(output.list(resource, metadata, items)))
}

fn token(version: i64, last: &Key) -> String {
    let start = if last.namespace.is_empty() {
        format!("/{}\u{0}", last.name)
    } else {
        format!("/{}/{}\u{0}", last.namespace, last.name)
    };
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": start}).to_string())
}

type Position = (Option<u64>, Option<(String, String)>);

/// Version (none: the newest, for the "inconsistent" continuation) and the last key that was returned.
fn read_token(token: &str) -> Result<Position, Answer> {
    let invalid =
        |why: String| Answer::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|e| invalid(e.to_string()))?;
    let parsed: Value = serde_json::from_slice(&bytes).map_err(|_| {
        let first = bytes.first().map_or(' ', |b| char::from(*b));
        invalid(format!("invalid character '{first}' looking for beginning of value"))
    })?;
    let start = parsed["start"].as_str().unwrap_or_default().trim_matches(['/', '\0']);
    let (namespace, name) = start.split_once('/').unwrap_or(("", start));
    Ok((parsed["rv"].as_i64().and_then(|rv| u64::try_from(rv).ok()), Some((namespace.into(), name.into()))))
}

/// The snapshot of a page is compacted: 410, with a token to continue without consistency.
pub(super) fn expired(start: Option<&(String, String)>) -> Answer {
    let Some((namespace, name)) = start else {
        return Answer::refusal(410, "Expired", "The resourceVersion for the provided list is too old.", None);
    };
    let key = Key { kind: String::new(), namespace: namespace.clone(), name: name.clone() };
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                   list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    let mut answer = Answer::refusal(410, "Expired", message, None);
    if let super::answer::Content::Json(body) = &mut answer.body {
        body["metadata"]["continue"] = token(-1, &key).into();
    }
    answer
}

/// The version of a list: `Exact`, or `NotOlderThan`, which must exist already.
fn wanted_version(request: &Request, store: &Store) -> Result<Option<u64>, Answer> {
    let text = request.param("resourceVersion").unwrap_or("0");
    let wanted: u64 =
        text.parse().map_err(|_| Answer::bad_request(format!("resourceVersion: Invalid value: \"{text}\"")))?;
    if wanted > store.version() {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {}", store.version());
        let details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        return Err(Answer::refusal(504, "Timeout", message, Some(details)).header("Retry-After", "1"));
    }
    Ok((request.param("resourceVersionMatch") == Some("Exact")).then_some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_are_read_as_kubectl_writes_them() {
        let labels = json!({"kubernetes.io/os": "windows", "app": "web"});
        for (selector, wanted) in [
            ("kubernetes.io/os=windows", true),
            ("kubernetes.io/os==linux", false),
            ("app!=db,app in (web, db)", true),
            ("app notin (web)", false),
            ("app,!gone", true),
            ("gone", false),
        ] {
            let list = requirements(selector).expect("it is a selector");
            assert_eq!(list.iter().all(|r| r.holds(&labels)), wanted, "{selector}");
        }
    }
}
