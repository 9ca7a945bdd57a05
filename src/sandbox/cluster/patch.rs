//! The patch formats of the Kubernetes API: merge patch (RFC 7386), JSON patch (RFC 6902), strategic
//! merge for built-in kinds, and apply, which here merges without field ownership.

use serde_json::{Map, Value};

use super::answer::Answer;
use super::resources::Resource;
use crate::yaml;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Merge,
    Strategic,
    Json,
    Apply,
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Format {
    /// By media type; custom resources have no strategic merge.
    pub fn of(resource: &Resource, content_type: &str) -> Result<Self, Answer> {
        match content_type {
            JSON_PATCH => Ok(Self::Json),
            MERGE => Ok(Self::Merge),
            APPLY => Ok(Self::Apply),
            STRATEGIC if !resource.custom => Ok(Self::Strategic),
            _ if resource.custom => Err(Answer::unsupported_media_type(&[JSON_PATCH, MERGE, APPLY])),
            _ => Err(Answer::unsupported_media_type(&[JSON_PATCH, MERGE, STRATEGIC, APPLY])),
        }
    }

    /// The patch itself.
    pub fn parse(self, body: &[u8]) -> Result<Value, Answer> {
        if self == Self::Apply {
            let text = String::from_utf8_lossy(body);
            return yaml::read(&text).map_err(|e| Answer::bad_request(format!("error decoding YAML: {e}")));
        }
        serde_json::from_slice(body).map_err(|e| {
            let why = if e.is_eof() { "unexpected end of JSON input".into() } else { e.to_string() };
            Answer::bad_request(format!("error decoding patch: {why}"))
        })
    }

    /// Changes `object` by the patch.
    pub fn apply(self, object: &mut Value, patch: &Value) -> Result<(), Answer> {
        match self {
            Self::Merge | Self::Apply => merge(object, patch),
            Self::Strategic => strategic(object, patch, ""),
            Self::Json => {
                let operations = patch
                    .as_array()
                    .ok_or_else(|| Answer::bad_request("error decoding patch: a JSON patch is a list of operations"))?;
                for operation in operations {
                    json(object, operation).ok_or_else(refused)?;
                }
            }
        }
        Ok(())
    }
}

/// A JSON patch that cannot be applied, for example because a `test` fails.
fn refused() -> Answer {
    let message = "the server rejected our request due to an error in our request";
    Answer::refusal(422, "Invalid", message, Some(serde_json::json!({})))
}

fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (name, value) in patch {
        if value.is_null() {
            object.as_object_mut().and_then(|o| o.remove(name));
        } else {
            merge(&mut object[name], value);
        }
    }
}

/// The key by which a strategic merge patch merges the elements of a list. All other lists, for example a node's
/// taints, are replaced as a whole.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" | "addresses" => Some("type"),
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" | "secrets" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "ownerReferences" => Some("uid"),
        "ports" => Some("containerPort"),
        _ => None,
    }
}

fn strategic(object: &mut Value, patch: &Value, name: &str) {
    match patch {
        Value::Object(fields) => {
            if fields.get("$patch").is_some_and(|p| p == "replace") || !object.is_object() {
                *object = Value::Object(Map::new());
            }
            for (field, value) in fields {
                if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
                    let items = object.get_mut(list).and_then(Value::as_array_mut);
                    if let (Some(items), Some(gone)) = (items, value.as_array()) {
                        items.retain(|i| !gone.contains(i));
                    }
                } else if field.starts_with('$') {
                    // Order and retained keys are hints that this server does not need.
                } else if value.is_null() {
                    object.as_object_mut().and_then(|o| o.remove(field));
                } else {
                    strategic(&mut object[field], value, field);
                }
            }
        }
        Value::Array(items) if name == "finalizers" && object.is_array() => {
            if let Some(held) = object.as_array_mut() {
                let fresh: Vec<Value> = items.iter().filter(|i| !held.contains(i)).cloned().collect();
                held.extend(fresh);
            }
        }
        Value::Array(items) => match (merge_key(name), object.as_array_mut()) {
            (Some(key), Some(held)) => merge_list(held, items, key),
            _ => *object = Value::Array(items.iter().filter(|i| i.get("$patch").is_none()).cloned().collect()),
        },
        _ => *object = patch.clone(),
    }
}

