//! Felix's static rules, as a config names them. What Felix does not accept in such a file makes it panic at every start
//! (felix/dataplane/windows/policysets/static_rules.go), so it is refused here.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::values::WinPath;

/// Which rules Felix applies before all policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StaticRules {
    Auto,
    Aks,
    None,
    /// The rules in a file on the node.
    #[serde(untagged)]
    File {
        file: WinPath,
    },
    /// The rules themselves, as in such a file.
    #[serde(untagged)]
    Inline(Map<String, Value>),
}

impl<'de> Deserialize<'de> for StaticRules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(word) if word == "auto" => Ok(Self::Auto),
            Value::String(word) if word == "aks" => Ok(Self::Aks),
            Value::String(word) if word == "none" => Ok(Self::None),
            Value::Object(fields) => match fields.get("file") {
                Some(Value::String(file)) if fields.len() == 1 => {
                    file.parse().map(|file| Self::File { file }).map_err(D::Error::custom)
                }
                Some(_) => Err(D::Error::custom("`file` must be the path of a file, and the only field")),
                None => check(&Value::Object(fields.clone())).map(|()| Self::Inline(fields)).map_err(D::Error::custom),
            },
            other => Err(D::Error::custom(format!("unknown variant {other}"))),
        }
    }
}

impl JsonSchema for StaticRules {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StaticRules".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "enum": ["auto", "aks", "none"] }, { "type": "object" }] })
    }
}

/// The fields of a rule that are text, and need not be set.
const TEXTS: [&str; 4] = ["LocalAddresses", "RemoteAddresses", "LocalPorts", "RemotePorts"];

/// Whether Felix accepts these rules. The case of a name does not matter to Go. A field that Felix does not know would be
/// ignored, and a rule without it applies to more traffic.
///
/// # Errors
/// What is wrong, with its place, and what is allowed.
pub fn check(rules: &Value) -> Result<(), String> {
    let all = fields(rules, "the rules", &["Provider", "Version", "Rules"])?;
    if text(&all, "Provider").is_none_or(str::is_empty) {
        return Err("Provider is missing: a text with which Felix names the rules".into());
    }
    let Some(Value::Array(list)) = named(&all, "Rules") else {
        return Err("Rules is missing: a list of entries, each with Name and Rule".into());
    };
    for (at, entry) in list.iter().enumerate() {
        let place = format!("Rules[{at}]");
        let entry = fields(entry, &place, &["Name", "Rule"])?;
        let Some(rule) = named(&entry, "Rule") else { return Err(format!("{place} has no Rule")) };
        check_rule(rule, &format!("{place}.Rule"))?;
    }
    Ok(())
}

fn check_rule(rule: &Value, place: &str) -> Result<(), String> {
    let known = ["Type", "Id", "Protocol", "Action", "Direction", "RuleType", "Priority"];
    let rule = fields(rule, place, &[&known[..], &TEXTS].concat())?;
    for (name, words) in [
        ("Type", &["ACL"][..]),
        ("Action", &["Allow", "Block"]),
        ("Direction", &["In", "Out"]),
        ("RuleType", &["Host", "Switch"]),
    ] {
        if !text(&rule, name).is_some_and(|word| words.contains(&word)) {
            let found = named(&rule, name).map_or_else(|| "is missing".into(), |value| format!("is {value}"));
            return Err(format!("{place}.{name} {found}: Felix accepts {}", words.join(" or ")));
        }
    }
    if text(&rule, "Id").is_none_or(str::is_empty) {
        return Err(format!("{place}.Id is missing: a text that is unique in the rules"));
    }
    for (name, least, needed) in [("Priority", 1, true), ("Protocol", 0, false)] {
        let right = match named(&rule, name) {
            Some(value) => value.as_u64().is_some_and(|number| (least..=65535).contains(&number)),
            None => !needed,
        };
        if !right {
            return Err(format!("{place}.{name} must be a whole number from {least} to 65535"));
        }
    }
    match TEXTS.into_iter().find(|name| named(&rule, name).is_some_and(|value| !value.is_string())) {
        Some(name) => Err(format!("{place}.{name} must be a text, for example \"80\" or \"10.0.0.0/8\"")),
        None => Ok(()),
    }
}

