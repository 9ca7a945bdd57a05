//! The output formats of objects: complete, as metadata only, or as the table that `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::Answer;
use super::resources::Resource;
use super::store::text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    Whole,
    Metadata,
    Table,
}

impl OutputFormat {
    /// The first supported format of the `Accept` list. Protobuf is skipped: every client that asks for it names JSON
    /// too. Nothing acceptable is 406.
    pub fn of(accept: Option<&str>) -> Result<Self, Answer> {
        let accept = accept.filter(|a| !a.trim().is_empty()).unwrap_or("application/json");
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*")) {
                continue;
            }
            match parts.find_map(|p| p.strip_prefix("as=")) {
                None => return Ok(Self::Whole),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Self::Metadata),
                Some("Table") => return Ok(Self::Table),
                Some(_) => {}
            }
        }
        Err(Answer::not_acceptable())
    }

    /// One object.
    pub fn one(self, resource: &Resource, object: Value) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => partial(&object),
            Self::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                table(resource, metadata, &[object])
            }
        }
    }

    /// A list; built-in kinds omit kind and apiVersion in the items.
    pub fn list(self, resource: &Resource, metadata: Value, mut items: Vec<Value>) -> Value {
        match self {
            Self::Whole => {
                if !resource.custom {
                    for item in items.iter_mut().filter_map(Value::as_object_mut) {
                        item.remove("kind");
                        item.remove("apiVersion");
                    }
                }
                json!({
                    "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
                    "metadata": metadata, "items": items,
                })
            }
            Self::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "items": items.iter().map(partial).collect::<Vec<_>>(),
            }),
            Self::Table => table(resource, metadata, &items),
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
    intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is \
    not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is \
    represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn table(resource: &Resource, metadata: Value, items: &[Value]) -> Value {
    let own: &[&str] = match (resource.group, resource.plural) {
        ("", "nodes") => &["Status", "Roles", "Version"],
        ("", "pods") => &["Ready", "Status", "Node"],
        _ => &[],
    };
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0});
    let mut columns = vec![column("Name", "string", "name", NAME)];
    columns.extend(own.iter().map(|name| column(name, "string", "", "")));
    // Custom resources show their creation time; built-in ones their age, as text.
    let age = if resource.custom { "date" } else { "string" };
    columns.push(column("Age", age, "", AGE));
    let rows: Vec<Value> = items
        .iter()
        .map(|object| {
            let mut cells = vec![object["metadata"]["name"].clone()];
            match (resource.group, resource.plural) {
                ("", "nodes") => cells.extend(node_cells(object)),
                ("", "pods") => cells.extend(pod_cells(object)),
                _ => {}
            }
            cells.push(age_of(object).into());
            json!({"cells": cells, "object": partial(object)})
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str())
}

fn node_cells(node: &Value) -> [Value; 3] {
    let mut status = match condition(node, "Ready") {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> =
        labels.into_iter().flatten().filter_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/")).collect();
    let roles = if roles.is_empty() { "<none>".into() } else { roles.join(",") };
    [status.into(), roles.into(), node["status"]["nodeInfo"]["kubeletVersion"].clone()]
}

fn pod_cells(pod: &Value) -> [Value; 3] {
    let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let ready = if condition(pod, "Ready") == Some("True") { containers } else { 0 };
    let status = if pod["metadata"].get("deletionTimestamp").is_some() {
        "Terminating"
    } else {
        text(pod, "/status/phase").unwrap_or("Unknown")
    };
    let node = text(pod, "/spec/nodeName").unwrap_or("<none>");
    [format!("{ready}/{containers}").into(), status.into(), node.into()]
}

/// `31s`, `5m`, `3h`, `12d`.
fn age_of(object: &Value) -> String {
    let created = text(object, "/metadata/creationTimestamp").and_then(|t| t.parse::<Timestamp>().ok());
    let Some(created) = created else { return "<unknown>".into() };
    match Timestamp::now().as_second() - created.as_second() {
        s if s < 120 => format!("{}s", s.max(0)),
        s if s < 3 * 3600 => format!("{}m", s / 60),
        s if s < 48 * 3600 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}
