//! What a CustomResourceDefinition does to a submitted object: sets defaults, prunes unknown fields (and reports them),
//! checks types, enums, bounds, patterns, required fields and Calico's own rules.

use std::net::IpAddr;

use ipnet::IpNet;
use regex::Regex;
use serde_json::Value;

use super::answer::{Answer, Cause};
use super::definition::{self, Field};
use super::resources::Resource;

/// Removes what the schema does not know and returns the removed paths, for example `spec.vxlanVni`; sets defaults.
/// `line` is the release line of the definitions.
pub fn prune(resource: &Resource, line: &str, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(schema) = definition::of(resource, line) {
        keep_known(schema, "", object, &mut unknown);
    }
    unknown
}

fn keep_known(schema: &Field, path: &str, value: &mut Value, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !schema.is_open() => {
            fields.retain(|name, value| match schema.field(name) {
                None => {
                    unknown.push(child(path, name));
                    false
                }
                // A null is no value, unless the definition allows it.
                Some(field) => !value.is_null() || field.says.nullable,
            });
            for (name, field) in schema.named() {
                if let Some(default) = &field.says.default
                    && !fields.contains_key(name)
                {
                    fields.insert(name.into(), default.clone());
                }
            }
            for (name, value) in fields {
                if let Some(field) = schema.field(name) {
                    keep_known(field, &child(path, name), value, unknown);
                }
            }
        }
        Value::Array(elements) => {
            let Some(element) = schema.element() else { return };
            for (at, value) in elements.iter_mut().enumerate() {
                keep_known(element, &format!("{path}[{at}]"), value, unknown);
            }
        }
        _ => {}
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Refuses an object that its definition does not allow; `before` is the stored one on an update.
pub fn check(resource: &Resource, line: &str, object: &Value, before: Option<&Value>) -> Result<(), Answer> {
    let Some(schema) = definition::of(resource, line) else { return Ok(()) };
    let mut causes = Vec::new();
    judge(schema, "", object, &mut causes);
    // Rules read the fields, so first check the types.
    if causes.iter().any(|cause| matches!(cause.reason, "FieldValueTypeInvalid" | "FieldValueNotSupported")) {
        causes.push(Cause::new(
            "FieldValueInvalid",
            "<nil>",
            "Invalid value: null: some validation rules were not checked because the object was invalid; correct the \
             existing errors to complete validation",
        ));
    } else {
        causes.extend(rules(resource, &object["spec"]));
        causes.extend(before.into_iter().flat_map(|before| changed_fixed(resource, &object["spec"], &before["spec"])));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Answer::invalid(resource.kind, resource.group, name, &causes))
}

fn judge(schema: &Field, path: &str, value: &Value, causes: &mut Vec<Cause>) {
    let is = type_of(value);
    let fits = match schema.kind {
        kind if kind == is => true,
        "number" => is == "integer",
        "int-or-string" => matches!(is, "integer" | "string"),
        _ => value.is_null() && schema.says.nullable,
    };
    if !fits {
        let kinds = schema.kind.replace("int-or-string", "integer,string");
        let message = format!("Invalid value: \"{is}\": {path} in body must be of type {kinds}: \"{is}\"");
        causes.push(Cause::new("FieldValueTypeInvalid", path, message));
        return;
    }
    if let Some((reason, message)) = wrong(schema, path, value) {
        causes.push(Cause::new(reason, path, message));
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in schema.named() {
                if field.says.required && !fields.contains_key(name) {
                    causes.push(Cause::required(child(path, name)));
                }
            }
            for (name, value) in fields {
                if let Some(field) = schema.field(name) {
                    judge(field, &child(path, name), value, causes);
                }
            }
        }
        Value::Array(elements) => {
            for (at, value) in elements.iter().enumerate() {
                if let Some(element) = schema.element() {
                    judge(element, &format!("{path}[{at}]"), value, causes);
                }
            }
        }
        _ => {}
    }
}

/// The error of a value of the right type: the reason and the message of its cause.
fn wrong(schema: &Field, path: &str, value: &Value) -> Option<(&'static str, String)> {
    let says = &schema.says;
    if value.is_null() {
        return None;
    }
    if !says.one_of.is_empty() && !says.one_of.contains(value) {
        let list: Vec<String> = says.one_of.iter().map(ToString::to_string).collect();
        return Some((
            "FieldValueNotSupported",
            format!("Unsupported value: {value}: supported values: {}", list.join(", ")),
        ));
    }
    let invalid = |why: String| Some(("FieldValueInvalid", format!("Invalid value: {value}: {path} in body {why}")));
    let number = value.as_f64();
    if let (Some(number), Some(least)) = (number, says.minimum)
        && number < least
    {
        return invalid(format!("should be greater than or equal to {least}"));
    }
    if let (Some(number), Some(most)) = (number, says.maximum)
        && number > most
    {
        return invalid(format!("should be less than or equal to {most}"));
    }
    let (length, least, most, of) = match value {
        Value::String(text) => (text.chars().count(), says.min_length, says.max_length, "chars long"),
        Value::Array(all) => (all.len(), says.min_items, says.max_items, "items"),
        Value::Object(all) => (all.len(), says.min_properties, says.max_properties, "properties"),
        _ => return None,
    };
    let length = length as u64;
    if let Some(most) = most.filter(|most| length > *most) {
        if value.is_string() {
            return Some(("FieldValueTooLong", format!("Too long: may not be more than {most} bytes")));
        }
        return Some(("FieldValueTooMany", format!("Too many: {length}: must have at most {most} items")));
    }
    if let Some(least) = least.filter(|least| length < *least) {
        return invalid(match of {
            "chars long" => format!("should be at least {least} {of}"),
            _ => format!("should have at least {least} {of}"),
        });
    }
    let text = value.as_str()?;
    let matches = |pattern: &String| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
    if let Some(pattern) = says.pattern.as_ref().filter(|pattern| !matches(pattern)) {
        return invalid(format!("should match '{pattern}'"));
    }
    let format = says.format.as_deref()?;
    let good = match format {
        "cidr" => text.parse::<IpNet>().is_ok(),
        "ipv4" | "ipv6" => text.parse::<IpAddr>().is_ok(),
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        _ => true,
    };
    if good { None } else { invalid(format!("must be of type {format}: {value}")) }
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

/// The definitions' rules across fields that the configuration of a Windows node can violate. The v1 group has them
/// since v3.32 (`tests/fixtures/kube-recordings.jsonl`).
fn rules(resource: &Resource, spec: &Value) -> Vec<Cause> {
    let text = |name: &str| spec[name].as_str().unwrap_or_default();
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

/// The immutable fields of a pool.
fn changed_fixed(resource: &Resource, spec: &Value, before: &Value) -> Vec<Cause> {
    let fixed = [("blockSize", "Block size"), ("cidr", "CIDR")].into_iter().filter(|_| resource.kind == "IPPool");
    let changed =
        fixed.filter(|(name, _)| spec[*name] != before[*name] && !spec[*name].is_null() && !before[*name].is_null());
    changed
        .map(|(name, what)| {
            let message = format!(
                "Invalid value: {}: {what} cannot be changed; follow IP pool migration guide to avoid corruption.",
                spec[name]
            );
            Cause::new("FieldValueInvalid", format!("spec.{name}"), message)
        })
        .collect()
}