fn merge_list(held: &mut Vec<Value>, patches: &[Value], key: &str) {
    for patch in patches {
        let place = held.iter().position(|item| item[key] == patch[key]);
        if patch.get("$patch").is_some_and(|p| p == "delete") {
            if let Some(place) = place {
                held.remove(place);
            }
        } else if let Some(place) = place {
            strategic(&mut held[place], patch, "");
        } else {
            held.push(patch.clone());
        }
    }
}

/// One operation; none if it cannot be applied.
fn json(object: &mut Value, operation: &Value) -> Option<()> {
    let path = operation["path"].as_str()?;
    match operation["op"].as_str()? {
        "test" => (object.pointer(path).unwrap_or(&Value::Null) == operation.get("value")?).then_some(()),
        "replace" => {
            *object.pointer_mut(path)? = operation.get("value")?.clone();
            Some(())
        }
        "add" => add(object, path, operation.get("value")?.clone()),
        "remove" => take(object, path).map(drop),
        "move" => {
            let moved = take(object, operation["from"].as_str()?)?;
            add(object, path, moved)
        }
        "copy" => {
            let copied = object.pointer(operation["from"].as_str()?)?.clone();
            add(object, path, copied)
        }
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, name) = path.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent)? {
        Value::Object(fields) => drop(fields.insert(name, value)),
        Value::Array(items) if name == "-" => items.push(value),
        Value::Array(items) => {
            let place = name.parse().ok().filter(|p| *p <= items.len())?;
            items.insert(place, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, name) = path.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(&name),
        Value::Array(items) => {
            let place = name.parse().ok().filter(|p| *p < items.len())?;
            Some(items.remove(place))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(format: Format, mut object: Value, patch: Value) -> Value {
        format.apply(&mut object, &patch).expect("the patch fits");
        object
    }

    #[test]
    fn a_merge_patch_removes_with_null_and_replaces_lists() {
        let node = json!({"spec": {"unschedulable": true, "taints": [{"key": "a"}]}});
        let patch = json!({"spec": {"unschedulable": null, "taints": [{"key": "b"}]}});
        assert_eq!(patched(Format::Merge, node, patch), json!({"spec": {"taints": [{"key": "b"}]}}));
    }

    #[test]
    fn a_strategic_patch_merges_conditions_by_type_but_replaces_taints() {
        let node = json!({
            "spec": {"taints": [{"key": "a"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"}]},
        });
        let patch = json!({
            "spec": {"taints": [{"key": "b"}]},
            "status": {"$setElementOrder/conditions": [], "conditions": [{"type": "NetworkUnavailable", "status": "False"}]},
        });
        let node = patched(Format::Strategic, node, patch);
        assert_eq!(node["spec"]["taints"], json!([{"key": "b"}]));
        assert_eq!(
            node["status"]["conditions"],
            json!([{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "False"}])
        );
    }

    #[test]
    fn a_json_patch_adds_moves_and_removes_by_pointer() {
        let object = json!({"metadata": {"annotations": {"a/b": "1"}}, "list": [1, 3]});
        let patch = json!([
            {"op": "add", "path": "/list/1", "value": 2},
            {"op": "add", "path": "/list/-", "value": 4},
            {"op": "move", "from": "/metadata/annotations/a~1b", "path": "/metadata/annotations/c"},
            {"op": "remove", "path": "/list/0"},
        ]);
        assert_eq!(
            patched(Format::Json, object, patch),
            json!({"metadata": {"annotations": {"c": "1"}}, "list": [2, 3, 4]})
        );
    }
}