/// The fields of an object, of which each must be known.
fn fields<'a>(value: &'a Value, place: &str, known: &[&str]) -> Result<Vec<(&'a str, &'a Value)>, String> {
    let Value::Object(found) = value else { return Err(format!("{place} must have fields: {}", known.join(", "))) };
    match found.keys().find(|key| !known.iter().any(|name| name.eq_ignore_ascii_case(key))) {
        Some(key) => Err(format!("{place} has `{key}`, which Felix ignores; it knows {}", known.join(", "))),
        None => Ok(found.iter().map(|(key, value)| (key.as_str(), value)).collect()),
    }
}

fn named<'a>(fields: &[(&str, &'a Value)], name: &str) -> Option<&'a Value> {
    fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

fn text<'a>(fields: &[(&str, &'a Value)], name: &str) -> Option<&'a str> {
    named(fields, name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(change: impl Fn(&mut Value)) -> Value {
        let mut rule = json!({
            "Type": "ACL", "Id": "no-metadata", "Protocol": 6, "Action": "Block", "Direction": "Out",
            "RemoteAddresses": "169.254.169.254/32", "RemotePorts": "80", "RuleType": "Switch", "Priority": 200,
        });
        change(&mut rule);
        json!({ "Provider": "shop", "version": "1", "Rules": [{ "Name": "EndpointPolicy", "Rule": rule }] })
    }

    #[test]
    fn what_makes_felix_panic_is_refused_with_its_place() {
        assert_eq!(check(&rules(|_| ())), Ok(()));
        assert_eq!(check(&rules(|rule| rule["ID"] = rule.as_object_mut().unwrap().remove("Id").unwrap())), Ok(()));
        let wrong = |change: fn(&mut Value)| check(&rules(change)).unwrap_err();
        let told = [
            wrong(|rule| rule["Action"] = "Deny".into()),
            wrong(|rule| rule["Type"] = Value::Null),
            wrong(|rule| rule["Direction"] = "out".into()),
            wrong(|rule| rule["Id"] = "".into()),
            wrong(|rule| rule["Priority"] = 0.into()),
            wrong(|rule| rule["Protocol"] = "TCP".into()),
            wrong(|rule| rule["RemotePorts"] = 80.into()),
            wrong(|rule| rule["RemoteAddress"] = "10.0.0.0/8".into()),
            wrong(|rule| *rule = Value::Null),
            check(&json!({ "Rules": [] })).unwrap_err(),
            check(&json!({ "Provider": "shop" })).unwrap_err(),
            check(&json!([])).unwrap_err(),
        ];
        insta::assert_snapshot!(told.join("\n"), @r#"
        Rules[0].Rule.Action is "Deny": Felix accepts Allow or Block
        Rules[0].Rule.Type is null: Felix accepts ACL
        Rules[0].Rule.Direction is "out": Felix accepts In or Out
        Rules[0].Rule.Id is missing: a text that is unique in the rules
        Rules[0].Rule.Priority must be a whole number from 1 to 65535
        Rules[0].Rule.Protocol must be a whole number from 0 to 65535
        Rules[0].Rule.RemotePorts must be a text, for example "80" or "10.0.0.0/8"
        Rules[0].Rule has `RemoteAddress`, which Felix ignores; it knows Type, Id, Protocol, Action, Direction, RuleType, Priority, LocalAddresses, RemoteAddresses, LocalPorts, RemotePorts
        Rules[0].Rule must have fields: Type, Id, Protocol, Action, Direction, RuleType, Priority, LocalAddresses, RemoteAddresses, LocalPorts, RemotePorts
        Provider is missing: a text with which Felix names the rules
        Rules is missing: a list of entries, each with Name and Rule
        the rules must have fields: Provider, Version, Rules
        "#);
    }

    #[test]
    fn a_config_names_a_file_or_has_the_rules() {
        let read = |value: Value| serde_json::from_value::<StaticRules>(value).map_err(|error| error.to_string());
        for value in [json!("aks"), json!({ "file": "C:\\rules.json" }), rules(|_| ())] {
            assert_eq!(
                serde_json::to_value(read(value.clone()).unwrap()).unwrap(),
                value,
                "it is written as it was read"
            );
        }
        assert_eq!(read(json!({ "file": 7 })).unwrap_err(), "`file` must be the path of a file, and the only field");
        assert!(read(json!({ "file": "rules.json" })).is_err(), "no path of the node");
    }
}
