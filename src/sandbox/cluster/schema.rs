//! What a CustomResourceDefinition does to an object on its way in: defaults filled, unknown fields
//! pruned (and told of), types, enums, required fields and Calico's own rules checked. The fields are
//! in `calico-fields.txt`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::answer::{Answer, Cause};
use super::resources::Resource;

#[derive(Debug, Default)]
struct Field {
    kind: &'static str,
    required: bool,
    fixed: bool,
    one_of: Vec<&'static str>,
    default: Option<&'static str>,
    min: Option<i64>,
    max: Option<i64>,
}

type Fields = BTreeMap<&'static str, Field>;

/// The declared fields of `spec`, by kind.
fn fields(kind: &str) -> Option<&'static Fields> {
    static ALL: OnceLock<BTreeMap<&'static str, Fields>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all: BTreeMap<&'static str, Fields> = BTreeMap::new();
        for line in include_str!("calico-fields.txt").lines().filter(|l| !l.starts_with('#')) {
            let mut words = line.split(' ');
            let (Some(kind), Some(name), Some(of)) = (words.next(), words.next(), words.next()) else { continue };
            let mut field = Field { kind: of, ..Field::default() };
            for word in words {
                match word.split_once('=') {
                    None if word == "required" => field.required = true,
                    None => field.fixed = true,
                    Some(("enum", list)) => field.one_of = list.split('|').collect(),
                    Some(("default", value)) => field.default = Some(value),
                    Some(("min", n)) => field.min = n.parse().ok(),
                    Some((_, n)) => field.max = n.parse().ok(),
                }
            }
            all.entry(kind).or_default().insert(name, field);
        }
        all
    });
    // The v3 group calls IPAMConfig by another name.
    all.get(if kind == "IPAMConfiguration" { "IPAMConfig" } else { kind })
}

/// Takes away what the schema does not know and gives the paths of what it took, as
/// `spec.vxlanVni`; fills defaults.
pub fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let Some(fields) = fields(resource.kind) else { return unknown };
    if let Some(top) = object.as_object_mut() {
        let known = ["apiVersion", "kind", "metadata", "spec", "status"];
        unknown.extend(top.keys().filter(|k| !known.contains(&k.as_str())).cloned());
        top.retain(|k, _| known.contains(&k.as_str()));
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return unknown };
    unknown.extend(spec.keys().filter(|k| !fields.contains_key(k.as_str())).map(|k| format!("spec.{k}")));
    spec.retain(|k, v| fields.contains_key(k.as_str()) && !v.is_null());
    for (name, field) in fields {
        if let Some(default) = field.default
            && !spec.contains_key(*name)
        {
            spec.insert((*name).into(), typed(field.kind, default));
        }
    }
    unknown
}

fn typed(kind: &str, text: &str) -> Value {
    match kind {
        "string" => text.into(),
        _ => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

/// Refuses an object that its definition does not admit; `before` is the stored one on an update.
pub fn check(resource: &Resource, object: &Value, before: Option<&Value>) -> Result<(), Answer> {
    let Some(fields) = fields(resource.kind) else { return Ok(()) };
    let empty = Map::new();
    let spec = object["spec"].as_object().unwrap_or(&empty);
    let mut causes = Vec::new();
    let mut unchecked = false;
    for (name, field) in fields {
        let path = format!("spec.{name}");
        let Some(value) = spec.get(*name) else {
            if field.required && object["spec"].is_object() {
                causes.push(Cause::required(path));
            }
            continue;
        };
        let is = type_of(value);
        if field.kind != "any" && field.kind != is && !(field.kind == "number" && is == "integer") {
            let message = format!("Invalid value: \"{is}\": {path} in body must be of type {}: \"{is}\"", field.kind);
            causes.push(Cause::new("FieldValueTypeInvalid", path, message));
            unchecked = true;
        } else if !field.one_of.is_empty() && !field.one_of.iter().any(|v| value == v) {
            let list: Vec<String> = field.one_of.iter().map(|v| format!("\"{v}\"")).collect();
            let message = format!("Unsupported value: {value}: supported values: {}", list.join(", "));
            causes.push(Cause::new("FieldValueNotSupported", path, message));
            unchecked = true;
        } else if let Some(n) = value.as_i64() {
            let bound = match (field.min, field.max) {
                (Some(min), _) if n < min => Some(format!("should be greater than or equal to {min}")),
                (_, Some(max)) if n > max => Some(format!("should be less than or equal to {max}")),
                _ => None,
            };
            if let Some(bound) = bound {
                let message = format!("Invalid value: {n}: {path} in body {bound}");
                causes.push(Cause::new("FieldValueInvalid", path, message));
            }
        }
    }
    if unchecked {
        causes.push(Cause::new(
            "FieldValueInvalid",
            "<nil>",
            "Invalid value: null: some validation rules were not checked because the object was invalid; correct the \
             existing errors to complete validation",
        ));
    } else {
        causes.extend(rules(resource, spec));
        causes.extend(before.into_iter().flat_map(|before| changed_fixed(fields, spec, &before["spec"])));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Answer::invalid(resource.kind, resource.group, name, &causes))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The definitions' rules across fields that a Windows node's configuration can meet.
fn rules(resource: &Resource, spec: &Map<String, Value>) -> Vec<Cause> {
    let text = |name: &str| spec.get(name).and_then(Value::as_str).unwrap_or_default();
    let on = |name: &str| !matches!(text(name), "" | "Never");
    let broken = match resource.kind {
        "IPPool" if on("ipipMode") && on("vxlanMode") => "ipipMode and vxlanMode cannot both be enabled",
        "IPPool" if on("ipipMode") && text("cidr").contains(':') => "IPIP is not supported on IPv6 pools",
        "BGPPeer" if !text("node").is_empty() && !text("nodeSelector").is_empty() => {
            "node and nodeSelector cannot both be set"
        }
        "BGPPeer" if !text("peerIP").is_empty() && !text("peerSelector").is_empty() => {
            "peerIP and peerSelector cannot both be set"
        }
        _ => return Vec::new(),
    };
    vec![Cause::new("FieldValueForbidden", "spec", format!("Forbidden: {broken}"))]
}

fn changed_fixed(fields: &Fields, spec: &Map<String, Value>, before: &Value) -> Vec<Cause> {
    let fixed = fields.iter().filter(|(_, field)| field.fixed);
    let changed = fixed.filter_map(|(name, _)| match (spec.get(*name), before.get(*name)) {
        (Some(now), Some(was)) if now != was => Some((*name, now)),
        _ => None,
    });
    changed
        .map(|(name, now)| {
            let what = if name == "blockSize" { "Block size" } else { "CIDR" };
            let message = format!(
                "Invalid value: {now}: {what} cannot be changed; follow IP pool migration guide to avoid corruption."
            );
            Cause::new("FieldValueInvalid", format!("spec.{name}"), message)
        })
        .collect()
}
